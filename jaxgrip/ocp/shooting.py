"""Multiple shooting on the Hamiltonian boundary-value problem, one arc between two switches.

Every arc is integrated by Gauss collocation (order 2s, symplectic, so the Hamiltonian does not
drift). All stages of all intervals are evaluated in one vectorised call, and the kind of an arc
(which control sits on which bound) is data: another structure does not recompile.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxgrip.ocp.hamiltonian import flow, hamiltonian, switching_derivatives
from jaxgrip.ocp.problem import Problem

LOWER, INTERIOR, UPPER, SINGULAR = -1, 0, 1, 2

# What fixes the end of an arc.
SUBDIVISION, SWITCH, SATURATION, RELEASE = 0, 1, 2, 3


class Shooting(eqx.Module):
    """Configuration of the multiple-shooting solver.

    **Arguments:** `intervals`, collocation intervals an arc; `stages`, Gauss stages an interval;
    `max_steps`, limit of Newton steps; `tolerance`, on the scaled residual.
    """

    intervals: int = eqx.field(static=True, default=5)
    stages: int = eqx.field(static=True, default=4)
    max_steps: int = eqx.field(static=True, default=30)
    tolerance: float = 1e-12


class ArcPlan(NamedTuple):
    """The structure of a solution as data.

    `kinds` `(arcs, m)`: LOWER, INTERIOR, UPPER or SINGULAR. For the end of each arc but the last,
    `(arcs - 1,)`: `rule` (SUBDIVISION: halfway between its neighbours; SWITCH: the switching
    function vanishes; SATURATION: an interior control reaches its bound; RELEASE: a singular arc
    ends, its switching function has zero slope) and `control`, the control that the rule is about.
    """

    kinds: Int[Array, "arcs m"]
    rule: Int[Array, " boundaries"]
    control: Int[Array, " boundaries"]


class Arcs(NamedTuple):
    """Unknowns of the boundary-value problem; y = (x, costate).

    `start` `(arcs, intervals, 2n)` and `start_u` `(arcs, intervals, m)` at the interval starts,
    `end` `(2n,)`, `stage` `(arcs, intervals, s, 2n)`, `stage_u` `(arcs, intervals, s, m)`, `end_u`
    `(arcs, m)` just before each arc's end, `times` `(arcs,)` ends of the arcs [s].
    """

    start: Float[Array, "arcs intervals y"]
    start_u: Float[Array, "arcs intervals m"]
    end: Float[Array, " y"]
    stage: Float[Array, "arcs intervals s y"]
    stage_u: Float[Array, "arcs intervals s m"]
    end_u: Float[Array, "arcs m"]
    times: Float[Array, " arcs"]


class Residual(NamedTuple):
    """Residuals of the conditions, laid out as the unknowns are."""

    start_u: Float[Array, "arcs intervals m"]
    stage: Float[Array, "arcs intervals s y"]
    stage_u: Float[Array, "arcs intervals s m"]
    continuity: Float[Array, "arcs intervals y"]
    end_u: Float[Array, "arcs m"]
    boundary: Float[Array, " boundaries"]
    initial: Float[Array, " n"]
    final: Float[Array, " n"]
    time: Float[Array, ""]


class Scales(NamedTuple):
    """Typical sizes of states and costates `(2n,)`, controls `(m,)`, time, switching `(m,)`."""

    y: Float[Array, " y"]
    u: Float[Array, " m"]
    time: Float[Array, ""]
    switching: Float[Array, " m"]
    hamiltonian: Float[Array, ""]


def gauss(stages: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes `(s,)`, weights `(s,)` and matrix `(s, s)` of the Gauss method on [0, 1].

    Source: Hairer, Wanner, Solving Ordinary Differential Equations II, section IV.5.
    """
    nodes, weights = np.polynomial.legendre.leggauss(stages)
    c, b = 0.5 * (nodes + 1.0), 0.5 * weights
    powers = np.arange(1, stages + 1)
    a = (c[:, None] ** powers / powers) @ np.linalg.inv(c[:, None] ** (powers - 1))
    return c, b, a


