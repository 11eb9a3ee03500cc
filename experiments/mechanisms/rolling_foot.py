"""A foot that rolls like a cam: fitted to centres of pressure, and a body that rocks on it.

Source: Caspers 2017, which gives the equations but no numbers: foot, body and data are defaults of
this project.
"""

import math
from pathlib import Path
from typing import Annotated, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float
from pydantic import Field, model_validator

from jaxgrip import config, fitting, viz
from jaxgrip.config import ConfigError, InputPath, Real, Section
from jaxgrip.fitting import Bound, Fit
from jaxgrip.models.rolling_foot import RollingFoot, in_world
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

Positive = Annotated[Real, Field(gt=0.0)]
EXAMPLE = Path(__file__).parents[2] / "configs" / "rolling_foot" / "stance.csv"
GRAVITY = 9.81
COLUMNS = {"inclination": "rad", "centre of pressure": "m"}
# Values of the equations by quadrature for one term of 0.1 m with rate 4, by inclination [rad].
REFERENCE = {0.1: (0.0329185, 0.0596866, 0.4265044), 0.2: (0.0547713, 0.0904784, 0.2094692)} | {
    0.4: (0.0784656, 0.1099144, 0.0229717)
}
FRAMES, POINTS, OUTLINE = 61, 121, 10


class Body(eqx.Module):
    """A rigid body on a rolling foot.

    `mass` [kg]; `inertia` about the centre of mass [kg m²]; its `height` [m] above the contact at
    zero inclination.
    """

    foot: RollingFoot
    mass: Float[Array, ""]
    inertia: Float[Array, ""]
    height: Float[Array, ""]


class Rocking(NamedTuple):
    """The body at n times: `time` [s], `angle` [rad], `rate` [rad/s] and `energy` [J]."""

    time: Float[Array, " n"]
    angle: Float[Array, " n"]
    rate: Float[Array, " n"]
    energy: Float[Array, " n"]


def centre(body: Body, angle: Float[Array, ""]) -> Float[Array, "2"]:
    """Position of the centre of mass: along the ground and height [m]."""
    start = body.foot(jnp.zeros_like(angle))
    point = jnp.stack([start, body.height])
    return in_world(body.foot.roll(angle), angle, point)


def reduced(body: Body, angle: Array) -> tuple[Array, Array]:
    """Reduced inertia [kg m²] and potential energy [J]."""
    place, by_angle = jax.jvp(lambda a: centre(body, a), (angle,), (jnp.ones_like(angle),))
    return body.mass * by_angle @ by_angle + body.inertia, body.mass * GRAVITY * place[1]


def rock(body: Body, angle: Array, times: Float[Array, " n"]) -> Rocking:
    """Released at rest from an inclination [rad]: J a'' + J' a'²/2 + V' = 0."""
    one = jnp.ones_like(angle)

    def rates(t: Array, y: Array, body: Body) -> Array:
        (inertia, _), (inertia_by, potential_by) = jax.jvp(
            lambda a: reduced(body, a), (y[0],), (one,)
        )
        return jnp.stack([y[1], -(0.5 * inertia_by * y[1] ** 2 + potential_by) / inertia])

    found = diffrax.diffeqsolve(
        diffrax.ODETerm(rates),
        diffrax.Dopri8(),
        *(times[0], times[-1], 1e-3, jnp.stack([angle, jnp.zeros_like(angle)]), body),
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=1e-11, atol=1e-11),
        max_steps=20_000,
    )

    def energy(y: Array) -> Array:
        inertia, potential = reduced(body, y[0])
        return 0.5 * inertia * y[1] ** 2 + potential

    return Rocking(times, found.ys[:, 0], found.ys[:, 1], jax.vmap(energy)(found.ys))


def residuals(
    parameters: dict[str, Array], angle: Array, measured: Array, shift: Array | None
) -> Array:
    """Centres of pressure of the fit less those measured [m]."""
    shift = parameters["shift"] if shift is None else shift
    foot = RollingFoot(parameters["rho"], parameters["rate"], shift)
    found = jax.vmap(foot.roll)(angle).centre_of_pressure
    return parameters["origin"] + found - measured


