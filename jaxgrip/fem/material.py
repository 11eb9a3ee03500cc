"""Materials."""

import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import concrete, numbers, positive


class Isotropic(eqx.Module):
    """Linear elastic, isotropic material.

    **Arguments:** `E`, Young's modulus [Pa]; `nu`, Poisson's ratio; `rho`, density [kg/m^3].

    **Raises:** `ValueError` unless E > 0, -1 < nu < 0.5 and rho > 0. Warns of a density below
    1 kg/m^3, which is probably in g/cm^3.

    Source: Schanzer 2007, eq. 3.24-3.25, pp. 32-34.
    """

    E: Float[Array, ""]
    nu: Float[Array, ""]
    rho: Float[Array, ""]

    def __init__(self, E, nu, rho):
        self.E = positive("Young's modulus E", E, (), unit="Pa")
        self.nu = numbers("Poisson's ratio nu", nu, ())
        self.rho = positive("The density rho", rho, (), unit="kg/m^3")
        if concrete(self.nu) and not -1 < np.asarray(self.nu) < 0.5:
            raise ValueError(
                f"Poisson's ratio nu is {float(self.nu):g}; it must lie between -1 and 0.5, "
                "exclusive (displacement elements cannot represent incompressible material)."
            )
        if concrete(self.rho) and np.asarray(self.rho) < 1:
            warnings.warn(
                f"A density of {float(self.rho):g} kg/m^3 is lighter than air; densities are in "
                "kg/m^3 (aluminium: 2700).",
                stacklevel=2,
            )

    @property
    def lame(self) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Lamé's parameters λ and μ [Pa]; μ is the shear modulus."""
        mu = self.E / (2 * (1 + self.nu))
        return self.nu * self.E / ((1 + self.nu) * (1 - 2 * self.nu)), mu

    def stress(self, strain: Float[Array, "*points 6"]) -> Float[Array, "*points 6"]:
        """Stress [Pa] of strains; components xx, yy, zz, xy, yz, zx, shear strains engineering."""
        lam, mu = self.lame
        normal, shear = strain[..., :3], strain[..., 3:]
        trace = jnp.sum(normal, axis=-1, keepdims=True)
        return jnp.concatenate([lam * trace + 2 * mu * normal, mu * shear], axis=-1)

    def matrix(self) -> Float[Array, "6 6"]:
        """Elasticity matrix H with stress = H strain [Pa]."""
        return self.stress(jnp.asarray(np.eye(6)))
