from functools import partial
from typing import NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import jaxgrip as jg
from jaxgrip.actuators import (
    LuGre,
    Motor,
    Servo,
    ServoState,
    SourceAlgorithm,
    Supply,
    simulate,
    simulate_fixed,
    stack,
)

# Independent values (SciPy's Radau): times [s], then angles of arm and flywheel [rad].
TIMES = np.array([0.5, 1, 2, 5, 10, 20])
SINE = (
    [0.42859645, 0.66067554, -0.67450136, 0.67543609, -0.67543309, -0.67543343],
    [0.47083038, 0.73078732, -0.74003640, 0.74156454, -0.74125008, -0.74128589],
)
STEP = (
    [0.56185485, 0.67965112, 0.67241337, 0.67123219, 0.66962033, 0.66701372],
    [0.61374693, 0.76931641, 0.76934782, 0.76940849, 0.76948472, 0.76960890],
)
DECAY_TIMES = np.array([0.1, 0.2, 0.5, 1, 2, 5, 10])
DECAY = [1.43707324, 1.18778757, 0.36105382, 0.02677855, 0.04362782, 0.04375547, 0.04367420]
SOURCE_SINE = (
    [0.434558760, 0.660081711, -0.673791034, 0.674391512, -0.674389135, -0.674389411],
    [0.458002798, 0.732852337, -0.744699920, 0.745700086, -0.745456799, -0.745484960],
)
SOURCE_STEP = [0.567276368, 0.679418533, 0.675665759, 0.674784452, 0.673518195, 0.671477200]
EXPLICIT_SINE = [0.425659351, 0.676301000, -0.695897679, 0.696657669, -0.696655226, -0.696655501]

STALL_TORQUE = 1.8081276
NAMES = (
    "coulomb",
    "stiction",
    "viscous",
    "stiffness",
    "stribeck_velocity",
    "damping_velocity",
    "inertia",
    "stall_torque",
)


class Task(NamedTuple):
    """Numbers of a run on the pendulum, so that one compiled program does them all."""

    amplitude: float = 0.0
    constant: float = 0.0
    angle: float = 0.0
    span: float = 20.0
    rtol: float = 1e-9


def torque(amplitude, constant, t, q, qd):
    """amplitude sin(π t) + constant in N m of the published servo, as a duty."""
    return jnp.full_like(q, (amplitude * jnp.sin(jnp.pi * t) + constant) / STALL_TORQUE)


def run(servo, arm, task, **options):
    """2001 samples over the span."""
    task = jax.tree.map(jnp.asarray, task)
    command = Partial(torque, task.amplitude, task.constant)
    times = jnp.linspace(0.0, 1.0, 2001) * task.span
    return simulate(
        arm,
        servo,
        command,
        times,
        q0=task.angle[None],
        rtol=task.rtol,
        atol=1e-2 * task.rtol,
        max_steps=16384,
        **options,
    )


@pytest.fixture(scope="module")
def arm():
    return jg.models.servo_ax12_arm()


@pytest.fixture(scope="module")
def servo():
    return jg.models.servo_ax12()


@pytest.fixture(scope="module")
def compiled():
    return jax.jit(run)


def distance(motion):
    """Sum of squared distances of the arm from 0.1 rad."""
    return jnp.sum((motion.q - 0.1) ** 2)


@pytest.fixture(scope="module")
def gradient():
    return jax.jit(jax.grad(lambda n, *rest: distance(run(jg.models.servo_ax12(**n), *rest))))


@pytest.fixture(scope="module")
def sine(servo, arm, compiled):
    return compiled(servo, arm, Task(amplitude=1.0))


def source_run(servo, arm, amplitude, constant, h=0.01, **options):
    t = h * np.arange(round(20 / h))
    duties = (amplitude * np.sin(np.pi * t) + constant)[:, None] / STALL_TORQUE
    return simulate_fixed(arm, servo, duties, h, algorithm=SourceAlgorithm(**options))


def test_numbers_of_the_default_rig(servo, arm):
    """The arm in closed form, the damping of table 4.1 of Kubisch 2008."""
    np.testing.assert_allclose(arm.inertia, 0.0259812, rtol=1e-6)
    np.testing.assert_allclose(arm.weight, 1.1495358, rtol=1e-7)
    np.testing.assert_allclose(servo.friction.damping, 1.3102688, rtol=1e-7)


