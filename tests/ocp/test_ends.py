"""Free initial states, boundary conditions, design variables, time-dependent functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip.ocp import Free, Problem, solve

WIDE = ([-10.0], [10.0])


def push(x, u):
    return jnp.array([x[1], u[0]])


def effort(x, u):
    return 0.5 * u @ u


def throw(start_speed):
    """Distance one in one second with least effort, ending at rest."""
    return Problem(
        push,
        running_cost=effort,
        initial_state=[0.0, start_speed],
        final_state=[1.0, 0.0],
        final_time=1.0,
        control_bounds=WIDE,
    )


@pytest.mark.soak
def test_free_initial_speed():
    """The costate of the speed vanishes at the start: u = -3 t."""
    sol = solve(throw(None))
    np.testing.assert_allclose(sol.objective, 1.5, rtol=1e-11)
    np.testing.assert_allclose(sol.x[0], [0.0, 1.5], atol=1e-10)
    np.testing.assert_allclose(sol.u[:, 0], -3.0 * sol.t, atol=1e-9)
    np.testing.assert_allclose(sol.costate[0, 1], 0.0, atol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize(
    ("free", "speed", "cost"),
    [
        (Free(0.5, upper=1.0), 1.0, 2.0),
        (Free(1.2, upper=2.0), 1.5, 1.5),
        (Free(2.5, lower=2.0), 2.0, 2.0),
    ],
)
def test_bounded_initial_speed(free, speed, cost):
    """u = b - a t with a = 3 b and 1 + b - a / 2 = 0 at the bounds 1 and 2 alike up to the sign."""
    sol = solve(throw(free))
    np.testing.assert_allclose(sol.x[0, 1], speed, atol=1e-10)
    np.testing.assert_allclose(sol.objective, cost, rtol=1e-11)


@pytest.mark.long
def test_gradient_by_a_bound_of_the_start():
    """With the speed v at the start the effort is 6 (1 - v) + 2 v^2."""
    slope = jax.grad(lambda v: solve(throw(Free(0.5, upper=v))).objective)(1.0)
    np.testing.assert_allclose(slope, -2.0, rtol=1e-9)


def interception(distance, speed, guess=2.0):
    """A mass with bounded force catches a target that moves away, at the target's speed."""
    return Problem(
        push,
        initial_state=[0.0, 0.0],
        final_state=[None, Free(speed)],
        boundary_conditions=lambda start, time, end: jnp.array(
            [end[0] - distance - speed * time, end[1] - speed]
        ),
        final_time=Free(guess),
        control_bounds=([-1.0], [1.0]),
    )


def interception_time(distance, speed):
    """In the target's frame the mass comes with minus its speed, turns round and brakes."""
    return 2.0 * np.sqrt(distance + 0.5 * speed**2) + speed


@pytest.mark.soak
def test_interception():
    sol = solve(interception(1.0, 0.4))
    np.testing.assert_allclose(sol.final_time, interception_time(1.0, 0.4), rtol=1e-11)
    peak = np.sqrt(1.0 + 0.5 * 0.4**2)
    np.testing.assert_allclose(sol.switching_times, [peak + 0.4], rtol=1e-10)
    by_distance, by_speed = jax.grad(lambda d, s: solve(interception(d, s)).final_time, (0, 1))(
        1.0, 0.4
    )
    np.testing.assert_allclose(by_distance, 1.0 / peak, rtol=1e-9)
    np.testing.assert_allclose(by_speed, 0.4 / peak + 1.0, rtol=1e-9)


@pytest.mark.long
def test_end_on_a_circle():
    """The shortest way to a circle aims at its centre; the multiplier balances the costate."""
    centre, radius = np.array([3.0, 4.0]), 2.0
    sol = solve(
        Problem(
            lambda x, u: u,
            running_cost=effort,
            initial_state=[0.0, 0.0],
            final_state=[Free(2.0), Free(1.0)],
            boundary_conditions=lambda start, time, end: (
                jnp.sum((end - centre) ** 2, keepdims=True) - radius**2
            ),
            final_time=1.0,
            control_bounds=([-9.0, -9.0], [9.0, 9.0]),
        )
    )
    np.testing.assert_allclose(sol.x[-1], 0.6 * centre, atol=1e-10)
    np.testing.assert_allclose(sol.objective, 4.5, rtol=1e-11)
    np.testing.assert_allclose(
        sol.costate[-1], 2.0 * sol.boundary_multiplier[0] * (sol.x[-1] - centre), atol=1e-10
    )


