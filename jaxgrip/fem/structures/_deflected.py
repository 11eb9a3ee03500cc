"""Equilibrium of the deflected structure, at displacements and rotations of any size."""

from collections.abc import Iterable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxgrip.checks import brief, concrete, is_whole, positive
from jaxgrip.fem.structures import _balance as balance
from jaxgrip.fem.structures import _linear as linear
from jaxgrip.fem.structures import _members as members
from jaxgrip.fem.structures import _model as model
from jaxgrip.fem.structures import _path as path
from jaxgrip.fem.structures._analysis import check_loads
from jaxgrip.fem.structures._balance import Configuration, Problem
from jaxgrip.fem.structures._coupling import entries
from jaxgrip.fem.structures._results import RESULTS, SINGULAR, Solution, StructureError
from jaxgrip.fem.structures._structure import Structure, check_whole
from jaxgrip.fem.structures._zero_modes import giving_way, in_words, zero_modes
from jaxgrip.fem.structures.loads import Load, NodalForce, as_loads
from jaxgrip.mechanism import Poses
from jaxgrip.spatial import quaternions

# Iterations after which path following stops.
BUDGET = 2000
# Largest number of degrees of freedom whose dense matrices fit into memory.
MOST = 10_000


def second_order(
    structure: Structure, poses: Poses, loads: Load | Iterable[Load], *, throw: bool = True
) -> Solution:
    """Equilibrium of the deflected structure: displacements and rotations of any size.

    Strains stay small. The equilibrium is the one reached while all loads grow in proportion from
    zero; forces keep their direction, weight and inertia forces act at the deflected masses. Ropes
    carry tension only; a mechanism that tension stiffens, such as a rope loaded across, settles
    first.

    **Arguments:** as `solve`.

    **Returns:** `Solution`; section forces are in the axes of the deflected sections, reactions
    act at deflected positions. `margin` is that of the tangent stiffness. Differentiable to any
    order. Unless it has `succeeded`, `load_factor` is the share of the loads that was reached.

    **Raises:** as `solve`, and `StructureError` naming the load factor and the motion if stability
    is lost below the full loads.

    Source: see `path.follow` and `corotational`.
    """
    loads = checked(structure, poses, loads)
    solution, found = follow(structure, poses, loads, jnp.ones(()))
    if not throw or not concrete(solution.margin) or solution.succeeded:
        return solution
    message = RESULTS[solution.result]
    words = [message, *sentences(structure, poses, loads, found)]
    raise StructureError(" ".join(words), solution)


class EquilibriumPath(NamedTuple):
    """Equilibria in order along the path, which starts at zero load.

    - `load_factors` (p,): share of the loads; `displacements` (p, k, 6): displacements [m] and
      rotation vectors [rad] of all nodes, in ground axes. At length π a rotation vector jumps to
      the opposite one.
    - `stable` (p,): whether a point is stable; `limit` (p,): whether it is a limit point, where
      the load factor has an extremum.
    - `result`: member of `RESULTS`.

    Within `jit` and `vmap`, entries after the last point are NaN.
    """

    load_factors: Float[Array, " p"]
    displacements: Float[Array, "p k 6"]
    stable: Bool[Array, " p"]
    limit: Bool[Array, " p"]
    result: RESULTS


def equilibrium_path(
    structure: Structure,
    poses: Poses,
    loads: Load | Iterable[Load],
    *,
    points: int = 200,
    step: float = 0.05,
    throw: bool = True,
) -> EquilibriumPath:
    """Follow the equilibrium by arc length, through limit points, up to the full loads.

    Beyond a limit point the load factor decreases; the path ends where it reaches 1. Limit points
    are among its points. Branches at bifurcations are not followed. A path has no derivatives.

    **Arguments:** as `second_order`; `points`: largest number of points; `step`: largest
    displacement of a node between points, relative to the extent of the structure, and largest
    rotation [rad].

    **Returns:** `EquilibriumPath`.

    **Raises:** as `solve`, `StructureError` when the path cannot be continued; `ValueError` unless
    `points` is a whole number of at least 2 and `step` is positive; `TypeError` where it is
    differentiated.
    """
    if not is_whole(points, 2):
        raise ValueError(
            f"The number of points is {brief(points)}; it must be a whole number of at least 2."
        )
    step = positive("The step of a path", step, ())
    loads = checked(structure, poses, loads)
    walk, found = _path(structure, poses, loads, step, int(points))
    if not concrete(walk.load_factors):
        return walk
    if throw and walk.result not in (RESULTS.successful, RESULTS.unfinished):
        message = RESULTS[walk.result]
        raise StructureError(" ".join([message, *sentences(structure, poses, loads, found)]))
    last = int(found.count) + 1
    return EquilibriumPath(*(x[:last] for x in walk[:-1]), walk.result)


