"""Common base of Euler-Bernoulli and Timoshenko beams."""

import abc
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial import polynomial

from jaxgrip.checks import brief, concrete
from jaxgrip.fem.elements.element import Element
from jaxgrip.fem.section import BeamSection
from jaxgrip.spatial import skew


class Beam(Element):
    """Straight beam of two nodes with three displacements and three small rotations each.

    The displacement of a particle at r in the section is u(x) + θ(x) x r. Between the nodes u and
    θ solve the unloaded beam, so nodal displacements under nodal forces are exact for any number
    of elements, without locking.

    Source: Przemieniecki 1968, section 5.6 and chapter 11.
    """

    dofs: ClassVar[int] = 6
    nodes: ClassVar[np.ndarray] = np.array([[-1.0], [1.0]])
    faces: ClassVar[tuple] = ()
    meshio_name: ClassVar[str] = "line"
    material: ClassVar[type] = BeamSection

    @staticmethod
    @abc.abstractmethod
    def shear_ratios(section: BeamSection, length: Float[Array, ""]) -> Float[Array, "2"]:
        """φ = 12 E I / (k G A L²) of bending in the planes xy and xz."""

    def stiffness(self, x: Float[Array, "2 3"], section: BeamSection) -> Float[Array, "2 6 2 6"]:
        """Stiffness: forces [N] and moments [N m] per displacement [m] and rotation [rad]."""
        return _to_body(_axes(x, section), self._stiffness(x, section))

    def inertia(
        self, x: Float[Array, "2 3"], section: BeamSection, weight: Float[Array, "3 3"]
    ) -> Float[Array, "2 6 2 6"]:
        """∫ ρ Nᵀ W N dV over the volume of the beam, including rotary inertia."""
        axes = _axes(x, section)
        local = axes.T @ weight @ axes
        field, mass = self._fields(x, section, _FOUR), self._masses(x, section, _FOUR)
        rotary = sum(k.T @ local @ k * radius for k, radius in _second_moments(section))
        moved = jnp.stack([field.u, field.theta])
        weighted = jnp.einsum("kab,kqbj->kqaj", jnp.stack([local, rotary]), moved)
        matrix = jnp.einsum("kqai,kqaj->ij", moved * mass[None, :, None, None], weighted)
        return _to_body(axes, matrix)

    def inertia_load(
        self,
        x: Float[Array, "2 3"],
        section: BeamSection,
        constant: Float[Array, "3"],
        weight: Float[Array, "3 3"],
    ) -> Float[Array, "2 6"]:
        """∫ ρ Nᵀ (c + W R) dV over the volume of the beam."""
        axes = _axes(x, section)
        local = axes.T @ weight @ axes
        field, mass = self._fields(x, section, _FOUR), self._masses(x, section, _FOUR)
        positions = np.stack([1 - _FOUR.points, _FOUR.points], axis=1) @ x
        force = (constant[None, :] + positions @ weight.T) @ axes
        # The mean of r x W r over the section, where the mean of y z is zero.
        moment = sum(
            (k @ local)[:, axis] * radius
            for axis, (k, radius) in enumerate(_second_moments(section), start=1)
        )
        load = jnp.einsum("q,qai,qa->i", mass, field.u, force)
        load += jnp.einsum("q,qai,a->i", mass, field.theta, moment)
        return (load.reshape(4, 3) @ axes.T).reshape(2, 6)

    def section_forces(
        self, x: Float[Array, "2 3"], u: Float[Array, "2 6"], section: BeamSection
    ) -> Float[Array, "2 6"]:
        """N, V_y, V_z [N], M_x, M_y, M_z [N m] at both ends, in the axes of the section."""
        local = (u.reshape(4, 3) @ _axes(x, section)).reshape(12)
        forces = (self._stiffness(x, section) @ local).reshape(2, 6)
        return forces * np.array([[-1.0], [1.0]])

    def geometric_stiffness(
        self, x: Float[Array, "2 3"], u: Float[Array, "2 6"], section: BeamSection
    ) -> Float[Array, "2 6 2 6"]:
        """Second variation of the strain energy under the section forces of the displacements u.

        The second-order terms in the rotation vector θ are -θ x u' + θ x (θ x e) / 2 of the axial
        and shear strains and -θ x θ' / 2 of the curvatures; twist stretches the fibres by
        θ_x'² (y² + z²) / 2.

        Source: Simo 1986.
        """
        field = self._fields(x, section, _FOUR)
        ends = self.section_forces(x, u, section)
        n, moments = ends[1, :3], ends[:, 3:]
        m = np.stack([1 - _FOUR.points, _FOUR.points], axis=1) @ moments
        first = np.array([1.0, 0.0, 0.0])
        bend = jnp.outer(n, first) - n[0] * np.eye(3)
        inner = jnp.einsum("ab,qbj->qaj", skew(n), field.du)
        inner += 0.5 * jnp.cross(m[:, :, None], field.dtheta, axis=1)
        inner += 0.5 * jnp.einsum("ab,qbj->qaj", bend, field.theta)
        twist = field.dtheta[:, 0] * (n[0] * (section.Iy + section.Iz) / section.A)
        length = _length(x)
        half = jnp.einsum("q,qai,qaj->ij", length * _FOUR.weights, field.theta, inner)
        half += 0.5 * jnp.einsum("q,qi,qj->ij", length * _FOUR.weights, field.dtheta[:, 0], twist)
        return _to_body(_axes(x, section), half + half.T)

    def jacobians(self, x: Float[Array, "2 3"]) -> Float[Array, "1"]:
        """The length [m]."""
        return _length(x)[None]

    def check(self, nodes: Float[Array, "n 3"], cells: np.ndarray, material: eqx.Module) -> None:
        """Raise `ValueError` unless the section's orientation is not parallel to any element."""
        super().check(nodes, cells, material)
        if not (concrete(nodes) and concrete(material.orientation)):
            return
        ends, wanted = np.asarray(nodes)[cells], np.asarray(material.orientation)
        along = ends[:, 1] - ends[:, 0]
        size = np.linalg.norm(along, axis=1) * np.linalg.norm(wanted)
        bad = np.flatnonzero(np.linalg.norm(np.cross(along, wanted), axis=1) < 1e-6 * size)
        if len(bad):
            raise ValueError(
                f"The orientation {brief(wanted)} of the section is parallel to element "
                f"{bad[0]}; it must be parallel to none."
            )

    def _stiffness(self, x: Array, section: BeamSection) -> Float[Array, "12 12"]:
        field = self._fields(x, section, _TWO)
        strain = jnp.concatenate([field.du + _TILT @ field.theta, field.dtheta], axis=1)
        weight = (_length(x) * _TWO.weights)[:, None] * section.rigidities[None, :]
        return jnp.einsum("qe,qei,qej->ij", weight, strain, strain)

    def _masses(self, x: Array, section: BeamSection, rule: "_Rule") -> Float[Array, " q"]:
        """Mass of each point [kg]."""
        return section.material.rho * section.A * _length(x) * rule.weights

    def _fields(self, x: Array, section: BeamSection, rule: "_Rule") -> "_Fields":
        length = _length(x)
        phi = self.shear_ratios(section, length)[None, None, :, None]
        scale = length ** (np.array([0.0, 1.0, 0.0, 1.0])[None, :] - _BENDING_POWERS[:, None])
        bent = (rule.bending[:, 0] + phi * rule.bending[:, 1]) / (1 + phi)
        bent = (bent * scale[:, None, None, :]).reshape(4, len(rule.points), 8)
        straight = rule.stretching * (length**-_STRETCHING_POWERS)[:, None, None]
        fields = jnp.concatenate([bent, straight], axis=2) @ _PLACEMENT
        return _Fields(*fields.reshape(4, len(rule.points), 3, 12))


