"""Trees from Denavit-Hartenberg rows and from general joint placements."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from jaxgrip.checks import concrete, non_negative, numbers, positive, rotation_matrix
from jaxgrip.rigid._coordinates import neutral
from jaxgrip.rigid._passive import FRICTION_SPEED, KEYS, with_passive
from jaxgrip.rigid._tree import JOINT_TYPES, Frames, Tree, check_topology
from jaxgrip.spatial import aligning_z, rotation_x, rotation_z

GRAVITY = (0.0, 0.0, -9.81)
_TRIANGLE_SLACK = 1e-9
# Joints with several axes: for each the kind, the axis, and a letter.
_BALL = (("revolute", (1.0, 0, 0), "rx"), ("revolute", (0, 1.0, 0), "ry"))
_BALL = (*_BALL, ("revolute", (0, 0, 1.0), "rz"))
_SLIDES = (("prismatic", (1.0, 0, 0), "x"), ("prismatic", (0, 1.0, 0), "y"))
_STEPS = {
    "spherical": _BALL,
    "free": (*_SLIDES, ("prismatic", (0, 0, 1.0), "z"), *_BALL),
    "planar": (*_SLIDES, _BALL[2]),
}


class DHRow(NamedTuple):
    """One body placed by a row of the Craig (modified) DH table.

    Rot(x, alpha) Trans(x, a) Rot(z, theta) Trans(z, d), lengths [m] and angles [rad]; `theta` and
    `d` are the values at joint coordinate zero. `parent` is the name of an earlier row or None for
    the base. `mass` [kg]; `com` (3,) [m] and `inertia` [kg m^2], (3, 3) about the centre of mass
    or its three principal values, are in the body frame. `joint` is "revolute", "prismatic",
    "screw" or "fixed". Mass and inertia may both be zero, as for the cross of a universal joint, if
    the body is fixed or carries one with a mass. The rest as for `Placement`.

    Source: Schanzer 2007, eq. 2.2, pp. 16-18.
    """

    name: str
    parent: str | None
    a: Any
    alpha: Any
    mass: Any
    com: Any
    inertia: Any
    d: Any = 0.0
    theta: Any = 0.0
    joint: str = "revolute"
    joint_name: str | None = None
    pitch: Any = None
    armature: Any = None
    stiffness: Any = None
    reference: Any = None
    damping: Any = None
    friction: Any = None
    friction_speed: Any = None


class Placement(NamedTuple):
    """One body placed by a general joint.

    `translation` (3,) [m] and `rotation` (3, 3) place the body frame in the frame of the parent
    at joint coordinate zero; `axis` (3,) is the joint axis in the body frame, of any length.
    `parent` is the name of an earlier body or None for the base. `mass` [kg]; `com` (3,) [m] and
    `inertia` [kg m^2], (3, 3) about the centre of mass or its three principal values, are in the
    body frame. Mass and inertia may both be zero, as for the cross of a universal joint, if the
    body is fixed or carries one with a mass.

    `joint` is "revolute", "prismatic" or "fixed", or

    - "screw", which advances along its axis by `pitch` [m/rad],
    - "planar": translations along x and y of the body frame at zero, then a rotation about its z;
    - "spherical": a unit quaternion, scalar first, rotates the body frame; its rates are the
      angular velocity in body axes;
    - "free": translations along the parent's x, y and z, then as a spherical joint.

    `joint_name` is that of the body when None. `armature` [kg m^2 or kg], `stiffness`, `damping`,
    `friction` and `friction_speed` as of `Passive`: one number, or one for each degree of freedom
    of the joint; `reference`: coordinates at which the spring is at rest, zero or no rotation when
    None.
    """

    name: str
    parent: str | None
    translation: Any
    mass: Any
    com: Any
    inertia: Any
    axis: Any = (0.0, 0.0, 1.0)
    rotation: Any = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    joint: str = "revolute"
    joint_name: str | None = None
    pitch: Any = None
    armature: Any = None
    stiffness: Any = None
    reference: Any = None
    damping: Any = None
    friction: Any = None
    friction_speed: Any = None


class FramePlacement(NamedTuple):
    """One frame fixed to a body, such as a tool's.

    `rotation` (3, 3) and `translation` (3,) [m] place it in the frame of `body`, as that was given;
    `body` is the name of a body or None for the base.
    """

    name: str
    body: str | None
    translation: Any = (0.0, 0.0, 0.0)
    rotation: Any = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def from_dh(
    rows: Sequence[DHRow],
    gravity: ArrayLike | Sequence[float] = GRAVITY,
    *,
    frames: Sequence[FramePlacement] = (),
) -> Tree:
    """Tree from the rows of a Craig DH table.

    **Arguments:**

    - `rows`: one `DHRow` a body, parents before children.
    - `gravity`: (3,) in the base frame [m/s^2].
    - `frames`: further frames on the bodies.

    **Returns:** the `Tree`; its numbers may be traced.

    **Raises:** `ValueError` naming the body when a number is missing, ill-shaped, not finite or
    impossible, and when the bodies do not make a tree.

    Source: Schanzer 2007, eq. 2.2, pp. 16-18.
    """
    rotation, translation = [], []
    for row in rows:
        a, alpha, d, theta = (_numbers(row, key, ()) for key in ("a", "alpha", "d", "theta"))
        tilt = rotation_x(alpha)
        rotation.append(tilt @ rotation_z(theta))
        translation.append(tilt @ jnp.stack([a, jnp.zeros_like(d), d]))
    return _tree(rows, rows, _stack(rotation), _stack(translation), None, gravity, frames, True)


def from_placements(
    bodies: Sequence[Placement],
    gravity: ArrayLike | Sequence[float] = GRAVITY,
    *,
    frames: Sequence[FramePlacement] = (),
    strict: bool = True,
) -> Tree:
    """Tree from general joint placements, re-expressed so that joint axes are z axes.

    A body whose axis is not z gets a rotated frame: R Q instead of R with Q e_z = axis, Q the
    shortest rotation; its centre of mass, its inertia, its frames and the placements of its
    children follow.

    **Arguments:**

    - `bodies`: one `Placement` a body, parents before children.
    - `gravity`: (3,) in the base frame [m/s^2].
    - `frames`: further frames on the bodies; one with the name of a body keeps the axes with which
      the body was given.
    - `strict`: whether masses and inertias that no body can have are refused; otherwise judge them
      after `merge_fixed`.

    **Returns:** the `Tree`; its numbers may be traced. A joint of several axes is made of as many
    bodies; the last has the name and the frame of the `Placement`.

    **Raises:** `ValueError` naming the body when a number is missing, ill-shaped, not finite or
    impossible, and when the bodies do not make a tree.
    """
    steps = [step for body in bodies for step in _steps(body)]
    index = _indices(steps)
    axes, rotation, translation, above = [], [], [], []
    for i, body in enumerate(steps):
        axis = _numbers(body, "axis", (3,))
        if concrete(axis) and not np.linalg.norm(axis) > 0:
            raise ValueError(f"Body {body.name!r} has a joint axis of length zero.")
        axes.append(axis)
        rotation.append(rotation_matrix(f"rotation of body {body.name!r}", body.rotation))
        translation.append(_numbers(body, "translation", (3,)))
        # `_tree` reports a parent that comes later.
        parent = index.get(body.parent, -1)
        above.append(parent if parent < i else -1)
    if not bodies:
        return _tree(bodies, steps, rotation, translation, None, gravity, frames, strict)
    aligned = jax.vmap(aligning_z)(_stack(axes))
    parents = jnp.concatenate([jnp.eye(3, dtype=aligned.dtype)[None], aligned])[np.array(above) + 1]
    rotation = jnp.einsum("bji,bjk,bkl->bil", parents, _stack(rotation), aligned)
    translation = jnp.einsum("bji,bj->bi", parents, _stack(translation))
    return _tree(bodies, steps, rotation, translation, aligned, gravity, frames, strict)


def _steps(body: Placement) -> list[Placement]:
    """Bodies with one axis each that make the joint of a body."""
    steps = _STEPS.get(body.joint)
    if steps is None:
        return [body]
    if np.shape(body.axis) != (3,) or not concrete(body.axis) or tuple(body.axis) != (0, 0, 1):
        raise ValueError(
            f"Body {body.name!r} has a {body.joint} joint, which takes no axis; rotate its frame."
        )
    name = body.name if body.joint_name is None else body.joint_name
    none = {"mass": 0.0, "com": (0.0,) * 3, "inertia": (0.0,) * 3}
    straight = Placement._field_defaults["rotation"]
    found: list[Placement] = []
    for k, (kind, axis, letter) in enumerate(steps):
        is_last = k == len(steps) - 1
        # The translations of a free joint are along the axes of the parent.
        turned = k == (3 if body.joint == "free" else 0)
        found.append(
            body._replace(
                name=body.name if is_last else f"{body.name}: {letter}",
                parent=found[-1].name if found else body.parent,
                translation=(0.0,) * 3 if found else body.translation,
                rotation=body.rotation if turned else straight,
                axis=axis,
                joint=kind,
                joint_name=name,
                **({} if is_last else none),
            )
        )
    return found


def _tree(
    given: Sequence[DHRow] | Sequence[Placement],
    bodies: Sequence[DHRow] | Sequence[Placement],
    rotation: Any,
    translation: Any,
    aligned: jax.Array | None,
    gravity: ArrayLike | Sequence[float],
    frames: Sequence[FramePlacement],
    strict: bool,
) -> Tree:
    """The tree of `bodies` with one axis each, which are made of those `given`."""
    names = tuple(body.name for body in bodies)
    index = _indices(bodies)
    for body in bodies:
        if body.parent is not None and body.parent not in index:
            raise ValueError(
                f"Body {body.name!r} has the parent {body.parent!r}, which is no body; "
                "None is the base."
            )
    parents = tuple(-1 if b.parent is None else index[b.parent] for b in bodies)
    joint_types = tuple(body.joint for body in bodies)
    allowed = JOINT_TYPES if aligned is None else (*JOINT_TYPES, *_STEPS)
    check_topology(parents, joint_types, names, allowed)
    joints = [body.name if body.joint_name is None else body.joint_name for body in given]
    for name, count in Counter(joints).items():
        if count > 1:
            raise ValueError(f"Two joints are called {name!r}; names must differ.")
    mass = [_mass(f"body {body.name!r}", body.mass, strict) for body in bodies]
    if strict:
        carriers = {body.name: i for i, body in enumerate(given)}
        check_carried(
            tuple(body.name for body in given),
            tuple(carriers.get(body.parent, -1) for body in given),
            tuple(body.joint for body in given),
            [mass[index[body.name]] for body in given],
        )
    found = [mass_properties(f"body {b.name!r}", b.mass, b.com, b.inertia, strict) for b in bodies]
    com, inertia = (_stack([each[k] for each in found]) for k in (1, 2))
    if aligned is not None:
        com = jnp.einsum("bji,bj->bi", aligned, com)
        inertia = jnp.einsum("bji,bjk,bkl->bil", aligned, inertia, aligned)
    joint_names = tuple(b.name if b.joint_name is None else b.joint_name for b in bodies)
    tree = Tree(
        parents=parents,
        joint_types=joint_types,
        names=names,
        rotation=rotation,
        translation=translation,
        mass=_stack(mass),
        com=com,
        inertia=inertia,
        gravity=numbers("gravity of the tree", gravity, (3,)),
        joint_names=() if joint_names == names else joint_names,
        balls=tuple(index[body.name] - 2 for body in given if body.joint in ("spherical", "free")),
        pitch=_pitch(bodies),
        frames=_frames(frames, index, aligned),
    )
    return _with_passive(tree, given)


def _pitch(bodies: Sequence[DHRow] | Sequence[Placement]) -> jax.Array | None:
    for body in bodies:
        if (body.joint == "screw") != (body.pitch is not None):
            what = "needs a pitch" if body.joint == "screw" else "takes no pitch"
            raise ValueError(f"The joint of body {body.name!r} is {body.joint} and {what}.")
    if not any(body.joint == "screw" for body in bodies):
        return None
    none = jnp.zeros(())
    return _stack([none if b.pitch is None else _numbers(b, "pitch", ()) for b in bodies])


def _frames(
    frames: Sequence[FramePlacement], index: dict[str, int], aligned: jax.Array | None
) -> Frames | None:
    if not frames:
        return None
    names = tuple(frame.name for frame in frames)
    for frame in frames:
        if names.count(frame.name) > 1:
            raise ValueError(f"Two frames are called {frame.name!r}; names must differ.")
        if frame.body is not None and frame.body not in index:
            raise ValueError(
                f"Frame {frame.name!r} is on {frame.body!r}, which is no body; None is the base."
            )
        if frame.name in index and frame.name != frame.body:
            raise ValueError(f"Frame {frame.name!r} has the name of a body that it is not on.")
    on = np.array([-1 if frame.body is None else index[frame.body] for frame in frames])
    rotation = _stack(
        [rotation_matrix(f"rotation of frame {f.name!r}", f.rotation) for f in frames]
    )
    translation = _stack(
        [numbers(f"translation of frame {f.name!r}", f.translation, (3,)) for f in frames]
    )
    if aligned is not None:
        axes = jnp.concatenate([aligned, jnp.eye(3, dtype=aligned.dtype)[None]])[on]
        rotation = jnp.einsum("fji,fjk->fik", axes, rotation)
        translation = jnp.einsum("fji,fj->fi", axes, translation)
    return Frames(rotation, translation, names, tuple(map(int, on)))


def _with_passive(tree: Tree, given: Sequence[DHRow] | Sequence[Placement]) -> Tree:
    """The tree with the springs, damping, friction and armature of the bodies' joints."""
    moving = [body for body in given if body.joint != "fixed"]
    sizes = [len(_STEPS.get(body.joint, (None,))) for body in moving]

    def joined(key: str) -> Any:
        if all(getattr(body, key) is None for body in moving):
            return None
        default = FRICTION_SPEED if key == "friction_speed" else 0.0
        parts = []
        for body, size in zip(moving, sizes, strict=True):
            value = getattr(body, key)
            value = _numbers_of_joint(body, key, default if value is None else value, size)
            parts += [value] * size if value.ndim == 0 else [value[k] for k in range(size)]
        return _stack(parts)

    values = {key: joined(key) for key in KEYS if key != "reference"}
    reference = None
    if any(body.reference is not None for body in moving):
        reference = neutral(tree)
        for body in moving:
            if body.reference is not None:
                name = body.name if body.joint_name is None else body.joint_name
                at = np.array(tree.coordinates_of(name))
                value = _numbers_of_joint(body, "reference", body.reference, len(at))
                reference = reference.at[at].set(jnp.broadcast_to(value, at.shape))
    if all(value is None for value in values.values()):
        return tree
    return with_passive(tree, reference=reference, **values)


