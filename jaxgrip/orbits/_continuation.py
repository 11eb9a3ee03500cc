"""Families of periodic orbits over a parameter, past folds."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from jaxgrip.checks import numbers
from jaxgrip.orbits._flow import RTOL, Rhs, flow_and_jacobian
from jaxgrip.orbits._periodic import TOLERANCE, Orbit, _matrix, _moved, _Problem, _residual
from jaxgrip.solve import dense, newton

# Cosines of the angle by which the branch turns in a step: with less than the first, or if no orbit
# is found, the step is taken again with half the length; above the second the next one is longer.
_TURNED, _STRAIGHT, _SHORTEST = 0.97, 0.995, 1e-5


class Branch(NamedTuple):
    """Periodic orbits along a branch.

    `value` (k,) of the parameter; `period` (k,) [s]; `states` (k, m, n); `multipliers` (k, n) of
    Floquet; `stable` (k,); `folds`, indices of the last orbits before the parameter turns back;
    `sentence`: why the branch ends.
    """

    value: Float[np.ndarray, " k"]
    period: Float[np.ndarray, " k"]
    states: Float[np.ndarray, "k m n"]
    multipliers: Complex[np.ndarray, "k n"]
    stable: np.ndarray
    folds: tuple[int, ...]
    sentence: str


class _Point(NamedTuple):
    states: Array
    period: Array
    value: Array


@eqx.filter_jit
def _corrected(rhs, driven, rtol, predicted: _Point, tangent: Array, scale: Array, width: Array):
    """The orbit nearest to a prediction across a tangent, and the tangent there."""
    begin = jnp.zeros((), predicted.period.dtype)

    def problem(value: Array) -> _Problem:
        first = predicted.states[0]
        normal = rhs(begin, first, value)
        normal = normal / (jnp.abs(normal) @ scale)
        period = predicted.period
        if driven:
            period = driven(value)
        return _Problem(value, begin, period, scale, first, jax.lax.stop_gradient(normal))

    forced = bool(driven)

    def full(point: _Point) -> tuple[Array, Array]:
        """Residual and the matrix by states, period and value."""
        here = (point.states, point.period)
        off = _residual(rhs, forced, rtol, problem(point.value), here)
        matrix = _matrix(rhs, forced, rtol, problem(point.value), here)
        by_value = jax.jvp(
            lambda v: _residual(rhs, forced, rtol, problem(v), here),
            (point.value,),
            (jnp.ones_like(point.value),),
        )[1]
        return off, jnp.concatenate([matrix, by_value[:, None] * width], axis=1)

    count = predicted.states.shape[0]
    # All states of an orbit together count as one.
    sizes = jnp.concatenate(
        [
            jnp.tile(scale * jnp.sqrt(1.0 * count), count),
            jnp.stack([predicted.period, jnp.ones_like(predicted.period)]),
        ]
    )

    def coordinates(point: _Point) -> Array:
        return jnp.concatenate(
            [point.states.ravel(), jnp.stack([point.period, point.value / width])]
        )

    def linearised(point: _Point):
        off, matrix = full(point)
        along = tangent @ ((coordinates(point) - coordinates(predicted)) / sizes)
        whole = jnp.concatenate([matrix, (tangent / sizes)[None]])
        return point, jnp.append(off, along), -dense.solve(whole, jnp.append(off, along))

    def moved(point: _Point, step: Array) -> _Point:
        states, period = _moved((point.states, point.period), step[:-1])
        return _Point(states, period, point.value + width * step[-1])

    def length(step: Array) -> Array:
        return 2 * jnp.max(jnp.abs(step / sizes))

    root = newton.newton(linearised, moved, predicted, jnp.zeros_like(sizes), length)
    _, matrix = full(root.point)
    # The direction in which all residuals stay zero, on the side of the last one.
    whole = jnp.concatenate([matrix, (tangent / sizes)[None]])
    onward = dense.solve(whole, jnp.zeros_like(sizes).at[-1].set(1.0)) / sizes
    onward = onward / jnp.sqrt(onward @ onward)
    blocks = _blocks(rhs, rtol, root.point)
    return root, onward, sizes, blocks


def _blocks(rhs, rtol, point: _Point) -> Array:
    m, n = point.states.shape
    h = point.period / m
    begins = h * jnp.arange(m, dtype=h.dtype)
    jacobians = jax.vmap(lambda y, t: flow_and_jacobian(rhs, y, t, h, point.value, rtol)[1]())(
        point.states, begins
    )[:, :, :n]
    return jax.lax.scan(lambda a, b: (b @ a, None), jnp.eye(n, dtype=h.dtype), jacobians)[0]


def continuation(
    rhs: Rhs,
    orbit: Orbit,
    value: float,
    limits: tuple[float, float],
    *,
    upward: bool = True,
    period_of=None,
    step: float = 0.05,
    most: int = 200,
    rtol: float = RTOL,
) -> Branch:
    """Periodic orbits over a parameter by pseudo-arclength, past folds.

    **Arguments:**

    - `rhs`: as in `periodic`, whose parameters are one number.
    - `orbit`: found by `periodic` at the `value` of the parameter; `limits` of the parameter.
    - `upward`: whether the parameter rises at first; `period_of`: for driven systems, a function
      of the parameter giving the period.
    - `step`: first step, as a share of the limits and of the size of the orbit; `most` steps.

    **Returns:** `Branch`, up to the limits, the last step, or where no orbit is found any more,
    which its sentence says.

    **Raises:** `ValueError` for limits that do not enclose the value, and for a driven orbit
    without `period_of`.

    Source: own choice; pseudo-arclength (Keller 1977).
    """
    low, high = (float(numbers("A limit", x, ())) for x in limits)
    if not low <= value <= high or low == high:
        raise ValueError(f"The value {value:g} must lie within the limits {low:g} and {high:g}.")
    if orbit.driven and period_of is None:
        raise ValueError("A driven orbit has a period that is given: pass `period_of`.")
    width = jnp.asarray(high - low)
    driven = period_of if orbit.driven else False
    scale = jnp.max(jnp.abs(orbit.states), axis=0)
    scale = jnp.where(scale > 0, scale, 1.0)
    here = _Point(orbit.states, orbit.period, jnp.asarray(float(value)))
    count = orbit.states.size + 2
    side = 1.0 if upward else -1.0
    tangent = jnp.zeros(count).at[-1].set(side)
    root, tangent, sizes, matrix = _corrected(rhs, driven, rtol, here, tangent, scale, width)
    if not float(root.miss) < TOLERANCE:
        raise RuntimeError("The orbit does not belong to this value of the parameter.")
    points, matrices, tangents = [root.point], [matrix], [np.asarray(tangent)]
    length, sentence = step, f"The branch ends after {most} steps."
    while len(points) < most:
        flat = jnp.concatenate(
            [points[-1].states.ravel(), jnp.stack([points[-1].period, points[-1].value / width])]
        )
        ahead = flat + length * tangents[-1] * sizes
        guess = _Point(ahead[:-2].reshape(orbit.states.shape), ahead[-2], ahead[-1] * width)
        root, onward, sizes, matrix = _corrected(
            rhs, driven, rtol, guess, jnp.asarray(tangents[-1]), scale, width
        )
        turned = float(np.asarray(onward) @ tangents[-1])
        found = float(root.miss) < TOLERANCE and float(root.point.period) > 0
        if not found or turned < _TURNED:
            length /= 2
            if length < _SHORTEST:
                sentence = f"No orbit was found beyond {float(points[-1].value):.6g}."
                break
            continue
        points.append(root.point)
        matrices.append(matrix)
        tangents.append(np.asarray(onward))
        if not low <= float(root.point.value) <= high:
            sentence = "The branch reaches a limit of the parameter."
            break
        if turned > _STRAIGHT:
            length = min(1.5 * length, 4 * step)
    slopes = np.array([t[-1] for t in tangents])
    folds = tuple(int(k) for k in np.flatnonzero(np.sign(slopes[:-1]) != np.sign(slopes[1:])))
    multipliers, stable = [], []
    for one in matrices:
        values = np.linalg.eigvals(np.asarray(one))
        values = values[np.argsort(-np.abs(values))]
        others = values
        if not orbit.driven:
            others = np.delete(values, int(np.argmin(np.abs(values - 1))))
        multipliers.append(values)
        stable.append(bool(np.max(np.abs(others), initial=0.0) < 1))
    return Branch(
        np.array([float(p.value) for p in points]),
        np.array([float(p.period) for p in points]),
        np.stack([np.asarray(p.states) for p in points]),
        np.array(multipliers),
        np.array(stable),
        folds,
        sentence,
    )
