"""Every necessary condition of the minimum principle, measured on a solution."""

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np

from jaxgrip.ocp.certificate._measurements import Measurements, measure
from jaxgrip.ocp.indirect import EndGradients, Extremal, control_rates, to_monomials
from jaxgrip.ocp.structure import COINCIDENT, SHORTEST, Kind, Plan, at_bound, at_rate_bound
from jaxgrip.solve.fusion import jit_plainly


class Check(eqx.Module):
    """One condition: its `value` passes when it is at most `tolerance`; `meaning` explains it.

    `shrinks` is True if shorter intervals lower the value, `keeps_bounds` if a motion that does not
    pass breaks a bound of the problem.
    """

    name: str = eqx.field(static=True)
    value: float
    tolerance: float
    meaning: str = eqx.field(static=True)
    shrinks: bool = eqx.field(static=True, default=False)
    keeps_bounds: bool = eqx.field(static=True, default=False)

    @property
    def passed(self) -> bool:
        """Whether the value is a number at most the tolerance."""
        return bool(self.value <= self.tolerance)


class Certificate(eqx.Module):
    """The checks of every necessary condition."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks that did not pass."""
        return tuple(check.name for check in self.checks if not check.passed)

    @property
    def is_within_bounds(self) -> bool:
        """Whether no bound of a state, a control, its rate or an end is broken."""
        return not any(check.keeps_bounds for check in self.checks if not check.passed)

    @property
    def is_too_coarse(self) -> bool:
        """Whether a check failed, and only checks that shorter intervals would lower."""
        return not self.passed and all(c.passed or c.shrinks for c in self.checks)

    def __str__(self) -> str:
        return "\n".join(
            f"{'ok  ' if c.passed else 'FAIL'} {c.name}: {c.value:.1e} (at most {c.tolerance:.0e})"
            for c in self.checks
        )


class _Condition(NamedTuple):
    tolerance: float
    meaning: str
    shrinks: bool = False
    keeps_bounds: bool = False


_CONDITIONS = {
    "end state, re-integrated": _Condition(
        1e-8,
        "Dopri8 at rtol 1e-12 with the reported controls, scaled by the largest states",
        shrinks=True,
    ),
    "costates, re-integrated": _Condition(
        1e-8,
        "adjoint equation on every arc, Dopri8 at rtol 1e-12, relative to the largest",
        shrinks=True,
    ),
    "boundary-value problem": _Condition(
        1e-10, "boundary, switching, continuity and collocation equations, scaled"
    ),
    "minimum principle on bang arcs": _Condition(
        1e-9, "switching function of the wrong sign, relative to its largest value"
    ),
    "stationarity on interior arcs": _Condition(
        1e-8, "switching function where the control is inside its bounds, relative"
    ),
    "Legendre-Clebsch": _Condition(
        1e-9, "negative eigenvalues of H_uu, or on singular arcs of its generalisation, scaled"
    ),
    "controls determined": _Condition(
        0.0, "number of controls on a bound whose switching function vanishes throughout"
    ),
    "control bounds": _Condition(
        1e-9, "controls outside their bounds, relative to the range", keeps_bounds=True
    ),
    "order of the switching times": _Condition(
        0.0, "by how much an arc falls short of a millionth of the final time"
    ),
    "Hamiltonian": _Condition(
        1e-10,
        "deviation from its constant value, relative to the largest term of costate . f",
        shrinks=True,
    ),
    "transversality": _Condition(
        1e-9, "costates at free components of the initial and final state, scaled"
    ),
    "final time bounds": _Condition(
        1e-12, "final time outside its bounds, relative", keeps_bounds=True
    ),
    "initial state": _Condition(
        1e-10,
        "fixed components off their values, free ones outside their bounds, scaled",
        keeps_bounds=True,
    ),
    "constraints": _Condition(
        1e-9,
        "values of constraints above zero, or off zero where they are active, relative",
        keeps_bounds=True,
    ),
    "sign of the multipliers": _Condition(
        1e-9, "negative multipliers of active constraints, scaled"
    ),
    "decrease of the multipliers": _Condition(
        1e-9, "growth of the multiplier of a constraint on states along an arc, scaled"
    ),
    "pressure of the constraints": _Condition(
        1e-7,
        "negative multiplier of the constraint itself, of order two and three, on an arc and at "
        "its end",
        shrinks=True,
    ),
    "jumps of the costate": _Condition(
        1e-8, "jump parameters below the least that the multiplier allows, scaled"
    ),
    "control rates": _Condition(
        1e-7, "rates of controls outside their bounds, relative to the range", keeps_bounds=True
    ),
    "minimum principle on rate arcs": _Condition(
        1e-9, "costate of a limited control of the wrong sign, scaled"
    ),
}

_measure = jit_plainly(measure)
compile_ahead = _measure.begin


