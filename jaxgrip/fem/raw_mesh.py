"""A mesh as a file has it: elements of any kind, and groups of them that may share their names."""

import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

KINDS = ("point", "curve", "surface", "volume")
# Of groups that share a name the plain name is that of the first of these dimensions.
FIRST = (2, 1, 0, 3)


class Block(NamedTuple):
    """Elements of one type, as meshio calls it, and dimension: `nodes` (elements, n)."""

    type: str
    dim: int
    nodes: Int[np.ndarray, "elements n"]


class Group(NamedTuple):
    """A group of elements; `dim` is the dimension that tells it from others of its name."""

    name: str
    dim: int
    parts: list[Block]

    @property
    def nodes(self) -> Int[np.ndarray, " nodes"]:
        """All nodes of the group."""
        return np.unique(np.concatenate([part.nodes.ravel() for part in self.parts]))


class RawMesh(NamedTuple):
    """What a file has."""

    points: Float[np.ndarray, "n 3"]
    blocks: list[Block]
    groups: list[Group]


def by_name(path: Path, groups: list[Group]) -> dict[str, Group]:
    """Groups by a name of their own.

    Where groups of several dimensions share a name, it is that of the surface, else of the curve,
    else of the points; the others have their dimension appended, as in `foot:volume`. A warning
    says so, unless all have the same nodes.
    """
    named: dict[str, Group] = {}
    for name in dict.fromkeys(group.name for group in groups):
        first, *others = sorted(
            (group for group in groups if group.name == name),
            key=lambda group: FIRST.index(group.dim),
        )
        named[name] = first
        for group in others:
            named[f"{name}:{KINDS[group.dim]}"] = group
        if any(not np.array_equal(group.nodes, first.nodes) for group in others):
            rest = " and ".join(repr(f"{name}:{KINDS[group.dim]}") for group in others)
            warnings.warn(
                f"The mesh file {path} has {len(others) + 1} groups called {name!r}: here {name!r} "
                f"is the {KINDS[first.dim]}, and there is {rest}.",
                stacklevel=4,
            )
    return named
