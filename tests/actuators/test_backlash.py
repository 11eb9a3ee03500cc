import jax
import jax.numpy as jnp
import numpy as np
from jax.test_util import check_grads

from jaxgrip.actuators import backlash

WIDTH, SMOOTHING = np.radians(0.5), 1e-5
TWIST = jnp.linspace(-0.05, 0.05, 1001)


def test_no_play_leaves_the_twist():
    np.testing.assert_array_equal(backlash(TWIST, 0.0, SMOOTHING), TWIST)


def test_play_is_a_dead_zone():
    left = backlash(TWIST, WIDTH, SMOOTHING)
    sharp = TWIST - jnp.clip(TWIST, -WIDTH / 2, WIDTH / 2)
    # Largest at a corner, where it is half the smoothing.
    np.testing.assert_allclose(left, sharp, atol=SMOOTHING / 2)
    np.testing.assert_array_equal(left, -backlash(-TWIST, WIDTH, SMOOTHING))


def test_it_increases():
    slope = jax.vmap(jax.grad(backlash), (0, None, None))(TWIST, WIDTH, SMOOTHING)
    assert jnp.min(slope) > 0
    assert jnp.max(slope) < 1


def test_derivatives():
    twist = jnp.array([0.0, WIDTH / 2, -WIDTH / 2, 0.04])
    for width in (0.0, WIDTH):
        inputs = (twist, width, 1e-2)
        check_grads(jax.jit(backlash), inputs, order=1, eps=1e-6, rtol=1e-6, atol=1e-6)
