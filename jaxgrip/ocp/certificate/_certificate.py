"""Every necessary condition of the minimum principle, measured on a solution."""

from typing import NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float

from jaxgrip.ocp.hamiltonian import constraint_sizes, hamiltonian
from jaxgrip.ocp.indirect import (
    Arcs,
    EndGradients,
    Extremal,
    control_rates,
    end_gradients,
    ends_of,
    interval_lengths,
    rate_costates,
    sizes_of,
    to_monomials,
)
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure import (
    COINCIDENT,
    FALLING,
    INTERIOR,
    LOWER,
    RISING,
    SHORTEST,
    SINGULAR,
    UPPER,
    ArcPlan,
    Features,
    Scales,
)
from jaxgrip.solve.fusion import jit_plainly


class Check(eqx.Module):
    """One condition: its `value` passes when it is at most `tolerance`; `meaning` explains it.

    `shrinks` is True where the value goes to zero with the intervals, `keeps_bounds` where a motion
    that does not pass breaks a bound of the problem.
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
        """Whether something failed, and only what shorter intervals would lower."""
        return not self.passed and all(c.passed or c.shrinks for c in self.checks)

    def __str__(self) -> str:
        return "\n".join(
            f"{'ok  ' if c.passed else 'FAIL'} {c.name}: {c.value:.1e} (at most {c.tolerance:.0e})"
            for c in self.checks
        )


class Measured(NamedTuple):
    """What only the problem's functions tell about an extremal.

    `x_end` `(n,)`, the scaled state at the end, and `costate_gap` `(n,)`, the largest scaled gap of
    each costate at an arc's end, both re-integrated; `boundary` `(b,)`, scaled errors of the
    boundary conditions there; `gradients` at the ends, without the Hamiltonian; `violation` `(c,)`,
    the largest value of each of the problem's constraints, or magnitude where it is active,
    relative to what states and controls can change in it.
    """

    x_end: Float[ArrayLike, " n"]
    costate_gap: Float[ArrayLike, " n"]
    boundary: Float[ArrayLike, " b"]
    gradients: EndGradients
    violation: Float[ArrayLike, " c"]


def measure(
    problem: Problem, plan: ArcPlan, arcs: Arcs, scales: Scales, features: Features
) -> Measured:
    """Evaluate the problem's functions for the certificate of converged arcs; pure JAX."""
    n, m = problem.n, problem.m
    x_end, costate_gap = _reintegrate(problem, arcs, scales, features)
    boundary = problem.boundary(arcs.start[0, :n], arcs.times[-1], scales.y[:n] * x_end)
    violation = jnp.zeros(0)
    if problem.n_constraints:
        x, u = arcs.stage[..., :n].reshape(-1, n), arcs.stage_v[..., :m].reshape(-1, m)
        size = constraint_sizes(problem, x, u, scales.y[:n], scales.v[:m])
        value = jax.vmap(problem.constraints)(x, u) / size[None]
        value = value.reshape(*arcs.stage.shape[:3], problem.n_constraints)
        holds = jnp.zeros((len(plan.active), problem.n_constraints), dtype=bool)
        rows = np.array([index for index, _ in features.active], dtype=int)
        holds = holds.at[:, rows].set(plan.active)[:, None, None]
        violation = jnp.max(jnp.where(holds, jnp.abs(value), value), axis=(0, 1, 2))
    return Measured(
        x_end,
        costate_gap,
        boundary / scales.boundary,
        end_gradients(problem, *ends_of(arcs), jnp.zeros(())),
        violation,
    )


def _reintegrate(problem: Problem, arcs: Arcs, scales: Scales, features: Features):
    """Integrate anew with Dormand and Prince's method of order eight and the reported controls.

    The states run on from the start; the costates, whose equation may be unstable forwards, start
    from the solution's on every arc.
    """
    n, m = problem.n, problem.m
    k, s = arcs.stage_v.shape[1:3]
    size = scales.y[: 2 * n]
    powers = np.arange(float(s))
    course = jnp.einsum("ij,akjv->akiv", jnp.asarray(to_monomials(s)), arcs.stage_v)

    def rate(t, z, args):
        h, course = args
        x, costate = jnp.split(z * size, 2)
        v = t**powers @ course
        by_x, by_costate = jax.grad(
            lambda x, costate: hamiltonian(problem, features.active, x, v[:m], costate, v[m:]),
            argnums=(0, 1),
        )(x, costate)
        return h * jnp.concatenate([by_costate, -by_x]) / size

    def interval(z, inputs):
        run = diffrax.diffeqsolve(
            diffrax.ODETerm(rate),
            diffrax.Dopri8(),
            t0=0.0,
            t1=1.0,
            dt0=0.5,
            y0=z,
            args=inputs,
            stepsize_controller=diffrax.PIDController(rtol=1e-12, atol=1e-13),
            adjoint=diffrax.ForwardMode(),
            throw=False,
        )
        succeeded = run.result == diffrax.RESULTS.successful
        return jnp.where(succeeded, run.ys[-1], jnp.nan), None

    def arc(x, inputs):
        start, end, h, course = inputs
        lengths = jnp.broadcast_to(h, (k,))
        z, _ = jax.lax.scan(interval, jnp.concatenate([x, start[n:]]), (lengths, course))
        return z[:n], jnp.abs(z[n:] - end[n:])

    starts, ends = arcs.start[:, : 2 * n] / size[None], arcs.stage[:, -1, -1, : 2 * n] / size[None]
    inputs = (starts, ends, interval_lengths(arcs), course)
    x, gaps = jax.lax.scan(arc, starts[0, :n], inputs)
    return x, jnp.max(gaps, axis=0)


