"""Finite-element models of parts, connected by their joints."""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import brief, concrete
from jaxgrip.fem._body import COMPONENTS
from jaxgrip.fem.structures._elements import (
    Axial,
    Bars,
    Beams,
    PointMasses,
    Spring,
    checked_place,
    mapped,
)
from jaxgrip.fem.structures._frame_part import FramePart
from jaxgrip.fem.structures._solid import Solid
from jaxgrip.joints import Gear, Joint
from jaxgrip.mechanism import Connection, Poses, System
from jaxgrip.mechanism.poses import check as check_poses
from jaxgrip.mechanism.system import GROUND, MERGE_TOLERANCE
from jaxgrip.precision import require_x64
from jaxgrip.spatial import quaternions

Place = str | tuple[str, int]


class Tie(eqx.Module):
    """A bar, rope or spring between two nodes.

    **Arguments:** `kind`; `first`, `second`: `"part.attachment"` or `"ground.attachment"` for its
    first node, or `("part", node)`.

    **Raises:** `ValueError` for an invalid kind or node.
    """

    kind: Axial
    first: Place = eqx.field(static=True)
    second: Place = eqx.field(static=True)

    def __init__(self, kind, first, second):
        if not isinstance(kind, Axial):
            raise ValueError(f"The kind of a tie is {brief(kind)}; give a Bar, Rope or Spring.")
        self.kind = kind
        self.first, self.second = (checked_place("A tie ends at", p) for p in (first, second))


