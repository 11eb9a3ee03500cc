"""Elements of frame parts: beams, bars, ropes, springs, rigid links, point masses."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import brief, non_negative, positive
from jaxgrip.fem.elements import EulerBernoulli, Timoshenko
from jaxgrip.fem.elements.beam import Beam
from jaxgrip.fem.material import Isotropic
from jaxgrip.fem.section import BeamSection
from jaxgrip.fem.topology import Constant
from jaxgrip.solve import dense
from jaxgrip.spatial import skew

SECTION_FORCES = ("N", "Vy", "Vz", "Mx", "My", "Mz")


class Axial(eqx.Module):
    """An element with axial force only."""

    tension_only: ClassVar[bool] = False

    def stiffness(self, length: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Axial stiffness [N/m]."""
        raise NotImplementedError

    def mass(self, length: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Mass [kg], evenly distributed."""
        return jnp.zeros_like(length)


class Bar(Axial):
    """Bar of a truss. **Arguments:** `material`; `A`, area [m^2]."""

    material: Isotropic
    A: Float[Array, ""]

    def __init__(self, material: Isotropic, A):
        if not isinstance(material, Isotropic):
            raise ValueError(f"The material of a bar is {brief(material)}; give an Isotropic.")
        self.material = material
        self.A = positive("The area A of a bar", A, (), unit="m^2")

    def stiffness(self, length: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """E A / L [N/m]."""
        return self.material.E * self.A / length

    def mass(self, length: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """ρ A L [kg]."""
        return self.material.rho * self.A * length


class Rope(Axial):
    """Rope: tension only, straight. **Arguments:** `EA` [N]; `mass_per_length` [kg/m]."""

    EA: Float[Array, ""]
    mass_per_length: Float[Array, ""]

    tension_only: ClassVar[bool] = True

    def __init__(self, EA, mass_per_length=0.0):
        self.EA = positive("The stiffness EA of a rope", EA, (), unit="N")
        self.mass_per_length = non_negative("The mass of a rope per metre", mass_per_length, ())

    def stiffness(self, length: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """E A / L [N/m]."""
        return self.EA / length

    def mass(self, length: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """Mass of the length [kg]."""
        return self.mass_per_length * length


class Spring(Axial):
    """Axial spring. **Arguments:** `k` [N/m]; [N m/rad] where it acts on an `Angle`."""

    k: Float[Array, ""]

    def __init__(self, k):
        self.k = positive("The stiffness k of a spring", k, (), unit="N/m")

    def stiffness(self, length: Float[Array, "*m"]) -> Float[Array, "*m"]:
        """k, independent of the length."""
        return self.k + 0.0 * length


class Beams(eqx.Module):
    """Beams of one section.

    **Arguments:**

    - `ends` (m, 2): node numbers.
    - `section`: `BeamSection`, with its orientation in the frame of the part.
    - `element`: `EulerBernoulli()` or `Timoshenko()`.
    - `reach`: distances [m] of the extreme fibres, (2,) along y and z of the section, or the
      radius of a round section; for stresses only.
    - `released`: section forces (N, Vy, Vz, Mx, My, Mz) released at the first and at the second
      end of every beam; `((), ("My", "Mz"))` makes every second end a ball joint.

    **Raises:** `ValueError` for ends that are no pairs, unknown releases, or releases that make
    the beam a mechanism.
    """

    ends: Constant = eqx.field(static=True)
    section: BeamSection
    element: Beam
    reach: Float[Array, "*axes"] | None
    released: tuple[tuple[str, ...], tuple[str, ...]] = eqx.field(static=True)

    def __init__(
        self,
        ends,
        section: BeamSection,
        element: Beam = EulerBernoulli(),  # noqa: B008
        *,
        reach=None,
        released=((), ()),
    ):
        if not isinstance(element, EulerBernoulli | Timoshenko):
            raise ValueError(f"Beams are {brief(element)}; give EulerBernoulli() or Timoshenko().")
        if not isinstance(section, BeamSection):
            raise ValueError(f"Beams have the section {brief(section)}; give a BeamSection.")
        self.ends = _pairs("Beams", ends)
        self.section = section
        self.element = element
        self.reach = None if reach is None else positive("reach", reach, (), (2,), unit="m")
        two = isinstance(released, Sequence) and len(released) == 2
        if not two or any(
            isinstance(names, str) or not isinstance(names, Iterable) for names in released
        ):
            raise ValueError(
                f"The releases of beams are {brief(released)}; give names for the first and for "
                'the second end, such as ((), ("My", "Mz")).'
            )
        self.released = tuple(tuple(names) for names in released)
        for name in (name for names in self.released for name in names):
            if name not in SECTION_FORCES:
                raise ValueError(
                    f"A beam is released in {name!r}; it must be in {', '.join(SECTION_FORCES)}."
                )
        if not _is_stiff(self.mask):
            raise ValueError(
                f"Beams released in {self.released[0]} and {self.released[1]} are mechanisms; "
                "release fewer section forces."
            )

    @property
    def mask(self) -> np.ndarray:
        """(12,) 1.0 for released section forces."""
        return np.array([float(f in names) for names in self.released for f in SECTION_FORCES])


class Bars(eqx.Module):
    """Bars, ropes or springs of one kind. **Arguments:** `ends` (m, 2) node numbers; `kind`."""

    ends: Constant = eqx.field(static=True)
    kind: Axial

    def __init__(self, ends, kind: Axial):
        if not isinstance(kind, Axial):
            raise ValueError(f"Bars are of {brief(kind)}; give a Bar, a Rope or a Spring.")
        self.ends = _pairs("Bars", ends)
        self.kind = kind


class RigidLinks(eqx.Module):
    """Rigid arms: the second node of each pair follows the first. **Arguments:** `ends` (m, 2)."""

    ends: Constant = eqx.field(static=True)

    def __init__(self, ends):
        self.ends = _pairs("Rigid links", ends)


class PointMasses(eqx.Module):
    """Masses on nodes. **Arguments:** `nodes` (m,) node numbers; `mass` of each [kg]."""

    nodes: Constant = eqx.field(static=True)
    mass: Float[Array, ""]

    def __init__(self, nodes, mass):
        self.nodes = Constant(node_numbers("A group of point masses", nodes))
        self.mass = non_negative("A point mass", mass, ())


def axes(x: Float[Array, "2 3"], section: BeamSection) -> Float[Array, "3 3"]:
    """Section axes as columns, in part axes."""
    along = x[1] - x[0]
    along = along / jnp.linalg.norm(along)
    normal = jnp.cross(along, section.orientation)
    normal = normal / jnp.linalg.norm(normal)
    return jnp.stack([along, jnp.cross(normal, along), normal], axis=1)


def release(
    stiffness: Float[Array, "12 12"], axes: Float[Array, "3 3"], mask: Float[Array, "12"]
) -> tuple[Float[Array, "12 12"], Float[Array, "12 12"]]:
    """Matrices to the displacements of a beam's ends, from those of its nodes and end loads.

    The released displacements are such that their section forces are zero.
    """
    blocks = jnp.einsum("ab,kb,cb->kac", axes, mask.reshape(4, 3), axes)
    select = jax.scipy.linalg.block_diag(*blocks)
    keep = jnp.eye(12) - select
    scale = jnp.trace(stiffness) / 12
    loose = select @ stiffness @ select + scale * keep
    flexibility = select @ dense.solve(loose, select, positive=True)
    return jnp.eye(12) - flexibility @ stiffness, flexibility


def arm(r: Float[Array, "3"]) -> Float[Array, "6 6"]:
    """Matrix from displacement and rotation at the root of a rigid arm to those at its end."""
    return jnp.eye(6).at[:3, 3:].set(-skew(r))


def mapped(who: str, value: Mapping[str, object] | None, by: str) -> dict[str, object]:
    """The value as a dictionary, empty for None; `ValueError`, beginning with `who`, if invalid."""
    value = {} if value is None else value
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{who} {brief(value)}; give a dictionary by {by}.")
    return dict(value)


def checked_place(who: str, place: object) -> str | tuple[str, int]:
    """A `"part.attachment"` or `("part", node)`; `ValueError`, beginning with `who`, if invalid."""
    if isinstance(place, str):
        return place
    if isinstance(place, tuple) and len(place) == 2 and isinstance(place[0], str):
        found = node_numbers(f"The node {brief(place)}", place[1])
        if len(found) == 1:
            return place[0], int(found[0])
    raise ValueError(f"{who} {brief(place)}; give 'part.attachment' or ('part', node).")


def node_numbers(who: str, value: object) -> np.ndarray:
    """One or more node numbers as (m,)."""
    found = np.asarray(value)
    if not np.issubdtype(found.dtype, np.integer):
        raise ValueError(f"{who} has the nodes {brief(value)}; give whole numbers.")
    return found.astype(int).reshape(-1)


def _pairs(who: str, ends) -> Constant:
    try:
        ends = np.asarray(ends)
    except ValueError:
        ends = np.asarray(ends, dtype=object)
    if ends.ndim != 2 or ends.shape[1] != 2 or not np.issubdtype(ends.dtype, np.integer):
        raise ValueError(f"{who} have the ends {brief(ends)}; give pairs of node numbers.")
    return Constant(ends.astype(int))


def _is_stiff(mask: np.ndarray) -> bool:
    """Whether a beam with released ends is no mechanism, tested at length 1."""
    loose = mask.astype(bool)
    stiffness = np.zeros((12, 12))
    for i, j in ((0, 6), (3, 9)):
        stiffness[np.ix_([i, j], [i, j])] = [[1, -1], [-1, 1]]
    bend = np.array([[12, 6, -12, 6], [6, 4, -6, 2], [-12, -6, 12, -6], [6, 2, -6, 4]])
    for dofs, sign in (((1, 5, 7, 11), 1.0), ((2, 4, 8, 10), -1.0)):
        signs = np.array([1.0, sign, 1.0, sign])
        stiffness[np.ix_(dofs, dofs)] = bend * signs[:, None] * signs[None, :]
    own = stiffness[np.ix_(loose, loose)]
    return not loose.any() or bool(np.linalg.eigvalsh(own)[0] > 1e-9)
