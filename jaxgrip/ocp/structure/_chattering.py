"""Signs in a direct solution that the optimum has infinitely many switches."""

import jax
import numpy as np

from jaxgrip.ocp.hamiltonian import switching_derivative
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure._active import CLOSE
from jaxgrip.ocp.structure._kinds import Kind
from jaxgrip.ocp.structure._reading import Reading, at_midpoints
from jaxgrip.ocp.structure._segments import runs
from jaxgrip.ocp.structure._sizes import position_of
from jaxgrip.solve.fusion import jit_plainly

# A control that has no reason to jump chatters if it jumps to and fro so often, each time by more
# than this share of half its range.
_TURNS, _LEAP = 6, 0.4


def chatters(problem: Problem, reading: Reading) -> str:
    """Why the optimum chatters, in words; empty where nothing indicates it."""
    return (
        _alternates(problem, reading)
        or _touches_without_end(problem, reading)
        or _meets_bound_from_even_order(problem, reading)
    )


def _alternates(problem: Problem, reading: Reading) -> str:
    """Whether a control in which the Hamiltonian is curved, and has one minimum, jumps to and fro.

    Where the Hamiltonian has two minima, or is least at both bounds, a mixture of them is better
    than any single value: the direct solution alternates from interval to interval.
    """
    position = position_of(problem, reading.direct.u, reading.sizes.control)
    t = reading.direct.t
    for j in np.flatnonzero(reading.is_convex).tolist():
        step = np.diff(position[:, j])
        leaps = np.flatnonzero(np.abs(step) > _LEAP)
        turns = leaps[1:][np.sign(step[leaps[1:]]) != np.sign(step[leaps[:-1]])]
        if len(turns) >= _TURNS:
            return (
                f"control {j} jumps to and fro from {t[leaps[0] + 1]:.4g} s to "
                f"{t[leaps[-1] + 1]:.4g} s, as a mixture of values is better than any single one"
            )
    return ""


def _touches_without_end(problem: Problem, reading: Reading) -> str:
    """Whether a constraint of order three stays active, before which contact points accumulate.

    Source: Robbins 1980.
    """
    t = reading.direct.t
    close = np.abs(reading.direct.constraint) / reading.sizes.constraint < CLOSE
    for index, order in reading.order.items():
        stays = [(t[first], t[last]) for is_close, first, last in runs(close[:, index]) if is_close]
        if order == 3 and any(end - start > 0.1 * t[-1] for start, end in stays):
            return (
                f"the {problem.constraint_names[index]}, of order three, is touched ever more "
                "often before it stays active"
            )
    return ""


def _meets_bound_from_even_order(problem: Problem, reading: Reading) -> str:
    """Whether a singular arc of order two, inside the bounds, follows or precedes a bound.

    The control would jump there, which the minimum principle rules out at the ends of a singular
    arc of even order; what remains is that switches accumulate there.

    Source: Kelley 1967; McDanell 1971.
    """
    direct, sizes, labels = reading.direct, reading.sizes, reading.by_distance
    for j in np.flatnonzero(~reading.is_convex).tolist():
        inside = [run for run in runs(labels[:, j]) if run[0] == Kind.INTERIOR]
        _, first, last = max(inside, key=lambda run: run[2] - run[1], default=(Kind.INTERIOR, 0, 0))
        # Two intervals may be the blur of a mere switch.
        if last - first <= 2 or not np.any(np.abs(labels[:, j]) == Kind.UPPER):
            continue
        if np.max(reading.relative_kelley(problem, j)[first:last]) > 1e-6:
            continue
        fourth = _fourth_derivative(problem, j, *at_midpoints(direct))
        derivative, slope = (np.asarray(v)[first:last] for v in fourth)
        size = sizes.control[j] * direct.final_time**4 / sizes.switching[j]
        if np.min(slope) * size < 1e-3:
            continue
        singular = direct.u[first:last].copy()
        singular[:, j] -= derivative / slope
        if np.median(np.abs(position_of(problem, singular, sizes.control)[:, j])) < 0.9:
            return f"control {j} switches ever faster towards a singular arc of order two"
    return ""


@jit_plainly
def _fourth_derivative(problem: Problem, j: int, y, u):
    return jax.vmap(lambda y, u: switching_derivative(problem, j, 2, y, u))(y, u)
