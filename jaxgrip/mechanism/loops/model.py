"""A tree of bodies whose loops are closed by joints, and joints coupled in a fixed ratio."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import near, numbers, rotation_matrix
from jaxgrip.joints import Frame, Gear, Joint, frame, relative
from jaxgrip.joints.joint import attachment_points
from jaxgrip.rigid import Poses, Tree, forward_kinematics, without_balls
from jaxgrip.spatial.quaternions import to_matrix

BASE = "the base"
# Axes of a frame whose z axis is the x, or the y, axis of another.
ALONG_X = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
ALONG_Y = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])


class Loop(eqx.Module):
    """A joint between two bodies of a tree, which closes a loop.

    **Arguments:**

    - `name`; `joint`, any of `jaxgrip.joints` but a rope.
    - `first`, `second`: names of two bodies; None is the base.
    - `first_frame`, `second_frame`: of the joint on either body, in the frame of the body of the
      `Tree`: a `joints.Frame`, or (k, 3) points that make one [m]. `closed_at` finds both.

    **Raises:** `ValueError` when both are the same body, the joint needs more points or may hang
    slack, or a number is not finite.
    """

    joint: Joint
    first_frame: Frame
    second_frame: Frame
    name: str = eqx.field(static=True)
    first: str | None = eqx.field(static=True)
    second: str | None = eqx.field(static=True)

    def __init__(
        self,
        name: str,
        joint: Joint,
        first: str | None,
        second: str | None,
        first_frame: Any,
        second_frame: Any,
    ):
        if first == second:
            raise ValueError(f"Loop {name!r} joins {first or BASE} to itself.")
        if joint.one_sided:
            raise ValueError(
                f"Loop {name!r} is closed by a {type(joint).__name__.lower()}, which may hang "
                "slack; use a distance, which acts both ways."
            )
        self.name, self.joint, self.first, self.second = name, joint, first, second
        self.first_frame = _frame(name, joint, first, first_frame)
        self.second_frame = _frame(name, joint, second, second_frame)


class Coupling(eqx.Module):
    """A gear between two joints, such as a mimic joint.

    **Arguments:** `name`; `gear`; `leader`, `follower`: names of two bodies, whose joints in the
    tree have the first and the second coordinate of the gear; `measured`: whether either is instead
    the name of a loop, whose joint measures the coordinate. An angle of a loop is known up to full
    turns, of which the coupling holds with any number.

    **Raises:** `ValueError` when both are the same.
    """

    gear: Gear
    name: str = eqx.field(static=True)
    leader: str = eqx.field(static=True)
    follower: str = eqx.field(static=True)
    measured: tuple[bool, bool] = eqx.field(static=True)

    def __init__(
        self,
        name: str,
        gear: Gear,
        leader: str,
        follower: str,
        measured: tuple[bool, bool] = (False, False),
    ):
        if leader == follower and measured[0] == measured[1]:
            raise ValueError(f"Coupling {name!r} couples the joint of {leader!r} to itself.")
        self.name, self.gear, self.leader, self.follower = name, gear, leader, follower
        self.measured = measured


class Mechanism(eqx.Module):
    """A tree of bodies with loops and couplings.

    Coordinates are those of the tree. The constraints g(q) = 0 are the equations of the joints
    of the loops in their order, lengths [m] first, then sines of angles, then those of the
    couplings [rad or m]. They may be redundant, as for a planar linkage closed by a hinge.

    **Arguments:** `tree`; `loops`; `couplings`; `balls`: triples of coordinates that together are
    free rotations, about x, then the new y, then the new z. In a motion they are measured from the
    rotation a step before, so that they stay away from their singular position.

    **Raises:** `ValueError` when two have the same name, for a loop on an unknown body, and for a
    coupling of an unknown joint, and a tree with quaternions.
    """

    tree: Tree
    loops: tuple[Loop, ...]
    couplings: tuple[Coupling, ...]
    balls: tuple[tuple[int, int, int], ...] = eqx.field(static=True)

    def __init__(
        self,
        tree: Tree,
        loops: Sequence[Loop] = (),
        couplings: Sequence[Coupling] = (),
        balls: Sequence[tuple[int, int, int]] = (),
    ):
        without_balls(tree, "Mechanism")
        self.tree, self.loops, self.couplings = tree, tuple(loops), tuple(couplings)
        self.balls = tuple(balls)
        names = [part.name for part in (*self.loops, *self.couplings)]
        for name, count in Counter(names).items():
            if count > 1:
                raise ValueError(f"Two loops or couplings are called {name!r}; names must differ.")
        bodies, coordinates = set(tree.names), set(self.coordinates)
        for loop in self.loops:
            for body in (loop.first, loop.second):
                if body is not None and body not in bodies:
                    raise ValueError(
                        f"Loop {loop.name!r}: there is no body {body!r}; {near(body, tree.names)}"
                    )
        for coupling in self.couplings:
            ends = (coupling.leader, coupling.follower)
            angles = []
            for body, is_loop in zip(ends, coupling.measured, strict=True):
                if is_loop:
                    measure = self.loops[self.loop(body)].joint.measure
                    if measure is None:
                        raise ValueError(
                            f"Coupling {coupling.name!r}: the joint of loop {body!r} has no single "
                            "coordinate to couple."
                        )
                    angles += [body] if measure.periodic else []
                elif body not in coordinates:
                    known = f"a joint; {near(body, self.coordinates)}"
                    raise ValueError(
                        f"Coupling {coupling.name!r}: there is no body {body!r} with {known}"
                    )
            if len(angles) > 1:
                raise ValueError(
                    f"Coupling {coupling.name!r} couples the angles of {angles[0]!r} and "
                    f"{angles[1]!r}, which both close loops; at most one may, as an angle there is "
                    "known up to full turns only."
                )

    @property
    def n(self) -> int:
        """Number of coordinates."""
        return self.tree.n

    @property
    def m(self) -> int:
        """Number of constraints, redundant ones included."""
        return sum(loop.joint.equations for loop in self.loops) + len(self.couplings)

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the bodies whose joints the coordinates are."""
        return tuple(self.tree.names[i] for i in self.tree.moving)

    def loop(self, name: str) -> int:
        """Index of the loop called `name`; raises `ValueError` when there is none."""
        names = [loop.name for loop in self.loops]
        if name not in names:
            raise ValueError(f"There is no loop {name!r}; {near(name, names)}")
        return names.index(name)

    def with_drives(self, driven: tuple[int, ...], values: Float[Array, " d"]) -> "Mechanism":
        """The mechanism with other values of the drives [m or rad] of some loops."""
        if not driven:
            return self
        loops = list(self.loops)
        for k, value in zip(driven, values, strict=True):
            joint = loops[k].joint.with_parameter(value)
            loops[k] = eqx.tree_at(lambda loop: loop.joint, loops[k], joint)
        return eqx.tree_at(lambda mechanism: mechanism.loops, self, tuple(loops))

    @property
    def unturned(self) -> Float[Array, "balls 4"]:
        """Quaternions of balls that have not rotated."""
        return jnp.zeros((len(self.balls), 4), self.tree.mass.dtype).at[:, 0].set(1.0)

    def turned(self, quaternions: Float[Array, "balls 4"]) -> "Mechanism":
        """The mechanism with rotations of its balls from which their coordinates are measured."""
        if not self.balls:
            return self
        first = np.array([self.tree.moving[ball[0]] for ball in self.balls])
        rotation = jax.vmap(to_matrix)(quaternions)
        # The first of the three bodies has the x axis of the ball as its z axis.
        along_x = jnp.asarray(ALONG_X, rotation.dtype)
        rotation = self.tree.rotation[first] @ (along_x.T @ rotation @ along_x)
        rotation = self.tree.rotation.at[first].set(rotation)
        return eqx.tree_at(lambda mechanism: mechanism.tree.rotation, self, rotation)

    def coordinate(self, name: str) -> int:
        """Index of the coordinate of the joint of the body called `name`.

        **Raises:** `ValueError` when there is no such body or its joint is fixed.
        """
        if name not in self.coordinates:
            known = near(name, self.coordinates)
            raise ValueError(f"There is no body {name!r} with a joint; {known}")
        return self.coordinates.index(name)


