"""Frame structures in space: undeformed grey, deformed and coloured by force or stress."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from mpl_toolkits.mplot3d.art3d import Line3DCollection, Poly3DCollection
from mpl_toolkits.mplot3d.axes3d import Axes3D
from PIL import Image

from jaxgrip.checks import brief
from jaxgrip.fem.structures import Bars, Beams, RigidLinks
from jaxgrip.fem.structures.loads import Load, NodalForce, as_loads
from jaxgrip.viz._mechanism import Animation, as_animation
from jaxgrip.viz._solid import outer_faces
from jaxgrip.viz.style import GREY, readable, styled

if TYPE_CHECKING:
    from jaxgrip.fem.structures import Solution

# Compression, zero, tension: the middle must be visible on white.
_SIGNED = LinearSegmentedColormap.from_list("signed", ["#0072B2", "#B5B5B5", "#D55E00"])
_POINTS = 13


@styled
def frame(
    solution: "Solution",
    title: str,
    *,
    quantity: str = "force",
    scale: float | None = None,
    loads: Load | Iterable[Load] = (),
) -> Figure:
    """A structure deformed and coloured, over its undeformed shape.

    **Arguments:** `solution`; `title`; `quantity`, `"force"`, the normal force, or `"stress"`, the
    largest of N/A ± M/W in magnitude; `scale`, the enlargement of displacements: when not given, a
    round number that makes them visible; `loads`, whose forces are drawn as arrows.
    """
    drawing = _Drawing.of(solution, quantity)
    scale = _round_scale(drawing) if scale is None else scale
    figure = Figure(figsize=(8.0, 6.0))
    figure.suptitle(title, x=0.02, ha="left")
    axes = _space(figure, [drawing], scale)
    norm = _norm([drawing])
    _draw(axes, drawing, norm, scale)
    nodal = [load for load in as_loads(loads) if isinstance(load, NodalForce)]
    amounts = [float(np.linalg.norm(load.force)) for load in nodal]
    # Member forces and loads share one unit.
    most = max([*amounts, norm.vmax if quantity == "force" else 0.0])
    for load in nodal:
        _arrow(axes, solution, load, drawing.size, scale, readable(most, "N"))
    unit = readable(most, "N") if quantity == "force" else readable(norm.vmax, "Pa")
    _explain(figure, norm, quantity, scale, drawing, unit)
    return figure


@styled
def animate_frame(
    solutions: Sequence["Solution"],
    labels: Sequence[str],
    title: str,
    *,
    quantity: str = "force",
    scale: float | None = None,
    seconds: float = 4.0,
) -> Animation:
    """A deformed structure in successive positions, with one colour scale.

    **Arguments:** `solutions` with their `labels`, such as angles; `title`; `quantity` and `scale`
    as in `frame`; `seconds`, its duration.
    """
    drawings = [_Drawing.of(solution, quantity) for solution in solutions]
    scale = min(map(_round_scale, drawings)) if scale is None else scale
    norm = _norm(drawings)
    unit = readable(norm.vmax, {"force": "N", "stress": "Pa"}[quantity])
    pictures = []
    for drawing, label in zip(drawings, labels, strict=True):
        figure = Figure(figsize=(7.2, 5.4), dpi=90)
        canvas = FigureCanvasAgg(figure)
        figure.suptitle(title, x=0.02, ha="left")
        axes = _space(figure, drawings, scale)
        _draw(axes, drawing, norm, scale)
        _explain(figure, norm, quantity, scale, drawing, unit)
        figure.text(0.98, 0.97, label, ha="right", va="top", fontsize=13)
        canvas.draw()
        pictures.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy()))
    return as_animation(pictures, seconds)


class _Drawing(NamedTuple):
    """Lines (l, p, 3) undeformed, their displacements, and values (l, p) [N or Pa].

    `slack` and `rigid` are lines (l, 2, 3) with displacements; `faces` of solids (f, v, 3) with
    theirs; `supports` are positions.
    """

    lines: np.ndarray
    moved: np.ndarray
    values: np.ndarray
    slack: tuple[np.ndarray, np.ndarray]
    rigid: tuple[np.ndarray, np.ndarray]
    faces: list[tuple[np.ndarray, np.ndarray]]
    supports: np.ndarray

    @property
    def size(self) -> float:
        """Largest extent [m]."""
        return float(np.ptp(self.points(0.0), axis=0).max())

    def points(self, scale: float) -> np.ndarray:
        """All positions (n, 3), with enlarged displacements."""
        shapes = [(self.lines, self.moved), *self.faces]
        return np.concatenate([(x + scale * u).reshape(-1, 3) for x, u in shapes])

    @classmethod
    def of(cls, solution: "Solution", quantity: str) -> "_Drawing":
        if quantity not in ("force", "stress"):
            raise ValueError(f"The quantity is {brief(quantity)}; it must be 'force' or 'stress'.")
        structure = solution.structure
        nodes = np.asarray(structure.places(solution.poses))
        count = len(structure.layout.root)
        u = np.zeros((len(nodes), 6))
        u[:count] = solution.displacements
        lines, moved, values, slack, rigid = [], [], [], [], []
        faces = []
        for name, offset in zip(structure.names, structure.layout.offsets, strict=True):
            result, beams, bars = solution.part(name), 0, 0
            for group in structure.frames[name].elements:
                if not isinstance(group, Beams | Bars | RigidLinks):
                    continue
                ends = offset + group.ends.array
                if isinstance(group, Beams):
                    own = slice(beams, beams + len(ends))
                    beams += len(ends)
                    value = np.asarray(result.beam_forces[own, :, 0])
                    if quantity == "stress":
                        value = _larger(np.asarray(result.beam_stresses[own]))
                    lines.append(_straight(nodes[ends]))
                    moved.append(_bent(nodes[ends], u[ends]))
                    values.append(np.linspace(value[:, 0], value[:, 1], _POINTS, axis=1))
                elif isinstance(group, Bars):
                    force = np.asarray(result.bar_forces[bars : bars + len(ends)])
                    bars += len(ends)
                    loose = (force == 0) & group.kind.tension_only
                    area = getattr(group.kind, "A", np.nan) if quantity == "stress" else 1.0
                    _add(lines, moved, values, slack, nodes, u, ends, force / area, loose)
                else:
                    rigid.append((nodes[ends], u[ends, :3]))
        origins, rotations = map(np.asarray, (solution.poses.position, solution.poses.rotation))
        for (own, solid), inner in zip(structure.solids, solution.solids, strict=True):
            mesh, body = solid.body.mesh, structure.layout.body[own[0]]
            turn, corners = rotations[body].T, outer_faces(mesh.topology).corners
            x = origins[body] + np.asarray(mesh.nodes) @ turn
            faces.append((x[corners], (np.asarray(inner) @ turn)[corners]))
        for span in structure.layout.spans:
            force = np.asarray(solution.tie(span.name))[None]
            loose = (force == 0) & span.tension_only
            kind = structure.transfer.get(span.name) or structure.ties[span.name].kind
            area = getattr(kind, "A", np.nan) if quantity == "stress" else 1.0
            _add(lines, moved, values, slack, nodes, u, np.array([span.ends]), force / area, loose)
        tied = [s for b in structure.layout.blocks for side in b.stations for s in side]
        tied += [s for span in structure.layout.spans for s in span.ends]
        supported = [s for b in structure.layout.blocks if b.kind == "support" for s, _ in b.fixed]
        supports = nodes[sorted({s for s in tied if s >= count} | set(supported))]
        return cls(
            np.concatenate([np.zeros((0, _POINTS, 3)), *lines]),
            np.concatenate([np.zeros((0, _POINTS, 3)), *moved]),
            np.concatenate([np.zeros((0, _POINTS)), *values]),
            _pair(slack),
            _pair(rigid),
            faces,
            supports,
        )


def _add(lines, moved, values, slack, nodes, u, ends, value, loose) -> None:
    lines.append(_straight(nodes[ends[~loose]]))
    moved.append(_straight(u[ends[~loose], :3]))
    values.append(np.repeat(value[~loose, None], _POINTS, axis=1))
    if loose.any():
        slack.append((nodes[ends[loose]], u[ends[loose], :3]))


def _pair(found: list) -> tuple[np.ndarray, np.ndarray]:
    found = [*found, (np.zeros((0, 2, 3)), np.zeros((0, 2, 3)))]
    return np.concatenate([x for x, _ in found]), np.concatenate([u for _, u in found])


def _larger(stress: np.ndarray) -> np.ndarray:
    """The least or greatest stress (m, 2, 2), whichever is larger in magnitude."""
    low, high = stress[..., 0], stress[..., 1]
    return np.where(np.abs(low) > np.abs(high), low, high)


def _straight(ends: np.ndarray) -> np.ndarray:
    """Points (m, p, 3) along lines (m, 2, 3)."""
    return np.linspace(ends[:, 0], ends[:, 1], _POINTS, axis=1)


def _bent(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Displacements along beams by cubic Hermite interpolation."""
    s = np.linspace(0, 1, _POINTS)[None, :, None]
    span = x[:, 1] - x[:, 0]
    along = (span / np.linalg.norm(span, axis=1, keepdims=True))[:, None]
    slopes = np.cross(u[..., 3:], span[:, None])
    slopes = [slopes[:, None, end] for end in range(2)]
    ends = [u[:, None, end, :3] for end in range(2)]
    cubic = ends[0] * (1 - 3 * s**2 + 2 * s**3) + ends[1] * (3 * s**2 - 2 * s**3)
    cubic = cubic + slopes[0] * (s - 2 * s**2 + s**3) + slopes[1] * (s**3 - s**2)
    linear = ends[0] * (1 - s) + ends[1] * s
    return cubic + np.sum((linear - cubic) * along, axis=2, keepdims=True) * along


