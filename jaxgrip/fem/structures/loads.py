"""Loads on structures."""

from collections.abc import Iterable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import brief, concrete, numbers
from jaxgrip.fem.structures._elements import checked_place
from jaxgrip.spatial import skew


class NodalForce(eqx.Module):
    """Force of fixed direction on a node.

    **Arguments:** `place`: `"part.attachment"` for its first point, or `("part", node)`; `force`
    (3,) [N] and `moment` (3,) [N m] in ground axes.

    **Raises:** `ValueError` for an invalid `place`, a wrong shape, or numbers that are not finite.
    """

    place: str | tuple[str, int] = eqx.field(static=True)
    force: Float[Array, "3"]
    moment: Float[Array, "3"] | None

    def __init__(self, place, force, moment=None):
        self.place = checked_place("A force acts on", place)
        self.force = numbers(f"The force on {place!r}", force, (3,))
        self.moment = None if moment is None else numbers(f"The moment on {place!r}", moment, (3,))


class Inertia(eqx.Module):
    """Weight and inertia forces -m a of slewing.

    **Arguments:** `gravity` (3,) [m/s^2]; `rate` [rad/s] and `acceleration` [rad/s^2] of slewing
    about the line through `origin` (3,) [m] along `axis` (3,), both in the ground frame.

    **Raises:** `ValueError` for a zero axis, a wrong shape, or numbers that are not finite.

    Source: Webhofer 2005, section 7.3, pp. 113-115, for the kinds of loads.
    """

    gravity: Float[Array, "3"]
    rate: Float[Array, ""]
    acceleration: Float[Array, ""]
    origin: Float[Array, "3"]
    axis: Float[Array, "3"]

    def __init__(
        self,
        gravity=(0.0, 0.0, -9.81),
        *,
        rate=0.0,
        acceleration=0.0,
        origin=(0.0, 0.0, 0.0),
        axis=(0.0, 0.0, 1.0),
    ):
        self.gravity = numbers("Gravity", gravity, (3,))
        self.rate = numbers("The slewing rate", rate, ())
        self.acceleration = numbers("The slewing acceleration", acceleration, ())
        self.origin = numbers("The origin of the slewing axis", origin, (3,))
        self.axis = numbers("The slewing axis", axis, (3,))
        if concrete(self.axis) and not np.any(np.asarray(self.axis)):
            raise ValueError("The slewing axis is (0, 0, 0); it must have a direction.")

    def field(self) -> tuple[Float[Array, "3"], Float[Array, "3 3"]]:
        """a0 and W of the acceleration minus gravity, a0 + W X, at position X."""
        k = skew(self.axis / jnp.linalg.norm(self.axis))
        gradient = self.acceleration * k + self.rate**2 * (k @ k)
        return -self.gravity - gradient @ self.origin, gradient


Load = NodalForce | Inertia


def as_loads(loads: Load | Iterable[Load]) -> tuple[Load, ...]:
    """One load or several as a tuple; `ValueError` when it is neither."""
    if isinstance(loads, Load):
        return (loads,)
    if not isinstance(loads, Iterable) or isinstance(loads, str):
        raise ValueError(f"A load is {brief(loads)}; give NodalForce or Inertia.")
    loads = tuple(loads)
    for load in loads:
        if not isinstance(load, Load):
            raise ValueError(f"A load is {brief(load)}; give NodalForce or Inertia.")
    return loads


def inertia_field(loads: tuple[Load, ...]) -> tuple[Float[Array, "3"], Float[Array, "3 3"]]:
    """a0 and W of the acceleration a0 + W X, summed over the loads, in the ground frame."""
    a0, gradient = jnp.zeros(3), jnp.zeros((3, 3))
    for load in loads:
        if isinstance(load, Inertia):
            constant, linear_part = load.field()
            a0, gradient = a0 + constant, gradient + linear_part
    return a0, gradient
