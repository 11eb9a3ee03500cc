"""Coordinates of trees whose orientations are quaternions.

The recursions know joints with one coordinate only. They work in a chart: the orientation of a ball
goes into the placement of its first body, and its three angles are zero. There the rates of the
angles are the angular velocity in body axes, and only their second rates differ from its rate.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import real
from jaxgrip.rigid._tree import Tree
from jaxgrip.spatial.quaternions import (
    conjugate,
    exponential,
    product,
    rotation_vector,
    to_matrix,
)


class Layout(NamedTuple):
    """Indices of the coordinates with one rate each, in (n,) and (nq,), and of the balls.

    `turns` (balls, 3) in (n,) and `quaternions` (balls, 4) in (nq,).
    """

    rates: np.ndarray
    coordinates: np.ndarray
    turns: np.ndarray
    quaternions: np.ndarray


def layout(tree: Tree) -> Layout:
    """`Layout` of a tree."""
    first = np.array([tree.moving.index(ball) for ball in tree.balls], dtype=int)
    turns = first[:, None] + np.arange(3)
    quaternions = (first + np.arange(len(first)))[:, None] + np.arange(4)
    rates = np.setdiff1d(np.arange(tree.n), turns)
    return Layout(rates, np.setdiff1d(np.arange(tree.nq), quaternions), turns, quaternions)


def precision(tree: Tree) -> np.dtype:
    """Type of the tree's numbers."""
    numbers = (tree.rotation, tree.translation, tree.mass, tree.com, tree.inertia)
    return jnp.result_type(*numbers)


def checked(tree: Tree, **values: Any) -> dict[str, Array]:
    """Arguments of a public function in the tree's precision: `q` (nq,), all others (n,).

    **Raises:** `ValueError` for a wrong one.
    """
    dtype = precision(tree)
    return {
        name: real(name, x, dtype, (tree.nq if name == "q" else tree.n,))
        for name, x in values.items()
    }


def given(tree: Tree, **values: Any) -> tuple[Any, ...]:
    """The tree and arguments of a public function in the chart at `q`, in the tree's precision.

    Every public function begins with it. `q` is (nq,) and all others are (n,), before and after;
    `qdd` becomes the second rate of the angles, and `tau` what belongs to it.

    **Raises:** `ValueError` for a wrong argument.
    """
    arrays = checked(tree, **values)
    if not tree.balls:
        return tree, *arrays.values()
    if "qdd" in arrays:
        arrays["qdd"] = arrays["qdd"] + turning(tree, arrays["qd"])
    armature = None if tree.passive is None else tree.passive.armature
    if armature is not None and {"tau", "qd"} <= arrays.keys():
        # The armature of a ball has the rate of its angular velocity, not the second rate.
        arrays["tau"] = arrays["tau"] + armature * turning(tree, arrays["qd"])
    core, arrays["q"] = chart(tree, arrays["q"])
    return core, *arrays.values()


def chart(tree: Tree, q: Float[Array, " nq"]) -> tuple[Tree, Float[Array, " n"]]:
    """The tree without balls, and coordinates in the chart at `q`."""
    if not tree.balls:
        return tree, q
    at = layout(tree)
    unit = _unit(q[at.quaternions])
    # The first body of a ball has the x axis of the ball as its z axis, and -z as its x axis.
    sign = jnp.asarray([1.0, -1.0, 1.0, 1.0], q.dtype)
    rotation = jax.vmap(to_matrix)(unit[:, np.array([0, 3, 2, 1])] * sign[None])
    first = np.array(tree.balls)
    passive = tree.passive
    if passive is not None and passive.reference is not None:
        reference = jnp.zeros_like(q, shape=(tree.n,))
        reference = reference.at[at.rates].set(passive.reference[at.coordinates])
        rest = _unit(passive.reference[at.quaternions])
        reference = reference.at[at.turns].set(-jax.vmap(_difference)(rest, unit))
        passive = dataclasses.replace(passive, reference=reference)
    core = dataclasses.replace(
        tree,
        rotation=tree.rotation.at[first].set(tree.rotation[first] @ rotation),
        balls=(),
        passive=passive,
    )
    return core, jnp.zeros_like(q, shape=(tree.n,)).at[at.rates].set(q[at.coordinates])


def turning(tree: Tree, qd: Float[Array, " n"]) -> Float[Array, " n"]:
    """Second rates of the angles less the rates of `qd`; to be used with balls only."""
    turns = layout(tree).turns
    x, y, z = qd[turns].T
    return jnp.zeros_like(qd).at[turns].set(jnp.stack([-y * z, x * z, -x * y], axis=1))


def unturned(tree: Tree, qd: Float[Array, " n"], qdd: Float[Array, " n"]) -> Float[Array, " n"]:
    """Rates of `qd` from second rates in the chart."""
    return qdd - turning(tree, qd) if tree.balls else qdd


