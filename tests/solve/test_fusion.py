"""Options of the compiler that only some versions of jaxlib know."""

import jax
import jax.numpy as jnp

from jaxgrip.solve.fusion import jit_plainly, plain_emitters


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
