"""Frames that are to be somewhere: what many positions miss at once, and how that changes.

Arrays have the positions as their last axis, for this is many times faster on a CPU; numbers that
all positions share have a last axis of one.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxgrip.rigid._coordinates import given, layout
from jaxgrip.rigid._mass_matrix import ancestors
from jaxgrip.rigid._tree import Tree
from jaxgrip.solve import dense
from jaxgrip.spatial import quaternions

# Up to this size matrices are eliminated in place.
_SMALL = 12


class Aim(eqx.Module):
    """Where frames should be.

    `tree`, with no other bodies than those that carry the frames; `bodies` that they are fixed to,
    and their `translation` (k, 3) there [m]; `target` (k, 3) [m]; `target_rotation` (k, 3, 3), that
    of the body; `oriented`: whether the orientation counts; `length` [m] that an error of one
    radian counts for.
    """

    tree: Tree
    translation: Float[Array, "k 3 ..."]
    target_rotation: Float[Array, "k 3 3 ..."]
    target: Float[Array, "k 3 ..."]
    length: Float[Array, "..."]
    bodies: tuple[int, ...] = eqx.field(static=True)
    oriented: tuple[bool, ...] = eqx.field(static=True)

    @property
    def rows(self) -> np.ndarray:
        """Which of six numbers for every frame count."""
        return np.flatnonzero(np.repeat([x for o in self.oriented for x in (o, True)], 3))

    @property
    def before(self) -> np.ndarray:
        """Whether the motion of one joint turns and moves the axis of another, (n, n)."""
        moving, chains = self.tree.moving, ancestors(self.tree)
        found = np.array([[i in chains[j] for j in moving] for i in moving], dtype=bool)
        for ball in self.tree.balls:
            k = moving.index(ball)
            found[k : k + 3, k : k + 3] = True
        return found


class View(NamedTuple):
    """What frames miss at positions, and the Jacobians of this.

    `turn` (k, 3, positions), rotation vectors from the targets in base axes [rad]; `gap` (k, 3,
    positions) [m]; `angular` and `linear` (k, 3, n, positions), Jacobians of the frames; `error`
    (m, positions) and `jacobian` (m, n, positions), what of these counts, as lengths.
    """

    turn: Float[Array, "k 3 p"]
    gap: Float[Array, "k 3 p"]
    angular: Float[Array, "k 3 n p"]
    linear: Float[Array, "k 3 n p"]
    error: Float[Array, "m p"]
    jacobian: Float[Array, "m n p"]


def part(tree: Tree, bodies: tuple[int, ...]) -> tuple[Tree, dict, np.ndarray, np.ndarray]:
    """The bodies that carry some, as a tree for kinematics alone.

    **Returns:** the tree; the new index of each body; the indices of its coordinates and rates.
    """
    chains = ancestors(tree)
    found = {i for body in bodies if body >= 0 for i in chains[body]}
    for ball in tree.balls:
        found |= {ball, ball + 1, ball + 2} if ball in found else set()
    place = {body: k for k, body in enumerate(sorted(found))}
    index, moving = np.array(list(place), dtype=int), np.array(tree.moving, dtype=int)
    at = layout(tree)
    owner = np.zeros(tree.nq, dtype=int)
    owner[at.coordinates] = moving[at.rates]
    owner[at.quaternions] = np.array(tree.balls, dtype=int)[:, None]
    arrays = ("rotation", "translation", "mass", "com", "inertia")
    kinds = tuple(tree.joint_types[i] for i in place)
    small = dataclasses.replace(
        tree,
        **{key: getattr(tree, key)[index] for key in arrays},
        pitch=tree.pitch[index] if "screw" in kinds else None,
        parents=tuple(place.get(tree.parents[i], -1) for i in place),
        joint_types=kinds,
        names=tuple(tree.names[i] for i in place),
        joint_names=tuple(tree.joint_names[i] for i in place) if tree.joint_names else (),
        balls=tuple(place[ball] for ball in tree.balls if ball in place),
        passive=None,
        frames=None,
    )
    coordinates, rates = (np.flatnonzero(np.isin(x, index)) for x in (owner, moving))
    return small, place, coordinates, rates


def each(function: Callable[..., Any], *args: Any) -> Any:
    """A function of one position, for all positions; what they share need not be repeated."""
    size = max(x.shape[-1] for x in jax.tree.leaves(args))
    axes = jax.tree.map(lambda x: None if x.shape[-1] < size else -1, args)
    args = jax.tree.map(lambda x: x[..., 0] if x.shape[-1] < size else x, args)
    return jax.vmap(function, in_axes=axes, out_axes=-1)(*args)


def _columns(r: Array, m: Array) -> Array:
    """The matrix product of (3, 3, positions) by (3, k, positions)."""
    return _sum(r[:, j, None] * m[j][None] for j in range(3))


def _poses(tree: Tree, q: Float[Array, "nq p"]) -> tuple[Array, Array]:
    """Rotation (bodies, 3, 3, positions) and translation (bodies, 3, positions).

    One step for all bodies: unrolled, as one by one, the compiler takes ten times as long, and its
    program too.
    """
    placement, moved = tree.rotation, q
    if tree.balls:

        def chart(tree: Tree, q: Array) -> tuple[Array, Array]:
            tree, q = given(tree, q=q)
            return tree.rotation, q

        placement, moved = each(chart, tree, q)
    nb, size = len(tree.parents), q.shape[-1]
    moving, kinds = np.array(tree.moving, dtype=int), np.array(tree.joint_types)
    if tree.n < nb:
        moved = jnp.zeros((nb, size), q.dtype).at[moving].set(moved)
    turning = jnp.asarray((kinds == "revolute") | (kinds == "screw"), q.dtype)[:, None]
    sliding = jnp.asarray(kinds == "prismatic", q.dtype)[:, None]
    sliding = sliding if tree.pitch is None else sliding + tree.pitch
    angle = turning * moved
    motion = jnp.stack([jnp.cos(angle), jnp.sin(angle), sliding * moved], axis=1)

    def step(poses: Array, x: tuple) -> tuple[Array, None]:
        k, parent, rotation, translation, (cos, sin, shift) = x
        pose = poses[parent]
        axes = _columns(pose[:, :3], rotation)
        place = (
            pose[:, 3]
            + _columns(pose[:, :3], translation[:, None])[:, 0]
            + axes[:, 2] * shift[None]
        )
        x = axes[:, 0] * cos[None] + axes[:, 1] * sin[None]
        y = axes[:, 1] * cos[None] - axes[:, 0] * sin[None]
        pose = jnp.stack([x, y, axes[:, 2], place], axis=1)
        return lax.dynamic_update_index_in_dim(poses, pose, k, 0), None

    ground = jnp.eye(3, 4, dtype=q.dtype)[None, :, :, None]
    poses = jnp.broadcast_to(ground, (nb + 1, 3, 4, size))
    xs = (np.arange(1, nb + 1), np.array(tree.parents) + 1, placement, tree.translation, motion)
    poses, _ = lax.scan(step, poses, xs)
    return poses[1:, :, :3], poses[1:, :, 3]


def view(aim: Aim, q: Float[Array, "nq p"]) -> View:
    """`View` of many positions."""
    tree = aim.tree
    rotation, position = _poses(tree, q)
    moving, chains = np.array(tree.moving, dtype=int), ancestors(tree)
    kinds = np.array(tree.joint_types)[moving]
    carries = np.stack([np.isin(moving, chains[body]) for body in aim.bodies])
    turning, sliding = (
        jnp.asarray(carries & x, q.dtype)[:, None, :, None]
        for x in (kinds != "prismatic", kinds == "prismatic")
    )
    if tree.pitch is not None:
        sliding = sliding + turning * tree.pitch[moving][None, None]
    r, point = (jnp.stack([x[body] for body in aim.bodies]) for x in (rotation, position))
    point = point + _sum(r[:, :, j] * aim.translation[:, j, None] for j in range(3))
    if tree.n < len(tree.parents):
        rotation, position = rotation[moving], position[moving]
    axis, origin = (jnp.moveaxis(x, 0, 1)[None] for x in (rotation[:, :, 2], position))
    angular = turning * axis
    linear = jnp.cross(angular, point[:, :, None] - origin, axis=1) + sliding * axis
    gap = point - aim.target
    turn = jnp.zeros_like(gap)
    if any(aim.oriented):
        wanted = aim.target_rotation
        missed = _sum(r[:, :, None, j] * wanted[:, None, :, j] for j in range(3))
        turn = jax.vmap(functools.partial(each, _turn))(missed)
        turn = jnp.where(np.array(aim.oriented)[:, None, None], turn, 0.0)
    length = aim.length[None, None]
    error = jnp.concatenate([length * turn, gap], axis=1)
    jacobian = jnp.concatenate([length[..., None, :] * angular, linear], axis=1)
    return View(turn, gap, angular, linear, _counted(aim, error), _counted(aim, jacobian))


def _counted(aim: Aim, x: Float[Array, "k 6 ..."]) -> Float[Array, "m ..."]:
    """What counts of six numbers for every frame."""
    if all(aim.oriented):
        return x.reshape(-1, *x.shape[2:])
    return jnp.concatenate([x[k, 0 if o else 3 :] for k, o in enumerate(aim.oriented)])


def by_frame(aim: Aim, rows: Float[Array, "m ..."]) -> tuple[Array, Array]:
    """Of rows as those of `View.error`, the orientations, zero where none counts, and positions.

    Both (k, 3, ...).
    """
    turns, places, row = [], [], 0
    for is_oriented in aim.oriented:
        turns.append(rows[row : row + 3] if is_oriented else jnp.zeros_like(rows[:3]))
        row += 3 * is_oriented
        places.append(rows[row : row + 3])
        row += 3
    return jnp.stack(turns), jnp.stack(places)


def _turn(rotation: Float[Array, "3 3"]) -> Float[Array, "3"]:
    return quaternions.rotation_vector(quaternions.along_matrix(rotation))


def along(jacobian: Float[Array, "m n p"], step: Float[Array, "n p"]) -> Float[Array, "m p"]:
    """A Jacobian by a vector."""
    return _sum(jacobian[:, j] * step[j][None] for j in range(len(step)))


def times(jacobian: Float[Array, "m n p"], weights: Float[Array, "m p"]) -> Float[Array, "n p"]:
    """The transpose of a Jacobian by a vector."""
    return _sum(row * weight[None] for row, weight in zip(jacobian, weights, strict=True))


def gram(x: Float[Array, "m n p"]) -> Float[Array, "n n p"]:
    """The transpose of a Jacobian by it."""
    return _sum(row[:, None] * row[None] for row in x)


def _sum(terms: Iterable[Array]) -> Array:
    """As one elementwise operation: XLA's sum along an axis before the last is 20 times slower."""
    return functools.reduce(jnp.add, terms)


