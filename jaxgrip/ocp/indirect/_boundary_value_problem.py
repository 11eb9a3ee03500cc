"""The multipoint boundary-value problem of a structure, its unknowns and their typical sizes."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from jaxgrip.ocp.hamiltonian import spread
from jaxgrip.ocp.indirect._collocation import stage_times
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure import Kind, Plan, Sizes, Trajectory, at_rate_bound


class Arcs(NamedTuple):
    """Unknowns of the boundary-value problem.

    y = (x, costate, limited controls, their costates), v = (controls, multipliers of constraints).
    `start` `(arcs, y)` at the beginning of each arc, `stage` `(arcs, intervals, s, y)`, `stage_v`
    `(arcs, intervals, s, v)`, `jump` `(arcs - 1, P)` of the costate, `times` `(arcs,)` ends of the
    arcs [s], `boundary_multiplier` `(b,)`. The last stage of an interval is its end.
    """

    start: Float[Array, "arcs y"]
    stage: Float[Array, "arcs intervals s y"]
    stage_v: Float[Array, "arcs intervals s v"]
    jump: Float[Array, "boundaries P"]
    times: Float[Array, " arcs"]
    boundary_multiplier: Float[Array, " b"]

    @property
    def interval_lengths(self) -> Float[ArrayLike, " arcs"]:
        """Length of the intervals of each arc [s]; NumPy's of NumPy's arrays."""
        array = np if isinstance(self.times, np.ndarray) else jnp
        return array.diff(self.times, prepend=0.0) / self.stage.shape[1]

    @property
    def interval_starts(self) -> Float[Array, "arcs intervals y"]:
        """y at the start of every interval."""
        return jnp.concatenate([self.start[:, None], self.stage[:, :-1, -1]], axis=1)

    @property
    def ends(self):
        """y at the start, the final time, y at the end, multipliers of the boundary conditions."""
        return self.start[0], self.times[-1], self.stage[-1, -1, -1], self.boundary_multiplier


class Scales(NamedTuple):
    """Typical sizes of y, v, time, switching functions `(m,)` and Hamiltonian, of boundary
    conditions `(b,)` and their multipliers, and for the active constraints of values `(c,)`,
    `highest` derivatives `(c,)`, `lower` derivatives `(c, P)` and jump parameters `(c, P)`.
    """

    y: Float[Array, " y"]
    v: Float[Array, " v"]
    time: Float[Array, ""]
    switching: Float[Array, " m"]
    hamiltonian: Float[Array, ""]
    boundary: Float[Array, " b"]
    boundary_multiplier: Float[Array, " b"]
    constraint: Float[Array, " c"]
    highest: Float[Array, " c"]
    lower: Float[Array, "c P"]
    jump: Float[Array, "c P"]


class BoundaryValueProblem(eqx.Module):
    """The boundary-value problem that the minimum principle makes of a problem with a structure."""

    problem: Problem
    plan: Plan
    scales: Scales

    @property
    def n(self) -> int:
        """Number of states."""
        return self.problem.n

    @property
    def m(self) -> int:
        """Number of controls."""
        return self.problem.m

    @property
    def limited(self) -> np.ndarray:
        """Indices of the limited controls."""
        return np.array(self.plan.limited, dtype=int)

    @property
    def bounds(self) -> Float[Array, "arcs m"]:
        """The bound of each control on each arc at a bound, zero elsewhere."""
        return jax.vmap(select_bound, in_axes=(0, None, None))(
            self.plan.kinds, self.problem.lower, self.problem.upper
        )

    def multipliers(self, v: Float[ArrayLike, "... v"]) -> Float[ArrayLike, "... c"]:
        """Multipliers of all the problem's constraints, zero for those that are active nowhere."""
        return spread(v[..., self.m :], self.plan.constraints.index, self.problem.n_constraints)

    def rate_costates(self, y: Float[ArrayLike, "... y"]) -> Float[ArrayLike, "... m"]:
        """Costates of all controls, zero for those whose rate is at a bound nowhere."""
        return spread(y[..., 2 * self.n + len(self.limited) :], self.limited, self.m)


def select_bound(
    kinds: Int[Array, " *k"], lower: Float[Array, " *k"], upper: Float[Array, " *k"]
) -> Float[Array, " *k"]:
    """The bound of each kind; zero for other kinds than LOWER and UPPER."""
    return jnp.where(kinds == Kind.UPPER, upper, jnp.where(kinds == Kind.LOWER, lower, 0.0))


