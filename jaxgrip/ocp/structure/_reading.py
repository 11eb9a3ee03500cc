"""The structure as a direct solution shows it: controls at bounds, active constraints, ends."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxgrip.ocp.direct import DirectSolution
from jaxgrip.ocp.hamiltonian import ActiveConstraint, find_order, kelley
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure._active import (
    as_profile,
    direct_share,
    integrate_multiplier,
    read_constraint,
)
from jaxgrip.ocp.structure._kinds import Kind
from jaxgrip.ocp.structure._segments import (
    Profile,
    Segment,
    SwitchingStructure,
    constrain_controls,
    merge,
    runs,
)
from jaxgrip.ocp.structure._sizes import Sizes, end_bounds, position_of, rate_position_of, sizes_of
from jaxgrip.solve.fusion import jit_plainly


class Trajectory(NamedTuple):
    """A motion with its multipliers, from which the shooting starts.

    `x`, `costate` `(K, n)` at increasing times `t`; `u` `(K', m)`, `multiplier` `(K', c)` of every
    constraint and `rate_costate` `(K', m)` at increasing times `t_u`; `boundary_multiplier` `(b,)`.
    """

    t: np.ndarray
    x: np.ndarray
    costate: np.ndarray
    t_u: np.ndarray
    u: np.ndarray
    multiplier: np.ndarray
    rate_costate: np.ndarray
    boundary_multiplier: np.ndarray


# Where controls are continuous, one constraint is left before another one is reached: the ends of
# arcs in one interval are told apart by this share of it.
_MARGIN = 0.25


@dataclasses.dataclass
class Reading:
    """What a direct solution tells of the structure.

    `labels` `(N, m)`, kinds of the controls in each interval; `by_distance` `(N, m)`, kinds by the
    distance from the bounds alone; `position` `(N, m)` between the bounds; `lean` `(m, 2)`, how
    much closer to its upper bound each control is in the first and the last interval than on
    average where it is inside; `is_end_free` `(m,)`, whether each control moves only free
    components of the final state; `is_convex` `(m,)`, whether the Hamiltonian is strictly convex in
    it; `order` of each constraint that becomes active; `governed`, the control that such a
    constraint influences most, and whether it determines the control.
    """

    direct: DirectSolution
    sizes: Sizes
    labels: np.ndarray
    by_distance: np.ndarray
    position: np.ndarray
    lean: np.ndarray
    is_end_free: np.ndarray
    is_convex: np.ndarray
    order: dict[int, int] = dataclasses.field(default_factory=dict)
    governed: dict[int, tuple[int, bool]] = dataclasses.field(default_factory=dict)

    def classify(self, problem: Problem, index: int, x, u) -> ActiveConstraint:
        """Order of a constraint that becomes active, and the control that it determines."""
        if index not in self.order:
            order, gradient = find_order(problem, index, jnp.asarray(x), jnp.asarray(u))
            influence = np.mean(np.abs(gradient), axis=0) * self.sizes.control
            is_convex = self.is_convex[influence > 1e-6 * np.max(influence)].any()
            inside = 1.0 - np.abs(position_of(problem, u, self.sizes.control))
            chosen = int(np.argmax(influence * np.mean(inside, axis=0)))
            self.governed[index] = chosen, not is_convex
            self.order[index] = order
        return ActiveConstraint(index, self.order[index])

    def relative_kelley(self, problem: Problem, j: int) -> np.ndarray:
        """Magnitude `(N,)` of Kelley's condition for one control, scaled: zero where a singular arc
        of order one does not determine the control.
        """
        size = self.sizes.control[j] * self.direct.final_time**2 / self.sizes.switching[j]
        return np.abs(np.asarray(_kelley(problem, j, *at_midpoints(self.direct)))) * size


class Candidate(NamedTuple):
    """A start of the shooting: a structure and a trajectory, and the reading that they are from.

    `laid_out`, where the structure was shot before: its layout, and the arcs that it led to.
    """

    structure: SwitchingStructure
    trajectory: Trajectory
    reading: Reading
    laid_out: tuple | None = None


def read_direct(problem: Problem, direct: DirectSolution) -> Reading:
    """Kinds of the controls in every interval, as far as a direct solution shows them."""
    sizes, m = sizes_of(problem, direct), problem.m
    span = sizes.control
    is_convex = np.max(np.abs(direct.curvature), axis=0) * span > 1e-6 * sizes.switching
    position = position_of(problem, direct.u, span)
    # A control with a strictly convex Hamiltonian may be close to a bound without reaching it:
    # only at the bound does the multiplier outweigh the distance.
    strength = np.abs(direct.bound_multiplier) * span * direct.final_time
    slack = 0.5 * (1.0 - np.abs(position))
    is_loose = is_convex & (strength < 10.0 * slack * np.abs(direct.objective))
    position = np.where(is_loose, np.clip(position, -0.5, 0.5), position)
    kinds = np.where(
        position > 0.9, Kind.UPPER, np.where(position < -0.9, Kind.LOWER, Kind.INTERIOR)
    )
    kinds = _label_rates(problem, direct, sizes, kinds)
    # A singular arc may run close to a bound too, with a multiplier near zero, and the midpoint
    # rule lets the control alternate there from interval to interval.
    largest = np.maximum(np.max(strength, axis=0), 1e-300)
    is_off = (kinds == Kind.INTERIOR) | (
        (strength / largest < slack) & (np.abs(kinds) == Kind.UPPER)
    )
    is_off[1:-1] |= is_off[:-2] & is_off[2:]
    labels = np.where(is_off & ~is_convex, Kind.INTERIOR, kinds)
    means = np.mean(position, axis=0, where=is_off | ~np.any(is_off, axis=0))
    is_end_free = np.zeros(m, dtype=bool)
    if np.any((labels[-1] == Kind.INTERIOR) & ~is_convex):
        end = direct.final_time, direct.x[-1], direct.u[-1]
        is_end_free = np.asarray(_moves_free_ends(problem, *map(jnp.asarray, end)))
    lean = position[[0, -1]].T - means[:, None]
    return Reading(direct, sizes, labels, kinds, position, lean, is_end_free, is_convex)


def _label_rates(problem: Problem, direct: DirectSolution, sizes: Sizes, labels: np.ndarray):
    """Mark the intervals over which a limited control's rate is at a bound."""
    position = rate_position_of(problem, direct.rate)
    costate = direct.rate_costate / sizes.rate_costate
    size = np.maximum(np.max(np.abs(costate), axis=0), 1e-300)
    fast = (np.abs(position) > 0.9) & (np.abs(costate) / size > 1.0 - np.abs(position))
    fast &= size > 1e-6
    sign = np.where(fast, np.where(position > 0.0, Kind.RISING, Kind.FALLING), 0)
    # A difference quotient lies between two intervals, and marks both.
    before, after = np.pad(sign, ((1, 0), (0, 0))), np.pad(sign, ((0, 1), (0, 0)))
    both = np.where(before != 0, before, after)
    return np.where((labels == Kind.INTERIOR) & (both != 0), both, labels)