@pytest.mark.long
def test_motion_under_a_sine(sine):
    at = np.rint(TIMES * 100).astype(int)
    np.testing.assert_allclose(sine.q[at, 0], SINE[0], rtol=0, atol=6e-9)
    np.testing.assert_allclose(sine.servo.angle[at, 0], SINE[1], rtol=0, atol=6e-9)


@pytest.mark.long
def test_motion_under_a_step(servo, arm, compiled):
    motion = compiled(servo, arm, Task(constant=0.8))
    at = np.rint(TIMES * 100).astype(int)
    np.testing.assert_allclose(motion.q[at, 0], STEP[0], rtol=0, atol=6e-9)
    np.testing.assert_allclose(motion.servo.angle[at, 0], STEP[1], rtol=0, atol=6e-9)


def test_free_decay(servo, arm, compiled):
    motion = compiled(servo, arm, Task(angle=np.pi / 2, span=10.0))
    at = np.rint(DECAY_TIMES * 200).astype(int)
    np.testing.assert_allclose(motion.q[at, 0], DECAY, rtol=0, atol=6e-9)


def test_free_decay_never_gains_energy(arm, compiled):
    servo = jg.models.servo_ax12(damping_velocity=0.5)
    motion = compiled(servo, arm, Task(angle=np.pi / 2, span=5.0))
    state = jax.tree.map(lambda x: x[:, 0], motion.servo)
    q, qd = motion.q[:, 0], motion.qd[:, 0]
    energy = jax.vmap(servo.energy)(state, q)
    energy += arm.inertia * qd**2 / 2 + arm.weight * (1 - jnp.cos(q))
    assert float(jnp.diff(energy).max()) < 1e-9
    assert energy[-1] < 0.1 * energy[0]


def test_stiff_bristles(arm, compiled):
    servo = jg.models.servo_ax12(stiffness=1e5)
    motion = compiled(servo, arm, Task(amplitude=1.0, rtol=1e-6))
    assert int(motion.stats["num_steps"]) < 8000


def test_one_program_for_all_numbers(servo, arm, compiled):
    compiled(servo, arm, Task(amplitude=0.3, span=1.0))
    stiffer = jg.models.servo_ax12(stiffness=50.0, inertia=0.02)
    compiled(stiffer, jg.models.servo_ax12_arm(length=0.3), Task(constant=0.2, span=2.0))
    assert compiled._cache_size() == 1


def test_steps_of_the_source(servo, arm):
    at = np.rint(TIMES * 100).astype(int)
    motion = source_run(servo, arm, 1.0, 0.0)
    np.testing.assert_allclose(motion.q[at, 0], SOURCE_SINE[0], rtol=0, atol=6e-10)
    np.testing.assert_allclose(motion.servo.angle[at, 0], SOURCE_SINE[1], rtol=0, atol=6e-10)
    motion = source_run(servo, arm, 0.0, 0.8)
    np.testing.assert_allclose(motion.q[at, 0], SOURCE_STEP, rtol=0, atol=6e-10)
    motion = source_run(servo, arm, 1.0, 0.0, integrator="explicit")
    np.testing.assert_allclose(motion.q[at, 0], EXPLICIT_SINE, rtol=0, atol=6e-10)


@pytest.mark.long
@pytest.mark.parametrize(
    ("gear", "arm_errors", "flywheel_errors"),
    [
        (
            "source",
            ("3.15e-3", "1.47e-3", "5.6e-4", "2.8e-4"),
            ("1.08e-2", "5.4e-3", "2.2e-3", "1.1e-3"),
        ),
        ("zoh", ("5.8e-3", "2.9e-3", "1.2e-3", "5.9e-4"), ("1.3e-2", "6.7e-3", "2.7e-3", "1.3e-3")),
    ],
)
def test_errors_of_the_steps(servo, arm, sine, gear, arm_errors, flywheel_errors):
    """Root mean squares over 20 s at h = 10, 5, 2 and 1 ms, and order one."""
    found = []
    for k in (1, 2, 5, 10):
        motion = source_run(servo, arm, 1.0, 0.0, h=0.01 / k, gear=gear)
        pair = (motion.q[::k], motion.servo.angle[::k])
        exact = (sine.q, sine.servo.angle)
        found.append(
            [float(jnp.sqrt(jnp.mean((x - y) ** 2))) for x, y in zip(pair, exact, strict=True)]
        )
    found = np.array(found).T
    for errors, published in zip(found, (arm_errors, flywheel_errors), strict=True):
        for error, text in zip(errors, published, strict=True):
            digits = len(text.split("e")[0].replace(".", "")) - 1
            assert f"{error:.{digits}e}".replace("e-0", "e-") == text
    halvings = found[:, [0, 2]] / found[:, [1, 3]]
    np.testing.assert_allclose(halvings, 2.0, rtol=0.08)


