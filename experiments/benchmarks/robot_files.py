"""Robot files of others: how many are read, and their numbers beside Pinocchio and MuJoCo.

`python -m experiments.benchmarks.robot_files FOLDER ...` reads every URDF and every MJCF file that
MuJoCo compiles, and compares mass matrix, bias forces and accelerations at random states: URDF with
Pinocchio, its damping and friction added, inertias that were repaired taken from the repaired tree;
MJCF with MuJoCo without contacts, limits, constraints, actuators, fluid, gravity compensation and
tendons of more than one joint. Dry friction is left out there, since MuJoCo has it as a constraint.
"""

import argparse
import dataclasses
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio as pin

import jaxgrip as jg

STATES = 3
TARGET = 1e-10


class Found(NamedTuple):
    """Relative errors of mass matrix, bias and accelerations; NaN where there is nothing."""

    mass: float
    bias: float
    acceleration: float
    words: str


class Refused(Exception):
    """A file that the peer itself does not read."""


@jax.jit
def computed(tree: jg.rigid.Tree, q: Any, qd: Any, tau: Any) -> tuple:
    """Mass matrices, biases and accelerations of (k, ...) states."""

    def one(q: Any, qd: Any, tau: Any) -> tuple:
        return (
            jg.rigid.crba(tree, q),
            jg.rigid.bias_forces(tree, q, qd),
            jg.rigid.forward_dynamics(tree, q, qd, tau),
        )

    return jax.vmap(one)(q, qd, tau)


def errors(ours: tuple, theirs: list[tuple], words: str) -> Found:
    """Largest differences over the states, relative to the largest entry of each state."""
    found = []
    for own, other in zip(ours, zip(*theirs, strict=True), strict=True):
        pairs = zip(np.asarray(own), other, strict=True)
        # Zero against zero is no error.
        found.append(max(np.max(np.abs(a - b)) / (np.max(np.abs(b)) or 1.0) for a, b in pairs))
    return Found(*found, words)


def of_urdf(path: Path, rng: np.random.Generator) -> Found:
    """A URDF file against Pinocchio."""
    try:
        model = pin.buildModelFromUrdf(str(path))
    except Exception as error:
        model = str(error).splitlines()[0]
    file = jg.rigid.read_urdf(path)
    words = [f"{len(file.repaired)} repaired"] if file.repaired else []
    if isinstance(model, str):
        return Found(*[np.nan] * 3, f"read; Pinocchio: {model}")
    if model.nv != file.tree.n:
        raise ValueError(f"Pinocchio has {model.nv} degrees of freedom, we {file.tree.n}.")
    if not model.nv:
        return Found(*[np.nan] * 3, "does not move")
    for name in re.findall(r"Body '(.*?)'", " ".join(file.repaired)):
        i = file.tree.body(name)
        turn, shift = map(np.asarray, file.place(name))
        inertia = turn.T @ np.asarray(file.tree.inertia[i]) @ turn
        frame = model.frames[model.getFrameId(name)]
        model.inertias[frame.parentJoint] = pin.Inertia(
            float(file.tree.mass[i]), turn.T @ (np.asarray(file.tree.com[i]) - shift), inertia
        )
    joints = [model.joints[model.getJointId(name)] for name in file.joints]
    order = np.array([joint.idx_v for joint in joints])
    q = rng.uniform(-3, 3, (STATES, model.nv))
    qd, tau = rng.normal(size=(2, STATES, model.nv))
    # A friction of the tree's law at these rates, by numbers that Pinocchio has read.
    damping, friction = np.asarray(file.damping), np.asarray(file.friction)
    light = any("move no mass" in sentence for sentence in file.ignored)
    data, theirs = model.createData(), []
    for k in range(STATES):
        place, rate = pin.neutral(model), np.zeros(model.nv)
        for joint, x in zip(joints, q[k], strict=True):
            if joint.nq == 2:
                place[joint.idx_q : joint.idx_q + 2] = np.cos(x), np.sin(x)
            else:
                place[joint.idx_q] = x
        rate[order] = qd[k]
        mass = pin.crba(model, data, place)
        mass = np.triu(mass) + np.triu(mass, 1).T
        bias = pin.nonLinearEffects(model, data, place, rate)
        lost = damping * qd[k] + friction * np.tanh(qd[k] / speed_of(file.tree))
        effort = np.zeros(model.nv)
        effort[order] = tau[k] - lost
        moved = pin.aba(model, data, place, rate, effort)
        theirs.append((mass[np.ix_(order, order)], bias[order] + lost, moved[order]))
    ours = computed(file.tree, *map(jnp.asarray, (q, qd, tau)))
    if light:
        words.append("joints without mass: no accelerations")
        pairs = errors((*ours[:2], np.zeros(STATES)), [(*x[:2], 0.0) for x in theirs], "")
        return pairs._replace(acceleration=np.nan, words="; ".join(words))
    return errors(ours, theirs, "; ".join(words))


