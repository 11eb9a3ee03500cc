"""Linear equations of structures: stiffness with equations between freedoms."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Softness given to equations, relative to a stiffness of 1: it decides between equations that say
# the same, and one further correction takes its effect below rounding.
SOFT = 1e-8


class Factor(NamedTuple):
    """Factors of the scaled matrix, with `pivot`, its smallest pivot, tiny where it is singular."""

    lu: Float[Array, "s s"]
    order: Array
    scale: Float[Array, " n"]
    weight: Float[Array, " m"]

    @property
    def pivot(self) -> Float[Array, ""]:
        """Smallest pivot."""
        return jnp.min(jnp.abs(jnp.diagonal(self.lu)))


def scales(
    stiffness: Float[Array, "n n"], equations: Float[Array, "m n"]
) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    """Factors of freedoms and of equations that bring the diagonal and the rows to 1."""
    diagonal = jnp.diagonal(stiffness)
    least = jnp.max(diagonal, initial=0.0) * 1e-14
    scale = 1 / jnp.sqrt(jnp.where(diagonal > least, diagonal, jnp.max(diagonal, initial=1e-300)))
    rows = jnp.sqrt(jnp.sum((equations * scale[None, :]) ** 2, axis=1))
    return scale, 1 / jnp.where(rows > 0, rows, 1.0)


def factorise(stiffness: Float[Array, "n n"], equations: Float[Array, "m n"]) -> Factor:
    """Factors of [[K, Bᵀ], [B, 0]], slightly softened."""
    stiffness, equations = jax.lax.stop_gradient((stiffness, equations))
    scale, weight = scales(stiffness, equations)
    k = stiffness * scale[:, None] * scale[None, :]
    b = equations * scale[None, :] * weight[:, None]
    soft = -SOFT * jnp.eye(len(weight))
    lu, order = jax.scipy.linalg.lu_factor(jnp.block([[k, b.T], [b, soft]]))
    return Factor(lu, order, scale, weight)


def solve(
    stiffness: Float[Array, "n n"],
    equations: Float[Array, "m n"],
    factor: Factor,
    force: Float[Array, " n"],
    gap: Float[Array, " m"],
) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    """u and λ of K u + Bᵀ λ = f, B u = g, differentiable to any order."""

    def product(z):
        u, forces = z
        return stiffness @ u + equations.T @ forces, equations @ u

    def step(b):
        both = jnp.concatenate([b[0] * factor.scale, b[1] * factor.weight])
        both = jax.scipy.linalg.lu_solve((factor.lu, factor.order), both)
        n = len(factor.scale)
        return both[:n] * factor.scale, both[n:] * factor.weight

    def twice(_, b):
        z = step(b)
        rest = jax.tree.map(jnp.subtract, b, product(z))
        return jax.tree.map(jnp.add, z, step(rest))

    return jax.lax.custom_linear_solve(
        product, (force, gap), twice, transpose_solve=twice, symmetric=True
    )