def _numbers_of_joint(body: DHRow | Placement, key: str, value: Any, size: int) -> jax.Array:
    shapes = ((), (size,)) if key != "reference" or size == 1 else ((size,),)
    check = {"reference": numbers, "friction_speed": positive}.get(key, non_negative)
    return check(f"{key} of the joint of body {body.name!r}", value, *shapes)


def _indices(bodies: Sequence[DHRow] | Sequence[Placement]) -> dict[str, int]:
    return {body.name: i for i, body in reversed(list(enumerate(bodies)))}


def _stack(arrays: list[jax.Array]) -> jax.Array:
    """Stacked arrays, by NumPy where possible: JAX compiles for every count."""
    if all(map(concrete, arrays)):
        # `check_topology` reports that there is none.
        return jnp.asarray(np.stack(arrays) if arrays else ())
    return jnp.stack(arrays)


def _numbers(body: DHRow | Placement, key: str, *allowed: tuple[int, ...]) -> jax.Array:
    return numbers(f"{key} of body {body.name!r}", getattr(body, key), *allowed)


def mass_properties(
    who: str, mass: Any, com: Any, inertia: Any, strict: bool = True
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Mass (), centre of mass (3,) and inertia (3, 3), checked.

    **Arguments:** `who`: the body, for messages; `mass` [kg]; `com` (3,) [m]; `inertia` about the
    centre of mass [kg m^2], (3, 3) or its three principal values; `strict`: whether numbers that
    no body can have are refused. Mass and inertia may both be zero.

    **Raises:** `ValueError` for another shape, and for numbers that no body can have.
    """
    mass = _mass(who, mass, strict)
    return mass, numbers(f"com of {who}", com, (3,)), _inertia(who, mass, inertia, strict)


def _mass(who: str, mass: Any, strict: bool) -> jax.Array:
    name = f"mass of {who}"
    mass = numbers(name, mass, ())
    return mass if _is_zero(mass) or not strict else positive(name, mass, (), unit="kg")


def _is_zero(x: jax.Array) -> bool:
    return concrete(x) and not np.any(np.asarray(x))


def check_carried(
    names: tuple[str, ...],
    parents: tuple[int, ...],
    kinds: tuple[str, ...],
    mass: list,
    what: str = "body",
) -> None:
    """Raise `ValueError` naming a body that moves but neither has nor carries a mass."""
    carries = [not _is_zero(m) for m in mass]
    for i in reversed(range(len(names))):
        if parents[i] >= 0:
            carries[parents[i]] |= carries[i]
    for name, kind, enough in zip(names, kinds, carries, strict=True):
        if kind != "fixed" and not enough:
            raise ValueError(
                f"mass of {what} {name!r} is 0 kg, and so is that of all it carries; a {what} "
                "that moves needs a mass."
            )


def _inertia(who: str, mass: jax.Array, inertia: Any, strict: bool) -> jax.Array:
    inertia = numbers(f"inertia of {who}", inertia, (3,), (3, 3))
    if inertia.ndim == 1:
        inertia = jnp.diag(inertia)
    if not strict:
        return inertia
    if _is_zero(mass):
        if not _is_zero(inertia):
            raise ValueError(f"mass of {who} is 0 kg, but its inertia is not zero.")
        return inertia
    if concrete(inertia):
        i, begin = np.asarray(inertia), f"{who[0].upper()}{who[1:]} has an inertia that"
        if not np.allclose(i, i.T, rtol=0, atol=1e-9 * np.abs(i).max()):
            raise ValueError(f"{begin} is not symmetric.")
        low, middle, high = np.linalg.eigvalsh(i)
        if not low > 0:
            raise ValueError(
                f"{begin} is not positive definite: its smallest "
                f"principal value is {low:.3g} kg m^2."
            )
        if high > (low + middle) * (1 + _TRIANGLE_SLACK):
            raise ValueError(
                f"{begin} no body can have: its largest principal "
                f"value {high:.3g} exceeds the sum of the others {low + middle:.3g} kg m^2."
            )
    return inertia
