"""Direct transcription: implicit midpoint stages and an interior-point method with a Riccati sweep.

From a straight line between the boundary states it finds states, controls and costates accurate
enough to show which control is at which bound.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxgrip.ocp.direct._guess import Guess
from jaxgrip.ocp.direct._newton import primal_dual_step
from jaxgrip.ocp.direct._program import Inequalities, Iterate, Program, guessed_sizes
from jaxgrip.ocp.hamiltonian import Expansion
from jaxgrip.ocp.statement import Problem


class Transcription(eqx.Module):
    """Configuration of the interior-point method for the transcribed problem.

    **Arguments:** `intervals`, number of time steps, equal ones until a solution shows where short
    ones are needed; `max_steps`, limit of Newton steps; `tolerance`, on the scaled error of the
    optimality conditions; `barrier`, final barrier parameter relative to the objective: the
    smaller, the sharper the switches.
    """

    intervals: int = eqx.field(static=True, default=100)
    max_steps: int = eqx.field(static=True, default=200)
    tolerance: float = 1e-6
    barrier: float = 1e-6


class DirectSolution(NamedTuple):
    """Solution of the transcribed problem.

    `x` `(N+1, n)` and `costate` `(N+1, n)` at the nodes; `u`, `switching_function` (H_u) and
    `curvature` (diagonal of H_uu), each `(N, m)`, at the midpoints; there too `bound_multiplier`
    `(N, m)` of the controls' bounds, positive at the upper one, the `constraint` values `(N, c)`
    and their `multiplier` `(N, c)`, so that H + bound_multiplier . u + multiplier . constraint is
    stationary; between the intervals the `rate` `(N-1, m)` of the controls [1/s] and
    `rate_costate` `(N-1, m)`, the costate of each control with bounded rate, zero for the others;
    `boundary_multiplier` `(b,)`; `final_time` [s]; `lengths` `(N,)` of the intervals, as shares of
    the final time; `objective`; `converged`; `error` and `infeasibility`, scaled; `steps`.
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
    lengths: Float[Array, " intervals"]
    objective: Float[Array, ""]
    converged: Bool[Array, ""]
    error: Float[Array, ""]
    infeasibility: Float[Array, ""]
    steps: Int[Array, ""]

    @property
    def t(self) -> Float[np.ndarray, " nodes"]:
        """Times of the nodes [s]."""
        ends = np.cumsum(self.lengths)
        return float(self.final_time) * np.concatenate([[0.0], ends[:-1], [1.0]])


class _State(NamedTuple):
    """`filter`: infeasibility and merit that no later iterate may both exceed; `failures`: line
    searches in a row that found no step.
    """

    iterate: Iterate
    expansion: Expansion
    inequalities: Inequalities
    objective: Float[Array, ""]
    barrier: Float[Array, ""]
    regularisation: Float[Array, ""]
    filter: Float[Array, "capacity 2"]
    step: Int[Array, ""]
    error: Float[Array, ""]
    infeasibility: Float[Array, ""]
    is_solved: Bool[Array, ""]
    failures: Int[Array, ""]


def _longest_step(values, changes, fraction: Array) -> Array:
    """Longest step, at most one, that keeps the share 1 - `fraction` of every value of a tree."""
    ratios = jax.tree.map(
        lambda v, d: jnp.min(jnp.where(d < 0.0, -fraction * v / d, 1.0), initial=1.0),
        values,
        changes,
    )
    return jnp.min(jnp.stack(jax.tree.leaves(ratios)))


