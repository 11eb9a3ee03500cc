"""The elastic-gear servo: a flywheel with friction behind a visco-elastic gear."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.actuators._backlash import backlash
from jaxgrip.actuators._controller import Controller, ControlState, Drive, if_on, within
from jaxgrip.actuators._friction import LuGre
from jaxgrip.actuators._supply import Motor
from jaxgrip.actuators._viscoelastic import GeneralizedMaxwell
from jaxgrip.checks import brief, non_negative, positive


class ServoState(NamedTuple):
    """State of a servo, or its rates.

    `angle` θ [rad] and `speed` Ω [rad/s] of the flywheel, referred to the output; `bristle` z, the
    torque of the friction's bristles [N m]; `gear` (K,), the twists of the dampers of the gear
    [rad]; `control`, the `ControlState` of its controller, None without one. With several servos
    each has a leading axis.
    """

    angle: Any
    speed: Any
    bristle: Any
    gear: Any
    control: Any = None


class SourceAlgorithm(eqx.Module):
    """The fixed-step algorithm of Kubisch 2008, with options for what the text leaves open.

    **Arguments:**

    - `integrator`: "semi_implicit", where the flywheel's angle follows from its new speed, or
      "explicit", where it follows from the old one. The speed follows from the acceleration of
      the step before in both.
    - `gear`: "source", the recursion (2.33), or the exact ones for a twist held constant, "zoh",
      or linear, "foh", over a step.
    - `old`: whether the friction torque comes from the bristle before its step, or after.
    - `substeps`: steps of the servo within one of the plant, during which the
      joint moves at constant rate; the plant gets the mean torque.

    **Raises:** `ValueError` for an unknown option.

    Source: Kubisch 2008, section 4.2, pp. 33-35.
    """

    integrator: str = eqx.field(static=True, default="semi_implicit")
    gear: str = eqx.field(static=True, default="source")
    old: bool = eqx.field(static=True, default=True)
    substeps: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        for name, allowed in (
            ("integrator", ("semi_implicit", "explicit")),
            ("gear", ("source", "zoh", "foh")),
        ):
            if getattr(self, name) not in allowed:
                options = " or ".join(map(repr, allowed))
                raise ValueError(f"{name} is {brief(getattr(self, name))}; it must be {options}.")
        if not (isinstance(self.substeps, int) and self.substeps >= 1):
            raise ValueError(
                f"substeps is {brief(self.substeps)}; it must be a whole number, at least 1."
            )


class Servo(eqx.Module):
    """A servo with LuGre friction, an elastic gear and, if wanted, backlash, motor and controller.

    The command is a duty from -1 to 1, or, with a `controller`, its target. The torque at the
    flywheel is duty times stall torque, so a torque u [N m] is the duty u/M_max, or, with a
    `motor`, that of the motor at the voltage of its supply. The gear's torque acts on the output
    joint and back on the flywheel; it is the friction's load.

    A servo that is off has an open winding: no current flows and no torque acts. At duty zero the
    winding is closed, and a motor brakes with its back-EMF. Without a `motor` there is no
    difference, as the back-EMF is part of the viscous friction then.

    **Arguments:**

    - `friction`: of flywheel and gear train.
    - `gear`: visco-elastic model of the gear, twist [rad] to torque [N m].
    - `inertia`: J of rotor and gear train referred to the output [kg m^2].
    - `stall_torque`: M_max, the torque at duty 1 [N m].
    - `backlash`: play of the gear [rad], none when not given; `backlash_corner`, the radius
      of its rounded corners [rad].
    - `motor`: for servos on a supply; then `stall_torque` has no effect.
    - `controller`: a `Controller`.

    **Raises:** `ValueError` for numbers that are not finite or not positive, and for a controller
    of currents without a motor.

    Source: Kubisch 2008, section 4.2.1, p. 33.
    """

    friction: LuGre
    gear: GeneralizedMaxwell
    inertia: Float[Array, ""]
    stall_torque: Float[Array, ""]
    backlash: Float[Array, ""] | None
    backlash_corner: Float[Array, ""] | None
    motor: Motor | None
    controller: Controller | None

    def __init__(
        self,
        friction,
        gear,
        inertia,
        stall_torque,
        *,
        backlash=None,
        backlash_corner=1e-4,
        motor=None,
        controller=None,
    ):
        self.friction = friction
        self.gear = gear
        self.inertia = positive("The inertia J of the servo", inertia, ())
        self.stall_torque = positive("The stall torque M_max", stall_torque, ())
        self.backlash = self.backlash_corner = None
        if backlash is not None:
            self.backlash = non_negative("The backlash", backlash, ())
            self.backlash_corner = positive("The backlash's corner", backlash_corner, ())
        if controller is not None and controller.needs_motor and motor is None:
            raise ValueError("A controller that gives or limits a current needs a motor.")
        self.motor, self.controller = motor, controller

    def rest(self, angle: Float[Array, ""]) -> ServoState:
        """State at rest with relaxed gear and bristles, at the output's angle [rad]."""
        angle = jnp.asarray(angle, float)
        zero = jnp.zeros_like(angle)
        control = None if self.controller is None else self.controller.start()
        return ServoState(angle, zero, zero, jnp.zeros_like(self.gear.springs), control)

    def begin(
        self,
        state: ServoState,
        target: Float[Array, ""],
        on: Any,
        angle: Float[Array, ""],
        rate: Float[Array, ""],
        voltage: Any = None,
    ) -> ServoState:
        """State at the beginning of a step, after what its controller does at times, not between.

        **Arguments:** as for `duty`.
        """
        control = state.control
        if self.controller is None:
            return state
        if self.controller.sampling is not None:
            drive = Drive(self.motor, voltage, state.speed)
            control = self.controller.updated(control, on, target, angle, rate, drive)
        elif control.integral is not None:
            control = control._replace(integral=if_on(on, control.integral))
        return state._replace(control=control)

    def duty(
        self,
        state: ServoState,
        target: Float[Array, ""],
        on: Any,
        angle: Float[Array, ""],
        rate: Float[Array, ""],
        voltage: Any = None,
    ) -> Float[Array, ""]:
        """Duty for a target, or for a duty without a controller, within its limits.

        **Arguments:** `state`; `target`; `on`, whether the winding is closed; `angle` [rad] and
        `rate` [rad/s] of the output joint; `voltage` of the supply without load [V].
        """
        if self.controller is None:
            return if_on(on, within(target, 1.0))
        if self.controller.sampling is not None:
            return if_on(on, self.controller.sampling.applied(state.control.held))
        drive = Drive(self.motor, voltage, state.speed)
        duty = self.controller.duty(state.control.integral, target, angle, rate, drive)
        return if_on(on, duty)

    def control_rates(
        self,
        state: ServoState,
        target: Float[Array, ""],
        on: Any,
        angle: Float[Array, ""],
        rate: Float[Array, ""],
    ) -> ControlState | None:
        """Rates of the controller's state between the beginnings of steps."""
        if self.controller is None:
            return None
        still = jax.tree.map(jnp.zeros_like, state.control)
        if self.controller.sampling is not None:
            return still._replace(wait=-jnp.ones_like(still.wait))
        if still.integral is None:
            return still
        error = self.controller.error(target, angle, rate)
        change = self.controller.integral_rate(state.control.integral, error)
        return still._replace(integral=if_on(on, change))

    def control_after(
        self,
        state: ServoState,
        target: Float[Array, ""],
        on: Any,
        angle: Float[Array, ""],
        rate: Float[Array, ""],
        h: Any,
    ) -> ControlState | None:
        """Its controller's state at the end of an implicit Euler step of `h` [s]."""
        control = state.control
        if self.controller is None:
            return None
        if self.controller.sampling is not None:
            return control._replace(wait=control.wait - h)
        if control.integral is None:
            return control
        error = self.controller.error(target, angle, rate)
        integral = self.controller.integrated(control.integral, error, h)
        return control._replace(integral=if_on(on, integral))

    def motor_torque(
        self,
        duty: Float[Array, ""],
        speed: Float[Array, ""],
        voltage: Any = None,
        on: Any = True,
    ) -> Float[Array, ""]:
        """Torque at the flywheel [N m] for a duty, at its speed [rad/s] and a voltage [V].

        `on`: whether the winding is closed.
        """
        if self.motor is None:
            return if_on(on, duty * self.stall_torque)
        if voltage is None:
            raise ValueError("A servo with a motor needs the voltage of its supply; give a supply.")
        return if_on(on, self.motor.torque(duty, voltage, speed))

    def _play(self, twist: Array, rate: Array) -> tuple[Array, Array, Array]:
        """Twist of the gear itself, its rate, and the transmitted share of its torque.

        The share is the derivative of the gear's twist by the whole twist, so that power is
        conserved.
        """
        if self.backlash is None:
            return twist, rate, jnp.ones_like(twist)
        twist, share = jax.jvp(
            lambda twist: backlash(twist, self.backlash, self.backlash_corner),
            (twist,),
            (jnp.ones_like(twist),),
        )
        return twist, share * rate, share

    def output_torque(
        self, state: ServoState, angle: Float[Array, ""], speed: Float[Array, ""]
    ) -> Float[Array, ""]:
        """Torque of the gear on the output joint [N m], at its angle [rad] and rate [rad/s]."""
        return self._through(state, angle, speed)[2]

    def _through(
        self, state: ServoState, angle: Float[Array, ""], speed: Float[Array, ""]
    ) -> tuple[Array, Array, Array]:
        """Twist of the gear itself [rad], its rate, and the transmitted torque [N m]."""
        twist, rate, share = self._play(state.angle - angle, state.speed - speed)
        return twist, rate, share * self.gear.torque(twist, state.gear, rate)

    def rates(
        self,
        state: ServoState,
        duty: Float[Array, ""],
        angle: Float[Array, ""],
        speed: Float[Array, ""],
        voltage: Any = None,
        on: Any = True,
    ) -> tuple[ServoState, Float[Array, ""]]:
        """Rates of the state but for its controller's, and the torque on the output joint [N m].

        **Arguments:** `state`; `duty` in [-1, 1]; `angle` [rad] and `speed` [rad/s] of the output
        joint; `voltage` [V] of a servo with a motor; `on`, whether the winding is closed.

        Source: own derivation: the algorithm of Kubisch 2008, section 4.2, in continuous time.
        """
        twist, _, torque = self._through(state, angle, speed)
        friction, bristle = self.friction.rates(state.speed, state.bristle, torque)
        drive = self.motor_torque(duty, state.speed, voltage, on)
        rates = ServoState(
            state.speed,
            (drive - torque - friction) / self.inertia,
            bristle,
            self.gear.rates(twist, state.gear),
        )
        return rates, torque

    def step(
        self,
        state: ServoState,
        acceleration: Float[Array, ""],
        duty: Float[Array, ""],
        angle: Float[Array, ""],
        speed: Float[Array, ""],
        h: Any,
        algorithm: SourceAlgorithm | None = None,
        voltage: Any = None,
    ) -> tuple[ServoState, Float[Array, ""], Float[Array, ""]]:
        """One step of the algorithm of Kubisch 2008.

        **Arguments:** `state` and `acceleration` [rad/s^2] of the flywheel after the step before,
        the latter zero at first; `duty`; `angle` [rad] and `speed` [rad/s] of the
        output joint at the beginning of the step; `h`, the step [s]; `algorithm`, its options;
        `voltage` [V] of a servo with a motor.

        **Returns:** the new state and acceleration, and the torque on the output joint [N m]
        during this step.

        Source: Kubisch 2008, section 4.2, pp. 33-35.
        """
        algorithm = SourceAlgorithm() if algorithm is None else algorithm
        dt = h / algorithm.substeps

        def substep(carry: tuple[ServoState, Array], k: Any) -> tuple[tuple, Array]:
            old, acceleration = carry
            new_speed = old.speed + dt * acceleration
            semi_implicit = algorithm.integrator == "semi_implicit"
            new_angle = old.angle + dt * (new_speed if semi_implicit else old.speed)
            joint = angle + k * dt * speed
            rate = new_speed - speed
            twist, gear_rate, share = self._play(new_angle - joint, rate)
            before = twist
            if algorithm.gear == "foh":
                before, _, _ = self._play(old.angle - joint + dt * speed, rate)
            gear = self.gear.step(old.gear, before, twist, dt, scheme=algorithm.gear)
            torque = share * self.gear.torque(twist, gear, gear_rate)
            friction, bristle = self.friction.step(
                new_speed, old.bristle, dt, torque, old=algorithm.old
            )
            drive = self.motor_torque(duty, new_speed, voltage)
            new = ServoState(new_angle, new_speed, bristle, gear)
            return (new, (drive - torque - friction) / self.inertia), torque

        if algorithm.substeps == 1:
            (state, acceleration), torque = substep((state, acceleration), 0.0)
        else:
            (state, acceleration), torques = jax.lax.scan(
                substep, (state, acceleration), jnp.arange(float(algorithm.substeps))
            )
            torque = jnp.mean(torques)
        return state, acceleration, torque

    def without_friction(
        self,
        state: ServoState,
        duty: Float[Array, ""],
        angle: Float[Array, ""],
        speed: Float[Array, ""],
        h: Any,
        voltage: Any = None,
        on: Any = True,
    ) -> tuple[Float[Array, ""], Float[Array, " K"], Float[Array, ""]]:
        """Acceleration of the flywheel without friction, at the end of an implicit Euler step.

        **Arguments:** `state`, whose `gear` is that at the beginning of the step `h` [s] and whose
        `bristle` is not used; the others as for `rates`, at the end of the step.

        **Returns:** the acceleration [rad/s^2]; the new `gear` of the state; the torque on the
        output joint [N m]; all at the end of the step.
        """
        twist, rate, share = self._play(state.angle - angle, state.speed - speed)
        gear = self.gear.implicit_step(state.gear, twist, h)
        torque = share * self.gear.torque(twist, gear, rate)
        drive = self.motor_torque(duty, state.speed, voltage, on)
        return (drive - torque) / self.inertia, gear, torque

    def energy(self, state: ServoState, angle: Float[Array, ""]) -> Float[Array, ""]:
        """Energy of flywheel, gear and bristles [J], at the output's angle [rad]."""
        twist, _, _ = self._play(state.angle - angle, state.speed)
        kinetic = self.inertia * state.speed**2 / 2
        return kinetic + self.gear.energy(twist, state.gear) + self.friction.energy(state.bristle)

    def dissipation(
        self, state: ServoState, angle: Float[Array, ""], speed: Float[Array, ""]
    ) -> Float[Array, ""]:
        """Power dissipated in gear and friction [W]; never negative with passive parameters.

        The energy grows by the power of the motor, less that of the output, less this.
        """
        twist, rate, torque = self._through(state, angle, speed)
        return self.gear.dissipation(twist, state.gear, rate) + self.friction.dissipation(
            state.speed, state.bristle, torque
        )


def stack(servos: Sequence[Servo]) -> Servo:
    """Servos of several joints as one `Servo` whose numbers have a leading axis.

    **Raises:** `ValueError` unless all have the same parts: branches of the gear, numbers per
    direction, backlash, motor, controller, and of their sampling the same `periods`.
    """
    servos = tuple(servos)
    shapes = [jax.tree.map(jnp.shape, servo) for servo in servos]
    for k, other in enumerate(shapes):
        if jax.tree.structure(servos[k]) != jax.tree.structure(servos[0]) or other != shapes[0]:
            raise ValueError(
                f"Servo {k} has other parts than servo 0 (branches of the gear, numbers per "
                "direction, backlash, motor, controller, periods of its sampling); stacked servos "
                "must have the same parts."
            )
    if not servos:
        raise ValueError("There is no servo to stack.")
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *servos)
