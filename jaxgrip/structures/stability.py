"""Second-order analysis and buckling: equilibrium of the deflected structure."""

from collections.abc import Iterable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from jaxgrip.assembly import Poses
from jaxgrip.structures import linear, model
from jaxgrip.structures.analysis import (
    Equilibrium,
    as_loads,
    inertia_amounts,
    nodal_forces,
    raised,
    solve,
    tie_loads,
)
from jaxgrip.structures.coupling import Coupling, Numbering, Rows, coupling, matrix
from jaxgrip.structures.elements import release
from jaxgrip.structures.loads import Load
from jaxgrip.structures.results import RESULTS, Solution, recover
from jaxgrip.structures.structure import Structure

# Newton's last step squares it; rounding of slender structures stays below it.
TOLERANCE = 1e-6
STEPS = 50


class Lines(NamedTuple):
    """All bars, ropes and ties: `ends` (t, 6, n) displacements of both ends in ground axes."""

    ends: Float[Array, "t 6 n"]
    direction: Float[Array, "t 3"]
    length: Float[Array, " t"]
    stiffness: Float[Array, " t"]
    tension_only: np.ndarray


def second_order(
    structure: Structure, poses: Poses, loads: Load | Iterable[Load], *, throw: bool = True
) -> Solution:
    """Statics of the deflected structure (P-Δ): section forces do work on the bending they cause.

    Newton's method with the geometric stiffness of beams, bars and ropes; strains stay small, and
    normal forces are those of the displacements to first order.

    **Arguments**, **Returns:** as `solve`; section forces are those of the deflected structure in
    the axes of the undeformed one. Derivatives of first order.

    **Raises:** as `solve`, and `StructureError` for a load beyond buckling.

    Source: 002 section 6.4.
    """
    loads = as_loads(loads)
    # Its sentence names what can still move, which a second-order analysis could not.
    solve(structure, poses, loads, throw=throw)
    solution = _second_order(structure, poses, loads)
    return raised(solution) if throw else solution


class Buckling(NamedTuple):
    """`factors` (count,) of the loads, ascending, infinite where none; `modes` (count, k, 6).

    Modes are displacements and rotations of the nodes in axes of the ground, largest one 1.
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

    **Arguments:** as `solve`; `count` of factors.

    **Returns:** `Buckling`; factors are differentiable to first order.

    **Raises:** as `solve`.

    Source: 002 section 6.4.
    """
    loads = as_loads(loads)
    first = solve(structure, poses, loads, throw=throw)
    return _buckling(structure, poses, loads, first.taut, count)


class _State(NamedTuple):
    q: Float[Array, " n"]
    multipliers: Float[Array, " m"]
    change: Float[Array, ""]
    count: Array


class _Problem(NamedTuple):
    """What does not change in the course of the iterations."""

    structure: Structure
    elements: model.Elements
    end_loads: list
    lines: Lines
    turning: Float[Array, "s n"]
    turning_stiffness: Float[Array, " s"]
    equations: Float[Array, "m n"]
    force: Float[Array, " n"]
    amounts: Float[Array, "p 12"]
    tied: Coupling


@eqx.filter_jit
def _second_order(structure: Structure, poses: Poses, loads: tuple[Load, ...]) -> Solution:
    problem = _problem(structure, poses, loads)
    numbers, rest = eqx.partition(problem, eqx.is_inexact_array)
    frozen = eqx.combine(jax.lax.stop_gradient(numbers), rest)
    n, m = len(problem.force), len(problem.equations)
    start = _State(jnp.zeros(n), jnp.zeros(m), jnp.array(jnp.inf), jnp.array(0))

    def going(state: _State) -> Array:
        return (state.change > TOLERANCE) & (state.count < STEPS)

    def body(state: _State) -> _State:
        return _newton(frozen, state)

    end = jax.lax.while_loop(going, body, start)
    done = _newton(problem, jax.lax.stop_gradient(end))
    _, tangent = _internal(frozen, done.q)
    margin = linear.stability(jax.lax.stop_gradient(tangent), frozen.equations)
    stiff = int(np.sum(~problem.elements.bars.tension_only))
    moved = (problem.lines.ends @ done.q).reshape(-1, 2, 3)
    own = _tensions(problem.lines, moved)[stiff:]
    turned = problem.turning_stiffness * (problem.turning @ done.q)
    spring_forces = jnp.concatenate([own, turned])
    found = Equilibrium(
        done.q,
        done.multipliers,
        spring_forces,
        (spring_forces > 0) | ~problem.tied.springs.tension_only,
        margin,
        end.change <= TOLERANCE,
    )
    on_ties = tie_loads(structure, poses, loads, problem.tied)
    solution = recover(
        structure, problem.elements, poses, problem.tied, found, problem.amounts, on_ties
    )
    elements = problem.elements
    displacements = _element_displacements(problem, done.q)
    beams = [
        _beam_forces(*beam)
        for beam in zip(
            elements.groups,
            elements.matrices,
            problem.end_loads,
            displacements,
            strict=True,
        )
    ]
    if beams:
        order = np.argsort(np.concatenate([group.order for group in problem.elements.groups]))
        beams = jnp.concatenate(beams)[order]
        solution = eqx.tree_at(lambda s: s.beam_forces, solution, beams)
    result = RESULTS.where(
        (margin > 0) & (end.change <= TOLERANCE), RESULTS.successful, RESULTS.diverged
    )
    return eqx.tree_at(lambda s: s.result, solution, result)


