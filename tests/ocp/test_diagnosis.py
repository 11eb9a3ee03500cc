"""Naming what stands in the way of a solution."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip.ocp import Free, Problem
from jaxgrip.ocp.pipeline import find_kink


def moving(resistance):
    return Problem(
        lambda x, u: jnp.array([x[1], u[0] - resistance(x[1])]),
        initial_state=[0.0, 0.0],
        final_state=[1.0, 0.0],
        final_time=Free(2.0),
        control_bounds=([-1.0], [1.0]),
    )


T = np.linspace(0.0, 1.0, 30)
COURSE = np.stack([T**2 / 2.0, T], axis=1)


@pytest.mark.parametrize(
    "resistance",
    [
        lambda v: jnp.abs(v - 0.37),
        lambda v: jnp.where(v > 0.37, 0.2, 0.1),
        lambda v: jnp.maximum(v, 0.37),
    ],
)
def test_a_kink_is_found_where_it_is(resistance):
    at = find_kink(moving(resistance), T, COURSE, np.ones((len(T), 1)))
    np.testing.assert_allclose(at, 0.37, atol=1e-8)


@pytest.mark.parametrize(
    "resistance",
    [
        lambda v: 0.3 * v,
        lambda v: jnp.tanh(1e3 * (v - 0.37)),
        lambda v: jnp.sqrt((v - 0.37) ** 2 + 1e-6),
        lambda v: 1e9 * v**2,
        lambda v: jnp.cos(v) ** 2 + jnp.sin(v) ** 2 - 1.0,
    ],
)
def test_steep_but_smooth_functions_have_none(resistance):
    assert find_kink(moving(resistance), T, COURSE, np.ones((len(T), 1))) is None


def test_switches_are_no_kinks():
    t = np.array([0.0, 0.5, 0.5, 1.0])
    u = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    x = np.stack([t, t], axis=1)
    assert find_kink(moving(lambda v: 0.1 * v), t, x, u) is None
