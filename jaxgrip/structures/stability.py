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

from jaxgrip.assembly import Poses
from jaxgrip.checks import brief, concrete
from jaxgrip.solve import dense
from jaxgrip.structures import balance, deflected, linear, members
from jaxgrip.structures.analysis import raised, solve_linear
from jaxgrip.structures.balance import Problem
from jaxgrip.structures.loads import Load
from jaxgrip.structures.results import RESULTS, StructureError
from jaxgrip.structures.structure import Structure, check_whole

# Of the largest reciprocal factor; what is smaller is rounding.
NO_BUCKLING = 1e-12
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

    **Returns:** `Buckling`; factors are differentiable to first order, of equal ones their sum
    only.

    **Raises:** as `solve`; `StructureError` when the deflected structure loses its stability below
    0.9 times the lowest factor, where `throw`; `ValueError` for a `count` that is no whole number
    from 1 to that of the freedoms.

    Source: 002 section 6.4.
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
    found = _buckling(structure, poses, loads, first.taut, int(count))
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
    structure: Structure, poses: Poses, loads: tuple[Load, ...], taut: Array, count: int
) -> Buckling:
    problem = members.problem(structure, poses, loads)
    springs = len(taut) - structure.layout.row_springs
    stiff = len(problem.tension_only) - springs
    acting = jnp.concatenate([jnp.ones(stiff, dtype=bool), taut[:springs]])
    stiffness, geometric, equations = _linear_stress(problem, acting)
    k, g, b = jax.lax.stop_gradient((stiffness, geometric, equations))
    factor = linear.factorise(k, b)
    half = dense.solve_triangular(factor.lower, jnp.diag(factor.scale), lower=True)
    basis, size, _ = dense.svd(factor.across)
    basis = jnp.where(size[None, :] > 1e-6, basis, 0.0)

    def free(x: Array) -> Array:
        """Without what the equations forbid."""
        return x - basis @ (basis.T @ x)

    stress = free(free(-half @ g @ half.T).T)
    values, vectors = dense.eigh(stress)
    there = values > NO_BUCKLING * jnp.max(jnp.abs(values))
    there, values, vectors = (x[..., ::-1][..., :count] for x in (there, values, vectors))
    shapes = half.T @ vectors

    def factor_of(there: Array, value: Array, shape: Array) -> Array:
        safe = jnp.where(there, 1 / jnp.where(there, value, 1.0), 0.0)
        pull = k @ shape + safe * (g @ shape)
        row = factor.weight[:, None] * b
        held = -factor.weight * (dense.pinv(row.T, 1e-9) @ pull)
        own = shape @ (stiffness @ shape) + safe * (shape @ (geometric @ shape))
        own += 2 * held @ (equations @ shape)
        change = own / jnp.where(there, -shape @ (g @ shape), 1.0)
        return jnp.where(there, safe + change - jax.lax.stop_gradient(change), jnp.inf)

    modes = balance.shapes(problem, problem.start(), shapes)[:, : len(structure.layout.root)]
    largest = jnp.max(jnp.abs(modes[..., :3]), axis=(1, 2))
    # Else the rounding of a mode without displacements would be blown up.
    seen = there & (largest > 1e-9 * jnp.max(jnp.abs(shapes), axis=0))
    modes = jnp.where(
        seen[:, None, None], modes / jnp.where(seen, largest, 1.0)[:, None, None], 0.0
    )
    return Buckling(jax.vmap(factor_of)(there, values, shapes.T), modes)


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
