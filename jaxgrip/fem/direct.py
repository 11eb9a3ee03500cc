"""Direct solution of large sparse symmetric equations, by SciPy's SuperLU on the host.

The sparsity pattern and the elimination order depend only on which degrees of freedom are coupled
and are found once. Nothing is pivoted, so a matrix must be definite or quasi-definite:
[[K, Bᵀ], [B, -D]] with K and D definite can be factorised in any order, accurately enough for
iterative refinement.

Source: George 1973 (nested dissection); Vanderbei 1995 (quasi-definite matrices).
"""

import functools
import threading
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from jaxtyping import Array, Float
from scipy.sparse.csgraph import breadth_first_order, connected_components, reverse_cuthill_mckee

from jaxgrip.fem.topology import Constant

# Graphs of at most SMALLEST nodes, or LONG times as long as wide, are not dissected.
SMALLEST, LONG = 30, 3
# Factors kept in the cache: at most KEPT, with at most NUMBERS_KEPT entries in all.
KEPT = 8
NUMBERS_KEPT = 1e8


class Pattern:
    """Sparsity pattern and elimination order of a sum of element matrices and constraint rows.

    **Arguments:**

    - `size`: number of unknowns.
    - `squares`: unknowns (m, v) of symmetric matrices (m, v, v).
    - `rows`: unknowns (r,), such as multipliers, and the unknowns (r, w) that each is coupled to
      by coefficients (r, w).

    Indices from `size` on are ignored.
    """

    def __init__(
        self,
        size: int,
        squares: Sequence[np.ndarray],
        rows: Sequence[tuple[np.ndarray, np.ndarray]],
    ):
        self.size = size
        self.order = _order(size, squares, rows)
        position = np.full(size + 1, size, dtype=np.int64)
        position[self.order] = np.arange(size)
        first, second = [position[:size]], [position[:size]]
        for index in squares:
            own = position[np.minimum(index, size)]
            first.append(np.repeat(own, own.shape[1], axis=1).ravel())
            second.append(np.tile(own, (1, own.shape[1])).ravel())
        for row, index in rows:
            own = position[np.minimum(index, size)].ravel()
            other = np.repeat(position[row], index.shape[1])
            # Coefficients are given once; squares give both triangles.
            first.append(np.where(own < size, np.maximum(own, other), size))
            second.append(np.minimum(own, other))
        below, left = np.concatenate(first), np.concatenate(second)
        self._taken = np.flatnonzero((below >= left) & (below < size)).astype(np.int32)
        key, slots = np.unique(left[self._taken] * size + below[self._taken], return_inverse=True)
        self._slots = slots.astype(np.int32)
        column, self._row = np.divmod(key, size)
        self._start = np.searchsorted(column, np.arange(size + 1))

    @property
    def entries(self) -> int:
        """Number of entries on and below the diagonal."""
        return len(self._row)

    def values(
        self,
        diagonal: Float[np.ndarray, " size"],
        squares: Sequence[Float[np.ndarray, "_ _ _"]],
        rows: Sequence[Float[np.ndarray, "_ _"]],
    ) -> Float[np.ndarray, " entries"]:
        """Sum of all matrices and a diagonal."""
        flat = np.concatenate([np.ravel(x) for x in (diagonal, *squares, *rows)])
        return np.bincount(self._slots, weights=flat[self._taken], minlength=self.entries)

    def matrix(self, values: Float[np.ndarray, " entries"]) -> scipy.sparse.csc_matrix:
        """The full matrix in elimination order."""
        shape = (self.size, self.size)
        lower = scipy.sparse.csc_matrix((values, self._row, self._start), shape=shape)
        return (lower + scipy.sparse.tril(lower, -1).T).tocsc()


@functools.lru_cache(maxsize=16)
def pattern(
    size: int,
    squares: tuple[Constant, ...],
    rows: tuple[tuple[Constant, Constant], ...],
) -> Pattern:
    """The `Pattern` of these indices, cached."""
    pairs = [(row.array, index.array) for row, index in rows]
    return Pattern(size, [index.array for index in squares], pairs)


