"""How to have XLA's CPU compiler fuse neither too much nor too little."""

import functools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Literal, jaxpr_as_fun
from jaxtyping import Array, Float


def opaque_one(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """A one of the shape of `x` that is opaque to the compiler; NaN where x is not finite."""
    return lax.stop_gradient(1.0 + 0.0 * x)


def kept(values: Any, one: Float[Array, "*shape"] | float) -> Any:
    """The same numbers, each computed once. Python floats are returned as they are.

    The CPU compiler copies a chain of cheap operations into every user of its end, which makes
    work and compile time explode with the depth of a recursion. It never copies a quotient, so
    a division by an opaque one ends the chain. A Python float for `one` keeps nothing.
    """
    if type(one) is float:
        return values
    return jax.tree.map(lambda x: x if type(x) is float else lax.div(x, one), values)


# Fewer states than this are not worth the kernel: its many scalar arguments cost microseconds.
LEAST_STATES = 256

# About so many states at a time stay in the last cache with all columns of a kernel.
TILE = 2048

# The compiler splits longer bodies into functions, which compute again what they share.
MOST_OPERATIONS = 3500


def over_states(
    ordinary: Callable[..., Any],
    many: Callable[..., Any],
    rule: Callable[[tuple, tuple], tuple[Any, Any]] | None = None,
) -> Callable[..., Any]:
    """A function of one state that is another one when mapped over many states.

    **Arguments:** `ordinary(shared, *state)` with any `shared` and arrays (m,) of one state, which
    returns a pytree of arrays; `many(shared, *states)`, the same for arrays (batch, m); `rule`, a
    JVP rule as for `jax.custom_jvp` with symbolic zeros, that of `ordinary` when None.

    **Returns:** a function that is `ordinary`, and `many` under `vmap` over at least
    `LEAST_STATES` states with the same `shared` for all, where CPUs are what JAX computes on.
    """

    def each(shared: Any, *states: Array) -> Any:
        return jax.vmap(functools.partial(ordinary, shared))(*states)

    @jax.custom_batching.custom_vmap
    def mapped(shared: Any, *states: Array) -> Any:
        # Not `lax.platform_dependent`, which traces both.
        suits = len(states[0]) >= LEAST_STATES and jax.default_backend() == "cpu"
        return (many if suits else each)(shared, *states)

    def of_each(function: Callable[..., Any], size: int, batched: list, *args: Any) -> Any:
        axes = jax.tree.map(lambda b: 0 if b else None, batched)
        return jax.vmap(function, in_axes=tuple(axes), axis_size=size)(*args)

    def all_batched(found: Any) -> tuple[Any, Any]:
        return found, jax.tree.map(lambda _: True, found)

    @mapped.def_vmap
    def _(size: int, batched: list, shared: Any, *states: Array) -> tuple[Any, Any]:
        if any(jax.tree.leaves(batched[0])):
            return all_batched(of_each(each, size, batched, shared, *states))
        wide = _wide(size, batched[1:], states)
        found = mapped(shared, *(x.reshape(-1, x.shape[-1]) for x in wide))
        return all_batched(jax.tree.map(lambda x: x.reshape(size, -1, *x.shape[1:]), found))

    @jax.custom_batching.custom_vmap
    def one(shared: Any, *state: Array) -> Any:
        return ordinary(shared, *state)

    @one.def_vmap
    def _(size: int, batched: list, shared: Any, *state: Array) -> tuple[Any, Any]:
        if any(jax.tree.leaves(batched[0])):
            return all_batched(of_each(ordinary, size, batched, shared, *state))
        return all_batched(mapped(shared, *_wide(size, batched[1:], state)))

    whole = jax.custom_jvp(one)

    def derivative(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        pair = (rule or functools.partial(jvp_of_moving, ordinary))(primals, tangents)
        # JAX takes the axis of the batch from the function, where it is the first, for the rule
        # too; that of a concatenation is always the first.
        return jax.tree.map(lambda x: lax.concatenate((x, x[:0]), 0), pair)

    whole.defjvp(derivative, symbolic_zeros=True)
    return whole


def jvp_of_moving(function: Callable[..., Any], primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    """As `jax.jvp`, with what `defjvp(..., symbolic_zeros=True)` gives a rule as tangents."""
    leaves, structure = jax.tree.flatten(primals)
    rates = jax.tree.leaves(tangents, is_leaf=lambda x: isinstance(x, SymbolicZero))
    moving = [k for k, t in enumerate(rates) if not isinstance(t, SymbolicZero)]

    def of_moving(*values: Array) -> Any:
        whole = list(leaves)
        for k, value in zip(moving, values, strict=True):
            whole[k] = value
        return function(*jax.tree.unflatten(structure, whole))

    if not moving:
        value = function(*primals)
        return value, jax.tree.map(jnp.zeros_like, value)
    return jax.jvp(of_moving, tuple(leaves[k] for k in moving), tuple(rates[k] for k in moving))


def _wide(size: int, batched: Any, arrays: tuple) -> list[Array]:
    return [
        x if b else jnp.broadcast_to(x, (size, *x.shape))
        for b, x in zip(batched, arrays, strict=True)
    ]


def in_one_kernel(
    step: Callable[[tuple, Any], Any], numbers: Float[Array, " k"], columns: Any
) -> Any:
    """Values of a function of scalars at many states, in one kernel on a CPU.

    **Arguments:** `step(numbers, state)` maps scalars to a pytree of them, by at most about
    `MOST_OPERATIONS` operations on scalars alone; `numbers` are the same for all states; `columns`,
    a pytree of (batch,) arrays, are the components of the states. Python floats in these pytrees
    are known, and no operands.

    **Returns:** the values, each (batch,) unless known.

    The CPU compiler gives every kernel one output and computes what outputs share again for each.
    Its only loop with many outputs is that of `reduce_window`, whose scalar body it compiles as it
    is: with windows of one state, the body is called once per state as body(initial value, state),
    and the numbers are the initial values. Each number needs an output, which is not used.
    """
    rows, merge_columns = parted(columns)
    like, k = rows[0], len(numbers)
    one = jnp.zeros((), like.dtype)
    merge_values = None

    def scalars(*operands: Array) -> list:
        nonlocal merge_values
        values, merge_values = parted(step(operands[:k], merge_columns(operands[k:])))
        return values

    traced = jax.make_jaxpr(scalars)(*[one] * (k + len(rows)))
    operands = [x for eqn in traced.jaxpr.eqns for x in eqn.invars] + traced.jaxpr.outvars
    used = {x for x in operands if not isinstance(x, Literal)}
    is_used = [x in used for x in traced.jaxpr.invars]
    rows = [x for x, keep in zip(rows, is_used[k:], strict=True) if keep]
    (index,) = np.nonzero(is_used[:k])
    shared = scalars_of(numbers[index].astype(like.dtype))
    n, m, p = len(shared), len(rows), len(traced.out_avals)
    width = max(n, m, p)

    def body(initial: tuple, state: tuple) -> tuple:
        given = iter((*initial[:n], *state[:m]))
        values = jaxpr_as_fun(traced)(*(next(given) if u else one for u in is_used))
        return *values, *initial[p:]

    out = lax.reduce_window(
        (*rows, *[jnp.zeros_like(like)] * (width - m)),
        (*shared, *[one] * (width - n)),
        body,
        (1,),
        (1,),
        "VALID",
    )
    return merge_values(out[:p])


def parted(values: Any) -> tuple[list[Array], Callable[[Sequence], Any]]:
    """Arrays of a pytree, and what makes it again of others; Python floats in it are kept."""
    leaves, structure = jax.tree.flatten(values)

    def merged(arrays: Sequence) -> Any:
        rest = iter(arrays)
        return structure.unflatten(x if type(x) is float else next(rest) for x in leaves)

    return [x for x in leaves if type(x) is not float], merged


def scalars_of(x: Float[Array, " k"]) -> tuple[Array, ...]:
    """Scalars of an array, by two operations whose number does not grow with it.

    The CPU compiler would make a kernel of every slice, and take a second for 130 of them.
    """
    if not len(x):
        return ()
    side = math.isqrt(len(x) - 1) + 1
    square = jnp.pad(x, (0, side * side - len(x))).reshape(side, side)
    columns = _picked([square] * side, [*range(side)])
    parts = _picked([c for c in columns for _ in range(side)], [*range(side)] * side)
    return tuple(parts[side * column + row] for row in range(side) for column in range(side))[
        : len(x)
    ]


def _picked(arrays: list[Array], index: list[int]) -> Sequence[Array]:
    """An entry of each array along its last axis, all in one loop."""
    like = arrays[0]
    at = lax.broadcasted_iota(jnp.int32, like.shape, like.ndim - 1)

    def pick(found: tuple, entry: tuple) -> tuple:
        *found, last = found
        *entry, here = entry
        chosen = [lax.select(here == k, e, f) for k, e, f in zip(index, entry, found, strict=True)]
        return *chosen, lax.max(last, here)

    zero = jnp.zeros((), like.dtype)
    start = (*[zero] * len(arrays), jnp.int32(-1))
    return lax.reduce((*arrays, at), start, pick, (like.ndim - 1,))[:-1]


def over_tiles(
    run: Callable[..., Any], states: Sequence[Array], shapes: Any, most: int = TILE
) -> Any:
    """Rows (*shape, batch) that `run` makes of rows of the states, (rows, batch) each.

    `run` gets tiles of at most about `most` states, of which the last two overlap, and makes a
    pytree like `shapes`, that of the shapes of its rows.
    """
    count, dtype = states[0].shape[-1], states[0].dtype
    tiles, length = tiling(count, most)
    if tiles == 1:
        padded = (jnp.pad(x, ((0, 0), (0, length - count))) for x in states)
        return jax.tree.map(lambda x: x[..., :count], run(*padded))

    def visit(k: Array, found: Any) -> Any:
        start = lax.min(k * length, count - length)
        own = run(*(lax.dynamic_slice_in_dim(x, start, length, axis=-1) for x in states))
        return jax.tree.map(
            lambda x, part: lax.dynamic_update_slice_in_dim(x, part, start, axis=-1), found, own
        )

    is_shape = {"is_leaf": lambda x: isinstance(x, tuple) and all(type(k) is int for k in x)}
    start = jax.tree.map(lambda shape: jnp.zeros((*shape, count), dtype), shapes, **is_shape)
    return lax.fori_loop(0, tiles, visit, start)


def tiling(count: int, most: int = TILE) -> tuple[int, int]:
    """Number and length of tiles that cover `count` states; only a single one is longer."""
    tiles = -(-count // most)
    length = -(-count // tiles)
    # Arrays whose distance in memory is a multiple of 4096 bytes would displace each other.
    length += (8 - length) % 64
    if tiles > 1 and length > count:
        length -= 64
    return -(-count // length), length


# pi/2 in three parts, the first two of 33 bits, and the polynomials of sine and cosine on
# [-pi/4, pi/4].
_HALF_PI = (1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
_SIN = (
    1.58969099521155010221e-10,
    -2.50507602534068634195e-08,
    2.75573137070700676789e-06,
    -1.98412698298579493134e-04,
    8.33333333332248946124e-03,
    -1.66666666666666324348e-01,
)
_COS = (
    -1.13596475577881948265e-11,
    2.08757232129817482790e-09,
    -2.75573143513906633035e-07,
    2.48015872894767294178e-05,
    -1.38888888888741095749e-03,
    4.16666666666666019037e-02,
)


def cos_sin(x: Float[Array, "*shape"]) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Cosine and sine in double precision by operations that the compiler vectorises.

    Exact to two units in the last place of 1 up to 1e6, and beyond for an angle that differs from
    `x` by a rounding error.

    Source: Sun 1993, k_sin.c and k_cos.c, for the polynomials.
    """
    if x.dtype != jnp.float64:
        return lax.cos(x), lax.sin(x)
    k = lax.round(x * (2.0 / math.pi), lax.RoundingMethod.TO_NEAREST_EVEN)
    r = x
    for part in _HALF_PI:
        r = r - k * part
    z = r * r
    sine, cosine = lax.full_like(z, _SIN[0]), lax.full_like(z, _COS[0])
    for a, b in zip(_SIN[1:], _COS[1:], strict=True):
        sine, cosine = sine * z + a, cosine * z + b
    sine = r + r * z * sine
    cosine = 1.0 - 0.5 * z + z * z * cosine
    half = 0.5 * k
    odd = half - lax.floor(half) > 0.25
    quarter = 0.5 * lax.floor(half)
    turned = quarter - lax.floor(quarter) > 0.25
    c, s = lax.select(odd, -sine, cosine), lax.select(odd, cosine, sine)
    return lax.select(turned, -c, c), lax.select(turned, -s, s)


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

    Within another program it is compiled with the options of that one. `begin(*args)` of the
    result begins to compile the program that a call would need in another thread, and returns
    whether there was something to do.
    """
    within = eqx.filter_jit(function)
    compiled = functools.cache(lambda: eqx.filter_jit(function, compiler_options=plain_emitters()))
    known: set[int] = set()
    begun: list[Future] = []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        while begun:
            begun.pop().result()
        if plain_emitters() and _is_traced():
            return within(*args, **kwargs)
        try:
            return compiled()(*args, **kwargs)
        except ValueError as error:
            # Being differentiated.
            if not _is_refused(error):
                raise
            return within(*args, **kwargs)

    def begin(*args: Any) -> bool:
        key = _shapes_of(args)
        if key in known:
            return False
        known.add(key)
        begun.append(_compilers().submit(compiled().lower(*args).compile))
        return True

    call.begin = begin
    return call


def _is_traced() -> bool:
    """Whether this is within another program; JAX has no other public test."""
    try:
        _nothing()(0.0)
    except ValueError as error:
        if not _is_refused(error):
            raise
        return True
    return False


def _is_refused(error: ValueError) -> bool:
    """Whether options of the compiler were given within another program."""
    return "top-level `jax.jit`" in str(error)


@functools.cache
def _nothing() -> Callable[[float], Any]:
    return jax.jit(lambda x: x, compiler_options=plain_emitters())


def _shapes_of(args: tuple) -> int:
    """A hash of all that a program for these arguments depends on."""
    leaves, structure = jax.tree.flatten(args)
    described = ((x.shape, x.dtype) if eqx.is_array(x) else x for x in leaves)
    return hash((structure, *described))


@functools.cache
def _compilers() -> ThreadPoolExecutor:
    """Threads that compile: XLA does so without Python's lock."""
    return ThreadPoolExecutor(os.cpu_count(), "compiler")
