"""Vibration in time."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import concrete, numbers
from jaxgrip.fem._body import Body
from jaxgrip.fem._inertia import FrameMotion
from jaxgrip.fem._integrators import Integrator, Newmark, StructureTerm, prepare
from jaxgrip.fem._structure import Structure, structure
from jaxgrip.fem.reduction import Reduced
from jaxgrip.fem.static import check_supports
from jaxgrip.solve import dense
from jaxgrip.solve.integration import Controller, forward_mode_explained

# Longest step without a warning: in periods of the slowest vibration (its period is then visibly
# wrong), and in rad of rotation of the frame.
COARSE = 0.25
COARSE_ROTATION = 0.1
# Number of times at which motion and load are checked before a simulation.
SAMPLES = 65


class Load(eqx.Module):
    """Loads whose distribution is constant: Σ amount_s(t) pattern_s.

    **Arguments:** `patterns` (s, n, d) [N] for unit amounts; `amount`, function of time (s,).
    """

    patterns: Float[Array, "s n d"]
    amount: Callable[[Any], Any]


class Response(eqx.Module):
    """Elastic motion: `t` (k,) [s], `u` (k, n, d) [m] and `v` (k, n, d) [m/s] in body axes.

    With a function `save`, `saved` holds its results instead, and `u` and `v` are None. `q`
    (k, m) are the coordinates of a reduced body. `result` is diffrax's, `stats` its counts.
    """

    t: Float[Array, " k"]
    u: Float[Array, "k n d"] | None
    v: Float[Array, "k n d"] | None
    q: Float[Array, "k m"] | None
    saved: Any
    result: Any
    stats: dict


def simulate(
    body: Body | Reduced,
    motion: Callable[[Any], FrameMotion] | None,
    dt: float,
    *,
    t1: float,
    t0: float = 0.0,
    load: Any = None,
    u0: Float[Array, "n d"] | None = None,
    v0: Float[Array, "n d"] | None = None,
    geometric: bool = True,
    ts: ArrayLike | Sequence[float] | None = None,
    save: Callable[[Any, Array, Array], Any] | None = None,
    method: Integrator | diffrax.AbstractSolver | None = None,
    rtol: float = 1e-8,
    atol: float = 1e-12,
    max_steps: int = 100_000,
    progress_meter: diffrax.AbstractProgressMeter | None = None,
    adjoint: diffrax.AbstractAdjoint | None = None,
    throw: bool = True,
) -> Response:
    """Elastic motion of a body whose frame moves as prescribed.

    **Arguments:**

    - `body`: a whole body, or a reduced one.
    - `motion`: function of time giving the `FrameMotion`; None for a frame at rest. Its
      acceleration includes -g, as in `jaxgrip.rigid.rnea_bodies`.
    - `dt`: step [s], shortened so that a whole number of steps fits.
    - `t0`, `t1`: begin and end [s].
    - `load`: a `Load`, besides inertia.
    - `u0`, `v0`: displacements [m] and velocities [m/s] at the start; zero when not given.
    - `geometric`: whether the stress of the inertia forces stiffens a whole body, as in a spinning
      blade; for a reduced body see `reduce`. False, as in the source, is cheaper, and accurate
      for rotations much slower than the slowest vibration.
    - `ts`: (k,) times to save at; the end of every step when not given.
    - `save`: function `(t, u, v)` of what to save instead of displacements, velocities and, for
      reduced bodies, coordinates.
    - `method`: `Newmark()` when not given, `GeneralizedAlpha(...)`, or, for reduced bodies, a
      solver of diffrax such as `jaxgrip.solve.stiff.Kvaerno5()` with error control by `rtol`,
      `atol` (in units of the coordinates) and at most `max_steps`.
    - `progress_meter`, `adjoint`: as for `diffrax.diffeqsolve`; forward derivatives take
      `adjoint=diffrax.ForwardMode()`.
    - `throw`: whether to raise where the motion stops early; if not, and within `jit` and `vmap`,
      see `result`.

    **Returns:** `Response`; differentiable in all numbers but the times, which set the number of
    steps.

    **Raises:** `ValueError` for times out of order, supports that leave a rigid motion, an initial
    state, motion or load that is not finite, or a load that is no `Load`; `RuntimeError` when the
    step limit is reached or the motion stops being finite. Warns when the step is too long for
    the motion, and when a body without geometric stiffness rotates faster than its slowest
    vibration, where it diverges.

    Source: Schanzer 2007, eq. 4.47, pp. 56-57, integrated by eq. 4.50-4.52, pp. 57-58.
    """
    for name, x in (("The start t0", t0), ("The end t1", t1), ("The step dt", dt)):
        numbers(name, x, ())
    if not t1 > t0:
        raise ValueError(f"The end t1 = {t1:g} s must be later than the start t0 = {t0:g} s.")
    if not dt > 0:
        raise ValueError(f"The step dt is {dt:g} s; it must be positive.")
    whole = isinstance(body, Body)
    method = Newmark() if method is None else method
    if whole:
        check_supports(body)
        shape = body.free.shape
    else:
        shape = body.shapes.shape[1:]
    if whole and isinstance(method, diffrax.AbstractSolver):
        raise ValueError(
            "Solvers of diffrax need dense matrices: reduce the body first, or take Newmark()."
        )
    u0 = jnp.zeros(shape) if u0 is None else numbers("u0", u0, shape)
    v0 = jnp.zeros(shape) if v0 is None else numbers("v0", v0, shape)
    steps = max(1, int(np.ceil((t1 - t0) / dt - 1e-9)))
    if ts is None:
        ts = jnp.linspace(t0, t1, steps + 1)
    ts = numbers("ts", ts, (np.size(ts),))
    if not len(ts):
        raise ValueError("ts is empty; give at least one time to save at.")
    if concrete(ts) and not (np.min(ts) >= t0 and np.max(ts) <= t1 and np.all(np.diff(ts) >= 0)):
        raise ValueError(f"The times ts must increase and lie between {t0:g} and {t1:g} s.")
    adjoint = diffrax.RecursiveCheckpointAdjoint() if adjoint is None else adjoint
    meter = diffrax.NoProgressMeter() if progress_meter is None else progress_meter
    if load is not None:
        _check_load(load, shape)
    if not whole and load is not None:
        _check_patterns(body, load)
    # A frame at rest has no inertia forces.
    model = structure(body, geometric and motion is not None) if whole else body.structure
    fastest = _look_ahead(motion, load, (t0, t1))
    _warn(model, motion, (t1 - t0) / steps, fastest)
    # Python floats would be compiled in as constants.
    span = jnp.asarray(t0, dtype=float), jnp.asarray(t1, dtype=float)
    tolerances = jnp.asarray(rtol, dtype=float), jnp.asarray(atol, dtype=float)
    with forward_mode_explained():
        response = _simulate(
            body, model, motion, load, u0, v0, ts, save, method, meter, adjoint, span, steps,
            tolerances, max_steps,
        )  # fmt: skip
    is_okay = diffrax.is_okay(response.result)
    if throw and concrete(is_okay) and not is_okay:
        raise RuntimeError(
            f"The motion stopped after {int(response.stats['num_steps'])} steps: raise max_steps, "
            "loosen rtol and atol, or check the motion and the load."
        )
    return response


@eqx.filter_jit
def _simulate(
    body, model, motion, load, u0, v0, ts, save, method, meter, adjoint, span, steps, tolerances,
    max_steps,
):  # fmt: skip
    t0, t1 = span
    h = (t1 - t0) / steps
    reduced = isinstance(body, Reduced)
    frame = (lambda t: None) if motion is None else motion

    def amounts(t):
        inertial = jnp.zeros(12) if motion is None else frame(t).amounts
        return inertial if load is None else jnp.concatenate([inertial, load.amount(t)])

    if reduced:
        loads = jnp.einsum("ind,snd->si", body.shapes, body.patterns)

        def displacements(t, q):
            known = amounts(t)
            return jnp.tensordot(q, body.shapes, 1) + jnp.tensordot(
                known, body.corrections[: len(known)], 1
            )

        def output(t, y):
            # The corrections follow the loads and so contribute to the velocity.
            u, v = jax.jvp(displacements, (t, y[0]), (jnp.ones_like(t), y[1]))
            return (u, v, y[0]) if save is None else save(t, u, v)

        known, rate = jax.jvp(amounts, (t0,), (jnp.ones_like(t0),))
        corrections = body.corrections[: len(known)]
        y0 = (
            _fit(body, u0 - jnp.tensordot(known, corrections, 1)),
            _fit(body, v0 - jnp.tensordot(rate, corrections, 1)),
        )
    else:
        own = () if load is None else (load.patterns,)
        loads = jnp.concatenate([model.inertia.patterns(), *own])

        def output(t, y):
            return (*y, None) if save is None else save(t, *y)

        y0 = (model.held(u0), model.held(v0))

    def force(t):
        present = amounts(t)
        return jnp.tensordot(present, loads[: len(present)], 1)

    mass = model.factorise(jnp.array(1.0), jnp.array(0.0))
    term = StructureTerm(model, frame, force, _Mass(model, mass))
    if isinstance(method, Integrator):
        # Rounding of the product must not change the end.
        times = (t0 + h * jnp.arange(steps + 1.0)).at[-1].set(t1)
        solver, control = prepare(method, term, h), diffrax.StepTo(times)
        count, first = steps, None
    else:
        solver, count, first = method, max_steps, h
        control = Controller(rtol=tolerances[0], atol=tolerances[1])
    solution = diffrax.diffeqsolve(
        term,
        solver,
        t0,
        t1,
        first,
        y0,
        # Reduced coordinates are expanded after the loop, which is faster.
        saveat=diffrax.SaveAt(
            ts=jnp.clip(ts, t0, t1), fn=lambda t, y, args: y if reduced else output(t, y)
        ),
        stepsize_controller=control,
        max_steps=count,
        progress_meter=meter,
        adjoint=adjoint,
        throw=False,
    )
    saved = solution.ys
    if reduced:
        saved = jax.lax.map(lambda state: output(*state), (solution.ts, saved))
    if save is None:
        u, v, q = saved
        return Response(solution.ts, u, v, q, None, solution.result, solution.stats)
    return Response(solution.ts, None, None, None, saved, solution.result, solution.stats)


class _Mass(eqx.Module):
    """Solves with the mass matrix, differentiably."""

    structure: Structure
    factor: Any

    def solve(self, b: Array) -> Array:
        s = self.structure

        def matvec(a):
            return jnp.where(s.free, s.mass(a), a)

        def invert(_, right):
            return jax.lax.stop_gradient(self.factor).solve(right)

        return jax.lax.custom_linear_solve(matvec, b, invert, symmetric=True)


def _check_load(load: Any, shape: tuple[int, int]) -> None:
    """Raise unless a load is a `Load` with patterns of this body's shape."""
    if not isinstance(load, Load):
        raise ValueError(
            f"The load is a {type(load).__name__}; give Load(patterns, amount): for a constant "
            "load f (n, d), Load(f[None], lambda t: jnp.ones(1))."
        )
    numbers(
        "The array of patterns of the load", load.patterns, (np.shape(load.patterns)[0], *shape)
    )


