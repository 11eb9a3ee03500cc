"""An extremal, its dense output, and the change of that with the numbers of the problem."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from jaxgrip.ocp.indirect._boundary_value_problem import Arcs, BoundaryValueProblem
from jaxgrip.ocp.indirect._collocation import radau, stage_times, to_monomials
from jaxgrip.ocp.indirect._conditions import Evaluation, Stages, evaluate, residuals
from jaxgrip.ocp.indirect._newton import newton_step
from jaxgrip.ocp.indirect._shooting import Shot
from jaxgrip.ocp.statement import Problem
from jaxgrip.ocp.structure import Rule, Trajectory, Values, at_bound
from jaxgrip.solve.fusion import jit_plainly


class Output(NamedTuple):
    """Dense output: each arc's start and interval ends, axes `(arcs, 1 + intervals)` first.

    `y`, `v`, `jump`, `times` and `boundary_multiplier` as in [`Arcs`][].
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


def dense_output(bvp: BoundaryValueProblem, arcs: Arcs, stages: Stages) -> Output:
    """Dense output of converged arcs; a control at a bound is the bound itself."""
    k, s = arcs.stage.shape[1:3]
    _, a = radau(s)
    begins = jnp.concatenate([jnp.zeros(1), arcs.times[:-1]])
    h = arcs.interval_lengths

    def rows(start, values):
        return jnp.concatenate([start[:, None], values[:, :, -1]], axis=1)

    v = rows(stages.start_v, arcs.stage_v)
    u = jnp.where(at_bound(bvp.plan.kinds)[:, None], bvp.bounds[:, None], v[..., : bvp.m])
    value, start = stages.value, stages.start
    cost = jnp.einsum("a,s,aks->", h, jnp.asarray(a[-1]), stages.cost)
    return Output(
        cost + bvp.problem.end_cost(arcs.times[-1], arcs.stage[-1, -1, -1, : bvp.n]),
        arcs.times,
        arcs.jump,
        # An arc ends exactly where the next begins, so that a switching time is there twice.
        jnp.append(
            begins[:, None] + h[:, None] * jnp.arange(1.0 * k)[None], arcs.times[:, None], axis=1
        ),
        rows(arcs.start, arcs.stage),
        rows(start.rate, value.rate),
        v.at[..., : bvp.m].set(u),
        rows(start.switching, value.switching),
        rows(start.hamiltonian, value.hamiltonian),
        arcs.boundary_multiplier,
    )


class Extremal(NamedTuple):
    """A converged shot at a boundary-value problem."""

    bvp: BoundaryValueProblem
    shot: Shot

    def of(self, problem: Problem) -> "Extremal":
        """The same extremal of another problem object."""
        return self._replace(bvp=BoundaryValueProblem(problem, self.bvp.plan, self.bvp.scales))

    def output(self) -> Output:
        """The dense output."""
        return _dense_output(self.bvp, self.shot.arcs, self.shot.stages)

    def trajectory(self) -> Trajectory:
        """Values along the arcs, as a start for another shooting."""
        return as_trajectory(self.bvp, self.shot.arcs)

    def values(self) -> Values:
        """Values at the stages, for the mending of the structure."""
        bvp, n, m = self.bvp, self.bvp.n, self.bvp.m
        plan, scales, arcs = jax.tree.map(np.asarray, (bvp.plan, bvp.scales, self.shot.arcs))
        t = stage_times(arcs.times, *arcs.stage.shape[1:3]).ravel()
        y, v, switching, rate = (
            np.asarray(each).reshape(len(t), -1)
            for each in (
                arcs.stage,
                arcs.stage_v,
                self.shot.stages.value.switching,
                # An arc without length, where two controls switch together, has no rates.
                np.nan_to_num(control_rates(arcs, m), posinf=0.0, neginf=0.0),
            )
        )
        is_touch = plan.rule[: len(plan.jumps)] == Rule.TOUCH
        touches = [
            np.flatnonzero(is_touch & (plan.jump_constraint == row))
            for row in range(len(plan.constraints))
        ]
        return Values(
            t,
            y[:, :n],
            v[:, :m],
            switching / scales.switching,
            bvp.rate_costates(y / scales.y),
            rate,
            v[:, m:] / scales.v[m:],
            [{float(arcs.times[b]): float(arcs.jump[b, 0]) for b in row} for row in touches],
        )

    def evaluate(self) -> Evaluation:
        """The conditions with their Jacobian."""
        return _evaluate(self.bvp, self.shot.arcs)


