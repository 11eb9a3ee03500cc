import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray
from typer.testing import CliRunner

from jaxgrip import cli

ROOT = Path(__file__).parents[1]
GRIPPER = ROOT / "configs" / "gripper_time_optimal.toml"

TOY = '''
"""Free fall: the time a stone takes.

The stone is round.

Takes less than a second.
"""
import math
import warnings

import jax.numpy as jnp
import numpy as np
import xarray
from pydantic import Field

from jaxgrip import config


class Config(config.Config):
    height: float = Field(1.0, gt=0, description="height [m]")
    trouble: str = ""


class Check:
    name, value, tolerance, meaning = "energy", 1e-3, 1e-10, "energy is conserved"

    def __init__(self, passed):
        self.passed = passed


class Certificate:
    def __init__(self, passed):
        self.checks, self.passed = [Check(passed)], passed


def run(settings, run):
    time = math.sqrt(2 * settings.height / 9.81)
    with run.stage("falling"):
        run.add("fall_time", jnp.asarray(time), "s", 0.4515236 if settings.height == 1.0 else None)
        run.add("bounces", [2, 3], "1", [2, 4])
        run.add("undefined", math.inf, "m")
        t = ("time", [0.0, time], {"units": "s"})
        z = ("time", [settings.height, 0.0], {"units": "m"})
        run.arrays("stone", xarray.Dataset({"z": z}, {"time": t}))
    match settings.trouble:
        case "interrupt":
            raise KeyboardInterrupt
        case "solver":
            raise RuntimeError("The shooting did not converge; try a larger\\n guess.")
        case "bug":
            raise KeyError("oops")
        case "long":
            raise ValueError(str(list(range(100_000))))
        case "leave":
            raise SystemExit(0)
        case "leave with 3":
            raise SystemExit(3)
        case "leave with words":
            raise SystemExit("enough")
        case "cancelled":
            raise GeneratorExit
        case "disk":
            noise = np.random.default_rng(1).normal(size=100_000)
            run.arrays("big", xarray.Dataset({"z": ("time", noise, {"units": "m"})}))
        case "warning":
            warnings.warn("The answer may be wrong.")
    run.certify("stone", Certificate(settings.trouble != "certificate"))
    run.note("No air.")
'''


pytestmark = pytest.mark.usefixtures("projects")


@pytest.fixture(autouse=True)
def _no_cache_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def project(tmp_path, monkeypatch):
    root = tmp_path / "project"
    (root / "experiments").mkdir(parents=True)
    (root / "configs").mkdir()
    (root / "experiments" / "fall.py").write_text(TOY)
    (root / "configs" / "drop.toml").write_text('experiment = "fall"\n')
    monkeypatch.chdir(root)
    return root