def _check_patterns(body: Reduced, load: Load) -> None:
    """Raise unless the load has the patterns that the body was reduced with."""
    given, known = load.patterns, body.patterns[12:]
    if len(given) != len(known):
        raise ValueError(
            f"The load has {len(given)} patterns, but the body was reduced with {len(known)}; "
            "give `reduce` the same patterns."
        )
    if not (concrete(given) and concrete(known)):
        return
    # `reduce` drops the loads on fixed degrees of freedom, where all shapes are zero.
    fixed = np.all(np.asarray(body.shapes) == 0, axis=0)
    off = np.abs(np.where(fixed, 0.0, given - known)).max(initial=0.0)
    if off > 1e-9 * np.abs(known).max(initial=0.0):
        raise ValueError(
            "The patterns of the load are not those that the body was reduced with; give "
            "`reduce` the same ones in the same order."
        )


def _fit(body: Reduced, u: Array) -> Array:
    """Coordinates of the least-squares fit of the shapes to displacements."""
    gram = jnp.einsum("ind,jnd->ij", body.shapes, body.shapes)
    return dense.solve(gram, jnp.einsum("ind,nd->i", body.shapes, u))


def _look_ahead(motion, load: Load | None, span: tuple[float, float]) -> Array:
    """Largest angular speed of the frame [rad/s]; raise where motion or load is not finite."""
    amount = None if load is None else load.amount
    if not _concrete((motion, amount)):
        return jnp.array(0.0)
    times = jnp.linspace(*span, SAMPLES)
    frame, amount, speed = _sampled(motion, amount, times)
    for what, values in (("motion of the frame", frame), ("amount of the load", amount)):
        # A function may have closed over traced numbers.
        if concrete(values) and not np.all(np.isfinite(values)):
            first = np.flatnonzero(~np.all(np.isfinite(values), axis=1))[0]
            raise ValueError(f"The {what} is not finite at {float(times[first]):g} s.")
    return speed


