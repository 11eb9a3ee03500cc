"""Recursions of many states at once, each limb of the tree in one kernel."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
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
from jaxgrip.solve.fusion import in_one_kernel
from jaxgrip.spatial.components import Scalar, Vector, unstack

# With more bodies a kernel takes too long to compile.
LIMIT = 9


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


Core = Callable[[Model], list[Scalar]]


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


def by_limb(
    tree: Tree, core: Core, *states: Float[Array, "batch n"]
) -> list[tuple[Limb, Float[Array, "batch p"]]]:
    """Values of `core` for every limb; `states` are q, rates and accelerations or torques."""
    table, armature = body_table(tree), armature_of(tree)
    out = []
    for limb in limbs(tree):
        own, at = np.array(limb.bodies), np.array(limb.coordinates)
        parts = [table[own].reshape(-1), tree.gravity]
        parts += [] if armature is None else [armature[at]]
        parts += [] if tree.pitch is None else [tree.pitch[own]]
        step = _step(limb, core, armature is not None, tree.pitch is not None)
        columns = jnp.concatenate([x[:, at] for x in states], axis=1)
        out.append((limb, in_one_kernel(step, jnp.concatenate(parts), columns)))
    return out


def _step(limb: Limb, core: Core, has_armature: bool, has_screws: bool) -> Callable:
    def step(numbers: tuple, state: tuple, turn: Callable) -> list[Scalar]:
        nb, n = len(limb.bodies), limb.n
        rest = numbers[22 * nb + 3 :]
        armature = rest[:n] if has_armature else (0.0,) * n
        pitch = rest[len(rest) - nb :] if has_screws else ()
        zero = (0.0,) * n
        q, qd, third = (*(state[k : k + n] for k in range(0, len(state), n)), zero, zero)[:3]
        return core(
            Model(
                limb,
                unrolled_bodies(limb, numbers[: 22 * nb]),
                unrolled_joints(limb, pitch, turn, q, qd, third),
                numbers[22 * nb : 22 * nb + 3],
                armature,
                qd,
                third,
            )
        )

    return step


def coordinates_by_limb(
    tree: Tree, core: Core, *states: Float[Array, "batch n"]
) -> Float[Array, "batch n"]:
    """As `by_limb` for a value of each coordinate."""
    found = by_limb(tree, core, *states)
    order = np.argsort(np.concatenate([limb.coordinates for limb, _ in found]))
    return jnp.concatenate([x for _, x in found], axis=1)[:, order]
