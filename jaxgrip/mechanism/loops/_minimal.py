"""Mechanisms with one degree of freedom in one coordinate: J(s) s̈ + ½ J′(s) ṡ² = Q."""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxgrip.checks import (
    check_function,
    check_shape,
    check_times,
    concrete,
    non_negative,
    numbers,
    positive,
)
from jaxgrip.mechanism.loops.closing import CLOSED, MechanismError, close
from jaxgrip.mechanism.loops.equations import Equations, along, inverse_of
from jaxgrip.mechanism.loops.mobility import degrees, mobility
from jaxgrip.mechanism.loops.model import Mechanism
from jaxgrip.precision import require_x64
from jaxgrip.rigid import crba, rnea
from jaxgrip.solve.integration import (
    Solution,
    forward_mode_explained,
    integrate,
    why_stopped,
)


class Path(eqx.Module):
    """All positions of a mechanism with one degree of freedom, by one of its coordinates.

    **Fields:** `mechanism`; `name` of the body whose joint has the coordinate; `values` (k,) of it
    at which the mechanism was assembled [rad or m]; `positions` (k, n): all coordinates there.

    Made by `follow`. Between the values, positions are assembled exactly, from the nearest.
    """

    mechanism: Mechanism
    values: Float[Array, " k"]
    positions: Float[Array, "k n"]
    name: str = eqx.field(static=True)

    def _at(self, s: Array) -> Equations:
        return Equations(self.mechanism, s[None], (self.mechanism.coordinate(self.name),))

    def position(self, s: Float[Array, ""]) -> Float[Array, " n"]:
        """Coordinates (n,) at `s` [rad or m], on the branch of the path."""
        nearest = lax.stop_gradient(jnp.argmin(jnp.abs(self.values - s)))
        return close(self._at(s), lax.stop_gradient(self.positions)[nearest])[0]

    def transfer(self, s: Float[Array, ""]) -> Float[Array, " n"]:
        """dq/ds (n,), the rates of all coordinates at unit rate of this one."""
        q = self.position(s)
        return inverse_of(self._at(s), q).driven[:, -1]

    def inertia(self, s: Float[Array, ""]) -> Float[Array, ""]:
        """Reduced inertia J [kg m^2 or kg]."""
        q, k = self.position(s), self.transfer(s)
        return k @ crba(self.mechanism.tree, q) @ k

    def acceleration(
        self, s: Float[Array, ""], sd: Float[Array, ""], tau: Float[Array, " n"]
    ) -> Float[Array, ""]:
        """s̈ [per s^2] under torques `tau` (n,) at all joints of the tree [N m or N]."""
        q = self.position(s)
        k, bend = jax.jvp(self.transfer, (s,), (jnp.ones_like(s),))
        needed = rnea(self.mechanism.tree, q, k * sd, bend * sd**2)
        return k @ (tau - needed) / (k @ crba(self.mechanism.tree, q) @ k)


@eqx.filter_jit
def _follow(mechanism: Mechanism, q0: Array, values: Array, index: int) -> tuple:
    def step(carry, value):
        q, before, rate = carry
        guess = q + (value - before) * rate
        equations = Equations(mechanism, value[None], (index,))
        q, _ = close(equations, guess)
        rate = inverse_of(equations, q).driven[:, -1]
        # At a dead point a rate of this coordinate is impossible.
        dead = jnp.abs(along(equations, q, rate).at[-1].add(-1.0)).max() > CLOSED**0.5
        return (q, value, rate), (q, jnp.max(jnp.abs(equations(q))), dead)

    return lax.scan(step, (q0, q0[index], jnp.zeros_like(q0)), values)[1]


