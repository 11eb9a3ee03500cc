"""Shooting at a structure, in which events that overtake each other change places on the way."""

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np

from jaxgrip.ocp.indirect import (
    Arcs,
    Extremal,
    as_trajectory,
    overtaken,
    pose,
    solve_shooting,
    start_arcs,
)
from jaxgrip.ocp.pipeline._outcome import Search
from jaxgrip.ocp.structure import (
    Candidate,
    Layout,
    Reading,
    Sizes,
    SwitchingStructure,
    Trajectory,
    count_arcs,
    lay_out,
    parts_of,
    with_times,
)

# How often events may change places in one shooting.
_MOST_EXCHANGES = 40


class Aim(NamedTuple):
    """What is shot at: a structure, its layout, and the arcs to start from."""

    structure: SwitchingStructure
    layout: Layout
    arcs: Arcs


def aim(search: Search, candidate: Candidate, n_arcs: int) -> Aim:
    """The arcs of a candidate: those it was shot with before, or interpolated ones."""
    structure, trajectory, reading, laid_out = candidate
    if laid_out is not None:
        return Aim(structure, *laid_out)
    layout = lay_out(structure, n_arcs)
    return Aim(structure, layout, _interpolated(search, layout, trajectory, reading.sizes))


def shoot(
    search: Search, at: Aim, reading: Reading, is_imposed: bool = False
) -> tuple[Aim, Extremal]:
    """Shoot, converged or not; the structure that is returned has the events in their order.

    With two events of continuous controls in the wrong order there may be no solution near: when an
    event overtakes another one they change places, where the arc between them has no length and
    both orders the same motion. Where two events overtake each other forth and back, they may, as
    polynomials continue. Switches from bound to bound need none of this, and the iteration without
    it is shorter. The segments of a structure that `is_imposed` remain.
    """
    if np.all(reading.is_convex):
        found = _shoot_in_order(search, at, reading.sizes, is_imposed)
        if found[1].shot.converged:
            return found
    return at, _shoot(search, at, reading.sizes, None)


def _shoot_in_order(
    search: Search, at: Aim, sizes: Sizes, is_imposed: bool
) -> tuple[Aim, Extremal]:
    exchanges: Counter = Counter()
    for _ in range(_MOST_EXCHANGES):
        pairs = _pairs(at.layout)
        may_overtake = np.array([exchanges[pair] > 1 for pair in pairs])
        extremal = _shoot(search, at, sizes, may_overtake)
        crossing = overtaken(extremal.shot.arcs, may_overtake)
        if extremal.shot.converged or not crossing.size or extremal.shot.arcs.times[-1] <= 0.0:
            break
        exchanges[pairs[crossing[0]]] += 1
        after = _exchanged(search, at, extremal, sizes)
        if is_imposed and after.structure.kinds != at.structure.kinds:
            break
        at = after
    return at, extremal


def _shoot(search: Search, at: Aim, sizes: Sizes, may_overtake: np.ndarray | None) -> Extremal:
    bvp = pose(search.problem, at.layout.plan, sizes)
    shot = solve_shooting(bvp, search.solver.shooting, at.arcs, may_overtake)
    search.stats["shooting_steps"] += int(shot.steps)
    return Extremal(bvp, shot)


def _pairs(layout: Layout) -> list[frozenset]:
    """For each arc the events before it and after it."""
    ends = [(), *(tuple(events) for events in layout.events if events), ()]
    return [
        frozenset(pair)
        for pair, n in zip(pairwise(ends), parts_of(layout), strict=True)
        for _ in range(n)
    ]


def _exchanged(search: Search, at: Aim, extremal: Extremal, sizes: Sizes) -> Aim:
    """The aim after an event has overtaken another one, or a segment has lost its length."""
    arcs, n_arcs = extremal.shot.arcs, len(at.layout.times)
    times = np.asarray(arcs.times)
    structure = with_times(at.structure, at.layout, times)
    if structure.kinds == at.structure.kinds:
        layout = lay_out(structure, n_arcs, parts_of(at.layout))
        # The arcs stay as they are; jumps go with their events.
        before = {tuple(events): i for i, events in enumerate(at.layout.events) if events}
        place = [before.get(tuple(events), i) for i, events in enumerate(layout.events)]
        moved = arcs._replace(times=np.sort(times), jump=np.asarray(arcs.jump)[place])
        return Aim(structure, layout, jax.device_put(moved))
    in_order = arcs._replace(times=np.maximum.accumulate(times))
    layout = lay_out(structure, max(n_arcs, count_arcs(structure)))
    trajectory = as_trajectory(extremal.bvp, in_order)
    return Aim(structure, layout, _interpolated(search, layout, trajectory, sizes))


def _interpolated(search: Search, layout: Layout, trajectory: Trajectory, sizes: Sizes) -> Arcs:
    bvp = pose(search.problem, layout.plan, sizes)
    shooting = search.solver.shooting
    return start_arcs(bvp, trajectory, layout.times, shooting.intervals, shooting.stages)
