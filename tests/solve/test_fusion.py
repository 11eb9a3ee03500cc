"""Options of the compiler that only some versions of jaxlib know; kernels of many outputs."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxgrip.solve.fusion import cos_sin, in_one_kernel, jit_plainly, plain_emitters, tiled


def test_options_that_a_jaxlib_does_not_know_are_left_out(monkeypatch):
    plain_emitters.cache_clear()
    try:
        assert jax.jit(jnp.sin, compiler_options=plain_emitters())(0.0) == 0.0
        real = jax.jit

        def strict(function, *, compiler_options):
            return real(function, compiler_options={"xla_cpu_no_such_option": True})

        plain_emitters.cache_clear()
        monkeypatch.setattr(jax, "jit", strict)
        assert plain_emitters() == {}
    finally:
        plain_emitters.cache_clear()


def test_compiled_once_for_all_numbers():
    traced = []

    @jit_plainly
    def double(x):
        traced.append(x)
        return 2 * x

    assert [double(jnp.array(k)) for k in (1.0, 2.0)] == [2.0, 4.0]
    assert len(traced) == 1


def test_within_other_programs_and_derivatives():
    @jit_plainly
    def square(x):
        return x * x

    assert jax.jit(lambda x: square(x) + square(jnp.array(2.0)))(3.0) == 13.0
    assert jax.grad(square)(3.0) == 6.0
    assert jax.jit(jax.grad(square))(3.0) == 6.0
    assert jax.vmap(square)(jnp.arange(3.0)).tolist() == [0.0, 1.0, 4.0]
    assert jax.eval_shape(square, jnp.ones(3)).shape == (3,)


def test_cosine_and_sine():
    rng = np.random.default_rng(1)
    x = np.concatenate(
        [rng.uniform(-s, s, 4000) for s in (1e-9, 1.0, 10.0, 1e6)]
        + [np.arange(-2000, 2000) * (np.pi / 4), [0.0, -0.0]]
    )
    cos, sin = jax.jit(cos_sin)(x)
    np.testing.assert_allclose(cos, np.cos(x), rtol=0, atol=4e-16)
    np.testing.assert_allclose(sin, np.sin(x), rtol=4e-16, atol=4e-16)
    assert np.isnan(cos_sin(jnp.array([jnp.nan, jnp.inf]))[0]).all()


def test_kernel_of_tiles():
    """More outputs, and more inputs, than numbers; constants among the outputs."""

    def step(numbers, state):
        (a,), (x, y) = numbers, state
        return [a * x, x + y, 2.0, y]

    states = jnp.arange(1400.0).reshape(700, 2)
    tiles = tiled(states)
    assert tiles.shape[:2] == (2, 2)
    a, b, c, d = (
        jnp.concatenate(x)[:700]
        for x in zip(*(in_one_kernel(step, (jnp.array(3.0),), [*t]) for t in tiles), strict=True)
    )
    x, y = states.T
    np.testing.assert_array_equal(jnp.stack([a, b, c, d]), [3 * x, x + y, 2 + 0 * x, y])
