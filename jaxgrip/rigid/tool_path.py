"""Paths of a tool over an object, and motions of robots along them."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import numbers, positive
from jaxgrip.rigid._frames import Frame, FramePose, frame_jacobian, frame_of, frame_pose
from jaxgrip.rigid._tree import Tree
from jaxgrip.solve import dense
from jaxgrip.spatial import quaternions, skew

# Points of a corner at which its curve is integrated, between which it is a cubic.
_CORNER = 64
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
# Largest slope and curvature of the smooth step by which the speed rises.
_RISE, _BEND = 1.875, 10 / np.sqrt(3)


class ToolPath(eqx.Module):
    """A path of straight edges whose corners are smooth, with a frame at every point.

    The first axis of the frame is the direction of the path, the third the normal.

    **Arguments:** `nodes` (k, 3) [m]; `normals` (k - 1, 3) of the edges, made perpendicular to
    them; `radius`: least radius of curvature in the corners [m]. The curvature rises and falls
    smoothly, as a squared sine of the length, so that jerk is finite at constant speed.

    **Raises:** `ValueError` for nodes that are the same, edges too short for their corners, edges
    that turn back, and normals along their edges.
    """

    nodes: Float[Array, "k 3"]
    normals: Float[Array, "e 3"]
    radius: Float[Array, ""]

    def __init__(self, nodes, normals, radius):
        self.nodes = numbers("The nodes", nodes)
        if self.nodes.ndim != 2 or self.nodes.shape[0] < 2 or self.nodes.shape[1] != 3:
            raise ValueError(f"The nodes have the shape {self.nodes.shape}; it must be (k, 3).")
        count = self.nodes.shape[0] - 1
        normals = numbers("The normals", normals)
        self.radius = positive("The radius", radius, ())
        edges = np.diff(np.asarray(self.nodes), axis=0)
        size = np.linalg.norm(edges, axis=1)
        if np.any(size == 0):
            k = int(np.argmin(size))
            raise ValueError(f"Nodes {k + 1} and {k + 2} are at the same place.")
        if normals.shape not in ((3,), (count, 3)):
            raise ValueError(
                f"The normals have the shape {normals.shape}; it must be (3,) or ({count}, 3)."
            )
        normals = jnp.broadcast_to(normals, (count, 3))
        along = jnp.asarray(edges / size[:, None])
        across = normals - jnp.sum(normals * along, axis=1)[:, None] * along
        length = jnp.sqrt(jnp.sum(across**2, axis=1))
        if np.any(np.asarray(length) < 1e-6):
            k = int(np.argmin(np.asarray(length)))
            raise ValueError(f"The normal of edge {k + 1} lies along it.")
        self.normals = across / length[:, None]
        turn = np.arccos(np.clip(np.sum(np.asarray(along[1:] * along[:-1]), axis=1), -1, 1))
        if np.any(turn > np.deg2rad(170)):
            k = int(np.argmax(turn))
            raise ValueError(f"The path turns back at node {k + 2}.")
        used = np.zeros(count)
        setback = np.asarray(_setback(jnp.asarray(turn), self.radius))
        used[:-1] += setback
        used[1:] += setback
        if np.any(used > size):
            k = int(np.argmax(used - size))
            raise ValueError(
                f"Edge {k + 1} is {size[k]:.4g} m long, its corners take {used[k]:.4g} m: choose a "
                "smaller radius."
            )

    @property
    def length(self) -> Float[Array, ""]:
        """Length of the path [m]."""
        return _marks(self)[-1]


class PathPoint(NamedTuple):
    """A point of a path: `position` (3,) [m], `rotation` (3, 3) of its frame, `curvature` [1/m]."""

    position: Float[Array, "3"]
    rotation: Float[Array, "3 3"]
    curvature: Float[Array, ""]


def _turned(share: Array) -> Array:
    """Share of the turn at a share of a corner, whose curvature is a squared sine."""
    return share - jnp.sin(2 * jnp.pi * share) / (2 * jnp.pi)


def _displaced(turn: Array, share: Array) -> Array:
    """Way along the first edge and to the side (2,), by the length of the corner."""
    at = 0.5 * share * (1 + jnp.asarray(_NODES))
    angle = turn * _turned(at)
    both = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    return 0.5 * share * both @ jnp.asarray(_WEIGHTS)


def _setback(turn: Array, radius: Array) -> Array:
    """Distance of the ends of corners from their nodes [m]."""

    def one(angle: Array) -> Array:
        along, _ = _displaced(angle, jnp.ones(()))
        # Along the first edge: the setback and its projection on the second.
        return 2 * radius * angle * along / (1 + jnp.cos(angle))

    return jax.vmap(one)(turn)


def _edges(path: ToolPath) -> tuple[Array, Array, Array]:
    """Directions and lengths of the edges, and turns between them."""
    edges = jnp.diff(path.nodes, axis=0)
    size = jnp.sqrt(jnp.sum(edges**2, axis=1))
    along = edges / size[:, None]
    cosine = jnp.sum(along[1:] * along[:-1], axis=1)
    sine = jnp.sqrt(jnp.sum(jnp.cross(along[:-1], along[1:]) ** 2, axis=1) + 1e-300)
    return along, size, jnp.arctan2(sine, cosine)


def _marks(path: ToolPath) -> Array:
    """Lengths at which straight pieces and corners end, one after the other, from zero."""
    _, size, turn = _edges(path)
    setback = _setback(turn, path.radius)
    straight = size.at[:-1].add(-setback).at[1:].add(-setback)
    corners = jnp.append(2 * path.radius * turn, 0.0)
    return jnp.append(0.0, jnp.cumsum(jnp.stack([straight, corners], axis=1).ravel()))[:-1]


def point_at(path: ToolPath, s: Float[Array, ""]) -> PathPoint:
    """The point at a length [m] along the path, differentiable by length and path."""
    along, _, turn = _edges(path)
    marks = _marks(path)
    piece = jnp.clip(jnp.searchsorted(marks, jax.lax.stop_gradient(s), side="right") - 1, 0)
    piece = jnp.minimum(piece, marks.shape[0] - 2)
    edge, is_corner = piece // 2, piece % 2 == 1
    setback = jnp.append(_setback(turn, path.radius), 0.0)
    first, normal = along[edge], path.normals[edge]
    last = jnp.minimum(edge + 1, along.shape[0] - 1)
    # A straight path has no turn, but as many numbers.
    turns = jnp.append(turn, 0.0)[edge]
    begin = path.nodes[edge] + jnp.where(edge > 0, setback[edge - 1], 0.0) * first
    corner = path.nodes[last] - setback[edge] * first
    whole = 2 * path.radius * jnp.where(is_corner, turns, 1.0)
    share = jnp.where(is_corner, (s - marks[piece]) / whole, 0.0)
    axis = jnp.cross(first, along[last])
    axis = jnp.where(is_corner, axis, normal)
    axis = axis / jnp.sqrt(axis @ axis)
    side = jnp.cross(axis, first)
    moved = whole * _displaced(turns, share)
    position = jnp.where(
        is_corner, corner + moved[0] * first + moved[1] * side, begin + (s - marks[piece]) * first
    )
    angle = jnp.where(is_corner, turns * _turned(share), 0.0)
    bend = _about(axis, angle)
    tangent = bend @ first
    carried = bend @ normal
    # The rest of the turn of the normal is about the tangent, in the same proportion.
    after = _about(axis, turns) @ normal
    second = path.normals[last]
    twist = jnp.arctan2(jnp.cross(after, second) @ along[last], after @ second)
    up = _about(tangent, jnp.where(is_corner, twist * _turned(share), 0.0)) @ carried
    rotation = jnp.stack([tangent, jnp.cross(up, tangent), up], axis=1)
    curvature = jnp.where(is_corner, jnp.sin(jnp.pi * share) ** 2 / path.radius, 0.0)
    return PathPoint(position, rotation, curvature)


def spread(path: ToolPath, straight: int = 40, corner: int = 80) -> Float[Array, " n"]:
    """Lengths along a path, `straight` in every edge and `corner` in every corner [m]."""
    marks = _marks(path)
    pieces = []
    for k in range(marks.shape[0] - 1):
        count = straight if k % 2 == 0 else corner
        pieces.append(marks[k] + (marks[k + 1] - marks[k]) * jnp.arange(1.0 * count) / count)
    return jnp.append(jnp.concatenate(pieces), marks[-1])


def _about(axis: Array, angle: Array) -> Array:
    turn = skew(axis)
    return jnp.eye(3) + jnp.sin(angle) * turn + (1 - jnp.cos(angle)) * turn @ turn


class TimeLaw(NamedTuple):
    """A start and a stop of limited jerk with a constant speed between.

    `duration` of the whole and `rise` of the speed [s]; `speed` [m/s]; `length` [m].
    """

    duration: Float[Array, ""]
    rise: Float[Array, ""]
    speed: Float[Array, ""]
    length: Float[Array, ""]

    def at(self, time: Float[Array, ""]) -> Float[Array, ""]:
        """Length along the path at a time [s]."""

        def risen(x: Array) -> Array:
            """Integral of the smooth step 10 x³ - 15 x⁴ + 6 x⁵."""
            x = jnp.clip(x, 0.0, 1.0)
            return x**4 * (2.5 - 3 * x + x**2)

        begun = self.rise * risen(time / self.rise) + jnp.maximum(time - self.rise, 0.0)
        stop = self.duration - self.rise
        ended = jnp.maximum(time - stop, 0.0)
        left = self.rise * risen(ended / self.rise)
        return self.speed * (begun - left)


def time_law(
    length: ArrayLike, speed: ArrayLike, acceleration: ArrayLike, jerk: ArrayLike
) -> TimeLaw:
    """The law of time of a path [m] with largest speed, acceleration and jerk along it.

    **Raises:** `ValueError` for a path too short to reach the speed.
    """
    length, speed = positive("The length", length, ()), positive("The speed", speed, ())
    acceleration = positive("The acceleration", acceleration, ())
    jerk = positive("The jerk", jerk, ())
    rise = jnp.maximum(_RISE * speed / acceleration, jnp.sqrt(_BEND * speed / jerk))
    if float(rise * speed) > float(length):
        raise ValueError(
            f"The path of {float(length):.3g} m is too short to reach {float(speed):.3g} m/s: "
            f"start and stop take {float(rise * speed):.3g} m."
        )
    return TimeLaw(length / speed + rise, rise, speed, length)


def held_object(point: PathPoint, head: FramePose, in_hand: FramePose) -> FramePose:
    """Pose of the hand that holds an object under a fixed head, which is at a point of its path.

    **Arguments:** `point` in the object's frame; `head`: the tool in the base; `in_hand`: the
    object in the hand.

    Source: Hüsing 2017, the chain of vectors.
    """
    turn = head.rotation @ point.rotation.T
    at = head.translation - turn @ point.position
    hand = turn @ in_hand.rotation.T
    return FramePose(hand, at - hand @ in_hand.translation)


def held_tool(point: PathPoint, target: FramePose, in_hand: FramePose) -> FramePose:
    """Pose of the hand that holds a tool over a fixed object, at a point of its path.

    **Arguments:** `target`: the object in the base; `in_hand`: the tool in the hand.
    """
    turn = target.rotation @ point.rotation
    at = target.rotation @ point.position + target.translation
    hand = turn @ in_hand.rotation.T
    return FramePose(hand, at - hand @ in_hand.translation)


class Followed(NamedTuple):
    """A robot that follows poses.

    `q` (n, nq); `distance` [m] and `angle` [rad] (n,) by which each pose is missed.
    """

    q: Float[Array, "n nq"]
    distance: Float[Array, " n"]
    angle: Float[Array, " n"]


def follow(
    tree: Tree,
    frame: str | Frame,
    poses: FramePose,
    start: Float[Array, " nq"],
    *,
    steps: int = 4,
) -> Followed:
    """Coordinates along poses (n, ...), each by Newton's method from the one before.

    Poses must be near each other. Differentiable in both modes by poses and model; where a pose is
    missed, by a joint's reach or at a singular position, `distance` and `angle` say so.

    **Arguments:** `tree`, with hinges and slides; `frame`; `poses`; `start` (nq,) near the first,
    from `inverse_kinematics`; `steps` of Newton's method.
    """
    frame = frame_of(tree, frame)

    def off(q: Array, target: FramePose) -> Array:
        here = frame_pose(tree, q, frame)
        turn = quaternions.rotation_vector(
            quaternions.from_matrix(target.rotation @ here.rotation.T)
        )
        return jnp.concatenate([turn, target.translation - here.translation])

    def along(q: Array, target: FramePose) -> tuple[Array, tuple]:
        def newton(q: Array, _: None) -> tuple[Array, None]:
            return q + dense.pinv(frame_jacobian(tree, q, frame)) @ off(q, target), None

        q = jax.lax.scan(newton, q, None, length=steps)[0]
        left = jax.lax.stop_gradient(off(q, target))
        return q, (q, jnp.sqrt(left[3:] @ left[3:]), jnp.sqrt(left[:3] @ left[:3]))

    return Followed(*jax.lax.scan(along, start, poses)[1])


def joint_rates(
    tree: Tree, frame: str | Frame, q: Float[Array, " nq"], pose: FramePose, slope: FramePose
) -> Float[Array, " n"]:
    """Rates of the joints with which a frame keeps to a pose that changes.

    **Arguments:** `q` at which the frame has the `pose`; `slope`: the pose's derivative, by time or
    by length, of which the rates are too.
    """
    turn = slope.rotation @ pose.rotation.T
    turning = jnp.stack([turn[2, 1], turn[0, 2], turn[1, 0]])
    twist = jnp.concatenate([turning, slope.translation])
    return dense.pinv(frame_jacobian(tree, q, frame_of(tree, frame))) @ twist
