"""Joint positions that bring frames to where they should be."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float

from jaxgrip.checks import brief, check_function, concrete, is_whole, numbers, real, rotation_matrix
from jaxgrip.precision import require_x64
from jaxgrip.rigid._aim import Aim, by_frame, curvature, part, rates, times, view
from jaxgrip.rigid._coordinates import checked, difference, integrate, layout, neutral, precision
from jaxgrip.rigid._frames import Frame, FramePose, frame_of
from jaxgrip.rigid._search import FAINT, REACHED, Found, Numbers, bounded, costs, rates_of, search
from jaxgrip.rigid._tree import Tree
from jaxgrip.solve import dense
from jaxgrip.solve.fusion import jit_plainly
from jaxgrip.solve.newton import implicit

# Singular values of the conditions of a solution up to this part of the largest count as zero.
_INDEPENDENT = 1e-10
# As many times as many starts are tried where the first do not reach a target.
_ROUNDS = 4


class RESULTS(eqx.Enumeration):
    """How inverse kinematics can end; the message says what to try."""

    successful = ""
    not_least = (
        "The targets are reached, but nearby the cost may be lower: its minimisation did not come "
        "to its end. Try another `start`, more `starts` or a smoother cost."
    )
    out_of_reach = (
        "No start reaches the target: it is out of reach, or there must be more `starts` or wider "
        "limits. The position is the nearest one found."
    )
    not_nearest = (
        "No start reaches the target: it is out of reach, or there must be more `starts` or wider "
        "limits. There may be a nearer position than the one found: the search for it did not come "
        "to its end."
    )
    crossed_limits = "A lower limit is above the upper one: no position is allowed."
    not_finite = "The target, the start or the numbers of the model are not finite."


class InverseKinematicsError(ValueError):
    """Raised where a target is not reached; `reach` is the nearest position found."""

    def __init__(self, message: str, reach: "Reach"):
        super().__init__(message)
        self.reach = reach


class Reach(eqx.Module):
    """A position that brings frames to their targets, or nearest to them.

    **Fields:**

    - `q`: (nq,) coordinates [rad or m], differentiable by targets, limits, start and model.
    - `distance` [m] and `angle` [rad]: (k,) what remains between each frame and its target; the
      angle of a frame whose position alone counts is 0.
    - `cost` of the position.
    - `steps` of all starts together.
    - `result`.
    - `frames`: what they are called.
    """

    q: Float[Array, " nq"]
    distance: Float[Array, " k"]
    angle: Float[Array, " k"]
    cost: Float[Array, ""]
    steps: Float[Array, ""]
    result: RESULTS
    frames: tuple[str, ...] = eqx.field(static=True)

    @property
    def succeeded(self) -> Bool[Array, "*batch"]:
        """Whether all targets are reached."""
        return (self.result == RESULTS.successful) | (self.result == RESULTS.not_least)

    def __str__(self) -> str:
        if not concrete(self.q) or self.q.ndim > 1:
            return super().__repr__()
        numbers = ", ".join(f"{x:.6g}" for x in np.asarray(self.q))
        return f"q = ({numbers}): {self._remaining(0.0)}"

    def message(self) -> str:
        """The result of one search in words; not within `jit`."""
        text = str(RESULTS[self.result])
        if self.result not in (RESULTS.out_of_reach, RESULTS.not_nearest):
            return text
        return f"The target is out of reach: {self._remaining(REACHED)}. {text}"

    def _remaining(self, least: float) -> str:
        gaps = zip(self.frames, np.asarray(self.distance), np.asarray(self.angle), strict=True)
        return ", ".join(
            f"{d:.3g} m and {a:.3g} rad remain at {name}"
            for name, d, a in gaps
            if max(d, a) >= least
        )


def inverse_kinematics(
    tree: Tree,
    frame: str | Frame | Sequence[str | Frame],
    target: Any,
    start: ArrayLike | Sequence | None = None,
    *,
    lower: ArrayLike | Sequence | None = None,
    upper: ArrayLike | Sequence | None = None,
    starts: int | ArrayLike | Sequence = 16,
    seed: int = 0,
    cost: Callable[[Array], Any] | None = None,
    length: ArrayLike = 0.3,
    throw: bool = True,
) -> Reach:
    """Coordinates in which frames have given poses or positions, within limits.

    Of many starts the solution is returned that misses least, and of those that reach the target
    the one of least cost; where joints remain that can move without the frames, the cost is
    minimised by them. A target out of reach is approached as far as possible: least squares of
    distances and of angles times `length`. Joints that carry none of the frames stay at the start.
    Derivatives, in both modes, are those of the solution, with the limits that hold it and
    the cost, not those of the iterations.

    **Arguments:**

    - `tree`: the model.
    - `frame`, or the name of one or of a body; or a list of these, with as many targets.
    - `target`: `FramePose`, or a position (3,) [m] where the orientation does not count.
    - `start`: (nq,) first of the starts [rad or m], to which the default cost is the distance; if
      not given, the middle of the limits, or the position next to zero where there are none.
    - `lower`, `upper`: (n,) limits of the joints [rad or m], as in `Import`; infinite if not given.
      A start outside is moved to the limit. The quaternion of a ball has no limits.
    - `starts`: how many, `start` among them, spread over the limits, or within half a turn of the
      start, and up to four times as many where none of these reaches the target; or (k, nq)
      further ones. `seed` chooses among sequences of them.
    - `cost`: function of q (nq,), twice differentiable; half the squared distance to `start` if not
      given. Numbers that derivatives are to be taken by belong into a `jax.tree_util.Partial`.
    - `length`: of an arm [m] that an angle is multiplied by, to be compared with distances.
    - `throw`: raise when a target is not reached; within `jit` and `vmap` look at `result`.

    **Returns:** `Reach`.

    **Raises:** `ValueError` for arguments that are none; `InverseKinematicsError`, one, in words
    what remains; `RuntimeError` in single precision.

    Source: own derivation; the starts take the damped steps of Sugihara 2011.
    """
    require_x64("Inverse kinematics")
    names, frames, wanted = _paired(tree, frame, target)
    dtype = precision(tree)
    limits = [
        _limits(tree, which, value, sign * jnp.inf)
        for which, value, sign in (("lower", lower, -1.0), ("upper", upper, 1.0))
    ]
    if all(map(concrete, limits)) and np.any(np.asarray(limits[0]) > np.asarray(limits[1])):
        k = int(np.argmax(np.asarray(limits[0]) > np.asarray(limits[1])))
        raise ValueError(
            f"The lower limit of joint {tree.joint_of(k)!r} is {float(limits[0][k]):g}, above the "
            f"upper one, {float(limits[1][k]):g}."
        )
    if start is None:
        start = _middle(tree, *limits)
    else:
        start = checked(tree, q=numbers("start", start, (tree.nq,)))["q"]
    if is_whole(starts, 1):
        more = jnp.zeros((0, tree.nq), dtype)
        rounds, spread = _ROUNDS, _sequence(_ROUNDS * int(starts) - 1, tree.n, seed)
    else:
        more = numbers("starts", starts).astype(dtype)
        if more.ndim != 2 or more.shape[1] != tree.nq:
            raise ValueError(
                f"starts has the shape {more.shape}; it must be a whole number from 1 on or (k, "
                f"{tree.nq})."
            )
        rounds, spread = 1, np.zeros((0, tree.n))
    if cost is not None:
        check_function("cost", cost, (), q=start)
    length = numbers("length", length, ()).astype(dtype)
    if concrete(length) and not length > 0:
        raise ValueError(f"length is {float(length):g} m; it must be positive.")
    inputs = (tree, frames, wanted, start, *limits, length, cost)
    # A program of its own, for nothing of it is differentiated.
    fixed = jax.tree.map(lambda x: lax.stop_gradient(x) if eqx.is_array(x) else x, inputs)
    found = _searched(fixed, lax.stop_gradient(more), jnp.asarray(spread), rounds)
    reach = _reached(inputs, found, names)
    # What is differentiated outside of `jit` has numbers to look at.
    seen = lax.stop_gradient(reach)
    if throw and all(map(concrete, jax.tree.leaves(seen))) and not bool(jnp.all(seen.succeeded)):
        raise InverseKinematicsError(seen.message(), seen)
    return reach


def _paired(tree: Tree, frame: Any, target: Any) -> tuple[tuple[str, ...], list, list]:
    """Names of the frames, the frames, and the rotation, or None, and position of each target."""
    if not isinstance(frame, list | tuple):
        frame, target = [frame], [target]
    elif not isinstance(target, list | tuple) or isinstance(target, FramePose):
        raise ValueError(f"There are {len(frame)} frames; give a list of as many targets.")
    if len(frame) != len(target) or not frame:
        raise ValueError(
            f"There are {len(frame)} frames and {len(target)} targets; give one for each."
        )
    names, frames, wanted = [], [], []
    for k, (which, place) in enumerate(zip(frame, target, strict=True)):
        at = frame_of(tree, which)
        if not isinstance(at, Frame):
            raise ValueError(f"The frame is {brief(which)}; give a name or a Frame.")
        name = repr(which) if isinstance(which, str) else f"frame {k}"
        moving = part(tree, (at.body,))[0].n if at.body >= 0 else 0
        if not moving:
            raise ValueError(f"{name} is fixed to the base: no joint moves it.")
        dtype = precision(tree)
        what = f"the target of {name}"
        if isinstance(place, FramePose):
            turn = rotation_matrix(f"The rotation of {what}", place.rotation).astype(dtype)
            place = numbers(f"The translation of {what}", place.translation, (3,))
        else:
            turn, place = None, numbers(f"T{what[1:]}", place, (3,))
        names.append(name)
        frames.append(at)
        wanted.append((turn, place.astype(dtype)))
    return tuple(names), frames, wanted


def _limits(tree: Tree, which: str, value: Any, none: float) -> Float[Array, " n"]:
    if value is None:
        return jnp.full(tree.n, none, precision(tree))
    limits = real(which, value, precision(tree), (tree.n,))
    if concrete(limits):
        known = np.asarray(limits)
        if bad := np.flatnonzero(np.isnan(known) | (known == -none)).tolist():
            raise ValueError(
                f"The {which} limit of joint {tree.joint_of(bad[0])!r} is {known[bad[0]]:g}; give "
                f"a number, or {none:g} where there is none."
            )
        balls = layout(tree).turns.reshape(-1).tolist()
        if bad := [k for k in balls if np.isfinite(known[k])]:
            raise ValueError(
                f"Joint {tree.joint_of(bad[0])!r} has a {which} limit, {known[bad[0]]:g}, but its "
                f"quaternion has none; give {none:g}."
            )
    return limits


def _middle(tree: Tree, lower: Array, upper: Array) -> Float[Array, " nq"]:
    both = jnp.isfinite(lower) & jnp.isfinite(upper)
    middle = jnp.where(both, (lower + upper) / 2, jnp.clip(0.0, lower, upper))
    at = layout(tree)
    return neutral(tree).at[at.coordinates].set(middle[at.rates])


def _sequence(count: int, n: int, seed: int) -> np.ndarray:
    """Points (count, n) that fill the unit cube evenly.

    Source: own choice: multiples of the powers of the root of x^(n+1) = x + 1, modulo one.
    """
    root = 2.0
    for _ in range(60):
        root = (1 + root) ** (1 / (n + 1))
    step = root ** -np.arange(1.0, n + 1)
    return (np.random.default_rng(seed).random(n) + np.arange(count)[:, None] * step) % 1.0


class _Cost(eqx.Module):
    """A cost, as a function of the coordinates of the bodies that carry the frames.

    `start` has these alone where the cost is that of the distance to it.
    """

    tree: Tree
    start: Array
    rest: Any
    function: Any = eqx.field(static=True)
    coordinates: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, q: Array) -> Array:
        if self.function is None:
            step = difference(self.tree, self.start, q)
            return jnp.sum(step * step) / 2
        whole = _placed(self.start, np.array(self.coordinates, dtype=int), q)
        return jnp.asarray(eqx.combine(self.rest, self.function)(whole), q.dtype)


class _Given(eqx.Module):
    """What a solution depends on."""

    tree: Tree
    frames: list
    wanted: list
    start: Array
    lower: Array
    upper: Array
    length: Array
    cost: Any

    def numbers(self, function: Any) -> Numbers:
        """`Numbers` without starts, for the part of the cost that is no array."""
        tree, place, coordinates, index = part(self.tree, tuple(f.body for f in self.frames))
        dtype = self.start.dtype
        eye = jnp.eye(3, dtype=dtype)
        aim = Aim(
            tree,
            jnp.stack([f.translation for f in self.frames]),
            jnp.stack(
                [
                    eye if turn is None else turn @ frame.rotation.T
                    for frame, (turn, _) in zip(self.frames, self.wanted, strict=True)
                ]
            ),
            jnp.stack([position for _, position in self.wanted]),
            self.length,
            tuple(place[f.body] for f in self.frames),
            tuple(turn is not None for turn, _ in self.wanted),
        )
        start, whole = self.start[coordinates], self.start
        cost = start if function is None else whole
        cost = _Cost(tree, cost, self.cost, function, tuple(coordinates.tolist()))
        none = jnp.zeros((1, 0, len(coordinates)), dtype)
        return Numbers(aim, start, none, self.lower[index], self.upper[index], cost)


class _Point(eqx.Module):
    """A solution: position, multipliers of the targets, whether limits hold and all is reached."""

    q: Array
    force: Array
    low: Array
    high: Array
    reached: Array


def _conditions(given: _Given, point: _Point, function: Any) -> Float[Array, " rows"]:
    """What is zero at a solution: the slope of the cost along the frames' rest, and the errors."""
    own = given.numbers(function)
    tree = own.aim.tree
    at = view(*_last((own.aim, point.q)))
    slope = costs(tree, own.cost, point.q)[1]
    cost = jnp.where(point.reached > 0, slope, FAINT * slope)
    rest = cost + times(at.jacobian, point.force[:, None])[:, 0]
    x = rates_of(tree, point.q)
    low, high = jnp.where(point.low > 0, x - own.lower, rest), x - own.upper
    missed = at.error[:, 0] - jnp.where(point.reached > 0, 0.0, point.force)
    return jnp.concatenate([jnp.where(point.high > 0, high, low), missed])


