"""Degrees of freedom and redundant equations, by rank and not by counting."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import check_shape
from jaxgrip.mechanism.loops.equations import weighted_jacobian
from jaxgrip.mechanism.loops.kinematics import jacobian
from jaxgrip.mechanism.loops.model import Mechanism, constraints, row_names
from jaxgrip.rigid import crba
from jaxgrip.solve import dense

# Parts of left singular vectors below this are rounding.
_ROUNDING = 1e-6


class Row(NamedTuple):
    """A joint in the table: its kind, its equations, how many of them follow from others."""

    name: str
    kind: str
    equations: int
    redundant: int


class Dependent(NamedTuple):
    """Joints whose equations depend on each other: how many `equations` they have together, and how
    many of these are `redundant`, whichever one takes out."""

    joints: tuple[str, ...]
    equations: int
    redundant: int


class Mobility(NamedTuple):
    """How parts, or the bodies of a tree with loops, can move in a position; `str` is the report.

    - `parts`: their number; `loops`: independent closed loops.
    - `coordinates`: their number, of a tree those of its joints, of parts six each; `equations`:
      how many there are; `rank`: how many are independent.
    - `table`: a `Row` for every joint whose equations these are; `dependent`: a `Dependent` for
      every group of joints with redundant equations.
    - `motion`: for every degree of freedom, the rates of a tree (k, n), or of parts
      (k, n, 6), velocity of the origin and angular velocity.
    - `conditioning`: smallest singular value that counts over the largest, small near a dead point.
    - `miss`: the largest miss of the equations in the position, [m] or sine.
    - `independent`, of a tree: names of coordinates that determine the others.
    - `motions`, of parts: for every degree of freedom, what each part that moves does.
    - `unconnected`: parts that no joints connect to the ground.
    - `slack`: ropes that are slack and carry no force.
    """

    parts: int
    loops: int
    coordinates: int
    equations: int
    rank: int
    table: tuple[Row, ...]
    dependent: tuple[Dependent, ...]
    motion: np.ndarray
    conditioning: float
    miss: float
    independent: tuple[str, ...] = ()
    motions: tuple[tuple[str, ...], ...] = ()
    unconnected: tuple[str, ...] = ()
    slack: tuple[str, ...] = ()

    @property
    def degrees_of_freedom(self) -> int:
        """Degrees of freedom that are left, by rank."""
        return self.coordinates - self.rank

    @property
    def count(self) -> int:
        """Degrees of freedom that are left by counting, negative for surplus equations."""
        return self.coordinates - self.equations

    @property
    def surplus(self) -> int:
        """Equations that follow from others."""
        return self.equations - self.rank

    @property
    def redundant(self) -> dict[str, int]:
        """By the name of a joint, how many of its equations follow from all others, if any."""
        return {row.name: row.redundant for row in self.table if row.redundant}

    @property
    def verdict(self) -> str:
        """What is left, and how many equations follow from others."""
        text = (
            f"{_plural(self.coordinates, 'coordinate')} and {_plural(self.equations, 'equation')} "
            f"of rank {self.rank} leave {degrees(self.degrees_of_freedom)}"
        )
        if not self.degrees_of_freedom and not self.surplus:
            text = f"Determinate: {text}"
        elif not self.count:
            text = f"The count is right, but the joints are not coherent: {text}"
        if self.independent:
            text += f", for instance {', '.join(self.independent)}"
        if self.surplus:
            follow = "follow" if self.surplus > 1 else "follows"
            text += (
                f". {_plural(self.surplus, 'equation')} {follow} from the others: counting alone "
                f"would give {self.count}"
            )
        return f"{text}."

    def sentences(self) -> list[str]:
        """What is left free or fixed twice, naming parts and joints."""
        found = self.loose
        for joints, equations, redundant in self.dependent:
            *names, last = map(repr, joints)
            who = f"Joints {', '.join(names)} and {last} are" if names else f"Joint {last} is"
            together, whose = ("redundant together", "their") if names else ("redundant", "its")
            follow = "follow" if redundant > 1 else "follows"
            found.append(
                f"{who} {together}: {redundant} of {whose} {_plural(equations, 'equation')} "
                f"{follow} from the others."
            )
        return found

    @property
    def loose(self) -> list[str]:
        """What is left free, naming parts."""
        found = [f"Part {name!r} is not connected to the ground." for name in self.unconnected]
        found += [f"Rope {name!r} is slack and carries no force." for name in self.slack]
        for number, motion in enumerate(self.motions, 1):
            of = (
                f" (degree of freedom {number} of {self.degrees_of_freedom})"
                if self.degrees_of_freedom > 1
                else ""
            )
            found.append(f"{'; '.join(motion)}{of}.")
        return found

    def __str__(self):
        wide = max((len(row.name) for row in self.table), default=0)
        table = [f"  {row.name:{wide}}  {row.kind:10} {row.equations}" for row in self.table]
        head = f"{_plural(self.parts, 'part')}, {_plural(self.loops, 'loop')}."
        return "\n".join([head, *table, self.verdict, *self.sentences()])


class Independence(NamedTuple):
    """Of a matrix: `rank`; by the name of a group of rows, how many follow from all others; the
    groups that are `dependent` on each other; the `motions` that it leaves, as rows;
    `conditioning`, as of `Mobility`."""

    rank: int
    redundant: dict[str, int]
    dependent: tuple[Dependent, ...]
    motions: np.ndarray
    conditioning: float


def independence(matrix: np.ndarray, groups: Mapping[str, np.ndarray]) -> Independence:
    """Rank of a matrix (m, n), and what follows from other rows, by the numbers of named groups."""
    left, sizes, right = np.linalg.svd(matrix)
    rank = int(np.sum(dense.independent(sizes)))
    # How many rows of a group follow from others is the rank of its part of the left null space.
    redundant = {
        name: int(np.linalg.matrix_rank(left[k, rank:], tol=_ROUNDING))
        for name, k in groups.items()
        if rank < len(left)
    }
    conditioning = float(sizes[rank - 1] / sizes[0]) if rank else 1.0
    dependent = _dependent(
        left[:, rank:], {name: groups[name] for name, k in redundant.items() if k}
    )
    return Independence(rank, redundant, dependent, right[rank:], conditioning)


def _dependent(null: np.ndarray, groups: Mapping[str, np.ndarray]) -> tuple[Dependent, ...]:
    """Groups of rows that depend on each other, by the left null space (m, s) of the matrix."""
    # It is a sum of null spaces of separate rows where the projector onto it is block diagonal.
    # The trace of a block is then the dimension of its null space.
    projector = null @ null.T
    found: list[list[str]] = []
    for name, k in groups.items():
        linked = [
            names
            for names in found
            if any(np.abs(projector[np.ix_(k, groups[x])]).max() > _ROUNDING for x in names)
        ]
        found = [names for names in found if names not in linked]
        found.append([*(x for names in linked for x in names), name])
    rows = [np.concatenate([groups[name] for name in names]) for names in found]
    return tuple(
        Dependent(tuple(names), len(k), round(float(projector[k, k].sum())))
        for names, k in zip(found, rows, strict=True)
    )


def mobility(mechanism: Mechanism, q: Float[Array, " n"]) -> Mobility:
    """Degrees of freedom and redundant equations of a mechanism in a position, by rank.

    **Arguments:** `mechanism`; `q`: (n,) coordinates, numbers and not traced [rad or m].

    **Returns:** `Mobility`. Its rank counts singular values above 1e-9 of the largest, motions
    being measured by their kinetic energy.

    **Raises:** `ValueError` for another shape.
    """
    check_shape("q", q, (mechanism.n,))
    lower, weighted = weighted_jacobian(crba(mechanism.tree, q), jacobian(mechanism, q))
    names = [name for _, name, _ in row_names(mechanism)]
    groups = {
        name: np.flatnonzero([each == name for each in names]) for name in dict.fromkeys(names)
    }
    found = independence(np.asarray(weighted).T, groups)
    kinds = {loop.name: type(loop.joint).__name__.lower() for loop in mechanism.loops}
    # The free motions, in coordinates; pivoting picks those that move best.
    motion = np.linalg.solve(np.asarray(lower).T, found.motions.T).T
    return Mobility(
        parts=len(mechanism.tree.names),
        loops=len(mechanism.loops),
        coordinates=mechanism.n,
        equations=mechanism.m,
        rank=found.rank,
        table=tuple(
            Row(name, kinds.get(name, "coupling"), len(k), found.redundant.get(name, 0))
            for name, k in groups.items()
        ),
        dependent=found.dependent,
        motion=motion,
        conditioning=found.conditioning,
        miss=float(np.abs(constraints(mechanism, q)).max(initial=0.0)),
        independent=tuple(mechanism.coordinates[k] for k in _pivots(motion)),
    )


def degrees(count: int) -> str:
    """A number of degrees of freedom in words."""
    return f"{_plural(count, 'degree') if count else 'no degree'} of freedom"


def _plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _pivots(motions: np.ndarray) -> list[int]:
    """Columns, one a row, that are as independent as can be."""
    rest, chosen = motions.copy(), []
    for _ in range(len(motions)):
        k = int(np.argmax(np.linalg.norm(rest, axis=0)))
        chosen.append(k)
        unit = rest[:, k] / np.linalg.norm(rest[:, k])
        rest = rest - np.outer(unit, unit @ rest)
    return sorted(chosen)
