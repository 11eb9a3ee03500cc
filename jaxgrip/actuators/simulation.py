"""Mechanisms whose joints are driven by servos, in time."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.actuators.servo import Servo, ServoState, SourceAlgorithm
from jaxgrip.actuators.supply import Supply
from jaxgrip.checks import check_shape, concrete, numbers, positive
from jaxgrip.precision import require_x64
from jaxgrip.solve.linear import LU


class Motion(NamedTuple):
    """A motion at given times, of n coordinates of which m carry a servo.

    `t` (k,) [s]; `q` and `qd` (k, n) [rad or m, and per s]; `servo`, the states (k, m) of the
    servos; `duty` (k, m) that they got; `output_torque` (k, m) on the joints in these states [N m];
    `voltage` (k,) of the supply [V], or None; `stats` and `result` of diffrax, or None for fixed
    steps.
    """

    t: Float[Array, " k"]
    q: Float[Array, "k n"]
    qd: Float[Array, "k n"]
    servo: ServoState
    duty: Float[Array, "k m"]
    output_torque: Float[Array, "k m"]
    voltage: Float[Array, " k"] | None
    stats: Any
    result: Any


class _Driven(eqx.Module):
    """A plant with its servos: everything but the state."""

    plant: Callable[..., Any]
    servo: Servo
    supply: Supply | None
    joints: tuple[int, ...] | None = eqx.field(static=True)

    def at_joints(self, x: Array) -> Array:
        return x if self.joints is None else x[np.array(self.joints)]

    def voltage(self, duty: Array, state: ServoState) -> Any:
        if self.supply is None:
            return None
        return self.supply.voltage(duty, state.speed, self.servo.motor)

    def acceleration(self, q: Array, qd: Array, torque: Array) -> Array:
        if self.joints is not None:
            torque = jnp.zeros_like(q).at[np.array(self.joints)].set(torque)
        acceleration = self.plant(q, qd, torque)
        check_shape("The result of the plant", acceleration, q.shape)
        return acceleration

    def rates(self, duty: Array, q: Array, qd: Array, state: ServoState) -> tuple:
        servo_rates, torque = jax.vmap(Servo.rates, in_axes=(0, 0, 0, 0, 0, None))(
            self.servo,
            state,
            duty,
            self.at_joints(q),
            self.at_joints(qd),
            self.voltage(duty, state),
        )
        return qd, self.acceleration(q, qd, torque), servo_rates

    def motion(self, t: Array, y: tuple, duty: Array) -> Motion:
        """The motion through states (k, ...) under duties (k, m)."""
        q, qd, state = y
        joint, rate = (jax.vmap(self.at_joints)(x) for x in (q, qd))
        torque = jax.vmap(jax.vmap(Servo.output_torque), in_axes=(None, 0, 0, 0))(
            self.servo, state, joint, rate
        )
        voltage = None if self.supply is None else jax.vmap(self.voltage)(duty, state)
        return Motion(t, q, qd, state, duty, torque, voltage, None, None)


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
) -> diffrax.Solution:
    """States at the times of a stiff system with friction, `rates(t, y, args)`.

    By default Kvaerno5 with full Newton steps: those of diffrax, with a matrix kept for the whole
    step, stall at the kink of |v|. At the times `jumps` a step ends and the next starts afresh.

    **Raises:** `RuntimeError` when 64-bit mode is off: Newton's tolerances are beyond 32 bits.

    Source: 004 section 8.2.
    """
    require_x64("A simulation with error control")
    if solver is None:
        newton = optimistix.Newton(rtol=1e-8, atol=1e-10, linear_solver=LU())
        solver = diffrax.Kvaerno5(root_finder=newton)
    controller = diffrax.PIDController(rtol=rtol, atol=atol)
    if np.size(jumps):
        controller = diffrax.ClipStepSizeController(controller, jump_ts=jnp.asarray(jumps, float))
    return diffrax.diffeqsolve(
        diffrax.ODETerm(rates),
        solver,
        times[0],
        times[-1],
        None,
        start,
        args=args,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=controller,
        adjoint=diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint,
        max_steps=max_steps,
        throw=throw,
    )


def _rates(t: Array, y: tuple, args: tuple) -> tuple:
    # Everything with numbers travels as an argument: in a closure they would be compiled in.
    driven, command = args
    q, qd, state = y
    return driven.rates(_saturated(_asked(command, t, q, qd)), q, qd, state)


def _asked(command: Callable[..., Any], t: Array, q: Array, qd: Array) -> Array:
    return jnp.asarray(command(t, q, qd), dtype=float)


def _saturated(duty: Array) -> Array:
    # The derivative of jnp.clip at a limit, where full duty is, would be a half.
    return jnp.where(jnp.abs(duty) > 1, jnp.sign(duty), duty)


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
    - `servo`: one for all driven joints, or several stacked, one a driven joint.
    - `command`: function `(t, q, qd)` giving the duties (m,) in [-1, 1]; the servos get no more,
      which `jit` cannot report.
    - `times`: (k,) increasing times at which the motion is wanted [s].
    - `q0`, `qd0`: (n,) coordinates [rad or m] and rates [per s] at the first of the times; zero
      when not given, with a coordinate for each servo.
    - `state`: of the servos (m, ...); relaxed and at rest when not given.
    - `joints`: (m,) the coordinates with a servo, in the order of servos and duties; all of them
      when not given.
    - `supply`: that the motors of all servos share.
    - `options`: for `stiff`: `jumps`, `rtol`, `atol`, `max_steps`, `solver`, `adjoint`, `throw`.

    **Returns:** the `Motion`; differentiable in all numbers of plant, servos, command and start.

    **Raises:** `ValueError` for wrong shapes, joints that are not there, times not increasing,
    numbers not finite, and duties outside [-1, 1] at one of the times; `RuntimeError` when 64-bit
    mode is off; an error from diffrax when the step limit is reached or the state stops being
    finite.

    Source: 004 section 4, the continuous model, and section 8.2.
    """
    times = increasing(times)
    driven, start = _prepare(plant, servo, q0, qd0, state, joints, supply)
    duties = jax.eval_shape(lambda: _asked(command, times[0], start[0], start[1]))
    check_shape("The result of the command", duties, start[2].speed.shape)
    solution = stiff(_rates, start, times, (driven, command), **options)
    motion, asked = _sampled(driven, command, times, solution.ys)
    _check_duties(asked, times)
    return motion._replace(stats=solution.stats, result=solution.result)


