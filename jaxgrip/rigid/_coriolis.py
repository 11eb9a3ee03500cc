"""Velocity terms in Christoffel form."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.rigid._coordinates import given, without_balls
from jaxgrip.rigid._mass_matrix import crba
from jaxgrip.rigid._tree import Tree


@jax.jit
def christoffel(tree: Tree, q: Float[Array, " nq"]) -> Float[Array, "n n n"]:
    """Christoffel symbols of the first kind, Gamma[i, j, k], symmetric in i and j.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m].

    **Returns:** (n, n, n), half of dM_kj/dq_i + dM_ki/dq_j - dM_ij/dq_k, in units of M per unit
    of q.

    **Raises:** `ValueError` for another shape, and for a tree with balls.

    Source: Beiblatt 9, eq. 13; Spong 2006, chapter 7.
    """
    without_balls(tree, "christoffel")
    tree, q = given(tree, q=q)
    dm = jax.jacfwd(crba, argnums=1)(tree, q)
    return 0.5 * (jnp.einsum("kji->ijk", dm) + jnp.einsum("kij->ijk", dm) - dm)


@jax.jit
def coriolis_matrix(
    tree: Tree, q: Float[Array, " nq"], qd: Float[Array, " n"]
) -> Float[Array, "n n"]:
    """Coriolis matrix C with Mdot - 2 C skew and C qd the velocity part of the bias forces.

    Damping and friction of the joints are no part of it.

    **Arguments:** `tree`; `q`, `qd`: (n,) joint coordinates [rad or m] and rates [per s].

    **Returns:** (n, n), in units of torque or force per unit of rate, row k for joint k.

    **Raises:** `ValueError` for another shape, and for a tree with balls.

    Source: Beiblatt 9, eq. 15; Spong 2006, chapter 7.
    """
    without_balls(tree, "coriolis_matrix")
    tree, q, qd = given(tree, q=q, qd=qd)
    return jnp.einsum("ijk,i->kj", christoffel(tree, q), qd)
