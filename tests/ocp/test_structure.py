"""Reading, laying out and mending switching structures."""

import numpy as np
import pytest

from jaxgrip.ocp.hamiltonian import ActiveConstraint, arrange, spread
from jaxgrip.ocp.structure import (
    ACTIVE,
    FREE,
    Kind,
    Rule,
    Segment,
    SwitchingStructure,
    bracket_singular,
    constrain_controls,
    count_arcs,
    lay_out,
    mend_constraint,
    mend_control,
    overlay,
    read_profile,
    with_times,
)

LOWER, INTERIOR, UPPER, SINGULAR, FALLING, RISING, CONSTRAINED = Kind
SUBDIVISION, SWITCH, SATURATION, TANGENCY, CONTACT, RELEASE, TOUCH, RATE = Rule


def structure_of(controls, constraints=(), orders=()):
    active = tuple(ActiveConstraint(i, order) for i, order in enumerate(orders))
    return SwitchingStructure(list(controls), list(constraints), active, np.zeros(1, int))


def lay_out_controls(profiles, n_arcs):
    return lay_out(structure_of(profiles), n_arcs)


def collect_controls(profiles, layout, times):
    return with_times(structure_of(profiles), layout, times).controls


def read(position, final_time, inside_kind):
    labels = np.where(position > 0.9, UPPER, np.where(position < -0.9, LOWER, INTERIOR))
    t = np.linspace(0.0, final_time, len(position) + 1)
    return read_profile(labels, position, t, inside_kind)


def mend(profile, t, switching, position):
    blank = np.zeros_like(t)
    return mend_control(profile, t, switching, position, blank, blank)


def kinds(profile):
    return [segment.kind for segment in profile]


def ends(profile):
    return [segment.end for segment in profile]


def test_read_bang_bang_places_the_switch_inside_its_interval():
    # Ten intervals of 0.2 s; the fourth has 70 % of its length on the upper bound.
    position = np.array([1.0] * 3 + [0.4] + [-1.0] * 6)
    profile = read(position, 2.0, SINGULAR)
    assert kinds(profile) == [UPPER, LOWER]
    np.testing.assert_allclose(ends(profile), [0.74, 2.0], rtol=1e-14)


def test_read_sharp_switch():
    profile = read(np.array([-1.0] * 5 + [1.0] * 5), 1.0, SINGULAR)
    assert kinds(profile) == [LOWER, UPPER]
    np.testing.assert_allclose(ends(profile), [0.5, 1.0])


def test_read_long_interior_stretch_is_an_arc():
    position = np.array([1.0] * 3 + [0.3] * 4 + [-1.0] * 3)
    for kind in (SINGULAR, INTERIOR):
        profile = read(position, 1.0, kind)
        assert kinds(profile) == [UPPER, kind, LOWER]
        np.testing.assert_allclose(ends(profile), [0.3, 0.7, 1.0])


def test_read_short_interior_stretch_stays_where_the_hamiltonian_is_curved():
    profile = read(np.array([1.0] * 4 + [0.0] * 2 + [-1.0] * 4), 1.0, INTERIOR)
    assert kinds(profile) == [UPPER, INTERIOR, LOWER]


@pytest.mark.parametrize(
    "position", [[1.0] * 4 + [0.5] + [1.0] * 5, [0.2] + [1.0] * 9, [1.0] * 9 + [-0.3]]
)
def test_read_drops_blurs_that_are_no_switch(position):
    profile = read(np.array(position), 1.0, SINGULAR)
    assert kinds(profile) == [UPPER]
    assert ends(profile) == [1.0]


def test_lay_out_merges_controls_in_time():
    profiles = [
        [Segment(UPPER, 0.5), Segment(LOWER, 1.0)],
        [Segment(LOWER, 0.2), Segment(UPPER, 0.8), Segment(LOWER, 1.0)],
    ]
    assert count_arcs(structure_of(profiles)) == 4
    layout = lay_out_controls(profiles, 4)
    assert layout.plan.kinds.tolist() == [[1, -1], [1, 1], [-1, 1], [-1, -1]]
    assert layout.plan.rule.tolist() == [SWITCH] * 3
    assert layout.plan.control.tolist() == [1, 0, 1]
    assert layout.plan.at.tolist() == [0, 1, 2]
    assert layout.plan.is_switch.all()
    np.testing.assert_allclose(layout.times, [0.2, 0.5, 0.8, 1.0])


