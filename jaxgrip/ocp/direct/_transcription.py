"""Direct transcription: implicit midpoint stages and an interior-point method with a Riccati solve.

From a straight line between the boundary states it finds states, controls and costates good enough
to read off which control sits on which bound.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from optimistix import max_norm

from jaxgrip.ocp.direct._riccati import LinearQuadratic, sweep
from jaxgrip.ocp.hamiltonian import (
    Expansion,
    boundary_sizes,
    constraint_sizes,
    expand,
    with_hessian,
)
from jaxgrip.ocp.statement import Problem
from jaxgrip.solve import dense


class Transcription(eqx.Module):
    """Interior-point solver for the transcribed problem.

    **Arguments:** `intervals`, number of equal time steps; `max_steps`, limit of Newton steps;
    `tolerance`, on the scaled optimality error; `barrier`, final barrier parameter relative to the
    objective: the smaller, the sharper the switches.
    """

    intervals: int = eqx.field(static=True, default=100)
    max_steps: int = eqx.field(static=True, default=200)
    tolerance: float = 1e-6
    barrier: float = 1e-6


class Guess(NamedTuple):
    """Where the transcription starts: states `(N+1, n)`, controls `(N, m)`, final time."""

    x: Float[Array, "nodes n"]
    u: Float[Array, "intervals m"]
    final_time: Float[Array, ""]


class Transcribed(NamedTuple):
    """Solution of the transcribed problem.

    `x` `(N+1, n)` and `costate` `(N+1, n)` at the nodes; `u`, `switching_function` (H_u) and
    `curvature` (diagonal of H_uu), each `(N, m)`, at the midpoints; there too `bound_multiplier`
    `(N, m)` of the controls' bounds, positive at the upper one, the `constraint` values `(N, c)`
    and their `multiplier` `(N, c)`, so that H + bound_multiplier . u + multiplier . constraint is
    stationary; between the intervals the `rate` `(N-1, m)` of the controls [1/s] and
    `rate_costate` `(N-1, m)`, the costate of each control with bounded rate, zero for the others;
    `boundary_multiplier` `(b,)`; `final_time` [s]; `objective`; `converged`; `error` and
    `infeasibility`, scaled; `steps`.
    """

    x: Float[Array, "nodes n"]
    u: Float[Array, "intervals m"]
    costate: Float[Array, "nodes n"]
    switching_function: Float[Array, "intervals m"]
    curvature: Float[Array, "intervals m"]
    bound_multiplier: Float[Array, "intervals m"]
    constraint: Float[Array, "intervals c"]
    multiplier: Float[Array, "intervals c"]
    rate: Float[Array, "steps m"]
    rate_costate: Float[Array, "steps m"]
    boundary_multiplier: Float[Array, " b"]
    final_time: Float[Array, ""]
    objective: Float[Array, ""]
    converged: Bool[Array, ""]
    error: Float[Array, ""]
    infeasibility: Float[Array, ""]
    steps: Int[Array, ""]


def straight_line(problem: Problem, intervals: int) -> Guess:
    """States on the straight line between the boundary states, controls mid-range."""
    s = jnp.linspace(0.0, 1.0, intervals + 1)[:, None]
    x = problem.initial_state[None] * (1.0 - s) + problem.final_state[None] * s
    middle = jnp.where(
        jnp.isfinite(problem.lower) & jnp.isfinite(problem.upper),
        0.5 * (problem.lower + problem.upper),
        jnp.clip(0.0, problem.lower + 1.0, problem.upper - 1.0),
    )
    return Guess(x, jnp.broadcast_to(middle, (intervals, problem.m)), problem.time_guess)


@eqx.filter_jit
def _led_to(problem: Problem, guess: Guess) -> Float[Array, " n"]:
    """Where the controls of a guess lead, by Heun's method."""
    h = guess.final_time / len(guess.u)

    def step(x, u):
        rate = problem.dynamics(x, u)
        return x + 0.5 * h * (rate + problem.dynamics(x + h * rate, u)), None

    return jax.lax.scan(step, guess.x[0], guess.u)[0]


