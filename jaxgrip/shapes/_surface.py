"""Closed surfaces of triangles: files, checks, and what is inside them."""

from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from jaxgrip.checks import non_negative, numbers
from jaxgrip.shapes import _files
from jaxgrip.shapes._mass import MassProperties, of_moments

# Corners nearer to each other than this share of the size are one.
_SAME = 1e-7
# Surfaces larger than this [m] are probably in millimetres.
_LARGE = 20.0


class Surface(NamedTuple):
    """Triangles of a surface.

    `vertices` (n, 3) [m]; `triangles` (m, 3), numbers of corners, counter-clockwise seen from
    outside; `notes`: what was repaired on reading.
    """

    vertices: Float[Array, "n 3"]
    triangles: Int[np.ndarray, "m 3"]
    notes: tuple[str, ...] = ()


def mass_properties(surface: Surface, density: ArrayLike) -> MassProperties:
    """Mass, centre and inertia of what a closed surface encloses.

    Differentiable by vertices and density; the surface is checked by [`read_surface`][] or
    [`check`][], not here. Parts that cross each other count twice where they overlap.

    **Arguments:** `surface`; `density` [kg/m³].

    Source: Heinrich 2017 names the method; sums over tetrahedra from one point to every triangle.
    """
    density = non_negative("density", density, ())
    vertices = numbers("The vertices", surface.vertices, jnp.shape(surface.vertices))
    # About the mean corner, so that large coordinates do not cancel.
    start = jnp.mean(vertices, axis=0)
    corners = (vertices - start[None])[np.asarray(surface.triangles)]
    a, b, c = jnp.moveaxis(corners, 1, 0)
    six = jnp.sum(a * jnp.cross(b, c), axis=1)
    total = a + b + c
    volume = jnp.sum(six) / 6
    centre = six @ total / 24 / volume
    products = jnp.einsum("tki,tkj->tij", corners, corners) + total[:, :, None] * total[:, None]
    second = density * jnp.einsum("t,tij->ij", six, products) / 120
    return of_moments(density * volume, centre, second).moved(start)


def check(surface: Surface, name: str = "The surface") -> None:
    """Raise `ValueError`, with the place, unless a surface is closed and faces outward."""
    vertices, triangles = np.asarray(surface.vertices), np.asarray(surface.triangles)
    if len(triangles) == 0:
        raise ValueError(f"{name} has no triangles.")
    if not np.all(np.isfinite(vertices)):
        raise ValueError(f"{name} has coordinates that are not finite.")
    starts, ends = triangles.ravel(), np.roll(triangles, -1, axis=1).ravel()
    count = len(vertices)
    forward, back = starts * count + ends, ends * count + starts
    edges, times = np.unique(forward, return_counts=True)
    open_ = ~np.isin(forward, back)
    doubled = edges[times > 1]
    if np.any(open_):
        k = int(np.argmax(open_))
        if np.any(times > 1):
            # An edge that two triangles run along in the same direction.
            k = int(np.argmax(forward == doubled[0]))
            turned = "some triangles face the other way than their neighbours"
            what = f"{turned}, or more than two meet at an edge, {len(doubled)} in all"
        else:
            what = f"it is open along {int(open_.sum())} edges"
        raise ValueError(
            f"{name} is not closed: {what}; one is from {_place(vertices[starts[k]])} to "
            f"{_place(vertices[ends[k]])}. Repair it in the program that made it."
        )
    if doubled.size:
        k = int(np.argmax(forward == doubled[0]))
        raise ValueError(
            f"{name} has {len(doubled)} edges at which more than two triangles meet; one is from "
            f"{_place(vertices[starts[k]])} to {_place(vertices[ends[k]])}."
        )
    a, b, c = np.moveaxis((vertices - vertices.mean(axis=0))[triangles], 1, 0)
    volume = np.sum(a * np.cross(b, c)) / 6
    if volume < 0:
        raise ValueError(
            f"{name} faces inward: its volume is {volume:.3g} m³. Turn the triangles round, with "
            "`surface._replace(triangles=surface.triangles[:, ::-1])`."
        )
    _check_parts(vertices, triangles, name)
    if volume <= 1e-12 * np.ptp(vertices, axis=0).max() ** 3:
        raise ValueError(f"{name} is flat: it encloses no volume.")


