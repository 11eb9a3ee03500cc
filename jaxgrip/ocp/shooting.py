"""Multiple shooting on the Hamiltonian boundary-value problem, one arc between two switches.

Every arc is integrated by Radau IIA collocation, which keeps its order on singular arcs, where the
control follows from a hidden constraint. All stages of all intervals are evaluated in one
vectorised call, and the kind of an arc (which control sits on which bound) is data: another
structure does not recompile.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import roots_jacobi

from jaxgrip.ocp.hamiltonian import expand, hamiltonian_flow, switching, switching_slope
from jaxgrip.ocp.problem import Problem

LOWER, INTERIOR, UPPER, SINGULAR = -1, 0, 1, 2

# What fixes the end of an arc.
SUBDIVISION, SWITCH, SATURATION, TANGENCY = 0, 1, 2, 3


class Shooting(eqx.Module):
    """Configuration of the multiple-shooting solver.

    **Arguments:** `intervals`, collocation intervals an arc; `stages`, Radau stages an interval;
    `max_steps`, limit of Newton steps; `tolerance`, on the scaled residual.
    """

    intervals: int = eqx.field(static=True, default=6)
    stages: int = eqx.field(static=True, default=5)
    max_steps: int = eqx.field(static=True, default=30)
    tolerance: float = 1e-12


class ArcPlan(NamedTuple):
    """The structure of a solution as data.

    `kinds` `(arcs, m)`: LOWER, INTERIOR, UPPER or SINGULAR. For the end of each arc but the last,
    `(arcs - 1,)`: `rule`, the condition that fixes it (SUBDIVISION: halfway between its neighbours;
    SWITCH: the switching function vanishes; SATURATION: an interior control reaches its bound;
    TANGENCY: the switching function has zero slope); `control`, which control it is about; `at`,
    the arc at whose end the condition holds. That is the arc itself, except that both conditions
    of a singular arc hold at its entry, and the exit has none. `time_bound`: the bound on which
    the final time lies, NaN where it lies on none.
    """

    kinds: Int[Array, "arcs m"]
    rule: Int[Array, " boundaries"]
    control: Int[Array, " boundaries"]
    at: Int[Array, " boundaries"]
    time_bound: Float[Array, ""]


class Arcs(NamedTuple):
    """Unknowns of the boundary-value problem; y = (x, costate).

    `initial` `(2n,)`, `stage` `(arcs, intervals, s, 2n)`, `stage_u` `(arcs, intervals, s, m)`,
    `times` `(arcs,)` ends of the arcs [s]. The last stage of an interval is its end.
    """

    initial: Float[Array, " y"]
    stage: Float[Array, "arcs intervals s y"]
    stage_u: Float[Array, "arcs intervals s m"]
    times: Float[Array, " arcs"]


class Residual(NamedTuple):
    """Residuals of the conditions, scaled to order one."""

    stage: Float[Array, "arcs intervals s y"]
    law: Float[Array, "arcs intervals s m"]
    boundary: Float[Array, " boundaries"]
    initial: Float[Array, " n"]
    final: Float[Array, " n"]
    time: Float[Array, ""]


class Scales(NamedTuple):
    """Typical sizes of (x, costate) `(2n,)`, controls `(m,)`, time, switching `(m,)`, H."""

    y: Float[Array, " y"]
    u: Float[Array, " m"]
    time: Float[Array, ""]
    switching: Float[Array, " m"]
    hamiltonian: Float[Array, ""]


class Conditions(NamedTuple):
    """What the conditions need at one point; as derivatives, with a trailing axis (x, costate, u).

    `rate` of (x, costate) `(2n,)`; `law` `(m,)`, zero where each control obeys its kind;
    `switching` functions `(m,)` and their time derivative `slope` `(m,)`; `hamiltonian`.
    """

    rate: Float[Array, " y"]
    law: Float[Array, " m"]
    switching: Float[Array, " m"]
    slope: Float[Array, " m"]
    hamiltonian: Float[Array, ""]


class Stages(NamedTuple):
    """Values at every stage, axes `(arcs, intervals, s)` first, and at the arcs' starts.

    `value`, `start`: [`Conditions`][], the latter with one axis `(arcs,)`; `start_u` `(arcs, m)`,
    controls there, the collocation polynomial's; `cost`: running cost; `h_uu` `(m, m)`, scaled;
    `bend` `(m,)`: minus the share of each control in the second time derivative of its switching
    function, scaled; both for the Legendre-Clebsch conditions.
    """

    value: Conditions
    start: Conditions
    start_u: Float[Array, "arcs m"]
    cost: Float[Array, "arcs intervals s"]
    h_uu: Float[Array, "arcs intervals s m m"]
    bend: Float[Array, "arcs intervals s m"]


def radau(stages: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes `(s,)` and matrix `(s, s)` of the Radau IIA method on [0, 1]; its last row weighs.

    Source: Hairer, Wanner, Solving Ordinary Differential Equations II, section IV.5.
    """
    inner = roots_jacobi(stages - 1, 1, 0)[0] if stages > 1 else np.zeros(0)
    c = np.append(0.5 * (inner + 1.0), 1.0)
    powers = np.arange(1, stages + 1)
    return c, (c[:, None] ** powers / powers) @ np.linalg.inv(c[:, None] ** (powers - 1))


