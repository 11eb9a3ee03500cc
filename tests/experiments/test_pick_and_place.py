"""The sprung five-bar against differences, another integrator and the formula of one freedom."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from experiments.mechanisms import pick_and_place as model
from jaxgrip import config

pytestmark = pytest.mark.long


def configured(**given):
    return config.validate(
        model.Config, {"experiment": "mechanisms/pick_and_place", **given}, "here"
    )


@pytest.fixture(scope="module")
def robot():
    return configured().robot()


def test_angles_reach_the_point(robot):
    for point in ((-0.125, 0.40), (0.0, 0.45), (0.2, 0.3)):
        q = jnp.asarray(model.angles(robot, np.asarray(point)))
        end, elbows = model.tip(robot, q)
        np.testing.assert_allclose(end, point, atol=1e-12)
        apart = np.linalg.norm(np.asarray(end)[None] - np.asarray(elbows), axis=1)
        np.testing.assert_allclose(apart, 0.35, rtol=1e-12)


def test_the_mass_matrix_is_the_kinetic_energy_by_differences(robot):
    """Of points spread over every bar, from positions alone."""
    q, qd, step = np.array([2.1, 0.9]), np.array([1.3, -0.7]), 1e-6
    shares = (np.arange(400) + 0.5) / 400
    hinges = np.array([[-0.1, 0.0], [0.1, 0.0]])

    def places(x):
        end, elbows = (np.asarray(v) for v in model.tip(robot, jnp.asarray(x)))
        bars = [(hinges[k], elbows[k]) for k in (0, 1)] + [(elbows[k], end) for k in (0, 1)]
        return [a + shares[:, None] * (b - a) for a, b in bars], end

    (ahead, tip_ahead), (behind, tip_behind) = places(q + step * qd), places(q - step * qd)
    energy = 0.5 * 0.2 * np.sum(((tip_ahead - tip_behind) / (2 * step)) ** 2)
    for one, other, mass in zip(ahead, behind, (0.5, 0.5, 0.4, 0.4), strict=True):
        energy += 0.5 * mass * np.mean(np.sum(((one - other) / (2 * step)) ** 2, axis=1))
    matrix = model.mass_matrix(robot, jnp.asarray(q))
    np.testing.assert_allclose(0.5 * qd @ matrix @ qd, energy, rtol=1e-5)


def test_torques_are_those_of_lagrange(robot):
    """Power of the torques is the change of the kinetic energy."""
    q, qd, qdd = (jnp.asarray(x) for x in ([2.1, 0.9], [1.3, -0.7], [4.0, 2.0]))
    torque = model.inertia_torque(robot, q, qd, qdd)

    def energy(t):
        here, rate = q + t * qd + 0.5 * t**2 * qdd, qd + t * qdd
        return 0.5 * rate @ model.mass_matrix(robot, here) @ rate

    step = 1e-5
    power = (energy(step) - energy(-step)) / (2 * step)
    np.testing.assert_allclose(torque @ qd, power, rtol=1e-7)
    back = model.accelerated(robot, q, qd, torque)
    np.testing.assert_allclose(back, qdd, rtol=1e-10)


def test_springs_carry_the_robot_there(robot):
    """By another integrator, with accelerations from the same torques."""
    ends = [jnp.asarray(model.angles(robot, np.asarray(p))) for p in ((-0.125, 0.4), (0.125, 0.4))]
    springs = model.springs_between(robot, *ends, 0.4)
    rates = jax.jit(lambda y: model.sprung(jnp.zeros(()), y, (robot, springs)))
    found = solve_ivp(
        lambda t, y: np.asarray(rates(jnp.asarray(y))),
        (0.0, 0.4),
        np.concatenate([ends[0], np.zeros(2)]),
        rtol=1e-10,
        atol=1e-12,
    )
    np.testing.assert_allclose(found.y[:2, -1], ends[1], atol=1e-8)
    np.testing.assert_allclose(found.y[2:, -1], 0.0, atol=1e-7)
    # Springs of the symmetrical task are mirror images, near those of one degree of freedom.
    np.testing.assert_allclose(springs["stiffness"][0], springs["stiffness"][1], rtol=1e-8)
    np.testing.assert_allclose(springs["rest"].sum(), np.pi, rtol=1e-8)
    q = 0.5 * (ends[0] + ends[1])
    simple = model.mass_matrix(robot, q)[0, 0] * (np.pi / 0.4) ** 2
    assert 0.5 < springs["stiffness"][0] / simple < 2.0


def test_a_stiff_spring_costs_more_than_none(robot):
    ends = [jnp.asarray(model.angles(robot, np.asarray(p))) for p in ((-0.125, 0.4), (0.125, 0.4))]
    duration = jnp.asarray(0.4)

    def energy(stiffness):
        one = {"stiffness": jnp.full(2, stiffness), "rest": 0.5 * (ends[0] + ends[1])}
        return float(model.swung(robot, one, *ends, duration))

    assert energy(3.2) < 0.4 * energy(0.0)
    assert energy(50.0) > energy(0.0)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"place": [0.7, 0.4]}, "place: the linkage does not reach"),
        ({"place": [-0.125, 0.4]}, "it is where the robot picks"),
        ({"duration": 0.0}, "greater than 0"),
    ],
)
def test_mistakes_get_a_sentence(given, sentence):
    with pytest.raises(config.ConfigError, match=sentence):
        configured(**given)
