"""Velocities and accelerations of assembled parts."""

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.checks import numbers
from jaxgrip.mechanism._assemble import Assembly, sensitivity
from jaxgrip.mechanism._equations import equations
from jaxgrip.mechanism.poses import Poses
from jaxgrip.spatial import quaternions


class Rates(NamedTuple):
    """Rates of all parts in axes of the ground.

    `linear` (n, 3), of the origins of the parts [m/s or m/s²]; `angular` (n, 3) [rad/s or rad/s²].
    """

    linear: Float[Array, "n 3"]
    angular: Float[Array, "n 3"]


def velocity(assembly: Assembly, rates: Mapping[str, object]) -> Rates:
    """Velocities of all parts from those of the drives.

    Where joints leave degrees of freedom, the motion of least norm is taken.

    **Arguments:** `assembly`; `rates` of drives by the name of the connection [m/s or rad/s],
    zero for those not named.

    **Returns:** `Rates`.

    **Raises:** `ValueError` for a name that is no drive or a rate that is not a finite number.

    Source: own derivation, J x' = -dF/dp p' of the equations F(x, p) = 0.
    """
    return _velocity(assembly, _checked(assembly, rates))


def acceleration(
    assembly: Assembly,
    rates: Mapping[str, object],
    accelerations: Mapping[str, object] | None = None,
) -> Rates:
    """Accelerations of all parts from the velocities and accelerations of the drives.

    **Arguments:** `assembly`; `rates` [m/s or rad/s] and `accelerations` [m/s² or rad/s²] of
    drives by the name of the connection, zero for those not named.

    **Returns:** `Rates`.

    **Raises:** `ValueError` for a name that is no drive or a number that is not finite.
    """
    return _acceleration(
        assembly, _checked(assembly, rates), _checked(assembly, accelerations or {})
    )


def _checked(assembly: Assembly, rates: Mapping[str, object]) -> dict[str, Array]:
    known = assembly.system.parameters
    for name in rates:
        assembly.system.drive(name)
    return {name: numbers(f"The rate of {name!r}", rates.get(name, 0.0), ()) for name in known}


def _twist(assembly: Assembly, values: dict, poses: Poses, rates: dict) -> Rates:
    def residual(values):
        return equations(assembly.system.with_parameters(values), poses, assembly.turns)[0]

    change = jax.jvp(residual, (values,), (rates,))[1]
    system = assembly.system.with_parameters(values)
    step = sensitivity(system, poses, assembly.turns, change, assembly.least_squares)
    return Rates(step[:, :3], step[:, 3:])


@eqx.filter_jit
def _velocity(assembly: Assembly, rates: dict) -> Rates:
    return _twist(assembly, assembly.system.parameters, assembly.poses, rates)


@eqx.filter_jit
def _acceleration(assembly: Assembly, rates: dict, accelerations: dict) -> Rates:
    poses = assembly.poses
    linear, angular = _twist(assembly, assembly.system.parameters, poses, rates)
    spin = jnp.concatenate([jnp.zeros_like(angular[:, :1]), angular / 2], axis=1)
    moving = Poses(linear, jax.vmap(quaternions.product)(spin, poses.quaternion))
    return jax.jvp(
        lambda values, poses, rates: _twist(assembly, values, poses, rates),
        (assembly.system.parameters, poses, rates),
        (rates, moving, accelerations),
    )[1]
