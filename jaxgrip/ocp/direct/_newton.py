"""Newton step on the barrier problem: a linear-quadratic problem over the stages."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxgrip.ocp.direct._program import Inequalities, Iterate, Program
from jaxgrip.ocp.direct._riccati import LinearQuadratic, sweep
from jaxgrip.ocp.hamiltonian import Expansion
from jaxgrip.solve import dense


def primal_dual_step(
    program: Program,
    it: Iterate,
    ex: Expansion,
    inequalities: Inequalities,
    barrier: Float[Array, ""],
    regularisation: Float[Array, ""],
    end_regularisation: Float[Array, ""],
) -> tuple[Iterate, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
    """Newton step on the optimality conditions with perturbed complementarity.

    Slacks and multipliers of bounds and inequalities are eliminated; sigma = multiplier / slack is
    what they add to the Hessian.

    **Arguments:** `regularisation`, added to the Hessian, relative; `end_regularisation`,
    subtracted from the zero block of the end conditions: 1 where they cannot be met to first order,
    else 0.

    **Returns:** the step, the slope of the barrier objective along it, whether the reduced Hessian
    is positive definite, and whether the end conditions can be met.
    """
    problem, sizes, h = program.problem, program.sizes, program.h
    n, m, r, intervals = problem.n, problem.m, len(program.limited), program.intervals
    by_stage = h[:, None, None]
    weight = it.time * by_stage
    slacks = program.bound_slacks(it.x, it.u, it.time)
    bound_sigma = program.where_bounded(jax.tree.map(jnp.divide, it.bound_multipliers, slacks)).sums
    forces = program.where_bounded(jax.tree.map(lambda s: barrier / s, slacks)).differences
    shift = regularisation * sizes.objective
    metric = jnp.concatenate(
        [
            jnp.ones(n) / sizes.state**2,
            jnp.ones(r) / sizes.control[program.limited] ** 2,
            jnp.ones(m) / sizes.control**2,
        ]
    )
    # The stage's variables are (x at the midpoint, limited controls of the stage before, u).
    columns = np.concatenate([np.arange(n), n + r + np.arange(m)])
    of_controls = ((0, 0), (n + r, 0))
    jacobian, by_time = inequalities.jacobian, inequalities.by_time
    sigma = it.multiplier / it.slack
    violation = inequalities.value + it.slack
    force = barrier / it.slack + sigma * violation
    sigma_jacobian = sigma[:, :, None] * jacobian
    diagonal = shift * metric[None] + jnp.pad(bound_sigma[0], of_controls)
    hess = jax.vmap(jnp.diag)(diagonal) + jnp.einsum("kqs,kqv->ksv", sigma_jacobian, jacobian)
    hess *= by_stage
    hess = hess.at[:, columns[:, None], columns[None]].add(
        weight * ex.h_zz + by_stage * inequalities.hessian
    )
    own = jnp.zeros((intervals, n + r + m)).at[:, columns].set(weight[:, 0] * ex.cost_z)
    own += h[:, None] * jnp.pad(forces[0], of_controls)
    grad = own + h[:, None] * jnp.einsum("kq,kqs->ks", force, jacobian)
    # Quadratic model of a stage in these, time and 1.
    cross = h[:, None] * jnp.einsum("kqs,kq->ks", sigma_jacobian, by_time)
    cross = cross.at[:, columns].add(h[:, None] * ex.h_z)
    time_grad = (h * (ex.cost + jnp.sum(force * by_time, axis=1)))[:, None, None]
    time_hess = (h * jnp.sum(sigma * by_time**2, axis=1))[:, None, None]
    model = jnp.concatenate(
        [
            jnp.concatenate([hess, cross[:, :, None], grad[:, :, None]], axis=2),
            jnp.concatenate([cross[:, None, :], time_hess, time_grad], axis=2),
            jnp.concatenate([grad[:, None, :], time_grad, jnp.zeros_like(time_grad)], axis=2),
        ],
        axis=1,
    )
    # Linearised midpoint rule, solved for the next state, as a map of (x, before, u, time, 1).
    eye = jnp.eye(n)[None]
    half = 0.5 * weight * ex.f_z[:, :, :n]
    defect = it.x[:-1] + weight[:, 0] * ex.f - it.x[1:]
    right = [
        eye + half,
        jnp.zeros((intervals, n, r)),
        weight * ex.f_z[:, :, n:],
        by_stage * ex.f[:, :, None],
        defect[:, :, None],
    ]
    move = dense.solve(eye - half, jnp.concatenate(right, axis=2))
    width = n + r + m + 2
    identity = jnp.eye(width)
    midpoint = 0.5 * (move + identity[None, :n])
    others = jnp.broadcast_to(identity[n:], (intervals, width - n, width))
    to_model = jnp.concatenate([midpoint, others], axis=1)
    stage = jnp.einsum("kia,kij,kjb->kab", to_model, model, to_model)
    # Further parameters: the free components of the first state, multipliers of the ends.
    n_free = len(program.free)
    n_multipliers = len(problem.fixed_final) + problem.n_boundary
    more = n_free + n_multipliers
    handed_on = jnp.broadcast_to(identity[n + r + program.limited], (intervals, r, width))
    move = jnp.concatenate([move, handed_on], axis=1)
    lq = LinearQuadratic(
        jnp.zeros((n + r, 2 + more)).at[program.free, 2 + np.arange(n_free)].set(1.0),
        jnp.pad(stage, ((0, 0), (0, more), (0, more))),
        jnp.pad(move, ((0, 0), (0, 0), (0, more))),
        _end_model(program, it, forces, bound_sigma, shift, end_regularisation),
    )
    solved = sweep(lq, is_time_free=problem.is_time_free, n_multipliers=n_multipliers)
    dx, before = solved.x[:, :n], solved.x[:-1, n:]
    du, dt = solved.u, solved.parameters[0]
    # The midpoint rule weighs the next state in its own stage, so the multiplier of the defect is
    # the gradient of the cost to go plus half the stage's gradient.
    dx_mid = 0.5 * (dx[1:] + dx[:-1])
    change = jnp.concatenate([dx_mid, before, du], axis=1)
    parameters = jnp.broadcast_to(solved.parameters[:2], (intervals, 2))
    point = jnp.concatenate([change, parameters], axis=1)
    stage_x = jnp.einsum("kij,kj->ki", model[:, :n], point)
    costate = dense.solve(
        jnp.swapaxes(eye - half, 1, 2), (solved.value_x[:, :n] + 0.5 * stage_x)[:, :, None]
    )[:, :, 0]
    costate = jnp.concatenate([costate[:1], costate])
    d_value = jnp.einsum("kqs,ks->kq", jacobian, change) + by_time * dt
    d_slack = -violation - d_value
    d_multiplier = barrier / it.slack - sigma * d_slack - it.multiplier
    d_bound_multipliers = jax.tree.map(
        lambda z, s, ds: (barrier - z * ds) / s - z,
        it.bound_multipliers,
        slacks,
        program.bound_slack_changes(dx, du, dt),
    )
    boundary = solved.parameters[2 + more - problem.n_boundary :] / sizes.boundary
    cost_t, cost_x = jax.grad(problem.end_cost, argnums=(0, 1))(it.time, it.x[-1])
    slope = (
        jnp.sum(own * change)
        - barrier * jnp.sum(h[:, None] * d_slack / it.slack)
        + dt * (jnp.sum(h * ex.cost) + forces[1] + cost_t)
        + cost_x @ dx[-1]
        + forces[2] @ dx[0, program.free]
    )
    step = Iterate(
        dx,
        du,
        dt,
        costate - it.costate,
        boundary - it.boundary_multiplier,
        program.where_bounded(d_bound_multipliers),
        d_slack,
        d_multiplier,
    )
    return step, slope, solved.ok & jnp.isfinite(slope), solved.in_reach


def _end_model(
    program: Program,
    it: Iterate,
    forces: tuple[Array, Array, Array],
    bound_sigma: tuple[Array, Array, Array],
    shift: Array,
    end_regularisation: Array,
) -> Array:
    """Quadratic model of the ends in (x_N, limited controls, time, 1, free components of x_0,
    multipliers).
    """
    problem, sizes, free = program.problem, program.sizes, program.free
    n, r, n_free = problem.n, len(program.limited), len(free)

    def ends(z):
        return it.x[0].at[free].set(z[n + 1 :]), z[n], z[:n]

    def end_cost(z):
        _, time, end = ends(z)
        return problem.end_cost(time, end)

    z = jnp.concatenate([it.x[-1], it.time[None], it.x[0, free]])
    errors = program.end_errors(*ends(z))
    errors_z = jax.jacfwd(lambda z: program.end_errors(*ends(z)))(z)
    linear = jax.grad(end_cost)(z).at[n:].add(jnp.append(*forces[1:]))
    hess = jax.hessian(lambda z: problem.end_function(*ends(z), it.boundary_multiplier))(z)
    diagonal = jnp.append(*bound_sigma[1:])
    diagonal += shift / jnp.append(sizes.time, sizes.state[free]) ** 2
    # A penalty on the end state changes no solution but keeps the sweep's pivots positive.
    penalty = 1e2 * sizes.objective
    hess = hess + jnp.diag(jnp.pad(diagonal, (n, 0))) + penalty * errors_z.T @ errors_z
    linear += penalty * errors_z.T @ errors
    model = jnp.block(
        [
            [hess, linear[:, None], errors_z.T],
            [linear[None], jnp.zeros((1, 1)), errors[None]],
            [errors_z, errors[:, None], -end_regularisation / penalty * jnp.eye(len(errors))],
        ]
    )
    # The last values of the limited controls cost nothing; the 1 follows the time.
    after = n + r + 2
    columns = np.concatenate(
        [
            np.arange(n),
            [n + r],
            after + np.arange(n_free),
            [n + r + 1],
            after + n_free + np.arange(len(errors)),
        ]
    )
    return jnp.zeros((len(columns) + r,) * 2).at[columns[:, None], columns[None]].set(model)
