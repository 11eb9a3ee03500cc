"""Where a camera sits on a robot's hand, from a file of poses of both.

Source: Schadlbauer 2017, whose equation A Q = Q B is solved by dual quaternions and least squares.
The example file is made by this project.
"""

from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import xarray
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pydantic import Field, model_validator

from jaxgrip import config, fitting, viz
from jaxgrip.config import ConfigError, InputPath, Real
from jaxgrip.report import Run
from jaxgrip.spatial import euler, quaternions
from jaxgrip.viz import Curve, Panel
from jaxgrip.viz.style import GREY, PALETTE, styled

Positive = Annotated[Real, Field(gt=0.0)]
EXAMPLE = Path(__file__).parents[2] / "configs" / "hand_eye" / "poses.csv"
PLACE = ("x", "y", "z")
# Columns of orientations, their unit, and the quaternion of them.
TURNS = {
    ("qw", "qx", "qy", "qz"): ("-", lambda q: q),
    ("rx", "ry", "rz"): ("rad", quaternions.exponential),
    ("roll", "pitch", "yaw"): ("rad", euler.from_cardan),
}
# A pose whose residual is larger than the median by this factor is a mistake, not noise.
WRONG, ROUNDING = 5.0, 1e-9
# Farther away [m] are only poses in millimetres.
FARTHEST = 50.0


