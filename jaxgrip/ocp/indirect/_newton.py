"""Newton step on the boundary-value problem."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxgrip.ocp.indirect._boundary_value_problem import Arcs, BoundaryValueProblem
from jaxgrip.ocp.indirect._collocation import radau
from jaxgrip.ocp.indirect._conditions import (
    Evaluation,
    Residual,
    Vanishing,
    apply_rules,
    at_ends,
    boundary_residual,
    first_derivative,
    is_differential,
    lift,
)
from jaxgrip.ocp.structure import Rule
from jaxgrip.solve import dense


def _times(matrix, vector):
    """Matrix times vector, with leading axes."""
    return (matrix @ vector[..., None])[..., 0]


def _free_directions(bvp: BoundaryValueProblem, law, rhs):
    """Directions of w = (y, v) in which the linear law holds at a stage, and one w that obeys it.

    Where the law determines controls and multipliers, its directions are those of y. On a singular
    arc it does so only together with the differential equations: then all directions are free, and
    the law remains an equation.
    """
    *axes, nv, nw = law.shape
    ny = nw - nv
    if bvp.plan.has_singular:
        return jnp.broadcast_to(jnp.eye(nw), (*axes, nw, nw)), jnp.zeros((*axes, nw))
    # Apart, so that the step is linear in `rhs` for JAX too.
    factors = dense.lu_factor(law[..., ny:])
    eye = jnp.broadcast_to(jnp.eye(ny), (*axes, ny, ny))
    basis = jnp.concatenate([eye, -dense.lu_solve(factors, law[..., :ny])], axis=-2)
    fixed = jnp.concatenate([jnp.zeros((*axes, ny)), dense.lu_solve(factors, rhs)], axis=-1)
    return basis, fixed


def newton_step(bvp: BoundaryValueProblem, at: Evaluation, rhs: Residual) -> Arcs:
    """Solve J step = rhs for the Jacobian J of the residuals; linear in `rhs`.

    Controls and multipliers are eliminated at each stage, stages in each interval, intervals in
    each arc. What remains couples the arcs'
    starts, the jumps and the switching times; it is small and solved with pivoting, so that
    unstable arcs do no harm.
    """
    plan, scales, limited, arcs = bvp.plan, bvp.scales, bvp.limited, at.arcs
    n_arcs, k, s, ny = arcs.stage.shape
    n, m, r, p = bvp.n, bvp.m, len(limited), plan.n_jumps
    nw = ny + arcs.stage_v.shape[-1]
    a = jnp.asarray(radau(s)[1])
    h = arcs.interval_lengths
    w_scale = jnp.concatenate([scales.y, scales.v])
    # Columns in units of w_scale, rates in units of scales.y.
    jacobian = jax.tree.map(lambda v: v * lift(w_scale, v), at.jacobian)
    rate_w = jacobian.rate / lift(scales.y[:, None], jacobian.rate)
    rate = at.stages.value.rate / lift(scales.y, at.stages.value.rate)

    moving = is_differential(bvp).astype(w_scale.dtype)
    state_u = 2 * n + np.arange(r)
    resting = (
        jnp.zeros((ny, nw)).at[state_u, ny + limited].set(scales.v[limited] / scales.y[state_u])
    )
    resting = (1.0 - moving)[:, :, None] * resting[None]
    basis, fixed = _free_directions(bvp, jacobian.law, rhs.law)
    nx = basis.shape[-1]
    # The differential and resting equations over w at the same stage and at all of an interval.
    rate_x, rate_own = rate_w @ basis, _times(rate_w, fixed)
    lift_y = (moving * h[:, None])[:, None, None, :]
    coupling = -jnp.einsum("ij,akjyx->akiyjx", a, rate_x) * lift_y[..., None, None]
    own_rows = (jnp.eye(ny, nw)[None] - resting)[:, None, None]
    here = own_rows @ basis
    top = coupling + jnp.einsum("ij,akiyx->akiyjx", jnp.eye(s), here)
    own = rhs.stage + lift_y * jnp.einsum("ij,akjy->akiy", a, rate_own)
    own -= _times(own_rows, fixed)
    d_start = jnp.broadcast_to(
        (moving[:, :, None] * jnp.eye(ny)[None])[:, None, None], (n_arcs, k, s, ny, ny)
    )
    d_length = jnp.einsum("ij,akjy->akiy", a, rate) * moving[:, None, None]
    columns = jnp.concatenate([d_start, d_length[..., None]], axis=4)
    if nx == nw:
        bottom = jnp.einsum("ij,akimw->akimjw", jnp.eye(s), jacobian.law)
        top = jnp.concatenate([top, bottom], axis=3)
        own = jnp.concatenate([own, rhs.law], axis=3)
        columns = jnp.pad(columns, ((0, 0), (0, 0), (0, 0), (0, nw - ny), (0, 0)))
    factors = dense.lu_factor(top.reshape(n_arcs, k, s * nx, s * nx))
    # Stages over (state at the interval's start, its length), and their own share of `rhs`.
    response = dense.lu_solve(factors, columns.reshape(n_arcs, k, s * nx, ny + 1))
    response = basis @ response.reshape(n_arcs, k, s, nx, ny + 1)
    own = dense.lu_solve(factors, own.reshape(n_arcs, k, s * nx)).reshape(n_arcs, k, s, nx)
    own = fixed + _times(basis, own)

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
    n_starts, n_jumps, n_boundary = ny * n_arcs, p * (n_arcs - 1), bvp.problem.n_boundary
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
    gradient = at.constraints.gradient[inner, plan.jump_constraint]
    hessian = at.constraints.hessian[inner, plan.jump_constraint]
    bend = jnp.einsum("bp,bpij->bij", arcs.jump, hessian)
    # The costate before a jump less the jump, as it changes with what comes before.
    before = jnp.broadcast_to(jnp.eye(ny, nw), (n_arcs - 1, ny, nw))
    before = before.at[:, n : 2 * n, :n].add(
        -bend * scales.y[None, None, :n] / scales.y[None, n : 2 * n, None]
    )
    passed, passed_own = spread(before, inner)
    jump_size = scales.jump[plan.jump_constraint]
    by_jump = jnp.einsum("bpn,bp,n->bnp", gradient, jump_size, 1.0 / scales.y[n : 2 * n])
    by_jump = jnp.einsum("bnp,bd->bndp", by_jump, jnp.eye(n_arcs - 1)).reshape(
        n_arcs - 1, n, n_jumps
    )
    after = arc_eye[1:, None, :, None] * jnp.eye(ny)[None, :, None, :]
    after = after.reshape(n_arcs - 1, ny, n_starts)
    continuity = jnp.pad(after, ((0, 0), (0, 0), (0, n_others + n_arcs))) - passed
    continuity = continuity.at[:, n : 2 * n, n_starts : n_starts + n_jumps].add(by_jump)

    lower_w = gradient * (w_scale[None, None, :n] / scales.lower[plan.jump_constraint][:, :, None])
    lower_rows, lower_own = spread(jnp.pad(lower_w, ((0, 0), (0, 0), (0, nw - n))), inner)
    is_jump = np.arange(p)[None] < plan.jumps[:, None]
    jump_eye = jnp.eye(n_jumps, size, k=n_starts).reshape(n_arcs - 1, p, size)
    jump_rows = jnp.where(is_jump[:, :, None], lower_rows, jump_eye)
    jump_own = jnp.where(is_jump, lower_own, 0.0)

    end = at_ends(jacobian)
    unit = jnp.broadcast_to(jnp.diag(w_scale), (n_arcs, nw, nw))
    constraint_rate = jnp.pad(
        first_derivative(at.constraints.gradient), ((0, 0), (0, 0), (0, nw - n))
    )
    vanishing = Vanishing(
        end.switching,
        unit[:, ny : ny + m],
        end.switching_rate,
        end.highest,
        unit[:, ny + m :],
        constraint_rate * lift(w_scale, constraint_rate),
        jax.vmap(bvp.rate_costates, in_axes=-1, out_axes=-1)(unit[:, :ny]),
    )
    row_w = apply_rules(bvp, vanishing, 0.0)
    condition_rows, condition_own = spread(row_w[:, None], plan.at)
    halfway = arc_eye[:-1] - 0.5 * (jnp.eye(n_arcs, k=1) + jnp.eye(n_arcs, k=-1))[:-1]
    halfway = jnp.pad(halfway, ((0, 0), (n_starts + n_others, 0)))
    idle = jnp.concatenate([halfway, jnp.eye(r, size, k=2 * n)])
    is_idle = (plan.rule == Rule.SUBDIVISION)[:, None]
    condition_rows = condition_rows[:, 0] + jnp.where(is_idle, idle, 0.0)

    by_start, by_time, by_end, by_multiplier, by_value = jax.jacfwd(
        lambda *ends: boundary_residual(bvp, *ends), argnums=(0, 1, 2, 3, 4)
    )(*arcs.ends, at.stages.value.hamiltonian[-1, -1, -1])
    by_w = jnp.pad(by_end * scales.y[None], ((0, 0), (0, nw - ny)))
    by_w += by_value[:, None] * end.hamiltonian[-1][None]
    boundary_rows, boundary_own = spread(by_w[None], np.array([n_arcs - 1]))
    others = [
        jnp.pad(by_start * scales.y[None], ((0, 0), (0, n_starts - ny + n_jumps))),
        by_multiplier * scales.boundary_multiplier[None],
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
        d_multiplier * scales.boundary_multiplier,
    )
