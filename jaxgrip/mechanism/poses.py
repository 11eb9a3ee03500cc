"""Poses of the parts of a system, and small motions from there."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import check_shape, concrete
from jaxgrip.joints import Frame, Joint
from jaxgrip.mechanism.system import System
from jaxgrip.spatial import quaternions

_UNIT = 1e-6


class Poses(NamedTuple):
    """Frames of all parts in that of the ground.

    `position` (n, 3) [m] and unit `quaternion` (n, 4), scalar first.
    """

    position: Float[Array, "n 3"]
    quaternion: Float[Array, "n 4"]

    @property
    def rotation(self) -> Float[Array, "n 3 3"]:
        """Axes of the parts as columns."""
        return jax.vmap(quaternions.to_matrix)(self.quaternion)


def start(system: System) -> Poses:
    """Initial poses of the parts, as given with them."""
    return Poses(
        jnp.stack([part.position for part in system.parts]),
        jnp.stack([part.quaternion for part in system.parts]),
    )


def check_shapes(system: System, poses: Poses, of: str) -> None:
    """Raise `ValueError`, about the poses `of` something, unless there is one for every part."""
    count = len(system.parts)
    check_shape(f"The position of {of}", poses.position, (count, 3))
    check_shape(f"The quaternion of {of}", poses.quaternion, (count, 4))


def check(system: System, poses: object) -> None:
    """Raise `ValueError`, naming the part, for poses that do not fit the parts of a system."""
    if not isinstance(poses, Poses):
        raise ValueError(
            f"Poses are a {type(poses).__name__}; give Poses, such as those of an Assembly."
        )
    check_shapes(system, poses, "the poses")
    if not (concrete(poses.position) and concrete(poses.quaternion)):
        return
    lengths = np.linalg.norm(np.asarray(poses.quaternion), axis=1)
    whole = np.isfinite(np.asarray(poses.position)).all(axis=1)
    for name, length, finite in zip(system.names, lengths, whole, strict=True):
        if not abs(length - 1) < _UNIT or not finite:
            raise ValueError(
                f"Part {name!r}: quaternion has norm {length:.6g}, expected 1, or its position is "
                "not finite."
            )


def moved(poses: Poses, step: Float[Array, "n 6"]) -> Poses:
    """Poses after a small motion of every part.

    **Arguments:** `poses`; `step` (n, 6): displacement of the origin [m], then rotation vector
    [rad], in axes of the ground.
    """
    change = jax.vmap(quaternions.exponential)(step[:, 3:])
    quaternion = jax.vmap(quaternions.product)(change, poses.quaternion)
    quaternion = quaternion / jnp.linalg.norm(quaternion, axis=1, keepdims=True)
    return Poses(poses.position + step[:, :3], quaternion)


def point(
    system: System, poses: Poses, place: str, point: Float[Array, "3"] | None = None
) -> Float[Array, "3"]:
    """Position of an attachment's first point, or of another point of its part.

    **Arguments:** `system`; `poses`; `place`, `"part.attachment"`, or `"part"` with a `point` (3,)
    in the frame of the part [m].

    **Returns:** (3,) in the frame of the ground [m].

    **Raises:** `ValueError` when there is no such part or attachment, or for another shape.
    """
    if point is None:
        k, points = system.attachment(place)
        point = points[0]
    else:
        k = system.part(place)
        check_shape("point", point, (3,))
    if k < 0:
        return point
    return poses.position[k] + quaternions.to_matrix(poses.quaternion[k]) @ point


def placed(frame: Frame, position: Array, rotation: Array) -> Frame:
    """A frame relative to a part, whose position and rotation are given, in the ground frame."""
    return Frame(position + rotation @ frame.origin, rotation @ frame.rotation)


def spans(system: System, poses: Poses) -> dict[str, Float[Array, "2 3"]]:
    """Positions of both ends of every distance and rope, for drawing it as a line.

    **Arguments:** `system`; `poses`.

    **Returns:** by the name of the connection, (2, 3) [m] in the frame of the ground.
    """
    return {
        connection.name: jnp.stack(
            [point(system, poses, end) for end in (connection.first, connection.second)]
        )
        for connection in system.connections
        if isinstance(connection.joint, Joint) and connection.joint.is_line
    }


def outline(system: System, poses: Poses) -> dict[str, Float[Array, "k 3"]]:
    """Positions of every part's attachments, for drawing it as a line through them.

    An attachment with an axis counts as the midpoint of its first two points.

    **Arguments:** `system`; `poses`.

    **Returns:** by the name of the part, (k, 3) [m] in the frame of the ground.
    """
    lines = {}
    for k, part in enumerate(system.parts):
        middles = jnp.stack([points[:2].mean(axis=0) for points in part.attachments.values()])
        rotation = quaternions.to_matrix(poses.quaternion[k])
        lines[part.name] = poses.position[k][None] + middles @ rotation.T
    return lines
