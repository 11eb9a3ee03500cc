import math
import os
from pathlib import Path

import pydantic
import pytest
from pydantic import Field

from jaxgrip import config
from jaxgrip.config import (
    Config,
    ConfigError,
    Distinct,
    InputPath,
    Real,
    Section,
    dumps,
    experiments,
    find,
    load,
    project_root,
    read,
    short,
    validate,
)

pytestmark = pytest.mark.usefixtures("projects")


class Arm(Section):
    lengths: tuple[Real, Real] = Field((0.3, 1 / 3), description="length of both links [m]")
    label: str = 'say "two"\n\x7f'


class Task(Config):
    steps: int = Field(10, gt=0, description="number of steps")
    damped: bool = True
    limit: Real | None = None
    plain: float = 1.0
    link: Distinct[tuple[int, ...]] = (1,)
    model: InputPath | None = Field(None, description="a file,\nto be read")
    arm: Arm = Field(default_factory=Arm)
    spare: Arm | None = None
    named: dict[str, Arm] = Field(default_factory=dict)


def _written(tmp_path, text):
    file = tmp_path / "task.toml"
    file.write_text(text, encoding="utf-8")
    return file


def _mistake(raw):
    with pytest.raises(ConfigError) as caught:
        validate(Task, {"experiment": "arm"} | raw, "task.toml")
    return str(caught.value)


def test_written_config_reads_back_the_same(tmp_path):
    arm = {"lengths": (1e-17, 1 / 3)}
    more = {"model": tmp_path, "spare": arm, "named": {"a b": arm, "c": {"label": "]"}}}
    config = Task(experiment="arm", steps=3, damped=False, arm=arm, **more)
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
        ({"steps": True}, "steps: must be a whole number, but is true."),
        ({"steps": 3.0}, "steps: must be a whole number, but is 3.0."),
        ({"steps": "3"}, 'steps: must be a whole number, but is "3".'),
        ({"damped": "yes"}, 'damped: must be true or false, but is "yes".'),
        ({"damped": 1}, "damped: must be true or false, but is 1."),
        ({"plain": True}, "plain: must be a number, but is true."),
        ({"plain": "2"}, 'plain: must be a number, but is "2".'),
        ({"experiment": ["arm"]}, 'experiment: must be a string, but is ["arm"].'),
        ({"link": [1, True]}, "link: entry 2 repeats 1; every entry may occur once."),
        ({"link": [2, 1, 2]}, "link: entry 3 repeats 2; every entry may occur once."),
        ({"link": [3, False]}, "link, entry 2: must be a whole number, but is false."),
        ({"model": "nothing"}, 'model: there is no "nothing" in '),
        ({"model": "\0"}, "model: there is no "),
        ({"model": "~nobody/x"}, "model: there is no "),
        ({"model": "x" * 5000}, "model: there is no "),
        ({"model": 3}, "model: must be a path, but is 3."),
        ({"spare": {"length": 3}}, "spare.length: is not a known key (did you mean lengths?)"),
        ({"named": {"a": {"length": 3}}}, "named.a.length: is not a known key"),
        ({"arm": {"lengths": "ab"}}, 'arm.lengths: must be an array, but is "ab".'),
        ({"x" * 5000: 3}, "…"),
        ({"arm": {"lengths": [1.0] * 5000}}, "arm.lengths: has 5000 entries; needed: length"),
        ({"arm": [[1.0] * 5000]}, "arm: must be a table, but is [[1.0, 1.0, "),
    ],
)
def test_a_mistake_is_one_sentence_with_file_and_key(raw, sentence):
    message = _mistake(raw)
    assert sentence in message
    assert message.startswith("task.toml: ")
    assert "\n" not in message
    assert not message.endswith("..")
    assert len(message) < 600


def test_every_mistake_has_its_own_line():
    assert len(_mistake({"step": 3, "steps": -1, "arm": {"lengths": [1, 2, 3]}}).split("\n")) == 3


def test_of_many_mistakes_the_first_ones_are_shown():
    lines = _mistake({f"k{i}": 1 for i in range(20_000)}).split("\n")
    assert len(lines) == 11
    assert lines[0].startswith("task.toml: k0: is not a known key")
    assert lines[10] == "task.toml: has 19990 more mistakes."


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyError, SystemExit, RecursionError])
def test_a_check_that_fails_itself_gets_a_sentence(error):
    class Own(Config):
        @pydantic.model_validator(mode="after")
        def _checked(self):
            raise error("oops")

    with pytest.raises(ConfigError, match=f"task.toml: the experiment cannot .*{error.__name__}"):
        validate(Own, {"experiment": "arm"}, "task.toml")


