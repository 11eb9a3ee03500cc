import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import jaxgrip as jg
from jaxgrip.actuators import (
    LuGre,
    Motor,
    Servo,
    SourceAlgorithm,
    Supply,
    simulate,
    simulate_fixed,
    stack,
)


def driven(tree):
    return Partial(jg.rigid.forward_dynamics, tree)


def sway(amplitudes, t, q, qd):
    return amplitudes * jnp.sin(2 * jnp.pi * t)


def swing(amplitudes, t, q, qd):
    return amplitudes * jnp.sin(jnp.pi * t)


def small(scale):
    """The AX-12 scaled to the torques of a finger, on a motor."""
    friction = {
        **jg.models.servo.FRICTION,
        **{
            key: scale * jg.models.servo.FRICTION[key]
            for key in ("coulomb", "stiction", "stiffness")
        },
        # The back-EMF of the motor is part of the viscous friction of the source.
        "viscous": scale * (0.2870523 - 0.15 * 1.5),
        "damping_velocity": 0.5,
    }
    gear = {key: scale * np.asarray(value) for key, value in jg.models.servo.GEAR.items()}
    inertia = scale * 0.0180259
    return Servo(
        LuGre.from_inertia(inertia=inertia, **friction),
        jg.actuators.GeneralizedMaxwell(**gear),
        inertia,
        1.8 * scale,
        motor=Motor(
            torque_per_volt=0.15 * scale, back_emf=1.5, resistance=16.0 / scale, idle_current=0.05
        ),
    )


@pytest.fixture(scope="module")
def gripper():
    return jg.models.two_finger_gripper()


@pytest.fixture(scope="module")
def six():
    return stack([small(scale) for scale in (0.3, 0.6, 0.3, 0.25, 0.5, 0.2)])


@pytest.fixture(scope="module")
def start(gripper):
    fingers = [jg.models.gripper_finger(name) for name in "AB"]
    return jnp.concatenate([finger.start for finger in fingers])


SUPPLY = {"voltage": 12.0, "resistance": 0.5}
AMPLITUDES = (0.3, -0.2, 0.4, -0.3, 0.2, -0.4)


@pytest.fixture(scope="module")
def motion(gripper, six, start):
    command = Partial(sway, jnp.array(AMPLITUDES))
    times = jnp.linspace(0.0, 0.5, 1001)
    supply = Supply(**SUPPLY)
    return simulate(driven(gripper), six, command, times, q0=start, supply=supply)


@pytest.mark.long
def test_a_tree_of_one_pendulum():
    """The tree of the default arm moves as the default arm does."""
    arm = jg.models.servo_ax12_arm()
    mass, lever = 0.756, 0.155
    about_centre = arm.inertia - mass * lever**2
    tree = jg.rigid.from_placements(
        [
            jg.rigid.Placement(
                "arm",
                None,
                (0.0, 0.0, 0.0),
                mass,
                (0.0, 0.0, -lever),
                (about_centre, about_centre, 1e-3),
                axis=(0.0, 1.0, 0.0),
            )
        ]
    )
    servo = jg.models.servo_ax12()
    duties = 0.6 * np.sin(np.pi * 0.01 * np.arange(500))[:, None]
    q, same = (simulate_fixed(p, servo, duties, 0.01).q for p in (driven(tree), arm))
    np.testing.assert_allclose(q, same, rtol=0, atol=1e-10)
    # Independent values (SciPy's Radau).
    command, times = Partial(swing, jnp.array([1 / 1.8081276])), [0.0, 0.5, 1.0, 2.0, 5.0]
    q = simulate(driven(tree), servo, command, times, rtol=1e-8, atol=1e-10).q[1:, 0]
    published = [0.42859645, 0.66067554, -0.67450136, 0.67543609]
    np.testing.assert_allclose(q, published, rtol=0, atol=2e-8)


