"""Helical joint."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import concrete, numbers
from jaxgrip.joints.gear import Gear
from jaxgrip.joints.joint import TURNS, Frame, Joint, Measure, tilt, twist


class Screw(Joint):
    """Displacement along the common z axis in proportion to the rotation about it.

    Displacement = start + lead · rotation / 2π.

    **Arguments:** `lead`, displacement in a full turn [m], right-handed when positive; `start`,
    displacement at no rotation [m].

    **Raises:** `ValueError` for a lead of zero, or a number that is none or not finite.

    Source: Webhofer 2005, eq. 5.72-5.79, pp. 73-75, corrected: as printed it is wrong in three of
    four quadrants. The equation here is the sine of the difference between the rotation and the one
    that belongs to the displacement, which also counts full turns.
    """

    lead: Float[Array, ""]
    start: Float[Array, ""]

    equations: ClassVar[int] = 5
    lengths: ClassVar[int] = 2
    points: ClassVar[int] = 3
    measure: ClassVar[Measure] = TURNS
    steps: ClassVar[tuple[str, ...]] = ("z", "rz")
    leading: ClassVar[int] = 1

    def __init__(self, lead, start=0.0):
        self.lead = numbers("The lead of a screw", lead, ())
        self.start = numbers("The start of a screw", start, ())
        if concrete(self.lead) and np.asarray(self.lead) == 0:
            raise ValueError("The lead of a screw is 0; use a hinge, which does not advance.")

    def residual(self, place: Frame) -> Float[Array, "5"]:
        """Distance from the axis, tilt of the axes, sine of the error of the rotation."""
        sine, cosine = twist(place)
        asked = self._asked(place)
        missing = sine * jnp.cos(asked) - cosine * jnp.sin(asked)
        return jnp.concatenate([place.origin[:2], tilt(place), missing[None]])

    def motions(self, place: Frame) -> Float[Array, "1 6"]:
        """Rotation about z with its translation."""
        unit = jnp.eye(6, dtype=place.origin.dtype)
        return unit[5:] + self.lead / (2 * np.pi) * unit[2:3]

    def facing(self, place: Frame) -> Float[Array, ""]:
        """The smaller cosine, of the z axes or of the error of the rotation."""
        sine, cosine = twist(place)
        asked = self._asked(place)
        return jnp.minimum(place.rotation[2, 2], cosine * jnp.cos(asked) + sine * jnp.sin(asked))

    def coordinate(self, place: Frame) -> Float[Array, ""]:
        """Rotation [rad] that belongs to the displacement, with all full turns."""
        return self._asked(place)

    def values(self, place: Frame) -> Float[Array, "2"]:
        """Displacement along z [m], then rotation about z with all full turns [rad]."""
        return jnp.stack([place.origin[2], self._asked(place)])

    def relations(self) -> tuple[tuple[int, int, Gear], ...]:
        """Displacement by rotation."""
        return ((1, 0, Gear(self.lead / (2 * np.pi), self.start)),)

    def _asked(self, place: Frame) -> Float[Array, ""]:
        return (place.origin[2] - self.start) * (2 * np.pi) / self.lead