def test_error_of_the_explicit_steps(servo, arm, sine):
    motion = source_run(servo, arm, 1.0, 0.0, integrator="explicit")
    error = jnp.sqrt(jnp.mean((motion.q - sine.q) ** 2))
    np.testing.assert_allclose(error, 1.43e-2, atol=5e-5)


def test_old_or_new_bristles(servo, arm):
    """Independent value (NumPy): a mean difference of 1.6e-3 rad under a sine of 1 N m."""
    old, new = (source_run(servo, arm, 1.0, 0.0, old=old) for old in (True, False))
    difference = jnp.sqrt(jnp.mean((old.q - new.q) ** 2))
    np.testing.assert_allclose(difference, 1.6e-3, atol=5e-5)


@pytest.mark.parametrize("gear", ["source", "zoh", "foh"])
def test_substeps(servo, gear):
    """An output that moves on at its rate makes four substeps the same as four steps."""

    def unmoved(q, qd, tau):
        return jnp.zeros_like(q)

    duties = 0.5 * np.sin(0.3 * np.arange(100))[:, None]
    start = {"q0": np.zeros(1), "qd0": np.array([0.3])}
    coarse = simulate_fixed(
        unmoved, servo, duties, 0.01, algorithm=SourceAlgorithm(gear=gear, substeps=4), **start
    )
    fine = simulate_fixed(
        unmoved,
        servo,
        np.repeat(duties, 4, axis=0),
        0.0025,
        algorithm=SourceAlgorithm(gear=gear),
        **start,
    )
    for a, b in zip(jax.tree.leaves(coarse.servo), jax.tree.leaves(fine.servo), strict=True):
        np.testing.assert_allclose(a, b[::4], rtol=0, atol=1e-13)


@pytest.mark.long
def test_gradients_against_differences(arm, compiled, gradient):
    """Relative step 1e-3, rtol 1e-9: differences of the adaptive solver are no better."""
    task = Task(amplitude=1.0, span=4.0)
    numbers = {**jg.models.servo.FRICTION, "inertia": 0.0180259, "stall_torque": STALL_TORQUE}
    numbers = jax.tree.map(jnp.asarray, numbers)
    found = gradient(numbers, arm, task)
    for name in NAMES:
        high, low = (
            distance(
                compiled(
                    jg.models.servo_ax12(**{**numbers, name: numbers[name] * factor}), arm, task
                )
            )
            for factor in (1.001, 0.999)
        )
        difference = (high - low) / (0.002 * numbers[name])
        strong = name in ("coulomb", "viscous", "inertia", "stall_torque")
        np.testing.assert_allclose(found[name], difference, rtol=1e-5 if strong else 1e-3)
    still = gradient(numbers, arm, task._replace(amplitude=0.0))
    assert all(bool(jnp.isfinite(x)) for x in still.values())


@pytest.mark.long
def test_forward_derivatives_of_the_steps(servo, arm):
    """Both modes agree, and with differences."""
    duties = 0.6 * jnp.sin(jnp.pi * 0.01 * jnp.arange(200.0))[:, None]

    def last(stiction):
        servo = jg.models.servo_ax12(stiction=stiction)
        return simulate_fixed(arm, servo, duties, 0.01).q[-1, 0]

    at = jnp.asarray(0.43)
    forward, reverse = jax.jit(jax.jacfwd(last))(at), jax.jit(jax.grad(last))(at)
    np.testing.assert_allclose(forward, reverse, rtol=1e-12)
    np.testing.assert_allclose(reverse, (last(at + 1e-5) - last(at - 1e-5)) / 2e-5, rtol=1e-6)


