"""The fastest motion of a robot from its file: configuration, limits, CSV file, what limits it."""

import csv
import os
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import xarray

import jaxgrip as jg
from experiments.robots import time_optimal
from jaxgrip import config
from jaxgrip.models import arm
from jaxgrip.report import Run

PATH = Path(__file__).parents[2] / "configs" / "robot_time_optimal.toml"
PANDA = PATH.parent / "robots" / "panda.urdf"
WRISTS = "hold_deg={wrist_1 = 0.0, wrist_2 = 0.0, wrist_3 = 0.0}"
THREE = "poses_deg=[[0.0, -60.0, 60.0], [60.0, -90.0, 90.0]]"
# A carriage with limits and a joint without end, which has none.
CRANE = """<robot name="crane">
  <link name="rail"/>
  <link name="carriage"><inertial><mass value="2"/>
    <inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
  <link name="boom"><inertial><origin xyz="0.3 0 0"/><mass value="1"/>
    <inertia ixx="0.1" ixy="0" ixz="0" iyy="0.1" iyz="0" izz="0.1"/></inertial></link>
  <joint name="travel" type="prismatic"><parent link="rail"/><child link="carriage"/>
    <axis xyz="1 0 0"/><limit lower="0.5" upper="2" velocity="0.8" effort="4"/></joint>
  <joint name="slew" type="continuous"><parent link="carriage"/><child link="boom"/>
    <axis xyz="0 0 1"/></joint>
</robot>"""


def settings(*overrides):
    return config.load(PATH, overrides)[0]


@pytest.fixture
def crane(tmp_path):
    """Function that reads the crane's configuration with these poses and further settings."""
    path = tmp_path / "crane.urdf"
    path.write_text(CRANE)

    def read(poses, *overrides):
        given = settings(f"robot={path}", f"poses_deg={poses}", *overrides)
        return time_optimal.Robot(given)

    return read


def test_limits_are_those_of_the_file_unless_given():
    robot = time_optimal.Robot(settings(WRISTS, THREE, "speed_limits={elbow = 2.0}"))
    assert robot.names == ["shoulder_pan", "shoulder_lift", "elbow"]
    np.testing.assert_array_equal(robot.torque, [150.0, 150.0, 150.0])
    np.testing.assert_array_equal(robot.speed, [3.15, 3.15, 2.0])
    np.testing.assert_allclose(robot.position[1], [2 * np.pi, 2 * np.pi, np.pi], rtol=1e-11)
    np.testing.assert_allclose(robot.poses[1], np.deg2rad([60.0, -90.0, 90.0]), rtol=1e-15)


def test_lengths_are_in_metres(crane):
    robot = crane("[[0.5, 0.0], [1.5, 90.0]]", "torque_limits={slew = 3.0}")
    assert robot.is_sliding.tolist() == [True, False]
    np.testing.assert_allclose(robot.poses[1], [1.5, np.pi / 2])
    np.testing.assert_array_equal(robot.torque, [4.0, 3.0])
    np.testing.assert_array_equal(robot.speed, [0.8, np.inf])
    held = crane("[[0.5], [1.5]]", "hold_deg={slew = 90.0}")
    np.testing.assert_allclose(held.tree.com[0], [0.0, 0.1, 0.0], atol=1e-15)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ((f"robot={PATH}",), r"robot: .*robot_time_optimal\.toml: is not valid XML"),
        ((f"robot={PATH.parent}",), "robot: .*configs: cannot be read: it is a folder"),
        (("robot=nowhere.urdf",), 'robot: there is no "nowhere.urdf" in'),
        (
            (WRISTS.replace("wrist_1", "wrist_l"),),
            "hold_deg: there is no joint 'wrist_l'; perhaps 'wrist_",
        ),
        (("torque_limits={elbov = 1.0}",), "torque_limits: there is no joint 'elbov'; perhaps"),
        (
            ("torque_limits={shoulder_lift = 9.0}",),
            r"poses_deg: Joint 'shoulder_lift' needs .* N m to hold pose 1, but has 9 N m at most",
        ),
        ((WRISTS,), "pose 1 has 6 entries; the robot has 3 joints: shoulder_pan, shoulder_lift"),
        (
            (WRISTS, THREE.replace("90.0]]", "200.0]]")),
            "in pose 2 joint 'elbow' is at 200 deg, outside its limits -180 and 180 deg",
        ),
        (
            (f"robot={PANDA}", f"poses_deg={[[0.0] * 7, [1.0] * 7]}"),
            "at 0 deg, outside its limits -176 and -3.999 deg",
        ),
        (("payload={mass = 1.0, frame = 'tool1'}",), "payload: There is no frame 'tool1'"),
        (("poses_deg=[[0.0, 0.0]]",), "poses_deg"),
        (("poses_deg=[[0.0, 0.0], [0.0, 0.0]]",), "poses 1 and 2 are the same"),
        (("effort=0.0",), "effort: must be greater than 0"),
        (("payload={mass = -1.0, frame = 'tool0'}",), "payload.mass: must be"),
    ],
)
def test_what_a_run_would_refuse_is_refused_when_the_configuration_is_read(overrides, sentence):
    with pytest.raises(config.ConfigError, match=sentence):
        settings(*overrides)


