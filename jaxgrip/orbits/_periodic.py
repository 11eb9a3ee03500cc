"""Periodic orbits by multiple shooting, and their stability."""

from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Complex, Float, Int, PyTree

from jaxgrip.checks import concrete, numbers, positive
from jaxgrip.orbits._flow import RTOL, Rhs, Values, flow, flow_and_jacobian
from jaxgrip.precision import require_x64
from jaxgrip.solve import dense, newton
from jaxgrip.solve.integration import integrate

# Largest gap between segments, by the size of the states.
TOLERANCE = 1e-7
# An equilibrium has states that move less than this share of their size in a period.
_STILL = 1e-6
_SAMPLES = 4096


class RESULTS(eqx.Enumeration):
    """Outcome of the search for a periodic orbit; the message says what to try."""

    successful = ""
    not_converged = (
        "Newton's method found no periodic orbit near the guess: start from a motion that has "
        "settled (`approached`), or take more segments."
    )
    equilibrium = (
        "The orbit found does not move: it is an equilibrium. Start further away from it, or from "
        "a motion that has settled (`approached`)."
    )


class Orbit(NamedTuple):
    """A periodic orbit.

    `states` (m, n) at the beginnings of m segments of equal duration, the first at the time
    `begin`; `period` [s]; `driven`: whether the period is that of the equations; `gap`: largest one
    between segments, by the size of the states; `steps` of Newton's method; `result`.
    """

    states: Float[Array, "m n"]
    period: Float[Array, ""]
    begin: Float[Array, ""]
    driven: bool
    gap: Float[Array, ""]
    steps: Int[Array, ""]
    result: Any


class Floquet(NamedTuple):
    """Stability of a periodic orbit.

    `multipliers` (n,), by descending size; `trivial`: index of the one that is 1 along the orbit of
    an autonomous system, None where driven; `stable`: whether all others are below one; `largest`,
    the size of the largest of them.
    """

    multipliers: Complex[np.ndarray, " n"]
    trivial: int | None
    stable: bool
    largest: float


class _Problem(NamedTuple):
    """What is fixed while Newton's method moves states and period."""

    parameters: PyTree
    begin: Array
    period: Array
    scale: Array
    anchor: Array
    normal: Array


def _residual(rhs, driven, rtol, problem: _Problem, point) -> Array:
    states, found = point
    period = problem.period if driven else found
    m = states.shape[0]
    begins = problem.begin + period / m * jnp.arange(m, dtype=states.dtype)
    reached = jax.vmap(lambda y, t: flow(rhs, y, t, period / m, problem.parameters, rtol=rtol))(
        states, begins
    )
    gaps = (reached - jnp.roll(states, -1, axis=0)) / problem.scale[None]
    phase = problem.normal @ (states[0] - problem.anchor)
    return jnp.append(gaps.ravel(), found - problem.period if driven else phase)


def _matrix(rhs, driven, rtol, problem: _Problem, point) -> Array:
    """Jacobian of the residual by states and period (m n + 1, m n + 1)."""
    states, found = point
    period = problem.period if driven else found
    m, n = states.shape
    begins = problem.begin + period / m * jnp.arange(m, dtype=states.dtype)
    blocks = jax.vmap(
        lambda y, t: flow_and_jacobian(rhs, y, t, period / m, problem.parameters, rtol)[1]()
    )(states, begins)
    rows = m * n
    by_states = jnp.zeros((m, n, m, n), states.dtype)
    at = np.arange(m)
    by_states = by_states.at[at, :, at].add(blocks[:, :, :n])
    by_states = by_states.at[at, :, (at + 1) % m].add(-jnp.eye(n)[None])
    share = jnp.arange(m, dtype=states.dtype)[:, None] / m
    by_period = share * blocks[:, :, n] + blocks[:, :, n + 1] / m
    matrix = jnp.zeros((rows + 1, rows + 1), states.dtype)
    scaled = by_states / problem.scale[None, :, None, None]
    matrix = matrix.at[:rows, :rows].set(scaled.reshape(rows, rows))
    matrix = matrix.at[:rows, rows].set((by_period / problem.scale[None]).ravel())
    if driven:
        return matrix.at[:rows, rows].set(0.0).at[rows, rows].set(1.0)
    return matrix.at[rows, :n].set(problem.normal)


def _moved(point, step):
    states, period = point
    return states + step[:-1].reshape(states.shape), period + step[-1]


