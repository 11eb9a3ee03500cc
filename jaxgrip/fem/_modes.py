"""Natural vibrations."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.fem import _block_tridiagonal as block_tridiagonal
from jaxgrip.fem._body import Body
from jaxgrip.fem._inertia import Inertia, inertia
from jaxgrip.fem._matrices import stiffness
from jaxgrip.fem._sparse import NodeMatrix
from jaxgrip.fem.static import check_supports
from jaxgrip.solve import dense

TOLERANCE = 1e-12
ITERATIONS = 50
ROUNDING = 1e-14
BLOCK = 8


class Modes(NamedTuple):
    """The lowest natural vibrations of a body.

    `frequency` (k,), circular [rad/s], ascending; `shape` (k, n, d), with modal mass 1 kg.
    """

    frequency: Float[Array, " k"]
    shape: Float[Array, "k n d"]


def frequencies(body: Body, k: int) -> Float[Array, " k"]:
    """The k lowest natural circular frequencies [rad/s], ascending; arguments as for `modes`."""
    return modes(body, k).frequency


def modes(body: Body, k: int) -> Modes:
    """The k lowest natural vibrations, undamped.

    First derivatives only. For repeated frequencies only the derivative of their sum is correct.
    Derivatives of the shapes are those of the space they span: changes within it, on which no
    displacement of a reduced body depends, are omitted. They are NaN when frequency k equals
    frequency k + 1, since the space is then undetermined.

    **Raises:** `ValueError` when the supports leave a rigid motion, or the body has fewer than k
    modes.

    Source: subspace iteration for K phi = w^2 M phi; K, M: Schanzer 2007, section 4.3, pp. 47-57.
    """
    check_supports(body)
    most = int(body.free.sum())
    if not 1 <= k <= most:
        raise ValueError(f"The number of modes is {k}; it must be from 1 to {most}.")
    return _modes(body, k)


@eqx.filter_jit
def _modes(body: Body, k: int) -> Modes:
    matrix, inert = stiffness(body), inertia(body)
    free = jnp.asarray(body.free)
    frozen = jax.lax.stop_gradient(
        _Frozen(matrix.restrict(body.free), block_tridiagonal.factorise(matrix, body.free), inert)
    )
    value, following, shape = _subspace(frozen, free, k, int(body.free.sum()))

    def residual(squared, x):
        return jnp.where(free, matrix @ x - squared * inert.apply(jnp.eye(3), x), 0.0)

    residuals = jax.vmap(residual)(value, shape)
    shift = jnp.einsum("kna,kna->k", shape, residuals)
    squared = value + shift - jax.lax.stop_gradient(shift)
    change = _change_of_span(residuals, value, following, shape, free, frozen)
    return Modes(jnp.sqrt(squared), shape + change)


class _Frozen(NamedTuple):
    """Matrices of the iterations, without derivatives."""

    matrix: NodeMatrix
    factor: block_tridiagonal.Factor
    inertia: Inertia

    def mass(self, x: Array) -> Array:
        """Mass matrix times a vector."""
        return self.inertia.apply(jnp.eye(3), x)


def _subspace(frozen: _Frozen, free: Array, k: int, size: int) -> tuple[Array, Array, Array]:
    """Squared frequencies (k,), the next one, and shapes (k, n, d), by subspace iteration."""
    mass, elastic = _columns(frozen.mass), _columns(lambda x: frozen.matrix @ x)
    mask = free[..., None]
    columns = BLOCK * -(-3 * k // BLOCK) + 2 * BLOCK
    if 2 * columns > size:
        return _dense(frozen, free, k, size)

    def inverse(x):
        return frozen.factor.solve(jnp.where(mask, mass(x), 0.0))

    def step(state):
        i, x, old, _ = state
        y = inverse(x)
        values, x = _ritz(y, elastic(y), mass(y))
        # Inverse eigenvalues are accurate to the rounding of the largest.
        error = jnp.abs(values / old - 1) - ROUNDING * values / values[0]
        return i + 1, x, values, jnp.max(error[:k])

    def unfinished(state):
        return (state[0] < ITERATIONS) & (state[3] > TOLERANCE)

    start = _krylov(inverse, mass, mask, columns)
    begin = (0, start, jnp.ones(columns), jnp.array(jnp.inf))
    _, x, values, change = jax.lax.while_loop(unfinished, step, begin)
    x = jnp.where(change > 1e-8, jnp.nan, x)
    values = jnp.where(change > 1e-8, jnp.nan, values)
    return jax.lax.stop_gradient((values[:k], values[k], jnp.moveaxis(x, -1, 0)[:k]))


def _krylov(inverse, mass, mask: Array, columns: int) -> Array:
    """A mass-orthonormal basis (n, d, columns) of the block Krylov space of the inverse."""
    shape = (*mask.shape[:2], BLOCK)
    first = np.random.default_rng(0).standard_normal(shape)

    def orthonormal(x, basis):
        for _ in range(2):
            weighted = mass(x)
            x = x - jnp.einsum("nac,cb->nab", basis, jnp.einsum("nac,nab->cb", basis, weighted))
            gram = jnp.einsum("nac,nab->cb", x, mass(x))
            root = dense.cholesky(gram)
            x = dense.solve_triangular(root, x.reshape(-1, BLOCK).T, lower=True).T.reshape(shape)
        return x

    def grow(j, state):
        basis, block = state
        block = orthonormal(inverse(block), basis)
        return jax.lax.dynamic_update_slice_in_dim(basis, block, j * BLOCK, axis=2), block

    empty = jnp.zeros((*shape[:2], columns))
    begin = orthonormal(jnp.where(mask, first, 0.0), empty)
    return jax.lax.fori_loop(0, columns // BLOCK, grow, (empty, begin))[0]


def _dense(frozen: _Frozen, free: Array, k: int, size: int) -> tuple[Array, Array, Array]:
    """As `_subspace`, by a dense eigenvalue problem, for small bodies."""
    dofs = jnp.flatnonzero(free.ravel(), size=size)
    unit = jnp.zeros((free.size, size)).at[dofs, jnp.arange(size)].set(1.0)
    unit = unit.reshape(*free.shape, size)
    kx = _columns(lambda x: frozen.matrix @ x)(unit)
    values, x = _ritz(unit, kx, _columns(frozen.mass)(unit))
    following = values[k] if k < size else jnp.array(jnp.inf)
    return jax.lax.stop_gradient((values[:k], following, jnp.moveaxis(x, -1, 0)[:k]))


def _ritz(x: Array, kx: Array, mx: Array) -> tuple[Array, Array]:
    """Squared frequencies and shapes in the span of x (Rayleigh-Ritz)."""
    flat = [a.reshape(-1, a.shape[-1]) for a in (x, kx, mx)]
    squared, vectors = rayleigh_ritz(flat[0].T @ flat[1], flat[0].T @ flat[2])
    return squared, (flat[0] @ vectors).reshape(x.shape)


def rayleigh_ritz(
    k: Float[Array, "m m"], m: Float[Array, "m m"]
) -> tuple[Float[Array, " m"], Float[Array, "m m"]]:
    """Natural frequencies of small dense matrices, as of a body in a few chosen shapes.

    Solves for the inverse eigenvalues, the largest of which are the most accurate.

    **Arguments:** positive definite stiffness `k` and symmetric mass `m`, (m, m).

    **Returns:** squared frequencies (m,) [rad²/s²], ascending, and vectors (m, m) as columns, with
    modal mass 1.
    """
    # Scaled columns keep the small matrix far from singular.
    scale = 1 / jnp.sqrt(jnp.diagonal(k))
    root = dense.cholesky(k * jnp.outer(scale, scale))
    inner = (m + m.T) / 2 * jnp.outer(scale, scale)
    inner = dense.solve_triangular(root, inner, lower=True)
    inner = dense.solve_triangular(root, inner.T, lower=True)
    inverse, vectors = dense.eigh(inner)
    inverse, vectors = inverse[::-1], vectors[:, ::-1]
    vectors = dense.solve_triangular(root, vectors, lower=True, trans=True) * scale[:, None]
    return 1 / inverse, vectors / jnp.sqrt(inverse)[None, :]


@jax.custom_jvp
def _change_of_span(
    residuals: Array, value: Array, following: Array, shape: Array, free: Array, frozen: _Frozen
) -> Array:
    """Zero, with the derivative of the shapes' span as its derivative."""
    return jnp.zeros_like(residuals)


