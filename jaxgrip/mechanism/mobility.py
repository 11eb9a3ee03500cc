"""What a system leaves free and what it fixes twice, in words."""

from typing import NamedTuple

import numpy as np

from jaxgrip.mechanism import poses as pose
from jaxgrip.mechanism.equations import bodies_of, evaluate_compiled, pairs, rows, size
from jaxgrip.mechanism.poses import Poses
from jaxgrip.mechanism.system import System
from jaxgrip.solve import dense

# Parts of a motion below this belong to rounding.
_STILL = 1e-7


class Row(NamedTuple):
    """A connection in the table: its kind, its equations, how many of them follow from others."""

    name: str
    kind: str
    equations: int
    redundant: int


class Mobility(NamedTuple):
    """Count and rank of the equations of a system at some poses; `str` gives the report.

    - `parts`: their number; `equations`: how many there are; `rank`: how many are independent.
    - `loops`: independent closed loops, the ground being a body.
    - `table`: a `Row` for every connection.
    - `motions`: for every freedom left, what each part that moves does.
    - `motion` (freedoms, n, 6): the same as velocity of the origin and angular velocity.
    - `unconnected`: parts that no joints connect to the ground.
    - `slack`: ropes that hold nothing here.
    - `miss`: the largest miss of the equations at the poses, [m] or sine.
    """

    parts: int
    equations: int
    rank: int
    loops: int
    table: tuple[Row, ...]
    motions: tuple[tuple[str, ...], ...]
    motion: np.ndarray
    unconnected: tuple[str, ...]
    slack: tuple[str, ...]
    miss: float

    @property
    def freedoms(self) -> int:
        """Freedoms that are left, by rank."""
        return 6 * self.parts - self.rank

    @property
    def count(self) -> int:
        """Freedoms that are left by counting, 6 n - m, negative for surplus equations."""
        return 6 * self.parts - self.equations

    @property
    def surplus(self) -> int:
        """Equations that follow from others."""
        return self.equations - self.rank

    @property
    def redundant(self) -> tuple[str, ...]:
        """Connections with equations that follow from others."""
        return tuple(row.name for row in self.table if row.redundant)

    @property
    def verdict(self) -> str:
        """One sentence."""
        if not self.freedoms and not self.surplus:
            return "Determinate: every part is held, and no equation follows from others."
        if not self.freedoms:
            return f"Every part is held, with {_plural(self.surplus, 'redundant equation')}."
        left = f"{_plural(self.freedoms, 'freedom')} left"
        if not self.surplus:
            return f"{left[0].upper()}{left[1:]}: add a drive or a joint for each."
        if not self.count:
            return (
                f"The count is right but the joints are not coherent: {left}, and "
                f"{_plural(self.surplus, 'redundant equation')}."
            )
        return f"{left}, with {_plural(self.surplus, 'redundant equation')}."

    def sentences(self) -> list[str]:
        """What is left free or fixed twice, naming parts and joints."""
        found = self.loose
        found += [
            f"Joint {row.name!r} is redundant: {row.redundant} of its "
            f"{_plural(row.equations, 'equation')} {'follow' if row.redundant > 1 else 'follows'} "
            "from the others."
            for row in self.table
            if row.redundant
        ]
        return found

    @property
    def loose(self) -> list[str]:
        """What is left free, naming parts."""
        found = [f"Part {name!r} is not connected to the ground." for name in self.unconnected]
        found += [f"Rope {name!r} is slack and holds nothing." for name in self.slack]
        for number, motion in enumerate(self.motions, 1):
            of = f" (freedom {number} of {self.freedoms})" if self.freedoms > 1 else ""
            found.append(f"{'; '.join(motion)}{of}.")
        return found

    def __str__(self):
        head = (
            f"{_plural(self.parts, 'part')}, {6 * self.parts} freedoms; "
            f"{_plural(self.equations, 'equation')}, {self.rank} independent; "
            f"{_plural(self.loops, 'loop')}."
        )
        wide = max((len(row.name) for row in self.table), default=0)
        table = [f"  {row.name:{wide}}  {row.kind:10} {row.equations}" for row in self.table]
        return "\n".join([head, *table, self.verdict, *self.sentences()])


def mobility(system: System, poses: Poses | None = None) -> Mobility:
    """Count the freedoms of a system, by rank, and say in words what is free and what redundant.

    **Arguments:** `system`; `poses` at which its joints hold, those given to its parts if None.

    **Returns:** `Mobility`. Its rank counts singular values above 1e-9 of the largest, ways
    being measured by the largest part.

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
    left, sizes, right = np.linalg.svd(np.delete(jacobian, idle, axis=0))
    rank = int(np.sum(dense.independent(sizes)))
    # How many equations of a joint follow from others is the rank of its rows of the left null
    # space.
    kept = np.delete(np.arange(len(jacobian)), idle)
    repeated = {
        name: int(np.linalg.matrix_rank(left[np.isin(kept, k), rank:], tol=1e-6))
        for name, k in where.items()
        if rank < len(left)
    }
    table = tuple(
        Row(
            connection.name,
            type(connection.joint).__name__.lower(),
            connection.joint.equations,
            repeated.get(connection.name, 0),
        )
        for connection in system.connections
    )
    motion = _separated(right[rank:]) * columns
    motion = motion.reshape(len(motion), len(system.parts), 6)
    groups = _connected(system)
    outside = [k for group in groups if len(system.parts) not in group for k in group]
    # A drive of a hinge closes no loop with it; a rod or rope between two parts does.
    edges = {
        (frozenset(pair), connection.name if connection.joint.is_line else "")
        for connection, pair in zip(pairs(system), _edges(system), strict=True)
    }
    return Mobility(
        len(system.parts),
        len(left),
        rank,
        len(edges) - len(system.parts) - 1 + len(groups),
        table,
        tuple(_in_words(system, poses, each, length) for each in motion),
        motion,
        tuple(system.names[k] for k in sorted(outside)),
        slack,
        float(np.abs(residual).max(initial=0.0)),
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
            text = f"part {name!r} can still turn about the axis {_direction(turn)} through "
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


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
