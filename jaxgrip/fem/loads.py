"""Loads, as forces on the nodes; loads add up."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import numbers
from jaxgrip.fem.body import Body
from jaxgrip.fem.inertia import inertia
from jaxgrip.fem.sparse import assemble_vector


def gravity(body: Body, g) -> Float[Array, "n d"]:
    """Own weight [N] under the acceleration of free fall g (3,) [m/s^2], in body axes.

    Source: 000a section 4.3, h_Fg.
    """
    return inertia(body).load(numbers("g", g, (3,)), jnp.zeros((3, 3)))


def body_force(
    body: Body, force: Callable[[Float[Array, "3"]], Float[Array, "3"]]
) -> Float[Array, "n 3"]:
    """Force per volume [N/m^3], a function of the place (3,) [m]; solids only."""
    element = body.mesh.element
    shape = jnp.asarray(element.table(element.inertia_rule)[0])

    def one(x):
        _, volume = element.gradients(x, element.inertia_rule)
        return jnp.einsum("q,qn,qa->na", volume, shape, jax.vmap(force)(shape @ x))

    return assemble_vector(body.mesh.topology, jax.vmap(one)(body.mesh.cell_nodes))


def traction(body: Body, face: str, force) -> Float[Array, "n 3"]:
    """Force per area [Pa] on a named face: three numbers, or a function of the place (3,) [m].

    **Raises:** `ValueError` when the face is not there.

    Source: 000a section 4.3, h_Fp.
    """
    if callable(force):
        field = force
    else:
        constant = numbers("The traction", force, (3,))

        def field(_):
            return constant

    return _on_face(body, face, lambda place, area: jnp.linalg.norm(area) * field(place))


def pressure(body: Body, face: str, p) -> Float[Array, "n 3"]:
    """Pressure p [Pa] onto a named face, against its outward normal."""
    value = numbers("The pressure", p, ())
    return _on_face(body, face, lambda place, area: -value * area)


def face_area(body: Body, face: str) -> Float[Array, ""]:
    """Area of a named face [m^2]."""
    return jnp.sum(traction(body, face, jnp.array([1.0, 0.0, 0.0])))


def tip_wrench(body: Body, face: str, force, moment) -> Float[Array, "n 3"]:
    """Force (3,) [N] and moment (3,) [N m] about the middle of a face, spread linearly over it.

    The stress is that of a beam: p = F / A + θ x r with θ such that the moment is right, so the
    nodal forces have exactly these resultants.

    Source: 000a section 6, number 2.
    """
    force, moment = numbers("The force", force, (3,)), numbers("The moment", moment, (3,))

    def unit(function):
        return _on_face(body, face, lambda place, area: jnp.linalg.norm(area) * function(place))

    area = face_area(body, face)
    centre = unit(lambda r: r).sum(axis=0) / area
    second = _second_moment(body, face, centre)
    theta = jnp.linalg.solve(jnp.trace(second) * jnp.eye(3) - second, moment)
    return unit(lambda r: force / area + jnp.cross(theta, r - centre))


def point_force(body: Body, node: int, force) -> Float[Array, "n d"]:
    """Force (d,) [N] on one node; for beams followed by a moment [N m]."""
    if not 0 <= node < len(body.free):
        raise ValueError(f"There is no node {node}; the mesh has {len(body.free)}.")
    return body.zeros().at[node].set(numbers("The force", force, (body.dofs,)))


def _second_moment(body: Body, face: str, centre: Array) -> Float[Array, "3 3"]:
    def row(k):
        return _on_face(
            body, face, lambda r, area: jnp.linalg.norm(area) * (r - centre)[k] * (r - centre)
        ).sum(axis=0)

    return jnp.stack([row(k) for k in range(3)])


def _on_face(body: Body, face: str, density: Callable[[Array, Array], Array]) -> Array:
    topology, element = body.mesh.topology, body.mesh.element
    pairs = topology.face(face)
    if not np.size(pairs):
        raise ValueError(f"The face {face!r} has no area.")

    def one(x, local):
        shape, places, areas = element.face_integrals(x, local)
        return shape.T @ jax.vmap(density)(places, areas)

    cells = topology.cells[pairs[:, 0]]
    local = jax.vmap(one)(body.mesh.nodes[cells], jnp.asarray(pairs[:, 1]))
    return body.zeros().at[cells].add(local)
