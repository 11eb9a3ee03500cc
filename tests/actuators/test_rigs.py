import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.actuators import GeneralizedMaxwell, LuGre, ServoState, rigs

from .reference import BENCHMARK


@pytest.fixture(scope="module")
def servo():
    return jg.models.servo_ax12()


@pytest.fixture(scope="module")
def bare(servo):
    """Run-up of the bare servo."""
    return rigs.run_up(servo, 1e-4, jnp.linspace(0.0, 8.0, 8001))


def test_break_away_falls_with_the_rate(servo):
    """Independent values (SciPy): torque at which the flywheel first exceeds v_S."""
    velocity = servo.friction.stribeck_velocity
    found = []
    for rate in (0.01, 0.05, 0.1, 0.5, 1.0, 2.0):
        times = jnp.linspace(0.0, 0.5 / rate, 4001)
        body = rigs.slide(servo.friction, servo.inertia, rigs.ramp(rate), times)
        found.append(rate * rigs.first_above(times, body.speed, velocity))
    published = [0.4191, 0.3862, 0.3577, 0.2416, 0.1824, 0.1531]
    np.testing.assert_allclose(np.array(found), published, rtol=0, atol=5e-5)


def test_stick_slip_of_a_pulled_body():
    """Independent values (SciPy) of the benchmark of Canudas 1995."""
    times = jnp.linspace(0.0, 18.0, 36001)
    body = rigs.slide(LuGre(**BENCHMARK), 1.0, rigs.pull(2.0, 0.1), times)
    above = np.asarray(body.speed) > 0.01
    ends = []
    for changes in (above[1:] & ~above[:-1], ~above[1:] & above[:-1]):
        k = np.flatnonzero(changes)
        part = (0.01 - body.speed[k]) / (body.speed[k + 1] - body.speed[k])
        ends.append(times[k] + part * (times[k + 1] - times[k]))
    np.testing.assert_allclose(ends[0], [7.458, 13.82], rtol=0, atol=1e-3)
    np.testing.assert_allclose(ends[1], [10.223, 16.586], rtol=0, atol=1e-3)
    force = 2.0 * (0.1 * times - body.angle)
    for end, value in ((ends[0], 1.491), (ends[1], 0.7725)):
        np.testing.assert_allclose(jnp.interp(end, times, force), value, rtol=0, atol=5e-4)
    np.testing.assert_allclose(force.max(), 1.508, rtol=0, atol=5e-4)
    np.testing.assert_allclose(body.speed.max(), 0.370, rtol=0, atol=5e-4)


@pytest.mark.long
def test_stick_slip_of_a_turned_servo(servo):
    """Independent values (SciPy): ranges of the flywheel's speed."""
    published = {
        0.02: (0.0198, 0.0199),
        0.05: (-0.038, 0.566),
        0.1: (0.008, 0.252),
        0.2: (0.1999, 0.2000),
    }
    for rate, (low, high) in published.items():
        speed = rigs.constant_rate(servo, rate, jnp.linspace(0.0, 40.0, 4001)).servo.speed[2000:]
        digit = 5e-5 if high < 0.25 and low > 0.01 else 5e-4
        np.testing.assert_allclose(
            [speed.min(), speed.max()], [low, high], rtol=0, atol=1.1 * digit
        )


def test_run_up(servo, bare):
    """Independent values (SciPy); the steady speed is (M_max - F_C)/F_v."""
    np.testing.assert_allclose(bare.servo.speed[-1, 0], 6.0302, rtol=0, atol=5e-5)
    motion = rigs.run_up(servo, 1e-3, bare.t)
    at = np.array([50, 100, 200])
    speeds = [3.1598, 4.6666, 5.7336]
    np.testing.assert_allclose(motion.servo.speed[at, 0], speeds, rtol=0, atol=5e-5)


