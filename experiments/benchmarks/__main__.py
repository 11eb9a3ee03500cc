"""All benchmarks in one run: `python -m experiments.benchmarks [--peer-python PATH]`."""

import argparse
import os
import platform
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

# On small matrices OpenBLAS's threads compete with XLA's; it reads this when loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jaxlib
import numpy as np
from rich.console import Console

import jaxgrip as jg
from experiments.benchmarks import (
    assembly_batch,
    dense_systems,
    fem_assembly,
    fem_dynamics,
    large_frame,
    optimal_control,
    optimal_control_batch,
    rigid_body,
    robot_motion,
    servo_arm,
    servo_batch,
    servo_search,
)
from experiments.benchmarks.table import show


def main(peer_python: str | None = None) -> int:
    """Measure everything against the peers installed in `peer_python`, and print the tables.

    None takes the running interpreter. Returns 0, or 2 where there is no such interpreter.
    """
    jg.enable_x64()
    # A cached executable would hide the compile time.
    jax.config.update("jax_enable_compilation_cache", False)
    # Fixed width, so that tables in a log keep their layout.
    console = Console(width=None if sys.stdout.isatty() else 125)
    console.print(
        f"jaxgrip {version('jaxgrip')}, jax {jax.__version__}, jaxlib {jaxlib.__version__}, "
        f"numpy {np.__version__}, Python {platform.python_version()}, float64, "
        f"{processor()}, {len(os.sched_getaffinity(0))} cores, "
        f"load {os.getloadavg()[0]:.1f} at the start",
        highlight=False,
    )
    peer = shutil.which(peer_python or sys.executable)
    if peer is None:
        console.print(f"--peer-python {peer_python}: there is no such interpreter.")
        return 2
    show("Small dense systems", dense_systems.main(peer), console)
    show("Rigid bodies", rigid_body.main(peer), console)
    show("Stiffness of solids", fem_assembly.main(peer), console)
    show("Vibration of a link", fem_dynamics.main(peer), console)
    show("Assemblies and structures", assembly_batch.main(peer), console)
    show("A large frame", large_frame.main(peer), console)
    show("Many servos at once", servo_batch.main(peer), console)
    show("Parameters of a servo", servo_search.main(peer), console)
    show("An arm with servos", servo_arm.main(peer), console)
    show("Minimum-time motion of a finger", optimal_control.main(peer), console)
    show("Fastest motion of a robot", robot_motion.main(peer), console)
    show("Many motions of a finger at once", optimal_control_batch.main(peer), console)
    return 0


def processor() -> str:
    """Model of the CPU, or of the accelerator where JAX has found one."""
    kind = jax.devices()[0].device_kind
    information = Path("/proc/cpuinfo")
    if kind != "cpu" or not information.exists():
        return kind
    models = [line for line in information.read_text().splitlines() if "model name" in line]
    return models[0].partition(":")[2].strip() if models else kind


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks", description=__doc__)
    parser.add_argument("--peer-python", help="interpreter of the environment with the peers")
    sys.exit(main(parser.parse_args().peer_python))
