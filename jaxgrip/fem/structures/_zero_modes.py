"""Motions of a structure that need no force, counted and described."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.sparse.linalg
from jaxtyping import Array

from jaxgrip.fem import direct
from jaxgrip.fem.structures import _linear as linear
from jaxgrip.fem.structures import _model as model
from jaxgrip.fem.structures._coupling import Numbering, coupling, matrix, rows_of
from jaxgrip.fem.structures._structure import Structure, check_whole
from jaxgrip.mechanism import Poses
from jaxgrip.solve import dense

# Eigenvalues of the scaled stiffness that count as zero, relative to the largest.
ZERO = 1e-11
# Shift of the scaled stiffness of large structures, so that it can be factorised; numbers of
# motions sought at first and at most.
SHIFT, FIRST, MOST = 1e-9, 8, 64
# Deviation from a rigid motion, relative to the largest displacement, above which a part deforms.
RIGID = 1e-6
# Largest numbers of node ranges and of directions that are listed.
LISTED, MANY = 8, 3


class ZeroModes(NamedTuple):
    """`count` of motions without force, `sentences` describing them, `shapes` (count, k, 6)."""

    count: int
    sentences: tuple[str, ...]
    shapes: np.ndarray


def zero_modes(structure: Structure, poses: Poses, taut: Array | None = None) -> ZeroModes:
    """Motions of a structure that need no force.

    **Arguments:** `structure`; `poses`; `taut`: which springs act, all when not given.

    **Returns:** `ZeroModes`; displacements [m] and rotations of all nodes, in ground axes.

    Source: own derivation.
    """
    check_whole(structure)
    structure.check(poses)
    springs = model.springs(structure)
    if taut is not None and np.shape(taut) != (springs,):
        raise ValueError(f"taut has the shape {np.shape(taut)}; it must be ({springs},).")
    if found := _not_finite(structure):
        return ZeroModes(0, (found,), np.zeros((0, len(structure.layout.root), 6)))
    if linear.is_large(structure.degrees_of_freedom):
        q = _softest(structure, poses, taut)
    else:
        values, vectors, scale = map(np.asarray, _modes(structure, poses, taut))
        q = scale[:, None] * vectors[:, ~(values >= ZERO * values[-1])]
    count = q.shape[1]
    rotations = np.asarray(structure.rotations(poses))[: len(structure.layout.root)]
    u = [np.asarray(model.displacements(structure, jnp.asarray(x))) for x in q.T]
    shapes = np.reshape(u, (count, len(rotations), 2, 3))
    shapes = np.einsum("kab,zkib->zkia", rotations, shapes).reshape(count, len(rotations), 6)
    return in_words(structure, np.asarray(structure.places(poses)), shapes)


@eqx.filter_jit
def _modes(structure: Structure, poses: Poses, taut: Array | None) -> tuple:
    stiffness, stretch, spring, equations = _matrices(structure, poses, taut, matrix)
    total = linear.with_springs(stiffness.dense(), stretch, spring)
    scaled, _, scale, _ = linear.scaled(total, equations)
    return *dense.eigh(scaled), scale


def _softest(structure: Structure, poses: Poses, taut: Array | None) -> np.ndarray:
    """Motions (n, z) of a large structure that need no force."""
    pattern, values, scale = _softened(structure, poses, taut)
    whole = pattern.matrix(np.asarray(values))
    largest = np.abs(whole).sum(axis=0).max()
    inverse = scipy.sparse.linalg.LinearOperator(
        whole.shape,
        lambda x: direct.host_solve(pattern, np.asarray(values), x.ravel()),
        dtype=float,
    )
    start = np.random.default_rng(0).standard_normal(pattern.size)
    count = FIRST
    while True:
        count = min(count, pattern.size - 1)
        found, vectors = scipy.sparse.linalg.eigsh(whole, count, sigma=0.0, OPinv=inverse, v0=start)
        zero = found - SHIFT < ZERO * largest
        if not zero.all() or count >= min(MOST, pattern.size - 1):
            return np.asarray(scale)[:, None] * vectors[:, zero]
        count *= 2


@eqx.filter_jit
def _softened(structure: Structure, poses: Poses, taut: Array | None) -> tuple:
    stiffness, stretch, spring, equations = _matrices(structure, poses, taut, rows_of)
    total = linear.with_springs(stiffness, stretch, spring)
    return linear.softened(total, equations, SHIFT)


def _matrices(structure: Structure, poses: Poses, taut: Array | None, rows: Callable) -> tuple:
    """Stiffness of the parts, rows of all springs and their stiffness, equations."""
    rotations = structure.rotations(poses)
    own = Numbering(structure.layout.dof, structure.degrees_of_freedom)
    elements = model.elements(structure)
    tied = coupling(structure, poses, elements.bars)
    spring = tied.springs.stiffness
    if taut is not None:
        spring = jnp.where(taut, spring, 0.0)
    stretch, equations = (
        rows(structure, rotations, of, own) for of in (tied.springs.rows, tied.equations)
    )
    return model.stiffness(structure, elements), stretch, spring, equations


def _not_finite(structure: Structure) -> str:
    """A sentence naming an element whose stiffness is not finite; empty if none."""
    beams, bars = _finite(structure)
    for group, finite in zip(model.beam_groups(structure), beams, strict=True):
        if not finite.all():
            return _no_stiffness(structure, "beam", group.ends[np.argmin(finite)])
    if not bars.all():
        return _no_stiffness(structure, "bar", model.bars(structure).ends[np.argmin(bars)])
    return ""


@eqx.filter_jit
def _finite(structure: Structure) -> tuple[list[Array], Array]:
    """Whether the stiffness of beams, group by group, and of bars is finite."""
    elements = model.elements(structure)
    beams = [jnp.isfinite(x.stiffness).all(axis=(1, 2)) for x in elements.matrices]
    return beams, jnp.isfinite(elements.bars.stiffness)


def _no_stiffness(structure: Structure, kind: str, ends: np.ndarray) -> str:
    (name, first), (_, second) = map(structure.owner, map(int, ends))
    return (
        f"The {kind} between nodes {first} and {second} of part {name!r} has a stiffness that is "
        "not finite."
    )


def in_words(structure: Structure, places: np.ndarray, shapes: np.ndarray) -> ZeroModes:
    """Motions, recombined so that each moves as few parts or nodes as possible, and described.

    **Arguments:** `structure`; `places` of its nodes [m]; `shapes` (z, k, 6), displacements [m] and
    rotations of all nodes.
    """
    if not len(shapes):
        return ZeroModes(0, (), shapes)
    if not np.isfinite(shapes).all():
        return ZeroModes(len(shapes), ("The stiffness is not finite.",), shapes)
    layout = structure.layout
    shapes = shapes / np.max(np.abs(shapes), axis=(1, 2), keepdims=True)
    bounds = list(itertools.pairwise([*layout.offsets, len(layout.root)]))
    bodies = [_Body(places[first:last]) for first, last in bounds]
    fits = [body.fit(shapes[:, a:b]) for body, (a, b) in zip(bodies, bounds, strict=True)]
    table = np.concatenate([fit for fit, _ in fits], axis=1).T
    bent = np.concatenate([rest for _, rest in fits], axis=1).T
    # First the combinations in which every part moves rigidly.
    _, sizes, right = np.linalg.svd(np.linalg.qr(bent, mode="r"))
    rank = int(np.sum(sizes > RIGID))
    stiff, loose = right[rank:].T, right[:rank].T
    table, mix = _sparse(table @ stiff)
    stiff = stiff @ mix
    sentences = [_of_parts(structure, bodies, column.reshape(-1, 6)) for column in table.T]
    both = np.concatenate([stiff, loose], axis=1)
    flat = shapes.reshape(len(shapes), -1).T
    _, mix = _sparse(flat @ both, len(both) - rank)
    loose = (both @ mix)[:, len(both) - rank :]
    shapes = np.einsum("zkc,zy->ykc", shapes, np.concatenate([stiff, loose], axis=1))
    sentences += _of_nodes(structure, shapes[len(shapes) - rank :])
    return ZeroModes(len(shapes), tuple(sentences), shapes)


def giving_way(structure: Structure, shape: np.ndarray, loose: float) -> str:
    """The largest part of a motion (k, 6) of the nodes and `loose` of released ends, in words."""
    moved, rotated = (np.linalg.norm(shape[:, x], axis=1) for x in (slice(3), slice(3, 6)))
    if max(moved.max(), rotated.max()) < 1e-6 * loose:
        return "a beam deforms between its ends"
    if moved.max() > 1e-6 * rotated.max():
        node = int(np.argmax(moved))
        return f"{structure.label(node)} moves along {_vector(_direction(shape[node, :3]))}"
    node = int(np.argmax(rotated))
    return f"{structure.label(node)} rotates about {_vector(_direction(shape[node, 3:]))}"


class _Body:
    """Nodes (k, 3) of a part as one rigid body."""

    def __init__(self, places: np.ndarray):
        self.middle = places.mean(axis=0)
        self.arms = places - self.middle
        self.size = max(np.linalg.norm(self.arms, axis=1).max(), 1e-9)
        rows = np.zeros((len(places), 2, 3, 6))
        rows[:, 0, :, :3] = np.eye(3)
        for k, axis in enumerate(np.eye(3)):
            rows[:, 0, :, 3 + k] = np.cross(axis, self.arms) / self.size
        self._displacements = rows[:, 0]

    def fit(self, shapes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Closest rigid motions (z, 6) of shapes, and the residuals.

        A motion is a translation, then a rotation times size [m]. Nodes without rotations, those of
        bars only, do not count in the rotations.
        """
        moved = shapes[:, :, :3].reshape(len(shapes), -1)
        rotates = np.any(shapes[:, :, 3:], axis=(0, 2))
        rotations = np.zeros((int(rotates.sum()), 3, 6))
        rotations[:, :, 3:] = np.eye(3)
        rotated = self.size * shapes[:, rotates, 3:].reshape(len(shapes), -1)
        rows = np.concatenate([self._displacements.reshape(-1, 6), rotations.reshape(-1, 6)])
        wanted = np.concatenate([moved, rotated], axis=1).T
        found = np.linalg.lstsq(rows, wanted, rcond=1e-9)[0]
        return found.T, (wanted - rows @ found).T


