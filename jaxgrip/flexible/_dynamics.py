"""Equations of motion of a tree with elastic bodies.

The inertia force on each body is the rate of its momenta in its moving frame, minus the derivative
of its kinetic energy with respect to its elastic coordinates; the transposed velocity maps project
the forces onto the coordinates. These are Lagrange's equations of this kinetic energy.
"""

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from jaxgrip.checks import check_shape
from jaxgrip.flexible._bodies import (
    Bodies,
    bodies,
    collect,
    frame_forces,
    geometry,
    inertias,
    spread,
    velocities,
)
from jaxgrip.flexible._tree import FlexibleTree
from jaxgrip.solve import dense


def check_state(model: FlexibleTree, **values: Array) -> None:
    """Raise `ValueError` unless arrays are (k,) if their name begins with eta, else (n,)."""
    for name, x in values.items():
        check_shape(name, x, (model.k if name.startswith("eta") else model.n,))


def body_rates(b: Bodies, velocity: Array, rates: Array) -> Float[Array, "bodies speeds c"]:
    """Velocities of the bodies and rates of their elastic coordinates, from (n + k, c)."""
    return jnp.concatenate([velocity, spread(b, rates[b.n :])], axis=1)


def _mass_matrix(b: Bodies, q: Array, eta: Array) -> Array:
    unit = jnp.eye(len(q) + len(eta))
    velocity = velocities(b, geometry(b, q, eta), unit, jnp.zeros((3, len(unit))))
    jacobian = body_rates(b, velocity, unit)
    weighted = inertias(b, spread(b, eta)) @ jacobian
    total = jnp.tensordot(jacobian, weighted, ([0, 1], [0, 1]))
    return 0.5 * (total + total.T)


@jax.jit
def mass_matrix(
    model: FlexibleTree, q: Float[Array, " n"], eta: Float[Array, " k"]
) -> Float[Array, "z z"]:
    """Mass matrix, joints first.

    **Arguments:** `model`; `q` (n,) joint coordinates [rad or m]; `eta` (k,) elastic ones.

    **Returns:** (n+k, n+k), symmetric and positive definite.

    **Raises:** `ValueError` for a wrong shape.

    Source: Shabana 2013, chapter 5.
    """
    check_state(model, q=q, eta=eta)
    return _mass_matrix(bodies(model), q, eta)


def _inverse(
    b: Bodies, q: Array, eta: Array, qd: Array, etad: Array, accelerations: Array
) -> Array:
    """Generalised forces (n + k,), joints first."""
    n = b.n
    still = jnp.zeros((3, 1))
    rates = jnp.concatenate([qd, etad])

    def speeds(x, rates, base):
        poses = geometry(b, x[:n], x[n:])
        velocity = velocities(b, poses, rates[:, None], base)
        return body_rates(b, velocity, rates[:, None])[..., 0], poses

    # Gravity acts as an upward acceleration of the base.
    (speed, poses), (change, _) = jax.jvp(
        speeds,
        (jnp.concatenate([q, eta]), rates, still),
        (rates, accelerations, -b.gravity[:, None]),
    )
    x, xd = spread(b, eta), spread(b, etad)

    def momenta(x, speed):
        return jnp.einsum("bij,bj->bi", inertias(b, x), speed)

    momentum, rate = jax.jvp(momenta, (x, speed), (xd, change))
    by_shape = jax.grad(lambda x: 0.5 * jnp.vdot(speed, momenta(x, speed)))(x)
    internal = jnp.einsum("bij,bj->bi", b.stiffness, x) + jnp.einsum("bij,bj->bi", b.damping, xd)
    force = rate[:, :6] + frame_forces(speed[:, :6], momentum[:, :6])
    (total,) = jax.linear_transpose(
        lambda r: velocities(b, poses, r[:, None], still)[..., 0], rates
    )(force)
    elastic = collect(b, rate[:, 6:] - by_shape + internal)
    return total + jnp.concatenate([jnp.zeros_like(q), elastic])


