"""Dense systems in batches against NumPy's LAPACK, and against waiting for each other."""

import itertools
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxgrip.solve import dense

# Either side of every bound in `SMALL`, and sizes that go through LAPACK a few at a time.
CASES = [(n, (2, 20)) for n in (1, 3, 6, 7, 40)] + [(9, (3,))]
CASES += [
    pytest.param(n, shape, marks=pytest.mark.soak)
    for n, shape in ((2, (2, 20)), (9, (2, 20)), (3, ()))
]
EPS = np.finfo(float).eps


def matrices(shape, n, seed=0, m=None):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(*shape, n, m or n)))


def positive(shape, n):
    a = matrices(shape, n, 1)
    return a @ jnp.swapaxes(a, -1, -2) + np.broadcast_to(np.eye(n), a.shape)


def size(a):
    return np.linalg.norm(np.asarray(a), axis=(-2, -1), keepdims=True)


def assert_solves(a, x, b, growth=8.0):
    """The residual is that of a backward-stable method."""
    missed = np.abs(np.asarray(a) @ np.asarray(x) - np.asarray(b))
    n = a.shape[-1]
    assert np.all(missed <= growth * n * EPS * size(a) * size(x))


@pytest.mark.long
@pytest.mark.parametrize(("n", "shape"), CASES)
def test_factors_and_solutions_agree_with_lapack(n, shape):
    a, s, b = matrices(shape, n), positive(shape, n), matrices(shape, n, 2, 3)
    lower = dense.cholesky(s)
    np.testing.assert_allclose(lower, np.linalg.cholesky(s), rtol=1e-11, atol=1e-13)
    assert_solves(s, dense.cho_solve(lower, b), b)
    assert_solves(s, dense.solve(s, b, positive=True), b)
    assert_solves(a, dense.solve(a, b), b, 50.0)
    assert_solves(a, dense.inverse(a), np.broadcast_to(np.eye(n), a.shape), 50.0)
    factors = dense.lu_factor(a)
    assert_solves(jnp.swapaxes(a, -1, -2), dense.lu_solve(factors, b, trans=True), b, 50.0)
    unit_lower = np.tril(factors.lu, -1) + np.eye(n)
    assert np.abs(unit_lower).max() <= 1.0
    exchanged = np.take_along_axis(np.asarray(a), np.asarray(factors.perm)[..., None], -2)
    np.testing.assert_allclose(unit_lower @ np.triu(factors.lu), exchanged, atol=50 * n * EPS)
    np.testing.assert_array_equal(dense.determinant_sign(factors), np.sign(np.linalg.det(a)))
    for kind in ({"lower": True}, {"lower": False}):
        for trans in (False, True):
            for unit in (False, True):
                x = dense.solve_triangular(s, b, trans=trans, unit=unit, **kind)
                part = np.tril(s, -1) if kind["lower"] else np.triu(s, 1)
                triangle = part + np.eye(n) * (1 if unit else np.asarray(s))
                assert_solves(np.swapaxes(triangle, -1, -2) if trans else triangle, x, b)


@pytest.mark.long
@pytest.mark.parametrize(
    ("n", "shape"), [(1, (20,)), (2, (20,)), (3, (2, 20)), (5, (20,)), (3, ())]
)
def test_eigenvalues_and_singular_values_agree_with_lapack(n, shape):
    s, a = positive(shape, n), matrices(shape, n, m=n + 2)
    values, vectors = map(np.asarray, dense.eigh(s))
    np.testing.assert_allclose(values, np.linalg.eigvalsh(s), atol=1e-13)
    np.testing.assert_allclose(np.asarray(s) @ vectors, vectors * values[..., None, :], atol=1e-13)
    eye = np.broadcast_to(np.eye(n), s.shape)
    np.testing.assert_allclose(np.swapaxes(vectors, -1, -2) @ vectors, eye, atol=1e-14)
    for x in (a, jnp.swapaxes(a, -1, -2)):
        u, found, vt = map(np.asarray, dense.svd(x))
        np.testing.assert_allclose(found, np.linalg.svd(x, compute_uv=False), atol=1e-13)
        np.testing.assert_allclose(u @ (found[..., None] * vt), x, atol=1e-13)
        np.testing.assert_allclose(dense.pinv(x, 1e-12), np.linalg.pinv(x), atol=1e-11)
    np.testing.assert_allclose(dense.condition(s), np.linalg.cond(s), rtol=1e-9)


