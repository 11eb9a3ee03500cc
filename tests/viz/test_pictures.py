import io
import itertools
import re

import equinox as eqx
import matplotlib
import numpy as np
import pytest
import xarray
from matplotlib.figure import Figure
from PIL import Image

import jaxgrip as jg
from jaxgrip import viz
from jaxgrip.models import ocp_problems
from jaxgrip.viz.style import GREY, in_powers, pace, readable

# Double integrator from rest to rest over one metre with |u| <= 1: switch at 1 s, end at 2 s.
T = np.concatenate([np.linspace(0.0, 1.0, 20), np.linspace(1.0, 2.0, 20)])
EDGES = np.array([0.0, 1.0, 2.0])
KINDS = np.array([[1], [-1]])


def _signal(name, values, units):
    values = np.asarray(values).reshape(len(T), -1)
    return xarray.DataArray(
        values,
        {"time": ("time", T, {"units": "s"}), "joint": np.arange(1, values.shape[1] + 1)},
        ("time", "joint"),
        name,
        {"long_name": name, "units": units},
    )


@pytest.fixture
def torque():
    return _signal("torque", np.where(np.arange(40) < 20, 1.0, -1.0), "N m")


@pytest.fixture
def switching():
    return _signal("switching function", T - 1.0, "1/(N m)")


