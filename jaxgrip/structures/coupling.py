"""Equations and springs between parts, at given poses."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.fem import element_sum
from jaxgrip.joints import Frame, Joint, frame, relative
from jaxgrip.mechanism import Poses
from jaxgrip.spatial.rotations import skew
from jaxgrip.structures.model import Bar, arms
from jaxgrip.structures.structure import Block, Structure


class Numbering(NamedTuple):
    """Which freedom each of six of a node is; `count` itself for none."""

    dof: np.ndarray
    count: int


class Rows(NamedTuple):
    """Linear functions of the displacements of nodes, in axes of the ground, entry by entry.

    `coefficients` (e, 6) of the displacement and rotation of `stations` (e,) in row `rows` (e,).
    """

    coefficients: Float[Array, "e 6"]
    stations: np.ndarray
    rows: np.ndarray
    count: int


class Springs(NamedTuple):
    """Ropes within parts, then ties, then turning springs.

    `tension_only` (s,); `stiffness` (s,) [N/m]; `rows` their stretch.
    """

    tension_only: np.ndarray
    stiffness: Float[Array, " s"]
    rows: Rows


class Coupling(NamedTuple):
    """Equations that hold parts together, and springs between them."""

    equations: Rows
    springs: Springs


def coupling(structure: Structure, poses: Poses, bar: Bar) -> Coupling:
    """All equations and springs between parts at given poses; `bar` as `model` has them."""
    layout = structure.layout
    places = structure.places(poses)
    equations, springs = [], []
    for block, (values, stations, rows) in zip(
        layout.blocks, _entries(structure, poses), strict=True
    ):
        (springs if block.spring else equations).append((values, stations, rows))
    return Coupling(_joined(equations, layout.equations), _springs(structure, bar, places, springs))


def matrix(
    structure: Structure, rotations: Float[Array, "k 3 3"], rows: Rows, numbering: Numbering
) -> Float[Array, "r n"]:
    """The rows by the freedoms of the parts, which are in axes of the parts."""
    values = in_parts(structure, rotations, rows.stations, rows.coefficients)
    dof = numbering.dof[rows.stations]
    zero = jnp.zeros((rows.count, numbering.count))
    return zero.at[rows.rows[:, None], dof].add(values, mode="drop")


def rows_of(
    structure: Structure, rotations: Float[Array, "k 3 3"], rows: Rows, numbering: Numbering
) -> element_sum.Rows:
    """The same as `matrix`, row by row."""
    values = in_parts(structure, rotations, rows.stations, rows.coefficients)
    index = numbering.dof[rows.stations]
    order = np.argsort(rows.rows, kind="stable")
    width = np.bincount(rows.rows, minlength=rows.count)
    first = np.cumsum(width) - width
    groups = []
    for w in np.unique(width[width > 0]):
        own = np.flatnonzero(width == w)
        of = order[first[own][:, None] + np.arange(w)]
        groups.append((own, index[of].reshape(-1, 6 * w), values[of].reshape(-1, 6 * w)))
    return element_sum.Rows(rows.count, numbering.count, groups)


def in_parts(
    structure: Structure,
    rotations: Float[Array, "k 3 3"],
    stations: np.ndarray,
    forces: Float[Array, "e 6"],
) -> Float[Array, "e 6"]:
    """Forces on nodes, in axes of the ground, as forces on the nodes they follow in part axes."""
    turned = jnp.einsum("eba,ekb->eka", rotations[stations], forces.reshape(-1, 2, 3))
    turned = turned.reshape(-1, 6)
    link = arms(structure, stations)
    return turned if link is None else jnp.einsum("eak,ea->ek", link, turned)


def _springs(structure: Structure, bar: Bar, places: Array, turning: list) -> Springs:
    layout = structure.layout
    ropes = np.flatnonzero(bar.tension_only)
    kinds = [structure.kind(span) for span in layout.spans]
    ends = np.concatenate(
        [bar.ends[ropes], np.array([s.ends for s in layout.spans], dtype=int).reshape(-1, 2)]
    )
    way = places[ends[:, 1]] - places[ends[:, 0]]
    length = jnp.linalg.norm(way, axis=1)
    direction = way / length[:, None]
    still = jnp.zeros_like(direction)
    values = jnp.stack(
        [jnp.concatenate([-direction, still], 1), jnp.concatenate([direction, still], 1)], axis=1
    )
    own = length[len(ropes) :]
    stiffness = [bar.stiffness[ropes]] + [k.stiffness(own[i])[None] for i, k in enumerate(kinds)]
    spans = len(ends)
    entries = [(values.reshape(-1, 6), ends.reshape(-1), np.repeat(np.arange(spans), 2))]
    entries += [(v, s, spans + r) for v, s, r in turning]
    turned = [block for block in layout.blocks if block.spring]
    stiffness += [
        jnp.broadcast_to(structure.transfer[b.name].k, (b.rows[1] - b.rows[0],)) for b in turned
    ]
    tension = [bar.tension_only[ropes], [s.tension_only for s in layout.spans]]
    return Springs(
        np.concatenate([*tension, np.zeros(layout.row_springs)]).astype(bool),
        jnp.concatenate(stiffness),
        _joined(entries, spans + layout.row_springs),
    )


def _joined(entries: list, count: int) -> Rows:
    if not entries:
        return Rows(jnp.zeros((0, 6)), np.zeros(0, dtype=int), np.zeros(0, dtype=int), count)
    values, stations, rows = zip(*entries, strict=True)
    return Rows(jnp.concatenate(values), np.concatenate(stations), np.concatenate(rows), count)


def _entries(structure: Structure, poses: Poses) -> list[tuple[Array, np.ndarray, np.ndarray]]:
    """Coefficients of every block, with stations and rows."""
    places = structure.places(poses)
    blocks = structure.layout.blocks
    result = [None] * len(blocks)
    kinds: dict[object, list[int]] = {}
    for k, block in enumerate(blocks):
        if block.kind in ("merge", "support"):
            result[k] = jnp.asarray(_alike(block))
        else:
            joint = joint_of(structure, block)
            key = (block.kind, len(block.stations[0]), jax.tree.structure(joint))
            kinds.setdefault(key, []).append(k)
    for (kind, *_), members in kinds.items():
        joints = [joint_of(structure, blocks[k]) for k in members]
        joint = jax.tree.map(lambda *x: jnp.stack(x), *joints)
        stations = np.array([blocks[k].stations for k in members])
        if kind == "carried":
            values = _carried(structure, joint, [blocks[k] for k in members], poses)
        else:
            values = jax.vmap(jax.jacfwd(_missed, argnums=1))(joint, places[stations])
            values = jnp.concatenate([values, jnp.zeros_like(values)], axis=-1)
        for number, k in enumerate(members):
            result[k] = values[number].reshape(-1, 6)
    return [(value, *entries(block)) for value, block in zip(result, blocks, strict=True)]


def joint_of(structure: Structure, block: Block) -> Joint:
    """The joint of a block; a rope that is locked holds its length both ways."""
    return structure.system.connections[block.connection].joint.taut()


def entries(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Stations and rows of all entries of a block."""
    first, last = block.rows
    if block.kind == "support":
        return np.array([s for s, _ in block.held], dtype=int), np.arange(first, last)
    if block.kind == "merge":
        pairs = [
            pair
            for *pair, turns in zip(*block.stations, block.turns, strict=True)
            for _ in range(6 if turns else 3)
        ]
        return np.array(pairs, dtype=int).reshape(-1), np.repeat(np.arange(first, last), 2)
    own = np.array(block.stations).reshape(-1)
    return np.tile(own, last - first), np.repeat(np.arange(first, last), len(own))


