"""A problem reached from an easier one, whose numbers change little by little."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.ocp.pipeline._outcome import UNEXPLAINED, Outcome, Search
from jaxgrip.ocp.pipeline._refinement import follow
from jaxgrip.ocp.pipeline._results import RESULTS
from jaxgrip.ocp.pipeline._search import run_search, search_along
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure import constraint_values

_SHORTEST_STRIDE = 1e-3
# Budget for an easier problem that the search makes itself: shootings of a structure,
# transcriptions, shootings on the way back.
_ROUNDS, _TRANSCRIPTIONS, _STEPS = 6, 4, 16


def continue_from(search: Search, way: Sequence[Problem]) -> Outcome:
    """Search for an extremal along a way of easier problems.

    First from their direct solutions. If that fails, an extremal of the first one is followed along
    the way, while its numbers change until it is this one.
    """
    numbers, rest = eqx.partition(search.problem, eqx.is_inexact_array)
    for each in way:
        others, other_rest = eqx.partition(each, eqx.is_inexact_array)
        shapes = [[leaf.shape for leaf in jax.tree.leaves(side)] for side in (numbers, others)]
        if shapes[0] != shapes[1] or not eqx.tree_equal(rest, other_rest):
            raise ValueError(
                "continued_from must be a Problem that differs in numbers only, with the same "
                "functions; numbers that they close over must be JAX arrays."
            )
    found = search_along(search, way)
    if found is not None:
        return found
    easier = way[0]
    found = run_search(dataclasses.replace(search, problem=easier))
    if found.result != RESULTS.successful:
        sentence = RESULTS[found.result].split(":")[0]
        detail = f"the easier problem itself was not solved: {sentence}"
        return Outcome(RESULTS.continuation_failed, detail=detail, direct=found.direct)
    for before, after in pairwise([*way, search.problem]):
        step = dataclasses.replace(search, problem=after)
        found = _walk(step, before, found, search.solver.max_shootings)
        if found.result != RESULTS.successful:
            break
    return found


def _walk(search: Search, easier: Problem, found: Outcome, most: int) -> Outcome:
    """Follow an extremal of an easier problem to this one, with at most so many shootings."""
    numbers, rest = eqx.partition(search.problem, eqx.is_inexact_array)
    others, _ = eqx.partition(easier, eqx.is_inexact_array)
    share, stride = 0.0, 1.0
    while share < 1.0:
        if stride < _SHORTEST_STRIDE or search.stats["rounds"] >= most:
            detail = f"at {share:.4g} of the way"
            return Outcome(RESULTS.continuation_failed, detail=detail, direct=found.direct)
        reached = min(share + stride, 1.0)
        mixed = jax.tree.map(partial(_between, reached), others, numbers)
        search.note(f"numbers at {reached:.4g} of the way")
        step = dataclasses.replace(search, problem=eqx.combine(mixed, rest))
        certified = search.timed("shooting", follow, step, found.certified, most)
        if certified is not None and certified.certificate.passed:
            found, share, stride = found._replace(certified=certified), reached, 2.0 * stride
        else:
            stride = 0.5 * (reached - share)
    return found


def _between(share: float, start: Array, end: Array) -> Array:
    """Numbers at a share of the way from `start` to `end`; the latter where one is infinite."""
    is_finite = jnp.isfinite(start) & jnp.isfinite(end)
    start = jnp.where(is_finite, start, end)
    return jnp.where(start == end, end, start + share * (end - start))


def find(search: Search, structure: Sequence | None = None) -> Outcome:
    """Search for an extremal; if that fails, for one of an easier problem, and follow that.

    Easier is a problem with looser bounds on states and paths, with another final time if that is
    fixed, or with wider bounds on the controls.
    """
    found = run_search(search, structure)
    if structure is not None or found.result not in UNEXPLAINED:
        return found
    if found.certified is not None and found.certified.certificate.is_too_coarse:
        return found
    solver, stats = search.solver, search.stats
    for words, easier, target, loosened in _easier(search.problem):
        if stats["rounds"] >= solver.max_shootings:
            break
        if stats["transcriptions"] >= solver.max_transcriptions:
            break
        few = dataclasses.replace(
            solver,
            max_rounds=min(_ROUNDS, solver.max_rounds),
            max_transcriptions=min(
                stats["transcriptions"] + _TRANSCRIPTIONS, solver.max_transcriptions
            ),
        )
        search.note(f"continuation from {words}")
        other = run_search(Search(easier, few, stats))
        if other.result == RESULTS.successful:
            most = min(stats["rounds"] + _STEPS, solver.max_shootings)
            reached = _walk(Search(target, few, stats), loosened(other), other, most)
            if reached.result == RESULTS.successful:
                return reached
    return found


def _easier(problem: Problem) -> Iterator[tuple[str, Problem, Problem, Callable]]:
    """Easier problems: description, the easier problem, the problem to reach, and a function of
    the outcome that returns the problem to start from.
    """
    if problem.n_constraints:
        none = jnp.zeros(problem.n_constraints)
        yield (
            "no bounds on states and paths",
            _loosen(problem, none + jnp.inf),
            _loosen(problem, none),
            lambda found: _loosen(problem, _excess(problem, found)),
        )
    if not problem.is_time_free:
        for factor in (0.5, 0.25, 2.0):
            time = factor * problem.final_time
            easier = eqx.tree_at(lambda p: p.final_time, problem, time)
            yield f"the final time {float(time):.4g} s", easier, problem, lambda _, p=easier: p
    span = problem.upper - problem.lower
    if np.any(np.isfinite(span)):
        # A bound without one opposite stays where it is.
        more = jnp.where(jnp.isfinite(span), 0.5 * span, 0.0)
        wider = problem.lower - more, problem.upper + more
        easier = eqx.tree_at(lambda p: (p.lower, p.upper), problem, wider)
        yield "control bounds twice as wide", easier, problem, lambda _: easier


class _Loosened(eqx.Module):
    """Path constraints minus the excess that is allowed."""

    constraints: Callable
    excess: Float[Array, " c"]

    def __call__(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " c"]:
        """The constraints."""
        return self.constraints(x, u) - self.excess


def _loosen(problem: Problem, excess: Float[Array, " c"]) -> Problem:
    """The problem with constraints that may exceed zero by `excess`."""
    above, below = np.array(problem.bounded_above, int), np.array(problem.bounded_below, int)
    by_upper, by_lower, by_path = jnp.split(excess, np.cumsum([len(above), len(below)]))
    looser = eqx.tree_at(
        lambda p: (p.state_upper, p.state_lower),
        problem,
        (problem.state_upper.at[above].add(by_upper), problem.state_lower.at[below].add(-by_lower)),
    )
    if problem.path_constraints is None:
        return looser
    path = _Loosened(problem.path_constraints, by_path)
    return eqx.tree_at(lambda p: p.path_constraints, looser, path)


def _excess(problem: Problem, found: Outcome) -> Float[Array, " c"]:
    """Largest value of each constraint along a motion, with a margin; zero if not positive."""
    motion = found.certified.candidate.trajectory
    most = np.max(np.asarray(constraint_values(problem, motion.x, motion.u)), axis=0)
    return jnp.asarray(np.where(most > 0.0, 1.001 * most, 0.0))
