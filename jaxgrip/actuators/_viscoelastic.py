"""Springs and dampers of a gear: the generalised Maxwell model and the simpler ones within it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Complex, Float

from jaxgrip.actuators._decay import mean_decay
from jaxgrip.checks import brief, concrete, non_negative, numbers, positive
from jaxgrip.solve import dense


class GeneralizedMaxwell(eqx.Module):
    """A spring in parallel with K branches, each a spring and a damper in series.

    The input is the twist [rad], the output the torque [N m], the state e (K,) the twist of each
    branch's damper [rad], zero in a gear at rest. One element; use `jax.vmap` for several.

    **Arguments:**

    - `spring`: E0, the long-term stiffness [N m/rad]; with zero the element flows.
    - `springs`, `dampers`: (K,) E_k [N m/rad] and η_k [N m s/rad] of the branches.
    - `damper`: η0 of a damper parallel to all [N m s/rad], none when not given.

    **Raises:** `ValueError` for a negative spring, for a branch with a spring or damper that is
    not positive, and when there is neither spring nor damper.

    Source: Kubisch 2008, eq. 2.31-2.33, pp. 21-22.
    """

    spring: Float[Array, "..."]
    springs: Float[Array, "... K"]
    dampers: Float[Array, "... K"]
    damper: Float[Array, "..."] | None

    def __init__(self, spring, springs=(), dampers=(), damper=None):
        self.spring = non_negative("The spring E0", spring, ())
        self.springs = positive("A spring of the branches", springs)
        shape = self.springs.shape
        if len(shape) != 1:
            raise ValueError(
                f"The springs of the branches have the shape {shape}; it must be (K,)."
            )
        self.dampers = numbers("The array of dampers of the branches", dampers, shape)
        self.damper = None if damper is None else positive("The parallel damper η0", damper, ())
        if concrete(self.dampers) and not np.all(np.asarray(self.dampers) > 0):
            k = int(np.argmax(np.asarray(self.dampers) <= 0))
            raise ValueError(
                f"Branch {k + 1} has the damper {float(self.dampers[k]):g} N m s/rad; the time "
                "constant of a branch must be positive."
            )
        if shape == (0,) and damper is None and concrete(self.spring) and not np.any(self.spring):
            raise ValueError("The element has neither a spring nor a damper.")

    @property
    def times(self) -> Float[Array, "... K"]:
        """Relaxation times η_k/E_k of the branches [s]."""
        return self.dampers / self.springs

    def torque(self, twist: ArrayLike, e: Float[Array, " K"], rate: ArrayLike = 0.0) -> Array:
        """Torque [N m]; `rate` [rad/s], that of the twist, acts on the parallel damper alone."""
        torque = self.spring * twist + jnp.sum(self.springs * (twist - e))
        return torque if self.damper is None else torque + self.damper * rate

    def rates(self, twist: ArrayLike, e: Float[Array, " K"]) -> Float[Array, " K"]:
        """Rates of the twists of the dampers [rad/s]."""
        return (twist - e) / self.times

    def step(
        self,
        e: Float[Array, " K"],
        twist0: ArrayLike,
        twist1: ArrayLike,
        h: ArrayLike,
        scheme: str = "foh",
    ) -> Float[Array, " K"]:
        """State after a step `h` [s] in which the twist goes from `twist0` to `twist1` [rad].

        **Arguments:** `scheme`: `"foh"`, exact for a linear twist (second order); `"zoh"`, exact
        for the constant twist `twist0` (first order); `"source"`, the rectangle rule of eq. 2.33,
        whose long-term stiffness is too large by `source_error(h)`.

        **Returns:** e with which `torque(twist1, e)` is the torque at the end of the step.

        **Raises:** `ValueError` for another scheme.

        Source: Kubisch 2008, eq. 2.32-2.33, p. 22; own derivation of the exact steps.
        """
        x = h / self.times
        keep = jnp.exp(-x)
        if scheme == "source":
            return keep * (e + x * twist1)
        if scheme == "zoh":
            return keep * e - jnp.expm1(-x) * twist0
        if scheme == "foh":
            mean = mean_decay(x)
            return keep * e + (mean - keep) * twist0 + (1 - mean) * twist1
        raise ValueError(f'The scheme is {brief(scheme)}; it must be "zoh", "foh" or "source".')

    def implicit_step(
        self, e: Float[Array, " K"], twist: ArrayLike, h: ArrayLike
    ) -> Float[Array, " K"]:
        """State after an implicit Euler step `h` [s] that ends at the twist [rad]."""
        x = h / self.times
        return (e + x * twist) / (1 + x)

    def source_error(self, h: ArrayLike) -> Float[Array, ""]:
        """Stiffness [N m/rad] that the scheme `"source"` adds to E0 at the step `h` [s]."""
        x = h / self.times
        return jnp.sum(self.springs * (1 - jnp.exp(-x) / mean_decay(x)))

    def modulus(self, w: ArrayLike) -> Complex[Array, ""]:
        """Complex stiffness [N m/rad] at the angular frequency `w` [rad/s]."""
        x = w * self.times
        storage = self.spring + jnp.sum(self.springs * x * x / (1 + x * x))
        loss = jnp.sum(self.springs * x / (1 + x * x))
        if self.damper is not None:
            loss = loss + self.damper * w
        return jax.lax.complex(storage, loss)

    def relaxation(self, t: ArrayLike) -> Float[Array, ""]:
        """Torque per twist [N m/rad], at `t` > 0 [s] after a step of the twist."""
        return self.spring + jnp.sum(self.springs * jnp.exp(-t / self.times))

    def creep(self, t: ArrayLike) -> Float[Array, ""]:
        """Twist per torque [rad/(N m)], at `t` > 0 [s] after a step of the torque."""
        total = self.spring + jnp.sum(self.springs)
        # With the states scaled by the roots of their dampers the flow is x' = c - S x, S
        # symmetric, and the twist that grows is c·x.
        roots = jnp.sqrt(self.dampers)
        diagonal = jnp.diag(self.springs / self.dampers)
        if self.damper is None:
            c = self.springs / (roots * total)
            return 1 / total + _response(diagonal - total * jnp.outer(c, c), c, t)
        side = -self.springs / (roots * jnp.sqrt(self.damper))
        corner = (total / self.damper)[None, None]
        flow = jnp.block([[corner, side[None]], [side[:, None], diagonal]])
        return _response(flow, jnp.append(jax.lax.rsqrt(self.damper), jnp.zeros_like(roots)), t)

    def energy(self, twist: ArrayLike, e: Float[Array, " K"]) -> Float[Array, ""]:
        """Energy of the springs [J]."""
        return (self.spring * twist * twist + jnp.sum(self.springs * (twist - e) ** 2)) / 2

    def dissipation(
        self, twist: ArrayLike, e: Float[Array, " K"], rate: ArrayLike = 0.0
    ) -> Float[Array, ""]:
        """Power [W] dissipated in the dampers, never negative; `rate` [rad/s] as in `torque`."""
        power = jnp.sum(self.dampers * self.rates(twist, e) ** 2)
        return power if self.damper is None else power + self.damper * rate * rate


def hooke(spring) -> GeneralizedMaxwell:
    """A spring [N m/rad]. Source: Kubisch 2008, eq. 2.22, pp. 18-19."""
    return GeneralizedMaxwell(spring)


def newton(damper) -> GeneralizedMaxwell:
    """A damper [N m s/rad]. Source: Kubisch 2008, eq. 2.23, pp. 18-19."""
    return GeneralizedMaxwell(0.0, damper=damper)


def maxwell(spring, damper) -> GeneralizedMaxwell:
    """A spring [N m/rad] and a damper [N m s/rad] in series.

    Source: Kubisch 2008, eq. 2.28, pp. 18-19.
    """
    return GeneralizedMaxwell(0.0, _one(spring), _one(damper))


def kelvin_voigt(spring, damper) -> GeneralizedMaxwell:
    """A spring [N m/rad] and a damper [N m s/rad] in parallel.

    Source: Kubisch 2008, eq. 2.29, pp. 18-19.
    """
    return GeneralizedMaxwell(spring, damper=damper)


def standard_solid(spring, branch_spring, branch_damper) -> GeneralizedMaxwell:
    """A spring in parallel with a Maxwell branch [N m/rad, N m s/rad].

    Source: Kubisch 2008, eq. 2.30, p. 20.
    """
    return GeneralizedMaxwell(spring, _one(branch_spring), _one(branch_damper))


def standard_solid_series(spring, voigt_spring, voigt_damper) -> GeneralizedMaxwell:
    """The standard solid equal to a spring in series with a Kelvin-Voigt element.

    **Arguments:** `spring`, `voigt_spring` [N m/rad]; `voigt_damper` [N m s/rad].

    Source: own derivation by the comparison of coefficients of Kubisch 2008, appendix A.
    """
    a = positive("The spring E_a", spring, ())
    b = positive("The spring E_b", voigt_spring, ())
    damper = positive("The damper η_b", voigt_damper, ())
    share = a / (a + b)
    return standard_solid(share * b, share * a, share * share * damper)


def _one(value):
    return jnp.asarray(value, dtype=float)[None]


def _response(flow, c, t):
    # c·x(t) of x' = c - S x from rest.
    return _symmetric_response(flow, c, jnp.asarray(t, dtype=float)) if c.size else jnp.zeros(())


@jax.custom_jvp
def _symmetric_response(flow, c, t):
    rates, modes = dense.eigh(flow)
    return t * jnp.sum((modes.T @ c) ** 2 * mean_decay(rates * t))


@_symmetric_response.defjvp
def _symmetric_response_jvp(primals, tangents):
    # Eigenvalues may coincide, where eigenvectors have no derivative but the response has:
    # through the divided differences of t φ1(λ t).
    flow, c, t = primals
    dflow, dc, dt = tangents
    rates, modes = dense.eigh(flow)
    share, x = modes.T @ c, rates * t
    mean = mean_decay(x)
    centre, gap = (x[:, None] + x[None, :]) / 2, x[:, None] - x[None, :]
    apart = jnp.abs(gap) > 1e-5 * (1 + jnp.abs(centre))
    slope = jax.jvp(mean_decay, (centre,), (jnp.ones_like(centre),))[1]
    difference = jnp.where(
        apart, (mean[:, None] - mean[None, :]) / jnp.where(apart, gap, 1.0), slope
    )
    value = t * jnp.sum(share * share * mean)
    tangent = (
        2 * t * jnp.sum(share * mean * (modes.T @ dc))
        + t * t * jnp.sum(jnp.outer(share, share) * difference * (modes.T @ dflow @ modes))
        + dt * jnp.sum(share * share * jnp.exp(-x))
    )
    return value, tangent
