"""A robot that moves an object under a print head along a path of edges.

Hüsing 2017 describes the procedure and gives no numbers: cube, speed and radius are defaults of
this project. Where the object is in the hand and the head in the room is found by the gradient of
the worst joint rate.
"""

import csv
from pathlib import Path
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import xarray
from jaxtyping import Array, Float
from pydantic import Field, model_validator

import jaxgrip as jg
from jaxgrip import config, viz
from jaxgrip.config import ConfigError, InputPath, Real
from jaxgrip.report import Run
from jaxgrip.rigid import FramePose, InverseKinematicsError, tool_path
from jaxgrip.spatial import quaternions
from jaxgrip.viz import Curve, Panel

Positive = Annotated[Real, Field(gt=0.0)]
Point = tuple[Real, Real, Real]
CONFIGS = Path(__file__).parents[2] / "configs"
# Exponent of the smooth largest rate; how far placements are moved [m], [rad].
SHARP, NEAR, TURNED = 16, 0.15, 0.8
# A pose is missed from here on [m], [rad].
MISSED = 1e-9


class Placement(NamedTuple):
    """Where things are: `hand` (6,) of the object in the hand and `head` (6,) in the base.

    Each is a translation [m] and a rotation vector [rad].
    """

    hand: Float[Array, "6"]
    head: Float[Array, "6"]


def pose(numbers: Float[Array, "6"]) -> FramePose:
    """The pose of a translation and a rotation vector."""
    return FramePose(quaternions.to_matrix(quaternions.exponential(numbers[3:])), numbers[:3])


class Config(config.Config):
    """The robot, the path on the object, and where both are."""

    robot: InputPath = Field(
        CONFIGS / "robots" / "ur5.urdf", description="URDF file of a robot with six joints"
    )
    frame: str = Field("tool0", description="frame of the hand that holds the object")
    nodes: tuple[Point, ...] = Field(
        ((0.0, 0.0, 0.0), (0.2, 0.0, 0.0), (0.2, 0.2, 0.0), (0.2, 0.2, 0.2)),
        min_length=2,
        description="nodes of the path on the object [m]",
    )
    normals: tuple[Point, ...] = Field(
        ((0.0, -1.0, -1.0), (1.0, 0.0, -1.0), (1.0, 1.0, 0.0)),
        description="outward normals of the edges, in which material is put on",
    )
    radius: Positive = Field(0.002, description="least radius of curvature at the nodes [m]")
    speed: Positive = Field(0.01, description="speed of the head along the path [m/s]")
    acceleration: Positive = Field(0.05, description="largest along the path [m/s²]")
    jerk: Positive = Field(0.5, description="largest along the path [m/s³]")
    hand: Point = Field((-0.1, -0.1, 0.1), description="the object's origin in the hand [m]")
    hand_turned_deg: Point = Field((0.0, 0.0, 0.0), description="its rotation vector [deg]")
    head: Point = Field((0.45, 0.15, 0.45), description="the nozzle in the robot's base [m]")
    head_turned_deg: Point = Field((0.0, 0.0, 0.0), description="its rotation vector [deg]")
    starts: Annotated[int, Field(ge=0, le=64)] = Field(
        4, description="placements from which better ones are sought; 0 for none"
    )

    @model_validator(mode="after")
    def _a_path(self) -> "Config":
        try:
            self.path()
        except ValueError as error:
            raise ConfigError(f"nodes: {error}") from None
        return self

    def path(self) -> tool_path.ToolPath:
        """The path on the object."""
        return tool_path.ToolPath(np.array(self.nodes), np.array(self.normals), self.radius)

    def placement(self) -> Placement:
        """Where object and head are."""
        return Placement(
            jnp.asarray([*self.hand, *np.deg2rad(self.hand_turned_deg)], float),
            jnp.asarray([*self.head, *np.deg2rad(self.head_turned_deg)], float),
        )


class Printer(NamedTuple):
    """What stays: robot, limits of positions and speed, points of the path with derivatives."""

    tree: jg.rigid.Tree
    frame: jg.rigid.Frame
    lower: Array
    upper: Array
    speed: Array
    lengths: Array
    points: tool_path.PathPoint
    slopes: tool_path.PathPoint


