"""Section forces of beams."""

import equinox as eqx
import jax
from jaxtyping import Array, Float

from jaxgrip.fem._body import Body
from jaxgrip.fem.elements.beam import Beam


def section_forces(body: Body, u: Float[Array, "n d"]) -> Float[Array, "elements 2 6"]:
    """N, V_y, V_z [N], M_x, M_y, M_z [N m] at both ends of each beam, in section axes.

    They act on the face with outward normal +x; exact when loads act on nodes only.

    **Raises:** `ValueError` when the elements are no beams.
    """
    if not isinstance(body.mesh.element, Beam):
        kind = type(body.mesh.element).__name__
        raise ValueError(f"Section forces need beams; the elements are {kind}.")
    return _section_forces(body, u)


@eqx.filter_jit
def _section_forces(body: Body, u: Array) -> Array:
    element, topology = body.mesh.element, body.mesh.topology
    one = jax.vmap(lambda x, ue: element.section_forces(x, ue, body.material))
    return one(body.mesh.cell_nodes, u[topology.cells])
