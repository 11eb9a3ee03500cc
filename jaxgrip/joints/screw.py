"""Helical joint."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import concrete, numbers
from jaxgrip.joints.joint import Frame, Joint, tilt, twist


class Screw(Joint):
    """Slide along the common z axis in proportion to the turn about it, way = start + pitch · turn.

    **Arguments:** `lead`, way in a full turn [m], right-handed when positive; `start`, way at no
    turn [m].

    **Raises:** `ValueError` for a lead of zero, or a number that is none or not finite.

    Source: Webhofer 2005, eq. 5.72-5.79, pp. 73-75, corrected, for as printed it is wrong in three
    quadrants of four: the sine of the turn missing from
    the one the way asks for, whose full turns the way carries.
    """

    lead: Float[Array, ""]
    start: Float[Array, ""]

    equations: ClassVar[int] = 5
    lengths: ClassVar[int] = 2
    points: ClassVar[int] = 3

    def __init__(self, lead, start=0.0):
        self.lead = numbers("The lead of a screw", lead, ())
        self.start = numbers("The start of a screw", start, ())
        if concrete(self.lead) and np.asarray(self.lead) == 0:
            raise ValueError("The lead of a screw is 0; use a hinge, which does not advance.")

    def residual(self, place: Frame) -> Float[Array, "5"]:
        """Distance from the axis, tilt of the axes, sine of the turn that is missing."""
        sine, cosine = twist(place)
        asked = self._asked(place)
        missing = sine * jnp.cos(asked) - cosine * jnp.sin(asked)
        return jnp.concatenate([place.origin[:2], tilt(place), missing[None]])

    def motions(self, place: Frame) -> Float[Array, "1 6"]:
        """Turn about z with its slide."""
        unit = jnp.eye(6, dtype=place.origin.dtype)
        return unit[5:] + self.lead / (2 * np.pi) * unit[2:3]

    def facing(self, place: Frame) -> Float[Array, ""]:
        """The smaller cosine, of the z axes or of the missing turn."""
        sine, cosine = twist(place)
        asked = self._asked(place)
        return jnp.minimum(place.rotation[2, 2], cosine * jnp.cos(asked) + sine * jnp.sin(asked))

    def coordinate(self, place: Frame) -> Float[Array, ""]:
        """Turn [rad] that the way asks for, with all full turns."""
        return self._asked(place)

    def _asked(self, place: Frame) -> Float[Array, ""]:
        return (place.origin[2] - self.start) * (2 * np.pi) / self.lead