_measure = jit_plainly(measure)


def _worst(*values) -> float:
    """Largest value, NaN where there is one, which no tolerance passes."""
    return float(np.max(np.concatenate([np.ravel(v) for v in values]), initial=0.0))


def certify(problem: Problem, extremal: Extremal, measured: Measured | None = None) -> Certificate:
    """Measure every necessary condition on a solution of the shooting.

    **Arguments:** `problem`; `extremal`, what the shooting found; `measured`, what [`measure`][]
    returns for it, where that is known already.

    **Returns:** a [`Certificate`][].

    Source: G. F. Schanzer, dissertation, TU München 2007, sections 5.2, 5.3 and 6.2.3.
    """
    plan, shot, scales = extremal.plan, extremal.shot, extremal.scales
    arcs, value = shot.arcs, shot.stages.value
    n, m = problem.n, problem.m
    times = np.asarray(arcs.times)
    starts = np.concatenate([[0.0], times[:-1]])
    kinds = np.asarray(plan.kinds)[:, None, None]
    bounded = (kinds == UPPER) | (kinds == LOWER)
    switching = np.asarray(value.switching) / np.asarray(scales.switching)
    wrong_sign = np.max(np.where(bounded, kinds * switching, 0.0), initial=0.0)
    moving = kinds >= FALLING
    inside = np.max(np.abs(np.where(bounded | moving, 0.0, switching)), initial=0.0)
    # H_uu of the controls inside their bounds; the others are masked by the identity.
    regular = np.broadcast_to(kinds == INTERIOR, switching.shape)
    both = regular[..., :, None] & regular[..., None, :]
    h_uu = np.where(both, np.asarray(shot.stages.h_uu), np.eye(problem.m))
    concave = _worst(
        -np.linalg.eigvalsh(0.5 * (h_uu + np.swapaxes(h_uu, -1, -2))),
        np.where(kinds == SINGULAR, -np.asarray(shot.stages.bend), 0.0),
    )
    u = np.asarray(arcs.stage_v)[..., :m]
    lower, upper = np.asarray(problem.lower), np.asarray(problem.upper)
    out = np.max(np.maximum(lower - u, u - upper) / np.asarray(scales.v)[:m])
    costates = np.asarray(arcs.stage)[..., n : 2 * n]
    # Interval ends are where collocation has its full order and what the solution reports.
    h = np.concatenate([value.hamiltonian[:, :, -1].ravel(), shot.stages.start.hamiltonian])
    largest = np.max(np.abs(costates * np.asarray(value.rate)[..., :n]))
    # All costates vanish where the constraints cost nothing; then the running cost is the measure.
    term = largest if largest > 0.0 else max(np.max(np.abs(shot.stages.cost)), 1.0)
    end = arcs.stage[-1, -1, -1]
    measured = jax.tree.map(
        np.asarray, measured or _measure(problem, plan, arcs, scales, extremal.features)
    )
    x_end, gradients = measured.x_end, measured.gradients
    # A control that is always on a bound, although its switching function is zero, is arbitrary.
    pull = np.max(np.abs(switching), axis=(0, 1, 2)) * np.asarray(scales.switching * scales.v[:m])
    loose = np.all(bounded, axis=(0, 1, 2)) & (pull < 1e-9 * term)
    time, (earliest, latest) = arcs.times[-1], problem.time_bounds
    time_violation = float(np.maximum(earliest - time, time - latest) / time)
    drift = h - np.mean(h)
    if problem.is_time_free:
        drift = h + float(gradients.time)
        if plan.ends.time != INTERIOR:
            # Less time would have to help where the bound is the lower one, more at the upper.
            drift = np.append(h - np.mean(h), float(plan.ends.time) * np.mean(drift))
            drift = np.where(np.arange(len(drift)) < len(h), np.abs(drift), np.maximum(drift, 0.0))
    fixed = np.array(problem.fixed_final, dtype=int)
    goal = np.asarray(problem.final_state / scales.y[:n])[fixed]
    lengths = (times - starts) / times[-1]
    segments = _segment_lengths(plan, lengths)
    conditional = ()
    if problem.n_constraints:
        conditional += _constraint_checks(problem, extremal, measured.violation)
    if problem.limited:
        conditional += _rate_checks(problem, extremal)
    return Certificate(
        (
            Check(
                "end state, re-integrated",
                _worst(
                    np.abs(x_end[fixed] - goal),
                    np.abs(measured.boundary),
                    np.abs(x_end - np.asarray(end / scales.y)[:n]),
                ),
                1e-8,
                "Dopri8 at rtol 1e-12 with the reported controls, scaled by the largest states",
                shrinks=True,
            ),
            Check(
                "costates, re-integrated",
                _worst(measured.costate_gap),
                1e-8,
                "adjoint equation on every arc, Dopri8 at rtol 1e-12, relative to the largest",
                shrinks=True,
            ),
            Check(
                "boundary-value problem",
                float(shot.residual),
                1e-10,
                "boundary, switching, continuity and collocation equations, scaled",
            ),
            Check(
                "minimum principle on bang arcs",
                _worst(wrong_sign),
                1e-9,
                "switching function of the wrong sign, relative to its largest value",
            ),
            Check(
                "stationarity on interior arcs",
                _worst(inside),
                1e-8,
                "switching function where the control is inside its bounds, relative",
            ),
            Check(
                "Legendre-Clebsch",
                concave,
                1e-9,
                "negative eigenvalues of H_uu, or on singular arcs of its generalisation, scaled",
            ),
            Check(
                "controls determined",
                float(np.sum(loose)),
                0.0,
                "number of controls on a bound whose switching function vanishes all along",
            ),
            Check(
                "control bounds",
                _worst(out),
                1e-9,
                "controls outside their bounds, relative to the range",
                keeps_bounds=True,
            ),
            Check(
                "order of the switching times",
                _worst(SHORTEST - segments, -COINCIDENT - lengths),
                0.0,
                "by how much an arc falls short of a millionth of the final time",
            ),
            Check(
                "Hamiltonian",
                _worst(np.abs(drift) / term),
                1e-10,
                "deviation from its constant value, relative to the largest term of costate . f",
                shrinks=True,
            ),
            Check(
                "transversality",
                _transversality(problem, extremal, gradients),
                1e-9,
                "costates at free components of the initial and final state, scaled",
            ),
            Check(
                "final time bounds",
                _worst(time_violation),
                1e-12,
                "final time outside its bounds, relative",
                keeps_bounds=True,
            ),
            Check(
                "initial state",
                _initial_error(problem, extremal),
                1e-10,
                "fixed components off their values, free ones outside their bounds, scaled",
                keeps_bounds=True,
            ),
            *conditional,
        )
    )


