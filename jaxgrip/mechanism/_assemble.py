"""Poses of all parts that satisfy all joints, by Newton's method."""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from jaxgrip.checks import brief, concrete
from jaxgrip.mechanism import poses as pose
from jaxgrip.mechanism._equations import (
    Evaluation,
    equations,
    evaluate,
    evaluate_compiled,
    joined,
    pairs,
    rows,
    size,
)
from jaxgrip.mechanism._equations import turns as turns_of
from jaxgrip.mechanism._mobility import mobility
from jaxgrip.mechanism.loops.closing import RESULTS, MechanismError
from jaxgrip.mechanism.poses import Poses, moved
from jaxgrip.mechanism.system import MERGE_TOLERANCE, System
from jaxgrip.solve import dense
from jaxgrip.solve.newton import bounded, implicit, newton, pick

# Lengths [m] and sines: fifty metres have a rounding of 1e-14.
TOLERANCE = 1e-10
_LARGEST_TURN = np.pi / 3
# Below this part of the largest singular value derivatives have lost a third of their digits.
_NEARLY_SINGULAR = 1e-5


class Assembly(eqx.Module):
    """Parts put together.

    **Fields:**

    - `system`, with the values of its drives.
    - `poses`, differentiable with respect to every number of the system.
    - `residual`: (m,) what the equations miss, lengths [m] and sines.
    - `turns`: (j,) coordinates of the joints, by which gears count full turns.
    - `iterations`: Newton steps taken.
    - `smallest_singular_value` and `condition` (largest over smallest) of the derivative of the
      equations; near a dead point the first tends to zero and gradients grow as its inverse.
    - `orientation`: sign of its determinant, which changes where a branch ends; 0 when there
      are more or fewer equations than coordinates.
    - `result`.
    - `least_squares`: whether equations may be dependent or fewer than the coordinates.

    A series has a leading axis (k,) everywhere, also in what the methods give.
    """

    system: System
    poses: Poses
    residual: Float[Array, " m"]
    turns: Float[Array, " j"]
    iterations: Int[Array, ""]
    smallest_singular_value: Float[Array, ""]
    condition: Float[Array, ""]
    orientation: Float[Array, ""]
    result: RESULTS
    least_squares: bool = eqx.field(static=True)

    @property
    def succeeded(self) -> Bool[Array, "*batch"]:
        """Whether all joints hold as meant."""
        return self.result == RESULTS.successful

    def point(self, place: str, point: ArrayLike | None = None) -> Float[Array, "*batch 3"]:
        """Position (3,) [m] of `"part.attachment"`, or of a point (3,) of a part."""
        point = None if point is None else jnp.asarray(point, dtype=float)

        def one(assembly: Assembly) -> Array:
            return pose.point(assembly.system, assembly.poses, place, point)

        return self._mapped(one)

    def coordinate(self, name: str) -> Float[Array, "*batch"]:
        """Angle [rad] or length [m] of the connection called `name`."""
        names = [connection.name for connection in pairs(self.system)]
        if name not in names:
            self.system.connection(name)
            raise ValueError(f"Connection {name!r} is a gear, which has no coordinate.")

        def one(assembly: Assembly) -> Array:
            return _coordinate(assembly.system, assembly.poses, names.index(name))

        return self._mapped(one)

    def warnings(self) -> list[str]:
        """Sentences on what a user of the numbers must know; not within `jit`."""
        batch = self.poses.position.shape[:-2]
        if batch:
            return [
                f"Position {', '.join(map(str, k))}: {text}"
                for k in np.ndindex(batch)
                for text in jax.tree.map(lambda x, k=k: x[k], self).warnings()
            ]
        found = []
        if float(self.condition) * _NEARLY_SINGULAR > 1:
            found.append(
                "The parts are close to a dead point, where two branches meet: the smallest "
                f"singular value is {float(self.smallest_singular_value):.2e} (condition "
                f"{float(self.condition):.1e}), and gradients grow as its inverse."
            )
        return found + mobility(self.system, self.poses).loose + gaps(self.system, self.poses)

    def _mapped(self, function: Callable[["Assembly"], Array]) -> Array:
        for _ in self.poses.position.shape[:-2]:
            function = jax.vmap(function)
        return function(self)


