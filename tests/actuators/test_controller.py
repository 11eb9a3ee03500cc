"""Controllers in servos, against closed forms, matrix exponentials and SciPy."""

import dataclasses

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from jax.tree_util import Partial
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.optimize import brentq

import jaxgrip as jg
from jaxgrip.actuators import (
    Controller,
    GeneralizedMaxwell,
    LuGre,
    Motor,
    Sampling,
    Servo,
    ServoState,
    SourceAlgorithm,
    families,
    rigs,
    simulate,
    simulate_fixed,
    slewed,
    stack,
)
from jaxgrip.actuators._controller import Drive
from jaxgrip.actuators._driven import switched

from . import reference

TARGET = 0.05
INERTIA, STALL_TORQUE, ARM = 0.02, 1.5, 0.03
SPRING, DAMPER = 2e3, 8.0


def ideal(controller=None, viscous=0.0, **parts):
    """A servo without dry friction, whose gear is a spring and a damper: linear."""
    friction = LuGre(
        coulomb=1e-9,
        stiction=1e-9,
        stiffness=1e-9,
        damping=0.0,
        stribeck_velocity=1.0,
        viscous=viscous,
    )
    gear = GeneralizedMaxwell(SPRING, damper=DAMPER)
    return Servo(friction, gear, INERTIA, STALL_TORQUE, controller=controller, **parts)


def constant(value):
    return rigs.constant([value])


def system(proportional=0.0, derivative=0.0, viscous=0.0):
    """Matrix of the states (φ, φ', θ, Ω) of the ideal servo with the arm, and of its duty."""
    row = np.array([SPRING, DAMPER, -SPRING, -DAMPER])
    a = np.zeros((4, 4))
    a[0, 1] = a[2, 3] = 1.0
    a[1], a[3] = -row / ARM, row / INERTIA
    a[3, 3] -= viscous / INERTIA
    b = np.array([0.0, 0.0, 0.0, STALL_TORQUE / INERTIA])
    a[3, :2] -= b[3] * np.array([proportional, derivative])
    return a, b


ROOMY = rigs.Pendulum(ARM)


@pytest.mark.parametrize("fixed", [False, True])
def test_a_pd_controlled_ideal_servo_is_linear(fixed):
    """Its response to a step is that of four states, and nearly that of an oscillator of two."""
    kp, kd = 8.0, 0.2
    servo = ideal(Controller.position(kp, derivative=kd))
    if fixed:
        motion = simulate_fixed(ROOMY, servo, np.full((2000, 1), TARGET), 5e-4)
        t, q = motion.t[::200], motion.q[::200, 0]
    else:
        motion = simulate(
            ROOMY, servo, constant(TARGET), np.linspace(0.0, 1.0, 11), rtol=1e-9, atol=1e-11
        )
        t, q = motion.t, motion.q[:, 0]
    a, b = system(kp, kd)
    rest = np.linalg.solve(a, b * kp * TARGET)
    exact = [(expm(a * float(s)) @ rest - rest)[0] for s in t]
    np.testing.assert_allclose(q, exact, atol=3e-7 if fixed else 1e-9)
    w = np.sqrt(kp * STALL_TORQUE / (INERTIA + ARM))
    damped = kd * STALL_TORQUE / (INERTIA + ARM) / 2
    turns = np.sqrt(w * w - damped * damped)
    swing = np.cos(turns * t) + damped / turns * np.sin(turns * t)
    np.testing.assert_allclose(q, TARGET * (1 - np.exp(-damped * t) * swing), atol=3e-4)


def sampled(a, b, period, updates, duty_of):
    """Positions and duties at the updates of a linear plant; its duty `duty_of(k, x)` is held."""
    step = expm(np.block([[a, b[:, None]], [np.zeros((1, 5))]]) * period)
    x, found, duties = np.zeros(4), [], []
    for k in range(updates):
        found.append(x[0])
        duties.append(duty_of(k, x))
        x = step[:4, :4] @ x + step[:4, 4] * duties[-1]
    return np.array(found), np.array(duties)