def assemble(
    pattern: Pattern,
    diagonal: Float[Array, " size"],
    squares: Sequence[Float[Array, "_ _ _"]],
    rows: Sequence[Float[Array, "_ _"]],
) -> Float[Array, " entries"]:
    """`Pattern.values` within `jit`, without derivatives."""

    def host(*arrays) -> np.ndarray:
        diagonal, *rest = map(np.asarray, arrays)
        return pattern.values(diagonal, rest[: len(squares)], rest[len(squares) :])

    shape = jax.ShapeDtypeStruct((pattern.entries,), float)
    arrays = jax.lax.stop_gradient((diagonal, *squares, *rows))
    return jax.pure_callback(host, shape, *arrays, vmap_method="sequential")


def solve(
    pattern: Pattern, values: Float[Array, " entries"], right: Float[Array, " size"]
) -> Float[Array, " size"]:
    """Solution of A x = b within `jit`, without derivatives; see `host_solve`."""

    def host(values, right) -> np.ndarray:
        values, right = np.asarray(values), np.asarray(right)
        lead = np.broadcast_shapes(values.shape[:-1], right.shape[:-1])
        if values.size == pattern.entries:
            found = host_solve(pattern, values.ravel(), right.reshape(-1, pattern.size).T).T
            return np.broadcast_to(found.reshape(right.shape), (*lead, pattern.size))
        values = np.broadcast_to(values, (*lead, pattern.entries))
        right = np.broadcast_to(right, (*lead, pattern.size))
        found = np.empty(right.shape)
        for position in np.ndindex(lead):
            found[position] = host_solve(pattern, values[position], right[position])
        return found

    shape = jax.ShapeDtypeStruct((pattern.size,), float)
    return jax.pure_callback(host, shape, values, right, vmap_method="expand_dims")


def host_solve(
    pattern: Pattern,
    values: Float[np.ndarray, " entries"],
    right: Float[np.ndarray, " size *columns"],
) -> Float[np.ndarray, " size *columns"]:
    """Solution of A x = b; NaN where A is singular or not finite.

    The factors are cached for further solutions with the same matrix.
    """
    found = np.full(right.shape, np.nan)
    factor = _factor(pattern, values)
    if factor is not None and np.isfinite(right).all():
        found[pattern.order] = factor.solve(np.ascontiguousarray(right[pattern.order]))
    return found


def csr(
    size: int, squares: Sequence[np.ndarray], matrices: Sequence[Float[np.ndarray, "_ _ _"]]
) -> scipy.sparse.csr_matrix:
    """Sum of small matrices (m, v, v) of the unknowns (m, v); from `size` on they are none."""
    rows = [np.repeat(index, index.shape[1], axis=1).ravel() for index in squares]
    columns = [np.tile(index, (1, index.shape[1])).ravel() for index in squares]
    places = np.concatenate(rows), np.concatenate(columns)
    values = np.concatenate([x.ravel() for x in matrices])
    return scipy.sparse.csr_matrix((values, places), shape=(size + 1, size + 1))[:size, :size]


def factorise(matrix: scipy.sparse.csc_matrix) -> scipy.sparse.linalg.SuperLU:
    """Factors of a matrix in its given order, without pivoting."""
    return scipy.sparse.linalg.splu(
        matrix, permc_spec="NATURAL", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )


class _Kept(NamedTuple):
    pattern: Pattern
    values: np.ndarray
    factor: scipy.sparse.linalg.SuperLU | None


def _size(kept: _Kept) -> int:
    return 0 if kept.factor is None else kept.factor.nnz


_kept: list[_Kept] = []
_lock = threading.Lock()


def _factor(pattern: Pattern, values: np.ndarray) -> scipy.sparse.linalg.SuperLU | None:
    """Cached or new factors; None where the matrix is singular or not finite."""
    if not np.isfinite(values).all():
        return None
    with _lock:
        for k, kept in enumerate(_kept):
            if kept.pattern is pattern and np.array_equal(kept.values, values):
                _kept.append(_kept.pop(k))
                return kept.factor
        # Memory is freed first: the old factors and the new ones may not fit side by side.
        new = max((_size(kept) for kept in _kept if kept.pattern is pattern), default=0)
        while _kept and (len(_kept) >= KEPT or sum(map(_size, _kept)) + new > NUMBERS_KEPT):
            del _kept[0]
        try:
            factor = factorise(pattern.matrix(values))
        except RuntimeError:
            factor = None
        _kept.append(_Kept(pattern, values.copy(), factor))
        return factor


