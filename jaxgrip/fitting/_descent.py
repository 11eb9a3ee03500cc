"""Damped Newton steps within the unit cube, from many starts at once."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxgrip.solve import dense


class Model(NamedTuple):
    """A function about a point: `value`, `gradient` (n,) and second derivative `matrix` (n, n)."""

    value: Float[Array, "*k"]
    gradient: Float[Array, "*k n"]
    matrix: Float[Array, "*k n n"]


class Descent(NamedTuple):
    """Ends of k descents: `position` (k, n), `model` there, whether `converged`; `steps`."""

    position: Float[Array, "k n"]
    model: Model
    converged: Bool[Array, " k"]
    steps: Int[Array, ""]


def _propose(
    x: Array, model: Model, damping: Array, unit: Array, held: Array
) -> tuple[Array, Array, Array]:
    """A trial position within the cube, the reduction expected there, and the unit of steps."""
    g, A = model.gradient, model.matrix
    curvature = jnp.abs(jnp.diagonal(A))
    unit = jnp.maximum(unit, curvature)
    floor = jnp.maximum(jnp.finfo(x.dtype).eps ** 2 * jnp.max(unit), jnp.finfo(x.dtype).tiny)
    d = 1 / jnp.sqrt(jnp.maximum(unit, floor))
    # A component at a bound that descends beyond it is left out of the linear system.
    free = jnp.where(held | (x <= 0) & (g > 0) | (x >= 1) & (g < 0), 0.0, d)
    # Absolute eigenvalues lead away from saddle points; a matrix JᵀJ has no negative ones.
    values, vectors = dense.eigh(A * jnp.outer(free, free))
    step = -free * (vectors @ ((vectors.T @ (free * g)) / (jnp.abs(values) + damping)))
    trial = jnp.clip(x + step, 0.0, 1.0)
    step = trial - x
    return trial, -(g @ step + 0.5 * step @ A @ step), unit


def descend(
    evaluate: Callable[[Float[Array, " n"]], Model],
    starts: Float[Array, "k n"],
    *,
    limit: int | Int[Array, ""],
    scale: Callable[[Array], Array],
    held: Bool[Array, "k n"] | None = None,
) -> Descent:
    """Minima of a function within the unit cube, one descent from every start.

    **Arguments:** `evaluate`: value, gradient and second derivative, or a Gauss-Newton matrix for
    it, at a position (n,); `starts`: (k, n); `limit`: largest number of steps; `scale`: function of
    the value to which reductions are relative; `held`: which components keep their start.

    A step is damped until it lowers the value (Levenberg-Marquardt, damped as in Nielsen 1999)
    and cut off at the faces of the cube. A descent has converged when no reduction is
    expected, or no step of significant length lowers the value.
    """
    k, n = starts.shape
    held = jnp.zeros((k, n), bool) if held is None else held
    evaluate = jax.vmap(evaluate)
    propose = jax.vmap(_propose)

    def finite(m):
        return jnp.isfinite(m.value) & jnp.all(jnp.isfinite(m.matrix), axis=(-2, -1))

    def advance(state):
        x, model, trial, expected, damping, growth, unit, done, steps = state
        there = evaluate(trial)
        first = steps == 0
        gained = model.value - there.value
        # A last step is taken although rounding hides its reduction: it gains half of the digits.
        small = ~first & (jnp.abs(expected) <= 1e-14 * scale(model.value))
        better = finite(there) & ((gained > 0) | small) & ~done
        short = jnp.max(jnp.abs(trial - x), axis=-1) <= 1e-11
        done = done | small | jnp.where(first, ~finite(there), short)

        def choose(new, old):
            return jnp.where(better.reshape(better.shape + (1,) * (new.ndim - 1)), new, old)

        x, model = jax.tree.map(choose, (trial, there), (x, model))
        ratio = jnp.where((expected > 0) & ~first, gained / expected, 0.5)
        shrink = jnp.maximum(1 / 3, 1 - (2 * jnp.clip(ratio, 0.0, 1.0) - 1) ** 3)
        damping = jnp.where(better, jnp.maximum(damping * shrink, 1e-12), damping * growth)
        growth = jnp.where(better, 2.0, 2 * growth)
        trial, expected, unit = propose(x, model, damping, unit, held)
        return x, model, trial, expected, damping, growth, unit, done, steps + 1

    def going(state):
        *_, done, steps = state
        return ~jnp.all(done) & (steps <= limit)

    # The first round evaluates the starts themselves: a second copy of the function would double
    # the time to compile.
    infinite = jnp.full((k,), jnp.inf)
    state = (
        starts,
        Model(infinite, jnp.zeros((k, n)), jnp.zeros((k, n, n))),
        starts,
        infinite,
        jnp.full((k,), 1e-2),
        jnp.full((k,), 2.0),
        jnp.zeros((k, n)),
        jnp.zeros((k,), bool),
        jnp.asarray(0),
    )
    x, model, *_, done, steps = jax.lax.while_loop(going, advance, state)
    return Descent(x, model, done & jnp.isfinite(model.value), steps)
