"""Unit quaternions, scalar first, Hamilton's product.

Source: Webhofer 2005, eq. 3.9-3.10, p. 21, with sine and cosine of the half angle exchanged, for
as printed they do not fit its rotation matrix.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.spatial._rotations import skew


def _four_products() -> np.ndarray:
    """The part of 4 q qᵀ that is linear in the rotation matrix; the rest is the unit matrix."""
    linear = np.zeros((4, 4, 3, 3))
    linear[0, 0] = np.eye(3)
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        linear[1 + i, 1 + i] = -np.eye(3)
        linear[1 + i, 1 + i, i, i] = 1.0
        linear[0, 1 + i, [k, j], [j, k]] = linear[1 + i, 0, [k, j], [j, k]] = 1.0, -1.0
        linear[1 + j, 1 + k, [j, k], [k, j]] = linear[1 + k, 1 + j, [j, k], [k, j]] = 1.0
    return linear


_FOUR_PRODUCTS = _four_products()


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
    """Unit quaternion of a rotation matrix, with a scalar that is not negative.

    The largest of the four components is found first, so none is lost to rounding.
    """
    outer = jnp.eye(4, dtype=rotation.dtype) + jnp.tensordot(
        jnp.asarray(_FOUR_PRODUCTS, rotation.dtype), rotation, 2, precision="highest"
    )
    # Each row is 4 q_k q.
    row = outer[jnp.argmax(jnp.diagonal(outer))]
    q = row / jnp.linalg.norm(row)
    return jnp.where(q[0] < 0, -q, q)


def exponential(turn: Float[Array, "3"]) -> Float[Array, "4"]:
    """Unit quaternion of a rotation vector (3,), axis times angle [rad]; smooth at zero."""
    square = turn @ turn
    small = square < 1e-12
    angle = jnp.sqrt(jnp.where(small, jnp.ones_like(square), square))
    half = jnp.where(small, 0.5 - square / 48, jnp.sin(angle / 2) / angle)
    scalar = jnp.where(small, 1 - square / 8, jnp.cos(angle / 2))
    return jnp.concatenate([scalar[None], half * turn])


def rotation_vector(q: Float[Array, "4"]) -> Float[Array, "3"]:
    """Rotation vector (3,) of a unit quaternion, of length up to π; smooth at zero."""
    q = jnp.where(q[0] < 0, -q, q)
    square = q[1:] @ q[1:]
    small = square < 1e-6
    sine = jnp.sqrt(jnp.where(small, jnp.ones_like(square), square))
    ratio = square / jnp.where(small, q[0], jnp.ones_like(square)) ** 2
    near = (1 - ratio / 3 + ratio**2 / 5) / jnp.where(small, q[0], jnp.ones_like(square))
    return 2 * jnp.where(small, near, jnp.arctan2(sine, q[0]) / sine) * q[1:]
