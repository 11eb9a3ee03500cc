"""Mechanisms with closed loops, SI units."""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import numbers, positive
from jaxgrip.joints import Ball, Frame, Guide, Hinge, Joint
from jaxgrip.mechanism.loops import RESULTS, Loop, Mechanism, assemble
from jaxgrip.rigid import Placement, body_point, from_placements


class Squeezer(eqx.Module):
    """Andrews' squeezing mechanism: seven bodies, three loops, a spring and a constant torque.

    Fields: `mechanism`; `start` (7,), closed coordinates [rad]; `spring` stiffness [N/m],
    `spring_length` without force [m], `spring_from` (3,) on body "K3" in its frame and
    `spring_to` (3,) on the base [m]; `drive` [N m] on body "K1". Coordinates are in the order of
    `mechanism.coordinates`: beta of K1, Theta of K2, gamma of K3, delta of K5, Phi of K4, epsilon
    of K7, Omega of K6.

    Source: Mazzia 2008, problem andrews.
    """

    mechanism: Mechanism
    start: Float[Array, "7"]
    spring: Float[Array, ""]
    spring_length: Float[Array, ""]
    spring_from: Float[Array, "3"]
    spring_to: Float[Array, "3"]
    drive: Float[Array, ""]

    def spring_energy(self, q: Float[Array, "7"]) -> Float[Array, ""]:
        """Energy of the spring at `q` (7,) [J]."""
        end = body_point(self.mechanism.tree, q, "K3", self.spring_from)
        stretch = jnp.linalg.norm(end - self.spring_to) - self.spring_length
        return 0.5 * self.spring * stretch**2

    def torque(self, t, q: Float[Array, "7"], qd: Float[Array, "7"]) -> Float[Array, "7"]:
        """Torques (7,) of drive and spring [N m], for `mechanism.loops.simulate`."""
        return (-jax.grad(self.spring_energy)(q)).at[0].add(self.drive)


def andrews_squeezer() -> Squeezer:
    """Andrews' squeezing mechanism, which reaches 1e3 rad/s within 0.03 s.

    **Returns:** `Squeezer`, without gravity; its motion lies in the plane of x and y.

    Source: Mazzia 2008, problem andrews.
    """
    a, b = (-0.06934, -0.00227, 0.0), (-0.03635, 0.03273, 0.0)
    bodies = [
        # name, parent, joint in the parent, mass, inertia about the mass centre, mass centre
        ("K1", None, (0.0, 0.0, 0.0), 0.04325, 2.194e-6, (0.00092, 0.0, 0.0)),
        ("K2", "K1", (0.007, 0.0, 0.0), 0.00365, 4.410e-7, (-0.0115, 0.0, 0.0)),
        ("K3", None, b, 0.02373, 5.255e-6, (0.01043, -0.01874, 0.0)),
        ("K5", None, a, 0.07050, 1.169e-5, (0.02308, 0.00916, 0.0)),
        ("K4", "K5", (0.04, 0.0, 0.0), 0.00706, 5.667e-7, (0.0, -(0.02 - 0.01421), 0.0)),
        ("K7", None, a, 0.05498, 1.912e-5, (-0.00449, -0.01228, 0.0)),
        ("K6", "K7", (0.0, -0.04, 0.0), 0.00706, 5.667e-7, (0.02 - 0.01421, 0.0, 0.0)),
    ]
    tree = from_placements(
        [
            Placement(name, parent, at, mass, com, (inertia,) * 3)
            for name, parent, at, mass, inertia, com in bodies
        ],
        gravity=(0.0, 0.0, 0.0),
    )
    pin = np.array([[-0.028, 0.0, 0.0]])
    ends = {"K3": (0.0, -0.035, 0.0), "K4": (0.0, -0.02, 0.0), "K6": (0.02, 0.0, 0.0)}
    loops = [
        Loop(f"K2-{body}", Ball(), body, "K2", np.array([end]), pin) for body, end in ends.items()
    ]
    start = (
        -0.0617138900142764496,
        0.0,
        0.455279819163070380,
        0.487364979543842550,
        0.222668390165885885,
        1.23054744454982119,
        -0.222668390165885885,
    )
    return Squeezer(
        Mechanism(tree, loops),
        *map(jnp.asarray, (np.array(start), 4530.0, 0.07785)),
        jnp.array([0.02, -0.018, 0.0]),
        jnp.array([0.014, 0.072, 0.0]),
        jnp.asarray(0.033),
    )


class Linkage(NamedTuple):
    """A `mechanism` and closed coordinates `start` (n,) [rad or m] of it."""

    mechanism: Mechanism
    start: Float[Array, " n"]


