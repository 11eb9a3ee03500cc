"""Equations of motion and constraint together, redundant constraints allowed.

    M(q) x - Jᵀ(q) y = a,    J(q) x = b

x is unique and y of least norm. The rank of J is data and not a shape, so that a mechanism may have
redundant constraints.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxgrip.checks import numbers
from jaxgrip.mechanism.loops.kinematics import State, constraint_matrix, mass_matrix, state
from jaxgrip.mechanism.loops.model import Mechanism, constraints, loop_residuals
from jaxgrip.rigid import forward_kinematics
from jaxgrip.solve import dense

# An equation that is dependent in one position only gains, per radian or metre away from it, at
# least this fraction of the largest singular value.
LOST = 1e-6
# Singular values below this multiple of the gap do not count.
_OPEN = 10.0
# At most this fraction of the largest: a large gap must not drop independent constraints.
_MOST = 1e-5


class Equations(eqx.Module):
    """Constraints of a mechanism, and coordinates (`held`) with prescribed `values`.

    The drives of the loops `driven` change by `rates` and `accelerations` (d,) [m or rad, per s and
    per s^2].
    """

    mechanism: Mechanism
    values: Float[Array, " held"]
    held: tuple[int, ...] = eqx.field(static=True)
    rates: Float[Array, " d"] | None = None
    accelerations: Float[Array, " d"] | None = None
    driven: tuple[int, ...] = eqx.field(static=True, default=())

    @property
    def rows(self) -> int:
        """Number of residuals."""
        return self.mechanism.m + len(self.held)

    def __call__(self, q: Float[Array, " n"]) -> Float[Array, " rows"]:
        """Residuals of the constraints, then of the prescribed coordinates."""
        return jnp.concatenate(
            [constraints(self.mechanism, q), q[np.array(self.held, dtype=int)] - self.values]
        )


def free(mechanism: Mechanism) -> Equations:
    """The constraints alone."""
    return Equations(mechanism, jnp.zeros(0, mechanism.tree.mass.dtype), ())


def holding(mechanism: Mechanism, hold: dict | None) -> Equations:
    """The constraints, and coordinates prescribed by the names of their bodies."""
    hold = hold or {}
    dtype = mechanism.tree.mass.dtype
    values = [
        numbers(f"The prescribed value of {name!r}", x, ()).astype(dtype)
        for name, x in hold.items()
    ]
    return Equations(
        mechanism,
        jnp.stack(values) if values else jnp.zeros(0, dtype),
        tuple(mechanism.coordinate(name) for name in hold),
    )


class Inverse(NamedTuple):
    """Solution x = G a + H b, y = C b - Hᵀ a of the equations: G, H and C in this order."""

    free: Float[Array, "n n"]
    driven: Float[Array, "n rows"]
    stiff: Float[Array, "rows rows"]


def weighted_jacobian(m: Float[Array, "n n"], j: Float[Array, "rows n"]) -> tuple[Array, Array]:
    """L with M = L Lᵀ, and L⁻¹ Jᵀ, whose singular values show the rank of J."""
    lower = dense.cholesky(m)
    return lower, dense.solve_triangular(lower, j.T, lower=True)


def invert(
    m: Float[Array, "n n"], j: Float[Array, "rows n"], tolerance: Float[Array, ""]
) -> Inverse:
    """The inverse, from M = L Lᵀ and L⁻¹ Jᵀ = U Σ Vᵀ truncated at its rank.

    Singular values below `tolerance` of the largest belong to redundant constraints.

    The derivative is that of the inverse at constant rank; its factors have none where singular
    values are equal.
    """
    if len(j):
        return _invert(m, j, tolerance)
    inverse = dense.solve(m, jnp.eye(len(m), dtype=m.dtype), positive=True)
    return Inverse(inverse, jnp.zeros((len(m), 0), m.dtype), jnp.zeros((0, 0), m.dtype))


@jax.custom_jvp
def _invert(m: Array, j: Array, tolerance: Array) -> Inverse:
    lower, weighted = weighted_jacobian(m, j)
    back = dense.solve_triangular(lower, jnp.eye(len(m), dtype=m.dtype), lower=True)
    left, size, right = dense.svd(weighted)
    keep = dense.independent(size, tolerance)
    inverse = jnp.where(keep, 1 / jnp.where(keep, size, 1.0), 0.0)[:, None]
    left = left * keep.astype(m.dtype)[None, :]
    scaled = inverse * right
    rest = back - left @ (left.T @ back)
    return Inverse(rest.T @ rest, back.T @ (left @ scaled), scaled.T @ scaled)


@_invert.defjvp
def _implicit(primals, tangents):
    m, j, tolerance = primals
    dm, dj, _ = tangents
    inverse = _invert(m, j, tolerance)
    g, h, c = inverse
    dependent = jnp.eye(len(j), dtype=m.dtype) - j @ h
    change = dependent @ dj @ h
    dg = -g @ dm @ g - g @ dj.T @ h.T - h @ dj @ g
    dh = g @ (dj.T @ c - dm @ h) - h @ dj @ h + h @ change.T
    bent = c @ (change.T - dj @ h)
    return inverse, Inverse(dg, dh, h.T @ dm @ h + bent + bent.T)


def derivative_at(equations: Equations, now: State) -> Float[Array, "rows n"]:
    """J at a state, with the rows of the prescribed coordinates."""
    mechanism = equations.mechanism
    held = jnp.eye(mechanism.n, dtype=now.bend.dtype)[np.array(equations.held, dtype=int)]
    return jnp.concatenate([constraint_matrix(mechanism, now), held])


def inverse_at(equations: Equations, now: State) -> Inverse:
    """The inverse at a state.

    Constraints that are redundant in closed positions only, as Bricard's, look independent in open
    ones, such as those within a step: singular values as small as the gap do not count.
    """
    rows = derivative_at(equations, now)
    residual = loop_residuals(equations.mechanism, now.place)
    gap = jnp.max(jnp.abs(residual), initial=0.0)
    slope = jnp.max(jnp.abs(rows), initial=0.0)
    tolerance = dense.RANK_TOLERANCE + jnp.minimum(
        _OPEN * gap / jnp.where(slope > 0, slope, 1.0), _MOST
    )
    return invert(mass_matrix(equations.mechanism.tree, now), rows, lax.stop_gradient(tolerance))


def inverse_of(equations: Equations, q: Float[Array, " n"]) -> Inverse:
    """The inverse at q."""
    return inverse_at(equations, state(equations.mechanism.tree, q, jnp.zeros_like(q)))


def conditioning(equations: Equations, q: Float[Array, " n"]) -> Float[Array, ""]:
    """Smallest singular value of J over the largest, zero where the rank drops for an instant.

    An equation that is dependent in all positions nearby stays dependent along every free motion,
    to second order; one that is dependent in this position only does not.
    """

    def rows(q: Array) -> Array:
        return derivative_at(equations, state(equations.mechanism.tree, q, jnp.zeros_like(q)))

    there, along_motions = jax.linearize(rows, q)
    if not there.size:
        return jnp.ones((), q.dtype)
    left, size, right = dense.svd(there)
    kept = dense.independent(size)
    smallest = jnp.min(jnp.where(kept, size, size[0]))
    left, right = left * kept.astype(q.dtype)[None, :], kept.astype(q.dtype)[:, None] * right
    free = jnp.eye(len(q), dtype=q.dtype) - right.T @ right
    dependent = jnp.eye(len(there), dtype=q.dtype) - left @ left.T
    bend = jnp.max(jnp.abs(dependent @ jax.vmap(along_motions)(free) @ free))
    return jnp.where(bend > LOST * size[0], 0.0, smallest / size[0])


def moving(equations: Equations, at: Array) -> Mechanism:
    """The mechanism after a time `at` [s], as far as its drives change it."""
    mechanism, driven = equations.mechanism, equations.driven
    if not driven:
        return mechanism
    joints = [mechanism.loops[k].joint for k in driven]
    values = jnp.stack([getattr(joint, joint.parameter) for joint in joints])
    values = values + at * equations.rates + 0.5 * at * at * equations.accelerations
    return mechanism.with_drives(driven, values)


def missed_rate(
    equations: Equations, q: Float[Array, " n"], qd: Float[Array, " n"]
) -> Float[Array, " rows"]:
    """Rate of change of the residuals, drives included; prescribed coordinates are constant."""
    rate = along(equations, q, qd)
    if not equations.driven:
        return rate
    place = forward_kinematics(equations.mechanism.tree, q)
    zero, one = jnp.zeros((), q.dtype), jnp.ones((), q.dtype)
    _, driven = jax.jvp(lambda t: loop_residuals(moving(equations, t), place), (zero,), (one,))
    return rate.at[: len(driven)].add(driven)


def along(
    equations: Equations, q: Float[Array, " n"], x: Float[Array, " n"]
) -> Float[Array, " rows"]:
    """J(q) x."""
    return jax.jvp(equations, (q,), (x,))[1]


CORRECTIONS = 3
ROUNDS = 3


def closed(
    equations: Equations, q: Float[Array, " n"], qd: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Nearest closed position and velocity of a state with a gap above rounding."""

    if not equations.rows:
        return q, qd

    def nearer(_, x):
        return project(equations, inverse_of(equations, x[0]), *x)

    return jax.lax.fori_loop(0, ROUNDS, nearer, (q, qd))


@jax.custom_jvp
def project(
    equations: Equations, inverse: Inverse, q: Float[Array, " n"], qd: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Nearest closed position and velocity, in the kinetic norm, of a state that is almost closed.

    The inverse at q serves all corrections; its error is of the order of the gap.
    """

    def correct(_, state):
        residuals = equations(state[0]), missed_rate(equations, *state)
        return tuple(x - inverse.driven @ gap for x, gap in zip(state, residuals, strict=True))

    return jax.lax.fori_loop(0, CORRECTIONS, correct, (q, qd))


@project.defjvp
def _projected(primals, tangents):
    equations, inverse, _, _ = primals
    d_equations, _, dq, dqd = tangents
    q, qd = project(*primals)
    _, gap = jax.jvp(equations, (q,), (dq,))
    _, moved = jax.jvp(lambda e: e(q), (equations,), (d_equations,))
    dq = dq - inverse.driven @ (gap + moved)
    _, rate = jax.jvp(lambda e, q: missed_rate(e, q, qd), (equations, q), (d_equations, dq))
    return (q, qd), (dq, dqd - inverse.driven @ (rate + along(equations, q, dqd)))
