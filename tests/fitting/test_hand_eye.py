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


@pytest.mark.parametrize("count", [3, 6])
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


@jax.jit
@jax.vmap
def misses(hand, camera, q):
    """By how much the linear start and the result miss a camera, of matrices and translations."""
    poses = [jax.vmap(dq.from_matrix)(*x) for x in (hand, camera)]
    start = fitting.linear_hand_eye(*poses)
    found = fitting.refined_hand_eye(*poses, start)[0]
    back = dq.conjugate(dq.from_matrix(*q))
    return [jnp.max(jnp.abs(dq.logarithm(dq.product(back, x)))) for x in (start, found)]


def recovered(sets, cameras):
    stacked = jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *zip(sets, cameras, strict=True))
    (hand, seen), q = stacked
    return [np.asarray(x) for x in misses(hand, seen, q)]


@pytest.mark.long
def test_cameras_may_look_anywhere():
    """Exact poses of random robots, targets and cameras, also of those turned by half a turn."""
    rng = np.random.default_rng(5)
    turns = [Rotation.random(random_state=s).as_matrix() for s in range(60)]
    # As many as in the next test, which is the same program.
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


@pytest.mark.long
def test_turns_near_a_half_are_matched():
    turns = np.array([[0, 0, 0], [np.pi, 0, 0], [0, np.pi, 0], [0.3, 0.2, -3.0]])
    turns = np.concatenate([turns, [[1, 0.2, 0.4], [1, 1, 0]]])
    near = turns - 1e-4 * np.sign(turns)
    found = fitting.hand_eye(*made(6, turns=near))
    np.testing.assert_allclose(found.translation, Q[1], atol=1e-9)
    # With noise, which decides the signs there.
    sets = [made(6, seed, (1e-3, 1e-3), turns) for seed in range(63)]
    assert np.max(recovered(sets, [Q] * 63)[1]) < 0.01


@pytest.mark.long
def test_errors_are_those_of_the_covariance():
    """Ten poses with 1e-3 rad and 1 mm, 200 seeds in one batch."""
    noise = (1e-3, 1e-3)
    sets = [made(10, seed, noise) for seed in range(200)]
    hands, cameras = (
        [jnp.stack([jnp.asarray(one[k][part]) for one in sets]) for part in (0, 1)] for k in (0, 1)
    )

    def solve(hand, camera, noise):
        poses = [jax.vmap(dq.from_matrix)(*x) for x in (hand, camera)]
        start = fitting.linear_hand_eye(*poses)
        q, _, covariance, _, sizes = fitting.refined_hand_eye(*poses, start, noise)
        true = dq.from_matrix(jnp.asarray(Q[0]), jnp.asarray(Q[1]))
        return dq.logarithm(dq.product(dq.conjugate(q), true)), covariance, sizes, start

    def squares(off, covariance):
        return np.einsum("ni,nij,nj->n", off, np.linalg.inv(covariance), off)

    def solved(noise):
        found = jax.jit(jax.vmap(lambda a, b: solve(a, b, noise)))(tuple(hands), tuple(cameras))
        return map(np.asarray, found)

    # Of known noise squares are chi-squared of six freedoms, their sum of 1,200.
    off, covariance, _, start = solved(noise)
    square = squares(off, covariance)
    low, high = scipy.stats.chi2(1200).ppf([0.005, 0.995])
    assert low < np.sum(square) < high
    assert scipy.stats.kstest(square, scipy.stats.chi2(6).cdf).pvalue > 0.01
    # Of noise that is estimated they are a little larger.
    estimated, covariance, sizes, _ = solved(None)
    square = squares(estimated, covariance)
    np.testing.assert_allclose(np.mean(square), 6.0, rtol=0.2)
    inside = np.mean(square < scipy.stats.chi2(6).ppf(0.95))
    assert 0.88 < inside < 0.99
    np.testing.assert_allclose(np.mean(sizes, axis=0), 1e-3, rtol=0.05)
    rough = np.array([np.asarray(dq.translation(jnp.asarray(s))) - Q[1] for s in start])
    assert np.std(off[:, 3:]) < np.std(rough)


@pytest.mark.long
def test_noise_scales_and_frames_do_not_matter():
    hand, camera = made(6, 3, (1e-3, 1e-3))
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


@pytest.mark.long
def test_mirrored_frames_give_the_mirrored_camera():
    """All frames left-handed: x reversed. Also axes cycled, and lengths in another unit."""
    hand, camera = made(6, 3, (1e-3, 1e-3))
    found = fitting.hand_eye(hand, camera)
    for matrix in (np.diag([-1.0, 1, 1]), np.roll(np.eye(3), 1, axis=0), 1e3 * np.eye(3)):
        turn = matrix / np.abs(matrix).max()
        seen = [(turn @ r @ turn.T, t @ matrix.T) for r, t in (hand, camera)]
        other = fitting.hand_eye(*seen)
        np.testing.assert_allclose(other.rotation, turn @ found.rotation @ turn.T, atol=1e-9)
        size = np.abs(matrix).max()
        np.testing.assert_allclose(other.translation, matrix @ found.translation, atol=1e-9 * size)
        scale = np.repeat([1.0, size], 3)
        change = (
            np.block([[np.linalg.det(turn) * turn, np.zeros((3, 3))], [np.zeros((3, 3)), turn]])
            * scale[:, None]
        )
        np.testing.assert_allclose(
            other.covariance / np.outer(scale, scale),
            (change @ np.asarray(found.covariance) @ change.T) / np.outer(scale, scale),
            atol=1e-6 * np.max(np.abs(found.covariance)),
        )


@pytest.mark.long
def test_a_camera_beside_the_robot_is_found_in_the_base():
    """It sees a target on the hand; the target is then what is known beside it."""
    hand, _ = made(6, 4)
    # Camera pose C in the base, target T on the hand: camera in the target (A T)^-1 C.
    c, t = X, Q
    turn = hand[0] @ t[0]
    at = hand[0] @ t[1] + hand[1]
    seen = np.swapaxes(turn, 1, 2) @ c[0], np.einsum("nji,nj->ni", turn, c[1] - at)
    back = (np.swapaxes(hand[0], 1, 2), -np.einsum("nji,nj->ni", *hand))
    found = fitting.hand_eye(back, seen)
    np.testing.assert_allclose(found.rotation, c[0], atol=1e-10)
    np.testing.assert_allclose(found.translation, c[1], atol=1e-10)
    np.testing.assert_allclose(found.target_translation, t[1], atol=1e-10)


@pytest.mark.long
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
    with pytest.raises(ValueError, match="fit far better when those of the camera or"):
        fitting.hand_eye(hand, inverse)
    back = (np.swapaxes(hand[0], 1, 2), -np.einsum("nji,nj->ni", *hand))
    with pytest.raises(ValueError, match="if the camera stands beside the robot"):
        fitting.hand_eye(back, camera, noise=(1e-3, 1e-3))
    # Inverses of both are another question with the same answer.
    both = fitting.hand_eye(back, inverse)
    np.testing.assert_allclose(both.translation, X[1], atol=1e-10)
    np.testing.assert_allclose(both.target_translation, Q[1], atol=1e-10)
    with pytest.raises(ValueError, match="is no rotation matrix"):
        fitting.hand_eye((2 * hand[0], hand[1]), camera)
    with pytest.raises(ValueError, match=r"it must be \(n, 3, 3\)"):
        fitting.hand_eye((hand[0][0], hand[1]), camera)
    with pytest.raises(ValueError, match="6 poses of the hand and 5"):
        fitting.hand_eye(hand, (camera[0][:5], camera[1][:5]))
