"""The search of inverse kinematics, from many starts and for many targets at once.

A pool of places works off all tasks: one that has finished its task takes the next, so that hard
targets hold up nothing but their own places. Numbers have the targets as their first axis, of one
where all share them; `jax.vmap` makes this axis longer.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxgrip.rigid._aim import Aim, View, curvature, each, gram, hessian, solved, times, view
from jaxgrip.rigid._coordinates import integrate, layout
from jaxgrip.rigid._tree import Tree

# Errors [m, and rad times the length] up to which a target is reached.
REACHED = 1e-9
# Weight of the cost beside half the squared error, where this cannot be zero.
FAINT = 1e-7
# Places of the pool: what they need together stays in the cache.
_PLACES, _ROUNDS = 1024, 4
# Of a step in the search: its damping by the squared error, the most that a joint turns [rad], the
# part of the squared error that it must promise to remove; the most steps.
_DAMPING, _LARGEST_TURN, _HOPELESS, _STEPS = 0.03, 1.0, 1e-3, 50
_SMALLEST_DAMPING = 1e-14
# Best ends of the search that are improved; steps of this, and those back to the targets in each.
_KEPT, _IMPROVEMENTS, _RETURNS = 4, 40, 4
_FINE, _ACCURATE, _SMALL = 1e-9, 1e-12, 1e-10


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

    `q` (nq,); `fixed` (n,): whether a limit holds a joint; `steps` of the search.
    """

    q: Float[Array, "*b nq"]
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


def _damped(at: View, held: Array, damping: Array) -> tuple[Array, Array]:
    """The damped step to the targets, and the part of the squared error that it removes.

    Source: Sugihara 2011: the damping is in proportion to the squared error.
    """
    j = jnp.where(held[None], 0.0, at.jacobian)
    m, n, _ = j.shape
    if m < n:
        a = (
            gram(jnp.swapaxes(j, 0, 1))
            + jnp.eye(m, dtype=j.dtype)[:, :, None] * damping[None, None]
        )
        step = -times(j, solved(a, at.error))
    else:
        a = gram(j) + jnp.eye(n, dtype=j.dtype)[:, :, None] * damping[None, None]
        step = -solved(a, times(j, at.error))
    left = at.error + times(jnp.swapaxes(j, 0, 1), step)
    square = jnp.sum(at.error**2, axis=0)
    return step, 1 - jnp.sum(left**2, axis=0) / jnp.where(square > 0, square, 1.0)


def _pool(
    numbers: Any,
    target: Int[Array, " tasks"],
    first: Any,
    step: Callable[[Any, Any], tuple[Any, Array]],
    limit: Int[Array, ""] | int,
) -> Any:
    """Work off tasks.

    **Arguments:** `numbers` of the targets, with these as their first axis, or one; `target` of
    each task; `first`: state of each, floats with the tasks as first axis; `step`: function of
    numbers and states of some tasks, both with these as last axis, giving the next states, and
    whether they are the last; `limit`: number of tasks to work off.

    **Returns:** the last states, as `first`, and the first ones of the tasks that are left.
    """
    leaves, structure = jax.tree.flatten(numbers)
    many = [len(x) > 1 for x in leaves]
    own, shared = ([x for x, m in zip(leaves, many, strict=True) if m == k] for k in (True, False))
    own, own_parts = _table(own, None if own else 1)
    first, parts = _table(first, None)
    count = len(first)
    places = min(count, _PLACES)
    shared = [jnp.moveaxis(x, 0, -1) for x in shared]

    def whole(table: Array) -> Any:
        mine, common = iter(own_parts(table.T)), iter(shared)
        return jax.tree.unflatten(structure, [next(mine if m else common) for m in many])

    def body(loop: tuple) -> tuple:
        task, upcoming, values, state, ends = loop

        def further(_: Array, inner: tuple) -> tuple:
            state, done = inner
            new, ended = step(whole(values), parts(state.T))
            new, _ = _table(jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), new), None)
            return jnp.where(done[:, None], state, new), done | ended

        # To exchange tasks takes as long as a few steps.
        state, done = lax.fori_loop(0, _ROUNDS, further, (state, task >= limit))
        ends = ends.at[jnp.where(done & (task < limit), task, count)].set(state, mode="drop")
        done &= task < limit
        following = upcoming + jnp.cumsum(done) - 1
        task = jnp.where(done, jnp.minimum(following, limit), task)
        new = jnp.minimum(task, count - 1)
        state = jnp.where(done[:, None], first[new], state)
        values = own[target[new]] if own.size else values
        return task, upcoming + jnp.sum(done), values, state, ends

    task = jnp.arange(places)
    start = (
        task,
        jnp.asarray(places),
        own[target[task] if own.size else 0 * task],
        first[task],
        first,
    )
    ends = lax.while_loop(lambda loop: jnp.any(loop[0] < limit), body, start)[-1]
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), parts(ends.T))


