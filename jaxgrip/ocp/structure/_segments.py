"""Switching structures: what each control and each constraint does from when to when."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from jaxgrip.ocp.hamiltonian import ActiveConstraint
from jaxgrip.ocp.structure._kinds import ACTIVE, FREE, Kind

# A shorter segment, as a share of the final time, is none.
SHORTEST = 1e-6
# Share of the final time by which ends of segments may lie apart and still coincide.
COINCIDENT = 1e-9


class Segment(NamedTuple):
    """A control or a constraint keeps one kind until the time `end` [s].

    Kinds of a control are those of [`Kind`][], CONSTRAINED with the row `by` of the constraint that
    determines it; those of a constraint are FREE and ACTIVE, and two FREE segments meet where the
    constraint touches.
    """

    kind: int
    end: float
    by: int = -1


Profile = list[Segment]


class SwitchingStructure(NamedTuple):
    """Segments of all `controls` and of the `constraints` that are `active` somewhere; `ends`
    `(1 + n,)`, LOWER or UPPER where the final time or a component of the initial state is at that
    bound, else INTERIOR.
    """

    controls: list[Profile]
    constraints: list[Profile]
    active: tuple[ActiveConstraint, ...]
    ends: np.ndarray

    @property
    def kinds(self) -> list[list[int]]:
        """The structure without its times."""
        return [[segment.kind for segment in each] for each in (*self.controls, *self.constraints)]

    def having(self, *kinds: int) -> list[int]:
        """The controls with a segment of one of these kinds."""
        return [j for j, p in enumerate(self.controls) if any(s.kind in kinds for s in p)]

    def describe(
        self, names: tuple[str, ...], before: "SwitchingStructure | None" = None
    ) -> list[str]:
        """One line for every control and constraint: its kinds and their end times [s].

        **Arguments:** `names` of all constraints of the problem; `before`, a structure to compare
        with: then only changed sequences of kinds are listed, and constraints no longer active.
        """

        def rows(structure):
            every = {f"control {j}": (p, True) for j, p in enumerate(structure.controls)}
            pairs = zip(structure.active, structure.constraints, strict=True)
            return every | {names[each.index]: (profile, False) for each, profile in pairs}

        def kinds(row):
            return [segment.kind for segment in row[0]]

        old, new = ({} if before is None else rows(before)), rows(self)
        lines = [
            f"{name}: {_in_words(*row)}"
            for name, row in new.items()
            if name not in old or kinds(old[name]) != kinds(row)
        ]
        return lines + [f"{name}: no longer active" for name in old if name not in new]


def _in_words(profile: Profile, is_control: bool) -> str:
    words, last = [], profile[-1]
    for segment, after in pairwise([*profile, last._replace(kind=-2)]):
        word = Kind(segment.kind).words if is_control else ("free", "active")[segment.kind]
        if not is_control and segment.kind == after.kind == FREE:
            word += ", touching"
        words.append(word if segment is last else f"{word} to {segment.end:.6g}")
    return "; ".join(words)


def runs(labels: np.ndarray) -> list[tuple[int, int, int]]:
    """Runs of equal labels as (label, first, one past the last)."""
    cuts = np.flatnonzero(np.diff(labels)) + 1
    edges = [0, *cuts.tolist(), len(labels)]
    return [(int(labels[a]), a, b) for a, b in pairwise(edges)]


def starts_of(profile: Profile) -> list[float]:
    """Beginning of each segment [s]."""
    return [0.0, *[segment.end for segment in profile[:-1]]]


def merge(segments: Profile, keeps_touches: bool = False) -> Profile:
    """Merge neighbours of one kind; of a constraint that may touch, only active ones."""
    merged: Profile = []
    for segment in segments:
        is_equal = merged and merged[-1][::2] == segment[::2]
        if is_equal and not (keeps_touches and segment.kind == FREE):
            merged[-1] = segment
        else:
            merged.append(segment)
    return merged


def drop_short(segments: Profile, final_time: float, keeps_touches: bool = False) -> Profile:
    """Remove segments that have no length or end before they begin."""
    least = SHORTEST * final_time
    while True:
        bad = [i for i, s in enumerate(segments) if s.end <= starts_of(segments)[i] + least]
        if not bad:
            return [*segments[:-1], segments[-1]._replace(end=final_time)]
        left = [s for i, s in enumerate(segments) if i != bad[0]]
        segments = merge(left, keeps_touches)


def overlay(profile: Profile, start: float, new: Segment) -> Profile:
    """Replace the part of a profile from `start` [s] to the end of a segment by that segment."""
    before, after = [], []
    for begin, segment in zip(starts_of(profile), profile, strict=True):
        if begin < start:
            before.append(segment._replace(end=min(segment.end, start)))
        if segment.end > new.end:
            after.append(segment)
    return merge([*before, new, *after])


def bracket_singular(
    profile: Profile, lean: tuple[float, float], to_the_end: bool = False
) -> Profile:
    """Give a singular segment at either end of the motion a short bang segment beyond it.

    Fixed boundary states exclude a singular arc there; if the direct solution is too coarse to show
    the bang segment, the bound to which the control leans there is the best guess. A singular arc
    may last `to_the_end` if the control moves only free components of the final state.
    """
    first, last = (Kind.UPPER if side > 0.0 else Kind.LOWER for side in lean)
    end = profile[-1].end
    length = 0.01 * end
    if profile[0].kind == Kind.SINGULAR:
        profile = [Segment(first, length), *profile]
    if profile[-1].kind == Kind.SINGULAR and not to_the_end:
        profile = [*profile[:-1], Segment(Kind.SINGULAR, end - length), Segment(last, end)]
    return profile


def _without_constrained(profile: Profile) -> Profile:
    """Replace constrained segments by their neighbours, each up to the middle."""
    free: Profile = []
    for start, segment in zip(starts_of(profile), profile, strict=True):
        if segment.kind != Kind.CONSTRAINED:
            free.append(segment)
        elif free:
            free[-1] = free[-1]._replace(end=0.5 * (start + segment.end))
    end = profile[-1].end
    return merge([*free[:-1], free[-1]._replace(end=end)]) if free else [Segment(Kind.UPPER, end)]


# Share of a segment at a bound by which it ends before a constraint becomes active.
_APART = 0.1


def _keep_apart(profile: Profile, start: float, end: float) -> Profile:
    """Let a control leave its bound before a constraint becomes active, and reach one afterwards.

    A convex Hamiltonian makes the control continuous: it comes from the bound to the value that
    keeps the constraint. Where a reading or a violation is too coarse to show which is first, this
    is all but always the order.
    """
    new: Profile = []
    for begin, segment in zip(starts_of(profile), profile, strict=True):
        if segment.kind in (Kind.LOWER, Kind.UPPER):
            if begin < start <= segment.end <= end:
                leave = start - _APART * (start - begin)
                new += [segment._replace(end=leave), Segment(Kind.INTERIOR, segment.end)]
                continue
            if start <= begin <= end < segment.end:
                new.append(Segment(Kind.INTERIOR, end + _APART * (segment.end - end)))
        new.append(segment)
    return merge(new)


def constrain_controls(
    structure: SwitchingStructure, governed: list[tuple[int, bool]]
) -> SwitchingStructure:
    """Mark where an active constraint determines a control, and only there.

    **Arguments:** the `structure`; `governed`, the control that each of its constraints influences
    most, and whether it determines the control: not where the Hamiltonian is strictly convex in a
    control of the constraint.
    """
    controls = [_without_constrained(profile) for profile in structure.controls]
    for i, (profile, (j, is_determined)) in enumerate(
        zip(structure.constraints, governed, strict=True)
    ):
        for start, segment in zip(starts_of(profile), profile, strict=True):
            if segment.kind != ACTIVE:
                continue
            if is_determined:
                controls[j] = overlay(controls[j], start, Segment(Kind.CONSTRAINED, segment.end, i))
            else:
                controls[j] = _keep_apart(controls[j], start, segment.end)
    return structure._replace(controls=controls)
