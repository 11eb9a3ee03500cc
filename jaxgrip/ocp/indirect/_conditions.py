"""The conditions of the multipoint boundary-value problem: of stages, arcs and both ends."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxgrip.ocp.hamiltonian import (
    expand_constrained,
    hamiltonian,
    lower_derivatives,
    switching_rate,
)
from jaxgrip.ocp.indirect._arcs import (
    Arcs,
    bounds_of,
    ends_of,
    interval_lengths,
    interval_starts,
    radau,
    select_bound,
    sizes_of,
    to_monomials,
)
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure import (
    FALLING,
    INTERIOR,
    LOWER,
    RISING,
    SINGULAR,
    UPPER,
    ArcPlan,
    Features,
    Scales,
)


class Residual(NamedTuple):
    """Residuals of the conditions, scaled to order one; `boundary` holds those at the ends."""

    stage: Float[Array, "arcs intervals s y"]
    law: Float[Array, "arcs intervals s v"]
    continuity: Float[Array, "boundaries y"]
    condition: Float[Array, " conditions"]
    jump: Float[Array, "boundaries P"]
    boundary: Float[Array, " boundary"]


class Conditions(NamedTuple):
    """What the conditions need at one point; as derivatives, with a trailing axis (y, v).

    `rate` of y; `law` `(v,)`, zero where each control obeys its kind and each constraint holds;
    `switching` functions `(m,)` and their time derivative `slope` `(m,)`; `hamiltonian`;
    `highest` `(c,)`, the derivative of each constraint that contains a control.
    """

    rate: Float[Array, " y"]
    law: Float[Array, " v"]
    switching: Float[Array, " m"]
    slope: Float[Array, " m"]
    hamiltonian: Float[Array, ""]
    highest: Float[Array, " c"]


class Stages(NamedTuple):
    """Values at every stage, axes `(arcs, intervals, s)` first, and at the arcs' starts.

    `value`, `start`: [`Conditions`][], the latter with one axis `(arcs,)`; `start_v` `(arcs, v)`,
    there by the collocation polynomial; `cost`: running cost; `h_uu` `(m, m)`, scaled; `bend`
    `(m,)`: minus the share of each control in the second time derivative of its switching
    function, scaled; both for the Legendre-Clebsch conditions.
    """

    value: Conditions
    start: Conditions
    start_v: Float[Array, "arcs v"]
    cost: Float[Array, "arcs intervals s"]
    h_uu: Float[Array, "arcs intervals s m m"]
    bend: Float[Array, "arcs intervals s m"]


class Ends(NamedTuple):
    """Constraints at the ends of the arcs: `level` `(arcs, c, P)`, derivatives below the order;
    `slope` `(arcs, c, P, n)` and `bend` `(arcs, c, P, n, n)`, their first and second gradients.
    """

    level: Float[Array, "arcs c P"]
    slope: Float[Array, "arcs c P n"]
    bend: Float[Array, "arcs c P n n"]


class _Point(eqx.Module):
    """The conditions at one point of an arc."""

    problem: Problem
    scales: Scales
    kinds: Int[Array, " m"]
    active: Bool[Array, " c"]
    features: Features

    @property
    def limited(self) -> np.ndarray:
        """Indices of the limited controls."""
        return np.array(self.features.limited, dtype=int)

    def split(self, y, v):
        """State, costate, limited controls, their costates; controls, multipliers."""
        n, r, m = self.problem.n, len(self.limited), self.problem.m
        return *jnp.split(y, [n, 2 * n, 2 * n + r]), v[:m], v[m:]

    def control_rate(self):
        """Rates of the limited controls, zero where they are not at a bound."""
        kinds, problem = self.kinds[self.limited], self.problem
        upper, lower = problem.rate_upper[self.limited], problem.rate_lower[self.limited]
        return jnp.select([kinds == RISING, kinds == FALLING], [upper, lower])

    def law(self, u, multiplier, held, switching, slope, highest):
        """Zero where controls and constraints obey their kinds; scaled to order one."""
        scales, kinds, problem = self.scales, self.kinds, self.problem
        at_bound = (kinds == UPPER) | (kinds == LOWER)
        size = scales.v[: problem.m]
        moving = jnp.zeros_like(u).at[self.limited].set(u[self.limited] - held)
        control = jnp.select(
            [at_bound, kinds == SINGULAR, kinds >= FALLING],
            [
                (u - bounds_of(problem, kinds)) / size,
                slope * scales.time / scales.switching,
                moving / size,
            ],
            switching / scales.switching,
        )
        constraint = jnp.where(
            self.active, highest / self.highest_size, multiplier / scales.v[problem.m :]
        )
        return jnp.concatenate([control, constraint])

    @property
    def highest_size(self):
        """Typical sizes of the constraints' highest derivatives."""
        return sizes_of(self.scales, self.features).highest

    def values(self, y, v):
        """Conditions and running cost, from first derivatives alone."""
        x, costate, held, rate_costate, u, multiplier = self.split(y, v)
        problem, active = self.problem, self.features.active
        value, (h_x, h_u, f, highest) = jax.value_and_grad(
            lambda *args: hamiltonian(problem, active, *args), argnums=(0, 1, 2, 3)
        )(x, u, costate, multiplier)
        slope = jnp.zeros_like(u)
        if self.features.singular:
            slope = switching_rate(problem, y[: 2 * problem.n], u)
        rate = jnp.concatenate([f, -h_x, self.control_rate(), -h_u[self.limited]])
        law = self.law(u, multiplier, held, h_u, slope, highest)
        value += rate_costate @ self.control_rate()
        value = Conditions(rate, law, h_u, slope, value, highest)
        m = problem.m
        return value, None, problem.cost_rate(x, u), jnp.zeros((m, m)), jnp.zeros(m)

    def expanded(self, y, v):
        """Conditions, their Jacobians, running cost, H_uu and bend."""
        x, costate, held, rate_costate, u, multiplier = self.split(y, v)
        problem, scales, limited = self.problem, self.scales, self.limited
        n, m, r, c = problem.n, problem.m, len(limited), len(multiplier)
        ny, nw = 2 * n + 2 * r, 2 * n + 2 * r + m + c
        ex, highest, highest_z = expand_constrained(
            problem, self.features.active, x, u, costate, multiplier
        )
        slope, slope_w = jnp.zeros(m), jnp.zeros((m, nw))
        if self.features.singular:

            def slope_of(w):
                value = switching_rate(problem, w[: 2 * n], w[2 * n :])
                return value, value

            by, slope = jax.jacfwd(slope_of, has_aux=True)(jnp.concatenate([y[: 2 * n], u]))
            slope_w = slope_w.at[:, : 2 * n].set(by[:, : 2 * n])
            slope_w = slope_w.at[:, ny : ny + m].set(by[:, 2 * n :])

        def row(by_x, by_costate, by_u, by_multiplier):
            blank = jnp.zeros((by_x.shape[0], 2 * r))
            return jnp.concatenate([by_x, by_costate, blank, by_u, by_multiplier], axis=1)

        f_x, f_u = ex.f_z[:, :n], ex.f_z[:, n:]
        h_xx, h_xu, h_uu = ex.h_zz[:n, :n], ex.h_zz[:n, n:], ex.h_zz[n:, n:]
        highest_x, highest_u = highest_z[:, :n], highest_z[:, n:]
        f_w = row(f_x, jnp.zeros((n, n)), f_u, jnp.zeros((n, c)))
        switching_w = row(h_xu.T, f_u.T, h_uu, highest_u.T)
        rate_w = jnp.concatenate(
            [
                f_w,
                -row(h_xx, f_x.T, h_xu, highest_x.T),
                jnp.zeros((r, nw)),
                -switching_w[limited],
            ]
        )
        highest_w = row(highest_x, jnp.zeros((c, n)), highest_u, jnp.zeros((c, c)))
        h_u = ex.h_z[n:]
        kinds, size = self.kinds, scales.v
        pick_v = jnp.eye(m + c, nw, k=ny) / size[:, None]
        pick_held = (
            jnp.zeros((m, nw))
            .at[limited, 2 * n + np.arange(r)]
            .set(-1.0 / size[limited], unique_indices=True)
        )
        at_bound = (kinds == UPPER) | (kinds == LOWER)
        control_w = jnp.select(
            [at_bound[:, None], (kinds == SINGULAR)[:, None], (kinds >= FALLING)[:, None]],
            [
                pick_v[:m],
                slope_w * (scales.time / scales.switching)[:, None],
                pick_v[:m] + pick_held,
            ],
            switching_w / scales.switching[:, None],
        )
        constraint_w = jnp.where(
            self.active[:, None], highest_w / self.highest_size[:, None], pick_v[m:]
        )
        bend = -jnp.sum(slope_w[:, : 2 * n] * rate_w[: 2 * n, ny : ny + m].T, axis=1)
        spread = size[:m] / scales.switching
        value = Conditions(
            jnp.concatenate([ex.f, -ex.h_z[:n], self.control_rate(), -h_u[limited]]),
            self.law(u, multiplier, held, h_u, slope, highest),
            h_u,
            slope,
            ex.cost + costate @ ex.f + multiplier @ highest + rate_costate @ self.control_rate(),
            highest,
        )
        hamiltonian_w = row(ex.h_z[None, :n], ex.f[None], ex.h_z[None, n:], highest[None])[0]
        hamiltonian_w = hamiltonian_w.at[2 * n + r : ny].set(self.control_rate())
        jacobian = Conditions(
            rate_w,
            jnp.concatenate([control_w, constraint_w]),
            switching_w,
            slope_w,
            hamiltonian_w,
            highest_w,
        )
        return value, jacobian, ex.cost, h_uu * spread[None], bend * scales.time**2 * spread


