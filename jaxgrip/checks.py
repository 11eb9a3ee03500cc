"""Checks of what comes from outside, each with one sentence for an answer."""

import difflib
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def concrete(x: Any) -> bool:
    """Whether the numbers of an array can be looked at; traced ones cannot.

    Look at them through NumPy: within a traced function JAX would trace the comparison.
    """
    return not isinstance(x, jax.core.Tracer)


def check_shape(name: str, x: Any, *allowed: tuple[int, ...]) -> None:
    """Raise `ValueError` unless the array called `name` has one of the allowed shapes."""
    if x.shape not in allowed:
        shapes = " or ".join(map(str, allowed))
        raise ValueError(f"{name} has the shape {x.shape}; it must be {shapes}.")


def numbers(name: str, value: Any, *allowed: tuple[int, ...]) -> jax.Array:
    """The value as an array of floats; `ValueError` when it is none, ill-shaped or not finite.

    Any shape will do where none is given.
    """
    try:
        if any(map(_no_number, jax.tree.leaves(value))):
            raise TypeError
        x = jnp.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is no number or array of numbers: {value!r}.") from None
    if allowed:
        check_shape(name, x, *allowed)
    if concrete(x) and not np.all(np.isfinite(x)):
        raise ValueError(f"{name} is not finite: {np.asarray(x).tolist()}.")
    return x


def _no_number(x: Any) -> bool:
    """Whether NumPy would make a number of what is none: words and truth values."""
    return isinstance(x, str | bytes | bool) or getattr(x, "dtype", None) == np.bool_


def positive(name: str, value: Any, *allowed: tuple[int, ...], unit: str = "") -> jax.Array:
    """`numbers` all of which are above zero; the unit is for the sentence."""
    x = numbers(name, value, *allowed)
    if concrete(x) and not np.all(np.asarray(x) > 0):
        raise ValueError(f"{name} is {' '.join([_words(x), unit]).strip()}; it must be positive.")
    return x


def non_negative(name: str, value: Any, *allowed: tuple[int, ...]) -> jax.Array:
    """`numbers` none of which is below zero."""
    x = numbers(name, value, *allowed)
    if concrete(x) and not np.all(np.asarray(x) >= 0):
        raise ValueError(f"{name} is {_words(x)}; it must not be negative.")
    return x


def rotation_matrix(name: str, value: Any) -> jax.Array:
    """`numbers` (3, 3) that are a rotation matrix, to 1e-6."""
    x = numbers(name, value, (3, 3))
    if concrete(x):
        r = np.asarray(x)
        if not np.allclose(r @ r.T, np.eye(3), atol=1e-6) or not np.linalg.det(r) > 0:
            raise ValueError(f"{name} is no rotation matrix.")
    return x


def check_times(times: Any) -> None:
    """Raise `ValueError` unless times are (k,), k at least 1, finite and increasing."""
    if jnp.ndim(times) != 1 or len(times) < 1:
        raise ValueError(f"times has the shape {jnp.shape(times)}; it must be (k,), k at least 1.")
    if concrete(times) and not (np.isfinite(times).all() and (np.diff(times) >= 0).all()):
        raise ValueError("times must be finite and increasing.")


def near(name: str, known: Iterable[str], otherwise: str = "there are") -> str:
    """The end of a sentence on a name that is not known: the closest of those known, or all."""
    known = list(known)
    found = difflib.get_close_matches(name, known, n=1)
    return f"perhaps {found[0]!r}?" if found else f"{otherwise} {', '.join(known)}."


def _words(x: jax.Array) -> str:
    return f"{float(x):g}" if x.ndim == 0 else str(np.asarray(x).tolist())
