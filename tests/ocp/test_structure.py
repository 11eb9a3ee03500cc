"""Reading, laying out and mending switching structures."""

import numpy as np
import pytest

from jaxgrip.ocp.shooting import (
    INTERIOR,
    LOWER,
    SATURATION,
    SINGULAR,
    SUBDIVISION,
    SWITCH,
    TANGENCY,
    UPPER,
)
from jaxgrip.ocp.structure import (
    Segment,
    bracket_singular,
    collect_profiles,
    count_arcs,
    lay_out,
    mend_profile,
    read_profile,
)


def kinds(profile):
    return [segment.kind for segment in profile]


def ends(profile):
    return [segment.end for segment in profile]


def test_read_bang_bang_places_the_switch_inside_its_interval():
    # Ten intervals of 0.2 s; the fourth has 70 % of its length on the upper bound.
    position = np.array([1.0] * 3 + [0.4] + [-1.0] * 6)
    profile = read_profile(position, 2.0, SINGULAR)
    assert kinds(profile) == [UPPER, LOWER]
    np.testing.assert_allclose(ends(profile), [0.74, 2.0], rtol=1e-14)


def test_read_sharp_switch():
    profile = read_profile(np.array([-1.0] * 5 + [1.0] * 5), 1.0, SINGULAR)
    assert kinds(profile) == [LOWER, UPPER]
    np.testing.assert_allclose(ends(profile), [0.5, 1.0])


def test_read_long_interior_stretch_is_an_arc():
    position = np.array([1.0] * 3 + [0.3] * 4 + [-1.0] * 3)
    for kind in (SINGULAR, INTERIOR):
        profile = read_profile(position, 1.0, kind)
        assert kinds(profile) == [UPPER, kind, LOWER]
        np.testing.assert_allclose(ends(profile), [0.3, 0.7, 1.0])


def test_read_short_interior_stretch_stays_where_the_hamiltonian_is_curved():
    profile = read_profile(np.array([1.0] * 4 + [0.0] * 2 + [-1.0] * 4), 1.0, INTERIOR)
    assert kinds(profile) == [UPPER, INTERIOR, LOWER]


@pytest.mark.parametrize(
    "position", [[1.0] * 4 + [0.5] + [1.0] * 5, [0.2] + [1.0] * 9, [1.0] * 9 + [-0.3]]
)
def test_read_drops_blurs_that_are_no_switch(position):
    profile = read_profile(np.array(position), 1.0, SINGULAR)
    assert kinds(profile) == [UPPER]
    assert ends(profile) == [1.0]


def test_lay_out_merges_controls_in_time():
    profiles = [
        [Segment(UPPER, 0.5), Segment(LOWER, 1.0)],
        [Segment(LOWER, 0.2), Segment(UPPER, 0.8), Segment(LOWER, 1.0)],
    ]
    assert count_arcs(profiles) == 4
    layout = lay_out(profiles, 4)
    assert layout.plan.kinds.tolist() == [[1, -1], [1, 1], [-1, 1], [-1, -1]]
    assert layout.plan.rule.tolist() == [SWITCH] * 3
    assert layout.plan.control.tolist() == [1, 0, 1]
    assert layout.plan.at.tolist() == [0, 1, 2]
    assert layout.real.all()
    np.testing.assert_allclose(layout.times, [0.2, 0.5, 0.8, 1.0])


@pytest.mark.parametrize("n_arcs", [3, 5, 12])
def test_lay_out_splits_the_longest_arcs(n_arcs):
    profiles = [[Segment(UPPER, 0.1), Segment(LOWER, 1.0)], [Segment(UPPER, 1.0)]]
    layout = lay_out(profiles, n_arcs)
    lengths = np.diff(layout.times, prepend=0.0)
    assert len(layout.times) == n_arcs == len(layout.plan.kinds)
    assert layout.real.sum() == 1
    np.testing.assert_allclose(layout.times[layout.real.argmax()], 0.1)
    assert np.all(lengths > 0.0)
    # Halving the longest each time leaves no arc more than twice another, short real ones apart.
    split = lengths[layout.times > 0.1 + 1e-12]
    assert split.max() <= 2.0 * split.min() + 1e-12
    assert np.all(layout.plan.rule[~layout.real] == SUBDIVISION)
    before = layout.times <= 0.1 + 1e-12
    assert np.all(layout.plan.kinds[before, 0] == UPPER)
    assert np.all(layout.plan.kinds[~before, 0] == LOWER)


@pytest.mark.parametrize("n_arcs", [3, 4, 9])
def test_singular_exit_holds_at_the_entry(n_arcs):
    profiles = [[Segment(UPPER, 0.3), Segment(SINGULAR, 0.7), Segment(LOWER, 1.0)]]
    layout = lay_out(profiles, n_arcs)
    entry, leave = np.flatnonzero(layout.real)
    assert layout.plan.rule[[entry, leave]].tolist() == [SWITCH, TANGENCY]
    assert layout.plan.at[entry] == layout.plan.at[leave] == entry
    np.testing.assert_allclose(layout.times[[entry, leave]], [0.3, 0.7])
    others = np.setdiff1d(np.arange(n_arcs - 1), [leave])
    assert layout.plan.at[others].tolist() == others.tolist()


