"""Motions of a structure without any force, counted and in words."""

import itertools
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxgrip.assembly import Poses
from jaxgrip.structures import linear, model
from jaxgrip.structures.coupling import Numbering, coupling, matrix
from jaxgrip.structures.structure import Structure

# Of the scaled stiffness, whose largest value is some units.
ZERO = 1e-11


class ZeroModes(NamedTuple):
    """`count` of motions without force, `sentences` about them, `shapes` (count, k, 6)."""

    count: int
    sentences: tuple[str, ...]
    shapes: np.ndarray


def zero_modes(structure: Structure, poses: Poses, taut: Array | None = None) -> ZeroModes:
    """Motions of a structure that need no force.

    **Arguments:** `structure`; `poses`; `taut`: which springs act, all when not given.

    **Returns:** `ZeroModes`; displacements [m] and rotations of all nodes, in axes of the ground.

    Source: 002 section 6.4.
    """
    values, vectors, scale = _modes(structure, poses, taut)
    values = np.asarray(values)
    count = int(np.sum(values < ZERO * values[-1]))
    q = np.asarray(scale)[:, None] * np.asarray(vectors)[:, :count]
    rotations = np.asarray(structure.rotations(poses))[: len(structure.layout.root)]
    u = np.stack([np.asarray(model.displacements(structure, jnp.asarray(x))) for x in q.T] or [[]])
    if not count:
        return ZeroModes(0, (), np.zeros((0, len(rotations), 6)))
    shapes = np.einsum("kab,zkib->zkia", rotations, u.reshape(count, -1, 2, 3))
    shapes = shapes.reshape(count, -1, 6)
    return _in_words(structure, np.asarray(structure.places(poses)), shapes)


@eqx.filter_jit
def _modes(structure: Structure, poses: Poses, taut: Array | None) -> tuple:
    rotations = structure.rotations(poses)
    own = Numbering(structure.layout.dof, structure.freedoms)
    elements = model.elements(structure)
    tied = coupling(structure, poses, elements.bars)
    stretch = matrix(structure, rotations, tied.springs.rows, own)
    spring = tied.springs.stiffness
    if taut is not None:
        spring = jnp.where(taut, spring, 0.0)
    total = model.stiffness(structure, elements) + stretch.T @ (spring[:, None] * stretch)
    equations = matrix(structure, rotations, tied.equations, own)
    scale, weight = linear.scales(total, equations)
    rows = equations * scale[None, :] * weight[:, None]
    scaled = total * scale[:, None] * scale[None, :] + rows.T @ rows
    return *jnp.linalg.eigh(scaled), scale


def _in_words(structure: Structure, places: np.ndarray, shapes: np.ndarray) -> ZeroModes:
    """Combine motions so that each moves as few parts as may be, and describe these."""
    layout = structure.layout
    bounds = [*layout.offsets, len(layout.root)]
    middles, motions, sizes = [], [], []
    for first, last in itertools.pairwise(bounds):
        x = places[first:last]
        middle = x.mean(axis=0)
        size = max(np.linalg.norm(x - middle, axis=1).max(), 1e-9)
        motion = np.stack([_rigid(x - middle, shape[first:last], size) for shape in shapes])
        middles.append(middle)
        motions.append(motion)
        sizes.append(size)
    table = np.concatenate(motions, axis=1).T
    whole = np.max(np.abs(shapes[:, :, :3]), axis=(1, 2), initial=1e-30)
    table, shapes = table / whole, shapes / whole[:, None, None]
    table, mix = _sparse(table)
    shapes = np.einsum("zkc,zy->ykc", shapes, mix)
    sentences = []
    for column, shape in zip(table.T, shapes, strict=True):
        moves = column.reshape(-1, 6)
        strength = np.abs(moves).max(axis=1)
        if strength.max() < 1e-6 * np.abs(shape).max():
            node = int(np.argmax(np.linalg.norm(shape, axis=1)))
            how = (
                "turn" if np.abs(shape[node, 3:]).max() > np.abs(shape[node, :3]).max() else "move"
            )
            sentences.append(f"{structure.label(node).capitalize()} can {how} by itself.")
            continue
        moving = np.flatnonzero(strength > 1e-6 * strength.max())
        lead = moving[np.argmin(moving == -1)] if len(moving) == 1 else _lead(moves, moving)
        text = _motion(moves[lead], middles[lead], sizes[lead])
        others = [repr(structure.names[k]) for k in moving if k != lead]
        along = f", together with {', '.join(others)}" if others else ""
        sentences.append(f"Part {structure.names[lead]!r} can {text}{along}.")
    return ZeroModes(len(shapes), tuple(sentences), shapes)


def _lead(moves: np.ndarray, moving: np.ndarray) -> int:
    return int(moving[np.argmax(np.abs(moves[moving]).max(axis=1))])


def _rigid(arms: np.ndarray, shape: np.ndarray, size: float) -> np.ndarray:
    """Closest rigid motion (6,): way of the middle, then rotation times size [m]."""
    rows = np.zeros((len(arms), 3, 6))
    rows[:, :, :3] = np.eye(3)
    for k, axis in enumerate(np.eye(3)):
        rows[:, :, 3 + k] = np.cross(axis, arms) / size
    turns = np.zeros((len(arms), 3, 6))
    turning = np.any(shape[:, 3:], axis=1)
    turns[turning, :, 3:] = np.eye(3) * 1e-3
    a = np.concatenate([rows, turns]).reshape(-1, 6)
    b = np.concatenate([shape[:, :3], 1e-3 * size * shape[:, 3:]]).reshape(-1)
    return np.linalg.lstsq(a, b, rcond=1e-9)[0]


def _sparse(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Columns combined by elimination with the largest pivots, and the combination."""
    table, mix = table.copy(), np.eye(table.shape[1])
    left = list(range(table.shape[1]))
    while left:
        row, k = np.unravel_index(np.argmax(np.abs(table[:, left])), (len(table), len(left)))
        pivot = left.pop(k)
        if abs(table[row, pivot]) < 1e-9:
            break
        mix[:, pivot] /= table[row, pivot]
        table[:, pivot] /= table[row, pivot]
        for other in range(table.shape[1]):
            if other != pivot:
                factor = table[row, other]
                table[:, other] -= factor * table[:, pivot]
                mix[:, other] -= factor * mix[:, pivot]
    table[np.abs(table) < 1e-7] = 0.0
    return table, mix


def _motion(move: np.ndarray, middle: np.ndarray, size: float) -> str:
    way, turn = move[:3], move[3:] / size
    angle = np.linalg.norm(turn)
    if angle * size < 1e-6 * np.linalg.norm(move):
        return f"slide along {_vector(way / np.linalg.norm(way))}"
    axis = turn / angle
    pitch = axis @ way / angle
    point = middle + np.cross(axis, way) / angle
    text = f"turn about the axis {_vector(axis)} through {_vector(point)} m"
    if abs(pitch) > 1e-6 * size:
        text += f" while sliding {pitch:.4g} m per radian along it"
    return text


def _vector(x: np.ndarray) -> str:
    x = np.where(np.abs(x) < 5e-4 * max(np.abs(x).max(), 1e-9), 0.0, x)
    return f"({', '.join(f'{v:.4g}' for v in x)})"
