"""The tree primitive: every recursion is one outward or inward sweep over the bodies.

A step is a function of scalars (`spatial.components`). Small trees are unrolled: each body's step
is traced once with its own joint type, and under `vmap` everything becomes elementwise operations
on the batch. Large trees are scanned: one step for all bodies, joint types as data, so that the
program does not grow with the tree. `unrolled` alone decides which.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxgrip.rigid._tree import Tree
from jaxgrip.solve.fusion import opaque_one
from jaxgrip.spatial.components import (
    ZERO,
    Matrix,
    Scalar,
    Symmetric,
    Vector,
    add,
    mul,
    stack,
    unstack,
)

# The compiler copies what is shared along a chain into all that use it: with the arms of seven
# joints unrolled programs are four times faster than scanned ones, with chains of twelve slower.
UNROLL_LIMIT = 7

# The six numbers xx, xy, xz, yy, yz, zz of a symmetric matrix among its nine.
UPPER = np.array([0, 1, 2, 4, 5, 8])

# Derivatives of single states compile sooner scanned, above this many bodies: those of second order
# of an arm of six joints in a third of the time, which run as fast; of three joints a little later.
FEW_BODIES = 4

PerBody = Any  # a tuple of pytrees of scalars, or one pytree of (bodies,) arrays


class Body(NamedTuple):
    """Constant numbers of one body."""

    rotation: Matrix
    translation: Vector
    mass: Scalar
    com: Vector
    inertia: Symmetric


class Joint(NamedTuple):
    """State of one joint: cosine and sine of its angle, shift along z, and its rates.

    `turns` and `slides` are 1 where the joint is revolute or prismatic, else 0, and `slides` is the
    pitch of a screw; `turn_rate`,
    `slide_rate`, `turn_accel` and `slide_accel` are rates of the angle and of the shift.
    """

    cos: Scalar
    sin: Scalar
    shift: Scalar
    turns: Scalar
    slides: Scalar
    turn_rate: Scalar
    slide_rate: Scalar
    turn_accel: Scalar
    slide_accel: Scalar


def one_of(q: Array) -> Scalar:
    """A one that is opaque to the compiler, with the type and batch of the coordinates `q`."""
    return opaque_one(lax.index_in_dim(q, 0, keepdims=False)) if len(q) else 1.0


class Limb(NamedTuple):
    """Bodies of a tree that are connected with each other, without the numbers.

    `bodies` and `coordinates` are their indices in the tree, `carrier` is the index of the body
    that carries them, -1 for the base; parents and balls, first bodies of these, are indices in the
    limb.
    """

    bodies: tuple[int, ...]
    coordinates: tuple[int, ...]
    carrier: int
    parents: tuple[int, ...]
    joint_types: tuple[str, ...]
    joint_names: tuple[str, ...]
    balls: tuple[int, ...]

    @property
    def moving(self) -> tuple[int, ...]:
        """As `Tree.moving`."""
        return tuple(i for i, kind in enumerate(self.joint_types) if kind != "fixed")

    @property
    def n(self) -> int:
        """Number of degrees of freedom."""
        return len(self.coordinates)

    @property
    def kind(self) -> tuple:
        """Equal for limbs whose programs differ in numbers only."""
        shared = [self.joint_names.index(name) for name in self.joint_names]
        carried = self.carrier >= 0
        return self.parents, self.joint_types, tuple(shared), self.balls, carried


def limbs(tree: Tree) -> tuple[Limb, ...]:
    """The parts of a tree that are joined by nothing but the base."""
    roots: list[int] = []
    for i, parent in enumerate(tree.parents):
        roots.append(i if parent < 0 else roots[parent])
    return tuple(
        limb_of(tree, tuple(i for i, r in enumerate(roots) if r == root))
        for root in sorted(set(roots))
    )


def pieces(tree: Tree, limb: Limb, most: int) -> tuple[Limb, ...]:
    """A limb as one piece if it has at most `most` bodies, otherwise as chains of so many.

    Pieces come after those that carry them; none ends within a joint of several axes.
    """
    if len(limb.bodies) <= most:
        return (limb,)
    children = {i: [j for j in limb.bodies if tree.parents[j] == i] for i in limb.bodies}
    found = []
    for head in limb.bodies:
        if head != limb.bodies[0] and len(children[tree.parents[head]]) == 1:
            continue
        chain = [head]
        while len(children[chain[-1]]) == 1:
            chain += children[chain[-1]]
        found += [limb_of(tree, own) for own in _cut(_by_joint(tree, chain), most)]
    return tuple(sorted(found, key=lambda piece: piece.bodies))


def _cut(groups: list[tuple[int, ...]], most: int) -> list[tuple[int, ...]]:
    """Groups of bodies in a row, joined to as few of about equal size as have at most so many."""
    found, rest = [], sum(map(len, groups))
    while groups:
        size = -(-rest // -(-rest // most))
        own, *groups = groups
        while groups and len(own) + len(groups[0]) <= size:
            own += groups.pop(0)
        rest -= len(own)
        found.append(own)
    return found


def _by_joint(tree: Tree, chain: list[int]) -> list[tuple[int, ...]]:
    names = tree.joint_names or tree.names
    return [tuple(own) for _, own in itertools.groupby(chain, key=lambda i: names[i])]


def limb_of(tree: Tree, own: tuple[int, ...]) -> Limb:
    """The limb of connected bodies."""
    row = {body: k for k, body in enumerate(tree.moving)}
    return Limb(
        own,
        tuple(row[i] for i in own if i in row),
        tree.parents[own[0]],
        tuple(own.index(tree.parents[i]) if i != own[0] else -1 for i in own),
        tuple(tree.joint_types[i] for i in own),
        tuple(tree.joint_names[i] for i in own) if tree.joint_names else (),
        tuple(own.index(i) for i in tree.balls if i in own),
    )


def unrolled(tree: Tree | Limb) -> bool:
    """Whether sweeps over this tree are unrolled rather than scanned."""
    if isinstance(tree, Limb):
        return True
    return not tree.scanned and len(tree.parents) <= UNROLL_LIMIT


def compact(tree: Tree) -> Tree:
    """The tree whose recursions are scanned unless it has few bodies, for small programs."""
    return dataclasses.replace(tree, scanned=tree.scanned or len(tree.parents) > FEW_BODIES)


def bodies(tree: Tree) -> PerBody:
    """`Body` numbers of all bodies."""
    table = body_table(tree)
    if not unrolled(tree):
        return body_of(unstack(table.T))
    return unrolled_bodies(tree, unstack(table.reshape(-1)))


def body_table(tree: Tree) -> Float[Array, "bodies 22"]:
    """The numbers of `Body` of all bodies."""
    nb = len(tree.parents)
    r = tree.rotation.reshape(nb, 9)
    upper = tree.inertia.reshape(nb, 9)[:, UPPER]
    return jnp.concatenate([r, tree.translation, tree.mass[:, None], tree.com, upper], axis=1)


def unrolled_bodies(tree: Tree | Limb, k: tuple) -> tuple[Body, ...]:
    """`Body` of each body from the scalars of `body_table`, row by row."""
    return tuple(
        _folded(tree, i, body_of(k[22 * i : 22 * i + 22])) for i in range(len(tree.parents))
    )


def body_of(k: tuple) -> Body:
    """`Body` from the scalars of a row of `body_table`."""
    return Body((k[0:3], k[3:6], k[6:9]), k[9:12], k[12], k[13:16], k[16:22])


# Of a body within a joint of several axes: placement in the body before, of an axis y after x and
# of z after y.
_NEXT = {
    1: ((0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.0, 0.0)),
    2: ((1.0, 0.0, 0.0), (0.0, 0.0, -1.0), (0.0, 1.0, 0.0)),
}


def _folded(tree: Tree | Limb, i: int, body: Body) -> Body:
    """The body with the numbers that are known of one within a joint of several axes."""
    names = tree.joint_names
    before = 0
    while names and before < i and names[i - before - 1] == names[i]:
        before += 1
    if before:
        body = body._replace(translation=ZERO, rotation=_NEXT.get(before % 3, body.rotation))
    if names and names[i] in names[i + 1 : i + 2]:
        body = body._replace(mass=0.0, com=ZERO, inertia=(0.0,) * 6)
    return body


def joints(
    tree: Tree,
    q: Float[Array, " n"],
    qd: Float[Array, " n"] | None = None,
    qdd: Float[Array, " n"] | None = None,
) -> PerBody:
    """`Joint` states of all joints; rates that are None are zero."""
    if not unrolled(tree):
        return _joint_arrays(tree, q, qd, qdd)
    coordinates = [unstack(x) if x is not None else (0.0,) * tree.n for x in (q, qd, qdd)]
    pitch = () if tree.pitch is None else unstack(tree.pitch)
    turned = [tuple(f(x) for x in coordinates[0]) for f in (jnp.cos, jnp.sin)]
    return unrolled_joints(tree, pitch, *turned, *coordinates)


def unrolled_joints(
    tree: Tree | Limb, pitch: tuple, cos: tuple, sin: tuple, q: tuple, qd: tuple, qdd: tuple
) -> tuple[Joint, ...]:
    """`Joint` of each joint from scalars by coordinate, the pitch by body."""
    out, k = [], 0
    for i, kind in enumerate(tree.joint_types):
        if kind == "fixed":
            out.append(Joint(1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
            continue
        c, s, x, v, a = cos[k], sin[k], q[k], qd[k], qdd[k]
        k += 1
        if kind == "revolute":
            out.append(Joint(c, s, 0.0, 1.0, 0.0, v, 0.0, a, 0.0))
        elif kind == "screw":
            h = pitch[i]
            slide = [mul(h, y) for y in (x, v, a)]
            out.append(Joint(c, s, slide[0], 1.0, h, v, slide[1], a, slide[2]))
        else:
            out.append(Joint(1.0, 0.0, x, 0.0, 1.0, 0.0, v, 0.0, a))
    return tuple(out)


def _joint_arrays(tree: Tree, q: Any, qd: Any, qdd: Any) -> Joint:
    turns, slides = (jnp.asarray(x, q.dtype) for x in axes_of(tree))
    zero = jnp.zeros(len(tree.parents), q.dtype)
    x, v, a = (zero if y is None else per_joint(tree, y) for y in (q, qd, qdd))
    angle = turns * x
    return Joint(
        jnp.cos(angle),
        jnp.sin(angle),
        slides * x,
        turns,
        slides,
        turns * v,
        slides * v,
        turns * a,
        slides * a,
    )


def axes_of(tree: Tree) -> tuple[np.ndarray, np.ndarray | Array]:
    """Rotation and advance (bodies,) of every body per unit of its joint's coordinate."""
    kinds = np.array(tree.joint_types)
    turns, slides = (kinds == "revolute") | (kinds == "screw"), kinds == "prismatic"
    return turns, slides if tree.pitch is None else jnp.where(slides, 1.0, tree.pitch)


