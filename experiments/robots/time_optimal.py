"""A robot of your own: the fastest motion between poses, from its file, certified.

The limits of torque, speed and position are those of the file unless others are given. The robot
rests in every pose. Where joints have time to spare, the motion of least effort is chosen.
"""

import csv
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from pydantic import Field, model_validator
from scipy.integrate import simpson

import jaxgrip as jg
from jaxgrip import config, viz
from jaxgrip.checks import near
from jaxgrip.config import ConfigError, InputPath, Real, Section
from jaxgrip.models import arm
from jaxgrip.report import Run

Positive = Annotated[Real, Field(gt=0.0)]
CONFIGS = Path(__file__).parents[2] / "configs"
# A joint is at its limit of speed or torque from this share of it on.
NEAR = 0.999


class Payload(Section):
    """What the robot carries."""

    mass: Annotated[Real, Field(ge=0.0)] = Field(description="mass [kg]")
    frame: str = Field(description="frame or link that carries it, by its name in the file")
    centre: tuple[Real, Real, Real] = Field(
        (0.0, 0.0, 0.0), description="its centre of mass in that frame [m]"
    )


class Config(config.Config):
    """A robot and the poses that it moves through."""

    robot: InputPath = Field(
        CONFIGS / "robots" / "ur5.urdf", description="URDF file (.urdf) or MJCF file (.xml)"
    )
    part: str | None = Field(None, description="robot of an MJCF file with several, by name")
    poses_deg: tuple[tuple[Real, ...], ...] = Field(
        min_length=2,
        description="poses, in each of which the robot rests: every joint's angle [deg], sliding "
        "joints in m, in the order of the file without the joints in `hold_deg`",
    )
    hold_deg: dict[str, Real] = Field(
        {}, description="joints held at an angle [deg], or at a position [m], by name"
    )
    torque_limits: dict[str, Positive] = Field(
        {}, description="largest torque [N m] or force [N] by joint, instead of the file's"
    )
    speed_limits: dict[str, Positive] = Field(
        {}, description="largest speed [rad/s] or [m/s] by joint, instead of the file's"
    )
    position_limits: bool = Field(True, description="whether positions have the file's limits")
    payload: Payload | None = Field(None, description="what the robot carries; nothing if left out")
    effort: Annotated[Real, Field(gt=0.0, le=1.0)] = Field(
        arm.EFFORT,
        description="weight of the effort against the time: the smaller, the faster the motion and "
        "the harder to find",
    )
    sample_time: Positive = Field(0.002, description="time between two lines of the CSV file [s]")

    @model_validator(mode="after")
    def _poses_differ(self) -> "Config":
        for k, (before, after) in enumerate(pairwise(self.poses_deg)):
            if before == after:
                raise ValueError(f"poses_deg: poses {k + 1} and {k + 2} are the same.")
        return self

    @model_validator(mode="after")
    def _a_robot_that_can(self) -> "Config":
        Robot(self)
        return self

    def doubts(self) -> tuple[str, ...]:
        """Poses that may be in radians."""
        return Robot(self).doubts()


