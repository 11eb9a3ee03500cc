"""The stiff method of diffrax with the dense systems of the library: derivatives and batches."""

from functools import partial

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax
import numpy as np
import pytest

from jaxgrip.solve.integration import integrate
from jaxgrip.solve.stiff import LU, Kvaerno5

STIFFNESS, GAIN = jnp.array(30.0), jnp.array(1.3)


def end(solver, stiffness, gain, adjoint=None):
    """Van der Pol's oscillator at two times; the rate closes over the gain, args have the rest."""

    def rate(t, y, stiffness):
        a, b = y["place"], y["speed"]
        return {"place": gain * b, "speed": stiffness * (1 - a**2) * b - a + jnp.sin(3 * t)}

    found = integrate(
        rate,
        solver,
        jnp.array([0.0, 1.1, 3.0]),
        {"place": jnp.array(2.0), "speed": jnp.array(0.1)},
        stiffness,
        rtol=1e-8,
        atol=1e-10,
        max_steps=1000,
        jumps=jnp.array([0.7]),
        adjoint=adjoint,
    )
    return found.ys["place"][1:]


@pytest.mark.long
@pytest.mark.parametrize(
    "mode", ["forward", "reverse", pytest.param("second", marks=pytest.mark.soak)]
)
def test_derivatives_are_those_of_diffrax(mode):
    adjoint = None if mode == "reverse" else diffrax.ForwardMode()

    def along(f):
        return lambda *x: jax.jvp(f, x, (jnp.array(10.0), jnp.array(1.0)))[1]

    @eqx.filter_jit
    def slopes(solver):
        def f(stiffness, gain):
            return end(solver, stiffness, gain, adjoint)[1]

        slope = {"forward": along, "second": lambda f: along(along(f))}
        return slope.get(mode, partial(jax.grad, argnums=(0, 1)))(f)(STIFFNESS, GAIN)

    np.testing.assert_allclose(slopes(Kvaerno5()), slopes(diffrax.Kvaerno5()), rtol=1e-7)


@pytest.mark.soak
def test_gradients_in_batches():
    """No batched call of LAPACK is made, which the tests refuse; members against differences."""
    values = jnp.array([1.0, 10.0, 40.0])
    slope = jax.jit(jax.vmap(jax.grad(lambda x: end(Kvaerno5(), x, GAIN)[1])))
    place = jax.jit(jax.vmap(lambda x: end(Kvaerno5(), x, GAIN)[1]))
    h = 1e-4 * values
    np.testing.assert_allclose(
        slope(values), (place(values + h) - place(values - h)) / (2 * h), rtol=1e-5
    )


def test_the_solver_of_lineax_solves_transposed_systems_too():
    """Reverse derivatives need them; against NumPy, for a matrix that is not symmetric."""
    a = jnp.array([[1.0, 4.0, -2.0], [0.5, -1.0, 3.0], [2.0, 0.0, 1.0]])
    b, weight = jnp.array([1.0, -2.0, 0.5]), jnp.array([0.3, 1.0, -0.7])

    def solution(b):
        return lineax.linear_solve(lineax.MatrixLinearOperator(a), b, solver=LU()).value

    x, back = jax.vjp(solution, b)
    np.testing.assert_allclose(x, np.linalg.solve(a, b), rtol=1e-13)
    np.testing.assert_allclose(back(weight)[0], np.linalg.solve(a.T, weight), rtol=1e-13)
