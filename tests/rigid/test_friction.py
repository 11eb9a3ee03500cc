"""Motions with dry friction, by implicit steps."""

import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp

import jaxgrip as jg

MASS, FRICTION, WIDTH = 2.0, 5.0, 1e-3
ZERO = (0.0, 0.0, 0.0)


def block_motion(speed, friction, slope, times, adjoint=None):
    """Coordinates and rates (2, k) of a block that slides along an axis, pulled by `slope`."""
    block = jg.rigid.Placement("block", None, ZERO, MASS, ZERO, (1.0, 1.0, 1.0), joint="prismatic")
    tree = jg.rigid.from_placements([block], gravity=jnp.array([0.0, 0.0, 1.0]) * slope)
    tree = jg.rigid.with_passive(tree, friction=friction, friction_speed=WIDTH)
    motion = jg.rigid.simulate(tree, jnp.zeros(1), speed[None], times, adjoint=adjoint)
    return jnp.stack([motion.q[:, 0], motion.qd[:, 0]])


def way_to_rest(speed):
    """Distance on the level, m v^2 / (2 F) but for the square of the width [m]."""
    exact = quad(lambda v: v / np.tanh(v / WIDTH), 0.0, speed, epsrel=1e-10, limit=500)[0]
    np.testing.assert_allclose(exact, speed**2 / 2, rtol=1e-3)
    return exact * MASS / FRICTION


def test_a_block_comes_to_rest_or_sticks():
    """A block that stops on the level, and three on slopes, by vmap; steps are exact to 1e-9."""
    times = jnp.array([0.0, 0.02, 0.0395, 1.0, 2.0])
    speeds, slopes = jnp.array([0.1, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.5, -0.9, 1.5])
    decay = FRICTION / MASS
    motions = jax.jit(jax.vmap(block_motion, in_axes=(0, None, 0, None)))
    found = motions(speeds, FRICTION, slopes * decay, times)
    (way, *_), (speed, *others) = found.transpose(1, 0, 2)
    # sinh(v / width) falls as exp(-F t / (m width)): from 0.1 m/s at rest after 0.04 s.
    fallen = np.sinh(0.1 / WIDTH) * np.exp(-decay * times[:3] / WIDTH)
    np.testing.assert_allclose(speed[:3], WIDTH * np.arcsinh(fallen), atol=1e-8)
    np.testing.assert_allclose(speed[3:], 0.0, atol=1e-8)
    np.testing.assert_allclose(way[3:], way_to_rest(0.1), atol=1e-8)
    # Below the level of friction a block creeps at width artanh(m a / F), above it slides.
    for rate, share in zip(others, (0.5, -0.9), strict=False):
        np.testing.assert_allclose(rate[3:], WIDTH * np.arctanh(share), atol=1e-8)
    np.testing.assert_allclose(others[2][4] - others[2][3], 0.5 * decay, rtol=1e-8)


# By speed, friction and slope; while it slides tanh is one.
DERIVATIVES = {
    0.01: [[0.01, -(0.01**2) / (2 * MASS), 0.01**2 / 2], [1.0, -0.01 / MASS, 0.01]],
    0.2: [[MASS * 0.1 / FRICTION, -way_to_rest(0.1) / FRICTION], [0.0, 0.0]],
}


def last_state(adjoint, given, time):
    return block_motion(*given, jnp.stack([0.0 * time, time]), adjoint)[:, -1]


@pytest.mark.parametrize(
    ("mode", "adjoint"),
    [
        (jax.jacfwd, diffrax.ForwardMode()),
        pytest.param(jax.jacrev, None, marks=pytest.mark.long),
    ],
)
def test_derivatives(mode, adjoint):
    """By speed, friction and slope, while the block slides and after it has come to rest."""
    found = jax.jit(mode(functools.partial(last_state, adjoint)))
    for time, exact in DERIVATIVES.items():
        by = found(jnp.array([0.1, FRICTION, 0.0]), time)
        np.testing.assert_allclose(by[:, : len(exact[0])], exact, rtol=1e-5, atol=1e-8)


