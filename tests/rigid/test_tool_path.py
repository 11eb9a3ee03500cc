"""Paths of tools against their geometry, laws of time, and robots that follow them."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import jaxgrip as jg
from jaxgrip.rigid import FramePose, tool_path
from jaxgrip.rigid.tool_path import ToolPath

ROOT = Path(__file__).parents[2]
NODES = 0.2 * np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1.0]])
NORMALS = np.array([[0, -1, -1], [1, 0, -1], [1, 1, 0.0]])
AT = jax.jit(jax.vmap(tool_path.point_at, (None, 0)))


@pytest.fixture(scope="module")
def path():
    return ToolPath(NODES, NORMALS, 0.02)


def test_paths_are_as_long_as_they_say_and_smooth(path):
    """Unit speed, the tangent along it, the curvature of its turn, frames that are rotations."""
    s = jnp.linspace(0.0, path.length, 3001)
    found = jax.tree.map(np.asarray, AT(path, s))
    step = float(s[1])
    chord = np.diff(found.position, axis=0) / step
    # Between points a curve of the largest curvature is longer than its chord by (step/radius)²/24.
    np.testing.assert_allclose(np.linalg.norm(chord, axis=1), 1.0, atol=(step / 0.02) ** 2 / 20)
    middle = 0.5 * (found.rotation[1:, :, 0] + found.rotation[:-1, :, 0])
    np.testing.assert_allclose(chord, middle, atol=2e-5)
    bend = np.linalg.norm(np.diff(chord, axis=0), axis=1) / step
    np.testing.assert_allclose(bend, found.curvature[1:-1], atol=5e-3)
    np.testing.assert_allclose(found.curvature.max(), 1 / 0.02, rtol=1e-3)
    # Jerk at constant speed is finite: the curvature has no jumps.
    assert np.max(np.abs(np.diff(found.curvature))) < 1.1 * np.pi / (np.pi * 0.02) / 0.02 * step
    products = found.rotation @ np.swapaxes(found.rotation, 1, 2)
    np.testing.assert_allclose(products - np.eye(3), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(found.rotation), 1.0)
    np.testing.assert_allclose(found.position[[0, -1]], NODES[[0, -1]], atol=1e-12)


def test_edges_have_their_normals(path):
    middles = jnp.asarray([0.09, 0.2 + 0.08, float(path.length) - 0.09])
    found = AT(path, middles)
    normals = NORMALS / np.linalg.norm(NORMALS, axis=1)[:, None]
    np.testing.assert_allclose(found.rotation[:, :, 2], normals, atol=1e-12)
    along = np.diff(NODES, axis=0) / 0.2
    np.testing.assert_allclose(found.rotation[:, :, 0], along, atol=1e-12)


@pytest.mark.long
def test_points_have_derivatives_also_at_corners(path):
    check_grads(
        lambda s: tool_path.point_at(path, jnp.asarray(s))[:2],
        (0.21,),
        order=1,
        rtol=1e-5,
        eps=1e-6,
    )

    def moved(shift):
        bent = eqx.tree_at(lambda p: p.nodes, path, path.nodes.at[1, 0].add(shift))
        return tool_path.point_at(bent, jnp.asarray(0.19)).position

    np.testing.assert_allclose(
        jax.jacfwd(moved)(0.0), (moved(1e-6) - moved(-1e-6)) / 2e-6, atol=1e-6
    )


@pytest.mark.parametrize(("acceleration", "jerk"), [(0.05, 10.0), (10.0, 0.5)])
def test_laws_of_time_keep_their_limits(acceleration, jerk):
    law = tool_path.time_law(0.6, 0.05, acceleration, jerk)
    t = jnp.linspace(0.0, law.duration, 4001)
    s = np.asarray(jax.vmap(law.at)(t))
    h = float(t[1])
    speed = np.diff(s) / h
    force = np.diff(speed) / h
    push = np.diff(force) / h
    np.testing.assert_allclose(s[[0, -1]], [0.0, 0.6], atol=1e-12)
    assert speed.max() < 0.05 * (1 + 1e-9)
    assert speed.min() > 0
    largest = np.max(np.abs(force)) / acceleration, np.max(np.abs(push)) / jerk
    np.testing.assert_allclose(max(largest), 1.0, atol=0.02)
    assert np.max(np.abs(force)) < acceleration * 1.001
    assert np.max(np.abs(push)) < jerk * 1.001
    with pytest.raises(ValueError, match="too short to reach"):
        tool_path.time_law(0.001, 0.05, acceleration, jerk)


@pytest.mark.long
def test_a_robot_moves_an_object_under_a_head_and_a_tool_over_it(path):
    """The nozzle is on the path to 1e-9 in both; rates are those of differences."""
    robot = jg.rigid.read_urdf(ROOT / "configs" / "robots" / "ur5.urdf").tree
    frame = jg.rigid.frame(robot, "tool0")
    s = tool_path.spread(path, 20, 60)
    points, slopes = jax.jit(
        jax.vmap(lambda x: jax.jvp(lambda y: tool_path.point_at(path, y), (x,), (jnp.ones(()),)))
    )(s)
    head = FramePose(jnp.eye(3), jnp.asarray([0.45, 0.15, 0.45]))
    hand = FramePose(jnp.eye(3), jnp.asarray([-0.1, -0.1, 0.1]))

    def held(point):
        return tool_path.held_object(point, head, hand)

    poses, by_length = jax.vmap(lambda x, dx: jax.jvp(held, (x,), (dx,)))(points, slopes)
    first = jax.tree.map(lambda x: x[0], poses)
    start = jg.rigid.inverse_kinematics(robot, frame, first, starts=32).q
    found = jax.jit(lambda p, q: tool_path.follow(robot, frame, p, q))(poses, start)
    assert np.max(found.distance) < 1e-10
    assert np.max(found.angle) < 1e-10
    tips = jax.vmap(lambda q: jg.rigid.frame_pose(robot, q, frame))(found.q)
    origin = jnp.einsum("nij,j->ni", tips.rotation, hand.translation) + tips.translation
    nozzle = jnp.einsum("nji,nj->ni", tips.rotation, head.translation[None] - origin)
    np.testing.assert_allclose(nozzle, points.position, atol=1e-9)
    rates = jax.vmap(lambda q, x, dx: tool_path.joint_rates(robot, frame, q, x, dx))(
        found.q, poses, by_length
    )
    step = np.diff(s)[:, None]
    mean = 0.5 * (rates[1:] + rates[:-1])
    np.testing.assert_allclose(
        np.diff(found.q, axis=0) / step, mean, atol=0.02 * np.max(np.abs(rates))
    )
    # The hand turns as fast as the path bends.
    jacobian = jax.vmap(lambda q: jg.rigid.frame_jacobian(robot, q, frame)[:3])(found.q)
    turning = jnp.sqrt(jnp.sum(jnp.einsum("nij,nj->ni", jacobian, rates) ** 2, axis=1))
    assert np.all(turning >= points.curvature - 1e-9)
    over = tool_path.held_tool(jax.tree.map(lambda x: x[7], points), head, hand)
    tool = over.rotation @ hand.translation + over.translation
    np.testing.assert_allclose(tool, points.position[7] + head.translation, atol=1e-12)


def test_paths_that_are_none_get_a_sentence():
    with pytest.raises(ValueError, match=r"Edge 2 is 0\.2 m long, its corners take"):
        ToolPath(NODES, NORMALS, 0.1)
    with pytest.raises(ValueError, match="Nodes 1 and 2 are at the same place"):
        ToolPath(NODES[[0, 0, 1]], NORMALS[:2], 0.01)
    with pytest.raises(ValueError, match="turns back at node 2"):
        ToolPath(NODES[[0, 1, 0]], NORMALS[:2], 0.001)
    with pytest.raises(ValueError, match="normal of edge 1 lies along it"):
        ToolPath(NODES[:2], np.array([[1.0, 0, 0]]), 0.01)
    with pytest.raises(ValueError, match="it must be"):
        ToolPath(NODES, NORMALS[:2], 0.01)
    with pytest.raises(ValueError, match="radius is -1"):
        ToolPath(NODES, NORMALS, -1.0)