def _jaxgrip(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def _summary(folder):
    return json.loads((folder / "summary.json").read_text())


def test_run_folder_holds_what_is_promised(project):
    done = _jaxgrip("run", "configs/drop.toml", "--device", "cpu")
    assert done.exit_code == 0, done.output
    said = "Free fall: the time a stone takes.\nTakes less than a second.\n✓ falling"
    assert said in done.output
    (folder,) = (project / "runs").iterdir()
    assert re.fullmatch(r"drop-\d{8}T\d{6}Z", folder.name)
    assert f"Run folder: runs/{folder.name}" in done.output
    assert {p.name for p in folder.iterdir()} == {
        "config.toml",
        "summary.json",
        "results.zarr",
        "report.md",
    }
    summary = _summary(folder)
    assert summary["experiment"] == "fall"
    assert summary["status"] == "ok"
    assert summary["error"] is None
    assert summary["results"]["fall_time"] == pytest.approx(0.4515236409857309, rel=1e-15)
    assert summary["results"]["undefined"] is None
    assert summary["reference"] == {"fall_time": 0.4515236, "bounces": [2, 4]}
    assert summary["units"]["fall_time"] == "s"
    assert summary["certificate"]["stone"]["passed"] is True
    assert summary["certificate"]["stone"]["checks"][0]["name"] == "energy"
    timing = summary["timing"]
    assert timing["compile_s"] + timing["run_s"] == pytest.approx(timing["total_s"])
    assert summary["device"].startswith("cpu")
    assert summary["versions"]["jax"] == jax.__version__
    assert len(summary["config_hash"]) == 64
    stone = xarray.open_datatree(folder / "results.zarr", engine="zarr")["stone"]
    assert stone["z"].attrs["units"] == "m"
    assert "No air." in (folder / "report.md").read_text()


def test_terminal_shows_published_ours_and_difference(project):
    done = _jaxgrip("run", "configs/drop.toml")
    assert re.search(r"fall_time \[s\] +0\.4515236 +0\.4515236409857 +\+4\.1e-08", done.output)
    assert re.search(r"bounces \[1\] +2 4 +2 3 +differs", done.output)


def test_resolved_config_of_a_run_runs_again_with_the_same_hash(project):
    _jaxgrip("run", "configs/drop.toml", "--set", "height=2.5", "--out", "first")
    again = _jaxgrip("run", "first/config.toml", "--out", "second")
    assert again.exit_code == 0, again.output
    first, second = _summary(project / "first"), _summary(project / "second")
    assert first["config_hash"] == second["config_hash"]
    assert first["results"] == second["results"]


def test_two_runs_in_one_second_get_two_folders(project):
    _jaxgrip("run", "configs/drop.toml")
    _jaxgrip("run", "configs/drop.toml")
    assert len(list((project / "runs").iterdir())) == 2


@pytest.mark.parametrize(
    ("trouble", "code", "sentence"),
    [
        ("solver", 1, "The shooting did not converge; try a larger guess."),
        ("interrupt", 130, "interrupted by the user"),
        ("bug", 1, "KeyError: 'oops' (details in "),
        ("certificate", 1, "the solution of stone is not certified: energy (1.0e-03, allowed 1e-"),
        ("leave", 1, "the experiment ended itself by sys.exit(0)"),
        ("leave with 3", 3, "the experiment ended itself by sys.exit(3)"),
        ("leave with words", 1, "the experiment ended itself by sys.exit('enough')"),
        ("cancelled", 1, "GeneratorExit: "),
        ("long", 1, "[0, 1, 2, "),
    ],
)
def test_failed_run_says_why_and_keeps_what_it_had(project, trouble, code, sentence):
    done = _jaxgrip("run", "configs/drop.toml", "--set", f"trouble={trouble}", "--out", "run")
    assert done.exit_code == code
    assert sentence in done.stderr
    assert len(done.stderr) < 2500
    assert "Traceback" not in done.output
    summary = _summary(project / "run")
    assert summary["status"] == "failed"
    assert summary["error"].startswith(sentence[:20])
    assert summary["results"]["fall_time"] == pytest.approx(0.45152364)
    assert xarray.open_zarr(project / "run" / "results.zarr", group="stone")["z"][0] == 1.0
    assert "**Failed:**" in (project / "run" / "report.md").read_text()


def test_folder_that_is_not_empty_is_left_alone(project):
    (project / "run").mkdir()
    (project / "run" / "thesis.txt").write_text("years of work")
    for extra in ([], ["--overwrite"]):
        done = _jaxgrip("run", "configs/drop.toml", "--out", "run", *extra)
        assert done.exit_code == 1
        assert done.stderr.startswith("error: --out run: ")
        assert [p.name for p in (project / "run").iterdir()] == ["thesis.txt"]


def test_a_full_disk_gets_a_sentence_and_keeps_the_numbers(project, no_file_longer_than):
    with no_file_longer_than(20_000):
        done = _jaxgrip("run", "configs/drop.toml", "--set", "trouble=disk", "--out", "run")
    assert done.exit_code == 1
    assert "error: File too large" in done.stderr
    assert "Traceback" not in done.output
    summary = _summary(project / "run")
    assert summary["error"].startswith("File too large")
    assert summary["results"]["fall_time"] == pytest.approx(0.45152364)
    assert "**Failed:** File too large" in (project / "run" / "report.md").read_text()
    with no_file_longer_than(100):
        done = _jaxgrip("run", "configs/drop.toml", "--out", "run", "--overwrite")
    assert done.exit_code == 1
    assert done.stderr == "error: --out run: the run folder cannot be made: File too large.\n"
    assert _summary(project / "run") == summary


def test_brackets_in_names_are_no_markup(project):
    (project / "configs" / "[").mkdir()
    odd = "configs/[/bold] [red] :smile:.toml"
    (project / odd).write_text('experiment = "fall"\n')
    out = "runs [/x]/a|b"
    for arguments in (["check", odd], ["run", odd, "--out", out], ["report", out]):
        done = _jaxgrip(*arguments)
        assert done.exit_code == 0, done.output
        assert arguments[-1] in done.output
    done = _jaxgrip("run", odd, "--out", out)
    assert f"--out {out}: is not empty" in done.stderr
    done = _jaxgrip("run", odd, "--set", "trouble=[/y]", "--set", "h[/x]=1")
    assert "h[/x]: is not a known key" in done.stderr


def test_overwrite_says_where_the_run_before_is(project):
    drop = ["run", "configs/drop.toml", "--out", "run", "--overwrite"]
    assert _jaxgrip(*drop).exit_code == 0
    failed = _jaxgrip(*drop, "--set", "trouble=solver")
    assert failed.exit_code == 1
    assert "The run before it is kept: " in failed.output
    assert _summary(project / "run.earlier")["status"] == "ok"
    done = _jaxgrip(*drop)
    assert "is kept" not in done.output
    assert {p.name for p in project.iterdir()} == {"configs", "experiments", "run", "run.earlier"}


def test_report_is_written_anew_after_a_kill(project):
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    (project / "experiments" / "killed.py").write_text(
        TOY.replace("match settings.trouble:", f"{kill}\n    match settings.trouble:")
    )
    command = [sys.executable, "-m", "jaxgrip", "run", "configs/drop.toml", "--out", "run"]
    done = subprocess.run([*command, "--set", "experiment=killed"], check=False)
    assert done.returncode == -9
    assert not (project / "run" / "report.md").exists()
    done = _jaxgrip("report", "run")
    assert (done.exit_code, done.output) == (0, "run/report.md\n")
    text = (project / "run" / "report.md").read_text()
    assert "**Failed:** the run was stopped before it ended." in text
    assert "| fall_time | s | 0.4515236 | 0.4515236409857 | +4.1e-08 |" in text
    assert "xarray.open_datatree" in text
    done = _jaxgrip("report", "configs")
    assert (done.exit_code, done.stderr) == (
        1,
        "error: configs: There is no summary.json of a run in it.\n",
    )


def test_warnings_are_sentences(project):
    command = [sys.executable, "-m", "jaxgrip", "run", "configs/drop.toml"]
    done = subprocess.run(
        [*command, "--set", "trouble=warning"], capture_output=True, text=True, check=True
    )
    assert done.stderr == "warning: The answer may be wrong.\n"


def test_a_cut_entry_of_the_cache_is_replaced(project):
    """JAX writes none that is there, so a kill would leave a warning in all later runs."""
    command = [sys.executable, "-m", "jaxgrip", "run", "configs/drop.toml"]
    cache = project / "cache"
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(cache)}

    def run():
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        assert done.stderr == ""
        return {entry.name: entry.stat().st_size for entry in cache.glob("*-cache")}

    (project / "experiments" / "fall.py").write_text(
        TOY.replace("jnp.asarray(time)", "jnp.sin(jnp.arcsin(jnp.asarray(time)))")
    )
    before = run()
    assert len(before) > 1
    for name in before:
        (cache / name).write_bytes((cache / name).read_bytes()[:50])
    assert run() == pytest.approx(before, rel=0.1)


