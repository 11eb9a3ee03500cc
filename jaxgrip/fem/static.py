"""Static equilibrium."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import brief, concrete, numbers
from jaxgrip.fem import _block_tridiagonal as block_tridiagonal
from jaxgrip.fem._body import Body
from jaxgrip.fem._matrices import stiffness
from jaxgrip.fem._sparse import NodeMatrix
from jaxgrip.solve import dense

MOTIONS = (
    "move along x",
    "move along y",
    "move along z",
    "rotate about x",
    "rotate about y",
    "rotate about z",
)


# For wider levels, dense blocks cost more than conjugate gradients.
WIDEST_LEVEL = 3000
TOLERANCE = 1e-10
ITERATIONS = 20_000


def solve_static(
    body: Body,
    load: Float[ArrayLike, "n d"],
    *,
    prescribed: Float[ArrayLike, "n d"] | None = None,
    method: str | None = None,
) -> Float[Array, "n d"]:
    """Displacements [m] of a body in equilibrium with a load.

    **Arguments:** `load` (n, d), nodal forces [N], a sum of `gravity`, `traction`, `tip_wrench`,
    ...; `prescribed` (n, d), displacements of the fixed degrees of freedom [m], zero when not
    given, ignored elsewhere; `method`, `"direct"` or `"iterative"` (conjugate gradients), chosen
    by the mesh when not given.

    **Returns:** displacements (n, d), differentiable; NaN where conjugate gradients do not
    converge to 1e-9 of the load.

    **Raises:** `ValueError` when the supports leave a rigid motion (it is named), or a load is
    not finite.
    """
    load = numbers("The load", load, body.free.shape)
    given = (
        body.zeros() if prescribed is None else numbers("prescribed", prescribed, body.free.shape)
    )
    check_supports(body)
    if method is None:
        widest = np.bincount(body.mesh.topology.levels).max() * body.dofs
        method = "direct" if widest <= WIDEST_LEVEL else "iterative"
    if method not in ("direct", "iterative"):
        raise ValueError(f"The method is {brief(method)}; it must be 'direct' or 'iterative'.")
    return _solve(body, load, given, method)


@eqx.filter_jit
def _solve(body: Body, load: Array, prescribed: Array, method: str) -> Array:
    matrix = stiffness(body)
    fixed = jnp.where(body.free, 0.0, prescribed)
    if method == "iterative":
        rest = jnp.where(body.free, load - matrix @ fixed, 0.0)
        return fixed + _conjugate_gradients(matrix.restrict(body.free), rest)
    return fixed + responses(body, (load - matrix @ fixed)[None])[0]


def responses(body: Body, loads: Float[Array, "s n d"]) -> Float[Array, "s n d"]:
    """Static displacements [m] under each of several loads [N], with one factorisation."""
    matrix = stiffness(body)
    factor = block_tridiagonal.factorise(matrix, body.free)
    return jax.vmap(lambda f: block_tridiagonal.solve(matrix, factor, body.free, f))(loads)


def _conjugate_gradients(matrix: NodeMatrix, load: Array) -> Array:
    """Solution of K u = f by conjugate gradients with block-diagonal preconditioner."""
    inverse = dense.inverse(jax.lax.stop_gradient(matrix).diagonal())

    def precondition(residual):
        return jnp.einsum("nab,nb->na", inverse, residual)

    u, _ = jax.scipy.sparse.linalg.cg(
        lambda x: matrix @ x, load, tol=TOLERANCE, maxiter=ITERATIONS, M=precondition
    )
    failed = jnp.linalg.norm(load - matrix @ u) > 10 * TOLERANCE * jnp.linalg.norm(load)
    return jnp.where(failed, jnp.nan, u)


def check_supports(body: Body) -> None:
    """Raise `ValueError`, naming a motion, when the supports leave a rigid motion."""
    if not concrete(body.mesh.nodes):
        return
    nodes, part = np.asarray(body.mesh.nodes), body.mesh.topology.parts
    for k in range(part.max() + 1):
        own = part == k
        loose = _loose_motions(nodes[own], body.free[own])
        if len(loose):
            which = "the body" if part.max() == 0 else f"the part with node {np.argmax(own)}"
            names = [MOTIONS[k] for k in np.flatnonzero(np.abs(loose).max(axis=0) > 1e-6)]
            raise ValueError(
                f"The supports leave {len(loose)} rigid motion{'s' * (len(loose) > 1)} of {which}: "
                f"it can {', '.join(names)}. Add supports with `clamp` or `supports`."
            )


def _loose_motions(nodes: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Rigid motions (m, 6) compatible with the supports, as combinations of `MOTIONS`."""
    size = max(np.ptp(nodes, axis=0).max(), np.finfo(float).tiny)
    arms = (nodes - nodes.mean(axis=0)) / size
    rigid = np.zeros((*free.shape, 6))
    rigid[:, :3, :3] = np.eye(3)
    for k, axis in enumerate(np.eye(3)):
        rigid[:, :3, 3 + k] = np.cross(axis, arms)
        if free.shape[1] == 6:
            rigid[:, 3 + k, 3 + k] = 1.0
    # Six zero rows, so that there are six singular vectors even without supports.
    fixed = np.concatenate([rigid[~free], np.zeros((6, 6))])
    _, s, vectors = np.linalg.svd(fixed, full_matrices=False)
    return vectors[s <= 1e-9 * max(s.max(), 1.0)]
