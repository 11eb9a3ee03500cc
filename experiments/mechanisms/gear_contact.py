"""Contact temperature of a gear pair along the path of contact, and its safety against scuffing.

A bevel pair is replaced by the virtual cylindrical pair of its mean section. Flash temperature of
Blok 1937, load of an unmodified pair and bulk temperature of ISO/TR 13989-1. Boiadjiev 2017, a
method for bevel and hypoid gears, gives neither equations nor data: all numbers are defaults of
this project, and hypoid offset and loaded tooth contact are not modelled.
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
from jaxgrip.config import Real, Section
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

Positive = Annotated[Real, Field(gt=0.0)]
POINTS = 401
# Share of the mean flash temperature by which the bulk is hotter than the oil (ISO/TR 13989-1).
BULK = 0.47
# C Q / (B sqrt(b v)) is the highest temperature that a heat Q per length and time, spread over the
# width 2b as Hertz's pressure is, causes in a fast body (Blok 1937: 1.11 with 2b in place of b).
BLOK = 0.78598
REPORTED = {
    "torque": "N m",
    "speed": "rad/s",
    "module": "m",
    "width": "m",
    "friction": "1",
}


class Pair(eqx.Module):
    """A virtual cylindrical pair of equal materials without addendum modification.

    Numbers of teeth `pinion`, `wheel`; `module` and `width` [m]; `pressure_angle` [rad]; `torque`
    [N m] and `speed` [rad/s] of the pinion; coefficient of `friction`; `modulus` [Pa], `poisson`;
    `thermal`, the thermal contact coefficient sqrt(conductivity density heat) [W s^0.5/(m² K)];
    temperatures of `oil` and at which the pair scuffs, `limit` [°C].
    """

    pinion: Float[Array, ""]
    wheel: Float[Array, ""]
    module: Float[Array, ""]
    width: Float[Array, ""]
    pressure_angle: Float[Array, ""]
    torque: Float[Array, ""]
    speed: Float[Array, ""]
    friction: Float[Array, ""]
    modulus: Float[Array, ""]
    poisson: Float[Array, ""]
    thermal: Float[Array, ""]
    oil: Float[Array, ""]
    limit: Float[Array, ""]


class Contact(NamedTuple):
    """Along the path of contact, all (k,).

    `distance` from the pitch point [m], negative where the wheel's tip is in mesh; `load` per width
    [N/m]; `half_width` [m] and `pressure` [Pa] of Hertz; `sliding` speed [m/s]; `flash` and
    `temperature` [°C]; `safety`, of the rise over the oil's temperature.
    """

    distance: Float[Array, " k"]
    load: Float[Array, " k"]
    half_width: Float[Array, " k"]
    pressure: Float[Array, " k"]
    sliding: Float[Array, " k"]
    flash: Float[Array, " k"]
    temperature: Float[Array, " k"]
    safety: Float[Array, " k"]


def path(pair: Pair) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Where the path of contact begins and ends, from the pitch point, and the base pitch [m]."""
    radii = jnp.stack([pair.pinion, pair.wheel]) * pair.module / 2
    inner, sine = radii * jnp.cos(pair.pressure_angle), radii * jnp.sin(pair.pressure_angle)
    reach = jnp.sqrt((radii + pair.module) ** 2 - inner**2) - sine
    return -reach[1], reach[0], jnp.pi * pair.module * jnp.cos(pair.pressure_angle)


