"""Derivatives of converged solutions, by the implicit function theorem."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxgrip as jg

ONE_START = jg.ocp.Solver(starts=1)


def rest_to_rest_time(time_problem, distance, bound):
    problem = time_problem((0.0, 0.0), (distance, 0.0), bound)
    return jg.ocp.solve(problem, solver=ONE_START).final_time


@pytest.mark.long
def test_closed_form(time_problem):
    """t_F = 2 sqrt(d / u)."""
    distance, bound = jnp.array(1.7), jnp.array(0.6)
    value, gradient = jax.value_and_grad(
        lambda d, u: rest_to_rest_time(time_problem, d, u), argnums=(0, 1)
    )(distance, bound)
    np.testing.assert_allclose(value, 2.0 * (1.7 / 0.6) ** 0.5, rtol=1e-12)
    expected = (1.0 / (1.7 * 0.6) ** 0.5, -((1.7 / 0.6**3) ** 0.5))
    np.testing.assert_allclose(gradient, expected, rtol=1e-11)
    _, forward = jax.jvp(
        lambda d, u: rest_to_rest_time(time_problem, d, u), (distance, bound), (1.0, 2.0)
    )
    np.testing.assert_allclose(forward, expected[0] + 2.0 * expected[1], rtol=1e-11)


@pytest.mark.long
@pytest.mark.parametrize(
    ("latest", "structure", "origin"),
    [(np.inf, [[(1, 0.3), (-1, 0.6), (1, 1.0)]], "transcription"), (1.9, None, "nothing")],
)
def test_what_is_not_certified_has_no_derivative(time_problem, latest, structure, origin):
    """No motion pushes, brakes and pushes again; distance one takes two seconds."""

    def outputs(distance):
        problem = time_problem((0.0, 0.0), (distance, 0.0), guess=1.5, upper=latest)
        sol = jg.ocp.solve(problem, solver=ONE_START, structure=structure, throw=False)
        return sol.objective, sol

    (value, sol), gradient = jax.value_and_grad(outputs, has_aux=True)(jnp.array(1.0))
    assert sol.origin == origin
    assert sol.certificate is None
    np.testing.assert_allclose(value, 2.0 if origin == "transcription" else np.nan, rtol=1e-3)
    assert np.isnan(gradient)
    _, (forward, by_state) = jax.jvp(
        lambda distance: (outputs(distance)[0], outputs(distance)[1].x),
        (jnp.array(1.0),),
        (jnp.array(1.0),),
    )
    assert np.isnan(forward)
    assert np.all(np.isnan(by_state))


@pytest.mark.long
def test_both_modes_against_differences(time_problem):
    def outputs(distance, bound):
        problem = time_problem((-distance, 0.1), (0.2, 0.3), bound)
        sol = jg.ocp.solve(problem, solver=ONE_START)
        return sol.final_time, sol.switching_times, sol.x[5], sol.costate[0]

    check_grads(
        outputs, (jnp.array(1.3), jnp.array(0.9)), order=1, modes=("fwd", "rev"), atol=1e-7,
        rtol=1e-7, eps=1e-4,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "free_speed",
        "turnpike",
        *(pytest.param(name, marks=pytest.mark.soak) for name in ("soft_target", "priced_time")),
    ],
)
def test_costates_are_sensitivities(request, name):
    """The derivative of the optimal cost by the initial state is the costate there, by the final
    state minus the costate there.
    """
    problem = request.getfixturevalue(name).problem

    def cost(start, end):
        moved = [end[i] if i in problem.fixed_final else None for i in range(problem.n)]
        moved = jg.ocp.Problem(
            problem.dynamics,
            running_cost=problem.running_cost,
            terminal_cost=problem.terminal_cost,
            initial_state=start,
            final_state=moved,
            final_time=problem.final_time,
            control_bounds=(problem.lower, problem.upper),
        )
        sol = jg.ocp.solve(moved, solver=ONE_START)
        return sol.objective, sol.costate

    gradient, costate = jax.grad(cost, argnums=(0, 1), has_aux=True)(
        problem.initial_state, problem.final_state
    )
    scale = np.abs(costate).max(axis=0)
    fixed = [i in problem.fixed_final for i in range(problem.n)]
    np.testing.assert_allclose(gradient[0] / scale, costate[0] / scale, atol=1e-8)
    np.testing.assert_allclose(
        gradient[1] / scale, np.where(fixed, -costate[-1], 0.0) / scale, atol=1e-8
    )


@pytest.mark.long
def test_singular_arc(turnpike):
    """Switches at x(0) and T - x(T), cost x(0)^3 / 3 + x(T)^3 / 3."""
    problem = turnpike.problem

    def outputs(start, end, time):
        moved = jg.ocp.Problem(
            problem.dynamics,
            running_cost=problem.running_cost,
            initial_state=[start],
            final_state=[end],
            final_time=time,
            control_bounds=(problem.lower, problem.upper),
        )
        sol = jg.ocp.solve(moved, solver=ONE_START)
        return sol.objective, *sol.switching_times

    rows = jax.jacrev(outputs, argnums=(0, 1, 2))(jnp.array(1.0), jnp.array(0.5), jnp.array(2.0))
    expected = [(1.0, 0.25, 0.0), (1.0, 0.0, 0.0), (0.0, -1.0, 1.0)]
    np.testing.assert_allclose(rows, expected, atol=1e-8)


@pytest.fixture(scope="module")
def finger_gradient(finger_problem):
    """Minimum time of finger A as a function of relative changes, where it is, its gradient."""
    start, end = finger_problem("A").initial_state[:3], finger_problem("A").final_state[:3]
    inertia = jnp.array(jg.models.gripper.INERTIAS)

    def final_time(model):
        problem = finger_problem(
            "A",
            start=start + model["start"],
            end=end + model["end"],
            link_lengths=jnp.array([0.02, 0.06, 0.07]) * model["length"],
            masses=jnp.array([0.08, 0.16, 0.20]) * model["mass"],
            inertias=inertia * model["inertia"],
            torque_limit=jnp.array([0.25, 0.50, 0.40]) * model["torque"],
        )
        solution = jg.ocp.solve(problem, solver=ONE_START)
        return solution.final_time, solution.costate

    model = {name: jnp.ones(3) for name in ("length", "mass", "torque")}
    model |= {"start": jnp.zeros(3), "end": jnp.zeros(3), "inertia": jnp.ones(())}
    (value, costate), gradient = jax.value_and_grad(final_time, has_aux=True)(model)
    np.testing.assert_allclose(value, 0.11997468651, atol=2e-11)
    return final_time, model, gradient, costate


@pytest.mark.soak
@pytest.mark.parametrize("name", ["length", "mass", "torque"])
def test_finger_against_solving_again(finger_gradient, name):
    """Fourth-order differences of solutions found anew."""
    final_time, model, gradient, _ = finger_gradient
    h = 1e-4
    for link in range(3):

        def at(step, link=link):
            moved = model | {name: model[name].at[link].add(step)}
            return float(final_time(moved)[0])

        quotient = (8.0 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12.0 * h)
        np.testing.assert_allclose(gradient[name][link], quotient, rtol=1e-6)


@pytest.mark.soak
def test_finger_costates_are_sensitivities(finger_gradient):
    _, _, gradient, costate = finger_gradient
    np.testing.assert_allclose(gradient["start"], costate[0, :3], rtol=1e-8)
    np.testing.assert_allclose(gradient["end"], -costate[-1, :3], rtol=1e-8)


@pytest.mark.soak
def test_finger_time_is_homogeneous(finger_gradient):
    """Masses, inertias and torques times one factor, which is Euler's theorem: no change."""
    _, _, gradient, _ = finger_gradient
    terms = np.array([*gradient["mass"], gradient["inertia"], *gradient["torque"]])
    assert abs(terms.sum()) <= 1e-9 * np.abs(terms).max()


@pytest.mark.soak
def test_finger_forward_mode(finger_gradient):
    final_time, model, gradient, _ = finger_gradient
    leaves, tree = jax.tree.flatten(model)
    rng = np.random.default_rng(0)
    direction = tree.unflatten([jnp.asarray(rng.normal(size=leaf.shape)) for leaf in leaves])
    _, forward = jax.jvp(lambda model: final_time(model)[0], (model,), (direction,))
    backward = sum(
        jnp.vdot(g, d)
        for g, d in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    )
    np.testing.assert_allclose(forward, backward, rtol=1e-9)
