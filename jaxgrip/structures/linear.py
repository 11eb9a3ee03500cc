"""Linear equations of structures: stiffness with equations between freedoms."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float

# Softness given to equations, relative to a stiffness of 1: it decides between equations that say
# the same, and one further correction takes its effect below rounding.
SOFT = 1e-8


class Factor(NamedTuple):
    """Factors of the scaled equations.

    `lower` (n, n) of K + BᵀB, `across` (n, m) with lower across = Bᵀ, `schur` (m, m) of acrossᵀ
    across; `scale` (n,) and `weight` (m,) of `scales`.
    """

    lower: Float[Array, "n n"]
    across: Float[Array, "n m"]
    schur: Float[Array, "m m"]
    scale: Float[Array, " n"]
    weight: Float[Array, " m"]

    def margin(self) -> Float[Array, ""]:
        """Estimate of the smallest eigenvalue of K + BᵀB, whose diagonal is about 1.

        One inverse iteration: a pivot would show a mechanism less clearly. NaN for a matrix that
        could not be factorised.
        """
        start = np.random.default_rng(0).standard_normal(len(self.scale))
        start = jnp.asarray(start / np.linalg.norm(start))
        return 1 / jnp.linalg.norm(cho_solve((self.lower, True), start))


def scales(
    stiffness: Float[Array, "n n"], equations: Float[Array, "m n"]
) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    """Factors of freedoms and of equations that bring the diagonal and the rows to 1."""
    diagonal = jnp.abs(jnp.diagonal(stiffness))
    # What is held by equations only has no stiffness of its own, or that of rounding.
    largest = jnp.max(diagonal, initial=1e-300)
    scale = 1 / jnp.sqrt(jnp.where(diagonal > 1e-9 * largest, diagonal, largest))
    rows = jnp.sqrt(jnp.sum((equations * scale[None, :]) ** 2, axis=1))
    return scale, 1 / jnp.where(rows > 0, rows, 1.0)


def factorise(stiffness: Float[Array, "n n"], equations: Float[Array, "m n"]) -> Factor:
    """Factors of [[K, Bᵀ], [B, 0]].

    Adding BᵀB to K changes no solution and leaves a definite matrix where nothing can move.
    """
    stiffness, equations = jax.lax.stop_gradient((stiffness, equations))
    scale, weight = scales(stiffness, equations)
    b = equations * scale[None, :] * weight[:, None]
    k = stiffness * scale[:, None] * scale[None, :] + b.T @ b
    lower = jnp.linalg.cholesky(k)
    across = solve_triangular(lower, b.T, lower=True)
    schur = jnp.linalg.cholesky(across.T @ across + SOFT * jnp.eye(len(weight)))
    return Factor(lower, across, schur, scale, weight)


def solve(
    stiffness: Float[Array, "n n"],
    equations: Float[Array, "m n"],
    factor: Factor,
    force: Float[Array, " n"],
    gap: Float[Array, " m"],
) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    """u and λ of K u + Bᵀ λ = f, B u = g, differentiable to any order."""
    n = len(force)

    # One vector: transposing needs all parts of the right side to be variable, or none.
    def product(z):
        u, forces = z[:n], z[n:]
        return jnp.concatenate([stiffness @ u + equations.T @ forces, equations @ u])

    def step(b):
        f, g = b[:n] * factor.scale, b[n:] * factor.weight
        y = solve_triangular(factor.lower, f, lower=True) + factor.across @ g
        forces = cho_solve((factor.schur, True), factor.across.T @ y - g)
        u = solve_triangular(factor.lower, y - factor.across @ forces, lower=True, trans=1)
        return jnp.concatenate([u * factor.scale, forces * factor.weight])

    def twice(_, b):
        z = step(b)
        return z + step(b - product(z))

    right = jnp.concatenate([force, gap])
    z = jax.lax.custom_linear_solve(product, right, twice, transpose_solve=twice, symmetric=True)
    return z[:n], z[n:]


def stability(stiffness: Float[Array, "n n"], equations: Float[Array, "m n"]) -> Float[Array, ""]:
    """Smallest eigenvalue of the scaled matrix where the equations hold; negative if unstable."""
    scale, weight = scales(stiffness, equations)
    basis, size, _ = jnp.linalg.svd(
        (equations * scale[None, :] * weight[:, None]).T, full_matrices=False
    )
    held = jnp.where(size[None, :] > 1e-6, basis, 0.0)
    free = jnp.eye(len(scale)) - held @ held.T
    scaled = free @ (stiffness * scale[:, None] * scale[None, :]) @ free
    return jnp.min(jnp.linalg.eigvalsh((scaled + scaled.T) / 2 + held @ held.T))
