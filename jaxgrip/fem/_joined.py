"""Check that elements that touch share their nodes."""

import warnings
from pathlib import Path

import numpy as np
import scipy.spatial
from jaxtyping import Float, Int

from jaxgrip.fem.elements.element import Element

# Largest gap between a node and a face or another node that touch, relative to the face's size.
NEAR = 1e-5


def check_joined(
    path: Path, nodes: Float[np.ndarray, "n 3"], cells: Int[np.ndarray, "m k"], element: Element
) -> None:
    """Raise `ValueError` for hanging nodes, and warn of coincident nodes.

    A hanging node lies within a face or an edge of an element that it does not belong to, so
    displacements are discontinuous there. Coincident nodes may be intended, as in a crack.
    """
    local = np.array(element.faces)
    faces = cells[:, local].reshape(-1, local.shape[1])
    _, index, count = np.unique(
        np.sort(faces, axis=1), axis=0, return_index=True, return_counts=True
    )
    outer = index[count == 1]
    faces, owner = faces[outer], outer // len(local)
    triangles = faces[:, :3]
    if local.shape[1] not in (3, 6):
        triangles = np.concatenate([triangles, faces[:, [0, 2, 3]]])
        faces, owner = np.tile(faces, (2, 1)), np.tile(owner, 2)
    surface = np.unique(faces)
    corners = nodes[triangles]
    centre = corners.mean(axis=1)
    radius = np.linalg.norm(corners - centre[:, None], axis=2).max(axis=1)
    tree = scipy.spatial.cKDTree(nodes[surface])
    near = tree.query_ball_point(centre, radius * (1 + NEAR))
    face = np.repeat(np.arange(len(faces)), [len(found) for found in near])
    node = surface[np.concatenate(near).astype(int)]
    other = (faces[face] != node[:, None]).all(axis=1)
    face, node = face[other], node[other]
    on = _on_triangles(nodes[node], corners[face], NEAR * radius[face])
    face, node = face[on], node[on]
    apart = np.linalg.norm(nodes[faces[face]] - nodes[node][:, None], axis=2).min(axis=1)
    double = apart <= NEAR * radius[face]
    hanging = np.unique(node[~double])
    if len(hanging):
        first = np.flatnonzero(~double)[0]
        where = ", ".join(f"{x:.6g}" for x in nodes[node[first]])
        raise ValueError(
            f"The mesh file {path} has {len(hanging)} hanging nodes: the one at ({where}) lies "
            f"within a face or edge of element {owner[face[first]]} without being one of its "
            "nodes, so the two sides could separate there. Mesh both sides together (in Gmsh: "
            "BooleanFragments before meshing)."
        )
    if double.any():
        where = ", ".join(f"{x:.6g}" for x in nodes[node[0]])
        warnings.warn(
            f"The mesh file {path} has {len(np.unique(node))} nodes that coincide with others, as "
            f"at ({where}): elements there touch but are not joined. Unless that is intended, "
            "merge them (in Gmsh: Coherence Mesh).",
            stacklevel=3,
        )


def _on_triangles(
    x: Float[np.ndarray, "m 3"], corners: Float[np.ndarray, "m 3 3"], gap: Float[np.ndarray, " m"]
) -> np.ndarray:
    """Whether each point is within the gap [m] of its triangle's plane and edges."""
    a, b = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    normal = np.cross(a, b)
    area = np.linalg.norm(normal, axis=1)
    flat = area > 0
    unit = normal / np.where(flat, area, 1.0)[:, None]
    inside = flat & (np.abs(np.sum((x - corners[:, 0]) * unit, axis=1)) <= gap)
    for k in range(3):
        start, edge = corners[:, k], corners[:, (k + 1) % 3] - corners[:, k]
        inward = np.cross(unit, edge)
        size = np.maximum(np.linalg.norm(inward, axis=1), np.finfo(float).tiny)
        inside &= np.sum((x - start) * inward, axis=1) >= -gap * size
    return inside
