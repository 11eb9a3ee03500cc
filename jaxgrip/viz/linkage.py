"""Linkages seen from the side: parts and cables at one position, others behind it as shadows."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from jaxgrip.viz.mechanism import Animation, as_animation
from jaxgrip.viz.style import GREY, PALETTE, settle, styled

_AXES = "xyz"


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
    """Parts as lines through their points at one step, with their shadows at others.

    **Arguments:**

    - `parts`, by name: positions (step, point, axis) [m].
    - `title`; `plane` of two axes that is looked at.
    - `cables`: names of parts drawn as thin lines.
    - `step`: the one in full colour; `shadows`: how many others, evenly chosen.
    - `paths`, by name: positions (step, axis) [m] of points whose whole path is drawn.
    """
    h, v = (_AXES.index(axis) for axis in plane)
    points = np.concatenate([p.values.reshape(-1, 3) for p in parts.values()])
    size = np.ptp(points[:, [h, v]], axis=0)
    height = float(np.clip(7.0 * size[1] / max(size[0], 1e-12), 3.0, 8.0)) + 1.0
    figure = Figure(figsize=(8.0, height), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left")
    axes = _axes(figure, points, h, v)
    count = len(next(iter(parts.values())))
    step = range(count)[step]
    for other in np.unique(np.linspace(0, count - 1, shadows).round().astype(int)):
        for name, part in parts.items():
            p = part.values[other]
            width = 0.7 if name in cables else 2.0
            axes.plot(p[:, h], p[:, v], color=GREY, alpha=0.3, linewidth=width, zorder=1)
    for index, (name, part) in enumerate(parts.items()):
        p = part.values[step]
        style = _style(name in cables, index)
        axes.plot(p[:, h], p[:, v], label=name, zorder=3, **style)
    for index, (name, path) in enumerate((paths or {}).items()):
        p = path.values
        dashes = ((0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))[index % 3]
        axes.plot(
            p[:, h], p[:, v], color="black", linewidth=1.2, linestyle=dashes, label=name, zorder=2
        )
    figure.legend(loc="outside lower center", ncols=min(4, len(parts) + len(paths or {})))
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

    **Arguments:** as of `linkage`; `captions`: one for every step, shown below; `seconds` that
    all steps take.
    """
    h, v = (_AXES.index(axis) for axis in plane)
    points = np.concatenate([p.values.reshape(-1, 3) for p in parts.values()])
    figure = Figure(figsize=(6.4, 5.4), dpi=100)
    canvas = FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.02, ha="left")
    axes = _axes(figure, points, h, v)
    axes.set_position((0.14, 0.25, 0.83, 0.66))
    lines = [
        axes.plot([], [], label=name, animated=True, **_style(name in cables, index))[0]
        for index, name in enumerate(parts)
    ]
    # Below the axes, where nothing moves across it.
    figure.legend(loc="lower center", bbox_to_anchor=(0.5, 0.05), ncols=4, fontsize=9)
    caption = figure.text(0.02, 0.015, "", animated=True)
    canvas.draw()
    background = canvas.copy_from_bbox(figure.bbox)
    pictures = []
    for step in range(len(next(iter(parts.values())))):
        canvas.restore_region(background)
        for line, part in zip(lines, parts.values(), strict=True):
            line.set_data(part.values[step][:, h], part.values[step][:, v])
        caption.set_text(captions[step] if captions else "")
        for artist in (*lines, caption):
            figure.draw_artist(artist)
        pictures.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy()))
    return as_animation(pictures, seconds)


def _style(cable: bool, index: int) -> dict:
    colour = PALETTE[index % len(PALETTE)]
    if cable:
        return {"color": colour, "linewidth": 1.4, "linestyle": (0, (5, 2))}
    return {
        "color": colour,
        "linewidth": 3.5,
        "marker": "o",
        "markersize": 5.0,
        "solid_capstyle": "round",
    }


def _axes(figure: Figure, points: np.ndarray, h: int, v: int) -> Axes:
    """Axes of one scale around everything."""
    axes = figure.add_subplot()
    low, high = points[:, [h, v]].min(axis=0), points[:, [h, v]].max(axis=0)
    room = 0.06 * np.max(high - low)
    axes.set(
        xlim=(low[0] - room, high[0] + room),
        ylim=(low[1] - room, high[1] + room),
        xlabel=f"{_AXES[h]} [m]",
        ylabel=f"{_AXES[v]} [m]",
    )
    axes.set_aspect("equal")
    return axes
