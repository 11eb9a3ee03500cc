"""The force-feedback device against virtual work, energies and the theory of sampled springs."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.test_util import check_grads

from experiments.mechanisms import force_feedback as device
from jaxgrip import config, report

pytestmark = pytest.mark.long

FEET = jnp.array([[0.0, 0.0], [1.2, 0.0]])


def configured(**given):
    return config.validate(
        device.Config, {"experiment": "mechanisms/force_feedback", **given}, "here"
    )


def test_cylinders_do_the_work_of_the_force():
    handle, force = jnp.array([0.7, 0.9]), jnp.array([30.0, -12.0])
    thrust = device.cylinder_forces(FEET, handle, force)
    now = device.cylinders(FEET, handle)
    np.testing.assert_allclose(now.jacobian.T @ thrust, force, rtol=1e-12)
    step = 1e-6 * jnp.array([0.3, -0.8])
    changed = device.cylinders(FEET, handle + step).length - now.length
    np.testing.assert_allclose(thrust @ changed, force @ step, rtol=1e-5)
    check_grads(lambda p: device.cylinder_forces(FEET, p, force), (handle,), order=2, rtol=1e-4)


def test_on_the_line_of_the_feet_forces_across_it_are_impossible():
    thrust = device.cylinder_forces(FEET, jnp.array([0.5, 0.0]), jnp.array([0.0, 1.0]))
    assert np.all(np.isinf(thrust))
    near = device.cylinder_forces(FEET, jnp.array([0.5, 1e-3]), jnp.array([0.0, 1.0]))
    np.testing.assert_allclose(near, 0.5 * 0.7 / 1.2 / 1e-3, rtol=1e-4)


def test_the_hand_does_the_work_of_friction():
    """From rest to rest; the friction is Stribeck's, integrated over the angle."""
    door, motion = configured().opening()
    found = device.opening(door, *motion, 2001)
    work = np.trapezoid(-np.asarray(found.along) * float(door.radius), found.angle)
    rate = np.gradient(found.angle, found.time, edge_order=2)
    friction = np.trapezoid(np.asarray(door.friction.steady(rate)), found.angle)
    np.testing.assert_allclose(work, friction, rtol=1e-4)
    assert work > 2.0 * np.pi / 2
    # Without friction the hand gives and takes the same energy, at most the kinetic one.
    free, motion = configured(door={"coulomb": 1e-9, "stiction": 1e-9, "viscous": 0.0}).opening()
    smooth = device.opening(free, *motion, 2001)
    done = -np.asarray(smooth.along) * float(door.radius)
    until = 1001
    kinetic = 0.5 * float(door.inertia) * np.max(np.gradient(smooth.angle, smooth.time)) ** 2
    np.testing.assert_allclose(np.trapezoid(done[:until], smooth.angle[:until]), kinetic, rtol=1e-4)


def test_the_guide_pushes_back_to_the_circle():
    door, _ = configured().opening()
    still = jnp.zeros(2)
    handle = device.at(door, 1.0) + 0.002 * jnp.array([jnp.cos(1.0), jnp.sin(1.0)])
    force = device.rendered(door, handle, still, still)
    np.testing.assert_allclose(
        force, -0.002 * door.guide * jnp.array([jnp.cos(1.0), jnp.sin(1.0)]), rtol=1e-9
    )


def test_sampled_springs_are_passive_up_to_the_bound():
    """Work of the spring in a cycle of n samples, and of the damping: n to infinity is worst."""
    damping, period = 25.0, 1e-3
    stiffness = float(device.stiffest(damping, period))
    for samples, passive in ((200, True), (20000, True)):
        x = np.sin(2 * np.pi * np.arange(samples + 1) / samples)
        released = -stiffness * x[:-1] @ np.diff(x)
        lost = np.pi * damping * 2 * np.pi / (samples * period)
        assert (released <= lost) == passive
        if samples == 20000:
            np.testing.assert_allclose(released, lost, rtol=1e-4)


@pytest.mark.parametrize("share", device.SHARES)
def test_energies_grow_as_the_eigenvalues_say(share):
    """Matrix of one period, by the exponential of the augmented system."""
    mass, damping, period = 12.0, 25.0, 1e-3
    stiffness = share * device.stiffest(damping, period)
    system = np.array([[0, 1, 0], [0, -damping / mass, 1 / mass], [0, 0, 0]])
    step = scipy.linalg.expm(period * system)
    matrix = step[:2, :2] + np.outer(step[:2, 2], [-stiffness, 0.0])
    radius = np.max(np.abs(np.linalg.eigvals(matrix)))
    numbers = (jnp.asarray(x) for x in (mass, damping, stiffness, period))
    energy = np.asarray(device.sampled(*numbers, 3000))
    growth = np.polyfit(np.arange(3000), np.log(energy), 1)[0]
    np.testing.assert_allclose(growth, 2 * np.log(radius), rtol=2e-2, atol=2e-6)
    assert (radius < 1) == (share < 1)


def test_the_largest_force_has_a_derivative_by_the_feet():
    door, (feet, *motion) = configured().opening()
    check_grads(lambda f: device.largest(door, f, *motion), (feet,), order=1, rtol=1e-4)


def said(tmp_path, **given):
    settings = configured(**given)
    run = report.Run(tmp_path, settings)
    device.run(settings, run)
    return "\n".join(run.notes)


def test_a_door_that_cannot_be_rendered_is_told(tmp_path):
    text = said(
        tmp_path,
        feet=[[0.0, 1.0], [1.2, 1.0]],
        force_limit=20.0,
        lengths=[0.5, 1.0],
        damping=1.0,
    )
    for sentence in (
        "feet and handle are nearly on one line",
        "more than the limit of 20 N",
        "too short from",
        "too long from",
        "at most 2000 N/m is passive",
    ):
        assert sentence in text


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"feet": [[0.0, 0.0], [0.0, 0.0]]}, "hinged at the same point"),
        ({"lengths": [1.0, 0.5]}, "the shortest must be positive"),
        ({"door": {"coulomb": 3.0, "stiction": 1.0}}, "at least the dry friction"),
        ({"period": 0.0}, "greater than 0"),
    ],
)
def test_mistakes_get_a_sentence(given, sentence):
    with pytest.raises(config.ConfigError, match=sentence):
        configured(**given)
