"""Elastic bodies in space: deformed, coloured by a field, side by side or moving."""

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import matplotlib
import numpy as np
import xarray
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon
from matplotlib.ticker import FuncFormatter, MaxNLocator
from PIL import Image

from jaxgrip.viz._mechanism import Animation, as_animation
from jaxgrip.viz.style import GREY, pace, readable, styled

if TYPE_CHECKING:
    from jaxgrip.fem import Body
    from jaxgrip.fem.topology import Topology

_REST = {"colors": "#808080", "linewidths": 0.9, "linestyles": [(0, (4, 3))]}
_WALL = {"facecolor": "#E4E4E4", "edgecolor": "#8C8C8C", "hatch": "////", "linewidth": 0.8}
_ELEVATION, _AZIMUTH = np.deg2rad(24.0), np.deg2rad(-62.0)
# Rows are the axes of the picture: to the right, upwards, towards the eye.
_VIEW = np.array(
    [
        [-np.sin(_AZIMUTH), np.cos(_AZIMUTH), 0.0],
        [
            -np.sin(_ELEVATION) * np.cos(_AZIMUTH),
            -np.sin(_ELEVATION) * np.sin(_AZIMUTH),
            np.cos(_ELEVATION),
        ],
        [
            np.cos(_ELEVATION) * np.cos(_AZIMUTH),
            np.cos(_ELEVATION) * np.sin(_AZIMUTH),
            np.sin(_ELEVATION),
        ],
    ]
)


@styled
def solid(
    body: "Body",
    u: Float[np.ndarray, "n 3"],
    field: xarray.DataArray,
    title: str,
    *,
    scale: float | None = None,
) -> Figure:
    """A deformed body, coloured by a field, with the outline of the undeformed one.

    **Arguments:** `body`; `u` (n, 3), displacements [m]; `field` (node,) with the attributes
    `long_name` and `units`; `title` of the figure; `scale`, the enlargement of
    displacements: when not given, a round number that makes them visible.
    """
    u = np.asarray(u)[None]
    scale = _scale(body, u) if scale is None else scale
    figure = Figure(figsize=(8.0, 4.2))
    figure.suptitle(title, x=0.02, ha="left")
    axes = _panel(figure, (0.03, 0.14, 0.8, 0.76), _window(body, u, scale))
    norm, colours = _colours(field.values)
    unit = readable(norm.vmax, field.attrs["units"])
    _Drawing(axes, body, norm, colours, "xyz").move(u[0], field.values, scale)
    _legend(figure, body, scale)
    figure.text(0.02, 0.025, _extent(field, norm, unit), va="bottom")
    _colour_bar(figure, (0.87, 0.2, 0.022, 0.6), norm, colours, field, unit)
    return figure


