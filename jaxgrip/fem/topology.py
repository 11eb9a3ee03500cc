"""The static part of a mesh: connectivity, named faces and node sets."""

import functools
from collections.abc import Mapping

import equinox as eqx
import numpy as np
import scipy.sparse
from scipy.sparse.csgraph import connected_components

from jaxgrip.checks import listed
from jaxgrip.fem.elements.element import Element, check_element


class Constant:
    """A NumPy array as a static field: hashed once, compared by value."""

    def __init__(self, array: np.ndarray):
        self.array = np.ascontiguousarray(array)
        self.array.setflags(write=False)
        self._hash = hash((self.array.shape, self.array.dtype.str, self.array.tobytes()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Constant)
            and self._hash == other._hash
            and np.array_equal(self.array, other.array)
        )

    def __repr__(self) -> str:
        return f"Constant{self.array.shape}"


class Topology(eqx.Module):
    """Connectivity of a mesh of one element type.

    **Fields:**

    - `element`: the element type.
    - `n_nodes`: number of nodes.
    - `cells`: (elements, nodes of one) node indices, in the order of the element.
    - `faces`: name to (faces, 2), the element and its local face.
    - `points`: name to (nodes,), node sets; each face is also a node set of the same name.
    - `levels`: (nodes,), groups numbered from zero such that neighbours differ by at most one;
      direct solves are faster the smaller the largest group is.
    """

    element: Element = eqx.field(static=True)
    n_nodes: int = eqx.field(static=True)
    _cells: Constant = eqx.field(static=True)
    _faces: tuple[tuple[str, Constant], ...] = eqx.field(static=True)
    _points: tuple[tuple[str, Constant], ...] = eqx.field(static=True)

    def __init__(
        self,
        element: Element,
        n_nodes: int,
        cells: np.ndarray,
        faces: Mapping[str, np.ndarray] | None = None,
        points: Mapping[str, np.ndarray] | None = None,
    ):
        check_element(element)
        self.element = element
        self.n_nodes = n_nodes
        self._cells = Constant(np.asarray(cells, dtype=np.int32))
        faces = dict(faces or {})
        points = {name: np.unique(nodes) for name, nodes in (points or {}).items()}
        for name, pairs in faces.items():
            local = np.asarray(element.faces)[pairs[:, 1]]
            points[name] = np.unique(np.take_along_axis(self.cells[pairs[:, 0]], local, axis=1))
        self._faces = _frozen(faces)
        self._points = _frozen(points)

    @property
    def cells(self) -> np.ndarray:
        """(elements, nodes of one) node indices."""
        return self._cells.array

    @property
    def faces(self) -> dict[str, np.ndarray]:
        """Name to (faces, 2), the element and its local face."""
        return {name: pairs.array for name, pairs in self._faces}

    @property
    def points(self) -> dict[str, np.ndarray]:
        """Name to (nodes,), node sets."""
        return {name: nodes.array for name, nodes in self._points}

    def face(self, name: str) -> np.ndarray:
        """(faces, 2) of the named face; `ValueError` when there is none."""
        return _named(self.faces, name, "face")

    def point_set(self, name: str) -> np.ndarray:
        """(nodes,) of the named set; `ValueError` when there is none."""
        return _named(self.points, name, "set of nodes")

    @property
    def levels(self) -> np.ndarray:
        """(nodes,) level of each node; levels of neighbours differ by at most one."""
        return _levels(self)

    @property
    def parts(self) -> np.ndarray:
        """(nodes,) index of the connected part that each node belongs to."""
        return _parts(self)

    @property
    def neighbours(self) -> "Neighbours":
        """Which nodes share an element."""
        return _neighbours(self)


class Neighbours:
    """Which nodes share an element, as a padded table.

    - `columns`: (width, nodes), the neighbours of each node in ascending order, including the
      node itself, padded with it.
    - `used`: (width, nodes), False for padding.
    - `slots`: (elements, n, n), the index `slot * nodes + row` of each pair of element nodes.
    """

    def __init__(self, n_nodes: int, cells: np.ndarray):
        n = cells.shape[1]
        rows, cols = np.repeat(cells, n, axis=1).ravel(), np.tile(cells, (1, n)).ravel()
        pairs, back = np.unique(rows.astype(np.int64) * n_nodes + cols, return_inverse=True)
        row, col = np.divmod(pairs, n_nodes)
        count = np.bincount(row, minlength=n_nodes)
        start = np.concatenate([[0], np.cumsum(count)[:-1]])
        slot = np.arange(len(row)) - start[row]
        self.width = max(int(count.max(initial=1)), 1)
        self.columns = np.tile(np.arange(n_nodes, dtype=np.int32), (self.width, 1))
        self.columns[slot, row] = col
        self.used = np.arange(self.width)[:, None] < count
        index = slot * n_nodes + row
        self.slots = index[back].reshape(len(cells), n, n).astype(np.int32)


def _frozen(arrays: Mapping[str, np.ndarray]) -> tuple[tuple[str, Constant], ...]:
    return tuple(
        (name, Constant(np.asarray(a, dtype=np.int32))) for name, a in sorted(arrays.items())
    )


def _named(arrays: Mapping[str, np.ndarray], name: str, what: str) -> np.ndarray:
    if name not in arrays:
        known = listed(map(repr, arrays))
        raise ValueError(f"The mesh has no {what} called {name!r}; it has {known}.")
    return arrays[name]


@functools.lru_cache(maxsize=64)
def _neighbours(topology: Topology) -> Neighbours:
    return Neighbours(topology.n_nodes, topology.cells)


@functools.lru_cache(maxsize=64)
def _parts(topology: Topology) -> np.ndarray:
    columns = topology.neighbours.columns
    rows = np.broadcast_to(np.arange(topology.n_nodes), columns.shape)
    entries = (np.ones(columns.size), (rows.ravel(), columns.ravel()))
    return connected_components(scipy.sparse.coo_matrix(entries))[1]


@functools.lru_cache(maxsize=64)
def _levels(topology: Topology) -> np.ndarray:
    """The best of breadth-first searches from every node set and from a peripheral node."""
    near = topology.neighbours
    candidates = [_search(near, nodes) for nodes in topology.points.values() if len(nodes)]
    far = _search(near, np.array([0]))
    candidates.append(_search(near, np.flatnonzero(far == far.max())[:1]))
    return min(candidates, key=lambda levels: np.bincount(levels).max())


def _search(near: Neighbours, start: np.ndarray) -> np.ndarray:
    level = np.full(near.columns.shape[1], -1, dtype=np.int32)
    front, depth = start, 0
    while True:
        level[front] = depth
        reached = np.unique(near.columns[:, front])
        front = reached[level[reached] < 0]
        depth += 1
        if not len(front):
            rest = np.flatnonzero(level < 0)
            if not len(rest):
                return level
            # Disconnected parts may share levels, since they are not coupled.
            front, depth = rest[:1], 0
