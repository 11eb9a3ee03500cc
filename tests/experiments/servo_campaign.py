"""Logs of servos made by a program of its own: NumPy alone, nothing of jaxgrip.

LuGre friction, a gear of a spring and Maxwell branches, position control by registers, in explicit
Runge-Kutta steps far shorter than any time constant.
"""

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

STEP = 1e-4
GRAVITY = 9.81


@dataclass(frozen=True)
class Truth:
    """Parameters of a servo, its gear, and the registers of three logs for each load."""

    name: str
    coulomb: float
    stiction: float
    viscous: float
    stiffness: float
    stribeck_velocity: float
    damping_velocity: float
    inertia: float
    stall_torque: float
    spring: float
    springs: tuple[float, ...]
    dampers: tuple[float, ...]
    arm: tuple[float, float]
    loads: tuple[tuple[float, float], ...]
    registers: tuple[dict, ...]
    sheet: dict = field(default_factory=dict)
    load_friction: float = 0.0

    EIGHT = (
        *("coulomb", "stiction", "viscous", "stiffness", "stribeck_velocity"),
        *("damping_velocity", "inertia", "stall_torque"),
    )


AX = Truth(
    "AX",
    *(0.0771550, 0.4318759, 0.2870523, 23.810246, 0.0659532, 0.8785457, 0.0180259, 1.8081276),
    *(6.352, (16.561, 1.072), (1.341, 32.598)),
    (0.006, 0.20),
    ((0.15, 0.2), (0.35, 0.2)),
    tuple({"family": "ax", "margin": 1, "slope": s, "punch": 32} for s in (16, 32, 64)),
    {"family": "AX"},
)
MX = Truth(
    "MX",
    *(0.25, 0.55, 1.6, 400.0, 0.08, 0.9, 0.025, 7.5),
    *(250.0, (150.0,), (1.5,)),
    (0.02, 0.6),
    ((0.6, 0.25), (1.2, 0.25)),
    tuple({"family": "mx", "p": p} for p in (8, 16, 32)),
    {"family": "MX"},
)
STS = Truth(
    "STS",
    *(0.08, 0.17, 0.5, 60.0, 0.12, 2.0, 0.012, 2.6),
    *(80.0, (40.0,), (0.4,)),
    (0.006, 0.20),
    ((0.25, 0.2), (0.6, 0.2)),
    tuple(
        {"family": "sts", "p": p, "dead_zone": 1, "minimum_force": 16, "torque_limit": 970}
        for p in (8, 16, 32)
    ),
    {"family": "STS"},
)
TRUTHS = {t.name: t for t in (AX, MX, STS)}


def law(registers: dict) -> tuple[float, ...]:
    """Gain [1/rad], dead band [rad], punch, its width [rad] and duty limit, from the manuals."""
    if registers["family"] == "ax":
        step, punch = math.radians(300) / 1023, registers["punch"] / 1023
        return (
            *((1 - punch) / (registers["slope"] * step), registers["margin"] * step),
            *(punch, step, 1.0),
        )
    if registers["family"] == "mx":
        return 0.158 * registers["p"], 0.0, 0.0, 1.0, 0.9625
    step = 2 * math.pi / 4096
    return (
        *(0.166 * registers["p"], registers["dead_zone"] * step),
        *(registers["minimum_force"] / 1000, step, registers["torque_limit"] / 1000),
    )


def duty(error: np.ndarray, law: np.ndarray) -> np.ndarray:
    """Duties of position controllers, `law` (5, lanes)."""
    gain, band, punch, width, limit = law
    beyond = np.sign(error) * np.maximum(np.abs(error) - band, 0.0)
    return np.clip(gain * beyond + punch * np.clip(beyond / width, -1, 1), -limit, limit)


def rates(truth: Truth, y: np.ndarray, target: np.ndarray, law: np.ndarray, arm: np.ndarray):
    """Rates of (angle, speed of the arm, angle, speed of the flywheel, bristles, dampers)."""
    q, qd, angle, speed, z, *e = y
    inertia, weight = arm
    twist = angle - q
    gear = truth.spring * twist
    flow = []
    for spring, damper, x in zip(truth.springs, truth.dampers, e, strict=True):
        gear = gear + spring * (twist - x)
        flow.append(spring * (twist - x) / damper)
    fall = truth.stiction - truth.coulomb
    level = truth.coulomb + fall * np.exp(-((speed / truth.stribeck_velocity) ** 2))
    level = level + truth.load_friction * np.abs(gear)
    bending = speed - np.abs(speed) * z / level
    damping = 2 * math.sqrt(truth.stiffness * truth.inertia)
    damping = damping * np.exp(-((speed / truth.damping_velocity) ** 2))
    friction = z + damping * bending + truth.viscous * speed
    drive = truth.stall_torque * duty(target - q, law)
    return np.stack(
        [
            qd,
            (gear - weight * np.sin(q)) / inertia,
            speed,
            (drive - gear - friction) / truth.inertia,
            truth.stiffness * bending,
            *flow,
        ]
    )


