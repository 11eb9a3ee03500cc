"""Positions of the bodies, and their Jacobians."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import real
from jaxgrip.rigid._coordinates import given, precision
from jaxgrip.rigid._mass_matrix import ancestors, poses
from jaxgrip.rigid._recursion import axes_of, bodies, gather, joints, one_of
from jaxgrip.rigid._tree import Tree


class Poses(NamedTuple):
    """Placement of every body frame in the base frame.

    `rotation` (bodies, 3, 3), its columns the body axes; `translation` (bodies, 3) [m].
    """

    rotation: Float[Array, "bodies 3 3"]
    translation: Float[Array, "bodies 3"]


@jax.jit
def forward_kinematics(tree: Tree, q: Float[Array, " nq"]) -> Poses:
    """Placement of every body in the base frame.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m].

    **Returns:** `Poses`, rotation (bodies, 3, 3) and translation (bodies, 3) [m].

    **Raises:** `ValueError` for another shape.

    Source: Schanzer 2007, eq. 2.2, pp. 16-18.
    """
    tree, q = given(tree, q=q)
    table = gather(tree, poses(tree, bodies(tree), joints(tree, q), one_of(q)))
    return Poses(table[:, :9].reshape(-1, 3, 3), table[:, 9:12])


def body_point(
    tree: Tree, q: Float[Array, " nq"], body: str, point: Float[Array, "3"]
) -> Float[Array, "3"]:
    """Position in the base frame of a point fixed to a body, for instance a finger tip.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m]; `body`: its name; `point`: (3,)
    in the body frame [m].

    **Returns:** (3,) [m].

    **Raises:** `ValueError` when there is no such body or for another shape.

    Source: Schanzer 2007, eq. 2.2, pp. 16-18.
    """
    i = tree.body(body)
    point = real("point", point, precision(tree), (3,))
    pose = forward_kinematics(tree, q)
    return pose.rotation[i] @ point + pose.translation[i]


@jax.jit
def body_jacobians(tree: Tree, q: Float[Array, " nq"]) -> Float[Array, "bodies 6 n"]:
    """Jacobians of all bodies: angular velocity and velocity of the origin per joint rate.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m].

    **Returns:** (bodies, 6, n), in base axes: rows 0 to 2 give the angular velocity [rad/s],
    rows 3 to 5 the velocity of the body's origin [m/s], each per unit rate of a joint.

    **Raises:** `ValueError` for another shape.

    Source: own derivation: (z, z x arm) for a revolute joint, (0, z) for a prismatic one.
    """
    return jacobians_at(tree, forward_kinematics(tree, q))


def jacobians_at(tree: Tree, pose: Poses) -> Float[Array, "bodies 6 n"]:
    """`body_jacobians` from known placements of the bodies."""
    rotation, position = pose
    moving = np.array(tree.moving, dtype=int)
    related = np.zeros((len(tree.parents),) * 2)
    for j, chain in enumerate(ancestors(tree)):
        related[j, chain] = 1.0
    carries = jnp.asarray(related[:, moving, None], position.dtype)
    axis = jnp.broadcast_to(rotation[moving, :, 2][None], (len(tree.parents), tree.n, 3))
    arm = position[:, None, :] - position[moving][None, :, :]
    turning, sliding = (
        jnp.asarray(x[moving], position.dtype)[None, :, None] for x in axes_of(tree)
    )
    angular = turning * axis * carries
    linear = (turning * jnp.cross(axis, arm) + sliding * axis) * carries
    return jnp.swapaxes(jnp.concatenate([angular, linear], axis=2), 1, 2)
