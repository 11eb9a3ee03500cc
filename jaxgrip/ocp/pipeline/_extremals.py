"""From a transcription to an extremal: shoot, mend until nothing is wrong, certify."""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxgrip.ocp.certificate import Certificate, certify
from jaxgrip.ocp.direct import DirectSolution
from jaxgrip.ocp.hamiltonian import ActiveConstraint
from jaxgrip.ocp.indirect import (
    Arcs,
    Extremal,
    Output,
    Shooting,
    ShootingResult,
    control_rates,
    end_gradients,
    ends_of,
    multipliers,
    radau,
    rate_costates,
    solve_shooting,
)
from jaxgrip.ocp.pipeline._results import RESULTS
from jaxgrip.ocp.pipeline._solver import Solver
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure import (
    COINCIDENT,
    FALLING,
    FREE,
    INTERIOR,
    LOWER,
    RISING,
    SINGULAR,
    TOUCH,
    UPPER,
    ArcPlan,
    Course,
    EndKinds,
    Features,
    Layout,
    Measured,
    Profiles,
    Reading,
    Scales,
    Segment,
    Track,
    bracket_singular,
    chatters,
    classify,
    collect_profiles,
    count_arcs,
    end_bounds,
    ends_vector,
    is_undetermined,
    label,
    lay_out,
    mend_constraint,
    mend_control,
    position_of,
    rate_position_of,
    read,
    scales_of,
    tie,
)
from jaxgrip.solve.fusion import jit_plainly

_shoot = jit_plainly(solve_shooting)
_TOLERANCE = 1e-8


class Certified(NamedTuple):
    """An extremal and the measured necessary conditions; the `track` it was shot from."""

    extremal: Extremal
    certificate: Certificate
    track: Track


def _interpolate(t, grid, rows):
    out = [np.interp(t, grid, column) for column in rows.T]
    return np.stack(out, axis=-1) if out else np.zeros((*np.shape(t), 0))


def _stage_times(times: np.ndarray, shooting: Shooting) -> np.ndarray:
    """Times `(arcs, intervals, s)` of the stages [s]."""
    k = shooting.intervals
    nodes, _ = radau(shooting.stages)
    starts = np.concatenate([[0.0], times[:-1]])
    h = (times - starts) / k
    return starts[:, None, None] + h[:, None, None] * (np.arange(k)[:, None] + nodes)


def _start_arcs(
    problem: Problem, layout: Layout, features: Features, course: Course, shooting: Shooting
) -> Arcs:
    """Unknowns of the shooting, interpolated from a trajectory."""
    kinds = layout.plan.kinds
    lower, upper = np.asarray(problem.lower), np.asarray(problem.upper)
    limited = list(features.limited)
    rows = [index for index, _ in features.active]

    def at(t, kinds):
        inside = _interpolate(t, course.t_u, course.u)
        u = np.where(kinds == UPPER, upper, np.where(kinds == LOWER, lower, inside))
        slow = np.where(kinds >= FALLING, _interpolate(t, course.t_u, course.rate_costate), 0.0)
        y = np.concatenate(
            [
                _interpolate(t, course.t, course.x),
                _interpolate(t, course.t, course.costate),
                u[..., limited],
                slow[..., limited],
            ],
            axis=-1,
        )
        return y, u, _interpolate(t, course.t_u, course.multiplier[:, rows])

    begins = np.concatenate([[0.0], layout.times[:-1]])
    start, _, multiplier = at(begins, kinds)
    stage, u, stage_multiplier = at(_stage_times(layout.times, shooting), kinds[:, None, None])
    stage_multiplier = np.where(layout.plan.active[:, None, None], stage_multiplier, 0.0)
    jump = np.zeros((len(begins) - 1, features.n_jumps))
    for b in np.flatnonzero(layout.plan.jumps):
        row = layout.plan.jump_constraint[b]
        jump[b, layout.plan.jumps[b] - 1] = multiplier[b + 1, row]
    stage_v = np.concatenate([u, stage_multiplier], axis=-1)
    return Arcs(start, stage, stage_v, jump, layout.times, course.boundary_multiplier)


@eqx.filter_jit
def constraint_values(problem: Problem, x, u):
    """Values `(K, c)` of the constraints along a course."""
    return jax.vmap(problem.constraints)(x, u)


