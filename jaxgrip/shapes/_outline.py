"""Flat bodies of one thickness, from their outlines."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import concrete, non_negative, numbers, positive
from jaxgrip.shapes._mass import MassProperties, Vector, of_moments


def extruded(outline: Vector, thickness: ArrayLike, density: ArrayLike) -> MassProperties:
    """A plate in the x-y plane, half its thickness above and half below, from its outline.

    **Arguments:** `outline` (n, 2): corners in order, either way round, which must not cross [m];
    `thickness` [m]; `density` [kg/m³]. Differentiable by all of them.

    **Raises:** `ValueError` for another shape of the outline, and for edges that cross, with their
    place; traced outlines are not looked at.

    Source: own derivation, by Green's theorem.
    """
    outline = numbers("The outline", outline, jnp.shape(outline))
    if outline.ndim != 2 or outline.shape[0] < 3 or outline.shape[1] != 2:
        raise ValueError(
            f"The outline has the shape {outline.shape}; it has corners (n, 2), n > 2."
        )
    if concrete(outline):
        _check_crossings(np.asarray(outline))
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


def _check_crossings(outline: np.ndarray) -> None:
    """Raise `ValueError` where edges of an outline cross."""
    ends = np.roll(outline, -1, axis=0)

    def parts(start: np.ndarray, end: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Whether lines from start to end have one and other on different sides."""
        along = end - start
        sides = []
        for point in (one, other):
            away = point - start
            sides.append(along[..., 0] * away[..., 1] - along[..., 1] * away[..., 0])
        return sides[0] * sides[1] < 0

    # A few edges against all, so that long outlines do not fill the memory.
    for first in range(0, len(outline), 256):
        some = outline[first : first + 256, None], ends[first : first + 256, None]
        every = outline[None], ends[None]
        crossed = parts(*some, *every) & parts(*every, *some)
        if np.any(crossed):
            i, j = np.argwhere(crossed)[0]
            raise ValueError(
                f"The outline crosses itself: the edges that begin at corners {first + i} and {j}, "
                "counted from 0, do."
            )


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
