"""A system of your own from a file: assembled, mobility in words, moved by one of its drives."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from pydantic import Field, field_validator, model_validator

from jaxgrip import config, viz
from jaxgrip.assembly import (
    AssemblyError,
    assemble,
    assemble_nested,
    mobility,
    outline,
    read,
    spans,
    sweep,
)
from jaxgrip.config import InputPath, Real, hint, short
from jaxgrip.joints import Angle
from jaxgrip.report import Run, RunError


class Config(config.Config):
    """A file with parts and joints, and a drive to move."""

    system: InputPath = Field(
        Path(__file__).parents[2] / "configs" / "assembly" / "crane.toml",
        description="TOML or JSON file with parts and joints, relative to this one",
    )
    drive: str | None = Field(None, description="name of the drive to move; none to only assemble")
    to: Real | None = Field(None, description="where the drive goes [m, or degrees of an angle]")
    positions: int = Field(60, ge=2, le=10_000, description="positions on the way there")
    plane: str = Field("xz", description="the two axes that the picture looks at")

    @field_validator("plane")
    @classmethod
    def _two_axes(cls, plane: str) -> str:
        if len(plane) != 2 or len({*plane} & {*"xyz"}) != 2:
            raise ValueError(f'"{plane}" is no pair of axes such as "xz"')
        return plane

    @field_validator("system")
    @classmethod
    def _a_system(cls, system: Path) -> Path:
        read(system)
        return system

    @model_validator(mode="after")
    def _a_drive(self) -> "Config":
        if self.drive is None:
            return self
        known = list(read(self.system).parameters)
        if self.drive not in known:
            raise ValueError(
                f"drive: there is no {short(self.drive, 60)!r}{hint(self.drive, known)}; there "
                f"are {', '.join(known) or 'none'}"
            )
        if self.to is None:
            raise ValueError(f"to: is missing; the drive {self.drive!r} needs a value to go to")
        return self


def run(settings: Config, run: Run) -> None:
    """Assemble, report the mobility, move, draw."""
    system = read(settings.system)
    with run.stage("Assembly"):
        try:
            nested = assemble_nested(system)
        except AssemblyError as error:
            run.note(f"Mobility at the start poses: {mobility(system)}")
            raise RunError(str(error)) from None
    report = mobility(nested.system, nested.poses)
    run.note(str(report))
    for sentence in nested.warnings():
        run.note(sentence)
    run.add("parts", report.parts, "1")
    run.add("equations", report.equations, "1")
    run.add("independent_equations", report.rank, "1")
    run.add("freedoms_left", report.freedoms, "1")
    for name, value in nested.system.parameters.items():
        run.add(f"drive_{name}", value, _unit(nested.system, name))
    poses, good = jax.tree.map(lambda x: x[None], nested.poses), settings.positions
    if settings.drive is not None:
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
            coords={"part": ("part", list(nested.system.names), {"units": ""})},
        ),
    )
    if settings.drive is not None:
        run.animation(
            "motion",
            viz.animate_linkage(
                parts, f"Moving {settings.drive}", cables=cables, plane=settings.plane
            ),
            f"The way of {settings.drive} to {settings.to:g}"
            f"{'°' if _unit(nested.system, settings.drive) == 'rad' else ' m'}.",
        )
    if good < settings.positions:
        raise RunError(
            f"The way of {settings.drive!r} ends at position {good} of {settings.positions}: "
            "beyond are a dead point or places out of reach."
        )


def _done(settings: Config) -> str:
    return "assembled" if settings.drive is None else f"moved by {settings.drive}"


def _unit(system, name: str) -> str:
    joint = system.connections[system.connection(name)].joint
    return "rad" if isinstance(joint, Angle) else "m"


def _moved(settings: Config, nested):
    """Poses on the way of the drive, and at how many positions it has arrived."""
    whole = assemble(nested.system, start=nested.poses)
    now = float(nested.system.parameters[settings.drive])
    unit = _unit(nested.system, settings.drive)
    to = np.deg2rad(settings.to) if unit == "rad" else settings.to
    values = jnp.linspace(now, to, settings.positions)
    here = sweep(whole, {settings.drive: values})
    return here.poses, int(here.succeeded.sum())