@pytest.mark.parametrize("n_arcs", [3, 5, 12])
def test_lay_out_splits_the_longest_arcs(n_arcs):
    profiles = [[Segment(UPPER, 0.1), Segment(LOWER, 1.0)], [Segment(UPPER, 1.0)]]
    layout = lay_out_controls(profiles, n_arcs)
    lengths = np.diff(layout.times, prepend=0.0)
    assert len(layout.times) == n_arcs == len(layout.plan.kinds)
    assert layout.plan.is_switch.sum() == 1
    np.testing.assert_allclose(layout.times[layout.plan.is_switch.argmax()], 0.1)
    assert np.all(lengths > 0.0)
    # Halving the longest each time leaves no arc more than twice another, short real ones apart.
    split = lengths[layout.times > 0.1 + 1e-12]
    assert split.max() <= 2.0 * split.min() + 1e-12
    assert np.all(layout.plan.rule[~layout.plan.is_switch] == SUBDIVISION)
    before = layout.times <= 0.1 + 1e-12
    assert np.all(layout.plan.kinds[before, 0] == UPPER)
    assert np.all(layout.plan.kinds[~before, 0] == LOWER)


@pytest.mark.parametrize("n_arcs", [3, 4, 9])
def test_singular_exit_holds_at_the_entry(n_arcs):
    profiles = [[Segment(UPPER, 0.3), Segment(SINGULAR, 0.7), Segment(LOWER, 1.0)]]
    layout = lay_out_controls(profiles, n_arcs)
    entry, leave = np.flatnonzero(layout.plan.is_switch)
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
    layout = lay_out_controls(profiles, 4)
    assert layout.plan.kinds.tolist() == [[1, -1], [2, -1], [2, 1], [-1, 1]]
    assert layout.plan.rule.tolist() == [SWITCH, SWITCH, TANGENCY]
    assert layout.plan.at.tolist() == [0, 1, 0]


def test_interior_arc_ends_by_saturation():
    profiles = [[Segment(UPPER, 0.2), Segment(INTERIOR, 0.8), Segment(LOWER, 1.0)]]
    assert lay_out_controls(profiles, 3).plan.rule.tolist() == [SWITCH, SATURATION]


def test_collect_returns_the_solved_times():
    profiles = [[Segment(UPPER, 0.5), Segment(LOWER, 1.0)], [Segment(LOWER, 1.0)]]
    layout = lay_out_controls(profiles, 6)
    times = layout.times * 1.2
    collected = collect_controls(profiles, layout, times)
    assert [kinds(p) for p in collected] == [[UPPER, LOWER], [LOWER]]
    np.testing.assert_allclose(ends(collected[0]), [0.6, 1.2])
    np.testing.assert_allclose(ends(collected[1]), [1.2])


def test_a_switch_that_overtakes_another_changes_the_order():
    profiles = [
        [Segment(UPPER, 0.4), Segment(LOWER, 1.0)],
        [Segment(LOWER, 0.5), Segment(UPPER, 1.0)],
    ]
    layout = lay_out_controls(profiles, 3)
    collected = collect_controls(profiles, layout, np.array([0.6, 0.5, 1.0]))
    assert [kinds(p) for p in collected] == [[UPPER, LOWER], [LOWER, UPPER]]
    again = lay_out_controls(collected, 3)
    assert again.plan.control.tolist() == [1, 0]
    np.testing.assert_allclose(again.times, [0.5, 0.6, 1.0])


