"""Dense matrices in batches: factors, solutions, eigenvalues; the batch may come from `jax.vmap`.

Why not `jax.numpy.linalg`: jaxlib 0.10 and 0.11 divide a batched LAPACK call among the threads of a
pool, and the call waits for its parts on one of these threads. Two such calls at a time, of one
program or of two, can wait for each other for ever. No call from here waits: on a CPU, a batch of
matrices up to the size of `SMALL` is processed in elementwise operations with the batch in the last
axis, and larger matrices go through LAPACK a few at a time, too few to be divided. Both are faster
than LAPACK on the whole batch (`jaxgrip bench`), the second because the matrices stay in the cache,
except for about 12 rows. A single matrix, and any on another device, is left to JAX.

Every function takes arrays with any leading axes, works under `jit`, `vmap` and differentiation
of any order, and gives NaN or infinity, not an exception, where a matrix is singular.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Bool, Float, Int

from jaxgrip.solve.fusion import kept, opaque_one

# Up to this size a batch is faster in elementwise operations than in LAPACK.
SMALL = {
    "cholesky": 6,
    "solve_triangular": 8,
    "solve_positive": 8,
    "solve_general": 6,
    "lu": 6,
    "lu_solve": 6,
    "eigh": 3,
    "svd": 0,
}
# Singular values up to this fraction of the largest belong to rows that depend on others.
RANK_TOLERANCE = 1e-9
# Above this size factors are kept for the derivatives, at the cost of a larger program.
_LARGE = 64
# Fewer matrices than this are as fast in LAPACK, whose programs compile faster.
_FEW = 16
# These jaxlibs do not divide a call of up to 200 000 operations by their own count. The counts
# here, for a matrix with n rows or columns and k right-hand sides, are not lower.
_ALONE = 180_000
_OPERATIONS: dict[str, Callable[[int, int], float]] = {
    "cholesky": lambda n, _: n**3 / 3,
    "solve_triangular": lambda n, k: n**2 * k,
    "solve_positive": lambda n, k: max(n**3 / 3, n**2 * k),
    "solve_general": lambda n, k: max(4 * n**3 / 3, n**2 * k),
    "lu": lambda n, _: 4 * n**3 / 3,
    "lu_solve": lambda n, k: n**2 * k,
    "eigh": lambda n, _: 10 * n**3,
    "svd": lambda n, _: 10 * n**3,
}


class LU(NamedTuple):
    """A[perm] = L U: `lu` `(..., n, n)`, unit lower L and upper U in one; `perm` `(..., n)`."""

    lu: Float[Array, "*batch n n"]
    perm: Int[Array, "*batch n"]


def cholesky(a: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    """Lower L with A = L Lᵀ, of a symmetric matrix; NaN where it is not positive definite."""
    return _cholesky.bind(_symmetric(a))[0]


def cho_solve(
    lower: Float[Array, "*batch n n"], b: Float[Array, "*batch n k"] | Float[Array, "*batch n"]
) -> Float[Array, "*batch n k"] | Float[Array, "*batch n"]:
    """x of L Lᵀ x = b, for the factor of `cholesky`; `b` is a vector with one axis less."""
    return solve_triangular(lower, solve_triangular(lower, b, lower=True), lower=True, trans=True)


def solve_triangular(
    a: Float[Array, "*batch n n"],
    b: Float[Array, "*batch n k"] | Float[Array, "*batch n"],
    *,
    lower: bool,
    trans: bool = False,
    unit: bool = False,
) -> Float[Array, "*batch n k"] | Float[Array, "*batch n"]:
    """x of A x = b, of Aᵀ x = b with `trans`, for the lower or upper triangle of `a`.

    **Arguments:** `a`; `b`, a vector where it has one axis less than `a`; `unit`: the diagonal
    counts as one.
    """
    a, b, restore = _matched(a, b)
    return restore(_solve_triangular.bind(a, b, lower=lower, trans=trans, unit=unit)[0])


def lu_factor(a: Float[Array, "*batch n n"]) -> LU:
    """Factors of a square matrix, with the largest pivot of every column."""
    return LU(*_lu.bind(a))


def lu_solve(
    factors: LU,
    b: Float[Array, "*batch n k"] | Float[Array, "*batch n"],
    *,
    trans: bool = False,
) -> Float[Array, "*batch n k"] | Float[Array, "*batch n"]:
    """x of A x = b, of Aᵀ x = b with `trans`; `b` is a vector with one axis less than `lu`."""
    lu, b, restore = _matched(factors.lu, b)
    perm = jnp.broadcast_to(factors.perm, lu.shape[:-1])
    if not trans:
        b = _rows(b, perm)
    (x,) = _lu_solve.bind(lu, b, trans=trans)
    return restore(_rows(x, jnp.argsort(perm, axis=-1)) if trans else x)


def determinant_sign(factors: LU) -> Float[Array, "*batch"]:
    """1, -1, or 0 for a singular matrix."""
    is_later = factors.perm[..., :, None] > factors.perm[..., None, :]
    inversions = jnp.sum(jnp.triu(is_later), axis=(-2, -1))
    sign = jnp.prod(jnp.sign(jnp.diagonal(factors.lu, axis1=-2, axis2=-1)), axis=-1)
    return jnp.where(inversions % 2 == 0, sign, -sign)


def solve(
    a: Float[Array, "*batch n n"],
    b: Float[Array, "*batch n k"] | Float[Array, "*batch n"],
    *,
    positive: bool = False,
) -> Float[Array, "*batch n k"] | Float[Array, "*batch n"]:
    """x of A x = b, with the implicit derivative.

    **Arguments:** `a`, square; `b`, a vector where it has one axis less than `a`; `positive`: `a`
    is symmetric and positive definite.
    """
    a, b, restore = _matched(a, b)
    a = _symmetric(a) if positive else a
    if a.shape[-1] > _LARGE:
        return restore(_solve_by_factors(a, b, positive))
    return restore((_solve_positive if positive else _solve_general).bind(a, b)[0])


def _solve_by_factors(a: Array, b: Array, positive: bool) -> Array:
    """`solve` by factors that serve the derivatives too."""
    if positive:
        (lower,) = _cholesky.bind(lax.stop_gradient(a))
        return lax.custom_linear_solve(
            lambda x: a @ x, b, lambda _, y: cho_solve(lower, y), symmetric=True
        )
    lu = lu_factor(lax.stop_gradient(a))
    return lax.custom_linear_solve(
        lambda x: a @ x,
        b,
        lambda _, y: lu_solve(lu, y),
        lambda _, y: lu_solve(lu, y, trans=True),
    )


def inverse(a: Float[Array, "*batch n n"]) -> Float[Array, "*batch n n"]:
    """The inverse of a square matrix."""
    return solve(a, _eye_like(a))


def eigh(
    a: Float[Array, "*batch n n"],
) -> tuple[Float[Array, "*batch n"], Float[Array, "*batch n n"]]:
    """Eigenvalues, ascending, and orthonormal eigenvectors as columns, of a symmetric matrix.

    Derivatives of eigenvectors assume that equal eigenvalues stay equal.
    """
    values, vectors = _eigh.bind(_symmetric(a))
    return values, vectors


def eigvalsh(a: Float[Array, "*batch n n"]) -> Float[Array, "*batch n"]:
    """Eigenvalues, ascending, of a symmetric matrix."""
    return eigh(a)[0]


def svd(
    a: Float[Array, "*batch m n"],
) -> tuple[Float[Array, "*batch m k"], Float[Array, "*batch k"], Float[Array, "*batch k n"]]:
    """U, s and Vᵀ of A = U diag(s) Vᵀ, k = min(m, n), s descending.

    Derivatives of vectors assume that equal singular values stay equal.
    """
    u, s, vt = _svd.bind(a)
    return u, s, vt


def singular_values(a: Float[Array, "*batch m n"]) -> Float[Array, "*batch k"]:
    """Singular values, descending."""
    return svd(a)[1]


def independent(
    s: Float[Array | np.ndarray, "*batch k"], tolerance: float | Float[Array, ""] = RANK_TOLERANCE
) -> Bool[Array, "*batch k"]:
    """Which singular values count for the rank: those above `tolerance` times the largest."""
    return s > tolerance * jnp.max(s, axis=-1, keepdims=True, initial=0.0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def pinv(a: Float[Array, "*batch m n"], rtol: float = RANK_TOLERANCE) -> Float[Array, "*batch n m"]:
    """Pseudoinverse; singular values up to `rtol` times the largest count as zero.

    Its derivative is that at constant rank (Golub 1973, eq. 4.12).
    """
    u, s, vt = svd(a)
    keep = independent(s, rtol)
    s = jnp.where(keep, 1 / jnp.where(keep, s, 1.0), 0.0)
    return vt.mT @ (s[..., None] * u.mT)


@pinv.defjvp
def _pinv_jvp(rtol: float, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    (a,), (da,) = primals, tangents
    p = pinv(a, rtol)
    change = -p @ da @ p
    change += p @ p.mT @ (da.mT - (da.mT @ a) @ p)
    change += (da.mT - p @ (a @ da.mT)) @ p.mT @ p
    return p, change


def condition(a: Float[Array, "*batch n n"]) -> Float[Array, "*batch"]:
    """Largest over smallest singular value; one for a matrix without rows."""
    if not a.shape[-1]:
        return jnp.ones(a.shape[:-2], a.dtype)
    s = singular_values(a)
    return s[..., 0] / s[..., -1]


def _eye_like(a: Array) -> Array:
    return jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)


def _unit_lower(lu: Array) -> Array:
    return jnp.tril(lu, -1) + _eye_like(lu)


def _symmetric(a: Array) -> Array:
    return (a + a.mT) / 2


def _matched(a: Array, b: Array) -> tuple[Array, Array, Callable[[Array], Array]]:
    """Matrix and right-hand sides with equal leading axes, and a function to restore the shape."""
    if b.ndim == a.ndim - 1:
        a, b, restore = _matched(a, b[..., None])
        return a, b, lambda x: restore(x)[..., 0]
    if a.ndim == 2 and b.ndim > 2:
        # Many right-hand sides of one matrix are columns.
        columns = jnp.moveaxis(b, -2, 0)
        flat, shape = columns.reshape(len(a), b.size // max(1, len(a))), columns.shape
        return a, flat, lambda x: jnp.moveaxis(x.reshape(shape), 0, -2)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = jnp.broadcast_to(a, batch + a.shape[-2:])
    return a, jnp.broadcast_to(b, batch + b.shape[-2:]), lambda x: x


def _merged(x: Array) -> Array:
    """The last two axes as one."""
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def _rows(b: Array, index: Array) -> Array:
    return jnp.take_along_axis(b, index[..., None], axis=-2)


# The kernels by LAPACK, or a device's own library, for matrices with or without leading axes.


def _jax_cholesky(a: Array) -> tuple[Array]:
    return (lax.linalg.cholesky(a, symmetrize_input=False),)


def _jax_solve_triangular(
    a: Array, b: Array, *, lower: bool, trans: bool, unit: bool
) -> tuple[Array]:
    return (
        lax.linalg.triangular_solve(
            a, b, left_side=True, lower=lower, transpose_a=trans, unit_diagonal=unit
        ),
    )


def _jax_solve_positive(a: Array, b: Array) -> tuple[Array]:
    (lower,) = _jax_cholesky(a)
    (y,) = _jax_solve_triangular(lower, b, lower=True, trans=False, unit=False)
    return _jax_solve_triangular(lower, y, lower=True, trans=True, unit=False)


def _jax_lu(a: Array) -> tuple[Array, Array]:
    lu, _, perm = lax.linalg.lu(a)
    return lu, perm


def _jax_lu_solve(lu: Array, b: Array, *, trans: bool) -> tuple[Array]:
    for lower in (False, True) if trans else (True, False):
        (b,) = _jax_solve_triangular(lu, b, lower=lower, trans=trans, unit=lower)
    return (b,)


def _jax_solve_general(a: Array, b: Array) -> tuple[Array]:
    lu, perm = _jax_lu(a)
    return _jax_lu_solve(lu, _rows(b, perm), trans=False)


def _jax_eigh(a: Array) -> tuple[Array, Array]:
    vectors, values = lax.linalg.eigh(a, symmetrize_input=False)
    return values, vectors


def _jax_svd(a: Array) -> tuple[Array, Array, Array]:
    return tuple(lax.linalg.svd(a, full_matrices=False))


# The kernels with the batch in the last axis, where the rows of a matrix are arrays.


def _factor_rows(a: Array) -> list[Array]:
    """Rows of Lᵀ from their diagonals on, NaN from the first bad pivot on."""
    one = opaque_one(a[:1, 0])
    rows: list[Array] = []
    for j in range(len(a)):
        row = a[j, j:]
        for i in range(j):
            row = row - rows[i][j - i :] * rows[i][j - i][None]
        rows.append(kept(row / jnp.sqrt(row[:1]), one))
    return rows


def _lanes_cholesky(a: Array) -> tuple[Array]:
    rows = _factor_rows(a)
    # As with LAPACK, the whole factor is NaN where a part of it fails.
    zero = jnp.where(rows[-1] > 0, 0.0, jnp.nan).astype(a.dtype)
    full = [jnp.concatenate([jnp.zeros_like(a[:j, 0]), row + zero]) for j, row in enumerate(rows)]
    return (jnp.stack(full, axis=1),)


def _substituted(
    entry: Callable[[int, int], Array], b: Any, order: Any, *, unit: bool = False
) -> dict[int, Array]:
    """Rows of x of A x = b in the order of elimination; `entry(i, j)` is that of A."""
    x: dict[int, Array] = {}
    for i in order:
        rest = b[i]
        for j in x:
            rest = rest - x[j] * entry(i, j)[None]
        x[i] = kept(rest, opaque_one(b[0])) if unit else rest / entry(i, i)[None]
    return x


def _triangle(a: Array, b: Any, *, lower: bool, trans: bool, unit: bool) -> dict[int, Array]:
    order = range(len(a)) if lower != trans else reversed(range(len(a)))
    return _substituted(lambda i, j: a[j, i] if trans else a[i, j], b, order, unit=unit)


def _stacked(x: dict[int, Array]) -> tuple[Array]:
    return (jnp.stack([x[i] for i in range(len(x))]),)


def _lanes_solve_triangular(a: Array, b: Array, **params: bool) -> tuple[Array]:
    return _stacked(_triangle(a, b, **params))


def _lanes_lu_solve(lu: Array, b: Array, *, trans: bool) -> tuple[Array]:
    for lower in (False, True) if trans else (True, False):
        b = _triangle(lu, b, lower=lower, trans=trans, unit=lower)
    return _stacked(b)


def _lanes_solve_positive(a: Array, b: Array) -> tuple[Array]:
    rows = _factor_rows(a)
    y = _substituted(lambda i, j: rows[j][i - j], b, range(len(a)))
    return _stacked(_substituted(lambda i, j: rows[i][j - i], y, reversed(range(len(a)))))


def _lanes_lu(a: Array) -> tuple[Array, Array]:
    n, _, lanes = a.shape
    row, column = lax.broadcasted_iota(jnp.int32, (2, n, 1), 1)

    def eliminate(j: Array, state: tuple) -> tuple:
        lu, perm = state
        below = lax.dynamic_index_in_dim(lu, j, 1, keepdims=False)
        size = jnp.where(row < j, -1.0, jnp.abs(below))
        index = lax.argmax(size, axis=0, index_dtype=jnp.int32)[None]
        is_pivot = row == index
        pivot, rank = _lane_entry(lu, index[None])[0], _lane_entry(perm, index)
        factor = jnp.where(is_pivot, lax.dynamic_index_in_dim(below, j, 0), below)
        diagonal = lax.dynamic_index_in_dim(pivot, j, 0)
        factor = factor / jnp.where(diagonal == 0, 1.0, diagonal)
        rest = jnp.where(is_pivot[:, None], lax.dynamic_index_in_dim(lu, j, 0), lu)
        rest = rest - factor[:, None] * jnp.where(column > j, pivot, 0.0)[None]
        rest = jnp.where((column == j)[None], factor[:, None], rest)
        lu = jnp.where((row == j)[:, None], pivot[None], jnp.where((row < j)[:, None], lu, rest))
        perm = jnp.where(is_pivot, lax.dynamic_index_in_dim(perm, j, 0), perm)
        return lu, jnp.where(row == j, rank, perm)

    return lax.fori_loop(0, n, eliminate, (a, jnp.broadcast_to(row, (n, lanes))))


def _lane_entry(x: Array, index: Array) -> Array:
    """For every lane the entry `index` `(1, ..., lanes)` along the first axis."""
    index = jnp.broadcast_to(index, (1, *x.shape[1:]))
    return jnp.take_along_axis(x, index, axis=0, mode="promise_in_bounds")


def _lanes_solve_general(a: Array, b: Array) -> tuple[Array]:
    lu, perm = _lanes_lu(a)
    return _lanes_lu_solve(lu, jnp.take_along_axis(b, perm[:, None], axis=0), trans=False)


def _lanes_eigh(a: Array) -> tuple[Array, Array]:
    """Jacobi's rotations (Golub and Van Loan, Matrix Computations, section 8.5)."""
    n = len(a)
    pairs = [(p, q) for p in range(n) for q in range(p + 1, n)]

    def sweep(_: Array, state: tuple) -> tuple:
        # Both as rows, so that one rotation applies to both.
        m, v = ([[x[i, j] for j in range(n)] for i in range(n)] for x in state)
        for p, q in pairs:
            off = m[p][q]
            is_off = off != 0
            ratio = (m[q][q] - m[p][p]) / (2 * jnp.where(is_off, off, 1.0))
            t = jnp.where(ratio < 0, -1.0, 1.0) / (jnp.abs(ratio) + jnp.hypot(ratio, 1.0))
            t = jnp.where(is_off, t, 0.0)
            c = 1 / jnp.sqrt(1 + t * t)
            s = t * c
            for x in (m, v):
                x[p], x[q] = (
                    [c * y - s * z for y, z in zip(x[p], x[q], strict=True)],
                    [s * y + c * z for y, z in zip(x[p], x[q], strict=True)],
                )
            for y in m:
                y[p], y[q] = c * y[p] - s * y[q], s * y[p] + c * y[q]
            m[p][q] = m[q][p] = jnp.zeros_like(off)
        return tuple(jnp.stack([jnp.stack(y) for y in x]) for x in (m, v))

    eye = jnp.broadcast_to(jnp.eye(n, dtype=a.dtype)[:, :, None], a.shape)
    m, v = lax.fori_loop(0, _SWEEPS, sweep, (a, eye))
    values, vectors = [m[i, i] for i in range(n)], list(v)
    for p, q in pairs:
        is_less = values[q] < values[p]
        for x in (values, vectors):
            x[p], x[q] = jnp.where(is_less, x[q], x[p]), jnp.where(is_less, x[p], x[q])
    return jnp.stack(values), jnp.stack(vectors, axis=1)


