"""A bounded rate by both formulations: the same solution, known in closed form or published."""

import numpy as np
import pytest

import jaxgrip as jg
from experiments.gripper import plain_shooting
from experiments.gripper.drive_rate_formulations import classical
from experiments.gripper.optimal_motions import Config, competing_drives
from jaxgrip.models import ocp_problems

SOLVER = jg.ocp.Solver(starts=1)
PUBLISHED = (0.083592, 0.096625, 0.231661, 0.559569, 0.678124, 0.679408, 0.693571, 0.866703)


@pytest.mark.soak
def test_search_by_both_formulations_least_time():
    """x'' = u1 + u2 over the distance one; u2 = 1, falls by 4 a second, -1 (1.42886902 s)."""
    problem = ocp_problems.redundant_actuators_time()
    variable = jg.ocp.solve(problem, solver=SOLVER)
    other = jg.ocp.solve(classical(problem, (1,), np.array([1.0])), solver=SOLVER)
    assert variable.certificate.passed
    assert other.certificate.passed
    for solution in (variable, other):
        np.testing.assert_allclose(solution.final_time, 1.42886902, atol=1e-8)
    np.testing.assert_allclose(other.final_time, variable.final_time, rtol=1e-12)
    np.testing.assert_allclose(other.switching_times, variable.switching_times, rtol=1e-11)
    np.testing.assert_allclose(other.x[:, 2], variable.u[:, 1], atol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize(("rate", "least"), [(4.0, 10.0 / 3.0), (8.0, 3.0)])
@pytest.mark.parametrize("always", [(), (0, 1), pytest.param((1,), marks=pytest.mark.soak)])
def test_imposed_structure_has_the_closed_form(rate, least, always):
    """Two forces over the distance one: the rate is at its bound all along, or nowhere."""
    problem = ocp_problems.redundant_actuators_energy(rate=rate)
    solution = jg.ocp.solve(problem, solver=SOLVER)
    task, w = plain_shooting.from_solution(problem, solution, always)
    found = plain_shooting.newton(task, 1.1 * w + 0.01)
    assert found.residual < 1e-12
    np.testing.assert_allclose(plain_shooting.objective(task, found.w), least, rtol=1e-12)
    moving = rate == 4.0
    assert task.dimension.tolist() == [4 + 2 * len(set(always) | ({1} if moving else set()))]


@pytest.mark.soak
def test_imposed_structure_of_the_finger_has_the_published_times():
    """The variable formulation and the one with every drive a state meet in the same motion."""
    problem = competing_drives(
        Config(experiment="gripper/optimal_motions"), "A", 1.0, bounded_rates=True
    )
    solution = jg.ocp.solve(problem, solver=SOLVER)
    ends = []
    for always, most in (((), 14), ((0, 1, 2, 3), 20)):
        task, w = plain_shooting.from_solution(problem, solution, always, steps=8)
        found = plain_shooting.newton(task, w)
        assert found.residual < 1e-11
        assert task.dimension.max() == most
        times = plain_shooting.unpack(task, found.w).times
        np.testing.assert_allclose(np.asarray(times) / 0.137, PUBLISHED, atol=2e-6)
        ends.append((times, plain_shooting.objective(task, found.w)))
    np.testing.assert_allclose(ends[0][0], ends[1][0], rtol=1e-10)
    np.testing.assert_allclose(ends[0][1], ends[1][1], rtol=1e-10)