def closed_at(
    tree: Tree,
    q: Float[Array, " n"],
    name: str,
    joint: Joint,
    first: str | None,
    second: str | None,
    points: Any,
) -> Loop:
    """Loop that is closed in a known position, by a joint known there.

    **Arguments:** `tree`; `q`: (n,) coordinates of the position [rad or m]; `name`, `joint`,
    `first` and `second` as of `Loop`; `points`: (k, 3) of the joint in the base frame [m].

    **Returns:** the `Loop`, both frames of which are at the points.

    **Raises:** `ValueError` as `Loop`, and for an unknown body.
    """
    at = _frame(name, joint, None, points)
    place = forward_kinematics(tree, q)
    seats = []
    for body in (first, second):
        if body is None:
            seats.append(at)
        else:
            i = tree.body(body)
            seats.append(relative(Frame(place.translation[i], place.rotation[i]), at))
    return Loop(name, joint, first, second, *seats)


@jax.jit
def constraints(mechanism: Mechanism, q: Float[Array, " n"]) -> Float[Array, " m"]:
    """Residuals of the constraints.

    **Arguments:** `mechanism`; `q`: (n,) coordinates [rad or m].

    **Returns:** (m,), of every loop the lengths [m], then the sines; of every coupling [rad or m].

    **Raises:** `ValueError` for another shape.
    """
    place = forward_kinematics(mechanism.tree, q)
    ratios, offsets = coupling_rows(mechanism)
    coupled = ratios @ q - offsets + measured(mechanism, place)
    return jnp.concatenate([loop_residuals(mechanism, place), _within_a_turn(mechanism, coupled)])