class _Fields(NamedTuple):
    """Interpolation (q, 3, 12) of displacements, rotations and their derivatives along the beam.

    In section axes.
    """

    u: Float[Array, "q 3 12"]
    du: Float[Array, "q 3 12"]
    theta: Float[Array, "q 3 12"]
    dtheta: Float[Array, "q 3 12"]


class _Rule:
    """Gauss points on [0, 1] with the interpolation of `_Fields` there, for a beam of length 1.

    `bending` (4, 2, q, 1, 4) has the Bernoulli part and the part multiplied by φ, before division
    by 1 + φ, for the deflections and rotations of both nodes. `stretching` (4, q, 2) is for the
    values of both nodes.
    """

    def __init__(self, count: int):
        points, weights = np.polynomial.legendre.leggauss(count)
        self.points, self.weights = (points + 1) / 2, weights / 2
        rigid = np.array([[1, 0, -3, 2], [0, 1, -2, 1], [0, 0, 3, -2], [0, 0, -1, 1]], dtype=float)
        sheared = np.array([[1, -1, 0], [0, 0.5, -0.5], [0, 1, 0], [0, -0.5, 0.5]])
        turned = np.array([[0, 0], [1, -1], [0, 0], [0, 1]], dtype=float)
        linear = np.array([[1, -1], [0, 1]], dtype=float)
        pairs = [(rigid, sheared, 0, 0), (rigid, sheared, 1, 1), (rigid, turned, 1, 0)]
        self.bending = np.stack(
            [
                np.stack([self._table(first, m), self._table(second, n)])
                for first, second, m, n in (*pairs, (rigid, turned, 2, 1))
            ]
        )[:, :, :, None, :]
        self.stretching = np.stack([self._table(linear, m) for m in (0, 1, 0, 1)])

    def _table(self, coefficients: np.ndarray, derivative: int) -> np.ndarray:
        return polynomial.polyval(self.points, polynomial.polyder(coefficients.T, derivative)).T


