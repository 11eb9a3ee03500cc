"""Recursions of many states at once, the limbs of the tree in kernels, large ones in pieces."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
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
from jaxgrip.solve.fusion import cos_sin, in_one_kernel, over_tiles, parted
from jaxgrip.spatial.components import Matrix, Scalar, Vector, add, matmul, mul, neg, unstack

# With more bodies forward dynamics and their derivatives have too many operations for a kernel.
LIMIT = 7

# The smallest pieces have up to so many bodies.
_LEAST = 5

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
    if tree.scanned or not can_be_cut(tree):
        return False
    kinds = {part.kind: part for limb in limbs(tree) for part in pieces(tree, limb, LIMIT)}
    return sum(len(part.bodies) for part in kinds.values()) <= MOST_BODIES


def can_be_cut(tree: Tree) -> bool:
    """Whether every piece of a tree has a state, its own or that of what carries it."""
    return all(pieces(tree, limb, _LEAST)[0].n for limb in limbs(tree))


class Numbers(NamedTuple):
    """Scalars of bodies: those of `body_table` and the pitch by body, armature by coordinate."""

    body: tuple[tuple[Scalar, ...], ...]
    gravity: Vector
    armature: tuple[Scalar, ...]
    pitch: tuple[Scalar, ...]


class State(NamedTuple):
    """A state of some bodies: by coordinate cos q, sin q, q and rates, whose number varies.

    The coordinates of balls are zero; `quaternions` are those of the balls.
    """

    cos: tuple[Scalar, ...]
    sin: tuple[Scalar, ...]
    q: tuple[Scalar, ...]
    quaternions: tuple[tuple[Scalar, ...], ...]
    rates: tuple[tuple[Scalar, ...], ...]


class Table(NamedTuple):
    """Columns (limbs, columns, states) of limbs of one kind; `merge` makes of one's a pytree."""

    columns: Float[Array, "limbs columns states"]
    merge: Callable[[Sequence], Any]

    def __getitem__(self, k: int) -> Any:
        return self.merge([*self.columns[k]])


class Tile:
    """States of a tree: coordinates (nq, states) and rates (n, states) each."""

    def __init__(self, tree: Tree, q: Array, *rates: Array) -> None:
        self.tree = tree
        self.q = q
        self._rates = rates
        at = layout(tree)
        moving = [tree.joint_types[i] for i in tree.moving]
        self._row = dict(zip(at.rates.tolist(), at.coordinates.tolist(), strict=True))
        self._quaternions = dict(zip(tree.balls, at.quaternions.tolist(), strict=True))
        turning = [k for k in self._row if moving[k] != "prismatic"]
        self._turning = {k: i for i, k in enumerate(turning)}
        if turning:
            self._cos_sin = cos_sin(rows_of(q, [self._row[k] for k in turning]))

    def group(self, same: Sequence[Limb]) -> "Group":
        """Limbs of one kind."""
        return Group(self.tree, tuple(same), self._states(same))

    def _states(self, same: Sequence[Limb]) -> Table | list[State]:
        first = same[0]
        single = [k in self._row for k in first.coordinates]
        turns = [k in self._turning for k in first.coordinates]

        def parts(limb: Limb) -> list[tuple[Array, list[int]]]:
            own = [k for k in limb.coordinates if k in self._row]
            turning = [self._turning[k] for k in own if k in self._turning]
            balls = [k for i in limb.balls for k in self._quaternions[limb.bodies[i]]]
            found = [(x, turning) for x in self._cos_sin] if turning else []
            found += [(self.q, [self._row[k] for k in own]), (self.q, balls)]
            return found + [(x, [*limb.coordinates]) for x in self._rates]

        def merge(columns: Sequence) -> State:
            rest = iter(columns)
            cos, sin = (tuple(next(rest) if t else x for t in turns) for x in (1.0, 0.0))
            q = tuple(next(rest) if s else 0.0 for s in single)
            balls = tuple(tuple(next(rest) for _ in range(4)) for _ in first.balls)
            rates = tuple(tuple(next(rest) for _ in first.coordinates) for _ in self._rates)
            return State(cos, sin, q, balls, rates)

        if len(same) == 1:
            return [merge([x[k] for x, index in parts(first) for k in index])]
        blocks = [[rows_of(x, index) for x, index in parts(limb) if index] for limb in same]
        return Table(jnp.stack([jnp.concatenate(x) for x in blocks]), merge)


def rows_of(x: Array, index: list[int]) -> Array:
    """Rows of an array, as slices, for the compiler makes slow copies of indexed arrays."""
    cuts = [0, *(k for k in range(1, len(index)) if index[k] != index[k - 1] + 1), len(index)]
    runs = [x[index[a] : index[b - 1] + 1] for a, b in itertools.pairwise(cuts)]
    return runs[0] if len(runs) == 1 else jnp.concatenate(runs)


