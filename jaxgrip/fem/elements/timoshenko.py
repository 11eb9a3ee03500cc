"""Beam with shear deformation."""

from jaxtyping import Array, Float

from jaxgrip.fem.elements.beam import Beam
from jaxgrip.fem.section import BeamSection


class Timoshenko(Beam):
    """Timoshenko beam: sections stay plane but not normal to the axis; thin beams do not lock."""

    @staticmethod
    def shear_ratios(section: BeamSection, length: Float[Array, ""]) -> Float[Array, "2"]:
        """φ = 12 E I / (k G A L²) of bending in the planes xy and xz."""
        rigidities = section.rigidities
        return 12 * rigidities[5:3:-1] / (rigidities[1:3] * length**2)
