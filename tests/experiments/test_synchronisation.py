"""Synchronised oscillators: laws, stability and the region against theory."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from experiments.mechanisms import synchronisation as model
from jaxgrip import orbits

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("values", "known"), model.ROWS)
def test_rows_have_their_values(values, known):
    p = model.named(values)
    ours = [*model.dimensionless(p), *model.law(p)]
    np.testing.assert_allclose(ours, known[:-1], rtol=1e-5)


@pytest.mark.parametrize(("values", "known"), model.ROWS)
def test_multipliers_are_those_known(values, known):
    p = model.named(values)
    found = orbits.floquet(model.controlled, model.exact(p), (p, model.law(p)))
    np.testing.assert_allclose(found.largest, known[-1], rtol=1e-3)


def test_the_corrected_law_reaches_the_motion_wanted():
    """By another integrator; the law as printed does not."""
    p = model.named(model.ROWS[0][0])
    end = 20 * 2 * np.pi / 1.2
    times = np.linspace(end - 5.0, end, 50)
    for law, reaches in ((model.law(p), True), (model.printed(p), False)):
        numbers = [float(x) for x in law]

        def rates(t, y, numbers=numbers):
            bracket = y[1] ** 2 + (1.2 * y[0]) ** 2 + numbers[0]
            return [y[1], 3.0 * np.sin(1.2 * t) - 0.25 * bracket * y[1] - numbers[1] * y[0]]

        found = solve_ivp(rates, (0.0, end), [0.0, 0.0], t_eval=times, rtol=1e-10, atol=1e-10)
        off = np.max(np.abs(found.y[0] - 2.0 * np.sin(1.2 * times - np.pi / 4)))
        assert (off < 1e-7) == reaches
        ours = model.controlled(jnp.asarray(0.3), jnp.asarray([0.4, -0.2]), (p, law))
        np.testing.assert_allclose(ours, rates(0.3, [0.4, -0.2]), rtol=1e-12)


def test_weak_drives_are_followed_within_half_their_strength():
    """Adler: |eta - 1| < F/2 for weak drives; beyond, a long motion does not repeat."""
    etas = np.array([0.97, 0.985, 1.015, 1.03])
    largest = model.tongue(0.1, etas, np.array([0.04]))[:, 0]
    np.testing.assert_array_equal(largest < 1, [False, True, True, False])
    for eta, locked in zip(etas, largest < 1, strict=True):
        found = solve_ivp(
            lambda t, q, eta=eta: [
                q[1],
                0.04 * np.sin(eta * t) - 0.1 * (q[0] ** 2 + q[1] ** 2 - 1) * q[1] - q[0],
            ],
            (0.0, 402 * np.pi / eta),
            [1.0, 0.0],
            t_eval=[400 * np.pi / eta, 402 * np.pi / eta],
            rtol=1e-8,
            atol=1e-8,
        )
        assert (np.max(np.abs(np.diff(found.y))) < 1e-3) == locked