def contact(pair: Pair, points: int = POINTS) -> Contact:
    """Load, sliding and temperature at points along the path of contact."""
    begin, end, pitch = path(pair)
    distance = begin + (end - begin) * jnp.linspace(0.0, 1.0, points)
    first, second = (
        z * pair.module / 2 * jnp.sin(pair.pressure_angle) for z in (pair.pinion, pair.wheel)
    )
    curvature = (first + distance, second - distance)
    reduced = curvature[0] * curvature[1] / (first + second)
    speeds = (
        jnp.sqrt(pair.speed * curvature[0]),
        jnp.sqrt(pair.speed * pair.pinion / pair.wheel * curvature[1]),
    )
    share = jnp.interp(
        distance,
        jnp.stack([begin, end - pitch, end - pitch, begin + pitch, begin + pitch, end]),
        jnp.asarray([1 / 3, 2 / 3, 1.0, 1.0, 2 / 3, 1 / 3]),
    )
    base = pair.pinion * pair.module / 2 * jnp.cos(pair.pressure_angle)
    load = share * pair.torque / base / pair.width
    stiff = pair.modulus / (2 * (1 - pair.poisson**2))
    half = jnp.sqrt(4 * load * reduced / (jnp.pi * stiff))
    flash = (
        BLOK
        * pair.friction
        * load
        * jnp.abs(speeds[0] - speeds[1])
        / (pair.thermal * jnp.sqrt(half))
    )
    mean = jnp.trapezoid(flash, distance) / (end - begin)
    temperature = pair.oil + BULK * mean + flash
    return Contact(
        distance,
        load,
        half,
        2 * load / (jnp.pi * half),
        speeds[0] ** 2 - speeds[1] ** 2,
        flash,
        temperature,
        (pair.limit - pair.oil) / (temperature - pair.oil),
    )


def least_safety(pair: Pair) -> Float[Array, ""]:
    """The smallest safety along the path of contact."""
    return jnp.min(contact(pair).safety)


class Temperatures(Section):
    """Of the oil, and at which the pair scuffs."""

    oil: Real = Field(80.0, description="temperature of the oil [°C]")
    limit: Real = Field(320.0, description="temperature at which the pair scuffs [°C]")

    @model_validator(mode="after")
    def _ordered(self) -> "Temperatures":
        if self.limit <= self.oil:
            raise ValueError(f"the limit, {self.limit:g} °C, must lie above the oil's temperature.")
        return self


class Config(config.Config):
    """A gear pair, as cylindrical or straight bevel gears."""

    teeth: tuple[int, int] = Field((17, 43), description="numbers of teeth of pinion and wheel")
    shaft_angle_deg: Annotated[Real, Field(ge=0.0, le=120.0)] = Field(
        90.0, description="angle between the shafts [deg]; 0 for cylindrical gears"
    )
    module: Positive = Field(3e-3, description="module in the middle of the face [m]")
    width: Positive = Field(0.025, description="width of the face [m]")
    pressure_angle_deg: Annotated[Real, Field(gt=10.0, lt=35.0)] = Field(
        20.0, description="pressure angle [deg]"
    )
    torque: Positive = Field(120.0, description="torque of the pinion [N m]")
    speed: Positive = Field(314.0, description="speed of the pinion [rad/s]")
    friction: Annotated[Real, Field(gt=0.0, lt=1.0)] = Field(0.06, description="coefficient")
    modulus: Positive = Field(2.06e11, description="Young's modulus [Pa]")
    poisson: Annotated[Real, Field(ge=0.0, lt=0.5)] = Field(0.3, description="Poisson's ratio")
    thermal: Positive = Field(
        13.8e3, description="thermal contact coefficient sqrt(λ ρ c) [W s^0.5/(m² K)]"
    )
    temperature: Temperatures = Field(Temperatures(), description="of oil and scuffing")

    @model_validator(mode="after")
    def _meshes(self) -> "Config":
        if min(self.teeth) < 6:
            raise ValueError(f"teeth: {min(self.teeth)} teeth are too few; at least 6.")
        begin, end, pitch = map(float, path(self.pair()))
        first, second = (
            float(z * self.module / 2 * math.sin(math.radians(self.pressure_angle_deg)))
            for z in (self.pair().pinion, self.pair().wheel)
        )
        if -begin >= first or end >= second:
            raise ValueError(
                f"teeth: with {self.teeth[0]} and {self.teeth[1]} teeth the tips would touch "
                "beyond the involute: take more teeth or a larger pressure angle."
            )
        if not pitch < end - begin < 2 * pitch:
            raise ValueError(
                f"the contact ratio is {(end - begin) / pitch:.3g}; the load is known between 1 "
                "and 2: choose other numbers of teeth or another pressure angle."
            )
        return self

    def pair(self) -> Pair:
        """The virtual cylindrical pair."""
        z1, z2 = self.teeth
        angle = math.radians(self.shaft_angle_deg)
        cone = math.atan2(math.sin(angle), z2 / z1 + math.cos(angle))
        radii = np.array([z1 / math.cos(cone), z2 / math.cos(angle - cone)])
        numbers = (
            *radii,
            *(self.module, self.width, math.radians(self.pressure_angle_deg)),
            # The force at the pitch circle is that of the real pinion.
            *(self.torque * radii[0] / z1, self.speed * z1 / radii[0]),
            *(self.friction, self.modulus, self.poisson, self.thermal),
            *(self.temperature.oil, self.temperature.limit),
        )
        return Pair(*(jnp.asarray(x, float) for x in numbers))