def test_switch_of_another_control_during_a_singular_arc():
    profiles = [
        [Segment(UPPER, 0.3), Segment(SINGULAR, 0.7), Segment(LOWER, 1.0)],
        [Segment(LOWER, 0.5), Segment(UPPER, 1.0)],
    ]
    layout = lay_out(profiles, 4)
    assert layout.plan.kinds.tolist() == [[1, -1], [2, -1], [2, 1], [-1, 1]]
    assert layout.plan.rule.tolist() == [SWITCH, SWITCH, TANGENCY]
    assert layout.plan.at.tolist() == [0, 1, 0]


def test_interior_arc_ends_by_saturation():
    profiles = [[Segment(UPPER, 0.2), Segment(INTERIOR, 0.8), Segment(LOWER, 1.0)]]
    assert lay_out(profiles, 3).plan.rule.tolist() == [SWITCH, SATURATION]


def test_collect_returns_the_solved_times():
    profiles = [[Segment(UPPER, 0.5), Segment(LOWER, 1.0)], [Segment(LOWER, 1.0)]]
    layout = lay_out(profiles, 6)
    times = layout.times * 1.2
    collected = collect_profiles(profiles, layout, times)
    assert [kinds(p) for p in collected] == [[UPPER, LOWER], [LOWER]]
    np.testing.assert_allclose(ends(collected[0]), [0.6, 1.2])
    np.testing.assert_allclose(ends(collected[1]), [1.2])


def test_a_switch_that_overtakes_another_changes_the_order():
    profiles = [
        [Segment(UPPER, 0.4), Segment(LOWER, 1.0)],
        [Segment(LOWER, 0.5), Segment(UPPER, 1.0)],
    ]
    layout = lay_out(profiles, 3)
    collected = collect_profiles(profiles, layout, np.array([0.6, 0.5, 1.0]))
    assert [kinds(p) for p in collected] == [[UPPER, LOWER], [LOWER, UPPER]]
    again = lay_out(collected, 3)
    assert again.plan.control.tolist() == [1, 0]
    np.testing.assert_allclose(again.times, [0.5, 0.6, 1.0])


@pytest.mark.parametrize(
    ("times", "left"),
    [
        ([0.6, 0.4, 1.0], [(UPPER, 1.0)]),
        ([-0.1, 0.5, 1.0], [(LOWER, 0.5), (UPPER, 1.0)]),
        ([0.4, 1.1, 1.0], [(UPPER, 0.4), (LOWER, 1.0)]),
    ],
)
def test_segments_without_length_are_dropped(times, left):
    profiles = [[Segment(UPPER, 0.4), Segment(LOWER, 0.5), Segment(UPPER, 1.0)]]
    (collected,) = collect_profiles(profiles, lay_out(profiles, 3), np.array(times))
    assert kinds(collected) == [kind for kind, _ in left]
    # The final time is the horizon's, whatever a lost segment claimed.
    assert collected[-1].end == pytest.approx(1.0)


T = np.linspace(0.0, 1.0, 101)


def test_mend_leaves_a_correct_profile_alone():
    profile = [Segment(UPPER, 0.5), Segment(LOWER, 1.0)]
    assert mend_profile(profile, T, T - 0.5, np.sign(0.5 - T), 1e-8) == profile


def test_mend_inserts_missing_segments():
    # H_u < 0 wants the upper bound except between 0.305 and 0.605.
    switching = np.where((T > 0.305) & (T < 0.605), 1.0, -1.0)
    mended = mend_profile([Segment(UPPER, 1.0)], T, switching, np.ones_like(T), 1e-8)
    assert kinds(mended) == [UPPER, LOWER, UPPER]
    np.testing.assert_allclose(ends(mended), [0.305, 0.605, 1.0])


def test_mend_joins_what_becomes_equal():
    profile = [Segment(UPPER, 0.5), Segment(LOWER, 1.0)]
    mended = mend_profile(profile, T, -np.ones_like(T), np.sign(0.5 - T), 1e-8)
    assert kinds(mended) == [UPPER]
    assert mended[-1].end == 1.0


@pytest.mark.parametrize("kind", [INTERIOR, SINGULAR])
def test_mend_saturates_controls_outside_their_bounds(kind):
    position = 1.5 - 2.0 * T
    profile = [Segment(kind, 1.0)]
    mended = mend_profile(profile, T, np.zeros_like(T), position, 1e-8)
    assert kinds(mended) == [UPPER, kind]
    np.testing.assert_allclose(mended[0].end, 0.25, atol=0.01)


def test_mend_overlooks_rounding():
    mended = mend_profile([Segment(UPPER, 1.0)], T, np.full_like(T, 1e-9), np.ones_like(T), 1e-8)
    assert kinds(mended) == [UPPER]


def test_singular_ends_are_bracketed_by_bangs():
    profile = bracket_singular([Segment(SINGULAR, 2.0)], -0.3)
    assert kinds(profile) == [LOWER, SINGULAR, LOWER]
    np.testing.assert_allclose(ends(profile), [0.02, 1.98, 2.0])
    inner = [Segment(UPPER, 0.2), Segment(SINGULAR, 0.7), Segment(LOWER, 1.0)]
    assert bracket_singular(inner, 0.3) == inner
