"""Shooting near a known extremal, with its Jacobian in place of one of its own."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from jaxgrip.ocp.indirect._boundary_value_problem import Arcs, BoundaryValueProblem
from jaxgrip.ocp.indirect._conditions import Evaluation, Residual, evaluate, residuals
from jaxgrip.ocp.indirect._newton import newton_step
from jaxgrip.ocp.indirect._shooting import Shooting
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure import at_bound

# A violation of the minimum principle by this much means that the structure is not this problem's.
_CLEAR = 1e-6
# Before convergence the violation must exceed the residual by this factor.
_FACTOR = 100.0


class _State(NamedTuple):
    """`target`, the result of the simplified step from the arcs before; `residual` there;
    `violation` of the minimum principle on bang arcs.
    """

    arcs: Float[Array, " w"]
    target: Float[Array, " w"]
    residual: Float[Array, " r"]
    violation: Float[Array, ""]
    steps: Int[Array, ""]
    done: Bool[Array, ""]


def corrector(bvp: BoundaryValueProblem, at: Evaluation) -> Callable[[Residual], Arcs]:
    """The Newton step from residuals with the Jacobian at an extremal, factorised once."""
    _, linear = jax.linearize(lambda rhs: newton_step(bvp, at, rhs), residuals(bvp, at))
    return lambda residual: linear(jax.tree.map(jnp.negative, residual))


def solve_nearby(
    numbers: Problem,
    rest: Problem,
    solver: Shooting,
    like: BoundaryValueProblem,
    arcs: Arcs,
    correct: Callable[[Residual], Arcs],
) -> tuple[Arcs, Int[Array, " B"], Bool[Array, " B"]]:
    """Solve a boundary-value problem for other numbers; pure JAX, no exceptions.

    Simplified Newton steps, mixed so that the residual is least. They need first derivatives alone
    and many problems share one factorisation, but converge only near the extremal.

    **Arguments:** `numbers` of the problems, with a leading axis `(B,)`; `rest` of the problems,
    the same for all; `solver`; the boundary-value problem `like` theirs and the `arcs` that solve
    it; `correct`, the [`corrector`][] there.

    **Returns:** each with a leading axis `(B,)`, arcs; steps to the tolerance; whether they are a
    plausible solution: converged, the arcs in order, no switching function clearly of the wrong
    sign.

    Source: Walker 2011.
    """
    plan, scales = like.plan, like.scales
    start, unflatten = ravel_pytree(arcs)
    sign = jnp.where(at_bound(plan.kinds), plan.kinds, 0).astype(start.dtype)
    sign = sign / scales.switching[None]

    def examine(problem, arcs):
        bvp = BoundaryValueProblem(problem, plan, scales)
        at = evaluate(bvp, arcs, with_jacobian=False)
        violation = jnp.max(sign[:, None, None] * at.stages.value.switching)
        return residuals(bvp, at), violation

    def advance(numbers, state: _State, step) -> _State:
        residual, violation = examine(eqx.combine(numbers, rest), unflatten(state.arcs))
        target = state.arcs + ravel_pytree(correct(residual))[0]
        residual = ravel_pytree(residual)[0]
        norm = jnp.max(jnp.abs(residual))

        # Mixed with the target before so that the residual would be least if it were linear.
        change = residual - state.residual
        share = jnp.where(step > 0, change @ residual / jnp.maximum(change @ change, 1e-300), 0.0)
        return _State(
            target - share * (target - state.target),
            target,
            residual,
            violation,
            state.steps + jnp.where(state.done, 0, 1),
            ~(norm >= solver.tolerance) | (violation > jnp.maximum(_CLEAR, _FACTOR * norm)),
        )

    def body(carry):
        step, state = carry
        return step + 1, jax.vmap(advance, in_axes=(0, 0, None))(numbers, state, step)

    one = jax.tree.map(lambda v: v[0], numbers)
    outline, _ = jax.eval_shape(lambda: examine(eqx.combine(one, rest), arcs))
    size = sum(v.size for v in jax.tree.leaves(outline))
    state = _State(
        start,
        start,
        jnp.zeros(size),
        jnp.zeros(()),
        jnp.array(0),
        jnp.array(False),
    )
    batch = jax.tree.leaves(numbers)[0].shape[:1]
    state = jax.tree.map(lambda v: jnp.broadcast_to(v, (*batch, *v.shape)), state)
    _, state = jax.lax.while_loop(
        lambda carry: (carry[0] < solver.max_steps) & ~jnp.all(carry[1].done), body, (0, state)
    )
    found = jax.vmap(unflatten)(state.arcs)
    ordered = jnp.all(jnp.diff(found.times, prepend=0.0) > 0.0, axis=1)
    return found, state.steps, state.done & ordered & (state.violation < _CLEAR)
