"""Trilinear hexahedron with eight nodes, fully integrated."""

from typing import ClassVar

import numpy as np

from jaxgrip.fem.elements import _hexahedron as hexahedron
from jaxgrip.fem.elements.solid import FaceRule, Rule, Solid


class Hex8(Solid):
    """Trilinear hexahedron, 2x2x2 Gauss points; the source's element.

    It is too stiff in bending ("locks") unless the mesh is fine; see `Hex8Incompatible`.

    Source: Schanzer 2007, section 7.2, pp. 104-107; nodes in the order of VTK.
    """

    nodes: ClassVar[np.ndarray] = hexahedron.CORNERS
    faces: ClassVar[tuple] = hexahedron.FACES
    meshio_name: ClassVar[str] = "hexahedron"
    stiffness_rule: ClassVar[Rule] = hexahedron.volume_rule(2)
    inertia_rule: ClassVar[Rule] = hexahedron.volume_rule(2)
    face_rule: ClassVar[FaceRule] = hexahedron.face_rule(2)

    @staticmethod
    def tabulate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shape functions and their derivatives at reference points."""
        return hexahedron.lagrange(hexahedron.CORNERS, points)
