import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

from .conftest import random_tree


def test_energy_of_free_motion():
    f = jg.models.gripper_finger("A")
    times = jnp.linspace(0.0, 5.0, 26)
    motion = jg.rigid.simulate(f.tree, f.start, jnp.array([1.0, -2.0, 3.0]), times)
    kinetic = jax.vmap(jg.rigid.kinetic_energy, in_axes=(None, 0, 0))(f.tree, motion.q, motion.qd)
    potential = jax.vmap(jg.rigid.potential_energy, in_axes=(None, 0))(f.tree, motion.q)
    total = kinetic + potential
    assert float(jnp.abs(total - total[0]).max()) < 1e-9 * float(jnp.abs(kinetic).max())


@pytest.mark.long
def test_power_of_torques():
    """d(T + U)/dt = qd . tau on a branched tree, as an integral."""
    tree = random_tree(7, 5)
    n = tree.n

    def torque(t, q, qd):
        return jnp.sin(3 * t) * jnp.ones(n) - 0.4 * qd

    times = jnp.linspace(0.0, 1.0, 801)
    motion = jg.rigid.simulate(tree, jnp.zeros(n), jnp.zeros(n), times, torque)
    power = jax.vmap(lambda t, q, qd: qd @ torque(t, q, qd))(*motion)
    energy = [
        jg.rigid.kinetic_energy(tree, motion.q[k], motion.qd[k])
        + jg.rigid.potential_energy(tree, motion.q[k])
        for k in (0, -1)
    ]
    weights = np.ones(801)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    work = float(weights @ power) / 800 / 3
    np.testing.assert_allclose(energy[1] - energy[0], work, rtol=1e-6)


@pytest.mark.long
def test_gradient_through_a_motion():
    f = jg.models.gripper_finger("A")
    times = jnp.linspace(0.0, 0.02, 3)

    def last(qd0):
        return jg.rigid.simulate(f.tree, f.start, qd0, times, rtol=1e-9, atol=1e-9).q[-1, 1]

    start = jnp.array([1.0, -2.0, 3.0])
    gradient = jax.jit(jax.grad(last))(start)
    value = jax.jit(last)
    for k in range(3):
        e = 1e-3 * jnp.eye(3)[k]
        difference = (value(start + e) - value(start - e)) / 2e-3
        np.testing.assert_allclose(gradient[k], difference, rtol=1e-5, atol=1e-8)


def free_joint(qd0, **options):
    """Angle after 2 s of a body that nothing acts upon."""
    inertia = (1.0, 1.0, 1.0)
    body = jg.rigid.Placement("body", None, (0.0, 0.0, 0.0), 1.0, (0.0, 0.0, 0.0), inertia)
    tree = jg.rigid.from_placements([body], gravity=(0.0, 0.0, 0.0))
    times = jnp.array([0.0, 2.0])
    return jg.rigid.simulate(tree, jnp.zeros(1), qd0, times, **options).q[-1]


@pytest.mark.long
def test_forward_derivatives():
    """Without forces q = qd0 t."""
    forward = jax.jacfwd(lambda qd0: free_joint(qd0, adjoint=diffrax.ForwardMode()))
    np.testing.assert_allclose(forward(jnp.ones(1)), [[2.0]], rtol=1e-12)
    with pytest.raises(TypeError, match=r"need adjoint=diffrax\.ForwardMode\(\)"):
        jax.jacfwd(free_joint)(jnp.ones(1))


def test_a_motion_that_stops_says_so():
    with pytest.raises(
        RuntimeError, match=r"^The motion stopped at t = \S+ s after 2 steps: raise"
    ):
        free_joint(jnp.ones(1), max_steps=2)
    compiled = jax.jit(lambda qd0: free_joint(qd0, max_steps=2))
    assert not np.isfinite(compiled(jnp.ones(1))).any()


@pytest.mark.parametrize("late", [0.0, 0.05])
def test_a_torque_that_is_not_finite_ends_the_motion_soon(late):
    """With the default of 100 000 steps, at the time at which the torque is lost."""

    def torque(t, q, qd):
        return jnp.where(t >= late, jnp.nan, 0.0) * jnp.ones(1)

    said = rf"^The motion stopped at t = {late:g} s after \d{{1,3}} steps, where it is no longer"
    with pytest.raises(RuntimeError, match=said):
        free_joint(jnp.ones(1), torque=torque)


@pytest.mark.parametrize(
    ("torque", "sentence"),
    [
        (
            lambda t: jnp.zeros(1),
            r"^The torque is a function of \(t\); it must be a function of \(t",
        ),
        (lambda t, q, qd: None, "^The result of the torque is None; it must be a number"),
        (lambda t, q, qd: 0.0, r"^The result of the torque has the shape \(\); it must be \(1,\)"),
        (lambda t, q, qd: jnp.zeros(5), r"^The result of the torque has the shape \(5,\); it must"),
        (
            lambda t, q, qd: jnp.ones(1, complex),
            "^The result of the torque is .*; it must be a number",
        ),
    ],
)
def test_no_torque(torque, sentence):
    with pytest.raises(ValueError, match=sentence):
        free_joint(jnp.ones(1), torque=torque)


@pytest.mark.parametrize("torque", [lambda *_: [0], lambda *_: np.zeros(1, np.float32)])
def test_torques_of_any_real_numbers(torque):
    """Nothing acts, whatever the type of the zero: q = qd0 t."""
    np.testing.assert_allclose(free_joint(jnp.ones(1), torque=torque), 2.0, rtol=1e-12)


def test_bad_input():
    tree = jg.models.gripper_finger("A").tree
    rest, long = jnp.zeros(3), jnp.zeros(4)
    times = jnp.linspace(0.0, 0.1, 3)
    with pytest.raises(ValueError, match=r"q0 has the shape \(4,\); it must be \(3,\)"):
        jg.rigid.simulate(tree, long, long, times)
    with pytest.raises(ValueError, match="q0 is not finite"):
        jg.rigid.simulate(tree, rest.at[1].set(jnp.nan), rest, times)
    with pytest.raises(ValueError, match=r"times has the shape \(0,\)"):
        jg.rigid.simulate(tree, rest, rest, times[:0])
    for bad in (times[::-1], times.at[1].set(jnp.nan), times.at[2].set(jnp.inf)):
        with pytest.raises(ValueError, match="times must be finite and must not decrease"):
            jg.rigid.simulate(tree, rest, rest, bad)
