"""Measured motions of a servo: how each was made, and what its file holds."""

from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from jaxgrip import fitting
from jaxgrip.actuators import Controller, families
from jaxgrip.config import ConfigError, InputPath, Real, Section

Positive = Annotated[Real, Field(gt=0.0)]
NotNegative = Annotated[Real, Field(ge=0.0)]

GRAVITY = 9.81
# Shortest and longest usual time between samples, and longest time for which an input is held
# unnoticed [s].
FASTEST, SLOWEST, LONG = 5e-5, 0.1, 0.5
# Least number of samples of a log.
FEWEST = 20
# Samples are lost where the time between two is longer than the usual one by this factor, or where
# times scatter about a schedule, which follows them by this share, by less than this share of its
# period.
LOST, FOLLOWS, SCATTER = 1.6, 0.1, 0.25
# Error of an input between samples [rad, or duty] and the time after it in which angles are not
# used [s].
UNCLEAR, FORGOTTEN = 0.02, 1.0
# Share of voltages of zero up to which they count as failed readings, and of angles half a turn
# away from targets.
MOST_FAILED, MOST_APART = 0.05, 0.1
# Speed that no servo's arm has [rad/s] for so long [s], and range of angles at rest [rad].
FASTEST_ARM, MOVING, STILL = 60.0, 0.1, 0.0175
OPTIONAL = {"torque on": "-", "voltage": "V"}
# Families of controllers, and what their arguments are called here.
CONTROLLERS = {
    "ax": (families.dynamixel_ax, {k: k for k in ("margin", "slope", "punch", "torque_limit")}),
    "mx": (
        families.dynamixel_mx,
        {"p": "p_gain", "i": "i_gain", "d": "d_gain", "punch": "punch", "duty_limit": "duty_limit"},
    ),
    "x": (
        families.dynamixel_x,
        {"p": "p_gain", "i": "i_gain", "d": "d_gain", "pwm_limit": "pwm_limit"}
        | {"p_divisor": "p_divisor"},
    ),
    "sts": (
        families.feetech_sts,
        {"p": "p_coefficient", "dead_zone": "dead_zone", "torque_limit": "torque_limit"}
        | {"minimum_force": "minimum_force"},
    ),
    "rc": (
        families.rc,
        {"full_error": "full_error", "dead_band": "dead_band", "duty_limit": "duty_limit"},
    ),
    "position": (
        Controller.position,
        {"p": "proportional", "i": "integral", "d": "derivative", "dead_band": "dead_band"}
        | {"punch": "punch", "duty_limit": "duty_limit"},
    ),
}
# What a controller cannot do without.
NEEDED = {"mx": "p", "x": "p", "sts": "p", "rc": "full_error", "position": "p"}


class Arm(Section):
    """The arm of the servo, which hangs down where the angle is the offset."""

    inertia: Positive | None = Field(
        None, description="about the axis, mass · radius² when not given [kg m^2]"
    )
    weight: NotNegative | None = Field(None, description="torque of gravity when horizontal [N m]")
    mass: NotNegative | None = Field(None, description="in place of the weight [kg]")
    radius: Positive | None = Field(None, description="of the centre of mass [m]")
    damping: NotNegative = Field(0.0, description="of the axis [N m s/rad]")

    @model_validator(mode="after")
    def _has_a_weight(self) -> "Arm":
        if (self.mass is None) != (self.radius is None):
            raise ValueError("mass and radius must be given together")
        if (self.weight is None) == (self.mass is None):
            raise ValueError("give either the weight, or mass and radius, and not both")
        if self.inertia is None and not self.mass:
            raise ValueError("give the inertia")
        return self

    def numbers(self) -> tuple[float, float, float]:
        """Inertia [kg m^2], weight [N m] and damping [N m s/rad]."""
        mass, radius = self.mass or 0.0, self.radius or 0.0
        inertia = mass * radius**2 if self.inertia is None else self.inertia
        weight = mass * GRAVITY * radius if self.weight is None else self.weight
        return inertia, weight, self.damping


class Load(Section):
    """A mass on the arm."""

    mass: NotNegative = Field(description="[kg]")
    radius: Positive = Field(description="from the axis to its centre [m]")
    inertia: NotNegative = Field(0.0, description="about its own centre [kg m^2]")

    def numbers(self) -> tuple[float, float]:
        """Inertia about the axis [kg m^2] and weight [N m]."""
        return (
            self.inertia + self.mass * self.radius**2,
            self.mass * GRAVITY * self.radius,
        )


