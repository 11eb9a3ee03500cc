"""The style of all pictures: size, type, colours that colour-blind readers can distinguish."""

import functools
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axis import Axis
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

# Okabe and Ito's palette without its yellow and sky blue, which are too pale for lines on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (3, 1, 1, 1, 1, 1)))
GREY = "#7A7A7A"
# From light to dark over time, without the palest fifth of viridis, invisible on white.
TIME_COLOURS = ListedColormap(matplotlib.colormaps["viridis"](np.linspace(0.85, 0.0, 256)))

_STYLE = {
    "axes.edgecolor": "#B0B0B0",
    "axes.grid": True,
    "axes.labelsize": 11,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "figure.dpi": 130,
    "figure.titlesize": 13,
    "font.size": 10.5,
    "grid.color": "#E6E6E6",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "savefig.dpi": "figure",
    "svg.hashsalt": "jaxgrip",
}


_PREFIXES = {-12: "p", -9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G"}
_POWERS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def readable(largest: float, units: str) -> tuple[float, str]:
    """The factor from `units` to a unit for all values of one kind in a figure, and that unit.

    **Arguments:** `largest`, the largest size shown; its `units` without a prefix; for `"1"` the
    unit is a power of ten, `""` where that is one.
    """
    power = 3 * int(np.floor(np.log10(largest) / 3 + 1e-9)) if 0.0 < largest < np.inf else 0
    # Kiloseconds are unusual.
    power = int(np.clip(power, -12, 0 if units == "s" else 9))
    if units == "1":
        return 10.0**-power, "" if power == 0 else "10" + str(power).translate(_POWERS)
    return 10.0**-power, _PREFIXES[power] + units


def pace(seconds: float, duration: float) -> str:
    """The speed at which a motion of a duration [s] is shown in `seconds`, in words."""
    if not duration:
        return "shown at rest"
    slower = seconds / duration
    if round(slower, 1) == 1.0:
        return "shown in real time"
    return f"shown {max(slower, 1 / slower):.3g} times {'slower' if slower > 1.0 else 'faster'}"


def styled(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Run a drawing function in the common style, leaving matplotlib's global settings alone."""

    @functools.wraps(draw)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with matplotlib.rc_context(_STYLE):
            return draw(*args, **kwargs)

    return wrapped


def settle(figure: Figure) -> Figure:
    """Lay the figure out once, so that saving it in several formats does not do so again."""
    figure.get_layout_engine().execute(figure)
    # With an engine, even one that does nothing, every format would be drawn twice.
    figure.set_layout_engine(None)
    return figure


def in_powers(axis: Axis) -> None:
    """Label a logarithmic axis by powers of ten; matplotlib typesets each label as a formula."""
    axis.set_major_formatter(lambda value, _: "10" + str(round(np.log10(value))).translate(_POWERS))