def assemble(
    system: System,
    parameters: Mapping[str, object] | None = None,
    *,
    start: Poses | Assembly | None = None,
    throw: bool = True,
) -> Assembly:
    """Put the parts of a system together.

    All joints are satisfied at once by Newton's method on the small motions of all parts, with
    steps halved while they make things worse. Joints that repeat each other are allowed; what the
    joints leave free moves as little as possible. Derivatives of the poses, in both modes, are
    those of the solution, not of the iterations.

    **Arguments:**

    - `system`.
    - `parameters`: values of drives [m or rad] by the name of the connection, as far as they
      differ from those of the system. They may be traced: `jax.vmap` makes a batch of them.
    - `start`: poses to start from, or an assembly; those of the parts when not given.
    - `throw`: raise when the parts do not fit; within `jit` and `vmap` look at `result`.

    **Returns:** `Assembly`.

    **Raises:** `ValueError` for parameters or a start that are none; `MechanismError` naming the
    joint that fails and by how much.

    Source: Webhofer 2005, sections 5.1.1 and 5.1.2, pp. 39-45; own derivation of
    the step in rotation vectors and of the implicit derivative.
    """
    if not system.connections:
        raise ValueError("There are no connections to satisfy; add some, such as a clamp.")
    if parameters is not None:
        system = system.with_parameters(parameters)
    turns = None
    if isinstance(start, Assembly):
        start, turns = start.poses, start.turns
    if start is None:
        start = pose.start(system)
    if not isinstance(start, Poses):
        raise ValueError(f"The start is {brief(start)}; give Poses or an Assembly.")
    pose.check_shapes(system, start, "start")
    square = _is_square(system)
    assembly = _solve(system, start, turns, not square)
    # What is differentiated outside of `jit` has numbers to look at.
    seen = jax.lax.stop_gradient(assembly)
    if not all(map(concrete, jax.tree.leaves(seen))):
        return assembly
    if square and not bool(seen.succeeded):
        # As many equations as coordinates, but perhaps not independent ones.
        other = _solve(system, start, turns, True)
        lost = bool(seen.result == RESULTS.not_finite)
        if lost or bool(jax.lax.stop_gradient(other).succeeded):
            assembly, seen = other, jax.lax.stop_gradient(other)
    if throw and not bool(seen.succeeded):
        raise MechanismError(explain(seen, jax.lax.stop_gradient(start)), seen)
    return assembly


def solve(
    system: System,
    start: Poses,
    turns: Float[Array, " j"] | None = None,
    least_squares: bool = False,
) -> Assembly:
    """What `assemble` does, without looking at the numbers: for use within `jit` and `vmap`.

    **Arguments:** `system`; `start`; `turns`, coordinates of the joints near by, those of the start
    if None; `least_squares`: whether the equations may be dependent or fewer than the
    coordinates, which takes longer.
    """
    least_squares = least_squares or not _is_square(system)
    fixed, start, turns = jax.lax.stop_gradient((system, start, turns))

    def linearised(point: tuple[Poses, Evaluation]) -> tuple[tuple, Array, Array]:
        at = evaluate(fixed, point[0], point[1].turns)
        return (point[0], at), at.residual, _step(at.jacobian, at.residual, least_squares)

    count, parts = sum(map(len, rows(system).values())), len(system.parts)
    turns = turns_of(fixed, start) if turns is None else turns
    unseen = Evaluation(
        jnp.zeros(count), jnp.zeros((count, 6 * parts)), turns, jnp.zeros(len(pairs(system)))
    )
    found = newton(linearised, _moved, (start, unseen), jnp.zeros((parts, 6)), _length)
    end, at = found.point
    poses = attached(system, end, at.turns, least_squares)
    smallest, largest, orientation = _singular_values(at.jacobian, least_squares)
    finite = jnp.isfinite(found.miss) & jnp.all(jnp.isfinite(end.position))
    result = RESULTS.where(
        finite,
        RESULTS.where(
            found.miss <= TOLERANCE,
            RESULTS.where(jnp.all(at.facing > 0), RESULTS.successful, RESULTS.flipped),
            RESULTS.not_converged,
        ),
        RESULTS.not_finite,
    )
    return Assembly(
        system,
        poses,
        at.residual,
        at.turns,
        found.steps,
        smallest,
        largest / smallest,
        orientation,
        result,
        least_squares,
    )


_solve = eqx.filter_jit(solve)


