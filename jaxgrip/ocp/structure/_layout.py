"""A switching structure laid out on arcs: the structure as data, for one compiled program."""

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import ArrayLike, Bool, Int

from jaxgrip.ocp.hamiltonian import ActiveRows, arrange, spread
from jaxgrip.ocp.structure._kinds import ACTIVE, FREE, Kind, Rule
from jaxgrip.ocp.structure._segments import (
    Profile,
    SwitchingStructure,
    drop_short,
    merge,
    starts_of,
)


class Plan(eqx.Module):
    """The structure of a solution as data.

    `kinds` `(arcs, m)`: LOWER, INTERIOR, UPPER, SINGULAR, or FALLING and RISING where the control's
    rate is at a bound; `active` `(arcs, c)`: whether each of the `constraints` is active.

    For the end of each arc but the last, and then for the initial value of each limited control,
    `(arcs - 1 + r,)`: `rule`, the [`Rule`][] that fixes it (by SUBDIVISION an initial value that
    nothing depends on is zero); `control` or `constraint`, the one concerned; `at`, the arc at
    whose end the rule holds. That is the arc itself, except for a segment with two conditions at
    one end and none at the other, which names that end twice: a singular arc its entry, a rate arc
    its exit.

    `jumps` `(arcs - 1,)`: number of jump parameters of the costate there, `jump_constraint` the
    constraint that they belong to. `ends` `(1 + n,)`: LOWER or UPPER where the final time or a free
    component of the initial state is at that bound, INTERIOR elsewhere. `constraints`, those that
    may be active.

    Static, since each adds to the compiled program: `limited`, the controls whose rate is at a
    bound somewhere, which are states with a costate while it is; `has_singular`, whether there are
    singular arcs.
    """

    kinds: Int[ArrayLike, "arcs m"]
    active: Bool[ArrayLike, "arcs c"]
    rule: Int[ArrayLike, " conditions"]
    control: Int[ArrayLike, " conditions"]
    constraint: Int[ArrayLike, " conditions"]
    at: Int[ArrayLike, " conditions"]
    jumps: Int[ArrayLike, " boundaries"]
    jump_constraint: Int[ArrayLike, " boundaries"]
    ends: Int[ArrayLike, " ends"]
    constraints: ActiveRows
    limited: tuple[int, ...] = eqx.field(static=True)
    has_singular: bool = eqx.field(static=True)

    @property
    def n_jumps(self) -> int:
        """Largest number of jump parameters at the end of an arc."""
        return self.constraints.highest

    def active_among(self, count: int) -> Bool[ArrayLike, "arcs every"]:
        """Whether each of all `count` constraints of the problem is active on each arc."""
        return spread(self.active.astype(int), self.constraints.index, count) > 0

    @property
    def is_switch(self) -> Bool[np.ndarray, " boundaries"]:
        """Where the end of an arc is an event and not a subdivision, `(arcs - 1,)`."""
        return np.asarray(self.rule)[: len(self.jumps)] != Rule.SUBDIVISION


class Event(NamedTuple):
    """A segment ends: of a control (`is_control`) or a constraint, its `row` and `index`."""

    is_control: bool
    row: int
    index: int


class Layout(NamedTuple):
    """A structure laid out on arcs: the `plan`, the end `times` of the arcs [s], and the `events`
    at the end of each arc but the last, none at a subdivision.
    """

    plan: Plan
    times: np.ndarray
    events: list[list[Event]]


def parts_of(layout: Layout) -> list[int]:
    """Numbers of arcs between one event and the next."""
    ends = np.flatnonzero([bool(events) for events in layout.events])
    return np.diff([-1, *ends, len(layout.times) - 1]).tolist()


class _Arc(NamedTuple):
    """`about`: the control or constraint that the rule concerns; `key`: the time at which the rule
    holds, None for a subdivision.
    """

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
    """Rule and time of the condition for the beginning of the rate arcs from a segment on."""
    while index + 1 < len(profile) and profile[index].kind in (Kind.FALLING, Kind.RISING):
        index += 1
    last = profile[index]
    if last.kind in (Kind.FALLING, Kind.RISING):
        return Rule.RATE, last.end
    end = starts_of(profile)[index]
    return (Rule.SATURATION if last.kind in (Kind.LOWER, Kind.UPPER) else Rule.SWITCH), end


