"""Controllers of common families of servos, from the values of their registers.

What manufacturers do not document is assumed, as every function says: fit it, or measure it. No
family documents when its controller updates: give `sampling`, or it acts continuously.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.actuators._controller import Controller
from jaxgrip.checks import concrete, non_negative, numbers, positive

# Angle of a step of the sensor [rad].
AX_STEP = math.radians(300.0) / 1023
MX_STEP = STS_STEP = 2 * math.pi / 4096
# Duty per rad of error: for K_P = 1, which is a P gain of 8, and for a P coefficient of 1.
MX_GAIN = 0.158 * 8
STS_GAIN = 0.166
# Angle of a radio-controlled servo per width of the pulse [rad/s].
RC_TRAVEL = math.radians(90.0) / 1e-3
# Registers of full duty.
AX_FULL = 1023
X_FULL = 885
# Unit of speeds [rad/s].
X_SPEED = 0.229 * 2 * math.pi / 60


def dynamixel_ax(
    *,
    margin: ArrayLike = 1,
    slope: ArrayLike = 32,
    punch: ArrayLike = 32,
    torque_limit: ArrayLike = 1023,
    sampling: Any = None,
) -> Controller:
    """Position control of Dynamixel AX by compliance.

    Within the margin the duty is zero, beyond it rises from the punch to one over the slope.

    **Arguments:** registers: `margin` (26, 27) and `slope` (28, 29), the same in both directions;
    the slope acts as the power of two from 2 to 128 that the manual gives for it; `punch`
    (48); `torque_limit` (34). `sampling` as of `Controller`.

    **Raises:** `ValueError` for registers out of range.

    Source: Robotis 2024, AX-12A, Compliance Slope, Margin and Punch. Assumed: a punch of 1023 is
    full duty; it is reached over one step of the sensor beyond the margin, as angles are whole
    steps; no motion profile, for which see `jaxgrip.actuators.slewed`.
    """
    margin = _register("margin", margin, 255) * AX_STEP
    slope = _register("slope", slope, 254)
    powers = jnp.asarray(2.0 ** np.arange(1, 8), slope.dtype)
    slope = jnp.max(jnp.where(powers <= slope, powers, powers[0]))
    punch = _register("punch", punch, AX_FULL) / AX_FULL
    limit = positive("torque_limit", _register("torque_limit", torque_limit, 1023), ()) / AX_FULL
    return Controller.position(
        (1 - punch) / (slope * AX_STEP),
        dead_band=margin,
        punch=punch,
        punch_width=AX_STEP,
        duty_limit=limit,
        sampling=sampling,
    )


def dynamixel_mx(
    p_gain: ArrayLike = 32,
    i_gain: ArrayLike | None = None,
    d_gain: ArrayLike | None = None,
    *,
    punch: ArrayLike | None = None,
    duty_limit: ArrayLike = 0.9625,
    sampling: Any = None,
) -> Controller:
    """Position control of Dynamixel MX with protocol 1.

    **Arguments:** registers `p_gain` (28), `i_gain` (27) and `d_gain` (26), 0 to 254, of which the
    manual makes K_P = P/8, K_I = 1000 I/2048 and K_D = 4 D/1000; `punch` (48). `duty_limit`,
    `sampling` as of `Controller`.

    **Raises:** `ValueError` for registers out of range.

    Source: Robotis 2024, MX-106, PID Gains, for K; Duclusaud 2025, bam/dynamixel/actuator.py, for
    what K is multiplied by, 0.158 of duty per rad and P gain, and for the largest duty, both
    measured by them at the motor of an MX. Assumed: K_I is per second and K_D in seconds; the
    D part is that of the angle, not of the target; the integral part is limited as the duty is.
    """
    return Controller.position(
        _register("p_gain", p_gain, 254) / 8 * MX_GAIN,
        _scaled("i_gain", i_gain, 254, 1000 / 2048 * MX_GAIN),
        _scaled("d_gain", d_gain, 254, 4 / 1000 * MX_GAIN),
        punch=_scaled("punch", punch, 1023, 1 / 1023),
        duty_limit=duty_limit,
        sampling=sampling,
    )


def dynamixel_x(
    p_gain: ArrayLike,
    i_gain: ArrayLike | None = None,
    d_gain: ArrayLike | None = None,
    *,
    pwm_limit: ArrayLike = 885,
    current_limit: ArrayLike | None = None,
    p_divisor: ArrayLike = 128,
    period: ArrayLike = 1e-3,
    sampling: Any = None,
) -> Controller:
    """Position control of Dynamixel X, and of MX with protocol 2.

    **Arguments:** registers `p_gain` (84), `i_gain` (82), `d_gain` (80), 0 to 16383, of which the
    manual makes K_P = P/128, K_I = I/65536 and K_D = D/16; `pwm_limit` (36 or 100), 885 for full
    duty. `current_limit` in ampere (current-based position control); `p_divisor` in place of 128:
    Duclusaud 2025 measured 256 on an XL330; `period` of the firmware's sums and differences [s];
    `sampling` as of `Controller`.

    **Raises:** `ValueError` for registers out of range.

    Source: Robotis 2024, XL430-W250, Position PID Gain and PWM Limit. K is per step of the sensor,
    4096 to a turn, and per sample. Assumed: samples of 1 ms; the output is in units of the PWM
    limit, with which the defaults of an MX in both protocols, 850 and 32, are the same to 4 %;
    the D part is that of the angle; the integral part is limited as the duty is, in place of the
    anti-windup gain, which is not documented; neither feedforward nor profile.
    """
    period = positive("The period", period, ())
    p_divisor = positive("p_divisor", p_divisor, ())
    per_angle = 1 / (MX_STEP * X_FULL)
    return Controller.position(
        _register("p_gain", p_gain, 16383) / p_divisor * per_angle,
        _scaled("i_gain", i_gain, 16383, per_angle / (65536 * period)),
        _scaled("d_gain", d_gain, 16383, per_angle * period / 16),
        duty_limit=_pwm(pwm_limit),
        current_limit=current_limit,
        sampling=sampling,
    )


def dynamixel_x_speed(
    p_gain: ArrayLike,
    i_gain: ArrayLike | None = None,
    *,
    pwm_limit: ArrayLike = 885,
    period: ArrayLike = 1e-3,
    sampling: Any = None,
) -> Controller:
    """Speed control of Dynamixel X, and of MX with protocol 2.

    **Arguments:** registers `p_gain` (78), `i_gain` (76), 0 to 16383, of which the manual makes
    K_P = P/128 and K_I = I/65536; `pwm_limit` (36 or 100); `period` of the firmware's sums [s];
    `sampling` as of `Controller`.

    **Raises:** `ValueError` for registers out of range.

    Source: Robotis 2024, XL430-W250, Velocity PI Gain. Assumed: K is per unit of the goal speed,
    0.229 rev/min, and per sample of 1 ms, the output in units of the PWM limit.
    """
    period = positive("The period", period, ())
    per_speed = 1 / (X_SPEED * X_FULL)
    return Controller.speed(
        _register("p_gain", p_gain, 16383) / 128 * per_speed,
        _scaled("i_gain", i_gain, 16383, per_speed / (65536 * period)),
        duty_limit=_pwm(pwm_limit),
        sampling=sampling,
    )


def feetech_sts(
    p_coefficient: ArrayLike,
    *,
    dead_zone: ArrayLike = 1,
    minimum_force: ArrayLike = 16,
    torque_limit: ArrayLike = 970,
    sampling: Any = None,
) -> Controller:
    """Position control of Feetech STS and SMS with a magnetic encoder.

    **Arguments:** registers `p_coefficient` (21), 0 to 254; `dead_zone` (26, 27), in steps of
    0.088°, the same in both directions; `minimum_force` (24) and `torque_limit` (16 or 48), in
    thousandths of full duty. `sampling` as of `Controller`.

    **Raises:** `ValueError` for registers out of range.

    Source: Feetech 2022, for registers and steps; Duclusaud 2025, bam/feetech/actuator.py, for
    0.166 of duty per rad and P coefficient and the largest duty of 0.97, measured by them at the
    motor of an STS3215. Assumed: the minimum force, 16 in servos as delivered, is in thousandths of
    full duty and added to the proportional part. The units of the D and I coefficients (22, 23) are
    not documented: for these use `Controller.position` and fit them. The servo lets its target
    follow at a limited speed of 3400 steps/s, for which see `jaxgrip.actuators.slewed`.
    """
    force = _register("minimum_force", minimum_force, 1000) / 1000
    limit = positive("torque_limit", _register("torque_limit", torque_limit, 1000), ()) / 1000
    return Controller.position(
        _register("p_coefficient", p_coefficient, 254) * STS_GAIN,
        dead_band=_register("dead_zone", dead_zone, 255) * STS_STEP,
        punch=force,
        punch_width=STS_STEP,
        duty_limit=limit,
        sampling=sampling,
    )


def rc(
    full_error: ArrayLike,
    *,
    dead_band: ArrayLike = 5e-6,
    travel: ArrayLike = RC_TRAVEL,
    duty_limit: ArrayLike = 1.0,
    sampling: Any = None,
) -> Controller:
    """Position control of a servo for radio control.

    **Arguments:** widths of the pulse [s]: `full_error`, the error at which the motor gets full
    duty, and `dead_band`, to both sides; `travel`, the angle per width [rad/s], see `pulse_angle`.
    An analogue servo drives its motor once per pulse, of a rate of 50 Hz in general, a digital
    one several hundred times a second: give `sampling`.

    **Raises:** `ValueError` unless widths and travel are positive.

    Source: own choice; data sheets give the dead band and the travel, none the gain.
    """
    travel = positive("travel", travel, ())
    full = positive("full_error", full_error, ()) * travel
    return Controller.position(
        1 / full,
        dead_band=non_negative("dead_band", dead_band, ()) * travel,
        duty_limit=duty_limit,
        sampling=sampling,
    )


def pulse_angle(
    width: ArrayLike | Sequence,
    *,
    neutral: ArrayLike = 1.5e-3,
    travel: ArrayLike = RC_TRAVEL,
) -> Float[Array, "*shape"]:
    """Target angles [rad] of pulses of a width [s], zero at the neutral one.

    `travel` is the angle per width [rad/s]; makers differ, in `neutral` too.
    """
    width = numbers("width", width)
    return (width - jnp.asarray(neutral, width.dtype)) * jnp.asarray(travel, width.dtype)


def _register(name: str, value: ArrayLike, highest: int) -> Array:
    x = non_negative(name, value, ())
    if concrete(x) and not np.asarray(x) <= highest:
        raise ValueError(f"{name} is {float(x):g}; this register holds 0 to {highest}.")
    return x


def _scaled(name: str, value: Any, highest: int, scale: ArrayLike) -> Array | None:
    return None if value is None else _register(name, value, highest) * scale


def _pwm(limit: ArrayLike) -> Array:
    return positive("pwm_limit", _register("pwm_limit", limit, X_FULL), ()) / X_FULL