def bent_line(problem: Problem, intervals: int, seed: int) -> Guess:
    """The straight line with each state's course bent at random by as much as the state travels.

    Free components of the final state lie where the controls of the guess lead.
    """
    guess = straight_line(problem, intervals)
    if len(problem.fixed_final) < problem.n:
        end = _led_to(problem, guess)
        end = jnp.where(problem.is_fixed_final | ~jnp.isfinite(end), guess.x[-1], end)
        share = jnp.linspace(0.0, 1.0, intervals + 1)[:, None]
        guess = guess._replace(x=guess.x + share * (end - guess.x[-1])[None])
    bow = np.sin(np.pi * np.linspace(0.0, 1.0, intervals + 1))[:, None]
    amount = np.random.default_rng(seed).normal(size=problem.n)
    return guess._replace(x=guess.x + bow * (amount * np.abs(guess.x[-1] - guess.x[0])))


class _Bounded(NamedTuple):
    """One value for each bound: lower and upper of the controls `(N, m)`, of the time `()`, of the
    free components of the initial state `(s,)`.
    """

    lower: Array
    upper: Array
    earliest: Array
    latest: Array
    least: Array
    most: Array


class _Iterate(NamedTuple):
    """`boundary` `(b,)` multipliers of the boundary conditions; `slack` and `pressure` `(N, q)`
    belong to the inequalities, scaled to order one.
    """

    x: Float[Array, "nodes n"]
    u: Float[Array, "intervals m"]
    time: Float[Array, ""]
    costate: Float[Array, "nodes n"]
    boundary: Float[Array, " b"]
    duals: _Bounded
    slack: Float[Array, "intervals q"]
    pressure: Float[Array, "intervals q"]


class _Inequalities(NamedTuple):
    """Inequalities of every stage, scaled: constraints, then upper and lower bounds of rates.

    `value` `(N, q)`, kept below zero by slacks; `by_stage` `(N, q, n+r+m)`, derivatives in (x at
    the midpoint, limited controls before, u); `by_time` `(N, q)`; `curvature` `(N, n+m, n+m)` in
    (x, u), weighted by the pressures.
    """

    value: Float[Array, "intervals q"]
    by_stage: Float[Array, "intervals q s"]
    by_time: Float[Array, "intervals q"]
    curvature: Float[Array, "intervals z z"]


class _State(NamedTuple):
    iterate: _Iterate
    expansion: Expansion
    inequalities: _Inequalities
    objective: Float[Array, ""]
    barrier: Float[Array, ""]
    shift: Float[Array, ""]
    filter: Float[Array, "capacity 2"]
    step: Int[Array, ""]
    error: Float[Array, ""]
    infeasibility: Float[Array, ""]
    stuck: Int[Array, ""]


class _Scales(NamedTuple):
    state: Float[Array, " n"]
    control: Float[Array, " m"]
    time: Float[Array, ""]
    objective: Float[Array, ""]
    constraint: Float[Array, " c"]
    boundary: Float[Array, " b"]


def _scales(problem: Problem, guess: Guess) -> _Scales:
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
    return _Scales(state, span, time, objective, constraint, boundary)