# One more than the worst of ten million matrices needed: random, graded, with equal eigenvalues.
_SWEEPS = 5


def _few_at_a_time(name: str, call: Callable, args: Sequence[Array]) -> Sequence[Array]:
    a, b = args[0], args[-1]
    operations = _OPERATIONS[name](max(a.shape[-2:]), b.shape[-1])
    size, count = max(1, int(_ALONE / operations)), len(a)
    if count <= size:
        return call(*args)
    whole = count - count % size
    parts = tuple(x[:whole].reshape(-1, size, *x.shape[1:]) for x in args)
    out = [x.reshape(whole, *x.shape[2:]) for x in lax.map(lambda x: call(*x), parts)]
    if whole == count:
        return out
    rest = call(*(x[whole:] for x in args))
    return [jnp.concatenate(x) for x in zip(out, rest, strict=True)]


def _on_cpu(name: str, jax_version: Callable, lanes: Callable | None) -> Callable:
    """Implementation of a primitive on a CPU, for arrays of the same leading axes."""

    def run(*args: Array, **params: Any) -> list[Array]:
        batch = args[0].shape[:-2]
        count = int(np.prod(batch))
        flat = [x.reshape(count, *x.shape[len(batch) :]) for x in args]
        if not all(x.size for x in args):
            out = jax_version(*flat, **params)
        elif count >= _FEW and args[0].shape[-1] <= SMALL[name]:
            found = lanes(*(jnp.moveaxis(x, 0, -1) for x in flat), **params)
            out = [jnp.moveaxis(x, -1, 0) for x in found]
        else:
            out = _few_at_a_time(name, functools.partial(jax_version, **params), flat)
        return [x.reshape(*batch, *x.shape[1:]) for x in out]

    return run


