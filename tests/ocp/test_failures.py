"""Bad statements get a sentence, failed solves a result that says what to try."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import jaxgrip as jg
from jaxgrip.ocp import RESULTS, Free

WIDE = -2.0 * np.ones(1), 2.0 * np.ones(1)


def drift(x, u):
    return jnp.stack([x[1], u[0]])


def state(**changes):
    given = {
        "initial_state": (0.0, 0.0),
        "final_state": (1.0, 0.0),
        "final_time": Free(1.0),
        "control_bounds": (-np.ones(1), np.ones(1)),
    }
    return jg.ocp.Problem(**{"dynamics": drift, **given, **changes})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"final_state": (1.0,)}, "final_state has 1 entries, initial_state has 2"),
        ({"initial_state": (0.0, Free(2.0, upper=1.0))}, r"initial_state\[1\]: the guess 2.0"),
        ({"final_state": (0.0, Free(2.0, upper=3.0))}, "belong into state_bounds"),
        ({"design_variables": Free(1.0)}, "design_variables must be a Free with a vector"),
        (
            {"design_variables": Free([0.0], [0.0]), "dynamics": lambda x, u, p: drift(x, u)},
            r"design_variables\[0\]: the guess 0.0 must lie between",
        ),
        ({"boundary_conditions": lambda a, t, b: t}, "boundary_conditions must return a vector"),
        ({"initial_state": (0.0, np.nan)}, r"initial_state\[1\] is nan"),
        ({"final_state": (np.inf, 0.0)}, r"final_state\[0\] is inf"),
        ({"initial_state": np.zeros((2, 1))}, "initial_state must be a vector"),
        ({"initial_state": (0.0, 0.0, 0.0), "final_state": np.ones(3)}, "dynamics must return"),
        ({"control_bounds": (np.ones(1), -np.ones(1))}, "of control 0: lower bound 1.0"),
        ({"control_bounds": (np.ones(1), np.ones(1))}, "of control 0"),
        ({"control_bounds": (np.full(1, np.nan), np.ones(1))}, "of control 0"),
        ({"control_bounds": (np.ones(1), np.ones(2))}, "two vectors of one length"),
        ({"control_bounds": (-1.0, 1.0)}, "two vectors of one length"),
        ({"running_cost": lambda x, u: u**2}, "running_cost must return a scalar"),
        ({"terminal_cost": lambda t, x: x}, "terminal_cost must return a scalar"),
        ({"final_time": 1.0}, "Minimum time needs final_time=Free"),
        ({"final_time": Free(1.0, upper=0.5)}, "guess 1.0 must lie between"),
        ({"final_time": Free(1.0, lower=2.0)}, "guess 1.0 must lie between"),
        ({"final_time": Free(1.0, lower=3.0, upper=2.0)}, "0 <= lower < upper"),
        ({"final_time": Free(-1.0, lower=-2.0)}, "0 <= lower < upper"),
        ({"final_time": Free(np.nan)}, "guess nan"),
        ({"final_time": -1.0, "running_cost": lambda x, u: u[0] ** 2}, "positive number, not -1"),
        ({"final_time": np.nan, "running_cost": lambda x, u: u[0] ** 2}, "positive number"),
    ],
)
def test_contradictions(changes, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        state(**changes)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message


def test_numbers_replaced_later_are_checked_too():
    bad = eqx.tree_at(lambda p: p.initial_state, state(), jnp.array([jnp.nan, 0.0]))
    with pytest.raises(ValueError, match=r"initial_state\[0\] is nan"):
        jg.ocp.solve(bad)


@pytest.mark.parametrize(
    ("structure", "sentence"),
    [
        ([[(1, 1.0)], [(1, 1.0)]], "structure has 2 lists of segments"),
        ([[(1, 0.5), (-1, 0.4)]], "must increase from above 0 to 1"),
        ([[(1, 0.5)]], "must increase from above 0 to 1"),
        ([[(7, 1.0)]], "there is no kind 7"),
        ([[(4, 1.0)]], "its rate is at a bound, but rate_bounds has none"),
    ],
)
def test_malformed_structures(structure, sentence):
    with pytest.raises(ValueError, match=sentence):
        jg.ocp.solve(state(), structure=structure)


@pytest.mark.long
def test_imposed_structure_that_is_wrong(time_problem):
    """Braking first and pushing afterwards meets the end, but maximises the time."""
    sol = jg.ocp.solve(
        time_problem((-1.0, 0.0), (0.0, 0.0)), structure=[[(1, 0.3), (-1, 1.0)]], throw=False
    )
    assert sol.certificate.passed
    wrong = jg.ocp.solve(
        time_problem((0.0, 1.0), (0.0, 0.0)), structure=[[(1, 0.5), (-1, 1.0)]], throw=False
    )
    assert wrong.result != RESULTS.successful


@pytest.mark.parametrize("change", [{"arcs": 0}, {"starts": 0}, {"max_rounds": -1}])
def test_solvers_without_sense(change):
    with pytest.raises(ValueError, match=f"{next(iter(change))} of a Solver must be a positive"):
        jg.ocp.Solver(**change)


def test_second_derivatives_are_refused(time_problem):
    def final_time(bound):
        problem = time_problem((-1.0, 0.0), (0.0, 0.0))
        problem = eqx.tree_at(lambda p: (p.lower, p.upper), problem, (-bound[None], bound[None]))
        return jg.ocp.solve(problem, solver=jg.ocp.Solver(starts=1)).final_time

    with pytest.raises(TypeError, match="differentiates once"):
        jax.jacfwd(jax.jacfwd(final_time))(jnp.asarray(1.0))


@pytest.mark.long
def test_control_that_does_nothing_is_not_certified():
    problem = jg.ocp.Problem(
        drift,
        initial_state=(0.0, 0.0),
        final_state=(1.0, 0.0),
        final_time=Free(1.0),
        control_bounds=(-np.ones(2), np.ones(2)),
    )
    sol = jg.ocp.solve(problem, throw=False)
    assert sol.result != RESULTS.successful


def test_single_precision_is_refused():
    program = """
