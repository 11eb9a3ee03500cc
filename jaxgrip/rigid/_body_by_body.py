"""Derivatives of the dynamics of trees of any size at many states, in arrays.

As `_derivatives`, but one kernel is for all bodies, and what it leaves of each joint is multiplied
in pairs. Derivatives by the orientation of a ball are those by a rotation vector in the axes of its
body, for which the three axes of a ball have the same carrier.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxgrip.rigid._coordinates import layout
from jaxgrip.rigid._derivatives import (
    Motion,
    Spatial,
    Sums,
    flow_load,
    inertia_load,
    motion_cross,
    plus,
    response_of,
    sums_of,
    times,
)
from jaxgrip.rigid._kernels import Model, Pieces, Tile, rows_of
from jaxgrip.rigid._mass_matrix import Pose, ancestors
from jaxgrip.rigid._newton_euler import placement, upward
from jaxgrip.rigid._passive import armature_of
from jaxgrip.rigid._recursion import (
    Joint,
    Limb,
    PerBody,
    axes_of,
    body_of,
    body_table,
    each,
    limbs,
    outward,
    spread,
)
from jaxgrip.rigid._tree import Tree
from jaxgrip.solve.fusion import in_one_kernel, over_tiles
from jaxgrip.spatial.components import (
    IDENTITY,
    ZERO,
    Matrix,
    Scalar,
    Vector,
    cross,
    matmul,
    matvec,
    scale,
    stack,
    unstack,
    vadd,
)

# So many states at a time stay in the second cache with the matrices of a limb.
_TILE = 128

# More bodies have too many operations for a kernel.
_MOST = 12

# Programs for the products of matrices grow with the joints of a limb.
MOST_JOINTS = 40

_STILL: Spatial = (ZERO, ZERO)


class Seen(NamedTuple):
    """Pose and motion of a body."""

    rotation: Matrix
    position: Vector
    velocity: Spatial
    acceleration: Spatial


class Axis(NamedTuple):
    """Axis of a joint.

    `rate` and `curve` are its first and second rate if it were fixed to what carries the joint,
    `swing` the rate for derivatives by the rate of the joint.
    """

    axis: Spatial
    rate: Spatial
    swing: Spatial
    curve: Spatial


class Ends(NamedTuple):
    """What a joint contributes to derivatives: first as one that is moved by others.

    Loads of all that the joint carries: `unit` for a unit of its acceleration, `by_rate` and
    `by_turn` for its rate and its coordinate; `drag` as in `Response`; `swing`, `axis`, `curve` and
    `spin`, the angular rate of the axis, of the joint as one that moves others.
    """

    unit: Spatial
    drag: Vector
    by_rate: Spatial
    by_turn: Spatial
    swing: Spatial
    axis: Spatial
    curve: Spatial
    spin: Vector


# Rows of `Ends` in an array.
_UNIT, _UNIT_DRAG, _BY_RATE, _BY_TURN = slice(0, 6), slice(0, 9), slice(9, 15), slice(15, 21)
_SWING_TURN, _AXIS, _CURVE_SPIN = slice(21, 30), slice(27, 33), slice(33, 42)


def directions(tree: Tree) -> np.ndarray:
    """Directions (1 or 3, n) along which a joint moves in one of its degrees of freedom at most.

    All joints with one move along the first, and the axes of all balls along one each.
    """
    seeds = np.zeros((3 if tree.balls else 1, tree.n))
    at = layout(tree)
    seeds[0, at.rates] = 1.0
    for turn in at.turns:
        seeds[[0, 1, 2], turn] = 1.0
    return seeds


def jacobians_in_arrays(
    tree: Tree,
    q: Float[Array, "nq batch"],
    qd: Float[Array, "n batch"],
    qdd: Float[Array, "n batch"],
    held: list[Float[Array, "n batch"]],
) -> tuple[Float[Array, "n n batch"], ...]:
    """Derivatives of the accelerations by q, qd and tau; `qdd` are those in the chart at q.

    `held` are derivatives of what springs, damping and friction take, by q in `directions` and by
    qd in all.
    """
    run = functools.partial(_tile_jacobians, tree)
    return over_tiles(run, [q, qd, qdd, *held], ((tree.n, tree.n),) * 3, _TILE)


def _tile_jacobians(
    tree: Tree, q: Array, qd: Array, qdd: Array, *held: Array
) -> tuple[Float[Array, "n n states"], ...]:
    ends, bodies = _ends_of_bodies(tree, q, qd, qdd)
    ends, row = jnp.swapaxes(ends, 0, 1), {body: k for k, body in enumerate(bodies)}
    armature, along = armature_of(tree), directions(tree) > 0
    found = []
    for limb in limbs(tree):
        at = np.array(limb.coordinates)
        matrix, by_q, by_qd = _by_pairs(limb, rows_of(ends, [row[tree.moving[k]] for k in at]))
        unit = np.eye(limb.n, dtype=bool)[:, :, None]
        if armature is not None:
            matrix = matrix + jnp.where(unit, armature[at][:, None, None], 0.0)
        if tree.passive is not None:
            joint = _ball_of(limb)
            same = np.equal.outer(joint, joint)
            for seed, change in zip(along, held[:-1], strict=True):
                by_q = by_q + jnp.where((same & seed[at])[:, :, None], change[at][:, None], 0.0)
            by_qd = by_qd + jnp.where(unit, held[-1][at][:, None], 0.0)
        minus = _minus_inverse(matrix)
        own = _product(minus, by_q), _product(minus, by_qd), -minus
        found.append(lax.optimization_barrier(own))
    order = np.argsort([k for limb in limbs(tree) for k in limb.coordinates]).tolist()
    return tuple(_joined(blocks, order) for blocks in zip(*found, strict=True))


def _joined(blocks: tuple[Array, ...], order: list[int]) -> Float[Array, "n n _"]:
    """The matrices with blocks on the diagonal, in another order of rows and columns."""
    if len(blocks) == 1:
        return blocks[0]
    rows, before = [], 0
    for block in blocks:
        after = len(order) - before - len(block)
        rows.append(jnp.pad(block, ((0, 0), (before, after), (0, 0))))
        before += len(block)
    whole = rows_of(jnp.concatenate(rows), order)
    return jnp.swapaxes(rows_of(jnp.swapaxes(whole, 0, 1), order), 0, 1)


def _ends_of_bodies(
    tree: Tree, q: Array, qd: Array, qdd: Array
) -> tuple[Float[Array, "42 bodies _"], list[int]]:
    """Rows of `Ends` of all bodies, and the bodies in their order."""
    parts = Pieces(Tile(tree, q, qd, qdd), limbs(tree), _MOST, alone=True)
    bodies = [i for group in parts.groups for part in group.limbs for i in part.bodies]
    row = {-1: len(bodies)} | {body: k for k, body in enumerate(bodies)}
    seen = parts.by_component(parts.outward(_piece_seen, parts.nothing()), q)
    # A ball has one carrier, and its velocity is that of the last of its bodies.
    carrier, last = [*tree.parents], [*range(len(bodies))]
    for first in tree.balls:
        carrier[first : first + 3] = [carrier[first]] * 3
        last[first : first + 3] = [first + 2] * 3
    base = stack([0.0] * 9 + [-g for g in unstack(tree.gravity)], q)
    base = jnp.broadcast_to(base[:, None, None], (12, 1, q.shape[-1]))
    motion = jnp.swapaxes(jnp.concatenate([seen[12:], base], axis=1), 0, 1)
    before = rows_of(motion, [row[carrier[i]] for i in bodies])
    after = rows_of(motion[:, :6], [row[last[i]] for i in bodies])
    own = [x.reshape(len(x), -1) for x in (seen, *(jnp.swapaxes(x, 0, 1) for x in (before, after)))]
    table = rows_of(jnp.concatenate([body_table(tree), _axes(tree)], axis=1), bodies)
    table = jnp.broadcast_to(table.T[:, :, None], (24, *seen.shape[1:])).reshape(24, -1)
    none = tree.gravity[:0]
    sums, axis = in_one_kernel(lambda _, x: _sums_and_axis(*x), none, [[*x] for x in (table, *own)])
    leaves, of_sums = jax.tree.flatten(sums)
    total = jnp.stack(leaves).reshape(len(leaves), len(bodies), -1)
    total = _carried(total, [row[tree.parents[i]] for i in bodies]).reshape(len(leaves), -1)
    ends = in_one_kernel(lambda _, x: _ends(*x), none, (of_sums.unflatten([*total]), axis))
    rows = jnp.stack(jax.tree.leaves(ends))
    return rows.reshape(len(rows), len(bodies), -1), bodies


def _piece_seen(model: Model, carrier: Seen | None, _: None) -> tuple[PerBody, list]:
    base = Seen(IDENTITY, ZERO, _STILL, (ZERO, upward(model.gravity)))
    start = base if carrier is None else carrier
    accel, rate = (spread(model.limb, x) for x in (model.third, model.rate))
    place = each(model.limb, placement, model.body, model.joint)
    seen = outward(model.limb, _seen, start, place, model.joint, rate, accel)
    return seen, [list(x) for x in zip(*(jax.tree.leaves(x) for x in seen), strict=True)]


def _seen(carrier: Seen, place: tuple, joint: Joint, rate: Scalar, accel: Scalar) -> Seen:
    r, s = place
    rotation = matmul(carrier.rotation, r)
    position = vadd(carrier.position, matvec(carrier.rotation, s))
    axis = _axis(rotation, position, joint.turns, joint.slides)
    own = times(rate, motion_cross(carrier.velocity, axis))
    return Seen(
        rotation,
        position,
        plus(carrier.velocity, times(rate, axis)),
        plus(carrier.acceleration, plus(times(accel, axis), own)),
    )


def _axis(rotation: Matrix, position: Vector, turns: Scalar, slides: Scalar) -> Spatial:
    z = tuple(row[2] for row in rotation)
    return scale(turns, z), vadd(scale(turns, cross(position, z)), scale(slides, z))


def _axes(tree: Tree) -> Float[Array, "bodies 2"]:
    return jnp.stack([jnp.asarray(x, tree.mass.dtype) for x in axes_of(tree)], axis=1)


def _sums_and_axis(table: list, seen: list, before: list, after: list) -> tuple[Sums, Axis]:
    """Sums over a body's particles and the axis of its joint, from all that is known of both."""
    body, (turns, slides) = body_of(tuple(table[:22])), table[22:]
    seen, (velocity, acceleration) = _SEEN.unflatten(seen), _MOTION.unflatten(before)
    pose = Pose(seen.rotation, seen.position, ZERO)
    axis = _axis(seen.rotation, seen.position, turns, slides)
    rate = motion_cross(velocity, axis)
    swing = plus(rate, motion_cross((tuple(after[:3]), tuple(after[3:])), axis))
    curve = plus(motion_cross(acceleration, axis), motion_cross(velocity, rate))
    own = sums_of(body, pose, Motion(seen.velocity, seen.acceleration))
    return own, Axis(axis, rate, swing, curve)


