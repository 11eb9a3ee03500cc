"""Bounds on states and on rates of controls, and path constraints, against closed forms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.models.ocp_problems import bryson_denham, double_integrator_time
from jaxgrip.ocp import RESULTS
from jaxgrip.ocp.hamiltonian import find_order
from jaxgrip.ocp.structure import Stretch, read_constraint


def speed_limited(limit):
    """Minimum time over the distance one with a bound on the speed: 2 v + (1 - v^2) / v."""
    return double_integrator_time((0.0, 0.0), (1.0, 0.0), speed_limit=limit)


def slow_control(rate=60.0):
    """Bounded rate of a control that would rather jump: it rises from the start on."""
    rate = jnp.asarray(rate, dtype=float)
    return jg.ocp.Problem(
        lambda x, u: u,
        running_cost=lambda x, u: 0.5 * u[0] ** 2 + 50.0 * x[0] ** 2,
        initial_state=(1.0,),
        final_state=(0.5,),
        final_time=1.0,
        control_bounds=([-np.inf], [np.inf]),
        rate_bounds=(-rate[None], rate[None]),
    )


def solve(problem):
    return jg.ocp.solve(problem, solver=jg.ocp.Solver(starts=1))


@pytest.mark.soak
def test_speed_limit():
    """On the arc costate_2 + multiplier = 0, costate_1 = -1 / v, and the multiplier ends at 0."""
    sol = solve(speed_limited(0.6))
    assert sol.certificate.passed, str(sol.certificate)
    np.testing.assert_allclose(sol.final_time, 1.2 + 0.64 / 0.6, rtol=1e-12)
    np.testing.assert_allclose(sol.switching_times, [0.6, 0.6 + 0.64 / 0.6], rtol=1e-11)
    assert sol.structure.kinds[:, 0].tolist() == [1, 0, -1]
    assert sol.structure.active[:, 0].tolist() == [False, True, False]
    assert sol.structure.switching_controls.tolist() == [0, 0]
    assert sol.structure.switching_constraints.tolist() == [0, 0]
    np.testing.assert_allclose(sol.costate[:, 0], -1.0 / 0.6, rtol=1e-11)
    np.testing.assert_allclose(sol.jumps[:, 0], [0.64 / 0.36, 0.0], rtol=1e-11)
    t = np.asarray(sol.t)
    leave = float(sol.switching_times[1])
    arc = (t > 0.6 + 1e-9) & (t < leave - 1e-9)
    np.testing.assert_allclose(sol.multiplier[arc, 0], (leave - t[arc]) / 0.6, rtol=1e-9)
    np.testing.assert_allclose(sol.u[arc, 0], 0.0, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("limit", "objective", "times", "costate"),
    [
        (0.3, 2.0, [], (0.0, 2.0)),
        (0.2, 2.0 + 6.0 * 0.2**2, [0.5], (4.8, 3.2)),
        (1 / 9, 4.0, [1 / 3, 2 / 3], (18.0, 6.0)),
    ],
)
def test_bryson_denham(limit, objective, times, costate):
    """Never active; touching, J = 2 + 6 (1 - 4 l)^2; on an arc, J = 4 / (9 l) and 3 l, 1 - 3 l."""
    sol = solve(bryson_denham(limit))
    assert sol.certificate.passed, str(sol.certificate)
    np.testing.assert_allclose(sol.objective, objective, rtol=1e-11)
    np.testing.assert_allclose(sol.switching_times, times, rtol=1e-10)
    np.testing.assert_allclose(sol.costate[0], costate, rtol=1e-10, atol=1e-10)
    assert sol.structure.active.any() == (len(times) == 2)
    assert np.all(np.asarray(sol.x)[:, 0] <= limit + 1e-12)


@pytest.mark.soak
def test_mixed_constraint_that_always_holds():
    """x' = u as fast as u <= 1 - x / 2 allows: x = 2 (1 - exp(-t / 2)), J = 2 (1 - exp(-2))."""
    sol = solve(
        jg.ocp.Problem(
            lambda x, u: u,
            running_cost=lambda x, u: 0.5 * (x[0] - 2.0) ** 2,
            initial_state=(0.0,),
            final_state=(None,),
            final_time=2.0,
            control_bounds=([-2.0], [2.0]),
            path_constraints=lambda x, u: u - 1.0 + 0.5 * x,
        )
    )
    assert sol.certificate.passed, str(sol.certificate)
    np.testing.assert_allclose(sol.objective, 2.0 * (1.0 - np.exp(-2.0)), rtol=1e-11)
    np.testing.assert_allclose(sol.x[:, 0], 2.0 - 2.0 * np.exp(-np.asarray(sol.t) / 2), rtol=1e-10)
    assert np.all(np.asarray(sol.multiplier) >= -1e-12)