@pytest.mark.parametrize(
    ("times", "left"),
    [
        ([0.6, 0.4, 1.0], [(UPPER, 1.0)]),
        ([-0.1, 0.5, 1.0], [(LOWER, 0.5), (UPPER, 1.0)]),
        ([0.4, 1.1, 1.0], [(UPPER, 0.4), (LOWER, 1.0)]),
        ([0.4, 0.4 + 1e-8, 1.0], [(UPPER, 1.0)]),
    ],
)
def test_segments_without_length_are_dropped(times, left):
    profiles = [[Segment(UPPER, 0.4), Segment(LOWER, 0.5), Segment(UPPER, 1.0)]]
    (collected,) = collect_controls(profiles, lay_out_controls(profiles, 3), np.array(times))
    assert kinds(collected) == [kind for kind, _ in left]
    # The final time is the horizon's, whatever a lost segment claimed.
    assert collected[-1].end == pytest.approx(1.0)


T = np.linspace(0.0, 1.0, 101)


def test_mend_leaves_a_correct_profile_alone():
    profile = [Segment(UPPER, 0.5), Segment(LOWER, 1.0)]
    assert mend(profile, T, T - 0.5, np.sign(0.5 - T)) == profile


def test_mend_inserts_missing_segments():
    # H_u < 0 wants the upper bound except between 0.305 and 0.605.
    switching = np.where((T > 0.305) & (T < 0.605), 1.0, -1.0)
    mended = mend([Segment(UPPER, 1.0)], T, switching, np.ones_like(T))
    assert kinds(mended) == [UPPER, LOWER, UPPER]
    np.testing.assert_allclose(ends(mended), [0.305, 0.605, 1.0])


def test_mend_joins_what_becomes_equal():
    profile = [Segment(UPPER, 0.5), Segment(LOWER, 1.0)]
    mended = mend(profile, T, -np.ones_like(T), np.sign(0.5 - T))
    assert kinds(mended) == [UPPER]
    assert mended[-1].end == 1.0


@pytest.mark.parametrize("kind", [INTERIOR, SINGULAR])
def test_mend_saturates_controls_outside_their_bounds(kind):
    position = 1.5 - 2.0 * T
    profile = [Segment(kind, 1.0)]
    mended = mend(profile, T, np.zeros_like(T), position)
    assert kinds(mended) == [UPPER, kind]
    np.testing.assert_allclose(mended[0].end, 0.25, atol=0.01)


def test_mend_overlooks_rounding():
    mended = mend([Segment(UPPER, 1.0)], T, np.full_like(T, 4e-10), np.ones_like(T))
    assert kinds(mended) == [UPPER]


def test_singular_ends_are_bracketed_by_bangs():
    profile = bracket_singular([Segment(SINGULAR, 2.0)], (-0.3, 0.4))
    assert kinds(profile) == [LOWER, SINGULAR, UPPER]
    np.testing.assert_allclose(ends(profile), [0.02, 1.98, 2.0])
    inner = [Segment(UPPER, 0.2), Segment(SINGULAR, 0.7), Segment(LOWER, 1.0)]
    assert bracket_singular(inner, (0.3, 0.3)) == inner
    profile = bracket_singular([Segment(UPPER, 0.2), Segment(SINGULAR, 2.0)], (-0.3, 0.1), True)
    assert kinds(profile) == [UPPER, SINGULAR]
    plan = lay_out_controls([profile], 2).plan
    assert (plan.rule.tolist(), plan.at.tolist()) == ([TANGENCY], [0])


ON_THE_WAY = [Segment(FREE, 0.3), Segment(ACTIVE, 0.7), Segment(FREE, 1.0)]


def constrained(before=UPPER, after=LOWER):
    """A constraint of order one is active from 0.3 to 0.7 and determines the only control."""
    control = [Segment(before, 0.3), Segment(CONSTRAINED, 0.7, 0), Segment(after, 1.0)]
    return structure_of([control], [ON_THE_WAY], [1])


@pytest.mark.parametrize("n_arcs", [3, 8])
def test_active_constraint_determines_a_control(n_arcs):
    structure = constrained()
    assert count_arcs(structure) == 3
    layout = lay_out(structure, n_arcs)
    entry, leave = np.flatnonzero(layout.plan.is_switch)
    plan = layout.plan
    assert plan.rule[[entry, leave]].tolist() == [SWITCH, RELEASE]
    assert plan.jumps[[entry, leave]].tolist() == [1, 0]
    assert plan.kinds[[entry, leave, -1], 0].tolist() == [UPPER, INTERIOR, LOWER]
    assert plan.active[[entry, leave, -1], 0].tolist() == [False, True, False]
    collected = with_times(structure, layout, 2.0 * layout.times)
    assert collected.kinds == structure.kinds
    for profile in (*collected.controls, *collected.constraints):
        np.testing.assert_allclose(ends(profile), [0.6, 1.4, 2.0])


