"""Static equilibrium."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import concrete, numbers
from jaxgrip.fem import block_tridiagonal
from jaxgrip.fem.body import Body
from jaxgrip.fem.matrices import stiffness

MOTIONS = (
    "move along x",
    "move along y",
    "move along z",
    "turn about x",
    "turn about y",
    "turn about z",
)


def solve_static(
    body: Body, load: Float[Array, "n d"], *, prescribed: Float[Array, "n d"] | None = None
) -> Float[Array, "n d"]:
    """Displacements [m] of a body in equilibrium with a load.

    **Arguments:** `load` (n, d), forces on the nodes [N], the sum of what `jaxgrip.fem` makes
    (`gravity`, `traction`, `tip_wrench`, ...); `prescribed` (n, d), displacements of the held
    freedoms, zero when not given, no matter elsewhere.

    **Returns:** displacements, differentiable in everything.

    **Raises:** `ValueError` when the supports leave a rigid motion (it is named), or a load is
    not finite.
    """
    load = numbers("The load", load, body.free.shape)
    held = (
        body.zeros() if prescribed is None else numbers("prescribed", prescribed, body.free.shape)
    )
    check_supports(body)
    return _solve(body, load, held)


@eqx.filter_jit
def _solve(body: Body, load: Array, prescribed: Array) -> Array:
    matrix = stiffness(body)
    held = jnp.where(body.free, 0.0, prescribed)
    factor = block_tridiagonal.factorise(matrix, body.free)
    return held + block_tridiagonal.solve(matrix, factor, body.free, load - matrix @ held)


def check_supports(body: Body) -> None:
    """Raise `ValueError`, naming a motion, when the supports leave a rigid motion."""
    if not concrete(body.mesh.nodes):
        return
    x = np.asarray(body.mesh.nodes)
    centre = x.mean(axis=0)
    size = max(np.ptp(x, axis=0).max(), np.finfo(float).tiny)
    arms = (x - centre) / size
    rigid = np.zeros((*body.free.shape, 6))
    rigid[:, :3, :3] = np.eye(3)
    for k, axis in enumerate(np.eye(3)):
        rigid[:, :3, 3 + k] = np.cross(axis, arms)
        if body.dofs == 6:
            rigid[:, 3 + k, 3 + k] = 1.0
    _, s, vectors = np.linalg.svd(rigid[~body.free], full_matrices=True)
    rank = int(np.sum(s > 1e-9 * max(s.max(initial=0.0), 1.0)))
    if rank == 6:
        return
    loose = vectors[rank:]
    names = [MOTIONS[k] for k in np.flatnonzero(np.abs(loose).max(axis=0) > 1e-6)]
    raise ValueError(
        f"The supports leave {6 - rank} rigid motion{'s' * (rank < 5)} of the body: it can "
        f"{', '.join(names)}. Hold more freedoms with `clamp` or `supports`."
    )
