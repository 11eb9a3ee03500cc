import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq, root

import jaxgrip as jg
from jaxgrip.models import ocp_problems as problems

ANSWERS = json.loads((Path(__file__).parents[1] / "reference" / "ocp_problems.json").read_text())
# CTProblems.jl, whose costates have the other sign (maximum principle).
GODDARD_COSTATE = (3.945764658668555, 0.15039559623198723, 0.053712712939991955)
GODDARD_TIMES = (0.023509684041475312, 0.059737380900899015, 0.10157134842460895)
GODDARD_FINAL_TIME = 0.20204744057146434

EVERY = (
    problems.double_integrator_time,
    problems.double_integrator_energy,
    problems.double_integrator_fuel,
    problems.triple_integrator_time,
    problems.bryson_denham,
    problems.goddard,
    problems.nonsmooth_turnpike,
    problems.redundant_actuators,
    problems.redundant_actuators_time,
    problems.redundant_actuators_energy,
    problems.fuller,
    problems.two_link_arm,
    problems.cops_robot_arm,
    problems.harmonic_oscillator_time,
    problems.cart_with_load,
    problems.pendulum_swing_up,
    problems.brachistochrone,
    problems.zermelo,
    problems.van_der_pol,
    problems.rayleigh,
    problems.rayleigh_mixed,
    problems.catalyst_mixing,
)


def certified(problem):
    sol = jg.ocp.solve(problem)
    assert sol.certificate.passed, str(sol.certificate)
    assert max(check.value for check in sol.certificate.checks) < 1e-9
    return sol


def times(solution):
    return np.asarray(solution.switching_times)


def costate_ends(solution):
    return np.asarray(solution.costate)[[0, -1]]


@pytest.mark.parametrize("statement", EVERY, ids=lambda f: f.__name__)
def test_stating_a_problem_again_does_not_compile_again(statement):
    assert jax.tree.structure(statement()) == jax.tree.structure(statement())


# Problems whose siblings are compared in all runs.
FURTHER = ("goddard-0.1", "van_der_pol--0.25", "rayleigh_mixed")


def name_of(answer):
    values = [f"{value}" for value in answer["keywords"].values()]
    return "-".join([answer["problem"], *values])


@pytest.mark.long
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(x, marks=pytest.mark.soak if name_of(x) in FURTHER else (), id=name_of(x))
        for x in ANSWERS["answers"]
    ],
)
def test_against_an_independent_code(answer):
    """CasADi and IPOPT by tests/reference/make_ocp_problems.py, phases between the switches."""
    sol = certified(getattr(problems, answer["problem"])(**answer["keywords"]))
    np.testing.assert_allclose(sol.objective, answer["objective"], rtol=1e-11)
    np.testing.assert_allclose(sol.final_time, answer["final_time"], rtol=1e-11)
    np.testing.assert_allclose(times(sol), answer["switching_times"], atol=1e-9)
    np.testing.assert_allclose(sol.costate[0], answer["costate"], atol=1e-9)


@pytest.mark.long
def test_goddard_against_the_published_solution():
    sol = certified(problems.goddard())
    np.testing.assert_allclose(sol.costate[0], np.negative(GODDARD_COSTATE), atol=1e-9)
    np.testing.assert_allclose(times(sol), GODDARD_TIMES, atol=1e-9)
    np.testing.assert_allclose(sol.final_time, GODDARD_FINAL_TIME, atol=1e-9)
    np.testing.assert_allclose(sol.objective, -1.01257632, atol=1e-8)
    assert sol.structure.kinds[:, 0].tolist() == [1, 2, 0, -1]
    assert sol.structure.active[:, 0].tolist() == [False, False, True, False]


@pytest.mark.long
@pytest.mark.parametrize(
    "guess", [0.1, *(pytest.param(t, marks=pytest.mark.soak) for t in (0.5, 2.0))]
)
def test_goddard_from_other_guesses_of_the_time(guess):
    sol = certified(problems.goddard(final_time=jg.ocp.Free(guess)))
    np.testing.assert_allclose(sol.final_time, GODDARD_FINAL_TIME, atol=1e-9)


@pytest.mark.long
def test_goddard_on_a_finer_grid():
    transcription = jg.ocp.Transcription(intervals=400)
    sol = jg.ocp.solve(problems.goddard(), solver=jg.ocp.Solver(transcription=transcription))
    np.testing.assert_allclose(sol.final_time, GODDARD_FINAL_TIME, atol=1e-9)