def _alike(block: Block) -> np.ndarray:
    """Coefficients of nodes that move alike, or not at all."""
    if block.kind == "support":
        return np.eye(6)[[freedom for _, freedom in block.held]]
    rows = [np.eye(6)[: 6 if turns else 3] for turns in block.turns]
    return np.stack([[-row, row] for row in np.concatenate(rows)]).reshape(-1, 6)


def _missed(joint, points: Float[Array, "2 p 3"]) -> Array:
    return joint.residual(relative(frame(points[0]), frame(points[1])))


def _carried(structure: Structure, joint, blocks: list[Block], poses: Poses) -> Array:
    """Derivative (j, rows, 2, 6) of joints whose frames are carried by their first nodes."""
    at = carried_frames(structure, poses, blocks)

    def missed(joint, origin: Array, turn: Array, step: Array) -> Array:
        moved = turn + jax.vmap(skew)(step[:, 3:]) @ turn
        return joint.residual(relative(*map(Frame, origin + step[:, :3], moved)))

    still = jnp.zeros((*at.origin.shape[:2], 6))
    return jax.vmap(jax.jacfwd(missed, argnums=3))(joint, at.origin, at.rotation, still)


def carried_frames(structure: Structure, poses: Poses, blocks: list[Block]) -> Frame:
    """Frames (j, 2, ...) of joints whose frames are carried by their first nodes."""
    stations = np.array([block.stations for block in blocks])[:, :, 0]
    connections = [structure.system.connections[block.connection] for block in blocks]
    own = jnp.stack(
        [
            jnp.stack(
                [frame(structure.system.attachment(p)[1]).rotation for p in (c.first, c.second)]
            )
            for c in connections
        ]
    )
    turn = structure.rotations(poses)[stations] @ own
    return Frame(structure.places(poses)[stations], turn)