def fit(angle: np.ndarray, measured: np.ndarray, terms: int, shifts: bool = False) -> Fit:
    """Foot with a number of terms from centres of pressure [m] by inclination [rad]."""
    bounds = {
        "origin": Bound(np.min(measured) - 0.3, np.max(measured) + 0.3, "linear"),
        # Ranges apart keep the terms from changing places.
        "rate": Bound(*_apart(terms)),
        "rho": Bound(np.full(terms, 1e-4), 1.0),
    }
    if shifts:
        bounds["shift"] = Bound(np.full(terms, -0.5), 0.5, "linear")
    shift = None if shifts else jnp.zeros(terms)
    return fitting.fit(residuals, bounds, jnp.asarray(angle), jnp.asarray(measured), shift)


def _apart(terms: int) -> tuple[np.ndarray, np.ndarray]:
    ends = np.geomspace(0.2, 20.0, terms + 1)
    return ends[:-1][::-1].copy(), ends[1:][::-1].copy()


class Standing(Section):
    """The body that rocks on the foot."""

    mass: Positive = Field(70.0, description="mass [kg]")
    inertia: Annotated[Real, Field(ge=0.0)] = Field(8.0, description="about its centre [kg m²]")
    height: Positive = Field(0.5, description="of its centre above the ground [m]")
    released_deg: Real = Field(4.0, description="inclination from which it is released [deg]")
    duration: Positive = Field(6.0, description="time that is simulated [s]")


class Config(config.Config):
    """Data of a foot, and a body on it."""

    data: InputPath = Field(
        EXAMPLE, description="file with the columns inclination [deg] and centre of pressure [m]"
    )
    terms: Annotated[int, Field(ge=1, le=4)] = Field(2, description="terms of the radius")
    shifts: bool = Field(
        False,
        description="whether shifts of the terms are fitted as well; centres of pressure alone do "
        "not tell them from rho",
    )
    length: Positive = Field(0.25, description="length of the footprint [m]")
    body_height: Positive = Field(1.75, description="of the person, with which radii compare [m]")
    body: Standing = Field(Standing(), description="the body that rocks")

    @model_validator(mode="after")
    def _data_can_be_read(self) -> "Config":
        series = self.series()
        count = len(series["inclination"])
        if count < 2 * (2 * self.terms + 1):
            raise ValueError(
                f"data: {count} lines are too few for {self.terms} terms; at least "
                f"{2 * (2 * self.terms + 1)}."
            )
        if np.ptp(series["inclination"]) > math.pi:
            raise ValueError(
                "data: the foot inclines by more than half a turn; are the inclinations in degrees "
                "but called rad?"
            )
        if np.ptp(series["centre of pressure"]) > 2 * self.length:
            raise ValueError(
                f"data: the centre of pressure moves {np.ptp(series['centre of pressure']):.3g} m, "
                f"more than twice the length of the footprint, {self.length:g} m: is it in mm or %?"
            )
        return self

    def series(self) -> fitting.Series:
        """The data."""
        try:
            return fitting.read_series(self.data, COLUMNS)
        except ValueError as error:
            raise ConfigError(f"data: {error}") from None


def run(settings: Config, run: Run) -> None:
    """Compare with reference values, fit, and let a body rock."""
    one = RollingFoot(0.1, 4.0)
    for angle, known in REFERENCE.items():
        found = one.roll(jnp.asarray(angle))
        ours = [float(x) for x in (found.rim, found.centre_of_pressure, found.curvature)]
        run.add(f"reference_{angle:g}", ours, "m", list(known))
    series = settings.series()
    for sentence in series.notes:
        run.note(sentence)
    angle, measured = series["inclination"], series["centre of pressure"]
    with run.stage("Fit"):
        found = fit(angle, measured, settings.terms, settings.shifts)
    for name, unit in (("rho", "m"), ("rate", "1"), ("shift", "rad"), ("origin", "m")):
        if name in found.parameters:
            run.add(name, np.asarray(found.parameters[name]).tolist(), unit)
            run.add(f"{name}_deviation", np.asarray(found.standard_deviation[name]).tolist(), unit)
    run.add("rms", found.rms, "m")
    run.note(found.report())
    foot = RollingFoot(
        found.parameters["rho"], found.parameters["rate"], found.parameters.get("shift", 0.0)
    )
    shown = np.linspace(np.min(angle), np.max(angle), POINTS)
    rolled = jax.tree.map(np.asarray, jax.vmap(foot.roll)(jnp.asarray(shown)))
    _say(run, settings, shown, rolled.curvature)
    body = Body(
        foot, *(jnp.asarray(getattr(settings.body, k)) for k in ("mass", "inertia", "height"))
    )
    with run.stage("A body that rocks"):
        times = jnp.linspace(0.0, settings.body.duration, 10 * (FRAMES - 1) + 1)
        start = jnp.deg2rad(jnp.asarray(settings.body.released_deg))
        motion = jax.jit(rock)(body, start, times)
        share = (motion.energy - motion.energy[0]) / (body.mass * GRAVITY * body.height)
    run.add("energy_off", float(jnp.max(jnp.abs(share))), "1")
    stable = float(foot.roll(jnp.zeros(())).curvature) > settings.body.height
    run.note(
        f"The body {'returns to' if stable else 'falls from'} zero inclination: its centre is "
        f"{'below' if stable else 'above'} the centre of curvature."
    )
    run.arrays("rocking", _arrays(motion))
    with run.stage("Pictures"):
        _draw(run, settings, body, motion, series, shown, rolled, found)