def _placement(bent: tuple[int, int], signs: tuple[tuple, tuple], axial: int) -> np.ndarray:
    """Matrix (10, 36) from bending in xy and xz and the linear fields to fields (3, 12)."""
    table = np.zeros((10, 3, 12))
    for plane, columns in enumerate(((1, 5, 7, 11), (2, 4, 8, 10))):
        for k, column in enumerate(columns):
            table[4 * plane + k, bent[plane], column] = signs[plane][k]
    for end in range(2):
        table[8 + end, 0, 6 * end + axial] = 1
    return table.reshape(10, 36)


# Signs follow from w' = -θ_y.
_U = _placement((1, 2), ((1, 1, 1, 1), (1, -1, 1, -1)), 0)
_THETA = _placement((2, 1), ((1, 1, 1, 1), (-1, 1, -1, 1)), 3)
_PLACEMENT = np.stack([_U, _U, _THETA, _THETA])
# Powers of the length by which the fields are divided.
_BENDING_POWERS = np.array([0.0, 1.0, 1.0, 2.0])
_STRETCHING_POWERS = np.array([0.0, 1.0, 0.0, 1.0])
_CROSS_Y = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
_CROSS_Z = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
# Shear strains are u' + e x θ with the axis e of the beam.
_TILT = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
_TWO, _FOUR = _Rule(2), _Rule(4)


def _length(x: Float[Array, "2 3"]) -> Float[Array, ""]:
    return jnp.linalg.norm(x[1] - x[0])


def _axes(x: Float[Array, "2 3"], section: BeamSection) -> Float[Array, "3 3"]:
    """The section axes as columns, in body axes."""
    along = (x[1] - x[0]) / _length(x)
    normal = jnp.cross(along, section.orientation)
    normal = normal / jnp.linalg.norm(normal)
    return jnp.stack([along, jnp.cross(normal, along), normal], axis=1)


def _second_moments(section: BeamSection) -> tuple[tuple[np.ndarray, Array], ...]:
    """For the y and z axes: cross-product matrix, and mean square of the coordinate."""
    return ((_CROSS_Y, section.Iz / section.A), (_CROSS_Z, section.Iy / section.A))


def _to_body(axes: Float[Array, "3 3"], local: Float[Array, "12 12"]) -> Float[Array, "2 6 2 6"]:
    rotated = jnp.einsum("ab,ibjc,dc->iajd", axes, local.reshape(4, 3, 4, 3), axes)
    return rotated.reshape(2, 6, 2, 6)
