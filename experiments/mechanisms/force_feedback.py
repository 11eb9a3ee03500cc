"""A planar force-feedback device of two lifting cylinders that feels like a door.

Demirkale 2017 gives neither equations nor data: geometry, limits and the door are defaults of this
project. Cylinders act as forces along lines without mass; their drives and the structure are rigid.
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
from jaxgrip.actuators import LuGre, passivity
from jaxgrip.config import Real, Section
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

Positive = Annotated[Real, Field(gt=0.0)]
Point = tuple[Real, Real]
ANGLES = 181
# Sine between the cylinders below which their forces are reported as unbounded.
SINGULAR = 0.05
# Shares of the largest passive stiffness at which the rendered door is simulated.
SHARES = (0.5, 0.9, 1.1, 2.0)
SAMPLES = 4000


class Door(eqx.Module):
    """A virtual door, moved at its handle.

    `hinge` (2,) and `radius` [m] of the handle about it; moment of `inertia` [kg m²];
    `friction` torque [N m] by the rate [rad/s], as a `LuGre`; `guide`, the stiffness that keeps the
    handle on its circle [N/m].
    """

    hinge: Float[Array, "2"]
    radius: Float[Array, ""]
    inertia: Float[Array, ""]
    friction: LuGre
    guide: Float[Array, ""]


class Cylinders(NamedTuple):
    """The cylinders where the handle is.

    `length` (2,) [m]; `jacobian` (2, 2) of the lengths by the handle's position.
    """

    length: Float[Array, "2"]
    jacobian: Float[Array, "2 2"]


def cylinders(feet: Float[Array, "2 2"], handle: Float[Array, "2"]) -> Cylinders:
    """Lengths of two cylinders from their feet to the handle, and the derivatives."""
    to = handle[None] - feet
    length = jnp.sqrt(jnp.sum(to**2, axis=1))
    return Cylinders(length, to / length[:, None])


def cylinder_forces(
    feet: Float[Array, "2 2"], handle: Float[Array, "2"], force: Float[Array, "2"]
) -> Float[Array, "2"]:
    """Forces of the cylinders [N], positive in thrust, that make a force on the handle [N].

    Infinite where feet and handle lie on one line.
    """
    (a, b), (c, d) = cylinders(feet, handle).jacobian
    return jnp.stack([d * force[0] - c * force[1], a * force[1] - b * force[0]]) / (a * d - b * c)


def at(door: Door, angle: Float[Array, ""]) -> Float[Array, "2"]:
    """Where the handle of the door is at an angle [rad]."""
    return door.hinge + door.radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def rendered(
    door: Door,
    handle: Float[Array, "2"],
    velocity: Float[Array, "2"],
    acceleration: Float[Array, "2"],
) -> Float[Array, "2"]:
    """Force of the door on the hand [N], for the motion of the handle.

    Along the circle: inertia and friction at constant rate; across it: the guide.
    """
    radial = handle - door.hinge
    distance = jnp.sqrt(radial @ radial)
    outward = radial / distance
    along = jnp.stack([-outward[1], outward[0]])
    rate = velocity @ along / door.radius
    # The tangential part alone: the guide carries what turns the direction.
    turning = acceleration @ along / door.radius
    torque = door.inertia * turning + door.friction.steady(rate)
    return -torque / door.radius * along - door.guide * (distance - door.radius) * outward


def stiffest(damping: Array, period: Array) -> Float[Array, ""]:
    """The largest stiffness of a sampled spring that is passive [N/m].

    **Arguments:** `damping` of the device itself [N s/m]; `period` of the samples [s], with forces
    held in between.

    Source: Colgate 1997: b > K T/2.
    """
    return 2 * damping / period


def sampled(
    mass: Array, damping: Array, stiffness: Array, period: Array, steps: int
) -> Float[Array, " n"]:
    """Energy [J] of a mass on a sampled spring after every period, started with 1 J of speed.

    The force is that of the last sample, held; the motion in between is exact.
    """
    decay = jnp.exp(-damping / mass * period)
    rate = damping / mass
    reach = (1 - decay) / rate

    def step(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        x, v = state
        push = -stiffness * x / damping
        after = x + push * period + (v - push) * reach, push + (v - push) * decay
        return after, 0.5 * mass * after[1] ** 2 + 0.5 * stiffness * after[0] ** 2

    start = jnp.zeros(()), jnp.sqrt(2 / mass)
    return jax.lax.scan(step, start, None, length=steps)[1]


class Opening(NamedTuple):
    """A door that a hand opens and lets come to rest, at n times.

    `time` (n,) [s]; `angle` (n,) [rad]; `handle` (n, 2) [m]; `force` of the door on the hand
    (n, 2), `along` the circle (n,), and of the cylinders (n, 2) [N]; `length` (n, 2) [m] and
    `sine` (n,) of the angle between the cylinders.
    """

    time: Float[Array, " n"]
    angle: Float[Array, " n"]
    handle: Float[Array, "n 2"]
    force: Float[Array, "n 2"]
    along: Float[Array, " n"]
    thrust: Float[Array, "n 2"]
    length: Float[Array, "n 2"]
    sine: Float[Array, " n"]


def opening(
    door: Door, feet: Array, begin: Array, end: Array, duration: Array, points: int = ANGLES
) -> Opening:
    """The door opened from one angle to another [rad] with least jerk."""
    time = duration * jnp.linspace(0.0, 1.0, points)

    def angle(t: Array) -> Array:
        s = t / duration
        return begin + (end - begin) * s**3 * (10 - 15 * s + 6 * s**2)

    def place(t: Array) -> Array:
        return at(door, angle(t))

    def speed(t: Array) -> Array:
        return jax.jvp(place, (t,), (jnp.ones_like(t),))[1]

    def one(t: Array) -> Opening:
        handle, velocity = jax.jvp(place, (t,), (jnp.ones_like(t),))
        acceleration = jax.jvp(speed, (t,), (jnp.ones_like(t),))[1]
        force = rendered(door, handle, velocity, acceleration)
        now = cylinders(feet, handle)
        (a, b), (c, d) = now.jacobian
        radial = (handle - door.hinge) / door.radius
        along = radial[0] * force[1] - radial[1] * force[0]
        thrust = cylinder_forces(feet, handle, force)
        return Opening(t, angle(t), handle, force, along, thrust, now.length, a * d - b * c)

    return jax.vmap(one)(time)


class VirtualDoor(Section):
    """The door that the device feels like."""

    hinge: Point = Field((0.6, 0.45), description="position of its hinge [m]")
    radius: Positive = Field(0.7, description="from the hinge to the handle [m]")
    inertia: Positive = Field(6.0, description="moment of inertia about the hinge [kg m²]")
    coulomb: Positive = Field(2.0, description="dry friction [N m]")
    stiction: Positive = Field(3.0, description="static friction [N m]")
    viscous: Annotated[Real, Field(ge=0.0)] = Field(1.0, description="viscous friction [N m s/rad]")
    guide: Positive = Field(1.2e4, description="stiffness across the circle [N/m]")
    angles_deg: Point = Field((25.0, 115.0), description="closed and open [deg]")
    duration: Positive = Field(2.0, description="time in which it is opened [s]")

    @model_validator(mode="after")
    def _static_is_larger(self) -> "VirtualDoor":
        if self.stiction < self.coulomb:
            raise ValueError(
                f"stiction, {self.stiction:g} N m, is at least the dry friction, {self.coulomb:g}."
            )
        return self


class Config(config.Config):
    """The device and the door."""

    feet: tuple[Point, Point] = Field(
        ((0.0, 0.0), (1.2, 0.0)), description="where the cylinders are hinged [m]"
    )
    door: VirtualDoor = Field(VirtualDoor(), description="the virtual door")
    force_limit: Positive = Field(150.0, description="largest force of a cylinder [N]")
    lengths: Point = Field((0.4, 1.5), description="shortest and longest cylinder [m]")
    damping: Positive = Field(25.0, description="of the device at its handle [N s/m]")
    mass: Positive = Field(12.0, description="of the device at its handle [kg]")
    period: Positive = Field(1e-3, description="time between two samples of the controller [s]")

    @model_validator(mode="after")
    def _can_move(self) -> "Config":
        if self.feet[0] == self.feet[1]:
            raise ValueError("feet: both cylinders are hinged at the same point.")
        if not 0 < self.lengths[0] < self.lengths[1]:
            raise ValueError("lengths: the shortest must be positive and below the longest.")
        return self

    def opening(self) -> tuple[Door, tuple]:
        """The door, and the arguments of `opening` that follow it."""
        d = self.door
        friction = LuGre(
            coulomb=d.coulomb,
            stiction=d.stiction,
            viscous=d.viscous,
            stiffness=1e3,
            damping=1.0,
            stribeck_velocity=0.05,
            damping_velocity=0.05,
        )
        door = Door(
            *(jnp.asarray(x, float) for x in (d.hinge, d.radius, d.inertia)),
            friction,
            jnp.asarray(d.guide, float),
        )
        ends = [math.radians(x) for x in d.angles_deg]
        return door, tuple(jnp.asarray(x, float) for x in (self.feet, *ends, d.duration))


def largest(door: Door, feet: Array, *motion: Array) -> Float[Array, ""]:
    """Largest force of a cylinder while the door opens [N]."""
    return jnp.max(jnp.abs(opening(door, feet, *motion).thrust))


def run(settings: Config, run: Run) -> None:
    """Forces and lengths while the door opens, and how stiff a guide may be."""
    run.note("The source gives no equations and no data: all numbers are defaults or your own.")
    door, motion = settings.opening()
    with run.stage("Opening the door"):
        found = jax.tree.map(np.asarray, jax.jit(opening)(door, *motion))
        by_feet = np.asarray(jax.jit(jax.grad(largest, argnums=1))(door, *motion))
    run.add("largest_hand_force", float(np.max(np.abs(found.along))), "N")
    run.add("largest_cylinder_force", float(np.max(np.abs(found.thrust))), "N")
    run.add("largest_cylinder_force_by_feet", [float(x) for x in by_feet.ravel()], "N/m")
    run.add("shortest_cylinder", float(np.min(found.length)), "m")
    run.add("longest_cylinder", float(np.max(found.length)), "m")
    run.add("least_sine_between_cylinders", float(np.min(np.abs(found.sine))), "1")
    for sentence in _limits(settings, found):
        run.note(sentence)
    run.note("Friction of the door: " + passivity(door.friction, 5.0).sentence)
    with run.stage("Sampled guide"):
        stiff = stiffest(settings.damping, settings.period)
        energies = _energies(settings, stiff)
    run.add("stiffest_passive_guide", float(stiff), "N/m")
    if settings.door.guide > stiff:
        run.note(
            f"The guide of {settings.door.guide:g} N/m, sampled every "
            f"{1e3 * settings.period:g} ms, can release energy: at most {stiff:.4g} N/m is passive "
            f"with {settings.damping:g} N s/m."
        )
    run.arrays("opening", _arrays(found))
    with run.stage("Pictures"):
        _draw(run, settings, found, energies)


def _limits(settings: Config, found: Opening) -> list[str]:
    said = []
    if np.min(np.abs(found.sine)) < SINGULAR or np.ptp(np.sign(found.sine)):
        k = int(np.argmin(np.abs(found.sine)))
        said.append(
            f"At {np.rad2deg(found.angle[k]):.0f}° feet and handle are nearly on one line: the "
            "cylinders cannot make a force across it."
        )
    most = np.max(np.abs(found.thrust), axis=1)
    if np.any(most > settings.force_limit):
        k = int(np.argmax(most))
        said.append(
            f"The door needs {most[k]:.3g} N of a cylinder at {np.rad2deg(found.angle[k]):.0f}°, "
            f"more than the limit of {settings.force_limit:g} N."
        )
    for name, off in (
        ("short", found.length < settings.lengths[0]),
        ("long", found.length > settings.lengths[1]),
    ):
        if np.any(off):
            k = int(np.argmax(np.any(off, axis=1)))
            said.append(
                f"A cylinder would be too {name} from {np.rad2deg(found.angle[k]):.0f}° on: "
                f"{found.length[k][off[k]][0]:.3g} m."
            )
    return said or ["The cylinders can make the door's forces all the way."]


def _energies(settings: Config, stiff: float) -> dict[float, np.ndarray]:
    numbers = (settings.mass, settings.damping, 0.0, settings.period)
    mass, damping, _, period = (jnp.asarray(x, float) for x in numbers)
    found = jax.jit(jax.vmap(lambda k: sampled(mass, damping, k, period, SAMPLES)))(
        stiff * jnp.asarray(SHARES)
    )
    return dict(zip(SHARES, np.asarray(found), strict=True))


def _arrays(found: Opening) -> xarray.Dataset:
    plane, each = ("time", "axis"), ("time", "cylinder")
    dims = (("time",), ("time",), plane, plane, ("time",), each, each, ("time",))
    units = ("s", "rad", "m", "N", "N", "N", "m", "1")
    return xarray.Dataset(
        {
            name: (dim, value, {"units": unit})
            for name, value, dim, unit in zip(found._fields, found, dims, units, strict=True)
        }
    ).set_coords("time")


def _draw(run: Run, settings: Config, found: Opening, energies: dict[float, np.ndarray]) -> None:
    feet, degrees = np.array(settings.feet), np.rad2deg(found.angle)
    hinge = np.array(settings.door.hinge)

    def line(start: np.ndarray) -> xarray.DataArray:
        ends = np.stack([np.broadcast_to(start, found.handle.shape), found.handle], axis=1)
        flat = np.concatenate([ends, np.zeros((*ends.shape[:2], 1))], axis=2)
        return xarray.DataArray(flat, dims=("step", "point", "axis"))

    parts = {"cylinder 1": line(feet[0]), "cylinder 2": line(feet[1]), "virtual door": line(hinge)}
    handle = {"handle": parts["virtual door"].isel(point=1)}
    run.figure(
        "force_feedback",
        viz.linkage(parts, "Two cylinders feel like a door", plane="xy", step=36, paths=handle),
        "The door is not there: the cylinders make its forces.",
    )
    run.animation(
        "force_feedback",
        viz.animate_linkage(
            {name: part[::3] for name, part in parts.items()},
            "Two cylinders feel like a door",
            plane="xy",
            captions=[f"hand {f:.0f} N" for f in found.along[::3]],
        ),
        "A hand opens the virtual door.",
    )
    limit = settings.force_limit
    within = np.max(np.abs(found.thrust)) > 0.5 * limit
    time = settings.period * np.arange(1, SAMPLES + 1)
    run.figure(
        "force_feedback_forces",
        viz.curves(
            [
                Panel(
                    "angle of the door [°]",
                    "force [N]",
                    [
                        Curve("of the door on the hand", degrees, found.along),
                        Curve("of cylinder 1", degrees, found.thrust[:, 0]),
                        Curve("of cylinder 2", degrees, found.thrust[:, 1]),
                    ],
                    levels=[(limit, "limit"), (-limit, "limit")] if within else [],
                ),
                Panel(
                    "time [s]",
                    "energy of the handle [J]",
                    [
                        Curve(f"guide at {share:g} of the largest passive stiffness", time, energy)
                        for share, energy in energies.items()
                    ],
                    log="y",
                ),
            ],
            "Forces while the door opens, and a sampled guide",
        ),
        "Above the largest passive stiffness the sampled guide gives energy to the handle.",
    )