def bounds_of(problem: Problem, kinds: Int[Array, " m"]) -> Float[Array, " m"]:
    """The bound `(m,)` that each kind names; zero where it names none."""
    return jnp.where(kinds == UPPER, problem.upper, jnp.where(kinds == LOWER, problem.lower, 0.0))


def _law(problem: Problem, u, kinds, scales: Scales, switching, slope):
    """Zero where each control obeys its kind; scaled to order one."""
    return jnp.select(
        [(kinds == UPPER) | (kinds == LOWER), kinds == SINGULAR],
        [(u - bounds_of(problem, kinds)) / scales.u, slope * scales.time / scales.switching],
        switching / scales.switching,
    )


def _values(problem: Problem, y, u, kinds, scales: Scales, singular: bool):
    """Conditions, cost at one stage, from first derivatives alone."""
    n = problem.n
    rate, h_u = hamiltonian_flow(problem, y, u), switching(problem, y, u)
    slope = switching_slope(problem, y, u) if singular else jnp.zeros_like(u)
    cost = problem.cost_rate(y[:n], u)
    law = _law(problem, u, kinds, scales, h_u, slope)
    value = Conditions(rate, law, h_u, slope, cost + y[n:] @ rate[:n])
    return value, None, cost, jnp.zeros((len(u), len(u))), jnp.zeros_like(u)


def _evaluate(problem: Problem, y, u, kinds, scales: Scales, singular: bool):
    """Conditions, their Jacobians, cost, H_uu and bend at one stage."""
    n, m = problem.n, problem.m

    costate = y[n:]
    ex = expand(problem, y[:n], u, costate)
    slope, slope_w = jnp.zeros(m), jnp.zeros((m, 2 * n + m))
    if singular:

        def slope_of(w):
            value = switching_slope(problem, w[: 2 * n], w[2 * n :])
            return value, value

        slope_w, slope = jax.jacfwd(slope_of, has_aux=True)(jnp.concatenate([y, u]))
    f_x, f_u = ex.f_z[:, :n], ex.f_z[:, n:]
    h_xx, h_xu, h_uu = ex.h_zz[:n, :n], ex.h_zz[:n, n:], ex.h_zz[n:, n:]
    rate_w = jnp.concatenate(
        [
            jnp.concatenate([f_x, jnp.zeros((n, n)), f_u], axis=1),
            jnp.concatenate([-h_xx, -f_x.T, -h_xu], axis=1),
        ]
    )
    h_u = ex.h_z[n:]
    switching_w = jnp.concatenate([h_xu.T, f_u.T, h_uu], axis=1)
    bounded = (kinds == UPPER) | (kinds == LOWER)
    is_singular = kinds == SINGULAR
    control_w = jnp.concatenate([jnp.zeros((m, 2 * n)), jnp.diag(1.0 / scales.u)], axis=1)
    slope_size = scales.switching / scales.time
    law_w = jnp.select(
        [bounded[:, None], is_singular[:, None]],
        [control_w, slope_w / slope_size[:, None]],
        switching_w / scales.switching[:, None],
    )
    bend = -jnp.sum(slope_w[:, : 2 * n] * rate_w[:, 2 * n :].T, axis=1)
    spread = scales.u / scales.switching
    value = Conditions(
        jnp.concatenate([ex.f, -ex.h_z[:n]]),
        _law(problem, u, kinds, scales, h_u, slope),
        h_u,
        slope,
        ex.cost + costate @ ex.f,
    )
    jacobian = Conditions(
        rate_w,
        law_w,
        switching_w,
        slope_w,
        jnp.concatenate([ex.h_z[:n], ex.f, ex.h_z[n:]]),
    )
    return value, jacobian, ex.cost, h_uu * spread[None], bend * scales.time**2 * spread


