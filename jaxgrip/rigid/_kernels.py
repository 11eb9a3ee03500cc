"""Recursions of many states at once, each limb of the tree in one kernel."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
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
from jaxgrip.solve.fusion import cos_sin, in_one_kernel, tiled
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
    return all(limb.n > 0 and len(limb.bodies) <= LIMIT for limb in limbs(tree))


Run = Callable[["Kernels", list[Array]], Sequence[Array]]


def by_limb(
    tree: Tree, run: Run, *states: Float[Array, "batch n"]
) -> list[tuple[Limb, Float[Array, "p batch"]]]:
    """Values (p, batch) of every limb, where `run` gives p columns from kernels.

    Limbs of the same kind run in a loop, so that their kernels are compiled once.
    """
    groups: dict[tuple, list[Limb]] = {}
    for limb in limbs(tree):
        groups.setdefault(_kind(limb), []).append(limb)
    count, out = len(states[0]), []
    for group in groups.values():
        numbers = jnp.stack([_numbers(tree, limb) for limb in group])
        tiles = jnp.stack(
            [tiled(jnp.concatenate([x[:, _at(limb)] for x in states], axis=1)) for limb in group]
        )

        def values(given: tuple[Array, Array], limb: Limb = group[0]) -> Array:
            own = Kernels(tree, limb, given[0])

            def tile(rows: Array) -> Array:
                cos, sin = cos_sin(rows[: limb.n])
                return jnp.stack(run(own, [*cos, *sin, *rows]))

            return _looped(tile, given[1])

        found = _looped(values, (numbers, tiles))
        found = jnp.moveaxis(found, 1, 2)
        found = found.reshape(*found.shape[:2], -1)[:, :, :count]
        out += list(zip(group, found, strict=True))
    return out


def _looped(function: Callable[[Any], Array], values: Any) -> Array:
    if len(jax.tree.leaves(values)[0]) == 1:
        return function(jax.tree.map(lambda x: x[0], values))[None]
    return lax.map(function, values)


def _kind(limb: Limb) -> tuple:
    shared = [limb.joint_names.index(name) for name in limb.joint_names]
    return limb.parents, limb.joint_types, tuple(shared)


def _at(limb: Limb) -> np.ndarray:
    return np.array(limb.coordinates)


def _numbers(tree: Tree, limb: Limb) -> Array:
    armature, own = armature_of(tree), np.array(limb.bodies)
    parts = [body_table(tree)[own].reshape(-1), tree.gravity]
    parts += [] if armature is None else [armature[_at(limb)]]
    parts += [] if tree.pitch is None else [tree.pitch[own]]
    return jnp.concatenate(parts)


class Kernels:
    """Kernels of one limb, whose columns begin with cos q, sin q and q; then may come rates and
    accelerations or torques."""

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
    found = by_limb(tree, run, *states)
    order = np.argsort(np.concatenate([_at(limb) for limb, _ in found]))
    return jnp.concatenate([x for _, x in found])[order].T
