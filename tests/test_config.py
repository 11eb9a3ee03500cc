import math

import pytest
from pydantic import Field

from jaxgrip.config import Config, ConfigError, Real, Section, dumps, load, read, validate


class Arm(Section):
    lengths: tuple[Real, Real] = Field((0.3, 1 / 3), description="length of both links [m]")
    label: str = 'say "two"\n'


class Task(Config):
    steps: int = Field(10, gt=0, description="number of steps")
    damped: bool = True
    limit: Real | None = None
    arm: Arm = Field(default_factory=Arm)


def _written(tmp_path, text):
    file = tmp_path / "task.toml"
    file.write_text(text, encoding="utf-8")
    return file


def _mistake(raw):
    with pytest.raises(ConfigError) as caught:
        validate(Task, {"experiment": "arm"} | raw, "task.toml")
    return str(caught.value)


def test_written_config_reads_back_the_same(tmp_path):
    config = Task(experiment="arm", steps=3, damped=False, arm={"lengths": (1e-17, 1 / 3)})
    file = _written(tmp_path, dumps(config))
    assert validate(Task, read(file), "task.toml") == config
    assert "steps = 3  # number of steps" in file.read_text()


def test_overrides_win_over_the_file_and_make_tables(tmp_path):
    file = _written(tmp_path, 'experiment = "arm"\nsteps = 1\n')
    raw = read(file, ["steps=5", "arm.lengths=[1.0, 2]", "arm.label=plain words"])
    config = validate(Task, raw, "task.toml")
    assert (config.steps, config.arm.lengths, config.arm.label) == (5, (1.0, 2.0), "plain words")


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({"step": 3}, "step: is not a known key (did you mean steps?)"),
        ({"arm": {"length": [1, 2]}}, "arm.length: is not a known key (did you mean lengths?)"),
        ({"arm": {"lengths": [1.0]}}, "arm.lengths: has 1 entry; needed: length of both links"),
        ({"arm": {"lengths": [1, 2, 3]}}, "arm.lengths: has 3 entries; needed: length of both"),
        ({"arm": {"lengths": 1.0}}, "arm.lengths: must be an array, but is 1.0."),
        ({"arm": {"lengths": [1, math.nan]}}, "entry 2: is nan, but must be a finite number."),
        ({"arm": {"lengths": [math.inf, 1]}}, "entry 1: is inf, but must be a finite number."),
        ({"arm": {"lengths": ["1", 1]}}, 'entry 1: must be a number, but is "1".'),
        ({"arm": {"lengths": [True, 1]}}, "entry 1: must be a number, but is true."),
        ({"arm": 1}, "arm: must be a table, but is 1."),
        ({"steps": 0}, "steps: must be greater than 0, but is 0."),
    ],
)
def test_a_mistake_is_one_sentence_with_file_and_key(raw, sentence):
    message = _mistake(raw)
    assert sentence in message
    assert message.startswith("task.toml: ")
    assert "\n" not in message
    assert not message.endswith("..")


def test_every_mistake_has_its_own_line():
    assert len(_mistake({"step": 3, "steps": -1, "arm": {"lengths": [1, 2, 3]}}).split("\n")) == 3


@pytest.mark.parametrize(
    "override", ["steps", "=3", "arm..lengths=1", "steps.deep=1", "steps=1\nsize=2"]
)
def test_malformed_override_is_refused(tmp_path, override):
    file = _written(tmp_path, 'experiment = "arm"\nsteps = 1\n')
    with pytest.raises(ConfigError, match=f"--set {' '.join(override.split())}: "):
        read(file, [override])


def test_missing_file_names_its_neighbour(tmp_path):
    _written(tmp_path, "")
    with pytest.raises(ConfigError, match=r"there is no such file \(did you mean task\.toml\?\)"):
        read(tmp_path / "tusk.toml")


def test_malformed_toml_names_the_line(tmp_path):
    with pytest.raises(ConfigError, match=r"is not valid TOML: .*line 2"):
        read(_written(tmp_path, 'experiment = "arm"\nsteps = = 1\n'))


def test_folder_instead_of_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read(tmp_path)


def test_own_experiments_folder_above_the_file_is_found(tmp_path):
    (tmp_path / "experiments" / "mine").mkdir(parents=True)
    (tmp_path / "experiments" / "mine" / "fall.py").write_text(
        '"""A fall."""\nfrom jaxgrip import config\n\n\n'
        "class Config(config.Config):\n    height: float = 1.0\n\n\ndef run(settings, run): ...\n"
    )
    (tmp_path / "configs" / "deep").mkdir(parents=True)
    file = tmp_path / "configs" / "deep" / "fall.toml"
    file.write_text('experiment = "mine/fall"\nheight = 2.0\n')
    config, module = load(file)
    assert (config.height, module.__doc__) == (2.0, "A fall.")
    with pytest.raises(ConfigError, match=r'no "mine/fell" in .*did you mean mine/fall\?'):
        load(file, ['experiment="mine/fell"'])


@pytest.mark.parametrize("name", ["3", '"../fall"', '"/etc/passwd"', '""'])
def test_experiment_must_be_a_name(tmp_path, name):
    with pytest.raises(ConfigError, match=r"experiment: must name a file under experiments/"):
        load(_written(tmp_path, f"experiment = {name}\n"))


def test_no_experiments_folder_at_all(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no folder experiments/ beside or above"):
        load(_written(tmp_path, 'experiment = "arm"\n'))


def test_experiment_that_cannot_be_loaded(tmp_path):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "arm.py").write_text("import no_such_module\n")
    with pytest.raises(ConfigError, match=r"arm\.py: cannot be loaded: ModuleNotFoundError"):
        load(_written(tmp_path, 'experiment = "arm"\n'))
    (tmp_path / "experiments" / "arm.py").write_text("Config = 1\n")
    with pytest.raises(ConfigError, match=r"arm\.py: must define Config, a class"):
        load(_written(tmp_path, 'experiment = "arm"\n'))
