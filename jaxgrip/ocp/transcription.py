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

from jaxgrip.ocp.hamiltonian import Expansion, expand
from jaxgrip.ocp.problem import Problem


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
    `curvature` (diagonal of H_uu), each `(N, m)`, at the midpoints; `final_time` [s]; `objective`;
    `converged`; `error` and `infeasibility`, scaled; `steps`.
    """

    x: Float[Array, "nodes n"]
    u: Float[Array, "intervals m"]
    costate: Float[Array, "nodes n"]
    switching_function: Float[Array, "intervals m"]
    curvature: Float[Array, "intervals m"]
    final_time: Float[Array, ""]
    objective: Float[Array, ""]
    converged: Bool[Array, ""]
    error: Float[Array, ""]
    infeasibility: Float[Array, ""]
    steps: Int[Array, ""]


def straight_line(problem: Problem, intervals: int) -> Guess:
    """States on the straight line between the boundary states, controls mid-range."""
    s = jnp.linspace(0.0, 1.0, intervals + 1)[:, None]
    start = problem.initial_state
    fixed = jnp.array(problem.fixed_final, dtype=int)
    end = start.at[fixed].set(problem.final_state[fixed])
    x = start[None] * (1.0 - s) + end[None] * s
    lower = jnp.where(jnp.isfinite(problem.lower), problem.lower, -jnp.inf)
    finite = jnp.isfinite(lower) & jnp.isfinite(problem.upper)
    middle = jnp.where(
        finite,
        0.5 * (lower + problem.upper),
        jnp.clip(0.0, problem.lower + 1.0, problem.upper - 1.0),
    )
    time = problem.final_time.guess if problem.is_time_free else problem.final_time
    return Guess(x, jnp.broadcast_to(middle, (intervals, problem.m)), time)


def bent_line(problem: Problem, intervals: int, seed: int) -> Guess:
    """The straight line with each state's course bent at random by as much as the state travels."""
    guess = straight_line(problem, intervals)
    bow = np.sin(np.pi * np.linspace(0.0, 1.0, intervals + 1))[:, None]
    amount = np.random.default_rng(seed).normal(size=problem.n)
    return guess._replace(x=guess.x + bow * (amount * np.abs(guess.x[-1] - guess.x[0])))


class _Iterate(NamedTuple):
    x: Float[Array, "nodes n"]
    u: Float[Array, "intervals m"]
    time: Float[Array, ""]
    costate: Float[Array, "nodes n"]
    lower_dual: Float[Array, "intervals m"]
    upper_dual: Float[Array, "intervals m"]
    time_duals: Float[Array, "2"]


class _State(NamedTuple):
    iterate: _Iterate
    switching_function: Float[Array, "intervals m"]
    curvature: Float[Array, "intervals m"]
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
    reach = guess.final_time * jnp.max(rates, axis=0)
    travel = jnp.abs(guess.x[-1] - guess.x[0])
    state = jnp.maximum(travel, 0.1 * reach)
    state = jnp.where(state > 0.0, state, jnp.maximum(jnp.max(state), 1.0))
    cost = jnp.max(jnp.stack([jnp.abs(problem.cost_rate(x, middle + 0.5 * span)) for x in ends]))
    objective = jnp.maximum(guess.final_time * cost, 1e-3 * guess.final_time)
    return _Scales(state, span, guess.final_time, objective)


def _slack(value, bound, sign):
    """Distance to a bound; one where the bound is infinite, so that nothing divides by infinity."""
    return jnp.where(
        jnp.isfinite(bound), sign * (value - jnp.where(jnp.isfinite(bound), bound, 0.0)), 1.0
    )


