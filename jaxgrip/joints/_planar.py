"""Planar joint."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.joints.joint import ANGLE, Frame, Joint, Measure, tilt, twist


class Planar(Joint):
    """The planes across both z axes coincide; free to translate and rotate in them."""

    equations: ClassVar[int] = 3
    lengths: ClassVar[int] = 1
    points: ClassVar[int] = 2
    measure: ClassVar[Measure] = ANGLE
    steps: ClassVar[tuple[str, ...]] = ("x", "y", "rz")
    leading: ClassVar[int] = 2

    def residual(self, place: Frame) -> Float[Array, "3"]:
        """Distance from the plane, tilt of the axes."""
        return jnp.concatenate([place.origin[2:], tilt(place)])

    def motions(self, place: Frame) -> Float[Array, "3 6"]:
        """Translations along x and y; rotation about z."""
        return jnp.eye(6, dtype=place.origin.dtype)[jnp.array([0, 1, 5])]

    def facing(self, place: Frame) -> Float[Array, ""]:
        """Cosine between the axes."""
        return place.rotation[2, 2]

    def coordinate(self, place: Frame) -> Float[Array, ""]:
        """Rotation from the first x axis to the second [rad]."""
        return jnp.arctan2(*twist(place))

    def values(self, place: Frame) -> Float[Array, "3"]:
        """Displacements along x and y [m], then rotation about z [rad]."""
        return jnp.append(place.origin[:2], self.coordinate(place))
