"""Hand-eye calibration: exact data, noise inside its covariance, sets that tell nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from scipy.spatial.transform import Rotation

from jaxgrip import fitting
from jaxgrip.spatial import dual_quaternions as dq

Q = (Rotation.from_rotvec([0.3, -1.2, 0.5]).as_matrix(), np.array([0.03, -0.05, 0.12]))
X = (Rotation.from_rotvec([2.0, 0.4, -0.3]).as_matrix(), np.array([0.6, 0.1, -0.2]))


def made(count, seed=0, noise=(0.0, 0.0), turns=None, camera=Q):
    """Poses of hand and camera; noise turns and moves the camera in its own axes."""
    rng = np.random.default_rng(seed)
    turns = rng.normal(size=(count, 3)) if turns is None else turns
    hand = Rotation.from_rotvec(turns).as_matrix()
    at = np.array([0.4, 0.0, 0.5]) + 0.2 * rng.normal(size=(count, 3))
    seen = X[0].T @ hand @ camera[0]
    place = (hand @ camera[1] + at - X[1]) @ X[0]
    place = place + noise[1] * np.einsum("nij,nj->ni", seen, rng.normal(size=(count, 3)))
    seen = seen @ Rotation.from_rotvec(noise[0] * rng.normal(size=(count, 3))).as_matrix()
    return (hand, at), (seen, place)


@pytest.mark.parametrize("count", [3, 10])
def test_exact_poses_give_the_camera_back(count):
    found = fitting.hand_eye(*made(count))
    np.testing.assert_allclose(found.rotation, Q[0], atol=1e-10)
    np.testing.assert_allclose(found.translation, Q[1], atol=1e-10)
    np.testing.assert_allclose(found.target_rotation, X[0], atol=1e-10)
    np.testing.assert_allclose(found.target_translation, X[1], atol=1e-10)
    assert np.max(np.abs(found.residuals)) < 1e-10
    hand, camera = (jax.vmap(dq.from_matrix)(*map(jnp.asarray, x)) for x in made(count))
    q = fitting.linear_hand_eye(hand, camera)
    np.testing.assert_allclose(dq.rotation(q), Q[0], atol=1e-9)
    np.testing.assert_allclose(dq.translation(q), Q[1], atol=1e-9)


def recovered(sets, truth):
    """By how much the linear start and the result miss the cameras, the largest of each set."""
    poses = [
        [jax.vmap(dq.from_matrix)(jnp.asarray(turns), jnp.asarray(at)) for turns, at in one]
        for one in sets
    ]
    hands, cameras = (jnp.stack([one[k] for one in poses]) for k in (0, 1))
    true = jax.vmap(dq.from_matrix)(
        *(jnp.stack([jnp.asarray(q[k]) for q in truth]) for k in (0, 1))
    )

    @jax.jit
    @jax.vmap
    def solve(hand, camera, q):
        start = fitting.linear_hand_eye(hand, camera)
        found = fitting.refined_hand_eye(hand, camera, start)[0]
        return [jnp.abs(dq.logarithm(dq.product(dq.conjugate(x), q))) for x in (start, found)]

    return [np.max(np.asarray(x), axis=1) for x in solve(hands, cameras, true)]


def test_cameras_may_look_anywhere():
    """Exact poses of random robots, targets and cameras, also of those turned by half a turn."""
    rng = np.random.default_rng(5)
    turns = [Rotation.random(random_state=s).as_matrix() for s in range(60)]
    turns += [np.diag(x) for x in ([1.0, -1, -1], [-1.0, 1, -1], [-1.0, -1, 1])]
    cameras = [(turn, 0.1 * rng.normal(size=3)) for turn in turns]
    hands = [Rotation.random(6, random_state=100 + s).as_rotvec() for s in range(len(turns))]
    sets = [
        made(6, s, turns=hand, camera=q)
        for s, (hand, q) in enumerate(zip(hands, cameras, strict=True))
    ]
    start, found = recovered(sets, cameras)
    assert np.max(start) < 1e-7
    assert np.max(found) < 1e-10


def test_turns_near_a_half_are_matched():
    turns = np.array([[0, 0, 0], [np.pi - 1e-4, 0, 0], [0, np.pi - 1e-3, 0], [0.3, 0.2, -3.0]])
    found = fitting.hand_eye(*made(4, turns=turns))
    np.testing.assert_allclose(found.translation, Q[1], atol=1e-9)
    # With noise, which decides the signs there.
    turns = np.array([[0, 0, 0], [np.pi, 0, 0], [0, np.pi, 0], [0.3, 0.2, -3.0], [1, 0.2, 0.4]])
    sets = [made(5, seed, (1e-3, 1e-3), turns) for seed in range(30)]
    assert np.max(recovered(sets, [Q] * 30)[1]) < 0.01


def test_errors_are_those_of_the_covariance():
    """Ten poses with 1e-3 rad and 1 mm, 200 seeds in one batch."""
    noise = (1e-3, 1e-3)
    sets = [made(10, seed, noise) for seed in range(200)]
    hands, cameras = (
        [jnp.stack([jnp.asarray(one[k][part]) for one in sets]) for part in (0, 1)] for k in (0, 1)
    )

    @jax.jit
    @jax.vmap
    def solve(hand, camera):
        poses = [jax.vmap(dq.from_matrix)(*x) for x in (hand, camera)]
        start = fitting.linear_hand_eye(*poses)
        q, _, covariance, _, sizes = fitting.refined_hand_eye(*poses, start)
        true = dq.from_matrix(jnp.asarray(Q[0]), jnp.asarray(Q[1]))
        return dq.logarithm(dq.product(dq.conjugate(q), true)), covariance, sizes, start

    off, covariance, sizes, start = map(np.asarray, solve(tuple(hands), tuple(cameras)))
    squares = np.einsum("ni,nij,nj->n", off, np.linalg.inv(covariance), off)
    # Noise is estimated, so that squares are a little larger than of six freedoms.
    np.testing.assert_allclose(np.mean(squares), 6.0, rtol=0.2)
    inside = np.mean(squares < scipy.stats.chi2(6).ppf(0.95))
    assert 0.88 < inside < 0.99
    np.testing.assert_allclose(np.mean(sizes, axis=0), 1e-3, rtol=0.05)
    rough = np.array([np.asarray(dq.translation(jnp.asarray(s))) - Q[1] for s in start])
    assert np.std(off[:, 3:]) < np.std(rough)


def test_noise_scales_and_frames_do_not_matter():
    hand, camera = made(8, 3, (1e-3, 1e-3))
    found = fitting.hand_eye(hand, camera, noise=(1e-3, 1e-3))
    twice = fitting.hand_eye(hand, camera, noise=(2e-3, 2e-3))
    np.testing.assert_allclose(twice.covariance, 4 * found.covariance, rtol=1e-6)
    np.testing.assert_allclose(twice.translation, found.translation, atol=1e-9)
    # Another base, and another frame of what the camera sees.
    turn, move = Rotation.from_rotvec([0.5, 1.0, -0.2]).as_matrix(), np.array([1.0, -2.0, 0.3])
    moved = (
        (turn @ hand[0], hand[1] @ turn.T + move),
        (turn.T @ camera[0], (camera[1] - move) @ turn),
    )
    other = fitting.hand_eye(*moved, noise=(1e-3, 1e-3))
    np.testing.assert_allclose(other.translation, found.translation, atol=1e-9)
    np.testing.assert_allclose(other.covariance, found.covariance, rtol=1e-6, atol=1e-15)
    assert "standard deviations" in found.report()


def test_sets_that_tell_nothing_get_a_sentence():
    hand, camera = made(6, turns=np.outer(np.arange(6.0), [0.1, 0.2, 0.05]))
    with pytest.raises(ValueError, match="of parallel"):
        fitting.hand_eye(hand, camera)
    with pytest.raises(ValueError, match="does not turn"):
        fitting.hand_eye(*made(6, turns=np.zeros((6, 3))))
    with pytest.raises(ValueError, match="2 poses leave the camera open"):
        fitting.hand_eye(*made(2))
    hand, camera = made(6)
    inverse = (np.swapaxes(camera[0], 1, 2), -np.einsum("nji,nj->ni", *camera))
    with pytest.raises(ValueError, match="seem to be inverted"):
        fitting.hand_eye(hand, inverse)
    with pytest.raises(ValueError, match="is no rotation matrix"):
        fitting.hand_eye((2 * hand[0], hand[1]), camera)
    with pytest.raises(ValueError, match=r"it must be \(n, 3, 3\)"):
        fitting.hand_eye((hand[0][0], hand[1]), camera)
    with pytest.raises(ValueError, match="6 poses of the hand and 5"):
        fitting.hand_eye(hand, (camera[0][:5], camera[1][:5]))
