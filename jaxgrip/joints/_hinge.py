"""Revolute joint."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.joints.joint import ANGLE, Frame, Joint, Measure, tilt, twist


class Hinge(Joint):
    """Common z axis and origin; free to rotate about the axis.

    Source: Webhofer 2005, eq. 5.64-5.65, pp. 69-70.
    """

    equations: ClassVar[int] = 5
    lengths: ClassVar[int] = 3
    points: ClassVar[int] = 2
    measure: ClassVar[Measure] = ANGLE
    steps: ClassVar[tuple[str, ...]] = ("rz",)
    meets: ClassVar[bool] = True

    def residual(self, place: Frame) -> Float[Array, "5"]:
        """Distance vector of the origins, tilt of the axes."""
        return jnp.concatenate([place.origin, tilt(place)])

    def motions(self, place: Frame) -> Float[Array, "1 6"]:
        """Rotation about z."""
        return jnp.eye(6, dtype=place.origin.dtype)[5:]

    def facing(self, place: Frame) -> Float[Array, ""]:
        """Cosine between the axes."""
        return place.rotation[2, 2]

    def coordinate(self, place: Frame) -> Float[Array, ""]:
        """Rotation from the first x axis to the second [rad]."""
        return jnp.arctan2(*twist(place))
