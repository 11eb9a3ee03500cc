import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import pytest
from jax.test_util import check_grads
from scipy.integrate import solve_ivp

from jaxgrip import actuators
from jaxgrip.solve.stiff import LU

SERVO_STEADY = {
    0.01: 0.426684614,
    0.0659532: 0.226581544,
    0.1: 0.141461738,
    0.5: 0.22068115,
    1.0: 0.3642073,
    5.0: 1.5124165,
}
BENCHMARK_STEADY = {
    1e-4: 1.495065,
    5e-4: 1.389600,
    1e-3: 1.184340,
    2e-3: 1.009958,
    1e-2: 1.004,
    0.1: 1.04,
}
BREAK_AWAY = {1: 1.43242, 2: 1.39442, 5: 1.31321, 10: 1.21995, 20: 1.09861, 50: 1.00747}
HYSTERESIS = {
    0.001: 1.7459e-6,
    0.002: 1.3894e-5,
    0.005: 2.1169e-4,
    0.01: 1.56227e-3,
    0.02: 9.42951e-3,
}
QUASI_STATIC = {
    0.001: 1.7482e-6,
    0.002: 1.3934e-5,
    0.005: 2.1233e-4,
    0.01: 1.56079e-3,
    0.02: 9.43766e-3,
}


@pytest.fixture(scope="module")
def sided(reference):
    return actuators.LuGre(
        **reference.FRICTION
        | {
            "damping": 1.31,
            "coulomb": (0.08, 0.1),
            "stiction": (0.4, 0.3),
            "stribeck_velocity": (0.07, 0.05),
            "viscous_exponent": 1.5,
            "coulomb_per_load": 0.05,
            "stiction_per_load": 0.2,
        }
    )


def pull(friction, velocities, times):
    """Bristle torque at the times, from rest, by another code."""

    rates = jax.jit(lambda v, z: friction.rates(v, z))

    def rate(t, z):
        return [float(rates(velocities(t), z[0])[1])]

    return solve_ivp(rate, (0, times[-1]), [0.0], "LSODA", times, rtol=1e-10, atol=1e-13).y[0]


# Static curves


def test_the_static_curves():
    v = jnp.array([-2.0, 0.0, 3.0])
    np.testing.assert_array_equal(actuators.coulomb(v, 0.5), [-0.5, 0, 0.5])
    np.testing.assert_array_equal(actuators.viscous(v, 0.1), 0.1 * v)
    np.testing.assert_allclose(
        actuators.viscous(v, 0.1, 1.5), [-0.1 * 2**1.5, 0, 0.1 * 3**1.5], rtol=1e-15
    )
    external = jnp.array([-3.0, -0.2, 0.2, 3.0])
    np.testing.assert_array_equal(actuators.stiction(0.0, external, 0.5), [-0.5, -0.2, 0.2, 0.5])
    np.testing.assert_array_equal(actuators.stiction(1.0, external, 0.5), 0)


def test_steady_sliding_follows_the_stribeck_curve(servo_friction, reference):
    v = jnp.linspace(-2, 2, 401)
    p = reference.FRICTION
    curve = actuators.stribeck(v, p["coulomb"], p["stiction"], p["stribeck_velocity"], p["viscous"])
    np.testing.assert_allclose(servo_friction.steady(v), curve, rtol=1e-15)


@pytest.mark.parametrize("exponent", [None, 1.0, 1.5, 2.0])
def test_viscous_friction_has_a_slope_at_rest(exponent):
    slope = jax.grad(lambda v: actuators.viscous(v, 0.3, exponent))(0.0)
    assert slope == (0.3 if exponent in (None, 1.0) else 0)


# Steady sliding


def test_steady_sliding_of_the_servo(servo_friction):
    v = jnp.array(list(SERVO_STEADY))
    np.testing.assert_allclose(servo_friction.steady(v), list(SERVO_STEADY.values()), rtol=3e-9)


