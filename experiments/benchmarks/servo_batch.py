"""Many servos at once, in the source's fixed steps, against the same steps in NumPy."""

import time

import jax
import jax.numpy as jnp
import numpy as np

import jaxgrip as jg
from experiments.benchmarks.table import Row, timed
from experiments.servo import twin

CANDIDATES = 1024
# NumPy takes some of the steps, all servos at once, to limit the time.
PEER_STEPS = 200
NOTE = (
    f"{CANDIDATES} sets of eight parameters times six motions of {len(twin.TIMES)} steps of 10 ms "
    "on the pendulum rig, float64; the answer is the sum of squared angles over the peer's steps. "
    f"NumPy does the same steps for all servos at once; measured over {PEER_STEPS} steps."
)


def candidates() -> dict[str, np.ndarray]:
    """Parameters about the published ones."""
    rng = np.random.default_rng(2008)
    spread = rng.uniform(0.8, 1.25, (len(twin.TRUTH), CANDIDATES))
    return {name: value * spread[k] for k, (name, value) in enumerate(twin.TRUTH.items())}


@jax.jit
def ours(parameters: dict, duties: jax.Array) -> jax.Array:
    """Sum of squared angles of each candidate [rad²]."""
    return jax.vmap(lambda p: jnp.sum(twin.fixed_steps(p, duties) ** 2))(parameters)


def numpy_steps(p: dict[str, np.ndarray], duties: np.ndarray) -> np.ndarray:
    """The same in NumPy, the candidates on the first axis and the motions on the second."""
    h, arm, gear = twin.H, jg.models.servo_ax12_arm(), jg.models.servo_ax12().gear
    inertia_arm, weight = float(arm.inertia), float(arm.weight)
    spring = float(gear.spring)
    springs, times = np.asarray(gear.springs), np.asarray(gear.times)
    p = {name: value[:, None] for name, value in p.items()}
    damping = 2 * np.sqrt(p["stiffness"] * p["inertia"])
    lanes = np.zeros((len(damping), len(duties)))
    q, qd, angle, speed, z, acceleration = (lanes.copy() for _ in range(6))
    e = [lanes.copy() for _ in springs]
    total = np.zeros(len(damping))
    for duty in duties.T:
        total += np.sum(q * q, axis=1)
        speed = speed + h * acceleration
        angle = angle + h * speed
        level = p["coulomb"] + (p["stiction"] - p["coulomb"]) * np.exp(
            -((speed / p["stribeck_velocity"]) ** 2)
        )
        rate = p["stiffness"] * np.abs(speed) / level
        bending = p["stiffness"] * speed - rate * z
        friction = (
            z
            + damping * np.exp(-((speed / p["damping_velocity"]) ** 2)) * bending / p["stiffness"]
            + p["viscous"] * speed
        )
        decay = np.exp(-rate * h)
        z = z * decay + np.sign(speed) * level * (1 - decay)
        twist = angle - q
        torque = spring * twist
        for k, (stiffness, t) in enumerate(zip(springs, times, strict=True)):
            e[k] = np.exp(-h / t) * (e[k] + h / t * twist)
            torque = torque + stiffness * (twist - e[k])
        acceleration = (duty * p["stall_torque"] - torque - friction) / p["inertia"]
        qd = qd + h * (torque - weight * np.sin(q)) / inertia_arm
        q = q + h * qd
    return total


def main(peer_python: str) -> list[Row]:
    """One row; NumPy is here already, so the peer's interpreter is not needed."""
    duties = twin.sampled_profiles()
    parameters = candidates()
    traced = jax.tree.map(jnp.asarray, parameters)
    first, run = timed(lambda: ours(traced, duties))
    short = np.asarray(duties[:, :PEER_STEPS])
    start = time.perf_counter()
    peer = numpy_steps(parameters, short)
    peer_seconds = (time.perf_counter() - start) * duties.shape[1] / PEER_STEPS
    return [
        Row(
            f"{CANDIDATES} servos, six motions",
            run,
            first - run,
            peer="NumPy",
            peer_run_s=peer_seconds,
            answer=f"{float(ours(traced, duties[:, :PEER_STEPS]).sum()):.9f} rad²",
            peer_answer=f"{peer.sum():.9f} rad²",
            note=NOTE,
        )
    ]