def evaluate_stages(
    problem: Problem,
    plan: ArcPlan,
    arcs: Arcs,
    scales: Scales,
    features: Features,
    with_jacobian: bool = True,
) -> tuple[Stages, Conditions | None]:
    """Evaluate every stage in one vectorised call.

    **Returns:** [`Stages`][], and the Jacobians of its conditions with respect to (y, v).
    Without them it needs first derivatives of the dynamics only, and `h_uu` and `bend` are blank.
    """
    n_arcs, k, s, ny = arcs.stage.shape
    start_v = jnp.einsum("s,asm->am", jnp.asarray(to_monomials(s)[0]), arcs.stage_v[:, 0])

    def evaluate(y, v, kinds, active):
        point = _Point(problem, scales, kinds, active, features)
        return point.expanded(y, v) if with_jacobian else point.values(y, v)

    def everywhere(of_arcs):
        return jnp.concatenate([jnp.repeat(of_arcs, k * s, axis=0), of_arcs])

    out = jax.vmap(evaluate)(
        jnp.concatenate([arcs.stage.reshape(-1, ny), arcs.start]),
        jnp.concatenate([arcs.stage_v.reshape(n_arcs * k * s, -1), start_v]),
        everywhere(plan.kinds),
        everywhere(plan.active),
    )
    start = jax.tree.map(lambda v: v[n_arcs * k * s :], out[0])
    value, jacobian, cost, h_uu, bend = jax.tree.map(
        lambda v: v[: n_arcs * k * s].reshape((n_arcs, k, s, *v.shape[1:])), out
    )
    return Stages(value, start, start_v, cost, h_uu, bend), jacobian


