"""Momentum of a tree as a whole, and its torques as a linear function of masses and inertias."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.rigid._coordinates import given
from jaxgrip.rigid._newton_euler import rnea_bodies
from jaxgrip.rigid._recursion import UPPER
from jaxgrip.rigid._tree import Tree
from jaxgrip.rigid.kinematics import forward_kinematics, jacobians_at
from jaxgrip.spatial import skew


@jax.jit
def centre_of_mass(tree: Tree, q: Float[Array, " nq"]) -> Float[Array, "3"]:
    """Centre of mass of all bodies.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m].

    **Returns:** (3,), in the base frame [m].

    **Raises:** `ValueError` for another shape.
    """
    rotation, translation = forward_kinematics(tree, q)
    centre = jnp.einsum("bij,bj->bi", rotation, tree.com) + translation
    return tree.mass @ centre / jnp.sum(tree.mass)


@jax.jit
def centroidal_matrix(tree: Tree, q: Float[Array, " nq"]) -> Float[Array, "6 n"]:
    """Momentum of all bodies about their common centre of mass per rate of the joints.

    The armature of joints has no part in it.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m].

    **Returns:** (6, n), in base axes: rows 0 to 2 give the angular momentum [N m s], rows 3 to 5
    the linear one [N s], each per unit rate of a joint.

    **Raises:** `ValueError` for another shape.

    Source: Orin 2013.
    """
    tree, q = given(tree, q=q)
    pose = forward_kinematics(tree, q)
    rotation, translation = pose
    jacobian = jacobians_at(tree, pose)
    arm = jnp.einsum("bij,bj->bi", rotation, tree.com)
    centre = arm + translation
    away = centre - (tree.mass @ centre / jnp.sum(tree.mass))[None]
    angular = jacobian[:, :3]
    linear = jacobian[:, 3:] - jax.vmap(skew)(arm) @ angular
    momentum = tree.mass[:, None, None] * linear
    spin = rotation @ tree.inertia @ jnp.swapaxes(rotation, 1, 2) @ angular
    about = jnp.sum(spin + jax.vmap(skew)(away) @ momentum, axis=0)
    return jnp.concatenate([about, jnp.sum(momentum, axis=0)])


def centroidal_momentum(
    tree: Tree, q: Float[Array, " nq"], qd: Float[Array, " n"]
) -> Float[Array, "6"]:
    """Momentum of all bodies about their common centre of mass.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m]; `qd`: (n,) rates [per s].

    **Returns:** (6,), in base axes: angular momentum [N m s], then the linear one [N s].

    **Raises:** `ValueError` for another shape.

    Source: Orin 2013.
    """
    _, _, rates = given(tree, q=q, qd=qd)
    return centroidal_matrix(tree, q) @ rates


@jax.jit
def inertial_parameters(tree: Tree) -> Float[Array, " parameters"]:
    """Masses, first moments and inertias of all bodies, on which torques depend linearly.

    **Arguments:** `tree`.

    **Returns:** (10 bodies,), for every body its mass m [kg], m times its centre of mass (3,)
    [kg m], and the entries xx, xy, xz, yy, yz, zz of its inertia about the origin of its frame
    [kg m^2], in the frame of the body in the tree.
    """
    first = tree.mass[:, None] * tree.com
    square = jnp.sum(first * tree.com, axis=1)[:, None, None] * jnp.eye(3, dtype=first.dtype)[None]
    about = tree.inertia + square - first[:, :, None] * tree.com[:, None, :]
    upper = about.reshape(-1, 9)[:, UPPER]
    return jnp.concatenate([tree.mass[:, None], first, upper], axis=1).reshape(-1)


@jax.jit
def regressor(
    tree: Tree, q: Float[Array, " nq"], qd: Float[Array, " n"], qdd: Float[Array, " n"]
) -> Float[Array, "n parameters"]:
    """Matrix Y of the torques Y p of the bodies with the `inertial_parameters` p.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m]; `qd`, `qdd`: (n,) rates [per s]
    and accelerations [per s^2].

    **Returns:** (n, 10 bodies). Y p is what `rnea` gives without armature, springs, damping and
    friction of the joints.

    **Raises:** `ValueError` for another shape.

    Source: Atkeson 1986, with inertias about the origins of the bodies' frames.
    """
    loads = rnea_bodies(tree, q, qd, qdd)
    core, q, qd, qdd = given(tree, q=q, qd=qd, qdd=qdd)
    pose = forward_kinematics(core, q)
    jacobian = jacobians_at(core, pose).reshape(-1, 2, 3, core.n)
    jacobian = jnp.einsum("bji,bkjn->bkin", pose.rotation, jacobian)
    per_body = jax.vmap(_load_by_parameters)(loads.w, loads.wd, loads.vd)
    torque = jnp.einsum("bkin,bkip->nbp", jacobian, per_body)
    return torque.reshape(core.n, -1)


def _load_by_parameters(w: Array, wd: Array, vd: Array) -> Float[Array, "2 3 10"]:
    """Moment and force that a body needs for its motion, per parameter."""
    turn, zero = skew(w), jnp.zeros((3, 1), w.dtype)
    moment = jnp.concatenate([zero, -skew(vd), _inertia_times(wd) + turn @ _inertia_times(w)], 1)
    force = jnp.concatenate(
        [vd[:, None], skew(wd) + turn @ turn, jnp.zeros((3, 6), w.dtype)], axis=1
    )
    return jnp.stack([moment, force])


def _inertia_times(a: Array) -> Float[Array, "3 6"]:
    """Matrix of I a for the six entries of I."""
    x, y, z = a
    o = jnp.zeros_like(x)
    return jnp.stack(
        [
            jnp.stack([x, y, z, o, o, o]),
            jnp.stack([o, x, o, y, z, o]),
            jnp.stack([o, o, x, o, y, z]),
        ]
    )
