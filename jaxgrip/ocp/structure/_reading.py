"""Reading a transcription: where controls sit on bounds, constraints press, an optimum chatters."""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from jaxgrip.ocp.direct import DirectSolution
from jaxgrip.ocp.hamiltonian import (
    ActiveConstraint,
    boundary_sizes,
    find_order,
    kelley,
    switching_derivative,
    total_derivative,
)
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure._plan import (
    FALLING,
    INTERIOR,
    LOWER,
    RISING,
    SINGULAR,
    UPPER,
    EndKinds,
    Features,
    Scales,
)
from jaxgrip.ocp.structure._segments import (
    ACTIVE,
    FREE,
    HELD,
    Profile,
    Profiles,
    Segment,
    describe,
    read_profile,
    runs,
    tie,
)
from jaxgrip.solve.fusion import jit_plainly

# A transcription leaves a constraint this far from zero where it is active but hardly presses.
_CLOSE = 1e-2
# Intervals over which a transcription spreads a contact point.
_SPIKE = 5


class Course(NamedTuple):
    """A trajectory to start the shooting from.

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


class Reading(NamedTuple):
    """What a transcription tells beside its course.

    `scales` for all constraints and limited controls; `lean` `(m, 2)`, by how much each control is
    closer to its upper bound in the first and the last interval than on average where it is inside;
    `is_end_free` `(m,)`, whether each control moves only free components of the final state;
    `is_convex` `(m,)`, whether the Hamiltonian is strictly convex in it; `holds`, for each
    constraint the control that it holds, or None; `order` of each constraint that is active.
    """

    scales: Scales
    lean: np.ndarray
    is_end_free: np.ndarray
    is_convex: np.ndarray
    holds: dict[int, int | None]
    order: dict[int, int]


class Track(NamedTuple):
    """What the shooting starts from: segments of controls and of the `active` constraints, bounds
    that hold the `ends`, a trajectory, and what the transcription told beside it.
    """

    profiles: Profiles
    active: tuple[ActiveConstraint, ...]
    ends: EndKinds
    course: Course
    reading: Reading

    def describe(self, problem: Problem, before: "Track | None" = None) -> list[str]:
        """The structure in words; what is not as `before` where that is given."""

        def named(track):
            names = [problem.constraint_names[each.index] for each in track.active]
            return track.profiles, names

        return describe(*named(self), None if before is None else named(before))


def _size(values: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Largest magnitude of each column, floored where a column is all but zero in its unit."""
    largest = np.max(np.abs(values), axis=0)
    floor = 1e-6 * np.max(largest * unit) / unit
    return np.where(largest > floor, largest, np.where(floor > 0.0, floor, 1.0))


def _full_scales(problem: Problem, found: DirectSolution) -> Scales:
    """Scales with a costate for every control and a multiplier of order zero a constraint."""
    state = np.max(np.abs(found.x), axis=0)
    largest = np.max(state)
    state = np.where(state > 1e-9 * largest, state, largest if largest > 0.0 else 1.0)
    span = np.asarray(problem.upper - problem.lower)
    span = np.where(np.isfinite(span), span, np.maximum(np.max(np.abs(found.u), axis=0), 1e-3))
    costate = _size(found.costate, state)
    # Where all costates vanish, the bend of the cost is left to measure them by.
    bend = found.final_time * np.max(np.abs(found.curvature) * span**2)
    if np.max(costate * state) < 1e-9 * bend:
        costate = bend / state
    hamiltonian = np.max(costate * state) / found.final_time
    # Inside its bounds a control has no switching function but rounding to measure.
    least = 1e-3 * np.abs(found.objective) / (found.final_time * span)
    least = np.maximum(least, np.max(np.abs(found.curvature), axis=0) * span)
    constraint = np.max(np.abs(found.constraint), axis=0)
    constraint = np.where(constraint > 0.0, constraint, 1.0)
    rate_costate = np.maximum(hamiltonian, least.max() * span.max()) * found.final_time / span
    return Scales(
        np.concatenate([state, costate, span, rate_costate]),
        np.concatenate([span, hamiltonian / constraint]),
        np.asarray(found.final_time),
        np.maximum(_size(found.switching_function, span), least),
        hamiltonian,
        constraint,
        np.asarray(boundary_sizes(problem, found.x[[0, -1]], state, found.final_time)),
    )