def solve_transcription(problem: Problem, solver: Transcription, guess: Guess) -> Transcribed:
    """Solve the transcribed problem from a guess; pure JAX, no exceptions.

    **Arguments:** `problem`; `solver`; `guess`, see [`straight_line`][].

    **Returns:** [`Transcribed`][], with `converged` False where the iteration did not reach the
    tolerance.
    """
    n, m, intervals = problem.n, problem.m, solver.intervals
    free = problem.is_time_free
    h = 1.0 / intervals
    fixed = jnp.array(problem.fixed_final, dtype=int)
    n_fixed = fixed.shape[0]
    scales = _scales(problem, guess)
    has_lower, has_upper = jnp.isfinite(problem.lower), jnp.isfinite(problem.upper)
    if free:
        time_bounds = jnp.stack([problem.final_time.lower, problem.final_time.upper])
    else:
        time_bounds = jnp.stack([-jnp.inf, jnp.inf])
    time_signs = jnp.array([1.0, -1.0])
    has_time_bound = jnp.isfinite(time_bounds)
    barrier_end = solver.barrier * scales.objective

    def slacks(u, time):
        return (
            _slack(u, problem.lower[None], 1.0),
            _slack(u, problem.upper[None], -1.0),
            _slack(time[None], time_bounds, time_signs),
        )

    def stage_values(x, u):
        return jax.vmap(lambda xm, um: (problem.dynamics(xm, um), problem.cost_rate(xm, um)))(
            0.5 * (x[1:] + x[:-1]), u
        )

    def defects(x, time, f):
        """Midpoint defects `(N, n)` and end-state error, in units of the state scales."""
        gap = (x[:-1] + h * time * f - x[1:]) / scales.state[None]
        end = (x[-1][fixed] - problem.final_state[fixed]) / scales.state[fixed]
        return gap, end

    def merit(x, u, time, barrier):
        """Infeasibility and barrier objective."""
        f, cost = stage_values(x, u)
        gap, end = defects(x, time, f)
        low, high, ends = slacks(u, time)
        logs = (
            h * jnp.sum(jnp.where(has_lower[None], jnp.log(low), 0.0))
            + h * jnp.sum(jnp.where(has_upper[None], jnp.log(high), 0.0))
            + jnp.sum(jnp.where(has_time_bound, jnp.log(ends), 0.0))
        )
        objective = h * time * jnp.sum(cost) + problem.end_cost(time, x[-1])
        return jnp.sum(jnp.abs(gap)) + jnp.sum(jnp.abs(end)), objective - barrier * logs

    def evaluate(it: _Iterate) -> Expansion:
        return jax.vmap(lambda xm, um, lam: expand(problem, xm, um, lam))(
            0.5 * (it.x[1:] + it.x[:-1]), it.u, it.costate[1:]
        )

    def optimality(it: _Iterate, ex: Expansion, barrier):
        """Scaled error of the conditions at a barrier parameter, and the infeasibility."""
        weight = h * it.time
        hx = weight * ex.h_z[:, :n]
        dx = it.costate[2:] - it.costate[1:-1] + 0.5 * (hx[1:] + hx[:-1])
        du = ex.h_z[:, n:] * it.time - it.lower_dual + it.upper_dual
        low, high, ends = slacks(it.u, it.time)
        complementarity = jnp.max(
            jnp.abs(
                jnp.concatenate(
                    [
                        jnp.where(has_lower[None], low * it.lower_dual - barrier, 0.0).ravel(),
                        jnp.where(has_upper[None], high * it.upper_dual - barrier, 0.0).ravel(),
                        jnp.where(has_time_bound, ends * it.time_duals - barrier, 0.0),
                    ]
                )
            )
        )
        time_cost = jax.grad(problem.end_cost, argnums=0)(it.time, it.x[-1])
        dt = (
            h * jnp.sum(ex.cost + jnp.sum(it.costate[1:] * ex.f, axis=1))
            + time_cost
            - it.time_duals[0]
            + it.time_duals[1]
        )
        dual = jnp.maximum(
            jnp.max(jnp.abs(dx) * scales.state[None]) / h,
            jnp.max(jnp.abs(du) * scales.control[None]),
        )
        if free:
            dual = jnp.maximum(dual, jnp.abs(dt) * scales.time)
        gap, end = defects(it.x, it.time, ex.f)
        infeasibility = jnp.maximum(jnp.max(jnp.abs(gap)), jnp.max(jnp.abs(end), initial=0.0))
        # Multipliers may be far larger than the objective; IPOPT's scaling keeps the test fair.
        size = jnp.maximum(
            scales.objective, 0.01 * jnp.mean(jnp.abs(it.costate[1:]) * scales.state[None])
        )
        return jnp.maximum(jnp.maximum(dual, complementarity) / size, infeasibility), infeasibility

    n_theta = 1 + 1 + n_fixed  # the constant one, the change of the final time, end multipliers

    def direction(it: _Iterate, ex: Expansion, barrier, shift):
        """Newton step by a Riccati sweep; `ok` is False where the reduced Hessian is indefinite."""
        weight = h * it.time
        low, high, ends = slacks(it.u, it.time)
        curvature = jnp.where(has_lower[None], it.lower_dual / low, 0.0) + jnp.where(
            has_upper[None], it.upper_dual / high, 0.0
        )
        push = jnp.where(has_lower[None], -barrier / low, 0.0) + jnp.where(
            has_upper[None], barrier / high, 0.0
        )
        relative = shift * scales.objective
        metric = jnp.concatenate([jnp.ones(n) / scales.state**2, jnp.ones(m) / scales.control**2])
        diagonal = h * (relative * metric[None] + jnp.pad(curvature, ((0, 0), (n, 0))))
        hess = weight * ex.h_zz + jax.vmap(jnp.diag)(diagonal)
        # Quadratic model in (xm, u, time, 1).
        cross = h * ex.h_z
        grad = weight * ex.cost_z + h * jnp.pad(push, ((0, 0), (n, 0)))
        zero = jnp.zeros((intervals, 1, 1))
        grad_time = (h * ex.cost)[:, None, None]
        model = jnp.concatenate(
            [
                jnp.concatenate([hess, cross[:, :, None], grad[:, :, None]], axis=2),
                jnp.concatenate([cross[:, None, :], zero, grad_time], axis=2),
                jnp.concatenate([grad[:, None, :], grad_time, zero], axis=2),
            ],
            axis=1,
        )
        # Linearised midpoint rule, solved for the next state, as a map of (x, u, time, 1).
        a, b = ex.f_z[:, :, :n], ex.f_z[:, :, n:]
        eye = jnp.eye(n)[None]
        residual = it.x[:-1] + weight * ex.f - it.x[1:]
        rhs = jnp.concatenate(
            [eye + 0.5 * weight * a, weight * b, h * ex.f[:, :, None], residual[:, :, None]], axis=2
        )
        implicit = eye - 0.5 * weight * a
        move = jnp.linalg.solve(implicit, rhs)
        k = n + m + 2
        identity = jnp.eye(k)
        mid = 0.5 * (move + identity[None, :n, :])
        to_model = jnp.concatenate(
            [mid, jnp.broadcast_to(identity[n:], (intervals, k - n, k))], axis=1
        )
        stage = jnp.einsum("kia,kij,kjb->kab", to_model, model, to_model)
        # Order of the sweep's variables: x (n), u (m), time, 1, end multipliers.
        pad = ((0, 0), (0, n_fixed), (0, n_fixed))
        stage = jnp.pad(stage, pad)
        move = jnp.pad(move, ((0, 0), (0, 0), (0, n_fixed)))

        size = n + n_theta
        end_hess = jax.hessian(lambda y: problem.end_cost(y[0], y[1:]))(
            jnp.concatenate([it.time[None], it.x[-1]])
        )
        end_grad = jax.grad(lambda y: problem.end_cost(y[0], y[1:]))(
            jnp.concatenate([it.time[None], it.x[-1]])
        )
        i_time, i_one = n, n + 1
        value = jnp.zeros((size, size))
        order = jnp.concatenate([jnp.array([i_time]), jnp.arange(n)])
        value = value.at[order[:, None], order[None, :]].add(end_hess)
        value = value.at[order, i_one].add(end_grad).at[i_one, order].add(end_grad)
        i_nu = n + 2 + jnp.arange(n_fixed)
        error = it.x[-1][fixed] - problem.final_state[fixed]
        value = value.at[fixed, i_nu].add(1.0).at[i_nu, fixed].add(1.0)
        value = value.at[i_nu, i_one].add(error).at[i_one, i_nu].add(error)
        # A penalty on the end state changes no solution but keeps the sweep's pivots positive.
        penalty = 1e2 * scales.objective / scales.state[fixed] ** 2
        value = value.at[fixed, fixed].add(penalty)
        value = value.at[fixed, i_one].add(penalty * error).at[i_one, fixed].add(penalty * error)
        barrier_time = jnp.where(has_time_bound, it.time_duals / ends, 0.0)
        value = value.at[i_time, i_time].add(jnp.sum(barrier_time) + relative / scales.time**2)
        push_time = jnp.sum(jnp.where(has_time_bound, -barrier * time_signs / ends, 0.0))
        value = value.at[i_time, i_one].add(push_time).at[i_one, i_time].add(push_time)

        keep = jnp.concatenate([jnp.arange(n), n + m + jnp.arange(n_theta)])
        controls = n + jnp.arange(m)
        embed = jnp.zeros((n_theta, n + m + n_theta)).at[:, n + m :].set(jnp.eye(n_theta))

        def backward(value, inputs):
            stage_k, move_k = inputs
            full = jnp.concatenate([move_k, embed], axis=0)
            q = stage_k + full.T @ value @ full
            quu = q[controls[:, None], controls[None, :]]
            qux = q[controls[:, None], keep[None, :]]
            factor = jnp.linalg.cholesky(quu)
            gain = -jax.scipy.linalg.cho_solve((factor, True), qux)
            new = q[keep[:, None], keep[None, :]] + qux.T @ gain
            return 0.5 * (new + new.T), (gain, value[:n])

        first, (gains, costate_rows) = jax.lax.scan(backward, value, (stage, move), reverse=True)
        tail = first[n:, n:]
        unknown = jnp.array(([0] if free else []) + [2 + i for i in range(n_fixed)], dtype=int)
        system = tail[unknown[:, None], unknown[None, :]]
        solved = jnp.linalg.solve(system, -tail[unknown, 1])
        theta = jnp.zeros(n_theta).at[1].set(1.0).at[unknown].set(solved)
        nu_block = tail[2:, 2:]
        nu_factor = jnp.linalg.cholesky(-nu_block)
        ok = jnp.all(jnp.isfinite(gains)) & jnp.all(jnp.isfinite(nu_factor))
        if free:
            coupling = tail[2:, 0]
            schur = tail[0, 0] + coupling @ jax.scipy.linalg.cho_solve((nu_factor, True), coupling)
            ok &= schur > 0.0

        def forward(dx, inputs):
            gain_k, move_k = inputs
            du = gain_k @ jnp.concatenate([dx, theta])
            new = move_k @ jnp.concatenate([dx, du, theta])
            return new, (du, new)

        _, (du, dx) = jax.lax.scan(forward, jnp.zeros(n), (gains, move))
        dx = jnp.concatenate([jnp.zeros((1, n)), dx])
        dt = theta[0]
        # The midpoint rule weighs the next state in its own stage, so the multiplier of the defect
        # is the gradient of the value function plus half the stage's gradient.
        value_x = jnp.einsum(
            "kij,kj->ki",
            costate_rows,
            jnp.concatenate([dx[1:], jnp.broadcast_to(theta, (intervals, n_theta))], axis=1),
        )
        point = jnp.concatenate(
            [
                0.5 * (dx[1:] + dx[:-1]),
                du,
                jnp.broadcast_to(jnp.stack([dt, jnp.ones(())]), (intervals, 2)),
            ],
            axis=1,
        )
        stage_x = jnp.einsum("kij,kj->ki", model[:, :n], point)
        costate = jnp.linalg.solve(
            jnp.swapaxes(implicit, 1, 2), (value_x + 0.5 * stage_x)[:, :, None]
        )[:, :, 0]
        costate = jnp.concatenate([costate[:1], costate])
        dlow = jnp.where(has_lower[None], (barrier - it.lower_dual * du) / low - it.lower_dual, 0.0)
        dhigh = jnp.where(
            has_upper[None], (barrier + it.upper_dual * du) / high - it.upper_dual, 0.0
        )
        dends = jnp.where(
            has_time_bound,
            (barrier - time_signs * it.time_duals * dt) / ends - it.time_duals,
            0.0,
        )
        slope = (
            jnp.sum(grad * jnp.concatenate([0.5 * (dx[1:] + dx[:-1]), du], axis=1))
            + dt * (h * jnp.sum(ex.cost) + push_time + end_grad[0])
            + end_grad[1:] @ dx[-1]
        )
        step = _Iterate(dx, du, dt, costate - it.costate, dlow, dhigh, dends)
        return step, slope, ok & jnp.isfinite(slope)

    def max_step(values, changes, mask, fraction):
        ratio = jnp.where(mask & (changes < 0.0), -fraction * values / changes, 1.0)
        return jnp.min(ratio, initial=1.0)

    def body(state: _State) -> _State:
        it = state.iterate
        ex = evaluate(it)

        def lower_barrier(carry):
            barrier, _ = carry
            return jnp.maximum(
                barrier_end,
                jnp.minimum(0.2 * barrier, (barrier / scales.objective) ** 1.5 * scales.objective),
            ), True

        at_barrier, _ = optimality(it, ex, state.barrier)
        reduce = (at_barrier < 10.0 * state.barrier / scales.objective) & (
            state.barrier > barrier_end
        )
        barrier = jnp.where(reduce, lower_barrier((state.barrier, False))[0], state.barrier)
        filter_ = jnp.where(reduce, jnp.inf, state.filter)

        def search(carry):
            _, _, _, shift, tries = carry
            shift = jnp.where(tries == 0, shift, jnp.maximum(8.0 * shift, 1e-6))
            step, slope, ok = direction(it, ex, barrier, shift)
            return step, slope, ok, shift, tries + 1

        start_shift = jnp.where(state.stuck > 0, jnp.maximum(state.shift * 10.0, 1e-4), 0.0)
        blank = jax.tree.map(jnp.zeros_like, it)
        step, slope, ok, shift, _ = jax.lax.while_loop(
            lambda c: ~c[2] & (c[4] < 25),
            search,
            (blank, jnp.zeros(()), jnp.array(False), start_shift, 0),
        )
        low, high, ends = slacks(it.u, it.time)
        fraction = jnp.maximum(0.99, 1.0 - barrier / scales.objective)
        primal = jnp.minimum(
            jnp.minimum(
                max_step(low, step.u, has_lower[None], fraction),
                max_step(high, -step.u, has_upper[None], fraction),
            ),
            max_step(ends, time_signs * step.time, has_time_bound, fraction),
        )
        # A final time that collapses or explodes in one step loses the way back.
        primal = jnp.minimum(primal, 0.3 * it.time / (jnp.abs(step.time) + 1e-300))
        dual = jnp.minimum(
            jnp.minimum(
                max_step(it.lower_dual, step.lower_dual, has_lower[None], fraction),
                max_step(it.upper_dual, step.upper_dual, has_upper[None], fraction),
            ),
            max_step(it.time_duals, step.time_duals, has_time_bound, fraction),
        )
        sizes = primal * 0.5 ** jnp.arange(12.0)
        thetas, phis = jax.vmap(
            lambda s: merit(it.x + s * step.x, it.u + s * step.u, it.time + s * step.time, barrier)
        )(jnp.append(sizes, 0.0))
        theta, phi, thetas, phis = thetas[-1], phis[-1], thetas[:-1], phis[:-1]
        noise = 1e-13 * jnp.abs(phi)
        progress = (thetas <= (1.0 - 1e-5) * theta) | (
            phis <= phi - 1e-5 * scales.objective * theta
        )
        descent = (slope < 0.0) & (sizes * jnp.abs(slope / scales.objective) ** 2.3 > theta**1.1)
        armijo = phis <= phi + 1e-4 * sizes * slope + noise
        allowed = jnp.all(
            (thetas[:, None] < (1.0 - 1e-5) * filter_[None, :, 0])
            | (phis[:, None] < filter_[None, :, 1] - 1e-5 * scales.objective * filter_[None, :, 0]),
            axis=1,
        )
        accept = jnp.where(descent & (theta < 1e-2), armijo, progress) & allowed
        accept &= jnp.isfinite(thetas) & jnp.isfinite(phis)
        # Near the solution rounding hides the decrease; a full step that stays feasible is right.
        accept |= (thetas < 1e-9) & (jnp.abs(phis - phi) < 1e-9 * scales.objective)
        found = jnp.any(accept) & ok
        chosen = jnp.argmax(accept)
        size = jnp.where(found, sizes[chosen], 0.0)
        dual = jnp.where(found, dual, 0.0)
        augment = ~(descent[chosen] & armijo[chosen])
        slot = jnp.where(found & augment, state.step, solver.max_steps)
        filter_ = filter_.at[slot].set(jnp.stack([theta, phi]), mode="drop")
        new = _Iterate(
            it.x + size * step.x,
            it.u + size * step.u,
            it.time + size * step.time,
            it.costate + size * step.costate,
            it.lower_dual + dual * step.lower_dual,
            it.upper_dual + dual * step.upper_dual,
            it.time_duals + dual * step.time_duals,
        )
        # Far-off duals would spoil the primal-dual model; keep them near the central path.
        low, high, ends = slacks(new.u, new.time)
        new = new._replace(
            lower_dual=jnp.where(
                has_lower[None],
                jnp.clip(new.lower_dual, barrier / low / 1e8, barrier / low * 1e8),
                0.0,
            ),
            upper_dual=jnp.where(
                has_upper[None],
                jnp.clip(new.upper_dual, barrier / high / 1e8, barrier / high * 1e8),
                0.0,
            ),
        )
        error, infeasibility = optimality(it, ex, barrier_end)
        error = jnp.where(jnp.isfinite(error), error, jnp.inf)
        return _State(
            new,
            ex.h_z[:, n:],
            jnp.diagonal(ex.h_zz[:, n:, n:], axis1=1, axis2=2),
            h * it.time * jnp.sum(ex.cost) + problem.end_cost(it.time, it.x[-1]),
            barrier,
            shift,
            filter_,
            state.step + 1,
            error,
            infeasibility,
            jnp.where(found, 0, state.stuck + 1),
        )

    def unfinished(state: _State):
        done = (state.error < solver.tolerance) & (state.barrier <= barrier_end)
        return ~done & (state.step < solver.max_steps) & (state.stuck < 12)

    barrier0 = 0.1 * scales.objective
    low, high, ends = slacks(guess.u, guess.final_time)
    iterate = _Iterate(
        guess.x,
        guess.u,
        guess.final_time,
        jnp.zeros((intervals + 1, n)),
        jnp.where(has_lower[None], barrier0 / low, 0.0),
        jnp.where(has_upper[None], barrier0 / high, 0.0),
        jnp.where(has_time_bound, barrier0 / ends, 0.0),
    )
    state = _State(
        iterate,
        jnp.zeros((intervals, m)),
        jnp.zeros((intervals, m)),
        jnp.array(jnp.inf),
        barrier0,
        jnp.zeros(()),
        jnp.full((solver.max_steps, 2), jnp.inf),
        jnp.array(0),
        jnp.array(jnp.inf),
        jnp.array(jnp.inf),
        jnp.array(0),
    )
    state = jax.lax.while_loop(unfinished, body, state)
    it = state.iterate
    return Transcribed(
        it.x,
        it.u,
        it.costate,
        state.switching_function,
        state.curvature,
        it.time,
        state.objective,
        state.error < solver.tolerance,
        state.error,
        state.infeasibility,
        state.step,
    )