@styled
def solid_components(
    body: "Body",
    u: Float[np.ndarray, "n 3"],
    field: xarray.DataArray,
    title: str,
    *,
    scale: float | None = None,
) -> Figure:
    """One panel per component of a strain or stress, in one unit, each with its own colour range.

    **Arguments:** `body`; `u` (n, 3), displacements [m]; `field` (node, component) with the names
    of the components as a coordinate and the attributes `long_name` and `units`; `title`;
    `scale`, as for [`solid`][].
    """
    u = np.asarray(u)[None]
    scale = _scale(body, u) if scale is None else scale
    window = _window(body, u, scale)
    labels = field[field.dims[1]].values
    most = float(np.max(np.abs(field.values)))
    unit = readable(most, field.attrs["units"])
    rows = -(-len(labels) // 2)
    figure = Figure(figsize=(10.0, 1.0 + 1.95 * rows))
    figure.suptitle(title, x=0.02, ha="left")
    for index, label in enumerate(labels):
        row, column = index % rows, index // rows
        left, bottom, top = _cell(figure, row, column, rows, 2)
        height = 0.85 * (top - bottom)
        axes = _panel(figure, (left, bottom, 0.385, height), window)
        values = field[:, index]
        # Components are signed, even if one sign occurs; a zero one must not show its rounding.
        norm, colours = _about_zero(values.values, 1e-9 * most)
        _Drawing(axes, body, norm, colours, "x").move(u[0], values.values, scale)
        figure.text(left, top, f"{label}", va="top", fontweight="bold")
        words = _extent(values, norm, unit)
        figure.text(left + 0.385, top, words, va="top", ha="right", fontsize=9)
        box = (left + 0.4, bottom + 0.15 * height, 0.012, 0.75 * height)
        _colour_bar(figure, box, norm, colours, field, unit, named=False)
    _legend(figure, body, scale)
    return figure


@styled
def solid_series(
    body: "Body",
    u: xarray.DataArray,
    field: xarray.DataArray,
    title: str,
    *,
    scale: float | None = None,
) -> Figure:
    """A moving body at some times, one panel per time, all with one scale and one colour range.

    **Arguments:** `body`; `u` (time, node, axis), displacements [m], with a coordinate `time` in
    s; `field` (time, node) with the attributes `long_name` and `units`; `title`; `scale`, as for
    [`solid`][].
    """
    scale = _scale(body, u.values) if scale is None else scale
    window = _window(body, u.values, scale)
    norm, colours = _colours(field.values)
    unit = readable(norm.vmax, field.attrs["units"])
    clock = readable(float(u["time"][-1]), "s")
    count = len(field)
    columns = min(2, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(10.0, 1.0 + 1.95 * rows))
    figure.suptitle(title, x=0.02, ha="left")
    for index, (now, values) in enumerate(zip(u.values, field, strict=True)):
        left, bottom, top = _cell(figure, index // columns, index % columns, rows, columns)
        left *= 0.9
        axes = _panel(figure, (left, bottom, 0.4, 0.85 * (top - bottom)), window)
        _Drawing(axes, body, norm, colours, "x").move(now, values.values, scale)
        time, words = clock[0] * float(u["time"][index]), _extent(values, norm, unit)
        figure.text(left, top, f"{time:.2f} {clock[1]}", va="top", fontweight="bold")
        figure.text(left + 0.4, top, words, va="top", ha="right", fontsize=9)
    _colour_bar(figure, (0.91, 0.25, 0.018, 0.5), norm, colours, field, unit)
    _legend(figure, body, scale)
    return figure


@styled
def animate_solid(
    body: "Body",
    u: xarray.DataArray,
    field: xarray.DataArray,
    title: str,
    *,
    scale: float | None = None,
    frames: int = 75,
    seconds: float = 4.0,
) -> Animation:
    """A vibrating body in slow motion, with one scale and one colour range.

    **Arguments:** `body`; `u` (time, node, axis), displacements [m], with a coordinate `time` in
    s; `field` (time, node) with the attributes `long_name` and `units`; `title`; `scale`, as for
    [`solid`][]; number of `frames`; `seconds`, its duration on the screen. The last
    picture is shown for a second.
    """
    scale = _scale(body, u.values) if scale is None else scale
    figure = Figure(figsize=(7.2, 4.0), dpi=100)
    canvas = FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.02, ha="left")
    axes = _panel(figure, (0.03, 0.17, 0.78, 0.72), _window(body, u.values, scale))
    norm, colours = _colours(field.values)
    drawing = _Drawing(axes, body, norm, colours, "xyz")
    _legend(figure, body, scale)
    unit = readable(norm.vmax, field.attrs["units"])
    _colour_bar(figure, (0.86, 0.22, 0.024, 0.58), norm, colours, field, unit)
    clock = figure.text(0.02, 0.93, "", va="top", fontsize=9.5)
    moving = [*drawing.moving, clock]
    for artist in moving:
        artist.set_animated(True)
    # Axes, labels and colour bar are drawn once, the rest for every frame.
    canvas.draw()
    background = canvas.copy_from_bbox(figure.bbox)
    begin, end = float(u["time"][0]), float(u["time"][-1])
    factor, second = readable(end, "s")
    shown = pace(seconds, end - begin)
    pictures = []
    for time in np.linspace(begin, end, frames):
        canvas.restore_region(background)
        drawing.move(_at(u, time), _at(field, time), scale)
        clock.set_text(f"t = {factor * time:6.2f} {second}   ({shown})")
        for artist in moving:
            figure.draw_artist(artist)
        pictures.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy()))
    return as_animation(pictures, seconds, colours=256)


class _Surface(NamedTuple):
    """The outer faces of a mesh, each with a grid of points on it.

    `shape` (faces, points, nodes of an element) interpolates to the points; `pieces` (q, corners)
    are the cells of the grid and `sides` (edges, s) the edges of the face, as indices of points;
    `corners` (faces, edges) are the nodes where the edges begin; `twins` (2, pairs) are the
    indices, over all faces, of coinciding edges.
    """

    cells: np.ndarray
    shape: np.ndarray
    pieces: np.ndarray
    sides: np.ndarray
    corners: np.ndarray
    twins: np.ndarray

    def at_points(self, values: np.ndarray) -> np.ndarray:
        """Values (faces, points, ...) from nodal values (n, ...)."""
        return np.einsum("fpn,fn...->fp...", self.shape, values[self.cells])


