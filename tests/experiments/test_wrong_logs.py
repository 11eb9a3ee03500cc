"""Logs with the mistakes that loggers and people make: a sentence, or the right motion."""

import numpy as np
import pytest

from experiments.servo import _campaign
from jaxgrip.config import ConfigError
from tests.experiments import servo_campaign as campaign

HEADER = "time [s],target [deg],angle [deg]"
CELLS = "{:.5f},{:.4f},{:.3f}"


@pytest.fixture(scope="module")
def log():
    """Time [s], target and angle [deg] of a motion in which the angle follows its target."""
    logs = campaign.logs(campaign.STS, range(1), 4.0, campaign.Sensor())[0][2]
    return logs["time"], np.rad2deg(logs["target"]), np.rad2deg(logs["angle"])


def table(columns, header=HEADER, cells=CELLS):
    rows = (cells.format(*row) for row in zip(*columns, strict=True))
    return "\n".join([header, *rows]) + "\n"


def with_cell(columns, k, cell):
    """The text, with another angle in row k."""
    lines = table(columns).split("\n")
    lines[k + 1] = f"{lines[k + 1].rpartition(',')[0]},{cell}"
    return "\n".join(lines)


def read(folder, text, controller="sts"):
    path = folder / "mine.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    registers = None if controller is None else _campaign.Registers(family=controller, p=32)
    arm = _campaign.Arm(inertia=0.006, weight=0.2)
    (motion,), notes = _campaign.read((_campaign.Log(file=path, arm=arm, controller=registers),))
    return motion, " ".join(notes)


def wrapped(x):
    return (x + 180.0) % 360.0 - 180.0


REFUSED = {
    "degrees as radians": (
        lambda t, u, a: table((t, u, a), "time [s],target [deg],angle [rad]"),
        "is in degrees where radians are expected: multiply it by pi/180",
    ),
    "target in degrees as radians": (
        lambda t, u, a: table((t, u, a), "time [s],target [rad],angle [deg]"),
        "correct that one of the two columns which is wrong",
    ),
    "both in degrees as radians": (
        lambda t, u, a: table((t, 10 * u, 10 * a), "time [s],target [rad],angle [rad]"),
        "which no servo does. The header says in which unit it is",
    ),
    "milliseconds as seconds": (
        lambda t, u, a: table((1e3 * t, u, a)),
        "too far to follow a servo",
    ),
    "seconds as milliseconds": (
        lambda t, u, a: table((t, u, a), "time [ms],target [deg],angle [deg]"),
        "too close to follow a servo",
    ),
    "sign of the angle": (
        lambda t, u, a: table((t, u, -a)),
        "has the opposite sign: multiply it by -1",
    ),
    "sign of the target": (
        lambda t, u, a: table((t, -u, a)),
        "has the opposite sign: multiply it by -1",
    ),
    "ticks as degrees": (
        lambda t, u, a: table((t, u, np.round(a / 360 * 4096))),
        "otherwise their units or their zeros differ",
    ),
    "ticks without a turn": (
        lambda t, u, a: table((t, u, a), "time [s],target [deg],angle [tick]"),
        "say how many make a turn, such as tick/4096",
    ),
    "angle early": (
        lambda t, u, a: table((t[:-40], u[:-40], a[40:])),
        "is early: add 0.",
    ),
    "per cent without a unit": (
        lambda t, u, a: table((t, u, a), "time [s],duty [-],angle [deg]"),
        r"the header says the unit, duty \[%\]",
    ),
    "decimal commas between commas": (
        lambda t, u, a: (
            table((t, u, a), HEADER, CELLS.replace(",", ";")).replace(".", ",").replace(";", ",")
        ),
        "columns must be separated by semicolons or tabs",
    ),
    "a word for a number": (lambda *c: with_cell(c, 50, "error"), "'error' is no number"),
    "infinite": (lambda *c: with_cell(c, 50, "inf"), "it must be finite"),
    "no header": (
        lambda *c: table(c).partition("\n")[2],
        "there is no header above the values; write one that names the 3 columns",
    ),
    "no units": (lambda *c: table(c, "time,target,angle"), "must be a name and a unit"),
    "other names": (
        lambda *c: table(c, "Zeit [s],Soll [deg],Winkel [deg]"),
        r"Rename the one that is meant, such as time \[s\]",
    ),
    "clock set back": (
        lambda t, u, a: table((np.where(t < 2.0, t, t - 1.0), u, a)),
        "the clock was set back or another log begins",
    ),
    "times in whole seconds": (
        lambda t, u, a: table((np.floor(t), u, a)),
        "times are rounded; log them with more digits",
    ),
    "few samples": (lambda *c: table([x[:10] for x in c]), "at least 20 needed"),
    "empty file": (lambda *c: "", "there is no header"),
    "no text": (lambda *c: bytes(range(256)) * 4, "export the log as a text file"),
}


@pytest.mark.parametrize(("text", "sentence"), REFUSED.values(), ids=REFUSED)
def test_refused(tmp_path, log, text, sentence):
    controller = None if "duty" in sentence else "sts"
    with pytest.raises((ConfigError, ValueError), match=sentence):
        read(tmp_path, text(*log), controller)


