"""Linear-quadratic problems over stages with parameters, by one backward and one forward sweep."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxgrip.solve import dense

# Eigenvalues of a matrix of order one are zero below this.
_ROUNDING = 1e-13


class LinearQuadratic(NamedTuple):
    r"""Minimise $\frac12 \sum_k w_k^T Q_k w_k + \frac12 e^T V e$, $x_{k+1} = A_k w_k$, $x_0 = S p$.

    w = (x, u, p) with states `(n,)`, controls `(m,)` and parameters p `(q,)`; e = (x_N, p). The
    parameters are (time, 1, free components of x_0, multipliers): the constant one carries the
    linear terms; over the multipliers of the end conditions the cost is maximised.

    `start` S `(n, q)`; `stage` Q `(N, n+m+q, n+m+q)`; `move` A `(N, n, n+m+q)`; `end` V
    `(n+q, n+q)`.
    """

    start: Float[Array, "n q"]
    stage: Float[Array, "N w w"]
    move: Float[Array, "N n w"]
    end: Float[Array, "e e"]


class Sweep(NamedTuple):
    """Solution of a [`LinearQuadratic`][]: `x` `(N+1, n)`, `u` `(N, m)`, `parameters` `(q,)`, the
    gradient `value_x` `(N, n)` of the cost to go at each next state. `ok` is False if the reduced
    Hessian is not positive definite, so that the solution is no minimum; `in_reach` is False if
    the reason is that the states cannot meet the end conditions.
    """

    x: Float[Array, "nodes n"]
    u: Float[Array, "N m"]
    parameters: Float[Array, " q"]
    value_x: Float[Array, "N n"]
    ok: Bool[Array, ""]
    in_reach: Bool[Array, ""]


def _inertia(matrix: Float[Array, "k k"]) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Numbers of negative and of positive eigenvalues of a symmetric matrix in any units."""
    for _ in range(3):
        largest = jnp.max(jnp.abs(matrix), axis=0, initial=0.0)
        size = 1.0 / jnp.sqrt(jnp.where(largest > 0.0, largest, 1.0))
        matrix = size[:, None] * matrix * size[None]
    values = dense.eigvalsh(matrix)
    return jnp.sum(values < -_ROUNDING), jnp.sum(values > _ROUNDING)


def sweep(lq: LinearQuadratic, *, is_time_free: bool, n_multipliers: int) -> Sweep:
    """Solve a [`LinearQuadratic`][] in time linear in the number of stages.

    **Arguments:** `lq`; `is_time_free`, whether the first parameter is an unknown or zero;
    `n_multipliers`, how many of the last parameters are multipliers.

    **Returns:** a [`Sweep`][].
    """
    n, width = lq.move.shape[1:]
    q = lq.end.shape[0] - n
    m = width - n - q
    parameters_only = jnp.eye(q, width, k=n + m)

    def backward(value, inputs):
        stage, move = inputs
        forward_map = jnp.concatenate([move, parameters_only])
        hess = stage + forward_map.T @ value @ forward_map
        by_u = hess[n : n + m]
        by_rest = jnp.concatenate([by_u[:, :n], by_u[:, n + m :]], axis=1)
        factor = dense.cholesky(by_u[:, n : n + m])
        gain = -dense.cho_solve(factor, by_rest)
        rest = jnp.concatenate([hess[:n], hess[n + m :]])
        rest = jnp.concatenate([rest[:, :n], rest[:, n + m :]], axis=1)
        new = rest + by_rest.T @ gain
        return 0.5 * (new + new.T), (gain, value[:n])

    first, (gains, value_rows) = jax.lax.scan(backward, lq.end, (lq.stage, lq.move), reverse=True)
    lift = jnp.concatenate([lq.start, jnp.eye(q)])
    saddle = lift.T @ first @ lift
    free = range(2, q - n_multipliers)
    smallest = np.array([0, *free] if is_time_free else free, dtype=int)
    largest = np.arange(q - n_multipliers, q)
    unknown = np.concatenate([smallest, largest])
    matrix = saddle[unknown[:, None], unknown]
    solved = dense.solve(matrix, -saddle[unknown, 1])
    parameters = jnp.zeros(q).at[1].set(1.0).at[unknown].set(solved)
    negative, positive = _inertia(matrix)
    is_convex, in_reach = jnp.all(jnp.isfinite(gains)), negative >= n_multipliers
    ok = is_convex & (negative == n_multipliers) & (positive == len(smallest))

    def forward(x, inputs):
        gain, move = inputs
        u = gain @ jnp.concatenate([x, parameters])
        new = move @ jnp.concatenate([x, u, parameters])
        return new, (u, new)

    start = lq.start @ parameters
    _, (u, x) = jax.lax.scan(forward, start, (gains, lq.move))
    ends = jnp.concatenate([x, jnp.broadcast_to(parameters, (len(x), q))], axis=1)
    return Sweep(
        jnp.concatenate([start[None], x]),
        u,
        parameters,
        jnp.einsum("kie,ke->ki", value_rows, ends),
        ok,
        in_reach | ~is_convex,
    )
