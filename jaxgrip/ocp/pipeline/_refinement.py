"""From a direct solution to an extremal: shoot, mend until nothing is wrong, certify."""

from collections.abc import Sequence

import equinox as eqx
import jax
import numpy as np

from jaxgrip.ocp.certificate import certify
from jaxgrip.ocp.certificate import compile_ahead as compile_certificate_ahead
from jaxgrip.ocp.direct import DirectSolution, Guess
from jaxgrip.ocp.indirect import (
    Extremal,
    end_gradients,
    iterate,
    pose,
    start_arcs,
)
from jaxgrip.ocp.pipeline._outcome import Certified, Outcome, Search
from jaxgrip.ocp.pipeline._results import RESULTS
from jaxgrip.ocp.pipeline._shooting import aim, shoot
from jaxgrip.ocp.structure import (
    COINCIDENT,
    TOLERANCE,
    Candidate,
    Kind,
    Segment,
    Sizes,
    SwitchingStructure,
    Trajectory,
    bracket_singular,
    chatters,
    count_arcs,
    end_bounds,
    is_undetermined,
    lay_out,
    mend,
    propose,
    read_direct,
    with_times,
)

_end_gradients = eqx.filter_jit(end_gradients)


def compile_ahead(search: Search, guess: Guess) -> None:
    """Begin to compile what an extremal without constraints and singular arcs needs."""
    problem, solver = search.problem, search.solver
    n, m, one = problem.n, problem.m, np.ones(())
    structure = SwitchingStructure(
        [[Segment(Kind.UPPER, 1.0)]] * m, [], (), np.zeros(1 + n, dtype=int)
    )
    layout = lay_out(structure, solver.arcs)
    sizes = Sizes(
        np.ones(n),
        np.ones(n),
        np.ones(m),
        np.ones(m),
        one,
        np.ones(m),
        one,
        np.ones(0),
        np.ones(problem.n_boundary),
    )
    bvp = pose(problem, layout.plan, sizes)
    t, x, u = np.linspace(0.0, 1.0, len(guess.x)), np.asarray(guess.x), np.asarray(guess.u)
    nothing = np.zeros((len(u), 0)), np.zeros_like(u), np.zeros(problem.n_boundary)
    trajectory = Trajectory(t, x, x, t[1:], u, *nothing)
    grid = solver.shooting.intervals, solver.shooting.stages
    arcs = start_arcs(bvp, trajectory, layout.times, *grid)
    iterate.begin(bvp, arcs)
    compile_certificate_ahead(bvp, arcs)


def _mend_ends(extremal: Extremal) -> np.ndarray:
    """Kinds of the ends: at a bound where beyond it, released where its multiplier is negative."""
    bvp, n, problem = extremal.bvp, extremal.bvp.n, extremal.bvp.problem
    arcs, scales, old = jax.tree.map(np.asarray, (extremal.shot.arcs, bvp.scales, bvp.plan.ends))
    lower, upper = end_bounds(problem)
    values = np.append(arcs.times[-1], arcs.start[0, :n])
    beyond = np.where(
        values < lower, Kind.LOWER, np.where(values > upper, Kind.UPPER, Kind.INTERIOR)
    )
    if np.all(old == Kind.INTERIOR):
        return beyond
    value = np.asarray(extremal.shot.stages.value.hamiltonian)[-1, -1, -1]
    gradients = _end_gradients(problem, *arcs.ends, value)
    slope = np.append(gradients.time / scales.hamiltonian, gradients.start / scales.y[n : 2 * n])
    kept = np.where(slope * old > TOLERANCE, Kind.INTERIOR, old)
    return np.where(old == Kind.INTERIOR, beyond, kept)


def _certify(extremal: Extremal, candidate: Candidate) -> Certified:
    """The extremal with its certificate; its own trajectory replaces that of the candidate."""
    own = candidate._replace(trajectory=extremal.trajectory())
    return Certified(extremal, certify(extremal), own)


