"""Corrections of a structure where its exact solution breaks the minimum principle."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from jaxgrip.ocp.structure._kinds import ACTIVE, FREE, Kind
from jaxgrip.ocp.structure._segments import (
    COINCIDENT,
    Profile,
    Segment,
    SwitchingStructure,
    merge,
    overlay,
    runs,
    starts_of,
)


def _relabel(profile: Profile, t: np.ndarray, label) -> Profile:
    """Replace each segment by runs of the kinds `label(segment, indices of t inside)`."""
    new: Profile = []
    # The end of an arc belongs to the segment before it, however it is rounded.
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


class ControlValues(NamedTuple):
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
    values: ControlValues,
    tolerance: float,
    inside_kind: int | None = None,
) -> Profile:
    """Correct the segments of one control where an exact solution breaks the minimum principle.

    Where the switching function has the wrong sign at a bound, the control changes to the other
    bound, or to `inside_kind` if given (a control with a strictly convex Hamiltonian leaves its
    bound that way). Where an interior or singular control exceeds a bound, it is set to the bound;
    where it changes too fast, its rate is set to the rate bound, and released where the costate of
    the control has the wrong sign.

    **Arguments:** `t` `(K,)` increasing times [s]; `values`; `tolerance` on the scaled switching
    function.

    **Returns:** the new segments; the same ones where nothing is wrong.
    """
    slack = 1.0 + 1e-9

    def label(segment: Segment, inside: np.ndarray):
        kind = segment.kind
        if kind in (Kind.LOWER, Kind.UPPER):
            other = -kind if inside_kind is None else inside_kind
            return np.where(kind * values.switching[inside] > tolerance, other, kind)
        position, rate = values.position[inside], values.rate[inside]
        if kind in (Kind.FALLING, Kind.RISING):
            sign = 1.0 if kind == Kind.RISING else -1.0
            kind = np.where(sign * values.rate_costate[inside] > tolerance, Kind.INTERIOR, kind)
            rate = np.zeros_like(rate)
        elif kind == Kind.CONSTRAINED:
            return np.full(inside.size, Kind.CONSTRAINED)
        labels = np.where(rate > slack, Kind.RISING, np.where(rate < -slack, Kind.FALLING, kind))
        return np.where(
            position > slack, Kind.UPPER, np.where(position < -slack, Kind.LOWER, labels)
        )

    return merge(_relabel(profile, t, label))


def mend_constraint(
    profile: Profile,
    t: np.ndarray,
    value: np.ndarray,
    multiplier: np.ndarray,
    jumps: dict[float, float],
    order: int,
    tolerance: float,
) -> Profile:
    """Correct the segments of a constraint where it is violated, or its multiplier is negative or
    grows.

    **Arguments:** `t` `(K,)` increasing times [s]; `value` and `multiplier` `(K,)`, scaled to order
    one; `jumps`, the scaled jump parameter at each touch point [s]; `order` of the constraint;
    `tolerance` on value and multiplier.

    **Returns:** the new segments. A violated constraint of second or higher order first touches,
    and if it is still violated on both sides of the point, is active on an arc; one of third order
    touches once more, since no arc of it is optimal.
    """
    touches = {b.end for b, a in pairwise(profile) if b.kind == a.kind == FREE}
    lost = {time for time in touches if jumps.get(time, 0.0) < -tolerance}
    profile = [s for s in profile if not (s.kind == FREE and s.end in lost)]
    touches -= lost

    def label(segment: Segment, inside: np.ndarray):
        if segment.kind == ACTIVE:
            along = multiplier[inside]
            grows = (np.diff(along, prepend=along[0]) > tolerance) & (order > 0)
            return np.where((along < -tolerance) | grows, FREE, ACTIVE)
        return np.where(value[inside] > tolerance, ACTIVE, FREE)

    labelled = _relabel(profile, t, label)
    if order < 2:
        return merge(labelled)
    mended: Profile = []
    for start, segment in zip(starts_of(labelled), labelled, strict=True):
        middle = 0.5 * (start + segment.end)
        old = next((s.kind for s in profile if s.end >= middle), profile[-1].kind)
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
    return merge(mended, keeps_touches=True)


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


def constrain_controls(
    structure: SwitchingStructure, determined: list[int | None]
) -> SwitchingStructure:
    """Mark where an active constraint determines a control, and only there.

    **Arguments:** the `structure`; `determined`, the control that each of its constraints
    determines, None where the Hamiltonian is strictly convex in a control of the constraint.
    """
    controls = [_without_constrained(profile) for profile in structure.controls]
    for i, profile in enumerate(structure.constraints):
        j = determined[i]
        if j is None:
            continue
        for start, segment in zip(starts_of(profile), profile, strict=True):
            if segment.kind == ACTIVE:
                controls[j] = overlay(controls[j], start, Segment(Kind.CONSTRAINED, segment.end, i))
    return structure._replace(controls=controls)
