"""Outlines of the links of a four-bar for least shaking force; mass properties of a file.

The idea is that of Heinrich 2017, which gives neither equations nor data: lengths and bars are
defaults of this project.
"""

from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import xarray
from jaxtyping import Array, Float
from pydantic import Field, model_validator

from jaxgrip import config, shapes, viz
from jaxgrip.config import ConfigError, InputPath, Real
from jaxgrip.mechanism.historical import planar
from jaxgrip.report import Run
from jaxgrip.shapes import MassProperties
from jaxgrip.viz import Curve, Panel

Positive = Annotated[Real, Field(gt=0.0)]
ANGLES = 120
STATIONS = 7
LINKS = ("crank", "coupler", "rocker")
STEPS = 400


class Links(eqx.Module):
    """Outlines of three links along their x axes, from joint to joint.

    `stations` (3, k): x from the first joint [m]; crank and rocker reach beyond their fixed
    pivots. `widths` (3, k): half widths there; `thickness` [m]; `density` [kg/m³].
    """

    stations: Float[Array, "3 k"]
    widths: Float[Array, "3 k"]
    thickness: Float[Array, ""]
    density: Float[Array, ""]


class Shaking(NamedTuple):
    """What the links do to the frame, by the crank angle (n,), at constant speed.

    `force` (n, 2) [N]; `torque` (n,) that drives the crank [N m]; `mass` of the links [kg].
    """

    force: Float[Array, "n 2"]
    torque: Float[Array, " n"]
    mass: Float[Array, ""]


def bodies(links: Links) -> MassProperties:
    """Mass properties of the three links, stacked."""

    def one(stations: Array, widths: Array) -> MassProperties:
        outline = shapes.link_outline(stations, widths)
        return shapes.extruded(outline, links.thickness, links.density)

    return jax.vmap(one)(links.stations, links.widths)


def poses(linkage: planar.FourBar, angle: Array) -> tuple[Array, Array]:
    """First joints (3, 2) and angles (3,) of crank, coupler and rocker."""
    found = planar.position(linkage, angle)
    tip = linkage.crank * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    foot = jnp.stack([linkage.frame, jnp.zeros_like(angle)])
    joints = jnp.stack([jnp.zeros(2), tip, foot])
    return joints, jnp.stack([angle, found.theta, found.psi])


def placed(joint: Array, angle: Array, points: Float[Array, "n 2"]) -> Float[Array, "n 2"]:
    """Points of a link where the link is."""
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    turn = jnp.stack([jnp.stack([cosine, sine]), jnp.stack([-sine, cosine])])
    return joint[None] + points @ turn


def shaking(linkage: planar.FourBar, links: Links, speed: Array, angles: Array) -> Shaking:
    """Shaking force and drive torque of the links at crank angles (n,), without gravity."""
    body = bodies(links)

    def centres(angle: Array) -> Array:
        joints, turned = poses(linkage, angle)
        return jax.vmap(placed)(joints, turned, body.centre[:, None, :2])[:, 0]

    def moving(angle: Array) -> tuple[Array, Array]:
        """Momentum and kinetic energy at unit speed."""
        one = (jnp.ones_like(angle),)
        by_angle = jax.jvp(centres, (angle,), one)[1]
        turning = jax.jvp(lambda a: poses(linkage, a)[1], (angle,), one)[1]
        energy = body.mass @ jnp.sum(by_angle**2, axis=1) + body.inertia[:, 2, 2] @ turning**2
        return body.mass @ by_angle, 0.5 * energy

    def at(angle: Array) -> tuple[Array, Array]:
        return jax.jvp(moving, (angle,), (jnp.ones_like(angle),))[1]

    momentum, energy = jax.vmap(at)(angles)
    return Shaking(-(speed**2) * momentum, speed**2 * energy, jnp.sum(body.mass))


def objective(
    linkage: planar.FourBar, links: Links, speed: Array, angles: Array, weight: Array
) -> Float[Array, ""]:
    """Mean square of the shaking force [N²] and a weight [N²/kg] times the mass."""
    found = shaking(linkage, links, speed, angles)
    return jnp.mean(jnp.sum(found.force**2, axis=1)) + weight * found.mass


