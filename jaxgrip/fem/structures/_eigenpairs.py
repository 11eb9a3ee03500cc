"""Lowest eigenvalues of structures: (K + value G) u + Bᵀ λ = 0 and B u = 0, with K definite.

In buckling G is the geometric stiffness, in vibration the negative mass.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from jaxtyping import Array, Bool, Float

from jaxgrip.fem import direct
from jaxgrip.fem._modes import rayleigh_ritz
from jaxgrip.fem.element_sum import ElementSum
from jaxgrip.fem.structures import _linear as linear
from jaxgrip.solve import dense

Matrices = tuple[linear.Matrix, linear.Matrix, linear.Equations]

# Of the largest reciprocal value; what is smaller is rounding.
NONE = 1e-12
# Distance of reciprocal values, by their size, up to which they are equal but for rounding.
EQUAL = 1e-8
# Lanczos vectors beyond twice the pairs wanted, and how well these are found by them; inverse
# iterations that then take out the softness of the equations.
MORE, FOUND, CORRECTIONS = 20, 1e-10, 2
# Shapes corrected together: the more, the faster, and the more memory.
TOGETHER = 3


Pair = tuple[Float[Array, ""], Float[Array, " n"], Float[Array, " m"]]


class Pairs(NamedTuple):
    """The lowest positive `value`s (k,), ascending, with `shape` (k, n) and `multiplier` (k, m).

    Shapes have the energy 1/2: uᵀ K u = 1. `exists` (k,): whether there is such a value; else it
    is 0, and the shape any that the equations allow.
    """

    value: Float[Array, " k"]
    shape: Float[Array, "k n"]
    multiplier: Float[Array, "k m"]
    exists: Bool[Array, " k"]


def lowest(matrices: Matrices, count: int) -> Pairs:
    """The lowest positive values of K, G and B, differentiable; NaN where K is not definite.

    Where matrices are sparse, G must be nowhere positive, and shapes and multipliers have no
    derivatives (NaN). Dense ones have derivatives of any order. Of equal values the sum has a
    derivative, to first order, and others are NaN.
    """
    frozen = jax.lax.stop_gradient(matrices)
    factor = linear.factorise(frozen[0], frozen[2])
    is_sparse = isinstance(frozen[0], ElementSum)
    found, is_single = (_of_sparse if is_sparse else _of_dense)(frozen, factor, count)

    def one(found: Pairs, is_single: Array) -> Pair:
        return _eigenpair(matrices, found[:3], factor.scale, found.exists, is_single)

    return Pairs(*jax.vmap(one)(found, is_single), found.exists)


def _of_dense(
    matrices: Matrices, factor: linear.Factor, count: int
) -> tuple[Pairs, Bool[Array, " k"]]:
    """From all degrees of freedom at once; also whether a value is none of several equal ones."""
    k, g, b = matrices
    half = dense.solve_triangular(factor.lower, jnp.diag(factor.scale), lower=True)
    basis, size, _ = dense.svd(factor.across)
    basis = jnp.where(size[None, :] > 1e-6, basis, 0.0)

    def free(x: Array) -> Array:
        """Without what the equations forbid."""
        return x - basis @ (basis.T @ x)

    values, vectors = dense.eigh(free(free(-half @ g @ half.T).T))
    exists = ~(values <= NONE * jnp.max(jnp.abs(values)))
    apart = jnp.diff(values, prepend=-jnp.inf, append=jnp.inf)
    is_single = jnp.minimum(apart[1:], apart[:-1]) > EQUAL * jnp.abs(values)
    exists, is_single, values, vectors = (
        x[..., ::-1][..., :count] for x in (exists, is_single, values, vectors)
    )
    value = jnp.where(exists, 1 / jnp.where(exists, values, 1.0), 0.0)
    shape = half.T @ vectors
    row = factor.weight[:, None] * b
    forces = k @ shape + g @ shape * value[None, :]
    multiplier = -factor.weight[:, None] * (dense.pinv(row.T, 1e-9) @ forces)
    return Pairs(value, shape.T, multiplier.T, exists), is_single


def _of_sparse(
    matrices: Matrices, factor: linear.SparseFactor, count: int
) -> tuple[Pairs, Bool[Array, " k"]]:
    """By Lanczos's method on the host."""
    k, g, b = matrices
    mass = -1.0 * g
    none = jnp.zeros(len(b))

    def host(values, *masses) -> np.ndarray:
        values = np.asarray(values)
        heavy = direct.csr(n, indices, [np.asarray(x) for x in masses])
        zero = np.zeros(factor.pattern.size - n)

        def inverse(x: np.ndarray) -> np.ndarray:
            return direct.host_solve(factor.pattern, values, np.append(x, zero))[:n]

        return _lanczos(inverse, heavy, count).T

    scaled = mass.scaled(factor.scale)
    n, indices = mass.size, [index.array for index in scaled.indices]
    result = jax.ShapeDtypeStruct((count, n), float)
    numbers = factor.values, *scaled.matrices
    shape = jax.pure_callback(host, result, *numbers, vmap_method="sequential")
    shape = shape * factor.scale[None, :]
    # Products of all shapes at once take gigabytes for the elements of large frames.
    for _ in range(CORRECTIONS):
        heavy = jax.lax.map(mass.__matmul__, shape)
        shape, multiplier = jax.lax.map(
            lambda f: linear.solve(k, b, factor, f, none), heavy, batch_size=TOGETHER
        )
        elastic, heavy = (jax.lax.map(x.__matmul__, shape) for x in (k, mass))
        value, mix = rayleigh_ritz(shape @ elastic.T, shape @ heavy.T)
        mix = mix / jnp.sqrt(value)[None, :]
        shape, multiplier = mix.T @ shape, mix.T @ multiplier
    yes = jnp.ones(count, dtype=bool)
    return Pairs(value, shape, multiplier, yes), yes