@functools.lru_cache(maxsize=8)
def outer_faces(topology: "Topology") -> _Surface:
    """The faces of a mesh of solids that belong to one element only."""
    element = topology.element
    edges = 4 if element.nodes.min() < 0 else 3
    local = np.array([face[:edges] for face in element.faces])
    every = topology.cells[:, local].reshape(-1, edges)
    _, first, count = np.unique(
        np.sort(every, axis=1), axis=0, return_index=True, return_counts=True
    )
    outer = np.sort(first[count == 1])
    cell, face = np.divmod(outer, len(local))
    # Few large faces get a finer grid than many small ones.
    cuts = int(np.clip(np.ceil(np.sqrt(2500 / len(outer))), 1, 6))
    weights, pieces, sides = _grid(edges, cuts)
    shape = np.stack([element.tabulate(weights @ element.nodes[face])[0] for face in local])
    corners = every[outer]
    ends = np.stack([corners, np.roll(corners, -1, axis=1)], axis=2).reshape(-1, 2)
    _, edge = np.unique(np.sort(ends, axis=1), axis=0, return_inverse=True)
    # On a closed surface every edge belongs to two faces.
    twins = np.argsort(edge.ravel(), kind="stable").reshape(-1, 2).T
    return _Surface(topology.cells[cell], shape[face], pieces, sides, corners, twins)