def per_joint(tree: Tree, values: Float[Array, " n"]) -> PerBody:
    """One scalar per body from one per coordinate; zero for fixed joints."""
    moving = np.array(tree.moving, dtype=int)
    if not unrolled(tree):
        return jnp.zeros(len(tree.parents), values.dtype).at[moving].set(values)
    return spread(tree, unstack(values))


def spread(tree: Tree | Limb, values: Sequence, still: Any = 0.0) -> tuple:
    """One value per body from one per coordinate; `still` for fixed joints."""
    found: list = [still] * len(tree.parents)
    for i, x in zip(tree.moving, values, strict=True):
        found[i] = x
    return tuple(found)


def each(tree: Tree | Limb, step: Callable, *per_body: PerBody) -> PerBody:
    """Apply a step of scalars to every body on its own."""
    if not unrolled(tree):
        return step(*per_body)
    return tuple(step(*args) for args in zip(*per_body, strict=True))


def outward(tree: Tree | Limb, step: Callable, base: Any, *per_body: PerBody) -> PerBody:
    """Sweep from the base to the leaves.

    `step(parent, *numbers)` maps the parent's value and the body's numbers to the body's value,
    a pytree like `base`.
    """
    if unrolled(tree):
        out: list = []
        for parent, args in zip(tree.parents, zip(*per_body, strict=True), strict=True):
            out.append(step(base if parent < 0 else out[parent], *args))
        return tuple(out)
    per_body = _arrays(tree, per_body)
    start, pack, unpack = _packing(tree, base)
    buffer = jnp.zeros((len(tree.parents) + 1, start.shape[0]), start.dtype).at[0].set(start)

    def visit(buffer: Array, x: tuple) -> tuple[Array, None]:
        i, parent, args = x
        value = pack(step(unpack(buffer[parent]), *args))
        return lax.dynamic_update_index_in_dim(buffer, value, i, 0), None

    xs = (_indices(tree), np.array(tree.parents) + 1, per_body)
    buffer, _ = lax.scan(visit, buffer, xs)
    return unpack(buffer[1:].T)


