"""Robots from files with servos in their joints."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from scipy.integrate import solve_ivp

import jaxgrip as jg
from jaxgrip.actuators import Controller, GeneralizedMaxwell, LuGre, Motor, Servo, simulate
from jaxgrip.models import with_servos

UR5 = Path(__file__).parents[2] / "configs" / "robots" / "ur5.urdf"

# Two links that move in a vertical plane, with what a file may say of their drives.
ARM = """
<mujoco>
  <compiler angle="radian"/>
  <worldbody>
    <body name="upper">
      <joint name="shoulder" axis="0 1 0" armature="0.05" damping="0.4" frictionloss="0.3"
             actuatorfrcrange="-6 6"/>
      <inertial pos="0.1 0 0" mass="0.5" diaginertia="0.001 0.002 0.002"/>
      <body name="lower" pos="0.25 0 0">
        <joint name="elbow" axis="0 1 0" armature="0.02" damping="0.1" frictionloss="0.1"
               actuatorfrcrange="-3 3"/>
        <inertial pos="0.08 0 0" mass="0.2" diaginertia="0.0004 0.0008 0.0008"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.fixture(scope="module")
def robot(tmp_path_factory):
    path = tmp_path_factory.mktemp("arm") / "arm.xml"
    path.write_text(ARM)
    return jg.rigid.read_mjcf(path)


FRICTION = {
    "coulomb": 0.06,
    "stiction": 0.09,
    "viscous": 0.6,
    "stiffness": 1e3,
    "stribeck_velocity": 0.1,
    "damping_velocity": 0.5,
}


def stiff_servo(**parts):
    """A servo with the stiffness of a metal gear and of dry friction as measured on such."""
    return Servo(
        LuGre.from_inertia(inertia=0.028, **FRICTION),
        GeneralizedMaxwell(300.0, (100.0,), (1.0,)),
        0.028,
        2.9,
        **parts,
    )


POSITION = Controller.position(5.0)


def test_a_controller_gets_the_drive_of_the_file(robot):
    """Armature, friction, damping and effort are those of the servo, and of nothing else."""
    arm = with_servos(robot, POSITION)
    assert arm.names == ("shoulder", "elbow")
    assert arm.joints == (0, 1)
    assert arm.notes == ()
    np.testing.assert_allclose(arm.servo.inertia, [0.05, 0.02])
    np.testing.assert_allclose(arm.servo.friction.viscous, [0.4, 0.1])
    np.testing.assert_allclose(arm.servo.friction.coulomb, [0.3, 0.1])
    np.testing.assert_allclose(arm.servo.friction.stiction, [0.3, 0.1])
    np.testing.assert_allclose(arm.servo.stall_torque, [6.0, 3.0])
    assert arm.plant.tree.passive is None


def test_a_servo_replaces_the_drive_of_the_file(robot):
    """In the joints with a servo only, with a sentence, and no more torque than the effort."""
    servo = stiff_servo(controller=POSITION)
    arm = with_servos(robot, {"elbow": dataclasses.replace(servo, stall_torque=jnp.asarray(4.0))})
    assert arm.joints == (1,)
    np.testing.assert_allclose(arm.plant.tree.passive.armature, [0.05, 0.0])
    np.testing.assert_allclose(arm.plant.tree.passive.damping, [0.4, 0.0])
    np.testing.assert_allclose(arm.plant.tree.passive.friction, [0.3, 0.0])
    np.testing.assert_allclose(arm.servo.inertia, [0.028])
    np.testing.assert_allclose(arm.servo.controller.duty_limit, [0.75])
    (note,) = arm.notes
    assert note == (
        "The servo of joint 'elbow' replaces its armature 0.02, damping 0.1, friction 0.1."
    )
    motor = Motor(torque_per_volt=0.4, back_emf=1.0, resistance=2.5)
    driven = with_servos(robot, stiff_servo(controller=POSITION, motor=motor))
    # Torque of a motor: k_V R i.
    np.testing.assert_allclose(0.4 * 2.5 * driven.servo.controller.current_limit, [6.0, 3.0])


def test_the_drive_of_the_file_in_motion(robot):
    """With stiff gear and bristles the arm moves as the tree with the file's drive under PD torque.

    An independent way: the tree's own armature, damping and smooth friction, and no servo at all.
    """
    arm = with_servos(robot, Controller.position(8.0, derivative=0.4))
    target = np.array([0.4, -0.3])
    times = np.linspace(0.0, 0.5, 6)
    motion = arm.simulate(jg.actuators.rigs.constant(target), times)
    assert int(motion.stats["num_steps"]) < 5000

    def torque(t, q, qd):
        duty = 8.0 * (jnp.asarray(target) - q) - 0.4 * qd
        return jnp.array([6.0, 3.0]) * jnp.clip(duty, -1.0, 1.0)

    alone = jg.rigid.simulate(
        robot.tree, jnp.zeros(2), jnp.zeros(2), jnp.asarray(times), torque, rtol=1e-8, atol=1e-8
    )
    np.testing.assert_allclose(motion.q, alone.q, atol=1.5e-2)


