"""The search for a certified extremal, within a budget, and why it ended without one."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxgrip.ocp.direct import DirectSolution, Guess, bent_line, solve_transcription, straight_line
from jaxgrip.ocp.indirect import Output
from jaxgrip.ocp.pipeline._diagnosis import describe_miss, find_kink, find_steep_place
from jaxgrip.ocp.pipeline._extremals import Certified, find_extremal
from jaxgrip.ocp.pipeline._results import RESULTS
from jaxgrip.ocp.pipeline._solution import Solution, as_failure, as_solution
from jaxgrip.ocp.pipeline._solver import Solver
from jaxgrip.ocp.statement import Free, Problem
from jaxgrip.solve.fusion import jit_plainly

_transcribe = jit_plainly(solve_transcription)


def no_stats() -> dict:
    """Counts, times and the history of a search that has not begun."""
    counts = ("transcriptions", "transcription_steps", "rounds", "shooting_steps", "unconfirmed")
    times = ("transcription_s", "shooting_s")
    return dict.fromkeys(counts, 0) | dict.fromkeys(times, 0.0) | {"history": [], "detail": ""}


def timed(stats: dict, key: str, function: Callable, *args):
    """Call a function and add the time it takes."""
    began = time.perf_counter()
    out = function(*args)
    stats[f"{key}_s"] += time.perf_counter() - began
    return out


class Found(NamedTuple):
    """The best certified extremal, else an uncertified one, else None; why; the `last` motion of a
    transcription; counts, times and the history of the search; a `detail` of why.
    """

    certified: Certified | None
    result: RESULTS
    stats: dict
    last: DirectSolution
    detail: str = ""

    @property
    def is_conclusive(self) -> bool:
        """Whether another motion would hardly end better."""
        return self.result in _CONCLUSIVE

    def explain(self, problem: Problem) -> "Found":
        """Name what spoils the search, where something does, and what a motion misses."""
        certified, result, last = self.certified, self.result, self.last
        detail = self.detail
        if result == RESULTS.unreachable:
            detail = describe_miss(problem, last)
        elif certified is not None and result == RESULTS.not_certified:
            detail = f"failed: {', '.join(certified.certificate.failed)}"
        if result in (*UNEXPLAINED, RESULTS.unreachable, RESULTS.not_finite):
            place = find_steep_place(problem, last.x, last.u)
            if place is not None:
                result, detail = RESULTS.steep_edge, place
        if result in UNEXPLAINED:
            kink = find_kink(problem, *_motion(certified, last))
            if kink is not None:
                result, detail = RESULTS.not_smooth, f"at {kink:.6g} s"
        return self._replace(result=result, detail=detail)

    def solution(self, problem: Problem, out: Output | None = None) -> Solution:
        """The solution object, from the extremal's dense output where that is known already."""
        self.stats["detail"] = self.detail
        if self.certified is None:
            return as_failure(problem, self.result, self.last, self.stats)
        extremal, certificate, _ = self.certified
        out = out or extremal.output(problem)
        return as_solution(problem, out, extremal, certificate, self.result, self.stats)

    def sentence(self, solver: Solver) -> str:
        """The sentence of the result, with what is known beside and what was spent."""
        detail = f" ({self.detail})" if self.detail else ""
        return (
            f"{RESULTS[self.result][:-1]}{detail}, after {self.stats['transcriptions']} of at most "
            f"{solver.max_transcriptions} transcriptions and {self.stats['rounds']} of at most "
            f"{solver.max_shootings} shootings."
        )


_CONCLUSIVE = (
    RESULTS.not_certified,
    RESULTS.chattering,
    RESULTS.undetermined,
    RESULTS.steep_edge,
    RESULTS.not_smooth,
)
# These say what the search could not do, and nothing of the problem: it may have a kink or an
# infinite slope, or be reached from an easier one.
UNEXPLAINED = (
    RESULTS.transcription_failed,
    RESULTS.shooting_failed,
    RESULTS.structure_failed,
    RESULTS.too_many_arcs,
    RESULTS.not_certified,
)


def _motion(certified: Certified | None, last: DirectSolution):
    """Times, states and controls."""
    if certified is None:
        t = np.linspace(0.0, float(last.final_time), len(last.x))
        return 0.5 * (t[1:] + t[:-1]), 0.5 * (last.x[1:] + last.x[:-1]), last.u
    course = certified.track.course
    return course.t, course.x, course.u


class _Round(NamedTuple):
    """Guesses to try together, by name; with `is_gradual` their final times change little by
    little.
    """

    guesses: list[tuple[str, Guess]]
    is_gradual: bool