def _of_parts(structure: Structure, bodies: list[_Body], moves: np.ndarray) -> str:
    """Sentence on a motion in which parts stay rigid."""
    strength = np.abs(moves).max(axis=1)
    moving = np.flatnonzero(strength > 1e-6 * strength.max())
    lead = int(moving[np.argmax(strength[moving])])
    others = [repr(structure.names[k]) for k in moving if k != lead]
    along = f", together with {', '.join(others)}" if others else ""
    return f"Part {structure.names[lead]!r} can {_motion(moves[lead], bodies[lead])}{along}."


def _of_nodes(structure: Structure, shapes: np.ndarray) -> list[str]:
    """Sentences on nodes that move within parts, one for all that move alike."""
    alone: dict[tuple[str, bool], dict[int, list[np.ndarray]]] = {}
    sentences = []
    for shape in shapes:
        shape = shape / np.abs(shape).max()
        moved = np.linalg.norm(shape[:, :3], axis=1)
        turns = bool(moved.max() < 1e-6)
        size = np.linalg.norm(shape[:, 3:], axis=1) if turns else moved
        moving = np.flatnonzero(size > 1e-6 * size.max())
        vectors = shape[:, 3:] if turns else shape[:, :3]
        if len(moving) == 1:
            node = int(moving[0])
            name, number = structure.owner(node)
            own = alone.setdefault((name, turns), {}).setdefault(number, [])
            own.append(_direction(vectors[node]))
        else:
            sentences.append(_together(structure, moving, vectors, turns))
    for (name, turns), nodes in alone.items():
        alike: dict[str, list[int]] = {}
        for number, directions in nodes.items():
            texts = sorted(map(_vector, directions), reverse=True)
            text = "in any direction" if len(texts) == 3 else f"along {' and '.join(texts)}"
            if turns:
                text = "about any axis" if len(texts) == 3 else f"about {' and '.join(texts)}"
            alike.setdefault(text, []).append(number)
        for text, numbers in alike.items():
            each = "each " if len(numbers) > 1 else ""
            verb = "rotate" if turns else "move"
            which = _numbers(numbers)
            sentences.append(
                f"{which[0].upper()}{which[1:]} of part {name!r} can {each}{verb} by "
                f"{'themselves' if each else 'itself'} {text}."
            )
    return sentences


