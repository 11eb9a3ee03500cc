"""Velocities of the bodies, linear in the rates, and the momenta that belong to them.

Velocities are in body axes: angular velocity w, velocity v of the frame's origin. They may have
columns, then there is one for each column of the rates. Bodies are unrolled.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.flexible.link import ElasticLink
from jaxgrip.flexible.tree import FlexibleTree, moments
from jaxgrip.spatial.rotations import rotation_z

_LEVI_CIVITA = np.zeros((3, 3, 3))
for _a, _b, _c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    _LEVI_CIVITA[_a, _b, _c], _LEVI_CIVITA[_a, _c, _b] = 1.0, -1.0
_CROSS = _LEVI_CIVITA.transpose(0, 2, 1).copy()
_Z = np.array([0.0, 0.0, 1.0])


def crossing(v: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """The matrix of v x, in one operation."""
    return jnp.asarray(_CROSS) @ v


class Placement(NamedTuple):
    """Frame of a body in that of its parent.

    `turn` (3, 3) and `offset` (3,) [m]; on an elastic parent, what its coordinates' rates add to
    the angular velocity, `spin` (3, k), and to the velocity of the origin, `drift` (3, k), in
    axes of the parent.
    """

    turn: Float[Array, "3 3"]
    offset: Float[Array, "3"]
    spin: Float[Array, "3 k"] | None
    drift: Float[Array, "3 k"] | None


def face_motion(link: ElasticLink, face: int, eta: Float[Array, " k"]) -> tuple:
    """Where a face is and how it turned, with the velocities per rate of the coordinates.

    The rotation vector θ is linear (or quadratic) in the coordinates; the rotation is that of
    Rodrigues' parameters θ/2, which agrees with the exponential of θ to second order and is
    rational.

    **Returns:** displacement (3,) [m], rotation (3, 3), and (3, k) velocity and angular velocity.
    """
    move, turn = link.interface.translation[face], link.interface.rotation[face]
    u, theta = move @ eta, turn @ eta
    if link.stiffening is not None:
        more, further = link.stiffening.translation[face] @ eta, link.stiffening.rotation[face] @ eta
        u, theta = u + 0.5 * more @ eta, theta + 0.5 * further @ eta
        move, turn = move + more, turn + further
    c = 0.5 * theta
    cross = crossing(c)
    factor = 2 / (1 + c @ c)
    rotation = jnp.eye(3) + factor * (cross + cross @ cross)
    return u, rotation, move, 0.5 * factor * (turn + cross @ turn)


def placements(model: FlexibleTree, q: Array, eta: Array) -> list[Placement]:
    """`Placement` of every body."""
    tree, out = model.tree, []
    coordinate = dict(zip(tree.moving, range(tree.n), strict=True))
    for i, kind in enumerate(tree.joint_types):
        turn, offset = tree.rotation[i], tree.translation[i]
        if kind == "prismatic":
            offset = offset + turn[:, 2] * q[coordinate[i]]
        if kind == "revolute":
            turn = turn @ rotation_z(q[coordinate[i]])
        face = model.carriers[i]
        if face < 0:
            out.append(Placement(turn, offset, None, None))
            continue
        place = model.elastic.index(tree.parents[i])
        link = model.links[place]
        u, rotation, drift, spin = face_motion(link, face, eta[model.slices[place]])
        centre = link.interface.centre[face]
        arm = rotation @ (offset - centre)
        out.append(
            Placement(rotation @ turn, centre + u + arm, spin, drift - crossing(arm) @ spin)
        )
    return out


def velocities(
    model: FlexibleTree, places: list[Placement], rates: Array, base: Array
) -> list[tuple[Array, Array]]:
    """Angular velocity and velocity of the origin of every body, for rates (n + k, *columns).

    `base` (3, *columns) is the velocity of the base.
    """
    tree, n = model.tree, model.n
    coordinate = dict(zip(tree.moving, range(n), strict=True))
    axis = jnp.asarray(_Z)
    out: list[tuple[Array, Array]] = []
    for i, (parent, place) in enumerate(zip(tree.parents, places, strict=True)):
        w, v = (jnp.zeros_like(base), base) if parent < 0 else out[parent]
        v = v - crossing(place.offset) @ w
        if place.spin is not None:
            part = model.slices[model.elastic.index(parent)]
            own = rates[n + part.start : n + part.stop]
            v, w = v + place.drift @ own, w + place.spin @ own
        w, v = place.turn.T @ w, place.turn.T @ v
        if tree.joint_types[i] == "revolute":
            w = w + jnp.tensordot(axis, rates[coordinate[i]], 0)
        if tree.joint_types[i] == "prismatic":
            v = v + jnp.tensordot(axis, rates[coordinate[i]], 0)
        out.append((w, v))
    return out


class BodyInertia(NamedTuple):
    """Inertia of a body as it is deformed, about the origin of its frame, body axes.

    `mass` [kg], `first` moment (3,) [kg m], `inertia` (3, 3) [kg m^2]; for elastic bodies what
    their coordinates' rates add to momentum, `linear` (3, k), and to angular momentum, `angular`
    (3, k), and their own mass, `modal` (k, k).
    """

    mass: Float[Array, ""]
    first: Float[Array, "3"]
    inertia: Float[Array, "3 3"]
    linear: Float[Array, "3 k"] | None
    angular: Float[Array, "3 k"] | None
    modal: Float[Array, "k k"] | None

    def momentum(self, w: Array, v: Array, rates: Array | None) -> tuple[Array, Array, Any]:
        """Angular momentum about the origin, momentum and modal momenta; columns allowed."""
        cross = crossing(self.first)
        p = self.mass * v - cross @ w
        h = cross @ v + self.inertia @ w
        if self.modal is None:
            return h, p, None
        modal = self.linear.T @ v + self.angular.T @ w + self.modal @ rates
        return h + self.angular @ rates, p + self.linear @ rates, modal


def body_inertia(
    mass: Array, first: Array, second: Array, link: ElasticLink | None, eta: Array | None
) -> BodyInertia:
    """`BodyInertia` of a body with given moments of the undeformed whole."""
    if link is None:
        return BodyInertia(mass, first, jnp.trace(second) * jnp.eye(3) - second, None, None, None)
    products = link.products @ eta
    change = (link.shape_second + 0.5 * products) @ eta
    second = second + change + change.T
    linear = link.shape_first
    moved = first + linear @ eta
    if link.stiffening is not None:
        more = link.stiffening.first @ eta
        linear, moved = linear + more, moved + 0.5 * more @ eta
    angular = jnp.einsum("abc,cbj->aj", _LEVI_CIVITA, link.shape_second + products)
    inertia = jnp.trace(second) * jnp.eye(3) - second
    return BodyInertia(mass, moved, inertia, linear, angular, link.modal_mass)


def body_inertias(model: FlexibleTree, eta: Array) -> list[BodyInertia]:
    """`BodyInertia` of every body."""
    first, second = moments(model.tree)
    return [
        body_inertia(model.tree.mass[i], first[i], second[i], *part)
        for i, part in enumerate(elastic_parts(model, eta))
    ]


def elastic_parts(model: FlexibleTree, values: Array) -> list[tuple]:
    """For every body its elastic link and its rows of `values` (k, ...), or two times None."""
    out: list[tuple] = [(None, None)] * len(model.tree.names)
    for i, link, part in zip(model.elastic, model.links, model.slices, strict=True):
        out[i] = (link, values[part])
    return out
