"""A tree as the right side of an ordinary differential equation."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.rigid.checks import check_shape
from jaxgrip.rigid.dynamics import forward_dynamics, solve_mass
from jaxgrip.rigid.newton_euler import bias_forces, rnea
from jaxgrip.rigid.tree import Tree


class StateSpace(eqx.Module):
    """Rate of change of the state x = (q, qd) under joint torques u.

    **Fields:** `tree`, the model. Calling it with `x` (2n,) [rad or m, and per s] and `u` (n,)
    [N m or N] gives the rate (2n,) [per s].

    **Raises:** `ValueError` for another shape, when called.

    Source: 001 eq. 17 in state form.
    """

    tree: Tree

    def __call__(self, x: Float[Array, " x"], u: Float[Array, " n"]) -> Float[Array, " x"]:
        """Rate of change (2n,) of the state `x` (2n,) under the torques `u` (n,)."""
        q, qd = x[: self.tree.n], x[self.tree.n :]
        return jnp.concatenate([qd, forward_dynamics(self.tree, q, qd, u)])

    def expand(
        self,
        x: Float[Array, " x"],
        u: Float[Array, " n"],
        weights: Float[Array, " x"],
    ) -> tuple[Float[Array, " x"], Float[Array, "x z"], Float[Array, "z z"]]:
        """Rates, their Jacobian and weighted Hessian, cheaper than differentiating twice.

        Only inverse dynamics is differentiated: with mu = M^-1 weights_v the Hessian of
        weights . rates is minus that of mu . RNEA(q, qd, qdd), pulled back to (q, qd, u).

        **Arguments:** `x` and `u` as for a call; `weights` (2n,) of the rates.

        **Returns:** the rates (2n,), their Jacobian (2n, 3n) in (x, u), and the Hessian (3n, 3n)
        of weights . rates in (x, u), in SI units.

        **Raises:** `ValueError` for another shape.

        Source: 000b section 3.
        """
        n = self.tree.n
        check_shape("weights", weights, (2 * n,))
        q, qd = x[:n], x[n:]
        inverse_mass = jax.vmap(lambda e: solve_mass(self.tree, q, e))(jnp.eye(n, dtype=x.dtype))
        qdd = inverse_mass @ (u - bias_forces(self.tree, q, qd))
        mu = inverse_mass @ weights[n:]

        def first_order(z):
            torque, pullback = jax.vjp(
                lambda z: rnea(self.tree, z[:n], z[n : 2 * n], z[2 * n :]), z
            )
            return torque, pullback(mu)[0]

        by_z, hessian = jax.jacfwd(first_order)(jnp.concatenate([q, qd, qdd]))
        qdd_z = jnp.concatenate([-inverse_mass @ by_z[:, : 2 * n], inverse_mass], axis=1)
        pull = jnp.concatenate([jnp.eye(2 * n, 3 * n, dtype=x.dtype), qdd_z])
        jacobian = jnp.concatenate([jnp.eye(n, 3 * n, k=n, dtype=x.dtype), qdd_z])
        return jnp.concatenate([qd, qdd]), jacobian, -(pull.T @ hessian @ pull)
