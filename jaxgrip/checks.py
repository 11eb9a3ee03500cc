"""Checks of user input; a failure raises one sentence."""

import inspect
import reprlib
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxgrip._names import closest

# So many names or numbers are shown in a message.
_FEW = 12


def concrete(x: Any) -> bool:
    """Whether the numbers of an array are known; traced ones are not.

    Compare them through NumPy: within a traced function JAX would trace the comparison.
    """
    return not isinstance(x, jax.core.Tracer)


def check_shape(name: str, x: Any, *allowed: tuple[int, ...]) -> None:
    """Raise `ValueError` unless the array called `name` has one of the allowed shapes."""
    if x.shape not in allowed:
        shapes = " or ".join(map(str, allowed))
        raise ValueError(f"{name} has the shape {x.shape}; it must be {shapes}.")


def numbers(name: str, value: Any, *allowed: tuple[int, ...]) -> jax.Array:
    """The value as an array of floats; `ValueError` for a wrong type or shape, or if not finite.

    Without `allowed` shapes, every shape is allowed.
    """
    x = _floats(name, value)
    if allowed:
        check_shape(name, x, *allowed)
    if concrete(x) and not np.all(np.isfinite(x)):
        raise ValueError(f"{name} is not finite: {first(x, ~np.isfinite(x))}.")
    return x


def real(name: str, value: Any, dtype: Any, *allowed: tuple[int, ...]) -> jax.Array:
    """The value as an array of the float `dtype` of a model; whole numbers are converted.

    For the arguments of compiled functions: a `value` of this dtype is returned without a look at
    its numbers.

    **Raises:** `ValueError` for a value that is no number, for floats of another precision and,
    where shapes are given, for another shape.
    """
    x = value if isinstance(value, jax.Array) else _floats(name, value).astype(dtype)
    if allowed:
        check_shape(name, x, *allowed)
    if jnp.issubdtype(x.dtype, jnp.integer):
        return x.astype(dtype)
    if x.dtype != dtype:
        raise ValueError(
            f"{name} has dtype {x.dtype}; it must be {np.dtype(dtype)}, as in the model."
        )
    return x


def check_function(
    name: str,
    function: Any,
    shape: tuple[int, ...],
    read: Callable[[str, Any], jax.Array] | None = None,
    /,
    **arguments: Any,
) -> None:
    """Raise `ValueError` unless a user's function of these arguments gives an array of the shape.

    The arguments are those it will be called with, in their order. It is traced, not computed. Its
    result is an array of numbers, or what `read(name, result)` makes one of.
    """
    wanted = f"it must be a function of ({', '.join(arguments)}) that returns an array {shape}"
    if not callable(function):
        raise ValueError(f"The {name} is {brief(function)}; {wanted}.")
    if not takes(function, len(arguments)):
        raise ValueError(f"The {name} is a function of {inspect.signature(function)}; {wanted}.")
    result = f"The result of the {name}"
    read = _floats if read is None else read
    found = jax.eval_shape(lambda *x: read(result, function(*x)), *arguments.values())
    check_shape(result, found, shape)


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function takes this number of arguments, as far as its signature tells."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _floats(name: str, value: Any) -> jax.Array:
    try:
        if any(map(_no_number, jax.tree.leaves(value))):
            raise TypeError
        return jnp.asarray(value, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"{name} is {brief(value)}; it must be a number or an array of numbers."
        ) from None


def _no_number(x: Any) -> bool:
    """Whether this is no real number but NumPy would convert it: strings, booleans, complex."""
    if isinstance(x, str | bytes | bool | complex):
        return True
    # Keys of random numbers have a dtype without a kind.
    return hasattr(x, "dtype") and getattr(x.dtype, "kind", "K") in ("b", "c", "K", "S", "U")


def decimal(word: str) -> float:
    """The number in a word of a file; `ValueError` for any other word."""
    # Python would read 1_000 as 1000.
    if "_" in word:
        raise ValueError(f"{brief(word)} is no number.")
    return float(word)