@pytest.mark.parametrize("delay", [None, 0.03])
def test_a_sampled_controller_is_a_discrete_one(delay):
    """At its updates motion and duty are those of the discrete system, in both kinds of steps."""
    period, kp, a_b = 0.02, 4.0, system()
    given = []

    def duty(k, x):
        given.append(kp * (TARGET - x[0]))
        # A delay of 1.5 periods: half of the last but one update, half of the one before.
        old = [0.0, 0.0, 0.0, *given]
        return given[-1] if delay is None else (old[-2] + old[-3]) / 2

    exact, duties = sampled(*a_b, period, 26, duty)
    servo = ideal(Controller.position(kp, sampling=Sampling(period, delay)))
    times = period * np.arange(26.0)
    for begin in (0.0, 7.013):
        adaptive = simulate(ROOMY, servo, constant(TARGET), begin + times, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(adaptive.q[:, 0], exact, atol=2e-9)
        np.testing.assert_allclose(adaptive.duty[:, 0], duties, atol=2e-8)
    fixed = simulate_fixed(ROOMY, servo, np.full((1000, 1), TARGET), 5e-4)
    np.testing.assert_allclose(fixed.q[::40, 0], exact, atol=2e-6)
    np.testing.assert_allclose(fixed.duty[::40, 0], duties, atol=1e-5)
    np.testing.assert_array_equal(fixed.duty[39::40], fixed.duty[:-1:40])
    # Steps longer than the period are divided.
    long = simulate_fixed(ROOMY, servo, np.full((5, 1), TARGET), 0.1, throw=False)
    np.testing.assert_allclose(long.q[:, 0], exact[::5], atol=5e-3)


def later(motion):
    """Arguments of a motion that continues this one."""
    end = jax.tree.map(lambda x: x[-1], (motion.q, motion.qd, motion.servo))
    return dict(zip(("q0", "qd0", "state"), end, strict=True))


def test_halves_of_a_sampled_motion_are_the_whole():
    """With another target in the second half, which begins at an update or between two."""
    period, kp = 0.02, 4.0
    exact, duties = sampled(
        *system(), period, 27, lambda k, x: kp * ((TARGET if k < 13 else -TARGET) - x[0])
    )
    servo = ideal(Controller.position(kp, sampling=Sampling(period)))
    tight = {"rtol": 1e-9, "atol": 1e-11}
    for cut in (0.26, 0.252):
        times = np.append(period * np.arange(13.0), cut)
        first = simulate(ROOMY, servo, constant(TARGET), times, **tight)
        for begin in (0.0, cut):
            times = begin + np.append(0.0, period * np.arange(14.0, 27.0) - cut)
            second = simulate(ROOMY, servo, constant(-TARGET), times, **later(first), **tight)
            np.testing.assert_allclose(second.q[1:, 0], exact[14:], atol=2e-9)
            np.testing.assert_allclose(second.duty[1:, 0], duties[14:], atol=2e-8)
    targets = np.full((504, 1), TARGET)
    first = simulate_fixed(ROOMY, servo, targets, 5e-4)
    second = simulate_fixed(ROOMY, servo, -targets, 5e-4, **later(first))
    np.testing.assert_allclose(second.q[16::40, 0], exact[13:26], atol=2e-6)


def test_steps_end_where_controllers_of_other_periods_update():
    """Two servos with arms of their own are two discrete systems."""
    gains, periods = (4.0, 3.0), (0.02, 0.035)
    servos = [
        ideal(Controller.position(kp, sampling=Sampling(period)))
        for kp, period in zip(gains, periods, strict=True)
    ]
    updates = [period * np.arange(7.0) for period in periods]
    times = np.unique(np.concatenate(updates))
    both = simulate(ROOMY, stack(servos), rigs.constant([TARGET] * 2), times, rtol=1e-9, atol=1e-11)
    for k, (kp, period) in enumerate(zip(gains, periods, strict=True)):
        exact, _ = sampled(*system(), period, 7, lambda _, x, kp=kp: kp * (TARGET - x[0]))
        own = np.searchsorted(times, updates[k])
        np.testing.assert_allclose(both.q[own, k], exact, atol=2e-9)


def test_a_delay_and_its_derivative():
    """Between the duties of the latest updates it is linear, beyond the longest one constant."""
    held, period = jnp.array([3.0, 5.0, 11.0]), 0.02

    def applied(delay):
        return Sampling(period, delay, periods=2).applied(held)

    cases = ((0.0, 3.0, 2.0), (0.5, 4.0, 2.0), (1.0, 5.0, 6.0), (1.5, 8.0, 6.0), (2.0, 11.0, 6.0))
    for delay, value, slope in (*cases, (3.0, 11.0, 0.0)):
        for mode in (jax.jacfwd, jax.jacrev):
            found = mode(lambda d: (applied(d), applied(d)), has_aux=True)(delay * period)
            np.testing.assert_allclose(found, (slope / period, value), rtol=1e-9, atol=1e-9)
    # Without `periods` the derivative at zero exists too.
    sampling = Sampling(period, 0.0)
    slope = jax.grad(lambda s: s.applied(held[: s.periods + 1]))(sampling).delay
    np.testing.assert_allclose(slope, 2.0 / period, rtol=1e-12)


WEIGHT = 0.6


@pytest.mark.parametrize("band", [None, 0.02])
def test_the_error_that_stays_under_a_load(band):
    """Proportional control balances the load: K_P M (e − dead band) = W sin φ."""
    controller = Controller.position(6.0, dead_band=band)
    servo, arm = ideal(controller, viscous=0.7), rigs.Pendulum(ARM, WEIGHT)
    end = simulate(arm, servo, constant(0.4), [0.0, 6.0]).q[-1, 0]
    missing = 0.4 - (band or 0.0)
    held = brentq(lambda q: 6.0 * STALL_TORQUE * (missing - q) - WEIGHT * np.sin(q), 0.0, 1.0)
    np.testing.assert_allclose(end, held, atol=1e-6)


def test_an_integral_part_leaves_no_error():
    controller = Controller.position(6.0, 8.0, 0.2)
    servo, arm = ideal(controller, viscous=0.5), rigs.Pendulum(ARM, WEIGHT)
    motion = simulate(arm, servo, constant(0.4), [0.0, 14.0])
    np.testing.assert_allclose(motion.q[-1, 0], 0.4, atol=1e-6)
    part = motion.servo.control.integral[-1, 0]
    np.testing.assert_allclose(part, WEIGHT * np.sin(0.4) / STALL_TORQUE, atol=1e-6)


@pytest.mark.parametrize("sampling", [None, 0.01])
def test_the_integral_part_does_not_wind_up(sampling):
    """At a target out of reach it stays at its limit, and falls at once when the target does."""
    sampled = None if sampling is None else Sampling(sampling)
    controller = Controller.position(1.0, 5.0, integral_limit=0.3, sampling=sampled)
    servo, arm = ideal(controller, viscous=0.5), rigs.Pendulum(ARM, 4.0)
    targets = np.repeat([1.0, -1.0], 500)[:, None]
    motion = simulate_fixed(arm, servo, targets, 2e-3, throw=False)
    integral = motion.servo.control.integral[:, 0]
    np.testing.assert_allclose(jnp.max(integral), 0.3, rtol=1e-12)
    np.testing.assert_allclose(integral[400:500], 0.3, rtol=1e-12)
    assert integral[510] < 0.25


def ax_rates(p, target, on, kp, ki, band, limit):
    """The AX-12 on its arm with a PI controller, written out anew."""
    f, gear = p, reference.GEAR
    damping = 2 * np.sqrt(f["stiffness"] * reference.INERTIA)

    def rates(t, x):
        q, qd, angle, speed, z, part, *e = x
        error = target - q
        error = 0.0 if abs(error) < band else error - band * np.sign(error)
        duty = on * np.clip(kp * error + part, -limit, limit)
        level = f["coulomb"] + (f["stiction"] - f["coulomb"]) * np.exp(
            -((speed / f["stribeck_velocity"]) ** 2)
        )
        bending = speed - np.abs(speed) * z / level
        faded = damping * np.exp(-((speed / f["damping_velocity"]) ** 2))
        friction = z + faded * bending + f["viscous"] * speed
        torque, ed = gear["spring"] * (angle - q), []
        for spring, damper, twist in zip(gear["springs"], gear["dampers"], e, strict=True):
            torque += spring * (angle - q - twist)
            ed.append(spring / damper * (angle - q - twist))
        motor = duty * reference.STALL_TORQUE
        return [
            qd,
            (torque - 1.15 * np.sin(q)) / 0.026,
            speed,
            (motor - torque - friction) / reference.INERTIA,
            f["stiffness"] * bending,
            on * ki * error,
            *ed,
        ]

    return rates


def test_a_pi_controlled_servo_with_all_its_kinks():
    """Saturation, dead band and stick-slip against Radau's method, in both kinds of steps."""
    kp, ki, band, limit = 3.0, 2.0, 0.03, 0.8
    friction = {**reference.FRICTION, "stiffness": 300.0}
    exact, x = [0.0], np.zeros(8)
    for target in (0.9, -0.2):
        rates = ax_rates(friction, target, 1.0, kp, ki, band, limit)
        found = solve_ivp(
            rates,
            (0.0, 1.0),
            x,
            method="Radau",
            rtol=1e-9,
            atol=1e-11,
            t_eval=np.linspace(0.1, 1.0, 10),
        )
        x = found.y[:, -1]
        exact += [*found.y[0]]
    controller = Controller.position(kp, ki, dead_band=band, duty_limit=limit, integral_limit=0.7)
    plain = jg.models.servo_ax12(stiffness=300.0)
    servo = Servo(
        plain.friction, plain.gear, plain.inertia, plain.stall_torque, controller=controller
    )
    arm = rigs.Pendulum(0.026, 1.15)
    command = Partial(
        lambda a, t, q, qd: jnp.where(t < 1.0, a[0], a[1])[None], jnp.array([0.9, -0.2])
    )
    adaptive = simulate(
        arm, servo, command, np.linspace(0.0, 2.0, 21), jumps=[1.0], rtol=1e-9, atol=1e-11
    )
    np.testing.assert_allclose(adaptive.q[:, 0], exact, atol=1e-7)
    fixed = simulate_fixed(arm, servo, np.repeat([0.9, -0.2], 500)[:, None], 2e-3)
    np.testing.assert_allclose(fixed.q[::50, 0], exact, atol=1e-3)
    assert float(jnp.max(fixed.duty)) == limit


MOTOR = {"torque_per_volt": 0.15, "back_emf": 1.5, "resistance": 16.0}


@pytest.mark.parametrize("on", [0.0, 1.0])
def test_coasting_with_an_open_winding_and_braking_with_a_closed_one(on):
    """Decay by viscous friction alone, or with the back-EMF: closed forms."""
    viscous, start = 0.03, 2.0
    servo = ideal(viscous=viscous, motor=Motor(**MOTOR))
    state = ServoState(np.zeros(1), np.array([start]), np.zeros(1), np.zeros((1, 0)))
    a, _ = system(viscous=viscous + on * MOTOR["torque_per_volt"] * MOTOR["back_emf"])
    exact = expm(a * 0.5) @ [0.0, start, 0.0, start]
    options = {"qd0": [start], "state": state, "supply": 7.0}
    tight = {"rtol": 1e-8, "atol": 1e-10}
    fixed = simulate_fixed(
        ROOMY, servo, np.zeros((2000, 1)), 2.5e-4, on=np.full(2000, on), **options
    )
    adaptive = simulate(
        ROOMY,
        servo,
        constant(0.0),
        [0.0, 0.5],
        on=Partial(lambda a, t: a[None], jnp.asarray(on)),
        **options,
        **tight,
    )
    for motion in (fixed, adaptive):
        np.testing.assert_allclose(motion.qd[-1, 0], exact[1], rtol=2e-6)


def test_off_and_on_again():
    """While off, no torque acts and the controller forgets; times of both kinds agree."""
    controller = Controller.position(5.0, 6.0)
    servo, arm = ideal(controller, viscous=0.6), rigs.Pendulum(ARM, WEIGHT)
    on = np.repeat([True, False, True], 200)
    fixed = simulate_fixed(arm, servo, np.full((600, 1), 0.5), 1e-3, on=on)
    assert not np.any(fixed.duty[200:400])
    assert not np.any(fixed.servo.control.integral[201:401])

    def is_on(t):
        return ((t < 0.2) | (t >= 0.4))[None]

    times = np.linspace(0.0, 0.6, 7)
    adaptive = simulate(arm, servo, constant(0.5), times, on=is_on, jumps=[0.2, 0.4])
    np.testing.assert_allclose(fixed.q[::100], adaptive.q, atol=2e-6)


@pytest.mark.parametrize("wrap", [list, np.asarray, jnp.asarray])
def test_what_tells_that_a_servo_is_on(wrap):
    """Numbers and booleans, known or traced; other known numbers are refused."""
    for on in ([1.0, 0.0], [1, 0], [True, False]):
        for read in (switched, jax.jit(switched, static_argnums=0)):
            np.testing.assert_array_equal(read("on", wrap(on)), [True, False])
    with pytest.raises(ValueError, match=r"on is \[1\.0, 3\.0\]; it must be 0 or 1"):
        switched("on", wrap([1.0, 3.0]))


def test_a_servo_that_is_off_drops_what_is_not_finite():
    servo = ideal(Controller.position(1.0, 1.0, sampling=Sampling(0.1)), motor=Motor(**MOTOR))
    zero, bad = jnp.zeros(()), jnp.asarray(jnp.nan)
    state = servo.rest(zero)
    begun = servo.begin(state, bad, False, zero, zero, 8.0)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(begun))
    assert servo.duty(begun, bad, False, zero, zero, 8.0) == 0.0
    assert servo.motor_torque(bad, zero, 8.0, False) == 0.0


