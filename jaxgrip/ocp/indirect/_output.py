"""Dense output of an extremal, and its change with the numbers of the problem."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxgrip.ocp.indirect._arcs import Arcs, bounds_of, interval_lengths, radau, to_monomials
from jaxgrip.ocp.indirect._conditions import (
    Conditions,
    Stages,
    evaluate_ends,
    evaluate_stages,
    residuals,
)
from jaxgrip.ocp.indirect._shooting import ShootingResult, newton_step
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure import LOWER, UPPER, ArcPlan, Features, Scales


class Output(NamedTuple):
    """Dense output: each arc's start and interval ends, axes `(arcs, 1 + intervals)` first.

    `y` and `v` as in [`Arcs`][], `jump`, `times` and `boundary_multiplier` too.
    """

    objective: jax.Array
    times: jax.Array
    jump: jax.Array
    t: jax.Array
    y: jax.Array
    y_rate: jax.Array
    v: jax.Array
    switching: jax.Array
    hamiltonian: jax.Array
    boundary_multiplier: jax.Array


def assemble(problem: Problem, plan: ArcPlan, arcs: Arcs, stages: Stages) -> Output:
    """Gather the dense output of converged arcs; a control on a bound is the bound itself."""
    k, s = arcs.stage.shape[1:3]
    _, a = radau(s)
    begins = jnp.concatenate([jnp.zeros(1), arcs.times[:-1]])
    h = interval_lengths(arcs)

    def rows(start, values):
        return jnp.concatenate([start[:, None], values[:, :, -1]], axis=1)

    bounds = jax.vmap(lambda kinds: bounds_of(problem, kinds))(plan.kinds)
    on_bound = (plan.kinds == UPPER) | (plan.kinds == LOWER)
    v = rows(stages.start_v, arcs.stage_v)
    u = jnp.where(on_bound[:, None], bounds[:, None], v[..., : problem.m])
    value, start = stages.value, stages.start
    cost = jnp.einsum("a,s,aks->", h, jnp.asarray(a[-1]), stages.cost)
    return Output(
        cost + problem.end_cost(arcs.times[-1], arcs.stage[-1, -1, -1, : problem.n]),
        arcs.times,
        arcs.jump,
        # An arc ends where the next begins to the last digit, so that a switch stands twice.
        jnp.append(
            begins[:, None] + h[:, None] * jnp.arange(1.0 * k)[None], arcs.times[:, None], axis=1
        ),
        rows(arcs.start, arcs.stage),
        rows(start.rate, value.rate),
        v.at[..., : problem.m].set(u),
        rows(start.switching, value.switching),
        rows(start.hamiltonian, value.hamiltonian),
        arcs.boundary_multiplier,
    )


class Extremal(NamedTuple):
    """A converged solution of the shooting, with what certifies and differentiates it.

    `features`, what the structure contains;
    `real` `(arcs - 1,)` is True where an arc's end is a switch and not a subdivision.
    """

    plan: ArcPlan
    shot: ShootingResult
    scales: Scales
    features: Features
    real: np.ndarray

    def output(self, problem: Problem) -> Output:
        """The dense output."""
        return assemble(problem, self.plan, self.shot.arcs, self.shot.stages)


def control_rates(arcs: Arcs, m: int) -> Float[Array, "arcs intervals s m"]:
    """Rates of change of the controls at the stages [1/s], from the collocation polynomials."""
    s = arcs.stage.shape[2]
    nodes, _ = radau(s)
    slopes = np.arange(1.0, s) * nodes[:, None] ** np.arange(s - 1) @ to_monomials(s)[1:]
    rate = jnp.einsum("ij,akjm->akim", jnp.asarray(slopes), arcs.stage_v[..., :m])
    return rate / interval_lengths(arcs)[:, None, None, None]


def multipliers(
    problem: Problem, features: Features, v: Float[Array, "... v"]
) -> Float[Array, "... c"]:
    """Multipliers of all the problem's constraints, zero for those that are active nowhere."""
    indices = np.array([index for index, _ in features.active], dtype=int)
    every = jnp.zeros((*v.shape[:-1], problem.n_constraints))
    if not indices.size:
        return every
    return every.at[..., indices].set(v[..., problem.m :])


def rate_costates(
    problem: Problem, features: Features, y: Float[Array, "... y"]
) -> Float[Array, "... m"]:
    """Costates of all controls, zero for those whose rate is at a bound nowhere."""
    limited = np.array(features.limited, dtype=int)
    every = jnp.zeros((*y.shape[:-1], problem.m))
    if not limited.size:
        return every
    return every.at[..., limited].set(y[..., 2 * problem.n + len(limited) :])


class Linearised(NamedTuple):
    """An extremal with the Jacobians of its conditions."""

    plan: ArcPlan
    arcs: Arcs
    scales: Scales
    features: Features
    value: Conditions
    jacobian: Conditions


@eqx.filter_jit
def tangent_output(problem: Problem, tangent: Problem, extremal: Linearised) -> Output:
    """Change of the dense output when the problem's numbers change; linear in `tangent`.

    The implicit function theorem on the boundary-value problem: J dw = -(dR/dp) dp.
    """
    plan, arcs, scales, features, value, jacobian = extremal
    numbers, rest = eqx.partition(problem, eqx.is_inexact_array)

    def conditions(numbers, arcs):
        problem = eqx.combine(numbers, rest)
        stages, _ = evaluate_stages(problem, plan, arcs, scales, features, with_jacobian=False)
        ends = evaluate_ends(problem, arcs, features)
        residual = residuals(problem, plan, arcs, scales, features, stages.value, ends)
        return residual, assemble(problem, plan, arcs, stages)

    change, direct = jax.jvp(lambda p: conditions(p, arcs), (numbers,), (tangent,))[1]
    rhs = jax.tree.map(jnp.negative, change)
    ends = evaluate_ends(problem, arcs, features)
    step = newton_step(problem, plan, arcs, scales, features, value, jacobian, ends, rhs)
    _, through = jax.jvp(lambda w: conditions(numbers, w), (arcs,), (step,))[1]
    return jax.tree.map(jnp.add, direct, through)


@jax.custom_jvp
def without_derivatives(values: PyTree, numbers: PyTree) -> PyTree:
    """Values that stay, with derivatives by the numbers that are NaN, since there are none."""
    del numbers
    return values


@without_derivatives.defjvp
def _without_derivatives_jvp(primals, tangents):
    values, _ = primals
    lost = sum(jnp.sum(jnp.nan * change) for change in jax.tree.leaves(tangents[1]))
    return values, jax.tree.map(lambda value: jnp.full(value.shape, lost), values)
