"""Matrices of a body, assembled or applied element by element."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.checks import numbers
from jaxgrip.fem._body import Body
from jaxgrip.fem._inertia import inertia
from jaxgrip.fem._sparse import NodeMatrix, assemble, assemble_vector


@eqx.filter_jit
def stiffness(body: Body) -> NodeMatrix:
    """Stiffness matrix [N/m], supports not applied.

    Source: Schanzer 2007, eq. 4.24, p. 50.
    """
    element = body.mesh.element
    local = jax.vmap(lambda x: element.stiffness(x, body.material))(body.mesh.cell_nodes)
    return assemble(body.mesh.topology, local)


@eqx.filter_jit
def mass(body: Body) -> NodeMatrix:
    """Consistent mass matrix [kg], supports not applied.

    Source: Schanzer 2007, section 4.3.2, pp. 50-55.
    """
    return inertia(body).matrix(jnp.eye(3))


@eqx.filter_jit
def geometric_stiffness(body: Body, u: Float[Array, "n d"]) -> NodeMatrix:
    """Geometric stiffness [N/m] of the stress at displacements u [m]; the source omits it.

    Source: Schanzer 2007, remark 3.7, pp. 32-34, linearised about u.
    """
    element, topology = body.mesh.element, body.mesh.topology
    u = numbers("The array of displacements u", u, body.free.shape)
    local = jax.vmap(lambda x, ue: element.geometric_stiffness(x, ue, body.material))(
        body.mesh.cell_nodes, u[topology.cells]
    )
    return assemble(topology, local)


@eqx.filter_jit
def apply_stiffness(body: Body, u: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Stiffness times displacements [N], element by element, without storing the matrix.

    Elements are processed in groups to limit memory on large meshes.
    """
    element, topology = body.mesh.element, body.mesh.topology
    u = numbers("The array of displacements u", u, body.free.shape)

    def force(cell):
        x = body.mesh.nodes[cell]
        return jnp.einsum("iajb,jb->ia", element.stiffness(x, body.material), u[cell])

    local = jax.lax.map(force, jnp.asarray(topology.cells), batch_size=4096)
    return assemble_vector(topology, local)
