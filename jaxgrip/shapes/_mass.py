"""Mass, centre of mass and inertia of bodies, and of several together."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import non_negative, numbers, positive

Vector = ArrayLike | Sequence


class MassProperties(eqx.Module):
    """Mass [kg], centre of mass (3,) [m] and inertia (3, 3) about it [kg m²] of a body."""

    mass: Float[Array, ""]
    centre: Float[Array, "3"]
    inertia: Float[Array, "3 3"]

    def about(self, point: Float[Array, "3"]) -> Float[Array, "3 3"]:
        """Inertia about any point [kg m²]."""
        return self.inertia + self.mass * _of_point(self.centre - point)

    def moved(
        self, translation: Vector = (0.0, 0.0, 0.0), rotation: ArrayLike | None = None
    ) -> "MassProperties":
        """The body rotated by a matrix (3, 3) about the origin, then moved (3,) [m]."""
        translation = numbers("The translation", translation, (3,))
        turn = jnp.eye(3) if rotation is None else numbers("The rotation", rotation, (3, 3))
        return MassProperties(
            self.mass, turn @ self.centre + translation, turn @ self.inertia @ turn.T
        )

    def scaled(self, factor: ArrayLike) -> "MassProperties":
        """The body with another density, by a factor; -1 for what is cut out of another."""
        factor = numbers("The factor", factor, ())
        return MassProperties(factor * self.mass, self.centre, factor * self.inertia)


def combined(*bodies: MassProperties) -> MassProperties:
    """Bodies as one; a cut-out has a negative mass.

    The total mass must not be zero: the centre is then not a number.
    """
    mass = sum(body.mass for body in bodies)
    centre = sum(body.mass * body.centre for body in bodies) / mass
    return MassProperties(mass, centre, sum(body.about(centre) for body in bodies))


def box(size: Vector, density: ArrayLike) -> MassProperties:
    """A cuboid about the origin, from its edges (3,) [m] and density [kg/m³]."""
    size = positive("The size of a box", size, (3,))
    mass = _density(density) * jnp.prod(size)
    squares = size**2
    return _about_origin(mass, mass / 12 * (jnp.sum(squares) - squares))


def sphere(radius: ArrayLike, density: ArrayLike) -> MassProperties:
    """A ball about the origin, from its radius [m] and density [kg/m³]."""
    radius = positive("The radius of a sphere", radius, ())
    mass = _density(density) * 4 / 3 * jnp.pi * radius**3
    return _about_origin(mass, jnp.full(3, 0.4) * mass * radius**2)


def cylinder(radius: ArrayLike, length: ArrayLike, density: ArrayLike) -> MassProperties:
    """A solid cylinder about the origin with its axis along z, from radius, length [m], density."""
    radius = positive("The radius of a cylinder", radius, ())
    length = positive("The length of a cylinder", length, ())
    mass = _density(density) * jnp.pi * radius**2 * length
    across = mass * (radius**2 / 4 + length**2 / 12)
    return _about_origin(mass, jnp.stack([across, across, mass * radius**2 / 2]))


def capsule(radius: ArrayLike, length: ArrayLike, density: ArrayLike) -> MassProperties:
    """A cylinder along z with two half balls at its ends, about the origin.

    **Arguments:** `radius`; `length` of the cylinder without the half balls [m]; `density` [kg/m³].
    """
    radius = positive("The radius of a capsule", radius, ())
    length = positive("The length of a capsule", length, ())
    density = _density(density)
    middle = density * jnp.pi * radius**2 * length
    ends = density * 4 / 3 * jnp.pi * radius**3
    # The centre of a half ball is 3/8 of the radius from its plane.
    across = middle * (radius**2 / 4 + length**2 / 12) + ends * (
        0.4 * radius**2 + length**2 / 4 + 3 / 8 * radius * length
    )
    along = middle * radius**2 / 2 + 0.4 * ends * radius**2
    return _about_origin(middle + ends, jnp.stack([across, across, along]))


def three_masses(
    body: MassProperties, first: Vector, second: Vector
) -> tuple[Float[Array, "3"], Float[Array, "3 2"]]:
    """Point masses that move in the x-y plane as a body does.

    Equal masses are at the two points and a third where it has to be. They have the mass, the
    centre and the moment of inertia about z of the body, and none is negative.

    **Arguments:** `body`; `first`, `second` (2,), joints of the link for instance [m].

    **Returns:** masses (3,) [kg] and positions (3, 2) [m].

    Source: own derivation, of the conditions of Heinrich 2017 for discrete masses.
    """
    first = numbers("The first point", first, (2,)) - body.centre[:2]
    second = numbers("The second point", second, (2,)) - body.centre[:2]
    mass, moment = body.mass, body.inertia[2, 2]
    middle = 0.5 * (first + second)
    spread = 0.5 * (first @ first + second @ second)
    # Both points together have x: x spread + x² |middle|² / (mass - x) = moment.
    b = spread * mass + moment
    root = jnp.sqrt(b**2 - 4 * (spread - middle @ middle) * moment * mass)
    both = 2 * moment * mass / (b + root)
    third = mass - both
    place = -both * middle / jnp.where(third > 0, third, 1.0)
    points = jnp.stack([first, second, place]) + body.centre[None, :2]
    return jnp.stack([0.5 * both, 0.5 * both, third]), points


def _density(density: ArrayLike) -> Array:
    return non_negative("density", density, ())


def _about_origin(mass: Array, diagonal: Array) -> MassProperties:
    return MassProperties(mass, jnp.zeros(3), jnp.diag(diagonal))


def _of_point(r: Array) -> Array:
    """Inertia of a unit mass at r."""
    return (r @ r) * jnp.eye(3) - jnp.outer(r, r)


def of_moments(mass: Array, centre: Array, second: Array) -> MassProperties:
    """From the mass, the centre, and the second moments (3, 3) about the origin of coordinates."""
    about = second - mass * jnp.outer(centre, centre)
    return MassProperties(mass, centre, jnp.trace(about) * jnp.eye(3) - about)