def speed_of(tree: jg.rigid.Tree) -> Any:
    """Rate at which dry friction of a tree reaches its level; any where there is none."""
    passive = getattr(tree, "passive", None)
    if passive is None or passive.friction_speed is None:
        return 1.0
    return np.asarray(passive.friction_speed)


def of_mjcf(path: Path, rng: np.random.Generator) -> Found:
    """An MJCF file against MuJoCo."""
    try:
        model = mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        raise Refused(str(error).splitlines()[0]) from None
    file = jg.rigid.read_mjcf(path)
    words = [f"{len(file.repaired)} repaired"] if file.repaired else []
    if model.nv != file.tree.n:
        raise ValueError(f"MuJoCo has {model.nv} degrees of freedom, we {file.tree.n}.")
    if not model.nv:
        return Found(*[np.nan] * 3, "does not move")
    bits = mujoco.mjtDisableBit
    model.opt.disableflags |= int(bits.mjDSBL_CONSTRAINT | bits.mjDSBL_ACTUATION)
    model.opt.density = model.opt.viscosity = 0.0
    model.body_gravcomp[:] = 0.0
    model.jnt_stiffnesspoly[:] = model.dof_dampingpoly[:] = 0.0
    for t in range(model.ntendon):
        first = model.tendon_adr[t]
        alone = model.tendon_num[t] == 1
        if not (alone and model.wrap_type[first] == mujoco.mjtWrap.mjWRAP_JOINT):
            model.tendon_stiffness[t] = model.tendon_damping[t] = model.tendon_armature[t] = 0.0
    data = mujoco.MjData(model)
    q, theirs = [], []
    qd, tau = rng.normal(size=(2, STATES, model.nv))
    for k in range(STATES):
        mujoco.mj_integratePos(model, data.qpos, rng.uniform(-3, 3, model.nv), 1.0)
        mujoco.mj_normalizeQuat(model, data.qpos)
        data.qvel[:], data.qfrc_applied[:] = qd[k], tau[k]
        mujoco.mj_forward(model, data)
        mass = np.zeros((model.nv, model.nv))
        for column, unit in zip(mass, np.eye(model.nv), strict=True):
            mujoco.mj_mulM(model, data, column, unit)
        q.append(data.qpos.copy())
        theirs.append((mass, data.qfrc_bias - data.qfrc_passive, data.qacc.copy()))
    tree = file.tree
    if tree.passive is not None:
        still = dataclasses.replace(tree.passive, friction=None)
        tree = dataclasses.replace(tree, passive=still)
    ours = computed(tree, *map(jnp.asarray, (np.stack(q), qd, tau)))
    return errors(ours, theirs, "; ".join(words))


def is_mjcf(path: Path) -> bool:
    """Whether a file of this ending may be a whole model."""
    return "<mujoco" in path.read_text(errors="ignore")


def main() -> None:
    """Print a line for every file, then what was read and the largest errors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="+", type=Path)
    parser.add_argument("--part", default="1/1", help="k/n: the k-th of n parts of the files")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    jg.enable_x64()
    # MuJoCo writes a file of its warnings otherwise.
    mujoco.set_mju_user_warning(lambda _: None)
    for ending, peer, of in (("urdf", "Pinocchio", of_urdf), ("xml", "MuJoCo", of_mjcf)):
        files = [(top, path) for top in given.folder for path in sorted(top.rglob(f"*.{ending}"))]
        if ending == "xml":
            files = [(top, path) for top, path in files if is_mjcf(path)]
        every = files[part - 1 :: parts]
        rows: list[Found] = []
        refused, skipped = [], 0
        for top, path in every:
            start = time.perf_counter()
            try:
                row = of(path, np.random.default_rng(0))
            except Refused:
                skipped += 1
                continue
            except Exception as error:
                line = f"{path.relative_to(top)}: {type(error).__name__}: {error}"
                refused.append(line.replace(f"{path}: ", "").splitlines()[0])
                print(f"REFUSED {refused[-1]}", flush=True)
                continue
            finally:
                # Every robot has programs of its own.
                jax.clear_caches()
            rows.append(row)
            bad = "" if np.nanmax([0.0, *row[:3]]) <= TARGET else "  ABOVE 1e-10"
            numbers = "  ".join(f"{x:8.1e}" for x in row[:3])
            seconds = time.perf_counter() - start
            print(
                f"{numbers}  {seconds:5.1f} s  {path.relative_to(top)}  {row.words}{bad}",
                flush=True,
            )
        if not every:
            continue
        print(f"\n{peer}: {len(rows)} read of {len(every) - skipped}; {skipped} it refuses itself.")
        table = np.array([row[:3] for row in rows]).reshape(-1, 3)
        table = table[np.isfinite(table).any(axis=1)]
        if len(table):
            good = np.sum(~(table > TARGET).any(axis=1))
            largest = ", ".join(f"{x:.1e}" for x in np.nanmax(table, axis=0))
            print(f"largest errors of mass matrix, bias, acceleration: {largest}")
            print(f"within {TARGET:g}: {good} of {len(table)} that move")
        for line in refused:
            print(f"refused: {line}")


if __name__ == "__main__":
    main()