def _lift(value, like):
    """Add leading axes until `value` broadcasts against `like`."""
    return value.reshape((1,) * (like.ndim - value.ndim) + value.shape)


class Conditions(NamedTuple):
    """What the conditions need at one point.

    `rate` of (x, costate) `(2n,)`; `law` `(m,)`, zero where each control obeys its kind;
    `switching` functions `(m,)` and their time derivative `slope` `(m,)` (zero in problems without
    singular arcs); `hamiltonian`; `cost`, the running cost.
    """

    rate: Float[Array, " y"]
    law: Float[Array, " m"]
    switching: Float[Array, " m"]
    slope: Float[Array, " m"]
    hamiltonian: Float[Array, ""]
    cost: Float[Array, ""]


def bounds_of(problem: Problem, kinds):
    """The bound that a kind names; zero where it names none."""
    return jnp.where(kinds == UPPER, problem.upper, jnp.where(kinds == LOWER, problem.lower, 0.0))


def conditions(
    problem: Problem,
    y: Float[Array, " y"],
    u: Float[Array, " m"],
    kinds: Int[Array, " m"],
    scales: Scales,
    singular: bool,
) -> Conditions:
    """Evaluate [`Conditions`][] at (x, costate) `(2n,)` and controls `(m,)` of given kinds."""
    n = problem.n
    rate, switching = flow(problem, y, u)
    bounded = (kinds == UPPER) | (kinds == LOWER)
    law = jnp.where(
        bounded, (u - bounds_of(problem, kinds)) / scales.u, switching / scales.switching
    )
    slope = jnp.zeros_like(u)
    if singular:
        slope, bend = switching_derivatives(problem, y, u)
        law = jnp.where(kinds == SINGULAR, bend * scales.time**2 / scales.switching, law)
    return Conditions(
        rate,
        law,
        switching,
        slope,
        hamiltonian(problem, y[:n], y[n:], u),
        problem.cost_rate(y[:n], u),
    )


class Points(NamedTuple):
    """Something at the interval starts, at the stages and just before the arcs' ends."""

    start: Any
    stage: Any
    end: Any


def at_points(
    problem: Problem, plan: ArcPlan, arcs: Arcs, scales: Scales, singular: bool
) -> tuple[Points, Points]:
    """Evaluate [`Conditions`][] everywhere in one vectorised call.

    **Returns:** values and Jacobians with respect to (x, costate, u), each [`Points`][] with
    leading axes `(arcs, intervals)`, `(arcs, intervals, s)` and `(arcs,)`; the Jacobians have a
    trailing axis `(2n + m,)`.
    """
    n_arcs, k, s, ny = arcs.stage.shape
    m = problem.m
    inner, count = n_arcs * k, n_arcs * k * s
    ends = jnp.concatenate([arcs.start[1:, 0], arcs.end[None]])
    ys = jnp.concatenate([arcs.start.reshape(inner, ny), arcs.stage.reshape(count, ny), ends])
    us = jnp.concatenate(
        [arcs.start_u.reshape(inner, m), arcs.stage_u.reshape(count, m), arcs.end_u]
    )
    kinds = jnp.concatenate(
        [
            jnp.repeat(plan.kinds, k, axis=0),
            jnp.repeat(plan.kinds, k * s, axis=0),
            plan.kinds,
        ]
    )

    def evaluate(y, u, kind):
        def both(w):
            value = conditions(problem, w[:ny], w[ny:], kind, scales, singular)
            return value, value

        return jax.jacfwd(both, has_aux=True)(jnp.concatenate([y, u]))

    def split(points):
        return Points(
            jax.tree.map(lambda v: v[:inner].reshape((n_arcs, k, *v.shape[1:])), points),
            jax.tree.map(
                lambda v: v[inner : inner + count].reshape((n_arcs, k, s, *v.shape[1:])), points
            ),
            jax.tree.map(lambda v: v[inner + count :], points),
        )

    jacobians, values = jax.vmap(evaluate)(ys, us, kinds)
    return split(values), split(jacobians)


