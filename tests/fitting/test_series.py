import os
import re

import numpy as np
import pytest

from jaxgrip.fitting import read_series

GOOD = """time [ms],angle [deg],torque [N mm],duty [%],note [-]
0,0.0,100,50,1
10,90,-200,-25,2
20,180,3e2,0,3
"""


def written(tmp_path, text):
    path = tmp_path / "run.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_units_become_si(tmp_path):
    path = written(tmp_path, "\ufeff" + GOOD + "\n")
    found = read_series(path, {"time": "s", "angle": "rad", "torque": "N m", "duty": "-"})
    assert list(found) == ["time", "angle", "torque", "duty"]
    np.testing.assert_allclose(found["time"], [0.0, 0.01, 0.02], rtol=1e-15)
    np.testing.assert_allclose(found["angle"], [0.0, np.pi / 2, np.pi], rtol=1e-15)
    np.testing.assert_allclose(found["torque"], [0.1, -0.2, 0.3], rtol=1e-15)
    np.testing.assert_allclose(found["duty"], [0.5, -0.25, 0.0], rtol=1e-15)
    assert set(read_series(path)) == {"time", "angle", "torque", "duty", "note"}


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (GOOD, "", "line 1: there is no header"),
        (GOOD[GOOD.index("\n") :], "", "line 2: there are no values"),
        ("angle [deg]", "angle [grad]", "line 1, column angle: the unit 'grad' is unknown"),
        ("angle [deg]", "angle", "line 1, column 2: 'angle' must be a name and a unit"),
        ("angle [deg]", "angle [V]", "column angle: the unit is V, which is not convertible"),
        ("angle [deg]", "phi [deg]", "line 1: there is no column angle; there are time, phi"),
        ("torque [N mm]", "angle [rad]", "line 1: two columns are called angle"),
        ("angle [deg],", "angle [deg];", "column 2: 'angle [deg];torque [N mm]' must be a name"),
        ("angle [deg]", "angle [tick]", "the unit is 'tick'; say how many make a turn, such as ti"),
        ("angle [deg]", "angle [tick/1e400]", "the unit is 'tick/1e400'; say how many make a turn"),
        ("angle [deg]", "angle [1e400 deg]", "column angle: the unit '1e400 deg' is unknown"),
        ("angle [deg]", "angle [0 deg]", "column angle: the unit '0 deg' is unknown"),
        ("10,90,-200", "10,90", "line 3: there are 4 values for 5 columns"),
        ("10,90,-200", "10,0,90,0,-200", "If numbers have decimal commas, columns must be separ"),
        ("10,90", "10,", "line 3, column angle: the value is missing"),
        ("10,90", "10,nan", "line 3, column angle: the value is nan; it must be finite"),
        ("10,90", "10,9O", "line 3, column angle: '9O' is no number"),
        ("10,90", "10,1_000", "line 3, column angle: '1_000' is no number"),
        ("10,90", "10," + "9" * 200_000, "line 3: it cannot be read: field larger than field"),
        (GOOD[GOOD.index("10,90") :], "", "line 2: this is the only line of values"),
        (
            "20,180",
            "10,180",
            "line 4, column time: time must increase, but 0.01 s follows 0.01 s; gaps=True",
        ),
        ("20,180", "5,180", "follows 0.01 s; the clock was set back or another log begins: split"),
        ("20,180", "40,180", "line 4, column time: time advances by 0.03 s, usually by 0.01 s"),
    ],
)
def test_bad_files_get_a_sentence(tmp_path, old, new, sentence):
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ValueError, match=re.escape(sentence)) as error:
        read_series(path, {"time": "s", "angle": "rad"})
    assert str(path) in str(error.value)


PLAIN = "time [s],angle [deg],current [mA]\n" + "".join(
    f"{0.01 * i:.2f},{20 * i},{i * i}.5\n" for i in range(12)
)


