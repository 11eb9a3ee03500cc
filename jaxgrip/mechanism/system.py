"""What is assembled: parts with attachments, the joints between them, and forces."""

from collections.abc import Iterable, Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip._names import closest
from jaxgrip.checks import brief, concrete, listed, numbers
from jaxgrip.joints import Gear, Joint
from jaxgrip.joints.joint import attachment_points
from jaxgrip.mechanism._forces import Applied, Force
from jaxgrip.precision import require_x64
from jaxgrip.rigid.builders import GRAVITY, mass_properties

GROUND = "ground"
# Largest distance between nodes that are merged [m].
MERGE_TOLERANCE = 1e-3


class Part(eqx.Module):
    """A rigid part, its attachments and its initial pose.

    **Arguments:**

    - `name`: without a dot.
    - `attachments`: by name, (k, 3) points in the frame of the part [m]. One point is a position;
      two are an axis from the first to the second; a third gives a direction across it.
    - `position`: (3,) of the part's frame before assembly [m].
    - `quaternion`: (4,) of the part's frame before assembly, scalar first, of any norm but zero.
    - `mass` [kg], `com` (3,), its centre of mass [m], and `inertia` about that [kg m^2], (3, 3) or
      its three principal values, in the frame of the part; needed for a motion.

    **Raises:** `ValueError` naming part and attachment when points are ill-shaped, not finite,
    coincide or lie on a line, the quaternion is zero, or no body can have the mass or inertia.

    Source: Webhofer 2005, sections 3.1.3 and 4.2, pp. 18-22, 29-32.
    """

    name: str = eqx.field(static=True)
    attachments: dict[str, Float[Array, "k 3"]]
    position: Float[Array, "3"]
    quaternion: Float[Array, "4"]
    mass: Float[Array, ""]
    com: Float[Array, "3"]
    inertia: Float[Array, "3 3"]

    def __init__(
        self,
        name: str,
        attachments: Mapping[str, object],
        position=(0.0, 0.0, 0.0),
        quaternion=(1.0, 0.0, 0.0, 0.0),
        mass=0.0,
        com=(0.0, 0.0, 0.0),
        inertia=(0.0, 0.0, 0.0),
    ):
        self.name = name
        self.attachments = {
            key: attachment_points(f"Attachment {key!r} of part {name!r}", points)
            for key, points in attachments.items()
        }
        self.position = numbers(f"The position of part {name!r}", position, (3,))
        q = numbers(f"The quaternion of part {name!r}", quaternion, (4,))
        if concrete(q) and not np.any(np.asarray(q)):
            raise ValueError(f"Part {name!r}: quaternion is zero; no rotation is (1, 0, 0, 0).")
        self.quaternion = q / jnp.linalg.norm(q)
        self.mass, self.com, self.inertia = mass_properties(f"part {name!r}", mass, com, inertia)


class Connection(eqx.Module):
    """A joint between two attachments, each `"part.attachment"`, or `"ground.attachment"`.

    A `Clamp` has the name of a part as `first` and no `second`. A `Gear` has the names of two other
    connections.

    **Arguments:** `name`; `joint`; `first`; `second`.

    **Raises:** `ValueError` when `first` or `second` is not a string.
    """

    name: str = eqx.field(static=True)
    joint: Joint | Gear
    first: str = eqx.field(static=True)
    second: str | None = eqx.field(static=True, default=None)

    def __init__(self, name: str, joint: Joint | Gear, first, second=None):
        for end in (first, second):
            if not isinstance(end, str | None):
                raise ValueError(
                    f"Connection {name!r} joins {end!r}; name an attachment, such as "
                    "'part.attachment' or 'ground.attachment'."
                )
        self.name, self.joint, self.first, self.second = name, joint, first, second


