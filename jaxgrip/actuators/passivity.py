"""Whether a friction can give energy away."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxgrip.actuators.friction import LuGre
from jaxgrip.actuators.friction import viscous as viscous_torque


class Passivity(NamedTuple):
    """Outcome of `passivity`.

    - `passive`: whether the dissipation is nowhere negative.
    - `ranges`: first and last speed [rad/s] of every range in which it can be.
    - `sentence`: the same in words.
    """

    passive: bool
    ranges: tuple[tuple[float, float], ...]
    sentence: str


def passivity(
    friction: LuGre, speeds: ArrayLike, *, viscous: bool = True, load: ArrayLike = 0.0
) -> Passivity:
    """Ranges of speed in which some state of the bristles makes the dissipation negative.

    The dissipation is a quadratic form of bristle torque and speed; it is nowhere negative if
    and only if σ1(v)² |v| <= 4 g(v) (σ1(v) + σ2(v)/v).

    **Arguments:**

    - `friction`; `load` as in `LuGre.level` [N m].
    - `speeds`: increasing speeds to look at [rad/s], of both signs if the friction has sides. The
      ends of a range are refined between two of them; a range that lies between two is missed.
    - `viscous`: False to ask for the bristles alone, without the help of the viscous torque.

    **Raises:** `ValueError` for speeds that are no increasing row of finite numbers.

    Source: 004 section 8.5 F.
    """
    speeds = np.asarray(speeds, dtype=float)
    if speeds.ndim != 1 or speeds.size < 2 or not np.all(np.diff(speeds) > 0):
        raise ValueError("speeds must be a row of two or more finite, increasing speeds in rad/s.")

    @jax.jit
    def surplus(v):
        damping = friction.bristle_damping(v)
        speed = jnp.abs(v)
        if not viscous:
            return damping * speed - 4 * friction.level(v, load)
        # Times |v|, for a quotient by v would fail at rest.
        drag = jnp.abs(viscous_torque(v, friction.viscous, friction.viscous_exponent))
        return damping**2 * speed**2 - 4 * friction.level(v, load) * (damping * speed + drag)

    active = np.asarray(surplus(speeds)) > 0
    steps = np.flatnonzero(active[1:] != active[:-1])
    ends = _bisect(surplus, speeds[steps], speeds[steps + 1], active[steps])
    if active[0]:
        ends = np.concatenate([speeds[:1], ends])
    if active[-1]:
        ends = np.concatenate([ends, speeds[-1:]])
    ranges = tuple((float(lo), float(hi)) for lo, hi in ends.reshape(-1, 2))
    scope = f"from {speeds[0]:g} to {speeds[-1]:g} rad/s"
    if not ranges:
        return Passivity(True, (), f"The friction is passive at all speeds {scope}.")
    where = " and ".join(f"from {lo:.4g} to {hi:.4g} rad/s" for lo, hi in ranges)
    return Passivity(
        False,
        ranges,
        f"The friction can give energy away at speeds {where}, when bristles bent beyond their "
        "level start to slip; less bristle damping or a smaller damping velocity makes it passive.",
    )


def _bisect(function, low, high, low_is_active):
    # 60 halvings take any interval to neighbouring numbers.
    for _ in range(60):
        middle = (low + high) / 2
        same = (np.asarray(function(middle)) > 0) == low_is_active
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return (low + high) / 2