@pytest.mark.soak
def test_energy_of_a_gripper_driven_by_six(gripper, six, motion):
    """Growth of all energy is the work of the motors less the losses, which are no gain."""

    @jax.jit
    @jax.vmap
    def energies(q, qd, state, duty, voltage):
        def of_each(method, *rest):
            return jax.vmap(method)(six, *rest)

        stored = of_each(Servo.energy, state, q).sum()
        stored += jg.rigid.kinetic_energy(gripper, q, qd) + jg.rigid.potential_energy(gripper, q)
        torque = of_each(Servo.motor_torque, duty, state.speed, jnp.full_like(q, voltage))
        return stored, torque * state.speed, of_each(Servo.dissipation, state, q, qd)

    stored, power, lost = energies(*motion[1:5], motion.voltage)
    assert float(lost.min()) >= 0
    weights = np.ones(1001)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    balance = weights @ np.asarray((power - lost).sum(axis=1)) * 0.0005 / 3
    np.testing.assert_allclose(stored[-1] - stored[0], balance, rtol=1e-7)


@pytest.mark.long
def test_supply_of_a_gripper(six, motion):
    """The voltage falls by the resistance times the current that all motors take."""
    for k in (0, 250, 700):
        volts = motion.voltage[k]
        taken = jax.vmap(Motor.current, in_axes=(0, 0, None, 0))(
            six.motor, motion.duty[k], volts, motion.servo.speed[k]
        )
        np.testing.assert_allclose(volts, 12.0 - 0.5 * taken.sum(), rtol=1e-12)


@pytest.mark.long
def test_steps_of_a_gripper(gripper, six, start, motion):
    """The source's steps tend to the exact motion with order one."""
    errors = []
    for k in (1, 2):
        h = 5e-4 / k
        t = h * np.arange(1000 * k)[:, None]
        steps = simulate_fixed(
            driven(gripper),
            six,
            np.array(AMPLITUDES)[None] * np.sin(2 * np.pi * t),
            h,
            q0=start,
            supply=Supply(**SUPPLY),
            algorithm=SourceAlgorithm(),
        )
        errors.append(float(jnp.abs(steps.q[::k] - motion.q).max()))
    assert errors[0] < 2e-2
    np.testing.assert_allclose(errors[0] / errors[1], 2.0, rtol=0.1)


def test_some_joints_driven():
    """Of independent joints the driven ones move as alone, in the order of the servos."""
    arm = jg.models.servo_ax12_arm()
    servos = stack([jg.models.servo_ax12(), jg.models.servo_ax12(inertia=0.03)])
    t = 0.01 * np.arange(200)
    duties = np.stack([0.5 * np.sin(t), -0.3 * np.ones(200)], axis=1)
    motion = simulate_fixed(arm, servos, duties, 0.01, q0=np.zeros(3), joints=(2, 0))
    for k, joint in enumerate((2, 0)):
        servo = jax.tree.map(lambda leaf, k=k: leaf[k], servos)
        alone = simulate_fixed(arm, servo, duties[:, k : k + 1], 0.01)
        np.testing.assert_allclose(motion.q[:, joint], alone.q[:, 0], rtol=0, atol=1e-13)
        torque = motion.output_torque[:, k]
        np.testing.assert_allclose(torque, alone.output_torque[:, 0], rtol=0, atol=1e-12)
    assert float(jnp.abs(motion.q[:, 1]).max()) == 0.0


def test_one_servo_for_all_joints():
    """A single servo stands for equal ones at every joint."""
    arm, servo = jg.models.servo_ax12_arm(), jg.models.servo_ax12()
    duties = np.linspace(0.0, 0.5, 100)[:, None] * np.array([[1.0, -1.0]])
    one = simulate_fixed(arm, servo, duties, 0.01, q0=np.zeros(2))
    two = simulate_fixed(arm, stack([servo, servo]), duties, 0.01, q0=np.zeros(2))
    np.testing.assert_array_equal(one.q, two.q)
    np.testing.assert_allclose(one.q[:, 0], -one.q[:, 1], rtol=1e-12)
