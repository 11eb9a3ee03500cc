"""Integration rules on the reference cube [-1, 1]^3 and the reference simplex."""

import itertools

import numpy as np


def gauss(n: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Points `(n^dim, dim)` and weights `(n^dim,)` of the Gauss product rule, exact to 2 n - 1."""
    x, w = np.polynomial.legendre.leggauss(n)
    points = np.array(list(itertools.product(x, repeat=dim)))
    weights = np.prod(list(itertools.product(w, repeat=dim)), axis=1)
    return points, weights


def simplex(n: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights on the simplex with corners 0 and e_k, exact to degree 2 n - 1.

    The Gauss-Jacobi product rule collapsed onto the simplex (Stroud's conical product).
    """
    from scipy.special import roots_jacobi

    axes = []
    for k in range(dim):
        x, w = roots_jacobi(n, dim - 1 - k, 0)
        axes.append(((1 + x) / 2, w / 2 ** (dim - k)))
    points, weights = [], []
    for index in itertools.product(range(n), repeat=dim):
        rest, point, weight = 1.0, [], 1.0
        for (x, w), i in zip(axes, index, strict=True):
            point.append(rest * x[i])
            weight *= w[i]
            rest *= 1 - x[i]
        points.append(point)
        weights.append(weight)
    return np.array(points), np.array(weights)