@eqx.filter_jit
def _solve(rhs, driven, rtol, problem: _Problem, states: Array):
    """Point, gap and steps of the orbit, with the implicit derivative by the problem."""

    def linearised(point):
        residual = _residual(rhs, driven, rtol, problem, point)
        step = -dense.solve(_matrix(rhs, driven, rtol, problem, point), residual)
        return point, residual, step

    def length(step: Array) -> Array:
        """By half the size of the states, and half the period."""
        moves = step[:-1].reshape(states.shape) / problem.scale[None]
        return 2 * jnp.maximum(jnp.max(jnp.abs(moves)), jnp.abs(step[-1]) / problem.period)

    zero = jnp.zeros(states.size + 1, states.dtype)
    start = jax.lax.stop_gradient((states, problem.period))
    root = newton.newton(linearised, _moved, start, zero, length)
    implicit = newton.implicit(
        lambda p, point: _residual(rhs, driven, rtol, p, point),
        lambda p, point, change: -dense.solve(_matrix(rhs, driven, rtol, p, point), change),
        _moved,
    )
    point = implicit(problem, jax.lax.stop_gradient(root.point))
    return point, root.miss, root.steps


@eqx.filter_jit
def _spread(rhs, rtol, parameters, start, begin, period, segments: int) -> Array:
    """States at the beginnings of segments of the motion from a start."""
    times = begin + period * jnp.linspace(0.0, 1.0, segments + 1)
    return _sampled(rhs, rtol, parameters, start, times)[:-1]


def _sampled(rhs, rtol, parameters, start, times) -> Array:
    return integrate(
        rhs,
        diffrax.Dopri8(),
        *(times, start, parameters),
        rtol=rtol,
        atol=0.01 * rtol,
        max_steps=1_000_000,
        adjoint=diffrax.ForwardMode(),
        throw=False,
    ).ys


def periodic(
    rhs: Rhs,
    guess: Values,
    period: ArrayLike,
    parameters: PyTree = None,
    *,
    driven: bool = False,
    begin: ArrayLike = 0.0,
    segments: int = 8,
    rtol: float = RTOL,
    throw: bool = True,
) -> Orbit:
    """A periodic orbit of y' = rhs(t, y, parameters), by multiple shooting and Newton's method.

    The orbit has derivatives by `parameters`, and by `period` if driven, of the implicit function
    theorem, in both modes. The first state of an autonomous system stays in the plane through that
    of the guess, across its motion.

    **Arguments:**

    - `rhs`: function of time, state (n,) and parameters. Numbers that it closes over are constants.
    - `guess`: a state (n,) near the orbit, or states (m, n) at the beginnings of m segments.
    - `period` [s]: a guess, or if `driven` the period wanted, any multiple of that of `rhs`.
    - `driven`: whether `rhs` depends on time; `begin`: time of the first state [s].
    - `segments`: m, for a guess of one state: more for orbits that repel strongly.
    - `rtol`: tolerance of a step of the integration; `throw`: raise if no orbit is found.

    **Returns:** `Orbit`.

    **Raises:** `RuntimeError` with what to try, outside `jit` and with `throw`; `ValueError` for
    bad input.

    Source: own choice; Newton's method with a phase condition.
    """
    require_x64("periodic")
    guess = numbers("The guess", guess)
    period = positive("The period", period, ())
    begin = numbers("The begin", begin, ())
    if guess.ndim not in (1, 2) or guess.shape[-1] == 0:
        raise ValueError(f"The guess has the shape {guess.shape}; it must be (n,) or (m, n).")
    first = guess if guess.ndim == 1 else guess[0]
    rate = jnp.asarray(rhs(begin, first, parameters))
    if rate.shape != first.shape:
        raise ValueError(f"rhs gives the shape {rate.shape} for states {first.shape}.")
    parameters = jax.tree.map(lambda x: jnp.asarray(x, float), parameters)
    states = guess
    if guess.ndim == 1:
        states = _spread(rhs, rtol, parameters, guess, begin, period, segments)
    size = jnp.max(jnp.abs(states), axis=0)
    largest = jnp.max(size)
    size = jnp.where(size > 1e-9 * largest, size, jnp.where(largest > 0, largest, 1.0))
    # The plane depends on the parameters too, its scale need not.
    size, anchor = jax.lax.stop_gradient((size, states[0]))
    normal = rate / jax.lax.stop_gradient(jnp.maximum(jnp.abs(rate) @ size, 1e-300))
    problem = _Problem(parameters, begin, period, size, anchor, normal)
    (states, period), gap, steps = _solve(rhs, driven, rtol, problem, states)
    found = jnp.isfinite(gap) & (gap < TOLERANCE) & (period > 0)
    moves = jnp.max(jnp.abs(states - states[:1]) / size[None])
    still = (moves < _STILL) & (states.shape[0] > 1)
    result = RESULTS.where(
        found,
        RESULTS.where(still & (not driven), RESULTS.equilibrium, RESULTS.successful),
        RESULTS.not_converged,
    )
    if throw and concrete(gap) and result != RESULTS.successful:
        raise RuntimeError(f"{result_message(result)} The largest gap left is {float(gap):.2g}.")
    return Orbit(states, period, begin, driven, gap, steps, result)