def _matrix(given: _Given, point: _Point, function: Any) -> Float[Array, "rows rows"]:
    """Derivative of `_conditions` by steps of the joints and by the multipliers."""
    own = given.numbers(function)
    aim = _last(own.aim)
    at = view(aim, point.q[:, None])

    def slope(step: Array) -> Array:
        return costs(own.aim.tree, own.cost, integrate(own.aim.tree, point.q, step))[1]

    bend = jax.jacfwd(slope)(jnp.zeros_like(own.lower))
    bend = jnp.where(point.reached > 0, bend, FAINT * bend)
    bend = bend + curvature(aim, at, point.force[:, None])[..., 0]
    fixed = (point.low + point.high)[:, None] > 0
    n, m = len(bend), len(point.force)
    above = jnp.where(fixed, jnp.eye(n, dtype=bend.dtype), bend)
    beside = jnp.where(fixed, 0.0, at.jacobian[..., 0].T)
    corner = jnp.where(point.reached > 0, 0.0, -jnp.eye(m, dtype=bend.dtype))
    return jnp.block([[above, beside], [rates(aim, at)[..., 0], corner]])


def _step(point: _Point, step: Array, tree: Tree) -> _Point:
    n = tree.n
    return eqx.tree_at(
        lambda p: (p.q, p.force),
        point,
        (integrate(tree, point.q, step[:n]), point.force + step[n:]),
    )