def _lengths(arcs: Arcs):
    return jnp.diff(arcs.times, prepend=0.0) / arcs.stage.shape[1]


def residuals(
    problem: Problem, plan: ArcPlan, arcs: Arcs, scales: Scales, values: Points
) -> Residual:
    """Residual of every condition, in units of the unknowns or scaled to order one.

    **Arguments:** `values`, the [`Conditions`][] at every point.
    """
    n = problem.n
    stages, ends = values.stage, values.end
    _, b, a = gauss(arcs.stage.shape[2])
    h = _lengths(arcs)[:, None, None]
    stage = (
        arcs.stage
        - arcs.start[:, :, None]
        - h[..., None] * jnp.einsum("ij,akjy->akiy", jnp.asarray(a), stages.rate)
    )
    following = jnp.concatenate(
        [
            arcs.start[:, 1:],
            jnp.concatenate([arcs.start[1:, :1], arcs.end[None, None]]),
        ],
        axis=1,
    )
    continuity = following - arcs.start - h * jnp.einsum("j,akjy->aky", jnp.asarray(b), stages.rate)
    j = plan.control
    row = jnp.arange(j.shape[0])
    target = jax.vmap(lambda kinds: bounds_of(problem, kinds))(plan.kinds[1:])[row, j]
    spread = jnp.concatenate([jnp.zeros(1), arcs.times])
    boundary = jnp.select(
        [plan.rule == SWITCH, plan.rule == SATURATION, plan.rule == RELEASE],
        [
            (ends.switching[:-1] / scales.switching[None])[row, j],
            (arcs.end_u[:-1][row, j] - target) / scales.u[j],
            (ends.slope[:-1] / scales.switching[None])[row, j],
        ],
        (arcs.times[:-1] - 0.5 * (spread[:-2] + spread[2:])) / scales.time,
    )
    initial = (arcs.start[0, 0, :n] - problem.initial_state) / scales.y[:n]
    time = arcs.times[-1]
    x, costate = arcs.end[:n], arcs.end[n:]
    cost_t, cost_x = jax.grad(problem.end_cost, argnums=(0, 1))(time, x)
    is_fixed = jnp.asarray([i in problem.fixed_final for i in range(n)])
    final = jnp.where(
        is_fixed, (x - problem.final_state) / scales.y[:n], (costate - cost_x) / scales.y[n:]
    )
    if problem.is_time_free:
        last = (ends.hamiltonian[-1] + cost_t) / scales.hamiltonian
    else:
        last = (time - problem.final_time) / scales.time
    return Residual(
        values.start.law,
        stage / _lift(scales.y, stage),
        stages.law,
        continuity / _lift(scales.y, continuity),
        ends.law,
        boundary,
        initial,
        final,
        last,
    )


