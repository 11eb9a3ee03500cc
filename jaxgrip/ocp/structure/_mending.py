"""Corrections of a structure where its exact solution breaks the minimum principle."""

from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np

from jaxgrip.ocp.hamiltonian import ActiveConstraint, arrange
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure._kinds import ACTIVE, FREE, Kind
from jaxgrip.ocp.structure._reading import Reading
from jaxgrip.ocp.structure._segments import (
    COINCIDENT,
    Profile,
    Segment,
    SwitchingStructure,
    constrain_controls,
    merge,
    runs,
    starts_of,
)
from jaxgrip.ocp.structure._sizes import position_of, rate_position_of

# On scaled switching functions, constraints and multipliers; the certificate allows twice as much.
TOLERANCE = 5e-10


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


class Values(NamedTuple):
    """Values along an exact solution at increasing times `t` `(K,)` [s].

    States `x` `(K, n)` and controls `u` `(K, m)`; `switching` functions `(K, m)` and `rate_costate`
    `(K, m)` of limited controls, scaled to order one; `rate` `(K, m)` of the controls [1/s]; for
    the constraints that are active somewhere, in rows as [`arrange`][] places them, the
    `multiplier` `(K, c)`, scaled, and the `jumps`, the first jump parameter at each touch
    point [s].
    """

    t: np.ndarray
    x: np.ndarray
    u: np.ndarray
    switching: np.ndarray
    rate_costate: np.ndarray
    rate: np.ndarray
    multiplier: np.ndarray
    jumps: list[dict[float, float]]


@eqx.filter_jit
def constraint_values(problem: Problem, x, u):
    """Values `(K, c)` of the constraints along a motion."""
    return jax.vmap(problem.constraints)(x, u)


def mend(
    problem: Problem, structure: SwitchingStructure, reading: Reading, values: Values
) -> SwitchingStructure:
    """Correct a structure where its exact solution breaks the minimum principle."""
    t, x, u, sizes = values.t, values.x, values.u, reading.sizes
    position, rate = position_of(problem, u, sizes.control), rate_position_of(problem, values.rate)
    controls = [
        mend_control(
            profile,
            t,
            values.switching[:, j],
            position[:, j],
            rate[:, j],
            values.rate_costate[:, j],
            Kind.INTERIOR if reading.is_convex[j] else None,
        )
        for j, profile in enumerate(structure.controls)
    ]
    if problem.n_constraints == 0:
        return structure._replace(controls=controls)
    value = np.asarray(constraint_values(problem, x, u)) / sizes.constraint
    _, places = arrange(structure.active)
    rows = [
        (each, profile, values.multiplier[:, place], values.jumps[place])
        for each, profile, place in zip(
            structure.active, structure.constraints, places, strict=True
        )
    ]
    for index in np.flatnonzero(np.any(value > TOLERANCE, axis=0)).tolist():
        if index not in [each.index for each in structure.active]:
            new = reading.classify(problem, index, x, u), [Segment(FREE, float(t[-1]))]
            rows.append((*new, np.zeros_like(t), {}))
    used: list[tuple[ActiveConstraint, Profile]] = []
    for (index, order), profile, multiplier, jumps in rows:
        size = float(sizes.hamiltonian * sizes.time / sizes.constraint[index])
        jumps = {time: jump / size for time, jump in jumps.items()}
        profile = mend_constraint(profile, t, value[:, index], multiplier, jumps, order)
        if len(profile) > 1 or profile[0].kind != FREE:
            used.append((ActiveConstraint(index, order), profile))
    # A constrained segment names a row, and rows change where a constraint is no longer used.
    structure = structure._replace(
        controls=controls,
        constraints=[profile for _, profile in used],
        active=tuple(each for each, _ in used),
    )
    return constrain_controls(structure, [reading.governed[each.index] for each, _ in used])