def evaluate_ends(problem: Problem, arcs: Arcs, features: Features) -> Ends:
    """Constraints and their gradients at the ends of the arcs."""
    n, m = problem.n, problem.m

    def at(x, u):
        def level(x):
            return lower_derivatives(problem, features.active, x, u)

        return Ends(level(x), jax.jacrev(level)(x), jax.jacfwd(jax.jacrev(level))(x))

    return jax.vmap(at)(arcs.stage[:, -1, -1, :n], arcs.stage_v[:, -1, -1, :m])


def lift(value, like):
    """Add leading axes until `value` broadcasts against `like`."""
    return value.reshape((1,) * (like.ndim - value.ndim) + value.shape)


def is_differential(problem: Problem, plan: ArcPlan, features: Features):
    """Which components of y obey a differential equation on each arc; the others are algebraic."""
    moving = plan.kinds[:, np.array(features.limited, dtype=int)] >= FALLING
    always = jnp.ones((len(moving), 2 * problem.n), dtype=bool)
    return jnp.concatenate([always, moving, moving], axis=1)


def at_ends(values):
    """Values at the stages `(arcs, intervals, s, ...)` where the arcs end `(arcs, ...)`."""
    return jax.tree.map(lambda v: v[:, -1, -1], values)


def _resting(arcs: Arcs, n: int, limited: np.ndarray):
    """Values of the algebraic components of y: a control that is not limited, no costate."""
    u = arcs.stage_v[..., limited]
    return jnp.concatenate([jnp.zeros_like(arcs.stage[..., : 2 * n]), u, jnp.zeros_like(u)], axis=3)


