"""Functions that close over arrays, as pytrees: JAX can differentiate and need not recompile."""

from types import CellType, FunctionType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


def _is_same(one, other) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    try:
        return bool(np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other)
    except (TypeError, ValueError):
        return False


def _settle(leaf):
    # In a derivative a number without a fixed type is a mere Python number, and no longer a leaf.
    return jnp.asarray(leaf, leaf.dtype) if eqx.is_inexact_array(leaf) else leaf


class _Body:
    """A function and the constants that it closes over; equal to another run of the same `def`."""

    def __init__(self, function: FunctionType, constants: dict):
        self.function, self.constants = function, constants

    def __eq__(self, other):
        if not isinstance(other, _Body):
            return NotImplemented
        mine, others = self.function, other.function
        return (
            mine.__code__ is others.__code__
            and mine.__globals__ is others.__globals__
            and _is_same(mine.__defaults__, others.__defaults__)
            and _is_same(mine.__kwdefaults__, others.__kwdefaults__)
            and self.constants.keys() == other.constants.keys()
            and all(_is_same(v, other.constants[k]) for k, v in self.constants.items())
        )

    def __hash__(self):
        return hash(self.function.__code__)


class Captured(eqx.Module):
    """A function with those of the variables it closes over that hold JAX arrays as leaves.

    Two runs of one `def` or `lambda` that close over equal constants are equal.
    """

    variables: dict
    body: _Body = eqx.field(static=True)

    def __call__(self, *args):
        """Call the function."""
        function, values = self.body.function, self.body.constants | self.variables
        cells = tuple(CellType(values[name]) for name in function.__code__.co_freevars)
        call = FunctionType(
            function.__code__, function.__globals__, None, function.__defaults__, cells
        )
        call.__kwdefaults__ = function.__kwdefaults__
        return call(*args)


def capture(value: Any, within: tuple = ()) -> Any:
    """Turn a function into one that shows what it closes over; return all else unchanged.

    Without it a number under `jax.grad` or `jax.jit` could not reach the function in another trace,
    and a function that is defined anew with another number would be compiled anew.
    """
    if not isinstance(value, FunctionType) or value in within:
        return value
    try:
        contents = [cell.cell_contents for cell in value.__closure__ or ()]
    except ValueError:
        # A variable that is not assigned yet.
        return value
    contents = [capture(each, (*within, value)) for each in contents]
    named = dict(zip(value.__code__.co_freevars, contents, strict=True))
    variables = {
        name: jax.tree.map(_settle, each)
        for name, each in named.items()
        if isinstance(each, Captured)
        or any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(each))
    }
    constants = {name: each for name, each in named.items() if name not in variables}
    return Captured(variables, _Body(value, constants))
