"""Natural motions of a slider-crank against SciPy and the limits of heavy parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.integrate import quad

from experiments.mechanisms import slider_crank_natural as model
from jaxgrip import config

pytestmark = pytest.mark.long

ENERGY = jnp.asarray(0.5)
FULL = (0.1, 0.3, 0.02, 0.01, 0.4, 0.002, 1.0)
ANGLES = jnp.linspace(0.0, 2 * jnp.pi, 181)


def inertia(angle):
    """By differences of the positions, nothing of the model."""
    r, length, offset, own, mass, about, slider = FULL

    def places(a):
        pin = r * np.array([np.cos(a), np.sin(a)])
        x = pin[0] + np.sqrt(length**2 - (pin[1] - offset) ** 2)
        lean = np.arcsin((pin[1] - offset) / length)
        return np.array([x, *(0.5 * (pin + np.array([x, offset]))), lean])

    step = 1e-5
    x, u, v, lean = (places(angle + step) - places(angle - step)) / (2 * step)
    return own + mass * (u**2 + v**2) + about * lean**2 + slider * x**2


def test_inertia_and_period_are_those_of_differences_and_quadrature():
    mechanism = model.SliderCrank(*FULL)
    for angle in (0.0, 0.7, 2.0, 5.0):
        found = model.reduced_inertia(mechanism, jnp.asarray(angle))
        np.testing.assert_allclose(found, inertia(angle), rtol=1e-8)
    found = model.motion(mechanism, ANGLES, ENERGY)
    lasts, _ = quad(lambda a: np.sqrt(inertia(a) / 1.0), 0.0, 2 * np.pi, epsabs=1e-9, limit=200)
    np.testing.assert_allclose(found.time[-1], lasts, rtol=1e-7)


def test_the_reference_mechanism_has_the_reference_numbers():
    mechanism = model.SliderCrank(0.1, 0.3, 0.0, 0.01, 0.0, 0.0, 1.0)
    found = model.motion(mechanism, ANGLES, ENERGY)
    np.testing.assert_allclose(found.time[-1], 0.766682, atol=1e-6)
    np.testing.assert_allclose(np.max(found.rate), 10.0, atol=1e-9)
    torque = model.drive_torque(mechanism, ANGLES, ENERGY)
    np.testing.assert_allclose(torque, 0.0, atol=1e-10)


def test_a_slider_without_a_crank_moves_at_constant_speed():
    """Also its derivative by the slider's mass exists, at the dead centres too."""
    light = model.SliderCrank(0.1, 0.3, 0.0, 0.0, 0.0, 0.0, 1.0)
    found = model.motion(light, ANGLES, ENERGY)
    np.testing.assert_allclose(found.time[-1], 4 * 0.1 * np.sqrt(1.0 / 1.0), rtol=1e-9)

    def lasts(mass):
        return model.motion(model.SliderCrank(0.1, 0.3, 0.0, 0.0, 0.0, 0.0, mass), ANGLES, ENERGY)

    slope = jax.grad(lambda m: lasts(m).time[-1])(1.0)
    np.testing.assert_allclose(slope, 0.2, rtol=1e-9)
    heavy = model.SliderCrank(0.1, 0.3, 0.0, 100.0, 0.0, 0.0, 1.0)
    even = model.motion(heavy, ANGLES, ENERGY)
    np.testing.assert_allclose(even.rate, even.rate[0], rtol=1e-4)


def test_positions_over_time_are_those_of_the_motion():
    mechanism = model.SliderCrank(*FULL)
    found = model.motion(mechanism, ANGLES, ENERGY)
    shares = found.time[1:-1] / found.time[-1]
    place, lasts = model.over_time(mechanism, shares, ENERGY)
    exact = jax.vmap(lambda a: model.position(mechanism, a))(ANGLES[1:-1])
    np.testing.assert_allclose(place, exact, atol=1e-9)
    np.testing.assert_allclose(lasts, found.time[-1])


def test_the_miss_has_derivatives_by_all_seven():
    times = np.linspace(0.0, 1.0, 21)[:-1]
    data = (
        jnp.asarray(times),
        jnp.asarray(model.wanted(times, 0.16, 0.42)),
        jnp.asarray(0.6),
        ENERGY,
    )
    start = jnp.asarray([0.5, 0.6, 0.3, 0.4, 0.7, 0.5, 0.6])
    check_grads(lambda x: model.miss(jnp.asarray(x), *data), (start,), order=1, rtol=1e-3, eps=1e-5)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"crank": 0.4}, "the crank cannot turn round"),
        ({"crank_inertia": 0.0, "slider": 0.0}, "there must be some inertia"),
        ({"energy": -1.0}, "greater than 0"),
    ],
)
def test_mistakes_get_a_sentence(given, sentence):
    raw = {"experiment": "mechanisms/slider_crank_natural", **given}
    with pytest.raises(config.ConfigError, match=sentence):
        config.validate(model.Config, raw, "here")