def _together(structure: Structure, moving: np.ndarray, vectors: np.ndarray, turns: bool) -> str:
    """Sentence on nodes that move together, grouped by direction."""
    alike: dict[tuple[str, str], list[int]] = {}
    for node in moving:
        name, number = structure.owner(int(node))
        alike.setdefault((name, _vector(_direction(vectors[node], signed=True))), []).append(number)
    verb, along = ("rotate", "about") if turns else ("move", "along")
    if len(alike) > MANY:
        most = int(np.argmax(np.linalg.norm(vectors, axis=1)))
        parts: dict[str, list[int]] = {}
        for node in moving:
            name, number = structure.owner(int(node))
            parts.setdefault(name, []).append(number)
        which = "; ".join(f"{_numbers(own)} of part {name!r}" for name, own in parts.items())
        direction = _vector(_direction(vectors[most], signed=True))
        return (
            f"{which[0].upper()}{which[1:]} can {verb} together, most of all "
            f"{structure.label(most)}, {along} {direction}."
        )
    texts = [
        f"{_numbers(own)} of part {name!r} {along} {direction}"
        for (name, direction), own in alike.items()
    ]
    first, rest = texts[0], texts[1:]
    first = first.replace(f" {along} ", f" can {verb} {along} ", 1)
    return ", and with it ".join([first[0].upper() + first[1:], *rest]) + "."


