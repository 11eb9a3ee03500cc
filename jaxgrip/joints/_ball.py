"""Spherical joint."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.joints.joint import Frame, Joint


class Ball(Joint):
    """Common origin, free to rotate. Source: Webhofer 2005, eq. 4.1, 5.82, pp. 31, 76."""

    equations: ClassVar[int] = 3
    lengths: ClassVar[int] = 3
    points: ClassVar[int] = 1
    steps: ClassVar[tuple[str, ...]] = ("ball",)
    meets: ClassVar[bool] = True

    def residual(self, place: Frame) -> Float[Array, "3"]:
        """Distance vector of the origins."""
        return place.origin

    def motions(self, place: Frame) -> Float[Array, "3 6"]:
        """Rotations about x, y and z."""
        return jnp.eye(6, dtype=place.origin.dtype)[3:]

    def values(self, place: Frame) -> Float[Array, "0"]:
        """None: a ball has no values."""
        return jnp.zeros(0, place.origin.dtype)