def _problem(structure: Structure, poses: Poses, loads: tuple[Load, ...]) -> _Problem:
    layout = structure.layout
    rotations = structure.rotations(poses)
    own = Numbering(layout.dof, structure.freedoms)
    elements = model.elements(structure)
    tied = coupling(structure, poses, elements.bars)
    amounts = inertia_amounts(structure, poses, loads)
    force = nodal_forces(structure, poses, loads, tied, own)
    inertia = model.inertia_loads(structure, elements)
    force -= jnp.sum(inertia * amounts[layout.part_of_freedom], axis=1)
    part = np.searchsorted(np.array(layout.offsets), np.arange(len(layout.root)), side="right") - 1
    end_loads = [
        -jnp.einsum("mkj,mk->mj", m.inertia, amounts[part[g.ends[:, 0]]])
        for g, m in zip(elements.groups, elements.matrices, strict=True)
    ]
    springs = matrix(structure, rotations, tied.springs.rows, own)
    straight = len(springs) - layout.row_springs
    return _Problem(
        structure,
        elements,
        end_loads,
        _lines(structure, elements.bars, poses, tied, own),
        springs[straight:],
        tied.springs.stiffness[straight:],
        matrix(structure, rotations, tied.equations, own),
        force,
        amounts,
        tied,
    )


def _lines(
    structure: Structure, bar: model.Bar, poses: Poses, tied: Coupling, own: Numbering
) -> Lines:
    """Stiff bars within parts, then ropes within parts, then ties."""
    stiff, ropes = np.flatnonzero(~bar.tension_only), np.flatnonzero(bar.tension_only)
    spans = np.array([s.ends for s in structure.layout.spans], dtype=int).reshape(-1, 2)
    ends = np.concatenate([bar.ends[stiff], bar.ends[ropes], spans])
    straight = len(ropes) + len(spans)
    places = structure.places(poses)
    way = places[ends[:, 1]] - places[ends[:, 0]]
    length = jnp.linalg.norm(way, axis=1)
    count = ends.size
    rows = Rows(
        jnp.tile(jnp.eye(6)[:3], (count, 1)),
        np.repeat(ends.reshape(-1), 3),
        np.arange(3 * count),
        3 * count,
    )
    moved = matrix(structure, structure.rotations(poses), rows, own)
    return Lines(
        moved.reshape(len(ends), 6, own.count),
        way / length[:, None],
        length,
        jnp.concatenate([bar.stiffness[stiff], tied.springs.stiffness[:straight]]),
        np.concatenate([np.zeros(len(stiff), bool), tied.springs.tension_only[:straight]]),
    )


def _newton(problem: _Problem, state: _State) -> _State:
    internal, tangent = _internal(problem, state.q)
    b = problem.equations
    scale, weight = linear.scales(*jax.lax.stop_gradient((tangent, b)))
    n = len(scale)
    both = jnp.concatenate([scale, weight])
    whole = jnp.block([[tangent, b.T], [b, jnp.zeros((len(b), len(b)))]])
    whole = whole * both[:, None] * both[None, :]
    soft = jnp.diag(jnp.concatenate([jnp.zeros(n), jnp.full(len(b), linear.SOFT)]))
    factor = jax.scipy.linalg.lu_factor(whole - soft)
    right = both * jnp.concatenate([problem.force - internal, -(b @ state.q)])
    z = jax.scipy.linalg.lu_solve(factor, right)
    z = z + jax.scipy.linalg.lu_solve(factor, right - whole @ z)
    q = state.q + z[:n] * scale
    change = jnp.max(jnp.abs(z[:n])) / jnp.max(jnp.abs(q / scale))
    return _State(q, z[n:] * weight, change, state.count + 1)


