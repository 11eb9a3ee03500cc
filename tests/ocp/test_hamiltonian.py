"""Expansions of the Hamiltonian, its flow, and the collocation method."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial import Polynomial

import jaxgrip as jg
from jaxgrip.models import ocp_problems as problems
from jaxgrip.ocp.hamiltonian import (
    expand,
    hamiltonian_flow,
    kelley,
    switching_derivative,
    switching_rate,
)
from jaxgrip.ocp.indirect import radau


def swing(x, u):
    return jnp.stack(
        [x[1] * jnp.cos(x[2]), jnp.sin(x[0]) * u[0] + u[1] ** 2, x[0] * x[2] + u[0] * u[1]]
    )


def swing_cost(x, u):
    return x[0] ** 2 * u[0] + jnp.exp(0.3 * u[1]) + jnp.sin(x[2])


@pytest.fixture(params=[None, swing_cost], ids=["time", "cost"])
def swing_problem(request):
    return jg.ocp.Problem(
        swing,
        running_cost=request.param,
        initial_state=jnp.zeros(3),
        final_state=jnp.ones(3),
        final_time=jg.ocp.Free(1.0),
        control_bounds=(-jnp.ones(2), jnp.ones(2)),
    )


def test_expand_is_the_expansion(swing_problem):
    x, u, costate = jnp.array([0.3, -0.7, 1.1]), jnp.array([0.4, -0.2]), jnp.array([1.0, -2.0, 0.5])
    cost = swing_problem.cost_rate

    def hamiltonian(z):
        return cost(z[:3], z[3:]) + costate @ swing(z[:3], z[3:])

    z = jnp.concatenate([x, u])
    ex = expand(swing_problem, x, u, costate)
    np.testing.assert_allclose(ex.f, swing(x, u), rtol=1e-14)
    np.testing.assert_allclose(ex.cost, cost(x, u), rtol=1e-14)
    np.testing.assert_allclose(ex.h_z, jax.grad(hamiltonian)(z), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(ex.h_zz, jax.hessian(hamiltonian)(z), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(
        ex.f_z, jax.jacfwd(lambda z: swing(z[:3], z[3:]))(z), rtol=1e-13, atol=1e-14
    )
    np.testing.assert_allclose(
        ex.cost_z, jax.grad(lambda z: jnp.asarray(cost(z[:3], z[3:])))(z), rtol=1e-13, atol=1e-14
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "drives",
    [
        pytest.param(None, marks=pytest.mark.soak),
        np.array([[1.0, 0, 0, 0], [0, 1, 0.5, 0], [0, 0, 0, 2]]),
    ],
)
def test_mechanical_expansion_agrees_with_plain_differentiation(finger_problem, drives):
    """Through inverse dynamics, against forward dynamics differentiated twice."""
    drives = None if drives is None else jnp.asarray(drives)
    space = jg.rigid.StateSpace(finger_problem("A").dynamics.tree, drives)
    rng = np.random.default_rng(0)
    m = 3 if drives is None else drives.shape[1]
    z = jnp.asarray(rng.normal(size=(5, 6 + m)) * np.repeat([1.0, 20.0, 1.0], [3, 3, m]))
    weights = jnp.asarray(rng.normal(size=(5, 6)))

    def rates(z):
        return space(z[:6], z[6:])

    def plain(z, w):
        return rates(z), jax.jacfwd(rates)(z), jax.hessian(lambda z: w @ rates(z))(z)

    ours = jax.jit(jax.vmap(lambda z, w: space.expand(z[:6], z[6:], w)))(z, weights)
    for got, expected in zip(ours, jax.jit(jax.vmap(plain))(z, weights), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-11 * np.abs(expected).max())


class Damped(jg.rigid.StateSpace):
    """Joint friction added in `__call__` alone."""

    def __call__(self, x, u):
        return super().__call__(x, u - 0.01 * x[self.tree.n :])


@pytest.mark.soak
def test_inherited_expansion_is_not_used_for_other_dynamics(finger_problem):
    problem = finger_problem("A")
    problem = eqx.tree_at(lambda p: p.dynamics, problem, Damped(problem.dynamics.tree))
    x, u = jnp.array([0.1, -0.4, -0.6, 3.0, -8.0, 5.0]), jnp.array([0.1, -0.2, 0.3])
    ex = expand(problem, x, u, jnp.ones(6))
    np.testing.assert_allclose(ex.f, problem.dynamics(x, u), rtol=1e-12)
    np.testing.assert_allclose(ex.f_z[:, :6], jax.jacfwd(problem.dynamics)(x, u), rtol=1e-11)


def runge_kutta(rate, y, h):
    k1 = rate(y)
    k2 = rate(y + h / 2 * k1)
    k3 = rate(y + h / 2 * k2)
    k4 = rate(y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def switching(problem, y, u):
    n = problem.n
    return jax.grad(lambda u: problem.cost_rate(y[:n], u) + y[n:] @ problem.dynamics(y[:n], u))(u)


def assert_slope(problem, y, u, h):
    """Fourth-order difference quotient of H_u along the flow."""
    slope = switching_rate(problem, y, u)

    @jax.jit
    def at(h):
        return switching(problem, runge_kutta(lambda y: hamiltonian_flow(problem, y, u), y, h), u)

    quotient = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h)
    np.testing.assert_allclose(slope, quotient, rtol=0, atol=1e-8 * np.abs(quotient).max())


def test_switching_slope(swing_problem):
    y = jnp.array([0.3, -0.7, 1.1, 1.0, -2.0, 0.5])
    assert_slope(swing_problem, y, jnp.array([0.4, -0.2]), 1e-3)


@pytest.mark.long
def test_switching_slope_of_an_arm(arm):
    problem, sol = arm
    assert_slope(problem, jnp.concatenate([sol.x[7], sol.costate[7]]), sol.u[7], 1e-3)


def test_order_of_singular_arcs():
    """Cost x^2: second derivative -2 u for x' = u; 2 x for x'' = u, and the fourth 2 u."""
    control = jnp.array([0.3])
    y = jnp.array([0.7, 0.5, -0.2, 0.4])
    for problem, order, at, bend in (
        (problems.nonsmooth_turnpike(), 1, y[1:3], (-0.6, -2.0)),
        (problems.nonsmooth_turnpike(), 2, y[1:3], (0.0, 0.0)),
        (problems.fuller(), 1, y, (1.4, 0.0)),
        (problems.fuller(), 2, y, (0.6, 2.0)),
    ):
        found = switching_derivative(problem, 0, order, at, control)
        np.testing.assert_allclose(found, bend, atol=1e-15)