def of_semicolons(text):
    return text.replace(",", ";").replace(".", ",")


@pytest.mark.parametrize(
    "change",
    [
        of_semicolons,
        lambda text: text.replace(",", "\t"),
        lambda text: text.replace(",", "\t").replace(".", ","),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", ",\n"),
        lambda text: text.replace("\n", "\n\n"),
        lambda text: text.replace(",", " , "),
        lambda text: "# of the arm, 2 kg\n\n" + text.replace("\n0.05", "\n% a remark\n0.05"),
        lambda text: "# arm\n# " + text,
        lambda text: "// " + of_semicolons(text),
        lambda text: re.sub(r"(?m)^0\.0?", "", text.replace("[s]", "[10 ms]")),
        lambda text: text.replace("[deg]", "[0.5 rev]").replace("[mA]", "[1e-3 A]"),
        lambda text: text.replace("[deg]", "[tick/360]"),
        lambda text: text.replace("[deg]", "[°]"),
    ],
)
def test_files_of_strangers_are_read(tmp_path, change):
    found = read_series(written(tmp_path, change(PLAIN)))
    i = np.arange(12.0)
    turn = np.pi if "[0.5 rev]" in change(PLAIN) else np.deg2rad(1.0)
    np.testing.assert_allclose(found["time"], 0.01 * i, rtol=1e-12)
    np.testing.assert_allclose(found["angle"], turn * 20 * i, rtol=1e-12)
    np.testing.assert_allclose(found["current"], 1e-3 * (i**2 + 0.5), rtol=1e-12)
    assert all("decimal points" in note for note in found.notes)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_other_encodings_are_read(tmp_path, encoding):
    path = tmp_path / "run.csv"
    path.write_bytes(PLAIN.replace("[deg]", "[°]").encode(encoding))
    found = read_series(path)
    np.testing.assert_allclose(found["angle"], np.deg2rad(20.0 * np.arange(12)), rtol=1e-12)
    assert ["Latin-1" in note for note in found.notes] == [True] * (encoding == "latin-1")


def test_a_file_that_is_no_text_gets_a_sentence(tmp_path):
    path = tmp_path / "run.csv"
    path.write_bytes(b"MATLAB\x00\x01")
    with pytest.raises(ValueError, match="byte 6 is no text; export the log as a text file"):
        read_series(path)


def test_points_and_commas_are_not_mixed(tmp_path):
    path = written(tmp_path, of_semicolons(PLAIN).replace("81,5", "81.5"))
    with pytest.raises(
        ValueError, match=r"line 11, column current: 81\.5 has a decimal point, but"
    ):
        read_series(path)


@pytest.mark.parametrize("lost", ["", "nan", "NaN", "null"])
def test_lost_samples_are_left_out_and_told(tmp_path, lost):
    text = PLAIN.replace("0.03,60", "0.03," + lost).replace("0.07,140,49.5", f"0.07,140,{lost}")
    path = written(tmp_path, text)
    found = read_series(path, {"time": "s", "angle": "rad"}, gaps=True)
    # What is not asked for is not missed.
    kept = np.delete(np.arange(12.0), 3)
    np.testing.assert_allclose(found["time"], 0.01 * kept, rtol=1e-12)
    np.testing.assert_allclose(found["angle"], np.deg2rad(20.0 * kept), rtol=1e-12)
    assert len(found.notes) == 2
    assert "line 5, column angle: the value is missing; these samples" in found.notes[0]
    assert "samples are missing, the longest gap ends in line 6 and lasts 0.02 s" in found.notes[1]
    both = read_series(path, gaps=True)
    np.testing.assert_allclose(both["time"], 0.01 * np.delete(np.arange(12.0), [3, 7]), rtol=1e-12)
    with pytest.raises(ValueError, match=r"line 5, column angle: .*gaps=True"):
        read_series(path)