class Moved(NamedTuple):
    """Coordinates (n, 6), by which poses are missed (n,), and rates by the length (n, 6) [1/m]."""

    q: Float[Array, "n 6"]
    off: Float[Array, " n"]
    by_length: Float[Array, "n 6"]


def moved(printer: Printer, placement: Placement, start: Array) -> Moved:
    """Coordinates along the path for a placement, from coordinates near the first."""
    head, hand = pose(placement.head), pose(placement.hand)

    def held(point: tool_path.PathPoint) -> FramePose:
        return tool_path.held_object(point, head, hand)

    poses, slopes = jax.vmap(lambda x, dx: jax.jvp(held, (x,), (dx,)))(
        printer.points, printer.slopes
    )
    first = jax.tree.map(lambda x: x[:1], poses)
    near = tool_path.follow(printer.tree, printer.frame, first, start, steps=12).q[0]
    found = tool_path.follow(printer.tree, printer.frame, poses, near)
    by_length = jax.vmap(
        lambda q, x, dx: tool_path.joint_rates(printer.tree, printer.frame, q, x, dx)
    )(found.q, poses, slopes)
    return Moved(found.q, jnp.maximum(found.distance, found.angle), by_length)


def worst(printer: Printer, placement: Placement, start: Array, speed: Array) -> Array:
    """A smooth largest rate as a share of the limits, and what limits of positions are broken."""
    found = moved(printer, placement, start)
    share = speed * found.by_length / printer.speed[None]
    largest = jnp.mean(jnp.abs(share) ** SHARP) ** (1 / SHARP)
    beyond = jnp.maximum(printer.lower[None] - found.q, 0) + jnp.maximum(
        found.q - printer.upper[None], 0
    )
    return largest + jnp.mean(beyond**2) + 1e4 * jnp.mean(found.off**2)


def run(settings: Config, run: Run) -> None:
    """The motion of the hand, its speeds against the formulas, a better placement."""
    run.note("The source gives no numbers: they are defaults or your own.")
    path = settings.path()
    law = tool_path.time_law(path.length, settings.speed, settings.acceleration, settings.jerk)
    printer, notes = _printer(settings, path)
    for sentence in notes:
        run.note(sentence)
    own = settings.placement()
    with run.stage("The motion as placed"):
        start = _reached(printer, own)
        follow = jax.jit(moved)
        found = follow(printer, own, start)
        _check(printer, found)
    _record(run, settings, path, law, printer, own, found)
    better, best = own, found
    if settings.starts:
        with run.stage("Better placements"):
            better, best = _improved(run, settings, printer, own, start, found)
    with run.stage("Pictures"):
        _draw(run, settings, printer, law, {"as placed": (own, found), "better": (better, best)})
        run.files("motion", lambda folder: _csv(folder / "joints.csv", printer, law, best.q))


def _printer(settings: Config, path: tool_path.ToolPath) -> tuple[Printer, tuple[str, ...]]:
    try:
        found = jg.rigid.read_urdf(settings.robot)
        frame = jg.rigid.frame(found.tree, settings.frame)
    except ValueError as error:
        raise ConfigError(f"robot: {error}") from None
    if found.tree.n != 6:
        raise ConfigError(f"robot: it has {found.tree.n} joints; a pose needs six.")
    lengths = tool_path.spread(path)
    points, slopes = jax.jit(
        jax.vmap(lambda s: jax.jvp(lambda x: tool_path.point_at(path, x), (s,), (jnp.ones(()),)))
    )(lengths)
    lower, upper = (np.asarray(x, float) for x in (found.lower, found.upper))
    speed = np.asarray(found.velocity, float)
    speed = np.where(np.isfinite(speed) & (speed > 0), speed, np.pi)
    numbers = (jnp.asarray(x) for x in (lower, upper, speed))
    return Printer(found.tree, frame, *numbers, lengths, points, slopes), (
        *found.repaired,
        *found.ignored,
    )