def newton_step(
    problem: Problem,
    plan: ArcPlan,
    arcs: Arcs,
    scales: Scales,
    values: Points,
    jacobians: Points,
    rhs: Residual,
) -> Arcs:
    """Solve J step = rhs for the Jacobian J of the residuals; linear in `rhs`.

    Stages are eliminated in each interval, intervals in each arc.

    What remains couples the arc boundaries and the switching times; it is small and solved with
    pivoting, so that unstable arcs do no harm.
    """
    n_arcs, k, s, ny = arcs.stage.shape
    n, m = problem.n, problem.m
    stages, ends = jacobians.stage, jacobians.end
    _, b, a = (jnp.asarray(v) for v in gauss(s))
    h = _lengths(arcs)
    w_scale = jnp.concatenate([scales.y, scales.u])
    nw = ny + m
    # Scaled Jacobians: columns in units of w_scale, rates in units of scales.y.
    columns = _lift(w_scale, stages.rate)
    rate_w = stages.rate * columns / _lift(scales.y[:, None], stages.rate)
    rate = values.stage.rate / _lift(scales.y, values.stage.rate)
    law_w = stages.law * columns

    coupling = -h[:, None, None, None, None, None] * jnp.einsum("ij,akjyw->akiyjw", a, rate_w)
    eye_s = jnp.eye(s)
    top = coupling + jnp.einsum("ij,yw->iyjw", eye_s, jnp.eye(ny, nw))[None, None]
    bottom = jnp.einsum("ij,akimw->akimjw", eye_s, law_w)
    local = jnp.concatenate([top, bottom], axis=3).reshape(n_arcs, k, s * nw, s * nw)
    d_start = jnp.broadcast_to(
        jnp.concatenate([jnp.eye(ny), jnp.zeros((m, ny))])[None, None, None],
        (n_arcs, k, s, nw, ny),
    )
    a_rate = jnp.einsum("ij,akjy->akiy", a, rate)
    d_h = jnp.concatenate([a_rate, jnp.zeros((n_arcs, k, s, m))], axis=3)[..., None]
    d_one = jnp.concatenate([rhs.stage, rhs.stage_u], axis=3)[..., None]
    right = jnp.concatenate([d_start, d_h, d_one], axis=4).reshape(n_arcs, k, s * nw, ny + 2)
    response = jnp.linalg.solve(local, right).reshape(n_arcs, k, s, nw, ny + 2)
    through = h[:, None, None, None] * jnp.einsum("i,akiyw,akiwc->akyc", b, rate_w, response)
    b_rate = jnp.einsum("j,akjy->aky", b, rate)
    direct = jnp.concatenate(
        [
            jnp.broadcast_to(jnp.eye(ny), (n_arcs, k, ny, ny)),
            b_rate[..., None],
            rhs.continuity[..., None],
        ],
        axis=3,
    )
    transfer = through + direct

    def compose(prefix, step):
        phi = step[:, :, :ny]
        new = jnp.einsum("aij,ajc->aic", phi, prefix)
        new = new.at[:, :, ny:].add(step[:, :, ny:])
        return new, prefix

    identity = jnp.broadcast_to(jnp.eye(ny, ny + 2), (n_arcs, ny, ny + 2))
    total, prefixes = jax.lax.scan(compose, identity, jnp.swapaxes(transfer, 0, 1))

    # Control just before each arc's end as an affine map of the state there.
    end_law_w = ends.law * _lift(w_scale, ends.law)
    end_map = -jnp.linalg.solve(
        end_law_w[:, :, ny:],
        jnp.concatenate([end_law_w[:, :, :ny], -rhs.end_u[:, :, None]], axis=2),
    )

    def at_end(row_w):
        """Row over (y, u) at an arc's end as a row over y and a constant."""
        u_part = jnp.einsum("am,amc->ac", row_w[:, ny:], end_map)
        return row_w[:, :ny] + u_part[:, :ny], u_part[:, ny]

    # Unknowns: nodes 0..arcs (2n each), then times.
    size = ny * (n_arcs + 1) + n_arcs
    matrix = jnp.zeros((size, size))
    vector = jnp.zeros(size)
    i_arc = jnp.arange(n_arcs)
    node = lambda i: ny * i[:, None] + jnp.arange(ny)[None]  # noqa: E731
    i_time = ny * (n_arcs + 1) + i_arc
    step_scale = scales.time / k
    rows = node(i_arc)
    matrix = matrix.at[rows, node(i_arc + 1)].add(1.0)
    matrix = matrix.at[rows[:, :, None], node(i_arc)[:, None, :]].add(-total[:, :, :ny])
    d_time = -total[:, :, ny] * step_scale
    matrix = matrix.at[rows, i_time[:, None]].add(d_time)
    matrix = matrix.at[rows[1:], i_time[:-1, None]].add(-d_time[1:])
    vector = vector.at[rows].set(total[:, :, ny + 1])

    j, boundary = plan.control, jnp.arange(n_arcs - 1)
    base = ny * n_arcs
    control_row = jnp.eye(m)[j] * (w_scale[ny:] / scales.u)[None]
    row_w = jnp.select(
        [
            (plan.rule == SWITCH)[:, None],
            (plan.rule == SATURATION)[:, None],
            (plan.rule == RELEASE)[:, None],
        ],
        [
            ends.switching[:-1][boundary, j] * w_scale[None] / scales.switching[j][:, None],
            jnp.concatenate([jnp.zeros((n_arcs - 1, ny)), control_row], axis=1),
            ends.slope[:-1][boundary, j] * w_scale[None] / scales.switching[j][:, None],
        ],
        jnp.zeros((n_arcs - 1, nw)),
    )
    split = (plan.rule == SUBDIVISION).astype(float)
    row_y, row_one = at_end(jnp.concatenate([row_w, jnp.zeros((1, nw))]))
    last_w = ends.hamiltonian[-1] * w_scale / scales.hamiltonian
    last_y, last_one = at_end(jnp.zeros((n_arcs, nw)).at[-1].set(last_w))
    r = base + boundary
    matrix = matrix.at[r[:, None], node(boundary + 1)].add(row_y[:-1])
    matrix = matrix.at[r, i_time[:-1]].add(split)
    matrix = matrix.at[r[1:], i_time[:-2]].add(-0.5 * split[1:])
    matrix = matrix.at[r, i_time[1:]].add(-0.5 * split)
    vector = vector.at[r].set(rhs.boundary - row_one[:-1])

    base = base + n_arcs - 1
    eye_n = jnp.arange(n)
    matrix = matrix.at[base + eye_n, eye_n].add(1.0)
    vector = vector.at[base + eye_n].set(rhs.initial)

    base = base + n
    last = ny * n_arcs
    time = arcs.times[-1]
    z = jnp.concatenate([time[None], arcs.end[:n]])
    cost_zz = jax.hessian(lambda v: problem.end_cost(v[0], v[1:]))(z)
    z_scale = jnp.concatenate([scales.time[None], scales.y[:n]])
    is_fixed = jnp.asarray([i in problem.fixed_final for i in range(n)])
    free_rows = jnp.where(is_fixed[:, None], 0.0, -cost_zz[1:] * z_scale[None] / scales.y[n:, None])
    matrix = matrix.at[base + eye_n, last + eye_n].add(jnp.where(is_fixed, 1.0, 0.0))
    matrix = matrix.at[base + eye_n, last + n + eye_n].add(jnp.where(is_fixed, 0.0, 1.0))
    matrix = matrix.at[base + eye_n[:, None], last + eye_n[None]].add(free_rows[:, 1:])
    matrix = matrix.at[base + eye_n, i_time[-1]].add(free_rows[:, 0])
    vector = vector.at[base + eye_n].set(rhs.final)

    base = base + n
    if problem.is_time_free:
        matrix = matrix.at[base, last + jnp.arange(ny)].add(last_y[-1])
        cost_row = cost_zz[0] * z_scale / scales.hamiltonian
        matrix = matrix.at[base, last + eye_n].add(cost_row[1:])
        matrix = matrix.at[base, i_time[-1]].add(cost_row[0])
        vector = vector.at[base].set(rhs.time - last_one[-1])
    else:
        matrix = matrix.at[base, i_time[-1]].add(1.0)
        vector = vector.at[base].set(rhs.time)

    solved = jnp.linalg.solve(matrix, vector)
    nodes = solved[: ny * (n_arcs + 1)].reshape(n_arcs + 1, ny)
    d_times = solved[ny * (n_arcs + 1) :]
    d_h = jnp.diff(d_times, prepend=0.0) * step_scale
    ones = jnp.ones((n_arcs, 1))
    arc_vector = jnp.concatenate([nodes[:-1], d_h[:, None], ones], axis=1)
    start = jnp.einsum("kayc,ac->aky", prefixes, arc_vector)
    interval_vector = jnp.concatenate(
        [
            start,
            jnp.broadcast_to(d_h[:, None, None], (n_arcs, k, 1)),
            jnp.ones((n_arcs, k, 1)),
        ],
        axis=2,
    )
    w = jnp.einsum("akswc,akc->aksw", response, interval_vector)
    start_law_w = jacobians.start.law * _lift(w_scale, jacobians.start.law)
    start_u = jnp.linalg.solve(
        start_law_w[..., ny:],
        (rhs.start_u - jnp.einsum("akmy,aky->akm", start_law_w[..., :ny], start))[..., None],
    )[..., 0]
    end_u = jnp.einsum("amc,ac->am", end_map, jnp.concatenate([nodes[1:], ones], axis=1))
    return Arcs(
        start * _lift(scales.y, start),
        start_u * _lift(scales.u, start_u),
        nodes[-1] * scales.y,
        w[..., :ny] * _lift(scales.y, w),
        w[..., ny:] * _lift(scales.u, w),
        end_u * _lift(scales.u, end_u),
        d_times * scales.time,
    )


