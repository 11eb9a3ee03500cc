"""How well data determine parameters: Fisher information and what follows from it."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxgrip.checks import numbers
from jaxgrip.fitting.bounds import names, ravel
from jaxgrip.precision import require_x64

# Combinations whose influence is this far below that of the best determined one have none.
_NOTHING = 1e-8
_TAKES_PART = 1e-5


class Direction(NamedTuple):
    """A combination of parameters and its standard deviation.

    `weights`: share of every parameter, the largest in magnitude first; their squares add up to 1.
    `deviation`: standard deviation along it, as a fraction: of the value of a parameter on a
    logarithmic scale, of the range between the bounds on a linear one; inf when nothing in the
    data depends on it.
    """

    weights: dict[str, float]
    deviation: float

    def __str__(self) -> str:
        shown = [(name, w) for name, w in self.weights.items() if abs(w) >= 0.1]
        first, *others = (f"{abs(w):.2f} {name}" for name, w in shown)
        signs = ["+" if w > 0 else "-" for _, w in shown[1:]]
        return " ".join([first, *(f"{s} {x}" for s, x in zip(signs, others, strict=True))])


class Uncertainty(NamedTuple):
    """How well n parameters are determined.

    `covariance`: (n, n), in the order of `names`; infinite variances where `unidentifiable`.
    `standard_deviation`: tree of the structure of the parameters, in their units.
    `worst_direction`: the combination of parameters that is determined worst.
    `unidentifiable`: groups of names; the data do not determine the members of a group, at most
    combinations of them.
    `noise`: standard deviation of the residuals, given or estimated.
    `correlation`: number of samples over which the residuals are correlated; 1 for none.
    """

    covariance: np.ndarray
    standard_deviation: PyTree
    worst_direction: Direction
    unidentifiable: tuple[tuple[str, ...], ...]
    noise: float
    correlation: int


def dynamic(tree: PyTree) -> PyTree:
    """The tree with its NumPy arrays and floats as arrays of JAX, which are traced."""
    numeric = (np.ndarray, np.generic, float)
    return jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, numeric) else x, tree)


def flat(residuals: PyTree) -> Float[Array, " m"]:
    """Residuals of any structure, one after another."""
    return jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(residuals)])


def columns(function: Callable[[Array], Array], x: Array) -> tuple[Array, Array]:
    """The value of a function and the transpose of its Jacobian, by forward mode."""
    return jax.vmap(lambda e: jax.jvp(function, (x,), (e,)), out_axes=(None, 0))(
        jnp.eye(x.shape[0])
    )


def jacobian(residuals: Callable, parameters: PyTree, *data: Any) -> tuple[PyTree, Array]:
    """Residuals, in their own structure, and their Jacobian (m, n) by the scalars of parameters."""
    parameters = jax.tree.map(lambda x: jnp.asarray(x, dtype=float), parameters)
    x, rebuild = jax.flatten_util.ravel_pytree(parameters)
    value = residuals(parameters, *data)
    _, transposed = columns(lambda x: flat(residuals(rebuild(x), *data)), x)
    return value, transposed.T


def information(
    residuals: Callable, parameters: PyTree, *data: Any, noise: Any = 1.0
) -> Float[Array, "n n"]:
    """Fisher information of parameters in measurements with independent normal noise.

    **Arguments:** `residuals`: function of `(parameters, *data)` giving an array, or a tree of
    arrays; `parameters`: tree of numbers; `noise`: standard deviation of the residuals.

    **Returns:** (n, n) JᵀJ / noise², by the scalars of the parameters in their order; traceable,
    for the design of experiments.
    """
    _, J = jacobian(residuals, parameters, *data)
    return J.T @ J / noise**2


_jacobian = eqx.filter_jit(jacobian)


def uncertainty(
    residuals: Callable, parameters: PyTree, *data: Any, noise: float | None = None
) -> Uncertainty:
    """How well parameters that fit their data are determined by them.

    **Arguments:** as for [`fit`][]; `parameters`: the best ones.

    **Returns:** `Uncertainty`; directions are relative to the values of the parameters, or to one
    where these are zero.

    **Raises:** `ValueError` for residuals not finite, and for fewer residuals than parameters.
    """
    require_x64("uncertainty")
    value, J = _jacobian(dynamic(residuals), parameters, *dynamic(data))
    unit = np.abs(np.asarray(ravel(parameters)))
    return from_jacobian(parameters, value, J, np.where(unit > 0, unit, 1.0), noise)


def from_jacobian(
    parameters: PyTree, residuals: PyTree, J: Array, unit: np.ndarray, noise: float | None
) -> Uncertainty:
    """Uncertainty from residuals and their Jacobian; `unit` (n,) is one of every parameter."""
    series = [np.atleast_1d(np.asarray(x)) for x in jax.tree.leaves(residuals)]
    r = np.concatenate([x.ravel() for x in series])
    scaled = np.asarray(J) * unit
    m, n = scaled.shape
    if not (np.all(np.isfinite(r)) and np.all(np.isfinite(scaled))):
        raise ValueError("The residuals or their derivatives at the parameters are not finite.")
    _, s, vt = np.linalg.svd(scaled, full_matrices=m < n)
    kept = s > _NOTHING * s[0]
    s, basis, null = s[kept], vt[: len(s)][kept].T, np.vstack([vt[: len(s)][~kept], vt[len(s) :]]).T
    correlation = _correlation(series)
    if noise is not None:
        noise = float(numbers("noise", noise, ()))
        if noise <= 0:
            raise ValueError(f"noise is {noise:g}; a standard deviation must be positive.")
        spread = np.diag(noise**2 / s**2)
    else:
        if m <= len(s):
            raise ValueError(
                f"There are {m} residuals for {n} parameters; the noise can be estimated from more "
                "residuals only: give `noise`."
            )
        noise = math.sqrt(r @ r / (m - len(s)))
        spread = np.diag(noise**2 / s**2)
        if correlation > 1:
            # Each row is the push of one residual on the estimate along the basis.
            scores = r[:, None] * (scaled @ basis) / s**2
            spread, correlation = _long_run(series, scores)
            spread *= m / (m - len(s))
    return _described(parameters, basis @ spread @ basis.T, null, unit, noise, correlation)


def from_information(parameters: PyTree, matrix: np.ndarray, unit: np.ndarray) -> Uncertainty:
    """Uncertainty from an observed information matrix (n, n)."""
    values, vectors = np.linalg.eigh(matrix * np.outer(unit, unit))
    # An information is the square of singular values: half of its digits are left.
    kept = values > _NOTHING * np.max(np.abs(values))
    basis = vectors[:, kept]
    covariance = (basis / values[kept]) @ basis.T
    return _described(parameters, covariance, vectors[:, ~kept], unit, math.nan, 1)


def _described(
    parameters: PyTree,
    relative: np.ndarray,
    null: np.ndarray,
    unit: np.ndarray,
    noise: float,
    correlation: int,
) -> Uncertainty:
    labels = names(parameters)
    projector = null @ null.T
    lost = np.linalg.norm(null, axis=1) > _TAKES_PART
    if np.any(lost):
        vector, deviation = _null_vector(null), math.inf
    else:
        values, vectors = np.linalg.eigh(relative)
        vector, deviation = vectors[:, -1], math.sqrt(max(values[-1], 0.0))
    order = np.argsort(-np.abs(vector), kind="stable")
    vector = vector * np.sign(vector[order[0]])
    covariance = relative * np.outer(unit, unit)
    covariance[lost], covariance[:, lost] = 0.0, 0.0
    covariance[lost, lost] = math.inf
    at, parts = 0, []
    for leaf in jax.tree.leaves(parameters):
        size = math.prod(jnp.shape(leaf))
        variance = np.diagonal(covariance)[at : at + size]
        parts.append(np.sqrt(variance).reshape(jnp.shape(leaf)))
        at += size
    return Uncertainty(
        covariance,
        jax.tree.unflatten(jax.tree.structure(parameters), parts),
        Direction({labels[i]: float(vector[i]) for i in order}, deviation),
        tuple(tuple(labels[i] for i in group) for group in _groups(projector, lost)),
        noise,
        correlation,
    )


def _null_vector(null: np.ndarray) -> np.ndarray:
    """The direction without information that the most involved parameter belongs to."""
    projector = null @ null.T
    column = projector[:, np.argmax(np.diagonal(projector))]
    return column / np.linalg.norm(column)


def _groups(projector: np.ndarray, lost: np.ndarray) -> list[list[int]]:
    """Parameters that directions without information tie to each other."""
    found, left = [], [int(i) for i in np.flatnonzero(lost)]
    while left:
        group, fresh = [], [left.pop(0)]
        while fresh:
            group.append(fresh.pop())
            tied = [i for i in left if abs(projector[group[-1], i]) > _TAKES_PART]
            left = [i for i in left if i not in tied]
            fresh += tied
        found.append(sorted(group))
    return found


def _split(series: Sequence[np.ndarray], rows: np.ndarray) -> list[np.ndarray]:
    """The rows (m, k) that belong to residuals, as (runs, samples, k) for every leaf of them."""
    ends = np.cumsum([x.size for x in series])
    parts = np.split(rows, ends[:-1])
    return [p.reshape(-1, x.shape[-1], rows.shape[1]) for p, x in zip(parts, series, strict=True)]


def _autocorrelation(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Correlation of samples with the next ones, for each of the k columns."""
    products = sum(np.sum(x[:, 1:] * x[:, :-1], axis=(0, 1)) for x in parts)
    squares = sum(np.sum(x**2, axis=(0, 1)) for x in parts)
    return products / np.where(squares > 0, squares, 1.0)


