"""Bounds of parameters, their names, and positions within them."""

import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from jaxgrip.checks import brief, check_shape, concrete, numbers


class Bound(eqx.Module):
    """Lower and upper bound of a parameter.

    **Arguments:** `lower`, `upper`: numbers, or arrays for a parameter that is an array, in the
    parameter's unit; `scale`: "log" for positive parameters, whose order of magnitude is searched,
    "linear" for those that may be zero or negative; `by_series`: whether the k-th entry influences
    the k-th array of the residuals alone, such as the start of a motion, so that derivatives by all
    of them cost no more than that by one.

    **Raises:** `ValueError` unless lower < upper, and 0 < lower on a logarithmic scale.
    """

    lower: Float[Array, "..."]
    upper: Float[Array, "..."]
    scale: Literal["log", "linear"] = eqx.field(static=True)
    by_series: bool = eqx.field(static=True)

    def __init__(self, lower, upper, scale="log", *, by_series=False):
        if scale not in ("log", "linear"):
            raise ValueError(
                f'The scale of a Bound is {brief(scale)}; it must be "log" or "linear".'
            )
        shape = np.broadcast_shapes(np.shape(lower), np.shape(upper))
        self.lower, self.upper = (
            jnp.broadcast_to(numbers(f"{name} of a Bound", x, np.shape(x)), shape)
            for name, x in (("lower", lower), ("upper", upper))
        )
        self.scale, self.by_series = scale, by_series
        if not (concrete(self.lower) and concrete(self.upper)):
            return
        if not np.all(np.asarray(self.lower) < np.asarray(self.upper)):
            raise ValueError(
                f"The lower bound {brief(self.lower)} must lie below the upper bound "
                f"{brief(self.upper)}."
            )
        if scale == "log" and not np.all(np.asarray(self.lower) > 0):
            raise ValueError(
                f"The lower bound is {brief(self.lower)}; a logarithmic scale needs "
                'it positive: pass scale="linear".'
            )


# A tree of `Bound`; `leaves` reports any other leaf.
Bounds = PyTree


def _is_bound(x: Any) -> bool:
    return isinstance(x, Bound)


def leaves(bounds: Bounds) -> list[Bound]:
    """The bounds in the order of the parameters; `ValueError` where a leaf is no `Bound`."""
    found = jax.tree_util.tree_leaves_with_path(bounds, is_leaf=_is_bound)
    for path, leaf in found:
        if not _is_bound(leaf):
            where = jax.tree_util.keystr(path, simple=True, separator=".") or "bounds"
            raise ValueError(f"{where} is {brief(leaf)}; every leaf of the bounds must be a Bound.")
    if not found:
        raise ValueError("The bounds are empty; at least one parameter is needed.")
    return [leaf for _, leaf in found]


def names(parameters: PyTree) -> tuple[str, ...]:
    """Names of the scalars in a tree of parameters, or of bounds: "coulomb", "gear.springs.0"."""
    found = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(parameters, is_leaf=_is_bound):
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "parameter"
        shape = leaf.lower.shape if _is_bound(leaf) else jnp.shape(leaf)
        found += [".".join([name, *map(str, index)]) for index in np.ndindex(shape)]
    return tuple(found)


def ravel(parameters: PyTree) -> Float[Array, " n"]:
    """The scalars of a tree of parameters, one after another."""
    flat = [jnp.ravel(jnp.asarray(x, dtype=float)) for x in jax.tree.leaves(parameters)]
    return jnp.concatenate(flat)


def unravel(bounds: Bounds, flat: Float[Array, " n"]) -> PyTree:
    """A tree of parameters of the structure of the bounds, from its scalars."""
    parts, at = [], 0
    for bound in leaves(bounds):
        size = math.prod(bound.lower.shape)
        parts.append(flat[at : at + size].reshape(bound.lower.shape))
        at += size
    return jax.tree.unflatten(jax.tree.structure(bounds, is_leaf=_is_bound), parts)


