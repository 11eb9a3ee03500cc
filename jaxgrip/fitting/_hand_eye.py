"""Where a camera sits on a robot's hand: hand-eye calibration."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import numbers, positive
from jaxgrip.precision import require_x64
from jaxgrip.solve import dense
from jaxgrip.spatial import dual_quaternions as dq
from jaxgrip.spatial import skew

_STEPS = 16
# Motions that turn less than this tell nothing about rotations, and axes nearer to parallel than
# this are parallel [rad].
_TURN = np.deg2rad(0.5)
_APART = np.deg2rad(1.0)


class HandEye(NamedTuple):
    """Where the camera is on the hand.

    `rotation` (3, 3) and `translation` (3,) [m] of the camera in the hand; `target_rotation`,
    `target_translation` of what it sees in the robot's base; `covariance` (6, 6) of a small
    rotation vector [rad] and translation [m] of the camera, in its own axes; `deviation` (6,);
    `residuals` (n, 6), rotation vectors [rad] and translations [m] by which the camera's
    poses are off; `noise`, their standard deviations [rad], [m].
    """

    rotation: Float[Array, "3 3"]
    translation: Float[Array, "3"]
    target_rotation: Float[Array, "3 3"]
    target_translation: Float[Array, "3"]
    covariance: Float[Array, "6 6"]
    deviation: Float[Array, "6"]
    residuals: Float[Array, "n 6"]
    noise: tuple[Float[Array, ""], Float[Array, ""]]

    def report(self) -> str:
        """The result in words."""
        turn = np.rad2deg(np.asarray(self.deviation[:3])).max()
        move = 1e3 * np.asarray(self.deviation[3:]).max()
        return (
            f"The camera is known to {turn:.2g}° and {move:.2g} mm (standard deviations); poses "
            f"are off by {np.rad2deg(float(self.noise[0])):.2g}° and "
            f"{1e3 * float(self.noise[1]):.2g} mm."
        )


def _poses(rotations: Array, translations: Array) -> Array:
    return jax.vmap(dq.from_matrix)(rotations, translations)


def linear_hand_eye(hand: Float[Array, "n 8"], camera: Float[Array, "n 8"]) -> Float[Array, "8"]:
    """The linear solution of A Q = Q B over all pairs of poses, for `jit` and `vmap`.

    **Arguments:** dual quaternions of the hand in the base, and of the camera in what it sees.

    Source: Daniilidis 1999; the equation is that of Schadlbauer 2017 with its sides exchanged.
    """
    first, second = np.triu_indices(hand.shape[0], 1)

    def motions(poses: Array) -> Array:
        return jax.vmap(lambda a, b: dq.product(dq.conjugate(a), b))(poses[first], poses[second])

    def rows(a: Array, b: Array) -> Array:
        """S of one motion (6, 8)."""

        def half(u: Array, v: Array) -> Array:
            return jnp.concatenate([(u - v)[:, None], skew(u + v)], axis=1)

        real, dual = half(a[1:4], b[1:4]), half(a[5:], b[5:])
        top = jnp.concatenate([real, jnp.zeros((3, 4), a.dtype)], axis=1)
        return jnp.concatenate([top, jnp.concatenate([dual, real], axis=1)])

    def solved(a: Array, b: Array) -> Array:
        stacked = jax.vmap(rows)(a, b).reshape(-1, 8)
        return _on_quadric(dense.eigh(stacked.T @ stacked)[1])

    # Both motions turn by the same angle, so that their scalars agree. Near half a turn noise may
    # decide which sign that is: those motions count little, until a first solution tells it.
    a, b = (x * jnp.where(x[:, :1] < 0, -1.0, 1.0) for x in (motions(hand), motions(camera)))
    weights = jnp.sqrt(a[:, :1] * b[:, :1])
    q = solved(weights * a, weights * b)
    expected = jax.vmap(lambda x: dq.product(dq.product(dq.conjugate(q), x), q))(a)
    agree = jnp.sum(expected[:, :4] * b[:, :4], axis=1, keepdims=True)
    return solved(a, jnp.where(agree < 0, -b, b))


def _on_quadric(vectors: Float[Array, "8 8"]) -> Float[Array, "8"]:
    """The pose in the space of the first two columns."""
    one, two = vectors[:, 0], vectors[:, 1]
    # Q = s one + two with a dual part across the real one.
    a, c = dq.study(one), dq.study(two)
    b = one[:4] @ two[4:] + two[:4] @ one[4:]
    root = jnp.sqrt(jnp.maximum(b**2 - 4 * a * c, 0.0))
    shares = (jnp.stack([-b + root, -b - root]), jnp.stack([2 * a, 2 * a]))

    def combined(top: Array, bottom: Array) -> Array:
        return top * one + bottom * two

    found = jax.vmap(combined)(*shares)
    size = jnp.sum(found[:, :4] ** 2, axis=1)
    # Where the first has no dual part of its own, it is the solution.
    best = jnp.where(jnp.max(size) > 1e-24, found[jnp.argmax(size)], one)
    return dq.normalised(best)


def _off(
    state: Array, hand: Array, camera: Array
) -> tuple[Float[Array, "n 6"], Float[Array, "n 6 12"]]:
    """Twists from what is expected to the camera's poses, and their derivative by steps."""
    q, x = state[:8], state[8:]

    def one(a: Array, b: Array) -> tuple[Array, Array]:
        back = dq.product(dq.conjugate(q), dq.product(dq.conjugate(a), x))
        off = dq.logarithm(dq.product(back, b))
        turn, none = skew(off[:3]), jnp.zeros((3, 3), off.dtype)
        small = jnp.block([[turn, none], [skew(off[3:]), turn]])
        square = small @ small
        # Inverse of the left Jacobian of the exponential, to the fifth order of what is off.
        by = jnp.eye(6, dtype=off.dtype) - small / 2 + square / 12 - square @ square / 720
        return off, jnp.concatenate([-by, by @ dq.adjoint(back)], axis=1)

    return jax.vmap(one)(hand, camera)