@_change_of_span.defjvp
def _change_of_span_jvp(primals, tangents):
    """By conjugate gradients preconditioned with K: off the span K - w^2 M is positive definite."""
    residuals, value, following, shape, free, frozen = primals
    parted = following > value[-1] * (1 + 1e-6)

    def inertial(x):
        return jnp.where(free, frozen.mass(x), 0.0)

    dual = jax.vmap(inertial)(shape)

    def outside(x):
        x = jnp.where(free, x, 0.0)
        return x - jnp.einsum("jna,j->na", shape, jnp.einsum("jna,na->j", dual, x))

    def outside_dual(f):
        # Cotangents include reactions, which do no work.
        f = jnp.where(free, f, 0.0)
        return f - jnp.einsum("jna,j->na", dual, jnp.einsum("jna,na->j", shape, f))

    def one(squared, right):
        def apply(x):
            y = outside(x)
            # A positive term on the span makes the operator definite everywhere.
            inner = jnp.einsum("jna,j->na", dual, value * jnp.einsum("jna,na->j", dual, x))
            return outside_dual(frozen.matrix @ y - squared * inertial(y)) + inner

        def solve(_, b):
            # Convergence depends on the gap between frequencies k and k + 1.
            x, _ = jax.scipy.sparse.linalg.cg(
                apply, b, M=frozen.factor.solve, tol=1e-9, maxiter=200
            )
            return jnp.where(parted, x, jnp.nan)

        return -outside(
            jax.lax.custom_linear_solve(apply, outside_dual(right), solve, symmetric=True)
        )

    return jnp.zeros_like(residuals), jax.vmap(one)(value, tangents[0])


def _columns(function):
    return jax.vmap(function, in_axes=-1, out_axes=-1)
