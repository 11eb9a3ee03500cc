"""Mechanisms driven by servos, in time with error control."""

from collections.abc import Callable, Sequence
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.actuators._driven import Driven, Motion, check_duties, prepare, saturated
from jaxgrip.actuators._servo import Servo, ServoState
from jaxgrip.actuators._supply import Supply
from jaxgrip.checks import check_function, concrete, numbers
from jaxgrip.precision import require_x64
from jaxgrip.solve.integration import Solution, integrate
from jaxgrip.solve.stiff import newton_kvaerno5


def increasing(times: ArrayLike | Sequence) -> Float[Array, " k"]:
    """The times of a simulation; `ValueError` unless they are two or more and increase."""
    times = numbers("times", times)
    if times.ndim != 1 or len(times) < 2:
        raise ValueError(f"times has the shape {times.shape}; it must be (k,), k at least 2.")
    if concrete(times) and not (np.diff(times) > 0).all():
        raise ValueError("times must be increasing.")
    return times


def stiff(
    rates: Callable[..., Any],
    start: Any,
    times: Float[Array, " k"],
    args: Any,
    *,
    jumps: ArrayLike | Sequence = (),
    rtol: ArrayLike = 1e-8,
    atol: ArrayLike = 1e-10,
    max_steps: int = 100_000,
    solver: diffrax.AbstractSolver | None = None,
    adjoint: diffrax.AbstractAdjoint | None = None,
    throw: bool = True,
) -> Solution:
    """States at the times of a stiff system with friction, `rates(t, y, args)`.

    By default Kvaerno5 with full Newton steps. Steps end at the times `jumps`.

    **Raises:** as `integrate`, and `RuntimeError` when 64-bit mode is off: Newton's tolerances are
    beyond 32 bits.

    Source: own choice, by trial, of Kvaerno5 with Newton's method.
    """
    require_x64("A simulation with error control")
    return integrate(
        rates,
        newton_kvaerno5() if solver is None else solver,
        times,
        start,
        args,
        rtol=rtol,
        atol=atol,
        max_steps=max_steps,
        jumps=jumps,
        adjoint=adjoint,
        throw=throw,
    )


def _rates(t: Array, y: tuple, args: tuple) -> tuple:
    # Numbers are arguments: in a closure they would be compiled in.
    driven, command = args
    q, qd, state = y
    return driven.rates(saturated(_asked(command, t, q, qd)), q, qd, state)


def _asked(command: Callable[..., Any], t: Array, q: Array, qd: Array) -> Array:
    return jnp.asarray(command(t, q, qd), dtype=float)


def simulate(
    plant: Callable[..., Any],
    servo: Servo,
    command: Callable[..., Any],
    times: ArrayLike | Sequence,
    *,
    q0: ArrayLike | Sequence | None = None,
    qd0: ArrayLike | Sequence | None = None,
    state: ServoState | None = None,
    joints: Sequence[int] | None = None,
    supply: Supply | None = None,
    **options: Any,
) -> Motion:
    """Motion of a mechanism whose joints are driven by servos, with error control.

    **Arguments:**

    - `plant`: function `(q, qd, tau)` giving the accelerations (n,) under joint torques (n,) [N m
      or N], for example `jax.tree_util.Partial(jaxgrip.rigid.forward_dynamics, tree)`.
    - `servo`: one for all driven joints, or a stack with one for each driven joint.
    - `command`: function `(t, q, qd)` giving the duties (m,) in [-1, 1]; within `jit` larger ones
      are clipped without a report.
    - `times`: (k,) increasing [s].
    - `q0`, `qd0`: (n,) coordinates [rad or m] and rates [per s] at the first of the times; zero
      when not given, with one coordinate for each servo.
    - `state`: of the servos (m, ...); relaxed and at rest when not given.
    - `joints`: (m,) the coordinates with a servo, in the order of servos and duties; all of them
      when not given.
    - `supply`: shared by the motors of all servos.
    - `options`: `jumps`, times at which steps end [s]; `rtol` (default 1e-8), `atol` (1e-10),
      `max_steps` (100,000); `solver` and `adjoint` of diffrax; `throw`.

    **Returns:** the `Motion`; differentiable in all numbers of plant, servos, command and start,
    in reverse unless `adjoint` is `diffrax.ForwardMode()`. Within `jit` and `vmap`, and with
    `throw=False`, a motion that stops is not finite from there on, as `result` says.

    **Raises:** `ValueError` for wrong shapes, unknown joints, times not increasing,
    numbers not finite, and duties outside [-1, 1] at one of the times; `RuntimeError` when 64-bit
    mode is off, when the step limit is reached and when the motion stops being finite.

    Source: Kubisch 2008, section 4.2, pp. 33-35; own derivation of the continuous equations.
    """
    require_x64("A simulation with error control")
    times = increasing(times)
    driven, start = prepare(plant, servo, q0, qd0, state, joints, supply)
    check_function("command", command, start[2].speed.shape, t=times[0], q=start[0], qd=start[1])
    solution = stiff(_rates, start, times, (driven, command), **options)
    motion, asked = _sampled(driven, command, times, solution.ys)
    check_duties(asked, times)
    return motion._replace(stats=solution.stats, result=solution.result)


@eqx.filter_jit
def _sampled(
    driven: Driven, command: Callable[..., Any], times: Array, y: tuple
) -> tuple[Motion, Array]:
    """The motion, and the duties of the command before they are clipped."""
    asked = jax.vmap(lambda *state: _asked(command, *state))(times, y[0], y[1])
    return driven.motion(times, y, saturated(asked)), asked
