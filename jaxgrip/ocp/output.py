"""Dense output of an extremal, and its change with the numbers of the problem."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from jaxgrip.ocp.problem import Problem
from jaxgrip.ocp.shooting import (
    LOWER,
    UPPER,
    ArcPlan,
    Arcs,
    Conditions,
    Scales,
    Stages,
    bounds_of,
    evaluate_stages,
    interval_starts,
    newton_step,
    radau,
    residuals,
)


class Output(NamedTuple):
    """Dense output: each arc's start and interval ends, axes `(arcs, 1 + intervals)` first."""

    objective: jax.Array
    times: jax.Array
    t: jax.Array
    y: jax.Array
    y_rate: jax.Array
    u: jax.Array
    switching: jax.Array
    hamiltonian: jax.Array


def assemble(problem: Problem, plan: ArcPlan, arcs: Arcs, stages: Stages) -> Output:
    """Gather the dense output of converged arcs; a control on a bound is the bound itself."""
    k, s = arcs.stage.shape[1:3]
    _, a = radau(s)
    begins = jnp.concatenate([jnp.zeros(1), arcs.times[:-1]])
    h = (arcs.times - begins) / k

    def rows(start, values):
        return jnp.concatenate([start[:, None], values[:, :, -1]], axis=1)

    bounds = jax.vmap(lambda kinds: bounds_of(problem, kinds))(plan.kinds)
    on_bound = (plan.kinds == UPPER) | (plan.kinds == LOWER)
    u = rows(stages.start_u, arcs.stage_u)
    value, start = stages.value, stages.start
    cost = jnp.einsum("a,s,aks->", h, jnp.asarray(a[-1]), stages.cost)
    return Output(
        cost + problem.end_cost(arcs.times[-1], arcs.stage[-1, -1, -1, : problem.n]),
        arcs.times,
        # An arc ends where the next begins to the last digit, so that a switch stands twice.
        jnp.append(
            begins[:, None] + h[:, None] * jnp.arange(1.0 * k)[None], arcs.times[:, None], axis=1
        ),
        rows(interval_starts(arcs)[:, 0], arcs.stage),
        rows(start.rate, value.rate),
        jnp.where(on_bound[:, None], bounds[:, None], u),
        rows(start.switching, value.switching),
        rows(start.hamiltonian, value.hamiltonian),
    )


class Linearised(NamedTuple):
    """An extremal with the Jacobians of its conditions."""

    plan: ArcPlan
    arcs: Arcs
    scales: Scales
    singular: bool
    value: Conditions
    jacobian: Conditions


@eqx.filter_jit
def tangent_output(problem: Problem, tangent: Problem, extremal: Linearised):
    """Change of the dense output when the problem's numbers change; linear in `tangent`.

    The implicit function theorem on the boundary-value problem: J dw = -(dR/dp) dp.
    """
    plan, arcs, scales, singular, value, jacobian = extremal
    numbers, rest = eqx.partition(problem, eqx.is_inexact_array)

    def conditions(numbers, arcs):
        problem = eqx.combine(numbers, rest)
        stages, _ = evaluate_stages(problem, plan, arcs, scales, singular, with_jacobian=False)
        residual = residuals(problem, plan, arcs, scales, stages.value)
        return residual, assemble(problem, plan, arcs, stages)

    change, direct = jax.jvp(lambda p: conditions(p, arcs), (numbers,), (tangent,))[1]
    rhs = jax.tree.map(jnp.negative, change)
    step = newton_step(problem, plan, arcs, scales, value, jacobian, rhs)
    _, through = jax.jvp(lambda w: conditions(numbers, w), (arcs,), (step,))[1]
    return jax.tree.map(jnp.add, direct, through)
