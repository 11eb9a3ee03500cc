"""Active constraints of a direct solution: where, with which multiplier and which costate."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from jaxgrip.ocp.hamiltonian import ActiveConstraint, total_derivative
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure._kinds import ACTIVE, FREE
from jaxgrip.ocp.structure._segments import Profile, Segment, runs
from jaxgrip.solve.fusion import jit_plainly

# A direct solution leaves an active constraint with a small multiplier this far from zero.
CLOSE = 1e-2
# Number of intervals over which a direct solution spreads a contact point.
_SPIKE = 5


class Stretch(NamedTuple):
    """Intervals from `first` to one before `last` over which a constraint is active; `at`, the
    interval number (a fraction) of a contact point, None on an arc.
    """

    first: int
    last: int
    at: float | None


def read_constraint(value: np.ndarray, multiplier: np.ndarray, order: int) -> list[Stretch]:
    """Stretches where a constraint is active: its multiplier outweighs its distance from zero.

    From order two on the multiplier is concentrated at both ends of an arc or at a contact point;
    arcs of order three are never optimal, so that an apparent one is two contact points.

    **Arguments:** magnitude `value` and `multiplier` `(N,)`, both scaled to order one.
    """
    is_active = multiplier > value
    if order == 1:
        # The midpoint rule lets these multipliers alternate from interval to interval.
        is_active[1:-1] |= is_active[:-2] & is_active[2:]
    found = [run for run in runs(is_active.astype(int)) if run[0]]
    if order < 2:
        # A single interval is an alternation too; if the constraint is violated, it comes back.
        found = [(first, last) for _, first, last in found if last - first > 1]
        return [Stretch(*_without_slopes(multiplier, *stretch), None) for stretch in found]
    stretches: list[Stretch] = []
    for _, first, last in found:
        before = stretches[-1] if stretches else None
        if before is not None and np.all(value[before.first : last] < CLOSE):
            stretches[-1] = Stretch(before.first, last, None)
        elif last - first > _SPIKE:
            stretches.append(Stretch(first, last, None))
        else:
            weights = multiplier[first:last]
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


# A multiplier below this share of what it is along an arc belongs to the approach.
_APPROACH = 0.1


def _without_slopes(multiplier: np.ndarray, first: int, last: int) -> tuple[int, int]:
    """An arc without the intervals where a motion comes close to the constraint and leaves it.

    The multiplier of a barrier falls there with the square of the time.
    """
    (inside,) = np.nonzero(multiplier[first:last] > _APPROACH * np.median(multiplier[first:last]))
    return first + int(inside[0]), first + int(inside[-1]) + 1


def as_profile(
    stretches: list[Stretch], t: np.ndarray, is_met_at_start: bool, margin: float = 0.0
) -> Profile:
    """Segments of a constraint, from its stretches of intervals between the times `t` [s].

    `margin` is the share of the first and of the last interval of an arc over which it is not
    active.
    """
    edges = np.arange(len(t))
    profile: Profile = []
    for first, last, at in stretches:
        if at is not None:
            profile.append(Segment(FREE, float(np.interp(at, edges, t))))
            continue
        if first > 0:
            profile.append(Segment(FREE, float(np.interp(first + margin, edges, t))))
        elif not is_met_at_start:
            profile.append(Segment(FREE, 0.5 * t[1]))
        leaves = last - margin if last < edges[-1] else last
        profile.append(Segment(ACTIVE, float(np.interp(leaves, edges, t))))
    if not profile or profile[-1].end < t[-1]:
        return [*profile, Segment(FREE, t[-1])]
    return profile


def integrate_multiplier(
    multiplier: np.ndarray, t: np.ndarray, order: int, stretches: list[Stretch]
) -> np.ndarray:
    """Multiplier of a constraint's highest derivative: the constraint's, integrated to the exit,
    over intervals between the times `t` [s].
    """
    out = np.zeros_like(multiplier)
    for first, last, at in stretches:
        if at is None:
            piece, h = multiplier[first:last], np.diff(t[first : last + 1])
            for _ in range(order):
                # Half of the own interval, since the multipliers belong to the midpoints.
                piece = np.cumsum((h * piece)[::-1])[::-1] - 0.5 * h * piece
            out[first:last] = piece
    return out


@jit_plainly
def _gradients(problem: Problem, index: Int[Array, ""], order: int, x, u):
    functions = [total_derivative(problem, index, k) for k in range(order)]
    return [jax.vmap(jax.grad(f))(x, u) for f in functions]


def direct_share(
    problem: Problem, active: ActiveConstraint, u, multiplier, x_mid, middles
) -> np.ndarray:
    """Costate of direct adjoining minus that of adjoining the highest derivative, `(N+1, n)`.

    From controls, multiplier and states at `middles` `(N,)` [s]. The sum of (-1)^k times the k-th
    derivative of the multiplier times the gradient of the constraint's derivative of order
    p - 1 - k.
    """
    share = np.zeros_like(x_mid)
    derivative = multiplier
    index = jnp.asarray(active.index)
    for gradient in reversed(_gradients(problem, index, active.order, x_mid, u)):
        share += derivative[:, None] * np.asarray(gradient)
        derivative = np.where(multiplier != 0.0, -np.gradient(derivative, middles), 0.0)
    nodes = np.concatenate([share[:1], share, share[-1:]])
    return 0.5 * (nodes[1:] + nodes[:-1])
