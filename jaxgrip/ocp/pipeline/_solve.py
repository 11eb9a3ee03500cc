"""From a problem statement to a certified solution."""

from collections.abc import Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

from jaxgrip.ocp.indirect import tangent_output, without_derivatives
from jaxgrip.ocp.pipeline._continuation import continue_from, find
from jaxgrip.ocp.pipeline._outcome import Outcome, Search
from jaxgrip.ocp.pipeline._results import RESULTS, SolveError
from jaxgrip.ocp.pipeline._solution import Solution
from jaxgrip.ocp.pipeline._solver import Solver
from jaxgrip.ocp.statement import Problem, is_concrete

_ONLY_ONCE = (
    "ocp.solve searches outside jit and vmap and differentiates once: call it with concrete "
    "numbers, or under a single jax.grad, jacfwd or jacrev."
)


def run(
    search: Search, structure: Sequence | None = None, continued_from: Sequence[Problem] = ()
) -> Outcome:
    """Check the numbers of a problem, and search for a certified extremal."""
    if not is_concrete(search.problem):
        raise TypeError(_ONLY_ONCE)
    search.problem.check()
    _check_boundary_conditions(search.problem)
    if structure is not None:
        _check_structure(search.problem, structure)
    if not continued_from:
        outcome = find(search, structure)
    else:
        outcome = continue_from(search, continued_from)
    if outcome.certified is None:
        return outcome
    # A continuation ends at a problem with the same numbers in other functions.
    extremal = outcome.certified.extremal.of(search.problem)
    return outcome._replace(certified=outcome.certified._replace(extremal=extremal))


def _check_boundary_conditions(problem: Problem) -> None:
    """Raise if a condition depends on others or on fixed components, to first order at a guess."""
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
    continued_from: Problem | Sequence[Problem] = (),
    throw: bool = True,
) -> Solution:
    """Solve an optimal control problem and certify the solution.

    Only the problem is needed: a direct transcription started from a straight line shows which
    control is at which bound, multiple shooting with exact switching conditions computes the
    extremal, and every necessary condition is then measured. The search runs outside `jit`;
    `jax.grad`, `jacfwd` and `jacrev` differentiate `solve` by the implicit function theorem.
    Without an extremal all derivatives are NaN.

    **Arguments:** `problem`; `solver`, default [`Solver`][]`()`; `structure`, to impose one instead
    of the search: for each control its segments (kind, end as a share of the final time), the kinds
    as in [`Structure`][], the ends a first guess; `continued_from`, an easier problem with other
    numbers, or several on the way from there, to search at the first and change the numbers little
    by little; `throw`, whether a failure or an uncertified solution raises. The motion of an
    imposed structure is returned even if it breaks a bound; the certificate says what is wrong
    with it.

    **Returns:** a [`Solution`][].

    **Raises:** `ValueError` for a malformed structure, boundary conditions that depend on each
    other and a `continued_from` with other functions; `TypeError` under `jit` or `vmap`;
    [`SolveError`][] with the sentence of its `result` when `throw`.

    Source: Schanzer 2007, sections 5.1 to 5.4.2, pp. 59-72.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"ocp.solve takes a Problem, not {type(problem).__name__}.")
    if isinstance(continued_from, Problem):
        continued_from = (continued_from,)
    if structure is not None and continued_from:
        raise ValueError("solve takes a structure or a problem to continue from, not both.")
    solver = Solver() if solver is None else solver
    # The extremal does not depend on the way to it.
    values, rest = eqx.partition(tuple(continued_from), eqx.is_inexact_array)
    continued_from = eqx.combine(jax.lax.stop_gradient(values), rest)
    arrays, static = eqx.partition(problem, eqx.is_inexact_array)
    kept = {}

    @jax.custom_jvp
    def outputs(arrays):
        search = kept["search"] = Search(eqx.combine(arrays, static), solver)
        # On matrices of a hundred rows threads of BLAS make a step ten times as long.
        with threadpool_limits(1, user_api="blas"):
            outcome = kept["outcome"] = run(search, structure, continued_from)
        return None if outcome.certified is None else outcome.certified.extremal.output()

    @outputs.defjvp
    def outputs_jvp(primals, tangents):
        (arrays,), (change,) = primals, tangents
        if not is_concrete(arrays):
            raise TypeError(_ONLY_ONCE)
        out = outputs(arrays)
        if out is None:
            return out, None
        extremal = kept["outcome"].certified.extremal
        return out, tangent_output(extremal.bvp, extremal.evaluate(), change)

    out = outputs(arrays)
    search, outcome = kept["search"], kept["outcome"]
    solution = outcome.solution(search, out)
    if outcome.certified is None:
        values, rest = eqx.partition(solution, eqx.is_inexact_array)
        solution = eqx.combine(without_derivatives(values, arrays), rest)
    if throw and outcome.result != RESULTS.successful:
        raise SolveError(outcome.sentence(search), solution)
    return solution
