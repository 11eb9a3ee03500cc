"""Mechanisms in space: chains of links drawn at many times in one picture, or moving."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
import xarray
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator
from mpl_toolkits.mplot3d.axes3d import Axes3D
from PIL import Image

from jaxgrip.viz.style import GREY, PALETTE, TIME_COLOURS, pace, readable, styled

_VIEW = {"elev": 24.0, "azim": -62.0}


@dataclasses.dataclass(frozen=True)
class Animation:
    """Frames shown one after the other."""

    frames: tuple[Image.Image, ...]
    durations: tuple[int, ...]
    """Milliseconds per frame."""

    def save(self, path: Path) -> None:
        """Write an endless GIF."""
        first, *others = self.frames
        first.save(
            path,
            save_all=True,
            append_images=others,
            duration=list(self.durations),
            loop=0,
            optimize=False,
        )


@styled
def stroboscope(chains: Mapping[str, xarray.DataArray], title: str, *, poses: int = 13) -> Figure:
    """Chains of links at equally spaced times, coloured by time, with the paths of their tips.

    **Arguments:** `chains`, by name: positions (time, point, axis) in m from the base to the tip,
    with a coordinate `time` in s; `title` of the figure; `poses` drawn of each chain.
    """
    figure = Figure(figsize=(8.0, 5.6))
    figure.suptitle(title, x=0.02, ha="left")
    axes, shown = _space(figure, chains)
    axes.set_position((0.0, 0.04, 0.86, 0.92))
    end = max(float(chain["time"][-1]) for chain in chains.values())
    clock, unit = readable(end, "s")
    norm = matplotlib.colors.Normalize(0.0, clock * end)
    colours = TIME_COLOURS
    for name, chain in chains.items():
        times = np.linspace(0.0, float(chain["time"][-1]), poses)
        for time, points in zip(times, shown * _at(chain, times), strict=True):
            outer = time in (times[0], times[-1])
            axes.plot(
                *points.T,
                "-o",
                color=colours(norm(clock * time)),
                linewidth=4.0 if outer else 1.6,
                markersize=6.0 if outer else 2.5,
                solid_capstyle="round",
                label={times[0]: "start", times[-1]: "end"}.get(time, "in between"),
            )
        path = shown * _at(chain, np.linspace(0.0, times[-1], 200))[:, -1]
        # Not dashed: where a path returns on itself, dashes fill each other's gaps.
        axes.plot(*path.T, color="black", linewidth=1.2, label="path of tip")
        outward = 0.12 * (path[0] - shown * chain.values[0, 0]) * (1.0, 1.0, 0.0)
        above = 0.03 * max(np.ptp(limits) for limits in (axes.get_xlim(), axes.get_ylim()))
        axes.text(*path[0] + outward + (0.0, 0.0, above), name, ha="center", fontweight="bold")
    handles = {handle.get_label(): handle for handle in axes.lines}
    legend = [handles[label] for label in ("start", "in between", "end", "path of tip")]
    figure.legend(handles=legend, loc="upper right", bbox_to_anchor=(0.99, 0.95), ncols=4)
    scale = matplotlib.cm.ScalarMappable(norm, colours)
    figure.colorbar(scale, cax=figure.add_axes((0.91, 0.2, 0.02, 0.55)), label=f"time [{unit}]")
    return figure


@styled
def animate(
    chains: Mapping[str, xarray.DataArray],
    title: str,
    *,
    frames: int = 75,
    seconds: float = 3.0,
) -> Animation:
    """Chains of links in slow motion, all on one clock, each drawing the path of its tip.

    **Arguments:** `chains`, by name: positions (time, point, axis) in m from the base to the tip,
    with a coordinate `time` in s; `title`; number of `frames`; `seconds`, its duration on the
    screen. The last picture is shown for a second.
    """
    figure = Figure(figsize=(6.4, 5.4), dpi=100)
    figure.suptitle(title, x=0.02, ha="left")
    axes, shown = _space(figure, chains)
    axes.set_position((0.02, 0.05, 0.9, 0.88))
    end = max(float(chain["time"][-1]) for chain in chains.values())
    scale, unit = readable(end, "s")
    times = np.linspace(0.0, end, frames)
    moving, data = [], []
    for index, (name, chain) in enumerate(chains.items()):
        points = shown * _at(chain, times)
        for pose in (points[0], points[-1]):
            (rest,) = axes.plot(
                *pose.T, color=GREY, alpha=0.35, linewidth=4.0, solid_capstyle="round"
            )
        (links,) = axes.plot(
            *points[0].T,
            "-o",
            color=PALETTE[index % len(PALETTE)],
            linewidth=5.0,
            markersize=8.0,
            label=name,
        )
        (path,) = axes.plot(*points[:1, -1].T, color=PALETTE[index % len(PALETTE)], linewidth=1.5)
        moving += [links, path]
        data.append(points)
    rest.set_label("start and end")
    axes.legend(loc="upper right")
    clock = figure.text(0.02, 0.03, "")

    def place(frame: int) -> None:
        for links, path, points in zip(moving[::2], moving[1::2], data, strict=True):
            links.set_data_3d(*points[frame].T)
            path.set_data_3d(*points[: frame + 1, -1].T)
        clock.set_text(f"t = {scale * times[frame]:5.1f} {unit}   ({pace(seconds, end)})")

    return film(figure, [*moving, clock], place, range(frames), seconds)


def film(
    figure: Figure,
    artists: Sequence[Artist],
    place: Callable[[int], None],
    steps: Iterable[int],
    seconds: float,
    *,
    colours: int = 128,
) -> Animation:
    """An animation of a figure of which only some artists move; the rest is drawn once.

    **Arguments:** `figure`; `artists` that move, the lower ones first; `place(step)` puts them
    where they are at a step; `steps`; `seconds`, the duration on the screen; `colours`.
    """
    canvas = FigureCanvasAgg(figure)
    for artist in artists:
        artist.set_animated(True)
    canvas.draw()
    background = canvas.copy_from_bbox(figure.bbox)
    pictures = []
    for step in steps:
        canvas.restore_region(background)
        place(step)
        for artist in artists:
            figure.draw_artist(artist)
        pictures.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy()))
    return as_animation(pictures, seconds, colours=colours)


def as_animation(
    pictures: Sequence[Image.Image], seconds: float, *, colours: int = 128
) -> Animation:
    """Pictures in one palette, shown in `seconds`, the last one for a second."""
    palette = pictures[-1].quantize(colours, method=Image.Quantize.MAXCOVERAGE)
    still = Image.Dither.NONE
    return Animation(
        tuple(picture.quantize(palette=palette, dither=still) for picture in pictures),
        tuple([round(1e3 * seconds / len(pictures))] * (len(pictures) - 1) + [1000]),
    )


def _space(figure: Figure, chains: Mapping[str, xarray.DataArray]) -> tuple[Axes3D, float]:
    """Axes of equal scale around all positions, and the factor from m to their unit."""
    axes = figure.add_subplot(projection="3d")
    points = np.concatenate([chain.values.reshape(-1, 3) for chain in chains.values()])
    factor, unit = readable(float(np.ptp(points, axis=0).max()), "m")
    points = factor * points
    low, high = points.min(axis=0), points.max(axis=0)
    room = 0.06 * np.max(high - low)
    low, high = low - room, high + room
    low[2] = min(0.0, points[:, 2].min())
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    axes.set_box_aspect(high - low, zoom=1.12)
    axes.view_init(**_VIEW)
    axes.set(xlabel=f"x [{unit}]", ylabel=f"y [{unit}]", zlabel=f"z [{unit}]")
    step = np.diff(MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(0.0, np.max(high - low)))[0]
    for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
        axis.set_pane_color((0.98, 0.98, 0.98, 1.0))
        axis.set_major_locator(MultipleLocator(step))
    return axes, factor


def _at(chain: xarray.DataArray, times: np.ndarray) -> np.ndarray:
    """Positions (len(times), point, axis) at given times, constant after the end."""
    flat = chain.values.reshape(len(chain), -1)
    columns = [np.interp(times, chain["time"].values, column) for column in flat.T]
    return np.stack(columns, axis=-1).reshape(len(times), *chain.shape[1:])
