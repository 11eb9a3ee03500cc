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
        (",", ";", "(columns are separated by commas)"),
        ("10,90,-200", "10,90", "line 3: there are 4 values for 5 columns"),
        ("10,90", "10,", "line 3, column angle: the value is missing"),
        ("10,90", "10,nan", "line 3, column angle: the value is nan; it must be finite"),
        ("10,90", "10,9O", "line 3, column angle: '9O' is no number"),
        ("10,90", "10,1_000", "line 3, column angle: '1_000' is no number"),
        ("10,90", "10," + "9" * 200_000, "line 3: it cannot be read: field larger than field"),
        (GOOD[GOOD.index("10,90") :], "", "line 2: this is the only line of values"),
        ("20,180", "10,180", "line 4, column time: time must increase, but 0.01 s follows 0.01 s"),
        ("20,180", "40,180", "line 4, column time: time advances by 0.03 s, usually by 0.01 s"),
    ],
)
def test_bad_files_get_a_sentence(tmp_path, old, new, sentence):
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ValueError, match=re.escape(sentence)) as error:
        read_series(path, {"time": "s", "angle": "rad"})
    assert str(path) in str(error.value)


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
