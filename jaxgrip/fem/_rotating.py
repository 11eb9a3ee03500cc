"""Equilibrium and vibration of bodies that rotate at constant angular velocity."""

import warnings
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from jaxtyping import Array, Complex, Float

from jaxgrip.checks import numbers
from jaxgrip.fem._body import Body
from jaxgrip.fem._inertia import FrameMotion, inertia
from jaxgrip.fem._matrices import geometric_stiffness, stiffness
from jaxgrip.fem._sparse import NodeMatrix
from jaxgrip.fem.static import check_supports

DENSE_LIMIT = 300
SETTLED = 1e-10
ROUNDS = 30
TOLERANCE = 1e-11
INVERSE_STEPS = 4


def rotating_equilibrium(body: Body, omega, *, geometric: bool = True) -> Float[Array, "n d"]:
    """Displacements [m] at rest in a frame rotating steadily about an axis through its origin.

    Solves (K + K_ω + K_g(u)) u = h with the centrifugal softening K_ω = ∫ρ Nᵀ ω x ω x N and
    h = -∫ρ Nᵀ ω x ω x R; K_g is the geometric stiffness of the stress of u, omitted where
    `geometric` is False. Runs on the host with SciPy, so it cannot be traced or differentiated.

    **Arguments:** `omega` (3,), angular velocity in body axes [rad/s].

    **Raises:** `ValueError` when the supports leave a rigid motion; `RuntimeError` when no
    equilibrium is found because the body rotates too fast for linear elasticity. Warns where
    `geometric` is False and the body rotates faster than its slowest vibration, since that
    equilibrium is unstable.

    Source: Schanzer 2007, eq. 4.47, pp. 56-57.
    """
    terms = _terms(body, omega)
    if not geometric:
        elastic, mass = (m.to_scipy(body.free) for m in (terms.elastic, terms.mass))
        slowest, speed = _lowest_speed(_factorise(elastic), mass), np.linalg.norm(omega)
        if speed > slowest:
            warnings.warn(
                f"The body rotates at {speed:.3g} rad/s, faster than its slowest vibration "
                f"({slowest:.3g} rad/s), where its equilibrium without geometric stiffness is "
                "unstable; set geometric=True.",
                stacklevel=2,
            )
    return _equilibrium(body, terms, geometric)[0]


def rotating_frequencies(
    body: Body, omega, k: int, *, geometric: bool = True
) -> Complex[np.ndarray, " k"]:
    """Eigenvalues λ [1/s] of small vibrations about `rotating_equilibrium`.

    Solves (λ² M + λ (D + G) + K + K_ω + K_g) v = 0 with the Coriolis matrix G = ∫ρ Nᵀ 2 ω x N and
    the damping D of the body; without K_g (`geometric` False) fast bodies become spuriously
    unstable. Runs on the host (dense up to 300 degrees of freedom, ARPACK above), so it cannot be
    traced or differentiated.

    **Arguments:** `omega` (3,), angular velocity in body axes [rad/s]; `k`, number of
    eigenvalues.

    **Returns:** the k eigenvalues of smallest magnitude with non-negative imaginary part, the
    frequency [rad/s]; a positive real part means growth.

    **Raises:** as `rotating_equilibrium`, and `ValueError` unless k is from 1 to the number of
    free degrees of freedom.

    Source: Schanzer 2007, eq. 4.47, pp. 56-57; own derivation of the eigenvalue problem.
    """
    count = int(body.free.sum())
    if not 1 <= k <= count:
        raise ValueError(f"k is {k}; it must be from 1 to {count}, the free degrees of freedom.")
    terms = _terms(body, omega)
    _, total = _equilibrium(body, terms, geometric)
    mass, velocity = (m.to_scipy(body.free) for m in (terms.mass, terms.velocity))
    invert = _factorise(total)
    speed = _lowest_speed(invert, mass)

    def inverse(z):
        """Inverse companion form, with eigenvalues 1 / λ and vectors (v, λ v / speed)."""
        right = velocity @ z[:count] + speed * (mass @ z[count:])
        return np.concatenate([-invert(right), z[:count] / speed])

    size = (2 * count, 2 * count)
    wanted = 2 * k + 2
    if count <= DENSE_LIMIT or 4 * wanted >= count:
        values = 1 / np.linalg.eigvals(inverse(np.eye(*size)))
    else:
        values = 1 / scipy.sparse.linalg.eigs(
            scipy.sparse.linalg.LinearOperator(size, inverse, dtype=float),
            wanted,
            v0=_start(2 * count),
            ncv=4 * wanted,
            tol=TOLERANCE,
            return_eigenvectors=False,
        )
    values = values[values.imag >= 0]
    return values[np.argsort(np.abs(values))][:k]


class _Terms(NamedTuple):
    """Matrices of displacements (elastic, softening), velocities and accelerations; the load."""

    elastic: NodeMatrix
    softening: NodeMatrix
    velocity: NodeMatrix
    mass: NodeMatrix
    load: Float[Array, "n d"]


def _terms(body: Body, omega) -> _Terms:
    check_supports(body)
    return _assemble(body, numbers("The angular velocity omega", omega, (3,)))


@eqx.filter_jit
def _assemble(body: Body, omega: Array) -> _Terms:
    frame = FrameMotion(jnp.zeros(3), omega, jnp.zeros(3))
    elastic, inertial = stiffness(body), inertia(body)
    mass = inertial.matrix(jnp.eye(3))
    damping = body.damping.mass * mass + body.damping.stiffness * elastic
    return _Terms(
        elastic,
        inertial.matrix(frame.turning),
        damping + inertial.matrix(frame.coriolis),
        mass,
        inertial.frame_load(frame),
    )


def _equilibrium(body: Body, terms: _Terms, geometric: bool):
    """Displacements, and the static matrix of the free degrees of freedom."""
    linear = (terms.elastic + terms.softening).to_scipy(body.free)
    right = np.asarray(terms.load)[body.free]

    def solve(matrix):
        u = np.zeros(body.free.shape)
        u[body.free] = _factorise(matrix)(right)
        return jnp.asarray(u)

    if not geometric:
        return solve(linear), linear
    # With softening the first guess would diverge near the speed at which K + K_ω is singular.
    u = solve(terms.elastic.to_scipy(body.free))
    for _ in range(ROUNDS):
        matrix = linear + geometric_stiffness(body, u).to_scipy(body.free)
        previous, u = u, solve(matrix)
        if jnp.abs(u - previous).max() <= SETTLED * jnp.abs(u).max():
            return u, matrix
    raise RuntimeError(
        "The equilibrium of the rotating body was not found; it rotates too fast for linear "
        "elasticity."
    )


def _lowest_speed(invert, mass) -> float:
    """Magnitude of the lowest eigenvalue without the Coriolis matrix, to a few percent.

    It scales velocities to displacements, without which ARPACK may not converge.
    """
    v = _start(mass.shape[0])
    for _ in range(INVERSE_STEPS):
        v = v / np.linalg.norm(v)
        v = invert(mass @ v)
    return float(np.linalg.norm(v) ** -0.5)


def _start(size: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(size)


def _factorise(matrix):
    if matrix.shape[0] <= DENSE_LIMIT:
        factors = scipy.linalg.lu_factor(matrix.toarray())
        return lambda right: scipy.linalg.lu_solve(factors, right)
    return scipy.sparse.linalg.splu(matrix.tocsc()).solve
