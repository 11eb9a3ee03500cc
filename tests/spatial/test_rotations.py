import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxgrip import spatial


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
