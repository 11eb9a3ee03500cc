"""A plant whose joints are driven by servos, and its motion."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.actuators._controller import Controller
from jaxgrip.actuators._servo import Servo, ServoState
from jaxgrip.actuators._supply import Supply
from jaxgrip.checks import check_function, concrete, first, numbers


class Motion(NamedTuple):
    """A motion at given times, of n coordinates of which m carry a servo.

    `t` (k,) [s]; `q` and `qd` (k, n) [rad or m, and per s]; `servo`, the states (k, m) of the
    servos, before updates of their controllers that are due; `duty` (k, m) applied from then on;
    `output_torque` (k, m) on the joints in these states [N m]; `voltage` (k,) of the supply [V], or
    None; `stats` and `result` say how the simulation went.
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


class Inputs(NamedTuple):
    """What m servos are given at a time.

    `value` (m,): duties, or targets of servos with a controller; `on` (m,): whether windings are
    closed; `voltage` of a given supply [V], None for a `Supply` or for servos without motors.
    """

    value: Array
    on: Array
    voltage: Any


class Driven(eqx.Module):
    """A plant with its servos: everything but the state."""

    plant: Callable[..., Any]
    servo: Servo
    supply: Supply | None
    joints: tuple[int, ...] | None = eqx.field(static=True)

    @property
    def sampling(self) -> Any:
        """`Sampling` of the controllers; None without one."""
        return None if self.servo.controller is None else self.servo.controller.sampling

    def at_joints(self, x: Array) -> Array:
        """Coordinates (m,) of the driven joints, out of all (n,)."""
        return x if self.joints is None else x[np.array(self.joints)]

    def to_joints(self, torque: Array, n: int) -> Array:
        """Torques (n,) on all coordinates, from those of the servos (m,)."""
        if self.joints is None:
            return torque
        return jnp.zeros(n, torque.dtype).at[np.array(self.joints)].set(torque)

    def begin(self, y: tuple, inputs: Inputs) -> tuple:
        """State at the beginning of a step, after what controllers do at times."""
        q, qd, state = y
        if state.control is None:
            return y
        state = jax.vmap(Servo.begin, in_axes=(0, 0, 0, 0, 0, 0, None))(
            self.servo,
            state,
            inputs.value,
            inputs.on,
            self.at_joints(q),
            self.at_joints(qd),
            self._unloaded(inputs),
        )
        return q, qd, state

    def next_update(self, t: Array, y: tuple) -> Array:
        """Time of the first update of a controller after those that are due at `t` [s]."""
        return t + jnp.min(jax.vmap(Controller.until_update)(self.servo.controller, y[2].control))

    def drive(self, inputs: Inputs, joints: Array, rates: Array, state: ServoState) -> tuple:
        """Duties (m,) of the servos, and the voltage [V]; None without one."""
        duty = jax.vmap(Servo.duty, in_axes=(0, 0, 0, 0, 0, 0, None))(
            self.servo, state, inputs.value, inputs.on, joints, rates, self._unloaded(inputs)
        )
        if self.supply is None:
            return duty, inputs.voltage
        return duty, self.supply.voltage(duty, state.speed, self.servo.motor)

    def _unloaded(self, inputs: Inputs) -> Any:
        return inputs.voltage if self.supply is None else self.supply.open_voltage

    def acceleration(self, q: Array, qd: Array, torque: Array) -> Array:
        """Accelerations of the plant (n,) under torques (m,) of the servos [N m]."""
        return jnp.asarray(self.plant(q, qd, self.to_joints(torque, len(q))), q.dtype)

    def rates(self, inputs: Inputs, q: Array, qd: Array, state: ServoState) -> tuple:
        """Time derivatives of coordinates, velocities and servo states."""
        joints, rates = self.at_joints(q), self.at_joints(qd)
        duty, voltage = self.drive(inputs, joints, rates, state)
        changes, torque = jax.vmap(Servo.rates, in_axes=(0, 0, 0, 0, 0, None, 0))(
            self.servo, state, duty, joints, rates, voltage, inputs.on
        )
        control = jax.vmap(Servo.control_rates)(
            self.servo, state, inputs.value, inputs.on, joints, rates
        )
        return qd, self.acceleration(q, qd, torque), changes._replace(control=control)

    def motion(self, t: Array, y: tuple, inputs: Inputs) -> Motion:
        """The motion through states (k, ...) under inputs (k, m)."""
        q, qd, state = y
        joints, rates = (jax.vmap(self.at_joints)(x) for x in (q, qd))
        torque = jax.vmap(jax.vmap(Servo.output_torque), in_axes=(None, 0, 0, 0))(
            self.servo, state, joints, rates
        )
        begun = jax.vmap(self.begin)(y, inputs)[2]
        duty, voltage = jax.vmap(self.drive)(inputs, joints, rates, begun)
        return Motion(t, q, qd, state, duty, torque, voltage, None, None)


