"""Constraint equations and springs between parts, at given poses."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.fem import element_sum
from jaxgrip.fem.structures._model import Bar, arms
from jaxgrip.fem.structures._structure import Block, Structure
from jaxgrip.joints import Frame, Joint, frame, relative
from jaxgrip.mechanism import Poses
from jaxgrip.spatial import skew


class Numbering(NamedTuple):
    """Degree of freedom of each of the six components of a node; `count` where there is none."""

    dof: np.ndarray
    count: int


class Rows(NamedTuple):
    """Linear functions of nodal displacements, in ground axes, as a list of entries.

    Entry: `coefficients` (e, 6) of the displacement and rotation of one of `stations` (e,) in one
    of `rows` (e,).
    """

    coefficients: Float[Array, "e 6"]
    stations: np.ndarray
    rows: np.ndarray
    count: int


class Springs(NamedTuple):
    """Ropes within parts, then ties, then springs in joints.

    `tension_only` (s,); `stiffness` (s,) [N/m] or [N m/rad]; `rows`: their elongations.
    """

    tension_only: np.ndarray
    stiffness: Float[Array, " s"]
    rows: Rows


class Coupling(NamedTuple):
    """Constraint equations and springs between parts."""

    equations: Rows
    springs: Springs


def coupling(structure: Structure, poses: Poses, bar: Bar) -> Coupling:
    """All equations and springs between parts at given poses; `bar`: those of `model.bars`."""
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
    """The rows as a dense matrix for the degrees of freedom, which are in part axes."""
    values = in_parts(structure, rotations, rows.stations, rows.coefficients)
    dof = numbering.dof[rows.stations]
    zero = jnp.zeros((rows.count, numbering.count))
    return zero.at[rows.rows[:, None], dof].add(values, mode="drop")


def rows_of(
    structure: Structure, rotations: Float[Array, "k 3 3"], rows: Rows, numbering: Numbering
) -> element_sum.Rows:
    """As `matrix`, sparse."""
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
    """Nodal forces in ground axes as forces on the nodes that these follow, in part axes."""
    local = jnp.einsum("eba,ekb->eka", rotations[stations], forces.reshape(-1, 2, 3))
    local = local.reshape(-1, 6)
    link = arms(structure, stations)
    return local if link is None else jnp.einsum("eak,ea->ek", link, local)


def _springs(structure: Structure, bar: Bar, places: Array, in_joints: list) -> Springs:
    layout = structure.layout
    ropes = np.flatnonzero(bar.tension_only)
    kinds = [structure.kind(span) for span in layout.spans]
    ends = np.concatenate(
        [bar.ends[ropes], np.array([s.ends for s in layout.spans], dtype=int).reshape(-1, 2)]
    )
    span = places[ends[:, 1]] - places[ends[:, 0]]
    length = jnp.linalg.norm(span, axis=1)
    direction = span / length[:, None]
    zero = jnp.zeros_like(direction)
    values = jnp.stack(
        [jnp.concatenate([-direction, zero], 1), jnp.concatenate([direction, zero], 1)], axis=1
    )
    own = length[len(ropes) :]
    stiffness = [bar.stiffness[ropes]] + [k.stiffness(own[i])[None] for i, k in enumerate(kinds)]
    spans = len(ends)
    entries = [(values.reshape(-1, 6), ends.reshape(-1), np.repeat(np.arange(spans), 2))]
    entries += [(v, s, spans + r) for v, s, r in in_joints]
    blocks = [block for block in layout.blocks if block.spring]
    stiffness += [
        jnp.broadcast_to(structure.transfer[b.name].k, (b.rows[1] - b.rows[0],)) for b in blocks
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
            result[k] = jnp.asarray(_components(block))
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
            values = jax.vmap(jax.jacfwd(_residual, argnums=1))(joint, places[stations])
            values = jnp.concatenate([values, jnp.zeros_like(values)], axis=-1)
        for number, k in enumerate(members):
            result[k] = values[number].reshape(-1, 6)
    return [(value, *entries(block)) for value, block in zip(result, blocks, strict=True)]


def joint_of(structure: Structure, block: Block) -> Joint:
    """The joint of a block; for a locked rope, a fixed distance."""
    return structure.system.connections[block.connection].joint.taut()


def entries(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """Stations and rows of all entries of a block."""
    first, last = block.rows
    if block.kind == "support":
        return np.array([s for s, _ in block.fixed], dtype=int), np.arange(first, last)
    if block.kind == "merge":
        pairs = [
            pair
            for *pair, rotates in zip(*block.stations, block.turns, strict=True)
            for _ in range(6 if rotates else 3)
        ]
        return np.array(pairs, dtype=int).reshape(-1), np.repeat(np.arange(first, last), 2)
    own = np.array(block.stations).reshape(-1)
    return np.tile(own, last - first), np.repeat(np.arange(first, last), len(own))


def _components(block: Block) -> np.ndarray:
    """Coefficients of merged or supported nodes."""
    if block.kind == "support":
        return np.eye(6)[[component for _, component in block.fixed]]
    rows = [np.eye(6)[: 6 if rotates else 3] for rotates in block.turns]
    return np.stack([[-row, row] for row in np.concatenate(rows)]).reshape(-1, 6)


def _residual(joint, points: Float[Array, "2 p 3"]) -> Array:
    return joint.residual(relative(frame(points[0]), frame(points[1])))


def _carried(structure: Structure, joint, blocks: list[Block], poses: Poses) -> Array:
    """Derivative (j, rows, 2, 6) of joints whose frames follow their first nodes."""
    at = carried_frames(structure, poses, blocks)

    def residual(joint, origin: Array, rotation: Array, step: Array) -> Array:
        moved = rotation + jax.vmap(skew)(step[:, 3:]) @ rotation
        return joint.residual(relative(*map(Frame, origin + step[:, :3], moved)))

    zero = jnp.zeros((*at.origin.shape[:2], 6))
    return jax.vmap(jax.jacfwd(residual, argnums=3))(joint, at.origin, at.rotation, zero)


def carried_frames(structure: Structure, poses: Poses, blocks: list[Block]) -> Frame:
    """Frames (j, 2, ...) of joints whose frames follow their first nodes."""
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
    return Frame(structure.places(poses)[stations], structure.rotations(poses)[stations] @ own)