def test_the_extremes_of_the_servo_curve(servo_friction):
    v = jnp.linspace(0.03, 0.2, 170_001)
    steady = servo_friction.steady(v)
    least = jnp.argmin(steady)
    assert steady[least] == pytest.approx(0.121219, abs=5e-7)
    assert v[least] == pytest.approx(0.137712, abs=1e-6)
    slope = jax.vmap(jax.grad(servo_friction.steady))(v)
    steepest = jnp.argmin(slope)
    assert slope[steepest] == pytest.approx(-4.3263, abs=5e-5)
    assert v[steepest] == pytest.approx(0.046636, abs=1.5e-6)


def test_steady_sliding_of_the_benchmark(benchmark_friction):
    v = jnp.array(list(BENCHMARK_STEADY))
    np.testing.assert_allclose(
        benchmark_friction.steady(v), list(BENCHMARK_STEADY.values()), atol=5e-7
    )


@pytest.mark.parametrize("v", [-3.0, -0.02, 0.05, 4.0])
def test_bristles_settle_at_their_level(servo_friction, v):
    torque, rate = servo_friction.rates(v, servo_friction.level(v) * np.sign(v))
    assert rate == pytest.approx(0, abs=1e-13)
    assert torque == pytest.approx(float(servo_friction.steady(v)), rel=1e-14)
    torque, z = servo_friction.step(v, 0.0, 1e9)
    assert z == pytest.approx(float(servo_friction.level(v)) * np.sign(v), rel=1e-14)


# Forms and symmetries


def test_both_forms_are_the_same(sided, key):
    v, z, load = jax.random.normal(key, (3, 200))
    torque, rate = sided.rates(v, z, load)
    torque_d, rate_d = sided.deflection_rates(v, z / sided.stiffness, load)
    np.testing.assert_allclose(torque_d, torque, rtol=1e-13)
    np.testing.assert_allclose(sided.stiffness * rate_d, rate, rtol=1e-12, atol=1e-13)


def test_friction_is_odd(servo_friction, key):
    v, z = jax.random.normal(key, (2, 200))
    for function in (servo_friction.rates, lambda v, z: servo_friction.step(v, z, 0.01)):
        there, back = jnp.stack(function(v, z)), jnp.stack(function(-v, -z))
        np.testing.assert_array_equal(there, -back)


def test_bristles_never_exceed_the_stiction(servo_friction, key):
    speeds, steps = jax.random.split(key)
    v = 0.01 * jax.random.cauchy(speeds, (10_000,))
    h = 10 ** jax.random.uniform(steps, (10_000,), minval=-6, maxval=2)

    def body(z, vh):
        z = servo_friction.step(vh[0], z, vh[1])[1]
        return z, z

    z = jax.lax.scan(body, servo_friction.stiction, (v, h))[1]
    assert jnp.max(jnp.abs(z)) <= servo_friction.stiction * (1 + 1e-15)
    assert jnp.min(z) < -0.9 * servo_friction.stiction


def test_friction_differs_with_the_direction(sided):
    v = jnp.array([1e-9, -1e-9, 5.0, -5.0])
    np.testing.assert_allclose(sided.level(v), [0.4, 0.3, 0.08, 0.1], rtol=1e-12)
    one = eqx.tree_at(
        lambda f: (f.coulomb, f.stiction, f.stribeck_velocity),
        sided,
        (jnp.array(0.1), jnp.array(0.3), jnp.array(0.05)),
    )
    v, z = -jnp.linspace(0.01, 2, 50), jnp.linspace(-0.3, 0.3, 50)
    np.testing.assert_array_equal(jnp.stack(sided.rates(v, z)), jnp.stack(one.rates(v, z)))


def test_friction_rises_with_the_load(sided):
    for load in (-2.0, 2.0):
        assert sided.level(9.0, load) == pytest.approx(0.08 + 2 * 0.05, rel=1e-14)
        assert sided.level(0.0, load) == pytest.approx(0.4 + 2 * 0.2, rel=1e-14)
    assert jax.grad(sided.level, 1)(9.0, 0.0) == 0


def test_damping_fades_with_the_speed(servo_friction):
    v = jnp.array([0.0, 0.8785457, 30.0])
    damping = servo_friction.damping * jnp.array([1, np.exp(-1), 0])
    np.testing.assert_allclose(servo_friction.bristle_damping(v), damping, rtol=1e-14, atol=1e-300)


