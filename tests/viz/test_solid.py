import io
import itertools

import numpy as np
import pytest
import xarray
from matplotlib.collections import PolyCollection
from PIL import Image
from scipy.spatial import ConvexHull

from jaxgrip import fem, viz

ALUMINIUM = fem.Isotropic(7.22e10, 0.34, 2700.0)


@pytest.fixture
def body():
    return fem.Body(fem.box_mesh(0.06, 0.01, 0.01, 6, 2, 2), ALUMINIUM, clamp="x0")


def _field(values, name="von Mises stress", units="Pa"):
    return xarray.DataArray(
        np.asarray(values), dims=("node",), attrs={"long_name": name, "units": units}
    )


def _polygons(axes):
    """Corners and colours of what is filled."""
    (drawn,) = (c for c in axes.collections if isinstance(c, PolyCollection))
    colours = drawn.get_facecolor()
    filled = colours[:, 3] > 0.0
    corners = np.stack([path.vertices[:-1] for path in drawn.get_paths()])
    return corners[filled], colours[filled]


def _area(corners):
    x, y = np.moveaxis(corners, -1, 0)
    return 0.5 * np.sum(x * np.roll(y, -1, -1) - y * np.roll(x, -1, -1))


@pytest.mark.parametrize(
    "mesh",
    [
        fem.box_mesh(0.06, 0.01, 0.01, 6, 2, 2),
        fem.box_mesh(0.06, 0.01, 0.01, 3, 1, 1, element=fem.Hex27()),
        fem.box_mesh(0.06, 0.01, 0.01, 3, 2, 2, element=fem.Tet10()),
        fem.cylinder_mesh(0.06, 0.005, 6, 4),
        fem.cylinder_mesh(0.06, 0.005, 6, 2, element=fem.Tet4()),
    ],
    ids=["hex8", "hex27", "tet10", "cylinder", "tet4"],
)
def test_exactly_what_the_eye_sees_of_a_convex_body_is_drawn(mesh):
    body = fem.Body(mesh, ALUMINIUM, clamp="x0")
    u = np.zeros(mesh.nodes.shape)
    figure = viz.solid(body, u, _field(np.arange(len(u))), "Body")
    corners, _ = _polygons(figure.axes[0])
    hull = ConvexHull(corners.reshape(-1, 2))
    np.testing.assert_allclose(_area(corners), hull.volume, rtol=1e-9)


def test_displacements_are_enlarged_by_the_stated_scale(body):
    u = np.zeros(body.mesh.nodes.shape)
    shift = np.array([1e-6, -2e-6, 3e-6])
    field = _field(np.linspace(0.0, 5e6, len(u)))
    rest, _ = _polygons(viz.solid(body, u, field, "Body", scale=100.0).axes[0])
    figure = viz.solid(body, u + shift, field, "Body", scale=100.0)
    moved, _ = _polygons(figure.axes[0])
    a, e = np.deg2rad(-62.0), np.deg2rad(24.0)
    view = [
        [-np.sin(a), np.cos(a), 0.0],
        [-np.sin(e) * np.cos(a), -np.sin(e) * np.sin(a), np.cos(e)],
    ]
    expected = np.broadcast_to(1e3 * 100.0 * np.array(view) @ shift, moved.shape)
    np.testing.assert_allclose(moved - rest, expected, atol=1e-9)
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert words == ["undeformed; displacements enlarged 100 times", "clamped"]
    # A tenth of the diagonal, rounded down to 1, 2 or 5 times a power of ten.
    assert np.sqrt(14) * 1e-6 * 1000.0 < 0.1 * np.sqrt(0.06**2 + 2e-4) < np.sqrt(14) * 1e-6 * 2000.0
    automatic = viz.solid(body, u + shift, field, "Body").legends[0].get_texts()[0].get_text()
    assert "enlarged 1000 times" in automatic


