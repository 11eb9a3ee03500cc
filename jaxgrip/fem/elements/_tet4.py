"""Linear tetrahedron with four nodes."""

from typing import ClassVar

import numpy as np

from jaxgrip.fem.elements import _tetrahedron as tetrahedron
from jaxgrip.fem.elements.solid import FaceRule, Rule, Solid


class Tet4(Solid):
    """Linear tetrahedron with constant strain.

    It is far too stiff in bending unless the mesh is very fine; see `Tet10`.
    """

    nodes: ClassVar[np.ndarray] = tetrahedron.CORNERS
    faces: ClassVar[tuple] = tetrahedron.FACES
    meshio_name: ClassVar[str] = "tetra"
    stiffness_rule: ClassVar[Rule] = tetrahedron.volume_rule(1)
    inertia_rule: ClassVar[Rule] = tetrahedron.four_points()
    face_rule: ClassVar[FaceRule] = tetrahedron.face_rule(2)

    @staticmethod
    def tabulate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shape functions and their derivatives at reference points."""
        return tetrahedron.barycentric(points)

    @classmethod
    def block(cls) -> tuple[np.ndarray, np.ndarray]:
        """Six tetrahedra that fill a cube [-1, 1]^3."""
        return tetrahedron.number(tetrahedron.six_in_a_cube())