def _order(
    size: int, squares: Sequence[np.ndarray], rows: Sequence[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """Elimination order; the unknown of a row comes after all unknowns that it is coupled to."""
    indices = [np.minimum(index, size) for index in [*squares, *(index for _, index in rows)]]
    matrix = np.repeat(np.arange(sum(map(len, indices))), [x.shape[1] for x in indices for _ in x])
    unknown = np.concatenate([index.ravel() for index in indices])
    shape = (int(matrix.max(initial=-1)) + 1, size + 1)
    touched = scipy.sparse.csr_matrix((np.ones(len(unknown)), (matrix, unknown)), shape=shape)
    touched = touched[:, :size]
    # Unknowns that occur in the same matrices belong to one node.
    mark = touched.T @ np.random.default_rng(0).random(shape[0])
    late = np.concatenate([row for row, _ in rows] or [np.zeros(0, dtype=int)])
    mark[late] = 0.0
    _, node = np.unique(mark, return_inverse=True)
    count = int(node.max(initial=-1)) + 1
    member = scipy.sparse.csr_matrix((np.ones(size), (np.arange(size), node)), shape=(size, count))
    touched = touched @ member
    position = np.empty(count, dtype=np.int64)
    position[_by_nodes((touched.T @ touched).tocsr())] = np.arange(count)
    position = position[node]
    for row, index in rows:
        position[row] = np.append(position, -1)[np.minimum(index, size)].max(axis=1)
    is_late = np.zeros(size, dtype=bool)
    is_late[late] = True
    return np.lexsort((np.arange(size), is_late, position))


def _by_nodes(graph: scipy.sparse.csr_matrix) -> np.ndarray:
    """Fill-reducing order of the nodes of a graph."""
    _, part = connected_components(graph, directed=False)
    found = []
    for own in np.split(np.argsort(part, kind="stable"), np.cumsum(np.bincount(part))[:-1]):
        level = _far_levels(graph[own][:, own])
        # Long and thin graphs fill least in a band.
        if level.max() > LONG * np.bincount(level).max():
            found.append(own[reverse_cuthill_mckee(graph[own][:, own], symmetric_mode=True)])
        else:
            found += _dissected(graph[own][:, own], own)
    return np.concatenate(found)


def _dissected(graph: scipy.sparse.csr_matrix, nodes: np.ndarray) -> list[np.ndarray]:
    """Nested dissection: both halves, dissected in turn, then their separator."""
    if len(nodes) <= SMALLEST:
        return [nodes]
    count, part = connected_components(graph, directed=False)
    if count > 1:
        order = np.argsort(part, kind="stable")
        pieces = np.split(order, np.cumsum(np.bincount(part))[:-1])
        return [x for own in pieces for x in _dissected(graph[own][:, own], nodes[own])]
    level = _far_levels(graph)
    sizes = np.bincount(level)
    if len(sizes) < 3:
        return [nodes]
    share = (np.cumsum(sizes) - sizes / 2) / len(nodes)
    inner = np.arange(1, len(sizes) - 1)
    off = np.abs(share[inner] - 0.5)
    middle = inner[off <= max(0.25, off.min())]
    cut = middle[np.argmin(sizes[middle])]
    halves = [np.flatnonzero(level < cut), np.flatnonzero(level > cut)]
    found = [x for own in halves for x in _dissected(graph[own][:, own], nodes[own])]
    return [*found, nodes[level == cut]]


def _far_levels(graph: scipy.sparse.csr_matrix) -> np.ndarray:
    """Distances of all nodes of a connected graph from one at its periphery."""
    level = _levels(graph, 0)
    for _ in range(2):
        level = _levels(graph, int(np.argmax(level)))
    return level


def _levels(graph: scipy.sparse.csr_matrix, start: int) -> np.ndarray:
    """Distances of all nodes of a connected graph from one of them."""
    order, before = breadth_first_order(graph, start, directed=False)
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    # Breadth-first order sorts the nodes by level, and their predecessors too.
    reached = np.append(-1, position[before[order[1:]]])
    level = np.empty(len(order), dtype=np.int64)
    first, last, depth = 0, 1, 0
    while first < last:
        level[order[first:last]] = depth
        first, last, depth = last, int(np.searchsorted(reached, last)), depth + 1
    return level