def _primitive(name: str, jax_version: Callable, lanes: Callable | None) -> Primitive:
    primitive = Primitive(f"jaxgrip_{name}")
    primitive.multiple_results = True
    primitive.def_impl(jax.jit(primitive.bind, static_argnames=("lower", "trans", "unit")))

    @primitive.def_abstract_eval
    def _(*args: Any, **params: Any) -> list:
        args = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in args]
        found = jax.eval_shape(functools.partial(jax_version, **params), *args)
        return [jax.core.ShapedArray(x.shape, x.dtype) for x in found]

    def batched(args: tuple, axes: tuple, **params: Any) -> tuple:
        if axes[0] is None:
            # Many right-hand sides of one matrix are columns.
            a, b = args
            columns = jnp.moveaxis(b, axes[1], -1)
            out = primitive.bind(a, _merged(columns), **params)
            return [x.reshape(columns.shape) for x in out], [b.ndim - 1 for _ in out]
        size = next(x.shape[k] for x, k in zip(args, axes, strict=True) if k is not None)
        args = [
            jnp.broadcast_to(x, (size, *x.shape)) if k is None else jnp.moveaxis(x, k, 0)
            for x, k in zip(args, axes, strict=True)
        ]
        out = primitive.bind(*args, **params)
        return out, [0] * len(out)

    batching.primitive_batchers[primitive] = batched
    mlir.register_lowering(primitive, mlir.lower_fun(jax_version, multiple_results=True))
    on_cpu = mlir.lower_fun(_on_cpu(name, jax_version, lanes), multiple_results=True)
    mlir.register_lowering(primitive, on_cpu, platform="cpu")
    return primitive