def _round_scale(drawing: _Drawing) -> float:
    """A round factor that makes the largest displacement about a twentieth of the size."""
    largest = np.linalg.norm(drawing.points(1.0) - drawing.points(0.0), axis=1).max()
    if largest == 0:
        return 1.0
    wanted = 0.06 * drawing.size / largest
    power = 10.0 ** np.floor(np.log10(wanted))
    return float(power * max(k for k in (1, 2, 5) if k * power <= wanted))


def _norm(drawings: Sequence[_Drawing]) -> Normalize:
    largest = max(np.nanmax(np.abs(drawing.values), initial=1e-12) for drawing in drawings)
    return Normalize(-largest, largest)


def _space(figure: Figure, drawings: Sequence[_Drawing], scale: float) -> Axes3D:
    axes = figure.add_axes((0.0, 0.04, 0.84, 0.84), projection="3d")
    axes.computed_zorder = False
    axes.set_proj_type("ortho")
    points = np.concatenate([d.points(s) for d in drawings for s in (0.0, scale)])
    low, high = points.min(axis=0), points.max(axis=0)
    middle, size = (low + high) / 2, high - low
    size = np.maximum(1.06 * size, 0.2 * size.max())
    low, high = middle - size / 2, middle + size / 2
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]))
    axes.set_box_aspect(tuple(size), zoom=1.0)
    axes.view_init(elev=18, azim=-66)
    factor, unit = readable(size.max(), "m")
    axes.set(xlabel=f"x [{unit}]", ylabel=f"y [{unit}]", zlabel=f"z [{unit}]")
    for axis, extent in zip((axes.xaxis, axes.yaxis, axes.zaxis), size, strict=True):
        axis.set_major_formatter(lambda value, _: f"{factor * value:g}".replace("-", "−"))
        axis.set_pane_color((0.98, 0.98, 0.98, 1.0))
        wanted = max(2, round(7 * extent / size.max()))
        axis.set_major_locator(MaxNLocator(wanted, steps=[1, 2, 5, 10], min_n_ticks=2))
    return axes


