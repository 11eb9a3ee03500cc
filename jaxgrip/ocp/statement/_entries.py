"""Entries of a problem statement: free numbers, boundary states, bounds, extended functions."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import concrete


class Free(eqx.Module):
    """Numbers that the solver chooses: a final time, design variables, a part of a boundary state.

    **Arguments:** `guess`, a starting value; `lower` and `upper`, bounds, None for the default: a
    final time lies between 0 and infinity, everything else is unbounded.
    """

    guess: Float[Array, "..."]
    lower: Float[Array, "..."] | None
    upper: Float[Array, "..."] | None

    def __init__(
        self,
        guess: Sequence | ArrayLike,
        lower: Sequence | ArrayLike | None = None,
        upper: Sequence | ArrayLike | None = None,
    ):
        self.guess = jnp.asarray(guess, dtype=float)
        self.lower = None if lower is None else jnp.asarray(lower, dtype=float)
        self.upper = None if upper is None else jnp.asarray(upper, dtype=float)

    def within(self, lower: float, upper: float) -> "Free":
        """The same numbers in double precision; missing bounds become `lower` and `upper`."""
        guess = jnp.asarray(self.guess, dtype=float)
        given = (self.lower, lower), (self.upper, upper)
        sides = (default if bound is None else bound for bound, default in given)
        return Free(guess, *(jnp.broadcast_to(jnp.asarray(v, float), guess.shape) for v in sides))


class BoundaryState(NamedTuple):
    """A boundary state: `values` `(n,)`, the indices of its fixed and of its guessed entries,
    bounds of the guessed ones, and whether any bound was given.
    """

    values: Float[Array, " n"]
    fixed: tuple[int, ...]
    guessed: tuple[int, ...]
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    is_bounded: bool


def read_boundary(values: Sequence | ArrayLike, name: str) -> BoundaryState:
    """Read a boundary state, in which None or [`Free`][] leaves an entry free."""
    free: dict[int, Free] = {}
    is_bounded = False
    if isinstance(values, Sequence):
        guesses = {i: value for i, value in enumerate(values) if isinstance(value, Free)}
        is_bounded = any(v.lower is not None or v.upper is not None for v in guesses.values())
        free = {i: v.within(-np.inf, np.inf) for i, v in guesses.items()}
        fixed = tuple(i for i, v in enumerate(values) if v is not None and i not in free)
        values = [
            free[i].guess if i in free else 0.0 if value is None else value
            for i, value in enumerate(values)
        ]
    else:
        fixed = tuple(range(jnp.shape(values)[0] if jnp.ndim(values) else 0))
    values = jnp.asarray(values, dtype=float)
    if values.ndim != 1:
        raise ValueError(f"{name} must be a vector, not an array of shape {values.shape}.")
    lower, upper = jnp.full(values.shape, -jnp.inf), jnp.full(values.shape, jnp.inf)
    for i, each in free.items():
        lower, upper = lower.at[i].set(each.lower), upper.at[i].set(each.upper)
    return BoundaryState(values, fixed, tuple(free), lower, upper, is_bounded)


def read_bounds(
    bounds: tuple | None, length: int, name: str
) -> tuple[Float[Array, " length"], Float[Array, " length"], tuple[int, ...], tuple[int, ...]]:
    """Lower and upper bounds, and the indices with a lower and with an upper bound.

    None means no bound, and so does an infinite entry unless it is traced.
    """
    if bounds is None:
        bounds = (np.full(length, -np.inf), np.full(length, np.inf))
    sides, bound = [], []
    for values, none in zip(bounds, (-np.inf, np.inf), strict=True):
        exists = np.ones(length, dtype=bool)
        if isinstance(values, Sequence):
            exists = np.array([value is not None for value in values])
            values = [none if value is None else value for value in values]
        values = jnp.asarray(values, dtype=float)
        if values.shape != (length,):
            raise ValueError(
                f"{name} must be two vectors of length {length}, not shapes "
                f"{np.shape(bounds[0])} and {np.shape(bounds[1])}."
            )
        sides.append(values)
        if concrete(values):
            exists &= np.asarray(values) != none
        bound.append(tuple(np.flatnonzero(exists).tolist()))
    return *sides, *bound


def read_design(variables: Free | None) -> Free:
    """Design variables with bounds; an empty vector when None."""
    if variables is None:
        return Free(jnp.zeros(0), jnp.zeros(0), jnp.zeros(0))
    if not isinstance(variables, Free) or jnp.ndim(variables.guess) != 1:
        raise ValueError(f"design_variables must be a Free with a vector, not {variables}.")
    return variables.within(-np.inf, np.inf)


def is_concrete(tree) -> bool:
    """Whether no array of a pytree is traced."""
    return all(map(concrete, jax.tree.leaves(tree)))


class Stated(eqx.Module):
    """A function of the user's as one of the extended state (states, design variables, time)."""

    function: Callable
    n: int = eqx.field(static=True)
    n_design: int = eqx.field(static=True)
    is_time_dependent: bool = eqx.field(static=True)

    def __call__(self, z: Float[Array, " n"], u: Float[Array, " m"]):
        """Value of the function at an extended state."""
        p, t = jnp.split(z[self.n :], [self.n_design])
        extras = ([p] if self.n_design else []) + list(t)
        return self.function(z[: self.n], u, *extras)


class Extended(Stated):
    """Dynamics of the extended state: design variables are constant, time has the rate one."""

    def __call__(self, z: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " n"]:
        """Rates of the extended state."""
        clock = jnp.ones(int(self.is_time_dependent))
        return jnp.concatenate([super().__call__(z, u), jnp.zeros(self.n_design), clock])
