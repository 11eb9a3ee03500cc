"""A tree as the right-hand side of an ordinary differential equation."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.checks import real
from jaxgrip.rigid._coordinates import precision, without_balls
from jaxgrip.rigid._dynamics import forward_dynamics, solve_mass
from jaxgrip.rigid._newton_euler import bias_forces, rnea
from jaxgrip.rigid._recursion import compact
from jaxgrip.rigid._tree import Tree


class StateSpace(eqx.Module):
    """Rate of change of the state x = (q, qd) under the torques u of the drives.

    **Fields:** `tree`, the model; `drives` (n, m), the torque of each joint per torque of each
    drive: several drives for a joint, none, or gears; when None, one drive for each joint. Calling
    it with `x` (2n,) [rad or m, and per s] and `u` (m,) [N m or N] gives the rate (2n,) [per s].

    **Raises:** `ValueError` for another shape, and for a tree with balls.

    Source: Beiblatt 9, section 2, state form.
    """

    tree: Tree
    drives: Float[Array, "n m"] | None = None

    def __check_init__(self):
        without_balls(self.tree, "StateSpace")
        shape = () if self.drives is None else self.drives.shape
        if self.drives is not None and (len(shape) != 2 or shape[0] != self.tree.n):
            raise ValueError(
                f"drives has the shape {shape}; it must be ({self.tree.n}, m), with a row for each "
                "joint."
            )

    def _torque(self, u: Float[Array, " m"]) -> Float[Array, " n"]:
        count = self.tree.n if self.drives is None else self.drives.shape[1]
        u = real("u", u, precision(self.tree), (count,))
        return u if self.drives is None else self.drives @ u

    def __call__(self, x: Float[Array, " x"], u: Float[Array, " m"]) -> Float[Array, " x"]:
        """Rate of change (2n,) of the state `x` (2n,) under the drives' torques `u` (m,)."""
        x = real("x", x, precision(self.tree), (2 * self.tree.n,))
        q, qd = x[: self.tree.n], x[self.tree.n :]
        return jnp.concatenate([qd, forward_dynamics(self.tree, q, qd, self._torque(u))])

    def expand(
        self,
        x: Float[Array, " x"],
        u: Float[Array, " m"],
        costate: Float[Array, " x"],
    ) -> tuple[Float[Array, " x"], Float[Array, "x z"], Float[Array, "z z"]]:
        """Rates, their Jacobian and weighted Hessian, cheaper than differentiating twice.

        Only inverse dynamics is differentiated: with mu = M^-1 costate_v the Hessian of
        costate . rates is minus that of mu . RNEA(q, qd, qdd), pulled back to (q, qd, u).

        **Arguments:** `x` and `u` as for a call; `costate` (2n,), weights of the rates.

        **Returns:** the rates (2n,), their Jacobian (2n, 2n+m) in (x, u), and the Hessian
        (2n+m, 2n+m) of costate . rates in (x, u), in SI units.

        **Raises:** `ValueError` for another shape.

        Source: Schanzer 2007, section 5.5.2, pp. 76-79.
        """
        n = self.tree.n
        tree = compact(self.tree)
        x = real("x", x, precision(tree), (2 * n,))
        costate = real("costate", costate, precision(tree), (2 * n,))
        q, qd = x[:n], x[n:]
        inverse_mass = jax.vmap(lambda e: solve_mass(tree, q, e))(jnp.eye(n, dtype=x.dtype))
        qdd = inverse_mass @ (self._torque(u) - bias_forces(tree, q, qd))
        mu = inverse_mass @ costate[n:]

        def first_order(x):
            torque, pullback = jax.vjp(lambda *z: rnea(tree, *z), x[:n], x[n:], qdd)
            return torque, jnp.concatenate(pullback(mu))

        # Torques are linear in the accelerations, whose columns are known by symmetry.
        by_x, curved = jax.jacfwd(first_order)(x)
        by_qdd = jnp.concatenate([curved[2 * n :].T, jnp.zeros((n, n), x.dtype)])
        hessian = jnp.concatenate([curved, by_qdd], axis=1)
        by_u = inverse_mass if self.drives is None else inverse_mass @ self.drives
        qdd_z = jnp.concatenate([-inverse_mass @ by_x, by_u], axis=1)
        width = 2 * n + u.shape[0]
        pull = jnp.concatenate([jnp.eye(2 * n, width, dtype=x.dtype), qdd_z])
        jacobian = jnp.concatenate([jnp.eye(n, width, k=n, dtype=x.dtype), qdd_z])
        return jnp.concatenate([qd, qdd]), jacobian, -(pull.T @ hessian @ pull)
