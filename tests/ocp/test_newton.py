"""The Newton step of the shooting, eliminated by hand, against derivatives of the residuals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip.models import ocp_problems as problems
from jaxgrip.ocp import Free, Problem, Solver
from jaxgrip.ocp.hamiltonian import arrange
from jaxgrip.ocp.indirect import Arcs, evaluate, pose, residuals
from jaxgrip.ocp.indirect._newton import newton_step
from jaxgrip.ocp.pipeline import Search, run
from jaxgrip.ocp.structure import Kind, Plan, Rule, Sizes


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


def test_jacobian_of_the_conditions_on_rate_arcs(key):
    """Of a control that rises at its greatest rate and then is free, at random values."""
    problem = Problem(
        lambda x, u: jnp.stack([x[1], u[0] - jnp.sin(x[0])]),
        running_cost=lambda x, u: x[0] * u[0] ** 2 + x[1] ** 4,
        initial_state=(1.0, 0.0),
        final_state=(0.5, 0.0),
        final_time=Free(1.0),
        control_bounds=([-9.0], [9.0]),
        rate_bounds=([-7.0], [5.0]),
    )
    none = np.zeros(0, dtype=int)
    plan = Plan(
        kinds=np.array([[Kind.RISING], [Kind.INTERIOR]]),
        active=np.zeros((2, 0), dtype=bool),
        rule=np.array([Rule.RATE, Rule.RATE]),
        control=np.zeros(2, dtype=int),
        constraint=np.zeros(2, dtype=int),
        at=np.zeros(2, dtype=int),
        jumps=np.zeros(1, dtype=int),
        jump_constraint=np.zeros(1, dtype=int),
        ends=np.zeros(3, dtype=int),
        constraints=arrange([])[0],
        limited=(0,),
        has_singular=False,
    )
    one, two = np.ones(1), np.ones(2)
    bvp = pose(problem, plan, Sizes(two, two, one, one, one[0], one, one[0], none, none))
    ny, nv, stages = 6, 1, 2
    keys = jax.random.split(key, 5)
    arcs = Arcs(
        start=jax.random.normal(keys[0], (2, ny)),
        stage=jax.random.normal(keys[1], (2, 1, stages, ny)),
        stage_v=jax.random.normal(keys[2], (2, 1, stages, nv)),
        jump=jnp.zeros((1, 0)),
        times=jnp.array([0.4, 1.0]),
        boundary_multiplier=jnp.zeros(0),
    )
    change = arcs._replace(
        stage=jax.random.normal(keys[3], arcs.stage.shape),
        stage_v=jax.random.normal(keys[4], arcs.stage_v.shape),
    )

    @eqx.filter_jit
    def both(bvp, arcs, change):
        def conditions(size):
            moved = arcs._replace(
                stage=arcs.stage + size * change.stage, stage_v=arcs.stage_v + size * change.stage_v
            )
            return evaluate(bvp, moved, with_jacobian=False).stages.value

        along = jnp.concatenate([change.stage, change.stage_v], axis=-1)
        jacobian = evaluate(bvp, arcs).jacobian
        found = jax.tree.map(lambda j: jnp.einsum("aks...w,aksw->aks...", j, along), jacobian)
        return found, jax.jvp(conditions, (0.0,), (1.0,))[1]

    found, expected = both(bvp, arcs, change)
    for name, got, wanted in zip(found._fields, found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-12, err_msg=name)
