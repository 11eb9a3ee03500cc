"""A tree as the right side of an ordinary differential equation."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.rigid.dynamics import forward_dynamics
from jaxgrip.rigid.tree import Tree


class StateSpace(eqx.Module):
    """Rate of change of the state x = (q, qd) under joint torques u.

    **Fields:** `tree`, the model. Calling it with `x` (2n,) [rad or m, and per s] and `u` (n,)
    [N m or N] gives the rate (2n,).

    Source: 001 eq. 17 in state form.
    """

    tree: Tree

    def __call__(self, x: Float[Array, " 2*n"], u: Float[Array, " n"]) -> Float[Array, " 2*n"]:
        """Rate of change (2n,) of the state `x` (2n,) under the torques `u` (n,)."""
        q, qd = x[: self.tree.n], x[self.tree.n :]
        return jnp.concatenate([qd, forward_dynamics(self.tree, q, qd, u)])
