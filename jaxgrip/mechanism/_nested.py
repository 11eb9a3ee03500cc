"""Nested assemblies, solved one by one, the deepest first: systems are small, errors are local.

A part named `"main boom/head"` is the part "head" of the assembly "main boom", which may be within
others; joints are named likewise. An assembly, once solved, is one rigid part of the one that
contains it.
"""

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from jaxgrip import joints
from jaxgrip.checks import concrete
from jaxgrip.joints import Frame
from jaxgrip.mechanism._assemble import Assembly, assemble, gaps
from jaxgrip.mechanism._mobility import mobility
from jaxgrip.mechanism.loops.closing import MechanismError
from jaxgrip.mechanism.poses import Poses, placed
from jaxgrip.mechanism.poses import start as start_of
from jaxgrip.mechanism.system import GROUND, Connection, Part, System
from jaxgrip.solve.dense import RANK_TOLERANCE
from jaxgrip.spatial import quaternions

ROOT = ""
HOLD = "temporary clamp"


class NestedAssembly(eqx.Module):
    """Parts assembled one assembly after the other.

    **Fields:**

    - `system`, with the values of its drives.
    - `poses` of all parts, as those of `assemble`, and differentiable like these.
    - `assemblies`: `Assembly` of each by path, of the whole by `""`, with the assemblies within it
      as one part each. Those of fixed joints only are missing: nothing had to be solved.
    """

    system: System
    poses: Poses
    assemblies: dict[str, Assembly]

    def warnings(self) -> list[str]:
        """Sentences on possible faults of the result; not within `jit`."""
        found = gaps(self.system, self.poses)
        for path, assembly in self.assemblies.items():
            who = f"Assembly {path!r}: " if path else ""
            own = gaps(assembly.system, assembly.poses)
            found += [f"{who}{each}" for each in assembly.warnings() if each not in own]
        return found


def assemble_nested(
    system: System,
    parameters: Mapping[str, ArrayLike] | None = None,
    *,
    start: Poses | None = None,
) -> NestedAssembly:
    """Assemble each assembly by itself, the deepest first, and then the whole.

    A temporary clamp fixes one part of an assembly while it is solved. Parts connected by fixed
    joints only are placed without iteration.

    **Arguments:** as for `assemble`.

    **Returns:** `NestedAssembly`.

    **Raises:** `ValueError` for a joint that uses a part outside its assembly; `MechanismError`
    naming every assembly of one depth that does not close or whose parts can still move; those
    that contain them are not tried.

    Source: Webhofer 2005, section 5.4, pp. 76-79.
    """
    if parameters is not None:
        system = system.with_parameters(parameters)
    check_nesting(system)
    poses = start_of(system) if start is None else start
    paths, solved = assemblies(system), {}
    for depth in sorted({_depth(path) for path in paths}, reverse=True):
        failures = []
        for path in (p for p in paths if _depth(p) == depth):
            level = _level(system, path, poses)
            try:
                poses = _moved(level, poses, _put_together(level, path, solved))
            except MechanismError as error:
                if path == ROOT:
                    raise
                failures.append(f"Assembly {path!r} cannot be assembled: {error}")
        if failures:
            raise MechanismError("\n".join(failures))
    return NestedAssembly(system, poses, solved)


def assemblies(system: System) -> list[str]:
    """Paths of all assemblies of a system, including the whole, `""`."""
    paths = {ROOT: None}
    for part in system.parts:
        *folders, _ = part.name.split("/")
        paths |= {"/".join(folders[: k + 1]): None for k in range(len(folders))}
    return list(paths)


