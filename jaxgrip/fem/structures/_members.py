"""Members of a structure as groups of a `Problem`, for displacements of any size."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.fem.element_sum import of
from jaxgrip.fem.section import BeamSection
from jaxgrip.fem.structures import _corotational as corotational
from jaxgrip.fem.structures import _model as model
from jaxgrip.fem.structures._balance import Configuration, Group, Kinematics, MemberForces, Problem
from jaxgrip.fem.structures._corotational import BeamLaw
from jaxgrip.fem.structures._coupling import carried_frames, joint_of
from jaxgrip.fem.structures._elements import axes
from jaxgrip.fem.structures._structure import Block, Structure
from jaxgrip.fem.structures.loads import Inertia, Load, NodalForce, inertia_field
from jaxgrip.joints import Frame, Joint, frame, relative
from jaxgrip.mechanism import Poses
from jaxgrip.solve import dense
from jaxgrip.spatial import quaternions, skew


class Field(NamedTuple):
    """Acceleration `constant` + `gradient` x at position x, in ground axes."""

    constant: Float[Array, "3"]
    gradient: Float[Array, "3 3"]

    def at(self, position: Float[Array, "3"]) -> Float[Array, "3"]:
        """The acceleration at a position."""
        return self.constant + self.gradient @ position


class Mass(NamedTuple):
    """Inertia of a beam in an acceleration field.

    `mass` [kg]; `middle` (3,): undeformed midpoint of its ends [m]; `bow` (7, 3): displacement of
    the centre of mass from the midpoint per deformation, in frame axes; `second` (3,): second
    moments of mass, along the beam over its squared length [kg], along y and z [kg m^2]; `bent`
    (7,): forces on the deformation due to the gradient along the undeformed beam.
    """

    field: Field
    mass: Float[Array, ""]
    middle: Float[Array, "3"]
    bow: Float[Array, "7 3"]
    second: Float[Array, "3"]
    bent: Float[Array, "7"]


class Beam(NamedTuple):
    """Undeformed `span` (3,) from end to end [m] and section `axes` (3, 3); `law`."""

    span: Float[Array, "3"]
    axes: Float[Array, "3 3"]
    law: BeamLaw
    inertia: Mass | None


class Line(NamedTuple):
    """Bar, rope or spring: undeformed `span` (3,), `ends` (2, 3) [m]; `stiffness` [N/m], `mass`."""

    span: Float[Array, "3"]
    ends: Float[Array, "2 3"]
    stiffness: Float[Array, ""]
    mass: Float[Array, ""]
    field: Field | None


class Loaded(NamedTuple):
    """`force` (6,) [N], [N m] and `mass` [kg] on a station at undeformed `place` (3,) [m]."""

    force: Float[Array, "6"]
    mass: Float[Array, ""]
    place: Float[Array, "3"]
    field: Field | None


class Joined(NamedTuple):
    """A joint, `at` undeformed positions or frames of its stations, and its `initial` residual.

    `stiffness` [N/m] or [N m/rad] if it is a spring.
    """

    joint: Joint
    at: Float[Array, "2 p 3"] | Frame
    initial: Float[Array, " k"]
    stiffness: Float[Array, ""] | None


def problem(structure: Structure, poses: Poses, loads: tuple[Load, ...]) -> Problem:
    """All members of a structure under its loads."""
    layout = structure.layout
    places = jnp.concatenate([structure.places(poses), jnp.zeros((1, 3))])
    field = None
    if any(isinstance(load, Inertia) for load in loads):
        field = Field(*inertia_field(loads))
    beams, order, releases = _beams(structure, poses, places, field)
    lines, tension_only = _lines(structure, poses, places, field)
    count = layout.dofs + releases
    dof = np.concatenate([layout.dof, np.full((1, 6), layout.dofs)])
    dof = np.where(dof < layout.dofs, dof, count)

    def numbered(group: Group) -> Group:
        index = dof[group.stations].reshape(len(group.stations), 6 * group.stations.shape[1])
        if group.releases is not None:
            index = np.concatenate([index, layout.dofs + group.releases], axis=1)
        return group._replace(index=index)

    def joints(springs: bool) -> list[Group]:
        blocks = _by_kind(structure, springs)
        return [numbered(_joined(structure, poses, places, own)) for own in blocks]

    root = np.concatenate([layout.root, np.arange(len(layout.root), len(places))])
    return Problem(
        [numbered(group) for group in beams],
        numbered(lines),
        joints(springs=True),
        numbered(_loaded(structure, places, loads, field)),
        [*joints(springs=False), numbered(_pairs(structure, len(places) - 1))],
        places,
        places - places[root],
        dof,
        order,
        tension_only,
        layout.dofs,
        releases,
        layout.equations,
    )


def _beams(
    structure: Structure, poses: Poses, places: Array, field: Field | None
) -> tuple[list[Group], np.ndarray, int]:
    """Beams in two groups, with and without releases; their order; the number of releases."""
    rotations = structure.rotations(poses)
    sorted_: dict[bool, list[tuple]] = {}
    releases = 0
    for group in model.beam_groups(structure):
        part_axes = rotations[group.ends[:, 0]]
        own = jnp.einsum("mab,mbc->mac", part_axes, jax.vmap(axes)(group.x, group.section))
        ends = places[group.ends]

        def beam(ends, own, section, element=group.element) -> Beam:
            length = jnp.linalg.norm(ends[1] - ends[0])
            law = corotational.beam_law(element, length, section)
            inertia = None if field is None else _mass(element, ends, own, section, field)
            return Beam(ends[1] - ends[0], own, law, inertia)

        released = np.zeros((len(ends), 12), dtype=int) - 1
        if group.mask is not None:
            mask = group.mask.astype(bool)
            released[mask] = releases + np.arange(mask.sum())
            releases += int(mask.sum())
        members = group.ends, jax.vmap(beam)(ends, own, group.section), released, group.order
        sorted_.setdefault(group.mask is not None, []).append(members)
    groups, orders = [], [np.zeros(0, dtype=int)]
    for some, members in sorted_.items():
        ends, data, released, order = zip(*members, strict=True)
        released = np.concatenate(released)
        released = np.where(released < 0, releases, released) if some else None
        data = jax.tree.map(lambda *x: jnp.concatenate(x), *data)
        # Bending and twist count as axial strain at the radius of gyration.
        stiff = jnp.diagonal(data.law.stiffness, axis1=1, axis2=2)
        soft = 1 / jnp.sqrt(stiff * stiff[:, :1]) / jnp.linalg.norm(data.span, axis=1)[:, None]
        groups.append(Group(_beam, np.concatenate(ends), data, releases=released, soft=soft))
        orders += order
    return groups, np.concatenate(orders), releases


def _mass(element, ends: Array, own: Array, section: BeamSection, field: Field) -> Mass:
    length = jnp.linalg.norm(ends[1] - ends[0])
    line, there = corotational.on_a_line(length, section)
    mass = section.material.rho * section.A * length
    none = jnp.zeros((3, 3))

    def load(constant: Array, gradient: Array) -> Array:
        found = element.inertia_load(line, there, constant, gradient)
        return corotational.of_deformation(found.reshape(12))

    bow = jax.vmap(lambda c: load(c, none))(jnp.eye(3)).T / mass
    # Stretch and twist move the midpoint and the frame, whose inertia includes theirs.
    bends = np.array([0, 0, 1, 1, 0, 1, 1], dtype=float)
    gradient = own.T @ field.gradient @ own
    bent = load(-gradient @ jnp.array([0.5, 0.0, 0.0]) * length, gradient)
    second = jnp.stack([mass / 12, mass * section.Iz / section.A, mass * section.Iy / section.A])
    return Mass(field, mass, ends.mean(axis=0), bow * bends[:, None], second, bent * bends)


def _beam(
    motion: Kinematics,
    releases: Array | None,
    own: None,
    more: Array | float,
    factor: Array,
    data: Beam,
    *,
    rests: bool = False,
) -> MemberForces:
    sections = motion.rotation @ data.axes[None]
    if releases is None:
        forces, stress = _of_ends(motion.displacement, sections, more, factor, data, rests)
        return MemberForces(forces, stress=stress)
    released = releases.reshape(2, 6)
    arms = jnp.einsum("sab,sb->sa", sections, released[:, :3])
    ends, back = jax.vjp(lambda rotations: _released(sections, rotations), released[:, 3:])
    forces, stress = _of_ends(motion.displacement + arms, ends, more, factor, data, rests)
    force, moment = forces[:, :3], forces[:, 3:]
    on_displacements = jnp.einsum("sab,sa->sb", sections, force)
    # A moment is conjugate to section axes as half its cross product with each.
    on_rotations = back(jax.vmap(skew)(moment) @ ends / 2)[0]
    return MemberForces(
        jnp.concatenate([force, moment + jnp.cross(arms, force)], axis=1),
        jnp.concatenate([on_displacements, on_rotations], axis=1).reshape(12),
        stress=stress,
    )


def _released(
    sections: Float[Array, "2 3 3"], rotations: Float[Array, "2 3"]
) -> Float[Array, "2 3 3"]:
    """Axes of released ends, rotated relative to those at the nodes."""
    return sections @ jax.vmap(quaternions.to_matrix)(jax.vmap(quaternions.exponential)(rotations))


def at_rest(problem: Problem) -> Problem:
    """The problem whose beams are right to first order about the undeformed position only."""
    member = functools.partial(_beam, rests=True)
    return problem._replace(beams=[group._replace(member=member) for group in problem.beams])


def stressed(problem: Problem, stresses: tuple[Array, ...]) -> Problem:
    """The problem with only the geometric stiffness of these stresses.

    That of beams is evaluated at the deformation which the stresses belong to.
    """
    given = iter(stresses)

    def beams(group: Group) -> Group:
        law = group.data.law
        # The common twist of both ends in the frame is zero, so its stiffness is arbitrary.
        roll = jnp.zeros(7).at[jnp.array([1, 4])].set(1.0)
        whole = law.stiffness + law.stiffness[:, 1:2, 1:2] * jnp.outer(roll, roll)[None]
        deformation = dense.solve(whole, next(given), positive=True)
        bow = jnp.einsum("mkij,mk->mij", law.geometric, deformation)
        law = BeamLaw(bow, jnp.zeros_like(law.geometric), jnp.zeros_like(law.bow))
        return group._replace(data=group.data._replace(law=law))

    def rest(group: Group) -> Group:
        soft = jnp.zeros_like(group.data.stiffness)
        return group._replace(data=group.data._replace(stiffness=soft))

    return problem._replace(
        beams=[beams(group) for group in problem.beams],
        lines=rest(problem.lines),
        springs=[rest(group) for group in problem.springs],
    )


def section_axes(problem: Problem, at: Configuration, group: Group) -> Float[Array, "m 2 3 3"]:
    """Section axes at both ends of beams, as columns, in ground axes."""
    sections = problem.motion(at)[0].rotation[group.stations] @ group.data.axes[:, None]
    if group.releases is None:
        return sections
    released = of(at.releases, group.releases).reshape(-1, 2, 6)
    return jax.vmap(_released)(sections, released[:, :, 3:])


def _of_ends(
    displacements: Array,
    sections: Array,
    more: Array | float,
    factor: Array,
    data: Beam,
    rests: bool,
) -> tuple[Float[Array, "2 6"], Float[Array, "7"]]:
    """Forces on the ends of a beam from their displacements and section axes, and its stress.

    `rests`: to first order about the undeformed position.
    """
    if rests:
        frame = corotational.beam_frame_at_rest(displacements, sections, data.span, data.axes)
        stress = data.law.stiffness @ frame.deformation + more
    else:
        frame = corotational.beam_frame(displacements, sections, data.span)
        stress = corotational.beam_stress(data.law, frame.deformation) + more
    inertia = data.inertia
    if inertia is None:
        return corotational.beam_forces(frame, stress, jnp.zeros(3), at_rest=rests), stress
    bow = frame.deformation @ inertia.bow
    middle = inertia.middle + displacements.mean(axis=0) + frame.axes @ bow
    total = factor * inertia.mass * inertia.field.at(middle)
    along = factor * inertia.second[0] * frame.length * (inertia.field.gradient @ frame.axes[:, 0])
    across = (inertia.field.gradient @ frame.axes).T @ frame.axes
    second = factor * inertia.second
    moment = jnp.cross(bow, total @ frame.axes)
    moment += jnp.sum(jnp.cross(jnp.eye(3)[1:], across[1:]) * second[1:, None], axis=0)
    force = stress + factor * inertia.bent + inertia.bow @ (total @ frame.axes)
    forces = corotational.beam_forces(frame, force, moment, at_rest=rests)
    return forces.at[:, :3].add(jnp.stack([total / 2 - along, total / 2 + along])), stress


def _lines(
    structure: Structure, poses: Poses, places: Array, field: Field | None
) -> tuple[Group, np.ndarray]:
    """Bars and springs within parts, ropes within parts, then ties; which carry tension only."""
    bar = model.bars(structure)
    order = np.argsort(bar.tension_only, kind="stable")
    spans = structure.layout.spans
    ends = np.array([span.ends for span in spans], dtype=int).reshape(-1, 2)
    stations = np.concatenate([bar.ends[order], ends])
    at = places[stations]
    mass, tied = model.tie_masses(structure, poses)
    length = jnp.linalg.norm(tied[:, 1] - tied[:, 0], axis=1)
    stiffness = [structure.kind(span).stiffness(length[k]) for k, span in enumerate(spans)]
    stiffness = jnp.array(stiffness, dtype=length.dtype)
    data = Line(
        at[:, 1] - at[:, 0],
        at,
        jnp.concatenate([bar.stiffness[order], stiffness]),
        jnp.concatenate([bar.mass[order], mass]),
        _repeated(field, len(stations)),
    )
    tension_only = np.concatenate(
        [bar.tension_only[order], [span.tension_only for span in spans]]
    ).astype(bool)
    soft = 1 / (data.stiffness * jnp.linalg.norm(data.span, axis=1))[:, None]
    return Group(_line, stations, data, soft=soft), tension_only


def _line(
    motion: Kinematics,
    releases: None,
    own: Array,
    more: Array | float,
    factor: Array,
    data: Line,
) -> MemberForces:
    displacement = motion.displacement[1] - motion.displacement[0]
    along = data.span + displacement
    stress = data.stiffness * corotational.stretch(displacement, data.span)[None] + more
    stress = jnp.where(own, stress, 0.0)
    tension = stress * along / jnp.linalg.norm(along)
    forces = jnp.stack([-tension, tension])
    if data.field is not None:
        x = data.ends + motion.displacement
        at = jax.vmap(data.field.at)((2 * x + x[::-1]) / 3)
        forces = forces + factor * data.mass / 2 * at
    return MemberForces(_without_moment(forces), stress=stress)


def _without_moment(force: Float[Array, "s 3"]) -> Float[Array, "s 6"]:
    return jnp.concatenate([force, jnp.zeros_like(force)], axis=1)


def _loaded(
    structure: Structure, places: Array, loads: tuple[Load, ...], field: Field | None
) -> Group:
    forces = [load for load in loads if isinstance(load, NodalForce)]
    nodes = np.array([structure.node(load.place) for load in forces], dtype=int)
    moments = [jnp.zeros(3) if load.moment is None else load.moment for load in forces]
    applied = [jnp.concatenate([f.force, m]) for f, m in zip(forces, moments, strict=True)]
    applied = jnp.stack(applied) if applied else jnp.zeros((0, 6))
    masses = jnp.zeros(len(nodes))
    if field is not None:
        heavy, mass = model.point_masses(structure)
        nodes, masses = np.concatenate([nodes, heavy]), jnp.concatenate([masses, mass])
        applied = jnp.concatenate([applied, jnp.zeros((len(heavy), 6))])
    data = Loaded(applied, masses, places[nodes], _repeated(field, len(nodes)))
    return Group(_load, nodes[:, None], data)


def _load(
    motion: Kinematics,
    releases: None,
    own: None,
    more: Array | float,
    factor: Array,
    data: Loaded,
) -> MemberForces:
    force = -factor * data.force[None]
    if data.field is not None:
        at = data.field.at(data.place + motion.displacement[0])
        force = force + _without_moment(factor * data.mass * at[None])
    return MemberForces(force)


def _repeated(field: Field | None, count: int) -> Field | None:
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), field)


def _pairs(structure: Structure, still: int) -> Group:
    """Merged nodes, and supported ones as pairs with a `still` station."""
    stations, rows = [], []
    for block in structure.layout.blocks:
        first = block.rows[0]
        if block.kind == "support":
            for number, (station, component) in enumerate(block.fixed, first):
                own = np.full(6, structure.layout.equations)
                own[component] = number
                stations.append((still, station))
                rows.append(own)
        elif block.kind == "merge":
            for *pair, rotates in zip(*block.stations, block.turns, strict=True):
                count = 6 if rotates else 3
                own = np.full(6, structure.layout.equations)
                own[:count] = first + np.arange(count)
                first += count
                stations.append(tuple(pair))
                rows.append(own)
    stations = np.array(stations, dtype=int).reshape(-1, 2)
    return Group(_pair, stations, None, rows=np.array(rows, dtype=int).reshape(-1, 6))


def _pair(
    motion: Kinematics,
    releases: None,
    own: Array,
    more: Array | float,
    factor: Array,
    data: None,
) -> MemberForces:
    """Residual: relative displacement and, for the relative rotation θ, 2 sin(θ/2) times its axis.

    The latter is differentiable up to a full revolution.
    """
    first, second = motion.quaternion
    rotation = quaternions.product(second, quaternions.conjugate(first))
    displacement = motion.displacement[1] - motion.displacement[0]
    # Change of the quaternion with rotations of the second and of the first node, in ground axes.
    by_second = rotation[0] * own[3:] + jnp.cross(rotation[1:], own[3:])
    by_first = -rotation[0] * own[3:] + jnp.cross(rotation[1:], own[3:])
    force = jnp.concatenate([jnp.stack([-own[:3], own[:3]]), jnp.stack([by_first, by_second])], 1)
    return MemberForces(force, violation=jnp.concatenate([displacement, 2 * rotation[1:]]))


def _by_kind(structure: Structure, springs: bool) -> list[list[Block]]:
    """Blocks of joints, grouped by kind."""
    kinds: dict[tuple, list[Block]] = {}
    for block in structure.layout.blocks:
        if block.spring == springs and block.kind in ("equations", "carried"):
            key = block.kind, len(block.stations[0]), jax.tree.structure(joint_of(structure, block))
            kinds.setdefault(key, []).append(block)
    return list(kinds.values())


def _joined(structure: Structure, poses: Poses, places: Array, blocks: list[Block]) -> Group:
    """Joints of one kind, as equations or springs."""
    joint = jax.tree.map(lambda *x: jnp.stack(x), *(joint_of(structure, b) for b in blocks))
    stations = np.array([block.stations for block in blocks])
    if blocks[0].kind == "carried":
        stations = stations[:, :, 0]
        at, residual = carried_frames(structure, poses, blocks), _residual_of_frames
    else:
        at, residual = places[stations], _residual_of_points
        stations = stations.reshape(len(blocks), -1)
    stiffness = None
    if blocks[0].spring:
        stiffness = jnp.stack([structure.transfer[block.name].k for block in blocks])
        residual = _residual_angle if blocks[0].kind == "carried" else residual
    data = Joined(joint, at, jnp.zeros(()), stiffness)
    zero = jnp.zeros((stations.shape[1], 3))
    identity = jnp.broadcast_to(jnp.eye(3), (len(zero), 3, 3))
    start = jax.vmap(lambda *of: residual(zero, identity, Joined(*of, None, None)))(joint, at)
    data = Joined(joint, at, start, stiffness)

    def member(
        motion: Kinematics,
        releases: None,
        own: Array | None,
        more: Array | float,
        factor: Array,
        data: Joined,
    ) -> MemberForces:
        value, back = jax.vjp(
            lambda *x: residual(*x, data) - data.initial, motion.displacement, motion.rotation
        )
        stress = own if data.stiffness is None else data.stiffness * value + more
        force, by_axes = back(stress)
        moment = jnp.cross(motion.rotation, by_axes, axis=1).sum(axis=2)
        forces = jnp.concatenate([force, moment], axis=1)
        if data.stiffness is None:
            return MemberForces(forces, violation=value)
        return MemberForces(forces, stress=stress)

    rows = np.array([np.arange(*block.rows) for block in blocks])
    soft = None if stiffness is None else jnp.ones(rows.shape) / stiffness[:, None]
    return Group(member, stations, data, rows=rows, soft=soft)


def _residual_of_points(displacements: Array, rotations: Array, data: Joined) -> Array:
    points = data.at + displacements.reshape(data.at.shape)
    return data.joint.residual(relative(frame(points[0]), frame(points[1])))


def _residual_of_frames(displacements: Array, rotations: Array, data: Joined) -> Array:
    return data.joint.residual(_between(displacements, rotations, data))


def _residual_angle(displacements: Array, rotations: Array, data: Joined) -> Array:
    """Difference from the joint's angle, up to half a revolution."""
    found = _between(displacements, rotations, data)
    return jnp.arctan2(data.joint.residual(found), data.joint.facing(found))


def _between(displacements: Array, rotations: Array, data: Joined) -> Frame:
    origin, axes = data.at.origin + displacements, rotations @ data.at.rotation
    return relative(Frame(origin[0], axes[0]), Frame(origin[1], axes[1]))
