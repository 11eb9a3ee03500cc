"""Parameters of your servo, from measured duties or targets and angles of its arm."""

from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from pydantic import Field, field_validator, model_validator

from experiments.servo import _checks, _comparison, _proposal, _results, _sheet
from experiments.servo._campaign import Arm, Load, Log, Motion, Registers, read
from experiments.servo._model import START, Model, build, coasts, residuals, started
from experiments.servo._sheet import Bounds, Gear, Preset, Sheet
from jaxgrip import config, fitting
from jaxgrip.config import Distinct, InputPath, Real
from jaxgrip.fitting import Bound, Fit
from jaxgrip.report import Run

Positive = Annotated[Real, Field(gt=0.0)]

EXAMPLE = Path(__file__).parents[2] / "configs" / "servo_fit"
# Steps are short enough when halving them changes no parameter by more than SHIFT of its standard
# deviation; at most HALVINGS halvings.
SHIFT = 0.25
HALVINGS = 5
# Probability with which intervals hold the true values.
LEVEL = 0.95


class Config(config.Config):
    """Parameters of a servo from measured motions."""

    data: Distinct[tuple[InputPath, ...]] | None = Field(
        tuple(EXAMPLE / f"{name}.csv" for name in ("chirp", "square", "steps")),
        min_length=1,
        description='files with the columns "time [s]", "duty [-]" (of a servo with a controller '
        '"target [deg]") and "angle [deg]" (or other units), and if they were recorded "torque on '
        '[-]" and "voltage [V]"; one motion each that starts at rest; one file or a list, relative '
        "to this one; instead of logs",
    )
    logs: tuple[Log, ...] = Field(
        (), description="motions with an arm, a load, a controller or a voltage of their own"
    )
    arm: Arm = Field(
        default_factory=lambda: Arm(inertia=0.025981200, weight=1.1495358),
        description="of the motions without one of their own",
    )
    load: Load | None = Field(None, description="the same")
    controller: Registers | None = Field(None, description="the same; without one duties are given")
    voltage: Positive | None = Field(
        None, description="of the supply [V], the same; a column of the file comes first"
    )
    servo: Sheet | None = Field(
        None, description="data sheet, from which bounds follow; they are for an AX-12 without it"
    )
    bounds: Bounds = Field(default_factory=Bounds)
    by_log: tuple[Literal["offset", "delay", "load"], ...] = Field(
        (), description="parameters that every motion has for itself"
    )
    gear: Gear | None = Field(
        None,
        description="without it a stiff one, whose effect is measured; that of a creep test for "
        "an AX-12",
    )
    holdout: Annotated[Real, Field(ge=0.0, lt=0.9)] = Field(
        0.25, description="share at the end of every motion that is kept for validation"
    )
    step: Annotated[Real, Field(ge=1e-5)] = Field(
        1e-2,
        description="step of the simulation, about; halved until the parameters converge [s]",
    )
    starts: int = Field(8, ge=1, le=1024, description="starts of the fit, all in one batch")
    compare: bool = Field(
        True, description="whether simpler models of friction and gear are fitted as well"
    )
    intervals: bool = Field(
        False,
        description="whether parameters get intervals of their profile likelihood, which need not "
        "be symmetric; takes several times as long as the fit",
    )
    propose: bool = Field(
        True, description="whether a motion is proposed that would determine most if recorded next"
    )

    @model_validator(mode="before")
    @classmethod
    def _data_or_logs(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not given.get("logs"):
            return given
        if given.get("data") is not None:
            raise ValueError("data and logs are both given: leave out one of them")
        return {**given, "data": None}

    @field_validator("data", mode="before")
    @classmethod
    def _one_file(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _data_of_a_servo(self) -> "Config":
        if all(low == high for low, high in self.ranges().values()):
            raise ValueError("all parameters are fixed, so there is nothing to find")
        read(self.motions())
        return self

    def motions(self) -> tuple[Log, ...]:
        """All logs, each with everything it needs."""
        logs = self.logs or tuple(Log(file=path) for path in self.data)
        common = {name: getattr(self, name) for name in ("arm", "load", "controller", "voltage")}
        return tuple(
            log.model_copy(update={k: x for k, x in common.items() if getattr(log, k) is None})
            for log in logs
        )

    def sheet(self) -> Preset | None:
        """The data sheet with what its family adds."""
        return None if self.servo is None else self.servo.known()[0]

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Bounds of all parameters; an offset that has no effect is zero."""
        ranges = self.bounds.ranges(self.sheet())
        heavy = any(log.arm.numbers()[1] or log.load for log in self.motions())
        return ranges if heavy else {**ranges, "offset": (0.0, 0.0)}


def run(settings: Config, run: Run) -> None:
    """Read the motions, fit the parameters, and validate them on the held-out data."""
    motions, notes = read(settings.motions())
    for note in notes:
        run.note(note)
    if settings.bounds.winding is None and coasts(motions):
        sought = settings.bounds.model_copy(update={"winding": (0.0, 1.0)})
        settings = settings.model_copy(update={"bounds": sought})
        run.note(
            "An arm moves with the torque off, so the braking of the closed winding is fitted."
        )
    model = _model(settings, motions)
    bounds = _bounds(settings, motions)
    shown = tuple(jnp.asarray(m.angle[m.clear]) for m in motions)
    used = [
        0 if m.held_out else max(2, round((1 - settings.holdout) * len(angle)))
        for m, angle in zip(motions, shown, strict=True)
    ]
    measured = tuple(angle[:k] for angle, k in zip(shown, used, strict=True))
    size = sum(bound.lower.size for name, bound in bounds.items() if name != "start")
    count = "1 motion" if len(motions) == 1 else f"{len(motions)} motions"
    with run.stage(f"{size} parameters from {count}"):
        whole = fitting.fit(residuals, bounds, model, measured, starts=settings.starts)
    with run.stage("Fit in half steps"):
        whole, model, moved = _refined(bounds, whole, model, measured)
        shift = _largest(moved, whole)
        whole = _checks.rounded(run, bounds, whole, model, measured)
        if shift > SHIFT:
            whole = _widened(whole, moved)
    found = whole.marginal("start")
    settled = started(model, whole.parameters["start"])
    off = [np.asarray(r) for r in jax.jit(residuals)(found.parameters, settled, shown)]
    missed = _results.misses(off, motions)
    _results.record(run, found, model.fixed, off, used, motions, missed)
    if missed:
        for sentence in _checks.mistakes(bounds, model, motions):
            run.note(sentence)
    run.add("substeps", int(model.substeps), "1")
    run.add("step_shift", shift, "1")
    step = settings.step / int(model.substeps)
    if shift > SHIFT:
        run.note(
            f"Steps of {1e3 * step:g} ms are still too long: halving them changed the parameters "
            f"by up to {shift:.2g} standard deviations, which are widened by as much. Choose a "
            "smaller step."
        )
    if settings.servo is not None:
        run.note(settings.servo.said())
    if found.starts.untried or np.any(found.starts.failed):
        run.note(_checks.where_not_finite(whole.names, bounds, model, measured))
    assumed = settings.gear is None and not _sheet.has_creep_test(settings.sheet())
    if assumed and "gear" in model.fixed:
        with run.stage("Fits with a softer and a stiffer gear"):
            _checks.vary_gear(run, bounds, whole, model, measured)
    if settings.intervals:
        with run.stage("Intervals of the parameters"):
            known = fitting.intervals(
                residuals, whole, model, measured, names=found.names, level=LEVEL
            )
        _results.intervals(run, known, motions)
    if settings.propose:
        with run.stage("Motion to record next"):
            gained, name = _proposal.propose(found, settled, motions, settings.step)
        run.note(gained.report(f"a {name},"))
        run.add("worst_deviation", found.worst_direction.deviation, "1")
        run.add("worst_deviation_after_next", float(gained.worst[gained.index]), "1")
    if settings.compare:
        with run.stage("Simpler models of friction and gear"):
            # Parameters in twice these steps are the same within their error, at half the cost.
            coarser = settled._replace(substeps=jnp.maximum(model.substeps // 2, 1))
            compared = _comparison.compare(found, coarser, measured, shown)
        _comparison.record(run, compared)
    with run.stage("Pictures"):
        _results.draw(run, motions, off, used)
        _results.store(run, motions, off)


def _model(settings: Config, motions: list[Motion]) -> Model:
    sheet = settings.sheet()
    # The stall torque is that at the voltage of the data sheet, or of the first motion.
    voltage = None if sheet is None else sheet.voltage
    if voltage is None:
        voltage = 1.0 if motions[0].voltage is None else float(np.mean(motions[0].voltage))
    gear = settings.gear or _sheet.gear(sheet)
    return build(motions, settings.ranges(), gear, settings.step, voltage)


def _bounds(settings: Config, motions: list[Motion]) -> dict[str, Bound]:
    """Bounds of the parameters to find, and of the error of every start that is fitted."""
    fitted = sum(not m.held_out for m in motions)
    bounds = {"start": Bound(np.full(fitted, -START), START, "linear", by_series=True)}
    for name, (low, high) in settings.ranges().items():
        if low < high:
            own = name in settings.by_log
            shape = (len(motions),) if own else ()
            scale = "linear" if name in ("offset", "delay", "load_friction", "winding") else "log"
            bounds[name] = Bound(
                np.full(shape, low),
                np.full(shape, high),
                scale,
                by_series=own and fitted == len(motions),
            )
    return bounds


def _refined(
    bounds: dict[str, Bound], found: Fit, model: Model, measured: tuple[Float[Array, " k"], ...]
) -> tuple[Fit, Model, dict[str, Array]]:
    """The fit in short enough steps, its model, and the changes by the last halving."""
    for _ in range(HALVINGS):
        model = model._replace(substeps=2 * model.substeps)
        finer = fitting.fit(
            residuals, bounds, model, measured, guess=found.parameters, starts=1
        )._replace(starts=found.starts)
        moved = {k: np.abs(x - found.parameters[k]) for k, x in finer.parameters.items()}
        found = finer
        if _largest(moved, found) <= SHIFT:
            break
    return found, model, moved


def _largest(moved: dict[str, Array], found: Fit) -> float:
    """The largest change of all parameters, in standard deviations."""
    deviation = found.standard_deviation
    return max(float(np.max(x / np.maximum(deviation[k], 1e-300))) for k, x in moved.items())


def _widened(found: Fit, moved: dict[str, Array]) -> Fit:
    """The fit with changes added to its errors, as if they were independent."""
    added = np.diag(np.square(ravel_pytree(moved)[0]))
    return found._replace(
        standard_deviation=jax.tree.map(jnp.hypot, found.standard_deviation, moved),
        covariance=found.covariance + added,
        information=found.information
        @ np.linalg.inv(np.eye(len(added)) + added @ found.information),
    )