def inward(tree: Tree | Limb, step: Callable, empty: Any, *per_body: PerBody) -> PerBody:
    """Sweep from the leaves to the base.

    `step(children, *numbers)` maps the sum of what the children sent (a pytree like `empty`, the
    value without children) and the body's numbers to a pair: what goes to the parent, and the
    body's own value.
    """
    if unrolled(tree):
        return inward_over(tree, step, empty, {}, *per_body)[1]
    per_body = _arrays(tree, per_body)
    start, pack, unpack = _packing(tree, empty)
    buffer = jnp.zeros((len(tree.parents) + 1, start.shape[0]), start.dtype)

    def visit(buffer: Array, x: tuple) -> tuple[Array, Any]:
        i, parent, args = x
        sent, value = step(unpack(buffer[i]), *args)
        return buffer.at[parent].add(pack(sent)), value

    xs = (_indices(tree), np.array(tree.parents) + 1, per_body)
    _, out = lax.scan(visit, buffer, xs, reverse=True)
    return out


def inward_over(
    tree: Tree | Limb, step: Callable, empty: Any, sent: dict[int, Sequence], *per_body: PerBody
) -> tuple[Any, PerBody]:
    """As `inward`, unrolled, for bodies to which others have `sent`; also what goes to the base."""
    nb = len(tree.parents)
    received: list = [empty] * (nb + 1)
    out: list = [None] * nb

    def receive(at: int, value: Any) -> None:
        old = received[at + 1]
        received[at + 1] = value if old is empty else jax.tree.map(add, old, value)

    for i, values in sent.items():
        for value in values:
            receive(i, value)
    for i in reversed(range(nb)):
        value, out[i] = step(received[i + 1], *(x[i] for x in per_body))
        receive(tree.parents[i], value)
    return received[0], tuple(out)


