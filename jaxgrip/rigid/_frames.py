"""Frames fixed to bodies: pose, velocity and acceleration."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import near
from jaxgrip.rigid._coordinates import checked, coordinate_rates, given, precision
from jaxgrip.rigid._mass_matrix import ancestors
from jaxgrip.rigid._recursion import axes_of
from jaxgrip.rigid._tree import Tree
from jaxgrip.rigid.kinematics import forward_kinematics


class Frame(eqx.Module):
    """A frame fixed to a body.

    **Fields:** `rotation` (3, 3) and `translation` (3,) [m], its placement in the frame of the
    body; `body`, the index of that, -1 for the base.
    """

    rotation: Float[Array, "3 3"]
    translation: Float[Array, "3"]
    body: int = eqx.field(static=True)


class FramePose(NamedTuple):
    """Placement of a frame in the base frame.

    `rotation` (3, 3), its columns the axes; `translation` (3,) [m].
    """

    rotation: Float[Array, "3 3"]
    translation: Float[Array, "3"]


def frame(tree: Tree, name: str) -> Frame:
    """The frame of this name, or that of the body of this name.

    **Arguments:** `tree`; `name`.

    **Returns:** `Frame`.

    **Raises:** `ValueError` when there is none.
    """
    frames = tree.frames
    if frames is not None and name in frames.names:
        k = frames.names.index(name)
        return Frame(frames.rotation[k], frames.translation[k], frames.bodies[k])
    if name in tree.names:
        dtype = precision(tree)
        return Frame(jnp.eye(3, dtype=dtype), jnp.zeros(3, dtype), tree.names.index(name))
    known = dict.fromkeys((*(() if frames is None else frames.names), *tree.names))
    raise ValueError(f"There is no frame {name!r}; {near(name, known)}")


def frame_of(tree: Tree, which: str | Frame) -> Frame:
    """A frame by its name, or as it is."""
    return frame(tree, which) if isinstance(which, str) else which


@jax.jit
def _pose(tree: Tree, q: Array, at: Frame) -> FramePose:
    pose = forward_kinematics(tree, q)
    if at.body < 0:
        return FramePose(at.rotation, at.translation)
    rotation, translation = pose.rotation[at.body], pose.translation[at.body]
    return FramePose(rotation @ at.rotation, rotation @ at.translation + translation)


@jax.jit
def _jacobian(tree: Tree, q: Array, at: Frame) -> Float[Array, "6 n"]:
    tree, q = given(tree, q=q)
    if at.body < 0:
        return jnp.zeros((6, tree.n), q.dtype)
    rotation, position = forward_kinematics(tree, q)
    point = rotation[at.body] @ at.translation + position[at.body]
    moving = np.array(tree.moving, dtype=int)
    carries = np.isin(moving, ancestors(tree)[at.body]).astype(q.dtype)[:, None]
    turns, slides = (jnp.asarray(x[moving], q.dtype)[:, None] * carries for x in axes_of(tree))
    axis = rotation[moving, :, 2]
    linear = turns * jnp.cross(axis, point[None] - position[moving]) + slides * axis
    return jnp.concatenate([turns * axis, linear], axis=1).T


@jax.jit
def _jacobian_rate(tree: Tree, q: Array, qd: Array, at: Frame) -> Float[Array, "6 n"]:
    rate = coordinate_rates(tree, q, qd)
    return jax.jvp(lambda q: _jacobian(tree, q, at), (q,), (rate,))[1]


@jax.jit
def _acceleration(tree: Tree, q: Array, qd: Array, qdd: Array, at: Frame) -> Float[Array, "6"]:
    rate = coordinate_rates(tree, q, qd)
    jacobian, change = jax.jvp(lambda q: _jacobian(tree, q, at), (q,), (rate,))
    return jacobian @ qdd + change @ qd


def frame_pose(tree: Tree, q: Float[Array, " nq"], frame: str | Frame) -> FramePose:
    """Placement of a frame in the base frame.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m]; `frame`, or the name of one or
    of a body.

    **Returns:** `FramePose`, rotation (3, 3) and translation (3,) [m].

    **Raises:** `ValueError` for another shape and for an unknown name.
    """
    return _pose(tree, *checked(tree, q=q).values(), frame_of(tree, frame))


def frame_jacobian(tree: Tree, q: Float[Array, " nq"], frame: str | Frame) -> Float[Array, "6 n"]:
    """Jacobian of a frame: its angular velocity and the velocity of its origin per joint rate.

    **Arguments:** as for `frame_pose`.

    **Returns:** (6, n), in base axes: rows 0 to 2 give the angular velocity [rad/s], rows 3 to 5
    the velocity of the origin [m/s], each per unit rate of a joint.

    **Raises:** `ValueError` for another shape and for an unknown name.

    Source: own derivation: (z, z x arm) for a revolute joint, (0, z) for a prismatic one.
    """
    return _jacobian(tree, *checked(tree, q=q).values(), frame_of(tree, frame))


def frame_jacobian_rate(
    tree: Tree, q: Float[Array, " nq"], qd: Float[Array, " n"], frame: str | Frame
) -> Float[Array, "6 n"]:
    """Rate of change of `frame_jacobian` in a motion.

    **Arguments:** as for `frame_pose`; `qd`: (n,) rates [per s].

    **Returns:** (6, n), in units of `frame_jacobian` per second.

    **Raises:** `ValueError` for another shape and for an unknown name.
    """
    return _jacobian_rate(tree, *checked(tree, q=q, qd=qd).values(), frame_of(tree, frame))


def frame_velocity(
    tree: Tree, q: Float[Array, " nq"], qd: Float[Array, " n"], frame: str | Frame
) -> Float[Array, "6"]:
    """Angular velocity of a frame and velocity of its origin, in base axes.

    **Arguments:** as for `frame_pose`; `qd`: (n,) rates [per s].

    **Returns:** (6,), angular [rad/s] first, then linear [m/s].

    **Raises:** `ValueError` for another shape and for an unknown name.
    """
    q, qd = checked(tree, q=q, qd=qd).values()
    return _jacobian(tree, q, frame_of(tree, frame)) @ qd


def frame_acceleration(
    tree: Tree,
    q: Float[Array, " nq"],
    qd: Float[Array, " n"],
    qdd: Float[Array, " n"],
    frame: str | Frame,
) -> Float[Array, "6"]:
    """Angular acceleration of a frame and acceleration of its origin, without gravity.

    **Arguments:** as for `frame_pose`; `qd`, `qdd`: (n,) rates [per s] and accelerations [per s^2].

    **Returns:** (6,), in base axes, angular [rad/s^2] first, then linear [m/s^2].

    **Raises:** `ValueError` for another shape and for an unknown name.
    """
    return _acceleration(tree, *checked(tree, q=q, qd=qd, qdd=qdd).values(), frame_of(tree, frame))
