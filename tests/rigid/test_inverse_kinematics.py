import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy.optimize import least_squares, minimize
from scipy.spatial.transform import Rotation

import jaxgrip as jg

from .test_joints import robot

Frame, FramePose, Placement = jg.rigid.Frame, jg.rigid.FramePose, jg.rigid.Placement
inverse_kinematics = jg.rigid.inverse_kinematics
LENGTHS = (0.5, 0.4)


def planar(lengths):
    """An arm in the plane, and the frame of its tip."""
    numbers = {"mass": 1.0, "com": (0.1, 0.0, 0.0), "inertia": (0.1, 0.1, 0.1)}
    parents, offsets = [None, *range(len(lengths))], [0.0, *lengths]
    bodies = [
        Placement(f"link{k}", None if p is None else f"link{p}", (x, 0.0, 0.0), **numbers)
        for k, (p, x) in enumerate(zip(parents[:-1], offsets[:-1], strict=True))
    ]
    tip = jnp.stack([jnp.asarray(lengths[-1]), jnp.zeros(()), jnp.zeros(())])
    return jg.rigid.from_placements(bodies), Frame(jnp.eye(3), tip, len(lengths) - 1)


def six_joints():
    """The Denavit-Hartenberg parameters of an arm whose last axes do not meet (UR5)."""
    numbers = {"mass": 1.0, "com": (0.0, 0.0, 0.1), "inertia": (0.1, 0.1, 0.1)}
    a, alpha = (0.0, 0.0, -0.425, -0.39225, 0.0, 0.0), np.pi / 2 * np.array([0, 1, 0, 0, 1, -1])
    d = (0.089159, 0.0, 0.0, 0.10915, 0.09465, 0.0823)
    rows = [
        jg.rigid.DHRow(
            f"link{k}", f"link{k - 1}" if k else None, a=a[k], alpha=alpha[k], d=d[k], **numbers
        )
        for k in range(6)
    ]
    return jg.rigid.from_dh(rows)


def elbow(lengths, target, side):
    """Closed form of the arm with two links, by the law of cosines."""
    a, b = lengths
    x, y = target
    q1 = side * jnp.arccos((x * x + y * y - a * a - b * b) / (2 * a * b))
    q0 = jnp.arctan2(y, x) - jnp.arctan2(b * jnp.sin(q1), a + b * jnp.cos(q1))
    return jnp.stack([q0, q1])


@pytest.mark.parametrize("side", [1, -1])
def test_both_elbows_of_two_links_by_the_law_of_cosines(side):
    tree, tip = planar(LENGTHS)
    target = jnp.array([0.3, 0.5])
    start = jnp.array([0.0, float(side)])
    found = inverse_kinematics(tree, tip, jnp.append(target, 0.0), start)
    np.testing.assert_allclose(found.q, elbow(LENGTHS, target, side), atol=1e-14)
    assert found.succeeded
    assert found.message() == ""
    np.testing.assert_allclose(found.cost, jnp.sum((found.q - start) ** 2) / 2, rtol=1e-12)


def test_derivatives_by_target_and_lengths():
    def solved(lengths, target):
        tree, tip = planar(lengths)
        return inverse_kinematics(tree, tip, jnp.append(target, 0.0), jnp.array([0.0, 1.0])).q

    at = (jnp.asarray(LENGTHS), jnp.array([0.3, 0.5]))
    expected = jax.jacobian(lambda *x: elbow(*x, 1), (0, 1))(*at)
    for jacobian in (jax.jacfwd, jax.jacrev):
        ours = jacobian(solved, (0, 1))(*at)
        np.testing.assert_allclose(jnp.hstack(ours), jnp.hstack(expected), atol=1e-10)


