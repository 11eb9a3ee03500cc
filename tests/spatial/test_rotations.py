import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.spatial.transform import Rotation

from jaxgrip import spatial
from jaxgrip.spatial import quaternions


def test_skew_is_the_cross_product():
    a, b = jnp.array([1.0, -2, 3]), jnp.array([0.3, 0.5, -0.2])
    np.testing.assert_allclose(spatial.skew(a) @ b, np.cross(a, b), rtol=1e-15)


@pytest.mark.parametrize("angle", [0.0, 0.7, -3.0])
def test_turns_about_the_axes(angle):
    x, z = jnp.array([1.0, 0, 0]), jnp.array([0.0, 0, 1])
    angle = jnp.asarray(angle, dtype=float)
    np.testing.assert_allclose(spatial.rotation_x(angle), spatial.axis_angle(x, angle), atol=1e-15)
    np.testing.assert_allclose(spatial.rotation_z(angle), spatial.axis_angle(z, angle), atol=1e-15)
    for turn in (spatial.rotation_x, spatial.rotation_z):
        check_grads(lambda a, f=turn: f(jnp.asarray(a)), (angle,), order=2, modes=("fwd", "rev"))


@pytest.mark.parametrize("axis", [(0, 0, 1), (0, 0, -1), (1, 0, 0), (0, -2, 0), (1, 2, -3)])
def test_aligning_z(axis):
    axis = jnp.asarray(axis, dtype=float)
    q = spatial.aligning_z(axis)
    np.testing.assert_allclose(q @ q.T, np.eye(3), atol=1e-15)
    np.testing.assert_allclose(jnp.linalg.det(q), 1, rtol=1e-14)
    np.testing.assert_allclose(q[:, 2], axis / jnp.linalg.norm(axis), atol=1e-15)
    if axis[2] != 0:
        check_grads(jax.jit(spatial.aligning_z), (axis,), order=1, modes=("fwd", "rev"))


AXES = np.random.default_rng(3).normal(size=(40, 3))
ANGLES = [0.0, 1e-9, 1e-4, 0.5, 2.0, 3.0, np.pi - 1e-7, np.pi]


@pytest.mark.parametrize("angle", ANGLES)
def test_rotation_vectors_and_quaternions_of_matrices(angle):
    """Each of the four components is the largest of some; a quaternion may have any length."""
    vectors = angle * AXES / np.linalg.norm(AXES, axis=1)[:, None]
    rotations = Rotation.from_rotvec(vectors)
    matrices = jnp.asarray(rotations.as_matrix())
    q = jax.vmap(quaternions.from_matrix)(matrices)
    scipy = rotations.as_quat(canonical=True, scalar_first=True)
    # Of half a turn both signs are right.
    side = np.sign(np.sum(np.asarray(q) * scipy, axis=1))[:, None]
    assert np.all((side > 0) | (angle > 3.1))
    np.testing.assert_allclose(q, side * scipy, atol=1e-15)
    for length in (1.0, -3.0, 1e-3):
        found = jax.vmap(
            lambda m, a=length: quaternions.rotation_vector(a * quaternions.along_matrix(m))
        )(matrices)
        side = np.sign(np.sum(np.asarray(found) * vectors, axis=1))[:, None] if angle > 3.1 else 1.0
        np.testing.assert_allclose(found, side * vectors, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("angle", ANGLES[:-1])
def test_derivatives_of_rotation_vectors(angle):
    """Of a turn about its own axis the vector grows by it, also from the unit matrix on."""
    axis = jnp.array([0.6, 0.0, -0.8])

    def vector(turn):
        matrix = spatial.axis_angle(axis, angle + turn)
        return quaternions.rotation_vector(quaternions.along_matrix(matrix))

    for jacobian in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(jacobian(vector)(0.0), axis, rtol=1e-7, atol=1e-9)
