"""Meshes of beams along a line."""

import jax.numpy as jnp
import numpy as np

from jaxgrip.checks import numbers, positive
from jaxgrip.fem._mesh import Mesh
from jaxgrip.fem.elements.element import Element
from jaxgrip.fem.elements.timoshenko import Timoshenko
from jaxgrip.fem.topology import Topology


def line_mesh(line, n: int, *, element: Element | None = None) -> Mesh:
    """Beams along a polyline, n of equal length on each straight segment.

    **Arguments:** `line`, length of a line from the origin along x [m], or corners (m, 3) [m],
    may be traced; `n`, number of elements per segment; `element`, `Timoshenko()` when not given.

    **Returns:** a mesh with the points `x0`, the first node, and `x1`, the last.

    **Raises:** `ValueError` when a length or a number of elements is not positive.
    """
    if n < 1 or n != int(n):
        raise ValueError(f"The number of elements n is {n}; it must be at least 1.")
    if np.ndim(line) == 0:
        length = positive("The length of the line", line, (), unit="m")
        corners = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]) * length
    else:
        count = max(len(line), 2)
        corners = numbers("The line", line, (count, 3))
    pieces = len(corners) - 1
    share = np.arange(pieces * n + 1) / n
    weights = np.maximum(0.0, 1 - np.abs(share[:, None] - np.arange(pieces + 1)))
    nodes = jnp.asarray(weights) @ corners
    cells = np.arange(pieces * n)[:, None] + np.arange(2)
    ends = {"x0": np.array([0]), "x1": np.array([pieces * n])}
    return Mesh(nodes, Topology(element or Timoshenko(), len(weights), cells, points=ends))