def _saved(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    buffer.seek(0)
    return Image.open(buffer)


def test_controls_mark_the_switch_where_the_switching_function_is_zero(torque, switching):
    figure = viz.controls(torque, switching, EDGES, KINDS, "Double integrator")
    panel, twin = figure.axes
    step, crossing, dots = panel.lines[0], twin.lines[0], twin.lines[1]
    np.testing.assert_array_equal(dots.get_xdata(), [1.0])
    assert crossing.get_ydata()[19] == crossing.get_ydata()[20] == 0.0
    np.testing.assert_array_equal(step.get_ydata(), torque.values[:, 0])
    # Both scales have their zero in the middle, so the crossing is seen at the step.
    for axes in (panel, twin):
        low, high = axes.get_ylim()
        assert low == -high
    assert "[N m]" in panel.get_ylabel()
    assert "[1/(N m)]" in twin.get_ylabel()
    assert panel.get_xlabel() == "time [s]"
    assert "1.00 s" in [text.get_text() for text in panel.texts]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["torque", "switching function", "control switches", "at a bound"]
    assert _saved(figure).size == (1040, 390)


def test_lines_draw_every_component_with_units_and_limits():
    angle = _signal("angle", np.stack([T, T**2, -T], axis=-1), "rad")
    rate = _signal("rate", np.stack([T, T, T], axis=-1), "rad/s")
    figure = viz.lines(
        [angle, rate],
        "Motion",
        switching_times=np.array([1.0]),
        limits={"rate": (-1.5, 1.5, "limit")},
    )
    top, bottom = figure.axes
    named = [line for line in top.lines if line.get_label().startswith("joint")]
    for component, line in enumerate(named):
        np.testing.assert_array_equal(line.get_ydata(), angle.values[:, component])
    assert len({line.get_color() for line in named}) == len(named) == 3
    assert {line.get_ydata()[0] for line in bottom.lines if len(line.get_ydata()) == 2} >= {
        -1.5,
        1.5,
    }
    assert top.get_ylabel() == "angle\n[rad]"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["joint 1", "joint 2", "joint 3", "a control switches"]


def test_hamiltonian_is_relative_and_never_off_the_scale():
    value = _signal("H", np.where(np.arange(40) < 20, 0.0, 4e-12), "1")[:, 0]
    (axes,) = viz.hamiltonian(value, 4.0, 1e-10, "Hamiltonian").axes
    ratio = axes.lines[0].get_ydata()
    assert ratio.max() == pytest.approx(1e-12)
    low, high = axes.get_ylim()
    assert low <= ratio.min() < ratio.max() < 1e-10 < high


def test_pictures_are_settled_where_drawing_them_would_put_them(torque):
    figure = viz.lines([torque], "Torque")
    settled = [axes.get_position().bounds for axes in figure.axes]
    figure.set_layout_engine("constrained")
    figure.draw_without_rendering()
    drawn = [axes.get_position().bounds for axes in figure.axes]
    np.testing.assert_allclose(settled, drawn, atol=1e-3)


def test_powers_of_ten_are_told_as_matplotlib_tells_them():
    figure = Figure()
    axes = figure.subplots()
    axes.semilogy([1e-12, 1e3])
    figure.draw_without_rendering()
    theirs = [label.get_text() for label in axes.get_yticklabels()]
    in_powers(axes.yaxis)
    figure.draw_without_rendering()
    ours = [label.get_text() for label in axes.get_yticklabels()]
    plain = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    assert ours
    for one, other in zip(ours, theirs, strict=True):
        assert one.translate(plain) == re.sub(r"[^-0-9]", "", other)


def test_a_switching_function_of_rounding_alone_is_drawn_as_zero(torque, switching):
    both = xarray.concat([switching, 1e-12 * switching], "joint").assign_coords(joint=[1, 2])
    twice = xarray.concat([torque, torque], "joint").assign_coords(joint=[1, 2])
    figure = viz.controls(twice, both, EDGES, np.repeat(KINDS, 2, axis=1), "Double integrator")
    low, high = figure.axes[3].get_ylim()
    drawn = figure.axes[3].lines[0].get_ydata()
    assert np.ptp(drawn) < 1e-6 * (high - low)


def test_multipliers_shade_what_is_active_and_name_each_jump(switching):
    pressing = switching.clip(0.0).rename(joint="constraint")
    jumps = [[(1.0, "η₁ = 36")]]
    figure = viz.multipliers(pressing, EDGES, [[False, True]], jumps, "Wall")
    (panel,) = figure.axes
    (shade,) = panel.patches
    np.testing.assert_allclose(shade.get_extents().x0, panel.transData.transform((1.0, 0))[0])
    assert [text.get_text() for text in panel.texts] == ["η₁ = 36"]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [
        "constraint active",
        "switching function",
        "jump of the costate, by its multipliers η",
    ]


def test_checks_tell_what_has_failed_from_what_has_passed():
    proof = jg.ocp.Certificate(
        (
            jg.ocp.Check("end state", 1e-12, 1e-8, "how far off"),
            jg.ocp.Check("Hamiltonian", 1e-9, 1e-10, "how far from constant"),
            jg.ocp.Check("order", 0.0, 0.0, "of the switching times"),
        )
    )
    (axes,) = viz.checks(proof, "Certificate").axes
    words = [text.get_text() for text in axes.texts if " of " in text.get_text()]
    assert words == ["✓ 1e-12 of 1e-08", "✗ failed, 1e-09 of 1e-10", "✓ 0 of 0"]
    ends = [bar.get_x() + bar.get_width() for bar in axes.patches]
    assert ends[0] < 1.0 < ends[1]
    # What is exactly zero has no bar, which would have a length.
    assert len(ends) == 2
    assert [text.get_text() for text in axes.texts].count("exactly zero") == 1


def test_a_certificate_whose_last_check_is_zero_shows_its_row_whole():
    checks = (jg.ocp.Check("first", 1e-9, 1e-8, "how far off"), jg.ocp.Check("last", 0.0, 0.0, "-"))
    low, high = viz.checks(jg.ocp.Certificate(checks), "Certificate").axes[0].get_ylim()
    assert low >= 1.4
    assert high <= -0.4


def test_checks_of_exact_zeros_have_no_bars():
    values = (0.0, 1e-30, np.nan)
    proof = jg.ocp.Certificate(
        tuple(jg.ocp.Check(f"check {v}", v, 1e-8, "how far off") for v in values)
    )
    (axes,) = viz.checks(proof, "Certificate").axes
    assert sorted(round(bar.get_y() + bar.get_height() / 2) for bar in axes.patches) == [1, 2]


@pytest.fixture(scope="module")
def wall():
    """Bryson and Denham's problem: on the wall from a third to two thirds of the time."""
    return jg.ocp.solve(ocp_problems.bryson_denham(1 / 9), solver=jg.ocp.Solver(starts=1))


@pytest.mark.long
def test_certificate_shows_controls_multipliers_hamiltonian_and_checks(wall):
    names = ["upper bound of the place"]
    figures = viz.certificate(wall, "Wall", constraint_names=names, units={"control": "m/s^2"})
    assert list(figures) == ["controls", "multipliers", "hamiltonian", "checks"]
    (panel,) = figures["multipliers"].axes
    assert panel.get_title(loc="left") == names[0]
    # In closed form the multiplier falls from 6 to zero, and the costates jump by 36 and 6.
    np.testing.assert_allclose(np.max(panel.lines[1].get_ydata()), 6.0, rtol=1e-6)
    assert [text.get_text() for text in panel.texts] == ["η₁ = 36, η₂ = 6"]
    assert figures["controls"].axes[0].get_ylabel() == "control 0\n[m/s²]"
    legend = [text.get_text() for text in figures["controls"].legends[0].get_texts()]
    assert "control switches" not in legend
    # The control is never at a bound, so its switching function is zero but for rounding.
    twin = figures["controls"].axes[1]
    assert np.ptp(twin.lines[0].get_ydata()) < 1e-6 * np.ptp(twin.get_ylim())
    # Every check has a bar, unless it is exactly zero.
    sizes = np.array([check.value for check in wall.certificate.checks])
    assert np.any(sizes == 0.0)
    assert len(figures["checks"].axes[0].patches) == np.sum(sizes > 0.0)
    # The number in the picture is that of the certificate.
    (check,) = (check for check in wall.certificate.checks if check.name == "Hamiltonian")
    (axes,) = figures["hamiltonian"].axes
    written = [text.get_text() for text in axes.texts]
    assert f"largest, by the certificate: {check.value:.1e}" in written


@pytest.mark.long
def test_a_solution_without_a_certificate_has_no_pictures_of_one(wall):
    bare = eqx.tree_at(lambda s: s.certificate, wall, None)
    with pytest.raises(ValueError, match="no certificate"):
        viz.certificate(bare, "Wall")


@pytest.fixture
def chains():
    def arm(end, sign):
        t = np.linspace(0.0, end, 30)
        tip = np.stack([sign * np.cos(t), np.sin(t), 0 * t], axis=-1)
        points = np.stack([0.0 * tip, 0.5 * tip, tip], axis=1)
        return xarray.DataArray(points, {"time": t}, ("time", "point", "axis"))

    return {"left": arm(1.0, -1.0), "right": arm(0.5, 1.0)}


def test_stroboscope_shows_start_end_and_path(chains):
    figure = viz.stroboscope(chains, "Arms", poses=5)
    space, bar = figure.axes
    assert bar.get_ylabel() == "time [s]"
    assert space.get_xlabel() == "x [m]"
    assert len(space.lines) == 2 * (5 + 1)
    x, y, _ = space.lines[4].get_data_3d()
    np.testing.assert_allclose((x[-1], y[-1]), (-np.cos(1.0), np.sin(1.0)))
    assert {text.get_text() for text in space.texts} == {"left", "right"}
    # One length is the same on the picture along all axes.
    widths = np.array([np.ptp(limit) for limit in (space.get_xlim(), space.get_ylim())])
    aspect = space._box_aspect[:2]
    np.testing.assert_allclose(aspect / aspect[0], widths / widths[0])


def test_animation_keeps_one_clock_and_holds_the_end(chains, tmp_path):
    animation = viz.animate(chains, "Arms", frames=10, seconds=1.0)
    animation.save(tmp_path / "arms.gif")
    with Image.open(tmp_path / "arms.gif") as film:
        assert film.n_frames == 10
        assert film.info["loop"] == 0
        pictures, durations = [], []
        for frame in range(film.n_frames):
            film.seek(frame)
            pictures.append(np.asarray(film.convert("RGB")).astype(int))
            durations.append(film.info["duration"])
    assert durations == [100] * 9 + [1000]
    changes = [np.abs(b - a).sum() for a, b in itertools.pairwise(pictures)]
    assert min(changes) > 0
    # After half the time the right arm rests, so less of the picture changes.
    assert np.mean(changes[6:]) < np.mean(changes[:4])


@pytest.mark.parametrize(
    ("largest", "units", "shown"),
    [
        (0.06, "m", (60.0, "mm")),
        (48.0, "m", (48.0, "m")),
        (1e-3, "m", (1.0, "mm")),
        (999.0, "Pa", (999.0, "Pa")),
        (6.92e6, "Pa", (6.92, "MPa")),
        (5000.0, "s", (5000.0, "s")),
        (0.137, "s", (137.0, "ms")),
        (2e-5, "1", (20.0, "10⁻⁶")),
        (0.0, "m", (0.0, "m")),
        (np.inf, "m", (np.inf, "m")),
        (1e-30, "m", (1e-18, "pm")),
    ],
)
def test_a_unit_has_the_prefix_that_fits_the_largest_value(largest, units, shown):
    factor, unit = readable(largest, units)
    assert (pytest.approx(factor * largest), unit) == shown
    assert np.isnan(readable(np.nan, units)[0]) == np.False_


@pytest.mark.parametrize(
    ("seconds", "duration", "words"),
    [(3.0, 0.12, "25 times slower"), (3.0, 12.0, "4 times faster"), (4.0, 4.0, "in real time")],
)
def test_the_pace_of_an_animation_is_never_zero(seconds, duration, words):
    assert pace(seconds, duration) == f"shown {words}"


def test_signals_in_m_and_pa_get_a_prefix_and_others_none():
    signals = [_signal("displacement", 2e-5 * T, "m"), _signal("stress", 3e6 * T, "Pa")]
    signals.append(_signal("angle", 1e-4 * T, "rad"))
    limits = {"stress": (-7e6, 7e6, "yield strength")}
    figure = viz.lines(signals, "Link", limits=limits)
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["displacement\n[µm]", "stress\n[MPa]", "angle\n[rad]"]
    tops = [np.max(axes.lines[0].get_ydata()) for axes in figure.axes]
    np.testing.assert_allclose(tops, [40.0, 6.0, 2e-4])
    assert {line.get_ydata()[0] for line in figure.axes[1].lines[1:]} == {-7.0, 7.0}


def _drawn(axes):
    """Every line that is one of the data, by its label."""
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def _looks(line):
    return line.get_linestyle(), line.get_color(), line.get_marker(), line._unscaled_dash_pattern


def test_a_curve_looks_in_every_panel_as_in_the_legend():
    t = np.linspace(0.0, 1.0, 5)
    names = [["pulled", "body"], ["flywheel"], ["body", "pulled"], ["flywheel", "body"]]
    panels = [viz.Panel("t", "x", [viz.Curve(n, t, t) for n in own]) for own in names]
    figure = viz.curves(panels, "Stick-slip")
    (legend,) = figure.legends
    handles = {
        text.get_text(): line
        for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }
    for axes, own in zip(figure.axes, names, strict=True):
        for line, name in zip(axes.lines, own, strict=True):
            assert _looks(line) == _looks(handles[name])
        # Within a panel no two are alike, also without colours.
        assert len({line._unscaled_dash_pattern for line in axes.lines}) == len(own)


def test_nine_curves_are_nine_looks():
    t = np.linspace(0.0, 1.0, 5)
    panels = [viz.Panel("t", "x", [viz.Curve(f"{k}", t, t + k)]) for k in range(9)]
    figure = viz.curves(panels, "Many")
    assert len({_looks(axes.lines[0]) for axes in figure.axes}) == 9


@pytest.mark.parametrize("what", [{"levels": [(0.05, "")]}, {"bands": [(0.05, 1.0, "")]}])
def test_what_is_marked_has_a_meaning(what):
    panel = viz.Panel("t", "x", [viz.Curve("", np.arange(2.0), np.arange(2.0))], **what)
    with pytest.raises(ValueError, match=r"mark at 0\.05 has no meaning; give one"):
        viz.curves([panel], "Level")


def _swing(size=0.07, steps=61):
    """A crank in line with its rod at the first step, and the pin of the rod, there and back."""
    turn = np.linspace(0.0, 2 * np.pi, steps)
    zero = 0 * turn
    end = 0.1 * size * np.stack([np.cos(turn), np.sin(turn), zero], axis=-1)
    pin = np.stack([0.1 * size * np.cos(turn) - size, zero, zero], axis=-1)
    parts = {"crank": [0 * end, end], "rod": [end, pin], "rope": [pin, pin - size]}
    dims = ("step", "point", "axis")
    parts = {name: xarray.DataArray(np.stack(p, axis=1), dims=dims) for name, p in parts.items()}
    return parts, parts["rod"][:, 1]


@pytest.mark.parametrize(("size", "unit", "factor"), [(0.07, "mm", 1e3), (7.0, "m", 1.0)])
def test_linkages_are_in_a_unit_that_fits(size, unit, factor):
    parts, pin = _swing(size)
    figure = viz.linkage(parts, "Crank", plane="xy", step=0, paths={"path": pin}, cables=["rope"])
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == (f"x [{unit}]", f"y [{unit}]")
    np.testing.assert_allclose(_drawn(axes)["path"].get_xdata(), factor * pin[:, 0])


def test_a_path_there_and_back_is_drawn_as_in_the_legend():
    parts, pin = _swing()
    figure = viz.linkage(parts, "Crank", plane="xy", step=0, paths={"path": pin}, cables=["rope"])
    (axes,), (legend,) = figure.axes, figure.legends
    drawn = _drawn(axes)
    for text, handle in zip(legend.get_texts(), legend.get_lines(), strict=True):
        assert _looks(handle) == _looks(drawn[text.get_text()])
    # Dashes that are drawn over each other out of step are none.
    x = drawn["path"].get_xdata()
    np.testing.assert_allclose(x, x[::-1], atol=1e-12)
    assert drawn["path"].get_linestyle() == "-"


def test_a_link_upon_another_hides_it_nowhere_whole():
    parts, _ = _swing()
    for names in itertools.permutations(parts):
        figure = viz.linkage({n: parts[n] for n in names}, "Crank", plane="xy", step=0)
        crank, rod = (_drawn(figure.axes[0])[name] for name in ("crank", "rod"))
        # At the start the crank lies upon the rod: it must be above, and thinner.
        assert crank.get_zorder() > rod.get_zorder()
        assert crank.get_linewidth() <= rod.get_linewidth() - 1.0


def test_shadows_have_a_name_and_nine_parts_nine_looks():
    parts, _ = _swing()
    many = {f"part {k}": part for k, part in enumerate([*parts.values()] * 3)}
    figure = viz.linkage(many, "Crank", plane="xy")
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [*many, "other positions"]
    grey = [line for line in figure.axes[0].lines if line.get_color() == GREY]
    assert {line.get_label() for line in grey} == {"other positions"}
    drawn = _drawn(figure.axes[0])
    assert len({_looks(drawn[name]) for name in many}) == 9


def test_pictures_leave_the_settings_of_the_user_alone(torque, switching):
    before = dict(matplotlib.rcParams)
    viz.controls(torque, switching, EDGES, KINDS, "Double integrator")
    assert dict(matplotlib.rcParams) == before
