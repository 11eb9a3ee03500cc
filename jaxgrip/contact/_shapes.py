"""Shapes that touch: each is a box whose edges are rounded."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import non_negative, positive

# Half the size of the box whose upper face is a half space [m].
_FAR = 1e3


class Shape(eqx.Module):
    """A box about the origin, of half its edges `half` (3,), grown by a `radius` all round [m].

    A point grown is a sphere, a line a capsule. `corners` (c, 3): signs of the box's different
    corners, which touch other shapes.
    """

    half: Float[Array, "3"]
    radius: Float[Array, ""]
    corners: tuple[tuple[int, int, int], ...] = eqx.field(static=True)


def sphere(radius: ArrayLike) -> Shape:
    """A ball about the origin, from its radius [m]."""
    return Shape(jnp.zeros(3), positive("The radius of a sphere", radius, ()), ((0, 0, 0),))


def capsule(radius: ArrayLike, length: ArrayLike) -> Shape:
    """A cylinder along z with half balls at its ends; `length` without them [m]."""
    length = positive("The length of a capsule", length, ())
    half = jnp.zeros(3).at[2].set(0.5 * length)
    radius = positive("The radius of a capsule", radius, ())
    return Shape(half, radius, ((0, 0, -1), (0, 0, 1)))


def box(size: ArrayLike, rounding: ArrayLike = 0.0) -> Shape:
    """A cuboid about the origin, from its edges (3,) and the radius of their rounding [m]."""
    size = positive("The size of a box", size, (3,))
    rounding = non_negative("rounding of a box", rounding, ())
    signs = tuple((a, b, c) for a in (-1, 1) for b in (-1, 1) for c in (-1, 1))
    return Shape(0.5 * size - rounding, rounding, signs)


def half_space() -> Shape:
    """Everything below the plane z = 0, up to a kilometre."""
    return Shape(jnp.full(3, _FAR), jnp.zeros(()), ())


def signed_distance(shape: Shape, point: Float[Array, "3"]) -> Float[Array, ""]:
    """Distance of a point from a shape's surface [m], negative inside.

    Exact, with a gradient that is finite everywhere: at the centre of a sphere and along the line
    of a capsule it is that of one of the nearest points or zero.
    """
    beyond = jnp.abs(point) - shape.half
    out = jnp.maximum(beyond, 0.0)
    square = out @ out
    outside = square > 0
    far = jnp.where(outside, jnp.sqrt(jnp.where(outside, square, 1.0)), 0.0)
    return far + jnp.minimum(jnp.max(beyond), 0.0) - shape.radius


def is_half_space(shape: Shape) -> bool:
    """Whether it is the half space, whose own corners touch nothing."""
    return not shape.corners


def corners(shape: Shape) -> Float[Array, "c 3"]:
    """Corners of the box within the shape [m]."""
    return jnp.asarray(np.array(shape.corners, float).reshape(-1, 3)) * shape.half[None]
