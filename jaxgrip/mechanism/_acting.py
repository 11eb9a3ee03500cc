"""Forces of a system as generalised forces of its tree."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import check_function
from jaxgrip.joints import Frame, Joint, frame, relative
from jaxgrip.mechanism._compiled import Compiled
from jaxgrip.mechanism._forces import Applied, Force, gradient
from jaxgrip.mechanism.loops.equations import Equations
from jaxgrip.mechanism.loops.kinematics import State, state
from jaxgrip.mechanism.poses import placed


class Between(NamedTuple):
    """Pairs of frames (f,) on the `bodies` (f, 2) of a tree; the index after the last is the base.

    `first` frames in base axes; `place`: the second frames seen from the first; `rate` (f, 6):
    velocity of the second origin relative to the first frame [m/s], then angular velocity [rad/s],
    in axes of the first.
    """

    bodies: np.ndarray
    first: Frame
    place: Frame
    rate: Float[Array, "f 6"]


class Seats(NamedTuple):
    """Frames (f, 2) fixed on the `bodies` (f, 2) of a tree, as in `Between`."""

    bodies: np.ndarray
    frames: Frame

    def between(self, now: State) -> Between:
        """Relative positions and velocities of the pairs of frames."""
        rotation = jnp.concatenate([now.place.rotation, jnp.eye(3)[None]])[self.bodies]
        origin = jnp.pad(now.place.translation, ((0, 1), (0, 0)))[self.bodies]
        velocity = jnp.pad(now.velocity, ((0, 1), (0, 0)))[self.bodies]
        arm = jnp.einsum("fsxy,fsy->fsx", rotation, self.frames.origin)
        spin = velocity[..., :3]
        linear = velocity[..., 3:] + jnp.cross(spin, arm)
        axes = rotation @ self.frames.rotation
        first, second = (Frame((origin + arm)[:, k], axes[:, k]) for k in range(2))
        back = jnp.swapaxes(first.rotation, 1, 2)
        away = second.origin - first.origin
        slide = linear[:, 1] - linear[:, 0] - jnp.cross(spin[:, 0], away)
        rate = [jnp.einsum("fxy,fy->fx", back, x) for x in (slide, spin[:, 1] - spin[:, 0])]
        place = jax.vmap(relative)(first, second)
        return Between(self.bodies, first, place, jnp.concatenate(rate, axis=1))


def scattered(now: State, at: Between, wrench: Float[Array, "f 6"]) -> Float[Array, "bodies 6"]:
    """Loads on the bodies of a tree by wrenches on second frames and their reactions on the first.

    **Arguments:** `now`; `at`; `wrench` (f, 6): force and moment at the second origins, in axes of
    the first frames.

    **Returns:** (bodies, 6) moment about the origin of the body, then force, in base axes.
    """
    origins = jnp.pad(now.place.translation, ((0, 1), (0, 0)))
    rotation = at.first.rotation
    force, moment, away = (
        jnp.einsum("fxy,fy->fx", rotation, x)
        for x in (wrench[:, :3], wrench[:, 3:], at.place.origin)
    )
    total = jnp.zeros((len(origins), 6), wrench.dtype)
    for side, sign in ((0, -1.0), (1, 1.0)):
        body = at.bodies[:, side]
        arm = at.first.origin + away - origins[body]
        load = jnp.concatenate([moment + jnp.cross(arm, force), force], axis=1)
        total = total.at[body].add(sign * load)
    return total[:-1]


class Group(eqx.Module):
    """Forces of one kind, stacked.

    `seats`: the frames between which they act; `functions`: of time, for the parameters of some, by
    their index; `names` of the forces; `along`: names of the connections along which they act, None
    for the others.
    """

    seats: Seats
    force: Force
    functions: dict[int, Callable[..., Any]]
    names: tuple[str, ...] = eqx.field(static=True)
    along: tuple[str | None, ...] = eqx.field(static=True)

    def at(self, t: Array) -> Force:
        """The forces at a time."""
        if not self.functions:
            return self.force

        def parameter(force: Force) -> Array:
            return getattr(force, force.parameter)

        values = parameter(self.force)
        for k, function in self.functions.items():
            values = values.at[k].set(jnp.asarray(function(t), values.dtype))
        return eqx.tree_at(parameter, self.force, values)


class Effort(eqx.Module):
    """A torque or force along a joint's coordinate, a function of (t, value, rate) of it.

    `index` among the coordinates of the tree, which count turns; None where the joint closes a
    loop.
    """

    seats: Seats
    joint: Joint
    function: Callable[..., Any]
    name: str = eqx.field(static=True)
    index: int | None = eqx.field(static=True)


class Exerted(NamedTuple):
    """Wrenches (f, 6) on second frames in axes of the first; `along` as of `Group`; rates of the
    states of the forces."""

    at: Between
    wrench: Float[Array, "f 6"]
    along: tuple[str | None, ...]
    rates: Any = None


class Acting(eqx.Module):
    """All forces on a system but gravity and the reactions of its joints."""

    forces: tuple[Group, ...]
    efforts: tuple[Effort, ...]

    def __call__(
        self, t: Array, equations: Equations, q: Array, qd: Array, inner: tuple | None
    ) -> tuple[Float[Array, " n"], tuple | None]:
        """Generalised forces (n,) of the tree [N m or N], and rates of the states of the forces."""
        if not self.forces and not self.efforts:
            return jnp.zeros_like(q), inner
        now = state(equations.mechanism.tree, q, qd)
        found = self.exerted(t, now, q, inner)
        load = sum(scattered(now, each.at, each.wrench) for each in found)
        rates = tuple(each.rates for each in found[: len(self.forces)])
        load = jnp.einsum("bxi,bx->i", now.jacobian, load)
        return load, None if inner is None else rates

    @property
    def has_states(self) -> bool:
        """Whether any force has a state."""
        return any(type(group.force).start is not Force.start for group in self.forces)

    def start(self, now: State) -> tuple:
        """States of the forces at the first time, one entry a kind of force."""
        return tuple(
            jax.vmap(lambda f, p: f.start(p))(group.force, group.seats.between(now).place)
            for group in self.forces
        )

    def with_states(self, inner: tuple | None) -> list[tuple[Group, Any]]:
        """Kinds of forces, each with the states of its forces or None."""
        return list(zip(self.forces, inner or (None,) * len(self.forces), strict=True))

    def exerted(self, t: Array, now: State, q: Array, inner: tuple | None) -> list[Exerted]:
        """Wrenches, one entry a kind of force, then one an effort."""
        found = []
        for group, own in self.with_states(inner):
            at = group.seats.between(now)
            wrench, rates = jax.vmap(lambda f, *moving: f.rates(*moving))(
                group.at(t), at.place, at.rate, own
            )
            found.append(Exerted(at, wrench, group.along, rates))
        for effort in self.efforts:
            at = effort.seats.between(now)
            place = jax.tree.map(lambda x: x[0], at.place)
            along = gradient(effort.joint, place)
            index = effort.index
            value = effort.joint.coordinate(place) if index is None else q[index]
            rate = along @ at.rate[0]
            size = jnp.asarray(effort.function(t, value, rate), along.dtype)
            found.append(Exerted(at, (size * along)[None], (effort.name,)))
        return found

    def energy(self, now: State, inner: tuple | None) -> Float[Array, ""]:
        """Energy that the forces have stored [J]."""
        total = jnp.zeros((), now.velocity.dtype)
        for group, own in self.with_states(inner):
            place = group.seats.between(now).place
            stored = jax.vmap(lambda f, p, s: f.stored(p, s))(group.force, place, own)
            total = total + jnp.sum(stored)
        return total

    def named(self, inner: tuple | None) -> dict[str, Any]:
        """States (k, ...) over time by the name of the force, of those that have one."""
        return {
            name: jax.tree.map(lambda x, i=i: x[:, i], own)
            for group, own in self.with_states(inner)
            if own is not None
            for i, name in enumerate(group.names)
        }


def acting(
    compiled: Compiled,
    efforts: dict[str, Callable[..., Any]],
    functions: dict[str, Callable[..., Any]],
) -> Acting:
    """`Acting` of a compiled system.

    **Arguments:** `compiled`; `efforts`: functions by the name of the connection; `functions`: of
    time for the parameters of forces, by the name of the force.
    """
    system = compiled.system
    groups: dict[Any, list[tuple[Applied, Force, tuple]]] = {}
    for applied in system.forces:
        force, ends = system.acting(applied)
        kind = jax.tree.structure(force), tuple(map(jnp.shape, jax.tree.leaves(force)))
        groups.setdefault(kind, []).append((applied, force, ends))
    forces = []
    for alike in groups.values():
        applied, stacked, ends = zip(*alike, strict=True)
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *stacked)
        names = tuple(each.name for each in applied)
        forces.append(
            Group(
                seats_of(compiled, list(ends)),
                stacked,
                {k: functions[name] for k, name in enumerate(names) if name in functions},
                names,
                tuple(each.first if stacked.acts == "along" else None for each in applied),
            )
        )
    along = []
    for name, function in efforts.items():
        connection = system.connections[system.connection(name)]
        joint = connection.joint
        if not isinstance(joint, Joint) or joint.measure is None:
            raise ValueError(
                f"The effort {name!r} acts on a {type(joint).__name__.lower()}, which has no "
                "single coordinate."
            )
        zero = jnp.zeros(())
        check_function(f"effort {name!r}", function, (), t=zero, value=zero, rate=zero)
        seats = seats_of(compiled, [(connection.first, connection.second)])
        along.append(Effort(seats, joint, function, name, compiled.coordinates.get(name)))
    return Acting(tuple(forces), tuple(along))


def seats_of(compiled: Compiled, ends: list[tuple[str | None, str]]) -> Seats:
    """Seats of pairs of attachments; None is the frame of the ground."""
    flat = [one(compiled, end) for pair in ends for end in pair]
    bodies = np.array([body for body, _ in flat], dtype=int).reshape(-1, 2)
    frames = jax.tree.map(
        lambda *x: jnp.stack(x).reshape(-1, 2, *x[0].shape), *(f for _, f in flat)
    )
    return Seats(bodies, frames)


def one(compiled: Compiled, end: str | None) -> tuple[int, Frame]:
    """Body of the tree, as in `Between`, and frame on it of an attachment; None is the base."""
    base = len(compiled.mechanism.tree.parents)
    if end is None:
        return base, Frame(jnp.zeros(3), jnp.eye(3))
    part, points = compiled.system.attachment(end)
    own = frame(points)
    if part < 0:
        return base, own
    seat = jax.tree.map(lambda x: x[part], compiled.seats)
    return int(compiled.bodies[part]), placed(own, *seat)