def _guess_rounds(problem: Problem, solver: Solver) -> Iterator[_Round]:
    """What to try; a further round only where the one before led to no motion."""
    intervals = solver.transcription.intervals
    guesses = [("the straight line", straight_line(problem, intervals))]
    guesses += [
        (f"bent line {seed}", bent_line(problem, intervals, seed))
        for seed in range(1, solver.starts)
    ]
    yield _Round(guesses, is_gradual=False)
    if problem.is_time_free:
        earliest, latest = problem.time_bounds
        for factor in (1.0, 2.0, 0.5, 4.0, 8.0):
            final_time = guesses[0][1].final_time * factor
            if earliest < final_time < latest:
                suffix = f", gradually from the final time {float(final_time):.4g} s"
                others = [(n + suffix, g._replace(final_time=final_time)) for n, g in guesses]
                yield _Round(others, is_gradual=True)


# By which share the final time may change from one transcription to the next, and how often.
_STRIDE, _STRIDES = 0.1, 40


def _transcribe_gradually(
    transcribe: Callable, problem: Problem, guess: Guess, strides: int
) -> DirectSolution:
    """Transcribe with the final time held close to the guess's, and follow it until it rests.

    Far from a motion that meets the end the objective may pull the time to where there is none.
    """
    earliest, latest = problem.time_bounds
    control_bounds = np.asarray(problem.lower), np.asarray(problem.upper)
    span = control_bounds[1] - control_bounds[0]
    margin = np.where(np.isfinite(span), 0.01 * span, 0.0)
    for _ in range(strides):
        before = guess.final_time
        lower, upper = (1.0 - _STRIDE) * before, (1.0 + _STRIDE) * before
        held = Free(before, jnp.maximum(lower, earliest), jnp.minimum(upper, latest))
        one = transcribe(eqx.tree_at(lambda p: p.final_time, problem, held), guess)
        change = float(one.final_time / before) - 1.0
        moves_on = change < -0.9 * _STRIDE and lower > earliest
        moves_on |= change > 0.9 * _STRIDE and upper < latest
        if not one.converged or not moves_on:
            return one
        # Off the bounds again, where the barrier leaves room to move.
        u = np.clip(one.u, control_bounds[0] + margin, control_bounds[1] - margin)
        x = one.x.copy()
        # Exactly, since the scales are read off the ends of a guess.
        x[-1] = np.where(problem.is_fixed_final, problem.final_state, x[-1])
        guess = jax.tree.map(jnp.asarray, Guess(x, u, one.final_time))
    return one._replace(converged=np.array(False))


def _candidates(problem: Problem, solver: Solver, tried: _Round, stats: dict):
    """Transcriptions from several guesses: the converged ones, best first; all; what went wrong."""
    is_demanding = problem.fixed_final or problem.n_boundary or problem.n_constraints
    every = []
    result = RESULTS.unreachable if is_demanding else RESULTS.transcription_failed
    # As arrays, so that another tolerance does not compile anew.
    numbers = jax.tree.map(jnp.asarray, solver.transcription)

    def transcribe(problem: Problem, guess: Guess) -> DirectSolution:
        one = timed(
            stats,
            "transcription",
            lambda: jax.tree.map(np.asarray, _transcribe(problem, numbers, guess)),
        )
        stats["transcriptions"] += 1
        stats["transcription_steps"] += int(one.steps)
        return one

    for name, guess in tried.guesses:
        left = solver.max_transcriptions - stats["transcriptions"]
        if left <= 0:
            break
        if tried.is_gradual:
            one = _transcribe_gradually(transcribe, problem, guess, min(left, _STRIDES))
        else:
            one = transcribe(problem, guess)
        every.append(one)
        if not np.isfinite(one.infeasibility):
            result = RESULTS.not_finite
        elif not one.converged and one.infeasibility < 1e-3:
            result = RESULTS.transcription_failed
        end = f"objective {one.objective:.6g}" if one.converged else "no motion"
        stats["history"].append(f"transcription from {name}: {end}")
    # Guesses that end in the same motion agree to the accuracy of the transcription only.
    found = [one for one in every if one.converged]
    found.sort(key=lambda one: float(f"{one.objective:.5g}"))
    return found, every, result


def search(
    problem: Problem,
    solver: Solver,
    structure: Sequence | None = None,
    stats: dict | None = None,
) -> Found:
    """Search for a certified extremal from the straight line and other guesses."""
    stats = no_stats() if stats is None else stats
    shot: list = []
    why = None
    for tried in _guess_rounds(problem, solver):
        motions, every, no_motion = _candidates(problem, solver, tried, stats)
        for one in motions:
            outcome = timed(
                stats, "shooting", find_extremal, problem, solver, one, stats, structure, shot
            )
            if outcome is None:
                continue
            certified, result, detail = outcome
            if certified is not None and certified.certificate.passed:
                return Found(certified, RESULTS.successful, stats, one)
            stats["unconfirmed"] += 1
            if why is None or not why.is_conclusive:
                why = Found(certified, result, stats, one, detail)
        if why is None and every:
            why = Found(None, no_motion, stats, every[0])
        why = why.explain(problem)
        # Other final times are for where no motion was found at all.
        if why.is_conclusive or why.last.converged or structure is not None:
            break
    if structure is not None and why.certified is None and why.last.converged:
        why = why._replace(result=RESULTS.imposed_failed)
    return why
