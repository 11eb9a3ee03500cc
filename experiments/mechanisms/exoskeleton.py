"""Torques and powers of a walking exoskeleton with four motors in the sagittal plane.

Five rigid links, with rigid ankles and soles that roll without slip. Every step begins and ends at
rest, so that no foot strikes the ground. Bleuler 2017 reports the machine (two motors of 250 W a
leg, 14 kg, crutches) and gives no motion: gait and segments are defaults of this project.
"""

import math
from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float
from pydantic import Field, model_validator

from jaxgrip import config, viz
from jaxgrip.config import Real
from jaxgrip.models.rolling_foot import RollingFoot, in_world
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

Positive = Annotated[Real, Field(gt=0.0)]
Angle = Annotated[Real, Field(gt=-90.0, lt=90.0)]
GRAVITY = 9.81
POINTS = 201
MOTORS = ("stance hip", "stance knee", "swing hip", "swing knee")
# Shares of the body's mass, centres from the proximal joint, radii of gyration by length, from
# Winter 2009, table 4.1; the shank has the foot, the trunk head and arms.
THIGH, SHANK, TRUNK = (0.100, 0.433, 0.323), (0.061, 0.606, 0.416), (0.678, 0.626, 0.496)
# Inclinations of the sole at which its height above the ground is looked at [rad].
SOLE = np.linspace(-0.45, 0.45, 31)


class Walker(eqx.Module):
    """Five links: lengths of shank, thigh and trunk (3,) [m], and the sole.

    `mass` (3,) [kg] and `inertia` (3,) about the centres [kg m²]; `centre` (3,), distances from
    the lower end [m]; `ankle` (2,): forward of and above the contact of a level foot [m].
    """

    length: Float[Array, "3"]
    mass: Float[Array, "3"]
    inertia: Float[Array, "3"]
    centre: Float[Array, "3"]
    ankle: Float[Array, "2"]
    sole: RollingFoot


class Gait(eqx.Module):
    """A step from rest to rest, with the trunk upright.

    `begin` and `end`: inclinations of the stance shank, forward positive; `knee`: flexion of the
    leading knee; `lift`: by how much more the swing knee is flexed halfway [rad]; `duration` [s].
    """

    begin: Float[Array, ""]
    end: Float[Array, ""]
    knee: Float[Array, ""]
    lift: Float[Array, ""]
    duration: Float[Array, ""]


class Step(NamedTuple):
    """A step at n times.

    `time` [s]; `torque` [N m] and `power` [W] of the motors (n, 4), `stance hip`, `stance knee`,
    `swing hip`, `swing knee`, torques that straighten the joint positive; `crutches` (n,), the
    moment on the trunk that balances the step, forward positive [N m]; `reaction` (n, 2) of the
    ground [N]; `pressure` (n,), its centre [m]; `clearance` (n,), least height of the swing sole
    [m]; `energy` (n,) [J]; `posture` (n, 5, 2): ankle, knee, hip, swing knee and ankle [m].
    """

    time: Float[Array, " n"]
    torque: Float[Array, "n 4"]
    power: Float[Array, "n 4"]
    crutches: Float[Array, " n"]
    reaction: Float[Array, "n 2"]
    pressure: Float[Array, " n"]
    clearance: Float[Array, " n"]
    energy: Float[Array, " n"]
    posture: Float[Array, "n 5 2"]


def up(angle: Array) -> Float[Array, "2"]:
    """Direction of a link that leans forward by an angle [rad]."""
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)])


def _ankle(walker: Walker, shank: Array) -> Array:
    """Position of the stance ankle, for the inclination of the shank."""
    level = jnp.stack([walker.sole(jnp.zeros_like(shank)), jnp.zeros_like(shank)])
    return in_world(walker.sole.roll(shank), shank, level + walker.ankle)


def posture(walker: Walker, q: Float[Array, "5"]) -> Float[Array, "5 2"]:
    """Ankle, knee, hip, swing knee and swing ankle [m].

    **Arguments:** `q`: forward inclinations of stance shank and thigh, swing shank and thigh, and
    trunk [rad].
    """
    shank, thigh, _ = walker.length
    ankle = _ankle(walker, q[0])
    knee = ankle + shank * up(q[0])
    hip = knee + thigh * up(q[1])
    swing = hip - thigh * up(q[3])
    return jnp.stack([ankle, knee, hip, swing, swing - shank * up(q[2])])


