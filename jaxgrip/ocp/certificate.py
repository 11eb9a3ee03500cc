"""Every necessary condition of the minimum principle, measured on a solution."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from scipy.integrate import solve_ivp
from scipy.interpolate import BarycentricInterpolator

from jaxgrip.ocp.hamiltonian import hamiltonian_flow
from jaxgrip.ocp.problem import Problem
from jaxgrip.ocp.shooting import LOWER, UPPER, ArcPlan, Scales, ShootingResult, radau


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
def _scaled_flow(problem: Problem, z, u, scales: Scales):
    return hamiltonian_flow(problem, z * scales.y, u) / scales.y


def _reintegrate(problem: Problem, extremal: Extremal) -> np.ndarray:
    """Integrate states and costates anew from the start; scaled (x, costate) at the end.

    The controls are the reported ones: constant on the bounds, else the collocation polynomial.
    """
    arcs, scales, kinds = extremal.shot.arcs, extremal.scales, np.asarray(extremal.plan.kinds)
    k, s = arcs.stage_u.shape[1:3]
    nodes, _ = radau(s)
    ends = np.asarray(arcs.times)
    stage_u = np.asarray(arcs.stage_u)
    bang = np.all((kinds == UPPER) | (kinds == LOWER), axis=1)
    z = np.asarray(arcs.initial / scales.y)
    start = 0.0
    for arc, end in enumerate(ends):
        if bang[arc] and arc + 1 < len(ends) and np.array_equal(kinds[arc], kinds[arc + 1]):
            continue
        pieces = 1 if bang[arc] else k
        h = (end - start) / pieces
        for piece in range(pieces):
            begin = start + piece * h
            control = BarycentricInterpolator(nodes, stage_u[arc, piece])

            def rate(t, z, begin=begin, h=h, arc=arc, control=control):
                u = stage_u[arc, 0, 0] if bang[arc] else control((t - begin) / h)
                return np.asarray(_scaled_flow(problem, z, u, scales))

            run = solve_ivp(rate, (begin, begin + h), z, method="DOP853", rtol=1e-12, atol=1e-13)
            if not run.success:
                return np.full_like(z, np.inf)
            z = run.y[:, -1]
        start = end
    return z


def certify(problem: Problem, extremal: Extremal) -> Certificate:
    """Measure every necessary condition on a solution of the shooting.

    **Arguments:** `problem`; `extremal`, what the shooting found.

    **Returns:** a [`Certificate`][]. Source: specs/000b, section 1.
    """
    plan, shot, scales = extremal.plan, extremal.shot, extremal.scales
    arcs, value = shot.arcs, shot.stages.value
    n = problem.n
    times = np.asarray(arcs.times)
    starts = np.concatenate([[0.0], times[:-1]])
    kinds = np.asarray(plan.kinds)[:, None, None]
    bounded = (kinds == UPPER) | (kinds == LOWER)
    switching = np.asarray(value.switching) / np.asarray(scales.switching)
    wrong_sign = np.max(np.where(bounded, kinds * switching, 0.0), initial=0.0)
    inside = np.max(np.abs(np.where(bounded, 0.0, switching)), initial=0.0)
    concave = np.max(np.where(bounded, 0.0, -np.asarray(shot.stages.convexity)), initial=0.0)
    u = np.asarray(arcs.stage_u)
    lower, upper = np.asarray(problem.lower), np.asarray(problem.upper)
    out = np.max(np.maximum(lower - u, u - upper) / np.asarray(scales.u))
    costates = np.asarray(arcs.stage)[..., n:]
    # Interval ends are where collocation has its full order and what the solution reports.
    h = np.concatenate([value.hamiltonian[:, :, -1].ravel(), shot.stages.start.hamiltonian])
    term = np.max(np.abs(costates * np.asarray(value.rate)[..., :n]))
    end = arcs.stage[-1, -1, -1]
    cost_t, cost_x = jax.grad(problem.end_cost, argnums=(0, 1))(arcs.times[-1], end[:n])
    target = -float(cost_t) if problem.is_time_free else float(np.mean(h))
    free = np.array([i not in problem.fixed_final for i in range(n)])
    transversality = np.max(
        np.abs(np.asarray((end[n:] - cost_x) / scales.y[n:]))[free], initial=0.0
    )
    z = _reintegrate(problem, extremal)
    z_end = np.asarray(end / scales.y)
    fixed = np.array(problem.fixed_final, dtype=int)
    goal = np.asarray(problem.final_state)[fixed] / np.asarray(scales.y)[fixed]
    state_miss = max(
        np.max(np.abs(z[fixed] - goal), initial=0.0), np.max(np.abs(z[:n] - z_end[:n]))
    )
    strongest = np.max(np.abs(costates))
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
                float(concave),
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