def _moved(state: Array, step: Array) -> Array:
    return jnp.concatenate(
        [
            dq.product(state[:8], dq.exponential(step[:6])),
            dq.product(state[8:], dq.exponential(step[6:])),
        ]
    )


def refined_hand_eye(
    hand: Float[Array, "n 8"],
    camera: Float[Array, "n 8"],
    start: Float[Array, "8"],
    noise: tuple[ArrayLike, ArrayLike] | None = None,
) -> tuple[Float[Array, "8"], Float[Array, "8"], Float[Array, "6 6"], Float[Array, "n 6"], Array]:
    """Least squares from a start, for `jit` and `vmap`.

    **Returns:** camera in the hand, target in the base, covariance, residuals (n, 6), and the
    standard deviations (2,) of rotations and translations used.
    """
    # Where most poses put the target.
    targets = jax.vmap(lambda a, b: dq.product(dq.product(a, start), dq.conjugate(b)))(hand, camera)
    signs = jnp.sign(targets[:, :4] @ targets[0, :4])
    target = dq.normalised(jnp.mean(signs[:, None] * targets, axis=0))
    state = jnp.concatenate([start, target])
    n = hand.shape[0]

    def iterate(carry: tuple, _: None) -> tuple:
        state, *_ = carry
        off, by = _off(state, hand, camera)
        sizes = given if noise is not None else jnp.maximum(_sizes(off), 1e-14)
        weights = jnp.tile(jnp.repeat(1 / sizes, 3), n)
        by = weights[:, None] * by.reshape(6 * n, 12)
        covariance = dense.inverse(by.T @ by)
        state = _moved(state, -covariance @ (by.T @ (weights * off.ravel())))
        return (state, covariance, off, sizes), None

    given = jnp.zeros(2) if noise is None else jnp.stack([jnp.asarray(x, float) for x in noise])
    begin = (state, jnp.zeros((12, 12)), jnp.zeros((n, 6)), jnp.zeros(2))
    state, covariance, off, sizes = jax.lax.scan(iterate, begin, None, length=_STEPS)[0]
    return state[:8], state[8:], covariance[:6, :6], off, sizes


def _sizes(off: Float[Array, "n 6"]) -> Float[Array, "2"]:
    """Standard deviations of rotations and translations, which determine six parameters each."""
    squares = jnp.stack([jnp.sum(off[:, :3] ** 2), jnp.sum(off[:, 3:] ** 2)])
    return jnp.sqrt(squares / (3 * off.shape[0] - 6))


@eqx.filter_jit
def _solve(hand, camera, noise):
    """What `refined_hand_eye` gives of poses, and with those of the camera inverted."""

    def one(b):
        return refined_hand_eye(hand, b, linear_hand_eye(hand, b), noise)

    return jax.vmap(one)(jnp.stack([camera, jax.vmap(dq.conjugate)(camera)]))