def test_damping_against_an_inertia(servo_friction, reference):
    assert servo_friction.damping == pytest.approx(1.3102688, abs=5e-8)
    half = actuators.LuGre.from_inertia(
        inertia=reference.INERTIA, damping_ratio=0.5, **reference.FRICTION
    )
    assert half.damping == pytest.approx(float(servo_friction.damping) / 2, rel=1e-15)


def test_dahl_friction_has_a_closed_form():
    friction = actuators.dahl(0.3, 20.0)
    x = np.linspace(0, 0.1, 51)

    def body(z, v):
        torque, z = friction.step(v, z, 1e-3)
        return z, (torque, z)

    v = jnp.asarray(np.diff(x) / 1e-3)
    torque, z = jax.lax.scan(body, 0.0, v)[1]
    np.testing.assert_allclose(z, 0.3 * (1 - np.exp(-20 * x[1:] / 0.3)), rtol=1e-13)
    np.testing.assert_allclose(torque[1:], z[:-1], rtol=1e-14)


# Steps


def test_a_step_is_exact_at_constant_speed(servo_friction):
    for v in (-0.7, 0.03, 1e-9):
        z = pull(servo_friction, lambda t, v=v: v, [0.02])[0]
        assert servo_friction.step(v, 0.0, 0.02)[1] == pytest.approx(z, rel=1e-8)
    assert servo_friction.step(0.0, 0.2, 0.02)[1] == 0.2


def test_the_torque_of_a_step(servo_friction):
    torque, after = servo_friction.step(0.3, 0.1, 0.01)
    assert torque == servo_friction.rates(0.3, 0.1)[0]
    late, _ = servo_friction.step(0.3, 0.1, 0.01, old=False)
    assert late - torque == pytest.approx(float(after - 0.1), rel=1e-13)


def test_steps_are_of_first_order(servo_friction):
    def velocity(t):
        return 0.3 * np.sin(5 * t) + 0.1

    exact = pull(servo_friction, velocity, [2.0])[0]

    def end(n):
        h = 2.0 / n
        v = jnp.asarray(velocity(h * np.arange(n)))
        return jax.lax.scan(lambda z, v: (servo_friction.step(v, z, h)[1], None), 0.0, v)[0]

    errors = np.array([abs(end(n) - exact) for n in (2000, 4000, 8000)])
    np.testing.assert_allclose(errors[:-1] / errors[1:], 2, atol=0.05)


def test_speed_at_the_end_of_an_implicit_step(servo_friction):
    """It decreases by mobility times friction; far more than one step's worth, or not at all."""
    free = np.concatenate([-np.logspace(3, -6, 40), np.logspace(-6, 3, 40)])
    for z, mobility in ((0.3, 1e-3), (-0.2, 2.0), (0.0, 50.0)):
        law = servo_friction.implicit(0.05, z, 1e-3)
        v = law.speed(free, mobility)
        np.testing.assert_allclose(v + mobility * law.torque(v, v), free, rtol=1e-9, atol=1e-12)


# Motions


@pytest.mark.long
def test_break_away_falls_with_the_rate_of_the_force(benchmark_friction):
    # Over the force instead of time: d/du = (1/rate) d/dt. The break-away is the largest friction.
    grid = jnp.linspace(0, 2, 20_001)

    @jax.jit
    @jax.vmap
    def largest(rate):
        def field(u, y, _):
            torque, z_rate = benchmark_friction.rates(*y)
            return (u - torque) / rate, z_rate / rate

        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Kvaerno5(
                root_finder=optimistix.Newton(rtol=1e-8, atol=1e-10, linear_solver=LU())
            ),
            0.0,
            2.0,
            1e-6,
            (jnp.zeros(()), jnp.zeros(())),
            saveat=diffrax.SaveAt(ts=grid),
            stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-11),
            max_steps=100_000,
        )
        return jnp.max(benchmark_friction.rates(*solution.ys)[0])

    forces = largest(jnp.array([float(rate) for rate in BREAK_AWAY]))
    np.testing.assert_allclose(forces, list(BREAK_AWAY.values()), atol=1e-5)


