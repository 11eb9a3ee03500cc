"""Planar four-bar linkages in closed form: position, cognates, synthesis, curvature.

Functions are of one crank angle and branch; `vmap` makes curves of them. Where a linkage does not
close they raise, or give NaN for traced numbers. Lengths may be in any one unit.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import concrete, numbers, positive
from jaxgrip.solve import dense

# Rounding may take the root of a linkage this far below zero at the limits of its motion.
ROOT_SLACK = 1e-12
SINGULAR = 1e12


class FourBar(eqx.Module):
    """A four-bar linkage A0-A-B-B0 with a coupler point C.

    The crank is A0A, the coupler AB, the rocker B0B, the frame A0B0.

    **Arguments:**

    - `crank`, `coupler`, `rocker`, `frame`: lengths a, b, c and d.
    - `point`: (2,), C from A, along AB and to the left of it.
    - `origin`: (2,), position of A0; `direction`: angle of A0B0 in the plane [rad].

    **Raises:** `ValueError` for a length that is not positive or exceeds the sum of the others.

    Source: Gössner 2017, eq. 2-5.
    """

    crank: Float[Array, ""]
    coupler: Float[Array, ""]
    rocker: Float[Array, ""]
    frame: Float[Array, ""]
    point: Float[Array, "2"]
    origin: Float[Array, "2"]
    direction: Float[Array, ""]

    def __init__(
        self, crank, coupler, rocker, frame, *, point=(0.0, 0.0), origin=(0.0, 0.0), direction=0.0
    ):
        self.crank = positive("The crank of a four-bar", crank, ())
        self.coupler = positive("The coupler of a four-bar", coupler, ())
        self.rocker = positive("The rocker of a four-bar", rocker, ())
        self.frame = positive("The frame of a four-bar", frame, ())
        self.point = numbers("The coupler point of a four-bar", point, (2,))
        self.origin = numbers("The origin of a four-bar", origin, (2,))
        self.direction = numbers("The direction of a four-bar", direction, ())
        if all(map(concrete, self.lengths)):
            size = np.asarray(self.lengths)
            k = int(np.argmax(size))
            if size[k] > size.sum() - size[k]:
                raise ValueError(
                    f"A four-bar with the {LINKS[k]} {size[k]:g} never closes: the other "
                    f"lengths have the sum {size.sum() - size[k]:g}."
                )

    @property
    def lengths(self) -> tuple[Array, Array, Array, Array]:
        """Crank, coupler, rocker, frame."""
        return self.crank, self.coupler, self.rocker, self.frame


LINKS = ("crank", "coupler", "rocker", "frame")


class Position(NamedTuple):
    """Angles of the coupler, `theta`, and of the rocker, `psi`, from the frame A0B0 [rad]."""

    theta: Float[Array, ""]
    psi: Float[Array, ""]


class Joints(NamedTuple):
    """Positions (2,) of the joints and of the coupler point in the plane."""

    A0: Float[Array, "2"]
    A: Float[Array, "2"]
    B: Float[Array, "2"]
    B0: Float[Array, "2"]
    C: Float[Array, "2"]


def position(linkage: FourBar, phi: ArrayLike, branch: ArrayLike = 1) -> Position:
    """Angles of coupler and rocker at a crank angle.

    **Arguments:** `linkage`; `phi`: crank angle from the frame [rad]; `branch`: 1 with B to the
    left of the line from A to B0, -1 with B to the right.

    **Returns:** `Position`, in (-pi, pi]; NaN where traced numbers do not close. The derivative is
    not finite there, nor at the limits of the crank.

    **Raises:** `ValueError` where the linkage does not close at this angle.

    Source: Gössner 2017, eq. 2-5.
    """
    _, b, c, d = linkage.lengths
    a = linkage.crank
    x, y = d - a * jnp.cos(phi), -a * jnp.sin(phi)
    square = x * x + y * y
    along = (square + b * b - c * c) / (2 * square)
    root = b * b / square - along * along
    closes = root >= -ROOT_SLACK
    if concrete(closes) and not np.all(closes):
        raise ValueError(
            f"The four-bar does not close at the crank angle {np.rad2deg(phi):g}°: A and B0 are "
            f"{float(jnp.sqrt(square)):g} apart, coupler and rocker reach from "
            f"{abs(float(b - c)):g} to {float(b + c):g}."
        )
    # At the limit of closure the angles have no derivative, which then is not finite.
    beside = branch * jnp.sqrt(jnp.where(closes, jnp.maximum(root, 0.0), jnp.nan))
    # B - A as components along the line from A to B0 and along its left normal.
    u, v = along * x - beside * y, along * y + beside * x
    return Position(jnp.arctan2(v, u), jnp.arctan2(v - y, u - x))


def joints(linkage: FourBar, phi: ArrayLike, branch: ArrayLike = 1) -> Joints:
    """Positions of the joints and of the coupler point.

    **Arguments, raises:** as of `position`.

    **Returns:** `Joints`, with the origin and the direction of the linkage.
    """
    theta, _ = position(linkage, phi, branch)
    direction = linkage.direction
    a = linkage.origin + linkage.crank * _unit(phi + direction)
    along = _unit(theta + direction)
    return Joints(
        linkage.origin,
        a,
        a + linkage.coupler * along,
        linkage.origin + linkage.frame * _unit(direction),
        a + _times(linkage.point, along),
    )


def transmission_angle(linkage: FourBar, phi: ArrayLike) -> Float[Array, ""]:
    """Angle between coupler and rocker at B in (0, pi) [rad]; best at pi/2, no force at 0 and pi.

    **Arguments, raises:** as of `position`; the same on both branches.
    """
    theta, psi = position(linkage, phi)
    return jnp.arctan2(jnp.sin(psi - theta), jnp.cos(psi - theta))


def grashof(linkage: FourBar) -> str:
    """Which links can rotate fully (Grashof).

    **Arguments:** `linkage`, whose numbers are not traced.

    **Returns:** "crank-rocker", the crank alone; "rocker-crank", the rocker alone;
    "double-crank", crank and rocker; "double-rocker", the coupler alone; "triple-rocker", none;
    "change-point", where all links can be on one line.
    """
    size = np.asarray(linkage.lengths)
    excess = size.sum() - 2 * (size.min() + size.max())
    if abs(excess) <= ROOT_SLACK * size.sum():
        return "change-point"
    if excess < 0:
        return "triple-rocker"
    return ("crank-rocker", "double-rocker", "rocker-crank", "double-crank")[int(np.argmin(size))]


class DeadCentres(NamedTuple):
    """Where the rocker reverses: `phi` (2,) and `psi` (2,) [rad] in [0, 2 pi), first with the
    coupler extending the crank, then folded over it."""

    phi: Float[Array, "2"]
    psi: Float[Array, "2"]


def dead_centres(linkage: FourBar, branch: ArrayLike = 1) -> DeadCentres:
    """Limits of the rocker, where crank and coupler are on a line.

    **Arguments:** `linkage`; `branch` as of `position`.

    **Returns:** `DeadCentres`; NaN where traced numbers have none.

    **Raises:** `ValueError` when the rocker has no such limits.
    """
    a, b, c, d = linkage.lengths
    reach = jnp.stack([a + b, jnp.abs(b - a)])
    cosine = (reach**2 + d * d - c * c) / (2 * reach * d)
    if concrete(cosine) and not np.all(np.abs(cosine) <= 1):
        raise ValueError(
            f"The rocker of this {grashof(linkage)} four-bar has no two limits: crank and coupler "
            "cannot be on a line both extended and folded."
        )
    # Folded over a longer coupler, the crank points away from B; over a shorter one B changes side.
    opposite = b > a
    side = jnp.stack([jnp.ones_like(a), jnp.where(opposite, 1.0, -1.0).astype(a.dtype)]) * branch
    shift = jnp.stack([jnp.zeros_like(a), jnp.where(opposite, jnp.pi, 0.0).astype(a.dtype)])
    phi = side * jnp.arccos(cosine) + shift
    psi = jnp.pi - side * jnp.arccos((c * c + d * d - reach**2) / (2 * c * d))
    return DeadCentres(jnp.mod(phi, 2 * jnp.pi), jnp.mod(psi, 2 * jnp.pi))


def cognates(linkage: FourBar) -> tuple[FourBar, FourBar]:
    """The two other four-bars whose coupler point draws the same curve (Roberts).

    The first stands on A0 and C0, the second on B0 and C0. Their cranks rotate with the coupler of
    the linkage, see `cognate_cranks`.

    **Arguments:** `linkage`, whose coupler point is neither A nor B.

    **Returns:** two `FourBar`, A0-A1-C1-C0 and B0-B2-C2-C0.

    **Raises:** `ValueError` for a coupler point at A or B, which draws an arc.

    Source: Gössner 2017, eq. 6-10, with r_BB0 for r_B0B in the first term of eq. 9.
    """
    a, b, c, d = linkage.lengths
    z = linkage.point / b
    rest = jnp.array([1.0, 0.0], z.dtype) - z
    for name, ratio in (("A", z), ("B", rest)):
        if concrete(ratio) and not np.any(ratio):
            raise ValueError(
                f"The coupler point is at {name} and draws an arc; cognates need another one."
            )
    first, second = jnp.linalg.norm(z), jnp.linalg.norm(rest)
    return (
        FourBar(
            first * b,
            first * a,
            first * c,
            first * d,
            point=_inverse(z) * first * a,
            origin=linkage.origin,
            direction=linkage.direction + _angle(z),
        ),
        FourBar(
            second * b,
            second * c,
            second * a,
            second * d,
            point=_inverse(rest) * second * c,
            origin=linkage.origin + d * _unit(linkage.direction),
            direction=linkage.direction + _angle(-rest),
        ),
    )


def cognate_cranks(
    linkage: FourBar, phi: ArrayLike, branch: ArrayLike = 1
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Crank angle [rad] and branch with which each of the `cognates` draws the same point.

    **Arguments, raises:** as of `position`, for the linkage itself.
    """
    theta, psi = position(linkage, phi, branch)
    side = jnp.sign(jnp.sin(psi - phi))
    return (theta, side), (theta, -side)


