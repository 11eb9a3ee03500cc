"""Free and driven motion in time through diffrax."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.checks import check_function, check_times, numbers
from jaxgrip.rigid._coordinates import normalised
from jaxgrip.rigid._stage import RubbingTree, rates
from jaxgrip.rigid._tree import Tree
from jaxgrip.solve.integration import integrate
from jaxgrip.solve.stiff import StagedKvaerno5


class Motion(NamedTuple):
    """A motion at given times: `t` (k,) [s], `q` (k, nq) and `qd` (k, n) [rad or m, per s]."""

    t: Float[Array, " k"]
    q: Float[Array, "k nq"]
    qd: Float[Array, "k n"]


def simulate(
    tree: Tree,
    q0: Float[Array, " nq"],
    qd0: Float[Array, " n"],
    times: Float[Array, " k"],
    torque: Callable[..., Any] | None = None,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    max_steps: int = 100_000,
    adjoint: diffrax.AbstractAdjoint | None = None,
) -> Motion:
    """Motion of a tree from an initial state.

    **Arguments:**

    - `tree`: the model.
    - `q0`: (nq,) joint coordinates [rad or m], and `qd0`: (n,) rates [per s], at the first of the
      times.
    - `times`: (k,) increasing [s].
    - `torque`: function of `(t, q, qd)` giving (n,) joint torques [N m or N]; zero when None.
    - `rtol`, `atol`: relative and absolute tolerance of a step, the latter in units of the state;
      1e-11 when None, and 1e-9 with dry friction.
    - `max_steps`: limit on the number of steps.
    - `adjoint`: how derivatives are taken, `diffrax.ForwardMode()` for `jax.jvp` and `jax.jacfwd`;
      in reverse when None.

    **Returns:** `Motion` at the times; differentiable in both numbers and initial state. Within
    `jit` and `vmap` a motion that stops is not finite from there on.

    **Raises:** `ValueError` for another shape, for numbers not finite, for times not increasing and
    for a torque that is not such a function; `RuntimeError` when the step limit is reached or the
    motion is no longer finite.

    Joints with dry friction are stiff where they come to rest: a tree with `passive.friction`, of
    whatever values, is integrated by implicit steps, in which the friction is solved for by itself.
    They need the derivatives of the torque in forward mode, and 64 bits; in 32 bits steps are
    explicit.

    Source: Beiblatt 9, eq. 17, integrated by Dopri8 or Kvaerno5 with error control.
    """
    q0, qd0 = numbers("q0", q0, (tree.nq,)), numbers("qd0", qd0, (tree.n,))
    times = check_times(times)
    if torque is not None:
        check_function("torque", torque, (tree.n,), t=times[0], q=q0, qd=qd0)
    # Newton's method for implicit steps is beyond 32 bits.
    is_implicit = tree.rubs and q0.dtype == jnp.float64
    default = 1e-9 if is_implicit else 1e-11
    rtol, atol = (default if x is None else x for x in (rtol, atol))
    solver: diffrax.AbstractSolver = diffrax.Dopri8()
    if is_implicit:
        # In the loops of implicit steps derivatives of unrolled trees are far slower.
        tree = dataclasses.replace(tree, scanned=True)
        solver = StagedKvaerno5(system=RubbingTree(), rtol=rtol, atol=atol)
    q, qd = integrate(
        rates,
        solver,
        times,
        (q0, qd0),
        (tree, torque),
        rtol=rtol,
        atol=atol,
        max_steps=max_steps,
        adjoint=adjoint,
    ).ys
    return Motion(times, jax.vmap(lambda q: normalised(tree, q))(q), qd)
