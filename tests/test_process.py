"""Signals end the process at once, and XLA's reports of slow compilations stay away."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from jaxgrip import _process

EXPERIMENT = '''
"""Busy."""
import gc
import time

import jax
import jax.numpy as jnp

from jaxgrip import config


class Config(config.Config):
    how: str = ""


def sleeping():
    time.sleep(60.0)


def swallowing():
    """What jax, diffrax and the garbage collector do to exceptions in their callbacks."""
    gc.callbacks.append(lambda *_: time.sleep(0.01))

    def back(x):
        time.sleep(0.05)
        return x

    end = time.monotonic() + 60.0
    while time.monotonic() < end:
        try:
            jax.pure_callback(back, jax.ShapeDtypeStruct((), float), 1.0)
            gc.collect()
        except BaseException:
            pass


def compiled():
    """One call that does not return for minutes."""
    jax.jit(lambda: jax.lax.fori_loop(0, 10**12, lambda i, x: x + 1.0 / (1.0 + i), 0.0))()


def compiling():
    """XLA folds constants, and reports that it takes more than a second."""
    jax.jit(lambda: fold(1000 * 1000))()


def folding():
    jax.jit(lambda: fold(2000))()


def fold(size):
    x = jnp.sin(jnp.ones(size))
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, (500,), (1,), "SAME").sum()


def run(settings, run):
    run.add("before", 1.0, "s")
    with run.stage("working"):
        run.note("begun")
        globals()[settings.how]()
    run.add("after", 2.0, "s")
'''


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    (root / "experiments").mkdir()
    (root / "experiments" / "busy.py").write_text(EXPERIMENT)
    (root / "busy.toml").write_text('experiment = "busy"\n')
    return root


def start(project, how, out=None, **options):
    command = [sys.executable, "-m", "jaxgrip", "run", "busy.toml", "--out", out or how]
    return subprocess.Popen(
        [*command, "--set", f"how={how}"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "0", "JAX_PLATFORMS": "cpu"},
        **options,
    )


def summary(project, how):
    try:
        return json.loads((project / how / "summary.json").read_text())
    except FileNotFoundError:
        return {"notes": []}


@pytest.mark.parametrize(
    ("how", "number", "code", "words"),
    [
        ("sleeping", signal.SIGINT, 130, "interrupted by the user"),
        ("swallowing", signal.SIGINT, 130, "interrupted by the user"),
        ("compiled", signal.SIGTERM, 143, "stopped from outside by SIGTERM"),
        ("compiling", signal.SIGINT, 130, "interrupted by the user"),
    ],
)
def test_a_signal_stops_a_run_wherever_it_is(project, how, number, code, words):
    process = start(project, how)
    latest = time.monotonic() + 120.0
    while "begun" not in summary(project, how)["notes"]:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < latest
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(number)
    sent = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - sent < 3.0
    assert process.returncode == code
    assert err == f"error: {words}\n"
    assert "✗ working" in out
    assert f"Run folder: {how}" in out
    found = summary(project, how)
    assert (found["status"], found["error"]) == ("failed", words)
    assert found["results"] == {"before": 1.0}
    assert f"**Failed:** {words}." in (project / how / "report.md").read_text()


@pytest.mark.parametrize("delay", [0.0, 0.5])
def test_a_signal_while_it_starts(project, delay):
    process = start(project, "sleeping", f"delay{delay}")
    mask, term = 0, 1 << signal.SIGTERM - 1
    while not mask & term:
        status = Path(f"/proc/{process.pid}/status").read_text()
        mask = int(re.search(r"SigCgt:\s*(\w+)", status)[1], base=16)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err in ("error: interrupted by the user\n", "error: stopped before it began\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_it_starts(number):
    words = f"import os, jaxgrip.__main__; os.kill(os.getpid(), {int(number)}); print('went on')"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, check=False)
    assert done.returncode == 128 + number
    assert (done.stdout, done.stderr) == (b"", b"error: stopped before it began\n")


def test_the_reports_of_a_real_compiler_stay_away(project):
    """Jaxlib 0.10 folds this constant for two seconds and says so twice."""
    process = start(project, "folding")
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")


BOX = b"""\
E1129 10:47:20.694412   11769 slow_operation_alarm.cc:73]\x20
********************************
[Compiling module jit_f] Very slow compile? If you want to file a bug, run with envvar \
XLA_FLAGS=--xla_dump_to=/tmp/foo and attach the results.
********************************
"""
AGAIN = BOX.replace(b"] \n", b"] The operation took 2m3s\n\n", 1)
FOLDING = b"""\
E1129 10:47:20.694412   11769 slow_operation_alarm.cc:73] Constant folding an instruction is taking:

  %reduce-window = f32[3000,1]{0,1} reduce-window(%broadcast, %constant.2)

