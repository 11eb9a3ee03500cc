"""A tree as a plant for drives: its dynamics in both directions."""

import dataclasses

import equinox as eqx
from jaxtyping import Array, Float

from jaxgrip.rigid._coordinates import without_balls
from jaxgrip.rigid._dynamics import forward_dynamics
from jaxgrip.rigid._newton_euler import rnea
from jaxgrip.rigid._tree import Tree


class Plant(eqx.Module):
    """A tree for `jaxgrip.actuators.simulate` and `simulate_fixed`.

    Its call `(q, qd, tau)` gives accelerations, `inverse(q, qd, qdd)` torques, with which implicit
    steps need neither the solution of a mass matrix nor its derivatives.

    **Arguments:** `tree`, of joints of one degree of freedom.

    **Raises:** `ValueError` for a tree with balls.
    """

    tree: Tree

    def __init__(self, tree: Tree):
        without_balls(tree, "A plant")
        # In the loops of a simulation the compiler makes derivatives of unrolled trees a hundred
        # times as slow as those of scanned ones.
        self.tree = dataclasses.replace(tree, scanned=True)

    def __call__(
        self, q: Float[Array, " n"], qd: Float[Array, " n"], tau: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """Accelerations [rad/s^2 or m/s^2] under torques [N m or N]."""
        return forward_dynamics(self.tree, q, qd, tau)

    def inverse(
        self, q: Float[Array, " n"], qd: Float[Array, " n"], qdd: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """Torques [N m or N] that accelerations [rad/s^2 or m/s^2] need."""
        return rnea(self.tree, q, qd, qdd)
