"""The model: a tree with elastic bodies."""

import itertools
from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import concrete
from jaxgrip.flexible._link import ElasticLink
from jaxgrip.rigid import Tree, without_balls

_EXCESS = 1e-6


class FlexibleTree(eqx.Module):
    """A tree of bodies, some of them elastic, in the floating frame of reference formulation.

    The frame of an elastic body is the joint frame of the rigid tree and moves with the face
    at that joint; deformations are relative to it. Joints of children are attached to a face of the
    deformed link. The tree's mass, centre of mass and inertia are those of the whole undeformed
    body; the excess over those of the elastic link moves rigidly with the frame. Coordinates are
    q (n,) of the joints and eta (k,) of all links, in the order of the bodies.

    **Arguments:**

    - `tree`: the rigid tree.
    - `links`: body name to elastic link, in the frame of the body.
    - `joints`: child name to the face it is joined to; may be omitted where the link has one face.

    **Raises:** `ValueError` for an unknown body or face, an omitted face where there are several,
    a tree with balls, screws or passive numbers of joints, or a link with more inertia than its
    body in the tree; see `with_link_inertia`.
    """

    tree: Tree
    links: tuple[ElasticLink, ...]
    elastic: tuple[int, ...] = eqx.field(static=True)
    carriers: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        tree: Tree,
        links: Mapping[str, ElasticLink],
        joints: Mapping[str, str] | None = None,
    ):
        without_balls(tree, "FlexibleTree")
        if tree.pitch is not None:
            raise ValueError("FlexibleTree takes no screws, which the tree has.")
        if tree.passive is not None:
            raise ValueError(
                "FlexibleTree takes no springs, losses or armature of joints, which the tree has; "
                "`rigid.with_passive(tree)` is the tree without them."
            )
        joints = dict(joints or {})
        order = sorted(links, key=tree.body)
        self.tree = tree
        self.links = tuple(links[name] for name in order)
        self.elastic = tuple(map(tree.body, order))
        carriers = []
        for name, parent in zip(tree.names, tree.parents, strict=True):
            if parent not in self.elastic:
                if name in joints:
                    raise ValueError(f"The parent of body {name!r} is not elastic.")
                carriers.append(-1)
                continue
            faces = links[tree.names[parent]].interface
            if name not in joints and len(faces.names) != 1:
                raise ValueError(
                    f"Body {name!r} is joined to no face of {tree.names[parent]!r}, which has "
                    f"{', '.join(faces.names)}; name one in joints."
                )
            carriers.append(faces.index(joints.pop(name, faces.names[0])))
        for name in joints:
            tree.body(name)
        self.carriers = tuple(carriers)
        for name in order:
            _check_inertia(tree, name, links[name])

    @property
    def n(self) -> int:
        """Number of joint coordinates."""
        return self.tree.n

    @property
    def k(self) -> int:
        """Number of elastic coordinates."""
        return sum(link.k for link in self.links)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Slice of each link's coordinates in eta."""
        ends = np.cumsum([0, *(link.k for link in self.links)])
        return tuple(slice(int(a), int(b)) for a, b in itertools.pairwise(ends))

    def link(self, name: str) -> tuple[ElasticLink, slice]:
        """The elastic link of a body and the slice of its coordinates in eta."""
        body = self.tree.body(name)
        if body not in self.elastic:
            raise ValueError(f"Body {name!r} is not elastic.")
        index = self.elastic.index(body)
        return self.links[index], self.slices[index]


def moments(tree: Tree) -> tuple[Float[Array, "bodies 3"], Float[Array, "bodies 3 3"]]:
    """∫ρR [kg m] and ∫ρRRᵀ [kg m^2] of the bodies about the origins of their frames."""
    first = tree.mass[:, None] * tree.com
    trace = jnp.trace(tree.inertia, axis1=1, axis2=2)[:, None, None]
    central = 0.5 * trace * jnp.eye(3)[None] - tree.inertia
    return first, central + first[:, :, None] * tree.com[:, None, :]


def with_link_inertia(tree: Tree, links: Mapping[str, ElasticLink]) -> Tree:
    """The tree with mass, centre of mass and inertia of elastic bodies taken from their links.

    **Arguments:** `tree`; `links`, by name of the body.

    **Raises:** `ValueError` when there is no such body.
    """
    mass, com, inertia = tree.mass, tree.com, tree.inertia
    for name, link in links.items():
        i = tree.body(name)
        centre = link.first / link.mass
        central = link.second - jnp.outer(link.first, centre)
        mass, com = mass.at[i].set(link.mass), com.at[i].set(centre)
        inertia = inertia.at[i].set(jnp.trace(central) * jnp.eye(3) - central)
    return eqx.tree_at(lambda t: (t.mass, t.com, t.inertia), tree, (mass, com, inertia))


def _check_inertia(tree: Tree, name: str, link: ElasticLink) -> None:
    if not all(map(concrete, jax.tree.leaves((tree, link)))):
        return
    i = tree.body(name)
    first, second = (np.asarray(x[i]) for x in moments(tree))

    def pseudo(mass, first, second):
        return np.block([[second, first[:, None]], [first[None], np.reshape(mass, (1, 1))]])

    whole = pseudo(np.asarray(tree.mass[i]), first, second)
    part = pseudo(*(np.asarray(x) for x in (link.mass, link.first, link.second)))
    size = np.abs(np.diag(part)) + np.abs(np.diag(whole))
    # A planar link has no extent normal to its plane.
    scale = 1 / np.sqrt(np.where(size > 0, size, 1.0))
    if np.linalg.eigvalsh((whole - part) * np.outer(scale, scale)).min() < -_EXCESS:
        raise ValueError(
            f"The elastic link {name!r} (mass {float(link.mass):.4g} kg) has more inertia than the "
            f"body in the tree (mass {float(tree.mass[i]):.4g} kg); reduce its density or use "
            "with_link_inertia."
        )
