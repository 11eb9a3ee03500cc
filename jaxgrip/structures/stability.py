"""Second-order analysis and buckling: equilibrium of the deflected structure."""

from collections.abc import Iterable
from numbers import Integral
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag, lu_factor, lu_solve, solve_triangular
from jaxtyping import Array, Float

from jaxgrip.assembly import Poses
from jaxgrip.checks import brief, concrete
from jaxgrip.structures import linear, model
from jaxgrip.structures.analysis import (
    Equilibrium,
    check_loads,
    inertia_amounts,
    nodal_forces,
    raised,
    solve,
    tie_loads,
)
from jaxgrip.structures.coupling import Coupling, Numbering, coupling, matrix
from jaxgrip.structures.loads import Load, as_loads
from jaxgrip.structures.results import RESULTS, SINGULAR, Solution, recover
from jaxgrip.structures.structure import Structure

# Newton's last step squares it; rounding of slender structures stays below it.
TOLERANCE = 1e-6
STEPS = 50
# Of the largest reciprocal factor; what is smaller is rounding.
NO_BUCKLING = 1e-12


def second_order(
    structure: Structure, poses: Poses, loads: Load | Iterable[Load], *, throw: bool = True
) -> Solution:
    """Statics of the deflected structure (P-Δ): section forces do work on the bending they cause.

    Newton's method with the geometric stiffness of beams, bars, ropes and rigid links; strains
    stay small, and normal forces are those of the displacements to first order.

    **Arguments**, **Returns:** as `solve`; section forces are those of the deflected structure in
    the axes of the undeformed one. `margin` is of the stiffness together with the geometric one by
    the section forces found. Derivatives of first order.

    **Raises:** as `solve`, and `StructureError` for a load beyond buckling.

    Source: 002 section 6.4.
    """
    _check_whole(structure)
    loads = as_loads(loads)
    structure.check(poses)
    check_loads(structure, loads)
    solution = _second_order(structure, poses, loads)
    if not throw:
        return solution
    if concrete(solution.margin) and not solution.succeeded:
        # Its sentence names what can still move, which the second-order analysis cannot.
        solve(structure, poses, loads)
    return raised(solution)


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

    Every beam is one cubic element: the factor of one that buckles alone between balls at both of
    its ends is 12/π² times Euler's, of two elements 0.75 % above it.

    **Arguments:** as `solve`; `count` of factors.

    **Returns:** `Buckling`; factors are differentiable to first order, of equal ones their sum
    only.

    **Raises:** as `solve`, and `ValueError` for a `count` that is no whole number from 1 to that
    of the freedoms.

    Source: 002 section 6.4.
    """
    _check_whole(structure)
    if not isinstance(count, Integral) or not 1 <= count <= structure.freedoms:
        raise ValueError(
            f"The count of buckling factors is {brief(count)}; give a whole number from 1 to "
            f"{structure.freedoms}, that of the freedoms."
        )
    loads = as_loads(loads)
    first = solve(structure, poses, loads, throw=throw)
    return _buckling(structure, poses, loads, first.taut, int(count))


def _check_whole(structure: object) -> None:
    if not isinstance(structure, Structure):
        raise ValueError(
            f"This analysis takes a Structure as a whole, not a {type(structure).__name__}."
        )


class _Lines(NamedTuple):
    """Stiff bars within parts, then ropes within parts, then ties.

    `way` (t, 3, 6): what the second end moves from the first one, in ground axes, by the freedoms
    `index` (t, 6).
    """

    index: np.ndarray
    way: Float[Array, "t 3 6"]
    direction: Float[Array, "t 3"]
    length: Float[Array, " t"]
    stiffness: Float[Array, " t"]
    tension_only: np.ndarray

    def moved(self, z: Float[Array, " n"]) -> Float[Array, "t 3"]:
        """What the second ends move from the first ones."""
        return jnp.einsum("tai,ti->ta", self.way, _of(z, self.index))

    def stretch(self, z: Float[Array, " n"]) -> Float[Array, " t"]:
        """How much longer they are."""
        return jnp.sum(self.moved(z) * self.direction, axis=1)


class _Beams(NamedTuple):
    """Beams of one group by the displacements of their ends.

    `geometric` (m, 12, 12, 12): geometric stiffness by each of these displacements; `load` on the
    ends; `ends` (m, 12, 24): displacements of the ends by the freedoms `index`, those of the nodes
    and those of the released ends; None where `index` (m, 12) are the ends' own.
    """

    index: np.ndarray
    ends: Float[Array, "m 12 24"] | None
    stiffness: Float[Array, "m 12 12"]
    geometric: Float[Array, "m 12 12 12"]
    load: Float[Array, "m 12"]
    axes: Float[Array, "m 3 3"]

    def moved(self, z: Float[Array, " n"]) -> Float[Array, "m 12"]:
        """Displacements of the ends."""
        u = _of(z, self.index)
        return u if self.ends is None else jnp.einsum("mai,mi->ma", self.ends, u)

    def add(self, total: Float[Array, "n n"], matrices: Float[Array, "m 12 12"]) -> Array:
        """The total with the matrices by the displacements of the ends."""
        if self.ends is not None:
            matrices = jnp.einsum("mai,mab,mbj->mij", self.ends, matrices, self.ends)
        return _added(total, self.index, matrices)


class _Arms(NamedTuple):
    """Rigid arms `r` (a, 3) from the nodes that lead to those that follow, in part axes.

    `follower` (a, 3): which of all freedoms are the displacements of the nodes that follow;
    `turn` (a, 3): which of the unknowns are the rotations of the nodes that lead.
    """

    r: Float[Array, "a 3"]
    follower: np.ndarray
    turn: np.ndarray

    def second(self, q: Float[Array, " u"], count: int) -> Float[Array, "n u"]:
        """Derivative of θ x (θ x r) / 2, what followers move to second order."""
        theta, r = q[self.turn], self.r
        along = jnp.sum(theta * r, axis=1)[:, None, None] * jnp.eye(3)[None]
        both = theta[:, :, None] * r[:, None, :]
        slope = (along + both) / 2 - jnp.swapaxes(both, 1, 2)
        zero = jnp.zeros((count, len(q)))
        return zero.at[self.follower[:, :, None], self.turn[:, None, :]].add(slope)

    def add(self, total: Float[Array, "u u"], force: Float[Array, " n"]) -> Float[Array, "u u"]:
        """The total with the geometric stiffness of the arms by the forces on all freedoms."""
        f, r = force[self.follower], self.r
        both = f[:, :, None] * r[:, None, :]
        along = jnp.sum(f * r, axis=1)[:, None, None] * jnp.eye(3)[None]
        return _added(total, self.turn, along - (both + jnp.swapaxes(both, 1, 2)) / 2)


class _Problem(NamedTuple):
    """What does not change in the course of the iterations.

    `move` (n, u): all freedoms, those of followers and of released ends among them, by the
    unknowns, which are those of the structure, then those of released ends.
    """

    move: Float[Array, "n u"]
    arms: _Arms | None
    beams: list[_Beams]
    lines: _Lines
    turning: Float[Array, "s n"]
    turning_stiffness: Float[Array, " s"]
    equations: Float[Array, "m n"]
    force: Float[Array, " n"]

    def of_unknowns(self, total: Float[Array, "n n"]) -> Float[Array, "u u"]:
        """A matrix by all freedoms as one by the unknowns."""
        return total if self.arms is None else self.move.T @ total @ self.move


class _State(NamedTuple):
    q: Float[Array, " u"]
    multipliers: Float[Array, " m"]
    change: Float[Array, ""]
    count: Array


@eqx.filter_jit
def _second_order(structure: Structure, poses: Poses, loads: tuple[Load, ...]) -> Solution:
    on_ties = tie_loads(structure, poses, loads)
    problem, elements, tied, amounts = _problem(structure, poses, loads, on_ties)
    numbers, rest = eqx.partition(problem, eqx.is_inexact_array)
    frozen = eqx.combine(jax.lax.stop_gradient(numbers), rest)
    m, u = len(problem.equations), problem.move.shape[1]
    start = _State(jnp.zeros(u), jnp.zeros(m), jnp.array(jnp.inf), jnp.array(0))

    def going(state: _State) -> Array:
        return (state.change > TOLERANCE) & (state.count < STEPS)

    end = jax.lax.while_loop(going, lambda state: _newton(frozen, state)[0], start)
    done, secant = _newton(problem, jax.lax.stop_gradient(end))
    margin = linear.stability(jax.lax.stop_gradient(secant), frozen.equations @ frozen.move)
    z = problem.move @ done.q
    stiff = len(problem.lines.length) - (tied.springs.rows.count - structure.layout.row_springs)
    tensions = jnp.where(_acting(problem.lines, z), problem.lines.stiffness, 0.0)
    spring_forces = jnp.concatenate(
        [
            (tensions * problem.lines.stretch(z))[stiff:],
            problem.turning_stiffness * (problem.turning @ z),
        ]
    )
    found = Equilibrium(
        done.q[: structure.freedoms],
        done.multipliers,
        spring_forces,
        (spring_forces > 0) | ~tied.springs.tension_only,
        margin,
        end.change <= TOLERANCE,
    )
    # The section forces of beams are those of the deflected ones, below.
    others = elements._replace(groups=[], matrices=[])
    solution = recover(structure, others, poses, tied, found, amounts, on_ties)
    if problem.beams:
        order = np.argsort(np.concatenate([group.order for group in elements.groups]))
        forces = jnp.concatenate([_beam_forces(beams, z) for beams in problem.beams])[order]
        solution = eqx.tree_at(lambda s: s.beam_forces, solution, forces)
    # From a mechanism Newton's first step leads anywhere, even where tension would hold it.
    straight = _stiffness(frozen, jnp.ones(len(problem.lines.length), dtype=bool))
    held = linear.factorise(frozen.of_unknowns(straight), frozen.equations @ frozen.move)
    result = RESULTS.where(
        held.margin() > SINGULAR,
        RESULTS.where(
            (margin > SINGULAR) & (end.change <= TOLERANCE), RESULTS.successful, RESULTS.diverged
        ),
        RESULTS.singular,
    )
    return eqx.tree_at(lambda s: s.result, solution, result)


def _problem(
    structure: Structure, poses: Poses, loads: tuple[Load, ...], on_ties: Float[Array, "t 2 3"]
) -> tuple[_Problem, model.Elements, Coupling, Float[Array, "p 12"]]:
    groups = model.beam_groups(structure)
    released = int(sum(group.mask.sum() for group in groups if group.mask is not None))
    whole = model.unlinked(structure, released)
    layout = whole.layout
    matrices = [model.beam_matrices(group._replace(mask=None)) for group in groups]
    elements = model.Elements(groups, matrices, model.bars(structure))
    own = Numbering(layout.dof, layout.freedoms)
    tied = coupling(whole, poses, elements.bars)
    amounts = inertia_amounts(structure, poses, loads)
    inertia = model.inertia_loads(whole, elements._replace(groups=[], matrices=[]))
    force = nodal_forces(whole, poses, loads, on_ties, own)
    force -= jnp.sum(inertia * amounts[layout.part_of_freedom], axis=1)
    part = np.searchsorted(np.array(layout.offsets), np.arange(len(layout.root)), side="right") - 1
    beams, first = [], layout.freedoms - released
    for group, of in zip(groups, matrices, strict=True):
        load = -jnp.einsum("mkj,mk->mj", of.inertia, amounts[part[group.ends[:, 0]]])
        beams.append(_beams(group, of, load, layout.dof[group.ends].reshape(-1, 12), first))
        first += 0 if group.mask is None else int(group.mask.sum())
        at_ends = load if beams[-1].ends is None else jnp.einsum("mai,ma->mi", beams[-1].ends, load)
        force = force.at[beams[-1].index].add(at_ends, mode="drop")
    rotations = structure.rotations(poses)
    springs = matrix(whole, rotations, tied.springs.rows, own)
    straight = len(springs) - layout.row_springs
    move, arms = _arms(structure, whole, released)
    problem = _Problem(
        move,
        arms,
        beams,
        _lines(whole, elements.bars, poses, tied),
        springs[straight:],
        tied.springs.stiffness[straight:],
        matrix(whole, rotations, tied.equations, own),
        force,
    )
    return problem, elements, tied, amounts


def _beams(
    group: model.BeamGroup, matrices: model.BeamMatrices, load: Array, dof: np.ndarray, first: int
) -> _Beams:
    """`dof` (m, 12) freedoms of the nodes; `first` freedom of the released ends."""

    def geometric(x, section):
        def by(u):
            return group.element.geometric_stiffness(x, u.reshape(2, 6), section).reshape(12, 12)

        return jax.vmap(by, out_axes=2)(jnp.eye(12))

    def ends(axes, mask):
        loose = block_diag(*[axes] * 4) * mask[None]
        return jnp.concatenate([jnp.eye(12) - loose @ loose.T, loose], axis=1)

    at_ends = None
    if group.mask is not None:
        mask = group.mask.astype(bool)
        loose = np.full(mask.shape, np.iinfo(np.int32).max)
        loose[mask] = first + np.arange(mask.sum())
        dof = np.concatenate([dof, loose], axis=1)
        at_ends = jax.vmap(ends)(matrices.axes, jnp.asarray(group.mask))
    slope = jax.vmap(geometric)(group.x, group.section)
    return _Beams(dof, at_ends, matrices.stiffness, slope, load, matrices.axes)


def _lines(whole: Structure, bar: model.Bar, poses: Poses, tied: Coupling) -> _Lines:
    stiff, ropes = np.flatnonzero(~bar.tension_only), np.flatnonzero(bar.tension_only)
    spans = np.array([s.ends for s in whole.layout.spans], dtype=int).reshape(-1, 2)
    ends = np.concatenate([bar.ends[stiff], bar.ends[ropes], spans])
    straight = len(ropes) + len(spans)
    places = whole.places(poses)
    way = places[ends[:, 1]] - places[ends[:, 0]]
    length = jnp.linalg.norm(way, axis=1)
    turn = whole.rotations(poses)[ends]
    return _Lines(
        whole.layout.dof[ends][:, :, :3].reshape(-1, 6),
        jnp.concatenate([-turn[:, 0], turn[:, 1]], axis=2),
        way / length[:, None],
        length,
        jnp.concatenate([bar.stiffness[stiff], tied.springs.stiffness[:straight]]),
        np.concatenate([np.zeros(len(stiff), bool), tied.springs.tension_only[:straight]]),
    )


def _arms(
    structure: Structure, whole: Structure, released: int
) -> tuple[Float[Array, "n u"], _Arms | None]:
    """All freedoms by the unknowns, and the arms that lead to followers."""
    count = len(structure.layout.root)
    unknowns = structure.freedoms + released
    nodes = np.arange(count)
    link = model.arms(structure, nodes)
    if link is None:
        return jnp.eye(unknowns), None
    root, dof, own = structure.layout.root, structure.layout.dof[:count], whole.layout.dof[:count]
    # Freedoms that there are not are numbered by their count, as released ends are otherwise.
    dof = np.where(dof < structure.freedoms, dof, unknowns)
    move = jnp.zeros((whole.freedoms, unknowns))
    move = move.at[own[:, :, None], dof[:, None, :]].set(link, mode="drop")
    loose = np.arange(released)
    move = move.at[whole.freedoms - released + loose, structure.freedoms + loose].set(1.0)
    followers = np.flatnonzero(root != nodes)
    x = structure.nodes()
    r = x[followers] - x[root[followers]]
    return move, _Arms(r, own[followers, :3], dof[followers, 3:])


def _newton(problem: _Problem, state: _State) -> tuple[_State, Float[Array, "u u"]]:
    """One step, and the stiffness with the geometric one at its start.

    Of first derivatives of the result only those by way of the residual remain; the others vanish
    with the residual.
    """
    move, b = problem.move, problem.equations @ problem.move
    z = move @ state.q
    acting = _acting(problem.lines, z)
    geometric, slope = _geometric(problem, z, acting)
    secant = _stiffness(problem, acting) + geometric
    rest = problem.force - secant @ z - problem.equations.T @ state.multipliers
    slope += secant
    tangent, secant = problem.of_unknowns(slope), problem.of_unknowns(secant)
    across, right = b.T, rest @ move
    if problem.arms is not None:
        second = problem.arms.second(state.q, len(rest))
        tangent = problem.arms.add(tangent, rest) + second.T @ (slope @ move)
        secant = problem.arms.add(secant, rest)
        across += second.T @ problem.equations.T
        right += second.T @ rest
    right = jnp.concatenate([right, -(b @ state.q)])
    tangent, across, b = jax.lax.stop_gradient((tangent, across, b))
    scale, weight = linear.scales(tangent, b)
    n = len(scale)
    both = jnp.concatenate([scale, weight])
    whole = jnp.block([[tangent, across], [b, jnp.zeros((len(b), len(b)))]])
    whole = whole * both[:, None] * both[None, :]
    soft = jnp.diag(jnp.concatenate([jnp.zeros(n), jnp.full(len(b), linear.SOFT)]))
    factor = lu_factor(whole - soft)
    right = both * right
    step = lu_solve(factor, right)
    step = step + lu_solve(factor, right - whole @ step)
    q = state.q + step[:n] * scale
    size = jnp.max(jnp.abs(q / scale))
    change = jnp.max(jnp.abs(step[:n])) / jnp.where(size > 0, size, 1.0)
    found = _State(q, state.multipliers + step[n:] * weight, change, state.count + 1)
    return found, secant


def _acting(lines: _Lines, z: Float[Array, " n"]) -> Array:
    return ~(jnp.asarray(lines.tension_only) & (lines.stretch(z) < 0))


def _stiffness(problem: _Problem, acting: Array) -> Float[Array, "n n"]:
    """Stiffness by all freedoms."""
    total = problem.turning.T @ (problem.turning_stiffness[:, None] * problem.turning)
    for beams in problem.beams:
        total = beams.add(total, beams.stiffness)
    lines = problem.lines
    row = jnp.einsum("ta,tai->ti", lines.direction, lines.way)
    strength = jnp.where(acting, lines.stiffness, 0.0)
    return _added(total, lines.index, jnp.einsum("t,ti,tj->tij", strength, row, row))


def _geometric(
    problem: _Problem, z: Float[Array, " n"], acting: Array
) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
    """Geometric stiffness by the section forces of displacements, and what these change of it.

    The second one, times a change of the displacements, is the first one's change, times the
    displacements.
    """
    total = slope = jnp.zeros((len(z), len(z)))
    for beams in problem.beams:
        u = beams.moved(z)
        total = beams.add(total, jnp.einsum("mijk,mk->mij", beams.geometric, u))
        slope = beams.add(slope, jnp.einsum("mijk,mj->mik", beams.geometric, u))
    lines = problem.lines
    across = jnp.eye(3)[None] - lines.direction[:, :, None] * lines.direction[:, None, :]
    across = across / lines.length[:, None, None]
    strength = jnp.where(acting, lines.stiffness, 0.0)
    pull = strength * lines.stretch(z)
    blocks = jnp.einsum("t,tai,tab,tbj->tij", pull, lines.way, across, lines.way)
    total = _added(total, lines.index, blocks)
    turned = jnp.einsum("tai,tab,tb->ti", lines.way, across, lines.moved(z))
    row = jnp.einsum("t,ta,tai->ti", strength, lines.direction, lines.way)
    return total, _added(slope, lines.index, turned[:, :, None] * row[:, None, :])


def _of(z: Float[Array, " n"], index: np.ndarray) -> Array:
    """Numbers of the freedoms, 0 where there is none."""
    return z.at[index].get(mode="fill", fill_value=0.0)


def _added(total: Float[Array, "n n"], index: np.ndarray, matrices: Float[Array, "m i i"]) -> Array:
    return total.at[index[:, :, None], index[:, None, :]].add(matrices, mode="drop")


def _beam_forces(beams: _Beams, z: Float[Array, " n"]) -> Float[Array, "m 2 6"]:
    u = beams.moved(z)
    total = beams.stiffness + jnp.einsum("mijk,mk->mij", beams.geometric, u)
    forces = jnp.einsum("mij,mj->mi", total, u) - beams.load
    forces = jnp.einsum("mba,mkb->mka", beams.axes, forces.reshape(-1, 4, 3))
    return forces.reshape(-1, 2, 6) * jnp.array([[[-1.0], [1.0]]])


@eqx.filter_jit
def _buckling(
    structure: Structure, poses: Poses, loads: tuple[Load, ...], taut: Array, count: int
) -> Buckling:
    problem, _, tied, _ = _problem(structure, poses, loads, tie_loads(structure, poses, loads))
    springs = tied.springs.rows.count - structure.layout.row_springs
    stiff = len(problem.lines.length) - springs
    acting = jnp.concatenate([jnp.ones(stiff, dtype=bool), taut[:springs]])
    stiffness, geometric, equations = _linear_stress(problem, acting)
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
    there = values > NO_BUCKLING * jnp.max(jnp.abs(values))
    there, values, vectors = (x[..., ::-1][..., :count] for x in (there, values, vectors))
    shapes = half.T @ vectors

    def factor_of(there: Array, value: Array, shape: Array) -> Array:
        safe = jnp.where(there, 1 / jnp.where(there, value, 1.0), 0.0)
        pull = k @ shape + safe * (g @ shape)
        row = factor.weight[:, None] * b
        held = -factor.weight * (jnp.linalg.pinv(row.T, rtol=1e-9) @ pull)
        own = shape @ (stiffness @ shape) + safe * (shape @ (geometric @ shape))
        own += 2 * held @ (equations @ shape)
        change = own / jnp.where(there, -shape @ (g @ shape), 1.0)
        return jnp.where(there, safe + change - jax.lax.stop_gradient(change), jnp.inf)

    modes = jax.vmap(lambda q: model.displacements(structure, q[: structure.freedoms]))(shapes.T)
    turn = structure.rotations(poses)[: len(structure.layout.root)]
    modes = jnp.einsum("kab,zkib->zkia", turn, modes.reshape(*modes.shape[:2], 2, 3))
    modes = modes.reshape(count, -1, 6)
    largest = jnp.max(jnp.abs(modes[..., :3]), axis=(1, 2))
    # Else the rounding of a mode without displacements would be blown up.
    seen = there & (largest > 1e-9 * jnp.max(jnp.abs(shapes), axis=0))
    modes = jnp.where(
        seen[:, None, None], modes / jnp.where(seen, largest, 1.0)[:, None, None], 0.0
    )
    return Buckling(jax.vmap(factor_of)(there, values, shapes.T), modes)


def _linear_stress(problem: _Problem, acting: Array) -> tuple[Array, Array, Array]:
    """Stiffness, geometric stiffness by the linear solution, equations, all by the unknowns."""
    total = _stiffness(problem, acting)
    stiffness, b = problem.of_unknowns(total), problem.equations @ problem.move
    factor = linear.factorise(stiffness, b)
    gap = jnp.zeros(len(b))
    q, multipliers = linear.solve(stiffness, b, factor, problem.force @ problem.move, gap)
    z = problem.move @ q
    geometric = problem.of_unknowns(_geometric(problem, z, acting)[0])
    if problem.arms is not None:
        rest = problem.force - total @ z - problem.equations.T @ multipliers
        geometric = problem.arms.add(geometric, rest)
    return stiffness, geometric, b
