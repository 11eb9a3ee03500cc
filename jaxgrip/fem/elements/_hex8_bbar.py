"""Trilinear hexahedron with dilatation averaged over the element."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.fem.elements.hex8 import Hex8
from jaxgrip.fem.elements.solid import Rule, isotropic_stiffness
from jaxgrip.fem.material import Isotropic


class Hex8BBar(Hex8):
    """Hexahedron with a mean dilatation ("B-bar"), for nearly incompressible materials.

    In bending it is as stiff as `Hex8`.

    Source: Hughes 1980.
    """

    def stiffness(self, x: Float[Array, "8 3"], material: Isotropic) -> Float[Array, "8 3 8 3"]:
        """∫ B̄ᵀ H B̄ dV [N/m]: pointwise deviatoric strain, mean dilatation."""
        gradient, volume = self.gradients(x, self.stiffness_rule)
        lam, mu = material.lame
        mean = _mean(gradient, volume)
        deviator = isotropic_stiffness(gradient, volume, -2 / 3 * mu, mu)
        bulk = (lam + 2 / 3 * mu) * jnp.sum(volume)
        return deviator + bulk * mean[:, :, None, None] * mean[None, None]

    def strain(
        self, x: Float[Array, "8 3"], u: Float[Array, "8 3"], material: Isotropic, rule: Rule
    ) -> Float[Array, "q 6"]:
        """Strains with the mean dilatation at the points of the rule."""
        strain = super().strain(x, u, material, rule)
        mean = jnp.sum(_mean(*self.gradients(x, self.stiffness_rule)) * u)
        normal = strain[:, :3]
        normal = normal + (mean - jnp.sum(normal, axis=1, keepdims=True)) / 3
        return jnp.concatenate([normal, strain[:, 3:]], axis=1)


def _mean(gradient: Float[Array, "q 8 3"], volume: Float[Array, " q"]) -> Float[Array, "8 3"]:
    return jnp.tensordot(volume, gradient, 1) / jnp.sum(volume)