class Robot:
    """The robot of a configuration with its limits.

    `tree`; `names` of its joints; `torque`, `speed` and `position` limits, arrays (n,) and a pair
    of them; `is_sliding` (n,); `tip`, the frame whose path is drawn; the `poses`; `said`, the
    sentences on what was repaired or not used.
    """

    def __init__(self, settings: Config):
        path = settings.robot
        try:
            if path.suffix == ".xml":
                found = jg.rigid.read_mjcf(path, robot=settings.part)
            else:
                found = jg.rigid.read_urdf(path)
            jg.rigid.without_balls(found.tree, "The fastest motion")
        except (ValueError, ImportError) as error:
            raise ConfigError(f"robot: {error}") from None
        self.said = (*found.repaired, *found.ignored)
        known = list(found.joints)
        for key in ("hold_deg", "torque_limits", "speed_limits"):
            for name in getattr(settings, key):
                if name not in known:
                    raise ConfigError(f"{key}: there is no joint {name!r}; {near(name, known)}")
        tree = found.tree
        slides = dict(
            zip(known, (tree.joint_types[i] == "prismatic" for i in tree.moving), strict=True)
        )
        held = {
            name: value if slides[name] else np.deg2rad(value)
            for name, value in settings.hold_deg.items()
        }
        if held:
            tree = jg.rigid.lock(tree, held)
        self.names = [name for name in known if name not in held]
        kept = [known.index(name) for name in self.names]
        self.is_sliding = np.array([slides[name] for name in self.names])
        if settings.payload is not None:
            load = settings.payload
            try:
                tree = jg.rigid.with_payload(tree, load.frame, load.mass, load.centre)
            except ValueError as error:
                raise ConfigError(f"payload: {error}") from None
        self.tree = tree
        self.torque = self._limits(found.effort, kept, settings.torque_limits, "torque_limits")
        self.speed = self._limits(found.velocity, kept, settings.speed_limits, "speed_limits")
        ends = (np.asarray(found.lower)[kept], np.asarray(found.upper)[kept])
        self.position = ends if settings.position_limits else None
        frames = tree.frames.names if tree.frames is not None else ()
        ends_last = [k for k in frames if jg.rigid.frame(tree, k).body == len(tree.names) - 1]
        self.tip = settings.payload.frame if settings.payload else (ends_last or tree.names)[-1]
        self.poses = [self._pose(k, pose) for k, pose in enumerate(settings.poses_deg, start=1)]
        try:
            named = {f"pose {k}": pose for k, pose in enumerate(self.poses, start=1)}
            arm.check_hold(tree, named, self.torque)
        except ValueError as error:
            raise ConfigError(f"poses_deg: {error}") from None

    def doubts(self) -> tuple[str, ...]:
        """A sentence where poses may be in radians."""
        turns = np.array(self.poses)[:, ~self.is_sliding]
        largest = np.rad2deg(np.max(np.abs(turns), initial=0.0))
        if not 0.0 < largest < 2.0 * np.pi:
            return ()
        return (
            f"poses_deg: no joint is further than {largest:.3g} deg from zero. These are degrees; "
            "are the poses meant in radians?",
        )

    def _limits(self, values, kept: list[int], own: dict[str, float], key: str) -> np.ndarray:
        limits = np.asarray(values, float)[kept]
        for k, name in enumerate(self.names):
            limits[k] = own.get(name, limits[k])
            if not limits[k] > 0.0 or (key == "torque_limits" and not np.isfinite(limits[k])):
                raise ConfigError(
                    f"{key}: the file has no limit for joint {name!r}; give one, such as "
                    f"`{key}.{name} = 10.0`."
                )
        return limits

    def _pose(self, number: int, pose: tuple[float, ...]) -> np.ndarray:
        if len(pose) != len(self.names):
            raise ConfigError(
                f"poses_deg: pose {number} has {len(pose)} entries; the robot has "
                f"{len(self.names)} joints: {', '.join(self.names)}."
            )
        q = np.where(self.is_sliding, pose, np.deg2rad(pose))
        if self.position is not None:
            for name, value, given, low, high, slides in zip(
                self.names, q, pose, *self.position, self.is_sliding, strict=True
            ):
                if not low <= value <= high:
                    scale, unit = (1.0, "m") if slides else (np.rad2deg(1.0), "deg")
                    raise ConfigError(
                        f"poses_deg: in pose {number} joint {name!r} is at {given:g} {unit}, "
                        f"outside its limits {scale * low:.4g} and {scale * high:.4g} {unit}."
                    )
        return q


