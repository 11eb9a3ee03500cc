"""Functions that close over numbers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip.ocp.closures import Captured, capture


def scaled(factor, offset=0.0):
    def inner(x):
        return factor * x

    def outer(x, *, sign=1.0):
        return sign * inner(x) + offset

    return outer


def test_derivative_by_a_number_that_a_nested_function_closes_over():
    def value(factor):
        return capture(scaled(factor))(jnp.array(3.0))

    np.testing.assert_allclose(jax.grad(value)(2.0), 3.0)


def test_another_number_does_not_compile_anew():
    count = 0

    @eqx.filter_jit
    def call(function, x):
        nonlocal count
        count += 1
        return function(x)

    for factor in (2.0, 3.0):
        value = call(capture(scaled(jnp.asarray(factor))), jnp.array(5.0))
        np.testing.assert_allclose(value, 5.0 * factor)
    assert count == 1
    np.testing.assert_allclose(call(capture(scaled(2.0, offset=1.0)), jnp.array(5.0)), 11.0)
    np.testing.assert_allclose(call(capture(scaled(2.0, offset=2.0)), jnp.array(5.0)), 12.0)
    assert count == 3


def test_constants_stay_what_they_are():
    table = np.array([1.0, 2.0])

    def look_up(x):
        return x * float(table[1])

    assert eqx.filter_jit(capture(look_up))(2.0) == 4.0
    assert jax.tree.leaves(capture(look_up)) == []


@pytest.mark.parametrize("function", [jnp.sin, np.sin, len, eqx.nn.Identity()])
def test_what_is_no_python_function_stays_itself(function):
    assert capture(function) is function


def test_functions_made_anew_are_equal():
    def make(power):
        return lambda x, offset=1.0: x**power + offset

    assert jax.tree.structure(capture(make(2))) == jax.tree.structure(capture(make(2)))
    assert jax.tree.structure(capture(make(2))) != jax.tree.structure(capture(make(3)))
    assert capture(make(2))(3.0) == 10.0


def test_functions_that_call_themselves():
    one = jnp.array(1.0)

    def factorial(n):
        return one if n == 0 else n * factorial(n - 1)

    assert isinstance(capture(factorial), Captured)
    assert capture(factorial)(4) == 24.0


def test_a_variable_that_is_not_assigned_yet():
    def early():
        return late

    assert capture(early) is early
    late = 1.0
    assert capture(early)() == late
