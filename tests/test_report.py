"""What is handed over is on disk at once, and what a person has put into a folder stays."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import jax
import matplotlib.figure
import numpy as np
import pytest
import rich.console
import xarray

from jaxgrip import config, report


@pytest.fixture
def settings():
    return config.Config(experiment="arm")


@pytest.fixture
def run(tmp_path, settings):
    (tmp_path / "run").mkdir()
    return report.Run(tmp_path / "run", settings, title="An arm")


def summary(run):
    return json.loads((run.folder / "summary.json").read_text())


def stone(*values):
    return xarray.Dataset({"z": ("time", list(values), {"units": "m"})})


class Certificate:
    def __init__(self, passed=True, **check):
        class Check:
            name, value, tolerance, meaning = "energy", 1e-12, 1e-10, "it is conserved"

        Check.passed = passed
        for key, value in check.items():
            setattr(Check, key, value)
        self.checks, self.passed = [Check], passed


def test_everything_is_on_disk_when_it_has_been_handed_over(run):
    assert summary(run)["status"] == "failed"
    assert "stopped before it ended" in summary(run)["error"]
    run.add("time", 0.25, "s", 0.2)
    assert summary(run)["results"] == {"time": 0.25}
    assert summary(run)["reference"] == {"time": 0.2}
    run.note("No air.")
    assert summary(run)["notes"] == ["No air."]
    run.certify("stone", Certificate())
    assert summary(run)["certificate"]["stone"]["checks"][0]["value"] == 1e-12
    run.arrays("stone", stone(1.0, 0.0))
    assert xarray.open_zarr(run.folder / "results.zarr", group="stone").z.values.tolist() == [1, 0]
    run.figure("fall", matplotlib.figure.Figure(), "The fall.")
    assert summary(run)["pictures"] == [{"file": "fall.png", "caption": "The fall."}]
    run.files("fields", lambda folder: (folder / "a.txt").write_text("1"))
    with run.stage("falling"):
        pass
    assert list(summary(run)["timing"]["stages"]) == ["falling"]
    written = {
        str(p.relative_to(run.folder))
        for p in run.folder.rglob("*")
        if p.is_file() and p.name != ".part-reserve"
    }
    assert {*summary(run)["files"]} - written == {"report.md"}
    assert written <= {*summary(run)["files"]}
    assert {"figures/fall.png", "figures/fall.svg", "fields/a.txt"} <= written


def test_a_stage_says_that_it_compiles_and_for_how_long(tmp_path, settings, monkeypatch):
    monkeypatch.setattr(report, "_REPEAT", 0.2)
    shown = io.StringIO()
    run = report.Run(tmp_path, settings, console=rich.console.Console(file=shown))

    @jax.jit
    def slow_to_trace(x):
        jax.jit(lambda y: time.sleep(0.5) or y)(x)
        time.sleep(1.0)
        # While it goes on, what is compiled within counts once.
        since = time.perf_counter() - begun
        assert 1.5 < run._clock.read()["compile_s"] <= since
        return x

    with run.stage("falling"):
        time.sleep(0.5)
        begun = time.perf_counter()
        slow_to_trace(1.0)
    assert re.match(r"  falling … \d s, computing\n", shown.getvalue())
    assert re.search(r"\n  falling … \d s, compiling for \d s\n", shown.getvalue())
    assert re.search(r"✓ falling \d\.\d s\n$", shown.getvalue())
    assert summary(run)["timing"]["compile_s"] > 1.5
    assert summary(run)["timing"]["stages"]["falling"] > 2.0


def test_a_reader_never_meets_half_a_summary(run):
    met, done = [], threading.Event()

    def look():
        while not done.is_set():
            met.append(len(summary(run)["results"]))

    reader = threading.Thread(target=look)
    reader.start()
    for k in range(200):
        run.add(f"x{k}", list(range(50)), "1")
    done.set()
    reader.join()
    assert met == sorted(met)
    assert len(met) > 5


def test_handing_over_stays_cheap(run):
    start = time.perf_counter()
    for k in range(1000):
        run.add(f"x{k}", float(k), "1", 1.0)
    # 0.4 ms each on an idle core; a compilation takes longer than all of them.
    assert time.perf_counter() - start < 10.0


def test_a_group_of_arrays_is_replaced_as_a_whole(run, no_file_longer_than):
    run.arrays("stone", stone(1.0, 0.0))
    other = stone(3.0).rename(z="height")
    run.arrays("stone", other)
    stored = xarray.open_zarr(run.folder / "results.zarr", group="stone")
    assert list(stored.variables) == ["height"]
    assert not [file for file in summary(run)["files"] if "/z/" in file]
    with no_file_longer_than(20_000), pytest.raises(OSError, match="too large"):
        run.arrays("stone", stone(*np.random.default_rng(1).normal(size=50_000)))
    assert xarray.open_zarr(run.folder / "results.zarr", group="stone").height == [3.0]
    run.arrays("all/feathers", stone(2.0))
    tree = xarray.open_datatree(run.folder / "results.zarr", engine="zarr")
    assert tree["all/feathers"].z.values == [2.0]
    assert tree["stone"].height.values == [3.0]


def test_a_group_that_is_being_replaced_is_absent_and_not_full_of_nan(run, monkeypatch):
    """A kill in between must not leave arrays whose chunks are missing, which read as NaN."""
    run.arrays("stone", stone(1.0, 0.0))
    run.arrays("feather", stone(2.0))
    with monkeypatch.context() as patch:
        patch.setattr(report, "_move", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.arrays("stone", stone(3.0))
    tree = xarray.open_datatree(run.folder / "results.zarr", engine="zarr")
    assert list(tree.children) == ["feather"]
    assert tree["feather"].z.values == [2.0]
    run.arrays("stone", stone(3.0))
    tree = xarray.open_datatree(run.folder / "results.zarr", engine="zarr")
    assert tree["stone"].z.values == [3.0]


def test_arrays_without_units_are_refused(run):
    with pytest.raises(ValueError, match="The arrays z lack the attribute units"):
        run.arrays("stone", xarray.Dataset({"z": ("time", [1.0])}))


@pytest.mark.parametrize(
    "value", [1 + 2j, {"a": 1}, object(), [1, {}], [[1], [1, 2]], pytest.param(10**5000, id="huge")]
)
def test_a_result_is_a_number_a_word_or_a_list_of_them(run, value):
    with pytest.raises(ValueError, match=r"The result 'x' is a .*; it must be a number, a word or"):
        run.add("x", value, "1")
    assert summary(run)["results"] == {}


def test_a_full_disk_leaves_the_numbers_and_the_reason(run, no_file_longer_than):
    run.add("time", 0.25, "s")
    with no_file_longer_than(20_000):
        with pytest.raises(OSError, match="too large"):
            run.figure("big", _crowded(), "Too big.")
        run.add("late", 1.0, "s")
        run.finish("the disk is full")
    assert summary(run)["results"] == {"time": 0.25, "late": 1.0}
    assert summary(run)["error"] == "the disk is full"
    assert "**Failed:** the disk is full." in (run.folder / "report.md").read_text()
    # Nothing half-written is left.
    assert {p.name for p in run.folder.iterdir()} == {"config.toml", "report.md", "summary.json"}


def _crowded():
    figure = matplotlib.figure.Figure()
    points = np.random.default_rng(1).normal(size=(2, 5000))
    figure.subplots().scatter(*points, c=points[0])
    return figure


def test_the_report_comes_from_the_summary_alone(run):
    run.add("time", 0.25, "s", 0.2)
    run.add("a|b", [1.0, np.nan], "m|s")
    run.certify("stone", Certificate(False, value=np.nan))
    run.note("No\nair.")
    run.note("2 joints.\n  hinge  5\n  clamp  6\nAll is\nheld.")
    run.figure("free fall", matplotlib.figure.Figure(), "The fall.")
    assert not (run.folder / "report.md").exists()
    report.write_report(run.folder)
    text = (run.folder / "report.md").read_text()
    assert "**Failed:** the run was stopped before it ended." in text
    assert "| time | s | 0.2 | 0.25 | +5.0e-02 |" in text
    assert r"| a\|b | m\|s | 1, not finite |" in text
    assert "| energy | not finite | 1e-10 | **no** | it is conserved |" in text
    assert "* No air." in text
    assert "\n* 2 joints.\n  * hinge 5\n  * clamp 6\n* All is held.\n" in text
    assert "![The fall.](figures/free%20fall.png)" in text
    with pytest.raises(report.RunError, match="not certified: energy"):
        run.finish()
    assert "not certified" in (run.folder / "report.md").read_text()


def test_rows_of_the_terminal_can_be_told_apart_at_80_columns(run):
    names = [f"displacement_link{k}_square_{d}" for k in (2, 3) for d in ("material", "match_mass")]
    for name in names:
        values = [7.123456789e-8 * k for k in range(11)]
        run.add(name, values, "m", [round(v, 11) for v in values])
    run.add("time", 0.4515236409857, "s", 0.4515236)
    run.add("a_name_that_is_longer_than_what_numbers_leave_of_a_line", 1.0, "1", 2.0)
    counts = [7, 6, 5, 4, 3, 2, 2, 2, 1, 0, 0, 1, 2]
    run.add("counts", counts, "1", counts)
    lines = [line.plain for line in report.comparison(run, 80)]
    assert max(map(len, lines)) <= 80
    # Every name once and whole, on the line above its numbers where both are too long.
    for name in names:
        place = lines.index(f"{name} [m]")
        entries = [line.split() for line in lines[place + 1 : place + 12]]
        assert [entry[0] for entry in entries] == [f"[{k}]" for k in range(1, 12)]
        assert [float(entry[1]) for entry in entries] == run.results[name].published
    long = lines.index("a_name_that_is_longer_than_what_numbers_leave_of_a_line [1]")
    assert lines[long + 1].split() == ["2.0", "1", "-1.0e+00"]
    assert any(
        line.split() == ["time", "[s]", "0.4515236", "0.4515236409857", "+4.1e-08"]
        for line in lines
    )
    written = " ".join(map(str, counts))
    place = lines.index("counts [1]")
    assert lines[place + 1 : place + 4] == [
        f"  published: {written}",
        f"  ours: {written}",
        "  difference: none",
    ]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", "[" * 5000, '{"experiment": 1}', '{"experiment": "a"}', "\xff"]
)
def test_a_report_needs_a_summary_of_ours(tmp_path, content):
    (tmp_path / "summary.json").write_text(content, encoding="latin-1")
    with pytest.raises(report.RunError, match="not one of a run of jaxgrip"):
        report.write_report(tmp_path)
    assert not (tmp_path / "report.md").exists()


def test_names_that_are_no_text_are_written_all_the_same(run):
    run.note("file \udcff")
    run.finish("\udcfe is no file")
    assert summary(run)["notes"] == [r"file \udcff"]
    assert r"\udcfe is no file" in (run.folder / "report.md").read_text()


KILLED = """
import os, signal, sys
from pathlib import Path
import xarray
from jaxgrip import config, report