def _draw(axes: Axes3D, drawing: _Drawing, norm: Normalize, scale: float) -> None:
    if len(drawing.lines):
        rest = drawing.lines[:, [0, -1]]
        axes.add_collection3d(Line3DCollection(rest, colors="#BDBDBD", linewidths=1.2, zorder=1))
        shape = drawing.lines + scale * drawing.moved
        pieces = np.stack([shape[:, :-1], shape[:, 1:]], axis=2).reshape(-1, 2, 3)
        values = ((drawing.values[:, :-1] + drawing.values[:, 1:]) / 2).reshape(-1)
        colours = _SIGNED(norm(np.nan_to_num(values)))
        colours[np.isnan(values)] = matplotlib.colors.to_rgba(GREY)
        axes.add_collection3d(
            Line3DCollection(pieces, colors=colours, linewidths=3.2, capstyle="round", zorder=3)
        )
    for (x, u), look in (
        (drawing.rigid, {"colors": "black", "linewidths": 1.6, "zorder": 2}),
        (drawing.slack, {"colors": GREY, "linewidths": 1.2, "linestyles": "--", "zorder": 2}),
    ):
        if len(x):
            axes.add_collection3d(Line3DCollection(x + scale * u, **look))
    for x, u in drawing.faces:
        axes.add_collection3d(
            Poly3DCollection(
                x + scale * u, facecolors=(0.8, 0.8, 0.8, 0.35), edgecolors=GREY, linewidths=0.4
            )
        )
    axes.plot(*drawing.supports.T, "^", color="black", markersize=7, linestyle="none", zorder=10)


