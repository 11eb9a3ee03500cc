"""Friction and servos of joints of systems, against the one-mass rigs of `actuators`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip import actuators, joints, mechanism
from jaxgrip.actuators import LuGre, rigs
from jaxgrip.config import ConfigError
from jaxgrip.joints import Frame
from jaxgrip.mechanism import Applied, Connection, Part, System
from jaxgrip.models import servo_ax12

G, MASS, MU = 9.81, 2.0, 0.3
SLOPES = (10.0, 25.0)
INERTIA, ARM = 0.06, 0.2
LAW = {"coulomb": 0.1, "stiction": 0.2, "stiffness": 20.0, "damping": 0.5, "viscous": 0.02}
DRIVE = {"gain": 5.0, "target": 1.0, "damping": 0.1}
TIMES = np.linspace(0.0, 1.0, 201)


def lugre(**numbers):
    return LuGre(**LAW | {"stribeck_velocity": 0.1} | numbers)


def pendulum(name, com):
    """An arm of 1 kg on an axis along y, and its hinge."""
    part = Part(name, {"foot": AXIS}, mass=1.0, com=com, inertia=(0.001, 0.02, 0.02))
    return part, Connection(f"{name} hinge", joints.Hinge(), "ground.foot", f"{name}.foot")


AXIS = np.array([[0.0, 0, 0], [0, 1, 0], [0, 0, -1]])


def block(degrees):
    """A block on an incline, with Coulomb friction of the coefficient MU."""
    slope = np.deg2rad(degrees)
    rail = np.array([[0.0, 0, 0], [np.cos(slope), 0, -np.sin(slope)], [0, 1, 0]])
    name, level = f"block {degrees:g}", MU * MASS * G * np.cos(slope)
    law = lugre(coulomb=level, stiction=level, viscous=0.0, stiffness=1e4, damping=200.0)
    return (
        Part(name, {"rail": rail}, mass=MASS, inertia=(0.01, 0.01, 0.01)),
        Connection(f"guide {degrees:g}", joints.Guide(), f"ground.{name}", f"{name}.rail"),
        Applied(f"rub {degrees:g}", mechanism.LuGreFriction(law), f"guide {degrees:g}"),
        {name: rail},
    )


def driven(**numbers):
    return mechanism.ServoDrive(servo_ax12(), **DRIVE | numbers)


@pytest.fixture(scope="module")
def motion():
    """Two blocks on inclines, a pendulum with friction and one with a servo."""
    first, second = map(block, SLOPES)
    parts, connections = zip(
        pendulum("arm", (ARM, 0, 0)), pendulum("tool", (0, 0, -ARM)), strict=True
    )
    system = System(
        [first[0], second[0], *parts],
        [first[1], second[1], *connections],
        first[3] | second[3] | {"foot": AXIS},
        [
            first[2],
            second[2],
            Applied("bearing", mechanism.LuGreFriction(lugre()), "arm hinge"),
            Applied("servo", driven(), "tool hinge"),
        ],
        gravity=(0, 0, -G),
    )
    return mechanism.simulate(system, jnp.asarray(TIMES))


@pytest.mark.long
def test_a_block_sticks_below_the_angle_of_friction_and_slides_above(motion):
    """Above it accelerates by g (sin - mu cos) once the bristles slip."""
    stuck, sliding = (np.asarray(motion.coordinates[f"guide {x:g}"]) for x in SLOPES)
    slope = np.deg2rad(SLOPES)
    assert float(motion.states["rub 10"][-1]) == pytest.approx(
        MASS * G * np.sin(slope[0]), abs=1e-7
    )
    assert abs(stuck[-1, 1]) < 1e-9
    assert stuck[-1, 0] < 1e-3
    exact = G * (np.sin(slope[1]) - MU * np.cos(slope[1]))
    change = np.diff(sliding[100:, 1]) / np.diff(TIMES[100:])
    np.testing.assert_allclose(change, exact, rtol=1e-6)


@pytest.mark.long
def test_a_pendulum_with_friction_is_the_rig_of_actuators(motion):
    def weight(t, angle):
        return G * ARM * jnp.cos(angle)

    rig = rigs.slide(lugre(), INERTIA, weight, TIMES, rtol=1e-10, atol=1e-12)
    found = np.asarray(motion.coordinates["arm hinge"])
    np.testing.assert_allclose(found[:, 0], rig.angle, atol=2e-7)
    np.testing.assert_allclose(found[:, 1], rig.speed, atol=2e-6)
    np.testing.assert_allclose(motion.states["bearing"], rig.bristle, atol=1e-6)


@pytest.mark.long
def test_a_servo_is_the_rig_of_actuators(motion):
    def duty(t, q, qd):
        return jnp.tanh(DRIVE["gain"] * (DRIVE["target"] - q) - DRIVE["damping"] * qd)

    plant = rigs.Pendulum(INERTIA, G * ARM)
    rig = actuators.simulate(plant, servo_ax12(), duty, TIMES, q0=[0.0], rtol=1e-10, atol=1e-12)
    found = np.asarray(motion.coordinates["tool hinge"])
    np.testing.assert_allclose(found[:, 0], rig.q[:, 0], atol=2e-7)
    assert rig.servo.control is None
    for ours, theirs in zip(motion.states["servo"][:-1], rig.servo[:-1], strict=True):
        np.testing.assert_allclose(ours, theirs[:, 0], atol=2e-6)


@pytest.mark.long
def test_energy_is_what_the_motor_gives_and_friction_and_gear_take(motion):
    def dissipated(law, name, force):
        rate = motion.coordinates[name][:, 1]
        return jax.vmap(law.dissipation)(rate, motion.states[force])

    power = -sum(
        dissipated(block(x)[2].force.law, f"guide {x:g}", f"rub {x:g}") for x in SLOPES
    ) - dissipated(lugre(), "arm hinge", "bearing")
    servo, state = driven(), motion.states["servo"]
    value, rate = motion.coordinates["tool hinge"].T
    duty = jax.vmap(servo.duty)(value, rate)
    torque = jax.vmap(servo.servo.motor_torque)(duty, state.speed)
    power = power + torque * state.speed
    power = np.asarray(power - jax.vmap(servo.servo.dissipation)(state, value, rate))
    # Simpson's rule over the time after bristles and gear have settled.
    late = slice(40, None)
    pieces = (power[late][:-2:2] + 4 * power[late][1:-1:2] + power[late][2::2]) / 3
    work = np.concatenate([[0.0], np.cumsum(pieces)]) * (TIMES[1] - TIMES[0])
    change = np.asarray(motion.energy[late][::2] - motion.energy[late][0])
    np.testing.assert_allclose(change, work, atol=2e-5)
    assert np.abs(work).max() > 1.0


def at(force, rate):
    """Torque and rates of the state of a force along a hinge, at rest at angle zero."""
    bound, place = force.along(joints.Hinge()), Frame(jnp.zeros(3), jnp.eye(3))
    turning = rate * jnp.eye(6)[5]
    wrench, change = jax.jit(lambda f: f.rates(place, turning, f.start(place)))(bound)
    np.testing.assert_allclose(wrench[:5], 0.0, atol=1e-15)
    return wrench[5], change


def test_forces_of_joints_are_the_laws_of_actuators():
    law, rate = lugre(), jnp.asarray(0.4)
    torque, change = at(mechanism.LuGreFriction(law), rate)
    friction, bent = law.rates(rate, 0.0)
    assert (float(torque), float(change)) == pytest.approx((-float(friction), float(bent)))
    torque, change = at(mechanism.Friction(0.3, 0.1, 0.05), rate)
    assert float(torque) == pytest.approx(-0.3 * np.tanh(4.0) - 0.02)
    assert change is None
    servo = servo_ax12()
    torque, change = at(driven(), rate)
    rest = servo.rest(jnp.zeros(()))
    duty = jnp.tanh(5.0 - 0.1 * rate)
    rates, expected = jax.jit(lambda *x: servo.rates(*x))(rest, duty, jnp.zeros(()), rate)
    assert float(torque) == pytest.approx(float(expected))
    assert float(change.speed) == pytest.approx(float(rates.speed))


def test_a_servo_counts_full_turns():
    """Past half a turn the hinge measures a negative angle; the flywheel does not."""
    force = driven().along(joints.Hinge())
    state = servo_ax12().rest(jnp.asarray(3.2))
    torque, _ = force.effort_at(jnp.asarray(3.2 - 2 * np.pi), jnp.zeros(()), state)
    assert float(torque) == pytest.approx(0.0, abs=1e-12)


FILE = """
[ground]
foot = [[0, 0, 0], [0, 1, 0], [0, 0, -1]]