@pytest.mark.parametrize(("largest", "count"), [(1.5, 1), (90.0, 0)])
def test_poses_that_may_be_in_radians_are_doubted(largest, count):
    poses = f"poses_deg=[[0.0, -{largest}, {largest}], [0.5, -1.0, 1.0]]"
    doubts = settings(WRISTS, poses).doubts()
    assert len(doubts) == count
    assert all("further than 1.5 deg from zero" in each for each in doubts)


def test_a_configuration_beside_a_robot_of_its_own_is_read_from_anywhere(tmp_path, monkeypatch):
    """In no project, it has the experiments of this one."""
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "crane.urdf").write_text(CRANE)
    file = tmp_path / "my" / "robot.toml"
    file.write_text(
        'experiment = "robots/time_optimal"\nrobot = "crane.urdf"\n'
        "poses_deg = [[0.5, 0.0], [1.5, 90.0]]\ntorque_limits = {slew = 3.0}\n"
    )
    for here in (tmp_path, "/"):
        monkeypatch.chdir(here)
        task = config.find(Path(os.path.relpath(file)))
        assert task.root == PATH.parents[1]
        assert task.load()[0].robot == tmp_path / "my" / "crane.urdf"


@pytest.mark.parametrize(
    ("poses", "overrides", "sentence"),
    [
        ("[[0.5, 0.0], [1.5, 90.0]]", (), "torque_limits: the file has no limit for joint 'slew'"),
        ("[[0.5], [0.0]]", ("hold_deg={slew = 0.0}",), "at 0 m, outside its limits 0.5 and 2 m"),
    ],
)
def test_limits_of_the_file_that_do_not_serve(crane, poses, overrides, sentence):
    with pytest.raises(config.ConfigError, match=sentence):
        crane(poses, *overrides)


def motion(t, names=("travel", "slew")):
    """Coordinates, speeds and torques linear in time, with a jump of the torques at 5 ms."""
    t = np.asarray(t)
    before = np.arange(len(t)) <= np.flatnonzero(t == 0.005)[0]
    signals = {
        "coordinate": np.stack([0.5 + 2.0 * t, -3.0 * t], axis=1),
        "speed": np.stack([2.0 + 0.0 * t, -3.0 + 0.0 * t], axis=1),
        "torque": np.stack([np.where(before, 4.0, -4.0), 100.0 * t], axis=1),
    }
    variables = {key: (("time", "joint"), value) for key, value in signals.items()}
    return xarray.Dataset(variables, {"time": ("time", t), "joint": list(names)})


