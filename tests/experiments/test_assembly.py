"""A system of your own, named by a configuration."""

import json
import os
from pathlib import Path

import pytest

from experiments.assembly.system import Config, run
from jaxgrip import report
from jaxgrip.config import ConfigError, validate

SHIPPED = Path(__file__).parents[2] / "configs" / "assembly" / "crane.toml"

# A crank that turns about x, and a rod from its end to the ground, 1 m away: 1.5 m is its limit.
BARS = """
[ground]
pin = [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
hook = [[0, 1, 0]]

[[part]]
name = "crank"
attachments = {pin = [[0, 0, 0], [1, 0, 0], [0, 1, 0]], end = [[0, 0, 0.5]]}

[[joint]]
name = "hinge"
kind = "hinge"
first = "ground.pin"
second = "crank.pin"

[[joint]]
name = "rod"
kind = "distance"
first = "crank.end"
second = "ground.hook"
length = 1.2
"""


def _config(folder, **given):
    return validate(Config, {"experiment": "assembly/system", **given}, "mine.toml", folder)


def test_the_system_is_looked_for_beside_the_configuration(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text(BARS)
    monkeypatch.chdir("/")
    assert _config(tmp_path, system="mine.toml").system == tmp_path / "mine.toml"
    assert _config(tmp_path).system == SHIPPED
    assert SHIPPED.is_file()
    with pytest.raises(ConfigError, match=r'system: there is no "crane\.toml" in .*relative to'):
        _config(tmp_path, system="crane.toml")


def test_bad_settings_get_a_sentence(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "mine.toml").write_text('experiment = "assembly/system"\n')
    for given, sentence in (
        ({"positions": 2.5}, "positions: must be a whole number, but is 2.5"),
        ({"positions": True}, "positions: must be a number, but is true"),
        ({"to": "57"}, "to: must be a number"),
        ({"plane": "xx"}, "is no pair of axes"),
        ({"system": "."}, r"system: .*the file of a system must end in \.toml or \.json"),
        ({"system": "/dev/zero"}, r"system: .*end in \.toml or \.json"),
        ({"system": "pipe.toml"}, "system: .*it is no file on a disk"),
        ({"system": "mine.toml"}, "system: .*experiment is not a known key"),
        (
            {"drive": "luffing roop", "to": 57.0},
            r"drive: there is no 'luffing roop' \(did you mean luffing rope\?\); there are slew, ",
        ),
        (
            {"drive": "x" * 1_000_000, "to": 57.0},
            "drive: there is no 'xxx[^ ]{,70}; there are slew",
        ),
        ({"drive": "slew"}, "to: is missing; the drive 'slew' needs a target"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            _config(tmp_path, **given)


@pytest.mark.long
def test_a_way_that_ends_early_is_a_failure_with_all_its_pictures(tmp_path):
    """The rod is at most 1.5 m long, where crank and rod lie in line."""
    (tmp_path / "bars.toml").write_text(BARS)
    settings = _config(tmp_path, system="bars.toml", drive="rod", to=2.0, positions=5, plane="yz")
    current = report.start("bars", settings, out=tmp_path / "run")
    with pytest.raises(report.RunError, match="Drive 'rod' reaches position 2 of 5") as ended:
        run(settings, current)
    current.finish(str(ended.value))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "failed"
    # 1.2 and 1.4 m are within reach; at 1.5 m is the dead point.
    assert summary["results"]["positions_reached"] == 2
    assert {picture["file"] for picture in summary["pictures"]} == {"assembly.png", "motion.gif"}
    assert (tmp_path / "run" / "results.zarr" / "poses").is_dir()