def _table(tree: Any, rows: int | None) -> tuple[Array, Callable[[Array], Any]]:
    """Arrays with the same first axis as a table of as many rows, and those back from columns."""
    leaves, structure = jax.tree.flatten(tree)
    rows = len(leaves[0]) if rows is None else rows
    flat = [x.reshape(rows, -1) for x in leaves]
    table = jnp.concatenate(flat, axis=1) if flat else jnp.zeros((rows, 0))
    ends = np.cumsum([x.shape[1] for x in flat])[:-1]

    def back(columns: Array) -> Any:
        found = jnp.split(columns, ends) if flat else []
        shaped = [x.reshape(*y.shape[1:], -1) for x, y in zip(found, leaves, strict=True)]
        return jax.tree.unflatten(structure, shaped)

    return table, back


class _Place(NamedTuple):
    """State of a search: position, half the squared error, steps taken."""

    q: Array
    miss: Array
    steps: Array


def _searching(numbers: Numbers, state: _Place) -> tuple[_Place, Array]:
    at = view(numbers.aim, state.q)
    square = jnp.sum(at.error**2, axis=0)
    held = _held(numbers, state.q, times(at.jacobian, at.error))
    step, part = _damped(at, held, _DAMPING * square + _SMALLEST_DAMPING)
    done = (
        (square < _ACCURATE**2) | (part < _HOPELESS) | (state.steps >= _STEPS) | ~jnp.isfinite(part)
    )
    q = _moved(numbers, state.q, _short(numbers.aim.tree, step))
    return _Place(jnp.where(done[None], state.q, q), square / 2, state.steps + 1), done


class _Improved(NamedTuple):
    """State of an improvement, floats: position, whether its target is reached, which limits hold,

    damping, half the squared error, cost, steps taken.
    """

    q: Array
    reached: Array
    fixed: Array
    damping: Array
    miss: Array
    cost: Array
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


def _improving(numbers: Numbers, state: _Improved) -> tuple[_Improved, Array]:
    """A step along the positions that miss least, to a lower cost, and back to these.

    Source: own derivation: Newton's method for half the squared error and `FAINT` times the cost,
    whose step is followed by some that lower the error alone.
    """
    aim, tree = numbers.aim, numbers.aim.tree
    at = view(aim, state.q)
    miss = jnp.sum(at.error**2, axis=0) / 2
    cost, slope, bend = each(lambda t, c, q: costs(t, c, q), tree, numbers.cost, state.q)
    reached = state.reached > 0
    by_error = times(at.jacobian, at.error)
    fixed = state.fixed > 0
    eye = jnp.eye(tree.n, dtype=slope.dtype)[:, :, None]
    by_place = hessian(aim, at)
    # Of the slope, what moving the frames cannot change.
    weights = solved(_free(by_place + _SMALL * eye, fixed), jnp.where(fixed, 0.0, slope))
    force = -times(jnp.swapaxes(at.jacobian, 0, 1), weights)
    # What holds a joint at a limit; one at a time is let go.
    press = slope + jnp.where(reached[None], times(at.jacobian, force), by_error / FAINT)
    x = rates_of(tree, state.q)
    wrong = jnp.where(fixed, jnp.where(x <= numbers.lower, -press, press), 0.0)
    worst = (wrong > _FINE) & (wrong >= jnp.max(wrong, axis=0, keepdims=True))
    fixed &= ~worst
    # Of the error its own curvature counts, of targets that are reached that of the constraints.
    curved = curvature(aim, at, force)
    curved = (curved + jnp.swapaxes(curved, 0, 1)) / 2
    bend = bend + jnp.where(reached[None, None], curved, 0.0)
    a = _free(by_place + FAINT * (bend + state.damping[None, None] * eye), fixed)
    slope = jnp.where(worst, press, _SMALL * weights)
    step = -solved(a, jnp.where(fixed, 0.0, by_error + FAINT * slope))
    # Far from where the error is least it may be curved the wrong way.
    convex = jnp.all(jnp.isfinite(step), axis=0)
    caution = 2 * _DAMPING * (1 + state.damping)
    plain, _ = _damped(at, fixed | _held(numbers, state.q, by_error), caution * miss + _SMALL)
    step = jnp.where(convex[None], step, plain)

    def back(_: Array, loop: tuple) -> tuple:
        q, step, fixed, _ = loop
        step = _short(tree, step)
        wanted, q = rates_of(tree, q) + step, _moved(numbers, q, step)
        fixed = fixed | (wanted < numbers.lower) | (wanted > numbers.upper)
        at = view(aim, q)
        slope, miss = times(at.jacobian, at.error), jnp.sum(at.error**2, axis=0) / 2
        held = fixed | _held(numbers, q, slope)
        # Where the error can be zero its curvature leads astray, elsewhere it is needed.
        plain = gram(at.jacobian) + jnp.where(reached, 0.0, caution * miss)[None, None] * eye
        a = jnp.where((convex & ~reached)[None, None], hessian(aim, at), plain)
        step = -solved(_free(a + _SMALL * eye, held), jnp.where(held, 0.0, slope))
        return q, step, fixed, miss

    trial, _, bound, after = lax.fori_loop(0, _RETURNS, back, (state.q, step, fixed, miss))
    found = each(lambda c, q: c(q), numbers.cost, trial)
    gain = cost - found + (miss - after) / FAINT
    size = jnp.max(jnp.abs(step), axis=0)
    rounding = 1e-12 * (1 + jnp.abs(cost) + miss / FAINT)
    better = (gain > -rounding) | (size < 1e-6)
    at_end = (size < _FINE) & ~jnp.any(worst, axis=0)
    at_end &= (after < _ACCURATE**2 / 2) | (after > miss / 4)
    done = at_end | (state.steps >= _IMPROVEMENTS) | (state.damping > 1e10)
    new = _Improved(
        jnp.where(better[None], trial, state.q),
        state.reached,
        jnp.where(better[None], bound, fixed).astype(x.dtype),
        jnp.where(better, state.damping / 10, 10 * jnp.maximum(state.damping, 1e-2)),
        jnp.where(better, after, miss),
        jnp.where(better, found, cost),
        state.steps + 1,
    )
    return new, done