[[part]]
name = "arm"
attachments.foot = [[0, 0, 0], [0, 1, 0], [0, 0, -1]]

[[joint]]
name = "shoulder"
kind = "hinge"
first = "ground.foot"
second = "arm.foot"

[[force]]
name = "seal"
kind = "friction"
joint = "shoulder"
coulomb = 0.3
smoothing = 0.01

[[force]]
name = "bearing"
kind = "lugre_friction"
joint = "shoulder"
[force.law]
coulomb = 0.1
stiction = 0.2
stiffness = 20.0
damping = 0.5
stribeck_velocity = 0.1

[[force]]
name = "motor"
kind = "servo_drive"
joint = "shoulder"
gain = 5.0
target_deg = 60
[force.servo]
inertia = 0.018
stall_torque = 1.8
[force.servo.friction]
coulomb = 0.08
stiction = 0.43
viscous = 0.29
stiffness = 23.8
damping = 1.3
stribeck_velocity = 0.066
damping_velocity = 0.88
[force.servo.gear]
spring = 6.352
springs = [16.561, 1.072]
dampers = [1.341, 32.598]
"""


@pytest.mark.parametrize("ending", ["toml", "json"])
def test_they_are_in_files(tmp_path, ending):
    path, copy = tmp_path / "arm.toml", tmp_path / f"copy.{ending}"
    path.write_text(FILE)
    system = mechanism.read(path)
    _, bearing, motor = (applied.force for applied in system.forces)
    assert float(bearing.law.stiffness) == 20.0
    assert np.isinf(bearing.law.damping_velocity)
    assert float(motor.target) == pytest.approx(np.pi / 3)
    assert motor.servo.gear.springs.tolist() == [16.561, 1.072]
    mechanism.write(system, copy)
    again = mechanism.read(copy)
    assert jax.tree.structure(again) == jax.tree.structure(system)
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(system), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("coulomb = 0.3", "coulomb = -1", r"force 1 .seal.: The Coulomb level of a friction is -1"),
        ("stiction = 0.2", "stiction = 0.05", "bearing.: law: stiction is 0.05 and coulomb is 0.1"),
        ("stall_torque = 1.8", "stal = 1.8", "motor.: servo: stal is not a known key"),
        ("spring = 6.352", "spring = -1", "servo: gear: The spring E0 is -1"),
        ("gain = 5.0", "", "motor.: gain is missing"),
        (
            "[force.law]",
            "[force.friction]",
            "bearing.: friction is not a known key; known here are",
        ),
    ],
)
def test_wrong_numbers_in_a_file_get_a_sentence(tmp_path, old, new, sentence):
    path = tmp_path / "arm.toml"
    path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(ConfigError, match=sentence):
        mechanism.read(path)


def test_wrong_laws_and_joints_get_a_sentence():
    with pytest.raises(ValueError, match=r"law of a friction is 0.3; it must be a LuGre"):
        mechanism.LuGreFriction(0.3)
    with pytest.raises(ValueError, match="servo of a joint is 3; it must be one Servo"):
        mechanism.ServoDrive(3, 1.0)
    motor = actuators.Motor(torque_per_volt=1.0, back_emf=1.0, resistance=1.0)
    servo = actuators.Servo(lugre(), actuators.hooke(5.0), 0.1, 1.0, motor=motor)
    with pytest.raises(ValueError, match="has a motor, which needs a supply; it must have none"):
        mechanism.ServoDrive(servo, 1.0)
    ball = Connection("ball", joints.Ball(), "ground.foot", "arm.foot")
    rub = Applied("rub", mechanism.Friction(1.0, 0.1), "ball")
    with pytest.raises(ValueError, match="Force 'rub': 'ball' is a ball, which has no single"):
        System([pendulum("arm", (0, 0, 0))[0]], [ball], {"foot": AXIS}, [rub])
