"""A mesh as in a file: elements of any type, in groups that may share a name."""

import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

KINDS = ("point", "curve", "surface", "volume")
# Among groups that share a name, the first of these dimensions has the plain name.
FIRST = (2, 1, 0, 3)


class Block(NamedTuple):
    """Elements of one type (meshio's name) and dimension: `nodes` (elements, n)."""

    type: str
    dim: int
    nodes: Int[np.ndarray, "elements n"]


class Group(NamedTuple):
    """A group of elements; `dim` distinguishes it from others of the same name."""

    name: str
    dim: int
    parts: list[Block]

    @property
    def nodes(self) -> Int[np.ndarray, " nodes"]:
        """All nodes of the group."""
        return np.unique(np.concatenate([part.nodes.ravel() for part in self.parts]))


class RawMesh(NamedTuple):
    """The contents of a mesh file."""

    points: Float[np.ndarray, "n 3"]
    blocks: list[Block]
    groups: list[Group]


def by_name(path: Path, groups: list[Group]) -> dict[str, Group]:
    """Groups by unique name.

    Where groups of several dimensions share a name, the surface has it, else the curve, else the
    points; the others have their dimension appended, as in `foot:volume`. Warns of this unless all
    have the same nodes.
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
                f"The mesh file {path} has {len(others) + 1} groups called {name!r}: {name!r} "
                f"is now the {KINDS[first.dim]}; also available: {rest}.",
                stacklevel=4,
            )
    return named
