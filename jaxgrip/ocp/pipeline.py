"""From a problem statement to a certified solution."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxgrip.ocp.conditions import evaluate_stages
from jaxgrip.ocp.diagnosis import describe_miss, find_kink
from jaxgrip.ocp.extremals import COMPILER, Certified, find_extremal, follow
from jaxgrip.ocp.output import Linearised, Output, tangent_output
from jaxgrip.ocp.problem import Problem
from jaxgrip.ocp.results import RESULTS, SolveError
from jaxgrip.ocp.solution import Solution, as_failure, as_solution
from jaxgrip.ocp.solver import Solver
from jaxgrip.ocp.statement import Free, is_concrete
from jaxgrip.ocp.transcription import (
    Guess,
    Transcribed,
    bent_line,
    solve_transcription,
    straight_line,
)

_transcribe = eqx.filter_jit(solve_transcription, compiler_options=COMPILER)
expand_stages = eqx.filter_jit(evaluate_stages, compiler_options=COMPILER)


_ONLY_ONCE = (
    "ocp.solve searches outside jit and vmap and differentiates once: call it with concrete "
    "numbers, or under a single jax.grad, jacfwd or jacrev."
)


def _timed(stats: dict, key: str, function, *args):
    began = time.perf_counter()
    out = function(*args)
    stats[f"{key}_s"] += time.perf_counter() - began
    return out


class _Round(NamedTuple):
    """Guesses to try together; with `is_gradual` their final times change little by little."""

    guesses: list[Guess]
    is_gradual: bool


# By which share the final time may change from one transcription to the next, and how often.
_STRIDE, _STRIDES = 0.1, 40


def _transcribe_gradually(transcribe: Callable, problem: Problem, guess: Guess) -> Transcribed:
    """Transcribe with the final time held close to the guess's, and follow it until it rests.

    Far from a motion that meets the end the objective may pull the time to where there is none.
    """
    earliest, latest = problem.time_bounds
    control_bounds = np.asarray(problem.lower), np.asarray(problem.upper)
    span = control_bounds[1] - control_bounds[0]
    margin = np.where(np.isfinite(span), 0.01 * span, 0.0)
    for _ in range(_STRIDES):
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
    every, result = [], RESULTS.unreachable
    # As arrays, so that another tolerance does not compile anew.
    numbers = jax.tree.map(jnp.asarray, solver.transcription)

    def transcribe(problem: Problem, guess: Guess) -> Transcribed:
        one = _timed(
            stats,
            "transcription",
            lambda: jax.tree.map(np.asarray, _transcribe(problem, numbers, guess)),
        )
        stats["transcriptions"] += 1
        stats["transcription_steps"] += int(one.steps)
        return one

    for guess in tried.guesses:
        if tried.is_gradual:
            one = _transcribe_gradually(transcribe, problem, guess)
        else:
            one = transcribe(problem, guess)
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
    """What to try; a further round only where the one before led nowhere."""
    intervals = solver.transcription.intervals
    guesses = [straight_line(problem, intervals)]
    guesses += [bent_line(problem, intervals, seed) for seed in range(1, solver.starts)]
    yield _Round(guesses, is_gradual=False)
    if problem.is_time_free:
        earliest, latest = problem.time_bounds
        for factor in (1.0, 2.0, 0.5, 4.0, 8.0):
            final_time = guesses[0].final_time * factor
            if earliest < final_time < latest:
                others = [guess._replace(final_time=final_time) for guess in guesses]
                yield _Round(others, is_gradual=True)


class Found(NamedTuple):
    """The best certified extremal, else an uncertified one, else None; why; the `last` motion of a
    transcription; counts, times and the history of the search.
    """

    certified: Certified | None
    result: RESULTS
    stats: dict
    last: Transcribed

    def explain(self, problem: Problem) -> "Found":
        """Name a kink on the way where there is one, and what a motion misses most."""
        certified, result, last = self.certified, self.result, self.last
        detail = self.stats["detail"]
        if result == RESULTS.unreachable:
            detail = describe_miss(problem, last)
        elif certified is not None and result == RESULTS.not_certified:
            detail = f"failed: {', '.join(certified.certificate.failed)}"
        if result in _SPOILT_BY_KINKS:
            kink = find_kink(problem, *_motion(certified, last))
            if kink is not None:
                result, detail = RESULTS.not_smooth, f"at {kink:.6g} s"
        self.stats["detail"] = detail
        return self._replace(result=result)

    def solution(self, problem: Problem, out: Output | None = None) -> Solution:
        """The solution object, from the extremal's dense output where that is known already."""
        if self.certified is None:
            return as_failure(problem, self.result, self.last, self.stats)
        extremal, certificate, _ = self.certified
        out = out or extremal.output(problem)
        return as_solution(problem, out, extremal, certificate, self.result, self.stats)


