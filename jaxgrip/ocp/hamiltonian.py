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


def hamiltonian(
    problem: Problem,
    x: Float[Array, " n"],
    costate: Float[Array, " n"],
    u: Float[Array, " m"],
) -> Float[Array, ""]:
    """Hamiltonian L + costate . f at states `(n,)`, costates `(n,)`, controls `(m,)`."""
    return problem.cost_rate(x, u) + costate @ problem.dynamics(x, u)


def flow(
    problem: Problem, y: Float[Array, " y"], u: Float[Array, " m"]
) -> tuple[Float[Array, " y"], Float[Array, " m"]]:
    """Canonical equations and switching functions.

    **Arguments:** `y` = (x, costate) `(2n,)`, controls `(m,)`.

    **Returns:** the rate of y, (f, -H_x) `(2n,)`, and H_u `(m,)`. Source: specs/000b, section 1.
    """
    n = problem.n
    h_x, f, h_u = jax.grad(hamiltonian, argnums=(1, 2, 3))(problem, y[:n], y[n:], u)
    return jnp.concatenate([f, -h_x]), h_u


def switching_derivatives(
    problem: Problem, y: Float[Array, " y"], u: Float[Array, " m"]
) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
    """First and second time derivative of the switching functions at constant controls.

    On a singular arc of order one the second contains the control and so determines it.

    **Arguments:** `y` = (x, costate) `(2n,)`, controls `(m,)`.

    **Returns:** the two derivatives, each `(m,)`. Source: specs/000b, section 1 (generalised
    Legendre-Clebsch condition).
    """

    def along_flow(g):
        return lambda z: jax.jvp(g, (z,), (flow(problem, z, u)[0],))[1]

    slope = along_flow(lambda z: flow(problem, z, u)[1])
    return jax.jvp(slope, (y,), (flow(problem, y, u)[0],))
