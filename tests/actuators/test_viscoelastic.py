import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.linalg import expm
from scipy.optimize import minimize_scalar

from jaxgrip import actuators
from jaxgrip.actuators import GeneralizedMaxwell

SCHEMES = ("source", "zoh", "foh")


def over(function, *arguments):
    return jax.vmap(function)(*(jnp.asarray(a, dtype=float) for a in arguments))


# The gear of the source


def test_creep(gear):
    twist = 0.5 * np.degrees(over(gear.creep, [0, 0.1, 1, 10, 60, 180, 1e6]))
    expected = [1.1944, 2.0412, 3.8124, 4.0134, 4.3883, 4.5059, 4.5101]
    np.testing.assert_allclose(twist, expected, atol=5e-5)


def test_creep_in_modes(gear):
    t = np.array([0, 0.1, 1, 10, 60, 180])
    amplitudes, rates = (-0.0927725223, -0.0229654836), (-3.82587808, -0.02811262)
    modes = sum(a * np.exp(r * t) for a, r in zip(amplitudes, rates, strict=True))
    np.testing.assert_allclose(over(gear.creep, t), 1 / 6.352 + modes, rtol=1e-6)


def test_relaxation(gear):
    torque = 0.05 * over(gear.relaxation, [0, 0.1, 1, 10, 100])
    expected = [1.199250, 0.611856, 0.369470, 0.356178, 0.319600]
    np.testing.assert_allclose(torque, expected, atol=5e-7)


def test_modulus(gear):
    modulus = over(gear.modulus, 2 * np.pi * np.array([1, 0.01, 10]))
    np.testing.assert_allclose(modulus.real, [10.82929, 7.19392, 23.36900], atol=5e-6)
    np.testing.assert_allclose(modulus.imag, [6.69884, 0.52468, 3.13459], atol=5e-6)


def test_the_largest_loss(gear):
    def tangent(w):
        modulus = gear.modulus(w)
        return -float(modulus.imag / modulus.real)

    peak = minimize_scalar(tangent, bounds=(1, 30), method="bounded", options={"xatol": 1e-8})
    assert -peak.fun == pytest.approx(0.62099, abs=5e-6)
    assert peak.x == pytest.approx(6.863, abs=5e-4)


def test_times(gear):
    assert gear.times[0] == pytest.approx(0.0809734, abs=5e-8)
    assert gear.times[1] == pytest.approx(30.40858, abs=5e-6)


@pytest.mark.parametrize(("h", "error"), [(1e-2, 1.00175), (1e-3, 0.10207), (1e-4, 0.01023)])
def test_the_error_of_the_source(gear, h, error):
    assert gear.source_error(h) == pytest.approx(error, abs=5e-6)


def hold(gear, n, h, scheme):
    """Torque after each of n steps at the twist one."""

    def body(e, _):
        e = gear.step(e, 1.0, 1.0, h, scheme)
        return e, gear.torque(1.0, e)

    return jax.lax.scan(body, jnp.zeros_like(gear.springs), length=n)[1]


def test_the_recursion_of_the_source(gear):
    torque = hold(gear, 500_000, 0.01, "source")
    assert torque[0] == pytest.approx(22.177015, abs=5e-7)
    assert torque[-1] == pytest.approx(7.353753, abs=5e-7)
    assert torque[-1] == pytest.approx(float(gear.spring + gear.source_error(0.01)), rel=1e-12)
    x = 0.01 / np.asarray(gear.times)
    q = np.exp(-x)
    n = np.array([[0], [1], [5], [200], [3000]])
    closed = 6.352 + np.sum(
        np.asarray(gear.springs) * (1 - x * q * (1 - q ** (n + 1)) / (1 - q)), axis=1
    )
    np.testing.assert_allclose(torque[n[:, 0]], closed, rtol=1e-12)


