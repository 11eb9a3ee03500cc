"""Multiple shooting on the multipoint boundary-value problem, one arc between two events.

Every arc is integrated by Radau IIA collocation, which keeps its order where algebraic conditions
fix a control: on singular arcs, on active constraints, at a bound. All stages of all intervals are
evaluated in one vectorised call, and the kind of an arc is data: another structure does not
recompile.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
from optimistix import max_norm

from jaxgrip.ocp.indirect._boundary_value_problem import Arcs, BoundaryValueProblem
from jaxgrip.ocp.indirect._conditions import Stages, evaluate, residuals
from jaxgrip.ocp.indirect._newton import newton_step


class Shooting(eqx.Module):
    """Configuration of the multiple-shooting solver.

    **Arguments:** `intervals`, collocation intervals per arc; `stages`, Radau stages per interval;
    `max_steps`, limit of Newton steps; `tolerance`, on the scaled residual.
    """

    intervals: int = eqx.field(static=True, default=6)
    stages: int = eqx.field(static=True, default=5)
    max_steps: int = eqx.field(static=True, default=30)
    tolerance: float = 1e-12


class Shot(NamedTuple):
    """Outcome of the shooting: `arcs`, the unknowns; `stages`, the values there; `residual`,
    scaled; `steps`; `converged`.
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


def solve_shooting(bvp: BoundaryValueProblem, solver: Shooting, arcs: Arcs) -> Shot:
    """Damped Newton on the multipoint boundary-value problem; pure JAX, no exceptions.

    A step is halved until the scaled residual does not grow. Below the tolerance the iteration
    goes on until rounding stops it, since the last digits cost one step.

    **Arguments:** the problem; `solver`; starting `arcs`.

    **Returns:** a [`Shot`][].

    Source: Schanzer 2007, section 5.4.2, pp. 70-72.
    """

    def body(state: _State) -> _State:
        arcs = jax.tree.map(lambda v, d: v + state.size * d, state.arcs, state.step)
        at = evaluate(bvp, arcs)
        residual = residuals(bvp, at)
        norm = max_norm(residual)
        norm = jnp.where(jnp.isfinite(norm), norm, jnp.inf)
        accept = (norm < state.norm) | (state.steps == 0)
        step = newton_step(bvp, at, jax.tree.map(jnp.negative, residual))
        size = jnp.where(accept, 1.0, 0.5 * state.size)
        done = ~jnp.isfinite(norm) & (state.steps == 0)
        done |= ~accept & ((state.norm < solver.tolerance) | (size < 1e-3))
        new = (arcs, at.stages, norm, step)
        old = (state.arcs, state.stages, state.norm, state.step)
        kept = jax.tree.map(lambda p, q: jnp.where(accept, p, q), new, old)
        return _State(*kept, size, state.steps + 1, done)

    outline = jax.eval_shape(lambda: evaluate(bvp, arcs).stages)
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
    return Shot(state.arcs, state.stages, state.norm, state.steps, state.norm < solver.tolerance)
