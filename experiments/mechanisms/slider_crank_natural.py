"""Natural motion of a slider-crank, and a mechanism whose natural motion is a wanted one.

Schwarzfischer 2017 describes the idea; the equations are those of the energy, and the numbers are
defaults of this project, compared with an independent program.
"""

from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import xarray
from jaxtyping import Array, Float
from pydantic import Field, model_validator

from jaxgrip import config, orbits, viz
from jaxgrip.config import Real
from jaxgrip.orbits import Natural
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

Positive = Annotated[Real, Field(gt=0.0)]
NotNegative = Annotated[Real, Field(ge=0.0)]
INTERVALS = 180
# Values of an independent program, for crank 0.1 m, coupler 0.3 m, no offset, 0.01 kg m² and 1 kg.
REFERENCE = {"period": 0.766682, "slowest": 6.880593, "largest_slope": 0.105464} | {
    "fastest": 10.0,
    "slowest_at": np.deg2rad(73.175),
}
NAMES = ("crank", "coupler", "offset", "crank_inertia", "coupler_mass", "coupler_inertia", "slider")
UNITS = ("m", "m", "m", "kg m^2", "kg", "kg m^2", "kg")
# Bounds of the synthesis, on logarithmic scales but for the offset.
LOW = np.array([0.03, 0.15, -0.05, 1e-4, 0.01, 1e-5, 0.05])
HIGH = np.array([0.15, 0.60, 0.05, 5e-2, 2.0, 1e-2, 5.0])


class SliderCrank(eqx.Module):
    """Lengths `crank`, `coupler` and `offset` [m]; inertias.

    `crank_inertia` about its pivot [kg m²]; `coupler_mass` [kg], in the middle of the coupler, and
    `coupler_inertia` about that [kg m²]; mass of the `slider` [kg].
    """

    crank: Float[Array, ""]
    coupler: Float[Array, ""]
    offset: Float[Array, ""]
    crank_inertia: Float[Array, ""]
    coupler_mass: Float[Array, ""]
    coupler_inertia: Float[Array, ""]
    slider: Float[Array, ""]

    def __init__(self, *values):
        for name, value in zip(NAMES, values, strict=True):
            setattr(self, name, jnp.asarray(value, float))


def position(mechanism: SliderCrank, angle: Float[Array, ""]) -> Float[Array, ""]:
    """Position of the slider [m] at a crank angle [rad]."""
    side = mechanism.crank * jnp.sin(angle) - mechanism.offset
    return mechanism.crank * jnp.cos(angle) + jnp.sqrt(mechanism.coupler**2 - side**2)


def reduced_inertia(mechanism: SliderCrank, angle: Float[Array, ""]) -> Float[Array, ""]:
    """Inertia of all parts reduced to the crank [kg m²]."""

    def placed(a: Array) -> tuple[Array, Array, Array]:
        pin = mechanism.crank * jnp.stack([jnp.cos(a), jnp.sin(a)])
        slider = jnp.stack([position(mechanism, a), mechanism.offset])
        lean = jnp.arcsin((pin[1] - mechanism.offset) / mechanism.coupler)
        return slider[0], 0.5 * (pin + slider), lean

    slope, middle, lean = jax.jvp(placed, (angle,), (jnp.ones_like(angle),))[1]
    return (
        mechanism.crank_inertia
        + mechanism.coupler_mass * middle @ middle
        + mechanism.coupler_inertia * lean**2
        + mechanism.slider * slope**2
    )


def motion(mechanism: SliderCrank, angles: Float[Array, " k"], energy: Array) -> Natural:
    """The motion at constant energy [J], by the crank angle."""
    return orbits.natural_motion(lambda a: reduced_inertia(mechanism, a), angles, energy)