def test_steps_relax_exactly(gear):
    for scheme in ("zoh", "foh"):
        torque = hold(gear, 1000, 0.05, scheme)
        exact = over(gear.relaxation, 0.05 * np.arange(1, 1001))
        np.testing.assert_allclose(torque, exact, rtol=1e-12)


def follow(gear, n, scheme):
    """State of the first branch at 2 s under the twist 0.05 sin 3t."""
    h = 2 / n
    twist = jnp.asarray(0.05 * np.sin(3 * h * np.arange(n + 1)))

    def body(e, ends):
        return gear.step(e, ends[0], ends[1], h, scheme), None

    ends = jnp.stack([twist[:-1], twist[1:]], axis=1)
    return jax.lax.scan(body, jnp.zeros(2), ends)[0][0]


def test_steps_follow_a_sine(gear):
    assert follow(gear, 200, "foh") == pytest.approx(-0.02420287, abs=5e-9)
    assert follow(gear, 200, "zoh") == pytest.approx(-0.02484769, abs=5e-9)


@pytest.mark.parametrize(("scheme", "order"), [("source", 1), ("zoh", 1), ("foh", 2)])
def test_orders_of_the_steps(gear, scheme, order):
    w = 3 * gear.times[0]
    steady = np.sin(6.0) - w * np.cos(6.0) + w * np.exp(-2 / gear.times[0])
    exact = 0.05 * steady / (1 + w * w)
    assert exact == pytest.approx(-0.02420469, abs=5e-9)
    errors = np.array([abs(follow(gear, n, scheme) - exact) for n in (800, 1600, 3200)])
    np.testing.assert_allclose(np.log2(errors[:-1] / errors[1:]), order, atol=0.02)


# Simple elements

T = np.array([0.0, 0.01, 0.3, 2.0, 50.0])


def test_spring_and_damper():
    spring, damper = actuators.hooke(3.0), actuators.newton(0.7)
    none = jnp.zeros(0)
    assert spring.torque(0.2, none) == pytest.approx(0.6)
    np.testing.assert_allclose(over(spring.creep, T), 1 / 3, rtol=1e-14)
    assert damper.torque(0.2, none, 2.0) == pytest.approx(1.4)
    np.testing.assert_allclose(over(damper.creep, T), T / 0.7, rtol=1e-14)


def test_maxwell_flows_and_relaxes():
    element = actuators.maxwell(3.0, 0.7)
    np.testing.assert_allclose(over(element.creep, T), 1 / 3 + T / 0.7, rtol=1e-13)
    np.testing.assert_allclose(over(element.relaxation, T), 3 * np.exp(-3 * T / 0.7), rtol=1e-13)


def test_kelvin_voigt_creeps_to_a_bound():
    element = actuators.kelvin_voigt(3.0, 0.7)
    np.testing.assert_allclose(over(element.creep, T), -np.expm1(-3 * T / 0.7) / 3, rtol=1e-13)
    assert element.modulus(2.0) == pytest.approx(3 + 1.4j)


def test_standard_solid():
    element = actuators.standard_solid(2.0, 3.0, 0.7)
    late = np.exp(-T * 2 * 3 / (0.7 * 5))
    np.testing.assert_allclose(over(element.creep, T), 0.5 - (0.5 - 0.2) * late, rtol=1e-13)
    np.testing.assert_allclose(
        over(element.relaxation, T), 2 + 3 * np.exp(-T * 3 / 0.7), rtol=1e-13
    )
    # (2.30): σ + (η/E1) σ' = E0 ε + η (E0 + E1)/E1 ε'.
    w = np.linspace(0, 50, 101)
    a, b = 0.7 / 3, 0.7 * 5 / 3
    np.testing.assert_allclose(
        over(element.modulus, w), (2 + 1j * w * b) / (1 + 1j * w * a), rtol=1e-13
    )


