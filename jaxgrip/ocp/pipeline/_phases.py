"""Motions in several phases with dynamics, controls, constraints and a duration each."""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.ocp.pipeline._solution import Solution
from jaxgrip.ocp.statement import Free, Problem, capture, is_concrete, probe


class _Joined(eqx.Module):
    """Phases in parallel over one relative time from 0 to 1; `lengths` are the fixed durations."""

    phases: tuple[Problem, ...]
    lengths: Float[Array, " phases"]
    links: Callable | None

    def states(self, x):
        """States of each phase."""
        return jnp.split(x, np.cumsum([phase.n for phase in self.phases])[:-1])

    def parts(self, x, u):
        """Each phase with its states and controls."""
        controls = jnp.split(u, np.cumsum([phase.m for phase in self.phases])[:-1])
        return zip(self.phases, self.states(x), controls, strict=True)

    def durations(self, free: tuple) -> Array:
        """Durations of all phases [s], from those that are free, if any."""
        where = np.flatnonzero([phase.is_time_free for phase in self.phases])
        return self.lengths.at[where].set(free[0]) if free else self.lengths

    def dynamics(self, x, u, *free):
        """Rates over the relative time."""
        rates = [phase.dynamics(x, u) for phase, x, u in self.parts(x, u)]
        lengths = self.durations(free)
        return jnp.concatenate([length * r for length, r in zip(lengths, rates, strict=True)])

    def running_cost(self, x, u, *free):
        """Sum of the running costs."""
        costs = jnp.stack([phase.cost_rate(x, u) for phase, x, u in self.parts(x, u)])
        return self.durations(free) @ costs

    def terminal_cost(self, _, x, *free):
        """Sum of the terminal costs."""
        costs = [
            phase.end_cost(length, x)
            for phase, length, x in zip(
                self.phases, self.durations(free), self.states(x), strict=True
            )
        ]
        return jnp.sum(jnp.stack(costs))

    def path_constraints(self, x, u, *_):
        """All constraints of all phases."""
        return jnp.concatenate([phase.constraints(x, u) for phase, x, u in self.parts(x, u)])

    def boundary_conditions(self, start, _, end, *free):
        """Those of the phases, and what links one phase to the next."""
        starts, ends, lengths = self.states(start), self.states(end), self.durations(free)
        own = [
            phase.boundary(*each)
            for phase, *each in zip(self.phases, starts, lengths, ends, strict=True)
        ]
        if self.links is not None:
            own.append(self.links(starts, lengths, ends))
        else:
            steps = zip(pairwise(self.phases), ends, starts[1:], strict=False)
            for (before, after), x, y in steps:
                n = before.n_states
                is_open = ~(before.is_fixed_final[:n] & after.is_fixed_initial[:n])
                own.append((y[:n] - x[:n])[np.flatnonzero(is_open)])
        return jnp.concatenate(own)