def _mend(
    problem: Problem,
    profiles: Profiles,
    plan: ArcPlan,
    features: Features,
    shot: ShootingResult,
    solver: Solver,
    scales: Scales,
    reading: Reading,
) -> tuple[Profiles, tuple[ActiveConstraint, ...]]:
    """Structure with every breach of the minimum principle written in, and its constraints."""
    n, m = problem.n, problem.m
    arcs = shot.arcs
    t = _stage_times(np.asarray(arcs.times), solver.shooting).ravel()
    v = np.asarray(arcs.stage_v).reshape(len(t), -1)
    y = np.asarray(arcs.stage).reshape(len(t), -1)
    switching = np.asarray(shot.stages.value.switching).reshape(-1, m)
    switching = switching / np.asarray(scales.switching)
    position = position_of(problem, v[:, :m], np.asarray(scales.v)[:m])
    # An arc without length, where two controls switch together, has no rates.
    rate = np.nan_to_num(np.asarray(control_rates(arcs, m)), posinf=0.0, neginf=0.0)
    rate = rate_position_of(problem, rate.reshape(-1, m))
    scaled = jnp.asarray(y / np.asarray(scales.y))
    rate_costate = np.asarray(rate_costates(problem, features, scaled))
    controls = [
        mend_control(
            profile,
            t,
            Measured(switching[:, j], position[:, j], rate[:, j], rate_costate[:, j]),
            _TOLERANCE,
            INTERIOR if reading.is_convex[j] else None,
        )
        for j, profile in enumerate(profiles.controls)
    ]
    if problem.n_constraints == 0:
        return Profiles(controls, []), ()
    value = np.asarray(constraint_values(problem, y[:, :n], v[:, :m]))
    value = value / reading.scales.constraint
    jumps = np.asarray(arcs.jump)
    active, constraints = list(features.active), list(profiles.constraints)
    for index in np.flatnonzero(np.any(value > _TOLERANCE, axis=0)):
        if index not in [each.index for each in active]:
            active.append(classify(problem, int(index), y[:, :n], v[:, :m], reading))
            constraints.append([Segment(FREE, float(t[-1]))])
    mended = []
    for row, (index, order) in enumerate(active):
        known = row < len(features.active)
        multiplier = v[:, m + row] / np.asarray(scales.v)[m + row] if known else np.zeros_like(t)
        size = float(scales.hamiltonian * scales.time / reading.scales.constraint[index])
        touches = np.flatnonzero((plan.rule[: len(jumps)] == TOUCH) & (plan.jump_constraint == row))
        at = {float(arcs.times[b]): float(jumps[b, 0]) / size for b in touches}
        mended.append(
            mend_constraint(constraints[row], t, value[:, index], multiplier, at, order, _TOLERANCE)
        )
    used = [row for row, profile in enumerate(mended) if len(profile) > 1 or profile[0].kind]
    holds = [reading.holds[active[row].index] for row in used]
    # A held control belongs to a row, and rows move up where one before is no longer used.
    profiles = tie(Profiles(controls, [mended[row] for row in used]), holds)
    return profiles, tuple(active[row] for row in used)


def _mend_ends(problem: Problem, shot: ShootingResult, scales: Scales, ends: EndKinds) -> EndKinds:
    """Hold an end where it is beyond a bound, and let go one that a bound holds the wrong way."""
    lower, upper = end_bounds(problem)
    n, arcs = problem.n, shot.arcs
    gradients = end_gradients(problem, *ends_of(arcs), shot.stages.value.hamiltonian[-1, -1, -1])
    pull = ends_vector(gradients.time / scales.hamiltonian, gradients.start / scales.y[n : 2 * n])
    values, old = ends_vector(arcs.times[-1], arcs.start[0, :n]), ends_vector(*ends)
    beyond = np.where(values < lower, LOWER, np.where(values > upper, UPPER, INTERIOR))
    kept = np.where(pull * old > _TOLERANCE, INTERIOR, old)
    kinds = np.where(old == INTERIOR, beyond, kept)
    return EndKinds(kinds[0], kinds[1:])