def place(bounds: Bounds, position: Float[Array, " n"]) -> PyTree:
    """Parameters from their positions, 0 at the lower and 1 at the upper bound.

    The logarithm is interpolated on a logarithmic scale, the parameter itself on a linear one.
    """

    def inside(bound, s):
        if bound.scale == "linear":
            return (1 - s) * bound.lower + s * bound.upper
        return jnp.exp((1 - s) * jnp.log(bound.lower) + s * jnp.log(bound.upper))

    return jax.tree.map(inside, bounds, unravel(bounds, position), is_leaf=_is_bound)


def position(bounds: Bounds, parameters: PyTree) -> Float[Array, " n"]:
    """Positions of parameters between their bounds, the inverse of [`place`][].

    **Raises:** `ValueError` for another structure, another shape or a parameter out of bounds.
    """
    limits = leaves(bounds)
    try:
        values = jax.tree.structure(bounds, is_leaf=_is_bound).flatten_up_to(parameters)
    except ValueError:
        raise ValueError(
            f"The parameters are {sorted(names(parameters))}, the bounds are for "
            f"{sorted(names(bounds))}; they must be the same."
        ) from None
    labels = jax.tree_util.tree_leaves_with_path(bounds, is_leaf=_is_bound)
    parts = []
    for (path, _), bound, value in zip(labels, limits, values, strict=True):
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "The parameter"
        x = numbers(name, value, bound.lower.shape)
        lower, upper = bound.lower, bound.upper
        if bound.scale == "log":
            x, lower, upper = jnp.log(x), jnp.log(lower), jnp.log(upper)
        s = (x - lower) / (upper - lower)
        # `place` may exceed a bound by rounding.
        if concrete(s) and not np.all(np.abs(s - 0.5) <= 0.5 + 1e-12):
            raise ValueError(
                f"{name} is {brief(np.asarray(value))}; it must lie between its bounds "
                f"{brief(bound.lower)} and {brief(bound.upper)}."
            )
        parts.append(jnp.ravel(jnp.clip(s, 0.0, 1.0)))
    return jnp.concatenate(parts)


def constrain(bounds: Bounds, x: Float[Array, " n"]) -> PyTree:
    """Parameters within bounds from any n numbers, by the logistic function.

    **Arguments:** `bounds`: tree of `Bound`; `x`: (n,) unbounded numbers, as an unconstrained
    optimizer has them; 0 is the middle of the bounds.

    **Returns:** a tree of the structure of `bounds`, with arrays instead of bounds.

    Source: own choice.
    """
    check_shape("x", x, (len(names(bounds)),))
    return place(bounds, jax.nn.sigmoid(x))


def unconstrain(bounds: Bounds, parameters: PyTree) -> Float[Array, " n"]:
    """The (n,) unbounded numbers from which [`constrain`][] makes the parameters.

    **Raises:** `ValueError` for another structure, another shape or a parameter out of bounds; a
    parameter on its bound gives an infinite number.
    """
    s = position(bounds, parameters)
    return jnp.log(s) - jnp.log1p(-s)


def units(bounds: Bounds, parameters: PyTree) -> Float[Array, " n"]:
    """Unit of each parameter: its value on a logarithmic scale, otherwise its range."""
    sizes = jax.tree.map(
        lambda bound, x: x if bound.scale == "log" else bound.upper - bound.lower,
        bounds,
        parameters,
        is_leaf=_is_bound,
    )
    return ravel(sizes)


def spans(bounds: Bounds, parameters: PyTree) -> Float[Array, " n"]:
    """Derivative of each parameter by its position."""
    sizes = jax.tree.map(
        lambda bound, x: (
            x * jnp.log(bound.upper / bound.lower)
            if bound.scale == "log"
            else bound.upper - bound.lower
        ),
        bounds,
        parameters,
        is_leaf=_is_bound,
    )
    return ravel(sizes)
