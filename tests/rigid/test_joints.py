"""Joints with several axes, screws and passive numbers, against MuJoCo and Pinocchio."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxgrip as jg

from .conftest import random_rotation

Placement = jg.rigid.Placement


def close(a, b, tolerance=1e-10):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(float(np.abs(b).max()), 1e-3))


def body(rng, name, parent, joint, **more):
    turn, masses = random_rotation(rng), rng.uniform(0.1, 0.5, 3)
    place = {"translation": rng.uniform(-0.3, 0.3, 3), "rotation": random_rotation(rng)}
    if joint == "free":
        place = {"translation": np.zeros(3), "rotation": np.eye(3)}
    return Placement(
        name,
        parent,
        mass=rng.uniform(0.5, 2.0),
        com=rng.uniform(-0.2, 0.2, 3),
        inertia=turn @ np.diag(0.1 * (masses.sum() - masses)) @ turn.T,
        joint=joint,
        **place,
        **more,
    )


def robot(passive=True, seed=1):
    """A free base that carries a ball with two joints, and a slide."""
    rng = np.random.default_rng(seed)
    numbers = [
        {},
        {"stiffness": 3.0, "damping": (0.1, 0.2, 0.3), "armature": (0.02, 0.03, 0.04)},
        {"stiffness": 2.0, "reference": 0.3, "damping": 0.4, "armature": 0.1},
        {"armature": 0.2},
        {"damping": 0.6, "stiffness": 5.0, "reference": -0.1},
    ]
    kinds = ("free", "spherical", "revolute", "revolute", "prismatic")
    parents = (None, "base", "arm", "hand", "base")
    names = ("base", "arm", "hand", "finger", "tail")
    return [
        body(
            rng,
            *(name, parent, kind),
            **({"axis": rng.normal(size=3)} if kind in ("revolute", "prismatic") else {}),
            **(some if passive else {}),
        )
        for name, parent, kind, some in zip(names, parents, kinds, numbers, strict=True)
    ]


def mjcf(bodies):
    def text(x):
        return " ".join(f"{y:.17g}" for y in np.atleast_1d(x))

    def one(b):
        i, rotation = np.asarray(b.inertia), np.asarray(b.rotation)
        full = (i[0, 0], i[1, 1], i[2, 2], i[0, 1], i[0, 2], i[1, 2])
        kind = {"spherical": "ball", "revolute": "hinge", "prismatic": "slide"}.get(
            b.joint, b.joint
        )
        axis = f'axis="{text(b.axis)}"' if kind in ("hinge", "slide") else ""
        ref = f'springref="{b.reference}"' if b.reference is not None else ""
        spring = f'stiffness="{b.stiffness}" {ref}' if b.stiffness else ""
        joint = f'<joint name="{b.name}" type="{kind}" {axis} {spring}/>'
        inside = "".join(one(c) for c in bodies if c.parent == b.name)
        xy = f"{text(rotation[:, 0])} {text(rotation[:, 1])}"
        return (
            f'<body name="{b.name}" pos="{text(b.translation)}" xyaxes="{xy}">{joint}<inertial '
            f'pos="{text(b.com)}" mass="{b.mass:.17g}" fullinertia="{text(full)}"/>{inside}</body>'
        )

    world = "".join(one(b) for b in bodies if b.parent is None)
    return (
        '<mujoco><compiler angle="radian"/><option gravity="0.3 -0.5 -9.81"/>'
        f"<worldbody>{world}</worldbody></mujoco>"
    )


def state(tree, seed=2):
    rng = np.random.default_rng(seed)
    q = jg.rigid.integrate(tree, jg.rigid.neutral(tree), rng.normal(size=tree.n))
    return q, *map(jnp.asarray, rng.normal(size=(3, tree.n)))


@pytest.mark.parametrize("passive", [False, True])
@pytest.mark.long
def test_free_and_ball_joints_as_mujoco(passive):
    mujoco = pytest.importorskip("mujoco")
    bodies = robot(passive)
    tree = jg.rigid.from_placements(bodies, (0.3, -0.5, -9.81))
    assert (tree.n, tree.nq, tree.joints) == (12, 14, ("base", "arm", "hand", "finger", "tail"))
    assert tree.rates_of("arm") == (6, 7, 8)
    assert tree.coordinates_of("arm") == (7, 8, 9, 10)
    assert tree.coordinates_of("hand") == (11,)
    model = mujoco.MjModel.from_xml_string(mjcf(bodies))
    if passive:
        model.dof_armature[:] = tree.passive.armature
        model.dof_damping[:] = tree.passive.damping
    data = mujoco.MjData(model)
    q, qd, qdd, tau = state(tree)
    data.qpos[:], data.qvel[:], data.qfrc_applied[:] = q, qd, tau
    mujoco.mj_forward(model, data)
    m = np.zeros((12, 12))
    for k in range(12):
        mujoco.mj_mulM(model, data, m[k], np.eye(12)[k])
    close(jg.rigid.crba(tree, q), m)
    close(jg.rigid.bias_forces(tree, q, qd), data.qfrc_bias - data.qfrc_passive)
    close(-jg.rigid.passive_forces(tree, q, qd), data.qfrc_passive)
    for accelerations in (jg.rigid.forward_dynamics, jg.rigid.aba):
        close(accelerations(tree, q, qd, tau), data.qacc)
    close(jg.rigid.solve_mass(tree, q, tau), np.linalg.solve(m, tau))
    data.qacc[:] = qdd
    data.qfrc_applied[:] = 0
    mujoco.mj_inverse(model, data)
    close(jg.rigid.rnea(tree, q, qd, qdd), data.qfrc_inverse)
    place = jg.rigid.forward_kinematics(tree, q)
    for name in tree.joints:
        i = tree.body(name)
        close(place.translation[i], data.body(name).xpos)
        if name in ("base", "arm"):
            close(place.rotation[i], data.body(name).xmat.reshape(3, 3))
    mujoco.mj_energyPos(model, data)
    mujoco.mj_energyVel(model, data)
    close(jg.rigid.potential_energy(tree, q), data.energy[0])
    close(jg.rigid.kinetic_energy(tree, q, qd), data.energy[1])
    step = np.zeros(12)
    mujoco.mj_differentiatePos(model, step, 1.0, np.asarray(q), np.asarray(state(tree, 3)[0]))
    close(jg.rigid.difference(tree, q, state(tree, 3)[0]), step)
    moved = np.array(q)
    mujoco.mj_integratePos(model, moved, np.asarray(qd), 0.3)
    close(jg.rigid.integrate(tree, q, 0.3 * qd), moved)


def test_integrate_and_difference_are_inverse_and_smooth_at_zero():
    tree = jg.rigid.from_placements(robot())
    q, step, *_ = state(tree)
    close(jg.rigid.difference(tree, q, jg.rigid.integrate(tree, q, step)), step, 1e-14)
    zero = jnp.zeros(tree.n)
    np.testing.assert_allclose(jg.rigid.difference(tree, q, q), zero, atol=1e-16)
    there = jax.jacfwd(lambda d: jg.rigid.difference(tree, q, jg.rigid.integrate(tree, q, d)))
    close(there(zero), np.eye(tree.n), 1e-14)
    start = jg.rigid.neutral(tree)
    check_grads(lambda d: jg.rigid.integrate(tree, start, d), (zero,), 1, rtol=1e-6, atol=1e-6)


def numbers_of(tree):
    return eqx.partition(tree, eqx.is_inexact_array)


FUNCTIONS = {
    "rnea": lambda t, q, v, a: jg.rigid.rnea(t, q, v, a),
    "forward": lambda t, q, v, a: jg.rigid.forward_dynamics(t, q, v, a),
    "aba": lambda t, q, v, a: jg.rigid.aba(t, q, v, a),
    "energies": lambda t, q, v, a: (
        jg.rigid.kinetic_energy(t, q, v) + jg.rigid.potential_energy(t, q),
        *jg.rigid.body_energies(t, q, v),
    ),
}


def varied(tree, change):
    """The tree with other passive numbers and masses."""
    passive = jax.tree.map(lambda x: x * (1 + change), tree.passive)
    return eqx.tree_at(lambda t: (t.passive, t.mass), tree, (passive, tree.mass * (1 + change)))


@pytest.mark.long
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_derivatives_both_modes(name):
    """By the state, the masses and the passive numbers, also at rest in the neutral position."""
    parts = robot()[:3]
    parts[0] = parts[0]._replace(joint="planar", translation=(0.1, 0.2, 0.3))
    parts[2] = parts[2]._replace(friction=0.3, friction_speed=0.5)
    tree = jg.rigid.from_placements(parts)
    compiled = jax.jit(lambda c, *state: FUNCTIONS[name](varied(tree, c), *state))
    zero = jnp.zeros(tree.n)
    for at in (state(tree)[:3], (jg.rigid.neutral(tree), zero, zero)):
        check_grads(compiled, (jnp.zeros(()), *at), 1, rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_unrolled_trees_agree_with_scanned_ones(monkeypatch):
    from jaxgrip.rigid import _recursion as recursion

    parts = robot()[1:4]
    parts[0] = parts[0]._replace(parent=None)
    parts.append(body(np.random.default_rng(5), "nut", "arm", "screw", pitch=0.2, armature=0.1))
    rng = np.random.default_rng(6)
    for name, joint in (("table", "planar"), ("loose", "free")):
        moved = body(rng, name, "arm", joint)._replace(rotation=random_rotation(rng))
        parts.append(moved._replace(translation=rng.normal(size=3)))
    tree = jg.rigid.from_placements(parts)
    q, qd, qdd, tau = state(tree)

    def everything():
        return (
            jg.rigid.rnea.__wrapped__(tree, q, qd, qdd),
            jg.rigid.crba.__wrapped__(tree, q),
            jg.rigid.aba.__wrapped__(tree, q, qd, tau),
            jg.rigid.forward_dynamics.__wrapped__(tree, q, qd, tau),
            jg.rigid.forward_kinematics.__wrapped__(tree, q),
        )

    results = []
    for limit in (0, 99):
        jax.clear_caches()
        monkeypatch.setattr(recursion, "UNROLL_LIMIT", limit)
        results.append(jax.jit(lambda: everything())())
    jax.clear_caches()
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        close(a, b, 1e-12)


def test_dry_friction_and_springs_of_a_slide():
    """m a = tau - k (q - q0) - d v - f tanh(v / v0) of a mass with an armature, written out."""
    one = Placement("mass", None, np.zeros(3), 2.0, np.zeros(3), (1.0, 1.0, 1.0), joint="prismatic")
    one = one._replace(armature=0.5, stiffness=7.0, reference=0.2, damping=0.3, friction=1.1)
    tree = jg.rigid.from_placements([one._replace(friction_speed=0.4)], (0.0, 0.0, 0.0))
    q, v, tau = jnp.array([0.5]), jnp.array([-0.3]), jnp.array([4.0])
    held = 7.0 * 0.3 - 0.3 * 0.3 + 1.1 * np.tanh(-0.3 / 0.4)
    for accelerations in (jg.rigid.forward_dynamics, jg.rigid.aba):
        np.testing.assert_allclose(accelerations(tree, q, v, tau), [(4.0 - held) / 2.5], rtol=1e-14)
    np.testing.assert_allclose(jg.rigid.rnea(tree, q, v, tau), [2.5 * 4.0 + held], rtol=1e-14)
    np.testing.assert_allclose(jg.rigid.potential_energy(tree, q), 3.5 * 0.09, rtol=1e-14)
    np.testing.assert_allclose(jg.rigid.gravity_forces(tree, q), [0.0], atol=0)
    many = jg.rigid.forward_dynamics_derivatives(tree, q[:, None], v[:, None], tau[:, None])
    slope = 0.3 + 1.1 / 0.4 / np.cosh(0.3 / 0.4) ** 2
    for ours, exact in zip(many, (-7.0 / 2.5, -slope / 2.5, 1 / 2.5), strict=True):
        np.testing.assert_allclose(ours, [[[exact]]], rtol=1e-13)
    assert jg.rigid.with_passive(tree).passive is None


def test_bad_passive_numbers():
    rest = robot()
    for change, message in (
        ({"armature": -1.0}, "armature of the joint of body 'arm' is -1; it must not be negative"),
        ({"stiffness": (1.0, 2.0, 3.0)}, "stiffness of joint 'arm' is .*same about all axes"),
        ({"damping": (1.0, 2.0)}, r"damping of the joint of body 'arm' has the shape \(2,\)"),
        ({"reference": 0.1}, r"reference of the joint of body 'arm' has the shape \(\)"),
        ({"axis": (1.0, 0.0, 0.0)}, "'arm' has a spherical joint, which takes no axis"),
        ({"joint": "screw"}, "The joint of body 'arm' is screw and needs a pitch"),
        ({"joint": "hinge"}, "unknown joint type 'hinge'; allowed are .*spherical, free, planar"),
        ({"joint_name": "base"}, "Two joints are called 'base'"),
    ):
        bad = [rest[0], rest[1]._replace(**change), *rest[2:]]
        with pytest.raises(ValueError, match=message):
            jg.rigid.from_placements(bad)


def test_what_has_no_meaning_with_quaternions_says_so():
    tree = jg.rigid.from_placements(robot())
    q, qd, *_ = state(tree)
    for refused in (
        lambda: jg.rigid.christoffel(tree, q),
        lambda: jg.rigid.coriolis_matrix(tree, q, qd),
        lambda: jg.rigid.StateSpace(tree),
        lambda: jg.flexible.FlexibleTree(tree, {}),
        lambda: jg.mechanism.loops.Mechanism(tree),
    ):
        with pytest.raises(ValueError, match="quaternion of joint 'base'"):
            refused()


@pytest.mark.long
def test_mechanisms_use_passive_numbers_and_screws():
    """Without loops a mechanism is its tree."""
    parts = [part._replace(parent=None) for part in robot()[2:3]]
    parts.append(body(np.random.default_rng(5), "nut", "hand", "screw", pitch=0.2, damping=0.1))
    tree = jg.rigid.from_placements(parts)
    q, qd, _, tau = state(tree)
    mechanism = jg.mechanism.loops.Mechanism(tree)
    ours, _ = jg.mechanism.loops.forward_dynamics(mechanism, q, qd, tau)
    close(ours, jg.rigid.forward_dynamics(tree, q, qd, tau), 1e-12)
