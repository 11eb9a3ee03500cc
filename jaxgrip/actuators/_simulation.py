"""Mechanisms driven by servos, in time with error control."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.actuators._controller import within
from jaxgrip.actuators._driven import Inputs, Motion, check_duties, prepare, switched
from jaxgrip.actuators._servo import Servo, ServoState
from jaxgrip.actuators._stage import Stage
from jaxgrip.actuators._supply import Supply
from jaxgrip.checks import (
    check_function,
    check_times,
    concrete,
    non_negative,
    numbers,
    positive,
)
from jaxgrip.precision import require_x64
from jaxgrip.solve.fusion import jit_plainly
from jaxgrip.solve.integration import (
    Solution,
    forward_mode_explained,
    integrate,
    why_stopped,
)
from jaxgrip.solve.stiff import StagedKvaerno5, Stages, newton_kvaerno5


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
    latest: Callable[..., Any] | None = None,
    throw: bool = True,
) -> Solution:
    """States at the times of a stiff system with friction, `rates(t, y, args)`.

    By default Kvaerno5 with full Newton steps. Steps end at the times `jumps`, and at
    `latest(t, y, args)` if they begin in this state.

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
        latest=latest,
        throw=throw,
    )


_ON = "The result of the function on"


class _System(Stages):
    """A driven plant as `Stages`: the args are `Driven`, the command, `on` and the voltage."""

    def inputs(self, t: Array, q: Array, qd: Array, args: tuple) -> Inputs:
        """What the servos are given."""
        driven, command, on, voltage = args
        value = _asked(command, t, q, qd)
        if driven.servo.controller is None:
            value = within(value, 1.0)
        volts = voltage(t) if callable(voltage) else voltage
        return Inputs(
            value,
            jnp.ones_like(value, bool) if on is None else switched(_ON, on(t), value.shape),
            None if volts is None else jnp.asarray(volts, value.dtype),
        )

    def rate(self, t: Array, y: tuple, args: tuple) -> tuple:
        """Rates of coordinates, velocities and servo states."""
        q, qd, _ = y
        return args[0].rates(self.inputs(t, q, qd, args), *y)

    def explicit(self, t: Array, y: tuple, args: tuple) -> tuple:
        """The args with the numbers that functions close over as leaves."""
        driven, command, on, voltage = args
        q, qd, _ = y
        if not hasattr(driven.plant, "inverse"):
            plant = eqx.filter_closure_convert(driven.plant, q, qd, jnp.zeros_like(qd))
            driven = dataclasses.replace(driven, plant=plant)
        command = eqx.filter_closure_convert(command, t, q, qd)
        on = None if on is None else eqx.filter_closure_convert(on, t)
        if callable(voltage):
            voltage = eqx.filter_closure_convert(voltage, t)
        return driven, command, on, voltage

    def begin(self, t: Array, y: tuple, args: tuple) -> tuple:
        """The state after what controllers do at the beginning of a step."""
        return args[0].begin(y, self.inputs(t, y[0], y[1], args))

    def stage(self, t: Array, h: Array, base: tuple, args: tuple) -> Stage:
        """An implicit Euler step."""
        return Stage(args[0], lambda q, qd: self.inputs(t, q, qd, args), base, h)


def _rates(t: Array, y: tuple, args: tuple) -> tuple:
    # Numbers are arguments: in a closure they would be compiled in.
    return _System().rate(t, y, args)


def _latest(t: Array, y: tuple, args: tuple) -> Array:
    return args[0].next_update(t, y)


def _asked(command: Callable[..., Any], t: Array, q: Array, qd: Array) -> Array:
    return jnp.asarray(command(t, q, qd), dtype=float)


