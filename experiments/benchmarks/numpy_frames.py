"""Beam frames in NumPy and SciPy, one at a time: the peer of `jaxgrip.fem.structures`.

Euler-Bernoulli beams with weight, parts sharing degrees of freedom, a sparse direct solver.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse
import scipy.sparse.linalg


class Frame(NamedTuple):
    """All parts of a frame, each in its own axes.

    `part` (k,) of every node; `ends` (m, 2); `local` (m, 12, 12), `weight` (m, 12, 3), stiffness
    and load per gravity, in part axes; `freedoms` (k, 6), degrees of freedom, -1 where fixed;
    `bars` (b, 2) with `rigidity` (b,) and mass per length `heavy` (b,).
    """

    part: np.ndarray
    nodes: np.ndarray
    ends: np.ndarray
    local: np.ndarray
    weight: np.ndarray
    freedoms: np.ndarray
    bars: np.ndarray
    rigidity: np.ndarray
    heavy: np.ndarray


def beams(
    nodes: np.ndarray, ends: np.ndarray, section: dict[str, float], across: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Stiffness (m, 12, 12) and load by free fall (m, 12, 3) of beams of one section."""
    turn, length = _axes(nodes, ends, across)
    k = np.zeros((len(ends), 12, 12))
    stretch, twist = section["E"] * section["A"] / length, section["G"] * section["J"] / length
    for first, value in ((0, stretch), (3, twist)):
        k[:, first, first] = k[:, first + 6, first + 6] = value
        k[:, first, first + 6] = k[:, first + 6, first] = -value
    for places, second, sign in (((1, 5, 7, 11), "Iz", 1.0), ((2, 4, 8, 10), "Iy", -1.0)):
        b = section["E"] * section[second] / length**3
        n = sign * length
        block = np.array(
            [
                [12 + 0 * n, 6 * n, -12 + 0 * n, 6 * n],
                [6 * n, 4 * n * n, -6 * n, 2 * n * n],
                [-12 + 0 * n, -6 * n, 12 + 0 * n, -6 * n],
                [6 * n, 2 * n * n, -6 * n, 4 * n * n],
            ]
        )
        k[np.ix_(range(len(ends)), places, places)] += np.moveaxis(b * block, 2, 0)
    load = np.zeros((len(ends), 12, 3))
    half = section["rho"] * section["A"] * length / 2
    for axis in range(3):
        load[:, axis, axis] = load[:, 6 + axis, axis] = half
    load[:, 5, 1], load[:, 11, 1] = half * length / 6, -half * length / 6
    load[:, 4, 2], load[:, 10, 2] = -half * length / 6, half * length / 6
    k, back = _turned(k, turn)
    return k, back @ load @ turn


def masses(
    nodes: np.ndarray, ends: np.ndarray, section: dict[str, float], across: np.ndarray
) -> np.ndarray:
    """Consistent mass (m, 12, 12) of beams of one section, with rotary inertia.

    Source: Przemieniecki 1968, chapter 11.
    """
    turn, length = _axes(nodes, ends, across)
    m = np.zeros((len(ends), 12, 12))
    heavy = section["rho"] * section["A"] * length
    polar = section["rho"] * (section["Iy"] + section["Iz"]) * length
    for first, value in ((0, heavy), (3, polar)):
        m[:, first, first] = m[:, first + 6, first + 6] = value / 3
        m[:, first, first + 6] = m[:, first + 6, first] = value / 6
    for places, second, sign in (((1, 5, 7, 11), "Iz", 1.0), ((2, 4, 8, 10), "Iy", -1.0)):
        n, one = sign * length, np.ones_like(length)
        moved = [
            [156 * one, 22 * n, 54 * one, -13 * n],
            [22 * n, 4 * n * n, 13 * n, -3 * n * n],
            [54 * one, 13 * n, 156 * one, -22 * n],
            [-13 * n, -3 * n * n, -22 * n, 4 * n * n],
        ]
        turned = [
            [36 * one, 3 * n, -36 * one, 3 * n],
            [3 * n, 4 * n * n, -3 * n, -n * n],
            [-36 * one, -3 * n, 36 * one, -3 * n],
            [3 * n, -n * n, -3 * n, 4 * n * n],
        ]
        rotary = section["rho"] * section[second] / 30 / length
        block = heavy / 420 * np.array(moved) + rotary * np.array(turned)
        m[np.ix_(range(len(ends)), places, places)] += np.moveaxis(block, 2, 0)
    return _turned(m, turn)[0]