def test_singular_arc_into_an_active_constraint():
    structure = constrained(before=SINGULAR)
    structure.controls[0].insert(0, Segment(UPPER, 0.1))
    plan = lay_out(structure, 4).plan
    assert plan.rule.tolist() == [SWITCH, TANGENCY, RELEASE]
    assert plan.at.tolist() == [0, 0, 2]
    assert plan.jumps.tolist() == [0, 1, 0]


@pytest.mark.parametrize("order", [0, 1, 2])
def test_smooth_control_enters_by_contact(order):
    plan = lay_out(structure_of([[Segment(INTERIOR, 1.0)]], [ON_THE_WAY], [order]), 3).plan
    assert plan.rule.tolist() == [CONTACT, RELEASE]
    assert plan.jumps.tolist() == [order, 0]


def test_contact_point():
    touching = [Segment(FREE, 0.4), Segment(FREE, 1.0)]
    structure = structure_of([[Segment(INTERIOR, 1.0)]], [touching], [2])
    layout = lay_out(structure, 2)
    assert layout.plan.rule.tolist() == [TOUCH]
    assert layout.plan.jumps.tolist() == [1]
    assert not layout.plan.active.any()
    collected = with_times(structure, layout, np.array([0.5, 1.0]))
    assert ends(collected.constraints[0]) == [0.5, 1.0]


@pytest.mark.parametrize(("order", "left"), [(1, [FREE]), (2, [FREE, FREE])])
def test_arc_that_lost_its_length_becomes_a_contact_point(order, left):
    structure = structure_of([[Segment(INTERIOR, 1.0)]], [ON_THE_WAY], [order])
    collected = with_times(structure, lay_out(structure, 3), np.array([0.55, 0.45, 1.0]))
    assert kinds(collected.constraints[0]) == left


@pytest.mark.parametrize(
    ("after", "rule"), [(INTERIOR, SWITCH), (UPPER, SATURATION), (FALLING, RATE)]
)
def test_rate_arc_has_both_conditions_at_its_end(after, rule):
    control = [Segment(INTERIOR, 0.2), Segment(RISING, 0.5), Segment(after, 0.8)]
    if after == FALLING:
        control.append(Segment(INTERIOR, 1.0))
    else:
        control[-1] = Segment(after, 1.0)
    plan = lay_out_controls([control], len(control)).plan
    if after == FALLING:
        assert plan.rule.tolist() == [SWITCH, RATE, RATE, SUBDIVISION]
        assert plan.at.tolist()[:3] == [2, 1, 2]
    else:
        assert plan.rule.tolist() == [rule, RATE, SUBDIVISION]
        assert plan.at.tolist()[:2] == [1, 1]


def test_rate_arc_at_the_start_fixes_the_start_value():
    plan = lay_out_controls([[Segment(RISING, 0.4), Segment(INTERIOR, 1.0)]], 2).plan
    assert plan.rule.tolist() == [RATE, SWITCH]
    assert plan.at.tolist() == [0, 0]


def test_rate_arc_to_the_end():
    plan = lay_out_controls([[Segment(INTERIOR, 0.4), Segment(RISING, 1.0)]], 2).plan
    assert plan.rule.tolist() == [RATE, SUBDIVISION]
    assert plan.at.tolist()[:1] == [1]


def mend_rate(kind, rate=0.0, rate_costate=0.0):
    blank = np.zeros_like(T)
    values = blank, blank, rate + blank, rate_costate + blank
    return kinds(mend_control([Segment(kind, 1.0)], T, *values, INTERIOR))


def test_mend_bounds_and_frees_rates():
    assert mend_rate(INTERIOR, rate=1.2) == [RISING]
    assert mend_rate(INTERIOR, rate=-1.2) == [FALLING]
    assert mend_rate(INTERIOR, rate=0.9) == [INTERIOR]
    assert mend_rate(RISING, rate_costate=-1.0) == [RISING]
    assert mend_rate(RISING, rate_costate=1.0) == [INTERIOR]
    assert mend_rate(FALLING, rate_costate=-1.0) == [INTERIOR]