# Points in an interval, so many that linear interpolation between them is no worse a start.
_DENSE = 16


def as_trajectory(bvp: BoundaryValueProblem, arcs: Arcs) -> Trajectory:
    """Values along arcs, converged or not, from the collocation polynomials."""
    n, arcs = bvp.n, jax.tree.map(np.asarray, arcs)
    k, s = arcs.stage.shape[1:3]
    share = np.linspace(0.0, 1.0, _DENSE + 1)
    nodes, _ = radau(s)
    powers = share[:, None] ** np.arange(s)
    v = np.einsum("is,aksm->akim", powers @ to_monomials(s), arcs.stage_v)
    # The polynomial of y has its value at the start of the interval too.
    start = np.concatenate([arcs.start[:, None], arcs.stage[:, :-1, -1]], axis=1)[:, :, None]
    rise = (arcs.stage - start) / nodes[:, None]
    y = start + np.einsum("is,aksm->akim", share[:, None] * powers @ to_monomials(s), rise)
    h = np.diff(arcs.times, prepend=0.0) / k
    begins = np.concatenate([[0.0], arcs.times[:-1]])
    t = begins[:, None, None] + h[:, None, None] * (np.arange(k)[:, None] + share)
    t[:, -1, -1] = arcs.times
    t = t.ravel()
    order = np.argsort(t, kind="stable")
    y, v = (each.reshape(len(t), -1)[order] for each in (y, v))
    return Trajectory(
        t[order],
        y[:, :n],
        y[:, n : 2 * n],
        t[order],
        v[:, : bvp.m],
        bvp.multipliers(v),
        bvp.rate_costates(y),
        arcs.boundary_multiplier,
    )


_evaluate = jit_plainly(evaluate)
_dense_output = jit_plainly(dense_output)


def control_rates(arcs: Arcs, m: int) -> Float[np.ndarray, "arcs intervals s m"]:
    """Rates of change of the controls at the stages [1/s], from the collocation polynomials.

    **Arguments:** `arcs` of NumPy's arrays; `m`, number of controls.
    """
    s = arcs.stage.shape[2]
    nodes, _ = radau(s)
    slopes = np.arange(1.0, s) * nodes[:, None] ** np.arange(s - 1) @ to_monomials(s)[1:]
    rate = np.einsum("ij,akjm->akim", slopes, arcs.stage_v[..., :m])
    with np.errstate(divide="ignore", invalid="ignore"):
        return rate / arcs.interval_lengths[:, None, None, None]


@eqx.filter_jit
def tangent_output(bvp: BoundaryValueProblem, at: Evaluation, tangent: Problem) -> Output:
    """Change of the dense output with the problem's numbers; linear in `tangent`.

    The implicit function theorem on the boundary-value problem: J dw = -(dR/dp) dp.
    """
    numbers, rest = eqx.partition(bvp.problem, eqx.is_inexact_array)

    def conditions(numbers, arcs):
        moved = BoundaryValueProblem(eqx.combine(numbers, rest), bvp.plan, bvp.scales)
        there = evaluate(moved, arcs, with_jacobian=False)
        return residuals(moved, there), dense_output(moved, arcs, there.stages)

    change, direct = jax.jvp(lambda p: conditions(p, at.arcs), (numbers,), (tangent,))[1]
    step = newton_step(bvp, at, jax.tree.map(jnp.negative, change))
    _, through = jax.jvp(lambda w: conditions(numbers, w), (at.arcs,), (step,))[1]
    return jax.tree.map(jnp.add, direct, through)


@jax.custom_jvp
def without_derivatives(values: PyTree, numbers: PyTree) -> PyTree:
    """The values, with NaN as derivatives in the numbers, because there are none."""
    del numbers
    return values


@without_derivatives.defjvp
def _without_derivatives_jvp(primals, tangents):
    values, _ = primals
    lost = sum(jnp.sum(jnp.nan * change) for change in jax.tree.leaves(tangents[1]))
    return values, jax.tree.map(lambda value: jnp.full(value.shape, lost), values)
