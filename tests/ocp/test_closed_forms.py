import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

# Start and costate of the double integrator with |u| <= 5, T = 1: CTProblems.jl, whose costates
# have the other sign (maximum principle).
BOUNDED_COSTATE = (-12.90994448735837, -6.454972243678883)


def assert_certified(solution):
    assert solution.result == jg.ocp.RESULTS.successful
    assert solution.certificate.passed, str(solution.certificate)


def times(solution):
    return np.asarray(solution.switching_times)


def test_a_first_solve_compiles_few_programs(compilations):
    problem = jg.ocp.Problem(
        dynamics=lambda x, u: 2.0 * u,
        initial_state=[0.0],
        final_state=[1.0],
        final_time=jg.ocp.Free(guess=1.0),
        control_bounds=([-1.0], [1.0]),
    )
    solver = jg.ocp.Solver(starts=1)
    with compilations() as found:
        solution = jg.ocp.solve(problem, solver=solver)
    np.testing.assert_allclose(solution.final_time, 0.5, rtol=1e-12)
    assert len(found) <= 12
    other = eqx.tree_at(lambda p: p.final_state, problem, jnp.array([-3.0]))
    with compilations() as found:
        solution = jg.ocp.solve(other, solver=solver)
    np.testing.assert_allclose(solution.final_time, 1.5, rtol=1e-12)
    assert not found


def test_brake(brake):
    sol = brake.solution
    assert_certified(sol)
    np.testing.assert_allclose(sol.final_time, 2.0, rtol=1e-12)
    np.testing.assert_allclose(sol.objective, 2.0, rtol=1e-12)
    np.testing.assert_allclose(times(sol), [1.0], rtol=1e-12)
    assert sol.structure.kinds.tolist() == [[1], [-1]]
    assert sol.structure.switching_controls.tolist() == [0]
    t = np.asarray(sol.t)
    expected = np.stack([-np.ones_like(t), t - 1.0], axis=1)
    np.testing.assert_allclose(sol.costate, expected, atol=1e-11)
    np.testing.assert_allclose(sol.switching_function, expected[:, 1:], atol=1e-11)
    np.testing.assert_allclose(sol.hamiltonian, 0.0, atol=1e-11)
    early, late = t**2 / 2 - 1, -((2 - t) ** 2) / 2
    np.testing.assert_allclose(sol.x[:, 0], np.where(t < 1, early, late), atol=1e-11)


