"""The structure of a solution: read off a transcription, laid out on arcs, mended."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from jaxgrip.ocp.hamiltonian import ActiveConstraint
from jaxgrip.ocp.structure._plan import (
    CONTACT,
    FALLING,
    INTERIOR,
    LOWER,
    RATE,
    RELEASE,
    RISING,
    SATURATION,
    SINGULAR,
    SUBDIVISION,
    SWITCH,
    TANGENCY,
    TOUCH,
    UPPER,
    ArcPlan,
    EndKinds,
)

# In a profile, beside the kinds of an arc: a control that an active constraint determines although
# the Hamiltonian is linear in it.
HELD = 5
FREE, ACTIVE = 0, 1
# A shorter segment, as a share of the final time, is none.
SHORTEST = 1e-6
# Share of the final time by which ends of segments may lie apart and still coincide.
COINCIDENT = 1e-9


class Segment(NamedTuple):
    """A control or a constraint keeps one kind until the time `end` [s].

    Controls are LOWER, INTERIOR, UPPER, SINGULAR, FALLING, RISING or HELD, then `by` the constraint
    with that row; constraints are FREE or ACTIVE, and two FREE segments meet where they touch.
    """

    kind: int
    end: float
    by: int = -1


Profile = list[Segment]


class Profiles(NamedTuple):
    """Segments of every control, and of every constraint that is active somewhere."""

    controls: list[Profile]
    constraints: list[Profile]

    @property
    def kinds(self) -> list[list[int]]:
        """What remains of the structure without the times."""
        return [[segment.kind for segment in each] for each in (*self.controls, *self.constraints)]

    def has(self, *kinds: int) -> list[int]:
        """The controls that are of one of some kinds somewhere."""
        return [j for j, p in enumerate(self.controls) if any(s.kind in kinds for s in p)]


_WORDS = {
    LOWER: "lower bound",
    INTERIOR: "inside",
    UPPER: "upper bound",
    SINGULAR: "singular",
    FALLING: "falling at its rate bound",
    RISING: "rising at its rate bound",
    HELD: "held by a constraint",
}


def _in_words(profile: Profile, is_control: bool) -> str:
    words, last = [], profile[-1]
    for segment, after in pairwise([*profile, last._replace(kind=-2)]):
        word = _WORDS[segment.kind] if is_control else ("free", "active")[segment.kind]
        if not is_control and segment.kind == after.kind == FREE:
            word += ", touching"
        words.append(word if segment is last else f"{word} to {segment.end:.6g}")
    return "; ".join(words)


def describe(
    profiles: Profiles, names: list[str], before: tuple[Profiles, list[str]] | None = None
) -> list[str]:
    """One line for every control and constraint: what it is until when [s].

    **Arguments:** `profiles`; `names` of its constraints; `before`, profiles and names to compare
    with: then only what has other kinds is listed, and what is gone.
    """

    def rows(profiles, names):
        every = {f"control {j}": (p, True) for j, p in enumerate(profiles.controls)}
        every |= {n: (p, False) for n, p in zip(names, profiles.constraints, strict=True)}
        return every

    def kinds(row):
        return [segment.kind for segment in row[0]]

    old, new = ({} if before is None else rows(*before)), rows(profiles, names)
    lines = [
        f"{name}: {_in_words(*row)}"
        for name, row in new.items()
        if name not in old or kinds(old[name]) != kinds(row)
    ]
    return lines + [f"{name}: no longer active" for name in old if name not in new]


def runs(labels: np.ndarray) -> list[tuple[int, int, int]]:
    """Runs of equal labels as (label, first, one past the last)."""
    cuts = np.flatnonzero(np.diff(labels)) + 1
    edges = [0, *cuts.tolist(), len(labels)]
    return [(int(labels[a]), a, b) for a, b in pairwise(edges)]


def starts_of(profile: Profile) -> list[float]:
    """Where each segment begins [s]."""
    return [0.0, *[segment.end for segment in profile[:-1]]]


def _join(segments: Profile) -> Profile:
    """Merge neighbours of one kind."""
    joined: Profile = []
    for segment in segments:
        if joined and (joined[-1].kind, joined[-1].by) == (segment.kind, segment.by):
            joined[-1] = segment
        else:
            joined.append(segment)
    return joined


def overlay(profile: Profile, start: float, new: Segment) -> Profile:
    """Put a segment that begins at `start` [s] over a profile."""
    before, after = [], []
    for begin, segment in zip(starts_of(profile), profile, strict=True):
        if begin < start:
            before.append(segment._replace(end=min(segment.end, start)))
        if segment.end > new.end:
            after.append(segment)
    return _join([*before, new, *after])


def read_profile(
    labels: np.ndarray,
    position: np.ndarray,
    final_time: float,
    inside_kind: int,
    longest_switch: int = 2,
) -> Profile:
    """Read one control's segments from its course over equal intervals.

    **Arguments:** `labels` `(N,)`, the kind of each interval, INTERIOR where it is inside its
    bounds for no other reason; `position` `(N,)`, the control mapped to [-1, 1] between its bounds
    (0 where it has none); `final_time` [s]; `inside_kind`, INTERIOR or SINGULAR, for those
    stretches; `longest_switch`, how many intervals a mere switch may blur.

    **Returns:** the [`Segment`][]s. A switch inside an interval is placed by the share of the
    interval that the control spends at each bound.
    """
    h = final_time / len(labels)
    found = runs(labels)
    segments: Profile = []
    for index, (label, first, last) in enumerate(found):
        before = found[index - 1][0] if index else None
        after = found[index + 1][0] if index + 1 < len(found) else None
        if label != INTERIOR:
            segments.append(Segment(label, last * h))
        elif inside_kind == SINGULAR and last - first <= longest_switch:
            if before is None or after is None or before == after:
                # A blur at an end or a dip too short to be an arc: the exact switching
                # function will say whether a segment is missing.
                kind = before if before is not None else after
                kind = UPPER if kind is None else kind
                segments.append(Segment(kind, last * h))
            elif HELD in (before, after):
                # The constraint says where its segment begins and ends.
                if after == HELD:
                    segments[-1] = Segment(before, last * h)
            else:
                share = np.sum(0.5 * (1.0 + before * position[first:last]))
                segments[-1] = Segment(before, (first + share) * h)
        else:
            segments.append(Segment(inside_kind, last * h))
    # Bangs follow each other without a gap where the blur between them was dropped.
    return _join([*segments[:-1], Segment(segments[-1].kind, final_time)])


class Event(NamedTuple):
    """A segment ends: of a control (`is_control`) or a constraint, its `row` and `index`."""

    is_control: bool
    row: int
    index: int


class Layout(NamedTuple):
    """A structure laid out on arcs: what the shooting solver takes, and the arcs' end times [s].

    `events` `(arcs - 1)`: which segments end at an arc's end, none where it is a subdivision.
    """

    plan: ArcPlan
    times: np.ndarray
    events: list[list[Event]]

    @property
    def real(self) -> np.ndarray:
        """Where an arc's end is an event and not a subdivision, `(arcs - 1,)`."""
        return np.array([bool(events) for events in self.events], dtype=bool)