class Registers(Section):
    """The position controller within the servo."""

    family: Literal["ax", "mx", "x", "sts", "rc", "position"] = Field(
        description="whose registers are given; position: gains in duty per rad, and SI units"
    )
    p: NotNegative | None = Field(None, description="P gain")
    i: NotNegative | None = Field(None, description="I gain")
    d: NotNegative | None = Field(None, description="D gain")
    margin: NotNegative | None = Field(None, description="compliance margin of AX")
    slope: NotNegative | None = Field(None, description="compliance slope of AX")
    punch: NotNegative | None = Field(None, description="punch of AX and MX")
    torque_limit: NotNegative | None = Field(None, description="of AX and STS")
    duty_limit: Positive | None = Field(None, description="largest duty of MX, RC and position")
    pwm_limit: Positive | None = Field(None, description="of X")
    p_divisor: Positive | None = Field(None, description="of X: 128, or as measured")
    dead_zone: NotNegative | None = Field(None, description="of STS")
    minimum_force: NotNegative | None = Field(None, description="of STS")
    full_error: Positive | None = Field(None, description="of RC: error of full duty [s]")
    dead_band: NotNegative | None = Field(None, description="of RC [s], of position [rad]")
    speed_limit: Positive | None = Field(
        None, description="at which the servo lets its target follow [rad/s]"
    )

    @model_validator(mode="after")
    def _is_a_controller(self) -> "Registers":
        allowed = CONTROLLERS[self.family][1]
        other = [name for name in self._given() if name not in allowed]
        if other:
            raise ValueError(
                f"{other[0]} is no register of {self.family}; it has {', '.join(allowed)}"
            )
        needed = NEEDED.get(self.family)
        if needed and getattr(self, needed) is None:
            raise ValueError(f"give {needed}")
        self.controller()
        return self

    def _given(self) -> dict[str, float]:
        without = ("family", "speed_limit")
        return {k: x for k, x in self if x is not None and k not in without}

    def controller(self) -> Controller:
        """The controller with these registers."""
        make, names = CONTROLLERS[self.family]
        return make(**{names[k]: x for k, x in self._given().items()})


class Log(Section):
    """One measured motion; what is not given is that of the whole configuration."""

    file: InputPath = Field(description="with the columns of data")
    arm: Arm | None = Field(None, description="the arm of this motion")
    load: Load | None = Field(None, description="on the arm")
    controller: Registers | None = Field(None, description="of the servo in this motion")
    voltage: Positive | None = Field(None, description="of the supply [V]")
    held_out: bool = Field(False, description="whether the whole motion is kept for validation")


class Motion(NamedTuple):
    """A motion: `name`; `time` (k,) [s] from zero on and `angle` (k,) [rad] there.

    `input` (i,): duties or targets [rad], each from one of `input_time` (i,) on; `clear` (k,),
    whether the input that led to an angle is known; `on` and `voltage` (k,) or None; `arm`
    (inertia, weight, damping); `load` (inertia, weight); `controller` and its `speed_limit` or
    None; `held_out`.
    """

    name: str
    time: np.ndarray
    angle: np.ndarray
    input_time: np.ndarray
    input: np.ndarray
    clear: np.ndarray
    on: np.ndarray | None
    voltage: np.ndarray | None
    arm: tuple[float, float, float]
    load: tuple[float, float]
    controller: Controller | None
    speed_limit: float | None
    held_out: bool


def read(logs: tuple[Log, ...]) -> tuple[list[Motion], list[str]]:
    """The motions, and sentences about what of their files is not used.

    **Arguments:** `logs`, of which each has an arm.

    **Raises:** `ConfigError` with a sentence.
    """
    motions, unused, notes = [], {}, []
    for log in logs:
        if log.file.stem in [m.name for m in motions]:
            raise ConfigError(f"data: two files are called {log.file.stem}; names must differ.")
        motion, left, said = _motion(log)
        motions.append(motion)
        notes += said
        unused.update(dict.fromkeys(left))
    _check_alike(motions)
    if unused:
        notes.append(
            f"Columns that are not used, as the model does not give them: {', '.join(unused)}."
        )
    for m in motions:
        gap = np.max(np.diff(m.time))
        if gap > LONG:
            notes.append(
                f"{m.name} has a gap of {gap:.2g} s, over which its input is held: if it was not, "
                "make two files of it, each starting at rest."
            )
    return motions, notes


