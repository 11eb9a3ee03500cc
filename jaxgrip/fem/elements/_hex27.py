"""Triquadratic hexahedron with 27 nodes."""

from typing import ClassVar

import numpy as np

from jaxgrip.fem.elements import _hexahedron as hexahedron
from jaxgrip.fem.elements.solid import FaceRule, Rule, Solid

EDGES = np.array(
    [
        *((0, 1), (1, 2), (2, 3), (3, 0)),
        *((4, 5), (5, 6), (6, 7), (7, 4)),
        *((0, 4), (1, 5), (2, 6), (3, 7)),
    ]
)


def _edge(a: int, b: int) -> int:
    return 8 + int(np.flatnonzero(np.isin(EDGES, (a, b)).all(axis=1))[0])


class Hex27(Solid):
    """Triquadratic hexahedron, 3x3x3 Gauss points.

    Nodes in the order of VTK: the corners of `Hex8`, the middles of the twelve edges, those of
    the six faces, the centre.
    """

    nodes: ClassVar[np.ndarray] = np.concatenate(
        [
            hexahedron.CORNERS,
            hexahedron.CORNERS[EDGES].mean(axis=1),
            hexahedron.CORNERS[np.array(hexahedron.FACES)].mean(axis=1),
            np.zeros((1, 3)),
        ]
    )
    faces: ClassVar[tuple] = tuple(
        (*face, *(_edge(face[k], face[(k + 1) % 4]) for k in range(4)), 20 + i)
        for i, face in enumerate(hexahedron.FACES)
    )
    meshio_name: ClassVar[str] = "hexahedron27"
    stiffness_rule: ClassVar[Rule] = hexahedron.volume_rule(3)
    inertia_rule: ClassVar[Rule] = hexahedron.volume_rule(3)
    face_rule: ClassVar[FaceRule] = hexahedron.face_rule(3)

    @staticmethod
    def tabulate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shape functions and their derivatives at reference points."""
        return hexahedron.lagrange(Hex27.nodes, points)
