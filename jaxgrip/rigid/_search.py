"""The search of inverse kinematics, from many starts and for many targets at once.

A pool of places works off all tasks: one that has finished its task takes the next, so that hard
targets hold up nothing but their own places. One round after the other takes further starts for the
targets that are not reached, and the last improves the best ends. Numbers have the targets as their
first axis, of one where all share them; `jax.vmap` makes this axis longer.

Compiling takes as long as there are kernels, not operations: all rounds are one loop over one step,
in which the kinds of steps differ by numbers.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxgrip.rigid._aim import Aim, along, curvature, each, gram, lacking, solved, times, view
from jaxgrip.rigid._coordinates import integrate, layout
from jaxgrip.rigid._tree import Tree

# Errors [m, and rad times the length] up to which a target is reached.
REACHED = 1e-9
# Weight of the cost beside half the squared error, where this cannot be zero.
FAINT = 1e-7
# Places of the pool; on a CPU as many as have these numbers in their matrices, which stay in the
# cache with all else, and not fewer than some. Steps of a search before places exchange their
# tasks, which takes as long as one.
_PLACES, _NUMBERS, _FEWEST, _ROUNDS = 1024, 10_000, 32, 4
# Of a step in the search: its damping by the squared error, the most that a joint turns [rad], the
# part of the squared error that it must promise to remove; the most steps.
_DAMPING, _LARGEST_TURN, _HOPELESS, _STEPS = 0.03, 1.0, 1e-3, 50
_SMALLEST_DAMPING = 1e-14
# Best ends of the search that are improved; steps of this, and those back to the targets in each;
# its first damping.
_KEPT, _IMPROVEMENTS, _RETURNS, _FIRST = 4, 40, 4, 1e-3
# The last moves of an improvement [rad or m], where targets are reached and where not; errors that
# are none; dampings; the weight of the cost where it is judged whether a position is nearer.
_FINE, _COARSE, _ACCURATE, _SMALL, _TINY, _FAINTEST = 1e-9, 1e-8, 1e-12, 1e-10, 1e-13, 1e-12


class Numbers(NamedTuple):
    """All numbers of a search; with the targets as an axis before the others of each.

    `aim`; `start` (nq,) and `starts` (rounds, k, nq), of the bodies of the aim; a round
    is for targets that those before have not reached; `lower` and `upper` (n,);
    `cost`: function of these coordinates.
    """

    aim: Aim
    start: Float[Array, "*b nq"]
    starts: Float[Array, "*b r k nq"]
    lower: Float[Array, "*b n"]
    upper: Float[Array, "*b n"]
    cost: Callable[[Array], Array]


class Found(NamedTuple):
    """Best position of each target.

    `q` (nq,); `error` (m,), as in `View`; `cost`; `refined`: whether it is one of least error and
    cost nearby; `fixed` (n,): whether a limit holds a joint; `steps` of the search.
    """

    q: Float[Array, "*b nq"]
    error: Float[Array, "*b m"]
    cost: Float[Array, "*b"]
    refined: Bool[Array, "*b"]
    fixed: Bool[Array, "*b n"]
    steps: Float[Array, "*b"]


def bounded(tree: Tree, q: Array, lower: Array, upper: Array) -> Array:
    """Coordinates (nq, positions) within limits (n, positions)."""
    if not tree.balls:
        return jnp.clip(q, lower, upper)
    at = layout(tree)
    inside = jnp.clip(q[at.coordinates], lower[at.rates], upper[at.rates])
    return q.at[at.coordinates].set(inside)


def rates_of(tree: Tree, q: Array) -> Array:
    """Coordinates (n, positions) of the joints with limits, zero for those without."""
    if not tree.balls:
        return q
    at = layout(tree)
    return jnp.zeros((tree.n, *q.shape[1:]), q.dtype).at[at.rates].set(q[at.coordinates])


def _moved(numbers: Numbers, q: Array, step: Array) -> Array:
    """Positions after steps, within the limits."""
    tree = numbers.aim.tree
    q = each(integrate, tree, q, step) if tree.balls else q + step
    return bounded(tree, q, numbers.lower, numbers.upper)


def _held(numbers: Numbers, q: Array, gradient: Array) -> Array:
    """Whether a joint is at a limit that keeps it from lowering a function (n, positions)."""
    x = rates_of(numbers.aim.tree, q)
    low, high = (x <= numbers.lower) & (gradient > 0), (x >= numbers.upper) & (gradient < 0)
    return low | high


def _free(a: Array, held: Array) -> Array:
    """A matrix (n, n, positions) in which the joints that are held have rows of the unit matrix."""
    either = held[:, None] | held[None]
    return jnp.where(either, jnp.eye(len(a), dtype=a.dtype)[:, :, None], a)


def _short(tree: Tree, step: Array) -> Array:
    turns = np.array([tree.joint_types[i] != "prismatic" for i in tree.moving])[:, None]
    longest = jnp.max(jnp.where(turns, jnp.abs(step), 0.0), axis=0, keepdims=True)
    return step / jnp.maximum(1.0, longest / _LARGEST_TURN)


class _State(NamedTuple):
    """A task, floats with the tasks as their last axis.

    Position; the errors and the cost there; whether an improvement has come to its end; in an
    improvement, whether the target is reached and the damping; which joints are at limits that hold
    them; steps taken.
    """

    q: Array
    error: Array
    cost: Array
    refined: Array
    reached: Array
    damping: Array
    fixed: Array
    steps: Array


class _Move(NamedTuple):
    """What changes within `_advanced`, with the places as last axis.

    `q` to look at; `error` of the one looked at last; `weights` by which the slope of the cost
    moves frames; `fixed` joints, and these and others that a move has brought to a limit, `bound`;
    whether one has been `freed`, and whether the errors are `convex`; `done`; `steps`.
    """

    q: Array
    error: Array
    weights: Array
    fixed: Array
    bound: Array
    freed: Array
    convex: Array
    done: Array
    steps: Array


def costs(
    tree: Tree, cost: Callable[[Array], Array], q: Float[Array, " nq"]
) -> tuple[Float[Array, ""], Float[Array, " n"], Float[Array, "n n"]]:
    """A cost, and its first and second derivatives by steps of the joints."""

    def value(step: Array) -> Array:
        return cost(integrate(tree, q, step))

    zero = jnp.zeros(tree.n, q.dtype)
    found, slope = jax.value_and_grad(value)(zero)
    return found, slope, jax.jacfwd(jax.grad(value))(zero)


def _advanced(numbers: Numbers, state: _State, searching: Bool[Array, ""]) -> tuple[_State, Array]:
    """A few steps of a search or one of an improvement, and whether it was the last.

    Steps of a search are damped by the squared error. A step of an improvement goes to where the
    error and, more faintly, the cost are less; where the targets are reached, along the positions
    that reach them, and back to these.

    Source: Sugihara 2011 for the search; for the improvement own derivation: Newton's method for
    half the squared error and `FAINT` times the cost.
    """
    aim, tree = numbers.aim, numbers.aim.tree
    eye = jnp.eye(tree.n, dtype=state.q.dtype)[:, :, None]
    reached = state.reached > 0
    count = jnp.where(searching, _ROUNDS, 2 + _RETURNS)

    def move(k: Array, now: _Move) -> _Move:
        projecting, improving = ~searching & (k == 0), ~searching & (k == 1)
        returning = ~searching & (k > 1)
        at = view(aim, now.q)
        square = 2 * _miss(at.error)
        by_error = times(at.jacobian, at.error)

        def of_cost() -> tuple[Array, Array]:
            return each(lambda t, c, q: costs(t, c, q)[1:], tree, numbers.cost, now.q)

        zero = jnp.zeros((tree.n, tree.n, len(square)), square.dtype)
        slope, bend = lax.cond(projecting | improving, of_cost, lambda: (zero[0], zero))
        # Of the slope, what moving the frames cannot change.
        force = -along(at.jacobian, now.weights)
        # What holds a joint at a limit; one at a time is let go.
        press = slope + jnp.where(reached[None], times(at.jacobian, force), by_error / FAINT)
        x = rates_of(tree, now.q)
        judged = now.fixed & (improving & now.convex)[None]
        wrong = jnp.where(judged, jnp.where(x <= numbers.lower, -press, press), 0.0)
        worst = (wrong > _FINE) & (wrong >= jnp.max(wrong, axis=0, keepdims=True))
        fixed, bound = now.fixed & ~worst, now.bound & ~worst
        hold = bound | (_held(numbers, now.q, by_error) & (searching | returning))

        # Where the error can be zero its curvature leads astray back to it, elsewhere it is needed;
        # of targets that are reached that of the constraints counts in an improvement.
        curved = ~searching & jnp.where(returning, now.convex & ~reached, True)
        curved = curved.astype(square.dtype)
        pull = curved[None] * at.error + jnp.where(reached & improving, FAINT, 0.0)[None] * force

        def of_error() -> Array:
            found = curvature(aim, at, pull)
            return (found + jnp.swapaxes(found, 0, 1)) / 2 - curved[None, None] * lacking(aim, at)

        plain = _DAMPING * (1 + state.damping) * square
        nearer = _SMALL + jnp.where(now.convex, FAINT * state.damping, plain)
        damping = jnp.where(returning, jnp.where(reached, _TINY, nearer), _SMALL)
        damping = jnp.where(improving, FAINT * state.damping, damping)
        damping = jnp.where(searching, _DAMPING * square + _SMALLEST_DAMPING, damping)
        a = gram(at.jacobian) + lax.cond(searching, lambda: zero, of_error)
        a = a + jnp.where(improving, FAINT, 0.0) * bend + damping[None, None] * eye
        b = FAINT * jnp.where(worst, press, _SMALL * now.weights)
        b = jnp.where(projecting, slope, by_error + jnp.where(improving, b, 0.0))
        solution = solved(_free(a, hold), jnp.where(hold, 0.0, b))
        finite = jnp.all(jnp.isfinite(solution), axis=0)

        # Far from where the error is least it may be curved the wrong way: then the way back alone
        # is taken.
        convex = now.convex & (finite | returning | (projecting & ~reached))
        solution = jnp.where(finite[None], solution, 0.0)
        step = jnp.where(projecting | (improving & ~convex)[None], 0.0, -solution)
        promised = jnp.sum((damping[None] * step - by_error) * step, axis=0)
        done = (square < _ACCURATE**2) | ~(promised >= _HOPELESS * square)
        done = now.done | (searching & (done | ~finite | (now.steps >= _STEPS)))
        stays = done | projecting | (~searching & (k == count - 1))
        step = jnp.where(stays[None], 0.0, _short(tree, step))
        wanted = x + step
        bound = bound | (~searching & ((wanted < numbers.lower) | (wanted > numbers.upper)))
        return _Move(
            _moved(numbers, now.q, step),
            at.error,
            jnp.where(projecting, solution, now.weights),
            fixed,
            bound,
            now.freed | jnp.any(worst, axis=0),
            convex,
            done,
            now.steps + jnp.where(now.done, 0.0, 1.0),
        )

    fixed, no = ~searching & (state.fixed > 0), reached & ~reached
    # Where a number is not used before it is known, any other stands for it.
    start = _Move(state.q, state.error, state.fixed, fixed, fixed, no, ~no, no, state.steps)
    end = lax.fori_loop(0, count, move, start)
    q = jnp.where(searching, _turned(numbers, end.q), end.q)
    cost = each(lambda c, q: c(q), numbers.cost, q)
    before, after = _miss(state.error), _miss(end.error)
    # Out of reach no cost is worth a distance.
    weight = jnp.where(reached, FAINT, _FAINTEST)
    gain = state.cost - cost + (before - after) / weight
    rounding = 1e-12 * (1 + jnp.abs(state.cost)) + 1e-15 * before / weight
    # Of steps there and back only what is left counts.
    away = jnp.max(jnp.abs(end.q - state.q), axis=0)
    at_end = (after < _ACCURATE**2 / 2) | (after > 0.9 * before)
    at_end &= away < jnp.where(reached, _FINE, _COARSE)
    # At the targets the cost may be curved the wrong way along them, until it is damped enough.
    stuck = reached & ~end.convex & at_end
    better = searching | (gain > -rounding) | (away < 1e-6)
    steps = jnp.where(searching, end.steps, state.steps + 1)
    at_end &= ~stuck & ~end.freed
    stopped = (steps > _IMPROVEMENTS) | (state.damping > 1e10) | ~jnp.isfinite(before)
    x = rates_of(tree, q)
    fixed = jnp.where(better[None], end.bound, end.fixed)
    fixed = jnp.where(searching, (x <= numbers.lower) | (x >= numbers.upper), fixed)
    new = _State(
        jnp.where(better[None], q, state.q),
        jnp.where(better[None], end.error, state.error),
        jnp.where(better, cost, state.cost),
        (at_end & end.convex & ~searching).astype(q.dtype),
        state.reached,
        jnp.where(better & ~stuck, state.damping / 10, 10 * jnp.maximum(state.damping, 1e-2)),
        fixed.astype(q.dtype),
        steps,
    )
    return new, jnp.where(searching, end.done, at_end | stopped)


def _miss(error: Float[Array, "m ..."]) -> Float[Array, "..."]:
    """Half the squared error."""
    return jnp.sum(error**2, axis=0) / 2


def _pool(
    numbers: Numbers,
    first: Float[Array, "w tasks"],
    waiting: Bool[Array, " tasks"],
    searching: Bool[Array, ""],
) -> Float[Array, "w tasks"]:
    """Work off tasks by `_advanced`.

    **Arguments:** `numbers` of the targets, with these as their first axis, or one; `first`: the
    tasks, as many for each target, the targets in turn; `waiting`: which are to be worked off.

    **Returns:** the last of each task, or the first where it has not been worked off.
    """
    tree = numbers.aim.tree
    leaves, structure = jax.tree.flatten(numbers)
    targets = max(map(len, leaves))
    many = [len(x) > 1 for x in leaves]
    own, shared = ([x for x, m in zip(leaves, many, strict=True) if m == k] for k in (True, False))
    shapes = [x.shape[1:] for x in own]
    columns = _joined([x.reshape(targets, -1).T for x in own], targets)
    shared = [jnp.moveaxis(x, 0, -1) for x in shared]
    count, n = first.shape[1], tree.n
    places = min(count, _PLACES)
    if jax.default_backend() == "cpu":
        places = min(places, max(_FEWEST, _NUMBERS // (n * n + n)))
    left = jnp.sum(waiting)
    order = jnp.sort(jnp.where(waiting, jnp.arange(count), count))
    order = jnp.append(order, np.full(places, count))
    index = np.arange(places)

    def whole(task: Array) -> Any:
        mine, common = iter(_parted(columns[:, task % targets], shapes)), iter(shared)
        return jax.tree.unflatten(structure, [next(mine if m else common) for m in many])

    def begun(task: Array) -> Array:
        return first.at[:, task].get(mode="clip")

    def body(loop: tuple) -> tuple:
        task, upcoming, left, state, ends = loop
        begin = _State(*_parted(state, _shapes(numbers.aim)))
        state, done = _advanced(whole(task), begin, searching)
        state, done = _joined(state, places), done & (task < count)
        ends = ends.at[:, jnp.where(done, task, count)].set(state, mode="drop")
        # Places in another order, those that are free first, which take what comes next.
        place = jnp.sort(jnp.where(done, index, index + places)) % places
        ended = jnp.sum(done)
        free = index < ended
        following = lax.dynamic_slice_in_dim(order, upcoming, places)
        task = jnp.where(free, following, task[place])
        state = jnp.where(free[None], begun(task), state[:, place])
        return task, upcoming + ended, left - ended, state, ends

    start = order[:places], jnp.asarray(places), left, begun(order[:places]), first
    return lax.while_loop(lambda loop: loop[2] > 0, body, start)[-1]


def _shapes(aim: Aim) -> list[tuple[int, ...]]:
    """Those of the fields of a state."""
    return [(aim.tree.nq,), (len(aim.rows),), (), (), (), (), (aim.tree.n,), ()]


def _joined(arrays: Sequence[Array], size: int) -> Float[Array, "w p"]:
    """Arrays with the same last axis as rows."""
    rows = [x.reshape(-1, size) for x in arrays]
    return jnp.concatenate(rows) if rows else jnp.zeros((0, size))


def _parted(rows: Float[Array, "w p"], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Arrays of these shapes, before the last axis, from rows."""
    ends = np.cumsum([0, *(np.prod(shape, dtype=int) for shape in shapes)])
    found = (rows[a:b] for a, b in itertools.pairwise(ends.tolist()))
    return [x.reshape(*shape, -1) for x, shape in zip(found, shapes, strict=True)]