@pytest.mark.long
def test_speed_limit_in_minimum_time():
    """Up to the limit V, along it, down again: d = V (T - V / b), lambda_2 = 0 on the limit.

    H = 1 + b lambda_2 = 0 at the start, and lambda_1 takes lambda_2 to zero within V / b. The
    impulse of the constraint gives lambda_1 back, so it is -1 / V before and after.
    """
    distance, bound, limit = 1.0, 1.0, 0.5
    sol = certified(problems.double_integrator_time((0.0, 0.0), (1.0, 0.0), speed_limit=limit))
    final_time = distance / limit + limit / bound
    np.testing.assert_allclose(sol.final_time, final_time, rtol=1e-12)
    np.testing.assert_allclose(times(sol), [0.5, final_time - 0.5], rtol=1e-11)
    np.testing.assert_allclose(costate_ends(sol), [(-2.0, -1.0), (-2.0, 1.0)], rtol=1e-11)


@pytest.mark.long
def test_speed_limit_with_least_energy():
    """u = a (1 - t / t1) until v = V: V = a t1 / 2; the distance is V (1 - 2 t1 / 3) = 1."""
    limit = 1.2
    t1 = 1.5 * (1.0 - 1.0 / limit)
    a = 2.0 * limit / t1
    sol = certified(problems.double_integrator_energy(speed_limit=limit))
    np.testing.assert_allclose(sol.objective, a**2 * t1 / 3.0, rtol=1e-11)
    np.testing.assert_allclose(times(sol), [t1, 1.0 - t1], rtol=1e-9)
    np.testing.assert_allclose(sol.costate[0], (-a / t1, -a), rtol=1e-10)


@pytest.mark.long
def test_least_fuel():
    """Push for t1, coast, brake for t1: bound t1 (1 - t1) = 1; lambda_2 = -1 and 1 at the cuts."""
    bound = 5.0
    t1 = 0.5 * (1.0 - np.sqrt(1.0 - 4.0 / bound))
    sol = certified(problems.double_integrator_fuel(bound=bound))
    np.testing.assert_allclose(sol.objective, 2.0 * bound * t1, rtol=1e-12)
    np.testing.assert_allclose(times(sol), [t1, 1.0 - t1], rtol=1e-11)
    # CTProblems.jl, with the other sign.
    np.testing.assert_allclose(sol.costate[0], (-4.472135954999579, -2.23606797749979), rtol=1e-10)
    assert sol.structure.kinds.tolist() == [[1, -1], [-1, -1], [-1, 1]]


@pytest.mark.long
def test_turnpike_with_a_free_end():
    """Straight to zero, (1 - t)^2 up to t = 1, and no reason to leave it again."""
    sol = certified(problems.nonsmooth_turnpike(end=None))
    np.testing.assert_allclose(sol.objective, 1.0 / 3.0, rtol=1e-12)
    np.testing.assert_allclose(times(sol), [1.0], rtol=1e-10)
    assert sol.structure.kinds[:, 0].tolist() == [-1, 2]


@pytest.mark.long
def test_bryson_denham_far_from_the_wall():
    """u = -2 takes the place to 1/4."""
    sol = certified(problems.bryson_denham(0.3))
    np.testing.assert_allclose(sol.objective, 2.0, rtol=1e-12)
    np.testing.assert_allclose(sol.costate, np.broadcast_to((0.0, 2.0), (len(sol.t), 2)), atol=1e-9)
    assert times(sol).size == 0


@pytest.mark.long
def test_bryson_denham_touches_the_wall():
    """Cubics from (0, 1) to (l, 0) and back: u = -8 + 24 l + b t with b = 24 (1 - 4 l).

    Hence J = 2 + 6 (1 - 4 l)^2, lambda_2 = -u, and lambda_1 falls from b to -b at the wall.
    """
    limit = 0.2
    b = 24.0 * (1.0 - 4.0 * limit)
    sol = certified(problems.bryson_denham(limit))
    np.testing.assert_allclose(sol.objective, 2.0 + 6.0 * (1.0 - 4.0 * limit) ** 2, rtol=1e-12)
    np.testing.assert_allclose(times(sol), [0.5], rtol=1e-10)
    ends = [(b, 8.0 - 24.0 * limit), (-b, 8.0 - 24.0 * limit)]
    np.testing.assert_allclose(costate_ends(sol), ends, rtol=1e-10)
    np.testing.assert_allclose(sol.jumps[0], (2.0 * b, 0.0), atol=1e-9)


