"""Fastest motions of a robot between random poses: how many are certified, and how long it takes.

`python -m experiments.benchmarks.random_poses` moves the UR5 between 20 pairs of poses, drawn
within its limits and a quarter turn of zero, with its limits of torque and speed. The first motion
compiles; the later ones need no more than other active limits ask for.
"""

import argparse
import os
import time
from pathlib import Path

# On matrices of a hundred rows OpenBLAS's threads compete with XLA's; it reads this when loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import jaxgrip as jg

UR5 = Path(__file__).parents[2] / "configs" / "robots" / "ur5.urdf"
SEED = 0


def main(robot: Path, pairs: list[int], effort: float, show_history: bool) -> None:
    """Print a line for each pair of poses."""
    jg.enable_x64()
    model = jg.rigid.read_urdf(robot)
    lower, upper = np.maximum(model.lower, -np.pi / 2), np.minimum(model.upper, np.pi / 2)
    rng = np.random.default_rng(SEED)
    poses = rng.uniform(lower, upper, (max(pairs) + 1, 2, model.tree.n))
    certified = []
    for pair in pairs:
        begin = time.perf_counter()
        motion = jg.models.fastest_motion(
            model.tree,
            *poses[pair],
            torque=model.effort,
            speed=model.velocity,
            effort=effort,
            throw=False,
        )
        wall = time.perf_counter() - begin
        stats = motion.stats
        if motion.result == jg.ocp.RESULTS.successful:
            certified.append(pair)
        print(
            f"pair {pair}: {jg.ocp.RESULTS[motion.result].split(':')[0]}, "
            f"{motion.final_time:.10f} s, {wall:.1f} s wall, "
            f"{stats['transcriptions']} transcriptions, {stats['rounds']} shootings",
            flush=True,
        )
        if show_history:
            print(*(f"    {line}" for line in stats["history"]), sep="\n")
    print(f"{len(certified)} of {len(pairs)} certified: {certified}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robot", type=Path, default=UR5, help="a URDF file with limits")
    parser.add_argument("--pairs", type=int, nargs="+", default=list(range(20)))
    parser.add_argument("--effort", type=float, default=jg.models.arm.EFFORT)
    parser.add_argument("--history", action="store_true", help="what the search tried")
    given = parser.parse_args()
    main(given.robot, given.pairs, given.effort, given.history)