def _turned(numbers: Numbers, q: Array) -> Array:
    """The same positions with full turns of joints taken back towards the start."""
    tree = numbers.aim.tree
    at, full = layout(tree), 2 * np.pi
    turns = np.array([tree.joint_types[i] == "revolute" for i in tree.moving])
    turns &= np.isin(np.arange(tree.n), at.rates)
    x = rates_of(tree, q)
    wanted = jnp.round((rates_of(tree, numbers.start) - x) / full)
    low, high = jnp.ceil((numbers.lower - x) / full), jnp.floor((numbers.upper - x) / full)
    step = jnp.where(turns[:, None], full * jnp.clip(wanted, low, high), 0.0)
    if not tree.balls:
        return q + step
    q = q.at[at.coordinates].add(step[at.rates])
    for four in at.quaternions:
        # A quaternion and its negative are the same orientation.
        side = jnp.sum(q[four] * numbers.start[four], axis=0, keepdims=True)
        q = q.at[four].multiply(jnp.where(side < 0, -1.0, 1.0))
    return q


@jax.custom_batching.custom_vmap
def search(numbers: Numbers) -> Found:
    """Positions in which the frames are closest to their targets, of those the cheapest found.

    **Arguments:** `numbers`, with the targets as the first axis of each, or one.

    **Returns:** `Found`, with the targets as the first axis.
    """
    targets = max(x.shape[0] for x in jax.tree.leaves(numbers))
    shapes = _shapes(numbers.aim)
    # By round, then by start.
    starts = jnp.broadcast_to(numbers.starts, (targets, *numbers.starts.shape[1:]))
    starts = jnp.transpose(starts, (1, 3, 2, 0))
    rounds, _, count, _ = starts.shape
    rows = max(count, _KEPT)
    # One more for the round that improves what the others have found.
    starts = jnp.pad(starts, ((0, 1), (0, 0), (0, rows - count), (0, 0)), mode="edge")
    one = numbers._replace(starts=jnp.zeros((1, 1), starts.dtype))
    row = np.arange(rows)[:, None]
    # The state of a search that begins, after its position.
    sizes = [int(np.prod(shape)) for shape in shapes[1:]]
    rest = jnp.asarray([np.inf] * sizes[0] + [0.0] * sum(sizes[1:]), starts.dtype)
    rest = jnp.broadcast_to(rest[:, None, None], (len(rest), rows, targets))

    def state_of(table: Array) -> _State:
        parts = _parted(table.reshape(len(table), -1), shapes)
        return _State(*(x.reshape(*x.shape[:-1], *table.shape[1:]) for x in parts))

    def of_round(loop: tuple, x: tuple[Array, Array]) -> tuple[tuple, None]:
        (best, missed, steps), (q, searching) = loop, x
        fresh = jnp.concatenate([q, rest])
        kept = state_of(best)
        reached = (_miss(kept.error) < REACHED**2).astype(q.dtype)
        damping, zero = jnp.full_like(reached, _FIRST), jnp.zeros_like(reached)
        kept = kept._replace(reached=reached, damping=damping, steps=zero)
        again = _joined(kept, reached.size).reshape(best.shape)
        again = jnp.pad(again, ((0, 0), (0, rows - _KEPT), (0, 0)))
        first = jnp.where(searching | (row >= _KEPT)[None], fresh, again)
        waiting = jnp.where(searching, missed[None] & (row < count), row < _KEPT)
        found = _pool(one, first.reshape(len(first), -1), waiting.reshape(-1), searching)
        found = found.reshape(first.shape)
        steps = steps + jnp.sum(jnp.where(waiting, found[-1], 0.0), axis=0)
        # Close to singular positions an improvement may have lost its target when it must end.
        improved, before = found[:, :_KEPT], state_of(best).error
        lost = ~(_miss(state_of(improved).error) <= _no_more(_miss(before)))
        best = jnp.where((searching | lost)[None], best, improved)
        best = jnp.concatenate([best, found], axis=1)
        kept = state_of(best)
        miss = _miss(kept.error)
        order = _ranked(miss, kept.cost)[:_KEPT]
        missed &= ~jnp.any(miss < REACHED**2, axis=0)
        return (jnp.take_along_axis(best, order[None], axis=1), missed, steps), None

    best = jnp.concatenate([starts[0], rest])[:, :_KEPT]
    loop = best, jnp.ones(targets, bool), jnp.zeros(targets, starts.dtype)
    (best, _, steps), _ = lax.scan(of_round, loop, (starts, np.arange(rounds + 1) < rounds))
    best = state_of(best[:, 0])
    return Found(best.q.T, best.error.T, best.cost, best.refined > 0, best.fixed.T > 0, steps)


