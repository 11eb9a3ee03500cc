"""The controller inside a servo: from a target to a duty."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.actuators._supply import Motor
from jaxgrip.checks import brief, concrete, is_whole, non_negative, numbers, positive

# An update is due at this fraction of a period before its time already, against rounding.
_EARLY = 1e-6
# Steps that end for an update do so this fraction of a period later, so that rounding does not let
# them end before a target jumps at the same time.
_LATE = 1e-9


class ControlState(NamedTuple):
    """State of a controller; what it does not have is None.

    `integral`: its integral part, a duty, or a current [A]; `wait`: time to the next update [s],
    zero or less when it is due; `held` (k,): the duties of the latest updates, the newest first.
    """

    integral: Any = None
    wait: Any = None
    held: Any = None


class Sampling(eqx.Module):
    """Updates of a controller at a fixed rate, from the start on; in between its duty is held.

    **Arguments:** `period` between updates [s]; `delay` from an update to the motor [s]; `periods`:
    the longest delay in periods, needed only where these numbers are traced; longer traced delays
    act as this one. A delay of a fraction of a period is that of the mean duty over each period.
    There are derivatives by the delay, none by the period; at a whole number of periods they are
    those of longer delays, at the longest that of shorter ones.

    **Raises:** `ValueError` unless the period is positive, the delay not negative, and `periods` a
    whole number, at least 1; for a delay beyond `periods`.

    Source: own choice.
    """

    period: Float[Array, "..."]
    delay: Float[Array, "..."] | None
    periods: int = eqx.field(static=True)

    def __init__(self, period, delay=None, *, periods=None):
        self.period = positive("The period of a controller", period, ())
        self.delay = None if delay is None else non_negative("The delay", delay, ())
        known = delay is None or (concrete(self.period) and concrete(self.delay))
        if not known and periods is None:
            raise ValueError("With a traced delay or period give periods, the longest delay.")
        needed = 0 if delay is None or not known else self.delay / self.period
        if periods is None:
            # A delay of zero can grow too.
            periods = 0 if delay is None else max(1, int(np.ceil(needed - _EARLY)))
        elif not is_whole(periods, 1):
            raise ValueError(f"periods is {brief(periods)}; it must be a whole number, at least 1.")
        self.periods = int(periods)
        if known and needed > self.periods + _EARLY:
            raise ValueError(
                f"The delay is {float(needed):.3g} periods of the controller; periods is "
                f"{self.periods}, the most that it can be."
            )

    def applied(self, held: Float[Array, " k"]) -> Float[Array, ""]:
        """Duty at the motor, out of those of the latest updates."""
        if self.delay is None:
            return held[0]
        age = self.delay / self.period
        age = jnp.where(age > self.periods, float(self.periods), age)
        newer = jnp.clip(jnp.floor(lax.stop_gradient(age)), 0.0, self.periods - 1.0)
        index = newer.astype(int)
        return held[index] + (age - newer) * (held[index + 1] - held[index])


class Drive(NamedTuple):
    """What a controller of currents reckons with: `motor`; `voltage` [V]; its `speed` [rad/s]."""

    motor: Motor | None
    voltage: Any
    speed: Any


class Controller(eqx.Module):
    """The controller of a servo, for positions, speeds or currents.

    Make one with `position`, `speed` or `current`, or for the registers of a family of servos with
    `jaxgrip.actuators.families`. It gives the servo's duty within ±`duty_limit`. With an
    `integral` gain its integral part stays within ±`integral_limit`, so that it does not wind up.
    Without `sampling` it acts continuously.

    All numbers may be traced, and batches of controllers of the same parts run by `jax.vmap`.
    """

    kind: str = eqx.field(static=True)
    gives_current: bool = eqx.field(static=True)
    proportional: Float[Array, "..."] | None
    integral: Float[Array, "..."] | None
    derivative: Float[Array, "..."] | None
    dead_band: Float[Array, "..."] | None
    punch: Float[Array, "..."] | None
    punch_width: Float[Array, "..."] | None
    duty_limit: Float[Array, "..."]
    integral_limit: Float[Array, "..."] | None
    current_limit: Float[Array, "..."] | None
    sampling: Sampling | None

    @classmethod
    def position(
        cls,
        proportional: ArrayLike,
        integral: ArrayLike | None = None,
        derivative: ArrayLike | None = None,
        *,
        dead_band: ArrayLike | None = None,
        punch: ArrayLike | None = None,
        punch_width: ArrayLike = 2e-3,
        gives_current: bool = False,
        duty_limit: ArrayLike = 1.0,
        integral_limit: ArrayLike | None = None,
        current_limit: ArrayLike | None = None,
        sampling: Sampling | None = None,
    ) -> "Controller":
        """Controller that moves the output joint to a target angle [rad].

        Its output is K_P e + K_I ∫e dt − K_D φ', with the error e = target − φ of the output's
        angle φ less the dead band.

        **Arguments:**

        - `proportional` K_P [1/rad], `integral` K_I [1/(rad s)], `derivative` K_D [s/rad], of duty.
        - `dead_band`: errors up to this count as zero, larger ones from it on [rad].
        - `punch`: duty beyond the dead band, reached over `punch_width` [rad], in addition.
        - `gives_current`: the output is the current of the winding [A] instead, and so are the
          gains and `punch` currents.
        - `duty_limit`: largest duty; `integral_limit`: largest integral part, that of the output
          when not given; `current_limit`: largest current of the winding [A].
        - `sampling`: of a controller that updates at a fixed rate.

        Limits of a current, and its control, need a servo with a motor. They hold exactly as long
        as the duty suffices, and reckon with the voltage of the supply without load.

        **Raises:** `ValueError` for negative gains, limits that are not positive, an integral part
        of a current without a limit.

        Source: own choice; see `jaxgrip.actuators.families` for what manufacturers document.
        """
        return cls(
            "position",
            gives_current,
            non_negative("The proportional gain", proportional, ()),
            _optional("The integral gain", integral),
            _optional("The derivative gain", derivative),
            _optional("The dead band", dead_band),
            _optional("The punch", punch),
            None if punch is None else positive("The punch_width", punch_width, ()),
            *_limits(integral, gives_current, duty_limit, integral_limit, current_limit),
            sampling,
        )

    @classmethod
    def speed(
        cls,
        proportional: ArrayLike,
        integral: ArrayLike | None = None,
        *,
        gives_current: bool = False,
        duty_limit: ArrayLike = 1.0,
        integral_limit: ArrayLike | None = None,
        current_limit: ArrayLike | None = None,
        sampling: Sampling | None = None,
    ) -> "Controller":
        """Controller that turns the output joint at a target rate [rad/s].

        **Arguments:** `proportional` K_P [s/rad] and `integral` K_I [1/rad], of duty, or of current
        with `gives_current`; the rest, and errors, as for `position`.

        Source: own choice.
        """
        return cls(
            "speed",
            gives_current,
            non_negative("The proportional gain", proportional, ()),
            _optional("The integral gain", integral),
            *(None,) * 4,
            *_limits(integral, gives_current, duty_limit, integral_limit, current_limit),
            sampling,
        )

    @classmethod
    def current(
        cls,
        *,
        duty_limit: ArrayLike = 1.0,
        current_limit: ArrayLike | None = None,
        sampling: Sampling | None = None,
    ) -> "Controller":
        """Controller whose target is the current of the winding [A].

        The current follows at once, as the winding has no inductance. Arguments and errors as for
        `position`.

        Source: own choice.
        """
        limits = _limits(None, True, duty_limit, None, current_limit)
        return cls("current", True, *(None,) * 6, *limits, sampling)

    @property
    def needs_motor(self) -> bool:
        """Whether it controls or limits a current."""
        return self.gives_current or self.current_limit is not None

    def start(self) -> ControlState:
        """State before the first update."""
        zero = jnp.zeros_like(self.duty_limit)
        sampled = self.sampling is not None
        return ControlState(
            None if self.integral is None else zero,
            zero if sampled else None,
            jnp.zeros(self.sampling.periods + 1, zero.dtype) if sampled else None,
        )

    def error(self, target: Array, angle: Array, rate: Array) -> Float[Array, ""]:
        """Error of the angle beyond the dead band [rad], or of the rate [rad/s]."""
        if self.kind == "speed":
            return target - rate
        error = target - angle
        if self.dead_band is None:
            return error
        # At the edges the slope is that outside, also where the dead band is zero.
        beyond = error - self.dead_band * jnp.sign(error)
        return jnp.where(jnp.abs(error) >= self.dead_band, beyond, 0.0)

    def duty(
        self, integral: Any, target: Array, angle: Array, rate: Array, drive: Drive
    ) -> Float[Array, ""]:
        """Duty for a target, at the angle [rad] and rate [rad/s] of the output joint.

        `integral`, the integral part, is not used where there is none.
        """
        if self.kind == "current":
            return self._limited(target, drive)
        error = self.error(target, angle, rate)
        output = self.proportional * error
        if self.punch is not None:
            output = output + self.punch * within(error / self.punch_width, 1.0)
        if self.derivative is not None:
            output = output - self.derivative * rate
        if self.integral is not None:
            output = output + integral
        return self._limited(output, drive)

    def _limited(self, output: Array, drive: Drive) -> Array:
        if self.gives_current:
            current = output
            if self.current_limit is not None:
                current = within(current, self.current_limit)
            return self._duty_of(current, drive)
        if self.current_limit is None:
            return within(output, self.duty_limit)
        current = drive.motor.winding_current(output, drive.voltage, drive.speed)
        limited = self._duty_of(within(current, self.current_limit), drive)
        is_limited = jnp.abs(current) > self.current_limit
        return jnp.where(is_limited, limited, within(output, self.duty_limit))

    def _duty_of(self, current: Array, drive: Drive) -> Array:
        """Duty for a current [A], the nearest one where the voltage does not suffice."""
        volts = drive.motor.resistance * current + drive.motor.back_emf * drive.speed
        # Without a voltage the quotient and its slopes would not be finite.
        suffices = (drive.voltage > 0) & (jnp.abs(volts) <= self.duty_limit * drive.voltage)
        duty = volts / jnp.where(suffices, drive.voltage, 1.0)
        return jnp.where(suffices, duty, jnp.sign(volts) * self.duty_limit)

    def integrated(self, integral: Array, error: Array, h: ArrayLike) -> Float[Array, ""]:
        """Integral part after a time `h` [s] at an error."""
        return within(integral + h * self.integral * error, self.integral_limit)

    def integral_rate(self, integral: Array, error: Array) -> Float[Array, ""]:
        """Rate of the integral part, zero where it would leave its limits."""
        rate = self.integral * error
        leaves = (jnp.abs(integral) >= self.integral_limit) & (integral * error > 0)
        return jnp.where(leaves, 0.0, rate)

    def _due(self, state: ControlState) -> Array:
        """Number of updates due, of which all but one have been missed."""
        passed = jnp.floor(lax.stop_gradient(_EARLY - state.wait / self.sampling.period))
        return jnp.maximum(passed + 1.0, 0.0)

    def until_update(self, state: ControlState) -> Float[Array, ""]:
        """Time [s] to the first update after one that is due now."""
        period = self.sampling.period
        return lax.stop_gradient(state.wait + (self._due(state) + _LATE) * period)

    def updated(
        self,
        state: ControlState,
        on: ArrayLike,
        target: Array,
        angle: Array,
        rate: Array,
        drive: Drive,
    ) -> ControlState:
        """The state after an update if one is due; see `duty`.

        While it is off, its integral part and its duties are zero.
        """
        due = self._due(state)
        is_due = due > 0
        integral = state.integral
        if integral is not None:
            error = self.error(target, angle, rate)
            moved = self.integrated(integral, error, self.sampling.period)
            integral = if_on(on, jnp.where(is_due, moved, integral))
        duty = self.duty(integral, target, angle, rate, drive)
        shifted = jnp.concatenate([duty[None], state.held[:-1]])
        held = if_on(on, jnp.where(is_due, shifted, state.held))
        # Updates missed within a step that is longer than the period are lost.
        return ControlState(
            integral, state.wait + due * lax.stop_gradient(self.sampling.period), held
        )


def within(x: Array, limit: ArrayLike) -> Float[Array, "..."]:
    """The number limited to ±`limit`; its slope at the limit is one, that of `jnp.clip` a half."""
    return jnp.where(jnp.abs(x) > limit, jnp.sign(x) * limit, x)


def if_on(on: ArrayLike, x: Array) -> Float[Array, "..."]:
    """The number where a servo is on, zero where its winding is open."""
    return jnp.where(on, x, 0.0)


def slewed(
    targets: ArrayLike | Sequence,
    h: ArrayLike | Sequence,
    limit: ArrayLike | Sequence,
    start: ArrayLike | Sequence | None = None,
) -> Float[Array, "steps m"]:
    """Targets that a servo with a speed limit of its own makes of those it is given.

    Each follows the given one at no more than the limit.

    **Arguments:** `targets` (steps, m) [rad], each for a step of `h` [s], () or (steps,); `limit`
    [rad/s], () or (m,); `start` (m,) at time zero [rad], the first targets when not given.

    **Returns:** (steps, m) at the ends of the steps [rad].

    **Raises:** `ValueError` for other shapes and for numbers that are not positive.

    Source: own choice.
    """
    targets = numbers("targets", targets)
    if targets.ndim != 2:
        raise ValueError(f"targets has the shape {targets.shape}; it must be (steps, m).")
    steps, m = targets.shape
    h = jnp.broadcast_to(positive("The step h", h, (), (steps,)), (steps,))
    limit = jnp.broadcast_to(positive("The speed limit", limit, (), (m,)), (m,))
    start = targets[0] if start is None else numbers("start", start, (m,))

    def follow(at: Array, given: tuple[Array, Array]) -> tuple[Array, Array]:
        target, h = given
        at = at + within(target - at, h * limit)
        return at, at

    return lax.scan(follow, start, (targets, h))[1]


def _optional(name: str, value: Any) -> Array | None:
    return None if value is None else non_negative(name, value, ())


def _limits(integral, gives_current, duty, of_integral, current) -> tuple:
    duty = positive("The duty_limit", duty, ())
    if concrete(duty) and not np.asarray(duty) <= 1:
        raise ValueError(f"The duty_limit is {float(duty):g}; a duty is at most 1.")
    current = None if current is None else positive("The current_limit", current, ())
    if integral is None:
        return duty, None, current
    if of_integral is None:
        of_integral = current if gives_current else duty
    if of_integral is None:
        raise ValueError(
            "An integral part that is a current needs an integral_limit or a current_limit."
        )
    return duty, positive("The integral_limit", of_integral, ()), current
