"""Co-rotational elements: bars and beams at displacements and rotations of any size.

Pure functions of one element. Strains are small: a frame moves with a beam, and the motion of its
ends relative to the frame is the deformation. Forces are those on the ends that keep the element
deformed; moments are about ground axes, so tangents are symmetric in equilibrium only.

Source: Crisfield 1997, chapters 16 and 17; Battini 2002.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.fem.elements.beam import Beam
from jaxgrip.fem.section import BeamSection
from jaxgrip.spatial import skew

# The deformations of a beam among the twelve displacements of its ends: stretch, then the
# rotations of both ends.
_KEPT = np.array([6, 3, 4, 5, 9, 10, 11])


def stretch(displacement: Float[Array, "3"], span: Float[Array, "3"]) -> Float[Array, ""]:
    """Elongation of a line [m].

    **Arguments:** `displacement` of its second end relative to the first; undeformed `span`
    between them [m].
    """
    now = jnp.linalg.norm(span + displacement)
    return displacement @ (2 * span + displacement) / (now + jnp.linalg.norm(span))


class BeamLaw(NamedTuple):
    """Coefficients of the strain energy of a beam, see `beam_energy`.

    `stiffness` (7, 7); `geometric` (7, 7, 7), geometric stiffness per deformation; `bow` (7, 7),
    quadratic form of the stretch due to bowing.
    """

    stiffness: Float[Array, "7 7"]
    geometric: Float[Array, "7 7 7"]
    bow: Float[Array, "7 7"]


def beam_law(element: Beam, length: Float[Array, ""], section: BeamSection) -> BeamLaw:
    """The law of a beam from the stiffness and geometric stiffness of its element."""
    line, section = on_a_line(length, section)
    stiffness = element.stiffness(line, section).reshape(12, 12)[np.ix_(_KEPT, _KEPT)]

    def by(u: Array) -> Array:
        return element.geometric_stiffness(line, u.reshape(2, 6), section).reshape(12, 12)

    geometric = jax.vmap(by)(jnp.asarray(np.eye(12)[_KEPT]))[:, _KEPT][:, :, _KEPT]
    return BeamLaw(stiffness, geometric, geometric[0] / jnp.sqrt(8 * stiffness[0, 0]))


def beam_energy(law: BeamLaw, deformation: Float[Array, "7"]) -> Float[Array, ""]:
    """Strain energy [J] of a beam to third order, with the fourth-order term of its bow.

    The axial strain is uniform: the stretch between the ends plus that of the bow. So a bow does
    not stiffen a beam whose ends are free to approach each other.
    """
    d = deformation
    cubic = jnp.einsum("k,kij,i,j->", d, law.geometric, d, d)
    return (d @ law.stiffness @ d + cubic) / 2 + (d @ law.bow @ d) ** 2


def beam_stress(law: BeamLaw, deformation: Float[Array, "7"]) -> Float[Array, "7"]:
    """Forces conjugate to the deformation of a beam: the gradient of its energy."""
    d = deformation
    by, bow = law.geometric @ d, law.bow @ d
    return law.stiffness @ d + by @ d / 2 + d @ by + 4 * (bow @ d) * bow


class BeamFrame(NamedTuple):
    """Co-rotating frame of a beam.

    `axes` (3, 3) of the frame as columns, x between the ends; `length` [m]; `deformation` (7,):
    stretch [m], then the rotation vectors of both ends in these axes; `y` (2, 3): y axes of the
    sections at the ends.
    """

    axes: Float[Array, "3 3"]
    length: Float[Array, ""]
    deformation: Float[Array, "7"]
    y: Float[Array, "2 3"]


def beam_frame(
    displacements: Float[Array, "2 3"], sections: Float[Array, "2 3 3"], span: Float[Array, "3"]
) -> BeamFrame:
    """The frame of a beam, with its y axis along the mean of those of its end sections.

    **Arguments:** `displacements` of the ends [m]; `sections`: axes of the end sections as
    columns; undeformed `span` between the ends [m].
    """
    relative = displacements[1] - displacements[0]
    along = span + displacements[1] - displacements[0]
    length = jnp.linalg.norm(along)
    x = along / length
    z = jnp.cross(x, sections[0, :, 1] + sections[1, :, 1])
    z = z / jnp.linalg.norm(z)
    axes = jnp.stack([x, jnp.cross(z, x), z], axis=1)
    local = jnp.einsum("ba,sbc->sac", axes, sections)
    # The tangent of the half angle.
    half = _twice_sine(local) / (1 + jnp.trace(local, axis1=1, axis2=2))[:, None]
    rotations = 2 * half * _arctan_ratio(jnp.sum(half**2, axis=1))[:, None]
    deformation = jnp.concatenate([stretch(relative, span)[None], rotations.reshape(6)])
    return BeamFrame(axes, length, deformation, sections[:, :, 1])


def beam_frame_at_rest(
    displacements: Float[Array, "2 3"],
    sections: Float[Array, "2 3 3"],
    span: Float[Array, "3"],
    axes: Float[Array, "3 3"],
) -> BeamFrame:
    """`beam_frame` to first order about the undeformed position, in a tenth of the operations.

    **Arguments:** also the undeformed section `axes` (3, 3).
    """
    rotations = _twice_sine(jnp.einsum("ba,sbc->sac", axes, sections)) / 2
    way, length = (displacements[1] - displacements[0]) @ axes, jnp.linalg.norm(span)
    turn = jnp.stack([rotations[:, 0].mean(), -way[2] / length, way[1] / length])
    deformation = jnp.concatenate([way[:1], (rotations - turn[None]).reshape(6)])
    return BeamFrame(axes + axes @ skew(turn), length + way[0], deformation, sections[:, :, 1])


def _twice_sine(rotations: Float[Array, "s 3 3"]) -> Float[Array, "s 3"]:
    """Twice the sine of the angle of rotations, times their axis."""
    back = jnp.swapaxes(rotations, 1, 2)
    return (rotations - back)[:, np.array([2, 0, 1]), np.array([1, 2, 0])]


def beam_forces(
    frame: BeamFrame,
    force: Float[Array, "7"],
    moment: Float[Array, "3"],
    *,
    at_rest: bool = False,
) -> Float[Array, "2 6"]:
    """Forces and moments on the ends of a beam, in ground axes.

    **Arguments:** `frame`; `force` conjugate to the deformation; additional `moment` on the frame,
    in frame axes; `at_rest`: to first order about the undeformed position.
    """
    rotations, own = frame.deformation[1:].reshape(2, 3), force[1:].reshape(2, 3)
    cross = jnp.cross(rotations, own)
    if at_rest:
        own = own + cross / 2
    else:
        square = jnp.sum(rotations**2, axis=1)[:, None]
        own = own + cross / 2 + _twist_ratio(square) * jnp.cross(rotations, cross)
    # The frame rotates about y and z with the line of its ends, about x with their mean y axis.
    moment = moment - own.sum(axis=0)
    y = frame.y.sum(axis=0) @ frame.axes
    roll = moment[0] / y[1]
    shear = jnp.stack(
        [force[0], moment[2] / frame.length, -(moment[1] + roll * y[0]) / frame.length]
    )
    end_force = frame.axes @ shear
    rolled = jnp.cross(frame.y, frame.axes[None, :, 2]) * roll
    moments = own @ frame.axes.T + rolled
    return jnp.concatenate([jnp.stack([-end_force, end_force]), moments], axis=1)


def on_a_line(
    length: Float[Array, ""], section: BeamSection
) -> tuple[Float[Array, "2 3"], BeamSection]:
    """Ends of a beam along x, and its section with y and z along the coordinate axes."""
    line = jnp.zeros((2, 3)).at[1, 0].set(length)
    return line, eqx.tree_at(lambda s: s.orientation, section, jnp.array([0.0, 1.0, 0.0]))


def of_deformation(loads: Float[Array, "12"]) -> Float[Array, "7"]:
    """Loads on the deformation among those on the ends of a beam, in section axes."""
    return loads[_KEPT]


def _arctan_ratio(square: Float[Array, "*m"]) -> Float[Array, "*m"]:
    """arctan(x) / x as a function of x²."""
    small = square < 1e-3
    x = jnp.sqrt(jnp.where(small, 1.0, square))
    return jnp.where(
        small, _series([(-1) ** k / (2 * k + 1) for k in range(6)], square), jnp.arctan(x) / x
    )


def _twist_ratio(square: Float[Array, "*m"]) -> Float[Array, "*m"]:
    """(1 - x/2 cot(x/2)) / x² as a function of x²."""
    small = square < 1e-2
    safe = jnp.where(small, 1.0, square)
    half = jnp.sqrt(safe) / 2
    found = (1 - half / jnp.tan(half)) / safe
    return jnp.where(small, _series([1 / 12, 1 / 720, 1 / 30240, 1 / 1209600], square), found)


def _series(coefficients: list[float], x: Array) -> Array:
    total = jnp.zeros_like(x)
    for c in reversed(coefficients):
        total = c + total * x
    return total