def check_nesting(system: System) -> None:
    """Raise `ValueError` unless the joints of every assembly use only parts within it.

    Source: Webhofer 2005, section 5.4, p. 78, first condition.
    """
    paths = assemblies(system)
    for part in system.parts:
        if part.name in paths:
            raise ValueError(f"{part.name!r} is both a part and an assembly.")
    clamped = {}
    for connection in system.connections:
        who, path = f"Connection {connection.name!r}", _parent(connection.name)
        if path not in paths:
            raise ValueError(f"{who} is in an assembly {path!r}, which has no part.")
        if isinstance(connection.joint, joints.Gear):
            for name in (connection.first, connection.second):
                if _parent(name) != path:
                    raise ValueError(f"{who} couples {name!r}, which is not in its assembly.")
            continue
        if connection.joint.to_ground:
            child = connection.first.split("/")[0]
            if child in clamped and child in paths:
                raise ValueError(
                    f"{who} fixes assembly {child!r}, which {clamped[child]!r} fixes already."
                )
            clamped[child] = connection.name
        _check_inside(connection, path)


def _check_inside(connection: Connection, path: str) -> None:
    who = f"Connection {connection.name!r}"
    ends = [end for end in (connection.first, connection.second) if end is not None]
    owners = [_parent(end.split(".")[0]) for end in ends]
    if path != ROOT and (len(ends) == 1 or any(e.split(".")[0] == GROUND for e in ends)):
        raise ValueError(
            f"{who} joins assembly {path!r} to the ground, which only the whole can; while an "
            "assembly is solved, a temporary clamp fixes it."
        )
    for end, owner in zip(ends, owners, strict=True):
        if not f"{owner}/".startswith(f"{path}/" if path else ""):
            raise ValueError(
                f"{who} uses {end!r}, which is not in assembly {path!r}; put it into the assembly "
                "that contains both ends."
            )
    shared = _shared(*owners) if len(ends) == 2 else path
    if shared != path:
        raise ValueError(f"{who} joins parts of assembly {shared!r} and belongs there.")