class Group:
    """Limbs of one kind at many states."""

    def __init__(self, tree: Tree, limbs: tuple[Limb, ...], states: Table | list[State]) -> None:
        self.limbs = limbs
        self._states = states
        self._has = armature_of(tree) is not None, tree.pitch is not None
        self._numbers = [_numbers(tree, limb) for limb in limbs]

    @property
    def limb(self) -> Limb:
        """The first, to which the others are equal but for numbers."""
        return self.limbs[0]

    def each(self, function: Callable[..., Any], *values: Any) -> Table | list:
        """Columns of a function of the numbers and the state of each limb and of its values.

        One program for all; `values` are by limb.
        """
        if len(self.limbs) == 1:
            return [function(self._numbers[0], self._states[0], *(x[0] for x in values))]
        tables = [self._states, *(_table(x, len(self.limbs)) for x in values)]
        merge: Callable[[Sequence], Any] = tuple

        def visit(own: tuple[Array, list[Array]]) -> Array:
            nonlocal merge
            numbers, columns = own
            mine = [t.merge([*x]) for t, x in zip(tables, columns, strict=True)]
            leaves, merge = parted(function(numbers, *mine))
            return jnp.stack(leaves)

        columns = lax.map(visit, (jnp.stack(self._numbers), [t.columns for t in tables]))
        return Table(columns, merge)

    def of_model(self, core: Callable[..., Any], *values: Any) -> Table | list:
        """Columns of `core(model, *values)` at each state, each limb in one kernel."""

        def in_kernel(numbers: Array, *own: Any) -> Any:
            def step(k: tuple, x: tuple) -> Any:
                return core(_model(self.limb, self._parted(k), x[0]), *x[1:])

            return in_one_kernel(step, numbers, own)

        return self.each(in_kernel, *values)

    def gravity(self, numbers: Float[Array, " k"]) -> Float[Array, "3"]:
        """Gravity of the numbers of a limb."""
        at = 22 * len(self.limb.bodies)
        return numbers[at : at + 3]

    def _parted(self, k: tuple[Scalar, ...]) -> Numbers:
        nb, n = len(self.limb.bodies), self.limb.n
        rest = k[22 * nb + 3 :]
        has_armature, has_screws = self._has
        return Numbers(
            tuple(k[22 * i : 22 * i + 22] for i in range(nb)),
            k[22 * nb : 22 * nb + 3],
            rest[:n] if has_armature else (0.0,) * n,
            rest[len(rest) - nb :] if has_screws else (0.0,) * nb,
        )


def _numbers(tree: Tree, limb: Limb) -> Array:
    armature, own = armature_of(tree), np.array(limb.bodies)
    parts = [body_table(tree)[own].reshape(-1), tree.gravity]
    parts += [] if armature is None else [armature[np.array(limb.coordinates)]]
    parts += [] if tree.pitch is None else [tree.pitch[own]]
    return jnp.concatenate(parts)


def _table(values: Any, count: int) -> Table:
    if isinstance(values, Table):
        return values
    leaves, merge = parted(values[0])
    if not leaves:
        like = jnp.zeros((count, 0, 0))
        return Table(like, merge)
    rows = [jnp.stack(parted(values[k])[0]) for k in range(count)]
    return Table(jnp.stack(rows), merge)


