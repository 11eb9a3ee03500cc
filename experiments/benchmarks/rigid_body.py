"""Rigid-body throughput against Pinocchio and MJX: many states of robots, float64."""

import time
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxgrip as jg
from experiments.benchmarks.table import Row, peer_json
from jaxgrip.solve.fusion import plain_emitters

# Ours and the peer alternate, so that other work on the machine affects both.
ROUNDS = 4
REPEATS = 10
SECONDS = 3.0
SEED = 2007
THREADS = 2
TARGETS = {"rnea": 2.0, "aba": 1.5, "derivatives": 1.0}
ROBOT_TARGETS = {"rnea": 1.5, "aba": 1.0, "derivatives": 1.0}
HAND_TARGETS = ROBOT_TARGETS | {"derivatives": 0.7}
# Files of the package example-robot-data, joints that are locked, and what is asked for.
ROBOTS = {
    "UR5": ("ur_description/urdf/ur5_robot.urdf", (), ROBOT_TARGETS),
    "Panda": (
        "panda_description/urdf/panda.urdf",
        ("panda_finger_joint1", "panda_finger_joint2"),
        ROBOT_TARGETS,
    ),
    "Allegro": ("allegro_hand_description/urdf/allegro_right_hand.urdf", (), HAND_TARGETS),
    "G1": ("g1_description/urdf/g1_29dof_rev_1_0.urdf", (), HAND_TARGETS),
}
NAMES = {
    "rnea": "inverse dynamics",
    "aba": "forward dynamics",
    "derivatives": "its derivatives",
}
PEERS = {
    "rnea": "rneaInParallel",
    "aba": "abaInParallel",
    "derivatives": "computeABADerivatives",
}
# Models that MJX is measured on too, its calls, and how many times as fast ours should be.
MJX_MODELS = ("UR5", "Panda")
MJX_CALLS = {"rnea": "inverse", "aba": "forward"}
MJX_TARGET = 10.0
NOTE = (
    "Time per state of {batch}, float64, least of {runs} runs or fewer; Pinocchio {version} "
    "with {threads} threads (its derivatives: half the time of one thread, called from Python). "
    "Plain emitters: compiled with the option xla_cpu_use_fusion_emitters=False. MJX: compiled by "
    "XLA, float64, without contacts and constraints; with its kinematics and mass matrix."
)
STATES = (None, -1, -1, -1)
# Options for the outermost jit, which suit some programs and not others.
COMPILERS = {
    "jaxgrip": {},
    "jaxgrip, plain emitters": plain_emitters(),
}


def arm() -> jg.rigid.Tree:
    """A serial arm of six revolute joints without symmetry."""
    twist = (0.0, -np.pi / 2, 0.0, np.pi / 2, -np.pi / 2, np.pi / 2)
    return jg.rigid.from_dh(
        [
            jg.rigid.DHRow(
                name=f"link{i + 1}",
                parent=f"link{i}" if i else None,
                a=0.3 if i else 0.0,
                alpha=twist[i],
                d=0.1 * (i % 2),
                mass=6.0 - 0.8 * i,
                com=(0.1, 0.02, -0.03),
                inertia=(0.02, 0.03, 0.025),
            )
            for i in range(6)
        ]
    )


def robots() -> list[tuple[str, jg.rigid.Tree, int, dict[str, float]]]:
    """Name, tree, batch and targets of the robots whose files are installed."""
    try:
        files = metadata.files("example-robot-data") or []
    except metadata.PackageNotFoundError:
        return []
    found = []
    for name, (path, locked, targets) in ROBOTS.items():
        places = [file.locate() for file in files if str(file).endswith(f"robots/{path}")]
        if places:
            # Without the damping and friction of the file, which the peer leaves out.
            tree = jg.rigid.with_passive(jg.rigid.read_urdf(places[0]).tree)
            tree = jg.rigid.lock(tree, dict.fromkeys(locked, 0.0))
            found.append((name, tree, 4096, targets))
    return found


def build(function: Callable, options: dict, arguments: tuple) -> tuple[float, Callable]:
    """Seconds to trace and compile, and the compiled function."""
    start = time.perf_counter()
    compiled = jax.jit(function, compiler_options=options).lower(*arguments).compile()
    return time.perf_counter() - start, compiled


def fastest(function: Callable, arguments: tuple) -> float:
    """Least seconds of some runs, of fewer if they are slow."""
    jax.block_until_ready(function(*arguments))
    times: list[float] = []
    while len(times) < REPEATS and sum(times) < SECONDS:
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return min(times)


