"""Shapes in which a link deforms: normal modes and static deflections by loads at its faces."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from jaxtyping import Array, Float

from jaxgrip.checks import concrete
from jaxgrip.fem.body import Body
from jaxgrip.fem.matrices import mass, stiffness
from jaxgrip.fem.static import check_supports
from jaxgrip.flexible.link import interface_loads


def shapes(body: Body, modes: int, attachment: Sequence[str] = ()) -> Float[Array, "n d k"]:
    """Shapes for `elastic_link`: normal modes and, when asked for, attachment modes.

    With the six attachment modes of a face, static deflections by forces and moments on the face
    are exact, and so is the stiffness that a joint there feels. All shapes together are made
    orthogonal in mass and stiffness, their modal masses 1, in the order of their frequencies.

    **Arguments:**

    - `body`: clamped, of concrete numbers; the shapes are constants for derivatives.
    - `modes`: number of normal modes.
    - `attachment`: names of the faces, each adding six shapes.

    **Returns:** (n, d, modes + 6 faces), in units of kg^-1/2.

    **Raises:** `ValueError` when the supports leave a rigid motion, when more modes are asked for
    than there are, or when numbers are traced.

    Source: 000a section 8; Craig, Structural Dynamics, chapter 19.
    """
    if not all(map(concrete, jax.tree.leaves(body))):
        raise ValueError("Shapes need a body of concrete numbers: make them outside of jax.jit.")
    check_supports(body)
    free = body.free
    size = int(free.sum())
    if not 0 <= modes < size - 1 or not (modes or attachment):
        raise ValueError(
            f"{modes} modes are asked for; a body of {size} freedoms has 1 to {size - 2}."
        )
    k, m = (matrix.to_scipy(free).tocsc() for matrix in (stiffness(body), mass(body)))
    solve = scipy.sparse.linalg.splu(k, options={"SymmetricMode": True}, diag_pivot_thresh=0.0)
    columns = [np.zeros((size, 0))]
    if modes:
        inverse = scipy.sparse.linalg.LinearOperator(k.shape, matvec=solve.solve, dtype=float)
        start = np.linspace(1.0, 2.0, size)
        columns.append(scipy.sparse.linalg.eigsh(k, modes, m, sigma=0, OPinv=inverse, v0=start)[1])
    for face in attachment:
        loads = np.asarray(interface_loads(body, face))[:, free]
        columns.append(solve.solve(np.ascontiguousarray(loads.T)))
    # Scaled columns and the inverse problem keep the small matrices well conditioned.
    v = np.concatenate(columns, axis=1)
    v = v / np.sqrt(np.einsum("ni,ni->i", v, k @ v))
    compliance, y = scipy.linalg.eigh(v.T @ (m @ v), v.T @ (k @ v))
    y = (y / np.sqrt(compliance))[:, ::-1]
    out = np.zeros((*free.shape, v.shape[1]))
    out[free] = v @ y
    return jnp.asarray(out)
