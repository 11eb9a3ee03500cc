"""The solution object."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.interpolate import CubicHermiteSpline

from jaxgrip.ocp.certificate import Certificate
from jaxgrip.ocp.direct import DirectSolution
from jaxgrip.ocp.indirect import Extremal, Output
from jaxgrip.ocp.pipeline._results import RESULTS
from jaxgrip.ocp.statement import Problem, is_concrete
from jaxgrip.ocp.structure import Rule


class Structure(eqx.Module):
    """The structure of a solution.

    `kinds` `(arcs, m)`: -1 at the lower bound, +1 at the upper, 0 inside by the minimum of the
    Hamiltonian or because an active constraint determines the control, 2 inside on a singular arc,
    3 and 4 with the rate of change at its lower and upper bound; `active` `(arcs, c)`: whether a
    constraint holds with equality. At each switching time, `(arcs - 1,)`: `switching_controls`, the
    control that changes its kind, and `switching_constraints`, the constraint that begins or ends
    to be active or touches; -1 where there is none.
    """

    kinds: Int[np.ndarray, "arcs m"]
    active: Bool[np.ndarray, "arcs c"]
    switching_controls: Int[np.ndarray, " switches"]
    switching_constraints: Int[np.ndarray, " switches"]


class Solution(eqx.Module):
    """Solution of an optimal control problem.

    - `final_time` [s], `objective`, `switching_times` `(arcs - 1,)` [s], `structure`;
    - dense output `t` `(K,)` [s], `x` `(K, n)`, `x_rate` `(K, n)`, `u` `(K, m)`, `costate`
      `(K, n)`, `switching_function` `(K, m)` (dH/du), `hamiltonian` `(K,)`: each switching time
      stands twice in `t`, with the values from the left and from the right;
    - `multiplier` `(K, c)` of each constraint's first derivative that contains a control; `jumps`
      `(arcs - 1, P)`: at each switching time the costate falls by these parameters times the
      gradients of the constraint's lower derivatives; `rate_costate` `(K, m)` of controls whose
      rate is at a bound;
    - `design_variables` `(d,)`; `boundary_multiplier` `(b,)` of the boundary conditions;
    - `certificate`: every necessary condition with its measured value, None without an extremal;
    - `result`: a member of [`RESULTS`][]; `stats`: counts and times;
    - `origin`: "extremal", within all bounds except for an imposed structure, whose certificate
      names the bound; without one "transcription": times, states, controls, objective, design
      variables and boundary multipliers are those of a transcription, to its accuracy, and all
      else is NaN or empty; without a converged transcription "nothing": every number is NaN.
      Derivatives are NaN without an extremal.
    """

    final_time: Float[Array, ""]
    objective: Float[Array, ""]
    switching_times: Float[Array, " switches"]
    structure: Structure
    t: Float[Array, " K"]
    x: Float[Array, "K n"]
    x_rate: Float[Array, "K n"]
    u: Float[Array, "K m"]
    costate: Float[Array, "K n"]
    switching_function: Float[Array, "K m"]
    hamiltonian: Float[Array, " K"]
    multiplier: Float[Array, "K c"]
    jumps: Float[Array, "switches P"]
    rate_costate: Float[Array, "K m"]
    design_variables: Float[Array, " d"]
    boundary_multiplier: Float[Array, " b"]
    certificate: Certificate | None
    result: RESULTS
    stats: dict
    origin: str = eqx.field(static=True)

    def state_at(self, t: Float[np.ndarray, " T"]) -> Float[np.ndarray, "T n"]:
        """States `(T, n)` at times `(T,)` [s], by cubic Hermite interpolation; for pictures."""
        times, x, rate = (np.asarray(v) for v in (self.t, self.x, self.x_rate))
        t = np.clip(t, 0.0, times[-1])
        # Rates jump at the switches, where each time stands twice, so each arc has its own spline.
        cuts = [0, *(np.flatnonzero(np.diff(times) <= 0.0) + 1), len(times)]
        out = np.empty((len(t), x.shape[1]))
        for first, last in pairwise(cuts):
            inside = (t >= times[first]) & (t <= times[last - 1])
            piece = slice(first, last)
            out[inside] = CubicHermiteSpline(times[piece], x[piece], rate[piece])(t[inside])
        return out

    def control_at(self, t: Float[np.ndarray, " T"]) -> Float[np.ndarray, "T m"]:
        """Controls `(T, m)` at times `(T,)` [s], linear between the points of the output."""
        times, u = np.asarray(self.t), np.asarray(self.u)
        right = np.clip(np.searchsorted(times, t, side="right"), 1, len(times) - 1)
        span = times[right] - times[right - 1]
        share = np.where(span > 0.0, (t - times[right - 1]) / np.where(span > 0.0, span, 1.0), 0.0)
        share = np.clip(share, 0.0, 1.0)[:, None]
        return (1.0 - share) * u[right - 1] + share * u[right]


def as_failure(problem: Problem, result: RESULTS, last: DirectSolution, stats: dict) -> Solution:
    """The solution object of a failure, with the motion of a transcription if that converged."""
    n, d = problem.n_states, problem.n_design
    k, m, c = len(last.x), last.u.shape[1], last.constraint.shape[1]
    is_motion = bool(last.converged)

    def kept(values) -> Array:
        values = jnp.asarray(values)
        return values if is_motion else jnp.full(values.shape, jnp.nan)

    x, u = kept(last.x[:, :n]), kept(last.u)
    return Solution(
        final_time=kept(last.final_time),
        objective=kept(last.objective),
        switching_times=jnp.zeros(0),
        structure=Structure(
            np.zeros((0, m), dtype=int),
            np.zeros((0, c), dtype=bool),
            *(np.zeros((2, 0), dtype=int)),
        ),
        t=kept(last.t),
        x=x,
        x_rate=jnp.full(x.shape, jnp.nan),
        u=jnp.concatenate([u, u[-1:]]),
        costate=jnp.full(x.shape, jnp.nan),
        switching_function=jnp.full((k, m), jnp.nan),
        hamiltonian=jnp.full(k, jnp.nan),
        multiplier=jnp.full((k, c), jnp.nan),
        jumps=jnp.zeros((0, 0)),
        rate_costate=jnp.full((k, m), jnp.nan),
        design_variables=kept(last.x[0, n : n + d]),
        boundary_multiplier=kept(last.boundary_multiplier),
        certificate=None,
        result=result,
        stats=stats,
        origin="transcription" if is_motion else "nothing",
    )


def _structure(extremal: Extremal) -> Structure:
    """The structure of an extremal, without the subdivisions of its arcs."""
    bvp, plan = extremal.bvp, jax.tree.map(np.asarray, extremal.bvp.plan)
    cuts, c = np.flatnonzero(plan.is_switch), bvp.problem.n_constraints
    arcs = np.append(cuts, len(plan.is_switch))
    active = np.asarray(plan.active_among(c))
    changes = plan.kinds[cuts] != plan.kinds[cuts + 1]
    controls = np.where(changes.any(axis=1), changes.argmax(axis=1), -1)
    constraints = np.full(len(cuts), -1)
    if c:
        changes = active[cuts] != active[cuts + 1]
        constraints = np.where(changes.any(axis=1), changes.argmax(axis=1), -1)
        touching = plan.rule[cuts] == Rule.TOUCH
        constraints[touching] = plan.constraints.index[plan.jump_constraint[cuts][touching]]
    return Structure(plan.kinds[arcs], active[arcs], controls, constraints)


def as_solution(
    out: Output, extremal: Extremal, certificate: Certificate, result: RESULTS, stats: dict
) -> Solution:
    """The solution object of an extremal, with its dense output on one time axis."""
    bvp, problem = extremal.bvp, extremal.bvp.problem
    n, n_all, d, is_switch = problem.n_states, problem.n, problem.n_design, bvp.plan.is_switch
    known = is_concrete(out)
    if known:
        # JAX would compile every operation, again for another number of switches.
        out = jax.tree.map(np.asarray, out)
    cuts = np.flatnonzero(is_switch)
    # The start of an arc repeats the point before, which only a switch needs twice.
    keep = np.ones(out.t.shape, dtype=bool)
    keep[1:, 0] = is_switch
    keep = np.flatnonzero(keep)

    def rows(v):
        return v.reshape(v.shape[0] * v.shape[1], *v.shape[2:])[keep]

    y, y_rate, v = rows(out.y), rows(out.y_rate), rows(out.v)
    arrays = {
        "final_time": out.times[-1],
        "objective": out.objective,
        "switching_times": out.times[cuts],
        "t": rows(out.t),
        "x": y[:, :n],
        "x_rate": y_rate[:, :n],
        "u": v[:, : problem.m],
        "costate": y[:, n_all : n_all + n],
        "switching_function": rows(out.switching),
        "hamiltonian": rows(out.hamiltonian),
        "multiplier": bvp.multipliers(v),
        "jumps": out.jump[cuts],
        "rate_costate": bvp.rate_costates(y),
        "design_variables": y[0, n : n + d],
        "boundary_multiplier": out.boundary_multiplier,
    }
    return Solution(
        **(jax.device_put(arrays) if known else arrays),
        structure=_structure(extremal),
        certificate=certificate,
        result=result,
        stats=stats,
        origin="extremal",
    )
