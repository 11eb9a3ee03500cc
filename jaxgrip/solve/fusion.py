"""How to keep XLA's CPU compiler from computing a shared intermediate once per user."""

from typing import Any

import jax
from jax import lax
from jaxtyping import Array, Float


def opaque_one(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """A one of the shape of `x` that the compiler cannot see through; NaN where x is not finite."""
    return lax.stop_gradient(1.0 + 0.0 * x)


def kept(values: Any, one: Float[Array, "*shape"]) -> Any:
    """The same numbers, each computed once. Python floats stay what they are.

    The CPU compiler copies a chain of cheap operations into every user of its end, which makes
    work and compile time explode with the depth of a recursion. It never copies a quotient, so
    a division by a one it cannot see through ends the chain.
    """
    return jax.tree.map(lambda x: x if type(x) is float else lax.div(x, one), values)
