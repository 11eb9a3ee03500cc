"""Springs that carry a five-bar linkage from pick to place without a drive.

Barreto 2017 describes the idea in words; the equations are those of the linkage, and all numbers
are defaults of this project.
"""

from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import xarray
from jax.tree_util import Partial
from jaxtyping import Array, Float
from pydantic import Field, model_validator

import jaxgrip as jg
from jaxgrip import config, orbits, viz
from jaxgrip.config import Real
from jaxgrip.report import Run
from jaxgrip.solve import dense
from jaxgrip.viz import Curve, Panel

Positive = Annotated[Real, Field(gt=0.0)]
NotNegative = Annotated[Real, Field(ge=0.0)]
Point = tuple[Real, Real]
SAMPLES, TASKS = 121, 64
# Far beyond the torques of the drives, which have no limit [N m].
LIMIT = 100.0
# Rates above which dry friction is complete [rad/s].
SLOW = 0.05


class FiveBar(eqx.Module):
    """A symmetrical five-bar in the plane, without gravity.

    `base`: distance of the hinges of its cranks [m]; `lengths` (2,) of cranks and couplers [m];
    `masses` (2,) of each [kg], uniform bars; `payload` at the tip [kg]; `coulomb` [N m] and
    `viscous` [N m s/rad] friction of the two drives.
    """

    base: Float[Array, ""]
    lengths: Float[Array, "2"]
    masses: Float[Array, "2"]
    payload: Float[Array, ""]
    coulomb: Float[Array, ""]
    viscous: Float[Array, ""]


def tip(robot: FiveBar, q: Float[Array, "2"]) -> tuple[Array, Array]:
    """Tip (2,) and elbows (2, 2) [m] at angles of the cranks; the tip is in front of the elbows."""
    hinges = jnp.stack([jnp.stack([-0.5 * robot.base, 0.0]), jnp.stack([0.5 * robot.base, 0.0])])
    elbows = hinges + robot.lengths[0] * jnp.stack([jnp.cos(q), jnp.sin(q)], axis=1)
    apart = elbows[1] - elbows[0]
    square = apart @ apart
    ahead = jnp.sqrt(robot.lengths[1] ** 2 / square - 0.25)
    return elbows.mean(axis=0) + ahead * jnp.stack([-apart[1], apart[0]]), elbows


def angles(robot: FiveBar, point: np.ndarray) -> np.ndarray:
    """Angles of the cranks with the elbows outside, for a tip that the linkage reaches."""
    first, second = map(float, robot.lengths)
    found = []
    for hinge, side in ((-0.5 * float(robot.base), 1.0), (0.5 * float(robot.base), -1.0)):
        to = np.asarray(point) - [hinge, 0.0]
        size = np.hypot(*to)
        cosine = (first**2 + size**2 - second**2) / (2 * first * size)
        found.append(np.arctan2(to[1], to[0]) + side * np.arccos(cosine))
    return np.array(found)


def mass_matrix(robot: FiveBar, q: Float[Array, "2"]) -> Float[Array, "2 2"]:
    """Inertia of all parts for the cranks [kg m²]."""

    def points(x: Array) -> tuple[Array, Array]:
        end, elbows = tip(robot, x)
        to = end[None] - elbows
        return jnp.concatenate([0.5 * (elbows + end[None]), end[None]]), jnp.arctan2(
            to[:, 1], to[:, 0]
        )

    by, turns = jax.jacfwd(points)(q)
    weights = jnp.stack([robot.masses[1], robot.masses[1], robot.payload])
    about = robot.masses * robot.lengths**2 / 12
    crank = about[0] + robot.masses[0] * robot.lengths[0] ** 2 / 4
    return (
        jnp.einsum("b,bci,bcj->ij", weights, by, by)
        + about[1] * turns.T @ turns
        + crank * jnp.eye(2)
    )


def inertia_torque(robot: FiveBar, q: Array, qd: Array, qdd: Array) -> Float[Array, "2"]:
    """Torques for accelerations, without springs and friction [N m]."""
    matrix, change = jax.jvp(lambda x: mass_matrix(robot, x), (q,), (qd,))
    bent = jax.grad(lambda x: 0.5 * qd @ mass_matrix(robot, x) @ qd)(q)
    return matrix @ qdd + change @ qd - bent


def friction(robot: FiveBar, qd: Array) -> Float[Array, "2"]:
    """Torques against friction [N m]."""
    return robot.coulomb * jnp.tanh(qd / SLOW) + robot.viscous * qd


