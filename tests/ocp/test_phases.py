"""Motions in several phases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from jaxgrip.ocp import Free, Problem, join, solve, split


def push(x, u):
    return jnp.array([x[1], u[0]])


def leg(start, end, duration=0.5):
    return Problem(
        push,
        running_cost=lambda x, u: 0.5 * u @ u,
        initial_state=start,
        final_state=end,
        final_time=duration,
        control_bounds=([-50.0], [50.0]),
    )


@pytest.mark.long
def test_least_effort_through_a_point_is_the_cubic_spline():
    phases = leg([0.0, 0.0], [0.8, None], 0.4), leg([None, None], [1.0, 0.0], 0.6)
    sol = solve(join(*phases))
    spline = CubicSpline([0.0, 0.4, 1.0], [0.0, 0.8, 1.0], bc_type="clamped")
    for phase in split(sol, *phases):
        np.testing.assert_allclose(phase.x[:, 0], spline(phase.t), atol=1e-10)
        np.testing.assert_allclose(phase.u[1:-1, 0], spline(phase.t, 2)[1:-1], atol=1e-8)
    effort = sum(
        0.5 * h * (a**2 + a * b + b**2) / 3.0
        for h, a, b in (
            (0.4, spline(0.0, 2), spline(0.4, 2)),
            (0.6, spline(0.4, 2), spline(1.0, 2)),
        )
    )
    np.testing.assert_allclose(sol.objective, effort, rtol=1e-10)


def half(strength, start, end):
    return Problem(
        push,
        initial_state=start,
        final_state=end,
        final_time=Free(1.5),
        control_bounds=(jnp.array([-strength]), jnp.array([strength])),
    )


def halves(first, second):
    """Distance one in least time; the force is another in each half of the way."""
    return half(first, [0.0, 0.0], [0.5, None]), half(second, [None, None], [1.0, 0.0])


def least_time(first, second):
    """Speeding up through the first half and a piece d of the second, then braking."""
    piece = (second - first) / (4.0 * second)
    peak = jnp.sqrt(first + 2.0 * second * piece)
    return 1.0 / jnp.sqrt(first) + (2.0 * peak - jnp.sqrt(first)) / second


@pytest.mark.soak
def test_least_time_with_two_forces():
    phases = halves(1.0, 3.0)
    sol = solve(join(*phases))
    np.testing.assert_allclose(sol.objective, least_time(1.0, 3.0), rtol=1e-10)
    one, two = split(sol, *phases)
    np.testing.assert_allclose(one.duration, 1.0, rtol=1e-10)
    np.testing.assert_allclose(one.x[-1], two.x[0], atol=1e-10)
    np.testing.assert_allclose(two.start, one.duration)
    np.testing.assert_allclose(two.t[-1], sol.objective, rtol=1e-10)


@pytest.mark.long
def test_derivative_by_the_forces():
    slopes = jax.grad(lambda a, b: solve(join(*halves(a, b))).objective, (0, 1))(1.0, 3.0)
    np.testing.assert_allclose(slopes, jax.grad(least_time, (0, 1))(1.0, 3.0), rtol=1e-8)


@pytest.mark.long
def test_a_jump_between_the_phases():
    """A ball is thrown up, loses half its speed on the way and has to arrive at rest."""
    phases = leg([0.0, 0.0], [1.0, None]), leg([1.0, None], [1.5, 0.0])
    sol = solve(join(*phases, links=lambda starts, times, ends: (starts[1] - 0.5 * ends[0])[1:]))
    one, two = split(sol, *phases)
    np.testing.assert_allclose(two.x[0, 1], 0.5 * one.x[-1, 1], atol=1e-10)

    def piece(distance, before, after, h):
        """Least effort of a cubic between two speeds."""
        mean = distance / h
        speeds = before**2 + before * after + after**2 - 3.0 * mean * (before + after)
        return 2.0 / h * (speeds + 3.0 * mean**2)

    def effort(v):
        return piece(1.0, 0.0, v, 0.5) + piece(0.5, 0.5 * v, 0.0, 0.5)

    speed = one.x[-1, 1]
    np.testing.assert_allclose(sol.objective, effort(speed), rtol=1e-9)
    np.testing.assert_allclose(jax.grad(effort)(speed), 0.0, atol=1e-7)


def test_phases_with_other_states_need_links():
    other = Problem(
        lambda x, u: u,
        running_cost=lambda x, u: u @ u,
        initial_state=[None],
        final_state=[1.0],
        final_time=1.0,
        control_bounds=([-9.0], [9.0]),
    )
    with pytest.raises(ValueError, match="need links"):
        join(leg([0.0, 0.0], [1.0, None]), other)


@pytest.mark.long
def test_phases_with_design_variables_and_time():
    """A wind that grows from the start of each phase, and a gain of the first one alone.

    The gain p costs p^2 / 2 in one second, then p = 1 / 2 and u = 1 / 2 share the way one.
    """
    first = Problem(
        lambda x, u, p: u + p,
        running_cost=lambda x, u, p: 0.5 * (u @ u + p @ p),
        initial_state=[0.0],
        final_state=[1.0],
        final_time=1.0,
        control_bounds=([-9.0], [9.0]),
        design_variables=Free([0.1]),
    )
    second = Problem(
        lambda x, u, t: u + t,
        running_cost=lambda x, u, t: 0.5 * u @ u,
        initial_state=[None],
        final_state=[2.5],
        final_time=1.0,
        control_bounds=([-9.0], [9.0]),
        is_time_dependent=True,
    )
    sol = solve(join(first, second))
    one, two = split(sol, first, second)
    np.testing.assert_allclose(one.design_variables, [0.5], rtol=1e-10)
    np.testing.assert_allclose(one.u[:, 0], 0.5, atol=1e-10)
    np.testing.assert_allclose(two.u[:, 0], 1.0, atol=1e-10)
    np.testing.assert_allclose(sol.objective, 0.25 + 0.5, rtol=1e-11)


@pytest.mark.soak
def test_derivative_by_a_number_in_the_links():
    """The second phase starts a step beyond the end of the first, which saves the way."""

    def effort(gap):
        phases = [
            Problem(
                lambda x, u: u,
                running_cost=lambda x, u: 0.5 * u @ u,
                initial_state=[start],
                final_state=[end],
                final_time=1.0,
                control_bounds=([-9.0], [9.0]),
            )
            for start, end in ((0.0, None), (None, 1.0))
        ]

        def links(starts, times, ends):
            return starts[1] - ends[0] - gap

        return solve(join(*phases, links=links)).objective

    # The way 1 - gap in two seconds at constant speed.
    value, slope = jax.value_and_grad(effort)(0.2)
    np.testing.assert_allclose(value, 0.8**2 / 4.0, rtol=1e-11)
    np.testing.assert_allclose(slope, -0.8 / 2.0, rtol=1e-9)


def test_phases_that_do_not_meet():
    with pytest.raises(ValueError, match=r"ends with state 0 at 0\.5, but the next .* at 0\.6"):
        join(half(1.0, [0.0, 0.0], [0.5, 0.0]), half(1.0, [0.6, 0.0], [1.0, 0.0]))


@pytest.mark.soak
def test_switches_at_the_same_time():
    """From rest to rest twice, half of the way in 2 sqrt(1 / 2 / force), switching half-way."""
    phases = half(1.0, [0.0, 0.0], [0.5, 0.0]), half(0.5, [0.5, 0.0], [1.0, 0.0])
    sol = solve(join(*phases))
    np.testing.assert_allclose(sol.objective, np.sqrt(2.0) + 2.0, rtol=1e-11)
