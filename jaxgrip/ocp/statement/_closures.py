"""Functions that close over arrays, as pytrees: JAX can differentiate without recompiling."""

from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type, ModuleType, BuiltinFunctionType)
_PURE = ("jax", "jaxlib", "numpy")


class _Unknown(Exception):
    """A function reads something that may change unnoticed."""


def _names(code: CodeType) -> set[str]:
    """Names of globals that a function, or one defined in it, may look up."""
    nested = (_names(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*nested)


def _print_of(value, seen: tuple) -> tuple:
    """A comparable description of a value; raises `_Unknown` if the value may change."""
    if isinstance(value, _PLAIN) or type(value).__module__.split(".")[0] in _PURE:
        if isinstance(value, jax.Array) or hasattr(value, "__array_interface__"):
            raise _Unknown
        return type(value), value
    if isinstance(value, tuple):
        return tuple, *(_print_of(each, seen) for each in value)
    if isinstance(value, Captured):
        return Captured, value.body
    if isinstance(value, FunctionType) and not value.__closure__:
        defaults = value.__defaults__, *sorted((value.__kwdefaults__ or {}).items())
        defaults = [_print_of(each, seen) for each in defaults]
        return FunctionType, value.__code__, *defaults, *_looked_up(value, seen)
    raise _Unknown


def _looked_up(function: FunctionType, seen: tuple) -> list[tuple]:
    """Names and descriptions of the globals that a function uses."""
    if function in seen:
        return []
    seen = (*seen, function)
    values, names = function.__globals__, sorted(_names(function.__code__))
    return [(name, _print_of(values[name], seen)) for name in names if name in values]


class _Body:
    """A function and its constants.

    Two runs of the same `def` or `lambda` are equal if everything that they read, apart from their
    variables, is equal and cannot change; otherwise each equals only itself.
    """

    def __init__(self, function: FunctionType, constants: dict):
        self.function, self.constants = function, constants
        try:
            fixed = [_print_of(each, ()) for each in constants.items()]
            self.print = (function.__code__, *fixed, *_looked_up(function, ()))
        except _Unknown:
            self.print = None

    def __eq__(self, other):
        if not isinstance(other, _Body):
            return NotImplemented
        if self.print is None or other.print is None:
            return self.function is other.function
        return self.print == other.print

    def __hash__(self):
        return hash(self.function.__code__)


class Captured(eqx.Module):
    """A function whose variables with JAX arrays are leaves.

    Variables are closed-over values and defaults, with keys ("free" | "default" | "keyword", name
    or position).
    """

    variables: dict
    body: _Body = eqx.field(static=True)

    def rebuild(self) -> FunctionType:
        """The plain function with these variables."""
        function, values = self.body.function, self.body.constants | self.variables
        values = {k: v.rebuild() if isinstance(v, Captured) else v for k, v in values.items()}
        code = function.__code__
        call = FunctionType(
            code,
            function.__globals__,
            function.__name__,
            tuple(values["default", str(i)] for i in range(len(function.__defaults__ or ()))),
            tuple(CellType(values["free", name]) for name in code.co_freevars),
        )
        call.__kwdefaults__ = {name: v for (kind, name), v in values.items() if kind == "keyword"}
        call.__dict__.update(function.__dict__)
        return call

    def __call__(self, *args, **kwargs):
        """Call the function."""
        return self.rebuild()(*args, **kwargs)


def _settle(leaf):
    # In a derivative a weakly typed number is a Python number, and no longer a leaf.
    return jnp.asarray(leaf, leaf.dtype) if eqx.is_inexact_array(leaf) else leaf


def _capture(value: Any, within: tuple, known: dict) -> Any:
    if not isinstance(value, FunctionType):
        return value
    if value in within:
        # A function cannot be a variable of itself.
        raise _Unknown
    if value not in known:
        within = (*within, value)
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        named = {("free", name): cell.cell_contents for name, cell in cells}
        named |= {("default", str(i)): each for i, each in enumerate(value.__defaults__ or ())}
        named |= {("keyword", n): each for n, each in (value.__kwdefaults__ or {}).items()}
        named = {key: _capture(each, within, known) for key, each in named.items()}
        variables = {
            key: jax.tree.map(_settle, each)
            for key, each in named.items()
            if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(each))
        }
        constants = {key: each for key, each in named.items() if key not in variables}
        known[value] = Captured(variables, _Body(value, constants))
    return known[value]


def capture(value: Any) -> Any:
    """A function as a pytree of the arrays that it closes over; any other value unchanged.

    Without it a number under `jax.grad` or `jax.jit` could not reach the function in another trace,
    and a function defined again with another number would be compiled again.
    """
    try:
        return _capture(value, (), {})
    except (_Unknown, ValueError):
        # The function calls itself, or a variable is not assigned yet.
        return value
