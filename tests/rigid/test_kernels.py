"""Many states at once, where each limb is computed in kernels, against one state at a time."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.rigid import _dynamics
from jaxgrip.solve.fusion import LEAST_STATES

from .conftest import random_rotation
from .test_joints import body

BATCHED = {"in_axes": (None, -1, -1, -1), "out_axes": -1}
FUNCTIONS = (jg.rigid.rnea, jg.rigid.forward_dynamics)


@pytest.fixture(scope="module")
def tree():
    """Two limbs of one kind and one of another, with all joints and passive numbers."""
    rng = np.random.default_rng(3)
    kinds = {
        "a": ("screw", "revolute", "prismatic"),
        "b": ("screw", "revolute", "prismatic"),
        "c": ("revolute", "fixed"),
    }
    bodies = [
        jg.rigid.Placement(
            name=f"{limb}{i}",
            parent=f"{limb}{i - 1}" if i else None,
            translation=rng.uniform(-0.3, 0.3, 3),
            mass=rng.uniform(1.0, 2.0),
            com=rng.uniform(-0.2, 0.2, 3),
            inertia=(0.02, 0.03, 0.025),
            axis=rng.normal(size=3),
            rotation=random_rotation(rng),
            joint=kind,
            **({"pitch": 0.1} if kind == "screw" else {}),
        )
        for i in range(3)
        for limb, chain in kinds.items()
        for kind in chain[i : i + 1]
    ]
    return jg.rigid.with_passive(
        jg.rigid.from_placements(bodies),
        armature=np.linspace(0.1, 0.7, 7),
        stiffness=np.linspace(1.0, 2.0, 7),
        damping=0.5,
        friction=0.2,
        friction_speed=0.3,
    )


@pytest.fixture(scope="module")
def states():
    return jnp.asarray(np.random.default_rng(4).normal(size=(3, 7, LEAST_STATES + 5)))


def agree(ours, theirs, tolerance=1e-12):
    scale = np.max(np.abs(theirs))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("limit", [_dynamics.LIMIT, 3])
def test_dynamics_agree_with_few_states(tree, states, limit, monkeypatch):
    """Few states are computed by ordinary operations; below the limit all is in one kernel."""
    monkeypatch.setattr(_dynamics, "LIMIT", limit)
    jax.clear_caches()
    for function in FUNCTIONS:
        many = jax.vmap(function, **BATCHED)
        agree(many(tree, *states)[:, -3:], many(tree, *states[:, :, -3:]))
    jax.clear_caches()


def test_jacobians_agree_with_tangents(tree, states):
    many = jg.rigid.forward_dynamics_derivatives(tree, *states)
    rates = jnp.asarray(np.random.default_rng(5).normal(size=(3, tree.n)))

    @jax.jit
    def tangent(*state):
        return jax.jvp(lambda *x: jg.rigid.forward_dynamics(tree, *x), state, tuple(rates))[1]

    for k in (0, LEAST_STATES + 4):
        ours = sum(by[:, :, k] @ rate for by, rate in zip(many, rates, strict=True))
        agree(ours, tangent(*states[:, :, k]))


def test_gradient_by_the_model(states):
    """The same two states many times have the gradient of these two."""
    tree = jg.rigid.from_dh([jg.rigid.DHRow("a", None, 0.3, 0.4, 2.0, (0.1, 0.2, 0.0), (1, 1, 1))])

    @jax.jit
    def by_mass(states):
        def power(mass):
            heavier = dataclasses.replace(tree, mass=mass)
            return jnp.mean(jax.vmap(jg.rigid.rnea, **BATCHED)(heavier, *states) * states[1])

        return jax.grad(power)(tree.mass)

    few = states[:, :1, :2]
    agree(by_mass(jnp.tile(few, LEAST_STATES)), by_mass(few))


def test_many_trees_and_nested_batches(tree, states):
    """Trees that differ by state are computed by ordinary operations, more axes in one kernel."""
    few = states[:, :, : LEAST_STATES // 2].reshape(3, 7, 2, -1)
    many = jax.vmap(jg.rigid.rnea, **BATCHED)
    nested = jax.jit(jax.vmap(many, **BATCHED))(tree, *few)
    agree(nested[:, 1, 3], jg.rigid.rnea(tree, *few[:, :, 1, 3]))
    masses = jnp.stack([tree.mass, 2 * tree.mass])

    def heavier(mass):
        return many(dataclasses.replace(tree, mass=mass), *states)

    pair = jax.jit(jax.vmap(heavier))(masses)
    agree(pair[0], many(tree, *states))


def moved(tree, count, seed=6):
    """Random states of any tree, (nq or n, count) each."""
    rng = np.random.default_rng(seed)
    step = jnp.asarray(rng.normal(size=(count, tree.n)))
    start = jg.rigid.neutral(tree)
    q = jax.vmap(jg.rigid.integrate, (None, None, 0))(tree, start, step)
    return [q.T, *jnp.asarray(rng.normal(size=(2, tree.n, count)))]


@pytest.fixture(scope="module")
def walker():
    """A free base with a tail and two arms of eight joints, a ball in each, and passive numbers."""
    rng = np.random.default_rng(8)
    kinds = ("revolute", "spherical", "screw", "revolute", "prismatic", "revolute")
    chains = {"left": kinds, "right": kinds, "tail": ("revolute", "revolute")}
    bodies = [body(rng, "base", None, "free")]
    for chain, joints in chains.items():
        for i, kind in enumerate(joints):
            more = {} if kind == "spherical" else {"axis": rng.normal(size=3)}
            more |= {"pitch": 0.1} if kind == "screw" else {}
            more |= {"stiffness": 3.0} if chain == "left" else {}
            more |= {"armature": 0.1, "damping": 0.2}
            parent = f"{chain}{i - 1}" if i else "base"
            bodies.append(body(rng, f"{chain}{i}", parent, kind, **more))
    return jg.rigid.from_placements(bodies)


@pytest.mark.long
@pytest.mark.parametrize("count", [LEAST_STATES - 1, LEAST_STATES, LEAST_STATES + 1, 4096])
def test_limbs_in_pieces_agree_with_few_states(walker, count):
    states = moved(walker, count)
    for function in FUNCTIONS:
        many = jax.jit(jax.vmap(function, **BATCHED))
        few = [x[:, -2:] for x in states]
        agree(many(walker, *states)[:, -2:], many(walker, *few))


@pytest.mark.long
def test_jacobians_of_pieces_agree_with_tangents_and_differences(walker):
    """Also those by the orientations of a free base and of balls."""
    states = moved(walker, LEAST_STATES)
    many = jg.rigid.forward_dynamics_derivatives(walker, *states)
    few = jg.rigid.forward_dynamics_derivatives(walker, *[x[:, -2:] for x in states])
    for ours, theirs in zip(many, few, strict=True):
        agree(ours[:, :, -2:], theirs)
    q, qd, tau = (x[:, -1] for x in states)
    h = 1e-6

    @jax.jit
    def at(step):
        return jg.rigid.forward_dynamics(walker, jg.rigid.integrate(walker, q, step), qd, tau)

    differences = [(at(h * e) - at(-h * e)) / (2 * h) for e in np.eye(walker.n)]
    agree(many[0][:, :, -1], np.stack(differences, axis=1), 1e-7)


@pytest.mark.long
def test_a_state_that_is_not_a_number_spoils_no_other(walker):
    states = moved(walker, LEAST_STATES)
    works = [jax.vmap(f, **BATCHED) for f in FUNCTIONS] + [jg.rigid.forward_dynamics_derivatives]
    for work in map(jax.jit, works):
        good = jax.tree.leaves(work(walker, *states))
        for argument, x in enumerate(states):
            bad = [*states[:argument], x.at[1, 17].set(jnp.nan), *states[argument + 1 :]]
            spoilt = jax.tree.leaves(work(walker, *bad))
            for a, b in zip(good, spoilt, strict=True):
                np.testing.assert_array_equal(np.delete(a, 17, -1), np.delete(b, 17, -1))
            assert np.isnan(spoilt[0][..., 17]).any()


@pytest.mark.long
def test_mixed_arguments_derivatives_and_precisions_of_pieces(walker):
    q, qd, tau = (x.T for x in moved(walker, LEAST_STATES))
    function = jg.rigid.forward_dynamics
    one = jax.vmap(function, (None, 0, None, None))(walker, q, qd[0], tau[0])
    agree(one[5], function(walker, q[5], qd[0], tau[0]))
    inner = jax.vmap(function, (None, None, 0, None))
    both = jax.jit(jax.vmap(inner, (None, 0, None, 0)))(walker, q[:20], qd[:30], tau[:20])
    agree(both[3, 7], function(walker, q[3], qd[7], tau[3]))

    def power(qd, q, tau):
        return jnp.sum(function(walker, q, qd, tau) ** 2)

    agree(
        jax.jit(jax.vmap(jax.grad(power)))(qd, q, tau)[9],
        jax.grad(power)(qd[9], q[9], tau[9]),
    )
    single = jax.tree.map(lambda x: x.astype(jnp.float32), (walker, q, qd, tau))
    rough = jax.vmap(function, (None, 0, 0, 0))(*single)
    assert rough.dtype == jnp.float32
    agree(rough, jax.vmap(function, (None, 0, 0, 0))(walker, q, qd, tau), 1e-4)


@pytest.mark.long
def test_jacobians_of_a_free_robot_as_pinocchio():
    pin = pytest.importorskip("pinocchio")
    rng = np.random.default_rng(9)
    bodies = [body(rng, "base", None, "free")]
    for i in range(8):
        kind = "spherical" if i == 3 else "revolute"
        more = {} if kind == "spherical" else {"axis": (0.0, 0.0, 1.0)}
        bodies.append(body(rng, f"b{i}", bodies[-1].name, kind, **more))
    tree = jg.rigid.from_placements(bodies)
    model, joint = pin.Model(), 0
    for part in bodies:
        place = pin.SE3(np.asarray(part.rotation), np.asarray(part.translation))
        if part.joint == "free":
            joint = model.addJoint(joint, pin.JointModelTranslation(), place, "slides")
            place = pin.SE3.Identity()
        kind = pin.JointModelRZ() if part.joint == "revolute" else pin.JointModelSpherical()
        joint = model.addJoint(joint, kind, place, part.name)
        inertia = pin.Inertia(part.mass, np.asarray(part.com), np.asarray(part.inertia))
        model.appendBodyToJoint(joint, inertia, pin.SE3.Identity())
    states = moved(tree, LEAST_STATES)
    ours = jg.rigid.forward_dynamics_derivatives(tree, *states)
    q, qd, tau = (np.array(x[:, 3]) for x in states)
    # Its quaternions have the scalar last.
    q[3:7], q[10:14] = np.roll(q[3:7], -1), np.roll(q[10:14], -1)
    data = model.createData()
    theirs = pin.computeABADerivatives(model, data, q, qd, tau)
    agree(jax.vmap(jg.rigid.forward_dynamics, **BATCHED)(tree, *states)[:, 3], data.ddq)
    for mine, peer in zip(ours, theirs, strict=True):
        agree(mine[:, :, 3], peer, 1e-10)
