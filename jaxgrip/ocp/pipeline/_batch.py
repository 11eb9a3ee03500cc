"""Many problems at once, from the structures of a few."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from optimistix import max_norm

from jaxgrip.ocp.certificate import certify, measure
from jaxgrip.ocp.indirect import (
    Arcs,
    Evaluation,
    Extremal,
    Shooting,
    Shot,
    corrector,
    dense_output,
    evaluate,
    residuals,
    solve_nearby,
)
from jaxgrip.ocp.pipeline._outcome import Search
from jaxgrip.ocp.pipeline._results import RESULTS
from jaxgrip.ocp.pipeline._solution import Solution, as_solution
from jaxgrip.ocp.pipeline._solve import run
from jaxgrip.ocp.pipeline._solver import Solver
from jaxgrip.ocp.statement import Problem
from jaxgrip.solve.fusion import jit_plainly

# Problems that are shot together: enough to fill the cores, few enough for the memory.
_CHUNK = 32


@jit_plainly
def _shoot_alike(numbers, rest, shooting: Shooting, like: Extremal, at: Evaluation):
    correct = corrector(like.bvp, at)
    return solve_nearby(numbers, rest, shooting, like.bvp, like.shot.arcs, correct)


@jit_plainly
def _examine_alike(numbers, rest, shooting: Shooting, like: Extremal, arcs: Arcs, steps):
    """Shot, measurements for its certificate and dense output, each with a leading axis."""

    def examine(numbers, arcs, steps):
        bvp = like.of(eqx.combine(numbers, rest)).bvp
        at = evaluate(bvp, arcs)
        norm = max_norm(residuals(bvp, at))
        shot = Shot(arcs, at.stages, norm, steps, norm < shooting.tolerance)
        return shot, measure(bvp, arcs), dense_output(bvp, arcs, at.stages)

    return jax.vmap(examine)(numbers, arcs, steps)


def _in_chunks(function, inputs):
    """NumPy results of a function of arrays with a leading axis, a chunk at a time."""
    size = len(jax.tree.leaves(inputs)[0])
    results = []
    for first in range(0, size, _CHUNK):
        # The last chunk is filled up, since another length would recompile.
        chosen = np.minimum(np.arange(first, first + _CHUNK), size - 1)
        out = function(jax.tree.map(lambda v, chosen=chosen: v[chosen], inputs))
        results.append(jax.tree.map(lambda v, last=size - first: np.asarray(v)[:last], out))
    return jax.tree.map(lambda *each: np.concatenate(each), *results)


def _positions(numbers) -> np.ndarray:
    """Each problem's numbers in units of their spread `(B, d)`."""
    leaves = jax.tree.leaves(jax.tree.map(np.asarray, numbers))
    flat = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
    flat = flat[:, np.all(np.isfinite(flat), axis=0)]
    spread = np.std(flat, axis=0)
    return flat[:, spread > 0.0] / spread[spread > 0.0]


def solve_batch(problems: Problem, *, solver: Solver | None = None) -> list[Solution]:
    """Solve many problems that differ in numbers only.

    The one whose numbers are nearest to the mean is solved as by [`solve`][]. All others are shot
    from its structure, motion and Jacobian, vectorised. Of those that do not end certified the one
    nearest to their mean is solved from scratch, and the rest are shot from it, until none is left.

    **Arguments:** `problems`, a [`Problem`][] whose every number has a leading axis `(B,)`, as
    `equinox.filter_vmap` returns it; `solver`, default [`Solver`][]`()`.

    **Returns:** `B` solutions; a single failure is in the `result` of its solution and not raised.
    A motion found from another's structure is an extremal, but [`solve`][] might find a better one.
    `stats["alike"]` is the index of the problem whose structure it has.

    **Raises:** `ValueError` where the numbers have no common leading axis, or those of one problem
    contradict each other.
    """
    solver = Solver() if solver is None else solver
    # As arrays, so that other numbers do not recompile.
    shooting = jax.tree.map(jnp.asarray, solver.shooting)
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
    host = jax.tree.map(np.asarray, numbers)
    for index in range(size):
        try:
            eqx.combine(jax.tree.map(lambda v, i=index: v[i], host), rest).check()
        except ValueError as error:
            raise ValueError(f"Problem {index}: {error}") from None
    positions = _positions(numbers)
    left = np.arange(size)
    while left.size:
        middle = np.mean(positions[left], axis=0)
        lead = left[np.argmin(np.linalg.norm(positions[left] - middle, axis=1))]
        distance = np.linalg.norm(positions[left] - positions[lead], axis=1)
        # Those at one distance take as many steps.
        _, *left = left[np.argsort(distance, kind="stable")]
        problem = eqx.combine(pick(lead), rest)
        search = Search(problem, solver)
        outcome = run(search)
        search.stats["alike"] = int(lead)
        solutions[lead] = outcome.solution(search)
        if left and outcome.result == RESULTS.successful:
            like = outcome.certified.extremal
            alike = _solve_alike(pick(np.array(left)), rest, shooting, like)
            for index, solution in zip(left, alike, strict=True):
                if solution is not None:
                    solution.stats["alike"] = int(lead)
                solutions[index] = solution
        left = np.array([index for index in left if solutions[index] is None], dtype=int)
    return solutions


def _solve_alike(numbers, rest, shooting: Shooting, like: Extremal) -> list[Solution | None]:
    """Certified solutions with the structure of another; None where there is none."""
    at = like.evaluate()
    arcs, steps, plausible = _in_chunks(
        lambda n: _shoot_alike(n, rest, shooting, like, at), numbers
    )
    solutions: list[Solution | None] = [None] * len(steps)
    chosen = np.flatnonzero(plausible)
    if not chosen.size:
        return solutions
    kept = jax.tree.map(lambda v: np.asarray(v)[chosen], (numbers, arcs, steps))
    examined = _in_chunks(lambda v: _examine_alike(v[0], rest, shooting, like, *v[1:]), kept)
    for position, index in enumerate(chosen):
        one, (shot, measured, out) = jax.tree.map(
            lambda v, position=position: v[position], (kept[0], examined)
        )
        extremal = like._replace(shot=shot).of(eqx.combine(one, rest))
        certificate = certify(extremal, measured)
        if shot.converged and certificate.passed:
            stats = {"shooting_steps": int(shot.steps)}
            solutions[index] = as_solution(
                jax.device_put(out), extremal, certificate, RESULTS.successful, stats
            )
    return solutions