def curvature(aim: Aim, at: View, weights: Float[Array, "m p"]) -> Float[Array, "n n p"]:
    """Derivative of jacobian^T weights, its rows, by steps of the joints, its columns.

    Source: own derivation: a joint turns and moves the axes of those that it carries.
    """
    moment, force = by_frame(aim, weights)
    moment = _cross(at.angular, aim.length[None, None, None] * moment[:, :, None])
    force = _cross(at.linear, force[:, :, None])
    pairs = [(k, i) for k in range(len(aim.bodies)) for i in range(3)]
    turned, moved = (
        _sum(at.angular[k, i][:, None] * x[k, i][None] for k, i in pairs) for x in (moment, force)
    )
    before = aim.before[:, :, None]
    found = jnp.where(before, turned + moved, jnp.swapaxes(moved, 0, 1))
    return jnp.swapaxes(found, 0, 1)


def _cross(a: Float[Array, "k 3 ..."], b: Float[Array, "k 3 ..."]) -> Float[Array, "k 3 ..."]:
    # A stack of its parts is one kernel, which `jnp.cross` is not.
    return jnp.stack(
        [a[:, i - 2] * b[:, i - 1] - a[:, i - 1] * b[:, i - 2] for i in range(3)], axis=1
    )


def lacking(aim: Aim, at: View) -> Float[Array, "n n p"]:
    """What the square of the Jacobian has too much beside the second derivative of the error.

    Source: own derivation: the rotation vector changes by the angular velocity across it less than
    by that along it.
    """
    if not any(aim.oriented):
        return jnp.zeros((1, 1, 1), at.gap.dtype)
    across = _cross(at.turn[:, :, None], aim.length[None, None, None] * at.angular)
    lack = _lack(_sum(at.turn[:, i] ** 2 for i in range(3)))
    return _sum(lack[k][None, None] * gram(across[k]) for k in np.flatnonzero(aim.oriented))


