"""Distance of two points."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import concrete, numbers
from jaxgrip.joints import joint
from jaxgrip.joints.joint import LENGTH, Frame, Joint, Measure

LEAST = 1e-6


class Span(Joint):
    """Base of `Distance` and `Rope`: a length between the two origins."""

    length: Float[Array, ""]

    equations: ClassVar[int] = 1
    lengths: ClassVar[int] = 1
    points: ClassVar[int] = 1
    parameter: ClassVar[str | None] = "length"
    measure: ClassVar[Measure] = LENGTH
    is_line: ClassVar[bool] = True

    def __init__(self, length):
        self.length = length_between(length)

    def motions(self, place: Frame) -> Float[Array, "5 6"]:
        """While taut: two translations across the line; rotations about x, y and z."""
        return across(place)

    def coordinate(self, place: Frame) -> Float[Array, ""]:
        """The distance [m]."""
        return joint.length(place.origin)

    def with_parameter(self, value: Float[Array, ""]) -> "Span":
        """With another length, checked."""
        return type(self)(value)


class Distance(Span):
    """The origins are a given distance apart, as by a rod between two balls.

    **Arguments:** `length` [m].

    **Raises:** `ValueError` below a length of 1e-6 m, where the equation has no derivative, or
    for a number that is none or not finite.

    Source: Webhofer 2005, eq. 5.31-5.35, pp. 55-56, squared and divided by twice the length.
    """

    def residual(self, place: Frame) -> Float[Array, "1"]:
        """Excess of the distance, to first order."""
        return excess(place, self.length)[None]


def length_between(value) -> Float[Array, ""]:
    """The length of a distance or a rope, checked."""
    length = numbers("The length of a distance", value, ())
    if concrete(length) and not np.asarray(length) >= LEAST:
        raise ValueError(
            f"The length of a distance is {float(length):g} m; it must be at least {LEAST:g} m. "
            "Use a ball joint where the points coincide."
        )
    return length


def excess(place: Frame, length: Float[Array, ""]) -> Float[Array, ""]:
    """(d² - L²) / 2L [m]."""
    return (place.origin @ place.origin - length**2) / (2 * length)


def across(place: Frame) -> Float[Array, "5 6"]:
    """Motions that keep the distance of the origins."""
    d = place.origin / jnp.linalg.norm(place.origin)
    other = jnp.eye(3, dtype=d.dtype)[jnp.argmin(jnp.abs(d))]
    u = jnp.cross(d, other)
    u = u / jnp.linalg.norm(u)
    slides = jnp.stack([u, jnp.cross(d, u)])
    rows = jnp.zeros((5, 6), d.dtype)
    return rows.at[:2, :3].set(slides).at[2:, 3:].set(jnp.eye(3, dtype=d.dtype))
