"""Where states are led in a time, with derivatives in both modes."""

from collections.abc import Callable, Sequence
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float, PyTree

from jaxgrip.solve.integration import integrate

Rhs = Callable[[Float[Array, ""], Float[Array, " n"], Any], Float[Array, " n"]]
Values = ArrayLike | Sequence
RTOL = 1e-10
_MAX_STEPS = 20_000


def flow(
    rhs: Rhs,
    start: Float[Array, " n"],
    begin: Float[Array, ""],
    duration: Float[Array, ""],
    parameters: PyTree = None,
    *,
    rtol: float = RTOL,
) -> Float[Array, " n"]:
    """The state that y' = rhs(t, y, parameters) reaches after a time.

    Differentiable in both modes by all but `rhs` and `rtol`. A derivative integrates those by every
    state and parameter: for few of them. States are not finite where the motion ends early.

    **Arguments:** `rhs`: a function of time, state (n,) and parameters; `start` (n,) at the time
    `begin` [s]; `duration` [s]; `parameters`: any tree of arrays; `rtol`: tolerance of a step.
    """
    return flow_and_jacobian(rhs, start, begin, duration, parameters, rtol)[0]


def flow_and_jacobian(
    rhs: Rhs, start: Array, begin: Array, duration: Array, parameters: PyTree, rtol: float
) -> tuple[Array, Callable[[], Array]]:
    """The state reached, and a function of nothing that gives its derivatives (n, n + 2 + p).

    The columns are those by the start, its time, the duration, and the parameters in a row.
    """
    n = start.shape[0]
    numbers, tree = ravel_pytree(parameters)
    numbers = numbers.astype(start.dtype)

    def end(flat: Array) -> Array:
        y, t, h, p = flat[:n], flat[n], flat[n + 1], tree(flat[n + 2 :])
        found = integrate(
            lambda s, z, _: h * rhs(t + s * h, z, p),
            diffrax.Dopri8(),
            jnp.linspace(0.0, 1.0, 2, dtype=start.dtype),
            *(y, None),
            rtol=rtol,
            atol=0.01 * rtol,
            max_steps=_MAX_STEPS,
            adjoint=diffrax.ForwardMode(),
            throw=False,
        )
        return found.ys[-1]

    @jax.custom_jvp
    def reached(flat: Array) -> Array:
        return end(flat)

    @reached.defjvp
    def change(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
        # As a matrix, which reverse mode can transpose; the steps themselves it cannot.
        return reached(*primals), jax.jacfwd(end)(*primals) @ tangents[0]

    flat = jnp.concatenate([start, jnp.stack([begin, duration]).astype(start.dtype), numbers])
    return reached(flat), lambda: jax.jacfwd(end)(flat)
