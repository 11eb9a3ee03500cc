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
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from optimistix import max_norm

from jaxgrip.ocp.indirect._boundary_value_problem import Arcs, BoundaryValueProblem
from jaxgrip.ocp.indirect._conditions import Stages, evaluate, residuals
from jaxgrip.ocp.indirect._newton import newton_step
from jaxgrip.solve.fusion import jit_plainly


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


class _Iterate(NamedTuple):
    """Values at `stages`, the largest scaled residual `norm`, and the Newton `step`."""

    stages: Stages
    norm: Float[Array, ""]
    step: Arcs


@jit_plainly
def iterate(bvp: BoundaryValueProblem, arcs: Arcs) -> _Iterate:
    """All that one Newton step needs at `arcs`."""
    at = evaluate(bvp, arcs)
    residual = residuals(bvp, at)
    step = newton_step(bvp, at, jax.tree.map(jnp.negative, residual))
    return _Iterate(at.stages, max_norm(residual), step)


@jit_plainly
def _residual(bvp: BoundaryValueProblem, arcs: Arcs) -> Float[Array, ""]:
    """The largest scaled residual, from first derivatives alone."""
    return max_norm(residuals(bvp, evaluate(bvp, arcs, with_jacobian=False)))


_SMALLEST_STEP = 1e-3
# Shares of the final time: an arc may seem shorter than none by rounding; and by how much an event
# overtakes another one before the iteration stops.
_ROUNDING, _OVERTAKEN = 1e-9, 1e-7


def solve_shooting(
    bvp: BoundaryValueProblem,
    solver: Shooting,
    arcs: Arcs,
    may_overtake: Bool[np.ndarray, " arcs"] | None = None,
) -> Shot:
    """Damped Newton on the multipoint boundary-value problem, steered from the host.

    A step is halved until the scaled residual does not grow. Below the tolerance the iteration
    goes on until rounding stops it, since the last digits cost one step.

    **Arguments:** the problem; `solver`; starting `arcs`; `may_overtake`, whether the end of each
    arc may come before its beginning on the way, all by default: for other arcs, which
    [`overtaken`][] then returns, the iteration stops where that happens.

    **Returns:** a [`Shot`][].

    Source: Schanzer 2007, section 5.4.2, pp. 70-72.
    """
    at = iterate(bvp, arcs)
    norm, steps = float(at.norm), 1
    while np.isfinite(norm) and steps < solver.max_steps:
        if not np.all(np.isfinite(at.step.times)):
            break
        size = 1.0 if may_overtake is None else _in_order(arcs, at.step, may_overtake)
        is_cut, there = size < 1.0, None
        if is_cut:
            new, new_norm = _part(bvp, arcs, at.step, size)
        else:
            # Most steps are whole ones, which need the next iterate anyway.
            new = jax.device_put(jax.tree.map(np.add, arcs, at.step))
            there = iterate(bvp, new)
            new_norm = float(there.norm)
        if norm < solver.tolerance and (is_cut or not new_norm < norm):
            break
        while not new_norm < norm and size > _SMALLEST_STEP:
            size *= 0.5
            is_cut, there = False, None
            new, new_norm = _part(bvp, arcs, at.step, size)
        if not new_norm < norm:
            break
        arcs, steps = new, steps + 1
        if is_cut:
            break
        at = iterate(bvp, new) if there is None else there
        norm = float(at.norm)
    return Shot(arcs, at.stages, at.norm, np.array(steps), np.array(norm < solver.tolerance))


def _part(bvp: BoundaryValueProblem, arcs: Arcs, step: Arcs, size: float) -> tuple[Arcs, float]:
    """The arcs after a part of a step, and the residual there."""
    new = jax.device_put(jax.tree.map(lambda v, d: np.add(v, size * np.asarray(d)), arcs, step))
    return new, float(_residual(bvp, new))


def _in_order(arcs: Arcs, step: Arcs, may_overtake: Bool[np.ndarray, " arcs"]) -> float:
    """The part of a step after which the first arc has no length, and a little more; 1 if none."""
    times, change = np.asarray(arcs.times), np.diff(np.asarray(step.times), prepend=0.0)
    lengths = np.maximum(np.diff(times, prepend=0.0), 0.0)
    ends = ~may_overtake & (lengths + change < -_ROUNDING * times[-1])
    parts = (lengths[ends] + _OVERTAKEN * times[-1]) / -change[ends]
    return float(np.min(parts, initial=1.0))


def overtaken(arcs: Arcs, may_overtake: Bool[np.ndarray, " arcs"]) -> Int[np.ndarray, " k"]:
    """The arcs that end before they begin, but may not."""
    times = np.asarray(arcs.times)
    is_turned = np.diff(times, prepend=0.0) < -_ROUNDING * times[-1]
    return np.flatnonzero(is_turned & ~may_overtake)