@pytest.mark.long
def test_a_floating_tree_with_a_ball():
    """Against SciPy; and energy and friction's work are together constant."""
    inertia = (0.03, 0.02, 0.01)
    base = jg.rigid.Placement("base", None, ZERO, 2.0, ZERO, inertia, joint="free", damping=0.1)
    arm = jg.rigid.Placement(
        "arm", "base", (0.1, 0.0, 0.2), 1.0, (0.0, 0.2, 0.1), inertia, friction=0.4
    )
    hand = arm._replace(name="hand", parent="arm", joint="spherical", friction=0.1)
    tree = jg.rigid.from_placements([base, arm, hand])
    qd0 = jnp.asarray(np.random.default_rng(1).normal(size=tree.n))
    times = jnp.linspace(0.0, 0.5, 6)

    def torque(t, q, qd):
        return jnp.zeros(tree.n).at[6].set(0.3 * jnp.sin(20 * t))

    q0 = jg.rigid.neutral(tree)
    motion = jg.rigid.simulate(tree, q0, qd0, times, torque)

    def turned(quaternion, rate):
        x, y, z = rate
        matrix = [[0.0, -x, -y, -z], [x, 0.0, z, -y], [y, -z, 0.0, x], [z, y, -x, 0.0]]
        return 0.5 * jnp.array(matrix) @ quaternion

    @jax.jit
    def rates(t, x):
        q, qd = x[: tree.nq], x[tree.nq : -1]
        parts = [qd[:3], turned(q[3:7], qd[3:6]), qd[6:7], turned(q[8:], qd[7:])]
        power = qd @ (torque(t, q, qd) - jg.rigid.passive_forces(tree, q, qd))
        qdd = jg.rigid.forward_dynamics(tree, q, qd, torque(t, q, qd))
        return jnp.concatenate([*parts, qdd, power[None]])

    start = jnp.concatenate([q0, qd0, jnp.zeros(1)])
    options = {"jac": jax.jit(jax.jacfwd(rates, 1)), "rtol": 1e-9, "atol": 1e-10}
    theirs = solve_ivp(rates, (0.0, 0.5), start, "Radau", t_eval=times, **options).y.T
    np.testing.assert_allclose(motion.q, theirs[:, : tree.nq], atol=1e-6)
    np.testing.assert_allclose(motion.qd, theirs[:, tree.nq : -1], atol=1e-5)
    energy = [
        jg.rigid.kinetic_energy(tree, q, qd) + jg.rigid.potential_energy(tree, q)
        for q, qd in zip(motion.q, motion.qd, strict=True)
    ]
    np.testing.assert_allclose(np.diff(energy), np.diff(theirs[:, -1]), atol=1e-6)


@pytest.mark.long
def test_derivatives_of_an_arm_that_stops():
    """Of two joints pulled by gravity, one of which stops and turns back, by differences."""
    arm = jg.models.gripper_finger("A")
    tree = jg.rigid.with_passive(arm.tree, friction=jnp.array([0.02, 0.01, 0.005]))
    times = jnp.linspace(0.0, 0.1, 3)

    def end(qd0, **options):
        return jg.rigid.simulate(tree, arm.start, qd0, times, **options).q[-1]

    qd0 = jnp.array([1.0, -2.0, 3.0])
    forward = jax.jacfwd(lambda v: end(v, adjoint=diffrax.ForwardMode()))(qd0)
    reverse = jax.jacrev(end)(qd0)
    np.testing.assert_allclose(forward, reverse, rtol=1e-7, atol=1e-10)
    e = 1e-4
    differences = [(end(qd0 + e * d) - end(qd0 - e * d)) / (2 * e) for d in jnp.eye(3)]
    np.testing.assert_allclose(forward.T, differences, rtol=1e-4, atol=1e-6)