@jax.jit
def inverse_dynamics(
    model: FlexibleTree,
    q: Float[Array, " n"],
    eta: Float[Array, " k"],
    qd: Float[Array, " n"],
    etad: Float[Array, " k"],
    qdd: Float[Array, " n"],
    etadd: Float[Array, " k"],
) -> tuple[Float[Array, " n"], Float[Array, " k"]]:
    """Forces that cause the accelerations.

    **Arguments:**

    - `model`: the tree with its elastic links.
    - `q`, `qd`, `qdd`: (n,) joint coordinates [rad or m], rates and accelerations.
    - `eta`, `etad`, `etadd`: (k,) elastic coordinates, rates and accelerations.

    **Returns:** joint torques (n,) [N m or N] and external forces (k,) on the elastic coordinates,
    which are zero in a free motion.

    **Raises:** `ValueError` for a wrong shape.
    """
    check_state(model, q=q, eta=eta, qd=qd, etad=etad, qdd=qdd, etadd=etadd)
    total = _inverse(bodies(model), q, eta, qd, etad, jnp.concatenate([qdd, etadd]))
    return total[: model.n], total[model.n :]


def _solve(b: Bodies, q: Array, eta: Array, force: Array) -> Array:
    return dense.solve(_mass_matrix(b, q, eta), force, positive=True)


@jax.custom_jvp
def accelerations(
    b: Bodies, q: Array, eta: Array, qd: Array, etad: Array, force: Array
) -> Float[Array, " z"]:
    """Accelerations under generalised forces (n + k,), with the implicit derivative."""
    bias = _inverse(b, q, eta, qd, etad, jnp.zeros_like(force))
    return _solve(b, q, eta, force - bias)


def _implicit(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    b, q, eta, _, _, force = primals
    out = accelerations(*primals)
    leaves, structure = jax.tree.flatten(primals[:5])
    rates = jax.tree.leaves(tangents[:5], is_leaf=lambda x: isinstance(x, SymbolicZero))
    moving = [k for k, t in enumerate(rates) if not isinstance(t, SymbolicZero)]
    change = jnp.zeros_like(force) if isinstance(tangents[5], SymbolicZero) else tangents[5]
    if moving:

        def residual(*values: Array) -> Array:
            whole = list(leaves)
            for k, value in zip(moving, values, strict=True):
                whole[k] = value
            return _inverse(*jax.tree.unflatten(structure, whole), out)

        change = (
            change
            - jax.jvp(residual, tuple(leaves[k] for k in moving), tuple(rates[k] for k in moving))[
                1
            ]
        )
    return out, _solve(b, q, eta, change)


accelerations.defjvp(_implicit, symbolic_zeros=True)


@jax.jit
def forward_dynamics(
    model: FlexibleTree,
    q: Float[Array, " n"],
    eta: Float[Array, " k"],
    qd: Float[Array, " n"],
    etad: Float[Array, " k"],
    tau: Float[Array, " n"],
) -> tuple[Float[Array, " n"], Float[Array, " k"]]:
    """Accelerations under joint torques, which act between a body and its parent's face.

    Derivatives, in both modes, are implicit.

    **Arguments:**

    - `model`: the tree with its elastic links.
    - `q`, `qd`: (n,) joint coordinates [rad or m] and rates.
    - `eta`, `etad`: (k,) elastic coordinates and rates.
    - `tau`: (n,) [N m or N].

    **Returns:** accelerations (n,) of the joints and (k,) of the elastic coordinates.

    **Raises:** `ValueError` for a wrong shape.
    """
    check_state(model, q=q, eta=eta, qd=qd, etad=etad, tau=tau)
    force = jnp.concatenate([tau, jnp.zeros_like(eta)])
    out = accelerations(bodies(model), q, eta, qd, etad, force)
    return out[: model.n], out[model.n :]


@jax.jit
def quasi_static(
    model: FlexibleTree,
    q: Float[Array, " n"],
    qd: Float[Array, " n"],
    qdd: Float[Array, " n"],
) -> Float[Array, " k"]:
    """Static elastic coordinates under the loads of a rigid motion, as of very stiff links.

    **Arguments:** `model`; `q`, `qd`, `qdd`: (n,) of the rigid motion.

    **Returns:** (k,).

    **Raises:** `ValueError` for a wrong shape.

    Source: Schanzer 2007, eq. 4.47, pp. 56-57, without vibration.
    """
    rest = jnp.zeros(model.k)
    _, load = inverse_dynamics(model, q, rest, qd, rest, qdd, rest)
    parts = zip(model.links, model.slices, strict=True)
    solved = [dense.solve(link.stiffness, -load[part], positive=True) for link, part in parts]
    return jnp.concatenate(solved)