def pose(problem: Problem, plan: Plan, sizes: Sizes) -> BoundaryValueProblem:
    """The boundary-value problem of a plan, with scales from typical sizes."""
    limited = np.array(plan.limited, dtype=int)
    rows, order = plan.constraints.index, np.array(plan.constraints.orders, dtype=float)
    time, hamiltonian, constraint = sizes.time, sizes.hamiltonian, sizes.constraint[rows]
    k = np.arange(float(plan.n_jumps))
    scales = Scales(
        y=np.concatenate(
            [sizes.state, sizes.costate, sizes.control[limited], sizes.rate_costate[limited]]
        ),
        v=np.concatenate([sizes.control, hamiltonian / constraint * time**order]),
        time=time,
        switching=sizes.switching,
        hamiltonian=hamiltonian,
        boundary=sizes.boundary,
        boundary_multiplier=hamiltonian * time / sizes.boundary,
        constraint=constraint,
        highest=constraint / time**order,
        lower=constraint[:, None] / time**k,
        jump=hamiltonian * time ** (k + 1.0) / constraint[:, None],
    )
    return BoundaryValueProblem(problem, *jax.device_put((plan, scales)))


def start_arcs(
    bvp: BoundaryValueProblem,
    trajectory: Trajectory,
    times: np.ndarray,
    intervals: int,
    stages: int,
) -> Arcs:
    """Unknowns interpolated from a trajectory, for arcs with end `times` [s]."""
    problem, plan = bvp.problem, jax.tree.map(np.asarray, bvp.plan)
    lower, upper = np.asarray(problem.lower), np.asarray(problem.upper)
    limited, rows = list(plan.limited), plan.constraints.index

    def interpolate(t, grid, values):
        out = [np.interp(t, grid, column) for column in values.T]
        return np.stack(out, axis=-1) if out else np.zeros((*np.shape(t), 0))

    begins = np.concatenate([[0.0], times[:-1]])
    has_jump = np.concatenate([[False], plan.jumps > 0, [False]])
    inf = np.full(len(times), np.inf)

    def within(grid, at_begin, at_end):
        """First and last time of a grid inside each arc, where asked for and there are any."""
        first = np.minimum(np.searchsorted(grid, begins), len(grid) - 1)
        last = np.maximum(np.searchsorted(grid, times, side="right") - 1, 0)
        # Where a time stands twice, between the values before and after it, only those of the arc.
        earliest, latest = np.nextafter(begins, inf), np.nextafter(times, -inf)
        earliest = np.where(at_begin, np.maximum(grid[first], earliest), earliest)
        latest = np.where(at_end, np.minimum(grid[last], latest), latest)
        is_empty = earliest > latest
        return np.where(is_empty, -inf, earliest), np.where(is_empty, inf, latest)

    limits = {
        # A costate jumps at some ends of arcs; controls and multipliers bend sharply or jump.
        "costate": within(trajectory.t, has_jump[:-1], has_jump[1:]),
        "u": within(trajectory.t_u, True, True),
    }

    def at(t, kinds):
        arcs = (-1, *(1,) * (t.ndim - 1))
        own = {key: np.clip(t, *(v.reshape(arcs) for v in ends)) for key, ends in limits.items()}
        inside = interpolate(own["u"], trajectory.t_u, trajectory.u)
        u = np.where(kinds == Kind.UPPER, upper, np.where(kinds == Kind.LOWER, lower, inside))
        rate_costate = interpolate(own["u"], trajectory.t_u, trajectory.rate_costate)
        y = [
            interpolate(t, trajectory.t, trajectory.x),
            interpolate(own["costate"], trajectory.t, trajectory.costate),
            u[..., limited],
            np.where(at_rate_bound(kinds), rate_costate, 0.0)[..., limited],
        ]
        multiplier = interpolate(own["u"], trajectory.t_u, trajectory.multiplier[:, rows])
        return np.concatenate(y, axis=-1), u, multiplier

    start, _, multiplier = at(begins, plan.kinds)
    stage, u, stage_multiplier = at(
        stage_times(times, intervals, stages), plan.kinds[:, None, None]
    )
    stage_multiplier = np.where(plan.active[:, None, None], stage_multiplier, 0.0)
    jump = np.zeros((len(times) - 1, plan.n_jumps))
    for b in np.flatnonzero(plan.jumps):
        jump[b, plan.jumps[b] - 1] = multiplier[b + 1, plan.jump_constraint[b]]
    stage_v = np.concatenate([u, stage_multiplier], axis=-1)
    arcs = Arcs(start, stage, stage_v, jump, times, trajectory.boundary_multiplier)
    return jax.device_put(arcs)
