"""Mechanisms driven by servos in fixed steps: implicit, or those of Kubisch 2008."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.actuators._driven import Driven, Motion, check_duties, prepare, saturated
from jaxgrip.actuators._friction import LuGre
from jaxgrip.actuators._servo import Servo, ServoState, SourceAlgorithm
from jaxgrip.actuators._supply import Supply
from jaxgrip.checks import concrete, numbers, positive
from jaxgrip.solve import dense

# Alexander's diagonally implicit method of two stages, second order, L-stable.
_GAMMA = 1 - 0.5**0.5
# Iterations over friction level, damping and speed, which depend on each other.
_SWEEPS = 3
# Errors are fractions of the range of a coordinate, or of this if it is larger [rad or m].
_TRAVEL = 1e-3
# Most halvings of the step tried to find one that is short enough.
_HALVINGS = 10


class RESULTS(eqx.Enumeration):
    """Outcome of a simulation in fixed steps; the message says what to try."""

    successful = ""
    step_too_long = (
        "The step is too long for these servos: angles have a larger error than `tolerance`. Take "
        "shorter steps, or `simulate`."
    )


def simulate_fixed(
    plant: Callable[..., Any],
    servo: Servo,
    duties: ArrayLike | Sequence,
    h: ArrayLike,
    *,
    algorithm: SourceAlgorithm | None = None,
    q0: ArrayLike | Sequence | None = None,
    qd0: ArrayLike | Sequence | None = None,
    state: ServoState | None = None,
    joints: Sequence[int] | None = None,
    supply: Supply | None = None,
    tolerance: ArrayLike | None = None,
    throw: bool = True,
) -> Motion:
    """Motion of a mechanism driven by servos in fixed steps, for batches of motions.

    Steps are implicit, of second order, and stable for bristles, gears and rotors of any
    stiffness. Each motion is computed a second time in half steps; twice the difference is its
    error. Oscillations faster than a step, such as those of a stiff gear, are missing in speeds and
    torques.

    **Arguments:**

    - `plant`, `servo`, `q0`, `qd0`, `state`, `joints`, `supply`: as for `simulate`.
    - `duties`: (steps, m) in [-1, 1], each constant over a step.
    - `h`: step [s].
    - `algorithm`: that of Kubisch 2008, of first order, instead of the implicit steps. The plant
      takes a semi-implicit Euler step in each of its own, with the voltage at its beginning.
    - `tolerance`: largest error of a coordinate or a flywheel's angle, as a fraction of its range,
      or of a thousandth of a radian or metre if that is larger; 0.01, or 0.1 with `algorithm`.
    - `throw`: whether to raise for a larger error; otherwise, and within `jit` and `vmap`, see
      `result`.

    **Returns:** the `Motion` at the steps + 1 times 0, h, 2 h, ...; the last duty is repeated.
    `stats["error"]` is the largest error, as a fraction; `result` says whether it is small enough.
    Within `jit` neither costs anything unless it is used.

    **Raises:** `ValueError` for wrong shapes, unknown joints, a step that is not positive, duties
    not finite or outside [-1, 1], and a step that is too long; the message names one that is short
    enough.

    Source: Alexander 1977; Kubisch 2008, section 4.2, pp. 33-35, for `algorithm`.
    """
    driven, start = prepare(plant, servo, q0, qd0, state, joints, supply)
    duties = numbers("duties", duties)
    if duties.ndim != 2 or duties.shape[1:] != start[2].speed.shape or not len(duties):
        raise ValueError(
            f"duties has the shape {duties.shape}; it must be (steps, {len(start[2].speed)})."
        )
    h = positive("The step h", h, ())
    if tolerance is None:
        tolerance = 0.01 if algorithm is None else 0.1
    tolerance = positive("tolerance", tolerance, ())
    times = h * jnp.arange(len(duties) + 1.0)
    check_duties(duties, times)
    inputs = (driven, start, saturated(duties), h)
    # Within `jit` a new array is traced; numbers in a closure may not be.
    plain = all(map(concrete, (*jax.tree.leaves(inputs), jnp.zeros(()))))
    # With a traced number of steps one program serves all, but there is no reverse mode.
    count = jnp.asarray if plain else int
    motion = _fixed(*inputs, times, algorithm, count(1))
    numbers_alone, rest = eqx.partition(inputs, eqx.is_array)
    constant = eqx.combine(lax.stop_gradient(numbers_alone), rest)
    finer = _fixed(*constant, times, algorithm, count(2))
    error = _error(motion, finer)
    motion = motion._replace(
        stats={"error": error},
        result=RESULTS.where(error <= tolerance, RESULTS.successful, RESULTS.step_too_long),
    )
    if throw and plain and not error <= tolerance:
        raise ValueError(_too_long(inputs, times, algorithm, tolerance, error, finer))
    return motion


def _error(motion: Motion, finer: Motion) -> Float[Array, ""]:
    """Error of the first of two motions, the second in half steps, as a fraction of its range."""
    coarse, fine = (
        lax.stop_gradient(jnp.concatenate([m.q, m.servo.angle], axis=1)) for m in (motion, finer)
    )
    difference = 2 * jnp.max(jnp.abs(coarse - fine), axis=0)
    travel = jnp.max(fine, axis=0) - jnp.min(fine, axis=0)
    return jnp.max(difference / jnp.maximum(travel, _TRAVEL))


def _too_long(
    inputs: tuple, times: Array, algorithm: Any, tolerance: Array, error: Array, finer: Motion
) -> str:
    h = float(inputs[3])
    share = f"{100 * float(error):.2g} %" if np.isfinite(error) else "more than any part"
    said = (
        f"The step h is {h:g} s, which makes errors of {share} of the range of an angle; at "
        f"most {100 * float(tolerance):g} % are allowed."
    )
    for halvings in range(1, _HALVINGS):
        coarse, finer = finer, _fixed(*inputs, times, algorithm, jnp.asarray(2 ** (halvings + 1)))
        if _error(coarse, finer) <= tolerance:
            return (
                f"{said} Steps of {h / 2**halvings:g} s are short enough: repeat every duty "
                f"{2**halvings} times, or use simulate."
            )
    return f"{said} Steps of {h / 2**_HALVINGS:g} s are not short enough either: use simulate."


@eqx.filter_jit
def _fixed(
    driven: Driven,
    start: tuple,
    duties: Array,
    h: Array,
    times: Array,
    algorithm: SourceAlgorithm | None,
    count: int | Array,
) -> Motion:
    """The motion, every duty constant over `count` steps of h / count."""
    advance, carry = _source(algorithm, start) if algorithm else _implicit(start)

    def over_duty(carry: tuple, duty: Array) -> tuple:
        carry = lax.fori_loop(0, count, lambda _, c: advance(driven, c, duty, h / count), carry)
        return carry, carry[0]

    _, ys = lax.scan(over_duty, carry, duties)
    ys = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, ys)
    return driven.motion(times, ys, jnp.concatenate([duties, duties[-1:]]))


def _source(algorithm: SourceAlgorithm, start: tuple) -> tuple[Callable, tuple]:
    def advance(driven: Driven, carry: tuple, duty: Array, h: Array) -> tuple:
        (q, qd, state), acceleration = carry
        voltage = driven.voltage(duty, state.speed)
        new, acceleration, torque = jax.vmap(
            lambda servo, *numbers: servo.step(*numbers, h, algorithm, voltage)
        )(driven.servo, state, acceleration, duty, driven.at_joints(q), driven.at_joints(qd))
        qd = qd + h * driven.acceleration(q, qd, torque)
        return (q + h * qd, qd, new), acceleration

    return advance, (start, jnp.zeros_like(start[2].speed))


def _implicit(start: tuple) -> tuple[Callable, tuple]:
    def advance(driven: Driven, carry: tuple, duty: Array, h: Array) -> tuple:
        def stage(carry: tuple, _: None) -> tuple:
            y, last = carry
            base = jax.tree.map(lambda a, b: a + (1 / _GAMMA - 1) * (b - a), y, last)
            return (y, _euler(driven, base, last, duty, _GAMMA * h)), None

        # The first stage starts from y itself, which is its `last`.
        (_, y), _ = lax.scan(stage, (*carry, *carry), length=2)
        return (y,)

    return advance, (start,)


def _euler(driven: Driven, base: tuple, guess: tuple, duty: Array, h: Array) -> tuple:
    """State at the end of an implicit Euler step from `base`, linearised about `guess`.

    The unknowns are the speeds x of plant and flywheels; angles, gears and bristles follow. One
    Newton step solves for them, linear in the frictions: x = free − reply · friction. The frictions
    are then solved one by one, each with the latest values of the others, and finally together.
    """
    q, qd, state = base
    n, h_over_inertia = len(qd), h / driven.servo.inertia

    def servos(x: Array) -> tuple[Array, ServoState, tuple]:
        joints, speeds = q + h * x[:n], x[n:]
        moved = state._replace(angle=state.angle + h * speeds, speed=speeds)
        found = jax.vmap(Servo.without_friction, in_axes=(0, 0, 0, 0, 0, None, None))(
            driven.servo,
            moved,
            duty,
            driven.at_joints(joints),
            driven.at_joints(x[:n]),
            h,
            driven.voltage(duty, speeds),
        )
        return joints, moved, found

    def residual(x: Array) -> tuple[Array, Array]:
        joints, _, (acceleration, _, torque) = servos(x)
        plant = driven.acceleration(joints, x[:n], torque)
        start = jnp.concatenate([qd, state.speed])
        return x - start - h * jnp.concatenate([plant, acceleration]), torque

    at = jnp.concatenate([guess[1], guess[2].speed])
    residuals, columns, loads = jax.vmap(
        lambda e: jax.jvp(residual, (at,), (e,), has_aux=True), out_axes=(None, 1, None)
    )(jnp.eye(len(at)))
    impulses = jnp.concatenate([jnp.zeros((n, len(h_over_inertia))), jnp.diag(h_over_inertia)])
    replies = dense.solve(columns, jnp.concatenate([residuals[:, None], impulses], axis=1))
    free, reply = at - replies[:, 0], replies[:, 1:]
    friction, bristle = _frictions(
        driven.servo.friction, free[n:], reply[n:], at[n:], state.bristle, h, loads
    )
    x = free - reply @ friction
    joints, moved, (_, gear, _) = servos(x)
    return joints, x[:n], moved._replace(bristle=bristle, gear=gear)


def _frictions(
    laws: LuGre, free: Array, reply: Array, v: Array, z: Array, h: Array, loads: Array
) -> tuple[Array, Array]:
    """Frictions (m,) and bristle torques at the end of a step, where v = free − reply · friction.

    `v`, a first guess; `z`, the bristle torques at the beginning of the step.
    """
    own, friction = jnp.diagonal(reply), z
    for _ in range(_SWEEPS):
        law = jax.vmap(LuGre.implicit, in_axes=(0, 0, 0, None, 0))(laws, v, z, h, loads)
        v = law.speed(free - reply @ friction + own * friction, own)
        friction = law.torque(v, v)
    if len(v) > 1:
        offset, at = law.torque(jnp.zeros_like(v), v), v
        slope = law.torque(jnp.ones_like(v), v) - offset
        v = dense.solve(jnp.eye(len(v)) + reply * slope[None], free - reply @ offset)
        return law.torque(v, at), law.bristle(v, at)
    return friction, law.bristle(v, v)
