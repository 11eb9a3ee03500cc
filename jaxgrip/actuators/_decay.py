"""Exponential decay over a step."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def mean_decay(x: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Mean (1 − e^−x)/x of e^−s over 0 < s < x, smooth at zero."""
    # A series where the derivative of the quotient cancels.
    small = jnp.abs(x) < 1e-3
    series = 1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5)))
    safe = jnp.where(small, 1.0, x)
    return jnp.where(small, series, -jnp.expm1(-safe) / safe)