@pytest.mark.long
def test_inertia_from_run_ups(servo, bare):
    """Independent values (SciPy): -6.5 to 2.1 % off, for gear and torques are not ideal."""
    bare_time = rigs.run_up_time(bare)
    np.testing.assert_allclose(bare_time, 0.1904, rtol=0, atol=1e-4)
    for flywheel, time, estimate in (
        (0.01, 0.3034, 0.01685),
        (0.03, 0.5115, 0.01779),
        (0.1, 1.2247, 0.01841),
    ):
        loaded_time = rigs.run_up_time(rigs.run_up(servo, flywheel, bare.t))
        np.testing.assert_allclose(loaded_time, time, rtol=0, atol=1e-4)
        found = rigs.inertia_estimate(flywheel, bare_time, loaded_time)
        np.testing.assert_allclose(found, estimate, rtol=0, atol=1e-5)
        assert -0.066 < found / servo.inertia - 1 < 0.022


def test_run_up_backward(bare):
    back = bare._replace(servo=bare.servo._replace(speed=-bare.servo.speed))
    assert rigs.run_up_time(back) == rigs.run_up_time(bare)


def test_times_of_passing_a_level():
    t = jnp.arange(5.0)
    for x, time in (
        ([0.0, 0.0, 2.0, 0.0, 2.0], 1.5),
        ([2.0, 0.0, 1.0, 3.0, 0.0], 2.0),
        ([2.0, 2.0, 2.0, 0.0, 0.0], jnp.inf),
        ([0.0, 0.0, 0.0, 0.0, 0.0], jnp.inf),
    ):
        assert rigs.first_above(t, jnp.array(x), 1.0) == time


def test_exact_estimate_of_a_rigid_constant_torque():
    """T = J Ω/M for both run-ups gives J exactly (3.1)."""
    times = [(0.018 + flywheel) * 6.0 / 1.5 for flywheel in (0.0, 0.03)]
    np.testing.assert_allclose(rigs.inertia_estimate(0.03, *times), 0.018, rtol=1e-12)


@pytest.mark.parametrize(("stiction", "limit"), [(0.4318759, 22.07), (0.09, 4.49)])
def test_static_hold(stiction, limit):
    """Loaded bristles hold the arm up to arcsin(F_S/(m g l_c))."""
    servo = jg.models.servo_ax12(stiction=stiction)
    arm = jg.models.servo_ax12_arm()
    np.testing.assert_allclose(np.rad2deg(np.arcsin(stiction / arm.weight)), limit, atol=5e-3)

    def released(degrees):
        angle = jnp.deg2rad(degrees)
        # At rest the gear is relaxed and the bristles carry the arm, up to F_S.
        load = arm.weight * jnp.sin(angle)
        twist = load / servo.gear.spring
        state = ServoState(
            angle + twist, 0.0 * angle, -jnp.minimum(load, stiction), jnp.stack([twist, twist])
        )
        rates, torque = servo.rates(state, 0.0 * angle, angle, 0.0 * angle)
        acceleration = arm(angle[None], jnp.zeros(1), torque[None])[0]
        return rates, acceleration

    rates, acceleration = released(jnp.asarray(limit - 0.01))
    for rate in (*rates[:3], *rates.gear, acceleration):
        np.testing.assert_allclose(rate, 0.0, rtol=0, atol=1e-12)
    rates, acceleration = released(jnp.asarray(limit + 0.01))
    assert float(rates.speed) < -1e-3


def test_creep_on_a_lever(servo):
    """Independent values (NumPy): the lever after 1, 10, 60 and 180 s, in degrees."""
    for h, scheme, published in (
        (1e-2, "source", (3.3831, 3.5205, 3.8063, 3.8928)),
        (1e-3, "source", (3.7566, 3.9566, 4.3209, 4.4347)),
        (1e-3, "zoh", (3.8045, 4.0130, 4.3882, 4.5059)),
    ):
        creep = rigs.creep_test_fixed(servo.gear, 0.5, h, round(180 / h), scheme=scheme)
        at = np.rint(np.array([1, 10, 60, 180]) / h).astype(int)
        np.testing.assert_allclose(np.rad2deg(creep.angle[at]), published, rtol=0, atol=6e-5)