def test_small_motions_at_rest(servo_friction, reference):
    # Ω' = -F/J, z' = σ0 Ω about rest: the derivatives at the kink.
    jacobian = jnp.stack(
        [jnp.stack(row) for row in jax.jacfwd(servo_friction.rates, (0, 1))(0.0, 0.0)]
    )
    matrix = jacobian * jnp.array([[-1 / reference.INERTIA], [1.0]])
    frequency = jnp.sqrt(jnp.linalg.det(matrix))
    assert frequency == pytest.approx(36.344, abs=5e-4)
    assert -jnp.trace(matrix) / (2 * frequency) == pytest.approx(1.2191, abs=5e-5)
    deflection = servo_friction.stiction / servo_friction.stiffness
    assert deflection == pytest.approx(0.018138, abs=5e-7)


def test_hysteresis_before_sliding(servo_friction):
    amplitudes = jnp.array(list(HYSTERESIS))
    n, h = 20_000, 10.0 / 20_000
    theta = np.sin(2 * np.pi * 0.1 * h * np.arange(3 * n + 1))

    def body(z, twist):
        change = amplitudes * (twist[1] - twist[0])
        after = servo_friction.step(change / h, z, h)[1]
        return after, (z + after) / 2 * change

    work = jax.lax.scan(body, jnp.zeros(5), jnp.asarray(np.stack([theta[:-1], theta[1:]], 1)))[1]
    np.testing.assert_allclose(jnp.sum(work[-n:], 0), list(HYSTERESIS.values()), rtol=3e-5)
    stiction, stiffness = servo_friction.stiction, servo_friction.stiffness
    k = 2 * amplitudes * stiffness / stiction
    turn = stiction * jnp.tanh(k / 2)
    tail = (stiction + turn) * stiction / stiffness * -jnp.expm1(-k)
    area = 2 * (2 * amplitudes * stiction - tail)
    np.testing.assert_allclose(area, list(QUASI_STATIC.values()), rtol=4e-5)
    np.testing.assert_allclose(jnp.sum(work[-n:], 0), area, rtol=4e-3)


# Energy


def test_power_is_stored_or_lost(sided, key):
    v, z, load = jax.random.normal(key, (3, 500))
    torque, rate = sided.rates(v, z, load)
    stored = jax.jvp(sided.energy, (z,), (rate,))[1]
    np.testing.assert_allclose(
        stored + sided.dissipation(v, z, load), torque * v, rtol=1e-12, atol=1e-13
    )


# Derivatives


def check(function, *inputs):
    # A difference over a kink is wrong by the order of its step.
    check_grads(jax.jit(function), inputs, order=1, eps=1e-8, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("v", [0.0, 0.04, -0.7])
@pytest.mark.parametrize("load", [0.0, -0.6])
def test_derivatives(servo_friction, v, load):
    friction = eqx.tree_at(
        lambda f: (f.coulomb_per_load, f.stiction_per_load),
        servo_friction,
        (jnp.array(0.05), jnp.array(0.1)),
    )
    for z in (0.0, 0.4318759, -0.4318759):
        check(everything, friction, v, z, 0.01, load)


def test_derivatives_of_sided_friction(sided):
    for v in (0.3, -0.04):
        check(everything, sided, v, 0.2, 0.01, 0.5)


def test_a_step_at_rest_has_the_mean_of_both_slopes(servo_friction):
    slope = jax.grad(lambda v: servo_friction.step(v, 0.2, 0.01)[1])(0.0)
    assert slope == pytest.approx(float(servo_friction.stiffness) * 0.01, rel=1e-15)


@jax.jit
def everything(friction, v, z, h, load):
    return (
        friction.rates(v, z, load),
        friction.deflection_rates(v, z / friction.stiffness, load),
        friction.step(v, z, h, load),
        friction.step(v, z, h, load, old=False),
        friction.dissipation(v, z, load),
        friction.level(v, load),
        friction.energy(z),
    )


@jax.jit
@jax.vmap
def undefined(friction, *state):
    """Whether a value or a derivative is not finite: infinities and NaN survive the sums."""
    inputs = (friction, *state)
    values, tangents = jax.jvp(everything, inputs, jax.tree.map(jnp.ones_like, inputs))
    gradients = jax.vjp(everything, *inputs)[1](jax.tree.map(jnp.ones_like, values))
    leaves = jax.tree.leaves((values, tangents, gradients))
    return ~jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in leaves]))


