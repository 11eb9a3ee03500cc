"""Derivatives of the dynamics of trees of any size at many states, in arrays.

The recursions of `_derivatives` are scanned, one kernel for all bodies, and what they leave of
each joint is multiplied in pairs. Derivatives by the orientation of a ball are those by a rotation
vector in the axes of its body, for which the three axes of a ball have the same carrier.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxgrip.rigid._coordinates import layout
from jaxgrip.rigid._derivatives import (
    NO_SUMS,
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
from jaxgrip.rigid._kernels import rows_of, turned_by
from jaxgrip.rigid._mass_matrix import Pose, ancestors
from jaxgrip.rigid._newton_euler import placement, upward
from jaxgrip.rigid._passive import armature_of
from jaxgrip.rigid._recursion import Joint, Limb, axes_of, body_of, body_table, limbs
from jaxgrip.rigid._tree import Tree
from jaxgrip.solve.fusion import cos_sin, in_one_kernel, over_tiles
from jaxgrip.spatial.components import (
    IDENTITY,
    ZERO,
    Matrix,
    Vector,
    add,
    cross,
    matmul,
    matvec,
    mul,
    scale,
    stack,
    unstack,
    vadd,
)

# So many states at a time stay in the second cache with the matrices of a limb.
_TILE = 256

_STILL: Spatial = (ZERO, ZERO)


class Seen(NamedTuple):
    """Pose and motion of a body.

    `before` is velocity and acceleration of what carries the joint of a body, if trees have joints
    of several bodies, else empty.
    """

    rotation: Matrix
    position: Vector
    velocity: Spatial
    acceleration: Spatial
    before: tuple[Spatial, ...]


class Axis(NamedTuple):
    """Axis of a joint, and its first and second rate if it were fixed to what carries the joint."""

    axis: Spatial
    rate: Spatial
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
    """Directions (1 or 3, n) of which one changes no joint in two ways, nor two joints that touch.

    Along each all joints with one degree of freedom move, or an axis of every ball.
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
    ends = _ends_of_bodies(tree, q, qd, qdd)
    armature, along = armature_of(tree), directions(tree) > 0
    found = []
    for limb in limbs(tree):
        at = np.array(limb.coordinates)
        matrix, by_q, by_qd = _by_pairs(limb, rows_of(ends, [tree.moving[k] for k in at]))
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
        found.append((_product(minus, by_q), _product(minus, by_qd), -minus))
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


def _ends_of_bodies(tree: Tree, q: Array, qd: Array, qdd: Array) -> Float[Array, "bodies 42 _"]:
    numbers, columns = _numbers(tree), _columns(tree, q, qd, qdd)
    parents = np.array(tree.parents) + 1
    index = np.arange(1, len(parents) + 1)
    still = (_STILL, _STILL) if tree.balls else ()
    base = Seen(IDENTITY, ZERO, _STILL, (ZERO, upward(unstack(tree.gravity))), still)
    leaves, of_seen = jax.tree.flatten(base)
    _, of_axis = jax.tree.flatten(Axis(_STILL, _STILL, _STILL))
    start = jnp.broadcast_to(stack(leaves, q)[:, None], (len(leaves), q.shape[-1]))
    shape = len(parents) + 1, *start.shape

    def move(seen: Array, x: tuple) -> tuple[Array, Array]:
        i, parent, numbers, own = x
        body, axis = in_one_kernel(
            lambda k, x: _seen(k, of_seen.unflatten(x[0]), *x[1]),
            numbers,
            ([*seen[parent]], [*own]),
        )
        row = jnp.stack(jax.tree.leaves(body))
        return lax.dynamic_update_index_in_dim(seen, row, i, 0), jnp.stack(jax.tree.leaves(axis))

    start = jnp.zeros(shape, q.dtype).at[0].set(start)
    seen, axes = lax.scan(move, start, (index, parents, numbers, columns))
    # The velocity of a ball is that of the last of its bodies.
    last = np.arange(len(parents))
    for first in tree.balls:
        last[first : first + 3] = first + 2
    after = rows_of(seen, (last + 1).tolist())[:, 12 : 18 if tree.balls else 12]

    def carry(received: Array, x: tuple) -> tuple[Array, Array]:
        i, parent, numbers, seen, axis, after = x
        total, ends = in_one_kernel(
            lambda k, x: _ends(
                k,
                of_sums.unflatten(x[0]),
                of_seen.unflatten(x[1]),
                of_axis.unflatten(x[2]),
                (tuple(x[3][:3]), tuple(x[3][3:])) if x[3] else None,
            ),
            numbers,
            ([*received[i]], [*seen], [*axis], [*after]),
        )
        sent = jnp.stack(jax.tree.leaves(total))
        return received.at[parent].add(sent), jnp.stack(jax.tree.leaves(ends))

    empty, of_sums = jax.tree.flatten(NO_SUMS)
    nothing = jnp.zeros((len(parents) + 1, len(empty), q.shape[-1]), q.dtype)
    xs = index, parents, numbers, seen[1:], axes, after
    _, ends = lax.scan(carry, nothing, xs, reverse=True)
    return ends


