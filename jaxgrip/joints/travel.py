"""Way along an axis."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.checks import numbers
from jaxgrip.joints.joint import Frame, Joint


class Travel(Joint):
    """Signed way of the second origin along the z axis of the first, as a drive of a guide.

    **Arguments:** `way` [m].

    **Raises:** `ValueError` for a number that is none or not finite.

    Source: Webhofer 2005, section 4.3.7, pp. 37-38; own derivation of the signed equation.
    """

    way: Float[Array, ""]

    equations: ClassVar[int] = 1
    lengths: ClassVar[int] = 1
    points: ClassVar[int] = 2
    parameter: ClassVar[str | None] = "way"

    def __init__(self, way):
        self.way = numbers("The way of a travel", way, ())

    def residual(self, place: Frame) -> Float[Array, "1"]:
        """Excess of the way."""
        return place.origin[2:] - self.way

    def motions(self, place: Frame) -> Float[Array, "5 6"]:
        """Slides along x and y; turns about x, y and z."""
        return jnp.eye(6, dtype=place.origin.dtype)[jnp.array([0, 1, 3, 4, 5])]

    def coordinate(self, place: Frame) -> Float[Array, ""]:
        """The way [m]."""
        return place.origin[2]
