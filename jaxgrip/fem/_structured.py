"""Meshes of boxes and cylinders, numbered layer by layer along x; dimensions are traced."""

import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import positive
from jaxgrip.fem._mesh import Mesh
from jaxgrip.fem.elements.element import Element, check_element
from jaxgrip.fem.elements.hex8 import Hex8
from jaxgrip.fem.topology import Topology

SIDES = ("x0", "x1", "y0", "y1", "z0", "z1")


def box_mesh(L, b, h, nx: int, ny: int, nz: int, *, element: Any = None) -> Mesh:
    """Box 0 ≤ x ≤ L, |y| ≤ b/2, |z| ≤ h/2 of nx · ny · nz cells.

    **Arguments:** `L`, `b`, `h`, lengths along x, y, z [m], may be traced; `nx`, `ny`, `nz`,
    numbers of cells; `element`, `Hex8()` when not given.

    **Returns:** a mesh with the faces `x0`, `x1`, `y0`, `y1`, `z0`, `z1`.

    **Raises:** `ValueError` when a length or a number of cells is not positive.

    Source: Schanzer 2007, section 7.3, pp. 108-109, whose node 662 is index 661 here; own
    reconstruction of the numbering from the counts printed there.
    """
    size = jnp.stack([_length("L", L), _length("b", b), _length("h", h)])
    unit, topology = _grid((nx, ny, nz), element or Hex8())
    return Mesh(unit * size[None, :], topology)


def cylinder_mesh(L, r, nx: int, n: int, *, element: Any = None) -> Mesh:
    """Solid cylinder 0 ≤ x ≤ L of radius r about the x axis, n · n cells over the section.

    The square grid is mapped to the disc by y = r y' √(1 - z'²/2), likewise z, without degenerate
    cells; the volume converges to that of the cylinder from below.

    **Arguments:** `L`, `r` [m], may be traced; `nx`, `n`, numbers of cells; `element`, `Hex8()`
    when not given.

    **Returns:** a mesh with the faces `x0`, `x1`, `y0`, `y1`, `z0`, `z1`, the last four being
    quarters of the lateral surface.

    **Raises:** `ValueError` when a length or a number of cells is not positive.

    Source: own derivation.
    """
    length, radius = _length("L", L), _length("r", r)
    unit, topology = _grid((nx, n, n), element or Hex8())
    y, z = 2 * unit[:, 1], 2 * unit[:, 2]
    disc = np.stack([y * np.sqrt(1 - z**2 / 2), z * np.sqrt(1 - y**2 / 2)], axis=1)
    return Mesh(jnp.concatenate([unit[:, :1] * length, disc * radius], axis=1), topology)


def _length(name: str, value) -> Float[Array, ""]:
    return positive(f"The length {name}", value, (), unit="m")


def _grid(counts: tuple[int, int, int], element: Any) -> tuple[np.ndarray, Topology]:
    """Nodes of the box [0, 1] x [-1/2, 1/2]^2, and the topology of its cells."""
    check_element(element)
    for name, count in zip(("nx", "ny", "nz"), counts, strict=True):
        if count < 1 or count != int(count):
            raise ValueError(f"The number of cells {name} is {count}; it must be at least 1.")
    block, positions = element.block()
    steps = len(np.unique(positions[:, 0])) - 1
    shape = steps * np.array(counts) + 1
    stride = np.array([shape[1] * shape[2], shape[2], 1])
    corner = steps * np.array(list(itertools.product(*map(range, counts)))) @ stride
    local = np.rint((positions + 1) / 2 * steps).astype(int) @ stride
    # The elements of a cell, such as six tetrahedra, are numbered consecutively.
    cells = (corner[:, None, None] + local[block][None]).reshape(-1, block.shape[1])
    unit = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1) / (shape - 1.0)
    used = np.unique(cells)
    number = np.full(len(unit), -1)
    number[used] = np.arange(len(used))
    nodes = (unit - np.array([0.0, 0.5, 0.5]))[used]
    faces = _sides(unit, cells, element)
    return nodes, Topology(element, len(used), number[cells], faces)


def _sides(unit: np.ndarray, cells: np.ndarray, element: Element) -> dict[str, np.ndarray]:
    sides = {}
    corners = unit[cells[:, np.array(element.faces)]]
    for name, (axis, value) in zip(SIDES, itertools.product(range(3), (0.0, 1.0)), strict=True):
        on = np.all(corners[..., axis] == value, axis=2)
        sides[name] = np.argwhere(on)
    return sides
