"""One implicit Euler step of a driven plant, of which other implicit steps are made."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.actuators._driven import Driven, Inputs
from jaxgrip.actuators._friction import ImplicitFriction, LuGre
from jaxgrip.actuators._servo import Servo, ServoState
from jaxgrip.solve import dense

# Iterations over friction level, damping and speed, which depend on each other.
_SWEEPS = 3


class Linear(NamedTuple):
    """Linear equations of a stage: their `factors`, and the `reply` (x, m) to frictions."""

    factors: dense.LU
    reply: Float[Array, "x m"]


class Stage(eqx.Module):
    """An implicit Euler step of `h` [s] from the state `base`; `ask(q, qd)` gives the inputs.

    The unknowns x are the speeds (n + m,) of plant and flywheels at its end; angles, gears,
    bristles and controllers follow. Rows of a plant that has the method `inverse(q, qd, qdd)`, its
    inverse dynamics, are torques, which needs no solution of a mass matrix; those of others are
    speeds.
    """

    driven: Driven
    ask: Callable[[Array, Array], Inputs]
    base: tuple[Array, Array, ServoState]
    h: Array

    def unknowns(self, y: tuple) -> Float[Array, " x"]:
        """The unknowns of a state."""
        return jnp.concatenate([y[1], y[2].speed])

    def residual(self, x: Float[Array, " x"]) -> Float[Array, " x"]:
        """Residual of the equations, zero at the end of the step."""
        smooth, loads = self._smooth(x)
        speed = x[len(self.base[1]) :]
        friction = self._law(speed, loads).torque(speed, speed)
        return smooth + jnp.concatenate([jnp.zeros_like(self.base[1]), self._slowing() * friction])

    def state(self, x: Float[Array, " x"]) -> tuple:
        """State at the end of the step, for its unknowns."""
        joints, moved, _, (_, gear, torque) = self._servos(x)
        n = len(self.base[1])
        bristle = self._law(x[n:], torque).bristle(x[n:], x[n:])
        return joints, x[:n], moved._replace(bristle=bristle, gear=gear)

    def linear(self, x: Float[Array, " x"]) -> "Linear":
        """The equations but for the frictions, linearised about the unknowns."""
        return self._linearised(x)[0]

    def improved(
        self, x: Float[Array, " x"], linear: "Linear | None" = None
    ) -> tuple[Float[Array, " x"], tuple]:
        """Better unknowns, and the state by them.

        One Newton step solves the equations but for the frictions, in which they are linear: x =
        free − reply · friction. The frictions are then solved one by one, each with the latest
        values of the others, and finally together, so that their kinks are no obstacle.

        `linear` may be that of unknowns nearby; of these when None.
        """
        n = len(self.base[1])
        if linear is None:
            linear, smooth, loads = self._linearised(x)
        else:
            smooth, loads = self._smooth(x)
        free = x - dense.lu_solve(linear.factors, smooth)
        friction, bristle = self._frictions(free[n:], linear.reply[n:], x[n:], loads)
        x = free - linear.reply @ friction
        joints, moved, _, (_, gear, _) = self._servos(x)
        return x, (joints, x[:n], moved._replace(bristle=bristle, gear=gear))

    def _linearised(self, x: Array) -> tuple["Linear", Array, Array]:
        """The linear equations, their residual, and the torques of the gears (m,)."""
        smooth, columns, loads = jax.vmap(
            lambda e: jax.jvp(self._smooth, (x,), (e,), has_aux=True), out_axes=(None, 1, None)
        )(jnp.eye(len(x)))
        factors, slowing = dense.lu_factor(columns), self._slowing()
        still = jnp.zeros((len(x) - len(slowing), len(slowing)))
        reply = dense.lu_solve(factors, jnp.concatenate([still, jnp.diag(slowing)]))
        return Linear(factors, reply), smooth, loads

    def _slowing(self) -> Float[Array, " m"]:
        """Loss of speed of each flywheel per torque of its friction [rad/(s N m)]."""
        return self.h / self.driven.servo.inertia

    def _law(self, speed: Array, loads: Array) -> ImplicitFriction:
        return jax.vmap(LuGre.implicit, in_axes=(0, 0, 0, None, 0))(
            self.driven.servo.friction, speed, self.base[2].bristle, self.h, loads
        )

    def _servos(self, x: Array) -> tuple:
        """Coordinates and states of the servos, rates, and what `without_friction` gives."""
        driven, (q, qd, state) = self.driven, self.base
        n = len(qd)
        q, qd = q + self.h * x[:n], x[:n]
        joints, rates, inputs = driven.at_joints(q), driven.at_joints(qd), self.ask(q, qd)
        moved = state._replace(angle=state.angle + self.h * x[n:], speed=x[n:])
        control = jax.vmap(Servo.control_after, in_axes=(0, 0, 0, 0, 0, 0, None))(
            driven.servo, moved, inputs.value, inputs.on, joints, rates, self.h
        )
        moved = moved._replace(control=control)
        duty, voltage = driven.drive(inputs, joints, rates, moved)
        found = jax.vmap(Servo.without_friction, in_axes=(0, 0, 0, 0, 0, None, None, 0))(
            driven.servo, moved, duty, joints, rates, self.h, voltage, inputs.on
        )
        return q, moved, qd, found

    def _smooth(self, x: Array) -> tuple[Array, Array]:
        """Residual without friction, and the torques of the gears (m,)."""
        (_, qd, state), h = self.base, self.h
        q, _, new, (acceleration, _, torque) = self._servos(x)
        if hasattr(self.driven.plant, "inverse"):
            taken = self.driven.plant.inverse(q, new, (new - qd) / h)
            plant = jnp.asarray(taken, q.dtype) - self.driven.to_joints(torque, len(q))
        else:
            plant = new - qd - h * self.driven.acceleration(q, new, torque)
        servo = x[len(qd) :] - state.speed - h * acceleration
        return jnp.concatenate([plant, servo]), torque

    def _frictions(self, free: Array, reply: Array, v: Array, loads: Array) -> tuple[Array, Array]:
        """Frictions (m,) and bristle torques at the end, where v = free − reply · friction."""
        own, friction = jnp.diagonal(reply), self.base[2].bristle
        for _ in range(_SWEEPS):
            law = self._law(v, loads)
            v = law.speed(free - reply @ friction + own * friction, own)
            friction = law.torque(v, v)
        if len(v) > 1:
            offset, at = law.torque(jnp.zeros_like(v), v), v
            slope = law.torque(jnp.ones_like(v), v) - offset
            v = dense.solve(jnp.eye(len(v)) + reply * slope[None], free - reply @ offset)
            return law.torque(v, at), law.bristle(v, at)
        return friction, law.bristle(v, v)