class ShootingResult(NamedTuple):
    """Outcome of the Newton iteration.

    `arcs`, the unknowns; `values`, the [`Conditions`][] there; `law_slope`, the derivative of each
    control's law with respect to that control; `residual`, scaled; `steps`; `converged`.
    """

    arcs: Arcs
    values: Points
    law_slope: Points
    residual: Float[Array, ""]
    steps: Int[Array, ""]
    converged: Bool[Array, ""]


def _norm(residual: Residual):
    value = jnp.max(jnp.stack([jnp.max(jnp.abs(v), initial=0.0) for v in residual]))
    return jnp.where(jnp.isfinite(value), value, jnp.inf)


class _State(NamedTuple):
    arcs: Arcs
    values: Points
    law_slope: Points
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
    the plan contains singular arcs (it adds two derivatives to the compiled code).

    **Returns:** [`ShootingResult`][]. Source: specs/000b, section 2.
    """

    def body(state: _State) -> _State:
        arcs = jax.tree.map(lambda v, d: v + state.size * d, state.arcs, state.step)
        values, jacobians = at_points(problem, plan, arcs, scales, singular)
        residual = residuals(problem, plan, arcs, scales, values)
        norm = _norm(residual)
        accept = (norm < state.norm) | (state.steps == 0)
        rhs = jax.tree.map(jnp.negative, residual)
        step = newton_step(problem, plan, arcs, scales, values, jacobians, rhs)

        def choose(new, old):
            return jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, old)

        size = jnp.where(accept, 1.0, 0.5 * state.size)
        done = ~jnp.isfinite(norm) & (state.steps == 0)
        done |= ~accept & ((state.norm < solver.tolerance) | (size < 1e-3))
        return _State(
            choose(arcs, state.arcs),
            choose(values, state.values),
            choose(law_slope(jacobians), state.law_slope),
            choose(norm, state.norm),
            choose(step, state.step),
            size,
            state.steps + 1,
            done,
        )

    def law_slope(jacobians):
        return Points(
            *(jnp.diagonal(part.law[..., -problem.m :], axis1=-2, axis2=-1) for part in jacobians)
        )

    def outline():
        values, jacobians = at_points(problem, plan, arcs, scales, singular)
        return values, law_slope(jacobians)

    blank = jax.tree.map(jnp.zeros_like, arcs)
    values, slopes = jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), jax.eval_shape(outline))
    state = _State(
        arcs,
        values,
        slopes,
        jnp.array(jnp.inf),
        blank,
        jnp.ones(()),
        jnp.array(0),
        jnp.array(False),
    )
    state = jax.lax.while_loop(lambda s: ~s.done & (s.steps < solver.max_steps), body, state)
    return ShootingResult(
        state.arcs,
        state.values,
        state.law_slope,
        state.norm,
        state.steps,
        state.norm < solver.tolerance,
    )
