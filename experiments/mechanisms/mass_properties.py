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
from jaxtyping import Array, Float
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from pydantic import Field, model_validator

from jaxgrip import config, shapes, viz
from jaxgrip.config import ConfigError, InputPath, Real
from jaxgrip.mechanism.historical import planar
from jaxgrip.report import Run
from jaxgrip.shapes import MassProperties
from jaxgrip.viz import Curve, Panel
from jaxgrip.viz.style import GREY, PALETTE, styled

Positive = Annotated[Real, Field(gt=0.0)]
ANGLES = 120
# Triangles of a file that are drawn.
MOST_DRAWN = 4000
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
        (0.06, 0.09), description="how far crank and rocker may reach beyond their fixed pivots [m]"
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

    def links(self, beyond: tuple[float, float] = (0.0, 0.0)) -> tuple[planar.FourBar, Links]:
        """The linkage, and bars of one width that reach beyond the fixed pivots."""
        starts = (-beyond[0], 0.0, -beyond[1])
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
        better, count = optimised(settings, *settings.links(settings.beyond))
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
    with run.stage("Picture"):
        run.figure(
            "shape",
            _seen(surface, body),
            "The surface of the file, its centre of mass, and the principal axes there, each as "
            "long as the radius of gyration about it.",
        )


@styled
def _seen(surface: shapes.Surface, body: MassProperties) -> Figure:
    corners = np.asarray(surface.vertices)
    factor, unit = viz.readable(float(np.ptp(corners, axis=0).max()), "m")
    low, high = factor * corners.min(axis=0), factor * corners.max(axis=0)
    figure = Figure(figsize=(7.6, 6.4))
    figure.suptitle(f"A body of {float(body.mass):.4g} kg", x=0.02, ha="left")
    axes = figure.add_axes((0.02, 0.12, 0.9, 0.82), projection="3d")
    # Of a fine surface a part of the triangles shows the shape.
    every = max(1, len(surface.triangles) // MOST_DRAWN)
    faces = factor * corners[np.asarray(surface.triangles)[::every]]
    look = {"facecolors": (*to_rgb(PALETTE[0]), 0.12), "edgecolors": (0, 0, 0, 0.18)}
    axes.add_collection3d(Poly3DCollection(faces, linewidths=0.4, **look))
    moments, turns = np.linalg.eigh(np.asarray(body.inertia))
    at = factor * np.asarray(body.centre)
    for moment, axis, colour in zip(moments, turns.T, PALETTE[1:4], strict=True):
        reach = factor * np.sqrt(moment / float(body.mass)) * axis
        label = f"{moment:.3g} kg m²"
        axes.plot(*np.stack([at - reach, at + reach], axis=1), color=colour, label=label)
    axes.plot(*at[:, None], "o", color="black", markersize=7, label="centre of mass")
    room = 0.05 * np.max(high - low)
    for name, axis, a, b in zip(
        "xyz", (axes.xaxis, axes.yaxis, axes.zaxis), low - room, high + room, strict=True
    ):
        axes.set(**{f"{name}lim": (a, b), f"{name}label": f"{name} [{unit}]"})
        axis.set_major_locator(MaxNLocator(max(2, round(5 * (b - a) / np.max(high - low)))))
    axes.set_aspect("equal")
    figure.legend(loc="lower center", ncols=4)
    return figure


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
    picture = _Picture(linkage, links, found, angles)
    run.figure(
        "links",
        picture.at(ANGLES // 12),
        "Bars, and the outlines found. The arrow is the shaking force, the curve its tip in one "
        "revolution, on one scale.",
    )
    run.animation(
        "links",
        viz.film(picture.figure, picture.moving, picture.at, range(0, ANGLES, 2), 4.0, colours=64),
        "One revolution of the crank.",
    )


class _Picture:
    """The links before and after, side by side, with the force on the frame."""

    @styled
    def __init__(self, linkage, links: dict[str, Links], found: dict[str, Shaking], angles: Array):
        self.figure = Figure(figsize=(10.0, 5.0), dpi=100)
        self.moving, self.panels = [], []
        outlines = {name: _outlines(linkage, one, angles) for name, one in links.items()}
        every = np.concatenate([x.reshape(-1, 2) for x in outlines.values()])
        factor, unit = viz.readable(float(np.ptp(every)), "m")
        low, high = factor * every.min(axis=0), factor * every.max(axis=0)
        room = 0.05 * np.max(high - low)
        feet = factor * np.array([[0.0, 0.0], [float(linkage.frame), 0.0]])
        # The largest force is as long as a third of what is seen.
        largest = max(np.max(np.hypot(*one.force.T)) for one in found.values())
        scale = 0.33 * np.max(high - low) / largest
        joints = factor * np.asarray(jax.vmap(lambda a: poses(linkage, a)[0])(angles))
        tips = joints[:, 1] + factor * float(linkage.coupler) * _direction(linkage, angles)
        pins = np.concatenate([joints, tips[:, None]], axis=1)
        for k, (name, one) in enumerate(found.items()):
            axes = self.figure.add_axes((0.08 + 0.48 * k, 0.2, 0.42, 0.68))
            axes.set_title(
                f"{name.capitalize()}: force {_range(one.force)}, {float(one.mass):.2f} kg"
            )
            axes.set(
                xlim=(low[0] - room, high[0] + room),
                ylim=(low[1] - room, high[1] + room),
                xlabel=f"x [{unit}]",
            )
            axes.set_aspect("equal")
            if k == 0:
                axes.set_ylabel(f"y [{unit}]")
            start = feet.mean(axis=0)
            curve = start + scale * one.force
            axes.plot(*curve.T, color=GREY, linewidth=1.0, zorder=4)
            bodies = [
                axes.fill([], [], color=PALETTE[i], alpha=0.75, zorder=2 + i, linewidth=0)[0]
                for i in range(len(LINKS))
            ]
            axes.plot(*feet.T, "^", color="black", markersize=12, zorder=6)
            dots = axes.plot([], [], "o", color="white", markeredgecolor="black", zorder=7)[0]
            arrow = axes.plot([], [], color="black", linewidth=2.6, zorder=8)[0]
            head = axes.plot([], [], "o", color="black", markersize=5, zorder=8)[0]
            self.moving += [*bodies, dots, arrow, head]
            self.panels.append((bodies, factor * outlines[name], dots, pins, arrow, head, curve))
            self.start = start
        handles = [
            *(Patch(color=PALETTE[i], alpha=0.75, label=name) for i, name in enumerate(LINKS)),
            Line2D([], [], color="black", linewidth=2.6, marker="o", label="shaking force"),
            Line2D([], [], color=GREY, linewidth=1.0, label="in one revolution"),
        ]
        self.figure.legend(handles=handles, loc="lower center", ncols=5)

    def at(self, step: int) -> Figure:
        """The figure at a step."""
        for bodies, outlines, dots, pins, arrow, head, curve in self.panels:
            for body, outline in zip(bodies, outlines[step], strict=True):
                body.set_xy(outline)
            dots.set_data(*pins[step].T)
            arrow.set_data(*np.stack([self.start, curve[step]]).T)
            head.set_data(*curve[step][:, None])
        return self.figure


def _range(force: np.ndarray) -> str:
    return f"up to {np.max(np.hypot(*force.T)):.3g} N"


def _direction(linkage, angles: Array) -> Float[np.ndarray, "n 2"]:
    """Of the coupler."""
    theta = np.asarray(jax.vmap(lambda a: poses(linkage, a)[1][1])(angles))
    return np.stack([np.cos(theta), np.sin(theta)], axis=1)


def _outlines(linkage, links: Links, angles: Array) -> Float[np.ndarray, "steps 3 n 2"]:
    """Outlines of the links at crank angles."""
    outlines = jax.vmap(shapes.link_outline)(links.stations, links.widths)

    def at(angle: Array) -> Array:
        return jax.vmap(placed)(*poses(linkage, angle), outlines)

    return np.asarray(jax.vmap(at)(angles))
