"""A space frame of 100,000 degrees of freedom, against SciPy on its matrices.

Ours runs in a process of its own, whose memory is measured: this file, with the request as JSON on
its standard input.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import scipy.sparse.linalg

import jaxgrip as jg
from experiments.benchmarks import numpy_frames
from experiments.benchmarks.table import Row, peer_json

# Columns across, their nodes, and the distance of both [m].
ACROSS, NODES, BAY = 8, 262, 3.0
PUSH = (1e5, 2e4, -5e4)
# How many frequencies.
COUNT = 10
NOTE = (
    "A tower of steel tubes, {freedoms} degrees of freedom, under a load on its top: "
    "displacements, section forces and reactions for new numbers, in a separate process; peak "
    "memory includes compilation and the elimination order. SciPy's spsolve has the same matrix; "
    "building it is its set-up. The answer is the displacement of the top."
)
FREQUENCIES_NOTE = (
    "The {count} lowest natural frequencies of the same tower with consistent mass, in a process "
    "of their own. SciPy's eigsh has the same matrices and factorises them in its own order."
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
    part = jg.fem.structures.FramePart(places, [jg.fem.structures.Beams(ends, tube)], named)
    system = jg.mechanism.System([part.part("tower")], [])
    structure = jg.fem.structures.Structure(system, {"tower": part}, supports={"tower.feet": "all"})
    return structure, jg.mechanism.start(system)


def statics(structure, poses) -> dict:
    """Times of the first solution and of one with new numbers; displacement of the top."""

    def solve(structure) -> float:
        solution = jg.fem.structures.solve(structure, poses, load)
        reaction = solution.reactions()["tower.feet"]
        jax.block_until_ready((reaction.force, solution.part("tower").beam_forces))
        return float(np.linalg.norm(solution.displacements[-1, :3]))

    load = jg.fem.structures.NodalForce("tower.top", PUSH)
    top, times = twice(solve, structure)
    return times | {"top": top}


def frequencies(structure, poses) -> dict:
    """Times of the first and of another set of frequencies, and the frequencies."""

    def solve(structure) -> list[float]:
        return np.asarray(jg.fem.structures.frequencies(structure, poses, COUNT)).tolist()

    found, times = twice(solve, structure)
    return times | {"frequencies": found}


def twice(solve: Callable[[Any], Any], structure) -> tuple[Any, dict[str, float]]:
    """What a function gives; seconds to compile it, and to run it with new numbers."""
    start = time.perf_counter()
    found = solve(structure)
    first = time.perf_counter() - start
    # New numbers, so that cached factors are not used.
    stiffer = jax.tree.map(lambda x: x * (1 + 1e-9), structure)
    start = time.perf_counter()
    solve(stiffer)
    run = time.perf_counter() - start
    return found, {"compile_s": first - run, "run_s": run}


def numpy_tower(structure) -> numpy_frames.Frame:
    """The tower for NumPy."""
    frame = structure.frames["tower"]
    own, across = _section(frame)
    nodes, ends = np.asarray(frame.nodes), frame.elements[0].ends.array
    local, weight = numpy_frames.beams(nodes, ends, own, across)
    free = np.repeat(nodes[:, 2:] > 0, 6, axis=1)
    freedoms = np.where(free, np.cumsum(free).reshape(free.shape) - 1, -1)
    none = np.zeros((0, 2), dtype=int), np.zeros(0), np.zeros(0)
    part = np.zeros(len(nodes), dtype=int)
    return numpy_frames.Frame(part, nodes, ends, local, weight, freedoms, *none)


def numpy_masses(structure) -> np.ndarray:
    """Masses of the beams of the tower, for the `local` of its `numpy_tower`."""
    frame = structure.frames["tower"]
    own, across = _section(frame)
    ends = frame.elements[0].ends.array
    return numpy_frames.masses(np.asarray(frame.nodes), ends, own, across)


def _section(frame) -> tuple[dict[str, float], np.ndarray]:
    """Numbers of the tubes by name, and their orientation."""
    section = frame.elements[0].section
    steel = section.material
    own = {"E": steel.E, "G": steel.E / 2 / (1 + steel.nu), "rho": steel.rho}
    own |= {name: getattr(section, name) for name in ("A", "Iy", "Iz", "J")}
    return {name: float(value) for name, value in own.items()}, np.asarray(section.orientation)


def main(peer_python: str) -> list[Row]:
    """Ours and SciPy's, which needs no interpreter of its own."""
    ours = {name: peer_json(sys.executable, Path(__file__), {"what": name}) for name in ANALYSES}
    for found in ours.values():
        if isinstance(found, str):
            raise RuntimeError(found)
    structure, _ = tower()
    start = time.perf_counter()
    frame = numpy_tower(structure)
    at = np.zeros((1, 3)), np.eye(3)[None], np.zeros(3)
    matrix, load = numpy_frames.equations(frame, *at, -1, np.array(PUSH))
    built = time.perf_counter() - start
    start = time.perf_counter()
    u = scipy.sparse.linalg.spsolve(matrix, load)
    statics_s = time.perf_counter() - start
    start = time.perf_counter()
    frame = frame._replace(local=numpy_masses(structure))
    mass, _ = numpy_frames.equations(frame, *at, -1, np.array(PUSH))
    built_mass = time.perf_counter() - start
    start = time.perf_counter()
    squared = scipy.sparse.linalg.eigsh(matrix, COUNT, mass, sigma=0.0, return_eigenvectors=False)
    frequencies_s = time.perf_counter() - start
    still, moving = ours["statics"], ours["frequencies"]
    return [
        Row(
            "a large frame, statics",
            still["run_s"],
            still["compile_s"],
            peer="SciPy, spsolve",
            peer_run_s=statics_s,
            peer_setup_s=built,
            answer=f"{still['top']:.12f} m, {still['peak_gib']:.2f} GiB",
            peer_answer=f"{np.linalg.norm(u[-6:-3]):.12f} m",
            note=NOTE.format(freedoms=structure.degrees_of_freedom),
        ),
        Row(
            f"a large frame, {COUNT} frequencies",
            moving["run_s"],
            moving["compile_s"],
            peer="SciPy, eigsh",
            peer_run_s=frequencies_s,
            peer_setup_s=built + built_mass,
            answer=f"{_ends(moving['frequencies'])}, {moving['peak_gib']:.2f} GiB",
            peer_answer=_ends(np.sqrt(np.sort(squared))),
            note=FREQUENCIES_NOTE.format(count=COUNT),
        ),
    ]


def _ends(frequencies) -> str:
    return f"{frequencies[0]:.9f} to {frequencies[-1]:.9f} rad/s"


ANALYSES = {"statics": statics, "frequencies": frequencies}

if __name__ == "__main__":
    analysis = ANALYSES[json.load(sys.stdin)["what"]]
    jg.enable_x64()
    found = analysis(*tower())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps(found | {"peak_gib": peak}))
