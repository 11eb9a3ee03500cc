"""Backlash of a gear."""

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float


def backlash(twist: ArrayLike, width: ArrayLike, smoothing: ArrayLike) -> Float[Array, "..."]:
    """Twist [rad] left to the springs of a gear with play: a dead zone with rounded corners.

    Odd and increasing; the twist itself where the width is zero. Energy is conserved if the torque
    on the shafts is that of the springs times the slope of this function.

    **Arguments:** `twist` [rad]; `width` of the whole play [rad]; `smoothing`, about the radius of
    the corners [rad], positive.

    Source: own derivation; Kubisch 2008, section 3.2, p. 25, measures the play and neglects it.
    """
    half = width / 2
    corner = smoothing * smoothing
    above, below = twist + half, twist - half
    return twist - (jnp.sqrt(above * above + corner) - jnp.sqrt(below * below + corner)) / 2
