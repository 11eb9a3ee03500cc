"""Motion of an elastic link's frame and loads on it, from a rigid motion.

The elastic motion has no effect on the rigid one.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip import fem
from jaxgrip.rigid import Tree, forward_kinematics, rnea_bodies


class JointMotion(NamedTuple):
    """Coordinates of all joints with rates and accelerations, each (n,) [rad or m, per s, s^2]."""

    q: Float[Array, " n"]
    qd: Float[Array, " n"]
    qdd: Float[Array, " n"]


class LinkMotion(eqx.Module):
    """Motion and loads of one body of a tree under a prescribed motion of the joints.

    **Arguments:**

    - `tree`: the rigid model; `body`: the name of the link.
    - `motion`: function of time giving the `JointMotion`.

    Its methods are functions of time for `jaxgrip.fem.simulate`. The acceleration of the frame
    includes gravity, which must not be applied a second time.

    **Raises:** `ValueError` when there is no such body.

    Source: Schanzer 2007, section 7.2, pp. 104-107.
    """

    tree: Tree
    motion: Callable[[Any], JointMotion]
    index: int = eqx.field(static=True)

    def __init__(self, tree: Tree, body: str, motion: Callable[[Any], JointMotion]):
        self.tree = tree
        self.motion = motion
        self.index = tree.body(body)

    @property
    def children(self) -> tuple[int, ...]:
        """Bodies joined to the link, in the order of `wrenches`."""
        return tuple(i for i, parent in enumerate(self.tree.parents) if parent == self.index)

    def frame(self, t) -> fem.FrameMotion:
        """Motion of the link's frame at a time [s]."""
        loads = rnea_bodies(self.tree, *self.motion(t))
        return fem.FrameMotion(*(a[self.index] for a in (loads.vd, loads.w, loads.wd)))

    def wrenches(self, t) -> Float[Array, " wrenches"]:
        """Force [N] and moment [N m] of each child on the link at the child's joint, link axes."""
        q, qd, qdd = self.motion(t)
        loads = rnea_bodies(self.tree, q, qd, qdd)
        rotation = forward_kinematics(self.tree, q).rotation
        own = rotation[self.index]
        wrenches = [
            -(own.T @ rotation[child] @ vector[child])
            for child in self.children
            for vector in (loads.F, loads.N)
        ]
        return jnp.concatenate([jnp.zeros(0), *wrenches])


def link_load(body: fem.Body, link: LinkMotion, faces: Mapping[str, str]) -> fem.Load | None:
    """Loads of its children on an elastic link, for `jaxgrip.fem.simulate`.

    **Arguments:** `faces`: name of each child to the mesh face it is joined to, whose centre is
    the joint's origin; the wrench is distributed linearly over the face.

    **Returns:** the load, None for a link without children.

    **Raises:** `ValueError` when a child has no face, or a face belongs to no child.

    Source: own choice: the traction that beam theory gives on a plane section.
    """
    names = [link.tree.names[child] for child in link.children]
    if set(names) != set(faces):
        own = link.tree.names[link.index]
        raise ValueError(
            f"The children of {own!r} are {', '.join(names) or 'none'}, but faces are given for "
            f"{', '.join(faces) or 'none'}."
        )
    if not names:
        return None
    patterns = [fem.interface_loads(body, faces[name]) for name in names]
    return fem.Load(jnp.concatenate(patterns), link.wrenches)