def run(settings: Config, run: Run) -> None:
    """Temperatures along the path, the least safety and what it depends on."""
    pair = settings.pair()
    with run.stage("Path of contact"):
        found = jax.tree.map(np.asarray, jax.jit(contact)(pair))
        slopes = jax.jit(jax.grad(least_safety))(pair)
    worst = int(np.argmin(found.safety))
    run.note("The source gives no equations and no data: all numbers are defaults or your own.")
    run.add("least_safety", float(found.safety[worst]), "1")
    run.add("distance_of_least_safety", float(found.distance[worst]), "m")
    run.add("highest_temperature", float(np.max(found.temperature)), "°C")
    run.add("highest_flash_temperature", float(np.max(found.flash)), "K")
    run.add("highest_pressure", float(np.max(found.pressure)), "Pa")
    begin, end, pitch = map(float, path(pair))
    run.add("contact_ratio", (end - begin) / pitch, "1")
    for name in REPORTED:
        value = float(getattr(pair, name))
        run.add(
            f"safety_by_{name}", float(getattr(slopes, name)) * value / found.safety[worst], "1"
        )
    run.note("safety_by_NAME: per cent of safety for one per cent of the quantity.")
    where = "the tip of the wheel" if found.distance[worst] < 0 else "the tip of the pinion"
    enough = "does not scuff" if found.safety[worst] > 1 else "scuffs"
    run.note(f"The pair {enough}; its safety is least in contact with {where}.")
    run.arrays("path", _arrays(found))
    with run.stage("Pictures"):
        run.figure(
            "gear_contact", _figure(found, pair), "Hottest where teeth slide fast under load."
        )


def _arrays(found: Contact) -> xarray.Dataset:
    units = ("m", "N/m", "m", "Pa", "m/s", "K", "°C", "1")
    return xarray.Dataset(
        {
            name: ("point", value, {"units": unit})
            for name, value, unit in zip(Contact._fields, found, units, strict=True)
        }
    )


def _figure(found: Contact, pair: Pair):
    begin, end, pitch = (1e3 * float(x) for x in path(pair))
    distance = 1e3 * found.distance
    bands = [(end - pitch, begin + pitch, "one pair of teeth carries")]
    at = "distance from the pitch point along the path of contact [mm]"
    return viz.curves(
        [
            Panel(
                at,
                "temperature [°C]",
                [
                    Curve("contact", distance, found.temperature),
                    Curve("bulk", distance, found.temperature - found.flash),
                ],
                bands=bands,
                levels=[(float(pair.oil), "oil"), (float(pair.limit), "scuffing")],
            ),
            Panel(
                at,
                "safety",
                [Curve("safety", distance, found.safety)],
                bands=bands,
                levels=[(1.0, "scuffing")],
            ),
        ],
        "Contact temperature of a gear pair",
    )
