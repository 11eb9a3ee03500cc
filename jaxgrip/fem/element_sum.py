"""Sums of element matrices and sparse constraint rows, applied without being formed."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.fem.topology import Constant


class ElementSum(eqx.Module):
    """Matrix (size, size): the sum of matrices (m, v, v) of groups of elements.

    **Arguments:** `size`; groups `(index, matrices)`, where `index` (m, v) gives the degrees of
    freedom of each element; indices from `size` on are ignored.
    """

    matrices: tuple[Float[Array, "_ _ _"], ...]
    indices: tuple[Constant, ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def __init__(self, size: int, groups: Sequence[tuple[np.ndarray, Float[Array, "_ _ _"]]]):
        groups = [(index, matrices) for index, matrices in groups if len(index)]
        self.matrices = tuple(matrices for _, matrices in groups)
        self.indices = tuple(Constant(np.minimum(index, size)) for index, _ in groups)
        self.size = size

    @property
    def groups(self) -> list[tuple[np.ndarray, Float[Array, "_ _ _"]]]:
        """The groups it was made from."""
        return [
            (index.array, matrices)
            for index, matrices in zip(self.indices, self.matrices, strict=True)
        ]

    def __add__(self, other: "ElementSum") -> "ElementSum":
        groups: dict[Constant, Array] = {}
        for part in (self, other):
            for index, own in zip(part.indices, part.matrices, strict=True):
                groups[index] = groups[index] + own if index in groups else own
        return ElementSum(self.size, [(index.array, own) for index, own in groups.items()])

    def __mul__(self, factor: Float[Array, ""] | float) -> "ElementSum":
        return ElementSum(self.size, [(index, factor * own) for index, own in self.groups])

    __rmul__ = __mul__

    def __matmul__(self, u: Float[Array, " size"]) -> Float[Array, " size"]:
        total = jnp.zeros(self.size)
        for index, own in self.groups:
            # Faster than `einsum`, which makes one call for each small product.
            force = jnp.sum(own * of(u, index)[:, None, :], axis=2)
            total = total.at[index].add(force, mode="drop")
        return total

    def scaled(self, scale: Float[Array, " size"]) -> "ElementSum":
        """S A S with the diagonal matrix S of the scales."""

        def one(index: np.ndarray, own: Array) -> Array:
            factor = of(scale, index)
            return own * factor[:, :, None] * factor[:, None, :]

        return ElementSum(self.size, [(index, one(index, own)) for index, own in self.groups])

    def renumbered(self, number: np.ndarray, size: int) -> "ElementSum":
        """The matrix in other degrees of freedom: `number` (size,) is the new index of each.

        Those with a number from the new `size` on are dropped.
        """
        number = np.append(number, size)
        return ElementSum(size, [(number[index], own) for index, own in self.groups])

    def part(self, rows: np.ndarray, columns: np.ndarray) -> Float[Array, "r c"]:
        """The entries in the given rows and columns."""
        position = np.full((2, self.size + 1), max(len(rows), len(columns)))
        position[0, rows], position[1, columns] = np.arange(len(rows)), np.arange(len(columns))
        total = jnp.zeros((len(rows), len(columns)))
        for index, own in self.groups:
            here, there = position[0][index], position[1][index]
            some = np.flatnonzero((here < len(rows)).any(1) & (there < len(columns)).any(1))
            here, there = here[some][:, :, None], there[some][:, None, :]
            total = total.at[here, there].add(own[some], mode="drop")
        return total

    def diagonal(self) -> Float[Array, " size"]:
        """The diagonal."""
        total = jnp.zeros(self.size)
        for index, own in self.groups:
            # An element may list a degree of freedom twice: its off-diagonal entries count too.
            alike = index[:, :, None] == index[:, None, :]
            own = jnp.where(alike, own, 0.0)
            total = total.at[index].add(jnp.sum(own, axis=2), mode="drop")
        return total

    def dense(self) -> Float[Array, "size size"]:
        """All entries."""
        total = jnp.zeros((self.size, self.size))
        for index, own in self.groups:
            total = total.at[index[:, :, None], index[:, None, :]].add(own, mode="drop")
        return total


class Rows(eqx.Module):
    """Sparse matrix (count, size) of constraint equations.

    **Arguments:** `count`, `size`; groups `(rows, index, coefficients)` with the rows (r,) and,
    for each, its degrees of freedom and coefficients (r, w); indices from `size` on are ignored.
    """

    coefficients: tuple[Float[Array, "_ _"], ...]
    places: tuple[tuple[Constant, Constant], ...] = eqx.field(static=True)
    count: int = eqx.field(static=True)
    size: int = eqx.field(static=True)

    def __init__(
        self,
        count: int,
        size: int,
        groups: Sequence[tuple[np.ndarray, np.ndarray, Float[Array, "_ _"]]],
    ):
        groups = [group for group in groups if len(group[0])]
        self.coefficients = tuple(values for _, _, values in groups)
        self.places = tuple(
            (Constant(rows), Constant(np.minimum(index, size))) for rows, index, _ in groups
        )
        self.count, self.size = count, size

    @property
    def groups(self) -> list[tuple[np.ndarray, np.ndarray, Float[Array, "_ _"]]]:
        """The groups it was made from."""
        return [
            (rows.array, index.array, values)
            for (rows, index), values in zip(self.places, self.coefficients, strict=True)
        ]

    def __len__(self) -> int:
        return self.count

    def __matmul__(self, u: Float[Array, " size"]) -> Float[Array, " count"]:
        total = jnp.zeros(self.count)
        for rows, index, values in self.groups:
            total = total.at[rows].add(jnp.sum(values * of(u, index), axis=1))
        return total

    @property
    def T(self) -> "_Transposed":
        """The transpose, for products only."""
        return _Transposed(self)

    def scaled(self, weight: Float[Array, " count"], scale: Float[Array, " size"]) -> "Rows":
        """W B S with the diagonal matrices W of the weights and S of the scales."""
        groups = [
            (rows, index, values * weight[rows][:, None] * of(scale, index))
            for rows, index, values in self.groups
        ]
        return Rows(self.count, self.size, groups)

    def square(self, weight: Float[Array, " count"] | None = None) -> ElementSum:
        """Bᵀ W B with the diagonal matrix W of weights, 1 when not given."""
        groups = []
        for rows, index, values in self.groups:
            left = values if weight is None else values * weight[rows][:, None]
            groups.append((index, left[:, :, None] * values[:, None, :]))
        return ElementSum(self.size, groups)

    def dense(self) -> Float[Array, "count size"]:
        """All entries."""
        total = jnp.zeros((self.count, self.size))
        for rows, index, values in self.groups:
            total = total.at[rows[:, None], index].add(values, mode="drop")
        return total


class _Transposed(eqx.Module):
    rows: Rows

    def __matmul__(self, force: Float[Array, " count"]) -> Float[Array, " size"]:
        total = jnp.zeros(self.rows.size)
        for rows, index, values in self.rows.groups:
            total = total.at[index].add(values * force[rows][:, None], mode="drop")
        return total


def of(values: Float[Array, " n"], index: np.ndarray) -> Array:
    """Values by index, 0 where the index is out of range."""
    return values.at[index].get(mode="fill", fill_value=0.0)
