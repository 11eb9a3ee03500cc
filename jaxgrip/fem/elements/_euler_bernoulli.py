"""Beam without shear deformation."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.fem.elements.beam import Beam
from jaxgrip.fem.section import BeamSection


class EulerBernoulli(Beam):
    """Euler-Bernoulli beam: sections stay normal to the axis."""

    @staticmethod
    def shear_ratios(section: BeamSection, length: Float[Array, ""]) -> Float[Array, "2"]:
        """Zero."""
        return jnp.zeros(2)
