"""From a transcription to an extremal: read the structure, shoot, mend until nothing is wrong."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxgrip.ocp.certificate import Certificate, Extremal, certify
from jaxgrip.ocp.output import Output, assemble
from jaxgrip.ocp.problem import Problem
from jaxgrip.ocp.results import RESULTS
from jaxgrip.ocp.shooting import (
    INTERIOR,
    LOWER,
    SINGULAR,
    UPPER,
    Arcs,
    Scales,
    Shooting,
    ShootingResult,
    radau,
    solve_shooting,
)
from jaxgrip.ocp.solver import Solver
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
from jaxgrip.ocp.transcription import Transcribed

# Fusing as the CPU compiler does by default costs it minutes on programs of this kind.
COMPILER = {"xla_cpu_use_fusion_emitters": False}
_shoot = eqx.filter_jit(solve_shooting, compiler_options=COMPILER)


class Certified(NamedTuple):
    """An extremal and the measured necessary conditions."""

    extremal: Extremal
    certificate: Certificate


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


class _Reading(NamedTuple):
    """What a transcription tells beside its course.

    `scales` of the shooting; `lean` `(m,)`, the mean position of each control between its bounds;
    `inside_kinds`, for each control INTERIOR where its Hamiltonian is strictly convex, else None;
    `time_bound`, the bound on which the final time lies, NaN where it lies on none.
    """

    scales: Scales
    lean: np.ndarray
    inside_kinds: list[int | None]
    time_bound: float


def _mend(
    problem: Problem,
    profiles: list[Profile],
    shot: ShootingResult,
    solver: Solver,
    reading: _Reading,
) -> list[Profile]:
    """Structure with every breach of the minimum principle written in."""
    m = problem.m
    t = _stage_times(np.asarray(shot.arcs.times), solver.shooting).ravel()
    switching = np.asarray(shot.stages.value.switching).reshape(-1, m)
    switching = switching / np.asarray(reading.scales.switching)
    u = np.asarray(shot.arcs.stage_u).reshape(-1, m)
    position = _position(problem, u, np.asarray(reading.scales.u))
    return [
        mend_profile(profile, t, switching[:, j], position[:, j], 1e-8, reading.inside_kinds[j])
        for j, profile in enumerate(profiles)
    ]


def _kinds(profiles: list[Profile]) -> list[list[int]]:
    return [[segment.kind for segment in profile] for profile in profiles]


def _time_bound(problem: Problem, final_time: float) -> float:
    if problem.is_time_free:
        # Where a bound holds the time, the transcription ends within its barrier of the bound.
        for bound in (float(problem.final_time.lower), float(problem.final_time.upper)):
            if abs(final_time - bound) < 1e-4 * final_time:
                return bound
    return np.nan


def _has_singular(profiles: list[Profile]) -> bool:
    return any(segment.kind == SINGULAR for profile in profiles for segment in profile)


def _course(out: Output) -> _Course:
    t = np.asarray(out.t).ravel()
    order = np.argsort(t, kind="stable")
    y, u = (np.asarray(v).reshape(len(t), -1)[order] for v in (out.y, out.u))
    return _Course(t[order], y, t[order], u)


def _shoot_and_mend(
    problem: Problem,
    solver: Solver,
    profiles: list[Profile],
    course: _Course,
    reading: _Reading,
    stats: dict,
) -> tuple[Certified | None, RESULTS]:
    shooting = jax.tree.map(jnp.asarray, solver.shooting)
    n_arcs, uncertified = solver.arcs, None
    for _ in range(solver.max_rounds):
        profiles = [
            bracket_singular(profile, side)
            for profile, side in zip(profiles, reading.lean, strict=True)
        ]
        while n_arcs < count_arcs(profiles):
            n_arcs *= 2
        if n_arcs > solver.max_arcs:
            return uncertified, RESULTS.too_many_arcs
        layout = lay_out(profiles, n_arcs, reading.time_bound)
        start = _start_arcs(problem, layout, course, solver.shooting)
        plan, start = jax.tree.map(jnp.asarray, (layout.plan, start))
        singular = _has_singular(profiles)
        shot = _shoot(problem, shooting, plan, start, reading.scales, singular)
        stats["rounds"] += 1
        stats["shooting_steps"] += int(shot.steps)
        if not bool(shot.converged):
            return uncertified, RESULTS.shooting_failed
        times = np.asarray(shot.arcs.times)
        new = collect_profiles(profiles, layout, times)
        if np.all(np.diff(times, prepend=0.0) > 0.0):
            new = _mend(problem, new, shot, solver, reading)
            if _kinds(new) == _kinds(profiles):
                extremal = Extremal(plan, shot, reading.scales, singular, layout.real)
                certified = Certified(extremal, certify(problem, extremal))
                if not certified.certificate.is_too_coarse:
                    return certified, RESULTS.successful
                uncertified = uncertified or certified
                n_arcs *= 2
        profiles = new
        course = _course(assemble(problem, plan, shot.arcs, shot.stages))
    return uncertified, RESULTS.structure_failed


def find_extremal(
    problem: Problem, solver: Solver, found: Transcribed, stats: dict
) -> tuple[Certified | None, RESULTS]:
    """Read the structure off the transcription, shoot, mend until nothing is wrong, certify.

    Where a stretch inside the bounds turns out not to be a singular arc, it is read once more as a
    blurred switch. Where only the accuracy falls short of the certificate, the arcs are halved.
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
    reading = _Reading(
        scales,
        np.mean(position, axis=0),
        [INTERIOR if is_bent else None for is_bent in bent],
        _time_bound(problem, float(found.final_time)),
    )
    # A control with a strictly convex Hamiltonian may lie close to a bound without being on it:
    # there the switching function outweighs the distance only on the bound.
    strength = np.abs(found.switching_function) * span * found.final_time
    slack = 0.5 * (1.0 - np.abs(position))
    loose = bent & (strength < slack * np.abs(found.objective))
    position = np.where(loose, np.clip(position, -0.5, 0.5), position)
    for longest_switch in (2, len(position)):
        profiles = [
            read_profile(
                position[:, j], grid[-1], INTERIOR if bent[j] else SINGULAR, longest_switch
            )
            for j in range(problem.m)
        ]
        certified, result = _shoot_and_mend(problem, solver, profiles, course, reading, stats)
        if certified is not None or not _has_singular(profiles):
            break
    # A control that moves nothing of consequence is held by the barrier alone.
    pull = np.max(np.abs(found.switching_function), axis=0) * span * found.final_time
    if certified is None and np.any(pull < 1e-4 * abs(found.objective)):
        result = RESULTS.undetermined_control
    return certified, result
