"""The conditions of the multipoint boundary-value problem: at stages, ends of arcs, both ends."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from jaxgrip.ocp.hamiltonian import (
    expand_constrained,
    hamiltonian,
    lower_derivatives,
    switching_rate,
)
from jaxgrip.ocp.indirect._boundary_value_problem import Arcs, BoundaryValueProblem, select_bound
from jaxgrip.ocp.indirect._collocation import radau, to_monomials
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure import Kind, Rule, at_bound, at_rate_bound


class Residual(NamedTuple):
    """Residuals of the conditions, scaled to order one; `boundary` holds those at both ends."""

    stage: Float[Array, "arcs intervals s y"]
    law: Float[Array, "arcs intervals s v"]
    continuity: Float[Array, "boundaries y"]
    condition: Float[Array, " conditions"]
    jump: Float[Array, "boundaries P"]
    boundary: Float[Array, " boundary"]


class Conditions(NamedTuple):
    """Terms of the conditions at one point; as derivatives, with a trailing axis (y, v).

    `rate` of y; `law` `(v,)`, zero where each control obeys its kind and each constraint is active
    or has no multiplier; `switching` functions `(m,)` and their time derivative `switching_rate`
    `(m,)`; `hamiltonian`; `highest` `(c,)`, the first derivative of each constraint with a control.
    """

    rate: Float[Array, " y"]
    law: Float[Array, " v"]
    switching: Float[Array, " m"]
    switching_rate: Float[Array, " m"]
    hamiltonian: Float[Array, ""]
    highest: Float[Array, " c"]


class Stages(NamedTuple):
    """Values at every stage, axes `(arcs, intervals, s)` first, and at the arcs' starts.

    `value`, `start`: [`Conditions`][], the latter with one axis `(arcs,)`; `start_v` `(arcs, v)`,
    there by the collocation polynomial; `cost`: running cost; for the Legendre-Clebsch conditions
    `h_uu` `(m, m)` and `kelley` `(m,)`, minus the derivative of the second time derivative of each
    switching function in its control, both scaled.
    """

    value: Conditions
    start: Conditions
    start_v: Float[Array, "arcs v"]
    cost: Float[Array, "arcs intervals s"]
    h_uu: Float[Array, "arcs intervals s m m"]
    kelley: Float[Array, "arcs intervals s m"]


class EndConstraints(NamedTuple):
    """Constraints at the ends of the arcs: derivatives below the order `(arcs, c, P)`, and the
    gradients and Hessians of these in the states.
    """

    value: Float[Array, "arcs c P"]
    gradient: Float[Array, "arcs c P n"]
    hessian: Float[Array, "arcs c P n n"]


class Evaluation(NamedTuple):
    """Values of all conditions at the unknowns `arcs`, and the `jacobian` of those at the stages
    with respect to (y, v), None where it was not asked for.
    """

    arcs: Arcs
    stages: Stages
    constraints: EndConstraints
    jacobian: Conditions | None


class _Point(eqx.Module):
    """The conditions at one point of an arc."""

    bvp: BoundaryValueProblem
    kinds: Int[Array, " m"]
    active: Bool[Array, " c"]

    def split(self, y, v):
        """State, costate, limited controls, their costates; controls, multipliers."""
        n, r, m = self.bvp.n, len(self.bvp.limited), self.bvp.m
        return *jnp.split(y, [n, 2 * n, 2 * n + r]), v[:m], v[m:]

    def conditions(self, f, h_x, h_u, slope, value, highest, u, multiplier, state_u, offsets):
        """The conditions from their terms.

        They are linear but for the `offsets`, bounds and control rates; so derivatives of the
        conditions are the conditions of the derivatives without offsets.
        """
        bvp, kinds, scales = self.bvp, self.kinds, self.bvp.scales
        bounds, control_rate = offsets
        size, limited = scales.v, bvp.limited
        follows = jnp.zeros_like(u).at[limited].set(u[limited] - state_u)
        control = jnp.select(
            [at_bound(kinds), kinds == Kind.SINGULAR, at_rate_bound(kinds)],
            [
                (u - bounds) / size[: bvp.m],
                slope * scales.time / scales.switching,
                follows / size[: bvp.m],
            ],
            h_u / scales.switching,
        )
        constraint = jnp.where(self.active, highest / scales.highest, multiplier / size[bvp.m :])
        rate = jnp.concatenate([f, -h_x, control_rate, -h_u[limited]])
        law = jnp.concatenate([control, constraint])
        return Conditions(rate, law, h_u, slope, value, highest)

    def offsets(self):
        """Bounds of the controls and rates of the limited ones, zero where not at a bound."""
        limited, problem = self.bvp.limited, self.bvp.problem
        kinds = self.kinds[limited]
        upper, lower = problem.rate_upper[limited], problem.rate_lower[limited]
        rates = jnp.select([kinds == Kind.RISING, kinds == Kind.FALLING], [upper, lower])
        return select_bound(self.kinds, problem.lower, problem.upper), rates

    def values(self, y, v):
        """Conditions and running cost, from first derivatives alone."""
        x, costate, state_u, rate_costate, u, multiplier = self.split(y, v)
        problem, plan, m = self.bvp.problem, self.bvp.plan, self.bvp.m
        value, (h_x, h_u, f, highest) = jax.value_and_grad(
            lambda *args: hamiltonian(problem, plan.constraints, *args), argnums=(0, 1, 2, 3)
        )(x, u, costate, multiplier)
        slope = jnp.zeros_like(u)
        if plan.has_singular:
            slope = switching_rate(problem, y[: 2 * problem.n], u)
        offsets = self.offsets()
        value += rate_costate @ offsets[1]
        value = self.conditions(f, h_x, h_u, slope, value, highest, u, multiplier, state_u, offsets)
        return value, None, problem.cost_rate(x, u), jnp.zeros((m, m)), jnp.zeros(m)

    def expanded(self, y, v):
        """Conditions, their Jacobians, running cost, H_uu and Kelley's condition."""
        x, costate, state_u, rate_costate, u, multiplier = self.split(y, v)
        problem, plan, scales = self.bvp.problem, self.bvp.plan, self.bvp.scales
        n, m, r, c = problem.n, problem.m, len(self.bvp.limited), len(multiplier)
        ny, nw = 2 * n + 2 * r, 2 * n + 2 * r + m + c
        ex, highest, highest_z = expand_constrained(
            problem, plan.constraints, x, u, costate, multiplier
        )
        slope, slope_w = jnp.zeros(m), jnp.zeros((m, nw))
        if plan.has_singular:

            def slope_of(w):
                value = switching_rate(problem, w[: 2 * n], w[2 * n :])
                return value, value

            by, slope = jax.jacfwd(slope_of, has_aux=True)(jnp.concatenate([y[: 2 * n], u]))
            slope_w = slope_w.at[:, : 2 * n].set(by[:, : 2 * n])
            slope_w = slope_w.at[:, ny : ny + m].set(by[:, 2 * n :])

        def row(by_x, by_costate, by_u, by_multiplier):
            blank = jnp.zeros((by_x.shape[0], 2 * r))
            return jnp.concatenate([by_x, by_costate, blank, by_u, by_multiplier], axis=1)

        f_x, f_u, h_u = ex.f_z[:, :n], ex.f_z[:, n:], ex.h_z[n:]
        h_xx, h_xu, h_uu = ex.h_zz[:n, :n], ex.h_zz[:n, n:], ex.h_zz[n:, n:]
        highest_x, highest_u = highest_z[:, :n], highest_z[:, n:]
        offsets = self.offsets()
        value = ex.cost + costate @ ex.f + multiplier @ highest + rate_costate @ offsets[1]
        value_w = row(ex.h_z[None, :n], ex.f[None], h_u[None], highest[None])[0]
        value = self.conditions(
            ex.f, ex.h_z[:n], h_u, slope, value, highest, u, multiplier, state_u, offsets
        )
        eye = jnp.eye(nw)
        jacobian = jax.vmap(
            lambda *terms: self.conditions(*terms, (jnp.zeros(m), jnp.zeros(r))),
            in_axes=-1,
            out_axes=-1,
        )(
            row(f_x, jnp.zeros((n, n)), f_u, jnp.zeros((n, c))),
            row(h_xx, f_x.T, h_xu, highest_x.T),
            row(h_xu.T, f_u.T, h_uu, highest_u.T),
            slope_w,
            value_w.at[2 * n + r : ny].set(offsets[1]),
            row(highest_x, jnp.zeros((c, n)), highest_u, jnp.zeros((c, c))),
            eye[ny : ny + m],
            eye[ny + m :],
            eye[2 * n : 2 * n + r],
        )
        rate_u = jacobian.rate[: 2 * n, ny : ny + m]
        kelley = -jnp.sum(slope_w[:, : 2 * n] * rate_u.T, axis=1)
        spread = scales.v[:m] / scales.switching
        return value, jacobian, ex.cost, h_uu * spread[None], kelley * scales.time**2 * spread