def test_a_column_with_few_values_gets_a_sentence(tmp_path):
    text = re.sub(r",[0-9]*\.5\n(?=0\.0[2-9])", ",\n", PLAIN)
    with pytest.raises(ValueError, match=r"column current: . of 12 values are missing; leave"):
        read_series(written(tmp_path, text), gaps=True)


def test_repeated_times_and_a_line_cut_off_are_left_out(tmp_path):
    text = PLAIN.replace("0.05,", "0.04,")[: -len("220,121.5\n")]
    found = read_series(written(tmp_path, text), gaps=True)
    np.testing.assert_allclose(found["time"], 0.01 * np.delete(np.arange(11.0), 5), rtol=1e-12)
    assert "line 13: the last line is cut off" in found.notes[0]
    assert "line 7, column time: the time of the line before is repeated" in found.notes[1]
    with pytest.raises(ValueError, match="line 13: there are 2 values for 3 columns"):
        read_series(written(tmp_path, text))


@pytest.mark.parametrize("unit", ["deg", "rad", "tick/4096"])
@pytest.mark.parametrize("lowest", [0.0, -np.pi])
def test_angles_are_continued_beyond_a_turn(tmp_path, unit, lowest):
    t = 0.01 * np.arange(300)
    angle = 4.0 * np.sin(2.0 * t) + 0.02 * np.sin(40.0 * t)
    size = {"deg": np.pi / 180, "rad": 1.0, "tick/4096": 2 * np.pi / 4096}[unit]
    wrapped = (angle - lowest) % (2 * np.pi) + lowest
    shown = np.floor(wrapped / size) if unit == "tick/4096" else wrapped / size
    text = f"time [s],angle [{unit}]\n" + "".join(
        f"{a:.2f},{b:.6f}\n" for a, b in zip(t, shown, strict=True)
    )
    found = read_series(written(tmp_path, text))
    error = found["angle"] - angle
    np.testing.assert_allclose(error - np.round(error[0]), 0.0, atol=1.1 * 2 * np.pi / 4096)
    (note,) = found.notes
    assert "column angle: the angle jumps by a full turn" in note


def test_targets_that_jump_are_what_they_seem(tmp_path):
    t = 0.01 * np.arange(100)
    for target in (150.0 * np.sign(np.sin(20.0 * t) + 0.01), 170.0 * np.sin(1.0 / (t + 0.02))):
        text = "time [s],target [deg]\n" + "".join(
            f"{a:.2f},{b:.6f}\n" for a, b in zip(t, target, strict=True)
        )
        found = read_series(written(tmp_path, text))
        np.testing.assert_allclose(np.rad2deg(found["target"]), target, atol=1e-6)
        assert found.notes == ()


def test_gaps_may_be_allowed(tmp_path):
    path = written(tmp_path, GOOD.replace("20,180", "90,180"))
    np.testing.assert_allclose(read_series(path, gaps=True)["time"], [0.0, 0.01, 0.09])


def test_degrees_are_not_given_out(tmp_path):
    with pytest.raises(ValueError, match="series are given in SI units, here in rad"):
        read_series(written(tmp_path, GOOD), {"angle": "deg"})


def test_pipes_and_devices_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", "/dev/zero"):
        with pytest.raises(ValueError, match="cannot be read: it is no file on a disk"):
            read_series(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"none\.csv cannot be read"):
        read_series(tmp_path / "none.csv")


def test_rotation_vectors_are_not_continued_beyond_a_turn(tmp_path):
    """Those of a hand that points down are near (±pi, 0, 0), where a jump is no motion."""
    path = tmp_path / "turns.csv"
    values = [2.9, 3.0, 3.1, -3.12, -3.05]
    path.write_text("hand rx [rad]\n" + "\n".join(map(str, values)) + "\n", encoding="utf-8")
    found = read_series(path, continued=False)
    np.testing.assert_array_equal(found["hand rx"], values)
    assert found.notes == ()
    assert read_series(path)["hand rx"][-1] > np.pi