class Synthesis(NamedTuple):
    """A `linkage` found for three positions.

    `branch` (3,): of each position, 1 or -1; where they differ the linkage must be taken apart to
    get from one position to another. `condition`: of the linear equations.
    """

    linkage: FourBar
    branch: Float[Array, "3"]
    condition: Float[Array, ""]

    def warnings(self) -> tuple[str, ...]:
        """Sentences on what to know before the linkage is built."""
        sides = np.asarray(self.branch)
        if np.all(sides == sides[0]):
            return ()
        words = ", ".join(f"{side:+.0f}" for side in sides)
        return (
            f"The three positions are on the branches {words}: the linkage reaches all of them "
            "only if it is taken apart in between.",
        )


def freudenstein(
    phi: ArrayLike | Sequence, psi: ArrayLike | Sequence, frame: ArrayLike = 1.0
) -> Synthesis:
    """Four-bar through three pairs of crank and rocker angles (Freudenstein).

    **Arguments:** `phi`, `psi`: (3,) angles of crank and rocker from the frame [rad], well apart,
    see `chebyshev_spacing`; `frame`: its length.

    **Returns:** `Synthesis`; traced numbers may give negative lengths or NaN.

    **Raises:** `ValueError` for a singular system, and for a link that comes out with a negative
    length (prolonged beyond its pivot) or an imaginary one.

    Source: Gössner 2017, eq. 11-14.
    """
    phi, psi = numbers("phi", phi, (3,)), numbers("psi", psi, (3,))
    d = positive("The frame of a four-bar", frame, ())
    rows = jnp.stack([jnp.cos(psi), -jnp.cos(phi), jnp.ones_like(phi)], axis=1)
    condition = _condition(rows, "Two of the three positions are the same or nearly so")
    k = dense.solve(rows, jnp.cos(psi - phi))
    a, c = d / k[0], d / k[1]
    square = a * a + c * c + d * d - 2 * a * c * k[2]
    for name, pivot, size in (("crank", "A0", a), ("rocker", "B0", c)):
        if concrete(size) and not float(size) > 0:
            raise ValueError(
                f"The {name} has the length {float(size):g}: it points away from its angle at "
                f"{pivot}. Measure this from the opposite direction, or choose other positions."
            )
    if concrete(square) and not float(square) > 0:
        raise ValueError(
            "No coupler joins these positions: the square of its length is "
            f"{float(square):g}. Choose other positions."
        )
    b = jnp.sqrt(jnp.where(square > 0, square, jnp.nan))
    return _found(FourBar(a, b, c, d), phi, psi, condition)


