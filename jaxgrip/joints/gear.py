"""Fixed ratio of two joints."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import numbers


class Gear(eqx.Module):
    """Coordinate of the second joint = ratio · coordinate of the first + offset.

    Couples two joints, not two frames: gear wheels, a rack and its pinion, the mimic joint of a
    hand. Coordinates are those of `Joint.coordinate`: angles [rad] of hinges, displacements [m] of
    guides.

    **Arguments:** `ratio`; `offset`, in the unit of the second coordinate.

    **Raises:** `ValueError` for a number that is none or not finite.
    """

    ratio: Float[Array, ""]
    offset: Float[Array, ""]

    equations: ClassVar[int] = 1
    parameter: ClassVar[str | None] = "offset"

    def __init__(self, ratio, offset=0.0):
        self.ratio = numbers("The ratio of a gear", ratio, ())
        self.offset = numbers("The offset of a gear", offset, ())

    def with_parameter(self, value: Float[Array, ""]) -> "Gear":
        """The gear with another offset."""
        return type(self)(self.ratio, value)

    def residual(self, first: Float[Array, ""], second: Float[Array, ""]) -> Float[Array, "1"]:
        """Error of the second coordinate; both count full turns."""
        return (second - self.ratio * first - self.offset)[None]


def nearest(angle: Float[Array, "*shape"], near: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Angles [rad] shifted by full turns to within half a turn of others."""
    return angle + 2 * np.pi * jnp.round((near - angle) / (2 * np.pi))
