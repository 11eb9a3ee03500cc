import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from jaxgrip import actuators

FASTEST = 10.0


def with_damping_velocity(friction, velocity):
    return eqx.tree_at(lambda f: f.damping_velocity, friction, jnp.asarray(velocity))


def test_the_servo_can_give_energy(servo_friction):
    found = actuators.passivity(servo_friction, FASTEST)
    assert not found.passive
    np.testing.assert_allclose(found.ranges, [(0.345, 0.791)], atol=5e-4)
    assert "from 0.345 to 0.791 rad/s" in found.sentence


def test_the_bristles_alone_can_give_more(servo_friction):
    found = actuators.passivity(servo_friction, FASTEST, viscous=False)
    np.testing.assert_allclose(found.ranges, [(0.256, 1.086)], atol=5e-4)


@pytest.mark.parametrize("velocity", [0.5, 0.3, 0.05])
@pytest.mark.parametrize("viscous", [True, False])
def test_damping_that_fades_soon_is_passive(servo_friction, velocity, viscous):
    friction = with_damping_velocity(servo_friction, velocity)
    found = actuators.passivity(friction, FASTEST, viscous=viscous)
    assert found.passive
    assert found.ranges == ()
    assert found.sentence == "The friction is passive at all speeds up to 10 rad/s."


def test_the_ends_are_those_of_the_dissipation(servo_friction):
    ((low, high),) = actuators.passivity(servo_friction, FASTEST).ranges
    z = jnp.linspace(-3, 3, 100_001)

    def least(v):
        return float(jnp.min(servo_friction.dissipation(v, z)))

    for end, inward in ((low, 1), (high, -1)):
        assert least(end + inward * 1e-3) < 0
        assert least(end - inward * 1e-3) >= 0


def test_a_range_that_the_fastest_speed_cuts(servo_friction):
    ((_, high),) = actuators.passivity(servo_friction, 0.6).ranges
    assert high == 0.6


def test_a_narrow_range_is_not_missed(servo_friction):
    """Where the largest surplus just passes zero, at the damping that makes it do so."""
    v = jnp.linspace(0.3, 0.9, 600_001)
    weak = with_damping_velocity(servo_friction, 0.5)

    def largest(damping):
        one, level = damping * jnp.exp(-((v / 0.5) ** 2)), weak.level(v)
        return jnp.max(one**2 * v - 4 * level * (one + weak.viscous))

    limit = brentq(lambda damping: float(largest(damping)), 1.0, 10.0, xtol=1e-13)
    for factor, passive in ((1 - 2e-4, True), (1 + 1e-6, False)):
        friction = eqx.tree_at(lambda f: f.damping, weak, jnp.asarray(factor * limit))
        found = actuators.passivity(friction, FASTEST)
        assert found.passive == passive
    ((low, high),) = found.ranges
    assert high - low < 0.02


def test_each_direction_for_itself(servo_friction):
    friction = eqx.tree_at(
        lambda f: (f.coulomb, f.stiction),
        servo_friction,
        (jnp.array([0.0771550, 0.4]), jnp.array([0.4318759, 0.45])),
    )
    found = actuators.passivity(friction, FASTEST)
    np.testing.assert_allclose(found.ranges, [(0.345, 0.791)], atol=5e-4)


def test_a_viscous_torque_of_any_exponent(servo_friction):
    linear = eqx.tree_at(
        lambda f: f.viscous_exponent, servo_friction, jnp.array(1.0), is_leaf=lambda x: x is None
    )
    assert actuators.passivity(linear, FASTEST) == actuators.passivity(servo_friction, FASTEST)


@pytest.mark.parametrize("fastest", [0.0, -1.0, np.nan, np.ones(2)])
def test_bad_speeds(servo_friction, fastest):
    with pytest.raises(ValueError, match="The fastest speed"):
        actuators.passivity(servo_friction, fastest)
