"""Natural frequencies and modes of systems with constraints."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.solve import dense


class Modes(NamedTuple):
    """Modes in ascending order of their frequencies.

    `frequency` (k,) [Hz], negative for the growth rate of an unstable mode divided by 2 pi; `shape`
    (n, k), columns of length one in the coordinates of the masses; `eigenvalue` (k,) [1/s²].
    """

    frequency: Float[Array, " k"]
    shape: Float[Array, "n k"]
    eigenvalue: Float[Array, " k"]


def freedoms(
    constraints: Callable[[Float[Array, " n"]], Float[Array, " m"]],
    q: Float[Array, " n"],
    independent: Sequence[int],
) -> Float[Array, "n k"]:
    """Changes of all coordinates by the independent ones that keep constraints.

    **Arguments:** `constraints`: function of coordinates that is constant; `q` (n,); `independent`:
    the k = n - m coordinates that are kept.

    **Returns:** (n, k), whose rows of the independent coordinates are the identity.

    Source: Ploeger 2017, section on minimal coordinates: T = -C_dep⁻¹ C_ind.
    """
    by = jax.jacfwd(constraints)(q)
    m, n = by.shape
    kept = np.asarray(independent, int)
    if len(kept) != n - m:
        raise ValueError(
            f"{n} coordinates with {m} constraints have {n - m} independent ones, not {len(kept)}."
        )
    rest = np.setdiff1d(np.arange(n), kept)
    followed = -dense.solve(by[:, rest], by[:, kept])
    return (
        jnp.zeros((n, len(kept)), q.dtype).at[kept].set(jnp.eye(len(kept))).at[rest].set(followed)
    )


def spring_stiffness(
    springs: Callable[[Float[Array, " n"]], Float[Array, " s"]],
    stiffness: Float[Array, " s"],
    q: Float[Array, " n"],
) -> Float[Array, "n n"]:
    """Stiffness of springs without their geometric part, Jᵀ diag(k) J.

    **Arguments:** `springs`: function of coordinates giving the coordinates of the springs;
    `stiffness` (s,); `q` (n,).

    Source: Ploeger 2017, equation (12).
    """
    by = jax.jacfwd(springs)(q)
    return by.T @ (stiffness[:, None] * by)


def static_stiffness(
    potential: Callable[[Float[Array, " n"]], Float[Array, ""]],
    q: Float[Array, " n"],
    constraints: Callable[[Float[Array, " n"]], Float[Array, " m"]] | None = None,
) -> Float[Array, "n n"]:
    """Second derivative of the energy at rest, with that of constraints by their multipliers.

    Reduced by [`freedoms`][] it is the exact second derivative of the potential along the
    constraints. `q` must be an equilibrium.

    Source: own derivation, by Lagrange's multipliers.
    """
    bent = jax.hessian(potential)(q)
    if constraints is None:
        return bent
    by = jax.jacfwd(constraints)(q)
    multipliers = dense.solve(by @ by.T, by @ jax.grad(potential)(q), positive=True)
    return bent - jax.hessian(lambda x: multipliers @ constraints(x))(q)


def modes(
    mass: Float[Array, "n n"],
    stiffness: Float[Array, "n n"],
    free: Float[Array, "n k"] | None = None,
) -> Modes:
    """Natural frequencies and modes of M x'' + K x = 0.

    Differentiable and batched; derivatives of modes with equal frequencies assume that these stay
    equal, and that of a frequency of zero is set to zero.

    **Arguments:** `mass`, positive definite, and `stiffness`, symmetric (n, n); `free` (n, k):
    directions that constraints leave, of [`freedoms`][]; all when None.
    """
    free = jnp.eye(mass.shape[0], dtype=mass.dtype) if free is None else free
    lower = dense.cholesky(free.T @ mass @ free)
    half = dense.solve_triangular(lower, free.T @ stiffness @ free, lower=True)
    matrix = dense.solve_triangular(lower, half.T, lower=True)
    values, vectors = dense.eigh(matrix)
    shapes = free @ dense.solve_triangular(lower, vectors, lower=True, trans=True)
    shapes = shapes / jnp.sqrt(jnp.sum(shapes**2, axis=0))[None]
    # Rounding leaves rigid motions a frequency; their square root has no derivative.
    zero = jnp.abs(values) <= 1e-12 * jnp.max(jnp.abs(values))
    size = jnp.sqrt(jnp.abs(jnp.where(zero, 1.0, values)))
    frequency = jnp.where(zero, 0.0, jnp.sign(values) * size) / (2 * jnp.pi)
    return Modes(frequency, shapes, values)