def propose(
    problem: Problem,
    reading: Reading,
    imposed: Sequence[Sequence[tuple[int, float]]] | None,
    longest_switch: int,
    with_constraints: bool = True,
    by_distance: bool = False,
) -> Candidate:
    """The candidate that a reading suggests; the structure of the controls may be `imposed`.

    **Arguments:** `longest_switch`, number of intervals over which a switch may be blurred;
    `with_constraints`, whether any may be active; `by_distance`, whether only the distance from the
    bounds counts.
    """
    direct, sizes, m = reading.direct, reading.sizes, problem.m
    labels = (reading.by_distance if by_distance else reading.labels).copy()
    grid = direct.t
    middles = 0.5 * (grid[1:] + grid[:-1])
    costate, multiplier = direct.costate.copy(), np.zeros_like(direct.multiplier)
    x_mid = 0.5 * (direct.x[1:] + direct.x[:-1])
    active, constraints = [], []
    at_start = np.asarray(_constraints(problem, direct.x[0], direct.u[0]))
    value = np.abs(direct.constraint) / sizes.constraint
    weight = direct.multiplier * sizes.constraint / sizes.hamiltonian
    size = np.max(weight, axis=0, initial=0.0)
    for index in np.flatnonzero(size > 1e-4).tolist() if with_constraints else ():
        relative = weight[:, index] / size[index]
        if not np.any(relative > value[:, index]):
            continue
        each = reading.classify(problem, index, x_mid, direct.u)
        stretches = read_constraint(value[:, index], relative, each.order)
        if not stretches:
            continue
        control, is_determined = reading.governed[index]
        for first, last, at in stretches:
            if is_determined and at is None:
                labels[first:last, control] = Kind.CONSTRAINED
        multiplier[:, index] = integrate_multiplier(
            direct.multiplier[:, index], grid, each.order, stretches
        )
        costate -= direct_share(problem, each, direct.u, multiplier[:, index], x_mid, middles)
        is_met = bool(abs(at_start[index]) < 1e-9 * sizes.constraint[index])
        constraints.append(as_profile(stretches, grid, is_met, 0.0 if is_determined else _MARGIN))
        active.append(each)
    # Costates between the intervals as values at the midpoints.
    rate_costate = np.pad(direct.rate_costate, ((1, 1), (0, 0)))
    trajectory = Trajectory(
        grid,
        direct.x,
        costate,
        middles,
        direct.u,
        multiplier,
        0.5 * (rate_costate[1:] + rate_costate[:-1]),
        direct.boundary_multiplier,
    )
    if imposed is None:
        controls = [
            read_profile(
                labels[:, j],
                reading.position[:, j],
                grid,
                Kind.INTERIOR if reading.is_convex[j] else Kind.SINGULAR,
                longest_switch,
            )
            for j in range(m)
        ]
    else:
        controls = [[Segment(kind, end * grid[-1]) for kind, end in row] for row in imposed]
    ends = _read_ends(problem, direct, sizes)
    structure = SwitchingStructure(controls, constraints, tuple(active), ends)
    governed = [reading.governed[each.index] for each in active]
    return Candidate(constrain_controls(structure, governed), trajectory, reading)


