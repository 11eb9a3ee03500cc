"""Test rigs for a servo, its gear or its friction alone."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.actuators._driven import Motion
from jaxgrip.actuators._friction import LuGre
from jaxgrip.actuators._servo import Servo
from jaxgrip.actuators._simulation import increasing, simulate, stiff
from jaxgrip.actuators._viscoelastic import GeneralizedMaxwell
from jaxgrip.checks import concrete, non_negative, numbers, positive


class Pendulum(eqx.Module):
    """Plant: an arm on a horizontal axis, hanging at angle zero.

    **Arguments:** `inertia` J_p about the axis [kg m^2]; `weight`, the torque m g l_c of gravity
    on the level arm [N m], zero for a flywheel; `damping` d_p of the axis [N m s/rad].

    **Raises:** `ValueError` unless the inertia is positive and the rest not negative.

    Source: own derivation.
    """

    inertia: Float[Array, ""]
    weight: Float[Array, ""]
    damping: Float[Array, ""]

    def __init__(self, inertia, weight=0.0, damping=0.0):
        self.inertia = positive("The inertia of the arm", inertia, ())
        self.weight = non_negative("The weight torque of the arm", weight, ())
        self.damping = non_negative("The damping of the axis", damping, ())

    def __call__(
        self, q: Float[Array, " n"], qd: Float[Array, " n"], tau: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """Acceleration [rad/s^2] at angle, rate and torque [rad, rad/s, N m] of n equal arms."""
        return (tau - self.weight * jnp.sin(q) - self.damping * qd) / self.inertia


def cuboid_pendulum(
    length: ArrayLike,
    width: ArrayLike,
    thickness: ArrayLike,
    density: ArrayLike,
    pivot: ArrayLike,
    *,
    gravity: ArrayLike = 9.81,
    damping: ArrayLike = 0.0,
) -> Pendulum:
    """Pendulum of a homogeneous cuboid that swings in the plane of its length and width.

    **Arguments:** edges [m]; `density` [kg/m^3]; `pivot`, distance of the axis from the upper end
    [m]; `gravity` [m/s^2]; `damping` of the axis [N m s/rad].

    Source: Kubisch 2008, appendix A, p. 43, for the inertia of a cuboid; section 4.3.1,
    p. 36, for the rig.
    """
    a, b, c, rho = (
        positive(f"The {name} of the arm", x, ())
        for name, x in (
            ("length", length),
            ("width", width),
            ("thickness", thickness),
            ("density", density),
        )
    )
    mass = rho * a * b * c
    arm = a / 2 - numbers("The pivot of the arm", pivot, ())
    inertia = mass * (a * a + b * b) / 12 + mass * arm * arm
    return Pendulum(inertia, mass * jnp.asarray(gravity, float) * arm, damping)


def _constant(duty: Array, t: Array, q: Array, qd: Array) -> Array:
    return duty


def constant(duty: ArrayLike | Sequence) -> Callable[..., Any]:
    """Command of constant duties (m,), for `simulate`."""
    return Partial(_constant, jnp.asarray(duty, float))


def run_up(
    servo: Servo,
    inertia: ArrayLike,
    times: ArrayLike | Sequence,
    *,
    duty: ArrayLike = 1.0,
    **options: Any,
) -> Motion:
    """Run-up from rest with nothing but an inertia at the output.

    **Arguments:** `servo`; `inertia` at the output [kg m^2], small for the bare servo; `times`
    (k,) [s]; `duty`; `options` as for `simulate`.

    Source: Kubisch 2008, section 3.4, pp. 29-30.
    """
    return simulate(Pendulum(inertia), servo, constant([duty]), times, **options)


def run_up_time(motion: Motion, share: ArrayLike = 0.95) -> Float[Array, ""]:
    """Last time [s] at which the flywheel is below a fraction `share` of its final speed."""
    speed = jnp.abs(motion.servo.speed[:, 0])
    level = share * speed[-1]
    k = len(speed) - 1 - jnp.argmax(speed[::-1] < level)
    part = (level - speed[k]) / (speed[k + 1] - speed[k])
    return motion.t[k] + part * (motion.t[k + 1] - motion.t[k])


def inertia_estimate(
    flywheel: ArrayLike, bare_time: ArrayLike, loaded_time: ArrayLike
) -> Float[Array, ""]:
    """Inertia of a servo [kg m^2] from run-ups without and with a flywheel at the output.

    Exact for equal mean torques and a rigid gear.

    **Arguments:** `flywheel`, its inertia [kg m^2]; run-up times [s].

    Source: Kubisch 2008, eq. 3.1, p. 30.
    """
    return jnp.asarray(flywheel) * bare_time / (jnp.asarray(loaded_time) - bare_time)


def _unmoved(q: Array, qd: Array, tau: Array) -> Array:
    return jnp.zeros_like(q)


def constant_rate(
    servo: Servo, rate: ArrayLike, times: ArrayLike | Sequence, **options: Any
) -> Motion:
    """Servo without command whose output rotates at a prescribed rate [rad/s]: stick-slip.

    Source: own choice.
    """
    rate = numbers("The rate", rate, ())
    return simulate(_unmoved, servo, constant([0.0]), times, qd0=rate[None], **options)


class Creep(NamedTuple):
    """A creep test: `t` (k,) [s], `angle` (k,) [rad] and `rate` (k,) [rad/s] of the lever."""

    t: Float[Array, " k"]
    angle: Float[Array, " k"]
    rate: Float[Array, " k"]


def _lever(t: Array, y: tuple, args: tuple) -> tuple:
    gear, torque, release, inertia, damping = args
    angle, rate, e = y
    load = jnp.where(t < release, torque, 0.0)
    acceleration = (load - gear.torque(angle, e, rate) - damping * rate) / inertia
    return rate, acceleration, gear.rates(angle, e)


def creep_test(
    gear: GeneralizedMaxwell,
    torque: ArrayLike,
    times: ArrayLike | Sequence,
    *,
    release: ArrayLike | None = None,
    inertia: ArrayLike = 0.005,
    damping: ArrayLike = 0.1,
    **options: Any,
) -> Creep:
    """Twist of a gear, blocked at the motor, under a constant torque on a lever at the output.

    **Arguments:** `gear`; `torque` [N m] until the time `release` [s], without end when not given;
    `times` (k,) [s]; `inertia` [kg m^2] and `damping` [N m s/rad] of the lever; `options` as
    of `jaxgrip.actuators.simulate`.

    Source: Kubisch 2008, section 3.2, pp. 24-28.
    """
    times = increasing(times)
    args = _lever_numbers(gear, torque, release, inertia, damping)
    jumps = () if release is None else args[2][None]
    y = stiff(_lever, _relaxed(gear), times, args, **{"jumps": jumps, **options}).ys
    return Creep(times, y[0], y[1])


def creep_test_fixed(
    gear: GeneralizedMaxwell,
    torque: ArrayLike,
    h: ArrayLike,
    steps: int,
    *,
    release: ArrayLike | None = None,
    inertia: ArrayLike = 0.005,
    damping: ArrayLike = 0.1,
    scheme: str = "source",
) -> Creep:
    """The creep test in semi-implicit Euler steps of `h` [s], as Kubisch 2008 simulates it.

    **Arguments:** as for `creep_test`; `scheme` of the gear as in `SourceAlgorithm`.

    **Returns:** the lever at the times 0, h, ..., h · steps.

    **Raises:** `ValueError` for a step that is too long for a gear of this stiffness.

    Source: Kubisch 2008, section 3.2, pp. 27-28.
    """
    args = _lever_numbers(gear, torque, release, inertia, damping)
    h, limit = positive("The step h", h, ()), _longest_stable(*args)
    if concrete(h) and concrete(limit) and not np.asarray(h) < np.asarray(limit):
        raise ValueError(
            f"The step h is {float(h):g} s; for this gear and lever it must be shorter than "
            f"{float(limit):.3g} s, or the steps are unstable. `creep_test` takes any gear."
        )
    return _creep_fixed(args, h, steps, scheme)


def _longest_stable(gear, torque, release, inertia, damping):
    """Step [s] below which speed += h a, angle += h speed is stable: h² k + 2 h d < 4 J."""
    stiffness = gear.spring + jnp.sum(gear.springs)
    if gear.damper is not None:
        damping = damping + gear.damper
    # A form of the root without division by the stiffness, which may be zero.
    return 4 * inertia / (damping + jnp.sqrt(damping**2 + 4 * inertia * stiffness))


@eqx.filter_jit
def _creep_fixed(args: tuple, h: Array, steps: int, scheme: str) -> Creep:
    gear, torque, release, inertia, damping = args

    def step(y: tuple, t: Array) -> tuple:
        angle, rate, e = y
        load = jnp.where(t < release, torque, 0.0)
        rate = rate + h * (load - gear.torque(angle, e, rate) - damping * rate) / inertia
        new = angle + h * rate
        e = gear.step(e, angle if scheme == "foh" else new, new, h, scheme)
        return (new, rate, e), (new, rate)

    times = h * jnp.arange(steps + 1.0)
    _, y = jax.lax.scan(step, _relaxed(gear), times[:-1])
    angle, rate = (jnp.concatenate([jnp.zeros(1), x]) for x in y)
    return Creep(times, angle, rate)


def _lever_numbers(gear, torque, release, inertia, damping):
    return (
        gear,
        numbers("The torque", torque, ()),
        jnp.asarray(jnp.inf) if release is None else numbers("The release", release, ()),
        positive("The inertia of the lever", inertia, ()),
        non_negative("The damping of the lever", damping, ()),
    )


def _relaxed(gear):
    return jnp.zeros(()), jnp.zeros(()), jnp.zeros_like(gear.springs)


class Slide(NamedTuple):
    """A body on friction: `t` [s], `angle` [rad], `speed` [rad/s], `bristle` [N m], all (k,)."""

    t: Float[Array, " k"]
    angle: Float[Array, " k"]
    speed: Float[Array, " k"]
    bristle: Float[Array, " k"]


def _body(t: Array, y: Array, args: tuple) -> Array:
    friction, inertia, torque = args
    angle, speed, z = y[0], y[1], y[2]
    resistance, z_rate = friction.rates(speed, z)
    return jnp.stack([speed, (torque(t, angle) - resistance) / inertia, z_rate])


def slide(
    friction: LuGre,
    inertia: ArrayLike,
    torque: Callable[..., Any],
    times: ArrayLike | Sequence,
    **options: Any,
) -> Slide:
    """An inertia with friction alone, from rest, under the torque `torque(t, angle)`.

    **Arguments:** `friction`; `inertia` [kg m^2]; `torque` [N m], for example of `ramp` or `pull`;
    `times` (k,) [s]; `options` as of `jaxgrip.actuators.simulate`. For a body that slides read
    kg, m and N.
    """
    times = increasing(times)
    args = (friction, positive("The inertia", inertia, ()), torque)
    y = stiff(_body, jnp.zeros(3), times, args, **options).ys
    return Slide(times, y[:, 0], y[:, 1], y[:, 2])


def _ramp(rate: Array, t: Array, angle: Array) -> Array:
    return rate * t


def ramp(rate: ArrayLike) -> Callable[..., Any]:
    """Torque that grows from zero at a constant rate [N m/s]: break-away."""
    return Partial(_ramp, jnp.asarray(rate, float))


def _pull(stiffness: Array, rate: Array, t: Array, angle: Array) -> Array:
    return stiffness * (rate * t - angle)


def pull(stiffness: ArrayLike, rate: ArrayLike) -> Callable[..., Any]:
    """Spring [N m/rad] whose far end moves at a constant rate [rad/s]: stick-slip."""
    return Partial(_pull, jnp.asarray(stiffness, float), jnp.asarray(rate, float))


def first_above(t: Float[Array, " k"], x: Float[Array, " k"], level: ArrayLike) -> Array:
    """First time [s] at which a series rises above a level, interpolated linearly.

    Infinite if it never does.
    """
    passes = (x[:-1] <= level) & (x[1:] > level)
    k = jnp.argmax(passes)
    part = (level - x[k]) / (x[k + 1] - x[k])
    return jnp.where(jnp.any(passes), t[k] + part * (t[k + 1] - t[k]), jnp.inf)