def sensitivity(
    system: System, poses: Poses, turns: Array, change: Array, least_squares: bool
) -> Float[Array, "n 6"]:
    """Small motions of all parts that make up for a change (m,) of the equations."""
    _, jacobian = equations(system, poses, turns)
    return _step(jacobian, change, least_squares)


def _is_square(system: System) -> bool:
    # What is slack is no equation.
    slack = any(connection.joint.one_sided for connection in pairs(system))
    return not slack and sum(map(len, rows(system).values())) == 6 * len(system.parts)


def _step(jacobian: Array, residual: Array, least_squares: bool) -> Float[Array, "n 6"]:
    step = -dense.pinv(jacobian) @ residual if least_squares else -dense.solve(jacobian, residual)
    return step.reshape(-1, 6)


def _moved(point: tuple, step: Float[Array, "n 6"]) -> tuple:
    """A point, poses and what is known there, after small motions of all parts."""
    return moved(point[0], step), point[1]


def _length(step: Float[Array, "n 6"]) -> Float[Array, ""]:
    """The largest rotation of a part, by sixty degrees."""
    return jnp.sqrt(jnp.max(jnp.sum(step[:, 3:] ** 2, axis=1))) / _LARGEST_TURN


def attached(system: System, poses: Poses, turns: Array, least_squares: bool) -> Poses:
    """The poses, with the derivative of the solution by the numbers of the system."""
    return (_redundant if least_squares else _regular)(system, (poses, turns))[0]


def _solution(least_squares: bool) -> Callable[[System, tuple[Poses, Array]], tuple[Poses, Array]]:
    return implicit(
        lambda system, point: equations(system, *point)[0],
        lambda system, point, change: sensitivity(system, *point, change, least_squares),
        _moved,
    )


_regular, _redundant = _solution(False), _solution(True)


def _singular_values(jacobian: Array, least_squares: bool) -> tuple[Array, Array, Array]:
    """Smallest and largest singular value, sign of the determinant.

    Of dependent equations the smallest is that above zero. Otherwise it comes from a few inverse
    iterations, which cost far less than all singular values.
    """
    if least_squares:
        size = dense.singular_values(jacobian)
        kept = dense.independent(size)
        return jnp.min(jnp.where(kept, size, size[0])), size[0], jnp.zeros(())
    factors = dense.lu_factor(jacobian)
    orientation = dense.determinant_sign(factors)
    count = len(jacobian)
    seed = jnp.asarray(np.random.default_rng(0).normal(size=(2, count)))

    def sharpen(_: Array, vectors: tuple) -> tuple:
        low, high = vectors
        low = dense.lu_solve(factors, low / jnp.linalg.norm(low), trans=True)
        low = dense.lu_solve(factors, low)
        high = jacobian.T @ (jacobian @ (high / jnp.linalg.norm(high)))
        return low, high

    low, high = jax.lax.fori_loop(0, 6, sharpen, (seed[0], seed[1]))
    smallest = 1 / jnp.sqrt(jnp.linalg.norm(low))
    singular = ~jnp.isfinite(smallest)
    return (
        jnp.where(singular, 0.0, smallest),
        jnp.sqrt(jnp.linalg.norm(high)),
        jnp.where(jnp.isfinite(orientation), orientation, 0.0),
    )


@eqx.filter_jit
def _coordinate(system: System, poses: Poses, index: int) -> Float[Array, ""]:
    place = jax.tree.map(lambda x: x[index], joined(system, poses).place)
    return pairs(system)[index].joint.coordinate(place)


def explain(assembly: Assembly, start: Poses) -> str:
    """Why the parts do not fit from a start: which joint fails, and by how much."""
    system = assembly.system
    if assembly.result == RESULTS.not_finite:
        return _undefined(system, start) or str(RESULTS[assembly.result])
    if assembly.result == RESULTS.flipped:
        facing = np.asarray(evaluate_compiled(system, assembly.poses).facing)
        names = [c.name for c, f in zip(pairs(system), facing, strict=True) if not f > 0]
        return f"Flipped root at {_listed(names)}. {RESULTS[assembly.result]}"
    poses, residual = _closest(system, start)
    misses = {name: np.abs(np.asarray(residual)[k]).max() for name, k in rows(system).items()}
    drives = [name for name in system.parameters if misses[name] > 1e3 * TOLERANCE]
    others = [name for name in misses if name not in system.parameters and misses[name] > 1e-4]
    if drives and not others:
        worst = max(drives, key=misses.get)
        joint = system.joint(worst)
        names = [connection.name for connection in pairs(system)]
        if worst in names:
            reached = _coordinate(system, poses, names.index(worst))
            asked = float(getattr(joint, joint.parameter))
            unit, scale = ("°", 180 / np.pi) if joint.measure.unit == "rad" else (" m", 1.0)
            return (
                f"The {type(joint).__name__.lower()} {worst!r} asks for "
                f"{scale * asked:.6g}{unit}; the closest found is "
                f"{scale * float(reached):.4g}{unit}."
            )
    worst = max(misses, key=misses.get)
    joint = system.joint(worst)
    return (
        f"The {type(joint).__name__.lower()} {worst!r} cannot be satisfied together with the "
        f"others: it misses by {misses[worst]:.3g} (m, or rad)."
    )


