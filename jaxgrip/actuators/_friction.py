"""Dry and viscous friction: static curves, and the LuGre model of bristles between two faces."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxgrip.checks import brief, concrete, non_negative, numbers, positive


def coulomb(
    v: ArrayLike, level: ArrayLike, smoothing: ArrayLike | None = None
) -> Float[Array, "..."]:
    """Coulomb friction [N m] at the speeds `v` [rad/s], zero at rest; `level` [N m].

    With `smoothing` [rad/s] it is level · tanh(v/smoothing), without a jump at rest, where a body
    then creeps instead of sticking.

    Source: Kubisch 2008, eq. 2.1, pp. 9-10; own choice of the smooth form.
    """
    return level * (jnp.sign(v) if smoothing is None else jnp.tanh(v / smoothing))


def viscous(
    v: ArrayLike, coefficient: ArrayLike, exponent: ArrayLike | None = None
) -> Float[Array, "..."]:
    """Viscous friction F_v |v|^δ sgn v [N m] at the speeds `v` [rad/s].

    `coefficient` F_v [N m (s/rad)^δ]; `exponent` δ >= 1, linear when not given.

    Source: Kubisch 2008, eq. 2.2-2.3, pp. 9-10.
    """
    return coefficient * _power(v, exponent)


def stiction(v: ArrayLike, external: ArrayLike, level: ArrayLike) -> Float[Array, "..."]:
    """Friction [N m] that keeps a body at rest against the torque `external` [N m].

    It follows the torque up to `level` [N m]. Zero in motion, v != 0, where `coulomb` and
    `viscous` or `stribeck`, themselves zero at rest, take over.

    Source: Kubisch 2008, eq. 2.4, pp. 9-10.
    """
    return jnp.where(jnp.equal(v, 0), jnp.clip(external, -level, level), 0.0)


def stribeck(
    v: ArrayLike,
    coulomb: ArrayLike,
    stiction: ArrayLike,
    velocity: ArrayLike,
    viscous: ArrayLike = 0.0,
    exponent: ArrayLike | None = None,
) -> Float[Array, "..."]:
    """Static friction curve [F_C + (F_S − F_C) exp(−(v/v_S)²)] sgn v + F_v |v|^δ sgn v [N m].

    `v` [rad/s]; `coulomb` F_C and `stiction` F_S [N m]; `velocity` v_S [rad/s]; `viscous` and
    `exponent` as in `jaxgrip.actuators.viscous`.

    Source: Kubisch 2008, section 2.1.1, pp. 8-10; eq. 2.7, p. 12, for the transition.
    """
    level = coulomb + (stiction - coulomb) * _gauss(v, velocity)
    return level * jnp.sign(v) + viscous * _power(v, exponent)


class LuGre(eqx.Module):
    """LuGre friction: bristles that bend before they slip.

    The state z is the torque of the bristles [N m], |z| <= F_S. For a friction force instead of a
    torque read N for N m and m for rad.

    **Arguments:**

    - `coulomb`, `stiction`: levels F_C of fast and F_S of slow sliding [N m], F_S >= F_C > 0.
    - `stiffness`, `damping`: of the bristles, σ0 [N m/rad] and σ1 [N m s/rad].
    - `stribeck_velocity`: speed v_S over which F_S falls to F_C [rad/s].
    - `viscous`, `viscous_exponent`: F_v [N m (s/rad)^δ] and δ from 1 to 2, linear when not given.
    - `damping_velocity`: speed v_d over which σ1 fades [rad/s]; `inf` keeps it constant.
    - `coulomb_per_load`, `stiction_per_load`: rise of F_C and F_S with the magnitude of the load
      across the contact [N m of friction per N m of load].

    `coulomb`, `stiction` and `stribeck_velocity` may be pairs, for v > 0 and for v < 0.

    **Raises:** `ValueError` for numbers outside these ranges.

    Source: Kubisch 2008, eq. 2.5-2.19, pp. 12-15; Canudas 1995.
    """

    coulomb: Float[Array, "..."]
    stiction: Float[Array, "..."]
    viscous: Float[Array, "..."]
    stiffness: Float[Array, "..."]
    damping: Float[Array, "..."]
    stribeck_velocity: Float[Array, "..."]
    damping_velocity: Float[Array, "..."]
    viscous_exponent: Float[Array, "..."] | None
    coulomb_per_load: Float[Array, "..."]
    stiction_per_load: Float[Array, "..."]

    def __init__(
        self,
        *,
        coulomb,
        stiction,
        stiffness,
        damping,
        stribeck_velocity,
        viscous=0.0,
        damping_velocity=np.inf,
        viscous_exponent=None,
        coulomb_per_load=0.0,
        stiction_per_load=0.0,
    ):
        self.coulomb = positive("The Coulomb level F_C", coulomb, (), (2,))
        self.stiction = positive("The stiction level F_S", stiction, (), (2,))
        self.viscous = non_negative("The viscous coefficient F_v", viscous, ())
        self.stiffness = positive("The bristle stiffness σ0", stiffness, ())
        self.damping = non_negative("The bristle damping σ1", damping, ())
        self.stribeck_velocity = positive("The Stribeck velocity v_S", stribeck_velocity, (), (2,))
        if concrete(damping_velocity) and np.array_equal(damping_velocity, np.inf):
            self.damping_velocity = jnp.asarray(np.inf, dtype=float)
        else:
            self.damping_velocity = positive("The damping velocity v_d", damping_velocity, ())
        self.viscous_exponent = _exponent(viscous_exponent)
        self.coulomb_per_load = non_negative("coulomb_per_load", coulomb_per_load, ())
        self.stiction_per_load = non_negative("stiction_per_load", stiction_per_load, ())
        _check_order("stiction", self.stiction, "coulomb", self.coulomb)
        _check_order(
            "stiction_per_load", self.stiction_per_load, "coulomb_per_load", self.coulomb_per_load
        )

    @classmethod
    def from_inertia(cls, *, inertia, stiffness, damping_ratio=1.0, **numbers) -> "LuGre":
        """Bristles damped against an inertia, σ1 = 2 ζ √(σ0 J).

        **Arguments:** `inertia` J [kg m^2]; `damping_ratio` ζ, 1 is critical; `stiffness` and the
        rest as in `LuGre`.

        Source: Kubisch 2008, section 2.1.2, pp. 12-13.
        """
        inertia = positive("The inertia J", inertia, ())
        ratio = non_negative("The damping ratio ζ", damping_ratio, ())
        stiffness = positive("The bristle stiffness σ0", stiffness, ())
        damping = 2 * ratio * jnp.sqrt(stiffness * inertia)
        return cls(stiffness=stiffness, damping=damping, **numbers)

    def level(self, v: ArrayLike, load: ArrayLike = 0.0) -> Float[Array, "..."]:
        """Bristle torque [N m] of steady sliding at the speeds `v` [rad/s]. (2.13)"""
        pressure = _size(load)
        low = _side(self.coulomb, v) + self.coulomb_per_load * pressure
        high = _side(self.stiction, v) + self.stiction_per_load * pressure
        return low + (high - low) * _gauss(v, _side(self.stribeck_velocity, v))

    def rates(
        self, v: ArrayLike, z: ArrayLike, load: ArrayLike = 0.0
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Friction torque [N m] and rate of the bristle torque [N m/s]. (2.12), (2.14)

        `v` [rad/s], `z` [N m], `load` [N m].
        """
        bending = self._bending(v, z, self.level(v, load))
        return self._torque(v, z, bending), self.stiffness * bending

    def deflection_rates(
        self, v: ArrayLike, deflection: ArrayLike, load: ArrayLike = 0.0
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Friction torque [N m] and rate of the bristle deflection [rad/s]. (2.5), (2.6)

        The original form, whose state is the deflection z/σ0 [rad].
        """
        z = self.stiffness * deflection
        bending = self._bending(v, z, self.level(v, load))
        return self._torque(v, z, bending), bending

    def step(
        self,
        v: ArrayLike,
        z: ArrayLike,
        h: ArrayLike,
        load: ArrayLike = 0.0,
        *,
        old: bool = True,
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Friction torque [N m] and the bristle torque [N m] after `h` [s] at constant speed.

        Exact for a constant speed and stable for any step. The torque is that of the bristles
        before the step; with `old=False` its first term is that after it. (2.18), (2.19)
        """
        level = self.level(v, load)
        # z e^-x + h b φ1(x) without the quotient in φ1. At rest the slopes of e^-x differ on both
        # sides: the part even in v takes their mean, zero; those of the odd part agree.
        direction = jnp.where(jnp.less(v, 0), -1.0, 1.0)
        fading = jnp.expm1(-self.stiffness * h * (direction * v) / level)
        after = z + jnp.where(jnp.equal(v, 0), 0.0, fading) * z - fading * level * direction
        bending = self._bending(v, z, level)
        return self._torque(v, z if old else after, bending), after

    def implicit(
        self, v: ArrayLike, z: ArrayLike, h: ArrayLike, load: ArrayLike = 0.0
    ) -> "ImplicitFriction":
        """Friction at the end of an implicit Euler step of `h` [s] from the bristle torque `z`.

        Level, bristle damping and viscous coefficient are those at the speed `v` [rad/s]; `load`
        [N m] as in `level`.
        """
        stroke = self.stiffness * h
        return ImplicitFriction(
            jnp.asarray(z),
            stroke,
            self.level(v, load),
            self.bristle_damping(v) / stroke,
            self.viscous * _slope(v, self.viscous_exponent),
        )

    def steady(self, v: ArrayLike, load: ArrayLike = 0.0) -> Float[Array, "..."]:
        """Friction torque [N m] of steady sliding at the speeds `v` [rad/s]."""
        return self.level(v, load) * jnp.sign(v) + viscous(v, self.viscous, self.viscous_exponent)

    def energy(self, z: ArrayLike) -> Float[Array, "..."]:
        """Energy z²/(2 σ0) [J] of the bent bristles."""
        return z * z / (2 * self.stiffness)

    def dissipation(self, v: ArrayLike, z: ArrayLike, load: ArrayLike = 0.0) -> Float[Array, "..."]:
        """Power [W] dissipated as heat, friction times speed less the rate of the energy.

        It can be negative for parameters that `passivity` flags.
        """
        level = self.level(v, load)
        bending = self._bending(v, z, level)
        drag = self.bristle_damping(v) * bending + viscous(v, self.viscous, self.viscous_exponent)
        return _size(v) * z * z / level + drag * v

    def _bending(self, v, z, level):
        return v - _size(v) * z / level

    def bristle_damping(self, v: ArrayLike) -> Float[Array, "..."]:
        """Damping σ1(v) of the bristles [N m s/rad]. (2.8)"""
        return self.damping * _gauss(v, self.damping_velocity)

    def _torque(self, v, z, bending):
        drag = viscous(v, self.viscous, self.viscous_exponent)
        return z + self.bristle_damping(v) * bending + drag


class ImplicitFriction(NamedTuple):
    """Friction at the end of a step, as a function of the speed v there.

    From z1 = z + h σ0 (v − |v| z1/g) the bristle torque is z1 = (z + c v)/(1 + c |v|/g), c = h σ0,
    and friction is z1 + σ1 (z1 − z)/c + d v. All [N m], or [N m s/rad]: `z`; `stroke` c; `level` g;
    `damping` σ1/c, a number; `viscous` d.
    """

    z: Float[Array, "..."]
    stroke: Float[Array, "..."]
    level: Float[Array, "..."]
    damping: Float[Array, "..."]
    viscous: Float[Array, "..."]

    def speed(self, free: ArrayLike, mobility: ArrayLike) -> Float[Array, "..."]:
        """Speed v [rad/s] at which v = free − mobility · friction(v).

        **Arguments:** `free`, the speed at the end of the step without friction [rad/s];
        `mobility`, positive, the decrease of the speed per torque [rad/(s N m)].

        For either sign of v the equation is quadratic. The sign of v is that of the speed with
        the old bristle torque, and exactly one root has this sign.
        """
        excess = free - mobility * self.z
        direction = jnp.sign(excess)
        linear = 1 + mobility * self.viscous
        rise = self.stroke / self.level
        drive = free + mobility * self.damping * self.z
        b = linear + mobility * (1 + self.damping) * self.stroke - direction * rise * drive
        root = jnp.sqrt(b * b + 4 * linear * rise * jnp.abs(excess))
        # The form of the root that does not cancel.
        plain = b > 0
        sum_ = jnp.where(plain, b + root, 1.0)
        return jnp.where(plain, 2 * excess / sum_, direction * (root - b) / (2 * linear * rise))

    def bristle(self, v: ArrayLike, at: ArrayLike) -> Float[Array, "..."]:
        """Bristle torque z1 [N m] at the speed `v`, with |v| taken from `at` [rad/s]."""
        return (self.z + self.stroke * v) / (1 + self.stroke * jnp.abs(at) / self.level)

    def torque(self, v: ArrayLike, at: ArrayLike) -> Float[Array, "..."]:
        """Friction [N m], linear in `v` [rad/s] for given `at`."""
        z = self.bristle(v, at)
        return z + self.damping * (z - self.z) + self.viscous * v


def dahl(coulomb, stiffness) -> LuGre:
    """Dahl's friction of exponent one: LuGre with F_S = F_C and neither damping nor viscosity.

    **Arguments:** `coulomb` [N m]; `stiffness` [N m/rad].

    Source: own derivation, a limit of LuGre.
    """
    return LuGre(
        coulomb=coulomb, stiction=coulomb, stiffness=stiffness, damping=0.0, stribeck_velocity=1.0
    )


def _size(x):
    # |x| with the mean of both slopes, zero, as derivative at zero; that of jnp.abs is one.
    return x * jnp.sign(x)


def _power(v, exponent):
    return v * _slope(v, exponent)


def _slope(v, exponent):
    # |v|^(δ-1), at rest 1 for δ = 1, else 0.
    if exponent is None:
        return jnp.ones_like(v, dtype=float)
    speed = jnp.abs(v)
    moving = speed > 0
    slope = jnp.where(moving, speed, 1.0) ** (exponent - 1)
    return jnp.where(moving, slope, jnp.where(jnp.equal(exponent, 1), 1.0, 0.0))


def _gauss(v, width):
    # The argument is clipped where the Gaussian underflows, or its derivative would be 0 * inf.
    ratio = jnp.clip(v / width, -30.0, 30.0)
    return jnp.exp(-ratio * ratio)


def _side(pair, v):
    return pair if pair.ndim == 0 else jnp.where(jnp.less(v, 0), pair[1], pair[0])


def _exponent(value):
    if value is None:
        return None
    exponent = numbers("The viscous exponent δ", value, ())
    if concrete(exponent) and not 1 <= np.asarray(exponent) <= 2:
        raise ValueError(
            f"The viscous exponent δ is {float(exponent):g}; it must lie between 1 and 2."
        )
    return exponent


def _check_order(high_name, high, low_name, low):
    if concrete(high) and concrete(low) and not np.all(np.asarray(high) >= np.asarray(low)):
        raise ValueError(
            f"{high_name} is {brief(high)} and {low_name} is "
            f"{brief(low)}; stiction must not be less than Coulomb friction."
        )