class _Program(eqx.Module):
    """The transcribed problem as a nonlinear program in states, controls and the final time.

    The barrier of a stage is weighted by its length, so that it does not depend on the grid.
    """

    problem: Problem
    scales: _Scales
    intervals: int = eqx.field(static=True)

    @property
    def h(self) -> float:
        """Length of a stage relative to the final time."""
        return 1.0 / self.intervals

    @property
    def fixed(self) -> Int[Array, " fixed"]:
        """Indices of the fixed components of the final state."""
        return jnp.array(self.problem.fixed_final, dtype=int)

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
        """Values `(N, q)` of the inequalities; below zero for ever where there is none."""
        parts = []
        if self.problem.n_constraints:
            middle = 0.5 * (x[1:] + x[:-1])
            values = jax.vmap(self.problem.constraints)(middle, u)
            parts.append(values / self.scales.constraint[None])
        if len(self.limited):
            step = jnp.diff(u[:, self.limited], axis=0, prepend=u[:1, self.limited])
            rates, exists = self.rate_limits()
            values = jnp.concatenate([step, -step], axis=1) - self.h * time * rates[None]
            size = jnp.tile(self.scales.control[self.limited], 2)
            parts.append(jnp.where(exists[None] > 0.0, values / size[None], -1.0))
        return jnp.concatenate([jnp.zeros((self.intervals, 0)), *parts], axis=1)

    def inequalities(self, it: _Iterate) -> _Inequalities:
        """The inequalities with their derivatives."""
        problem, limited = self.problem, self.limited
        n, m, c, r = problem.n, problem.m, problem.n_constraints, len(limited)
        count = self.intervals
        by_z, curvature = jnp.zeros((count, c, n + m)), jnp.zeros((count, n + m, n + m))
        if c:
            z = jnp.concatenate([0.5 * (it.x[1:] + it.x[:-1]), it.u], axis=1)
            size = self.scales.constraint
            _, by_z, curvature = jax.vmap(
                lambda z, weights: with_hessian(
                    lambda z: problem.constraints(z[:n], z[n:]) / size, z, weights
                )
            )(z, it.pressure[:, :c])
        by_stage = jnp.concatenate([by_z[:, :, :n], jnp.zeros((count, c, r)), by_z[:, :, n:]], 2)
        by_time = jnp.zeros((count, c))
        if r:
            rates, exists = self.rate_limits()
            size = jnp.tile(self.scales.control[limited], 2)
            step = jnp.zeros((r, n + r + m)).at[np.arange(r), n + np.arange(r)].set(-1.0)
            step = step.at[np.arange(r), n + r + limited].set(1.0)
            rows = jnp.concatenate([step, -step]) * (exists / size)[:, None]
            by_stage = jnp.concatenate(
                [by_stage, jnp.broadcast_to(rows, (count, *rows.shape))], axis=1
            )
            # Nothing comes before the first stage, so its step is zero whatever the control is.
            by_stage = by_stage.at[0, c:].set(0.0)
            by_rate = jnp.broadcast_to(-self.h * rates * exists / size, (count, 2 * r))
            by_time = jnp.concatenate([by_time, by_rate], axis=1)
        return _Inequalities(
            self.inequality_values(it.x, it.u, it.time), by_stage, by_time, curvature
        )

    @property
    def bounds(self) -> _Bounded:
        """The bounds themselves, infinite where there is none."""
        problem = self.problem
        shape = (self.intervals, problem.m)
        controls = (jnp.broadcast_to(bound, shape) for bound in (problem.lower, problem.upper))
        starts = (bound[self.free] for bound in (problem.start_lower, problem.start_upper))
        return _Bounded(*controls, *problem.time_bounds, *starts)

    def masked(self, values: _Bounded) -> _Bounded:
        """The values, zero where there is no bound."""
        return jax.tree.map(
            lambda value, bound: jnp.where(jnp.isfinite(bound), value, 0.0), values, self.bounds
        )

    def slacks(self, x: Array, u: Array, time: Array) -> _Bounded:
        """Distances to the bounds; one where there is none, so that nothing divides by infinity."""
        low, high, first, last, least, most = self.bounds
        start = x[0, self.free]
        distances = _Bounded(
            u - low, high - u, time - first, last - time, start - least, most - start
        )
        return jax.tree.map(lambda d: jnp.where(jnp.isfinite(d), d, 1.0), distances)

    def slack_changes(self, x: Array, u: Array, time: Array) -> _Bounded:
        """Changes of the distances when states, controls and time change."""
        start = x[0, self.free]
        return self.masked(_Bounded(u, -u, time, -time, start, -start))

    def end_errors(self, start: Array, time: Array, end: Array) -> Array:
        """Errors `(e,)` of the final state's fixed components and of the boundary conditions."""
        fixed = self.fixed
        error = (end[fixed] - self.problem.final_state[fixed]) / self.scales.state[fixed]
        boundary = self.problem.boundary(start, time, end) / self.scales.boundary
        return jnp.concatenate([error, boundary])

    def defects(self, x: Array, time: Array, f: Array) -> tuple[Array, Array]:
        """Midpoint defects `(N, n)` in units of the state scales, and the errors at the ends."""
        gap = (x[:-1] + self.h * time * f - x[1:]) / self.scales.state[None]
        return gap, self.end_errors(x[0], time, x[-1])

    def merit(
        self, x: Array, u: Array, time: Array, slack: Array, barrier: Array
    ) -> tuple[Array, Array]:
        """Infeasibility (scaled, summed) and barrier objective."""
        problem, h = self.problem, self.h
        f, cost = jax.vmap(lambda x, u: (problem.dynamics(x, u), problem.cost_rate(x, u)))(
            0.5 * (x[1:] + x[:-1]), u
        )
        gap, end = self.defects(x, time, f)
        logs = jax.tree.map(lambda slack: jnp.sum(jnp.log(slack)), self.slacks(x, u, time))
        logs = h * (logs.lower + logs.upper) + sum(logs[2:])
        logs += h * jnp.sum(jnp.log(slack))
        objective = h * time * jnp.sum(cost) + problem.end_cost(time, x[-1])
        breach = jnp.abs(self.inequality_values(x, u, time) + slack)
        infeasibility = jnp.sum(jnp.abs(gap)) + jnp.sum(jnp.abs(end)) + jnp.sum(breach)
        return infeasibility, objective - barrier * logs

    def expand(self, it: _Iterate) -> Expansion:
        """Expansion of the Hamiltonian at every midpoint."""
        return jax.vmap(lambda x, u, costate: expand(self.problem, x, u, costate))(
            0.5 * (it.x[1:] + it.x[:-1]), it.u, it.costate[1:]
        )

    def objective(self, it: _Iterate, ex: Expansion) -> Array:
        """Objective without the barrier."""
        return self.h * it.time * jnp.sum(ex.cost) + self.problem.end_cost(it.time, it.x[-1])

    def optimality(
        self, it: _Iterate, ex: Expansion, inner: _Inequalities, barrier: Array
    ) -> tuple[Array, Array]:
        """Scaled error of the conditions at a barrier parameter, and the infeasibility."""
        n, h, scales = self.problem.n, self.h, self.scales
        pressed = jnp.einsum("kq,kqs->ks", it.pressure, inner.by_stage)
        r = len(self.limited)
        hx = h * (it.time * ex.h_z[:, :n] + pressed[:, :n])
        by_x = it.costate[2:] - it.costate[1:-1] + 0.5 * (hx[1:] + hx[:-1])
        by_u = ex.h_z[:, n:] * it.time - it.duals.lower + it.duals.upper + pressed[:, n + r :]
        by_u = by_u.at[:-1, self.limited].add(pressed[1:, n : n + r])
        end_start, end_time, _ = jax.grad(self.problem.end_function, (0, 1, 2))(
            it.x[0], it.time, it.x[-1], it.boundary
        )
        by_time = (
            h * jnp.sum(ex.cost + jnp.sum(it.costate[1:] * ex.f, axis=1))
            + h * jnp.sum(it.pressure * inner.by_time)
            + end_time
            - it.duals.earliest
            + it.duals.latest
        )
        by_start = (it.costate[1] + 0.5 * hx[0] + end_start)[self.free]
        by_start += it.duals.most - it.duals.least
        slacks = self.slacks(it.x, it.u, it.time)
        gaps = jax.tree.map(lambda s, z: s * z - barrier, slacks, it.duals)
        stationarity = (
            by_x * scales.state[None] / h,
            by_u * scales.control[None],
            by_start * scales.state[self.free],
        )
        if self.problem.is_time_free:
            stationarity = (*stationarity, by_time * scales.time)
        infeasibility = max_norm((self.defects(it.x, it.time, ex.f), inner.value + it.slack))
        # Multipliers may be far larger than the objective; scaling by them keeps the test fair.
        size = jnp.maximum(
            scales.objective, 0.01 * jnp.mean(jnp.abs(it.costate[1:]) * scales.state[None])
        )
        pairs = it.slack * it.pressure - barrier
        error = max_norm((stationarity, self.masked(gaps), pairs)) / size
        return jnp.maximum(error, infeasibility), infeasibility

    def newton(
        self,
        it: _Iterate,
        ex: Expansion,
        inner: _Inequalities,
        barrier: Array,
        shift: Array,
        give: Array,
    ):
        """Newton step on the barrier problem.

        **Arguments:** `shift`, by which the reduced Hessian is raised; `give`, whether the end
        conditions may be missed at a price, because to first order nothing meets them.

        **Returns:** the step, the slope of the barrier objective along it, whether the reduced
        Hessian is positive definite, and whether the end conditions can be met.
        """
        problem, scales, h = self.problem, self.scales, self.h
        n, m, r, intervals = problem.n, problem.m, len(self.limited), self.intervals
        weight = h * it.time
        slacks = self.slacks(it.x, it.u, it.time)
        stiff = self.masked(jax.tree.map(jnp.divide, it.duals, slacks))
        push = self.masked(jax.tree.map(lambda s: barrier / s, slacks))
        relative = shift * scales.objective
        metric = jnp.concatenate(
            [
                jnp.ones(n) / scales.state**2,
                jnp.ones(r) / scales.control[self.limited] ** 2,
                jnp.ones(m) / scales.control**2,
            ]
        )
        # The stage's variables are (x at the midpoint, limited controls before, u).
        place = np.concatenate([np.arange(n), n + r + np.arange(m)])
        bound = jnp.pad(stiff.lower + stiff.upper, ((0, 0), (n + r, 0)))
        raised = jax.vmap(jnp.diag)(relative * metric[None] + bound)
        spring = it.pressure / it.slack
        force = barrier / it.slack + spring * (inner.value + it.slack)
        pull = jnp.einsum("kq,kqs->ks", force, inner.by_stage)
        sprung = spring[:, :, None] * inner.by_stage
        hess = h * (raised + jnp.einsum("kqs,kqv->ksv", sprung, inner.by_stage))
        hess = hess.at[:, place[:, None], place[None]].add(weight * ex.h_zz + h * inner.curvature)
        own = jnp.zeros((intervals, n + r + m)).at[:, place].set(weight * ex.cost_z)
        own += h * jnp.pad(push.upper - push.lower, ((0, 0), (n + r, 0)))
        grad = own + h * pull
        # Quadratic model of a stage in those, time and 1.
        cross = h * jnp.einsum("kqs,kq->ks", sprung, inner.by_time)
        cross = cross.at[:, place].add(h * ex.h_z)
        by_time = (h * (ex.cost + jnp.sum(force * inner.by_time, axis=1)))[:, None, None]
        twice_by_time = (h * jnp.sum(spring * inner.by_time**2, axis=1))[:, None, None]
        model = jnp.concatenate(
            [
                jnp.concatenate([hess, cross[:, :, None], grad[:, :, None]], axis=2),
                jnp.concatenate([cross[:, None, :], twice_by_time, by_time], axis=2),
                jnp.concatenate([grad[:, None, :], by_time, jnp.zeros_like(by_time)], axis=2),
            ],
            axis=1,
        )
        # Linearised midpoint rule, solved for the next state, as a map of (x, before, u, time, 1).
        eye = jnp.eye(n)[None]
        half = 0.5 * weight * ex.f_z[:, :, :n]
        defect = it.x[:-1] + weight * ex.f - it.x[1:]
        right = [
            eye + half,
            jnp.zeros((intervals, n, r)),
            weight * ex.f_z[:, :, n:],
            h * ex.f[:, :, None],
            defect[:, :, None],
        ]
        move = dense.solve(eye - half, jnp.concatenate(right, axis=2))
        width = n + r + m + 2
        identity = jnp.eye(width)
        midpoint = 0.5 * (move + identity[None, :n])
        others = jnp.broadcast_to(identity[n:], (intervals, width - n, width))
        to_model = jnp.concatenate([midpoint, others], axis=1)
        stage = jnp.einsum("kia,kij,kjb->kab", to_model, model, to_model)
        # Further parameters: the free components of the first state, multipliers of the ends.
        n_free = len(self.free)
        n_multipliers = len(problem.fixed_final) + problem.n_boundary
        more = n_free + n_multipliers
        handed_on = jnp.broadcast_to(identity[n + r + self.limited], (intervals, r, width))
        move = jnp.concatenate([move, handed_on], axis=1)
        lq = LinearQuadratic(
            jnp.zeros((n + r, 2 + more)).at[self.free, 2 + np.arange(n_free)].set(1.0),
            jnp.pad(stage, ((0, 0), (0, more), (0, more))),
            jnp.pad(move, ((0, 0), (0, 0), (0, more))),
            self._end_model(it, push, stiff, relative, give),
        )
        solved = sweep(lq, is_time_free=problem.is_time_free, n_multipliers=n_multipliers)
        dx, before = solved.x[:, :n], solved.x[:-1, n:]
        du, dt = solved.u, solved.parameters[0]
        # The midpoint rule weighs the next state in its own stage, so the multiplier of the defect
        # is the gradient of the cost to go plus half the stage's gradient.
        dx_mid = 0.5 * (dx[1:] + dx[:-1])
        change = jnp.concatenate([dx_mid, before, du], axis=1)
        parameters = jnp.broadcast_to(solved.parameters[:2], (intervals, 2))
        point = jnp.concatenate([change, parameters], axis=1)
        stage_x = jnp.einsum("kij,kj->ki", model[:, :n], point)
        costate = dense.solve(
            jnp.swapaxes(eye - half, 1, 2), (solved.value_x[:, :n] + 0.5 * stage_x)[:, :, None]
        )[:, :, 0]
        costate = jnp.concatenate([costate[:1], costate])
        d_value = jnp.einsum("kqs,ks->kq", inner.by_stage, change) + inner.by_time * dt
        d_slack = -(inner.value + it.slack) - d_value
        d_pressure = barrier / it.slack - spring * d_slack - it.pressure
        duals = jax.tree.map(
            lambda z, s, ds: (barrier - z * ds) / s - z,
            it.duals,
            slacks,
            self.slack_changes(dx, du, dt),
        )
        boundary = solved.parameters[2 + more - problem.n_boundary :] / scales.boundary
        cost_t, cost_x = jax.grad(problem.end_cost, argnums=(0, 1))(it.time, it.x[-1])
        slope = (
            jnp.sum(own * change)
            - barrier * h * jnp.sum(d_slack / it.slack)
            + dt * (h * jnp.sum(ex.cost) + push.latest - push.earliest + cost_t)
            + cost_x @ dx[-1]
            + (push.most - push.least) @ dx[0, self.free]
        )
        step = _Iterate(
            dx,
            du,
            dt,
            costate - it.costate,
            boundary - it.boundary,
            self.masked(duals),
            d_slack,
            d_pressure,
        )
        return step, slope, solved.ok & jnp.isfinite(slope), solved.in_reach

    def _end_model(
        self, it: _Iterate, push: _Bounded, stiff: _Bounded, relative: Array, give: Array
    ) -> Array:
        """Quadratic model of the ends in (x_N, limited controls, time, 1, free components of x_0,
        multipliers).
        """
        problem, scales, free = self.problem, self.scales, self.free
        n, r, n_free = problem.n, len(self.limited), len(free)

        def ends(z):
            return it.x[0].at[free].set(z[n + 1 :]), z[n], z[:n]

        def end_cost(z):
            _, time, end = ends(z)
            return problem.end_cost(time, end)

        z = jnp.concatenate([it.x[-1], it.time[None], it.x[0, free]])
        errors = self.end_errors(*ends(z))
        errors_z = jax.jacfwd(lambda z: self.end_errors(*ends(z)))(z)
        forces = jnp.append(push.latest - push.earliest, push.most - push.least)
        linear = jax.grad(end_cost)(z).at[n:].add(forces)
        hess = jax.hessian(lambda z: problem.end_function(*ends(z), it.boundary))(z)
        springs = jnp.append(stiff.earliest + stiff.latest, stiff.most + stiff.least)
        springs += relative / jnp.append(scales.time, scales.state[free]) ** 2
        # A penalty on the end state changes no solution but keeps the sweep's pivots positive.
        penalty = 1e2 * scales.objective
        hess = hess + jnp.diag(jnp.pad(springs, (n, 0))) + penalty * errors_z.T @ errors_z
        linear += penalty * errors_z.T @ errors
        model = jnp.block(
            [
                [hess, linear[:, None], errors_z.T],
                [linear[None], jnp.zeros((1, 1)), errors[None]],
                [errors_z, errors[:, None], -give / penalty * jnp.eye(len(errors))],
            ]
        )
        # The last values of the limited controls cost nothing; the 1 follows the time.
        place = np.concatenate(
            [
                np.arange(n),
                [n + r],
                n + r + 2 + np.arange(n_free),
                [n + r + 1],
                n + r + 2 + n_free + np.arange(len(errors)),
            ]
        )
        return jnp.zeros((len(place) + r,) * 2).at[place[:, None], place[None]].set(model)


