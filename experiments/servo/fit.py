"""Parameters of your servo, from measured duties and angles of its arm."""

from pathlib import Path
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array, Float
from pydantic import Field, field_validator, model_validator

import jaxgrip as jg
from jaxgrip import config, fitting, viz
from jaxgrip.actuators import GeneralizedMaxwell, rigs, simulate_fixed
from jaxgrip.config import ConfigError, Distinct, InputPath, Real, Section
from jaxgrip.fitting import Bound, Fit
from jaxgrip.models import servo
from jaxgrip.report import Run
from jaxgrip.viz import Curve, Panel

Positive = Annotated[Real, Field(gt=0.0)]
NotNegative = Annotated[Real, Field(ge=0.0)]
Range = tuple[Positive, Positive]

EXAMPLE = Path(__file__).parents[2] / "configs" / "servo_fit"
# Longest time between samples [s].
SLOWEST = 0.1
# Steps are short enough when halving them changes no parameter by more than SHIFT of its standard
# deviation; at most HALVINGS halvings.
SHIFT = 0.25
HALVINGS = 5
COLUMNS = {"time": "s", "duty": "-", "angle": "rad"}
UNITS = {
    "coulomb": "N m",
    "stiction": "N m",
    "viscous": "N m s/rad",
    "stiffness": "N m/rad",
    "stribeck_velocity": "rad/s",
    "damping_velocity": "rad/s",
    "inertia": "kg m^2",
    "stall_torque": "N m",
}


class Bounds(Section):
    """Range in which each parameter is sought; equal bounds fix it."""

    coulomb: Range = Field((0.01, 0.5), description="F_C [N m]")
    stiction: Range = Field((0.05, 1.0), description="F_S [N m]")
    viscous: Range = Field((0.01, 1.0), description="F_v [N m s/rad]")
    stiffness: Range = Field((5.0, 500.0), description="σ0 [N m/rad]")
    stribeck_velocity: Range = Field((1e-3, 1.0), description="v_S [rad/s]")
    damping_velocity: Range = Field((1e-2, 6.0), description="v_d [rad/s]")
    inertia: Range = Field((2e-3, 0.1), description="J at the output [kg m^2]")
    stall_torque: Range = Field((0.8, 3.0), description="M_max [N m]")

    @model_validator(mode="after")
    def _in_order(self) -> "Bounds":
        for name in UNITS:
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(
                    f"{name} = [{low:g}, {high:g}] has its lower bound above its upper"
                )
        if all(low == high for low, high in (getattr(self, name) for name in UNITS)):
            raise ValueError("all parameters are fixed, so there is nothing to find")
        return self


class Arm(Section):
    """The arm of the servo; it hangs down at angle zero."""

    inertia: Positive = Field(0.025981200, description="about the axis [kg m^2]")
    weight: NotNegative = Field(1.1495358, description="torque of gravity when horizontal [N m]")
    damping: NotNegative = Field(0.0, description="of the axis [N m s/rad]")


class Gear(Section):
    """The gear, from a creep test; its numbers are not fitted."""

    spring: NotNegative = Field(servo.GEAR["spring"], description="long-term stiffness [N m/rad]")
    springs: tuple[Positive, ...] = Field(
        servo.GEAR["springs"], description="of the branches [N m/rad]"
    )
    dampers: tuple[Positive, ...] = Field(
        servo.GEAR["dampers"], description="of the branches [N m s/rad]"
    )

    @model_validator(mode="after")
    def _has_pairs(self) -> "Gear":
        if len(self.springs) != len(self.dampers):
            raise ValueError(
                f"there are {len(self.springs)} springs and {len(self.dampers)} dampers; every "
                "branch has one of each"
            )
        return self


