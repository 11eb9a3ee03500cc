"""Largest distance of two points."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.joints._distance import Distance, Span, excess
from jaxgrip.joints.joint import TAUT, Frame


class Rope(Span):
    """The origins are at most a given distance apart.

    A taut rope is one equation; a slack one carries no force and its residual and derivative are
    zero. Where a mechanism hangs on a rope that is taut for certain, use `Distance`.

    **Arguments:** `length` [m].

    **Raises:** `ValueError` below a length of 1e-6 m, or for a number that is none or not finite.
    """

    one_sided: ClassVar[bool] = True

    def taut(self) -> Distance:
        """Distance of the rope's length."""
        return Distance(self.length)

    def residual(self, place: Frame) -> Float[Array, "1"]:
        """Excess of the distance to first order, zero when slack."""
        found = excess(place, self.length)
        # A rope that is taut to rounding has the derivative of a taut one.
        rounded = found + jax.lax.stop_gradient(jnp.maximum(found, 0.0) - found)
        return jnp.where(found > -TAUT, rounded, 0.0)[None]
