import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip.mechanism.loops.equations import invert

N, ROWS = 5, 4


def matrices(t, rank):
    """A mass matrix and a Jacobian of the rank, which move with t at constant rank."""
    key = jax.random.split(jax.random.key(7), 4)
    root = jax.random.normal(key[0], (N, N)) + 3 * jnp.eye(N)
    root = root + jnp.sin(t) * jax.random.normal(key[1], (N, N))
    wide = jax.random.normal(key[2], (rank, N)) + t * jnp.cos(jnp.arange(5.0))[None]
    tall = jax.random.normal(key[3], (ROWS, rank)) + t**2 * jnp.arange(4.0)[:, None]
    return root @ root.T, tall @ wide


@pytest.mark.parametrize("rank", [4, 2])
def test_inverse_is_the_shortest_solution(rank):
    m, j = map(np.asarray, matrices(0.3, rank))
    g, h, c = invert(jnp.asarray(m), jnp.asarray(j), jnp.asarray(1e-9))
    a, b = np.arange(1.0, 6.0), j @ np.arange(2.0, 7.0)
    whole = np.block([[m, -j.T], [j, np.zeros((ROWS, ROWS))]])
    exact = np.linalg.lstsq(whole, np.concatenate([a, b]), rcond=1e-12)[0]
    np.testing.assert_allclose(g @ a + h @ b, exact[:N], atol=1e-12)
    np.testing.assert_allclose(c @ b - h.T @ a, exact[N:], atol=1e-11)


@pytest.mark.long
def test_derivatives_of_the_inverse():
    """In either mode and twice, at a rank below the number of rows."""

    def entry(t):
        return sum(jnp.sum(jnp.sin(part)) for part in invert(*matrices(t, 2), jnp.asarray(1e-9)))

    slope, forward = jax.jit(jax.grad(entry)), jax.jit(jax.jacfwd(entry))
    second = jax.jit(jax.jacfwd(jax.grad(entry)))
    value, t, e = jax.jit(entry), 0.3, 1e-5
    np.testing.assert_allclose(slope(t), (value(t + e) - value(t - e)) / (2 * e), rtol=1e-7)
    np.testing.assert_allclose(slope(t), forward(t), rtol=1e-11)
    np.testing.assert_allclose(second(t), (slope(t + e) - slope(t - e)) / (2 * e), rtol=1e-7)