def test_a_voltage_that_is_a_series():
    servo = ideal(viscous=0.1, motor=Motor(**MOTOR))
    volts = 10.0 + 2.0 * np.sin(40 * (np.arange(400) + 0.5) * 1e-3)
    fixed = simulate_fixed(ROOMY, servo, np.full((400, 1), 0.5), 1e-3, supply=volts)
    np.testing.assert_array_equal(fixed.voltage[:-1], volts)

    def voltage(t):
        return 10.0 + 2.0 * jnp.sin(40 * t)

    times = np.linspace(0.0, 0.4, 5)
    adaptive = simulate(ROOMY, servo, constant(0.5), times, supply=voltage)
    np.testing.assert_allclose(fixed.q[::100], adaptive.q, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("integral", [None, 3.0])
def test_speeds(integral):
    """A proportional controller leaves K_P M (w − w1) = d w1, one with an integral part nothing."""
    servo = ideal(Controller.speed(0.4, integral), viscous=0.3)
    end = simulate(ROOMY, servo, constant(2.0), [0.0, 4.0]).qd[-1, 0]
    left = 0.4 * STALL_TORQUE * 2.0 / (0.4 * STALL_TORQUE + 0.3)
    np.testing.assert_allclose(end, left if integral is None else 2.0, rtol=1e-5)


def test_currents():
    """A current accelerates steadily until the voltage no longer suffices."""
    servo, motor = ideal(Controller.current(), motor=Motor(**MOTOR)), Motor(**MOTOR)
    motion = simulate(ROOMY, servo, constant(0.2), [0.0, 0.1, 6.0], supply=8.0)
    torque = MOTOR["torque_per_volt"] * MOTOR["resistance"] * 0.2
    np.testing.assert_allclose(motion.qd[1, 0], torque / (INERTIA + ARM) * 0.1, rtol=0.05)
    current = motor.winding_current(motion.duty[1, 0], 8.0, motion.servo.speed[1, 0])
    np.testing.assert_allclose(current, 0.2, rtol=1e-12)
    np.testing.assert_allclose(motion.qd[-1, 0], 8.0 / MOTOR["back_emf"], rtol=1e-4)
    assert float(motion.duty[-1, 0]) == 1.0


@pytest.mark.parametrize("gives_current", [False, True])
def test_a_limit_of_the_current(gives_current):
    """Against a wall the torque is that of the limit, and not more on the way there."""
    controller = Controller.position(
        50.0, gives_current=gives_current, current_limit=0.1, duty_limit=0.9
    )
    servo = ideal(controller, viscous=0.05, motor=Motor(**MOTOR))
    wall = rigs.Pendulum(ARM, 1e4)
    motion = simulate(wall, servo, constant(1.0), np.linspace(0.0, 1.0, 21), supply=8.0)
    current = servo.motor.winding_current(motion.duty[:, 0], 8.0, motion.servo.speed[:, 0])
    assert float(jnp.max(jnp.abs(current))) <= 0.1 * (1 + 1e-12)
    limit = MOTOR["torque_per_volt"] * MOTOR["resistance"] * 0.1
    np.testing.assert_allclose(motion.output_torque[-1, 0], limit, rtol=1e-4)


@pytest.mark.parametrize("kind", ["limited", "position", "current"])
def test_a_voltage_of_zero(kind):
    """The duty that is nearest to the current's, with finite slopes; the winding brakes."""
    controller = {
        "limited": Controller.position(5.0, current_limit=0.2),
        "position": Controller.position(5.0, gives_current=True, duty_limit=0.9),
        "current": Controller.current(current_limit=0.4),
    }[kind]
    motor = Motor(**MOTOR)

    def duty(controller, target, speed, voltage):
        zero = jnp.zeros(())
        return controller.duty(None, target, zero, zero, Drive(motor, voltage, speed))

    for target, speed in ((0.1, 0.0), (0.0, 0.0), (0.1, 3.0), (-0.1, 3.0)):
        given = controller, *map(jnp.asarray, (target, speed, 0.0))
        for mode in (jax.jacfwd, jax.jacrev):
            found = mode(duty, (0, 1, 2, 3))(*given)
            assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))
        # As at a voltage too small to matter.
        close = duty(*given[:-1], jnp.asarray(1e-9))
        np.testing.assert_allclose(duty(*given), close, atol=1e-12)
    if kind != "limited":
        return

    def voltage(t):
        return jnp.where(t < 0.1, 8.0, 0.0)

    times = np.linspace(0.1, 0.3, 5)
    motion = simulate(
        ROOMY,
        ideal(controller, motor=motor),
        constant(1.0),
        np.append(0.0, times),
        supply=voltage,
        jumps=[0.1],
        rtol=1e-9,
        atol=1e-11,
    )
    a, _ = system(viscous=MOTOR["torque_per_volt"] * MOTOR["back_emf"])
    at = [motion.q[1, 0], motion.qd[1, 0], motion.servo.angle[1, 0], motion.servo.speed[1, 0]]
    exact = [(expm(a * (t - 0.1)) @ np.array(at))[0] for t in times]
    np.testing.assert_allclose(motion.q[1:, 0], exact, atol=1e-8)


