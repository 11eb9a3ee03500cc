"""Linkages seen from the side: parts and cables at one position, others behind it as shadows."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxgrip.viz._mechanism import Animation, film
from jaxgrip.viz.style import GREY, PALETTE, readable, settle, styled

_AXES = "xyz"
# Colours of paths, which no part but the sixth has.
_PATHS = ("#000000", "#882255", "#332288")
_MARKERS = "osDv^"


@styled
def linkage(
    parts: Mapping[str, xarray.DataArray],
    title: str,
    *,
    cables: Sequence[str] = (),
    plane: str = "xz",
    step: int = -1,
    shadows: int = 6,
    paths: Mapping[str, xarray.DataArray] | None = None,
) -> Figure:
    """Parts as lines through their points at one step, and as shadows at others.

    **Arguments:**

    - `parts`, by name: positions (step, point, axis) [m].
    - `title`; `plane`, the two axes shown.
    - `cables`: names of parts drawn as thin lines.
    - `step`: the one in full colour; `shadows`: number of other steps, evenly spaced.
    - `paths`, by name: positions (step, axis) [m] of points whose whole path is drawn.
    """
    paths = paths or {}
    seen, unit = _seen([*parts.values(), *paths.values()], plane)
    lines = dict(zip(parts, seen, strict=False))
    size = np.ptp(np.concatenate([p.reshape(-1, 2) for p in seen]), axis=0)
    height = float(np.clip(7.0 * size[1] / max(size[0], 1e-12), 3.0, 8.0)) + 1.0
    figure = Figure(figsize=(8.0, height), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left")
    axes = _axes(figure, seen, plane, unit)
    count = len(next(iter(lines.values())))
    step = range(count)[step]
    others = np.unique(np.linspace(0, count - 1, shadows).round().astype(int))
    for other in others[others != step]:
        for name, p in lines.items():
            look = {"color": GREY, "alpha": 0.3, "linewidth": 0.7 if name in cables else 2.0}
            axes.plot(*p[other].T, label="other positions", zorder=1, **look)
    for name, style in _styles(lines, cables).items():
        axes.plot(*lines[name][step].T, label=name, **style)
    # Not dashed: where a path returns on itself, dashes fill each other's gaps.
    for index, (name, p) in enumerate(zip(paths, seen[len(parts) :], strict=True)):
        look = {"color": _PATHS[index % len(_PATHS)], "linewidth": 1.2}
        axes.plot(*p.T, label=name, zorder=2, **look)
    handles = {line.get_label(): line for line in reversed(axes.lines)}
    names = [name for name in (*parts, *paths, "other positions") if name in handles]
    figure.legend(
        [handles[name] for name in names],
        names,
        loc="outside lower center",
        ncols=3 if max(map(len, names)) > 24 else 4,
    )
    return settle(figure)


@styled
def animate_linkage(
    parts: Mapping[str, xarray.DataArray],
    title: str,
    *,
    cables: Sequence[str] = (),
    plane: str = "xz",
    captions: Sequence[str] = (),
    seconds: float = 4.0,
) -> Animation:
    """Parts as lines through their points, a frame for every step.

    **Arguments:** as for `linkage`; `captions`: one for every step, shown below; `seconds`, the
    duration of all steps.
    """
    points, unit = _seen([*parts.values()], plane)
    seen = dict(zip(parts, points, strict=True))
    figure = Figure(figsize=(6.4, 5.4), dpi=100)
    figure.suptitle(title, x=0.02, ha="left")
    axes = _axes(figure, points, plane, unit)
    axes.set_position((0.14, 0.25, 0.83, 0.66))
    styles = _styles(seen, cables)
    lines = {name: axes.plot([], [], label=name, **styles[name])[0] for name in seen}
    # The lower ones first.
    order = sorted(lines, key=lambda name: styles[name]["zorder"])
    # Below the axes, where nothing covers it.
    figure.legend(loc="lower center", bbox_to_anchor=(0.5, 0.05), ncols=4, fontsize=9)
    caption = figure.text(0.02, 0.015, "")

    def place(step: int) -> None:
        for name in order:
            lines[name].set_data(*seen[name][step].T)
        caption.set_text(captions[step] if captions else "")

    artists = [*(lines[name] for name in order), caption]
    return film(figure, artists, place, range(len(next(iter(seen.values())))), seconds)


def _seen(lines: Sequence[xarray.DataArray], plane: str) -> tuple[list[np.ndarray], str]:
    """Points of lines (..., 2) on two axes in a suitable unit, and the unit."""
    shown = [_AXES.index(axis) for axis in plane]
    points = np.concatenate([line.values.reshape(-1, 3)[:, shown] for line in lines])
    factor, unit = readable(float(np.ptp(points, axis=0).max()), "m")
    return [factor * line.values[..., shown] for line in lines], unit


def _styles(lines: Mapping[str, np.ndarray], cables: Sequence[str]) -> dict[str, dict]:
    """A style for each part; longer parts are wider and drawn below, so that shorter ones show."""
    length = {
        name: np.linalg.norm(np.diff(p[0], axis=0), axis=1).sum() for name, p in lines.items()
    }
    rank = {name: k for k, name in enumerate(sorted(lines, key=lambda name: -length[name]))}
    styles = {}
    for index, name in enumerate(lines):
        own = {"color": PALETTE[index % len(PALETTE)], "zorder": 3.0 + rank[name] / len(lines)}
        again = index // len(PALETTE)
        if name in cables:
            gaps = 2.0 + 2.0 * again
            styles[name] = {**own, "linewidth": 1.4, "linestyle": (0, (5.0, gaps))}
        else:
            width = 5.5 - 3.0 * rank[name] / max(len(lines) - 1, 1)
            styles[name] = {
                **own,
                "linewidth": width,
                "marker": _MARKERS[again % len(_MARKERS)],
                "markersize": width + 2.0,
                "solid_capstyle": "round",
            }
    return styles


def _axes(figure: Figure, seen: Sequence[np.ndarray], plane: str, unit: str) -> Axes:
    """Axes of one scale around everything."""
    axes = figure.add_subplot()
    points = np.concatenate([p.reshape(-1, 2) for p in seen])
    low, high = points.min(axis=0), points.max(axis=0)
    room = 0.06 * np.max(high - low)
    axes.set(
        xlim=(low[0] - room, high[0] + room),
        ylim=(low[1] - room, high[1] + room),
        xlabel=f"{plane[0]} [{unit}]",
        ylabel=f"{plane[1]} [{unit}]",
    )
    axes.set_aspect("equal")
    return axes
