"""Equations of chains against poses, an elimination by sampling, and differences."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip.mechanism import study
from jaxgrip.spatial import dual_quaternions as dq

pytestmark = pytest.mark.long

RNG = np.random.default_rng(8)
ROWS = {n: RNG.uniform(-1.0, 1.0, (n, 4)) for n in (1, 2, 3)}
EVERY = ["".join(x) for n in (1, 2, 3) for x in itertools.product("RP", repeat=n)]
# The product of two slides has no part with both steps, so that its column is zero.
CHAINS = [x for x in EVERY if x.count("P") < 2]


def poses(chain, count, seed=0):
    coordinates = np.random.default_rng(seed).uniform(-2.0, 2.0, (count, len(chain.joints)))
    return jax.jit(jax.vmap(study.pose, (None, 0)))(chain, jnp.asarray(coordinates)), coordinates


def monomials(x):
    """All products of two coordinates, (k, 36)."""
    i, j = np.triu_indices(8)
    return np.asarray(x)[:, i] * np.asarray(x)[:, j]


def rank(a):
    values = np.linalg.svd(a, compute_uv=False)
    return int(np.sum(values > 1e-9 * values[0]))


@pytest.mark.parametrize("joints", CHAINS)
def test_equations_vanish_at_the_poses_of_a_chain_and_there_only(joints):
    chain = study.from_dh(joints, ROWS[len(joints)])
    q, _ = poses(chain, 40)
    equations = jax.jit(jax.vmap(study.equations, (None, 0)))
    np.testing.assert_allclose(equations(chain, q), 0.0, atol=1e-12)
    # They leave as many freedoms as there are joints, of the seven of a homogeneous point.
    slopes = np.asarray(jax.jit(jax.jacfwd(study.equations, 1))(chain, q[0]))
    assert rank(slopes) == 7 - len(joints)
    elsewhere = dq.product(q[0], dq.exponential(jnp.asarray([0.3, -0.2, 0.4, 0.1, 0.2, -0.3])))
    assert np.max(np.abs(study.equations(chain, elsewhere))) > 1e-2


@pytest.mark.parametrize("joints", ["PRR", "RRP", "RPR", "RRR"])
def test_three_joints_have_all_quadrics_that_vanish(joints):
    """Those that a sample of poses leaves, nine of 36, are combinations of the equations."""
    chain = study.from_dh(joints, ROWS[3])
    q, _ = poses(chain, 200)
    _, values, right = np.linalg.svd(monomials(q))
    assert np.sum(values < 1e-10 * values[0]) == 9
    sampled = right[-9:]
    # Coefficients of the equations from their values at points of no chain.
    free = jnp.asarray(RNG.normal(size=(60, 8)))
    values = np.asarray(jax.jit(jax.vmap(study.equations, (None, 0)))(chain, free))
    eliminated = np.linalg.lstsq(monomials(free), values, rcond=None)[0].T
    assert rank(eliminated) == 9
    eliminated /= np.linalg.norm(eliminated, axis=1, keepdims=True)
    np.testing.assert_allclose(eliminated @ sampled.T @ sampled, eliminated, atol=1e-7)


@pytest.mark.parametrize(("joints", "other"), [("PR", "RP"), ("PRR", "RRP"), ("RRR", "RRR")])
def test_the_inverse_chain_is_the_conjugate(joints, other):
    chain = study.from_dh(joints, ROWS[len(joints)])
    back = study.inverted(chain)
    assert back.joints == other
    q, coordinates = poses(chain, 30)
    mirrored = jax.vmap(study.pose, (None, 0))(back, jnp.asarray(-coordinates[:, ::-1]))
    np.testing.assert_allclose(mirrored, jax.vmap(dq.conjugate)(q), atol=1e-12)
    found = jax.vmap(lambda x: study.equations(chain, dq.conjugate(x)))(mirrored)
    np.testing.assert_allclose(found, 0.0, atol=1e-12)
    own = jax.vmap(lambda x: study.equations(back, x))(mirrored)
    np.testing.assert_allclose(own, 0.0, atol=1e-12)
    # Rows of the inverse: those of the joints reversed, each with the link before it.
    theta, d, a, alpha = -ROWS[len(joints)].T
    none = np.zeros(1)
    rows = np.stack([theta[::-1], d[::-1], [*a[-2::-1], *none], [*alpha[-2::-1], *none]], axis=1)
    turned = study.from_dh(other, rows)
    first = study.link(0.0, 0.0, a[-1], alpha[-1])
    by_rows = jax.vmap(lambda x: dq.product(first, study.pose(turned, x)))(
        jnp.asarray(-coordinates[:, ::-1])
    )
    np.testing.assert_allclose(by_rows, mirrored, atol=1e-12)


def test_planar_chains_have_the_equations_that_are_known():
    """A slide along x and a link of length l: x3 y1 + x0 y2 = l x0 x3 for the height."""
    length = 0.7
    ahead = np.array([np.cos(np.pi / 4), 0.0, np.sin(np.pi / 4), 0.0])
    base = jnp.asarray([*ahead, 0, 0, 0, 0])
    to_hinge = dq.conjugate(base)
    to_tip = study.link(0.0, 0.0, length, 0.0)
    chain = study.Chain(base, jnp.stack([to_hinge, to_tip]), "PR")
    x = RNG.normal(size=(20, 8))
    x[:, [1, 2, 4, 7]] = 0.0
    found = np.asarray(jax.vmap(study.equations, (None, 0))(chain, jnp.asarray(x)))
    known = x[:, 3] * x[:, 5] + x[:, 0] * x[:, 6] - length * x[:, 0] * x[:, 3]
    factor = found[:, -1] / known
    np.testing.assert_allclose(factor, factor[0], rtol=1e-12)
    np.testing.assert_allclose(found[:, :-1], 0.0, atol=1e-12)


@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_equations_are_differentiable_by_the_links(mode):
    q, coordinates = poses(study.from_dh("PRR", ROWS[3]), 1)
    off = dq.product(q[0], dq.exponential(jnp.full(6, 0.1)))

    @jax.jit
    def values(rows, q):
        return study.equations(study.from_dh("PRR", rows), q)

    rows, step = jnp.asarray(ROWS[3]), 1e-6
    shifts = step * np.eye(12).reshape(12, 3, 4)
    ahead, back = (
        np.array([values(jnp.asarray(ROWS[3] + side * x), off) for x in shifts])
        for side in (1.0, -1.0)
    )
    slopes = np.asarray(jax.jit(mode(values))(rows, off)).reshape(-1, 12)
    np.testing.assert_allclose(slopes, (ahead - back).T / (2 * step), rtol=1e-6, atol=1e-8)

    def along(rows):
        chain = study.from_dh("PRR", rows)
        return study.equations(chain, study.pose(chain, jnp.asarray(coordinates[0])))

    # They stay zero while the links change.
    np.testing.assert_allclose(jax.jit(mode(along))(rows), 0.0, atol=1e-12)


def test_mistakes_get_a_sentence():
    with pytest.raises(ValueError, match="there are R, which turns, and P"):
        study.from_dh("RQ", ROWS[2])
    with pytest.raises(ValueError, match=r"rows of the chain has the shape \(2, 4\)"):
        study.from_dh("RRR", ROWS[2])
    planar = study.from_dh("RRR", [[0, 0, 0.3, 0], [0, 0, 0.2, 0], [0, 0, 0.1, 0]])
    with pytest.raises(ValueError, match="special positions"):
        study.equations(planar, jnp.eye(8)[0])
    for joints in set(EVERY) - set(CHAINS):
        with pytest.raises(ValueError, match="or two slides, at which linear elimination fails"):
            study.equations(study.from_dh(joints, ROWS[len(joints)]), jnp.eye(8)[0])
    with pytest.raises(ValueError, match="three at most"):
        study.equations(study.from_dh("RRRR", np.zeros((4, 4))), jnp.eye(8)[0])
