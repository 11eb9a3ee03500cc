"""The Hamiltonian H = L + costate . f and its derivatives, which every step of the solver uses."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.ocp.problem import Problem


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


def expand(
    problem: Problem,
    x: Float[Array, " n"],
    u: Float[Array, " m"],
    costate: Float[Array, " n"],
) -> Expansion:
    """Expand the Hamiltonian to second order in states and controls.

    One forward sweep over a reverse sweep gives Jacobian and Hessian together, so the dynamics
    are traced once.

    **Arguments:** states `(n,)`, controls `(m,)`, costates `(n,)`.

    **Returns:** an [`Expansion`][]. Source: specs/000b, section 1.
    """
    n = problem.n

    def values(z):
        return problem.dynamics(z[:n], z[n:]), problem.cost_rate(z[:n], z[n:])

    def first_order(z):
        (f, cost), pullback = jax.vjp(values, z)
        (h_z,) = pullback((costate, jnp.ones_like(cost)))
        return (f, cost, h_z), (f, cost, h_z)

    z = jnp.concatenate([x, u])
    (f_z, cost_z, h_zz), (f, cost, h_z) = jax.jacfwd(first_order, has_aux=True)(z)
    return Expansion(f, cost, f_z, cost_z, h_z, h_zz)


def singular_expand(
    problem: Problem,
    x: Float[Array, " n"],
    costate: Float[Array, " n"],
    u: Float[Array, " m"],
):
    """First and second time derivative of the switching functions, with their Jacobians.

    The derivatives are taken along the Hamiltonian flow at constant controls. On a singular arc of
    order one the second derivative contains the control and determines it.

    **Arguments:** states `(n,)`, costates `(n,)`, controls `(m,)`.

    **Returns:** `(slope, bend)`, each `(m,)`, and their Jacobians `(m, 2n+m)` with respect to
    (x, costate, u). Source: specs/000b, section 1 (generalised Legendre-Clebsch condition).
    """
    n = problem.n

    def hamiltonian(x, costate, u):
        return problem.cost_rate(x, u) + costate @ problem.dynamics(x, u)

    def switching(y, u):
        return jax.grad(hamiltonian, argnums=2)(y[:n], y[n:], u)

    def flow(y, u):
        h_x, f = jax.grad(hamiltonian, argnums=(0, 1))(y[:n], y[n:], u)
        return jnp.concatenate([f, -h_x])

    def slope(y, u):
        return jax.jvp(lambda z: switching(z, u), (y,), (flow(y, u),))[1]

    def both(w):
        y, u = w[: 2 * n], w[2 * n :]
        values = jax.jvp(lambda z: slope(z, u), (y,), (flow(y, u),))
        return values, values

    w = jnp.concatenate([x, costate, u])
    jacobians, values = jax.jacfwd(both, has_aux=True)(w)
    return values, jacobians
