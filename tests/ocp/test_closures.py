"""Functions that close over numbers."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.ocp.statement import capture

GRAVITY = 1.0
TABLE = np.array([1.0, 2.0])


def scaled(factor, offset=0.0):
    def inner(x):
        return factor * x

    def outer(x, *, sign=1.0):
        return sign * inner(x) + offset

    return outer


def with_global():
    return lambda x: x - GRAVITY


def read_table():
    return lambda x: x * TABLE[0]


def same(one, other):
    return jax.tree.structure(capture(one)) == jax.tree.structure(capture(other))


def test_derivative_by_a_number_that_a_nested_function_closes_over():
    def value(factor):
        return capture(scaled(factor))(jnp.array(3.0))

    np.testing.assert_allclose(jax.grad(value)(2.0), 3.0)


def test_derivative_by_a_default():
    def value(factor):
        return capture(lambda x, k=factor: k * x)(jnp.array(3.0))

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


def test_functions_made_anew_are_equal_where_nothing_else_differs():
    def make(power):
        return lambda x, offset=1.0: jnp.abs(x) ** power + offset

    assert same(make(2), make(2))
    assert not same(make(2), make(3))
    assert not same(make(2), make(2.0))
    assert capture(make(2))(3.0) == 10.0


def test_another_global_makes_another_function(monkeypatch):
    before = capture(with_global())
    assert same(with_global(), with_global())
    monkeypatch.setitem(with_global.__globals__, "GRAVITY", 0.5)
    after = capture(with_global())
    assert jax.tree.structure(before) != jax.tree.structure(after)


def test_what_may_change_in_place_makes_every_function_its_own():
    table = np.array([1.0, 2.0])

    def make():
        return lambda x: x * table[0]

    assert not same(make(), make())
    assert not same(read_table(), read_table())
    one = make()
    assert same(one, one)


@pytest.mark.soak
def test_a_loop_over_a_global_is_solved_anew(monkeypatch):
    """x' = u - g from 0 to 0.3 in one second takes u = 0.3 + g."""
    for gravity in (0.5, 0.25):
        monkeypatch.setitem(globals(), "GRAVITY", gravity)
        solution = jg.ocp.solve(
            jg.ocp.Problem(
                lambda x, u: u - GRAVITY,
                running_cost=lambda x, u: u @ u,
                initial_state=[0.0],
                final_state=[0.3],
                final_time=1.0,
                control_bounds=([-1.0], [1.0]),
            )
        )
        np.testing.assert_allclose(solution.objective, (0.3 + gravity) ** 2, rtol=1e-11)


def test_constants_stay_what_they_are():
    table = np.array([1.0, 2.0])

    def look_up(x):
        return x * float(table[1])

    assert eqx.filter_jit(capture(look_up))(2.0) == 4.0
    assert jax.tree.leaves(capture(look_up)) == []


def test_helpers_stay_functions():
    gain = jnp.array(2.0)

    def step(carry, _):
        return gain * carry, None

    def helper(x, *, offset=0.0):
        return x + offset

    def f(x):
        x = jax.lax.scan(step, x, None, length=3)[0]
        return jax.jit(helper)(x) + helper(x, offset=gain)

    assert eqx.filter_jit(capture(f))(jnp.array(1.0)) == 18.0


@pytest.mark.parametrize(
    "function", [jnp.sin, np.sin, len, eqx.nn.Identity(), functools.partial(max, 1)]
)
def test_what_is_no_python_function_stays_itself(function):
    assert capture(function) is function


def test_functions_that_call_themselves_stay_themselves():
    one = jnp.array(1.0)

    def factorial(n):
        return one if n == 0 else n * factorial(n - 1)

    assert capture(factorial) is factorial


def test_a_variable_that_is_not_assigned_yet():
    def early():
        return late

    assert capture(early) is early
    late = 1.0
    assert capture(early)() == late
