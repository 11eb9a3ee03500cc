"""Signals over time: controls, states, costates, multipliers, Hamiltonian."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import xarray
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from jaxgrip.ocp import Kind
from jaxgrip.viz.style import DASHES, GREY, PALETTE, in_powers, readable, settle, styled

_NEVER = np.empty(0)
_ACTIVE = ("#FBE6BF", "")
# Colour and hatch of the kinds of a control, by label; white inside the bounds.
_LOOKS = {
    Kind.UPPER.label: ("#EAEAEA", ""),
    Kind.RISING.label: ("#BFE3D6", "//"),
    Kind.SINGULAR.label: ("#EBD3E0", ".."),
    Kind.CONSTRAINED.label: _ACTIVE,
}
_SHADES = {kind: (kind.label, *_LOOKS[kind.label]) for kind in Kind if kind.label}


@styled
def controls(
    control: xarray.DataArray,
    switching_function: xarray.DataArray,
    edges: Float[np.ndarray, " edges"],
    kinds: Int[np.ndarray, "arcs m"],
    title: str,
    *,
    least: float = 0.0,
) -> Figure:
    """One panel per control: its values, its switching function, its kind and its switching times.

    **Arguments:** `control` and `switching_function`, both (time, component) with a coordinate
    `time` in s and the attributes `long_name` and `units`; `edges` of the arcs [s], with start and
    end; `kinds` of the controls, numbered as in `ocp.Kind`; `title` of the figure; `least`, size
    of a switching function below which it is rounding.
    """
    component = control.dims[1]
    labels = control[component].values
    figure, panels = _panels(title, len(labels), 2.0)
    t, factor, unit = _times(control)
    positions = factor * np.asarray(edges)
    handles: dict[str, Any] = {}
    # Otherwise a switching function that is zero throughout would show its rounding.
    least = max(least, 1e-3 * float(np.max(np.abs(switching_function.values))))
    for index, (axes, label) in enumerate(zip(panels, labels, strict=True)):
        u, s = control.values[:, index], switching_function.values[:, index]
        _shade(axes, positions, [_SHADES.get(int(kind)) for kind in kinds[:, index]], handles)
        (left,) = axes.plot(t, u, color=PALETTE[0])
        _symmetric(axes, u)
        axes.set_ylabel(f"{label}{_unit(control)}", color=PALETTE[0])
        twin = axes.twinx()
        twin.grid(visible=False)
        (right,) = twin.plot(t, s, color=PALETTE[1])
        _symmetric(twin, s, least)
        twin.set_ylabel(_unit(switching_function).strip(), color=PALETTE[1])
        twin.ticklabel_format(axis="y", scilimits=(-3, 4), useMathText=True)
        _zero_line(axes)
        # A rate that reaches its bound does so where the switching function is not zero.
        zeros = positions[1:-1][np.diff(kinds[:, index]) != 0]
        (dots,) = twin.plot(
            zeros,
            np.interp(zeros, t, s),
            "o",
            color="white",
            markeredgecolor="black",
            markersize=6,
            zorder=5,
        )
        _name_times(axes, zeros, t, unit)
    lines = {_name(control): left, _name(switching_function): right}
    if np.any(np.diff(kinds, axis=0)):
        lines["control switches"] = dots
    _legend(figure, lines | handles)
    _time_axis(panels[-1], t, unit)
    return settle(figure)


@styled
def multipliers(
    multiplier: xarray.DataArray,
    edges: Float[np.ndarray, " edges"],
    active: Sequence[Sequence[bool]],
    jumps: Sequence[Sequence[tuple[float, str]]],
    title: str,
    *,
    meaning: str = "constraint active",
) -> Figure:
    """One panel per component: its values, where it is active, and jumps.

    **Arguments:** `multiplier` (time, component) with a coordinate `time` in s and the attributes
    `long_name` and `units`; `edges` of the arcs [s], with start and end; for each component
    `active`, a flag per arc, and `jumps`, each a time [s] and its size in words; `title` of the
    figure; `meaning` of active, for the legend.
    """
    component = multiplier.dims[1]
    labels = multiplier[component].values
    figure, panels = _panels(title, len(labels), 2.2)
    t, factor, unit = _times(multiplier)
    positions = factor * np.asarray(edges)
    look = _LOOKS.get(meaning, _ACTIVE)
    handles: dict[str, Any] = {}
    for index, (axes, label) in enumerate(zip(panels, labels, strict=True)):
        states = [(meaning, *look) if is_active else None for is_active in active[index]]
        _shade(axes, positions, states, handles)
        _zero_line(axes)
        (line,) = axes.plot(t, multiplier.values[:, index], color=PALETTE[0])
        handles.setdefault(_name(multiplier), line)
        axes.margins(y=0.25)
        axes.set_title(str(label), fontsize=10.5)
        axes.set_ylabel(_unit(multiplier).strip())
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.ticklabel_format(axis="y", scilimits=(-3, 4), useMathText=True)
        for time, size in jumps[index]:
            handles["jump of the costate, by its multipliers η"] = axes.plot(
                factor * time, 0.0, "D", color=PALETTE[1], markersize=7, zorder=5, clip_on=False
            )[0]
            left = factor * time > 0.5 * (t[0] + t[-1])
            axes.annotate(
                size,
                (factor * time, 0.97),
                xycoords=("data", "axes fraction"),
                xytext=(-6 if left else 6, 0),
                textcoords="offset points",
                ha="right" if left else "left",
                va="top",
                color=PALETTE[1],
            )
            axes.axvline(factor * time, color=PALETTE[1], linewidth=0.9, linestyle=":")
    _legend(figure, handles)
    _time_axis(panels[-1], t, unit)
    return settle(figure)


@styled
def lines(
    signals: Sequence[xarray.DataArray],
    title: str,
    *,
    switching_times: Float[np.ndarray, " switches"] = _NEVER,
    limits: Mapping[str, tuple[float, float, str]] | None = None,
) -> Figure:
    """One panel per signal, one line per component.

    **Arguments:** `signals`, each (time, component) with a coordinate `time` in s and the
    attributes `long_name` and `units`, of which m and Pa get a suitable prefix; `title` of the
    figure; `switching_times` [s], marked in all panels; `limits`, by name of a signal: lower and
    upper value and their meaning.
    """
    figure, panels = _panels(title, len(signals), 2.5)
    for axes, signal in zip(panels, signals, strict=True):
        (t, factor, unit), component = _times(signal), signal.dims[1]
        for switch in switching_times:
            axes.axvline(factor * switch, color=GREY, linewidth=0.8, linestyle=":")
        scale, units = 1.0, signal.attrs["units"]
        if units in ("m", "Pa"):
            scale, units = readable(float(np.max(np.abs(signal.values))), units)
        for index, label in enumerate(signal[component].values):
            axes.plot(
                t,
                scale * signal.values[:, index],
                color=PALETTE[index % len(PALETTE)],
                linestyle=DASHES[index % len(DASHES)],
                label=f"{component} {label}",
            )
        if limits and signal.name in limits:
            *bounds, meaning = limits[signal.name]
            for bound in bounds:
                axes.axhline(scale * bound, color="black", linewidth=1.0, linestyle=(0, (6, 3)))
            axes.annotate(
                meaning,
                (0.0, scale * bounds[1]),
                xycoords=("axes fraction", "data"),
                xytext=(3, 3),
                textcoords="offset points",
                fontsize=9,
            )
            axes.margins(y=0.14)
        axes.set_ylabel(f"{_name(signal)}{_unit(signal.assign_attrs(units=units))}")
        axes.yaxis.set_major_locator(MaxNLocator(6))
    handles, labels = panels[0].get_legend_handles_labels()
    if len(switching_times):
        handles.append(panels[0].lines[0])
        labels.append("a control switches")
    columns = 4 if sum(map(len, labels)) < 70 else 2
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(handles)))
    _time_axis(panels[-1], t, unit)
    return settle(figure)


@styled
def hamiltonian(
    deviation: xarray.DataArray,
    scale: float,
    tolerance: float,
    title: str,
    *,
    largest: float | None = None,
    switching_times: Float[np.ndarray, " switches"] = _NEVER,
) -> Figure:
    """Deviation of the Hamiltonian from its mean, relative to its largest term.

    **Arguments:** `deviation`, (time,) with a coordinate `time` in s; `scale`, the largest term
    |λᵀf| that cancels in it, in the same unit; `tolerance` of the ratio; `title` of the figure;
    `largest`, the ratio in a certificate, whose reference need not be the mean; the largest drawn
    when not given; `switching_times` [s], marked.
    """
    figure, (axes,) = _panels(title, 1, 2.4)
    t, factor, unit = _times(deviation)
    # An exact zero has no logarithm; draw it at the resolution of a double.
    ratio = np.maximum(np.abs(deviation.values) / scale, 1e-17)
    for switch in switching_times:
        line = axes.axvline(factor * switch, color=GREY, linewidth=0.8, linestyle=":")
    if len(switching_times):
        _legend(figure, {"a control switches": line})
    axes.semilogy(t, ratio, color=PALETTE[0], linewidth=1.0)
    in_powers(axes.yaxis)
    axes.axhline(tolerance, color=PALETTE[1], linestyle="--")
    axes.annotate(
        f"allowed: {tolerance:.0e}",
        (0.0, tolerance),
        xycoords=("axes fraction", "data"),
        xytext=(4, 4),
        textcoords="offset points",
        color=PALETTE[1],
    )
    words = "largest" if largest is None else "largest, by the certificate"
    largest = float(ratio.max()) if largest is None else largest
    axes.annotate(
        f"{words}: {largest:.1e}",
        (0.0, max(largest, 1e-17)),
        xycoords=("axes fraction", "data"),
        xytext=(4, 4),
        textcoords="offset points",
        color=PALETTE[0],
    )
    axes.set_ylim(1e-17, 100.0 * max(tolerance, largest, ratio.max()))
    axes.set_ylabel("deviation of the\nHamiltonian over its\nlargest term  [1]")
    _time_axis(axes, t, unit)
    return settle(figure)


def _panels(title: str, count: int, height: float) -> tuple[Figure, np.ndarray]:
    """A figure with `count` axes of `height` [in], stacked on one time axis."""
    figure = Figure(figsize=(8.0, 1.0 + height * count), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left")
    return figure, figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]


def _shade(
    axes: Axes,
    positions: np.ndarray,
    states: Sequence[tuple[str, str, str] | None],
    handles: dict[str, Any],
) -> None:
    """Shade each arc by its state (name, colour, hatch), adding new states to the `handles`."""
    for begin, end, state in zip(positions[:-1], positions[1:], states, strict=True):
        if state is not None:
            name, colour, hatch = state
            look = {"facecolor": colour, "edgecolor": "white", "hatch": hatch, "linewidth": 0}
            axes.axvspan(begin, end, zorder=0, **look)
            handles.setdefault(name, Patch(label=name, **look))


def _name_times(axes: Axes, positions: np.ndarray, t: np.ndarray, unit: str) -> None:
    """A dotted line and the time at each of the given times."""
    room = 0.13 * (t[-1] - t[0])
    # A label is left of its line, unless it would leave the axes.
    begins = np.where(positions - t[0] < room, positions, positions - room)
    for position, begin, row in zip(positions, begins, _stagger(begins, room), strict=True):
        axes.axvline(position, color="black", linewidth=0.8, linestyle=":")
        side = 1 if begin == position else -1
        axes.annotate(
            f"{position:.2f} {unit}",
            (position, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3 * side, -2 - 11 * row),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="top",
            fontsize=9,
            bbox={"boxstyle": "square,pad=0.05", "color": "white", "alpha": 0.75, "linewidth": 0},
        )


def _stagger(begins: np.ndarray, room: float) -> list[int]:
    """A row for each label of width `room`, so that labels in one row do not overlap."""
    rows: list[int] = []
    ends: list[float] = []
    for begin in begins:
        row = next((r for r, end in enumerate(ends) if begin >= end), len(ends))
        ends[row : row + 1] = [begin + room]
        rows.append(row)
    return rows


def _legend(figure: Figure, handles: Mapping[str, Any]) -> None:
    ncols = 3 if len(handles) in (3, 5, 6) else 4
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=ncols)


def _times(signal: xarray.DataArray) -> tuple[np.ndarray, float, str]:
    """Times of a signal, the factor to them from s, and their unit."""
    t = signal["time"].values
    factor, unit = readable(float(np.max(np.abs(t))), "s")
    return factor * t, factor, unit


def _zero_line(axes: Axes) -> None:
    """An axis at zero, in the style of the others."""
    axes.axhline(0.0, color=matplotlib.rcParams["axes.edgecolor"], linewidth=0.8)


def _name(signal: xarray.DataArray) -> str:
    return signal.attrs.get("long_name", signal.name)


def _unit(signal: xarray.DataArray) -> str:
    """The unit on a line of its own; nothing if unknown."""
    units = signal.attrs["units"]
    return f"\n[{units.replace('^2', '²')}]" if units else ""


def _symmetric(axes: Axes, values: np.ndarray, least: float = 0.0) -> None:
    """Zero in the middle of both scales, so that a sign change lines up with the control's step."""
    reach = 1.75 * max(float(np.max(np.abs(values))), least) or 1.0
    axes.set_ylim(-reach, reach)


def _time_axis(axes: Axes, t: np.ndarray, unit: str) -> None:
    axes.set_xlabel(f"time [{unit}]")
    axes.set_xlim(t[0], t[-1])
