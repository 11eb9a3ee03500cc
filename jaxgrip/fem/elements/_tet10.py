"""Quadratic tetrahedron with ten nodes."""

from typing import ClassVar

import numpy as np

from jaxgrip.fem.elements import _tetrahedron as tetrahedron
from jaxgrip.fem.elements.solid import FaceRule, Rule, Solid


class Tet10(Solid):
    """Quadratic tetrahedron, eight integration points, 27 for the mass.

    With curved edges eight points pass the patch test, four do not.
    Nodes in VTK order: the corners, then the midpoints of the edges 01, 12, 20, 03, 13, 23.
    """

    nodes: ClassVar[np.ndarray] = np.concatenate(
        [tetrahedron.CORNERS, tetrahedron.CORNERS[tetrahedron.EDGES].mean(axis=1)]
    )
    faces: ClassVar[tuple] = tuple(
        (*face, *(tetrahedron.edge(face[k], face[(k + 1) % 3]) for k in range(3)))
        for face in tetrahedron.FACES
    )
    meshio_name: ClassVar[str] = "tetra10"
    stiffness_rule: ClassVar[Rule] = tetrahedron.eight_points()
    inertia_rule: ClassVar[Rule] = tetrahedron.volume_rule(3)
    face_rule: ClassVar[FaceRule] = tetrahedron.face_rule(3)

    @staticmethod
    def tabulate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shape functions and their derivatives at reference points."""
        corner, slope = tetrahedron.barycentric(points)
        first, second = tetrahedron.EDGES.T
        value = np.concatenate(
            [corner * (2 * corner - 1), 4 * corner[:, first] * corner[:, second]], axis=1
        )
        gradient = np.concatenate(
            [
                (4 * corner - 1)[..., None] * slope,
                4 * corner[:, first, None] * slope[:, second]
                + 4 * corner[:, second, None] * slope[:, first],
            ],
            axis=1,
        )
        return value, gradient

    @classmethod
    def block(cls) -> tuple[np.ndarray, np.ndarray]:
        """Six tetrahedra that fill a cube [-1, 1]^3."""
        corners = tetrahedron.six_in_a_cube()
        middles = corners[:, tetrahedron.EDGES].mean(axis=2)
        return tetrahedron.number(np.concatenate([corners, middles], axis=1))