def _numbers(tree: Tree) -> Float[Array, "bodies 25"]:
    """Those of `body_table`, `axes_of`, and one if a body has the same ball as the one before."""
    table = body_table(tree)
    within = np.zeros(len(tree.parents))
    for first in tree.balls:
        within[first + 1 : first + 3] = 1.0
    turns, slides = (jnp.asarray(x, table.dtype) for x in axes_of(tree))
    joint = jnp.stack([turns, slides, jnp.asarray(within, table.dtype)], axis=1)
    return jnp.concatenate([table, joint], axis=1)


def _columns(tree: Tree, q: Array, qd: Array, qdd: Array) -> Float[Array, "bodies columns _"]:
    """Cosine and sine of the angle, q, rate, acceleration, and the quaternion of ball or a one."""
    at, bodies = layout(tree), range(len(tree.parents))
    zero = jnp.zeros_like(q[:1])
    row = {body: k for k, body in enumerate(tree.moving)}
    single = dict(zip(at.rates.tolist(), at.coordinates.tolist(), strict=True))
    of_rates = [row.get(i, tree.n) for i in bodies]
    position = rows_of(jnp.concatenate([q, zero]), [single.get(k, tree.nq) for k in of_rates])
    turns, _ = axes_of(tree)
    cos, sin = cos_sin(jnp.where(turns[:, None], position, jnp.zeros_like(position)))
    rates = (rows_of(jnp.concatenate([x, zero]), of_rates) for x in (qd, qdd))
    quaternions = dict(zip(tree.balls, at.quaternions.tolist(), strict=True))
    whole = jnp.concatenate([q, zero, zero + 1])
    none = [tree.nq + 1, tree.nq, tree.nq, tree.nq]
    turned = [
        rows_of(whole, [quaternions.get(i, none)[k] for i in bodies])
        for k in range(4 if tree.balls else 0)
    ]
    return jnp.stack([cos, sin, position, *rates, *turned], axis=1)


def _seen(k: tuple, carrier: Seen, cos: Any, sin: Any, q: Any, rate: Any, accel: Any, *ball: Any):
    body, (turns, slides, within) = body_of(k[:22]), k[22:]
    if ball:
        body = body._replace(rotation=matmul(body.rotation, turned_by(ball)))
    joint = Joint(cos, sin, mul(slides, q), turns, slides, 0.0, 0.0, 0.0, 0.0)
    r, s = placement(body, joint)
    rotation = matmul(carrier.rotation, r)
    position = vadd(carrier.position, matvec(carrier.rotation, s))
    z = tuple(row[2] for row in rotation)
    arm = scale(turns, cross(position, z))
    axis = scale(turns, z), vadd(arm, scale(slides, z))
    own = times(rate, motion_cross(carrier.velocity, axis))
    before = carrier.velocity, carrier.acceleration
    if ball:
        before = jax.tree.map(lambda a, b: lax.select(within > 0, a, b), carrier.before, before)
    swing = motion_cross(before[0], axis)
    seen = Seen(
        rotation,
        position,
        plus(carrier.velocity, times(rate, axis)),
        plus(carrier.acceleration, plus(times(accel, axis), own)),
        before if ball else (),
    )
    curve = plus(motion_cross(before[1], axis), motion_cross(before[0], swing))
    return seen, Axis(axis, swing, curve)


def _ends(
    k: tuple, received: Sums, seen: Seen, joint: Axis, after: Spatial | None
) -> tuple[Sums, Ends]:
    pose = Pose(seen.rotation, seen.position, ZERO)
    own = sums_of(body_of(k[:22]), pose, Motion(seen.velocity, seen.acceleration))
    total = jax.tree.map(add, received, own)
    axis, rate, curve = joint
    unit, flow, drag = response_of(total, axis, rate)
    swing = times(2.0, rate) if after is None else plus(rate, motion_cross(after, axis))
    (w, v), (moment, force) = axis, total.load
    axial = vadd(cross(w, moment), cross(v, force)), cross(w, force)
    by_rate = plus(flow_load(total, axis), inertia_load(total, swing))
    by_turn = plus(plus(flow, inertia_load(total, curve)), axial)
    return total, Ends(unit, drag, by_rate, by_turn, swing, axis, curve, rate[0])


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
    index = np.arange(n)[:, None]

    def sweep(step: Array, a: Array) -> Array:
        k = n - 1 - step
        row = lax.dynamic_index_in_dim(a, k, 0, keepdims=False)
        pivot = lax.dynamic_index_in_dim(row, k, 0)
        row = jnp.where(index == k, -1.0, row)
        rest = jnp.where((index == k)[:, None] | (index == k)[None], 0.0, a)
        return rest - row[:, None] * (row / pivot)[None]

    return lax.fori_loop(0, n, sweep, matrix)


def _product(a: Float[Array, "n n _"], b: Float[Array, "n n _"]) -> Float[Array, "n n _"]:
    return functools.reduce(jnp.add, (a[:, k, None] * b[None, k] for k in range(len(a))))