def run(settings: Config, run: Run) -> None:
    """Move through all poses, and record numbers, arrays, certificates, pictures and the CSV."""
    robot = Robot(settings)
    for sentence in (*robot.said, *robot.doubts()):
        run.note(sentence)
    run.note(f"Lists with a number for each joint are in the order {', '.join(robot.names)}.")
    motions = {}
    limits = {"torque": robot.torque, "speed": robot.speed, "position": robot.position}
    for k, ends in enumerate(pairwise(robot.poses), start=1):
        name = f"motion_{k}"
        with run.stage(f"Pose {k} to pose {k + 1}: the fastest motion"):
            try:
                problem = arm.point_to_point(robot.tree, *ends, **limits, effort=settings.effort)
                solution = arm.fastest_motion(robot.tree, *ends, **limits, effort=settings.effort)
            except jg.ocp.SolveError as error:
                if error.solution is not None and error.solution.origin != "nothing":
                    motions[name] = dataset(robot, error.solution)
                    run.arrays(name, motions[name])
                    keep(run, robot, settings, motions)
                raise jg.ocp.SolveError(
                    f"Pose {k} to pose {k + 1}: {error}", error.solution
                ) from None
        motions[name] = dataset(robot, solution)
        saved = savings(problem, settings.effort, solution)
        record(run, robot, name, solution, motions[name], saved)
        if robot.tree.rubs:
            about_friction(run, robot, name, problem, solution)
        with run.stage(f"Pose {k} to pose {k + 1}: pictures"):
            draw(run, robot, name, f"Pose {k} to pose {k + 1}", solution, motions[name])
    whole = keep(run, robot, settings, motions)
    with run.stage("Picture and animation of the motion"):
        time = float(whole.time[-1])
        title = f"{settings.robot.stem} in {time:.3f} s, with the path of {robot.tip}"
        chains = {settings.robot.stem: whole.position}
        run.figure("motion", viz.stroboscope(chains, title), "The robot, coloured by time.")
        run.animation("motion", viz.animate(chains, title), "The same motion.")


def dataset(robot: Robot, solution: jg.ocp.Solution) -> xarray.Dataset:
    """All signals over time; switching times occur twice, with the values before and after."""
    n = robot.tree.n
    x, u = np.asarray(solution.x), np.asarray(solution.u)
    rates = np.asarray(solution.x_rate)
    signals = {
        "coordinate": (x[:, :n], "position", "rad or m"),
        "speed": (x[:, n:], "speed", "rad/s or m/s"),
        "acceleration": (rates[:, n:], "acceleration", "rad/s^2 or m/s^2"),
        "torque": (u * robot.torque, "torque", "N m or N"),
        "torque_share": (u, "torque over its limit", "1"),
        "speed_share": (x[:, n:] / robot.speed, "speed over its limit", "1"),
    }
    variables = {
        key: (("time", "joint"), value, {"long_name": words, "units": unit})
        for key, (value, words, unit) in signals.items()
    }
    variables["position"] = (
        ("time", "point", "axis"),
        points(robot, x[:, :n]),
        {"long_name": "base, joints and tool in the base frame", "units": "m"},
    )
    coordinates = {
        "time": ("time", np.asarray(solution.t), {"units": "s"}),
        "joint": ("joint", robot.names, {"units": "1"}),
        "axis": ("axis", ["x", "y", "z"], {"units": "1"}),
    }
    return xarray.Dataset(variables, coordinates)


def points(robot: Robot, q: np.ndarray) -> np.ndarray:
    """Base, bodies on the way to the tool, and the tool (time, points, 3) [m]."""
    tree, tip = robot.tree, jg.rigid.frame(robot.tree, robot.tip)
    chain, body = [], tip.body
    while body >= 0:
        chain.append(body)
        body = tree.parents[body]
    poses = jax.vmap(jg.rigid.forward_kinematics, in_axes=(None, 0))(tree, jnp.asarray(q))
    rotation, origin = np.asarray(poses.rotation), np.asarray(poses.translation)
    tool = origin[:, chain[0]] + rotation[:, chain[0]] @ np.asarray(tip.translation)
    return np.concatenate(
        [np.zeros_like(tool)[:, None], origin[:, chain[::-1]], tool[:, None]], axis=1
    )


