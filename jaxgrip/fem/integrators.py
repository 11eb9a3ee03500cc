"""Implicit one-step methods for structures, as solvers of diffrax."""

import abc
from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.checks import concrete, numbers
from jaxgrip.fem.structure import Structure

SWEEPS = 30
TOLERANCE = 1e-13


class Coefficients(NamedTuple):
    """Of a step: weights of the old acceleration and the old forces, and Newmark's β and γ."""

    mass: Float[Array, ""]
    force: Float[Array, ""]
    beta: Float[Array, ""]
    gamma: Float[Array, ""]


class Integrator(eqx.Module):
    """A method with constant step; give it to `jaxgrip.fem.simulate`."""

    @property
    @abc.abstractmethod
    def coefficients(self) -> Coefficients:
        """Of a step."""


class Newmark(Integrator):
    """Newmark's method; β = 1/4 and γ = 1/2, the default, conserves energy.

    **Raises:** `ValueError` unless it is unconditionally stable: γ ≥ 1/2, β ≥ (γ + 1/2)² / 4.

    Source: 000a (4.50) to (4.52), where β is called alpha and γ delta.
    """

    beta: Float[Array, ""]
    gamma: Float[Array, ""]

    def __init__(self, beta=0.25, gamma=0.5):
        self.beta = numbers("Newmark's beta", beta, ())
        self.gamma = numbers("Newmark's gamma", gamma, ())
        if concrete(self.beta) and concrete(self.gamma):
            least = (self.gamma + 0.5) ** 2 / 4
            if self.gamma < 0.5 or self.beta < least - 1e-15:
                raise ValueError(
                    f"Newmark's method with beta {float(self.beta):g} and gamma "
                    f"{float(self.gamma):g} is not stable for every step: it takes gamma >= 0.5 "
                    "and beta >= (gamma + 0.5)^2 / 4."
                )

    @property
    def coefficients(self) -> Coefficients:
        """Of a step."""
        zero = jnp.zeros_like(self.beta)
        return Coefficients(zero, zero, self.beta, self.gamma)


class GeneralizedAlpha(Integrator):
    """The generalised-α method: second order, damps what the step cannot resolve.

    **Arguments:** `rho_inf`, from 0 to 1, what is left of an infinitely fast vibration after a
    step; 1 damps nothing.

    **Raises:** `ValueError` for another value.

    Source: Chung and Hulbert, J. Appl. Mech. 60 (1993).
    """

    rho_inf: Float[Array, ""]

    def __init__(self, rho_inf=0.8):
        self.rho_inf = numbers("rho_inf", rho_inf, ())
        if concrete(self.rho_inf) and not 0 <= self.rho_inf <= 1:
            raise ValueError(f"rho_inf is {float(self.rho_inf):g}; it must be from 0 to 1.")

    @property
    def coefficients(self) -> Coefficients:
        """Of a step."""
        mass = (2 * self.rho_inf - 1) / (self.rho_inf + 1)
        force = self.rho_inf / (self.rho_inf + 1)
        return Coefficients(mass, force, (1 - mass + force) ** 2 / 4, 0.5 - mass + force)


class StructureTerm(diffrax.AbstractTerm):
    """Rate of change of (u, u') of a structure, for any solver of diffrax.

    `frame` and `force` are functions of time; `mass` solves with the mass matrix.
    """

    structure: Structure
    frame: Any
    force: Any
    mass: Any

    def residual(self, t, u, v):
        """Forces that accelerate."""
        s = self.structure
        force = self.force(t) - s.damped(v) - s.elastic(u) - s.moving(self.frame(t), u, v)
        return s.held(force)

    def vf(self, t, y, args):
        """(u', u'')."""
        u, v = y
        return v, self.mass.solve(self.residual(t, u, v))

    def contr(self, t0, t1, **kwargs):
        """Length of the step."""
        return t1 - t0

    def prod(self, vf, control):
        """Step times rate."""
        return jax.tree.map(lambda rate: control * rate, vf)