class _Arc(NamedTuple):
    kinds: list[int]
    active: list[bool]
    rule: int
    about: int
    key: float | None
    jumps: int
    events: list[Event]
    start: float
    end: float


def _entry_of_rate(profile: Profile, index: int) -> tuple[int, float]:
    """Rule and time of what fixes the beginning of the rate arcs that start with a segment."""
    while index + 1 < len(profile) and profile[index].kind in (FALLING, RISING):
        index += 1
    last = profile[index]
    if last.kind in (FALLING, RISING):
        return RATE, last.end
    end = starts_of(profile)[index]
    return (SATURATION if last.kind in (LOWER, UPPER) else SWITCH), end


def _control_rule(profile: Profile, index: int) -> tuple[int, float]:
    """Rule that fixes the end of a control's segment, and the time at which it holds."""
    before, after = profile[index], profile[index + 1]
    if before.kind in (FALLING, RISING):
        return RATE, before.end
    if after.kind in (FALLING, RISING):
        return _entry_of_rate(profile, index + 1)
    if before.kind == SINGULAR:
        # Where a singular arc ends is fixed by the second condition at its entry.
        return TANGENCY, profile[index - 1].end
    if after.kind == SINGULAR and index + 2 == len(profile):
        # The transversality condition makes the switching function vanish up to the final time.
        return TANGENCY, before.end
    return (SATURATION if before.kind == INTERIOR else SWITCH), before.end


def _events(profiles: Profiles) -> list[tuple[float, Event]]:
    """Ends of segments in time, without those of held controls, which the constraints bring."""
    found = []
    for is_control, rows in ((True, profiles.controls), (False, profiles.constraints)):
        for row, profile in enumerate(rows):
            for index, (before, after) in enumerate(pairwise(profile)):
                if not is_control or HELD not in (before.kind, after.kind):
                    found.append((before.end, Event(is_control, row, index)))
    return sorted(found)


