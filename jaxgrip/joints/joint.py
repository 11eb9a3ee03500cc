"""What every joint provides, and the frames between which it is an equation."""

import abc
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import concrete, numbers
from jaxgrip.joints.gear import Gear
from jaxgrip.spatial import aligning_z, skew


class Frame(NamedTuple):
    """Where an attachment is: `origin` (3,) [m] and `rotation` (3, 3), its axes as columns."""

    origin: Float[Array, "3"]
    rotation: Float[Array, "3 3"]


def attachment_points(name: str, value: object) -> Float[Array, "k 3"]:
    """The points (k, 3) of an attachment, one to three, checked that they make a `frame`.

    **Raises:** `ValueError` for another shape, a number that is not finite, points that coincide
    and three on a line.
    """
    points = numbers(name, value, (1, 3), (2, 3), (3, 3))
    if not concrete(points):
        return points
    sides = np.asarray(points)[1:] - np.asarray(points)[:1]
    size = np.linalg.norm(sides, axis=1)
    if np.any(size == 0) or (len(sides) == 2 and np.array_equal(sides[0], sides[1])):
        raise ValueError(f"{name} has points that coincide; an axis needs two different points.")
    if len(sides) == 2 and np.linalg.norm(np.cross(*sides)) < 1e-9 * size.prod():
        raise ValueError(f"{name} has three points on a line; the third must be beside it.")
    return points


def frame(points: Float[Array, "k 3"]) -> Frame:
    """Frame of an attachment of one to three points, in the axes of the points.

    Its origin is the first point; z runs from the first towards the second point, x points
    to the third point, as far as that is normal to z. What fewer points leave open is arbitrary but
    the same for equal points.

    **Arguments:** `points`: (k, 3) [m], k of 1, 2 or 3, not all on a line.

    **Returns:** `Frame`.

    Source: Webhofer 2005, section 4.2, pp. 29-32.
    """
    origin = points[0]
    if len(points) == 1:
        return Frame(origin, jnp.eye(3, dtype=points.dtype))
    along = points[1] - origin
    if len(points) == 2:
        return Frame(origin, aligning_z(along))
    z = along / jnp.linalg.norm(along)
    aside = points[2] - origin
    x = aside - (aside @ z) * z
    x = x / jnp.linalg.norm(x)
    return Frame(origin, jnp.stack([x, jnp.cross(z, x), z], axis=1))


def relative(first: Frame, second: Frame) -> Frame:
    """The second frame seen from the first: `origin` (3,) [m] and `rotation` (3, 3)."""
    back = first.rotation.T
    return Frame(back @ (second.origin - first.origin), back @ second.rotation)


def displaced(place: Frame, step: Float[Array, "6"]) -> Frame:
    """A frame after a small displacement [m] and rotation [rad], to first order."""
    return Frame(place.origin + step[:3], place.rotation + skew(step[3:]) @ place.rotation)


class Measure(NamedTuple):
    """What the coordinate of a joint is: its `unit`, "rad" or "m", and whether it is `periodic`,
    known up to full turns only."""

    unit: str
    periodic: bool

    def wrapped(self, difference: Float[Array, ""]) -> Float[Array, ""]:
        """A difference of two coordinates, without the full turns of a periodic one."""
        if not self.periodic:
            return difference
        return difference - 2 * np.pi * jnp.round(difference / (2 * np.pi))


ANGLE = Measure("rad", True)
TURNS = Measure("rad", False)
LENGTH = Measure("m", False)
# A rope that is shorter than its length by less than this is taut [m].
TAUT = 1e-9