def _shoot_and_mend(
    search: Search, candidate: Candidate, rounds: int, n_arcs: int, is_imposed: bool = False
) -> Outcome:
    problem, solver, stats = search.problem, search.solver, search.stats
    uncertified, best, seen = None, None, set()
    names, reading = problem.constraint_names, candidate.reading
    search.note(*(f"start with {line}" for line in candidate.structure.describe(names)))
    for _ in range(rounds):
        structure = candidate.structure
        if not is_imposed and candidate.laid_out is None:
            structure = structure._replace(
                controls=[
                    bracket_singular(profile, tuple(sides), to_the_end=bool(free))
                    for profile, sides, free in zip(
                        structure.controls, reading.lean, reading.is_end_free, strict=True
                    )
                ]
            )
            candidate = candidate._replace(structure=structure)
        while n_arcs < count_arcs(structure):
            n_arcs *= 2
        if n_arcs > solver.max_arcs:
            search.note(f"more than {solver.max_arcs} arcs")
            return Outcome(RESULTS.too_many_arcs, uncertified, best=best)
        at, extremal = shoot(search, aim(search, candidate, n_arcs), reading, is_imposed)
        structure, layout, shot = at.structure, at.layout, extremal.shot
        stats["rounds"] += 1
        times = np.asarray(shot.arcs.times)
        if not bool(shot.converged) or times[-1] <= 0.0:
            search.note(f"shooting with {n_arcs} arcs does not converge")
            return Outcome(RESULTS.shooting_failed, uncertified, best=best)
        if is_imposed:
            return Outcome(RESULTS.successful, _certify(extremal, candidate), best=best)
        out = extremal.output()
        # Switches of different controls may coincide; rounding decides which comes first.
        is_ordered = np.all(np.diff(times, prepend=0.0) > -COINCIDENT * times[-1])
        objective = float(out.objective)
        if is_ordered and (best is None or objective < best[0]):
            best = objective, extremal
        # The same extremal once more would be mended in the same way.
        kinds = tuple(map(tuple, structure.kinds))
        state = n_arcs, kinds, str(layout.events), f"{objective:.10g}"
        if state in seen:
            search.note("the same structure once more")
            break
        seen.add(state)
        if not is_ordered:
            search.note("switches overtake each other")
        timed = with_times(structure, layout, times)._replace(ends=_mend_ends(extremal))
        new = Candidate(timed, extremal.trajectory(), reading)
        if is_ordered and timed.kinds == structure.kinds:
            mended = mend(problem, timed, reading, extremal.values())
            new = new._replace(structure=mended)
            is_same = mended.kinds == structure.kinds and mended.active == structure.active
            if is_same and np.array_equal(mended.ends, structure.ends):
                again = new._replace(laid_out=(layout, shot.arcs))
                certified = Certified(extremal, certify(extremal), again)
                if not certified.certificate.is_too_coarse:
                    return Outcome(RESULTS.successful, certified, best=best)
                uncertified = uncertified or certified
                n_arcs *= 2
                search.note(f"too coarse for {', '.join(certified.certificate.failed)}")
        changes = new.structure.describe(names, candidate.structure)
        search.note(*(f"mend {line}" for line in changes))
        candidate = new
    return Outcome(RESULTS.structure_failed, uncertified, best=best)


def follow(search: Search, certified: Certified, most: int) -> Certified | None:
    """Shoot and mend from the extremal of a problem with other numbers; None if that fails, or if
    it needs more than so many shootings in all.
    """
    rounds = min(search.solver.max_rounds, most - search.stats["rounds"])
    n_arcs = len(certified.extremal.bvp.plan.kinds)
    return _shoot_and_mend(search, certified.candidate, rounds, n_arcs).certified


def _is_same(one: Candidate, other: Candidate) -> bool:
    """Whether two structures and their trajectories are the same, to a transcription's accuracy."""
    if one.structure.kinds != other.structure.kinds:
        return False
    motions = ((each.t, each.x, each.u) for each in (one.trajectory, other.trajectory))
    gaps = (
        np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-300)
        for a, b in zip(*motions, strict=True)
    )
    return bool(max(gaps) < 1e-3)


def find_extremal(
    search: Search,
    direct: DirectSolution,
    imposed: Sequence[Sequence[tuple[int, float]]] | None,
    known: list[Candidate],
) -> Outcome | None:
    """Read the structure off a direct solution, shoot, mend until nothing is wrong, certify.

    A structure of the controls that is `imposed` is shot as it is, and its extremal returned with
    whatever its certificate says, bounds included.

    Where a stretch inside the bounds proves to be no singular arc, it is read again as a blurred
    switch, again without the constraints, which come back where they are violated, and again by the
    distance from the bounds alone. Where only the accuracy falls short of the certificate, the arcs
    are halved. Where no structure is optimal because the optimum chatters, the best one that was
    shot remains.

    **Arguments:** `known`, the candidates that were shot from other direct solutions; they are not
    shot again, and those from this one are added.

    **Returns:** an outcome, whose extremal is within all bounds unless its structure is imposed;
    None if all candidates were known.
    """
    problem, solver = search.problem, search.solver
    reading = read_direct(problem, direct)
    best, outcome = None, None
    every = len(direct.u)
    for how in ((2,), (every,), (2, False), (2, True, True), (every, True, True)):
        candidate = propose(problem, reading, imposed, *how)
        if any(_is_same(candidate, other) for other in known):
            continue
        known.append(candidate)
        rounds = min(solver.max_rounds, solver.max_shootings - search.stats["rounds"])
        outcome = _shoot_and_mend(search, candidate, rounds, solver.arcs, imposed is not None)
        if outcome.best is not None and (best is None or outcome.best[0] < best[0]):
            best = outcome.best
        if outcome.certified is not None or imposed is not None:
            break
    if outcome is None:
        return None
    certified, result, detail = outcome.certified, outcome.result, ""
    if imposed is not None:
        return Outcome(result if certified is None else RESULTS.not_certified, certified)
    if certified is not None:
        if certified.certificate.is_within_bounds:
            return Outcome(RESULTS.not_certified, certified)
        result = RESULTS.structure_failed
        detail = f"the motion that was found breaks: {', '.join(certified.certificate.failed)}"
    reason = chatters(problem, reading)
    if reason:
        # The switches of an extremal far from the direct solution are not those of the optimum.
        if best is not None and abs(best[0] - direct.objective) < 1e-2 * abs(direct.objective):
            certified = _certify(best[1], candidate)
            if certified.certificate.is_within_bounds:
                return Outcome(RESULTS.chattering, certified, reason)
        return Outcome(RESULTS.chattering, detail=reason)
    if is_undetermined(problem, reading):
        result = RESULTS.undetermined
    return Outcome(result, detail=detail)