def _lack(square: Array) -> Array:
    """1 - x / tan(x) by 4 x^2, for the square of an angle 2 x."""
    small = square < 1e-3
    half = jnp.sqrt(jnp.where(small, 1.0, square)) / 2
    exact = (1 - half / jnp.tan(half)) / jnp.where(small, 1.0, square)
    return jnp.where(small, 1 / 12 + square / 720 + square**2 / 30240, exact)


def solved(a: Float[Array, "n n p"], b: Float[Array, "n p"]) -> Float[Array, "n p"]:
    """x of A x = b for symmetric positive matrices, else NaN.

    Elimination in a loop: `dense.solve` is unrolled, and there are many of these in one program.
    """
    if len(a) > _SMALL:
        x = dense.solve(jnp.moveaxis(a, -1, 0), jnp.moveaxis(b, -1, 0), positive=True)
        return jnp.moveaxis(x, 0, -1)
    rows = np.arange(len(a))[:, None, None]

    def eliminate(k: Array, both: Array) -> Array:
        pivot = both[k, k]
        row = both[k] / jnp.where(pivot > 0, pivot, jnp.nan)[None]
        return jnp.where(rows == k, row[None], both - both[:, k][:, None] * row[None])

    whole = jnp.concatenate([a, b[:, None]], axis=1)
    return lax.fori_loop(0, len(a), eliminate, whole)[:, -1]


def rates(aim: Aim, at: View) -> Float[Array, "m n p"]:
    """Derivative of the errors by steps of the joints.

    Source: own derivation: the left Jacobian of the exponential map, inverted.
    """
    every = at.jacobian
    for k in np.flatnonzero(aim.oriented):
        phi, w = at.turn[k][:, None], aim.length[None, None] * at.angular[k]
        single = jnp.cross(phi, w, axis=0)
        twice = jnp.cross(phi, single, axis=0)
        lack = _lack(jnp.sum(phi * phi, axis=0))
        row = int(np.searchsorted(aim.rows, 6 * k))
        every = every.at[row : row + 3].add(lack[None] * twice - single / 2)
    return every
