"""What the search finds, what it says where there is nothing to find, and what it spends."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq, minimize_scalar

import jaxgrip as jg
from jaxgrip.models.ocp_problems import catalyst_mixing
from jaxgrip.ocp import RESULTS, Free, Problem, Solver
from jaxgrip.ocp.pipeline._continuation import _easier

ONE_START = Solver(starts=1)
INF = np.inf


def catalyst_matrix(u):
    return np.array([[-u, 10.0 * u], [u, -10.0 * u - (1.0 - u)]])


def least_catalyst(length):
    """One catalyst up to the best ratio, the mixture that keeps it, then the other alone.

    The mixture has the eigenvector that decays fastest; what the last piece takes follows from the
    derivative by its length.
    """
    best = minimize_scalar(
        lambda u: np.max(np.linalg.eigvals(catalyst_matrix(u)).real),
        bounds=(0.01, 0.9),
        method="bounded",
        options={"xatol": 1e-13},
    )
    rates, ratios = np.linalg.eig(catalyst_matrix(best.x))
    ratio = ratios[:, np.argmax(rates)] / np.sum(ratios[:, np.argmax(rates)])
    first = -np.log(1.0 - 11.0 * ratio[1]) / 11.0
    share = -best.fun * ratio[0] / (ratio[1] * (1.0 + best.fun))
    mixed = length - first + np.log(share)
    return np.exp(best.fun * mixed) * (ratio[0] + ratio[1] * share) - 1.0


@pytest.mark.long
@pytest.mark.parametrize("length", [1.0, 4.0, 6.0, 12.0])
def test_long_reactor(length):
    """The transcription's mixture alternates between its bounds the more the longer the reactor."""
    sol = jg.ocp.solve(catalyst_mixing(length))
    np.testing.assert_allclose(sol.objective, least_catalyst(length), rtol=1e-9)
    assert sol.structure.kinds[:, 0].tolist() == [1, 2, -1]


