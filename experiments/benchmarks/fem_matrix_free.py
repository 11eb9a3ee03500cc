"""Stiffness of a large mesh times a vector in a process of its own: times, peak memory, JSON."""

import json
import resource
import sys
import time

import jax

import jaxgrip as jg


def main():
    """Read the task on standard input, print what it took."""
    task = json.load(sys.stdin)
    jg.enable_x64()
    jax.config.update("jax_enable_compilation_cache", False)
    n = task["cells"]
    mesh = jg.fem.box_mesh(1.0, 1.0, 1.0, n, n, n)
    body = jg.fem.Body(mesh, jg.fem.Isotropic(task["E"], task["nu"], 1.0))
    start = time.perf_counter()
    apply = jg.fem.apply_stiffness.lower(body, mesh.nodes).compile()
    compiled = time.perf_counter() - start
    times = []
    for _ in range(task["repeats"]):
        start = time.perf_counter()
        jax.block_until_ready(apply(body, mesh.nodes))
        times.append(time.perf_counter() - start)
    # Kilobytes on Linux.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    answer = {"freedoms": mesh.nodes.size, "compile_s": compiled, "run_s": min(times)}
    print(json.dumps(answer | {"peak_gib": peak}))


if __name__ == "__main__":
    main()
