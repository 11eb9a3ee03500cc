import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.spatial.transform import Rotation

import jaxgrip as jg
from jaxgrip import fem

E, NU, RHO = 7.22e10, 0.34, 2700.0
ALUMINIUM = fem.Isotropic(E, NU, RHO)


@pytest.fixture
def distorted():
    """A box whose inner nodes are moved by up to a sixth of a cell, held nowhere."""
    box = fem.box_mesh(0.06, 0.03, 0.03, 4, 3, 3)
    x = np.asarray(box.nodes)
    inner = (np.abs(x - x.mean(axis=0)) < 0.499 * np.ptp(x, axis=0)).all(axis=1)
    move = np.random.default_rng(1).uniform(-1.0, 1.0, x.shape) * (0.0025, 0.0017, 0.0017)
    return fem.Body(fem.Mesh(x + inner[:, None] * move, box.topology), ALUMINIUM)


def _linear(body, gradient):
    return body.mesh.nodes @ jnp.asarray(gradient).T


def test_patch_of_constant_strain_is_exact_at_gauss_points_and_nodes(distorted):
    gradient = 1e-4 * np.random.default_rng(2).standard_normal((3, 3))
    g = gradient + gradient.T
    expected = np.array([*np.diag(g) / 2, g[0, 1], g[1, 2], g[2, 0]])
    u = _linear(distorted, gradient)
    strain, stress = fem.strain(distorted, u), fem.stress(distorted, u)
    assert strain.shape == (36, 8, 6)
    np.testing.assert_allclose(strain, np.broadcast_to(expected, strain.shape), atol=1e-16)
    hooke = np.asarray(ALUMINIUM.matrix()) @ expected
    nodal = fem.at_nodes(distorted, stress)
    np.testing.assert_allclose(nodal, np.broadcast_to(hooke, nodal.shape), atol=1e-12 * E * 1e-4)


