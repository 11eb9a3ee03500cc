"""Every necessary condition of the minimum principle, measured on a solution."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from jaxgrip.ocp.hamiltonian import flow
from jaxgrip.ocp.problem import Problem
from jaxgrip.ocp.shooting import (
    INTERIOR,
    LOWER,
    SINGULAR,
    UPPER,
    ArcPlan,
    Arcs,
    Scales,
    ShootingResult,
    bounds_of,
    conditions,
)


@dataclass(frozen=True)
class Check:
    """One condition: its `value` passes when it is at most `tolerance`; `meaning` explains it."""

    name: str
    value: float
    tolerance: float
    meaning: str

    @property
    def passed(self) -> bool:
        """Whether the value is a number at most the tolerance."""
        return bool(self.value <= self.tolerance)


@dataclass(frozen=True)
class Certificate:
    """The checks of every necessary condition."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    def __str__(self) -> str:
        return "\n".join(
            f"{'ok  ' if c.passed else 'FAIL'} {c.name}: {c.value:.1e} (at most {c.tolerance:.0e})"
            for c in self.checks
        )


class Extremal(NamedTuple):
    """A converged solution of the shooting, with what certifies and differentiates it.

    `real` `(arcs - 1,)` is True where an arc's end is a switch and not a subdivision.
    """

    plan: ArcPlan
    shot: ShootingResult
    scales: Scales
    singular: bool
    real: np.ndarray


@eqx.filter_jit
def _closed_loop(problem: Problem, z, kinds, u, scales: Scales, inner: bool, singular: bool):
    """Rate of the scaled (x, costate), with the controls that obey their kinds there."""
    y = z * scales.y
    bounded = (kinds == UPPER) | (kinds == LOWER)
    u = jnp.where(bounded, bounds_of(problem, kinds), u)
    if inner:

        def law(u):
            return conditions(problem, y, u, kinds, scales, singular).law

        u = jax.lax.fori_loop(
            0, 4, lambda _, u: u - jnp.linalg.solve(jax.jacfwd(law)(u), law(u)), u
        )
    return flow(problem, y, u)[0] / scales.y, u


def _reintegrate(problem: Problem, plan: ArcPlan, arcs: Arcs, scales: Scales, singular: bool):
    """Integrate states and costates anew from the start; scaled (x, costate) at the end."""
    inner = bool(np.any((plan.kinds == INTERIOR) | (plan.kinds == SINGULAR)))
    z = np.asarray(arcs.start[0, 0] / scales.y)
    start = 0.0
    for kinds, end, u in zip(plan.kinds, np.asarray(arcs.times), arcs.start_u[:, 0], strict=True):
        kinds = jnp.asarray(kinds)

        def rate(_, z, kinds=kinds, u=u):
            return np.asarray(_closed_loop(problem, z, kinds, u, scales, inner, singular)[0])

        run = solve_ivp(rate, (start, end), z, method="DOP853", rtol=1e-12, atol=1e-13)
        if not run.success:
            return np.full_like(z, np.inf)
        z, start = run.y[:, -1], end
    return z