def checked(structure: Structure, poses: Poses, loads: Load | Iterable[Load]) -> tuple[Load, ...]:
    """The loads as a tuple; `ValueError` for invalid arguments."""
    check_whole(structure)
    if structure.degrees_of_freedom > MOST:
        raise ValueError(
            f"The structure has {structure.degrees_of_freedom} degrees of freedom; second_order, "
            f"equilibrium_path and buckling take at most {MOST}, since their matrices are dense. "
            "solve takes more."
        )
    if structure.solids:
        raise ValueError(
            "The structure has solids; second_order, equilibrium_path and buckling take beams, "
            "bars and ropes. solve takes solids."
        )
    loads = as_loads(loads)
    structure.check(poses)
    check_loads(structure, loads)
    return loads


_ENDS = {
    path.REACHED: RESULTS.successful,
    path.LIMIT: RESULTS.limit,
    path.BUCKLED: RESULTS.buckled,
    path.LOOSE: RESULTS.singular,
    path.ADRIFT: RESULTS.singular,
    path.STUCK: RESULTS.diverged,
    path.FULL: RESULTS.unfinished,
}


def _result(code: Int[Array, ""]) -> RESULTS:
    result = RESULTS.diverged
    for end, meaning in _ENDS.items():
        result = RESULTS.where(code == end, meaning, result)
    return result


@eqx.filter_jit
def follow(
    structure: Structure, poses: Poses, loads: tuple[Load, ...], target: Float[Array, ""]
) -> tuple[Solution, path.Found]:
    """The equilibrium at a load factor, or the last one before, and the path to it."""
    problem = members.problem(structure, poses, loads)
    found = path.follow(_frozen(problem), target, jnp.array(jnp.inf), BUDGET)
    taut = problem.taut(found.configuration)
    configuration, margin = _differentiable(problem, found, taut)
    result = _result(found.code)
    solution = _solution(structure, poses, problem, configuration, taut, margin, result)
    return solution.or_nan(), found


def _differentiable(
    problem: Problem, found: path.Found, taut: Bool[Array, " l"]
) -> tuple[Configuration, Float[Array, ""]]:
    """The final configuration and its margin, with derivatives in the numbers of the problem.

    Derivatives follow from the equilibrium equations, to any order; NaN where the path has not
    reached its loads.
    """
    numbers, rest = eqx.partition(problem, eqx.is_inexact_array)

    @jax.custom_jvp
    def configuration(numbers: Problem, found: path.Found, taut: Array) -> Configuration:
        return found.configuration

    @configuration.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple[Configuration, Configuration]:
        numbers, found, taut = primals
        at = configuration(*primals)

        def out(numbers: Problem) -> Array:
            whole = eqx.combine(numbers, rest)
            return jnp.concatenate(balance.residual(whole, at, taut))

        change = jax.jvp(out, (numbers,), (tangents[0],))[1]
        whole = eqx.combine(numbers, rest)
        here = balance.balance(whole, at, taut)
        step = -linear.solve_any(here.stiffness, here.slope, found.scale, change)
        step = jnp.where(found.code == path.REACHED, 1.0, jnp.nan) * step
        still = jnp.zeros_like(step)
        return at, jax.jvp(lambda step: _stepped(whole, at, step), (still,), (step,))[1]

    @jax.custom_jvp
    def margin(numbers: Problem, at: Configuration, found: path.Found, taut: Array) -> Array:
        return linear.stability(found.stiffness, found.slope, found.scale)

    @margin.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
        numbers, at, _, taut = primals

        def smallest(numbers: Problem, at: Configuration) -> Array:
            whole = eqx.combine(numbers, rest)
            start, everything = whole.start(), jnp.ones_like(taut)
            first = balance.balance(whole, start, everything)
            here = balance.balance(whole, at, taut)
            scale = linear.scales(first.stiffness, first.slope)[0]
            return linear.stability(here.stiffness, here.slope, scale)

        return margin(*primals), jax.jvp(smallest, (numbers, at), tuple(tangents[:2]))[1]

    at = configuration(numbers, found, taut)
    return at, margin(numbers, at, found, taut)


