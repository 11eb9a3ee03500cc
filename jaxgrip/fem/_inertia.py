"""Inertia of a body in its own, accelerated frame.

Every term has the form ∫ ρ Nᵀ W N dV with a 3 x 3 matrix W: the identity for the mass matrix,
2 ω x for the Coriolis matrix, ω' x + ω x ω x for the Euler and centrifugal terms.
"""

import abc
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.fem._body import Body
from jaxgrip.fem._sparse import NodeMatrix, assemble, assemble_vector
from jaxgrip.fem.elements.solid import Solid
from jaxgrip.fem.topology import Topology
from jaxgrip.spatial import skew


class FrameMotion(NamedTuple):
    """Motion of the body frame, all in body axes.

    `acceleration` (3,) of the origin minus gravity [m/s^2], as in `jaxgrip.rigid.rnea_bodies`;
    `angular_velocity` (3,) [rad/s]; `angular_acceleration` (3,) [rad/s^2].
    """

    acceleration: Float[Array, "3"]
    angular_velocity: Float[Array, "3"]
    angular_acceleration: Float[Array, "3"]

    @property
    def coriolis(self) -> Float[Array, "3 3"]:
        """2 ω x."""
        return 2 * skew(self.angular_velocity)

    @property
    def turning(self) -> Float[Array, "3 3"]:
        """ω' x + ω x ω x: acceleration relative to the origin, per position in the frame."""
        omega = skew(self.angular_velocity)
        return skew(self.angular_acceleration) + omega @ omega

    @property
    def amounts(self) -> Float[Array, "12"]:
        """Acceleration and `turning` as one vector, in which the inertia forces are linear."""
        return jnp.concatenate([self.acceleration, self.turning.ravel()])


class Inertia(eqx.Module):
    """The integrals ∫ ρ Nᵀ W N dV of a body; see `inertia`."""

    @abc.abstractmethod
    def matrix(self, weight: Float[Array, "3 3"]) -> NodeMatrix | Float[Array, "m m"]:
        """∫ ρ Nᵀ W N dV."""

    @abc.abstractmethod
    def apply(self, weight: Float[Array, "3 3"], u: Array) -> Array:
        """The matrix times displacements, without forming it."""

    @abc.abstractmethod
    def load(self, constant: Float[Array, "3"], weight: Float[Array, "3 3"]) -> Float[Array, "n d"]:
        """∫ ρ Nᵀ (c + W R) dV with the positions R in the undeformed body."""

    def combine(self, *terms: Array) -> Array:
        """Sum of `apply` over pairs of weights and displacements given in turn."""
        pairs = zip(terms[::2], terms[1::2], strict=True)
        return sum(self.apply(weight, u) for weight, u in pairs)

    def forces(self, frame: FrameMotion) -> Callable[[Array, Array, Array], Array]:
        """Function (a, v, u) of the negative inertia force, at one instant of the frame."""

        def force(a, v, u):
            return self.combine(jnp.eye(3), a, frame.coriolis, v, frame.turning, u)

        return force

    def patterns(self) -> Float[Array, "12 ..."]:
        """Inertia force of the undeformed body for a unit of each of `FrameMotion.amounts`."""
        zero, units = jnp.zeros((3, 3)), jnp.eye(9).reshape(9, 3, 3)
        translation = jax.vmap(lambda c: self.load(c, zero))(jnp.eye(3))
        rotation = jax.vmap(lambda w: self.load(jnp.zeros(3), w))(units)
        return -jnp.concatenate([translation, rotation])

    def frame_load(self, frame: FrameMotion) -> Array:
        """Inertia force of the undeformed body [N]. Source: Schanzer 2007, eq. 4.47, pp. 56-57."""
        return -self.load(frame.acceleration, frame.turning)


class SolidInertia(Inertia):
    """Inertia of a solid, which follows from one scalar mass matrix."""

    mass: NodeMatrix
    nodes: Float[Array, "n 3"]

    def matrix(self, weight: Float[Array, "3 3"]) -> NodeMatrix:
        """∫ ρ Nᵀ W N dV."""
        return self.mass.expand(weight)

    def apply(self, weight: Float[Array, "3 3"], u: Float[Array, "n 3"]) -> Float[Array, "n 3"]:
        """The matrix times displacements."""
        return self.mass @ (u @ weight.T)

    def combine(self, *terms: Array) -> Array:
        """Sum over pairs, with one product."""
        pairs = zip(terms[::2], terms[1::2], strict=True)
        return self.mass @ sum(u @ weight.T for weight, u in pairs)

    def load(self, constant: Float[Array, "3"], weight: Float[Array, "3 3"]) -> Float[Array, "n 3"]:
        """∫ ρ Nᵀ (c + W R) dV."""
        return self.mass @ (constant[None, :] + self.nodes @ weight.T)


class TabulatedInertia(Inertia):
    """Inertia of any element or (without `topology`) a reduced body: a matrix per entry of W."""

    products: Float[Array, "3 3 ..."]
    translation: Float[Array, "3 ..."]
    rotation: Float[Array, "3 3 ..."]
    topology: Topology | None = None

    def matrix(self, weight: Float[Array, "3 3"]) -> NodeMatrix | Float[Array, "m m"]:
        """∫ ρ Nᵀ W N dV."""
        total = jnp.tensordot(weight, self.products, 2)
        return total if self.topology is None else NodeMatrix(total, self.topology)

    def apply(self, weight: Float[Array, "3 3"], u: Array) -> Array:
        """The matrix times displacements, or coordinates of a reduced body."""
        return self.matrix(weight) @ u

    def forces(self, frame: FrameMotion) -> Callable[[Array, Array, Array], Array]:
        """As in `Inertia`, with the matrices formed once for all calls."""
        weights = jnp.stack([jnp.eye(3), frame.coriolis, frame.turning])
        mass, coriolis, turning = jnp.tensordot(weights, self.products, 2)
        if self.topology is not None:
            mass, coriolis, turning = (
                NodeMatrix(blocks, self.topology) for blocks in (mass, coriolis, turning)
            )
        return lambda a, v, u: mass @ a + coriolis @ v + turning @ u

    def load(self, constant: Float[Array, "3"], weight: Float[Array, "3 3"]) -> Array:
        """∫ ρ Nᵀ (c + W R) dV."""
        return jnp.tensordot(constant, self.translation, 1) + jnp.tensordot(
            weight, self.rotation, 2
        )


@eqx.filter_jit
def inertia(body: Body) -> Inertia:
    """Inertia integrals of a body. Source: Schanzer 2007, eq. 4.27-4.42, pp. 50-55."""
    grid, element = body.mesh, body.mesh.element
    topology, x = grid.topology, grid.cell_nodes
    if isinstance(element, Solid):
        local = jax.vmap(lambda xe: element.scalar_mass(xe, body.material))(x)
        return SolidInertia(assemble(topology, local[:, :, None, :, None]), grid.nodes)

    def matrix(weight):
        return assemble(
            topology, jax.vmap(lambda xe: element.inertia(xe, body.material, weight))(x)
        )

    def load(constant, weight):
        one = jax.vmap(lambda xe: element.inertia_load(xe, body.material, constant, weight))
        return assemble_vector(topology, one(x))

    units = jnp.eye(9).reshape(3, 3, 3, 3)
    products = jax.vmap(jax.vmap(matrix))(units)
    translation = jax.vmap(lambda c: load(c, jnp.zeros((3, 3))))(jnp.eye(3))
    rotation = jax.vmap(jax.vmap(lambda w: load(jnp.zeros(3), w)))(units)
    return TabulatedInertia(products.blocks, translation, rotation, topology)