def test_close_and_graded_eigenvalues():
    # Jacobi's method finds small eigenvalues of a graded definite matrix to their own digits.
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(20, 3, 3)))[0]
    for wanted in ([1.0, 1.0, 1.0], [-1.0, 1.0, 1.0 + 1e-14], [0.0, 0.0, 5.0], [1e-9, 1.0, 1e9]):
        a = turn @ (np.array(wanted)[:, None] * np.swapaxes(turn, 1, 2))
        values, vectors = map(np.asarray, dense.eigh(jnp.asarray(a)))
        largest = np.abs(wanted).max()
        np.testing.assert_allclose(values, np.broadcast_to(wanted, (20, 3)), atol=5e-15 * largest)
        np.testing.assert_allclose(a @ vectors, vectors * values[:, None], atol=5e-15 * largest)


@pytest.mark.long
@pytest.mark.parametrize("n", [3, 9])
def test_what_has_no_solution_is_nan_and_stays_alone(n):
    bad = jnp.stack([jnp.eye(n)] * 20).at[3].set(jnp.nan).at[5].set(-jnp.eye(n))
    bad = bad.at[7, n - 1, n - 1].set(-1e-3)
    is_bad = np.isin(np.arange(20), [3, 5, 7])
    b = jnp.ones((20, n))
    for found in (
        dense.cholesky(bad)[:, np.tril_indices(n)[0], np.tril_indices(n)[1]],
        dense.solve(bad, b, positive=True),
        dense.cho_solve(dense.cholesky(bad), b),
    ):
        flat = np.isnan(np.asarray(found).reshape(20, -1))
        np.testing.assert_array_equal(flat.all(axis=1), is_bad)
        np.testing.assert_array_equal(flat.any(axis=1), is_bad)
    singular = jnp.stack([jnp.eye(n)] * 20).at[4].set(jnp.ones((n, n))).at[6].set(jnp.nan)
    found = np.asarray(
        dense.solve(singular, b + np.broadcast_to(np.arange(n, dtype=float), b.shape))
    )
    finite = np.isfinite(found).all(axis=1)
    np.testing.assert_array_equal(np.flatnonzero(~finite), [4, 6])
    np.testing.assert_array_equal(found[finite], np.broadcast_to(1.0 + np.arange(n), (18, n)))
    assert dense.determinant_sign(dense.lu_factor(singular))[4] == 0


def test_sign_of_a_permutation():
    orders = jnp.asarray(list(itertools.permutations(range(3))))
    a = jnp.eye(3)[orders]
    found = dense.determinant_sign(dense.lu_factor(a))
    np.testing.assert_array_equal(found, np.linalg.det(a))


@pytest.mark.parametrize("n", [2, 5, 9])
def test_rows_are_exchanged(n):
    # Without the largest pivot of a column these lose all digits.
    tiny = np.eye(n)[::-1] + 1e-17 * np.eye(n)
    hilbert = 1.0 / (np.arange(n)[:, None] + np.arange(n) + 1)
    for one in (tiny, -tiny, hilbert):
        a = jnp.asarray(np.broadcast_to(one, (20, n, n)))
        b = a @ jnp.ones((20, n, 1))
        assert_solves(a, dense.solve(a, b), b)


def test_empty_batches_and_matrices():
    assert dense.solve(jnp.eye(3), jnp.zeros((3, 0))).shape == (3, 0)
    for shape in ((0, 3, 3), (20, 0, 0), (0, 0, 0), (0, 0)):
        a = jnp.zeros(shape)
        assert dense.solve(a, jnp.zeros(shape[:-1])).shape == shape[:-1]
        assert dense.solve(a, a, positive=True).shape == shape
        assert dense.cholesky(a).shape == shape
        batch = jax.vmap(lambda b, a=a: dense.solve(a, b))(jnp.zeros((4, *shape[:-1])))
        assert batch.shape == (4, *shape[:-1])
        assert dense.determinant_sign(dense.lu_factor(a)).shape == shape[:-2]