def _motion(log: Log) -> tuple[Motion, list[str], list[str]]:
    """A motion, the columns of its file that are not used, and sentences on what is left out."""
    path, name = log.file, log.file.name
    given, wanted, unused = _chosen(log)
    read = fitting.read_series(path, wanted, gaps=True)
    time, angle, on = read["time"], read["angle"], read.get("torque on")
    _check_rate(name, time)
    if log.controller is None:
        _check(name, "duty", time, read["duty"], np.abs(read["duty"]) <= 1)
    if on is not None:
        _check(name, "torque on", time, on, (on == 0) | (on == 1))
    voltage = _voltage(log, time, read.get("voltage"))
    _check_angle(name, time, angle)
    time = time - time[0]
    if log.controller is not None:
        _check_target(name, time, read["target"], angle)
    input_time, inputs, clear = _inputs(time, read[given])
    failed = fitting.spikes(angle)
    said = [*read.notes, *_left_out(path.stem, time, angle, clear, failed)]
    said += _still(path.stem, given, read[given], angle)
    motion = Motion(
        path.stem,
        time,
        angle,
        input_time,
        inputs,
        clear & ~failed,
        on,
        voltage,
        log.arm.numbers(),
        (0.0, 0.0) if log.load is None else log.load.numbers(),
        None if log.controller is None else log.controller.controller(),
        None if log.controller is None else log.controller.speed_limit,
        log.held_out,
    )
    return motion, unused, said


def _chosen(log: Log) -> tuple[str, dict[str, str], list[str]]:
    """What the input is, the columns to read with their units, and the names of the others."""
    given, unit = ("duty", "-") if log.controller is None else ("target", "rad")
    there = fitting.series_columns(log.file)
    if given not in there and {"duty", "target"} & set(there):
        raise ConfigError(
            f"data: {log.file.name} has targets and no duties: say which controller the servo has, "
            'such as controller = {family = "mx", p = 32}.'
            if log.controller is None
            else f"data: {log.file.name} has duties and no targets: leave out the controller."
        )
    wanted = {"time": "s", given: unit, "angle": "rad"}
    wanted |= {name: unit for name, unit in OPTIONAL.items() if name in there}
    return given, wanted, [name for name in there if name not in wanted]


def _check_rate(name: str, time: np.ndarray) -> None:
    if len(time) < FEWEST:
        raise ConfigError(f"data: {name} has {len(time)} samples; at least {FEWEST} needed.")
    usual = float(np.median(np.diff(time)))
    if not FASTEST <= usual <= SLOWEST:
        far = "far" if usual > SLOWEST else "close"
        raise ConfigError(
            f"data: samples are {usual:.3g} s apart in {name}, too {far} to follow a servo; "
            f"{FASTEST:g} s to {SLOWEST:g} s are allowed. The header says in which unit times are, "
            "such as time [ms] or time [us]."
        )


def _voltage(log: Log, time: np.ndarray, voltage: np.ndarray | None) -> np.ndarray | None:
    """The voltage at every sample, from the column or the configuration, if it is known."""
    if voltage is None:
        return None if log.voltage is None else np.full(len(time), log.voltage)
    absent = voltage == 0
    if np.mean(absent) < MOST_FAILED:
        # A failed reading: a supply without a voltage moves nothing.
        voltage = np.interp(time, time[~absent], voltage[~absent])
    _check(log.file.name, "voltage", time, voltage, voltage > 0)
    return voltage


def _check_angle(name: str, time: np.ndarray, angle: np.ndarray) -> None:
    """Raise where an arm would move as none does."""
    later = np.minimum(np.searchsorted(time, time + MOVING), len(time) - 1)
    speed = np.abs(angle[later] - angle) / np.maximum(time[later] - time, MOVING)
    if np.quantile(speed, 0.9) > FASTEST_ARM:
        raise ConfigError(
            f"data: the angle in {name} moves at {np.quantile(speed, 0.9):.3g} rad/s, which no "
            "servo does. The header says in which unit it is, such as angle [deg] or angle "
            "[tick/4096]; the same is true of targets, and of the time."
        )


def _check_target(name: str, time: np.ndarray, target: np.ndarray, angle: np.ndarray) -> None:
    """Raise where the angle does not follow the target, but would after a simple correction."""
    for said in fitting.mistakes(angle, target, time, name=f"The angle in {name}"):
        if "late:" not in said:
            raise ConfigError(
                f"data: {said} Compared is the target, which the angle follows; correct that one "
                "of the two columns which is wrong."
            )
    if np.mean(np.abs(target - angle) > np.pi) > MOST_APART:
        raise ConfigError(
            f"data: target and angle in {name} are often more than half a turn apart. If one of "
            "them jumps at the end of a turn, write both without such jumps; otherwise their units "
            "or their zeros differ."
        )


