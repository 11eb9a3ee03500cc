"""The transcribed problem as a nonlinear program: midpoint stages, bounds, inequalities."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from optimistix import max_norm

from jaxgrip.ocp.direct._guess import Guess
from jaxgrip.ocp.hamiltonian import (
    Expansion,
    boundary_sizes,
    constraint_sizes,
    expand,
    with_hessian,
)
from jaxgrip.ocp.statement import Problem


class Bounds(NamedTuple):
    """One value for each simple bound: of the controls `(N, m)`, of the time `()`, of the free
    components of the initial state `(s,)`.
    """

    lower: Array
    upper: Array
    time_lower: Array
    time_upper: Array
    start_lower: Array
    start_upper: Array

    @property
    def sums(self) -> tuple[Array, Array, Array]:
        """Lower plus upper, of controls, time and initial state."""
        return tuple(low + high for low, high in zip(self[::2], self[1::2], strict=True))

    @property
    def differences(self) -> tuple[Array, Array, Array]:
        """Upper minus lower, of controls, time and initial state."""
        return tuple(high - low for low, high in zip(self[::2], self[1::2], strict=True))


class Iterate(NamedTuple):
    """Primal and dual variables: `boundary_multiplier` `(b,)` of the boundary conditions,
    `bound_multipliers` of the simple bounds, `slack` and `multiplier` `(N, q)` of the inequalities,
    which are scaled to order one.
    """

    x: Float[Array, "nodes n"]
    u: Float[Array, "intervals m"]
    time: Float[Array, ""]
    costate: Float[Array, "nodes n"]
    boundary_multiplier: Float[Array, " b"]
    bound_multipliers: Bounds
    slack: Float[Array, "intervals q"]
    multiplier: Float[Array, "intervals q"]


class Inequalities(NamedTuple):
    """Inequalities of every stage, scaled: constraints, then upper and lower bounds of rates.

    `value` `(N, q)`, at most zero; `jacobian` `(N, q, n+r+m)` in (x at the midpoint, limited
    controls of the stage before, u); `by_time` `(N, q)`; `hessian` `(N, n+m, n+m)` in (x, u),
    weighted by the multipliers.
    """

    value: Float[Array, "intervals q"]
    jacobian: Float[Array, "intervals q s"]
    by_time: Float[Array, "intervals q"]
    hessian: Float[Array, "intervals z z"]


class OptimalityErrors(NamedTuple):
    """Scaled errors of the Karush-Kuhn-Tucker conditions, the largest of each kind."""

    stationarity: Float[Array, ""]
    complementarity: Float[Array, ""]
    infeasibility: Float[Array, ""]

    def is_solved(self, barrier: Array, tolerance: Array) -> Bool[Array, ""]:
        """Whether they are small against a relative barrier parameter.

        Rounding errors of the gradient grow as that decreases; below the tolerance they are left.
        """
        gradient = self.stationarity < jnp.maximum(10.0 * barrier, tolerance)
        return gradient & (jnp.maximum(*self[1:]) < 10.0 * barrier)


class GuessedSizes(NamedTuple):
    """Typical sizes of what the program computes with."""

    state: Float[Array, " n"]
    control: Float[Array, " m"]
    time: Float[Array, ""]
    objective: Float[Array, ""]
    constraint: Float[Array, " c"]
    boundary: Float[Array, " b"]


def guessed_sizes(problem: Problem, guess: Guess) -> GuessedSizes:
    """Typical sizes: what the controls can change within the guessed time, at the guess."""
    span = jnp.where(
        jnp.isfinite(problem.upper - problem.lower), problem.upper - problem.lower, 1.0
    )
    n, m = problem.n, problem.m
    middle = guess.u[0]
    corners = jnp.concatenate([jnp.eye(m), -jnp.eye(m), jnp.zeros((1, m))]) * (0.5 * span)[None]
    ends = jnp.stack([guess.x[0], guess.x[-1]])
    rates = jax.vmap(
        lambda x: jax.vmap(lambda du: jnp.abs(problem.dynamics(x, middle + du)))(corners)
    )(ends).reshape(-1, n)
    travel = jnp.abs(guess.x[-1] - guess.x[0])
    state = jnp.maximum(travel, 0.1 * guess.final_time * jnp.max(rates, axis=0))
    state = jnp.where(state > 0.0, state, jnp.max(jnp.abs(guess.x), axis=0))
    state = jnp.where(state > 0.0, state, jnp.maximum(jnp.max(state), 1.0))
    cost = jnp.max(jnp.stack([jnp.abs(problem.cost_rate(x, middle + 0.5 * span)) for x in ends]))
    by_t, by_x = jax.grad(problem.end_cost, argnums=(0, 1))(guess.final_time, guess.x[-1])
    end = jnp.abs(by_t) * guess.final_time + jnp.abs(by_x) @ state
    objective = jnp.maximum(guess.final_time * jnp.maximum(cost, 1e-3), end)
    constraint = jnp.ones(problem.n_constraints)
    if problem.n_constraints:
        constraint = constraint_sizes(problem, guess.x[:-1], guess.u, state, span)
    time = guess.final_time
    boundary = boundary_sizes(problem, ends, state, time)
    return GuessedSizes(state, span, time, objective, constraint, boundary)


class Program(eqx.Module):
    """The nonlinear program in states, controls and the final time.

    `h`, lengths of the stages relative to the final time. The barrier term of a stage is weighted
    by the stage's length, so that it does not depend on the grid.
    """

    problem: Problem
    sizes: GuessedSizes
    h: Float[Array, " intervals"]

    @property
    def intervals(self) -> int:
        """Number of stages."""
        return len(self.h)

    @property
    def spacing(self) -> Float[Array, " intervals"]:
        """From the midpoint of the stage before to that of a stage, relative to the final time."""
        before = jnp.concatenate([self.h[:1], self.h[:-1]])
        return 0.5 * (before + self.h)

    @property
    def free(self) -> Int[np.ndarray, " free"]:
        """Indices of the free components of the initial state."""
        return np.flatnonzero(~self.problem.is_fixed_initial)

    @property
    def limited(self) -> np.ndarray:
        """Indices of the controls with bounded rate."""
        return np.array(self.problem.limited, dtype=int)

    def rate_limits(self) -> tuple[Array, Array]:
        """Upper and lower rate of the limited controls, and where there is one, `(2 r,)`."""
        problem, limited = self.problem, self.limited
        rates = jnp.concatenate([problem.rate_upper[limited], -problem.rate_lower[limited]])
        exists = jnp.isfinite(rates)
        return jnp.where(exists, rates, 0.0), exists.astype(rates.dtype)

    def inequality_values(self, x: Array, u: Array, time: Array) -> Array:
        """Values `(N, q)` of the inequalities; minus one where there is none."""
        parts = []
        if self.problem.n_constraints:
            middle = 0.5 * (x[1:] + x[:-1])
            values = jax.vmap(self.problem.constraints)(middle, u)
            parts.append(values / self.sizes.constraint[None])
        if len(self.limited):
            step = jnp.diff(u[:, self.limited], axis=0, prepend=u[:1, self.limited])
            rates, exists = self.rate_limits()
            allowed = time * self.spacing[:, None] * rates[None]
            values = jnp.concatenate([step, -step], axis=1) - allowed
            size = jnp.tile(self.sizes.control[self.limited], 2)
            parts.append(jnp.where(exists[None] > 0.0, values / size[None], -1.0))
        return jnp.concatenate([jnp.zeros((self.intervals, 0)), *parts], axis=1)

    def inequalities(self, it: Iterate) -> Inequalities:
        """The inequalities with their derivatives."""
        problem, limited = self.problem, self.limited
        n, m, c, r = problem.n, problem.m, problem.n_constraints, len(limited)
        count = self.intervals
        by_z, hessian = jnp.zeros((count, c, n + m)), jnp.zeros((count, n + m, n + m))
        if c:
            z = jnp.concatenate([0.5 * (it.x[1:] + it.x[:-1]), it.u], axis=1)
            size = self.sizes.constraint
            _, by_z, hessian = jax.vmap(
                lambda z, weights: with_hessian(
                    lambda z: problem.constraints(z[:n], z[n:]) / size, z, weights
                )
            )(z, it.multiplier[:, :c])
        jacobian = jnp.concatenate([by_z[:, :, :n], jnp.zeros((count, c, r)), by_z[:, :, n:]], 2)
        by_time = jnp.zeros((count, c))
        if r:
            rates, exists = self.rate_limits()
            size = jnp.tile(self.sizes.control[limited], 2)
            step = jnp.zeros((r, n + r + m)).at[np.arange(r), n + np.arange(r)].set(-1.0)
            step = step.at[np.arange(r), n + r + limited].set(1.0)
            rows = jnp.concatenate([step, -step]) * (exists / size)[:, None]
            jacobian = jnp.concatenate(
                [jacobian, jnp.broadcast_to(rows, (count, *rows.shape))], axis=1
            )
            # Nothing comes before the first stage, so its step is zero whatever the control is.
            jacobian = jacobian.at[0, c:].set(0.0)
            by_rate = -self.spacing[:, None] * (rates * exists / size)[None]
            by_time = jnp.concatenate([by_time, by_rate], axis=1)
        value = self.inequality_values(it.x, it.u, it.time)
        return Inequalities(value, jacobian, by_time, hessian)

    @property
    def bounds(self) -> Bounds:
        """The simple bounds, infinite where there is none."""
        problem = self.problem
        shape = (self.intervals, problem.m)
        controls = (jnp.broadcast_to(bound, shape) for bound in (problem.lower, problem.upper))
        starts = (bound[self.free] for bound in (problem.start_lower, problem.start_upper))
        return Bounds(*controls, *problem.time_bounds, *starts)

    def where_bounded(self, values: Bounds) -> Bounds:
        """The values, zero where there is no bound."""
        return jax.tree.map(
            lambda value, bound: jnp.where(jnp.isfinite(bound), value, 0.0), values, self.bounds
        )

    def bound_slacks(self, x: Array, u: Array, time: Array) -> Bounds:
        """Distances to the simple bounds; one without a bound, to avoid a division by infinity."""
        bounds, values = self.bounds, (u, time, x[0, self.free])
        sides = zip(values, bounds[::2], bounds[1::2], strict=True)
        slacks = (slack for value, low, high in sides for slack in (value - low, high - value))
        return Bounds(*(jnp.where(jnp.isfinite(d), d, 1.0) for d in slacks))

    def bound_slack_changes(self, dx: Array, du: Array, dt: Array) -> Bounds:
        """Changes of the [`bound_slacks`][] with changes of states, controls and time."""
        start = dx[0, self.free]
        return self.where_bounded(Bounds(du, -du, dt, -dt, start, -start))

    def end_errors(self, start: Array, time: Array, end: Array) -> Array:
        """Errors `(e,)` of the final state's fixed components and of the boundary conditions."""
        fixed = jnp.array(self.problem.fixed_final, dtype=int)
        error = (end[fixed] - self.problem.final_state[fixed]) / self.sizes.state[fixed]
        boundary = self.problem.boundary(start, time, end) / self.sizes.boundary
        return jnp.concatenate([error, boundary])

    def defects(self, x: Array, time: Array, f: Array) -> tuple[Array, Array]:
        """Defects of the midpoint rule `(N, n)` and errors of the end conditions, scaled."""
        gap = (x[:-1] + time * self.h[:, None] * f - x[1:]) / self.sizes.state[None]
        return gap, self.end_errors(x[0], time, x[-1])

    def merit(
        self, x: Array, u: Array, time: Array, slack: Array, barrier: Array
    ) -> tuple[Array, Array]:
        """Infeasibility, the sum of all scaled errors, and the objective with the barrier term."""
        problem, h = self.problem, self.h
        f, cost = jax.vmap(lambda x, u: (problem.dynamics(x, u), problem.cost_rate(x, u)))(
            0.5 * (x[1:] + x[:-1]), u
        )
        gap, end = self.defects(x, time, f)
        lower, upper, *others = jax.tree.map(jnp.log, self.bound_slacks(x, u, time))
        logs = jnp.sum(h[:, None] * jnp.concatenate([lower, upper, jnp.log(slack)], axis=1))
        logs += sum(map(jnp.sum, others))
        objective = time * jnp.sum(h * cost) + problem.end_cost(time, x[-1])
        violation = jnp.abs(self.inequality_values(x, u, time) + slack)
        infeasibility = jnp.sum(jnp.abs(gap)) + jnp.sum(jnp.abs(end)) + jnp.sum(violation)
        return infeasibility, objective - barrier * logs

    def expand(self, it: Iterate) -> Expansion:
        """Expansion of the Hamiltonian at every midpoint."""
        return jax.vmap(lambda x, u, costate: expand(self.problem, x, u, costate))(
            0.5 * (it.x[1:] + it.x[:-1]), it.u, it.costate[1:]
        )

    def objective(self, it: Iterate, ex: Expansion) -> Array:
        """Objective without the barrier term."""
        return it.time * jnp.sum(self.h * ex.cost) + self.problem.end_cost(it.time, it.x[-1])

    def kkt_errors(
        self, it: Iterate, ex: Expansion, inequalities: Inequalities, barrier: Array
    ) -> OptimalityErrors:
        """Scaled errors of the Karush-Kuhn-Tucker conditions at a barrier parameter."""
        n, h, sizes = self.problem.n, self.h, self.sizes
        constrained = jnp.einsum("kq,kqs->ks", it.multiplier, inequalities.jacobian)
        r = len(self.limited)
        hx = h[:, None] * (it.time * ex.h_z[:, :n] + constrained[:, :n])
        by_x = it.costate[2:] - it.costate[1:-1] + 0.5 * (hx[1:] + hx[:-1])
        z = it.bound_multipliers
        by_u = ex.h_z[:, n:] * it.time - z.lower + z.upper + constrained[:, n + r :]
        ratio = h[1:, None] / h[:-1, None]
        by_u = by_u.at[:-1, self.limited].add(ratio * constrained[1:, n : n + r])
        end_start, end_time, _ = jax.grad(self.problem.end_function, (0, 1, 2))(
            it.x[0], it.time, it.x[-1], it.boundary_multiplier
        )
        by_time = (
            jnp.sum(h * (ex.cost + jnp.sum(it.costate[1:] * ex.f, axis=1)))
            + jnp.sum(h[:, None] * it.multiplier * inequalities.by_time)
            + end_time
            - z.time_lower
            + z.time_upper
        )
        by_start = (it.costate[1] + 0.5 * hx[0] + end_start)[self.free]
        by_start += z.start_upper - z.start_lower
        slacks = self.bound_slacks(it.x, it.u, it.time)
        complementarity = jax.tree.map(lambda s, z: s * z - barrier, slacks, z)
        stationarity = (
            by_x * sizes.state[None] / self.spacing[1:, None],
            by_u * sizes.control[None],
            by_start * sizes.state[self.free],
        )
        if self.problem.is_time_free:
            stationarity = (*stationarity, by_time * sizes.time)
        infeasibility = max_norm((self.defects(it.x, it.time, ex.f), inequalities.value + it.slack))
        # Multipliers may be far larger than the objective; scaling by them keeps the test fair.
        size = jnp.maximum(
            sizes.objective, 0.01 * jnp.mean(jnp.abs(it.costate[1:]) * sizes.state[None])
        )
        pairs = it.slack * it.multiplier - barrier
        complementarity = max_norm((self.where_bounded(complementarity), pairs))
        return OptimalityErrors(
            max_norm(stationarity) / size, complementarity / size, infeasibility
        )
