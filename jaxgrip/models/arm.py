"""The fastest motion of a robot between two poses, as an optimal control problem."""

import dataclasses
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.checks import brief, check_shape, concrete, non_negative, numbers, positive
from jaxgrip.ocp import Free, Problem, Shooting, Solution, SolveError, Solver, Transcription, solve
from jaxgrip.rigid import StateSpace, Tree, bias_forces, crba, without_balls

# Weight of the effort against the time, by which a UR5 is slower by a third of a percent.
EFFORT = 0.03
# Where constraints act together only a sharp direct solution shows which comes first; below this
# barrier its costates lose their digits. With so many arcs three intervals in each give as many
# digits as six.
SOLVER = Solver(
    Transcription(intervals=400, barrier=3e-9),
    Shooting(intervals=3),
    starts=1,
    arcs=48,
    max_rounds=8,
    max_shootings=40,
)
# Where friction turns its sign within little the search takes many steps and often fails: it then
# ends within minutes.
_SHORTER = dataclasses.replace(
    SOLVER,
    transcription=dataclasses.replace(SOLVER.transcription, max_steps=100),
    max_transcriptions=10,
    max_shootings=6,
)
# Share of its largest speed within which the dry friction of a joint turns its sign, by which the
# transcribed motion of a Z1 costs 1e-4 less than within a sixtieth.
_ROUNDED = 1.0 / 5.0


def point_to_point(
    tree: Tree,
    start: Float[ArrayLike, " n"],
    end: Float[ArrayLike, " n"],
    *,
    torque: Float[ArrayLike, " n"],
    speed: Float[ArrayLike, " n"] | None = None,
    position: tuple[Float[ArrayLike, " n"], Float[ArrayLike, " n"]] | None = None,
    effort: ArrayLike = EFFORT,
    final_time: Float[ArrayLike, ""] | None = None,
    friction_speed: Float[ArrayLike, " n"] | None = None,
) -> Problem:
    r"""The fastest motion from rest to rest, with bounded torques, speeds and positions.

    Minimises $\int_0^T 1 + w \sum_j u_j^2\,dt$ with the torques $\tau_j = u_j \hat\tau_j$ and
    $|u_j| \le 1$. Where speeds are bounded, joints that have time to spare may move in many ways in
    the least time; a small weight $w$ of the effort chooses the way of least effort.

    **Arguments:**

    - `tree`: of n joints of one degree of freedom.
    - `start`, `end`: (n,) poses [rad or m].
    - `torque`: (n,) largest torques, in both directions [N m or N].
    - `speed`: (n,) largest speeds [rad/s or m/s]; infinite ones do not bound.
    - `position`: least and largest coordinates, (n,) each; infinite ones do not bound.
    - `effort`: the weight w; with 0 the effort does not count.
    - `final_time`: guess of the duration [s]; when None, it is estimated from the limits.
    - `friction_speed`: (n,) rates within which dry friction turns its sign [per s]; when None those
      of the tree, but at least a fifth of the largest speeds. The largest speed of a joint
      without a bound is twice the mean one of the joint that has the longest way.

    All numbers may be traced, given that `final_time` is.

    **Returns:** `ocp.Problem` with the states (q, qd) and the controls u.

    **Raises:** `ValueError` for other shapes, limits that are not positive, a negative effort,
    equal poses, poses outside the limits and poses that the torques cannot hold.

    Source: Schanzer 2007, section 5.5, pp. 74-83, with bounded speeds and a weight of the effort.
    """
    n = tree.n
    without_balls(tree, "point_to_point")
    start, end = numbers("start", start, (n,)), numbers("end", end, (n,))
    torque = positive("torque", torque, (n,))
    speed = jnp.full(n, jnp.inf) if speed is None else jnp.asarray(speed, float)
    check_shape("speed", speed, (n,))
    if concrete(speed) and not np.all(np.asarray(speed) > 0.0):
        raise ValueError(f"speed is {brief(np.asarray(speed))}; it must be positive.")
    effort = non_negative("effort", effort, ())
    if concrete(start) and concrete(end) and np.array_equal(start, end):
        raise ValueError("start and end are the same pose; there is no motion between them.")
    unbounded = jnp.full(n, jnp.inf)
    least, largest = (-unbounded, unbounded) if position is None else position
    check_hold(tree, {"the pose `start`": start, "the pose `end`": end}, torque)
    if final_time is None:
        final_time = _duration(tree, start, end, torque, speed)
    rest = jnp.zeros(n)
    tree = dataclasses.replace(tree, scanned=True)
    if tree.rubs:
        if friction_speed is None:
            mean = jnp.max(jnp.abs(end - start)) / final_time
            largest_speed = jnp.where(jnp.isfinite(speed), speed, 2.0 * mean)
            friction_speed = jnp.maximum(tree.passive.friction_speed, _ROUNDED * largest_speed)
        friction_speed = positive("friction_speed", friction_speed, (n,))
        passive = dataclasses.replace(tree.passive, friction_speed=friction_speed)
        tree = dataclasses.replace(tree, passive=passive)
    return Problem(
        StateSpace(tree, jnp.diag(torque)),
        running_cost=Partial(_cost, effort),
        initial_state=jnp.concatenate([start, rest]),
        final_state=jnp.concatenate([end, rest]),
        final_time=Free(guess=final_time),
        control_bounds=(-jnp.ones(n), jnp.ones(n)),
        state_bounds=(jnp.append(least, -speed), jnp.append(largest, speed)),
    )


