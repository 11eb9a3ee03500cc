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
from jaxgrip.mechanisms.closing import SINGULAR, MechanismError, mobility, worst
from jaxgrip.mechanisms.dynamics import forward_dynamics
from jaxgrip.mechanisms.equations import (
    RANK_TOLERANCE,
    along,
    free,
    inverse_of,
    project,
    weighted_jacobian,
)
from jaxgrip.mechanisms.kinematics import constraint_matrix, mass_matrix, state
from jaxgrip.mechanisms.mechanism import Mechanism
from jaxgrip.precision import require_x64
from jaxgrip.solve import dense
from jaxgrip.solve.integration import Solution, forward_mode_explained, integrate, why_stopped

# How far an initial state may be from a closed one and still be taken for it.
SLACK = 1e-9


class Motion(NamedTuple):
    """A motion at given times `t` (k,) [s].

    `q`, `qd` and `qdd` (k, n) [rad or m, per s, per s^2]; `multipliers` (k, m) [N and N m];
    `gap` (k, m), what the constraints miss [m and sines], and `gap_rate` (k, m) [per s];
    `conditioning` (k,), smallest singular value of the constraints over the largest; `passages`,
    through how many singular positions it has gone, and `passed_at`, through the last of them [s].
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

    def warnings(self) -> tuple[str, ...]:
        """Sentences where the mechanism comes near to a singular position, or goes through one."""
        said = []
        if self.passages:
            times = "once" if self.passages == 1 else f"{int(self.passages)} times, the last"
            said.append(
                f"The mechanism went through a singular position {times} at t = "
                f"{float(self.passed_at):g} s, where it could have gone on in another way too. It "
                "went on as it came."
            )
        k = int(np.argmin(self.conditioning))
        if self.conditioning[k] >= SINGULAR:
            return tuple(said)
        return (
            *said,
            f"At t = {float(self.t[k]):g} s the mechanism is near a singular position: its "
            f"constraints are independent to {float(self.conditioning[k]):.1g} only. There it may "
            "go on in more than one way, and which it takes is left to rounding.",
        )


class _Passed(NamedTuple):
    """What a motion has come through.

    `left` (m,) and `right` (n,), the singular vectors of the smallest singular value that is not
    always zero, its `size` over the largest and its `rank` among them; `count` of the singular
    positions passed, `time` of the last one [s].
    """

    left: Float[Array, " m"]
    right: Float[Array, " n"]
    size: Float[Array, ""]
    rank: Int[Array, ""]
    count: Int[Array, ""]
    time: Float[Array, ""]


class Projected(diffrax.AbstractAdaptiveSolver, diffrax.AbstractWrappedSolver):
    """A solver whose every step ends on the closed positions and velocities.

    Errors that the projection takes back count for nothing: near a singular position rounding
    makes accelerations across the constraints arbitrarily wrong, and no step would be small
    enough.
    """

    solver: diffrax.AbstractSolver

    @property
    def term_structure(self):
        """Of the solver."""
        return self.solver.term_structure

    @property
    def interpolation_cls(self):
        """Of the solver."""
        return self.solver.interpolation_cls

    @property
    def term_compatible_contr_kwargs(self):
        """Of the solver."""
        return self.solver.term_compatible_contr_kwargs

    @property
    def scan_kind(self):
        """Of the solver; diffrax sets it for forward derivatives."""
        return self.solver.scan_kind

    def order(self, terms):
        """Of the solver."""
        return self.solver.order(terms)

    def init(self, terms, t0, t1, y0, args):
        """State of the solver, and the singular positions passed."""
        return self.solver.init(terms, t0, t1, y0, args), _passed(args[0], y0, t0)

    def func(self, terms, t0, y0, args):
        """Rate of change."""
        return self.solver.func(terms, t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        """A step of the solver, projected."""
        state, passed = solver_state
        # A solver that keeps the last rate of a step would keep that before the projection.
        y1, error, dense, state, result = self.solver.step(
            terms, t0, t1, y0, args, state, made_jump=True
        )
        y1, error = _projected(args[0], y1, error)
        return y1, error, dense, (state, _passed(args[0], y1, t1, t0, passed)), result


def _projected(mechanism: Mechanism, x: Array, dx: Array) -> tuple[Array, Array]:
    """The nearest closed state, and of a small change what is left of it there."""
    equations, n = free(mechanism), mechanism.n
    inverse = inverse_of(equations, x[:n])
    nearest = functools.partial(project, equations, inverse)
    found, left = jax.jvp(nearest, (x[:n], x[n:]), (dx[:n], dx[n:]))
    return jnp.concatenate(found), jnp.concatenate(left)


def _project(mechanism: Mechanism, x: Array) -> Array:
    return _projected(mechanism, x, jnp.zeros_like(x))[0]


def _passed(
    mechanism: Mechanism, x: Array, t: Array, t0: Array | None = None, last: _Passed | None = None
) -> _Passed:
    """Follow the smallest singular value to the next state: its sign, with that of its vectors,
    changes where it is zero."""
    q, none = lax.stop_gradient(x[: mechanism.n]), jnp.zeros((), int)
    if not mechanism.m:
        empty, one = jnp.zeros(0, x.dtype), jnp.ones((), x.dtype)
        return _Passed(empty, jnp.zeros_like(q), one, none, none, jnp.full_like(one, jnp.nan))
    mechanism = lax.stop_gradient(mechanism)
    now = state(mechanism.tree, q, jnp.zeros_like(q))
    left, size, right = dense.svd(constraint_matrix(mechanism, now))
    rank = jnp.sum(size > RANK_TOLERANCE * size[0])
    if last is not None:
        rank = jnp.maximum(rank, last.rank)
    k = jnp.maximum(rank - 1, 0)
    left, right, size = left[:, k], right[k], size[k] / size[0]
    if last is None:
        return _Passed(left, right, size, rank, none, jnp.full_like(size, jnp.nan))
    same = (left @ last.left) * (right @ last.right)
    is_passage = same < -0.5
    place = last.size / (last.size + size)
    time = jnp.where(is_passage, t0 + place * (t - t0), last.time)
    return _Passed(left, right, size, rank, last.count + is_passage.astype(int), time)


def _rate(t: Array, x: Array, args: tuple) -> Array:
    mechanism, torque = args
    q, qd = x[: mechanism.n], x[mechanism.n :]
    tau = jnp.zeros_like(q) if torque is None else jnp.asarray(torque(t, q, qd), q.dtype)
    return jnp.concatenate([qd, forward_dynamics(mechanism, q, qd, tau)[0]])


@eqx.filter_jit
def _simulate(mechanism, x0, times, torque, rtol, atol, max_steps, adjoint) -> tuple:
    solution = integrate(
        _rate,
        Projected(diffrax.Dopri8()),
        times,
        x0,
        (mechanism, torque),
        rtol=rtol,
        atol=atol,
        max_steps=max_steps,
        adjoint=adjoint,
        throw=False,
    )

    def look(t, x):
        x = _project(mechanism, x)
        q, qd = x[: mechanism.n], x[mechanism.n :]
        tau = jnp.zeros_like(q) if torque is None else jnp.asarray(torque(t, q, qd), q.dtype)
        qdd, multipliers = forward_dynamics(mechanism, q, qd, tau)
        equations = free(mechanism)
        return q, qd, qdd, multipliers, equations(q), along(equations, q, qd)

    seen = jax.vmap(look)(times, solution.ys)
    passed = solution.solver_state[1]
    motion = Motion(times, *seen, _conditioning(mechanism, seen[0]), passed.count, passed.time)
    return motion, solution


def _conditioning(mechanism: Mechanism, q: Array) -> Array:
    """Smallest over largest singular value at every position, of as many as ever differ from 0."""
    if not mechanism.m:
        return jnp.ones(len(q), q.dtype)
    now = jax.vmap(lambda x: state(mechanism.tree, x, jnp.zeros_like(x)))(lax.stop_gradient(q))

    def sizes(now):
        rows = constraint_matrix(mechanism, now)
        weighted = weighted_jacobian(mass_matrix(mechanism.tree, now), rows)[1]
        return dense.singular_values(weighted)

    size = lax.stop_gradient(jax.vmap(sizes)(now))
    rank = jnp.max(jnp.sum(size > RANK_TOLERANCE * size[:, :1], axis=1))
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
    """Motion of a mechanism from a closed initial state; its loops cannot pull apart.

    Every step ends with a projection to closed positions and velocities, to rounding.

    **Arguments:**

    - `mechanism`.
    - `q0`, `qd0`: (n,) coordinates [rad or m] and rates [per s] at the first of the times, closed
      to 1e-9; `assemble` and `consistent_velocity` make them.
    - `times`: (k,) increasing times at which the motion is wanted [s].
    - `torque`: function of `(t, q, qd)` giving (n,) torques or forces at the joints of the tree
      [N m or N]; none when None.
    - `rtol`, `atol`: relative and absolute tolerance of a step, the latter in units of the state.
    - `max_steps`: limit on the number of steps.
    - `adjoint`: how derivatives are taken, `diffrax.ForwardMode()` for `jax.jvp` and `jax.jacfwd`;
      in reverse when None.

    **Returns:** `Motion`; differentiable with respect to the numbers of the mechanism and of the
    torque, and the initial state.

    **Raises:** `ValueError` for another shape, for numbers not finite, for times not increasing and
    for a torque that is no such function; `MechanismError` for an initial state that is not closed,
    and when the motion stops: at a singular position, at the step limit, or because it is not
    finite. Within `jit` and `vmap` a motion that stops is not finite from there on.

    Source: index-1 equations by Dopri8 with error control, projected after every step
    (Hairer 1996, section VII.2).
    """
    require_x64("Simulating a mechanism")
    q0, qd0 = (numbers(name, x, (mechanism.n,)) for name, x in (("q0", q0), ("qd0", qd0)))
    times = check_times(times)
    if torque is not None:
        check_function("torque", torque, (mechanism.n,), t=times[0], q=q0, qd=qd0)
    # As arrays, so that another tolerance needs no other program.
    tolerances = positive("rtol", rtol, ()), non_negative("atol", atol, ())
    _check_start(mechanism, q0, qd0)
    x0 = jnp.concatenate([q0, qd0])
    with forward_mode_explained():
        motion, solution = _simulate(mechanism, x0, times, torque, *tolerances, max_steps, adjoint)
    if concrete(motion.q) and not np.isfinite(motion.q).all():
        raise MechanismError(_stopped(mechanism, solution))
    return motion


def _stopped(mechanism: Mechanism, solution: Solution) -> str:
    if np.isfinite(solution.y).all():
        found = mobility(mechanism, solution.y[: mechanism.n])
        if found.conditioning < SINGULAR:
            return (
                f"{solution.stopped()}, near a singular position, where the constraints are "
                f"independent to {found.conditioning:.1g} only and the motion is not determined."
            )
    return why_stopped(solution)


def _check_start(mechanism: Mechanism, q0: Array, qd0: Array) -> None:
    equations = free(mechanism)
    gap, rate = equations(q0), along(equations, q0, qd0)
    if not mechanism.m or not (concrete(gap) and concrete(rate)):
        return
    gap, rate = np.asarray(gap), np.asarray(rate)
    if not np.abs(gap).max() <= SLACK:
        what, amount = worst(mechanism, gap)
        raise MechanismError(
            f"The initial position misses {what} by {amount}; close it first, see assemble."
        )
    if not np.abs(rate).max() <= SLACK * (1 + float(jnp.max(jnp.abs(qd0)))):
        what, amount = worst(mechanism, rate)
        raise MechanismError(
            f"The initial velocity pulls {what} apart, by {amount} a second; make it consistent "
            "first, see consistent_velocity."
        )