def test_colours_have_units_that_can_be_read_and_keep_zero(body):
    n = len(body.mesh.nodes)
    zero = np.zeros((n, 3))
    bar = viz.solid(body, zero, _field(np.linspace(0.0, 5e6, n)), "Body").axes[1]
    assert bar.get_ylabel() == "von Mises stress [MPa]"
    assert bar.get_ylim() == (0.0, pytest.approx(5.0))
    signed = viz.solid(body, zero, _field(np.linspace(-2e-5, 1e-5, n), "strain", "1"), "Body")
    assert signed.axes[1].get_ylabel() == "strain [10⁻⁶]"
    assert signed.axes[1].get_ylim() == (pytest.approx(-20.0), pytest.approx(20.0))
    assert "−20.0 to 10.0 × 10⁻⁶" in [text.get_text() for text in signed.texts]


def test_what_is_nearer_to_the_eye_covers_what_is_behind():
    """Two cubes, one behind the other; the nearer one is listed first."""
    a, e = np.deg2rad(-62.0), np.deg2rad(24.0)
    behind = -0.04 * np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
    cube = fem.box_mesh(0.01, 0.01, 0.01, 1, 1, 1)
    x = np.asarray(cube.nodes)
    cells = cube.topology.cells
    both = fem.mesh(np.concatenate([x, x + behind]), np.concatenate([cells, cells + 8]), fem.Hex8())
    body = fem.Body(both, ALUMINIUM)
    field = _field(np.repeat([1.0, 0.0], 8))
    corners, colours = _polygons(viz.solid(body, np.zeros((16, 3)), field, "Cubes").axes[0])
    half = len(corners) // 2
    np.testing.assert_allclose(corners[:half], corners[half:], atol=1e-9)
    yellow, violet = (253 / 255, 231 / 255, 37 / 255), (68 / 255, 1 / 255, 84 / 255)
    np.testing.assert_allclose(colours[:half, :3], np.broadcast_to(violet, (half, 3)), atol=0.01)
    np.testing.assert_allclose(colours[half:, :3], np.broadcast_to(yellow, (half, 3)), atol=0.01)


def test_components_have_a_panel_each(body):
    n = len(body.mesh.nodes)
    names = ["xx", "yy", "zz", "xy", "yz", "zx"]
    field = xarray.DataArray(
        np.linspace(-1.0, 1.0, n)[:, None] * 10.0 ** np.arange(6),
        {"component": names},
        ("node", "component"),
        attrs={"long_name": "stress", "units": "Pa"},
    )
    field[:, 5] = np.abs(field[:, 5])
    figure = viz.solid_components(body, np.zeros((n, 3)), field, "Stress")
    panels, bars = figure.axes[::2], figure.axes[1::2]
    assert len(panels) == len(bars) == 6
    limits = [float(f"{bar.get_ylim()[1]:.6g}") for bar in bars]
    assert limits == [0.001, 0.01, 0.1, 1.0, 10.0, 100.0]
    # Also where a component happens to have one sign only.
    assert [bar.get_ylim()[0] for bar in bars] == [-bar.get_ylim()[1] for bar in bars]
    units = [bar.get_title(loc="left") for bar in bars]
    assert units == ["[kPa]"] * 6
    extents = [text.get_text() for text in figure.texts if "kPa" in text.get_text()]
    assert extents[0] == "−0.00100 to 0.00100 kPa"
    assert extents[4] == "−10.0 to 10.0 kPa"
    # The unit stands where matplotlib would put a power of ten.
    figure.draw_without_rendering()
    assert not any(bar.yaxis.get_offset_text().get_text() for bar in bars)
    assert [t.get_text() for t in figure.texts if t.get_fontweight() == "bold"] == names


