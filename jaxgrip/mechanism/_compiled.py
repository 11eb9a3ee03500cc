"""A system as a tree of bodies with as few loop equations as possible.

The spanning tree has the joints with the most equations; the remaining joints close loops. A part
that no joint of the tree carries has six degrees of freedom relative to the ground.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxgrip.checks import concrete, near
from jaxgrip.joints import Frame, relative
from jaxgrip.joints.joint import TAUT
from jaxgrip.mechanism._assemble import Assembly
from jaxgrip.mechanism._equations import frames, gears, joined, pairs
from jaxgrip.mechanism.loops.model import ALONG_X, ALONG_Y, Coupling, Loop, Mechanism
from jaxgrip.mechanism.poses import placed
from jaxgrip.mechanism.system import Connection, System
from jaxgrip.rigid import Tree
from jaxgrip.rigid.builders import check_carried
from jaxgrip.solve.fusion import jit_plainly

_ALONG = {"x": ALONG_X, "y": ALONG_Y, "z": np.eye(3)}
_BACKWARD = np.diag([1.0, -1.0, -1.0])
_BALL = ("rx", "ry", "rz")
_FREE = ("x", "y", "z", "ball")


class Carried(NamedTuple):
    """How a connection carries a part in the tree.

    `part`; `parent`, the part that carries it, the index after the last part being the ground;
    `backward` where `part` is the connection's first; `coordinates`: indices of the coordinates of
    its steps; `body`: index in the tree of the body of `part`.
    """

    connection: str | None
    part: int
    parent: int
    backward: bool
    coordinates: tuple[int, ...]
    body: int


class Compiled(eqx.Module):
    """A system as a tree with loops.

    **Fields:** `system`; `mechanism`, whose loops and couplings are named after connections;
    `start` (n,), coordinates as assembled [rad or m]; `seats`: frames (p,) of the parts relative to
    their bodies; `carried`, one entry a part, outward; `slack`: names of one-sided connections that
    are slack and left out.
    """

    system: System
    mechanism: Mechanism
    start: Float[Array, " n"]
    seats: Frame
    carried: tuple[Carried, ...] = eqx.field(static=True)
    slack: tuple[str, ...] = eqx.field(static=True)

    @property
    def bodies(self) -> np.ndarray:
        """Index (p,) in the tree of the body of every part."""
        found = {how.part: how.body for how in self.carried}
        return np.array([found[k] for k in range(len(found))], dtype=int)

    @property
    def coordinates(self) -> dict[str, int]:
        """Indices of tree coordinates that are coordinates of joints, by the connection's name."""
        known = {}
        for how in self.carried:
            if how.connection is not None:
                joint = self.system.joint(how.connection)
                if joint.measure is not None:
                    known[how.connection] = how.coordinates[joint.leading]
        return known

    def coordinate(self, name: str) -> int:
        """Index of the tree coordinate that is the coordinate of a connection.

        **Raises:** `ValueError` where its joint closes a loop or has no single coordinate.
        """
        known = self.coordinates
        if name not in known:
            self.system.connection(name)
            raise ValueError(
                f"Connection {name!r} is no coordinate of the tree: its joint closes a loop or has "
                f"no single coordinate; {near(name, known)}"
            )
        return known[name]


def compiled(assembly: Assembly, released: Sequence[str] = ()) -> Compiled:
    """The tree of bodies with loops of an assembled system.

    **Arguments:** `assembly`; `released`: names of drives and gears to leave out.

    **Returns:** `Compiled`, differentiable with respect to all numbers of the assembly.

    **Raises:** `ValueError` for a part that moves without mass, for a gear of a joint that is left
    out, and for one of two angles that both close loops.
    """
    for name in released:
        assembly.system.drive(name)
    # Within `jit` all count as taut.
    slack = tuple(name for name, is_so in are_slack(assembly).items() if concrete(is_so) and is_so)
    found = _built(assembly, tuple(released), slack)
    tree = found.mechanism.tree
    check_carried(tree.names, tree.parents, tree.joint_types, list(tree.mass), "part")
    return found


@jit_plainly
def _built(assembly: Assembly, released: tuple[str, ...], slack: tuple[str, ...]) -> Compiled:
    system, poses = assembly.system, assembly.poses
    connections, seen, at_joints = pairs(system), frames(system), joined(system, poses)
    ends, places = at_joints.bodies, at_joints.place
    builder = _Builder(system, Frame(poses.position, poses.rotation))
    tree = _spanning(system, ends)
    for j, part, parent in tree:
        at = None if j is None else jax.tree.map(lambda x, j=j: x[j], (seen, places))
        builder.carry(None if j is None else connections[j], part, parent, at, assembly.turns, j)
    used = {j for j, _, _ in tree if j is not None}
    loops = []
    for j, connection in enumerate(connections):
        if j not in used and connection.name not in (*released, *slack):
            sides = [builder.seated(int(ends[j, k]), seen, j, k) for k in range(2)]
            names = [builder.name_of(int(ends[j, k])) for k in range(2)]
            loops.append(Loop(connection.name, connection.joint.taut(), *names, *sides))
    return builder.compiled(loops, slack, released)