def evaluate_stages(
    problem: Problem,
    plan: ArcPlan,
    arcs: Arcs,
    scales: Scales,
    singular: bool,
    with_jacobian: bool = True,
) -> tuple[Stages, Conditions | None]:
    """Evaluate every stage in one vectorised call.

    **Returns:** [`Stages`][], and the Jacobians of its conditions with respect to (x, costate, u).
    Without them it needs first derivatives of the dynamics only, and `h_uu` and `bend` are blank.
    """
    n_arcs, k, s, ny = arcs.stage.shape
    nodes, _ = radau(s)
    to_start = jnp.asarray([np.prod([c / (c - b) for c in nodes if c != b]) for b in nodes])
    start_u = jnp.einsum("s,asm->am", to_start, arcs.stage_u[:, 0])
    evaluate = _evaluate if with_jacobian else _values
    out = jax.vmap(lambda y, u, kind: evaluate(problem, y, u, kind, scales, singular))(
        jnp.concatenate([arcs.stage.reshape(-1, ny), interval_starts(arcs)[:, 0]]),
        jnp.concatenate([arcs.stage_u.reshape(-1, problem.m), start_u]),
        jnp.concatenate([jnp.repeat(plan.kinds, k * s, axis=0), plan.kinds]),
    )
    start = jax.tree.map(lambda v: v[n_arcs * k * s :], out[0])
    value, jacobian, cost, h_uu, bend = jax.tree.map(
        lambda v: v[: n_arcs * k * s].reshape((n_arcs, k, s, *v.shape[1:])), out
    )
    return Stages(value, start, start_u, cost, h_uu, bend), jacobian


def interval_lengths(arcs: Arcs) -> Float[Array, " arcs"]:
    """Length `(arcs,)` of the intervals of each arc [s]."""
    return jnp.diff(arcs.times, prepend=0.0) / arcs.stage.shape[1]


def interval_starts(arcs: Arcs) -> Float[Array, "arcs intervals y"]:
    """(x, costate) at the start of every interval."""
    n_arcs, k, _, ny = arcs.stage.shape
    ends = arcs.stage[:, :, -1].reshape(n_arcs * k, ny)
    return jnp.concatenate([arcs.initial[None], ends[:-1]]).reshape(n_arcs, k, ny)


def _lift(value, like):
    """Add leading axes until `value` broadcasts against `like`."""
    return value.reshape((1,) * (like.ndim - value.ndim) + value.shape)