def _stepped(problem: Problem, at: Configuration, step: Float[Array, " k"]) -> Configuration:
    """A configuration after a step; where the step is NaN, the load factor is too."""
    n = problem.dofs + problem.releases
    moved = problem.moved(at, step[:n])
    return moved._replace(
        multipliers=at.multipliers + step[n:], load_factor=at.load_factor + 0 * jnp.sum(step)
    )


@eqx.filter_jit
def _path(
    structure: Structure, poses: Poses, loads: tuple[Load, ...], step: Array, points: int
) -> tuple[EquilibriumPath, path.Found]:
    numbers, rest = eqx.partition(members.problem(structure, poses, loads), eqx.is_inexact_array)
    problem = eqx.combine(_without_derivatives(numbers), rest)
    budget = points * 4 * path.CORRECTIONS
    found = path.follow(problem, jnp.ones(()), step, budget, points=points - 1)
    count, at = len(structure.layout.root), found.points
    moved = jax.vmap(lambda x: _displacements(problem, x)[:count])(at.configuration)
    walk = EquilibriumPath(
        jnp.concatenate([jnp.zeros(1), at.configuration.load_factor]),
        jnp.concatenate([jnp.zeros((1, count, 6)), moved]),
        jnp.concatenate([found.held[None], at.stable]),
        jnp.concatenate([jnp.zeros(1, dtype=bool), at.limit]),
        _result(found.code),
    )
    return walk, found._replace(points=None)


@jax.custom_jvp
def _without_derivatives(numbers: Problem) -> Problem:
    return numbers


@_without_derivatives.defjvp
def _(primals: tuple, tangents: tuple) -> tuple:
    raise TypeError("equilibrium_path has no derivatives; differentiate second_order instead.")


def _frozen(problem: Problem) -> Problem:
    numbers, rest = eqx.partition(problem, eqx.is_inexact_array)
    return eqx.combine(jax.lax.stop_gradient(numbers), rest)


def _displacements(problem: Problem, at: Configuration) -> Float[Array, "s 6"]:
    """Displacements and rotation vectors of all stations."""
    rotations = jax.vmap(quaternions.rotation_vector)(at.rotation)
    return jnp.concatenate([problem.motion(at)[0].displacement, rotations], axis=1)


def _solution(
    structure: Structure,
    poses: Poses,
    problem: Problem,
    at: Configuration,
    taut: Bool[Array, " l"],
    margin: Float[Array, ""],
    result: RESULTS,
) -> Solution:
    layout = structure.layout
    count = len(layout.root)
    moved = _displacements(problem, at)
    forces = [jnp.zeros((0, 2, 6))]
    for group in problem.beams:
        own = balance.exerted(problem, at, group, taut).forces.reshape(-1, 2, 2, 3)
        axes = members.section_axes(problem, at, group)
        own = jnp.einsum("mkba,mkib->mkia", axes, own).reshape(-1, 2, 6)
        forces.append(own * jnp.array([[[-1.0], [1.0]]]))
    beam_forces = jnp.concatenate(forces)[np.argsort(problem.order)]

    lines, springs = problem.lines, problem.springs
    pulls = balance.exerted(problem, at, lines, taut)
    units = balance.coefficients(problem, at, lines)[:, 0]
    tension = pulls.stress[:, 0]
    own_weight = pulls.forces - tension[:, None, None] * units
    bar = model.bars(structure)
    order = np.argsort(bar.tension_only, kind="stable")
    stiff = int((~bar.tension_only).sum())
    turning = jnp.zeros(layout.row_springs)
    for group in springs:
        stress = balance.exerted(problem, at, group, taut).stress
        turning = turning.at[group.rows].set(stress)
    ties = len(lines.stations) - len(layout.spans)
    spring_forces = jnp.concatenate([tension[stiff:], turning])
    tension_only = np.concatenate(
        [problem.tension_only[stiff:], np.zeros(layout.row_springs, dtype=bool)]
    )
    blocks = _coefficients(structure, problem, at)
    return Solution(
        structure,
        poses,
        moved[:count],
        beam_forces,
        jnp.zeros(len(order)).at[order].set(tension[: len(order)]),
        at.multipliers,
        spring_forces,
        (spring_forces > 0) | ~tension_only,
        margin,
        result,
        blocks[False],
        jnp.concatenate([units[stiff:].reshape(-1, 6), blocks[True]]),
        -own_weight[ties:, :, :3],
        problem.places[:-1] + moved[:-1, :3],
        at.load_factor,
    )


