"""A new kind of force outside the package: one class that acts, and is in files."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from jaxgrip import mechanism
from jaxgrip.config import ConfigError
from jaxgrip.joints import Guide, Hinge
from jaxgrip.mechanism import Applied, Connection, Force, Part, System


class Pole(eqx.Module):
    """Strength of a pole [A m]."""

    strength: Float[Array, ""]

    def __init__(self, strength):
        self.strength = jnp.asarray(strength, float)


class Magnet(Force):
    """Attraction of two points by the square of their distance, out of `reach` none."""

    first: Pole
    second: Pole
    reach: Float[Array, ""]

    acts: ClassVar[str] = "between"

    def __init__(self, first_pole, second_pole, *, reach=1.0):
        self.first_pole, self.second_pole = first_pole, second_pole
        self.reach = jnp.asarray(reach, float)
        if self.reach <= 0:
            raise ValueError(f"The reach of a magnet is {reach}; it must be positive.")

    first_pole: Pole
    second_pole: Pole

    def wrench(self, place, rate):
        square = place.origin @ place.origin
        size = 1e-7 * self.first_pole.strength * self.second_pole.strength / square
        pull = jnp.where(square < self.reach**2, size, 0.0)
        return jnp.concatenate([-pull * place.origin / jnp.sqrt(square), jnp.zeros(3)])
