"""Problems whose answers are known, each solved once a session."""

import json
import logging
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.models import ocp_problems as problems


class Solved(NamedTuple):
    problem: jg.ocp.Problem
    solution: jg.ocp.Solution


def solved(problem, **kwargs):
    return Solved(problem, jg.ocp.solve(problem, **kwargs))


def minimum_time(start, end, bound=1.0, guess=1.0, **time):
    return problems.double_integrator_time(start, end, bound, final_time=jg.ocp.Free(guess, **time))


def minimum_effort(start, end, bound):
    return problems.double_integrator_energy(start, end, bound=bound)


def with_end_cost(problem, cost):
    return eqx.tree_at(lambda p: p.terminal_cost, problem, cost, is_leaf=lambda leaf: leaf is None)


def finger_motion(name, start=None, end=None, guess=0.13, upper=np.inf, **model):
    """Minimum-time motion of a finger, rest to rest; angles [rad], the published ones when None."""
    finger = jg.models.gripper_finger(name, **model)
    rest = jnp.zeros(3)
    start = finger.start if start is None else jnp.asarray(start)
    end = finger.end if end is None else jnp.asarray(end)
    return jg.ocp.Problem(
        jg.rigid.StateSpace(finger.tree),
        initial_state=jnp.concatenate([start, rest]),
        final_state=jnp.concatenate([end, rest]),
        final_time=jg.ocp.Free(guess, upper=upper),
        control_bounds=(-finger.torque_limit, finger.torque_limit),
    )


def finger_rate(x, u):
    """Rate of the state of a finger in closed form: a model of its own."""
    m1, m2, m3 = 0.08, 0.16, 0.20
    l1, l2, l3 = 0.02, 0.06, 0.07
    z1, z2, z3 = 19 / 6 * 1e-6, 4.9e-5, 995 / 12 * 1e-6
    x2, x3, g = 2.0e-6, 2.5e-6, 9.81
    q, w = x[:3], x[3:]
    c2, c23, c3 = np.cos(q[1]), np.cos(q[1] + q[2]), np.cos(q[2])
    s2, s23, s3 = np.sin(q[1]), np.sin(q[1] + q[2]), np.sin(q[2])
    r2, r3 = l1 + l2 / 2 * c2, l1 + l2 * c2 + l3 / 2 * c23
    m11 = z1 + m1 * l1**2 / 4 + m2 * r2**2 + m3 * r3**2
    m11 += x2 * s2**2 + z2 * c2**2 + x3 * s23**2 + z3 * c23**2
    m22 = z2 + m2 * l2**2 / 4 + z3 + m3 * (l2**2 + l3**2 / 4 + l2 * l3 * c3)
    m23, m33 = z3 + m3 * (l3**2 / 4 + l2 * l3 * c3 / 2), z3 + m3 * l3**2 / 4
    a2 = -m2 * r2 * l2 * s2 - 2 * m3 * r3 * (l2 * s2 + l3 / 2 * s23)
    a2 += 2 * (x2 - z2) * s2 * c2 + 2 * (x3 - z3) * s23 * c23
    a3 = -m3 * r3 * l3 * s23 + 2 * (x3 - z3) * s23 * c23
    b, weight3 = m3 * l2 * l3 * s3 / 2, g * m3 * l3 / 2 * c23
    f1 = u[0] - w[0] * (a2 * w[1] + a3 * w[2])
    f2 = u[1] + a2 * w[0] ** 2 / 2 + b * (2 * w[1] * w[2] + w[2] ** 2)
    f2 += g * (m2 * l2 / 2 + m3 * l2) * c2 + weight3
    f3 = u[2] + a3 * w[0] ** 2 / 2 - b * w[1] ** 2 + weight3
    det = m22 * m33 - m23**2
    return np.array([*w, f1 / m11, (m33 * f2 - m23 * f3) / det, (m22 * f3 - m23 * f2) / det])


def load_random_tasks():
    path = Path(__file__).parents[1] / "reference" / "random_tasks.json"
    return json.loads(path.read_text())["tasks"]


@pytest.fixture(scope="session")
def finger_problem():
    """Function that states a motion of a finger."""
    return finger_motion


@pytest.fixture(scope="session")
def closed_form_rate():
    """Function x, u -> x' of a finger, independent of the library."""
    return finger_rate


@pytest.fixture(scope="session")
def time_problem():
    """Function that states a minimum-time motion of the double integrator."""
    return minimum_time


@pytest.fixture(scope="session")
def effort_problem():
    """Function that states a minimum-effort motion of the double integrator in one second."""
    return minimum_effort


@pytest.fixture(scope="session")
def brake():
    """Double integrator from (-1, 0) to the origin in minimum time."""
    return solved(minimum_time((-1.0, 0.0), (0.0, 0.0)))


@pytest.fixture(scope="session")
def jerk():
    """Triple integrator from rest to rest over the distance one in minimum time."""
    return solved(problems.triple_integrator_time())


@pytest.fixture(scope="session")
def free_speed():
    """Double integrator over the distance one, final velocity free."""
    return solved(minimum_time((0.0, 0.0), (1.0, None)))


@pytest.fixture(scope="session")
def soft_target():
    """Effort plus 3 (x - 1)^2 at the end, nothing prescribed there."""
    problem = problems.double_integrator_energy(end=(None, None))
    return solved(with_end_cost(problem, lambda t, x: 3.0 * (x[0] - 1.0) ** 2))


@pytest.fixture(scope="session")
def priced_time():
    """Effort plus 9/8 of the final time, which is free."""
    problem = problems.double_integrator_energy(final_time=jg.ocp.Free(1.0))
    return solved(with_end_cost(problem, lambda t, x: 1.125 * t))


@pytest.fixture(scope="session")
def turnpike():
    """Integrate x^2 along x' = u: a singular arc on x = 0."""
    return solved(problems.nonsmooth_turnpike())


@pytest.fixture(scope="session")
def arm():
    return solved(problems.two_link_arm())


@pytest.fixture(scope="session")
def robot():
    return solved(problems.cops_robot_arm())


@pytest.fixture(scope="session")
def fingers():
    """Finger name to its published motion."""
    return {name: solved(finger_motion(name)) for name in "AB"}


@pytest.fixture(scope="session")
def random_tasks():
    """Pairs of what an independent code found for a random motion, and our solution of it."""
    pairs = []
    for task in load_random_tasks():
        start, end = np.deg2rad(task["start_deg"]), np.deg2rad(task["end_deg"])
        problem = finger_motion(task["finger"], start, end)
        pairs.append((task, jg.ocp.solve(problem, solver=jg.ocp.Solver(starts=8), throw=False)))
    return pairs


@pytest.fixture
def compiled(caplog):
    """Function that runs another and returns the names of all programs compiled meanwhile."""

    def watch(function):
        caplog.clear()
        with caplog.at_level(logging.WARNING), jax.log_compiles():
            function()
        return [r.getMessage() for r in caplog.records if r.getMessage().startswith("Compiling")]

    return watch
