"""Trilinear hexahedron with internal bending modes."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.fem.elements.hex8 import Hex8
from jaxgrip.fem.elements.solid import Rule, invert, isotropic_stiffness, voigt_strain
from jaxgrip.fem.material import Isotropic
from jaxgrip.solve import dense


class Hex8Incompatible(Hex8):
    """Hexahedron with the incompatible modes 1 - ξ_k², eliminated inside the element.

    It does not lock in bending unless elements are strongly distorted. The derivatives of the
    modes use the Jacobian matrix at the centre, so it passes the patch test.

    Source: Taylor 1976.
    """

    def stiffness(self, x: Float[Array, "8 3"], material: Isotropic) -> Float[Array, "8 3 8 3"]:
        """Stiffness [N/m] with the modes condensed."""
        full, modes = self._condense(x, material)
        stiffness = full[:24, :24] + full[:24, 24:] @ modes
        return ((stiffness + stiffness.T) / 2).reshape(8, 3, 8, 3)

    def strain(
        self, x: Float[Array, "8 3"], u: Float[Array, "8 3"], material: Isotropic, rule: Rule
    ) -> Float[Array, "q 6"]:
        """Strains at the points of the rule, including those of the modes."""
        modes = (self._condense(x, material)[1] @ u.reshape(-1)).reshape(3, 3)
        gradient = self._enriched(x, rule)[0]
        return voigt_strain(jnp.einsum("qni,na->qai", gradient, jnp.concatenate([u, modes])))

    def _condense(
        self, x: Float[Array, "8 3"], material: Isotropic
    ) -> tuple[Float[Array, "33 33"], Float[Array, "9 24"]]:
        """Stiffness including the modes, and their amplitudes per nodal displacement."""
        full = isotropic_stiffness(*self._enriched(x, self.stiffness_rule), *material.lame)
        full = full.reshape(33, 33)
        return full, -dense.solve(full[24:, 24:], full[24:, :24], positive=True)

    def _enriched(
        self, x: Float[Array, "8 3"], rule: Rule
    ) -> tuple[Float[Array, "q 11 3"], Float[Array, " q"]]:
        """`gradients` with those of the three modes appended."""
        gradient, volume = self.gradients(x, rule)
        centre = self.table(Rule(np.zeros((1, 3)), np.ones(1)))[1][0]
        inverse, determinant = invert(x.T @ centre)
        ratio = determinant * rule.weights / volume
        modes = ratio[:, None, None] * (-2 * rule.points[:, :, None]) * inverse[None]
        return jnp.concatenate([gradient, modes], axis=1), volume
