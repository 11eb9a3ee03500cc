"""The published minimum-time motions of the gripper (Schanzer 2007, appendix A)."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxgrip as jg

FINAL_TIME = {"A": 0.11997468651, "B": 0.12115805331}
SWITCHES = {
    "A": ((0.263066, 2), (0.5, 0), (0.604977, 1), (0.710252, 2), (0.892862, 1), (0.893764, 2)),
    "B": ((0.246744, 2), (0.5, 0), (0.604096, 1), (0.675352, 2), (0.852576, 2), (0.878599, 1)),
}
LARGEST_RATE = 65.0


@pytest.fixture(params=["A", "B"])
def name(request):
    return request.param


@pytest.fixture
def problem(fingers, name):
    return fingers[name].problem


@pytest.fixture
def solution(fingers, name):
    return fingers[name].solution


def integrate_reported(rate, solution):
    """End state under the reported controls, which are constant from switch to switch."""
    t, u = np.asarray(solution.t), np.asarray(solution.u)
    edges = np.array([0.0, *np.asarray(solution.switching_times), float(solution.final_time)])
    x = np.asarray(solution.x)[0]
    for start, end in pairwise(edges):
        inside = u[(t > start) & (t < end)]
        assert len(inside)
        np.testing.assert_allclose(inside, np.broadcast_to(inside[0], inside.shape), rtol=1e-12)
        # SciPy's products touch scratch memory it has not yet written and may warn of it.
        with np.errstate(over="ignore", invalid="ignore"):
            run = solve_ivp(
                lambda t, x, u=inside[0]: rate(x, u),
                (start, end),
                x,
                method="DOP853",
                rtol=1e-12,
                atol=1e-13,
            )
        assert run.success
        x = run.y[:, -1]
    return x


def test_certified(solution):
    assert solution.result == jg.ocp.RESULTS.successful
    assert solution.certificate.passed, str(solution.certificate)
    assert len({check.name for check in solution.certificate.checks}) >= 10


def test_final_time(solution, name):
    assert abs(float(solution.final_time) - FINAL_TIME[name]) <= 2e-11
    assert abs(float(solution.objective) - FINAL_TIME[name]) <= 2e-11


def test_switches(solution, name):
    tau = np.asarray(solution.switching_times) / float(solution.final_time)
    published, control = zip(*SWITCHES[name], strict=True)
    np.testing.assert_allclose(tau, published, rtol=0, atol=1e-6)
    assert solution.structure.switching_controls.tolist() == list(control)


def test_base_joint_switches_halfway(solution):
    """Only u1 changes the angular momentum about the vertical axis."""
    control = solution.structure.switching_controls.tolist()
    tau = float(solution.switching_times[control.index(0)]) / float(solution.final_time)
    assert abs(tau - 0.5) <= 1e-9


def test_controls_sit_on_their_bounds(solution, problem):
    kinds = np.asarray(solution.structure.kinds)
    assert kinds[0].tolist() == [1, -1, -1]
    flips = np.abs(np.diff(kinds, axis=0))
    assert np.all(flips.sum(axis=1) == 2)
    assert np.argmax(flips, axis=1).tolist() == solution.structure.switching_controls.tolist()
    share = np.asarray(solution.u) / np.asarray(problem.upper)
    np.testing.assert_allclose(np.abs(share), 1.0, rtol=1e-12)
    np.testing.assert_allclose(share[0], kinds[0], rtol=1e-12)
    np.testing.assert_allclose(share[-1], kinds[-1], rtol=1e-12)


def test_switching_times_stand_twice(solution):
    t = np.asarray(solution.t)
    twice = t[:-1][np.diff(t) == 0.0]
    np.testing.assert_array_equal(twice, np.asarray(solution.switching_times))
    for values in (solution.x, solution.costate):
        jumps = np.abs(np.diff(np.asarray(values), axis=0))[np.diff(t) == 0.0]
        assert np.all(jumps <= 1e-11 * np.abs(np.asarray(values)).max(axis=0))


def test_independent_model_reaches_the_end(solution, problem, closed_form_rate):
    end = integrate_reported(closed_form_rate, solution)
    scale = np.repeat([np.pi / 2, LARGEST_RATE], 3)
    np.testing.assert_allclose((end - np.asarray(problem.final_state)) / scale, 0.0, atol=1e-8)


def test_hamiltonian_vanishes(solution, closed_form_rate):
    """Reported, and again from the independent model."""
    f = np.array(
        [
            closed_form_rate(x, u)
            for x, u in zip(np.asarray(solution.x), np.asarray(solution.u), strict=True)
        ]
    )
    terms = np.asarray(solution.costate) * f
    largest = np.abs(terms).max()
    assert np.abs(np.asarray(solution.hamiltonian)).max() <= 1e-10 * largest
    assert np.abs(1.0 + terms.sum(axis=1)).max() <= 1e-10 * largest


def test_switching_functions(solution):
    """Zero at their switches, positive on the lower bound, negative on the upper."""
    s = np.asarray(solution.switching_function)
    s = s / np.abs(s).max(axis=0)
    t = np.asarray(solution.t)
    for time, control in zip(
        np.asarray(solution.switching_times), solution.structure.switching_controls, strict=True
    ):
        assert np.all(np.abs(s[t == time, control]) < 1e-10)
    sign = np.sign(np.asarray(solution.u))
    at_switch = np.isin(t, np.asarray(solution.switching_times))
    assert np.all((sign * s)[~at_switch] < 0.0)
    assert np.all((sign * s)[at_switch] < 1e-10)


def test_other_numbers_do_not_compile_again(fingers, finger_problem, compiled):
    assert compiled(lambda: jax.jit(lambda x: x + 1.25)(jnp.ones(3)))
    jg.ocp.solve(fingers["A"].problem)
    others = [
        finger_problem("A", start=(0.1, -0.5, -0.4), end=(1.2, -1.0, -1.1)),
        finger_problem("B", torque_limit=(0.3, 0.4, 0.5), masses=(0.1, 0.2, 0.15), guess=0.2),
        finger_problem("A", link_lengths=(0.02, 0.055, 0.072), gravity=(0.0, 0.0, -9.0)),
    ]
    solutions = []
    messages = compiled(lambda: solutions.extend(jg.ocp.solve(p, throw=False) for p in others))
    for solution in solutions:
        assert solution.result == jg.ocp.RESULTS.successful
    programs = ("solve_transcription", "solve_shooting", "_scaled_flow", "hamiltonian")
    assert not [m for m in messages if any(name in m for name in programs)]


@pytest.mark.soak
def test_arcs_are_halved_where_the_accuracy_asks_for_it(finger_problem):
    """On the moon and with other links the default arcs leave the Hamiltonian at 1.6e-10."""
    problem = finger_problem("A", link_lengths=(0.03, 0.05, 0.06), gravity=(0.0, 0.0, -1.62))
    coarse = jg.ocp.solve(problem, solver=jg.ocp.Solver(max_arcs=12), throw=False)
    assert coarse.result == jg.ocp.RESULTS.not_certified
    assert coarse.certificate.failed == ("Hamiltonian",)
    fine = jg.ocp.solve(problem)
    assert fine.certificate.passed
    np.testing.assert_allclose(fine.final_time, coarse.final_time, rtol=1e-10)
    assert len(fine.t) > len(coarse.t)


def test_switches_that_overtake_each_other(finger_problem):
    """Two joints switch 0.1 ms apart; the transcription shows them the other way round."""
    problem = finger_problem(
        "A",
        end=(1.392636, -1.101252, -1.059306),
        torque_limit=(0.237738, 0.524393, 0.407216),
        masses=(0.08, 0.16, 0.202181),
    )
    solution = jg.ocp.solve(problem, solver=jg.ocp.Solver(starts=1))
    assert "switches overtake each other" in solution.stats["history"]
    assert solution.stats["transcriptions"] == 1
    assert np.min(np.diff(solution.switching_times)) < 2e-3 * solution.final_time
