"""Systems from trees of bodies with loops, and from files of any kind."""

import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.checks import check_shape, concrete, listed
from jaxgrip.joints import Fixed, Frame, Guide, Hinge
from jaxgrip.mechanism._actuated import Friction
from jaxgrip.mechanism._files import read
from jaxgrip.mechanism._forces import Applied, JointForce
from jaxgrip.mechanism.loops import Mechanism, Robot, read_mjcf, read_urdf
from jaxgrip.mechanism.system import GROUND, Connection, Part, System
from jaxgrip.rigid import Passive, Tree, forward_kinematics
from jaxgrip.spatial import quaternions

_JOINTS = {"revolute": Hinge, "prismatic": Guide, "fixed": Fixed}


def system_of(
    robot: Robot | Mechanism | Tree,
    q: Float[Array, " n"] | None = None,
    forces: Any = (),
) -> System:
    """System of parts and joints from a tree of bodies, with or without loops.

    Parts are the bodies, in their frames; a joint of the tree is named after the robot's joint, or
    the body that it carries. Mimic joints and couplings become gears; springs, damping and friction
    become forces along the joints, springs of angles within half a turn. A system has no armature:
    a warning names the joints that lose theirs.

    **Arguments:** `robot`; `q`: (n,) coordinates of the parts' initial poses [rad or m], zero when
    None; `forces`: `Applied`, as of `System`.

    **Returns:** `System`, with the masses and the gravity of the tree.

    **Raises:** `ValueError` for another shape of `q`, and for a tree with quaternions or screws.
    """
    mechanism = robot.mechanism if isinstance(robot, Robot) else robot
    if isinstance(mechanism, Tree):
        mechanism = Mechanism(mechanism)
    tree = mechanism.tree
    if tree.pitch is not None:
        raise ValueError("A system takes no screws, which the tree has.")
    q = jnp.zeros(tree.n) if q is None else q
    check_shape("q", q, (tree.n,))
    names = {tree.names[i]: tree.names[i] for i in range(len(tree.names))}
    if isinstance(robot, Robot):
        names |= dict(zip(mechanism.coordinates, robot.file.joints, strict=True))
    points: dict[str | None, dict[str, Array]] = {name: {} for name in (None, *tree.names)}
    connections = []

    def attach(body: str | None, name: str, frame: Frame) -> str:
        points[body][name] = frame.origin[None] + jnp.concatenate(
            [jnp.zeros((1, 3)), frame.rotation.T[2:], frame.rotation.T[:1]]
        )
        return f"{GROUND if body is None else _name(body)}.{name}"

    own = Frame(jnp.zeros(3), jnp.eye(3))
    for i, (body, parent, kind) in enumerate(
        zip(tree.names, tree.parents, tree.joint_types, strict=True)
    ):
        above = None if parent < 0 else tree.names[parent]
        ends = (
            attach(above, f"joint {_name(body)}", Frame(tree.translation[i], tree.rotation[i])),
            attach(body, "joint", own),
        )
        connections.append(Connection(names[body], _JOINTS[kind](), *ends))
    for loop in mechanism.loops:
        ends = (
            attach(loop.first, f"loop {loop.name}", loop.first_frame),
            attach(loop.second, f"loop {loop.name}", loop.second_frame),
        )
        connections.append(Connection(loop.name, loop.joint, *ends))
    for coupling in mechanism.couplings:
        given = zip((coupling.leader, coupling.follower), coupling.measured, strict=True)
        ends = [name if is_loop else names[name] for name, is_loop in given]
        connections.append(Connection(f"gear {coupling.name}", coupling.gear, *ends))
    along = [names[tree.names[i]] for i in tree.moving]
    place = forward_kinematics(tree, q)
    orientations = jax.vmap(quaternions.from_matrix)(place.rotation)
    parts = [
        Part(
            _name(body),
            points[body],
            place.translation[i],
            orientations[i],
            tree.mass[i],
            tree.com[i],
            tree.inertia[i],
        )
        for i, body in enumerate(tree.names)
    ]
    forces = (*forces, *_passive(tree.passive, along))
    return System(parts, connections, points[None], forces, tree.gravity)


def _passive(passive: Passive | None, along: list[str]) -> list[Applied]:
    """Springs, damping and friction of joints as forces along connections."""
    if passive is None:
        return []

    def has(*values: Array | None) -> bool:
        return any(x is not None and not (concrete(x) and float(x) == 0.0) for x in values)

    found, heavy = [], []
    for k, name in enumerate(along):
        at = jax.tree.map(lambda x, k=k: x[k], passive)
        if has(at.stiffness, at.damping):
            given = {"stiffness": at.stiffness, "rest": at.reference, "damping": at.damping}
            spring = JointForce(**{key: x for key, x in given.items() if x is not None})
            found.append(Applied(f"spring {name}", spring, name))
        if has(at.friction):
            found.append(
                Applied(f"friction {name}", Friction(at.friction, at.friction_speed), name)
            )
        if has(at.armature):
            heavy.append(name)
    if heavy:
        warnings.warn(
            f"Armature of joints is not used, since a system has none: {listed(heavy)}.",
            stacklevel=3,
        )
    return found


def _name(body: str) -> str:
    """Name of the part of a body; a part's name has no dot."""
    return body.replace(".", "_")


def read_system(path: str | Path) -> System:
    """Read a system from a TOML or JSON file, a URDF with its loops, or an MJCF file.

    **Arguments:** `path`, whose ending says which: `.toml`, `.json`, `.urdf` or `.xml`.

    **Raises:** `ValueError` as `read`, `loops.read_urdf` and `read_mjcf`.
    """
    ending = Path(path).suffix
    if ending == ".urdf":
        return system_of(read_urdf(path))
    if ending == ".xml":
        return system_of(read_mjcf(path))
    return read(path)
