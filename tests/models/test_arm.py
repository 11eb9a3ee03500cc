"""The fastest motion of an arm: closed forms of one joint, its derivatives, refusals."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq

import jaxgrip as jg
from jaxgrip.models import arm

UR5 = Path(__file__).parents[2] / "configs" / "robots" / "ur5.urdf"
# Of the largest speed, within which dry friction turns its sign.
SHARE = 1.0 / 5.0
# Enough for one joint.
SMALL = jg.ocp.Solver(jg.ocp.Transcription(intervals=60), starts=1, arcs=6)


def slide(mass=2.0):
    part = jg.rigid.Placement(
        "slide", None, np.zeros(3), mass, np.zeros(3), np.ones(3), (1.0, 0, 0), joint="prismatic"
    )
    return jg.rigid.from_placements([part])


def planar(gravity=(0.0, 0.0, 0.0), axis=(0.0, 0.0, 1.0), stiffness=0.0):
    """Two equal links with parallel axes, and a spring at the second."""
    given = {"com": (0.2, 0.0, 0.0), "inertia": (0.01, 0.03, 0.03), "mass": 2.0, "axis": axis}
    upper = jg.rigid.Placement("upper", None, np.zeros(3), joint_name="shoulder", **given)
    fore = jg.rigid.Placement(
        "fore", "upper", np.array([0.4, 0.0, 0.0]), joint_name="elbow", stiffness=stiffness, **given
    )
    return jg.rigid.from_placements([upper, fore], gravity)


def test_dry_friction_turns_its_sign_within_a_share_of_the_largest_speed():
    """Of the mean one where speeds have no bound, and never within less than the tree's own."""
    tree = jg.rigid.with_passive(slide(), friction=0.5, friction_speed=0.01)
    given = {"torque": np.array([4.0]), "final_time": 2.0}

    def width(tree=tree, **more):
        problem = arm.point_to_point(tree, np.zeros(1), np.ones(1), **given, **more)
        return float(problem.dynamics.tree.passive.friction_speed[0])

    np.testing.assert_allclose(width(speed=np.array([3.0])), SHARE * 3.0)
    np.testing.assert_allclose(width(), SHARE * 2.0 * 0.5)
    assert width(friction_speed=np.array([0.02])) == 0.02
    assert width(jg.rigid.with_passive(tree, friction=0.5, friction_speed=9.0)) == 9.0
    with pytest.raises(ValueError, match="friction_speed"):
        width(friction_speed=np.zeros(1))


@pytest.mark.long
def test_least_time_of_a_slide_with_dry_friction():
    """All force until the speed at which all force backwards stops it at the end."""
    mass, force, friction, distance = 2.0, 4.0, 1.0, 1.0

    def integral(rate, width, top, sign):
        def slowness(v):
            return rate(v) * mass / (force + sign * friction * np.tanh(v / width))

        return quad(slowness, 0.0, top, epsabs=1e-13, epsrel=1e-12, limit=500)[0]

    def least_time(width):
        def missing(top):
            return sum(integral(lambda v: v, width, top, sign) for sign in (-1, 1)) - distance

        top = brentq(missing, 0.1, 5.0, xtol=1e-13)
        return sum(integral(lambda v: 1.0, width, top, sign) for sign in (-1, 1))

    coulomb = np.sqrt(2.0 * distance * mass * (1 / (force - friction) + 1 / (force + friction)))
    np.testing.assert_allclose(least_time(1e-4), coulomb, rtol=1e-3)
    tree = jg.rigid.with_passive(slide(mass), friction=friction, friction_speed=0.3)
    ends = np.zeros(1), np.ones(1)
    limits = {"torque": np.array([force]), "friction_speed": np.array([0.3])}
    solution = arm.fastest_motion(tree, *ends, **limits, effort=0.0, solver=SMALL)
    assert solution.certificate.passed
    np.testing.assert_allclose(solution.final_time, least_time(0.3), rtol=1e-9)
    stopped = dataclasses.replace(SMALL.transcription, max_steps=2)
    solver = dataclasses.replace(SMALL, transcription=stopped, max_transcriptions=1)
    with pytest.raises(jg.ocp.SolveError, match="The dry friction of 'slide' may be the reason"):
        arm.fastest_motion(tree, *ends, **limits, effort=0.0, solver=solver)


