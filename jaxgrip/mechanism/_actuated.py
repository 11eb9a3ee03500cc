"""Friction and servos of joints, as forces along their coordinates.

The laws are those of `jaxgrip.actuators`. Along a displacement read N for N m and m for rad.
"""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.actuators import LuGre, Servo, ServoState, coulomb, viscous
from jaxgrip.checks import brief, non_negative, numbers, positive
from jaxgrip.joints import Frame, Joint
from jaxgrip.mechanism._forces import AlongJoint


class Friction(AlongJoint):
    """Coulomb and viscous friction of a joint, smooth: F_C tanh(rate/smoothing) + F_v rate.

    A joint that should stick creeps, at a rate below `smoothing`; `LuGreFriction` sticks.

    **Arguments:** `coulomb` F_C [N m]; `smoothing` [rad/s]; `viscous` F_v [N m s/rad].

    **Raises:** `ValueError` unless `smoothing` is positive and the others are not negative.

    Source: Kubisch 2008, eq. 2.1-2.2, pp. 9-10; own choice of the smooth form.
    """

    coulomb: Float[Array, ""]
    smoothing: Float[Array, ""]
    viscous: Float[Array, ""]
    joint: Joint | None

    def __init__(self, coulomb, smoothing, viscous=0.0, *, joint=None):
        self.coulomb = non_negative("The Coulomb level of a friction", coulomb, ())
        self.smoothing = positive("The smoothing of a friction", smoothing, ())
        self.viscous = non_negative("The viscous coefficient of a friction", viscous, ())
        self.joint = joint

    def effort_at(
        self, value: Float[Array, ""], rate: Float[Array, ""], state: Any
    ) -> tuple[Float[Array, ""], Any]:
        """Friction against the rate."""
        return -coulomb(rate, self.coulomb, self.smoothing) - viscous(rate, self.viscous), state


class LuGreFriction(AlongJoint):
    """LuGre friction of a joint; its state is the torque of the bristles [N m], zero at first.

    **Arguments:** `law`: a `jaxgrip.actuators.LuGre`. The load of the joint has no effect on it.

    **Raises:** `ValueError` for another law.

    Source: Kubisch 2008, eq. 2.5-2.19, pp. 12-15; Canudas 1995.
    """

    law: LuGre
    joint: Joint | None

    def __init__(self, law, *, joint=None):
        if not isinstance(law, LuGre):
            raise ValueError(f"The law of a friction is {brief(law)}; it must be a LuGre.")
        self.law, self.joint = law, joint

    def start(self, place: Frame) -> Float[Array, ""]:
        """Relaxed bristles."""
        return jnp.zeros_like(place.origin[0])

    def effort_at(
        self, value: Float[Array, ""], rate: Float[Array, ""], state: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Friction against the rate."""
        friction, change = self.law.rates(rate, state)
        return -friction, change

    def stored(self, place: Frame, state: Float[Array, ""]) -> Float[Array, ""]:
        """Energy of the bristles [J]."""
        return self.law.energy(state)


class ServoDrive(AlongJoint):
    """A servo that moves the coordinate of a joint towards a target.

    Its duty is tanh(gain · (target − value) − damping · rate). Its state is a `ServoState`, at
    first at rest with relaxed gear and bristles. The value counts full turns from the start on; a
    gear is never twisted by more than half a turn.

    **Arguments:** `servo`: one `jaxgrip.actuators.Servo`, without motor and controller; `gain`
    [1/rad]; `target` [rad], to which a motion may give a function of time; `damping` [s/rad].

    **Raises:** `ValueError` for another servo, a negative gain or damping, or a number that is not
    finite.

    Source: Kubisch 2008, section 4.2, pp. 33-35; own choice of the duty.
    """

    servo: Servo
    gain: Float[Array, ""]
    target: Float[Array, ""]
    damping: Float[Array, ""]
    joint: Joint | None

    parameter: ClassVar[str] = "target"

    def __init__(self, servo, gain, target=0.0, damping=0.0, *, joint=None):
        if not isinstance(servo, Servo) or servo.inertia.ndim:
            raise ValueError(f"The servo of a joint is {brief(servo)}; it must be one Servo.")
        if servo.motor is not None:
            raise ValueError(
                "The servo of a joint has a motor, which needs a supply; it must have none."
            )
        if servo.controller is not None:
            raise ValueError("The servo of a joint has a controller; it must have none.")
        self.servo = servo
        self.gain = non_negative("The gain of a servo", gain, ())
        self.target = numbers("The target of a servo", target, ())
        self.damping = non_negative("The damping of a servo", damping, ())
        self.joint = joint

    def start(self, place: Frame) -> ServoState:
        """At rest."""
        return self.servo.rest(self.joint.coordinate(place))

    def effort_at(
        self, value: Float[Array, ""], rate: Float[Array, ""], state: ServoState
    ) -> tuple[Float[Array, ""], ServoState]:
        """Torque of the gear."""
        value = self._counted(value, state)
        change, torque = self.servo.rates(state, self.duty(value, rate), value, rate)
        return torque, change

    def duty(self, value: Float[Array, ""], rate: Float[Array, ""]) -> Float[Array, ""]:
        """Duty at value [rad] and rate [rad/s] of the coordinate."""
        return jnp.tanh(self.gain * (self.target - value) - self.damping * rate)

    def stored(self, place: Frame, state: ServoState) -> Float[Array, ""]:
        """Energy of flywheel, gear and bristles [J]."""
        return self.servo.energy(state, self._counted(self.joint.coordinate(place), state))

    def _counted(self, value: Float[Array, ""], state: ServoState) -> Float[Array, ""]:
        """The coordinate within half a turn of the flywheel, which counts full turns."""
        return state.angle - self.joint.measure.wrapped(state.angle - value)