def _advance(program: Program, solver: Transcription, state: _State) -> _State:
    """One Newton step with a filter line search (Wächter 2006, simplified)."""
    sizes, it = program.sizes, state.iterate
    barrier_end = solver.barrier * sizes.objective
    ex, inequalities = program.expand(it), program.inequalities(it)
    relative = state.barrier / sizes.objective
    errors = program.kkt_errors(it, ex, inequalities, state.barrier)
    reduce = errors.is_solved(relative, solver.tolerance) & (state.barrier > barrier_end)
    lower = jnp.minimum(0.2 * relative, relative**1.5) * sizes.objective
    barrier = jnp.where(reduce, jnp.maximum(barrier_end, lower), state.barrier)
    filter_ = jnp.where(reduce, jnp.inf, state.filter)

    def correct_inertia(carry):
        _, _, _, in_reach, at_ends, added, tries = carry
        added = jnp.where(tries == 0, added, jnp.maximum(8.0 * added, 1e-6))
        at_ends = jnp.where(in_reach, at_ends, 1.0)
        step = primal_dual_step(program, it, ex, inequalities, barrier, added, at_ends)
        return *step, at_ends, added, tries + 1

    # After a failed line search more regularisation turns the step towards feasibility.
    added = jnp.where(state.failures > 0, jnp.maximum(state.regularisation * 10.0, 1e-4), 0.0)
    blank = jax.tree.map(jnp.zeros_like, it)
    step, slope, ok, _, _, added, _ = jax.lax.while_loop(
        lambda c: ~c[2] & (c[6] < 25),
        correct_inertia,
        (blank, jnp.zeros(()), jnp.array(False), jnp.array(True), jnp.zeros(()), added, 0),
    )
    fraction = jnp.maximum(0.99, 1.0 - barrier / sizes.objective)
    slacks = program.bound_slacks(it.x, it.u, it.time), it.slack
    changes = program.bound_slack_changes(step.x, step.u, step.time), step.slack
    longest = _longest_step(slacks, changes, fraction)
    # A final time that changes by much in one step may lead where no motion is.
    longest = jnp.minimum(longest, 0.3 * it.time / (jnp.abs(step.time) + 1e-300))
    duals, dual_changes = ((v.bound_multipliers, v.multiplier) for v in (it, step))
    dual_length = _longest_step(duals, dual_changes, fraction)

    lengths = longest * 0.5 ** jnp.arange(12.0)
    thetas, phis = jax.vmap(
        lambda s: program.merit(
            it.x + s * step.x,
            it.u + s * step.u,
            it.time + s * step.time,
            it.slack + s * step.slack,
            barrier,
        )
    )(jnp.append(lengths, 0.0))
    theta, phi, thetas, phis = thetas[-1], phis[-1], thetas[:-1], phis[:-1]
    margin = 1e-5 * sizes.objective
    progress = (thetas <= (1.0 - 1e-5) * theta) | (phis <= phi - margin * theta)
    descent = (slope < 0.0) & (lengths * jnp.abs(slope / sizes.objective) ** 2.3 > theta**1.1)
    armijo = phis <= phi + 1e-4 * lengths * slope + 1e-13 * jnp.abs(phi)
    allowed = jnp.all(
        (thetas[:, None] < (1.0 - 1e-5) * filter_[None, :, 0])
        | (phis[:, None] < filter_[None, :, 1] - margin * filter_[None, :, 0]),
        axis=1,
    )
    accept = jnp.where(descent & (theta < 1e-2), armijo, progress) & allowed
    accept &= jnp.isfinite(thetas) & jnp.isfinite(phis)
    # Near the solution rounding hides the decrease; a full step that stays feasible is right.
    accept |= (thetas < 1e-9) & (jnp.abs(phis - phi) < 1e-9 * sizes.objective)
    found = jnp.any(accept) & ok
    chosen = jnp.argmax(accept)
    length = lengths[chosen]
    # A step that failed may hold NaN, which no length of zero removes.
    step = jax.tree.map(lambda d: jnp.where(found, d, 0.0), step)
    augment = found & ~(descent[chosen] & armijo[chosen])
    slot = jnp.where(augment, state.step, solver.max_steps)
    new = jax.tree.map(lambda v, d: v + length * d, it, step)
    duals = jax.tree.map(
        lambda v, d: v + dual_length * d, duals, (step.bound_multipliers, step.multiplier)
    )
    # The primal-dual Hessian needs multipliers that are near the central path.
    bound_multipliers, multiplier = jax.tree.map(
        lambda z, s: jnp.clip(z, barrier / s / 1e8, barrier / s * 1e8),
        duals,
        (program.bound_slacks(new.x, new.u, new.time), new.slack),
    )
    errors = program.kkt_errors(it, ex, inequalities, barrier_end)
    error = jnp.max(jnp.stack(errors))
    return _State(
        new._replace(
            bound_multipliers=program.where_bounded(bound_multipliers), multiplier=multiplier
        ),
        ex,
        inequalities,
        program.objective(it, ex),
        barrier,
        added,
        filter_.at[slot].set(jnp.stack([theta, phi]), mode="drop"),
        state.step + 1,
        jnp.where(jnp.isfinite(error), error, jnp.inf),
        errors.infeasibility,
        errors.is_solved(solver.barrier, solver.tolerance),
        jnp.where(found, 0, state.failures + 1),
    )


def solve_transcription(problem: Problem, solver: Transcription, guess: Guess) -> DirectSolution:
    """Solve the transcribed problem from a guess; pure JAX, no exceptions.

    **Arguments:** `problem`; `solver`; `guess`, see [`straight_line`][].

    **Returns:** a [`DirectSolution`][], with `converged` False where the iteration did not reach
    the tolerance.
    """
    n = problem.n
    sizes = guessed_sizes(problem, guess)
    program = Program(problem, sizes, guess.lengths)
    motion = guess[:3]
    barrier = 0.1 * sizes.objective
    slacks = program.bound_slacks(*motion)
    slack = jnp.maximum(-program.inequality_values(*motion), 0.1)
    iterate = Iterate(
        *motion,
        jnp.zeros_like(guess.x),
        jnp.zeros(problem.n_boundary),
        program.where_bounded(jax.tree.map(lambda s: barrier / s, slacks)),
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
        jnp.array(False),
        jnp.array(0),
    )

    def unfinished(state: _State):
        done = state.is_solved & (state.error < solver.tolerance)
        done &= state.barrier <= solver.barrier * sizes.objective
        return ~done & (state.step < solver.max_steps) & (state.failures < 12)

    state = jax.lax.while_loop(unfinished, lambda s: _advance(program, solver, s), state)
    it, ex = state.iterate, state.expansion
    c, r, m = problem.n_constraints, len(program.limited), problem.m
    upper, lower = it.multiplier[1:, c : c + r], it.multiplier[1:, c + r :]
    rate_costate = jnp.zeros((program.intervals - 1, m))
    rate_costate = rate_costate.at[:, program.limited].set(
        program.h[1:, None] * (lower - upper) / sizes.control[program.limited][None]
    )
    return DirectSolution(
        it.x,
        it.u,
        it.costate,
        ex.h_z[:, n:],
        jnp.diagonal(ex.h_zz[:, n:, n:], axis1=1, axis2=2),
        (it.bound_multipliers.upper - it.bound_multipliers.lower) / it.time,
        state.inequalities.value[:, :c] * sizes.constraint[None],
        it.multiplier[:, :c] / (it.time * sizes.constraint[None]),
        jnp.diff(it.u, axis=0) / (it.time * program.spacing[1:, None]),
        rate_costate,
        it.boundary_multiplier,
        it.time,
        program.h,
        state.objective,
        state.error < solver.tolerance,
        state.error,
        state.infeasibility,
        state.step,
    )
