"""How well data determine parameters: Fisher information and what follows from it."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxgrip.checks import positive
from jaxgrip.fitting._bounds import Bounds, leaves, names, ravel
from jaxgrip.precision import require_x64

# Combinations with less than this fraction of the greatest influence have none.
_NOTHING = 1e-8
_TAKES_PART = 1e-5


class Direction(NamedTuple):
    """A combination of parameters and its standard deviation.

    `weights`: share of every parameter, the largest in magnitude first; their squares add up to 1.
    `deviation`: standard deviation along it, as a fraction: of the value of a parameter on a
    logarithmic scale, of the range between the bounds on a linear one; inf when the
    data do not depend on it.
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
    `unidentifiable`: groups of names of which the data determine combinations at most.
    `noise`: standard deviation of the residuals, given or estimated.
    `correlated`: whether the residuals are correlated in time.
    `information`: (n, n), the inverse of the covariance; zero along what the data leave open.
    """

    covariance: np.ndarray
    standard_deviation: PyTree
    worst_direction: Direction
    unidentifiable: tuple[tuple[str, ...], ...]
    noise: float
    correlated: bool
    information: np.ndarray


def dynamic(tree: PyTree) -> PyTree:
    """The tree with NumPy arrays and floats as JAX arrays, which are traced."""
    numeric = (np.ndarray, np.generic, float)
    return jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, numeric) else x, tree)


def flat(residuals: PyTree) -> Float[Array, " m"]:
    """Residuals of any structure, one after another."""
    return jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(residuals)])


def columns(
    function: Callable[[Array], Array], x: Array, directions: Array | None = None
) -> tuple[Array, Array]:
    """The value of a function and its derivatives (k, m) along directions (k, n), by forward mode.

    Without directions it is the transpose of the Jacobian.
    """
    directions = jnp.eye(x.shape[0]) if directions is None else directions
    return jax.vmap(lambda e: jax.jvp(function, (x,), (e,)), out_axes=(None, 0))(directions)


class Pattern(NamedTuple):
    """Where the Jacobian of residuals (m,) by parameters (n,) is zero whatever their values.

    `group` (n,): columns of one group have no rows in common, so that their sum holds all of them;
    `nonzero` (n, m).
    """

    group: np.ndarray
    nonzero: np.ndarray

    def columns(self, function: Callable[[Array], Array], x: Array) -> tuple[Array, Array]:
        """The value of a function and the transpose of its Jacobian."""
        directions = np.arange(max(self.group) + 1)[:, None] == self.group
        value, sums = columns(function, x, jnp.asarray(directions, float))
        return value, jnp.where(self.nonzero, sums[self.group], 0.0)

    def check(self, J: np.ndarray, names: tuple[str, ...]) -> None:
        """`ValueError` where a Jacobian (m, n) is not zero."""
        other = np.any((J.T != 0) & ~self.nonzero, axis=1)
        if np.any(other):
            raise ValueError(
                f"{names[int(np.argmax(other))]} influences other series of the residuals than its "
                "own: leave out by_series in its Bound."
            )


def pattern(bounds: Bounds, shapes: PyTree) -> Pattern:
    """The pattern of residuals of these shapes, by parameters of which some are `by_series`."""
    sizes = [math.prod(x.shape) for x in jax.tree.leaves(shapes)]
    series = np.repeat(np.arange(len(sizes)), sizes)
    groups, nonzero = [], []
    for bound in leaves(bounds):
        count = bound.lower.size
        first = max(groups, default=-1) + 1
        if not bound.by_series:
            groups += range(first, first + count)
            nonzero.append(np.ones((count, len(series)), bool))
            continue
        if bound.lower.shape != (len(sizes),):
            raise ValueError(
                f"A Bound by_series has the shape {bound.lower.shape}; it must be "
                f"({len(sizes)},), the number of series of the residuals."
            )
        groups += [first] * count
        nonzero.append(np.arange(count)[:, None] == series)
    return Pattern(np.array(groups), np.concatenate(nonzero))


def jacobian(residuals: Callable, parameters: PyTree, *data: Any) -> tuple[PyTree, Array]:
    """Residuals, in their own structure, and their Jacobian (m, n) by the scalars of parameters."""
    parameters = jax.tree.map(lambda x: jnp.asarray(x, dtype=float), parameters)
    x, rebuild = jax.flatten_util.ravel_pytree(parameters)
    value = residuals(parameters, *data)
    _, transposed = columns(lambda x: flat(residuals(rebuild(x), *data)), x)
    return value, transposed.T


def information(
    residuals: Callable, parameters: PyTree, *data: Any, noise: float | Float[Array, ""] = 1.0
) -> Float[Array, "n n"]:
    """Fisher information of parameters in measurements with independent normal noise.

    **Arguments:** `residuals`: function of `(parameters, *data)` giving an array, or a tree of
    arrays; `parameters`: tree of numbers; `noise`: standard deviation of the residuals.

    **Returns:** (n, n) JᵀJ / noise², by the scalars of the parameters in their order; traceable,
    for instance to design experiments.
    """
    _, J = jacobian(residuals, parameters, *data)
    return J.T @ J / noise**2


_jacobian = eqx.filter_jit(jacobian)


def uncertainty(
    residuals: Callable, parameters: PyTree, *data: Any, noise: float | None = None
) -> Uncertainty:
    """How well data determine the parameters that fit them.

    **Arguments:** as for [`fit`][]; `parameters`: the best ones.

    **Returns:** `Uncertainty`; directions are relative to the values of the parameters, or to one
    where these are zero.

    **Raises:** `ValueError` for residuals not finite, for fewer residuals than parameters, and for
    a noise that is not positive.
    """
    require_x64("uncertainty")
    noise = None if noise is None else float(positive("noise", noise, ()))
    value, J = _jacobian(dynamic(residuals), parameters, *dynamic(data))
    unit = np.abs(np.asarray(ravel(parameters)))
    return from_jacobian(parameters, value, J, np.where(unit > 0, unit, 1.0), noise)


def from_jacobian(
    parameters: PyTree,
    residuals: PyTree,
    J: Array | np.ndarray,
    unit: np.ndarray,
    noise: float | None,
    least: float = 0.0,
) -> Uncertainty:
    """Uncertainty from residuals and their Jacobian; `unit` (n,) of every parameter.

    Correlation in time leaves at least what independent errors of the standard deviation `least`
    would.
    """
    series = [np.atleast_1d(np.asarray(x)) for x in jax.tree.leaves(residuals)]
    r = np.concatenate([x.ravel() for x in series])
    scaled = np.asarray(J) * unit
    m, n = scaled.shape
    if not (np.all(np.isfinite(r)) and np.all(np.isfinite(scaled))):
        raise ValueError("The residuals or their derivatives at the parameters are not finite.")
    u, s, vt = np.linalg.svd(scaled, full_matrices=m < n)
    kept = s > _NOTHING * s[0]
    null = np.vstack([vt[: len(s)][~kept], vt[len(s) :]]).T
    u, s, basis = u[:, : len(s)][:, kept], s[kept], vt[: len(s)][kept].T
    correlated = _correlated(series)
    if noise is not None:
        spread = np.diag(noise**2 / s**2)
    else:
        if m <= len(s):
            raise ValueError(
                f"There are {m} residuals for {n} parameters; the noise can be estimated from more "
                "residuals only: give `noise`."
            )
        noise = math.sqrt(r @ r / (m - len(s)))
        spread = np.diag(noise**2 / s**2)
        if correlated:
            values, vectors = np.linalg.eigh(_long_run(series, u))
            spread = (vectors * np.maximum(values, least**2)) @ vectors.T / np.outer(s, s)
    relative, inverse = (basis @ x @ basis.T for x in (spread, np.linalg.inv(spread)))
    return _described(parameters, relative, inverse, null, unit, noise, correlated)


def from_information(parameters: PyTree, matrix: np.ndarray, unit: np.ndarray) -> Uncertainty:
    """Uncertainty from an observed information matrix (n, n)."""
    values, vectors = np.linalg.eigh(matrix * np.outer(unit, unit))
    # The information is a square of the influences: rounding hides what is smaller.
    kept = values > 1e-11 * np.max(np.abs(values))
    basis = vectors[:, kept]
    relative, inverse = ((basis * x) @ basis.T for x in (1 / values[kept], values[kept]))
    null = vectors[:, ~kept]
    return _described(parameters, relative, inverse, null, unit, math.nan, False)


def _described(
    parameters: PyTree,
    relative: np.ndarray,
    inverse: np.ndarray,
    null: np.ndarray,
    unit: np.ndarray,
    noise: float,
    correlated: bool,
) -> Uncertainty:
    labels = names(parameters)
    projector = null @ null.T
    undetermined = np.linalg.norm(null, axis=1) > _TAKES_PART
    if np.any(undetermined):
        vector, deviation = _null_vector(null), math.inf
    else:
        values, vectors = np.linalg.eigh(relative)
        vector, deviation = vectors[:, -1], math.sqrt(max(values[-1], 0.0))
    order = np.argsort(-np.abs(vector), kind="stable")
    vector = vector * np.sign(vector[order[0]])
    covariance = relative * np.outer(unit, unit)
    covariance[undetermined], covariance[:, undetermined] = 0.0, 0.0
    covariance[undetermined, undetermined] = math.inf
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
        tuple(tuple(labels[i] for i in group) for group in _groups(projector, undetermined)),
        noise,
        correlated,
        0.5 * (inverse + inverse.T) / np.outer(unit, unit),
    )


def _null_vector(null: np.ndarray) -> np.ndarray:
    """The direction without information in which one parameter has the largest share."""
    projector = null @ null.T
    column = projector[:, np.argmax(np.diagonal(projector))]
    return column / np.linalg.norm(column)


def _groups(projector: np.ndarray, undetermined: np.ndarray) -> list[list[int]]:
    """Groups of parameters that share directions without information."""
    found, left = [], [int(i) for i in np.flatnonzero(undetermined)]
    while left:
        group, fresh = [], [left.pop(0)]
        while fresh:
            group.append(fresh.pop())
            tied = [i for i in left if abs(projector[group[-1], i]) > _TAKES_PART]
            left = [i for i in left if i not in tied]
            fresh += tied
        found.append(sorted(group))
    return found


def _runs(series: Sequence[np.ndarray], rows: np.ndarray) -> list[np.ndarray]:
    """The rows (m, k) that belong to residuals, as (runs, samples, k) for every leaf of them."""
    ends = np.cumsum([x.size for x in series])
    parts = np.split(rows, ends[:-1])
    return [p.reshape(-1, x.shape[-1], rows.shape[1]) for p, x in zip(parts, series, strict=True)]


def _correlated(series: Sequence[np.ndarray]) -> bool:
    """Whether residuals are correlated in time, with the next sample or with any other."""
    products, squares = lagged(series), lagged([x**2 for x in series])
    if products[0] == 0:
        return False
    # Of independent residuals whose size changes with time, those of similar size are neighbours.
    usual = products[0] ** 2 / sum(x.size for x in series)
    score = np.abs(products[1:]) / np.sqrt(np.maximum(squares[1:], usual))
    return bool(np.any(score[:1] > 3) or np.any(score > 5))


def lagged(series: Sequence[np.ndarray]) -> np.ndarray:
    """Sums of products of residuals (..., samples) with those 0, 1, 2, ... samples later."""
    longest = max(x.shape[-1] for x in series)
    total = np.zeros(longest)
    for x in series:
        power = np.sum(np.abs(np.fft.rfft(x.reshape(-1, x.shape[-1]), 2 * longest)) ** 2, axis=0)
        total += np.fft.irfft(power)[:longest]
    return total


def _long_run(series: Sequence[np.ndarray], basis: np.ndarray) -> np.ndarray:
    """Covariance of the products of correlated residuals with an orthonormal basis (m, k).

    The product of the spectra of basis and residuals, without smoothing (Robinson 1998): motions
    that repeat themselves have the same error, such as that of a coarse sensor, in every period,
    which no window of lags shows. Where the fit has reduced the power of the residuals, the average
    over nearby frequencies replaces it if greater, and is divided by the square of the remaining
    fraction (as HC3 of MacKinnon 1985 does in time).
    """
    total = np.zeros((basis.shape[1],) * 2)
    for x, q in zip(series, _runs(series, basis), strict=True):
        samples = x.shape[-1]
        power = np.abs(np.fft.fft(x.reshape(-1, samples), 2 * samples, axis=1)) ** 2 / samples
        waves = np.fft.fft(q, 2 * samples, axis=1)
        near = min(10, samples // 20)
        padded = np.pad(power, ((0, 0), (near, near)), mode="wrap")
        sums = np.cumsum(np.pad(padded, ((0, 0), (1, 0))), axis=1)
        average = (sums[:, 2 * near + 1 :] - sums[:, : -2 * near - 1]) / (2 * near + 1)
        taken = np.sum(np.abs(waves) ** 2, axis=-1) / samples
        power = np.maximum(power, average) / (1 - np.minimum(taken, 0.99)) ** 2
        total += np.einsum("rfa,rf,rfb->ab", waves.conj(), power, waves).real / (2 * samples)
    return total
