"""Shapes of a link: normal modes, and static deflections under loads at its faces."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.fem import Body, inertia, interface_loads, rayleigh_ritz, stiffness
from jaxgrip.fem import modes as normal_modes
from jaxgrip.fem.reduction import project
from jaxgrip.fem.static import check_supports, responses


def shapes(body: Body, modes: int, attachment: Sequence[str] = ()) -> Float[Array, "k n d"]:
    """Shapes for `elastic_link`: normal modes and, optionally, attachment modes.

    With the six attachment modes of a face, static deflections under forces and moments on the
    face are exact, and so is the stiffness at a joint there. All shapes together are orthogonal
    in mass and stiffness, with modal masses 1 and ascending frequencies. Derivatives are those of
    the space they span.

    **Arguments:**

    - `body`: clamped.
    - `modes`: number of normal modes.
    - `attachment`: names of the faces, each adding six shapes.

    **Returns:** (modes + 6 faces, n, d), in units of kg^-1/2.

    **Raises:** `ValueError` when the supports leave a rigid motion, and for an impossible number of
    modes or an unknown face.

    Source: Craig 1981, chapter 19.
    """
    check_supports(body)
    if not modes and attachment:
        return _orthogonal(body, jnp.zeros((0, *body.free.shape)), tuple(attachment))
    natural = normal_modes(body, modes).shape
    return _orthogonal(body, natural, tuple(attachment)) if attachment else natural


@eqx.filter_jit
def _orthogonal(body: Body, natural: Array, faces: tuple[str, ...]) -> Array:
    matrix, terms = stiffness(body), inertia(body)
    loads = jnp.concatenate([interface_loads(body, face) for face in faces])
    v = jnp.concatenate([natural, responses(body, loads)])
    # A constant combination of the shapes changes neither their span nor its derivatives.
    fixed = jax.lax.stop_gradient(v)
    mass = terms.matrix(jnp.eye(3))
    _, combine = rayleigh_ritz(project(matrix, fixed), project(mass, fixed))
    return jnp.einsum("ji,jnd->ind", jax.lax.stop_gradient(combine), v)
