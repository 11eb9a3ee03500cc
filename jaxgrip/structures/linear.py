"""Linear equations of structures: stiffness with equations between freedoms."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxgrip.solve import dense

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

    def margin(self, whole: Float[Array, "n n"] | None = None) -> Float[Array, ""]:
        """Estimate of the smallest eigenvalue of K + BᵀB, whose diagonal is about 1.

        One inverse iteration: a pivot would show a mechanism less clearly. NaN for a matrix that
        could not be factorised. Differentiable where `whole`, K + BᵀB as `scaled` gives it, is
        there.
        """
        start = np.random.default_rng(0).standard_normal(len(self.scale))
        start = jnp.asarray(start / np.linalg.norm(start))

        def step(b: Array) -> Array:
            return dense.cho_solve(self.lower, b)

        if whole is None:
            return 1 / jnp.linalg.norm(step(start))
        soft = jax.lax.custom_linear_solve(
            lambda x: whole @ x, start, lambda _, b: step(b), symmetric=True
        )
        return 1 / jnp.linalg.norm(soft)


def scales(
    stiffness: Float[Array, "n n"], equations: Float[Array, "m n"]
) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    """Factors of freedoms and of equations that bring the diagonal and the rows to 1."""
    diagonal = jnp.abs(jnp.diagonal(stiffness))
    # What is held by equations only has no stiffness of its own, or that of rounding.
    largest = jnp.max(diagonal, initial=1e-300)
    scale = 1 / jnp.sqrt(jnp.where(diagonal > 1e-9 * largest, diagonal, largest))
    return scale, _weight(equations, scale)


def _weight(equations: Float[Array, "m n"], scale: Float[Array, " n"]) -> Float[Array, " m"]:
    square = jnp.sum((equations * scale[None, :]) ** 2, axis=1)
    return 1 / jnp.sqrt(jnp.where(square > 0, square, 1.0))


def scaled(
    stiffness: Float[Array, "n n"], equations: Float[Array, "m n"]
) -> tuple[Float[Array, "n n"], Float[Array, "m n"], Float[Array, " n"], Float[Array, " m"]]:
    """K + BᵀB and B, scaled, and `scales`."""
    scale, weight = scales(stiffness, equations)
    b = equations * scale[None, :] * weight[:, None]
    return stiffness * scale[:, None] * scale[None, :] + b.T @ b, b, scale, weight


def factorise(stiffness: Float[Array, "n n"], equations: Float[Array, "m n"]) -> Factor:
    """Factors of [[K, Bᵀ], [B, 0]].

    Adding BᵀB to K changes no solution and leaves a definite matrix where nothing can move.
    """
    k, b, scale, weight = scaled(*jax.lax.stop_gradient((stiffness, equations)))
    lower = dense.cholesky(k)
    across = dense.solve_triangular(lower, b.T, lower=True)
    schur = dense.cholesky(across.T @ across + SOFT * jnp.eye(len(weight)))
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
        y = dense.solve_triangular(factor.lower, f, lower=True) + factor.across @ g
        forces = dense.cho_solve(factor.schur, factor.across.T @ y - g)
        u = dense.solve_triangular(factor.lower, y - factor.across @ forces, lower=True, trans=True)
        return jnp.concatenate([u * factor.scale, forces * factor.weight])

    def twice(_, b):
        z = step(b)
        return z + step(b - product(z))

    right = jnp.concatenate([force, gap])
    z = jax.lax.custom_linear_solve(product, right, twice, transpose_solve=twice, symmetric=True)
    return z[:n], z[n:]


class Saddle(NamedTuple):
    """Factors of the scaled matrix [[K, Bᵀ], [B, 0]] with any K.

    `whole` and `factor` of it, `scale` (n + m,) of freedoms and equations.
    """

    whole: Float[Array, "k k"]
    factor: dense.LU
    scale: Float[Array, " k"]

    def solve(self, right: Float[Array, " k *c"], *, trans: bool = False) -> Float[Array, " k *c"]:
        """u and λ of K u + Bᵀ λ = f, B u = g, by f and g one above the other; `trans`: of Kᵀ."""
        scale = self.scale.reshape(-1, *[1] * (right.ndim - 1))
        whole = self.whole.T if trans else self.whole
        step = dense.lu_solve(self.factor, scale * right, trans=trans)
        rest = scale * right - whole @ step
        return scale * (step + dense.lu_solve(self.factor, rest, trans=trans))


def saddle(
    stiffness: Float[Array, "n n"],
    equations: Float[Array, "m n"],
    scale: Float[Array, " n"],
    damping: Float[Array, ""],
) -> Saddle:
    """Factors of [[K, Bᵀ], [B, 0]]; `scale` of the freedoms; `damping` is added to the scaled K."""
    n, m = len(scale), len(equations)
    both = jnp.concatenate([scale, _weight(equations, scale)])
    whole = jnp.block([[stiffness, equations.T], [equations, jnp.zeros((m, m))]])
    whole = whole * both[:, None] * both[None, :]
    whole = whole + jnp.diag(jnp.concatenate([jnp.full(n, damping), jnp.zeros(m)]))
    soft = jnp.diag(jnp.concatenate([jnp.zeros(n), jnp.full(m, SOFT)]))
    return Saddle(whole, dense.lu_factor(whole - soft), both)


def solve_any(
    stiffness: Float[Array, "n n"],
    equations: Float[Array, "m n"],
    scale: Float[Array, " n"],
    right: Float[Array, " k"],
) -> Float[Array, " k"]:
    """As `Saddle.solve`, differentiable to any order."""
    factor = saddle(*jax.lax.stop_gradient((stiffness, equations, scale)), jnp.zeros(()))
    n = len(scale)

    def product(z: Array) -> Array:
        return jnp.concatenate([stiffness @ z[:n] + equations.T @ z[n:], equations @ z[:n]])

    return jax.lax.custom_linear_solve(
        product,
        right,
        lambda _, b: factor.solve(b),
        lambda _, b: factor.solve(b, trans=True),
    )


def definite(
    stiffness: Float[Array, "n n"],
    equations: Float[Array, "m n"],
    scale: Float[Array, " n"],
    least: Float[Array, ""],
) -> Bool[Array, ""]:
    """Whether all eigenvalues of the scaled K are above the least where the equations hold."""
    scaled = _where_they_hold(stiffness, equations, scale)
    return jnp.all(jnp.isfinite(dense.cholesky(scaled - least * jnp.eye(len(scale)))))


def stability(
    stiffness: Float[Array, "n n"], equations: Float[Array, "m n"], scale: Float[Array, " n"]
) -> Float[Array, ""]:
    """Smallest eigenvalue of the scaled K where the equations hold; negative if unstable."""
    return jnp.min(dense.eigvalsh(_where_they_hold(stiffness, equations, scale)))


@jax.jit
def softest(
    stiffness: Float[Array, "n n"], equations: Float[Array, "m n"], scale: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Eigenvalues of the scaled K where the equations hold, and their motions as columns."""
    values, vectors = dense.eigh(_where_they_hold(stiffness, equations, scale))
    return values, scale[:, None] * vectors


def _where_they_hold(
    stiffness: Float[Array, "n n"], equations: Float[Array, "m n"], scale: Float[Array, " n"]
) -> Float[Array, "n n"]:
    """The scaled, symmetric K of all that the equations allow, and 1 of the rest."""
    b = equations * scale[None, :] * _weight(equations, scale)[:, None]
    k = (stiffness + stiffness.T) / 2 * scale[:, None] * scale[None, :]
    # Rows without length, or nearly, are of equations that say the same as others.
    lower = dense.cholesky(b @ b.T + SOFT * jnp.eye(len(b)))
    q = dense.solve_triangular(lower, b, lower=True)
    own = q @ k
    k = k - q.T @ own - own.T @ q + q.T @ (own @ q.T + jnp.eye(len(q))) @ q
    return (k + k.T) / 2