@pytest.fixture(scope="module")
def ur5():
    return jg.rigid.read_urdf(UR5)


START = jnp.array([0.0, -1.0, 1.0, -1.5, -1.5, 0.0])


def towards(goal, t, q, qd):
    return goal


@pytest.mark.long
def test_six_stiff_servos_against_radau(ur5):
    """The motion of an arm in both kinds of steps, against SciPy on equations written out anew."""
    light = jax.tree.map(lambda x: x, ur5.tree)
    light = dataclasses.replace(light, mass=light.mass / 40, inertia=light.inertia / 40)
    arm = with_servos(light, stiff_servo(controller=POSITION))
    goal = START + jnp.array([0.2, -0.1, 0.15, 0.1, -0.2, 0.3])
    times = np.linspace(0.0, 0.15, 4)
    acceleration = jax.jit(lambda q, qd, tau: jg.rigid.forward_dynamics(light, q, qd, tau))
    f, damping = FRICTION, 2 * np.sqrt(FRICTION["stiffness"] * 0.028)

    def rates(t, x):
        q, qd, angle, speed, z, e = x.reshape(6, 6)
        duty = np.clip(5.0 * (np.asarray(goal) - q), -1.0, 1.0)
        twist = angle - q
        torque = 300.0 * twist + 100.0 * (twist - e)
        level = f["coulomb"] + (f["stiction"] - f["coulomb"]) * np.exp(
            -((speed / f["stribeck_velocity"]) ** 2)
        )
        bending = speed - np.abs(speed) * z / level
        faded = damping * np.exp(-((speed / f["damping_velocity"]) ** 2))
        drag = z + faded * bending + f["viscous"] * speed
        own = (2.9 * duty - torque - drag) / 0.028
        qdd = np.asarray(acceleration(q, qd, torque))
        return np.concatenate(
            [qd, qdd, speed, own, f["stiffness"] * bending, (twist - e) / (1.0 / 100.0)]
        )

    start = np.concatenate([START, np.zeros(6), START, np.zeros(18)])
    found = solve_ivp(
        rates, (0.0, times[-1]), start, method="Radau", rtol=1e-8, atol=1e-10, t_eval=times
    )
    command = Partial(towards, goal)
    motion = arm.simulate(command, times, q0=START)
    np.testing.assert_allclose(motion.q, found.y[:6].T, atol=1e-6)
    # Gears and bristles ring and slip, but neither makes Newton's method the limit of a step.
    rough = arm.simulate(command, times, q0=START, rtol=1e-3, atol=1e-5)
    assert int(rough.stats["num_steps"]) < int(motion.stats["num_steps"]) / 4
    fixed = arm.simulate_fixed(np.tile(goal, (150, 1)), 1e-3, q0=START)
    np.testing.assert_allclose(fixed.q[::50], found.y[:6].T, atol=2e-4)


def test_some_joints_and_other_plants(robot):
    """Undriven joints move freely; a plant without inverse dynamics gives the same motion."""
    arm = with_servos(robot, {"shoulder": stiff_servo(controller=POSITION)})
    command, times = jg.actuators.rigs.constant([0.3]), np.linspace(0.0, 0.2, 5)
    motion = arm.simulate(command, times)
    plain = Partial(jg.rigid.forward_dynamics, arm.plant.tree)
    same = simulate(plain, arm.servo, command, times, joints=arm.joints, q0=arm.start)
    np.testing.assert_allclose(motion.q, same.q, atol=1e-7)
    assert np.ptp(motion.q[:, 1]) > 0.02


@pytest.mark.parametrize(
    ("servos", "words"),
    [
        ({"elbo": POSITION}, "coordinate is called 'elbo'; perhaps 'elbow'"),
        ({}, "There are no servos"),
        ({"elbow": 3.0}, "Joint 'elbow' has 3.0; give a Servo or a Controller"),
        ({"elbow": stiff_servo()}, "servo of joint 'elbow' has no controller"),
        (
            {"elbow": POSITION, "shoulder": Controller.position(1.0, 1.0)},
            "Servo 1 has other parts than servo 0",
        ),
    ],
)
def test_bad_servos(robot, servos, words):
    with pytest.raises(ValueError, match=words):
        with_servos(robot, servos)


def test_a_file_without_a_drive(ur5):
    with pytest.raises(ValueError, match="no armature of joint 'shoulder_pan'"):
        with_servos(ur5, POSITION)
    with pytest.raises(ValueError, match="needs coordinates whose rates"):
        jg.rigid.Plant(jg.rigid.read_urdf(UR5, floating=True).tree)
