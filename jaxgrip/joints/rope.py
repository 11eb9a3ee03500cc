"""Largest distance of two points."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.joints.distance import across, excess, length_between
from jaxgrip.joints.joint import Frame, Joint


class Rope(Joint):
    """The origins are at most a given distance apart.

    A taut rope is one equation; a slack one holds nothing and its residual and derivative are
    zero. Where a mechanism hangs on a rope that is taut for certain, use `Distance`.

    **Arguments:** `length` [m].

    **Raises:** `ValueError` below a length of 1e-6 m, or for a number that is none or not finite.
    """

    length: Float[Array, ""]

    equations: ClassVar[int] = 1
    lengths: ClassVar[int] = 1
    points: ClassVar[int] = 1
    parameter: ClassVar[str | None] = "length"

    def __init__(self, length):
        self.length = length_between(length)

    def residual(self, place: Frame) -> Float[Array, "1"]:
        """Excess of the distance to first order, zero when slack."""
        return jnp.maximum(excess(place, self.length), 0.0)[None]

    def motions(self, place: Frame) -> Float[Array, "5 6"]:
        """Of a taut rope: two slides across it; turns about x, y and z."""
        return across(place)

    def coordinate(self, place: Frame) -> Float[Array, ""]:
        """The distance [m]."""
        return jnp.linalg.norm(place.origin)
