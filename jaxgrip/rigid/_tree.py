"""The model: a tree of rigid bodies."""

import equinox as eqx
from jaxtyping import Array, Float

from jaxgrip.checks import check_shape, listed

JOINT_TYPES = ("revolute", "prismatic", "fixed")


class Tree(eqx.Module):
    """Rigid bodies joined to a fixed base by revolute, prismatic and fixed joints.

    Topology is static, every number is a traced leaf. The frame of body i has its origin at
    joint i and its z axis along the joint axis (Craig); make a tree with `from_dh` or
    `from_placements`, which check their input.

    **Fields:**

    - `parents`: index of the parent of each body, -1 for the base; smaller than the body's own.
    - `joint_types`: `"revolute"`, `"prismatic"` or `"fixed"` for each body.
    - `names`: one name for each body.
    - `rotation`: (bodies, 3, 3), axes of the joint frame in the parent frame at coordinate zero.
    - `translation`: (bodies, 3), origin of the joint frame in the parent frame [m].
    - `mass`: (bodies,) [kg].
    - `com`: (bodies, 3), centre of mass in the body frame [m].
    - `inertia`: (bodies, 3, 3) about the centre of mass, body axes [kg m^2].
    - `gravity`: (3,), acceleration of free fall in the base frame [m/s^2].

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

    @property
    def n(self) -> int:
        """Number of joint coordinates."""
        return len(self.moving)

    @property
    def moving(self) -> tuple[int, ...]:
        """Bodies whose joint has a coordinate, in the order of the coordinates."""
        return tuple(i for i, kind in enumerate(self.joint_types) if kind != "fixed")

    def body(self, name: str) -> int:
        """Index of the body called `name`; raises `ValueError` when there is none."""
        if name not in self.names:
            raise ValueError(f"No body is called {name!r}; there are {listed(self.names)}.")
        return self.names.index(name)


def check_topology(
    parents: tuple[int, ...], joint_types: tuple[str, ...], names: tuple[str, ...]
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
                f"{', '.join(JOINT_TYPES)}."
            )
        if not -1 <= parent < i:
            raise ValueError(
                f"Body {name!r} (number {i}) has parent {parent}, but a parent must come before "
                "its child; -1 is the base."
            )
