"""A tree with a payload behaves as one with a body more, fixed where the payload is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxgrip as jg

from .conftest import random_rotation
from .test_joints import body, close, robot, state

PLACE = {"translation": (0.1, -0.2, 0.3), "rotation": random_rotation(np.random.default_rng(3))}
GRIP = jg.rigid.FramePlacement("grip", "hand", **PLACE)
LOAD = body(np.random.default_rng(5), "load", "hand", "fixed")._replace(**PLACE)
FIELDS = ("mass", "com", "inertia")


def built(parts):
    frames = (GRIP, jg.rigid.FramePlacement("floor", None))
    return jg.rigid.from_placements(parts, (0.3, -0.5, -9.81), frames=frames)


@pytest.fixture(scope="module")
def tree():
    return built(robot(False))


@pytest.fixture(scope="module")
def parameters(tree):
    """Function of mass, centre and inertia: the parameters of the tree with this payload."""

    @jax.jit
    def found(mass, com, inertia):
        loaded = jg.rigid.with_payload(tree, "grip", mass, com, inertia)
        return jg.rigid.inertial_parameters(loaded)

    return found


def test_payload_as_a_fixed_body(tree):
    loaded = jg.rigid.with_payload(tree, "grip", LOAD.mass, LOAD.com, LOAD.inertia)
    merged = jg.rigid.merge_fixed(built([*robot(False), LOAD]))
    assert loaded.names == merged.names
    for field in FIELDS:
        close(getattr(loaded, field), getattr(merged, field), 1e-14)
    by_name = jg.rigid.with_payload(tree, "hand", 0.7)
    hand = tree.names.index("hand")
    np.testing.assert_allclose(by_name.mass[hand] - tree.mass[hand], 0.7, rtol=1e-14)
    by_frame = jg.rigid.frame(tree, "grip")
    again = jg.rigid.with_payload(tree, by_frame, LOAD.mass, LOAD.com, LOAD.inertia)
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(again, field), getattr(loaded, field))


def test_parameters_of_a_payload_of_one_shape_are_linear_in_its_mass(parameters):
    com, inertia = jnp.asarray(LOAD.com), jnp.asarray(LOAD.inertia)
    by_mass = [parameters(jnp.asarray(m), com, m * inertia) for m in (0.0, 1.0, 2.5)]
    close(by_mass[2] - by_mass[0], 2.5 * (by_mass[1] - by_mass[0]), 1e-14)


def test_zero_payload_changes_nothing(tree):
    loaded = jg.rigid.with_payload(tree, "grip", 0.0, (1.0, 2.0, 3.0))
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(loaded, field), getattr(tree, field))


@pytest.mark.parametrize("mass", [0.0, 0.8])
def test_derivatives_by_the_payload(parameters, mass):
    values = jnp.asarray(mass), jnp.asarray(LOAD.com), jnp.asarray(LOAD.inertia)
    check_grads(parameters, values, 1, atol=1e-6, rtol=1e-6)


def test_derivative_at_zero_on_a_body_without_mass():
    """A mass m at r adds m, m r and m (r.r 1 - r r) to the body's parameters."""
    cross = LOAD._replace(name="cross", parent=None, joint="revolute", mass=0.0)
    cross = cross._replace(com=np.zeros(3), inertia=np.zeros((3, 3)))
    tree = jg.rigid.from_placements([cross, LOAD._replace(parent="cross", joint="revolute")])
    x, y, z = com = 0.1, 0.2, -0.3

    @jax.jit
    @jax.jacfwd
    def rate(mass):
        loaded = jg.rigid.with_payload(tree, "cross", mass, com)
        return jg.rigid.inertial_parameters(loaded)[:10]

    about = (y * y + z * z, -x * y, -x * z, x * x + z * z, -y * z, x * x + y * y)
    np.testing.assert_allclose(rate(jnp.zeros(())), (1.0, *com, *about), rtol=1e-14)


@pytest.mark.long
def test_torques_of_a_payload(tree):
    loaded = jg.rigid.with_payload(tree, "grip", LOAD.mass, LOAD.com, LOAD.inertia)
    whole = built([*robot(False), LOAD])
    q, qd, qdd, tau = state(tree)
    torque = jg.rigid.rnea(loaded, q, qd, qdd)
    close(torque, jg.rigid.rnea(whole, q, qd, qdd), 1e-12)
    close(
        torque, jg.rigid.regressor(tree, q, qd, qdd) @ jg.rigid.inertial_parameters(loaded), 1e-12
    )
    ours, theirs = (jg.rigid.forward_dynamics(t, q, qd, tau) for t in (loaded, whole))
    close(ours, theirs, 1e-11)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("floor", 1.0), "must be carried by a body that moves; the frame is fixed"),
        (("grip", -1.0), "mass of the payload is -1; it must not be negative"),
        (("gripp", 1.0), r"There is no frame 'gripp'; perhaps 'grip'\?"),
        (("grip", np.ones(2)), r"mass of the payload has the shape \(2,\)"),
        (("grip", 1.0, (0.0, 0.0)), r"com of the payload has the shape \(2,\)"),
        (("grip", 1.0, (0.0, 0.0, 0.0), (1.0, 1.0)), "inertia of the payload has the shape"),
    ],
)
def test_bad_payloads_get_a_sentence(tree, given, sentence):
    with pytest.raises(ValueError, match=sentence):
        jg.rigid.with_payload(tree, *given)