class _Values(NamedTuple):
    """Position, distances and angles that remain, and cost."""

    q: Array
    distance: Array
    angle: Array
    cost: Array


def _values(given: _Given, found: Found, function: Any) -> _Values:
    """What the search has found, with the derivative of the solution by what it depends on."""
    tree = lax.stop_gradient(given).numbers(function).aim.tree

    def moved(point: _Point, step: Array) -> _Point:
        return _step(point, step, tree)

    def correction(given: _Given, point: _Point, change: Array) -> Array:
        return -dense.pinv(_matrix(given, point, function), _INDEPENDENT) @ change

    def conditions(given: _Given, point: _Point) -> Array:
        return _conditions(given, point, function)

    def attached(given: _Given, found: Found) -> _Values:
        point = _point(lax.stop_gradient(given).numbers(function), found)
        q, own = implicit(conditions, correction, moved)(given, point).q, given.numbers(function)
        at = view(*_last((own.aim, q)))
        return _Values(q, _norm(at.gap[..., 0]), _norm(at.turn[..., 0]), own.cost(q))

    # A program without derivatives has none of the above.
    @jax.custom_jvp
    def values(given: _Given, found: Found) -> _Values:
        turn, gap = by_frame(given.numbers(function).aim, found.error)
        return _Values(found.q, _norm(gap), _norm(turn) / given.length, found.cost)

    @values.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple:
        given, found = primals
        return jax.jvp(lambda g: attached(g, found), (given,), tangents[:1])

    return values(given, found)