def _correlation(series: Sequence[np.ndarray]) -> int:
    """Number of samples over which residuals are correlated; 1 for none of significance."""
    r = np.concatenate([x.ravel() for x in series])
    rho = float(_autocorrelation(_split(series, r[:, None]))[0])
    if abs(rho) * math.sqrt(r.size) < 3:
        return 1
    return max(2, _window(np.array([rho]), np.ones(1), r.size))


def _window(rho: np.ndarray, variance: np.ndarray, m: int) -> int:
    """Length of a triangular window for processes of first order (Andrews 1991, eq. 6.4)."""
    rho = np.clip(rho, -0.999, 0.999)
    above = np.sum(4 * rho**2 * variance**2 / ((1 - rho) ** 6 * (1 + rho) ** 2))
    below = np.sum(variance**2 / (1 - rho) ** 4)
    return math.ceil(1.1447 * (above / below * m) ** (1 / 3))


def _long_run(series: Sequence[np.ndarray], scores: np.ndarray) -> tuple[np.ndarray, int]:
    """Covariance of the sum of correlated scores, and the window over which they were summed.

    Sums over all windows of a length, squared, are the estimate of Newey and West (1987) with
    triangular weights; so written it cannot be indefinite.
    """
    variance = np.mean(scores**2, axis=0)
    scale = np.sqrt(np.where(variance > 0, variance, 1.0))
    parts = _split(series, scores / scale)
    window = max(1, _window(_autocorrelation(parts), np.ones_like(scale), len(scores)))
    window = min(window, max(x.shape[1] for x in parts))
    total = np.zeros((scores.shape[1],) * 2)
    for x in parts:
        sums = np.cumsum(np.pad(x, ((0, 0), (window, window), (0, 0))), axis=1)
        w = (sums[:, window:] - sums[:, :-window]).reshape(-1, x.shape[-1])
        total += w.T @ w / window
    return total * np.outer(scale, scale), window
