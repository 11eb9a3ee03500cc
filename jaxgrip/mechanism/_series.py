"""A system for many values of its drives: in steps, along a path, or each from one start."""

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxgrip.checks import brief, check_shape, concrete, numbers
from jaxgrip.mechanism._assemble import Assembly, attached, explain, solve
from jaxgrip.mechanism._equations import size
from jaxgrip.mechanism.loops.closing import RESULTS, MechanismError
from jaxgrip.mechanism.system import System
from jaxgrip.solve.newton import pick

ANGLE_STEP = float(np.deg2rad(10.0))
DISTANCE_STEP = 0.1
_HALVINGS = 6
# A distance below this fraction of the largest part counts as that for its step.
_SHORT = 0.1


class StepFailed(MechanismError):
    """Raised by `move` when it stops early; `assembly` is the last good position."""


def move(
    assembly: Assembly,
    parameters: Mapping[str, object],
    *,
    angle_step: float = ANGLE_STEP,
    distance_step: float = DISTANCE_STEP,
    throw: bool = True,
) -> Assembly:
    """Move an assembled system by its drives, all at once and in steps, on the same branch.

    A step that does not converge, rotates a part by more than three times `angle_step` or passes a
    dead point is halved, six times at most.

    **Arguments:**

    - `assembly`: the start.
    - `parameters`: target values of drives [m or rad] by the name of the connection.
    - `angle_step` [rad] and `distance_step`, a fraction of the distance at the start: the largest
      steps.
    - `throw`: raise when the motion stops early; within `jit` and `vmap` look at `result`.

    **Returns:** `Assembly`; if the motion stops early, the last good position with a `result` that
    says so.

    **Raises:** `ValueError` for values that are not numbers; `StepFailed` with the last good
    position.

    Source: Webhofer 2005, sections 5.5.4 and 5.6, pp. 89-94.
    """
    target = {}
    for name, value in parameters.items():
        assembly.system.drive(name)
        target[name] = numbers(f"The value of drive {name!r}", value, ())
    assembly.system.with_parameters(target)
    limits = _limits(assembly.system, list(target), angle_step, distance_step)
    end = _move(assembly, target, limits, jnp.asarray(float(angle_step)))
    if throw and concrete(end.residual) and not bool(end.succeeded):
        raise StepFailed(_why(end, target), end)
    return end


def sweep(
    assembly: Assembly,
    parameters: Mapping[str, object],
    *,
    along: str = "path",
    angle_step: float = ANGLE_STEP,
    distance_step: float = DISTANCE_STEP,
) -> Assembly:
    """Positions of an assembled system for many values of its drives.

    **Arguments:**

    - `assembly`: the start.
    - `parameters`: values (k,) of drives [m or rad] by the name of the connection.
    - `along`: `"path"` moves from one position to the next, as `move` does; where that stops early,
      the following start at the last good position. `"independent"` solves all of them at once
      from the start, which is much faster and needs positions that Newton's method reaches.
    - `angle_step`, `distance_step`: as for `move`.

    **Returns:** `Assembly` whose numbers have a leading axis (k,). Look at `result`: positions on
    another branch than the start, or that a path does not reach, have not succeeded.

    **Raises:** `ValueError` for values that are not a list of numbers, or of different counts.

    Source: Webhofer 2005, section 5.6, pp. 93-94.
    """
    if along not in ("path", "independent"):
        raise ValueError(f"along is {brief(along)}; it must be 'path' or 'independent'.")
    if not parameters:
        raise ValueError("A sweep needs values of at least one drive.")
    values = {}
    for name, value in parameters.items():
        assembly.system.drive(name)
        values[name] = numbers(f"The list of values of drive {name!r}", value)
        check_shape(f"The array of drive {name!r}", values[name], next(iter(values.values())).shape)
        if values[name].ndim != 1 or not values[name].size:
            raise ValueError(f"The values of drive {name!r} must be a list of numbers.")
    limits = _limits(assembly.system, list(values), angle_step, distance_step)
    if along == "independent":
        return _independent(assembly, values)
    return _along_path(assembly, values, limits, jnp.asarray(float(angle_step)))


def _limits(
    system: System, names: list[str], angle_step: float, distance_step: float
) -> dict[str, Array]:
    for name, value in (("angle_step", angle_step), ("distance_step", distance_step)):
        if not value > 0:
            raise ValueError(f"{name} is {brief(value)}; it must be positive.")
    short = _SHORT * size(system)
    limits = {}
    for name in names:
        joint = system.connections[system.drive(name)].joint
        now = jax.lax.stop_gradient(getattr(joint, joint.parameter))
        distance = distance_step * jnp.maximum(jnp.abs(now), short)
        limits[name] = jnp.asarray(angle_step) if joint.measure.unit == "rad" else distance
    return limits