def _last(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[..., None], tree)


def _point(own: Numbers, found: Found) -> _Point:
    """The solution with all that belongs to it."""
    tree, q = own.aim.tree, found.q
    at = view(*_last((own.aim, q)))
    jacobian, error = at.jacobian[..., 0], at.error[:, 0]
    reached = jnp.max(jnp.abs(error)) <= REACHED
    slope = costs(tree, own.cost, q)[1]
    # A limit holds a joint only where the others can reach the target without it.
    free = jnp.where(found.fixed[None], 0.0, jacobian)
    small = 1e-12 * jnp.eye(len(jacobian), dtype=q.dtype)
    factor = dense.cholesky(free @ free.T + small)
    left = jacobian - free @ (free.T @ dense.cho_solve(factor, jacobian))
    needed = jnp.sum(left**2, axis=0) > 1e-6 * jnp.sum(jacobian**2, axis=0)
    fixed = found.fixed & ~(reached & needed)
    free = jnp.where(fixed[None], 0.0, jacobian)
    factor = dense.cholesky(free @ free.T + small)
    force = jnp.zeros_like(error)
    for _ in range(3):
        force = force - dense.cho_solve(factor, free @ jnp.where(fixed, 0.0, slope + force @ free))
    force = jnp.where(reached, force, error)
    press = jnp.where(reached, slope, FAINT * slope) + force @ jacobian
    x = rates_of(tree, q)
    low = fixed & (x <= own.lower) & (press > 0)
    high = fixed & (x >= own.upper) & (press < 0)
    return _Point(q, force, *(x.astype(q.dtype) for x in (low, high, reached)))