def test_output_that_cannot_be_written(project):
    def shown(*arguments):
        with open("/dev/full", "w") as full:
            return subprocess.run(
                [sys.executable, "-m", "jaxgrip", *arguments],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )

    for command in (["list"], ["check", "configs/drop.toml"]):
        done = shown(*command)
        assert done.returncode == 1
        assert done.stderr == "error: the output cannot be written: No space left on device.\n"
    done = shown("run", "configs/drop.toml", "--out", "run")
    assert done.returncode == 0
    assert done.stderr.startswith("warning: output could not be shown: No space left")
    assert done.stderr.count("\n") == 1
    assert _summary(project / "run")["status"] == "ok"


def test_a_reader_that_leaves_does_not_end_the_run(project):
    command = f'"{sys.executable}" -m jaxgrip run configs/drop.toml --out run | true'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert _summary(project / "run")["status"] == "ok"


def test_the_project_is_named_before_anything_of_it_is_executed(project):
    (project / "experiments" / "stranger.py").write_text("print('executed')\nraise SystemExit(0)")
    (project / "configs" / "strange.toml").write_text('experiment = "stranger"\n')
    for command in ("check", "run"):
        done = subprocess.run(
            [sys.executable, "-m", "jaxgrip", command, "configs/strange.toml"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert done.stdout.splitlines()[-2:] == [f"# Project: {project}", "executed"]
        assert "stranger.py: cannot be loaded: SystemExit: 0." in done.stderr


def test_a_clone_on_the_path_does_not_run(project, tmp_path):
    """A second checkout whose own file cannot be loaded was valid by the code of the first."""
    other = tmp_path / "other"
    shutil.copytree(project, other)
    broken = other / "experiments" / "fall.py"
    broken.write_text("raise ValueError('my own')\n" + broken.read_text())
    command = [sys.executable, "-m", "jaxgrip", "check", other / "configs" / "drop.toml"]
    path = os.pathsep.join([str(project), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == 1
    assert f"{broken}: cannot be loaded: ValueError: my own." in done.stderr


@pytest.mark.parametrize("name", ["run", "check", "list", "report", "bench"])
def test_help_shows_brackets(name):
    done = _jaxgrip(name, "--help")
    assert done.exit_code == 0
    if name == "run":
        assert "[default: runs/NAME-<UTC time>]" in " ".join(done.output.split())
        assert "[default: what JAX finds]" in " ".join(done.output.split())


def test_versions():
    done = _jaxgrip("--version")
    assert done.exit_code == 0
    assert done.output.startswith("jaxgrip ")
    assert f"jax {jax.__version__}" in done.output


def test_bench_runs_the_benchmarks_of_the_project(project):
    folder = project / "experiments" / "benchmarks"
    folder.mkdir()
    (folder / "row.py").write_text("NAME = 'own'\n")
    (folder / "__main__.py").write_text(
        "import sys\nfrom experiments.benchmarks.row import NAME\n"
        "print(NAME, sys.argv[1:])\nsys.exit(3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-m", "jaxgrip", "bench", "--peer-python", "a b"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert done.stdout.splitlines()[-1] == "own ['--peer-python', 'a b']"


def test_overwrite_replaces_a_run_only_once_the_input_is_good(project):
    _jaxgrip("run", "configs/drop.toml", "--out", "run", "--set", "height=3.0")
    before = (project / "run" / "summary.json").read_bytes()
    refused = _jaxgrip("run", "configs/drop.toml", "--out", "run")
    assert "is not empty" in refused.stderr
    bad = _jaxgrip(
        "run", "configs/drop.toml", "--out", "run", "--overwrite", "--set", "height=-1.0"
    )
    assert "height: must be greater than 0, but is -1.0." in bad.stderr
    assert (refused.exit_code, bad.exit_code) == (1, 1)
    assert (project / "run" / "summary.json").read_bytes() == before
    done = _jaxgrip("run", "configs/drop.toml", "--out", "run", "--overwrite")
    assert done.exit_code == 0
    assert _summary(project / "run")["results"]["fall_time"] == pytest.approx(0.45152364)


def test_check_shows_defaults_and_writes_nothing(project):
    done = _jaxgrip("check", "configs/drop.toml")
    assert done.exit_code == 0
    assert "height = 1.0  # height [m]" in done.output
    assert not (project / "runs").exists()


def test_list_shows_configs_from_a_folder_below(project, monkeypatch):
    (project / "configs" / "broken.toml").write_text("= 1")
    monkeypatch.chdir(project / "configs")
    done = _jaxgrip("list")
    assert done.exit_code == 0
    assert re.search(r"drop\.toml +fall +Free fall: the time a stone takes\.", done.output)
    assert "broken.toml: is not valid TOML" in done.stderr


def test_names_in_the_list_can_be_copied(project):
    names = ["x" * 150, "with space", "[red]", "ünï"]
    for name in names:
        (project / "configs" / f"{name}.toml").write_text(f'experiment = "fall/{"y" * 80}"\n')
    (project / "configs" / "number.toml").write_text("experiment = 3\n")
    done = _jaxgrip("list")
    assert done.exit_code == 0
    words = [shlex.split(line) for line in done.output.splitlines()]
    for name in names:
        assert [f"configs/{name}.toml", f"fall/{'y' * 80}"] in [line[:2] for line in words]


def test_commands_outside_a_project_say_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in ("list", "bench"):
        done = _jaxgrip(command)
        assert done.exit_code == 1
        assert "in this folder or in one above it" in done.stderr


def test_unknown_device_and_missing_file(project):
    done = _jaxgrip("run", "configs/drop.toml", "--device", "abacus")
    assert done.exit_code == 2
    assert "abacus" in done.stderr
    done = _jaxgrip("run", "configs/drip.toml")
    assert done.exit_code == 1
    assert "configs/drip.toml: there is no such file (did you mean drop.toml?)." in done.stderr


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="here the device exists")
def test_device_that_is_not_there(project):
    done = _jaxgrip("run", "configs/drop.toml", "--device", "gpu")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: --device gpu: JAX finds no such device here")
    assert not (project / "runs").exists()


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("fingers.A.star_deg=[0,0,0]", "fingers.A.star_deg: is not a known key (did you mean st"),
        ("fingers.C.start_deg=[0,0,0]", "fingers.C: is not a known key; known here are A, B."),
        ("fingers.B.start_deg=[0.0,0.0]", "fingers.B.start_deg: has 2 entries; needed: angles of"),
        (
            "fingers.A.position_limits_deg=[[-90,90],[10,-90],[-170,0]]",
            "fingers.A.position_limits_deg: joint 2 has the lower limit 10 deg, which must be",
        ),
        (
            "fingers.A.start_deg=[0.0,20.0,-30.0]",
            "fingers.A.start_deg: joint 2 is at 20 deg, outside its position_limits_deg of -90 to",
        ),
        (
            "fingers.B.end_deg=[0.0,-35.0,-25.0]",
            "fingers.B.end_deg: joint 1 is at 0 deg, outside its position_limits_deg of -270 to",
        ),
        ("fingers.A.end_deg=[0.0,-20.0,-30.0]", "fingers.A: start_deg and end_deg are the same"),
        # Holding torque of joint 2 at the start: 0.199 N m.
        (
            "fingers.A.torque_limits=[0.25,0.199,0.4]",
            "fingers.A.torque_limits: joint 2 may apply 0.199 N m, but holding start_deg against",
        ),
        ("links.masses=[0.08,-0.16,0.2]", "links.masses, entry 2: must be greater than 0, but is"),
        (
            "links.inertias=[[1e-6,3e-6,3e-6],[2e-6,-4.9e-5,4.9e-5],[2.5e-6,8e-5,8e-5]]",
            "links.inertias: link 2 is not positive definite",
        ),
        (
            "links.inertias=[[1e-6,3e-6,3e-6],[2e-6,4.9e-5,9.9e-5],[2.5e-6,8e-5,8e-5]]",
            "links: Body 'link2' has an inertia that no body can have",
        ),
        ("links.lengths=[0.02,nan,0.07]", "links.lengths, entry 2: is nan, but must be a finite"),
        ("gravity=[0.0,0.0,-inf]", "gravity, entry 3: is -inf, but must be a finite number."),
        ("final_time.guess=2.0", "final_time: guess 2 s must be below upper 1 s."),
        ("final_time.upper=-1.0", "final_time.upper: must be greater than 0, but is -1.0."),
    ],
)
def test_bad_gripper_is_refused_in_one_sentence(tmp_path, override, sentence):
    done = _jaxgrip("run", GRIPPER, "--out", tmp_path / "run", "--set", override)
    assert done.exit_code == 1
    assert f"{GRIPPER} with --set: {sentence}" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.output
    assert not (tmp_path / "run").exists()


def test_shipped_gripper_is_the_model_of_the_library():
    import jaxgrip as jg
    from jaxgrip import config

    settings, _ = config.load(GRIPPER)
    for name in ("A", "B"):
        ours, own = settings.finger(name), getattr(settings.fingers, name)
        model = jg.models.gripper_finger(name)
        for part in ("tree", "torque_limit", "velocity_limit", "tip"):
            same = map(_equal, *(jax.tree.leaves(getattr(f, part)) for f in (ours, model)))
            assert all(same), part
        degrees = jax.numpy.rad2deg
        assert degrees(model.start) == pytest.approx(own.start_deg)
        assert degrees(model.end) == pytest.approx(own.end_deg)
        assert degrees(model.position_limits).ravel() == pytest.approx(
            [angle for limits in own.position_limits_deg for angle in limits]
        )


def _equal(a, b):
    return bool((a == b).all())


@pytest.fixture(scope="module")
def gripper_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gripper") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(folder.parent / "cache"))
        done = _jaxgrip("run", GRIPPER, "--out", folder)
    assert done.exit_code == 0, done.output
    return folder, done


@pytest.mark.long
def test_gripper_run_meets_the_published_times(gripper_run):
    summary = _summary(gripper_run[0])
    results, reference = summary["results"], summary["reference"]
    assert summary["status"] == "ok"
    for name in ("A", "B"):
        assert abs(results[f"final_time_{name}"] - reference[f"final_time_{name}"]) <= 2e-11
        ours, published = (np.array(part[f"switching_tau_{name}"]) for part in (results, reference))
        assert np.abs(ours - published).max() <= 1e-6
        assert abs(ours[1] - 0.5) <= 1e-9
        assert results[f"switching_joints_{name}"] == reference[f"switching_joints_{name}"]
        assert results[f"hamiltonian_relative_{name}"] <= 1e-10
        assert summary["certificate"][f"finger {name}"]["passed"]
    # The published switches, integrated by DOP853 with a closed form of the dynamics.
    assert results["largest_rates_A"] == pytest.approx([26.167, 29.169, 68.546], abs=0.03)
    assert results["largest_rates_B"] == pytest.approx([29.192, 34.872, 80.025], abs=0.1)
    assert any("Joint 6 reaches 80.0 rad/s" in note for note in summary["notes"])


@pytest.mark.long
def test_gripper_arrays_have_units_and_end_where_published(gripper_run):
    arrays = xarray.open_datatree(gripper_run[0] / "results.zarr", engine="zarr")
    # Positions of the tips in closed form; the height of A at the start is
    # 0.02 + 0.06 sin 20 deg + 0.07 sin 50 deg = 0.0941443196.
    ends = {
        "A": ((0.1213766899, 0.0, 0.0941443196), (0.0009041418, 0.0051276430, 0.1317191103)),
        "B": ((-0.1041491227, 0.0, 0.1150363645), (-0.0009041418, -0.0051276430, 0.1317191103)),
    }
    for name, (start, end) in ends.items():
        finger = arrays[name].to_dataset()
        assert all("units" in finger[variable].attrs for variable in finger.variables)
        tip = finger.position.isel(point=-1)
        np.testing.assert_allclose(tip.isel(time=0), start, atol=2e-10)
        np.testing.assert_allclose(tip.isel(time=-1), end, atol=2e-10)
        assert finger.joint.values.tolist() == ([1, 2, 3] if name == "A" else [4, 5, 6])
        # Minimum principle: full torque against the sign of the switching function.
        limit = {"A": (0.25, 0.50, 0.40), "B": (0.20, 0.47, 0.35)}[name]
        inside = np.abs(finger.switching_function.values) > 1e-6
        expected = -np.array(limit) * np.sign(finger.switching_function.values)
        np.testing.assert_allclose(finger.torque.values[inside], expected[inside], rtol=1e-14)


@pytest.mark.long
def test_gripper_run_has_its_pictures_and_report(gripper_run):
    folder, done = gripper_run
    names = {p.name for p in (folder / "figures").iterdir()}
    kinds = [
        f"{kind}_{name}"
        for kind in ("controls", "states", "costates", "hamiltonian", "checks")
        for name in "AB"
    ]
    assert names == {
        f"{kind}.{ending}" for kind in [*kinds, "motion"] for ending in ("png", "svg")
    } | {"motion.gif"}
    report = (folder / "report.md").read_text()
    for name in re.findall(r"!\[.*\]\((.*)\)", report):
        assert (folder / name).is_file()
    assert "0.11997468651" in report
    assert "finger A: certified" in done.output
    assert "finger B: certified" in done.output
    assert re.search(
        r"final_time_A +\[s\] +0\.11997468651 +0\.119974686\d+ +[+-]\d\.\de-1[1-9]", done.output
    )


@pytest.mark.long
def test_gripper_with_too_little_time_fails_in_one_sentence(tmp_path):
    short = ["--set", "final_time.guess=0.05", "--set", "final_time.upper=0.06"]
    done = _jaxgrip("run", GRIPPER, "--out", tmp_path / "run", *short)
    assert done.exit_code == 1
    assert done.stderr.startswith("error: Finger A: ")
    assert "final_time" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.output
    assert _summary(tmp_path / "run")["status"] == "failed"


def test_help_starts_quickly_and_x64_survives_the_environment(project):
    script = textwrap.dedent(
        """
        import sys
        from jaxgrip import cli
        sys.argv = ["jaxgrip", "--help"]
        try:
            cli.main()
        except SystemExit as stop:
            assert not stop.code
        heavy = {"xarray", "zarr", "matplotlib"} & set(sys.modules)
        assert not heavy, heavy
        """
    )
    environment = os.environ | {"JAX_ENABLE_X64": "0"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = [sys.executable, "-m", "jaxgrip.cli", "run", "configs/drop.toml", "--out", "run"]
    subprocess.run(run, env=environment, check=True, capture_output=True)
    # In single precision the time would differ in the eighth digit.
    assert _summary(project / "run")["results"]["fall_time"] == pytest.approx(
        0.4515236409857309, rel=1e-15
    )