def _check_parts(vertices: np.ndarray, triangles: np.ndarray, name: str) -> None:
    """Raise `ValueError` for a part that faces inward, unless it is a cavity of another."""
    ends = np.stack([triangles.ravel(), np.roll(triangles, -1, axis=1).ravel()])
    links = coo_array((np.ones(ends.shape[1]), ends), shape=(len(vertices),) * 2)
    part = connected_components(links, directed=False)[1][triangles[:, 0]]
    _, part = np.unique(part, return_inverse=True)
    count = part.max() + 1
    a, b, c = np.moveaxis((vertices - vertices.mean(axis=0))[triangles], 1, 0)
    volumes = np.bincount(part, np.sum(a * np.cross(b, c), axis=1)) / 6
    if count == 1 or np.all(volumes >= 0):
        return
    corners = vertices[triangles]
    low, high = np.full((count, 3), np.inf), np.full((count, 3), -np.inf)
    np.minimum.at(low, part, corners.min(axis=1))
    np.maximum.at(high, part, corners.max(axis=1))
    for k in np.flatnonzero(volumes < 0):
        around = np.all((low <= low[k]) & (high >= high[k]), axis=1) & (volumes > 0)
        if not np.any(around):
            raise ValueError(
                f"{name} has {count} parts, one of which faces inward and lies in no other: that "
                f"from {_place(low[k])} to {_place(high[k])}, with the volume {volumes[k]:.3g} m³."
            )


def _place(point: np.ndarray) -> str:
    return "(" + ", ".join(f"{x:.4g}" for x in point) + ")"


def read_surface(path: str | Path, *, scale: float = 1.0) -> Surface:
    """A closed surface from a file of triangles: STL (text or binary), OBJ, PLY.

    Corners at the same place become one, triangles without area are left out, polygons are split.

    **Arguments:** `path`; `scale`: metres in a unit of the file, 1e-3 for millimetres.

    **Raises:** `ValueError` for a file that cannot be read, one without triangles or with solid
    elements, and a surface that is open, faces inward, or is no surface, with the place.
    """
    path = Path(path)
    points, triangles = _files.triangles(path)
    vertices = scale * np.asarray(points, float)
    if not np.all(np.isfinite(vertices)):
        raise ValueError(f"{path} has coordinates that are not finite.")
    notes = []
    same = _groups(vertices)
    if (left := len(np.unique(same))) < len(vertices):
        notes.append(f"{len(vertices)} corners are at {left} places and were joined there.")
    _, first, number = np.unique(same, return_index=True, return_inverse=True)
    vertices, triangles = vertices[first], number[triangles]
    flat = np.any(triangles == np.roll(triangles, 1, axis=1), axis=1)
    if np.any(flat):
        notes.append(f"{int(flat.sum())} triangles without area were left out.")
        triangles = triangles[~flat]
    size = np.ptp(vertices, axis=0).max() if len(vertices) else 0.0
    if size > _LARGE:
        notes.append(f"It is {size:.3g} m large; if the file is in millimetres, give scale=1e-3.")
    surface = Surface(jnp.asarray(vertices), triangles, tuple(notes))
    check(surface, str(path))
    return surface


def _groups(vertices: np.ndarray) -> np.ndarray:
    """A number for every vertex, the same for those at one place."""
    if len(vertices) == 0:
        return np.zeros(0, int)
    size = np.ptp(vertices, axis=0).max()
    pairs = cKDTree(vertices).query_pairs(_SAME * size, output_type="ndarray")
    links = coo_array((np.ones(len(pairs)), tuple(pairs.T)), shape=(len(vertices),) * 2)
    return connected_components(links, directed=False)[1]