def mend_free(order, value, profile=None, jumps=None):
    profile = profile or [Segment(FREE, 1.0)]
    return mend_constraint(profile, T, value, np.zeros_like(T), jumps or {}, order)


def test_violated_constraint_of_order_one_becomes_active():
    mended = mend_free(1, 0.01 - (T - 0.5) ** 2)
    assert kinds(mended) == [FREE, ACTIVE, FREE]
    np.testing.assert_allclose(ends(mended), [0.4, 0.6, 1.0], atol=0.01)


def test_violated_constraint_of_order_two_touches_first():
    mended = mend_free(2, 0.01 - (T - 0.5) ** 2)
    assert kinds(mended) == [FREE, FREE]
    np.testing.assert_allclose(ends(mended), [0.5, 1.0])
    touching = [Segment(FREE, 0.5), Segment(FREE, 1.0)]
    both_sides = 0.01 * np.abs(np.sin(2 * np.pi * T)) * (np.abs(T - 0.5) < 0.2)
    mended = mend_free(2, both_sides, touching, {0.5: 1.0})
    assert kinds(mended) == [FREE, ACTIVE, FREE]


def test_contact_point_with_a_negative_jump_is_dropped():
    touching = [Segment(FREE, 0.5), Segment(FREE, 1.0)]
    assert kinds(mend_free(2, -np.ones_like(T), touching, {0.5: 1.0})) == [FREE, FREE]
    assert kinds(mend_free(2, -np.ones_like(T), touching, {0.5: -1.0})) == [FREE]


def test_active_constraint_with_a_negative_multiplier_is_released():
    profile = [Segment(FREE, 0.2), Segment(ACTIVE, 0.8), Segment(FREE, 1.0)]
    mended = mend_constraint(profile, T, np.zeros_like(T), 0.5 - T, {}, 1)
    assert kinds(mended) == [FREE, ACTIVE, FREE]
    np.testing.assert_allclose(ends(mended), [0.2, 0.5, 1.0], atol=0.011)


@pytest.mark.parametrize(("order", "released"), [(0, False), (1, True)])
def test_active_constraint_with_a_growing_multiplier_is_left_for_a_while(order, released):
    """Slopes -a, b, -c that meet at t1 and t2 cut off equal areas below and above the level at
    (t2 - t1) b r / (1 + r) over the valley, r^2 = (1/b + 1/c) / (1/a + 1/b).
    """
    a, b, c, t1, t2 = 4.0, 4.0, 1.0 / 1.75, 0.4, 0.5
    t, rise = np.linspace(0.0, 1.0, 2001), b * (t2 - t1)
    multiplier = np.interp(t, (0, t1, t2, 1), (a * t1, 0, rise, rise - c * (1 - t2))) + 1.0
    ratio = np.sqrt((1 / b + 1 / c) / (1 / a + 1 / b))
    below = rise * ratio / (1.0 + ratio)
    gap = t1 - below / a, t2 + (rise - below) / c
    np.testing.assert_allclose(gap, (1 / 3, 11 / 15), rtol=1e-14)
    profile = [Segment(ACTIVE, 1.0)]
    mended = mend_constraint(profile, t, np.zeros_like(t), multiplier, {}, order)
    if not released:
        assert mended == profile
        return
    assert kinds(mended) == [ACTIVE, FREE, ACTIVE]
    # 64 levels are tried: the gap is known to as much of the rise, over the slopes.
    np.testing.assert_allclose(ends(mended)[0], gap[0], atol=rise / 64 / a + 1e-3)
    np.testing.assert_allclose(ends(mended)[1], gap[1], atol=rise / 64 / c + 1e-3)


def test_active_constraint_with_a_falling_multiplier_stays():
    profile = [Segment(ACTIVE, 1.0)]
    assert mend_constraint(profile, T, np.zeros_like(T), 2.0 - T, {}, 1) == profile