def _internal(problem: _Problem, q: Array) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Forces on the freedoms by their displacements, and the derivative."""
    structure = problem.structure
    n = structure.freedoms
    force = problem.turning.T @ (problem.turning_stiffness * (problem.turning @ q))
    tangent = problem.turning.T @ (problem.turning_stiffness[:, None] * problem.turning)
    force, tangent = force + jnp.zeros(n), tangent + jnp.zeros((n, n))
    elements, displacements = problem.elements, _element_displacements(problem, q)
    for group, matrices, load, u in zip(
        elements.groups,
        elements.matrices,
        problem.end_loads,
        displacements,
        strict=True,
    ):
        own, slope = _beams(group, matrices, load, u)
        force = model.add_forces(structure, force, group.ends.reshape(-1), own.reshape(-1, 6))
        tangent = model.add_matrices(structure, tangent, group.ends, slope)
    lines = problem.lines
    own, slope = jax.vmap(_line)(
        (lines.ends @ q).reshape(-1, 2, 3),
        lines.direction,
        lines.length,
        lines.stiffness,
        jnp.asarray(lines.tension_only),
    )
    force += jnp.einsum("ti,tin->n", own, lines.ends)
    tangent += jnp.einsum("tin,tij,tjk->nk", lines.ends, slope, lines.ends)
    return force, tangent


def _element_displacements(problem: _Problem, q: Array) -> list[Float[Array, "m 12"]]:
    u = model.displacements(problem.structure, q)
    return [u[group.ends].reshape(-1, 12) for group in problem.elements.groups]


def _beams(
    group: model.BeamGroup, matrices: model.BeamMatrices, load: Array, u: Array
) -> tuple[Float[Array, "m 12"], Float[Array, "m 12 12"]]:
    """Forces on the nodes of all beams by these nodes' displacements, and the derivative."""

    def force(x, section, own, mask, load, u):
        total, end, _ = _deflected(group.element, x, section, own, mask, load, u)
        moved = u if end is None else end @ u
        return total @ moved if end is None else end.T @ (total @ moved)

    mask = None if group.mask is None else jnp.asarray(group.mask)
    data = (group.x, group.section, matrices, mask, load, u)
    return jax.vmap(force)(*data), jax.vmap(jax.jacfwd(force, argnums=5))(*data)


def _deflected(element, x, section, own, mask, load, u) -> tuple:
    """Stiffness of one deflected beam, and what moves its ends, `BeamMatrices.end` and so on."""
    at_ends = u if mask is None else own.end @ u + own.flexibility @ load
    geometric = element.geometric_stiffness(x, at_ends.reshape(2, 6), section)
    total = own.stiffness + geometric.reshape(12, 12)
    if mask is None:
        return total, None, None
    return total, *release(total, own.axes, mask)


def _beam_forces(
    group: model.BeamGroup, matrices: model.BeamMatrices, load: Array, u: Array
) -> Float[Array, "m 2 6"]:
    def force(x, section, own, mask, load, u):
        total, end, flexibility = _deflected(group.element, x, section, own, mask, load, u)
        moved = u if end is None else end @ u + flexibility @ load
        local = ((total @ moved - load).reshape(4, 3) @ own.axes).reshape(2, 6)
        return local * jnp.array([[-1.0], [1.0]])

    mask = None if group.mask is None else jnp.asarray(group.mask)
    return jax.vmap(force)(group.x, group.section, matrices, mask, load, u)


def _line(
    ends: Float[Array, "2 3"], direction: Array, length: Array, stiffness: Array, rope: Array
) -> tuple[Float[Array, "6"], Float[Array, "6 6"]]:
    """Forces on the ends of a bar or rope by their displacements, and the derivative."""

    def force(moved: Array) -> Array:
        way = moved[3:] - moved[:3]
        stretch = way @ direction
        tension = jnp.where(rope & (stretch < 0), 0.0, stiffness * stretch)
        pull = tension * (direction + (way - stretch * direction) / length)
        return jnp.concatenate([-pull, pull])

    moved = ends.reshape(6)
    return force(moved), jax.jacfwd(force)(moved)


def _tensions(lines: Lines, ends: Float[Array, "t 2 3"]) -> Float[Array, " t"]:
    stretch = jnp.sum((ends[:, 1] - ends[:, 0]) * lines.direction, axis=1)
    return jnp.where(lines.tension_only & (stretch < 0), 0.0, lines.stiffness * stretch)


