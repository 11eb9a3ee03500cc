"""Trees from Denavit-Hartenberg rows and from general joint placements."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from jaxgrip.checks import concrete, numbers, positive, rotation_matrix
from jaxgrip.rigid._tree import Tree, check_topology
from jaxgrip.spatial import aligning_z, rotation_x, rotation_z

GRAVITY = (0.0, 0.0, -9.81)
_TRIANGLE_SLACK = 1e-9


class DHRow(NamedTuple):
    """One body placed by a row of the Craig (modified) DH table.

    Rot(x, alpha) Trans(x, a) Rot(z, theta) Trans(z, d), lengths [m] and angles [rad]; `theta` and
    `d` are the values at joint coordinate zero. `parent` is the name of an earlier row or None for
    the base. `mass` [kg]; `com` (3,) [m] and `inertia` [kg m^2], (3, 3) about the centre of mass
    or its three principal values, are in the body frame. `joint` is "revolute", "prismatic" or
    "fixed". Mass and inertia may both be zero, as for the cross of a universal joint, if the body
    is fixed or carries one with a mass.

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


class Placement(NamedTuple):
    """One body placed by a general joint.

    `translation` (3,) [m] and `rotation` (3, 3) place the body frame in the frame of the parent
    at joint coordinate zero; `axis` (3,) is the joint axis in the body frame, of any length.
    `parent` is the name of an earlier body or None for the base. `mass` [kg]; `com` (3,) [m] and
    `inertia` [kg m^2], (3, 3) about the centre of mass or its three principal values, are in the
    body frame. `joint` is "revolute", "prismatic" or "fixed". Mass and inertia may
    both be zero, as for the cross of a universal joint, if the body is fixed or carries one with a
    mass.
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


def from_dh(rows: Sequence[DHRow], gravity: ArrayLike | Sequence[float] = GRAVITY) -> Tree:
    """Tree from the rows of a Craig DH table.

    **Arguments:**

    - `rows`: one `DHRow` a body, parents before children.
    - `gravity`: (3,) in the base frame [m/s^2].

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
    return _tree(rows, _stack(rotation), _stack(translation), None, gravity)


def from_placements(
    bodies: Sequence[Placement], gravity: ArrayLike | Sequence[float] = GRAVITY
) -> Tree:
    """Tree from general joint placements, re-expressed so that joint axes are z axes.

    A body whose axis is not z gets a rotated frame: R Q instead of R with Q e_z = axis, Q the
    shortest rotation; its centre of mass, its inertia and the placements of its children follow.

    **Arguments:**

    - `bodies`: one `Placement` a body, parents before children.
    - `gravity`: (3,) in the base frame [m/s^2].

    **Returns:** the `Tree`; its numbers may be traced.

    **Raises:** `ValueError` naming the body when a number is missing, ill-shaped, not finite or
    impossible, and when the bodies do not make a tree.
    """
    index = _indices(bodies)
    axes, rotation, translation, above = [], [], [], []
    for i, body in enumerate(bodies):
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
        return _tree(bodies, rotation, translation, None, gravity)
    aligned = jax.vmap(aligning_z)(_stack(axes))
    parents = jnp.concatenate([jnp.eye(3, dtype=aligned.dtype)[None], aligned])[np.array(above) + 1]
    rotation = jnp.einsum("bji,bjk,bkl->bil", parents, _stack(rotation), aligned)
    translation = jnp.einsum("bji,bj->bi", parents, _stack(translation))
    return _tree(bodies, rotation, translation, aligned, gravity)


def _tree(
    bodies: Sequence[DHRow] | Sequence[Placement],
    rotation: Any,
    translation: Any,
    aligned: jax.Array | None,
    gravity: ArrayLike | Sequence[float],
) -> Tree:
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
    check_topology(parents, joint_types, names)
    mass = [_mass(f"body {body.name!r}", body.mass) for body in bodies]
    check_carried(names, parents, joint_types, mass)
    found = [mass_properties(f"body {b.name!r}", b.mass, b.com, b.inertia) for b in bodies]
    com, inertia = (_stack([each[k] for each in found]) for k in (1, 2))
    if aligned is not None:
        com = jnp.einsum("bji,bj->bi", aligned, com)
        inertia = jnp.einsum("bji,bjk,bkl->bil", aligned, inertia, aligned)
    return Tree(
        parents=parents,
        joint_types=joint_types,
        names=names,
        rotation=rotation,
        translation=translation,
        mass=_stack(mass),
        com=com,
        inertia=inertia,
        gravity=numbers("gravity of the tree", gravity, (3,)),
    )


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
    who: str, mass: Any, com: Any, inertia: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Mass (), centre of mass (3,) and inertia (3, 3), checked.

    **Arguments:** `who`: the body, for messages; `mass` [kg]; `com` (3,) [m]; `inertia` about the
    centre of mass [kg m^2], (3, 3) or its three principal values. Mass and inertia may both be
    zero.

    **Raises:** `ValueError` for another shape, and for numbers that no body can have.
    """
    mass = _mass(who, mass)
    return mass, numbers(f"com of {who}", com, (3,)), _inertia(who, mass, inertia)


def _mass(who: str, mass: Any) -> jax.Array:
    name = f"mass of {who}"
    mass = numbers(name, mass, ())
    return mass if _is_zero(mass) else positive(name, mass, (), unit="kg")


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


def _inertia(who: str, mass: jax.Array, inertia: Any) -> jax.Array:
    inertia = numbers(f"inertia of {who}", inertia, (3,), (3, 3))
    if inertia.ndim == 1:
        inertia = jnp.diag(inertia)
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
