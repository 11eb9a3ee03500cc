"""A gripper with two four-bar fingers and one drive, SI units."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import numbers, positive
from jaxgrip.joints import Frame, Gear, Hinge
from jaxgrip.mechanism.historical.planar import FourBar, position
from jaxgrip.mechanism.loops import Coupling, Loop, Mechanism
from jaxgrip.rigid import Placement, from_placements
from jaxgrip.spatial import rotation_z

SIDES = ("left", "right")


class LinkageFinger(eqx.Module):
    """Two mirrored four-bar fingers in the plane of x and y, one degree of freedom.

    **Fields:** `mechanism` of bodies "left_crank", "left_tip", "left_rocker" and the same right,
    a hinge between tip and rocker that closes each finger, and a right crank that follows the left;
    `start` (6,) closed coordinates, all zero [rad]; `tip` (3,), the finger tip in the frame of
    "left_tip" and, with its y mirrored, of "right_tip" [m]; `linkage`, the left finger as a
    four-bar, and `crank_start`, the angle of its crank from its frame at the start [rad].
    """

    mechanism: Mechanism
    start: Float[Array, "6"]
    tip: Float[Array, "3"]
    linkage: FourBar
    crank_start: Float[Array, ""]


def linkage_finger(
    *,
    lengths: ArrayLike | Sequence = (0.06, 0.032, 0.058, 0.035),
    masses: ArrayLike | Sequence = (0.03, 0.05, 0.02),
    pivot: ArrayLike | Sequence = (-0.03, 0.0),
    direction: ArrayLike = 2.8,
    crank_start: ArrayLike = -1.05,
    tip: ArrayLike | Sequence = (0.0, -0.06),
    gravity: ArrayLike | Sequence = (0.0, -9.81, 0.0),
) -> LinkageFinger:
    """Gripper with two four-bar fingers, the second driven by a mimic joint.

    Links are slender rods. Every number may be traced.

    **Arguments:**

    - `lengths`: (4,) of crank, tip link (the coupler), rocker and frame of a finger [m].
    - `masses`: (3,) of crank, tip link and rocker [kg].
    - `pivot`: (2,) of the left crank [m]; the right one is mirrored at the y axis.
    - `direction`: angle from x to the line from the left finger's crank pivot to its rocker pivot
      [rad].
    - `crank_start`: angle of the left crank from that line at zero coordinates [rad].
    - `tip`: (2,) of the left finger from the crank's end, along the tip link and to its left [m].
    - `gravity`: (3,) [m/s^2].

    **Returns:** `LinkageFinger`.

    **Raises:** `ValueError` for wrong shapes, impossible numbers, and a finger that does not close
    at the start.
    """
    sizes = positive("lengths of the finger", lengths, (4,), unit="m")
    mass = positive("masses of the finger", masses, (3,), unit="kg")
    pivot = numbers("pivot of the finger", pivot, (2,))
    tip = numbers("tip of the finger", tip, (2,))
    direction = numbers("direction of the finger", direction, ())
    crank_start = numbers("crank_start of the finger", crank_start, ())
    linkage = FourBar(*sizes, point=tip, origin=pivot, direction=direction)
    # The branch with the rocker outside the crank.
    theta, psi = position(linkage, crank_start, -1)
    zero = jnp.zeros_like(direction)
    foot = pivot + sizes[3] * jnp.stack([jnp.cos(direction), jnp.sin(direction)])
    bodies, loops = [], []
    for side, sign in zip(SIDES, (1.0, -1.0), strict=True):

        def placement(name, parent, at, angle, k, side=side):
            across = mass[k] * sizes[k] ** 2 / 12
            return Placement(
                f"{side}_{name}",
                parent and f"{side}_{parent}",
                jnp.stack([*at, zero]),
                mass[k],
                jnp.stack([sizes[k] / 2, zero, zero]),
                jnp.stack([across / 100, across, across]),
                rotation=rotation_z(angle),
            )

        def mirrored(x, sign=sign):
            return jnp.stack([sign * x[0], x[1]])

        def mirrored_angle(angle, sign=sign):
            return sign * angle + (0.0 if sign > 0 else np.pi)

        bodies += [
            placement("crank", None, mirrored(pivot), mirrored_angle(direction + crank_start), 0),
            placement("tip", "crank", (sizes[0], zero), sign * (theta - crank_start), 1),
            placement("rocker", None, mirrored(foot), mirrored_angle(direction + psi), 2),
        ]
        ends = [Frame(jnp.stack([sizes[k], zero, zero]), jnp.eye(3)) for k in (2, 1)]
        loops.append(Loop(f"{side}_pin", Hinge(), f"{side}_rocker", f"{side}_tip", *ends))
    coupling = Coupling("closing", Gear(-1.0), "left_crank", "right_crank")
    return LinkageFinger(
        Mechanism(from_placements(bodies, gravity), loops, [coupling]),
        jnp.zeros(6),
        jnp.stack([tip[0], tip[1], zero]),
        linkage,
        crank_start,
    )
