"""The certificate notices what is wrong, and says which condition fails."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.ocp import Solver
from jaxgrip.ocp.certificate import certify
from jaxgrip.ocp.indirect import evaluate, residuals, stage_times
from jaxgrip.ocp.pipeline import Search, _refinement, run


@pytest.fixture(scope="module")
def extremal_of():
    known = {}

    def find(problem):
        key = id(problem)
        if key not in known:
            known[key] = run(Search(problem, Solver(starts=1))).certified.extremal
        return known[key]

    return find


@eqx.filter_jit
def examine(bvp, arcs):
    at = evaluate(bvp, arcs)
    return at.stages, residuals(bvp, at)


def verdict(problem, extremal, **arcs):
    """Names of the checks that fail, after some of the unknowns are replaced."""
    extremal = extremal.of(problem)
    moved = extremal.shot.arcs._replace(**arcs)
    stages, residual = examine(extremal.bvp, moved)
    norm = max(float(jnp.max(jnp.abs(v), initial=0.0)) for v in residual)
    shot = extremal.shot._replace(arcs=moved, stages=stages, residual=jnp.asarray(norm))
    certificate = certify(extremal._replace(shot=shot))
    failed = {check.name for check in certificate.checks if not check.passed}
    assert certificate.passed == (not failed)
    assert str(certificate).count("FAIL") == len(failed)
    return failed


def scale_costates(extremal, factor):
    arcs, n = extremal.shot.arcs, extremal.shot.arcs.start.shape[1] // 2
    by = jnp.concatenate([jnp.ones(n), jnp.full(n, factor)])
    return {"start": arcs.start * by[None], "stage": arcs.stage * by[None, None, None]}


@pytest.fixture
def problem(brake):
    return brake.problem


@pytest.fixture
def extremal(extremal_of, problem):
    return extremal_of(problem)


@pytest.mark.long
def test_nothing_fails_on_the_solution(problem, extremal):
    assert verdict(problem, extremal) == set()


@pytest.mark.long
def test_every_check_explains_itself(brake):
    for check in brake.solution.certificate.checks:
        assert check.meaning
        assert check.tolerance >= 0.0
        assert check.passed == (check.value <= check.tolerance)


def test_wrong_switching_time(problem, extremal):
    times = np.array(extremal.shot.arcs.times)
    times[extremal.bvp.plan.is_switch.argmax()] += 1e-6
    failed = verdict(problem, extremal, times=jnp.asarray(times))
    assert "end state, re-integrated" in failed
    assert "boundary-value problem" in failed


def test_wrong_costate_at_the_start(problem, extremal):
    start = extremal.shot.arcs.start.at[0, 3].multiply(1.001)
    failed = verdict(problem, extremal, start=start)
    assert "costates, re-integrated" in failed
    assert "end state, re-integrated" not in failed


def test_costates_of_the_wrong_sign(problem, extremal):
    failed = verdict(problem, extremal, **scale_costates(extremal, -1.0))
    assert {"minimum principle on bang arcs", "Hamiltonian"} <= failed
    assert not failed & {"end state, re-integrated", "costates, re-integrated"}


def test_costates_of_the_wrong_size(problem, extremal):
    failed = verdict(problem, extremal, **scale_costates(extremal, 2.0))
    assert failed == {"boundary-value problem", "Hamiltonian"}


def test_controls_beyond_their_bounds(problem, extremal):
    failed = verdict(problem, extremal, stage_v=1.1 * extremal.shot.arcs.stage_v)
    assert "control bounds" in failed


@pytest.mark.parametrize("off", [1e-6, -1e-6])
def test_start_to_either_side_of_its_value(problem, extremal, off):
    start = extremal.shot.arcs.start.at[0, 0].add(off)
    assert "initial state" in verdict(problem, extremal, start=start)


def test_arcs_of_negative_length(problem, extremal):
    times = np.array(extremal.shot.arcs.times)
    times[[2, 3]] = times[[3, 2]]
    failed = verdict(problem, extremal, times=jnp.asarray(times))
    assert "order of the switching times" in failed


@pytest.mark.long
def test_transversality(free_speed, extremal_of):
    problem = free_speed.problem
    extremal = extremal_of(problem)
    shift = jnp.array([0.0, 0.0, 0.0, -1e-3])
    arcs = extremal.shot.arcs
    moved = {"start": arcs.start + shift[None], "stage": arcs.stage + shift[None, None, None]}
    failed = verdict(problem, extremal, **moved)
    assert "transversality" in failed
    assert not failed & {"end state, re-integrated", "costates, re-integrated"}


@pytest.mark.long
def test_stationarity(effort_problem, extremal_of):
    problem = effort_problem((0.0, 0.0), (1.0, 0.0), np.inf)
    extremal = extremal_of(problem)
    assert verdict(problem, extremal) == set()
    failed = verdict(problem, extremal, stage_v=extremal.shot.arcs.stage_v + 1e-3)
    assert "stationarity on interior arcs" in failed


@pytest.mark.long
def test_a_singular_maximum_is_no_minimum(turnpike, extremal_of):
    """The same motion with the cost negated: everything holds but the signs."""
    extremal = extremal_of(turnpike.problem)
    negated = eqx.tree_at(
        lambda p: p.running_cost, turnpike.problem, jax.tree_util.Partial(lambda x, u: -(x[0] ** 2))
    )
    failed = verdict(negated, extremal, **scale_costates(extremal, -1.0))
    assert failed == {"minimum principle on bang arcs", "Legendre-Clebsch"}


def test_uncertified_solutions_raise_with_the_failed_checks(monkeypatch, problem):
    """A certificate that fails becomes the result, and the sentence names the check."""
    check = jg.ocp.Check("something", 1.0, 0.1, "meaning")
    monkeypatch.setattr(_refinement, "certify", lambda *_: jg.ocp.Certificate((check,)))
    sol = jg.ocp.solve(problem, solver=Solver(starts=1), throw=False)
    assert sol.result == jg.ocp.RESULTS.not_certified
    with pytest.raises(jg.ocp.SolveError, match=r"\(failed: something\), after 5 of") as caught:
        jg.ocp.solve(problem, solver=Solver(starts=1))
    assert str(caught.value).count(".") == 1
    assert caught.value.solution.certificate.checks == (check,)


@pytest.mark.long
def test_constraint_that_would_have_to_pull(extremal_of):
    """On an arc of order two the multiplier is convex: its curvature is what the wall presses.

    Breakwell's falls there in a straight line. A bulge upwards of the same ends falls all the way
    too, but means a wall that pulls.
    """
    extremal = extremal_of(jg.models.ocp_problems.bryson_denham(1 / 9))
    problem = jg.models.ocp_problems.bryson_denham(1 / 9)
    arcs, active = extremal.shot.arcs, np.asarray(extremal.bvp.plan.active)[:, 0]
    v = np.array(arcs.stage_v)
    first, last = np.flatnonzero(active)[[0, -1]]
    edges = np.concatenate([[0.0], np.asarray(arcs.times)])
    t = stage_times(np.asarray(arcs.times), *v.shape[1:3])
    share = (t - edges[first]) / (edges[last + 1] - edges[first])
    bulge = 0.1 * np.max(v[..., 1]) * share * (1.0 - share)
    v[..., 1] += np.where(active[:, None, None], bulge, 0.0)
    assert np.all(np.diff(v[active][..., 1].ravel()) < 0.0)
    assert "pressure of the constraints" not in verdict(problem, extremal)
    assert "pressure of the constraints" in verdict(problem, extremal, stage_v=jnp.asarray(v))