def are_slack(assembly: Assembly) -> dict[str, Bool[Array, ""]]:
    """Whether one-sided connections are slack, by their names."""
    one_sided = [(j, c) for j, c in enumerate(pairs(assembly.system)) if c.joint.one_sided]
    if not one_sided:
        return {}
    places = jax.lax.stop_gradient(joined(assembly.system, assembly.poses).place)
    found = {}
    for j, connection in one_sided:
        place = jax.tree.map(lambda x, j=j: x[j], places)
        excess = jax.lax.stop_gradient(connection.joint.taut().residual(place))
        found[connection.name] = jnp.all(excess < -TAUT)
    return found


def _spanning(system: System, ends: np.ndarray) -> list[tuple[int | None, int, int]]:
    """Joints of the tree, each with the part that it carries and that part's parent, outward.

    None stands for the joint of a part that moves freely.
    """
    coupled = {name for gear in gears(system) for name in (gear.first, gear.second)}
    joints = [connection.joint for connection in pairs(system)]
    names = [connection.name for connection in pairs(system)]
    order = sorted(
        (j for j, joint in enumerate(joints) if joint.steps is not None),
        key=lambda j: (names[j] not in coupled, -joints[j].equations),
    )
    ground = len(system.parts)
    group = list(range(ground + 1))

    def root(k: int) -> int:
        while group[k] != k:
            k = group[k]
        return k

    kept = []
    for j in order:
        one, two = (root(int(k)) for k in ends[j])
        if one != two:
            group[one] = two
            kept.append(j)
    found, reached = [], {ground}
    waiting = [ground]
    while len(reached) <= ground:
        while waiting:
            parent = waiting.pop(0)
            for j in kept:
                first, second = map(int, ends[j])
                for a, b in ((first, second), (second, first)):
                    if a == parent and b not in reached:
                        found.append((j, b, parent))
                        reached.add(b)
                        waiting.append(b)
        loose = [k for k in range(ground) if k not in reached]
        if loose:
            found.append((None, loose[0], ground))
            reached.add(loose[0])
            waiting.append(loose[0])
    return found