def test_out_of_reach_the_arm_points_at_the_target():
    tree, tip = planar(LENGTHS)
    target = jnp.array([1.2, 0.9, 0.0])
    with pytest.raises(jg.rigid.InverseKinematicsError, match=r"0\.6 m and 0 rad remain at"):
        inverse_kinematics(tree, tip, target)

    def q_and_distance(target):
        found = inverse_kinematics(tree, tip, target, throw=False)
        return found.q, found.distance[0]

    q, distance = q_and_distance(target)
    np.testing.assert_allclose(q, [np.arctan2(0.9, 1.2), 0.0], atol=1e-12)
    np.testing.assert_allclose(distance, 0.6, rtol=1e-14)
    slope, line = jax.jacrev(q_and_distance)(target)
    np.testing.assert_allclose(slope, [[-0.4, 8 / 15, 0.0], [0.0, 0.0, 0.0]], atol=1e-6)
    np.testing.assert_allclose(line, [0.8, 0.6, 0.0], atol=1e-12)
    # Folded, the arm reaches no closer than 0.1 m to its base.
    near = inverse_kinematics(tree, tip, jnp.array([0.03, 0.04, 0.0]), throw=False)
    np.testing.assert_allclose(near.distance, 0.05, rtol=1e-12)
    # At the end of its reach.
    edge = inverse_kinematics(tree, tip, jnp.array([0.54, 0.72, 0.0]))
    np.testing.assert_allclose(edge.q, [np.arctan2(0.72, 0.54), 0.0], atol=1e-4)


def test_limits_that_leave_nothing_reachable():
    tree, tip = planar(LENGTHS)
    found = inverse_kinematics(
        tree, tip, (0.3, 0.5, 0.0), lower=(0.0, 0.0), upper=(0.1, 0.1), throw=False
    )
    np.testing.assert_allclose(found.q, [0.1, 0.1], rtol=1e-14)
    tip_at = jg.rigid.frame_pose(tree, found.q, tip).translation
    np.testing.assert_allclose(found.distance, jnp.linalg.norm(tip_at - jnp.array([0.3, 0.5, 0])))
    assert found.result == jg.rigid.RESULTS.out_of_reach


@pytest.mark.long
def test_random_poses_of_six_joints():
    tree = six_joints()
    q = jax.random.uniform(jax.random.key(3), (200, 6), minval=-np.pi, maxval=np.pi)
    pose = jax.vmap(lambda q: jg.rigid.frame_pose(tree, q, "link5"))
    wanted = pose(q)
    found = jax.vmap(lambda p: inverse_kinematics(tree, "link5", p))(wanted)
    assert jnp.all(found.result == jg.rigid.RESULTS.successful)
    ours = pose(found.q)
    np.testing.assert_allclose(ours.translation, wanted.translation, atol=1e-12)
    np.testing.assert_allclose(ours.rotation, wanted.rotation, atol=1e-12)
    # The starts include none of the positions, of which the default cost is the smallest found.
    assert jnp.mean(found.cost <= jnp.sum(q**2, axis=1) / 2 + 1e-9) > 0.9
    # A tool that is turned over, where the rotation vector has no direction.
    half = jg.rigid.frame_pose(tree, jnp.array([0.1, -1.0, 1.0, 0.2, 0.3, np.pi]), "link5")
    over = inverse_kinematics(tree, "link5", half, jnp.array([0.1, -1.0, 1.0, 0.2, 0.3, 0.0]))
    assert over.succeeded


def test_nearest_pose_is_the_least_squares_solution():
    tree, length = six_joints(), 0.3
    turn = Rotation.from_rotvec([0.4, -0.5, 0.6])
    target = FramePose(jnp.asarray(turn.as_matrix()), jnp.array([0.9, 0.3, 0.5]))
    found = inverse_kinematics(tree, "link5", target, length=length, throw=False)
    pose = jax.jit(lambda q: jg.rigid.frame_pose(tree, q, "link5"))

    def missed(q):
        at = pose(q)
        r = np.asarray(at.rotation @ target.rotation.T)
        turn = Rotation.from_matrix(r).as_rotvec()
        return np.concatenate([length * np.asarray(turn), at.translation - target.translation])

    other = least_squares(missed, found.q, xtol=1e-15, ftol=1e-15, gtol=1e-14)
    ours = np.sum(missed(found.q) ** 2)
    np.testing.assert_allclose(ours, 2 * other.cost, rtol=1e-10)
    np.testing.assert_allclose(ours, (length * found.angle[0]) ** 2 + found.distance[0] ** 2)
    assert found.angle > 1e-2
    assert re.search(r"[\d.]+ m and [\d.]+ rad remain at 'link5'", found.message())


WEIGHTS = jnp.array([1.0, 2.0, 3.0, 4.0])


def weighted(weights, q):
    return jnp.sum(weights * (q - 0.1) ** 2) + 0.1 * jnp.sum(jnp.cos(q))