def drive_torque(mechanism: SliderCrank, angles: Array, energy: Array) -> Float[Array, " k"]:
    """Torque of the crank along the motion by inverse dynamics [N m], zero where it is natural."""

    def rate(a: Array) -> Array:
        return jnp.sqrt(2 * energy / reduced_inertia(mechanism, a))

    def at(a: Array) -> Array:
        one = (jnp.ones_like(a),)
        speed, by_angle = jax.jvp(rate, (a,), one)
        inertia, bent = jax.jvp(lambda x: reduced_inertia(mechanism, x), (a,), one)
        return inertia * by_angle * speed + 0.5 * bent * speed**2

    return jax.vmap(at)(angles)


def over_time(mechanism: SliderCrank, times: Float[Array, " n"], energy: Array) -> Array:
    """Position of the slider at shares (n,) of the period [m], from zero angle, and the period."""
    angles = jnp.linspace(0.0, 2 * jnp.pi, INTERVALS + 1)
    found = motion(mechanism, angles, energy)
    period = found.time[-1]
    # Newton's method from the linear interpolation gives smooth derivatives.
    angle = jnp.interp(times * period, found.time, angles)
    start = jax.lax.stop_gradient(angle)
    k = jnp.clip(jnp.searchsorted(angles, start) - 1, 0, INTERVALS - 1)

    def slowness(a: Array) -> Array:
        return jnp.sqrt(reduced_inertia(mechanism, a) / (2 * energy))

    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = 0.5 * (start - angles[k])
    at = angles[k][:, None] + half[:, None] * (1 + jnp.asarray(nodes))[None]
    reached = found.time[k] + half * (jax.vmap(jax.vmap(slowness))(at) @ jnp.asarray(weights))
    angle = start + (times * period - reached) / jax.vmap(slowness)(start)
    return jax.vmap(lambda a: position(mechanism, a))(angle), period


def wanted(times: np.ndarray, stroke: float, share: float) -> np.ndarray:
    """A stroke that takes a share of the period on the way in, and the rest on the way out."""
    inward = times < share
    along = np.where(inward, times / share, (1 - times) / (1 - share))
    return stroke * 0.5 * (1 + np.cos(np.pi * along))


def miss(scaled: Array, times: Array, target: Array, period: Array, energy: Array) -> Array:
    """Mean square by which stroke and period of a mechanism miss the wanted ones, without unit."""
    mechanism = from_scaled(scaled)
    found, lasts = over_time(mechanism, times, energy)
    size = jnp.max(target) - jnp.min(target)
    off = (found - jnp.mean(found) - target + jnp.mean(target)) / size
    return jnp.mean(off**2) + (lasts / period - 1) ** 2


def from_scaled(scaled: Array) -> SliderCrank:
    """The mechanism of positions (7,) between the bounds, each from 0 to 1."""
    logs = jnp.exp(
        jnp.log(jnp.abs(LOW)) + scaled * (jnp.log(jnp.abs(HIGH)) - jnp.log(jnp.abs(LOW)))
    )
    linear = LOW + scaled * (HIGH - LOW)
    return SliderCrank(*jnp.where(jnp.asarray(LOW) > 0, logs, linear))


class Config(config.Config):
    """A slider-crank and the motion that is wanted."""

    crank: Positive = Field(0.1, description="length of the crank [m]")
    coupler: Positive = Field(0.3, description="length of the coupler [m]")
    offset: Real = Field(0.0, description="of the slider's line from the crank's pivot [m]")
    crank_inertia: NotNegative = Field(0.01, description="about the pivot [kg m²]")
    coupler_mass: NotNegative = Field(0.0, description="mass of the coupler [kg]")
    coupler_inertia: NotNegative = Field(0.0, description="about its middle [kg m²]")
    slider: NotNegative = Field(1.0, description="mass of the slider [kg]")
    energy: Positive = Field(0.5, description="kinetic energy [J]")
    stroke: Positive = Field(0.16, description="wanted stroke [m]")
    share: Annotated[Real, Field(gt=0.2, lt=0.8)] = Field(
        0.42, description="share of the period in which the slider is wanted to go in"
    )
    period: Positive = Field(0.6, description="wanted period [s]")
    starts: Annotated[int, Field(ge=1, le=64)] = Field(12, description="starts of the synthesis")

    @model_validator(mode="after")
    def _turns(self) -> "Config":
        if self.crank + abs(self.offset) >= self.coupler:
            raise ValueError(
                "the crank cannot turn round: crank and offset together must be shorter than the "
                "coupler."
            )
        if self.crank_inertia + self.coupler_mass + self.slider == 0:
            raise ValueError("crank_inertia: there must be some inertia.")
        return self

    def mechanism(self) -> SliderCrank:
        """The mechanism."""
        return SliderCrank(*(getattr(self, name) for name in NAMES))


