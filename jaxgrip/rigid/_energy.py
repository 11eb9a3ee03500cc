"""Kinetic and potential energy."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.rigid._mass_matrix import crba
from jaxgrip.rigid._recursion import given
from jaxgrip.rigid._tree import Tree
from jaxgrip.rigid.kinematics import forward_kinematics


@jax.jit
def kinetic_energy(tree: Tree, q: Float[Array, " n"], qd: Float[Array, " n"]) -> Float[Array, ""]:
    """Kinetic energy 1/2 qd^T M(q) qd.

    **Arguments:** `tree`; `q`, `qd`: (n,) joint coordinates [rad or m] and rates [per s].

    **Returns:** scalar [J].

    **Raises:** `ValueError` for another shape.

    Source: Beiblatt 9, eq. 1.
    """
    q, qd = given(tree, q=q, qd=qd)
    return 0.5 * jnp.dot(qd, crba(tree, q) @ qd)


@jax.jit
def potential_energy(tree: Tree, q: Float[Array, " n"]) -> Float[Array, ""]:
    """Energy in the field of gravity, zero with all mass at the origin of the base frame.

    **Arguments:** `tree`; `q`: (n,) joint coordinates [rad or m].

    **Returns:** scalar [J].

    **Raises:** `ValueError` for another shape.

    Source: Beiblatt 9, eq. 3.
    """
    rotation, translation = forward_kinematics(tree, q)
    centre = jnp.einsum("bij,bj->bi", rotation, tree.com) + translation
    return -jnp.dot(tree.mass, centre @ tree.gravity)