class Structure(eqx.Module):
    """A system whose parts are finite-element models.

    **Arguments:**

    - `system`: parts and joints.
    - `frames`: part name to `FramePart`. Only clamped parts may lack one; they are then rigid
      ground.
    - `transfer`: connection name to how a drive acts: `"free"`, the default of distances, angles,
      travels, ropes and gears; `"lock"`, rigid; a `Bar`, `Rope` or `Spring`. For a hinge
      `"floating"`: the second pin may slide along the axis.
    - `ties`: name to further `Tie`.
    - `supports`: `"part.attachment"` to fixed degrees of freedom in ground axes: `"all"`,
      `"pinned"` (x, y, z) or names of x, y, z, rx, ry, rz. A clamped part without an entry is
      fixed at its attachments that no other connection uses, or at all of them if there is none.

    **Raises:** `ValueError` naming part, connection and point when an attachment point is no node,
    a part has no model, or a transfer does not suit its joint.

    Source: Webhofer 2005, sections 4.1 and 7.2, pp. 27-29, 110; own derivation of the ties.
    """

    system: System
    models: tuple[FramePart, ...]
    transfer: dict[str, Axial]
    ties: dict[str, Tie]
    layout: "Layout" = eqx.field(static=True)

    def __init__(
        self,
        system: System,
        frames: Mapping[str, object],
        *,
        transfer: Mapping[str, object] | None = None,
        ties: Mapping[str, object] | None = None,
        supports: Mapping[str, object] | None = None,
    ):
        require_x64("A structure")
        if not isinstance(system, System):
            raise ValueError(f"The system of a structure is {brief(system)}; give a System.")
        frames = mapped("The frames are", frames, "the name of the part")
        transfer = mapped("The transfer is", transfer, "the name of the connection")
        ties = mapped("The ties are", ties, "their names")
        supports = mapped("The supports are", supports, "'part.attachment'")
        for name, frame in frames.items():
            system.part(name)
            if not isinstance(frame, FramePart):
                raise ValueError(f"The model of part {name!r} is {brief(frame)}; give a FramePart.")
        for name, tie in ties.items():
            if not isinstance(tie, Tie):
                raise ValueError(f"The tie {name!r} is {brief(tie)}; give a Tie.")
        self.system = system
        own = {name: frames[name] for name in system.names if name in frames}
        self.models = tuple(own.values())
        for name in transfer:
            system.connection(name)
        self.transfer = {k: how for k, how in transfer.items() if isinstance(how, Axial)}
        self.ties = ties
        self.layout = _Builder(system, own, transfer, ties, supports).layout()

    @property
    def degrees_of_freedom(self) -> int:
        """Number of degrees of freedom before coupling."""
        return self.layout.dofs

    def node(self, place: Place) -> int:
        """Index among all nodes of an attachment's first node, or of a part's node.

        **Raises:** `ValueError` when there is none.
        """
        place = checked_place("The node is", place)
        if not isinstance(place, str):
            return _numbered(self.frames, self.layout.offsets, *place)
        self.system.attachment(place)
        found = self.layout.attached.get(place, (f"{place!r} is on no elastic part.",))[0]
        if isinstance(found, str):
            raise ValueError(found)
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parts that have a model."""
        return self.layout.names

    @property
    def frames(self) -> dict[str, FramePart]:
        """Models of the parts, by their names and in the order of the system."""
        return dict(zip(self.names, self.models, strict=True))

    def nodes(self) -> Float[Array, "k 3"]:
        """All nodes in the frames of their parts [m], then the points on the ground."""
        points = [frame.nodes for frame in self.frames.values()]
        for place, k in self.layout.grounds:
            points.append(self.system.attachment(place)[1][k : k + 1])
        return jnp.concatenate(points)

    @property
    def solids(self) -> list[tuple[np.ndarray, Solid]]:
        """Nodes of every solid among all nodes, and the solid."""
        parts = zip(self.layout.offsets, self.models, strict=True)
        return [
            (offset + group.nodes.array, group)
            for offset, frame in parts
            for group in frame.elements
            if isinstance(group, Solid)
        ]

    def rotations(self, poses: Poses) -> Float[Array, "k 3 3"]:
        """Rotation matrix of the part of every node and ground point."""
        parts = jax.vmap(quaternions.to_matrix)(poses.quaternion)
        return jnp.concatenate([parts, jnp.eye(3)[None]])[self.layout.body]

    def places(self, poses: Poses) -> Float[Array, "k 3"]:
        """Positions of all nodes and ground points in the ground frame [m]."""
        origin = jnp.concatenate([poses.position, jnp.zeros((1, 3))])[self.layout.body]
        return origin + jnp.einsum("kab,kb->ka", self.rotations(poses), self.nodes())

    def kind(self, span: "Span") -> Axial:
        """The bar, rope or spring of a span."""
        return self.transfer[span.name] if span.transferred else self.ties[span.name].kind

    def check(self, poses: Poses) -> None:
        """Raise `ValueError` for unsuitable poses.

        It names the part whose pose is invalid, the connection whose nodes do not coincide, or the
        tie whose ends do.
        """
        if isinstance(poses, Poses) and not all(hasattr(x, "shape") for x in poses):
            raise ValueError("The poses are lists; give arrays, such as those of an Assembly.")
        check_poses(self.system, poses)
        places = self.places(poses)
        if not concrete(places):
            return
        places = np.asarray(places)
        for span in self.layout.spans:
            if np.array_equal(*places[list(span.ends)]):
                raise ValueError(f"The two ends of {span.name!r} coincide; it needs a length.")
        for block in self.layout.blocks:
            if block.kind != "merge":
                continue
            for first, second in zip(*block.stations, strict=True):
                gap = np.linalg.norm(places[first] - places[second])
                if not gap <= MERGE_TOLERANCE:
                    raise ValueError(
                        f"Connection {block.name!r} joins {self.label(first)} and "
                        f"{self.label(second)}, which are {gap:.3g} m apart; nodes must coincide "
                        f"within {MERGE_TOLERANCE:g} m. Check that the poses are assembled and "
                        "that both attachments list their nodes in the same order."
                    )

    def owner(self, node: int) -> tuple[str, int]:
        """Part of a node, and its number in the part."""
        part = int(self.layout.part_of_node[node])
        return self.names[part], node - self.layout.offsets[part]

    def label(self, station: int) -> str:
        """Description of a node or ground point."""
        if station < len(self.layout.root):
            name, number = self.owner(station)
            return f"node {number} of part {name!r}"
        place, k = self.layout.grounds[station - len(self.layout.root)]
        return f"point {k} of {place!r}"


def check_whole(structure: object, otherwise: str = "not condensed") -> None:
    """Raise `ValueError` unless this is a `Structure`."""
    if not isinstance(structure, Structure):
        raise ValueError(
            f"The structure is a {type(structure).__name__}; give a Structure, {otherwise}."
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """Constraints or spring of one connection between stations on either side."""

    name: str
    kind: str
    """`merge`, `equations`, `carried` or `support`."""
    stations: tuple[tuple[int, ...], tuple[int, ...]]
    rows: tuple[int, int]
    """Range of rows among the equations, or among the springs."""
    turns: tuple[bool, ...] = ()
    """For a merge: which pairs share rotations."""
    fixed: tuple[tuple[int, int], ...] = ()
    """For a support: (station, component from 0 to 5)."""
    spring: bool = False
    connection: int = -1


@dataclasses.dataclass(frozen=True, eq=False)
class Span:
    """A tie, or a drive that acts as one (`transferred`), with its end stations."""

    name: str
    ends: tuple[int, int]
    tension_only: bool
    transferred: bool


class Layout:
    """Static numbering of a structure; equal if only traced values differ."""

    def __init__(self, key: tuple, **fields):
        self._key = key
        self.__dict__.update(fields)

    names: tuple[str, ...]
    attached: dict[str, tuple[int | str, ...]]
    offsets: tuple[int, ...]
    body: np.ndarray
    root: np.ndarray
    dof: np.ndarray
    dofs: int
    turning: np.ndarray
    part_of_dof: np.ndarray
    grounds: tuple[tuple[str, int], ...]
    blocks: tuple[Block, ...]
    spans: tuple[Span, ...]
    equations: int
    row_springs: int

    @property
    def part_of_node(self) -> np.ndarray:
        """(k,) index of the part of every node."""
        return np.searchsorted(self.offsets, np.arange(len(self.root)), side="right") - 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def numbered(
    root: np.ndarray, turning: np.ndarray, offsets: tuple[int, ...], grounds: int
) -> dict[str, np.ndarray | int]:
    """`dof`, `dofs` and `part_of_dof` of a `Layout`.

    Nodes that follow another have no degrees of freedom of their own. In `dof`, `dofs` stands
    for a missing one.
    """
    own = root == np.arange(len(root))
    free = np.repeat(np.stack([own, own & turning], axis=1), 3, axis=1)
    count = int(free.sum())
    dof = np.full((len(root) + grounds, 6), count)
    dof[: len(root)][free] = np.arange(count)
    counts = [int(free[a:b].sum()) for a, b in itertools.pairwise([*offsets, len(root)])]
    return {
        "dof": dof[np.concatenate([root, np.arange(len(root), len(dof))])],
        "dofs": count,
        "part_of_dof": np.repeat(np.arange(len(counts)), counts),
    }


class _Builder:
    """Builds the `Layout`, in NumPy."""

    def __init__(self, system, frames, transfer, ties, supports):
        self.system, self.frames, self.transfer, self.ties = system, frames, transfer, ties
        self.supports = {
            place: _fixed_names(place, names, system, frames) for place, names in supports.items()
        }
        counts = [len(frame.nodes) for frame in frames.values()]
        self.offsets = tuple(np.cumsum([0, *counts])[:-1].tolist())
        self.count = sum(counts)
        self.attached = _all_attached(system, frames, self.offsets)
        self.grounds: list[tuple[str, int]] = []
        self.body = list(np.repeat([system.part(name) for name in frames], counts))
        self.clamped = {c.first for c in system.connections if c.joint.to_ground}
        missing = [n for n in system.names if n not in frames and n not in self.clamped]
        if missing:
            raise ValueError(
                f"Part {missing[0]!r} has no finite-element model; only clamped parts may lack one."
            )
        if not frames:
            raise ValueError("No part has a finite-element model; give at least one.")
        self.blocks: list[Block] = []
        self.spans: list[Span] = []
        self.equations = self.springs = 0

    def layout(self) -> Layout:
        frames = self.frames.values()
        root = np.concatenate(
            [o + f.roots for o, f in zip(self.offsets, frames, strict=True)]
            or [np.zeros(0, dtype=int)]
        )
        self.turning = np.concatenate([f.turning for f in frames] or [np.zeros(0, dtype=bool)])
        for number, connection in enumerate(self.system.connections):
            try:
                self.connect(number, connection)
            except ValueError as error:
                text = str(error)
                raise ValueError(
                    f"Connection {connection.name!r}: {text[0].lower()}{text[1:]}"
                ) from None
        for name, tie in self.ties.items():
            if name in {c.name for c in self.system.connections}:
                raise ValueError(f"A tie and a connection are both called {name!r}.")
            ends = tuple(self.stations(place, 1)[0] for place in (tie.first, tie.second))
            self.spans.append(Span(name, ends, tie.kind.tension_only, False))
        for place, names in self.supports.items():
            self.support(place, self.supported(place), names)
        key = (
            tuple(self.frames),
            tuple(map(_shape, self.frames.values())),
            tuple(self.body),
            tuple(self.grounds),
            tuple(
                (place, tuple(None if isinstance(k, str) else k for k in own))
                for place, own in self.attached.items()
            ),
            tuple(map(dataclasses.astuple, self.blocks)),
            tuple(map(dataclasses.astuple, self.spans)),
        )
        return Layout(
            key,
            names=tuple(self.frames),
            attached=self.attached,
            offsets=self.offsets,
            body=np.array(self.body, dtype=int),
            root=root,
            turning=self.turning,
            **numbered(root, self.turning, self.offsets, len(self.grounds)),
            grounds=tuple(self.grounds),
            blocks=tuple(self.blocks),
            spans=tuple(self.spans),
            equations=self.equations,
            row_springs=self.springs,
        )

    def connect(self, number: int, connection: Connection) -> None:
        joint, how = connection.joint, self.transfer.get(connection.name)
        allowed, elements, in_words = _transfers(joint)
        if how is not None and how not in allowed and not isinstance(how, elements):
            names = [*map(repr, allowed), *in_words]
            raise ValueError(
                f"the transfer of a {type(joint).__name__.lower()} is {brief(how)}; it must be "
                f"{' or '.join(names) or 'omitted'}."
            )
        if isinstance(joint, Gear) or (joint.parameter is not None and how in (None, "free")):
            return
        if joint.to_ground:
            self.clamp(connection.first)
        elif joint.is_line and isinstance(how, Axial):
            ends = (self.stations(connection.first, 1)[0], self.stations(connection.second, 1)[0])
            self.spans.append(Span(connection.name, ends, how.tension_only, True))
        else:
            self.couple(number, connection, how)

    def couple(self, number: int, connection: Connection, how: object) -> None:
        joint, name = connection.joint, connection.name
        # Joints that measure rotations only follow one node on either side.
        carried = not joint.lengths
        points = 1 if carried else joint.points
        sides = tuple(
            self.stations(place, points) for place in (connection.first, connection.second)
        )
        if joint.meets and how != "floating":
            rotates = tuple(
                not joint.degrees_of_freedom and self.has_rotations(a) and self.has_rotations(b)
                for a, b in zip(*sides, strict=True)
            )
            count = 3 * points + 3 * sum(rotates)
            self.add(Block(name, "merge", sides, self.take(count), rotates))
            return
        kind = "carried" if carried else "equations"
        if carried:
            for station in (sides[0][0], sides[1][0]):
                if not self.has_rotations(station):
                    raise ValueError(
                        "an angle joins nodes without rotations; its nodes must be on beams or "
                        "rigid links."
                    )
        if isinstance(how, Spring):
            if not joint.is_signed:
                raise ValueError(
                    f"the angle of a spring has the form {joint.form!r}; it must be 'signed'."
                )
            rows = (self.springs, self.springs + joint.equations)
            self.springs = rows[1]
            self.add(Block(name, kind, sides, rows, spring=True, connection=number))
        else:
            rows = self.take(joint.equations)
            self.add(Block(name, kind, sides, rows, connection=number))

    def clamp(self, name: str) -> None:
        if name not in self.frames or any(_owner(place) == name for place in self.supports):
            return
        part = self.system.parts[self.system.part(name)]
        used = {p for c in self.system.connections for p in (c.first, c.second)}
        own = [f"{name}.{key}" for key in part.attachments]
        unused = [place for place in own if place not in used]
        for place in unused or own:
            self.support(place, self.stations(place, None), COMPONENTS)

    def support(self, place: str, stations: tuple[int, ...], names: tuple[str, ...]) -> None:
        rotations = names != COMPONENTS and not {*names} <= {*COMPONENTS[:3]}
        if rotations and not all(map(self.has_rotations, stations)):
            raise ValueError(
                f"The support of {place!r} fixes rotations, but one of its nodes, of bars only, "
                "has none."
            )
        rows = [
            (station, COMPONENTS.index(name))
            for station in stations
            for name in names
            if name in COMPONENTS[:3] or self.has_rotations(station)
        ]
        self.add(Block(place, "support", ((), stations), self.take(len(rows)), fixed=tuple(rows)))

    def supported(self, place: str) -> tuple[int, ...]:
        """Nodes of an attachment of the system, or of the `FramePart` alone."""
        owner, _, name = place.partition(".")
        part = self.system.parts[self.system.part(owner)]
        named = dict(self.frames[owner].attachments)
        if name in part.attachments or name not in named:
            return self.stations(place, None)
        offset = self.offsets[tuple(self.frames).index(owner)]
        return tuple(offset + node for node in named[name])

    def has_rotations(self, station: int) -> bool:
        return station >= self.count or bool(self.turning[station])

    def take(self, count: int) -> tuple[int, int]:
        self.equations += count
        return self.equations - count, self.equations

    def add(self, block: Block) -> None:
        self.blocks.append(block)

    def stations(self, place: Place, count: int | None) -> tuple[int, ...]:
        if not isinstance(place, str):
            return (_numbered(self.frames, self.offsets, *place),)
        k, points = self.system.attachment(place)
        count = len(points) if count is None else count
        found = list(self.attached.get(place, ()))[:count]
        for station in found:
            if isinstance(station, str):
                raise ValueError(station)
        if _owner(place) in self.frames:
            return tuple(found)
        for number in range(count):
            if (place, number) not in self.grounds:
                self.grounds.append((place, number))
                self.body.append(k if k >= 0 else len(self.system.parts))
            found.append(self.count + self.grounds.index((place, number)))
        return tuple(found)


def _transfers(joint: Joint | Gear) -> tuple[tuple[str, ...], type | tuple[()], list[str]]:
    """How a joint may act: allowed words, allowed element type, and that type in words."""
    if isinstance(joint, Gear):
        return ("free",), (), []
    if joint.parameter is None:
        # With two pairs of points that meet, one pair may slide along the axis.
        return ("floating",) * (joint.meets and joint.points == 2), (), []
    if joint.is_line:
        return ("free", "lock"), Axial, ["a Bar, Rope or Spring"]
    return ("free", "lock"), Spring, ["a Spring"]


def _numbered(frames: Mapping[str, FramePart], offsets: tuple, name: str, number: int) -> int:
    if name not in frames:
        raise ValueError(
            f"Part {name!r} has no finite-element model; there are {', '.join(frames)}."
        )
    count = len(frames[name].nodes)
    if not 0 <= number < count:
        raise ValueError(f"Part {name!r} has no node {number}; it has nodes 0 to {count - 1}.")
    return offsets[tuple(frames).index(name)] + number


def _all_attached(
    system: System, frames: Mapping[str, FramePart], offsets: tuple[int, ...]
) -> dict[str, tuple[int | str, ...]]:
    """Node of every attachment point, or the error sentence if it has none."""
    found = {}
    for (name, frame), offset in zip(frames.items(), offsets, strict=True):
        part = system.parts[system.part(name)]
        named = dict(frame.attachments)
        for key, points in part.attachments.items():
            place = f"{name}.{key}"
            own = [_nearest(frame, points, place, k, named.get(key)) for k in range(len(points))]
            found[place] = tuple(k if isinstance(k, str) else offset + k for k in own)
    return found


def _nearest(
    frame: FramePart, points: Array, place: str, number: int, named: tuple[int, ...] | None
) -> int | str:
    traced = not (concrete(points) and concrete(frame.nodes))
    if named is not None and number >= len(named):
        return f"Attachment {place!r} has {len(named)} nodes; it needs {number + 1}."
    if traced and named is not None:
        return named[number]
    if traced:
        return (
            f"The nodes of attachment {place!r} cannot be found by position, since positions are "
            "traced; give their numbers to the FramePart."
        )
    gap = np.linalg.norm(np.asarray(frame.nodes) - np.asarray(points)[number], axis=1)
    near = int(np.argmin(gap)) if named is None else named[number]
    if gap[near] <= MERGE_TOLERANCE:
        return near
    return (
        f"Point {number} of attachment {place!r} at {np.asarray(points)[number].tolist()} is no "
        f"node; {'the nearest, ' * (named is None)}node {near}, is {gap[near]:.3g} m away. Add a "
        "node there, if necessary on a rigid link."
    )


def _owner(place: str) -> str:
    return place.split(".", 1)[0]


def _fixed_names(place: str, given: object, system, frames) -> tuple[str, ...]:
    if _owner(place) == GROUND or _owner(place) not in frames:
        raise ValueError(f"A support is at {place!r}, which is no attachment of an elastic part.")
    names = given
    if isinstance(given, str):
        names = {"all": COMPONENTS, "pinned": COMPONENTS[:3]}.get(given)
    known = isinstance(names, Iterable) and bool(names := tuple(names))
    if not known or not all(isinstance(name, str) and name in COMPONENTS for name in names):
        raise ValueError(
            f"The support of {place!r} fixes {brief(given)}; it must be 'all', 'pinned' or names "
            f"of {', '.join(COMPONENTS)}."
        )
    return names


def _shape(frame: FramePart) -> tuple:
    """The static data of a part."""
    groups = []
    for group in frame.elements:
        if isinstance(group, Beams):
            groups.append((Beams, type(group.element), group.ends, group.released))
        elif isinstance(group, Bars):
            groups.append((Bars, type(group.kind), group.ends))
        elif isinstance(group, PointMasses):
            groups.append((PointMasses, group.nodes))
        elif isinstance(group, Solid):
            groups.append((Solid, group.nodes, group.interfaces))
        else:
            groups.append((type(group), group.ends))
    return len(frame.nodes), frame.attachments, tuple(groups)