def _reached(printer: Printer, placement: Placement) -> Array:
    first = jax.tree.map(lambda x: x[0], printer.points)
    target = tool_path.held_object(first, pose(placement.head), pose(placement.hand))
    try:
        return jg.rigid.inverse_kinematics(
            *(printer.tree, printer.frame, target),
            lower=printer.lower,
            upper=printer.upper,
            starts=32,
        ).q
    except InverseKinematicsError as error:
        raise ConfigError(f"hand: the beginning of the path is out of reach. {error}") from None


def _check(printer: Printer, found: Moved) -> None:
    bad = ~(np.asarray(found.off) < MISSED)
    if np.any(bad):
        k = int(np.argmax(bad))
        raise ConfigError(
            f"head: from {float(printer.lengths[k]):.3g} m of the path on the robot does not "
            "reach, or passes a singular position: move head or hand."
        )
    q = np.asarray(found.q)
    for sign, limit in ((1.0, printer.upper), (-1.0, printer.lower)):
        over = sign * (q - np.asarray(limit)) > 0
        if np.any(over):
            k, j = np.argwhere(over)[0]
            raise ConfigError(
                f"head: at {float(printer.lengths[k]):.3g} m of the path joint {j + 1} would pass "
                f"its limit of {float(limit[j]):.3g} rad: move head or hand."
            )


def _record(run, settings, path, law, printer, placement, found) -> None:
    run.add("path_length", float(path.length), "m")
    run.add("duration", float(law.duration), "s")
    run.add("turning_by_formula", settings.speed / settings.radius, "rad/s")
    head, hand = pose(placement.head), pose(placement.hand)
    poses = jax.vmap(lambda q: jg.rigid.frame_pose(printer.tree, q, printer.frame))(found.q)
    # Where the nozzle is on the object, from the joints.
    object_turn = poses.rotation @ hand.rotation[None]
    object_at = jnp.einsum("nij,j->ni", poses.rotation, hand.translation) + poses.translation
    nozzle = jnp.einsum("nji,nj->ni", object_turn, head.translation[None] - object_at)
    off = jnp.max(jnp.abs(nozzle - printer.points.position))
    run.add("nozzle_off_the_path", float(off), "m")
    jacobian = jax.vmap(lambda q: jg.rigid.frame_jacobian(printer.tree, q, printer.frame))
    twist = jnp.einsum("nij,nj->ni", jacobian(found.q), settings.speed * found.by_length)
    turning = jnp.sqrt(jnp.sum(twist[:, :3] ** 2, axis=1))
    run.add("largest_turning", float(jnp.max(turning)), "rad/s")
    distance = jnp.sqrt(jnp.sum((poses.translation - head.translation[None]) ** 2, axis=1))
    run.add("largest_distance", float(jnp.max(distance)), "m")
    run.add("hand_speed", float(jnp.max(jnp.sqrt(jnp.sum(twist[:, 3:] ** 2, axis=1)))), "m/s")
    share = settings.speed * jnp.abs(found.by_length) / printer.speed[None]
    run.add("worst_rate_as_placed", float(jnp.max(share)), "1")


