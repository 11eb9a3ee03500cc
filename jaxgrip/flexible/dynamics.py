"""Equations of motion of a tree with elastic bodies.

The inertia force on each body is the rate of its momenta in its moving frame less the derivative
of its kinetic energy by its elastic coordinates; the transposed velocities take the forces to the
coordinates. These are Lagrange's equations exactly, for the kinetic energy as it stands.
"""

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from jaxgrip.checks import check_shape
from jaxgrip.flexible.sweeps import (
    body_inertia,
    body_inertias,
    crossing,
    elastic_parts,
    placements,
    velocities,
)
from jaxgrip.flexible.tree import FlexibleTree, moments


def check_state(model: FlexibleTree, **values: Array) -> None:
    """Raise `ValueError` unless q, qd and the like are (n,), eta and the like (k,)."""
    for name, x in values.items():
        check_shape(name, x, (model.k if name.startswith("eta") else model.n,))


@jax.jit
def mass_matrix(
    model: FlexibleTree, q: Float[Array, " n"], eta: Float[Array, " k"]
) -> Float[Array, "n+k n+k"]:
    """Mass matrix, joints first.

    **Arguments:** `model`; `q` (n,) joint coordinates [rad or m]; `eta` (k,) elastic ones.

    **Returns:** (n+k, n+k), symmetric and positive definite.

    **Raises:** `ValueError` for another shape.

    Source: Shabana, Dynamics of Multibody Systems, section 5.4.
    """
    check_state(model, q=q, eta=eta)
    size = model.n + model.k
    unit = jnp.eye(size)
    speeds = velocities(model, placements(model, q, eta), unit, jnp.zeros((3, size)))
    total = jnp.zeros((size, size))
    inertias = body_inertias(model, eta)
    rates = elastic_parts(model, unit[model.n :])
    for body, (w, v), (_, own) in zip(inertias, speeds, rates, strict=True):
        h, p, modal = body.momentum(w, v, own)
        total = total + w.T @ h + v.T @ p
        if own is not None:
            total = total + own.T @ modal
    return 0.5 * (total + total.T)


def _inverse(
    model: FlexibleTree, q: Array, eta: Array, qd: Array, etad: Array, accelerations: Array
) -> Array:
    """Generalised forces (n + k,), joints first."""
    n = model.n
    rates = jnp.concatenate([qd, etad])
    still = jnp.zeros(3)

    def speeds(x, rates, base):
        places = placements(model, x[:n], x[n:])
        return velocities(model, places, rates, base), places

    # Gravity is a base that accelerates upward.
    (speed, places), (change, _) = jax.jvp(
        speeds,
        (jnp.concatenate([q, eta]), rates, still),
        (rates, accelerations, -model.tree.gravity),
    )
    first, second = moments(model.tree)
    parts = elastic_parts(model, jnp.stack([eta, etad, accelerations[n:]], axis=1))
    forces, elastic = [], []
    for i, ((w, v), (wd, vd), (link, own)) in enumerate(zip(speed, change, parts, strict=True)):
        known = (model.tree.mass[i], first[i], second[i], link)
        if link is None:
            body = body_inertia(*known, None)
            h, p, _ = body.momentum(w, v, None)
            hd, pd, _ = body.momentum(wd, vd, None)
        else:
            x, xd, xdd = own.T

            def momentum(x, w, v, xd, known=known):
                return body_inertia(*known, x).momentum(w, v, xd)

            (h, p, _), (hd, pd, modal) = jax.jvp(momentum, (x, w, v, xd), (xd, wd, vd, xdd))

            def kinetic(x, w=w, v=v, xd=xd, momentum=momentum):
                h, p, modal = momentum(x, w, v, xd)
                return 0.5 * (w @ h + v @ p + xd @ modal)

            internal = link.stiffness @ x + link.damping @ xd
            elastic.append(modal - jax.grad(kinetic)(x) + internal)
        turn = crossing(w)
        forces.append((hd + turn @ h + crossing(v) @ p, pd + turn @ p))
    (total,) = jax.linear_transpose(
        lambda r: velocities(model, places, r, still), rates
    )(forces)
    return total + jnp.concatenate([jnp.zeros_like(q), *elastic])


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

    **Returns:** joint torques (n,) [N m or N] and forces (k,) on the elastic coordinates beyond
    those of elasticity and damping; the latter vanish in a free motion.

    **Raises:** `ValueError` for another shape.
    """
    check_state(model, q=q, eta=eta, qd=qd, etad=etad, qdd=qdd, etadd=etadd)
    total = _inverse(model, q, eta, qd, etad, jnp.concatenate([qdd, etadd]))
    return total[: model.n], total[model.n :]


def _solve(model: FlexibleTree, q: Array, eta: Array, force: Array) -> Array:
    factor = jax.scipy.linalg.cho_factor(mass_matrix(model, q, eta))
    return jax.scipy.linalg.cho_solve(factor, force)


@jax.custom_jvp
def _accelerations(
    model: FlexibleTree, q: Array, eta: Array, qd: Array, etad: Array, force: Array
) -> Array:
    bias = _inverse(model, q, eta, qd, etad, jnp.zeros_like(force))
    return _solve(model, q, eta, force - bias)


def _implicit(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    model, q, eta, qd, etad, force = primals
    out = _accelerations(*primals)
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

        change = change - jax.jvp(
            residual, tuple(leaves[k] for k in moving), tuple(rates[k] for k in moving)
        )[1]
    return out, _solve(model, q, eta, change)


_accelerations.defjvp(_implicit, symbolic_zeros=True)


@jax.jit
def forward_dynamics(
    model: FlexibleTree,
    q: Float[Array, " n"],
    eta: Float[Array, " k"],
    qd: Float[Array, " n"],
    etad: Float[Array, " k"],
    tau: Float[Array, " n"],
) -> tuple[Float[Array, " n"], Float[Array, " k"]]:
    """Accelerations under joint torques; a torque acts between a body and what carries its joint.

    Its derivative, in both modes, is the implicit one.

    **Arguments:**

    - `model`: the tree with its elastic links.
    - `q`, `qd`: (n,) joint coordinates [rad or m] and rates.
    - `eta`, `etad`: (k,) elastic coordinates and rates.
    - `tau`: (n,) [N m or N].

    **Returns:** accelerations (n,) of the joints and (k,) of the elastic coordinates.

    **Raises:** `ValueError` for another shape.
    """
    check_state(model, q=q, eta=eta, qd=qd, etad=etad, tau=tau)
    force = jnp.concatenate([tau, jnp.zeros_like(eta)])
    out = _accelerations(model, q, eta, qd, etad, force)
    return out[: model.n], out[model.n :]


@jax.jit
def quasi_static(
    model: FlexibleTree,
    q: Float[Array, " n"],
    qd: Float[Array, " n"],
    qdd: Float[Array, " n"],
) -> Float[Array, " k"]:
    """Elastic coordinates under the loads of a rigid motion: the one-way response of stiff links.

    **Arguments:** `model`; `q`, `qd`, `qdd`: (n,) of the rigid motion.

    **Returns:** (k,).

    **Raises:** `ValueError` for another shape.

    Source: 000a (4.47) and section 6, without vibration.
    """
    rest = jnp.zeros(model.k)
    _, load = inverse_dynamics(model, q, rest, qd, rest, qdd, rest)
    parts = zip(model.links, model.slices, strict=True)
    solved = [
        jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(link.stiffness), -load[part])
        for link, part in parts
    ]
    return jnp.concatenate(solved)
