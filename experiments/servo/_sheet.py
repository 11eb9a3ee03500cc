"""What is known of a servo before its motions: its data sheet, and where its parameters lie."""

import math
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from jaxgrip.config import Real, Section
from jaxgrip.models import servo

Positive = Annotated[Real, Field(gt=0.0)]
NotNegative = Annotated[Real, Field(ge=0.0)]
Range = tuple[Positive, Positive]
RPM = 2 * math.pi / 60

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
# Where the parameters of the AX-12 are sought.
RANGES = {
    "coulomb": (0.01, 0.5),
    "stiction": (0.05, 1.0),
    "viscous": (0.01, 1.0),
    "stiffness": (5.0, 500.0),
    "stribeck_velocity": (1e-3, 1.0),
    "damping_velocity": (1e-2, 6.0),
    "inertia": (2e-3, 0.1),
    "stall_torque": (0.8, 3.0),
}
# Of the rotor of a small motor [kg m^2].
ROTOR = (2e-8, 5e-6)
# Twist of a gear by the stall torque [rad], and the time in which its damper relaxes [s].
STIFF, RELAXES = 0.035, 5e-3


class Preset(NamedTuple):
    """Data sheet of the servo `model` of a family: [N m], [rad/s], [V], and its gear ratio."""

    model: str
    stall_torque: float
    no_load_speed: float
    voltage: float
    gear_ratio: float | None


# Robotis 2024, specifications of each; Feetech's are those that sellers print. That of
# radio-controlled servos is typical, not of one of them.
PRESETS = {
    "AX": Preset("AX-12A", 1.5, 59 * RPM, 12.0, 254.0),
    "MX": Preset("MX-106", 8.4, 45 * RPM, 12.0, 225.0),
    "XL": Preset("XL430-W250", 1.5, 61 * RPM, 12.0, 258.5),
    "STS": Preset("STS3215 of 12 V", 2.94, 45 * RPM, 12.0, 345.0),
    "RC": Preset("a digital servo of 20 kg cm", 1.96, 6.5, 6.0, None),
}


class Sheet(Section):
    """Data sheet of the servo, from which the bounds of its parameters follow."""

    family: Literal["AX", "MX", "XL", "STS", "RC"] | None = Field(
        None, description="takes what is not given below from one servo of this family"
    )
    stall_torque: Positive | None = Field(None, description="at the voltage below [N m]")
    no_load_speed: Positive | None = Field(
        None, description="1 rpm is 0.1047 rad/s, 0.2 s per 60° are 5.24 rad/s [rad/s]"
    )
    voltage: Positive | None = Field(None, description="of these two numbers [V]")
    gear_ratio: Positive | None = Field(None, description="turns of the motor per turn")

    @model_validator(mode="after")
    def _says_enough(self) -> "Sheet":
        if self.family is None and (self.stall_torque is None or self.no_load_speed is None):
            raise ValueError(
                "give stall_torque and no_load_speed of the data sheet, or a family: "
                + ", ".join(PRESETS)
            )
        return self

    def known(self) -> tuple[Preset, list[str]]:
        """The whole data sheet, and the keys of it that are those of the family's servo."""
        own = {name: getattr(self, name) for name in Preset._fields[1:]}
        preset = PRESETS[self.family] if self.family else Preset("", **own)
        missing = [k for k, x in own.items() if x is None and getattr(preset, k) is not None]
        return preset._replace(**{k: x for k, x in own.items() if x is not None}), missing

    def said(self) -> str:
        """A sentence on where the bounds come from."""
        sheet, taken = self.known()
        if not taken:
            return "Bounds that are not given follow from the data sheet."
        return (
            f"Bounds that are not given follow from the data sheet; {', '.join(taken)} are those "
            f"of the {sheet.model}, a starting point for the family {self.family}: give those of "
            "your own servo."
        )


