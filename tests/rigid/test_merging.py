"""Merged and locked trees behave as the whole ones, and frames as derivatives of their poses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg

from .conftest import random_rotation
from .test_joints import body, close, robot, state

FramePlacement = jg.rigid.FramePlacement


def fixed_parts(seed=4, passive=True):
    """The robot of several joints with links fixed to it in a row, beside each other, and to the
    base; and frames on links, fixed ones and the base."""
    rng = np.random.default_rng(seed)
    parts = robot(passive)
    flange = body(rng, "flange", "hand", "fixed")
    tool = body(rng, "tool", "flange", "fixed")
    tool = tool._replace(mass=0.0, inertia=np.zeros((3, 3)))
    parts = [
        body(rng, "stand", None, "fixed"),
        *parts[:3],
        flange,
        parts[3]._replace(parent="flange"),
        tool,
        body(rng, "lamp", "hand", "fixed"),
        parts[4],
        body(rng, "nut", "tool", "screw", pitch=0.3, axis=rng.normal(size=3)),
    ]
    at = {"translation": rng.normal(size=3), "rotation": random_rotation(rng)}
    frames = [FramePlacement(f"on {name}", name, **at) for name in (None, "tool", "hand", "stand")]
    tree = jg.rigid.from_placements(
        parts, (0.3, -0.5, -9.81), frames=[*frames, FramePlacement("hand", "hand")]
    )
    return parts, tree


@pytest.mark.long
def test_merged_trees_move_as_whole_ones():
    _, whole = fixed_parts()
    tree = jg.rigid.merge_fixed(whole)
    assert tree.names == tuple(whole.names[i] for i in whole.moving)
    assert set(tree.frames.names) >= {"stand", "flange", "tool", "lamp", "on tool", "hand"}
    q, qd, qdd, tau = state(whole)
    close(jg.rigid.crba(tree, q), jg.rigid.crba(whole, q), 1e-12)
    close(jg.rigid.rnea(tree, q, qd, qdd), jg.rigid.rnea(whole, q, qd, qdd), 1e-12)
    ours, theirs = (jg.rigid.forward_dynamics(t, q, qd, tau) for t in (tree, whole))
    close(ours, theirs, 1e-11)
    difference = jg.rigid.potential_energy(whole, q) - jg.rigid.potential_energy(tree, q)
    at_rest = jg.rigid.neutral(whole)
    other = jg.rigid.potential_energy(whole, at_rest) - jg.rigid.potential_energy(tree, at_rest)
    np.testing.assert_allclose(difference, other, rtol=1e-10)
    for name in (*whole.names, *whole.frames.names):
        for a, b in zip(*(jg.rigid.frame_pose(t, q, name) for t in (tree, whole)), strict=True):
            close(a, b, 1e-13)
    traced = jax.jit(jg.rigid.merge_fixed)(whole)
    for a, b in zip(jax.tree.leaves(traced), jax.tree.leaves(tree), strict=True):
        close(a, b, 1e-13)
    assert jg.rigid.merge_fixed(tree) is tree


@pytest.mark.long
def test_locked_joints_are_held():
    """Poses, and torques of the free joints while the others do not move."""
    _, whole = fixed_parts()
    q, qd, qdd, _ = state(whole)
    held = {name: q[np.array(whole.coordinates_of(name))] for name in ("arm", "nut", "hand")}
    held["hand"] = held["hand"][0]
    tree = jg.rigid.lock(whole, held)
    assert tree.joints == ("base", "finger", "tail")
    free = np.array([k for name in tree.joints for k in whole.rates_of(name)])
    some = np.array([k for name in tree.joints for k in whole.coordinates_of(name)])
    still = jnp.zeros(whole.n).at[free].set(1.0)
    torque = jg.rigid.rnea(whole, q, qd * still, qdd * still)[free]
    close(jg.rigid.rnea(tree, q[some], qd[free], qdd[free]), torque, 1e-12)
    for name in (*whole.names, *whole.frames.names):
        there = jg.rigid.frame_pose(tree, q[some], name), jg.rigid.frame_pose(whole, q, name)
        for a, b in zip(*there, strict=True):
            close(a, b, 1e-13)
    by_angle = jax.jit(lambda x: jg.rigid.crba(jg.rigid.lock(whole, held | {"hand": x}), q[some]))
    step = 1e-6
    slope = (by_angle(held["hand"] + step) - by_angle(held["hand"] - step)) / (2 * step)
    close(jax.jacfwd(by_angle)(held["hand"]), slope, 1e-8)
    with pytest.raises(ValueError, match="There is no joint 'hnd' that moves; perhaps 'hand'"):
        jg.rigid.lock(whole, {"hnd": 0.0})
    with pytest.raises(ValueError, match=r"The value of joint 'arm' has the shape \(\); it must"):
        jg.rigid.lock(whole, {"arm": 0.0})


@pytest.mark.long
def test_frames_move_as_the_derivatives_of_their_poses():
    """Central differences of poses and velocities along q(t) with the accelerations given."""
    _, whole = fixed_parts()
    tree = jg.rigid.merge_fixed(whole)
    q, qd, qdd, _ = state(tree)
    h = 1e-4

    def later(t):
        moved = jg.rigid.integrate(tree, q, t * qd + 0.5 * t * t * qdd)
        return moved, qd + t * qdd

    for name in ("on tool", "tail", "on hand"):
        spot = jg.rigid.frame(tree, name)
        velocity = jg.rigid.frame_velocity(tree, q, qd, spot)
        before, after = (jg.rigid.frame_pose(tree, later(t)[0], name) for t in (-h, h))
        close(velocity[3:], (after.translation - before.translation) / (2 * h), 1e-6)
        now = jg.rigid.frame_pose(tree, q, name).rotation
        spin = (after.rotation - before.rotation) / (2 * h) @ now.T
        close(velocity[:3], jnp.stack([spin[2, 1], spin[0, 2], spin[1, 0]]), 1e-6)
        close(jg.rigid.frame_jacobian(tree, q, name) @ qd, velocity, 1e-14)
        rates = [jg.rigid.frame_velocity(tree, *later(t), name) for t in (-h, h)]
        acceleration = jg.rigid.frame_acceleration(tree, q, qd, qdd, name)
        close(acceleration, (rates[1] - rates[0]) / (2 * h), 1e-6)
        jacobians = [jg.rigid.frame_jacobian(tree, later(t)[0], name) for t in (-h, h)]
        change = jg.rigid.frame_jacobian_rate(tree, q, qd, name)
        close(change, (jacobians[1] - jacobians[0]) / (2 * h), 1e-6)
    jacobian = jg.rigid.frame_jacobian(tree, q, "tail")
    close(jacobian, jg.rigid.body_jacobians(tree, q)[tree.body("tail")], 1e-14)
    np.testing.assert_array_equal(jg.rigid.frame_velocity(tree, q, qd, "stand"), np.zeros(6))


def test_frames_keep_the_axes_of_their_bodies():
    """A body whose axis is x: its own frame is turned in the tree, a frame of its name is not."""
    arm = jg.rigid.Placement("arm", None, (0, 0, 1.0), 1.0, (0, 0, 0), (1.0, 1, 1), (1.0, 0, 0))
    plain = jg.rigid.from_placements([arm])
    tree = jg.rigid.from_placements([arm], frames=[FramePlacement("arm", "arm", (0, 0.5, 0))])
    q = jnp.array([np.pi / 2])
    close(jg.rigid.frame_pose(tree, q, "arm").rotation, [[1, 0, 0], [0, 0, -1], [0, 1, 0]], 1e-15)
    close(jg.rigid.frame_pose(tree, q, "arm").translation, [0, 0, 1.5], 1e-15)
    close(jg.rigid.frame_pose(plain, q, "arm").rotation[:, 2], [1, 0, 0], 1e-15)
    for frames, message in (
        ([FramePlacement("tool", "leg")], "Frame 'tool' is on 'leg', which is no body"),
        ([FramePlacement("arm", None)], "Frame 'arm' has the name of a body that it is not on"),
        ([FramePlacement("a", None)] * 2, "Two frames are called 'a'"),
    ):
        with pytest.raises(ValueError, match=message):
            jg.rigid.from_placements([arm], frames=frames)
    with pytest.raises(ValueError, match="There is no frame 'amr'; perhaps 'arm'"):
        jg.rigid.frame(tree, "amr")
