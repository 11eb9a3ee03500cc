"""Measurements of an extremal by the problem's functions: motion integrated anew, violations."""

from typing import NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float

from jaxgrip.ocp.hamiltonian import constraint_sizes, hamiltonian
from jaxgrip.ocp.indirect import (
    Arcs,
    BoundaryValueProblem,
    EndGradients,
    end_gradients,
    to_monomials,
)


class Measurements(NamedTuple):
    """Measurements of an extremal.

    `x_end` `(n,)`, the scaled state at the end, and `costate_gap` `(n,)`, the largest scaled gap of
    each costate at an arc's end, both re-integrated; `boundary` `(b,)`, scaled errors of the
    boundary conditions there; `gradients` at the ends, without the Hamiltonian; `violation` `(c,)`,
    the largest value of each of the problem's constraints, or magnitude where it is active,
    relative to its change by states and controls.
    """

    x_end: Float[ArrayLike, " n"]
    costate_gap: Float[ArrayLike, " n"]
    boundary: Float[ArrayLike, " b"]
    gradients: EndGradients
    violation: Float[ArrayLike, " c"]


def measure(bvp: BoundaryValueProblem, arcs: Arcs) -> Measurements:
    """Evaluate the problem's functions for the certificate of converged arcs; pure JAX."""
    problem, plan, scales, n, m = bvp.problem, bvp.plan, bvp.scales, bvp.n, bvp.m
    x_end, costate_gap = _reintegrate(bvp, arcs)
    boundary = problem.boundary(arcs.start[0, :n], arcs.times[-1], scales.y[:n] * x_end)
    violation = jnp.zeros(0)
    if problem.n_constraints:
        x, u = arcs.stage[..., :n].reshape(-1, n), arcs.stage_v[..., :m].reshape(-1, m)
        size = constraint_sizes(problem, x, u, scales.y[:n], scales.v[:m])
        value = jax.vmap(problem.constraints)(x, u) / size[None]
        value = value.reshape(*arcs.stage.shape[:3], problem.n_constraints)
        is_active = plan.active_among(problem.n_constraints)[:, None, None]
        violation = jnp.max(jnp.where(is_active, jnp.abs(value), value), axis=(0, 1, 2))
    return Measurements(
        x_end,
        costate_gap,
        boundary / scales.boundary,
        end_gradients(problem, *arcs.ends, jnp.zeros(())),
        violation,
    )


def _reintegrate(bvp: BoundaryValueProblem, arcs: Arcs):
    """Integrate anew with Dormand and Prince's method of order eight and the reported controls.

    The states run on from the start; the costates, whose equation may be unstable forwards, start
    from the solution's on every arc.
    """
    problem, n, m = bvp.problem, bvp.n, bvp.m
    k, s = arcs.stage_v.shape[1:3]
    size = bvp.scales.y[: 2 * n]
    powers = np.arange(float(s))
    polynomials = jnp.einsum("ij,akjv->akiv", jnp.asarray(to_monomials(s)), arcs.stage_v)

    def rate(t, z, args):
        h, polynomial = args
        x, costate = jnp.split(z * size, 2)
        v = t**powers @ polynomial
        by_x, by_costate = jax.grad(
            lambda x, costate: hamiltonian(problem, bvp.plan.constraints, x, v[:m], costate, v[m:]),
            argnums=(0, 1),
        )(x, costate)
        return h * jnp.concatenate([by_costate, -by_x]) / size

    def interval(z, inputs):
        run = diffrax.diffeqsolve(
            diffrax.ODETerm(rate),
            diffrax.Dopri8(),
            t0=0.0,
            t1=1.0,
            dt0=0.5,
            y0=z,
            args=inputs,
            stepsize_controller=diffrax.PIDController(rtol=1e-12, atol=1e-13),
            adjoint=diffrax.ForwardMode(),
            throw=False,
        )
        succeeded = run.result == diffrax.RESULTS.successful
        return jnp.where(succeeded, run.ys[-1], jnp.nan), None

    def arc(x, inputs):
        start, end, h, polynomial = inputs
        lengths = jnp.broadcast_to(h, (k,))
        z, _ = jax.lax.scan(interval, jnp.concatenate([x, start[n:]]), (lengths, polynomial))
        return z[:n], jnp.abs(z[n:] - end[n:])

    starts, ends = arcs.start[:, : 2 * n] / size[None], arcs.stage[:, -1, -1, : 2 * n] / size[None]
    inputs = (starts, ends, arcs.interval_lengths, polynomials)
    x, gaps = jax.lax.scan(arc, starts[0, :n], inputs)
    return x, jnp.max(gaps, axis=0)