def slide_motion(speed, effort):
    force, ends = 4.0 * np.ones(1), (np.zeros(1), np.ones(1))
    solution = arm.fastest_motion(
        slide(), *ends, torque=force, speed=np.array([speed]), effort=effort, solver=SMALL
    )
    assert solution.certificate.passed
    return solution


@pytest.mark.long
def test_least_time_with_a_bounded_force():
    """T = 2 sqrt(d m / f), half with all force forwards, half with all backwards."""
    solution = slide_motion(speed=10.0, effort=0.0)
    time = 2.0 * np.sqrt(1.0 * 2.0 / 4.0)
    np.testing.assert_allclose(solution.final_time, time, rtol=1e-11)
    np.testing.assert_allclose(solution.switching_times, [0.5 * time], rtol=1e-10)
    np.testing.assert_allclose(np.abs(solution.u), 1.0, rtol=1e-12)


@pytest.mark.long
def test_least_time_with_a_bounded_speed():
    """T = d / v + v m / f without effort; weighed with w the force goes to zero in 2 w v m / f.

    There the costate of the speed has the slope 1 / v, since that of the place is -1 / v while the
    speed is constant. The force is full until t1 = v m / f - w v m / f.
    """
    v, w, a = 0.8, 0.01, 4.0 / 2.0
    fall = 2.0 * w * v / a
    full, reached = v / a - 0.5 * fall, v / a + 0.5 * fall
    distance = 0.5 * a * full**2 + v * fall - a * fall**2 / 6.0
    time = 2.0 * reached + (1.0 - 2.0 * distance) / v
    solution = slide_motion(speed=v, effort=w)
    np.testing.assert_allclose(time, 1.0 / v + v / a, rtol=1e-5)
    np.testing.assert_allclose(solution.final_time, time, rtol=1e-10)
    effort = 2.0 * (full + fall / 3.0)
    np.testing.assert_allclose(solution.objective, time + w * effort, rtol=1e-10)
    switches = [full, reached, time - reached, time - full]
    for switch in switches:
        assert np.abs(np.asarray(solution.switching_times) - switch).min() < 1e-8


@pytest.mark.long
def test_least_time_of_one_joint_without_a_bound_on_its_speed():
    """T = 2 sqrt(angle J / torque), with the inertia J = I + m r^2 about a vertical axis."""
    link = jg.rigid.Placement("link", None, np.zeros(3), 2.0, (0.3, 0.0, 0.0), (0.01, 0.05, 0.05))
    ends = np.zeros(1), np.array([1.5])
    tree = jg.rigid.from_placements([link])
    solution = arm.fastest_motion(tree, *ends, torque=3.0 * np.ones(1), effort=0.0)
    assert solution.certificate.passed
    time = 2.0 * np.sqrt(1.5 * (0.05 + 2.0 * 0.09) / 3.0)
    np.testing.assert_allclose(solution.final_time, time, rtol=1e-11)


UP = np.array([np.pi / 2, 0.0])
LIFTED = {"gravity": (0.0, 0.0, -9.81), "axis": (0.0, -1.0, 0.0)}


@pytest.mark.parametrize(
    ("model", "given", "sentence"),
    [
        (
            LIFTED,
            {"torque": np.array([20.0, 3.0])},
            "Joint 'elbow' needs 3.92 N m to hold the pose `start`, but has 3 N m at most",
        ),
        (
            LIFTED,
            {"torque": np.array([15.0, 8.0]), "start": UP, "end": np.zeros(2)},
            "Joint 'shoulder' needs 15.7 N m to hold the pose `end`, but has 15 N m at most",
        ),
        (
            {"stiffness": 40.0},
            {"end": np.array([0.0, 0.6])},
            "Joint 'elbow' needs 24 N m to hold the pose `end`, but has 20 N m at most",
        ),
        (
            {},
            dict.fromkeys(("start", "end", "torque"), np.ones(3)),
            r"start has the shape \(3,\); it must be \(2,\)",
        ),
        ({}, {"end": np.array([np.nan, 0.0])}, "end is not finite"),
        ({}, {"end": np.zeros(2)}, "start and end are the same pose"),
        ({}, {"torque": np.array([1.0, 0.0])}, "torque is .* must be positive"),
        ({}, {"speed": np.array([1.0, 0.0])}, r"speed is \[1.0, 0.0\]; it must be positive"),
        ({}, {"effort": -1.0}, "effort is -1; it must not be negative"),
        (
            {},
            {"position": (-np.ones(2), 0.5 * np.ones(2)), "end": np.ones(2)},
            r"final_state\[0\]",
        ),
    ],
)
def test_bad_statements_get_a_sentence(model, given, sentence):
    given = {"start": np.zeros(2), "end": np.array([0.0, 0.1]), "torque": np.full(2, 20.0)} | given
    tree, start, end = planar(**model), given.pop("start"), given.pop("end")
    with pytest.raises(ValueError, match=sentence):
        arm.point_to_point(tree, start, end, **given).check()


