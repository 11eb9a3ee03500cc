"""Backlash of a gear."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float


def backlash(twist: ArrayLike, width: ArrayLike, smoothing: ArrayLike) -> Float[Array, "..."]:
    """Twist [rad] left to the springs of a gear with play: a dead zone with rounded corners.

    An extension of the source, which neglects it (004, 9). Odd and increasing; the twist itself
    where the width is zero. A torque of the springs acts on the shafts times the slope of this
    function if no energy is to be made or lost.

    **Arguments:** `twist` [rad]; `width` of the whole play [rad]; `smoothing`, about the radius of
    the corners [rad], positive.
    """
    half = width / 2
    corner = smoothing * smoothing
    above, below = twist + half, twist - half
    return twist - (jnp.sqrt(above * above + corner) - jnp.sqrt(below * below + corner)) / 2
