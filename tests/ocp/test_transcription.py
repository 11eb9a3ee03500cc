"""The transcription alone, from the straight line, against closed forms and published optima."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.ocp import Transcription
from jaxgrip.ocp.direct import solve_transcription, straight_line
from jaxgrip.ocp.pipeline._search import graded_lengths
from jaxgrip.solve.fusion import jit_plainly

TRACES = []
UNBOUNDED = ([-np.inf], [np.inf])
SHARP = {"barrier": 1e-9, "tolerance": 1e-8}

compiled = jit_plainly(solve_transcription)


def transcribe(problem, intervals=100, lengths=None, **numbers):
    solver = jax.tree.map(jnp.asarray, Transcription(intervals, **numbers))
    guess = straight_line(problem, intervals)
    if lengths is not None:
        guess = guess._replace(lengths=jnp.asarray(lengths))
    return jax.tree.map(np.asarray, compiled(problem, solver, guess))


def double_integrator(x, u):
    TRACES.append(None)
    return jnp.stack([x[1], u[0]])


def effort(x, u):
    return 0.5 * u[0] ** 2


def bryson_denham(limit):
    return jg.ocp.Problem(
        double_integrator,
        running_cost=effort,
        initial_state=(0.0, 1.0),
        final_state=(0.0, -1.0),
        final_time=1.0,
        control_bounds=UNBOUNDED,
        state_bounds=([None, None], [limit, None]),
    )


def speed_limited(limit=0.6, guess=1.0):
    return jg.ocp.Problem(
        double_integrator,
        initial_state=(0.0, 0.0),
        final_state=(1.0, 0.0),
        final_time=jg.ocp.Free(guess),
        control_bounds=([-1.0], [1.0]),
        state_bounds=([None, -limit], [None, limit]),
    )


def mixed():
    """|u| <= 1 - x / 2: an oscillation speeds up, an exponential slows down."""
    return jg.ocp.Problem(
        double_integrator,
        initial_state=(0.0, 0.0),
        final_state=(1.0, 0.0),
        final_time=jg.ocp.Free(1.0),
        control_bounds=([-2.0], [2.0]),
        path_constraints=lambda x, u: jnp.stack([u[0], -u[0]]) - 1.0 + 0.5 * x[0],
    )


def two_drives(bound):
    """A fast drive and a slow one, whose rate is at most 4, on one mass."""
    return jg.ocp.Problem(
        lambda x, u: jnp.stack([x[1], u[0] + u[1]]),
        initial_state=(0.0, 0.0),
        final_state=(1.0, 0.0),
        final_time=jg.ocp.Free(1.5),
        control_bounds=([-1.0, -bound], [1.0, bound]),
        rate_bounds=([None, -4.0], [None, 4.0]),
    )


def positive_root(*coefficients):
    roots = np.roots(coefficients)
    return float(roots[(np.abs(roots.imag) < 1e-12) & (roots.real > 0.0)][0].real)


# With the slow drive unbounded it falls throughout; this is half the time.
HALF = positive_root(8.0 / 3.0, 1.0, 0.0, -1.0)


def drive_as_state(bound):
    """Rest to rest for the slow drive too, which is a state whose rate is a control."""
    return jg.ocp.Problem(
        lambda x, u: jnp.stack([x[1], u[0] + x[2], u[1]]),
        initial_state=(0.0, 0.0, 0.0),
        final_state=(1.0, 0.0, 0.0),
        final_time=jg.ocp.Free(1.5),
        control_bounds=([-1.0, -4.0], [1.0, 4.0]),
        state_bounds=([None, None, -bound], [None, None, bound]),
    )


def goddard(guess=0.2):
    def rocket(x, u):
        r, v, m = x
        drag = 310.0 * v**2 * jnp.exp(-500.0 * (r - 1.0))
        return jnp.stack([v, (3.5 * u[0] - drag) / m - 1.0 / r**2, -7.0 * u[0]])

    return jg.ocp.Problem(
        rocket,
        terminal_cost=lambda t, x: -x[0],
        initial_state=(1.0, 0.0, 1.0),
        final_state=(None, None, 0.6),
        final_time=jg.ocp.Free(guess),
        control_bounds=([0.0], [1.0]),
        state_bounds=([None, None, None], [None, 0.1, None]),
    )


def test_speed_limit():
    """On the arc costate_2 = 0, so multiplier = -costate_1 = 1 / v; T = 2 v + (1 - v^2) / v."""
    got = transcribe(speed_limited())
    assert got.converged
    np.testing.assert_allclose(got.final_time, 1.2 + 0.64 / 0.6, rtol=2e-4)
    assert np.max(got.constraint) < 0.0
    np.testing.assert_allclose(got.costate[1:-1, 0], -1.0 / 0.6, rtol=1e-2)
    t = (np.arange(100) + 0.5) / 100 * got.final_time
    arc = (t > 0.65) & (t < 1.6)
    upper = got.multiplier[arc, 0]
    # The midpoint rule determines the sum of neighbours.
    np.testing.assert_allclose(0.5 * (upper[1:] + upper[:-1]), 1.0 / 0.6, rtol=1.5e-2)
    np.testing.assert_allclose(got.multiplier[~arc & (np.abs(t - 1.13) > 0.6), 0], 0.0, atol=1e-3)
    np.testing.assert_allclose(got.multiplier[:, 1], 0.0, atol=1e-5)


@pytest.mark.parametrize(
    ("limit", "objective", "pull"),
    [(0.3, 2.0, 0.0), (0.2, 2.24, 9.6), (1.0 / 9.0, 4.0, 36.0)],
)
def test_bryson_denham(limit, objective, pull):
    """costate_1 is constant but where the bound presses, and changes sign: 0, 2 x 4.8, 2 x 18."""
    got = transcribe(bryson_denham(limit))
    assert got.converged
    np.testing.assert_allclose(got.objective, objective, rtol=5e-4)
    np.testing.assert_allclose(np.mean(got.multiplier), pull, rtol=2e-3, atol=1e-3)
    assert np.all(got.multiplier >= 0.0)
    np.testing.assert_allclose(got.costate[1, 0] - got.costate[-1, 0], pull, rtol=2e-3, atol=1e-3)
    # Direct adjoining: costate' = -(multiplier, costate_1).
    change = np.diff(got.costate[1:], axis=0) * 100
    middle = 0.5 * (got.multiplier[1:, 0] + got.multiplier[:-1, 0])
    np.testing.assert_allclose(change[:, 0], -middle, atol=1e-3)


@pytest.mark.long
def test_multipliers_do_not_depend_on_the_grid():
    """The same pull, at the same places, from three times as many intervals."""
    coarse, fine = (transcribe(bryson_denham(1.0 / 9.0), n) for n in (60, 180))
    pulls = coarse.multiplier[:, 0] / 60, fine.multiplier.reshape(60, 3).sum(axis=1) / 180
    np.testing.assert_allclose(*(np.cumsum(pull)[9::10] for pull in pulls), rtol=1e-2, atol=1e-3)


@pytest.mark.long
def test_mixed_constraint():
    """cosh(2 b) = 4, 2 cos(a) = cosh(b), T = sqrt(2) (a + b); the constraint carries H_u."""
    b = 0.5 * np.arccosh(4.0)
    a = np.arccos(0.5 * np.cosh(b))
    got = transcribe(mixed())
    assert got.converged
    np.testing.assert_allclose(got.final_time, np.sqrt(2.0) * (a + b), rtol=2e-4)
    pull = got.multiplier[:, 0] - got.multiplier[:, 1]
    np.testing.assert_allclose(pull, -got.switching_function[:, 0], atol=1e-4)
    assert np.max(got.constraint) < 0.0


@pytest.mark.long
def test_bounded_rate():
    """costate_z' = -costate_2, linear in time and odd about the middle, zero at both ends."""
    s = HALF
    got = transcribe(two_drives(np.inf))
    assert got.converged
    np.testing.assert_allclose(got.final_time, 2.0 * s, rtol=5e-5)
    np.testing.assert_allclose(got.rate[:, 1], -4.0, rtol=2e-4)
    t = np.arange(1, 100) / 100 * got.final_time
    costate = (t - t**2 / (2.0 * s)) / (1.0 + 4.0 * s)
    np.testing.assert_allclose(got.rate_costate[:, 1], costate, atol=2e-5)
    np.testing.assert_allclose(got.rate_costate[:, 0], 0.0, atol=0.0)


