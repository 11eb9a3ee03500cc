"""Hand-eye calibration from files."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from experiments.mechanisms import hand_eye
from jaxgrip import config, report

pytestmark = pytest.mark.long

EXAMPLE = Path(hand_eye.EXAMPLE).read_text(encoding="utf-8")


def read(folder, text, **given):
    path = folder / "poses.csv"
    path.write_text(text, encoding="utf-8")
    raw = {"experiment": "mechanisms/hand_eye", "data": str(path), **given}
    return config.validate(hand_eye.Config, raw, "here")


def test_the_example_gives_the_camera_back(tmp_path):
    """Within four standard deviations of what it was made with."""
    settings = read(tmp_path, EXAMPLE)
    run = report.Run(tmp_path, settings)
    hand_eye.run(settings, run)
    found, sd = (np.array(run.results[k].value) for k in ("translation", "translation_deviation"))
    assert np.all(np.abs(found - [0.035, -0.062, 0.081]) < 4 * sd)
    assert np.all(sd < 1e-3)


def rewritten(columns, beside=False):
    """The example with other columns of orientations, in mm and degrees."""
    rows = np.array([[float(x) for x in line.split(",")] for line in EXAMPLE.splitlines()[2:]])
    header, cells = [], []
    for who, block, first in (("hand", rows[:, :7], True), ("camera", rows[:, 7:], False)):
        at, turn = block[:, :3], Rotation.from_quat(block[:, 3:], scalar_first=True)
        if beside and first:
            at, turn = -turn.inv().apply(at), turn.inv()
        other = {
            ("rx", "ry", "rz"): lambda turn=turn: turn.as_rotvec(degrees=True),
            ("roll", "pitch", "yaw"): lambda turn=turn: turn.as_euler("xyz", degrees=True),
        }[columns]()
        header += [f"{who} {k} [mm]" for k in "xyz"] + [f"{who} {k} [deg]" for k in columns]
        cells.append(np.hstack([1e3 * at, other]))
    lines = [",".join(f"{x:.6f}" for x in row) for row in np.hstack(cells)]
    return "\n".join([",".join(header), *lines]) + "\n"


@pytest.mark.parametrize("columns", [("rx", "ry", "rz"), ("roll", "pitch", "yaw")])
def test_orientations_may_be_rotation_vectors_or_angles(tmp_path, columns):
    first = read(tmp_path, EXAMPLE).calibrated()
    for beside in (False, True):
        other = read(tmp_path, rewritten(columns, beside), beside=beside).calibrated()
        np.testing.assert_allclose(other.translation, first.translation, atol=1e-5)
        np.testing.assert_allclose(other.rotation, first.rotation, atol=1e-5)


def test_a_wrong_pose_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(hand_eye, "_draw", lambda *_: None)
    lines = EXAMPLE.splitlines()
    for row, wrong in ((None, None), (9, 0.03)):
        if row is not None:
            cells = lines[1 + row].split(",")
            cells[7] = str(float(cells[7]) + wrong)
            lines[1 + row] = ",".join(cells)
        folder = tmp_path / str(row)
        folder.mkdir()
        settings = read(folder, "\n".join(lines) + "\n")
        run = report.Run(folder, settings)
        hand_eye.run(settings, run)
        found = [note for note in run.notes if "by far more" in note]
        assert found == (
            []
            if row is None
            else [f"Pose {row} is moved by far more than the others: leave it out."]
        )


def test_bad_files_get_a_sentence(tmp_path):
    lines = EXAMPLE.splitlines()
    with pytest.raises(config.ConfigError, match="no column camera qz"):
        read(tmp_path, EXAMPLE.replace("camera qz", "camera c"))
    with pytest.raises(config.ConfigError, match="2 poses leave"):
        read(tmp_path, "\n".join(lines[:4]) + "\n")
    with pytest.raises(
        config.ConfigError, match="has no orientation of the hand: name the columns"
    ):
        read(tmp_path, EXAMPLE.replace("hand q", "hand c"))
    turned = rewritten(("rx", "ry", "rz"))
    with pytest.raises(config.ConfigError, match=r"if these are degrees, write \[deg\]"):
        read(tmp_path, turned.replace("[deg]", "[rad]"))
    with pytest.raises(config.ConfigError, match=r"millimetres, write hand x \[mm\]"):
        read(tmp_path, turned.replace("[mm]", "[m]"))
    scaled = lines[2].split(",")
    scaled[3] = "3.0"
    with pytest.raises(config.ConfigError, match="quaternion of the hand in row 1 has the length"):
        read(tmp_path, "\n".join([*lines[:2], ",".join(scaled), *lines[3:]]) + "\n")
    with pytest.raises(config.ConfigError, match="fit far better when"):
        read(tmp_path, EXAMPLE, inverted=True)
