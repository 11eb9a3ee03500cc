"""Stiffness, inertia and section forces of all parts, in the axes of the parts.

None of these depends on where the parts are.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxgrip.fem.element_sum import ElementSum
from jaxgrip.fem.elements.beam import Beam
from jaxgrip.fem.section import BeamSection
from jaxgrip.fem.structures._elements import Bars, Beams, PointMasses, arm, axes, release
from jaxgrip.fem.structures._solid import SolidMatrices, mass_and_centre, solid_matrices
from jaxgrip.fem.structures._structure import Structure
from jaxgrip.mechanism import Poses

# A unit of each of a0 (3,) and W (3, 3) of an acceleration a0 + W x.
_CONSTANTS = np.eye(12)[:, :3]
_GRADIENTS = np.eye(12)[:, 3:].reshape(12, 3, 3)
# Elements whose matrices are computed together where there are many.
TOGETHER = 4096


class BeamGroup(NamedTuple):
    """Beams of one theory, of all parts: stacked sections, places `x` (m, 2, 3) [m].

    `order` has their numbers among all beams; `mask` (m, 12) is 1 where released, None if nowhere.
    """

    element: Beam
    ends: np.ndarray
    order: np.ndarray
    section: BeamSection
    x: Float[Array, "m 2 3"]
    mask: np.ndarray | None


class BeamMatrices(NamedTuple):
    """Of a `BeamGroup`, by displacements of the ends: stiffness, inertia loads, releases.

    `inertia` (m, 12, 12): load on the ends by a unit of each number of the acceleration;
    `end` (m, 12, 12) and `flexibility` (m, 12, 12): displacements of the ends by those of the
    nodes and by loads on the ends; None where nothing is released.
    """

    stiffness: Float[Array, "m 12 12"]
    inertia: Float[Array, "m 12 12"]
    axes: Float[Array, "m 3 3"]
    end: Float[Array, "m 12 12"] | None
    flexibility: Float[Array, "m 12 12"] | None

    def at_nodes(self, load: Float[Array, "m 12"]) -> Float[Array, "m 12"]:
        """Loads on the nodes by loads on the ends."""
        return load if self.end is None else jnp.einsum("mij,mi->mj", self.end, load)

    def ends(self, u: Float[Array, "m 12"], load: Float[Array, "m 12"]) -> Float[Array, "m 12"]:
        """Displacements of the ends by those of the nodes and loads on the ends."""
        if self.end is None:
            return u
        moved = jnp.einsum("mij,mj->mi", self.end, u)
        return moved + jnp.einsum("mij,mj->mi", self.flexibility, load)


class Bar(NamedTuple):
    """Bars, ropes and springs of all parts, in the axes of the parts."""

    ends: np.ndarray
    tension_only: np.ndarray
    direction: Float[Array, "m 3"]
    stiffness: Float[Array, " m"]
    mass: Float[Array, " m"]


class Elements(NamedTuple):
    """All elements of all parts, computed once."""

    groups: list[BeamGroup]
    matrices: list[BeamMatrices]
    bars: Bar
    solids: list[tuple[np.ndarray, SolidMatrices]]


def elements(structure: Structure) -> Elements:
    """Everything of the elements that does not depend on displacements."""
    groups = beam_groups(structure)
    x = structure.nodes()
    solids = [(nodes, solid_matrices(solid, x[nodes])) for nodes, solid in structure.solids]
    return Elements(groups, [beam_matrices(group) for group in groups], bars(structure), solids)


def beam_groups(structure: Structure) -> list[BeamGroup]:
    """All beams, sorted by theory and by whether ends are released."""
    sorted_: dict[tuple[type, bool], list[tuple[int, int, Beams]]] = {}
    count = 0
    for offset, frame in zip(structure.layout.offsets, structure.frames.values(), strict=True):
        for group in frame.elements:
            if isinstance(group, Beams):
                key = (type(group.element), bool(group.mask.any()))
                sorted_.setdefault(key, []).append((offset, count, group))
                count += len(group.ends.array)
    nodes = structure.nodes()
    result = []
    for (_, released), members in sorted_.items():
        ends = np.concatenate([offset + g.ends.array for offset, _, g in members])
        sizes = [len(g.ends.array) for _, _, g in members]
        order = np.concatenate(
            [first + np.arange(n) for (_, first, _), n in zip(members, sizes, strict=True)]
        )
        mask = [np.tile(g.mask, (n, 1)) for (_, _, g), n in zip(members, sizes, strict=True)]
        section = jax.tree.map(
            lambda *leaves, sizes=sizes: jnp.concatenate(
                [
                    jnp.broadcast_to(leaf, (n, *leaf.shape))
                    for leaf, n in zip(leaves, sizes, strict=True)
                ]
            ),
            *(g.section for _, _, g in members),
        )
        element = members[0][2].element
        held = np.concatenate(mask) if released else None
        result.append(BeamGroup(element, ends, order, section, nodes[ends], held))
    return result


def beam_matrices(group: BeamGroup) -> BeamMatrices:
    """Matrices of all beams of a group."""
    stiffness = over_elements(group.element.stiffness, group.x, group.section)
    stiffness = stiffness.reshape(-1, 12, 12)

    def inertia(x: Array, section: BeamSection) -> Array:
        return jax.vmap(lambda c, w: group.element.inertia_load(x, section, c, w))(
            jnp.asarray(_CONSTANTS), jnp.asarray(_GRADIENTS)
        )

    load = over_elements(inertia, group.x, group.section).reshape(-1, 12, 12)
    turn = jax.vmap(axes)(group.x, group.section)
    if group.mask is None:
        return BeamMatrices(stiffness, load, turn, None, None)
    end, flexibility = jax.vmap(release)(stiffness, turn, jnp.asarray(group.mask))
    return BeamMatrices(stiffness, load, turn, end, flexibility)


def over_elements(function: Callable, *inputs: PyTree) -> PyTree:
    """A function of one element over all, of many in groups, so that memory stays small."""
    count = len(jax.tree.leaves(inputs)[0])
    if count <= 2 * TOGETHER:
        return jax.vmap(function)(*inputs)
    return jax.lax.map(lambda x: function(*x), inputs, batch_size=TOGETHER)


def bars(structure: Structure) -> Bar:
    """All bars, ropes and springs within parts."""
    ends, tension, groups = [np.zeros((0, 2), dtype=int)], [np.zeros(0, dtype=bool)], []
    for offset, frame in zip(structure.layout.offsets, structure.frames.values(), strict=True):
        for group in frame.elements:
            if isinstance(group, Bars):
                own = offset + group.ends.array
                ends.append(own)
                tension.append(np.full(len(own), group.kind.tension_only))
                groups.append((own, group.kind))
    ends = np.concatenate(ends)
    nodes = structure.nodes()
    way = nodes[ends[:, 1]] - nodes[ends[:, 0]]
    length = jnp.linalg.norm(way, axis=1)
    stiffness, mass, first = [jnp.zeros(0)], [jnp.zeros(0)], 0
    for own, kind in groups:
        part = length[first : first + len(own)]
        stiffness.append(kind.stiffness(part))
        mass.append(kind.mass(part))
        first += len(own)
    return Bar(
        ends,
        np.concatenate(tension),
        way / length[:, None],
        jnp.concatenate(stiffness),
        jnp.concatenate(mass),
    )


def springs(structure: Structure) -> int:
    """How many springs a coupling has: ropes within parts, ties, those that turn."""
    own = sum(
        len(group.ends.array)
        for frame in structure.models
        for group in frame.elements
        if isinstance(group, Bars) and group.kind.tension_only
    )
    return own + len(structure.layout.spans) + structure.layout.row_springs


def point_masses(structure: Structure) -> tuple[np.ndarray, Float[Array, " m"]]:
    """Nodes of all point masses and the masses [kg]."""
    nodes, masses = [np.zeros(0, dtype=int)], [jnp.zeros(0)]
    for offset, frame in zip(structure.layout.offsets, structure.frames.values(), strict=True):
        for group in frame.elements:
            if isinstance(group, PointMasses):
                nodes.append(offset + group.nodes.array)
                masses.append(jnp.broadcast_to(group.mass, group.nodes.array.shape))
    return np.concatenate(nodes), jnp.concatenate(masses)


def arms(structure: Structure, nodes: np.ndarray) -> Float[Array, "*k 6 6"] | None:
    """Motion of nodes by that of the nodes they follow; None when none follows another."""
    layout = structure.layout
    if np.array_equal(layout.root, np.arange(len(layout.root))):
        return None
    x = structure.nodes()
    root = np.concatenate([layout.root, np.arange(len(layout.root), len(layout.dof))])
    flat = jax.vmap(arm)((x[nodes] - x[root[nodes]]).reshape(-1, 3))
    return flat.reshape(*nodes.shape, 6, 6)


def by_dofs(
    structure: Structure, nodes: np.ndarray, matrices: Float[Array, "m v v"]
) -> tuple[np.ndarray, Float[Array, "m v v"]]:
    """Matrices by displacements of k nodes each, v = 6 k, as a group of an `ElementSum`."""
    link, count = arms(structure, nodes), nodes.shape[1]
    if link is not None:
        blocks = matrices.reshape(-1, count, 6, count, 6)
        blocks = jnp.einsum("miak,miajb,mjbl->mikjl", link, blocks, link)
        matrices = blocks.reshape(matrices.shape)
    return structure.layout.dof[nodes].reshape(-1, 6 * count), matrices


def add_forces(
    structure: Structure,
    total: Float[Array, " n *c"],
    nodes: np.ndarray,
    forces: Float[Array, "m 6 *c"],
) -> Float[Array, " n *c"]:
    """Add forces on nodes, in the axes of their parts, to those on all degrees of freedom."""
    link = arms(structure, nodes)
    if link is not None:
        forces = jnp.einsum("mak,ma...->mk...", link, forces)
    return total.at[structure.layout.dof[nodes]].add(forces, mode="drop")


def stiffness(structure: Structure, own: Elements) -> ElementSum:
    """Stiffness of all parts without their ropes."""
    groups = []
    for group, matrices in zip(own.groups, own.matrices, strict=True):
        k = matrices.stiffness
        if matrices.end is not None:
            k = jnp.einsum("mai,mab,mbj->mij", matrices.end, k, matrices.end)
        groups.append(by_dofs(structure, group.ends, k))
    bar = own.bars
    stiff = np.flatnonzero(~bar.tension_only)
    if len(stiff):
        row = stretch(bar.direction[stiff])
        k = jnp.einsum("m,mi,mj->mij", bar.stiffness[stiff], row, row)
        groups.append(by_dofs(structure, bar.ends[stiff], k))
    for nodes, solid in own.solids:
        groups.append(by_dofs(structure, nodes[None], solid.stiffness[None]))
    return ElementSum(structure.degrees_of_freedom, groups)


def mass(structure: Structure, poses: Poses, own: Elements) -> ElementSum:
    """Consistent mass of all parts and ties, those of beams with rotary inertia."""
    groups = []
    for group, matrices in zip(own.groups, own.matrices, strict=True):

        def inertia(x: Array, section: BeamSection, element=group.element) -> Array:
            return element.inertia(x, section, jnp.eye(3))

        m = over_elements(inertia, group.x, group.section).reshape(-1, 12, 12)
        if matrices.end is not None:
            m = jnp.einsum("mai,mab,mbj->mij", matrices.end, m, matrices.end)
        groups.append(by_dofs(structure, group.ends, m))
    for solid_nodes, solid in own.solids:
        groups.append(by_dofs(structure, solid_nodes[None], solid.mass[None]))
    bar = own.bars
    straight = jnp.broadcast_to(jnp.eye(3), (len(bar.ends), 2, 3, 3))
    groups.append(by_dofs(structure, bar.ends, _of_lines(bar.mass, straight)))
    heavy, _ = tie_masses(structure, poses)
    ends = np.array([span.ends for span in structure.layout.spans], dtype=int).reshape(-1, 2)
    turn = structure.rotations(poses)[ends]
    groups.append(by_dofs(structure, ends, _of_lines(heavy, turn)))
    # A point is a line of which only the first end has mass.
    nodes, points = point_masses(structure)
    first = jnp.zeros((12, 12)).at[np.arange(3), np.arange(3)].set(1.0)
    m = points[:, None, None] * first[None]
    groups.append(by_dofs(structure, np.stack([nodes, nodes], axis=1), m))
    return ElementSum(structure.degrees_of_freedom, groups)


def _of_lines(mass: Float[Array, " m"], turn: Float[Array, "m 2 3 3"]) -> Float[Array, "m 12 12"]:
    """Mass matrices of lines, whose ends move in axes (3, 3) of their own."""
    share = jnp.array([[2.0, 1.0], [1.0, 2.0]]) / 6
    blocks = jnp.einsum("m,ij,miba,mjbc->miajc", mass, share, turn, turn)
    whole = jnp.zeros((len(mass), 2, 6, 2, 6)).at[:, :, :3, :, :3].set(blocks)
    return whole.reshape(-1, 12, 12)


def stretch(direction: Float[Array, "m 3"]) -> Float[Array, "m 12"]:
    """Stretch by the displacements of two nodes."""
    still = jnp.zeros_like(direction)
    return jnp.concatenate([-direction, still, direction, still], axis=1)


def inertia_loads(structure: Structure, own: Elements) -> Float[Array, "n 12"]:
    """∫ ρ Nᵀ (a0 + W x) dV by the three numbers of a0, then the nine of W, in part axes."""
    total = jnp.zeros((structure.degrees_of_freedom, 12))
    for group, matrices in zip(own.groups, own.matrices, strict=True):
        load = matrices.inertia
        if matrices.end is not None:
            load = jnp.einsum("mij,mki->mkj", matrices.end, load)
        load = jnp.moveaxis(load.reshape(-1, 12, 2, 6), 1, 3).reshape(-1, 6, 12)
        total = add_forces(structure, total, group.ends.reshape(-1), load)
    for own_nodes, solid in own.solids:
        load = solid.inertia.reshape(-1, 6, 12)
        total = add_forces(structure, total, own_nodes, load)
    x, bar = structure.nodes(), own.bars
    nodes, masses = point_masses(structure)
    # Half of a bar's mass moves with either end, and a sixth with the other one's place.
    places = jnp.concatenate([x[bar.ends[:, 0]], x[bar.ends[:, 1]]])
    others = jnp.concatenate([x[bar.ends[:, 1]], x[bar.ends[:, 0]]])
    places = jnp.concatenate([2 / 3 * places + 1 / 3 * others, x[nodes]])
    mass = jnp.concatenate([bar.mass / 2, bar.mass / 2, masses])
    nodes = np.concatenate([bar.ends[:, 0], bar.ends[:, 1], nodes])
    if not len(nodes):
        return total
    field = jnp.asarray(_CONSTANTS)[None] + jnp.einsum(
        "kab,mb->mka", jnp.asarray(_GRADIENTS), places
    )
    load = jnp.swapaxes(mass[:, None, None] * field, 1, 2)
    load = jnp.concatenate([load, jnp.zeros_like(load)], axis=1)
    return add_forces(structure, total, nodes, load)


def displacements(structure: Structure, q: Float[Array, " n"]) -> Float[Array, "k 6"]:
    """Displacements [m] and rotations of all nodes in the axes of their parts, by all degrees of
    freedom."""
    layout = structure.layout
    count = len(layout.root)
    u = jnp.concatenate([q, jnp.zeros(1)])[layout.dof[:count]]
    link = arms(structure, np.arange(count))
    return u if link is None else jnp.einsum("kab,kb->ka", link, u)


def in_ground(structure: Structure, poses: Poses, u: Float[Array, "k 6"]) -> Float[Array, "k 6"]:
    """Displacements and rotations of all nodes in ground axes, from those in axes of the parts."""
    rotations = structure.rotations(poses)[: len(u)]
    return jnp.einsum("kab,kib->kia", rotations, u.reshape(-1, 2, 3)).reshape(-1, 6)


class Masses(NamedTuple):
    """Mass [kg] and first moment [kg m] in the frame of the part, of every part."""

    mass: Float[Array, " p"]
    moment: Float[Array, "p 3"]


@eqx.filter_jit
def masses(structure: Structure) -> Masses:
    """Mass and first moment of every part."""
    places, mass, nodes = [], [], []
    for group in beam_groups(structure):
        length = jnp.linalg.norm(group.x[:, 1] - group.x[:, 0], axis=1)
        mass.append(group.section.material.rho * group.section.A * length)
        places.append(group.x.mean(axis=1))
        nodes.append(group.ends[:, 0])
    x, bar = structure.nodes(), bars(structure)
    mass.append(bar.mass)
    places.append((x[bar.ends[:, 0]] + x[bar.ends[:, 1]]) / 2)
    nodes.append(bar.ends[:, 0])
    for of_solid, solid in structure.solids:
        amount, centre = mass_and_centre(solid)
        mass.append(amount[None])
        places.append(centre[None])
        nodes.append(of_solid[:1])
    own, heavy = point_masses(structure)
    mass, places = jnp.concatenate([*mass, heavy]), jnp.concatenate([*places, x[own]])
    offsets = np.array(structure.layout.offsets, dtype=int)
    part = np.searchsorted(offsets, np.concatenate([*nodes, own]), side="right") - 1
    total = jnp.zeros(len(offsets)).at[part].add(mass)
    return Masses(total, jnp.zeros((len(offsets), 3)).at[part].add(mass[:, None] * places))


def tie_masses(
    structure: Structure, poses: Poses
) -> tuple[Float[Array, " t"], Float[Array, "t 2 3"]]:
    """Mass [kg] of every tie, and the places of its two ends in the frame of the ground [m]."""
    spans = structure.layout.spans
    places = structure.places(poses)
    ends = places[np.array([span.ends for span in spans], dtype=int).reshape(-1, 2)]
    length = jnp.linalg.norm(ends[:, 1] - ends[:, 0], axis=1)
    mass = [structure.kind(span).mass(length[k]) for k, span in enumerate(spans)]
    return jnp.array(mass, dtype=length.dtype), ends