class _Builder:
    """Collects the bodies of the tree from the ground outward."""

    def __init__(self, system: System, parts: Frame):
        self.system, self.parts = system, parts
        self.ground = len(system.parts)
        self.names: list[str] = []
        self.parents: list[int] = []
        self.kinds: list[str] = []
        self.frames: list[Frame] = []
        self.start: list[Array] = []
        self.balls: list[tuple[int, int, int]] = []
        self.couplings: list[Coupling] = []
        self.carried: list[Carried] = []
        self.seats: dict[int, Frame] = {self.ground: Frame(jnp.zeros(3), jnp.eye(3))}
        self.body: dict[int, int] = {self.ground: -1}

    def carry(
        self,
        connection: Connection | None,
        part: int,
        parent: int,
        at: Any,
        turns: Array,
        j: int | None,
    ) -> None:
        """Add the bodies of a joint and the part that it carries."""
        if connection is None:
            steps, backward, values = _FREE, False, self.parts.origin[part]
            inner = Frame(jnp.zeros(3), jnp.eye(3))
            outer, rotation = inner, self.parts.rotation[part]
        else:
            joint, (seen, place) = connection.joint, at
            backward = self.is_backward(connection, part)
            steps, values = joint.steps, joint.values(place)
            if joint.measure is not None and gears(self.system):
                # The number of turns has no derivative, the angle has that of the poses.
                value = values[joint.leading]
                turned = value + jax.lax.stop_gradient(turns[j] - value)
                values = values.at[joint.leading].set(turned)
            inner, outer = (jax.tree.map(lambda x, k=k: x[k], seen) for k in range(2))
            rotation = place.rotation
            if backward:
                inner, outer, rotation = outer, inner, rotation.T
        place = placed(inner, *self.seats[parent])
        name = self.system.names[part]
        label = f"{name}: {connection.name if connection else 'free'}"
        order = range(len(steps))[:: -1 if backward else 1]
        elementary = []
        for k in order:
            if steps[k] == "ball":
                elementary += [(k, step, _ALONG[step[-1]]) for step in _BALL]
            else:
                axes = _ALONG[steps[k][-1]]
                # Seen from the second frame, the step has the same value and the opposite axis.
                elementary.append((k, steps[k], axes @ _BACKWARD if backward else axes))
        numbers: dict[int, int] = {}
        bodies: dict[int, str] = {}
        above, last = self.body[parent], np.eye(3)
        for k, step, axes in elementary:
            is_ball = steps[k] == "ball"
            # The rotation at the start is in the frame, so that a ball's coordinates are zero.
            if is_ball and step == _BALL[0]:
                place = Frame(place.origin, place.rotation @ rotation)
            is_last = (k, step) == elementary[-1][:2]
            kind = "revolute" if step.startswith("r") else "prismatic"
            bodies[k] = name if is_last else f"{label} {step}"
            self.add(bodies[k], above, kind, Frame(place.origin, place.rotation @ axes))
            above, last = len(self.names) - 1, axes
            place = Frame(jnp.zeros(3), jnp.asarray(axes.T))
            numbers.setdefault(k, len(self.start))
            self.start.append(jnp.zeros(()) if is_ball else values[k])
        if not elementary:
            self.add(name, above, "fixed", place)
            above = len(self.names) - 1
        for k in order:
            if steps[k] == "ball":
                first = numbers[k]
                self.balls.append((first, first + 1, first + 2))
        back = relative(outer, Frame(jnp.zeros(3), jnp.eye(3)))
        rotation = jnp.asarray(last.T)
        self.seats[part] = Frame(rotation @ back.origin, rotation @ back.rotation)
        self.body[part] = above
        coordinates = tuple(numbers[k] for k in range(len(steps)))
        self.carried.append(
            Carried(connection and connection.name, part, parent, backward, coordinates, above)
        )
        if connection is not None:
            for leader, follower, gear in connection.joint.relations():
                self.couplings.append(
                    Coupling(connection.name, gear, bodies[leader], bodies[follower])
                )

    def is_backward(self, connection: Connection, part: int) -> bool:
        """Whether the part is the first of a connection."""
        if connection.joint.to_ground:
            return False
        return self.system.attachment(connection.first)[0] == part

    def add(self, name: str, parent: int, kind: str, place: Frame) -> None:
        """Add a body."""
        self.names.append(name)
        self.parents.append(parent)
        self.kinds.append(kind)
        self.frames.append(place)

    def seated(self, part: int, seen: Frame, j: int, side: int) -> Frame:
        """Frame of a joint relative to the body of a part."""
        return placed(jax.tree.map(lambda x: x[j, side], seen), *self.seats[part])

    def name_of(self, part: int) -> str | None:
        """Name of the body of a part."""
        return None if part == self.ground else self.names[self.body[part]]

    def compiled(
        self, loops: list[Loop], slack: tuple[str, ...], released: tuple[str, ...]
    ) -> Compiled:
        """The tree with its loops and couplings."""
        count, system = len(self.names), self.system
        mass = [jnp.zeros(())] * count
        com, inertia = [jnp.zeros(3)] * count, [jnp.zeros((3, 3))] * count
        for k, part in enumerate(system.parts):
            body, seat = self.body[k], self.seats[k]
            mass[body] = part.mass
            com[body] = seat.origin + seat.rotation @ part.com
            inertia[body] = seat.rotation @ part.inertia @ seat.rotation.T
        tree = Tree(
            parents=tuple(self.parents),
            joint_types=tuple(self.kinds),
            names=tuple(self.names),
            rotation=jnp.stack([frame.rotation for frame in self.frames]),
            translation=jnp.stack([frame.origin for frame in self.frames]),
            mass=jnp.stack(mass),
            com=jnp.stack(com),
            inertia=jnp.stack(inertia),
            gravity=system.gravity,
        )
        acting = [gear for gear in gears(system) if gear.name not in released]
        couplings = self.couplings + [self.gear(gear, loops) for gear in acting]
        return Compiled(
            system,
            Mechanism(tree, loops, couplings, self.balls),
            jnp.stack(self.start) if self.start else jnp.zeros(0),
            jax.tree.map(lambda *x: jnp.stack(x), *(self.seats[k] for k in range(self.ground))),
            tuple(self.carried),
            slack,
        )

    def gear(self, gear: Connection, loops: list[Loop]) -> Coupling:
        """The coupling of a gear's two joints."""
        moving = [k for k, kind in enumerate(self.kinds) if kind != "fixed"]
        ends, measured = [], []
        for name in (gear.first, gear.second):
            how = next((how for how in self.carried if how.connection == name), None)
            if how is None:
                if name not in [loop.name for loop in loops]:
                    raise ValueError(
                        f"Gear {gear.name!r} couples {name!r}, which is left out of this motion; "
                        "leave the gear out of the system too."
                    )
                ends.append(name)
            else:
                joint = self.system.joint(name)
                ends.append(self.names[moving[how.coordinates[joint.leading]]])
            measured.append(how is None)
        return Coupling(gear.name, gear.joint, *ends, (measured[0], measured[1]))
