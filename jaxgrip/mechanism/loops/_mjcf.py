"""Mechanisms from MJCF files, read by MuJoCo."""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxgrip import rigid
from jaxgrip._files import LARGEST_DATA, check_readable
from jaxgrip.joints import Ball, Fixed, Frame, Gear
from jaxgrip.mechanism.loops._urdf import Robot
from jaxgrip.mechanism.loops.model import Coupling, Loop, Mechanism
from jaxgrip.rigid import Import, Placement, from_placements
from jaxgrip.rigid.urdf import without_losses
from jaxgrip.spatial import aligning_z

# Contents of a model that are not used, by the name of their count in MuJoCo.
UNUSED = {
    "ngeom": "shapes for looks and contact",
    "nu": "actuators",
    "ntendon": "tendons",
    "nsensor": "sensors",
    "nflex": "flexible bodies",
    "nplugin": "plugins",
    "nhfield": "terrains",
    "nskin": "skins",
    "ncam": "cameras",
    "nlight": "lights",
    "nkey": "keyframes",
    "npair": "contact pairs",
    "nexclude": "excluded contacts",
}
NO_LIMIT = float("inf")


def read_mjcf(path: str | Path) -> Robot:
    """Mechanism of an MJCF file: hinges and slides as its tree, equalities as its loops.

    `connect` becomes a ball joint, `weld` a fixed one, `joint` a coupling. They are exact here and
    soft springs in MuJoCo. A body with several joints becomes as many, without mass but the last;
    coordinates are zero in the position of the file.

    **Arguments:** `path`.

    **Returns:** `Robot`, whose `file.ignored` names what is not used.

    **Raises:** `ImportError` without the package `mujoco`; `ValueError` that names the file, for
    free and ball joints, equalities that are none of these or not linear, and what MuJoCo or
    `rigid.from_placements` refuses.
    """
    try:
        import mujoco
    except ImportError:
        raise ImportError(
            "Reading MJCF needs the package mujoco: pip install 'jaxgrip[mjcf]'."
        ) from None
    try:
        check_readable(path, LARGEST_DATA)
        model = mujoco.MjModel.from_xml_path(str(path))
        return _robot(mujoco, model)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}.") from None


def _robot(mujoco: Any, model: Any) -> Robot:
    ignored = [
        f"The file's {words} ({getattr(model, name)}) are not used."
        for name, words in UNUSED.items()
        if getattr(model, name)
    ]
    bodies: list[Placement] = []
    # The last body in the tree of every body of MuJoCo, and its origin there.
    last: list[str | None] = [None]
    seat = [np.zeros(3)]
    carried: dict[int, str] = {}
    for i in range(1, model.nbody):
        name = model.body(i).name or f"body {i}"
        parent = int(model.body_parentid[i])
        rotation = _matrix(mujoco, model.body_quat[i])
        first = int(model.body_jntadr[i])
        joints = list(range(first, first + int(model.body_jntnum[i])))
        above, at, frame = last[parent], model.body_pos[i] - seat[parent], rotation
        origin = np.zeros(3)
        for j in joints or [-1]:
            kind = "fixed" if j < 0 else _kind(mujoco, model, j, name)
            end = j < 0 or j == joints[-1]
            shift = np.zeros(3) if j < 0 else model.jnt_pos[j] - origin
            own = name if end else f"{name}.{_joint_name(model, j)}"
            origin = origin + shift
            bodies.append(
                Placement(
                    own,
                    above,
                    at + frame @ shift,
                    *(_mass(mujoco, model, i, origin) if end else _NOTHING),
                    axis=(0.0, 0.0, 1.0) if j < 0 else model.jnt_axis[j],
                    rotation=frame,
                    joint=kind,
                )
            )
            if j >= 0:
                carried[j] = own
            above, at, frame = own, np.zeros(3), np.eye(3)
        last.append(above)
        seat.append(origin)
    if not bodies:
        raise ValueError("the world has no body.")
    off = int(model.opt.disableflags)
    weightless = off & int(mujoco.mjtDisableBit.mjDSBL_GRAVITY)
    tree = from_placements(bodies, np.zeros(3) if weightless else model.opt.gravity)
    for value, what in (
        (model.body_gravcomp, "Compensation of gravity is"),
        (model.body_mocapid[1:] >= 0, "Motions prescribed by motion capture (mocap) are"),
        ((model.opt.density, model.opt.viscosity), "Forces of a fluid are"),
    ):
        if np.any(value):
            ignored.append(f"{what} not used.")
    order = list(carried)
    dofs = model.jnt_dofadr[order]
    for values, what in (
        (model.jnt_stiffness[order], "Springs of joints are"),
        (model.dof_armature[dofs], "Inertia of motors (armature) is"),
        (model.qpos0[model.jnt_qposadr[order]], "Reference positions of joints are"),
    ):
        some = [_joint_name(model, j) for j, x in zip(order, values, strict=True) if np.any(x)]
        if some:
            ignored.append(f"{what} not used: {', '.join(some)}.")
    names = [_joint_name(model, j) for j in order]
    ignored += without_losses(names, model.dof_damping[dofs], model.dof_frictionloss[dofs])
    limited = np.asarray(model.jnt_limited[order], bool)
    bounded = np.asarray(model.jnt_actfrclimited[order], bool)
    force = np.abs(model.jnt_actfrcrange[order]).max(axis=1, initial=0.0)
    reference = model.qpos0[model.jnt_qposadr[order]]
    columns = [
        np.where(limited, model.jnt_range[order, 0] - reference, -NO_LIMIT),
        np.where(limited, model.jnt_range[order, 1] - reference, NO_LIMIT),
        np.full(len(order), NO_LIMIT),
        np.where(bounded, force, NO_LIMIT),
        model.dof_damping[dofs],
        model.dof_frictionloss[dofs],
    ]
    seats = dict(zip(last[1:], seat[1:], strict=True))
    file = Import(
        tree,
        *map(jnp.asarray, columns),
        (),
        axes=jnp.stack([aligning_z(jnp.asarray(b.axis, tree.mass.dtype)) for b in bodies]),
        origin=jnp.asarray(np.stack([seats.get(b.name, np.zeros(3)) for b in bodies])),
        joints=tuple(names),
        base="world",
        ignored=(),
    )
    loops, couplings = _equalities(mujoco, model, file, last, carried, ignored)
    file = dataclasses.replace(file, ignored=tuple(ignored))
    return Robot(Mechanism(tree, loops, couplings), file)