def _undefined(system: System, start: Poses) -> str | None:
    """Which joint has no derivative at the start, or that the equations are singular there."""
    residual, jacobian = map(np.asarray, evaluate_compiled(system, start)[:2])
    for name, k in rows(system).items():
        if not (np.isfinite(residual[k]).all() and np.isfinite(jacobian[k]).all()):
            return (
                f"Connection {name!r} has no finite equations at the start: check its points and "
                "the start, or rotate one of its parts."
            )
    sizes = np.linalg.svd(jacobian, compute_uv=False)
    if not dense.independent(sizes)[-1]:
        return (
            "The start is a dead point or has axes that are opposite, where the equations are "
            "singular: rotate its parts a little."
        )
    return None


def _closest(system: System, start: Poses) -> tuple[Poses, Array]:
    """Poses that satisfy the joints and come as close to the drives as they can."""
    where = rows(system)
    # Far beyond its reach the equation of a rod has hardly a slope.
    most = 10 * float(size(system))
    for connection in pairs(system):
        if connection.joint.is_line and float(connection.joint.length) > most:
            system = system.with_parameters({connection.name: most})
    # All in metres: a small rotation of a long part must not stand for the motion of a drive.
    weight = np.full(sum(map(len, where.values())), float(size(system)))
    for connection in pairs(system):
        weight[where[connection.name][: connection.joint.lengths]] = 1.0
    for name in system.parameters:
        weight[where[name]] *= 1e-3
    return _levenberg(system, start, jnp.asarray(weight))


@eqx.filter_jit
def _levenberg(system: System, poses: Poses, weight: Array) -> tuple:
    turns = turns_of(system, poses)

    def value(at: Poses) -> tuple[Array, Array]:
        residual, jacobian = equations(system, at, turns)
        return weight * residual, weight[:, None] * jacobian

    def body(_: Array, state: tuple) -> tuple:
        at, damping = state
        residual, jacobian = value(at)
        normal = jacobian.T @ jacobian
        step = -dense.solve(normal + damping * jnp.eye(len(normal)), jacobian.T @ residual)
        trial = moved(at, bounded(step.reshape(-1, 6), _length))
        better = jnp.sum(value(trial)[0] ** 2) < jnp.sum(residual**2)
        damping = jnp.clip(jnp.where(better, damping / 5, damping * 4), 1e-14, 1e6)
        return pick(better, trial, at), damping

    poses, _ = jax.lax.fori_loop(0, 200, body, (poses, jnp.asarray(1e-3)))
    return poses, equations(system, poses, turns)[0]


def gaps(system: System, poses: Poses) -> list[str]:
    """Sentences on hinges and rigid connections whose further points do not meet."""
    found = []
    position, rotation = map(np.asarray, (poses.position, poses.rotation))
    for connection in pairs(system):
        joint = connection.joint
        if joint.to_ground or not joint.meets:
            continue
        ends = []
        for place in (connection.first, connection.second):
            k, points = system.attachment(place)
            points = np.asarray(points)[: joint.points]
            if k >= 0:
                points = position[k] + points @ rotation[k].T
            ends.append(points)
        gap = np.linalg.norm(ends[0] - ends[1], axis=1).max()
        if gap > MERGE_TOLERANCE:
            found.append(
                f"The attachments of the {type(joint).__name__.lower()} {connection.name!r} are "
                f"incompatible: points that should meet are {1e3 * gap:.3g} mm apart."
            )
    return found


def _listed(names: list[str]) -> str:
    return " and ".join(map(repr, names)) if len(names) < 3 else ", ".join(map(repr, names))