def follow(mechanism: Mechanism, q0: Float[Array, " n"], name: str, values: Any) -> Path:
    """The path of a mechanism with one degree of freedom, assembled value after value.

    **Arguments:** `mechanism`; `q0`: (n,) coordinates of a closed position near the first value
    [rad or m]; `name` of the body whose joint leads; `values`: (k,) of its coordinate [rad or m],
    in order and so close that each position is a good guess for the next.

    **Returns:** `Path`.

    **Raises:** `ValueError` for another shape or an unknown name; `MechanismError` unless the
    mechanism has one degree of freedom, closes at all values and passes no dead point of the
    coordinate.
    """
    require_x64("Following a mechanism")
    check_shape("q0", q0, (mechanism.n,))
    values = numbers("The array of values to follow", values)
    if values.ndim != 1 or len(values) < 1:
        raise ValueError(f"values has the shape {values.shape}; it must be (k,), k at least 1.")
    index = mechanism.coordinate(name)
    positions, gaps, dead = _follow(mechanism, q0, values, index)
    if concrete(gaps):
        found = mobility(mechanism, q0)
        if found.degrees_of_freedom != 1:
            raise MechanismError(
                f"The mechanism has {degrees(found.degrees_of_freedom)}; a path needs one."
            )
        bad = ~((np.asarray(gaps) <= CLOSED) & ~np.asarray(dead))
        if bad.any():
            k = int(np.argmax(bad))
            last = f"it was {float(values[k - 1]):g} before" if k else "the first value"
            why = (
                "it is at a dead point"
                if dead[k]
                else f"its loops are open by {float(gaps[k]):.3g}"
            )
            raise MechanismError(
                f"The mechanism does not reach {name!r} = {float(values[k]):g} ({last}): {why}. "
                "Take smaller steps, or another coordinate."
            )
    return Path(mechanism, values, positions, name)


def reduced_motion(
    path: Path,
    s0: Any,
    sd0: Any,
    times: Float[Array, " k"],
    torque: Callable[..., Any] | None = None,
    *,
    rtol: float = 1e-11,
    atol: float = 1e-11,
    max_steps: int = 100_000,
) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """Motion of a mechanism with one degree of freedom in its leading coordinate.

    **Arguments:** `path`; `s0`, `sd0`: coordinate [rad or m] and rate [per s] at the first of the
    times; `times`: (k,) increasing [s]; `torque`: function of `(t, q, qd)` giving (n,) at all
    joints of the tree [N m or N]; `rtol`, `atol`, `max_steps` of the integration.

    **Returns:** coordinate and rate, (k,) each; within `jit` and `vmap` not finite after the motion
    leaves the path or stops.

    **Raises:** `ValueError` for a torque that is not such a function and for bad times or
    tolerances; `MechanismError` when the motion leaves the path, reaches the step limit, as at a
    dead point, or is no longer finite.
    """
    start = jnp.stack([numbers("s0", s0, ()), numbers("sd0", sd0, ())])
    times = check_times(times)
    if torque is not None:
        q = path.positions[0]
        check_function("torque", torque, q.shape, t=times[0], q=q, qd=q)
    rtol, atol = positive("rtol", rtol, ()), non_negative("atol", atol, ())
    with forward_mode_explained():
        solution = _reduced(path, start, times, torque, rtol, atol, max_steps)
    s, sd = solution.ys[:, 0], solution.ys[:, 1]
    if concrete(s) and not np.isfinite(s).all():
        if not diffrax.is_okay(solution.result):
            raise MechanismError(why_stopped(solution))
        last = float(times[max(np.argmin(np.isfinite(s)) - 1, 0)])
        raise MechanismError(
            f"The motion leaves the path soon after t = {last:g} s; follow {path.name!r} "
            f"beyond {float(path.values.min()):g} to {float(path.values.max()):g}."
        )
    return s, sd


def _path_rate(t: Array, x: Array, args: tuple) -> Array:
    path, torque = args
    s, sd = x
    q, k = path.position(s), path.transfer(s)
    tau = jnp.zeros_like(q) if torque is None else jnp.asarray(torque(t, q, k * sd), q.dtype)
    return jnp.stack([sd, path.acceleration(s, sd, tau)])


def _left(t: Array, x: Array, args: tuple, **_: Any) -> Array:
    path, _ = args
    return _is_outside(path, x[0])


def _is_outside(path: Path, s: Float[Array, "*k"]) -> Bool[Array, "*k"]:
    return (s < jnp.min(path.values)) | (s > jnp.max(path.values))


@eqx.filter_jit
def _reduced(path, start, times, torque, rtol, atol, max_steps) -> Solution:
    found = integrate(
        _path_rate,
        diffrax.Dopri8(),
        times,
        start,
        (path, torque),
        rtol=rtol,
        atol=atol,
        max_steps=max_steps,
        event=diffrax.Event(_left),
        throw=False,
    )
    # The step that leaves the path ends beyond it, perhaps by far.
    gone = jnp.cumsum(_is_outside(path, found.ys[:, 0])) > 0
    return found._replace(ys=jnp.where(gone[:, None], jnp.nan, found.ys))
