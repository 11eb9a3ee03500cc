"""Vibration of structures in time, mode by mode against the methods' own equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from tests.fem.structures.models import check_derivatives
from tests.fem.structures.test_vibration import PINNED, straight

js = jg.fem.structures
STEPS = 60


@pytest.fixture(scope="module")
def beam():
    """A pinned beam, its poses, its lowest frequency and the mode of it."""
    structure, poses = straight(4, PINNED)
    found = js.modes(structure, poses, 1)
    return structure, poses, float(found.frequency[0]), 1e-3 * found.shape[0]


def oscillator(omega, h, damping, *, mass=0.0, force=0.0, beta=0.25, gamma=0.5):
    """Chung 1993, eq. 2 to 8, for u'' + damping u' + omega² u = 0 from u = 1, at rest.

    `mass` and `force` are the weights of the old acceleration and the old forces. The first
    acceleration is that with which a step of Newmark's method would end in balance.
    """
    start = -(omega**2) / (1 + gamma * h * damping + beta * h**2 * omega**2)
    u, v, a, found = 1.0, 0.0, start, [1.0]
    for _ in range(STEPS):
        # The balance is linear in the new acceleration: two trials give it.
        def state(new, u=u, v=v, a=a):
            u1 = u + h * v + h**2 * ((0.5 - beta) * a + beta * new)
            return u1, v + h * ((1 - gamma) * a + gamma * new)

        def balance(new, u=u, v=v, a=a, state=state):
            u1, v1 = state(new)
            late = (1 - mass) * new + mass * a
            late += damping * ((1 - force) * v1 + force * v)
            return late + omega**2 * ((1 - force) * u1 + force * u)

        new = -balance(0.0) / (balance(1.0) - balance(0.0))
        (u, v), a = state(new), new
        found.append(u)
    return np.array(found)


@pytest.mark.parametrize(
    ("method", "weights"),
    [
        (jg.fem.Newmark(), {}),
        # rho_inf = 1/2: α_m = 0, α_f = 1/3, γ = 5/6, β = 4/9.
        (jg.fem.GeneralizedAlpha(0.5), {"force": 1 / 3, "beta": 4 / 9, "gamma": 5 / 6}),
    ],
)
def test_a_mode_that_is_let_go(beam, method, weights):
    structure, poses, omega, shape = beam
    h = 2 * np.pi / omega / 20
    for rates in ((0.0, 0.0), (0.1 * omega, 0.2 / omega)):
        damping = jg.fem.Rayleigh(*rates)
        found = js.simulate(
            structure, poses, (), h, t1=STEPS * h, u0=shape, damping=damping, method=method
        )
        assert found.displacements.shape == (STEPS + 1, 5, 6)
        expected = oscillator(omega, h, rates[0] + rates[1] * omega**2, **weights)
        moved = found.displacements[:, 2, 1] / shape[2, 1]
        np.testing.assert_allclose(moved, expected, atol=1e-7)


@pytest.mark.long
def test_second_order(beam):
    """Errors of a damped mode against its closed form fall with the square of the step."""
    structure, poses, omega, shape = beam
    decay, errors = 0.05 * omega, []
    s = complex(-decay, np.sqrt(omega**2 - decay**2))
    for count in (40, 80):
        t = np.linspace(0, 2 * np.pi / omega, count + 1)
        found = js.simulate(
            structure, poses, (), t[1], t1=t[-1], u0=shape, damping=jg.fem.Rayleigh(2 * decay)
        )
        exact = (complex(1, -decay / s.imag) * np.exp(s * t)).real
        errors.append(np.abs(found.displacements[:, 2, 1] / shape[2, 1] - exact).max())
    assert errors[1] < 3e-3
    np.testing.assert_allclose(errors[0] / errors[1], 4.0, rtol=0.1)


def test_loads(beam, monkeypatch):
    """A sudden load deflects by twice what it does at rest; sparse matrices do as dense ones."""
    structure, poses, omega, _ = beam
    loads = [js.NodalForce("f.n2", (0, 50.0, 0)), js.Inertia((0, -9.81, 0.0))]
    still = js.solve(structure, poses, loads).displacements[2, 1]
    h = 2 * np.pi / omega / STEPS

    def run(x):
        found = js.simulate(
            structure, poses, loads, h, t1=STEPS * h, amount=lambda t: x * jnp.ones(2)
        )
        return found.displacements[:, 2, 1]

    moved = jax.jit(run)(1.0)
    np.testing.assert_allclose(moved[STEPS // 2] / still, 2.0, atol=0.05)
    np.testing.assert_allclose(moved[STEPS] / still, 0.0, atol=0.05)
    np.testing.assert_allclose(np.mean(moved[:STEPS]) / still, 1.0, atol=0.02)
    monkeypatch.setattr("jaxgrip.fem.structures._linear.LARGE", 0)
    np.testing.assert_allclose(run(1.0), moved, atol=1e-9 * np.abs(moved).max())


@pytest.mark.long
def test_derivatives():
    """By the time of an amount, the stiffness, and the state at the start."""

    def late(x):
        section = jg.fem.BeamSection(
            jg.fem.Isotropic(210e9 * x[0], 0.3, 7850.0), A=0.01, Iy=4e-6, Iz=1e-6, J=2e-6,
            orientation=(0.0, 1.0, 0.0),
        )  # fmt: skip
        structure, poses = straight(2, PINNED, section=section)
        found = js.simulate(
            structure, poses, js.NodalForce("f.n1", (0, 50.0, 0)), 5e-4, t1=0.01,
            amount=lambda t: jnp.sin(300 * x[1] * t),
            v0=jnp.zeros((3, 6)).at[1, 1].set(1e-2 * x[2]),
        )  # fmt: skip
        return 1e4 * found.displacements[-1:, 1, 1]

    check_derivatives(late, jnp.array([1.0, 1.1, 0.9]), 1e-6)


def test_a_free_structure_falls():
    structure, poses = straight(2, {})
    loads = js.Inertia((0, 0.0, -9.81))
    v0 = jnp.zeros((3, 6)).at[:, 0].set(1.0)
    found = js.simulate(structure, poses, loads, 0.01, t1=0.1, v0=v0)
    fall = np.asarray(found.displacements)
    np.testing.assert_allclose(fall[-1, :, 2], -9.81 * 0.1**2 / 2, rtol=1e-9)
    np.testing.assert_allclose(fall[-1, :, 0], 0.1, rtol=1e-9)
    wrong = {
        "t1": {"t1": -1.0},
        "step dt": {"dt": 0.0},
        "u0": {"u0": v0[:2]},
        "v0": {"v0": v0 * np.nan},
    }
    for words, options in wrong.items():
        options = {"dt": 0.01, "t1": 0.1} | options
        with pytest.raises(ValueError, match=words):
            js.simulate(structure, poses, loads, **options)
