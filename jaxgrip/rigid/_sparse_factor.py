"""Solve with the mass matrix in scalars, without fill-in on trees.

Source: Featherstone 2008, chapter 6.
"""

from jaxgrip.solve.fusion import kept
from jaxgrip.spatial.components import Scalar, mul, sub


def factor(m: list[list[Scalar]], one: Scalar) -> tuple[list[list[Scalar]], list[Scalar]]:
    """Factor M = L^T D L with unit lower triangular L, from the leaves to the base.

    Known zeros between joints on different branches stay zeros in this order. Returns the rows
    of L and the reciprocals of D; `one` from `one_of` has each computed once.
    """
    n = len(m)
    work = [list(row) for row in m]
    lower: list[list[Scalar]] = [[0.0] * n for _ in range(n)]
    reciprocal: list[Scalar] = [0.0] * n
    for k in reversed(range(n)):
        reciprocal[k] = 1.0 / work[k][k]
        for i in range(k):
            lower[k][i] = kept(mul(work[k][i], reciprocal[k]), one)
        for i in range(k):
            for j in range(i + 1):
                work[i][j] = sub(work[i][j], mul(lower[k][i], work[k][j]))
    return lower, reciprocal


def solve(
    factored: tuple[list[list[Scalar]], list[Scalar]], b: list[Scalar], one: Scalar
) -> list[Scalar]:
    """Solve L^T D L x = b."""
    lower, reciprocal = factored
    x = list(b)
    for k in reversed(range(len(x))):
        x[k] = kept(x[k], one)
        for i in range(k):
            x[i] = sub(x[i], mul(lower[k][i], x[k]))
    x = [mul(a, d) for a, d in zip(x, reciprocal, strict=True)]
    for k in range(len(x)):
        for i in range(k):
            x[k] = sub(x[k], mul(lower[k][i], x[i]))
        x[k] = kept(x[k], one)
    return x