def _longest_step(values, changes, fraction: Array) -> Array:
    """Largest step up to one that keeps a share of every value of two like trees."""
    ratios = jax.tree.map(
        lambda v, d: jnp.min(jnp.where(d < 0.0, -fraction * v / d, 1.0), initial=1.0),
        values,
        changes,
    )
    return jnp.min(jnp.stack(jax.tree.leaves(ratios)))


def _advance(program: _Program, solver: Transcription, state: _State) -> _State:
    """One Newton step with a filter line search (Waechter and Biegler 2006, simplified)."""
    scales, it = program.scales, state.iterate
    barrier_end = solver.barrier * scales.objective
    ex, inner = program.expand(it), program.inequalities(it)
    error, _ = program.optimality(it, ex, inner, state.barrier)
    reduce = (error < 10.0 * state.barrier / scales.objective) & (state.barrier > barrier_end)
    relative = state.barrier / scales.objective
    lower = jnp.minimum(0.2 * relative, relative**1.5) * scales.objective
    barrier = jnp.where(reduce, jnp.maximum(barrier_end, lower), state.barrier)
    filter_ = jnp.where(reduce, jnp.inf, state.filter)

    def raise_shift(carry):
        _, _, _, in_reach, give, shift, tries = carry
        shift = jnp.where(tries == 0, shift, jnp.maximum(8.0 * shift, 1e-6))
        give = jnp.where(in_reach, give, 1.0)
        return *program.newton(it, ex, inner, barrier, shift, give), give, shift, tries + 1

    # After a failed line search a larger shift turns the step towards feasibility.
    shift = jnp.where(state.stuck > 0, jnp.maximum(state.shift * 10.0, 1e-4), 0.0)
    blank = jax.tree.map(jnp.zeros_like, it)
    step, slope, ok, _, _, shift, _ = jax.lax.while_loop(
        lambda c: ~c[2] & (c[6] < 25),
        raise_shift,
        (blank, jnp.zeros(()), jnp.array(False), jnp.array(True), jnp.zeros(()), shift, 0),
    )
    fraction = jnp.maximum(0.99, 1.0 - barrier / scales.objective)
    slacks = program.slacks(it.x, it.u, it.time)
    changes = program.slack_changes(step.x, step.u, step.time)
    longest = _longest_step((slacks, it.slack), (changes, step.slack), fraction)
    # A final time that collapses or explodes in one step loses the way back.
    longest = jnp.minimum(longest, 0.3 * it.time / (jnp.abs(step.time) + 1e-300))
    dual_size = _longest_step((it.duals, it.pressure), (step.duals, step.pressure), fraction)

    sizes = longest * 0.5 ** jnp.arange(12.0)
    thetas, phis = jax.vmap(
        lambda s: program.merit(
            it.x + s * step.x,
            it.u + s * step.u,
            it.time + s * step.time,
            it.slack + s * step.slack,
            barrier,
        )
    )(jnp.append(sizes, 0.0))
    theta, phi, thetas, phis = thetas[-1], phis[-1], thetas[:-1], phis[:-1]
    margin = 1e-5 * scales.objective
    progress = (thetas <= (1.0 - 1e-5) * theta) | (phis <= phi - margin * theta)
    descent = (slope < 0.0) & (sizes * jnp.abs(slope / scales.objective) ** 2.3 > theta**1.1)
    armijo = phis <= phi + 1e-4 * sizes * slope + 1e-13 * jnp.abs(phi)
    allowed = jnp.all(
        (thetas[:, None] < (1.0 - 1e-5) * filter_[None, :, 0])
        | (phis[:, None] < filter_[None, :, 1] - margin * filter_[None, :, 0]),
        axis=1,
    )
    accept = jnp.where(descent & (theta < 1e-2), armijo, progress) & allowed
    accept &= jnp.isfinite(thetas) & jnp.isfinite(phis)
    # Near the solution rounding hides the decrease; a full step that stays feasible is right.
    accept |= (thetas < 1e-9) & (jnp.abs(phis - phi) < 1e-9 * scales.objective)
    found = jnp.any(accept) & ok
    chosen = jnp.argmax(accept)
    size = sizes[chosen]
    # A step that failed may hold NaN, which no length of zero removes.
    step = jax.tree.map(lambda d: jnp.where(found, d, 0.0), step)
    augment = found & ~(descent[chosen] & armijo[chosen])
    slot = jnp.where(augment, state.step, solver.max_steps)
    new = jax.tree.map(lambda v, d: v + size * d, it, step)
    duals = jax.tree.map(lambda v, d: v + dual_size * d, it.duals, step.duals)
    # Far-off duals would spoil the primal-dual model; keep them near the central path.
    pressure = it.pressure + dual_size * step.pressure
    duals, pressure = jax.tree.map(
        lambda z, s: jnp.clip(z, barrier / s / 1e8, barrier / s * 1e8),
        (duals, pressure),
        (program.slacks(new.x, new.u, new.time), new.slack),
    )
    error, infeasibility = program.optimality(it, ex, inner, barrier_end)
    return _State(
        new._replace(duals=program.masked(duals), pressure=pressure),
        ex,
        inner,
        program.objective(it, ex),
        barrier,
        shift,
        filter_.at[slot].set(jnp.stack([theta, phi]), mode="drop"),
        state.step + 1,
        jnp.where(jnp.isfinite(error), error, jnp.inf),
        infeasibility,
        jnp.where(found, 0, state.stuck + 1),
    )


