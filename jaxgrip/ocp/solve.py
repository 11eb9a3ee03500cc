"""From a problem statement to a certified solution."""

import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxgrip.ocp.certificate import Extremal, certify
from jaxgrip.ocp.problem import Problem, is_concrete
from jaxgrip.ocp.results import RESULTS, SolveError
from jaxgrip.ocp.shooting import (
    INTERIOR,
    LOWER,
    SINGULAR,
    UPPER,
    ArcPlan,
    Arcs,
    Conditions,
    Scales,
    Shooting,
    ShootingResult,
    Stages,
    evaluate_stages,
    interval_starts,
    newton_step,
    radau,
    residuals,
    solve_shooting,
)
from jaxgrip.ocp.solution import Solution, Structure
from jaxgrip.ocp.structure import (
    Layout,
    Profile,
    bracket_singular,
    collect_profiles,
    count_arcs,
    lay_out,
    mend_profile,
    read_profile,
)
from jaxgrip.ocp.transcription import (
    Transcribed,
    Transcription,
    bent_line,
    solve_transcription,
    straight_line,
)


class Solver(eqx.Module):
    """How [`solve`][] works: a transcription finds the structure, multiple shooting the solution.

    **Arguments:** `transcription`, `shooting`: their configurations; `starts`: number of guesses
    that are transcribed, the straight line and bent ones, of which the best is kept, since a motion
    may have several local optima; `arcs`: arcs of the compiled shooting code, doubled as far as
    `max_arcs` where a structure has more; `max_rounds`: how often the structure may be mended.
    """

    transcription: Transcription = Transcription()
    shooting: Shooting = Shooting()
    starts: int = 4
    arcs: int = 12
    max_arcs: int = 96
    max_rounds: int = 15


# Fusing as the CPU compiler does by default costs it minutes on programs of this kind.
_COMPILER = {"xla_cpu_use_fusion_emitters": False}
_transcribe = eqx.filter_jit(solve_transcription, compiler_options=_COMPILER)
_shoot = eqx.filter_jit(solve_shooting, compiler_options=_COMPILER)


_expand_stages = eqx.filter_jit(evaluate_stages, compiler_options=_COMPILER)


class _Linearised(NamedTuple):
    """An extremal with the Jacobians of its conditions."""

    plan: ArcPlan
    arcs: Arcs
    scales: Scales
    singular: bool
    value: Conditions
    jacobian: Conditions


class _Course(NamedTuple):
    """A trajectory to start the shooting from, on increasing times `t`."""

    t: np.ndarray
    y: np.ndarray
    t_u: np.ndarray
    u: np.ndarray


def _interpolate(t, grid, rows):
    return np.stack([np.interp(t, grid, column) for column in rows.T], axis=-1)


def _stage_times(times: np.ndarray, shooting: Shooting) -> np.ndarray:
    """Times `(arcs, intervals, s)` of the stages [s]."""
    k = shooting.intervals
    nodes, _ = radau(shooting.stages)
    starts = np.concatenate([[0.0], times[:-1]])
    h = (times - starts) / k
    return starts[:, None, None] + h[:, None, None] * (np.arange(k)[:, None] + nodes)


def _start_arcs(problem: Problem, layout: Layout, course: _Course, shooting: Shooting) -> Arcs:
    """Unknowns of the shooting, interpolated from a trajectory."""
    t = _stage_times(layout.times, shooting)
    kinds = layout.plan.kinds[:, None, None]
    lower, upper = np.asarray(problem.lower), np.asarray(problem.upper)
    inside = _interpolate(t, course.t_u, course.u)
    return Arcs(
        course.y[0],
        _interpolate(t, course.t, course.y),
        np.where(kinds == UPPER, upper, np.where(kinds == LOWER, lower, inside)),
        layout.times,
    )


