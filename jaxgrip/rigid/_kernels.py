"""Recursions of many states at once, each limb of the tree in one kernel."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxgrip.rigid._passive import armature_of
from jaxgrip.rigid._recursion import (
    Body,
    Joint,
    Limb,
    bodies,
    body_table,
    joints,
    limbs,
    unrolled_bodies,
    unrolled_joints,
)
from jaxgrip.rigid._tree import Tree
from jaxgrip.solve.fusion import cos_sin, in_one_kernel, tiling
from jaxgrip.spatial.components import Scalar, Vector, unstack

# With more bodies forward dynamics and their derivatives have too many operations for a kernel.
LIMIT = 7


class Model(NamedTuple):
    """Scalars of a limb, or of an unrolled tree, and of one of its states.

    `rate`, `third`, which are torques or whatever else came with the state, and `armature`, zero
    without any, are by coordinate.
    """

    limb: Limb | Tree
    body: tuple[Body, ...]
    joint: tuple[Joint, ...]
    gravity: Vector
    armature: tuple[Scalar, ...]
    rate: tuple[Scalar, ...]
    third: tuple[Scalar, ...]


def model_of(tree: Tree, *state: Float[Array, " n"]) -> Model:
    """The model of an unrolled tree; `state` is q, rates, accelerations or torques."""
    zero, armature = (0.0,) * tree.n, armature_of(tree)
    return Model(
        tree,
        bodies(tree),
        joints(tree, *state),
        unstack(tree.gravity),
        zero if armature is None else unstack(armature),
        *(unstack(x) for x in state[1:]),
        *[zero] * (3 - len(state)),
    )


def fits(tree: Tree) -> bool:
    """Whether the limbs of a tree are small enough for a kernel each."""
    if tree.scanned:
        return False
    return all(limb.n > 0 and len(limb.bodies) <= LIMIT for limb in limbs(tree))


Run = Callable[["Kernels", list[Array]], Sequence[Array]]


def by_limb(
    tree: Tree, run: Run, *states: Float[Array, "batch n"]
) -> list[tuple[Limb, Sequence[Float[Array, " batch"]]]]:
    """Columns of every limb, which `run` gets from kernels.

    Limbs of the same kind run in a loop, so that their kernels are compiled once.
    """
    groups: dict[tuple, list[Limb]] = {}
    for limb in limbs(tree):
        groups.setdefault(_kind(limb), []).append(limb)
    count, out = len(states[0]), []
    tiles, length = tiling(count)
    for group in groups.values():

        def values(numbers: Array, rows: Sequence, limb: Limb = group[0]) -> Sequence[Array]:
            cos, sin = cos_sin(jnp.stack(rows[: limb.n]))
            return run(Kernels(tree, limb, numbers), [*cos, *sin, *rows])

        numbers = [_numbers(tree, limb) for limb in group]
        # Slices, for the compiler makes slow copies of indexed arrays.
        columns = [
            [
                jnp.pad(x[:, k], (0, tiles * length - count))
                for x in states
                for k in limb.coordinates
            ]
            for limb in group
        ]
        if len(group) == tiles == 1:
            found = [values(numbers[0], columns[0])]
        else:
            shape = len(group), len(columns[0]), tiles, length
            stacked = jnp.stack([jnp.stack(x) for x in columns]).reshape(shape)
            found = lax.map(
                functools.partial(_tile_by_tile, values),
                (jnp.stack(numbers), jnp.moveaxis(stacked, 2, 1)),
            )
            found = jnp.moveaxis(found, 1, 2).reshape(len(group), -1, tiles * length)
        out += [(limb, [x[:count] for x in own]) for limb, own in zip(group, found, strict=True)]
    return out


def _tile_by_tile(values: Callable[..., Sequence[Array]], limb: tuple[Array, Array]) -> Array:
    numbers, tiles = limb
    return lax.map(lambda rows: jnp.stack(values(numbers, [*rows])), tiles)


def _kind(limb: Limb) -> tuple:
    shared = [limb.joint_names.index(name) for name in limb.joint_names]
    return limb.parents, limb.joint_types, tuple(shared)


def _numbers(tree: Tree, limb: Limb) -> Array:
    armature, own = armature_of(tree), np.array(limb.bodies)
    parts = [body_table(tree)[own].reshape(-1), tree.gravity]
    parts += [] if armature is None else [armature[np.array(limb.coordinates)]]
    parts += [] if tree.pitch is None else [tree.pitch[own]]
    return jnp.concatenate(parts)


class Kernels:
    """Kernels of one limb.

    Their columns are cos q, sin q and q, and then rates and accelerations or torques if needed.
    """

    def __init__(self, tree: Tree, limb: Limb, numbers: Array) -> None:
        self.limb = limb
        self._numbers = unstack(numbers)
        self._has = armature_of(tree) is not None, tree.pitch is not None

    def of_model(self, core: Callable[[Model], list], columns: Sequence[Array]) -> tuple:
        """Columns of the values of `core` at the model of each state."""
        return in_one_kernel(lambda k, x: core(self._model(k, x)), self._numbers, columns)

    @property
    def gravity(self) -> tuple:
        """Components of gravity."""
        at = 22 * len(self.limb.bodies)
        return self._numbers[at : at + 3]

    def _model(self, k: tuple, x: tuple) -> Model:
        limb, (has_armature, has_screws) = self.limb, self._has
        nb, n = len(limb.bodies), limb.n
        zero, rest = (0.0,) * n, k[22 * nb + 3 :]
        pitch = rest[len(rest) - nb :] if has_screws else ()
        cos, sin, q, qd, third = (*(x[i : i + n] for i in range(0, len(x), n)), zero, zero)[:5]
        return Model(
            limb,
            unrolled_bodies(limb, k[: 22 * nb]),
            unrolled_joints(limb, pitch, cos, sin, q, qd, third),
            k[22 * nb : 22 * nb + 3],
            rest[:n] if has_armature else zero,
            qd,
            third,
        )


def coordinates_by_limb(
    tree: Tree, run: Run, *states: Float[Array, "batch n"]
) -> Float[Array, "batch n"]:
    """As `by_limb` for a value of each coordinate."""
    rows: dict[int, Array] = {}
    for limb, values in by_limb(tree, run, *states):
        rows |= dict(zip(limb.coordinates, values, strict=True))
    return jnp.stack([rows[k] for k in range(tree.n)], axis=1)