def _coefficients(
    structure: Structure, problem: Problem, at: Configuration
) -> dict[bool, Float[Array, "c 6"]]:
    """Coefficients of the equations (False) and of the springs in joints (True), by entry."""
    found = {}
    for springs, groups in ((False, problem.equations), (True, problem.springs)):
        blocks = [block for block in structure.layout.blocks if block.spring == springs]
        where = {}
        first = 0
        for block in blocks:
            stations, rows = entries(block)
            for number, key in enumerate(zip(rows, stations, strict=True), first):
                where[tuple(int(k) for k in key)] = number
            first += len(rows)
        total = jnp.zeros((first, 6))
        for group in groups:
            if not len(group.stations):
                continue
            values = balance.coefficients(problem, at, group)
            index = np.array(
                [
                    [[where.get((int(row), int(s)), first) for s in own] for row in rows]
                    for rows, own in zip(group.rows, group.stations, strict=True)
                ]
            )
            total = total.at[index].add(values, mode="drop")
        found[springs] = total
    return found


def sentences(
    structure: Structure, poses: Poses, loads: tuple[Load, ...], found: path.Found
) -> list[str]:
    """Sentences on why a path ended early."""
    factor, code = float(found.configuration.load_factor), int(found.code)
    if code == path.STUCK:
        return [f"The path cannot be followed beyond {factor:.4g} times these loads."]
    if code == path.ADRIFT:
        return list(zero_modes(structure, poses).sentences)
    values, modes = linear.softest(found.stiffness, found.slope, found.scale)
    count = 1 if code != path.LOOSE else int(np.sum(~(np.asarray(values) > SINGULAR)))
    shapes, places = _moved(structure, poses, found.configuration, modes[:, : max(count, 1)])
    loose = jnp.max(jnp.abs(modes[structure.degrees_of_freedom :, 0]), initial=0.0)
    if code == path.LOOSE:
        return list(in_words(structure, np.asarray(places), np.asarray(shapes)).sentences)
    size = f"{factor:.6g} times these loads"
    forces = [load for load in loads if isinstance(load, NodalForce) and np.any(load.force)]
    if len(loads) == len(forces) == 1:
        size += f" or {factor * float(jnp.linalg.norm(forces[0].force)):.6g} N"
    what = "The limit load is" if code == path.LIMIT else "Stability is lost at"
    more = "; equilibrium_path follows the structure beyond it" if code == path.LIMIT else ""
    return [
        f"{what} {size}, where {giving_way(structure, np.asarray(shapes[0]), float(loose))}{more}."
    ]


@eqx.filter_jit
def _moved(
    structure: Structure, poses: Poses, at: Configuration, modes: Float[Array, "n z"]
) -> tuple[Float[Array, "z k 6"], Float[Array, "k 3"]]:
    """Displacements and rotations of all nodes in modes at a configuration; their positions."""
    problem = members.problem(structure, poses, ())
    count = len(structure.layout.root)
    places = problem.places + problem.motion(at)[0].displacement
    return balance.shapes(problem, at, modes)[:, :count], places[:count]