READ = {
    "as it is": (lambda *c: table(c), ""),
    "byte order mark": (lambda *c: b"\xef\xbb\xbf" + table(c).encode(), ""),
    "UTF-16": (lambda *c: table(c).encode("utf-16"), ""),
    "lines of Windows": (lambda *c: table(c).replace("\n", "\r\n"), ""),
    "units in brackets": (lambda *c: table(c, HEADER.replace("[", "(").replace("]", ")")), ""),
    "decimal commas": (
        lambda *c: table(c).replace(",", ";").replace(".", ","),
        "commas within numbers are read as decimal points",
    ),
    "milliseconds": (
        lambda t, u, a: table((1e3 * t, u, a), HEADER.replace("[s]", "[ms]")),
        "",
    ),
    "clock since 1970": (lambda t, u, a: table((t + 1.7e9, u, a)), ""),
    "radians": (
        lambda t, u, a: table(
            (t, np.deg2rad(u), np.deg2rad(a)), HEADER.replace("deg", "rad"), "{:.5f},{:.7f},{:.7f}"
        ),
        "",
    ),
    "turns": (
        lambda t, u, a: table(
            (t, u / 360, a / 360), HEADER.replace("deg", "rev"), "{:.5f},{:.8f},{:.8f}"
        ),
        "",
    ),
    "ticks": (
        lambda t, u, a: table(
            (t, 4096 / 360 * u, 4096 / 360 * a),
            HEADER.replace("deg", "tick/4096"),
            "{:.5f},{:.4f},{:.3f}",
        ),
        "",
    ),
    "angles wrapped": (
        lambda t, u, a: table((t, u + 175.0, wrapped(a + 175.0))),
        "the angle jumps by a full turn",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), READ.values(), ids=READ)
def test_read_as_meant(tmp_path, log, text, sentence):
    motion, notes = read(tmp_path, text(*log))
    t, u, a = log
    assert sentence in notes
    np.testing.assert_allclose(motion.time, t - t[0], atol=2e-5)
    turn = motion.angle[0] - np.deg2rad(a[0])
    np.testing.assert_allclose(motion.angle - turn, np.deg2rad(a), atol=2e-5)
    at = np.searchsorted(motion.input_time, motion.time - 1e-9)
    np.testing.assert_allclose(motion.input[at] - turn, np.deg2rad(u), atol=2e-5)
    assert np.isclose(turn, np.deg2rad(175.0) if "turn" in sentence else 0.0, atol=1e-4)


PARTLY = {
    "NaN": (lambda *c: with_cell(c, 50, "NaN"), "the value is missing", 1),
    "empty cell": (lambda *c: with_cell(c, 50, ""), "the value is missing", 1),
    "time repeated": (
        lambda t, u, a: table((np.where(np.arange(len(t)) == 200, t[199], t), u, a)),
        "the time of the line before is repeated",
        1,
    ),
    "gap of a second": (
        lambda *c: table([np.delete(x, slice(150, 250)) for x in c]),
        "has a gap of 1 s, over which its input is held",
        100,
    ),
    "last line cut off": (
        lambda *c: table(c)[: table(c)[:-1].rfind("\n") + 5],
        "the last line is cut off",
        1,
    ),
}


@pytest.mark.parametrize(("text", "sentence", "lost"), PARTLY.values(), ids=PARTLY)
def test_what_is_lost_is_said(tmp_path, log, text, sentence, lost):
    motion, notes = read(tmp_path, text(*log))
    assert sentence in notes
    assert len(motion.time) == len(log[0]) - lost
    kept = np.isin(np.round(log[0] - log[0][0], 5), np.round(motion.time, 5))
    np.testing.assert_allclose(
        motion.angle, np.deg2rad(log[2][kept][: len(motion.time)]), atol=2e-5
    )


def test_a_failed_reading_is_not_used(tmp_path, log):
    motion, notes = read(tmp_path, with_cell(log, 300, "-180"))
    assert "1 of the angles jump away and back, the first one to -180°" in notes
    usual, _ = read(tmp_path, table(log))
    np.testing.assert_array_equal(motion.clear, usual.clear & (np.arange(len(motion.time)) != 300))


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (1, "the target never changes, but the arm moves"),
        (2, "the angle moves by 0° in all while the target changes"),
    ],
)
def test_a_constant_column_is_said(tmp_path, log, column, sentence):
    columns = list(log)
    columns[column] = 0.0 * columns[column]
    assert sentence in read(tmp_path, table(columns))[1]


def test_turns_called_degrees_are_said(tmp_path, log):
    t, u, a = log
    notes = read(tmp_path, table((t, u / 360, a / 360), HEADER, "{:.5f},{:.6f},{:.6f}"))[1]
    assert "tells next to nothing: see whether the column is the right one, in the unit" in notes


def test_lost_samples_among_late_ones_are_found(tmp_path):
    """Times scatter by 3 ms, so that a step over a lost sample may be as short as 1.4 periods."""
    rng = np.random.default_rng(0)
    t = 0.01 * np.arange(1000) + rng.uniform(-0.003, 0.003, 1000)
    lost = rng.random(1000) < 0.05
    lost[[0, -1]] = False
    angle = 20.0 * np.sin(t)
    motion, _ = read(tmp_path, table([x[~lost] for x in (t, angle, angle)]))
    assert len(motion.input_time) == 1000