HOSTILE = {
    "digits": "steps = " + "9" * 5000,
    "hexadecimal": "steps = 0x" + "f" * 5000,
    "nested": "steps = " + "[" * 5000 + "]" * 5000,
    "dotted": ".".join("a" * 5000) + " = 1",
    "header": "[" + ".".join("a" * 5000) + "]",
    "null": "steps = \0",
    "twice": "steps = 1\nsteps = 2",
    "unfinished": 'label = "',
    "bom": "\ufeffsteps = = 1",
    "surrogate": 'label = "\\ud800"',
    "large": "#" * 10_000_001,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_get_one_sentence(tmp_path, text):
    with pytest.raises(ConfigError) as caught:
        read(_written(tmp_path, text))
    assert str(caught.value).startswith(f"{tmp_path / 'task.toml'}: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600 + len(str(tmp_path))


def test_bytes_that_are_no_text_and_files_without_an_end_are_refused(tmp_path):
    (tmp_path / "a.toml").write_bytes(b'a = "\xff"')
    with pytest.raises(ConfigError, match="byte 5 is not text in UTF-8"):
        read(tmp_path / "a.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path / "pipe.toml", Path("/dev/zero")):
        with pytest.raises(ConfigError, match="is no file on a disk"):
            read(path)
    with pytest.raises(ConfigError, match="cannot be read: File name too long"):
        read(tmp_path / ("x" * 5000))


@pytest.mark.parametrize(
    "override",
    [
        "steps=" + "9" * 5000,
        "steps=0x" + "f" * 5000,
        "steps=" + "[" * 5000 + "]" * 5000,
        ".".join("a" * 5000) + "=1",
    ],
)
def test_hostile_overrides_get_one_sentence(tmp_path, override):
    with pytest.raises(ConfigError, match=r"--set .*(64 bits|nested too deep)") as caught:
        read(_written(tmp_path, ""), [override])
    assert len(str(caught.value)) < 600


def test_paths_are_relative_to_the_file_and_those_of_set_to_the_working_directory(
    tmp_path, monkeypatch
):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "own.py").write_text(
        "from jaxgrip import config\n\n\nclass Config(config.Config):\n"
        "    model: config.InputPath\n\n\ndef run(settings, run): ...\n"
    )
    for place in ("configs", "here"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "arm.txt").write_text(place)
    file = tmp_path / "configs" / "own.toml"
    file.write_text('experiment = "own"\nmodel = "arm.txt"\n')
    monkeypatch.chdir(tmp_path / "here")
    written, _ = load(file)
    assert written.model == tmp_path / "configs" / "arm.txt"
    given, _ = load(file, ["model=arm.txt"])
    assert given.model == tmp_path / "here" / "arm.txt"
    # What a run folder keeps means the same wherever it is read.
    again = tmp_path / "again.toml"
    again.write_text(dumps(given))
    assert load(again)[0] == given
    with pytest.raises(ConfigError, match="relative to the folder of the configuration"):
        load(_written(tmp_path, 'experiment = "own"\nmodel = "arm.txt"\n'))
    with pytest.raises(ConfigError, match="relative to the folder you are in"):
        load(file, ["model=leg.txt"])


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


def test_a_mark_at_the_beginning_is_no_part_of_the_text(tmp_path):
    assert read(_written(tmp_path, "\ufeffsteps = 1\n")) == {"steps": 1}


def test_a_pipe_among_the_experiments_is_none(tmp_path):
    (tmp_path / "experiments").mkdir()
    os.mkfifo(tmp_path / "experiments" / "pipe.py")
    assert experiments(tmp_path) == {}


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


EXPERIMENT = """
from experiments.tools.numbers import OWN
from jaxgrip import config

class Config(config.Config):
    own: int = OWN

def run(settings, run): ...
"""


def _clone(root, own, *, experiment=EXPERIMENT):
    (root / "experiments" / "tools").mkdir(parents=True)
    (root / "experiments" / "tools" / "numbers.py").write_text(f"OWN = {own}\n")
    (root / "experiments" / "arm.py").write_text(experiment)
    (root / "configs").mkdir()
    (root / "configs" / "arm.toml").write_text('experiment = "arm"\n')
    return root / "configs" / "arm.toml"


@pytest.mark.parametrize("with_init", [False, True])
def test_of_two_clones_each_runs_its_own_code(tmp_path, monkeypatch, with_init):
    one, other = _clone(tmp_path / "one", 1), _clone(tmp_path / "other", 2)
    if with_init:
        (tmp_path / "one" / "experiments" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "one")
    monkeypatch.chdir(tmp_path / "one")
    for _ in range(2):
        for file, own in ((one, 1), (other, 2)):
            settings, module = load(file)
            assert settings.own == own
            assert Path(module.__file__).is_relative_to(file.parents[1])
    (tmp_path / "other" / "experiments" / "tools" / "numbers.py").unlink()
    load(one)
    with pytest.raises(ConfigError, match=r"other/.*cannot be loaded: ModuleNotFoundError"):
        load(other)


def test_the_first_line_of_the_own_file_counts(tmp_path, monkeypatch):
    one = _clone(tmp_path / "one", 1)
    other = _clone(tmp_path / "other", 2, experiment="raise ValueError('own')\n" + EXPERIMENT)
    monkeypatch.syspath_prepend(tmp_path / "one")
    assert load(one)[0].own == 1
    with pytest.raises(ConfigError, match="cannot be loaded: ValueError: own"):
        load(other)


def test_nothing_is_executed_to_find_the_project(tmp_path):
    file = _clone(tmp_path / "one", 1, experiment="raise SystemExit(0)")
    task = find(file)
    assert (task.root, task.name) == (tmp_path / "one", "arm")
    with pytest.raises(ConfigError, match="cannot be loaded: SystemExit: 0"):
        task.load()


def test_the_root_is_the_nearest_folder_with_experiments(tmp_path, monkeypatch):
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    deep = inner / "configs" / "deep"
    deep.mkdir(parents=True)
    (outer / "experiments").mkdir()
    assert project_root(deep) == outer
    (inner / "experiments").mkdir()
    assert project_root(deep) == inner
    (inner / "experiments").rmdir()
    # A worktree has a file in its place.
    (inner / ".git").write_text("gitdir: elsewhere")
    assert project_root(deep) is None
    (inner / ".git").unlink()
    monkeypatch.setenv("HOME", str(inner))
    assert project_root(deep) is None
    assert project_root(outer) == outer
    monkeypatch.setenv("HOME", str(outer))
    assert project_root(deep) == outer
    outer.chmod(0o1777)
    assert project_root(deep) is None


def test_broken_neighbours_do_not_matter(tmp_path):
    file = _clone(tmp_path, 1)
    broken = {
        "syntax": b"def (",
        "bytes": b"\xff",
        "null": b"a = \0",
        "deep": b"(" * 5000 + b")" * 5000,
        "added": b"x = " + b"1+" * 50_000 + b"1",
    }
    for name, text in broken.items():
        (tmp_path / "experiments" / f"{name}.py").write_bytes(text)
    (tmp_path / "experiments" / "link.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "experiments" / "folder.py").mkdir()
    assert experiments(tmp_path) == {"arm": ""}
    assert load(file)[0].own == 1
    with pytest.raises(ConfigError, match=r'no "ram" .*\(did you mean arm\?\); known are arm\.'):
        load(file, ["experiment=ram"])


@pytest.mark.parametrize("name", ["x" * 5000, "a/" * 2000 + "a"])
def test_an_experiment_of_a_long_name_is_not_there(tmp_path, name):
    file = _clone(tmp_path, 1)
    with pytest.raises(ConfigError, match='there is no "') as caught:
        load(file, [f"experiment={name}"])
    assert len(str(caught.value)) < 1000


def test_text_for_sentences_is_short_and_harmless():
    assert short("a\nb\t c") == "a b c"
    assert short("\x1b[31mred\u202e") == r"\x1b[31mred\u202e"
    assert len(short("x" * 10**7)) == 400


def test_a_file_in_no_project_has_the_experiments_of_the_checkout_of_jaxgrip(tmp_path, monkeypatch):
    stranger = _clone(tmp_path / "stranger", 1)
    monkeypatch.chdir(stranger.parent)
    file = _written(tmp_path, 'experiment = "arm"\n')
    with pytest.raises(ConfigError, match=r'no "arm" in .*; known are assembly/system, '):
        load(file)
    # Packages lie side by side where they are installed.
    (tmp_path / "site" / "experiments").mkdir(parents=True)
    monkeypatch.setattr(config, "__file__", str(tmp_path / "site" / "jaxgrip" / "config.py"))
    with pytest.raises(ConfigError, match=r"no folder experiments/ beside .* use a checkout"):
        load(file)


def test_experiment_that_cannot_be_loaded(tmp_path):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "arm.py").write_text("import no_such_module\n")
    with pytest.raises(ConfigError, match=r"arm\.py: cannot be loaded: ModuleNotFoundError"):
        load(_written(tmp_path, 'experiment = "arm"\n'))
    (tmp_path / "experiments" / "leg.py").write_text("Config = 1\n")
    with pytest.raises(ConfigError, match=r"leg\.py: must define Config, a class"):
        load(_written(tmp_path, 'experiment = "leg"\n'))
    (tmp_path / "experiments" / "toe.py").write_text("from jaxgrip.config import Config\nrun = 1\n")
    with pytest.raises(ConfigError, match=r"toe\.py: must define run, a function"):
        load(_written(tmp_path, 'experiment = "toe"\n'))
