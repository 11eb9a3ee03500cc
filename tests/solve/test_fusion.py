"""Options of the compiler that only some versions of jaxlib know; kernels of many outputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip.solve.fusion import (
    cos_sin,
    in_one_kernel,
    jit_plainly,
    over_tiles,
    plain_emitters,
    scalars_of,
    tiling,
)


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


def test_within_another_program_it_is_traced_once():
    traced = []

    @jit_plainly
    def double(x):
        traced.append(x)
        return 2 * x

    assert jax.jit(jax.vmap(double))(jnp.arange(3.0)).tolist() == [0.0, 2.0, 4.0]
    assert len(traced) == 1


def test_what_is_compiled_ahead_is_not_compiled_again(compilations):
    triple = jit_plainly(lambda x, by: by * x)
    x, y = jnp.array([1.0, 2.0]), jnp.array([0.0, 5.0])
    with compilations() as found:
        assert triple.begin(x, 3.0)
        assert not triple.begin(y, 3.0)
        assert [triple(v, 3.0).tolist() for v in (x, y)] == [[3.0, 6.0], [0.0, 15.0]]
        # Two more try the options of the compiler, and whether they are allowed here.
        assert len(found) <= 3
    with compilations() as found:
        assert triple(x, 2.0).tolist() == [2.0, 4.0]
        assert len(found) == 1
    assert jax.vmap(lambda x: triple(x, 3.0))(jnp.ones(2)).tolist() == [3.0, 3.0]
    assert jax.grad(lambda x: triple(x, 3.0))(1.0) == 3.0


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


def test_tiles_hold_all_states_at_lengths_that_suit_the_cache():
    for count in (1, 8, 256, 2048, 2049, 2056, 2057, 4096, 4097, 100_000):
        tiles, length = tiling(count)
        assert (tiles - 1) * length < count <= tiles * length
        assert length % 64 == 8
        assert length < 2200
        assert tiles == 1 or length <= count


@pytest.mark.parametrize("count", [70, 71, 72, 73, 200, 1000])
def test_tiles_are_written_where_they_belong(count):
    x = jnp.arange(2.0 * count).reshape(2, count)
    double, total = over_tiles(lambda x: (2 * x, x[0] + x[1]), [x], ((2,), ()), 72)
    np.testing.assert_array_equal(double, 2 * x)
    np.testing.assert_array_equal(total, x[0] + x[1])


@pytest.mark.parametrize("count", [0, 1, 2, 17])
def test_scalars_of_an_array(count):
    x = np.random.default_rng(count).normal(size=count)
    x[1:2], x[2:3] = -0.0, np.nan
    found = np.array(scalars_of(jnp.asarray(x)))
    np.testing.assert_array_equal(found, x)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(x))


def test_kernel_of_more_outputs_and_inputs_than_numbers():
    def step(numbers, state):
        (a,), (x, y) = numbers, state
        return [a * x, x + y, 2.0, y]

    x, y = np.random.default_rng(2).normal(size=(2, 72))
    found = in_one_kernel(step, jnp.array([3.0]), [jnp.asarray(x), jnp.asarray(y)])
    assert found.pop(2) == 2.0
    np.testing.assert_allclose(jnp.stack(found), [3 * x, x + y, y], rtol=1e-15)
