"""Checks of a problem's functions before anything runs: arguments, entries used, result."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.errors import (
    ConcretizationTypeError,
    NonConcreteBooleanIndexError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
)
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun

from jaxgrip.checks import brief, takes

# The last one is the base class of the others.
_REMEDIES = {
    TracerBoolConversionError: "branches on a number that JAX traces (if, while, and, or, not, "
    "min, max): use jax.numpy.where, jax.numpy.minimum or jax.lax.cond",
    NonConcreteBooleanIndexError: "picks entries by a condition: use jax.numpy.where",
    TracerArrayConversionError: "hands a number that JAX traces to NumPy (np.sin, np.array): use "
    "the function of the same name in jax.numpy",
    TracerIntegerConversionError: "takes a number that JAX traces as an index or a count: use "
    "jax.numpy.interp, jax.lax.switch or a JAX array in place of the list",
    ConcretizationTypeError: "makes a Python number of one that JAX traces (float, int, math.sin): "
    "use jax.numpy",
}
# These run their inner program once and on the same arguments.
_CALLS = ("jit", "pjit", "closed_call", "checkpoint", "custom_jvp_call", "custom_vjp_call")


def probe(
    name: str, function: Callable, arguments: dict[str, Any], shape: tuple[int | None, ...]
) -> tuple[int, ...]:
    """Trace a function of a statement once, and check its arguments and its result.

    **Arguments:** `name` of the function in the statement; `arguments`, arrays or lists of them, by
    their names in words; `shape` of the result, with None for any length.

    **Returns:** the shape of the result.

    **Raises:** `ValueError` with one sentence where the function takes other arguments, cannot be
    traced, returns something else, or uses an entry beyond the end of an array, for which JAX
    silently takes another entry.
    """
    if not callable(function):
        raise ValueError(
            f"{name} must be a function of {', '.join(arguments)}, not {brief(function)}."
        )
    if not takes(function, len(arguments)):
        raise ValueError(
            f"{name} must take {len(arguments)} arguments ({', '.join(arguments)}), not "
            f"{inspect.signature(function)}."
        )
    dynamic, static = eqx.partition((function, list(arguments.values())), eqx.is_array)

    def call(dynamic):
        function, values = eqx.combine(dynamic, static)
        return function(*values)

    try:
        program, out = jax.make_jaxpr(call, return_shape=True)(dynamic)
    except Exception as error:
        reason = next((text for kind, text in _REMEDIES.items() if isinstance(error, kind)), None)
        if reason is None:
            sizes = ", ".join(
                f"{word} {jax.tree.map(jnp.shape, v)}" for word, v in arguments.items()
            )
            text = next(iter(str(error).splitlines()), "").rstrip(".")
            reason = f"raises {type(error).__name__} for {sizes}: {text}"
        raise ValueError(f"{name} {reason}.") from error
    given = [word for word, value in arguments.items() for _ in jax.tree.leaves(value)]
    # The function's own numbers come first.
    own = program.jaxpr.invars[len(program.jaxpr.invars) - len(given) :]
    words = dict(zip(own, given, strict=True))
    for what, index, size in _misses(program.jaxpr, program.consts, words, {}):
        whole = "an array" if what is None else f"the {what}"
        raise ValueError(
            f"{name} uses entry {index} of {whole}, whose entries are numbered 0 to {size - 1}: "
            "JAX would silently take another one or none."
        )
    own = getattr(out, "shape", None)
    if (
        own is None
        or len(own) != len(shape)
        or any(k not in (None, length) for k, length in zip(shape, own, strict=True))
    ):
        wanted = "a vector" if None in shape else f"an array of shape {shape}"
        raise ValueError(
            f"{name} must return {wanted if shape else 'a scalar'}, not {_in_words(out)}."
        )
    if out.dtype != np.float64:
        raise ValueError(f"{name} must return 64-bit floating-point numbers, not {out.dtype}.")
    return own


def _in_words(out) -> str:
    if hasattr(out, "shape"):
        return f"an array of shape {out.shape}"
    if isinstance(out, list | tuple):
        return f"a {type(out).__name__} of {len(out)}: join them by jax.numpy.stack"
    return type(out).__name__.removesuffix("Type")


def _misses(
    program: Jaxpr, constants: list, words: dict, known: dict
) -> Iterator[tuple[str | None, int, int]]:
    """Uses of entries beyond the end of an array: name of the array, entry, length of the array.

    **Arguments:** a `program` and its `constants`; `words`, names of some of its variables;
    `known`, integer values of others.
    """
    known = known | dict(zip(program.constvars, constants, strict=True))

    def integers(variable):
        value = variable.val if isinstance(variable, Literal) else known.get(variable)
        if value is None or isinstance(value, jax.core.Tracer):
            return None
        return np.asarray(value) if _is_integer(variable) else None

    for step in program.eqns:
        values = [integers(variable) for variable in step.invars]
        word = None if not step.invars else words.get(_key(step.invars[0]))
        yield from ((word, index, size) for index, size in _beyond(step, values))
        inner = [
            each for each in jax.tree.leaves(step.params) if isinstance(each, ClosedJaxpr | Jaxpr)
        ]
        given = step.invars if step.primitive.name in _CALLS else []
        if step.primitive.name == "cond":
            given = step.invars[1:]
            # A constant index runs one branch alone.
            inner = inner if values[0] is None else [inner[int(values[0])]]
        for each in inner:
            body, constants = (
                (each.jaxpr, each.consts) if isinstance(each, ClosedJaxpr) else (each, [])
            )
            passed = {}
            if len(body.invars) == len(given):
                passed = dict(zip(body.invars, given, strict=True))
            yield from _misses(
                body,
                constants,
                {own: words.get(_key(outer)) for own, outer in passed.items()},
                {own: integers(outer) for own, outer in passed.items()},
            )
        is_index = all(_is_integer(variable) for variable in step.outvars)
        is_known = all(value is not None for value in values)
        is_call = len(inner) == 1 and step.primitive.name in ("jit", "pjit")
        if is_index and is_known and (is_call or not inner) and not step.effects:
            with jax.ensure_compile_time_eval():
                if is_call:
                    out = jaxpr_as_fun(inner[0])(*values)
                else:
                    out = step.primitive.bind(*values, **step.params)
            out = out if step.primitive.multiple_results else [out]
            known |= dict(zip(step.outvars, out, strict=True))


def _is_integer(variable) -> bool:
    """Whether a variable holds integers or booleans; random keys and tokens do not."""
    dtype = getattr(variable.aval, "dtype", None)
    return dtype is not None and any(jnp.issubdtype(dtype, k) for k in (jnp.integer, jnp.bool_))


def _key(variable):
    """The variable as a key of a dictionary; None for a literal, which is not hashable."""
    return None if isinstance(variable, Literal) else variable


def _beyond(step: JaxprEqn, values: list) -> Iterator[tuple[int, int]]:
    """Entries beyond the end of the array that a step reads or writes, and its length.

    Modes that allow such entries are left alone. `mode="drop"` and `mode="fill"` cannot be told
    from `.at[].set` and `jnp.take` without a mode: there it is an error if all entries are beyond
    the end, not if some are.
    """
    name, given = step.primitive.name, step.params
    shape = getattr(step.invars[0].aval, "shape", ()) if step.invars else ()
    modes = jax.lax.GatherScatterMode
    is_promised = given.get("mode") == modes.PROMISE_IN_BOUNDS
    may_drop = given.get("mode") == modes.FILL_OR_DROP
    if name in ("dynamic_slice", "dynamic_update_slice"):
        is_slice = name == "dynamic_slice"
        lengths = given["slice_sizes"] if is_slice else step.invars[1].aval.shape
        starts = values[1:] if is_slice else values[2:]
        rows = [(start, size, n) for start, size, n in zip(starts, shape, lengths, strict=True)]
    elif name == "gather" and (is_promised or may_drop):
        axes, lengths = given["dimension_numbers"].start_index_map, given["slice_sizes"]
        rows = [(_column(values[1], i), shape[k], lengths[k]) for i, k in enumerate(axes)]
    elif name.startswith("scatter") and (is_promised or may_drop):
        axes = given["dimension_numbers"].scatter_dims_to_operand_dims
        rows = [(_column(values[1], i), shape[k], 1) for i, k in enumerate(axes)]
    else:
        return
    for start, size, length in rows:
        if start is None or not start.size:
            continue
        last = start + length - 1
        bad = (start < 0) | (last >= size)
        if np.all(bad) if may_drop else np.any(bad):
            at = np.flatnonzero(bad)[0]
            low, high = int(start.flat[at]), int(np.asarray(last).flat[at])
            # Negative indices were counted from the end.
            yield (low - size if low < 0 else high), size


def _column(indices: np.ndarray | None, i: int) -> np.ndarray | None:
    return None if indices is None else indices[..., i]
