"""Inverse kinematics of robots of others: how many random reachable poses are reached, how fast.

`python -m experiments.benchmarks.inverse_kinematics FOLDER` takes robots below the folder of the
package example-robot-data, and Pinocchio's damped loop from its documentation as the peer: one
random start after another, clipped to the limits, until the pose is reached.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pinocchio as pin

import jaxgrip as jg

ROBOTS = {
    "UR5": ("ur_description/urdf/ur5_robot.urdf", "ee_link"),
    "Panda": ("panda_description/urdf/panda.urdf", "panda_hand"),
    "Talos, left arm": ("talos_data/robots/talos_reduced.urdf", "gripper_left_base_link"),
    "Allegro, four tips": (
        "allegro_hand_description/urdf/allegro_right_hand.urdf",
        ["link_3.0_tip", "link_7.0_tip", "link_11.0_tip", "link_15.0_tip"],
    ),
}


def ours(robot: jg.rigid.Import, frame: str | list[str], positions: np.ndarray, starts: int) -> str:
    """Success, worst error, times of a batch and of the compiler."""
    several = isinstance(frame, list)

    def place(q: jax.Array) -> object:
        if several:
            return [jg.rigid.frame_pose(robot.tree, q, f).translation for f in frame]
        return jg.rigid.frame_pose(robot.tree, q, frame)

    @jax.jit
    @jax.vmap
    def solve(target: object) -> jg.rigid.Reach:
        return jg.rigid.inverse_kinematics(
            robot.tree, frame, target, lower=robot.lower, upper=robot.upper, starts=starts
        )

    targets = jax.jit(jax.vmap(place))(jnp.asarray(positions))
    begin = time.perf_counter()
    program = solve.lower(targets).compile()
    compiled = time.perf_counter() - begin
    run = np.inf
    for _ in range(2):
        begin = time.perf_counter()
        found = jax.block_until_ready(program(targets))
        run = min(run, time.perf_counter() - begin)
    good = np.asarray(found.succeeded)
    worst = np.max(np.asarray(found.distance + found.angle)[good])
    return (
        f"{100 * good.mean():.3f} % of {len(good)}, worst error {worst:.1e}, "
        f"{1e6 * run / len(good):.0f} us each, compiled in {compiled:.1f} s"
    )


def peer(path: Path, frame: str, lower: np.ndarray, upper: np.ndarray, wanted: np.ndarray) -> str:
    """Success and time of Pinocchio's loop, with as many starts as it takes, 32 at most."""
    model = pin.buildModelFromUrdf(str(path))
    data, at = model.createData(), model.getFrameId(frame)
    rng = np.random.default_rng(1)
    good, first, begin = 0, 0, time.perf_counter()
    for goal_q in wanted:
        pin.framesForwardKinematics(model, data, goal_q)
        goal = data.oMf[at].copy()
        for trial in range(32):
            q = rng.uniform(lower, upper)
            for _ in range(200):
                pin.framesForwardKinematics(model, data, q)
                move = data.oMf[at].actInv(goal)
                error = pin.log6(move).vector
                if np.linalg.norm(error) < 1e-9:
                    break
                jacobian = pin.computeFrameJacobian(model, data, q, at)
                jacobian = -pin.Jlog6(move.inverse()) @ jacobian
                step = np.linalg.solve(jacobian @ jacobian.T + 1e-6 * np.eye(6), error)
                q = np.clip(q - jacobian.T @ step * 0.5, lower, upper)
            if np.linalg.norm(error) < 1e-8:
                good, first = good + 1, first + (trial == 0)
                break
    run = time.perf_counter() - begin
    return (
        f"{100 * good / len(wanted):.2f} % of {len(wanted)}, by the first start "
        f"{100 * first / len(wanted):.0f} %, {1e6 * run / len(wanted):.0f} us each"
    )


def main() -> None:
    """Print a line for every robot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--poses", type=int, default=1000)
    parser.add_argument("--starts", type=int, default=16)
    parser.add_argument("--robot", choices=ROBOTS)
    arguments = parser.parse_args()
    jg.enable_x64()
    for name, (file, frame) in ROBOTS.items():
        if arguments.robot not in (None, name):
            continue
        path = arguments.folder / file
        robot = jg.rigid.read_urdf(path)
        lower, upper = np.asarray(robot.lower), np.asarray(robot.upper)
        low, high = np.maximum(lower, -np.pi), np.minimum(upper, np.pi)
        rng = np.random.default_rng(0)
        positions = rng.uniform(low, high, (arguments.poses, robot.tree.n))
        print(f"{name}: {ours(robot, frame, positions, arguments.starts)}", flush=True)
        if isinstance(frame, str) and robot.tree.n < 10:
            print(f"  Pinocchio: {peer(path, frame, low, high, positions[:100])}", flush=True)


if __name__ == "__main__":
    main()