def savings(
    problem: jg.ocp.Problem, effort: float, solution: jg.ocp.Solution
) -> dict[str, np.ndarray]:
    """Time and effort saved per relative increase of each limit of `torque` and `speed` (n,) [s].

    By the torques' limits it is what the switching functions times the torques leave, by the
    speeds' limits the sum of the costates' jumps where a speed reaches its limit.
    """
    n, t = problem.m, np.asarray(solution.t)
    u, slope = np.asarray(solution.u), np.asarray(solution.switching_function)
    # Each switching time stands twice.
    arcs = np.flatnonzero(np.diff(t) <= 0.0) + 1
    work = np.split((slope - 2.0 * effort * u) * u, arcs)
    torque = -sum(simpson(y, x=x, axis=0) for y, x in zip(work, np.split(t, arcs), strict=True))
    # The state that each constraint bounds; there are no others.
    bounded = (*problem.bounded_above, *problem.bounded_below)
    limits, speed = np.asarray(problem.state_upper), np.zeros(n)
    changes = zip(solution.structure.switching_constraints, np.asarray(solution.jumps), strict=True)
    for row, jump in changes:
        if row >= 0 and bounded[row] >= n:
            speed[bounded[row] - n] += jump[0] * limits[bounded[row]]
    return {"torque": torque, "speed": speed}


def keep(
    run: Run, robot: Robot, settings: Config, motions: dict[str, xarray.Dataset]
) -> xarray.Dataset:
    """Record the motions so far, as one, with its trajectory as CSV."""
    whole = join(motions)
    run.add("total_time", float(whole.time[-1]), "s")
    run.files("trajectory", lambda folder: write_csv(folder, robot, whole, settings.sample_time))
    return whole


def join(motions: dict[str, xarray.Dataset]) -> xarray.Dataset:
    """All motions, one after the other in time."""
    parts, begin = [], 0.0
    for motion in motions.values():
        parts.append(motion.assign_coords(time=motion.time + begin))
        begin += float(motion.time[-1])
    whole = xarray.concat(parts, "time", data_vars="all", coords="minimal", join="exact")
    return whole.assign_coords(time=("time", whole.time.values, {"units": "s"}))


def record(
    run: Run,
    robot: Robot,
    name: str,
    solution: jg.ocp.Solution,
    arrays: xarray.Dataset,
    saved: dict[str, np.ndarray],
) -> None:
    """Record numbers, certificate and arrays of one motion, and say what limits it."""
    final_time = float(solution.final_time)
    run.add(f"final_time_{name}", final_time, "s")
    run.add(f"switching_times_{name}", np.asarray(solution.switching_times), "s")
    run.certify(name, solution.certificate)
    run.arrays(name, arrays)
    for limit, by_joint in saved.items():
        run.add(f"saved_by_{limit}_{name}", by_joint, "s")
    limit = max(saved, key=lambda key: saved[key].max())
    joint = int(saved[limit].argmax())
    word = "force" if limit == "torque" and robot.is_sliding[joint] else limit
    run.note(
        f"{name}: the {word} of joint {robot.names[joint]!r} limits the motion most: 1 % more "
        f"saves {1e1 * saved[limit][joint]:.3g} ms."
    )
    spare = with_time_to_spare(arrays)
    if spare:
        run.note(
            f"{name}: {', '.join(spare)} are below their limits for more than half of the time. "
            "They could move in other ways in the same time; this one takes the least effort."
        )


def about_friction(
    run: Run, robot: Robot, name: str, problem: jg.ocp.Problem, solution: jg.ocp.Solution
) -> None:
    """Say within which speeds dry friction turns its sign, and what that means for the motion."""
    own, passive = robot.tree.passive, problem.dynamics.tree.passive
    has = np.asarray(own.friction) > 0.0
    narrow, wide = (np.max(np.asarray(x.friction_speed)[has]) for x in (own, passive))
    lost = friction_cost(robot.tree, passive.friction_speed, solution)
    run.add(f"lost_by_friction_speed_{name}", lost, "s")
    run.note(
        f"{name}: dry friction ({', '.join(np.array(robot.names)[has])}) turns its sign within "
        f"{wide:.3g} rad/s or m/s. With {narrow:.3g}, as for the robot itself, time and weighed "
        f"effort would together differ by about {1e3 * lost:.2g} ms."
    )