@pytest.mark.parametrize(
    ("exponent", "sides"), [(None, 1.0), (1.0, (1.0, 0.8)), (1.5, (1.0, 0.8)), (2.0, (0.8, 1.0))]
)
def test_nothing_is_undefined_anywhere(exponent, sides):
    sides = jnp.asarray(sides)
    speeds = [0.0, 1e-300, 1e-160, 1e-9, 0.066, 0.9, 1e6]
    grid = np.meshgrid(
        [s * v for v in speeds for s in (1, -1)],
        [0.0, 0.43, -0.43, 1e-300, 0.1],
        [1e-9, 1e-2, 1e3],
        [0.0, 1e-300, -2.0],
        [0.066, 1e-12, 1e-100, 1e100],
        [np.inf, 0.9, 1e-100],
    )
    *state, velocity, damping_velocity = (jnp.asarray(x.ravel()) for x in grid)
    friction = actuators.LuGre(
        coulomb=0.08 * sides,
        stiction=0.43 * sides,
        viscous=0.3,
        stiffness=24.0,
        damping=1.3,
        stribeck_velocity=sides,
        viscous_exponent=exponent,
        stiction_per_load=0.1,
    )
    lanes = jax.tree.map(lambda x: jnp.broadcast_to(x, (*velocity.shape, *x.shape)), friction)
    lanes = eqx.tree_at(
        lambda f: (f.stribeck_velocity, f.damping_velocity),
        lanes,
        (jnp.tensordot(velocity, sides, 0), damping_velocity),
    )
    assert not jnp.any(undefined(lanes, *state))


def test_changed_numbers_do_not_recompile(servo_friction):
    step = jax.jit(lambda f, v, z: f.step(v, z, 0.01))
    for scale in (1.0, 2.0):
        step(jax.tree.map(lambda x, s=scale: s * x, servo_friction), 0.1 * scale, 0.2)
    assert step._cache_size() == 1


def test_lanes_of_parameters(servo_friction):
    lanes = jax.tree.map(lambda x: x[None] * jnp.linspace(0.9, 1.1, 5), servo_friction)
    z = jax.vmap(lambda f: f.step(0.2, 0.1, 0.01)[1])(lanes)
    one = jax.tree.map(lambda x: x[3], lanes)
    np.testing.assert_allclose(z[3], one.step(0.2, 0.1, 0.01)[1], rtol=1e-15)


# Bad input


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"stiffness": -1.0}, "The bristle stiffness σ0 is -1; it must be positive."),
        ({"stiction": 0.05}, "stiction is 0.05 and coulomb is 0.077155; stiction must not be less"),
        ({"coulomb": 0.0}, "The Coulomb level F_C is 0; it must be positive."),
        ({"viscous": -0.1}, "The viscous coefficient F_v is -0.1; it must not be negative."),
        ({"damping": np.nan}, "The bristle damping σ1 is not finite: nan."),
        ({"stribeck_velocity": 0.0}, "The Stribeck velocity v_S is 0; it must be positive."),
        ({"damping_velocity": np.nan}, "The damping velocity v_d is not finite: nan."),
        ({"damping_velocity": -np.inf}, "The damping velocity v_d is not finite: -inf."),
        ({"viscous_exponent": 2.5}, "The viscous exponent δ is 2.5; it must lie between 1 and 2."),
        ({"coulomb": [0.1, 0.2, 0.3]}, r"has the shape \(3,\); it must be \(\) or \(2,\)"),
        ({"stiffness": "stiff"}, "The bristle stiffness σ0 is 'stiff'; it must be a number"),
        ({"coulomb_per_load": 0.1}, "stiction_per_load is 0.0 and coulomb_per_load is 0.1;"),
    ],
)
def test_bad_numbers(reference, change, sentence):
    with pytest.raises(ValueError, match=sentence):
        actuators.LuGre(**reference.FRICTION | {"damping": 1.3} | change)


def test_bad_inertia(reference):
    with pytest.raises(ValueError, match="The inertia J is 0; it must be positive"):
        actuators.LuGre.from_inertia(inertia=0.0, **reference.FRICTION)
