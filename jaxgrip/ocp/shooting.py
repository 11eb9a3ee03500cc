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
from scipy.special import roots_jacobi

from jaxgrip.ocp.constraints import Active, expand_constrained, hamiltonian, levels
from jaxgrip.ocp.hamiltonian import switching_slope
from jaxgrip.ocp.problem import Problem

LOWER, INTERIOR, UPPER, SINGULAR, FALLING, RISING = -1, 0, 1, 2, 3, 4

# What fixes the end of an arc.
SUBDIVISION, SWITCH, SATURATION, TANGENCY, CONTACT, RELEASE, TOUCH, RATE = range(8)


class Shooting(eqx.Module):
    """Configuration of the multiple-shooting solver.

    **Arguments:** `intervals`, collocation intervals an arc; `stages`, Radau stages an interval;
    `max_steps`, limit of Newton steps; `tolerance`, on the scaled residual.
    """

    intervals: int = eqx.field(static=True, default=6)
    stages: int = eqx.field(static=True, default=5)
    max_steps: int = eqx.field(static=True, default=30)
    tolerance: float = 1e-12


class Features(eqx.Module):
    """What a structure contains beside bounds on controls; each adds to the compiled code.

    `singular`, whether there are singular arcs; `active`, the constraints that are active
    somewhere; `limited`, the controls whose rate is at a bound somewhere. While it is, the control
    is a state with a costate of its own.
    """

    singular: bool = eqx.field(static=True, default=False)
    active: tuple[Active, ...] = eqx.field(static=True, default=())
    limited: tuple[int, ...] = eqx.field(static=True, default=())

    @property
    def n_jumps(self) -> int:
        """Largest number of jump parameters at an arc's end."""
        return max((order for _, order in self.active), default=0)


class EndKinds(NamedTuple):
    """LOWER or UPPER where the final `time` or a free component `(n,)` of the initial state `start`
    lies on that bound, INTERIOR elsewhere.
    """

    time: Int[Array, ""]
    start: Int[Array, " n"]


class ArcPlan(NamedTuple):
    """The structure of a solution as data.

    `kinds` `(arcs, m)`: LOWER, INTERIOR, UPPER, SINGULAR, or FALLING and RISING where the control's
    rate is at a bound; `active` `(arcs, c)`: whether each constraint of the [`Features`][] holds
    with equality.

    For the end of each arc but the last, and then for the start value of each limited control,
    `(arcs - 1 + r,)`: `rule`, the condition that fixes it; `control` or `constraint`, which one it
    is about; `at`, the arc at whose end the condition holds. The rules:

    - SUBDIVISION: halfway between its neighbours; a start value that nothing depends on is zero;
    - SWITCH: the switching function vanishes;
    - SATURATION: the control reaches the bound that the next arc names;
    - TANGENCY: the switching function has zero slope;
    - CONTACT: the constraint's highest derivative vanishes, so that the control is continuous;
    - RELEASE: the constraint's multiplier vanishes;
    - TOUCH: the constraint has a maximum;
    - RATE: the costate of a limited control vanishes.

    `at` is the arc itself, except that a segment with two conditions at one end and none at the
    other names that end twice: a singular arc its entry, a rate arc its exit.

    `jumps` `(arcs - 1,)`: how many jump parameters the costate has there, of which constraint
    `jump_constraint`. `ends`: the [`EndKinds`][].
    """

    kinds: Int[Array, "arcs m"]
    active: Bool[Array, "arcs c"]
    rule: Int[Array, " conditions"]
    control: Int[Array, " conditions"]
    constraint: Int[Array, " conditions"]
    at: Int[Array, " conditions"]
    jumps: Int[Array, " boundaries"]
    jump_constraint: Int[Array, " boundaries"]
    ends: EndKinds


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


class Residual(NamedTuple):
    """Residuals of the conditions, scaled to order one; `boundary` holds those at the ends."""

    stage: Float[Array, "arcs intervals s y"]
    law: Float[Array, "arcs intervals s v"]
    continuity: Float[Array, "boundaries y"]
    condition: Float[Array, " conditions"]
    jump: Float[Array, "boundaries P"]
    boundary: Float[Array, " boundary"]


class Scales(NamedTuple):
    """Typical sizes of y, v, time, switching functions `(m,)`, H, constraints `(c,)` and boundary
    conditions `(b,)`.
    """

    y: Float[Array, " y"]
    v: Float[Array, " v"]
    time: Float[Array, ""]
    switching: Float[Array, " m"]
    hamiltonian: Float[Array, ""]
    constraint: Float[Array, " c"]
    boundary: Float[Array, " b"]


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


