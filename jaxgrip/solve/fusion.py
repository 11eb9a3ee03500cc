"""How to keep XLA's CPU compiler from fusing too much."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax import lax
from jaxtyping import Array, Float


def opaque_one(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """A one of the shape of `x` that is opaque to the compiler; NaN where x is not finite."""
    return lax.stop_gradient(1.0 + 0.0 * x)


def kept(values: Any, one: Float[Array, "*shape"]) -> Any:
    """The same numbers, each computed once. Python floats are returned as they are.

    The CPU compiler copies a chain of cheap operations into every user of its end, which makes
    work and compile time explode with the depth of a recursion. It never copies a quotient, so
    a division by an opaque one ends the chain.
    """
    return jax.tree.map(lambda x: x if type(x) is float else lax.div(x, one), values)


@functools.cache
def plain_emitters() -> dict[str, bool]:
    """Options of `jax.jit` for large programs that run once; none if this jaxlib has none.

    The default fusion of the CPU compiler of jaxlib 0.10 and 0.11 takes minutes for these.
    """
    options = {"xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda x: x, compiler_options=options).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        return {}
    return options


def jit_plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    """`equinox.filter_jit` with the options of `plain_emitters`, looked up at the first call.

    Within another program it is compiled with the options of that one.
    """
    within = eqx.filter_jit(function)

    @functools.cache
    def compiled() -> Callable[..., Any]:
        return eqx.filter_jit(function, compiler_options=plain_emitters())

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return compiled()(*args, **kwargs)
        except ValueError as error:
            # JAX has no other public test of being traced.
            if "top-level `jax.jit`" not in str(error):
                raise
            return within(*args, **kwargs)

    return call
