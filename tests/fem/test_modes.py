import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from jaxgrip import fem

SIDE = np.sqrt(7.5e-5)
ALUMINIUM = (7.22e10, 0.34, 2700.0)


def link(length=0.06, cells=(13, 6, 6), width=SIDE, material=ALUMINIUM, height=SIDE):
    mesh = fem.box_mesh(length, width, height, *cells)
    return fem.Body(mesh, fem.Isotropic(*material), clamp="x0")


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0.06, (13346.541, 13346.541, 77106.76, 77106.76, 77243.02, 137024.1)),
        (0.07, (10005.462, 10005.462, 59068.56, 59068.56, 66190.86, 117407.2)),
    ],
)
def test_frequencies_of_the_links(length, expected):
    np.testing.assert_allclose(fem.frequencies(link(length), 6), expected, rtol=4e-7)


@pytest.mark.parametrize(
    ("length", "mass", "expected"), [(0.06, 0.16, 3677.87), (0.07, 0.2, 2663.69)]
)
def test_frequency_with_the_mass_of_the_table(length, mass, expected):
    material = (*ALUMINIUM[:2], mass / (length * SIDE**2))
    np.testing.assert_allclose(
        fem.frequencies(link(length, material=material), 1), expected, rtol=2e-6
    )


@pytest.mark.long
@pytest.mark.parametrize(("cells", "expected"), [((26, 6, 6), 12788.4), ((39, 6, 6), 12674.1)])
def test_finer_meshes_lock_less(cells, expected):
    np.testing.assert_allclose(fem.frequencies(link(cells=cells), 2), expected, rtol=5e-6)


@pytest.mark.long
def test_forty_modes_against_dense_eigenvalues():
    body = link(cells=(8, 3, 3))
    found = fem.modes(body, 40)
    k = fem.stiffness(body).to_scipy(body.free).toarray()
    m = fem.mass(body).to_scipy(body.free).toarray()
    exact = np.sqrt(scipy.linalg.eigh(k, m, eigvals_only=True, subset_by_index=[0, 39]))
    np.testing.assert_allclose(found.frequency, exact, rtol=1e-9)
    flat = np.asarray(found.shape)[:, body.free]
    np.testing.assert_allclose(flat @ m @ flat.T, np.eye(40), atol=1e-8)


def test_small_bodies_have_all_their_modes():
    body = link(cells=(1, 1, 1))
    assert fem.frequencies(body, 12).shape == (12,)
    with pytest.raises(ValueError, match="must be from 1 to 12"):
        fem.modes(body, 13)


def test_a_body_that_can_move_has_its_motions_named():
    mesh = fem.box_mesh(1.0, 0.1, 0.1, 4, 1, 1)
    body = fem.Body(mesh, fem.Isotropic(*ALUMINIUM), supports=[fem.Support("x0", ["x"])])
    with pytest.raises(ValueError, match="move along y, move along z, rotate about x"):
        fem.modes(body, 2)


@pytest.mark.long
def test_derivatives_of_frequencies():
    """Of simple ones; for a square section of the sum of a pair."""

    def some(p, section):
        length, e, nu, rho = p
        w = fem.frequencies(link(length, (6, 2, 2), SIDE, (e, nu, rho), section), 5)
        return w[0] + w[1] + 0.3 * w[4]

    p = jnp.array([0.06, 7.22e10, 0.34, 2700.0])
    for section in (SIDE, 1.3 * SIDE):
        gradient = jax.grad(some)(p, section)
        for i in range(4):
            h = 1e-4 * p[i]
            step = jnp.zeros(4).at[i].set(h)
            central = (
                8 * (some(p + step, section) - some(p - step, section))
                - (some(p + 2 * step, section) - some(p - 2 * step, section))
            ) / (12 * h)
            np.testing.assert_allclose(gradient[i], central, rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("geometric", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_derivatives_of_reduced_bodies(geometric):
    """Of a static answer within the span of few modes, which depends on all of the span."""

    def answer(p):
        length, e, nu, rho = p
        body = link(length, (6, 2, 2), SIDE, (e, nu, rho), 1.3 * SIDE)
        small = fem.reduce(body, 5, geometric=geometric)
        frame = fem.FrameMotion(
            jnp.array([1.0, 2.0, 9.0]), jnp.array([3.0, 1.0, 40.0]), jnp.ones(3)
        )
        stiff = small.structure.stiffness
        if geometric:
            stiff = stiff + jnp.tensordot(frame.amounts, small.structure.geometric, 1)
        q = jnp.linalg.solve(stiff, small.structure.inertia.frame_load(frame))
        return 1e9 * jnp.sum(jnp.tensordot(q, small.shapes, 1)[-1] ** 2) ** 0.5

    p = jnp.array([0.06, 7.22e10, 0.34, 2700.0])
    gradient = jax.grad(answer)(p)
    for i in range(4):
        h = 1e-3 * p[i]
        step = jnp.zeros(4).at[i].set(h)
        central = (
            8 * (answer(p + step) - answer(p - step))
            - (answer(p + 2 * step) - answer(p - 2 * step))
        ) / (12 * h)
        np.testing.assert_allclose(gradient[i], central, rtol=1e-6)


@pytest.mark.long
def test_craig_and_bampton_are_exact_at_rest_and_bound_frequencies_from_above():
    body = link(cells=(4, 1, 1))
    basis = fem.craig_bampton(body, "x1", 6)
    assert basis.shape[0] == 12 + 6
    small = fem.reduce(body, basis)
    load = fem.tip_wrench(body, "x1", (1.0, 2.0, 3.0), (0.1, 0.2, 0.3))
    q = jnp.linalg.solve(small.structure.stiffness, jnp.einsum("ind,nd->i", basis, load))
    exact = fem.solve_static(body, load)
    np.testing.assert_allclose(jnp.tensordot(q, basis, 1), exact, atol=1e-11 * np.abs(exact).max())
    true = np.asarray(fem.frequencies(body, 4))
    few = _frequencies(small)[:4]
    assert np.all(few >= true * (1 - 1e-9))
    np.testing.assert_allclose(few, true, rtol=1e-2)
    everything = fem.reduce(body, fem.craig_bampton(body, "x1", 36))
    np.testing.assert_allclose(_frequencies(everything)[:4], true, rtol=1e-8)


def _frequencies(small):
    mass = small.structure.inertia.matrix(jnp.eye(3))
    return np.sqrt(scipy.linalg.eigh(small.structure.stiffness, mass, eigvals_only=True))


def test_other_numbers_do_not_compile_again():
    from jaxgrip.fem._modes import _modes

    fem.modes(link(0.05, (2, 1, 1)), 3)
    before = _modes._cached._cache_size()
    fem.modes(link(0.08, (2, 1, 1), material=(2e11, 0.3, 7800.0)), 3)
    assert _modes._cached._cache_size() == before


def test_small_matrices_against_scipy():
    factor = np.random.default_rng(4).normal(size=(2, 6, 6))
    k, m = (f @ f.T + np.eye(6) for f in factor)
    squared, vectors = map(np.asarray, fem.rayleigh_ritz(jnp.asarray(k), jnp.asarray(m)))
    np.testing.assert_allclose(squared, scipy.linalg.eigh(k, m)[0], rtol=1e-12)
    np.testing.assert_allclose(vectors.T @ m @ vectors, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(k @ vectors, m @ vectors * squared, atol=1e-10)