def fastest_motion(
    tree: Tree,
    start: Float[ArrayLike, " n"],
    end: Float[ArrayLike, " n"],
    *,
    torque: Float[ArrayLike, " n"],
    speed: Float[ArrayLike, " n"] | None = None,
    position: tuple[Float[ArrayLike, " n"], Float[ArrayLike, " n"]] | None = None,
    effort: ArrayLike = EFFORT,
    friction_speed: Float[ArrayLike, " n"] | None = None,
    solver: Solver | None = None,
    throw: bool = True,
) -> Solution:
    """Solve [`point_to_point`][] and certify the motion.

    With an effort the motion of four times its weight is transcribed first: it is smoother, and
    leads to the same one of several local optima.

    **Arguments:** as for [`point_to_point`][]; `solver` and `throw` as for `ocp.solve`. Without a
    `solver` the search takes at most 60 transcriptions and 40 shootings, with dry friction 10 and
    6.

    **Returns:** `ocp.Solution`, differentiable in every number.

    **Raises:** as [`point_to_point`][] and `ocp.solve`.
    """
    given = {"torque": torque, "speed": speed, "position": position}
    given["friction_speed"] = friction_speed
    problem = point_to_point(tree, start, end, effort=effort, **given)
    way = ()
    if not concrete(effort) or np.asarray(effort) > 0.0:
        way = (point_to_point(tree, start, end, effort=4.0 * jnp.asarray(effort), **given),)
    if solver is None:
        solver = _SHORTER if tree.rubs else SOLVER
    try:
        return solve(problem, solver=solver, continued_from=way, throw=throw)
    except SolveError as error:
        if not tree.rubs:
            raise
        raise SolveError(f"{error} {_about_friction(tree)}", error.solution) from None


def _about_friction(tree: Tree) -> str:
    has = np.ones(tree.n, bool)
    if concrete(tree.passive.friction):
        has = np.asarray(tree.passive.friction) > 0.0
    names = ", ".join(repr(tree.joint_of(k)) for k in np.flatnonzero(has).tolist())
    return (
        f"The dry friction of {names} may be the reason: try a larger friction_speed, hold joints, "
        "or compare with friction 0."
    )


def check_hold(
    tree: Tree, poses: Mapping[str, Float[ArrayLike, " n"]], torque: Float[ArrayLike, " n"]
) -> None:
    """Raise `ValueError` where torques cannot hold a pose at rest.

    **Arguments:** `tree`; `poses` (n,) by what they are called [rad or m]; `torque`: (n,) largest
    torques [N m or N]. Traced numbers are not checked.
    """
    if not all(map(concrete, jax.tree.leaves((tree, poses, torque)))):
        return
    for name, pose in poses.items():
        # Besides gravity, the springs of the joints.
        needed = np.abs(np.asarray(bias_forces(tree, pose, jnp.zeros(tree.n))))
        for joint in np.flatnonzero(needed >= np.asarray(torque)).tolist():
            unit = "N" if tree.joint_types[tree.moving[joint]] == "prismatic" else "N m"
            raise ValueError(
                f"Joint {tree.joint_of(joint)!r} needs {needed[joint]:.3g} {unit} to hold {name}, "
                f"but has {float(torque[joint]):.3g} {unit} at most."
            )


def _cost(weight: Array, x: Array, u: Array) -> Array:
    return 1.0 + weight * jnp.sum(u**2)


def _duration(tree: Tree, start: Array, end: Array, torque: Array, speed: Array) -> Array:
    """Duration that the slowest joint would need by itself [s], a little longer."""
    away = jnp.abs(end - start)
    inertia = jnp.diagonal(crba(tree, 0.5 * (start + end)))
    least = 2.0 * jnp.sqrt(away * inertia / torque)
    return 1.2 * jnp.max(least + away / speed)
