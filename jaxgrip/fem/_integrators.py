"""Implicit one-step methods for structures, as solvers of diffrax."""

import abc
from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import concrete, numbers
from jaxgrip.fem._structure import Structure

SWEEPS = 30
TOLERANCE = 1e-12


class Coefficients(NamedTuple):
    """Weights of the old acceleration and the old forces in a step, and Newmark's β and γ."""

    mass: Float[Array, ""]
    force: Float[Array, ""]
    beta: Float[Array, ""]
    gamma: Float[Array, ""]


class Integrator(eqx.Module):
    """A method with constant step, for `jaxgrip.fem.simulate`."""

    @property
    @abc.abstractmethod
    def coefficients(self) -> Coefficients:
        """Weights of a step."""


class Newmark(Integrator):
    """Newmark's method; β = 1/4 and γ = 1/2, the default, conserves energy.

    **Raises:** `ValueError` unless it is unconditionally stable: γ ≥ 1/2, β ≥ (γ + 1/2)² / 4.

    Source: Schanzer 2007, eq. 4.50-4.52, pp. 57-58, where β is called alpha and γ delta.
    """

    beta: Float[Array, ""]
    gamma: Float[Array, ""]

    def __init__(self, beta=0.25, gamma=0.5):
        self.beta = numbers("Newmark's beta", beta, ())
        self.gamma = numbers("Newmark's gamma", gamma, ())
        if concrete(self.beta) and concrete(self.gamma):
            beta, gamma = np.asarray(self.beta), np.asarray(self.gamma)
            if gamma < 0.5 or beta < (gamma + 0.5) ** 2 / 4 - 1e-15:
                raise ValueError(
                    f"Newmark's method with beta {float(beta):g} and gamma "
                    f"{float(gamma):g} is not stable for every step; it must have gamma >= 0.5 "
                    "and beta >= (gamma + 0.5)^2 / 4."
                )

    @property
    def coefficients(self) -> Coefficients:
        """Weights of a step."""
        zero = jnp.zeros_like(self.beta)
        return Coefficients(zero, zero, self.beta, self.gamma)


