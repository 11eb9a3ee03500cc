"""Cylindrical joint."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.joints.joint import ANGLE, Frame, Joint, Measure, tilt, twist


class Sleeve(Joint):
    """Slides along and rotates about the common z axis.

    Source: Webhofer 2005, eq. 5.80-5.81, pp. 75-76.
    """

    equations: ClassVar[int] = 4
    lengths: ClassVar[int] = 2
    points: ClassVar[int] = 2
    measure: ClassVar[Measure] = ANGLE
    steps: ClassVar[tuple[str, ...]] = ("z", "rz")
    leading: ClassVar[int] = 1

    def residual(self, place: Frame) -> Float[Array, "4"]:
        """Distance from the axis, tilt of the axes."""
        return jnp.concatenate([place.origin[:2], tilt(place)])

    def motions(self, place: Frame) -> Float[Array, "2 6"]:
        """Translation along z; rotation about z."""
        return jnp.eye(6, dtype=place.origin.dtype)[jnp.array([2, 5])]

    def facing(self, place: Frame) -> Float[Array, ""]:
        """Cosine between the axes."""
        return place.rotation[2, 2]

    def coordinate(self, place: Frame) -> Float[Array, ""]:
        """Rotation from the first x axis to the second [rad]."""
        return jnp.arctan2(*twist(place))

    def values(self, place: Frame) -> Float[Array, "2"]:
        """Displacement along z [m], then rotation about z [rad]."""
        return jnp.stack([place.origin[2], self.coordinate(place)])
