"""Pairs of shapes on bodies, and the forces between them."""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import non_negative, numbers, positive
from jaxgrip.contact._shapes import _FAR, Shape, corners, is_half_space, signed_distance
from jaxgrip.rigid import Tree, body_jacobians, forward_kinematics

# Share of the sliding limit up to which bristles only bend, and from which they slip wholly.
_BREAK = 0.7
# Time in which bristles straighten where nothing touches [s], and depth of half the damping [m].
_STRAIGHTEN, _DAMPED = 1e-3, 1e-4


class Material(eqx.Module):
    """How two surfaces push and rub.

    - `stiffness` of the normal force [N/m], at every corner that touches.
    - `damping` [N s/m] of the depth's rate, fully from a tenth of a millimetre on, so that nothing
      jumps; the normal force never pulls.
    - `friction`: coefficient.
    - `bristles` [1/m]: friction by normal force and bending of the bristles; a bristle that slips
      is bent by friction/bristles.
    - `bristle_damping` [s/m].
    """

    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    friction: Float[Array, ""]
    bristles: Float[Array, ""]
    bristle_damping: Float[Array, ""]

    def __init__(self, stiffness, damping=50.0, friction=0.5, bristles=1e3, bristle_damping=2.0):
        self.stiffness = positive("The stiffness of a material", stiffness, ())
        self.damping = non_negative("damping of a material", damping, ())
        self.friction = non_negative("friction of a material", friction, ())
        self.bristles = positive("The bristles of a material", bristles, ())
        self.bristle_damping = non_negative("bristle damping of a material", bristle_damping, ())


class Attached(NamedTuple):
    """A shape on a body: its name, None for the base; `rotation` (3, 3) and `translation` (3,) [m]
    of the shape in the body's frame."""

    shape: Shape
    body: str | None = None
    translation: tuple[float, float, float] | Array = (0.0, 0.0, 0.0)
    rotation: Array | None = None


class Contacts(eqx.Module):
    """Corners that may touch shapes, c of them.

    `first` and `second`: bodies of corners and shapes, -1 for the base; `points` (c, 3) and `radii`
    (c,) of the corners in their bodies; `rotations`, `translations`, `half` and `round` of the
    shapes in theirs; `material`, its numbers (c,); `names` of the pairs.
    """

    points: Float[Array, "c 3"]
    radii: Float[Array, " c"]
    rotations: Float[Array, "c 3 3"]
    translations: Float[Array, "c 3"]
    half: Float[Array, "c 3"]
    round: Float[Array, " c"]
    material: Material
    first: tuple[int, ...] = eqx.field(static=True)
    second: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)


def contacts(tree: Tree, pairs: Sequence[tuple[Attached, Attached, Material]]) -> Contacts:
    """What may touch in pairs of shapes on a tree.

    Of every pair the corners of each shape touch the other one: the centre of a sphere, the ends
    of a capsule, the eight corners of a box, all with their radius. Edges that cross between
    their corners are not seen; round edges, or shapes of several parts, help.

    **Raises:** `ValueError` for an unknown body, two shapes on one body, and two half spaces.
    """
    rows: list[tuple] = []
    for a, b, material in pairs:
        label = f"{a.body or 'base'} and {b.body or 'base'}"
        if a.body == b.body:
            raise ValueError(f"Both shapes of a pair are on {a.body or 'the base'}.")
        if is_half_space(a.shape) and is_half_space(b.shape):
            raise ValueError(f"Both shapes of {label} are half spaces.")
        ways = [(a, b), (b, a)]
        # One sphere and another would meet twice.
        if len(a.shape.corners) == len(b.shape.corners) == 1:
            ways = ways[:1]
        for one, other in ways:
            # A sphere inside a box is seen by its centre, a corner inside a sphere by the sphere.
            if is_half_space(one.shape) or (
                len(other.shape.corners) == 1 and len(one.shape.corners) > 1
            ):
                continue
            turn, move = _placed(one)
            far, at = _placed(other)
            if is_half_space(other.shape):
                at = at - _FAR * far[:, 2]
            for corner in corners(one.shape):
                rows.append(
                    (
                        *(turn @ corner + move, one.shape.radius, far, at),
                        *(other.shape.half, other.shape.radius, material),
                        *(_body(tree, one.body), _body(tree, other.body), label),
                    )
                )
    if not rows:
        raise ValueError("There are no pairs that can touch.")
    *arrays, material, first, second, names = zip(*rows, strict=True)
    stacked = [jnp.stack(x) for x in arrays]
    material = jax.tree.map(lambda *x: jnp.stack(x), *material)
    return Contacts(*stacked, material, first, second, names)


def _placed(attached: Attached) -> tuple[Array, Array]:
    rotation = attached.rotation
    turn = jnp.eye(3) if rotation is None else numbers("The rotation", rotation, (3, 3))
    return turn, numbers("The translation", attached.translation, (3,))