def test_bounded_rate_between_bounds():
    """The slow drive leaves its bound at s - 1/4, falls at rate 4: (s - 1/4)^2 + ... = 1/2."""
    early = -0.25 + np.sqrt(0.0625 + 0.5 - 5.0 / 96.0)
    got = transcribe(two_drives(1.0))
    assert got.converged
    np.testing.assert_allclose(got.final_time, 2.0 * early + 0.5, rtol=2e-5)
    assert np.max(np.abs(got.rate[:, 1])) <= 4.0
    t = np.arange(1, 100) / 100 * got.final_time
    inside = (t > early + 0.03) & (t < early + 0.47)
    np.testing.assert_allclose(got.rate[inside, 1], -4.0, rtol=1e-3)
    assert np.all(got.rate_costate[inside, 1] > 1e-3)
    outside = (t < early - 0.03) | (t > early + 0.53)
    np.testing.assert_allclose(got.rate_costate[outside, 1], 0.0, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize(
    ("bound", "half"),
    [
        (np.inf, positive_root(1.0, 1.0, 0.0, -1.0)),
        (1.0, positive_root(2.0, -0.25, -1.0)),
    ],
)
def test_drive_as_state(bound, half):
    """In each half the slow drive rises, waits on its bound and falls: s^2 + s^3 = 1 without it."""
    got = transcribe(drive_as_state(bound))
    assert got.converged
    np.testing.assert_allclose(got.final_time, 2.0 * half, rtol=2e-5)
    # Between two midpoints that keep a bound a node may pass it.
    middle = 0.5 * (got.x[1:, 2] + got.x[:-1, 2])
    assert np.max(np.abs(middle)) < bound


def uneven(intervals):
    """Lengths that grow fourfold to the end, every other one half as long."""
    lengths = np.linspace(1.0, 4.0, intervals) * np.where(np.arange(intervals) % 2, 0.5, 1.0)
    return lengths / np.sum(lengths)


@pytest.mark.long
def test_bounded_rate_on_uneven_intervals():
    """The costate of the drive does not depend on the grid."""
    s = HALF
    got = transcribe(two_drives(np.inf), lengths=uneven(100))
    assert got.converged
    np.testing.assert_allclose(got.final_time, 2.0 * s, rtol=2e-4)
    np.testing.assert_allclose(got.rate[:, 1], -4.0, rtol=2e-4)
    t = got.t[1:-1]
    costate = (t - t**2 / (2.0 * s)) / (1.0 + 4.0 * s)
    np.testing.assert_allclose(got.rate_costate[:, 1], costate, atol=2e-4)


@pytest.mark.long
def test_bryson_denham_on_uneven_intervals():
    """Also where the constraint acts, by impulses at both ends of its arc."""
    got = transcribe(bryson_denham(1.0 / 9.0), 200, uneven(200))
    assert got.converged
    np.testing.assert_allclose(got.objective, 4.0, rtol=5e-4)
    np.testing.assert_allclose(got.multiplier[:, 0] @ got.lengths, 36.0, rtol=2e-3)
    # u = -6 (1 - 3 t)^2 ... until the bound at t = 1/3: u = -6 (1 - 3 t).
    t = 0.5 * (got.t[1:] + got.t[:-1])
    exact = np.where(t < 1.0 / 3.0, -6.0 + 18.0 * t, np.where(t > 2.0 / 3.0, 12.0 - 18.0 * t, 0.0))
    np.testing.assert_allclose(got.u[:, 0], exact, atol=0.2)


@pytest.mark.long
def test_grading_puts_intervals_where_controls_change():
    """The minimum time of the double integrator switches once, in the middle."""
    problem = speed_limited(limit=np.inf)
    got = transcribe(problem)
    lengths = graded_lengths(problem, got)
    np.testing.assert_allclose(np.sum(lengths), 1.0, rtol=1e-14)
    assert len(lengths) == 100
    assert np.all(lengths > 0.0)
    nodes = np.cumsum(lengths)
    assert np.sum(np.abs(nodes - 0.5) < 0.03) > 40
    # No interval is longer than twice an equal one.
    assert np.max(lengths) <= 0.02 * (1.0 + 1e-12)
    finer = transcribe(problem, lengths=lengths)
    assert finer.converged
    assert abs(finer.final_time - 2.0) <= abs(got.final_time - 2.0)


@pytest.mark.long
@pytest.mark.parametrize("guess", [0.1, 0.2])
def test_goddard(guess):
    """A singular arc and a bound on the speed; published r(t_F) = 1.01257632."""
    got = transcribe(goddard(guess))
    assert got.converged
    np.testing.assert_allclose(-got.objective, 1.01257632, atol=5e-6)
    assert np.max(got.constraint) < 0.0


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "exact", "grids"),
    [
        # Grids with a node where the bound begins and ends to press.
        (lambda: bryson_denham(1.0 / 9.0), 4.0, (60, 120)),
        (lambda: two_drives(np.inf), 2.0 * HALF, (50, 100)),
    ],
)
def test_error_falls_with_the_square_of_the_interval(make, exact, grids):
    coarse, fine = (transcribe(make(), n, **SHARP).objective - exact for n in grids)
    np.testing.assert_allclose(np.log2(coarse / fine), 2.0, atol=0.15)