def test_single_precision():
    a = matrices((20,), 5).astype(jnp.float32)
    b = matrices((20,), 5, 1, 2).astype(jnp.float32)
    spd = a @ jnp.swapaxes(a, 1, 2) + np.broadcast_to(np.eye(5, dtype=np.float32), a.shape)
    for m, x in ((a, dense.solve(a, b)), (spd, dense.solve(spd, b, positive=True))):
        assert x.dtype == jnp.float32
        assert_solves(m, x, b, 50.0 * np.finfo(np.float32).eps / EPS)
    assert dense.eigh(spd[:, :3, :3])[1].dtype == jnp.float32


def _functions(n):
    """Smooth functions of a matrix and a right side, one of each kind."""
    eye = jnp.eye(n)

    def definite(a):
        return a @ jnp.swapaxes(a, -1, -2) + eye

    def first_projector(a):
        vector = dense.eigh(definite(a))[1][..., :1]
        return vector @ jnp.swapaxes(vector, -1, -2)

    def leading(a, b):
        u, s, vt = dense.svd(jnp.concatenate([a, b], axis=-1))
        return u[..., :1] * s[..., :1][..., None] @ vt[..., :1, :]

    return {
        "cholesky": lambda a, b: dense.cholesky(definite(a)) + 0 * jnp.sum(b),
        "positive": lambda a, b: dense.solve(definite(a), b, positive=True),
        "solve": lambda a, b: dense.solve(a + 3 * eye, b),
        "triangular": lambda a, b: dense.solve_triangular(a + 3 * eye, b, lower=True, trans=True),
        "lu": lambda a, b: dense.lu_factor(a + 3 * eye).lu + 0 * jnp.sum(b),
        "lu_solve": lambda a, b: dense.lu_solve(dense.lu_factor(a + 3 * eye), b, trans=True),
        "eigenvalues": lambda a, b: dense.eigvalsh(definite(a)) + 0 * jnp.sum(b),
        "eigenvectors": lambda a, b: first_projector(a) @ b,
        "svd": leading,
        "pinv": lambda a, b: dense.pinv(jnp.concatenate([a, b], axis=-1), 1e-9),
    }