def loop_residuals(mechanism: Mechanism, place: Poses) -> Float[Array, " rows"]:
    """Residuals of the joints of the loops at poses of the bodies."""
    rows = [
        jax.vmap(lambda j, a, b: j.residual(relative(a, b)))(*seats(mechanism, alike, place))
        for alike in kinds(mechanism)
    ]
    flat = jnp.concatenate([jnp.zeros(0, place.translation.dtype), *(r.reshape(-1) for r in rows)])
    order = [multiplier_rows(mechanism, alike).reshape(-1) for alike in kinds(mechanism)]
    return flat[np.argsort(np.concatenate([np.zeros(0, int), *order]))]


def coupling_rows(mechanism: Mechanism) -> tuple[Float[Array, "rows n"], Float[Array, " rows"]]:
    """Matrix and right-hand side of the couplings."""
    dtype, couplings = mechanism.tree.mass.dtype, mechanism.couplings
    rows = jnp.zeros((len(couplings), mechanism.n), dtype)
    if not couplings:
        return rows, jnp.zeros(0, dtype)
    gears = _stack([c.gear for c in couplings])
    for end, factors in ((1, jnp.ones_like(gears.ratio)), (0, -gears.ratio)):
        k = np.array([i for i, c in enumerate(couplings) if not c.measured[end]], dtype=int)
        names = [(couplings[i].leader, couplings[i].follower)[end] for i in k]
        columns = np.array([mechanism.coordinate(name) for name in names], dtype=int)
        rows = rows.at[k, columns].set(factors[k])
    return rows, gears.offset


class MeasuredEnd(NamedTuple):
    """Of a coupling, by its index, a joint that closes the loop of the index `loop`; `factor` of
    its coordinate in the equation; `joint` and its frames on both bodies."""

    coupling: int
    loop: int
    factor: Array
    joint: Joint
    first: Frame
    second: Frame

    def share(self, place: Frame) -> Float[Array, "1"]:
        """What the joint adds to the equation."""
        return (self.factor * self.joint.coordinate(place))[None]


def measured_ends(mechanism: Mechanism, place: Poses) -> list[MeasuredEnd]:
    """Ends of couplings that are joints of loops, at poses of the bodies."""
    found = []
    for i, coupling in _with_loops(mechanism):
        factors = (-coupling.gear.ratio, jnp.ones_like(coupling.gear.ratio))
        names = (coupling.leader, coupling.follower)
        for name, factor, is_loop in zip(names, factors, coupling.measured, strict=True):
            if is_loop:
                loop = mechanism.loop(name)
                at = jax.tree.map(lambda x: x[0], seats(mechanism, np.array([loop]), place))
                found.append(MeasuredEnd(i, loop, factor, *at))
    return found


def _with_loops(mechanism: Mechanism) -> list[tuple[int, Coupling]]:
    """Couplings of joints of loops, with their index; no others may add operations."""
    return [(i, c) for i, c in enumerate(mechanism.couplings) if any(c.measured)]


