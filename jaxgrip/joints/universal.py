"""Cardan joint."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.joints.joint import Frame, Joint


class Universal(Joint):
    """Common origin; turns about the z axis of the first and the x axis of the second frame.

    Source: own derivation from a cross of two perpendicular pins, one in either body.
    """

    equations: ClassVar[int] = 4
    lengths: ClassVar[int] = 3
    points: ClassVar[int] = 3

    def residual(self, place: Frame) -> Float[Array, "4"]:
        """Way between the origins, cosine between the pins."""
        return jnp.concatenate([place.origin, place.rotation[2:3, 0]])

    def motions(self, place: Frame) -> Float[Array, "2 6"]:
        """Turn about the pin of the first, then of the second body."""
        still = jnp.zeros(3, place.origin.dtype)
        pins = (jnp.array([0.0, 0.0, 1.0], place.origin.dtype), place.rotation[:, 0])
        return jnp.stack([jnp.concatenate([still, pin]) for pin in pins])
