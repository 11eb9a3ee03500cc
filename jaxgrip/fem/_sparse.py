"""Assembled matrices: blocks between nodes that share an element."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float

from jaxgrip.fem.topology import Topology


class NodeMatrix(eqx.Module):
    """A sparse matrix of d x d blocks, one for each pair of nodes that share an element.

    **Fields:** `blocks` (width, n, d, d), the blocks of each row of nodes, zero where the node
    has fewer neighbours; `topology`, whose `neighbours` gives the columns.
    """

    blocks: Float[Array, "width n d d"]
    topology: Topology

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        size = self.topology.n_nodes * self.blocks.shape[-1]
        return size, size

    @property
    def nnz(self) -> int:
        """Number of stored entries, including zeros."""
        return int(self.topology.neighbours.used.sum()) * self.blocks.shape[-1] ** 2

    def __matmul__(self, u: Float[Array, "n d"]) -> Float[Array, "n d"]:
        scalar, u = self.blocks.shape[-1] == 1, jnp.asarray(u, self.blocks.dtype)

        def add(total, slot):
            column, block = slot
            near = u[column]
            product = block[:, 0] * near if scalar else jnp.einsum("nab,nb->na", block, near)
            return total + product, None

        # One neighbour at a time, without intermediates, is several times faster than all at once.
        columns = jnp.asarray(self.topology.neighbours.columns)
        return jax.lax.scan(add, jnp.zeros_like(u), (columns, self.blocks))[0]

    def __add__(self, other: "NodeMatrix") -> "NodeMatrix":
        return NodeMatrix(self.blocks + other.blocks, self.topology)

    def __mul__(self, factor: Float[Array, ""] | float) -> "NodeMatrix":
        return NodeMatrix(self.blocks * factor, self.topology)

    __rmul__ = __mul__

    def expand(self, weight: Float[Array, "d d"]) -> "NodeMatrix":
        """Scalar blocks times `weight`: the Kronecker product."""
        return NodeMatrix(self.blocks * weight[None, None], self.topology)

    def restrict(self, free: np.ndarray) -> "NodeMatrix":
        """Rows and columns of fixed degrees of freedom replaced by those of the identity."""
        near = self.topology.neighbours
        keep = free[None, :, :, None] & free[near.columns][:, :, None, :]
        own = near.used & (near.columns == np.arange(len(free)))
        fixed = own[..., None, None] * (np.eye(free.shape[1]) * ~free[:, None, :])[None]
        return NodeMatrix(jnp.where(keep, self.blocks, fixed), self.topology)

    def diagonal(self) -> Float[Array, "n d d"]:
        """The diagonal blocks."""
        near = self.topology.neighbours
        own = near.used & (near.columns == np.arange(self.topology.n_nodes))
        return self.blocks[np.argmax(own, axis=0), np.arange(self.topology.n_nodes)]

    def to_dense(self) -> Float[Array, "n d n d"]:
        """All entries."""
        near, d = self.topology.neighbours, self.blocks.shape[-1]
        n = self.topology.n_nodes
        dense = jnp.zeros((n, n, d, d)).at[np.arange(n)[None], near.columns].add(self.blocks)
        return dense.transpose(0, 2, 1, 3)

    def to_scipy(self, free: np.ndarray | None = None) -> scipy.sparse.csr_matrix:
        """As a SciPy matrix, ordered by node; only the degrees of freedom `free` (n, d)."""
        near, blocks = self.topology.neighbours, np.asarray(self.blocks).swapaxes(0, 1)
        d = blocks.shape[-1]
        ends = np.concatenate([[0], np.cumsum(near.used.sum(axis=0))])
        matrix = scipy.sparse.bsr_matrix(
            (blocks[near.used.T], near.columns.T[near.used.T], ends),
            shape=self.shape,
            blocksize=(d, d),
        ).tocsr()
        if free is None:
            return matrix
        keep = np.flatnonzero(free)
        return matrix[keep][:, keep]


def assemble(topology: Topology, local: Float[Array, "elements k d k d"]) -> NodeMatrix:
    """Assembly of element matrices."""
    near, d = topology.neighbours, local.shape[-1]
    blocks = jnp.zeros((near.width * topology.n_nodes, d, d), local.dtype)
    blocks = blocks.at[near.slots].add(local.transpose(0, 1, 3, 2, 4))
    return NodeMatrix(blocks.reshape(near.width, topology.n_nodes, d, d), topology)


def assemble_vector(topology: Topology, local: Float[Array, "elements k d"]) -> Float[Array, "n d"]:
    """Assembly of element vectors."""
    zero = jnp.zeros((topology.n_nodes, local.shape[-1]), local.dtype)
    return zero.at[topology.cells].add(local)