class Config(config.Config):
    """A four-bar and its bars, or a file of triangles."""

    mesh: InputPath | None = Field(
        None, description="file of triangles (STL, OBJ, PLY) whose mass properties are wanted"
    )
    scale: Positive = Field(1.0, description="metres in a unit of the file, 1e-3 for millimetres")
    density: Positive = Field(7850.0, description="density [kg/m³]")
    lengths: tuple[Positive, Positive, Positive, Positive] = Field(
        (0.10, 0.25, 0.20, 0.28), description="crank, coupler, rocker and frame [m]"
    )
    beyond: tuple[Positive, Positive] = Field(
        (0.06, 0.09), description="how far crank and rocker reach beyond their fixed pivots [m]"
    )
    width: Positive = Field(0.03, description="of the bars to start with [m]")
    thickness: Positive = Field(0.01, description="of the links [m]")
    widths: tuple[Positive, Positive] = Field(
        (0.016, 0.13), description="least and largest width of a link [m]"
    )
    speed: Positive = Field(60.0, description="speed of the crank [rad/s]")
    mass_weight: Annotated[Real, Field(ge=0.0)] = Field(
        0.5, description="mean square of the force that a kilogram less is worth [N²/kg]"
    )

    @model_validator(mode="after")
    def _turns(self) -> "Config":
        crank, *rest = self.lengths
        ordered = sorted(self.lengths)
        if crank > min(rest) or ordered[0] + ordered[3] > ordered[1] + ordered[2]:
            raise ValueError(
                "lengths: the crank cannot turn round; it must be the shortest, and with the "
                "longest no longer than the other two together."
            )
        if not self.widths[0] <= self.width <= self.widths[1]:
            raise ValueError("width: it must lie between the least and the largest of widths.")
        if self.mesh is not None:
            self.surface()
        return self

    def surface(self) -> shapes.Surface:
        """The surface in the file."""
        try:
            return shapes.read_surface(self.mesh, scale=self.scale)
        except ValueError as error:
            raise ConfigError(f"mesh: {error}") from None

    def links(self) -> tuple[planar.FourBar, Links]:
        """The linkage, and bars of one width for it."""
        starts = (-self.beyond[0], 0.0, -self.beyond[1])
        ends = self.lengths[:3]
        stations = np.stack(
            [np.linspace(a, b, STATIONS) for a, b in zip(starts, ends, strict=True)]
        )
        widths = np.full(stations.shape, 0.5 * self.width)
        numbers = (stations, widths, self.thickness, self.density)
        return planar.FourBar(*self.lengths), Links(*(jnp.asarray(x, float) for x in numbers))


