"""Motions of a campaign, simulated side by side, and their differences from what was measured."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import jaxgrip as jg
from experiments.servo._campaign import Motion
from experiments.servo._sheet import UNITS, Gear
from jaxgrip.actuators import (
    Controller,
    GeneralizedMaxwell,
    Motor,
    Servo,
    ServoState,
    rigs,
    simulate_fixed,
    slewed,
)

# Samples may follow each other in so many steps, or one step take so many samples.
LONGER, SHORTER = 1.5, 0.3
# Range of the angles of an arm at rest, with noise [rad].
RESTING = 0.035
# Largest error of the angle with which a motion starts, of samples before it moves [rad].
START = 0.02
# Least travel with the torque off that tells how the motor brakes [rad].
COASTED = 0.2


class Logs(NamedTuple):
    """What p motions are given, each in s steps of its own, of which the last ones are idle.

    `h` (p, s) [s]; `input` (p, s), duties or targets [rad]; `on` and `voltage` (p, s) or None;
    `start` (p,), the angle at rest [rad]; `arm` (p, 3); `load` (p, 2); `controller` of each or
    None; `times` (p, k) of the clear samples [s].
    """

    h: Float[Array, "p s"]
    input: Float[Array, "p s"]
    on: Float[Array, "p s"] | None
    voltage: Float[Array, "p s"] | None
    start: Float[Array, " p"]
    arm: Float[Array, "p 3"]
    load: Float[Array, "p 2"]
    controller: Controller | None
    times: Float[Array, "p k"]


class Model(NamedTuple):
    """What the simulation needs besides the fitted parameters.

    `fixed` parameters; `gear`; `logs`; numbers (q,) of the motions that are `fitted`; `voltage` [V]
    of the stall torque; `substeps` of each step.
    """

    fixed: dict[str, Array]
    gear: GeneralizedMaxwell
    logs: Logs
    fitted: Int[Array, " q"]
    voltage: Float[Array, ""]
    substeps: Int[Array, ""]


def build(
    motions: list[Motion],
    ranges: dict[str, tuple[float, float]],
    gear: Gear,
    step: float,
    voltage: float,
) -> Model:
    """The model of motions in steps of about `step` [s], which end where samples are.

    **Arguments:** `ranges` of the parameters, of which the equal ones are fixed; `voltage` of the
    stall torque [V].
    """
    return Model(
        {name: jnp.asarray(low, float) for name, (low, high) in ranges.items() if low == high},
        GeneralizedMaxwell(gear.spring, gear.springs, gear.dampers),
        logs(motions, step, voltage),
        jnp.flatnonzero(jnp.asarray([not m.held_out for m in motions])),
        jnp.asarray(voltage, float),
        jnp.asarray(1),
    )


def logs(motions: list[Motion], step: float, voltage: float) -> Logs:
    """What motions are given, in steps of about `step` [s]; `voltage` where a file has none [V]."""
    nodes = [_nodes(m.input_time, step) for m in motions]
    steps = _rounded(max(map(len, nodes)) - 1)

    def padded(rows: list[np.ndarray], length: int) -> Array:
        return jnp.asarray(np.stack([np.pad(x, (0, length - len(x)), "edge") for x in rows]))

    def mean(series: list[tuple[np.ndarray, np.ndarray]]) -> Array:
        rows = [_means(*x, ends) for x, ends in zip(series, nodes, strict=True)]
        return padded(rows, steps)

    inputs = [m.input for m in motions]
    for k, m in enumerate(motions):
        if m.speed_limit is not None:
            lengths = np.diff(m.input_time, append=m.input_time[-1] + 1.0)
            inputs[k] = np.asarray(slewed(m.input[:, None], lengths, m.speed_limit)[:, 0])
    on = voltages = None
    if any(m.on is not None for m in motions):
        on = mean([(m.time, np.ones_like(m.time) if m.on is None else m.on) for m in motions])
        # Where the torque goes off within a step, it does so at its nearer end.
        on = jnp.where(on < 0.5, 0.0, 1.0)
    if motions[0].voltage is not None:
        voltages = mean([(m.time, m.voltage) for m in motions])
    elif on is not None:
        voltages = jnp.full_like(on, voltage)
    controller = None
    if motions[0].controller is not None:
        controller = jax.tree.map(lambda *x: jnp.stack(x), *(m.controller for m in motions))
    return Logs(
        padded([np.diff(n) for n in nodes], steps),
        mean([(m.input_time, x) for m, x in zip(motions, inputs, strict=True)]),
        on,
        voltages,
        jnp.asarray([start(m) for m in motions]),
        jnp.asarray([m.arm for m in motions]),
        jnp.asarray([m.load for m in motions]),
        controller,
        padded([m.time[m.clear] for m in motions], _rounded(max(np.sum(m.clear) for m in motions))),
    )


def coasts(motions: list[Motion]) -> bool:
    """Whether an arm moves while the torque is off and the angle is fitted."""
    for m in motions:
        if m.on is None or m.held_out:
            continue
        # Each time that the torque is off has its own range of angles.
        changes = np.flatnonzero(np.diff(m.on)) + 1
        for on, angle in zip(np.split(m.on, changes), np.split(m.angle, changes), strict=True):
            if on[0] == 0 and np.ptp(angle) > COASTED:
                return True
    return False


def started(model: Model, error: Float[Array, " q"]) -> Model:
    """The model whose fitted motions start `error` [rad] from where their first samples are."""
    start = model.logs.start.at[model.fitted].add(error)
    return model._replace(logs=model.logs._replace(start=start))


def residuals(
    parameters: dict[str, Array], model: Model, measured: tuple[Float[Array, " k"], ...]
) -> tuple[Float[Array, " k"], ...]:
    """Simulated minus measured angles [rad] at the first clear samples of every motion."""
    angles = simulated(parameters, model)
    pairs = zip(angles, measured, strict=True)
    return tuple(one[: len(angle)] - angle for one, angle in pairs if len(angle))


def simulated(parameters: dict[str, Array], model: Model) -> Float[Array, "p k"]:
    """Angles that the servo has at the times of the samples [rad]."""
    known = {**model.fixed, **parameters}
    if "start" in parameters:
        model = started(model, parameters["start"])
    count = len(model.logs.start)
    own = {name: jnp.broadcast_to(known[name], (count,)) for name in ("offset", "delay", "load")}

    def one(log: Logs, own: dict[str, Array]) -> Float[Array, " k"]:
        inertia, weight, damping = log.arm
        arm = rigs.Pendulum(
            inertia + own["load"] * log.load[0], weight + own["load"] * log.load[1], damping
        )
        servo = _servo(known, model, log)
        # The arm's angle is that of the servo and the offset.
        begin = log.start + own["offset"]
        targets = log.input if log.controller is None else log.input + own["offset"]
        state = _at_rest(servo, arm, begin, targets[0])
        motion = simulate_fixed(
            arm,
            servo,
            targets[:, None],
            log.h,
            on=log.on,
            q0=begin[None],
            state=jax.tree.map(lambda x: x[None], state),
            supply=log.voltage,
            substeps=model.substeps,
        )
        times = jnp.maximum(log.times - own["delay"], 0.0)
        return _between(motion.t, motion.q[:, 0], motion.qd[:, 0], times) - own["offset"]

    return jax.vmap(one)(model.logs, own)


def _servo(known: dict[str, Array], model: Model, log: Logs) -> Servo:
    gear, factor = model.gear, known["gear"]
    gear = GeneralizedMaxwell(factor * gear.spring, factor * gear.springs, factor * gear.dampers)
    numbers = {name: known[name] for name in UNITS}
    for level in ("coulomb_per_load", "stiction_per_load"):
        numbers[level] = known["load_friction"]
    controller = motor = None
    if log.voltage is not None:
        per_volt = known["stall_torque"] / model.voltage
        braking = known["winding"] * known["viscous"]
        numbers["viscous"] = known["viscous"] - braking
        motor = Motor(torque_per_volt=per_volt, back_emf=braking / per_volt, resistance=1.0)
    if log.controller is not None:
        gains = {
            name: known["gain"] * gain
            for name in ("proportional", "integral", "derivative")
            if (gain := getattr(log.controller, name)) is not None
        }
        controller = dataclasses.replace(log.controller, **gains)
    servo = jg.models.servo_ax12(**numbers, gear=gear)
    return dataclasses.replace(servo, motor=motor, controller=controller)


def _at_rest(servo: Servo, arm: rigs.Pendulum, angle: Array, target: Array) -> ServoState:
    """State in which the servo carries the arm: gear twisted and relaxed, bristles bent.

    Without a controller the duty was zero before the motion.
    """
    state, zero = servo.rest(angle), jnp.zeros_like(angle)
    carried = arm.weight * jnp.sin(angle)
    spring = servo.gear.spring
    twist = jnp.where(spring > 0, carried / jnp.where(spring > 0, spring, 1.0), 0.0)
    drive = zero
    if servo.controller is not None:
        drive = servo.stall_torque * servo.duty(state, target, 1.0, angle, zero)
    friction, most = drive - carried, servo.friction.stiction
    return state._replace(
        angle=angle + twist,
        bristle=jnp.clip(friction, -most, most),
        gear=jnp.full_like(state.gear, 1.0) * twist,
    )


def _between(t: Array, q: Array, qd: Array, times: Array) -> Array:
    """Angles [rad] at any times, by the cubic through angles and rates at the ends of steps."""
    k = jnp.clip(jnp.searchsorted(t, times, side="right") - 1, 0, len(t) - 2)
    h = t[k + 1] - t[k]
    s = jnp.clip((times - t[k]) / h, 0.0, 1.0)
    rise = q[k + 1] - q[k]
    a, b = h * qd[k] - rise, rise - h * qd[k + 1]
    return q[k] + s * (rise + (1 - s) * ((1 - s) * a + s * b))


def _rounded(length: int) -> int:
    """A length that motions of nearly the same length share, and so the compiled program."""
    return 64 * int(np.ceil(length / 64))


def _nodes(time: np.ndarray, step: float) -> np.ndarray:
    """Ends of steps: samples that are not too close, and equal parts of longer intervals."""
    nodes = [time[0]]
    for t in time[1:]:
        parts = (t - nodes[-1]) / step
        if parts < SHORTER and t < time[-1]:
            continue
        count = 1 if parts <= LONGER else int(np.ceil(parts - 1e-9))
        nodes.extend(np.linspace(nodes[-1], t, count + 1)[1:])
    return np.array(nodes)


def _means(time: np.ndarray, held: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Mean over every step of an input that is held from each sample to the next."""
    sums = np.concatenate([[0.0], np.cumsum(held[:-1] * np.diff(time))])
    return np.diff(np.interp(nodes, time, sums)) / np.diff(nodes)


def start(motion: Motion) -> float:
    """Angle at rest [rad]: the mean of those before the input changes, if the arm rests there."""
    changes = np.flatnonzero(motion.input != motion.input[0])
    until = motion.input_time[changes[0]] if changes.size else 0.0
    first = motion.angle[(motion.time <= until) & motion.clear]
    pushed = motion.controller is None and motion.input[0] != 0
    return float(first[0] if pushed or np.ptp(first) > RESTING else np.mean(first))