@pytest.mark.long
def test_bryson_denham_follows_the_wall():
    """Cubics over 3 l at both ends, J = 4 / (9 l), lambda_1 = 2 / (9 l^2), lambda_2(0) = 2 / (3 l).

    On the wall u = 0 and lambda_2 minus its multiplier vanish; the multiplier falls linearly to
    zero at the exit, where the costate is continuous: lambda_1 = -2 / (9 l^2) from the entry on.
    """
    limit = 1 / 9
    sol = certified(problems.bryson_denham(limit))
    slope = 2.0 / (9.0 * limit**2)
    np.testing.assert_allclose(sol.objective, 4.0 / (9.0 * limit), rtol=1e-12)
    np.testing.assert_allclose(times(sol), [3.0 * limit, 1.0 - 3.0 * limit], rtol=1e-9)
    ends = [(slope, 2.0 / (3.0 * limit)), (-slope, 2.0 / (3.0 * limit))]
    np.testing.assert_allclose(costate_ends(sol), ends, rtol=1e-9)
    entry = [2.0 * slope, slope * (1.0 - 6.0 * limit)]
    np.testing.assert_allclose(sol.jumps[0], entry, rtol=1e-9)
    np.testing.assert_allclose(sol.jumps[1], 0.0, atol=1e-9)


@pytest.mark.long
def test_slow_force_without_a_level():
    """The slow force is a triangle in either half, of height r T / 4: r T^3 / 32 + T^2 / 4 = 1."""
    rate = 4.0
    final_time = brentq(lambda t: rate * t**3 / 32.0 + t**2 / 4.0 - 1.0, 1.0, 2.0, xtol=1e-15)
    sol = certified(problems.redundant_actuators(rate=rate))
    np.testing.assert_allclose(sol.final_time, final_time, rtol=1e-12)
    np.testing.assert_allclose(times(sol) / final_time, [0.25, 0.5, 0.75], rtol=1e-10)
    np.testing.assert_allclose(sol.final_time, 1.50975533, atol=5e-9)


@pytest.mark.long
def test_slow_force_with_a_level():
    """A trapezoid of height L in either half: T^2 / 4 + T L (T / 2 - L / r) / 2 = 1."""
    final_time = 0.125 + np.sqrt(0.125**2 + 2.0)
    sol = certified(problems.redundant_actuators(level=1.0, rate=4.0))
    np.testing.assert_allclose(sol.final_time, final_time, rtol=1e-12)
    half = 0.5 * final_time
    cuts = [0.25, half - 0.25, half, half + 0.25, final_time - 0.25]
    np.testing.assert_allclose(times(sol), cuts, rtol=1e-9)
    np.testing.assert_allclose(sol.final_time, 1.5447271, atol=5e-8)


