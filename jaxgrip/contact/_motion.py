"""Motions of trees whose bodies touch."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.checks import check_function, check_times, concrete, is_whole, numbers
from jaxgrip.contact._pairs import Contacts, forces
from jaxgrip.precision import require_x64
from jaxgrip.rigid import Tree, integrate, rnea
from jaxgrip.solve import dense, newton

_GAMMA = 1 - 0.5**0.5
# Largest miss of the equations of a stage, as a share of the acceleration of a step [m/s or rad/s].
_MISSED = 1e-6


class Motion(NamedTuple):
    """A motion with contacts at times (k,).

    `t` [s]; `q` (k, nq), `qd` (k, n); `bristles` (k, c, 3) [m]; `lost` (k,), what the contacts have
    taken from the motion so far, but for the energy of their springs [J]; `miss`: largest residual
    of the implicit equations [N m or N].
    """

    t: Float[Array, " k"]
    q: Float[Array, "k nq"]
    qd: Float[Array, "k n"]
    bristles: Float[Array, "k c 3"]
    lost: Float[Array, " k"]
    miss: Float[Array, ""]


class _State(NamedTuple):
    q: Array
    qd: Array
    bristles: Array
    lost: Array


class _Given(NamedTuple):
    """What the equations of a stage depend on."""

    tree: Tree
    touching: Contacts
    base: _State
    time: Array
    h: Array


def _residual(torque: Callable, given: _Given, qd: Array) -> Array:
    tree, touching, base, time, h = given
    q = integrate(tree, base.q, h * qd)
    found = forces(tree, touching, q, qd, base.bristles, h)
    return rnea(tree, q, qd, (qd - base.qd) / h) - torque(time, q, qd) - found.torque


def _stage(torque: Callable, given: _Given) -> tuple[_State, Array]:
    """A step of the implicit Euler method, by its speeds, and the miss of its equations."""

    def by(qd: Array) -> Array:
        return jax.jacfwd(lambda v: _residual(torque, given, v))(qd)

    def linearised(qd: Array) -> tuple[Array, Array, Array]:
        off = _residual(torque, given, qd)
        return qd, off, -dense.solve(by(qd), off)

    root = newton.newton(
        linearised,
        jnp.add,
        jax.lax.stop_gradient(given.base.qd),
        jnp.zeros_like(given.base.qd),
        lambda _: jnp.zeros((), given.h.dtype),
    )
    solution = newton.implicit(
        lambda g, v: _residual(torque, g, v),
        lambda g, v, change: -dense.solve(jax.jacfwd(lambda x: _residual(torque, g, x))(v), change),
        jnp.add,
    )
    qd = solution(given, jax.lax.stop_gradient(root.point))
    tree, touching, base, _, h = given
    q = integrate(tree, base.q, h * qd)
    found = forces(tree, touching, q, qd, base.bristles, h)
    return _State(q, qd, found.bristles, base.lost + h * found.lost), root.miss


def _step(torque: Callable, tree, touching, state: _State, time: Array, h: Array):
    """Two implicit stages, second order, which damp what is stiff (Alexander 1977)."""
    first, one = _stage(torque, _Given(tree, touching, state, time + _GAMMA * h, _GAMMA * h))
    share = 1 / _GAMMA - 1
    base = _State(
        integrate(tree, state.q, share * _GAMMA * h * first.qd),
        *(a + share * (b - a) for a, b in zip(state[1:], first[1:], strict=True)),
    )
    second, two = _stage(torque, _Given(tree, touching, base, time + h, _GAMMA * h))
    return second, jnp.maximum(one, two)


@eqx.filter_jit
def _moved(torque, tree, touching, start: _State, times: Array, substeps: int):
    def interval(state: _State, ends: tuple) -> tuple[_State, tuple]:
        begin, end = ends
        h = (end - begin) / substeps

        def step(carry: tuple, k: Array) -> tuple[tuple, None]:
            state, miss = carry
            after, left = _step(torque, tree, touching, state, begin + k * h, h)
            return (after, jnp.maximum(miss, left)), None

        first = (state, jnp.zeros((), h.dtype))
        (after, miss), _ = jax.lax.scan(step, first, jnp.arange(1.0 * substeps))
        return after, (after, miss)

    _, (states, misses) = jax.lax.scan(interval, start, (times[:-1], times[1:]))
    every = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, states)
    return every, jnp.max(misses)


def _no_torque(t: Array, q: Array, qd: Array) -> Array:
    return jnp.zeros_like(qd)


def simulate(
    tree: Tree,
    touching: Contacts,
    q0: Float[Array, " nq"],
    qd0: Float[Array, " n"],
    times: Float[Array, " k"],
    torque: Callable[..., Any] | None = None,
    *,
    substeps: int = 1,
    bristles: Float[Array, "c 3"] | None = None,
    throw: bool = True,
) -> Motion:
    """Motion of a tree with contacts, in given steps.

    Two implicit stages a step, of second order where nothing begins or ends to touch, stable for
    contacts of any stiffness; halve the steps to see their error.

    **Arguments:**

    - `tree`; `touching`, made by [`contacts`][]; `q0` (nq,) and `qd0` (n,) at the first time.
    - `times`: (k,) increasing [s], each interval divided into `substeps`.
    - `torque`: function of `(t, q, qd)` giving (n,) joint torques [N m or N]; zero when None.
      Numbers that derivatives are taken by belong into a `jax.tree_util.Partial`.
    - `bristles` (c, 3) to start with, zero when None; `throw`: raise where a step has no solution.

    **Returns:** `Motion`, differentiable in both modes by tree, contacts and start.

    **Raises:** `ValueError` for bad input; `RuntimeError` where a step has no solution, outside
    `jit` and with `throw`.

    Source: Alexander 1977; the equations of a stage are solved for the speeds alone.
    """
    require_x64("Motions with contacts")
    q0, qd0 = numbers("q0", q0, (tree.nq,)), numbers("qd0", qd0, (tree.n,))
    times = check_times(times)
    count = len(touching.first)
    bristles = jnp.zeros((count, 3)) if bristles is None else bristles
    bristles = numbers("The bristles", bristles, (count, 3))
    if not is_whole(substeps, 1):
        raise ValueError(f"substeps is {substeps}; it must be a whole number from 1 on.")
    if torque is not None:
        check_function("torque", torque, (tree.n,), t=times[0], q=q0, qd=qd0)
    start = _State(q0, qd0, bristles, jnp.zeros(()))
    torque = _no_torque if torque is None else torque
    states, miss = _moved(torque, tree, touching, start, times, int(substeps))
    size = jnp.sum(tree.mass) * jnp.sqrt(tree.gravity @ tree.gravity + 1e-12)
    if throw and concrete(miss) and not float(miss) <= _MISSED * max(float(size), 1e-12):
        raise RuntimeError(
            f"The equations of a step are missed by {float(miss):.2g}: take more substeps, or look "
            "for shapes that start deep within each other."
        )
    return Motion(times, *states, miss)
