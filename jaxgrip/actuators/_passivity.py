"""Whether friction can supply energy."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxgrip.actuators._friction import LuGre
from jaxgrip.actuators._friction import viscous as viscous_torque
from jaxgrip.checks import positive


class Passivity(NamedTuple):
    """Outcome of `passivity`.

    - `passive`: whether the dissipation is nowhere negative.
    - `ranges`: first and last speed [rad/s] of every range in which it can be negative.
    - `sentence`: the same as a sentence.
    """

    passive: bool
    ranges: tuple[tuple[float, float], ...]
    sentence: str


# Speeds over the fastest one; neighbours differ by two parts in 100 000.
_SHARES = np.concatenate([[0.0], np.geomspace(1e-9, 1.0, 2**20)])


def passivity(
    friction: LuGre, fastest: ArrayLike, *, viscous: bool = True, load: ArrayLike = 0.0
) -> Passivity:
    """Ranges of speed in which some state of the bristles makes the dissipation negative.

    The dissipation is a quadratic form of bristle torque and speed; it is nowhere negative if
    and only if σ1(v)² |v| <= 4 g(v) (σ1(v) + σ2(v)/v). The ranges enclose all speeds that
    violate this, to 1e-4 of their ends.

    **Arguments:**

    - `friction`; `load` as in `LuGre.level` [N m].
    - `fastest`: largest speed [rad/s] to check; in both directions if they differ.
    - `viscous`: False to check the bristles alone, without the viscous torque.

    **Raises:** `ValueError` for a speed that is not positive.

    Source: own derivation.
    """
    fastest = float(positive("The fastest speed", fastest, ()))
    if not viscous:
        friction = eqx.tree_at(lambda f: f.viscous, friction, jnp.zeros(()))
    sided = any(x.ndim for x in (friction.coulomb, friction.stiction, friction.stribeck_velocity))
    ranges = []
    for sign in (-1.0, 1.0) if sided else (1.0,):
        v = sign * fastest * _SHARES
        active = np.asarray(_largest_surplus(friction, jnp.asarray(v), load)) > 0
        changes = np.flatnonzero(np.diff(active, prepend=False, append=False))
        ranges += [sorted((float(v[i]), float(v[j]))) for i, j in changes.reshape(-1, 2)]
    ranges = tuple(sorted(map(tuple, ranges)))
    if not ranges:
        sentence = f"The friction is passive at all speeds up to {fastest:g} rad/s."
        return Passivity(True, (), sentence)
    where = " and ".join(f"from {lo:.3g} to {hi:.3g} rad/s" for lo, hi in ranges)
    return Passivity(
        False,
        ranges,
        f"The friction can supply energy at speeds {where}, when bristles bent beyond their "
        "level start to slip; less bristle damping or a smaller damping velocity makes it passive.",
    )


@jax.jit
def _largest_surplus(
    friction: LuGre, v: Float[Array, " k"], load: ArrayLike
) -> Float[Array, " k-1"]:
    """Upper bound of σ1² |v| - 4 g (σ1 + σ2/v) between neighbours in a row of growing |v|."""
    speed = jnp.abs(v)
    damping, level = friction.bristle_damping(v), friction.level(v, load)
    drag = jnp.abs(viscous_torque(v, friction.viscous, friction.viscous_exponent))
    drag = drag / jnp.where(speed > 0, speed, 1.0)
    # Damping and level fall with the speed, drag over speed rises.
    return damping[:-1] ** 2 * speed[1:] - 4 * level[1:] * (damping[1:] + drag[:-1])