def accelerated(robot: FiveBar, q: Array, qd: Array, torque: Array) -> Float[Array, "2"]:
    """Accelerations of the cranks by torques, without friction."""
    rest = inertia_torque(robot, q, qd, jnp.zeros(2))
    return dense.solve(mass_matrix(robot, q), torque - rest, positive=True)


def sprung(t: Array, y: Float[Array, "4"], numbers: tuple) -> Float[Array, "4"]:
    """Rates of angles and speeds with springs alone; `numbers`: robot and springs."""
    robot, springs = numbers
    pull = springs["stiffness"] * (springs["rest"] - y[:2])
    return jnp.concatenate([y[2:], accelerated(robot, y[:2], y[2:], pull)])


def springs_between(robot: FiveBar, pick: Array, place: Array, duration: float) -> dict[str, Array]:
    """Springs with which the robot gets from pick to place, at rest in both, without a drive."""
    middle = 0.5 * (pick + place)
    inertia = jnp.diag(mass_matrix(robot, middle))
    guess = {"stiffness": inertia * (jnp.pi / duration) ** 2, "rest": middle}

    def rates(t: Array, y: Array, springs: dict) -> Array:
        return sprung(t, y, (robot, springs))

    still = jnp.zeros(2)
    found = orbits.rest_to_rest(
        rates, jnp.concatenate([pick, still]), jnp.concatenate([place, still]), duration, guess
    )
    return found.parameters


def work(torque: Float[Array, "n 2"], qd: Float[Array, "n 2"], times: Array) -> Array:
    """Energy of the drives without recuperation of one by the other or over time [J]."""
    return jnp.trapezoid(jnp.sum(jnp.abs(torque * qd), axis=1), times)


def swung(robot: FiveBar, springs: dict, pick: Array, place: Array, duration: Array) -> Array:
    """Energy for any task by half a cosine of the cranks with given springs [J]."""
    times = duration * jnp.linspace(0.0, 1.0, SAMPLES)
    phase = jnp.pi * times / duration
    half = 0.5 * (place - pick)[None]
    q = pick[None] + half * (1 - jnp.cos(phase))[:, None]
    qd = half * jnp.sin(phase)[:, None] * jnp.pi / duration
    qdd = half * jnp.cos(phase)[:, None] * (jnp.pi / duration) ** 2
    torque = jax.vmap(lambda a, b, c: inertia_torque(robot, a, b, c) + friction(robot, b))(
        q, qd, qdd
    )
    torque = torque - springs["stiffness"][None] * (springs["rest"][None] - q)
    return work(torque, qd, times)


class Config(config.Config):
    """The robot and its task."""

    base: Positive = Field(0.2, description="distance of the hinges of the cranks [m]")
    lengths: tuple[Positive, Positive] = Field((0.25, 0.35), description="cranks, couplers [m]")
    masses: tuple[Positive, Positive] = Field((0.5, 0.4), description="cranks, couplers [kg]")
    payload: NotNegative = Field(0.2, description="at the tip [kg]")
    coulomb: NotNegative = Field(0.05, description="dry friction of a drive [N m]")
    viscous: NotNegative = Field(0.01, description="viscous friction of a drive [N m s/rad]")
    pick: Point = Field((-0.125, 0.40), description="where the tip picks [m]")
    place: Point = Field((0.125, 0.40), description="where it places [m]")
    duration: Positive = Field(0.4, description="time of the motion [s]")
    scatter: NotNegative = Field(0.03, description="standard deviation of other tasks [m]")

    @model_validator(mode="after")
    def _reaches(self) -> "Config":
        for name in ("pick", "place"):
            if not np.all(np.isfinite(self._angles(getattr(self, name)))):
                raise ValueError(f"{name}: the linkage does not reach {getattr(self, name)}.")
        if self.pick == self.place:
            raise ValueError("place: it is where the robot picks.")
        return self

    def _angles(self, point: Point) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return angles(self.robot(), np.asarray(point))

    def robot(self) -> FiveBar:
        """The linkage."""
        numbers = (
            *(self.base, self.lengths, self.masses, self.payload, self.coulomb, self.viscous),
        )
        return FiveBar(*(jnp.asarray(x, float) for x in numbers))


