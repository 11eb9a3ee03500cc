"""Closed surfaces of triangles: files, checks, and what is inside them."""

import contextlib
import io
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from jaxgrip.checks import non_negative, numbers
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
    if volume <= 1e-12 * np.ptp(vertices, axis=0).max() ** 3:
        raise ValueError(f"{name} is flat: it encloses no volume.")


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
    points, triangles = _triangles(path)
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


def _triangles(path: Path) -> tuple[np.ndarray, np.ndarray]:
    import meshio

    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    try:
        # The reader of STL tells text from binary by a size that may overflow.
        with np.errstate(over="ignore"), contextlib.redirect_stdout(io.StringIO()):
            mesh = meshio.read(path)
    except SystemExit:
        raise ValueError(f"{path} cannot be read: its ending is not known.") from None
    except Exception as error:
        raise ValueError(f"{path} cannot be read: {error or type(error).__name__}.") from None
    found = []
    for cells in mesh.cells:
        if cells.dim == 3:
            raise ValueError(
                f"{path} has solid elements ({cells.type}), not a surface: read it with "
                "`jg.fem.read_mesh`."
            )
        if cells.dim == 2:
            corners = [np.asarray(one) for one in cells.data]
            found += [
                (one[0], one[k], one[k + 1]) for one in corners for k in range(1, len(one) - 1)
            ]
    if not found:
        raise ValueError(f"{path} has no triangles.")
    points = np.asarray(mesh.points, float)
    if points.shape[1] == 2:
        points = np.pad(points, ((0, 0), (0, 1)))
    return points, np.array(found)


def _groups(vertices: np.ndarray) -> np.ndarray:
    """A number for every vertex, the same for those at one place."""
    if len(vertices) == 0:
        return np.zeros(0, int)
    size = np.ptp(vertices, axis=0).max()
    pairs = cKDTree(vertices).query_pairs(_SAME * size, output_type="ndarray")
    links = coo_array((np.ones(len(pairs)), tuple(pairs.T)), shape=(len(vertices),) * 2)
    return connected_components(links, directed=False)[1]
