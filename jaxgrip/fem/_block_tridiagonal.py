"""Direct solver: block-tridiagonal Cholesky factorisation along the levels of a mesh."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.fem._sparse import NodeMatrix
from jaxgrip.fem.topology import Topology
from jaxgrip.solve import dense


class Factor(eqx.Module):
    """Factors of a symmetric positive definite matrix that is block tridiagonal in the levels.

    With blocks A_ii and A_i,i-1, `pivots` (levels, w, w) are the inverses of
    S_i = A_ii - A_i,i-1 S_{i-1}⁻¹ A_i,i-1ᵀ, and `couplings` (levels, w, w) are A_i,i-1 S_{i-1}⁻¹.
    """

    pivots: Float[Array, "levels w w"]
    couplings: Float[Array, "levels w w"]
    topology: Topology

    def solve(self, b: Float[Array, "n d *columns"]) -> Float[Array, "n d *columns"]:
        """Solution x of A x = b for one or several right-hand sides."""
        packing = _packing(self.topology)
        d, rest = b.shape[1], b.shape[2:]
        rows = jnp.concatenate([b, jnp.zeros((1, d, *rest), b.dtype)])[packing.node]
        rows = rows.reshape(*self.pivots.shape[:2], *rest)

        def forward(y, level):
            right, coupling = level
            y = right - coupling @ y
            return y, y

        def backward(pull, level):
            right, coupling = level
            x = right - pull
            return coupling.T @ x, x

        zero = jnp.zeros_like(rows[0])
        _, y = jax.lax.scan(forward, zero, (rows, self.couplings))
        z = jnp.einsum("lij,lj...->li...", self.pivots, y)
        _, x = jax.lax.scan(backward, zero, (z, self.couplings), reverse=True)
        return x.reshape(-1, d, *rest)[packing.slot]


def factorise(matrix: NodeMatrix, free: np.ndarray) -> Factor:
    """Factors of a matrix whose free part is symmetric positive definite.

    Fixed degrees of freedom get rows of the identity. The factors are NaN if the free part is not
    positive definite.
    """
    diagonal, lower = _blocks(matrix.restrict(free))

    def step(carry, blocks):
        previous = carry
        own, below = blocks
        coupling = below @ previous
        pivot = own - coupling @ below.T
        root = dense.cholesky(pivot)
        half = dense.solve_triangular(root, jnp.eye(len(root), dtype=root.dtype), lower=True)
        inverse = half.T @ half
        return inverse, (inverse, coupling)

    _, (pivots, couplings) = jax.lax.scan(step, jnp.zeros_like(diagonal[0]), (diagonal, lower))
    return Factor(pivots, couplings, matrix.topology)


def solve(
    matrix: NodeMatrix, factor: Factor, free: np.ndarray, b: Float[Array, "n d"]
) -> Float[Array, "n d"]:
    """Solution of A x = b, differentiable in A and b; x is zero where fixed.

    One step of iterative refinement corrects the rounding of the explicit inverses.
    """
    factor = jax.lax.stop_gradient(factor)
    restricted = matrix.restrict(free)

    def apply(x):
        return restricted @ x

    def invert(_, right):
        first = factor.solve(right)
        return first + factor.solve(right - apply(first))

    right = jnp.where(free, b, 0.0)
    return jax.lax.custom_linear_solve(apply, right, invert, symmetric=True)


class _Packing(NamedTuple):
    """Nodes padded to levels of equal width: `slot` (n,) of each node, `node` in each slot."""

    levels: int
    width: int
    slot: np.ndarray
    node: np.ndarray


@functools.lru_cache(maxsize=64)
def _packing(topology: Topology) -> _Packing:
    level = topology.levels
    order = np.lexsort((np.arange(len(level)), level))
    counts = np.bincount(level)
    width = int(counts.max())
    start = np.concatenate([[0], np.cumsum(counts)[:-1]])
    slot = np.empty(len(level), dtype=np.int32)
    slot[order] = level[order] * width + np.arange(len(level)) - start[level[order]]
    node = np.full(len(counts) * width, len(level), dtype=np.int32)
    node[slot] = np.arange(len(level))
    return _Packing(len(counts), width, slot, node)


def _blocks(matrix: NodeMatrix) -> tuple[Float[Array, "levels w w"], Float[Array, "levels w w"]]:
    packing, near = _packing(matrix.topology), matrix.topology.neighbours
    d, size = matrix.blocks.shape[-1], (packing.levels, packing.width)
    level, position = np.divmod(packing.slot, packing.width)
    row = np.broadcast_to(np.arange(len(level)), near.columns.shape)

    def gather(step: int, filled: bool) -> Float[Array, "levels w w"]:
        use = near.used & (level[row] - level[near.columns] == step)
        i, j = row[use], near.columns[use]
        blocks = jnp.zeros((*size, packing.width, d, d), matrix.blocks.dtype)
        blocks = blocks.at[level[i], position[i], position[j]].set(matrix.blocks[use])
        if filled:
            empty = np.argwhere((packing.node == len(level)).reshape(size))
            blocks = blocks.at[empty[:, 0], empty[:, 1], empty[:, 1]].set(jnp.eye(d))
        edge = packing.width * d
        return blocks.transpose(0, 1, 3, 2, 4).reshape(packing.levels, edge, edge)

    return gather(0, filled=True), gather(1, filled=False)