_SEEN = jax.tree.structure(Seen(IDENTITY, ZERO, _STILL, _STILL))
_MOTION = jax.tree.structure((_STILL, _STILL))


def _carried(own: Float[Array, "k bodies _"], parents: list[int]) -> Float[Array, "k bodies _"]:
    """Sums of the bodies' own and those of all that they carry, which come later."""
    place = np.array(parents), np.arange(len(parents))

    def add_up(total: Array, x: tuple) -> tuple[Array, None]:
        parent, i = x
        more = lax.dynamic_index_in_dim(total, parent, 1) + lax.dynamic_index_in_dim(total, i, 1)
        return lax.dynamic_update_slice_in_dim(total, more, parent, 1), None

    base = jnp.zeros_like(own[:, :1])
    total, _ = lax.scan(add_up, jnp.concatenate([own, base], axis=1), place, reverse=True)
    return total[:, :-1]


def _ends(total: Sums, joint: Axis) -> Ends:
    axis, rate, swing, curve = joint
    unit, flow, drag = response_of(total, axis, rate)
    (w, v), (moment, force) = axis, total.load
    axial = vadd(cross(w, moment), cross(v, force)), cross(w, force)
    by_rate = plus(flow_load(total, axis), inertia_load(total, swing))
    by_turn = plus(plus(flow, inertia_load(total, curve)), axial)
    return Ends(unit, drag, by_rate, by_turn, swing, axis, curve, rate[0])


