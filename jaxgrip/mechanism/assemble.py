"""Poses of all parts that satisfy all joints, by Newton's method."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from jaxgrip.checks import brief, concrete
from jaxgrip.mechanism import poses as pose
from jaxgrip.mechanism.equations import (
    Evaluation,
    equations,
    evaluate,
    evaluate_compiled,
    joined,
    pairs,
    rows,
    size,
)
from jaxgrip.mechanism.equations import turns as turns_of
from jaxgrip.mechanism.mobility import RANK_TOLERANCE, mobility
from jaxgrip.mechanism.poses import Poses, moved
from jaxgrip.mechanism.system import System
from jaxgrip.solve import dense
from jaxgrip.spatial import quaternions

# Below this a step of Newton's method leaves rounding; it is then taken once more.
_NEAR = 1e-8
# Lengths [m] and sines: fifty metres have a rounding of 1e-14.
TOLERANCE = 1e-10
_FINE = 1e-12
STEPS = 50
_HALVINGS = 5
_LARGEST_TURN = np.pi / 3
# Below this part of the largest singular value derivatives have lost a third of their digits.
_NEARLY_SINGULAR = 1e-5
MERGE_TOLERANCE = 1e-3


class RESULTS(eqx.Enumeration):
    """How an assembly can end; the message says what to try."""

    successful = ""
    not_converged = (
        "The joints could not all be satisfied: give start poses that are closer, go there in "
        "steps with `move`, or look at `mobility` for joints that contradict each other."
    )
    flipped = (
        "The parts fit together, but a joint holds turned by half a turn: give start poses that "
        "are closer to what is meant."
    )
    stuck = (
        "The way there ends early, out of reach or in a dead point: this is the last position "
        "before."
    )
    other_branch = (
        "The parts fit together, but on the other side of a dead point: go there in steps."
    )
    not_finite = "Poses became infinite or NaN: check the numbers of parts and drives."


class AssemblyError(RuntimeError):
    """Raised by `assemble` with `throw=True`; the message says which joint fails and by how much.

    `assembly` is where the iterations ended.
    """

    def __init__(self, message: str, assembly: "Assembly | None" = None):
        super().__init__(message)
        self.assembly = assembly


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
      are more or fewer equations than freedoms.
    - `result`.
    - `least_squares`: whether equations may be dependent or fewer than the freedoms.

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
        """Angle [rad] or way [m] of the connection called `name`."""
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

    **Raises:** `ValueError` for parameters or a start that are none; `AssemblyError` naming the
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
    if not all(map(concrete, jax.tree.leaves(assembly))):
        return assembly
    if square and not bool(assembly.succeeded):
        # As many equations as freedoms, but perhaps not independent ones.
        other = _solve(system, start, turns, True)
        lost = bool(assembly.result == RESULTS.not_finite)
        assembly = other if lost or bool(other.succeeded) else assembly
    if throw and not bool(assembly.succeeded):
        raise AssemblyError(explain(assembly, start), assembly)
    return assembly


def solve(
    system: System,
    start: Poses,
    turns: Float[Array, " j"] | None = None,
    least_squares: bool = False,
) -> Assembly:
    """What `assemble` does, without looking at the numbers: for use within `jit` and `vmap`.

    **Arguments:** `system`; `start`; `turns`, coordinates of the joints near by, those of the start
    if None; `least_squares`: whether the equations may be dependent or fewer than the freedoms,
    which takes longer.
    """
    least_squares = least_squares or not _is_square(system)
    end, at, iterations, norm = _newton(
        *jax.lax.stop_gradient((system, start, turns)), least_squares
    )
    poses = attached(system, end, at.turns, least_squares)
    smallest, largest, orientation = _singular_values(at.jacobian, least_squares)
    finite = jnp.isfinite(norm) & jnp.all(jnp.isfinite(end.position))
    result = RESULTS.where(
        finite,
        RESULTS.where(
            norm <= TOLERANCE,
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
        iterations,
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


def _newton(
    system: System, start: Poses, turns: Array | None, least_squares: bool
) -> tuple[Poses, Evaluation, Array, Array]:
    """Poses, equations there, number of steps, and the largest miss."""

    def body(state: tuple) -> tuple:
        poses, at, step, fraction, norm, halvings, steps, near, _ = state
        trial = moved(poses, fraction * step)
        there = evaluate(system, trial, at.turns)
        missed = jnp.max(jnp.abs(there.residual), initial=0.0)
        # Rounding may make a point that is already exact a little worse.
        worse = ~(missed <= jnp.maximum(norm, _NEAR)) & (halvings < _HALVINGS)
        following = _limited(_step(there.jacobian, there.residual, least_squares))
        near_now = missed < _NEAR
        accepted = (
            trial,
            there,
            following,
            jnp.ones(()),
            missed,
            jnp.zeros((), int),
            steps + 1,
            near_now,
            # Once near, one more step is taken, and others while they help.
            near & near_now & ((missed <= _FINE) | ~(missed < norm / 2)) | ~jnp.isfinite(missed),
        )
        retry = (poses, at, step, fraction / 2, norm, halvings + 1, steps, near, False)
        return jax.tree.map(lambda a, b: jnp.where(worse, a, b), retry, accepted)

    count = sum(map(len, rows(system).values()))
    joints = len(pairs(system))
    turns = turns_of(system, start) if turns is None else turns
    state = (
        start,
        Evaluation(
            jnp.zeros(count), jnp.zeros((count, 6 * len(system.parts))), turns, jnp.zeros(joints)
        ),
        jnp.zeros((len(system.parts), 6)),
        jnp.ones(()),
        jnp.asarray(jnp.inf),
        jnp.zeros((), int),
        jnp.zeros((), int),
        jnp.asarray(False),
        jnp.asarray(False),
    )

    def going(state: tuple) -> Array:
        return ~state[-1] & (state[6] <= STEPS)

    poses, at, _, _, norm, _, steps, *_ = jax.lax.while_loop(going, body, state)
    return poses, at, steps - 1, norm


def _step(jacobian: Array, residual: Array, least_squares: bool) -> Float[Array, "n 6"]:
    if least_squares:
        step = -dense.pinv(jacobian, RANK_TOLERANCE) @ residual
    else:
        step = -dense.solve(jacobian, residual)
    return step.reshape(-1, 6)


def _limited(step: Array) -> Array:
    """No part turns by more than sixty degrees at once."""
    turn = jnp.sqrt(jnp.max(jnp.sum(step[:, 3:] ** 2, axis=1)))
    return step * (_LARGEST_TURN / jnp.maximum(turn, _LARGEST_TURN))


def attached(system: System, poses: Poses, turns: Array, least_squares: bool) -> Poses:
    """The poses, with the derivative of the solution by the numbers of the system."""
    return (_attached_redundant if least_squares else _attached_regular)(system, poses, turns)


def _attach(least_squares: bool) -> Any:
    @jax.custom_jvp
    def same(system: System, poses: Poses, turns: Array) -> Poses:
        return poses

    @same.defjvp
    def derivative(primals: tuple, tangents: tuple) -> tuple:
        system, poses, turns = primals
        poses = same(system, poses, turns)
        _, change = jax.jvp(lambda s: equations(s, poses, turns)[0], (system,), (tangents[0],))
        step = sensitivity(system, poses, turns, change, least_squares)
        turn = jnp.concatenate([jnp.zeros((len(step), 1)), step[:, 3:] / 2], axis=1)
        quaternion = jax.vmap(quaternions.product)(turn, poses.quaternion)
        return poses, Poses(step[:, :3], quaternion)

    return same


_attached_regular, _attached_redundant = _attach(False), _attach(True)


def _singular_values(jacobian: Array, least_squares: bool) -> tuple[Array, Array, Array]:
    """Smallest and largest singular value, sign of the determinant.

    Of dependent equations the smallest is that above zero. Otherwise it comes from a few inverse
    iterations, which cost far less than all singular values.
    """
    if least_squares:
        size = dense.singular_values(jacobian)
        kept = size > RANK_TOLERANCE * size[0]
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
                "the start, or turn one of its parts."
            )
    sizes = np.linalg.svd(jacobian, compute_uv=False)
    if sizes[-1] < RANK_TOLERANCE * sizes[0]:
        return (
            "The start is a dead point or has axes that are opposite, where the equations are "
            "singular: turn its parts a little."
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
    # All in metres: a small turn of a long part is no way to serve a drive.
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
        trial = moved(at, _limited(step.reshape(-1, 6)))
        better = jnp.sum(value(trial)[0] ** 2) < jnp.sum(residual**2)
        at = jax.tree.map(lambda a, b: jnp.where(better, a, b), trial, at)
        return at, jnp.clip(jnp.where(better, damping / 5, damping * 4), 1e-14, 1e6)

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