def _course(problem: Problem, features: Features, out: Output) -> Course:
    t = np.asarray(out.t).ravel()
    order = np.argsort(t, kind="stable")
    y, v = (np.asarray(each).reshape(len(t), -1)[order] for each in (out.y, out.v))
    n, t = problem.n, t[order]
    return Course(
        t,
        y[:, :n],
        y[:, n : 2 * n],
        t,
        v[:, : problem.m],
        np.asarray(multipliers(problem, features, jnp.asarray(v))),
        np.asarray(rate_costates(problem, features, jnp.asarray(y))),
        np.asarray(out.boundary_multiplier),
    )


def _certified(problem: Problem, extremal: Extremal, track: Track) -> Certified:
    """The extremal with its certificate, and its own course in the track it was shot from."""
    course = _course(problem, extremal.features, extremal.output(problem))
    return Certified(extremal, certify(problem, extremal), track._replace(course=course))


class _Mended(NamedTuple):
    """What mending led to: an extremal with its certificate or none, why, and with its objective
    the best of the extremals on the way, which may break the minimum principle.
    """

    certified: Certified | None
    result: RESULTS
    best: tuple[float, Extremal] | None


def _shoot_and_mend(
    problem: Problem,
    solver: Solver,
    track: Track,
    stats: dict,
    rounds: int,
    n_arcs: int,
    is_imposed: bool = False,
) -> _Mended:
    shooting = jax.tree.map(jnp.asarray, solver.shooting)
    uncertified, best, seen = None, None, set()
    reading, history = track.reading, stats["history"]
    history += [f"start with {line}" for line in track.describe(problem)]
    for _ in range(rounds):
        profiles, active, ends, course, _ = track
        if not is_imposed:
            profiles = profiles._replace(
                controls=[
                    bracket_singular(profile, tuple(sides), to_the_end=bool(free))
                    for profile, sides, free in zip(
                        profiles.controls, reading.lean, reading.is_end_free, strict=True
                    )
                ]
            )
            track = track._replace(profiles=profiles)
        while n_arcs < count_arcs(profiles):
            n_arcs *= 2
        if n_arcs > solver.max_arcs:
            history.append(f"more than {solver.max_arcs} arcs")
            return _Mended(uncertified, RESULTS.too_many_arcs, best)
        layout = lay_out(profiles, active, n_arcs, ends)
        features = Features(
            bool(profiles.has(SINGULAR)), active, tuple(profiles.has(FALLING, RISING))
        )
        scales = scales_of(problem, reading.scales, features)
        start = _start_arcs(problem, layout, features, course, solver.shooting)
        plan, start = jax.tree.map(jnp.asarray, (layout.plan, start))
        shot = _shoot(problem, shooting, plan, start, scales, features)
        stats["rounds"] += 1
        stats["shooting_steps"] += int(shot.steps)
        times = np.asarray(shot.arcs.times)
        if not bool(shot.converged) or times[-1] <= 0.0:
            history.append(f"shooting with {n_arcs} arcs does not converge")
            return _Mended(uncertified, RESULTS.shooting_failed, best)
        extremal = Extremal(plan, shot, scales, features, layout.real)
        if is_imposed:
            return _Mended(_certified(problem, extremal, track), RESULTS.successful, best)
        out = extremal.output(problem)
        # Switches of different controls may coincide; rounding decides which comes first.
        is_ordered = np.all(np.diff(times, prepend=0.0) > -COINCIDENT * times[-1])
        objective = float(out.objective)
        if is_ordered and (best is None or objective < best[0]):
            best = objective, extremal
        # The same extremal once more would be mended in the same way.
        state = n_arcs, str(profiles.kinds), str(layout.events), f"{objective:.10g}"
        if state in seen:
            history.append("the same structure once more")
            break
        seen.add(state)
        if not is_ordered:
            history.append("switches overtake each other")
        new = Track(
            collect_profiles(profiles, active, layout, times),
            active,
            _mend_ends(problem, shot, scales, ends),
            _course(problem, features, out),
            reading,
        )
        if is_ordered and new.profiles.kinds == profiles.kinds:
            mended, new_active = _mend(
                problem, new.profiles, layout.plan, features, shot, solver, scales, reading
            )
            new = new._replace(profiles=mended, active=new_active)
            same_ends = np.array_equal(ends_vector(*new.ends), ends_vector(*ends))
            if mended.kinds == profiles.kinds and new_active == active and same_ends:
                certified = Certified(extremal, certify(problem, extremal), new)
                if not certified.certificate.is_too_coarse:
                    return _Mended(certified, RESULTS.successful, best)
                uncertified = uncertified or certified
                n_arcs *= 2
                history.append(f"too coarse for {', '.join(certified.certificate.failed)}")
        history += [f"mend {line}" for line in new.describe(problem, track)]
        track = new
    return _Mended(uncertified, RESULTS.structure_failed, best)


