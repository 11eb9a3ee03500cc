"""Vibration of structures in time, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from tests.structures.models import check_derivatives
from tests.structures.test_vibration import PINNED, straight

js = jg.structures
STEPS = 100


@pytest.fixture(scope="module")
def beam():
    """A pinned beam, its poses, its lowest frequency and the mode of it."""
    structure, poses = straight(6, PINNED)
    found = js.modes(structure, poses, 1)
    return structure, poses, float(found.frequency[0]), 1e-3 * found.shape[0]


@pytest.mark.parametrize(
    ("method", "tolerance"), [(jg.fem.Newmark(), 1e-4), (jg.fem.GeneralizedAlpha(0.9), 1e-2)]
)
def test_a_mode_that_is_let_go(beam, method, tolerance):
    """The trapezoidal rule, Newmark's, has (1 + h s / 2) / (1 - h s / 2) in place of exp(h s)."""
    structure, poses, omega, shape = beam
    h = 2 * np.pi / omega / 40
    for damping in ((0.0, 0.0), (0.02 * omega, 0.03 / omega)):
        found = js.simulate(
            structure, poses, (), h, t1=STEPS * h, u0=shape, damping=jg.fem.Rayleigh(*damping),
            method=method,
        )  # fmt: skip
        assert found.displacements.shape == (STEPS + 1, 7, 6)
        decay = (damping[0] + damping[1] * omega**2) / 2
        s = complex(-decay, np.sqrt(omega**2 - decay**2))
        growth = (1 + h * s / 2) / (1 - h * s / 2)
        expected = (complex(1, -decay / s.imag) * growth ** np.arange(STEPS + 1)).real
        moved = found.displacements[:, 3, 1] / shape[3, 1]
        np.testing.assert_allclose(moved, expected, atol=tolerance)


def test_loads(beam, monkeypatch):
    """A sudden load deflects by twice what it does at rest; sparse matrices do as dense ones."""
    structure, poses, omega, _ = beam
    loads = [js.NodalForce("f.n3", (0, 50.0, 0)), js.Inertia((0, -9.81, 0.0))]
    still = js.solve(structure, poses, loads).displacements[3, 1]
    h = np.pi / omega / 50

    def run(x):
        found = js.simulate(
            structure, poses, loads, h, t1=STEPS * h, amount=lambda t: x * jnp.ones(2)
        )
        return found.displacements[:, 3, 1]

    moved = jax.jit(run)(1.0)
    np.testing.assert_allclose(moved[50] / still, 2.0, atol=0.05)
    np.testing.assert_allclose(moved[100] / still, 0.0, atol=0.05)
    np.testing.assert_allclose(np.mean(moved[:100]) / still, 1.0, atol=0.02)
    check_derivatives(lambda x: 1e3 * run(x[0])[50:51], jnp.array([1.0]), 1e-8)
    monkeypatch.setattr("jaxgrip.structures.linear.LARGE", 0)
    np.testing.assert_allclose(run(1.0), moved, atol=1e-9 * np.abs(moved).max())


def test_a_free_structure_falls():
    structure, poses = straight(2, {})
    loads = js.Inertia((0, 0.0, -9.81))
    found = js.simulate(
        structure, poses, loads, 0.01, t1=0.1, v0=jnp.zeros((3, 6)).at[:, 0].set(1.0)
    )
    fall = np.asarray(found.displacements)
    np.testing.assert_allclose(fall[-1, :, 2], -9.81 * 0.1**2 / 2, rtol=1e-9)
    np.testing.assert_allclose(fall[-1, :, 0], 0.1, rtol=1e-9)
    for name, options in {"t1": {"t1": -1.0}, "dt": {"dt": 0.0}, "u0": {"u0": [1.0]}}.items():
        options = {"dt": 0.01, "t1": 0.1} | options
        with pytest.raises(ValueError, match=name):
            js.simulate(structure, poses, loads, **options)
