"""Hand-eye calibration from files."""

from pathlib import Path

import numpy as np
import pytest

from experiments.mechanisms import hand_eye
from jaxgrip import config, report

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


def test_bad_files_get_a_sentence(tmp_path):
    lines = EXAMPLE.splitlines()
    with pytest.raises(config.ConfigError, match="no column camera qz"):
        read(tmp_path, EXAMPLE.replace("camera qz", "camera c"))
    with pytest.raises(config.ConfigError, match="2 poses leave"):
        read(tmp_path, "\n".join(lines[:4]) + "\n")
    scaled = lines[2].split(",")
    scaled[3] = "3.0"
    with pytest.raises(config.ConfigError, match="quaternion of the hand in row 1 has the length"):
        read(tmp_path, "\n".join([*lines[:2], ",".join(scaled), *lines[3:]]) + "\n")
    with pytest.raises(config.ConfigError, match="fit far better when"):
        read(tmp_path, EXAMPLE, inverted=True)