@pytest.mark.long
def test_periodic_motion_in_a_changing_world():
    """x'' = x - sin t has the periodic solution sin t / 2."""
    sol = solve(
        Problem(
            lambda x, u, t: u,
            running_cost=lambda x, u, t: (x[0] - jnp.sin(t)) ** 2 + u[0] ** 2,
            initial_state=[None],
            final_state=[None],
            boundary_conditions=lambda start, time, end: end - start,
            final_time=2.0 * np.pi,
            control_bounds=WIDE,
            is_time_dependent=True,
        )
    )
    np.testing.assert_allclose(sol.objective, 0.5 * np.pi, rtol=1e-11)
    np.testing.assert_allclose(sol.x[:, 0], 0.5 * np.sin(sol.t), atol=1e-9)
    assert sol.x.shape[1] == 1
    assert sol.costate.shape[1] == 1


@pytest.mark.long
def test_least_time_against_a_growing_wind():
    """T + T^2 / 2 = 3 / 2."""
    sol = solve(
        Problem(
            lambda x, u, t: u + t,
            initial_state=[0.0],
            final_state=[1.5],
            final_time=Free(0.7),
            control_bounds=([-1.0], [1.0]),
            is_time_dependent=True,
        )
    )
    np.testing.assert_allclose(sol.final_time, 1.0, rtol=1e-11)
    # The Hamiltonian falls with the costate of the time, L + costate . f = -costate of the time.
    assert sol.certificate.passed


def lever(weight, bounds=(0.1, 10.0)):
    """Distance one in least time, with a gain that costs its square."""
    return Problem(
        lambda x, u, gain: jnp.array([x[1], gain[0] * u[0]]),
        terminal_cost=lambda time, x, gain: time + weight * gain[0] ** 2,
        initial_state=[0.0, 0.0],
        final_state=[1.0, 0.0],
        final_time=Free(2.0),
        control_bounds=([-1.0], [1.0]),
        design_variables=Free([0.5 * (bounds[0] + bounds[1])], [bounds[0]], [bounds[1]]),
    )


