"""Motions without any drive: of one degree of freedom in closed form, and from rest to rest."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float, PyTree

from jaxgrip.checks import concrete, numbers, positive
from jaxgrip.orbits._flow import RTOL, Rhs, Values, flow
from jaxgrip.precision import require_x64
from jaxgrip.solve import dense, newton

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_TOLERANCE = 1e-9


class Natural(NamedTuple):
    """Motion of one degree of freedom with constant energy, over given coordinates (k,).

    `coordinate` (k,); `time` (k,) [s] from the first; `rate` (k,) [1/s]. Not finite where the
    energy does not suffice.
    """

    coordinate: Float[Array, " k"]
    time: Float[Array, " k"]
    rate: Float[Array, " k"]


def natural_motion(
    inertia: Callable[[Float[Array, ""]], Float[Array, ""]],
    coordinates: Float[Array, " k"],
    energy: ArrayLike,
    potential: Callable[[Float[Array, ""]], Float[Array, ""]] | None = None,
) -> Natural:
    """The motion that a mechanism of one degree of freedom performs without a drive.

    J(x) x'²/2 + V(x) = E gives the rate, and its reciprocal the time by Gauss and Legendre with
    eight points between two coordinates: kinks of the inertia belong at coordinates.

    **Arguments:** `inertia`: reduced inertia J of a coordinate, not negative; `coordinates` (k,),
    ascending; `energy` E [J]; `potential` V of a coordinate; none when None.

    Source: Schwarzfischer 2017 describes the motion; the equation is that of the energy.
    """
    energy = numbers("The energy", energy, ())

    def slowness(x: Array) -> Array:
        left = energy if potential is None else energy - potential(x)
        mass = inertia(x)
        # The root of an inertia that vanishes has no derivative; its time is zero.
        some = mass > 0
        root = jnp.sqrt(jnp.where(some, mass, 1.0) / jnp.where(left > 0, 2 * left, jnp.nan))
        return jnp.where(some, root, 0.0)

    half = 0.5 * jnp.diff(coordinates)
    middle = coordinates[:-1] + half
    at = middle[:, None] + half[:, None] * jnp.asarray(_NODES, half.dtype)[None]
    pieces = half * (jax.vmap(jax.vmap(slowness))(at) @ jnp.asarray(_WEIGHTS, half.dtype))
    time = jnp.concatenate([jnp.zeros(1, half.dtype), jnp.cumsum(pieces)])
    slow = jax.vmap(slowness)(coordinates)
    return Natural(coordinates, time, 1 / slow)


class RestToRest(NamedTuple):
    """Outcome of `rest_to_rest`: `parameters`, `miss` of the end, `steps` of Newton's method."""

    parameters: PyTree
    miss: Float[Array, ""]
    steps: Array


@eqx.filter_jit
def _found(rhs, rtol, start, end, duration, guess, scale):
    flat, tree = ravel_pytree(guess)

    def residual(ends: tuple, x: Array) -> Array:
        first, last, time, size = ends
        return (flow(rhs, first, jnp.zeros_like(time), time, tree(x), rtol=rtol) - last) / size

    ends = (start, end, duration, scale)

    def linearised(x: Array) -> tuple[Array, Array, Array]:
        off = residual(ends, x)
        by = jax.jacfwd(lambda z: residual(ends, z))(x)
        return x, off, -dense.solve(by, off)

    root = newton.newton(
        linearised,
        lambda x, s: x + s,
        jax.lax.stop_gradient(flat),
        jnp.zeros_like(flat),
        lambda s: 2 * jnp.max(jnp.abs(s) / jnp.maximum(jnp.abs(flat), 1e-3)),
    )
    solution = newton.implicit(
        residual,
        lambda ends, x, change: -dense.solve(jax.jacfwd(lambda z: residual(ends, z))(x), change),
        lambda x, s: x + s,
    )
    x = solution(ends, jax.lax.stop_gradient(root.point))
    return tree(x), root.miss, root.steps


def rest_to_rest(
    rhs: Rhs,
    start: Values,
    end: Values,
    duration: ArrayLike,
    guess: Any,
    *,
    rtol: float = RTOL,
    throw: bool = True,
) -> RestToRest:
    """Parameters with which y' = rhs(t, y, parameters) leads from a state to another in a time.

    For springs that carry a mechanism from rest to rest without a drive. There are as many numbers
    in the parameters as states. They have derivatives by `start`, `end` and `duration`.

    **Arguments:** `start`, `end` (n,); `duration` [s]; `guess`: a tree of n numbers; `rtol`: of a
    step of the integration; `throw`: raise if none are found.

    **Raises:** `ValueError` for another number of parameters; `RuntimeError`, outside `jit`.

    Source: Barreto 2017 describes the problem; Newton's method is an own choice.
    """
    require_x64("rest_to_rest")
    start, end = numbers("The start", start), numbers("The end", end)
    duration = positive("The duration", duration, ())
    guess = jax.tree.map(lambda x: jnp.asarray(x, float), guess)
    count = ravel_pytree(guess)[0].size
    if start.ndim != 1 or start.shape != end.shape or count != start.size:
        raise ValueError(
            f"The start has the shape {start.shape}, the end {end.shape}, and there are {count} "
            "parameters; all three must be the same number."
        )
    size = jnp.max(jnp.abs(jnp.stack([start, end])), axis=0)
    scale = jnp.where(size > 0, size, jnp.max(jnp.abs(end - start)) / duration)
    found, miss, steps = _found(
        rhs, rtol, start, end, duration, guess, jax.lax.stop_gradient(scale)
    )
    if throw and concrete(miss) and not (np.isfinite(miss) and miss < _TOLERANCE):
        raise RuntimeError(
            f"Newton's method found no parameters from this guess; the end is missed by "
            f"{float(miss):.2g}. Start nearer, or from another duration."
        )
    return RestToRest(found, miss, steps)