_SPOILT_BY_KINKS = (
    RESULTS.transcription_failed,
    RESULTS.shooting_failed,
    RESULTS.structure_failed,
    RESULTS.too_many_arcs,
    RESULTS.not_certified,
)


def _motion(certified: Certified | None, last: Transcribed):
    """Times, states and controls."""
    if certified is None:
        t = np.linspace(0.0, float(last.final_time), len(last.x))
        return 0.5 * (t[1:] + t[:-1]), 0.5 * (last.x[1:] + last.x[:-1]), last.u
    course = certified.track.course
    return course.t, course.x, course.u


def search(problem: Problem, solver: Solver, structure: Sequence | None = None) -> Found:
    """Search for a certified extremal from the straight line and other guesses."""
    _check(problem)
    if structure is not None:
        _check_structure(problem, structure)
    stats = _no_stats()
    why, last, uncertified = None, None, None
    for tried in _guess_rounds(problem, solver):
        found, every, result = _candidates(problem, solver, tried, stats)
        for one in found:
            stats["history"].append(f"transcription with the objective {one.objective:.6g}")
            certified, result = _timed(
                stats, "shooting", find_extremal, problem, solver, one, stats, structure
            )
            if certified is not None and certified.certificate.passed:
                return Found(certified, RESULTS.successful, stats, one)
            stats["unconfirmed"] += 1
            if result != RESULTS.chattering:
                result = RESULTS.not_certified if certified is not None else result
            if uncertified is None and result in (RESULTS.not_certified, RESULTS.chattering):
                uncertified = Found(certified, result, stats, one)
        if uncertified is not None:
            return uncertified
        if why is None:
            why, last = result, every[0]
        if structure is not None:
            why = RESULTS.imposed_failed if found else why
            break
    return Found(None, why, stats, last)


def _check(problem: Problem) -> None:
    if not is_concrete(problem):
        raise TypeError(_ONLY_ONCE)
    problem.check()
    _check_boundary_conditions(problem)


def _no_stats() -> dict:
    counts = ("transcriptions", "transcription_steps", "rounds", "shooting_steps", "unconfirmed")
    times = ("transcription_s", "shooting_s")
    return dict.fromkeys(counts, 0) | dict.fromkeys(times, 0.0) | {"history": [], "detail": ""}


_SHORTEST_STRIDE = 1e-3


def continue_from(problem: Problem, solver: Solver, easier: Problem) -> Found:
    """Search for an extremal of another problem, and change its numbers until it is this one."""
    _check(problem)
    numbers, rest = eqx.partition(problem, eqx.is_inexact_array)
    others, other_rest = eqx.partition(easier, eqx.is_inexact_array)
    shapes = [[leaf.shape for leaf in jax.tree.leaves(each)] for each in (numbers, others)]
    if shapes[0] != shapes[1] or not eqx.tree_equal(rest, other_rest):
        raise ValueError(
            "continued_from must be a Problem that differs in numbers only, with the same "
            "functions; numbers that they close over must be JAX arrays."
        )
    found = search(easier, solver)
    if found.result != RESULTS.successful:
        sentence = RESULTS[found.explain(easier).result].split(":")[0]
        found.stats["detail"] = f"the easier problem itself was not solved: {sentence}"
        return found._replace(certified=None, result=RESULTS.continuation_failed)
    stats, share, stride = found.stats, 0.0, 1.0
    while share < 1.0:
        reached = min(share + stride, 1.0)
        mixed = jax.tree.map(partial(_between, reached), others, numbers)
        stats["history"].append(f"numbers at {reached:.4g} of the way")
        problem = eqx.combine(mixed, rest)
        certified = _timed(stats, "shooting", follow, problem, solver, found.certified, stats)
        if certified is not None and certified.certificate.passed:
            found, share, stride = found._replace(certified=certified), reached, 2.0 * stride
        elif stride < _SHORTEST_STRIDE:
            stats["detail"] = f"at {share:.4g} of the way"
            return Found(None, RESULTS.continuation_failed, stats, found.last)
        else:
            stride *= 0.5
    return found


def _between(share: float, start: Array, end: Array) -> Array:
    """Numbers a share of the way between others; where one is infinite, the latter."""
    is_finite = jnp.isfinite(start) & jnp.isfinite(end)
    start = jnp.where(is_finite, start, end)
    return jnp.where(start == end, end, start + share * (end - start))