_NOTHING = (0.0, np.zeros(3), np.zeros((3, 3)))


def _equalities(
    mujoco: Any,
    model: Any,
    file: rigid.Import,
    last: list[str | None],
    carried: dict[int, str],
    ignored: list[str],
) -> tuple[list[Loop], list[Coupling]]:
    loops, couplings = [], []
    kinds, off = mujoco.mjtEq, int(model.opt.disableflags)
    for k in range(model.neq):
        name = model.eq(k).name or f"equality {k}"
        data, kind = model.eq_data[k], kinds(int(model.eq_type[k]))
        one, two = int(model.eq_obj1id[k]), int(model.eq_obj2id[k])
        if not model.eq_active0[k] or off & int(mujoco.mjtDisableBit.mjDSBL_EQUALITY):
            ignored.append(f"The equality {name!r} is not active and not used.")
        elif kind == kinds.mjEQ_JOINT:
            if two < 0 or np.any(data[2:5]):
                raise ValueError(
                    f"the equality {name!r} of joint {_joint_name(model, one)!r} is not linear in "
                    "another joint."
                )
            couplings.append(Coupling(name, Gear(data[1], data[0]), carried[two], carried[one]))
        elif kind in (kinds.mjEQ_CONNECT, kinds.mjEQ_WELD):
            weld = kind == kinds.mjEQ_WELD
            if mujoco.mjtObj(int(model.eq_objtype[k])) == mujoco.mjtObj.mjOBJ_SITE:
                poses = [(model.site_pos[s], model.site_quat[s]) for s in (one, two)]
                one, two = (int(model.site_bodyid[s]) for s in (one, two))
            elif weld:
                poses = [(data[3:6], data[6:10]), (data[:3], _STRAIGHT)]
            else:
                poses = [(data[:3], _STRAIGHT), (data[3:6], _STRAIGHT)]
            frames = [
                _frame(mujoco, file, last[body], *pose)
                for body, pose in zip((one, two), poses, strict=True)
            ]
            joint = Fixed() if weld else Ball()
            loops.append(Loop(name, joint, last[one], last[two], *frames))
        else:
            raise ValueError(f"the equality {name!r} is of a kind that is not supported.")
    return loops, couplings


_STRAIGHT = np.array([1.0, 0.0, 0.0, 0.0])


def _frame(mujoco: Any, file: Import, body: str | None, place: Any, quaternion: Any) -> Frame:
    """Frame on a body of MuJoCo, relative to its body in the tree."""
    rotation = jnp.asarray(_matrix(mujoco, quaternion))
    if body is None:
        return Frame(jnp.asarray(place), rotation)
    axes = file.axes[file.tree.body(body)]
    return Frame(file.in_body(body, np.asarray(place)[None])[0], axes.T @ rotation)


def _kind(mujoco: Any, model: Any, j: int, body: str) -> str:
    kinds = {mujoco.mjtJoint.mjJNT_HINGE: "revolute", mujoco.mjtJoint.mjJNT_SLIDE: "prismatic"}
    kind = mujoco.mjtJoint(int(model.jnt_type[j]))
    if kind not in kinds:
        word = "free" if kind == mujoco.mjtJoint.mjJNT_FREE else "ball"
        raise ValueError(
            f"joint {_joint_name(model, j)!r} of body {body!r} is {word}; only hinges and slides "
            "are supported."
        )
    return kinds[kind]


def _mass(mujoco: Any, model: Any, i: int, origin: np.ndarray) -> tuple:
    axes = _matrix(mujoco, model.body_iquat[i])
    inertia = axes @ np.diag(model.body_inertia[i]) @ axes.T
    return float(model.body_mass[i]), model.body_ipos[i] - origin, inertia


def _joint_name(model: Any, j: int) -> str:
    return model.joint(j).name or f"joint {j}"


def _matrix(mujoco: Any, quaternion: np.ndarray) -> np.ndarray:
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.asarray(quaternion, dtype=float))
    return matrix.reshape(3, 3)