class Config(config.Config):
    """Eight parameters of a servo from measured motions."""

    data: Distinct[tuple[InputPath, ...]] = Field(
        tuple(EXAMPLE / f"{name}.csv" for name in ("chirp", "square", "steps")),
        min_length=1,
        description='files with the columns "time [s]", "duty [-]" and "angle [deg]" (or other '
        "units), one motion each that starts at rest; one file or a list, relative to this one",
    )
    holdout: Annotated[Real, Field(ge=0.0, lt=0.9)] = Field(
        0.25, description="share at the end of every motion that is kept for validation"
    )
    step: Annotated[Real, Field(ge=1e-5)] = Field(
        1e-2,
        description="largest step of the simulation, halved until the parameters converge [s]",
    )
    starts: int = Field(16, ge=1, le=1024, description="starts of the fit, all in one batch")
    bounds: Bounds = Field(default_factory=Bounds)
    arm: Arm = Field(default_factory=Arm)
    gear: Gear = Field(default_factory=Gear)

    @field_validator("data", mode="before")
    @classmethod
    def _one_file(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _data_of_a_servo(self) -> "Config":
        _read(self)
        return self


class Motions(NamedTuple):
    """Measured motions: `names`; `time`, `duty` and `angle` of each (k,), and its `step` [s]."""

    names: list[str]
    time: list[np.ndarray]
    duty: list[np.ndarray]
    angle: list[np.ndarray]
    step: float


class Model(NamedTuple):
    """What the simulation needs besides the fitted parameters.

    `fixed` parameters; `arm` and `gear`; `duties` (p, s) in steps of `h` [s]; `start` (p,), angles
    at rest [rad]; `times`, of the samples of each motion (k,) [s].
    """

    fixed: dict[str, Array]
    arm: rigs.Pendulum
    gear: GeneralizedMaxwell
    duties: Float[Array, "p s"]
    h: Float[Array, ""]
    start: Float[Array, " p"]
    times: tuple[Float[Array, " k"], ...]


def run(settings: Config, run: Run) -> None:
    """Read the motions, fit the parameters, and validate them on the held-out data."""
    motions = _read(settings)
    model = _model(settings, motions, settings.step)
    bounds = {
        name: Bound(*getattr(settings.bounds, name)) for name in UNITS if name not in model.fixed
    }
    used = [max(2, round((1 - settings.holdout) * len(t))) for t in motions.time]
    measured = tuple(jnp.asarray(angle[:k]) for angle, k in zip(motions.angle, used, strict=True))
    shown = tuple(jnp.asarray(angle) for angle in motions.angle)
    motion = "1 motion" if len(motions.names) == 1 else f"{len(motions.names)} motions"
    with run.stage(f"{len(bounds)} parameters from {motion}"):
        found = fitting.fit(residuals, bounds, model, measured, starts=settings.starts)
    with run.stage("Fit in half steps"):
        found, model, shift = _refined(settings, motions, bounds, found, model, measured)
    off = [np.asarray(r) for r in jax.jit(residuals)(found.parameters, model, shown)]
    _record(run, found, model.fixed, off, used, motions)
    run.add("step", model.h, "s")
    run.add("step_shift", shift, "1")
    if shift > SHIFT:
        run.note(
            f"Steps of {1e3 * float(model.h):g} ms are still too long: halving them changed the "
            f"parameters by up to {shift:.2g} standard deviations, which are widened by as much. "
            "Choose a smaller step."
        )
    with run.stage("Pictures"):
        _draw(run, motions, off, used)
        _store(run, motions, off)


def _refined(
    settings: Config,
    motions: Motions,
    bounds: dict[str, Bound],
    found: Fit,
    model: Model,
    measured: tuple[Float[Array, " k"], ...],
) -> tuple[Fit, Model, float]:
    """The fit in short enough steps, its model, and the change by the last halving.

    The change is the largest of all parameters, in standard deviations. If steps are still too
    long, it is added to the deviations.
    """
    for _ in range(HALVINGS):
        model = _model(settings, motions, float(model.h) / 2)
        finer = fitting.fit(
            residuals, bounds, model, measured, guess=found.parameters, starts=1
        )._replace(starts=found.starts)
        moved = {k: abs(float(v - found.parameters[k])) for k, v in finer.parameters.items()}
        found, deviation = finer, finer.standard_deviation
        shift = max(moved[k] / max(float(deviation[k]), 1e-300) for k in moved)
        if shift <= SHIFT:
            break
    else:
        wider = {k: jnp.hypot(deviation[k], moved[k]) for k in moved}
        found = found._replace(standard_deviation=wider)
    return found, model, shift


def residuals(
    parameters: dict[str, Array], model: Model, measured: tuple[Float[Array, " k"], ...]
) -> tuple[Float[Array, " k"], ...]:
    """Simulated minus measured angles [rad] at the first samples of every motion."""
    driven = jg.models.servo_ax12(**model.fixed, **parameters, gear=model.gear)

    def one(duty, start):
        return simulate_fixed(model.arm, driven, duty[:, None], model.h, q0=start[None]).q[:, 0]

    q = jax.vmap(one)(model.duties, model.start)
    grid = model.h * jnp.arange(float(q.shape[1]))
    return tuple(
        jnp.interp(times[: len(angle)], grid, one) - angle
        for one, times, angle in zip(q, model.times, measured, strict=True)
    )


def _read(settings: Config) -> Motions:
    names, series = [], []
    for path in settings.data:
        name = path.name
        if path.stem in names:
            raise ConfigError(f"data: two files are called {path.stem}; names must differ.")
        read = fitting.read_series(path, COLUMNS)
        if len(read["time"]) < 20:
            raise ConfigError(f"data: {name} has {len(read['time'])} samples; at least 20 needed.")
        high = np.flatnonzero(np.abs(read["duty"]) > 1)
        if high.size:
            raise ConfigError(
                f"data: {name} has the duty {read['duty'][high[0]]:g} at {read['time'][high[0]]:g} "
                "s; duties lie between -1 and 1 (or -100 % and 100 %)."
            )
        names.append(path.stem)
        series.append(read)
    step = [float(np.median(np.diff(s["time"]))) for s in series]
    if max(step) > 1.01 * min(step):
        raise ConfigError(
            f"data: samples are {1e3 * min(step):g} ms apart in {names[int(np.argmin(step))]} and "
            f"{1e3 * max(step):g} ms in {names[int(np.argmax(step))]}; all files must have the "
            "same rate."
        )
    if max(step) > SLOWEST:
        raise ConfigError(
            f"data: samples are {max(step):g} s apart in {names[int(np.argmax(step))]}, too far to "
            f"follow a servo; at most {SLOWEST:g} s are allowed. Is the time in ms?"
        )
    return Motions(
        names,
        [s["time"] - s["time"][0] for s in series],
        [s["duty"] for s in series],
        [s["angle"] for s in series],
        step[0],
    )


def _model(settings: Config, motions: Motions, step: float) -> Model:
    h = motions.step / np.ceil(motions.step / step - 1e-9)
    steps = int(np.ceil(max(t[-1] for t in motions.time) / h - 1e-6)) + 1
    grid = h * np.arange(steps)
    # Duties are constant between samples; shorter motions continue with their last one.
    duties = [
        duty[np.clip(np.searchsorted(time, grid + 1e-3 * h, "right") - 1, 0, None)]
        for time, duty in zip(motions.time, motions.duty, strict=True)
    ]
    fixed = {
        name: jnp.asarray(low, float)
        for name, (low, high) in ((n, getattr(settings.bounds, n)) for n in UNITS)
        if low == high
    }
    return Model(
        fixed,
        rigs.Pendulum(settings.arm.inertia, settings.arm.weight, settings.arm.damping),
        GeneralizedMaxwell(settings.gear.spring, settings.gear.springs, settings.gear.dampers),
        jnp.asarray(np.stack(duties)),
        jnp.asarray(h),
        jnp.asarray([angle[0] for angle in motions.angle]),
        tuple(jnp.asarray(time) for time in motions.time),
    )


def _record(
    run: Run,
    found: Fit,
    fixed: dict[str, Array],
    off: list[np.ndarray],
    used: list[int],
    motions: Motions,
) -> None:
    for name, unit in UNITS.items():
        run.add(name, found.parameters.get(name, fixed.get(name)), unit)
        if name in found.parameters:
            run.add(f"{name}_deviation", found.standard_deviation[name], unit)
    run.add("rms", found.rms, "rad")
    kept = np.concatenate([r[k:] for r, k in zip(off, used, strict=True)])
    if kept.size:
        run.add("rms_held_out", np.sqrt(np.mean(kept**2)), "rad")
        if np.sqrt(np.mean(kept**2)) > 1.5 * found.rms:
            run.note(
                "The error on the held-out data is more than 1.5 times that on the fitted data: "
                "the parameters do not generalise."
            )
    measured = np.concatenate(motions.angle)
    if np.sqrt(np.mean(np.concatenate(off) ** 2)) > 0.3 * np.std(measured):
        run.note(
            "The model does not explain the motion: the error is more than 30 % of it. The arm "
            "must hang down at angle zero, and a positive duty must move it to positive angles."
        )
    run.add("starts_agreeing", found.starts.agreeing, "1")
    for sentence in found.report().splitlines()[1:]:
        run.note(" ".join(sentence.split()))
    both = {**fixed, **found.parameters}
    if float(both["stiction"]) < float(both["coulomb"]):
        run.note(
            "The stiction found is below the Coulomb level, which is impossible for dry contact: "
            "the data have too little slow motion, or the model is incomplete."
        )


def _draw(run: Run, motions: Motions, off: list[np.ndarray], used: list[int]) -> None:
    panels = []
    for name, time, angle, r, k in zip(
        motions.names, motions.time, motions.angle, off, used, strict=True
    ):
        bands = [(time[k], time[-1], "held out")] if k < len(time) else []
        dots = slice(None, None, max(1, len(time) // 200))
        panels += [
            Panel(
                "time [s]",
                "angle [°]",
                [
                    Curve("data", time[dots], np.rad2deg(angle[dots]), points=True),
                    Curve("model", time, np.rad2deg(angle + r)),
                ],
                title=name,
                bands=bands,
            ),
            Panel(
                "time [s]",
                "model minus data [°]",
                [Curve("difference", time[dots], np.rad2deg(r[dots]), points=True)],
                title=f"{name}: difference",
                bands=bands,
            ),
        ]
    run.figure(
        "fit",
        viz.curves(panels, "Motion of the arm: data, and the fitted model", columns=2),
        "Data, fitted model and their difference; shaded: held out of the fit.",
    )


def _store(run: Run, motions: Motions, off: list[np.ndarray]) -> None:
    for name, time, angle, r in zip(motions.names, motions.time, motions.angle, off, strict=True):
        run.arrays(
            name,
            xarray.Dataset(
                {
                    "measured": ("time", angle, {"units": "rad", "long_name": "measured angle"}),
                    "simulated": (
                        "time",
                        angle + r,
                        {"units": "rad", "long_name": "simulated angle"},
                    ),
                },
                {"time": ("time", time, {"units": "s"})},
            ),
        )