def centres(walker: Walker, q: Float[Array, "5"]) -> Float[Array, "5 2"]:
    """Centres of mass of the links, in the order of `q` [m]."""
    ankle, knee, hip, swing_knee, swing_ankle = posture(walker, q)
    shank, thigh, trunk = walker.centre
    return jnp.stack(
        [
            ankle + shank * up(q[0]),
            knee + thigh * up(q[1]),
            swing_ankle + shank * up(q[2]),
            swing_knee + thigh * up(q[3]),
            hip + trunk * up(q[4]),
        ]
    )


# The shank, thigh and trunk that each inclination belongs to.
_LINKS = np.array([0, 1, 0, 1, 2])


def _energies(walker: Walker, q: Array, qd: Array) -> tuple[Array, Array]:
    places, speeds = jax.jvp(lambda x: centres(walker, x), (q,), (qd,))
    mass, inertia = walker.mass[_LINKS], walker.inertia[_LINKS]
    kinetic = 0.5 * jnp.sum(mass * jnp.sum(speeds**2, axis=1)) + 0.5 * jnp.sum(inertia * qd**2)
    return kinetic, GRAVITY * jnp.sum(mass * places[:, 1])


def trailing(walker: Walker, gait: Gait) -> Float[Array, ""]:
    """Inclination of the trailing thigh at which both feet are on the ground [rad].

    Not a number where the trailing leg is too short.
    """
    shank, thigh, _ = walker.length
    first = gait.begin - gait.knee
    height = _ankle(walker, gait.begin)[1] + shank * jnp.cos(gait.begin) + thigh * jnp.cos(first)
    left = height - _ankle(walker, gait.end)[1] - shank * jnp.cos(gait.end)
    return jnp.arccos(left / thigh)


def motion(walker: Walker, gait: Gait, time: Array) -> Float[Array, "5"]:
    """Inclinations of the links at a time [rad], as in `posture`."""
    s = time / gait.duration
    moved = s**3 * (10 - 15 * s + 6 * s**2)
    bump = 64 * (s * (1 - s)) ** 3
    last = trailing(walker, gait)
    lead = jnp.stack([gait.begin, gait.begin - gait.knee])
    trail = jnp.stack([gait.end, last])
    stance = lead + (trail - lead) * moved
    swing = trail + (lead - trail) * moved
    # The knee bends while the thigh goes on forward.
    swing = swing + gait.lift * bump * jnp.array([0.7, -0.3])
    return jnp.concatenate([stance, swing, jnp.zeros(1)])


def step(walker: Walker, gait: Gait, points: int = POINTS) -> Step:
    """Torques, powers and reactions along a step, by Lagrange's equations of the rolling walker."""

    def at(time: Array) -> Step:
        one = jnp.ones_like(time)

        def state(t: Array) -> tuple[Array, Array]:
            return jax.jvp(lambda u: motion(walker, gait, u), (t,), (one,))

        def momentum(t: Array) -> Array:
            q, qd = state(t)
            return jax.grad(lambda v: _energies(walker, q, v)[0])(qd)

        q, qd = state(time)
        rate = jax.jvp(momentum, (time,), (one,))[1]
        kinetic, potential = _energies(walker, q, qd)
        acting = rate - jax.grad(lambda x: jnp.subtract(*_energies(walker, x, qd)))(q)
        # A link is moved by the torque of its lower joint against that of its upper one.
        knees = -acting[jnp.array([0, 2])]
        hips = knees - acting[jnp.array([1, 3])]
        crutches = acting[4] - hips[0] - hips[1]
        flexion = jnp.stack([qd[4] - qd[1], qd[0] - qd[1], qd[4] - qd[3], qd[2] - qd[3]])
        torque = jnp.stack([-hips[0], knees[0], -hips[1], knees[1]])
        mass = walker.mass[_LINKS]

        def pushed(t: Array) -> Array:
            speeds = jax.jvp(lambda u: centres(walker, motion(walker, gait, u)), (t,), (one,))[1]
            return mass @ speeds

        reaction = jax.jvp(pushed, (time,), (one,))[1] + jnp.array([0.0, GRAVITY]) * mass.sum()
        joints = posture(walker, q)
        return Step(
            time,
            torque,
            -torque * flexion,
            crutches,
            reaction,
            walker.sole.roll(q[0]).centre_of_pressure,
            _clearance(walker, joints[4], q[2]),
            kinetic + potential,
            joints,
        )

    return jax.vmap(at)(gait.duration * jnp.linspace(0.0, 1.0, points))