class System(eqx.Module):
    """Parts, the connections between them, forces and gravity.

    **Arguments:**

    - `parts`, `connections`.
    - `ground`: attachments of the ground by name, (k, 3) points [m].
    - `forces`: `Applied`, such as springs and loads, which act in a motion.
    - `gravity`: (3,) acceleration of free fall [m/s^2].

    **Raises:** `ValueError` that names the part, connection or force when names are duplicate or
    unknown, an attachment has too few points for the joint, or a connection does not fit its kind.

    Source: Webhofer 2005, sections 4.1 and 5.4, pp. 27-29, 76-79.
    """

    parts: tuple[Part, ...]
    connections: tuple[Connection, ...]
    ground: dict[str, Float[Array, "k 3"]]
    forces: tuple[Applied, ...]
    gravity: Float[Array, "3"]

    def __init__(
        self,
        parts: Iterable,
        connections: Iterable,
        ground: Mapping[str, object] | None = None,
        forces: Iterable = (),
        gravity=GRAVITY,
    ):
        require_x64("An assembly")
        self.parts = tuple(parts)
        self.connections = tuple(connections)
        self.forces = tuple(forces)
        self.gravity = numbers("The gravity of a system", gravity, (3,))
        for kind, given in (
            (Part, self.parts),
            (Connection, self.connections),
            (Applied, self.forces),
        ):
            for each in given:
                if not isinstance(each, kind):
                    raise ValueError(f"A system is made of {brief(each)}; give a {kind.__name__}.")
        self.ground = {
            key: attachment_points(f"Attachment {key!r} of the ground", points)
            for key, points in (ground or {}).items()
        }
        if not self.parts:
            raise ValueError("A system needs at least one part.")
        _check_names("part", [part.name for part in self.parts])
        _check_names("connection", [connection.name for connection in self.connections])
        _check_names("force", [force.name for force in self.forces])
        for part in self.parts:
            if part.name == GROUND or "." in part.name:
                raise ValueError(
                    f"A part is called {part.name!r}; its name must have no dot and not be "
                    f"{GROUND!r}."
                )
        for connection in self.connections:
            self._check(connection)
        for applied in self.forces:
            self.acting(applied)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parts."""
        return tuple(part.name for part in self.parts)

    @property
    def parameters(self) -> dict[str, Float[Array, ""]]:
        """Values of the drives [m or rad], by the name of the connection."""
        return {
            connection.name: getattr(connection.joint, connection.joint.parameter)
            for connection in self.connections
            if connection.joint.parameter is not None
        }

    @property
    def controlled(self) -> tuple[str, ...]:
        """Names of the forces that have a parameter, such as the target of a servo."""
        return tuple(each.name for each in self.forces if each.force.parameter is not None)

    def with_parameters(self, parameters: Mapping[str, object]) -> "System":
        """The system with other values of its drives.

        **Arguments:** `parameters`: values [m or rad] by the name of the connection.

        **Raises:** `ValueError` for a name that is no drive, or a value that is not a finite
        number.
        """
        connections = list(self.connections)
        for name, value in parameters.items():
            k = self.drive(name)
            value = numbers(f"The value of drive {name!r}", value, ())
            try:
                joint = connections[k].joint.with_parameter(value)
            except ValueError as error:
                raise ValueError(f"Drive {name!r}: {error}") from None
            connections[k] = eqx.tree_at(lambda c: c.joint, connections[k], joint)
        return eqx.tree_at(lambda system: system.connections, self, tuple(connections))

    def part(self, name: str) -> int:
        """Index of the part called `name`; raises `ValueError` when there is none."""
        if name not in self.names:
            raise ValueError(f"There is no part {name!r}{_nearest(name, self.names)}.")
        return self.names.index(name)

    def connection(self, name: str) -> int:
        """Index of the connection called `name`; raises `ValueError` when there is none."""
        names = [connection.name for connection in self.connections]
        if name not in names:
            raise ValueError(f"There is no connection {name!r}{_nearest(name, names)}.")
        return names.index(name)

    def joint(self, name: str) -> Joint | Gear:
        """Joint of the connection called `name`; raises `ValueError` when there is none."""
        return self.connections[self.connection(name)].joint

    def drive(self, name: str) -> int:
        """Index of the drive called `name`; raises `ValueError` when there is none."""
        if name not in self.parameters:
            raise ValueError(f"There is no drive {name!r}{_nearest(name, self.parameters)}.")
        return self.connection(name)

    def attachment(self, place: str) -> tuple[int, Float[Array, "k 3"]]:
        """Index of the part and points (k, 3) of `"part.attachment"`; the ground is -1.

        **Raises:** `ValueError` when there is none.
        """
        owner, dot, name = place.partition(".")
        if not dot:
            raise ValueError(f"{place!r} is no attachment; give one as 'part.attachment'.")
        k = -1 if owner == GROUND else self.part(owner)
        known = self.ground if k < 0 else self.parts[k].attachments
        if name not in known:
            of = "The ground" if k < 0 else f"Part {owner!r}"
            raise ValueError(f"{of} has no attachment {name!r}{_nearest(name, known)}.")
        return k, known[name]

    def _check(self, connection: Connection) -> None:
        who = f"Connection {connection.name!r}"
        joint = connection.joint
        if not isinstance(joint, Joint | Gear):
            raise ValueError(f"{who}: joint is {brief(joint)}; it must be one such as Hinge().")
        try:
            if isinstance(joint, Joint) and joint.to_ground:
                if connection.second is not None:
                    raise ValueError("a clamp has one part and no second.")
                self.part(connection.first)
                return
            if connection.second is None:
                raise ValueError(f"a {type(joint).__name__.lower()} needs two attachments.")
            if isinstance(joint, Gear):
                self._check_gear(connection)
                return
            ends = [self.attachment(end) for end in (connection.first, connection.second)]
        except ValueError as error:
            text = str(error)
            raise ValueError(f"{who}: {text[0].lower()}{text[1:]}") from None
        if ends[0][0] == ends[1][0]:
            raise ValueError(f"{who} joins {connection.first!r} to the same part.")
        for end, (_, points) in zip((connection.first, connection.second), ends, strict=True):
            if len(points) < joint.points:
                raise ValueError(
                    f"{who} is a {type(joint).__name__.lower()}, which needs {joint.points} points "
                    f"of either attachment; {end!r} has {len(points)}."
                )

    def acting(self, applied: Applied) -> tuple[Force, tuple[str | None, str]]:
        """A force with the attachments it acts between; None is the frame of the ground.

        **Raises:** `ValueError` for a force that does not fit where it acts.
        """
        who, force = f"Force {applied.name!r}", applied.force
        try:
            if force.acts != "between" and applied.second is not None:
                kind = type(force).__name__.lower()
                raise ValueError(f"a {kind} acts on one attachment or joint and has no second.")
            if force.acts == "along":
                connection = self.connections[self.connection(applied.first)]
                joint = connection.joint
                if not isinstance(joint, Joint) or joint.measure is None:
                    raise ValueError(
                        f"{applied.first!r} is a {type(joint).__name__.lower()}, which has no "
                        "single coordinate to act along."
                    )
                return force.along(joint), (connection.first, connection.second)
            if force.acts == "on":
                self.attachment(applied.first)
                return force, (None, applied.first)
            if applied.second is None:
                raise ValueError(f"a {type(force).__name__.lower()} needs two attachments.")
            parts = [self.attachment(end)[0] for end in (applied.first, applied.second)]
            if parts[0] == parts[1]:
                raise ValueError(f"both attachments are on {applied.first.split('.')[0]!r}.")
        except ValueError as error:
            text = str(error)
            raise ValueError(f"{who}: {text[0].lower()}{text[1:]}") from None
        return force, (applied.first, applied.second)

    def _check_gear(self, connection: Connection) -> None:
        if connection.first == connection.second:
            raise ValueError("a gear couples two joints, not one with itself.")
        for name in (connection.first, connection.second):
            joint = self.joint(name)
            if not isinstance(joint, Joint) or joint.measure is None:
                raise ValueError(
                    f"{name!r} is a {type(joint).__name__.lower()}, which has no single coordinate "
                    "to couple."
                )


def _check_names(what: str, names: list[str]) -> None:
    double = [name for k, name in enumerate(names) if name in names[:k]]
    if double:
        raise ValueError(f"Two {what}s are called {double[0]!r}; names must differ.")


def _nearest(name: str, known: Iterable[str]) -> str:
    known = list(known)
    near = closest(name, known)
    hint = f" (did you mean {near!r}?)" if near else ""
    return f"{hint}; there are {listed(map(repr, known))}"