def _next_bounds(problem: Problem, plan: ArcPlan):
    """The bounds that the arc after the one named by `at` puts on the condition's control."""
    bounds = jax.vmap(lambda kinds: bounds_of(problem, kinds))(plan.kinds)
    return bounds[jnp.minimum(plan.at + 1, len(bounds) - 1), plan.control]


class EndGradients(NamedTuple):
    """Change of the Lagrange function with what is free at the ends: the initial state `start`
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
    """What must vanish where something is free at the ends.

    **Arguments:** y at both ends, the final time, the multipliers of the boundary conditions, and
    the Hamiltonian's `value` at the final time.

    Source: G. F. Schanzer, dissertation, TU München 2007, section 5.2.
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
    problem: Problem, plan: ArcPlan, scales: Scales, start, time, end, multiplier, value
) -> Float[Array, " boundary"]:
    """Conditions at both ends `(2n + r + 1 + b,)`, scaled.

    Of the initial state or its costate `(n,)`, the costates of the limited controls `(r,)`, the
    final state or its costate `(n,)`, the final time or the Hamiltonian, the boundary conditions.
    """
    n, r = problem.n, (start.shape[0] - 2 * problem.n) // 2
    gradients = end_gradients(problem, start, time, end, multiplier, value)
    size_x, size_costate = scales.y[:n], scales.y[n : 2 * n]
    bound = select_bound(plan.ends.start, problem.start_lower, problem.start_upper)
    goal = jnp.where(problem.is_fixed_initial, problem.initial_state, bound)
    initial = jnp.where(
        problem.is_fixed_initial | (plan.ends.start != INTERIOR),
        (start[:n] - goal) / size_x,
        gradients.start / size_costate,
    )
    final = jnp.where(
        problem.is_fixed_final,
        (end[:n] - problem.final_state) / size_x,
        gradients.end / size_costate,
    )
    if problem.is_time_free:
        goal = select_bound(plan.ends.time, *problem.time_bounds)
        last = jnp.where(
            plan.ends.time != INTERIOR,
            (time - goal) / scales.time,
            gradients.time / scales.hamiltonian,
        )
    else:
        last = (time - problem.final_time) / scales.time
    rate_costate = start[2 * n + r :] / scales.y[2 * n + r :]
    errors = gradients.multiplier / scales.boundary
    return jnp.concatenate([initial, rate_costate, final, last[None], errors])


