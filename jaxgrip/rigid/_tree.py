"""The model: a tree of rigid bodies."""

import equinox as eqx
from jaxtyping import Array, Float

from jaxgrip.checks import brief, check_shape, near

JOINT_TYPES = ("revolute", "prismatic", "screw", "fixed")


class Passive(eqx.Module):
    """Numbers of the joints that act without a drive; each None where no joint has one.

    The torque of a drive is M qdd + h + stiffness (q - reference) + damping qd + friction
    tanh(qd / friction_speed), where M includes the armature. The spring of a ball acts along the
    rotation vector from the reference to the orientation.

    **Fields:** `armature` [kg m^2 or kg], `stiffness` [N m/rad or N/m], `damping` [N m s/rad or
    N s/m] and `friction` [N m or N], (n,); `reference` (nq,), coordinates at which the springs are
    at rest; `friction_speed` (n,), rate at which dry friction has 0.76 of its level [per s].
    """

    armature: Float[Array, " n"] | None = None
    stiffness: Float[Array, " n"] | None = None
    reference: Float[Array, " nq"] | None = None
    damping: Float[Array, " n"] | None = None
    friction: Float[Array, " n"] | None = None
    friction_speed: Float[Array, " n"] | None = None


class Frames(eqx.Module):
    """Named frames fixed to bodies.

    **Fields:** `names`; `bodies`, index of the body that carries each, -1 for the base; `rotation`
    (frames, 3, 3) and `translation` (frames, 3), placement in the frame of this body [m].
    """

    rotation: Float[Array, "frames 3 3"]
    translation: Float[Array, "frames 3"]
    names: tuple[str, ...] = eqx.field(static=True)
    bodies: tuple[int, ...] = eqx.field(static=True)