def prepare(
    plant: Any, servo: Servo, q0: Any, qd0: Any, state: Any, joints: Any, supply: Any
) -> tuple[Driven, tuple[Array, Array, ServoState]]:
    """The driven plant with one servo for each driven joint, and its initial state."""
    given = servo.inertia.shape
    if len(given) > 1:
        raise ValueError(f"servo has an inertia of the shape {given}; it must be () or (m,).")
    if q0 is None:
        if joints is not None:
            raise ValueError("q0 is missing; with joints it must have all n coordinates.")
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
        raise ValueError(f"There are {given[0]} servos for {count} driven joints; each needs one.")
    if not given:
        servo = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), servo)
    qd0 = jnp.zeros_like(q0) if qd0 is None else numbers("qd0", qd0, (n,))
    check_function("plant", plant, (n,), q=q0, qd=qd0, tau=jnp.zeros_like(q0))
    if hasattr(plant, "inverse"):
        name = "method inverse of the plant"
        check_function(name, plant.inverse, (n,), q=q0, qd=qd0, qdd=jnp.zeros_like(q0))
    if (supply is None) != (servo.motor is None):
        raise ValueError("servo.motor and supply must be given together; only one of them is.")
    driven = Driven(plant, servo, supply if isinstance(supply, Supply) else None, joints)
    rest = jax.vmap(Servo.rest)(servo, driven.at_joints(q0))
    state = rest if state is None else _checked_state(state, rest)
    return driven, (q0, qd0, state)


def _checked_state(state: ServoState, like: ServoState) -> ServoState:
    """The state of the servos as arrays of the shapes of `like`."""
    parts = jax.tree.structure(like.control)
    if jax.tree.structure(state.control) != parts:
        raise ValueError(
            "state.control is not the state of these controllers; a state to start from is that "
            "of a motion of servos of the same parts."
        )
    mechanical = (
        numbers(f"state.{name}", getattr(state, name), getattr(like, name).shape)
        for name in ServoState._fields[:-1]
    )
    control = (
        numbers("A number of state.control", found, wanted.shape)
        for found, wanted in zip(*map(jax.tree.leaves, (state.control, like.control)), strict=True)
    )
    return ServoState(*mechanical, jax.tree.unflatten(parts, control))


def switched(name: str, on: Any, *allowed: tuple[int, ...]) -> Array:
    """Which windings are closed, as booleans; `ValueError` unless all are 0 or 1, or booleans."""
    # Booleans are no numbers elsewhere.
    on = jax.tree.map(lambda x: jnp.asarray(x, float) if _is_boolean(x) else x, on)
    on = numbers(name, on, *allowed)
    if concrete(on) and (other := ~np.isin(on, (0, 1))).any():
        raise ValueError(f"{name} is {first(on, other)}; it must be 0 or 1.")
    return on.astype(bool)


def _is_boolean(x: Any) -> bool:
    return isinstance(x, bool) or getattr(x, "dtype", None) == np.bool_


def check_duties(duties: Array, times: Array) -> None:
    """Raise `ValueError` unless duties (k, m) at times (k,) [s] lie between -1 and 1."""
    if concrete(duties) and (outside := np.argwhere(np.abs(duties) > 1)).size:
        k, joint = outside[0]
        raise ValueError(
            f"The duty of servo {joint} is {float(duties[k, joint]):g} at t = {float(times[k]):g} "
            "s; duties lie between -1 and 1: clip them where a controller saturates."
        )
