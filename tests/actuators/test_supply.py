import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxgrip.actuators import Motor, Supply, Thermal


@pytest.fixture(scope="module")
def motor(reference):
    return Motor(**reference.MOTOR)


@pytest.fixture(scope="module")
def supply(reference):
    return Supply(**reference.SUPPLY)


def test_stall_and_idle(motor):
    assert motor.torque(1.0, 12.0, 0.0) == pytest.approx(1.8081, abs=5e-4)
    assert motor.current(1.0, 12.0, 0.0) == pytest.approx(0.75 + 0.05)
    assert motor.current(0.0, 12.0, 0.0) == pytest.approx(0.05)


def test_no_load_speed(motor):
    speed = 0.7 * 12.0 / motor.back_emf
    assert motor.torque(0.7, 12.0, speed) == pytest.approx(0, abs=1e-15)
    assert motor.winding_current(0.7, 12.0, speed) == pytest.approx(0, abs=1e-15)


def test_an_ideal_motor_loses_the_heat_of_its_winding(key):
    motor = Motor(torque_per_volt=0.15, back_emf=2.4, resistance=16.0)
    duty, speed = jax.random.normal(key, (2, 50))
    taken = 12.0 * motor.current(duty, 12.0, speed)
    heat = 16.0 * motor.winding_current(duty, 12.0, speed) ** 2
    np.testing.assert_allclose(taken, motor.torque(duty, 12.0, speed) * speed + heat, rtol=1e-11)


def test_twenty_stalled_servos(motor, supply):
    ones, zeros = jnp.ones(20), jnp.zeros(20)
    # A divider of the supply's resistance and twenty windings, and the idle currents.
    expected = (11.1 - 0.27 * 20 * 0.05) / (1 + 0.27 * 20 / 16)
    assert supply.voltage(ones, zeros, motor) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("each", [False, True])
def test_the_supply_agrees_with_its_motors(motor, supply, key, each):
    duties, speeds = jax.random.uniform(key, (2, 6), minval=-1.0)
    if each:
        motor = jax.tree.map(lambda x: x * jnp.linspace(0.8, 1.2, 6), motor)
    voltage = supply.voltage(duties, speeds, motor)
    current = jnp.sum(motor.current(duties, voltage, speeds))
    assert voltage == pytest.approx(11.1 - 0.27 * float(current), rel=1e-14)
    assert supply.current(duties, speeds, motor) == pytest.approx(float(current), rel=1e-14)


def test_a_stiff_supply_does_not_sag(motor):
    assert Supply(voltage=12.0).voltage(jnp.ones(3), jnp.zeros(3), motor) == 12.0


def test_a_winding_cools_exponentially():
    winding = Thermal(16.0)
    for h in (1e-3, 10.0, 1e4):
        expected = 293.15 + 60 * np.exp(-h / 200)
        assert winding.step(353.15, 0.0, h) == pytest.approx(expected, rel=1e-14)


def test_a_winding_settles_where_heat_balances():
    winding = Thermal(16.0)
    end = winding.step(293.15, 0.6, 1e6)
    heat = 0.36 * 16 * 10
    assert end - 293.15 == pytest.approx(heat / (1 - 0.0039 * heat), rel=1e-11)
    assert winding.rate(end, 0.6) == pytest.approx(0, abs=1e-12)
    assert winding.winding_resistance(393.15) == pytest.approx(16 * 1.39)


@pytest.mark.parametrize("current", [0.0, 0.5, (16 * 0.0039 * 10) ** -0.5, 3.0])
def test_steps_of_heat_add_up(current):
    # The last two at and above the current of the runaway.
    winding = Thermal(16.0)
    one = winding.step(300.0, current, 2.0)
    many = jax.lax.fori_loop(0, 200, lambda _, t: winding.step(t, current, 0.01), 300.0)
    assert many == pytest.approx(float(one), rel=1e-12)
    slope = jax.grad(winding.step, 2)(300.0, current, 0.0)
    assert slope == pytest.approx(float(winding.rate(300.0, current)), rel=1e-12)


def check(function, *inputs):
    check_grads(jax.jit(function), inputs, order=1, eps=1e-6, rtol=1e-6, atol=1e-6)


@jax.jit
def bus(supply, duties, speeds, motor):
    return supply.voltage(duties, speeds, motor), supply.current(duties, speeds, motor)


@jax.jit
def heat(winding, temperature, current, h):
    return winding.step(temperature, current, h)


def test_derivatives_of_the_supply(motor, supply):
    for duty in (0.0, 1.0, -0.4):
        duties = jnp.array([duty, 0.0, 0.5])
        for speeds in (jnp.zeros(3), jnp.array([1.0, -2.0, 3.0])):
            check(bus, supply, duties, speeds, motor)


def test_derivatives_of_heat():
    for current in (0.0, (16 * 0.0039 * 10) ** -0.5, 1.0):
        check(heat, Thermal(16.0), 300.0, current, 0.1)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (
            lambda: Motor(torque_per_volt=0.0, back_emf=1.0, resistance=1.0),
            "The torque per volt k_V is 0; it must be positive.",
        ),
        (
            lambda: Motor(torque_per_volt=1.0, back_emf=-1.0, resistance=1.0),
            "The back-EMF constant k_e is -1; it must not be negative.",
        ),
        (lambda: Supply(voltage=-12.0), "The supply's voltage is -12; it must be positive."),
        (
            lambda: Supply(voltage=12.0, resistance=np.nan),
            "The supply's resistance is not finite: nan.",
        ),
        (
            lambda: Supply(voltage=[12.0, 12.0]),
            r"The supply's voltage has the shape \(2,\); it must be \(\).",
        ),
        (lambda: Thermal(0.0), "The winding resistance R0 is 0; it must be positive."),
        (
            lambda: Thermal(16.0, capacity=-1.0),
            "The thermal capacity is -1; it must be positive.",
        ),
    ],
)
def test_bad_numbers(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build()
