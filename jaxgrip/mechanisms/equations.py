"""Equations of motion and constraint together, redundant constraints allowed.

    M(q) x - Jᵀ(q) y = a,    J(q) x = b

With M = L Lᵀ and the singular value decomposition L⁻¹ Jᵀ = U Σ Vᵀ cut off at its rank, x is unique
and y the shortest. What depends on the rank is a number, not a shape, so that a mechanism may have
any constraints more than once.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.mechanisms.mechanism import Mechanism, constraints
from jaxgrip.rigid import crba

# A singular value below this part of the largest is a redundant constraint.
RANK_TOLERANCE = 1e-9


class Equations(eqx.Module):
    """Constraints of a mechanism, and coordinates that are held at values."""

    mechanism: Mechanism
    values: Float[Array, " held"]
    held: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, q: Float[Array, " n"]) -> Float[Array, " rows"]:
        """What the constraints miss, then what the held coordinates miss."""
        return jnp.concatenate(
            [constraints(self.mechanism, q), q[np.array(self.held, dtype=int)] - self.values]
        )


def free(mechanism: Mechanism) -> Equations:
    """The constraints alone."""
    return Equations(mechanism, jnp.zeros(0, mechanism.tree.mass.dtype), ())


def holding(mechanism: Mechanism, hold: dict | None) -> Equations:
    """The constraints, and coordinates held, by the names of their bodies."""
    hold = hold or {}
    dtype = mechanism.tree.mass.dtype
    values = [jnp.asarray(value, dtype) for value in hold.values()]
    return Equations(
        mechanism,
        jnp.stack(values) if values else jnp.zeros(0, dtype),
        tuple(mechanism.coordinate(name) for name in hold),
    )


class Factors(NamedTuple):
    """Cholesky factor L of M, and U, Σ and V of L⁻¹ Jᵀ with what is kept of Σ as its inverse."""

    cholesky: Float[Array, "n n"]
    left: Float[Array, "n k"]
    right: Float[Array, "rows k"]
    inverse: Float[Array, " k"]
    singular_values: Float[Array, " k"]


def factor(equations: Equations, q: Float[Array, " n"]) -> Factors:
    """Factors at q, as numbers without a derivative."""
    equations, q = jax.lax.stop_gradient((equations, q))
    cholesky = jnp.linalg.cholesky(crba(equations.mechanism.tree, q))
    rows = jax.jacfwd(equations)(q)
    if not len(rows):
        none = jnp.zeros(0, q.dtype)
        return Factors(cholesky, jnp.zeros((len(q), 0), q.dtype), none[:, None], none, none)
    weighted = jax.scipy.linalg.solve_triangular(cholesky, rows.T, lower=True)
    left, size, right = jnp.linalg.svd(weighted, full_matrices=False)
    keep = size > RANK_TOLERANCE * size[0]
    inverse = jnp.where(keep, 1 / jnp.where(keep, size, 1.0), 0.0)
    return Factors(cholesky, left, right.T, inverse, size)


@jax.custom_jvp
def solve(
    equations: Equations,
    q: Float[Array, " n"],
    factors: Factors,
    a: Float[Array, " n"],
    b: Float[Array, " rows"],
) -> tuple[Float[Array, " n"], Float[Array, " rows"]]:
    """x and the shortest y of M x - Jᵀ y = a, J x = b, from the factors at q.

    Its derivative is the implicit one, to any order: no factor is ever differentiated.
    """
    lower, left, right, inverse, _ = factors
    keep = (inverse > 0).astype(q.dtype)
    start = jax.scipy.linalg.solve_triangular(lower, a, lower=True)
    along = left.T @ start
    asked = inverse * (right.T @ b)
    x = start + left @ (asked - keep * along)
    y = right @ (inverse * (asked - along))
    return jax.scipy.linalg.solve_triangular(lower, x, lower=True, trans="T"), y


@solve.defjvp
def _implicit(primals, tangents):
    equations, q, factors, a, _ = primals
    d_equations, dq, _, da, db = tangents
    x, y = solve(*primals)
    # J lever = y: what the shortest y needs when the null space of Jᵀ turns.
    lever, _ = solve(equations, q, factors, jnp.zeros_like(a), y)

    def products(equations, q):
        _, pull = jax.vjp(equations, q)
        force = crba(equations.mechanism.tree, q) @ x - pull(y)[0]
        return force, along(equations, q, x), along(equations, q, lever)

    _, (d_force, d_rate, d_lever) = jax.jvp(products, (equations, q), (d_equations, dq))
    dx, dy = solve(equations, q, factors, da - d_force, db - d_rate)
    seen, _ = solve(equations, q, factors, jnp.zeros_like(a), d_lever)
    return (x, y), (dx, dy + d_lever - along(equations, q, seen))


def along(
    equations: Equations, q: Float[Array, " n"], x: Float[Array, " n"]
) -> Float[Array, " rows"]:
    """J(q) x."""
    return jax.jvp(equations, (q,), (x,))[1]


def curvature(
    equations: Equations, q: Float[Array, " n"], qd: Float[Array, " n"]
) -> Float[Array, " rows"]:
    """J̇ q̇, the acceleration of the constraints at no acceleration of the coordinates."""
    return jax.jvp(lambda q: along(equations, q, qd), (q,), (qd,))[1]


CORRECTIONS = 3


@jax.custom_jvp
def project(
    equations: Equations, factors: Factors, q: Float[Array, " n"], qd: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Nearest closed position and velocity there, in the kinetic norm, of a state almost closed.

    `factors` at q serve all corrections: what they are wrong by is of the order of the gap.
    """

    def correct(_, state):
        missed = jax.jvp(equations, state[:1], state[1:])
        return tuple(
            x + shift(equations, q, factors, g) for x, g in zip(state, missed, strict=True)
        )

    return jax.lax.fori_loop(0, CORRECTIONS, correct, (q, qd))


@project.defjvp
def _projected(primals, tangents):
    equations, factors, _, _ = primals
    d_equations, _, *d_guess = tangents
    q, qd = project(*primals)
    mass = crba(equations.mechanism.tree, q)

    _, gap = jax.jvp(lambda e: e(q), (equations,), (d_equations,))
    dq, _ = solve(equations, q, factors, mass @ d_guess[0], -gap)
    _, rate = jax.jvp(lambda e, q: along(e, q, qd), (equations, q), (d_equations, dq))
    dqd, _ = solve(equations, q, factors, mass @ d_guess[1], -rate)
    return (q, qd), (dq, dqd)


def shift(
    equations: Equations, q: Float[Array, " n"], factors: Factors, gap: Float[Array, " rows"]
) -> Float[Array, " n"]:
    """Newton's step that closes a gap: the one of least kinetic norm."""
    return solve(equations, q, factors, jnp.zeros_like(q), -gap)[0]