def _sole(walker: Walker, ankle: Array, shank: Array) -> Float[Array, "k 2"]:
    """Points of the sole of a foot with this ankle and inclination [m]."""
    level = jnp.stack([walker.sole(jnp.zeros_like(shank)), jnp.zeros_like(shank)]) + walker.ankle
    cams = jax.vmap(walker.sole.roll)(jnp.asarray(SOLE)).cam - level[None]
    forward = jnp.stack([jnp.cos(shank), -jnp.sin(shank)])
    return ankle[None] + cams @ jnp.stack([forward, up(shank)])


def _clearance(walker: Walker, ankle: Array, shank: Array) -> Array:
    return jnp.min(_sole(walker, ankle, shank)[:, 1])


def peak_power(walker: Walker, gait: Gait) -> Float[Array, ""]:
    """Largest power of a motor, driving or braking [W]."""
    return jnp.max(jnp.abs(step(walker, gait).power))


class Config(config.Config):
    """A person in an exoskeleton, and a gait."""

    body_mass: Positive = Field(70.0, description="mass of the person [kg]")
    body_height: Positive = Field(1.75, description="height of the person [m]")
    machine_mass: Annotated[Real, Field(ge=0.0)] = Field(
        14.0, description="mass of the exoskeleton, half on the trunk, an eighth on every link [kg]"
    )
    power_limit: Positive = Field(250.0, description="of one motor [W]")
    sole_radius: Positive = Field(
        0.30, description="radius of the sole where the foot is level [m]"
    )
    begin_deg: Angle = Field(-6.0, description="inclination of the leading shank [deg]")
    end_deg: Angle = Field(14.0, description="inclination of the trailing shank [deg]")
    knee_deg: Annotated[Real, Field(ge=0.0, lt=90.0)] = Field(
        6.0, description="flexion of the leading knee [deg]"
    )
    lift_deg: Annotated[Real, Field(ge=0.0, lt=120.0)] = Field(
        55.0, description="by how much more the swing knee is flexed halfway [deg]"
    )
    duration: Positive = Field(1.5, description="time of a step [s]")

    @model_validator(mode="after")
    def _walks(self) -> "Config":
        if self.end_deg <= self.begin_deg:
            raise ValueError("end_deg: the trailing shank leans further forward than the leading.")
        walker, gait = self.walker()
        last = float(trailing(walker, gait))
        if not math.isfinite(last) or last > float(gait.end):
            raise ValueError(
                "with these inclinations both feet cannot stand on the ground: the trailing leg "
                f"is too {'long' if math.isfinite(last) else 'short'}; change end_deg or knee_deg."
            )
        return self

    def walker(self) -> tuple[Walker, Gait]:
        """The links and the step."""
        height, machine = self.body_height, self.machine_mass
        length = height * np.array([0.246, 0.245, 0.470])
        shares = np.array([SHANK, THIGH, TRUNK])
        carried = machine * np.array([1 / 8, 1 / 8, 1 / 2])
        mass = self.body_mass * shares[:, 0] + carried
        # Legs by the distance from the hip, the trunk's from the hip upward.
        centre = length * np.array([1 - SHANK[1], 1 - THIGH[1], TRUNK[1]])
        inertia = mass * (length * shares[:, 2]) ** 2
        walker = Walker(
            *(jnp.asarray(x) for x in (length, mass, inertia, centre)),
            jnp.array([0.0, 0.04 * height]),
            RollingFoot(0.5 * self.sole_radius, 1.0),
        )
        angles = (self.begin_deg, self.end_deg, self.knee_deg, self.lift_deg)
        return walker, Gait(*(jnp.deg2rad(x) for x in angles), jnp.asarray(self.duration, float))


