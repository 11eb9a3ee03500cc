"""Kinetic and potential energy."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.rigid._coordinates import given
from jaxgrip.rigid._mass_matrix import crba
from jaxgrip.rigid._passive import spring_energy
from jaxgrip.rigid._tree import Tree
from jaxgrip.rigid.kinematics import forward_kinematics, jacobians_at


class BodyEnergies(NamedTuple):
    """Energies of the bodies, `kinetic` and `potential`, both (bodies,) [J]."""

    kinetic: Float[Array, " bodies"]
    potential: Float[Array, " bodies"]


@jax.jit
def kinetic_energy(tree: Tree, q: Float[Array, " nq"], qd: Float[Array, " n"]) -> Float[Array, ""]:
    """Kinetic energy 1/2 qd^T M(q) qd, with that of the armature.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m]; `qd`: (n,) rates [per s].

    **Returns:** scalar [J].

    **Raises:** `ValueError` for another shape.

    Source: Beiblatt 9, eq. 1.
    """
    tree, q, qd = given(tree, q=q, qd=qd)
    return 0.5 * jnp.dot(qd, crba(tree, q) @ qd)


@jax.jit
def potential_energy(tree: Tree, q: Float[Array, " nq"]) -> Float[Array, ""]:
    """Energy in the field of gravity and in the springs of the joints.

    That of gravity is zero with all mass at the origin of the base frame.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m].

    **Returns:** scalar [J].

    **Raises:** `ValueError` for another shape.

    Source: Beiblatt 9, eq. 3.
    """
    tree, q = given(tree, q=q)
    rotation, translation = forward_kinematics(tree, q)
    centre = jnp.einsum("bij,bj->bi", rotation, tree.com) + translation
    energy, springs = -jnp.dot(tree.mass, centre @ tree.gravity), spring_energy(tree, q)
    return energy if springs is None else energy + springs


@jax.jit
def body_energies(tree: Tree, q: Float[Array, " nq"], qd: Float[Array, " n"]) -> BodyEnergies:
    """Kinetic energy and energy of gravity of every body, without armature and springs.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m]; `qd`: (n,) rates [per s].

    **Returns:** `BodyEnergies`, `kinetic` and `potential`, (bodies,) [J]; the latter is zero with
    the centre of mass at the origin of the base frame.

    **Raises:** `ValueError` for another shape.

    Source: own derivation: half of m v^2 + w I w about the centre of mass, and -m g c.
    """
    tree, q, qd = given(tree, q=q, qd=qd)
    pose = forward_kinematics(tree, q)
    rotation, translation = pose
    velocity = jacobians_at(tree, pose) @ qd
    arm = jnp.einsum("bij,bj->bi", rotation, tree.com)
    speed = velocity[:, 3:] + jnp.cross(velocity[:, :3], arm)
    spin = jnp.einsum("bij,bi->bj", rotation, velocity[:, :3])
    turning = jnp.einsum("bi,bij,bj->b", spin, tree.inertia, spin)
    kinetic = 0.5 * (tree.mass * jnp.sum(speed * speed, axis=1) + turning)
    return BodyEnergies(kinetic, -tree.mass * ((arm + translation) @ tree.gravity))