class _Progress(NamedTuple):
    last: Assembly
    fraction: Float[Array, ""]
    step: Float[Array, ""]
    halvings: Int[Array, ""]


def _advance(assembly: Assembly, target: dict, limits: dict, angle_step: Array) -> Assembly:
    """The position at the target, or the last good one with a result that says so."""
    fixed, aim = jax.lax.stop_gradient((assembly, target))
    begin = {name: fixed.system.parameters[name] for name in target}
    counts = [jnp.ceil(jnp.abs(aim[name] - begin[name]) / limits[name]) for name in target]
    longest = 1 / jnp.max(jnp.stack([jnp.ones(()), *counts]))

    def going(now: _Progress) -> Array:
        return (now.fraction < 1) & (now.halvings <= _HALVINGS)

    def body(now: _Progress) -> _Progress:
        # Rounding must leave no tiny step to the end.
        ends = now.fraction + 1.001 * now.step >= 1
        fraction = jnp.where(ends, 1.0, now.fraction + now.step)
        values = {
            name: jnp.where(ends, aim[name], begin[name] + fraction * (aim[name] - begin[name]))
            for name in target
        }
        last = now.last
        system = fixed.system.with_parameters(values)
        trial = solve(system, last.poses, last.turns, fixed.least_squares)
        cosine = jnp.min(jnp.abs(jnp.sum(trial.poses.quaternion * last.poses.quaternion, axis=1)))
        good = trial.succeeded & (trial.orientation == fixed.orientation)
        good = good & (cosine > jnp.cos(1.5 * angle_step))
        there = _Progress(trial, fraction, now.step, now.halvings)
        back = _Progress(last, now.fraction, now.step / 2, now.halvings + 1)
        return pick(good, there, back)

    now = jax.lax.while_loop(
        going, body, _Progress(fixed, jnp.zeros(()), longest, jnp.zeros((), int))
    )
    reached = now.last.system.parameters
    values = {name: jnp.where(now.fraction < 1, reached[name], target[name]) for name in target}
    system = assembly.system.with_parameters(values)
    end = now.last
    return eqx.tree_at(
        lambda a: (a.system, a.poses, a.result),
        end,
        (
            system,
            attached(system, end.poses, end.turns, end.least_squares),
            RESULTS.where(now.fraction < 1, RESULTS.stuck, end.result),
        ),
    )


@eqx.filter_jit
def _move(assembly: Assembly, target: dict, limits: dict, angle_step: Array) -> Assembly:
    return _advance(assembly, target, limits, angle_step)


@eqx.filter_jit
def _along_path(assembly: Assembly, values: dict, limits: dict, angle_step: Array) -> Assembly:
    def step(last: Assembly, target: dict) -> tuple[Assembly, Assembly]:
        end = _advance(last, target, limits, angle_step)
        return end, end

    return jax.lax.scan(step, assembly, values)[1]


@eqx.filter_jit
def _independent(assembly: Assembly, values: dict) -> Assembly:
    last = jax.lax.stop_gradient(assembly)

    def one(target: dict) -> Assembly:
        system = assembly.system.with_parameters(target)
        end = solve(system, last.poses, last.turns, last.least_squares)
        other = end.succeeded & (end.orientation != last.orientation)
        result = RESULTS.where(other, RESULTS.other_branch, end.result)
        return eqx.tree_at(lambda a: a.result, end, result)

    return jax.vmap(one)(values)


def _why(end: Assembly, target: dict) -> str:
    reached, words = end.system.parameters, []
    for name, value in target.items():
        joint = end.system.connections[end.system.drive(name)].joint
        unit, scale = ("°", 180 / np.pi) if joint.measure.unit == "rad" else (" m", 1.0)
        words.append(
            f"Drive {name!r} stops at {scale * float(reached[name]):.6g}{unit} before "
            f"{scale * float(value):.6g}{unit}"
        )
    ahead = _solve_there(end, target)
    reason = (
        explain(ahead, end.poses)
        if not bool(ahead.succeeded)
        else "Beyond it the parts would be on another branch."
    )
    return (
        f"{'; '.join(words)}, where the smallest singular value is "
        f"{float(end.smallest_singular_value):.2e}. {reason}"
    )


@eqx.filter_jit
def _solve_there(end: Assembly, target: dict) -> Assembly:
    system = end.system.with_parameters(target)
    return solve(system, end.poses, end.turns, end.least_squares)