def mend_control(
    profile: Profile,
    t: np.ndarray,
    switching: np.ndarray,
    position: np.ndarray,
    rate: np.ndarray,
    rate_costate: np.ndarray,
    inside_kind: int | None = None,
) -> Profile:
    """Correct the segments of one control where an exact solution breaks the minimum principle.

    Where the switching function has the wrong sign at a bound, the control changes to the other
    bound, or to `inside_kind` if given (a control with a strictly convex Hamiltonian leaves its
    bound that way). Where an interior or singular control exceeds a bound, it is set to the bound;
    where it changes too fast, its rate is set to the rate bound, and released where the costate of
    the control has the wrong sign.

    **Arguments:** at increasing times `t` `(K,)` [s] the scaled `switching` function, `position`
    and `rate` mapped to [-1, 1] between their bounds, and the scaled `rate_costate`.

    **Returns:** the new segments; the same ones where nothing is wrong.
    """
    slack = 1.0 + 1e-9

    def label(segment: Segment, inside: np.ndarray):
        kind = segment.kind
        if kind in (Kind.LOWER, Kind.UPPER):
            other = -kind if inside_kind is None else inside_kind
            return np.where(kind * switching[inside] > TOLERANCE, other, kind)
        place, speed = position[inside], rate[inside]
        if kind in (Kind.FALLING, Kind.RISING):
            sign = 1.0 if kind == Kind.RISING else -1.0
            kind = np.where(sign * rate_costate[inside] > TOLERANCE, Kind.INTERIOR, kind)
            speed = np.zeros_like(speed)
        elif kind == Kind.CONSTRAINED:
            return np.full(inside.size, Kind.CONSTRAINED)
        labels = np.where(speed > slack, Kind.RISING, np.where(speed < -slack, Kind.FALLING, kind))
        return np.where(place > slack, Kind.UPPER, np.where(place < -slack, Kind.LOWER, labels))

    return merge(_relabel(profile, t, label))


def _grows(t: np.ndarray, multiplier: np.ndarray) -> np.ndarray:
    """Where a constraint has to be left because its multiplier `(K,)` grows.

    Not only there: the motion leaves the constraint before the multiplier begins to grow and
    returns to it later. To first order the multiplier has one value at both ends, and cuts off as
    much above this value as below it.
    """
    found = np.zeros(len(t), dtype=bool)
    for grows, first, last in runs((np.diff(multiplier) > TOLERANCE).astype(int)):
        if not grows or found[first]:
            continue
        levels = np.linspace(multiplier[first], multiplier[last], 65)[1:-1]
        for level in levels:
            before = np.flatnonzero(multiplier[: first + 1] >= level)
            after = np.flatnonzero(multiplier[last:] <= level)
            start = before[-1] if before.size else 0
            end = last + (after[0] if after.size else len(t) - 1 - last)
            if np.trapezoid(multiplier[start : end + 1] - level, t[start : end + 1]) <= 0.0:
                break
        found[start : end + 1] = True
    return found


def mend_constraint(
    profile: Profile,
    t: np.ndarray,
    value: np.ndarray,
    multiplier: np.ndarray,
    jumps: dict[float, float],
    order: int,
) -> Profile:
    """Correct the segments of a constraint where it is violated, or its multiplier is negative or
    grows.

    **Arguments:** `t` `(K,)` increasing times [s]; `value` and `multiplier` `(K,)`, scaled to order
    one; `jumps`, the scaled jump parameter at each touch point [s]; `order` of the constraint.

    **Returns:** the new segments. A violated constraint of second or higher order first touches,
    and if it is still violated on both sides of the point, is active on an arc; one of third order
    touches once more, since no arc of it is optimal.
    """
    touches = {b.end for b, a in pairwise(profile) if b.kind == a.kind == FREE}
    lost = {time for time in touches if jumps.get(time, 0.0) < -TOLERANCE}
    profile = [s for s in profile if not (s.kind == FREE and s.end in lost)]
    touches -= lost

    def label(segment: Segment, inside: np.ndarray):
        if segment.kind == ACTIVE:
            along = multiplier[inside]
            is_free = along < -TOLERANCE
            if order > 0:
                is_free |= _grows(t[inside], along)
            return np.where(is_free, FREE, ACTIVE)
        return np.where(value[inside] > TOLERANCE, ACTIVE, FREE)

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