@pytest.mark.long
def test_slow_force_that_begins_anywhere():
    """From L to -L in a ramp of length 2 L / r about T / 2: (1 + L) T^2 / 4 - L^3 / (3 r^2) = 1.

    H = 0 at the start, and lambda_2 vanishes at T / 2.
    """
    level, rate = 1.0, 4.0
    final_time = 2.0 * np.sqrt((1.0 + level**3 / (3.0 * rate**2)) / (1.0 + level))
    sol = certified(problems.redundant_actuators_time(level, rate))
    np.testing.assert_allclose(sol.final_time, final_time, rtol=1e-12)
    half = 0.5 * final_time
    np.testing.assert_allclose(times(sol), [half - 0.25, half, half + 0.25], rtol=1e-10)
    costate = -1.0 / (1.0 + level)
    np.testing.assert_allclose(sol.costate[0], (costate / half, costate), rtol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize("rate", [4.0, 8.0])
def test_two_forces_with_least_energy(rate):
    """u1 = (12 - s) (1/2 - t), u2 = s (1/2 - t): without a bound on the rate s = 6, else s = rate.

    J = ((12 - s)^2 + s^2) / 24 and lambda = (-(12 - s), -(12 - s) / 2).
    """
    s = min(rate, 6.0)
    sol = certified(problems.redundant_actuators_energy(rate))
    np.testing.assert_allclose(sol.objective, ((12.0 - s) ** 2 + s**2) / 24.0, rtol=1e-11)
    np.testing.assert_allclose(sol.costate[0], (s - 12.0, 0.5 * (s - 12.0)), rtol=1e-10)
    line = 0.5 - np.asarray(sol.t)
    np.testing.assert_allclose(sol.u, np.stack([(12.0 - s) * line, s * line], axis=1), atol=1e-9)


def oscillator_times():
    """From (3, 0): circles about (-1, 0), (1, 0), (-1, 0), the second a half one.

    The last passes the origin, so the switch before it is at (-1 + cos b, sin b) and the first,
    its mirror image in (1, 0), at (3 - cos b, -sin b). That is as far from (-1, 0) as the start,
    which is 4 away: 17 - 8 cos b = 16.
    """
    angle = np.arccos(1 / 8)
    first = np.arctan2(np.sin(angle), 4.0 - np.cos(angle))
    return first, first + np.pi, first + np.pi + angle


@pytest.mark.long
def test_harmonic_oscillator():
    first, second, final_time = oscillator_times()
    problem = problems.harmonic_oscillator_time(final_time=jg.ocp.Free(5.0, lower=4.0))
    sol = certified(problem)
    np.testing.assert_allclose(sol.final_time, final_time, rtol=1e-12)
    np.testing.assert_allclose(times(sol), [first, second], rtol=1e-11)
    assert sol.structure.kinds[:, 0].tolist() == [-1, 1, -1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("statement", "final_time"),
    [
        (problems.harmonic_oscillator_time, oscillator_times()[2]),
        (problems.pendulum_swing_up, 6.696285997930407),
    ],
)
def test_swinging_without_a_hint_at_the_time(statement, final_time):
    np.testing.assert_allclose(certified(statement()).final_time, final_time, rtol=1e-11)


@pytest.mark.long
def test_jerk_from_a_time_far_too_short():
    """The guess is less than a fifth of the least time, the third root of 32."""
    sol = certified(problems.triple_integrator_time(final_time=jg.ocp.Free(0.6)))
    np.testing.assert_allclose(sol.final_time, 32.0 ** (1 / 3), rtol=1e-12)


@pytest.mark.long
def test_cart_with_load():
    """The control is antisymmetric about T / 2, with one more switch s before and after it.

    Distance T^2 / 4 - 2 s^2 = 1, and the load rests if 2 cos(w s) = 1 + cos(w T / 2).
    """
    w = 3.0

    def conditions(z):
        half, s = z
        return [half**2 - 2.0 * s**2 - 1.0, 2.0 * np.cos(w * s) - 1.0 - np.cos(w * half)]

    half, s = root(conditions, (1.2, 0.5), tol=1e-14).x
    sol = certified(problems.cart_with_load(frequency=w))
    np.testing.assert_allclose(sol.final_time, 2.0 * half, rtol=1e-11)
    np.testing.assert_allclose(times(sol), [half - s, half, half + s], rtol=1e-10)


@pytest.mark.long
def test_brachistochrone():
    """The cycloid R (p - sin p, 1 - cos p), run through in p = sqrt(g / R) t."""
    end, gravity = (2.0, 2.0), 9.81
    p = brentq(lambda p: (p - np.sin(p)) - (1.0 - np.cos(p)), 1.0, 6.0, xtol=1e-15)
    radius = end[1] / (1.0 - np.cos(p))
    sol = certified(problems.brachistochrone(end, gravity))
    np.testing.assert_allclose(sol.final_time, p * np.sqrt(radius / gravity), rtol=1e-11)
    course = 0.5 * np.sqrt(gravity / radius) * np.asarray(sol.t)
    np.testing.assert_allclose(sol.u[:, 0], course, atol=1e-9)


@pytest.mark.long
def test_zermelo():
    """Bryson and Ho 2.7: tan u changes evenly, y = sec u - sec u_end; T = tan u_end - tan u_0.

    The costate is against the heading, and as long at the end as H = 0 asks: 1.
    """

    def miss(z):
        sec, tan = 1.0 / np.cos(z), np.tan(z)
        log = np.diff(np.log(np.abs(sec + tan)))[0]
        x = 0.5 * (log - np.diff(sec * tan)[0]) + sec[1] * np.diff(tan)[0]
        return [-x - 3.66, sec[0] - sec[1] + 1.86]

    first, last = root(miss, np.deg2rad([105.0, 240.0]), tol=1e-14).x
    sol = certified(problems.zermelo())
    np.testing.assert_allclose(sol.final_time, np.tan(last) - np.tan(first), rtol=1e-11)
    np.testing.assert_allclose(sol.u[[0, -1], 0], [first, last], rtol=1e-10)
    np.testing.assert_allclose(sol.costate[-1], (-np.cos(last), -np.sin(last)), rtol=1e-10)


def fuller_cost():
    """From (0, 1): to (z w^2, -w) on the switching curve x1 = -z x2 |x2|, then ever smaller arcs.

    Along u = 1 x1 - x2^2 / 2 is constant, so w^2 = 1 / (1 + 2 z), and each arc ends k times as fast
    as it began, k^2 = (1 - 2 z) / (1 + 2 z). The integral of x1^2 shrinks with the fifth power.
    """
    z = np.sqrt((np.sqrt(33.0) - 1.0) / 24.0)
    w, k = np.sqrt(1.0 / (1.0 + 2.0 * z)), np.sqrt((1.0 - 2.0 * z) / (1.0 + 2.0 * z))

    def square(place, last):
        return ((np.poly1d(place) ** 2).integ())(last)

    first = square([-0.5, 1.0, 0.0], 1.0 + w)
    arc = square([0.5, -w, z * w**2], (1.0 + k) * w)
    return first + arc / (1.0 - k**5)


def test_fuller_cost_is_the_published_one():
    """CTDirect.jl's, of a grid; IPOPT with 200 and 800 intervals: 0.26839480 and 0.26839382."""
    np.testing.assert_allclose(fuller_cost(), 0.2683944, atol=1e-6)
    np.testing.assert_allclose(fuller_cost(), 0.26839382, atol=1e-8)


@pytest.mark.long
def test_fuller_says_that_it_chatters():
    sol = jg.ocp.solve(problems.fuller(), throw=False)
    assert sol.result == jg.ocp.RESULTS.chattering
    assert "chatter" in jg.ocp.RESULTS[sol.result]
    np.testing.assert_allclose(sol.objective, fuller_cost(), rtol=1e-3)
    # Feasible, so not below the least; what it breaks is the minimum principle.
    assert sol.objective > fuller_cost()
    assert sol.certificate.failed == ("minimum principle on bang arcs",)
    with pytest.raises(jg.ocp.SolveError, match="accumulate"):
        jg.ocp.solve(problems.fuller())


@pytest.mark.soak
def test_fuller_with_time_to_rest():
    """The cost does not depend on how long the mass rests."""
    sol = jg.ocp.solve(problems.fuller(final_time=6.0), throw=False)
    assert sol.result == jg.ocp.RESULTS.chattering
    np.testing.assert_allclose(sol.objective, fuller_cost(), rtol=1e-2)


@pytest.mark.long
def test_fuller_in_less_time_than_chattering_takes():
    """The arcs sum up to (1 + w) + (1 + k) w / (1 - k) = 2.92; before, finitely many do."""
    sol = certified(problems.fuller(final_time=2.8))
    assert len(times(sol)) == 3
    np.testing.assert_allclose(sol.objective, fuller_cost(), rtol=1e-5)
    assert sol.objective > fuller_cost()


@pytest.mark.long
def test_derivative_by_the_rate():
    """Of r T^3 / 32 + T^2 / 4 = 1."""
    value, slope = jax.value_and_grad(
        lambda r: jg.ocp.solve(problems.redundant_actuators(rate=r)).final_time
    )(jnp.asarray(4.0))
    expected = -(value**3 / 32.0) / (12.0 * value**2 / 32.0 + 0.5 * value)
    np.testing.assert_allclose(slope, expected, rtol=1e-9)


@pytest.mark.long
def test_derivative_by_the_speed_limit():
    """Of d / V + V / b."""
    slope = jax.grad(
        lambda v: (
            jg.ocp.solve(
                problems.double_integrator_time((0.0, 0.0), (1.0, 0.0), speed_limit=v)
            ).final_time
        )
    )(jnp.asarray(0.5))
    np.testing.assert_allclose(slope, -1.0 / 0.5**2 + 1.0, rtol=1e-9)
