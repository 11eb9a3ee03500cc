"""Flat bodies of one thickness, from their outlines."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import non_negative, numbers, positive
from jaxgrip.shapes._mass import MassProperties, Vector, of_moments


def extruded(outline: Vector, thickness: ArrayLike, density: ArrayLike) -> MassProperties:
    """A plate in the x-y plane, half its thickness above and half below, from its outline.

    **Arguments:** `outline` (n, 2): corners in order, either way round, which must not cross [m];
    `thickness` [m]; `density` [kg/m³]. Differentiable by all of them.

    Source: Green's theorem.
    """
    outline = numbers("The outline", outline, jnp.shape(outline))
    if outline.ndim != 2 or outline.shape[0] < 3 or outline.shape[1] != 2:
        raise ValueError(
            f"The outline has the shape {outline.shape}; it has corners (n, 2), n > 2."
        )
    thickness = positive("The thickness", thickness, ())
    density = non_negative("density", density, ())
    # About the mean corner, so that large coordinates do not cancel.
    start = jnp.mean(outline, axis=0)
    p = outline - start[None]
    q = jnp.roll(p, -1, axis=0)
    cross = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
    area = jnp.sum(cross) / 2
    way_round = jnp.sign(area)
    first = jnp.sum(cross[:, None] * (p + q), axis=0) / 6
    s = p + q
    products = p[:, :, None] * p[:, None] + q[:, :, None] * q[:, None] + s[:, :, None] * s[:, None]
    second = jnp.sum(cross[:, None, None] * products, axis=0) / 24
    scale = way_round * density * thickness
    mass = scale * area
    centre = first / area
    inside = jnp.zeros((3, 3)).at[:2, :2].set(scale * second).at[2, 2].set(mass * thickness**2 / 12)
    body = of_moments(mass, jnp.append(centre, 0.0), inside)
    return body.moved(jnp.append(start, 0.0))


def link_outline(stations: Vector, half_widths: Vector, points: int = 8) -> Float[Array, "n 2"]:
    """Outline of a link along x that is symmetrical about it, with round ends.

    **Arguments:** `stations` (k,): increasing x [m]; `half_widths` (k,) there [m], of which the
    first and the last are radii of the ends; `points`: edges of each end.
    """
    stations = numbers("The stations", stations, jnp.shape(stations))
    half_widths = numbers("The half widths", half_widths, stations.shape)
    angle = jnp.pi * jnp.arange(1.0, points) / points
    end = jnp.stack([jnp.sin(angle), -jnp.cos(angle)], axis=1)
    side = jnp.stack([stations, half_widths], axis=1)
    right = jnp.stack([stations[-1], jnp.zeros(())])[None] + half_widths[-1] * end
    left = jnp.stack([stations[0], jnp.zeros(())])[None] - half_widths[0] * end
    lower = side * jnp.array([[1.0, -1.0]])
    return jnp.concatenate([lower, right, side[::-1], left])