import numpy as np
import jaxgrip as jg
try:
    jg.ocp.Problem(lambda x, u: u, initial_state=(0.0,), final_state=(1.0,),
                   final_time=jg.ocp.Free(1.0), control_bounds=(-np.ones(1), np.ones(1)))
except RuntimeError as error:
    print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert "Optimal control needs 64-bit" in run.stdout
    assert "enable_x64()" in run.stdout
    assert run.stdout.count("\n") == 1


def assert_fails(problem, results):
    solution = jg.ocp.solve(problem, throw=False)
    assert solution.result in results
    sentence = RESULTS[solution.result]
    assert sentence.endswith(".")
    assert ":" in sentence
    assert solution.certificate is None
    assert solution.t.shape[0] == solution.x.shape[0] == solution.u.shape[0]
    return solution


@pytest.mark.long
@pytest.mark.parametrize(
    "change",
    [
        "too_short",
        *(pytest.param(x, marks=pytest.mark.soak) for x in ("too_weak", "not_a_number")),
    ],
)
def test_motions_that_do_not_exist(finger_problem, fingers, change):
    if change == "too_weak":
        # Against 0.31 N m of gravity in joint 2 with the links stretched out.
        problem = finger_problem(
            "A", start=(0.0, -1.5, 0.0), end=(0.0, 0.0, 0.0), torque_limit=(0.25, 0.02, 0.02)
        )
    elif change == "too_short":
        problem = finger_problem("A", guess=0.05, upper=0.1)
    else:
        problem = eqx.tree_at(
            lambda p: p.dynamics.tree.gravity, fingers["A"].problem, jnp.full(3, jnp.nan)
        )
    solution = assert_fails(
        problem, (RESULTS.unreachable, RESULTS.transcription_failed, RESULTS.not_finite)
    )
    assert solution.stats["transcriptions"] >= 1


def test_failure_raises_its_sentence(time_problem):
    """The double integrator needs two seconds for this distance."""
    problem = time_problem((0.0, 0.0), (1.0, 0.0), guess=1.0, upper=1.9)
    solution = assert_fails(problem, (RESULTS.unreachable,))
    with pytest.raises(jg.ocp.SolveError) as caught:
        jg.ocp.solve(problem)
    assert isinstance(caught.value, RuntimeError)
    assert str(caught.value).startswith(RESULTS[solution.result][:-1])
    assert "state 0 ends at" in str(caught.value) or "does not follow" in str(caught.value)
    assert caught.value.solution.result == solution.result


