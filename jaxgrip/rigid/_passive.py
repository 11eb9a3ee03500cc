"""Springs, damping, dry friction and armature of joints."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import brief, concrete, non_negative, numbers, positive
from jaxgrip.rigid._coordinates import given, layout, neutral
from jaxgrip.rigid._tree import Passive, Tree

KEYS = tuple(field.name for field in dataclasses.fields(Passive))
FRICTION_SPEED = 1e-2


def holding(tree: Tree, q: Array, qd: Array | None) -> Array | None:
    """Torques (n,) that springs, damping and friction take, in the chart; None if there are none.

    At rest when `qd` is None.
    """
    passive = tree.passive
    if passive is None:
        return None
    parts = []
    if passive.stiffness is not None:
        parts.append(passive.stiffness * (q - passive.reference))
    if passive.damping is not None and qd is not None:
        parts.append(passive.damping * qd)
    if passive.friction is not None and qd is not None:
        parts.append(passive.friction * jnp.tanh(qd / passive.friction_speed))
    return sum(parts[1:], parts[0]) if parts else None


def added(
    tree: Tree, torque: Array, q: Array, qd: Array | None = None, qdd: Array | None = None
) -> Array:
    """Torques with those that springs, damping, friction and armature take, in the chart."""
    held, armature = holding(tree, q, qd), armature_of(tree)
    if held is not None:
        torque = torque + held
    return torque if armature is None or qdd is None else torque + armature * qdd


def left(tree: Tree, torque: Array, q: Array, qd: Array) -> Array:
    """What springs, damping and friction leave of torques, in the chart."""
    held = holding(tree, q, qd)
    return torque if held is None else torque - held


def armature_of(tree: Tree) -> Array | None:
    """Armature (n,) of the joints, if there is any."""
    return None if tree.passive is None else tree.passive.armature


def spring_energy(tree: Tree, q: Array) -> Array | None:
    """Energy of the springs, in the chart; None if there are none."""
    passive = tree.passive
    if passive is None or passive.stiffness is None:
        return None
    return 0.5 * jnp.dot(passive.stiffness, (q - passive.reference) ** 2)


@jax.jit
def passive_forces(
    tree: Tree, q: Float[Array, " nq"], qd: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Torques that springs, damping and dry friction of the joints need to be overcome.

    They are part of `bias_forces` and of what the dynamics use.

    **Arguments:** `tree`; `q`: (nq,) coordinates [rad or m]; `qd`: (n,) rates [per s].

    **Returns:** (n,) [N m or N]: stiffness (q - reference) + damping qd + friction
    tanh(qd / friction_speed).

    **Raises:** `ValueError` for another shape.
    """
    core, q, qd = given(tree, q=q, qd=qd)
    held = holding(core, q, qd)
    return jnp.zeros_like(qd) if held is None else held


def with_passive(
    tree: Tree,
    *,
    armature: Any = None,
    stiffness: Any = None,
    reference: Any = None,
    damping: Any = None,
    friction: Any = None,
    friction_speed: Any = None,
) -> Tree:
    """The tree with other passive numbers of its joints, and none of those not named here.

    **Arguments:** `tree`; the fields of `Passive`: one number for all joints or (n,), and
    `reference` (nq,), the neutral position when None. Without any the joints are ideal.

    **Returns:** `Tree`; the numbers may be traced.

    **Raises:** `ValueError` for another shape, for numbers not finite or negative, a
    `friction_speed` that is not positive, and stiffness that differs between the axes of a ball.
    """

    def wide(name: str, value: Any, check: Any) -> Array | None:
        if value is None:
            return None
        x = check(name, value, (), (tree.n,))
        return None if concrete(x) and not np.any(x) else jnp.broadcast_to(x, (tree.n,))

    stiff = wide("stiffness", stiffness, non_negative)
    rubbing = wide("friction", friction, non_negative)
    rest = speed = None
    if stiff is not None:
        rest = neutral(tree) if reference is None else numbers("reference", reference, (tree.nq,))
        _check_balls(tree, stiff)
    if rubbing is not None:
        speed = FRICTION_SPEED if friction_speed is None else friction_speed
        speed = wide("friction_speed", speed, positive)
    found = (
        wide("armature", armature, non_negative),
        stiff,
        rest,
        wide("damping", damping, non_negative),
        rubbing,
        speed,
    )
    passive = None if all(x is None for x in found) else Passive(*found)
    return dataclasses.replace(tree, passive=passive)


def _check_balls(tree: Tree, stiffness: Array) -> None:
    if not concrete(stiffness):
        return
    for turns in layout(tree).turns:
        values = np.asarray(stiffness)[turns]
        if np.ptp(values) > 0:
            name = tree.joint_of(int(turns[0]))
            raise ValueError(
                f"stiffness of joint {name!r} is {brief(values)}; that of a ball must be the "
                "same about all axes."
            )
