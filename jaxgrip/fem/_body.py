"""A body: mesh, material, damping and supports."""

import functools
from collections.abc import Iterable, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import non_negative
from jaxgrip.fem._mesh import Mesh
from jaxgrip.fem.material import Isotropic
from jaxgrip.fem.section import BeamSection
from jaxgrip.fem.topology import Constant, Topology
from jaxgrip.precision import require_x64

COMPONENTS = ("x", "y", "z", "rx", "ry", "rz")


class Rayleigh(eqx.Module):
    """Damping matrix D = mass · M + stiffness · K.

    **Arguments:** `mass` [1/s]; `stiffness` [s].

    **Raises:** `ValueError` when one is negative.

    Source: Schanzer 2007, eq. 4.46, pp. 56-57.
    """

    mass: Float[Array, ""]
    stiffness: Float[Array, ""]

    def __init__(self, mass=0.0, stiffness=0.0):
        self.mass = _damping("mass", mass)
        self.stiffness = _damping("stiffness", stiffness)


class Support(eqx.Module):
    """Fixed degrees of freedom of some nodes.

    **Arguments:** `where`, name of a face or node set, or node indices; `fixed`, any of `"x"`,
    `"y"`, `"z"` and, for beams, the rotations `"rx"`, `"ry"`, `"rz"`; all when not given.
    """

    where: str | tuple[int, ...] = eqx.field(static=True)
    fixed: tuple[str, ...] | None = eqx.field(static=True)

    def __init__(self, where: str | Iterable[int], fixed: Iterable[str] | None = None):
        self.where = where if isinstance(where, str) else tuple(int(node) for node in where)
        self.fixed = None if fixed is None else tuple(fixed)


class Body(eqx.Module):
    """A linear elastic body in its own frame.

    **Arguments:**

    - `mesh`; `material`, for beams their section.
    - `clamp`: name of a face or node set that is fully fixed, or None.
    - `supports`: further fixed degrees of freedom.
    - `damping`: Rayleigh damping, none when not given.

    **Raises:** `ValueError` for an unknown face or degree of freedom, or a material of the wrong
    type for the elements; `RuntimeError` without 64-bit floating point.
    """

    mesh: Mesh
    material: Isotropic | BeamSection
    damping: Rayleigh
    supports: tuple[Support, ...] = eqx.field(static=True)

    def __init__(
        self,
        mesh: Mesh,
        material: Isotropic | BeamSection,
        *,
        clamp: str | None = None,
        supports: Sequence[Support] = (),
        damping: Rayleigh | None = None,
    ):
        require_x64("jaxgrip.fem")
        mesh.element.check(mesh.nodes, mesh.topology.cells, material)
        self.mesh = mesh
        self.material = material
        self.damping = Rayleigh() if damping is None else damping
        self.supports = tuple(supports) if clamp is None else (Support(clamp), *supports)
        # Unknown names raise here, not at the first use.
        _free(mesh.topology, self.supports)

    @property
    def free(self) -> np.ndarray:
        """(n, d), True where a degree of freedom is not fixed."""
        return _free(self.mesh.topology, self.supports).array

    @property
    def dofs(self) -> int:
        """Degrees of freedom of a node: 3 for solids, 6 for beams."""
        return self.mesh.element.dofs

    def zeros(self) -> Float[Array, "n d"]:
        """Zero displacements [m], or a zero load [N]."""
        return jnp.zeros((self.mesh.topology.n_nodes, self.dofs))


def _damping(name: str, value) -> Float[Array, ""]:
    return non_negative(f"The damping factor of the {name}", value, ())


@functools.lru_cache(maxsize=256)
def _free(topology: Topology, supports: tuple[Support, ...]) -> Constant:
    d = topology.element.dofs
    free = np.ones((topology.n_nodes, d), dtype=bool)
    for support in supports:
        if isinstance(support.where, str):
            nodes = topology.point_set(support.where)
        else:
            nodes = np.array(support.where, dtype=int)
            if nodes.size and not (nodes.min() >= 0 and nodes.max() < topology.n_nodes):
                raise ValueError(
                    f"A support names node {nodes.max()}; there are {topology.n_nodes} nodes."
                )
        names = COMPONENTS[:d] if support.fixed is None else support.fixed
        for name in names:
            if name not in COMPONENTS[:d]:
                raise ValueError(
                    f"A support fixes the degree of freedom {name!r}; nodes of "
                    f"{type(topology.element).__name__} have {', '.join(COMPONENTS[:d])}."
                )
            free[nodes, COMPONENTS.index(name)] = False
    return Constant(free)
