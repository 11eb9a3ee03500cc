"""How to have XLA's CPU compiler fuse neither too much nor too little."""

import collections
import functools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
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

# So many states at a time stay in the last cache with all columns of a kernel.
TILE = 4096

# The compiler splits longer bodies into functions, which compute again what they share.
MOST_OPERATIONS = 3500


def over_states(
    ordinary: Callable[..., Array],
    many: Callable[..., Array],
    rule: Callable[[tuple, tuple], tuple[Array, Array]] | None = None,
) -> Callable[..., Array]:
    """A function of one state that is another one when mapped over many states.

    **Arguments:** `ordinary(shared, *state)` with any `shared` and arrays (m,) of one state, which
    returns an array; `many(shared, *states)`, the same for arrays (batch, m); `rule`, a JVP rule
    as for `jax.custom_jvp` with symbolic zeros, that of `ordinary` when None.

    **Returns:** a function that is `ordinary`, and `many` under `vmap` over at least
    `LEAST_STATES` states with the same `shared` for all, where CPUs are what JAX computes on.
    """

    def each(shared: Any, *states: Array) -> Array:
        return jax.vmap(functools.partial(ordinary, shared))(*states)

    @jax.custom_batching.custom_vmap
    def mapped(shared: Any, *states: Array) -> Array:
        # Not `lax.platform_dependent`, which traces both.
        suits = len(states[0]) >= LEAST_STATES and jax.default_backend() == "cpu"
        return (many if suits else each)(shared, *states)

    def of_each(function: Callable[..., Array], size: int, batched: list, *args: Any) -> Array:
        axes = jax.tree.map(lambda b: 0 if b else None, batched)
        return jax.vmap(function, in_axes=tuple(axes), axis_size=size)(*args)

    @mapped.def_vmap
    def _(size: int, batched: list, shared: Any, *states: Array) -> tuple[Array, bool]:
        if any(jax.tree.leaves(batched[0])):
            return of_each(each, size, batched, shared, *states), True
        wide = _wide(size, batched[1:], states)
        rows = mapped(shared, *(x.reshape(-1, x.shape[-1]) for x in wide))
        return rows.reshape(size, -1, *rows.shape[1:]), True

    @jax.custom_batching.custom_vmap
    def one(shared: Any, *state: Array) -> Array:
        return ordinary(shared, *state)

    @one.def_vmap
    def _(size: int, batched: list, shared: Any, *state: Array) -> tuple[Array, bool]:
        if any(jax.tree.leaves(batched[0])):
            return of_each(ordinary, size, batched, shared, *state), True
        return mapped(shared, *_wide(size, batched[1:], state)), True

    whole = jax.custom_jvp(one)

    def derivative(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
        pair = (rule or functools.partial(jvp_of_moving, ordinary))(primals, tangents)
        # JAX takes the axis of the batch from the function, where it is the first, for the rule
        # too; that of a concatenation is always the first.
        value, rate = (lax.concatenate((x, x[:0]), 0) for x in pair)
        return value, rate

    whole.defjvp(derivative, symbolic_zeros=True)
    return whole


def jvp_of_moving(
    function: Callable[..., Array], primals: tuple, tangents: tuple
) -> tuple[Array, Array]:
    """As `jax.jvp`, with what `defjvp(..., symbolic_zeros=True)` gives a rule as tangents."""
    leaves, structure = jax.tree.flatten(primals)
    rates = jax.tree.leaves(tangents, is_leaf=lambda x: isinstance(x, SymbolicZero))
    moving = [k for k, t in enumerate(rates) if not isinstance(t, SymbolicZero)]

    def of_moving(*values: Array) -> Array:
        whole = list(leaves)
        for k, value in zip(moving, values, strict=True):
            whole[k] = value
        return function(*jax.tree.unflatten(structure, whole))

    if not moving:
        value = function(*primals)
        return value, jnp.zeros_like(value)
    return jax.jvp(of_moving, tuple(leaves[k] for k in moving), tuple(rates[k] for k in moving))


def _wide(size: int, batched: Any, arrays: tuple) -> list[Array]:
    return [
        x if b else jnp.broadcast_to(x, (size, *x.shape))
        for b, x in zip(batched, arrays, strict=True)
    ]


def in_one_kernel(
    step: Callable[[tuple, tuple], list], numbers: Sequence[Array], columns: Sequence[Array]
) -> tuple[Array, ...]:
    """Values of a function of scalars at many states, in one kernel on a CPU.

    **Arguments:** `step(numbers, state)` maps tuples of scalars to a list of scalars, by at most
    about `MOST_OPERATIONS` operations on scalars alone; `numbers`, scalars, are the same for all
    states; `columns`, each (batch,), are their components.

    **Returns:** the values, each (batch,).

    The CPU compiler gives every kernel one output and computes what outputs share again for each.
    Its only loop with many outputs is that of `reduce_window`, whose scalar body it compiles as it
    is: with windows of one state, the body is called once per state as body(initial value, state),
    and the numbers are the initial values. Each number needs an output, which is not used.
    """
    k, m, like = len(numbers), len(columns), columns[0]
    one = jnp.zeros((), like.dtype)
    p = len(jax.eval_shape(lambda a, b: step(a, b), (one,) * k, (one,) * m))
    width = max(k, m, p)

    def body(initial: tuple, state: tuple) -> tuple:
        found = step(initial[:k], state[:m])
        return *(_as(x, like) for x in found), *initial[p:]

    out = lax.reduce_window(
        (*columns, *[jnp.zeros_like(like)] * (width - m)),
        (*(x.astype(like.dtype) for x in numbers), *[one] * (width - k)),
        body,
        (1,),
        (1,),
        "VALID",
    )
    return tuple(out[:p])


def tiling(count: int) -> tuple[int, int]:
    """Number and length of tiles of states for `in_one_kernel`, at least `count` in all."""
    tiles = -(-count // TILE)
    length = -(-count // tiles)
    # Arrays whose distance in memory is a multiple of 4096 bytes would displace each other.
    return tiles, length + (8 - length) % 64


def _as(x: Any, like: Array) -> Any:
    return lax.full((), x, like.dtype) if type(x) is float else x


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

    Within another program it is compiled with the options of that one.
    """
    compiled = functools.cache(lambda: _compiled(function, plain_emitters()))
    return _jit(function, lambda *_: compiled())


# With so many numbers in its arguments a program may run for longer than it is compiled.
_LARGE = 10_000
# More calls without optimisation take longer than it.
_FEW_CALLS = 16


def jit_soon(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `jit_plainly`, but the first few calls with arguments of the same shapes are those of a
    program that is compiled in half of the time and runs at a third of the speed.

    `begin(*args)` of the result begins to compile the program that a call would need in another
    thread, and returns whether there was something to do.
    """
    optimised = functools.cache(lambda: _compiled(function, plain_emitters()))
    quick = functools.cache(lambda: _compiled(function, _unoptimised()))
    calls: collections.Counter = collections.Counter()
    begun: list[Future] = []

    def program(key: int, args: tuple) -> Callable[..., Any]:
        size = sum(x.size for x in jax.tree.leaves(args) if eqx.is_array(x))
        is_soon = size <= _LARGE and calls[key] <= _FEW_CALLS
        return quick() if is_soon else optimised()

    def chosen(*args: Any) -> Callable[..., Any]:
        key = _shapes_of(args)
        calls[key] += 1
        while begun:
            begun.pop().result()
        return program(key, args)

    def begin(*args: Any) -> bool:
        key = _shapes_of(args)
        is_new = key not in calls
        if is_new:
            calls[key] = 0
            lowered = program(key, args).lower(*args)
            begun.append(_compilers().submit(lowered.compile))
        return is_new

    call = _jit(function, chosen)
    call.begin = begin
    return call


def _shapes_of(args: tuple) -> int:
    """A hash of all that a program for these arguments depends on."""
    leaves, structure = jax.tree.flatten(args)
    described = ((x.shape, x.dtype) if eqx.is_array(x) else x for x in leaves)
    return hash((structure, *described))


def _compiled(function: Callable[..., Any], options: dict) -> Callable[..., Any]:
    return eqx.filter_jit(function, compiler_options=options)


@functools.cache
def _unoptimised() -> dict:
    is_known = plain_emitters() and jax.default_backend() == "cpu"
    return plain_emitters() | ({"xla_backend_optimization_level": 0} if is_known else {})


@functools.cache
def _compilers() -> ThreadPoolExecutor:
    """Threads that compile: XLA does so without Python's lock."""
    return ThreadPoolExecutor(os.cpu_count(), "compiler")


def _jit(
    function: Callable[..., Any], chosen: Callable[..., Callable[..., Any]]
) -> Callable[..., Any]:
    within = eqx.filter_jit(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return chosen(*args)(*args, **kwargs)
        except ValueError as error:
            # JAX has no other public test of being traced.
            if "top-level `jax.jit`" not in str(error):
                raise
            return within(*args, **kwargs)

    return call
