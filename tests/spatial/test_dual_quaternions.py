"""Dual quaternions against matrices, the matrix exponential and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.test_util import check_grads
from scipy.spatial.transform import Rotation

from jaxgrip.spatial import dual_quaternions as dq

RNG = np.random.default_rng(0)
TWISTS = [
    *RNG.normal(size=(4, 6)),
    np.zeros(6),
    np.array([0, 0, 0, 1.0, -2.0, 0.5]),
    np.full(6, 1e-9),
]


def matrix(q):
    out = np.eye(4)
    out[:3, :3], out[:3, 3] = dq.rotation(q), dq.translation(q)
    return out


def pose(seed):
    rng = np.random.default_rng(seed)
    turn = Rotation.random(random_state=seed).as_matrix()
    return dq.from_matrix(jnp.asarray(turn), jnp.asarray(rng.normal(size=3)))


@pytest.mark.parametrize("seed", range(3))
def test_products_and_inverses_are_those_of_matrices(seed):
    a, b = pose(seed), pose(seed + 10)
    np.testing.assert_allclose(matrix(dq.product(a, b)), matrix(a) @ matrix(b), atol=1e-12)
    np.testing.assert_allclose(matrix(dq.conjugate(a)), np.linalg.inv(matrix(a)), atol=1e-12)
    one = dq.product(a, dq.conjugate(a))
    np.testing.assert_allclose(one, [1, 0, 0, 0, 0, 0, 0, 0], atol=1e-12)
    np.testing.assert_allclose(dq.study(a), 0.0, atol=1e-12)
    x = jnp.asarray([0.3, -1.0, 2.0])
    np.testing.assert_allclose(dq.transform(a, x), (matrix(a) @ [*x, 1.0])[:3], atol=1e-12)
    # Products and conjugates of the dual quaternions themselves.
    left = dq.conjugate(dq.product(a, b))
    np.testing.assert_allclose(left, dq.product(dq.conjugate(b), dq.conjugate(a)), atol=1e-12)
    both = dq.dual_conjugate(dq.product(a, b))
    np.testing.assert_allclose(
        both, dq.product(dq.dual_conjugate(a), dq.dual_conjugate(b)), atol=1e-12
    )
    s = jnp.asarray([0.3, -0.2, 0.9, 1.0, 0.1, -0.4])
    seen = dq.product(dq.exponential(dq.adjoint(a) @ s), a)
    np.testing.assert_allclose(matrix(dq.product(a, dq.exponential(s))), matrix(seen), atol=1e-12)
    noisy = a + 0.01 * jnp.arange(8.0)
    np.testing.assert_allclose(dq.study(dq.normalised(noisy)), 0.0, atol=1e-12)
    np.testing.assert_allclose(dq.normalised(3 * a), a, atol=1e-12)


@pytest.mark.parametrize("twist", TWISTS)
def test_the_exponential_is_that_of_matrices(twist):
    w, v = twist[:3], twist[3:]
    generator = np.zeros((4, 4))
    generator[:3, :3] = np.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])
    generator[:3, 3] = v
    q = dq.exponential(jnp.asarray(twist))
    np.testing.assert_allclose(matrix(q), scipy.linalg.expm(generator), atol=1e-12)
    np.testing.assert_allclose(dq.logarithm(q), twist, atol=1e-12)
    np.testing.assert_allclose(dq.logarithm(-q), twist, atol=1e-12)
    np.testing.assert_allclose(dq.from_screw(dq.screw(q)), q, atol=1e-12)


@pytest.mark.long
def test_derivatives_are_differences_also_at_the_identity():
    exponential, logarithm = jax.jit(dq.exponential), jax.jit(dq.logarithm)
    there_and_back = jax.jit(jax.jacfwd(lambda y: dq.logarithm(dq.exponential(y))))
    screw = jax.jit(jax.jacrev(lambda y: jnp.stack(dq.screw(dq.exponential(y))[:2])))
    for twist in TWISTS[2:]:
        x = jnp.asarray(twist)
        check_grads(exponential, (x,), order=1, rtol=1e-4, atol=1e-6)
        check_grads(logarithm, (exponential(x),), order=1, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(there_and_back(x), np.eye(6), atol=1e-12)
        assert np.all(np.isfinite(screw(x)))


def test_a_screw_turns_and_slides_about_its_line():
    """About the line through (1, 2, 0) along z by 90 degrees, 3 m up."""
    screw = dq.Screw(
        jnp.asarray(np.pi / 2),
        jnp.asarray(3.0),
        jnp.asarray([0.0, 0.0, 1.0]),
        jnp.cross(jnp.asarray([1.0, 2.0, 0.0]), jnp.asarray([0.0, 0.0, 1.0])),
    )
    q = dq.from_screw(screw)
    np.testing.assert_allclose(dq.transform(q, jnp.asarray([1.0, 2.0, 0.0])), [1, 2, 3], atol=1e-12)
    np.testing.assert_allclose(dq.transform(q, jnp.asarray([2.0, 2.0, 0.0])), [1, 3, 3], atol=1e-12)
    for one, other in zip(dq.screw(q), screw, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    half = dq.interpolated(jnp.eye(8)[0], q, jnp.asarray(0.5))
    found = dq.transform(half, jnp.asarray([2.0, 2.0, 0.0]))
    np.testing.assert_allclose(found, [1 + np.sqrt(0.5), 2 + np.sqrt(0.5), 1.5], atol=1e-12)


def planar(phi, a, b):
    """Study's coordinates of a planar pose, x0, x3, y1, y2, as printed."""
    x0, x3 = np.cos(phi / 2), np.sin(phi / 2)
    return x0, x3, 0.5 * (a * x0 + b * x3), 0.5 * (b * x0 - a * x3)


