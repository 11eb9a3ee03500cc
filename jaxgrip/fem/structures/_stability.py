"""Buckling: load factors at which the structure loses its stability, by its linear stress."""

import warnings
from collections.abc import Iterable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxgrip.checks import brief, concrete, is_whole
from jaxgrip.fem.element_sum import ElementSum, Rows
from jaxgrip.fem.structures import _balance as balance
from jaxgrip.fem.structures import _deflected as deflected
from jaxgrip.fem.structures import _eigenpairs as eigenpairs
from jaxgrip.fem.structures import _linear as linear
from jaxgrip.fem.structures import _members as members
from jaxgrip.fem.structures._analysis import raised, solve_linear
from jaxgrip.fem.structures._balance import Problem
from jaxgrip.fem.structures._results import RESULTS, Solution, StructureError
from jaxgrip.fem.structures._structure import Structure, check_whole
from jaxgrip.fem.structures.loads import Load
from jaxgrip.mechanism import Poses
from jaxgrip.solve import dense

# Share of the lowest factor that the structure must carry with its deflections.
CARRIED = 0.9


class Buckling(NamedTuple):
    """`factors` (count,) of the loads, ascending, infinite where none; `modes` (count, k, 6).

    Modes are displacements and rotations of the nodes in axes of the ground, largest displacement
    1; zeros where the factor is infinite, or where beams released at both ends buckle between
    nodes that stay in place.
    """

    factors: Float[Array, " count"]
    modes: Float[Array, "count k 6"]


def buckling(
    structure: Structure,
    poses: Poses,
    loads: Load | Iterable[Load],
    *,
    count: int = 1,
    throw: bool = True,
) -> Buckling:
    """Factors of the loads at which the structure buckles, by its linear stress.

    They are right where the structure hardly deflects before it buckles; so the equilibrium of the
    deflected structure is followed, unless within `jit`, up to 0.9 times the lowest factor.

    Every beam is one cubic element: the factor of one that buckles alone between balls at both of
    its ends is 12/π² times Euler's, of two elements 0.75 % above it.

    **Arguments:** as `solve`; `count` of factors.

    **Returns:** `Buckling`, differentiable to any order; of equal factors their sum is, to first
    order, and other derivatives are NaN. Within `jit` NaN where linear statics has no solution.

    **Raises:** as `solve`; `StructureError` when the deflected structure loses its stability below
    0.9 times the lowest factor, where `throw`; `ValueError` for a `count` that is no whole number
    from 1 to that of the degrees of freedom.

    Source: own derivation: buckling about the loaded position, K + factor K_g singular.
    """
    check_whole(structure)
    if not is_whole(count, 1, structure.degrees_of_freedom):
        raise ValueError(
            f"The count of buckling factors is {brief(count)}; give a whole number from 1 to "
            f"{structure.degrees_of_freedom}, that of the degrees of freedom."
        )
    loads = deflected.checked(structure, poses, loads)
    first, _ = solve_linear(structure, poses, loads)
    if throw:
        raised(first)
    found = _buckling(structure, poses, loads, first, int(count))
    if throw and concrete(found.factors) and np.isfinite(found.factors[0]):
        _check_deflected(structure, poses, loads, float(found.factors[0]))
    return found


def _check_deflected(
    structure: Structure, poses: Poses, loads: tuple[Load, ...], factor: float
) -> None:
    """Whether the deflected structure carries what the lowest factor says, nearly."""
    solution, path = deflected.follow(
        structure, poses, loads, jnp.asarray(CARRIED * factor, dtype=float)
    )
    if solution.succeeded:
        return
    says = f"The lowest buckling factor by the linear stress is {factor:.4g}"
    if solution.result in (RESULTS.limit, RESULTS.buckled):
        words = " ".join(deflected.sentences(structure, poses, loads, path))
        raise StructureError(
            f"{says}, which is too high since the structure deflects before. {words} Use "
            "second_order or equilibrium_path.",
            solution,
        )
    warnings.warn(
        f"{says}; whether the deflected structure carries as much could not be found out, since "
        f"its equilibrium was lost at {float(solution.load_factor):.4g} times the loads.",
        stacklevel=3,
    )


