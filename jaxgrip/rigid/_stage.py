"""Implicit steps of a tree whose joints have dry friction."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxgrip.rigid._coordinates import coordinate_rates, implicit_positions
from jaxgrip.rigid._dynamics import forward_dynamics
from jaxgrip.rigid._newton_euler import rnea
from jaxgrip.rigid._tree import Tree
from jaxgrip.solve import dense
from jaxgrip.solve.stiff import Stages

# Frictions that take more have met a step that is better shortened.
_MOST_SWEEPS = 30


class _Linear(NamedTuple):
    """Equations but for the friction: `factors`, and the `reply` (n, n) of rates to frictions."""

    factors: dense.LU
    reply: Float[Array, "n n"]


class _Stage(eqx.Module):
    """An implicit Euler step of `h` [s] from the state `base` to the time `t`.

    The unknowns are the rates (n,) at its end, the equations torques by inverse dynamics.
    """

    tree: Tree
    torque: Callable[..., Any] | None
    base: tuple[Array, Array]
    t: Array
    h: Array

    def unknowns(self, y: tuple) -> Float[Array, " n"]:
        """The rates of a state."""
        return y[1]

    def state(self, x: Float[Array, " n"]) -> tuple:
        """State at the end of the step, for its rates."""
        return implicit_positions(self.tree, self.base[0], x, self.h), x

    def residual(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Torques that are missing [N m or N], zero at the end of the step."""
        return self._missing(self.tree, x)

    def linear(self, x: Float[Array, " n"]) -> _Linear:
        """The equations but for the friction, linearised about the rates."""
        factors = dense.lu_factor(jax.jacfwd(self._smooth)(x))
        return _Linear(factors, dense.lu_solve(factors, jnp.diag(self.tree.passive.friction)))

    def improved(self, x: Float[Array, " n"], linear: _Linear) -> tuple[Array, tuple]:
        """Better rates, and the state by them.

        A Newton step solves the equations but for the friction, in which they are linear: rates =
        free − reply · friction. Then all frictions are found for these.
        """
        free = x - dense.lu_solve(linear.factors, self._smooth(x))
        x = _with_friction(free, linear.reply, self.tree.passive.friction_speed, x)
        return x, self.state(x)

    def _smooth(self, x: Array) -> Array:
        passive = dataclasses.replace(self.tree.passive, friction=None, friction_speed=None)
        return self._missing(dataclasses.replace(self.tree, passive=passive), x)

    def _missing(self, tree: Tree, x: Array) -> Array:
        q, qd = self.state(x)
        taken = rnea(tree, q, qd, (qd - self.base[1]) / self.h)
        return taken - _torques(self.torque, self.t, q, qd)


class RubbingTree(Stages):
    """A tree with dry friction as `Stages`: the args are the tree and the torque."""

    def rate(self, t: Array, y: tuple, args: tuple) -> tuple:
        """Rates of coordinates and rates."""
        return rates(t, y, args)

    def explicit(self, t: Array, y: tuple, args: tuple) -> tuple:
        """The args with the numbers that the torque closes over as leaves."""
        tree, torque = args
        return tree, None if torque is None else eqx.filter_closure_convert(torque, t, *y)

    def begin(self, t: Array, y: tuple, args: tuple) -> tuple:
        """The same state: nothing jumps."""
        return y

    def stage(self, t: Array, h: Array, base: tuple, args: tuple) -> _Stage:
        """An implicit Euler step."""
        return _Stage(*args, base, t, h)


def rates(t: Array, y: tuple, args: tuple) -> tuple:
    """Rates of change of the state (q, qd)."""
    # The model is an argument: in a closure its numbers would be compiled in.
    tree, torque = args
    q, qd = y
    return coordinate_rates(tree, q, qd), forward_dynamics(tree, q, qd, _torques(torque, t, q, qd))


def _torques(torque: Callable[..., Any] | None, t: Array, q: Array, qd: Array) -> Array:
    return jnp.zeros_like(qd) if torque is None else jnp.asarray(torque(t, q, qd), q.dtype)


def _with_friction(free: Array, reply: Array, width: Array, x: Array) -> Float[Array, " n"]:
    """Rates v with v = free − reply · tanh(v / width), from `x` near them.

    Newton's method for the rates and the shares y of the friction, as for y v / tanh(v / width) =
    v: where a rate changes its sign, y does not follow at once, so that it does not alternate.
    """

    def closer(carry: tuple) -> tuple:
        count, v, y, _ = carry
        s = v / width
        is_small = jnp.abs(s) < 1e-2
        s_safe = jnp.where(is_small, 1.0, s)
        inverse = 1.0 / jnp.tanh(s_safe)
        # s / tanh(s) and its slope, by their series near zero.
        ratio = jnp.where(is_small, 1.0 + s**2 / 3.0 - s**4 / 45.0, s_safe * inverse)
        slope = inverse - s_safe * (inverse**2 - 1.0)
        slope = jnp.where(is_small, s * (2.0 / 3.0 - 4.0 / 45.0 * s**2), slope)
        offset = y * slope * s / ratio
        weight = (1.0 - y * slope) / (ratio * width)
        matrix = jnp.eye(len(v), dtype=v.dtype) + reply * weight[None]
        new = dense.solve(matrix, free - reply @ offset)
        change = jnp.max(jnp.abs(new - v) / (_FINE * (jnp.abs(new) + width)))
        return count + 1, new, jnp.clip(offset + weight * new, -1.0, 1.0), change

    def is_far(carry: tuple) -> Array:
        # NaN is not far: further steps would not help.
        return (carry[3] > 1.0) & (carry[0] < _MOST_SWEEPS)

    first = closer((0, x, jnp.tanh(x / width), jnp.inf))
    return lax.while_loop(is_far, closer, first)[1]


# Relative change of a rate below which the one before was exact but for rounding.
_FINE = 1e-9