def _solution(
    name: str,
    jax_version: Callable,
    lanes: Callable,
    change: Callable[..., Array],
    transposed: Callable[..., tuple[Array, dict]],
) -> Primitive:
    """x of A x = b: `change(da, a, x)` is dA x, `transposed(a)` gives Aᵀ."""
    primitive = _primitive(name, jax_version, lanes)

    def derivative(primals: tuple, tangents: tuple, **params: Any) -> tuple:
        (a, _), (da, db) = primals, tangents
        (x,) = primitive.bind(*primals, **params)
        right = [] if type(db) is ad.Zero else [db]
        if type(da) is not ad.Zero:
            right.append(-change(da, a, x, **params))
        if not right:
            return [x], [ad.Zero(jax.typeof(x))]
        return [x], primitive.bind(a, functools.reduce(jnp.add, right), **params)

    def transpose(cotangents: list, a: Any, b: Any, **params: Any) -> list:
        (ct,) = cotangents
        if type(ct) is ad.Zero:
            return [None, ad.Zero(b.aval)]
        a, params = transposed(a, **params)
        return [None, *primitive.bind(a, ct, **params)]

    ad.primitive_jvps[primitive] = derivative
    ad.primitive_transposes[primitive] = transpose
    return primitive


def _triangular_change(
    da: Array, _: Array, x: Array, *, lower: bool, trans: bool, unit: bool
) -> Array:
    da = jnp.tril(da, -int(unit)) if lower else jnp.triu(da, int(unit))
    return (da.mT if trans else da) @ x


