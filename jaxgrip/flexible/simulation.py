"""Motion in time through diffrax."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.checks import numbers
from jaxgrip.flexible.bodies import bodies
from jaxgrip.flexible.dynamics import accelerations, check_state
from jaxgrip.flexible.tree import FlexibleTree
from jaxgrip.solve.integration import integrate
from jaxgrip.solve.linear import LU

_SOLVER = diffrax.Kvaerno5(
    root_finder=diffrax.with_stepsize_controller_tols(diffrax.VeryChord)(linear_solver=LU())
)


class Motion(NamedTuple):
    """A motion at given times: `t` (m,) [s], `q`, `qd` (m, n) and `eta`, `etad` (m, k)."""

    t: Float[Array, " m"]
    q: Float[Array, "m n"]
    eta: Float[Array, "m k"]
    qd: Float[Array, "m n"]
    etad: Float[Array, "m k"]


def _rate(t: Array, x: Array, args: tuple) -> Array:
    b, torque, scale = args
    q, eta, qd, etad = _split(b.n, x / scale)
    tau = jnp.zeros_like(q) if torque is None else torque(t, q, eta, qd, etad)
    force = jnp.concatenate([tau, jnp.zeros_like(eta)])
    return scale * jnp.concatenate([qd, etad, accelerations(b, q, eta, qd, etad, force)])


def _split(n: int, x: Array) -> tuple[Array, Array, Array, Array]:
    """q, eta, qd and etad from the last axis."""
    size = x.shape[-1] // 2
    return x[..., :n], x[..., n:size], x[..., size : size + n], x[..., size + n :]


def simulate(
    model: FlexibleTree,
    q0: Float[Array, " n"],
    eta0: Float[Array, " k"],
    qd0: Float[Array, " n"],
    etad0: Float[Array, " k"],
    times: Float[Array, " m"],
    torque: Callable[..., Any] | None = None,
    *,
    rtol: float = 1e-8,
    atol: float = 1e-8,
    max_steps: int = 100_000,
    jumps: Float[Array, " j"] | None = None,
    solver: diffrax.AbstractSolver | None = None,
    adjoint: diffrax.AbstractAdjoint | None = None,
) -> Motion:
    """Motion of a tree with elastic links from an initial state.

    **Arguments:**

    - `model`: the tree with its elastic links.
    - `q0`, `qd0`: (n,) joint coordinates [rad or m] and rates [per s] at the first of the times.
    - `eta0`, `etad0`: (k,) elastic coordinates and rates; `quasi_static` gives a quiet start.
    - `times`: (m,) increasing times at which the motion is wanted [s].
    - `torque`: function of `(t, q, eta, qd, etad)` giving (n,) joint torques [N m or N]; none
      when None.
    - `rtol`, `atol`: relative and absolute tolerance of a step. The absolute one is in units of
      q, qd and etad; an elastic coordinate counts times its frequency, like its rate.
    - `max_steps`: limit on the number of steps.
    - `jumps`: (j,) increasing times at which the torque jumps [s]; steps end there.
    - `solver`: Kvaerno5 when None, as links are stiff; Dopri8 pays for few, lightly damped modes.
    - `adjoint`: how derivatives are taken, `diffrax.ForwardMode()` for `jax.jvp` and `jax.jacfwd`,
      by few parameters; in reverse when None.

    **Returns:** `Motion` at the times; differentiable in numbers and initial state. Within `jit`
    and `vmap` a motion that stops is not finite from there on.

    **Raises:** `ValueError` for another shape, for numbers not finite and for times not increasing;
    `RuntimeError` when the step limit is reached or the motion stops being finite.
    """
    state = {"q0": q0, "eta0": eta0, "qd0": qd0, "etad0": etad0}
    state = {name: numbers(name, x) for name, x in state.items()}
    check_state(model, **state)
    q0, eta0, qd0, etad0 = state.values()
    frequencies = [
        jnp.sqrt(jnp.diagonal(link.stiffness) / jnp.diagonal(link.modal_mass))
        for link in model.links
    ]
    one = jnp.ones_like(q0)
    scale = jnp.concatenate([one, *frequencies, one, jnp.ones_like(eta0)])
    x = integrate(
        _rate,
        _SOLVER if solver is None else solver,
        times,
        scale * jnp.concatenate([q0, eta0, qd0, etad0]),
        (bodies(model), torque, scale),
        rtol=rtol,
        atol=atol,
        max_steps=max_steps,
        jumps=jumps,
        adjoint=adjoint,
    ).ys
    return Motion(jnp.asarray(times, float), *_split(model.n, x / scale[None]))