def _axes(nodes: np.ndarray, ends: np.ndarray, across: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Axes (m, 3, 3) of sections as rows, and lengths (m,)."""
    way = nodes[ends[:, 1]] - nodes[ends[:, 0]]
    length = np.linalg.norm(way, axis=1)
    x = way / length[:, None]
    z = np.cross(x, across)
    z /= np.linalg.norm(z, axis=1)[:, None]
    return np.stack([x, np.cross(z, x), z], axis=1), length


def _turned(k: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Matrices (m, 12, 12) in the axes of the parts, and what turns displacements."""
    big = np.zeros_like(k)
    for block in range(4):
        big[:, 3 * block : 3 * block + 3, 3 * block : 3 * block + 3] = turn
    return np.swapaxes(big, 1, 2) @ k @ big, np.swapaxes(big, 1, 2)


def solve(
    frame: Frame,
    position: np.ndarray,
    rotation: np.ndarray,
    gravity: np.ndarray,
    node: int,
    force: np.ndarray,
) -> np.ndarray:
    """Displacements (k, 6) of all nodes under weight and a force on one node."""
    matrix, load = equations(frame, position, rotation, gravity, node, force)
    factors = scipy.sparse.linalg.splu(
        matrix, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}
    )
    return np.append(factors.solve(load), 0.0)[frame.freedoms]


def equations(
    frame: Frame,
    position: np.ndarray,
    rotation: np.ndarray,
    gravity: np.ndarray,
    node: int,
    force: np.ndarray,
) -> tuple[scipy.sparse.csc_matrix, np.ndarray]:
    """Stiffness and load under weight and a force on one node, of the free degrees of freedom."""
    turn = rotation[frame.part[frame.ends[:, 0]]]
    big = np.zeros_like(frame.local)
    for block in range(4):
        big[:, 3 * block : 3 * block + 3, 3 * block : 3 * block + 3] = turn
    k = big @ frame.local @ np.swapaxes(big, 1, 2)
    f = np.einsum("mij,mjk,mlk,l->mi", big, frame.weight, turn, gravity)
    own = frame.freedoms[frame.ends].reshape(-1, 12)
    x = position[frame.part] + np.einsum("kab,kb->ka", rotation[frame.part], frame.nodes)
    way = x[frame.bars[:, 1]] - x[frame.bars[:, 0]]
    length = np.linalg.norm(way, axis=1)
    e = way / length[:, None]
    bar = np.einsum("b,ba,bc->bac", frame.rigidity / length, e, e)
    bar = np.block([[bar, -bar], [-bar, bar]])
    bar_own = frame.freedoms[frame.bars][:, :, :3].reshape(-1, 6)
    rows = np.concatenate([np.repeat(own, 12, axis=1).ravel(), np.repeat(bar_own, 6, 1).ravel()])
    columns = np.concatenate([np.tile(own, 12).ravel(), np.tile(bar_own, 6).ravel()])
    values = np.concatenate([k.ravel(), bar.ravel()])
    kept = (rows >= 0) & (columns >= 0)
    size = frame.freedoms.max() + 1
    matrix = scipy.sparse.csc_matrix(
        (values[kept], (rows[kept], columns[kept])), shape=(size, size)
    )
    load = np.zeros(size + 1)
    np.add.at(load, own.ravel(), f.ravel())
    half = (frame.heavy * length / 2)[:, None, None] * gravity
    np.add.at(
        load, frame.freedoms[frame.bars][:, :, :3], np.broadcast_to(half, (*half.shape[:1], 2, 3))
    )
    np.add.at(load, frame.freedoms[node, :3], force)
    return matrix, load[:-1]
