"""Free and driven motion in time through diffrax."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.checks import check_function, check_times, numbers
from jaxgrip.rigid._coordinates import coordinate_rates, normalised
from jaxgrip.rigid._dynamics import forward_dynamics
from jaxgrip.rigid._tree import Tree
from jaxgrip.solve.integration import integrate


class Motion(NamedTuple):
    """A motion at given times: `t` (k,) [s], `q` (k, nq) and `qd` (k, n) [rad or m, per s]."""

    t: Float[Array, " k"]
    q: Float[Array, "k nq"]
    qd: Float[Array, "k n"]


def _rate(t: Array, x: Array, args: tuple) -> Array:
    # The model is an argument: in a closure its numbers would be compiled in.
    tree, torque = args
    q, qd = x[: tree.nq], x[tree.nq :]
    tau = jnp.zeros_like(qd) if torque is None else jnp.asarray(torque(t, q, qd), q.dtype)
    return jnp.concatenate([coordinate_rates(tree, q, qd), forward_dynamics(tree, q, qd, tau)])


def simulate(
    tree: Tree,
    q0: Float[Array, " nq"],
    qd0: Float[Array, " n"],
    times: Float[Array, " k"],
    torque: Callable[..., Any] | None = None,
    *,
    rtol: float = 1e-11,
    atol: float = 1e-11,
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
    - `rtol`, `atol`: relative and absolute tolerance of a step, the latter in units of the state.
    - `max_steps`: limit on the number of steps.
    - `adjoint`: how derivatives are taken, `diffrax.ForwardMode()` for `jax.jvp` and `jax.jacfwd`;
      in reverse when None.

    **Returns:** `Motion` at the times; differentiable in both numbers and initial state. Within
    `jit` and `vmap` a motion that stops is not finite from there on.

    **Raises:** `ValueError` for another shape, for numbers not finite, for times not increasing and
    for a torque that is not such a function; `RuntimeError` when the step limit is reached or the
    motion is no longer finite.

    Source: Beiblatt 9, eq. 17, integrated by Dopri8 with error control.
    """
    q0, qd0 = numbers("q0", q0, (tree.nq,)), numbers("qd0", qd0, (tree.n,))
    times = check_times(times)
    if torque is not None:
        check_function("torque", torque, (tree.n,), t=times[0], q=q0, qd=qd0)
    x = integrate(
        _rate,
        diffrax.Dopri8(),
        times,
        jnp.concatenate([q0, qd0]),
        (tree, torque),
        rtol=rtol,
        atol=atol,
        max_steps=max_steps,
        adjoint=adjoint,
    ).ys
    q = jax.vmap(lambda q: normalised(tree, q))(x[:, : tree.nq])
    return Motion(times, q, x[:, tree.nq :])
