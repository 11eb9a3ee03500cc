"""What a system leaves free and what it fixes twice, in words."""

import numpy as np

from jaxgrip.mechanism import poses as pose
from jaxgrip.mechanism._equations import bodies_of, evaluate_compiled, pairs, rows, size
from jaxgrip.mechanism.loops.mobility import Mobility, Row, independence
from jaxgrip.mechanism.poses import Poses
from jaxgrip.mechanism.system import System

# Parts of a motion below this belong to rounding.
_STILL = 1e-7


def mobility(system: System, poses: Poses | None = None) -> Mobility:
    """Degrees of freedom and redundant equations of a system, by rank, in words.

    **Arguments:** `system`; `poses` at which its joints hold, those given to its parts if None.

    **Returns:** `Mobility`. Its rank counts singular values above 1e-9 of the largest, with
    displacements in multiples of the size of the largest part.

    **Raises:** `ValueError` for poses that are not those of the parts, or a system without
    connections.

    Source: Webhofer 2005, eq. 5.3-5.4, pp. 39-40, for the count; own derivation of
    rank, remaining motions and redundant joints.
    """
    poses = pose.start(system) if poses is None else poses
    pose.check(system, poses)
    if not system.connections:
        raise ValueError("There are no connections, so every part is free.")
    residual, jacobian, *_ = evaluate_compiled(system, poses)
    length = float(size(system))
    columns = np.tile([length] * 3 + [1.0] * 3, len(system.parts))
    jacobian = np.asarray(jacobian) * columns
    where = rows(system)
    slack = tuple(
        connection.name
        for connection in pairs(system)
        if connection.joint.one_sided and not jacobian[where[connection.name]].any()
    )
    idle = [k for name in slack for k in where[name]]
    kept = np.delete(np.arange(len(jacobian)), idle)
    found = independence(
        jacobian[kept], {name: np.flatnonzero(np.isin(kept, k)) for name, k in where.items()}
    )
    table = tuple(
        Row(
            connection.name,
            type(connection.joint).__name__.lower(),
            connection.joint.equations,
            found.redundant.get(connection.name, 0),
        )
        for connection in system.connections
    )
    motion = _separated(found.motions) * columns
    motion = motion.reshape(len(motion), len(system.parts), 6)
    groups = _connected(system)
    outside = [k for group in groups if len(system.parts) not in group for k in group]
    # A drive of a hinge closes no loop with it; a rod or rope between two parts does.
    edges = {
        (frozenset(pair), connection.name if connection.joint.is_line else "")
        for connection, pair in zip(pairs(system), _edges(system), strict=True)
    }
    return Mobility(
        parts=len(system.parts),
        loops=len(edges) - len(system.parts) - 1 + len(groups),
        coordinates=6 * len(system.parts),
        equations=len(kept),
        rank=found.rank,
        table=table,
        dependent=found.dependent,
        motion=motion,
        conditioning=found.conditioning,
        miss=float(np.abs(residual).max(initial=0.0)),
        motions=tuple(_in_words(system, poses, each, length) for each in motion),
        unconnected=tuple(system.names[k] for k in sorted(outside)),
        slack=slack,
    )


def _separated(motions: np.ndarray) -> np.ndarray:
    """The same space of motions, each of as few parts as row echelon form makes of it."""
    motions = motions.copy()
    for k in range(len(motions)):
        rest = np.abs(motions[k:])
        row, column = np.unravel_index(np.argmax(rest), rest.shape)
        motions[[k, k + row]] = motions[[k + row, k]]
        motions[k] /= motions[k, column]
        others = np.arange(len(motions)) != k
        motions[others] -= np.outer(motions[others, column], motions[k])
    return np.where(np.abs(motions) < _STILL, 0.0, motions)


def _in_words(system: System, poses: Poses, motion: np.ndarray, length: float) -> tuple[str, ...]:
    found = []
    for name, origin, twist in zip(system.names, np.asarray(poses.position), motion, strict=True):
        way, turn = twist[:3], twist[3:]
        if np.linalg.norm(turn) > _STILL:
            square = turn @ turn
            middle = origin + np.cross(turn, way) / square
            advance = turn @ way / square
            text = f"part {name!r} can still rotate about the axis {_direction(turn)} through "
            text += _vector(middle, length)
            if abs(advance) > _STILL * length:
                text += f", advancing by {advance:.4g} m per radian"
            found.append(text)
        elif np.linalg.norm(way) > _STILL * length:
            found.append(f"part {name!r} can still slide along {_direction(way)}")
    return tuple(text if k else text[0].upper() + text[1:] for k, text in enumerate(found))


def _direction(vector: np.ndarray) -> str:
    vector = vector / np.linalg.norm(vector)
    return _vector(vector * np.sign(vector[np.argmax(np.abs(vector))]), 1.0)


def _vector(vector: np.ndarray, length: float) -> str:
    clean = np.where(np.abs(vector) < 1e-6 * length, 0.0, vector)
    return f"({', '.join(f'{x:.4g}' for x in clean)})"


def _edges(system: System) -> list[tuple[int, int]]:
    """Bodies that each joint connects, the ground being the last."""
    return [tuple(pair) for pair in bodies_of(system).tolist()]


def _connected(system: System) -> list[set[int]]:
    groups = [{k} for k in range(len(system.parts) + 1)]
    for pair in _edges(system):
        joined_groups = [group for group in groups if group & set(pair)]
        groups = [group for group in groups if group not in joined_groups]
        groups.append(set().union(*joined_groups))
    return groups
