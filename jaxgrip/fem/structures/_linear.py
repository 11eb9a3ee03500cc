"""Linear systems of structures: stiffness with constraint equations.

Small structures have dense matrices, which are fast in batches; large ones have sparse matrices,
factorised on the host. The same functions serve both.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxgrip.fem import direct
from jaxgrip.fem.element_sum import ElementSum, Rows
from jaxgrip.fem.topology import Constant
from jaxgrip.solve import dense

# Number of degrees of freedom from which matrices are sparse, and then faster.
LARGE = 600
# Compliance of constraints, relative to a stiffness of 1: with it redundant constraints are
# solvable, and one refinement step takes its effect below rounding.
SOFT = 1e-8

Matrix = Float[Array, "_ _"] | ElementSum
Equations = Float[Array, "_ _"] | Rows


def is_large(count: int) -> bool:
    """Whether a structure with this number of degrees of freedom has sparse matrices."""
    return count >= LARGE


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

    def solve(
        self, force: Float[Array, " n"], gap: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        """u and λ, before the correction for the compliance of the constraints."""
        f, g = force * self.scale, gap * self.weight
        y = dense.solve_triangular(self.lower, f, lower=True) + self.across @ g
        forces = dense.cho_solve(self.schur, self.across.T @ y - g)
        u = dense.solve_triangular(self.lower, y - self.across @ forces, lower=True, trans=True)
        return u * self.scale, forces * self.weight

    def inverse(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """(K + BᵀB)⁻¹ b of the scaled matrices."""
        return dense.cho_solve(self.lower, b)


class SparseFactor(eqx.Module):
    """The scaled matrix [[K + BᵀB, Bᵀ], [B, -SOFT]], factorised at the first solve.

    `values`: entries of the matrix; `scale` (n,) and `weight` (m,) of `scales`.
    """

    values: Float[Array, " entries"]
    scale: Float[Array, " n"]
    weight: Float[Array, " m"]
    pattern: direct.Pattern = eqx.field(static=True)

    def solve(
        self, force: Float[Array, " n"], gap: Float[Array, " m"]
    ) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
        """u and λ, before the correction for the compliance of the constraints."""
        # Solving for λ - g instead of λ cancels the force Bᵀ g due to BᵀB u.
        g = gap * self.weight
        right = jnp.concatenate([force * self.scale, (1 + SOFT) * g])
        both = direct.solve(self.pattern, self.values, right)
        n = len(self.scale)
        return both[:n] * self.scale, (both[n:] + g) * self.weight

    def inverse(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """K⁻¹ b of the scaled K under the constraints."""
        n = len(self.scale)
        right = jnp.concatenate([b, jnp.zeros(len(self.weight))])
        return direct.solve(self.pattern, self.values, right)[:n]


def scales(
    stiffness: Matrix, equations: Equations
) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    """Scales of degrees of freedom and constraints, for unit diagonal and unit rows."""
    sparse = isinstance(stiffness, ElementSum)
    diagonal = jnp.abs(stiffness.diagonal() if sparse else jnp.diagonal(stiffness))
    # Degrees of freedom determined by constraints alone have a stiffness of 0 or rounding.
    largest = jnp.max(diagonal, initial=1e-300)
    scale = 1 / jnp.sqrt(jnp.where(diagonal > 1e-9 * largest, diagonal, largest))
    return scale, _weight(equations, scale)


def _weight(equations: Equations, scale: Float[Array, " n"]) -> Float[Array, " m"]:
    if isinstance(equations, Rows):
        square = jnp.zeros(len(equations))
        for rows, _, values in equations.scaled(jnp.ones(len(equations)), scale).groups:
            square = square.at[rows].add(jnp.sum(values**2, axis=1))
    else:
        square = jnp.sum((equations * scale[None, :]) ** 2, axis=1)
    return 1 / jnp.sqrt(jnp.where(square > 0, square, 1.0))


def scaled(
    stiffness: Float[Array, "n n"], equations: Float[Array, "m n"]
) -> tuple[Float[Array, "n n"], Float[Array, "m n"], Float[Array, " n"], Float[Array, " m"]]:
    """K + BᵀB and B, scaled, and `scales`."""
    scale, weight = scales(stiffness, equations)
    b = equations * scale[None, :] * weight[:, None]
    return stiffness * scale[:, None] * scale[None, :] + b.T @ b, b, scale, weight


def factorise(stiffness: Matrix, equations: Equations) -> Factor | SparseFactor:
    """Factors of [[K, Bᵀ], [B, 0]].

    Adding BᵀB to K changes no solution and makes it definite unless there is a mechanism.
    """
    stiffness, equations = jax.lax.stop_gradient((stiffness, equations))
    if isinstance(stiffness, ElementSum):
        return _factorise_sparse(stiffness, equations)
    k, b, scale, weight = scaled(stiffness, equations)
    lower = dense.cholesky(k)
    across = dense.solve_triangular(lower, b.T, lower=True)
    schur = dense.cholesky(across.T @ across + SOFT * jnp.eye(len(weight)))
    return Factor(lower, across, schur, scale, weight)


def _factorise_sparse(stiffness: ElementSum, equations: Rows) -> SparseFactor:
    n, m = stiffness.size, len(equations)
    scale, weight = scales(stiffness, equations)
    b = equations.scaled(weight, scale)
    a = stiffness.scaled(scale) + b.square()
    # Unknowns from n on are multipliers.
    squares = a.renumbered(np.arange(n), n + m)
    rows = tuple(
        (Constant(n + own.array), Constant(np.where(index.array < n, index.array, n + m)))
        for own, index in b.places
    )
    pattern = direct.pattern(n + m, squares.indices, rows)
    diagonal = jnp.concatenate([jnp.zeros(n), jnp.full(m, -SOFT)])
    values = direct.assemble(pattern, diagonal, squares.matrices, b.coefficients)
    return SparseFactor(values, scale, weight, pattern)


def softened(
    stiffness: ElementSum, equations: Rows, shift: float
) -> tuple[direct.Pattern, Float[Array, " entries"], Float[Array, " n"]]:
    """K + BᵀB + shift, scaled, as a pattern and its values; `scale` of `scales`."""
    scale, weight = scales(stiffness, equations)
    whole = stiffness.scaled(scale) + equations.scaled(weight, scale).square()
    pattern = direct.pattern(whole.size, whole.indices, ())
    shifts = jnp.full(whole.size, shift)
    return pattern, direct.assemble(pattern, shifts, whole.matrices, ()), scale


def with_springs(stiffness: Matrix, stretch: Equations, spring: Float[Array, " s"]) -> Matrix:
    """K + Rᵀ diag(k) R with the elongation rows R and the stiffness k of springs."""
    if not len(spring):
        return stiffness
    if isinstance(stretch, Rows):
        return stiffness + stretch.square(spring)
    return stiffness + stretch.T @ (spring[:, None] * stretch)


def solve(
    stiffness: Matrix,
    equations: Equations,
    factor: Factor | SparseFactor,
    force: Float[Array, " n"],
    gap: Float[Array, " m"],
) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    """u and λ of K u + Bᵀ λ = f, B u = g, differentiable to any order."""
    n = len(force)

    # One vector, since transposition needs all right-hand sides to be variable, or none.
    def product(z):
        u, forces = z[:n], z[n:]
        return jnp.concatenate([stiffness @ u + equations.T @ forces, equations @ u])

    def twice(_, b):
        z = jnp.concatenate(factor.solve(b[:n], b[n:]))
        rest = b - product(z)
        return z + jnp.concatenate(factor.solve(rest[:n], rest[n:]))

    right = jnp.concatenate([force, gap])
    z = jax.lax.custom_linear_solve(product, right, twice, transpose_solve=twice, symmetric=True)
    return z[:n], z[n:]


def margin(
    factor: Factor | SparseFactor,
    stiffness: Matrix | None = None,
    equations: Equations | None = None,
) -> Float[Array, ""]:
    """Estimate of the smallest eigenvalue of the scaled K, whose diagonal is about 1.

    One inverse iteration, which shows a mechanism more clearly than a pivot. NaN for a matrix that
    could not be factorised. Differentiable where K and B are given.
    """
    start = np.random.default_rng(0).standard_normal(len(factor.scale))
    start = jnp.asarray(start / np.linalg.norm(start))
    if stiffness is None:
        soft = factor.inverse(start)
    elif isinstance(factor, SparseFactor):
        scale, _ = scales(stiffness, equations)
        u, _ = solve(stiffness, equations, factor, start / scale, jnp.zeros(len(equations)))
        soft = u / scale
    else:
        whole = scaled(stiffness, equations)[0]
        soft = jax.lax.custom_linear_solve(
            lambda x: whole @ x, start, lambda _, b: factor.inverse(b), symmetric=True
        )
    return 1 / jnp.linalg.norm(soft)


class Saddle(NamedTuple):
    """The scaled matrix `whole` = [[K, Bᵀ], [B, 0]] with any K, and its `factor`.

    `scale` (n + m,) of degrees of freedom and constraints.
    """

    whole: Float[Array, "k k"]
    factor: dense.LU
    scale: Float[Array, " k"]

    def solve(self, right: Float[Array, " k *c"], *, trans: bool = False) -> Float[Array, " k *c"]:
        """u and λ of K u + Bᵀ λ = f, B u = g, for f and g stacked; `trans`: with Kᵀ."""
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
    """Factors of [[K, Bᵀ], [B, 0]]; `scale` of u; `damping` is added to the scaled K."""
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
    """Whether all eigenvalues of the scaled K under the constraints exceed `least`."""
    scaled = _constrained(stiffness, equations, scale)
    return jnp.all(jnp.isfinite(dense.cholesky(scaled - least * jnp.eye(len(scale)))))


def stability(
    stiffness: Float[Array, "n n"], equations: Float[Array, "m n"], scale: Float[Array, " n"]
) -> Float[Array, ""]:
    """Smallest eigenvalue of the scaled K under the constraints; negative if unstable."""
    return jnp.min(dense.eigvalsh(_constrained(stiffness, equations, scale)))


@jax.jit
def softest(
    stiffness: Float[Array, "n n"], equations: Float[Array, "m n"], scale: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """Eigenvalues of the scaled K under the constraints, and their motions as columns."""
    values, vectors = dense.eigh(_constrained(stiffness, equations, scale))
    return values, scale[:, None] * vectors


def _constrained(
    stiffness: Float[Array, "n n"], equations: Float[Array, "m n"], scale: Float[Array, " n"]
) -> Float[Array, "n n"]:
    """The scaled, symmetric K on the null space of the constraints, 1 on its complement."""
    b = equations * scale[None, :] * _weight(equations, scale)[:, None]
    k = (stiffness + stiffness.T) / 2 * scale[:, None] * scale[None, :]
    # SOFT keeps this definite where constraints are redundant.
    lower = dense.cholesky(b @ b.T + SOFT * jnp.eye(len(b)))
    q = dense.solve_triangular(lower, b, lower=True)
    own = q @ k
    k = k - q.T @ own - own.T @ q + q.T @ (own @ q.T + jnp.eye(len(q))) @ q
    return (k + k.T) / 2