def positive(name: str, value: Any, *allowed: tuple[int, ...], unit: str = "") -> jax.Array:
    """`numbers`, all greater than zero; the unit is for the message."""
    x = numbers(name, value, *allowed)
    if concrete(x) and not np.all(np.asarray(x) > 0):
        found = " ".join([first(x, ~(np.asarray(x) > 0)), unit]).strip()
        raise ValueError(f"{name} is {found}; it must be positive.")
    return x


def non_negative(name: str, value: Any, *allowed: tuple[int, ...]) -> jax.Array:
    """`numbers`, none less than zero."""
    x = numbers(name, value, *allowed)
    if concrete(x) and not np.all(np.asarray(x) >= 0):
        found = first(x, ~(np.asarray(x) >= 0))
        raise ValueError(f"{name} is {found}; it must not be negative.")
    return x


def rotation_matrix(name: str, value: Any) -> jax.Array:
    """`numbers` (3, 3) that are a rotation matrix, to 1e-6."""
    x = numbers(name, value, (3, 3))
    if concrete(x):
        r = np.asarray(x)
        error, determinant = np.max(np.abs(r @ r.T - np.eye(3))), np.linalg.det(r)
        if not error <= 1e-6 or not determinant > 0:
            raise ValueError(
                f"{name} is no rotation matrix: R R^T differs from the unit matrix by {error:.2g} "
                f"and the determinant is {determinant:.4g}; to 1e-6 they must be 0 and 1."
            )
    return x


def check_times(times: Any, name: str = "times") -> jax.Array:
    """Times as an array; `ValueError` unless (k,), k at least 1, finite and not decreasing."""
    times = _floats(name, times)
    if times.ndim != 1 or len(times) < 1:
        raise ValueError(f"{name} has the shape {times.shape}; it must be (k,), k at least 1.")
    if concrete(times) and not (np.isfinite(times).all() and (np.diff(times) >= 0).all()):
        raise ValueError(f"{name} must be finite and must not decrease.")
    return times


def is_whole(value: Any, least: int, most: int | None = None) -> bool:
    """Whether a value is a whole number, no bool, from `least` to `most` if there is one."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    return whole and least <= value and (most is None or value <= most)


def near(name: str, known: Iterable[str], otherwise: str = "there are") -> str:
    """The end of a message on an unknown name: the closest known one, or all."""
    known = list(known)
    found = closest(name, known)
    if found:
        return f"perhaps {found!r}?"
    return f"{otherwise} {listed(known)}."


def listed(names: Iterable[str], most: int = _FEW) -> str:
    """Names for a message: the first `most`, and the number of the others."""
    names = list(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more if names else "none"


def first(x: Any, where: Any) -> str:
    """For a message: a number, a short array as a whole, or the first bad entry of a long one.

    **Arguments:** `x`; `where` it is bad, of the same shape. Indices count from 0, as `[2, 0]`.
    """
    x, where = np.asarray(x), np.asarray(where)
    if x.ndim == 0:
        return f"{float(x):g}"
    if x.size <= _FEW:
        return str(x.tolist())
    index = np.argwhere(where)[0].tolist()
    return f"{float(x[tuple(index)]):g} at {index} of an array {x.shape}"


def brief(value: Any) -> str:
    """Any value for a message: an array of more than a few entries by its shape and range."""
    if isinstance(value, jax.Array | np.ndarray) and concrete(value):
        x = np.asarray(value)
        if x.size > _FEW:
            numeric = x.dtype.kind in "iuf"
            extent = f" from {np.min(x):g} to {np.max(x):g}" if numeric else ""
            return f"an array {x.shape}{extent}"
        return str(x.tolist())
    return _REPR.repr(value)


_REPR = reprlib.Repr()
_REPR.maxlist = _REPR.maxtuple = _REPR.maxset = _REPR.maxdict = 4
_REPR.maxstring = _REPR.maxother = 80