@pytest.mark.parametrize(("end", "lines"), [(0.009, 6), (0.008, 5)])
def test_csv_file(tmp_path, end, lines):
    """Equal steps, and the end of the motion once, whether or not it is one of them."""
    robot = SimpleNamespace(names=["travel", "slew"], is_sliding=np.array([True, False]))
    time_optimal.write_csv(tmp_path, robot, motion([0.0, 0.005, 0.005, end]), 0.002)
    with open(tmp_path / "trajectory.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header[:3] == ["time [s]", "travel [m]", "slew [rad]"]
    assert header[3:5] == ["travel speed [m/s]", "slew speed [rad/s]"]
    assert header[5:] == ["travel torque [N]", "slew torque [N m]"]
    values = np.array(rows, float)
    t = values[:, 0]
    np.testing.assert_allclose(t, [*np.arange(lines - 1) * 0.002, end], rtol=1e-9)
    np.testing.assert_allclose(values[:, 1], 0.5 + 2.0 * t, rtol=1e-9)
    np.testing.assert_allclose(values[:, 5], np.where(t < 0.005, 4.0, -4.0), rtol=1e-9)
    np.testing.assert_allclose(values[:, 6], 100.0 * t, rtol=1e-9)


def test_motions_follow_each_other_in_time():
    first, second = motion([0.0, 0.005, 0.005, 0.01]), motion([0.0, 0.005, 0.005, 0.02])
    whole = time_optimal.join({"motion_1": first, "motion_2": second})
    times = [0.0, 0.005, 0.005, 0.01, 0.01, 0.015, 0.015, 0.03]
    np.testing.assert_allclose(whole.time, times, rtol=1e-15)
    assert whole.time.attrs["units"] == "s"
    np.testing.assert_array_equal(whole.coordinate[4:], second.coordinate)


def test_joints_with_time_to_spare():
    """Those at a limit, of torque or of speed in either direction, for less than half of it."""
    t = np.linspace(0.0, 2.0, 2001)
    torque = np.stack([t < 1.2, t < 0.8, t < 0.7, 0.9 * np.ones_like(t)], axis=1)
    speed = np.stack([0.0 * t, 0.0 * t, -1.0 * (t > 1.3), 0.9 * np.ones_like(t)], axis=1)
    arrays = xarray.Dataset(
        {
            "torque_share": (("time", "joint"), 1.0 * torque),
            "speed_share": (("time", "joint"), speed),
        },
        {"time": t, "joint": ["a", "b", "c", "d"]},
    )
    assert time_optimal.with_time_to_spare(arrays) == ["b", "d"]


def savings_of(tree, ends, limits, effort, solver, easier=()):
    """What higher limits save, and the motion."""
    problem = arm.point_to_point(tree, *ends, **limits, effort=effort)
    solution = jg.ocp.solve(problem, solver=solver, continued_from=easier)
    return time_optimal.savings(problem, effort, solution), solution


def least_cost(speed, force, effort=0.01, mass=2.0, distance=1.0):
    """Time and weighed effort of a slide: full force until t1, then falling to zero at t2.

    There the costate of the speed has the slope 1 / speed, until the speed is the largest.
    """
    a = force / mass
    fall = 2.0 * effort * speed / a
    t1, t2 = speed / a - fall / 2.0, speed / a + fall / 2.0
    way = a * t1**2 / 2.0 + speed * fall - a * fall**2 / 6.0
    return 2.0 * t2 + (distance - 2.0 * way) / speed + 2.0 * effort * (t1 + fall / 3.0)


@pytest.mark.long
def test_what_higher_limits_of_a_slide_save():
    """By the closed form, with positions bounded too, whose rows come before those of speeds."""
    part = jg.rigid.Placement(
        "slide", None, np.zeros(3), 2.0, np.zeros(3), np.ones(3), (1.0, 0, 0), joint="prismatic"
    )
    tree = jg.rigid.from_placements([part])
    ends = np.zeros(1), np.ones(1)
    solver = jg.ocp.Solver(jg.ocp.Transcription(intervals=60), starts=1, arcs=6)
    limits = {"torque": np.array([4.0]), "speed": np.array([0.8])}
    limits["position"] = np.array([-1.0]), np.array([2.0])
    saved, solution = savings_of(tree, ends, limits, 0.01, solver)
    np.testing.assert_allclose(solution.objective, least_cost(0.8, 4.0), rtol=1e-10)
    by_speed, by_force = jax.grad(least_cost, argnums=(0, 1))(0.8, 4.0)
    np.testing.assert_allclose(saved["speed"], [-0.8 * by_speed], rtol=1e-9)
    np.testing.assert_allclose(saved["torque"], [-4.0 * by_force], rtol=1e-9)
    # T = 2 sqrt(d m / f) where the speed is never the largest.
    saved, _ = savings_of(tree, ends, limits | {"speed": np.array([10.0])}, 0.0, solver)
    np.testing.assert_allclose(saved["speed"], [0.0], atol=1e-15)
    np.testing.assert_allclose(saved["torque"], [np.sqrt(1.0 * 2.0 / 4.0)], rtol=1e-9)


@pytest.mark.long
def test_what_the_friction_of_the_robot_itself_costs():
    """By the costates, and by the fastest motions with both frictions."""
    part = jg.rigid.Placement(
        "slide", None, np.zeros(3), 2.0, np.zeros(3), np.ones(3), (1.0, 0, 0), joint="prismatic"
    )
    tree = jg.rigid.with_passive(jg.rigid.from_placements([part]), friction=1, friction_speed=0.15)
    solver = jg.ocp.Solver(jg.ocp.Transcription(intervals=60), starts=1, arcs=6)
    given = {"torque": np.array([4.0]), "effort": 0.0, "solver": solver}
    own, wide = (
        arm.fastest_motion(tree, np.zeros(1), np.ones(1), friction_speed=np.array([x]), **given)
        for x in (0.15, 0.16)
    )
    cost = time_optimal.friction_cost(tree, np.array([0.16]), wide)
    np.testing.assert_allclose(cost, own.final_time - wide.final_time, rtol=0.05)


@pytest.mark.long
def test_what_higher_limits_of_an_arm_save():
    """By differences of other motions: both joints are at their limits of torque and speed."""
    given = {"com": (0.2, 0.0, 0.0), "inertia": (0.01, 0.03, 0.03), "mass": 2.0}
    upper = jg.rigid.Placement("upper", None, np.zeros(3), **given)
    fore = jg.rigid.Placement("fore", "upper", np.array([0.4, 0.0, 0.0]), **given)
    tree = jg.rigid.from_placements([upper, fore], (0.0, 0.0, 0.0))
    ends, effort = (np.array([0.0, 0.3]), np.ones(2)), 0.1
    limits = {"torque": np.array([20.0, 8.0]), "speed": np.array([2.0, 2.5])}
    way = [arm.point_to_point(tree, *ends, **limits, effort=w * effort) for w in (4.0, 1.0)]
    saved, _ = savings_of(tree, ends, limits, effort, arm.SOLVER, way[:1])
    for key, joint in (("torque", 0), ("torque", 1), ("speed", 0), ("speed", 1)):
        assert saved[key][joint] > 0.02
        costs = []
        for change in (1e-4, -1e-4):
            other = limits | {key: limits[key] * (1.0 + change * np.eye(2)[joint])}
            costs.append(savings_of(tree, ends, other, effort, arm.SOLVER, way)[1].objective)
        difference = (costs[1] - costs[0]) / 2e-4
        np.testing.assert_allclose(saved[key][joint], difference, rtol=1e-6)


@pytest.mark.long
def test_three_joints_of_a_robot(tmp_path):
    given = settings(WRISTS, THREE)
    run = Run(tmp_path, given)
    time_optimal.run(given, run)
    run.finish()
    assert run.certificates["motion_1"].passed
    total = run.results["total_time"].value
    assert total == run.results["final_time_motion_1"].value
    # No joint is faster than at its largest speed all the way.
    assert total > np.deg2rad(60.0) / 3.15
    with open(tmp_path / "trajectory" / "trajectory.csv", newline="") as file:
        _, *rows = csv.reader(file)
    first, last = np.array([rows[0], rows[-1]], float)
    np.testing.assert_allclose(first[1:4], np.deg2rad([0.0, -60.0, 60.0]), atol=1e-8)
    np.testing.assert_allclose(last[1:4], np.deg2rad([60.0, -90.0, 90.0]), atol=1e-8)
    np.testing.assert_allclose(last[4:7], 0.0, atol=1e-8)
    np.testing.assert_allclose(last[0], total, rtol=1e-8)
    assert any("limits the motion most" in note for note in run.notes)
    drawn = {name.partition(".")[0] for name in run.pictures}
    assert drawn >= {"limits_motion_1", "states_motion_1", "checks_motion_1", "motion"}