def count_arcs(profiles: Profiles) -> int:
    """Number of arcs that the segments make together."""
    return 1 + len(_events(profiles))


def lay_out(
    profiles: Profiles,
    active: tuple[ActiveConstraint, ...],
    n_arcs: int,
    ends: EndKinds,
) -> Layout:
    """Merge all segments into arcs and split the longest until there are `n_arcs`.

    Splitting instead of padding makes the spare arcs raise the accuracy, and every structure up to
    `n_arcs` runs through the same compiled code.
    """
    controls, constraints = profiles
    at = [0] * len(controls)
    holds = [0] * len(constraints)
    arcs: list[_Arc] = []
    start = 0.0

    def kinds():
        raw = (profile[i].kind for profile, i in zip(controls, at, strict=True))
        return [INTERIOR if kind == HELD else kind for kind in raw]

    def actives():
        return [p[i].kind == ACTIVE for p, i in zip(constraints, holds, strict=True)]

    for end, event in _events(profiles):
        arc_kinds, arc_active, events, jumps = kinds(), actives(), [event], 0
        if event.is_control:
            rule, key = _control_rule(controls[event.row], event.index)
            about = event.row
            at[event.row] += 1
        else:
            about, key = event.row, end
            before, after = constraints[event.row][event.index : event.index + 2]
            tied = [
                Event(True, j, at[j])
                for j, profile in enumerate(controls)
                if at[j] + 1 < len(profile)
                and any(s.kind == HELD and s.by == event.row for s in profile[at[j] : at[j] + 2])
                and profile[at[j]].end == end
            ]
            if before.kind == ACTIVE:
                rule = RELEASE
            elif after.kind == FREE:
                rule, jumps = TOUCH, 1
            else:
                jumps = active[event.row].order
                rule = CONTACT
                if tied:
                    about = tied[0].row
                    rule, key = _control_rule(controls[about], tied[0].index)
            for each in tied:
                at[each.row] += 1
            holds[event.row] += 1
            events += tied
        arcs.append(_Arc(arc_kinds, arc_active, rule, about, key, jumps, events, start, end))
        start = end
    final_time = controls[0][-1].end
    arcs.append(_Arc(kinds(), actives(), SUBDIVISION, 0, None, 0, [], start, final_time))
    while len(arcs) < n_arcs:
        i = max(range(len(arcs)), key=lambda i: arcs[i].end - arcs[i].start)
        arc = arcs[i]
        middle = 0.5 * (arc.start + arc.end)
        first = _Arc(arc.kinds, arc.active, SUBDIVISION, 0, None, 0, [], arc.start, middle)
        arcs[i : i + 1] = [first, arc._replace(start=middle)]
    # An event is the last of the arcs that end at its time where several have no length.
    last = {arc.end: i for i, arc in enumerate(arcs)}
    inner = arcs[:-1]
    conditions = [(arc.rule, arc.about, arc.key, i) for i, arc in enumerate(inner)]
    for j in profiles.has(FALLING, RISING):
        if controls[j][0].kind in (FALLING, RISING):
            rule, key = _entry_of_rate(controls[j], 0)
            conditions.append((rule, j, key, 0))
        else:
            conditions.append((SUBDIVISION, j, None, 0))
    about_constraint = (CONTACT, RELEASE, TOUCH)
    jump_rows = [next((e.row for e in arc.events if not e.is_control), 0) for arc in inner]
    return Layout(
        ArcPlan(
            np.array([arc.kinds for arc in arcs], dtype=int),
            np.array([arc.active for arc in arcs], dtype=bool).reshape(len(arcs), -1),
            np.array([rule for rule, *_ in conditions], dtype=int),
            np.array(
                [0 if rule in about_constraint else about for rule, about, *_ in conditions],
                dtype=int,
            ),
            np.array(
                [about if rule in about_constraint else 0 for rule, about, *_ in conditions],
                dtype=int,
            ),
            np.array(
                [
                    i if key is None or (i < len(inner) and inner[i].end == key) else last[key]
                    for _, _, key, i in conditions
                ],
                dtype=int,
            ),
            np.array([arc.jumps for arc in inner], dtype=int),
            np.array(jump_rows, dtype=int),
            ends,
        ),
        np.array([arc.end for arc in arcs]),
        [arc.events for arc in inner],
    )