def run(settings: Config, run: Run) -> None:
    """Springs for the task, energy with and without them, springs for many tasks."""
    run.note("The source gives no numbers: they are defaults or your own.")
    robot = settings.robot()
    ends = [jnp.asarray(angles(robot, np.asarray(p))) for p in (settings.pick, settings.place)]
    with run.stage("Springs of the natural motion"):
        springs = springs_between(robot, *ends, settings.duration)
        times, q, qd, qdd = _natural(robot, springs, ends[0], settings.duration)
    for name, unit in (("stiffness", "N m/rad"), ("rest", "rad")):
        run.add(name, np.asarray(springs[name]).tolist(), unit)
    pull = springs["stiffness"][None] * (springs["rest"][None] - q)
    left = jax.vmap(lambda a, b, c: inertia_torque(robot, a, b, c))(q, qd, qdd) - pull
    run.add("largest_torque_without_friction", float(jnp.max(jnp.abs(left))), "N m")
    run.add("end_missed", float(jnp.max(jnp.abs(q[-1] - ends[1]))), "rad")
    energy = jax.vmap(lambda a, b: 0.5 * b @ mass_matrix(robot, a) @ b)(q, qd)
    energy += 0.5 * jnp.sum(springs["stiffness"][None] * (q - springs["rest"][None]) ** 2, axis=1)
    run.add("energy_off", float(jnp.max(jnp.abs(energy / energy[0] - 1))), "1")
    against = jax.vmap(lambda b: friction(robot, b))(qd)
    with_springs = float(work(left + against, qd, times))
    with run.stage("The same robot without springs, by optimal control"):
        plain, solution = _without(run, robot, ends, settings)
    run.add("energy_with_springs", with_springs, "J")
    run.add("energy_without_springs", plain, "J")
    run.add("saving", 1 - with_springs / plain, "1")
    run.note(
        "A SCARA with springs saved 72 % in the literature that the source cites; another machine "
        "and other motions, so that it is no reference."
    )
    with run.stage("Springs for many tasks"):
        _tasks(run, robot, springs, settings)
    with run.stage("Pictures"):
        _draw(run, settings, robot, times, q, qd, left + against, solution)


def _natural(robot, springs, start, duration):
    """Times, angles, speeds and accelerations of the natural motion."""
    times = duration * jnp.linspace(0.0, 1.0, SAMPLES)

    def rates(t: Array, y: Array, numbers: dict) -> Array:
        return sprung(t, y, (robot, numbers))

    def step(y: Array, _: None) -> tuple[Array, Array]:
        after = orbits.flow(rates, y, jnp.zeros(()), times[1] - times[0], springs)
        return after, after

    begin = jnp.concatenate([start, jnp.zeros(2)])
    states = jax.jit(lambda y: jax.lax.scan(step, y, None, length=SAMPLES - 1)[1])(begin)
    states = jnp.concatenate([begin[None], states])
    # Accelerations by differences of the speeds, as a check of the torques of their own.
    h = times[1] - times[0]
    qd = states[:, 2:]
    weights = jnp.array([1 / 280, -4 / 105, 1 / 5, -4 / 5, 0.0, 4 / 5, -1 / 5, 4 / 105, -1 / 280])
    # At rest at both ends: the motion goes on as its mirror image.
    longer = jnp.concatenate([-qd[4:0:-1], qd, -qd[-2:-6:-1]])
    windows = jnp.stack([longer[k : k + SAMPLES] for k in range(9)])
    return times, states[:, :2], qd, jnp.einsum("k,kni->ni", weights, windows) / h


def _without(run: Run, robot: FiveBar, ends: list, settings: Config):
    """Least energy of the drives without springs, by the least square of their torques [J]."""

    def dynamics(robot: FiveBar, x: Array, u: Array) -> Array:
        net = u - friction(robot, x[2:])
        return jnp.concatenate([x[2:], accelerated(robot, x[:2], x[2:], net)])

    problem = jg.ocp.Problem(
        dynamics=Partial(dynamics, robot),
        running_cost=lambda x, u: u @ u,
        initial_state=[*np.asarray(ends[0]), 0.0, 0.0],
        final_state=[*np.asarray(ends[1]), 0.0, 0.0],
        final_time=settings.duration,
        control_bounds=([-LIMIT] * 2, [LIMIT] * 2),
    )
    solution = jg.ocp.solve(problem)
    run.certify("without_springs", solution.certificate)
    t, x, u = (np.asarray(v) for v in (solution.t, solution.x, solution.u))
    return float(work(jnp.asarray(u), jnp.asarray(x[:, 2:]), jnp.asarray(t))), solution