def _say(run: Run, settings: Config, angle: np.ndarray, curvature: np.ndarray) -> None:
    share = curvature / settings.body_height
    run.add("curvature_by_body_height", [float(np.min(share)), float(np.max(share))], "1")
    if np.any(curvature <= 0):
        k = int(np.argmax(curvature <= 0))
        run.note(
            f"The radius of curvature is not positive from {np.rad2deg(angle[k]):.1f}° on: there "
            "the model does not roll."
        )


def _arrays(motion: Rocking) -> xarray.Dataset:
    units = ("s", "rad", "rad/s", "J")
    return xarray.Dataset(
        {
            name: ("step", np.asarray(value), {"units": unit})
            for name, value, unit in zip(Rocking._fields, motion, units, strict=True)
        }
    )


def _draw(run, settings, body, motion, series, shown, rolled, found) -> None:
    degrees = np.rad2deg(shown)
    measured = np.rad2deg(series["inclination"]), 1e3 * series["centre of pressure"]
    modelled = float(found.parameters["origin"]) + rolled.centre_of_pressure
    run.figure(
        "rolling_foot",
        viz.curves(
            [
                Panel(
                    "inclination of the foot [°]",
                    "centre of pressure [mm]",
                    [
                        Curve("measured", *measured, points=True),
                        Curve("rolling foot", degrees, 1e3 * modelled),
                    ],
                ),
                Panel(
                    "inclination of the foot [°]",
                    "radius of curvature [m]",
                    [Curve("of the cam", degrees, rolled.curvature)],
                    levels=[(settings.body_height, "height of the body")],
                ),
            ],
            "A foot that rolls like a cam, fitted to centres of pressure",
        ),
        "Where the curve of pressures is steep, the foot is flat.",
    )
    chosen = slice(None, None, 10)
    drawn = jax.vmap(lambda a: _outline(body, a, jnp.asarray(shown[::OUTLINE])))(
        motion.angle[chosen]
    )
    cams, stems = (np.asarray(x) for x in drawn)
    ground = np.array([[np.min(cams[..., 0]) - 0.1, 0.0], [np.max(cams[..., 0]) + 0.1, 0.0]])
    parts = {
        "ground": _lines(np.broadcast_to(ground, (len(cams), 2, 2))),
        "foot": _lines(cams),
        "to the centre of mass": _lines(stems),
    }
    paths = {"centre of mass": parts["to the centre of mass"].isel(point=1)}
    title = "A body that rocks on the foot"
    run.figure(
        "rocking",
        viz.linkage(parts, title, plane="xy", step=6, paths=paths),
        "The foot touches the ground in one point and does not slip.",
    )
    run.animation(
        "rocking",
        viz.animate_linkage(
            parts,
            title,
            plane="xy",
            captions=[f"{t:.1f} s" for t in np.asarray(motion.time)[chosen]],
        ),
        "Released at rest; its energy stays the same.",
    )


def _outline(body: Body, angle: Array, inclinations: Array) -> tuple[Array, Array]:
    """The cam (k, 2) and the line from the contact at zero to the centre of mass (2, 2)."""
    here = body.foot.roll(angle)
    cam = jax.vmap(lambda a: in_world(here, angle, body.foot.roll(a).cam))(inclinations)
    start = body.foot(jnp.zeros_like(angle))
    foot = jnp.stack([start, jnp.zeros_like(start)])
    return cam, jnp.stack([in_world(here, angle, foot), centre(body, angle)])


def _lines(points: np.ndarray) -> xarray.DataArray:
    flat = np.concatenate([points, np.zeros((*points.shape[:-1], 1))], axis=-1)
    return xarray.DataArray(flat, dims=("step", "point", "axis"))
