"""Measured time series from text files, in SI units."""

import csv
import math
import re
from pathlib import Path

import numpy as np

from jaxgrip._files import LARGEST_DATA, read_bytes
from jaxgrip.checks import brief, decimal

# Unit: (the SI unit of its kind, factor to it).
UNITS = {
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "us": ("s", 1e-6),
    "rad": ("rad", 1.0),
    "deg": ("rad", math.pi / 180),
    "rev": ("rad", 2 * math.pi),
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

# Other ways to write them.
_ALIASES = {
    "°": "deg",
    "°/s": "deg/s",
    "µs": "us",
    "μs": "us",
    "Nm": "N m",
    "N*m": "N m",
    "N·m": "N m",
    "Nmm": "N mm",
    "rev/min": "rpm",
    "sec": "s",
    "degree": "deg",
    "degrees": "deg",
}
_COMMENTS = ("#", "%", "//")
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_LOST = ("", "nan", "na", "n/a", "null", "none")

# Number and cells of lines.
Rows = list[tuple[int, list[str]]]
# Index, SI unit, unit and factor of every column by its name.
Header = dict[str, tuple[int, str, str, float]]


class Series(dict[str, np.ndarray]):
    """Columns by name, (k,) each, in SI units; `notes`: sentences on what was repaired."""

    notes: tuple[str, ...] = ()


def read_series(
    path: str | Path,
    columns: dict[str, str] | None = None,
    *,
    gaps: bool = False,
    continued: bool = True,
) -> Series:
    """Columns of a text file whose first line names them: `name [unit]` or `name (unit)`.

    **Arguments:** `path`: of the file; `columns`: names of the columns wanted, each with the SI
    unit that is expected, such as `{"time": "s", "angle": "rad", "torque": "N m"}`; all columns by
    default. `gaps`: whether samples may be missing: time may then advance by more than one and a
    half times its usual step, and lines are left out where a wanted value is lost (an empty cell or
    NaN), where they repeat the time of the line before, and at the end of the file if cut off.
    `continued`: whether angles that jump by a full turn while they move on are continued beyond
    it; not for components of rotation vectors.

    Columns are separated by commas, semicolons or tabs; with the latter two, numbers may have
    decimal commas. Lines that begin with #, % or // are comments, one of which may be the header.

    **Returns:** `Series`, a dictionary of the columns by name, (k,) each, in SI units, with
    `notes`. The file may use s, ms, us, rad, deg, rev, rad/s, deg/s, rpm, m, mm, N, N m, N mm, V,
    mV, A, mA, - (none), %, a number times one of these, such as `[0.229 rpm]`, and `tick/4096`, of
    which 4096 make a turn.

    **Raises:** `ValueError`, with file, line and column, for a missing column, an unknown unit or
    one of another kind, a line too short or too long, a value that is missing, no number or not
    finite, a single line of values, and for time (the first column in s, ms or us) that does not
    increase or has a gap.
    """
    path = Path(path)
    notes: list[str] = []
    number, header, rows = _opened(path, notes)
    wanted = _wanted(path, number, header, columns)
    rows = _whole(path, rows, len(header), gaps, notes)
    at = {name: header[name][0] for name in wanted}
    if gaps:
        rows = _kept(path, rows, at, notes)
    if len(rows) == 1:
        raise ValueError(
            f"{path}, line {rows[0][0]}: this is the only line of values; a series has two at "
            "least."
        )
    comma = _decimal_comma(path, rows, at, notes)
    found = Series()
    for name, i in at.items():
        values = [_number(path, line, name, row[i], comma) for line, row in rows]
        found[name] = np.array(values) * header[name][3]
    clock = next((name for name in wanted if header[name][1] == "s"), None)
    numbers = np.array([line for line, _ in rows])
    if clock is not None:
        kept = _check_time(path, numbers, clock, found[clock], gaps, notes)
        numbers = numbers[kept]
        for name in found:
            found[name] = found[name][kept]
    time = np.arange(float(len(numbers))) if clock is None else found[clock]
    for name in wanted:
        if continued and header[name][1] == "rad":
            found[name], turned = _unwrapped(time, found[name])
            if turned.size:
                notes.append(
                    f"{path.name}, line {numbers[turned[0]]}, column {name}: the angle jumps by a "
                    f"full turn{_times(turned.size)}; it is continued beyond."
                )
    found.notes = tuple(notes)
    return found


def series_columns(path: str | Path) -> dict[str, str]:
    """Names of the columns that [`read_series`][] finds in a file, with their SI units.

    **Raises:** `ValueError` for a file that cannot be read, and for a header that is none.
    """
    _, header, _ = _opened(Path(path), [])
    return {name: si for name, (_, si, _, _) in header.items()}


def _opened(path: Path, notes: list[str]) -> tuple[int, Header, Rows]:
    """Line of the header, the columns, and the rows below it."""
    number, cells, rows = _table(path, _lines(path, _text(path, notes)))
    return number, _header(path, number, cells), rows


def _times(count: int) -> str:
    return "" if count == 1 else f", {count} times in all"


def _text(path: Path, notes: list[str]) -> str:
    try:
        content = read_bytes(path, LARGEST_DATA)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from None
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    elif b"\0" in content:
        raise ValueError(
            f"{path} cannot be read: byte {content.index(0)} is no text; export the log as a text "
            "file with one line a sample."
        )
    else:
        encoding = "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        notes.append(
            f"{path.name}: byte {error.start} is not text in UTF-8; the file is read as Latin-1."
        )
        return content.decode("latin-1")