def _segment_lengths(plan: ArcPlan, lengths: np.ndarray) -> np.ndarray:
    """Lengths of what each control and constraint does without a break, in units of the arcs'."""
    rows = np.concatenate([np.asarray(plan.kinds), np.asarray(plan.active)], axis=1).T
    return np.concatenate(
        [np.add.reduceat(lengths, [0, *(np.flatnonzero(np.diff(row)) + 1)]) for row in rows]
    )


def _transversality(problem: Problem, extremal: Extremal, gradients: EndGradients) -> float:
    """Largest costate at a free component that nothing balances; at a bound only the wrong sign."""
    n, kinds = problem.n, np.asarray(extremal.plan.ends.start)
    size = np.asarray(extremal.scales.y[n : 2 * n])
    start, end = np.asarray(gradients.start) / size, np.asarray(gradients.end) / size
    start = np.where(kinds == INTERIOR, start, np.maximum(kinds * start, 0.0))
    return _worst(np.abs(start[~problem.is_fixed_initial]), np.abs(end[~problem.is_fixed_final]))


def _initial_error(problem: Problem, extremal: Extremal) -> float:
    n = problem.n
    start, size = np.asarray(extremal.shot.arcs.start[0, :n]), np.asarray(extremal.scales.y[:n])
    off = np.where(
        problem.is_fixed_initial,
        np.abs(start - problem.initial_state),
        np.maximum(problem.start_lower - start, start - problem.start_upper),
    )
    return _worst(off / size)


