"""Many problems at once, from the structures of a few."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from optimistix import max_norm

from jaxgrip.ocp.certificate import certify, measure
from jaxgrip.ocp.indirect import (
    Extremal,
    Shooting,
    ShootingResult,
    Shot,
    assemble,
    corrector,
    evaluate_ends,
    evaluate_stages,
    residuals,
    solve_nearby,
)
from jaxgrip.ocp.pipeline._results import RESULTS
from jaxgrip.ocp.pipeline._solution import Solution, as_solution
from jaxgrip.ocp.pipeline._solve import expand_stages, search
from jaxgrip.ocp.pipeline._solver import Solver
from jaxgrip.ocp.statement import Problem
from jaxgrip.solve.fusion import jit_plainly

# Problems that are shot together: enough to fill the cores, few enough for the memory.
_CHUNK = 32


@jit_plainly
def _shoot_alike(numbers, rest, shooting: Shooting, lead: Problem, like: Extremal, linearised):
    return solve_nearby(numbers, rest, shooting, like, corrector(lead, like, *linearised))


@jit_plainly
def _examine_alike(numbers, rest, shooting: Shooting, like: Extremal, shot: Shot):
    """Full result of the shooting, what certifies it and its output, each with a leading axis."""

    def examine(numbers, shot):
        problem, where = eqx.combine(numbers, rest), (like.plan, shot.arcs, like.scales)
        stages, _ = evaluate_stages(problem, *where, like.features)
        ends = evaluate_ends(problem, shot.arcs, like.features)
        residual = residuals(problem, *where, like.features, stages.value, ends)
        norm = max_norm(residual)
        result = ShootingResult(shot.arcs, stages, norm, shot.steps, norm < shooting.tolerance)
        measured = measure(problem, *where, like.features)
        return result, measured, assemble(problem, like.plan, shot.arcs, stages)

    return jax.vmap(examine)(numbers, shot)


def _in_chunks(function, inputs):
    """NumPy results of a function of arrays with a leading axis, a chunk at a time."""
    size = len(jax.tree.leaves(inputs)[0])
    results = []
    for first in range(0, size, _CHUNK):
        # The last chunk is filled up, since another length would compile anew.
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

    The one whose numbers are nearest to the mean is solved as by [`solve`][]. Its structure, motion
    and Jacobian serve the shooting of all others, which runs vectorised; those that end certified
    are done, and of those that do not the one in their middle is solved from scratch and serves
    the rest.

    **Arguments:** `problems`, a [`Problem`][] whose every number has a leading axis `(B,)`, as
    `equinox.filter_vmap` returns it; `solver`, default [`Solver`][]`()`.

    **Returns:** `B` solutions; see the `result` of each, nothing is raised for single ones. A
    motion found from another's structure is an extremal, but a better one may exist that
    [`solve`][] would find. `stats["alike"]` is the index of the problem whose structure it has.

    **Raises:** `ValueError` where the numbers have no common leading axis, or those of one problem
    contradict each other.
    """
    solver = Solver() if solver is None else solver
    # As arrays, so that other numbers do not compile anew.
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
        found = search(problem, solver)
        found.stats["alike"] = int(lead)
        solutions[lead] = found.solution(problem)
        if left and found.result == RESULTS.successful:
            like = found.certified.extremal
            alike = _solve_alike(pick(np.array(left)), rest, shooting, problem, like)
            for index, solution in zip(left, alike, strict=True):
                if solution is not None:
                    solution.stats["alike"] = int(lead)
                solutions[index] = solution
        left = np.array([index for index in left if solutions[index] is None], dtype=int)
    return solutions


def _solve_alike(
    numbers, rest, shooting: Shooting, lead: Problem, like: Extremal
) -> list[Solution | None]:
    """Certified solutions with the structure of another; None where there is none."""
    stages, jacobian = expand_stages(lead, like.plan, like.shot.arcs, like.scales, like.features)
    linearised = stages.value, jacobian
    shot = _in_chunks(lambda n: _shoot_alike(n, rest, shooting, lead, like, linearised), numbers)
    solutions: list[Solution | None] = [None] * len(shot.steps)
    chosen = np.flatnonzero(shot.plausible)
    if not chosen.size:
        return solutions
    numbers, shot = jax.tree.map(lambda v: np.asarray(v)[chosen], (numbers, shot))
    examined = _in_chunks(
        lambda v: _examine_alike(v[0], rest, shooting, like, v[1]), (numbers, shot)
    )
    like = jax.tree.map(np.asarray, like)
    for position, index in enumerate(chosen):
        one, (result, measured, out) = jax.tree.map(
            lambda v, position=position: v[position], (numbers, examined)
        )
        problem, extremal = eqx.combine(one, rest), like._replace(shot=result)
        certificate = certify(problem, extremal, measured)
        if result.converged and certificate.passed:
            stats = {"shooting_steps": int(result.steps)}
            solutions[index] = as_solution(
                problem, jax.device_put(out), extremal, certificate, RESULTS.successful, stats
            )
    return solutions