def volmer(
    phi: ArrayLike | Sequence, swing: ArrayLike | Sequence, crank: ArrayLike, frame: ArrayLike
) -> Synthesis:
    """Four-bar of given crank and frame for three crank angles and two rotations of the rocker.

    **Arguments:** `phi`: (3,) crank angles from the frame [rad]; `swing`: (2,) rotations of the
    rocker from the first position to the second and to the third [rad]; `crank`, `frame`: lengths.

    **Returns:** `Synthesis`.

    **Raises:** `ValueError` when the three crank pins, seen from the rocker, are on a line.

    Source: three-angle coordination after Volmer, Gössner 2017, section 3.3.
    """
    phi, swing = numbers("phi", phi, (3,)), numbers("swing", swing, (2,))
    a = positive("The crank of a four-bar", crank, ())
    d = positive("The frame of a four-bar", frame, ())
    pivot = jnp.stack([d, jnp.zeros_like(d)])
    pins = [a * _unit(angle) - pivot for angle in phi]
    # Crank pins as seen from the rocker in its first position: B1 has the same distance from each.
    pins[1:] = [_times(pin, _unit(-angle)) for pin, angle in zip(pins[1:], swing, strict=True)]
    rows = jnp.stack([pins[1] - pins[0], pins[2] - pins[0]])
    condition = _condition(rows, "The crank pins, seen from the rocker, are on a line")
    right = jnp.stack(
        [pins[1] @ pins[1] - pins[0] @ pins[0], pins[2] @ pins[2] - pins[0] @ pins[0]]
    )
    joint = dense.solve(rows, right / 2)
    linkage = FourBar(a, jnp.linalg.norm(joint - pins[0]), jnp.linalg.norm(joint), d)
    psi = _angle(joint) + jnp.concatenate([jnp.zeros(1, swing.dtype), swing])
    return _found(linkage, phi, psi, condition)