class GeneralizedAlpha(Integrator):
    """Generalised-α method: second order, damps vibrations that the step cannot resolve.

    **Arguments:** `rho_inf`, from 0 to 1: factor of the amplitude of an infinitely fast vibration
    in one step; 1 damps nothing.

    **Raises:** `ValueError` for another value.

    Source: Chung 1993.
    """

    rho_inf: Float[Array, ""]

    def __init__(self, rho_inf=0.8):
        self.rho_inf = numbers("rho_inf", rho_inf, ())
        if concrete(self.rho_inf) and not 0 <= np.asarray(self.rho_inf) <= 1:
            raise ValueError(f"rho_inf is {float(self.rho_inf):g}; it must be from 0 to 1.")

    @property
    def coefficients(self) -> Coefficients:
        """Weights of a step."""
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
        """M u'': load minus elastic, damping and frame forces, zero where fixed."""
        s = self.structure
        inertial = s.forces(self.frame(t))(s.damping.mass * v, v, u)
        elastic = s.elastic(u + s.damping.stiffness * v)
        return s.held(self.force(t) - inertial - elastic)

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
    """A method for one step length, with `mass` · M + `stiffness` · K factorised.

    It keeps the equations, since diffrax passes only the rate of change to a solver.
    """

    equations: StructureTerm
    coefficients: Coefficients
    step_length: Float[Array, ""]
    mass: Float[Array, ""]
    stiffness: Float[Array, ""]
    factor: Any

    term_structure: ClassVar = StructureTerm
    interpolation_cls: ClassVar = diffrax.ThirdOrderHermitePolynomialInterpolation

    def order(self, terms):
        """Order of the method."""
        return 2

    def init(self, terms, t0, t1, y0, args):
        """Acceleration at the start, and K times the state."""
        a0 = self.equations.vf(t0, y0, args)[1]
        elastic = self.equations.structure.elastic
        return History(0, a0, a0, a0, elastic(y0[0]), elastic(y0[1]), elastic(a0))

    def func(self, terms, t0, y0, args):
        """Rate of change."""
        return terms.vf(t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        """One step."""
        (u0, v0), old, h, c = y0, solver_state, self.step_length, self.coefficients
        s, late = self.equations.structure, 1 - c.force
        time = t1 - c.force * (t1 - t0)
        frame = self.equations.frame(time)
        forces = s.forces(frame)

        def new(x, v, a, a1):
            x1 = x + h * v + h**2 * ((0.5 - c.beta) * a + c.beta * a1)
            return x1, v + h * ((1 - c.gamma) * a + c.gamma * a1)

        def middle(x, v, a):
            x1, v1 = new(x, v, a, jnp.zeros_like(a))
            return c.force * x + late * x1, c.force * v + late * v1

        u, v = middle(u0, v0, old.acceleration)
        elastic_u, elastic_v = middle(old.elastic_u, old.elastic_v, old.elastic_a)
        inertial = forces(c.mass * old.acceleration + s.damping.mass * v, v, u)
        elastic = elastic_u + s.damping.stiffness * elastic_v
        known = s.held(self.equations.force(time) - inertial - elastic)

        def moving(a, weight):
            return s.held(forces(weight * a, late * c.gamma * h * a, late * c.beta * h**2 * a))

        def matvec(a):
            total = moving(a, self.mass) + s.held(self.stiffness * s.elastic(a))
            return jnp.where(s.free, total, a)

        def solve(_, b):
            # Tangents are solved here too; a zero one must not start from the guess of the motion.
            guess = 3 * (old.acceleration - old.before) + old.long_before
            guess = jnp.where(jnp.any(b != 0), guess, 0.0)
            return _iterate(
                lambda x: self.factor.solve(b - moving(x, 0.0)), guess, self._contraction(frame)
            )

        def transpose_solve(apply, b):
            # The factors are of the symmetric part only.
            return _iterate(lambda x: x + self.factor.solve(b - apply(x)), jnp.zeros_like(b), 1.0)

        a1 = jax.lax.custom_linear_solve(matvec, known, solve, transpose_solve)
        # K a from the equations: a product with K would cost as much as the solve.
        elastic_a = (known - moving(a1, self.mass)) / self.stiffness
        y1 = new(u0, v0, old.acceleration, a1)
        elastic = jax.lax.cond(
            old.steps % s.refresh == s.refresh - 1,
            lambda: (s.elastic(y1[0]), s.elastic(y1[1])),
            lambda: new(old.elastic_u, old.elastic_v, old.elastic_a, elastic_a),
        )
        history = History(old.steps + 1, a1, old.acceleration, old.before, *elastic, elastic_a)
        # Hermite interpolation needs rates times the step.
        dense = {
            "y0": y0,
            "y1": y1,
            "k0": (h * v0, h * old.acceleration),
            "k1": (h * y1[1], h * a1),
        }
        failed = ~jnp.all(jnp.isfinite(a1))
        result = diffrax.RESULTS.where(
            failed, diffrax.RESULTS.nonlinear_divergence, diffrax.RESULTS.successful
        )
        return y1, None, dense, history, result

    def _contraction(self, frame) -> Array | float:
        """Bound on the factor of the error in a sweep: frame forces relative to the mass."""
        if frame is None:
            return 0.0
        if self.equations.structure.geometric is not None:
            return 1.0
        c, h = self.coefficients, self.step_length
        coriolis = c.gamma * h * jnp.linalg.norm(frame.coriolis)
        turning = c.beta * h**2 * jnp.linalg.norm(frame.turning)
        return jnp.minimum((1 - c.force) * (coriolis + turning) / self.mass, 1.0)


class History(NamedTuple):
    """Accelerations of the last three steps, and K times displacement, velocity, acceleration."""

    steps: Array | int
    acceleration: Array
    before: Array
    long_before: Array
    elastic_u: Array
    elastic_v: Array
    elastic_a: Array


def _iterate(improve, guess: Array, contraction: Array | float) -> Array:
    """Fixed point of a contraction; NaN where it does not converge."""

    def unfinished(state):
        i, x, change = state
        return (i < SWEEPS) & (contraction * change > TOLERANCE * jnp.max(jnp.abs(x)))

    def step(state):
        i, x, _ = state
        better = improve(x)
        return i + 1, better, jnp.max(jnp.abs(better - x))

    first = improve(guess)
    begin = (1, first, jnp.max(jnp.abs(first - guess)))
    _, x, change = jax.lax.while_loop(unfinished, step, begin)
    return jnp.where(contraction * change > 1e-6 * jnp.max(jnp.abs(x)), jnp.nan, x)


def prepare(method: Integrator, equations: StructureTerm, h: Array) -> OneStep:
    """The method for steps of length h [s]."""
    c = method.coefficients
    late, damping = 1 - c.force, equations.structure.damping
    # Rayleigh damping is a sum of mass and stiffness, so two factors suffice.
    mass = (1 - c.mass) + late * c.gamma * h * damping.mass
    elastic = late * (c.gamma * h * damping.stiffness + c.beta * h**2)
    factor = jax.lax.stop_gradient(equations.structure.factorise(mass, elastic))
    return OneStep(equations, c, h, mass, elastic, factor)
