"""Positions and velocities that keep a mechanism closed."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxgrip.checks import check_shape, concrete
from jaxgrip.joints import relative
from jaxgrip.mechanism.loops.equations import (
    Equations,
    along,
    conditioning,
    holding,
    inverse_of,
)
from jaxgrip.mechanism.loops.model import Mechanism, kinds, row_names, seats
from jaxgrip.precision import require_x64
from jaxgrip.rigid import forward_kinematics
from jaxgrip.solve.newton import implicit, newton

CLOSED = 1e-10
# Constraints less independent than this make a position singular.
SINGULAR = 1e-4
# The most that a joint turns in one step, so that the position found is one near the guess.
_LARGEST_TURN = np.pi / 3


class RESULTS(eqx.Enumeration):
    """How assembling can end; the message says what to try."""

    successful = ""
    not_converged = (
        "The joints could not all be satisfied: start closer, ask for what can be reached, go "
        "there in steps, or look at `mobility` for joints that contradict each other."
    )
    flipped = (
        "The parts fit together, but a joint is rotated by 180°: start closer to the intended "
        "position."
    )
    stuck = (
        "The motion towards the asked values ends before them, out of reach or at a dead point: "
        "this is the last position reached."
    )
    other_branch = (
        "The parts fit together, but on the other side of a dead point: go there in steps."
    )
    not_finite = "Positions are not finite: check the start and the numbers of parts and joints."


class MechanismError(ValueError, RuntimeError):
    """Raised when a mechanism cannot be assembled or moved as asked; the message is a sentence.

    `assembly` of parts is where the iterations ended, if there were any.
    """

    def __init__(self, message: str, assembly: Any = None):
        super().__init__(message)
        self.assembly = assembly


class Closed(NamedTuple):
    """A position `q` (n,), `gap` (rows,) that it leaves, `iterations` of Newton's, and `result`.

    Rows are the constraints, then the prescribed coordinates; `conditioning` is their smallest
    singular value over the largest, zero in a singular position.
    """

    q: Float[Array, " n"]
    gap: Float[Array, " rows"]
    iterations: Any
    result: RESULTS
    conditioning: Float[Array, ""]

    def warnings(self) -> tuple[str, ...]:
        """A sentence where the position is singular or nearly so."""
        if not self.conditioning < SINGULAR:
            return ()
        return (
            "The mechanism closes in a singular position: its constraints are independent to "
            f"{float(self.conditioning):.1g} only. It can move on along more than one branch, and "
            "derivatives of the position belong to none of them; start beside it.",
        )


def close(equations: Equations, q: Float[Array, " n"]) -> tuple[Float[Array, " n"], Any]:
    """Position near q that satisfies the equations, by Newton's method, and its steps.

    The derivative is that of the nearest such position in the kinetic norm.
    """
    fixed, guess = lax.stop_gradient((equations, q))
    largest = _largest_steps(fixed.mechanism)

    def linearised(q: Array) -> tuple[Array, Array, Array]:
        gap = fixed(q)
        return q, gap, -inverse_of(fixed, q).driven @ gap

    def length(step: Array) -> Array:
        return jnp.max(jnp.abs(step) / largest, initial=0.0)

    found = newton(linearised, jnp.add, guess, jnp.zeros_like(guess), length)
    return _nearest((equations, q), found.point), found.steps


def _largest_steps(mechanism: Mechanism) -> Float[Array, " n"]:
    """The most that each coordinate changes in one step: a slide by the size of the mechanism."""
    tree = mechanism.tree
    size = jnp.max(jnp.linalg.norm(tree.translation, axis=1))
    for loop in mechanism.loops:
        for seat in (loop.first_frame, loop.second_frame):
            size = jnp.maximum(size, jnp.linalg.norm(seat.origin))
    slides = np.array([tree.joint_types[i] == "prismatic" for i in tree.moving], dtype=bool)
    return jnp.where(slides, jnp.where(size > 0, size, jnp.inf), _LARGEST_TURN)


def _missed(numbers: tuple[Equations, Array], q: Array) -> tuple[Array, Array]:
    """The displacement from the guess, and what the equations miss."""
    equations, guess = numbers
    return q - guess, equations(q)


def _correction(numbers: tuple[Equations, Array], q: Array, change: tuple) -> Array:
    """The step that makes up for a change of the equations and is nearest to that of the guess."""
    equations, (moved, missed) = numbers[0], change
    return -moved - inverse_of(equations, q).driven @ (missed - along(equations, q, moved))


_nearest = implicit(_missed, _correction, jnp.add)


@eqx.filter_jit
def _assemble(equations: Equations, guess: Array) -> Closed:
    q, count = close(equations, guess)
    gap = equations(q)
    mechanism = equations.mechanism
    place = forward_kinematics(mechanism.tree, q)
    facing = [
        jax.vmap(lambda j, a, b: j.facing(relative(a, b)))(*seats(mechanism, alike, place))
        for alike in kinds(mechanism)
    ]
    turned = jnp.any(jnp.concatenate(facing) < 0) if facing else jnp.zeros((), bool)
    largest = jnp.max(jnp.abs(gap), initial=0.0)
    result = RESULTS.where(turned, RESULTS.flipped, RESULTS.successful)
    result = RESULTS.where(largest <= CLOSED, result, RESULTS.not_converged)
    result = RESULTS.where(jnp.isfinite(largest), result, RESULTS.not_finite)
    sharp = lax.stop_gradient(conditioning(*lax.stop_gradient((equations, q))))
    return Closed(q, gap, count, result, sharp)


def assemble(
    mechanism: Mechanism,
    guess: Float[Array, " n"],
    hold: Mapping[str, Any] | None = None,
    *,
    throw: bool = True,
) -> Closed:
    """Position near a guess in which all loops are closed and all couplings hold.

    Differentiable with respect to all numbers of the mechanism, to what is prescribed and, where
    that leaves a degree of freedom, to the guess. Prescribe as many coordinates as the mechanism
    has degrees of freedom and the guess only chooses the branch.

    **Arguments:**

    - `mechanism`; `guess`: (n,) coordinates [rad or m].
    - `hold`: by the name of a body, the prescribed coordinate of its joint [rad or m].
    - `throw`: raise when it does not close; within `jit` and `vmap` look at `result` instead.

    **Returns:** `Closed` with `q`, `gap`, `iterations`, `result` and `conditioning`. Where the
    position is singular, its `warnings()` are shown as such, also while it is differentiated.

    **Raises:** `ValueError` for another shape or an unknown name; `MechanismError`
    naming the loop that stays open and by how much.
    """
    require_x64("Closing a mechanism")
    check_shape("guess", guess, (mechanism.n,))
    equations = holding(mechanism, hold)
    closed = _assemble(equations, guess)
    if throw and concrete(closed.gap) and not bool(closed.result == RESULTS.successful):
        raise MechanismError(_why(equations, closed))
    # Of a position that is differentiated, too, the numbers can be looked at.
    seen = lax.stop_gradient(closed.conditioning)
    if concrete(seen):
        for sentence in closed._replace(conditioning=seen).warnings():
            warnings.warn(sentence, stacklevel=2)
    return closed


@jax.jit
def _velocity(equations: Equations, q: Array, qd: Array) -> Array:
    asked = jnp.concatenate([jnp.zeros(equations.mechanism.m, q.dtype), equations.values])
    missed = along(equations, q, qd) - asked
    return qd - inverse_of(equations, q).driven @ missed


def consistent_velocity(
    mechanism: Mechanism,
    q: Float[Array, " n"],
    qd: Float[Array, " n"],
    hold: Mapping[str, Any] | None = None,
) -> Float[Array, " n"]:
    """Rates nearest to given ones, in kinetic energy, that keep all loops closed.

    Without prescribed rates it is what an ideal impact leaves of `qd`.

    **Arguments:** `mechanism`; `q`: (n,) closed coordinates [rad or m]; `qd`: (n,) rates [per s];
    `hold`: by the name of a body, the prescribed rate of its joint [rad/s or m/s].

    **Returns:** (n,) rates.

    **Raises:** `ValueError` for another shape or an unknown name; `MechanismError` when the loops
    do not allow the prescribed rates.
    """
    check_shape("q", q, (mechanism.n,))
    check_shape("qd", qd, (mechanism.n,))
    equations = holding(mechanism, hold)
    rates = _velocity(equations, q, qd)
    if hold and concrete(rates):
        values = np.asarray(equations.values)
        missed = np.asarray(along(equations, q, rates)) - np.pad(values, (mechanism.m, 0))
        if np.abs(missed).max() > 1e-8 * (1 + np.abs(values).max()):
            raise MechanismError(
                f"The rates prescribed for {', '.join(hold)} are inconsistent here: the loops miss "
                f"them by {np.abs(missed).max():.3g}; prescribe fewer, or leave the dead point."
            )
    return rates


def worst(mechanism: Mechanism, missed: np.ndarray) -> tuple[str, str]:
    """The loop or coupling that misses most, and by how much, in words."""
    k = int(np.argmax(np.abs(missed)))
    kind, name, unit = row_names(mechanism)[k]
    return f"{kind} {name!r}", f"{abs(missed[k]):.3g} {'(sine)' if unit == 'sine' else unit}"


def _why(equations: Equations, closed: Closed) -> str:
    mechanism = equations.mechanism
    gap = np.asarray(closed.gap)
    if closed.result != RESULTS.not_converged:
        return RESULTS[closed.result]
    m = mechanism.m
    held = ", ".join(mechanism.coordinates[k] for k in equations.held)
    if m and np.abs(gap[:m]).max() > CLOSED:
        what, amount = worst(mechanism, gap[:m])
    else:
        k = equations.held[int(np.argmax(np.abs(gap[m:])))]
        what = f"joint {mechanism.coordinates[k]!r} from its prescribed value"
        amount = f"{np.abs(gap[m:]).max():.3g} rad or m"
    return (
        f"The mechanism does not close: the best position found misses {what} by {amount}"
        + (f" with {held} prescribed" if held else "")
        + "; try another guess, or prescribe what can be reached."
    )