def _touch_level(ends: Ends):
    """The constraints' first derivatives, where the orders leave room for one."""
    shape = ends.level.shape
    return ends.level[:, :, 1] if shape[2] > 1 else jnp.zeros(shape[:2])


def touch_slope(ends: Ends):
    """Gradients of the constraints' first derivatives, as [`_touch_level`][]."""
    shape = ends.slope.shape
    return ends.slope[:, :, 1] if shape[2] > 1 else jnp.zeros((*shape[:2], shape[3]))


def rows_of(limited: np.ndarray, m: int) -> Int[Array, " m"]:
    """Where each control stands among the limited ones; 0 for the others."""
    return jnp.zeros(m, dtype=int).at[limited].set(np.arange(len(limited)))


def residuals(
    problem: Problem,
    plan: ArcPlan,
    arcs: Arcs,
    scales: Scales,
    features: Features,
    value: Conditions,
    ends: Ends,
) -> Residual:
    """Residual of every condition, scaled to order one."""
    n, m, limited = problem.n, problem.m, np.array(features.limited, dtype=int)
    r = len(limited)
    _, a = radau(arcs.stage.shape[2])
    h = interval_lengths(arcs)[:, None, None, None]
    moving = is_differential(problem, plan, features)[:, None, None]
    stage = jnp.where(
        moving,
        arcs.stage
        - interval_starts(arcs)[:, :, None]
        - h * jnp.einsum("ij,akjy->akiy", jnp.asarray(a), value.rate),
        arcs.stage - _resting(arcs, n, limited),
    )
    end, end_v, y_end = at_ends(value), arcs.stage_v[:, -1, -1], arcs.stage[:, -1, -1]
    boundaries = np.arange(len(arcs.times) - 1)
    slope = ends.slope[boundaries, plan.jump_constraint]
    shift = jnp.einsum("bp,bpn->bn", arcs.jump, slope)
    continuity = arcs.start[1:] - y_end[:-1] + jnp.pad(shift, ((0, 0), (n, 2 * r)))
    sizes = sizes_of(scales, features)
    levels_at = ends.level[boundaries, plan.jump_constraint]
    jump = jnp.where(
        np.arange(features.n_jumps)[None] < plan.jumps[:, None],
        levels_at / sizes.level[plan.jump_constraint],
        arcs.jump / sizes.jump[plan.jump_constraint],
    )
    j, i, at, rule = plan.control, plan.constraint, plan.at, plan.rule
    bound = _next_bounds(problem, plan)
    edges = jnp.concatenate([jnp.zeros(1), arcs.times])
    halfway = (arcs.times[:-1] - 0.5 * (edges[:-2] + edges[2:])) / scales.time
    held = arcs.start[0, 2 * n : 2 * n + r] / scales.y[2 * n : 2 * n + r]
    chosen = [
        end.switching[at, j] / scales.switching[j],
        (end_v[at, j] - bound) / scales.v[j],
        end.slope[at, j] * scales.time / scales.switching[j],
    ]
    if features.active:
        highest = end.highest[at, i] / sizes.highest[i]
        chosen += [
            highest,
            end_v[at, m + i] / scales.v[m + i],
            _touch_level(ends)[at, i] * scales.time / scales.constraint[i],
        ]
    else:
        chosen += [jnp.zeros(rule.shape)] * 3
    if r:
        where = 2 * n + r + rows_of(limited, m)[j]
        chosen.append(y_end[at, where] / scales.y[where])
    else:
        chosen.append(jnp.zeros(rule.shape))
    condition = jnp.select(
        [rule == each for each in range(1, 8)], chosen, jnp.concatenate([halfway, held])
    )
    return Residual(
        stage / lift(scales.y, stage),
        value.law,
        continuity / scales.y[None],
        condition,
        jump,
        boundary_residual(problem, plan, scales, *ends_of(arcs), end.hamiltonian[-1]),
    )
