"""A planar double-wishbone suspension of a wheel, SI units."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import non_negative, numbers, positive
from jaxgrip.mechanism.historical.planar import FourBar, joints


class Wishbone(eqx.Module):
    """A wheel carrier on two arms, with a spring-damper strut on the lower arm.

    It lies in a plane with x lateral and z up. Its one degree of freedom is the angle of the lower
    arm [rad], zero in the position as built, where the strut is unstressed.

    **Fields:** `linkage`, a four-bar of lower arm, carrier, upper arm and the chassis between
    their joints, with the load point as its coupler point; `branch` of it; `masses` (3,) [kg] and
    `inertias` (3,) about the mass centres [kg m^2] of lower arm, carrier and upper arm;
    `strut_anchor` (2,) on the chassis [m]; `strut_reach` along the lower arm [m]; `stiffness`
    [N/m]; `damping` [N s/m]; `free_length` [m]; `start`: angle of the lower arm from x at
    coordinate zero [rad]; `gravity` (2,) [m/s^2].

    Source: own derivation, for the suspension of Kracht 2017.
    """

    linkage: FourBar
    branch: Float[Array, ""]
    masses: Float[Array, "3"]
    inertias: Float[Array, "3"]
    strut_anchor: Float[Array, "2"]
    strut_reach: Float[Array, ""]
    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    free_length: Float[Array, ""]
    start: Float[Array, ""]
    gravity: Float[Array, "2"]

    def layout(self, angle: ArrayLike) -> "Layout":
        """Positions of all parts at an angle of the lower arm [rad]."""
        phi = angle + self.start - self.linkage.direction
        at = joints(self.linkage, phi, self.branch)
        arm = at.A - at.A0
        strut = self.strut_anchor - at.A0 - arm * self.strut_reach / self.linkage.crank
        return Layout(
            jnp.stack([(at.A0 + at.A) / 2, (at.A + at.B) / 2, (at.B0 + at.B) / 2]),
            jnp.stack([arm, at.B - at.A, at.B - at.B0]),
            at.C,
            jnp.linalg.norm(strut),
        )

    def inertia(self, angle: ArrayLike) -> Float[Array, ""]:
        """Inertia J [kg m^2] of the coordinate a, in J a'' + J' a'^2 / 2 = Q."""
        at, per_angle = _derivatives(self.layout, angle, 1)
        angular = _rotation(at.links, per_angle.links)
        return self.masses @ jnp.sum(per_angle.centres**2, axis=1) + self.inertias @ angular**2

    def energy(self, state: Float[Array, "2"]) -> Float[Array, ""]:
        """Kinetic and potential energy [J] in a state: angle [rad] and rate [rad/s]."""
        at = self.layout(state[0])
        kinetic = self.inertia(state[0]) * state[1] ** 2 / 2
        spring = self.stiffness * (at.strut - self.free_length) ** 2 / 2
        return kinetic + spring - self.masses @ (at.centres @ self.gravity)

    def rate(self, state: Float[Array, "2"], load: ArrayLike = 0.0) -> Float[Array, "2"]:
        """Rate of change of a state under a vertical load on the carrier.

        **Arguments:** `state`: (2,) angle [rad] and rate [rad/s]; `load`: upward on the load
        point [N].
        """
        angle, speed = state
        at, first, second = _derivatives(self.layout, angle, 2)
        angular, bend = _rotation(at.links, first.links), _rotation(at.links, second.links)
        inertia = self.masses @ jnp.sum(first.centres**2, axis=1) + self.inertias @ angular**2
        half_slope = self.masses @ jnp.sum(first.centres * second.centres, axis=1)
        half_slope = half_slope + self.inertias @ (angular * bend)
        strut = self.stiffness * (at.strut - self.free_length) + self.damping * first.strut * speed
        weight = self.masses @ (first.centres @ self.gravity)
        force = load * first.point[1] + weight - strut * first.strut
        return jnp.stack([speed, (force - half_slope * speed**2) / inertia])


class Layout(NamedTuple):
    """Mass centres `centres` (3, 2) and vectors along `links` (3, 2) of lower arm, carrier and
    upper arm, load `point` (2,), and length of the `strut` [m]."""

    centres: Float[Array, "3 2"]
    links: Float[Array, "3 2"]
    point: Float[Array, "2"]
    strut: Float[Array, ""]


def _derivatives(f: Callable[[Array], Layout], x: ArrayLike, order: int) -> tuple[Layout, ...]:
    """f and its derivatives up to an order."""
    if order == 0:
        return (f(x),)
    x = jnp.asarray(x, float)
    values, slopes = jax.jvp(lambda y: _derivatives(f, y, order - 1), (x,), (jnp.ones_like(x),))
    return (*values, slopes[-1])


def _rotation(links: Array, slopes: Array) -> Array:
    """Rotation of links of constant length for changes `slopes` of their vectors."""
    across = links[:, 0] * slopes[:, 1] - links[:, 1] * slopes[:, 0]
    return across / jnp.sum(links**2, axis=1)


def double_wishbone(
    *,
    lower: ArrayLike | Sequence = ((0.0, 0.0), (0.4, 0.0)),
    upper: ArrayLike | Sequence = ((0.05, 0.3), (0.35, 0.3)),
    load_point: ArrayLike | Sequence = (0.5, -0.2),
    masses: ArrayLike | Sequence = (3.0, 25.0, 2.0),
    carrier_inertia: ArrayLike = 0.5,
    strut_anchor: ArrayLike | Sequence = (0.15, 0.45),
    strut_reach: ArrayLike = 0.28,
    stiffness: ArrayLike = 20e3,
    damping: ArrayLike = 1500.0,
    gravity: ArrayLike | Sequence = (0.0, 0.0),
) -> Wishbone:
    """Double wishbone with given hard points and uniform arms; all numbers may be traced.

    **Arguments:**

    - `lower`, `upper`: (2, 2) inner and outer joint of an arm [m], rows of x and z.
    - `load_point`: (2,) on the carrier [m].
    - `masses`: (3,) of lower arm, carrier and upper arm [kg]; the mass centre of the carrier is
      midway between its joints.
    - `carrier_inertia`: about that point [kg m^2].
    - `strut_anchor`: (2,) on the chassis [m]; `strut_reach`: from the inner joint along the lower
      arm [m]; `stiffness` [N/m]; `damping` [N s/m].
    - `gravity`: (2,) [m/s^2].

    **Returns:** `Wishbone`.

    **Raises:** `ValueError` for wrong shapes and impossible numbers.

    Source: Kracht 2017 for the topology; own choice of the numbers, of which it prints none.
    """
    lower = numbers("lower arm of the suspension", lower, (2, 2))
    upper = numbers("upper arm of the suspension", upper, (2, 2))
    masses = positive("masses of the suspension", masses, (3,), unit="kg")
    carrier = positive("carrier_inertia of the suspension", carrier_inertia, ())
    anchor = numbers("strut_anchor of the suspension", strut_anchor, (2,))
    reach = positive("strut_reach of the suspension", strut_reach, (), unit="m")
    arm, link, top, base = (
        lower[1] - lower[0],
        upper[1] - lower[1],
        upper[1] - upper[0],
        upper[0] - lower[0],
    )
    sizes = [jnp.linalg.norm(x) for x in (arm, link, top, base)]
    along = link / sizes[1]
    outside = numbers("load_point of the suspension", load_point, (2,)) - lower[1]
    linkage = FourBar(
        *sizes,
        point=jnp.stack([along @ outside, along[0] * outside[1] - along[1] * outside[0]]),
        origin=lower[0],
        direction=jnp.arctan2(base[1], base[0]),
    )
    # The upper outer joint is to the left of the line from the lower outer to the upper inner one.
    diagonal = upper[0] - lower[1]
    foot = lower[0] + arm * reach / sizes[0]
    return Wishbone(
        linkage=linkage,
        branch=jnp.sign(diagonal[0] * link[1] - diagonal[1] * link[0]),
        masses=masses,
        inertias=jnp.stack(
            [masses[0] * sizes[0] ** 2 / 12, carrier, masses[2] * sizes[2] ** 2 / 12]
        ),
        strut_anchor=anchor,
        strut_reach=reach,
        stiffness=non_negative("stiffness of the suspension", stiffness, ()),
        damping=non_negative("damping of the suspension", damping, ()),
        free_length=jnp.linalg.norm(anchor - foot),
        start=jnp.arctan2(arm[1], arm[0]),
        gravity=numbers("gravity of the suspension", gravity, (2,)),
    )