@pytest.mark.long
@pytest.mark.parametrize("n", [3, pytest.param(9, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", _functions(1))
def test_derivatives(name, n):
    f = jax.vmap(_functions(n)[name])
    a, b = matrices((16,), n, 3), matrices((16,), n, 4, 2)
    check_grads(
        f, (a, b), order=2 if n == 3 else 1, modes=("fwd", "rev"), atol=2e-5, rtol=2e-5, eps=1e-5
    )


def test_derivative_of_a_pseudoinverse_at_constant_rank():
    """Rank two of a matrix (4, 3); against differences of NumPy's."""
    left, right = matrices((2,), 4, 5, 2), matrices((2,), 3, 6, 2)

    def at(t):
        return (left[0] + t * left[1]) @ (right[0] + t * right[1]).T

    h = 1e-5
    found = jax.jvp(lambda t: dense.pinv(at(t)), (0.0,), (1.0,))[1]
    up, down = (np.linalg.pinv(at(t), rcond=1e-9) for t in (h, -h))
    np.testing.assert_allclose(found, (up - down) / (2 * h), atol=1e-8 * np.abs(found).max())


def test_derivatives_where_eigenvalues_are_equal():
    a = jnp.eye(3) + 0.0 * matrices((), 3)
    change = matrices((), 3, 1)
    change = change + change.T
    # A sum over all that coincide has a derivative, that of the trace.
    slope = jax.grad(lambda t: jnp.sum(dense.eigvalsh(a + t * change) ** 2))(0.0)
    assert abs(slope - 2 * jnp.trace(change)) < 1e-14
    vectors = jax.jvp(lambda t: dense.eigh(a + t * change)[1], (0.0,), (1.0,))[1]
    assert np.isfinite(vectors).all()


@pytest.mark.parametrize("is_positive", [False, True])
def test_derivatives_of_large_systems(is_positive):
    """Along lines x(s) = (A + s B)⁻¹ b: x' = −A⁻¹ B x and x'' = 2 (A⁻¹ B)² x."""
    n = 70
    a, b, change = positive((3,), n), matrices((3,), n, 5)[..., 0], matrices((3,), n, 6)
    change = change + change.mT

    def line(s, a, change, b):
        return dense.solve(a + s * change, b, positive=is_positive)

    def derivatives(*numbers):
        slope = jax.jacfwd(line)
        return [f(0.0, *numbers) for f in (line, slope, jax.jacfwd(slope))]

    x, first, second = jax.jit(jax.vmap(derivatives))(a, change, b)
    step = np.linalg.solve(a, change)
    wanted = np.linalg.solve(a, b[..., None])
    np.testing.assert_allclose(x, wanted[..., 0], rtol=1e-10)
    np.testing.assert_allclose(first, -(step @ wanted)[..., 0], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(second, 2 * (step @ step @ wanted)[..., 0], rtol=1e-8, atol=1e-12)
    one = jax.grad(lambda b: jnp.sum(dense.solve(a[0], b, positive=is_positive)))(b[0])
    np.testing.assert_allclose(one, np.linalg.solve(a[0].T, np.ones(n)), rtol=1e-9)


@pytest.mark.parametrize("n", [4, 9])
def test_any_axis_may_be_the_batch(n):
    a, b = matrices((20,), n), matrices((20,), n, 1, 1)[..., 0]
    wanted = np.linalg.solve(a, b[..., None])[..., 0]
    last = jax.vmap(dense.solve, in_axes=(-1, -1), out_axes=-1)
    np.testing.assert_allclose(last(jnp.moveaxis(a, 0, -1), b.T).T, wanted, atol=1e-10)
    nested = jax.vmap(jax.vmap(dense.solve))(a.reshape(4, 5, n, n), b.reshape(4, 5, n))
    np.testing.assert_allclose(nested.reshape(20, n), wanted, atol=1e-10)
    one = jax.vmap(dense.solve, in_axes=(None, 0))(a[0], b)
    np.testing.assert_allclose(one, np.linalg.solve(a[0], np.asarray(b).T).T, atol=1e-10)
    same = jax.vmap(dense.solve, in_axes=(0, None))(a, b[0])
    np.testing.assert_allclose(
        a @ same[..., None], np.broadcast_to(b[:1, :, None], (20, n, 1)), atol=1e-10
    )


def test_one_factorisation_serves_a_batch_of_right_sides():
    a, b = positive((), 9), matrices((50,), 9, 2, 1)
    text = jax.jit(jax.vmap(lambda y: dense.solve(a, y, positive=True))).lower(b).as_text()
    assert text.count("lapack_dpotrf") == 1
    assert "tensor<50x9x9xf64>" not in text


def test_other_devices_get_their_own_library():
    s = jax.ShapeDtypeStruct((20, 5, 5), jnp.float64)
    exported = jax.export.export(
        jax.jit(lambda a: (dense.cholesky(a), dense.solve(a, a), dense.eigh(a), dense.svd(a))),
        platforms=["cuda"],
    )(s)
    assert "cusolver" in exported.mlir_module() or "cuda" in exported.mlir_module()
    assert "lapack" not in exported.mlir_module()


CALLS = """
import numpy as np, jax, jax.numpy as jnp
jax.config.update("jax_enable_x64", True)
from jaxgrip.solve import dense
r = np.random.default_rng(0)
for n in (5, 12):
    a = r.normal(size=(4096, n, n))
    a = jnp.asarray(a @ a.transpose(0, 2, 1) + n * np.eye(n))
    b = jnp.asarray(r.normal(size=(4096, n)))
    f = jax.jit(lambda a, b: [
        (dense.cholesky(x), dense.solve(x, b), dense.inverse(x), dense.eigvalsh(x[:, :3, :3]))
        for x in (a, a + jnp.eye(n), a + 2 * jnp.eye(n))])
    for _ in range(40):
        out = f(a, b), f(a, 2 * b)
    jax.block_until_ready(out)
"""


@pytest.mark.long
def test_calls_at_a_time_do_not_wait_for_each_other():
    # With jax.numpy.linalg in place of dense this never ends on two cores with jaxlib 0.10.
    flags = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    subprocess.run([sys.executable, "-c", CALLS], env=flags, check=True, timeout=300)