def _turned(numbers: Numbers, q: Array) -> Array:
    """The same positions with full turns of joints taken back towards the start."""
    tree = numbers.aim.tree
    at, full = layout(tree), 2 * np.pi
    turns = np.array([tree.joint_types[i] == "revolute" for i in tree.moving])[at.rates]
    k = at.coordinates[turns]
    low, high = numbers.lower[at.rates[turns]] - q[k], numbers.upper[at.rates[turns]] - q[k]
    wanted = jnp.round((numbers.start[k] - q[k]) / full)
    q = q.at[k].add(full * jnp.clip(wanted, jnp.ceil(low / full), jnp.floor(high / full)))
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
    tree = numbers.aim.tree
    last = jax.tree.map(lambda x: jnp.moveaxis(x, 0, -1), numbers)
    # By round, then by start.
    starts = jnp.broadcast_to(numbers.starts, (targets, *numbers.starts.shape[1:]))
    starts = jnp.moveaxis(starts, 0, 2)
    rounds, count = starts.shape[:2]
    starts = starts.reshape(rounds, count * targets, tree.nq)
    one = numbers._replace(starts=jnp.zeros((1, 1), starts.dtype))
    own = jnp.tile(jnp.arange(targets), count)
    zero = jnp.zeros(count * targets, starts.dtype)

    def search_round(missed: Array, q: Array) -> tuple[Array, _Place]:
        # Targets that are not reached yet come first, and the others have had their turn.
        order = jnp.argsort(~missed[own])
        first = _Place(q[order], zero + jnp.inf, zero)
        ends = _pool(one, own[order], first, _searching, count * jnp.sum(missed))
        ends = jax.tree.map(lambda x: jnp.zeros_like(x).at[order].set(x), ends)
        found = jnp.any((ends.miss < REACHED**2).reshape(count, targets), axis=0)
        return missed & ~found, ends

    _, ends = lax.scan(search_round, jnp.ones(targets, bool), starts)

    q = jax.vmap(lambda q: _turned(last, q.T).T)(ends.q.reshape(-1, targets, tree.nq))
    value = jax.vmap(lambda q: each(lambda c, q: c(q), last.cost, q.T))(q)
    miss = ends.miss.reshape(-1, targets)
    order = _ranked(miss, value)[: min(len(q), _KEPT)]
    q = jnp.take_along_axis(q, order[:, :, None], axis=0).reshape(-1, tree.nq)
    miss, value = (jnp.take_along_axis(x, order, axis=0).reshape(-1) for x in (miss, value))
    zero = jnp.zeros(len(q), q.dtype)
    x = jax.vmap(lambda q: rates_of(tree, q))(q)
    repeated = [jnp.tile(y, (len(q) // len(y), 1)) for y in (numbers.lower, numbers.upper)]
    fixed = (x <= repeated[0]) | (x >= repeated[1])
    flags = (x.astype(q.dtype) for x in (miss < REACHED**2, fixed))
    first = _Improved(q, *flags, zero + 1e-3, miss, value, zero)
    own = jnp.tile(jnp.arange(targets), len(order))
    improved = _pool(one, own, first, _improving, len(q))
    # Close to singular positions an improvement may have lost its target when it must end.
    improved = jax.tree.map(
        lambda *x: jnp.concatenate(x).reshape(-1, targets, *x[0].shape[1:]), first, improved
    )
    best = _ranked(improved.miss, improved.cost)[:1]

    def of_best(x: Array) -> Array:
        return jnp.take_along_axis(x, best[:, :, None], axis=0)[0]

    steps = jnp.sum(ends.steps.reshape(-1, targets), axis=0) + jnp.sum(improved.steps, axis=0)
    return Found(of_best(improved.q), of_best(improved.fixed) > 0, steps)


def _ranked(miss: Float[Array, "k b"], cost: Float[Array, "k b"]) -> Int[Array, "k b"]:
    """Order of ends, by the cost among those that miss as little as the best, then by the miss."""
    miss = jnp.where(jnp.isfinite(miss), miss, jnp.inf)
    near = miss <= jnp.min(miss, axis=0, keepdims=True) * (1 + 1e-6) + REACHED**2 / 2
    return jnp.lexsort((jnp.where(near, cost, 0.0), jnp.where(near, -1.0, miss)), axis=0)


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
