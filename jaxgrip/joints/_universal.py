"""Cardan joint."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.joints.joint import Frame, Joint


class Universal(Joint):
    """Common origin; free to rotate about the first z axis and the second x axis.

    Source: own derivation from a cross of two perpendicular pins, one in either body.
    """

    equations: ClassVar[int] = 4
    lengths: ClassVar[int] = 3
    points: ClassVar[int] = 3
    steps: ClassVar[tuple[str, ...]] = ("rz", "rx")

    def residual(self, place: Frame) -> Float[Array, "4"]:
        """Distance vector of the origins, cosine between the pins."""
        return jnp.concatenate([place.origin, place.rotation[2:3, 0]])

    def motions(self, place: Frame) -> Float[Array, "2 6"]:
        """Rotation about the pin of the first, then of the second body."""
        still = jnp.zeros(3, place.origin.dtype)
        pins = (jnp.array([0.0, 0.0, 1.0], place.origin.dtype), place.rotation[:, 0])
        return jnp.stack([jnp.concatenate([still, pin]) for pin in pins])

    def values(self, place: Frame) -> Float[Array, "2"]:
        """Rotations about the pin of the first, then of the second body [rad]."""
        r = place.rotation
        return jnp.stack([jnp.arctan2(r[1, 0], r[0, 0]), jnp.arctan2(r[2, 1], r[2, 2])])