@pytest.mark.long
def test_design_variable():
    """2 / sqrt(p) + w p^2 is least where p^(5/2) = 1 / (2 w)."""
    gain = (1.0 / (2.0 * 0.3)) ** 0.4
    sol = solve(lever(0.3))
    np.testing.assert_allclose(sol.design_variables, [gain], rtol=1e-10)
    np.testing.assert_allclose(sol.objective, 2.0 / np.sqrt(gain) + 0.3 * gain**2, rtol=1e-11)
    np.testing.assert_allclose(sol.final_time, 2.0 / np.sqrt(gain), rtol=1e-10)
    assert sol.x.shape[1] == 2
    slope = jax.grad(lambda w: solve(lever(w)).objective)(0.3)
    np.testing.assert_allclose(slope, gain**2, rtol=1e-9)
    slope = jax.jacfwd(lambda w: solve(lever(w)).design_variables)(0.3)
    np.testing.assert_allclose(slope, [-0.4 * gain / 0.3], rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize(("bounds", "gain"), [((0.1, 1.1), 1.1), ((1.5, 4.0), 1.5)])
def test_design_variable_at_its_bound(bounds, gain):
    sol = solve(lever(0.3, bounds))
    np.testing.assert_allclose(sol.design_variables, [gain], rtol=1e-12)
    np.testing.assert_allclose(sol.final_time, 2.0 / np.sqrt(gain), rtol=1e-11)


def move(x, u):
    return u


@pytest.mark.long
def test_design_variable_that_is_the_final_time():
    """|u| <= 1 over the distance one: T = p = 1 and T + p^2 = 2."""
    sol = solve(
        Problem(
            lambda x, u, p: u,
            terminal_cost=lambda t, x, p: t + p[0] ** 2,
            initial_state=[0.0],
            final_state=[1.0],
            final_time=Free(2.0),
            control_bounds=([-1.0], [1.0]),
            design_variables=Free([1.0], [0.1], [10.0]),
            boundary_conditions=lambda x0, t, x1, p: jnp.stack([p[0] - t]),
        )
    )
    np.testing.assert_allclose(sol.final_time, 1.0, rtol=1e-11)
    np.testing.assert_allclose(sol.design_variables, [1.0], rtol=1e-11)
    np.testing.assert_allclose(sol.objective, 2.0, rtol=1e-11)


def gain_as_time(exponent, guess):
    return Problem(
        lambda x, u, p: p * u,
        running_cost=lambda x, u, p: effort(x, u),
        terminal_cost=lambda t, x, p: t,
        initial_state=[0.0],
        final_state=[1.0],
        final_time=Free(guess),
        control_bounds=WIDE,
        design_variables=Free([1.2], [0.1], [10.0]),
        boundary_conditions=lambda x0, t, x1, p: jnp.stack([p[0] - t**exponent]),
    )


@pytest.mark.soak
@pytest.mark.parametrize(
    ("exponent", "guess"), [(1.0, 1.2), (1.0, 1.1066819), (1.0, 4.0), (-1.0, 1.2)]
)
def test_gain_that_is_tied_to_the_final_time(exponent, guess):
    """p = T^k: u = T^(-k-1), and T + T^(-2k-1) / 2 is least where T^(2k+2) = k + 1/2; for k = -1,
    where u = 1, it is 3 T / 2 and T falls to the bound 0.1 of p = 1 / T, which is 10.
    """
    sol = solve(gain_as_time(jnp.array(exponent), guess))
    time = 1.5**0.25 if exponent > 0.0 else 0.1
    np.testing.assert_allclose(sol.final_time, time, rtol=1e-9)
    cost = time + 0.5 * time ** (-2.0 * exponent - 1.0)
    np.testing.assert_allclose(sol.objective, cost, rtol=1e-10)


@pytest.mark.soak
@pytest.mark.parametrize("guess", [0.5, 3.0])
def test_start_and_design_variable_that_are_the_final_time(guess):
    """x(0) = p = T and |u| <= 1 to the place three: T = 3 / 2."""
    sol = solve(
        Problem(
            lambda x, u, p: u,
            terminal_cost=lambda t, x, p: t,
            initial_state=[Free(1.0)],
            final_state=[3.0],
            final_time=Free(guess),
            control_bounds=([-1.0], [1.0]),
            design_variables=Free([1.0], [0.1], [5.0]),
            boundary_conditions=lambda x0, t, x1, p: jnp.stack([x0[0] - p[0], p[0] - t]),
        )
    )
    np.testing.assert_allclose(sol.final_time, 1.5, rtol=1e-11)
    np.testing.assert_allclose(sol.design_variables, [1.5], rtol=1e-11)
    np.testing.assert_allclose(sol.x[0], [1.5], rtol=1e-11)


@pytest.mark.long
def test_design_variables_tied_to_each_other_in_a_fixed_time():
    """x' = p u + q with q = 2 p: u = 1 / p - 2 and u^2 / 2 + p^2 / 2 is least where
    p^4 + 2 p = 1.
    """
    sol = solve(
        Problem(
            lambda x, u, p: p[:1] * u + p[1:],
            running_cost=lambda x, u, p: effort(x, u),
            terminal_cost=lambda t, x, p: 0.5 * p[0] ** 2,
            initial_state=[0.0],
            final_state=[1.0],
            final_time=1.0,
            control_bounds=WIDE,
            design_variables=Free([1.0, 1.0], [0.1, 0.1], [10.0, 10.0]),
            boundary_conditions=lambda x0, t, x1, p: jnp.stack([p[1] - 2.0 * p[0]]),
        )
    )
    gain = next(r.real for r in np.roots([1.0, 0.0, 0.0, 2.0, -1.0]) if r.real > 0 == r.imag)
    np.testing.assert_allclose(sol.design_variables, [gain, 2.0 * gain], rtol=1e-9)


@pytest.mark.soak
def test_start_on_a_circle():
    """The shortest way from a circle to a place begins where the ray to it leaves the circle."""
    sol = solve(
        Problem(
            move,
            running_cost=effort,
            initial_state=[Free(1.0), Free(0.1)],
            final_state=[3.0, 4.0],
            final_time=1.0,
            control_bounds=([-20.0] * 2, [20.0] * 2),
            boundary_conditions=lambda x0, t, x1: jnp.stack([x0 @ x0 - 1.0]),
        )
    )
    np.testing.assert_allclose(sol.x[0], [0.6, 0.8], atol=1e-10)
    np.testing.assert_allclose(sol.objective, 8.0, rtol=1e-11)