def simulate(
    plant: Callable[..., Any],
    servo: Servo,
    command: Callable[..., Any],
    times: ArrayLike | Sequence,
    *,
    on: Callable[..., Any] | None = None,
    q0: ArrayLike | Sequence | None = None,
    qd0: ArrayLike | Sequence | None = None,
    state: ServoState | None = None,
    joints: Sequence[int] | None = None,
    supply: Supply | ArrayLike | Callable[..., Any] | None = None,
    rtol: ArrayLike = 1e-6,
    atol: ArrayLike = 1e-8,
    **options: Any,
) -> Motion:
    """Motion of a mechanism whose joints are driven by servos, with error control.

    **Arguments:**

    - `plant`: function `(q, qd, tau)` giving the accelerations (n,) under joint torques (n,) [N m
      or N]; for a tree of rigid bodies `jaxgrip.rigid.Plant(tree)`. With a method
      `inverse(q, qd, qdd)`, which gives torques, it is faster.
    - `servo`: one for all driven joints, or a stack with one for each driven joint.
    - `command`: function `(t, q, qd)` giving the duties (m,) in [-1, 1], of servos with a
      controller its targets; within `jit` larger duties are clipped without a report.
    - `times`: (k,) increasing [s].
    - `on`: function of `t` giving (m,) 0 for servos with open windings, else 1; all on when None.
    - `q0`, `qd0`: (n,) coordinates [rad or m] and rates [per s] at the first of the times; zero
      when not given, with one coordinate for each servo.
    - `state`: of the servos (m, ...); relaxed and at rest when not given.
    - `joints`: (m,) the coordinates with a servo, in the order of servos and duties; all of them
      when not given.
    - `supply`: of servos with motors: a `Supply`, a voltage [V] or a function of `t` giving it.
    - `rtol`, `atol`: tolerances of a step.
    - `options`: `jumps`, times at which steps end [s], for commands, `on` and voltages that jump;
      `max_steps` (default 100,000); `solver` and `adjoint` of diffrax; `throw`.

    Controllers with `sampling` update at the first of the times, or when the `state` says, and
    steps end where they do. Between updates their duties are constant,
    so that the motion between two is smooth and its error is controlled as without them.

    **Returns:** the `Motion`; differentiable in all numbers of plant, servos, command and start,
    in reverse unless `adjoint` is `diffrax.ForwardMode()`. Within `jit` and `vmap`, and with
    `throw=False`, a motion that stops is not finite from there on, as `result` says.

    **Raises:** `ValueError` for wrong shapes, unknown joints, times not increasing,
    numbers not finite, duties outside [-1, 1] or `on` neither 0 nor 1 at one of the times, and a
    `solver` with controllers that have `sampling` or an integral part; `RuntimeError` when 64-bit
    mode is off, when the step limit is reached and when the motion stops being finite.

    Source: Kubisch 2008, section 4.2, pp. 33-35; own derivation of the continuous equations.
    """
    require_x64("A simulation with error control")
    times = increasing(times)
    driven, start = prepare(plant, servo, q0, qd0, state, joints, supply)
    shape = start[2].speed.shape
    check_function("command", command, shape, t=times[0], q=start[0], qd=start[1])
    if on is not None:
        check_function("function on", on, shape, switched, t=times[0])
    if options.get("solver") is not None and any(x is not None for x in start[2].control or ()):
        raise ValueError(
            "A controller with `sampling` or an integral part needs the default solver, which lets "
            "it act at the beginning of steps; leave `solver` out."
        )
    voltage = None if isinstance(supply, Supply) else supply
    if callable(voltage):
        check_function("supply", voltage, (), t=times[0])
    elif voltage is not None:
        voltage = positive("The voltage of the supply", voltage, ())
    args = driven, command, on, voltage
    tolerances = positive("rtol", rtol, ()), non_negative("atol", atol, ())
    if np.size(options.get("jumps", ())):
        options["jumps"] = check_times(options["jumps"], "jumps")
    throw = options.pop("throw", True)
    with forward_mode_explained():
        solution, motion, asked, is_on = _simulated(start, times, args, tolerances, options)
    is_okay = diffrax.is_okay(solution.result)
    if throw and concrete(is_okay) and not is_okay:
        raise RuntimeError(why_stopped(solution))
    if servo.controller is None:
        check_duties(asked, times)
    if is_on is not None:
        switched(_ON, is_on)
    return motion._replace(stats=solution.stats, result=solution.result)


# With the default options derivatives of a plant can be hundreds of times as slow in a loop.
@jit_plainly
def _simulated(
    start: tuple, times: Array, args: tuple, tolerances: tuple, options: dict[str, Any]
) -> tuple[Solution, Motion, Array, Array | None]:
    """The solution, the motion, and what command and `on` give before it is clipped or read."""
    driven, command, on, _ = args
    rtol, atol = tolerances
    if options.get("solver") is None:
        staged = StagedKvaerno5(system=_System(), rtol=rtol, atol=atol)
        options = {**options, "solver": staged}
    if driven.sampling is not None:
        options = {**options, "latest": _latest}
    found = stiff(_rates, start, times, args, rtol=rtol, atol=atol, throw=False, **options)
    # The first step begins with what controllers do at its beginning.
    found = found._replace(ys=jax.tree.map(lambda x, ys: ys.at[0].set(x), start, found.ys))
    q, qd, _ = found.ys
    asked = jax.vmap(lambda *state: _asked(command, *state))(times, q, qd)
    inputs = jax.vmap(lambda t, q, qd: _System().inputs(t, q, qd, args))(times, q, qd)
    is_on = None if on is None else jax.vmap(lambda t: jnp.asarray(on(t)))(times)
    return found, driven.motion(times, found.ys, inputs), asked, is_on