def test_elliptic_motion_and_its_inverse_lie_on_their_varieties():
    """Points A and B of a bar on two axes; the conjugate satisfies the conjugated equations."""
    length = 0.8
    for phi in np.linspace(-2.0, 2.0, 9):
        # A on the x axis, B = A + L (cos, sin) on the y axis.
        a, b = -length * np.cos(phi), 0.0
        q = dq.from_matrix(
            jnp.asarray(Rotation.from_rotvec([0, 0, phi]).as_matrix()), jnp.asarray([a, b, 0.0])
        )
        x0, x3, y1, y2 = planar(phi, a, b)
        np.testing.assert_allclose(q[jnp.array([0, 3, 5, 6])], [x0, x3, y1, y2], atol=1e-12)
        for one, sign in ((q, 1.0), (dq.conjugate(q), -1.0)):
            x0, x3, y1, y2 = one[0], sign * one[3], sign * one[5], sign * one[6]
            np.testing.assert_allclose(x0 * y2 + x3 * y1, 0.0, atol=1e-12)
            second = 2 * (x0 * y1 - x3 * y2) + length * (x0**2 - x3**2)
            np.testing.assert_allclose(second, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [(jax.jacfwd, jax.jacrev), pytest.param(jax.jacrev, jax.jacfwd, marks=pytest.mark.long)],
)
def test_second_derivatives_are_exact_near_the_identity(outer, inner):
    """Against the power series of the matrix and, for the inverse, against the identity."""
    line = jnp.array([0.6, 0.0, -0.8, 0.3, -0.2, 0.5])
    angles = jnp.array([0.0, 1e-9, 1e-6, 1.1e-6, 1e-4, 1e-3, 0.4, 1.2])
    twists = jnp.concatenate([angles[:, None] * line[None, :3], jnp.tile(line[3:], (8, 1))], axis=1)
    weights = jnp.asarray(RNG.normal(size=(2, 12)))
    basis = np.zeros((6, 4, 4))
    for k, (i, j) in enumerate(((1, 2), (2, 0), (0, 1))):
        basis[k, i, j], basis[k, j, i], basis[3 + k, k, 3] = -1.0, 1.0, 1.0

    def second(f, outer, inner):
        """Of two sums of what f gives, so that few columns are enough."""

        def sums(x):
            values = jnp.ravel(f(x))
            return weights[:, : values.size] @ values

        return np.asarray(jax.jit(jax.vmap(outer(inner(sums))))(twists))

    def series(x):
        generator = jnp.einsum("i,ijk->jk", x, jnp.asarray(basis))

        def add(carry, k):
            total, term = carry
            term = term @ generator / k
            return (total + term, term), None

        return jax.lax.scan(add, (jnp.eye(4), jnp.eye(4)), jnp.arange(1.0, 26.0))[0][0][:3]

    def moved(x):
        q = dq.exponential(x)
        return jnp.concatenate([dq.rotation(q), dq.translation(q)[:, None]], axis=1)

    expected = second(series, jax.jacfwd, jax.jacfwd)
    np.testing.assert_allclose(second(moved, outer, inner), expected, atol=1e-11)
    # log after exp is the identity: its second derivative is zero.
    there = second(lambda x: dq.logarithm(dq.exponential(x)), outer, inner)
    np.testing.assert_allclose(there, 0.0, atol=1e-11)


def test_half_turns_have_a_slide_and_a_derivative():
    """Rotations by pi are those of tools that point down."""
    turn, shift = jnp.diag(jnp.array([1.0, -1.0, -1.0])), jnp.array([0.7, 0.1, -0.2])
    q = dq.from_matrix(turn, shift)
    screw = dq.screw(q)
    np.testing.assert_allclose([screw.angle, screw.slide], [np.pi, 0.7], atol=1e-15)
    np.testing.assert_allclose(screw.direction, [1.0, 0.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(screw.moment, [0.0, -0.1, -0.05], atol=1e-15)
    # Less of a turn about the same line: on this side of pi the logarithm is smooth.
    back = jnp.array([-1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    change = jax.jvp(
        lambda s: dq.logarithm(dq.product(q, dq.exponential(s * back))), (0.0,), (1.0,)
    )[1]
    assert np.all(np.isfinite(change))
    np.testing.assert_allclose(change[:3], back[:3], atol=1e-12)
