from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxgrip as jg
from jaxgrip import config

CONFIG = Path(__file__).parents[2] / "configs" / "gripper_time_optimal.toml"
# Independent values (NumPy), angles in degrees.
POSES = [
    ((0, 0, 0), (3.1880833333e-3, 2.0809166667e-3, 7.4791666667e-4), (-0.2334780, -0.0686700)),
    (
        (0, -20, -30),
        (2.4173873399e-3, 1.9683780058e-3, 6.9164733626e-4),
        (-0.1990090866, -0.0441402252),
    ),
    (
        (-180, -35, -25),
        (1.8868250410e-3, 2.0022152078e-3, 7.0856593722e-4),
        (-0.1693378101, -0.0343350000),
    ),
    (
        (80, -65, -60),
        (3.4921452975e-4, 1.6609166667e-3, 5.3791666667e-4),
        (-0.0302633766, 0.0393874939),
    ),
]


def closed_form(q, qd):
    """Mass matrix and bias of one finger, own derivation."""
    m1, m2, m3 = 0.08, 0.16, 0.20
    l1, l2, l3 = 0.02, 0.06, 0.07
    z1, z2, z3 = 19 / 6 * 1e-6, 4.9e-5, 995 / 12 * 1e-6
    x2, x3, g = 2.0e-6, 2.5e-6, 9.81
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
    b = m3 * l2 * l3 * s3 / 2
    weight3 = g * m3 * l3 / 2 * c23
    h = [
        qd[0] * (a2 * qd[1] + a3 * qd[2]),
        -a2 * qd[0] ** 2 / 2
        - b * (2 * qd[1] * qd[2] + qd[2] ** 2)
        - g * (m2 * l2 / 2 + m3 * l2) * c2
        - weight3,
        -a3 * qd[0] ** 2 / 2 + b * qd[1] ** 2 - weight3,
    ]
    return np.array([[m11, 0, 0], [0, m22, m23], [0, m23, m33]]), np.array(h)


@pytest.mark.parametrize("seed", range(5))
def test_closed_form(finger, seed):
    q, qd = np.random.default_rng(seed).normal(size=(2, 3)) * np.array([[1.0], [20.0]])
    mass, bias = closed_form(q, qd)
    ours = jg.rigid.crba(finger.tree, jnp.asarray(q))
    np.testing.assert_allclose(ours, mass, rtol=1e-12, atol=1e-12 * mass.max())
    ours = jg.rigid.bias_forces(finger.tree, jnp.asarray(q), jnp.asarray(qd))
    np.testing.assert_allclose(ours, bias, rtol=0, atol=1e-12 * np.abs(bias).max())


@pytest.mark.parametrize(("angles", "masses", "weights"), POSES)
def test_reference_poses(finger, angles, masses, weights):
    q = jnp.deg2rad(jnp.array(angles, dtype=float))
    m = jg.rigid.crba(finger.tree, q)
    np.testing.assert_allclose([m[0, 0], m[1, 1], m[1, 2]], masses, rtol=1e-10)
    np.testing.assert_allclose(m[2, 2], 3.2791666667e-4, rtol=1e-10)
    np.testing.assert_allclose(m[0, 1:], 0, atol=1e-17)
    g = jg.rigid.bias_forces(finger.tree, q, jnp.zeros(3))
    np.testing.assert_allclose(g, (0.0, *weights), rtol=1e-9, atol=1e-16)


def test_reference_motion(finger):
    q = jnp.deg2rad(jnp.array([0.0, -20, -30]))
    qd, qdd = jnp.array([10.0, -20, 30]), jnp.array([100.0, -200, 300])
    np.testing.assert_allclose(
        jg.rigid.bias_forces(finger.tree, q, qd),
        (-0.0860539698, -0.3689952941, -0.1851220352),
        rtol=1e-9,
    )
    np.testing.assert_allclose(
        jg.rigid.rnea(finger.tree, q, qd, qdd),
        (0.1556847642, -0.5551766944, -0.2250765025),
        rtol=1e-9,
    )
    body = jg.rigid.rnea_bodies(finger.tree, q, qd, qdd)
    expected = {
        "w": (7.6604444312, -6.4278760969, 10),
        "wd": (12.3256833432, -140.8832052806, 100),
        "vd": (-12.1794255645, -34.5492180450, -0.5703277151),
        "F": (-3.4251082507, -6.5545263226, 1.4083480041),
        "N": (3.0814e-5, -0.067134019979, -0.22507650246),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(body, name)[2], value, rtol=1e-9, atol=3e-9)
    np.testing.assert_allclose(body.F[0], (-10.2062772396, 1.6027217869, 4.1892094057), rtol=1e-10)


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [
        # The height of A at the start is 0.02 + 0.06 sin 20 deg + 0.07 sin 50 deg.
        ("A", (0.1213766899, 0, 0.0941443196), (0.0009041418, 0.0051276430, 0.1317191103)),
        ("B", (-0.1041491227, 0, 0.1150363645), (-0.0009041418, -0.0051276430, 0.1317191103)),
    ],
)
def test_tips(name, start, end):
    f = jg.models.gripper_finger(name)
    last = f.tree.names[-1]
    for angles, tip in ((f.start, start), (f.end, end)):
        np.testing.assert_allclose(
            jg.rigid.body_point(f.tree, angles, last, f.tip), tip, atol=6e-11, rtol=0
        )


