"""Multiple shooting on the multipoint boundary-value problem, one arc between two events.

Every arc is integrated by Radau IIA collocation, which keeps its order where algebraic conditions
fix a control: on singular arcs, on active constraints, at a bound. All stages of all intervals are
evaluated in one vectorised call, and what holds on an arc is data: another structure does not
recompile.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from optimistix import max_norm

from jaxgrip.ocp.indirect._arcs import Arcs, ends_of, interval_lengths, radau, sizes_of
from jaxgrip.ocp.indirect._conditions import (
    Conditions,
    Ends,
    Residual,
    Stages,
    at_ends,
    boundary_residual,
    evaluate_ends,
    evaluate_stages,
    is_differential,
    lift,
    residuals,
    rows_of,
    touch_slope,
)
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure import SUBDIVISION, ArcPlan, Features, Scales
from jaxgrip.solve import dense


class Shooting(eqx.Module):
    """Configuration of the multiple-shooting solver.

    **Arguments:** `intervals`, collocation intervals an arc; `stages`, Radau stages an interval;
    `max_steps`, limit of Newton steps; `tolerance`, on the scaled residual.
    """

    intervals: int = eqx.field(static=True, default=6)
    stages: int = eqx.field(static=True, default=5)
    max_steps: int = eqx.field(static=True, default=30)
    tolerance: float = 1e-12


def newton_step(
    problem: Problem,
    plan: ArcPlan,
    arcs: Arcs,
    scales: Scales,
    features: Features,
    value: Conditions,
    jacobian: Conditions,
    ends: Ends,
    rhs: Residual,
) -> Arcs:
    """Solve J step = rhs for the Jacobian J of the residuals; linear in `rhs`.

    Stages are eliminated in each interval, intervals in each arc. What remains couples the arcs'
    starts, the jumps and the switching times; it is small and solved with pivoting, so that
    unstable arcs do no harm.
    """
    n_arcs, k, s, ny = arcs.stage.shape
    n, m, limited = problem.n, problem.m, np.array(features.limited, dtype=int)
    r, p = len(limited), features.n_jumps
    nw = ny + arcs.stage_v.shape[-1]
    a = jnp.asarray(radau(s)[1])
    h = interval_lengths(arcs)
    sizes = sizes_of(scales, features)
    w_scale = jnp.concatenate([scales.y, scales.v])
    # Columns in units of w_scale, rates in units of scales.y.
    columns = lift(w_scale, jacobian.rate)
    rate_w = jacobian.rate * columns / lift(scales.y[:, None], jacobian.rate)
    rate = value.rate / lift(scales.y, value.rate)
    law_w = jacobian.law * columns

    moving = is_differential(problem, plan, features).astype(w_scale.dtype)
    held = 2 * n + np.arange(r)
    resting = jnp.zeros((ny, nw)).at[held, ny + limited].set(scales.v[limited] / scales.y[held])
    resting = (1.0 - moving)[:, :, None] * resting[None]
    coupling = h[:, None, None, None, None, None] * jnp.einsum("ij,akjyw->akiyjw", a, rate_w)
    coupling *= moving[:, None, None, :, None, None]
    top = (
        jnp.einsum("ij,yw->iyjw", jnp.eye(s), jnp.eye(ny, nw))[None, None]
        - coupling
        - jnp.einsum("ij,ayw->aiyjw", jnp.eye(s), resting)[:, None]
    )
    bottom = jnp.einsum("ij,akimw->akimjw", jnp.eye(s), law_w)
    local = jnp.concatenate([top, bottom], axis=3).reshape(n_arcs, k, s * nw, s * nw)
    # What depends on `rhs` is kept apart throughout, so that the step is linear in it for JAX too.
    factors = dense.lu_factor(local)
    d_start = jnp.broadcast_to(
        (moving[:, :, None] * jnp.eye(ny)[None])[:, None, None], (n_arcs, k, s, ny, ny)
    )
    d_length = jnp.einsum("ij,akjy->akiy", a, rate) * moving[:, None, None]
    columns = jnp.concatenate([d_start, d_length[..., None]], axis=4)
    columns = jnp.pad(columns, ((0, 0), (0, 0), (0, 0), (0, nw - ny), (0, 0)))
    # Stages over (state at the interval's start, its length), and their own share of `rhs`.
    response = dense.lu_solve(factors, columns.reshape(n_arcs, k, s * nw, ny + 1))
    response = response.reshape(n_arcs, k, s, nw, ny + 1)
    own = jnp.concatenate([rhs.stage, rhs.law], axis=3).reshape(n_arcs, k, s * nw, 1)
    own = dense.lu_solve(factors, own).reshape(n_arcs, k, s, nw)

    def chain(interval, before):
        """A map over (interval's start, length) as one over (arc's start, length)."""
        after = jnp.einsum("awy,ayc->awc", interval[:, :, :ny], before)
        return after.at[:, :, ny].add(interval[:, :, ny])

    def chain_own(interval, interval_own, before):
        return jnp.einsum("awy,ay->aw", interval[:, :, :ny], before) + interval_own

    by_interval = jnp.swapaxes(response[:, :, -1], 0, 1)
    own_by_interval = jnp.swapaxes(own[:, :, -1], 0, 1)
    identity = jnp.broadcast_to(jnp.eye(ny, ny + 1), (n_arcs, ny, ny + 1))
    _, starts = jax.lax.scan(lambda v, r: (chain(r, v)[:, :ny], v), identity, by_interval)
    _, own_starts = jax.lax.scan(
        lambda v, r: (chain_own(r[0], r[1], v)[:, :ny], v),
        jnp.zeros((n_arcs, ny)),
        (by_interval, own_by_interval),
    )
    end_w = chain(by_interval[-1], starts[-1])
    own_end_w = chain_own(by_interval[-1], own_by_interval[-1], own_starts[-1])

    # Unknowns: y at the arcs' starts, jump parameters, boundary multipliers, the arcs' end times.
    step_scale = scales.time / k
    n_starts, n_jumps, n_boundary = ny * n_arcs, p * (n_arcs - 1), problem.n_boundary
    n_others = n_jumps + n_boundary
    size = n_starts + n_others + n_arcs
    arc_eye = jnp.eye(n_arcs)
    length = (arc_eye - jnp.eye(n_arcs, k=-1)) * step_scale

    def spread(rows, arc):
        """Rows `(B, q, nw)` over w at the end of given arcs, over all unknowns, and their own."""
        rows_own = jnp.einsum("bqw,bw->bq", rows, own_end_w[arc])
        rows = jnp.einsum("bqw,bwc->bqc", rows, end_w[arc])
        over_starts = rows[:, :, None, :ny] * arc_eye[arc][:, None, :, None]
        over_times = rows[:, :, ny, None] * length[arc][:, None, :]
        over_starts = over_starts.reshape(*rows.shape[:2], n_starts)
        return (
            jnp.concatenate([jnp.pad(over_starts, ((0, 0), (0, 0), (0, n_others))), over_times], 2),
            rows_own,
        )

    inner = np.arange(n_arcs - 1)
    slope = ends.slope[inner, plan.jump_constraint]
    bend = jnp.einsum("bp,bpij->bij", arcs.jump, ends.bend[inner, plan.jump_constraint])
    # The costate before a jump less the jump, as it changes with what comes before.
    before = jnp.broadcast_to(jnp.eye(ny, nw), (n_arcs - 1, ny, nw))
    before = before.at[:, n : 2 * n, :n].add(
        -bend * scales.y[None, None, :n] / scales.y[None, n : 2 * n, None]
    )
    passed, passed_own = spread(before, inner)
    jump_size = sizes.jump[plan.jump_constraint]
    by_jump = jnp.einsum("bpn,bp,n->bnp", slope, jump_size, 1.0 / scales.y[n : 2 * n])
    by_jump = jnp.einsum("bnp,bd->bndp", by_jump, jnp.eye(n_arcs - 1)).reshape(
        n_arcs - 1, n, n_jumps
    )
    after = arc_eye[1:, None, :, None] * jnp.eye(ny)[None, :, None, :]
    after = after.reshape(n_arcs - 1, ny, n_starts)
    continuity = jnp.pad(after, ((0, 0), (0, 0), (0, n_others + n_arcs))) - passed
    continuity = continuity.at[:, n : 2 * n, n_starts : n_starts + n_jumps].add(by_jump)

    level_w = slope * (w_scale[None, None, :n] / sizes.level[plan.jump_constraint][:, :, None])
    level_rows, level_own = spread(jnp.pad(level_w, ((0, 0), (0, 0), (0, nw - n))), inner)
    is_jump = np.arange(p)[None] < plan.jumps[:, None]
    jump_eye = jnp.eye(n_jumps, size, k=n_starts).reshape(n_arcs - 1, p, size)
    jump_rows = jnp.where(is_jump[:, :, None], level_rows, jump_eye)
    jump_own = jnp.where(is_jump, level_own, 0.0)

    j, i, at, rule = plan.control, plan.constraint, plan.at, plan.rule
    end = at_ends(jacobian)
    pick = jnp.eye(nw)
    chosen = [
        end.switching[at, j] * w_scale[None] / scales.switching[j][:, None],
        pick[ny + j],
        end.slope[at, j] * w_scale[None] * (scales.time / scales.switching[j])[:, None],
    ]
    blank = jnp.zeros((len(at), nw))
    if features.active:
        touch = jnp.pad(touch_slope(ends)[at, i], ((0, 0), (0, nw - n))) * w_scale[None]
        chosen += [
            end.highest[at, i] * w_scale[None] / sizes.highest[i][:, None],
            pick[ny + m + i],
            touch / (scales.constraint[i] / scales.time)[:, None],
        ]
    else:
        chosen += [blank] * 3
    chosen.append(pick[2 * n + r + rows_of(limited, m)[j]] if r else blank)
    row_w = jnp.select([(rule == each)[:, None] for each in range(1, 8)], chosen, 0.0)
    condition_rows, condition_own = spread(row_w[:, None], at)
    halfway = arc_eye[:-1] - 0.5 * (jnp.eye(n_arcs, k=1) + jnp.eye(n_arcs, k=-1))[:-1]
    halfway = jnp.pad(halfway, ((0, 0), (n_starts + n_others, 0)))
    idle = jnp.concatenate([halfway, jnp.eye(r, size, k=2 * n)])
    condition_rows = condition_rows[:, 0] + jnp.where((rule == SUBDIVISION)[:, None], idle, 0.0)

    by_start, by_time, by_end, by_multiplier, by_value = jax.jacfwd(
        lambda *ends: boundary_residual(problem, plan, scales, *ends), argnums=(0, 1, 2, 3, 4)
    )(*ends_of(arcs), value.hamiltonian[-1, -1, -1])
    by_w = jnp.pad(by_end, ((0, 0), (0, nw - ny))) + by_value[:, None] * end.hamiltonian[-1][None]
    boundary_rows, boundary_own = spread((by_w * w_scale[None])[None], np.array([n_arcs - 1]))
    others = [
        jnp.pad(by_start * scales.y[None], ((0, 0), (0, n_starts - ny + n_jumps))),
        by_multiplier * sizes.boundary_multiplier[None],
        jnp.pad(by_time[:, None] * scales.time, ((0, 0), (n_arcs - 1, 0))),
    ]
    boundary_rows = boundary_rows[0] + jnp.concatenate(others, axis=1)
    matrix = jnp.concatenate(
        [
            continuity.reshape(-1, size),
            condition_rows,
            jump_rows.reshape(-1, size),
            boundary_rows,
        ]
    )
    vector = jnp.concatenate(
        [
            (rhs.continuity + passed_own).ravel(),
            rhs.condition - condition_own[:, 0],
            (rhs.jump - jump_own).ravel(),
            rhs.boundary - boundary_own[0],
        ]
    )
    solved = dense.lu_solve(dense.lu_factor(matrix), vector)
    arc_starts = solved[:n_starts].reshape(n_arcs, ny)
    d_jump = solved[n_starts : n_starts + n_jumps].reshape(n_arcs - 1, p)
    d_multiplier = solved[n_starts + n_jumps : n_starts + n_others]
    d_times = solved[n_starts + n_others :]
    d_length = (length @ d_times)[:, None]
    start = own_starts + jnp.einsum(
        "kayc,ac->kay", starts, jnp.concatenate([arc_starts, d_length], axis=1)
    )
    start = jnp.concatenate([start, jnp.broadcast_to(d_length, (k, n_arcs, 1))], axis=2)
    w = own + jnp.einsum("akswc,kac->aksw", response, start)
    return Arcs(
        arc_starts * scales.y[None],
        w[..., :ny] * lift(scales.y, w),
        w[..., ny:] * lift(scales.v, w),
        d_jump * jump_size,
        d_times * scales.time,
        d_multiplier * sizes.boundary_multiplier,
    )


class ShootingResult(NamedTuple):
    """Outcome of the Newton iteration: `arcs`, the unknowns; `stages`, the values there;
    `residual`, scaled; `steps`; `converged`.
    """

    arcs: Arcs
    stages: Stages
    residual: Float[Array, ""]
    steps: Int[Array, ""]
    converged: Bool[Array, ""]


class _State(NamedTuple):
    arcs: Arcs
    stages: Stages
    norm: Float[Array, ""]
    step: Arcs
    size: Float[Array, ""]
    steps: Int[Array, ""]
    done: Bool[Array, ""]


def solve_shooting(
    problem: Problem,
    solver: Shooting,
    plan: ArcPlan,
    arcs: Arcs,
    scales: Scales,
    features: Features,
) -> ShootingResult:
    """Damped Newton on the multipoint boundary-value problem; pure JAX, no exceptions.

    A step is halved until the scaled residual does not grow. Below the tolerance the iteration
    goes on until rounding stops it, since the last digits cost one step.

    **Arguments:** `problem`, `solver`, `plan`, starting `arcs`, `scales`; `features`, what the plan
    contains.

    **Returns:** [`ShootingResult`][].

    Source: G. F. Schanzer, dissertation, TU München 2007, section 5.4.2.
    """

    def body(state: _State) -> _State:
        arcs = jax.tree.map(lambda v, d: v + state.size * d, state.arcs, state.step)
        stages, jacobian = evaluate_stages(problem, plan, arcs, scales, features)
        ends = evaluate_ends(problem, arcs, features)
        residual = residuals(problem, plan, arcs, scales, features, stages.value, ends)
        norm = max_norm(residual)
        norm = jnp.where(jnp.isfinite(norm), norm, jnp.inf)
        accept = (norm < state.norm) | (state.steps == 0)
        rhs = jax.tree.map(jnp.negative, residual)
        step = newton_step(problem, plan, arcs, scales, features, stages.value, jacobian, ends, rhs)
        size = jnp.where(accept, 1.0, 0.5 * state.size)
        done = ~jnp.isfinite(norm) & (state.steps == 0)
        done |= ~accept & ((state.norm < solver.tolerance) | (size < 1e-3))
        new = (arcs, stages, norm, step)
        old = (state.arcs, state.stages, state.norm, state.step)
        kept = jax.tree.map(lambda p, q: jnp.where(accept, p, q), new, old)
        return _State(*kept, size, state.steps + 1, done)

    outline = jax.eval_shape(lambda: evaluate_stages(problem, plan, arcs, scales, features)[0])
    state = _State(
        arcs,
        jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), outline),
        jnp.array(jnp.inf),
        jax.tree.map(jnp.zeros_like, arcs),
        jnp.ones(()),
        jnp.array(0),
        jnp.array(False),
    )
    state = jax.lax.while_loop(lambda s: ~s.done & (s.steps < solver.max_steps), body, state)
    return ShootingResult(
        state.arcs, state.stages, state.norm, state.steps, state.norm < solver.tolerance
    )
