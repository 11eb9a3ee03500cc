"""Interface of all elements."""

import abc
from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import brief


def check_element(element: object) -> None:
    """Raise `ValueError` unless this is an instance of `Element`."""
    if not isinstance(element, Element):
        raise ValueError(f"The element is {brief(element)}; give an instance such as Hex27().")


class Element(eqx.Module):
    """Kernels of one element; `jax.vmap` runs them over all elements of a mesh.

    Displacements (n, d) are those of the n nodes; d is 3 for solids and 6 for beams, whose last
    three are small rotations. Matrices (n, d, n, d) act on displacements. `material` is the type
    of material required.
    """

    dofs: ClassVar[int]
    nodes: ClassVar[np.ndarray]
    faces: ClassVar[tuple[tuple[int, ...], ...]]
    meshio_name: ClassVar[str]
    material: ClassVar[type]

    @classmethod
    def block(cls) -> tuple[np.ndarray, np.ndarray]:
        """Elements (m, n) that fill a cube [-1, 1]^3, as indices into positions (p, 3)."""
        return np.arange(len(cls.nodes))[None], cls.nodes

    @abc.abstractmethod
    def stiffness(self, x: Float[Array, "n 3"], material: eqx.Module) -> Float[Array, "n d n d"]:
        """Stiffness at the nodes x [m]; [N/m] for solids."""

    @abc.abstractmethod
    def inertia(
        self, x: Float[Array, "n 3"], material: eqx.Module, weight: Float[Array, "3 3"]
    ) -> Float[Array, "n d n d"]:
        """∫ ρ Nᵀ W N dV with shape functions N; for W = 1 the mass [kg]."""

    @abc.abstractmethod
    def inertia_load(
        self,
        x: Float[Array, "n 3"],
        material: eqx.Module,
        constant: Float[Array, "3"],
        weight: Float[Array, "3 3"],
    ) -> Float[Array, "n d"]:
        """∫ ρ Nᵀ (c + W R) dV with the undeformed position R."""

    @abc.abstractmethod
    def geometric_stiffness(
        self, x: Float[Array, "n 3"], u: Float[Array, "n d"], material: eqx.Module
    ) -> Float[Array, "n d n d"]:
        """Second variation of the strain energy under the stress of the displacements u."""

    @abc.abstractmethod
    def jacobians(self, x: Float[Array, "n 3"]) -> Float[Array, " points"]:
        """Volume ratios (for beams the length) at the integration points; positive if valid."""

    def check(self, nodes: Float[Array, "n 3"], cells: np.ndarray, material: eqx.Module) -> None:
        """Raise `ValueError` unless the material suits the elements."""
        if not isinstance(material, self.material):
            raise ValueError(
                f"{type(self).__name__} elements are made of {self.material.__name__}, not of "
                f"{type(material).__name__}."
            )
