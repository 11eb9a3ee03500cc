"""Trees from MJCF files, compiled by MuJoCo, with a list of everything that is not used."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxgrip._files import LARGEST_DATA, check_readable
from jaxgrip._names import closest
from jaxgrip.checks import listed
from jaxgrip.rigid._links import PARTS, Import, Link, Mimic, Numbers, made, uncoupled

# Contents of a model that are not used, by the name of their count in MuJoCo.
UNUSED = {
    "ngeom": "shapes for looks and contact",
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
KINDS = ("free", "spherical", "prismatic", "revolute")
STRAIGHT = np.array([1.0, 0.0, 0.0, 0.0])


class Coupled(NamedTuple):
    """The joint `follower` = offset + ratio · the joint `leader`, which is None for a constant.

    `linear`: whether that is all of the file's polynomial, of higher order if not.
    """

    name: str
    follower: str
    leader: str | None
    ratio: float
    offset: float
    linear: bool


class Closure(NamedTuple):
    """Points of two links that coincide, or frames if it is a weld.

    `links`; `places` and `rotations`: of the point or frame in either link's frame.
    """

    name: str
    is_weld: bool
    links: tuple[str, str]
    places: tuple[np.ndarray, np.ndarray]
    rotations: tuple[np.ndarray, np.ndarray]


class File(NamedTuple):
    """A `robot`, its active equalities, which the tree does not have, and its joints by kind."""

    robot: Import
    equalities: tuple[Coupled | Closure, ...]
    kinds: dict[str, str]


def read_mjcf(path: str | Path, robot: str | None = None) -> Import:
    """Tree of an MJCF file, compiled by MuJoCo, which resolves its defaults and includes.

    Coordinates are those of MuJoCo, `qpos`, and rates `qvel`, in the same order: of free joints
    the position, the quaternion, the velocity in the base's axes and the angular velocity in the
    body's. Armature, springs, damping and dry friction of joints are numbers of the tree; so are
    those of a fixed tendon of one joint. A body with several joints becomes as many, without mass
    but the last. `effort` is the least of the joint's limit of force and those of its actuators.

    **Arguments:** `path`; `robot`: the body at the root of the tree to be read, or the beginning of
    the names of its bodies; None for all trees of the file in one, also of loose objects.

    **Returns:** `Import` with the base "world". Linear equalities of two joints are its `mimics`;
    all are named in `ignored`; `mechanism.loops.read_mjcf` closes loops by them.

    **Raises:** `ImportError` without the package `mujoco`; `ValueError` that names the file, for
    an unknown `robot`, and for what MuJoCo refuses.

    Source: MJCF.
    """
    file = read(path, robot)
    said = []
    for each in file.equalities:
        if isinstance(each, Closure):
            said.append(
                f"The equality {each.name!r} of {each.links[0]!r} and {each.links[1]!r} is not "
                "used in a tree; mechanism.loops.read_mjcf closes a loop by it."
            )
        elif each.leader is None:
            said.append(
                f"The equality {each.name!r}, which holds joint {each.follower!r} at "
                f"{each.offset:g}, is not used in a tree; `lock` holds it."
            )
        elif not each.linear:
            said.append(
                f"The equality {each.name!r} of joint {each.follower!r} is not linear in "
                f"{each.leader!r} and not used."
            )
    robot = dataclasses.replace(file.robot, ignored=(*file.robot.ignored, *said))
    return uncoupled(robot, "mechanism.loops.read_mjcf")


def read(path: str | Path, robot: str | None = None) -> File:
    """The tree of an MJCF file and its equalities; as `read_mjcf`."""
    try:
        import mujoco
    except ImportError:
        raise ImportError(
            "Reading MJCF needs the package mujoco: pip install 'jaxgrip[mjcf]'."
        ) from None
    try:
        check_readable(path, LARGEST_DATA)
        model = mujoco.MjModel.from_xml_path(str(path))
        return _Reader(mujoco, model).file(robot)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}.") from None


class _Reader:
    """Reads one compiled model."""

    def __init__(self, mujoco: Any, model: Any):
        self.mujoco, self.model = mujoco, model
        self.off = int(model.opt.disableflags)
        self.bodies = [model.body(i).name or f"body {i}" for i in range(model.nbody)]
        self.joints = [model.joint(j).name or f"joint {j}" for j in range(model.njnt)]
        self.ignored = [
            f"The file's {words} ({getattr(model, name)}) are not used."
            for name, words in UNUSED.items()
            if getattr(model, name)
        ]

    def file(self, robot: str | None) -> File:
        model = self.model
        kept = self._kept(robot)
        links, limits, start = [], {}, {}
        tendons = self._tendons()
        efforts = self._efforts()
        # The last link of every body, whose frame is that of the body.
        last: list[str | None] = [None]
        for i in range(1, model.nbody):
            parent = int(model.body_parentid[i])
            above, at, frame = last[parent], np.array(model.body_pos[i]), self._axes(i)
            origin = np.zeros(3)
            first = int(model.body_jntadr[i])
            own = range(first, first + int(model.body_jntnum[i])) if kept[i] else ()
            for j in own:
                kind = KINDS[int(model.jnt_type[j])]
                if kind == "free":
                    at, frame = np.zeros(3), np.eye(3)
                shift = model.jnt_pos[j] - origin
                origin = origin + shift
                end = j == own[-1]
                name = self.bodies[i] if end else f"{self.bodies[i]}.{self.joints[j]}"
                at, frame = self._at_zero(j, kind, at + frame @ shift, frame)
                links.append(
                    Link(
                        name,
                        above,
                        at,
                        frame,
                        *(self._mass(i) if end else ()),
                        joint=self.joints[j],
                        kind=kind,
                        axis=tuple(model.jnt_axis[j]) if kind in KINDS[2:] else (0.0, 0.0, 1.0),
                        passive=self._passive(j, kind, tendons.get(j, ())),
                        origin=-origin if end else np.zeros(3),
                    )
                )
                self._limit(j, kind, limits, efforts)
                start[self.joints[j]] = model.qpos0[self._places(j)].tolist()
                above, at, frame = name, np.zeros(3), np.eye(3)
            if not len(own) and kept[i] is not None:
                name = self.bodies[i]
                links.append(Link(name, above, at, frame, *self._mass(i)))
                above = name
            last.append(above)
        self._last = last
        self._say()
        equalities = self._equalities(kept)
        mimics = [
            Mimic(jnp.asarray(each.ratio), jnp.asarray(each.offset), each.follower, each.leader)
            for each in equalities
            if isinstance(each, Coupled) and each.leader is not None and each.linear
        ]
        weightless = self._is_off("GRAVITY")
        gravity = np.zeros(3) if weightless else np.array(model.opt.gravity)
        found = made(
            links, "world", gravity, False, limits, mimics, start=start, ignored=self.ignored
        )
        return File(found, equalities, {x.joint: x.kind for x in links if x.joint})

    def _is_off(self, name: str) -> bool:
        return bool(self.off & int(getattr(self.mujoco.mjtDisableBit, f"mjDSBL_{name}")))

    def _kept(self, robot: str | None) -> list[bool | None]:
        """By body: whether its joints are read; None for a body that is left out."""
        model = self.model
        # The root of the tree that a body moves with; the world is 0.
        roots = [0] * model.nbody
        for i in range(1, model.nbody):
            above = roots[model.body_parentid[i]]
            roots[i] = above or (i if model.body_jntnum[i] else 0)
        trees = sorted(set(roots) - {0})
        names = [self.bodies[i] for i in trees]
        if robot is None:
            if len(trees) > 1:
                self.ignored.append(
                    f"The file has {len(trees)} trees in one, {listed(names)}; `robot` reads one "
                    "of them alone."
                )
            return [True] * model.nbody
        if robot in self.bodies:
            top = self.bodies.index(robot)
            chosen = {k for k in trees if top in self._above(k)}
        else:
            chosen = {roots[i] for i, name in enumerate(self.bodies) if name.startswith(robot)}
        chosen -= {0}
        if not robot or not chosen:
            like = closest(robot, names)
            hint = f"perhaps {like!r}?" if like else f"there are {listed(names)}."
            raise ValueError(f"there is no tree with the root {robot!r}; {hint}")
        left = [self.bodies[k] for k in trees if k not in chosen]
        if left:
            self.ignored.append(f"Other trees of the file are not used: {listed(left)}.")
        return [None if r and r not in chosen else True for r in roots]

    def _above(self, i: int) -> set[int]:
        """A body and all that carry it, without the world."""
        found = set()
        while i:
            found.add(i)
            i = int(self.model.body_parentid[i])
        return found

    def _places(self, j: int) -> slice:
        """Where a joint's coordinates are in `qpos`."""
        first = int(self.model.jnt_qposadr[j])
        size = {"free": 7, "spherical": 4}.get(KINDS[int(self.model.jnt_type[j])], 1)
        return slice(first, first + size)

    def _axes(self, i: int) -> np.ndarray:
        return self._matrix(self.model.body_quat[i])

    def _matrix(self, quaternion: np.ndarray) -> np.ndarray:
        matrix = np.zeros(9)
        self.mujoco.mju_quat2Mat(matrix, np.asarray(quaternion, dtype=float))
        return matrix.reshape(3, 3)

    def _mass(self, i: int) -> tuple:
        model = self.model
        axes = self._matrix(model.body_iquat[i])
        inertia = axes @ np.diag(model.body_inertia[i]) @ axes.T
        return float(model.body_mass[i]), np.array(model.body_ipos[i]), inertia

    def _at_zero(
        self, j: int, kind: str, at: np.ndarray, frame: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Place of a joint at coordinate zero; the file's position has the coordinate `ref`."""
        reference = float(self.model.qpos0[self.model.jnt_qposadr[j]])
        if kind not in KINDS[2:] or not reference:
            return at, frame
        axis = np.array(self.model.jnt_axis[j])
        if kind == "prismatic":
            return at - frame @ axis * reference, frame
        quaternion = np.zeros(4)
        self.mujoco.mju_axisAngle2Quat(quaternion, axis, -reference)
        return at, frame @ self._matrix(quaternion)

    def _passive(self, j: int, kind: str, tendons: Sequence[dict]) -> dict[str, Any]:
        model = self.model
        count = len(PARTS.get(kind, ("",)))
        first = int(model.jnt_dofadr[j])
        dofs = slice(first, first + count)
        losses = not self._is_off("CONSTRAINT") and not self._is_off("FRICTIONLOSS")
        spring = 0.0 if self._is_off("SPRING") else float(model.jnt_stiffness[j])
        found = {
            "armature": np.array(model.dof_armature[dofs]),
            "stiffness": np.full(count, spring),
            "reference": np.array(model.qpos_spring[self._places(j)]),
            "damping": np.array(model.dof_damping[dofs]) * (not self._is_off("DAMPER")),
            "friction": np.array(model.dof_frictionloss[dofs]) * losses,
        }
        for what, values in (
            ("stiffness", getattr(model, "jnt_stiffnesspoly", np.zeros((model.njnt, 1)))[j]),
            ("damping", getattr(model, "dof_dampingpoly", np.zeros((model.nv, 1)))[dofs]),
        ):
            if np.any(values):
                self.ignored.append(f"Nonlinear {what} of joint {self.joints[j]!r} is not used.")
        for tendon in tendons:
            for key in ("armature", "damping", "friction"):
                found[key] = found[key] + tendon[key]
            both = found["stiffness"] + tendon["stiffness"]
            if tendon["stiffness"]:
                rest = found["stiffness"] * found["reference"]
                found["reference"] = (rest + tendon["stiffness"] * tendon["reference"]) / both
            found["stiffness"] = both
        return {key: x if count > 1 else float(x[0]) for key, x in found.items()}

    def _tendons(self) -> dict[int, list[dict[str, float]]]:
        """By joint, what fixed tendons of that joint alone add; the others are named."""
        model, wraps = self.model, self.mujoco.mjtWrap
        found: dict[int, list[dict[str, float]]] = {}
        unused = []
        for t in range(model.ntendon):
            name = model.tendon(t).name or f"tendon {t}"
            first, count = int(model.tendon_adr[t]), int(model.tendon_num[t])
            low, high = model.tendon_lengthspring[t]
            own = [int(k) for k in model.wrap_objid[first : first + count]]
            alone = count == 1 and int(model.wrap_type[first]) == int(wraps.mjWRAP_JOINT)
            c = float(model.wrap_prm[first])
            kinds = [KINDS[int(model.jnt_type[own[0]])]] if alone else ()
            if not alone or low != high or not c or kinds[0] not in KINDS[2:]:
                unused.append(name)
                continue
            spring = 0.0 if self._is_off("SPRING") else float(model.tendon_stiffness[t])
            damper = 0.0 if self._is_off("DAMPER") else float(model.tendon_damping[t])
            losses = not self._is_off("CONSTRAINT") and not self._is_off("FRICTIONLOSS")
            found.setdefault(own[0], []).append(
                {
                    "armature": c * c * float(model.tendon_armature[t]),
                    "stiffness": c * c * spring,
                    "reference": float(low) / c,
                    "damping": c * c * damper,
                    "friction": abs(c) * float(model.tendon_frictionloss[t]) * losses,
                }
            )
            if model.tendon_limited[t]:
                self.ignored.append(f"Limits of the tendon {name!r} are not used.")
        if unused:
            self.ignored.append(
                f"Tendons are used only if fixed to one joint; not used: {listed(unused)}."
            )
        return found

    def _efforts(self) -> dict[int, float]:
        """By joint, the sum of the largest forces of its actuators, where all have one."""
        model, mujoco = self.model, self.mujoco
        found: dict[int, float] = {}
        for a in range(model.nu):
            if int(model.actuator_trntype[a]) not in (
                int(mujoco.mjtTrn.mjTRN_JOINT),
                int(mujoco.mjtTrn.mjTRN_JOINTINPARENT),
            ):
                continue
            force = np.inf
            if model.actuator_forcelimited[a]:
                force = float(np.abs(model.actuator_forcerange[a]).max())
            plain = int(model.actuator_gaintype[a]) == 0 and int(model.actuator_biastype[a]) == 0
            if plain and int(model.actuator_dyntype[a]) == 0 and model.actuator_ctrllimited[a]:
                control = np.abs(model.actuator_ctrlrange[a]).max()
                force = min(force, float(abs(model.actuator_gainprm[a, 0]) * control))
            j = int(model.actuator_trnid[a, 0])
            found[j] = found.get(j, 0.0) + abs(float(model.actuator_gear[a, 0])) * force
        if model.nu:
            self.ignored.append(
                f"The file's actuators ({model.nu}) are not used but for their limits of force."
            )
        return found

    def _limit(
        self, j: int, kind: str, limits: dict[str, Numbers], efforts: dict[int, float]
    ) -> None:
        model = self.model
        off = self._is_off("CONSTRAINT") or self._is_off("LIMIT")
        limited = bool(model.jnt_limited[j]) and not off
        if kind not in KINDS[2:]:
            if limited:
                self.ignored.append(f"The limit of the ball joint {self.joints[j]!r} is not used.")
            return
        effort = efforts.get(j, np.inf)
        if model.jnt_actfrclimited[j]:
            effort = min(effort, float(np.abs(model.jnt_actfrcrange[j]).max()))
        lower, upper = map(float, model.jnt_range[j]) if limited else (-np.inf, np.inf)
        limits[self.joints[j]] = Numbers(lower, upper, np.inf, effort)

    def _say(self) -> None:
        model = self.model
        for value, what in (
            (model.body_gravcomp, "Compensation of gravity is"),
            (model.body_mocapid[1:] >= 0, "Motions prescribed by motion capture (mocap) are"),
            ((model.opt.density, model.opt.viscosity), "Forces of a fluid are"),
        ):
            if np.any(value):
                self.ignored.append(f"{what} not used.")

    def _equalities(self, kept: list[bool | None]) -> tuple[Coupled | Closure, ...]:
        model, kinds = self.model, self.mujoco.mjtEq
        off = self._is_off("EQUALITY") or self._is_off("CONSTRAINT")
        found: list[Coupled | Closure] = []
        for k in range(model.neq):
            name = model.eq(k).name or f"equality {k}"
            kind = kinds(int(model.eq_type[k]))
            if not model.eq_active0[k] or off:
                self.ignored.append(f"The equality {name!r} is not active and not used.")
            elif kind not in (kinds.mjEQ_JOINT, kinds.mjEQ_CONNECT, kinds.mjEQ_WELD):
                word = kind.name.removeprefix("mjEQ_").lower()
                self.ignored.append(f"The equality {name!r} of kind {word} is not used.")
            else:
                joins = self._coupled if kind == kinds.mjEQ_JOINT else self._closure
                each, of = joins(k, name)
                if any(kept[i] is None for i in of):
                    self.ignored.append(f"The equality {name!r} is with another tree and not used.")
                else:
                    found.append(each)
        return tuple(found)

    def _coupled(self, k: int, name: str) -> tuple[Coupled, list[int]]:
        model = self.model
        data, one, two = model.eq_data[k], int(model.eq_obj1id[k]), int(model.eq_obj2id[k])
        zero = float(model.qpos0[model.jnt_qposadr[one]])
        of = [int(model.jnt_bodyid[j]) for j in (one, two) if j >= 0]
        if two < 0:
            return Coupled(name, self.joints[one], None, 0.0, float(data[0]) + zero, True), of
        offset = float(data[0]) + zero - float(data[1]) * float(model.qpos0[model.jnt_qposadr[two]])
        linear = not np.any(data[2:5])
        names = self.joints[one], self.joints[two]
        return Coupled(name, *names, float(data[1]), offset, linear), of

    def _closure(self, k: int, name: str) -> tuple[Closure, list[int]]:
        model, mujoco = self.model, self.mujoco
        weld = int(model.eq_type[k]) == int(mujoco.mjtEq.mjEQ_WELD)
        data, ends = model.eq_data[k], (int(model.eq_obj1id[k]), int(model.eq_obj2id[k]))
        if int(model.eq_objtype[k]) == int(mujoco.mjtObj.mjOBJ_SITE):
            poses = [(model.site_pos[s], model.site_quat[s]) for s in ends]
            ends = tuple(int(model.site_bodyid[s]) for s in ends)
        elif weld:
            poses = [(data[3:6], data[6:10]), (data[:3], STRAIGHT)]
        else:
            poses = [(data[:3], STRAIGHT), (data[3:6], STRAIGHT)]
        places = tuple(np.array(pose[0]) for pose in poses)
        rotations = tuple(self._matrix(pose[1]) for pose in poses)
        names = tuple(self._last[i] or "world" for i in ends)
        return Closure(name, weld, names, places, rotations), list(ends)
