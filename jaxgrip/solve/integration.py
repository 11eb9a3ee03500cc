"""Initial value problems by diffrax; a failure raises one sentence or marks the result."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree

from jaxgrip.checks import brief, check_times, concrete, non_negative, positive


class Solution(NamedTuple):
    """States at given times, and the end of the integration.

    `ts` (k,) [s]; `ys`: the states, with a leading axis (k,), not finite from where the integration
    stopped; `t` [s] and `y`, the last time and state reached; `result` and `stats` of diffrax;
    `solver_state` at the end.
    """

    ts: Float[Array, " k"]
    ys: PyTree
    t: Float[Array, ""]
    y: PyTree
    result: Any
    stats: dict[str, Any]
    solver_state: Any

    def stopped(self) -> str:
        """Time and step at which it stopped, as the beginning of a sentence."""
        # While derivatives are taken, times are traced.
        when = f" at t = {float(self.t):g} s" if concrete(self.t) else ""
        return f"The motion stopped{when} after {int(self.stats['num_steps'])} steps"


class Controller(diffrax.PIDController):
    """Error control that stops where no step is short enough.

    Where rates are not finite, every step is rejected and the next one is shorter, until it no
    longer changes the time; diffrax would continue with steps of length zero to its limit.

    **Fields:** `latest(t, y, args)`: the latest end of a step that begins in a state; no limit
    when None or not after `t`.
    """

    latest: Callable[..., Any] | None = None

    def init(self, terms, t0, t1, y0, dt0, args, func, error_order):
        """First step; of length zero, where rates are not finite near the start, it is an error."""
        end, state = super().init(terms, t0, t1, y0, dt0, args, func, error_order)
        return jnp.where(end > t0, self._limited(end, t0, y0, args), jnp.nan), state

    def _limited(self, end: Array, t0: Array, y0: PyTree, args: Any) -> Array:
        if self.latest is None:
            return end
        latest = self.latest(t0, y0, args)
        return jnp.where(latest > t0, jnp.minimum(end, latest), end)

    def adapt_step_size(self, t0, t1, y0, y1, args, error, error_order, state):
        """Next step, or the end."""
        # After a step to infinity diffrax would take a step of NaN.
        error = jax.tree.map(lambda e, y: jnp.where(jnp.isfinite(y), e, jnp.inf), error, y1)
        y1 = jax.tree.map(lambda y: jnp.where(jnp.isfinite(y), y, jnp.nan), y1)
        is_kept, t0, t1, *rest, result = super().adapt_step_size(
            t0, t1, y0, y1, args, error, error_order, state
        )
        if self.latest is not None:
            y0 = jax.tree.map(lambda old, new: jnp.where(is_kept, new, old), y0, y1)
            t1 = self._limited(t1, t0, y0, args)
        is_stuck = ~is_kept & ~(t1 > t0)
        result = diffrax.RESULTS.where(is_stuck, diffrax.RESULTS.dt_min_reached, result)
        return is_kept, t0, t1, *rest, result


def integrate(
    rate: Callable[..., Any],
    solver: diffrax.AbstractSolver,
    times: Float[Array, " k"],
    start: PyTree,
    args: Any,
    *,
    rtol: ArrayLike,
    atol: ArrayLike,
    max_steps: int,
    jumps: ArrayLike | Sequence | None = None,
    adjoint: diffrax.AbstractAdjoint | None = None,
    event: diffrax.Event | None = None,
    latest: Callable[..., Any] | None = None,
    throw: bool = True,
) -> Solution:
    """States at the times of y' = rate(t, y, args), with error control.

    If it stops early, an error says why. Within `jit` and `vmap`, and with `throw=False`, states
    and their derivatives are instead not finite from there on.

    **Arguments:** `rate`, `solver`; `times` (k,) increasing; `start`, the state at the first of
    them; `args` of the rate; `rtol`, `atol`, tolerances of a step; `max_steps`; `jumps` (j,), times
    at which the rate jumps; `adjoint`: how derivatives are taken, in reverse when None, forward
    with `diffrax.ForwardMode()`; `event` that ends the integration as intended; `latest(t, y,
    args)`: the latest end of a step that begins in a state; `throw`: whether to raise.

    **Raises:** `ValueError` for times not finite or not increasing and for bad tolerances, jumps or
    limits; `RuntimeError` when the step limit is reached or rates stop being finite; `TypeError`
    for forward derivatives in reverse mode.
    """
    times = check_times(times)
    rtol, atol = positive("rtol", rtol, ()), non_negative("atol", atol, ())
    if not isinstance(max_steps, int | np.integer) or max_steps < 1:
        raise ValueError(f"max_steps is {brief(max_steps)}; it must be a whole number, at least 1.")
    controller = Controller(rtol=rtol, atol=atol, latest=latest)
    if jumps is not None and np.size(jumps):
        controller = diffrax.ClipStepSizeController(controller, jump_ts=check_times(jumps, "jumps"))
    with forward_mode_explained():
        found = diffrax.diffeqsolve(
            diffrax.ODETerm(rate),
            solver,
            times[0],
            times[-1],
            None,
            start,
            args=args,
            saveat=diffrax.SaveAt(
                subs=[diffrax.SubSaveAt(ts=times), diffrax.SubSaveAt(t1=True)], solver_state=True
            ),
            stepsize_controller=controller,
            adjoint=diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint,
            max_steps=int(max_steps),
            event=event,
            throw=False,
        )
    is_okay = diffrax.is_okay(found.result)
    ys = _marked(found.ys[0], is_okay, (start, args))
    end = jax.tree.map(lambda y: y[0], found.ys[1])
    solution = Solution(
        times, ys, found.ts[1][0], end, found.result, found.stats, found.solver_state
    )
    if throw and concrete(is_okay) and not is_okay:
        raise RuntimeError(why_stopped(solution))
    return solution


def why_stopped(solution: Solution) -> str:
    """A sentence on an integration that stopped."""
    if bool(solution.result == diffrax.RESULTS.max_steps_reached):
        return f"{solution.stopped()}: raise max_steps, loosen rtol and atol, or check the torque."
    return (
        f"{solution.stopped()}, where it is no longer finite or changes too fast for any step: "
        "check the torque and the numbers."
    )


@contextlib.contextmanager
def forward_mode_explained() -> Iterator[None]:
    """Explains JAX's "can't apply forward-mode differentiation"."""
    try:
        yield
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        raise TypeError(
            "Forward derivatives (jax.jvp, jax.jacfwd) of a motion need "
            "adjoint=diffrax.ForwardMode(); the default is for jax.grad and jax.jacrev."
        ) from None


def _marked(ys: PyTree, is_okay: Array, inputs: PyTree) -> PyTree:
    """The states, where not reached with derivatives that are not finite either.

    diffrax treats them as constants, so their derivatives would be zero.
    """
    factor = jnp.where(is_okay, 1.0, jnp.nan)
    floats = jax.tree.leaves(eqx.filter(inputs, eqx.is_inexact_array))
    mark = sum(jnp.sum(factor * x) for x in floats)
    return jax.tree.map(lambda y: jnp.where(is_okay | jnp.isfinite(y), y, mark), ys)