@pytest.mark.long
def test_rate_arc_from_the_start():
    """The limited control's costate vanishes at both ends of the arc and H is constant."""
    sol = solve(slow_control())
    assert sol.certificate.passed, str(sol.certificate)
    assert sol.structure.kinds[:, 0].tolist() == [4, 0]
    (leave,) = np.asarray(sol.switching_times)
    t, u = np.asarray(sol.t), np.asarray(sol.u)[:, 0]
    arc = t < leave - 1e-9
    np.testing.assert_allclose(np.diff(u[arc]) / np.diff(t[arc]), 60.0, rtol=1e-9)
    # Afterwards x'' = 100 x.
    late = t > leave + 1e-9
    swing = np.stack([np.cosh(10.0 * t[late]), np.sinh(10.0 * t[late])], axis=1)
    parts, *_ = np.linalg.lstsq(swing, np.asarray(sol.x)[late, 0], rcond=None)
    np.testing.assert_allclose(swing @ parts, np.asarray(sol.x)[late, 0], atol=1e-11)
    np.testing.assert_allclose(sol.rate_costate[[0, -1], 0], 0.0, atol=1e-14)
    assert np.all(np.asarray(sol.rate_costate)[arc, 0] <= 1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "at", "slope"),
    [
        (speed_limited, 0.6, 1.0 - 1.0 / 0.36),
        (bryson_denham, 0.2, -48.0 * 0.2),
        (bryson_denham, 1 / 9, -36.0),
    ],
)
def test_gradient_of_the_optimum(make, at, slope):
    got = jax.grad(lambda limit: solve(make(limit)).objective)(at)
    np.testing.assert_allclose(got, slope, rtol=1e-9)


@pytest.mark.long
def test_gradient_with_respect_to_a_rate_bound():
    got = jax.grad(lambda rate: solve(slow_control(rate)).objective)(60.0)
    h = 0.5
    values = [float(solve(slow_control(60.0 + k * h)).objective) for k in (-2, -1, 1, 2)]
    quotient = (values[0] - 8.0 * values[1] + 8.0 * values[2] - values[3]) / (12.0 * h)
    np.testing.assert_allclose(got, quotient, rtol=1e-6)


@pytest.mark.long
def test_another_limit_does_not_compile_again(compiled):
    solve(bryson_denham(1 / 9))
    solutions = []
    messages = compiled(lambda: solutions.append(solve(bryson_denham(0.12))))
    np.testing.assert_allclose(solutions[0].objective, 4.0 / (9.0 * 0.12), rtol=1e-11)
    assert not [m for m in messages if "lambda" in m or "solve_" in m or "grad" in m]


@pytest.mark.long
def test_infeasible_constraint_is_named_as_unreachable():
    """A speed of at least 0.5 cannot start from rest; the check at the boundary says so first."""
    problem = speed_limited(0.6)
    with pytest.raises(ValueError, match=r"initial_state\[1\] is 0.0, outside its state_bounds"):
        eqx.tree_at(lambda p: p.state_lower, problem, jnp.array([-jnp.inf, 0.5])).check()
    blocked = eqx.tree_at(lambda p: p.state_upper, problem, jnp.array([jnp.inf, 1e-3]))
    blocked = eqx.tree_at(lambda p: p.final_time.upper, blocked, jnp.asarray(10.0))
    sol = jg.ocp.solve(blocked, solver=jg.ocp.Solver(starts=1), throw=False)
    assert sol.result in (RESULTS.unreachable, RESULTS.transcription_failed)


def test_constraint_without_order_is_refused():
    """Nothing moves the second state, so no derivative of its bound contains the control."""
    problem = jg.ocp.Problem(
        lambda x, u: jnp.stack([u[0], 0.0 * x[1]]),
        initial_state=(0.0, 0.0),
        final_state=(1.0, None),
        final_time=jg.ocp.Free(1.0),
        control_bounds=(-np.ones(1), np.ones(1)),
        state_bounds=([None, -1.0], [None, 1.0]),
    )
    x, u = jnp.ones((3, 2)), jnp.ones((3, 1))
    with pytest.raises(ValueError, match="upper bound of state 1 has no defined order"):
        find_order(problem, 0, x, u)


def test_multipliers_that_alternate_are_one_arc():
    """The midpoint rule leaves a multiplier undetermined by what alternates between intervals."""
    value = np.where(np.abs(np.arange(20) - 9.0) < 6.0, 1e-3, 0.5)
    alternating = np.where(value < 0.1, 1.0 + (-1.0) ** np.arange(20), 0.0)
    (stretch,) = read_constraint(value, alternating, 1)
    assert stretch == read_constraint(value, np.where(value < 0.1, 1.0, 0.0), 1)[0]
    assert stretch == Stretch(4, 15, None)


@pytest.mark.long
@pytest.mark.parametrize("start", [0.9, 0.99, 0.9999])
def test_state_that_starts_just_below_its_bound(start):
    """It is drawn to 2 but kept below 1: where the bound is called active, it is met."""
    solution = jg.ocp.solve(
        jg.ocp.Problem(
            lambda x, u: u,
            running_cost=lambda x, u: (x[0] - 2.0) ** 2 + 1e-3 * u[0] ** 2,
            initial_state=[start],
            final_state=[0.0],
            final_time=1.0,
            control_bounds=([-99.0], [99.0]),
            state_bounds=([None], [1.0]),
        )
    )
    on = np.asarray(solution.multiplier)[:, 0] > 1e-6
    assert on.any()
    np.testing.assert_allclose(np.asarray(solution.x)[on, 0], 1.0, atol=1e-9)
    # On the bound both L and H are 1, off it 1 - (x - 2)^2 + x'^2 / 1000 = 0 with H = 1.
    squared = 1e3 * ((np.asarray(solution.x)[:, 0] - 2.0) ** 2 - 1.0)
    np.testing.assert_allclose(solution.u[:, 0] ** 2, squared, atol=1e-8)
    assert np.asarray(solution.t)[on][0] > 0.0