def _lu_change(dlu: Array, lu: Array, x: Array, *, trans: bool) -> Array:
    lower, upper = _unit_lower(lu), jnp.triu(lu)
    d_lower, d_upper = jnp.tril(dlu, -1), jnp.triu(dlu)
    if trans:
        return upper.mT @ (d_lower.mT @ x) + d_upper.mT @ (lower.mT @ x)
    return d_lower @ (upper @ x) + lower @ (d_upper @ x)


def _cholesky_jvp(primals: tuple, tangents: tuple) -> tuple:
    (lower,) = _cholesky.bind(*primals)
    half = solve_triangular(lower, ad.instantiate_zeros(tangents[0]), lower=True)
    change = solve_triangular(lower, half.mT, lower=True)
    return [lower], [lower @ ((jnp.tril(change) + jnp.tril(change, -1)) / 2)]


def _lu_jvp(primals: tuple, tangents: tuple) -> tuple:
    lu, perm = _lu.bind(*primals)
    part = _rows(ad.instantiate_zeros(tangents[0]), perm)
    part = solve_triangular(lu, part, lower=True, unit=True)
    part = solve_triangular(lu, part.mT, lower=False, trans=True).mT
    change = _unit_lower(lu) @ jnp.tril(part, -1) + jnp.triu(part) @ jnp.triu(lu)
    return [lu, perm], [change, ad.Zero(jax.typeof(perm).to_tangent_aval())]


