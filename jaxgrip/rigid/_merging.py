"""Smaller trees: fixed joints merged, and joints locked."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgrip.checks import concrete, numbers
from jaxgrip.rigid._coordinates import given, neutral
from jaxgrip.rigid._recursion import axes_of
from jaxgrip.rigid._tree import Frames, Passive, Tree
from jaxgrip.spatial import rotation_z


def merge_fixed(tree: Tree) -> Tree:
    """The tree without fixed joints: their bodies are part of those that carry them.

    **Arguments:** `tree`; its numbers may be traced.

    **Returns:** `Tree` of the bodies that move, with the masses, centres of mass and inertias of
    what they carry. A merged body is a frame of its name. What is fixed to the base has no
    mass in it, so that the potential energy changes by a constant. A tree that cannot move is
    returned as it is.

    Source: parallel axes (Schanzer 2007, eq. 2.3).
    """
    if tree.n in (0, len(tree.parents)):
        return tree
    leaves = jax.tree.leaves(tree)
    # Trees of files are merged by NumPy: JAX would compile for every count.
    if all(map(concrete, leaves)):
        return _merged(tree, jax.tree.map(np.asarray, tree), np)
    return _merged(tree, tree, jnp)


def _merged(whole: Tree, tree: Tree, xp: Any) -> Tree:
    """The merged tree of `whole`, whose numbers are in `tree` as arrays of NumPy or JAX, `xp`."""
    count, moving = len(tree.parents), tree.moving
    fixed = [i for i in range(count) if i not in set(moving)]
    carrier, depth = list(range(count)), [0] * count
    for i in fixed:
        parent = tree.parents[i]
        carrier[i] = -1 if parent < 0 else carrier[parent]
        depth[i] = 1 + (0 if parent < 0 else depth[parent])
    # Placements of all bodies in their carriers; the last row is that of the base in itself.
    unit = xp.broadcast_to(xp.eye(3, dtype=tree.mass.dtype), (count + 1, 3, 3))
    rotation, translation = unit, xp.zeros((count + 1, 3), tree.mass.dtype)
    for level in range(1, max(depth) + 1):
        rows = np.array([i for i in fixed if depth[i] == level])
        on = np.array([tree.parents[i] for i in rows])
        place = _placed(
            xp, rotation[on], translation[on], tree.rotation[rows], tree.translation[rows]
        )
        rotation, translation = (
            _put(x, rows, value) for x, value in zip((rotation, translation), place, strict=True)
        )
    number = {body: k for k, body in enumerate(moving)} | {-1: -1}
    keep = np.array(moving)
    # Rows: bodies that remain; columns: all bodies.
    belongs = np.equal.outer(moving, carrier)
    mass, com, inertia = _total(tree, xp, belongs, rotation[:-1], translation[:-1])
    changed = belongs.sum(axis=1) > 1
    on = np.array([tree.parents[i] for i in moving])
    place = _placed(xp, rotation[on], translation[on], tree.rotation[keep], tree.translation[keep])
    names = tree.joint_names and tuple(tree.joint_names[i] for i in moving)
    arrays = {
        "rotation": place[0],
        "translation": place[1],
        "mass": xp.where(changed, mass, tree.mass[keep]),
        "com": xp.where(changed[:, None], com, tree.com[keep]),
        "inertia": xp.where(changed[:, None, None], inertia, tree.inertia[keep]),
    }
    if tree.pitch is not None:
        arrays["pitch"] = tree.pitch[keep]
    return dataclasses.replace(
        whole,
        parents=tuple(number[-1 if i < 0 else carrier[i]] for i in on.tolist()),
        joint_types=tuple(tree.joint_types[i] for i in moving),
        names=tuple(tree.names[i] for i in moving),
        joint_names=names,
        balls=tuple(number[i] for i in tree.balls),
        **{key: jnp.asarray(x) for key, x in arrays.items()},
        frames=_moved_frames(tree, xp, fixed, carrier, number, rotation, translation),
    )


def _placed(xp: Any, rotation: Any, translation: Any, by: Any, at: Any) -> tuple[Any, Any]:
    """Placements `by`, `at` (k, ...) within frames that are themselves placed."""
    return rotation @ by, translation + xp.einsum("kij,kj->ki", rotation, at)


def _put(x: Any, rows: np.ndarray, values: Any) -> Any:
    if not isinstance(x, np.ndarray):
        return x.at[rows].set(values)
    x = x.copy()
    x[rows] = values
    return x


def _total(tree: Tree, xp: Any, belongs: np.ndarray, rotation: Any, translation: Any) -> tuple:
    """Mass, centre of mass and inertia of sums of bodies."""
    share = xp.asarray(belongs, tree.mass.dtype)
    centre = translation + xp.einsum("kij,kj->ki", rotation, tree.com)
    mass = share @ tree.mass
    first = share @ (tree.mass[:, None] * centre)
    com = first / xp.where(mass > 0, mass, xp.ones_like(mass))[:, None]
    away = centre - share.T @ com
    unit = xp.eye(3, dtype=tree.mass.dtype)[None]
    square = xp.sum(away * away, axis=1)[:, None, None] * unit
    turned = rotation @ tree.inertia @ xp.swapaxes(rotation, 1, 2)
    about = turned + tree.mass[:, None, None] * (square - away[:, :, None] * away[:, None, :])
    return mass, com, xp.einsum("mk,kij->mij", share, about)


def _moved_frames(
    tree: Tree,
    xp: Any,
    fixed: list[int],
    carrier: list[int],
    number: dict[int, int],
    rotation: Any,
    translation: Any,
) -> Frames:
    old = tree.frames
    known = () if old is None else old.names
    new = [i for i in fixed if tree.names[i] not in known]
    own = xp.asarray(np.array(new, dtype=int))
    parts = [(rotation[own], translation[own])]
    if old is not None:
        on = np.array(old.bodies)
        parts.insert(0, _placed(xp, rotation[on], translation[on], old.rotation, old.translation))
    bodies = (*(() if old is None else old.bodies), *new)
    return Frames(
        *(jnp.asarray(xp.concatenate(x)) for x in zip(*parts, strict=True)),
        names=(*known, *(tree.names[i] for i in new)),
        bodies=tuple(-1 if i < 0 else number[carrier[i]] for i in bodies),
    )


def lock(tree: Tree, values: Mapping[str, Any]) -> Tree:
    """The smaller tree with joints held at values, which may be traced.

    **Arguments:** `tree`; `values`: by the name of a joint its coordinate [rad or m], or its
    coordinates, such as the quaternion of a ball.

    **Returns:** `Tree` without these joints, and without fixed ones; see `merge_fixed`. Their
    springs, losses and armature are dropped.

    **Raises:** `ValueError` for an unknown joint, for another shape, and for numbers not finite.
    """
    q = neutral(tree)
    held: set[int] = set()
    taken: set[int] = set()
    for name, value in values.items():
        at = np.array(tree.coordinates_of(name))
        shapes = ((len(at),),) if len(at) > 1 else ((), (1,))
        value = numbers(f"The value of joint {name!r}", value, *shapes).astype(q.dtype)
        q = q.at[at].set(value.reshape(at.shape))
        taken.update(at.tolist())
        held.update(tree.moving[k] for k in tree.rates_of(name))
    if not held:
        return merge_fixed(tree)
    core, x = given(tree, q=q)
    rows = np.array(sorted(held))
    turns, slides = (jnp.asarray(y[rows], q.dtype) for y in axes_of(tree))
    x = x[np.array([tree.moving.index(i) for i in rows])]
    axis = core.rotation[rows, :, 2]
    rotation = core.rotation[rows] @ jax.vmap(rotation_z)(turns * x)
    translation = core.translation[rows] + axis * (slides * x)[:, None]
    kinds = tuple("fixed" if i in held else kind for i, kind in enumerate(tree.joint_types))
    free = np.array([k for k, i in enumerate(tree.moving) if i not in held], dtype=int)
    names = tree.joint_names or tree.names
    kept = [k for k in range(tree.nq) if k not in taken]
    # A fixed body has a joint of its own.
    alone = tuple(
        body if i in held else name
        for i, (body, name) in enumerate(zip(tree.names, names, strict=True))
    )
    return merge_fixed(
        dataclasses.replace(
            tree,
            rotation=tree.rotation.at[rows].set(rotation),
            translation=tree.translation.at[rows].set(translation),
            joint_types=kinds,
            joint_names=() if alone == tree.names else alone,
            balls=tuple(i for i in tree.balls if i not in held),
            pitch=tree.pitch if "screw" in kinds else None,
            passive=_without(tree.passive, free, np.array(kept, dtype=int)),
        )
    )


def _without(passive: Passive | None, free: np.ndarray, kept: np.ndarray) -> Passive | None:
    if passive is None or not len(free):
        return None
    return Passive(
        **{
            key: None if x is None else x[kept if key == "reference" else free]
            for key, x in vars(passive).items()
        }
    )