@pytest.mark.long
def test_control_that_the_optimum_leaves_open():
    """The second axis has time to spare, so its control is not unique."""
    problem = jg.ocp.Problem(
        lambda x, u: jnp.concatenate([x[2:], u]),
        initial_state=np.zeros(4),
        final_state=(1.0, 0.5, 0.0, 0.0),
        final_time=Free(1.0),
        control_bounds=(-np.ones(2), np.ones(2)),
    )
    assert_fails(problem, (RESULTS.undetermined,))


@pytest.mark.long
def test_design_variable_that_changes_nothing():
    problem = state(dynamics=lambda x, u, p: drift(x, u), design_variables=Free([1.0]))
    assert_fails(problem, (RESULTS.undetermined,))


@pytest.mark.long
@pytest.mark.parametrize(
    "resistance",
    [
        lambda x: 0.3 * jnp.abs(x[1] - 0.5),
        pytest.param(lambda x: jnp.where(x[1] > 0.5, 0.1, 0.0), marks=pytest.mark.soak),
    ],
)
def test_kink_on_the_way(resistance):
    """The motion passes the speed one half on the way up at about half a second."""
    problem = state(
        dynamics=lambda x, u: jnp.stack([x[1], u[0] - resistance(x)]), final_time=Free(2.0)
    )
    with pytest.raises(jg.ocp.SolveError, match=r"a kink or a jump .* \(at 0\.5\d* s\)") as caught:
        jg.ocp.solve(problem, solver=jg.ocp.Solver(starts=1))
    assert caught.value.solution.result == RESULTS.not_smooth


