"""The switching structure: read off a transcription, mended from an exact solution."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from jaxgrip.ocp.shooting import (
    INTERIOR,
    LOWER,
    SATURATION,
    SINGULAR,
    SUBDIVISION,
    SWITCH,
    TANGENCY,
    UPPER,
    ArcPlan,
)


class Segment(NamedTuple):
    """One control keeps one kind (LOWER, INTERIOR, UPPER or SINGULAR) until the time `end` [s]."""

    kind: int
    end: float


Profile = list[Segment]


def _runs(labels: np.ndarray) -> list[tuple[int, int, int]]:
    """Runs of equal labels as (label, first, one past the last)."""
    cuts = np.flatnonzero(np.diff(labels)) + 1
    edges = [0, *cuts.tolist(), len(labels)]
    return [(int(labels[a]), a, b) for a, b in pairwise(edges)]


def _join(segments: Profile) -> Profile:
    """Merge neighbours of one kind."""
    joined: Profile = []
    for segment in segments:
        if joined and joined[-1].kind == segment.kind:
            joined[-1] = segment
        else:
            joined.append(segment)
    return joined


def read_profile(
    position: np.ndarray, final_time: float, interior_kind: int, longest_switch: int = 2
) -> Profile:
    """Read one control's segments from its course over equal intervals.

    **Arguments:** `position` `(N,)`, the control mapped to [-1, 1] between its bounds (0 where it
    has none); `final_time` [s]; `interior_kind`, INTERIOR or SINGULAR, for stretches inside the
    bounds; `longest_switch`, how many intervals a mere switch may blur.

    **Returns:** the [`Segment`][]s. A switch inside an interval is placed by the share of the
    interval that the control spends at each bound.
    """
    h = final_time / len(position)
    labels = np.where(position > 0.9, UPPER, np.where(position < -0.9, LOWER, INTERIOR))
    runs = _runs(labels)
    segments: Profile = []
    for index, (label, first, last) in enumerate(runs):
        before = runs[index - 1][0] if index else None
        after = runs[index + 1][0] if index + 1 < len(runs) else None
        if label != INTERIOR:
            segments.append(Segment(label, last * h))
        elif interior_kind == SINGULAR and last - first <= longest_switch:
            if before is None or after is None or before == after:
                # A blur at an end or a dip too short to be an arc: the exact switching
                # function will say whether a segment is missing.
                kind = before if before is not None else after
                kind = UPPER if kind is None else kind
                segments.append(Segment(kind, last * h))
            else:
                share = np.sum(0.5 * (1.0 + before * position[first:last]))
                segments[-1] = Segment(before, (first + share) * h)
        else:
            segments.append(Segment(interior_kind, last * h))
    # Bangs follow each other without a gap where the blur between them was dropped.
    return _join([*segments[:-1], Segment(segments[-1].kind, final_time)])


class Layout(NamedTuple):
    """A structure laid out on arcs: what the shooting solver takes, and the arcs' end times [s].

    `real` `(arcs - 1,)` is True where an arc's end is a switch and not a subdivision.
    """

    plan: ArcPlan
    times: np.ndarray
    real: np.ndarray


def count_arcs(profiles: list[Profile]) -> int:
    """Number of arcs that the controls' segments make together."""
    return 1 + sum(len(profile) - 1 for profile in profiles)


class _Arc(NamedTuple):
    kinds: list[int]
    rule: int
    control: int
    entry: float | None
    start: float
    end: float


def lay_out(profiles: list[Profile], n_arcs: int, time_bound: float = np.nan) -> Layout:
    """Merge the controls' segments into arcs and split the longest until there are `n_arcs`.

    Splitting instead of padding makes the spare arcs raise the accuracy, and every structure up to
    `n_arcs` runs through the same compiled code.
    """
    switches = sorted(
        (segment.end, j, index)
        for j, profile in enumerate(profiles)
        for index, segment in enumerate(profile[:-1])
    )
    current = [0] * len(profiles)
    arcs: list[_Arc] = []
    start = 0.0
    for end, j, index in switches:
        kinds = [profile[i].kind for profile, i in zip(profiles, current, strict=True)]
        before = profiles[j][index].kind
        entry = None
        if before == SINGULAR:
            # Where a singular arc ends is fixed by the second condition at its entry.
            rule, entry = TANGENCY, profiles[j][index - 1].end
        else:
            rule = SATURATION if before == INTERIOR else SWITCH
        arcs.append(_Arc(kinds, rule, j, entry, start, end))
        current[j] = index + 1
        start = end
    kinds = [profile[-1].kind for profile in profiles]
    arcs.append(_Arc(kinds, SUBDIVISION, 0, None, start, profiles[0][-1].end))
    while len(arcs) < n_arcs:
        i = max(range(len(arcs)), key=lambda i: arcs[i].end - arcs[i].start)
        arc = arcs[i]
        middle = 0.5 * (arc.start + arc.end)
        first = _Arc(arc.kinds, SUBDIVISION, 0, None, arc.start, middle)
        arcs[i : i + 1] = [first, arc._replace(start=middle)]
    inner = arcs[:-1]
    entries = {(arc.control, arc.end): i for i, arc in enumerate(inner) if arc.rule == SWITCH}
    rule = np.array([arc.rule for arc in inner], dtype=int)
    return Layout(
        ArcPlan(
            np.array([arc.kinds for arc in arcs], dtype=int),
            rule,
            np.array([arc.control for arc in inner], dtype=int),
            np.array(
                [
                    i if arc.entry is None else entries[arc.control, arc.entry]
                    for i, arc in enumerate(inner)
                ],
                dtype=int,
            ),
            np.array(time_bound),
        ),
        np.array([arc.end for arc in arcs]),
        rule != SUBDIVISION,
    )