def _constraint_checks(
    problem: Problem, extremal: Extremal, violation: np.ndarray
) -> tuple[Check, ...]:
    """Conditions on constraints of states and controls."""
    m = problem.m
    plan, arcs, scales = extremal.plan, extremal.shot.arcs, extremal.scales
    active = extremal.features.active
    multiplier = np.asarray(arcs.stage_v)[..., m:] / np.asarray(scales.v)[m:]
    kinds = np.asarray(plan.active)
    order = np.array([order for _, order in active], dtype=int)
    jumps = np.asarray(arcs.jump)
    growth, pressure, short = [0.0], [0.0], [0.0]
    for row in range(len(active)):
        changes = np.diff(kinds[:, row].astype(int), prepend=0, append=0)
        for first, last in zip(
            np.flatnonzero(changes == 1), np.flatnonzero(changes == -1), strict=True
        ):
            piece = multiplier[first:last, ..., row].reshape(-1)
            if order[row] > 0:
                growth.append(np.max(np.diff(piece), initial=0.0))
            if order[row] > 1:
                pulls = _pulls(extremal, row, int(first), int(last))
                pressure.append(np.max(np.diff(pulls[-1]), initial=0.0))
                if last < len(kinds):
                    pressure += [-pulls[-1, -1], *np.abs(pulls[1:-1, -1])]
                if first > 0:
                    lost = jumps[first - 1, : order[row]] / _jump_units(extremal, row)
                    gap = pulls[::-1, 0] - lost
                    short += [gap[0], *np.abs(gap[1:-1])]
    rows = np.asarray(plan.jump_constraint)
    size = np.asarray(scales.hamiltonian * scales.time / scales.constraint)
    first = jumps[:, 0] / size[rows] if jumps.shape[1] and len(active) else np.zeros(1)
    return (
        Check(
            "constraints",
            _worst(violation),
            1e-9,
            "values of constraints above zero, or off zero where they are active, relative",
            keeps_bounds=True,
        ),
        Check(
            "sign of the multipliers",
            _worst(-multiplier),
            1e-9,
            "negative multipliers of active constraints, scaled",
        ),
        Check(
            "decrease of the multipliers",
            _worst(growth),
            1e-9,
            "growth of the multiplier of a constraint on states along an arc, scaled",
        ),
        Check(
            "pressure of the constraints",
            _worst(pressure),
            1e-7,
            "of constraints of order two and three on an arc and at its end, where it is negative",
            shrinks=True,
        ),
        Check(
            "jumps of the costate",
            _worst(-first, short),
            1e-8,
            "jump parameters below the least that the multiplier allows, scaled",
        ),
    )


def _pulls(extremal: Extremal, row: int, first: int, last: int) -> np.ndarray:
    """Multiplier of a constraint of order p on the arcs from `first` to before `last`, minus its
    slope, its curvature and so on, `(p, K)`, at the start and at the ends of intervals; scaled.

    The last rises backwards in time by how much the constraint itself presses.
    """
    arcs, features = extremal.shot.arcs, extremal.features
    order = features.active[row].order
    m = len(extremal.scales.switching)
    course = np.asarray(arcs.stage_v)[first:last, ..., m + row]
    shape = (last - first) * course.shape[1], course.shape[2]
    monomials = course.reshape(shape) @ to_monomials(course.shape[2]).T
    h = np.repeat(np.asarray(interval_lengths(arcs))[first:last], course.shape[1])
    out = []
    for k, unit in enumerate(_jump_units(extremal, row)[::-1]):
        slope = np.polynomial.polynomial.polyder(monomials, k, axis=1)
        ends = slope.sum(axis=1) / h**k
        out.append((-1.0) ** k * np.append(slope[0, 0] / h[0] ** k, ends) / unit)
    return np.array(out).reshape(order, -1)


def _jump_units(extremal: Extremal, row: int) -> np.ndarray:
    """Typical sizes of the jump parameters of a constraint, `(p,)`."""
    order = extremal.features.active[row].order
    return np.asarray(sizes_of(extremal.scales, extremal.features).jump)[row, :order]


def _rate_checks(problem: Problem, extremal: Extremal) -> tuple[Check, ...]:
    """Conditions on the rates of controls."""
    arcs, scales, kinds = extremal.shot.arcs, extremal.scales, np.asarray(extremal.plan.kinds)
    rate = np.asarray(control_rates(arcs, problem.m))
    lower, upper = np.asarray(problem.rate_lower), np.asarray(problem.rate_upper)
    excess = np.maximum(lower - rate, rate - upper) / np.asarray(problem.rate_span)
    stage = jnp.asarray(np.asarray(arcs.stage) / np.asarray(scales.y))
    costate = np.asarray(rate_costates(problem, extremal.features, stage))
    kinds = kinds[:, None, None]
    sign = np.where(kinds == RISING, 1.0, np.where(kinds == FALLING, -1.0, 0.0))
    return (
        Check(
            "control rates",
            _worst(excess),
            1e-7,
            "rates of controls outside their bounds, relative to the range",
            keeps_bounds=True,
        ),
        Check(
            "minimum principle on rate arcs",
            _worst(sign * costate),
            1e-9,
            "costate of a limited control of the wrong sign, scaled",
        ),
    )
