"""Rotation matrices."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def skew(v: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Cross-product matrix of v: skew(v) w = v x w; (3,) to (3, 3)."""
    x, y, z = v
    zero = jnp.zeros_like(x)
    return jnp.stack([jnp.stack([zero, -z, y]), jnp.stack([z, zero, -x]), jnp.stack([-y, x, zero])])


def rotation_x(angle: Float[Array, ""]) -> Float[Array, "3 3"]:
    """Rot(x, angle) of an angle [rad], (3, 3). Source: Schanzer 2007, eq. 2.2."""
    c, s, zero, one = jnp.cos(angle), jnp.sin(angle), jnp.zeros_like(angle), jnp.ones_like(angle)
    return jnp.stack(
        [jnp.stack([one, zero, zero]), jnp.stack([zero, c, -s]), jnp.stack([zero, s, c])]
    )


def rotation_z(angle: Float[Array, ""]) -> Float[Array, "3 3"]:
    """Rot(z, angle) of an angle [rad], (3, 3). Source: Schanzer 2007, eq. 2.2."""
    c, s, zero, one = jnp.cos(angle), jnp.sin(angle), jnp.zeros_like(angle), jnp.ones_like(angle)
    return jnp.stack(
        [jnp.stack([c, -s, zero]), jnp.stack([s, c, zero]), jnp.stack([zero, zero, one])]
    )


def axis_angle(axis: Float[Array, "3"], angle: Float[Array, ""]) -> Float[Array, "3 3"]:
    """Rotation by an angle [rad] about a unit axis (3,), by Rodrigues' formula, (3, 3)."""
    k = skew(axis)
    return jnp.eye(3, dtype=axis.dtype) + jnp.sin(angle) * k + (1 - jnp.cos(angle)) * (k @ k)


def aligning_z(axis: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Rotation Q with Q e_z along the axis.

    In the upper half space the shortest rotation from e_z; in the lower one half a turn about x and
    then the shortest rotation from -e_z. It is the identity for e_z, and has a derivative except in
    the horizontal plane.

    **Arguments:** `axis`, (3,), of any length but zero.

    **Returns:** (3, 3).
    """
    x, y, z = axis / jnp.linalg.norm(axis)
    side = jnp.where(z >= 0, jnp.ones_like(z), -jnp.ones_like(z))
    k = 1 / (1 + side * z)
    turn = jnp.stack(
        [
            jnp.stack([1 - k * x * x, -k * x * y, side * x]),
            jnp.stack([-k * x * y, 1 - k * y * y, side * y]),
            jnp.stack([-side * x, -side * y, side * z]),
        ]
    )
    half = jnp.stack([jnp.ones_like(side), side, side])
    return turn * half[None, :]
