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
