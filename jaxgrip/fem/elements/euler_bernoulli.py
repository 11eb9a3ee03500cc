"""Beam that does not shear."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.fem.elements.beam import Beam
from jaxgrip.fem.section import BeamSection


class EulerBernoulli(Beam):
    """Beam of Bernoulli and Euler: sections stay at right angles to the axis."""

    @staticmethod
    def shear_ratios(section: BeamSection, length: Float[Array, ""]) -> Float[Array, "2"]:
        """Zero."""
        return jnp.zeros(2)
