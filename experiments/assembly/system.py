"""A system of your own from a file: assembled, mobility in words, moved or set in motion."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jaxtyping import Array
from pydantic import Field, field_validator, model_validator

from jaxgrip import config, viz
from jaxgrip.config import InputPath, Real, hint, short
from jaxgrip.mechanism import (
    MechanismError,
    Motion,
    NestedAssembly,
    Poses,
    System,
    assemble,
    assemble_nested,
    mobility,
    outline,
    read_system,
    simulate,
    spans,
    sweep,
)
from jaxgrip.report import Run, RunError


class Config(config.Config):
    """A file with parts and joints, and a drive to move."""

    system: InputPath = Field(
        Path(__file__).parents[2] / "configs" / "assembly" / "crane.toml",
        description="file with parts and joints (TOML, JSON, URDF, MJCF), relative to this one",
    )
    drive: str | None = Field(None, description="name of the drive to move; none to only assemble")
    to: Real | None = Field(None, description="target of the drive [m, or degrees of an angle]")
    positions: int = Field(
        60, ge=2, le=10_000, description="positions from the start to the target"
    )
    simulate: Annotated[Real, Field(gt=0)] | None = Field(
        None,
        description="duration of a motion in time under gravity and all forces, in which the drive "
        "moves to its target and others keep their values [s]; parts need masses",
    )
    rates: dict[str, Real] = Field(
        {}, description="rates of joints at the start of the motion in time [m/s or rad/s]"
    )
    release: list[str] = Field([], description="drives that exert nothing in the motion in time")
    plane: str = Field("xz", description="the two axes of the picture")

    @field_validator("plane")
    @classmethod
    def _two_axes(cls, plane: str) -> str:
        if len(plane) != 2 or len({*plane} & {*"xyz"}) != 2:
            raise ValueError(f'"{plane}" is no pair of axes such as "xz"')
        return plane

    @field_validator("system")
    @classmethod
    def _a_system(cls, system: Path) -> Path:
        read_system(system)
        return system

    @model_validator(mode="after")
    def _a_drive(self) -> "Config":
        system = read_system(self.system)
        known = list(system.parameters)
        joints = [connection.name for connection in system.connections]
        for key, names, there in (
            ("drive", [] if self.drive is None else [self.drive], known),
            ("release", self.release, known),
            ("rates", self.rates, joints),
        ):
            for name in names:
                if name not in there:
                    raise ValueError(
                        f"{key}: there is no {short(name, 60)!r}{hint(name, there)}; there are "
                        f"{', '.join(there) or 'none'}"
                    )
        if (self.release or self.rates) and self.simulate is None:
            raise ValueError("release and rates are for a motion in time; give simulate too")
        if self.drive in self.release:
            raise ValueError(f"release: {short(self.drive, 60)!r} is the drive that moves")
        if self.drive is None:
            return self
        if self.to is None:
            raise ValueError(f"to: is missing; the drive {self.drive!r} needs a target")
        return self


def run(settings: Config, run: Run) -> None:
    """Assemble, report the mobility, move, draw."""
    system = read_system(settings.system)
    with run.stage("Assembly"):
        try:
            nested = assemble_nested(system)
        except MechanismError as error:
            run.note(f"Mobility at the start poses: {mobility(system)}")
            raise RunError(str(error)) from None
    report = mobility(nested.system, nested.poses)
    run.note(str(report))
    for sentence in nested.warnings():
        run.note(sentence)
    run.add("parts", report.parts, "1")
    run.add("equations", report.equations, "1")
    run.add("independent_equations", report.rank, "1")
    run.add("degrees_of_freedom", report.degrees_of_freedom, "1")
    for name, value in nested.system.parameters.items():
        run.add(f"drive_{name}", value, _unit(nested.system, name))
    poses, good = jax.tree.map(lambda x: x[None], nested.poses), settings.positions
    motion, clock = None, {}
    if settings.simulate is not None:
        with run.stage(f"Motion of {settings.simulate:g} s"):
            motion = _in_time(settings, nested)
        poses = motion.poses
        clock = {"time": ("step", np.asarray(motion.t), {"units": "s"})}
        _report_motion(run, nested.system, motion)
    elif settings.drive is not None:
        with run.stage(f"{settings.positions} positions"):
            poses, good = _moved(settings, nested)
        run.add("positions_reached", good, "1")
    lines = jax.vmap(lambda p: outline(nested.system, p))(poses)
    thin = jax.vmap(lambda p: spans(nested.system, p))(poses)
    thin = {f"{name} (length)" if name in lines else name: x for name, x in thin.items()}
    cables = tuple(thin)
    parts = {
        name: xarray.DataArray(
            np.asarray(line), dims=("step", "point", "axis"), attrs={"units": "m"}
        )
        for name, line in (lines | thin).items()
    }
    run.figure(
        "assembly",
        viz.linkage(
            parts,
            f"{settings.system.stem}: {_done(settings)}",
            cables=cables,
            plane=settings.plane,
        ),
        "Parts as lines through their attachments; ropes and distances are thin.",
    )
    run.arrays(
        "poses",
        xarray.Dataset(
            {
                "position": (("step", "part", "axis"), np.asarray(poses.position), {"units": "m"}),
                "quaternion": (
                    ("step", "part", "component"),
                    np.asarray(poses.quaternion),
                    {"units": "1"},
                ),
            },
            coords={"part": ("part", list(nested.system.names), {"units": ""})} | clock,
        ),
    )
    if motion is not None:
        seconds = settings.simulate if 2.0 <= settings.simulate <= 10.0 else 4.0
        run.animation(
            "motion",
            viz.animate_linkage(
                parts,
                f"{settings.system.stem}: {_done(settings)}",
                cables=cables,
                plane=settings.plane,
                captions=[f"t = {float(t):.3g} s" for t in motion.t],
                seconds=seconds,
            ),
            f"Motion of {settings.simulate:g} s, {viz.pace(seconds, settings.simulate)}.",
        )
    elif settings.drive is not None:
        run.animation(
            "motion",
            viz.animate_linkage(
                parts, f"Moving {settings.drive}", cables=cables, plane=settings.plane
            ),
            f"Motion of {settings.drive} to {settings.to:g}"
            f"{'°' if _unit(nested.system, settings.drive) == 'rad' else ' m'}.",
        )
    if good < settings.positions:
        raise RunError(
            f"Drive {settings.drive!r} reaches position {good} of {settings.positions}: the next "
            "is beyond a dead point or out of reach."
        )


def _done(settings: Config) -> str:
    if settings.simulate is not None:
        moved = f"{settings.drive} moves to its target in" if settings.drive else "motion of"
        return f"{moved} {settings.simulate:g} s"
    return "assembled" if settings.drive is None else f"moved by {settings.drive}"


def _unit(system: System, name: str) -> str:
    return system.joint(name).measure.unit


def _end(settings: Config, system: System) -> float:
    return np.deg2rad(settings.to) if _unit(system, settings.drive) == "rad" else settings.to


def _moved(settings: Config, nested: NestedAssembly) -> tuple[Poses, int]:
    """Poses of the sweep of the drive, and the number of positions reached."""
    whole = assemble(nested.system, start=nested.poses)
    now = float(nested.system.parameters[settings.drive])
    values = jnp.linspace(now, _end(settings, nested.system), settings.positions)
    here = sweep(whole, {settings.drive: values})
    return here.poses, int(here.succeeded.sum())


def _in_time(settings: Config, nested: NestedAssembly) -> Motion:
    """The motion in time, the drive with zero velocity and acceleration at both ends."""
    whole = assemble(nested.system, start=nested.poses)
    times = jnp.linspace(0.0, settings.simulate, settings.positions)
    drives: dict[str, Callable | None] = dict.fromkeys(settings.release)
    if settings.drive is not None:
        now = float(nested.system.parameters[settings.drive])
        distance = _end(settings, nested.system) - now

        def value(t: Array) -> Array:
            s = t / settings.simulate
            return now + distance * s**3 * (10 - 15 * s + 6 * s**2)

        drives[settings.drive] = value
    try:
        return simulate(whole, times, drives=drives, rates=settings.rates)
    except ValueError as error:
        raise RunError(str(error)) from None


def _panel(
    t: np.ndarray, signals: Mapping[str, Any], what: tuple[str, str], title: str
) -> viz.Panel:
    """Signals over time, in units that fit."""
    word, unit = what
    size = max(float(np.abs(np.asarray(x)).max()) for x in signals.values())
    factor, unit = viz.readable(size, unit)
    second, clock = viz.readable(float(t[-1]), "s")
    drawn = [viz.Curve(name, second * t, factor * np.asarray(x)) for name, x in signals.items()]
    return viz.Panel(f"time in {clock}", f"{word} in {unit}", drawn, title)


def _report_motion(run: Run, system: System, motion: Motion) -> None:
    """Numbers and pictures of a motion in time."""
    for sentence in motion.warnings():
        run.note(sentence)
    t = np.asarray(motion.t)
    run.add("largest_gap_of_closed_loops", float(jnp.abs(motion.gap).max(initial=0.0)), "m")
    run.add("energy_at_the_start", float(motion.energy[0]), "J")
    run.add("energy_at_the_end", float(motion.energy[-1]), "J")
    for name, effort in motion.efforts.items():
        unit = {"rad": "N m", "m": "N"}[_unit(system, name)]
        run.add(f"largest_effort_of_{name}", float(jnp.abs(effort).max()), unit)
    run.figure(
        "energies",
        viz.curves(
            [
                _panel(
                    t,
                    {
                        "kinetic": motion.kinetic,
                        "potential": motion.potential - motion.potential[0],
                        "sum": motion.energy - motion.energy[0],
                    },
                    ("energy", "J"),
                    "Energy, potential energy counted from the start",
                ),
                *(
                    _panel(t, drawn, (word, unit), f"{word.capitalize()} of the drives")
                    for word, unit, kind in (("force", "N", "m"), ("torque", "N m", "rad"))
                    if (
                        drawn := {
                            n: x for n, x in motion.efforts.items() if _unit(system, n) == kind
                        }
                    )
                ),
            ],
            "Motion in time",
        ),
        "Energies, and efforts of the drives.",
    )
    size = {name: np.linalg.norm(x[:, :3], axis=1) for name, x in motion.reactions.items()}
    largest = sorted(size, key=lambda name: -size[name].max())[:6]
    title = "Forces in the joints" + (" (the six largest)" if len(size) > 6 else "")
    run.figure(
        "reactions",
        viz.curves([_panel(t, {n: size[n] for n in largest}, ("force", "N"), "")], title),
        "Magnitude of the force that each joint transmits.",
    )
    names = list(motion.reactions)
    run.arrays(
        "motion",
        xarray.Dataset(
            {
                "velocity": (
                    ("time", "part", "component"),
                    np.asarray(motion.velocity),
                    {"units": "m/s, rad/s"},
                ),
                "reaction": (
                    ("time", "joint", "component"),
                    np.stack([np.asarray(motion.reactions[n]) for n in names], axis=1),
                    {"units": "N, N m"},
                ),
                "kinetic": (("time",), np.asarray(motion.kinetic), {"units": "J"}),
                "potential": (("time",), np.asarray(motion.potential), {"units": "J"}),
            },
            coords={
                "time": ("time", t, {"units": "s"}),
                "part": ("part", list(system.names), {"units": ""}),
                "joint": ("joint", names, {"units": ""}),
            },
        ),
    )