def _check_boundary_conditions(problem: Problem) -> None:
    """Raise where a condition depends on others or on what is fixed, to first order at a guess."""
    if not problem.n_boundary:
        return
    start, end = np.asarray(problem.initial_state), np.asarray(problem.final_state)
    by_start, by_time, by_end = (
        np.asarray(each)
        for each in jax.jacfwd(problem.boundary, argnums=(0, 1, 2))(
            jnp.asarray(start), problem.time_guess, jnp.asarray(end)
        )
    )
    parts = [by_start[:, ~problem.is_fixed_initial], by_end[:, ~problem.is_fixed_final]]
    if problem.is_time_free:
        parts.append(by_time[:, None])
    rows = np.concatenate(parts, axis=1)
    for i in range(len(rows)):
        rest = rows[i]
        if i:
            known, *_ = np.linalg.lstsq(rows[:i].T, rest, rcond=None)
            rest = rest - known @ rows[:i]
        if np.linalg.norm(rest) <= 1e-10 * np.linalg.norm([by_start[i], by_end[i]]):
            raise ValueError(
                f"boundary_conditions[{i}] follows from the others and from what initial_state "
                "and final_state fix, or contradicts them, to first order at the guessed ends: "
                "leave it out, free a component, or guess other ends."
            )


def _check_structure(problem: Problem, structure: Sequence) -> None:
    if len(structure) != problem.m:
        raise ValueError(
            f"structure has {len(structure)} lists of segments; it must have one for each of the "
            f"{problem.m} controls."
        )
    for j, row in enumerate(structure):
        ends = [0.0, *(end for _, end in row)]
        if ends[-1] != 1.0 or any(end <= start for start, end in pairwise(ends)):
            raise ValueError(
                f"structure of control {j}: the ends of its segments must increase from above 0 "
                f"to 1, not {ends[1:]}."
            )
        unknown = [kind for kind, _ in row if kind not in range(-1, 5)]
        if unknown:
            raise ValueError(
                f"structure of control {j}: there is no kind {unknown[0]}; see Structure."
            )
        if any(kind > 2 for kind, _ in row) and j not in problem.limited:
            raise ValueError(
                f"structure of control {j}: its rate is at a bound, but rate_bounds has none."
            )


def solve(
    problem: Problem,
    *,
    solver: Solver | None = None,
    structure: Sequence[Sequence[tuple[int, float]]] | None = None,
    continued_from: Problem | None = None,
    throw: bool = True,
) -> Solution:
    """Solve an optimal control problem and certify the solution.

    Nothing but the problem is needed: a direct transcription started from a straight line shows
    which control sits on which bound, multiple shooting with exact switching conditions computes
    the extremal, and every necessary condition is then measured. The search runs outside `jit`;
    `jax.grad` and its kin go through `solve` by the implicit function theorem.

    **Arguments:** `problem`; `solver`, default [`Solver`][]`()`; `structure`, to impose one instead
    of the search: for each control its segments (kind, end as a share of the final time), the kinds
    as in [`Structure`][], the ends a first guess; `continued_from`, an easier problem with other
    numbers, to search there and change the numbers little by little; `throw`, whether a failure or
    an uncertified solution raises. The certificate tells what is wrong with a structure.

    **Returns:** a [`Solution`][].

    **Raises:** `ValueError` for a malformed structure, boundary conditions that depend on each
    other and a `continued_from` with other functions; `TypeError` under `jit` or `vmap`;
    [`SolveError`][] with the sentence of its `result` when `throw`.

    Source: specs/000b, sections 1 and 2.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"ocp.solve takes a Problem, not {type(problem).__name__}.")
    if structure is not None and continued_from is not None:
        raise ValueError("solve takes a structure or a problem to continue from, not both.")
    solver = Solver() if solver is None else solver
    arrays, static = eqx.partition(problem, eqx.is_inexact_array)
    kept = {}

    @jax.custom_jvp
    def outputs(arrays):
        problem = eqx.combine(arrays, static)
        if continued_from is None:
            found = search(problem, solver, structure)
        else:
            found = continue_from(problem, solver, continued_from)
        kept["found"], certified = found, found.certified
        if certified is None:
            return None
        return certified.extremal.output(problem)

    @outputs.defjvp
    def outputs_jvp(primals, tangents):
        (arrays,), (change,) = primals, tangents
        if not is_concrete(arrays):
            raise TypeError(_ONLY_ONCE)
        out = outputs(arrays)
        if out is None:
            return out, None
        problem = eqx.combine(arrays, static)
        extremal = kept["found"].certified.extremal
        where = (extremal.plan, extremal.shot.arcs, extremal.scales, extremal.features)
        stages, jacobian = expand_stages(problem, *where)
        change = tangent_output(problem, change, Linearised(*where, stages.value, jacobian))
        return out, change

    out = outputs(arrays)
    found = kept["found"].explain(problem)
    solution = found.solution(problem, out)
    if throw and found.result != RESULTS.successful:
        detail = f" ({found.stats['detail']})." if found.stats["detail"] else "."
        raise SolveError(RESULTS[found.result][:-1] + detail, solution)
    return solution