class Config(config.Config):
    """Poses of hand and camera."""

    data: InputPath = Field(
        EXAMPLE,
        description="file with the columns hand x [m], hand y [m], hand z [m] of the hand in the "
        "robot's base and either hand qw [-], qx, qy and qz, a quaternion, or hand rx [rad], ry "
        "and rz, a rotation vector, or hand roll [rad], pitch and yaw about fixed x, y and z; and "
        "of the camera in the frame of what it sees; other units too, such as [mm] and [deg]",
    )
    noise: tuple[Positive, Positive] | None = Field(
        None, description="standard deviations of the camera's poses [rad], [m]; estimated if none"
    )
    inverted: bool = Field(
        False, description="whether the file has what the camera sees in the frame of the camera"
    )
    beside: bool = Field(
        False,
        description="whether the camera stands beside the robot and sees a target on the hand; the "
        "results are then the camera in the base, and the target on the hand",
    )

    @model_validator(mode="after")
    def _data_can_be_read(self) -> "Config":
        try:
            self.calibrated()
        except ValueError as error:
            raise ConfigError(f"data: {error}") from None
        return self

    def poses(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Rotation matrices and translations of hand and camera."""
        known = fitting.series_columns(self.data)
        kinds = {who: _kind(self.data, known, who) for who in ("hand", "camera")}
        columns = {
            f"{who} {name}": unit
            for who, kind in kinds.items()
            for names, unit in ((PLACE, "m"), (kind, TURNS[kind][0]))
            for name in names
        }
        series = fitting.read_series(self.data, columns, continued=False)
        found = []
        for who, kind in kinds.items():
            turns, at = (
                np.stack([series[f"{who} {name}"] for name in names], axis=1)
                for names in (kind, PLACE)
            )
            far = np.linalg.norm(at, axis=1)
            if np.max(far) > FARTHEST:
                raise ValueError(
                    f"the {who} in row {np.argmax(far) + 1} is {np.max(far):.4g} m away; if these "
                    f"are millimetres, write {who} x [mm] in the header."
                )
            found.append((_matrices(who, kind, turns), at))
        for k, inverse in enumerate((self.beside, self.inverted)):
            if inverse:
                found[k] = _inverse(*found[k])
        return found

    def calibrated(self) -> fitting.HandEye:
        """The camera on the hand."""
        return fitting.hand_eye(*self.poses(), noise=self.noise)


def _kind(path: Path, known: dict[str, str], who: str) -> tuple[str, ...]:
    """Columns in which orientations are given."""
    given = [kind for kind in TURNS if any(f"{who} {name}" in known for name in kind)]
    if len(given) == 1:
        return given[0]
    shown = " or ".join(", ".join(f"{who} {name}" for name in kind) for kind in TURNS)
    has = "more than one" if given else "no"
    raise ValueError(f"{path} has {has} orientation of the {who}: name the columns {shown}.")


def _matrices(who: str, kind: tuple[str, ...], turns: np.ndarray) -> np.ndarray:
    """Rotation matrices of orientations of a kind (n, 3 or 4)."""
    unit, quaternion = TURNS[kind]
    if unit == "-":
        length = np.linalg.norm(turns, axis=1)
        if np.any(np.abs(length - 1) > 0.01):
            k = int(np.argmax(np.abs(length - 1)))
            raise ValueError(
                f"the quaternion of the {who} in row {k + 1} has the length {length[k]:.3g}; "
                "it must be 1, with qw the scalar."
            )
        turns = turns / length[:, None]
    else:
        largest = np.max(np.abs(turns), axis=1)
        if np.max(largest) > 2 * np.pi * 1.001:
            k = int(np.argmax(largest))
            raise ValueError(
                f"an angle of the {who} in row {k + 1} is {largest[k]:.4g} rad, more than a turn; "
                "if these are degrees, write [deg] in the header."
            )
    return np.asarray(
        jax.jit(jax.vmap(lambda x: quaternions.to_matrix(quaternion(x))))(jnp.asarray(turns))
    )


def run(settings: Config, run: Run) -> None:
    """The camera's pose on the hand, its uncertainty, and by how much poses are off."""
    with run.stage("Calibration"):
        found = settings.calibrated()
    run.add("translation", np.asarray(found.translation).tolist(), "m")
    run.add("translation_deviation", np.asarray(found.deviation[3:]).tolist(), "m")
    q = quaternions.from_matrix(found.rotation)
    run.add("quaternion", np.asarray(q).tolist(), "1")
    run.add("rotation_deviation", np.asarray(found.deviation[:3]).tolist(), "rad")
    run.add("target_translation", np.asarray(found.target_translation).tolist(), "m")
    target = quaternions.from_matrix(found.target_rotation)
    run.add("target_quaternion", np.asarray(target).tolist(), "1")
    run.add("rotation_noise", float(found.noise[0]), "rad")
    run.add("translation_noise", float(found.noise[1]), "m")
    run.note(found.report())
    off = np.asarray(found.residuals)
    size = np.linalg.norm(off[:, :3], axis=1), np.linalg.norm(off[:, 3:], axis=1)
    for name, values in zip(("turned", "moved"), size, strict=True):
        if np.max(values) > max(WRONG * np.median(values), ROUNDING):
            k = int(np.argmax(values))
            run.note(f"Pose {k + 1} is {name} by far more than the others: leave it out.")
    run.arrays(
        "residuals",
        xarray.Dataset(
            {
                "rotation": (("pose", "axis"), off[:, :3], {"units": "rad"}),
                "translation": (("pose", "axis"), off[:, 3:], {"units": "m"}),
            }
        ),
    )
    with run.stage("Pictures"):
        _draw(run, settings, found, size)


def _draw(
    run: Run, settings: Config, found: fitting.HandEye, size: tuple[np.ndarray, np.ndarray]
) -> None:
    number = np.arange(1, len(size[0]) + 1)
    run.figure(
        "scene",
        _scene(settings, found),
        "The camera where it was found, and the target where each pose has it: a pose whose "
        "line of sight ends elsewhere is wrong.",
    )
    run.figure(
        "hand_eye",
        viz.curves(
            [
                Panel(
                    "pose",
                    "rotation off by [°]",
                    [Curve("rotation", number, np.rad2deg(size[0]), points=True)],
                    levels=[(float(np.rad2deg(found.noise[0]) * np.sqrt(3)), "expected")],
                ),
                Panel(
                    "pose",
                    "position off by [mm]",
                    [Curve("position", number, 1e3 * size[1], points=True)],
                    levels=[(1e3 * float(found.noise[1]) * np.sqrt(3), "expected")],
                ),
            ],
            "Poses of the camera against those expected",
        ),
        "A pose far above the others is probably wrong.",
    )


@styled
def _scene(settings: Config, found: fitting.HandEye) -> Figure:
    """Hand and camera in space, in the robot's base, and the target where each pose has it."""
    (turns, at), (seen_turns, seen_at) = settings.poses()
    q = (np.asarray(found.rotation)[None], np.asarray(found.translation)[None])
    if settings.beside:
        turns, at = _inverse(turns, at)
        cameras = q
        targets = _after(q, _inverse(seen_turns, seen_at))
    else:
        cameras = _after((turns, at), q)
        targets = _after(cameras, _inverse(seen_turns, seen_at))
    points = np.concatenate([at, cameras[1], targets[1]])
    factor, unit = viz.readable(float(np.ptp(points, axis=0).max()), "m")
    figure = Figure(figsize=(7.6, 6.4))
    figure.suptitle("Poses of hand and camera in the robot's base", x=0.02, ha="left")
    axes = figure.add_axes((0.02, 0.12, 0.9, 0.82), projection="3d")
    carried = targets if settings.beside else cameras
    for hand, tip in zip(at, carried[1], strict=True):
        axes.plot(*factor * np.stack([hand, tip], axis=1), color=PALETTE[0], linewidth=3.0)
    for eye, seen in zip(np.broadcast_to(cameras[1], at.shape), targets[1], strict=True):
        line = factor * np.stack([eye, seen], axis=1)
        axes.plot(*line, color=GREY, linewidth=0.8, linestyle="--")
    size = 0.06 * np.ptp(points, axis=0).max()
    for name, (rotation, place), colour, mark in (
        ("hand", (turns, at), PALETTE[0], "o"),
        ("camera, its z axis as a line", cameras, PALETTE[1], "s"),
        ("target", targets, PALETTE[2], "D"),
    ):
        axes.plot(*factor * place.T, mark, color=colour, markersize=6, label=name)
        if mark == "s":
            for start, axis in zip(place, rotation[:, :, 2], strict=True):
                end = factor * np.stack([start, start + size * axis], axis=1)
                axes.plot(*end, color=colour, linewidth=2.2)
    axes.set(xlabel=f"x [{unit}]", ylabel=f"y [{unit}]", zlabel=f"z [{unit}]")
    axes.set_aspect("equal")
    for line in (axes.xaxis, axes.yaxis, axes.zaxis):
        line.set_major_locator(MaxNLocator(5))
    figure.legend(loc="lower center", ncols=3)
    return figure


def _inverse(turns: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The inverse of poses."""
    return np.swapaxes(turns, 1, 2), -np.einsum("nji,nj->ni", turns, at)


def _after(
    first: tuple[np.ndarray, np.ndarray], then: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Poses of one that is fixed to another."""
    return first[0] @ then[0], (first[0] @ then[1][..., None])[..., 0] + first[1]
