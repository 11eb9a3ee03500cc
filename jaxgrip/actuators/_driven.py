"""A plant whose joints are driven by servos, and its motion."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.actuators._servo import Servo, ServoState
from jaxgrip.actuators._supply import Supply
from jaxgrip.checks import check_function, concrete, numbers


class Motion(NamedTuple):
    """A motion at given times, of n coordinates of which m carry a servo.

    `t` (k,) [s]; `q` and `qd` (k, n) [rad or m, and per s]; `servo`, the states (k, m) of the
    servos; `duty` (k, m) applied; `output_torque` (k, m) on the joints in these states [N m];
    `voltage` (k,) of the supply [V], or None; `stats` and `result` say how the simulation went.
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


class Driven(eqx.Module):
    """A plant with its servos: everything but the state."""

    plant: Callable[..., Any]
    servo: Servo
    supply: Supply | None
    joints: tuple[int, ...] | None = eqx.field(static=True)

    def at_joints(self, x: Array) -> Array:
        """Coordinates (m,) of the driven joints, out of all (n,)."""
        return x if self.joints is None else x[np.array(self.joints)]

    def voltage(self, duty: Array, speed: Array) -> Any:
        """Voltage of the supply [V] under duties (m,) at speeds (m,) [rad/s]; None without one."""
        if self.supply is None:
            return None
        return self.supply.voltage(duty, speed, self.servo.motor)

    def acceleration(self, q: Array, qd: Array, torque: Array) -> Array:
        """Accelerations of the plant (n,) under torques (m,) of the servos [N m]."""
        if self.joints is not None:
            torque = jnp.zeros_like(q).at[np.array(self.joints)].set(torque)
        return jnp.asarray(self.plant(q, qd, torque), q.dtype)

    def rates(self, duty: Array, q: Array, qd: Array, state: ServoState) -> tuple:
        """Time derivatives of coordinates, velocities and servo states."""
        servo_rates, torque = jax.vmap(Servo.rates, in_axes=(0, 0, 0, 0, 0, None))(
            self.servo,
            state,
            duty,
            self.at_joints(q),
            self.at_joints(qd),
            self.voltage(duty, state.speed),
        )
        return qd, self.acceleration(q, qd, torque), servo_rates

    def motion(self, t: Array, y: tuple, duty: Array) -> Motion:
        """The motion through states (k, ...) under duties (k, m)."""
        q, qd, state = y
        joint, rate = (jax.vmap(self.at_joints)(x) for x in (q, qd))
        torque = jax.vmap(jax.vmap(Servo.output_torque), in_axes=(None, 0, 0, 0))(
            self.servo, state, joint, rate
        )
        voltage = None if self.supply is None else jax.vmap(self.voltage)(duty, state.speed)
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
    if (supply is None) != (servo.motor is None):
        raise ValueError("servo.motor and supply must be given together; only one of them is.")
    driven = Driven(plant, servo, supply, joints)
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


def check_duties(duties: Array, times: Array) -> None:
    """Raise `ValueError` unless duties (k, m) at times (k,) [s] lie between -1 and 1."""
    if concrete(duties) and (outside := np.argwhere(np.abs(duties) > 1)).size:
        k, joint = outside[0]
        raise ValueError(
            f"The duty of servo {joint} is {float(duties[k, joint]):g} at t = {float(times[k]):g} "
            "s; duties lie between -1 and 1: clip them where a controller saturates."
        )


def saturated(duty: Array) -> Array:
    """Duties limited to -1 to 1."""
    # At full duty the derivative of jnp.clip would be one half.
    return jnp.where(jnp.abs(duty) > 1, jnp.sign(duty), duty)