@pytest.mark.long
def test_constraint_active_at_the_start():
    """Speed 0.6 on its bound; v is constant and then falls as a parabola over the time 3/4."""
    problem = jg.ocp.Problem(
        double_integrator,
        running_cost=effort,
        initial_state=(0.0, 0.6),
        final_state=(0.45, 0.0),
        final_time=1.0,
        control_bounds=UNBOUNDED,
        state_bounds=([None, None], [None, 0.6]),
    )
    got = transcribe(problem)
    assert got.converged
    # u = -c (t - 1/4) with 0.6 = c (3/4)^2 / 2.
    np.testing.assert_allclose(got.objective, 0.32, rtol=5e-4)


@pytest.mark.long
def test_contradictory_constraints():
    problem = jg.ocp.Problem(
        double_integrator,
        running_cost=effort,
        initial_state=(0.0, 0.0),
        final_state=(1.0, 0.0),
        final_time=1.0,
        control_bounds=([-10.0], [10.0]),
        path_constraints=lambda x, u: jnp.stack([x[1] - 0.5, 2.0 - x[1]]),
    )
    got = transcribe(problem)
    assert not got.converged
    assert got.infeasibility > 0.1
    assert all(np.all(np.isfinite(value)) for value in got)


def test_fields_without_constraints_and_rates():
    """Without constraints and bounded rates their fields are empty or zero."""
    problem = jg.ocp.Problem(
        double_integrator,
        initial_state=(0.0, 0.0),
        final_state=(1.0, 0.0),
        final_time=jg.ocp.Free(1.0),
        control_bounds=([-1.0], [1.0]),
    )
    got = transcribe(problem)
    assert got.converged
    assert got.constraint.shape == got.multiplier.shape == (100, 0)
    assert got.rate.shape == (99, 1)
    np.testing.assert_allclose(got.rate_costate, 0.0, atol=0.0)


