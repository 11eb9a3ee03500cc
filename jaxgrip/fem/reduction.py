"""Reduced bodies: displacements as combinations of a few shapes."""

import operator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import concrete, numbers
from jaxgrip.fem._body import Body, Support
from jaxgrip.fem._inertia import Inertia, TabulatedInertia, inertia
from jaxgrip.fem._matrices import geometric_stiffness, stiffness
from jaxgrip.fem._modes import modes
from jaxgrip.fem._sparse import NodeMatrix
from jaxgrip.fem._structure import Structure
from jaxgrip.fem.static import responses
from jaxgrip.fem.topology import Constant
from jaxgrip.solve import dense


class Reduced(eqx.Module):
    """A body whose displacements are u = Σ q_j shape_j + Σ p_s correction_s.

    **Fields:**

    - `structure`: the equations of motion of the coordinates q.
    - `shapes`: (m, n, d).
    - `patterns`: (s, n, d), the loads with a correction: of `FrameMotion.amounts`, then those
      given to `reduce`.
    - `corrections`: (s, n, d), static displacements [m] under a unit of each load, less their part
      in the shapes.
    """

    structure: Structure
    shapes: Float[Array, "m n d"]
    patterns: Float[Array, "s n d"]
    corrections: Float[Array, "s n d"]


def reduce(
    body: Body,
    shapes: int | Float[Array, "m n d"],
    *,
    patterns: Float[Array, "s n d"] | None = None,
    geometric: bool = True,
) -> Reduced:
    """The body reduced to its lowest natural modes, or to given shapes.

    **Arguments:**

    - `shapes`: number of modes, or shapes (m, n, d) such as those of `craig_bampton`.
    - `patterns`: (s, n, d), loads of unit amount [N] besides inertia, whose static displacements
      are represented exactly (static correction).
    - `geometric`: whether the stress of the inertia forces stiffens the body, as in a spinning
      blade. False, as in the source, is cheaper, and accurate for rotations much slower than the
      slowest vibration.

    **Raises:** `ValueError` as `modes` does.

    Source: own derivation: the equations of `Structure` in coordinates of the shapes.
    """
    if np.ndim(shapes) == 0:
        basis = modes(body, operator.index(shapes)).shape
    else:
        basis = numbers("The array of shapes", shapes, (len(shapes), *body.free.shape))
        if concrete(basis) and np.any(np.asarray(basis)[:, ~body.free]):
            raise ValueError("A shape moves a fixed degree of freedom; it must be zero there.")
    own = jnp.zeros((0, *body.free.shape)) if patterns is None else patterns
    return _reduce(body, basis, own, geometric)


@eqx.filter_jit
def _reduce(body: Body, basis: Array, own: Array, geometric: bool) -> Reduced:
    matrix, inert = stiffness(body), inertia(body)
    patterns = jnp.where(
        jnp.asarray(body.free)[None], jnp.concatenate([inert.patterns(), own]), 0.0
    )
    elastic = project(matrix, basis)
    static = responses(body, patterns)
    in_shapes = dense.solve(elastic, jnp.einsum("ind,snd->is", basis, patterns))
    corrections = static - jnp.einsum("is,ind->snd", in_shapes, basis)
    stress = None
    if geometric:

        def stiffening(u):
            return project(geometric_stiffness(body, u), basis)

        stress = jax.vmap(stiffening)(static[:12])
    reduced = Structure(
        elastic,
        reduce_inertia(inert, basis),
        body.damping,
        Constant(np.ones(len(basis), dtype=bool)),
        stress,
    )
    return Reduced(reduced, basis, patterns, corrections)


def project(matrix: NodeMatrix, basis: Float[Array, "m n d"]) -> Float[Array, "m m"]:
    """Φᵀ A Φ of a symmetric matrix A with the shapes Φ."""
    product = jnp.einsum("ind,jnd->ij", basis, jax.vmap(lambda x: matrix @ x)(basis))
    return (product + product.T) / 2


def reduce_inertia(inert: Inertia, basis: Float[Array, "m n d"]) -> TabulatedInertia:
    """Inertia in the coordinates of the shapes."""
    units = jnp.eye(9).reshape(9, 3, 3)
    m = len(basis)

    def products(weight):
        moved = jax.vmap(lambda x: inert.apply(weight, x))(basis)
        return jnp.einsum("ind,jnd->ij", basis, moved)

    loads = -jnp.einsum("snd,ind->si", inert.patterns(), basis)
    return TabulatedInertia(
        jax.lax.map(products, units).reshape(3, 3, m, m), loads[:3], loads[3:].reshape(3, 3, m)
    )


def craig_bampton(body: Body, interface: str, k: int) -> Float[Array, "m n d"]:
    """Shapes of Craig and Bampton: constraint modes of an interface, and k fixed-interface modes.

    **Arguments:** `interface`, name of a face or node set; each of its degrees of freedom gets a
    static shape in which it is 1 and the others are 0; `k`, number of fixed-interface modes.

    **Returns:** (m, n, d), the static shapes first.

    **Raises:** `ValueError` when there is no such face, or as `modes` does.

    Source: Craig 1968.
    """
    supports = (*body.supports, Support(interface))
    fixed = Body(body.mesh, body.material, supports=supports, damping=body.damping)
    inner = modes(fixed, k).shape
    moving = np.argwhere(body.free & ~fixed.free)
    matrix, count = stiffness(fixed), np.arange(len(moving))
    units = jnp.zeros((len(moving), *body.free.shape))
    units = units.at[count, moving[:, 0], moving[:, 1]].set(1.0)
    static = units - responses(fixed, jax.vmap(lambda u: matrix @ u)(units))
    return jnp.concatenate([static, inner])
