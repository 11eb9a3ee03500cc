"""Measured time series from text files, in SI units."""

import csv
import math
import re
from pathlib import Path

import numpy as np

from jaxgrip._files import LARGEST_DATA, read_text
from jaxgrip.checks import brief, decimal

# Unit: (the SI unit of its kind, factor to it).
UNITS = {
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "rad": ("rad", 1.0),
    "deg": ("rad", math.pi / 180),
    "rad/s": ("rad/s", 1.0),
    "deg/s": ("rad/s", math.pi / 180),
    "rpm": ("rad/s", math.pi / 30),
    "m": ("m", 1.0),
    "mm": ("m", 1e-3),
    "N": ("N", 1.0),
    "N m": ("N m", 1.0),
    "N mm": ("N m", 1e-3),
    "V": ("V", 1.0),
    "mV": ("V", 1e-3),
    "A": ("A", 1.0),
    "mA": ("A", 1e-3),
    "-": ("-", 1.0),
    "%": ("-", 1e-2),
}


def read_series(
    path: str | Path, columns: dict[str, str] | None = None, *, gaps: bool = False
) -> dict[str, np.ndarray]:
    """Columns of a file of comma-separated values whose first line names them: `name [unit]`.

    **Arguments:** `path`: of the file; `columns`: names of the columns wanted, each with the SI
    unit that is expected, such as `{"time": "s", "angle": "rad", "torque": "N m"}`; all columns by
    default. `gaps`: whether time may advance by more than one and a half times its usual step.

    **Returns:** the columns by name, (k,) each, in SI units. The file may use s, ms, rad, deg,
    rad/s, deg/s, rpm, m, mm, N, N m, N mm, V, mV, A, mA, - (none) and %.

    **Raises:** `ValueError`, with file, line and column, for a missing column, an unknown unit or
    one of another kind, a line too short or too long, a value that is missing, no number or not
    finite, a single line of values, and for time (the first column in s or ms) that does not
    increase or has a gap.
    """
    path = Path(path)
    try:
        text = read_text(path, LARGEST_DATA)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from None
    rows, table = [], csv.reader(text.splitlines())
    try:
        rows.extend(table)
    except csv.Error as error:
        raise ValueError(f"{path}, line {table.line_num}: it cannot be read: {error}.") from None
    if not rows or not any(cell.strip() for cell in rows[0]):
        raise ValueError(f"{path}, line 1: there is no header; it must name the columns.")
    header = _header(path, rows[0])
    wanted = {name: header[name][1] for name in header} if columns is None else columns
    for name, unit in wanted.items():
        if name not in header:
            raise ValueError(
                f"{path}, line 1: there is no column {name}; there are {', '.join(header)}."
            )
        kind = UNITS[header[name][2]][0]
        if unit != kind:
            raise ValueError(
                f"{path}, line 1, column {name}: the unit is {header[name][2]}, which is not "
                f"convertible to {unit}."
                if unit in {si for si, _ in UNITS.values()}
                else f"The unit {unit} of {name} is asked for; series are given in SI units, "
                f"here in {kind}."
            )
    lines = [(i, row) for i, row in enumerate(rows[1:], start=2) if any(c.strip() for c in row)]
    if not lines:
        raise ValueError(f"{path}, line 2: there are no values below the header.")
    if len(lines) == 1:
        raise ValueError(
            f"{path}, line {lines[0][0]}: this is the only line of values; a series has two at "
            "least."
        )
    for line, row in lines:
        if len(row) != len(header):
            raise ValueError(
                f"{path}, line {line}: there are {len(row)} values for {len(header)} columns."
            )
    found = {}
    for name in wanted:
        at, _, unit = header[name]
        values = [_number(path, line, name, row[at]) for line, row in lines]
        found[name] = np.array(values) * UNITS[unit][1]
    times = [name for name in wanted if UNITS[header[name][2]][0] == "s"]
    if times:
        _check_time(path, [line for line, _ in lines], times[0], found[times[0]], gaps)
    return found


def _header(path: Path, cells: list[str]) -> dict[str, tuple[int, str, str]]:
    """Index, SI unit and unit of every column by its name."""
    found: dict[str, tuple[int, str, str]] = {}
    for i, cell in enumerate(cells):
        match = re.fullmatch(r"\s*([^\[\]]*?)\s*\[\s*([^\[\]]*?)\s*\]\s*", cell)
        if match is None or not match[1]:
            separated = " (columns are separated by commas)" if ";" in cell or "\t" in cell else ""
            raise ValueError(
                f"{path}, line 1, column {i + 1}: {brief(cell.strip())} must be a name and a "
                f"unit, such as angle [rad]{separated}."
            )
        name, unit = match[1], match[2]
        if unit not in UNITS:
            raise ValueError(
                f"{path}, line 1, column {name}: the unit {brief(unit)} is unknown; there are "
                f"{', '.join(UNITS)}."
            )
        if name in found:
            raise ValueError(f"{path}, line 1: two columns are called {name}.")
        found[name] = (i, UNITS[unit][0], unit)
    return found


def _number(path: Path, line: int, name: str, cell: str) -> float:
    where = f"{path}, line {line}, column {name}"
    if not cell.strip():
        raise ValueError(f"{where}: the value is missing.")
    try:
        value = decimal(cell)
    except ValueError:
        raise ValueError(f"{where}: {brief(cell.strip())} is no number.") from None
    if not math.isfinite(value):
        raise ValueError(f"{where}: the value is {cell.strip()}; it must be finite.")
    return value


def _check_time(path: Path, lines: list[int], name: str, time: np.ndarray, gaps: bool) -> None:
    steps = np.diff(time)
    back = np.flatnonzero(steps <= 0)
    if back.size:
        i = int(back[0]) + 1
        raise ValueError(
            f"{path}, line {lines[i]}, column {name}: time must increase, but {time[i]:g} s "
            f"follows {time[i - 1]:g} s."
        )
    usual = np.sort(steps)[(steps.size - 1) // 2] if steps.size else 0.0
    wide = np.flatnonzero(steps > 1.5 * usual)
    if wide.size and not gaps:
        i = int(wide[0]) + 1
        raise ValueError(
            f"{path}, line {lines[i]}, column {name}: time advances by {steps[i - 1]:g} s, usually "
            f"by {usual:g} s, so samples are missing."
        )