@pytest.mark.long
def test_derivatives_at_full_duty(servo, arm):
    """One at the limits of the duty, not the half of a clip; none beyond, where nothing is got."""

    def last(duty):
        return simulate_fixed(arm, servo, duty * jnp.ones((20, 1)), 0.01).q[-1, 0]

    slope = jax.jit(jax.grad(last))
    for sign in (1.0, -1.0):
        np.testing.assert_allclose(slope(sign), slope(0.999999 * sign), rtol=1e-5)
        assert slope(1.5 * sign) == 0.0


def test_duties_of_a_compiled_run_are_those_got(servo, arm, compiled):
    full, more = (compiled(servo, arm, Task(constant=c * STALL_TORQUE, span=1.0)) for c in (1, 2))
    np.testing.assert_array_equal(more.q, full.q)
    np.testing.assert_array_equal(more.duty, 1.0)


@pytest.mark.long
def test_batches_of_parameters(servo, arm):
    """Parameters and commands in one batch each: the same as one by one."""
    numbers = jnp.array([[0.08, 0.02], [0.2, 0.03], [0.4, 0.01]])
    duties = jnp.broadcast_to(jnp.array([0.5, -0.3])[:, None, None], (2, 300, 1))

    def last(number, duties):
        servo = jg.models.servo_ax12(coulomb=number[0], inertia=number[1])
        return simulate_fixed(arm, servo, duties, 0.01).q[-1, 0]

    batch = jax.vmap(jax.vmap(last, (None, 0)), (0, None))(numbers, duties)
    for k in range(3):
        for j in range(2):
            np.testing.assert_allclose(batch[k, j], last(numbers[k], duties[j]), rtol=1e-12)


@pytest.mark.long
def test_batch_with_error_control(arm, compiled):
    """Every member has its own steps; forward derivatives against differences."""
    task = Task(amplitude=0.8, span=0.5)

    def last(stiffness, run=run, **options):
        return run(jg.models.servo_ax12(stiffness=stiffness), arm, task, **options).q[-1, 0]

    stiffness = jnp.array([20.0, 1e4])
    forward = partial(jax.jvp, partial(last, adjoint=diffrax.ForwardMode()))
    angles, slopes = jax.jit(jax.vmap(lambda x: forward((x,), (jnp.ones(()),))))(stiffness)
    for k in range(2):
        middle, low, high = (last(f * stiffness[k], compiled) for f in (1.0, 0.999, 1.001))
        np.testing.assert_allclose(angles[k], middle, rtol=1e-9)
        difference = (high - low) / (0.002 * stiffness[k])
        np.testing.assert_allclose(slopes[k], difference, rtol=1e-3)


def with_everything(**numbers):
    """A servo with sides, load, backlash, and motor."""
    friction = {
        **jg.models.servo.FRICTION,
        "coulomb": (0.08, 0.1),
        "stiction": (0.43, 0.4),
        "stribeck_velocity": (0.066, 0.08),
        "viscous_exponent": 1.5,
        "coulomb_per_load": 0.05,
        "stiction_per_load": 0.1,
        **numbers,
    }
    friction = jax.tree.map(np.asarray, friction)
    return Servo(
        LuGre.from_inertia(inertia=0.018, **friction),
        jg.actuators.GeneralizedMaxwell(**jg.models.servo.GEAR, damper=0.1),
        0.018,
        1.8,
        backlash=0.005,
        motor=Motor(torque_per_volt=0.15, back_emf=1.5, resistance=16.0, idle_current=0.05),
    )


@pytest.mark.long
@pytest.mark.parametrize("everything", [False, True])
def test_finite_at_every_kink(servo, everything):
    """Rates and steps with their derivatives, also by every number of the servo."""
    model = with_everything() if everything else servo
    grid = jnp.array(
        np.meshgrid(
            [0.0, 1e-300, -1e-12, 0.066, -2.0, 1e4],
            [0.0, 0.43, -0.4],
            [0.0, 0.0025, -0.0025, 0.3],
            [0.0, -0.01],
            [0.0, 1.0, -1.0],
            [0.0, 2.0],
            indexing="ij",
        )
    ).reshape(6, -1)

    def outcome(model, x, h):
        speed, bristle, angle, e, duty, rate = x
        state = ServoState(angle, speed, bristle, jnp.stack([e, -e]))
        zero = jnp.zeros(())
        if h is None:
            out = model.rates(state, duty, zero, rate, 12.0)
        else:
            out = model.step(state, zero, duty, zero, rate, h, voltage=12.0)
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(out)])

    for h in (None, 0.01):
        value, jacobian = jax.jit(
            jax.vmap(
                lambda x, h=h: (outcome(model, x, h), jax.jacrev(outcome, (0, 1))(model, x, h)),
                in_axes=1,
            )
        )(grid)
        for leaf in jax.tree.leaves((value, jacobian)):
            assert bool(jnp.isfinite(leaf).all())


