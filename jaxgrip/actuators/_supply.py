"""The electrical side of a servo: motor, shared supply and heat; an extension of the source.

Kubisch 2008, section 3.3, measures some of it and models none: servos have it only if given.
"""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxgrip.actuators._decay import mean_decay
from jaxgrip.checks import non_negative, positive


class Motor(eqx.Module):
    """Direct-current motor behind a chopper and a gear, referred to the output.

    **Arguments:**

    - `torque_per_volt`: k_V [N m/V] of the mean voltage at the motor.
    - `back_emf`: k_e [V s/rad].
    - `resistance`: R of the winding [Ω].
    - `idle_current`: of the board [A].

    An ideal motor has k_e = R k_V; with a smaller k_e it delivers more power than it takes. Viscous
    friction that was measured with the back-EMF included must be reduced by k_V k_e.

    **Raises:** `ValueError` unless k_V and R are positive and the others not negative.

    Source: own derivation.
    """

    torque_per_volt: Float[Array, "..."]
    back_emf: Float[Array, "..."]
    resistance: Float[Array, "..."]
    idle_current: Float[Array, "..."]

    def __init__(self, *, torque_per_volt, back_emf, resistance, idle_current=0.0):
        self.torque_per_volt = positive("The torque per volt k_V", torque_per_volt, ())
        self.back_emf = non_negative("The back-EMF constant k_e", back_emf, ())
        self.resistance = positive("The winding resistance R", resistance, ())
        self.idle_current = non_negative("The idle current", idle_current, ())

    def torque(self, duty: ArrayLike, voltage: ArrayLike, speed: ArrayLike) -> Array:
        """Torque [N m] at the duty, the supply voltage [V] and the output speed [rad/s]."""
        return self.torque_per_volt * (duty * voltage - self.back_emf * speed)

    def winding_current(self, duty: ArrayLike, voltage: ArrayLike, speed: ArrayLike) -> Array:
        """Current through the winding [A], which heats it."""
        return (duty * voltage - self.back_emf * speed) / self.resistance

    def current(self, duty: ArrayLike, voltage: ArrayLike, speed: ArrayLike) -> Array:
        """Current taken from the supply [A], negative when the motor brakes."""
        return duty * self.winding_current(duty, voltage, speed) + self.idle_current


class Supply(eqx.Module):
    """A source of constant voltage behind a resistance, shared by any number of servos.

    **Arguments:** `voltage`, without load [V]; `resistance` [Ω].

    **Raises:** `ValueError` unless the voltage is positive and the resistance not negative.

    Source: own derivation.
    """

    open_voltage: Float[Array, "..."]
    resistance: Float[Array, "..."]

    def __init__(self, *, voltage, resistance=0.0):
        self.open_voltage = positive("The supply's voltage", voltage, ())
        self.resistance = non_negative("The supply's resistance", resistance, ())

    def voltage(
        self, duties: Float[Array, " n"], speeds: Float[Array, " n"], motor: Motor
    ) -> Float[Array, ""]:
        """Voltage [V] of the supply under the load of n motors.

        `duties` (n,); `speeds` (n,) [rad/s]; `motor` with scalars for all or (n,) of each.
        """
        generated = motor.idle_current - duties * motor.back_emf * speeds / motor.resistance
        conductance = jnp.sum(duties * duties / motor.resistance)
        sag = self.resistance * jnp.sum(generated)
        return (self.open_voltage - sag) / (1 + self.resistance * conductance)

    def current(
        self, duties: Float[Array, " n"], speeds: Float[Array, " n"], motor: Motor
    ) -> Float[Array, ""]:
        """Current [A] that the n motors take together."""
        voltage = self.voltage(duties, speeds, motor)
        return jnp.sum(motor.current(duties, voltage, speeds))


class Thermal(eqx.Module):
    """A winding of one temperature [K], with which its resistance rises.

    The default capacity and resistance to the surroundings are placeholders, not measured.

    **Arguments:**

    - `resistance`: R0 of the winding at the temperature `reference` [Ω].
    - `coefficient`: rise of R per kelvin, that of copper [1/K].
    - `capacity` [J/K]; `insulation`, the thermal resistance to the surroundings [K/W].
    - `ambient`, `reference` [K].

    **Raises:** `ValueError` unless R0, the capacity and the temperatures are positive and the
    coefficient is not negative.

    Source: own derivation.
    """

    resistance: Float[Array, "..."]
    coefficient: Float[Array, "..."]
    capacity: Float[Array, "..."]
    insulation: Float[Array, "..."]
    ambient: Float[Array, "..."]
    reference: Float[Array, "..."]

    def __init__(
        self,
        resistance,
        *,
        coefficient=0.0039,
        capacity=20.0,
        insulation=10.0,
        ambient=293.15,
        reference=293.15,
    ):
        self.resistance = positive("The winding resistance R0", resistance, ())
        self.coefficient = non_negative("The coefficient of the resistance", coefficient, ())
        self.capacity = positive("The thermal capacity", capacity, ())
        self.insulation = positive("The thermal resistance", insulation, ())
        self.ambient = positive("The ambient temperature", ambient, ())
        self.reference = positive("The reference temperature", reference, ())

    def winding_resistance(self, temperature: ArrayLike) -> Array:
        """Resistance of the winding [Ω] at a temperature [K]."""
        return self.resistance * (1 + self.coefficient * (temperature - self.reference))

    def rate(self, temperature: ArrayLike, current: ArrayLike) -> Array:
        """Rate of the temperature [K/s] at a current through the winding [A]."""
        heat = current * current * self.winding_resistance(temperature)
        return (heat - (temperature - self.ambient) / self.insulation) / self.capacity

    def step(self, temperature: ArrayLike, current: ArrayLike, h: ArrayLike) -> Array:
        """Temperature [K] after `h` [s], exact for a constant current.

        Above the current 1/√(R0 coefficient insulation) it grows without bound.
        """
        gain = current * current * self.resistance * self.coefficient
        decay = (1 / self.insulation - gain) / self.capacity
        return temperature + h * self.rate(temperature, current) * mean_decay(h * decay)