@eqx.filter_jit
def _buckling(
    structure: Structure, poses: Poses, loads: tuple[Load, ...], taut: Array, count: int
) -> Buckling:
    problem = _problem(structure, poses, loads)
    stiffness, geometric, equations = _linear_stress(problem, taut)
    k, g, b = jax.lax.stop_gradient((stiffness, geometric, equations))
    factor = linear.factorise(k, b)
    half = solve_triangular(factor.lower, jnp.diag(factor.scale), lower=True)
    basis, size, _ = jnp.linalg.svd(factor.across, full_matrices=False)
    basis = jnp.where(size[None, :] > 1e-6, basis, 0.0)

    def free(x: Array) -> Array:
        """Without what the equations forbid."""
        return x - basis @ (basis.T @ x)

    stress = free(free(-half @ g @ half.T).T)
    values, vectors = jnp.linalg.eigh((stress + stress.T) / 2)
    values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    shapes = half.T @ vectors

    def factor_of(value: Array, shape: Array) -> Array:
        safe = jnp.where(value > 1e-14, 1 / value, 0.0)
        pull = k @ shape + safe * (g @ shape)
        row = factor.weight[:, None] * b
        held = -factor.weight * (jnp.linalg.pinv(row.T, rtol=1e-9) @ pull)
        own = shape @ (stiffness @ shape) + safe * (shape @ (geometric @ shape))
        own += 2 * held @ (equations @ shape)
        change = own / (-shape @ (g @ shape))
        return jnp.where(value > 1e-14, safe + change - jax.lax.stop_gradient(change), jnp.inf)

    modes = jax.vmap(lambda q: model.displacements(structure, q))(shapes.T)
    turn = structure.rotations(poses)[: len(structure.layout.root)]
    modes = jnp.einsum("kab,zkib->zkia", turn, modes.reshape(*modes.shape[:2], 2, 3))
    modes = modes.reshape(count, -1, 6)
    largest = jnp.max(jnp.abs(modes[..., :3]), axis=(1, 2), keepdims=True)
    return Buckling(jax.vmap(factor_of)(values, shapes.T), modes / largest)


def _linear_stress(problem: _Problem, taut: Array) -> tuple[Array, Array, Array]:
    """Stiffness, geometric stiffness by the linear solution, equations."""
    structure, lines = problem.structure, problem.lines
    springs = problem.tied.springs
    stiff = lines.direction.shape[0] - (springs.rows.count - structure.layout.row_springs)
    acting = jnp.concatenate(
        [jnp.ones(stiff, dtype=bool), taut[: springs.rows.count - structure.layout.row_springs]]
    )
    rows = jnp.concatenate([-lines.direction, lines.direction], axis=1)
    rows = jnp.einsum("ti,tin->tn", rows, lines.ends)
    strength = jnp.where(acting, lines.stiffness, 0.0)
    # Bars within parts are in the stiffness of the parts already.
    others = jnp.concatenate([rows[stiff:], problem.turning])
    other_strength = jnp.concatenate([strength[stiff:], problem.turning_stiffness])
    stiffness = model.stiffness(structure, problem.elements) + others.T @ (
        other_strength[:, None] * others
    )
    b = problem.equations
    factor = linear.factorise(stiffness, b)
    q, _ = linear.solve(stiffness, b, factor, problem.force, jnp.zeros(len(b)))
    geometric = jnp.zeros_like(stiffness)
    elements, displacements = problem.elements, _element_displacements(problem, q)
    for group, own, load, u in zip(
        elements.groups,
        elements.matrices,
        problem.end_loads,
        displacements,
        strict=True,
    ):
        u = own.ends(u, load)
        k = jax.vmap(group.element.geometric_stiffness)(
            group.x, u.reshape(-1, 2, 6), group.section
        ).reshape(-1, 12, 12)
        if own.end is not None:
            k = jnp.einsum("mai,mab,mbj->mij", own.end, k, own.end)
        geometric = model.add_matrices(structure, geometric, group.ends, k)
    across = jnp.eye(3)[None] - jnp.einsum("ta,tb->tab", lines.direction, lines.direction)
    pull = (strength * (rows @ q) / lines.length)[:, None, None] * across
    signs = jnp.array([[1.0, -1.0], [-1.0, 1.0]])
    blocks = jnp.einsum("ij,tab->tiajb", signs, pull).reshape(-1, 6, 6)
    geometric += jnp.einsum("tin,tij,tjk->nk", lines.ends, blocks, lines.ends)
    return stiffness, geometric, b
