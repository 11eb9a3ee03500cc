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
from pydantic import Field, model_validator

from jaxgrip import config, fitting, viz
from jaxgrip.config import ConfigError, InputPath, Real
from jaxgrip.report import Run
from jaxgrip.spatial import quaternions
from jaxgrip.viz import Curve, Panel

Positive = Annotated[Real, Field(gt=0.0)]
EXAMPLE = Path(__file__).parents[2] / "configs" / "hand_eye" / "poses.csv"
COLUMNS = {
    f"{who} {what}": unit
    for who in ("hand", "camera")
    for names, unit in ((("x", "y", "z"), "m"), (("qw", "qx", "qy", "qz"), "-"))
    for what in names
}


class Config(config.Config):
    """Poses of hand and camera."""

    data: InputPath = Field(
        EXAMPLE,
        description="file with the columns hand x [m], hand y, hand z, hand qw [-], hand qx, hand "
        "qy, hand qz of the hand in the robot's base, and the same of the camera in the frame of "
        "what it sees",
    )
    noise: tuple[Positive, Positive] | None = Field(
        None, description="standard deviations of the camera's poses [rad], [m]; estimated if none"
    )
    inverted: bool = Field(
        False, description="whether the file has what the camera sees in the frame of the camera"
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
        series = fitting.read_series(self.data, COLUMNS)
        found = []
        for who in ("hand", "camera"):
            q = np.stack([series[f"{who} {c}"] for c in ("qw", "qx", "qy", "qz")], axis=1)
            length = np.linalg.norm(q, axis=1)
            if np.any(np.abs(length - 1) > 0.01):
                k = int(np.argmax(np.abs(length - 1)))
                raise ValueError(
                    f"the quaternion of the {who} in row {k + 1} has the length {length[k]:.3g}; "
                    "it must be 1, with qw the scalar."
                )
            turns = np.asarray(jax.vmap(quaternions.to_matrix)(jnp.asarray(q / length[:, None])))
            at = np.stack([series[f"{who} {c}"] for c in "xyz"], axis=1)
            found.append((turns, at))
        if self.inverted:
            turns, at = found[1]
            found[1] = np.swapaxes(turns, 1, 2), -np.einsum("nji,nj->ni", turns, at)
        return found

    def calibrated(self) -> fitting.HandEye:
        """The camera on the hand."""
        return fitting.hand_eye(*self.poses(), noise=self.noise)


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
    run.add("noise", [float(found.noise[0]), float(found.noise[1])], "1")
    run.note(found.report())
    off = np.asarray(found.residuals)
    size = np.linalg.norm(off[:, :3], axis=1), np.linalg.norm(off[:, 3:], axis=1)
    limits = [4 * float(x) * np.sqrt(3) for x in found.noise]
    for name, values, limit in zip(("turned", "moved"), size, limits, strict=True):
        if np.any(values > limit):
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
    number = np.arange(1, len(off) + 1)
    with run.stage("Pictures"):
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