@pytest.mark.long
def test_energy_of_a_controlled_servo():
    """Growth of the energy is the work of the motor less the losses."""
    plain = jg.models.servo_ax12(damping_velocity=0.5)
    controller = Controller.position(4.0, 2.0, 0.1, dead_band=0.01)
    servo = dataclasses.replace(plain, controller=controller)
    arm = rigs.Pendulum(0.026, 1.15)
    times = np.linspace(0.0, 0.4, 4001)
    motion = simulate(arm, servo, constant(1.0), times, rtol=1e-10, atol=1e-12)
    own = jax.tree.map(lambda x: x[:, 0], motion.servo)
    q, qd = motion.q[:, 0], motion.qd[:, 0]
    stored = jax.vmap(servo.energy)(own, q) + 0.013 * qd**2 - 1.15 * jnp.cos(q)
    power = motion.duty[:, 0] * servo.stall_torque * own.speed
    power -= jax.vmap(servo.dissipation)(own, q, qd)
    weights = np.ones(4001)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    np.testing.assert_allclose(stored[-1] - stored[0], weights @ power * 1e-4 / 3, rtol=1e-6)


@pytest.mark.parametrize("place", ["centre", "edge", "full", "beyond"])
@pytest.mark.parametrize("band", [0.0, 0.02])
def test_derivatives_at_the_kinks_are_finite(place, band):
    """At zero error, at the edge of the dead band and where the duty saturates."""
    controller = Controller.position(5.0, 1.0, 0.1, dead_band=band, punch=0.05, current_limit=0.4)
    target = {"centre": 0.0, "edge": band, "full": band + 0.19, "beyond": 1.0}[place]
    drive = Drive(Motor(**MOTOR), jnp.asarray(12.0), jnp.asarray(0.0))

    def duty(controller, target, integral, speed):
        return controller.duty(integral, target, jnp.zeros(()), speed, drive._replace(speed=speed))

    zero = jnp.zeros(())
    for mode in (jax.jacfwd, jax.jacrev):
        found = mode(duty, (0, 1, 2, 3))(controller, jnp.asarray(target), zero, zero)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))
    if place == "centre":
        slope = jax.grad(duty, 1)(controller, jnp.asarray(target), zero, zero)
        # Without a dead band the slope at zero error is that around it.
        assert slope == pytest.approx(0.0 if band else 5.0 + 0.05 / 2e-3)


