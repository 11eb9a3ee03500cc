"""Many problems at once agree with each on its own."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.ocp import RESULTS


@eqx.filter_vmap
def brakes(start, strength):
    """Double integrator from rest at `start` to the origin."""
    return jg.ocp.Problem(
        lambda x, u: jnp.stack([x[1], u[0]]),
        initial_state=jnp.stack([start, jnp.zeros(())]),
        final_state=np.zeros(2),
        final_time=jg.ocp.Free(1.0, upper=4.0),
        control_bounds=(-strength[None], strength[None]),
    )


@pytest.mark.long
def test_closed_form():
    """t_F = 2 sqrt(|start| / strength), more than a chunk of them, either side of the origin."""
    start = np.linspace(-1.0, -2.0, 20)
    start[7] = 1.5
    strength = np.linspace(1.0, 3.0, 20)
    solutions = jg.ocp.solve_batch(brakes(start, strength), solver=jg.ocp.Solver(starts=1))
    assert all(s.result == RESULTS.successful for s in solutions)
    assert all(s.certificate.passed for s in solutions)
    times = [float(s.final_time) for s in solutions]
    np.testing.assert_allclose(times, 2.0 * np.sqrt(np.abs(start) / strength), rtol=1e-12)
    # The one that starts on the other side switches the other way, so it leads itself.
    assert solutions[7].structure.kinds[:, 0].tolist() == [-1, 1]
    assert solutions[7].stats["alike"] == 7
    assert all(s.structure.kinds[:, 0].tolist() == [1, -1] for s in solutions[:7] + solutions[8:])


@pytest.mark.long
def test_what_cannot_be_solved_is_flagged_alone():
    solutions = jg.ocp.solve_batch(
        brakes(np.array([-1.0, -100.0, -1.2]), np.ones(3)), solver=jg.ocp.Solver(starts=1)
    )
    assert [s.result == RESULTS.successful for s in solutions] == [True, False, True]
    assert RESULTS[solutions[1].result]
    np.testing.assert_allclose(solutions[2].final_time, 2.0 * 1.2**0.5, rtol=1e-12)


@pytest.mark.soak
def test_finger_with_other_numbers(fingers):
    """End poses, torque limits and payloads around the published ones."""
    rng = np.random.default_rng(3)
    finger = jg.models.gripper_finger("A")
    size = 4
    ends = np.asarray(finger.end) + np.deg2rad(2.0) * rng.normal(size=(size, 3))
    limits = np.asarray(finger.torque_limit) * rng.uniform(0.95, 1.05, size=(size, 3))
    masses = np.array([0.08, 0.16, 0.20]) * rng.uniform(1.0, 1.1, size=(size, 1))
    ends[0], limits[0], masses[0] = finger.end, finger.torque_limit, (0.08, 0.16, 0.20)

    def motion(end, limit, mass):
        own = jg.models.gripper_finger("A", masses=mass, torque_limit=limit)
        return jg.ocp.Problem(
            jg.rigid.StateSpace(own.tree),
            initial_state=jnp.concatenate([finger.start, jnp.zeros(3)]),
            final_state=jnp.concatenate([end, jnp.zeros(3)]),
            final_time=jg.ocp.Free(0.13),
            control_bounds=(-own.torque_limit, own.torque_limit),
        )

    solver = jg.ocp.Solver(starts=1)
    arguments = [jnp.asarray(each) for each in (ends, limits, masses)]
    solutions = jg.ocp.solve_batch(eqx.filter_vmap(motion)(*arguments), solver=solver)
    assert all(s.certificate.passed for s in solutions)
    np.testing.assert_allclose(
        solutions[0].final_time, fingers["A"].solution.final_time, rtol=1e-12
    )
    for index, solution in enumerate(solutions):
        alone = jg.ocp.solve(motion(*(each[index] for each in arguments)), solver=solver)
        np.testing.assert_array_equal(solution.structure.kinds, alone.structure.kinds)
        for one, other in (
            (solution.final_time, alone.final_time),
            (solution.switching_times, alone.switching_times),
            (solution.costate[0], alone.costate[0]),
        ):
            np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-10 * np.max(np.abs(other)))


def test_numbers_without_a_common_axis_are_refused():
    problem = jg.ocp.Problem(
        lambda x, u: jnp.stack([x[1], u[0]]),
        initial_state=(-1.0, 0.0),
        final_state=(0.0, 0.0),
        final_time=jg.ocp.Free(1.0),
        control_bounds=([-1.0], [1.0]),
    )
    with pytest.raises(ValueError, match="one leading axis of the same length"):
        jg.ocp.solve_batch(problem)


def test_the_problem_that_contradicts_itself_is_named():
    problems = eqx.filter_vmap(
        lambda guess: jg.ocp.Problem(
            lambda x, u: jnp.stack([x[1], u[0]]),
            initial_state=(-1.0, 0.0),
            final_state=(0.0, 0.0),
            final_time=jg.ocp.Free(guess, upper=3.0),
            control_bounds=([-1.0], [1.0]),
        )
    )(jnp.array([1.0, 4.0]))
    with pytest.raises(ValueError, match=r"Problem 1: final_time: the guess 4\.0"):
        jg.ocp.solve_batch(problems)