class Joint(eqx.Module):
    """A joint as equations between two frames, one on either body, in smooth signed form.

    Everything is a function of `place`, the second frame seen from the first. Equations are
    lengths [m] first, then sines of angles; all are zero where the joint is satisfied. Fields are
    the numbers of the joint, traced; the one called `parameter` is that of a drive.

    - `equations`: how many there are, independent of each other; `lengths`: of these, lengths.
    - `points`: the number of points that either attachment needs.
    - `parameter`: name of the field by which the joint drives a mechanism, or None.
    - `measure`: what `coordinate` gives, or None for a joint without a single coordinate.
    - `steps`: elementary motions that lead from the first frame to the second, by which the joint
      carries a body of a tree: displacements "x", "y", "z" along and rotations "rx", "ry", "rz"
      about axes of the frame that the step before leads to, or a free rotation "ball", which only
      displacements may come before. None where the joint closes loops only. `leading` is the step
      that `coordinate` measures.
    - `to_ground`: whether it joins one part to the ground, where that part is at the start.
    - `one_sided`: whether it may hang slack, and then transmits nothing.
    - `meets`: whether all points of its two attachments should coincide.
    - `is_line`: whether it is a line between its two origins, to be drawn as such.
    - `is_signed`: whether its equations tell one side of its coordinate from the other.

    A new kind of joint is a subclass that defines these and the methods below; nothing else in the
    package knows of kinds.

    Source: Webhofer 2005, sections 4.3 and 5.3, pp. 32-38, 66-76.
    """

    equations: ClassVar[int]
    lengths: ClassVar[int]
    points: ClassVar[int]
    parameter: ClassVar[str | None] = None
    measure: ClassVar[Measure | None] = None
    steps: ClassVar[tuple[str, ...] | None] = None
    leading: ClassVar[int] = 0
    to_ground: ClassVar[bool] = False
    one_sided: ClassVar[bool] = False
    meets: ClassVar[bool] = False
    is_line: ClassVar[bool] = False
    is_signed: ClassVar[bool] = True

    @property
    def degrees_of_freedom(self) -> int:
        """Degrees of freedom that the joint leaves, of six."""
        return 6 - self.equations

    @abc.abstractmethod
    def residual(self, place: Frame) -> Float[Array, " equations"]:
        """Errors of the equations: lengths [m], then sines of angles."""

    @abc.abstractmethod
    def motions(self, place: Frame) -> Float[Array, "motions 6"]:
        """Free motions of the second frame where the joint is satisfied, in axes of the first.

        A row has the velocity of the second frame's origin, then the angular velocity.
        """

    def facing(self, place: Frame) -> Float[Array, ""]:
        """Positive on the meant branch of the equations, negative on that rotated by 180°."""
        return jnp.ones_like(place.origin[0])

    def coordinate(self, place: Frame) -> Float[Array, ""]:
        """Angle [rad] or displacement [m] of the joint's leading degree of freedom."""
        raise ValueError(f"A {type(self).__name__} has no single coordinate to couple.")

    def values(self, place: Frame) -> Float[Array, " steps"]:
        """Values of the steps where the joint is satisfied [m or rad], without those of a ball."""
        return self.coordinate(place)[None]

    def relations(self) -> tuple[tuple[int, int, Gear], ...]:
        """Leading step, following step and their gear, for a joint that has more steps than degrees
        of freedom."""
        return ()

    def with_parameter(self, value: Float[Array, ""]) -> "Joint":
        """The joint with another value of its `parameter`, checked."""
        return eqx.tree_at(lambda joint: getattr(joint, self.parameter), self, value)

    def taut(self) -> "Joint":
        """The joint while it acts: for a one-sided joint one that acts both ways."""
        return self


def twist(place: Frame) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sine and cosine of the rotation about the common z axis; (0, 0) only for opposite axes."""
    r = place.rotation
    sine, cosine = r[1, 0] - r[0, 1], r[0, 0] + r[1, 1]
    square = sine**2 + cosine**2
    # The root of zero has no derivative, even where it is not used.
    size = jnp.sqrt(jnp.where(square > 0, square, 1.0))
    return sine / size, cosine / size


def length(vector: Float[Array, " n"]) -> Float[Array, ""]:
    """Length of a vector, whose derivative at zero is zero."""
    square = vector @ vector
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def tilt(place: Frame) -> Float[Array, "2"]:
    """Components of the second z axis along x and y of the first: zero for parallel axes."""
    return place.rotation[:2, 2]