@pytest.mark.parametrize(
    ("gradient", "stress", "mises", "principal"),
    [
        # Uniaxial stress s: strain s/E along, -nu s/E across.
        (np.diag([1.0, -NU, -NU]) * 1e6 / E, [1e6, 0, 0, 0, 0, 0], 1e6, [1e6, 0, 0]),
        # Simple shear du_x/dy = tau/G.
        (
            np.eye(3)[:1].T * np.eye(3)[1] * 1e6 * 2 * (1 + NU) / E,
            [0, 0, 0, 1e6, 0, 0],
            np.sqrt(3) * 1e6,
            [1e6, 0, -1e6],
        ),
        # Equal stress s in all directions: strain (1 - 2 nu) s / E.
        (-np.eye(3) * (1 - 2 * NU) * 1e6 / E, [-1e6] * 3 + [0] * 3, 0.0, [-1e6] * 3),
    ],
    ids=["uniaxial", "shear", "hydrostatic"],
)
def test_elementary_states(distorted, gradient, stress, mises, principal):
    found = fem.at_nodes(distorted, fem.stress(distorted, _linear(distorted, gradient)))
    np.testing.assert_allclose(found, np.broadcast_to(stress, found.shape), atol=1e-5)
    np.testing.assert_allclose(fem.von_mises(found), mises, atol=1e-5)
    values = fem.principal_stresses(found)
    np.testing.assert_allclose(values, np.broadcast_to(principal, values.shape), atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize(
    ("element", "counts", "along", "others"),
    [
        # Part of the moment is a parasitic shear stress, and strain that is constant over the
        # height of an element makes the stress of Poisson's effect jump.
        (fem.Hex8(), (60, 4, 12), 0.02, 0.05),
        (fem.Hex8Incompatible(), (13, 6, 6), 0.0015, 0.001),
    ],
    ids=["hex8", "hex8_incompatible"],
)
def test_bending_stress_is_that_of_a_beam(element, counts, along, others):
    """Pure bending: sigma = M z / I away from the ends, and nothing in the other components.

    The errors are relative to the largest stress; on the 13 x 6 x 6 plain trilinear hexahedra of
    the source they are 7 % along the beam and 8 % in other components.
    """
    L, h, moment = 0.06, 0.0086602540378, 0.1
    body = fem.Body(fem.box_mesh(L, h, h, *counts, element=element), ALUMINIUM, clamp="x0")
    u = fem.solve_static(body, fem.tip_wrench(body, "x1", np.zeros(3), np.array([0, moment, 0])))
    nodal = np.asarray(fem.at_nodes(body, fem.stress(body, u)))
    x, _, z = np.asarray(body.mesh.nodes).T
    middle = np.abs(x - L / 2) < L / 8
    largest = moment * (h / 2) / (h**4 / 12)
    expected = largest * z[middle] / (h / 2)
    np.testing.assert_allclose(nodal[middle, 0], expected, atol=along * largest)
    np.testing.assert_allclose(nodal[middle, 1:], 0.0, atol=others * largest)


@pytest.mark.parametrize(
    "element",
    [fem.Hex8BBar(), fem.Hex27(), fem.Tet4(), fem.Tet10()],
    ids=lambda e: type(e).__name__,
)
def test_linear_stress_is_extrapolated_exactly(element):
    """Elements with one Gauss point know constants only."""
    body = fem.Body(fem.box_mesh(0.06, 0.03, 0.03, 2, 2, 2, element=element), ALUMINIUM)
    points = element.tabulate(element.stiffness_rule.points)[0] @ np.asarray(body.mesh.cell_nodes)
    slope = np.array([1.0, -2.0, 3.0]) * (points.shape[1] > 1)
    found = fem.at_nodes(body, jnp.asarray(points @ slope + 5.0))
    np.testing.assert_allclose(found, np.asarray(body.mesh.nodes) @ slope + 5.0, rtol=1e-13)


@pytest.fixture
def states():
    values = 1e6 * np.random.default_rng(3).standard_normal((50, 6))
    values[0] = 0.0
    values[1] = [2e6, 2e6, 2e6, 0, 0, 0]
    values[2] = [3e6, 1e6, 1e6, 0, 0, 0]
    return jnp.asarray(values)


def _check_grads(function, stress):
    values = stress[:8] / 1e6
    check_grads(jax.jit(function), (values,), 1, ["fwd", "rev"], rtol=1e-6)


def _tensors(stress):
    xx, yy, zz, xy, yz, zx = np.asarray(stress).T
    return np.array([[xx, xy, zx], [xy, yy, yz], [zx, yz, zz]]).transpose(2, 0, 1)


def _voigt(tensors):
    return np.stack([tensors[:, a, b] for a, b in ((0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (2, 0))])


def test_principal_and_von_mises_stresses_against_numpy_and_under_rotation(states):
    principal = np.linalg.eigvalsh(_tensors(states))[:, ::-1]
    np.testing.assert_allclose(fem.principal_stresses(states), principal, atol=1e-8)
    a, b, c = principal.T
    mises = np.sqrt(((a - b) ** 2 + (b - c) ** 2 + (c - a) ** 2) / 2)
    np.testing.assert_allclose(fem.von_mises(states), mises, atol=1e-8)
    r = Rotation.random(random_state=4).as_matrix()
    turned = jnp.asarray(_voigt(r @ _tensors(states) @ r.T).T)
    np.testing.assert_allclose(fem.principal_stresses(turned), principal, atol=1e-8)
    np.testing.assert_allclose(fem.von_mises(turned), mises, atol=1e-8)


def test_derivatives_are_finite_where_principal_stresses_coincide(states):
    for state in states[:3]:
        slope = jax.jacrev(fem.principal_stresses)(state)
        np.testing.assert_allclose(slope, jax.jacfwd(fem.principal_stresses)(state), atol=1e-12)
        # The sum of all is the trace, whatever the directions.
        np.testing.assert_allclose(slope.sum(axis=0), [1, 1, 1, 0, 0, 0], atol=1e-12)
    # The single largest one is differentiable beside two that coincide, and so is their sum.
    np.testing.assert_allclose(slope[0], [1, 0, 0, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(slope[1:].sum(axis=0), [0, 1, 1, 0, 0, 0], atol=1e-12)
    _check_grads(fem.principal_stresses, states[3:])


def test_von_mises_has_a_derivative_everywhere(states):
    for state in (states[0], states[1]):
        np.testing.assert_array_equal(jax.grad(fem.von_mises)(state), 0.0)
    _check_grads(fem.von_mises, states[2:])


def test_safety_factor(states):
    factor = fem.safety_factor(states, 240e6)
    np.testing.assert_allclose(factor[3:] * fem.von_mises(states[3:]), 240e6)
    assert np.isinf(factor[0])
    assert np.isfinite(jax.jacrev(lambda s: fem.safety_factor(s, 240e6))(states[0])).all()


def test_smooth_maximum_bounds_the_maximum_and_nests(states):
    values = fem.von_mises(states)
    for p in (10.0, 100.0):
        smooth = fem.smooth_maximum(values, p)
        assert values.max() <= smooth <= values.max() * 50 ** (1 / p)
        parts = jnp.stack([fem.smooth_maximum(part, p) for part in jnp.split(values, 5)])
        np.testing.assert_allclose(fem.smooth_maximum(parts, p), smooth, rtol=1e-14)
    assert fem.smooth_maximum(jnp.zeros(4)) == 0.0
    np.testing.assert_array_equal(jax.grad(fem.smooth_maximum)(jnp.zeros(4)), 0.0)
    _check_grads(fem.smooth_maximum, values)


@pytest.mark.long
def test_gradient_of_the_smooth_maximum_against_central_differences():
    """Von Mises stress of a prism that is stretched by its ends and loaded across.

    The first makes it depend on Young's modulus; the second does not scale with it.
    """

    def objective(parameters):
        length, width, young, poisson, force = parameters * scale
        mesh = fem.box_mesh(length, width, 0.008, 6, 2, 2)
        body = fem.Body(
            mesh,
            fem.Isotropic(young, poisson, RHO),
            clamp="x0",
            supports=[fem.Support("x1", ["x"])],
        )
        load = fem.traction(body, "x1", jnp.stack([0.0 * force, force, 0.5 * force]))
        prescribed = body.zeros().at[mesh.topology.point_set("x1"), 0].set(2e-6)
        u = fem.solve_static(body, load, prescribed=prescribed)
        return fem.smooth_maximum(fem.von_mises(fem.stress(body, u)), 50.0) / 1e6

    scale = jnp.array([0.06, 0.008, E, NU, 1e5])
    value, gradient = jax.jit(jax.value_and_grad(objective))(jnp.ones(5))
    evaluate = jax.jit(objective)
    step = 1e-4 * jnp.eye(5)
    # Fourth order, so that the differences do not limit the comparison.
    at = {k: jnp.stack([evaluate(1 + k * row) for row in step]) for k in (-2, -1, 1, 2)}
    differences = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / 12e-4
    assert (jnp.abs(gradient) > 1e-3 * value).all()
    np.testing.assert_allclose(gradient, differences, rtol=1e-6)


@pytest.mark.long
def test_peak_of_a_series_is_the_largest_of_all_times():
    """A static state times a sine: everything peaks with the sine."""
    body = fem.Body(fem.box_mesh(0.06, 0.008, 0.008, 6, 2, 2), ALUMINIUM, clamp="x0")
    u = fem.solve_static(body, fem.traction(body, "x1", jnp.array([0.0, 1e5, 0.0])))
    factor = jnp.sin(jnp.linspace(0.0, 3.0, 101))
    series = factor[:, None, None] * u[None]
    mises = fem.von_mises(fem.at_nodes(body, fem.stress(body, u)))
    # The last group has three times only.
    found = fem.peak(body, series, batch_size=7)
    np.testing.assert_allclose(found.over_time, factor * mises.max(), rtol=1e-12)
    np.testing.assert_allclose(
        found.envelope, factor.max() * mises, atol=1e-12 * float(mises.max())
    )
    assert (found.time, found.node) == (factor.argmax(), mises.argmax())
    assert found.value == found.over_time.max()
    lowest = fem.peak(body, series, lambda s: -fem.principal_stresses(s)[..., 2])
    stress = np.asarray(fem.at_nodes(body, fem.stress(body, factor.max() * u)))
    np.testing.assert_allclose(lowest.value, -np.linalg.eigvalsh(_tensors(stress)).min())
    slope = jax.grad(lambda a: fem.peak(body, a * series).value)(1.0)
    np.testing.assert_allclose(slope, found.value, rtol=1e-12)


def test_many_variants_and_one_compilation():
    body = fem.Body(fem.box_mesh(0.06, 0.008, 0.008, 3, 1, 1), ALUMINIUM)
    u = _linear(body, np.diag([1e-4, 0, 0]))
    many = jax.jit(jax.vmap(lambda a: fem.von_mises(fem.stress(body, a * u))))
    for factors in (np.array([0.0, 1.0, 2.0]), np.array([3.0, 4.0, 5.0])):
        found = many(jnp.asarray(factors))
        np.testing.assert_allclose(found[:, 0, 0], factors * found[-1, 0, 0] / factors[-1])
    assert many._cache_size() == 1


def test_bad_input():
    body = fem.Body(fem.box_mesh(1.0, 1.0, 1.0, 1, 1, 1), ALUMINIUM)
    with pytest.raises(ValueError, match=r"displacements u has the shape \(9, 3\)"):
        jg.fem.stress(body, jnp.zeros((9, 3)))


def test_what_has_no_stress_gets_a_sentence():
    steel = jg.fem.Isotropic(210e9, 0.3, 7850.0)
    section = jg.fem.BeamSection.rectangle(steel, 0.01, 0.01)
    beam = jg.fem.Body(jg.fem.line_mesh(1.0, 2), section, clamp="x0")
    u = beam.zeros()
    for call in (
        lambda: jg.fem.stress(beam, u),
        lambda: jg.fem.strain(beam, u),
        lambda: jg.fem.peak(beam, u[None]),
        lambda: jg.fem.at_nodes(beam, jnp.zeros((2, 8, 6))),
    ):
        with pytest.raises(ValueError, match="Timoshenko has no stress at Gauss points"):
            call()
    box = jg.fem.Body(jg.fem.box_mesh(1.0, 0.1, 0.1, 2, 1, 1), steel, clamp="x0")
    for call in (jg.fem.stress, jg.fem.geometric_stiffness, jg.fem.apply_stiffness):
        with pytest.raises(ValueError, match=r"displacements u has the shape \(2, 3\)"):
            call(box, jnp.zeros((2, 3)))
    for u in (jnp.zeros((0, 12, 3)), jnp.zeros((2, 11, 3))):
        with pytest.raises(ValueError, match=r"must be \(times, 12, 3\) with at least one time"):
            jg.fem.peak(box, u)
    with pytest.raises(ValueError, match=r"must begin with \(2, 8\), the elements and their Gauss"):
        jg.fem.at_nodes(box, jnp.zeros((2, 3)))
