"""The fastest motion of a UR5 against CasADi and IPOPT."""

import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

import jaxgrip as jg
from experiments.benchmarks.random_poses import UR5
from experiments.benchmarks.rigid_body import sent
from experiments.benchmarks.table import Row, peer_json

# Whether speeds are bounded; start and end of every joint [rad]. The first of each kind compiles.
TASKS = {
    "six joints by 1 rad, torques bounded": (False, 0.0, 1.0),
    "six joints by 1 rad, torques and speeds": (True, 0.0, 1.0),
    "six joints by 0.8 rad, torques and speeds": (True, 0.1, 0.9),
}
INTERVALS = (80, 320)
NOTE = (
    "UR5, least T + {weight:g} times the integral of the squares of torques over their limits, "
    "from the straight line. Answer: that sum, and T. Ours is the whole solve, with structure, "
    "multiple shooting and certificate; the answer is exact to about 1e-9. Peer: CasADi {casadi}, "
    "the recursion of Newton and Euler in its virtual machine, accelerations as controls, "
    "Hermite-Simpson collocation in N intervals with bounds at nodes and middles, IPOPT with MUMPS "
    "to 1e-9, one thread; between its points torques and speeds may exceed their limits, so that "
    "it may be below the optimum."
)


def main(peer_python: str) -> list[Row]:
    """Rows for every task and grid of the peer."""
    model = jg.rigid.read_urdf(UR5)
    rows, asked = {}, []
    for name, (is_speed_bounded, start, end) in TASKS.items():
        poses = [np.full(model.tree.n, x) for x in (start, end)]
        speed = model.velocity if is_speed_bounded else np.full(model.tree.n, np.inf)
        began = time.perf_counter()
        motion = _solved(model, *poses, speed)
        first = time.perf_counter() - began
        began = time.perf_counter()
        motion = _solved(model, *poses, speed)
        run = time.perf_counter() - began
        guess = float(motion.final_time)
        found = f"{float(motion.objective):.9f}, {guess:.9f} s"
        rows[name] = Row(name, run, max(first - run, 0.0), answer=found)
        asked.append(
            {
                "name": name,
                "robot": _facts(model.tree, model.effort, np.minimum(speed, 1e3)),
                "start": poses[0].tolist(),
                "end": poses[1].tolist(),
                "guess": 1.2 * guess,
                "weight": jg.models.arm.EFFORT,
            }
        )
    request = {"tasks": asked, "intervals": INTERVALS, "repeats": 1}
    reply = peer_json(peer_python, Path(__file__).with_name("casadi_robot.py"), request)
    if isinstance(reply, str):
        return [replace(row, note=reply) for row in rows.values()]
    note = NOTE.format(casadi=reply["casadi"], weight=jg.models.arm.EFFORT)
    return [
        replace(
            rows[result["task"]],
            peer=f"IPOPT, N = {result['intervals']}",
            peer_run_s=result["run_s"],
            peer_setup_s=result["setup_s"],
            peer_answer=f"{result['objective']:.9f}, {result['final_time']:.9f} s"
            + ("" if result["converged"] else " not converged"),
            note=note,
        )
        for result in reply["results"]
    ]


def _solved(model: jg.rigid.Import, start: np.ndarray, end: np.ndarray, speed: np.ndarray):
    return jax.block_until_ready(
        jg.models.fastest_motion(model.tree, start, end, torque=model.effort, speed=speed)
    )


def _facts(tree: jg.rigid.Tree, torque: np.ndarray, speed: np.ndarray) -> dict:
    limits = {"torque": np.asarray(torque).tolist(), "speed": np.asarray(speed).tolist()}
    return sent(tree) | limits