class Bounds(Section):
    """Range in which each parameter is sought; equal bounds fix it.

    The first eight follow from the data sheet where they are not given, the last from the logs.
    """

    coulomb: Range | None = Field(None, description="F_C [N m]")
    stiction: Range | None = Field(None, description="F_S [N m]")
    viscous: Range | None = Field(None, description="F_v, with the back-EMF [N m s/rad]")
    stiffness: Range | None = Field(None, description="σ0 [N m/rad]")
    stribeck_velocity: Range | None = Field(None, description="v_S [rad/s]")
    damping_velocity: Range | None = Field(None, description="v_d [rad/s]")
    inertia: Range | None = Field(None, description="J at the output [kg m^2]")
    stall_torque: Range | None = Field(None, description="M_max [N m]")
    offset_deg: tuple[Real, Real] = Field(
        (-10.0, 10.0), description="the arm's angle from hanging where the servo's is zero [deg]"
    )
    delay: tuple[NotNegative, NotNegative] = Field(
        (0.0, 0.0), description="how much later angles are logged than they were [s]"
    )
    gain: Range = Field((1.0, 1.0), description="factor on the gains of the controller")
    load: Range = Field((1.0, 1.0), description="factor on masses and inertias of loads")
    gear: Range = Field((1.0, 1.0), description="factor on springs and dampers of the gear")
    load_friction: tuple[NotNegative, NotNegative] = Field(
        (0.0, 0.0), description="rise of F_C and F_S with the torque across the gear [N m/(N m)]"
    )
    winding: tuple[NotNegative, Annotated[Real, Field(ge=0.0, le=1.0)]] | None = Field(
        None,
        description="share of F_v that an open winding lacks; [0, 1] where an arm moves with the "
        "torque off, else zero",
    )

    @model_validator(mode="after")
    def _in_order(self) -> "Bounds":
        for name, (low, high) in ((n, x) for n, x in self if x is not None):
            if low > high:
                raise ValueError(
                    f"{name} = [{low:g}, {high:g}] has its lower bound above its upper"
                )
        return self

    def ranges(self, sheet: Preset | None) -> dict[str, tuple[float, float]]:
        """Bounds of all parameters, angles in radians."""
        known = dict(self)
        known["winding"] = known["winding"] or (0.0, 0.0)
        known["offset"] = tuple(math.radians(x) for x in known.pop("offset_deg"))
        derived = RANGES if sheet is None else from_sheet(sheet)
        return {name: derived[name] if x is None else x for name, x in known.items()}


def from_sheet(sheet: Preset) -> dict[str, tuple[float, float]]:
    """Bounds of the eight parameters of a servo, own choice.

    Frictions are shares of the stall torque M, speeds of the no-load speed w. F_v is about M/w.
    Bristles bend by 0.5 mrad to 0.1 rad before they slip. J accelerates in 2 ms to 0.3 s, and is
    that of a small rotor times the square of the gear ratio.
    """
    torque, speed = sheet.stall_torque, sheet.no_load_speed
    slope = torque / speed
    inertia = (2e-3 * slope, 0.3 * slope)
    if sheet.gear_ratio is not None:
        rotor = tuple(x * sheet.gear_ratio**2 for x in ROTOR)
        both = max(inertia[0], rotor[0]), min(inertia[1], rotor[1])
        inertia = both if both[0] < both[1] else inertia
    return {
        "coulomb": (0.005 * torque, 0.3 * torque),
        "stiction": (0.01 * torque, 0.6 * torque),
        "viscous": (0.1 * slope, 2.0 * slope),
        "stiffness": (0.05 * torque / 0.1, 0.3 * torque / 5e-4),
        "stribeck_velocity": (2e-3 * speed, 0.3 * speed),
        "damping_velocity": (4e-3 * speed, 2.0 * speed),
        "inertia": inertia,
        "stall_torque": (0.4 * torque, 2.0 * torque),
    }


class Gear(Section):
    """The gear, from a creep test; its numbers are not fitted."""

    spring: NotNegative = Field(description="long-term stiffness [N m/rad]")
    springs: tuple[Positive, ...] = Field((), description="of the branches [N m/rad]")
    dampers: tuple[Positive, ...] = Field((), description="of the branches [N m s/rad]")

    @model_validator(mode="after")
    def _has_pairs(self) -> "Gear":
        if len(self.springs) != len(self.dampers):
            raise ValueError(
                f"there are {len(self.springs)} springs and {len(self.dampers)} dampers; every "
                "branch has one of each"
            )
        return self


def has_creep_test(sheet: Preset | None) -> bool:
    """Whether the gear of this servo is that of a creep test: of the AX-12."""
    return sheet is None or sheet.model == PRESETS["AX"].model


def gear(sheet: Preset | None) -> Gear:
    """The gear where none is given: that of the AX-12, or a stiff one.

    The stall torque twists the stiff one by two degrees; a branch as stiff as its spring damps it.
    """
    if has_creep_test(sheet):
        return Gear(**servo.GEAR)
    spring = sheet.stall_torque / STIFF
    return Gear(spring=spring, springs=(spring,), dampers=(RELAXES * spring,))