def scales_of(problem: Problem, full: Scales, features: Features) -> Scales:
    """The scales of a structure's unknowns."""
    n, m = problem.n, problem.m
    limited = np.array(features.limited, dtype=int)
    rows = np.array([index for index, _ in features.active], dtype=int)
    order = np.array([order for _, order in features.active], dtype=float)
    y = full.y
    return jax.tree.map(
        jnp.asarray,
        full._replace(
            y=np.concatenate([y[: 2 * n], y[2 * n + limited], y[2 * n + m + limited]]),
            v=np.concatenate([full.v[:m], full.v[m + rows] * full.time**order]),
            constraint=full.constraint[rows],
        ),
    )


def _map_between(values: np.ndarray, lower, upper, span: np.ndarray) -> np.ndarray:
    """Values mapped to [-1, 1] between their bounds; towards 0 where there is no bound."""
    above = np.where(np.isfinite(lower), 2.0 * (values - lower) / span - 1.0, np.inf)
    below = np.where(np.isfinite(upper), 1.0 - 2.0 * (upper - values) / span, -np.inf)
    two_sided = np.isfinite(lower) & np.isfinite(upper)
    return np.where(two_sided, above, np.where(above < 0.0, above, np.maximum(below, 0.0)))


def position_of(problem: Problem, u: np.ndarray, span: np.ndarray) -> np.ndarray:
    """Controls `(K, m)` mapped to [-1, 1] between their bounds."""
    return _map_between(u, np.asarray(problem.lower), np.asarray(problem.upper), span)


def rate_position_of(problem: Problem, rate: np.ndarray) -> np.ndarray:
    """Rates of controls `(K, m)` mapped to [-1, 1] between their bounds."""
    lower, upper = np.asarray(problem.rate_lower), np.asarray(problem.rate_upper)
    return _map_between(rate, lower, upper, np.asarray(problem.rate_span))


def ends_vector(time, start):
    """Final time and initial state as one vector, which the bounds of both belong to."""
    return np.concatenate([np.ravel(time), np.asarray(start)])


