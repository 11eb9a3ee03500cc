"""Prismatic joint."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.joints.joint import LENGTH, Frame, Joint, Measure, tilt, twist


class Guide(Joint):
    """Linear guide along the common z axis, without rotation.

    Source: Webhofer 2005, eq. 5.66-5.71, pp. 71-72.
    """

    equations: ClassVar[int] = 5
    lengths: ClassVar[int] = 2
    points: ClassVar[int] = 3
    measure: ClassVar[Measure] = LENGTH
    steps: ClassVar[tuple[str, ...]] = ("z",)

    def residual(self, place: Frame) -> Float[Array, "5"]:
        """Distance from the axis, tilt of the axes, sine of the rotation between the x axes."""
        return jnp.concatenate([place.origin[:2], tilt(place), place.rotation[1:2, 0]])

    def motions(self, place: Frame) -> Float[Array, "1 6"]:
        """Translation along z."""
        return jnp.eye(6, dtype=place.origin.dtype)[2:3]

    def facing(self, place: Frame) -> Float[Array, ""]:
        """The smaller cosine, of the z axes or of the rotation about them."""
        return jnp.minimum(place.rotation[2, 2], twist(place)[1])

    def coordinate(self, place: Frame) -> Float[Array, ""]:
        """Displacement along z [m]."""
        return place.origin[2]
