"""The Newton step of the shooting, eliminated by hand, against derivatives of the residuals."""

import equinox as eqx
import jax
import numpy as np
import pytest

from jaxgrip.models import ocp_problems as problems
from jaxgrip.ocp import Solver
from jaxgrip.ocp.indirect import evaluate, residuals
from jaxgrip.ocp.indirect._newton import newton_step
from jaxgrip.ocp.pipeline import Search, run


@eqx.filter_jit
def there_and_back(bvp, arcs, key):
    """A random right-hand side, and the derivative of the residuals along its Newton step."""
    arcs = jax.tree.map(lambda v: v * (1.0 + 1e-3 * jax.random.normal(key, v.shape)), arcs)
    at = evaluate(bvp, arcs)
    rhs = jax.tree.map(lambda v: jax.random.normal(key, v.shape), residuals(bvp, at))
    step = newton_step(bvp, at, rhs)
    _, change = jax.jvp(
        lambda arcs: residuals(bvp, evaluate(bvp, arcs, with_jacobian=False)), (arcs,), (step,)
    )
    return rhs, change


@pytest.mark.long
@pytest.mark.parametrize(
    "make",
    [
        # A touch point with a jump of the costate; an arc on which the control is a state.
        lambda: problems.bryson_denham(0.2),
        pytest.param(problems.redundant_actuators_time, marks=pytest.mark.soak),
    ],
)
def test_newton_step_solves_the_linearised_conditions(make, key):
    extremal = run(Search(make(), Solver(starts=1))).certified.extremal
    rhs, change = there_and_back(extremal.bvp, extremal.shot.arcs, key)
    for wanted, got in zip(jax.tree.leaves(rhs), jax.tree.leaves(change), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-10)