def _spread(own: Numbers, units: Float[Array, "k n"]) -> Float[Array, "k nq"]:
    """Starts from points of the unit cube."""
    tree = own.aim.tree
    at, x = layout(tree), rates_of(tree, own.start)
    size = sum(jnp.linalg.norm(y, axis=-1).sum() for y in (tree.translation, own.aim.translation))
    size = size + jnp.linalg.norm(own.aim.target, axis=-1).max()
    turns = np.array([tree.joint_types[i] != "prismatic" for i in tree.moving])
    half = jnp.where(turns, np.pi, size)
    narrow = own.upper - own.lower <= 2 * half
    low = jnp.where(narrow, own.lower, jnp.clip(x - half, own.lower, own.upper - 2 * half))
    wide = jnp.where(narrow, own.upper - own.lower, 2 * half)
    if not tree.balls:
        return low[None] + units * wide[None]
    found = jnp.broadcast_to(own.start, (len(units), tree.nq))
    found = found.at[:, at.coordinates].set((low[None] + units * wide[None])[:, at.rates])
    u, v, w = jnp.moveaxis(units[:, at.turns], -1, 0)
    a, b = jnp.sqrt(1 - u), jnp.sqrt(u)
    v, w = 2 * np.pi * v, 2 * np.pi * w
    even = jnp.stack([a * jnp.sin(v), a * jnp.cos(v), b * jnp.sin(w), b * jnp.cos(w)], axis=-1)
    return found.at[:, at.quaternions].set(even)


@jit_plainly
def _searched(inputs: tuple, more: Array, units: Array, rounds: int) -> Found:
    given, function = _given(inputs)
    own = given.numbers(function)
    tree = own.aim.tree
    *_, coordinates, index = part(given.tree, tuple(f.body for f in given.frames))
    first = bounded(tree, own.start, own.lower, own.upper)
    spread = _spread(own._replace(start=first), units[:, index])
    starts = jnp.concatenate([first[None], more[:, coordinates], spread])
    within = jax.vmap(lambda q: bounded(tree, q, own.lower, own.upper))(starts)
    within = within.reshape(rounds, -1, tree.nq)
    found = search(jax.tree.map(lambda x: x[None], own._replace(starts=within)))
    return jax.tree.map(lambda x: x[0], found)


@jit_plainly
def _reached(inputs: tuple, found: Found, names: tuple[str, ...]) -> Reach:
    given, function = _given(inputs)
    q, distance, angle, cost = _values(given, found, function)
    finite = jnp.all(jnp.isfinite(q)) & jnp.all(jnp.isfinite(distance + angle))
    reached = jnp.all((distance <= REACHED) & (angle <= REACHED))
    fine = RESULTS.where(reached, RESULTS.successful, RESULTS.out_of_reach)
    coarse = RESULTS.where(reached, RESULTS.not_least, RESULTS.not_nearest)
    result = RESULTS.where(found.refined, fine, coarse)
    result = RESULTS.where(finite, result, RESULTS.not_finite)
    crossed = jnp.any(given.lower > given.upper)
    result = RESULTS.where(crossed, RESULTS.crossed_limits, result)
    *_, coordinates, _ = part(given.tree, tuple(f.body for f in given.frames))
    whole = _placed(given.start, coordinates, q)
    return Reach(whole, distance, angle, cost, found.steps, result, names)


def _given(inputs: tuple) -> tuple["_Given", Any]:
    rest, function = eqx.partition(inputs[-1], eqx.is_array)
    return _Given(*inputs[:-1], rest), function


def _placed(start: Array, coordinates: np.ndarray, q: Array) -> Array:
    """Some coordinates among all."""
    return q if len(q) == len(start) else start.at[coordinates].set(q)


def _norm(x: Float[Array, "k 3"]) -> Float[Array, " k"]:
    square = jnp.sum(x * x, axis=1)
    zero = square == 0
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, square)))