def _numbers(nodes: list[int]) -> str:
    """Node numbers in words, consecutive ones as ranges."""
    nodes = sorted(nodes)
    runs: list[list[int]] = []
    for node in nodes:
        if runs and node == runs[-1][-1] + 1:
            runs[-1].append(node)
        else:
            runs.append([node])
    texts = []
    for run in runs:
        texts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else [str(node) for node in run]
    if len(texts) > LISTED:
        texts = [*texts[:LISTED], f"… ({len(nodes)} in all)"]
    head = "node" if len(nodes) == 1 else "nodes"
    return f"{head} {', '.join(texts)}"


def _direction(vector: np.ndarray, *, signed: bool = False) -> np.ndarray:
    unit = vector / np.linalg.norm(vector)
    return unit if signed else unit * np.sign(unit[np.argmax(np.abs(unit) > 1e-6)])


def _sparse(table: np.ndarray, first: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Columns made sparse by elimination with full pivoting, and the combination.

    With `first`, that many columns are eliminated before the others.
    """
    table, mix = table.copy(), np.eye(table.shape[1])
    columns = list(range(table.shape[1]))
    for left in [columns] if first is None else [columns[:first], columns[first:]]:
        left = left.copy()
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


def _motion(move: np.ndarray, body: _Body) -> str:
    translation, rotation = move[:3], move[3:] / body.size
    angle = np.linalg.norm(rotation)
    if angle * body.size < 1e-6 * np.linalg.norm(move):
        return f"slide along {_vector(translation / np.linalg.norm(translation))}"
    axis = rotation / angle
    pitch = axis @ translation / angle
    point = body.middle + np.cross(axis, translation) / angle
    text = f"rotate about the axis {_vector(axis)} through {_vector(point)} m"
    if abs(pitch) > 1e-6 * body.size:
        text += f" while sliding {pitch:.4g} m per radian along it"
    return text


def _vector(x: np.ndarray) -> str:
    x = np.where(np.abs(x) < 5e-4 * max(np.abs(x).max(), 1e-9), 0.0, x)
    return f"({', '.join(f'{v:.4g}' for v in x)})"