def _reciprocal(x: Array) -> Array:
    """1 / x, zero where x is."""
    return jnp.where(x == 0, 0.0, 1 / jnp.where(x == 0, 1.0, x))


def _eigh_jvp(primals: tuple, tangents: tuple) -> tuple:
    values, vectors = _eigh.bind(*primals)
    inner = vectors.mT @ _symmetric(ad.instantiate_zeros(tangents[0])) @ vectors
    rotation = _reciprocal(values[..., None, :] - values[..., :, None]) * inner
    return [values, vectors], [jnp.diagonal(inner, axis1=-2, axis2=-1), vectors @ rotation]


def _svd_jvp(primals: tuple, tangents: tuple) -> tuple:
    u, s, vt = _svd.bind(*primals)
    da, v = ad.instantiate_zeros(tangents[0]), vt.mT
    inner = u.mT @ da @ v
    # Every pair of singular values has two equations for the rotations of its vectors.
    row, column = s[..., None, :], s[..., :, None]
    apart = _reciprocal(row * row - column * column)
    du = u @ (apart * (inner * row + column * inner.mT))
    dv = v @ (apart * (column * inner + inner.mT * row))
    m, n = da.shape[-2:]
    if m > n:
        du += _outside(u, da @ v * _reciprocal(row))
    if n > m:
        dv += _outside(v, da.mT @ u * _reciprocal(row))
    return [u, s, vt], [du, jnp.diagonal(inner, axis1=-2, axis2=-1), dv.mT]