@pytest.mark.long
@pytest.mark.parametrize("sampling", [False, True])
def test_derivatives_by_gains(sampling):
    """Of both kinds of steps, in both modes, against central differences."""
    arm = rigs.Pendulum(0.026, 1.15)
    plain = jg.models.servo_ax12()

    def servo(x):
        sampled = Sampling(0.02, 0.01 * x["delay"], periods=2) if sampling else None
        controller = Controller.position(
            3.0 * x["kp"],
            1.0 * x["ki"],
            0.1 * x["kd"],
            dead_band=0.01 * x["band"],
            sampling=sampled,
        )
        return dataclasses.replace(plain, controller=controller)

    def fixed(x):
        return simulate_fixed(arm, servo(x), np.full((40, 1), 0.4), 0.01, throw=False).q[-1, 0]

    def adaptive(x, adjoint=None):
        return simulate(
            arm, servo(x), constant(0.4), [0.0, 0.4], rtol=1e-10, atol=1e-12, adjoint=adjoint
        ).q[-1, 0]

    x = {name: jnp.ones(()) for name in ("kp", "ki", "kd", "band", "delay")}
    check_grads(fixed, (x,), 1, modes=("fwd", "rev"), eps=1e-4, rtol=1e-5)
    check_grads(adaptive, (x,), 1, modes=("rev",), eps=1e-3, rtol=1e-4)
    forward = jax.jacfwd(lambda x: adaptive(x, diffrax.ForwardMode()))(x)
    reverse = jax.grad(adaptive)(x)
    for name in x:
        np.testing.assert_allclose(forward[name], reverse[name], rtol=1e-7, atol=1e-12)


