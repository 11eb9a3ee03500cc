"""Energies, momenta and dissipated power."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.flexible.dynamics import check_state
from jaxgrip.flexible.kinematics import forward_kinematics
from jaxgrip.flexible.sweeps import body_inertias, elastic_parts, placements, velocities
from jaxgrip.flexible.tree import FlexibleTree


def _momenta(model: FlexibleTree, q: Array, eta: Array, qd: Array, etad: Array) -> list[tuple]:
    check_state(model, q=q, eta=eta, qd=qd, etad=etad)
    rates = jnp.concatenate([qd, etad])
    speeds = velocities(model, placements(model, q, eta), rates, jnp.zeros(3))
    out = []
    parts = elastic_parts(model, etad)
    for body, (w, v), (_, own) in zip(body_inertias(model, eta), speeds, parts, strict=True):
        out.append(((w, v, own), body.momentum(w, v, own)))
    return out


@jax.jit
def kinetic_energy(
    model: FlexibleTree,
    q: Float[Array, " n"],
    eta: Float[Array, " k"],
    qd: Float[Array, " n"],
    etad: Float[Array, " k"],
) -> Float[Array, ""]:
    """Kinetic energy [J].

    **Arguments:** `model`; `q`, `qd` (n,) and `eta`, `etad` (k,), coordinates and rates.

    **Raises:** `ValueError` for another shape.
    """
    pairs = [
        x @ y
        for speed, momentum in _momenta(model, q, eta, qd, etad)
        for x, y in zip((speed[0], speed[1], speed[2]), momentum, strict=True)
        if y is not None
    ]
    return 0.5 * sum(pairs)


@jax.jit
def potential_energy(
    model: FlexibleTree, q: Float[Array, " n"], eta: Float[Array, " k"]
) -> Float[Array, ""]:
    """Energy in the field of gravity plus elastic energy [J].

    Zero for undeformed links with all mass in the origin of the base frame.

    **Arguments:** `model`; `q` (n,) and `eta` (k,).

    **Raises:** `ValueError` for another shape.
    """
    check_state(model, q=q, eta=eta)
    rotation, translation = forward_kinematics(model, q, eta)
    first = jnp.stack([body.first for body in body_inertias(model, eta)])
    moment = model.tree.mass @ translation + jnp.einsum("bij,bj->i", rotation, first)
    strain = [
        eta[part] @ (link.stiffness @ eta[part])
        for link, part in zip(model.links, model.slices, strict=True)
    ]
    return 0.5 * sum(strain) - model.tree.gravity @ moment


@jax.jit
def dissipated_power(model: FlexibleTree, etad: Float[Array, " k"]) -> Float[Array, ""]:
    """Power that damping takes out [W]; `etad` (k,), rates of the elastic coordinates."""
    check_state(model, etad=etad)
    return sum(
        etad[part] @ (link.damping @ etad[part])
        for link, part in zip(model.links, model.slices, strict=True)
    )


@jax.jit
def momentum(
    model: FlexibleTree,
    q: Float[Array, " n"],
    eta: Float[Array, " k"],
    qd: Float[Array, " n"],
    etad: Float[Array, " k"],
) -> tuple[Float[Array, "3"], Float[Array, "3"]]:
    """Momentum (3,) [N s] and angular momentum (3,) about the base's origin [N m s], base axes.

    **Arguments:** `model`; `q`, `qd` (n,) and `eta`, `etad` (k,), coordinates and rates.

    **Raises:** `ValueError` for another shape.
    """
    rotation, translation = forward_kinematics(model, q, eta)
    own = [part for _, part in _momenta(model, q, eta, qd, etad)]
    p = jnp.einsum("bij,bj->bi", rotation, jnp.stack([part[1] for part in own]))
    h = jnp.einsum("bij,bj->bi", rotation, jnp.stack([part[0] for part in own]))
    return p.sum(axis=0), (h + jnp.cross(translation, p)).sum(axis=0)