def test_both_standard_solids_are_equal():
    spring, branch, damper = 2.0, 3.0, 0.7
    parallel = actuators.standard_solid(spring, branch, damper)
    a = spring + branch
    b, eta = spring * a / branch, damper * a**2 / branch**2
    series = actuators.standard_solid_series(a, b, eta)
    for ours, theirs in zip(jax.tree.leaves(series), jax.tree.leaves(parallel), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    np.testing.assert_allclose(
        over(parallel.creep, T), 1 / a - np.expm1(-T * b / eta) / b, rtol=1e-12
    )
    w = np.linspace(0.01, 50, 101)
    np.testing.assert_allclose(
        1 / over(parallel.modulus, w), 1 / a + 1 / (b + 1j * w * eta), rtol=1e-12
    )


# Any element

ELEMENTS = {
    "three branches": GeneralizedMaxwell(2.0, (5.0, 3.0, 1.0), (0.1, 1.0, 20.0)),
    "parallel damper": GeneralizedMaxwell(2.0, (5.0, 3.0), (0.1, 1.0), damper=0.3),
    "flowing": GeneralizedMaxwell(0.0, (5.0, 3.0), (0.1, 1.0)),
    "flowing in parallel": GeneralizedMaxwell(0.0, (5.0, 3.0), (0.1, 1.0), damper=0.3),
    "equal times": GeneralizedMaxwell(2.0, (5.0, 10.0, 1.0), (0.1, 0.2, 0.02), damper=0.3),
}


@pytest.fixture(params=list(ELEMENTS))
def element(request):
    return ELEMENTS[request.param]


def test_creep_solves_the_equations(element):
    # The element's own equations as one linear system (e, or e and twist, with unit torque).
    k = element.springs.size
    total = float(element.spring + element.springs.sum())
    rates = np.diag(-1 / np.array(element.times))
    if element.damper is None:
        system = np.zeros((k + 1, k + 1))
        system[:k, :k] = rates + np.outer(1 / element.times, element.springs) / total
        system[:k, k] = 1 / element.times / total
        states = [expm(system * t)[:, k] for t in T]
        twist = [(1 + element.springs @ x[:k]) / total for x in states]
    else:
        damper = float(element.damper)
        system = np.zeros((k + 2, k + 2))
        system[:k, :k], system[:k, k] = rates, 1 / element.times
        system[k, :k], system[k, k] = element.springs / damper, -total / damper
        system[k, k + 1] = 1 / damper
        twist = [expm(system * t)[k, k + 1] for t in T]
    np.testing.assert_allclose(over(element.creep, T), twist, rtol=1e-11, atol=1e-15)


def test_modulus_is_the_response_to_a_sine(element):
    w = 4.0
    # e = ε/(1 + iwτ) solves e' = (ε - e)/τ.
    e = 1 / (1 + 1j * w * np.asarray(element.times))

    real = element.torque(1.0, jnp.asarray(e.real), 0.0)
    imaginary = element.torque(0.0, jnp.asarray(e.imag), w)
    assert element.modulus(w) == pytest.approx(complex(real, imaginary), rel=1e-13)


def test_power_is_stored_or_lost(element, key):
    twist, rate = jax.random.normal(key, (2,))
    e = jax.random.normal(key, element.springs.shape)
    stored = jax.jvp(element.energy, (twist, e), (rate, element.rates(twist, e)))[1]
    lost = element.dissipation(twist, e, rate)
    assert stored + lost == pytest.approx(float(element.torque(twist, e, rate) * rate), rel=1e-12)
    assert lost > 0


def test_the_loop_of_a_sine_loses_the_loss_modulus(gear):
    w, n, cycles = 6.0, 4000, 3
    h = 2 * np.pi / w / n
    # From the steady state of e, the part of the response behind the sine.
    e = jnp.asarray((0.05 / (1 + 1j * w * np.asarray(gear.times))).imag)
    twist = jnp.asarray(0.05 * np.sin(w * h * np.arange(cycles * n + 1)))

    def body(state, ends):
        e, torque = state
        e = gear.step(e, ends[0], ends[1], h, "foh")
        after = gear.torque(ends[1], e)
        return (e, after), (torque + after) / 2 * (ends[1] - ends[0])

    start = (e, gear.torque(0.0, e))
    work = jax.lax.scan(body, start, jnp.stack([twist[:-1], twist[1:]], axis=1))[1]
    loss = np.pi * 0.05**2 * float(gear.modulus(w).imag)
    assert jnp.sum(work) / cycles == pytest.approx(loss, rel=1e-5)


def check(function, *inputs):
    check_grads(jax.jit(function), inputs, order=1, eps=1e-6, rtol=1e-6, atol=1e-7)


@jax.jit
def everything(element, twist, e, rate, t):
    modulus = element.modulus(t)
    return (
        element.torque(twist, e, rate),
        element.rates(twist, e),
        element.energy(twist, e),
        element.dissipation(twist, e, rate),
        modulus.real,
        modulus.imag,
        element.creep(t),
        element.relaxation(t),
        element.source_error(t),
        *(element.step(e, 0.1, twist, t, scheme) for scheme in SCHEMES),
    )


@pytest.mark.long
@pytest.mark.parametrize("name", ["flowing in parallel", "equal times"])
def test_derivatives(name):
    element = ELEMENTS[name]
    e = jnp.linspace(-0.1, 0.2, element.springs.size)
    check(everything, element, 0.3, e, 0.2, 0.05)
    check(everything, element, 0.0, 0 * e, 0.0, 2.0)


def test_very_short_and_very_long_steps(gear):
    for h in (1e-300, 1e-9, 1e9):
        for scheme in SCHEMES:
            value, slope = jax.value_and_grad(
                lambda g, e, h, s=scheme: jnp.sum(g.step(e, 0.1, 0.2, h, s)), (0, 1)
            )(gear, jnp.ones(2), h)
            leaves = jax.tree.leaves((value, slope))
            assert all(bool(jnp.all(jnp.isfinite(x))) for x in leaves)
        assert jnp.isfinite(jax.grad(lambda g, h=h: g.source_error(h))(gear).spring)
        slopes = jax.grad(lambda g, h=h: g.source_error(h))(gear)
        assert bool(jnp.all(jnp.isfinite(slopes.dampers)))


def test_lanes_of_parameters(gear):
    lanes = jax.tree.map(lambda x: jnp.stack([0.9 * x, 1.1 * x]), gear)
    creep = jax.vmap(lambda g: g.creep(1.0))(lanes)
    np.testing.assert_allclose(
        creep, gear.creep(1.0) / jnp.array([0.9, 1.1]), rtol=1e-13
    )  # springs and dampers scaled alike


# Bad input


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((-1.0,), "The spring E0 is -1; it must not be negative."),
        (
            (1.0, (1.0, -2.0), (1.0, 1.0)),
            r"A spring of the branches is \[1.0, -2.0\]; it must be positive.",
        ),
        ((1.0, (1.0, 2.0), (1.0, 0.0)), "Branch 2 has the damper 0 N m s/rad; the time constant"),
        ((1.0, (1.0, 2.0), (1.0,)), r"has the shape \(1,\); it must be \(2,\)"),
        ((1.0, 2.0, 1.0), r"have the shape \(\); it must be \(K,\)"),
        ((np.nan,), "The spring E0 is not finite: nan"),
        ((1.0, (1.0,), (np.nan,)), "The array of dampers of the branches is not finite"),
        ((1.0, (), (), -1.0), "The parallel damper η0 is -1; it must be positive."),
        ((0.0,), "The element has neither a spring nor a damper."),
    ],
)
def test_bad_numbers(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        GeneralizedMaxwell(*arguments)


def test_a_scheme_that_is_none(gear):
    with pytest.raises(ValueError, match='The scheme is \'tustin\'; it must be "zoh", "foh" or'):
        gear.step(jnp.zeros(2), 0.0, 0.0, 0.1, "tustin")
