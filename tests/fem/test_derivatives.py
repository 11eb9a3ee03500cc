import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

ELEMENTS = [
    jg.fem.Hex8(),
    pytest.param(jg.fem.Hex8BBar(), marks=pytest.mark.soak),
    jg.fem.Hex8Incompatible(),
    pytest.param(jg.fem.Hex27(), marks=pytest.mark.soak),
    pytest.param(jg.fem.Tet4(), marks=pytest.mark.soak),
    jg.fem.Tet10(),
]


@pytest.mark.long
@pytest.mark.parametrize("element", ELEMENTS, ids=lambda e: type(e).__name__)
def test_derivatives_of_every_element(element):
    """Of the tip under a load on its face and its own weight, with respect to every number."""

    @jax.jit
    @jax.value_and_grad
    def tip(p):
        mesh = jg.fem.box_mesh(p[0], p[1], p[2], 2, 1, 1, element=element)
        body = jg.fem.Body(mesh, jg.fem.Isotropic(p[3], p[4], p[5]), clamp="x0")
        load = jg.fem.traction(body, "x1", (1e3, 2e3, 5e3))
        load += jg.fem.gravity(body, (0.0, 30.0, -50.0))
        u = jg.fem.solve_static(body, load)
        return jnp.sum(u[-1] * jnp.array([1.0, 2.0, 3.0]))

    point = np.array([0.7, 0.2, 0.3, 7e7, 0.3, 2700.0])
    slope = np.asarray(tip(point)[1])
    for k, h in enumerate(1e-3 * point):
        step = h * np.eye(6)[k]
        one, two = ((tip(point + j * step)[0] - tip(point - j * step)[0]) / (2 * j) for j in (1, 2))
        # Central differences of fourth order.
        np.testing.assert_allclose(slope[k], (4 * one - two) / (3 * h), rtol=1e-6)


def test_derivatives_of_the_source():
    """Own weight of link 2; independent values (JAX and differences)."""

    @eqx.filter_jit
    def tip(length, side, rho, young, nu):
        mesh = jg.fem.box_mesh(length, side, side, 13, 6, 6)
        body = jg.fem.Body(mesh, jg.fem.Isotropic(young, nu, rho), clamp="x0")
        return jg.fem.solve_static(body, jg.fem.gravity(body, (0.0, 0.0, -9.81)))[661, 2]

    point = tuple(map(jnp.asarray, (0.06, np.sqrt(7.5e-5), 2700.0, 7.22e10, 0.34)))
    value, slopes = jax.value_and_grad(tip, argnums=range(5))(*point)
    np.testing.assert_allclose(value, -8.429093e-8, rtol=1e-7)
    expected = (-5.310198e-6, 1.732397e-5, -3.121886e-11, 1.167464e-18, 2.491429e-8)
    np.testing.assert_allclose(slopes, expected, rtol=1e-6)
