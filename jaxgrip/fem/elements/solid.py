"""Kernels shared by all solid displacement elements."""

import abc
import functools
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.fem.elements.element import Element
from jaxgrip.fem.material import Isotropic

SHEARS = ((0, 1), (1, 2), (2, 0))


class Rule(NamedTuple):
    """An integration rule: `points` (q, 3) in reference coordinates and `weights` (q,)."""

    points: np.ndarray
    weights: np.ndarray


class FaceRule(NamedTuple):
    """`points` (faces, q, 3), `tangents` (faces, 3, 2) and `weights` (q,) on the faces."""

    points: np.ndarray
    tangents: np.ndarray
    weights: np.ndarray


class Solid(Element):
    """Isoparametric element with three displacements per node.

    `stiffness_rule` integrates the stiffness, `inertia_rule` the inertia.
    """

    dofs: ClassVar[int] = 3
    material: ClassVar[type] = Isotropic
    stiffness_rule: ClassVar[Rule]
    inertia_rule: ClassVar[Rule]
    face_rule: ClassVar[FaceRule]

    @staticmethod
    @abc.abstractmethod
    def tabulate(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shape functions (q, n) and their derivatives (q, n, 3) at reference points."""

    def stiffness(self, x: Float[Array, "n 3"], material: Isotropic) -> Float[Array, "n 3 n 3"]:
        """∫ Bᵀ H B dV [N/m]. Source: Schanzer 2007, eq. 4.24, p. 50."""
        gradient, volume = self.gradients(x, self.stiffness_rule)
        return isotropic_stiffness(gradient, volume, *material.lame)

    def strain(
        self, x: Float[Array, "n 3"], u: Float[Array, "n 3"], material: Isotropic, rule: Rule
    ) -> Float[Array, "q 6"]:
        """Strains xx, yy, zz, xy, yz, zx with engineering shear at the points of the rule."""
        return voigt_strain(jnp.einsum("qni,na->qai", self.gradients(x, rule)[0], u))

    def scalar_mass(self, x: Float[Array, "n 3"], material: Isotropic) -> Float[Array, "n n"]:
        """∫ ρ N_i N_j dV [kg], from which all inertia terms of a solid follow.

        Source: Schanzer 2007, section 4.3.2, pp. 50-55.
        """
        shape = self.table(self.inertia_rule)[0]
        _, volume = self.gradients(x, self.inertia_rule)
        return material.rho * jnp.einsum("q,qi,qj->ij", volume, shape, shape)

    def inertia(
        self, x: Float[Array, "n 3"], material: Isotropic, weight: Float[Array, "3 3"]
    ) -> Float[Array, "n 3 n 3"]:
        """∫ ρ Nᵀ W N dV."""
        return jnp.einsum("ij,ab->iajb", self.scalar_mass(x, material), weight)

    def inertia_load(
        self,
        x: Float[Array, "n 3"],
        material: Isotropic,
        constant: Float[Array, "3"],
        weight: Float[Array, "3 3"],
    ) -> Float[Array, "n 3"]:
        """∫ ρ Nᵀ (c + W R) dV, with R = N x."""
        return self.scalar_mass(x, material) @ (constant[None, :] + x @ weight.T)

    def geometric_stiffness(
        self, x: Float[Array, "n 3"], u: Float[Array, "n 3"], material: Isotropic
    ) -> Float[Array, "n 3 n 3"]:
        """∫ ∇Nᵀ S ∇N dV [N/m] with the stress S of the displacements u."""
        gradient, volume = self.gradients(x, self.stiffness_rule)
        stress = material.stress(self.strain(x, u, material, self.stiffness_rule))
        scalar = jnp.einsum("q,qni,qij,qmj->nm", volume, gradient, stress_tensor(stress), gradient)
        return jnp.einsum("nm,ab->namb", scalar, jnp.eye(3))

    def jacobians(self, x: Float[Array, "n 3"]) -> Float[Array, " points"]:
        """Determinants of the Jacobian matrix at the integration points [m^3]."""
        return self.gradients(x, self.stiffness_rule)[1] / self.stiffness_rule.weights

    def gradients(
        self, x: Float[Array, "n 3"], rule: Rule
    ) -> tuple[Float[Array, "q n 3"], Float[Array, " q"]]:
        """Gradients of the shape functions [1/m], and the volume of each point [m^3]."""
        reference = self.table(rule)[1]
        inverse, determinant = invert(jnp.einsum("na,qni->qai", x, reference))
        return jnp.einsum("qni,qia->qna", reference, inverse), determinant * rule.weights

    def face_integrals(
        self, x: Float[Array, "n 3"], face: Array
    ) -> tuple[Float[Array, "q n"], Float[Array, "q 3"], Float[Array, "q 3"]]:
        """Shape functions, positions and weighted outward area vectors on a local face."""
        rule = self.face_rule
        tables = [self.tabulate(points) for points in rule.points]
        shape = jnp.asarray(np.stack([t[0] for t in tables]))[face]
        reference = jnp.asarray(np.stack([t[1] for t in tables]))[face]
        tangents = jnp.einsum("na,qni,it->qat", x, reference, jnp.asarray(rule.tangents)[face])
        area = jnp.cross(tangents[..., 0], tangents[..., 1]) * rule.weights[:, None]
        return shape, shape @ x, area

    @classmethod
    def table(cls, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
        """`tabulate` at the points of a rule."""
        return _table(cls, rule.points.tobytes(), len(rule.points))


@functools.lru_cache(maxsize=128)
def _table(element: type[Solid], points: bytes, count: int) -> tuple[np.ndarray, np.ndarray]:
    return element.tabulate(np.frombuffer(points).reshape(count, 3))


def as_solid(element: Element, what: str) -> Solid:
    """The element; `ValueError`, naming what only solids have, unless it is a solid."""
    if not isinstance(element, Solid):
        kind = type(element).__name__
        raise ValueError(f"{kind} has no {what}; only solid elements have.")
    return element


def isotropic_stiffness(
    gradient: Float[Array, "q n 3"],
    volume: Float[Array, " q"],
    lam: Float[Array, ""],
    mu: Float[Array, ""],
) -> Float[Array, "n 3 n 3"]:
    """Stiffness for Lamé's parameters [Pa] with one product of the gradients."""
    q, n, _ = gradient.shape
    flat = gradient.reshape(q, 3 * n)
    product = ((flat * volume[:, None]).T @ flat).reshape(n, 3, n, 3)
    laplace = jnp.trace(product, axis1=1, axis2=3)
    return (
        lam * product
        + mu * product.transpose(0, 3, 2, 1)
        + mu * laplace[:, None, :, None] * np.eye(3)[None, :, None, :]
    )


def voigt_strain(gradient: Float[Array, "*q 3 3"]) -> Float[Array, "*q 6"]:
    """Voigt strain of displacement gradients du_a/dx_i."""
    normal = [gradient[..., k, k] for k in range(3)]
    shear = [gradient[..., a, b] + gradient[..., b, a] for a, b in SHEARS]
    return jnp.stack(normal + shear, axis=-1)


def stress_tensor(stress: Float[Array, "*q 6"]) -> Float[Array, "*q 3 3"]:
    """Symmetric tensor of the components xx, yy, zz, xy, yz, zx."""
    index = np.diag(np.arange(3))
    for k, (a, b) in enumerate(SHEARS):
        index[a, b] = index[b, a] = 3 + k
    return stress[..., index]


def invert(
    matrix: Float[Array, "*q 3 3"],
) -> tuple[Float[Array, "*q 3 3"], Float[Array, " *q"]]:
    """Inverse and determinant of 3x3 matrices, by cofactors."""
    a, b, c = (matrix[..., :, k] for k in range(3))
    rows = jnp.stack([jnp.cross(b, c), jnp.cross(c, a), jnp.cross(a, b)], axis=-2)
    determinant = jnp.sum(a * rows[..., 0, :], axis=-1)
    return rows / determinant[..., None, None], determinant