def run(settings: Config, run: Run) -> None:
    """Compare, look at the limits, and find a mechanism for the wanted motion."""
    run.note("The source gives no numbers: they are defaults or your own.")
    angles = jnp.linspace(0.0, 2 * jnp.pi, INTERVALS + 1)
    energy = jnp.asarray(settings.energy)
    own = settings.mechanism()
    with run.stage("Natural motion"):
        found = jax.tree.map(np.asarray, jax.jit(motion)(own, angles, energy))
        torque = np.asarray(jax.jit(drive_torque)(own, angles, energy))
        extremes = _extremes(own, energy)
    default = all(
        getattr(settings, name) == Config.model_fields[name].default for name in (*NAMES, "energy")
    )
    values = {"period": float(found.time[-1]), "fastest": float(np.max(found.rate)), **extremes}
    units = {"period": "s", "fastest": "rad/s", "slowest": "rad/s"} | {
        "slowest_at": "rad",
        "largest_slope": "m",
    }
    for name, unit in units.items():
        run.add(name, values[name], unit, REFERENCE[name] if default else None)
    run.add("largest_torque", float(np.max(np.abs(torque))), "N m")
    limits = {
        "period_without_slider": (0, 0.628319),
        "period_without_crank_inertia": (1, 0.4),
    }
    for name, (k, known) in limits.items():
        changed = eqx.tree_at(lambda m, k=k: (m.slider, m.crank_inertia)[k], own, jnp.zeros(()))
        lasts = float(jax.jit(motion)(changed, angles, energy).time[-1])
        run.add(name, lasts, "s", known if default else None)
    with run.stage("Synthesis by gradients and by evolution"):
        better, times, target = _synthesis(run, settings)
    with run.stage("Pictures"):
        _draw(run, settings, own, better, found, angles, times, target)


def _extremes(own: SliderCrank, energy: Array) -> dict[str, float]:
    """The slowest rate, where it is, and the largest slope of the slider, in half a turn."""

    def largest(function) -> float:
        run = jax.jit(jax.value_and_grad(function))
        grid = np.linspace(0.0, np.pi, 361)
        k = int(np.argmax([float(run(jnp.asarray(a))[0]) for a in grid[::10]])) * 10
        at = scipy.optimize.brentq(
            lambda a: float(run(jnp.asarray(a))[1]), grid[max(k - 10, 1)], grid[min(k + 10, 359)]
        )
        return at, float(run(jnp.asarray(at))[0])

    def slope(a: Array) -> Array:
        return -jax.grad(lambda x: position(own, x))(a)

    at, inertia = largest(lambda a: reduced_inertia(own, a))
    return {
        "slowest": float(jnp.sqrt(2 * energy / inertia)),
        "slowest_at": at,
        "largest_slope": largest(slope)[1],
    }


