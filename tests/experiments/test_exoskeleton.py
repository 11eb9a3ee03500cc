"""The walking exoskeleton against Newton and Euler by differences, and its energy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.mechanisms import exoskeleton as model
from jaxgrip import config

pytestmark = pytest.mark.long

STEP = jax.jit(model.step)


def configured(**given):
    return config.validate(model.Config, {"experiment": "mechanisms/exoskeleton", **given}, "here")


@pytest.fixture(scope="module")
def walking():
    walker, gait = configured().walker()
    return walker, gait, jax.tree.map(np.asarray, STEP(walker, gait))


def differences(values, step):
    """Second derivatives in the middle, of fourth order."""
    return (
        -values[:-4] + 16 * values[1:-3] - 30 * values[2:-2] + 16 * values[3:-1] - values[4:]
    ) / (12 * step**2)


def test_torques_are_those_of_newton_and_euler(walking):
    """Link by link from the swing foot and from the ground, with differences of the positions."""
    walker, gait, found = walking
    h = found.time[1]
    angles = np.asarray(jax.vmap(lambda t: model.motion(walker, gait, t))(jnp.asarray(found.time)))
    places = np.asarray(jax.vmap(lambda q: model.centres(walker, q))(jnp.asarray(angles)))
    inner = slice(2, -2)
    mass, inertia = (np.asarray(x)[[0, 1, 0, 1, 2]] for x in (walker.mass, walker.inertia))
    # What each link needs: force with gravity, and moment, forward (clockwise) positive.
    force = mass[:, None] * (differences(places, h) + np.array([0.0, 9.81]))
    turning = inertia * differences(angles, h)
    np.testing.assert_allclose(force.sum(axis=1), found.reaction[inner], atol=2e-4)

    def about(links, point):
        """Moment that the links need about a point."""
        arm = places[inner][:, links] - point[:, None]
        lever = arm[..., 1] * force[:, links, 0] - arm[..., 0] * force[:, links, 1]
        return (lever + turning[:, links]).sum(axis=1)

    _, knee, hip, swing_knee, _ = np.moveaxis(found.posture[inner], 1, 0)
    ground = np.stack([found.pressure[inner], np.zeros(len(knee))], axis=1)
    names = dict(zip(model.MOTORS, found.torque[inner].T, strict=True))
    # The swing shank is moved by minus the torque that straightens the knee, and so on.
    np.testing.assert_allclose(about([2], swing_knee), -names["swing knee"], atol=2e-4)
    np.testing.assert_allclose(about([2, 3], hip), names["swing hip"], atol=2e-4)
    np.testing.assert_allclose(
        about([1, 2, 3, 4], knee) - found.crutches[inner], names["stance knee"], atol=5e-4
    )
    np.testing.assert_allclose(about([0, 1, 2, 3, 4], ground), found.crutches[inner], atol=5e-4)
    trunk = about([4], hip) - found.crutches[inner]
    np.testing.assert_allclose(trunk, -names["stance hip"] - names["swing hip"], atol=5e-4)


def test_motors_change_the_energy(walking):
    """The trunk does not turn, so that crutches do no work."""
    _, _, found = walking
    power = found.power.sum(axis=1)
    np.testing.assert_allclose(
        np.gradient(found.energy, found.time, edge_order=2)[1:-1], power[1:-1], atol=0.05
    )
    np.testing.assert_allclose(np.trapezoid(power, found.time), 0.0, atol=1e-3)


def test_both_feet_stand_at_the_ends(walking):
    walker, gait, found = walking
    np.testing.assert_allclose(found.clearance[[0, -1]], 0.0, atol=1e-4)
    assert np.min(found.clearance[10:-10]) > 0.0
    # The posture at the end is that at the beginning with the legs changed.
    first, last = (model.motion(walker, gait, t) for t in (jnp.zeros(()), gait.duration))
    np.testing.assert_allclose(last[:4], jnp.roll(first[:4], 2), atol=1e-14)


def test_a_slow_step_needs_what_standing_needs():
    """Without inertia forces the crutches hold the weight behind the centre of pressure."""
    walker, gait = configured(duration=100.0).walker()
    found = STEP(walker, gait)
    q = jax.vmap(lambda t: model.motion(walker, gait, t))(found.time)
    mass = walker.mass[model._LINKS]
    middle = jax.vmap(lambda x: mass @ model.centres(walker, x))(q)[:, 0] / mass.sum()
    expected = -mass.sum() * 9.81 * (middle - found.pressure)
    np.testing.assert_allclose(found.crutches, expected, atol=0.05)
    assert float(mass.sum()) == pytest.approx(84.0, rel=1e-2)


def test_the_peak_power_has_a_derivative():
    walker, gait = configured().walker()

    def peak(duration):
        return model.peak_power(walker, model.Gait(**{**vars(gait), "duration": duration}))

    run = jax.jit(jax.value_and_grad(peak))
    value, slope = run(jnp.asarray(1.5))
    above, below = (run(jnp.asarray(1.5 + s))[0] for s in (1e-4, -1e-4))
    np.testing.assert_allclose(slope, (above - below) / 2e-4, rtol=1e-5)
    assert value > 0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"begin_deg": 10.0, "end_deg": 5.0}, "leans further forward"),
        ({"end_deg": 40.0}, "the trailing leg is too short"),
        ({"begin_deg": -30.0, "end_deg": 5.0}, "the trailing leg is too long"),
        ({"duration": 0.0}, "greater than 0"),
    ],
)
def test_gaits_that_cannot_be_get_a_sentence(given, sentence):
    with pytest.raises(config.ConfigError, match=sentence):
        configured(**given)