def four_bar(
    *,
    lengths: ArrayLike | Sequence = (0.4, 0.1, 0.35, 0.3),
    masses: ArrayLike | Sequence = (0.5, 1.0, 0.8),
    angle: ArrayLike = 1.0,
    closure: Joint | None = None,
    gravity: ArrayLike | Sequence = (0.0, -9.81, 0.0),
) -> Linkage:
    """Four-bar linkage of slender rods in the plane of x and y.

    The crank rotates about the origin, the rocker about (ground, 0). The x axes of both and of the
    coupler lie along the rods. The coupler is a child of the crank and is joined to the rocker.

    **Arguments:**

    - `lengths`: (4,) of ground, crank, coupler and rocker [m].
    - `masses`: (3,) of crank, coupler and rocker [kg].
    - `angle` of the crank at the start [rad]; the coupler's joint is above the line from crank to
      rocker.
    - `closure`: joint between coupler and rocker, its axis along z; a hinge when None, which has
      three redundant equations in a plane.
    - `gravity`: (3,) [m/s^2].

    **Returns:** `Linkage` of bodies "crank", "coupler" and "rocker"; its start is NaN where traced
    rods do not meet.

    **Raises:** `ValueError` for wrong shapes and impossible numbers; `MechanismError` when the
    rods do not meet.
    """
    ground, *rods = positive("lengths of the four-bar", lengths, (4,), unit="m")
    mass = positive("masses of the four-bar", masses, (3,), unit="kg")
    zero = jnp.zeros_like(ground)
    feet = [jnp.stack([x, zero, zero]) for x in (zero, rods[0], ground)]
    parents = (None, "crank", None)
    names = ("crank", "coupler", "rocker")
    bodies = [
        Placement(name, parent, foot, m, *_rod(m, length))
        for name, parent, foot, m, length in zip(names, parents, feet, mass, rods, strict=True)
    ]
    tree = from_placements(bodies, gravity)
    ends = [Frame(jnp.stack([x, zero, zero]), jnp.eye(3)) for x in (rods[1], rods[2])]
    loop = Loop("pin", Hinge() if closure is None else closure, "rocker", "coupler", *ends[::-1])
    mechanism = Mechanism(tree, [loop])
    angle = numbers("angle of the four-bar", angle, ())
    # Intersection of circles about the end of the crank and the foot of the rocker.
    x, y = ground - rods[0] * jnp.cos(angle), -rods[0] * jnp.sin(angle)
    d = jnp.hypot(x, y)
    cosine = (d**2 + rods[1] ** 2 - rods[2] ** 2) / (2 * d * rods[1])
    coupler = jnp.arctan2(y, x) + jnp.arccos(jnp.clip(cosine, -0.999, 0.999))
    tip_x, tip_y = rods[1] * jnp.cos(coupler) - x, rods[1] * jnp.sin(coupler) - y
    guess = jnp.stack([angle, coupler - angle, jnp.arctan2(tip_y, tip_x)])
    return Linkage(mechanism, _closed(mechanism, guess, angle))


def slider_crank(
    *,
    lengths: ArrayLike | Sequence = (0.1, 0.3),
    masses: ArrayLike | Sequence = (0.5, 0.8, 1.2),
    angle: ArrayLike = 1.0,
    offset: ArrayLike = 0.0,
    gravity: ArrayLike | Sequence = (0.0, -9.81, 0.0),
) -> Linkage:
    """Slider-crank of slender rods in the plane of x and y, its slider on a guide along x.

    The crank rotates about the origin; the rod is its child, and the slider that of the rod. The
    spatial guide of the slider, with all its five equations, closes the loop.

    **Arguments:** `lengths`: (2,) of crank and rod [m]; `masses`: (3,) of crank, rod and slider
    [kg]; `angle` of the crank at the start [rad]; `offset` of the guide in y [m]; `gravity`: (3,)
    [m/s^2].

    **Returns:** `Linkage` of bodies "crank", "rod" and "slider", the slider in front; its start is
    NaN where a traced rod does not reach the guide.

    **Raises:** `ValueError` for wrong shapes and impossible numbers; `MechanismError` when the rod
    does not reach the guide.
    """
    crank, rod = positive("lengths of the slider-crank", lengths, (2,), unit="m")
    mass = positive("masses of the slider-crank", masses, (3,), unit="kg")
    offset = numbers("offset of the slider-crank", offset, ())
    angle = numbers("angle of the slider-crank", angle, ())
    zero = jnp.zeros_like(crank)
    bodies = [
        Placement("crank", None, (0.0, 0.0, 0.0), mass[0], *_rod(mass[0], crank)),
        Placement("rod", "crank", jnp.stack([crank, zero, zero]), mass[1], *_rod(mass[1], rod)),
        Placement(
            "slider",
            "rod",
            jnp.stack([rod, zero, zero]),
            mass[2],
            (0.0, 0.0, 0.0),
            jnp.broadcast_to(mass[2] * 1e-3, (3,)),
        ),
    ]
    tree = from_placements(bodies, gravity)
    # The z axis of the guide is its direction.
    axes = jnp.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    guide = Frame(jnp.stack([zero, offset, zero]), axes)
    loop = Loop("guide", Guide(), None, "slider", guide, Frame(jnp.zeros(3), axes))
    mechanism = Mechanism(tree, [loop])
    sine = (offset - crank * jnp.sin(angle)) / rod
    tilt = jnp.arcsin(jnp.clip(sine, -0.999, 0.999))
    guess = jnp.stack([angle, tilt - angle, -tilt])
    return Linkage(mechanism, _closed(mechanism, guess, angle))


def _closed(mechanism: Mechanism, guess: Array, angle: Array) -> Array:
    found = assemble(mechanism, guess, {"crank": angle})
    return jnp.where(found.result == RESULTS.successful, found.q, jnp.nan)


def _rod(mass: Array, length: Array) -> tuple[Array, Array]:
    """Centre of mass and inertia of a slender rod along x, a hundredth of it about x."""
    zero = jnp.zeros_like(length)
    across = mass * length**2 / 12
    return jnp.stack([length / 2, zero, zero]), jnp.stack([across / 100, across, across])
