"""Equations of motion of a whole or reduced body, as time integration needs them."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.fem import _block_tridiagonal as block_tridiagonal
from jaxgrip.fem._body import Body, Rayleigh
from jaxgrip.fem._inertia import FrameMotion, Inertia, inertia
from jaxgrip.fem._matrices import geometric_stiffness, stiffness
from jaxgrip.fem._sparse import NodeMatrix
from jaxgrip.fem.elements.solid import Solid
from jaxgrip.fem.static import responses
from jaxgrip.fem.topology import Constant
from jaxgrip.solve import dense


class Structure(eqx.Module):
    """M u'' + (D + 2 ω x) u' + (K + ω' x + ω x ω x) u = f in a moving frame.

    The coordinates u are displacements (n, d) of a whole body, or (m,) of a reduced one.
    `geometric`, if given, is the geometric stiffness of the stress of the inertia forces, for a
    unit of each of `FrameMotion.amounts`.

    Source: Schanzer 2007, eq. 4.47, pp. 56-57.
    """

    stiffness: Any
    inertia: Inertia
    damping: Rayleigh
    _free: Constant = eqx.field(static=True)
    geometric: Float[Array, "12 ..."] | None = None

    @property
    def free(self) -> np.ndarray:
        """True where a coordinate is not fixed."""
        return self._free.array

    @property
    def refresh(self) -> int:
        """Number of steps after which K u is recomputed, to limit the rounding of its updates."""
        return 50 if isinstance(self.stiffness, NodeMatrix) else 1

    def elastic(self, u: Array) -> Array:
        """K u."""
        return self.stiffness @ u

    def mass(self, u: Array) -> Array:
        """M u."""
        return self.inertia.apply(jnp.eye(3), u)

    def forces(self, frame: FrameMotion | None) -> Callable[[Array, Array, Array], Array]:
        """Function (a, v, u), M a + 2 ω x v + (ω' x + ω x ω x) u and geometric stiffness."""
        if frame is None:
            return lambda a, v, u: self.mass(a)
        inertial = self.inertia.forces(frame)
        if self.geometric is None:
            return inertial
        stress = jnp.tensordot(frame.amounts, self.geometric, 1)
        if isinstance(self.stiffness, NodeMatrix):
            stress = NodeMatrix(stress, self.stiffness.topology)
        return lambda a, v, u: inertial(a, v, u) + stress @ u

    def held(self, force: Array) -> Array:
        """Forces, set to zero on fixed degrees of freedom."""
        return jnp.where(self.free, force, 0.0)

    def factorise(self, mass: Array, stiffness: Array) -> Any:
        """Factors, with a method `solve`, of `mass` · M + `stiffness` · K."""
        if isinstance(self.stiffness, NodeMatrix):
            matrix = self.inertia.matrix(mass * jnp.eye(3)) + stiffness * self.stiffness
            return block_tridiagonal.factorise(matrix, self.free)
        matrix = mass * self.inertia.matrix(jnp.eye(3)) + stiffness * self.stiffness
        return DenseFactor(dense.inverse(matrix))


class DenseFactor(eqx.Module):
    """Inverse of a small matrix."""

    inverse: Float[Array, "m m"]

    def solve(self, b: Float[Array, " m"]) -> Float[Array, " m"]:
        """Solution x of A x = b."""
        return self.inverse @ b


def structure(body: Body, geometric: bool = False) -> Structure:
    """Equations of a whole body; `geometric`: with stiffening by the inertia forces."""
    return Structure(
        stiffness(body),
        inertia(body),
        body.damping,
        Constant(body.free),
        motion_stiffness(body) if geometric else None,
    )


@eqx.filter_jit
def motion_stiffness(body: Body) -> Float[Array, "12 width n s s"]:
    """Blocks of the geometric stiffness [N/m] of the stress of the inertia forces.

    One matrix for a unit of each of `FrameMotion.amounts`, in which it is linear, since the stress
    is that of static equilibrium with the inertia forces. Blocks are (d, d); of solids (1, 1),
    the factor of the unit matrix.
    """
    static = responses(body, inertia(body).patterns())
    # In solids it is the same in all three directions: one number per pair of nodes.
    size = 1 if isinstance(body.mesh.element, Solid) else body.dofs
    return jax.lax.map(lambda u: geometric_stiffness(body, u).blocks[..., :size, :size], static)