def optimised(settings: Config, linkage: planar.FourBar, links: Links) -> tuple[Links, int]:
    """The links with widths of least objective, and the number of evaluations."""
    angles = jnp.linspace(0.0, 2 * jnp.pi, ANGLES, endpoint=False)
    speed, weight = jnp.asarray(settings.speed), jnp.asarray(settings.mass_weight)

    @jax.jit
    def evaluate(flat: Array) -> tuple[Array, Array]:
        def value(widths: Array) -> Array:
            return objective(linkage, _with(links, widths), speed, angles, weight)

        return jax.value_and_grad(value)(flat.reshape(links.widths.shape))

    def both(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = evaluate(jnp.asarray(x))
        return float(value), np.asarray(slope).ravel()

    limits = [tuple(0.5 * w for w in settings.widths)] * links.widths.size
    found = scipy.optimize.minimize(
        *(both, np.asarray(links.widths).ravel()),
        jac=True,
        method="L-BFGS-B",
        bounds=limits,
        options={"maxiter": STEPS, "ftol": 1e-12},
    )
    return _with(links, jnp.asarray(found.x).reshape(links.widths.shape)), int(found.nfev)


def _with(links: Links, widths: Array) -> Links:
    return eqx.tree_at(lambda one: one.widths, links, widths)


def run(settings: Config, run: Run) -> None:
    """Mass properties of the file if there is one; else the outlines of the links."""
    if settings.mesh is not None:
        _of_file(settings, run)
        return
    run.note("The source gives no equations and no data: all numbers are defaults or your own.")
    linkage, bars = settings.links()
    with run.stage("Outlines of the links"):
        better, count = optimised(settings, linkage, bars)
    angles = jnp.linspace(0.0, 2 * jnp.pi, ANGLES + 1)
    speed = jnp.asarray(settings.speed)
    look = jax.jit(shaking)
    found = {
        "bars": jax.tree.map(np.asarray, look(linkage, bars, speed, angles)),
        "optimised": jax.tree.map(np.asarray, look(linkage, better, speed, angles)),
    }
    for name, one in found.items():
        size = np.hypot(*one.force.T)
        run.add(f"{name}_shaking_force", float(np.max(size)), "N")
        run.add(f"{name}_shaking_force_rms", float(np.sqrt(np.mean(size[:-1] ** 2))), "N")
        run.add(f"{name}_drive_torque", float(np.max(np.abs(one.torque))), "N m")
        run.add(f"{name}_mass", float(one.mass), "kg")
    run.add("evaluations", count, "1")
    for name, widths in zip(LINKS, np.asarray(better.widths), strict=True):
        run.add(f"{name}_widths", (2 * widths).tolist(), "m")
    with run.stage("Pictures"):
        _draw(run, linkage, {"bars": bars, "optimised": better}, found, angles)


def _of_file(settings: Config, run: Run) -> None:
    surface = settings.surface()
    for sentence in surface.notes:
        run.note(sentence)
    body = shapes.mass_properties(surface, settings.density)
    run.add("volume", float(body.mass) / settings.density, "m^3")
    run.add("mass", float(body.mass), "kg")
    run.add("centre", np.asarray(body.centre).tolist(), "m")
    for k, axis in enumerate("xyz"):
        run.add(f"inertia_{axis}", np.asarray(body.inertia[k]).tolist(), "kg m^2")
    moments = np.linalg.eigvalsh(np.asarray(body.inertia))
    run.add("principal_moments", moments.tolist(), "kg m^2")
    run.note("The inertia is about the centre of mass, in the axes of the file.")


def _draw(run, linkage, links, found, angles) -> None:
    degrees = np.rad2deg(np.asarray(angles))
    run.figure(
        "shaking_force",
        viz.curves(
            [
                Panel(
                    "crank angle [°]",
                    "shaking force [N]",
                    [Curve(k, degrees, np.hypot(*one.force.T)) for k, one in found.items()],
                ),
                Panel(
                    "crank angle [°]",
                    "drive torque [N m]",
                    [Curve(k, degrees, one.torque) for k, one in found.items()],
                ),
            ],
            "A four-bar with bars, and with outlines for least shaking force",
        ),
        "Counterweights balance the force; they need not lower the torque.",
    )
    for name, one in links.items():
        parts = _parts(linkage, one, angles)
        title = f"Four-bar, {name}: the frame is pushed by {_range(found[name].force)}"
        run.figure(
            f"links_{name}",
            viz.linkage(parts, title, plane="xy", step=10),
            "Outlines of the links, with their ends round.",
        )
        run.animation(
            f"links_{name}",
            viz.animate_linkage(
                {k: part[::2] for k, part in parts.items()},
                title,
                plane="xy",
                captions=[f"crank {d:.0f}°" for d in degrees[::2]],
            ),
            "One revolution of the crank.",
        )


def _range(force: np.ndarray) -> str:
    return f"up to {np.max(np.hypot(*force.T)):.3g} N"


def _parts(linkage, links: Links, angles: Array) -> dict[str, xarray.DataArray]:
    outlines = jax.vmap(shapes.link_outline)(links.stations, links.widths)
    closed = jnp.concatenate([outlines, outlines[:, :1]], axis=1)

    def at(angle: Array) -> Array:
        return jax.vmap(placed)(*poses(linkage, angle), closed)

    drawn = np.asarray(jax.vmap(at)(angles))
    flat = np.concatenate([drawn, np.zeros((*drawn.shape[:-1], 1))], axis=-1)
    return {
        name: xarray.DataArray(flat[:, k], dims=("step", "point", "axis"))
        for k, name in enumerate(LINKS)
    }
