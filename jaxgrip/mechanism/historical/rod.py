"""Rods on universal joints as blocks: accelerations are passed outward, forces back.

A rod lies along x of its frame, which is rotated by phi about z of the ground, then by theta about
the negative y. States are (4,): theta, phi [rad] and their rates [rad/s]. Forces and accelerations
between blocks are in ground axes. The accelerations of the ends are linear in the forces, so that
the forces between the blocks of a chain or a loop follow from one linear equation (`chain`,
`joint_force`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import brief, concrete, non_negative, numbers, positive
from jaxgrip.rigid.builders import GRAVITY
from jaxgrip.solve import dense

MODES = ("exact", "printed")


class Strut(eqx.Module):
    """A spring and a damper between an anchor and a point of a rod whose joint is on the ground.

    **Arguments:** `anchor`: (3,), from the rod's joint in ground axes [m]; `reach`: from the joint
    to the point along the rod [m]; `stiffness` [N/m]; `damping` [N s/m]; `free_length` [m], see
    `unstressed`.

    **Raises:** `ValueError` for an impossible number.

    Source: Kracht 2017, eq. 19-24.
    """

    anchor: Float[Array, "3"]
    reach: Float[Array, ""]
    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    free_length: Float[Array, ""]

    def __init__(self, anchor, reach, stiffness, damping, free_length):
        self.anchor = numbers("The anchor of a strut", anchor, (3,))
        self.reach = positive("The reach of a strut", reach, (), unit="m")
        self.stiffness = non_negative("The stiffness of a strut", stiffness, ())
        self.damping = non_negative("The damping of a strut", damping, ())
        self.free_length = non_negative("The free length of a strut", free_length, ())


class Rod(eqx.Module):
    """A symmetric rod on a universal joint, its mass centre in the middle.

    **Arguments:**

    - `length` [m]; `mass` [kg].
    - `inertia`: (3,) about the mass centre, along and across the rod [kg m^2]; that of a thin
      rod when None.
    - `gravity`: (3,) [m/s^2].
    - `strut`: a `Strut` that acts on the rod, or None.
    - `mode`: "exact"; or "printed", the equations of the source, which leave out the moment that
      a universal joint exerts and do not conserve energy where both angles move.

    **Raises:** `ValueError` for an impossible number or an unknown mode.

    Source: Kracht 2017, eq. 1-18.
    """

    length: Float[Array, ""]
    mass: Float[Array, ""]
    inertia: Float[Array, "3"]
    gravity: Float[Array, "3"]
    strut: Strut | None
    mode: str = eqx.field(static=True)

    def __init__(
        self, length, mass, inertia=None, *, gravity=GRAVITY, strut=None, mode: str = "exact"
    ):
        self.length = positive("The length of a rod", length, (), unit="m")
        self.mass = positive("The mass of a rod", mass, (), unit="kg")
        if inertia is None:
            inertia = jnp.array([0.0, 1.0, 1.0]) * (self.mass * self.length**2 / 12)
        self.inertia = non_negative("The inertia of a rod", inertia, (3,))
        self.gravity = numbers("The gravity of a rod", gravity, (3,))
        self.strut = strut
        if mode not in MODES:
            raise ValueError(f"A rod has no mode {brief(mode)}; modes are {' and '.join(MODES)}.")
        if mode == "printed" and concrete(self.inertia):
            along, *across = np.asarray(self.inertia)
            if along == 0 and across[0] != across[1]:
                raise ValueError(
                    "The printed equations need an inertia along the rod, or the same one about "
                    "both axes across it."
                )
        self.mode = mode


class Block(NamedTuple):
    """`rate` (4,) of the state; `acceleration` (3,) of the outer end B [m/s^2]; `force` (3,) on
    the rod in its joint A [N]."""

    rate: Float[Array, "4"]
    acceleration: Float[Array, "3"]
    force: Float[Array, "3"]


def rotation(theta: ArrayLike, phi: ArrayLike) -> Float[Array, "3 3"]:
    """Ground axes to axes of the rod. Source: Kracht 2017, eq. 1."""
    s, c, sp, cp = jnp.sin(theta), jnp.cos(theta), jnp.sin(phi), jnp.cos(phi)
    zero = jnp.zeros_like(s)
    rows = [[c * cp, c * sp, s], [-sp, cp, zero], [-s * cp, -s * sp, c]]
    return jnp.stack([jnp.stack(row) for row in rows])


def strut_length(strut: Strut, angles: Float[Array, "2"]) -> Float[Array, ""]:
    """Length of a strut [m] at theta and phi of its rod (2,). Source: Kracht 2017, eq. 21."""
    return jnp.linalg.norm(strut.anchor - strut.reach * rotation(*angles)[0])


def unstressed(strut: Strut, angles: ArrayLike | Sequence) -> Strut:
    """The strut with the free length without force at theta and phi of its rod (2,)."""
    free = strut_length(strut, numbers("The pair of angles of a rod", angles, (2,)))
    return eqx.tree_at(lambda s: s.free_length, strut, free)


def strut_force(strut: Strut, state: Float[Array, "4"]) -> Float[Array, "3"]:
    """Force of a strut on its rod in ground axes [N]. Source: Kracht 2017, eq. 22-24."""
    length, rate = jax.jvp(lambda x: strut_length(strut, x), (state[:2],), (state[2:],))
    pull = strut.stiffness * (length - strut.free_length) + strut.damping * rate
    return pull * (strut.anchor - strut.reach * rotation(*state[:2])[0]) / length


def rod_block(
    rod: Rod, state: Float[Array, "4"], acceleration: Float[Array, "3"], force: Float[Array, "3"]
) -> Block:
    """Motion of a rod under the acceleration of its joint and the force at its outer end.

    **Arguments:** `rod`; `state`; `acceleration`: (3,) of the joint A [m/s^2]; `force`: (3,) on
    the rod at its outer end B [N].

    **Returns:** `Block`; not finite where the rod is along z of the ground.

    Source: Kracht 2017, eq. 1-18; own derivation of the exact mode.
    """
    theta, phi, theta_rate, phi_rate = state
    axes = rotation(theta, phi)
    s, c = jnp.sin(theta), jnp.cos(theta)
    zero = jnp.zeros_like(s)
    omega = jnp.stack([phi_rate * s, -theta_rate, phi_rate * c])
    half = rod.length / 2
    # Every force acts on the axis of the rod: its moment about A is the lever times (0, -z, y).
    load = rod.length * (axes @ force)
    load = load + half * rod.mass * (axes @ (rod.gravity - acceleration))
    strut = zero
    if rod.strut is not None:
        strut = strut_force(rod.strut, state)
        load = load + rod.strut.reach * (axes @ strut)
    shifted = rod.mass * half**2
    inertia = rod.inertia + jnp.stack([zero, shifted, shifted])
    moment = jnp.stack([zero, -load[2], load[1]]) - jnp.cross(omega, inertia * omega)
    swing = moment[1] / inertia[1]
    if rod.mode == "exact":
        e = jnp.stack([s, zero, c])
        b = theta_rate * phi_rate * jnp.stack([c, zero, -s])
        phi_acceleration = e @ (moment - inertia * b) / (e @ (inertia * e))
        alpha = b + phi_acceleration * e + swing * jnp.array([0.0, 1.0, 0.0], s.dtype)
    else:
        has = inertia[0] > 0
        spin = jnp.where(has, moment[0] / jnp.where(has, inertia[0], 1.0), 0.0)
        alpha = jnp.stack([spin, swing, moment[2] / inertia[2]])
        phi_acceleration = alpha[0] * s + alpha[2] * c
    # r x alpha and omega x (omega x r) of a point at unit distance along the rod.
    outward = jnp.stack(
        [-(omega[1] ** 2) - omega[2] ** 2, omega[0] * omega[1], omega[0] * omega[2]]
    )
    per_length = axes.T @ (outward + jnp.stack([zero, alpha[2], -alpha[1]]))
    inner = rod.mass * (acceleration + half * per_length - rod.gravity) - force - strut
    return Block(
        jnp.stack([theta_rate, phi_rate, -swing, phi_acceleration]),
        acceleration + rod.length * per_length,
        inner,
    )


def rod_energy(rod: Rod, state: Float[Array, "4"]) -> Float[Array, ""]:
    """Kinetic and potential energy of a rod whose joint is fixed to the ground [J]."""
    theta, phi, theta_rate, phi_rate = state
    omega = jnp.stack([phi_rate * jnp.sin(theta), -theta_rate, phi_rate * jnp.cos(theta)])
    half = rod.length / 2
    kinetic = 0.5 * omega @ (rod.inertia * omega)
    kinetic = kinetic + 0.5 * rod.mass * half**2 * (omega[1] ** 2 + omega[2] ** 2)
    potential = -rod.mass * half * (rod.gravity @ rotation(theta, phi)[0])
    if rod.strut is not None:
        stretch = strut_length(rod.strut, state[:2]) - rod.strut.free_length
        potential = potential + 0.5 * rod.strut.stiffness * stretch**2
    return kinetic + potential


def chain(
    rods: Sequence[Rod],
    states: Float[Array, "rods 4"],
    acceleration: Float[Array, "3"] | None = None,
    force: Float[Array, "3"] | None = None,
) -> tuple[Block, ...]:
    """Motion of rods in a row, each on the outer end of the one before.

    **Arguments:** `rods`; `states`: (rods, 4), all angles from the ground; `acceleration`: (3,) of
    the joint of the first [m/s^2]; `force`: (3,) on the outer end of the last [N]; zero when None.

    **Returns:** one `Block` a rod.

    Source: Kracht 2017, connection of open chains.
    """
    still = jnp.zeros(3, states.dtype)
    acceleration = still if acceleration is None else acceleration
    force = still if force is None else force

    def blocks(between: Array) -> tuple[Block, ...]:
        forces = [*between.reshape(-1, 3), force]
        found, a = [], acceleration
        for rod, state, f in zip(rods, states, forces, strict=True):
            found.append(rod_block(rod, state, a, f))
            a = found[-1].acceleration
        return tuple(found)

    def residual(between: Array) -> Array:
        reactions = jnp.stack([jnp.zeros_like(still), *(b.force for b in blocks(between)[1:])])
        return between + reactions[1:].reshape(-1)

    return blocks(_root(residual, 3 * (len(rods) - 1), states.dtype))


def joint_force(
    first: Callable[[Array], Array], second: Callable[[Array], Array], size: int = 3
) -> Float[Array, " size"]:
    """Force on the first of two branches for which their ends have the same acceleration.

    **Arguments:** `first`, `second`: acceleration (size,) of the end of a branch, linear in the
    force (size,) on it; `size`: 3, or 2 in a plane, or more for several joints at once.

    **Returns:** (size,) [N]; the second branch gets the opposite one.

    Source: Kracht 2017, closed chains.
    """
    return _root(lambda f: first(f) - second(-f), size)


def heun(
    rate: Callable[[Array, Array], Array], state: Float[Array, " n"], step: ArrayLike, count: int
) -> Float[Array, "count_plus_one n"]:
    """States at `count` steps of Heun's method, the first included; short code for real time.

    **Arguments:** `rate`: function of `(t, state)`; `state`: (n,) at t = 0; `step` [s]; `count`.
    """

    def advance(x: Array, t: Array) -> tuple[Array, Array]:
        k = rate(t, x)
        new = x + step / 2 * (k + rate(t + step, x + step * k))
        return new, new

    _, rest = jax.lax.scan(advance, state, step * jnp.arange(count, dtype=state.dtype))
    return jnp.concatenate([state[None], rest])


def _root(f: Callable[[Array], Array], size: int, dtype=None) -> Array:
    """Root of an affine function."""
    still = jnp.zeros(size, dtype)
    return dense.solve(jax.jacfwd(f)(still), -f(still)) if size else still
