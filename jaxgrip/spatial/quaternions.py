"""Unit quaternions, scalar first, Hamilton's product.

Source: Webhofer 2005, eq. 3.9-3.10, p. 21, with sine and cosine of the half angle exchanged, for
as printed they do not fit its rotation matrix.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.spatial._rotations import skew

# Series of sin(a)/a and cos(a) by a², and of arctan(a)/a by a².
_SINE = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(9))
_COSINE = tuple((-1) ** k / math.factorial(2 * k) for k in range(9))
_ARC_TANGENT = tuple((-1) ** k / (2 * k + 1) for k in range(12))


def product(a: Float[Array, "4"], b: Float[Array, "4"]) -> Float[Array, "4"]:
    """Hamilton's product a b, (4,): first the rotation b, then a."""
    scalar = a[0] * b[0] - a[1:] @ b[1:]
    vector = a[0] * b[1:] + b[0] * a[1:] + jnp.cross(a[1:], b[1:])
    return jnp.concatenate([scalar[None], vector])


def conjugate(q: Float[Array, "4"]) -> Float[Array, "4"]:
    """The conjugate, (4,), which is the inverse of a unit quaternion."""
    return jnp.concatenate([q[:1], -q[1:]])


def to_matrix(q: Float[Array, "4"]) -> Float[Array, "3 3"]:
    """Rotation matrix of a unit quaternion; of any other the matrix of eq. 3.10, no rotation.

    Source: Webhofer 2005, eq. 3.10, p. 21.
    """
    w, v = q[0], q[1:]
    return (2 * w * w - 1) * jnp.eye(3, dtype=q.dtype) + 2 * jnp.outer(v, v) + 2 * w * skew(v)


def from_matrix(rotation: Float[Array, "3 3"]) -> Float[Array, "4"]:
    """Unit quaternion of a rotation matrix, with a scalar that is not negative."""
    q = along_matrix(rotation)
    length = jnp.linalg.norm(q)
    return q / jnp.where(q[0] < 0, -length, length)


def along_matrix(rotation: Float[Array, "3 3"]) -> Float[Array, "4"]:
    """A quaternion of a rotation matrix of a length between 2 and 4, of either sign.

    The largest of the four components is found first, so none is lost to rounding.
    """
    xx, xy, xz, yx, yy, yz, zx, zy, zz = (rotation[i, j] for i in range(3) for j in range(3))
    x, y, z = zy - yz, xz - zx, yx - xy
    # Each row is 4 q_k q.
    rows = (
        (1 + xx + yy + zz, x, y, z),
        (x, 1 + xx - yy - zz, xy + yx, zx + xz),
        (y, xy + yx, 1 - xx + yy - zz, yz + zy),
        (z, zx + xz, yz + zy, 1 - xx - yy + zz),
    )
    row, largest = rows[0], rows[0][0]
    for k in (1, 2, 3):
        larger = rows[k][k] > largest
        largest = jnp.where(larger, rows[k][k], largest)
        row = [jnp.where(larger, new, old) for new, old in zip(rows[k], row, strict=True)]
    return jnp.stack(row)


def exponential(turn: Float[Array, "3"]) -> Float[Array, "4"]:
    """Unit quaternion of a rotation vector (3,), axis times angle [rad]; smooth at zero."""
    square = turn @ turn / 4
    small = square < 0.25
    angle = jnp.sqrt(jnp.where(small, jnp.ones_like(square), square))
    # Both series far enough that derivatives of higher order are right to rounding as well.
    near = jnp.where(small, square, jnp.zeros_like(square))
    half = jnp.where(small, _series(near, _SINE), jnp.sin(angle) / angle) / 2
    scalar = jnp.where(small, _series(near, _COSINE), jnp.cos(angle))
    return jnp.concatenate([scalar[None], half * turn])


def rotation_vector(q: Float[Array, "4"]) -> Float[Array, "3"]:
    """Rotation vector (3,), of length up to π, of a quaternion of any length; smooth at zero."""
    w, x, y, z = q
    sign = jnp.where(w < 0, -jnp.ones_like(w), jnp.ones_like(w))
    scalar, square = sign * w, x * x + y * y + z * z
    small = square < 0.03 * scalar**2
    one = jnp.ones_like(square)
    sine = jnp.sqrt(jnp.where(small, one, square))
    ratio = jnp.where(small, square, jnp.zeros_like(square)) / jnp.where(small, scalar, one) ** 2
    near = _series(ratio, _ARC_TANGENT)
    half = jnp.where(small, near, jnp.arctan2(sine, scalar)) / jnp.where(small, scalar, sine)
    return 2 * sign * half * jnp.stack([x, y, z])


def _series(x: Float[Array, ""], coefficients: tuple[float, ...]) -> Float[Array, ""]:
    total = jnp.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total