def test_other_numbers_do_not_trace_again():
    problems = [speed_limited(limit, guess) for limit, guess in ((0.6, 1.0), (0.2, 5.0))]
    transcribe(problems[0])
    TRACES.clear()
    got = transcribe(problems[1], barrier=1e-7)
    assert not TRACES
    assert got.converged
    np.testing.assert_allclose(got.final_time, 0.4 + 0.96 / 0.2, rtol=2e-4)


@pytest.fixture(scope="module")
def fingers():
    return {name: jg.models.gripper_finger(name) for name in "AB"}


def finger_states(finger):
    rest = jnp.zeros(3)
    return {
        "initial_state": jnp.concatenate([finger.start, rest]),
        "final_state": jnp.concatenate([finger.end, rest]),
    }


@pytest.mark.soak
def test_finger_with_a_speed_limit(fingers):
    """The published minimum time of finger B with |qd_3| <= 65 rad/s."""
    finger = fingers["B"]
    got = transcribe(
        jg.ocp.Problem(
            jg.rigid.StateSpace(finger.tree),
            **finger_states(finger),
            final_time=jg.ocp.Free(0.13),
            control_bounds=(-finger.torque_limit, finger.torque_limit),
            state_bounds=([None] * 5 + [-65.0], [None] * 5 + [65.0]),
        )
    )
    assert got.converged
    np.testing.assert_allclose(got.final_time, 0.1213262947, rtol=2e-4)
    assert np.max(got.constraint) < 0.0
    assert np.max(got.multiplier[:, 0]) > np.max(got.multiplier[:, 1]) > 0.0


# A second, slow drive on the second joint.
DRIVES = jnp.array([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]])


def energy(x, u):
    return jnp.sum(u**2) / 0.7549


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "torque", "slow_rate", "objective"),
    [
        ("A", [0.25, 0.05, 0.40, 0.45], 8.0, 0.0257459),
        ("B", [0.20, 0.07, 0.35, 0.40], 8.5, 0.02025535),
    ],
)
def test_competing_drives(fingers, name, torque, slow_rate, objective):
    """Schanzer 2007, section 6.2.4; objectives of an independent program (CasADi and IPOPT)."""
    torque, rate = jnp.array(torque), jnp.array([100.0, 100.0, 100.0, slow_rate])
    got = transcribe(
        jg.ocp.Problem(
            jg.rigid.StateSpace(fingers[name].tree, DRIVES),
            running_cost=energy,
            **finger_states(fingers[name]),
            final_time=0.137,
            control_bounds=(-torque, torque),
            rate_bounds=(-rate, rate),
        )
    )
    assert got.converged
    np.testing.assert_allclose(got.objective, objective, rtol=5e-4)
    assert np.max(np.abs(got.rate[:, 3])) <= slow_rate
    # Only the slow drive's rate presses, upwards, and only in the middle of the motion.
    size = np.max(np.abs(got.rate_costate), axis=0)
    assert np.all(size[:3] < 1e-2 * size[3])
    pressed = np.flatnonzero(np.abs(got.rate_costate[:, 3]) > 0.05 * size[3])
    assert np.all(got.rate_costate[pressed, 3] < 0.0)
    assert pressed[0] > 20
    assert pressed[-1] < 70
