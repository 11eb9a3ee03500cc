"""An arm with a stiff servo in each of six joints, against SciPy.

`python -m experiments.benchmarks.servo_arm [FILE.urdf]` for another robot.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from rich.console import Console
from scipy.integrate import solve_ivp

import jaxgrip as jg
from experiments.benchmarks.table import Row, show, timed
from jaxgrip.actuators import Controller, GeneralizedMaxwell, LuGre, Servo

ROBOT = Path(__file__).parents[2] / "configs" / "robots" / "ur5.urdf"
SECONDS, STEP = 1.5, 5e-3
# A servo of 30 kg cm with a metal gear; of a UR5 all its torques are 60 times as large.
SCALES = {"ur5": 60.0}
FRICTION = {
    "coulomb": 0.06,
    "stiction": 0.09,
    "viscous": 0.6,
    "stiffness": 1e3,
    "stribeck_velocity": 0.1,
    "damping_velocity": 0.5,
}
INERTIA, STALL_TORQUE, GAIN = 0.028, 2.9, 5.0
SPRING, BRANCH, BRANCH_DAMPER = 300.0, 100.0, 1.0
TURN = 0.5
NOTE = (
    f"{SECONDS} s of a step of all targets by {TURN} rad; each joint has a servo with LuGre "
    "friction, an elastic gear and proportional control, {} states in all. SciPy's BDF has the "
    "same equations, written out anew, with the compiled accelerations of the arm, and differences "
    "for its Jacobians; error: the largest of all angles at 16 times, against rtol = 1e-10."
)


def arm_of(path: Path) -> tuple[jg.models.ServoRobot, float]:
    """The robot with its servos, and the factor of their torques."""
    scale = SCALES.get(path.stem, 1.0)
    torques = ("coulomb", "stiction", "viscous", "stiffness")
    friction = {k: v * (scale if k in torques else 1.0) for k, v in FRICTION.items()}
    servo = Servo(
        LuGre.from_inertia(inertia=INERTIA * scale, **friction),
        GeneralizedMaxwell(SPRING * scale, (BRANCH * scale,), (BRANCH_DAMPER * scale,)),
        INERTIA * scale,
        STALL_TORQUE * scale,
        controller=Controller.position(GAIN),
    )
    return jg.models.with_servos(jg.rigid.read_urdf(path), servo), scale


def towards(goal: jax.Array, t: jax.Array, q: jax.Array, qd: jax.Array) -> jax.Array:
    """Constant targets."""
    return goal


def scipy_motion(arm: jg.models.ServoRobot, scale: float, goal: np.ndarray, rtol: float) -> tuple:
    """Angles (n, 16) by SciPy's BDF, and its seconds."""
    n, start = len(goal), np.asarray(arm.start)
    f = {**FRICTION}
    damping = 2 * np.sqrt(f["stiffness"] * INERTIA)
    limit = np.asarray(arm.servo.controller.duty_limit)
    tree = arm.plant.tree
    accelerations = jax.jit(lambda q, qd, tau: jg.rigid.forward_dynamics(tree, q, qd, tau))

    def rates(t: float, x: np.ndarray) -> np.ndarray:
        q, qd, angle, speed, z, e = x.reshape(6, n)
        duty = np.clip(GAIN * (goal - q), -limit, limit)
        twist = angle - q
        torque = SPRING * twist + BRANCH * (twist - e)
        level = f["coulomb"] + (f["stiction"] - f["coulomb"]) * np.exp(
            -((speed / f["stribeck_velocity"]) ** 2)
        )
        bending = speed - np.abs(speed) * z / level
        faded = damping * np.exp(-((speed / f["damping_velocity"]) ** 2))
        drag = z + faded * bending + f["viscous"] * speed
        own = (STALL_TORQUE * duty - torque - drag) / INERTIA
        qdd = np.asarray(accelerations(q, qd, scale * torque))
        slow = (twist - e) * BRANCH / BRANCH_DAMPER
        return np.concatenate([qd, qdd, speed, own, f["stiffness"] * bending, slow])

    x = np.concatenate([start, np.zeros(n), start, np.zeros(3 * n)])
    rates(0.0, x)
    begun = time.perf_counter()
    found = solve_ivp(
        rates,
        (0.0, SECONDS),
        x,
        method="BDF",
        rtol=rtol,
        atol=1e-2 * rtol,
        t_eval=np.linspace(0.0, SECONDS, 16),
    )
    return found.y[:n], time.perf_counter() - begun


def main(peer_python: str, path: Path = ROBOT) -> list[Row]:
    """Rows of both kinds of steps; SciPy is here already."""
    arm, scale = arm_of(path)
    goal = arm.start + TURN
    times = np.linspace(0.0, SECONDS, 16)
    command = Partial(towards, goal)
    finest = arm.simulate(command, times, rtol=1e-10, atol=1e-12, max_steps=10**6)
    exact = finest.q
    states = sum(x[0].size for x in jax.tree.leaves((finest.q, finest.qd, finest.servo)))
    theirs, peer_run = scipy_motion(arm, scale, np.asarray(goal), 1e-6)
    jax.clear_caches()
    rows = []
    steps = round(SECONDS / STEP)
    targets = jnp.broadcast_to(goal, (steps, len(goal)))
    for who, run in (
        ("error control", lambda: arm.simulate(command, times).q),
        (f"steps of {1e3 * STEP:g} ms", lambda: arm.simulate_fixed(targets, STEP, throw=False).q),
    ):
        first, each = timed(run)
        q = run()[:: 1 if who == "error control" else steps // 15]
        rows.append(
            Row(
                f"{len(goal)} joints",
                each,
                compile_s=first - each,
                who=f"jaxgrip, {who}",
                peer="SciPy",
                peer_run_s=peer_run,
                answer=f"error {float(jnp.max(jnp.abs(q - exact))):.1e} rad",
                peer_answer=f"error {np.max(np.abs(theirs.T - exact)):.1e} rad",
                note=NOTE.format(states),
            )
        )
    return rows


if __name__ == "__main__":
    jg.enable_x64()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=ROBOT)
    show("An arm with servos", main("", parser.parse_args().file), Console(width=125))
