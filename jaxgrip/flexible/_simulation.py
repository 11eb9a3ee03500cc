"""Simulation with diffrax."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import check_function, check_times, concrete, numbers
from jaxgrip.fem import rayleigh_ritz
from jaxgrip.flexible._bodies import bodies, geometry, velocities
from jaxgrip.flexible._dynamics import accelerations
from jaxgrip.flexible._tree import FlexibleTree
from jaxgrip.solve.integration import integrate
from jaxgrip.solve.stiff import Kvaerno5


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
    tau = jnp.zeros_like(q)
    if torque is not None:
        tau = jnp.asarray(torque(t, q, eta, qd, etad), q.dtype)
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
    - `eta0`, `etad0`: (k,) elastic coordinates and rates; `quasi_static` gives a start without
      vibration.
    - `times`: (m,) increasing output times [s].
    - `torque`: function of `(t, q, eta, qd, etad)` giving (n,) joint torques [N m or N]; zero
      when None.
    - `rtol`, `atol`: relative and absolute tolerance of a step. The absolute one is in units of
      q, qd and etad; elastic coordinates are multiplied by their frequency.
    - `max_steps`: limit on the number of steps.
    - `jumps`: (j,) increasing times at which the torque jumps [s]; steps end there.
    - `solver`: Kvaerno5 when None, as links are stiff; Dopri8 is faster for few, lightly damped
      modes.
    - `adjoint`: `diffrax.ForwardMode()` for `jax.jvp` and `jax.jacfwd`, for few parameters; reverse
      mode when None.

    **Returns:** `Motion` at the times; differentiable in numbers and initial state. Within `jit`
    and `vmap` a motion that stops early is not finite from then on.

    **Raises:** `ValueError` for a state of a wrong shape or not finite, times or jumps not finite
    or not increasing, invalid tolerances, and a torque of another signature; `RuntimeError` when
    the step limit is reached or the motion stops being finite. Warns when a link without
    second-order displacements rotated faster than its lowest natural frequency.
    """
    q0, qd0 = numbers("q0", q0, (model.n,)), numbers("qd0", qd0, (model.n,))
    eta0, etad0 = numbers("eta0", eta0, (model.k,)), numbers("etad0", etad0, (model.k,))
    times = check_times(times)
    if torque is not None:
        state = {"q": q0, "eta": eta0, "qd": qd0, "etad": etad0}
        check_function("torque", torque, (model.n,), t=times[0], **state)
    frequencies = [
        jnp.sqrt(jnp.diagonal(link.stiffness) / jnp.diagonal(link.modal_mass))
        for link in model.links
    ]
    one = jnp.ones_like(q0)
    scale = jnp.concatenate([one, *frequencies, one, jnp.ones_like(eta0)])
    x = integrate(
        _rate,
        Kvaerno5() if solver is None else solver,
        times,
        scale * jnp.concatenate([q0, eta0, qd0, etad0]),
        (bodies(model), torque, scale),
        rtol=rtol,
        atol=atol,
        max_steps=max_steps,
        jumps=jumps,
        adjoint=adjoint,
    ).ys
    motion = Motion(times, *_split(model.n, x / scale[None]))
    _warn_of_fast_rotation(model, motion)
    return motion


def _warn_of_fast_rotation(model: FlexibleTree, motion: Motion) -> None:
    soft = [k for k, link in enumerate(model.links) if link.stiffening is None]
    if not soft or not all(map(concrete, jax.tree.leaves((model, motion)))):
        return
    speed, slowest = (np.asarray(x) for x in _speeds(model, motion))
    for k in soft:
        if speed[k] > slowest[k]:
            warnings.warn(
                f"Link {model.tree.names[model.elastic[k]]!r} rotated at up to {speed[k]:.3g} "
                f"rad/s, faster than its lowest natural frequency, {slowest[k]:.3g} rad/s, where a "
                "link without second-order displacements diverges; make it with stiffening=True.",
                stacklevel=3,
            )


@jax.jit
def _speeds(model: FlexibleTree, motion: Motion) -> tuple[Array, Array]:
    """Largest angular speed and lowest natural frequency of each link [rad/s]."""
    b = bodies(model)

    def squared_speeds(q, eta, qd, etad):
        rates = jnp.concatenate([qd, etad])[:, None]
        velocity = velocities(b, geometry(b, q, eta), rates, jnp.zeros((3, 1)))
        return jnp.sum(velocity[np.array(model.elastic), :3, 0] ** 2, axis=1)

    fastest = jnp.sqrt(jnp.max(jax.vmap(squared_speeds)(*motion[1:]), axis=0))
    lowest = [rayleigh_ritz(link.stiffness, link.modal_mass)[0][0] for link in model.links]
    return fastest, jnp.sqrt(jnp.stack(lowest))