def _by_pairs(limb: Limb, ends: Float[Array, "n 42 _"]) -> tuple[Array, Array, Array]:
    """Mass matrix, and derivatives of the torques by q and qd, (n, n, states)."""
    chains, moving = ancestors(limb), limb.moving
    carried = np.array([[j in chains[i] for j in moving] for i in moving])
    joint = _ball_of(limb)
    carried |= np.equal.outer(joint, joint)
    carries = carried.T & ~carried

    def pairs(first: tuple[slice, slice], second: tuple[slice, slice]) -> Array:
        below, above = (
            sum(ends[:, a][:, None] * ends[:, b][None] for a, b in _rows(*both))
            for both in (first, second)
        )
        return jnp.where(carried[:, :, None], below, jnp.where(carries[:, :, None], above, 0.0))

    return (
        pairs((_UNIT, _AXIS), (_AXIS, _UNIT)),
        pairs((_UNIT_DRAG, _CURVE_SPIN), (_AXIS, _BY_TURN)),
        pairs((_UNIT_DRAG, _SWING_TURN), (_AXIS, _BY_RATE)),
    )


def _ball_of(limb: Limb) -> np.ndarray:
    """For each coordinate the first body of its ball; without one a number of its own."""
    return np.array([next((b for b in limb.balls if b <= i < b + 3), -1 - i) for i in limb.moving])


def _rows(a: slice, b: slice) -> zip:
    return zip(range(a.start, a.stop), range(b.start, b.stop), strict=True)


def _minus_inverse(matrix: Float[Array, "n n _"]) -> Float[Array, "n n _"]:
    """The negative inverse of positive definite matrices by sweeps, from the leaves to the base."""
    n = len(matrix)

    def sweep(step: Array, a: Array) -> Array:
        k = n - 1 - step
        row = lax.dynamic_index_in_dim(a, k, 0, keepdims=False)
        pivot = lax.dynamic_index_in_dim(row, k, 0)
        part = row / pivot
        rest = a - row[:, None] * part[None]
        part = lax.dynamic_update_index_in_dim(part, -1 / pivot, k, 0)
        rest = lax.dynamic_update_index_in_dim(rest, part, k, 0)
        return lax.dynamic_update_index_in_dim(rest, part, k, 1)

    return lax.fori_loop(0, n, sweep, matrix, unroll=4)


def _product(a: Float[Array, "n n _"], b: Float[Array, "n n _"]) -> Float[Array, "n n _"]:
    return functools.reduce(jnp.add, (a[:, k, None] * b[None, k] for k in range(len(a))))
