"""Dual quaternions of poses, (8,): a unit quaternion r, and the dual part t r / 2.

Scalars come first, r is that of the rotation and t the translation as a quaternion without scalar.
The eight numbers are Study's coordinates. Functions of dual quaternions are those of quaternions,
whose derivative in the direction of the dual part is the dual part of the value.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.spatial import quaternions
from jaxgrip.spatial._rotations import skew


class Screw(NamedTuple):
    """A pose as a screw about a line.

    `angle` from 0 to pi [rad]; `slide` along the line [m]; `direction` (3,) of the line; `moment`
    (3,), a point of the line times the direction [m]. A pure translation has no moment.
    """

    angle: Float[Array, ""]
    slide: Float[Array, ""]
    direction: Float[Array, "3"]
    moment: Float[Array, "3"]


def _pure(v: Array) -> Array:
    return jnp.concatenate([jnp.zeros(1, v.dtype), v])


def from_pose(quaternion: Float[Array, "4"], translation: Float[Array, "3"]) -> Float[Array, "8"]:
    """Dual quaternion of a unit quaternion and a translation (3,) [m]."""
    return jnp.concatenate([quaternion, 0.5 * quaternions.product(_pure(translation), quaternion)])


def from_matrix(rotation: Float[Array, "3 3"], translation: Float[Array, "3"]) -> Float[Array, "8"]:
    """Dual quaternion of a rotation matrix and a translation, with a scalar not negative."""
    return from_pose(quaternions.from_matrix(rotation), translation)


def rotation(q: Float[Array, "8"]) -> Float[Array, "3 3"]:
    """Rotation matrix."""
    return quaternions.to_matrix(q[:4])


def translation(q: Float[Array, "8"]) -> Float[Array, "3"]:
    """Translation [m]."""
    return 2 * quaternions.product(q[4:], quaternions.conjugate(q[:4]))[1:]


def product(a: Float[Array, "8"], b: Float[Array, "8"]) -> Float[Array, "8"]:
    """The product a b: first the pose b, then a."""
    dual = quaternions.product(a[:4], b[4:]) + quaternions.product(a[4:], b[:4])
    return jnp.concatenate([quaternions.product(a[:4], b[:4]), dual])


def conjugate(q: Float[Array, "8"]) -> Float[Array, "8"]:
    """The conjugate of both parts, which is the inverse of a pose."""
    return jnp.concatenate([quaternions.conjugate(q[:4]), quaternions.conjugate(q[4:])])


def dual_conjugate(q: Float[Array, "8"]) -> Float[Array, "8"]:
    """The dual part with the other sign: the same rotation, the translation reversed."""
    return jnp.concatenate([q[:4], -q[4:]])


def transform(q: Float[Array, "8"], point: Float[Array, "3"]) -> Float[Array, "3"]:
    """A point moved by a pose [m]."""
    return rotation(q) @ point + translation(q)


def adjoint(q: Float[Array, "8"]) -> Float[Array, "6 6"]:
    """Matrix of twists seen from where a pose leads: q exp(s) is exp(adjoint(q) s) q."""
    turn = rotation(q)
    top = jnp.concatenate([turn, jnp.zeros_like(turn)], axis=1)
    return jnp.concatenate([top, jnp.concatenate([skew(translation(q)) @ turn, turn], axis=1)])


def study(q: Float[Array, "8"]) -> Float[Array, ""]:
    """Study's quadric, which is zero for poses, of any length."""
    return q[:4] @ q[4:]


def normalised(q: Float[Array, "8"]) -> Float[Array, "8"]:
    """The pose of eight numbers: of unit length, with the dual part across the other."""
    length = jnp.sqrt(q[:4] @ q[:4])
    first, dual = q[:4] / length, q[4:] / length
    return jnp.concatenate([first, dual - (first @ dual) * first])


def exponential(twist: Float[Array, "6"]) -> Float[Array, "8"]:
    """Pose of a twist: rotation vector [rad] and velocity of the origin [m]; smooth at zero."""
    return jnp.concatenate(jax.jvp(quaternions.exponential, (twist[:3],), (twist[3:],)))


def logarithm(q: Float[Array, "8"]) -> Float[Array, "6"]:
    """Twist of a pose, with a rotation up to pi; smooth at zero."""
    return jnp.concatenate(jax.jvp(quaternions.rotation_vector, (q[:4],), (q[4:],)))


def screw(q: Float[Array, "8"]) -> Screw:
    """The screw of a pose; the identity has the direction z."""
    turn, move = logarithm(q)[:3], logarithm(q)[3:]
    square, travelled = turn @ turn, move @ move
    turns, moves = square > 1e-24, travelled > 0
    angle = jnp.where(turns, jnp.sqrt(jnp.where(turns, square, 1.0)), 0.0)
    length = jnp.sqrt(jnp.where(moves, travelled, 1.0))
    still = jnp.where(moves, move / length, jnp.array([0.0, 0.0, 1.0], q.dtype))
    direction = jnp.where(turns, turn / jnp.where(turns, angle, 1.0), still)
    slide = move @ direction
    across = move - slide * direction
    return Screw(
        angle, slide, direction, jnp.where(turns, across / jnp.where(turns, angle, 1.0), 0.0)
    )


def from_screw(screw: Screw) -> Float[Array, "8"]:
    """The pose of a screw."""
    move = screw.angle * screw.moment + screw.slide * screw.direction
    return exponential(jnp.concatenate([screw.angle * screw.direction, move]))


def interpolated(
    a: Float[Array, "8"], b: Float[Array, "8"], share: Float[Array, ""]
) -> Float[Array, "8"]:
    """The pose at a share of the screw that leads from a to b."""
    return product(a, exponential(share * logarithm(product(conjugate(a), b))))
