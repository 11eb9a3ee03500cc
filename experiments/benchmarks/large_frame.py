"""A space frame of 100,000 degrees of freedom, against SciPy's sparse solver on its matrix.

Ours runs in a process of its own, whose memory is measured: this file, with the request as JSON on
its standard input.
"""

import json
import resource
import sys
import time
from pathlib import Path

import jax
import numpy as np
import scipy.sparse.linalg

import jaxgrip as jg
from experiments.benchmarks import numpy_frames
from experiments.benchmarks.table import Row, peer_json

# Columns across, their nodes, and the distance of both [m].
ACROSS, NODES, BAY = 8, 262, 3.0
PUSH = (1e5, 2e4, -5e4)
NOTE = (
    "A tower of steel tubes, {freedoms} degrees of freedom, under a load on its top: "
    "displacements, section forces and reactions for new numbers, in a separate process; peak "
    "memory includes compilation and the elimination order. SciPy's spsolve has the same matrix; "
    "building it is its set-up. The answer is the displacement of the top."
)


def tower(across: int = ACROSS, nodes: int = NODES) -> tuple:
    """A tower on a square: columns, girders, and diagonals in its vertical planes.

    Returns the structure, fixed at its lowest nodes, and its poses.
    """
    steel = jg.fem.Isotropic(210e9, 0.3, 7850.0)
    tube = jg.fem.BeamSection(steel, A=0.01, Iy=2e-5, Iz=1e-5, J=2e-5, orientation=(0.3, 1.0, 0.2))
    number = np.arange(across**2 * nodes).reshape(across, across, nodes)
    places = BAY * np.stack(np.unravel_index(number, number.shape), axis=-1).reshape(-1, 3)
    pairs = [
        (number[:-1], number[1:]),
        (number[:, :-1], number[:, 1:]),
        (number[:, :, :-1], number[:, :, 1:]),
        (number[:-1, :, :-1], number[1:, :, 1:]),
        (number[:, :-1, :-1], number[:, 1:, 1:]),
    ]
    ends = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in pairs])
    named = {"feet": number[:, :, 0].ravel(), "top": number[-1, -1, -1]}
    part = jg.structures.FramePart(places, [jg.structures.Beams(ends, tube)], named)
    system = jg.mechanism.System([part.part("tower")], [])
    structure = jg.structures.Structure(system, {"tower": part}, supports={"tower.feet": "all"})
    return structure, jg.mechanism.start(system)


def statics(structure, poses) -> dict:
    """Times of the first solution and of one with new numbers; displacement of the top."""

    def solve(structure) -> float:
        solution = jg.structures.solve(structure, poses, load)
        reaction = solution.reactions()["tower.feet"]
        jax.block_until_ready((reaction.force, solution.part("tower").beam_forces))
        return float(np.linalg.norm(solution.displacements[-1, :3]))

    load = jg.structures.NodalForce("tower.top", PUSH)
    start = time.perf_counter()
    top = solve(structure)
    first = time.perf_counter() - start
    # New numbers, so that cached factors are not used.
    stiffer = jax.tree.map(lambda x: x * (1 + 1e-9), structure)
    start = time.perf_counter()
    solve(stiffer)
    run = time.perf_counter() - start
    return {"compile_s": first - run, "run_s": run, "top": top}


def numpy_tower(structure) -> numpy_frames.Frame:
    """The tower for NumPy."""
    frame = structure.frames["tower"]
    section, ends = frame.elements[0].section, frame.elements[0].ends.array
    steel = section.material
    own = {"E": steel.E, "G": steel.E / 2 / (1 + steel.nu), "rho": steel.rho}
    own |= {name: getattr(section, name) for name in ("A", "Iy", "Iz", "J")}
    own = {name: float(value) for name, value in own.items()}
    nodes, across = np.asarray(frame.nodes), np.asarray(section.orientation)
    local, weight = numpy_frames.beams(nodes, ends, own, across)
    free = np.repeat(nodes[:, 2:] > 0, 6, axis=1)
    freedoms = np.where(free, np.cumsum(free).reshape(free.shape) - 1, -1)
    none = np.zeros((0, 2), dtype=int), np.zeros(0), np.zeros(0)
    part = np.zeros(len(nodes), dtype=int)
    return numpy_frames.Frame(part, nodes, ends, local, weight, freedoms, *none)


def main(peer_python: str) -> list[Row]:
    """Ours and SciPy's, which needs no interpreter of its own."""
    ours = peer_json(sys.executable, Path(__file__), {})
    if isinstance(ours, str):
        raise RuntimeError(ours)
    structure, _ = tower()
    start = time.perf_counter()
    still = np.zeros((1, 3)), np.eye(3)[None], np.zeros(3)
    matrix, load = numpy_frames.equations(numpy_tower(structure), *still, -1, np.array(PUSH))
    built = time.perf_counter() - start
    start = time.perf_counter()
    u = scipy.sparse.linalg.spsolve(matrix, load)
    seconds = time.perf_counter() - start
    return [
        Row(
            "a large frame, statics",
            ours["run_s"],
            ours["compile_s"],
            peer="SciPy, spsolve",
            peer_run_s=seconds,
            peer_setup_s=built,
            answer=f"{ours['top']:.12f} m, {ours['peak_gib']:.2f} GiB",
            peer_answer=f"{np.linalg.norm(u[-6:-3]):.12f} m",
            note=NOTE.format(freedoms=structure.freedoms),
        )
    ]


if __name__ == "__main__":
    json.load(sys.stdin)
    jg.enable_x64()
    found = statics(*tower())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(found | {"peak_gib": peak}))