def test_published_value_of_the_long_reactor():
    """Reached by continuation from the length one."""
    np.testing.assert_allclose(least_catalyst(4.0), -0.191814356, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("upper", [5.0, 30.0, 1000.0])
def test_singular_arc_next_to_a_bound(upper):
    """x = 1 - t, then zero, then up at the rate `upper`: 1/3 + (1/2)^3 / (3 upper)."""
    sol = jg.ocp.solve(
        Problem(
            lambda x, u: u,
            running_cost=lambda x, u: x[0] ** 2,
            initial_state=[1.0],
            final_state=[0.5],
            final_time=2.0,
            control_bounds=([-1.0], [upper]),
        ),
        solver=ONE_START,
    )
    np.testing.assert_allclose(sol.objective, (1.0 + 0.125 / upper) / 3.0, rtol=1e-11)


def rocket(speed_limit):
    """Distance ten, rest to rest, in least time; thrust burns its square, lighter is faster."""
    return Problem(
        lambda x, u: jnp.stack([x[1], (u[0] - 0.2 * x[1] ** 2) / x[2], -0.01 * u[0] ** 2]),
        initial_state=[0.0, 0.0, 1.0],
        final_state=[10.0, 0.0, None],
        final_time=Free(8.0),
        control_bounds=([-1.1], [1.1]),
        state_bounds=([None] * 3, [None, speed_limit, None]),
    )


def least_rocket_time(speed_limit):
    """With thrust forth and back, infinitely often, the mass falls at its largest rate for all time
    and the mean of the thrust is whatever the limit asks for.
    """

    def phase(thrust, begin, start, event):
        def rate(t, y):
            return [y[1], (thrust - 0.2 * y[1] ** 2) / (1.0 - 0.01 * 1.1**2 * t)]

        run = solve_ivp(rate, (begin, 30.0), start, rtol=1e-10, atol=1e-12, events=event)
        return run.t_events[0][0], run.y_events[0][0][0]

    reached, place = phase(1.1, 0.0, [0.0, 0.0], lambda t, y: y[1] - speed_limit)

    def end(leave):
        start = [place + speed_limit * (leave - reached), speed_limit]
        return phase(-1.1, leave, start, lambda t, y: y[1])

    return end(brentq(lambda leave: end(leave)[1] - 10.0, reached, 20.0))[0]


@pytest.mark.long
@pytest.mark.parametrize("speed_limit", [1.7, pytest.param(1.2, marks=pytest.mark.soak)])
def test_thrust_that_chatters_along_a_speed_limit(speed_limit):
    """No finite structure is optimal; what is handed over is within all bounds and says so."""
    sol = jg.ocp.solve(rocket(speed_limit), throw=False)
    assert sol.result == RESULTS.chattering
    assert "control 0 jumps to and fro from" in sol.stats["detail"]
    assert sol.origin == "transcription"
    assert sol.certificate is None
    least = least_rocket_time(speed_limit)
    assert least < sol.final_time < 1.005 * least
    np.testing.assert_allclose(sol.objective, sol.final_time, rtol=1e-5)
    middle = 0.5 * (sol.x[1:, 1] + sol.x[:-1, 1])
    assert np.max(middle) < speed_limit + 1e-6
    assert np.max(np.abs(sol.u)) <= 1.1
    assert np.all(np.isnan(sol.costate))


def robbins(final_time):
    """Robbins 1980: a bound of order three on the first state."""
    return Problem(
        lambda x, u: jnp.stack([x[1], x[2], u[0]]),
        running_cost=lambda x, u: 3.0 * x[0] + 0.5 * u[0] ** 2,
        initial_state=[1.0, -2.0, 0.0],
        final_state=[0.0, 0.0, 0.0],
        final_time=final_time,
        control_bounds=([-INF], [INF]),
        state_bounds=([0.0, None, None], [None] * 3),
    )


@pytest.mark.soak
def test_contact_points_that_accumulate():
    sol = jg.ocp.solve(robbins(10.0), throw=False)
    assert sol.result == RESULTS.chattering
    assert "lower bound of state 0, of order three" in sol.stats["detail"]
    assert sol.origin == "transcription"
    assert np.min(0.5 * (sol.x[1:, 0] + sol.x[:-1, 0])) > -1e-6
    # The cost of the shorter motion is an upper bound, as the state may rest at zero.
    shorter = jg.ocp.solve(robbins(5.0))
    assert shorter.structure.switching_constraints.tolist() == [0, 0]
    assert shorter.certificate.passed
    np.testing.assert_allclose(sol.objective, shorter.objective, rtol=1e-2)


def root(start, end, dynamics, cost=None):
    return Problem(
        dynamics,
        running_cost=cost,
        initial_state=[start],
        final_state=[end],
        final_time=Free(1.5),
        control_bounds=([0.5], [1.0]),
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("problem", "place"),
    [
        (root(1.0, 0.0, lambda x, u: -jnp.sqrt(x) * u), "the slope by state 0 at the end"),
        pytest.param(
            root(0.0, 1.0, lambda x, u: jnp.sqrt(x) * u),
            "the slope by state 0 at the start",
            marks=pytest.mark.soak,
        ),
        (root(0.0, 1.0, lambda x, u: 0.5 * u / x), "the rate of state 0 at the start"),
        (
            root(1.0, 0.0, lambda x, u: -u, lambda x, u: jnp.log(x[0])),
            "the running cost at the end",
        ),
    ],
)
def test_infinite_slope_at_an_end(problem, place):
    with pytest.raises(jg.ocp.SolveError, match="begin or end a little beside it") as caught:
        jg.ocp.solve(problem, solver=ONE_START)
    assert f"({place})" in str(caught.value)
    assert caught.value.solution.result == RESULTS.steep_edge
    assert caught.value.solution.stats["transcriptions"] <= 4


@pytest.mark.long
def test_infinite_slope_at_a_bound_of_a_control():
    """Straight ahead, where the other rate vanishes, its slope is infinite."""
    problem = Problem(
        lambda x, u: jnp.stack([u[0], jnp.sqrt(1.0 - u[0] ** 2)]),
        initial_state=[0.0, 0.0],
        final_state=[1.0, 0.0],
        final_time=Free(1.5),
        control_bounds=([-1.0], [1.0]),
    )
    solution = jg.ocp.solve(problem, solver=ONE_START, throw=False)
    assert solution.result == RESULTS.steep_edge
    assert "the slope by control 0 at the lower bounds" in solution.stats["detail"]


def far():
    """Distance one by |u| <= 1 takes two."""
    return Problem(
        lambda x, u: jnp.stack([x[1], u[0]]),
        initial_state=[0.0, 0.0],
        final_state=[1.0, 0.0],
        final_time=Free(1.0, upper=1.9),
        control_bounds=([-1.0], [1.0]),
    )


def numbers_of(solution):
    arrays = eqx.filter(solution, eqx.is_inexact_array)
    return [leaf for leaf in jax.tree.leaves(arrays) if leaf.size]


def test_nothing_is_handed_over_where_there_is_no_motion():
    solution = jg.ocp.solve(far(), throw=False)
    assert solution.origin == "nothing"
    assert len(numbers_of(solution)) > 8
    assert all(np.all(np.isnan(leaf)) for leaf in numbers_of(solution))


def test_the_budget_is_kept_and_named():
    solver = Solver(max_transcriptions=7)
    with pytest.raises(
        jg.ocp.SolveError, match="after 7 of at most 7 transcriptions and"
    ) as caught:
        jg.ocp.solve(far(), solver=solver)
    assert caught.value.solution.stats["transcriptions"] == 7


@pytest.mark.long
def test_the_budget_of_shootings_is_kept():
    few = Solver(starts=1, max_shootings=2)
    solution = jg.ocp.solve(rocket(1.7), solver=few, throw=False)
    assert solution.stats["rounds"] == 2
    assert solution.result == RESULTS.chattering
    history = solution.stats["history"]
    assert history[0].startswith("transcription from the straight line: ")
    assert sum(line.startswith("start with control 0") for line in history) == 2


@pytest.mark.long
def test_the_same_motion_is_shot_once():
    """Four guesses end in one motion, whose readings are few."""
    sol = jg.ocp.solve(rocket(1.7), throw=False)
    starts = [line for line in sol.stats["history"] if line.startswith("start with control 0")]
    assert sol.stats["transcriptions"] <= 8
    assert len(starts) <= 10


def test_wider_bounds_of_controls():
    """Twice as wide, and those without a bound opposite as they are."""
    problem = Problem(
        lambda x, u: u[:1] + u[1:2] + u[2:],
        running_cost=lambda x, u: u @ u,
        initial_state=[0.0],
        final_state=[1.0],
        final_time=Free(1.0),
        control_bounds=([-1.0, -INF, 0.0], [3.0, 1.0, INF]),
    )
    ((words, easier, target, _),) = _easier(problem)
    assert words == "control bounds twice as wide"
    np.testing.assert_array_equal(easier.lower, [-3.0, -INF, 0.0])
    np.testing.assert_array_equal(easier.upper, [5.0, 1.0, INF])
    assert target is problem
