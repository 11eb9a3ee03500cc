"""Signals over time: controls with their switching functions, states, costates, Hamiltonian."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxgrip.viz.style import DASHES, GREY, PALETTE, settle, styled

_NEVER = np.empty(0)


@styled
def controls(
    control: xarray.DataArray,
    switching_function: xarray.DataArray,
    switching_times: Sequence[Float[np.ndarray, " _"]],
    title: str,
) -> Figure:
    """One panel a control: its course, its switching function, and where it switches.

    **Arguments:** `control` and `switching_function`, both (time, component) with a coordinate
    `time` in s and the attributes `long_name` and `units`; `switching_times`, one list a component
    [s]; `title` of the figure.
    """
    component = control.dims[1]
    labels = control[component].values
    figure = Figure(figsize=(8.0, 1.2 + 1.9 * len(labels)), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left")
    panels = figure.subplots(len(labels), 1, sharex=True, squeeze=False)[:, 0]
    t = _milliseconds(control)
    for index, (axes, label) in enumerate(zip(panels, labels, strict=True)):
        u, s = control.values[:, index], switching_function.values[:, index]
        axes.fill_between(t, u, color=PALETTE[0], alpha=0.18, linewidth=0)
        (left,) = axes.plot(t, u, color=PALETTE[0], label=_name(control))
        _symmetric(axes, u, 1.5)
        axes.set_ylabel(f"{component} {label}\n{_unit(control)}", color=PALETTE[0])
        twin = axes.twinx()
        twin.grid(visible=False)
        (right,) = twin.plot(t, s, color=PALETTE[1], label=_name(switching_function))
        _symmetric(twin, s, 1.5)
        twin.set_ylabel(_unit(switching_function), color=PALETTE[1])
        axes.axhline(0.0, color=GREY, linewidth=0.8)
        zeros = 1e3 * np.asarray(switching_times[index])
        (dots,) = twin.plot(
            zeros,
            np.zeros_like(zeros),
            "o",
            color="white",
            markeredgecolor="black",
            markersize=6,
            label="control switches",
            zorder=5,
        )
        rows = _stagger(zeros, 0.13 * (t[-1] - t[0]))
        for zero, row in zip(zeros, rows, strict=True):
            axes.axvline(zero, color="black", linewidth=0.8, linestyle=":")
            axes.annotate(
                f"{zero:.2f} ms",
                (zero, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(-3, -3 - 11 * row),
                textcoords="offset points",
                ha="right",
                va="top",
                fontsize=9,
            )
    figure.legend(handles=[left, right, dots], loc="outside lower center", ncols=3)
    _time_axis(panels[-1], t)
    return settle(figure)


@styled
def lines(
    signals: Sequence[xarray.DataArray],
    title: str,
    *,
    switching_times: Float[np.ndarray, " switches"] = _NEVER,
    limits: Mapping[str, tuple[float, float, str]] | None = None,
) -> Figure:
    """One panel a signal, one line a component.

    **Arguments:** `signals`, each (time, component) with a coordinate `time` in s and the
    attributes `long_name` and `units`; `title` of the figure; `switching_times` [s], marked in all
    panels; `limits`, by name of a signal: lower and upper value and what they mean.
    """
    figure = Figure(figsize=(8.0, 1.0 + 2.5 * len(signals)), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left")
    panels = figure.subplots(len(signals), 1, sharex=True, squeeze=False)[:, 0]
    for axes, signal in zip(panels, signals, strict=True):
        t, component = _milliseconds(signal), signal.dims[1]
        for switch in switching_times:
            axes.axvline(1e3 * switch, color=GREY, linewidth=0.8, linestyle=":")
        for index, label in enumerate(signal[component].values):
            axes.plot(
                t,
                signal.values[:, index],
                color=PALETTE[index % len(PALETTE)],
                linestyle=DASHES[index % len(DASHES)],
                label=f"{component} {label}",
            )
        if limits and signal.name in limits:
            *bounds, meaning = limits[signal.name]
            for bound in bounds:
                axes.axhline(bound, color="black", linewidth=1.0, linestyle=(0, (6, 3)))
            axes.annotate(
                meaning,
                (0.0, bounds[1]),
                xycoords=("axes fraction", "data"),
                xytext=(3, 3),
                textcoords="offset points",
                fontsize=9,
            )
            axes.margins(y=0.14)
        axes.set_ylabel(f"{_name(signal)}\n{_unit(signal)}")
        axes.yaxis.set_major_locator(MaxNLocator(6))
    handles, labels = panels[0].get_legend_handles_labels()
    if len(switching_times):
        handles.append(panels[0].lines[0])
        labels.append("a control switches")
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(handles)))
    _time_axis(panels[-1], t)
    return settle(figure)


@styled
def hamiltonian(
    value: xarray.DataArray,
    scale: float,
    tolerance: float,
    title: str,
    *,
    switching_times: Float[np.ndarray, " switches"] = _NEVER,
) -> Figure:
    """How far the Hamiltonian is from the constant zero that minimum time demands.

    **Arguments:** `value`, (time,) with a coordinate `time` in s; `scale`, the largest term
    |λᵀf| that cancels in it, in the same unit; `tolerance` of the ratio; `title` of the figure;
    `switching_times` [s], marked.
    """
    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left")
    axes = figure.subplots()
    t = _milliseconds(value)
    # An exact zero has no logarithm; draw it at the resolution of a double.
    ratio = np.maximum(np.abs(value.values) / scale, 1e-17)
    for switch in switching_times:
        line = axes.axvline(1e3 * switch, color=GREY, linewidth=0.8, linestyle=":")
    if len(switching_times):
        figure.legend([line], ["a control switches"], loc="outside lower center")
    axes.semilogy(t, ratio, color=PALETTE[0], linewidth=1.0)
    axes.axhline(tolerance, color=PALETTE[1], linestyle="--")
    axes.annotate(
        f"allowed: {tolerance:.0e}",
        (0.0, tolerance),
        xycoords=("axes fraction", "data"),
        xytext=(4, 4),
        textcoords="offset points",
        color=PALETTE[1],
    )
    axes.annotate(
        f"largest: {ratio.max():.1e}",
        (0.0, ratio.max()),
        xycoords=("axes fraction", "data"),
        xytext=(4, -4),
        textcoords="offset points",
        va="top",
        color=PALETTE[0],
    )
    axes.set_ylim(1e-17, max(10.0 * tolerance, 10.0 * ratio.max()) * 10.0)
    axes.set_ylabel("|H| / largest |λᵀf| term  [1]")
    _time_axis(axes, t)
    return settle(figure)


def _stagger(places: np.ndarray, room: float) -> list[int]:
    """A row for each label, so that those in one row are `room` apart; `places` increase."""
    rows: list[int] = []
    ends: list[float] = []
    for place in places:
        row = next((r for r, end in enumerate(ends) if place - end >= room), len(ends))
        ends[row : row + 1] = [place]
        rows.append(row)
    return rows


def _milliseconds(signal: xarray.DataArray) -> np.ndarray:
    return 1e3 * signal["time"].values


def _name(signal: xarray.DataArray) -> str:
    return signal.attrs.get("long_name", signal.name)


def _unit(signal: xarray.DataArray) -> str:
    return f"[{signal.attrs['units'].replace('^2', '²')}]"


def _symmetric(axes: Axes, values: np.ndarray, room: float) -> None:
    """Zero in the middle of both scales, so that a sign change is seen at the control's step."""
    reach = room * float(np.max(np.abs(values))) or 1.0
    axes.set_ylim(-reach, reach)


def _time_axis(axes: Axes, t: np.ndarray) -> None:
    axes.set_xlabel("time [ms]")
    axes.set_xlim(t[0], t[-1])
