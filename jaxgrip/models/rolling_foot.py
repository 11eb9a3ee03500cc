"""A foot that rolls on the ground like a cam: the contact follows from its inclination alone.

A virtual disk with radius r(a), by the inclination a, touches the ground without slip; the cam that
rolls on the ground follows from it.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import numbers

Radius = Callable[[Float[Array, ""]], Float[Array, ""]]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


class Rolling(NamedTuple):
    """The foot at an inclination [rad].

    `centre_of_pressure`, where the cam touches the ground, and `rim`, where the virtual disk does,
    from the contact at zero inclination [m]; `radius` of the virtual disk and of `curvature` of the
    cam [m], which is the change of the centre of pressure by the inclination; `cam` (2,), the point
    of contact in the foot's frame, whose origin is the centre of the disk and whose first axis
    points at the rim; `centre` (2,), that of the disk: distance along the ground and height [m].
    """

    centre_of_pressure: Float[Array, ""]
    rim: Float[Array, ""]
    radius: Float[Array, ""]
    curvature: Float[Array, ""]
    cam: Float[Array, "2"]
    centre: Float[Array, "2"]


class RollingFoot(eqx.Module):
    """Radius of the virtual disk as a sum of exponentials, rho (1 - exp(-C (a - a0))).

    **Arguments:** `rho` (k,) [m]; `rate` C (k,); `shift` a0 (k,) [rad]. Only rho exp(C a0) moves
    the centre of pressure, so that a series of it determines rho for a given shift.

    Source: Caspers 2017, equations (1) and (2).
    """

    rho: Float[Array, " k"]
    rate: Float[Array, " k"]
    shift: Float[Array, " k"]

    def __init__(self, rho, rate, shift=0.0):
        shape = np.broadcast_shapes(np.shape(rho), np.shape(rate), np.shape(shift), (1,))
        self.rho, self.rate, self.shift = (
            jnp.broadcast_to(numbers(f"{name} of a rolling foot", x, np.shape(x)), shape)
            for name, x in (("rho", rho), ("rate", rate), ("shift", shift))
        )

    def __call__(self, angle: Float[Array, ""]) -> Float[Array, ""]:
        """The radius of the virtual disk [m]."""
        return jnp.sum(self.rho * (1 - jnp.exp(-self.rate * (angle - self.shift))))

    def roll(self, angle: Float[Array, ""]) -> Rolling:
        """The foot at an inclination [rad], in closed form."""
        grown = jnp.exp(-self.rate * angle)
        rim = (
            self.rho
            * self.rate
            * jnp.exp(self.rate * self.shift)
            / (1 + self.rate**2)
            * (jnp.sin(angle) * grown + self.rate * (1 - jnp.cos(angle) * grown))
        )
        return _rolling(self, angle, jnp.sum(rim))


def roll(radius: Radius, angle: Float[Array, ""]) -> Rolling:
    """A foot with any radius of the virtual disk at an inclination [rad].

    **Arguments:** `radius`: a smooth function of the inclination, twice differentiable; its
    integral is by Gauss and Legendre with 24 points. `angle` [rad].

    Source: Caspers 2017; curvature and cam are derived from it.
    """
    half = angle / 2
    at = half * (1 + jnp.asarray(_NODES, angle.dtype))
    slopes = jax.vmap(jax.grad(radius))(at)
    rim = half * jnp.sum(jnp.asarray(_WEIGHTS, angle.dtype) * slopes * jnp.cos(at))
    return _rolling(radius, angle, rim)


def _rolling(radius: Radius, angle: Array, rim: Array) -> Rolling:
    slope = jax.grad(radius)
    r, (first, second) = radius(angle), jax.value_and_grad(slope)(angle)
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    return Rolling(
        rim + first * sine,
        rim,
        r,
        2 * first * cosine + second * sine,
        jnp.stack([r + first * sine * cosine, first * sine**2]),
        jnp.stack([rim - r * cosine, r * sine]),
    )


def in_world(rolling: Rolling, angle: Float[Array, ""], point: Float[Array, "2"]) -> Array:
    """Position of a point of the foot's frame: along the ground and height [m]."""
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    turn = jnp.stack([jnp.stack([cosine, sine]), jnp.stack([-sine, cosine])])
    return rolling.centre + turn @ point