def _indices(tree: Tree) -> np.ndarray:
    return np.arange(1, len(tree.parents) + 1)


def _arrays(tree: Tree, per_body: tuple) -> tuple:
    like = tree.mass
    return jax.tree.map(lambda x: jnp.full_like(like, x) if type(x) is float else x, per_body)


def _packing(tree: Tree, example: Any) -> tuple[Array, Callable, Callable]:
    leaves, structure = jax.tree.flatten(example)

    def pack(value: Any) -> Array:
        return stack(structure.flatten_up_to(value), tree.mass)

    def unpack(row: Array) -> Any:
        return jax.tree.unflatten(structure, unstack(row))

    return stack(leaves, tree.mass), pack, unpack


def gather(tree: Tree, values: PerBody) -> Array:
    """(bodies, ...) array of a pytree of scalars per body; its leaves become the second axis."""
    if unrolled(tree):
        return jnp.stack([stack(jax.tree.leaves(v), tree.mass) for v in values])
    return jnp.stack([jnp.broadcast_to(x, tree.mass.shape) for x in jax.tree.leaves(values)], 1)


def coordinates(tree: Tree, values: PerBody) -> Float[Array, " n"]:
    """(n,) array of one scalar per body, taken at the moving joints."""
    if unrolled(tree):
        return stack([values[i] for i in tree.moving], tree.mass)
    return values[np.array(tree.moving, dtype=int)]