@pytest.mark.soak
def test_friction_that_switches_at_rest_only_is_no_kink():
    """Speeding up by 1 - f and braking by 1 + f over the distance one takes 2 / sqrt(1 - f^2)."""
    solution = jg.ocp.solve(
        state(dynamics=lambda x, u: jnp.stack([x[1], u[0] - 0.3 * jnp.sign(x[1])]))
    )
    np.testing.assert_allclose(solution.final_time, 2.0 / np.sqrt(1.0 - 0.3**2), rtol=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("segments", [[(1, 0.3), (-1, 0.6), (1, 1.0)], [(-1, 0.5), (1, 1.0)]])
def test_structure_that_no_motion_has(segments):
    with pytest.raises(jg.ocp.SolveError, match="imposed structure"):
        jg.ocp.solve(state(final_time=Free(2.0)), structure=[segments])


@pytest.mark.parametrize("end", [1.0, 2.0])
def test_boundary_condition_that_repeats_or_contradicts(end):
    problem = state(boundary_conditions=lambda a, t, b: b[:1] - end)
    with pytest.raises(ValueError, match=r"boundary_conditions\[0\] follows from"):
        jg.ocp.solve(problem)


@pytest.mark.long
def test_boundary_condition_out_of_reach():
    problem = jg.ocp.Problem(
        lambda x, u: u,
        running_cost=lambda x, u: u @ u,
        initial_state=[0.0],
        final_state=[None],
        boundary_conditions=lambda a, t, b: b - 5.0,
        final_time=1.0,
        control_bounds=([-1.0], [1.0]),
    )
    with pytest.raises(jg.ocp.SolveError, match="boundary condition 0 is missed by"):
        jg.ocp.solve(problem)


def test_final_time_is_one_number():
    with pytest.raises(ValueError, match=r"single number, not of shape \(1,\)"):
        state(final_time=Free([1.0]))


def test_problems_can_be_stated_under_a_transformation():
    def end(place):
        return state(final_state=jnp.stack([place, 0.0])).final_state

    assert eqx.filter_eval_shape(end, jnp.ones(())).shape == (2,)


@pytest.mark.long
def test_imposed_structure_that_breaks_a_bound(effort_problem):
    """Distance one in one second takes u = 6 - 12 t inside: an extremal, whose certificate says
    what is wrong with it.
    """
    solution = jg.ocp.solve(
        effort_problem((0.0, 0.0), (1.0, 0.0), 5.0), structure=[[(0, 1.0)]], throw=False
    )
    assert solution.origin == "extremal"
    assert solution.result == RESULTS.not_certified
    np.testing.assert_allclose(solution.u[:, 0], 6.0 - 12.0 * solution.t, atol=1e-9)
    assert not solution.certificate.is_within_bounds
    assert "control bounds" in solution.stats["detail"]


@pytest.mark.long
def test_imposed_structure_that_breaks_a_condition():
    problem = jg.models.ocp_problems.nonsmooth_turnpike()
    solution = jg.ocp.solve(problem, structure=[[(1, 0.5), (-1, 1.0)]], throw=False)
    assert solution.result != RESULTS.successful
    solution = jg.ocp.solve(problem, structure=[[(2, 1.0)]], throw=False)
    assert solution.result != RESULTS.successful


@pytest.mark.long
def test_constraint_that_the_start_violates():
    problem = state(path_constraints=lambda x, u: 0.1 - x[:1])
    with pytest.raises(jg.ocp.SolveError, match=r"path constraint 0 is exceeded by 0\.09"):
        jg.ocp.solve(problem)


@pytest.mark.long
def test_constraint_without_an_order():
    """Nothing slows down a clock that must not reach 1.5 before the motion ends at 2."""
    problem = state(
        dynamics=lambda x, u: jnp.stack([x[1], u[0], 1.0]),
        initial_state=(0.0, 0.0, 0.0),
        final_state=(1.0, 0.0, None),
        state_bounds=([None] * 3, [None, None, 1.5]),
    )
    with pytest.raises(jg.ocp.SolveError, match="upper bound of state 2: no control is in its"):
        jg.ocp.solve(problem)


@pytest.mark.long
@pytest.mark.parametrize(
    "bounds", [([0.0, None], None), pytest.param(([0.0, 0.0], [1.0, None]), marks=pytest.mark.soak)]
)
def test_constraint_that_is_active_at_the_start_and_leaves(bounds):
    lower, upper = bounds
    solution = jg.ocp.solve(
        state(final_time=Free(2.0), state_bounds=(lower, upper or [None, None]))
    )
    np.testing.assert_allclose(solution.final_time, 2.0, rtol=1e-11)
    np.testing.assert_array_equal(solution.multiplier, 0.0)


def oscillator(stiffening, end_time=5.0):
    """Van der Pol's oscillator, calmed with the least effort."""
    return jg.ocp.Problem(
        lambda x, u: jnp.stack([x[1], stiffening * (1.0 - x[0] ** 2) * x[1] - x[0] + u[0]]),
        running_cost=lambda x, u: x @ x + u @ u,
        initial_state=(0.0, 1.0),
        final_state=(None, None),
        final_time=end_time,
        control_bounds=(-np.ones(1), np.ones(1)),
    )


@pytest.mark.long
def test_homotopy_ends_in_the_same_motion():
    easy, hard = oscillator(jnp.array(0.1)), oscillator(jnp.array(1.5))
    direct = jg.ocp.solve(hard)
    along = jg.ocp.solve(hard, continued_from=easy)
    # One transcription is not enough for both problems: the extremal of the easier one is followed.
    followed = jg.ocp.solve(hard, continued_from=easy, solver=jg.ocp.Solver(max_transcriptions=1))
    for solution in (along, followed):
        assert solution.result == RESULTS.successful
        np.testing.assert_allclose(solution.objective, direct.objective, rtol=1e-11)
        np.testing.assert_allclose(solution.switching_times, direct.switching_times, atol=1e-9)
    assert any(line.startswith("transcription on the way: ") for line in along.stats["history"])
    history = followed.stats["history"]
    assert any(line.startswith("mend control 0: ") for line in history)
    assert any(line.startswith("numbers at ") for line in history)


@pytest.mark.long
@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize(("what", "spent"), [("shootings", "rounds"), ("transcriptions",) * 2])
def test_homotopy_within_the_budget(most, what, spent):
    """One shooting solves the easier problem; a second one does not reach the other."""
    solution = jg.ocp.solve(
        oscillator(jnp.array(1.5)),
        continued_from=oscillator(jnp.array(0.1)),
        solver=jg.ocp.Solver(**{f"max_{what}": most}),
        throw=False,
    )
    assert solution.stats[spent] <= most


def test_homotopy_from_a_problem_without_a_bound():
    """Without the bound five the effort is 6 - 12 t."""
    build = jg.models.ocp_problems.double_integrator_energy
    bounded = build((-1.0, 0.0), (0.0, 0.0), bound=5.0)
    free = eqx.tree_at(
        lambda p: (p.lower, p.upper), bounded, (jnp.array([-jnp.inf]), jnp.array([jnp.inf]))
    )
    followed = jg.ocp.solve(bounded, continued_from=free)
    np.testing.assert_allclose(followed.objective, jg.ocp.solve(bounded).objective, rtol=1e-11)
    np.testing.assert_allclose(jg.ocp.solve(free).objective, 6.0, rtol=1e-11)


def time_and_effort(weight, x, u):
    return 1.0 + weight * u @ u


def weighted(weight):
    """Distance one from rest to rest: T = (36 w)^(1/4), the objective is 4/3 T."""
    return state(running_cost=Partial(time_and_effort, jnp.asarray(weight)), control_bounds=WIDE)


@pytest.mark.long
@pytest.mark.parametrize("directly", [True, False])
def test_homotopy_along_several_problems(directly):
    """By direct solutions, or where these fail by an extremal whose numbers change."""
    solver = jg.ocp.Solver() if directly else jg.ocp.Solver(max_transcriptions=1)
    way = [weighted(9.0), weighted(3.0)]
    followed = jg.ocp.solve(weighted(1.0), continued_from=way, solver=solver)
    time = 6.0**0.5
    np.testing.assert_allclose(followed.final_time, time, rtol=1e-10)
    np.testing.assert_allclose(followed.objective, 4.0 / 3.0 * time, rtol=1e-10)
    history = followed.stats["history"]
    steps = [line for line in history if line.startswith("transcription on the way")]
    walked = [line for line in history if line.startswith("numbers at 1 of the way")]
    assert (len(steps), len(walked)) == ((2, 0) if directly else (0, 2))
    np.testing.assert_allclose(
        jg.ocp.solve(weighted(1.0)).objective, followed.objective, rtol=1e-10
    )


@pytest.mark.long
def test_gradient_where_the_easier_problem_changes_too():
    def objective(weight):
        return jg.ocp.solve(weighted(weight), continued_from=weighted(9.0 * weight)).objective

    np.testing.assert_allclose(jax.grad(objective)(1.0), 6.0**0.5 / 3.0, rtol=1e-10)


def test_homotopy_from_a_problem_that_has_no_solution(time_problem):
    far = time_problem((0.0, 0.0), (1.0, 0.0), guess=1.0, upper=1.9)
    near = time_problem((0.0, 0.0), (0.5, 0.0), guess=1.0, upper=1.9)
    with pytest.raises(jg.ocp.SolveError, match="the easier problem itself was not solved"):
        jg.ocp.solve(near, continued_from=far)


def test_a_structure_or_a_homotopy(time_problem):
    problem = time_problem((0.0, 0.0), (1.0, 0.0))
    with pytest.raises(ValueError, match="not both"):
        jg.ocp.solve(problem, structure=[[(1, 0.5), (-1, 1.0)]], continued_from=problem)


def test_homotopy_needs_the_same_functions():
    with pytest.raises(ValueError, match="differs in numbers only"):
        jg.ocp.solve(oscillator(jnp.array(1.5)), continued_from=state())
    with pytest.raises(ValueError, match="differs in numbers only"):
        jg.ocp.solve(weighted(1.0), continued_from=[weighted(9.0), oscillator(jnp.array(1.5))])


@pytest.mark.long
def test_gradient_at_the_end_of_a_homotopy():
    def effort(stiffening, **kwargs):
        return jg.ocp.solve(oscillator(stiffening), **kwargs).objective

    followed = jax.grad(effort)(jnp.array(0.5), continued_from=oscillator(jnp.array(0.3)))
    np.testing.assert_allclose(followed, jax.grad(effort)(jnp.array(0.5)), rtol=1e-9)
