"""A bound that is infinite is none, also where its number is traced."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.ocp import Free, Problem, Solver

ONE_START = Solver(starts=1)


def drift(x, u):
    return jnp.stack([x[1], u[0]])


def limited_by_states(speed):
    """Distance one in minimum time, speed limited; every other bound is infinite and traced."""
    none = jnp.where(speed > 0.0, jnp.inf, speed)
    return Problem(
        drift,
        initial_state=[0.0, 0.0],
        final_state=[1.0, 0.0],
        final_time=Free(2.5, jnp.where(speed > 0.0, 0.0, speed), none),
        control_bounds=([-1.0], [1.0]),
        state_bounds=(jnp.stack([-none, -speed]), jnp.stack([none, speed])),
    )


def limited_by_path(speed):
    """The same with path constraints, one of them on a control."""
    none = jnp.where(speed > 0.0, jnp.inf, speed)
    return Problem(
        drift,
        initial_state=[0.0, 0.0],
        final_state=[1.0, 0.0],
        final_time=Free(2.5),
        control_bounds=([-1.0], [1.0]),
        path_constraints=lambda x, u: jnp.stack([u[0] - none, x[1] - speed, -none - x[0]]),
    )


def least_time(speed):
    return speed + 1.0 / speed if speed < 1.0 else 2.0


@pytest.mark.long
@pytest.mark.parametrize(
    "build", [limited_by_path, pytest.param(limited_by_states, marks=pytest.mark.soak)]
)
def test_value_gradient_and_batch(build):
    """T(v) = v + 1 / v, T'(1/2) = -3; without a limit T = 2."""

    def final_time(speed):
        return jg.ocp.solve(build(speed), solver=ONE_START).final_time

    value, slope = jax.value_and_grad(final_time)(jnp.array(0.5))
    np.testing.assert_allclose([value, slope], [2.5, -3.0], rtol=1e-10)
    np.testing.assert_allclose(jax.jacfwd(final_time)(jnp.array(jnp.inf)), 0.0, atol=1e-12)
    speeds = np.array([0.5, np.inf, 0.7, np.inf])
    solutions = jg.ocp.solve_batch(eqx.filter_vmap(build)(jnp.array(speeds)), solver=ONE_START)
    times = [float(s.final_time) for s in solutions]
    np.testing.assert_allclose(times, [least_time(v) for v in speeds], rtol=1e-11)
    assert all(s.certificate.passed for s in solutions)