def _ranked(miss: Float[Array, "k b"], cost: Float[Array, "k b"]) -> Int[Array, "k b"]:
    """Order of ends, by the cost among those that miss as little as the best, then by the miss."""
    miss = jnp.where(jnp.isfinite(miss), miss, jnp.inf)
    near = miss <= _no_more(jnp.min(miss, axis=0, keepdims=True))
    return jnp.lexsort((jnp.where(near, cost, 0.0), jnp.where(near, -1.0, miss)), axis=0)


def _no_more(miss: Array) -> Array:
    """Up to what others miss no more than this."""
    return miss * (1 + 1e-6) + REACHED**2 / 2


@search.def_vmap
def _(size: int, batched: Any, numbers: Numbers) -> tuple[Found, Found]:
    leaves, structure = jax.tree.flatten(numbers)
    flags = jax.tree.leaves(batched[0] if isinstance(batched, list) else batched)
    inner = max(x.shape[1] if flag else x.shape[0] for x, flag in zip(leaves, flags, strict=True))

    def merged(x: Array, flag: bool) -> Array:
        if not flag and x.shape[0] == 1:
            return x
        x = x if flag else jnp.broadcast_to(x, (size, *x.shape))
        x = jnp.broadcast_to(x, (size, inner, *x.shape[2:]))
        return x.reshape(size * inner, *x.shape[2:])

    whole = [merged(x, flag) for x, flag in zip(leaves, flags, strict=True)]
    found = search(jax.tree.unflatten(structure, whole))
    out = jax.tree.map(lambda x: x.reshape(size, inner, *x.shape[1:]), found)
    return out, jax.tree.map(lambda _: True, out)
