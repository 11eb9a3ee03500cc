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
from jaxgrip.solve.fusion import kept, opaque_one
from jaxgrip.spatial import quaternions

# Up to this size matrices are eliminated in place.
_SMALL = 12


class Aim(eqx.Module):
    """Where frames should be.

    `tree`, with no other bodies than those that carry the frames; `bodies` that they are fixed to,
    and their `rotation` (k, 3, 3) and `translation` (k, 3) there; `target_rotation` (k, 3, 3) and
    `target` (k, 3) [m]; `oriented`: whether the orientation counts; `length` [m] that an error of
    one radian counts for.
    """

    tree: Tree
    rotation: Float[Array, "k 3 3 ..."]
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
    full = jnp.zeros((nb, size), q.dtype).at[moving].set(moved)
    turning = jnp.asarray((kinds == "revolute") | (kinds == "screw"), q.dtype)[:, None]
    sliding = jnp.asarray(kinds == "prismatic", q.dtype)[:, None]
    sliding = sliding if tree.pitch is None else sliding + tree.pitch

    def step(poses: Array, x: tuple) -> tuple[Array, None]:
        k, parent, rotation, translation, cos, sin, shift = x
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
    poses = jnp.zeros((nb + 1, 3, 4, size), q.dtype).at[:1].set(ground)
    angle = turning * full
    parents = np.array(tree.parents) + 1
    xs = (np.arange(1, nb + 1), parents, placement, tree.translation)
    poses, _ = lax.scan(step, poses, (*xs, jnp.cos(angle), jnp.sin(angle), sliding * full))
    return poses[1:, :, :3], poses[1:, :, 3]


def view(aim: Aim, q: Float[Array, "nq p"]) -> View:
    """`View` of many positions."""
    tree, size = aim.tree, q.shape[-1]
    rotation, position = _poses(tree, q)
    moving, bodies = np.array(tree.moving, dtype=int), np.array(aim.bodies, dtype=int)
    chains, kinds = ancestors(tree), np.array(tree.joint_types)[moving]
    carries = np.stack([np.isin(moving, chains[body]) for body in bodies])
    turning = carries & (kinds != "prismatic")
    turning, sliding = (
        jnp.asarray(x, q.dtype)[:, None, :, None]
        for x in (turning, carries & (kinds == "prismatic"))
    )
    if tree.pitch is not None:
        sliding = sliding + turning * tree.pitch[moving][None, None]
    axis, origin = (jnp.moveaxis(x[moving], 0, 1) for x in (rotation[:, :, 2], position))
    r = rotation[bodies]
    shift = r[:, :, 0] * aim.translation[:, :1] + r[:, :, 1] * aim.translation[:, 1:2]
    point = position[bodies] + shift + r[:, :, 2] * aim.translation[:, 2:]
    angular = turning * axis[None]
    linear = jnp.cross(angular, point[:, :, None] - origin[None], axis=1) + sliding * axis[None]
    gap = point - aim.target
    turn = jnp.zeros_like(gap)
    if any(aim.oriented):
        wanted = jnp.swapaxes(aim.target_rotation, 1, 2)
        for k in np.flatnonzero(aim.oriented):
            turned = _columns(_columns(r[k], aim.rotation[k]), wanted[k])
            turn = turn.at[k].set(each(_turn, turned))
    scale = jnp.stack([aim.length, jnp.ones_like(aim.length)])[None, :, None]
    error = scale * jnp.stack([turn, gap], axis=1)
    both = scale[:, :, :, None] * jnp.stack([angular, linear], axis=1)
    rows, n = aim.rows, len(moving)
    found = View(
        turn,
        gap,
        angular,
        linear,
        error.reshape(-1, size)[rows],
        both.reshape(-1, n, size)[rows],
    )
    one = opaque_one(q[0])
    return View(*(kept(x, jnp.broadcast_to(one, x.shape)) for x in found))


def _turn(rotation: Float[Array, "3 3"]) -> Float[Array, "3"]:
    return quaternions.rotation_vector(quaternions.from_matrix(rotation))


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
    size, frames = weights.shape[-1], len(aim.bodies)
    every = jnp.zeros((6 * frames, size), weights.dtype).at[aim.rows].set(weights)
    every = every.reshape(frames, 2, 3, 1, size)
    moment = jnp.cross(at.angular, aim.length[None, None, None] * every[:, 0], axis=1)
    force = jnp.cross(at.linear, every[:, 1], axis=1)
    pairs = [(k, i) for k in range(frames) for i in range(3)]
    turned, moved = (
        _sum(at.angular[k, i][:, None] * x[k, i][None] for k, i in pairs) for x in (moment, force)
    )
    before = aim.before[:, :, None]
    found = jnp.where(before, turned + moved, jnp.swapaxes(moved, 0, 1))
    return jnp.swapaxes(found, 0, 1)


def hessian(aim: Aim, at: View) -> Float[Array, "n n p"]:
    """Second derivative of half the squared error.

    Source: own derivation: the rotation vector changes by the angular velocity across it less than
    by that along it.
    """
    bend = curvature(aim, at, at.error)
    found = gram(at.jacobian) + (bend + jnp.swapaxes(bend, 0, 1)) / 2
    for k in np.flatnonzero(aim.oriented):
        phi = at.turn[k]
        square = jnp.sum(phi * phi, axis=0)
        across = aim.length[None, None] * jnp.cross(phi[:, None], at.angular[k], axis=0)
        found = found - _lack(square)[None, None] * gram(across)
    return found


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