@eqx.filter_jit
def _buckling(
    structure: Structure, poses: Poses, loads: tuple[Load, ...], first: Solution, count: int
) -> Buckling:
    problem = members.problem(structure, poses, loads)
    taut = _taut(structure, problem, first)
    sums = _linear_stress(problem, taut, large=False)
    whole, stress, equations = (matrix.dense() for matrix in sums)
    matrices = whole, (stress + stress.T) / 2, equations
    found = eigenpairs.lowest(matrices, count)
    modes = balance.shapes(problem, problem.start(), found.shape.T)
    modes = modes[:, : len(structure.layout.root)]
    largest = jnp.max(jnp.abs(modes[..., :3]), axis=(1, 2))
    # Else the rounding of a mode without displacements would be blown up.
    seen = found.exists & (largest > 1e-9 * jnp.max(jnp.abs(found.shape), axis=1))
    modes = jnp.where(
        seen[:, None, None], modes / jnp.where(seen, largest, 1.0)[:, None, None], 0.0
    )
    known = jnp.where(first.succeeded & jnp.all(jnp.isfinite(found.value)), 1.0, jnp.nan)
    return Buckling(known * jnp.where(found.exists, found.value, jnp.inf), known * modes)


def geometric_stiffness(
    structure: Structure, poses: Poses, loads: tuple[Load, ...], first: Solution
) -> ElementSum:
    """Stiffness of the whole structure by the linear stress of the loads, in the axes of the parts.

    **Arguments:** as `solve`; `first`: what it has found. Ends that are released follow the nodes
    as they do without this stiffness.
    """
    if structure.solids:
        raise ValueError(
            "The structure has solids, whose geometric stiffness is not known; leave out the loads."
        )
    problem = members.problem(structure, poses, loads)
    elastic, stress, _ = _linear_stress(
        problem, _taut(structure, problem, first), linear.is_large(structure.degrees_of_freedom)
    )
    turn = jnp.concatenate([structure.rotations(poses), jnp.eye(3)[None]])
    groups = []
    for group, (index, k), (_, g) in zip(
        problem.groups, elastic.groups, stress.groups, strict=True
    ):
        count = 6 * group.stations.shape[1]
        if group.releases is not None:
            mask = jnp.asarray(group.releases < problem.releases)
            both = mask[:, :, None] & mask[:, None, :]
            inner = jnp.where(both, k[:, count:, count:], 0.0)
            inner += jnp.where(mask[:, :, None], 0.0, jnp.eye(12)[None])
            across = jnp.where(mask[:, :, None], k[:, count:, :count], 0.0)
            follow = -dense.solve(inner, across, positive=True)
            nodes = jnp.broadcast_to(jnp.eye(count), (len(k), count, count))
            every = jnp.concatenate([nodes, follow], axis=1)
            g = jnp.einsum("mia,mij,mjb->mab", every, g, every)
        axes = jnp.repeat(turn[group.stations], 2, axis=1)
        size = len(g), count // 3, 3, count // 3, 3
        g = jnp.einsum("miba,mibjc,mjcd->miajd", axes, g.reshape(size), axes)
        g = g.reshape(-1, count, count)
        groups.append((index[:, :count], (g + jnp.swapaxes(g, 1, 2)) / 2))
    return ElementSum(structure.degrees_of_freedom, groups)


def _taut(structure: Structure, problem: Problem, first: Solution) -> Bool[Array, " l"]:
    """Which lines carry force by a linear solution."""
    springs = len(first.taut) - structure.layout.row_springs
    stiff = len(problem.tension_only) - springs
    return jnp.concatenate([jnp.ones(stiff, dtype=bool), first.taut[:springs]])


def _linear_stress(
    problem: Problem, taut: Array, large: bool
) -> tuple[ElementSum, ElementSum, Rows]:
    """Stiffness, geometric stiffness by the linear solution, equations."""
    problem, start = members.at_rest(problem), problem.start()
    here = balance.element_wise(problem, start, taut)
    stiffness, slope = here.stiffness, here.slope
    if not large:
        stiffness, slope = stiffness.dense(), slope.dense()
    factor = linear.factorise(stiffness, slope)
    gap = jnp.zeros(problem.rows)
    q, multipliers = linear.solve(stiffness, slope, factor, -here.load_derivative, gap)
    stresses = tuple(stress.rate(q) for stress in here.stresses)
    loaded = start._replace(multipliers=multipliers, load_factor=jnp.ones(()))
    stressed = balance.element_wise(members.stressed(problem, stresses), loaded, taut, stresses)
    return here.stiffness, stressed.stiffness, here.slope
