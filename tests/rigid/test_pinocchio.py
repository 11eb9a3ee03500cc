"""Random trees against numbers stored from Pinocchio 4.1.0 (tests/reference/make_pinocchio.py)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

from .conftest import pinocchio_tree

TOLERANCE = 1e-11


def close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE * np.abs(theirs).max())


@pytest.mark.long
@pytest.mark.parametrize(
    "k", [0, 1, 2, *(pytest.param(k, marks=pytest.mark.soak) for k in (3, 4, 5)), 6]
)
def test_dynamics(stored, k):
    tree = pinocchio_tree(stored, k)
    q, qd, qdd, tau = (jnp.asarray(stored[f"{key}_{k}"]) for key in ("q", "qd", "qdd", "tau"))
    close(jg.rigid.rnea(tree, q, qd, qdd), stored[f"rnea_{k}"])
    close(jg.rigid.bias_forces(tree, q, qd), stored[f"bias_{k}"])
    close(jg.rigid.crba(tree, q), stored[f"M_{k}"])
    close(jg.rigid.forward_dynamics(tree, q, qd, tau), stored[f"aba_{k}"])
    close(jg.rigid.aba(tree, q, qd, tau), stored[f"aba_{k}"])
    close(jg.rigid.kinetic_energy(tree, q, qd), stored[f"kinetic_{k}"])


@pytest.mark.parametrize("k", range(7))
def test_poses(stored, k):
    tree = pinocchio_tree(stored, k)
    pose = jg.rigid.forward_kinematics(tree, jnp.asarray(stored[f"q_{k}"]))
    close(pose.rotation, stored[f"orientation_{k}"])
    close(pose.translation, stored[f"position_{k}"])


@pytest.mark.long
@pytest.mark.parametrize("k", [pytest.param(3, marks=pytest.mark.soak), 6])
def test_derivatives_of_forward_dynamics(stored, k):
    tree = pinocchio_tree(stored, k)
    q, qd, tau = (jnp.asarray(stored[f"{key}_{k}"]) for key in ("q", "qd", "tau"))
    ours = jax.jit(jax.jacfwd(jg.rigid.forward_dynamics, argnums=(1, 2, 3)))(tree, q, qd, tau)
    for name, value in zip(("dq", "dqd", "dtau"), ours, strict=True):
        close(value, stored[f"daba_{name}_{k}"])
