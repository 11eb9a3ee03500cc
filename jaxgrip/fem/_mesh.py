"""Meshes: traced node positions, static connectivity."""

from collections.abc import Mapping

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import concrete, numbers
from jaxgrip.fem.elements.element import Element
from jaxgrip.fem.topology import Topology


class Mesh(eqx.Module):
    """Nodes and elements of one type.

    **Fields:** `nodes` (n, 3), positions [m], traced; `topology`, connectivity and named faces.

    **Raises:** `ValueError` when an element is inverted or degenerate (its index is named), an
    index is out of range, a node belongs to no element, or a position is not finite.
    """

    nodes: Float[Array, "n 3"]
    topology: Topology

    def __init__(self, nodes, topology: Topology):
        self.nodes = numbers("The array of nodes", nodes, (topology.n_nodes, 3))
        self.topology = topology
        _check(self)

    @property
    def element(self) -> Element:
        """The element type."""
        return self.topology.element

    @property
    def cell_nodes(self) -> Float[Array, "elements n 3"]:
        """Node positions of each element [m]."""
        return self.nodes[self.topology.cells]

    def nearest(self, place) -> int:
        """Index of the node nearest to a position (3,) [m]; nodes must not be traced."""
        return int(np.argmin(np.linalg.norm(np.asarray(self.nodes) - np.asarray(place), axis=1)))


def mesh(
    nodes,
    cells,
    element: Element,
    *,
    faces: Mapping[str, np.ndarray] | None = None,
    points: Mapping[str, np.ndarray] | None = None,
) -> Mesh:
    """A mesh of nodes (n, 3) [m] and cells (elements, nodes of one) of one element type.

    **Arguments:** `faces`, name to (faces, 2), element and local face; `points`, name to node
    indices.

    **Raises:** `ValueError` as `Mesh` does.
    """
    cells = np.asarray(cells)
    n = len(nodes)
    if cells.ndim != 2 or cells.shape[1] != len(element.nodes):
        raise ValueError(
            f"Cells of {type(element).__name__} need {len(element.nodes)} nodes each, but their "
            f"shape is {cells.shape}."
        )
    if cells.size and not (cells.min() >= 0 and cells.max() < n):
        bad = int(np.argmax((cells < 0).any(axis=1) | (cells >= n).any(axis=1)))
        raise ValueError(f"Element {bad} uses a node that does not exist (there are {n}).")
    for name, chosen in (points or {}).items():
        if np.size(chosen) and not (np.min(chosen) >= 0 and np.max(chosen) < n):
            raise ValueError(f"The set {name!r} has a node that does not exist (there are {n}).")
    for name, pairs in (faces or {}).items():
        most = np.array([len(cells), len(element.faces)])
        if not ((np.asarray(pairs) >= 0) & (np.asarray(pairs) < most)).all():
            raise ValueError(
                f"The face {name!r} names an element or a side that does not exist (there are "
                f"{most[0]} elements with {most[1]} sides)."
            )
    loose = np.setdiff1d(np.arange(n), cells)
    if len(loose):
        raise ValueError(f"Node {loose[0]} belongs to no element ({len(loose)} such nodes).")
    return Mesh(nodes, Topology(element, n, cells, faces, points))


def _check(grid: Mesh) -> None:
    if not concrete(grid.nodes):
        return
    with jax.ensure_compile_time_eval():
        ratio = np.asarray(_ratios(grid.element, grid.cell_nodes))
    bad = np.flatnonzero(~(ratio > 0).all(axis=1))
    if len(bad):
        state = "inverted" if ratio[bad[0]].min() < 0 else "degenerate"
        others = f" ({len(bad)} such elements)" if len(bad) > 1 else ""
        raise ValueError(
            f"Element {bad[0]} is {state}{others}: its nodes "
            f"{grid.topology.cells[bad[0]].tolist()} are in a wrong order or coincide."
        )


@eqx.filter_jit
def _ratios(element: Element, x: Float[Array, "elements n 3"]) -> Float[Array, "elements points"]:
    return jax.vmap(element.jacobians)(x)