def _lanczos(
    inverse: Callable[[np.ndarray], np.ndarray], mass: scipy.sparse.csr_matrix, count: int
) -> np.ndarray:
    """Shapes (n, count) of the largest values of K⁻¹ M; NaN where they are not found.

    A single start vector may miss some of several equal values, so the search goes on, beside what
    is there, until nothing lower turns up.

    Source: Lehoucq 1998, chapters 3 and 4.
    """
    n, random = mass.shape[0], np.random.default_rng(0)
    values, shapes, wanted = np.zeros(0), np.zeros((n, 0)), count
    for _ in range(n):

        def beside(x: np.ndarray, shapes: np.ndarray = shapes) -> np.ndarray:
            """K⁻¹ x without the shapes that are there."""
            y = inverse(x)
            return y - shapes @ (shapes.T @ (mass @ y))

        start = beside(mass @ random.standard_normal(n))
        if not np.isfinite(start).all():
            return np.full((n, count), np.nan)
        operator = scipy.sparse.linalg.LinearOperator((n, n), beside, dtype=float)
        try:
            found, vectors = scipy.sparse.linalg.eigsh(
                operator,
                wanted,
                mass,
                sigma=0.0,
                OPinv=operator,
                v0=start,
                ncv=min(2 * wanted + MORE, n),
                tol=FOUND,
            )
        except scipy.sparse.linalg.ArpackError:
            return np.full((n, count), np.nan)
        if len(values) >= count and found[0] > values[count - 1] * (1 - EQUAL):
            return shapes[:, :count]
        values, shapes = np.append(values, found), np.concatenate([shapes, vectors], axis=1)
        order = np.argsort(values)
        values, shapes, wanted = values[order], shapes[:, order], 1
    return np.full((n, count), np.nan)


@jax.custom_jvp
def _eigenpair(
    matrices: Matrices, pair: Pair, scale: Array, exists: Array, is_single: Array
) -> Pair:
    """What was found, as a function of K, G and B."""
    return pair


@_eigenpair.defjvp
def _(primals: tuple, tangents: tuple) -> tuple[Pair, Pair]:
    (k, g, b), _, scale, exists, is_single = primals
    dk, dg, db = tangents[0]
    pair = _eigenpair(*primals)
    value, shape, multiplier = pair
    stiff, stress = k @ shape, g @ shape
    out = dk @ shape + value * (dg @ shape) + db.T @ multiplier
    missed = db @ shape
    amount = jnp.where(exists, -shape @ stress, 1.0)
    change = jnp.where(exists, (shape @ out + multiplier @ missed) / amount, 0.0)
    # A stiffness along the shape makes definite what is singular, and keeps the energy.
    right = -out - change * stress - stiff * (shape @ (dk @ shape)) / 2
    right = jnp.concatenate([right, -missed])
    if isinstance(k, ElementSum):
        step = jnp.nan * right
    else:
        whole = k + value * g + jnp.outer(stiff, stiff)
        step = linear.solve_any(whole, b, scale, right)
        step = jnp.where(is_single | ~exists, 1.0, jnp.nan) * step
    return pair, (change, step[: len(shape)], step[len(shape) :])