def result_message(result: Any) -> str:
    """What a result says."""
    return RESULTS[result]


def motion(
    rhs: Rhs,
    orbit: Orbit,
    times: Float[Array, " k"],
    parameters: PyTree = None,
    *,
    rtol: float = RTOL,
) -> Float[Array, "k n"]:
    """States (k, n) of an orbit at times (k,) [s], those of any period.

    Differentiable in both modes by the orbit, the times and the parameters.
    """
    m = orbit.states.shape[0]
    share = jnp.mod((times - orbit.begin) / orbit.period, 1.0) * m
    k = jnp.clip(jax.lax.stop_gradient(share).astype(int), 0, m - 1)
    along = (share - k.astype(share.dtype)) * orbit.period / m
    begins = orbit.begin + k.astype(share.dtype) * orbit.period / m
    return jax.vmap(lambda y, t, h: flow(rhs, y, t, h, parameters, rtol=rtol))(
        orbit.states[k], begins, along
    )


def monodromy(
    rhs: Rhs, orbit: Orbit, parameters: PyTree = None, *, rtol: float = RTOL
) -> Float[Array, "n n"]:
    """Derivative of the state after one period by the first one (n, n), for `jit` and `vmap`."""
    m, n = orbit.states.shape
    parameters = jax.tree.map(lambda x: jnp.asarray(x, float), parameters)
    h = orbit.period / m
    begins = orbit.begin + h * jnp.arange(m, dtype=orbit.states.dtype)
    blocks = jax.vmap(lambda y, t: flow_and_jacobian(rhs, y, t, h, parameters, rtol)[1]())(
        orbit.states, begins
    )[:, :, :n]
    return jax.lax.scan(lambda a, b: (b @ a, None), jnp.eye(n, dtype=h.dtype), blocks)[0]


_monodromy = eqx.filter_jit(monodromy)


def floquet(rhs: Rhs, orbit: Orbit, parameters: PyTree = None, *, rtol: float = RTOL) -> Floquet:
    """Floquet multipliers of an orbit.

    Eigenvalues are computed by NumPy: outside `jit`; inside, take [`monodromy`][].
    """
    values = np.linalg.eigvals(np.asarray(_monodromy(rhs, orbit, parameters, rtol=rtol)))
    values = values[np.argsort(-np.abs(values))]
    trivial = None if orbit.driven else int(np.argmin(np.abs(values - 1)))
    others = np.delete(values, [] if trivial is None else [trivial])
    largest = float(np.max(np.abs(others), initial=0.0))
    return Floquet(values, trivial, largest < 1, largest)


def approached(
    rhs: Rhs, start: Values, duration: float, parameters: PyTree = None, *, rtol: float = 1e-8
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """A state and a period to start `periodic` from: where an autonomous motion has settled.

    The motion is integrated, and the last state's return across its own direction looked for.

    **Arguments:** `start` (n,); `duration` [s], of many periods, after which the motion has
    settled.

    **Returns:** state (n,) and period [s].

    **Raises:** `RuntimeError` where the motion stops or does not come back.
    """
    duration = positive("The duration", duration, ())
    start = numbers("The start", start)
    times = jnp.linspace(0.0, duration, _SAMPLES)
    states = np.asarray(eqx.filter_jit(_sampled)(rhs, rtol, parameters, start, times))
    if not np.all(np.isfinite(states)):
        k = int(np.argmin(np.all(np.isfinite(states), axis=1)))
        raise RuntimeError(f"The motion is not finite from t = {float(times[k]):g} s on.")
    last = states[-1]
    rate = np.asarray(rhs(times[-1], jnp.asarray(last), parameters))
    size = np.maximum(np.ptp(states[_SAMPLES // 2 :], axis=0), 1e-300)
    side = ((states - last) / size) @ (rate / size)
    # Crossings in the direction of the motion, near the last state.
    crossing = np.flatnonzero((side[:-2] < 0) & (side[1:-1] >= 0))
    near = np.max(np.abs(states[crossing] - last) / size, axis=1) < 0.2 if len(crossing) else []
    crossing = crossing[np.asarray(near, bool)]
    if len(crossing) == 0:
        raise RuntimeError(
            f"The motion does not come back to where it is after {float(duration):g} s: it has not "
            "settled on a periodic orbit, or has come to rest; take a longer time."
        )
    k = crossing[-1]
    at = times[k] + (times[1] - times[0]) * side[k] / (side[k] - side[k + 1])
    return jnp.asarray(last), times[-1] - at