def test_other_gains_do_not_compile_again(compilations):
    """Nor other limits and periods, alone or in a batch, whose members move as alone."""
    arm = rigs.Pendulum(0.026, 1.15)
    plain = jg.models.servo_ax12()

    def end(kp, band, period):
        controller = Controller.position(kp, 1.0, dead_band=band, sampling=Sampling(period))
        servo = dataclasses.replace(plain, controller=controller)
        return simulate_fixed(arm, servo, np.full((20, 1), 0.4), 0.01, throw=False).q[-1, 0]

    numbers = np.array([[2.0, 4.0], [0.0, 0.02], [0.01, 0.02]])
    for run, given in ((end, numbers.T), (jax.vmap(end), (numbers, numbers[:, ::-1]))):
        first = run(*given[0])
        with compilations() as found:
            second = run(*given[1])
        assert not found
    np.testing.assert_allclose(first, second[::-1], rtol=1e-12)
    np.testing.assert_allclose(first, [end(*alone) for alone in numbers.T], rtol=1e-12)


def test_a_campaign_of_logs():
    """Logs with their own arm, gain, times, voltage and winding on or off, each as alone."""
    plain = jg.models.servo_ax12(viscous=0.05)

    def log(inertia, kp, targets, h, on, volts):
        servo = dataclasses.replace(
            plain, motor=Motor(**MOTOR), controller=Controller.position(kp, dead_band=0.01)
        )
        arm = rigs.Pendulum(inertia, 0.8)
        motion = simulate_fixed(arm, servo, targets[:, None], h, on=on, supply=volts, throw=False)
        return motion.q[:, 0]

    rng = np.random.default_rng(3)
    shape = (3, 40)
    logs = (
        np.array([0.02, 0.03, 0.04]),
        np.array([3.0, 5.0, 8.0]),
        rng.normal(size=shape).cumsum(axis=1) * 0.05,
        rng.uniform(0.004, 0.012, shape),
        (rng.uniform(size=shape) > 0.2).astype(float),
        rng.uniform(9.0, 12.0, shape),
    )
    together = jax.jit(jax.vmap(log))(*logs)
    for k in range(3):
        np.testing.assert_allclose(together[k], log(*(x[k] for x in logs)), rtol=0, atol=1e-12)