def bracket_singular(profile: Profile, position: float) -> Profile:
    """Give a singular segment at either end of the horizon a short bang segment beyond it.

    Fixed boundary states leave no room for a singular arc there; where the transcription is too
    coarse to show the bang, the side to which the control leans is the best guess.
    """
    kind = UPPER if position > 0.0 else LOWER
    end = profile[-1].end
    length = 0.01 * end
    if profile[0].kind == SINGULAR:
        profile = [Segment(kind, length), *profile]
    if profile[-1].kind == SINGULAR:
        profile = [*profile[:-1], Segment(SINGULAR, end - length), Segment(kind, end)]
    return profile


def _drop_reversed(segments: Profile, final_time: float) -> Profile:
    """Remove segments that end before they begin."""
    while True:
        starts = [0.0, *[segment.end for segment in segments[:-1]]]
        bad = [i for i, s in enumerate(segments) if s.end <= starts[i]]
        if not bad:
            return [*segments[:-1], Segment(segments[-1].kind, final_time)]
        segments = _join([s for i, s in enumerate(segments) if i != bad[0]])


def collect_profiles(profiles: list[Profile], layout: Layout, times: np.ndarray) -> list[Profile]:
    """Put solved switching times back into the controls' segments.

    A switch that overtook a switch of another control simply changes the order; a segment of one
    control that lost its length is dropped.
    """
    ends: list[list[float]] = [[] for _ in profiles]
    for i in np.flatnonzero(layout.real):
        ends[layout.plan.control[i]].append(float(times[i]))
    final_time = float(times[-1])
    return [
        _drop_reversed(
            _join(
                [
                    Segment(segment.kind, end)
                    for segment, end in zip(profile, [*end_list, final_time], strict=True)
                ]
            ),
            final_time,
        )
        for profile, end_list in zip(profiles, ends, strict=True)
    ]


def mend_profile(
    profile: Profile,
    t: np.ndarray,
    switching: np.ndarray,
    position: np.ndarray,
    tolerance: float,
    inside_kind: int | None = None,
) -> Profile:
    """Rewrite one control's segments where an exact solution breaks the minimum principle.

    Where the switching function has the wrong sign on a bang segment the control changes to the
    other bound, or to `inside_kind` where that is given (a control with a strictly convex
    Hamiltonian leaves its bound that way); where an interior or singular control leaves its bounds
    it is put on the bound.

    **Arguments:** `t` `(K,)` increasing times [s]; `switching` `(K,)` scaled to order one;
    `position` `(K,)` the control mapped to [-1, 1]; `tolerance` on the scaled switching function.

    **Returns:** the new segments; the same ones where nothing was wrong.
    """
    starts = [0.0, *[segment.end for segment in profile[:-1]]]
    mended: Profile = []
    for start, (kind, end) in zip(starts, profile, strict=True):
        inside = np.flatnonzero((t > start) & (t < end))
        if inside.size == 0:
            mended.append(Segment(kind, end))
            continue
        if kind in (LOWER, UPPER):
            other = -kind if inside_kind is None else inside_kind
            labels = np.where(kind * switching[inside] > tolerance, other, kind)
        else:
            labels = np.where(
                position[inside] > 1.0 + 1e-9,
                UPPER,
                np.where(position[inside] < -1.0 - 1e-9, LOWER, kind),
            )
        for label, _, last in _runs(labels):
            at_end = last == inside.size
            cut = end if at_end else 0.5 * (t[inside[last - 1]] + t[inside[last]])
            mended.append(Segment(label, float(cut)))
    return _join(mended)
