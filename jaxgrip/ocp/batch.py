"""Many problems at once, from the structures of a few."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from jaxgrip.ocp.certificate import Certificate, Extremal, certify, reintegrate
from jaxgrip.ocp.extremals import COMPILER
from jaxgrip.ocp.output import assemble
from jaxgrip.ocp.pipeline import search
from jaxgrip.ocp.problem import Problem
from jaxgrip.ocp.results import RESULTS
from jaxgrip.ocp.shooting import Shooting, solve_shooting
from jaxgrip.ocp.solution import Solution, as_failure, as_solution
from jaxgrip.ocp.solver import Solver

# Problems that are shot together: enough to fill the cores, few enough for the memory.
_CHUNK = 16
# Near a neighbour Newton's iteration converges in fewer steps or not at all.
_MAX_STEPS = 15


@eqx.filter_jit(compiler_options=COMPILER)
def _shoot_alike(numbers, rest, shooting: Shooting, like: Extremal):
    """Results of the shooting and of its re-integration, each with a leading axis."""

    def shoot(numbers):
        problem, scales, features = eqx.combine(numbers, rest), like.scales, like.features
        shot = solve_shooting(problem, shooting, like.plan, like.shot.arcs, scales, features)
        return shot, reintegrate(problem, shot.arcs, scales, features)

    return jax.vmap(shoot)(numbers)


def solve_batch(problems: Problem, *, solver: Solver | None = None) -> list[Solution]:
    """Solve many problems that differ in numbers only.

    The first problem is solved as by [`solve`][]. Its structure and motion start the shooting of
    all others, which runs in one vectorised call; those that end certified are done, and the first
    of those that do not is solved from scratch and starts the rest anew.

    **Arguments:** `problems`, a [`Problem`][] whose every number has a leading axis `(B,)`, as
    `equinox.filter_vmap` returns it; `solver`, default [`Solver`][]`()`.

    **Returns:** `B` solutions; see the `result` of each, nothing is raised for single ones. A
    motion found from another's structure is an extremal, but a better one may exist that
    [`solve`][] would find. `stats["alike"]` is the index of the problem whose structure it has.
    """
    solver = Solver() if solver is None else solver
    steps = min(_MAX_STEPS, solver.shooting.max_steps)
    shooting = dataclasses.replace(solver.shooting, max_steps=steps)
    # As arrays, so that other numbers do not compile anew.
    shooting = jax.tree.map(jnp.asarray, shooting)
    numbers, rest = eqx.partition(problems, eqx.is_inexact_array)
    numbers = jax.tree.map(jnp.asarray, numbers)
    sizes = {leaf.shape[:1] for leaf in jax.tree.leaves(numbers)}
    if len(sizes) != 1 or sizes == {()}:
        raise ValueError(
            "solve_batch needs one leading axis of the same length on every number of problems, "
            f"not the lengths {sorted(sizes)}: build them with equinox.filter_vmap."
        )

    def pick(indices):
        return jax.tree.map(lambda v: v[indices], numbers)

    ((size,),) = sizes
    solutions: list[Solution | None] = [None] * size
    left = list(range(size))
    while left:
        lead = left.pop(0)
        problem = eqx.combine(pick(lead), rest)
        certified, result, stats, last = search(problem, solver).explain(problem)
        stats["alike"] = lead
        if certified is None:
            solutions[lead] = as_failure(problem, result, last, stats)
            continue
        solutions[lead] = _solution(
            problem, certified.extremal, certified.certificate, result, stats
        )
        if left and result == RESULTS.successful:
            found = _solve_alike(pick(np.array(left)), rest, shooting, certified.extremal)
            for index, solution in zip(left, found, strict=True):
                if solution is not None:
                    solution.stats["alike"] = lead
                solutions[index] = solution
            left = [index for index in left if solutions[index] is None]
    return solutions


def _solve_alike(numbers, rest, shooting: Shooting, like: Extremal) -> list[Solution | None]:
    """Certified solutions with the structure of another; None where there is none."""
    solutions: list[Solution | None] = []
    size = len(jax.tree.leaves(numbers)[0])
    for first in range(0, size, _CHUNK):
        # The last chunk is filled up, since another length would compile anew.
        chosen = np.minimum(np.arange(first, first + _CHUNK), size - 1)
        chunk = jax.tree.map(lambda v, chosen=chosen: v[chosen], numbers)
        found = jax.tree.map(np.asarray, _shoot_alike(chunk, rest, shooting, like))
        for index in range(min(_CHUNK, size - first)):
            each, (shot, again) = jax.tree.map(lambda v, index=index: v[index], (chunk, found))
            problem = eqx.combine(each, rest)
            shot = jax.tree.map(jnp.asarray, shot)
            extremal, solution = like._replace(shot=shot), None
            if shot.converged:
                certificate = certify(problem, extremal, again)
                if certificate.passed:
                    stats = {"shooting_steps": int(shot.steps)}
                    solution = _solution(problem, extremal, certificate, RESULTS.successful, stats)
            solutions.append(solution)
    return solutions


def _solution(
    problem: Problem, extremal: Extremal, certificate: Certificate, result: RESULTS, stats: dict
) -> Solution:
    plan, shot, *_ = extremal
    out = assemble(problem, plan, shot.arcs, shot.stages)
    return as_solution(problem, out, extremal, certificate, result, stats)
