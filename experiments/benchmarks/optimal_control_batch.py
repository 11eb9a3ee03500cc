"""Many variants of a finger's motion at once against a loop of CasADi and IPOPT."""

import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxgrip as jg
from experiments.benchmarks.table import Row, peer_json

COUNT = 256
SEED = 2007
# Largest changes about the published motion of finger A.
END_DEG = 3.0
TORQUE_SHARE = 0.1
MASS_SHARE = 0.1
MASSES = (0.08, 0.16, 0.20)
GUESS = 0.13
REPEATS = 3
# Two intervals of order eleven an arc are accurate to 1e-13 s here.
SOLVER = jg.ocp.Solver(starts=1, shooting=jg.ocp.Shooting(intervals=2, stages=6))
REFERENCE = jg.ocp.Solver(starts=1)
# The peer loops over this many of the variants, and the reference is computed for them.
PEER_COUNT = 16
INTERVALS = (50,)
COARSE = 100
PHASE_INTERVALS = 3
TARGET = 10.0
NOTE = (
    "Time per problem of {count}: end angles within {end:g} deg, torque limits and the mass of the "
    "last link with its payload within {torque:.0%} and {mass:.0%} of finger A's. {certified} are "
    "certified, {flagged} flagged; {leads} were solved from scratch, which the time includes. "
    "Answer: largest error of the final time over {peers} of them against the grid that Solver has "
    "by default. The peer is timed on those, in one thread, from its solution of the published "
    "motion. Its methods: a fixed grid; the arcs of a grid of {coarse} with the switching times as "
    "unknowns, Radau collocation of order nine, {phases} intervals per arc; and that with the arcs "
    "of the published motion throughout, even against the minimum principle. Set-up of the peer: "
    "its solvers, one for each list of arcs. CasADi {casadi}."
)


@dataclass(frozen=True)
class Variants:
    """End angles `(B, 3)` [rad], torque limits `(B, 3)` [N m], masses of the last link `(B,)` [kg].

    The first are the published ones.
    """

    ends: np.ndarray
    torques: np.ndarray
    masses: np.ndarray


def draw() -> Variants:
    """The variants, the same ones every time."""
    rng = np.random.default_rng(SEED)
    finger = jg.models.gripper_finger("A")
    end, torque = (np.asarray(each) for each in (finger.end, finger.torque_limit))
    ends = end + np.deg2rad(rng.uniform(-END_DEG, END_DEG, (COUNT, 3)))
    torques = torque * rng.uniform(1.0 - TORQUE_SHARE, 1.0 + TORQUE_SHARE, (COUNT, 3))
    masses = MASSES[-1] * rng.uniform(1.0 - MASS_SHARE, 1.0 + MASS_SHARE, COUNT)
    ends[0], torques[0], masses[0] = end, torque, MASSES[-1]
    return Variants(ends, torques, masses)


@eqx.filter_vmap
def problems(end, torque, mass):
    """The problems of all variants."""
    masses = jnp.stack([*(jnp.asarray(each) for each in MASSES[:-1]), mass])
    finger = jg.models.gripper_finger("A", masses=masses, torque_limit=torque)
    rest = jnp.zeros(3)
    return jg.ocp.Problem(
        dynamics=jg.rigid.StateSpace(finger.tree),
        initial_state=jnp.concatenate([finger.start, rest]),
        final_state=jnp.concatenate([end, rest]),
        final_time=jg.ocp.Free(guess=GUESS),
        control_bounds=(-finger.torque_limit, finger.torque_limit),
    )


def main(peer_python: str) -> list[Row]:
    """A row for every method of the peer."""
    variants = draw()
    batch = problems(*(jnp.asarray(v) for v in (variants.ends, variants.torques, variants.masses)))
    times = []
    for _ in range(1 + REPEATS):
        began = time.perf_counter()
        solutions = jax.block_until_ready(jg.ocp.solve_batch(batch, solver=SOLVER))
        times.append(time.perf_counter() - began)
    run_s = statistics.median(times[1:])
    # The first is what the peer starts from.
    chosen = np.append(0, np.linspace(1, COUNT - 1, PEER_COUNT).round().astype(int))
    finer = jg.ocp.solve_batch(batch, solver=REFERENCE)
    exact = np.array([float(finer[index].final_time) for index in chosen[1:]])
    ours = np.array([float(solutions[index].final_time) for index in chosen[1:]])
    what = f"finger A, {COUNT} variants"
    error = f"{np.max(np.abs(ours - exact)):.0e} s off"
    row = Row(what, run_s / COUNT, max(times[0] - run_s, 0.0), answer=error)
    request = {
        "start": np.asarray(jg.models.gripper_finger("A").start).tolist(),
        "variants": [
            {
                "end": variants.ends[index].tolist(),
                "torque": variants.torques[index].tolist(),
                "last_mass": float(variants.masses[index]),
            }
            for index in chosen
        ],
        "intervals": INTERVALS,
        "coarse": COARSE,
        "phase_intervals": PHASE_INTERVALS,
        "guess": GUESS,
    }
    reply = peer_json(peer_python, Path(__file__).with_name("casadi_ocp.py"), request)
    if isinstance(reply, str):
        return [replace(row, note=reply)]
    certified = sum(s.certificate is not None and s.certificate.passed for s in solutions)
    note = NOTE.format(
        count=COUNT,
        end=END_DEG,
        torque=TORQUE_SHARE,
        mass=MASS_SHARE,
        certified=certified,
        flagged=sum(s.result != jg.ocp.RESULTS.successful for s in solutions),
        leads=sum("transcriptions" in s.stats for s in solutions),
        peers=PEER_COUNT,
        coarse=COARSE,
        phases=PHASE_INTERVALS,
        casadi=reply["casadi"],
    )
    rows = []
    for way in reply["results"]:
        converged = np.array(way["converged"])
        errors = np.abs(np.array(way["final_time"]) - exact)[converged]
        failed = "" if converged.all() else f", {np.sum(~converged)} not converged"
        is_like = way["way"].endswith("then its arcs")
        rows.append(
            replace(
                row,
                peer=f"IPOPT, {way['way']}",
                peer_run_s=statistics.mean(way["run_s"]),
                peer_setup_s=way["setup_s"],
                peer_answer=f"{np.max(errors, initial=0.0):.0e} s off{failed}",
                note=note,
                target=TARGET if is_like else None,
            )
        )
    return rows