def measured(mechanism: Mechanism, place: Poses) -> Float[Array, " couplings"]:
    """What joints of loops add to the equations of the couplings."""
    total = jnp.zeros(len(mechanism.couplings), place.translation.dtype)
    for end in measured_ends(mechanism, place):
        share = end.share(relative(end.first, end.second))
        total = total.at[end.coupling].add(share[0])
    return total


def _within_a_turn(mechanism: Mechanism, coupled: Float[Array, " rows"]) -> Float[Array, " rows"]:
    """Residuals of couplings without the full turns of angles of loops."""
    for i, coupling in _with_loops(mechanism):
        names = (coupling.leader, coupling.follower)
        ratio = jnp.abs(coupling.gear.ratio)
        for name, scale, is_loop in zip(
            names, (ratio, jnp.ones_like(ratio)), coupling.measured, strict=True
        ):
            if is_loop and mechanism.loops[mechanism.loop(name)].joint.measure.periodic:
                turn = jnp.where(scale > 0, 2 * np.pi * scale, jnp.inf)
                count = jnp.round(coupled[i] / turn)
                coupled = coupled.at[i].add(-jnp.where(scale > 0, turn, 0.0) * count)
    return coupled


def kinds(mechanism: Mechanism) -> list[np.ndarray]:
    """Indices of the loops, grouped by the kind of their joints."""
    found: dict = {}
    for k, loop in enumerate(mechanism.loops):
        found.setdefault(jax.tree.structure(loop.joint), []).append(k)
    return [np.array(alike) for alike in found.values()]


def multiplier_rows(mechanism: Mechanism, alike: np.ndarray) -> np.ndarray:
    """Row indices (loops, equations) of the constraints of loops of one kind."""
    counts = [loop.joint.equations for loop in mechanism.loops]
    starts = np.cumsum([0, *counts])[alike]
    return starts[:, None] + np.arange(counts[alike[0]])[None, :]


def seats(mechanism: Mechanism, alike: np.ndarray, place: Poses) -> tuple[Joint, Frame, Frame]:
    """Joints of loops of one kind, and their frames on either body in base axes, stacked."""
    loops = [mechanism.loops[k] for k in alike]
    # The base comes after the last body.
    rotation = jnp.concatenate([place.rotation, jnp.eye(3, dtype=place.rotation.dtype)[None]])
    translation = jnp.pad(place.translation, ((0, 1), (0, 0)))

    def on(bodies: np.ndarray, frames: list[Frame]) -> Frame:
        seat = _stack(frames)
        axes = rotation[bodies]
        return Frame(
            jnp.einsum("kxy,ky->kx", axes, seat.origin) + translation[bodies], axes @ seat.rotation
        )

    first, second = loop_bodies(mechanism)[alike].T
    return (
        _stack([loop.joint for loop in loops]),
        on(first, [loop.first_frame for loop in loops]),
        on(second, [loop.second_frame for loop in loops]),
    )


def loop_bodies(mechanism: Mechanism) -> np.ndarray:
    """Indices (loops, 2) of the bodies that loops join; the base comes after all bodies."""
    index = {name: i for i, name in enumerate((*mechanism.tree.names, None))}
    found = [(index[x.first], index[x.second]) for x in mechanism.loops]
    return np.array(found, dtype=int).reshape(-1, 2)


def row_names(mechanism: Mechanism) -> tuple[tuple[str, str, str], ...]:
    """Kind, "loop" or "coupling", name and unit, "m", "sine" or "rad or m", of every constraint."""
    rows = []
    for loop in mechanism.loops:
        lengths = loop.joint.lengths
        units = ["m"] * lengths + ["sine"] * (loop.joint.equations - lengths)
        rows += [("loop", loop.name, unit) for unit in units]
    return (*rows, *(("coupling", c.name, "rad or m") for c in mechanism.couplings))


def _frame(name: str, joint: Joint, body: str | None, value: Any) -> Frame:
    where = f"of loop {name!r} on {repr(body) if body else BASE}"
    if isinstance(value, Frame):
        return Frame(
            numbers(f"The origin {where}", value.origin, (3,)),
            rotation_matrix(f"The rotation {where}", value.rotation),
        )
    points = attachment_points(f"The joint {where}", value)
    if len(points) < joint.points:
        raise ValueError(
            f"The joint {where} has {len(points)} point(s); a {type(joint).__name__} needs "
            f"{joint.points}."
        )
    return frame(points)


def _stack(parts: list) -> Any:
    return jax.tree.map(lambda *x: jnp.stack(x), *parts)