def _improved(run, settings, printer, own, start, found):
    speed = jnp.asarray(settings.speed)
    sizes = jnp.asarray([NEAR] * 3 + [TURNED] * 3)

    def placed(x: Array) -> Placement:
        return Placement(own.hand + sizes * x[:6], own.head + sizes * x[6:])

    evaluate = jax.jit(jax.value_and_grad(lambda x, q: worst(printer, placed(x), q, speed)))

    def both(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = evaluate(jnp.asarray(x), start)
        if not (np.isfinite(value) and np.all(np.isfinite(slope))):
            return 1e6, np.zeros(12)
        return float(value), np.asarray(slope)

    rng = np.random.default_rng(0)
    best, count = None, 0
    for k in range(settings.starts):
        first = np.zeros(12) if k == 0 else rng.uniform(-0.4, 0.4, 12)
        ended = scipy.optimize.minimize(
            both, first, jac=True, method="L-BFGS-B", bounds=[(-1, 1)] * 12, options={"maxiter": 40}
        )
        count += ended.nfev
        there = jax.jit(moved)(printer, placed(jnp.asarray(ended.x)), start)
        try:
            _check(printer, there)
        except ConfigError:
            continue
        share = speed * jnp.abs(there.by_length) / printer.speed[None]
        value = float(jnp.max(share))
        if best is None or value < best[0]:
            best = (value, placed(jnp.asarray(ended.x)), there)
    run.add("evaluations", count, "1")
    if best is None:
        run.note("No better placement was found.")
        return own, found
    run.add("worst_rate_better", best[0], "1")
    run.add("better_hand", np.asarray(best[1].hand).tolist(), "1")
    run.add("better_head", np.asarray(best[1].head).tolist(), "1")
    run.note("Placements are translations [m] and rotation vectors [rad], one after the other.")
    return best[1], best[2]


def _csv(path: Path, printer: Printer, law: tool_path.TimeLaw, q: Array) -> None:
    times = np.arange(0.0, float(law.duration), 0.01)
    along = np.asarray(jax.vmap(law.at)(jnp.asarray(times)))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["time [s]", *(f"joint {k + 1} [rad]" for k in range(6))])
        columns = [np.interp(along, printer.lengths, np.asarray(q)[:, k]) for k in range(6)]
        writer.writerows(np.column_stack([times, *columns]).round(9).tolist())


def _draw(run, settings, printer, law, motions) -> None:
    lengths = 1e3 * np.asarray(printer.lengths)
    curves = []
    for name, (_, found) in motions.items():
        share = settings.speed * np.abs(np.asarray(found.by_length / printer.speed[None]))
        curves.append(Curve(name, lengths, 100 * share.max(axis=1)))
    curvature = Curve("path", lengths, np.asarray(printer.points.curvature))
    run.figure(
        "printing_path",
        viz.curves(
            [
                Panel("length along the path [mm]", "curvature [1/m]", [curvature]),
                Panel("length along the path [mm]", "fastest joint [% of its limit]", curves),
            ],
            f"A head at {1e3 * settings.speed:g} mm/s along edges",
        ),
        "The hand hurries at the corners, where the object turns.",
    )
    placement, found = motions["better"]
    times = np.linspace(0.0, float(law.duration), 61)
    along = np.asarray(jax.vmap(law.at)(jnp.asarray(times)))
    chosen = np.searchsorted(np.asarray(printer.lengths), along).clip(0, len(found.q) - 1)
    hand = pose(placement.hand)
    shown = found.q[chosen]

    def bodies(q: Array) -> Array:
        return jg.rigid.forward_kinematics(printer.tree, q).translation

    links = np.asarray(jax.vmap(bodies)(shown))
    tips = jax.vmap(lambda q: jg.rigid.frame_pose(printer.tree, q, printer.frame))(shown)
    nodes = jnp.asarray(settings.nodes)
    at = jnp.einsum("nij,kj->nki", tips.rotation @ hand.rotation[None], nodes)
    at += (jnp.einsum("nij,j->ni", tips.rotation, hand.translation) + tips.translation)[:, None]
    arm = np.concatenate(
        [np.zeros((61, 1, 3)), links, np.asarray(tips.translation)[:, None]], axis=1
    )
    nozzle = np.asarray(placement.head[:3])
    above = np.stack([nozzle, nozzle + np.asarray(pose(placement.head).rotation[:, 2]) * 0.15])
    parts = {
        "robot": arm,
        "path on the object": np.asarray(at),
        "print head": np.broadcast_to(above, (61, 2, 3)),
    }
    parts = {name: xarray.DataArray(x, dims=("step", "point", "axis")) for name, x in parts.items()}
    title = "The robot moves the object under the head"
    run.figure(
        "printing",
        viz.linkage(parts, title, plane="xz", step=30),
        "The head stands; the edges pass under it.",
    )
    run.animation(
        "printing",
        viz.animate_linkage(parts, title, plane="xz", captions=[f"{t:.0f} s" for t in times]),
        "Seen from the side.",
    )