def join(*phases: Problem, links: Callable | None = None) -> Problem:
    """One problem from the phases of a motion.

    All phases run in parallel over a relative time from 0 to 1; the free durations are its design
    variables, and the objectives are added.

    **Arguments:** the `phases`, each a [`Problem`][] whose final time is its duration; `links`, a
    function of the initial states, the durations `(phases,)` [s] and the final states (lists with
    one `(n,)` per phase) that returns `(k,)`, zero on the solution. By default every phase starts
    where the one before ended, in each component that is not fixed on both sides. Every phase has
    its own design variables and its own time, which starts at zero; in `links` both follow the
    states.

    **Returns:** a [`Problem`][]; [`split`][] separates its solution.

    **Raises:** `ValueError` where phases have different states but no `links`, or bounded rates of
    controls in a phase of free duration.
    """
    if len({phase.n_states for phase in phases}) > 1 and links is None:
        raise ValueError(
            f"Phases with {[phase.n_states for phase in phases]} states need links: which state of "
            "one is which of the next?"
        )
    for i, (before, after) in enumerate(pairwise(phases)):
        ends = before.final_state[: before.n_states], after.initial_state[: after.n_states]
        if links is None and is_concrete(ends):
            is_fixed = before.is_fixed_final & after.is_fixed_initial
            apart = np.flatnonzero(is_fixed[: before.n_states] & (ends[0] != ends[1]))
            if apart.size:
                j = apart[0]
                raise ValueError(
                    f"Phase {i} ends with state {j} at {ends[0][j]}, but the next one begins at "
                    f"{ends[1][j]}: free one of them, or give links."
                )
    for i, phase in enumerate(phases):
        if phase.limited and phase.is_time_free:
            raise ValueError(f"Phase {i} has rate_bounds, which need a fixed duration.")
    free = [phase.final_time for phase in phases if phase.is_time_free]
    lengths = [1.0 if phase.is_time_free else phase.final_time for phase in phases]
    if links is not None:
        starts, ends = (
            [getattr(phase, side) for phase in phases] for side in ("initial_state", "final_state")
        )
        each = {"initial states": starts, "durations": jnp.ones(len(phases)), "final states": ends}
        probe("links", links, each, (None,))
    joined = _Joined(phases, jnp.asarray(lengths, dtype=float), capture(links))
    initial, final = [], []
    for phase in phases:
        rows = phase.initial_state, phase.start_lower, phase.start_upper, phase.final_state
        for i, (start, lower, upper, end) in enumerate(zip(*rows, strict=True)):
            initial.append(start if i in phase.fixed_initial else Free(start, lower, upper))
            final.append(end if i in phase.fixed_final else Free(end))

    def over_time(phase, length, side):
        rates = getattr(phase, side)
        return [length * rates[j] if j in phase.limited else None for j in range(phase.m)]

    def stacked(side):
        return jnp.stack([getattr(time, side) for time in free])

    return Problem(
        joined.dynamics,
        running_cost=joined.running_cost,
        terminal_cost=joined.terminal_cost,
        initial_state=initial,
        final_state=final,
        final_time=1.0,
        boundary_conditions=joined.boundary_conditions,
        control_bounds=tuple(
            jnp.concatenate([getattr(phase, side) for phase in phases])
            for side in ("lower", "upper")
        ),
        rate_bounds=tuple(
            [
                rate
                for phase, length in zip(phases, lengths, strict=True)
                for rate in over_time(phase, length, side)
            ]
            for side in ("rate_lower", "rate_upper")
        ),
        path_constraints=joined.path_constraints if any(p.n_constraints for p in phases) else None,
        design_variables=Free(*map(stacked, ("guess", "lower", "upper"))) if free else None,
    )


class Phase(NamedTuple):
    """One phase of a motion: `start` and `duration` [s]; over the times `t` `(K,)` [s] the states
    `x` `(K, n)`, the controls `u` `(K, m)` and the costates `(K, n)`; its own `design_variables`
    `(d,)`.
    """

    start: Float[Array, ""]
    duration: Float[Array, ""]
    t: Float[Array, " K"]
    x: Float[Array, "K n"]
    u: Float[Array, "K m"]
    costate: Float[Array, "K n"]
    design_variables: Float[Array, " d"]


def split(solution: Solution, *phases: Problem) -> list[Phase]:
    """Separate the solution of a [`join`][]ed problem into phases, one after the other in time.

    **Arguments:** the `solution`, and the `phases` that were joined.
    """
    out, start, free = [], jnp.zeros(()), iter(solution.design_variables)
    n = m = 0
    for phase in phases:
        length = next(free) if phase.is_time_free else phase.final_time
        states, controls = slice(n, n + phase.n_states), slice(m, m + phase.m)
        out.append(
            Phase(
                start,
                length,
                start + length * solution.t,
                solution.x[:, states],
                solution.u[:, controls],
                solution.costate[:, states],
                solution.x[0, states.stop : states.stop + phase.n_design],
            )
        )
        start, n, m = start + length, n + phase.n, m + phase.m
    return out