def certify(problem: Problem, extremal: Extremal) -> Certificate:
    """Measure every necessary condition on a solution of the shooting.

    **Arguments:** `problem`; `extremal`, what the shooting found.

    **Returns:** a [`Certificate`][]. Source: specs/000b, section 1.
    """
    plan, shot, scales, singular, _ = extremal
    arcs, values = shot.arcs, shot.values
    n = problem.n
    kinds = np.asarray(plan.kinds)
    times = np.asarray(arcs.times)
    starts = np.concatenate([[0.0], times[:-1]])

    def flat(parts):
        return np.concatenate([np.asarray(part).reshape(-1, problem.m) for part in parts])

    k, s = arcs.stage.shape[1:3]
    kind_rows = np.concatenate([np.repeat(kinds, count, axis=0) for count in (k, k * s, 1)])
    switching = flat(part.switching for part in values) / np.asarray(scales.switching)
    law_slope = flat(shot.law_slope) * np.asarray(scales.u)
    bounded = (kind_rows == UPPER) | (kind_rows == LOWER)
    wrong_sign = np.max(np.where(bounded, kind_rows * switching, 0.0), initial=0.0)
    inside = np.max(np.abs(np.where(bounded, 0.0, switching)), initial=0.0)

    # Order one: (-1)^1 d/du of the second time derivative must not be negative.
    convexity = np.where(kind_rows == SINGULAR, -law_slope, law_slope)

    u = flat((arcs.start_u, arcs.stage_u, arcs.end_u))
    lower, upper = np.asarray(problem.lower), np.asarray(problem.upper)
    out = np.max(np.maximum(lower - u, u - upper) / np.asarray(scales.u))

    nodes = np.concatenate(
        [
            np.asarray(arcs.start).reshape(-1, 2 * n),
            np.asarray(arcs.start)[1:, 0],
            np.asarray(arcs.end)[None],
        ]
    )
    rates = np.concatenate(
        [np.asarray(values.start.rate).reshape(-1, 2 * n), np.asarray(values.end.rate)]
    )
    h = np.concatenate(
        [np.asarray(values.start.hamiltonian).ravel(), np.asarray(values.end.hamiltonian)]
    )
    term = np.max(np.abs(nodes[:, n:] * rates[:, :n]))
    end_x = arcs.end[:n]
    cost_t, cost_x = jax.grad(problem.end_cost, argnums=(0, 1))(arcs.times[-1], end_x)
    target = -float(cost_t) if problem.is_time_free else float(np.mean(h))
    free = np.array([i not in problem.fixed_final for i in range(n)])
    transversality = np.max(
        np.abs(np.asarray(arcs.end[n:] - cost_x) / np.asarray(scales.y[n:]))[free], initial=0.0
    )
    z = _reintegrate(problem, plan, arcs, scales, singular)
    z_end = np.asarray(arcs.end / scales.y)
    fixed = np.array(problem.fixed_final, dtype=int)
    goal = np.asarray(problem.final_state)[fixed] / np.asarray(scales.y)[fixed]
    state_miss = max(
        np.max(np.abs(z[fixed] - goal), initial=0.0), np.max(np.abs(z[:n] - z_end[:n]))
    )
    strongest = np.max(np.abs(nodes[:, n:]))
    return Certificate(
        (
            Check(
                "end state, re-integrated",
                float(state_miss),
                1e-8,
                "DOP853 at rtol 1e-12 with the reported controls, scaled by the largest states",
            ),
            Check(
                "costates, re-integrated",
                float(np.max(np.abs(z[n:] - z_end[n:]))),
                1e-6,
                "adjoint equation, DOP853 at rtol 1e-12, scaled by the largest costates",
            ),
            Check(
                "boundary-value problem",
                float(shot.residual),
                1e-10,
                "boundary, switching, continuity and collocation equations, scaled",
            ),
            Check(
                "minimum principle on bang arcs",
                float(wrong_sign),
                1e-9,
                "switching function of the wrong sign, relative to its largest value",
            ),
            Check(
                "stationarity on interior arcs",
                float(inside),
                1e-8,
                "switching function where the control is inside its bounds, relative",
            ),
            Check(
                "Legendre-Clebsch",
                float(np.max(np.where(bounded, 0.0, -convexity), initial=0.0)),
                1e-9,
                "H_uu >= 0, on singular arcs its generalisation; negative part, scaled",
            ),
            Check(
                "control bounds",
                float(max(out, 0.0)),
                1e-9,
                "controls outside their bounds, relative to the range",
            ),
            Check(
                "order of the switching times",
                float(max(0.0, np.max(starts - times) / times[-1])),
                0.0,
                "negative length of an arc, relative to the final time",
            ),
            Check(
                "Hamiltonian",
                float(np.max(np.abs(h - target)) / term),
                1e-10,
                "deviation from its constant value, relative to the largest term of costate . f",
            ),
            Check(
                "transversality",
                float(transversality),
                1e-9,
                "costates at free components of the final state, scaled",
            ),
            Check(
                "non-triviality",
                0.0 if strongest > 0.0 and np.isfinite(strongest) else np.inf,
                0.0,
                "the costates do not vanish",
            ),
        )
    )