def _body(tree: Tree, name: str | None) -> int:
    return -1 if name is None else tree.body(name)


class Forces(NamedTuple):
    """Forces at all corners.

    `distance` (c,) [m]; `normal` (c, 3), from shape to corner; `force` (c, 3) on the corner's body
    [N], base axes; `pressed` (c,), its normal part; `torque` (n,), of the joints; `bristles` (c, 3)
    [m], in the axes of the shapes; `lost` [W], what the contacts take from the motion beyond the
    springs' energy; `energy` [J] of the normal springs.
    """

    distance: Float[Array, " c"]
    normal: Float[Array, "c 3"]
    force: Float[Array, "c 3"]
    pressed: Float[Array, " c"]
    torque: Float[Array, " n"]
    bristles: Float[Array, "c 3"]
    lost: Float[Array, ""]
    energy: Float[Array, ""]


def forces(
    tree: Tree,
    touching: Contacts,
    q: Float[Array, " nq"],
    qd: Float[Array, " n"],
    bristles: Float[Array, "c 3"],
    h: Float[Array, ""] | float = 0.0,
) -> Forces:
    """Forces between shapes at a position and rates.

    **Arguments:** `bristles` (c, 3): their bending [m] at a time `h` [s] before, after which the
    forces are; h = 0 for the bending itself.

    Friction is that of bristles that only bend below 0.7 of the sliding limit, so that a load below
    it does not creep; they bend in the frame of the shape, and straighten where nothing touches.

    Source: Dupont 2002, with forces in proportion to the normal force; the rest is an own choice.
    """
    # The base is the row after all bodies.
    poses = forward_kinematics(tree, q)
    rotation = jnp.concatenate([poses.rotation, jnp.eye(3)[None]])
    position = jnp.concatenate([poses.translation, jnp.zeros((1, 3))])
    jacobians = jnp.concatenate([body_jacobians(tree, q), jnp.zeros((1, 6, tree.n))])
    twists = jacobians @ qd
    a, b = np.array(touching.first), np.array(touching.second)

    def one(point, radius, turn, move, half, rounding, material, z, pa, ta, va, pb, tb, vb):
        corner = pa + ta @ point
        far = tb @ turn
        origin = pb + tb @ move
        local = far.T @ (corner - origin)
        shape = Shape(half, rounding, ())
        distance, slope = jax.value_and_grad(lambda x: signed_distance(shape, x))(local)
        distance = distance - radius
        normal = far @ slope
        at = corner - normal * (radius + 0.5 * distance)
        relative = va[3:] + jnp.cross(va[:3], at - pa) - vb[3:] - jnp.cross(vb[:3], at - pb)
        closing = -normal @ relative
        depth = jnp.maximum(-distance, 0.0)
        damped = material.damping * closing * depth / (depth + _DAMPED)
        pressed = jnp.maximum(material.stiffness * depth + damped, 0.0)
        sliding = far.T @ (relative + closing * normal)
        most = material.friction / material.bristles
        touches = depth > 0
        # They bend with the sliding, slip beyond the limit, and straighten where nothing touches.
        trial = z - (z @ slope) * slope + jnp.where(touches, h, 0.0) * sliding
        size = jnp.sqrt(trial @ trial + 1e-30)
        speed = jnp.maximum(trial @ sliding, 0.0) / size
        share = size / jnp.maximum(most, 1e-12)
        x = jnp.clip((share - _BREAK) / (1 - _BREAK), 0.0, 1.0)
        slip = jnp.where(speed > 0, x * x * (3 - 2 * x), 0.0)
        fade = slip * speed / jnp.maximum(most, 1e-12)
        over = jnp.where(touches, 0.0, 1.0)
        flat = trial / (1 + h * (fade + over / _STRAIGHTEN))
        rub = -pressed * (
            material.bristles * flat + material.bristle_damping * (1 - slip) * sliding
        )
        force = pressed * normal + far @ rub
        spring = 0.5 * material.stiffness * depth**2
        # Power into the contact that its spring does not store.
        lost = -force @ relative - material.stiffness * depth * closing
        return distance, normal, force, pressed, at, flat, lost, spring

    found = jax.vmap(one)(
        touching.points,
        touching.radii,
        touching.rotations,
        touching.translations,
        touching.half,
        touching.round,
        touching.material,
        bristles,
        *(position[a], rotation[a], twists[a], position[b], rotation[b], twists[b]),
    )
    distance, normal, force, pressed, at, flat, lost, spring = found

    def wrench(bodies: np.ndarray, sign: float) -> Array:
        moment = jnp.cross(at - position[bodies], sign * force)
        both = jnp.concatenate([moment, sign * force], axis=1)
        return jnp.einsum("cij,ci->j", jacobians[bodies], both)

    torque = wrench(a, 1.0) + wrench(b, -1.0)
    return Forces(distance, normal, force, pressed, torque, flat, jnp.sum(lost), jnp.sum(spring))