def _grid(edges: int, cuts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights (points, edges) of a face's corners, its pieces and the points of its edges."""
    step = np.arange(cuts + 1)
    if edges == 4:
        i, j = (a.ravel() for a in np.meshgrid(step, step, indexing="ij"))
        s, t = i / cuts, j / cuts
        weights = np.stack([(1 - s) * (1 - t), s * (1 - t), s * t, (1 - s) * t], axis=1)
        walks = [(step, 0), (cuts, step), (cuts - step, cuts), (0, cuts - step)]
        around = [[(0, 0), (1, 0), (1, 1), (0, 1)]]
    else:
        i, j = (a.ravel() for a in np.meshgrid(step, step, indexing="ij"))
        inside = i + j <= cuts
        i, j = i[inside], j[inside]
        weights = np.stack([cuts - i - j, i, j], axis=1) / cuts
        walks = [(step, 0), (cuts - step, step), (0, cuts - step)]
        around = [[(0, 0), (1, 0), (0, 1)], [(1, 0), (1, 1), (0, 1)]]
    number = {step: k for k, step in enumerate(zip(i.tolist(), j.tolist(), strict=True))}
    corners = [[(a + x, b + y) for x, y in piece] for a, b in number for piece in around]
    pieces = [[number[c] for c in piece] for piece in corners if all(c in number for c in piece)]
    sides = [
        [number[tuple(map(int, step))] for step in zip(*np.broadcast_arrays(*walk), strict=True)]
        for walk in walks
    ]
    return weights, np.array(pieces), np.array(sides)


class _Drawing:
    """A body on its axes; `move` updates its shape and colours."""

    def __init__(self, axes: Axes, body: "Body", norm: Normalize, colours: Colormap, rulers: str):
        self._nodes, self._surface = np.asarray(body.mesh.nodes), outer_faces(body.mesh.topology)
        self._norm, self._colours = norm, colours
        self._polygons = PolyCollection([], zorder=2, rasterized=True)
        self._edges = LineCollection([], colors="black", linewidths=0.9, zorder=3)
        # The undeformed outline does not move, but is drawn above the moving body.
        rest = LineCollection(
            _outline(self._surface, 1e3 * self._surface.at_points(self._nodes) @ _VIEW.T),
            zorder=4,
            **_REST,
        )
        self.moving = [self._polygons, self._edges, rest]
        for artist in self.moving:
            axes.add_collection(artist, autolim=False)
        _draw_supports(axes, body)
        for axis in rulers:
            _ruler(axes, self._nodes, "xyz".index(axis))

    def move(self, u: np.ndarray, values: np.ndarray, scale: float) -> None:
        """Show displacements (n, 3) [m] enlarged by a scale, coloured by values (n,)."""
        surface = self._surface
        positions = 1e3 * surface.at_points(self._nodes + scale * u) @ _VIEW.T
        self._edges.set_segments(_outline(surface, positions))
        rim = surface.sides[:, :-1].ravel()
        # A curved face may have pieces that face the eye and others that do not.
        facing = _areas(positions[..., :2][:, surface.pieces]) > 0.0
        faces = np.flatnonzero(facing.any(axis=1))
        # Painter's algorithm: faces farther from the eye are drawn first.
        faces = faces[np.argsort(positions[faces][..., 2].mean(axis=1), kind="stable")]
        positions, pieces = positions[faces, :, :2], surface.pieces
        fill = positions[:, pieces]
        # All polygons of a collection have equally many corners: the last one is repeated.
        more = max(len(rim) - pieces.shape[1], 0)
        fill = np.concatenate([fill, np.repeat(fill[:, :, -1:], more, axis=2)], axis=2)
        edge = positions[:, None, rim]
        self._polygons.set_verts(np.concatenate([fill, edge], axis=1).reshape(-1, len(rim), 2))
        shade = self._colours(self._norm(surface.at_points(values)[faces][:, pieces].mean(axis=2)))
        shade[..., 3] = facing[faces]
        n = len(faces)
        clear, line = np.zeros((n, 1, 4)), np.full((n, 1, 4), (0.0, 0.0, 0.0, 0.22))
        self._polygons.set_facecolor(np.concatenate([shade, clear], axis=1).reshape(-1, 4))
        self._polygons.set_edgecolor(np.concatenate([shade, line], axis=1).reshape(-1, 4))
        self._polygons.set_linewidth(0.5)


def _areas(polygons: np.ndarray) -> np.ndarray:
    """Areas of plane polygons (..., corners, 2), positive counter-clockwise."""
    x, y = np.moveaxis(polygons, -1, 0)
    return 0.5 * np.sum(x * np.roll(y, -1, -1) - y * np.roll(x, -1, -1), axis=-1)


def _outline(surface: _Surface, positions: np.ndarray) -> np.ndarray:
    """Edges (lines, points, 2) of visible faces where they meet others at an angle or hidden ones.

    `positions` (faces, points, 3) in view axes.
    """
    corner = positions[:, surface.sides[:, 0]]
    normal = np.cross(corner[:, 2] - corner[:, 0], corner[:, -1] - corner[:, 1])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    first, second = surface.twins
    a, b = (normal[half // len(surface.sides)] for half in (first, second))
    sharp = (a * b).sum(axis=1) < np.cos(np.deg2rad(50.0))
    seen = np.maximum(a[:, 2], b[:, 2]) > 0.0
    rim = np.minimum(a[:, 2], b[:, 2]) <= 0.0
    lines = positions[:, surface.sides, :2].reshape(-1, surface.sides.shape[1], 2)
    return lines[first[seen & (sharp | rim)]]


def _draw_supports(axes: Axes, body: "Body") -> None:
    """A wall behind a flat clamped face, else dots on fixed nodes."""
    nodes = np.asarray(body.mesh.nodes)
    wall = _wall(body)
    if wall is not None:
        corners, faces_eye = wall
        look = {**_WALL, "facecolor": "none"} if faces_eye else _WALL
        axes.add_patch(Polygon(corners[:, :2], zorder=4 if faces_eye else 1, **look))
        return
    fixed = (1e3 * nodes[~body.free.any(axis=1)] @ _VIEW.T)[:, :2]
    axes.plot(*fixed.T, "o", color="black", markersize=2.5, zorder=4)


def _wall(body: "Body") -> tuple[np.ndarray, bool] | None:
    """Corners (4, 3) in mm, in view axes, of a wall at the clamped face, if it is flat."""
    surface, nodes = outer_faces(body.mesh.topology), np.asarray(body.mesh.nodes)
    fixed = ~body.free.any(axis=1)
    clamped = fixed[surface.corners].all(axis=1)
    if not clamped.any():
        return None
    points = 1e3 * nodes[surface.corners[clamped]].reshape(-1, 3)
    centre = points.mean(axis=0)
    _, size, axes = np.linalg.svd(points - centre, full_matrices=False)
    if size[2] > 1e-6 * size[0]:
        return None
    # The principal axes of a square are undetermined: sides along an axis look best.
    normal = axes[2]
    across = np.eye(3)[np.argmin(np.abs(normal))]
    first = np.cross(normal, across)
    first /= np.linalg.norm(first)
    plane = np.stack([first, np.cross(normal, first)])
    local = (points - centre) @ plane.T
    low, high = local.min(axis=0), local.max(axis=0)
    room = 0.25 * np.max(high - low)
    (a, b), (c, d) = low - room, high + room
    corners = centre + np.array([[a, b], [c, b], [c, d], [a, d]]) @ plane
    inside = 1e3 * nodes.mean(axis=0) - centre
    return corners @ _VIEW.T, bool((_VIEW[2] @ normal) * (normal @ inside) < 0.0)


def _ruler(axes: Axes, nodes: np.ndarray, k: int) -> None:
    """A scale along a visible edge of the box around a body."""
    low, high = 1e3 * nodes.min(axis=0), 1e3 * nodes.max(axis=0)
    # Edges on the rim of the picture: x in front below, y below and z behind at the right end.
    begin = np.array(
        [(low[0], low[1], low[2]), (high[0], low[1], low[2]), (high[0], high[1], low[2])][k]
    )
    end = begin.copy()
    end[k] = high[k]
    a, b = (begin @ _VIEW.T)[:2], (end @ _VIEW.T)[:2]
    along = (b - a) / np.linalg.norm(b - a)
    out = np.array([along[1], -along[0]])
    size = np.linalg.norm(high - low)
    gap = 0.025 * size

    def at(value: float, distance: float) -> np.ndarray:
        share = (value - low[k]) / (high[k] - low[k])
        return a + share * (b - a) + distance * out

    look = {"color": GREY, "linewidth": 0.9, "zorder": 1, "clip_on": False}
    axes.plot(*np.stack([at(low[k], gap), at(high[k], gap)]).T, **look)
    wanted = max(2, round(7 * np.linalg.norm(b - a) / size))
    factor, unit = readable(float(np.ptp(nodes, axis=0).max()), "m")
    # The picture is in mm.
    factor *= 1e-3
    ticks = MaxNLocator(wanted, steps=[1, 2, 4, 5, 10]).tick_values(low[k], high[k])
    text = {"ha": "center", "va": "center", "fontsize": 9, "color": "#505050", "clip_on": False}
    text["bbox"] = {"boxstyle": "square,pad=0.05", "color": "white", "alpha": 0.8, "linewidth": 0}
    for tick in ticks[(ticks >= low[k] - 1e-9) & (ticks <= high[k] + 1e-9)]:
        axes.plot(*np.stack([at(tick, gap), at(tick, 1.5 * gap)]).T, **look)
        axes.text(*at(tick, 2.6 * gap), _minus(f"{factor * tick:g}"), **text)
    middle, top = at((low[k] + high[k]) / 2, (4.6, 5.6, 0.0)[k] * gap), at(high[k], 2.0 * gap)
    position = top + 2.2 * gap * along if k == 2 else middle
    axes.text(*position, f"{'xyz'[k]} [{unit}]", **text)


def _panel(figure: Figure, box: Sequence[float], window: np.ndarray) -> Axes:
    """Axes without a frame that show a window (2, 2), lower and upper corner in mm."""
    axes = figure.add_axes(box)
    axes.set(xlim=window[:, 0], ylim=window[:, 1], aspect="equal")
    axes.set_axis_off()
    return axes


def _cell(figure: Figure, row: int, column: int, rows: int, columns: int) -> tuple:
    """Left, bottom and top of a cell in a table of panels, without title and legend."""
    inch = 1.0 / figure.get_figheight()
    top, bottom = 1.0 - 0.45 * inch, 0.42 * inch
    height = (top - bottom) / rows
    above = top - row * height
    return 0.02 + column / columns, above - 0.96 * height, above


def _window(body: "Body", u: Iterable[np.ndarray], scale: float) -> np.ndarray:
    """Lower and upper corner [mm] around all positions of a body, with space for the rulers."""
    nodes = np.asarray(body.mesh.nodes)
    shown = np.unique(outer_faces(body.mesh.topology).corners)
    points = [nodes[shown], *((nodes + scale * now)[shown] for now in u)]
    low, high = np.full(2, np.inf), np.full(2, -np.inf)
    for one in points:
        seen = (1e3 * one @ _VIEW.T)[:, :2]
        low, high = np.minimum(low, seen.min(axis=0)), np.maximum(high, seen.max(axis=0))
    wall = _wall(body)
    if wall is not None:
        seen = wall[0][:, :2]
        low, high = np.minimum(low, seen.min(axis=0)), np.maximum(high, seen.max(axis=0))
    size = 1e3 * np.linalg.norm(np.ptp(nodes, axis=0))
    return np.stack([low - 0.02 * size, high + 0.02 * size]) + size * np.array(
        [[0.0, -0.06], [0.1, 0.0]]
    )


def _scale(body: "Body", u: np.ndarray) -> float:
    """A round number that makes the largest displacement a tenth of the body's size."""
    nodes = np.asarray(body.mesh.nodes)
    most = np.sqrt(np.max(np.sum(np.square(u), axis=-1)))
    if most == 0.0:
        return 1.0
    wanted = 0.1 * np.linalg.norm(np.ptp(nodes, axis=0)) / most
    power = 10.0 ** np.floor(np.log10(wanted))
    return float(power * max(step for step in (1.0, 2.0, 5.0) if step * power <= wanted))


def _colours(values: np.ndarray) -> tuple[Normalize, Colormap]:
    """A range from zero, or about zero where both signs occur."""
    most = float(np.max(np.abs(values))) or 1.0
    if np.min(values) >= -1e-9 * most:
        return Normalize(0.0, most), matplotlib.colormaps["viridis"]
    return _about_zero(values)


def _about_zero(values: np.ndarray, least: float = 0.0) -> tuple[Normalize, Colormap]:
    most = max(float(np.max(np.abs(values))), least) or 1.0
    return Normalize(-most, most), matplotlib.colormaps["RdBu_r"]


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _extent(field: xarray.DataArray, norm: Normalize, shown: tuple[float, str]) -> str:
    """The largest value in words, with the smallest where both signs occur."""
    factor, unit = shown
    values = factor * field.values
    digits = int(np.clip(2 - np.floor(np.log10(factor * norm.vmax)), 0, 99))
    written = f".{digits}f" if digits < 6 else ".1e"
    low, high = (f"{value:{written}}" for value in (values.min(), values.max()))
    unit = f"× {unit}" if field.attrs["units"] == "1" and unit else unit
    words = f"largest {high} {unit}" if norm.vmin == 0.0 else f"{low} to {high} {unit}"
    return _minus(words)


def _colour_bar(
    figure: Figure,
    box: Sequence[float],
    norm: Normalize,
    colours: Colormap,
    field: xarray.DataArray,
    shown: tuple[float, str],
    *,
    named: bool = True,
) -> None:
    factor, unit = shown
    scaled = Normalize(norm.vmin * factor, norm.vmax * factor)
    bar = figure.colorbar(
        matplotlib.cm.ScalarMappable(scaled, colours),
        cax=figure.add_axes(box),
        ticks=MaxNLocator(6 if named else 4, steps=[1, 2, 4, 5, 10]),
        # An offset text with a power of ten would cover the unit.
        format=FuncFormatter(lambda value, _: _minus(f"{value:g}")),
    )
    bar.outline.set_linewidth(0.5)
    bar.ax.grid(visible=False)
    name = field.attrs.get("long_name", field.name)
    unit = f"[{unit}]" if unit else ""
    if named:
        bar.set_label(f"{name} {unit}")
    else:
        bar.ax.set_title(unit, fontsize=9, loc="left")
        bar.ax.tick_params(labelsize=9)


def _legend(figure: Figure, body: "Body", scale: float) -> None:
    """Enlargement of displacements, and the meaning of line and wall."""
    handles = [Line2D([], [], color="#808080", linewidth=0.9, linestyle=(0, (4, 3)))]
    words = [f"undeformed; displacements enlarged {scale:g} times"]
    if _wall(body) is not None:
        handles.append(Patch(**_WALL))
        words.append("clamped")
    elif not body.free.all():
        handles.append(Line2D([], [], color="black", marker="o", markersize=2.5, linestyle="none"))
        words.append("fixed")
    figure.legend(handles, words, loc="lower right", ncols=2, fontsize=9)


def _at(array: xarray.DataArray, time: float) -> np.ndarray:
    """Values at a time, linear between the given ones."""
    times = array["time"].values
    right = int(np.clip(np.searchsorted(times, time), 1, len(times) - 1))
    share = (time - times[right - 1]) / (times[right] - times[right - 1])
    return (1.0 - share) * array.values[right - 1] + share * array.values[right]