def _worst(values) -> float:
    """Largest value, at least zero; NaN, which passes no tolerance, if there is one."""
    return float(np.max(values, initial=0.0))


def certify(extremal: Extremal, measured: Measurements | None = None) -> Certificate:
    """Measure every necessary condition on a solution of the shooting.

    **Arguments:** `extremal`; `measured`, the result of [`measure`][] for it, if already known.

    **Returns:** a [`Certificate`][].

    Source: Schanzer 2007, sections 5.2, 5.3 and 6.2.3, pp. 62-69, 91-95.
    """
    measured = measured or _measure(extremal.bvp, extremal.shot.arcs)
    extremal, measured = jax.tree.map(
        lambda v: np.asarray(v) if isinstance(v, jax.Array) else v, (extremal, measured)
    )
    problem = extremal.bvp.problem
    values = _minimum_principle(extremal, measured.gradients) | _ends(extremal, measured)
    if problem.n_constraints:
        values |= _constraints(extremal, measured.violation)
    if problem.limited:
        values |= _rates(extremal)
    return Certificate(
        tuple(
            Check(name, _worst(values[name]), *condition)
            for name, condition in _CONDITIONS.items()
            if name in values
        )
    )


def _minimum_principle(extremal: Extremal, gradients: EndGradients) -> dict:
    """Conditions along the motion, except for those on constraints and rates."""
    bvp, shot = extremal
    problem, plan, scales, n, m = bvp.problem, bvp.plan, bvp.scales, bvp.n, bvp.m
    arcs, value, kinds = shot.arcs, shot.stages.value, plan.kinds[:, None, None]
    is_bang = at_bound(kinds)
    switching = value.switching / scales.switching
    # H_uu of the controls inside their bounds; the others are masked by the identity.
    is_regular = np.broadcast_to(kinds == Kind.INTERIOR, switching.shape)
    both = is_regular[..., :, None] & is_regular[..., None, :]
    h_uu = np.where(both, shot.stages.h_uu, np.eye(m))
    curvatures = np.linalg.eigvalsh(0.5 * (h_uu + np.swapaxes(h_uu, -1, -2)))
    u = arcs.stage_v[..., :m]
    # All costates vanish where the constraints cost nothing; then the running cost is the measure.
    term = np.max(np.abs(arcs.stage[..., n : 2 * n] * value.rate[..., :n]))
    term = term if term > 0.0 else max(np.max(np.abs(shot.stages.cost)), 1.0)
    # A control that is always at a bound, although its switching function is zero, is arbitrary.
    strength = np.max(np.abs(switching), axis=(0, 1, 2)) * (scales.switching * scales.v[:m])
    # At interval ends collocation has its full order; these are what the solution reports.
    h = np.concatenate([value.hamiltonian[:, :, -1].ravel(), shot.stages.start.hamiltonian])
    drift = np.abs(h - np.mean(h))
    if problem.is_time_free:
        excess = h + float(gradients.time)
        kind = plan.ends[0]
        # At a lower bound of the time, less time must be better; at an upper bound, more.
        at_end = np.maximum(float(kind) * np.mean(excess), 0.0)
        drift = np.abs(excess) if kind == Kind.INTERIOR else np.append(drift, at_end)
    lengths = np.diff(arcs.times, prepend=0.0) / arcs.times[-1]
    return {
        "boundary-value problem": shot.residual,
        "minimum principle on bang arcs": np.where(is_bang, kinds * switching, 0.0),
        "stationarity on interior arcs": np.abs(
            np.where(is_bang | at_rate_bound(kinds), 0.0, switching)
        ),
        "Legendre-Clebsch": np.append(
            -curvatures, np.where(kinds == Kind.SINGULAR, -shot.stages.kelley, 0.0)
        ),
        "controls determined": np.sum(np.all(is_bang, axis=(0, 1, 2)) & (strength < 1e-9 * term)),
        "control bounds": np.maximum(problem.lower - u, u - problem.upper) / scales.v[:m],
        "order of the switching times": np.append(
            SHORTEST - _segment_lengths(plan, lengths), -COINCIDENT - lengths
        ),
        "Hamiltonian": drift / term,
    }


def _segment_lengths(plan: Plan, lengths: np.ndarray) -> np.ndarray:
    """Lengths of the segments of all controls and constraints, from those of the arcs."""
    rows = np.concatenate([plan.kinds, plan.active], axis=1).T
    return np.concatenate(
        [np.add.reduceat(lengths, [0, *(np.flatnonzero(np.diff(row)) + 1)]) for row in rows]
    )