def bracket_singular(
    profile: Profile, lean: tuple[float, float], to_the_end: bool = False
) -> Profile:
    """Give a singular segment at either end of the horizon a short bang segment beyond it.

    Fixed boundary states leave no room for a singular arc there; where the transcription is too
    coarse to show the bang, the side to which the control leans there is the best guess. Where the
    control moves free components of the final state only, a singular arc may last `to_the_end`.
    """
    first, last = (UPPER if side > 0.0 else LOWER for side in lean)
    end = profile[-1].end
    length = 0.01 * end
    if profile[0].kind == SINGULAR:
        profile = [Segment(first, length), *profile]
    if profile[-1].kind == SINGULAR and not to_the_end:
        profile = [*profile[:-1], Segment(SINGULAR, end - length), Segment(last, end)]
    return profile


def _merge_active(segments: Profile) -> Profile:
    """Merge neighbours that are active, but not free ones, which touch."""
    merged: Profile = []
    for segment in segments:
        if merged and merged[-1].kind == segment.kind == ACTIVE:
            merged[-1] = segment
        else:
            merged.append(segment)
    return merged


def _drop_short(segments: Profile, final_time: float, join=_join) -> Profile:
    """Remove segments that have no length or end before they begin."""
    least = SHORTEST * final_time
    while True:
        bad = [i for i, s in enumerate(segments) if s.end <= starts_of(segments)[i] + least]
        if not bad:
            return [*segments[:-1], segments[-1]._replace(end=final_time)]
        segments = join([s for i, s in enumerate(segments) if i != bad[0]])


def collect_profiles(
    profiles: Profiles, active: tuple[ActiveConstraint, ...], layout: Layout, times: np.ndarray
) -> Profiles:
    """Put solved event times back into the segments.

    A switch that overtook a switch of another control simply changes the order; a segment that
    lost its length is dropped, and a constraint of higher order then touches.
    """
    controls, constraints = ([list(p) for p in rows] for rows in profiles)
    for time, events in zip(times, layout.events, strict=False):
        for is_control, row, index in events:
            profile = (controls if is_control else constraints)[row]
            profile[index] = profile[index]._replace(end=float(time))
    final_time = float(times[-1])
    for rows in (controls, constraints):
        for profile in rows:
            profile[-1] = profile[-1]._replace(end=final_time)
    return Profiles(
        [_drop_short(_join(profile), final_time) for profile in controls],
        [
            _drop_short(profile, final_time, _join if order < 2 else _merge_active)
            for profile, (_, order) in zip(constraints, active, strict=True)
        ],
    )


def _relabel(profile: Profile, t: np.ndarray, label) -> Profile:
    """Replace each segment by runs of what `label(segment, indices of t inside)` says."""
    new: Profile = []
    # The end of an arc belongs to what comes before it, whichever way it is rounded.
    least = COINCIDENT * profile[-1].end
    for start, segment in zip(starts_of(profile), profile, strict=True):
        inside = np.flatnonzero((t > start + least) & (t < segment.end - least))
        if inside.size == 0:
            new.append(segment)
            continue
        for kind, _, last in runs(np.asarray(label(segment, inside))):
            at_end = last == inside.size
            cut = segment.end if at_end else 0.5 * (t[inside[last - 1]] + t[inside[last]])
            by = segment.by if kind == segment.kind else -1
            new.append(Segment(kind, float(cut), by))
    return new


class Measured(NamedTuple):
    """One control along an exact solution, `(K,)` each.

    `switching` function, scaled to order one; `position` mapped to [-1, 1] between the bounds;
    `rate` mapped to [-1, 1] between the rate bounds; `rate_costate` of a limited control, scaled.
    """

    switching: np.ndarray
    position: np.ndarray
    rate: np.ndarray
    rate_costate: np.ndarray


def mend_control(
    profile: Profile,
    t: np.ndarray,
    measured: Measured,
    tolerance: float,
    inside_kind: int | None = None,
) -> Profile:
    """Rewrite one control's segments where an exact solution breaks the minimum principle.

    Where the switching function has the wrong sign on a bang segment the control changes to the
    other bound, or to `inside_kind` where that is given (a control with a strictly convex
    Hamiltonian leaves its bound that way); where an interior or singular control leaves its bounds
    it is put on the bound; where it changes too fast its rate is put on the bound, and freed where
    the rate's costate has the wrong sign.

    **Arguments:** `t` `(K,)` increasing times [s]; `measured`; `tolerance` on the scaled switching
    function.

    **Returns:** the new segments; the same ones where nothing was wrong.
    """
    slack = 1.0 + 1e-9

    def label(segment: Segment, inside: np.ndarray):
        kind = segment.kind
        if kind in (LOWER, UPPER):
            other = -kind if inside_kind is None else inside_kind
            return np.where(kind * measured.switching[inside] > tolerance, other, kind)
        position, rate = measured.position[inside], measured.rate[inside]
        if kind in (FALLING, RISING):
            sign = 1.0 if kind == RISING else -1.0
            kind = np.where(sign * measured.rate_costate[inside] > tolerance, INTERIOR, kind)
            rate = np.zeros_like(rate)
        elif kind == HELD:
            return np.full(inside.size, HELD)
        labels = np.where(rate > slack, RISING, np.where(rate < -slack, FALLING, kind))
        return np.where(position > slack, UPPER, np.where(position < -slack, LOWER, labels))

    return _join(_relabel(profile, t, label))