def simulate(truth, targets: np.ndarray, law: np.ndarray, arm: np.ndarray, start: np.ndarray):
    """Angles (steps + 1, lanes) of the arm under targets (steps, lanes), after a long rest."""
    y = np.zeros((5 + len(truth.springs), targets.shape[1]))
    # The spring alone carries the arm, and the bristles hold it.
    carried = arm[1] * np.sin(start)
    y[5:] = carried / truth.spring
    y[0], y[2], y[4] = start, start + carried / truth.spring, -carried
    angles = [y[0]]
    for target in targets:
        a = rates(truth, y, target, law, arm)
        b = rates(truth, y + STEP / 2 * a, target, law, arm)
        c = rates(truth, y + STEP / 2 * b, target, law, arm)
        d = rates(truth, y + STEP * c, target, law, arm)
        y = y + STEP / 6 * (a + 2 * b + 2 * c + d)
        angles.append(y[0])
    return np.array(angles)


def profile(k: int, t: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Target [rad] of a log over time: rest, then a chirp, steps, or slow and fast sines."""
    moving = np.maximum(t - 0.3, 0.0)
    if k % 3 == 0:
        return 0.9 * np.sin(2 * np.pi * (0.1 + 0.05 * moving) * moving)
    if k % 3 == 1:
        levels = np.concatenate([[0.0], rng.uniform(-1.4, 1.4, 30)])
        return levels[np.ceil(moving / 0.7).astype(int)]
    return 0.25 * np.sin(2 * np.pi * 0.3 * moving) + 0.8 * np.sin(2 * np.pi * 0.11 * moving)


@dataclass(frozen=True)
class Sensor:
    """How logs are taken: noise and resolution [rad], jitter and period [s], share of samples lost.

    `offset`, the arm's angle where the servo's is zero [rad]; `stamps`, jitter of the times
    written beside that of the samples [s].
    """

    noise: float = math.radians(0.2)
    resolution: float = math.radians(0.29)
    jitter: float = 3e-3
    period: float = 0.01
    lost: float = 0.03
    offset: float = math.radians(1.5)
    stamps: float = 0.0


def logs(truth: Truth, seeds: range, duration: float, sensor: Sensor) -> list[list[dict]]:
    """Logs of every seed, one for each load and gain: `time`, `target`, `angle`, as measured."""
    lanes, begun = [], []
    for seed in seeds:
        rng = np.random.default_rng([seed, len(truth.name)])
        for k in range(len(truth.loads) * len(truth.registers)):
            ideal = np.arange(0.0, duration, sensor.period)
            late = rng.uniform(-sensor.jitter, sensor.jitter, len(ideal))
            index = np.round(np.maximum(ideal + late, 0.0) / STEP).astype(int)
            index[0] = 0
            target = np.round(profile(k, index * STEP, rng), 5)
            held = np.repeat(target, np.diff(index, append=round(duration / STEP)))
            lanes.append((held, k))
            begun.append((index, target, rng))
    ks = [k for _, k in lanes]
    laws = np.array([law(truth.registers[k % len(truth.registers)]) for k in ks]).T
    loads = np.array([truth.loads[k // len(truth.registers)] for k in ks])
    inertia = truth.arm[0] + loads[:, 0] * loads[:, 1] ** 2
    weight = truth.arm[1] + loads[:, 0] * GRAVITY * loads[:, 1]
    # The controller acts on the servo's angle, which is that of the arm less the offset.
    targets = np.stack([held for held, _ in lanes], axis=1) + sensor.offset
    start = np.full(len(ks), sensor.offset)
    angles = simulate(truth, targets, laws, np.stack([inertia, weight]), start) - sensor.offset
    found: list[list[dict]] = []
    for lane, ((index, target, rng), k) in enumerate(zip(begun, ks, strict=True)):
        if k == 0:
            found.append([])
        kept = rng.random(len(index)) >= sensor.lost
        kept[0] = True
        clean = angles[index[kept], lane]
        noisy = clean + sensor.noise * rng.standard_normal(len(clean))
        stamp = index[kept] * STEP + sensor.stamps * rng.uniform(-1, 1, len(clean))
        found[-1].append(
            {
                "time": np.maximum.accumulate(stamp),
                "target": target[kept],
                "angle": np.round(noisy / sensor.resolution) * sensor.resolution,
                "load": truth.loads[k // len(truth.registers)],
                "registers": truth.registers[k % len(truth.registers)],
            }
        )
    return found


def write(folder: Path, truth: Truth, campaign: list[dict], gear: bool = True) -> Path:
    """The logs as files, and the configuration that fits them; returns its path."""

    def table(values: dict) -> str:
        inner = ", ".join(
            f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v}" for k, v in values.items()
        )
        return "{" + inner + "}"

    lines = ['experiment = "servo/fit"', "holdout = 0.0"]
    lines.append(f"arm = {table({'inertia': truth.arm[0], 'weight': truth.arm[1]})}")
    lines.append(f"servo = {table(truth.sheet)}")
    if gear:
        parts = {k: list(getattr(truth, k)) for k in ("springs", "dampers")}
        lines.append(f"gear = {table({'spring': truth.spring, **parts})}")
    for k, log in enumerate(campaign):
        name = f"{truth.name.lower()}_{k}.csv"
        rows = zip(log["time"], np.rad2deg(log["target"]), np.rad2deg(log["angle"]), strict=True)
        text = "time [s],target [deg],angle [deg]\n"
        text += "".join(f"{t:.5f},{u:.4f},{a:.2f}\n" for t, u, a in rows)
        (folder / name).write_text(text, encoding="utf-8")
        mass, radius = log["load"]
        lines.append(f'[[logs]]\nfile = "{name}"')
        lines.append(f"load = {table({'mass': mass, 'radius': radius})}")
        lines.append(f"controller = {table(log['registers'])}")
    path = folder / f"{truth.name.lower()}.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
