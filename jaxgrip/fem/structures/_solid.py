"""Bodies of solid elements within a structure, as superelements."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import brief
from jaxgrip.fem._body import Body, Support
from jaxgrip.fem._inertia import inertia
from jaxgrip.fem._matrices import stiffness
from jaxgrip.fem.reduction import project
from jaxgrip.fem.static import responses
from jaxgrip.fem.structures._elements import node_numbers
from jaxgrip.fem.topology import Constant
from jaxgrip.spatial import skew


class Solid(eqx.Module):
    """A body of solid elements, rigid at its interfaces, each of which follows a node of the part.

    In statics nothing is approximated but that the interfaces are rigid. In vibration the inner
    nodes move as under static forces, so frequencies are too high where the body alone has low
    ones.

    **Arguments:**

    - `nodes` (k,): a node number of the part for every interface; the node may be anywhere.
    - `body`: a `jaxgrip.fem.Body` of solid elements without supports, its nodes in the frame of
      the part.
    - `interfaces` (k,): names of faces or node sets of the mesh, without common nodes, each with
      at least three nodes that are not on a line.

    **Raises:** `ValueError` for a body of beams or with supports, for an unknown interface, or
    interfaces with common nodes.

    Source: Guyan 1965.
    """

    nodes: Constant = eqx.field(static=True)
    body: Body
    interfaces: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, nodes, body, interfaces):
        self.nodes = Constant(node_numbers("A solid", nodes))
        if not isinstance(body, Body) or body.dofs != 3 or body.supports:
            raise ValueError(
                f"The body of a solid is {brief(body)}; give a fem.Body of solid elements without "
                "supports, since those of a structure are at attachments."
            )
        self.body = body
        self.interfaces = (interfaces,) if isinstance(interfaces, str) else tuple(interfaces)
        if len(self.interfaces) != len(self.nodes.array):
            raise ValueError(
                f"A solid has {len(self.nodes.array)} nodes and {len(self.interfaces)} interfaces; "
                "give a node for every interface."
            )
        if len(set(self.nodes.array.tolist())) != len(self.nodes.array):
            raise ValueError(f"A solid has the nodes {brief(self.nodes.array)}; give each once.")
        taken = np.zeros(body.mesh.topology.n_nodes, dtype=int)
        for name in self.interfaces:
            taken[body.mesh.topology.point_set(name)] += 1
        if taken.max(initial=0) > 1:
            raise ValueError(
                f"The interfaces {', '.join(self.interfaces)} of a solid have node "
                f"{int(np.argmax(taken))} of the mesh in common; give interfaces that have none."
            )


def mass_and_centre(solid: Solid) -> tuple[Float[Array, ""], Float[Array, "3"]]:
    """Mass [kg] of a solid and its centre of gravity (3,) in the frame of the part [m]."""
    along_x = -inertia(solid.body).patterns()[:, :, 0].sum(axis=1)
    return along_x[0], along_x[3:6] / along_x[0]


class SolidMatrices(NamedTuple):
    """Matrices of a solid by displacements and rotations of its k nodes, m = 6 k.

    `stiffness` (m, m), `mass` (m, m); `inertia` (m, 12): ∫ ρ Nᵀ (a0 + W x) dV by a0 and W;
    `shapes` (m, n, 3): displacements of the mesh by those of the nodes; `sag` (12, n, 3):
    displacements of the mesh under the inertia forces of a0 and W while the nodes rest.
    """

    stiffness: Float[Array, "m m"]
    mass: Float[Array, "m m"]
    inertia: Float[Array, "m 12"]
    shapes: Float[Array, "m n 3"]
    sag: Float[Array, "12 n 3"]


def solid_matrices(solid: Solid, x: Float[Array, "k 3"]) -> SolidMatrices:
    """Matrices of a solid whose nodes are at `x` [m], by static condensation."""
    body, mesh = solid.body, solid.body.mesh
    supports = tuple(Support(name) for name in solid.interfaces)
    fixed = Body(mesh, body.material, supports=supports)
    rigid = jnp.zeros((len(x), 6, *body.free.shape))
    for k, name in enumerate(solid.interfaces):
        own = mesh.topology.point_set(name)
        # The transpose of -skew(r), by which a rotation moves the end of an arm r.
        swing = jax.vmap(skew)(mesh.nodes[own] - x[k][None])
        move = jnp.broadcast_to(jnp.eye(3), swing.shape)
        rigid = rigid.at[k, :, own].set(jnp.concatenate([move, swing], axis=1))
    rigid = rigid.reshape(-1, *body.free.shape)
    matrix, inert = stiffness(body), inertia(body)
    pull = jax.vmap(lambda u: matrix @ u)(rigid)
    patterns = inert.patterns()
    found = responses(fixed, jnp.concatenate([pull, patterns]))
    shapes = rigid - found[: len(rigid)]
    return SolidMatrices(
        project(matrix, shapes),
        project(inert.matrix(jnp.eye(3)), shapes),
        -jnp.einsum("ind,snd->is", shapes, patterns),
        shapes,
        found[len(rigid) :],
    )