def against_differences(time, values, step):
    """Derivative of a function of (k,) numbers, and its central difference along every one."""
    slope = jax.grad(time)(values)
    for k, value in enumerate(values):
        change = step * float(value) * jnp.eye(len(values))[k]
        difference = (time(values + change) - time(values - change)) / (2.0 * step * float(value))
        np.testing.assert_allclose(slope[k], difference, rtol=1e-6)


@pytest.mark.long
@pytest.mark.soak
def test_derivatives_of_the_fastest_time():
    """By length of the upper arm, payload and the torque of the shoulder."""

    def time(values):
        length, mass, torque = values
        tree = planar()
        tree = dataclasses.replace(tree, translation=tree.translation * length)
        tree = jg.rigid.with_payload(tree, "fore", mass, (0.4, 0.0, 0.0))
        return arm.fastest_motion(
            tree,
            np.array([0.0, 0.3]),
            np.ones(2),
            torque=jnp.stack([torque, jnp.array(8.0)]),
            speed=np.array([2.0, 2.5]),
        ).final_time

    against_differences(time, jnp.array([1.0, 0.5, 20.0]), 1e-4)


def ur5(joints, length, payload):
    """The first joints of a UR5 with lengths times `length`, its limits, and a payload [kg]."""
    found = jg.rigid.read_urdf(UR5)
    tree = jg.rigid.lock(found.tree, dict.fromkeys(found.joints[joints:], 0.0))
    tree = dataclasses.replace(tree, translation=tree.translation * length)
    limits = {"torque": found.effort[:joints], "speed": found.velocity[:joints]}
    return jg.rigid.with_payload(tree, "tool0", payload), limits


@pytest.mark.long
def test_fastest_motion_of_three_joints_of_a_ur5():
    """0.416431: an implicit midpoint rule with 320 intervals gives 0.41643517, an interior-point
    method in CasADi; its error falls with their square."""
    tree, limits = ur5(3, 1.0, 0.0)
    solution = arm.fastest_motion(tree, np.zeros(3), np.ones(3), **limits, effort=0.01)
    assert solution.certificate.passed
    np.testing.assert_allclose(solution.final_time, 0.416431, atol=1e-5)
    # At 3.15 rad/s all the way.
    assert solution.final_time > 1.0 / 3.15


@pytest.mark.long
def test_fastest_motion_of_a_ur5():
    """0.43731943 and 0.43732017: collocation with 320 and 80 intervals by CasADi and IPOPT
    (`experiments/benchmarks/casadi_robot.py`)."""
    tree, limits = ur5(6, 1.0, 0.0)
    solution = arm.fastest_motion(tree, np.zeros(6), np.ones(6), **limits)
    assert solution.certificate.passed
    assert solution.objective < 0.43731943
    np.testing.assert_allclose(solution.objective, 0.43731943, rtol=2e-7)


@pytest.mark.long
@pytest.mark.soak
@pytest.mark.parametrize("joints", [3, 6])
def test_derivatives_of_the_fastest_time_of_a_ur5(joints):
    """By lengths, payload and the torque of the shoulder."""

    def time(values):
        length, mass, torque = values
        tree, limits = ur5(joints, length, mass)
        limits["torque"] = jnp.asarray(limits["torque"]).at[1].set(torque)
        return arm.fastest_motion(tree, np.zeros(joints), np.ones(joints), **limits).final_time

    against_differences(time, jnp.array([1.0, 2.0, 150.0]), 1e-4)