def test_creep_and_recovery(servo):
    """Exact in time: the closed form once the lever has settled, and back after the release."""
    times = jnp.array([0.0, 10.0, 60.0, 180.0, 190.0, 600.0])
    creep = rigs.creep_test(servo.gear, 0.5, times, release=180.0)
    np.testing.assert_allclose(
        np.rad2deg(creep.angle[1:4]), [4.0134, 4.3883, 4.5059], rtol=0, atol=5e-4
    )
    assert 0.1 < np.rad2deg(creep.angle[4]) < 0.6
    assert abs(creep.angle[5]) < 1e-5


def test_cuboid_pendulum_of_a_thin_rod():
    """An axis at the end of a thin rod: J = m l²/3, m g l/2."""
    arm = rigs.cuboid_pendulum(0.6, 1e-4, 1e-4, 1e8, 0.0)
    np.testing.assert_allclose(arm.inertia, 0.6 * 0.36 / 3, rtol=1e-6)
    np.testing.assert_allclose(arm.weight, 0.6 * 9.81 * 0.3, rtol=1e-12)


def test_duty_out_of_range(servo, bare):
    with pytest.raises(
        ValueError, match=r"The duty of servo 0 is 1.5 at t = 0 s; duties lie betwee"
    ):
        rigs.run_up(servo, 1e-3, bare.t, duty=1.5)


def test_bad_rigs(servo):
    for make, words in (
        (lambda: rigs.Pendulum(0.0), "The inertia of the arm is 0; it must be positive"),
        (lambda: rigs.Pendulum(1.0, damping=-1.0), "The damping of the axis is -1; it must not be"),
        (lambda: rigs.run_up(servo, -1.0, [0.0, 1.0]), "The inertia of the arm is -1"),
        (lambda: rigs.creep_test(servo.gear, 0.5, [1.0, 0.0]), "times must be increasing"),
        (lambda: rigs.slide(servo.friction, 1.0, rigs.ramp(1.0), 1.0), r"times has the shape \(\)"),
        (lambda: jg.models.servo_ax12_arm(length=0.0), "The length of the arm is 0"),
        (lambda: jg.models.servo_ax12_arm(pivot=np.nan), "The pivot of the arm is not finite"),
    ):
        with pytest.raises(ValueError, match=words):
            make()


def test_a_gear_too_stiff_for_the_creep_steps_is_refused():
    """Steps of a spring k and a damping d on an inertia J are stable below h² k + 2 h d = 4 J."""
    gear = GeneralizedMaxwell(1e3)
    limit = np.roots([1e3, 2 * 0.1, -4 * 0.005]).max()
    with pytest.raises(ValueError, match=rf"h is 0.01 s; .* shorter than {limit:.3g} s"):
        rigs.creep_test_fixed(gear, 0.5, 0.01, 10)
    creep = rigs.creep_test_fixed(gear, 0.5, 0.9 * limit, 1000)
    np.testing.assert_allclose(creep.angle[-1], 0.5 / 1e3, rtol=1e-6)


def test_stiff_bristles_with_jumps_end_in_a_sentence():
    """Bristles of 1e7 N m/rad take more steps than there are."""
    stiff = jg.models.servo_ax12(stiffness=1e7)
    ramp, times = rigs.ramp(1.0), jnp.linspace(0.0, 1.0, 3)
    options = {"jumps": [0.5], "max_steps": 20}
    with pytest.raises(RuntimeError, match=r"^The motion stopped at t = \S+ s after 20 steps: "):
        rigs.slide(stiff.friction, stiff.inertia, ramp, times, **options)
    flagged = rigs.slide(stiff.friction, stiff.inertia, ramp, times, throw=False, **options)
    assert not np.isfinite(flagged.angle[1:]).any()