def _left_out(
    name: str, time: np.ndarray, angle: np.ndarray, clear: np.ndarray, failed: np.ndarray
) -> list[str]:
    """Sentences on the angles that are not used."""
    said = []
    if not np.all(clear):
        said.append(
            f"{name}: the input jumps where samples are lost; {np.sum(~clear)} angles within "
            f"{FORGOTTEN:g} s after it are not used."
        )
    if failed.any():
        k = int(np.argmax(failed))
        said.append(
            f"{name}: {np.sum(failed)} of the angles jump away and back, the first one to "
            f"{np.rad2deg(angle[k]):.4g}° at {time[k]:.4g} s; as failed readings they are not used."
        )
    return said


def _still(name: str, given: str, inputs: np.ndarray, angle: np.ndarray) -> list[str]:
    """Sentences on columns that stay the same."""
    if np.ptp(angle) <= STILL and np.ptp(inputs) > 0:
        return [
            f"{name}: the angle moves by {np.rad2deg(np.ptp(angle)):.2g}° in all while the {given} "
            "changes, so it tells next to nothing: see whether the column is the right one, in the "
            "unit of its header, and whether the servo was on."
        ]
    if np.ptp(inputs) == 0 and np.ptp(angle) > STILL:
        return [
            f"{name}: the {given} never changes, but the arm moves: see whether the column is the "
            "right one."
        ]
    return []


def _inputs(time: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times and values of the input, with the lost ones, and whether angles are clear of doubt.

    Inputs of lost samples are on the straight line between their neighbours, or are held in long
    gaps.
    """
    steps, rises = np.diff(time), np.diff(given)
    times, values, clear = [time[:1]], [given[:1]], np.ones(len(time), bool)
    for k, parts in enumerate(_periods(steps)):
        share = np.arange(1, parts + 1) / parts
        times.append(time[k] + share * steps[k])
        values.append(given[k] + share * rises[k])
        if parts > 1:
            near = [i for i in (k - 1, k + 1) if 0 <= i < len(steps)]
            expected = steps[k] * np.mean([rises[i] / steps[i] for i in near])
            if abs(rises[k] - expected) > UNCLEAR:
                after = time - time[k]
                clear &= ~((after > 0) & (after < FORGOTTEN))
    return np.concatenate(times), np.concatenate(values), clear


def _periods(steps: np.ndarray) -> np.ndarray:
    """How many periods of sampling each step takes, or one where it is a long gap.

    Where times scatter about a regular schedule, its phase tells a lost sample from a late one.
    """
    short = steps <= LONG
    usual = np.median(steps)
    plain = np.where(steps > LOST * usual, np.maximum(2, np.round(steps / usual)), 1)
    # The median of steps that scatter is off by a little, which adds up.
    for _ in range(2):
        count, off = _scheduled(steps, usual)
        usual = np.sum(steps[short]) / np.sum(count[short])
    is_regular = np.sqrt(np.mean(off**2)) < SCATTER * usual
    return np.where(short, count if is_regular else plain, 1).astype(int)


def _scheduled(steps: np.ndarray, period: float) -> tuple[np.ndarray, np.ndarray]:
    """Periods in each step, and how late its end is by a schedule that follows slowly [s]."""
    late, count, off = 0.0, np.ones(len(steps)), np.zeros(len(steps))
    for k, step in enumerate(steps):
        if step > LONG:
            late = 0.0
            continue
        count[k] = max(1.0, round((late + step) / period))
        off[k] = late + step - count[k] * period
        late = (1 - FOLLOWS) * off[k]
    return count, off


ALLOWED = {
    "duty": "duties lie between -1 and 1 (or -100 % and 100 %); the header says the unit, "
    "duty [%]; divide a register by its value for full duty",
    "torque on": "it is 0 or 1",
    "voltage": "voltages are positive",
}


def _check(name: str, column: str, time: np.ndarray, x: np.ndarray, good: np.ndarray) -> None:
    bad = np.flatnonzero(~good)
    if bad.size:
        raise ConfigError(
            f"data: {name} has the {column} {x[bad[0]]:g} at {time[bad[0]]:g} s; {ALLOWED[column]}."
        )


def _check_alike(motions: list[Motion]) -> None:
    """Raise where motions cannot be simulated side by side."""

    def differ(what: str, has: Any) -> None:
        kinds = [has(m) for m in motions]
        if any(kind != kinds[0] for kind in kinds):
            other = motions[next(i for i, kind in enumerate(kinds) if kind != kinds[0])]
            raise ConfigError(f"logs: {motions[0].name} and {other.name} differ: {what}.")

    differ(
        "the servo must have a controller in all motions or in none, of one family, with the same "
        "registers given",
        lambda m: None if m.controller is None else _parts(m.controller),
    )
    differ("give the voltage of all motions or of none", lambda m: m.voltage is None)


def _parts(controller: Controller) -> list[str]:
    return [k for k, x in vars(controller).items() if x is not None]