def run(settings: Config, run: Run) -> None:
    """A step: torques and powers of the motors, clearance, and what crutches must carry."""
    walker, gait = settings.walker()
    run.note("The source gives no motion and no segments: they are defaults or your own.")
    with run.stage("A step"):
        found = jax.tree.map(np.asarray, jax.jit(step)(walker, gait))
        by_time = float(jax.jit(jax.grad(peak_power, argnums=1))(walker, gait).duration)
    length = float(found.posture[-1, 4, 0] - found.posture[0, 4, 0]) / 2
    run.add("step_length", length, "m")
    run.add("speed", length / settings.duration, "m/s")
    for k, name in enumerate(MOTORS):
        label = name.replace(" ", "_")
        run.add(f"{label}_torque", float(np.max(np.abs(found.torque[:, k]))), "N m")
        run.add(f"{label}_power", float(np.max(np.abs(found.power[:, k]))), "W")
    peak = float(np.max(np.abs(found.power)))
    run.add("peak_power", peak, "W")
    run.add("peak_power_by_duration", by_time, "W/s")
    work = float(np.trapezoid(np.sum(np.maximum(found.power, 0.0), axis=1), found.time))
    run.add("positive_work", work, "J")
    run.add("largest_moment_of_crutches", float(np.max(np.abs(found.crutches))), "N m")
    grip = float(np.max(np.abs(found.reaction[:, 0]) / found.reaction[:, 1]))
    run.add("friction_needed", grip, "1")
    clearance = float(np.min(found.clearance))
    run.add("least_clearance", clearance, "m")
    if clearance < -1e-6:
        at = found.time[np.argmin(found.clearance)]
        run.note(
            f"The swing foot would be {-1e3 * clearance:.1f} mm below the ground at {at:.2f} s: "
            "lift the knee more."
        )
    enough = "within" if peak <= settings.power_limit else "beyond"
    run.note(
        f"The largest power of a motor is {peak:.0f} W, {enough} the limit of "
        f"{settings.power_limit:g} W, before losses of gears and motors."
    )
    run.arrays("step", _arrays(found))
    with run.stage("Pictures"):
        _draw(run, settings, walker, gait, found)


def _arrays(found: Step) -> xarray.Dataset:
    dims = {
        "torque": ("time", "motor"),
        "power": ("time", "motor"),
        "reaction": ("time", "axis"),
        "posture": ("time", "joint", "axis"),
    }
    units = ("s", "N m", "W", "N m", "N", "m", "m", "J", "m")
    return xarray.Dataset(
        {
            name: (dims.get(name, ("time",)), value, {"units": unit})
            for name, value, unit in zip(Step._fields, found, units, strict=True)
        },
    ).set_coords("time")


def _draw(run: Run, settings: Config, walker: Walker, gait: Gait, found: Step) -> None:
    def curves(values: np.ndarray) -> list[Curve]:
        return [Curve(name, found.time, values[:, k]) for k, name in enumerate(MOTORS)]

    limit = settings.power_limit
    near = np.max(np.abs(found.power)) > 0.3 * limit
    run.figure(
        "exoskeleton",
        viz.curves(
            [
                Panel("time [s]", "torque that straightens [N m]", curves(found.torque)),
                Panel(
                    "time [s]",
                    "power [W]",
                    curves(found.power),
                    levels=[(limit, "limit"), (-limit, "limit")] if near else [],
                ),
                Panel(
                    "time [s]",
                    "moment on the trunk [N m]",
                    [Curve("what the crutches carry", found.time, found.crutches)],
                ),
            ],
            f"A step of {settings.duration:g} s with {settings.machine_mass:g} kg of machine",
        ),
        "The trunk stays upright; what balances it beyond the hips, crutches carry.",
    )
    angles = jax.vmap(lambda t: motion(walker, gait, t))(jnp.asarray(found.time))
    soles = jax.vmap(
        lambda joints, q: jnp.stack(
            [_sole(walker, joints[0], q[0]), _sole(walker, joints[4], q[2])]
        )
    )(jnp.asarray(found.posture), angles)
    top = found.posture[:, 2] + np.array([0.0, float(walker.length[2])])
    lines = {
        "trunk": np.stack([found.posture[:, 2], top], axis=1),
        "stance leg": found.posture[:, :3],
        "swing leg": found.posture[:, 2:],
        "stance sole": np.asarray(soles)[:, 0, ::3],
        "swing sole": np.asarray(soles)[:, 1, ::3],
    }
    parts = {
        name: xarray.DataArray(
            np.concatenate([x, np.zeros((*x.shape[:-1], 1))], axis=-1),
            dims=("step", "point", "axis"),
        )
        for name, x in lines.items()
    }
    title = "A step of an exoskeleton with rigid ankles and rolling soles"
    run.figure(
        "exoskeleton_step",
        viz.linkage(parts, title, plane="xy", step=40, paths={"hip": parts["trunk"].isel(point=0)}),
        "The stance sole rolls, the swing leg is lifted over the ground.",
    )
    run.animation(
        "exoskeleton_step",
        viz.animate_linkage(
            {name: part[::4] for name, part in parts.items()},
            title,
            plane="xy",
            captions=[f"{t:.2f} s" for t in found.time[::4]],
        ),
        "From rest to rest.",
    )