def _tasks(run: Run, robot: FiveBar, springs: dict, settings: Config) -> None:
    rng = np.random.default_rng(0)
    picks, places = [], []
    while len(picks) < TASKS:
        pair = [
            np.asarray(p) + settings.scatter * rng.normal(size=2)
            for p in (settings.pick, settings.place)
        ]
        with np.errstate(invalid="ignore"):
            both = [angles(robot, p) for p in pair]
        if np.all(np.isfinite(both)):
            picks.append(both[0])
            places.append(both[1])
    tasks = jnp.asarray(np.array(picks)), jnp.asarray(np.array(places))
    duration = jnp.asarray(settings.duration)

    @jax.jit
    def mean(flat: Array) -> Array:
        one = {"stiffness": jnp.exp(flat[:2]), "rest": flat[2:]}
        return jnp.mean(jax.vmap(lambda a, b: swung(robot, one, a, b, duration))(*tasks))

    evaluate = jax.jit(jax.value_and_grad(mean))
    start = np.concatenate([np.log(np.asarray(springs["stiffness"])), np.asarray(springs["rest"])])
    found = scipy.optimize.minimize(
        lambda x: tuple(np.asarray(v) for v in evaluate(jnp.asarray(x))),
        start,
        jac=True,
        method="BFGS",
        options={"maxiter": 100, "gtol": 1e-7},
    )
    none = float(mean(jnp.concatenate([jnp.full(2, -40.0), jnp.asarray(start[2:])])))
    run.add("tasks_without_springs", none, "J")
    run.add("tasks_with_springs_of_one", float(mean(jnp.asarray(start))), "J")
    run.add("tasks_with_springs_for_all", float(found.fun), "J")
    run.add("tasks_stiffness", np.exp(found.x[:2]).tolist(), "N m/rad")
    run.note(f"{TASKS} tasks scatter by {100 * settings.scatter:g} cm about pick and place.")


def _draw(run, settings, robot, times, q, qd, torque, solution) -> None:
    t, u = np.asarray(solution.t), np.asarray(solution.u)
    curves = [
        Curve("drive 1 with springs", np.asarray(times), np.asarray(torque[:, 0])),
        Curve("drive 2 with springs", np.asarray(times), np.asarray(torque[:, 1])),
        Curve("drive 1 without springs", t, u[:, 0]),
        Curve("drive 2 without springs", t, u[:, 1]),
    ]
    run.figure(
        "pick_and_place",
        viz.curves(
            [
                Panel("time [s]", "torque of a drive [N m]", curves),
                Panel(
                    "time [s]",
                    "speed of a crank [rad/s]",
                    [
                        Curve(f"crank {k + 1}", np.asarray(times), np.asarray(qd[:, k]))
                        for k in range(2)
                    ],
                ),
            ],
            f"From pick to place in {settings.duration:g} s",
        ),
        "With springs the drives work against friction alone.",
    )
    ends, elbows = (np.asarray(x) for x in jax.vmap(lambda x: tip(robot, x))(q))
    hinges = np.array([[-0.5 * float(robot.base), 0.0], [0.5 * float(robot.base), 0.0]])
    lines = {}
    for k in range(2):
        foot = np.broadcast_to(hinges[k], ends.shape)
        lines[f"crank {k + 1}"] = np.stack([foot, elbows[:, k]], axis=1)
        lines[f"coupler {k + 1}"] = np.stack([elbows[:, k], ends], axis=1)
    parts = {
        name: xarray.DataArray(
            np.concatenate([x, np.zeros((*x.shape[:-1], 1))], axis=-1),
            dims=("step", "point", "axis"),
        )
        for name, x in lines.items()
    }
    title = "A five-bar whose springs carry it from pick to place"
    run.figure(
        "five_bar",
        viz.linkage(
            parts, title, plane="xy", step=30, paths={"tip": parts["coupler 1"].isel(point=1)}
        ),
        "The path of the tip is what the springs make of it.",
    )
    run.animation(
        "five_bar",
        viz.animate_linkage(
            {name: part[::2] for name, part in parts.items()},
            title,
            plane="xy",
            captions=[f"{1e3 * t:.0f} ms" for t in np.asarray(times)[::2]],
        ),
        "Springs at the cranks; no drive.",
    )