# Traced once for the outline of the values and for the values.
@eqx.filter_jit
def evaluate(bvp: BoundaryValueProblem, arcs: Arcs, with_jacobian: bool = True) -> Evaluation:
    """Evaluate all stages in one vectorised call, and the constraints at the ends of the arcs.

    Without the Jacobian it needs first derivatives of the dynamics only, and `h_uu` and `kelley`
    are zero.
    """
    n_arcs, k, s, ny = arcs.stage.shape
    plan, n, m = bvp.plan, bvp.n, bvp.m
    start_v = jnp.einsum("s,asm->am", jnp.asarray(to_monomials(s)[0]), arcs.stage_v[:, 0])

    def at_point(y, v, kinds, active):
        point = _Point(bvp, kinds, active)
        return point.expanded(y, v) if with_jacobian else point.values(y, v)

    def everywhere(of_arcs):
        return jnp.concatenate([jnp.repeat(of_arcs, k * s, axis=0), of_arcs])

    out = jax.vmap(at_point)(
        jnp.concatenate([arcs.stage.reshape(-1, ny), arcs.start]),
        jnp.concatenate([arcs.stage_v.reshape(n_arcs * k * s, -1), start_v]),
        everywhere(plan.kinds),
        everywhere(plan.active),
    )
    start = jax.tree.map(lambda v: v[n_arcs * k * s :], out[0])
    value, jacobian, cost, h_uu, kelley = jax.tree.map(
        lambda v: v[: n_arcs * k * s].reshape((n_arcs, k, s, *v.shape[1:])), out
    )

    def at_end(x, u):
        def below(x):
            return lower_derivatives(bvp.problem, plan.constraints, x, u)

        return EndConstraints(below(x), jax.jacrev(below)(x), jax.jacfwd(jax.jacrev(below))(x))

    stages = Stages(value, start, start_v, cost, h_uu, kelley)
    constraints = jax.vmap(at_end)(arcs.stage[:, -1, -1, :n], arcs.stage_v[:, -1, -1, :m])
    return Evaluation(arcs, stages, constraints, jacobian)


