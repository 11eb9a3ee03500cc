"""Reference hexahedra: the cube [-1, 1]^3 with nodes in the order of VTK."""

import numpy as np

from jaxgrip.fem.elements._quadrature import gauss
from jaxgrip.fem.elements.solid import FaceRule, Rule

CORNERS = np.array(
    [
        [-1, -1, -1],
        [1, -1, -1],
        [1, 1, -1],
        [-1, 1, -1],
        [-1, -1, 1],
        [1, -1, 1],
        [1, 1, 1],
        [-1, 1, 1],
    ],
    dtype=float,
)
# Faces -x, +x, -y, +y, -z, +z, corners counter-clockwise seen from outside.
FACES = ((0, 4, 7, 3), (1, 2, 6, 5), (0, 1, 5, 4), (3, 7, 6, 2), (0, 3, 2, 1), (4, 5, 6, 7))


def lagrange(nodes: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Products of Lagrange polynomials through `nodes` (n, 3), and their derivatives."""
    ticks = np.unique(nodes)
    which = np.searchsorted(ticks, nodes)
    value, slope = _polynomials(ticks, points)
    factors = value[:, np.arange(3), which]
    slopes = slope[:, np.arange(3), which]
    gradient = np.stack(
        [np.prod(np.where(np.arange(3) == k, slopes, factors), axis=-1) for k in range(3)],
        axis=-1,
    )
    return np.prod(factors, axis=-1), gradient


def _polynomials(ticks: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    value, slope = [], []
    for i, tick in enumerate(ticks):
        roots = np.delete(ticks, i)
        p = np.polynomial.Polynomial.fromroots(roots) / np.prod(tick - roots)
        value.append(p(points))
        slope.append(p.deriv()(points))
    return np.stack(value, axis=-1), np.stack(slope, axis=-1)


def volume_rule(n: int) -> Rule:
    """n x n x n Gauss points."""
    return Rule(*gauss(n, 3))


def face_rule(n: int) -> FaceRule:
    """n x n Gauss points on each face, tangents such that the area vector points outwards."""
    plane, weights = gauss(n, 2)
    points, tangents = [], []
    for face in FACES:
        origin, first, _, last = (CORNERS[i] for i in face)
        axes = np.stack([(first - origin) / 2, (last - origin) / 2], axis=-1)
        points.append(CORNERS[list(face)].mean(axis=0) + plane @ axes.T)
        tangents.append(axes)
    return FaceRule(np.stack(points), np.stack(tangents), weights)
