"""Displacement along an axis."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.checks import numbers
from jaxgrip.joints.joint import LENGTH, Frame, Joint, Measure


class Travel(Joint):
    """Signed displacement of the second origin along the first z axis, as a drive of a guide.

    **Arguments:** `displacement` [m].

    **Raises:** `ValueError` for a number that is none or not finite.

    Source: Webhofer 2005, section 4.3.7, pp. 37-38; own derivation of the signed equation.
    """

    displacement: Float[Array, ""]

    equations: ClassVar[int] = 1
    lengths: ClassVar[int] = 1
    points: ClassVar[int] = 2
    parameter: ClassVar[str | None] = "displacement"
    measure: ClassVar[Measure] = LENGTH

    def __init__(self, displacement):
        self.displacement = numbers("The displacement of a travel", displacement, ())

    def residual(self, place: Frame) -> Float[Array, "1"]:
        """Error of the displacement."""
        return place.origin[2:] - self.displacement

    def motions(self, place: Frame) -> Float[Array, "5 6"]:
        """Translations along x and y; rotations about x, y and z."""
        return jnp.eye(6, dtype=place.origin.dtype)[jnp.array([0, 1, 3, 4, 5])]

    def coordinate(self, place: Frame) -> Float[Array, ""]:
        """The displacement [m]."""
        return place.origin[2]
