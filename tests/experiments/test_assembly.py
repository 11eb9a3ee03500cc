"""A system of your own, named by a configuration."""

from pathlib import Path

import pytest

from experiments.assembly.system import Config
from jaxgrip.config import ConfigError, validate

SHIPPED = Path(__file__).parents[2] / "configs" / "assembly" / "crane.toml"


def _config(folder, **given):
    return validate(Config, {"experiment": "assembly/system", **given}, "mine.toml", folder)


def test_the_system_is_looked_for_beside_the_configuration(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text("")
    monkeypatch.chdir("/")
    assert _config(tmp_path, system="mine.toml").system == tmp_path / "mine.toml"
    assert _config(tmp_path).system == SHIPPED
    assert SHIPPED.is_file()
    with pytest.raises(ConfigError, match=r'system: there is no "crane\.toml" in .*relative to'):
        _config(tmp_path, system="crane.toml")


def test_bad_settings_get_a_sentence(tmp_path):
    for given, sentence in (
        ({"positions": 2.5}, "positions: must be a whole number, but is 2.5"),
        ({"positions": True}, "positions: must be a number, but is true"),
        ({"to": "57"}, "to: must be a number"),
        ({"plane": "xx"}, "is no pair of axes"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            _config(tmp_path, **given)