def _control_rule(profile: Profile, index: int) -> tuple[int, float]:
    """Rule that fixes the end of a control's segment, and the time at which it holds."""
    before, after = profile[index], profile[index + 1]
    if before.kind in (Kind.FALLING, Kind.RISING):
        return Rule.RATE, before.end
    if after.kind in (Kind.FALLING, Kind.RISING):
        return _entry_of_rate(profile, index + 1)
    if before.kind == Kind.SINGULAR:
        # The second condition at the entry of a singular arc fixes its exit.
        return Rule.TANGENCY, profile[index - 1].end
    if after.kind == Kind.SINGULAR and index + 2 == len(profile):
        # The transversality condition makes the switching function vanish up to the final time.
        return Rule.TANGENCY, before.end
    return (Rule.SATURATION if before.kind == Kind.INTERIOR else Rule.SWITCH), before.end


def _events(structure: SwitchingStructure) -> list[tuple[float, Event]]:
    """Ends of segments in time, without those of constrained segments, which the constraint has."""
    found = []
    for is_control, rows in ((True, structure.controls), (False, structure.constraints)):
        for row, profile in enumerate(rows):
            for index, (before, after) in enumerate(pairwise(profile)):
                if not is_control or Kind.CONSTRAINED not in (before.kind, after.kind):
                    found.append((before.end, Event(is_control, row, index)))
    return sorted(found)


def order_of_events(structure: SwitchingStructure) -> list[list[Event]]:
    """Ends of segments in the order of time, those at one time together."""
    return [[e for _, e in same] for _, same in groupby(_events(structure), lambda each: each[0])]


def count_arcs(structure: SwitchingStructure) -> int:
    """Number of arcs of a structure."""
    return 1 + len(_events(structure))


def lay_out(structure: SwitchingStructure, n_arcs: int, parts: Sequence[int] = ()) -> Layout:
    """Merge all segments into arcs and halve the longest until there are `n_arcs`.

    `parts`, where given, are the numbers of equal arcs between one event and the next instead.

    Halving instead of padding makes the spare arcs raise the accuracy, and every structure of up to
    `n_arcs` arcs runs through the same compiled program.
    """
    controls, constraints = structure.controls, structure.constraints
    at, at_constraint = [0] * len(controls), [0] * len(constraints)
    arcs: list[_Arc] = []
    start = 0.0

    def kinds():
        raw = (profile[i].kind for profile, i in zip(controls, at, strict=True))
        return [Kind.INTERIOR if kind == Kind.CONSTRAINED else kind for kind in raw]

    rows, place_of = arrange(structure.active)

    def active():
        of_rows = [False] * len(rows)
        for profile, i, row in zip(constraints, at_constraint, place_of, strict=True):
            of_rows[row] = profile[i].kind == ACTIVE
        return of_rows

    for end, event in _events(structure):
        arc_kinds, arc_active, events, jumps = kinds(), active(), [event], 0
        if event.is_control:
            rule, key = _control_rule(controls[event.row], event.index)
            about = event.row
            at[event.row] += 1
        else:
            about, key = place_of[event.row], end
            before, after = constraints[event.row][event.index : event.index + 2]
            tied = [
                Event(True, j, at[j])
                for j, profile in enumerate(controls)
                if at[j] + 1 < len(profile)
                and any(
                    s.kind == Kind.CONSTRAINED and s.by == event.row
                    for s in profile[at[j] : at[j] + 2]
                )
                and profile[at[j]].end == end
            ]
            if before.kind == ACTIVE:
                rule = Rule.RELEASE
            elif after.kind == FREE:
                rule, jumps = Rule.TOUCH, 1
            else:
                rule, jumps = Rule.CONTACT, structure.active[event.row].order
                if tied:
                    about = tied[0].row
                    rule, key = _control_rule(controls[about], tied[0].index)
            for each in tied:
                at[each.row] += 1
            at_constraint[event.row] += 1
            events += tied
        arcs.append(_Arc(arc_kinds, arc_active, rule, about, key, jumps, events, start, end))
        start = end
    final_time = controls[0][-1].end
    arcs.append(_Arc(kinds(), active(), Rule.SUBDIVISION, 0, None, 0, [], start, final_time))
    for i, count in reversed(list(enumerate(parts))):
        arc = arcs[i]
        ends = np.linspace(arc.start, arc.end, count + 1)[1:].tolist()
        inner = [
            _Arc(arc.kinds, arc.active, Rule.SUBDIVISION, 0, None, 0, [], *pair)
            for pair in pairwise([arc.start, *ends[:-1]])
        ]
        arcs[i : i + 1] = [*inner, arc._replace(start=ends[-2] if count > 1 else arc.start)]
    while len(arcs) < n_arcs:
        i = max(range(len(arcs)), key=lambda i: arcs[i].end - arcs[i].start)
        arc = arcs[i]
        middle = 0.5 * (arc.start + arc.end)
        first = _Arc(arc.kinds, arc.active, Rule.SUBDIVISION, 0, None, 0, [], arc.start, middle)
        arcs[i : i + 1] = [first, arc._replace(start=middle)]
    inner = arcs[:-1]
    # Of several arcs that end at the same time, the last one ends with the event.
    last = {arc.end: i for i, arc in enumerate(arcs)}

    def place(key: float | None, i: int) -> int:
        return i if key is None or (i < len(inner) and inner[i].end == key) else last[key]

    conditions = [(arc.rule, arc.about, place(arc.key, i)) for i, arc in enumerate(inner)]
    limited = structure.having(Kind.FALLING, Kind.RISING)
    for j in limited:
        rule, key = Rule.SUBDIVISION, None
        if controls[j][0].kind in (Kind.FALLING, Kind.RISING):
            rule, key = _entry_of_rate(controls[j], 0)
        conditions.append((rule, j, place(key, 0)))
    rules, concerned, places = np.array(conditions, dtype=int).reshape(-1, 3).T
    is_of_constraint = np.array([Rule(rule).is_of_constraint for rule in rules], dtype=bool)
    plan = Plan(
        kinds=np.array([arc.kinds for arc in arcs], dtype=int),
        active=np.array([arc.active for arc in arcs], dtype=bool).reshape(len(arcs), -1),
        rule=rules,
        control=np.where(is_of_constraint, 0, concerned),
        constraint=np.where(is_of_constraint, concerned, 0),
        at=places,
        jumps=np.array([arc.jumps for arc in inner], dtype=int),
        jump_constraint=np.array(
            [next((place_of[e.row] for e in arc.events if not e.is_control), 0) for arc in inner],
            dtype=int,
        ),
        ends=structure.ends,
        constraints=rows,
        limited=tuple(limited),
        has_singular=bool(structure.having(Kind.SINGULAR)),
    )
    return Layout(plan, np.array([arc.end for arc in arcs]), [arc.events for arc in inner])