def read_profile(
    labels: np.ndarray,
    position: np.ndarray,
    t: np.ndarray,
    inside_kind: int,
    longest_switch: int = 2,
) -> Profile:
    """Segments of one control from its kinds over intervals.

    **Arguments:** `labels` `(N,)`, the kind in each interval, INTERIOR where it is inside its
    bounds for no other reason; `position` `(N,)`, the control mapped to [-1, 1] between its bounds
    (0 where it has none); `t` `(N+1,)`, the ends of the intervals [s]; `inside_kind`, INTERIOR or
    SINGULAR, for those stretches; `longest_switch`, number of intervals over which a switch may be
    blurred.

    **Returns:** the [`Segment`][]s. A switch inside an interval is placed by the share of the
    interval that the control spends at each bound.
    """
    found = runs(labels)
    segments: Profile = []
    for index, (label, first, last) in enumerate(found):
        before = found[index - 1][0] if index else None
        after = found[index + 1][0] if index + 1 < len(found) else None
        if label != Kind.INTERIOR:
            segments.append(Segment(label, t[last]))
        elif inside_kind == Kind.SINGULAR and last - first <= longest_switch:
            if before is None or after is None or before == after:
                # A blur at an end, or one too short to be an arc: the exact switching function
                # will show whether a segment is missing.
                kind = before if before is not None else after
                kind = Kind.UPPER if kind is None else kind
                segments.append(Segment(kind, t[last]))
            elif Kind.CONSTRAINED in (before, after):
                # The constraint defines where its segment begins and ends.
                if after == Kind.CONSTRAINED:
                    segments[-1] = Segment(before, t[last])
            else:
                share = 0.5 * (1.0 + before * position[first:last])
                switch = t[first] + np.sum(share * np.diff(t[first : last + 1]))
                segments[-1] = Segment(before, switch)
        else:
            segments.append(Segment(inside_kind, t[last]))
    # Bang segments follow each other without a gap where the blur between them was dropped.
    return merge([*segments[:-1], Segment(segments[-1].kind, t[-1])])


def _read_ends(problem: Problem, direct: DirectSolution, sizes: Sizes) -> np.ndarray:
    """Bounds at which final time and initial state are: an active bound stops them near it.

    One that is not active after all is released when the structure is mended.
    """
    lower, upper = end_bounds(problem)
    values = np.append(direct.final_time, direct.x[0])
    close = 1e-3 * np.append(direct.final_time, sizes.state)
    return np.where(
        values - lower < close,
        Kind.LOWER,
        np.where(upper - values < close, Kind.UPPER, Kind.INTERIOR),
    )


def is_undetermined(problem: Problem, reading: Reading) -> bool:
    """Whether a control or a design variable has no influence: the barrier determines it."""
    direct, sizes = reading.direct, reading.sizes
    if np.any(np.max(direct.multiplier * sizes.constraint, axis=0) > sizes.hamiltonian * 1e-4):
        # A control on an active constraint has no switching function of its own.
        return False
    strength = np.max(np.abs(direct.switching_function), axis=0) * sizes.control
    strength *= direct.final_time
    designs = slice(problem.n_states, problem.n_states + problem.n_design)
    # A design variable changes its costate wherever it has an influence.
    size = np.max(np.abs(direct.x[:, designs]), axis=0)
    drift = np.max(np.abs(np.diff(direct.costate[:, designs], axis=0)), axis=0) * size
    end = np.abs(direct.costate[-1, designs]) * size
    least = 1e-4 * abs(direct.objective)
    # The switching function vanishes too where the Hamiltonian is convex, and on a singular arc.
    is_loose = any(
        np.max(reading.relative_kelley(problem, j)) < 1e-6
        for j in np.flatnonzero((strength < least) & ~reading.is_convex).tolist()
    )
    return is_loose or bool(np.any((drift < 1e-9 * least) & (end < least)))


def at_midpoints(direct: DirectSolution) -> tuple[np.ndarray, np.ndarray]:
    """States and costates `(N, 2n)` and controls `(N, m)` at the midpoints."""
    x = 0.5 * (direct.x[1:] + direct.x[:-1])
    return np.concatenate([x, direct.costate[1:]], axis=1), direct.u


@eqx.filter_jit
def _constraints(problem: Problem, x, u):
    return problem.constraints(x, u)


@jit_plainly
def _kelley(problem: Problem, j: int, y, u):
    return jax.vmap(lambda y, u: kelley(problem, j, y, u))(y, u)


@eqx.filter_jit
def _moves_free_ends(problem: Problem, time, x, u) -> Bool[Array, " m"]:
    """Whether each control moves only free components of the final state that cost nothing."""
    matters = problem.is_fixed_final | (problem.n_boundary > 0)
    matters |= jax.grad(problem.end_cost, argnums=1)(time, x) != 0.0
    moves = jax.jacfwd(problem.dynamics, argnums=1)(x, u) != 0.0
    return ~jnp.any(moves & matters[:, None], axis=0)
