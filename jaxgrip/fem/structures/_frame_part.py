"""The finite-element model of one part."""

from collections.abc import Iterable, Mapping

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import brief, concrete, numbers
from jaxgrip.fem.structures._elements import (
    Bars,
    Beams,
    PointMasses,
    RigidLinks,
    mapped,
    node_numbers,
)
from jaxgrip.fem.structures._solid import Solid
from jaxgrip.fem.topology import Constant
from jaxgrip.mechanism import Part


class FramePart(eqx.Module):
    """Nodes of a part in its own frame, and the elements between them.

    **Arguments:**

    - `nodes` (k, 3) in the frame of the part [m].
    - `elements`: groups of `Beams`, `Bars`, `RigidLinks`, `PointMasses`, and `Solid`s.
    - `attachments`: name to node numbers, one to three for joints, ties and loads, any number for
      supports. Other attachments are found by the positions of their points.

    **Raises:** `ValueError` naming group and node when a node does not exist, two ends of an
    element coincide, a node belongs to no element or follows two rigid links, or the orientation
    of a section is parallel to a beam.

    Source: Webhofer 2005, sections 4.2 and 7.2, pp. 29-32, 109-110.
    """

    nodes: Float[Array, "k 3"]
    elements: tuple[Beams | Bars | RigidLinks | PointMasses | Solid, ...]
    attachments: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True)
    _roots: Constant = eqx.field(static=True)

    def __init__(self, nodes, elements, attachments: Mapping[str, object] | None = None):
        nodes = numbers("The nodes of a frame part", nodes)
        if nodes.ndim != 2 or nodes.shape[1] != 3 or not len(nodes):
            raise ValueError(
                f"The nodes of a frame part have the shape {nodes.shape}; it must be (k, 3)."
            )
        self.nodes = nodes
        groups = (Beams, Bars, RigidLinks, PointMasses, Solid)
        if not isinstance(elements, (*groups, Iterable)):
            raise ValueError(
                f"The elements of a frame part are {brief(elements)}; give groups of Beams, Bars, "
                "RigidLinks, PointMasses, or a Solid."
            )
        self.elements = (elements,) if isinstance(elements, groups) else tuple(elements)
        named = {}
        for name, own in mapped("The attachments are", attachments, "their names").items():
            own = node_numbers(f"Attachment {name!r}", own)
            _check_numbers(f"Attachment {name!r}", own, len(nodes))
            named[name] = tuple(own.tolist())
        self.attachments = tuple(named.items())
        self._check()
        self._roots = Constant(self._find_roots())

    @property
    def roots(self) -> np.ndarray:
        """(k,) the node that each node follows rigidly, or itself."""
        return self._roots.array

    @property
    def turning(self) -> np.ndarray:
        """(k,) whether a node has rotations: those of beams, solids and rigid links do."""
        result = np.zeros(len(self.nodes), dtype=bool)
        for group in self.elements:
            if isinstance(group, Beams):
                result[self.roots[group.ends.array]] = True
            elif isinstance(group, Solid):
                result[self.roots[group.nodes.array]] = True
        followed = np.flatnonzero(self.roots != np.arange(len(result)))
        result[self.roots[followed]] = True
        result[followed] = True
        return result

    def points(self, name: str) -> Float[Array, "p 3"]:
        """Positions of an attachment's nodes [m]; `ValueError` when it is not given by nodes."""
        own = dict(self.attachments)
        if name not in own:
            raise ValueError(
                f"No attachment {name!r} is given by nodes; there are {', '.join(own) or 'none'}."
            )
        return self.nodes[np.array(own[name])]

    def part(self, name: str, position=(0.0, 0.0, 0.0), quaternion=(1.0, 0.0, 0.0, 0.0)) -> Part:
        """The rigid part with the attachments of one to three nodes."""
        points = {key: self.points(key) for key, own in self.attachments if len(own) <= 3}
        return Part(name, points, position, quaternion)

    def _check(self) -> None:
        used = np.zeros(len(self.nodes), dtype=bool)
        for k, group in enumerate(self.elements):
            who = f"Group {k} ({type(group).__name__})"
            if isinstance(group, PointMasses | Solid):
                _check_numbers(who, group.nodes.array, len(self.nodes))
                used[group.nodes.array] |= isinstance(group, Solid)
                continue
            if not isinstance(group, Beams | Bars | RigidLinks):
                raise ValueError(
                    f"Element group {k} is {brief(group)}; give Beams, Bars, RigidLinks, "
                    "PointMasses or a Solid."
                )
            ends = group.ends.array
            _check_numbers(who, ends, len(self.nodes))
            used[ends] = True
            if np.any(ends[:, 0] == ends[:, 1]):
                raise ValueError(
                    f"{who} joins node {ends[np.argmax(ends[:, 0] == ends[:, 1])][0]} to itself."
                )
            if not concrete(self.nodes):
                continue
            span = np.diff(np.asarray(self.nodes)[ends], axis=1)[:, 0]
            short = np.linalg.norm(span, axis=1) == 0
            if np.any(short) and not isinstance(group, RigidLinks):
                raise ValueError(
                    f"{who}: the nodes {ends[np.argmax(short)].tolist()} coincide; an element "
                    "needs a length."
                )
            if isinstance(group, Beams):
                try:
                    group.element.check(self.nodes, ends, group.section)
                except ValueError as error:
                    raise ValueError(f"{who}: {error}") from None
        if not used.all():
            raise ValueError(
                f"Node {np.argmin(used)} belongs to no element; attach it by a rigid link or "
                "remove it."
            )

    def _find_roots(self) -> np.ndarray:
        leader = np.arange(len(self.nodes))
        for group in self.elements:
            if not isinstance(group, RigidLinks):
                continue
            for first, second in group.ends.array:
                if leader[second] != second:
                    raise ValueError(f"Node {second} follows two rigid links; it may follow one.")
                leader[second] = first
        root = leader
        for _ in range(len(leader).bit_length()):
            root = root[root]
        if np.any(leader[root] != root):
            raise ValueError("The rigid links form a loop; remove one of them.")
        return root


def _check_numbers(who: str, own: np.ndarray, count: int) -> None:
    bad = own[(own < 0) | (own >= count)]
    if bad.size:
        raise ValueError(f"{who} has a node {bad.flat[0]}; there are nodes 0 to {count - 1}.")