@pytest.fixture
def vibration(body):
    time = np.linspace(0.0, 0.01, 21)
    x = np.asarray(body.mesh.nodes)[:, 0]
    tip = np.zeros((len(x), 3))
    tip[:, 2] = 1e-5 * (x / 0.06) ** 2
    values = np.sin(2 * np.pi * time / 0.01)[:, None, None] * tip
    u = xarray.DataArray(values, {"time": time}, ("time", "node", "axis"))
    size = xarray.DataArray(np.linalg.norm(values, axis=-1), {"time": time}, ("time", "node"))
    return u, size.assign_attrs(long_name="displacement |U|", units="m")


def test_series_has_one_scale_for_all_times(body, vibration):
    u, size = vibration
    figure = viz.solid_series(body, u[[0, 2, 5]], size[[0, 2, 5]], "Vibration")
    *panels, bar = figure.axes
    assert len(panels) == 3
    assert bar.get_ylim()[1] == pytest.approx(10.0)
    assert len({(panel.get_xlim(), panel.get_ylim()) for panel in panels}) == 1
    written = [text.get_text() for text in figure.texts]
    assert [w for w in written if w.endswith("ms")] == ["0.00 ms", "1.00 ms", "2.50 ms"]
    assert [w for w in written if w.startswith("largest")] == [
        "largest 0.0 µm",
        f"largest {10.0 * np.sin(0.2 * np.pi):.1f} µm",
        "largest 10.0 µm",
    ]


def test_animation_moves_and_holds_the_end(body, vibration):
    animation = viz.animate_solid(body, *vibration, "Vibration", frames=9, seconds=1.8)
    assert animation.durations == (*[200] * 8, 1000)
    pictures = [np.asarray(frame.convert("RGB")).astype(int) for frame in animation.frames]
    assert min(np.abs(b - a).sum() for a, b in itertools.pairwise(pictures)) > 0
    # Half a period apart the body is bent to either side, a period apart it is the same.
    upper, lower = (np.abs(pictures[k] - pictures[0])[80:].sum() for k in (2, 6))
    assert min(upper, lower) > 20 * np.abs(pictures[8] - pictures[0])[80:].sum()


def test_a_saved_picture_has_its_size(body):
    n = len(body.mesh.nodes)
    buffer = io.BytesIO()
    viz.solid(body, np.zeros((n, 3)), _field(np.zeros(n)), "Body").savefig(buffer, format="png")
    assert Image.open(buffer).size == (1040, 546)


def test_a_component_that_is_rounding_alone_is_drawn_as_zero(body):
    n = len(body.mesh.nodes)
    values = np.linspace(-1.0, 1.0, n)[:, None] * [5e6, 1e-8]
    field = xarray.DataArray(
        values,
        {"component": ["xx", "xy"]},
        ("node", "component"),
        attrs={"long_name": "stress", "units": "Pa"},
    )
    panels = viz.solid_components(body, np.zeros((n, 3)), field, "Stress").axes[::2]
    ranges = [np.ptp(_polygons(panel)[1][:, 0]) for panel in panels]
    assert ranges[0] > 0.3
    assert ranges[1] < 0.02


@pytest.mark.parametrize(("length", "unit", "end"), [(0.06, "mm", "60"), (12.0, "m", "12")])
def test_rulers_are_in_a_unit_that_fits(length, unit, end):
    body = fem.Body(fem.box_mesh(length, length / 6, length / 6, 6, 2, 2), ALUMINIUM, clamp="x0")
    n = len(body.mesh.nodes)
    words = [
        text.get_text()
        for text in viz.solid(body, np.zeros((n, 3)), _field(np.zeros(n)), "Body").axes[0].texts
    ]
    assert [word for word in words if "[" in word] == [f"{axis} [{unit}]" for axis in "xyz"]
    assert end in words


def test_a_slow_vibration_is_in_seconds(body, vibration):
    u, size = (array.assign_coords(time=1e3 * array.time) for array in vibration)
    figure = viz.solid_series(body, u[[0, 5]], size[[0, 5]], "Vibration")
    written = [text.get_text() for text in figure.texts]
    assert [w for w in written if w.endswith(" s")] == ["0.00 s", "2.50 s"]