def _lines(path: Path, text: str) -> list[tuple[int, str]]:
    """Lines that are not blank, with their numbers; \\r, \\n and both end a line."""
    lines = re.split(r"\r\n|\r|\n", text)
    found = [(i, line) for i, line in enumerate(lines, start=1) if line.strip(" \t,;")]
    if not found:
        raise ValueError(f"{path}, line 1: there is no header; it must name the columns.")
    return found


def _table(path: Path, lines: list[tuple[int, str]]) -> tuple[int, list[str], Rows]:
    """Line and cells of the header, and the rows below it."""
    rest = [(i, line) for i, line in lines if not line.lstrip().startswith(_COMMENTS)]
    number, header = rest[0] if rest else lines[0]
    # A header in a comment, above numbers only.
    above = [
        (i, line.lstrip(" \t#%/"))
        for i, line in lines
        if i < number and any(_named(line, s) == line.count(s) + 1 for s in _SEPARATORS)
    ]
    if above and not any(_named(header, s) for s in _SEPARATORS):
        number, header = above[-1]
    else:
        rest = rest[1:]
    separator = max(_SEPARATORS, key=lambda s: (_named(header, s), header.count(s)))
    cells = _cells(path, number, header, separator)
    if not rest:
        raise ValueError(f"{path}, line {number + 1}: there are no values below the header.")
    return number, cells, [(i, _cells(path, i, x, separator)) for i, x in rest]


def _named(header: str, separator: str) -> int:
    return sum(_NAME.fullmatch(cell) is not None for cell in header.split(separator))


def _cells(path: Path, number: int, line: str, separator: str) -> list[str]:
    try:
        (cells,) = csv.reader([line], delimiter=separator, strict=False)
    except csv.Error as error:
        raise ValueError(f"{path}, line {number}: it cannot be read: {error}.") from None
    return [cell.strip() for cell in cells]


_NAME = re.compile(
    r"\s*\"?([^\[\]()]*?)\s*(?:\[\s*([^\[\]]*?)\s*\]|\(\s*([^()\[\]]*?)\s*\))\s*\"?\s*"
)
_EXAMPLE = "time [s],angle [deg]"


def _is_number(cell: str) -> bool:
    try:
        decimal(cell.replace(",", "."))
    except ValueError:
        return False
    return True


def _header(path: Path, number: int, cells: list[str]) -> Header:
    found: Header = {}
    if not cells[-1]:
        cells = cells[:-1]
    if all(_is_number(cell) for cell in cells):
        raise ValueError(
            f"{path}, line {number}: there is no header above the values; write one that names the "
            f"{len(cells)} columns with their units, such as {_EXAMPLE}."
        )
    for i, cell in enumerate(cells):
        match = _NAME.fullmatch(cell)
        if match is None or not match[1]:
            separated = ""
            if any(s in cell for s in ";\t"):
                separated = " (columns are separated by commas, semicolons or tabs, one kind only)"
            raise ValueError(
                f"{path}, line {number}, column {i + 1}: {brief(cell)} must be a name and a "
                f"unit, such as angle [rad]{separated}."
            )
        name, unit = match[1], match[2] or match[3]
        if name in found:
            raise ValueError(f"{path}, line {number}: two columns are called {name}.")
        found[name] = (i, *_unit(f"{path}, line {number}, column {name}", unit))
    return found