This isn't necessarily a bug; constant-folding is inherently a trade-off.

If you'd like to file a bug, run with envvar XLA_FLAGS=--xla_dump_to=/tmp/foo and attach \
the results.
"""
CUT = BOX.partition(b"\n")[0]
REAL = (
    b"W0000 00:00:1700000000.000000 1 cuda.cc:1] real\n",
    b"real words, with * and \xff\n",
    b"********\n",
    b"\n",
)


@pytest.mark.parametrize("box", [BOX, AGAIN, FOLDING, BOX + AGAIN + FOLDING])
def test_reports_are_told_from_real_messages(box):
    alarms = _process.Alarms()
    lines = b"".join(line + box for line in REAL).split(b"\n")
    assert b"\n".join(filter(alarms.keep, lines)) == b"".join(REAL)


def test_a_report_that_does_not_end_hides_little():
    alarms = _process.Alarms()
    assert list(filter(alarms.keep, [CUT, b"words", REAL[0], b"more"])) == [REAL[0], b"more"]
    assert not alarms.keep(CUT)
    assert [alarms.keep(b"words") for _ in range(100)][-40:] == [True] * 40


WRITER = """
import os, subprocess, sys, time
from jaxgrip import _process

with _process.prepared():
    os.write(2, BOX)
    os.write(2, b"from C\\n")
    os.write(2, BOX[:100])
    time.sleep(0.3)
    os.write(2, BOX[100:] + b"a question? ")
    time.sleep(0.3)
    sys.stderr.write("from Python\\n")
    subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('from a child\\\\n')"])
    assert not os.isatty(2)
    os.write(2, BOX + b"last words")
    END
"""


@pytest.mark.parametrize(
    ("end", "code"), [("pass", 0), ("os.abort()", -signal.SIGABRT), ("os._exit(3)", 3)]
)
def test_nothing_but_reports_is_kept_from_the_standard_error(end, code):
    script = WRITER.replace("END", end)
    script = script.replace("BOX)", f"{BOX!r})").replace("BOX", f"{BOX!r}")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == code
    said = b"from C\na question? from Python\nfrom a child\nlast words"
    assert done.stderr == said


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_obstacle(closed):
    command = f'"{sys.executable}" -m jaxgrip --version {closed}'
    assert subprocess.run(command, shell=True, check=False).returncode == 0


FLAG = _process.SCHEDULER


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ("", f"{FLAG}=false"),
        ("--xla_dump_to=x", f"--xla_dump_to=x {FLAG}=false"),
        (f"{FLAG}=true", f"{FLAG}=true"),
    ],
)
def test_the_flag_that_keeps_xla_from_blocking_is_added(given, flags):
    assert _process.xla_flags({"XLA_FLAGS": given}) == flags


@pytest.mark.parametrize("version", ["0.9.2", "0.13.0", "1.0"])
def test_no_flag_for_a_jaxlib_that_may_not_know_it(monkeypatch, version):
    import jaxlib.version

    monkeypatch.setattr(jaxlib.version, "__version__", version)
    assert _process.xla_flags({"XLA_FLAGS": "--xla_dump_to=x"}) == "--xla_dump_to=x"


def test_this_jaxlib_knows_the_flag():
    script = textwrap.dedent(
        """
        import os
        from jaxgrip import _process
        with _process.prepared():
            import sys
            assert "jax" not in sys.modules
            import jax
            jax.devices()
            print(os.environ["XLA_FLAGS"])
        """
    )
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"{FLAG}=false\n"), done.stderr