def _arrow(
    axes: Axes3D,
    solution: "Solution",
    load: NodalForce,
    size: float,
    scale: float,
    unit: tuple[float, str],
) -> None:
    node = solution.structure.node(load.place)
    position = np.asarray(solution.structure.places(solution.poses)[node])
    position = position + scale * np.asarray(solution.displacements[node, :3])
    force = np.asarray(load.force)
    amount = np.linalg.norm(force)
    if amount == 0:
        return
    tail = position - 0.12 * size * force / amount
    arrow = position - tail
    axes.quiver(*tail, *arrow, color="black", linewidth=1.6, arrow_length_ratio=0.3, zorder=5)
    axes.text(*tail, f" {unit[0] * amount:.4g} {unit[1]}", va="bottom", ha="left")


def _explain(
    figure: Figure,
    norm: Normalize,
    quantity: str,
    scale: float,
    drawing: _Drawing,
    unit: tuple[float, str],
) -> None:
    factor, name = unit
    label = {
        "force": f"normal force [{name}]: compression −, tension +",
        "stress": f"largest stress, of normal force and bending [{name}]",
    }[quantity]
    scaled = Normalize(factor * norm.vmin, factor * norm.vmax)
    mappable = matplotlib.cm.ScalarMappable(scaled, _SIGNED)
    figure.colorbar(mappable, cax=figure.add_axes((0.85, 0.2, 0.02, 0.56)), label=label)
    shown = "deformed" if scale == 1 else f"deformed, enlarged {scale:g} times"
    handles = [
        Line2D([], [], color="#BDBDBD", linewidth=1.2, label="undeformed"),
        Line2D([], [], color=_SIGNED(0.9), linewidth=3.2, label=shown),
    ]
    if np.isnan(drawing.values).any():
        handles.append(Line2D([], [], color=GREY, linewidth=3.2, label="no area given"))
    if len(drawing.rigid[0]):
        handles.append(Line2D([], [], color="black", linewidth=1.6, label="rigid"))
    if len(drawing.slack[0]):
        handles.append(Line2D([], [], color=GREY, linestyle="--", label="slack rope"))
    if len(drawing.supports):
        handles.append(Line2D([], [], color="black", marker="^", linestyle="none", label="support"))
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.01, 0.94), ncols=5)
