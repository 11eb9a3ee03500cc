"""Co-rotational elements: forces of bars and beams at displacements and rotations of any size.

Pure functions of one element. Strains are small: a frame goes along with a beam, and what its ends
turn and move from it is the deformation. Forces are those on the ends that the element needs to
stay there, moments are about the axes of the ground, so tangents are symmetric in equilibrium only.

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

# Of the twelve displacements of a beam's ends, those that its frame leaves: the stretch, then the
# rotations of both ends.
_LEFT = np.array([6, 3, 4, 5, 9, 10, 11])


def stretch(way: Float[Array, "3"], span: Float[Array, "3"]) -> Float[Array, ""]:
    """How much longer a line has become [m].

    **Arguments:** `way`, what its second end has moved from its first one; `span` between them
    before [m].
    """
    now = jnp.linalg.norm(span + way)
    return way @ (2 * span + way) / (now + jnp.linalg.norm(span))


class BeamLaw(NamedTuple):
    """Strain energy of a beam by its deformation, see `beam_energy`.

    `stiffness` (7, 7); `geometric` (7, 7, 7), geometric stiffness by each deformation; `bow`
    (7, 7), by which the bow stretches the beam.
    """

    stiffness: Float[Array, "7 7"]
    geometric: Float[Array, "7 7 7"]
    bow: Float[Array, "7 7"]


def beam_law(element: Beam, length: Float[Array, ""], section: BeamSection) -> BeamLaw:
    """The law of a beam of a theory, from its stiffness and its geometric stiffness."""
    line, section = on_a_line(length, section)
    stiffness = element.stiffness(line, section).reshape(12, 12)[np.ix_(_LEFT, _LEFT)]

    def by(u: Array) -> Array:
        return element.geometric_stiffness(line, u.reshape(2, 6), section).reshape(12, 12)

    geometric = jax.vmap(by)(jnp.asarray(np.eye(12)[_LEFT]))[:, _LEFT][:, :, _LEFT]
    return BeamLaw(stiffness, geometric, geometric[0] / jnp.sqrt(8 * stiffness[0, 0]))


def beam_energy(law: BeamLaw, deformation: Float[Array, "7"]) -> Float[Array, ""]:
    """Strain energy [J] of a beam to third order, and to fourth order what its bow stretches.

    The stretch of the axis is that of the ends and what the bow takes up, evenly along the beam;
    so a beam is not stiffened by a bow to which its ends can give way.
    """
    d = deformation
    cubic = jnp.einsum("k,kij,i,j->", d, law.geometric, d, d)
    return (d @ law.stiffness @ d + cubic) / 2 + (d @ law.bow @ d) ** 2


def beam_stress(law: BeamLaw, deformation: Float[Array, "7"]) -> Float[Array, "7"]:
    """Forces conjugate to the deformation of a beam, the gradient of its energy."""
    d = deformation
    by, bow = law.geometric @ d, law.bow @ d
    return law.stiffness @ d + by @ d / 2 + d @ by + 4 * (bow @ d) * bow


class BeamFrame(NamedTuple):
    """What goes along with a beam.

    `axes` (3, 3) of the frame, x between the ends; `length` [m]; `deformation` (7,): stretch [m],
    then the rotation vectors of both ends in these axes; `y` (2, 3): directions of the y axes of
    the sections at the ends.
    """

    axes: Float[Array, "3 3"]
    length: Float[Array, ""]
    deformation: Float[Array, "7"]
    y: Float[Array, "2 3"]


def beam_frame(
    way: Float[Array, "2 3"], turned: Float[Array, "2 3 3"], span: Float[Array, "3"]
) -> BeamFrame:
    """The frame of a beam, whose y axis follows the mean of those of its ends.

    **Arguments:** `way` that the ends have moved; `turned`: axes of the sections there as columns;
    `span` between the ends, undeformed [m].
    """
    along = span + way[1] - way[0]
    length = jnp.linalg.norm(along)
    x = along / length
    z = jnp.cross(x, turned[0, :, 1] + turned[1, :, 1])
    z = z / jnp.linalg.norm(z)
    axes = jnp.stack([x, jnp.cross(z, x), z], axis=1)
    seen = jnp.einsum("ba,sbc->sac", axes, turned)
    # Twice the sine of the angle along its axis, then its half by the tangent.
    sine = jnp.stack(
        [
            seen[:, 2, 1] - seen[:, 1, 2],
            seen[:, 0, 2] - seen[:, 2, 0],
            seen[:, 1, 0] - seen[:, 0, 1],
        ],
        axis=1,
    )
    half = sine / (1 + jnp.trace(seen, axis1=1, axis2=2))[:, None]
    turns = 2 * half * _arctan_ratio(jnp.sum(half**2, axis=1))[:, None]
    deformation = jnp.concatenate([stretch(way[1] - way[0], span)[None], turns.reshape(6)])
    return BeamFrame(axes, length, deformation, turned[:, :, 1])


def beam_forces(
    frame: BeamFrame, force: Float[Array, "7"], moment: Float[Array, "3"]
) -> Float[Array, "2 6"]:
    """Forces and moments on the ends of a beam, in axes of the ground.

    **Arguments:** `frame`; `force` conjugate to the deformation; `moment` on the frame besides,
    in its axes.
    """
    turns, own = frame.deformation[1:].reshape(2, 3), force[1:].reshape(2, 3)
    twisted = jnp.cross(turns, own)
    square = jnp.sum(turns**2, axis=1)[:, None]
    own = own + twisted / 2 + _twist_ratio(square) * jnp.cross(turns, twisted)
    # The frame turns about y and z with its ends, and rolls with the mean of their y axes.
    moment = moment - own.sum(axis=0)
    y = frame.y.sum(axis=0) @ frame.axes
    roll = moment[0] / y[1]
    shear = jnp.stack(
        [force[0], moment[2] / frame.length, -(moment[1] + roll * y[0]) / frame.length]
    )
    pull = frame.axes @ shear
    rolled = jnp.cross(frame.y, frame.axes[None, :, 2]) * roll
    moments = own @ frame.axes.T + rolled
    return jnp.concatenate([jnp.stack([-pull, pull]), moments], axis=1)


def on_a_line(
    length: Float[Array, ""], section: BeamSection
) -> tuple[Float[Array, "2 3"], BeamSection]:
    """Ends of a beam along x, and its section with axes along those of the coordinates."""
    line = jnp.zeros((2, 3)).at[1, 0].set(length)
    return line, eqx.tree_at(lambda s: s.orientation, section, jnp.array([0.0, 1.0, 0.0]))


def of_deformation(loads: Float[Array, "12"]) -> Float[Array, "7"]:
    """Of loads on the ends of a beam, those on its deformation; in the axes of its section."""
    return loads[_LEFT]


def _arctan_ratio(square: Float[Array, "*m"]) -> Float[Array, "*m"]:
    """arctan(x) / x by x²."""
    small = square < 1e-3
    x = jnp.sqrt(jnp.where(small, 1.0, square))
    return jnp.where(
        small, _series([(-1) ** k / (2 * k + 1) for k in range(6)], square), jnp.arctan(x) / x
    )


def _twist_ratio(square: Float[Array, "*m"]) -> Float[Array, "*m"]:
    """(1 - x / 2 cot x / 2) / x² by x²."""
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
