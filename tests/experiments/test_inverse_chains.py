"""Chains with base and tip exchanged, and degrees of paths."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.mechanisms import inverse_chains as model
from jaxgrip.spatial import dual_quaternions as dq

pytestmark = pytest.mark.long


def test_links_are_those_of_denavit_and_hartenberg():
    theta, d, a, alpha = 0.7, 0.3, -0.4, 1.1

    def rz(x):
        return np.array([[np.cos(x), -np.sin(x), 0], [np.sin(x), np.cos(x), 0], [0, 0, 1]])

    def rx(x):
        return np.array([[1, 0, 0], [0, np.cos(x), -np.sin(x)], [0, np.sin(x), np.cos(x)]])

    q = model.link(*(jnp.asarray(x) for x in (theta, d, a, alpha)))
    np.testing.assert_allclose(dq.rotation(q), rz(theta) @ rx(alpha), atol=1e-12)
    expected = rz(theta) @ np.array([a, 0.0, 0.0]) + np.array([0.0, 0.0, d])
    np.testing.assert_allclose(dq.translation(q), expected, atol=1e-12)
    back = model.inverse_link(*(jnp.asarray(x) for x in (theta, d, a, alpha)))
    np.testing.assert_allclose(back, dq.conjugate(q), atol=1e-12)


def test_degrees_of_known_curves():
    t = np.linspace(0.0, 2 * np.pi, 60)[:-1]
    assert model.degree(np.stack([t, 2 * t + 1], axis=1)) == 1
    assert model.degree(np.stack([3 * np.cos(t), np.sin(t)], axis=1)) == 2
    assert model.degree(np.stack([t, t**3], axis=1)) == 3
    limacon = (0.4 + np.cos(t))[:, None] * np.stack([np.cos(t), np.sin(t)], axis=1)
    assert model.degree(limacon) == 4
    assert model.degree(np.random.default_rng(0).normal(size=(60, 2))) == 7


def test_equations_tell_the_chains_apart():
    length = jnp.asarray(0.8)
    q = model.slide_and_turn(jnp.asarray(0.3), jnp.asarray(1.1), length)
    assert abs(model.slide_and_turn_equation(q, length)) < 1e-15
    assert abs(model.turn_and_slide_equation(q, length)) > 0.1
    assert abs(model.turn_and_slide_equation(dq.conjugate(q), length)) < 1e-15
    bar = model.elliptic(jnp.asarray(0.9), length)
    assert np.max(np.abs(model.elliptic_equations(dq.conjugate(bar), length))) > 0.1