def _outside(basis: Array, x: Array) -> Array:
    """The part of columns outside the span of an orthonormal basis."""
    return x - basis @ (basis.mT @ x)


_cholesky = _primitive("cholesky", _jax_cholesky, _lanes_cholesky)
_lu = _primitive("lu", _jax_lu, _lanes_lu)
_eigh = _primitive("eigh", _jax_eigh, _lanes_eigh)
_svd = _primitive("svd", _jax_svd, None)
ad.primitive_jvps |= {_cholesky: _cholesky_jvp, _lu: _lu_jvp, _eigh: _eigh_jvp, _svd: _svd_jvp}
_solve_triangular = _solution(
    "solve_triangular",
    _jax_solve_triangular,
    _lanes_solve_triangular,
    _triangular_change,
    lambda a, **params: (a, params | {"trans": not params["trans"]}),
)
_solve_positive = _solution(
    "solve_positive",
    _jax_solve_positive,
    _lanes_solve_positive,
    lambda da, _, x: da @ x,
    lambda a: (a, {}),
)
_solve_general = _solution(
    "solve_general",
    _jax_solve_general,
    _lanes_solve_general,
    lambda da, _, x: da @ x,
    lambda a: (a.mT, {}),
)
_lu_solve = _solution(
    "lu_solve",
    _jax_lu_solve,
    _lanes_lu_solve,
    _lu_change,
    lambda a, trans: (a, {"trans": not trans}),
)