def _ends(extremal: Extremal, measured: Measurements) -> dict:
    """Conditions at both ends, and the motion integrated anew."""
    (bvp, shot), problem = extremal, extremal.bvp.problem
    n, y_size, gradients = bvp.n, bvp.scales.y, measured.gradients
    time, (earliest, latest) = shot.arcs.times[-1], problem.time_bounds
    start, kinds = shot.arcs.start[0, :n], bvp.plan.ends[1:]
    is_fixed, is_fixed_end = problem.is_fixed_initial, problem.is_fixed_final
    # At a bound only the wrong sign of the costate is an error.
    by_start, by_end = gradients.start / y_size[n : 2 * n], gradients.end / y_size[n : 2 * n]
    by_start = np.where(kinds == Kind.INTERIOR, np.abs(by_start), np.maximum(kinds * by_start, 0.0))
    outside = np.maximum(problem.start_lower - start, start - problem.start_upper)
    off = np.where(is_fixed, np.abs(start - problem.initial_state), outside)
    return {
        "end state, re-integrated": np.concatenate(
            [
                np.abs(measured.x_end - problem.final_state / y_size[:n])[is_fixed_end],
                np.abs(measured.boundary),
                np.abs(measured.x_end - (shot.arcs.stage[-1, -1, -1] / y_size)[:n]),
            ]
        ),
        "costates, re-integrated": measured.costate_gap,
        "transversality": np.append(by_start[~is_fixed], np.abs(by_end[~is_fixed_end])),
        "final time bounds": np.maximum(earliest - time, time - latest) / time,
        "initial state": off / y_size[:n],
    }


def _constraints(extremal: Extremal, violation: np.ndarray) -> dict:
    """Conditions on constraints of states and controls."""
    (bvp, shot), plan, scales = extremal, extremal.bvp.plan, extremal.bvp.scales
    multiplier = shot.arcs.stage_v[..., bvp.m :] / scales.v[bvp.m :]
    jumps, rows = shot.arcs.jump, plan.jump_constraint
    growth, pressure, short = [0.0], [0.0], [0.0]
    for row, order in enumerate(plan.constraints.orders):
        changes = np.diff(plan.active[:, row].astype(int), prepend=0, append=0)
        for first, last in zip(
            np.flatnonzero(changes == 1), np.flatnonzero(changes == -1), strict=True
        ):
            if order > 0:
                piece = multiplier[first:last, ..., row].reshape(-1)
                growth.append(np.max(np.diff(piece), initial=0.0))
            if order > 1:
                slopes = _multiplier_slopes(extremal, row, int(first), int(last))
                pressure.append(np.max(np.diff(slopes[-1]), initial=0.0))
                if last < len(plan.active):
                    pressure += [-slopes[-1, -1], *np.abs(slopes[1:-1, -1])]
                if first > 0:
                    lost = jumps[first - 1, :order] / scales.jump[row, :order]
                    gap = slopes[::-1, 0] - lost
                    short += [gap[0], *np.abs(gap[1:-1])]
    size = scales.hamiltonian * scales.time / scales.constraint
    first = jumps[:, 0] / size[rows] if jumps.shape[1] else np.zeros(1)
    return {
        "constraints": violation,
        "sign of the multipliers": -multiplier,
        "decrease of the multipliers": growth,
        "pressure of the constraints": pressure,
        "jumps of the costate": np.append(-first, short),
    }


def _multiplier_slopes(extremal: Extremal, row: int, first: int, last: int) -> np.ndarray:
    """Multiplier of a constraint of order p on the arcs from `first` to before `last`, minus its
    slope, its curvature and so on, `(p, K)`, at the start and at the ends of intervals; scaled.

    The growth of the last one backwards in time is the multiplier of the constraint itself.
    """
    bvp, arcs = extremal.bvp, extremal.shot.arcs
    along = arcs.stage_v[first:last, ..., bvp.m + row]
    k, s = along.shape[1:]
    monomials = along.reshape(-1, s) @ to_monomials(s).T
    h = np.repeat(np.asarray(arcs.interval_lengths)[first:last], k)
    order = bvp.plan.constraints.orders[row]
    out = []
    for power, unit in enumerate(bvp.scales.jump[row, :order][::-1]):
        slope = np.polynomial.polynomial.polyder(monomials, power, axis=1)
        ends = np.append(slope[0, 0] / h[0] ** power, slope.sum(axis=1) / h**power)
        out.append((-1.0) ** power * ends / unit)
    return np.array(out).reshape(order, -1)


def _rates(extremal: Extremal) -> dict:
    """Conditions on the rates of controls."""
    (bvp, shot), problem = extremal, extremal.bvp.problem
    rate = control_rates(shot.arcs, bvp.m)
    excess = np.maximum(problem.rate_lower - rate, rate - problem.rate_upper)
    costate = bvp.rate_costates(shot.arcs.stage / bvp.scales.y)
    kinds = bvp.plan.kinds[:, None, None]
    sign = np.where(kinds == Kind.RISING, 1.0, np.where(kinds == Kind.FALLING, -1.0, 0.0))
    return {
        "control rates": excess / problem.rate_span,
        "minimum principle on rate arcs": sign * costate,
    }