def residuals(
    problem: Problem, plan: ArcPlan, arcs: Arcs, scales: Scales, value: Conditions
) -> Residual:
    """Residual of every condition, scaled to order one."""
    n = problem.n
    _, a = radau(arcs.stage.shape[2])
    h = interval_lengths(arcs)[:, None, None, None]
    stage = (
        arcs.stage
        - interval_starts(arcs)[:, :, None]
        - h * jnp.einsum("ij,akjy->akiy", jnp.asarray(a), value.rate)
    )
    end = jax.tree.map(lambda v: v[:, -1, -1], value)
    j, at = plan.control, plan.at
    row = jnp.arange(j.shape[0])
    target = jax.vmap(lambda kinds: bounds_of(problem, kinds))(plan.kinds[1:])[row, j]
    spread = jnp.concatenate([jnp.zeros(1), arcs.times])
    boundary = jnp.select(
        [plan.rule == SWITCH, plan.rule == SATURATION, plan.rule == TANGENCY],
        [
            end.switching[at, j] / scales.switching[j],
            (arcs.stage_u[at, -1, -1, j] - target) / scales.u[j],
            end.slope[at, j] * scales.time / scales.switching[j],
        ],
        (arcs.times[:-1] - 0.5 * (spread[:-2] + spread[2:])) / scales.time,
    )
    time = arcs.times[-1]
    x, costate = arcs.stage[-1, -1, -1, :n], arcs.stage[-1, -1, -1, n:]
    cost_t, cost_x = jax.grad(problem.end_cost, argnums=(0, 1))(time, x)
    is_fixed = jnp.asarray([i in problem.fixed_final for i in range(n)])
    final = jnp.where(
        is_fixed, (x - problem.final_state) / scales.y[:n], (costate - cost_x) / scales.y[n:]
    )
    if problem.is_time_free:
        on_bound = jnp.isfinite(plan.time_bound)
        last = jnp.where(
            on_bound,
            (time - jnp.where(on_bound, plan.time_bound, 0.0)) / scales.time,
            (end.hamiltonian[-1] + cost_t) / scales.hamiltonian,
        )
    else:
        last = (time - problem.final_time) / scales.time
    return Residual(
        stage / _lift(scales.y, stage),
        value.law,
        boundary,
        (arcs.initial[:n] - problem.initial_state) / scales.y[:n],
        final,
        last,
    )