def sent(tree: jg.rigid.Tree) -> dict:
    """What a peer is told of a tree."""
    names = ("rotation", "translation", "mass", "com", "inertia", "gravity")
    numbers = {name: np.asarray(getattr(tree, name)).tolist() for name in names}
    return numbers | {"parents": tree.parents, "joint_types": tree.joint_types}


def peer_answer(
    peer_python: str, script: str, tree: jg.rigid.Tree, batch: int, repeats: int = REPEATS
) -> dict | str:
    """Times and samples of the peer's script for one tree, or why there are none."""
    request = {
        "tree": sent(tree),
        "batch": batch,
        "threads": THREADS,
        "repeats": repeats,
        "seed": SEED,
    }
    return peer_json(peer_python, Path(__file__).with_name(script), request)


def models() -> list[tuple[str, jg.rigid.Tree, int, dict[str, float]]]:
    """Name, tree, batch and targets of all models."""
    return [
        ("gripper", jg.models.two_finger_gripper(), 16384, TARGETS),
        ("arm", arm(), 16384, TARGETS),
        *robots(),
    ]


def main(peer_python: str) -> list[Row]:
    """Rows of ours against Pinocchio in `peer_python`, seconds per state."""
    rows = []
    for model, tree, batch, targets in models():
        # Column-major states on both sides: the last axis of ours is the batch.
        drawn = np.random.default_rng(SEED).normal(size=(3, tree.n, batch))
        q, qd, third = (jnp.asarray(x) for x in drawn)
        work = {
            "rnea": jax.vmap(jg.rigid.rnea, in_axes=STATES, out_axes=-1),
            "aba": jax.vmap(jg.rigid.forward_dynamics, in_axes=STATES, out_axes=-1),
            "derivatives": jg.rigid.forward_dynamics_derivatives,
        }
        arguments = (tree, q, qd, third)
        ours = {
            (key, who): build(function, options, arguments)
            for key, function in work.items()
            for who, options in COMPILERS.items()
        }
        run_s = dict.fromkeys(ours, np.inf)
        theirs: dict | str = {}
        for _ in range(ROUNDS):
            for name, (_, function) in ours.items():
                run_s[name] = min(run_s[name], fastest(function, arguments) / batch)
            if not isinstance(theirs, str):
                answer = peer_answer(peer_python, "pinocchio_rigid.py", tree, batch)
                theirs = quicker(theirs, answer)
        mjx: dict | str = {}
        if model in MJX_MODELS:
            mjx = peer_answer(peer_python, "mjx_rigid.py", tree, batch, 3)
        for (key, who), (compile_s, function) in ours.items():
            row = Row(f"{model}, {NAMES[key]}", run_s[key, who], compile_s, who)
            if isinstance(theirs, str):
                rows.append(replace(row, note=theirs))
                continue
            out, peer = function(*arguments), theirs[key]
            sample = np.asarray(out[0][0, :, 0] if key == "derivatives" else out[:, 0])
            rows.append(
                replace(
                    row,
                    peer=f"Pinocchio, {PEERS[key]}",
                    peer_run_s=peer["run_s"],
                    target=targets[key],
                    answer=agreement(sample, peer["sample"]),
                    note=NOTE.format(
                        batch=batch,
                        runs=ROUNDS * REPEATS,
                        version=theirs["version"],
                        threads=THREADS,
                    ),
                )
            )
            if isinstance(mjx, str):
                rows.append(replace(row, note=mjx))
            elif key in mjx and who == "jaxgrip":
                peer = mjx[key]
                rows.append(
                    replace(
                        rows[-1],
                        peer=f"MJX, {MJX_CALLS[key]}",
                        peer_run_s=peer["run_s"],
                        peer_setup_s=peer["setup_s"],
                        peer_answer=agreement(sample, peer["sample"]),
                        target=MJX_TARGET,
                    )
                )
    return rows


def agreement(ours: np.ndarray, theirs: list[float]) -> str:
    """By how much two results differ, relative to the largest entry."""
    error = np.abs(ours - theirs).max() / np.abs(theirs).max()
    return f"agrees to {error:.0e}"


def quicker(known: dict, new: dict | str) -> dict | str:
    """The faster of two measurements of the peer; a reason for missing ones is kept."""
    if isinstance(new, str) or not known:
        return new
    both = {key: (known[key], new[key]) for key in PEERS}
    return new | {key: min(pair, key=lambda answer: answer["run_s"]) for key, pair in both.items()}
