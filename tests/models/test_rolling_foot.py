"""The rolling foot against reference rows, circles, quadrature and the condition of no slip."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from jax.test_util import check_grads

from jaxgrip.models import rolling_foot
from jaxgrip.models.rolling_foot import RollingFoot, in_world, roll

ANGLES = (-0.3, 0.0, 0.1, 0.4)
FOOT = RollingFoot([0.10, 0.05], [4.0, 1.5], [0.05, -0.1])


def circle(angle):
    return 0.3 * jnp.tan(angle / 2)


@pytest.mark.parametrize(
    ("angle", "rim", "pressure", "curvature"),
    [
        (0.1, 0.0329185, 0.0596866, 0.4265044),
        (0.2, 0.0547713, 0.0904784, 0.2094692),
        (0.4, 0.0784656, 0.1099144, 0.0229717),
    ],
)
def test_one_term_has_the_reference_values(angle, rim, pressure, curvature):
    found = RollingFoot(0.1, 4.0).roll(jnp.asarray(angle))
    np.testing.assert_allclose(found.rim, rim, atol=1e-7)
    np.testing.assert_allclose(found.centre_of_pressure, pressure, atol=1e-7)
    np.testing.assert_allclose(found.curvature, curvature, atol=1e-7)


@pytest.mark.parametrize("angle", ANGLES)
def test_the_tangent_of_the_half_angle_is_a_circle(angle):
    found = roll(circle, jnp.asarray(angle))
    np.testing.assert_allclose(found.curvature, 0.3, rtol=1e-12)
    np.testing.assert_allclose(found.centre_of_pressure, 0.3 * angle, rtol=1e-9, atol=1e-15)
    # The centre of curvature is a fixed point of the foot, at one height.
    up = jnp.array([jnp.sin(angle), jnp.cos(angle)])
    middle = found.cam + 0.3 * jnp.array([-jnp.sin(angle), jnp.cos(angle)])
    np.testing.assert_allclose(middle, [0.0, 0.3], atol=1e-12)
    np.testing.assert_allclose(in_world(found, jnp.asarray(angle), middle)[1], 0.3, rtol=1e-12)
    assert up.shape == (2,)


@pytest.mark.parametrize("angle", ANGLES)
def test_a_radius_in_proportion_to_the_angle(angle):
    found = roll(lambda a: 0.2 * a, jnp.asarray(angle))
    np.testing.assert_allclose(found.curvature, 2 * 0.2 * np.cos(angle), rtol=1e-12)


@pytest.mark.parametrize("angle", ANGLES)
def test_the_closed_form_is_the_quadrature(angle):
    def slope(a):
        return sum(
            r * c * np.exp(-c * (a - s))
            for r, c, s in zip(FOOT.rho, FOOT.rate, FOOT.shift, strict=True)
        )

    rim, _ = scipy.integrate.quad(lambda a: slope(a) * np.cos(a), 0.0, angle, epsabs=1e-14)
    found = FOOT.roll(jnp.asarray(angle))
    np.testing.assert_allclose(found.rim, rim, atol=1e-14)
    for one, other in zip(found, roll(FOOT, jnp.asarray(angle)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-13)


@pytest.mark.parametrize("foot", [FOOT.roll, lambda a: roll(circle, a)])
@pytest.mark.parametrize("angle", ANGLES)
def test_the_foot_rolls_without_slip(foot, angle):
    """The material point at the contact is at rest, on the ground, with the centre of pressure."""
    angle = jnp.asarray(angle)
    here = foot(angle)
    place, velocity = jax.jvp(
        lambda a: in_world(foot(a), a, here.cam), (angle,), (jnp.ones_like(angle),)
    )
    np.testing.assert_allclose(place, [here.centre_of_pressure, 0.0], atol=1e-14)
    np.testing.assert_allclose(velocity, 0.0, atol=1e-13)
    # The curvature is what the contact moves by the angle, and its length along the cam.
    moved = jax.jvp(lambda a: foot(a).centre_of_pressure, (angle,), (jnp.ones_like(angle),))[1]
    along = jax.jvp(lambda a: foot(a).cam, (angle,), (jnp.ones_like(angle),))[1]
    np.testing.assert_allclose(moved, here.curvature, rtol=1e-9)
    np.testing.assert_allclose(jnp.sqrt(along @ along), jnp.abs(here.curvature), rtol=1e-9)


@pytest.mark.long
def test_derivatives_are_differences_also_at_zero():
    def pressure(angle, rho, rate):
        return RollingFoot(rho, rate).roll(jnp.asarray(angle)).centre_of_pressure

    for angle in (0.0, 0.2):
        check_grads(
            pressure, (jnp.asarray(angle), FOOT.rho, FOOT.rate), order=2, rtol=1e-4, atol=1e-6
        )
    many = jax.vmap(FOOT.roll)(jnp.linspace(-0.2, 0.5, 7))
    assert many.cam.shape == (7, 2)


def test_numbers_that_are_none_get_a_sentence():
    with pytest.raises(ValueError, match="rho of a rolling foot"):
        RollingFoot([0.1, float("nan")], 4.0)
    assert rolling_foot.RollingFoot(0.1, [4.0, 2.0]).rho.shape == (2,)