class Tree(eqx.Module):
    """Rigid bodies joined to a fixed base.

    Topology is static, every number is a traced leaf. The frame of body i has its origin at
    joint i and its z axis along the joint axis (Craig); make a tree with `from_dh` or
    `from_placements`, which check their input.

    Every body has a joint with at most one degree of freedom. A joint with several, such as a ball,
    is made of as many bodies in a row, all but the last without mass, which share the name of the
    joint. The orientation of a ball is a unit quaternion, scalar first, and its rates are the
    angular velocity in the axes of its last body. Coordinates q are (nq,), rates, accelerations and
    torques (n,); nq = n + number of balls.

    **Fields:**

    - `parents`: index of the parent of each body, -1 for the base; smaller than the body's own.
    - `joint_types`: `"revolute"`, `"prismatic"`, `"screw"` or `"fixed"` for each body.
    - `names`: one name for each body.
    - `rotation`: (bodies, 3, 3), axes of the joint frame in the parent frame at coordinate zero.
    - `translation`: (bodies, 3), origin of the joint frame in the parent frame [m].
    - `mass`: (bodies,) [kg].
    - `com`: (bodies, 3), centre of mass in the body frame [m].
    - `inertia`: (bodies, 3, 3) about the centre of mass, body axes [kg m^2].
    - `gravity`: (3,), acceleration of free fall in the base frame [m/s^2].
    - `joint_names`: name of each body's joint; those of the bodies when empty.
    - `balls`: index of the first of the three bodies of each ball, whose axes are x, y and z of the
      last.
    - `scanned`: whether recursions are scanned however few bodies there are: small programs, which
      compile sooner.
    - `pitch`: (bodies,), advance of each screw [m/rad], zero for other joints; None without screws.
    - `passive`: `Passive`, springs, damping, friction and armature of the joints, if there are any.
    - `frames`: `Frames`, named frames fixed to bodies, if there are any.

    **Raises:** `ValueError` when parents, joint types and names do not describe a tree, or
    an array has another shape.

    Source: Schanzer 2007, sections 1.1 and 2.5, pp. 5-7, 16-18.
    """

    rotation: Float[Array, "bodies 3 3"]
    translation: Float[Array, "bodies 3"]
    mass: Float[Array, " bodies"]
    com: Float[Array, "bodies 3"]
    inertia: Float[Array, "bodies 3 3"]
    gravity: Float[Array, "3"]
    parents: tuple[int, ...] = eqx.field(static=True)
    joint_types: tuple[str, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    joint_names: tuple[str, ...] = eqx.field(static=True, default=())
    balls: tuple[int, ...] = eqx.field(static=True, default=())
    scanned: bool = eqx.field(static=True, default=False)
    pitch: Float[Array, " bodies"] | None = None
    passive: Passive | None = None
    frames: Frames | None = None

    def __check_init__(self):
        check_topology(self.parents, self.joint_types, self.names)
        nb = len(self.names)
        shapes = {
            "rotation": (nb, 3, 3),
            "translation": (nb, 3),
            "mass": (nb,),
            "com": (nb, 3),
            "inertia": (nb, 3, 3),
            "gravity": (3,),
        }
        for key, shape in shapes.items():
            check_shape(f"{key} of the tree", getattr(self, key), shape)
        if self.joint_names and len(self.joint_names) != nb:
            raise ValueError(
                f"joint_names of the tree has {len(self.joint_names)} names; there are {nb} bodies."
            )
        if ("screw" in self.joint_types) != (self.pitch is not None):
            raise ValueError("A tree has a pitch if, and only if, one of its joints is a screw.")
        if self.pitch is not None:
            check_shape("pitch of the tree", self.pitch, (nb,))
        for k in self.balls:
            if self.joint_types[k : k + 3] != ("revolute",) * 3 or any(
                self.parents[j] != j - 1 for j in (k + 1, k + 2)
            ):
                raise ValueError(
                    f"The ball that begins with body {self.names[k]!r} must be three revolute "
                    "joints in a row."
                )
        if self.passive is not None:
            for key, value in vars(self.passive).items():
                if value is not None:
                    size = self.nq if key == "reference" else self.n
                    check_shape(f"{key} of the tree", value, (size,))

    @property
    def n(self) -> int:
        """Number of degrees of freedom."""
        return len(self.moving)

    @property
    def nq(self) -> int:
        """Number of coordinates, one more than the degrees of freedom for every ball."""
        return self.n + len(self.balls)

    @property
    def moving(self) -> tuple[int, ...]:
        """Bodies whose joint has a degree of freedom, in the order of these."""
        return tuple(i for i, kind in enumerate(self.joint_types) if kind != "fixed")

    @property
    def rubs(self) -> bool:
        """Whether joints have dry friction, be it zero."""
        return self.passive is not None and self.passive.friction is not None

    @property
    def joints(self) -> tuple[str, ...]:
        """Names of the joints that move, in the order of their coordinates."""
        return tuple(dict.fromkeys(map(self.joint_of, range(self.n))))

    def joint_of(self, k: int) -> str:
        """Name of the joint of a degree of freedom."""
        return (self.joint_names or self.names)[self.moving[k]]

    def rates_of(self, joint: str) -> tuple[int, ...]:
        """Indices in (n,) of a joint's rates; raises `ValueError` when no joint has this name."""
        found = tuple(k for k in range(self.n) if self.joint_of(k) == joint)
        if not found:
            near_by = near(joint, self.joints)
            raise ValueError(f"There is no joint {brief(joint)} that moves; {near_by}")
        return found

    def coordinates_of(self, joint: str) -> tuple[int, ...]:
        """Indices in (nq,) of a joint's coordinates; `ValueError` when no joint has this name."""
        found: list[int] = []
        for k in self.rates_of(joint):
            first = k + sum(self.moving.index(ball) + 2 < k for ball in self.balls)
            is_last = any(self.moving[k] == ball + 2 for ball in self.balls)
            found += [first, first + 1] if is_last else [first]
        return tuple(found)

    def body(self, name: str) -> int:
        """Index of the body called `name`; raises `ValueError` when there is none."""
        if name not in self.names:
            raise ValueError(f"No body is called {name!r}; {near(name, self.names)}")
        return self.names.index(name)


def check_topology(
    parents: tuple[int, ...],
    joint_types: tuple[str, ...],
    names: tuple[str, ...],
    allowed: tuple[str, ...] = JOINT_TYPES,
) -> None:
    """Raise `ValueError` unless the three tuples describe a tree in topological order."""
    if not len(parents) == len(joint_types) == len(names):
        raise ValueError(
            f"A tree needs one parent, joint type and name per body, but got {len(parents)}, "
            f"{len(joint_types)} and {len(names)} of them."
        )
    if not names:
        raise ValueError("A tree needs at least one body.")
    seen: set[str] = set()
    for i, (parent, kind, name) in enumerate(zip(parents, joint_types, names, strict=True)):
        if name in seen:
            raise ValueError(f"Two bodies are called {name!r}; names must differ.")
        seen.add(name)
        if kind not in JOINT_TYPES:
            raise ValueError(
                f"Body {name!r} has the unknown joint type {kind!r}; allowed are "
                f"{', '.join(allowed)}."
            )
        if not -1 <= parent < i:
            raise ValueError(
                f"Body {name!r} (number {i}) has parent {parent}, but a parent must come before "
                "its child; -1 is the base."
            )