def _unit(where: str, text: str) -> tuple[str, str, float]:
    """SI unit, unit and factor of a unit, a multiple of one or ticks."""
    ticks = re.fullmatch(r"(?:ticks?|counts?|steps?)\s*(?:/\s*([0-9.]+(?:[eE][0-9]+)?))?", text)
    if ticks is not None:
        turn = 0.0 if ticks[1] is None else float(ticks[1])
        if not 0 < turn < math.inf:
            raise ValueError(
                f"{where}: the unit is {text!r}; say how many make a turn, such as tick/4096."
            )
        return "rad", text, 2 * math.pi / turn
    factor, unit = 1.0, text
    multiple = re.fullmatch(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*\*?\s*(\S.*)", text)
    if multiple is not None:
        try:
            factor, unit = decimal(multiple[1]), multiple[2]
        except ValueError:
            factor = math.nan
    unit = _ALIASES.get(unit, unit)
    if unit not in UNITS or not 0 < factor < math.inf:
        raise ValueError(
            f"{where}: the unit {brief(text)} is unknown; there are {', '.join(UNITS)}, and "
            "tick/4096 where 4096 make a turn."
        )
    si, size = UNITS[unit]
    return si, text, factor * size


def _wanted(
    path: Path, number: int, header: Header, columns: dict[str, str] | None
) -> dict[str, str]:
    if columns is None:
        return {name: si for name, (_, si, _, _) in header.items()}
    for name, unit in columns.items():
        if name not in header:
            raise ValueError(
                f"{path}, line {number}: there is no column {name}; there are {', '.join(header)}. "
                f"Rename the one that is meant, such as {name} [{unit}]."
            )
        _, kind, written, _ = header[name]
        if unit != kind:
            raise ValueError(
                f"{path}, line {number}, column {name}: the unit is {written}, which is not "
                f"convertible to {unit}."
                if unit in {si for si, _ in UNITS.values()}
                else f"The unit {unit} of {name} is asked for; series are given in SI units, "
                f"here in {kind}."
            )
    return columns


def _whole(path: Path, rows: Rows, count: int, gaps: bool, notes: list[str]) -> Rows:
    """Rows with as many cells as there are columns."""
    # Some loggers end every line with a separator.
    rows = [(i, row[:-1]) if len(row) == count + 1 and not row[-1] else (i, row) for i, row in rows]
    if gaps and len(rows) > 1 and len(rows[-1][1]) < count:
        notes.append(f"{path.name}, line {rows[-1][0]}: the last line is cut off and is left out.")
        rows = rows[:-1]
    for line, row in rows:
        if len(row) != count:
            hint = ""
            if len(row) > count:
                hint = (
                    " If numbers have decimal commas, columns must be separated by semicolons or "
                    "tabs."
                )
            raise ValueError(
                f"{path}, line {line}: there are {len(row)} values for {count} columns.{hint}"
            )
    return rows


def _kept(path: Path, rows: Rows, at: dict[str, int], notes: list[str]) -> Rows:
    """Rows in which no wanted value is lost."""
    lost = {name: [line for line, row in rows if row[i].lower() in _LOST] for name, i in at.items()}
    for name, lines in lost.items():
        if 2 * len(lines) > len(rows):
            raise ValueError(
                f"{path}, line {lines[0]}, column {name}: {len(lines)} of {len(rows)} values are "
                "missing; leave this column out, or write it to a file of its own."
            )
        if lines:
            notes.append(
                f"{path.name}, line {lines[0]}, column {name}: the value is missing"
                f"{_times(len(lines))}; these samples are left out."
            )
    missing = set().union(*lost.values())
    kept = [(line, row) for line, row in rows if line not in missing]
    if not kept:
        raise ValueError(
            f"{path}, line {rows[0][0]}: no line has values in all of the columns {', '.join(at)}."
        )
    return kept


def _decimal_comma(path: Path, rows: Rows, at: dict[str, int], notes: list[str]) -> bool:
    """Whether numbers have decimal commas; `ValueError` for a file with points as well."""
    commas = next(
        ((line, name, row[i]) for line, row in rows for name, i in at.items() if "," in row[i]),
        None,
    )
    if commas is None:
        return False
    for line, row in rows:
        for name, i in at.items():
            if "." in row[i]:
                raise ValueError(
                    f"{path}, line {line}, column {name}: {row[i]} has a decimal point, but "
                    f"{commas[2]} in line {commas[0]}, column {commas[1]} a comma; write all "
                    "numbers in one way, without separators of thousands."
                )
    notes.append(f"{path.name}: commas within numbers are read as decimal points.")
    return True


def _number(path: Path, line: int, name: str, cell: str, comma: bool) -> float:
    where = f"{path}, line {line}, column {name}"
    if not cell:
        raise ValueError(f"{where}: the value is missing; gaps=True leaves such lines out.")
    if cell.lower() in _LOST:
        raise ValueError(
            f"{where}: the value is {cell}; it must be finite. gaps=True leaves such lines out."
        )
    try:
        value = decimal(cell.replace(",", ".") if comma else cell)
    except ValueError:
        raise ValueError(f"{where}: {brief(cell)} is no number.") from None
    if not math.isfinite(value):
        raise ValueError(f"{where}: the value is {cell}; it must be finite.")
    return value


def _check_time(
    path: Path, lines: np.ndarray, name: str, time: np.ndarray, gaps: bool, notes: list[str]
) -> np.ndarray:
    """Which samples are kept (k,); `ValueError` for times that do not increase."""
    kept = np.ones(len(time), bool)
    steps = np.diff(time)
    if gaps:
        kept[1:] = steps != 0
        repeated = lines[~kept]
        if 2 * repeated.size > len(time):
            raise ValueError(
                f"{path}, column {name}: {repeated.size} of {len(time)} lines repeat the time of "
                "the line before, so times are rounded; log them with more digits, such as "
                "milliseconds."
            )
        if repeated.size:
            notes.append(
                f"{path.name}, line {repeated[0]}, column {name}: the time of the line before is "
                f"repeated{_times(repeated.size)}; these lines are left out."
            )
        lines, time = lines[kept], time[kept]
        steps = np.diff(time)
    if len(time) < 2:
        raise ValueError(f"{path}, column {name}: time does not advance.")
    back = np.flatnonzero(steps <= 0)
    if back.size:
        i = int(back[0]) + 1
        advice = (
            "gaps=True leaves out lines that repeat a time"
            if steps[i - 1] == 0
            else "the clock was set back or another log begins: split the file there"
        )
        raise ValueError(
            f"{path}, line {lines[i]}, column {name}: time must increase, but {time[i]:g} s "
            f"follows {time[i - 1]:g} s; {advice}."
        )
    usual = np.sort(steps)[(steps.size - 1) // 2]
    wide = np.flatnonzero(steps > 1.5 * usual)
    if wide.size and not gaps:
        i = int(wide[0]) + 1
        raise ValueError(
            f"{path}, line {lines[i]}, column {name}: time advances by {steps[i - 1]:g} s, usually "
            f"by {usual:g} s, so samples are missing; gaps=True allows that."
        )
    if wide.size:
        longest = int(np.argmax(steps))
        notes.append(
            f"{path.name}, column {name}: samples are missing{_places(wide.size)}, the longest gap "
            f"ends in line {lines[longest + 1]} and lasts {steps[longest]:.3g} s."
        )
    return kept


def _places(count: int) -> str:
    return "" if count == 1 else f" in {count} places"


def _unwrapped(time: np.ndarray, angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An angle within one turn, continued beyond it, and the samples at which it jumps.

    A jump is one of a full turn if what is left of it is a motion as fast as others are; targets
    that jump by less are what they seem.
    """
    turn = 2 * math.pi
    none = np.zeros(0, int)
    if np.ptp(angle) > turn * (1 + 1e-6):
        return angle, none
    steps, dt = np.diff(angle), np.diff(time)
    jumps = np.abs(steps) > turn / 2
    if not np.any(jumps) or np.all(jumps):
        return angle, none
    fastest = np.max(np.abs(steps[~jumps]) / dt[~jumps])
    left = steps[jumps] - np.copysign(turn, steps[jumps])
    if np.any((np.abs(left) / dt[jumps] > 1.5 * fastest) | (np.abs(left) > turn / 4)):
        return angle, none
    whole = np.zeros(len(angle))
    whole[1:] = np.cumsum(np.where(jumps, -np.copysign(turn, steps), 0.0))
    return angle + whole, np.flatnonzero(jumps) + 1