@pytest.mark.long
def test_redundancy_within_limits_as_by_sequential_quadratic_programming():
    tree, tip = planar((0.4, 0.3, 0.3, 0.2))
    upper = jnp.array([0.5, np.inf, 0.35, np.inf])
    lower = jnp.array([-np.inf, -1.0, -np.inf, -np.inf])
    target = jnp.array([0.2, 0.6])

    def solved(weights, target, upper, starts=8):
        cost = jax.tree_util.Partial(weighted, weights)
        return inverse_kinematics(
            tree,
            tip,
            jnp.append(target, 0.0),
            lower=lower,
            upper=upper,
            cost=cost,
            starts=starts,
        ).q

    q = solved(WEIGHTS, target, upper)
    place = jax.jit(lambda q: jg.rigid.frame_pose(tree, q, tip).translation[:2] - target)
    other = minimize(
        jax.jit(jax.value_and_grad(lambda q: weighted(WEIGHTS, q))),
        q + 0.05,
        jac=True,
        method="SLSQP",
        bounds=list(zip(lower, upper, strict=True)),
        constraints={"type": "eq", "fun": place, "jac": jax.jit(jax.jacfwd(place))},
        options={"ftol": 1e-15, "maxiter": 200},
    )
    np.testing.assert_allclose(q, other.x, atol=2e-7)
    held = np.flatnonzero((q <= lower) | (q >= upper))
    assert held.size
    assert held.size < 3
    check_grads(
        solved, (WEIGHTS, target, upper), 1, modes=["fwd", "rev"], atol=1e-6, rtol=1e-6, eps=1e-5
    )


@pytest.mark.long
def test_free_base_and_ball_with_two_frames():
    tree = jg.rigid.from_placements(robot(passive=False))
    rng = np.random.default_rng(5)
    frames = ["finger", "tail"]
    wanted = jg.rigid.integrate(tree, jg.rigid.neutral(tree), jnp.asarray(rng.normal(size=tree.n)))
    pose = jg.rigid.frame_pose(tree, wanted, "finger")
    point = jg.rigid.frame_pose(tree, wanted, "tail").translation

    def solved(position):
        return inverse_kinematics(
            tree, frames, [FramePose(pose.rotation, position), point], starts=4
        )

    found = solved(pose.translation)
    ours = jg.rigid.frame_pose(tree, found.q, "finger")
    np.testing.assert_allclose(ours.rotation, pose.rotation, atol=1e-12)
    np.testing.assert_allclose(ours.translation, pose.translation, atol=1e-12)
    tail = jg.rigid.frame_pose(tree, found.q, "tail").translation
    np.testing.assert_allclose(tail, point, atol=1e-12)
    for joint in ("base", "arm"):
        quaternion = found.q[jnp.array(tree.coordinates_of(joint)[-4:])]
        np.testing.assert_allclose(jnp.linalg.norm(quaternion), 1.0, rtol=1e-14)
    # Nearest to the start on the manifold: what no frame feels is perpendicular to the way there.
    jacobian = np.concatenate(
        [jg.rigid.frame_jacobian(tree, found.q, f)[k:] for f, k in zip(frames, (0, 3), strict=True)]
    )
    free = np.linalg.svd(jacobian)[2][len(jacobian) :]

    def cost(step):
        q = jg.rigid.integrate(tree, found.q, step)
        return jnp.sum(jg.rigid.difference(tree, jg.rigid.neutral(tree), q) ** 2) / 2

    np.testing.assert_allclose(free @ jax.grad(cost)(jnp.zeros(tree.n)), 0.0, atol=1e-8)
    check_grads(
        lambda p: solved(p).q,
        (pose.translation,),
        1,
        modes=["fwd", "rev"],
        atol=1e-5,
        rtol=1e-5,
        eps=1e-5,
    )


@pytest.mark.long
def test_two_fingers_leave_other_joints_alone():
    tree = jg.models.two_finger_gripper()
    q = jnp.array([0.2, -0.4, 0.3, -0.1, 0.5, -0.2])
    tips = [name for name in tree.names if tree.names.index(name) not in tree.parents]
    points = [jg.rigid.frame_pose(tree, q, tip).translation for tip in tips]
    both = inverse_kinematics(tree, tips, points, q + 0.1)
    for tip, point in zip(tips, points, strict=True):
        ours = jg.rigid.frame_pose(tree, both.q, tip).translation
        np.testing.assert_allclose(ours, point, atol=1e-12)
    one = inverse_kinematics(tree, tips[0], points[0], q + 0.1)
    moved = set(np.flatnonzero(one.q != q + 0.1).tolist())
    assert moved
    assert moved <= {0, 1, 2} or moved <= {3, 4, 5}