def test_overlay_cuts_what_is_below():
    profile = [Segment(UPPER, 0.4), Segment(LOWER, 1.0)]
    assert kinds(overlay(profile, 0.2, Segment(CONSTRAINED, 0.6, 0))) == [UPPER, CONSTRAINED, LOWER]
    assert kinds(overlay(profile, 0.0, Segment(CONSTRAINED, 0.6, 0))) == [CONSTRAINED, LOWER]
    assert kinds(overlay(profile, 0.5, Segment(CONSTRAINED, 1.0, 0))) == [UPPER, LOWER, CONSTRAINED]
    assert overlay(profile, 0.0, Segment(CONSTRAINED, 1.0, 0)) == [Segment(CONSTRAINED, 1.0, 0)]


def test_constrained_segments_follow_their_constraint():
    structure = constrained()
    moved = [Segment(FREE, 0.35), Segment(ACTIVE, 0.6), Segment(FREE, 1.0)]
    new = constrain_controls(structure._replace(constraints=[moved]), [(0, True)])
    assert kinds(new.controls[0]) == [UPPER, CONSTRAINED, LOWER]
    np.testing.assert_allclose(ends(new.controls[0]), [0.35, 0.6, 1.0])
    freed = constrain_controls(structure_of(structure.controls), [])
    assert kinds(freed.controls[0]) == [UPPER, LOWER]


@pytest.mark.parametrize("sign", [LOWER, UPPER])
def test_a_continuous_control_leaves_its_bound_before_a_constraint(sign):
    """It is at the bound until the constraint is active, and again before it ends."""
    control = [Segment(sign, 0.4), Segment(INTERIOR, 0.5), Segment(-sign, 1.0)]
    profile = [Segment(FREE, 0.4), Segment(ACTIVE, 0.8), Segment(FREE, 1.0)]
    structure = structure_of([control], [profile], [1])
    new = constrain_controls(structure, [(0, False)])
    assert kinds(new.controls[0]) == [sign, INTERIOR, -sign]
    leaves, reaches, _ = ends(new.controls[0])
    assert 0.3 < leaves < 0.4
    assert 0.8 < reaches < 0.9
    # At a bound within the arc is another matter: other controls may keep the constraint.
    within = [Segment(INTERIOR, 0.5), Segment(sign, 0.6), Segment(INTERIOR, 1.0)]
    new = constrain_controls(structure_of([within], [profile], [1]), [(0, False)])
    assert new.controls == [within]


def test_rows_of_active_constraints():
    """By order, each order's filled up to a power of two."""
    active = [ActiveConstraint(*each) for each in ((7, 2), (0, 1), (3, 1), (5, 1))]
    rows, place = arrange(active)
    assert rows.orders == (1, 1, 1, 1, 2)
    np.testing.assert_array_equal(rows.index[place], [7, 0, 3, 5])
    values = np.arange(1.0, 6.0)
    values[3] = 0.0
    every = np.asarray(spread(values, rows.index, 8))
    np.testing.assert_array_equal(every, [1.0, 0.0, 0.0, 2.0, 0.0, 3.0, 0.0, 5.0])


def test_a_structure_in_words():
    structure = structure_of(
        [[Segment(UPPER, 0.25), Segment(SINGULAR, 0.5), Segment(LOWER, 1.0)]],
        [[Segment(FREE, 0.3), Segment(FREE, 1.0)], [Segment(FREE, 0.5), Segment(ACTIVE, 1.0)]],
        [2, 1],
    )
    assert structure.describe(("floor", "wall")) == [
        "control 0: upper bound to 0.25; singular to 0.5; lower bound",
        "floor: free, touching to 0.3; free",
        "wall: free to 0.5; active",
    ]


def test_only_what_changed_is_told():
    wall = [[Segment(ACTIVE, 1.0)]], [1]
    old = structure_of([[Segment(UPPER, 0.5), Segment(LOWER, 1.0)]], *wall)
    moved = structure_of([[Segment(UPPER, 0.6), Segment(LOWER, 1.0)]], *wall)
    assert moved.describe(("wall",), old) == []
    other = structure_of([[Segment(LOWER, 1.0)]])
    assert other.describe(("wall",), old) == [
        "control 0: lower bound",
        "wall: no longer active",
    ]