def _synthesis(run: Run, settings: Config) -> tuple[SliderCrank, np.ndarray, np.ndarray]:
    times = np.linspace(0.0, 1.0, 61)[:-1]
    target = wanted(times, settings.stroke, settings.share)
    data = [jnp.asarray(x) for x in (times, target, settings.period, settings.energy)]
    evaluate = jax.jit(jax.value_and_grad(lambda x: miss(x, *data)))
    value = jax.jit(lambda x: miss(x, *data))
    rng = np.random.default_rng(0)
    count, best = 0, None
    for _ in range(settings.starts):
        found = scipy.optimize.minimize(
            lambda x: tuple(np.asarray(v) for v in evaluate(jnp.asarray(x))),
            rng.uniform(0.1, 0.9, len(NAMES)),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, 1.0)] * len(NAMES),
            options={"maxiter": 200, "ftol": 1e-13},
        )
        count += found.nfev
        best = found if best is None or found.fun < best.fun else best
    # A gradient costs about as much as four values.
    budget = 4 * count
    evolved = scipy.optimize.differential_evolution(
        lambda x: float(value(jnp.asarray(x))),
        [(0.0, 1.0)] * len(NAMES),
        maxiter=max(budget // (15 * len(NAMES)) - 1, 1),
        popsize=15,
        tol=0.0,
        polish=False,
        seed=0,
    )
    run.add("evaluations_by_gradients", count, "1")
    run.add("miss_by_gradients", float(np.sqrt(best.fun)), "1")
    run.add("evaluations_by_evolution", int(evolved.nfev), "1")
    run.add("miss_by_evolution", float(np.sqrt(evolved.fun)), "1")
    mechanism = from_scaled(jnp.asarray(best.x))
    for name, unit in zip(NAMES, UNITS, strict=True):
        run.add(f"found_{name}", float(getattr(mechanism, name)), unit)
    return mechanism, times, target


def _draw(run, settings, own, better, found, angles, times, target) -> None:
    energy = jnp.asarray(settings.energy)
    shares = jnp.linspace(0.0, 1.0, 181)
    curves = []
    heavy = eqx.tree_at(lambda m: m.crank_inertia, own, 100 * own.crank_inertia)
    light = eqx.tree_at(lambda m: m.slider, own, 100 * own.slider)
    for label, one in (
        ("the mechanism", own),
        ("100 times the crank's inertia", heavy),
        ("100 times the slider's mass", light),
    ):
        place, _ = jax.jit(over_time)(one, shares, energy)
        curves.append(Curve(label, np.asarray(shares), 1e3 * np.asarray(place)))
    shown, _ = jax.jit(over_time)(better, jnp.asarray(times), energy)
    level = float(jnp.mean(shown)) - float(np.mean(target))
    run.figure(
        "natural_motion",
        viz.curves(
            [
                Panel(
                    "crank angle [°]",
                    "speed of the crank [rad/s]",
                    [Curve("natural motion", np.rad2deg(np.asarray(angles)), found.rate)],
                ),
                Panel("share of the period", "position of the slider [mm]", curves),
                Panel(
                    "share of the period",
                    "position of the slider [mm]",
                    [
                        Curve("wanted", times, 1e3 * (target + level), points=True),
                        Curve("natural motion of the mechanism found", times, 1e3 * shown),
                    ],
                ),
            ],
            "Natural motions of slider-cranks: no drive, constant energy",
        ),
        "A heavy crank turns evenly; a heavy slider moves at constant speed.",
    )
    at = jnp.linspace(0.0, 1.0, 61)
    place = np.asarray(jax.jit(over_time)(better, at, energy)[0])
    # The crank pin is where the coupler from the slider meets the crank's circle.
    natural = jax.jit(motion)(better, angles, energy)
    turn = np.interp(np.asarray(at) * float(natural.time[-1]), natural.time, angles)
    pins = float(better.crank) * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    sliders = np.stack([place, np.full_like(place, float(better.offset))], axis=1)
    lines = {
        "crank": np.stack([np.zeros_like(pins), pins], axis=1),
        "coupler": np.stack([pins, sliders], axis=1),
    }
    parts = {
        name: xarray.DataArray(
            np.concatenate([x, np.zeros((*x.shape[:-1], 1))], axis=-1),
            dims=("step", "point", "axis"),
        )
        for name, x in lines.items()
    }
    run.animation(
        "natural_motion",
        viz.animate_linkage(
            parts,
            "The mechanism found turns without a drive",
            plane="xy",
            captions=[f"{float(natural.time[-1]) * float(t):.2f} s" for t in at],
        ),
        "Equal times between pictures: fast where the inertia is small.",
    )
