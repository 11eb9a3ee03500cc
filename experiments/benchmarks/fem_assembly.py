"""Stiffness of solids: assembly against scikit-fem, and the product with a vector without it."""

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp

import jaxgrip as jg
from experiments.benchmarks.table import Row, peer_json

CELLS = 30
MATRIX_FREE_CELLS = 69
E, NU = 210e9, 0.3
# Ours and the peer alternate, so that other work on the machine affects both.
ROUNDS = 2
REPEATS = 5
TARGET = 20.0
HERE = Path(__file__).parent
NOTE = (
    "Element matrices of {elements} hex8 with 2x2x2 points and their assembly, float64, the least "
    "of {repeats} runs; scikit-fem {version}, the least of {rounds}, its set-up the mesh and the "
    "tables of the basis."
)
MATRIX_FREE_NOTE = (
    "Stiffness times displacements, element by element, in a separate process; peak memory "
    "includes compilation. 4 GiB are allowed."
)


def assembly(peer_python: str) -> Row:
    """27000 elements, ours against scikit-fem."""
    mesh = jg.fem.box_mesh(1.0, 1.0, 1.0, CELLS, CELLS, CELLS)
    body = jg.fem.Body(mesh, jg.fem.Isotropic(E, NU, 1.0))
    start = time.perf_counter()
    stiffness = jg.fem.stiffness.lower(body).compile()
    compile_s = time.perf_counter() - start
    request = {"cells": CELLS, "E": E, "nu": NU}
    times: list[float] = []
    answers: list[dict] = []
    what = f"{CELLS**3} hex8, assembled"
    for _ in range(ROUNDS):
        for _ in range(REPEATS):
            start = time.perf_counter()
            matrix = jax.block_until_ready(stiffness(body))
            times.append(time.perf_counter() - start)
        theirs = peer_json(peer_python, HERE / "skfem_assembly.py", request)
        if isinstance(theirs, str):
            return Row(what, min(times), compile_s, note=theirs)
        answers.append(theirs)
    x, y, z = mesh.nodes.T
    u = jnp.stack([x * y, y * z, z * x + x * x], axis=1)
    energy = float(jnp.sum(u * (matrix @ u))) / 2
    error = abs(energy / answers[0]["energy"] - 1)
    return Row(
        what,
        min(times),
        compile_s,
        peer="scikit-fem",
        peer_run_s=min(answer["run_s"] for answer in answers),
        peer_setup_s=min(answer["setup_s"] for answer in answers),
        target=TARGET,
        answer=f"energy agrees to {error:.0e}",
        note=NOTE.format(
            elements=CELLS**3,
            repeats=ROUNDS * REPEATS,
            rounds=ROUNDS,
            version=answers[0]["version"],
        ),
    )


def matrix_free() -> Row:
    """A million degrees of freedom; time and peak memory."""
    request = {"cells": MATRIX_FREE_CELLS, "E": E, "nu": NU, "repeats": REPEATS}
    ours = peer_json(sys.executable, HERE / "fem_matrix_free.py", request)
    if isinstance(ours, str):
        raise RuntimeError(ours)
    return Row(
        f"{ours['freedoms']} degrees of freedom, matrix-free product",
        ours["run_s"],
        ours["compile_s"],
        answer=f"{ours['peak_gib']:.2f} GiB",
        note=MATRIX_FREE_NOTE,
    )


def main(peer_python: str) -> list[Row]:
    """Rows of ours, the assembly against scikit-fem in `peer_python`."""
    return [assembly(peer_python), matrix_free()]
