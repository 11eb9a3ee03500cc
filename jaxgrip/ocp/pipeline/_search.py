"""The search for a certified extremal from several guesses, within a budget."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxgrip.ocp.direct import DirectSolution, Guess, bent_line, solve_transcription, straight_line
from jaxgrip.ocp.pipeline._outcome import Outcome, Search
from jaxgrip.ocp.pipeline._refinement import compile_ahead, find_extremal
from jaxgrip.ocp.pipeline._results import RESULTS
from jaxgrip.ocp.pipeline._solver import Solver
from jaxgrip.ocp.statement import Free, Problem
from jaxgrip.ocp.structure import propose, read_direct, sizes_of
from jaxgrip.solve.fusion import jit_plainly

_transcribe = jit_plainly(solve_transcription)


def _guess_rounds(
    problem: Problem, solver: Solver
) -> Iterator[tuple[list[tuple[str, Guess]], bool]]:
    """Guesses to try together, by name, and whether their final times change in small steps.

    A round is tried only if the one before led to no motion.
    """
    intervals = solver.transcription.intervals
    guesses = [("the straight line", straight_line(problem, intervals))]
    guesses += [
        (f"bent line {seed}", bent_line(problem, intervals, seed))
        for seed in range(1, solver.starts)
    ]
    yield guesses, False
    if problem.is_time_free:
        earliest, latest = problem.time_bounds
        for factor in (1.0, 2.0, 0.5, 4.0, 8.0):
            final_time = guesses[0][1].final_time * factor
            if earliest < final_time < latest:
                suffix = f", gradually from the final time {float(final_time):.4g} s"
                others = [(n + suffix, g._replace(final_time=final_time)) for n, g in guesses]
                yield others, True


# Largest relative change of the final time from one transcription to the next, and their number.
_STRIDE, _STRIDES = 0.1, 40


def _transcribe_gradually(
    transcribe: Callable, problem: Problem, guess: Guess, strides: int
) -> DirectSolution:
    """Transcribe with the final time bounded close to the guess, and follow it until it is free.

    Far from a motion that meets the end the objective may drive the time to where there is none.
    """
    earliest, latest = problem.time_bounds
    for _ in range(strides):
        before = guess.final_time
        lower, upper = (1.0 - _STRIDE) * before, (1.0 + _STRIDE) * before
        bounded = Free(before, jnp.maximum(lower, earliest), jnp.minimum(upper, latest))
        one = transcribe(eqx.tree_at(lambda p: p.final_time, problem, bounded), guess)
        change = float(one.final_time / before) - 1.0
        moves_on = change < -0.9 * _STRIDE and lower > earliest
        moves_on |= change > 0.9 * _STRIDE and upper < latest
        if not one.converged or not moves_on:
            return one
        guess = _as_guess(problem, one, one.lengths)
    return one._replace(converged=np.array(False))


def _as_guess(problem: Problem, one: DirectSolution, lengths: np.ndarray) -> Guess:
    """A direct solution as a guess on intervals of given `lengths`, off the bounds, where the
    barrier leaves room to move.
    """
    lowest, highest = np.asarray(problem.lower), np.asarray(problem.upper)
    margin = np.where(np.isfinite(highest - lowest), 0.01 * (highest - lowest), 0.0)
    x, u = _interpolated(one, lengths)
    u = np.clip(u, lowest + margin, highest - margin)
    # Exactly, since typical sizes are read off the ends of a guess.
    x[-1] = np.where(problem.is_fixed_final, problem.final_state, x[-1])
    return jax.tree.map(jnp.asarray, Guess(x, u, one.final_time, lengths))


def _nodes(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(lengths)])


def _interpolated(one: DirectSolution, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    old, new = _nodes(one.lengths), _nodes(lengths)
    middles = [0.5 * (nodes[1:] + nodes[:-1]) for nodes in (old, new)]
    x = [np.interp(new, old, column) for column in one.x.T]
    u = [np.interp(middles[1], middles[0], column) for column in one.u.T]
    return np.stack(x, axis=1), np.stack(u, axis=1)


# Share of the intervals that are placed by what changes; the others are equal.
_GRADED = 0.5


def graded_lengths(
    problem: Problem, one: DirectSolution, is_even_handed: bool = True
) -> np.ndarray:
    """Lengths of as many intervals, as shares, short where controls and multipliers change.

    A multiplier counts by its largest value, unless that is negligible. Even-handed, a control
    counts by its range, so that the short motion of a light link counts as much as the long one of
    a heavy link, and means of two intervals count, since the midpoint rule lets values alternate;
    otherwise a control counts by what its bounds allow, and every change counts.
    """
    sizes = sizes_of(problem, one)
    size = sizes.control
    if is_even_handed:
        size = np.maximum(np.ptp(one.u, axis=0), 1e-6 * size)
    least = 1e-4 * sizes.hamiltonian / sizes.constraint
    multiplier = one.multiplier / np.maximum(np.max(one.multiplier, axis=0, initial=0.0), least)
    values = np.concatenate([one.u / size, multiplier], axis=1)
    if is_even_handed:
        means = 0.5 * (values[1:] + values[:-1])
        change = np.pad(np.sum(np.abs(np.diff(means, axis=0)), axis=1), 1, mode="edge")
    else:
        change = np.pad(np.sum(np.abs(np.diff(values, axis=0)), axis=1), 1)
        change = change[1:] + change[:-1]
    change = np.convolve(change, [0.25, 0.5, 0.25], mode="same")
    total = np.sum(change)
    if total == 0.0:
        return one.lengths
    density = (1.0 - _GRADED) * one.lengths + _GRADED * change / total
    ends = np.linspace(0.0, 1.0, len(density) + 1)
    return np.diff(np.interp(ends, _nodes(density), _nodes(one.lengths)))


def _transcribed(search: Search, problem: Problem, guess: Guess) -> DirectSolution:
    # As arrays, so that another tolerance does not recompile.
    numbers = jax.tree.map(jnp.asarray, search.solver.transcription)
    is_new = _transcribe.begin(problem, numbers, guess)
    if is_new and not problem.n_constraints and not problem.limited:
        compile_ahead(search, guess)
    one = search.timed(
        "transcription", lambda: jax.tree.map(np.asarray, _transcribe(problem, numbers, guess))
    )
    search.stats["transcriptions"] += 1
    search.stats["transcription_steps"] += int(one.steps)
    return one


def _transcribe_round(
    search: Search, guesses: list[tuple[str, Guess]], is_gradual: bool
) -> tuple[list[DirectSolution], RESULTS]:
    """Direct solutions from several guesses, and the result if none of them converged."""
    problem, solver, stats = search.problem, search.solver, search.stats
    is_demanding = problem.fixed_final or problem.n_boundary or problem.n_constraints
    every = []
    result = RESULTS.unreachable if is_demanding else RESULTS.transcription_failed
    transcribe = partial(_transcribed, search)
    for name, guess in guesses:
        left = solver.max_transcriptions - stats["transcriptions"]
        if left <= 0:
            break
        if is_gradual:
            one = _transcribe_gradually(transcribe, problem, guess, min(left, _STRIDES))
        else:
            one = transcribe(problem, guess)
        every.append(one)
        if not np.isfinite(one.infeasibility):
            result = RESULTS.not_finite
        elif not one.converged and one.infeasibility < 1e-3:
            result = RESULTS.transcription_failed
        end = f"objective {one.objective:.6g}" if one.converged else "no motion"
        search.note(f"transcription from {name}: {end}")
    return every, result


# Number of transcriptions of a problem, each on intervals that the one before graded.
_GRADINGS = 4


def search_along(search: Search, way: Sequence[Problem]) -> Outcome | None:
    """Search for an extremal from the direct solutions of easier problems, each the guess of the
    next one; None if one of them has none, or the budget has less transcriptions.

    The intervals are graded from one to the next, and those of the last problem until the structure
    stays the same: first even-handedly, and if that leads to no extremal in the other way, with
    twice as many intervals in each arc. One transcription of the budget is left for another search.
    """
    if search.stats["transcriptions"] + len(way) >= search.solver.max_transcriptions:
        return None
    guess = straight_line(way[0], search.solver.transcription.intervals)
    for problem in way:
        direct = _transcribed(search, problem, guess)
        if not direct.converged:
            return None
        search.note(f"transcription on the way: objective {direct.objective:.6g}")
        guess = _as_guess(problem, direct, graded_lengths(problem, direct))
    known: list = []
    for each, is_even_handed in ((search, True), (_finer(search), False)):
        direct = _grade(search, guess, is_even_handed)
        if direct is None:
            return None
        found = search.timed("shooting", find_extremal, each, direct, None, known)
        if found is None:
            return None
        if found.certified is not None and found.certified.certificate.passed:
            return found._replace(result=RESULTS.successful, direct=direct)
        guess = _as_guess(
            search.problem, direct, graded_lengths(search.problem, direct, is_even_handed=False)
        )
    return None


def _finer(search: Search) -> Search:
    """The same search with twice as many intervals in each arc."""
    shooting = search.solver.shooting
    shooting = dataclasses.replace(shooting, intervals=2 * shooting.intervals)
    return dataclasses.replace(search, solver=dataclasses.replace(search.solver, shooting=shooting))


def _grade(search: Search, guess: Guess, is_even_handed: bool) -> DirectSolution | None:
    """A direct solution whose structure did not change with the intervals; None if there is no
    direct solution.
    """
    problem, before = search.problem, None
    for _ in range(_GRADINGS):
        if search.stats["transcriptions"] + 1 >= search.solver.max_transcriptions:
            return None
        direct = _transcribed(search, problem, guess)
        if not direct.converged:
            return None
        search.note(f"transcription on graded intervals: objective {direct.objective:.6g}")
        structure = propose(problem, read_direct(problem, direct), None, 2).structure
        read = structure.kinds, structure.active
        if read == before:
            break
        before = read
        guess = _as_guess(problem, direct, graded_lengths(problem, direct, is_even_handed))
    return direct


def run_search(search: Search, structure: Sequence | None = None) -> Outcome:
    """Search for a certified extremal from the straight line and other guesses."""
    stats, known, why = search.stats, [], None
    for guesses, is_gradual in _guess_rounds(search.problem, search.solver):
        every, no_motion = _transcribe_round(search, guesses, is_gradual)
        found = [one for one in every if one.converged]
        # Guesses that lead to the same motion agree to the accuracy of the transcription only.
        for one in sorted(found, key=lambda one: float(f"{one.objective:.5g}")):
            outcome = search.timed("shooting", find_extremal, search, one, structure, known)
            if outcome is None:
                continue
            outcome = outcome._replace(direct=one)
            if outcome.certified is not None and outcome.certified.certificate.passed:
                return outcome._replace(result=RESULTS.successful)
            stats["unconfirmed"] += 1
            if why is None or not why.is_conclusive:
                why = outcome
        if why is None and every:
            why = Outcome(no_motion, direct=every[0])
        why = why.explain(search.problem)
        # Other final times are tried only if no motion was found at all.
        if why.is_conclusive or why.direct.converged or structure is not None:
            break
    if structure is not None and why.certified is None and why.direct.converged:
        why = why._replace(result=RESULTS.imposed_failed)
    return why
