"""Cross-sections of beams."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import brief, concrete, numbers, positive
from jaxgrip.fem.material import Isotropic

WIDTH_DIRECTION = (0.0, 1.0, 0.0)


class BeamSection(eqx.Module):
    """Cross-section and material of a beam.

    The section's y and z axes are principal axes through its centroid, which is also its shear
    centre; x runs from the first to the second node of each element.

    **Arguments:**

    - `material`.
    - `A`, area [m^2]; `Iy` = ∫z² dA, `Iz` = ∫y² dA, second moments [m^4]; `J`, Saint-Venant's
      torsion constant [m^4].
    - `shear` (2,), shear correction factors of the shear forces along y and z.
    - `orientation` (3,), direction in body axes; y is its component normal to the beam.

    **Raises:** `ValueError` when a number is not positive or the orientation is zero.
    """

    material: Isotropic
    A: Float[Array, ""]
    Iy: Float[Array, ""]
    Iz: Float[Array, ""]
    J: Float[Array, ""]
    shear: Float[Array, "2"]
    orientation: Float[Array, "3"]

    def __init__(
        self,
        material: Isotropic,
        *,
        A,
        Iy,
        Iz,
        J,
        shear=(1.0, 1.0),
        orientation=WIDTH_DIRECTION,
    ):
        self.material = material
        self.A = positive("The area A", A, (), unit="m^2")
        self.Iy = positive("The second moment Iy", Iy, (), unit="m^4")
        self.Iz = positive("The second moment Iz", Iz, (), unit="m^4")
        self.J = positive("The torsion constant J", J, (), unit="m^4")
        self.shear = numbers("The pair of shear correction factors", shear, (2,))
        self.orientation = numbers("The orientation of the section", orientation, (3,))
        if concrete(self.shear) and not np.all(np.asarray(self.shear) > 0):
            raise ValueError(
                f"The shear correction factors are {brief(self.shear)}; they must be positive."
            )
        if concrete(self.orientation) and not np.any(np.asarray(self.orientation)):
            raise ValueError("The orientation of the section is the zero vector; give a direction.")

    @classmethod
    def rectangle(cls, material: Isotropic, b, h, *, orientation=WIDTH_DIRECTION) -> "BeamSection":
        """Rectangle of width b along y and height h along z [m], shear factors 5/6.

        **Raises:** `ValueError` when a length is not positive.
        """
        b, h = positive("The width b", b, (), unit="m"), positive("The height h", h, (), unit="m")
        return cls(
            material,
            A=b * h,
            Iy=b * h**3 / 12,
            Iz=h * b**3 / 12,
            J=_rectangle_torsion(jnp.maximum(b, h), jnp.minimum(b, h)),
            shear=(5 / 6, 5 / 6),
            orientation=orientation,
        )

    @classmethod
    def circle(cls, material: Isotropic, r, *, orientation=WIDTH_DIRECTION) -> "BeamSection":
        """Full circle of radius r [m], shear factors 9/10.

        **Raises:** `ValueError` when the radius is not positive.
        """
        r = positive("The radius r", r, (), unit="m")
        second = np.pi * r**4 / 4
        return cls(
            material,
            A=np.pi * r**2,
            Iy=second,
            Iz=second,
            J=2 * second,
            shear=(0.9, 0.9),
            orientation=orientation,
        )

    @property
    def rigidities(self) -> Float[Array, "6"]:
        """EA, k_y GA, k_z GA [N], GJ, EI_y, EI_z [N m^2]: ratios of section forces to strains."""
        E, G = self.material.E, self.material.lame[1]
        shear = self.shear * (G * self.A)
        return jnp.stack([E * self.A, shear[0], shear[1], G * self.J, E * self.Iy, E * self.Iz])


def _rectangle_torsion(a: Float[Array, ""], b: Float[Array, ""]) -> Float[Array, ""]:
    """Saint-Venant's series for sides a ≥ b.

    With tanh = 1 - 2 / (exp + 1) its slowly converging part is the known sum of 1 / n⁵ over odd
    n; the rest decreases by exp(-2 π) per term.
    """
    n = np.arange(1.0, 12.0, 2.0)
    odd_fifths = 1.0045237627951384
    rest = jnp.sum(2 / n**5 / (jnp.exp(n * np.pi * a / b) + 1))
    return a * b**3 * (1 / 3 - 64 / np.pi**5 * (b / a) * (odd_fifths - rest))
