"""What a fit lowers, as a function of positions within bounds: value, slope and curvature."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.fitting import _fisher as fisher
from jaxgrip.fitting import _rounding as rounding
from jaxgrip.fitting._bounds import Bounds, names, place
from jaxgrip.fitting._descent import Model

# The function of positions alone, and with its derivatives.
Objective = tuple[Callable[[Array], Array], Callable[[Array], Model]]


def squares(residuals: Callable, bounds: Bounds, data: tuple) -> Objective:
    """Half the sum of squares, with the matrix of Gauss and Newton."""

    at, pattern = _flat(residuals, bounds, data)

    def cost(s):
        r = at(s)
        return 0.5 * r @ r

    def evaluate(s):
        r, transposed = pattern.columns(at, s)
        return Model(0.5 * r @ r, transposed @ r, transposed @ transposed.T)

    return cost, evaluate


def likelihood(log_likelihood: Callable, bounds: Bounds, data: tuple) -> Objective:
    """Minus a log-likelihood, with its second derivative."""

    def cost(s):
        return -log_likelihood(place(bounds, s), *data)

    def evaluate(s):
        def slope(s):
            value, gradient = fisher.columns(cost, s)
            return gradient, value

        (gradient, value), matrix = _columns_with_aux(slope, s)
        return Model(value, gradient, 0.5 * (matrix + matrix.T))

    return cost, evaluate


def rounded(
    residuals: Callable,
    bounds: Bounds,
    data: tuple,
    resolution: Float[Array, " m"],
    noises: Float[Array, "2"],
) -> Callable[[Float[Array, " n+1"]], Model]:
    """Minus the log-probability of rounded samples; the last position is that of the noise.

    `noises`: its least and greatest standard deviation. The matrix leaves out the curvature of the
    residuals, as that of Gauss and Newton does.
    """

    at, pattern = _flat(residuals, bounds, data)

    def evaluate(x):
        r, transposed = pattern.columns(at, x[:-1])
        span = jnp.log(noises[1] / noises[0])
        t = rounding.terms(r, noise_at(noises, x[-1]), resolution)
        cross = transposed @ t.rl * span
        return Model(
            -jnp.sum(t.value),
            -jnp.append(transposed @ t.r, jnp.sum(t.l) * span),
            -jnp.block(
                [
                    [(transposed * t.rr[None]) @ transposed.T, cross[:, None]],
                    [cross[None], jnp.sum(t.ll)[None, None] * span**2],
                ]
            ),
        )

    return evaluate


def _flat(residuals, bounds, data):
    """The residuals (m,) as a function of positions (n,), and the pattern of their Jacobian."""

    def at(s):
        return fisher.flat(residuals(place(bounds, s), *data))

    middle = jnp.full(len(names(bounds)), 0.5)
    shapes = jax.eval_shape(lambda s: residuals(place(bounds, s), *data), middle)
    return at, fisher.pattern(bounds, shapes)


def noise_at(noises: Float[Array, "2"], position: Float[Array, ""]) -> Float[Array, ""]:
    """The noise at a position between its least and greatest one, on a logarithmic scale."""
    return jnp.exp((1 - position) * jnp.log(noises[0]) + position * jnp.log(noises[1]))


def position_of(noises: tuple[float, float], noise: float) -> float:
    """The inverse of `noise_at`; in the middle where there is one noise only."""
    if noises[0] == noises[1]:
        return 0.5
    return math.log(noise / noises[0]) / math.log(noises[1] / noises[0])


def _columns_with_aux(function, x):
    def along(e):
        value, slope, aux = jax.jvp(function, (x,), (e,), has_aux=True)
        return (value, aux), slope

    return jax.vmap(along, out_axes=(None, 0))(jnp.eye(x.shape[0]))