def test_steps_of_different_lengths():
    """Second order also where every step has its own length."""
    servo = ideal(Controller.position(8.0, derivative=0.2))
    a, b = system(8.0, 0.2)
    rest = np.linalg.solve(a, b * 8.0 * TARGET)
    exact = (expm(0.5 * a) @ rest - rest)[0]
    errors = []
    for k in (1, 2):
        h = np.repeat([0.4e-2, 0.1e-2, 0.5e-2] * 50, k) / k
        motion = simulate_fixed(ROOMY, servo, np.full((len(h), 1), TARGET), h, throw=False)
        np.testing.assert_allclose(motion.t[-1], 0.5, rtol=1e-12)
        errors.append(abs(float(motion.q[-1, 0]) - exact))
    assert errors[0] < 1e-3
    np.testing.assert_allclose(errors[0] / errors[1], 4.0, rtol=0.3)


def test_targets_that_follow_at_a_limited_speed():
    targets = np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0], [0.1, 0.0]])
    found = slewed(targets, 0.1, [2.0, 5.0], start=[0.0, 0.9])
    np.testing.assert_allclose(found, [[0.0, 1.0], [0.2, 1.0], [0.4, 0.5], [0.2, 0.0]], atol=1e-15)
    slope = jax.jacfwd(lambda limit: slewed(targets, 0.1, limit))(jnp.array([2.0, 5.0]))
    np.testing.assert_allclose(slope[2, 0], [0.2, 0.0], atol=1e-15)


def sampled_late(periods):
    return ideal(Controller.position(1.0, sampling=Sampling(0.01, 0.005, periods=periods)))


def duty_of(controller, error):
    return float(
        controller.duty(
            jnp.zeros(()),
            jnp.asarray(error),
            jnp.zeros(()),
            jnp.zeros(()),
            Drive(None, None, jnp.zeros(())),
        )
    )


def test_registers_of_dynamixel_ax():
    """Duties of the manual's curve at its corners; a slope of 25 acts as 16."""
    controller = families.dynamixel_ax(margin=5, slope=25, punch=10)
    step = np.deg2rad(300.0) / 1023
    for steps, duty in (
        (-21, -1.0),
        (-6, -(10 + 1013 / 16) / 1023),
        (-5, 0.0),
        (4.9, 0.0),
        (6, (10 + 1013 / 16) / 1023),
        (13, (10 + 1013 / 2) / 1023),
        (21, 1.0),
        (300, 1.0),
    ):
        np.testing.assert_allclose(duty_of(controller, steps * step), duty, atol=1e-12)
    half = families.dynamixel_ax(torque_limit=512)
    assert duty_of(half, 1.0) == pytest.approx(512 / 1023)


def test_the_slope_of_a_dynamixel_ax_is_a_power_of_two():
    """That of the highest bit of the register, from 2 to 128, known or traced."""

    def gain(slope):
        return families.dynamixel_ax(slope=slope, punch=0).proportional

    for slope in (0, 1, 2, 3, 4, 25, 31, 32, 127, 128, 254):
        acts = 2 ** min(max(slope.bit_length() - 1, 1), 7)
        wanted = 1023 / (np.deg2rad(300.0) * acts)
        for read in (gain, jax.jit(gain)):
            np.testing.assert_allclose(read(float(slope)), wanted, rtol=1e-14)


