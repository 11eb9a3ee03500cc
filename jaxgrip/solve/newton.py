"""Newton's method for points that are moved by steps, and the derivative of its solution."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

STEPS, HALVINGS = 50, 5
# Below the first a step leaves rounding, and one more is taken; below the second no further one.
NEAR, FINE = 1e-8, 1e-12


class Root(NamedTuple):
    """Where Newton's method ends.

    `point`, the one of least `miss` of all it has gone through; `miss`, the largest absolute
    residual there, not finite where the iterations ended so; `steps` taken.
    """

    point: Any
    miss: Float[Array, ""]
    steps: Int[Array, ""]


class _State(NamedTuple):
    point: Any
    step: Float[Array, "*step"]
    fraction: Float[Array, ""]
    miss: Float[Array, ""]
    halvings: Int[Array, ""]
    near: Bool[Array, ""]
    done: Bool[Array, ""]
    best: Root


def newton(
    linearised: Callable[[Any], tuple[Any, Array, Array]],
    moved: Callable[[Any, Array], Any],
    start: Any,
    zero: Float[Array, "*step"],
    length: Callable[[Array], Array],
) -> Root:
    """A point near a start at which all residuals are zero.

    A step is halved while it makes the largest residual larger, five times at most; then it is
    taken all the same, which leads on where all short steps make it larger.

    **Arguments:**

    - `linearised`: function of a point giving the point with whatever else is known there, its
      residuals (m,), and Newton's step from there.
    - `moved`: function of a point and a step giving another point.
    - `start`: a point as `linearised` gives it; only what `moved` uses need be known.
    - `zero`: the step that leads nowhere.
    - `length`: of a step, by the longest that is allowed; longer ones are shortened to that.

    **Returns:** `Root`.
    """
    none, one = jnp.zeros((), int), jnp.ones((), zero.dtype)
    unknown, no = jnp.full((), jnp.inf, zero.dtype), jnp.asarray(False)

    def body(state: _State) -> _State:
        trial, residual, step = linearised(moved(state.point, state.fraction * state.step))
        miss = jnp.max(jnp.abs(residual), initial=0.0)
        # Rounding may make a point that is already exact a little worse.
        worse = ~(miss <= jnp.maximum(state.miss, NEAR)) & (state.halvings < HALVINGS)
        near, gains = miss < NEAR, (miss > FINE) & (miss < state.miss / 2)
        done = (state.near & near & ~gains) | ~jnp.isfinite(miss)
        # At an exact start there may be no step: equations that are dependent have none.
        done |= (state.best.steps == 0) & (miss <= FINE)
        # What is not finite is the end, and so the result.
        best = pick(miss > state.best.miss, state.best, Root(trial, miss, none))
        best = best._replace(steps=state.best.steps + 1)
        after = _State(trial, bounded(step, length), one, miss, none, near, done, best)
        halved = state._replace(fraction=state.fraction / 2, halvings=state.halvings + 1)
        return pick(worse, halved, after)

    def going(state: _State) -> Array:
        return ~state.done & (state.best.steps <= STEPS)

    # The first round looks at the start itself: once in the program, not twice.
    state = _State(start, zero, one, unknown, none, no, no, Root(start, unknown, none))
    root = jax.lax.while_loop(going, body, state).best
    return root._replace(steps=root.steps - 1)


def bounded(step: Float[Array, "*step"], length: Callable[[Array], Array]) -> Float[Array, "*step"]:
    """A step, shortened to the longest that is allowed; `length` is by that."""
    return step / jnp.maximum(1.0, length(step))


def implicit(
    residual: Callable[[Any, Any], Any],
    correction: Callable[[Any, Any, Any], Array],
    moved: Callable[[Any, Array], Any],
) -> Callable[[Any, Any], Any]:
    """A function that gives a solution its derivative by the numbers of the equations.

    The derivative is exact, in both modes and of any order.

    **Arguments:** `residual`: function of numbers and a point giving what is to be zero;
    `correction`: function of numbers, a point and a change of the residual giving the step that
    makes up for it; `moved`: as in `newton`.

    **Returns:** function of numbers and a point that solves their equations, giving the point.

    Source: own derivation, by the implicit function theorem.
    """

    @jax.custom_jvp
    def solution(numbers: Any, point: Any) -> Any:
        return point

    @solution.defjvp
    def derivative(primals: tuple, tangents: tuple) -> tuple:
        numbers, point = primals
        point = solution(numbers, point)
        _, change = jax.jvp(lambda n: residual(n, point), (numbers,), tangents[:1])
        step = correction(numbers, point, change)
        return point, jax.jvp(lambda s: moved(point, s), (jnp.zeros_like(step),), (step,))[1]

    return solution


def pick(which: Array, first: Any, second: Any) -> Any:
    """The first of two trees of arrays where `which` is true, else the second."""
    return jax.tree.map(lambda a, b: jnp.where(which, a, b), first, second)