def without_balls(tree: Tree, who: str) -> None:
    """Raise `ValueError` if the tree has balls, for what needs rates that are those of q."""
    if tree.balls:
        names = tree.joint_names or tree.names
        raise ValueError(
            f"{who} needs coordinates whose rates are the joints' rates, which the quaternion of "
            f"joint {names[tree.balls[0]]!r} has not: free and ball joints must be locked or fixed."
        )


def coordinate_rates(
    tree: Tree, q: Float[Array, " nq"], qd: Float[Array, " n"]
) -> Float[Array, " nq"]:
    """Rates of change of the coordinates, (nq,), from rates of the joints."""
    if not tree.balls:
        return qd
    at = layout(tree)

    def turn(quaternion: Array, w: Array) -> Array:
        return 0.5 * product(quaternion, jnp.concatenate([jnp.zeros_like(w, shape=(1,)), w]))

    rate = jnp.zeros_like(q).at[at.coordinates].set(qd[at.rates])
    return rate.at[at.quaternions].set(jax.vmap(turn)(q[at.quaternions], qd[at.turns]))


def implicit_positions(
    tree: Tree, q: Float[Array, " nq"], qd: Float[Array, " n"], h: Array
) -> Float[Array, " nq"]:
    """Coordinates (nq,) that are `q` and `h` [s] times their own rates under rates `qd`."""
    if not tree.balls:
        return q + h * qd
    at = layout(tree)
    moved = q.at[at.coordinates].add(h * qd[at.rates])
    turn = 0.5 * h * qd[at.turns]
    one = jnp.ones_like(turn, shape=(len(turn), 1))
    turned = jax.vmap(product)(q[at.quaternions], jnp.concatenate([one, turn], axis=1))
    # (1, w) times (1, -w) is 1 + |w|^2.
    return moved.at[at.quaternions].set(turned / (1.0 + jnp.sum(turn**2, axis=1, keepdims=True)))


def neutral(tree: Tree) -> Float[Array, " nq"]:
    """Coordinates (nq,) in which no joint is moved: zeros, and quaternions of no rotation."""
    q = jnp.zeros(tree.nq, precision(tree))
    return q.at[layout(tree).quaternions[:, 0]].set(1.0) if tree.balls else q


def normalised(tree: Tree, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
    """The coordinates (nq,) with quaternions of norm one."""
    if not tree.balls:
        return q
    at = layout(tree)
    return q.at[at.quaternions].set(_unit(q[at.quaternions]))


@jax.jit
def integrate(tree: Tree, q: Float[Array, " nq"], dq: Float[Array, " n"]) -> Float[Array, " nq"]:
    """Coordinates after a step: sums, and rotations of balls by a rotation vector in body axes.

    **Arguments:** `tree`; `q`: (nq,) coordinates [rad or m]; `dq`: (n,) step, such as rates of
    joints times a time [rad or m].

    **Returns:** (nq,), quaternions of norm one.

    **Raises:** `ValueError` for another shape.

    Source: own derivation: q exp(w) with the exponential map of unit quaternions.
    """
    q, dq = real("q", q, precision(tree), (tree.nq,)), real("dq", dq, precision(tree), (tree.n,))
    if not tree.balls:
        return q + dq
    at = layout(tree)
    turned = jax.vmap(lambda a, w: product(a, exponential(w)))(q[at.quaternions], dq[at.turns])
    moved = q.at[at.coordinates].add(dq[at.rates])
    return moved.at[at.quaternions].set(_unit(turned))


@jax.jit
def difference(tree: Tree, q0: Float[Array, " nq"], q1: Float[Array, " nq"]) -> Float[Array, " n"]:
    """The step of `integrate` that leads from one position to another, the shorter way round.

    **Arguments:** `tree`; `q0`, `q1`: (nq,) coordinates [rad or m].

    **Returns:** (n,) [rad or m].

    **Raises:** `ValueError` for another shape.

    Source: own derivation: the logarithm of the quaternion between both.
    """
    q0, q1 = (real(k, x, precision(tree), (tree.nq,)) for k, x in (("q0", q0), ("q1", q1)))
    if not tree.balls:
        return q1 - q0
    at = layout(tree)
    step = jnp.zeros_like(q0, shape=(tree.n,))
    step = step.at[at.rates].set(q1[at.coordinates] - q0[at.coordinates])
    ends = (_unit(q[at.quaternions]) for q in (q0, q1))
    return step.at[at.turns].set(jax.vmap(_difference)(*ends))


def _unit(quaternions: Float[Array, "balls 4"]) -> Float[Array, "balls 4"]:
    return quaternions / jnp.linalg.norm(quaternions, axis=1, keepdims=True)


def _difference(start: Float[Array, "4"], end: Float[Array, "4"]) -> Float[Array, "3"]:
    return rotation_vector(product(conjugate(start), end))
