"""Energies, momenta and dissipated power."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.flexible._bodies import (
    bodies,
    deformed_moments,
    geometry,
    inertias,
    spread,
    velocities,
)
from jaxgrip.flexible._dynamics import body_rates, check_state
from jaxgrip.flexible._kinematics import forward_kinematics
from jaxgrip.flexible._tree import FlexibleTree


def _momenta(
    model: FlexibleTree, q: Array, eta: Array, qd: Array, etad: Array
) -> tuple[Float[Array, "bodies speeds"], Float[Array, "bodies speeds"]]:
    """Velocities of the bodies with their elastic rates, and the momenta."""
    check_state(model, q=q, eta=eta, qd=qd, etad=etad)
    b = bodies(model)
    rates = jnp.concatenate([qd, etad])[:, None]
    velocity = velocities(b, geometry(b, q, eta), rates, jnp.zeros((3, 1)))
    speed = body_rates(b, velocity, rates)[..., 0]
    return speed, jnp.einsum("bij,bj->bi", inertias(b, spread(b, eta)), speed)


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

    **Raises:** `ValueError` for a wrong shape.
    """
    speed, momenta = _momenta(model, q, eta, qd, etad)
    return 0.5 * jnp.vdot(speed, momenta)


@jax.jit
def potential_energy(
    model: FlexibleTree, q: Float[Array, " n"], eta: Float[Array, " k"]
) -> Float[Array, ""]:
    """Gravitational plus elastic energy [J].

    Zero for undeformed links with all mass at the origin of the base frame.

    **Arguments:** `model`; `q` (n,) and `eta` (k,).

    **Raises:** `ValueError` for a wrong shape.
    """
    check_state(model, q=q, eta=eta)
    rotation, translation = forward_kinematics(model, q, eta)
    b = bodies(model)
    first = deformed_moments(b, spread(b, eta))[0][:, 1:4]
    moment = model.tree.mass @ translation + jnp.einsum("bij,bj->i", rotation, first)
    strain = [
        eta[part] @ (link.stiffness @ eta[part])
        for link, part in zip(model.links, model.slices, strict=True)
    ]
    return 0.5 * sum(strain) - model.tree.gravity @ moment


@jax.jit
def dissipated_power(model: FlexibleTree, etad: Float[Array, " k"]) -> Float[Array, ""]:
    """Power dissipated by damping [W]; `etad` (k,), rates of the elastic coordinates."""
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

    **Raises:** `ValueError` for a wrong shape.
    """
    rotation, translation = forward_kinematics(model, q, eta)
    _, momenta = _momenta(model, q, eta, qd, etad)
    h = jnp.einsum("bij,bj->bi", rotation, momenta[:, :3])
    p = jnp.einsum("bij,bj->bi", rotation, momenta[:, 3:6])
    return p.sum(axis=0), (h + jnp.cross(translation, p)).sum(axis=0)
