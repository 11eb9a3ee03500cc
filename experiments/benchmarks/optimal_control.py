"""The whole minimum-time solve of a finger against CasADi and IPOPT."""

import statistics
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

import jaxgrip as jg
from experiments.benchmarks.table import Row, peer_json

TASKS = (
    {
        "name": "finger A, published motion",
        "finger": "A",
        "start_deg": (0.0, -20.0, -30.0),
        "end_deg": (80.0, -65.0, -60.0),
    },
    {
        "name": "finger B, published motion",
        "finger": "B",
        "start_deg": (-180.0, -35.0, -25.0),
        "end_deg": (-100.0, -65.0, -60.0),
    },
    {
        "name": "finger A, another motion",
        "finger": "A",
        "start_deg": (-40.0, -10.0, -60.0),
        "end_deg": (35.0, -60.0, -100.0),
    },
    {
        "name": "finger B, another motion",
        "finger": "B",
        "start_deg": (-200.0, -40.0, -60.0),
        "end_deg": (-165.0, -30.0, -100.0),
    },
)
GUESS = 0.13
REPEATS = 3
# From the straight line alone, like the peer; and the default, which keeps the best of several.
SOLVERS = {"jaxgrip": jg.ocp.Solver(starts=1), "jaxgrip, as by default": jg.ocp.Solver()}
# The first grid is that of jaxgrip's own transcription; the second shows what accuracy costs.
INTERVALS = (100, 800)
NOTE = (
    "Ours, from the straight line like the peer, and from {starts} guesses as by default, of which "
    "the fastest motion is kept: transcription, structure, multiple shooting and certificate; "
    "final time exact to about 1e-12 s, switching times included. Published: A 0.11997468651 s, "
    "B 0.12115805331 s. Later rows run what the first compiled. Peer: CasADi {casadi}, closed-form "
    "dynamics in its virtual machine (no generated code), N Runge-Kutta steps with constant "
    "controls, IPOPT with MUMPS to 1e-10 from the same guess, one thread; its final time is that "
    "of the grid, above the optimum, and it neither finds exact switches nor checks the minimum "
    "principle. Set-up: building the solver with its derivatives. All times: median of {repeats} "
    "solves."
)


def main(peer_python: str) -> list[Row]:
    """Rows for every task, solver of ours and grid of the peer."""
    tasks = {task["name"]: [] for task in TASKS}
    for who, solver in SOLVERS.items():
        for row in measure(who, solver):
            tasks[row.what].append(row)
    script = Path(__file__).with_name("casadi_ocp.py")
    request = {"tasks": TASKS, "intervals": INTERVALS, "guess": GUESS, "repeats": REPEATS}
    reply = peer_json(peer_python, script, request)
    if isinstance(reply, str):
        return [replace(row, note=reply) for ours in tasks.values() for row in ours]
    starts = SOLVERS["jaxgrip, as by default"].starts
    note = NOTE.format(casadi=reply["casadi"], repeats=REPEATS, starts=starts)
    rows = []
    for name, (like_peer, by_default) in tasks.items():
        for result in (result for result in reply["results"] if result["task"] == name):
            failed = "" if result["converged"] else " not converged"
            rows.append(
                replace(
                    like_peer,
                    peer=f"IPOPT, N = {result['intervals']}",
                    peer_run_s=result["run_s"],
                    peer_setup_s=result["setup_s"],
                    peer_answer=f"{result['final_time']:.11f} s{failed}",
                    note=note,
                )
            )
        rows.append(replace(by_default, note=note))
    return rows


def measure(who: str, solver: jg.ocp.Solver) -> list[Row]:
    """Run time, compile time and final time of each task, in one process."""
    rows = []
    for task in TASKS:
        finger = jg.models.gripper_finger(task["finger"])
        problem = jg.ocp.Problem(
            dynamics=jg.rigid.StateSpace(finger.tree),
            initial_state=np.concatenate([np.deg2rad(task["start_deg"]), np.zeros(3)]),
            final_state=np.concatenate([np.deg2rad(task["end_deg"]), np.zeros(3)]),
            final_time=jg.ocp.Free(guess=GUESS),
            control_bounds=(-finger.torque_limit, finger.torque_limit),
        )
        times = []
        for _ in range(1 + REPEATS):
            began = time.perf_counter()
            solution = jax.block_until_ready(jg.ocp.solve(problem, solver=solver))
            times.append(time.perf_counter() - began)
        run_s = statistics.median(times[1:])
        answer = f"{float(solution.final_time):.11f} s"
        rows.append(Row(task["name"], run_s, max(times[0] - run_s, 0.0), who, answer=answer))
    return rows