def friction_cost(tree: jg.rigid.Tree, width: jax.Array, solution: jg.ocp.Solution) -> float:
    """Time and effort that the friction of a tree adds to that with another `width` (n,) [s].

    To first order: the costates times the difference of the accelerations.
    """
    q, qd = jnp.split(solution.x, 2, axis=1)
    passive = tree.passive
    own, other = (jnp.tanh(qd / x[None]) for x in (passive.friction_speed, width))
    slowed = jax.vmap(jg.rigid.solve_mass, in_axes=(None, 0, 0))(
        tree, q, passive.friction[None] * (own - other)
    )
    rate = -jnp.sum(solution.costate[:, tree.n :] * slowed, axis=1)
    return float(np.trapezoid(rate, solution.t))


def with_time_to_spare(arrays: xarray.Dataset) -> list[str]:
    """Joints whose torque and speed are below their limits for more than half of the time."""
    t = arrays.time.values
    shares = np.maximum(np.abs(arrays.torque_share.values), np.abs(arrays.speed_share.values))
    # Not as booleans, whose sums are not those of numbers.
    below = np.trapezoid((shares < NEAR).astype(float), t, axis=0)
    return arrays.joint.values[below > 0.5 * (t[-1] - t[0])].tolist()


def draw(
    run: Run,
    robot: Robot,
    name: str,
    title: str,
    solution: jg.ocp.Solution,
    arrays: xarray.Dataset,
) -> None:
    """Record the pictures of one motion."""
    title = f"{title} in {float(solution.final_time):.4f} s"
    smooth = viz.refine(arrays)
    run.figure(
        f"limits_{name}",
        viz.lines(
            [smooth.torque_share, smooth.speed_share],
            f"{title}: what is at its limit",
            limits={"torque_share": (-1.0, 1.0, "limit"), "speed_share": (-1.0, 1.0, "limit")},
        ),
        "Torques and speeds as shares of their limits.",
    )
    degrees = np.where(robot.is_sliding, 1.0, 180.0 / np.pi)
    units = "m" if robot.is_sliding.all() else "deg or m" if robot.is_sliding.any() else "deg"
    position = (smooth.coordinate * degrees).assign_attrs(long_name="position", units=units)
    run.figure(
        f"states_{name}",
        viz.lines([position, smooth.speed, smooth.torque], f"{title}: motion"),
        "Positions, speeds and torques of the joints.",
    )
    checks = viz.certificate(solution, title, control_names=robot.names)["checks"]
    run.figure(f"checks_{name}", checks, "Every necessary condition, measured over tolerance.")


def write_csv(folder: Path, robot: Robot, whole: xarray.Dataset, step: float) -> None:
    """Write trajectory.csv: time, positions, speeds and torques at equal steps."""
    t = whole.time.values
    # The last line is the end of the motion, also when the steps do not fit.
    grid = np.append(np.arange(0.0, t[-1] - 1e-9, step), t[-1])
    columns = {"time [s]": grid}
    kinds = (("coordinate", "", "rad", "m"), ("speed", " speed", "rad/s", "m/s"))
    for key, word, angular, linear in (*kinds, ("torque", " torque", "N m", "N")):
        for k, joint in enumerate(robot.names):
            unit = linear if robot.is_sliding[k] else angular
            columns[f"{joint}{word} [{unit}]"] = np.interp(grid, t, whole[key].values[:, k])
    with open(folder / "trajectory.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(
            [f"{value:.9g}" for value in row] for row in zip(*columns.values(), strict=True)
        )
