"""Contact temperature of gear pairs against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
from jax.test_util import check_grads

from experiments.mechanisms import gear_contact as gear
from jaxgrip import config

pytestmark = pytest.mark.long


def pair(**given):
    return config.validate(
        gear.Config, {"experiment": "mechanisms/gear_contact", **given}, "here"
    ).pair()


def test_the_factor_of_blok_is_that_of_heat_conduction():
    """A fast band heats x by the integral of q(s) / sqrt(pi v (x - s)) over B."""

    def heated(x):
        # s = x - u², so that the integrand is smooth.
        return scipy.integrate.quad(
            lambda u: 2 * np.sqrt(max(1 - (x - u**2) ** 2, 0.0)), 0.0, np.sqrt(x + 1), limit=400
        )[0]

    least = scipy.optimize.minimize_scalar(
        lambda x: -heated(x), bounds=(0.0, 1.0), method="bounded"
    )
    # Heat Q over the width 2b has its peak 2 Q / (pi b) in the middle.
    np.testing.assert_allclose(gear.BLOK, -2 * least.fun / np.pi**1.5, rtol=1e-4)
    assert np.sqrt(2) * gear.BLOK == pytest.approx(1.11, abs=2e-3)


def test_path_and_pressure_have_their_closed_forms():
    """Equal pairs with 24 teeth: contact ratio by the usual formula, pressure by Hertz."""
    one = pair(teeth=(24, 24), shaft_angle_deg=0.0)
    begin, end, pitch = gear.path(one)
    angle, r = np.deg2rad(20.0), 0.5 * 24 * 3e-3
    tip = np.arccos(r * np.cos(angle) / (r + 3e-3))
    ratio = 24 / (2 * np.pi) * 2 * (np.tan(tip) - np.tan(angle))
    np.testing.assert_allclose((end - begin) / pitch, ratio, rtol=1e-12)
    found = gear.contact(one)
    middle = len(found.distance) // 2
    np.testing.assert_allclose(found.distance[middle], 0.0, atol=1e-15)
    load = 120.0 / (r * np.cos(angle)) / 0.025
    np.testing.assert_allclose(found.load[middle], load, rtol=1e-12)
    reduced = 0.5 * r * np.sin(angle)
    modulus = 2.06e11 / (2 * (1 - 0.3**2))
    pressure = np.sqrt(load * modulus / (np.pi * reduced))
    np.testing.assert_allclose(found.pressure[middle], pressure, rtol=1e-12)
    assert found.flash[middle] == 0.0
    np.testing.assert_allclose(found.flash, found.flash[::-1], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.sliding, 2 * 314.0 * found.distance, rtol=1e-12, atol=1e-12)


def test_the_rise_scales_as_blok_says():
    """With torque^(3/4), speed^(1/2), and friction."""
    one = pair()
    rise = gear.contact(one).temperature - one.oil
    for name, exponent in (("torque", 0.75), ("speed", 0.5), ("friction", 1.0)):
        other = gear.Pair(**{**vars(one), name: 3 * getattr(one, name)})
        np.testing.assert_allclose(
            gear.contact(other).temperature - one.oil, 3**exponent * rise, rtol=1e-12
        )


def test_a_bevel_pair_is_its_virtual_one():
    one = pair(teeth=(20, 40), shaft_angle_deg=90.0)
    cone = np.arctan(20 / 40)
    np.testing.assert_allclose(one.pinion, 20 / np.cos(cone))
    np.testing.assert_allclose(one.wheel, 40 / np.sin(cone))
    # The same force and speed at the pitch circle.
    np.testing.assert_allclose(one.torque / one.pinion, 120.0 / 20, rtol=1e-12)
    np.testing.assert_allclose(one.speed * one.pinion, 314.0 * 20, rtol=1e-12)


def test_derivatives_are_differences():
    one = pair()
    check_grads(
        lambda torque, module: gear.least_safety(
            gear.Pair(**{**vars(one), "torque": torque, "module": module})
        ),
        (one.torque, one.module),
        order=1,
        rtol=1e-4,
    )
    many = jax.vmap(lambda mu: gear.least_safety(gear.Pair(**{**vars(one), "friction": mu})))(
        jnp.linspace(0.03, 0.09, 5)
    )
    assert np.all(np.diff(many) < 0)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"teeth": (4, 40)}, "4 teeth are too few"),
        ({"teeth": (8, 300), "shaft_angle_deg": 0.0}, "touch beyond the involute"),
        ({"teeth": (300, 300), "pressure_angle_deg": 11.0}, "the contact ratio is"),
        ({"temperature": {"oil": 100.0, "limit": 90.0}}, "must lie above the oil's"),
        ({"torque": -1.0}, "greater than 0"),
    ],
)
def test_mistakes_get_a_sentence(given, sentence):
    with pytest.raises(config.ConfigError, match=sentence):
        pair(**given)
