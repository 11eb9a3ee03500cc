"""Mechanisms driven by servos in fixed steps: implicit, or those of Kubisch 2008."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.actuators._controller import Sampling, within
from jaxgrip.actuators._driven import Driven, Inputs, Motion, check_duties, prepare, switched
from jaxgrip.actuators._servo import Servo, ServoState, SourceAlgorithm
from jaxgrip.actuators._stage import Stage
from jaxgrip.actuators._supply import Supply
from jaxgrip.checks import brief, concrete, numbers, positive
from jaxgrip.solve.fusion import jit_plainly

# Alexander's diagonally implicit method of two stages, second order, L-stable.
_GAMMA = 1 - 0.5**0.5
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
    commands: ArrayLike | Sequence,
    h: ArrayLike | Sequence,
    *,
    algorithm: SourceAlgorithm | None = None,
    on: ArrayLike | Sequence | None = None,
    q0: ArrayLike | Sequence | None = None,
    qd0: ArrayLike | Sequence | None = None,
    state: ServoState | None = None,
    joints: Sequence[int] | None = None,
    supply: Supply | ArrayLike | Sequence | None = None,
    substeps: int | Array = 1,
    tolerance: ArrayLike | None = None,
    throw: bool = True,
) -> Motion:
    """Motion of a mechanism driven by servos in given steps, for batches of motions.

    Steps are implicit, of second order, and stable for bristles, gears, rotors and gains of any
    stiffness. Each motion is computed a second time in half steps; twice the difference is its
    error. Oscillations faster than a step, such as those of a stiff gear, are missing in speeds and
    torques.

    **Arguments:**

    - `plant`, `servo`, `q0`, `qd0`, `state`, `joints`: as for `simulate`.
    - `commands`: (steps, m) duties in [-1, 1], of servos with a controller its targets, each
      constant over a step.
    - `h`: (), or (steps,) of different lengths [s].
    - `algorithm`: that of Kubisch 2008, of first order, instead of the implicit steps. The plant
      takes a semi-implicit Euler step in each of its own, with the voltage at its beginning.
    - `on`: (steps, m), or (steps,) for all servos: 0 for open windings, else 1; all on when None.
    - `supply`: of servos with motors: a `Supply`, or a voltage [V], () or (steps,).
    - `substeps`: equal parts into which every step is divided. Other numbers do not compile again
      where it is traced, but then there is no reverse mode.
    - `tolerance`: largest error of a coordinate or a flywheel's angle, as a fraction of its range,
      or of a thousandth of a radian or metre if that is larger; 0.01, or 0.1 with `algorithm`.
    - `throw`: whether to raise for a larger error; otherwise, and within `jit` and `vmap`, see
      `result`.

    A controller with `sampling` updates at the beginning of the first step at its time or after it.
    Where its period is known, steps longer than it are divided; a traced period should be a
    multiple of the step.

    **Returns:** the `Motion` at the steps + 1 ends of steps from time 0 on; the last command is
    repeated. `stats["error"]` is the largest error, as a fraction; `result` says whether it is
    small enough. Within `jit` neither costs anything unless it is used.

    **Raises:** `ValueError` for wrong shapes, unknown joints, steps or `substeps` that are not
    positive, duties not finite or outside [-1, 1], controllers or open windings with `algorithm`,
    and a step that is too long; the message names one that is short enough.

    Source: Alexander 1977; Kubisch 2008, section 4.2, pp. 33-35, for `algorithm`.
    """
    driven, start = prepare(plant, servo, q0, qd0, state, joints, supply)
    name = "duties" if servo.controller is None else "targets"
    commands = numbers(name, commands)
    m = len(start[2].speed)
    if commands.ndim != 2 or commands.shape[1] != m or not len(commands):
        raise ValueError(f"{name} has the shape {commands.shape}; it must be (steps, {m}).")
    steps = len(commands)
    h = jnp.broadcast_to(positive("The step h", h, (), (steps,)), (steps,))
    if algorithm is not None and not (servo.controller is None and on is None):
        raise ValueError("The algorithm of the source has no controllers and no open windings.")
    if tolerance is None:
        tolerance = 0.01 if algorithm is None else 0.1
    tolerance = positive("tolerance", tolerance, ())
    times = jnp.concatenate([jnp.zeros(1), jnp.cumsum(h)])
    if servo.controller is None:
        check_duties(commands, times)
        commands = within(commands, 1.0)
    inputs = (driven, start, Inputs(commands, *_given(on, supply, steps, m)), h)
    # Within `jit` a new array is traced; numbers in a closure may not be.
    plain = all(map(concrete, (*jax.tree.leaves(inputs), jnp.zeros(()))))
    # With a traced number of steps one program serves all, but there is no reverse mode.
    count = jnp.asarray
    if concrete(substeps):
        if not np.asarray(substeps) >= 1:
            raise ValueError(f"substeps is {brief(substeps)}; it must be at least 1.")
        substeps, count = int(substeps), jnp.asarray if plain else int
    divided = _divided(driven.sampling, h) * substeps
    motion = _fixed(*inputs, times, algorithm, count(divided))
    numbers_alone, rest = eqx.partition(inputs, eqx.is_array)
    constant = eqx.combine(lax.stop_gradient(numbers_alone), rest)
    finer = _fixed(*constant, times, algorithm, count(2 * divided))
    error = _error(motion, finer)
    motion = motion._replace(
        stats={"error": error},
        result=RESULTS.where(error <= tolerance, RESULTS.successful, RESULTS.step_too_long),
    )
    if throw and plain and not error <= tolerance:
        raise ValueError(_too_long(inputs, times, algorithm, tolerance, error, finer, divided))
    return motion


def _given(on: Any, supply: Any, steps: int, m: int) -> tuple[Array, Array | None]:
    """Whether the servos are on (steps, m), and the voltage (steps,) if it is given."""
    if on is None:
        on = jnp.ones((steps, m), bool)
    else:
        on = switched("on", on, (steps,), (steps, m))
        on = jnp.broadcast_to(on if on.ndim == 2 else on[:, None], (steps, m))
    if supply is None or isinstance(supply, Supply):
        return on, None
    voltage = positive("The voltage of the supply", supply, (), (steps,))
    return on, jnp.broadcast_to(voltage, (steps,))


def _divided(sampling: Sampling | None, h: Array) -> int:
    """Parts of a step that are no longer than the period of a controller."""
    if sampling is None or not (concrete(sampling.period) and concrete(h)):
        return 1
    return max(1, int(np.ceil(np.max(h) / np.min(sampling.period) - 1e-6)))


def _error(motion: Motion, finer: Motion) -> Float[Array, ""]:
    """Error of the first of two motions, the second in half steps, as a fraction of its range."""
    coarse, fine = (
        lax.stop_gradient(jnp.concatenate([m.q, m.servo.angle], axis=1)) for m in (motion, finer)
    )
    difference = 2 * jnp.max(jnp.abs(coarse - fine), axis=0)
    travel = jnp.max(fine, axis=0) - jnp.min(fine, axis=0)
    return jnp.max(difference / jnp.maximum(travel, _TRAVEL))


def _too_long(
    inputs: tuple,
    times: Array,
    algorithm: Any,
    tolerance: Array,
    error: Array,
    finer: Motion,
    divided: int,
) -> str:
    h = float(np.max(inputs[3])) / divided
    share = f"{100 * float(error):.2g} %" if np.isfinite(error) else "more than any part"
    said = (
        f"The step h is {h:g} s, which makes errors of {share} of the range of an angle; at "
        f"most {100 * float(tolerance):g} % are allowed."
    )
    for halvings in range(1, _HALVINGS):
        coarse, finer = (
            finer,
            _fixed(*inputs, times, algorithm, jnp.asarray(divided * 2 ** (halvings + 1))),
        )
        if _error(coarse, finer) <= tolerance:
            what = "duty" if inputs[0].servo.controller is None else "target"
            return (
                f"{said} Steps of {h / 2**halvings:g} s are short enough: repeat every {what} "
                f"{divided * 2**halvings} times, or use simulate."
            )
    return f"{said} Steps of {h / 2**_HALVINGS:g} s are not short enough either: use simulate."


@jit_plainly
def _fixed(
    driven: Driven,
    start: tuple,
    inputs: Inputs,
    h: Array,
    times: Array,
    algorithm: SourceAlgorithm | None,
    count: int | Array,
) -> Motion:
    """The motion, all inputs constant over `count` steps of h / count."""
    advance, carry = _source(algorithm, start) if algorithm else _implicit(start)

    def over_input(carry: tuple, step: tuple) -> tuple:
        given, t, h = step

        def one(k: Any, carry: tuple) -> tuple:
            return advance(driven, carry, given, t + k * (h / count), h / count)

        carry = lax.fori_loop(0, count, one, carry)
        return carry, carry[0]

    _, ys = lax.scan(over_input, carry, (inputs, times[:-1], h))
    ys = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, ys)
    last = jax.tree.map(lambda x: jnp.concatenate([x, x[-1:]]), inputs)
    return driven.motion(times, ys, last)


def _source(algorithm: SourceAlgorithm, start: tuple) -> tuple[Callable, tuple]:
    def advance(driven: Driven, carry: tuple, given: Inputs, t: Array, h: Array) -> tuple:
        (q, qd, state), acceleration = carry
        joints, rates = driven.at_joints(q), driven.at_joints(qd)
        duty, voltage = driven.drive(given, joints, rates, state)
        new, acceleration, torque = jax.vmap(
            lambda servo, *numbers: servo.step(*numbers, h, algorithm, voltage)
        )(driven.servo, state, acceleration, duty, joints, rates)
        qd = qd + h * driven.acceleration(q, qd, torque)
        return (q + h * qd, qd, new), acceleration

    return advance, (start, jnp.zeros_like(start[2].speed))


def _implicit(start: tuple) -> tuple[Callable, tuple]:
    def advance(driven: Driven, carry: tuple, given: Inputs, t: Array, h: Array) -> tuple:
        (begun,) = carry
        begun = driven.begin(begun, given)

        def stage(carry: tuple, _: None) -> tuple:
            y, last = carry
            base = jax.tree.map(lambda a, b: a + (1 / _GAMMA - 1) * (b - a), y, last)
            step = Stage(driven, lambda q, qd: given, base, _GAMMA * h)
            return (y, step.improved(step.unknowns(last))[1]), None

        # The first stage starts from y itself, which is its `last`.
        (_, y), _ = lax.scan(stage, (begun, begun), length=2)
        return (y,)

    return advance, (start,)
