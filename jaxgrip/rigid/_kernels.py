"""Recursions of many states at once, the limbs of the tree in kernels, large ones in pieces."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxgrip.rigid._coordinates import layout
from jaxgrip.rigid._passive import armature_of
from jaxgrip.rigid._recursion import (
    Body,
    Joint,
    Limb,
    bodies,
    body_table,
    joints,
    limbs,
    pieces,
    unrolled_bodies,
    unrolled_joints,
)
from jaxgrip.rigid._tree import Tree
from jaxgrip.solve.fusion import cos_sin, in_one_kernel, parted, scalars_of, tiling
from jaxgrip.spatial.components import Matrix, Scalar, Vector, add, matmul, mul, neg, unstack

# With more bodies forward dynamics and their derivatives have too many operations for a kernel.
LIMIT = 7

# Compile time grows with the bodies of limbs and pieces of different kinds.
MOST_BODIES = 32


class Model(NamedTuple):
    """Scalars of a limb, or of an unrolled tree, and of one of its states.

    `rate`, `third`, which are torques or whatever else came with the state, and `armature`, zero
    without any, are by coordinate.
    """

    limb: Limb | Tree
    body: tuple[Body, ...]
    joint: tuple[Joint, ...]
    gravity: Vector
    armature: tuple[Scalar, ...]
    rate: tuple[Scalar, ...]
    third: tuple[Scalar, ...]


def model_of(tree: Tree, *state: Float[Array, " n"]) -> Model:
    """The model of an unrolled tree; `state` is q, rates, accelerations or torques."""
    zero, armature = (0.0,) * tree.n, armature_of(tree)
    return Model(
        tree,
        bodies(tree),
        joints(tree, *state),
        unstack(tree.gravity),
        zero if armature is None else unstack(armature),
        *(unstack(x) for x in state[1:]),
        *[zero] * (3 - len(state)),
    )


def fits(tree: Tree) -> bool:
    """Whether the recursions of many states run in kernels."""
    if tree.scanned or not all(limb.n for limb in limbs(tree)):
        return False
    kinds = {part.kind: part for limb in limbs(tree) for part in pieces(tree, limb, LIMIT)}
    return sum(len(part.bodies) for part in kinds.values()) <= MOST_BODIES


class Numbers(NamedTuple):
    """Scalars of a limb: those of `body_table` and the pitch by body, armature by coordinate."""

    body: tuple[tuple[Scalar, ...], ...]
    gravity: Vector
    armature: tuple[Scalar, ...]
    pitch: tuple[Scalar, ...]


class State(NamedTuple):
    """A state of a limb: by coordinate cos q, sin q, q and rates, whose number varies.

    The coordinates of balls are zero; `quaternions` are those of the balls.
    """

    cos: tuple[Scalar, ...]
    sin: tuple[Scalar, ...]
    q: tuple[Scalar, ...]
    quaternions: tuple[tuple[Scalar, ...], ...]
    rates: tuple[tuple[Scalar, ...], ...]


Run = Callable[["Kernels"], Sequence[Array]]


def by_limb(
    tree: Tree, run: Run, *states: Float[Array, "batch _"]
) -> list[tuple[Limb, Sequence[Float[Array, " batch"]]]]:
    """Columns of every limb, which `run` gets from kernels.

    `states` are coordinates (batch, nq) and rates (batch, n). Limbs of the same kind run in a loop,
    so that their kernels are compiled once.
    """
    groups: dict[tuple, list[Limb]] = {}
    for limb in limbs(tree):
        groups.setdefault(limb.kind, []).append(limb)
    count, out = len(states[0]), []
    tiles, length = tiling(count)
    padded = [jnp.pad(x, ((0, tiles * length - count), (0, 0))) for x in states]
    for group in groups.values():

        def values(numbers: Numbers, rows: Sequence, limb: Limb = group[0]) -> Sequence[Array]:
            return run(Kernels(tree, limb, numbers, _state(tree, limb, rows)))

        numbers = [_numbers(tree, limb) for limb in group]
        # Slices, for the compiler makes slow copies of indexed arrays.
        columns = [[x[:, k] for x, k in _rows(tree, limb, padded)] for limb in group]
        if len(group) == tiles == 1:
            found = [values(_scalars(tree, group[0], numbers[0]), columns[0])]
        else:
            shape = len(group), len(columns[0]), tiles, length
            stacked = jnp.stack([jnp.stack(x) for x in columns]).reshape(shape)

            def of_limb(
                own: tuple[Array, Array], values: Callable = values, limb: Limb = group[0]
            ) -> Array:
                numbers = _scalars(tree, limb, own[0])
                return lax.map(lambda rows: jnp.stack(values(numbers, [*rows])), own[1])

            found = lax.map(of_limb, (jnp.stack(numbers), jnp.moveaxis(stacked, 2, 1)))
            found = jnp.moveaxis(found, 1, 2).reshape(len(group), -1, tiles * length)
        out += [(limb, [x[:count] for x in own]) for limb, own in zip(group, found, strict=True)]
    return out


def _rows(tree: Tree, limb: Limb, states: Sequence) -> Iterator[tuple[Array, int]]:
    """Arrays and indices of the columns of a limb: q, quaternions, and rates."""
    at = layout(tree)
    of_ball = {*at.turns.reshape(-1).tolist()}
    single = dict(zip(at.rates.tolist(), at.coordinates.tolist(), strict=True))
    for k in limb.coordinates:
        if k not in of_ball:
            yield states[0], single[k]
    for i in limb.balls:
        for k in at.quaternions[tree.balls.index(limb.bodies[i])]:
            yield states[0], int(k)
    for x in states[1:]:
        for k in limb.coordinates:
            yield x, k


def _state(tree: Tree, limb: Limb, rows: Sequence[Array]) -> State:
    kinds = [tree.joint_types[i] for i in tree.moving]
    of_ball = {*layout(tree).turns.reshape(-1).tolist()}
    single = [k for k in limb.coordinates if k not in of_ball]
    turning = [k for k in single if kinds[k] != "prismatic"]
    m, n = len(single), limb.n
    q = dict(zip(single, rows, strict=False))
    cos = sin = {}
    if turning:
        turned = cos_sin(jnp.stack([q[k] for k in turning]))
        cos, sin = (dict(zip(turning, x, strict=True)) for x in turned)
    rest = m + 4 * len(limb.balls)
    return State(
        tuple(cos.get(k, 1.0) for k in limb.coordinates),
        tuple(sin.get(k, 0.0) for k in limb.coordinates),
        tuple(q.get(k, 0.0) for k in limb.coordinates),
        tuple(tuple(rows[k : k + 4]) for k in range(m, rest, 4)),
        tuple(tuple(rows[k : k + n]) for k in range(rest, len(rows), n)),
    )


def _numbers(tree: Tree, limb: Limb) -> Array:
    armature, own = armature_of(tree), np.array(limb.bodies)
    parts = [body_table(tree)[own].reshape(-1), tree.gravity]
    parts += [] if armature is None else [armature[np.array(limb.coordinates)]]
    parts += [] if tree.pitch is None else [tree.pitch[own]]
    return jnp.concatenate(parts)


def _scalars(tree: Tree, limb: Limb, numbers: Array) -> Numbers:
    k, nb, n = scalars_of(numbers), len(limb.bodies), limb.n
    rest = k[22 * nb + 3 :]
    has_armature, has_screws = armature_of(tree) is not None, tree.pitch is not None
    return Numbers(
        tuple(k[22 * i : 22 * i + 22] for i in range(nb)),
        k[22 * nb : 22 * nb + 3],
        rest[:n] if has_armature else (0.0,) * n,
        rest[len(rest) - nb :] if has_screws else (0.0,) * nb,
    )


class Piece(NamedTuple):
    """A piece of a limb, what it has of that, and the pieces it carries by its own bodies."""

    limb: Limb
    numbers: Numbers
    state: State
    carried: dict[int, list[int]]


class Kernels:
    """Kernels of one limb at many states: `state` has columns."""

    def __init__(self, tree: Tree, limb: Limb, numbers: Numbers, state: State) -> None:
        self.tree = tree
        self.limb = limb
        self.numbers = numbers
        self.state = state

    def of_model(self, core: Callable[[Model], Any]) -> Any:
        """Columns of the values of `core` at the model of each state."""
        return in_one_kernel(lambda k, x: core(_model(self.limb, k, x)), self.numbers, self.state)

    def pieces(self, most: int) -> list[Piece]:
        """The limb in pieces of at most so many bodies, after those that carry them."""
        parts = pieces(self.tree, self.limb, most)
        found = []
        for part in parts:
            body = [self.limb.bodies.index(i) for i in part.bodies]
            at = [self.limb.coordinates.index(k) for k in part.coordinates]
            balls = [self.limb.balls.index(body[i]) for i in part.balls]

            def take(values: tuple, index: list[int]) -> tuple:
                return tuple(values[k] for k in index)

            k, x = self.numbers, self.state
            carried: dict[int, list[int]] = {}
            for j, other in enumerate(parts):
                if other.carrier in part.bodies:
                    carried.setdefault(part.bodies.index(other.carrier), []).append(j)
            found.append(
                Piece(
                    part,
                    Numbers(
                        take(k.body, body), k.gravity, take(k.armature, at), take(k.pitch, body)
                    ),
                    State(
                        take(x.cos, at),
                        take(x.sin, at),
                        take(x.q, at),
                        take(x.quaternions, balls),
                        tuple(take(rate, at) for rate in x.rates),
                    ),
                    carried,
                )
            )
        return found

    def in_order(self, parts: list[Piece], values: Sequence[Sequence]) -> list:
        """Values by coordinate of the limb from those of its pieces."""
        found = dict(
            pair
            for part, mine in zip(parts, values, strict=True)
            for pair in zip(part.limb.coordinates, mine, strict=True)
        )
        return [found[k] for k in self.limb.coordinates]


def outward_by_piece(parts: list[Piece], core: Callable, own: Sequence = ()) -> tuple[list, list]:
    """Sweep from the base to the leaves, a kernel a piece.

    `core(model, carrier, own)` maps scalars of the piece, of what its carrier's body has, None
    for the base, and of the piece's own, to a value of every body and what is returned. Pieces
    that carry none are left out without `own`.

    **Returns:** by piece the carrier's value, and what is returned.
    """
    given: list = [None] * len(parts)
    out: list = [None] * len(parts)
    for group in _groups(parts):
        if not own and not parts[group[0]].carried:
            continue

        def values(piece: Piece, carrier: Any, mine: Any) -> tuple:
            def step(numbers: Any, columns: tuple) -> tuple:
                state, carrier, mine = columns
                value, kept = core(_model(piece.limb, numbers, state), carrier, mine)
                return [value[i] for i in piece.carried], kept

            return in_one_kernel(step, piece.numbers, (piece.state, carrier, mine))

        found = _each(values, parts, group, given, own or out)
        for k, (tips, kept) in zip(group, found, strict=True):
            out[k] = kept
            for tip, others in zip(tips, parts[k].carried.values(), strict=True):
                for j in others:
                    given[j] = tip
    return given, out


def inward_by_piece(parts: list[Piece], core: Callable, given: Sequence) -> list:
    """Sweep from the leaves to the base, a kernel a piece; what is returned by piece.

    `core(model, carrier, sent)` maps scalars of the piece, of `given`, and what the pieces that a
    body carries have sent, by body, to what goes to the carrier and what is returned.
    """
    sent: list = [None] * len(parts)
    out: list = [None] * len(parts)
    for group in reversed(_groups(parts)):
        received = {
            k: {i: [sent[j] for j in others] for i, others in parts[k].carried.items()}
            for k in group
        }

        def values(piece: Piece, carrier: Any, received: dict) -> tuple:
            def step(numbers: Any, columns: tuple) -> tuple:
                state, carrier, received = columns
                return core(_model(piece.limb, numbers, state), carrier, received)

            return in_one_kernel(step, piece.numbers, (piece.state, carrier, received))

        for k, found in zip(group, _each(values, parts, group, given, received), strict=True):
            sent[k], out[k] = found
    return out


def _groups(parts: list[Piece]) -> list[list[int]]:
    """Pieces of the same kind that do not carry each other, after those that carry them."""
    level = [0] * len(parts)
    for k, piece in enumerate(parts):
        for others in piece.carried.values():
            for j in others:
                level[j] = level[k] + 1
    groups: dict[tuple, list[int]] = {}
    for k in sorted(range(len(parts)), key=lambda k: level[k]):
        carried = tuple((i, len(others)) for i, others in parts[k].carried.items())
        groups.setdefault((level[k], parts[k].limb.kind, carried), []).append(k)
    return list(groups.values())


def _each(function: Callable, parts: list[Piece], group: list[int], *values: Any) -> list:
    """A function of each piece of a group and of its values; with several in a loop.

    So its kernels are compiled once.
    """
    first = parts[group[0]]
    if len(group) == 1:
        return [function(first, *(x[group[0]] for x in values))]
    packed = [parted((parts[k].numbers, parts[k].state, [x[k] for x in values])) for k in group]
    arrays, merge = packed[0]
    is_column = [x.ndim > 0 for x in arrays]
    merge_found: Callable[[Sequence], Any] = tuple

    def visit(piece: tuple[Array, Array]) -> Array:
        nonlocal merge_found
        scalars, columns = iter(scalars_of(piece[0])), iter(piece[1])
        numbers, state, own = merge([next(columns if c else scalars) for c in is_column])
        found = function(first._replace(numbers=numbers, state=state), *own)
        leaves, merge_found = parted(found)
        return jnp.stack(leaves)

    scalars, columns = (
        jnp.stack(
            [
                jnp.stack([x for x, c in zip(leaves, is_column, strict=True) if c == wanted])
                for leaves, _ in packed
            ]
        )
        for wanted in (False, True)
    )
    rows = lax.map(visit, (scalars, columns))
    return [merge_found([*x]) for x in rows]


def _model(limb: Limb, numbers: Numbers, state: State) -> Model:
    zero = (0.0,) * limb.n
    rate, third = (*state.rates, zero, zero)[:2]
    body = list(unrolled_bodies(limb, sum(numbers.body, ())))
    for i, quaternion in zip(limb.balls, state.quaternions, strict=True):
        body[i] = body[i]._replace(rotation=matmul(body[i].rotation, _turned(quaternion)))
    joint = unrolled_joints(limb, numbers.pitch, state.cos, state.sin, state.q, rate, third)
    return Model(limb, tuple(body), joint, numbers.gravity, numbers.armature, rate, third)


def _turned(quaternion: tuple[Scalar, ...]) -> Matrix:
    """Rotation of a ball about its axes x, y, z in the frame with the axes -z, y, x."""
    w, x, y, z = (quaternion[k] for k in (0, 3, 2, 1))
    x = neg(x)
    square = add(add(mul(w, w), mul(x, x)), add(mul(y, y), mul(z, z)))
    twice = 2.0 / square

    def double(a: Scalar, b: Scalar) -> Scalar:
        return mul(twice, mul(a, b))

    xx, yy, zz = double(x, x), double(y, y), double(z, z)
    xy, xz, yz = double(x, y), double(x, z), double(y, z)
    wx, wy, wz = double(w, x), double(w, y), double(w, z)
    return (
        (1.0 - (yy + zz), xy - wz, xz + wy),
        (xy + wz, 1.0 - (xx + zz), yz - wx),
        (xz - wy, yz + wx, 1.0 - (xx + yy)),
    )


def coordinates_by_limb(
    tree: Tree, run: Run, *states: Float[Array, "batch _"]
) -> Float[Array, "batch n"]:
    """As `by_limb` for a value of each coordinate."""
    rows: dict[int, Array] = {}
    for limb, values in by_limb(tree, run, *states):
        rows |= dict(zip(limb.coordinates, values, strict=True))
    return jnp.stack([rows[k] for k in range(tree.n)], axis=1)