run = report.Run(Path(sys.argv[1]), config.Config(experiment="arm"))
run.add("time", 0.25, "s")
run.note("No air.")
run.arrays("stone", xarray.Dataset({"z": ("time", [1.0], {"units": "m"})}))
with run.stage("falling"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_keeps_what_it_had_handed_over(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), folder], check=False)
    assert done.returncode == -9
    found = json.loads((folder / "summary.json").read_text())
    assert (found["status"], found["results"]) == ("failed", {"time": 0.25})
    assert found["notes"] == ["No air."]
    assert xarray.open_zarr(folder / "results.zarr", group="stone").z == [1.0]
    report.write_report(folder)
    assert "No air." in (folder / "report.md").read_text()
    # What the kill left unfinished does not stand in the way of the next run.
    (folder / "summary.json.part").write_text("{")
    report.start("run", config.Config(experiment="arm"), out=folder, overwrite=True)


STOPPED = """
import os, sys
from pathlib import Path
from jaxgrip import _process, config, report

run = report.Run(Path(sys.argv[1]), config.Config(experiment="arm"))

def write(place):
    run.stop(_process.SIGNALS[int(sys.argv[2])])
    # The process ends while the draft is being written.
    place.mkdir(parents=True)
    (place / "late").write_text("")
    os._exit(0)

run.files("fields", write)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_draft_of_a_stopped_run_does_not_block_the_next_one(tmp_path, number):
    folder = tmp_path / "run"
    folder.mkdir()
    command = [sys.executable, "-c", textwrap.dedent(STOPPED), folder, str(int(number))]
    subprocess.run(command, check=True)
    assert [*folder.glob(".*/fields/late")]
    settings = config.Config(experiment="arm")
    mine = folder / "mine.png"
    mine.write_text("")
    with pytest.raises(report.RunError, match=r"contains mine\.png"):
        report.start("run", settings, out=folder, overwrite=True)
    mine.unlink()
    report.start("run", settings, out=folder, overwrite=True)
    assert not [*folder.glob(".*/fields/late")]


def started(folder, settings, *, overwrite=True):
    return report.start("run", settings, out=folder, overwrite=overwrite)


@pytest.fixture
def earlier(tmp_path, settings):
    """Folder of a run that has ended."""
    run = started(tmp_path / "run", settings, overwrite=False)
    run.add("time", 0.25, "s")
    run.arrays("stone", stone(1.0))
    run.figure("fall", matplotlib.figure.Figure(), "The fall.")
    run.finish()
    return run.folder


def content(folder):
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in sorted(folder.rglob("*"))
    }


def test_the_run_before_goes_last(earlier, settings):
    before = content(earlier)
    earlier.chmod(0o700)
    run = started(earlier, settings)
    assert run.earlier.name == "run.earlier"
    assert content(run.earlier) == before
    assert earlier.stat().st_mode & 0o777 == 0o700
    run.finish("it failed")
    # A run that has failed is no replacement.
    assert content(run.earlier) == before
    again = started(earlier, settings)
    assert again.earlier.name == "run.earlier-2"
    again.finish()
    assert again.earlier is None
    assert sorted(p.name for p in earlier.parent.iterdir()) == ["run", "run.earlier"]


def test_the_run_before_comes_back_when_the_new_one_cannot_start(
    earlier, settings, monkeypatch, no_file_longer_than
):
    before = content(earlier)
    with no_file_longer_than(100), pytest.raises(report.RunError, match="File too large"):
        started(earlier, settings)
    assert content(earlier) == before
    monkeypatch.setattr(report.configs, "dumps", lambda config: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        started(earlier, settings)
    assert content(earlier) == before
    assert [p.name for p in earlier.parent.iterdir()] == ["run"]


def test_a_new_folder_goes_when_the_run_cannot_start(tmp_path, settings, no_file_longer_than):
    with no_file_longer_than(100), pytest.raises(report.RunError, match="File too large"):
        started(tmp_path / "a" / "run", settings)
    assert not (tmp_path / "a" / "run").exists()


def put(*names):
    def add(folder):
        for name in names:
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("precious")

    return add


def link(name):
    def add(folder):
        shutil.move(folder / name, folder.parent / "elsewhere")
        (folder / name).symlink_to(folder.parent / "elsewhere")

    return add


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (put("figures/mine.png"), "figures/mine.png"),
        (put("thesis.txt"), "thesis.txt"),
        (put(".hidden"), ".hidden"),
        (put("results.zarr/stone/mine/.zarray"), "results.zarr/stone/mine"),
        (put("results.zarr/stone/z/notes.txt"), "results.zarr/stone/z/notes.txt"),
        (put("traceback.txt"), "traceback.txt"),
        (put("thesis.txt.part"), "thesis.txt.part"),
        (put("report.md.part"), "report.md.part"),
        (put(".part-notes/thesis.txt"), ".part-notes"),
        (lambda folder: (folder / "empty").mkdir(), "empty"),
        (link("figures"), "figures"),
        (link("config.toml"), "config.toml"),
        (lambda folder: (folder / "summary.json").unlink(), "no summary.json"),
        (lambda folder: (folder / "summary.json").write_text("{}"), "not one of a run"),
        (link("summary.json"), "symbolic link"),
    ],
)
def test_what_a_person_has_put_into_a_run_folder_stays(earlier, settings, change, named):
    change(earlier)
    before = content(earlier)
    with pytest.raises(report.RunError, match=f"--out .*{named}.*[Nn]othing is replaced"):
        started(earlier, settings)
    assert content(earlier) == before


@pytest.mark.parametrize(
    "names",
    [
        ["figures/mine.png"],
        ["config.toml"],
        ["results.zarr"],
        ["results.zarr/.zgroup"],
        ["report.md", "traceback.txt"],
        ["fields/mine.vtu"],
    ],
)
def test_a_folder_without_a_run_is_never_replaced(tmp_path, settings, names):
    folder = tmp_path / "mine"
    folder.mkdir()
    put(*names)(folder)
    before = content(folder)
    for overwrite in (False, True):
        with pytest.raises(report.RunError, match="--out"):
            started(folder, settings, overwrite=overwrite)
        assert content(folder) == before


def test_a_summary_that_does_not_list_its_files_is_not_enough(earlier, settings):
    old = json.loads((earlier / "summary.json").read_text())
    del old["files"]
    (earlier / "summary.json").write_text(json.dumps(old))
    with pytest.raises(report.RunError, match=r"does not list what the run wrote"):
        started(earlier, settings)


@pytest.mark.parametrize("target", ["run", "empty", "missing"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_link_in_the_place_of_the_folder_is_refused(earlier, settings, target, overwrite):
    (earlier.parent / "empty").mkdir()
    place = earlier.parent / "link"
    place.symlink_to(earlier.parent / target)
    before = content(earlier.parent)
    with pytest.raises(report.RunError, match="is a symbolic link; name the folder itself"):
        started(place, settings, overwrite=overwrite)
    assert content(earlier.parent) == before


def test_what_a_person_puts_into_a_run_folder_meanwhile_stays(tmp_path, settings):
    run = started(tmp_path / "run", settings)
    put("fields/a.txt")(run.folder)
    before = content(run.folder / "fields")
    with pytest.raises(report.RunError, match=r"fields/a.txt: is not from this run"):
        run.files("fields", lambda folder: (folder / "a.txt").write_text("1"))
    run.finish("stopped")
    assert content(run.folder / "fields") == before


def test_the_folder_that_one_is_in_is_not_moved_away(earlier, settings, monkeypatch):
    monkeypatch.chdir(earlier / "figures")
    with pytest.raises(report.RunError, match="the working directory"):
        started(earlier, settings)


def test_a_run_that_goes_on_is_not_replaced(tmp_path, settings):
    run = started(tmp_path / "run", settings)
    with pytest.raises(report.RunError, match="the run in it is still running"):
        started(tmp_path / "run", settings)
    run.add("time", 0.25, "s")
    run.finish()
    started(tmp_path / "run", settings).finish()


def test_a_run_keeps_its_folder_when_the_working_directory_changes(tmp_path, settings, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = report.start("run", settings, out=Path("run"))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    run.arrays("stone", stone(1.0))
    run.finish()
    monkeypatch.chdir(tmp_path)
    assert summary(run)["status"] == "ok"
    assert not os.listdir(tmp_path / "other")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_half_written_summary_alone_blocks_nothing(tmp_path, settings, overwrite):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "summary.json.part").write_text("{")
    run = started(folder, settings, overwrite=overwrite)
    run.finish()
    assert summary(run)["status"] == "ok"


def test_pipes_in_a_run_folder_are_not_waited_for(earlier, settings, tmp_path):
    place = earlier / "summary.json"
    kept = place.read_text()
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(report.RunError, match=r"no file on a disk\. Nothing is replaced"):
        started(earlier, settings)
    with pytest.raises(report.RunError, match="no file on a disk"):
        report.write_report(earlier)
    place.unlink()
    place.write_text(kept)
    (earlier / "report.md").unlink()
    os.mkfifo(earlier / "report.md")
    with pytest.raises(report.RunError, match=r"contains report\.md, .* nothing is replaced"):
        started(earlier, settings)
    os.mkfifo(earlier / "report.md.part")
    with pytest.raises(OSError, match=r"report\.md\.part is in the way"):
        report.write_report(earlier)
    (tmp_path / "mine").mkdir()
    os.mkfifo(tmp_path / "mine" / "summary.json.part")
    for overwrite in (False, True):
        with pytest.raises(report.RunError, match=r"--out .*mine"):
            started(tmp_path / "mine", settings, overwrite=overwrite)
    assert os.listdir(tmp_path / "mine") == ["summary.json.part"]


def test_a_run_of_a_hostile_name_gets_a_folder(tmp_path, settings, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x" * 250, "é" * 120, "[/red]"):
        if "/" not in name:
            assert report.start(name, settings).folder.is_dir()
    assert len(os.listdir(tmp_path / "runs")) == 2