def _spans(profile: Profile) -> list[tuple[float, float]]:
    """Beginning and end of each segment [s]."""
    return [(start, each.end) for start, each in zip(starts_of(profile), profile, strict=True)]


def _turned(profile: Profile) -> Profile:
    """The segments with their ends sorted."""
    ends = sorted(segment.end for segment in profile)
    return [each._replace(end=end) for each, end in zip(profile, ends, strict=True)]


def with_times(
    structure: SwitchingStructure, layout: Layout, times: np.ndarray
) -> SwitchingStructure:
    """The structure with the solved end times of its arcs.

    Switches of different controls may change their order. A segment that ends before it begins may
    do so because of the order of others: if that changes, it lies between its two times. Otherwise
    it is dropped, like one without length, and a constraint of higher order then touches.
    """
    controls, constraints = (
        [list(profile) for profile in rows] for rows in (structure.controls, structure.constraints)
    )
    for time, events in zip(times, layout.events, strict=False):
        for is_control, row, index in events:
            profile = (controls if is_control else constraints)[row]
            profile[index] = profile[index]._replace(end=float(time))
    final_time = float(times[-1])
    for profile in (*controls, *constraints):
        profile[-1] = profile[-1]._replace(end=final_time)
    if any(end < start for profile in (*controls, *constraints) for start, end in _spans(profile)):
        turned = structure._replace(
            controls=list(map(_turned, controls)), constraints=list(map(_turned, constraints))
        )
        if order_of_events(turned) != order_of_events(structure):
            controls, constraints = turned.controls, turned.constraints
    return structure._replace(
        controls=[drop_short(merge(profile), final_time) for profile in controls],
        constraints=[
            drop_short(profile, final_time, keeps_touches=order > 1)
            for profile, (_, order) in zip(constraints, structure.active, strict=True)
        ],
    )
