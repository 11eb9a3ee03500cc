"""Curves over any quantity: characteristics, loops, measured points."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from jaxgrip.viz.style import DASHES, GREY, PALETTE, settle, styled


class Curve(NamedTuple):
    """A curve: `label` for the legend, `x` and `y` (k,); `points`: dots instead of a line.

    `error` (k,) is half the length of the error bar at every point, none when not given.
    """

    label: str
    x: Float[np.ndarray, " k"]
    y: Float[np.ndarray, " k"]
    points: bool = False
    error: Float[np.ndarray, " k"] | None = None


class Panel(NamedTuple):
    """One pair of axes.

    `x`, `y`: labels of the axes, with units; `curves`; `title`; `log`: which axes are logarithmic,
    "", "x", "y" or "xy"; `bands`: ranges of x to shade, each with the first and last x and its
    meaning; `levels`: values of y to mark, each with its meaning; `ticks`: names of the whole
    numbers 0, 1, ... on the x axis.
    """

    x: str
    y: str
    curves: Sequence[Curve]
    title: str = ""
    log: str = ""
    bands: Sequence[tuple[float, float, str]] = ()
    levels: Sequence[tuple[float, str]] = ()
    ticks: Sequence[str] = ()


@styled
def curves(panels: Sequence[Panel], title: str, *, columns: int = 1) -> Figure:
    """Panels of curves; a label has the same colour and dash pattern in all of them.

    **Arguments:** `panels`; `title` of the figure; `columns` of panels.

    **Raises:** `ValueError` for a band or level without a meaning.
    """
    for panel in panels:
        for *values, meaning in (*panel.bands, *panel.levels):
            if not meaning:
                raise ValueError(f"The mark at {values[0]:g} has no meaning; give one.")
    rows = -(-len(panels) // columns)
    width = 8.0 if columns == 1 else 10.0
    figure = Figure(figsize=(width, 1.1 + 2.7 * rows), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    labels = list(dict.fromkeys(curve.label for panel in panels for curve in panel.curves))
    dashes = _dashes(panels, labels)
    handles = {}
    for axis, panel in zip(axes, panels, strict=False):
        for curve in panel.curves:
            index = labels.index(curve.label)
            colour = PALETTE[index % len(PALETTE)]
            if curve.error is not None:
                axis.errorbar(
                    curve.x, curve.y, curve.error, fmt="none", ecolor=colour, elinewidth=1.0
                )
            style = (
                {"linestyle": "none", "marker": "os^Dv"[index % 5], "markersize": 4}
                if curve.points
                else {"linestyle": DASHES[dashes[curve.label] % len(DASHES)]}
            )
            (line,) = axis.plot(curve.x, curve.y, color=colour, **style)
            handles.setdefault(curve.label, line)
        if "x" in panel.log:
            axis.set_xscale("log")
        if "y" in panel.log:
            axis.set_yscale("log")
        for first, last, meaning in panel.bands:
            band = axis.axvspan(first, last, color="#FBE6BF", zorder=0, linewidth=0)
            handles.setdefault(meaning, band)
        for level, meaning in panel.levels:
            axis.axhline(level, color=GREY, linewidth=1.0, linestyle=(0, (6, 3)))
            axis.annotate(
                meaning,
                (1.0, level),
                xycoords=("axes fraction", "data"),
                xytext=(-3, 3),
                textcoords="offset points",
                ha="right",
                fontsize=9,
                # An outline distinguishes it from curves and hides less of them than a box.
                path_effects=[withStroke(linewidth=2.5, foreground="white")],
            )
        if panel.levels:
            # So that a level at the edge is visible, with its meaning above it.
            axis.margins(y=0.1)
        if panel.ticks:
            axis.set_xticks(range(len(panel.ticks)), panel.ticks)
            axis.tick_params(axis="x", length=0)
        axis.set(xlabel=panel.x, ylabel=panel.y, title=panel.title)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    if len(handles) > 1:
        shown = {k: v for k, v in handles.items() if k}
        wide = max(len(name) for name in shown) > 28
        figure.legend(
            shown.values(),
            shown.keys(),
            loc="outside lower center",
            ncols=min(len(shown), 2 if wide else 4),
        )
    return settle(figure)


def _dashes(panels: Sequence[Panel], labels: Sequence[str]) -> dict[str, int]:
    """For each label the first dash pattern not used in its panels or with its colour."""
    lines = [{curve.label for curve in panel.curves if not curve.points} for panel in panels]
    found: dict[str, int] = {}
    for index, label in enumerate(labels):
        beside = set(labels[index % len(PALETTE) :: len(PALETTE)])
        beside = beside.union(*(names for names in lines if label in names))
        taken = {found[other] for other in beside if other in found}
        found[label] = next(k for k in itertools.count() if k not in taken)
    return found
