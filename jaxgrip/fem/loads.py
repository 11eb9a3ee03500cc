"""Loads, as forces on the nodes; loads add up."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import numbers
from jaxgrip.fem.body import Body
from jaxgrip.fem.elements.solid import as_solid
from jaxgrip.fem.inertia import inertia
from jaxgrip.fem.sparse import assemble_vector
from jaxgrip.solve import dense


def gravity(body: Body, g) -> Float[Array, "n d"]:
    """Own weight [N] under the acceleration of free fall g (3,) [m/s^2], in body axes.

    Source: Schanzer 2007, section 4.3.3, pp. 55-56, h_Fg.
    """
    return inertia(body).load(numbers("g", g, (3,)), jnp.zeros((3, 3)))


def body_force(
    body: Body, force: Callable[[Float[Array, "3"]], Float[Array, "3"]]
) -> Float[Array, "n 3"]:
    """Force per volume [N/m^3], a function of the place (3,) [m].

    **Raises:** `ValueError` for beams.
    """
    element = as_solid(body.mesh.element, "force per volume")
    shape = jnp.asarray(element.table(element.inertia_rule)[0])

    def one(x):
        _, volume = element.gradients(x, element.inertia_rule)
        return jnp.einsum("q,qn,qa->na", volume, shape, jax.vmap(force)(shape @ x))

    return assemble_vector(body.mesh.topology, jax.vmap(one)(body.mesh.cell_nodes))


def traction(body: Body, face: str, force) -> Float[Array, "n 3"]:
    """Force per area [Pa] on a named face: three numbers, or a function of the place (3,) [m].

    **Raises:** `ValueError` when the face is not there.

    Source: Schanzer 2007, section 4.3.3, pp. 55-56, h_Fp.
    """
    if callable(force):
        field = force
    else:
        constant = numbers("The traction", force, (3,))

        def field(_):
            return constant

    surface = _surface(body, face)
    weight = jnp.linalg.norm(surface.areas, axis=-1, keepdims=True)
    return _distribute(body, surface, weight * jax.vmap(jax.vmap(field))(surface.places))


def pressure(body: Body, face: str, p) -> Float[Array, "n 3"]:
    """Pressure p [Pa] onto a named face, against its outward normal."""
    value = numbers("The pressure", p, ())
    surface = _surface(body, face)
    return _distribute(body, surface, -value * surface.areas)


def face_area(body: Body, face: str) -> Float[Array, ""]:
    """Area of a named face [m^2]."""
    return jnp.linalg.norm(_surface(body, face).areas, axis=-1).sum()


def tip_wrench(body: Body, face: str, force, moment) -> Float[Array, "n 3"]:
    """Force (3,) [N] and moment (3,) [N m] about the middle of a face, spread linearly over it.

    The stress is that of a beam: p = F / A + θ x r with θ such that the moment is right, so the
    nodal forces have exactly these resultants.

    Source: own choice: the traction that beam theory gives on a plane section.
    """
    force, moment = numbers("The force", force, (3,)), numbers("The moment", moment, (3,))
    return _tip_wrench(body, face, force, moment)


@eqx.filter_jit
def _tip_wrench(body: Body, face: str, force: Array, moment: Array) -> Array:
    surface = _surface(body, face)
    weight = jnp.linalg.norm(surface.areas, axis=-1)
    area = weight.sum()
    centre = jnp.einsum("fq,fqa->a", weight, surface.places) / area
    arms = surface.places - centre[None, None]
    second = jnp.einsum("fq,fqa,fqb->ab", weight, arms, arms)
    theta = dense.solve(jnp.trace(second) * jnp.eye(3) - second, moment)
    stress = force[None, None] / area + jnp.cross(jnp.broadcast_to(theta, arms.shape), arms)
    return _distribute(body, surface, weight[..., None] * stress)


def interface_loads(body: Body, face: str) -> Float[Array, "6 n d"]:
    """Nodal forces of unit forces along and unit moments about x, y, z on a face.

    They are the dual of its average motion: their products with displacements are the average
    translation and rotation of the face.
    """
    if body.dofs == 6:
        nodes = body.mesh.topology.point_set(face)
        share = jnp.zeros((len(body.free), 1)).at[nodes].set(1 / len(nodes))
        return share[None] * jnp.eye(6)[:, None, :]
    zero, unit = jnp.zeros((3, 3)), jnp.eye(3)
    forces, moments = jnp.concatenate([unit, zero]), jnp.concatenate([zero, unit])
    return jax.vmap(lambda f, m: tip_wrench(body, face, f, m))(forces, moments)


def point_force(body: Body, node: int, force) -> Float[Array, "n d"]:
    """Force (d,) [N] on one node; for beams followed by a moment [N m]."""
    if not 0 <= node < len(body.free):
        raise ValueError(f"There is no node {node}; the mesh has {len(body.free)}.")
    return body.zeros().at[node].set(numbers("The force", force, (body.dofs,)))


class _Surface(NamedTuple):
    """Integration points of a face: `shape` (f, q, n), `places` and `areas` (f, q, 3)."""

    cells: np.ndarray
    shape: Array
    places: Array
    areas: Array


def _surface(body: Body, face: str) -> _Surface:
    topology, element = body.mesh.topology, as_solid(body.mesh.element, "faces with an area")
    pairs = topology.face(face)
    if not np.size(pairs):
        raise ValueError(f"The face {face!r} has no area.")
    cells = topology.cells[pairs[:, 0]]
    tables = jax.vmap(element.face_integrals)(body.mesh.nodes[cells], jnp.asarray(pairs[:, 1]))
    return _Surface(cells, *tables)


def _distribute(body: Body, surface: _Surface, force: Float[Array, "f q 3"]) -> Array:
    """Forces on the nodes of forces at the integration points."""
    local = jnp.einsum("fqn,fqa->fna", surface.shape, force)
    return body.zeros().at[surface.cells].add(local)
