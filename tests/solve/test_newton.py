"""Newton's method where roots, bounds and derivatives are known in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxgrip.solve import dense
from jaxgrip.solve.newton import bounded, implicit, newton


def solve(function, start, longest=jnp.inf):
    """Root near a start (n,), by least squares of least length."""

    def linearised(x):
        residual = function(x)
        return x, residual, -dense.pinv(jax.jacfwd(function)(x)) @ residual

    def length(step):
        return jnp.linalg.norm(step) / longest

    return newton(linearised, jnp.add, start, jnp.zeros_like(start), length)


def test_circle_and_hyperbola():
    """x² + y² = 5 and x y = 2 meet in (2, 1); the error is squared by every step."""

    def function(x):
        return jnp.stack([x @ x - 5.0, x[0] * x[1] - 2.0])

    found = jax.jit(lambda start: solve(function, start))(jnp.array([2.2, 0.7]))
    np.testing.assert_allclose(found.point, [2.0, 1.0], atol=1e-14)
    assert found.miss < 1e-14
    assert 4 <= found.steps <= 6


def test_equations_that_follow_from_others():
    """A circle three times over: the way of least length leads along the radius."""

    def function(x):
        return (x @ x - 4.0) * jnp.array([1.0, -2.0, 3.0])

    found = solve(function, jnp.array([3.0, 4.0]))
    np.testing.assert_allclose(found.point, [1.2, 1.6], atol=1e-13)
    assert dense.independent(dense.singular_values(jax.jacfwd(function)(found.point))).sum() == 1


def test_rank_counts_what_is_above_a_part_of_the_largest():
    sizes = jnp.array([[4.0, 1.0, 1e-10], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(dense.independent(sizes).sum(axis=1), [2, 0])
    assert dense.independent(sizes[0], 0.3).sum() == 1
    assert dense.independent(np.zeros(0)).shape == (0,)


def test_steps_are_bounded():
    """Of sin x = 0 from just before π/2, where the whole step is 100 rad long."""
    start = jnp.array([np.pi / 2 - 0.01])
    near = solve(jnp.sin, start, longest=1.0)
    np.testing.assert_allclose(near.point, [0.0], atol=1e-14)
    far = solve(jnp.sin, start)
    assert abs(far.point[0]) > 6.0
    step = jnp.array([3.0, 4.0])
    np.testing.assert_allclose(bounded(step, lambda s: jnp.linalg.norm(s) / 2.0), [1.2, 1.6])
    np.testing.assert_array_equal(bounded(step, lambda s: jnp.linalg.norm(s) / 9.0), step)


def test_steps_are_halved():
    """Newton's method for arctan x = 0 diverges from beyond 1.39."""
    found = solve(jnp.arctan, jnp.array([3.0]))
    np.testing.assert_allclose(found.point, [0.0], atol=1e-14)


def test_without_a_root_the_best_point_is_the_result():
    """|x² + 1| is nowhere smaller than 1."""
    found = solve(lambda x: x**2 + 1.0, jnp.array([2.0]))
    assert found.steps == 50
    assert 1.0 <= found.miss < 1.1
    np.testing.assert_allclose(found.miss, found.point[0] ** 2 + 1.0, atol=1e-15)


def test_points_that_are_no_vectors():
    """A point of the circle, moved by angles, in the direction of (3, 4); the point knows more."""

    def moved(point, angle):
        (x, y), _ = point
        c, s = jnp.cos(angle), jnp.sin(angle)
        return jnp.stack([c * x - s * y, s * x + c * y]), point[1]

    def linearised(point):
        (x, y), seen = point
        return (point[0], seen + 1.0), (4 * x - 3 * y)[None], (4 * x - 3 * y) / (4 * y + 3 * x)

    start = jnp.array([1.0, 0.0]), jnp.zeros(())
    found = newton(linearised, moved, start, jnp.zeros(()), jnp.abs)
    np.testing.assert_allclose(found.point[0], [0.6, 0.8], atol=1e-15)
    assert 1 <= float(found.point[1]) <= int(found.steps) + 1


@pytest.mark.parametrize("start", [jnp.array([jnp.nan, 1.0]), jnp.array([0.0, 0.0])])
def test_what_is_not_finite_ends_the_iterations(start):
    """A start that is no number, and one where the derivative is none."""

    def function(x):
        return jnp.stack([jnp.sqrt(x @ x) - 1.0, x[0] - x[1]])

    found = solve(function, start)
    assert not np.isfinite(found.miss)
    assert found.steps <= 1


def test_members_of_a_batch_end_by_themselves():
    """x² = a: members from the root, from near by and from afar, as each of them alone."""
    squares = jnp.array([4.0, 4.0, 4.0, jnp.nan, 1e-4])
    starts = jnp.array([[2.0], [2.1], [1e3], [1.0], [1.0]])

    def one(square, start):
        return solve(lambda x: x**2 - square, start)

    found = jax.jit(jax.vmap(one))(squares, starts)
    np.testing.assert_allclose(found.point[[0, 1, 2, 4], 0], [2.0, 2.0, 2.0, 0.01], atol=1e-13)
    assert found.steps[0] < found.steps[1] < found.steps[2]
    assert not np.isfinite(found.miss[3])
    for k in range(5):
        alone = one(squares[k], starts[k])
        assert alone.steps == found.steps[k]
        np.testing.assert_array_equal(alone.point, found.point[k])


def hyperbola(numbers, x):
    return jnp.stack([x[0] ** 2 - numbers[0] * x[1] ** 2, x[0] * x[1] - numbers[1]])


attached = implicit(
    hyperbola,
    lambda numbers, x, change: -dense.solve(jax.jacfwd(hyperbola, 1)(numbers, x), change),
    jnp.add,
)


def root(numbers):
    fixed = jax.lax.stop_gradient(numbers)
    found = solve(lambda x: hyperbola(fixed, x), jnp.array([1.5, 1.0]))
    return attached(numbers, found.point)


@pytest.mark.long
def test_derivatives_are_those_of_the_solution():
    """x² = a y² and x y = b: x = √(b √a), y = √(b / √a)."""

    def exact(numbers):
        a, b = numbers
        return jnp.stack([jnp.sqrt(b * jnp.sqrt(a)), jnp.sqrt(b / jnp.sqrt(a))])

    numbers = jnp.array([1.7, 2.3])
    np.testing.assert_allclose(root(numbers), exact(numbers), atol=1e-14)
    for derivative in (jax.jacfwd, jax.jacrev, jax.hessian):
        np.testing.assert_allclose(
            jax.jit(derivative(root))(numbers), derivative(exact)(numbers), atol=1e-12
        )
    check_grads(root, (numbers,), order=2, modes=["fwd", "rev"], atol=1e-6, rtol=1e-6)