@pytest.mark.parametrize("everything", [False, True])
def test_energy(key, everything):
    """dE/dt = M Ω - σ ω - dissipation, which a passive set never makes negative (8.5 F)."""
    if everything:
        servo = with_everything(damping_velocity=0.5)
    else:
        servo = jg.models.servo_ax12(damping_velocity=0.5)
    x = jax.random.uniform(key, (7, 5000), minval=-1.0, maxval=1.0)
    scale = jnp.array([3.0, 0.5, 0.3, 0.3, 0.3, 1.0, 3.0])

    def balance(servo, x):
        speed, bristle, angle, e1, e2, duty, rate = scale * x
        state = ServoState(angle, speed, bristle, jnp.stack([e1, e2]))
        zero = jnp.zeros(())
        rates, torque = servo.rates(state, duty, zero, rate, 12.0)
        _, growth = jax.jvp(servo.energy, (state, zero), (rates, rate))
        power = servo.motor_torque(duty, speed, 12.0) * speed - torque * rate
        return growth, power, servo.dissipation(state, zero, rate)

    growth, power, lost = jax.jit(jax.vmap(balance, in_axes=(None, 1)))(servo, x)
    np.testing.assert_allclose(growth, power - lost, rtol=0, atol=1e-11)
    assert float(lost.min()) >= 0
    published = jax.vmap(balance, in_axes=(None, 1))(jg.models.servo_ax12(), x)[2]
    assert float(published.min()) < 0


def test_backlash_lets_the_output_move_freely():
    """Within the play the gear gives no torque, beyond it that of the rest of the twist."""
    plain = jg.models.servo_ax12()
    servo = Servo(plain.friction, plain.gear, 0.018, 1.8, backlash=0.01, backlash_corner=1e-6)
    rest, zero = servo.rest(jnp.zeros(())), jnp.zeros(())
    torque = [servo.output_torque(rest, jnp.asarray(x), zero) for x in (0.003, -0.004, 0.02, -0.02)]
    stiffness = 6.352 + 16.561 + 1.072
    np.testing.assert_allclose(
        np.array(torque), np.array([0, 0, -0.015, 0.015]) * stiffness, atol=1e-7
    )


def test_supply_of_two_servos(servo):
    """A second servo that pulls lowers the speed of the first one through the common supply."""
    motor = Motor(torque_per_volt=0.15, back_emf=1.5, resistance=16.0, idle_current=0.05)
    friction = LuGre.from_inertia(
        inertia=servo.inertia, **{**jg.models.servo.FRICTION, "viscous": 0.2870523 - 0.15 * 1.5}
    )
    single = Servo(friction, servo.gear, servo.inertia, servo.stall_torque, motor=motor)
    supply = Supply(voltage=12.0, resistance=2.0)

    def plant(q, qd, tau):
        return tau / 0.01

    duties = np.concatenate([np.tile([1.0, 0.0], (300, 1)), np.tile([1.0, 1.0], (300, 1))])
    motion = simulate_fixed(
        plant, single, duties, 0.01, q0=np.zeros(2), supply=supply, algorithm=SourceAlgorithm()
    )
    # Steady: k_V (V - k_e Ω) = F_C + F_v Ω, V = V_oc - R_b (2 I_0 + d (V - k_e Ω)/R).
    for k, pulling in ((299, 1), (600, 2)):
        matrix = np.array(
            [[0.15, -0.2870523], [1 + pulling * 2.0 / 16.0, -pulling * 2.0 * 1.5 / 16.0]]
        )
        voltage, speed = np.linalg.solve(matrix, [0.0771550, 12.0 - 2.0 * 2 * 0.05])
        np.testing.assert_allclose(motion.voltage[k], voltage, rtol=1e-4)
        np.testing.assert_allclose(motion.servo.speed[k, 0], speed, rtol=1e-4)