def chebyshev_spacing(low: ArrayLike, high: ArrayLike, count: int = 3) -> Float[Array, " count"]:
    """`count` positions in a range, spaced to keep the error between them small.

    **Arguments:** `low`, `high`: ends of the range; `count`.
    """
    angle = (2 * np.arange(1, count + 1) - 1) * np.pi / (2 * count)
    return (low + high) / 2 - (high - low) / 2 * jnp.asarray(np.cos(angle))


class Inflection(NamedTuple):
    """Points (2,) of the coupler's motion: `pole` P, its instantaneous centre of rotation;
    `on_A` and `on_B`, points of the inflection circle on the rays of crank and rocker;
    `inflection_pole` W, opposite to P on that circle. Paths are straight there to second order."""

    pole: Float[Array, "2"]
    on_A: Float[Array, "2"]
    on_B: Float[Array, "2"]
    inflection_pole: Float[Array, "2"]


def inflection(linkage: FourBar, phi: ArrayLike, branch: ArrayLike = 1) -> Inflection:
    """Pole, inflection circle and inflection pole of the coupler (Bobillier, Euler-Savary).

    **Arguments:** as of `position`.

    **Returns:** `Inflection`; not finite where traced crank and rocker are parallel.

    **Raises:** `ValueError` as `position`, and where crank and rocker are parallel.

    Source: the construction after Bobillier, Gössner 2017, section 3.1.
    """
    at = joints(linkage, phi, branch)
    _, psi = position(linkage, phi, branch)
    crank, rocker = _unit(phi + linkage.direction), _unit(psi + linkage.direction)
    across = _cross(crank, rocker)
    if concrete(across) and not abs(float(across)) > ROOT_SLACK:
        raise ValueError(
            "Crank and rocker are parallel: the coupler translates and its pole is at infinity."
        )
    pole = at.A0 + crank * _cross(at.B0 - at.A0, rocker) / across
    on_a = at.A - crank * jnp.sum((at.A - pole) ** 2) / linkage.crank
    on_b = at.B - rocker * jnp.sum((at.B - pole) ** 2) / linkage.rocker
    foot = jnp.stack([crank @ on_a, rocker @ on_b])
    opposite = dense.solve(jnp.stack([crank, rocker]), foot)
    return Inflection(pole, on_a, on_b, opposite)


def _found(linkage: FourBar, phi: Array, psi: Array, condition: Array) -> Synthesis:
    a, _, c, d = linkage.lengths
    x = d + c * jnp.cos(psi) - a * jnp.cos(phi)
    y = c * jnp.sin(psi) - a * jnp.sin(phi)
    # B is on the side of the line from A to B0 that the rocker is on of the coupler.
    return Synthesis(linkage, jnp.sign(x * jnp.sin(psi) - y * jnp.cos(psi)), condition)


def _condition(rows: Array, why: str) -> Array:
    condition = dense.condition(rows)
    if concrete(condition) and not float(condition) < SINGULAR:
        raise ValueError(f"{why}: the equations are singular. Choose other positions.")
    return condition


def _unit(angle: ArrayLike) -> Array:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def _angle(z: Array) -> Array:
    return jnp.arctan2(z[1], z[0])


def _cross(u: Array, v: Array) -> Array:
    return u[0] * v[1] - u[1] * v[0]


def _times(z: Array, w: Array) -> Array:
    """Product of two complex numbers."""
    return jnp.stack([z[0] * w[0] - z[1] * w[1], z[0] * w[1] + z[1] * w[0]])


def _inverse(z: Array) -> Array:
    return jnp.stack([z[0], -z[1]]) / (z @ z)
