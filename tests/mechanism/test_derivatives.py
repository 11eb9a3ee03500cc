"""Derivatives of systems by their numbers, and what traced numbers cannot be looked at for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip.mechanism as mechanism
from jaxgrip import joints
from jaxgrip.joints import Frame
from jaxgrip.mechanism import Connection, JointForce, Part, Spring, System, assemble

POINT = [[0.0, 0, 0]]
AXIS = [[0.0, 0, 0], [0, 1, 0], [1, 0, 0]]
INERTIA = (0.1, 0.1, 0.1)


def hanging(length, below=1.0):
    """A part on a rope, at some distance below the point that the rope hangs from."""
    part = Part("weight", {"eye": POINT}, position=(0.0, 0.0, -below), mass=1.0, inertia=INERTIA)
    rope = Connection("rope", joints.Rope(length), "ground.hook", "weight.eye")
    return System([part], [rope], {"hook": POINT})


def arm(angle=None, **options):
    """A pendulum about y, with a drive where an angle is given."""
    part = Part("arm", {"pin": AXIS}, mass=1.0, com=(0.5, 0, 0), inertia=INERTIA)
    found = [Connection("hinge", joints.Hinge(), "ground.pin", "arm.pin")]
    if angle is not None:
        found.append(Connection("drive", joints.Angle(angle), "ground.pin", "arm.pin"))
    return System([part], found, {"pin": AXIS}, **options)


@pytest.mark.parametrize("length", np.linspace(0.7, 2.3, 5))
def test_taut_ropes_have_the_derivative_of_a_distance(length):
    def distance(length):
        return jnp.linalg.norm(assemble(hanging(length, below=3.0)).poses.position[0])

    found, slope = jax.value_and_grad(distance)(length)
    np.testing.assert_allclose([found, slope], [length, 1.0], atol=1e-9)


@pytest.mark.long
def test_slack_ropes_are_found_below_derivatives_and_not_within_jit():
    def fall(length):
        found = mechanism.inverse_dynamics(hanging(length))
        return jnp.stack([found.poses.position[0, 2], found.acceleration[0, 2]])

    np.testing.assert_allclose(jax.jvp(fall, (2.0,), (1.0,)), [[-1, -9.81], [0, 0]], atol=1e-12)
    # A rope that is taut for certain needs no look; one that is slack gives no wrong number.
    assert np.isnan(jax.jit(fall)(2.0)).all()
    np.testing.assert_allclose(jax.jit(fall)(1.0), [-1.0, 0.0], atol=1e-12)


def geared(angle):
    """Two arms on parallel pins, coupled by a gear of ratio -2, the first driven."""
    parts = [
        Part(name, {"pin": AXIS}, position=(x, 0, 0), mass=1.0, com=(0.5, 0, 0), inertia=INERTIA)
        for name, x in (("a", 0.0), ("b", 2.0))
    ]
    found = [
        Connection("first", joints.Hinge(), "ground.one", "a.pin"),
        Connection("second", joints.Hinge(), "ground.two", "b.pin"),
        Connection("gear", joints.Gear(-2.0), "first", "second"),
        Connection("drive", joints.Angle(angle), "ground.one", "a.pin"),
    ]
    second = [[2.0, 0, 0], [2, 1, 0], [3, 0, 0]]
    return System(parts, found, {"one": AXIS, "two": second})


def test_a_gear_leaves_the_derivatives_of_the_start():
    def start(angle):
        return mechanism.compiled(assemble(geared(angle)), ("drive",)).start

    found, slope = jax.jvp(start, (0.3,), (1.0,))
    np.testing.assert_allclose([found, slope], [[0.3, -0.6], [1.0, -2.0]], atol=1e-12)


@pytest.mark.long
def test_a_gear_may_be_left_out():
    """The second arm then falls by itself, m g l cos(2 a) / I about y."""
    assembly = assemble(geared(0.3))
    found = mechanism.inverse_dynamics(assembly, drives={"gear": None})
    fall = 9.81 * 0.5 * np.cos(0.6) / 0.35
    np.testing.assert_allclose(found.acceleration[:, 4], [0.0, fall], atol=1e-9)
    with pytest.raises(ValueError, match="'gear' is a gear, which no function moves"):
        mechanism.inverse_dynamics(assembly, drives={"gear": lambda t: t})


def test_dependent_equations_as_many_as_coordinates():
    """A door on two balls at distance 1: at its hinges it cannot move, but it can turn."""
    z = [[0.0, 0, 1]]

    def door(y):
        part = Part("door", {"low": POINT, "high": z}, position=(0.01, y, 0.0))
        found = [
            Connection("low", joints.Ball(), "ground.low", "door.low"),
            Connection("high", joints.Ball(), "ground.high", "door.high"),
        ]
        return assemble(System([part], found, {"low": POINT, "high": [[0.0, 0, 1 + y]]})).poses

    found, slope = jax.jvp(lambda y: door(y).position, (0.0,), (0.0,))
    np.testing.assert_allclose([found, slope], 0.0, atol=1e-12)


def test_drives_start_where_the_system_is_assembled():
    assembly = assemble(arm(0.5))

    def angle(assembly, begin):
        found = mechanism.inverse_dynamics(assembly, drives={"drive": lambda t: begin + t})
        return found.coordinates["hinge"]

    with pytest.raises(mechanism.MechanismError, match="starts at 1, but"):
        angle(assembly, 1.0)
    within = jax.jit(angle)
    assert np.isnan(within(assembly, 1.0)).all()
    np.testing.assert_allclose(within(assembly, 0.5), [0.5, 1.0], atol=1e-12)


def test_parts_that_do_not_fit_do_not_move():
    """Two points of a part at distances to one point that differ by more than theirs."""
    part = Part("rod", {"a": POINT, "b": [[1.0, 0, 0]]}, mass=1.0, inertia=INERTIA)
    found = [
        Connection("one", joints.Distance(1.0), "ground.o", "rod.a"),
        Connection("two", joints.Distance(3.0), "ground.o", "rod.b"),
    ]
    assembly = assemble(System([part], found, {"o": [[0.0, 0, -1]]}), throw=False)
    assert not assembly.succeeded
    with pytest.raises(mechanism.MechanismError, match="do not fit"):
        mechanism.inverse_dynamics(assembly)


def test_springs_without_length_are_linear():
    def force(x):
        return Spring(4.0).wrench(Frame(x, jnp.eye(3)), jnp.zeros(6))[:3]

    for x in (jnp.zeros(3), jnp.array([1e-6, 0, 0])):
        np.testing.assert_allclose(force(x), -4.0 * x, atol=1e-18)
        np.testing.assert_allclose(jax.jacfwd(force)(x), -4.0 * np.eye(3), atol=1e-12)


@pytest.mark.parametrize("form", ["dot", "cross", "auto"])
def test_angles_without_sign_measure_what_they_ask_for(form):
    z = [[0.0, 0, 0], [0, 0, 1]]
    part = Part("rod", {"z": [[0, 0, 0], [np.sin(0.5), 0, np.cos(0.5)]]})
    found = [
        Connection("ball", joints.Ball(), "ground.z", "rod.z"),
        Connection("drive", joints.Angle(1.0, form), "ground.z", "rod.z"),
    ]
    assembly = assemble(System([part], found, {"z": z}))
    np.testing.assert_allclose(assembly.coordinate("drive"), 1.0, atol=1e-9)


@pytest.mark.long
def test_efforts_see_all_turns():
    """A torque -x on a free body: x = a cos w t, beyond half a turn, with x = a at the start."""
    w = np.sqrt(1 / (0.1 + 0.25))
    times = jnp.linspace(0, np.pi / 2 / w, 5)
    found = mechanism.simulate(
        arm(gravity=(0.0, 0, 0)),
        times,
        rates={"hinge": 4 * w},
        efforts={"hinge": lambda t, x, v: -x},
    )
    expected = 4 * np.sin(w * np.asarray(times))
    np.testing.assert_allclose(found.coordinates["hinge"][:, 0], expected, atol=1e-7)


def test_joint_forces_are_within_half_a_turn():
    force = JointForce(stiffness=2.0, rest=3.0).along(joints.Hinge())
    assert abs(float(force.effort_at(jnp.asarray(-3.0), jnp.asarray(0.0), None)[0])) < 2.0


def weighed(gravity):
    return assemble(arm(gravity=(0.0, 0.0, -gravity)))


def test_systems_without_loops_have_derivatives():
    """A horizontal arm starts to fall with m g l / I, l = 0.5 m, I = 0.35 kg m^2."""

    def fall(gravity):
        return mechanism.inverse_dynamics(weighed(gravity)).acceleration[0, 4]

    found, slope = jax.value_and_grad(fall)(9.81)
    np.testing.assert_allclose([found, slope], [9.81 / 0.7, 1 / 0.7], rtol=1e-12)


@pytest.mark.long
def test_motions_without_loops_have_derivatives():
    """A pendulum scales: angle(g, t) = angle(1, sqrt(g) t) from rest."""
    times = jnp.array([0.0, 0.3])

    def angle(gravity):
        found = mechanism.simulate(weighed(gravity), times)
        return found.coordinates["hinge"][1]

    slope, rate = jax.grad(lambda gravity: tuple(angle(gravity)), has_aux=True)(9.81)
    np.testing.assert_allclose(slope, rate * 0.3 / (2 * 9.81), rtol=1e-6)


def test_accelerations_that_are_not_finite_are_told():
    efforts = {"hinge": lambda t, x, v: jnp.sqrt(t - 1.0)}
    with pytest.raises(mechanism.MechanismError, match="accelerations are not finite"):
        mechanism.inverse_dynamics(arm(), efforts=efforts)
