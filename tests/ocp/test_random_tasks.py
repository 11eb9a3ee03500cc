"""Twenty motions between random poses, against an independent code.

`tests/reference/random_tasks.json` holds what CasADi, IPOPT and an arc-by-arc solution of the
minimum principle found; `make_random_tasks.py` beside it says how.
"""

from itertools import groupby, pairwise

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.interpolate import CubicSpline

import jaxgrip as jg

pytestmark = pytest.mark.soak
SCALE = np.repeat([np.pi / 2, 65.0], 3)


def is_certified(solution):
    return solution.result == jg.ocp.RESULTS.successful and solution.certificate.passed


def nearest(task, solution):
    """The known extremal whose final time is nearest, None where none is within 1e-9."""
    final_time = float(solution.final_time)
    best = min(task["extremals"], key=lambda e: abs(e["final_time"] - final_time))
    close = abs(best["final_time"] - final_time) <= 1e-9 * final_time + best["accuracy"]
    return best if close else None


def test_certified(random_tasks):
    assert len(random_tasks) == 20
    failed = [task["index"] for task, solution in random_tasks if not is_certified(solution)]
    assert len(failed) <= 1
    for task, solution in random_tasks:
        if task["index"] in failed:
            assert jg.ocp.RESULTS[solution.result]


def test_final_times(random_tasks):
    for task, solution in random_tasks:
        if not is_certified(solution) or nearest(task, solution):
            continue
        known = task["extremals"][0]["final_time"]
        assert float(solution.final_time) < known, f"task {task['index']}"


def test_switches(random_tasks):
    compared = 0
    for task, solution in random_tasks:
        known = nearest(task, solution)
        if known is None or not is_certified(solution):
            continue
        kinds = np.where(solution.structure.kinds == 2, 0, solution.structure.kinds)
        control = solution.structure.switching_controls
        assert kinds[0].tolist() == known["start_kinds"], f"task {task['index']}"
        assert [j + 1 for j in control] == [s["joint"] for s in known["switches"]]
        after = kinds[np.arange(1, len(kinds)), control]
        assert after.tolist() == [s["to"] for s in known["switches"]]
        tau = np.asarray(solution.switching_times) / float(solution.final_time)
        np.testing.assert_allclose(tau, [s["tau"] for s in known["switches"]], atol=1e-6)
        compared += 1
    assert compared >= 15


def test_costates(random_tasks):
    for task, solution in random_tasks:
        known = nearest(task, solution)
        if known is not None and is_certified(solution):
            scale = np.abs(solution.costate).max(axis=0)
            np.testing.assert_allclose(
                np.asarray(solution.costate)[0] / scale, known["costate"] / scale, atol=1e-6
            )


@pytest.mark.parametrize("index", [3, 8])
def test_singular_arcs_are_found(random_tasks, index):
    task, solution = random_tasks[index]
    u1 = np.asarray(solution.u)[:, 0] / (0.25 if task["finger"] == "A" else 0.20)
    assert [kind for kind, _ in groupby(solution.structure.kinds[:, 0])] == [1, -1, 2, 1]
    assert np.abs(u1).max() <= 1.0 + 1e-12
    assert np.any(np.abs(u1) < 0.9)
    arc = np.flatnonzero(solution.structure.kinds[:, 0] == 2)
    start, end = solution.switching_times[arc[0] - 1], solution.switching_times[arc[-1]]
    inside = (np.asarray(solution.t) > start) & (np.asarray(solution.t) < end)
    s1 = np.asarray(solution.switching_function)[:, 0]
    assert np.abs(s1[inside]).max() <= 1e-8 * np.abs(s1).max()
    # The base angle is cyclic, so its costate is constant.
    costate = np.asarray(solution.costate)[:, 0]
    np.testing.assert_allclose(costate, costate[0], rtol=1e-8)


def test_reported_controls_reach_the_end(random_tasks, closed_form_rate):
    """Each arc anew with the closed form of the model; singular controls by a spline."""
    for task, solution in random_tasks:
        if not is_certified(solution):
            continue
        t, u = np.asarray(solution.t), np.asarray(solution.u)
        edges = [0, *(np.flatnonzero(np.diff(t) == 0.0) + 1), len(t)]
        assert len(edges) == len(solution.switching_times) + 2, f"task {task['index']}"
        assert np.all(np.diff(t) >= 0.0)
        x = np.asarray(solution.x)[0]
        for first, last in pairwise(edges):
            control = CubicSpline(t[first:last], u[first:last])
            # SciPy's products touch scratch memory it has not yet written and may warn of it.
            with np.errstate(over="ignore", invalid="ignore"):
                run = solve_ivp(
                    lambda t, x, control=control: closed_form_rate(x, control(t)),
                    (t[first], t[last - 1]),
                    x,
                    method="DOP853",
                    rtol=1e-10,
                    atol=1e-11,
                )
            x = run.y[:, -1]
        miss = (x - np.concatenate([np.deg2rad(task["end_deg"]), np.zeros(3)])) / SCALE
        is_singular = np.any(solution.structure.kinds == 2)
        assert np.abs(miss).max() < (1e-5 if is_singular else 1e-8), f"task {task['index']}"
