"""Implicit steps of driven mechanisms, against Radau's method on equations written out anew."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxgrip as jg
from jaxgrip.actuators import GeneralizedMaxwell, Servo, SourceAlgorithm, rigs, simulate_fixed
from jaxgrip.actuators._fixed import RESULTS

from . import reference

ARM_INERTIA, WEIGHT = 0.026, 1.15


def servo(stiffness=None, gear=None, **options):
    plain = jg.models.servo_ax12(**({} if stiffness is None else {"stiffness": stiffness}))
    gear = GeneralizedMaxwell(**(reference.GEAR if gear is None else gear))
    return Servo(plain.friction, gear, plain.inertia, plain.stall_torque, **options)


def swing(model, duties, h, **options):
    return simulate_fixed(rigs.Pendulum(ARM_INERTIA, WEIGHT), model, duties, h, **options)


def radau(duty, seconds, stiffness, gear):
    """Angle of the arm at the end of a constant duty, from rest."""
    f = {**reference.FRICTION, "stiffness": stiffness}
    damping = 2 * np.sqrt(f["stiffness"] * reference.INERTIA)

    def rates(t, x):
        q, qd, angle, speed, z, *e = x
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
        acceleration = (duty * reference.STALL_TORQUE - torque - friction) / reference.INERTIA
        arm = (torque - WEIGHT * np.sin(q)) / ARM_INERTIA
        return [qd, arm, speed, acceleration, f["stiffness"] * bending, *ed]

    start = np.zeros(5 + len(gear["springs"]))
    found = solve_ivp(rates, (0.0, seconds), start, method="Radau", rtol=1e-8, atol=1e-10)
    return found.y[0, -1]


STIFF_GEAR = {"spring": 1e6, "springs": (1e5, 1e4), "dampers": (10.0, 100.0)}


@pytest.mark.parametrize(
    ("stiffness", "gear"), [(1e5, reference.GEAR), (reference.FRICTION["stiffness"], STIFF_GEAR)]
)
def test_stiff_bristles_and_gears(stiffness, gear):
    """With bristles of 1e5 N m/rad and the default gear 0.80018 rad."""
    exact = radau(0.5, 1.0, stiffness, gear)
    if stiffness == 1e5 and gear is reference.GEAR:
        np.testing.assert_allclose(exact, 0.80018, atol=2e-5)
    for step, tolerance in ((0.01, 0.01), (0.001, 0.001)):
        motion = swing(servo(stiffness, gear), jnp.full((round(1 / step), 1), 0.5), step)
        np.testing.assert_allclose(motion.q[-1, 0], exact, rtol=tolerance)
        assert motion.result == RESULTS.successful


def test_backlash_of_a_stiff_gear():
    """The arm stays within the play, and comes to rest against the side that lifts it."""
    motion = swing(servo(1e5, STIFF_GEAR, backlash=0.02), jnp.full((400, 1), 0.5), 0.005)
    gap = motion.servo.angle[:, 0] - motion.q[:, 0]
    assert float(jnp.abs(gap).max()) < 0.01 + 1e-3
    # The corner of the play is rounded, over some 1e-4 rad.
    np.testing.assert_allclose(gap[-1], 0.01, atol=3e-4)


def test_a_step_that_is_too_long_is_refused_with_one_that_is_not():
    model, duties = servo(1e5), jnp.full((100, 1), 0.5)
    with pytest.raises(ValueError, match=r"The step h is 0\.01 s.* at most 1e-05 %"):
        swing(model, duties, 0.01, tolerance=1e-7)
    with pytest.raises(ValueError, match=r"0\.01 s, which .* at most 10 %") as refused:
        swing(model, duties, 0.01, algorithm=SourceAlgorithm())
    assert "use simulate" in str(refused.value)
    with pytest.raises(ValueError, match=r"Steps of \S+ s are short enough: repeat every") as said:
        swing(model, duties, 0.01, tolerance=1e-3)
    times = int(str(said.value).rsplit("repeat every duty ", 1)[1].split(" times")[0])
    motion = swing(model, np.repeat(duties, times, axis=0), 0.01 / times, tolerance=1e-3)
    exact = radau(0.5, 1.0, 1e5, reference.GEAR)
    np.testing.assert_allclose(motion.q[-1, 0], exact, rtol=1e-3)


def test_within_jit_the_result_says_so():
    duties = jnp.full((100, 1), 0.5)

    @jax.jit
    def both(stiffness):
        found = [
            swing(servo(stiffness), duties, 0.01, algorithm=algorithm)
            for algorithm in (None, SourceAlgorithm())
        ]
        return [(motion.result, motion.stats["error"]) for motion in found]

    (implicit, error), (source, _) = both(jnp.asarray(1e5))
    assert implicit == RESULTS.successful
    assert source == RESULTS.step_too_long
    assert 0 < float(error) < 0.01


def test_substeps_are_shorter_steps_and_compile_nothing():
    model, duties = servo(), 0.6 * np.cos(0.1 * np.arange(40))[:, None]
    expected = swing(model, np.repeat(duties, 4, axis=0), 0.0025).q[::4]
    np.testing.assert_allclose(swing(model, duties, 0.01, substeps=4).q, expected, rtol=1e-12)
    program = jax.jit(lambda n: swing(model, duties, 0.01, substeps=n).q)
    for n in (2, 4):
        found = program(jnp.asarray(n))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert program._cache_size() == 1
    with pytest.raises(ValueError, match="substeps is 0; it must be at least 1"):
        swing(model, duties, 0.01, substeps=0)


@pytest.mark.long
def test_the_error_is_that_of_the_motion():
    """Of second order, and what is measured in half steps is the error."""
    duties = 0.6 * np.cos(0.02 * np.arange(200) * np.pi)[:, None]
    finest = swing(servo(), np.repeat(duties, 64, axis=0), 0.01 / 64, throw=False)
    errors, found = [], []
    for k in (1, 2, 4):
        motion = swing(servo(), np.repeat(duties, k, axis=0), 0.01 / k)
        off = jnp.abs(motion.q[::k] - finest.q[::64]).max()
        errors.append(float(off / (finest.q.max() - finest.q.min())))
        found.append(float(motion.stats["error"]))
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert orders.min() > 1.5
    assert np.max(np.divide(errors, found)) < 1.5