def solve_transcription(problem: Problem, solver: Transcription, guess: Guess) -> Transcribed:
    """Solve the transcribed problem from a guess; pure JAX, no exceptions.

    **Arguments:** `problem`; `solver`; `guess`, see [`straight_line`][].

    **Returns:** [`Transcribed`][], with `converged` False where the iteration did not reach the
    tolerance.
    """
    n = problem.n
    scales = _scales(problem, guess)
    program = _Program(problem, scales, solver.intervals)
    barrier = 0.1 * scales.objective
    slacks = program.slacks(guess.x, guess.u, guess.final_time)
    value = program.inequality_values(guess.x, guess.u, guess.final_time)
    slack = jnp.maximum(-value, 0.1)
    iterate = _Iterate(
        guess.x,
        guess.u,
        guess.final_time,
        jnp.zeros_like(guess.x),
        jnp.zeros(problem.n_boundary),
        program.masked(jax.tree.map(lambda s: barrier / s, slacks)),
        slack,
        barrier / slack,
    )
    outline = jax.eval_shape(lambda: (program.expand(iterate), program.inequalities(iterate)))
    state = _State(
        iterate,
        *jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), outline),
        jnp.array(jnp.inf),
        barrier,
        jnp.zeros(()),
        jnp.full((solver.max_steps, 2), jnp.inf),
        jnp.array(0),
        jnp.array(jnp.inf),
        jnp.array(jnp.inf),
        jnp.array(0),
    )

    def unfinished(state: _State):
        done = (state.error < solver.tolerance) & (
            state.barrier <= solver.barrier * scales.objective
        )
        return ~done & (state.step < solver.max_steps) & (state.stuck < 12)

    state = jax.lax.while_loop(unfinished, lambda s: _advance(program, solver, s), state)
    it, ex = state.iterate, state.expansion
    c, r, m = problem.n_constraints, len(program.limited), problem.m
    step = program.h * it.time
    upper, lower = it.pressure[1:, c : c + r], it.pressure[1:, c + r :]
    rate_costate = jnp.zeros((solver.intervals - 1, m))
    rate_costate = rate_costate.at[:, program.limited].set(
        program.h * (lower - upper) / scales.control[program.limited][None]
    )
    return Transcribed(
        it.x,
        it.u,
        it.costate,
        ex.h_z[:, n:],
        jnp.diagonal(ex.h_zz[:, n:, n:], axis1=1, axis2=2),
        (it.duals.upper - it.duals.lower) / it.time,
        state.inequalities.value[:, :c] * scales.constraint[None],
        it.pressure[:, :c] / (it.time * scales.constraint[None]),
        jnp.diff(it.u, axis=0) / step,
        rate_costate,
        it.boundary,
        it.time,
        state.objective,
        state.error < solver.tolerance,
        state.error,
        state.infeasibility,
        state.step,
    )