def follow(
    problem: Problem, solver: Solver, certified: Certified, stats: dict, most: int
) -> Certified | None:
    """Shoot and mend from the extremal of a problem with other numbers; None where that fails, also
    because more than so many shootings in all would be spent.
    """
    rounds = min(solver.max_rounds, most - stats["rounds"])
    n_arcs = len(certified.extremal.plan.kinds)
    return _shoot_and_mend(problem, solver, certified.track, stats, rounds, n_arcs).certified


def _is_same(one: Track, other: Track) -> bool:
    """Whether two structures and the motions that they were read off are the same, to the accuracy
    of a transcription.
    """
    if one.profiles.kinds != other.profiles.kinds:
        return False
    gaps = (
        np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-300)
        for a, b in (
            (one.course.t, other.course.t),
            (one.course.x, other.course.x),
            (one.course.u, other.course.u),
        )
    )
    return bool(max(gaps) < 1e-3)


def find_extremal(
    problem: Problem,
    solver: Solver,
    found: DirectSolution,
    stats: dict,
    imposed: Sequence[Sequence[tuple[int, float]]] | None,
    shot: list[Track],
) -> tuple[Certified | None, RESULTS, str] | None:
    """Read the structure off the transcription, shoot, mend until nothing is wrong, certify.

    A structure of the controls that is `imposed` is shot as it is, and its extremal handed over
    with whatever its certificate names, bounds included.

    Where a stretch inside the bounds turns out not to be a singular arc, it is read once more as a
    blurred switch, once more without the constraints, which come back where they are violated, and
    once more by the distance from the bounds alone.
    Where only the accuracy falls short of the certificate, the arcs are halved. Where no structure
    is optimal because the optimum chatters, the best one that was shot remains.

    **Arguments:** `shot`, what was shot from other motions, to which that from this one is added;
    what is there already is not shot again.

    **Returns:** an extremal, within all bounds unless its structure is imposed, or None; why; a
    detail of it. None in place of the three where all was shot before.
    """
    labelled, reading = label(problem, found)
    best, certified, result = None, None, None
    every = len(found.u)
    for how in ((2,), (every,), (2, False), (2, True, True), (every, True, True)):
        track = read(problem, found, labelled, reading, imposed, *how)
        if any(_is_same(track, other) for other in shot):
            continue
        shot.append(track)
        rounds = min(solver.max_rounds, solver.max_shootings - stats["rounds"])
        certified, result, reached = _shoot_and_mend(
            problem, solver, track, stats, rounds, solver.arcs, imposed is not None
        )
        if reached is not None and (best is None or reached[0] < best[0]):
            best = reached
        if certified is not None or imposed is not None:
            break
    if result is None:
        return None
    if imposed is not None:
        return certified, result if certified is None else RESULTS.not_certified, ""
    detail = ""
    if certified is not None and not certified.certificate.is_within_bounds:
        detail = f"the motion that was found breaks: {', '.join(certified.certificate.failed)}"
        certified, result = None, RESULTS.structure_failed
    if certified is not None:
        return certified, RESULTS.not_certified, detail
    reason = chatters(problem, found, labelled.close, reading)
    if reason:
        # An extremal far from the transcription has switches in places of its own.
        if best is not None and abs(best[0] - found.objective) < 1e-2 * abs(found.objective):
            certified = _certified(problem, best[1], track)
            if not certified.certificate.is_within_bounds:
                certified = None
        return certified, RESULTS.chattering, reason
    if is_undetermined(problem, found, reading):
        result = RESULTS.undetermined
    return None, result, detail
