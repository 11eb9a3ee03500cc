"""Equations of a system at given poses, with their derivatives.

A joint is a function of one frame seen from the other. Its derivative by the six small motions of
that frame comes from automatic differentiation, for all joints of a kind at once; the rest of the
chain rule is common to all joints.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.joints import Frame, Gear, Joint, frame, relative
from jaxgrip.joints.gear import nearest
from jaxgrip.mechanism.poses import Poses, placed
from jaxgrip.mechanism.system import Connection, System
from jaxgrip.spatial import quaternions, skew


class Joined(NamedTuple):
    """Relative positions of the frames of all joints but gears, in the order of the system.

    `bodies` (j, 2), the index after the last part being the ground; `place`: the second frame seen
    from the first; `by` (j, 6, 2, 6): derivative of its small motion, in axes of the first, by the
    small motions of the two bodies.
    """

    bodies: np.ndarray
    place: Frame
    by: Float[Array, "j 6 2 6"]


def bodies_of(system: System) -> np.ndarray:
    """Indices (j, 2) of the bodies that all joints but gears connect; the ground is the last."""
    ground, found = len(system.parts), []
    for connection in pairs(system):
        if connection.joint.to_ground:
            found.append((ground, system.part(connection.first)))
        else:
            ends = (connection.first, connection.second)
            found.append([system.attachment(end)[0] % (ground + 1) for end in ends])
    return np.array(found, dtype=int).reshape(-1, 2)


def frames(system: System) -> Frame:
    """Frames (j, 2) in their bodies of all joints but gears; a clamp fixes its part as given."""
    ends = [
        (None, None)
        if connection.joint.to_ground
        else [system.attachment(end)[1] for end in (connection.first, connection.second)]
        for connection in pairs(system)
    ]
    return _frames(system, bodies_of(system), ends)


def joined(system: System, poses: Poses) -> Joined:
    """Relative positions of the frames of all joints but gears."""
    bodies, fixed = bodies_of(system), frames(system)
    zero, unit = jnp.zeros((1, 3)), jnp.array([[1.0, 0.0, 0.0, 0.0]])
    position = jnp.concatenate([poses.position, zero])[bodies]
    quaternion = jnp.concatenate([poses.quaternion, unit])[bodies]

    def one(frames: Frame, position: Array, quaternion: Array) -> tuple[Frame, Array]:
        rotation = jax.vmap(quaternions.to_matrix)(quaternion)
        world = jax.vmap(placed)(frames, position, rotation)
        first, second = (jax.tree.map(lambda x, k=k: x[k], world) for k in range(2))
        back = first.rotation.T
        arms = jnp.stack([second.origin - position[0], second.origin - position[1]])
        axes = jnp.stack([-back, back])
        slide = jnp.stack([back @ skew(arms[0]), -back @ skew(arms[1])])
        still = jnp.zeros_like(axes)
        upper = jnp.concatenate([axes, slide], axis=2)
        lower = jnp.concatenate([still, axes], axis=2)
        by = jnp.swapaxes(jnp.concatenate([upper, lower], axis=1), 0, 1)
        return relative(first, second), by

    place, by = jax.vmap(one)(fixed, position, quaternion)
    return Joined(bodies, place, by)


def pairs(system: System) -> list[Connection]:
    """Connections between two frames: all but the gears."""
    return [c for c in system.connections if isinstance(c.joint, Joint)]


def gears(system: System) -> list[Connection]:
    """Connections between two joints."""
    return [c for c in system.connections if isinstance(c.joint, Gear)]


def rows(system: System) -> dict[str, np.ndarray]:
    """Row indices of the equations of every connection, by its name."""
    found, count = {}, 0
    for connection in (*pairs(system), *gears(system)):
        found[connection.name] = np.arange(count, count + connection.joint.equations)
        count += connection.joint.equations
    return found


class Evaluation(NamedTuple):
    """All equations at given poses.

    `residual` (m,): lengths [m] and sines, in the order of `rows`; `jacobian` (m, 6 n): derivative
    by the small motions of all parts; `turns` (j,): coordinates of the joints, counting full
    turns, zeros without gears; `facing` (j,): positive on the intended branch of a joint.
    """

    residual: Float[Array, " m"]
    jacobian: Float[Array, "m k"]
    turns: Float[Array, " j"]
    facing: Float[Array, " j"]


def evaluate(system: System, poses: Poses, turns: Float[Array, " j"] | None = None) -> Evaluation:
    """Residual of all equations, with its derivative.

    **Arguments:** `system`; `poses`; `turns` (j,): coordinates of the joints nearby, from which
    gears count full turns; without them angles are within half a turn.
    """
    at = joined(system, poses)
    bodies, count = len(system.parts) + 1, len(at.bodies)
    where = rows(system)
    residual = jnp.zeros(sum(map(len, where.values())))
    jacobian = jnp.zeros((len(residual), bodies, 6))
    facing = jnp.zeros(count)
    for kind in kinds(system):
        joint, place = kind.of(at.place)
        value, local = jax.vmap(lambda j, p: _with_derivative(j.residual, p))(joint, place)
        full = jnp.einsum("jek,jkbl->jebl", local, at.by[kind.indices])
        numbers = np.stack([where[name] for name in kind.names])
        residual = residual.at[numbers].set(value)
        for end in range(2):
            jacobian = jacobian.at[numbers, at.bodies[kind.indices, end][:, None]].set(
                full[:, :, end]
            )
        facing = facing.at[kind.indices].set(jax.vmap(lambda j, p: j.facing(p))(joint, place))
    values = jnp.zeros(count)
    if gears(system):
        values, slopes = coordinates(system, at)
        if turns is not None:
            values = jnp.where(angular(system), nearest(values, turns), values)
        for connection in gears(system):
            row = where[connection.name]
            couple = [_place(system, name) for name in (connection.first, connection.second)]
            residual = residual.at[row].set(connection.joint.residual(*values[np.array(couple)]))
            factors = (-connection.joint.ratio, jnp.ones(()))
            for k, factor in zip(couple, factors, strict=True):
                for end in range(2):
                    body = at.bodies[k, end]
                    jacobian = jacobian.at[row[0], body].add(factor * slopes[k, end])
    return Evaluation(residual, jacobian[:, :-1].reshape(len(residual), -1), values, facing)


# For callers that are not compiled themselves.
evaluate_compiled = eqx.filter_jit(evaluate)


def equations(
    system: System, poses: Poses, turns: Float[Array, " j"] | None = None
) -> tuple[Float[Array, " m"], Float[Array, "m k"]]:
    """`residual` (m,) and `jacobian` (m, 6 n) of `evaluate`."""
    return evaluate(system, poses, turns)[:2]


def coordinates(system: System, at: Joined) -> tuple[Float[Array, " j"], Float[Array, "j 2 6"]]:
    """Coordinates of all joints that have one, else 0, and their derivatives."""
    values, slopes = jnp.zeros(len(at.bodies)), jnp.zeros((len(at.bodies), 2, 6))
    for kind in kinds(system):
        if kind.joint.measure is None:
            continue
        joint, place = kind.of(at.place)
        value, local = jax.vmap(lambda j, p: _with_derivative(j.coordinate, p))(joint, place)
        values = values.at[kind.indices].set(value)
        full = jnp.einsum("jk,jkbl->jbl", local, at.by[kind.indices])
        slopes = slopes.at[kind.indices].set(full)
    return values, slopes


def turns(system: System, poses: Poses) -> Float[Array, " j"]:
    """Coordinates (j,) of the joints, from which gears count full turns; zeros without gears."""
    if not gears(system):
        return jnp.zeros(len(pairs(system)))
    return coordinates(system, joined(system, poses))[0]


def angular(system: System) -> np.ndarray:
    """Which joints have a coordinate that is known up to full turns only."""
    measures = [connection.joint.measure for connection in pairs(system)]
    return np.array([m is not None and m.periodic for m in measures], dtype=bool)


class Kind(NamedTuple):
    """Joints of one type: stacked into one, their indices among all pairs, their names."""

    joint: Joint
    indices: np.ndarray
    names: tuple[str, ...]

    def of(self, place: Frame) -> tuple[Joint, Frame]:
        """The joints and the relative positions of their frames."""
        return self.joint, jax.tree.map(lambda x: x[self.indices], place)


def kinds(system: System) -> list[Kind]:
    """Joints sorted by their type."""
    sorted_: dict[object, list[int]] = {}
    for k, connection in enumerate(pairs(system)):
        sorted_.setdefault(jax.tree.structure(connection.joint), []).append(k)
    all_pairs = pairs(system)
    return [
        Kind(
            jax.tree.map(lambda *x: jnp.stack(x), *(all_pairs[k].joint for k in indices)),
            np.array(indices),
            tuple(all_pairs[k].name for k in indices),
        )
        for indices in sorted_.values()
    ]


def size(system: System) -> Float[Array, ""]:
    """Length that scales displacements to angles: largest extent of a part [m], 1 without any."""
    points = [jnp.concatenate([*p.attachments.values()]) for p in system.parts if p.attachments]
    extents = [jnp.max(jnp.max(each, axis=0) - jnp.min(each, axis=0)) for each in points]
    largest = jnp.max(jnp.stack([jnp.zeros(()), *extents]))
    return jnp.where(largest > 0, largest, 1.0)


def _place(system: System, name: str) -> int:
    return [connection.name for connection in pairs(system)].index(name)


def _frames(system: System, bodies: np.ndarray, ends: list) -> Frame:
    flat = [points for pair in ends for points in pair]
    origins, rotations = jnp.zeros((len(flat), 3)), jnp.zeros((len(flat), 3, 3))
    for count in (1, 2, 3):
        indices = [
            k for k, points in enumerate(flat) if points is not None and len(points) == count
        ]
        if indices:
            found = jax.vmap(frame)(jnp.stack([flat[k] for k in indices]))
            origins = origins.at[np.array(indices)].set(found.origin)
            rotations = rotations.at[np.array(indices)].set(found.rotation)
    clamped = np.array([k for k, pair in enumerate(ends) if pair[0] is None], dtype=int)
    if len(clamped):
        parts = [system.parts[k] for k in bodies[clamped, 1]]
        origins = origins.at[2 * clamped].set(jnp.stack([part.position for part in parts]))
        rotation = jax.vmap(quaternions.to_matrix)(jnp.stack([part.quaternion for part in parts]))
        rotations = rotations.at[2 * clamped].set(rotation)
        rotations = rotations.at[2 * clamped + 1].set(jnp.eye(3)[None])
    return Frame(origins.reshape(-1, 2, 3), rotations.reshape(-1, 2, 3, 3))


def _with_derivative(function: Callable[[Frame], Array], place: Frame) -> tuple[Array, Array]:
    """A function of a frame, and its derivative by six small motions of that frame."""
    value, slope = jax.linearize(function, place)
    unit, still = jnp.eye(3), jnp.zeros((3, 3, 3))
    turned = jnp.einsum("kij,jl->kil", jax.vmap(skew)(unit), place.rotation)
    motions = Frame(jnp.concatenate([unit, still[0]]), jnp.concatenate([still, turned]))
    return value, jnp.moveaxis(jax.vmap(slope)(motions), 0, -1)
