"""The Hamiltonian H = L + costate . f, its derivatives and the switching functions H_u."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.ocp.statement import Problem


class SelfExpanding(Protocol):
    """Dynamics with a second-order expansion of their own that is cheaper than the general one.

    For mechanical systems, differentiating inverse dynamics and solving with the mass matrix is a
    much smaller program than differentiating forward dynamics twice. The class that defines
    `__call__` must also define `expand`; a class that overrides only `__call__` is expanded in the
    general way.
    """

    def expand(
        self, x: Float[Array, " n"], u: Float[Array, " m"], costate: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, "n z"], Float[Array, "z z"]]:
        """f `(n,)`, its Jacobian `(n, n+m)` in (x, u) and the Hessian of costate . f there."""


def _expands_itself(dynamics) -> TypeGuard[SelfExpanding]:
    for cls in type(dynamics).__mro__:
        if "__call__" in vars(cls):
            return "expand" in vars(cls)
    return False


class Expansion(NamedTuple):
    """Second-order expansion of the Hamiltonian at one point; z = (x, u) has n + m entries.

    `f` state rates `(n,)`; `cost` running cost; `f_z` `(n, n+m)`; `cost_z` `(n+m,)`;
    `h_z` gradient of H `(n+m,)`; `h_zz` Hessian of H `(n+m, n+m)`.
    """

    f: Float[Array, " n"]
    cost: Float[Array, ""]
    f_z: Float[Array, "n z"]
    cost_z: Float[Array, " z"]
    h_z: Float[Array, " z"]
    h_zz: Float[Array, "z z"]


def with_hessian(
    function: Callable, z: Float[Array, " z"], weights: Float[Array, " k"]
) -> tuple[Float[Array, " k"], Float[Array, "k z"], Float[Array, "z z"]]:
    """Value `(k,)`, Jacobian `(k, z)` and weighted Hessian `(z, z)` of a function in one sweep."""

    def first_order(z):
        value, pullback = jax.vjp(function, z)
        (gradient,) = pullback(weights)
        return (value, gradient), value

    (jacobian, hessian), value = jax.jacfwd(first_order, has_aux=True)(z)
    return value, jacobian, hessian


# Traced once for all programs.
@eqx.filter_jit
def expand(
    problem: Problem,
    x: Float[Array, " n"],
    u: Float[Array, " m"],
    costate: Float[Array, " n"],
) -> Expansion:
    """Expand the Hamiltonian to second order in states and controls.

    **Arguments:** states `(n,)`, controls `(m,)`, costates `(n,)`.

    **Returns:** an [`Expansion`][].

    Source: Schanzer 2007, section 5.2, pp. 62-66.
    """
    n = problem.n
    z = jnp.concatenate([x, u])
    if _expands_itself(problem.dynamics):
        f, f_z, h_zz = problem.dynamics.expand(x, u, costate)
    else:
        f, f_z, h_zz = with_hessian(lambda z: problem.dynamics(z[:n], z[n:]), z, costate)
    if problem.running_cost is None:
        cost, cost_z = problem.cost_rate(x, u), jnp.zeros_like(z)
    else:
        cost, cost_z, cost_zz = with_hessian(
            lambda z: problem.cost_rate(z[:n], z[n:])[None], z, jnp.ones(1)
        )
        cost, cost_z, h_zz = cost[0], cost_z[0], h_zz + cost_zz
    return Expansion(f, cost, f_z, cost_z, cost_z + costate @ f_z, h_zz)


def hamiltonian_flow(
    problem: Problem, y: Float[Array, " y"], u: Float[Array, " m"]
) -> Float[Array, " y"]:
    """Canonical equations: rate (f, -H_x) `(2n,)` of y = (x, costate) `(2n,)` at controls `(m,)`.

    Source: Schanzer 2007, section 5.2, pp. 62-66.
    """
    n = problem.n
    h_x, f = jax.grad(
        lambda x, costate: problem.cost_rate(x, u) + costate @ problem.dynamics(x, u),
        argnums=(0, 1),
    )(y[:n], y[n:])
    return jnp.concatenate([f, -h_x])


def switching(problem: Problem, y: Float[Array, " y"], u: Float[Array, " m"]) -> Float[Array, " m"]:
    """Switching functions H_u `(m,)` at y = (x, costate) `(2n,)` and controls `(m,)`.

    Source: Schanzer 2007, section 5.2, pp. 62-66.
    """
    n = problem.n
    (cost, _), pullback = jax.vjp(
        lambda u: (problem.cost_rate(y[:n], u), problem.dynamics(y[:n], u)), u
    )
    return pullback((jnp.ones_like(cost), y[n:]))[0]


def switching_derivative(
    problem: Problem, j: int, order: int, y: Float[Array, " y"], u: Float[Array, " m"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Time derivative of order `2 order` of one switching function, and its gradient in u_j.

    It is the first that contains the control on a singular arc of that order.

    **Arguments:** the control `j`; `y` = (x, costate) `(2n,)`; controls `(m,)`, constant in time.

    **Returns:** the derivative and its slope. Source: McDanell 1971.
    """

    def derivative(order, y, u):
        if order == 0:
            return switching(problem, y, u)[j]
        flow = hamiltonian_flow(problem, y, u)
        return jax.jvp(lambda y: derivative(order - 1, y, u), (y,), (flow,))[1]

    value, slope = jax.value_and_grad(partial(derivative, 2 * order), argnums=1)(y, u)
    return value, slope[j]


def switching_rate(
    problem: Problem, y: Float[Array, " y"], u: Float[Array, " m"]
) -> Float[Array, " m"]:
    """Time derivative `(m,)` of the switching functions H_u at constant controls.

    **Arguments:** `y` = (x, costate) `(2n,)`, controls `(m,)`.

    Source: Schanzer 2007, section 5.3, pp. 66-69.
    """
    if _expands_itself(problem.dynamics):
        # H_ux f - f_u^T H_x, without differentiating the dynamics twice.
        n = problem.n
        ex = expand(problem, y[:n], u, y[n:])
        return ex.h_zz[n:, :n] @ ex.f - ex.h_z[:n] @ ex.f_z[:, n:]
    rate = hamiltonian_flow(problem, y, u)
    return jax.jvp(lambda y: switching(problem, y, u), (y,), (rate,))[1]


def kelley(
    problem: Problem, j: int, y: Float[Array, " y"], u: Float[Array, " m"]
) -> Float[Array, ""]:
    """Derivative in u_j of the second time derivative of its switching function.

    On a singular arc of order one it is not zero, and by Kelley's condition not positive. It is the
    slope of [`switching_derivative`][] of order one in a much smaller program, since the first time
    derivative does not depend on the control.

    **Arguments:** the control `j`; `y` = (x, costate) `(2n,)`, controls `(m,)`.
    """
    n, direction = problem.n, jnp.zeros_like(u).at[j].set(1.0)
    if _expands_itself(problem.dynamics):
        ex = expand(problem, y[:n], u, y[n:])
        rate_u = jnp.concatenate([ex.f_z[:, n + j], -ex.h_zz[:n, n + j]])
    else:
        rate_u = jax.jvp(lambda u: hamiltonian_flow(problem, y, u), (u,), (direction,))[1]
    return jax.jvp(lambda y: switching_rate(problem, y, u)[j], (y,), (rate_u,))[1]