def test_share_of_a_control_in_the_bend(swing_problem):
    """The first control enters linearly, and no first derivative contains it."""
    y, u = jnp.array([0.3, -0.7, 1.1, 1.0, -2.0, 0.5]), jnp.array([0.4, -0.2])
    share = kelley(swing_problem, 0, y, u)
    _, slope = switching_derivative(swing_problem, 0, 1, y, u)
    np.testing.assert_allclose(share, slope, rtol=1e-13)


@pytest.mark.soak
def test_a_model_that_expands_itself_is_told_the_same(finger_problem):
    problem = finger_problem("A")
    plain = eqx.tree_at(
        lambda p: p.dynamics,
        problem,
        jax.tree_util.Partial(lambda f, x, u: f(x, u), problem.dynamics),
    )
    y, u = jnp.linspace(-1.0, 1.5, 12), jnp.array([0.1, -0.2, 0.3])

    @eqx.filter_jit
    def both(problem):
        return switching_rate(problem, y, u), kelley(problem, 1, y, u)

    for one, other in zip(both(problem), both(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11)


def test_flow_keeps_the_hamiltonian(swing_problem):
    y, u = jnp.array([0.3, -0.7, 1.1, 1.0, -2.0, 0.5]), jnp.array([0.4, -0.2])

    @jax.jit
    def hamiltonian(y):
        return swing_problem.cost_rate(y[:3], u) + y[3:] @ swing(y[:3], u)

    flow = hamiltonian_flow(swing_problem, y, u)
    np.testing.assert_allclose(jax.grad(hamiltonian)(y) @ flow, 0.0, atol=1e-14)


@pytest.mark.parametrize("stages", range(1, 8))
def test_radau_order_conditions(stages):
    c, a = radau(stages)
    assert c[-1] == 1.0
    assert np.all(np.diff(c) > 0.0)
    assert c[0] > 0.0
    weights = a[-1]
    assert np.all(weights > 0.0)
    for k in range(1, 2 * stages):
        np.testing.assert_allclose(weights @ c ** (k - 1), 1.0 / k, rtol=1e-12)
    for k in range(1, stages + 1):
        np.testing.assert_allclose(a @ c ** (k - 1), c**k / k, rtol=1e-11, atol=1e-13)
    # Condition D(s - 1): it and the two above make the order 2 s - 1.
    for k in range(1, stages):
        np.testing.assert_allclose(
            (weights * c ** (k - 1)) @ a, weights / k * (1.0 - c**k), rtol=1e-11, atol=1e-13
        )


def test_radau_nodes_of_hairer_and_wanner():
    """Table IV.5.6: the method of order five."""
    c, a = radau(3)
    r = 6.0**0.5
    np.testing.assert_allclose(c, [(4 - r) / 10, (4 + r) / 10, 1.0], rtol=1e-14)
    np.testing.assert_allclose(a[2], [(16 - r) / 36, (16 + r) / 36, 1 / 9], rtol=1e-13)
    np.testing.assert_allclose(a[0, 0], (88 - 7 * r) / 360, rtol=1e-13)
    np.testing.assert_allclose(a[1, 2], (-2 - 3 * r) / 225, rtol=1e-13)


@pytest.mark.parametrize("stages", [2, 5])
def test_radau_nodes_are_zeros_of_the_defining_polynomial(stages):
    """d^(s-1)/dx^(s-1) of x^(s-1) (x - 1)^s."""
    p = Polynomial([0.0, 1.0]) ** (stages - 1) * Polynomial([-1.0, 1.0]) ** stages
    zeros = np.sort(p.deriv(stages - 1).roots().real)
    np.testing.assert_allclose(radau(stages)[0], zeros, rtol=1e-10)
