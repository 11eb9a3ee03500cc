"""Shooting next to a solution that is known, without a Jacobian of its own."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int

from jaxgrip.ocp.indirect._arcs import Arcs
from jaxgrip.ocp.indirect._conditions import (
    Conditions,
    Residual,
    evaluate_ends,
    evaluate_stages,
    residuals,
)
from jaxgrip.ocp.indirect._output import Extremal
from jaxgrip.ocp.indirect._shooting import Shooting, newton_step
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure import LOWER, UPPER

# A structure that breaks the minimum principle by this much is another problem's.
_CLEAR = 1e-6
# By how much the breach must exceed the residual to be told before convergence.
_FACTOR = 100.0


class Shot(NamedTuple):
    """Outcome of the iteration: `arcs`; `steps` to the tolerance; `plausible`, whether they
    converged, the arcs follow each other and no switching function clearly has the wrong sign.
    """

    arcs: Arcs
    steps: Int[Array, ""]
    plausible: Bool[Array, ""]


class _State(NamedTuple):
    """`target`, where the simplified step from the arcs before led, and `residual`, theirs;
    `breach` of the minimum principle on bang arcs.
    """

    arcs: Float[Array, " w"]
    target: Float[Array, " w"]
    residual: Float[Array, " r"]
    breach: Float[Array, ""]
    steps: Int[Array, ""]
    done: Bool[Array, ""]


def corrector(
    problem: Problem, like: Extremal, value: Conditions, jacobian: Conditions
) -> Callable[[Residual], Arcs]:
    """The Newton step from residuals with the Jacobian at an extremal, factorised once."""
    plan, arcs, scales, features = like.plan, like.shot.arcs, like.scales, like.features
    ends = evaluate_ends(problem, arcs, features)

    def step(rhs):
        return newton_step(problem, plan, arcs, scales, features, value, jacobian, ends, rhs)

    at = residuals(problem, plan, arcs, scales, features, value, ends)
    _, linear = jax.linearize(step, at)
    return lambda residual: linear(jax.tree.map(jnp.negative, residual))


def solve_nearby(
    numbers: Problem,
    rest: Problem,
    solver: Shooting,
    like: Extremal,
    correct: Callable[[Residual], Arcs],
) -> Shot:
    """Solve the boundary-value problem of an extremal for other numbers; pure JAX, no exceptions.

    Simplified Newton steps, mixed so that the residual is least. They need first derivatives alone
    and many problems share one factorisation, but converge only near the extremal.

    **Arguments:** `numbers`, those of the problems, with a leading axis `(B,)`; `rest` of the
    problems, the same for all; `solver`; the extremal; `correct`, the [`corrector`][] there.

    **Returns:** a [`Shot`][] with a leading axis `(B,)`. Source: Walker, Ni, Anderson acceleration
    for fixed-point iterations, SIAM J. Numer. Anal. 49 (2011).
    """
    plan, scales, features = like.plan, like.scales, like.features
    start, unflatten = ravel_pytree(like.shot.arcs)
    bounded = (plan.kinds == UPPER) | (plan.kinds == LOWER)
    sign = jnp.where(bounded, plan.kinds, 0).astype(start.dtype) / scales.switching[None]

    def evaluate(problem, arcs):
        stages, _ = evaluate_stages(problem, plan, arcs, scales, features, with_jacobian=False)
        ends = evaluate_ends(problem, arcs, features)
        breach = jnp.max(sign[:, None, None] * stages.value.switching)
        return residuals(problem, plan, arcs, scales, features, stages.value, ends), breach

    def advance(numbers, state: _State, step) -> _State:
        residual, breach = evaluate(eqx.combine(numbers, rest), unflatten(state.arcs))
        target = state.arcs + ravel_pytree(correct(residual))[0]
        residual = ravel_pytree(residual)[0]
        norm = jnp.max(jnp.abs(residual))

        # Mixed with the target before so that the residual is least, were it linear.
        change = residual - state.residual
        share = jnp.where(step > 0, change @ residual / jnp.maximum(change @ change, 1e-300), 0.0)
        return _State(
            target - share * (target - state.target),
            target,
            residual,
            breach,
            state.steps + jnp.where(state.done, 0, 1),
            ~(norm >= solver.tolerance) | (breach > jnp.maximum(_CLEAR, _FACTOR * norm)),
        )

    def body(carry):
        step, state = carry
        return step + 1, jax.vmap(advance, in_axes=(0, 0, None))(numbers, state, step)

    one = jax.tree.map(lambda v: v[0], numbers)
    outline, _ = jax.eval_shape(lambda: evaluate(eqx.combine(one, rest), like.shot.arcs))
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
    arcs = jax.vmap(unflatten)(state.arcs)
    ordered = jnp.all(jnp.diff(arcs.times, prepend=0.0) > 0.0, axis=1)
    return Shot(arcs, state.steps, state.done & ordered & (state.breach < _CLEAR))
