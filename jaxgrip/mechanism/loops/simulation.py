"""Motion in time with loops that stay closed."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jaxgrip.checks import check_function, check_times, concrete, non_negative, numbers, positive
from jaxgrip.mechanism.loops.closing import SINGULAR, MechanismError, worst
from jaxgrip.mechanism.loops.dynamics import motion
from jaxgrip.mechanism.loops.equations import (
    Equations,
    closed,
    free,
    inverse_of,
    missed_rate,
    project,
    weighted_jacobian,
)
from jaxgrip.mechanism.loops.kinematics import constraint_matrix, mass_matrix, state
from jaxgrip.mechanism.loops.mobility import mobility
from jaxgrip.mechanism.loops.model import Mechanism
from jaxgrip.precision import require_x64
from jaxgrip.solve import dense
from jaxgrip.solve.fusion import jit_plainly
from jaxgrip.solve.integration import Solution, forward_mode_explained, integrate, why_stopped
from jaxgrip.solve.stiff import newton_kvaerno5
from jaxgrip.spatial import quaternions

# Largest gap of an initial state that counts as closed.
SLACK = 1e-9
# An error of the coordinates that the projection removes does not count, unless it is larger than
# this [rad or m]: a motion that drives determine has no other, and could end on another branch.
FAR = 1e-2
# Where a step begins with a smaller ratio of the constraints' singular values, down to `SINGULAR`,
# its stages are projected too, so that it can go over the singular position.
NEAR = 5e-2
# A step to near a singular position is taken again, shorter, if the ratio of the constraints'
# singular values falls to less than this part of it, unless the motion ends there: from there
# rounding would decide.
PLUNGE = 0.1
# Largest gap of a motion, and the rate [per s] below which it may lose all in a projection.
OPEN = 1e-6


class Motion(NamedTuple):
    """A motion at given times `t` (k,) [s].

    `q`, `qd` and `qdd` (k, n) [rad or m, per s, per s^2]; `multipliers` (k, m) [N and N m];
    `gap` (k, m): residuals of the constraints [m and sines], and `gap_rate` (k, m) [per s];
    `conditioning` (k,): smallest over largest singular value of the constraints; `passages`:
    number of singular positions passed, `passed_at`: time of the last [s]; `turned` (k, balls, 4):
    unit quaternions of the `balls` from their rotations in the mechanism. Their coordinates are
    zero and the rates of these angular velocities in axes of the body. `inner`: states of the
    forces, with a leading axis (k,).
    """

    t: Float[Array, " k"]
    q: Float[Array, "k n"]
    qd: Float[Array, "k n"]
    qdd: Float[Array, "k n"]
    multipliers: Float[Array, "k m"]
    gap: Float[Array, "k m"]
    gap_rate: Float[Array, "k m"]
    conditioning: Float[Array, " k"]
    passages: Int[Array, ""]
    passed_at: Float[Array, ""]
    turned: Float[Array, "k balls 4"]
    inner: Any

    def warnings(self) -> tuple[str, ...]:
        """Sentences on singular positions that the mechanism passes or comes near to."""
        return singular(self.t, self.conditioning, self.passages, self.passed_at)


def singular(
    times: Array, conditioning: Array, passages: Array, passed_at: Array
) -> tuple[str, ...]:
    """Sentences on the singular positions of a motion, given its fields."""
    said = []
    if passages:
        often = "once" if passages == 1 else f"{int(passages)} times, the last"
        said.append(
            f"The mechanism went through a singular position {often} at t = "
            f"{float(passed_at):g} s, where the motion has more than one continuation. It stayed "
            "on its branch."
        )
    times, conditioning = map(np.atleast_1d, (times, conditioning))
    k = int(np.argmin(conditioning))
    if conditioning[k] < SINGULAR:
        said.append(
            f"At t = {times[k]:g} s the mechanism is near a singular position: smallest over "
            f"largest singular value of its constraints is {float(conditioning[k]):.1g}. There the "
            "motion may have more than one continuation, and rounding decides which it takes."
        )
    return tuple(said)


class MotionState(NamedTuple):
    """State of a motion: `q` and `qd` (n,); `turned` (balls, 4), unit quaternions from which the
    coordinates of balls are measured, constant within a step; `inner`, states of the forces, or
    None."""

    q: Float[Array, " n"]
    qd: Float[Array, " n"]
    turned: Float[Array, "balls 4"]
    inner: Any = None


class Setting(eqx.Module):
    """A mechanism with its forces and drives.

    `effort`: function of `(t, equations, q, qd, inner)` giving (n,) torques or forces and the rates
    of the states of the forces, or None; `drives`: functions of t giving the values of the drives
    of the loops `driven` [m or rad]; `is_near`: whether a step begins near a singular position;
    `end`: time at which the motion ends [s].
    """

    mechanism: Mechanism
    effort: Callable[..., tuple[Array, Any]] | None
    drives: tuple[Callable[..., Any], ...]
    driven: tuple[int, ...] = eqx.field(static=True)
    is_near: Array = eqx.field(default_factory=lambda: jnp.zeros((), bool))
    end: Array = eqx.field(default_factory=lambda: jnp.array(jnp.inf))

    def equations(self, t: Array, turned: Array) -> Equations:
        """The constraints at a time, with balls at the rotations `turned`."""
        mechanism = self.mechanism.turned(turned)
        if not self.driven:
            return free(mechanism)

        def values(t: Array) -> Array:
            return jnp.stack([jnp.asarray(drive(t), turned.dtype) for drive in self.drives])

        def with_rates(t: Array) -> tuple:
            return jax.jvp(values, (t,), (jnp.ones_like(t),))

        (now, rates), (_, accelerations) = jax.jvp(with_rates, (t,), (jnp.ones_like(t),))
        return Equations(
            mechanism.with_drives(self.driven, now),
            jnp.zeros(0, turned.dtype),
            (),
            rates,
            accelerations,
            self.driven,
        )

    def motion(self, t: Array, equations: Equations, x: MotionState) -> tuple[Array, Array, Any]:
        """Accelerations, multipliers, and rates of the states of the forces."""
        tau, inner = jnp.zeros_like(x.q), x.inner
        if self.effort is not None:
            tau, inner = self.effort(t, equations, x.q, x.qd, x.inner)
        return *motion(equations, x.q, x.qd, tau, tau[:0]), inner


class _Torque(eqx.Module):
    """An `effort` from a function of `(t, q, qd)`."""

    function: Callable[..., Any]

    def __call__(
        self, t: Array, equations: Equations, q: Array, qd: Array, inner: Any
    ) -> tuple[Array, Any]:
        return jnp.asarray(self.function(t, q, qd), q.dtype), inner


class _Passed(NamedTuple):
    """Singular positions that a motion has passed, and what shows the next.

    `left` (m,) and `right` (n,): singular vectors of the smallest singular value that is not
    always zero; `size`: its ratio to the largest; `rank`: how many are not always zero; `count` of
    the singular positions passed; `time` of the last [s].
    """

    left: Float[Array, " m"]
    right: Float[Array, " n"]
    size: Float[Array, ""]
    rank: Int[Array, ""]
    count: Int[Array, ""]
    time: Float[Array, ""]


class Projected(diffrax.AbstractAdaptiveSolver, diffrax.AbstractWrappedSolver):
    """A solver whose every step ends with a projection to closed positions and velocities.

    Only errors that remain after the projection count: near a singular position rounding makes
    accelerations normal to the constraints arbitrarily wrong, and no step would be small enough.
    """

    solver: diffrax.AbstractSolver

    @property
    def term_structure(self):
        """As of the wrapped solver."""
        return self.solver.term_structure

    @property
    def interpolation_cls(self):
        """As of the wrapped solver."""
        return self.solver.interpolation_cls

    @property
    def term_compatible_contr_kwargs(self):
        """As of the wrapped solver."""
        return self.solver.term_compatible_contr_kwargs

    @property
    def scan_kind(self):
        """As of the wrapped solver; diffrax sets it for forward derivatives."""
        return self.solver.scan_kind

    @property
    def root_finder(self):
        """As of a wrapped implicit solver."""
        return self.solver.root_finder

    def order(self, terms):
        """As of the wrapped solver."""
        return self.solver.order(terms)

    def init(self, terms, t0, t1, y0, args):
        """State of the solver, and the singular positions passed."""
        return self.solver.init(terms, t0, t1, y0, args), _passed(args, t0, y0)

    def func(self, terms, t0, y0, args):
        """Rate of change."""
        return self.solver.func(terms, t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        """A step of the solver, projected."""
        state, passed = solver_state
        # The projection changes the state, so that the last rate cannot be used again.
        is_near = (passed.size > SINGULAR) & (passed.size < NEAR)
        near = eqx.tree_at(lambda setting: setting.is_near, args, is_near)
        y1, error, dense, state, result = self.solver.step(
            terms, t0, t1, y0, near, state, made_jump=True
        )
        y1, error = _projected(args, t1, y1, error)
        y1 = recentred(args.mechanism, y1)
        next_passed = _passed(args, t1, y1, t0, passed)
        is_plunge = next_passed.size < jnp.minimum(SINGULAR, PLUNGE * passed.size)
        is_plunge &= t1 < args.end
        error = jax.tree.map(lambda e: jnp.where(is_plunge, jnp.inf, e), error)
        return y1, error, dense, (state, next_passed), result


def _projected(
    setting: Setting, t: Array, x: MotionState, dx: MotionState
) -> tuple[MotionState, MotionState]:
    """The nearest closed state, and what the projection leaves of a small change of the state."""
    equations = setting.equations(t, x.turned)
    if not equations.rows:
        return x, dx
    inverse = inverse_of(equations, x.q)
    q, qd = project(equations, inverse, x.q, x.qd)

    # For an error, which is small, derivatives at the state before the projection will do.
    _, gap = jax.jvp(equations, (x.q,), (dx.q,))
    dq = dx.q - inverse.driven @ gap
    _, rate = jax.jvp(functools.partial(missed_rate, equations), (x.q, x.qd), (dq, dx.qd))
    is_far = jnp.max(jnp.abs(dx.q - dq)) > FAR
    # Where a step ends on a singular position, rounding decides the direction of the rates.
    lost = x.qd - qd
    is_lost = jnp.max(jnp.abs(lost)) > FAR * jnp.max(jnp.abs(x.qd)) + OPEN
    dqd = jnp.where(is_lost, lost, dx.qd - inverse.driven @ rate)
    left = dx._replace(q=jnp.where(is_far, dx.q, dq), qd=dqd)
    return x._replace(q=q, qd=qd), left


def recentred(mechanism: Mechanism, x: MotionState) -> MotionState:
    """The same state with all coordinates of balls at zero."""
    if not mechanism.balls:
        return x
    index = np.array(mechanism.balls)

    def one(angles: Array, rates: Array, quaternion: Array) -> tuple[Array, Array]:
        unit = jnp.eye(3, dtype=angles.dtype)
        x, y, z = (quaternions.exponential(a * axis) for a, axis in zip(angles, unit, strict=True))
        y_z = quaternions.product(y, z)
        # Seen from the body, each axis is rotated by the rotations that follow it.
        about_x, about_y = quaternions.to_matrix(y_z)[0], quaternions.to_matrix(z)[1]
        spin = about_x * rates[0] + about_y * rates[1] + unit[2] * rates[2]
        product = quaternions.product(quaternion, quaternions.product(x, y_z))
        return product / jnp.linalg.norm(product), spin

    turned, spin = jax.vmap(one)(x.q[index], x.qd[index], x.turned)
    return MotionState(x.q.at[index].set(0.0), x.qd.at[index].set(spin), turned, x.inner)


def _passed(
    setting: Setting, t: Array, x: MotionState, t0: Array | None = None, last: _Passed | None = None
) -> _Passed:
    """Singular positions passed up to the next state: where the smallest singular value goes
    through zero, one of its two singular vectors changes sign."""
    q, none = lax.stop_gradient(x.q), jnp.zeros((), int)
    if not setting.mechanism.m:
        empty, one = jnp.zeros(0, q.dtype), jnp.ones((), q.dtype)
        return _Passed(empty, jnp.zeros_like(q), one, none, none, jnp.full_like(one, jnp.nan))
    mechanism = lax.stop_gradient(setting.equations(t, x.turned).mechanism)
    now = state(mechanism.tree, q, jnp.zeros_like(q))
    left, size, right = dense.svd(constraint_matrix(mechanism, now))
    rank = jnp.sum(dense.independent(size))
    if last is not None:
        rank = jnp.maximum(rank, last.rank)
    k = jnp.maximum(rank - 1, 0)
    left, right, size = left[:, k], right[k], size[k] / size[0]
    if last is None:
        return _Passed(left, right, size, rank, none, jnp.full_like(size, jnp.nan))
    same = (left @ last.left) * (right @ last.right)
    is_passage = same < -0.5
    fraction = last.size / (last.size + size)
    time = jnp.where(is_passage, t0 + fraction * (t - t0), last.time)
    return _Passed(left, right, size, rank, last.count + is_passage.astype(int), time)


def _rate(t: Array, x: MotionState, setting: Setting) -> MotionState:
    equations = setting.equations(t, x.turned)
    if equations.rows:
        # Accelerations of a state with a gap go wrong by the gap over the distance.
        x = lax.cond(setting.is_near, functools.partial(_closer, equations), lambda x: x, x)
    qdd, _, inner = setting.motion(t, equations, x)
    return MotionState(x.qd, qdd, jnp.zeros_like(x.turned), inner)


def _closer(equations: Equations, x: MotionState) -> MotionState:
    q, qd = project(equations, inverse_of(equations, x.q), x.q, x.qd)
    return x._replace(q=q, qd=qd)


@jit_plainly
def _simulate(setting, x0, times, rtol, atol, max_steps, adjoint) -> tuple:
    # Bristles and gears are stiff.
    solver = newton_kvaerno5() if jax.tree.leaves(x0.inner) else diffrax.Dopri8()
    solution = integrate(
        _rate,
        Projected(solver),
        times,
        x0,
        eqx.tree_at(lambda setting: setting.end, setting, times[-1]),
        rtol=rtol,
        atol=atol,
        max_steps=max_steps,
        adjoint=adjoint,
        throw=False,
    )

    passed = solution.solver_state[1]
    motion = _looked(setting, times, solution.ys, passed.count, passed.time)
    # Nothing can be raised here: a motion that has left its joints is not finite from there on.
    is_closed = jnp.max(jnp.abs(motion.gap), axis=1, initial=0.0) <= OPEN
    still = jnp.where(jnp.cumprod(is_closed) > 0, 1.0, jnp.nan)
    q, qd, qdd = (still[:, None] * x for x in (motion.q, motion.qd, motion.qdd))
    return motion._replace(q=q, qd=qd, qdd=qdd), solution


@jit_plainly
def at_once(setting: Setting, x0: MotionState, t: Array) -> Motion:
    """The motion at its initial state only, k = 1."""
    start = jax.tree.map(lambda x: x[None], x0)
    return _looked(setting, t[None], start, jnp.zeros((), int), jnp.full_like(t, jnp.nan))


def _looked(
    setting: Setting, times: Array, x: MotionState, passages: Array, passed_at: Array
) -> Motion:
    """Accelerations, multipliers and gaps at states (k, ...), which are projected first."""

    def look(t: Array, x: MotionState) -> tuple:
        equations = setting.equations(t, x.turned)
        q, qd = closed(equations, x.q, x.qd)
        x = recentred(setting.mechanism, x._replace(q=q, qd=qd))
        equations = setting.equations(t, x.turned)
        qdd, multipliers, _ = setting.motion(t, equations, x)
        return x, qdd, multipliers, equations(x.q), missed_rate(equations, x.q, x.qd)

    x, *seen = jax.vmap(look)(times, x)
    sharp = _conditioning(setting, times, x)
    return Motion(times, x.q, x.qd, *seen, sharp, passages, passed_at, x.turned, x.inner)


def _conditioning(setting: Setting, times: Array, x: MotionState) -> Array:
    """Smallest over largest singular value at every position, of those not always zero."""
    if not setting.mechanism.m or not x.q.shape[1]:
        return jnp.ones(len(times), x.q.dtype)

    def sizes(t: Array, x: MotionState) -> Array:
        mechanism = lax.stop_gradient(setting.equations(t, x.turned).mechanism)
        now = state(mechanism.tree, x.q, jnp.zeros_like(x.q))
        rows = constraint_matrix(mechanism, now)
        weighted = weighted_jacobian(mass_matrix(mechanism.tree, now), rows)[1]
        return dense.singular_values(weighted)

    size = lax.stop_gradient(jax.vmap(sizes)(times, lax.stop_gradient(x)))
    rank = jnp.max(jnp.sum(dense.independent(size), axis=1))
    return size[:, rank - 1] / size[:, 0]


def simulate(
    mechanism: Mechanism,
    q0: Float[Array, " n"],
    qd0: Float[Array, " n"],
    times: Float[Array, " k"],
    torque: Callable[..., Any] | None = None,
    *,
    rtol: float = 1e-11,
    atol: float = 1e-11,
    max_steps: int = 100_000,
    adjoint: diffrax.AbstractAdjoint | None = None,
) -> Motion:
    """Motion of a mechanism from a closed initial state; its loops stay closed.

    Every step ends with a projection to closed positions and velocities, to rounding.

    **Arguments:**

    - `mechanism`.
    - `q0`, `qd0`: (n,) coordinates [rad or m] and rates [per s] at the first time, closed to 1e-9;
      `assemble` and `consistent_velocity` make them.
    - `times`: (k,) increasing [s].
    - `torque`: function of `(t, q, qd)` giving (n,) torques or forces at the joints of the tree
      [N m or N]; zero when None.
    - `rtol`, `atol`: relative and absolute tolerance of a step, the latter in units of the state.
    - `max_steps`: limit on the number of steps.
    - `adjoint`: how derivatives are taken, `diffrax.ForwardMode()` for `jax.jvp` and `jax.jacfwd`;
      in reverse when None.

    **Returns:** `Motion`; differentiable with respect to the numbers of the mechanism and of the
    torque, and the initial state.

    **Raises:** `ValueError` for another shape, for numbers not finite, for times not increasing and
    for a torque that is not such a function; `MechanismError` for an initial state that is not
    closed, and when the motion stops: at a singular position, at the step limit, or because it is
    no longer finite. Within `jit` and `vmap` a motion that stops is not finite from there on.

    Source: index-1 equations by Dopri8 with error control, projected after every step
    (Hairer 1996, section VII.2).
    """
    require_x64("Simulating a mechanism")
    q0, qd0 = (numbers(name, x, (mechanism.n,)) for name, x in (("q0", q0), ("qd0", qd0)))
    times = check_times(times)
    if torque is not None:
        check_function("torque", torque, (mechanism.n,), t=times[0], q=q0, qd=qd0)
    # As arrays, so that another tolerance does not recompile.
    tolerances = positive("rtol", rtol, ()), non_negative("atol", atol, ())
    setting = Setting(mechanism, None if torque is None else _Torque(torque), (), ())
    x0 = MotionState(q0, qd0, mechanism.unturned)
    return run(setting, x0, times, *tolerances, max_steps, adjoint)


def run(
    setting: Setting,
    x0: MotionState,
    times: Array,
    rtol: Array,
    atol: Array,
    max_steps: int,
    adjoint: diffrax.AbstractAdjoint | None,
) -> Motion:
    """The motion of a setting; see `simulate`."""
    _check_start(setting.equations(times[0], x0.turned), x0.q, x0.qd)
    with forward_mode_explained():
        motion, solution = _simulate(setting, x0, times, rtol, atol, max_steps, adjoint)
    if concrete(motion.q) and not np.isfinite(motion.q).all():
        gap = np.abs(np.asarray(motion.gap)).max(axis=1, initial=0.0)
        if (gap > OPEN).any():
            k = int(np.argmax(gap > OPEN))
            raise MechanismError(
                f"The motion leaves its joints: at t = {float(times[k]):g} s they are open by "
                f"{gap[k]:.3g}. Tighten rtol and atol."
            )
        raise MechanismError(_stopped(setting.mechanism, solution))
    return motion


def _stopped(mechanism: Mechanism, solution: Solution) -> str:
    if np.isfinite(solution.y.q).all():
        found = mobility(mechanism.turned(solution.y.turned), solution.y.q)
        if found.conditioning < SINGULAR:
            return (
                f"{solution.stopped()}, near a singular position: smallest over largest singular "
                f"value of the constraints is {found.conditioning:.1g}. The motion is not unique."
            )
    return why_stopped(solution)


def _check_start(equations: Equations, q0: Array, qd0: Array) -> None:
    mechanism = equations.mechanism
    gap, rate = equations(q0), missed_rate(equations, q0, qd0)
    if not mechanism.m or not (concrete(gap) and concrete(rate)):
        return
    gap, rate = np.asarray(gap), np.asarray(rate)
    if not np.abs(gap).max() <= SLACK:
        what, amount = worst(mechanism, gap)
        raise MechanismError(
            f"The initial position violates {what} by {amount}; close it first with assemble."
        )
    if not np.abs(rate).max() <= SLACK * (1 + float(jnp.max(jnp.abs(qd0)))):
        what, amount = worst(mechanism, rate)
        raise MechanismError(
            f"The initial velocity violates {what} by {amount} per second; make it consistent "
            "first with consistent_velocity."
        )