def test_bad_numbers(servo):
    for key, value in (("inertia", -0.01), ("stall_torque", 0.0), ("inertia", np.nan)):
        with pytest.raises(ValueError, match=r"must be positive|not finite"):
            jg.models.servo_ax12(**{key: value})
    with pytest.raises(ValueError, match="The backlash is -1; it must not be negative"):
        Servo(servo.friction, servo.gear, 0.01, 1.0, backlash=-1.0)
    with pytest.raises(ValueError, match="integrator is 'euler'; it must be 'semi_implicit' or"):
        SourceAlgorithm(integrator="euler")
    with pytest.raises(ValueError, match="gear is 'exact'; it must be 'source' or 'zoh' or 'foh'"):
        SourceAlgorithm(gear="exact")
    with pytest.raises(ValueError, match="substeps is 0; it must be a whole number, at least 1"):
        SourceAlgorithm(substeps=0)
    with pytest.raises(ValueError, match="Servo 1 has other parts than servo 0"):
        stack([servo, Servo(servo.friction, servo.gear, 0.01, 1.0, backlash=0.01)])
    with pytest.raises(ValueError, match="Servo 1 has other parts than servo 0"):
        stack([servo, jg.models.servo_ax12(coulomb=np.array([0.1, 0.2]))])
    with pytest.raises(ValueError, match="no servo to stack"):
        stack([])


def test_bad_runs(servo, arm):
    duties = np.zeros((5, 1))
    for bad, words in (
        (duties + 1.2, r"duty of servo 0 is 1.2 at t = 0 s; duties lie between -1 and 1"),
        (duties + np.nan, "duties is not finite"),
        (duties[:, 0], r"duties has the shape \(5,\); it must be \(steps, 1\)"),
        (np.zeros((5, 2)), r"duties has the shape \(5, 2\); it must be \(steps, 1\)"),
    ):
        with pytest.raises(ValueError, match=words):
            simulate_fixed(arm, servo, bad, 0.01)
    for options, words in (
        ({"q0": np.zeros((1, 1))}, r"q0 has the shape \(1, 1\); it must be \(n,\)"),
        ({"q0": np.zeros(1), "qd0": np.zeros(2)}, r"qd0 has the shape \(2,\)"),
        ({"joints": (0,)}, "q0 is missing; with joints it must have all n coordinates"),
        ({"q0": np.zeros(2), "joints": (2,)}, r"joints is \(2,\); it must name different coord"),
        ({"q0": np.zeros(2), "joints": (1, 1)}, r"joints is \(1, 1\); it must name different"),
        ({"supply": Supply(voltage=12.0)}, "servo.motor and supply must be given together"),
        ({"state": jax.vmap(servo.rest)(jnp.zeros(2))}, r"state.angle has the shape \(2,\)"),
    ):
        with pytest.raises(ValueError, match=words):
            simulate_fixed(arm, servo, duties, 0.01, **options)
    with pytest.raises(ValueError, match=r"The result of the plant has the shape \(\); it must be"):
        simulate_fixed(lambda q, qd, tau: jnp.sum(tau), servo, duties, 0.01)
    with pytest.raises(ValueError, match=r"The result of the plant is .*; it must be a number"):
        simulate_fixed(lambda q, qd, tau: None, servo, duties, 0.01)
    with pytest.raises(ValueError, match="There are 2 servos for 1 driven joints"):
        simulate_fixed(arm, stack([servo] * 2), duties, 0.01, q0=np.zeros(1))
    with pytest.raises(ValueError, match=r"The step h is -0.01; it must be positive"):
        simulate_fixed(arm, servo, duties, -0.01)
    still = jg.actuators.rigs.constant([0.0])
    for times, words in (
        ([0.0, 0.2, 0.1], "times must be increasing"),
        ([0.0, np.nan], "times is not finite"),
        ([0.0], r"times has the shape \(1,\); it must be \(k,\), k at least 2"),
    ):
        with pytest.raises(ValueError, match=words):
            simulate(arm, servo, still, times)
    with jax.enable_x64(False), pytest.raises(RuntimeError, match="64-bit"):
        simulate(arm, servo, jg.actuators.rigs.constant([0.0]), [0.0, 0.1])
    with pytest.raises(
        ValueError, match=r"The command is a function of \(t\); it must be a function"
    ):
        simulate(arm, servo, lambda t: [0.0], [0.0, 0.1])
    with pytest.raises(ValueError, match=r"The result of the command has the shape \(2,\)"):
        simulate(arm, servo, jg.actuators.rigs.constant([0.0, 0.0]), [0.0, 0.1])