def lift(value, like):
    """Add leading axes until `value` broadcasts against `like`."""
    return value.reshape((1,) * (like.ndim - value.ndim) + value.shape)


def is_differential(bvp: BoundaryValueProblem):
    """Which components of y obey a differential equation on each arc; the others are algebraic."""
    moving = at_rate_bound(bvp.plan.kinds[:, bvp.limited])
    always = jnp.ones((len(moving), 2 * bvp.n), dtype=bool)
    return jnp.concatenate([always, moving, moving], axis=1)


def at_ends(values):
    """Values at the stages `(arcs, intervals, s, ...)` where the arcs end `(arcs, ...)`."""
    return jax.tree.map(lambda v: v[:, -1, -1], values)


class Vanishing(NamedTuple):
    """What the rules of switching make zero at the ends of the arcs, each with axes `(arcs, m)` or
    `(arcs, c)`; as derivatives, with a trailing axis (y, v).
    """

    switching: Array
    distance: Array
    switching_rate: Array
    highest: Array
    multiplier: Array
    constraint_rate: Array
    rate_costate: Array


def apply_rules(
    bvp: BoundaryValueProblem, vanishing: Vanishing, otherwise: ArrayLike
) -> Float[Array, "conditions ..."]:
    """What the rule of each condition makes zero, scaled, `(conditions, ...)`.

    **Arguments:** what `vanishing` has at the ends of the arcs, or its derivatives; `otherwise`,
    the values for subdivisions.
    """
    plan, scales, m = bvp.plan, bvp.scales, bvp.m
    costate_size = jnp.ones(m).at[bvp.limited].set(scales.y[2 * bvp.n + len(bvp.limited) :])
    sizes = Vanishing(
        scales.switching,
        scales.v[:m],
        scales.switching / scales.time,
        scales.highest,
        scales.v[m:],
        scales.constraint / scales.time,
        costate_size,
    )
    holds, chosen = [], []
    for rule in Rule:
        exists = plan.constraints if rule.is_of_constraint else plan.limited or rule != Rule.RATE
        if rule.field is None or not exists:
            continue
        index = plan.constraint if rule.is_of_constraint else plan.control
        value = getattr(vanishing, rule.field)[plan.at, index]
        ones = (1,) * (value.ndim - 1)
        chosen.append(value / getattr(sizes, rule.field)[index].reshape(-1, *ones))
        holds.append((plan.rule == rule).reshape(-1, *ones))
    return jnp.select(holds, chosen, otherwise)


