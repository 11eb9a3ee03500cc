import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip import actuators

SPEEDS = np.linspace(0, 10, 1001)


def with_damping_velocity(friction, velocity):
    return eqx.tree_at(lambda f: f.damping_velocity, friction, jnp.asarray(velocity))


def test_the_servo_can_give_energy(servo_friction):
    found = actuators.passivity(servo_friction, SPEEDS)
    assert not found.passive
    np.testing.assert_allclose(found.ranges, [(0.345, 0.791)], atol=5e-4)
    assert "from 0.3451 to 0.7911 rad/s" in found.sentence


def test_the_bristles_alone_can_give_more(servo_friction):
    found = actuators.passivity(servo_friction, SPEEDS, viscous=False)
    np.testing.assert_allclose(found.ranges, [(0.256, 1.086)], atol=5e-4)


@pytest.mark.parametrize("velocity", [0.5, 0.3, 0.05])
@pytest.mark.parametrize("viscous", [True, False])
def test_damping_that_fades_soon_is_passive(servo_friction, velocity, viscous):
    friction = with_damping_velocity(servo_friction, velocity)
    found = actuators.passivity(friction, SPEEDS, viscous=viscous)
    assert found.passive
    assert found.ranges == ()
    assert found.sentence == "The friction is passive at all speeds from 0 to 10 rad/s."


def test_the_ends_are_those_of_the_dissipation(servo_friction):
    ((low, high),) = actuators.passivity(servo_friction, SPEEDS).ranges
    z = jnp.linspace(-3, 3, 100_001)

    def least(v):
        return float(jnp.min(servo_friction.dissipation(v, z)))

    for end, inward in ((low, 1), (high, -1)):
        assert least(end + inward * 1e-3) < 0
        assert least(end - inward * 1e-3) >= 0


def test_a_range_that_the_speeds_cut(servo_friction):
    found = actuators.passivity(servo_friction, np.linspace(0.5, 0.6, 11))
    assert found.ranges == ((0.5, 0.6),)


def test_each_direction_for_itself(servo_friction):
    friction = eqx.tree_at(
        lambda f: (f.coulomb, f.stiction),
        servo_friction,
        (jnp.array([0.0771550, 0.4]), jnp.array([0.4318759, 0.45])),
    )
    found = actuators.passivity(friction, np.linspace(-10, 10, 2001))
    np.testing.assert_allclose(found.ranges, [(0.345, 0.791)], atol=5e-4)


def test_a_viscous_torque_of_any_exponent(servo_friction):
    linear = eqx.tree_at(
        lambda f: f.viscous_exponent, servo_friction, jnp.array(1.0), is_leaf=lambda x: x is None
    )
    assert actuators.passivity(linear, SPEEDS) == actuators.passivity(servo_friction, SPEEDS)


@pytest.mark.parametrize("speeds", [[0.0], [0.0, 0.0], [1.0, 0.0], [0.0, np.nan], [[0.0, 1.0]]])
def test_bad_speeds(servo_friction, speeds):
    with pytest.raises(ValueError, match="speeds must be a row of two or more finite, increasing"):
        actuators.passivity(servo_friction, np.array(speeds))