def newton_step(
    problem: Problem,
    plan: ArcPlan,
    arcs: Arcs,
    scales: Scales,
    value: Conditions,
    jacobian: Conditions,
    rhs: Residual,
) -> Arcs:
    """Solve J step = rhs for the Jacobian J of the residuals; linear in `rhs`.

    Stages are eliminated in each interval, intervals in each arc. What remains couples the arc
    boundaries and the switching times; it is small and solved with pivoting, so that unstable arcs
    do no harm.
    """
    n_arcs, k, s, ny = arcs.stage.shape
    n, m = problem.n, problem.m
    nw = ny + m
    a = jnp.asarray(radau(s)[1])
    h = interval_lengths(arcs)
    w_scale = jnp.concatenate([scales.y, scales.u])
    # Columns in units of w_scale, rates in units of scales.y.
    columns = _lift(w_scale, jacobian.rate)
    rate_w = jacobian.rate * columns / _lift(scales.y[:, None], jacobian.rate)
    rate = value.rate / _lift(scales.y, value.rate)
    law_w = jacobian.law * columns

    coupling = h[:, None, None, None, None, None] * jnp.einsum("ij,akjyw->akiyjw", a, rate_w)
    top = jnp.einsum("ij,yw->iyjw", jnp.eye(s), jnp.eye(ny, nw))[None, None] - coupling
    bottom = jnp.einsum("ij,akimw->akimjw", jnp.eye(s), law_w)
    local = jnp.concatenate([top, bottom], axis=3).reshape(n_arcs, k, s * nw, s * nw)
    # What depends on `rhs` is kept apart throughout, so that the step is linear in it for JAX too.
    factors = jax.scipy.linalg.lu_factor(local)
    d_start = jnp.broadcast_to(jnp.eye(nw, ny), (n_arcs, k, s, nw, ny))
    d_length = jnp.pad(jnp.einsum("ij,akjy->akiy", a, rate), ((0, 0), (0, 0), (0, 0), (0, m)))
    columns = jnp.concatenate([d_start, d_length[..., None]], axis=4)
    # Stages over (state at the interval's start, its length), and their own share of `rhs`.
    response = jax.scipy.linalg.lu_solve(factors, columns.reshape(n_arcs, k, s * nw, ny + 1))
    response = response.reshape(n_arcs, k, s, nw, ny + 1)
    # Two LAPACK calls at a time can block each other for ever on a machine with two cores, so the
    # second solve is made to wait for the first.
    wait = jnp.where(jnp.isfinite(response[-1, -1, -1, -1, -1]), 0.0, jnp.nan)
    factors = (factors[0] + wait, factors[1])
    own = jnp.concatenate([rhs.stage, rhs.law], axis=3).reshape(n_arcs, k, s * nw, 1)
    own = jax.scipy.linalg.lu_solve(factors, own).reshape(n_arcs, k, s, nw)

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

    # Unknowns: (x, costate) at nodes 0..arcs, then the arcs' end times.
    step_scale = scales.time / k
    n_nodes = ny * (n_arcs + 1)
    size = n_nodes + n_arcs
    i_arc = jnp.arange(n_arcs)
    node_eye = jnp.eye(n_arcs + 1)
    time_eye = jnp.eye(n_arcs)
    length = (time_eye - jnp.eye(n_arcs, k=-1)) * step_scale

    def spread(rows, arc):
        """Rows over (arc's start, length) of given arcs as rows over all unknowns."""
        over_nodes = rows[:, :, None, :ny] * node_eye[arc][:, None, :, None]
        over_times = rows[:, :, ny, None] * length[arc][:, None, :]
        return jnp.concatenate([over_nodes.reshape(*rows.shape[:2], n_nodes), over_times], axis=2)

    next_nodes = node_eye[1:, None, :, None] * jnp.eye(ny)[None, :, None, :]
    continuity = jnp.pad(
        next_nodes.reshape(n_arcs, ny, n_nodes), ((0, 0), (0, 0), (0, n_arcs))
    ) - spread(end_w[:, :ny], i_arc)

    j, at = plan.control, plan.at
    end = jax.tree.map(lambda v: v[:, -1, -1], jacobian)
    control_w = jnp.concatenate([jnp.zeros((m, ny)), jnp.diag(1.0 / scales.u)], axis=1)
    row_w = jnp.select(
        [
            (plan.rule == SWITCH)[:, None],
            (plan.rule == SATURATION)[:, None],
            (plan.rule == TANGENCY)[:, None],
        ],
        [
            end.switching[at, j] / scales.switching[j][:, None],
            control_w[j],
            end.slope[at, j] * (scales.time / scales.switching[j])[:, None],
        ],
        0.0,
    )
    row_w = row_w * w_scale[None]
    boundary_rows = spread(jnp.einsum("bw,bwc->bc", row_w, end_w[at])[:, None], at)[:, 0]
    boundary_own = jnp.einsum("bw,bw->b", row_w, own_end_w[at])
    split = (plan.rule == SUBDIVISION).astype(w_scale.dtype)[:, None] * (
        time_eye[:-1] - 0.5 * (jnp.eye(n_arcs, k=1) + jnp.eye(n_arcs, k=-1))[:-1]
    )
    boundary_rows += jnp.pad(split, ((0, 0), (n_nodes, 0)))

    last = n_arcs * ny
    initial_rows = jnp.eye(n, size)
    time = arcs.times[-1]
    z = jnp.concatenate([time[None], arcs.stage[-1, -1, -1, :n]])
    cost_zz = jax.hessian(lambda v: problem.end_cost(v[0], v[1:]))(z)
    cost_zz *= jnp.concatenate([scales.time[None], scales.y[:n]])[None]
    is_fixed = jnp.asarray([i in problem.fixed_final for i in range(n)])[:, None]
    at_end = jnp.eye(ny, size, k=last)
    cost_x = (
        jnp.concatenate(
            [jnp.zeros((n, last)), cost_zz[1:, 1:], jnp.zeros((n, size - last - n))], axis=1
        )
        .at[:, -1]
        .add(cost_zz[1:, 0])
    )
    final_rows = jnp.where(is_fixed, at_end[:n], at_end[n:] - cost_x / scales.y[n:, None])
    if problem.is_time_free:
        row = end.hamiltonian[-1] * w_scale / scales.hamiltonian
        time_row = spread((row @ end_w[-1])[None, None], i_arc[-1:])[0, 0]
        time_own = row @ own_end_w[-1]
        cost_t = (
            jnp.concatenate([jnp.zeros(last), cost_zz[0, 1:], jnp.zeros(size - last - n)])
            .at[-1]
            .add(cost_zz[0, 0])
        )
        on_bound = jnp.isfinite(plan.time_bound)
        time_row = jnp.where(on_bound, jnp.eye(size)[-1], time_row + cost_t / scales.hamiltonian)
        time_own = jnp.where(on_bound, 0.0, time_own)
    else:
        time_row, time_own = jnp.eye(size)[-1], jnp.zeros(())
    matrix = jnp.concatenate(
        [
            continuity.reshape(n_arcs * ny, size),
            boundary_rows,
            initial_rows,
            final_rows,
            time_row[None],
        ]
    )
    vector = jnp.concatenate(
        [
            own_end_w[:, :ny].ravel(),
            rhs.boundary - boundary_own,
            rhs.initial,
            rhs.final,
            (rhs.time - time_own)[None],
        ]
    )
    solved = jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(matrix), vector)
    nodes = solved[:n_nodes].reshape(n_arcs + 1, ny)
    d_times = solved[n_nodes:]
    d_length = (length @ d_times)[:, None]
    start = own_starts + jnp.einsum(
        "kayc,ac->kay", starts, jnp.concatenate([nodes[:-1], d_length], axis=1)
    )
    start = jnp.concatenate([start, jnp.broadcast_to(d_length, (k, n_arcs, 1))], axis=2)
    w = own + jnp.einsum("akswc,kac->aksw", response, start)
    return Arcs(
        nodes[0] * scales.y,
        w[..., :ny] * _lift(scales.y, w),
        w[..., ny:] * _lift(scales.u, w),
        d_times * scales.time,
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
    problem: Problem, solver: Shooting, plan: ArcPlan, arcs: Arcs, scales: Scales, singular: bool
) -> ShootingResult:
    """Damped Newton on the multipoint boundary-value problem; pure JAX, no exceptions.

    A step is halved until the scaled residual does not grow. Below the tolerance the iteration
    goes on until rounding stops it, since the last digits cost one step.

    **Arguments:** `problem`, `solver`, `plan`, starting `arcs`, `scales`; `singular` says whether
    the plan contains singular arcs (it adds one derivative to the compiled code).

    **Returns:** [`ShootingResult`][]. Source: specs/000b, section 2.
    """

    def body(state: _State) -> _State:
        arcs = jax.tree.map(lambda v, d: v + state.size * d, state.arcs, state.step)
        stages, jacobian = evaluate_stages(problem, plan, arcs, scales, singular)
        residual = residuals(problem, plan, arcs, scales, stages.value)
        norm = jnp.max(jnp.stack([jnp.max(jnp.abs(v), initial=0.0) for v in residual]))
        norm = jnp.where(jnp.isfinite(norm), norm, jnp.inf)
        accept = (norm < state.norm) | (state.steps == 0)
        rhs = jax.tree.map(jnp.negative, residual)
        step = newton_step(problem, plan, arcs, scales, stages.value, jacobian, rhs)
        size = jnp.where(accept, 1.0, 0.5 * state.size)
        done = ~jnp.isfinite(norm) & (state.steps == 0)
        done |= ~accept & ((state.norm < solver.tolerance) | (size < 1e-3))
        new = (arcs, stages, norm, step)
        old = (state.arcs, state.stages, state.norm, state.step)
        kept = jax.tree.map(lambda p, q: jnp.where(accept, p, q), new, old)
        return _State(*kept, size, state.steps + 1, done)

    outline = jax.eval_shape(lambda: evaluate_stages(problem, plan, arcs, scales, singular)[0])
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