@pytest.mark.parametrize("name", ["A", "B"])
def test_published_bang_bang_controls_reach_the_end(name):
    """Schanzer 2007, appendix A, started with the signs +, -, -."""
    f = jg.models.gripper_finger(name)
    _, experiment = config.load(CONFIG)
    published, joints = experiment.PUBLISHED[name], experiment.JOINTS[name]
    final_time = published["final_time"]
    controls = [joints.index(joint) for joint in published["switching_joints"]]
    switches = zip(published["switching_tau"], controls, strict=True)
    space = jg.rigid.StateSpace(f.tree)
    rate = jax.jit(lambda x, u: space(x, u))
    u = np.array([1.0, -1.0, -1.0]) * np.asarray(f.torque_limit)
    x, now = np.concatenate([f.start, np.zeros(3)]), 0.0
    for instant, control in (*switches, (1.0, 0)):
        step = solve_ivp(
            lambda t, x, u=u: np.asarray(rate(jnp.asarray(x), jnp.asarray(u))),
            (now * final_time, instant * final_time),
            x,
            method="DOP853",
            rtol=1e-10,
            atol=1e-10,
        )
        x, now = step.y[:, -1], instant
        u = u * np.where(np.arange(3) == control, -1.0, 1.0)
    assert np.abs(x[:3] - f.end).max() < 2e-5
    assert np.abs(x[3:]).max() < 1e-3


def test_both_fingers_on_one_base():
    tree = jg.models.two_finger_gripper()
    assert tree.n == 6
    assert tree.parents == (-1, 0, 1, -1, 3, 4)
    q, qd, tau = jnp.asarray(np.random.default_rng(1).normal(size=(3, 6)))
    whole = jg.rigid.forward_dynamics(tree, q, qd, tau)
    a, b = jg.models.gripper_finger("A").tree, jg.models.gripper_finger("B").tree
    halves = [
        jg.rigid.forward_dynamics(a, q[:3], qd[:3], tau[:3]),
        jg.rigid.forward_dynamics(b, q[3:], qd[3:], tau[3:]),
    ]
    np.testing.assert_allclose(whole, jnp.concatenate(halves), rtol=1e-12)
    m = jg.rigid.crba(tree, q)
    np.testing.assert_array_equal(m[:3, 3:], np.zeros((3, 3)))


def test_limits():
    f = jg.models.gripper_finger("B")
    np.testing.assert_allclose(f.torque_limit, (0.20, 0.47, 0.35))
    limits = ((-270, -90), (-90, 10), (-170, 0))
    np.testing.assert_allclose(jnp.rad2deg(f.position_limits), limits)
    np.testing.assert_allclose(f.velocity_limit, (65, 65, 65))


@pytest.mark.soak
def test_derivative_by_lengths_and_masses():
    q, qd, tau = jnp.array([0.1, -0.4, -0.5]), jnp.array([3.0, -5, 4]), jnp.array([0.2, -0.4, 0.3])

    def acceleration(lengths, masses):
        f = jg.models.gripper_finger("A", link_lengths=lengths, masses=masses)
        return jg.rigid.forward_dynamics(f.tree, q, qd, tau)

    lengths, masses = jnp.array([0.02, 0.06, 0.07]), jnp.array([0.08, 0.16, 0.20])
    ours = jax.jit(jax.jacrev(acceleration, argnums=(0, 1)))(lengths, masses)
    value = jax.jit(acceleration)
    step = 1e-6
    for k in range(3):
        e = step * jnp.eye(3)[k]
        by_length = (value(lengths + e, masses) - value(lengths - e, masses)) / (2 * step)
        by_mass = (value(lengths, masses + e) - value(lengths, masses - e)) / (2 * step)
        scale = float(jnp.abs(by_length).max())
        np.testing.assert_allclose(ours[0][:, k], by_length, atol=1e-7 * scale)
        np.testing.assert_allclose(
            ours[1][:, k], by_mass, atol=1e-7 * float(jnp.abs(by_mass).max())
        )


def test_bad_input():
    with pytest.raises(ValueError, match="no finger 'C'"):
        jg.models.gripper_finger("C")
    with pytest.raises(ValueError, match="link_lengths of the gripper has the shape"):
        jg.models.gripper_finger("A", link_lengths=(0.1, 0.2))
    with pytest.raises(ValueError, match=r"link_lengths of the gripper is .*; it must be a number"):
        jg.models.gripper_finger("A", link_lengths=((0.1,), (0.2, 0.3)))
    with pytest.raises(ValueError, match=r"masses of the gripper is .*-0\.1.*must be positive"):
        jg.models.gripper_finger("A", masses=(0.08, -0.1, 0.2))
    with pytest.raises(ValueError, match=r"torque_limit of the gripper is .*must be positive"):
        jg.models.gripper_finger("A", torque_limit=(0.08, 0.0, 0.2))
    with pytest.raises(ValueError, match="masses of the gripper is not finite"):
        jg.models.two_finger_gripper(masses=(float("nan"), 0.1, 0.2))
    with pytest.raises(ValueError, match=r"d of body 'link1' has the shape \(2,\)"):
        jg.models.two_finger_gripper(base_height=np.array([0.02, 0.03]))


@pytest.fixture(scope="module")
def finger():
    return jg.models.gripper_finger("A")