def first_derivative(lower):
    """The first of the constraints' derivatives `(arcs, c, P, ...)`; zero unless P exceeds one."""
    return lower[:, :, 1] if lower.shape[2] > 1 else jnp.zeros(lower.shape[:2] + lower.shape[3:])


class EndGradients(NamedTuple):
    """Gradient of the Lagrange function in what is free at the ends: the initial state `start`
    `(n,)`, the `time`, the final state `end` `(n,)`, the `multiplier` `(b,)`.
    """

    start: Float[Array, " n"]
    time: Float[Array, ""]
    end: Float[Array, " n"]
    multiplier: Float[Array, " b"]


def end_gradients(
    problem: Problem,
    start: Float[Array, " y"],
    time: Float[Array, ""],
    end: Float[Array, " y"],
    multiplier: Float[Array, " b"],
    value: Float[Array, ""],
) -> EndGradients:
    """The gradients that vanish in what is free at the ends.

    **Arguments:** y at both ends, the final time, the multipliers of the boundary conditions, and
    the Hamiltonian's `value` at the final time.

    Source: Schanzer 2007, section 5.2, pp. 62-66.
    """
    n = problem.n
    change = EndGradients(
        *jax.grad(problem.end_function, argnums=(0, 1, 2, 3))(start[:n], time, end[:n], multiplier)
    )
    return change._replace(
        start=start[n : 2 * n] + change.start,
        time=value + change.time,
        end=change.end - end[n : 2 * n],
    )