def test_a_search_for_the_least_cost_that_has_no_end_is_named():
    """The slope of the cost jumps where it is least, so that steps go to and fro."""
    tree, tip = planar((0.4, 0.3, 0.3, 0.2))
    results, place = jg.rigid.RESULTS, jnp.array([0.2, 0.6, 0.0])

    def solve(target):
        def cost(q):
            return jnp.sum(jnp.abs(jnp.sin(50 * q)))

        return jax.jit(lambda t: inverse_kinematics(tree, tip, t, cost=cost))(target)

    found = solve(place)
    assert found.result == results.not_least
    assert found.succeeded
    np.testing.assert_allclose(found.distance, 0.0, atol=1e-9)
    assert found.message().startswith("The targets are reached, but nearby the cost may be lower")
    # A tool that leaves the plane; four joints remain for three errors.
    far = solve(FramePose(jg.spatial.rotation_x(jnp.asarray(0.3)), place))
    assert far.result == results.not_nearest
    assert not far.succeeded
    np.testing.assert_allclose(far.angle, 0.3, atol=1e-6)
    assert re.match(r"The target is out of reach: .* did not come to its end\.", far.message())
    assert inverse_kinematics(tree, tip, place).result == results.successful


def test_what_cannot_be_is_refused_in_a_sentence():
    tree, tip = planar(LENGTHS)
    target = jnp.array([0.3, 0.5, 0.0])
    nan = jnp.full(3, jnp.nan)
    for arguments, more, words in (
        ((tip, nan), {}, "The target of frame 0 is not finite"),
        (("wrist", target), {}, "There is no frame 'wrist'"),
        ((tip, FramePose(2 * jnp.eye(3), target)), {}, "no rotation matrix"),
        (([tip, "link0"], [target]), {}, "2 frames and 1 targets"),
        (([tip], target), {}, "give a list of as many targets"),
        ((tip, target[:2]), {}, r"shape \(2,\)"),
        ((tip, target), {"lower": (0.0, 1.0), "upper": (1.0, 0.5)}, "'link1' is 1, above the"),
        ((tip, target), {"lower": (jnp.nan, 0.0)}, "'link0' is nan"),
        ((tip, target), {"upper": (-jnp.inf, 0.0)}, "'link0' is -inf"),
        ((tip, target), {"starts": 0}, "starts has the shape"),
        ((tip, target), {"length": 0.0}, "length is 0 m; it must be positive"),
        ((tip, target), {"cost": lambda q: q}, r"result of the cost has the shape \(2,\)"),
        ((Frame(jnp.eye(3), jnp.zeros(3), -1), target), {}, "fixed to the base"),
    ):
        with pytest.raises(ValueError, match=words):
            inverse_kinematics(tree, *arguments, **more)


def test_within_programs_the_result_says_it_and_numbers_recompile_nothing(compilations):
    results = jg.rigid.RESULTS

    @jax.jit
    def solve(lengths, target, lower):
        tree, tip = planar(lengths)
        return inverse_kinematics(tree, tip, target, lower=lower, upper=jnp.full(2, 1.5))

    lengths, target, lower = jnp.asarray(LENGTHS), jnp.array([0.7, 0.5, 0.0]), -jnp.ones(2)
    longer, wider, narrower, nowhere = 1.1 * lengths, 2 * lower, -2 * lower, target * jnp.nan
    tree, tip = planar(LENGTHS)
    arms = [tree, planar(longer)[0]]
    found = solve(lengths, target, lower)
    assert found.succeeded
    inverse_kinematics(arms[0], tip, target, lower=lower, seed=1)
    with compilations() as programs:
        other = solve(longer, target, wider)
        lost = solve(lengths, nowhere, lower)
        crossed = solve(lengths, target, narrower)
        inverse_kinematics(arms[1], tip, target, lower=wider, seed=2)
    assert not programs
    assert solve._cache_size() == 1
    assert bool(other.succeeded)
    assert lost.result == results.not_finite
    assert crossed.result == results.crossed_limits