def _size(values: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Largest magnitude of each column, floored where a column is all but zero in its unit."""
    largest = np.max(np.abs(values), axis=0)
    floor = 1e-6 * np.max(largest * unit) / unit
    return np.where(largest > floor, largest, np.where(floor > 0.0, floor, 1.0))


def _shooting_scales(problem: Problem, found: Transcribed) -> Scales:
    state = np.max(np.abs(found.x), axis=0)
    largest = np.max(state)
    state = np.where(state > 1e-9 * largest, state, largest if largest > 0.0 else 1.0)
    span = np.asarray(problem.upper - problem.lower)
    span = np.where(np.isfinite(span), span, np.maximum(np.max(np.abs(found.u), axis=0), 1e-3))
    costate = _size(found.costate, state)
    # Inside its bounds a control has no switching function but rounding to measure.
    least = 1e-3 * np.abs(found.objective) / (found.final_time * span)
    return jax.tree.map(
        jnp.asarray,
        Scales(
            np.concatenate([state, costate]),
            span,
            found.final_time,
            np.maximum(_size(found.switching_function, span), least),
            np.max(costate * state) / found.final_time,
        ),
    )


def _position(problem: Problem, u: np.ndarray, span: np.ndarray) -> np.ndarray:
    """Controls mapped to [-1, 1] between their bounds; towards 0 where there is no bound."""
    lower, upper = np.asarray(problem.lower), np.asarray(problem.upper)
    above = np.where(np.isfinite(lower), 2.0 * (u - lower) / span - 1.0, np.inf)
    below = np.where(np.isfinite(upper), 1.0 - 2.0 * (upper - u) / span, -np.inf)
    two_sided = np.isfinite(lower) & np.isfinite(upper)
    return np.where(two_sided, above, np.where(above < 0.0, above, np.maximum(below, 0.0)))


class _Output(NamedTuple):
    """Dense output: each arc's start and interval ends, axes `(arcs, 1 + intervals)` first."""

    objective: jax.Array
    times: jax.Array
    t: jax.Array
    y: jax.Array
    y_rate: jax.Array
    u: jax.Array
    switching: jax.Array
    hamiltonian: jax.Array


def _assemble(problem: Problem, arcs: Arcs, stages: Stages) -> _Output:
    k, s = arcs.stage.shape[1:3]
    _, a = radau(s)
    begins = jnp.concatenate([jnp.zeros(1), arcs.times[:-1]])
    h = (arcs.times - begins) / k

    def rows(start, values):
        return jnp.concatenate([start[:, None], values[:, :, -1]], axis=1)

    value, start = stages.value, stages.start
    cost = jnp.einsum("a,s,aks->", h, jnp.asarray(a[-1]), stages.cost)
    return _Output(
        cost + problem.end_cost(arcs.times[-1], arcs.stage[-1, -1, -1, : problem.n]),
        arcs.times,
        # An arc ends where the next begins to the last digit, so that a switch stands twice.
        jnp.append(
            begins[:, None] + h[:, None] * jnp.arange(1.0 * k)[None], arcs.times[:, None], axis=1
        ),
        rows(interval_starts(arcs)[:, 0], arcs.stage),
        rows(start.rate, value.rate),
        rows(stages.start_u, arcs.stage_u),
        rows(start.switching, value.switching),
        rows(start.hamiltonian, value.hamiltonian),
    )


def _mend(
    problem: Problem,
    profiles: list[Profile],
    shot: ShootingResult,
    solver: Solver,
    scales: Scales,
    inside_kinds: list[int | None],
) -> list[Profile]:
    """Structure with every breach of the minimum principle written in."""
    m = problem.m
    t = _stage_times(np.asarray(shot.arcs.times), solver.shooting).ravel()
    switching = np.asarray(shot.stages.value.switching).reshape(-1, m)
    switching = switching / np.asarray(scales.switching)
    u = np.asarray(shot.arcs.stage_u).reshape(-1, m)
    position = _position(problem, u, np.asarray(scales.u))
    return [
        mend_profile(profile, t, switching[:, j], position[:, j], 1e-8, inside_kinds[j])
        for j, profile in enumerate(profiles)
    ]


def _kinds(profiles: list[Profile]) -> list[list[int]]:
    return [[segment.kind for segment in profile] for profile in profiles]


def _find_extremal(
    problem: Problem, solver: Solver, found: Transcribed, stats: dict
) -> tuple[Extremal | None, RESULTS]:
    """Read the structure off the transcription, shoot, mend until nothing is wrong.

    Where a stretch inside the bounds turns out not to be a singular arc, it is read once more as a
    blurred switch.
    """
    scales = _shooting_scales(problem, found)
    span = np.asarray(scales.u)
    grid = np.linspace(0.0, float(found.final_time), len(found.x))
    course = _Course(
        grid,
        np.concatenate([found.x, found.costate], axis=1),
        0.5 * (grid[1:] + grid[:-1]),
        found.u,
    )
    bent = np.max(np.abs(found.curvature), axis=0) * span > 1e-6 * np.asarray(scales.switching)
    position = _position(problem, found.u, span)
    lean = np.mean(position, axis=0)
    # A control with a strictly convex Hamiltonian may lie close to a bound without being on it:
    # there the switching function outweighs the distance only on the bound.
    strength = np.abs(found.switching_function) * span * found.final_time
    slack = 0.5 * (1.0 - np.abs(position))
    loose = bent & (strength < slack * np.abs(found.objective))
    position = np.where(loose, np.clip(position, -0.5, 0.5), position)
    inside_kinds = [INTERIOR if is_bent else None for is_bent in bent]
    time_bound = np.nan
    if problem.is_time_free:
        # Where a bound holds the time, the transcription ends within its barrier of the bound.
        for bound in (float(problem.final_time.lower), float(problem.final_time.upper)):
            if abs(found.final_time - bound) < 1e-4 * found.final_time:
                time_bound = bound
    for longest_switch in (2, len(position)):
        profiles = [
            read_profile(
                position[:, j], grid[-1], INTERIOR if bent[j] else SINGULAR, longest_switch
            )
            for j in range(problem.m)
        ]
        extremal, result = _shoot_and_mend(
            problem, solver, profiles, course, scales, lean, inside_kinds, time_bound, stats
        )
        if extremal is not None or not _has_singular(profiles):
            break
    # A control that moves nothing of consequence is held by the barrier alone.
    pull = np.max(np.abs(found.switching_function), axis=0) * span * found.final_time
    if extremal is None and np.any(pull < 1e-4 * abs(found.objective)):
        result = RESULTS.undetermined_control
    return extremal, result


def _has_singular(profiles: list[Profile]) -> bool:
    return any(segment.kind == SINGULAR for profile in profiles for segment in profile)


def _shoot_and_mend(
    problem: Problem,
    solver: Solver,
    profiles: list[Profile],
    course: _Course,
    scales: Scales,
    lean: np.ndarray,
    inside_kinds: list[int | None],
    time_bound: float,
    stats: dict,
) -> tuple[Extremal | None, RESULTS]:
    shooting = jax.tree.map(jnp.asarray, solver.shooting)
    for _ in range(solver.max_rounds):
        profiles = [
            bracket_singular(profile, side) for profile, side in zip(profiles, lean, strict=True)
        ]
        n_arcs = solver.arcs
        while n_arcs < count_arcs(profiles):
            n_arcs *= 2
        if n_arcs > solver.max_arcs:
            return None, RESULTS.too_many_arcs
        layout = lay_out(profiles, n_arcs, time_bound)
        start = _start_arcs(problem, layout, course, solver.shooting)
        plan, start = jax.tree.map(jnp.asarray, (layout.plan, start))
        singular = _has_singular(profiles)
        shot = _shoot(problem, shooting, plan, start, scales, singular)
        stats["rounds"] += 1
        stats["shooting_steps"] += int(shot.steps)
        if not bool(shot.converged):
            return None, RESULTS.shooting_failed
        times = np.asarray(shot.arcs.times)
        new = collect_profiles(profiles, layout, times)
        if np.all(np.diff(times, prepend=0.0) > 0.0):
            new = _mend(problem, new, shot, solver, scales, inside_kinds)
            if _kinds(new) == _kinds(profiles):
                return Extremal(plan, shot, scales, singular, layout.real), RESULTS.successful
        profiles = new
        course = _course(_assemble(problem, shot.arcs, shot.stages))
    return None, RESULTS.structure_failed


def _course(out: _Output) -> _Course:
    t = np.asarray(out.t).ravel()
    order = np.argsort(t, kind="stable")
    rows = (np.asarray(v).reshape(len(t), -1)[order] for v in (out.y, out.u))
    y, u = rows
    return _Course(t[order], y, t[order], u)


@eqx.filter_jit
def _tangent(problem: Problem, tangent: Problem, extremal: _Linearised):
    """Change of the dense output when the problem's numbers change; linear in `tangent`.

    The implicit function theorem on the boundary-value problem: J dw = -(dR/dp) dp.
    """
    plan, arcs, scales, singular, value, jacobian = extremal
    numbers, rest = eqx.partition(problem, eqx.is_inexact_array)

    def conditions(numbers, arcs):
        problem = eqx.combine(numbers, rest)
        stages, _ = evaluate_stages(problem, plan, arcs, scales, singular, with_jacobian=False)
        residual = residuals(problem, plan, arcs, scales, stages.value)
        return residual, _assemble(problem, arcs, stages)

    change, direct = jax.jvp(lambda p: conditions(p, arcs), (numbers,), (tangent,))[1]
    rhs = jax.tree.map(jnp.negative, change)
    step = newton_step(problem, plan, arcs, scales, value, jacobian, rhs)
    _, through = jax.jvp(lambda w: conditions(numbers, w), (arcs,), (step,))[1]
    return jax.tree.map(jnp.add, direct, through)


def _failure(result: RESULTS, last: Transcribed, stats: dict) -> Solution:
    """A solution object that says why there is none, with the transcription's last states."""
    x, u = jnp.asarray(last.x), jnp.asarray(last.u)
    k, m = len(x), u.shape[1]
    return Solution(
        final_time=jnp.asarray(last.final_time),
        objective=jnp.array(jnp.nan),
        switching_times=jnp.zeros(0),
        structure=Structure(np.zeros((0, m), dtype=int), np.zeros(0, dtype=int)),
        t=jnp.linspace(0.0, float(last.final_time), k),
        x=x,
        x_rate=jnp.full(x.shape, jnp.nan),
        u=jnp.concatenate([u, u[-1:]]),
        costate=jnp.full(x.shape, jnp.nan),
        switching_function=jnp.full((k, m), jnp.nan),
        hamiltonian=jnp.full(k, jnp.nan),
        certificate=None,
        result=result,
        stats=stats,
    )


def _solution(problem: Problem, out: _Output, extremal: Extremal, certificate, stats) -> Solution:
    n = problem.n
    real = extremal.real
    cuts = np.flatnonzero(real)
    # Where an arc was only subdivided, its start repeats the point before.
    keep = np.ones(out.t.shape, dtype=bool)
    keep[1:, 0] = real
    keep = np.flatnonzero(keep)

    def rows(v):
        return v.reshape(v.shape[0] * v.shape[1], *v.shape[2:])[keep]

    y, y_rate = rows(out.y), rows(out.y_rate)
    result = RESULTS.successful if certificate.passed else RESULTS.not_certified
    return Solution(
        final_time=out.times[-1],
        objective=out.objective,
        switching_times=out.times[cuts],
        structure=Structure(
            np.asarray(extremal.plan.kinds)[np.append(cuts, len(real))],
            np.asarray(extremal.plan.control)[cuts],
        ),
        t=rows(out.t),
        x=y[:, :n],
        x_rate=y_rate[:, :n],
        u=rows(out.u),
        costate=y[:, n:],
        switching_function=rows(out.switching),
        hamiltonian=rows(out.hamiltonian),
        certificate=certificate,
        result=result,
        stats=stats,
    )


def _timed(stats: dict, key: str, function, *args):
    began = time.perf_counter()
    out = function(*args)
    stats[f"{key}_s"] += time.perf_counter() - began
    return out


def _candidates(problem: Problem, solver: Solver, guesses, stats: dict):
    """Transcriptions from several guesses: the converged ones, best first; all; what went wrong."""
    every, result = [], RESULTS.unreachable
    # As arrays, so that another tolerance does not compile anew.
    numbers = jax.tree.map(jnp.asarray, solver.transcription)
    for guess in guesses:
        one = _timed(
            stats,
            "transcription",
            lambda guess=guess: jax.tree.map(np.asarray, _transcribe(problem, numbers, guess)),
        )
        stats["transcriptions"] += 1
        stats["transcription_steps"] += int(one.steps)
        every.append(one)
        if not np.isfinite(one.infeasibility):
            result = RESULTS.not_finite
        elif not one.converged and one.infeasibility < 1e-3:
            result = RESULTS.transcription_failed
    # Guesses that end in the same motion agree to the accuracy of the transcription only.
    found = [one for one in every if one.converged]
    found.sort(key=lambda one: float(f"{one.objective:.5g}"))
    return found, every, result


def _guess_rounds(problem: Problem, solver: Solver):
    """Guesses to try together; a further round only where the one before led nowhere."""
    intervals = solver.transcription.intervals
    straight = straight_line(problem, intervals)
    yield [straight, *(bent_line(problem, intervals, seed) for seed in range(1, solver.starts))]
    if problem.is_time_free:
        for factor in (2.0, 0.5, 4.0):
            final_time = straight.final_time * factor
            if problem.final_time.lower < final_time < problem.final_time.upper:
                yield [straight._replace(final_time=final_time)]


def _solve(problem: Problem, solver: Solver) -> tuple[Solution, Extremal | None]:
    if not is_concrete(problem):
        raise TypeError(
            "ocp.solve searches outside jit and vmap and differentiates once: call it with "
            "concrete numbers, or under a single jax.grad, jacfwd or jacrev."
        )
    problem.check()
    counts = ("transcriptions", "transcription_steps", "rounds", "shooting_steps")
    stats = dict.fromkeys(counts, 0)
    stats |= dict.fromkeys(("transcription_s", "shooting_s", "certificate_s"), 0.0)
    failure, uncertified = None, None
    for guesses in _guess_rounds(problem, solver):
        found, every, result = _candidates(problem, solver, guesses, stats)
        for one in found:
            extremal, result = _timed(
                stats, "shooting", _find_extremal, problem, solver, one, stats
            )
            if extremal is None:
                continue
            certificate = _timed(stats, "certificate", certify, problem, extremal)
            out = _assemble(problem, extremal.shot.arcs, extremal.shot.stages)
            solution = _solution(problem, out, extremal, certificate, stats)
            if certificate.passed:
                return solution, extremal
            uncertified = uncertified or (solution, extremal)
        failure = failure or (result, every[0])
    return uncertified or (_failure(*failure, stats), None)


def solve(problem: Problem, *, solver: Solver | None = None, throw: bool = True) -> Solution:
    """Solve an optimal control problem and certify the solution.

    Nothing but the problem is needed: a direct transcription started from a straight line shows
    which control sits on which bound, multiple shooting with exact switching conditions computes
    the extremal, and every necessary condition is then measured. The search runs outside `jit`;
    `jax.grad` and its kin go through `solve` by the implicit function theorem.

    **Arguments:** `problem`; `solver`, default [`Solver`][]`()`; `throw`, whether a failure or an
    uncertified solution raises.

    **Returns:** a [`Solution`][].

    **Raises:** [`SolveError`][] with the sentence of its `result` when `throw`.

    Source: specs/000b, sections 1 and 2.
    """
    solver = Solver() if solver is None else solver
    arrays, static = eqx.partition(problem, eqx.is_inexact_array)
    kept = {}

    @jax.custom_jvp
    def outputs(arrays):
        solution, extremal = _solve(eqx.combine(arrays, static), solver)
        kept["solution"], kept["extremal"] = solution, extremal
        if extremal is None:
            return None
        return _assemble(problem, extremal.shot.arcs, extremal.shot.stages)

    @outputs.defjvp
    def outputs_jvp(primals, tangents):
        (arrays,), (change,) = primals, tangents
        out = outputs(arrays)
        extremal = kept["extremal"]
        if extremal is None:
            return out, None
        problem = eqx.combine(arrays, static)
        where = (extremal.plan, extremal.shot.arcs, extremal.scales, extremal.singular)
        stages, jacobian = _expand_stages(problem, *where)
        change = _tangent(problem, change, _Linearised(*where, stages.value, jacobian))
        return out, change

    out = outputs(arrays)
    solution, extremal = kept["solution"], kept["extremal"]
    if out is not None:
        solution = _solution(problem, out, extremal, solution.certificate, solution.stats)
    if throw and solution.result != RESULTS.successful:
        message = RESULTS[solution.result]
        if solution.certificate is not None:
            failed = [c.name for c in solution.certificate.checks if not c.passed]
            message = f"{message} Failed: {', '.join(failed)}."
        raise SolveError(message, solution)
    return solution