def boundary_residual(
    bvp: BoundaryValueProblem, start, time, end, multiplier, value
) -> Float[Array, " boundary"]:
    """Conditions at both ends `(2n + r + 1 + b,)`, scaled.

    Of the initial state or its costate `(n,)`, the costates of the limited controls `(r,)`, the
    final state or its costate `(n,)`, the final time or the Hamiltonian, the boundary conditions.
    """
    problem, scales, n, r = bvp.problem, bvp.scales, bvp.n, len(bvp.limited)
    time_kind, start_kinds = bvp.plan.ends[0], bvp.plan.ends[1:]
    gradients = end_gradients(problem, start, time, end, multiplier, value)
    size_x, size_costate = scales.y[:n], scales.y[n : 2 * n]
    bound = select_bound(start_kinds, problem.start_lower, problem.start_upper)
    goal = jnp.where(problem.is_fixed_initial, problem.initial_state, bound)
    initial = jnp.where(
        problem.is_fixed_initial | (start_kinds != Kind.INTERIOR),
        (start[:n] - goal) / size_x,
        gradients.start / size_costate,
    )
    final = jnp.where(
        problem.is_fixed_final,
        (end[:n] - problem.final_state) / size_x,
        gradients.end / size_costate,
    )
    if problem.is_time_free:
        goal = select_bound(time_kind, *problem.time_bounds)
        last = jnp.where(
            time_kind != Kind.INTERIOR,
            (time - goal) / scales.time,
            gradients.time / scales.hamiltonian,
        )
    else:
        last = (time - problem.final_time) / scales.time
    rate_costate = start[2 * n + r :] / scales.y[2 * n + r :]
    errors = gradients.multiplier / scales.boundary
    return jnp.concatenate([initial, rate_costate, final, last[None], errors])


def residuals(bvp: BoundaryValueProblem, at: Evaluation) -> Residual:
    """Residual of every condition, scaled to order one."""
    plan, scales, limited, n, m = bvp.plan, bvp.scales, bvp.limited, bvp.n, bvp.m
    arcs, value, r = at.arcs, at.stages.value, len(limited)
    _, a = radau(arcs.stage.shape[2])
    h = arcs.interval_lengths[:, None, None, None]
    # Algebraic components of y: a control that is not limited here, and its costate, zero.
    u = arcs.stage_v[..., limited]
    resting = jnp.concatenate(
        [jnp.zeros_like(arcs.stage[..., : 2 * n]), u, jnp.zeros_like(u)], axis=3
    )
    stage = jnp.where(
        is_differential(bvp)[:, None, None],
        arcs.stage
        - arcs.interval_starts[:, :, None]
        - h * jnp.einsum("ij,akjy->akiy", jnp.asarray(a), value.rate),
        arcs.stage - resting,
    )
    end, y_end, v_end = at_ends((value, arcs.stage, arcs.stage_v))
    boundaries, rows = np.arange(len(arcs.times) - 1), plan.jump_constraint
    shift = jnp.einsum("bp,bpn->bn", arcs.jump, at.constraints.gradient[boundaries, rows])
    continuity = arcs.start[1:] - y_end[:-1] + jnp.pad(shift, ((0, 0), (n, 2 * r)))
    jump = jnp.where(
        np.arange(plan.n_jumps)[None] < plan.jumps[:, None],
        at.constraints.value[boundaries, rows] / scales.lower[rows],
        arcs.jump / scales.jump[rows],
    )
    next_bounds = jnp.concatenate([bvp.bounds[1:], bvp.bounds[-1:]])
    edges = jnp.concatenate([jnp.zeros(1), arcs.times])
    halfway = (arcs.times[:-1] - 0.5 * (edges[:-2] + edges[2:])) / scales.time
    start_values = slice(2 * n, 2 * n + r)
    idle = arcs.start[0, start_values] / scales.y[start_values]
    vanishing = Vanishing(
        end.switching,
        v_end[:, :m] - next_bounds,
        end.switching_rate,
        end.highest,
        v_end[:, m:],
        first_derivative(at.constraints.value),
        bvp.rate_costates(y_end),
    )
    return Residual(
        stage / lift(scales.y, stage),
        value.law,
        continuity / scales.y[None],
        apply_rules(bvp, vanishing, jnp.concatenate([halfway, idle])),
        jump,
        boundary_residual(bvp, *arcs.ends, end.hamiltonian[-1]),
    )