class Pieces:
    """Limbs in pieces of at most so many bodies, those of one kind in groups unless `alone`."""

    def __init__(self, tile: Tile, limbs: Sequence[Limb], most: int, alone: bool = False) -> None:
        parts = [part for limb in limbs for part in pieces(tile.tree, limb, most)]
        of_body = {i: part for part in parts for i in part.bodies}
        level: dict[Limb, int] = {}
        self._carried: dict[Limb, dict[int, list[Limb]]] = {part: {} for part in parts}
        for part in parts:
            carrier = of_body.get(part.carrier)
            level[part] = level[carrier] + 1 if carrier else 0
            if carrier:
                at = carrier.bodies.index(part.carrier)
                self._carried[carrier].setdefault(at, []).append(part)
        groups: dict[tuple, list[Limb]] = {}
        for part in sorted(parts, key=lambda part: level[part]):
            carried = tuple((i, len(others)) for i, others in self._carried[part].items())
            groups.setdefault(
                (level[part], part.kind, carried, len(groups) if alone else 0), []
            ).append(part)
        self.groups = [tile.group(same) for same in groups.values()]
        self._given: dict[Limb, Any] = {}

    def outward(self, core: Callable, own: Sequence | None = None) -> list:
        """Sweep from the base to the leaves; what is returned by group, then by piece.

        `core(model, carrier, own)` maps scalars of the piece, of what its carrier's body has, None
        for the base, and of the piece's own, to a value of every body and what is returned. Pieces
        that carry none are left out without `own`.
        """
        out: list = [None] * len(self.groups)
        self._given = {}
        for k, group in enumerate(self.groups):
            places = self._carried[group.limb]
            if own is None and not places:
                continue

            def step(model: Model, carrier: Any, own: Any, places: dict = places) -> tuple:
                value, kept = core(model, carrier, own)
                return [value[i] for i in places], kept

            mine = [None] * len(group.limbs) if own is None else own[k]
            out[k] = group.of_model(step, self._carriers(group), mine)
            for i, part in enumerate(group.limbs) if places else ():
                tips, _ = out[k][i]
                for tip, others in zip(tips, self._carried[part].values(), strict=True):
                    self._given |= dict.fromkeys(others, tip)
        return [_second(x) for x in out]

    def _carriers(self, group: Group) -> list:
        return [self._given.get(part) for part in group.limbs]

    def inward(self, core: Callable) -> list:
        """Sweep from the leaves to the base; what is returned by group, then by piece.

        `core(model, carrier, sent)` maps scalars of the piece, of what the carrier's body had in
        the sweep before, and what the pieces that a body carries have sent, by body, to what goes
        to the carrier and what is returned.
        """
        sent: dict[Limb, Any] = {}
        out: list = [None] * len(self.groups)
        for k in reversed(range(len(self.groups))):
            group = self.groups[k]
            received = [
                {i: [sent[x] for x in others] for i, others in self._carried[part].items()}
                for part in group.limbs
            ]
            out[k] = group.of_model(core, self._carriers(group), received)
            for i, part in enumerate(group.limbs) if group.limb.carrier >= 0 else ():
                sent[part], _ = out[k][i]
        return [_second(x) for x in out]

    def nothing(self) -> list[list[None]]:
        """For `outward`, of pieces that have nothing of their own."""
        return [[None] * len(group.limbs) for group in self.groups]

    def by_component(
        self, values: Sequence, like: Float[Array, "_ states"]
    ) -> Float[Array, "k bodies states"]:
        """Components of all bodies, by group, piece and body, from lists by component and body."""
        return jnp.concatenate([_components(mine, like) for mine in values], axis=1)

    def by_coordinate(self, values: Sequence) -> dict[int, Array]:
        """Columns by coordinate from values by group, piece and coordinate."""
        return {
            k: column
            for group, mine in zip(self.groups, values, strict=True)
            for i, part in enumerate(group.limbs)
            for k, column in zip(part.coordinates, mine[i], strict=True)
        }


def _components(values: Table | list, like: Array) -> Float[Array, "k bodies states"]:
    if not isinstance(values, Table):
        rows = stacked([x for row in values[0] for x in row], like)
        return rows.reshape(len(values[0]), -1, like.shape[-1])
    columns = values.columns
    # Known numbers among them get columns of their own.
    places = values.merge([*range(columns.shape[1])])
    known = [x for row in places for x in row if type(x) is float]
    if known:
        more = jnp.broadcast_to(
            jnp.asarray(known, like.dtype)[:, None], (len(known), like.shape[-1])
        )
        columns = jnp.concatenate([columns, jnp.broadcast_to(more, (len(columns), *more.shape))], 1)
    rest = itertools.count(columns.shape[1] - len(known))
    index = [next(rest) if type(x) is float else x for row in places for x in row]
    rows = rows_of(jnp.swapaxes(columns, 0, 1), index)
    rows = rows.reshape(len(places), -1, *rows.shape[1:])
    return jnp.swapaxes(rows, 1, 2).reshape(len(places), -1, like.shape[-1])


def _second(values: Table | list | None) -> Table | list | None:
    """The second of a pair of every piece."""
    if isinstance(values, Table):
        return Table(values.columns, lambda x: values.merge(x)[1])
    return values and [x[1] for x in values]


def stacked(values: Sequence, like: Float[Array, "_ states"]) -> Float[Array, "k states"]:
    """Rows of columns, some of which may be known numbers."""
    return jnp.stack([jnp.broadcast_to(jnp.asarray(x, like.dtype), like.shape[1:]) for x in values])


def same_kinds(limbs: Sequence[Limb]) -> list[list[Limb]]:
    """Limbs by kind."""
    groups: dict[tuple, list[Limb]] = {}
    for limb in limbs:
        groups.setdefault(limb.kind, []).append(limb)
    return [*groups.values()]


def by_tile(
    tree: Tree,
    run: Callable[[Tile], Any],
    shapes: Any,
    q: Float[Array, "batch nq"],
    *rates: Float[Array, "batch n"],
) -> Any:
    """What `run` makes of each tile of states, as for `over_tiles`, with the batch first."""
    found = over_tiles(lambda *x: run(Tile(tree, *x)), [x.T for x in (q, *rates)], shapes)
    return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), found)


def _model(limb: Limb, numbers: Numbers, state: State) -> Model:
    zero = (0.0,) * limb.n
    rate, third = (*state.rates, zero, zero)[:2]
    body = list(unrolled_bodies(limb, sum(numbers.body, ())))
    for i, quaternion in zip(limb.balls, state.quaternions, strict=True):
        body[i] = body[i]._replace(rotation=matmul(body[i].rotation, turned_by(quaternion)))
    joint = unrolled_joints(limb, numbers.pitch, state.cos, state.sin, state.q, rate, third)
    return Model(limb, tuple(body), joint, numbers.gravity, numbers.armature, rate, third)


def turned_by(quaternion: tuple[Scalar, ...]) -> Matrix:
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