class OneStep(diffrax.AbstractSolver):
    """A method prepared for one step length: the constant part of the equations is factorised.

    It needs more of the equations than diffrax hands to a solver, so it holds them itself.
    """

    equations: StructureTerm
    coefficients: Coefficients
    step_length: Float[Array, ""]
    factor: Any

    term_structure: ClassVar = StructureTerm
    interpolation_cls: ClassVar = diffrax.ThirdOrderHermitePolynomialInterpolation

    def order(self, terms):
        """Order of the method."""
        return 2

    def init(self, terms, t0, t1, y0, args):
        """Acceleration at the start."""
        return terms.vf(t0, y0, args)[1]

    def func(self, terms, t0, y0, args):
        """Rate of change."""
        return terms.vf(t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        """One step."""
        (u0, v0), a0, h = y0, solver_state, self.step_length
        mass, force, beta, gamma = self.coefficients
        s = self.equations.structure
        frame = self.equations.frame(t1 - force * (t1 - t0))

        def state(a):
            u1 = u0 + h * v0 + h**2 * ((0.5 - beta) * a0 + beta * a)
            return u1, v0 + h * ((1 - gamma) * a0 + gamma * a)

        def middle(a):
            u1, v1 = state(a)
            return force * u0 + (1 - force) * u1, force * v0 + (1 - force) * v1

        u, v = middle(jnp.zeros_like(a0))
        known = self.equations.force(t1 - force * (t1 - t0)) - mass * s.mass(a0)
        known = s.held(known - s.damped(v) - s.elastic(u) - s.moving(frame, u, v))
        implicit = 1 - force

        def moving(a):
            return s.held(s.moving(frame, implicit * beta * h**2 * a, implicit * gamma * h * a))

        def matvec(a):
            viscous = s.damped(implicit * gamma * h * a)
            elastic = s.elastic(implicit * beta * h**2 * a)
            total = (1 - mass) * s.mass(a) + viscous + elastic
            return jnp.where(s.free, total, a) + moving(a)

        def solve(_, b):
            return _iterate(lambda x: self.factor.solve(b - moving(x)), self.factor.solve(b))

        def transpose_solve(apply, b):
            # The factors are of a symmetric matrix; the motion of the frame is what is not.
            return _iterate(lambda x: x + self.factor.solve(b - apply(x)), self.factor.solve(b))

        a1 = jax.lax.custom_linear_solve(matvec, known, solve, transpose_solve)
        y1 = state(a1)
        # Hermite's interpolation wants rates times the step.
        dense = {"y0": y0, "y1": y1, "k0": (h * v0, h * a0), "k1": (h * y1[1], h * a1)}
        failed = ~jnp.all(jnp.isfinite(a1))
        result = diffrax.RESULTS.where(
            failed, diffrax.RESULTS.nonlinear_divergence, diffrax.RESULTS.successful
        )
        return y1, None, dense, a1, result


def _iterate(improve, first: Array) -> Array:
    """Fixed point of a contraction; NaN when there is none."""

    def unfinished(state):
        i, x, change = state
        return (i < SWEEPS) & (change > TOLERANCE * jnp.max(jnp.abs(x)))

    def step(state):
        i, x, _ = state
        better = improve(x)
        return i + 1, better, jnp.max(jnp.abs(better - x))

    _, x, change = jax.lax.while_loop(unfinished, step, (0, first, jnp.array(jnp.inf)))
    return jnp.where(change > 1e-6 * jnp.max(jnp.abs(x)), jnp.nan, x)


def prepare(method: Integrator, equations: StructureTerm, h: Array) -> OneStep:
    """The method for steps of length h [s]."""
    c = method.coefficients
    late, damping = 1 - c.force, equations.structure.damping
    # Rayleigh damping is a sum of mass and stiffness, so two numbers describe the equations.
    mass = (1 - c.mass) + late * c.gamma * h * damping.mass
    elastic = late * (c.gamma * h * damping.stiffness + c.beta * h**2)
    factor = jax.lax.stop_gradient(equations.structure.factorise(mass, elastic))
    return OneStep(equations, c, h, factor)