def _concrete(tree: Any) -> bool:
    return all(map(concrete, jax.tree.leaves(eqx.filter(tree, eqx.is_array))))


@eqx.filter_jit
def _sampled(motion, amount, times: Array) -> tuple[Array, Array, Array]:
    """Amounts of the motion and of the load at some times, and the largest angular speed."""
    nothing = jnp.zeros((len(times), 0))
    loads = nothing if amount is None else jax.vmap(lambda t: jnp.ravel(amount(t)))(times)
    if motion is None:
        return nothing, loads, jnp.array(0.0)
    frames = jax.vmap(motion)(times)
    speed = jnp.sqrt(jnp.max(jnp.sum(frames.angular_velocity**2, axis=1)))
    return jax.vmap(lambda frame: frame.amounts)(frames), loads, speed


def _warn(model: Structure, motion, h: float, fastest: Array) -> None:
    """Warn of steps that are too long, and of a rotation too fast without stiffening."""
    if not _concrete((model, motion)):
        return
    slowest = float(_slowest(model))
    period = 2 * np.pi / slowest
    if model.geometric is None and concrete(fastest) and fastest > slowest:
        warnings.warn(
            f"The frame rotates at up to {float(fastest):.3g} rad/s, faster than the body's "
            f"slowest vibration ({slowest:.3g} rad/s), where a body without geometric stiffness "
            "diverges; set geometric=True (for a reduced body, in `reduce`).",
            stacklevel=3,
        )
    if h > COARSE * period:
        warnings.warn(
            f"The step dt is {h:.3g} s, {h / period:.2g} times the period of the slowest vibration "
            f"({period:.3g} s); take at most {COARSE:g} times the period.",
            stacklevel=3,
        )
    if concrete(fastest) and h * np.asarray(fastest) > COARSE_ROTATION:
        warnings.warn(
            f"The frame rotates by {float(h * fastest):.2g} rad in one step of {h:.3g} s; take "
            f"steps of at most {COARSE_ROTATION:g} rad.",
            stacklevel=3,
        )


@eqx.filter_jit
def _slowest(model: Structure) -> Array:
    """Estimate of the lowest circular frequency [rad/s], by inverse iteration."""
    factor = model.factorise(jnp.array(0.0), jnp.array(1.0))
    start = np.random.default_rng(0).standard_normal(model.free.shape)

    def step(_, x):
        y = factor.solve(model.held(model.mass(x)))
        return y / jnp.max(jnp.abs(y))

    x = jax.lax.fori_loop(0, 12, step, model.held(jnp.asarray(start)))
    return jnp.sqrt(jnp.vdot(x, model.elastic(x)) / jnp.vdot(x, model.mass(x)))
