"""Rigid connection."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.joints.joint import Frame, Joint
from jaxgrip.spatial import quaternions


class Fixed(Joint):
    """Rigid connection of two frames, no degree of freedom.

    The equations of the rotation are twice the vector part of its quaternion, which is zero for no
    rotation only; the source's two scalar products and norm vanish for four rotations.

    Source: Webhofer 2005, eq. 5.60-5.63, pp. 66-69; own derivation of the form
    without further roots.
    """

    equations: ClassVar[int] = 6
    lengths: ClassVar[int] = 3
    points: ClassVar[int] = 3
    steps: ClassVar[tuple[str, ...]] = ()
    meets: ClassVar[bool] = True

    def residual(self, place: Frame) -> Float[Array, "6"]:
        """Distance vector of the origins, then twice the vector part of the quaternion."""
        turn = 2 * quaternions.from_matrix(place.rotation)[1:]
        return jnp.concatenate([place.origin, turn])

    def motions(self, place: Frame) -> Float[Array, "0 6"]:
        """None."""
        return jnp.zeros((0, 6), place.origin.dtype)

    def values(self, place: Frame) -> Float[Array, "0"]:
        """None."""
        return jnp.zeros(0, place.origin.dtype)
