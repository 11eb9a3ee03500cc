"""Matrices of the equations of motion from the velocities of the bodies, by a few dense products.

Recursions cost fewer multiplications, but a mechanism needs four of them at once and the
derivatives of all. Here one forward kinematics serves everything, and no program grows with the
tree.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.mechanism.loops.model import Mechanism, coupling_rows, loop_residuals, measured
from jaxgrip.rigid import Poses, Tree, forward_kinematics
from jaxgrip.rigid.kinematics import jacobians_at
from jaxgrip.spatial import skew

Velocity = Float[Array, "bodies 6"]


class State(NamedTuple):
    """Motion of all bodies in base axes, angular rows first.

    `place`; `jacobian` (bodies, 6, n) of the velocity; `velocity` (bodies, 6); `bend` (bodies, 6):
    acceleration at q̈ = 0.
    """

    place: Poses
    jacobian: Float[Array, "bodies 6 n"]
    velocity: Velocity
    bend: Velocity


def state(tree: Tree, q: Float[Array, " n"], qd: Float[Array, " n"]) -> State:
    """Motion of the bodies at coordinates `q` and rates `qd` (n,)."""
    place = forward_kinematics(tree, q)
    jacobian = jacobians_at(tree, place)
    velocity = jacobian @ qd
    _, change = jax.jvp(lambda p: jacobians_at(tree, p), (place,), (moved(place, velocity),))
    return State(place, jacobian, velocity, change @ qd)


def moved(place: Poses, velocity: Velocity) -> Poses:
    """Rate of change of the poses of the bodies."""
    return Poses(jax.vmap(skew)(velocity[:, :3]) @ place.rotation, velocity[:, 3:])


def mass_matrix(tree: Tree, now: State) -> Float[Array, "n n"]:
    """Mass matrix M, with the armature of the joints."""
    angular, linear, inertia, _ = _centres(tree, now)
    kinetic = jnp.einsum("bxi,bxy,byj->ij", angular, inertia, angular)
    total = kinetic + jnp.einsum("b,bxi,bxj->ij", tree.mass, linear, linear)
    passive = tree.passive
    if passive is None or passive.armature is None:
        return total
    return total + jnp.diag(passive.armature)


def bias(tree: Tree, now: State) -> Float[Array, " n"]:
    """Coriolis, centrifugal and gravity torques h."""
    angular, linear, inertia, arm = _centres(tree, now)
    w, wd = now.velocity[:, :3], now.bend[:, :3]
    acceleration = now.bend[:, 3:] + jnp.cross(wd, arm) + jnp.cross(w, jnp.cross(w, arm))
    force = tree.mass[:, None] * (acceleration - tree.gravity[None, :])
    spin = jnp.einsum("bxy,by->bx", inertia, w)
    moment = jnp.einsum("bxy,by->bx", inertia, wd) + jnp.cross(w, spin)
    return jnp.einsum("bxi,bx->i", linear, force) + jnp.einsum("bxi,bx->i", angular, moment)


def constraint_matrix(mechanism: Mechanism, now: State) -> Float[Array, "m n"]:
    """Derivative J of the constraints."""

    def column(velocity: Velocity) -> Array:
        change = moved(now.place, velocity)
        return jax.jvp(lambda p: _at_poses(mechanism, p), (now.place,), (change,))[1]

    rows = jax.vmap(column, in_axes=2, out_axes=1)(now.jacobian)
    ratios = coupling_rows(mechanism)[0]
    return rows.at[len(rows) - len(ratios) :].add(ratios)


@jax.jit
def jacobian(mechanism: Mechanism, q: Float[Array, " n"]) -> Float[Array, "m n"]:
    """Derivative of the constraints with respect to the coordinates.

    **Arguments:** `mechanism`; `q`: (n,) coordinates [rad or m].

    **Returns:** (m, n), in units of a constraint per unit of a coordinate.

    **Raises:** `ValueError` for another shape.
    """
    return constraint_matrix(mechanism, state(mechanism.tree, q, jnp.zeros_like(q)))


def constraint_bend(
    moving: Callable[[Array], Mechanism], mechanism: Mechanism, now: State
) -> Float[Array, " m"]:
    """Second rate of change of the constraints at q̈ = 0: J̇ q̇ and what drives add to it.

    **Arguments:** `moving`: the mechanism after a time from now; `mechanism`: that of now; `now`.
    """
    first = moved(now.place, now.velocity)
    turned = moved(first._replace(translation=now.place.translation), now.velocity).rotation
    bent = moved(now.place, now.bend)

    def residual(t: Array) -> Array:
        square = 0.5 * t * t
        rotation = now.place.rotation + t * first.rotation + square * (bent.rotation + turned)
        translation = now.place.translation + t * first.translation + square * bent.translation
        return _at_poses(moving(t), Poses(rotation, translation))

    zero, one = jnp.zeros((), now.bend.dtype), jnp.ones((), now.bend.dtype)
    return jax.jvp(lambda t: jax.jvp(residual, (t,), (one,))[1], (zero,), (one,))[1]


def _at_poses(mechanism: Mechanism, place: Poses) -> Float[Array, " m"]:
    """The constraints without the coordinates of the tree, as functions of poses of the bodies."""
    return jnp.concatenate([loop_residuals(mechanism, place), measured(mechanism, place)])


def _centres(tree: Tree, now: State) -> tuple[Array, Array, Array, Array]:
    """Angular Jacobians, Jacobians of mass centres, inertias about these, and arms to them."""
    rotation = now.place.rotation
    arm = jnp.einsum("bxy,by->bx", rotation, tree.com)
    angular = now.jacobian[:, :3]
    linear = now.jacobian[:, 3:] - jnp.einsum("bxy,byi->bxi", jax.vmap(skew)(arm), angular)
    inertia = rotation @ tree.inertia @ jnp.swapaxes(rotation, 1, 2)
    return angular, linear, inertia, arm
