"""Causes of a failure: kinks along the motion, ends out of reach, infinite slopes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.ocp.direct import DirectSolution
from jaxgrip.ocp.hamiltonian import MAX_ORDER, boundary_sizes, find_order
from jaxgrip.ocp.statement import Problem
from jaxgrip.solve.fusion import jit_plainly


@jit_plainly
def _gaps(problem: Problem, x, u):
    """Largest jump of dynamics, cost, constraints or their gradients between neighbours."""
    n = problem.n

    def value(z):
        def every(z):
            x, u = z[:n], z[n:]
            cost = problem.cost_rate(x, u)[None]
            return jnp.concatenate([problem.dynamics(x, u), cost, problem.constraints(x, u)])

        return jnp.concatenate([every(z), jax.jacfwd(every)(z).ravel()])

    z = jnp.concatenate([x, u], axis=1)
    size = jnp.max(jnp.abs(jax.vmap(value)(z)), axis=0)
    # Values that are rounding error relative to the others are not compared.
    size = jnp.maximum(size, 1e-6 * jnp.max(size)) + jnp.finfo(float).tiny

    def between(before, after):
        def gap(low, high):
            at_low, at_high = (value(before + s * (after - before)) for s in (low, high))
            return jnp.max(jnp.abs(at_high - at_low) / size)

        def halve(_, span):
            low, high = span
            middle = 0.5 * (low + high)
            is_first = gap(low, middle) > gap(middle, high)
            return jnp.where(is_first, low, middle), jnp.where(is_first, middle, high)

        # After 30 bisections a smooth function changes by a billionth at most.
        span = jax.lax.fori_loop(0, 30, halve, (jnp.zeros(()), jnp.ones(())))
        return gap(*span), span[0]

    return jax.vmap(between)(z[:-1], z[1:])


def find_kink(
    problem: Problem,
    t: Float[ArrayLike, " K"],
    x: Float[ArrayLike, "K n"],
    u: Float[ArrayLike, "K m"],
) -> float | None:
    """Time [s] at which a motion passes a kink or a jump of dynamics, cost or constraints.

    Every step of the motion is bisected towards the larger change of the functions and their first
    derivatives; a change that does not shrink with the step is a kink or a jump.

    **Arguments:** times `(K,)` [s], states `(K, n)` and controls `(K, m)`; a repeated time is a
    switch, which is skipped.
    """
    t = np.asarray(t)
    gap, share = (np.asarray(v) for v in _gaps(problem, jnp.asarray(x), jnp.asarray(u)))
    steps = np.diff(t)
    kinks = np.flatnonzero((gap > 1e-5) & (steps > 0.0))
    return float(t[kinks[0]] + share[kinks[0]] * steps[kinks[0]]) if kinks.size else None


def describe_miss(problem: Problem, direct: DirectSolution) -> str:
    """The end or constraint that a failed transcription violates most, in words."""
    x = 0.5 * (direct.x[1:] + direct.x[:-1])
    value = np.max(np.asarray(direct.constraint), axis=0, initial=-np.inf)
    size = np.max(np.abs(np.asarray(direct.constraint)), axis=0, initial=0.0)
    worst = []
    for i, name in enumerate(problem.constraint_names):
        if value[i] > -1e-3 * size[i]:
            try:
                find_order(problem, i, jnp.asarray(x), jnp.asarray(direct.u))
            except ValueError:
                return f"{name}: no control is in its first {MAX_ORDER} time derivatives"
        if value[i] > 0.0:
            worst.append((value[i] / size[i], f"{name} is exceeded by {value[i]:.2g}"))
    end = np.asarray(direct.x[-1])
    scale = np.maximum(np.max(np.abs(direct.x), axis=0), 1e-300)
    miss = np.abs(end - np.asarray(problem.final_state)) / scale
    worst += [
        (miss[i], f"state {i} ends at {end[i]:.4g} instead of {problem.final_state[i]:.4g}")
        for i in problem.fixed_final
    ]
    ends = jnp.asarray(direct.x[0]), jnp.asarray(direct.final_time), jnp.asarray(direct.x[-1])
    errors = np.abs(np.asarray(problem.boundary(*ends)))
    reach = boundary_sizes(problem, direct.x[[0, -1]], scale, direct.final_time)
    worst += [
        (error / size, f"boundary condition {i} is missed by {error:.2g}")
        for i, (error, size) in enumerate(zip(errors, np.asarray(reach), strict=True))
    ]
    gap = np.abs(np.asarray(_defects(problem, direct)))
    at = np.unravel_index(np.argmax(gap), gap.shape)
    worst.append((gap[at], f"state {at[1]} does not follow its dynamics"))
    share, text = max(worst)
    return text if share > 1e-6 else ""


@eqx.filter_jit
def _defects(problem: Problem, direct: DirectSolution) -> Array:
    x = jnp.asarray(direct.x)
    rate = jax.vmap(problem.dynamics)(0.5 * (x[1:] + x[:-1]), jnp.asarray(direct.u))
    step = direct.final_time * direct.lengths[:, None]
    size = jnp.max(jnp.abs(x), axis=0)
    return (x[:-1] + step * rate - x[1:]) / jnp.where(size > 0.0, size, 1.0)[None]


def find_steep_edge(problem: Problem, x: np.ndarray, u: np.ndarray) -> str | None:
    """The end or control bound at which a rate or its slope is infinite, in words; else None.

    **Arguments:** states `(N+1, n)` and controls `(N, m)` of a motion.
    """
    first, last = (
        np.where(is_fixed | ~np.isfinite(x_end), np.asarray(stated), x_end)
        for is_fixed, x_end, stated in (
            (problem.is_fixed_initial, x[0], problem.initial_state),
            (problem.is_fixed_final, x[-1], problem.final_state),
        )
    )
    lower, upper = np.asarray(problem.lower), np.asarray(problem.upper)
    u = np.where(np.isfinite(u), u, 0.5)
    n, middle = problem.n, np.median(u, axis=0)
    edges = [(first, u[0], last, middle, "the start"), (last, u[-1], first, middle, "the end")]
    for bound, name in ((lower, "lower"), (upper, "upper")):
        on_bound = np.where(np.isfinite(bound), bound, middle)
        inner = 0.5 * (first + last)
        edges.append((inner, on_bound, inner, middle, f"the {name} bounds of the controls"))
    for x_at, u_at, x_beside, u_beside, where in edges:
        at, beside = (
            np.asarray(_slopes(problem, jnp.asarray(y), jnp.asarray(v)))
            for y, v in (
                (x_at, u_at),
                (x_at + 1e-3 * (x_beside - x_at), u_at + 1e-3 * (u_beside - u_at)),
            )
        )
        is_wrong = ~np.isfinite(at)
        if not np.any(is_wrong) or not np.all(np.isfinite(beside)):
            continue
        rates = np.flatnonzero(is_wrong[:, 0])
        if rates.size:
            what = f"the rate of state {rates[0]}" if rates[0] < n else "the running cost"
            return f"{what} at {where}"
        # Where one slope is infinite, others may be NaN: zero times infinity.
        column = int(np.argmax(np.any(np.isinf(at), axis=0))) - 1
        what = f"state {column}" if column < n else f"control {column - n}"
        return f"the slope by {what} at {where}"
    return None


@jit_plainly
def _slopes(problem: Problem, x, u):
    """Rates and running cost, and their derivatives by states and controls: `(n+1, 1+n+m)`."""

    def every(z):
        x, u = z[: problem.n], z[problem.n :]
        return jnp.append(problem.dynamics(x, u), problem.cost_rate(x, u))

    z = jnp.concatenate([x, u])
    return jnp.concatenate([every(z)[:, None], jax.jacfwd(every)(z)], axis=1)