def test_registers_of_other_families():
    mx = families.dynamixel_mx(32, 10, 5)
    # Manual: K_P = 4, K_I = 4.8828125 per second, K_D = 0.02 s; 0.158 · 32 of duty per rad.
    np.testing.assert_allclose(mx.proportional, 0.158 * 32, rtol=1e-12)
    np.testing.assert_allclose(mx.integral / mx.proportional, 4.8828125 / 4, rtol=1e-12)
    np.testing.assert_allclose(mx.derivative / mx.proportional, 0.02 / 4, rtol=1e-12)
    assert duty_of(mx, 1.0) == 0.9625
    # The defaults of an MX-106 in both protocols.
    same = families.dynamixel_x(850)
    np.testing.assert_allclose(same.proportional, mx.proportional, rtol=0.04)
    # 10 steps of error at K_P = 400/128 are 31.25 of 885.
    x = families.dynamixel_x(400, 8192, 16, pwm_limit=443)
    np.testing.assert_allclose(duty_of(x, 10 * 2 * np.pi / 4096), 31.25 / 885, rtol=1e-12)
    assert duty_of(x, 1.0) == pytest.approx(443 / 885)
    # Sums and differences of 1 ms: K_I = 1/8 per sample is 125 per second, K_D = 1 is 1 ms.
    per_step = 885 * 2 * np.pi / 4096
    np.testing.assert_allclose(x.integral * per_step, 125.0, rtol=1e-12)
    np.testing.assert_allclose(x.derivative * per_step, 1e-3, rtol=1e-12)
    speed = families.dynamixel_x_speed(128, 8192)
    unit = 0.229 * 2 * np.pi / 60
    np.testing.assert_allclose(
        [speed.proportional * unit, speed.integral * unit], [1 / 885, 125 / 885]
    )
    sts = families.feetech_sts(16, dead_zone=2, minimum_force=50)
    step = 2 * np.pi / 4096
    assert duty_of(sts, 2 * step) == 0.0
    np.testing.assert_allclose(duty_of(sts, 12 * step), 0.166 * 16 * 10 * step + 0.05, rtol=1e-12)
    assert duty_of(sts, 3.0) == 0.97
    rc = families.rc(100e-6)
    np.testing.assert_allclose(
        families.pulse_angle([1.5e-3, 1.0e-3]), [0.0, -np.pi / 4], atol=1e-15
    )
    assert duty_of(rc, float(families.pulse_angle(1.504e-3))) == 0.0
    half = float(families.pulse_angle(1.555e-3))
    np.testing.assert_allclose(duty_of(rc, half), 0.5, rtol=1e-9)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Controller.position(-1.0), "proportional gain is -1; it must not be negative"),
        (lambda: Controller.position(1.0, duty_limit=1.5), "duty_limit is 1.5; a duty is at most"),
        (lambda: Controller.position(1.0, 1.0, gives_current=True), "needs an integral_limit"),
        (lambda: ideal(Controller.current()), "gives or limits a current needs a motor"),
        (lambda: Sampling(0.0), "period of a controller is 0"),
        (lambda: Sampling(0.01, 0.025, periods=2), "delay is 2.5 periods .* periods is 2"),
        (lambda: jax.jit(lambda d: Sampling(0.01, d))(0.01), "give periods, the longest delay"),
        (lambda: Sampling(0.01, 0.01, periods=1.5), "periods is 1.5; it must be a whole number"),
        (lambda: Sampling(0.01, 0.0, periods=0), "periods is 0; it must be .* at least 1"),
        (lambda: stack([sampled_late(1), sampled_late(2)]), "other parts.* periods of its sampl"),
        (lambda: families.dynamixel_mx(300), "p_gain is 300; this register holds 0 to 254"),
        (lambda: families.dynamixel_x(800, pwm_limit=0), "pwm_limit is 0; it must be positive"),
        (lambda: stack([ideal(), ideal(Controller.position(1.0))]), "other parts than servo 0"),
        (lambda: slewed(np.zeros(3), 0.1, 1.0), r"targets has the shape \(3,\)"),
    ],
)
def test_bad_controllers(make, words):
    with pytest.raises(ValueError, match=words):
        make()


class Backward(rigs.Pendulum):
    """An arm with inverse dynamics of another shape."""

    def inverse(self, q, qd, qdd):
        return jnp.sum(qdd)


def test_bad_inputs():
    servo = ideal(Controller.position(1.0))
    targets = np.zeros((5, 1))
    with pytest.raises(ValueError, match="targets is not finite"):
        simulate_fixed(ROOMY, servo, targets + np.nan, 0.01)
    with pytest.raises(ValueError, match=r"on has the shape \(3,\); it must be \(5,\) or \(5, 1\)"):
        simulate_fixed(ROOMY, servo, targets, 0.01, on=np.ones(3))
    with pytest.raises(ValueError, match="no controllers and no open windings"):
        simulate_fixed(ROOMY, servo, targets, 0.01, algorithm=SourceAlgorithm())
    with pytest.raises(ValueError, match="result of the function on has the shape"):
        simulate(ROOMY, servo, constant(0.0), [0.0, 1.0], on=lambda t: jnp.ones(2))
    with pytest.raises(ValueError, match=r"on is .*3.*; it must be 0 or 1"):
        simulate_fixed(ROOMY, servo, targets, 0.01, on=[1, 1, 3, 1, 1])
    with pytest.raises(ValueError, match=r"result of the function on is .*; it must be 0 or 1"):
        simulate(ROOMY, servo, constant(0.0), [0.0, 1.0], on=lambda t: 2.0 * jnp.ones(1))
    slow = ideal(Controller.position(1.0, 1.0))
    with pytest.raises(ValueError, match="needs the default solver"):
        simulate(ROOMY, slow, constant(0.0), [0.0, 1.0], solver=diffrax.Kvaerno5())
    with pytest.raises(ValueError, match="method inverse of the plant has the shape"):
        simulate_fixed(Backward(ARM), servo, targets, 0.01)
    with pytest.raises(ValueError, match="voltage of the supply is -1"):
        simulate(ROOMY, ideal(motor=Motor(**MOTOR)), constant(0.0), [0.0, 1.0], supply=-1.0)
    state = jax.tree.map(lambda x: x[None], ideal().rest(jnp.zeros(())))
    sampled = ideal(Controller.position(1.0, sampling=Sampling(0.1)))
    with pytest.raises(ValueError, match="is not the state of these controllers"):
        simulate_fixed(ROOMY, sampled, targets, 0.01, state=state)
    # Targets are no duties.
    simulate_fixed(ROOMY, servo, targets + 3.0, 1e-3, throw=False)