def test_dense_output_draws_exact_steps(brake):
    sol = brake.solution
    (twice,) = np.flatnonzero(np.diff(np.asarray(sol.t)) == 0.0)
    np.testing.assert_allclose(sol.t[twice], 1.0, rtol=1e-12)
    np.testing.assert_allclose(sol.u[twice : twice + 2, 0], [1.0, -1.0], rtol=0.0)
    assert np.all(np.diff(np.asarray(sol.t)) >= 0.0)
    at = np.array([0.0, 0.3, 0.999, 1.001, 1.7, 2.0])
    np.testing.assert_allclose(sol.control_at(at)[:, 0], [1, 1, 1, -1, -1, -1], rtol=1e-12)
    velocity = np.where(at < 1.0, at, 2.0 - at)
    np.testing.assert_allclose(sol.state_at(at)[:, 1], velocity, atol=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("distance", [1.0, -4.0])
def test_rest_to_rest(time_problem, distance):
    sol = jg.ocp.solve(time_problem((0.0, 0.0), (distance, 0.0)))
    np.testing.assert_allclose(sol.final_time, 2.0 * abs(distance) ** 0.5, rtol=1e-12)
    np.testing.assert_allclose(times(sol), [abs(distance) ** 0.5], rtol=1e-12)


def test_moving_start(time_problem):
    """From (0, 1) to the origin: brake past the target and come back, t_F = 1 + sqrt 2."""
    sol = jg.ocp.solve(time_problem((0.0, 1.0), (0.0, 0.0)))
    assert_certified(sol)
    np.testing.assert_allclose(sol.final_time, 1.0 + 2.0**0.5, rtol=1e-11)
    np.testing.assert_allclose(times(sol), [1.0 + 0.5**0.5], rtol=1e-11)


@pytest.mark.long
def test_jerk(jerk):
    sol = jerk.solution
    assert_certified(sol)
    np.testing.assert_allclose(sol.final_time, 32.0 ** (1 / 3), rtol=1e-12)
    np.testing.assert_allclose(times(sol) / sol.final_time, [0.25, 0.75], rtol=1e-11)
    assert sol.structure.kinds[:, 0].tolist() == [1, -1, 1]
    np.testing.assert_allclose(sol.costate[0], (-1.058267, -1.679895, -1.0), atol=2e-6)


@pytest.mark.long
def test_free_final_component(free_speed):
    sol = free_speed.solution
    assert_certified(sol)
    np.testing.assert_allclose(sol.final_time, 2.0**0.5, rtol=1e-12)
    assert times(sol).size == 0
    assert sol.structure.kinds.tolist() == [[1]]
    np.testing.assert_allclose(sol.costate[-1, 1], 0.0, atol=1e-12)
    np.testing.assert_allclose(sol.costate[:, 0], -(0.5**0.5), rtol=1e-11)


@pytest.mark.long
def test_minimum_effort(effort_problem):
    sol = jg.ocp.solve(effort_problem((0.0, 0.0), (1.0, 0.0), np.inf))
    assert_certified(sol)
    np.testing.assert_allclose(sol.objective, 6.0, rtol=1e-12)
    np.testing.assert_allclose(sol.u[:, 0], 6.0 - 12.0 * np.asarray(sol.t), atol=1e-10)
    assert sol.structure.kinds.tolist() == [[0]]


def test_minimum_effort_with_bounds(effort_problem):
    sol = jg.ocp.solve(effort_problem((-1.0, 0.0), (0.0, 0.0), 5.0))
    assert_certified(sol)
    np.testing.assert_allclose(sol.costate[0], BOUNDED_COSTATE, rtol=1e-10)
    assert sol.structure.kinds[:, 0].tolist() == [1, 0, -1]
    # Where the unbounded control of these costates meets the bounds.
    reach = 5.0 / -BOUNDED_COSTATE[0]
    np.testing.assert_allclose(times(sol), [0.5 - reach, 0.5 + reach], rtol=1e-9)
    wanted = -np.asarray(sol.costate)[:, 1]
    np.testing.assert_allclose(sol.u[:, 0], np.clip(wanted, -5.0, 5.0), atol=1e-9)


def one_state(rate, cost, start, end, final_time, bound):
    return jg.ocp.Problem(
        rate,
        running_cost=cost,
        initial_state=(start,),
        final_state=(end,),
        final_time=final_time,
        control_bounds=(np.array([-bound]), np.array([bound])),
    )


@pytest.mark.long
def test_control_close_to_its_bound_all_along():
    """x' = u over the distance 0.95 in one second with least effort: u = 0.95, bound 1."""
    sol = jg.ocp.solve(one_state(lambda x, u: u, lambda x, u: 0.5 * u[0] ** 2, 0.0, 0.95, 1.0, 1.0))
    assert_certified(sol)
    assert sol.structure.kinds.tolist() == [[0]]
    np.testing.assert_allclose(sol.u[:, 0], 0.95, rtol=1e-12)
    np.testing.assert_allclose(sol.objective, 0.5 * 0.95**2, rtol=1e-12)


@pytest.mark.long
def test_doing_nothing_costs_nothing():
    sol = jg.ocp.solve(one_state(lambda x, u: u, lambda x, u: 0.5 * u[0] ** 2, 1.0, None, 1.0, 1.0))
    assert_certified(sol)
    np.testing.assert_allclose(sol.objective, 0.0, atol=1e-20)
    np.testing.assert_allclose(sol.x[:, 0], 1.0, rtol=1e-12)


@pytest.mark.long
def test_long_horizon_with_a_stable_plant():
    """x' = u - x over 40 s, quadratic cost: the two Riccati roots sqrt 2 -+ 1 add up to sqrt 2."""
    sol = jg.ocp.solve(
        one_state(
            lambda x, u: u - x,
            lambda x, u: 0.5 * (x[0] ** 2 + u[0] ** 2),
            1.0,
            1.0,
            40.0,
            np.inf,
        )
    )
    assert_certified(sol)
    np.testing.assert_allclose(sol.objective, 2.0**0.5, rtol=1e-9)
    np.testing.assert_allclose(sol.costate[[0, -1], 0], (2**0.5 - 1, -(2**0.5) - 1), rtol=1e-7)


@pytest.mark.long
def test_terminal_cost(soft_target):
    """lambda_1 = 6 (x(1) - 1) is constant and x(1) = -lambda_1 / 3, hence lambda_1 = -2."""
    sol = soft_target.solution
    assert_certified(sol)
    np.testing.assert_allclose(sol.objective, 1.0, rtol=1e-12)
    np.testing.assert_allclose(sol.x[-1], (2 / 3, 1.0), rtol=1e-11)
    np.testing.assert_allclose(sol.costate[:, 0], -2.0, rtol=1e-11)
    np.testing.assert_allclose(sol.u[:, 0], 2.0 * (1.0 - np.asarray(sol.t)), atol=1e-10)


@pytest.mark.long
def test_terminal_cost_of_time(priced_time):
    """6 / T^3 + w T is least at T = (18 / w)^(1/4) = 2; then H = -w."""
    sol = priced_time.solution
    assert_certified(sol)
    np.testing.assert_allclose(sol.final_time, 2.0, rtol=1e-11)
    np.testing.assert_allclose(sol.objective, 3.0, rtol=1e-11)
    np.testing.assert_allclose(sol.hamiltonian, -1.125, rtol=1e-10)


@pytest.mark.long
@pytest.mark.parametrize(
    ("side", "bound"), [("lower", 2.5), pytest.param("upper", 1.6, marks=pytest.mark.soak)]
)
def test_final_time_on_its_bound(priced_time, side, bound):
    """The best time, 2, lies outside; the cost is 6 / T^3 + w T at the bound."""
    problem = eqx.tree_at(
        lambda p: (p.final_time.guess, getattr(p.final_time, side)),
        priced_time.problem,
        (jnp.asarray(2.7 if side == "lower" else 1.0), jnp.asarray(bound)),
    )
    sol = jg.ocp.solve(problem)
    assert_certified(sol)
    np.testing.assert_allclose(sol.final_time, bound, rtol=1e-12)
    np.testing.assert_allclose(sol.objective, 6.0 / bound**3 + 1.125 * bound, rtol=1e-11)
    np.testing.assert_allclose(sol.hamiltonian, -18.0 / bound**4, rtol=1e-9)


def test_bounds_that_the_final_time_does_not_touch(time_problem):
    sol = jg.ocp.solve(time_problem((0.0, 0.0), (1.0, 0.0), lower=0.5, upper=2.001))
    assert_certified(sol)
    np.testing.assert_allclose(sol.final_time, 2.0, rtol=1e-12)


@pytest.mark.long
def test_turnpike_has_a_singular_arc(turnpike):
    sol = turnpike.solution
    assert_certified(sol)
    assert sol.structure.kinds[:, 0].tolist() == [-1, 2, 1]
    np.testing.assert_allclose(times(sol), [1.0, 1.5], rtol=1e-10)
    np.testing.assert_allclose(sol.objective, 1 / 3 + 1 / 24, rtol=1e-11)
    inside = (np.asarray(sol.t) > 1.0 + 1e-9) & (np.asarray(sol.t) < 1.5 - 1e-9)
    assert inside.any()
    for name in ("x", "u", "costate", "switching_function"):
        np.testing.assert_allclose(np.asarray(getattr(sol, name))[inside], 0.0, atol=1e-9)


def arcs(solution):
    """Signs of the controls on each arc, and the lengths of the arcs [s]."""
    signs = ["".join("-0+"[k + 1] for k in kinds) for kinds in solution.structure.kinds]
    return signs, np.diff([0.0, *times(solution), float(solution.final_time)])


@pytest.mark.long
def test_two_link_arm(arm):
    """Willigenburg 1991, also PROPT, problem 121.

    Run backwards and reflected, a motion is one from the same start to the same end: there are two
    optima, of which one is published.
    """
    sol = arm.solution
    assert_certified(sol)
    np.testing.assert_allclose(sol.final_time, 1.222817237662, rtol=1e-11)
    signs, lengths = arcs(sol)
    costate = sol.costate[0]
    if signs[0] == "+-":
        signs = [sign.translate(str.maketrans("+-", "-+")) for sign in signs[::-1]]
        lengths = lengths[::-1]
        costate = sol.costate[-1] * np.array([1.0, 1.0, -1.0, -1.0])
    assert signs == ["-+", "++", "+-", "--", "-+"]
    published = (0.06347156, 0.40734994, 0.20405868, 0.36756956, 0.18036749)
    np.testing.assert_allclose(lengths, published, atol=1e-7)
    np.testing.assert_allclose(costate, (-0.20219, -0.108867, -0.207429, -0.08043), atol=5e-6)


@pytest.mark.long
def test_cops_robot_arm(robot):
    sol = robot.solution
    assert_certified(sol)
    np.testing.assert_allclose(sol.final_time, 9.140911745915, rtol=1e-12)
    half = (2.28522794, 0.51081527, 1.77441266)
    signs, lengths = arcs(sol)
    assert signs == ["-+-", "++-", "+++", "+-+", "+--", "---"]
    np.testing.assert_allclose(lengths, (*half, *half[::-1]), atol=1e-7)
    np.testing.assert_allclose(
        sol.costate[0], (1.200071, -1.368581, 3.482556, 1.837411, -6.255039, 6.729005), atol=1e-6
    )
    # The motion is its own mirror image in time.
    middle = 0.5 * float(sol.final_time)
    np.testing.assert_allclose(sol.state_at(np.array([middle]))[0, 1], np.pi / 3, atol=1e-9)
    tau = times(sol) / float(sol.final_time)
    np.testing.assert_allclose(tau, 1.0 - tau[::-1], atol=1e-10)