def mend_constraint(
    profile: Profile,
    t: np.ndarray,
    value: np.ndarray,
    multiplier: np.ndarray,
    jumps: dict[float, float],
    order: int,
    tolerance: float,
) -> Profile:
    """Rewrite a constraint's segments where it is violated, or its multiplier is negative or grows.

    **Arguments:** `t` `(K,)` increasing times [s]; `value` and `multiplier` `(K,)`, scaled to order
    one; `jumps`, the scaled jump parameter of each point where the constraint touches [s];
    `order` of the constraint; `tolerance` on value and multiplier.

    **Returns:** the new segments. A constraint of second or higher order that is violated is made
    to touch first, and where it still is on both sides of the point, to hold on an arc; one of
    third order is made to touch once more, since no arc of it is optimal.
    """
    touches = {b.end for b, a in pairwise(profile) if b.kind == a.kind == FREE}
    lost = {time for time in touches if jumps.get(time, 0.0) < -tolerance}
    profile = [s for s in profile if not (s.kind == FREE and s.end in lost)]
    touches -= lost

    def label(segment: Segment, inside: np.ndarray):
        if segment.kind == ACTIVE:
            pull = multiplier[inside]
            grows = (np.diff(pull, prepend=pull[0]) > tolerance) & (order > 0)
            return np.where((pull < -tolerance) | grows, FREE, ACTIVE)
        return np.where(value[inside] > tolerance, ACTIVE, FREE)

    labelled = _relabel(profile, t, label)
    if order < 2:
        return _join(labelled)
    mended: Profile = []
    for start, segment, old in zip(
        starts_of(labelled), labelled, _kind_before(profile, labelled), strict=True
    ):
        violated = segment.kind == ACTIVE and old == FREE
        is_new = order > 2 or not any(start <= time <= segment.end for time in touches)
        if violated and is_new:
            inside = (t > start) & (t < segment.end)
            if mended and mended[-1].kind == FREE:
                mended.pop()
            mended.append(Segment(FREE, float(t[inside][np.argmax(value[inside])])))
        else:
            mended.append(segment)
    if mended[-1].end < profile[-1].end:
        mended.append(Segment(FREE, profile[-1].end))
    return _merge_active(mended)


def _kind_before(old: Profile, new: Profile) -> list[int]:
    """What each new segment was made from, by its middle."""
    kinds = []
    for start, segment in zip(starts_of(new), new, strict=True):
        middle = 0.5 * (start + segment.end)
        kinds.append(next((s.kind for s in old if s.end >= middle), old[-1].kind))
    return kinds


def _free_held(profile: Profile) -> Profile:
    """Replace held segments by their neighbours, each up to the middle."""
    free: Profile = []
    for start, segment in zip(starts_of(profile), profile, strict=True):
        if segment.kind != HELD:
            free.append(segment)
        elif free:
            free[-1] = free[-1]._replace(end=0.5 * (start + segment.end))
    end = profile[-1].end
    return _join([*free[:-1], free[-1]._replace(end=end)]) if free else [Segment(UPPER, end)]


def tie(profiles: Profiles, preferred: list[int | None]) -> Profiles:
    """Let every active segment hold a control, and free controls whose constraint let go.

    **Arguments:** `profiles`; `preferred`, for each constraint the control that it holds, None
    where the Hamiltonian is strictly convex in one that could follow it.
    """
    controls = [_free_held(profile) for profile in profiles.controls]
    for i, profile in enumerate(profiles.constraints):
        j = preferred[i]
        if j is None:
            continue
        for start, segment in zip(starts_of(profile), profile, strict=True):
            if segment.kind == ACTIVE:
                controls[j] = overlay(controls[j], start, Segment(HELD, segment.end, i))
    return Profiles(controls, profiles.constraints)
