"""Reference tetrahedra: corners 0 and e_k, nodes in the order of VTK."""

import itertools

import numpy as np

from jaxgrip.fem.elements._quadrature import simplex
from jaxgrip.fem.elements.solid import FaceRule, Rule

CORNERS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=float)
EDGES = np.array([(0, 1), (1, 2), (2, 0), (0, 3), (1, 3), (2, 3)])
# Opposite to the corners 0, 1, 2, 3; corners counter-clockwise seen from outside.
FACES = ((1, 2, 3), (0, 3, 2), (0, 1, 3), (0, 2, 1))


def barycentric(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Linear shape functions and their derivatives."""
    value = np.concatenate([1 - points.sum(axis=1, keepdims=True), points], axis=1)
    slope = np.concatenate([np.full((1, 3), -1.0), np.eye(3)])
    return value, np.broadcast_to(slope, (len(points), 4, 3))


def edge(a: int, b: int) -> int:
    """Node in the middle of the edge between two corners."""
    return 4 + int(np.flatnonzero(np.isin(EDGES, (a, b)).all(axis=1))[0])


def volume_rule(n: int) -> Rule:
    """Conical product rule with n^3 points, exact to degree 2 n - 1."""
    return Rule(*simplex(n, 3))


def four_points() -> Rule:
    """The symmetric rule of degree 2."""
    near, far = (5 + 3 * np.sqrt(5)) / 20, (5 - np.sqrt(5)) / 20
    return Rule(far + (near - far) * CORNERS, np.full(4, 1 / 24))


def eight_points() -> Rule:
    """The symmetric rule of degree 3, points inside and weights positive.

    Source: Felippa 2004.
    """
    root = np.sqrt(17)
    spread = np.sqrt(1022 - 134 * root)
    excess = np.sqrt((1715161837 - 406006699 * root) / 23101) / 3120
    points, weights = [], []
    for sign in (1, -1):
        far = (55 - 3 * root + sign * spread) / 196
        points.append(far + (1 - 4 * far) * CORNERS)
        weights.append(np.full(4, (1 / 8 + sign * excess) / 6))
    return Rule(np.concatenate(points), np.concatenate(weights))


def face_rule(n: int) -> FaceRule:
    """n^2 points on each face, tangents such that the area vector points outwards."""
    plane, weights = simplex(n, 2)
    points, tangents = [], []
    for face in FACES:
        origin, first, second = (CORNERS[i] for i in face)
        axes = np.stack([first - origin, second - origin], axis=-1)
        points.append(origin + plane @ axes.T)
        tangents.append(axes)
    return FaceRule(np.stack(points), np.stack(tangents), weights)


def six_in_a_cube() -> np.ndarray:
    """Corners (6, 4, 3) of tetrahedra that fill the cube [-1, 1]^3.

    All share the diagonal from -1 to 1; opposite sides of the cube are cut alike, so
    neighbouring cubes match.

    Source: Freudenthal 1942.
    """
    corners = []
    for axes in itertools.permutations(range(3)):
        steps = np.eye(3)[list(axes)]
        path = np.concatenate([np.zeros((1, 3)), np.cumsum(steps, axis=0)])
        if np.linalg.det(steps) < 0:
            path = path[[0, 2, 1, 3]]
        corners.append(2 * path - 1)
    return np.stack(corners)


def number(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices (m, n) of points (m, n, 3) into the distinct ones (p, 3)."""
    distinct, index = np.unique(points.reshape(-1, 3), axis=0, return_inverse=True)
    return index.reshape(points.shape[:2]), distinct