def hand_eye(
    hand: tuple[ArrayLike, ArrayLike],
    camera: tuple[ArrayLike, ArrayLike],
    *,
    noise: tuple[float, float] | None = None,
) -> HandEye:
    """Where a camera is on a robot's hand, from poses of both.

    A Q B⁻¹ is the same for all poses: A of the hand in the base, Q of the camera in the hand, B of
    the camera in the frame of what it sees. Dual quaternions give a start, least squares the rest.
    Of a camera that stands beside the robot and sees the hand, pass the inverse of each A: Q is
    then the camera in the base. (Inverses of both A and B exchange Q and X.)

    **Arguments:** `hand`, `camera`: rotation matrices (n, 3, 3) and translations (n, 3) [m], n > 2;
    `noise`: standard deviations of the camera's rotations [rad] and translations [m], each
    component; estimated when None.

    **Raises:** `ValueError` for fewer than three poses, no rotation matrices, motions that do not
    turn, or all turn about parallel axes, which leave the camera open, and for poses that fit far
    better when those of the hand or the camera are inverted.

    Source: Schadlbauer 2017 and Daniilidis 1999; least squares and covariance are an own choice.
    """
    require_x64("hand_eye")
    poses = []
    for name, (rotations, translations) in (("hand", hand), ("camera", camera)):
        rotations = numbers(f"The rotations of the {name}", rotations)
        translations = numbers(f"The translations of the {name}", translations)
        if rotations.ndim != 3 or rotations.shape[1:] != (3, 3):
            raise ValueError(
                f"The rotations of the {name} have the shape {rotations.shape}; it must be "
                "(n, 3, 3)."
            )
        if translations.shape != (rotations.shape[0], 3):
            raise ValueError(
                f"The translations of the {name} have the shape {translations.shape}; it must be "
                f"({rotations.shape[0]}, 3)."
            )
        off = np.asarray(rotations @ rotations.mT - jnp.eye(3)[None])
        if np.max(np.abs(off), initial=0.0) > 1e-3 or np.any(np.linalg.det(rotations) < 0):
            k = int(np.argmax(np.max(np.abs(off), axis=(1, 2))))
            raise ValueError(f"Rotation {k} of the {name} is no rotation matrix.")
        poses.append(_poses(rotations, translations))
    a, b = poses
    if a.shape != b.shape:
        raise ValueError(f"There are {len(a)} poses of the hand and {len(b)} of the camera.")
    if len(a) < 3:
        raise ValueError(f"{len(a)} poses leave the camera open; there must be three at least.")
    _look(a)
    if noise is not None:
        noise = tuple(positive("The noise", x, ()) for x in noise)
    ways = _solve(a, b, noise)
    scale = np.repeat([1.0, np.sqrt(np.mean(np.asarray(ways[1])[:, 4:] ** 2)) + 1e-300], 3)
    squares = np.sum((np.asarray(ways[3]) / scale) ** 2, axis=(1, 2))
    if squares[1] < 1e-2 * squares[0]:
        raise ValueError(
            "The poses fit far better when those of the camera or those of the hand are inverted. "
            "Invert the camera's if they are those of what it sees in the frame of the camera; "
            "invert the hand's if the camera stands beside the robot and sees the hand."
        )
    q, x, covariance, off, sizes = (one[0] for one in ways)
    deviation = jnp.sqrt(jnp.diag(covariance))
    frames = (dq.rotation(q), dq.translation(q), dq.rotation(x), dq.translation(x))
    return HandEye(*frames, covariance, deviation, off, (sizes[0], sizes[1]))


def _look(hand: Array) -> None:
    """Whether the motions of the hand determine the camera."""
    first, second = np.triu_indices(len(hand), 1)
    turns = np.asarray(
        jax.vmap(lambda a, b: dq.logarithm(dq.product(dq.conjugate(a), b))[:3])(
            hand[first], hand[second]
        )
    )
    angle = np.linalg.norm(turns, axis=1)
    if not np.any(angle > _TURN):
        raise ValueError(
            "The hand does not turn between the poses, so that the camera's place on it cannot be "
            "told: add poses with rotations about two axes."
        )
    axes = turns[angle > _TURN] / angle[angle > _TURN, None]
    spread = np.linalg.svd(axes, compute_uv=False)
    apart = np.arctan2(spread[1] if len(spread) > 1 else 0.0, spread[0])
    if apart < _APART:
        raise ValueError(
            f"All rotations of the hand are about axes within {np.rad2deg(apart):.2g}° of "
            "parallel, so that the camera's place along them cannot be told: add poses that turn "
            "about another axis."
        )
