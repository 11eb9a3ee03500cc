"""Loads as nodal forces, which can be added."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import numbers
from jaxgrip.fem._body import Body
from jaxgrip.fem._inertia import inertia
from jaxgrip.fem._sparse import assemble_vector
from jaxgrip.fem.elements.solid import as_solid
from jaxgrip.solve import dense


def gravity(body: Body, g) -> Float[Array, "n d"]:
    """Nodal forces (n, d) [N] of the weight, with gravity g (3,) [m/s^2] in body axes.

    Source: Schanzer 2007, section 4.3.3, pp. 55-56, h_Fg.
    """
    return inertia(body).load(numbers("g", g, (3,)), jnp.zeros((3, 3)))


def body_force(
    body: Body, force: Callable[[Float[Array, "3"]], Float[Array, "3"]]
) -> Float[Array, "n 3"]:
    """Nodal forces [N] of a force per volume [N/m^3], a function of the position (3,) [m].

    **Raises:** `ValueError` for beams.
    """
    element = as_solid(body.mesh.element, "force per volume")
    shape = jnp.asarray(element.table(element.inertia_rule)[0])

    def one(x):
        _, volume = element.gradients(x, element.inertia_rule)
        return jnp.einsum("q,qn,qa->na", volume, shape, jax.vmap(force)(shape @ x))

    return assemble_vector(body.mesh.topology, jax.vmap(one)(body.mesh.cell_nodes))


def traction(body: Body, face: str, force) -> Float[Array, "n 3"]:
    """Nodal forces [N] of a traction on a named face.

    **Arguments:** `force`, (3,) [Pa] or a function giving it at a position (3,) [m].

    **Raises:** `ValueError` when there is no such face.

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
    return _distribute(body, surface, weight * jax.vmap(jax.vmap(field))(surface.positions))


def pressure(body: Body, face: str, p) -> Float[Array, "n 3"]:
    """Nodal forces [N] of a pressure p [Pa] on a named face, against its outward normal."""
    value = numbers("The pressure", p, ())
    surface = _surface(body, face)
    return _distribute(body, surface, -value * surface.areas)


def face_area(body: Body, face: str) -> Float[Array, ""]:
    """Area of a named face [m^2]."""
    return jnp.linalg.norm(_surface(body, face).areas, axis=-1).sum()


def tip_wrench(body: Body, face: str, force, moment) -> Float[Array, "n 3"]:
    """Nodal forces [N] of a force (3,) [N] and a moment (3,) [N m] about the centroid of a face.

    The traction is linear over the face, as in a beam: p = F / A + θ x r with θ such that the
    resultants are exact.

    Source: own choice: the traction that beam theory gives on a plane section.
    """
    force, moment = numbers("The force", force, (3,)), numbers("The moment", moment, (3,))
    return _tip_wrench(body, face, force, moment)


@eqx.filter_jit
def _tip_wrench(body: Body, face: str, force: Array, moment: Array) -> Array:
    surface = _surface(body, face)
    weight = jnp.linalg.norm(surface.areas, axis=-1)
    area = weight.sum()
    centre = jnp.einsum("fq,fqa->a", weight, surface.positions) / area
    arms = surface.positions - centre[None, None]
    second = jnp.einsum("fq,fqa,fqb->ab", weight, arms, arms)
    theta = dense.solve(jnp.trace(second) * jnp.eye(3) - second, moment)
    stress = force[None, None] / area + jnp.cross(jnp.broadcast_to(theta, arms.shape), arms)
    return _distribute(body, surface, weight[..., None] * stress)


def interface_loads(body: Body, face: str) -> Float[Array, "6 n d"]:
    """Nodal forces of unit forces along, then unit moments about, x, y and z on a face.

    They are dual to its mean motion: their products with displacements are the mean translation
    [m] and rotation [rad] of the face.
    """
    if body.dofs == 6:
        nodes = body.mesh.topology.point_set(face)
        share = jnp.zeros((len(body.free), 1)).at[nodes].set(1 / len(nodes))
        return share[None] * jnp.eye(6)[:, None, :]
    zero, unit = jnp.zeros((3, 3)), jnp.eye(3)
    forces, moments = jnp.concatenate([unit, zero]), jnp.concatenate([zero, unit])
    return jax.vmap(lambda f, m: tip_wrench(body, face, f, m))(forces, moments)


def point_force(body: Body, node: int, force) -> Float[Array, "n d"]:
    """Nodal forces of a force (d,) [N] on one node; for beams a moment [N m] follows it."""
    if not 0 <= node < len(body.free):
        raise ValueError(f"There is no node {node}; the mesh has {len(body.free)}.")
    return body.zeros().at[node].set(numbers("The force", force, (body.dofs,)))


class _Surface(NamedTuple):
    """Integration points of a face: `shape` (f, q, n), `positions` and `areas` (f, q, 3)."""

    cells: np.ndarray
    shape: Array
    positions: Array
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
    """Nodal forces of forces at the integration points."""
    local = jnp.einsum("fqn,fqa->fna", surface.shape, force)
    return body.zeros().at[surface.cells].add(local)