def _shared(one: str, other: str) -> str:
    """Path of the deepest assembly that contains both."""
    pairs = zip(one.split("/"), other.split("/"), strict=False)
    return "/".join(a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


@eqx.filter_jit
def compose(system: System) -> Poses | None:
    """Poses of parts that fixed joints connect to each other and the ground, without iteration.

    None if there are other joints, or unless the parts are a tree on one clamp or the ground.

    Source: own derivation.
    """
    tree = _fixed_tree(system)
    if tree is None:
        return None
    start = start_of(system)
    at = {k: Frame(start.position[k], start.rotation[k]) for k in tree.clamped}
    at[-1] = Frame(jnp.zeros(3), jnp.eye(3))
    for known, new in tree.edges:
        (parent, points), (child, others) = system.attachment(known), system.attachment(new)
        place, local = placed(joints.frame(points), *at[parent]), joints.frame(others)
        rotation = place.rotation @ local.rotation.T
        at[child] = Frame(place.origin - rotation @ local.origin, rotation)
    frames = [at[k] for k in range(len(system.parts))]
    rotations = jnp.stack([frame.rotation for frame in frames])
    return Poses(
        jnp.stack([frame.origin for frame in frames]),
        jax.vmap(quaternions.from_matrix)(rotations),
    )


class _Tree(NamedTuple):
    """Indices of clamped parts, then pairs of ends, that of the part already placed first."""

    clamped: list[int]
    edges: list[tuple[str, str]]


def _fixed_tree(system: System) -> _Tree | None:
    clamped, ends = [], []
    for connection in system.connections:
        if connection.joint.to_ground:
            clamped.append(system.part(connection.first))
        elif isinstance(connection.joint, joints.Fixed):
            ends.append((connection.first, connection.second))
        else:
            return None
    if len(clamped) + len(ends) != len(system.parts):
        return None
    reached, edges = {-1, *clamped}, []
    while ends:
        sides = [[system.attachment(end)[0] in reached for end in pair] for pair in ends]
        k = next((k for k, (a, b) in enumerate(sides) if a != b), None)
        if k is None:
            return None
        known, new = ends.pop(k) if sides[k][0] else ends.pop(k)[::-1]
        reached.add(system.attachment(new)[0])
        edges.append((known, new))
    return _Tree(clamped, edges)


class _Level(NamedTuple):
    """An assembly by itself, and the indices in the whole of the parts of each of its parts."""

    system: System
    members: list[list[int]]


@eqx.filter_jit
def _level(system: System, path: str, poses: Poses) -> _Level:
    prefix = f"{path}/" if path else ""
    members: dict[str, list[int]] = {}
    for k, part in enumerate(system.parts):
        if part.name.startswith(prefix):
            members.setdefault(part.name.removeprefix(prefix).split("/")[0], []).append(k)
    parts = [_rigid(system, prefix + name, name, ks, poses) for name, ks in members.items()]
    # Names within the assembly, so that equal assemblies share one program.
    connections = [
        Connection(c.name.removeprefix(prefix), c.joint, *_local_ends(c, prefix))
        for c in system.connections
        if _parent(c.name) == path
    ]
    if path != ROOT:
        fixed = _fixed_part(system, prefix).removeprefix(prefix).split("/")[0]
        connections.append(Connection(HOLD, joints.Clamp(), fixed))
    ground = system.ground if path == ROOT else {}
    return _Level(System(parts, connections, ground), list(members.values()))


@eqx.filter_jit
def _moved(level: _Level, poses: Poses, found: Poses) -> Poses:
    """Poses of the whole after an assembly has been solved."""
    position, quaternion = poses
    before = start_of(level.system)
    for k, ks in enumerate(level.members):
        members = np.array(ks)
        rotation = quaternions.product(
            found.quaternion[k], quaternions.conjugate(before.quaternion[k])
        )
        arms = position[members] - before.position[k : k + 1]
        there = found.position[k : k + 1] + arms @ quaternions.to_matrix(rotation).T
        rotated = jax.vmap(quaternions.product, (None, 0))(rotation, quaternion[members])
        position, quaternion = position.at[members].set(there), quaternion.at[members].set(rotated)
    return Poses(position, quaternion)


def _rigid(system: System, path: str, name: str, members: list[int], poses: Poses) -> Part:
    """A part, or all parts of an assembly as one in the frame of its first part."""
    position, rotation = poses.position, poses.rotation
    first = members[0]
    attachments = {}
    for k in members:
        part = system.parts[k]
        within = part.name.removeprefix(path).lstrip("/")
        for key, points in part.attachments.items():
            if within:
                arm = position[k] - position[first]
                attachments[f"{within}/{key}"] = (arm[None] + points @ rotation[k].T) @ rotation[
                    first
                ]
            else:
                attachments[key] = points
    return Part(name, attachments, position[first], poses.quaternion[first])


def _local_ends(connection: Connection, prefix: str) -> list[str | None]:
    ends = [end and end.removeprefix(prefix) for end in (connection.first, connection.second)]
    gear = isinstance(connection.joint, joints.Gear)
    return ends if gear else [end and _local(end) for end in ends]


def _local(end: str) -> str:
    """End `"head/lamp.pin"` as the attachment `"lamp/pin"` of the part that "head" has become."""
    owner, dot, key = end.partition(".")
    part, slash, within = owner.partition("/")
    return f"{part}.{within}/{key}" if dot and slash else f"{part}{dot}{key}"


def _fixed_part(system: System, prefix: str) -> str:
    """The part that fixes an assembly: the one that the whole clamps, or else its first."""
    clamped = [
        c.first
        for c in system.connections
        if not isinstance(c.joint, joints.Gear) and c.joint.to_ground
    ]
    names = [name for name in (*clamped, *system.names) if name.startswith(prefix)]
    return names[0]


def _put_together(level: _Level, path: str, solved: dict[str, Assembly]) -> Poses:
    composed = compose(level.system)
    if composed is not None:
        return composed
    assembly = assemble(level.system)
    if path != ROOT:
        _check_rigid(assembly)
    solved[path] = assembly
    return assembly.poses


def _check_rigid(assembly: Assembly) -> None:
    """Raise `MechanismError` when parts can still move.

    Source: Webhofer 2005, section 5.4, p. 78, second condition.
    """
    if not concrete(assembly.poses.position):
        return
    if assembly.orientation != 0 and assembly.condition * RANK_TOLERANCE < 1:
        return
    left = mobility(assembly.system, assembly.poses)
    if left.degrees_of_freedom:
        raise MechanismError(" ".join(left.loose), assembly)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _depth(path: str) -> int:
    return len(path.split("/")) if path else 0