@eqx.filter_jit
def _sampled(
    driven: _Driven, command: Callable[..., Any], times: Array, y: tuple
) -> tuple[Motion, Array]:
    """The motion, and the duties that were asked for."""
    asked = jax.vmap(lambda *state: _asked(command, *state))(times, y[0], y[1])
    return driven.motion(times, y, _saturated(asked)), asked


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
) -> Motion:
    """Motion of a mechanism driven by servos in the fixed steps of the source's algorithm.

    The plant takes a semi-implicit Euler step in each. Voltages are those at the begin of a step.

    **Arguments:**

    - `plant`, `servo`, `q0`, `qd0`, `state`, `joints`, `supply`: as for `simulate`.
    - `duties`: (steps, m) in [-1, 1], each held for a step.
    - `h`: step [s].
    - `algorithm`: options of the algorithm; the source's when not given.

    **Returns:** the `Motion` at the steps + 1 times 0, h, 2 h, ...; the last duty counts twice.

    **Raises:** `ValueError` for wrong shapes, joints that are not there, a step that is not
    positive, and duties not finite or outside [-1, 1].

    Source: 004 section 4.
    """
    driven, start = _prepare(plant, servo, q0, qd0, state, joints, supply)
    duties = numbers("duties", duties)
    if duties.ndim != 2 or duties.shape[1:] != start[2].speed.shape or not len(duties):
        raise ValueError(
            f"duties has the shape {duties.shape}; it must be (steps, {len(start[2].speed)})."
        )
    h = positive("The step h", h, ())
    times = h * jnp.arange(len(duties) + 1.0)
    _check_duties(duties, times)
    algorithm = SourceAlgorithm() if algorithm is None else algorithm
    return _fixed(driven, start, duties, h, times, algorithm)


@eqx.filter_jit
def _fixed(
    driven: _Driven, start: tuple, duties: Array, h: Array, times: Array, algorithm: SourceAlgorithm
) -> Motion:
    def step(carry: tuple, duty: Array) -> tuple:
        (q, qd, state), acceleration = carry
        voltage = driven.voltage(duty, state)
        new, acceleration, torque = jax.vmap(
            lambda servo, *numbers: servo.step(*numbers, h, algorithm, voltage)
        )(driven.servo, state, acceleration, duty, driven.at_joints(q), driven.at_joints(qd))
        qd = qd + h * driven.acceleration(q, qd, torque)
        y = (q + h * qd, qd, new)
        return (y, acceleration), y

    duties = _saturated(duties)
    _, ys = jax.lax.scan(step, (start, jnp.zeros_like(start[2].speed)), duties)
    ys = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), start, ys)
    return driven.motion(times, ys, jnp.concatenate([duties, duties[-1:]]))


def _prepare(
    plant: Any, servo: Servo, q0: Any, qd0: Any, state: Any, joints: Any, supply: Any
) -> tuple[_Driven, tuple[Array, Array, ServoState]]:
    """The driven plant with one servo a driven joint, and its state at the start."""
    given = servo.inertia.shape
    if len(given) > 1:
        raise ValueError(f"servo has an inertia of the shape {given}; it must be () or (m,).")
    if q0 is None:
        if joints is not None:
            raise ValueError("With joints, q0 must say how many coordinates the plant has.")
        q0 = jnp.zeros(given or 1)
    q0 = numbers("q0", q0)
    if q0.ndim != 1:
        raise ValueError(f"q0 has the shape {q0.shape}; it must be (n,).")
    n = len(q0)
    if joints is not None:
        joints = tuple(np.asarray(joints).tolist())
        if len(set(joints)) < len(joints) or not all(joint in range(n) for joint in joints):
            raise ValueError(
                f"joints is {joints}; it must name different coordinates from 0 to {n - 1}."
            )
    count = n if joints is None else len(joints)
    if given not in ((), (count,)):
        raise ValueError(f"There are {given[0]} servos for {count} driven joints.")
    if not given:
        servo = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), servo)
    qd0 = jnp.zeros_like(q0) if qd0 is None else numbers("qd0", qd0, (n,))
    if (supply is None) != (servo.motor is None):
        raise ValueError("Servos with a motor need a supply, and a supply servos with a motor.")
    driven = _Driven(plant, servo, supply, joints)
    rest = jax.vmap(Servo.rest)(servo, driven.at_joints(q0))
    if state is None:
        state = rest
    else:
        state = ServoState(
            *(
                numbers(f"state.{name}", getattr(state, name), getattr(rest, name).shape)
                for name in ServoState._fields
            )
        )
    return driven, (q0, qd0, state)


def _check_duties(duties: Array, times: Array) -> None:
    if concrete(duties) and (outside := np.argwhere(np.abs(duties) > 1)).size:
        k, joint = outside[0]
        raise ValueError(
            f"The duty of servo {joint} is {float(duties[k, joint]):g} at t = {float(times[k]):g} "
            "s; duties lie between -1 and 1: clip them where a controller saturates."
        )
