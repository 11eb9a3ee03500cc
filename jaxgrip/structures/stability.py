"""Buckling: load factors at which the structure loses its stability, by its linear stress."""

import warnings
from collections.abc import Iterable
from numbers import Integral
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import brief, concrete
from jaxgrip.mechanism import Poses
from jaxgrip.solve import dense
from jaxgrip.structures import balance, deflected, linear, members
from jaxgrip.structures.analysis import raised, solve_linear
from jaxgrip.structures.balance import Problem
from jaxgrip.structures.loads import Load
from jaxgrip.structures.results import RESULTS, Solution, StructureError
from jaxgrip.structures.structure import Structure, check_whole

# Of the largest reciprocal factor; what is smaller is rounding.
NO_BUCKLING = 1e-12
# Distance of reciprocal factors, by their size, up to which they are equal but for rounding.
EQUAL = 1e-8
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
    from 1 to that of the freedoms.

    Source: own derivation: buckling about the loaded position, K + factor K_g singular.
    """
    check_whole(structure)
    if (
        isinstance(count, bool)
        or not isinstance(count, Integral)
        or not 1 <= count <= structure.freedoms
    ):
        raise ValueError(
            f"The count of buckling factors is {brief(count)}; give a whole number from 1 to "
            f"{structure.freedoms}, that of the freedoms."
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
    springs = len(first.taut) - structure.layout.row_springs
    stiff = len(problem.tension_only) - springs
    acting = jnp.concatenate([jnp.ones(stiff, dtype=bool), first.taut[:springs]])
    matrices = _linear_stress(problem, acting)
    k, g, b = jax.lax.stop_gradient(matrices)
    factor = linear.factorise(k, b)
    half = dense.solve_triangular(factor.lower, jnp.diag(factor.scale), lower=True)
    basis, size, _ = dense.svd(factor.across)
    basis = jnp.where(size[None, :] > 1e-6, basis, 0.0)

    def free(x: Array) -> Array:
        """Without what the equations forbid."""
        return x - basis @ (basis.T @ x)

    stress = free(free(-half @ g @ half.T).T)
    values, vectors = dense.eigh(stress)
    largest = jnp.max(jnp.abs(values))
    there = values > NO_BUCKLING * largest
    apart = jnp.diff(values, prepend=-jnp.inf, append=jnp.inf)
    single = jnp.minimum(apart[1:], apart[:-1]) > EQUAL * jnp.abs(values)
    there, single, values, vectors = (
        x[..., ::-1][..., :count] for x in (there, single, values, vectors)
    )
    ways = half.T @ vectors

    def pair(there: Array, single: Array, value: Array, way: Array) -> _Pair:
        safe = jnp.where(there, 1 / jnp.where(there, value, 1.0), 0.0)
        pull = k @ way + safe * (g @ way)
        row = factor.weight[:, None] * b
        held = -factor.weight * (dense.pinv(row.T, 1e-9) @ pull)
        return _eigenpair(matrices, _Pair(safe, way, held), factor.scale, there, single)

    found = jax.vmap(pair)(there, single, values, ways.T)
    modes = balance.shapes(problem, problem.start(), found.way.T)
    modes = modes[:, : len(structure.layout.root)]
    largest = jnp.max(jnp.abs(modes[..., :3]), axis=(1, 2))
    # Else the rounding of a mode without displacements would be blown up.
    seen = there & (largest > 1e-9 * jnp.max(jnp.abs(found.way), axis=1))
    modes = jnp.where(
        seen[:, None, None], modes / jnp.where(seen, largest, 1.0)[:, None, None], 0.0
    )
    known = jnp.where(first.succeeded & jnp.all(jnp.isfinite(stress)), 1.0, jnp.nan)
    return Buckling(known * jnp.where(there, found.factor, jnp.inf), known * modes)


class _Pair(NamedTuple):
    """(K + `factor` G) `way` + Bᵀ `held` = 0 and B `way` = 0, where `way` has the energy 1/2."""

    factor: Float[Array, ""]
    way: Float[Array, " n"]
    held: Float[Array, " m"]


@jax.custom_jvp
def _eigenpair(
    matrices: tuple[Array, Array, Array], found: _Pair, scale: Array, there: Array, single: Array
) -> _Pair:
    """What was found, as a function of K, G and B."""
    return found


@_eigenpair.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[_Pair, _Pair]:
    (k, g, b), _, scale, there, single = primals
    dk, dg, db = tangents[0]
    pair = _eigenpair(*primals)
    factor, way, held = pair
    stiff, stress = k @ way, g @ way
    out = dk @ way + factor * (dg @ way) + db.T @ held
    missed = db @ way
    amount = jnp.where(there, -way @ stress, 1.0)
    change = jnp.where(there, (way @ out + held @ missed) / amount, 0.0)
    # A push along the way makes definite what is singular, and keeps the energy.
    right = -out - change * stress - stiff * (way @ (dk @ way)) / 2
    whole = k + factor * g + jnp.outer(stiff, stiff)
    step = linear.solve_any(whole, b, scale, jnp.concatenate([right, -missed]))
    step = jnp.where(single | ~there, 1.0, jnp.nan) * step
    return pair, _Pair(change, step[: len(way)], step[len(way) :])


def _linear_stress(problem: Problem, acting: Array) -> tuple[Array, Array, Array]:
    """Stiffness, geometric stiffness by the linear solution, equations."""
    start = problem.start()
    here = balance.balance(problem, start, acting)
    factor = linear.factorise(here.stiffness, here.slope)
    gap = jnp.zeros(problem.rows)
    q, multipliers = linear.solve(here.stiffness, here.slope, factor, -here.push, gap)
    stresses = tuple(stress.rate(q) for stress in here.stresses)
    loaded = start._replace(multipliers=multipliers, share=jnp.ones(()))
    stressed = balance.balance(members.stressed(problem, stresses), loaded, acting, stresses)
    return here.stiffness, (stressed.stiffness + stressed.stiffness.T) / 2, here.slope