def end_bounds(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the final time and the initial state, infinite where a component is fixed."""
    (earliest, latest), fixed = problem.time_bounds, problem.is_fixed_initial
    return (
        ends_vector(earliest, np.where(fixed, -np.inf, problem.start_lower)),
        ends_vector(latest, np.where(fixed, np.inf, problem.start_upper)),
    )


def _read_ends(problem: Problem, found: DirectSolution, scales: Scales) -> EndKinds:
    """Bounds that the ends of a transcription lie on: where one holds, it stops near it.

    One that does not hold after all is let go when the structure is mended.
    """
    lower, upper = end_bounds(problem)
    values = ends_vector(found.final_time, found.x[0])
    close = 1e-3 * ends_vector(found.final_time, scales.y[: problem.n])
    kinds = np.where(
        values - lower < close, LOWER, np.where(upper - values < close, UPPER, INTERIOR)
    )
    return EndKinds(kinds[0], kinds[1:])


def classify(problem: Problem, index: int, x, u, reading: Reading) -> ActiveConstraint:
    """Order of a constraint that becomes active, and the control that it holds."""
    if index not in reading.order:
        order, gradient = find_order(problem, index, jnp.asarray(x), jnp.asarray(u))
        span = reading.scales.v[: problem.m]
        reach = np.mean(np.abs(gradient), axis=0) * span
        follows = reach > 1e-6 * np.max(reach)
        convex = np.any(follows & reading.is_convex)
        inside = 1.0 - np.abs(position_of(problem, u, span))
        reading.holds[index] = None if convex else int(np.argmax(reach * np.mean(inside, axis=0)))
        reading.order[index] = order
    return ActiveConstraint(index, reading.order[index])


class Stretch(NamedTuple):
    """Intervals from `first` to one before `last` over which a constraint is active; a contact
    point stands at the interval number `at` (a fraction), None on an arc.
    """

    first: int
    last: int
    at: float | None


def read_constraint(value: np.ndarray, pressure: np.ndarray, order: int) -> list[Stretch]:
    """Where a constraint is active: by its multiplier outweighing its distance.

    From order two on the multiplier is concentrated at both ends of an arc or at a contact point;
    arcs of order three are no part of an optimum, so that what looks like one is two points.

    **Arguments:** distance `value` and multiplier `pressure` `(N,)`, both scaled to order one.
    """
    presses = pressure > value
    if order == 1:
        # The midpoint rule lets these multipliers alternate from interval to interval.
        presses[1:-1] |= presses[:-2] & presses[2:]
    pressed = [run for run in runs(presses.astype(int)) if run[0]]
    if order < 2:
        # A single interval is an alternation too; where the constraint needs it, it comes back.
        return [Stretch(first, last, None) for _, first, last in pressed if last - first > 1]
    stretches: list[Stretch] = []
    for _, first, last in pressed:
        before = stretches[-1] if stretches else None
        if before is not None and np.all(value[before.first : last] < _CLOSE):
            stretches[-1] = Stretch(before.first, last, None)
        elif last - first > _SPIKE:
            stretches.append(Stretch(first, last, None))
        else:
            weights = pressure[first:last]
            at = np.sum(weights * (np.arange(first, last) + 0.5)) / np.sum(weights)
            stretches.append(Stretch(first, last, float(at)))
    if order < 3:
        return stretches
    points = [
        Stretch(at, at + 1, at + 0.5)
        for first, last, at in stretches
        if at is None
        for at in (first, last - 1)
    ]
    return sorted([*points, *(each for each in stretches if each.at is not None)])


def _read_constraints(
    problem: Problem, found: DirectSolution, x_mid: np.ndarray, reading: Reading
) -> dict[ActiveConstraint, list[Stretch]]:
    """Where each constraint is active, of those that are."""
    scales = reading.scales
    value = np.abs(found.constraint) / scales.constraint
    pressure = found.multiplier * scales.constraint / scales.hamiltonian
    size = np.max(pressure, axis=0, initial=0.0)
    out = {}
    for index in np.flatnonzero(size > 1e-4):
        relative = pressure[:, index] / size[index]
        if np.any(relative > value[:, index]):
            each = classify(problem, int(index), x_mid, found.u, reading)
            stretches = read_constraint(value[:, index], relative, each.order)
            if stretches:
                out[each] = stretches
    return out


def _backward(multiplier: np.ndarray, h: float, order: int, stretches: list[Stretch]) -> np.ndarray:
    """Multiplier of a constraint's derivative: that of the constraint integrated to the exit."""
    out = np.zeros_like(multiplier)
    for first, last, at in stretches:
        if at is None:
            piece = multiplier[first:last]
            for _ in range(order):
                # Half of the own interval, since the multipliers stand at the middles.
                piece = h * (np.cumsum(piece[::-1])[::-1] - 0.5 * piece)
            out[first:last] = piece
    return out


def _as_profile(
    stretches: list[Stretch], h: float, final_time: float, is_met_at_start: bool
) -> Profile:
    profile: Profile = []
    for first, last, at in stretches:
        if at is not None:
            profile.append(Segment(FREE, h * at))
            continue
        if first > 0:
            profile.append(Segment(FREE, h * first))
        elif not is_met_at_start:
            profile.append(Segment(FREE, 0.5 * h))
        profile.append(Segment(ACTIVE, h * last))
    if not profile or profile[-1].end < final_time:
        return [*profile, Segment(FREE, final_time)]
    return [*profile[:-1], profile[-1]._replace(end=final_time)]


class Labelled(NamedTuple):
    """Course of the controls over the intervals: `labels` `(N, m)`, kinds as far as a transcription
    shows them; `close` `(N, m)`, kinds by the distance from the bounds alone; `position` `(N, m)`
    between the bounds.
    """

    labels: np.ndarray
    close: np.ndarray
    position: np.ndarray


def label(problem: Problem, found: DirectSolution) -> tuple[Labelled, Reading]:
    """Kind of every control in every interval, as far as it shows, and what else is told."""
    scales, m = _full_scales(problem, found), problem.m
    span = scales.v[:m]
    bent = np.max(np.abs(found.curvature), axis=0) * span > 1e-6 * scales.switching
    position = position_of(problem, found.u, span)
    # A control with a strictly convex Hamiltonian may lie close to a bound without being on it:
    # there the multiplier outweighs the distance only on the bound.
    strength = np.abs(found.bound_multiplier) * span * found.final_time
    slack = 0.5 * (1.0 - np.abs(position))
    loose = bent & (strength < 10.0 * slack * np.abs(found.objective))
    position = np.where(loose, np.clip(position, -0.5, 0.5), position)
    close = np.where(position > 0.9, UPPER, np.where(position < -0.9, LOWER, INTERIOR))
    close = _label_rates(problem, found, scales, close)
    # A singular arc may run close to a bound too, with next to no multiplier, and the midpoint rule
    # lets the control alternate there from interval to interval.
    largest = np.maximum(np.max(strength, axis=0), 1e-300)
    is_off = (close == INTERIOR) | ((strength / largest < slack) & (np.abs(close) == UPPER))
    is_off[1:-1] |= is_off[:-2] & is_off[2:]
    labels = np.where(is_off & ~bent, INTERIOR, close)
    levels = np.mean(position, axis=0, where=is_off | ~np.any(is_off, axis=0))
    lean = position[[0, -1]].T - levels[:, None]
    is_end_free = np.zeros(m, dtype=bool)
    if np.any((labels[-1] == INTERIOR) & ~bent):
        moves = np.asarray(_moves(problem, found.x[-1], found.u[-1]))
        is_asked_for = problem.is_fixed_final | (problem.n_boundary > 0)
        is_asked_for |= np.asarray(_end_slope(problem, found.final_time, found.x[-1])) != 0.0
        is_end_free = ~np.any(moves[is_asked_for], axis=0)
    return Labelled(labels, close, position), Reading(scales, lean, is_end_free, bent, {}, {})


def read(
    problem: Problem,
    found: DirectSolution,
    labelled: Labelled,
    reading: Reading,
    imposed: Sequence[Sequence[tuple[int, float]]] | None,
    longest_switch: int,
    with_constraints: bool = True,
    by_distance: bool = False,
) -> Track:
    """Read the structure off a transcription; that of the controls may be `imposed`."""
    m, position = problem.m, labelled.position
    labels = (labelled.close if by_distance else labelled.labels).copy()
    grid = np.linspace(0.0, float(found.final_time), len(found.x))
    middles, h = 0.5 * (grid[1:] + grid[:-1]), float(grid[1])
    costate, multiplier = found.costate.copy(), np.zeros_like(found.multiplier)
    x_mid = 0.5 * (found.x[1:] + found.x[:-1])
    active, constraints = [], []
    at_start = np.asarray(problem.constraints(jnp.asarray(found.x[0]), jnp.asarray(found.u[0])))
    pressed = _read_constraints(problem, found, x_mid, reading) if with_constraints else {}
    for each, stretches in pressed.items():
        index, held = each.index, reading.holds[each.index]
        for first, last, at in stretches:
            if held is not None and at is None:
                labels[first:last, held] = HELD
        multiplier[:, index] = _backward(found.multiplier[:, index], h, each.order, stretches)
        costate -= _direct_share(problem, each, found, multiplier[:, index], x_mid, h)
        is_met = bool(abs(at_start[index]) < 1e-9 * reading.scales.constraint[index])
        constraints.append(_as_profile(stretches, h, float(grid[-1]), is_met))
        active.append(each)
    course = Course(
        grid,
        found.x,
        costate,
        middles,
        found.u,
        multiplier,
        _at_middles(found.rate_costate, m),
        found.boundary_multiplier,
    )
    if imposed is None:
        controls = [
            read_profile(
                labels[:, j],
                position[:, j],
                grid[-1],
                INTERIOR if reading.is_convex[j] else SINGULAR,
                longest_switch,
            )
            for j in range(m)
        ]
    else:
        controls = [[Segment(kind, end * grid[-1]) for kind, end in row] for row in imposed]
    profiles = tie(Profiles(controls, constraints), [reading.holds[each.index] for each in active])
    return Track(
        profiles, tuple(active), _read_ends(problem, found, reading.scales), course, reading
    )


def is_undetermined(problem: Problem, found: DirectSolution, reading: Reading) -> bool:
    """Whether something that moves nothing of consequence is held by the barrier alone."""
    scales = reading.scales
    if np.any(np.max(found.multiplier * scales.constraint, axis=0) > scales.hamiltonian * 1e-4):
        # What holds a constraint has no pull of its own.
        return False
    span = scales.v[: problem.m]
    pull = np.max(np.abs(found.switching_function), axis=0) * span * found.final_time
    designs = slice(problem.n_states, problem.n_states + problem.n_design)
    # A design variable shifts its costate all along, wherever it matters.
    drift = np.max(np.abs(np.diff(found.costate[:, designs], axis=0)), axis=0)
    drift *= np.max(np.abs(found.x[:, designs]), axis=0)
    end = np.abs(found.costate[-1, designs]) * np.max(np.abs(found.x[:, designs]), axis=0)
    least = 1e-4 * abs(found.objective)
    # Nor has a control a pull where the Hamiltonian is bent, or a singular arc determines it.
    is_loose = any(
        np.max(_relative_share(problem, found, scales, j)) < 1e-6
        for j in np.flatnonzero((pull < least) & ~reading.is_convex).tolist()
    )
    return is_loose or bool(np.any((drift < 1e-9 * least) & (end < least)))


def _canonical(found: DirectSolution) -> np.ndarray:
    """States and costates at the midpoints `(N, 2n)`."""
    return np.concatenate([0.5 * (found.x[1:] + found.x[:-1]), found.costate[1:]], axis=1)


def _relative_share(problem: Problem, found: DirectSolution, scales: Scales, j: int) -> np.ndarray:
    """Magnitude `(N,)` of what determines a control on a singular arc of order one, scaled."""
    size = scales.v[j] * found.final_time**2 / scales.switching[j]
    return np.abs(np.asarray(_share(problem, j, _canonical(found), found.u))) * size


@jit_plainly
def _share(problem: Problem, j: int, y, u):
    return jax.vmap(lambda y, u: kelley(problem, j, y, u))(y, u)


@jit_plainly
def _bend(problem: Problem, j: int, y, u):
    return jax.vmap(lambda y, u: switching_derivative(problem, j, 2, y, u))(y, u)


def chatters(problem: Problem, found: DirectSolution, labels: np.ndarray, reading: Reading) -> str:
    """Why a motion must switch ever faster, in words; empty where it need not."""
    return (
        _alternates(problem, found, reading)
        or _touches_without_end(problem, found, reading)
        or _meets_bound_from_even_order(problem, found, labels, reading)
    )


# How often a control that has no reason to jump must do so to and fro, and by which share of half
# its range.
_TURNS, _LEAP = 6, 0.4


def _alternates(problem: Problem, found: DirectSolution, reading: Reading) -> str:
    """Whether a control in which the Hamiltonian is bent, and has one minimum, jumps to and fro.

    Where the Hamiltonian has two, or is least at both bounds, a mixture of them is better than any
    value between: the transcription alternates as fast as its grid allows.
    """
    position = position_of(problem, found.u, reading.scales.v[: problem.m])
    h = found.final_time / len(position)
    for j in np.flatnonzero(reading.is_convex).tolist():
        step = np.diff(position[:, j])
        leaps = np.flatnonzero(np.abs(step) > _LEAP)
        turns = leaps[1:][np.sign(step[leaps[1:]]) != np.sign(step[leaps[:-1]])]
        if len(turns) >= _TURNS:
            return (
                f"control {j} jumps to and fro from {h * (leaps[0] + 1):.4g} s to "
                f"{h * (leaps[-1] + 1):.4g} s, as a mixture of values is better than any single one"
            )
    return ""


def _touches_without_end(problem: Problem, found: DirectSolution, reading: Reading) -> str:
    """Whether a constraint of order three stays active, before which contact points accumulate.

    Source: Robbins, Junction phenomena for optimal control with state-variable inequality
    constraints of third order, J. Optim. Theory Appl. 31 (1980).
    """
    close = np.abs(found.constraint) / reading.scales.constraint < _CLOSE
    for index, order in reading.order.items():
        lengths = [last - first for is_close, first, last in runs(close[:, index]) if is_close]
        if order == 3 and max(lengths, default=0) > 0.1 * len(close):
            return (
                f"the {problem.constraint_names[index]}, of order three, is touched ever more "
                "often before it stays active"
            )
    return ""


def _meets_bound_from_even_order(
    problem: Problem, found: DirectSolution, labels: np.ndarray, reading: Reading
) -> str:
    """Whether a singular arc of order two, inside the bounds, follows or precedes a bound.

    The control would jump there, which the minimum principle rules out at the ends of a singular
    arc of even order; what remains is that switches accumulate there.

    Source: Kelley, Kopp, Moyer 1967; McDanell and Powers 1971.
    """
    scales = reading.scales
    for j in np.flatnonzero(~reading.is_convex).tolist():
        inside = [run for run in runs(labels[:, j]) if run[0] == INTERIOR]
        _, first, last = max(inside, key=lambda run: run[2] - run[1], default=(INTERIOR, 0, 0))
        # Two intervals may be the blur of a mere switch.
        if last - first <= 2 or not np.any(np.abs(labels[:, j]) == UPPER):
            continue
        size = scales.v[j] * found.final_time**2 / scales.switching[j]
        if np.max(_relative_share(problem, found, scales, j)[first:last]) > 1e-6:
            continue
        bend = _bend(problem, j, _canonical(found), found.u)
        derivative, slope = (np.asarray(v)[first:last] for v in bend)
        if np.min(slope) * size * found.final_time**2 < 1e-3:
            continue
        singular = found.u[first:last].copy()
        singular[:, j] -= derivative / slope
        if np.median(np.abs(position_of(problem, singular, scales.v[: problem.m])[:, j])) < 0.9:
            return f"control {j} switches ever faster towards a singular arc of order two"
    return ""


@eqx.filter_jit
def _end_slope(problem: Problem, time, x):
    return jax.grad(problem.end_cost, argnums=1)(jnp.asarray(time), jnp.asarray(x))


@eqx.filter_jit
def _moves(problem: Problem, x, u) -> Bool[Array, "n m"]:
    """Which states each control moves."""
    return jax.jacfwd(problem.dynamics, argnums=1)(x, u) != 0.0


def _at_middles(values: np.ndarray, m: int) -> np.ndarray:
    """Values between neighbouring intervals, (N-1, m), at the intervals."""
    padded = np.concatenate([np.zeros((1, m)), values, np.zeros((1, m))])
    return 0.5 * (padded[1:] + padded[:-1])


def _label_rates(problem: Problem, found: DirectSolution, scales: Scales, labels: np.ndarray):
    """Mark the intervals over which a limited control's rate is at a bound."""
    m = problem.m
    position = rate_position_of(problem, found.rate)
    costate = found.rate_costate / scales.y[2 * problem.n + m :]
    size = np.maximum(np.max(np.abs(costate), axis=0), 1e-300)
    fast = (np.abs(position) > 0.9) & (np.abs(costate) / size > 1.0 - np.abs(position))
    fast &= size > 1e-6
    sign = np.where(fast, np.where(position > 0.0, RISING, FALLING), 0)
    # A quotient lies between two intervals: an interval is on the bound with either of its own.
    before = np.concatenate([np.zeros((1, m), int), sign])
    after = np.concatenate([sign, np.zeros((1, m), int)])
    both = np.where(before != 0, before, after)
    return np.where((labels == INTERIOR) & (both != 0), both, labels)


@jit_plainly
def _gradients(problem: Problem, index: int, order: int, x, u):
    functions = [total_derivative(problem, index, k) for k in range(order)]
    return [jax.vmap(jax.grad(f))(x, u) for f in functions]


def _direct_share(
    problem: Problem, each: ActiveConstraint, found: DirectSolution, multiplier, x_mid, h: float
) -> np.ndarray:
    """What the costate of direct adjoining has more than that of adjoining the derivative.

    The sum of (-1)^k times the k-th derivative of the multiplier times the gradient of the
    constraint's derivative of order p - 1 - k.
    """
    share = np.zeros_like(x_mid)
    derivative = multiplier
    gradients = _gradients(problem, each.index, each.order, x_mid, found.u)
    for gradient in reversed(gradients):
        share += derivative[:, None] * np.asarray(gradient)
        derivative = np.where(multiplier != 0.0, -np.gradient(derivative, h), 0.0)
    nodes = np.concatenate([share[:1], share, share[-1:]])
    return 0.5 * (nodes[1:] + nodes[:-1])