def radau(stages: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes `(s,)` and matrix `(s, s)` of the Radau IIA method on [0, 1]; its last row weighs.

    Source: Hairer, Wanner, Solving Ordinary Differential Equations II, section IV.5.
    """
    inner = roots_jacobi(stages - 1, 1, 0)[0] if stages > 1 else np.zeros(0)
    c = np.append(0.5 * (inner + 1.0), 1.0)
    powers = np.arange(1, stages + 1)
    return c, (c[:, None] ** powers / powers) @ np.linalg.inv(c[:, None] ** (powers - 1))


def to_monomials(stages: int) -> np.ndarray:
    """Matrix `(s, s)` from values at the Radau nodes to the coefficients of their polynomial."""
    nodes, _ = radau(stages)
    return np.linalg.inv(nodes[:, None] ** np.arange(stages))


def select_bound(
    kinds: Int[Array, " *k"], lower: Float[Array, " *k"], upper: Float[Array, " *k"]
) -> Float[Array, " *k"]:
    """The bound that each kind names; zero where it names none."""
    return jnp.where(kinds == UPPER, upper, jnp.where(kinds == LOWER, lower, 0.0))


def bounds_of(problem: Problem, kinds: Int[Array, " m"]) -> Float[Array, " m"]:
    """The bound `(m,)` of each control that its kind names; zero where it names none."""
    return select_bound(kinds, problem.lower, problem.upper)


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
        return _sizes(self.scales, self.features).highest

    def values(self, y, v):
        """Conditions and running cost, from first derivatives alone."""
        x, costate, held, rate_costate, u, multiplier = self.split(y, v)
        problem, active = self.problem, self.features.active
        value, (h_x, h_u, f, highest) = jax.value_and_grad(
            lambda *args: hamiltonian(problem, active, *args), argnums=(0, 1, 2, 3)
        )(x, u, costate, multiplier)
        slope = jnp.zeros_like(u)
        if self.features.singular:
            slope = switching_slope(problem, y[: 2 * problem.n], u)
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
                value = switching_slope(problem, w[: 2 * n], w[2 * n :])
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
            return levels(problem, features.active, x, u)

        return Ends(level(x), jax.jacrev(level)(x), jax.jacfwd(jax.jacrev(level))(x))

    return jax.vmap(at)(arcs.stage[:, -1, -1, :n], arcs.stage_v[:, -1, -1, :m])


def interval_lengths(arcs: Arcs) -> Float[Array, " arcs"]:
    """Length `(arcs,)` of the intervals of each arc [s]."""
    return jnp.diff(arcs.times, prepend=0.0) / arcs.stage.shape[1]


def interval_starts(arcs: Arcs) -> Float[Array, "arcs intervals y"]:
    """(x, costate, ...) at the start of every interval."""
    return jnp.concatenate([arcs.start[:, None], arcs.stage[:, :-1, -1]], axis=1)


def _lift(value, like):
    """Add leading axes until `value` broadcasts against `like`."""
    return value.reshape((1,) * (like.ndim - value.ndim) + value.shape)


def _is_differential(problem: Problem, plan: ArcPlan, features: Features):
    """Which components of y obey a differential equation on each arc; the others are algebraic."""
    moving = plan.kinds[:, np.array(features.limited, dtype=int)] >= FALLING
    always = jnp.ones((len(moving), 2 * problem.n), dtype=bool)
    return jnp.concatenate([always, moving, moving], axis=1)


def ends_of(arcs: Arcs):
    """y at the start, the final time, y at the end, the multipliers of the boundary conditions."""
    return arcs.start[0], arcs.times[-1], arcs.stage[-1, -1, -1], arcs.boundary_multiplier


def _at_ends(values):
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
    the Hamiltonian's `value` at the final time. Source: specs/000b, section 1.
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


def _boundary_residual(
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
        goal = select_bound(plan.ends.time, problem.final_time.lower, problem.final_time.upper)
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


class _Sizes(NamedTuple):
    """Typical sizes of what belongs to the constraints, `(c,)` and `(c, P)`.

    `highest` derivatives; `level`, those below; `jump` parameters: what moves the costate as much
    as its own size; `boundary_multiplier` `(b,)`, likewise.
    """

    highest: Float[Array, " c"]
    level: Float[Array, "c P"]
    jump: Float[Array, "c P"]
    boundary_multiplier: Float[Array, " b"]


def _sizes(scales: Scales, features: Features) -> _Sizes:
    order = np.array([order for _, order in features.active], dtype=float)
    k = np.arange(float(features.n_jumps))
    size = scales.constraint[:, None]
    return _Sizes(
        scales.constraint / scales.time**order,
        size / scales.time ** k[None],
        scales.hamiltonian * scales.time ** (k[None] + 1.0) / size,
        scales.hamiltonian * scales.time / scales.boundary,
    )


def _touch_level(ends: Ends):
    """The constraints' first derivatives, where the orders leave room for one."""
    shape = ends.level.shape
    return ends.level[:, :, 1] if shape[2] > 1 else jnp.zeros(shape[:2])


def _touch_slope(ends: Ends):
    """Gradients of the constraints' first derivatives, as [`_touch_level`][]."""
    shape = ends.slope.shape
    return ends.slope[:, :, 1] if shape[2] > 1 else jnp.zeros((*shape[:2], shape[3]))


def _position_of(limited: np.ndarray, m: int) -> Int[Array, " m"]:
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
    is_differential = _is_differential(problem, plan, features)[:, None, None]
    stage = jnp.where(
        is_differential,
        arcs.stage
        - interval_starts(arcs)[:, :, None]
        - h * jnp.einsum("ij,akjy->akiy", jnp.asarray(a), value.rate),
        arcs.stage - _resting(arcs, n, limited),
    )
    end, end_v, y_end = _at_ends(value), arcs.stage_v[:, -1, -1], arcs.stage[:, -1, -1]
    boundaries = np.arange(len(arcs.times) - 1)
    slope = ends.slope[boundaries, plan.jump_constraint]
    shift = jnp.einsum("bp,bpn->bn", arcs.jump, slope)
    continuity = arcs.start[1:] - y_end[:-1] + jnp.pad(shift, ((0, 0), (n, 2 * r)))
    sizes = _sizes(scales, features)
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
        where = 2 * n + r + _position_of(limited, m)[j]
        chosen.append(y_end[at, where] / scales.y[where])
    else:
        chosen.append(jnp.zeros(rule.shape))
    condition = jnp.select(
        [rule == each for each in range(1, 8)], chosen, jnp.concatenate([halfway, held])
    )
    return Residual(
        stage / _lift(scales.y, stage),
        value.law,
        continuity / scales.y[None],
        condition,
        jump,
        _boundary_residual(problem, plan, scales, *ends_of(arcs), end.hamiltonian[-1]),
    )


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
    sizes = _sizes(scales, features)
    w_scale = jnp.concatenate([scales.y, scales.v])
    # Columns in units of w_scale, rates in units of scales.y.
    columns = _lift(w_scale, jacobian.rate)
    rate_w = jacobian.rate * columns / _lift(scales.y[:, None], jacobian.rate)
    rate = value.rate / _lift(scales.y, value.rate)
    law_w = jacobian.law * columns

    moving = _is_differential(problem, plan, features).astype(w_scale.dtype)
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
    factors = jax.scipy.linalg.lu_factor(local)
    d_start = jnp.broadcast_to(
        (moving[:, :, None] * jnp.eye(ny)[None])[:, None, None], (n_arcs, k, s, ny, ny)
    )
    d_length = jnp.einsum("ij,akjy->akiy", a, rate) * moving[:, None, None]
    columns = jnp.concatenate([d_start, d_length[..., None]], axis=4)
    columns = jnp.pad(columns, ((0, 0), (0, 0), (0, 0), (0, nw - ny), (0, 0)))
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
    end = _at_ends(jacobian)
    pick = jnp.eye(nw)
    chosen = [
        end.switching[at, j] * w_scale[None] / scales.switching[j][:, None],
        pick[ny + j],
        end.slope[at, j] * w_scale[None] * (scales.time / scales.switching[j])[:, None],
    ]
    blank = jnp.zeros((len(at), nw))
    if features.active:
        touch = jnp.pad(_touch_slope(ends)[at, i], ((0, 0), (0, nw - n))) * w_scale[None]
        chosen += [
            end.highest[at, i] * w_scale[None] / sizes.highest[i][:, None],
            pick[ny + m + i],
            touch / (scales.constraint[i] / scales.time)[:, None],
        ]
    else:
        chosen += [blank] * 3
    chosen.append(pick[2 * n + r + _position_of(limited, m)[j]] if r else blank)
    row_w = jnp.select([(rule == each)[:, None] for each in range(1, 8)], chosen, 0.0)
    condition_rows, condition_own = spread(row_w[:, None], at)
    halfway = arc_eye[:-1] - 0.5 * (jnp.eye(n_arcs, k=1) + jnp.eye(n_arcs, k=-1))[:-1]
    halfway = jnp.pad(halfway, ((0, 0), (n_starts + n_others, 0)))
    idle = jnp.concatenate([halfway, jnp.eye(r, size, k=2 * n)])
    condition_rows = condition_rows[:, 0] + jnp.where((rule == SUBDIVISION)[:, None], idle, 0.0)

    by_start, by_time, by_end, by_multiplier, by_value = jax.jacfwd(
        lambda *ends: _boundary_residual(problem, plan, scales, *ends), argnums=(0, 1, 2, 3, 4)
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
    solved = jax.scipy.linalg.lu_solve(jax.scipy.linalg.lu_factor(matrix), vector)
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
        w[..., :ny] * _lift(scales.y, w),
        w[..., ny:] * _lift(scales.v, w),
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

    **Returns:** [`ShootingResult`][]. Source: specs/000b, section 2.
    """

    def body(state: _State) -> _State:
        arcs = jax.tree.map(lambda v, d: v + state.size * d, state.arcs, state.step)
        stages, jacobian = evaluate_stages(problem, plan, arcs, scales, features)
        ends = evaluate_ends(problem, arcs, features)
        residual = residuals(problem, plan, arcs, scales, features, stages.value, ends)
        norm = jnp.max(jnp.stack([jnp.max(jnp.abs(v), initial=0.0) for v in residual]))
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
