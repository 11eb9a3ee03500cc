"""Modes of the quadruped against an independent identification and closed forms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.mechanisms import quadruped_modes as model
from jaxgrip import config

pytestmark = pytest.mark.long

# Of an independent program with the same data.
KNOWN = {
    ("four", 0.145): (0.478, 2.396, 5.776, 8.394),
    ("four", 0.12): (0.307, 2.346, 3.795, 6.808),
    ("two", 0.145): (0.0, 1.699, 4.114, 5.827),
    ("two", 0.12): (0.0, 1.668, 2.672, 4.656),
}


@pytest.fixture(scope="module")
def machine():
    return config.validate(
        model.Config, {"experiment": "mechanisms/quadruped_modes"}, "here"
    ).machine()


@pytest.mark.parametrize("feet", ["four", "two"])
def test_frequencies_are_those_of_another_program_and_near_the_published(machine, feet):
    look = jax.jit(lambda r: model.look(machine, feet, r).frequency)
    for length in (0.145, 0.12):
        found = look(jnp.asarray(length))
        np.testing.assert_allclose(found, KNOWN[feet, length], atol=6e-4)
        np.testing.assert_allclose(found, model.PUBLISHED[feet, length], rtol=0.045, atol=1e-9)


@pytest.mark.parametrize("kind", model.LEGS)
def test_single_legs(machine, kind):
    """The published radial mode of the standing leg is 7.3 % above ours."""
    found, shapes = model.leg(machine, kind, jnp.asarray(0.15))
    known = {"free": (11.22, 20.78), "standing": (2.70, 6.922)}
    np.testing.assert_allclose(found, known[kind], atol=5e-3)
    np.testing.assert_allclose(found, model.LEGS[kind], rtol=0.074)
    np.testing.assert_allclose(jnp.sum(shapes**2, axis=0), 1.0)
    against, knee = model.orthogonality(machine, model.SHAPES[kind], 0.15)
    assert against < 0.003
    assert knee > 0.4


def test_massless_legs_have_the_closed_form(machine):
    """Vertical: four springs of 2 k / (2 l sin psi)² under the trunk."""
    light = eqx.tree_at(
        lambda m: (m.thigh, m.shank, m.centre),
        machine,
        (1e-9 * machine.thigh, 1e-9 * machine.shank, jnp.zeros(3)),
    )
    for length, radial in ((0.145, 874.32), (0.12, 357.14)):
        sine = np.sqrt(1 - (length / 0.16) ** 2)
        stiffness = 2 * 2.0 / (0.16 * sine) ** 2
        np.testing.assert_allclose(stiffness, radial, rtol=1e-5)
        found = model.look(light, "four", jnp.asarray(length)).frequency
        exact = np.sqrt(4 * stiffness / 2.07) / (2 * np.pi)
        assert np.min(np.abs(np.asarray(found) - exact)) < 1e-5 * exact


def test_the_mass_matrix_has_the_kinetic_energy(machine):
    """Total mass in translations; the trunk's part by moving it."""
    q = model.standing(machine, jnp.asarray(0.145))
    matrix = model.mass_matrix(machine, q)
    np.testing.assert_allclose(jnp.diag(matrix)[:3], 2.07 + 4 * 0.12, rtol=1e-12)
    assert np.all(np.linalg.eigvalsh(matrix) > 0)


def test_gravity_makes_the_tipping_mode_unstable(machine):
    """On two feet the exact second derivative has one falling mode, a pendulum's."""
    found = model.look_exactly(machine, "two", jnp.asarray(0.145))
    assert found.eigenvalue[0] < 0
    assert np.all(found.eigenvalue[1:] > 0)
    assert found.frequency[0] < 0


def test_frequencies_have_derivatives(machine):
    def vertical(length):
        return model.look(machine, "four", length).frequency[2]

    slope = jax.jit(jax.grad(vertical))(0.13)
    above, below = (float(vertical(jnp.asarray(0.13 + s))) for s in (1e-6, -1e-6))
    np.testing.assert_allclose(slope, (above - below) / 2e-6, rtol=1e-6)


def test_legs_that_are_too_long_get_a_sentence():
    raw = {"experiment": "mechanisms/quadruped_modes", "lengths": [0.2]}
    with pytest.raises(config.ConfigError, match=r"cannot be 0\.2 m long"):
        config.validate(model.Config, raw, "here")
