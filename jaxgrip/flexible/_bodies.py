"""The bodies of a flexible tree, stacked so that one operation works on all of them.

Velocities are in body axes: angular velocity, then velocity of the frame's origin. Elastic
coordinates of each body are padded to the largest number.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.flexible._link import ElasticLink
from jaxgrip.flexible._tree import FlexibleTree, moments

_LEVI_CIVITA = np.zeros((3, 3, 3))
for _a, _b, _c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    _LEVI_CIVITA[_a, _b, _c], _LEVI_CIVITA[_a, _c, _b] = 1.0, -1.0
# Contracted with v in its first index, this is the matrix of v x.
_CROSS = _LEVI_CIVITA.transpose(1, 0, 2).copy()
_ROTATION_Z = np.array(
    [
        [[0, 0, 0], [0, 0, 0], [0, 0, 1]],
        [[1, 0, 0], [0, 1, 0], [0, 0, 0]],
        [[0, -1, 0], [1, 0, 0], [0, 0, 0]],
    ],
    dtype=float,
)


def _moment_maps() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Constant maps from moments (mass, ∫ρr, ∫ρrrᵀ) and their one-sided derivatives."""
    inertia = np.zeros((13, 6, 6))
    inertia[0, 3:, 3:] = np.eye(3)
    inertia[1:4, :3, 3:], inertia[1:4, 3:, :3] = _CROSS, -_CROSS
    coupling, symmetric = np.zeros((6, 12)), np.zeros((13, 12))
    coupling[3:, :3] = symmetric[1:4, :3] = np.eye(3)
    for a in range(3):
        for b in range(3):
            inertia[4 + 3 * a + b, :3, :3] = np.eye(3) * (a == b)
            inertia[4 + 3 * a + b, a, b] -= 1.0
            # Entry (a, b) of the derivative: component a of the displacement times position b.
            coupling[:3, 3 + 3 * a + b] = _LEVI_CIVITA[:, b, a]
            symmetric[4 + 3 * a + b, 3 + 3 * a + b] += 1.0
            symmetric[4 + 3 * a + b, 3 + 3 * b + a] += 1.0
    force = np.zeros((6, 6, 6))
    force[:3, :3, :3] = force[:3, 3:, 3:] = force[3:, :3, 3:] = _LEVI_CIVITA
    return inertia, coupling, symmetric, force


_INERTIA, _COUPLING, _SYMMETRIC, _FORCE = _moment_maps()


def crossing(v: Float[Array, "*b 3"]) -> Float[Array, "*b 3 3"]:
    """Matrix of v x."""
    return jnp.tensordot(v, jnp.asarray(_CROSS), 1)


class Layout(NamedTuple):
    """Constant selections of the coordinates that belong to each body.

    `angle` and `slide` (bodies, n); `axis` (bodies, 6, n), velocity per joint rate; `own` and
    `carrier` (bodies, width, k), elastic coordinates of the body and of its parent.
    """

    angle: np.ndarray
    slide: np.ndarray
    axis: np.ndarray
    own: np.ndarray
    carrier: np.ndarray


class Bodies(eqx.Module):
    """Parameters of all bodies, stacked.

    **Fields:**

    - `rotation`, `translation`, `gravity`: as in the rigid tree.
    - `moments` (bodies, 13): mass, ∫ρR and ∫ρRRᵀ of the undeformed body.
    - `linear` (bodies, 12, width), `quadratic` (bodies, 12, width, width): ∫ρΦ and ∫ρΦRᵀ, and
      their change per coordinate.
    - `modal_mass`, `stiffness`, `damping` (bodies, width, width).
    - `centre` (bodies, 3), `face` (bodies, 6, width), `face_second`: the face of the parent to
      which the body is joined; translation and rotation per coordinate, and their change.
    """

    rotation: Float[Array, "bodies 3 3"]
    translation: Float[Array, "bodies 3"]
    gravity: Float[Array, "3"]
    moments: Float[Array, "bodies 13"]
    linear: Float[Array, "bodies 12 width"]
    quadratic: Float[Array, "bodies 12 width width"]
    modal_mass: Float[Array, "bodies width width"]
    stiffness: Float[Array, "bodies width width"]
    damping: Float[Array, "bodies width width"]
    centre: Float[Array, "bodies 3"]
    face: Float[Array, "bodies 6 width"]
    face_second: Float[Array, "bodies 6 width width"] | None
    parents: tuple[int, ...] = eqx.field(static=True)
    joint_types: tuple[str, ...] = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)

    @property
    def n(self) -> int:
        """Number of joint coordinates."""
        return sum(kind != "fixed" for kind in self.joint_types)

    @property
    def layout(self) -> Layout:
        """Constant selections."""
        count, n, width = len(self.parents), self.n, max(self.sizes)
        kinds = np.array(self.joint_types)
        joint = np.zeros((count, n))
        joint[np.flatnonzero(kinds != "fixed"), np.arange(n)] = 1.0
        angle, slide = (joint * (kinds == kind)[:, None] for kind in ("revolute", "prismatic"))
        axis = np.zeros((count, 6, n))
        axis[:, 2], axis[:, 5] = angle, slide
        own = np.zeros((count + 1, width, sum(self.sizes)))
        for i, size in enumerate(self.sizes):
            start = sum(self.sizes[:i])
            own[i, :size, start : start + size] = np.eye(size)
        return Layout(angle, slide, axis, own[:-1], own[list(self.parents)])


def bodies(model: FlexibleTree) -> Bodies:
    """The stacked parameters of a model."""
    tree = model.tree
    first, outer = moments(tree)
    sizes = [0] * len(tree.names)
    for i, link in zip(model.elastic, model.links, strict=True):
        sizes[i] = link.k
    width = max(sizes)
    link_of: list[ElasticLink | None] = [None] * len(tree.names)
    for i, link in zip(model.elastic, model.links, strict=True):
        link_of[i] = link

    def stacked(parts: list, shape: tuple[int, ...]) -> Array:
        padded = []
        for part in parts:
            if part is None:
                padded.append(jnp.zeros(shape))
                continue
            gaps = [(0, full - size) for full, size in zip(shape, part.shape, strict=True)]
            padded.append(jnp.pad(part, gaps) if any(g for _, g in gaps) else part)
        return jnp.stack(padded)

    def of_links(part, *shape: int) -> Array:
        return stacked([None if link is None else part(link) for link in link_of], shape)

    def quadratic(link: ElasticLink) -> Array:
        extra = link.stiffening
        head = jnp.zeros((3, link.k, link.k)) if extra is None else extra.first
        return jnp.concatenate([head, link.products.reshape(9, link.k, link.k)])

    centre, face, face_second = [], [], []
    for parent, carrier in zip(tree.parents, model.carriers, strict=True):
        if carrier < 0:
            centre.append(None)
            face.append(None)
            face_second.append(None)
            continue
        link = link_of[parent]
        linear, second = link.face(carrier)
        centre.append(link.interface.centre[carrier])
        face.append(linear)
        face_second.append(second)
    stiffened = any(part is not None for part in face_second)
    return Bodies(
        rotation=tree.rotation,
        translation=tree.translation,
        gravity=tree.gravity,
        moments=jnp.concatenate([tree.mass[:, None], first, outer.reshape(-1, 9)], axis=1),
        linear=of_links(
            lambda x: jnp.concatenate([x.shape_first, x.shape_second.reshape(9, x.k)]), 12, width
        ),
        quadratic=of_links(quadratic, 12, width, width),
        modal_mass=of_links(lambda x: x.modal_mass, width, width),
        stiffness=of_links(lambda x: x.stiffness, width, width),
        damping=of_links(lambda x: x.damping, width, width),
        centre=stacked(centre, (3,)),
        face=stacked(face, (6, width)),
        face_second=stacked(face_second, (6, width, width)) if stiffened else None,
        parents=tree.parents,
        joint_types=tree.joint_types,
        sizes=tuple(sizes),
    )


class FaceMotion(NamedTuple):
    """Position and rotation of a face, and its velocities (..., 3, k) per rate."""

    displacement: Float[Array, "*b 3"]
    rotation: Float[Array, "*b 3 3"]
    velocity: Float[Array, "*b 3 k"]
    angular_velocity: Float[Array, "*b 3 k"]


def face_motion(
    linear: Float[Array, "*b 6 k"],
    second: Float[Array, "*b 6 k k"] | None,
    eta: Float[Array, "*b k"],
) -> FaceMotion:
    """Motion of a face from its average translation and rotation vector per coordinate.

    Half the rotation vector serves as Rodrigues parameters: the rotation is rational and equal to
    the exponential to second order. The angular velocity is exactly that of this rotation.
    """
    value = jnp.einsum("...xi,...i->...x", linear, eta)
    if second is not None:
        more = jnp.einsum("...xij,...j->...xi", second, eta)
        value = value + 0.5 * jnp.einsum("...xi,...i->...x", more, eta)
        linear = linear + more
    c = 0.5 * value[..., 3:]
    cross = crossing(c)
    factor = (2 / (1 + jnp.sum(c * c, axis=-1)))[..., None, None]
    rotation = linear[..., 3:, :]
    return FaceMotion(
        value[..., :3],
        jnp.asarray(np.broadcast_to(np.eye(3), cross.shape)) + factor * (cross + cross @ cross),
        linear[..., :3, :],
        0.5 * factor * (rotation + cross @ rotation),
    )


class Geometry(NamedTuple):
    """Poses of the bodies in their parents, and the maps of their velocities.

    Rotation `turn` (bodies, 3, 3) and translation `offset` (bodies, 3) [m]; V = transport (V_parent
    + flow η'_parent) + axis q', with `transport` (bodies, 6, 6) and `flow` (bodies, 6, width).
    """

    turn: Float[Array, "bodies 3 3"]
    offset: Float[Array, "bodies 3"]
    transport: Float[Array, "bodies 6 6"]
    flow: Float[Array, "bodies 6 width"]


def geometry(b: Bodies, q: Float[Array, " n"], eta: Float[Array, " k"]) -> Geometry:
    """`Geometry` at given coordinates."""
    layout = b.layout
    angle = jnp.asarray(layout.angle) @ q
    one = jnp.ones_like(angle)
    local = jnp.stack([one, jnp.cos(angle), jnp.sin(angle)], axis=1)
    joint = b.rotation @ jnp.tensordot(local, jnp.asarray(_ROTATION_Z), 1)
    arm = b.translation + b.rotation[:, :, 2] * (jnp.asarray(layout.slide) @ q)[:, None] - b.centre
    face = face_motion(b.face, b.face_second, jnp.asarray(layout.carrier) @ eta)
    rotation = face.rotation @ joint
    point = b.centre + face.displacement
    offset = point + jnp.einsum("bij,bj->bi", face.rotation, arm)
    back = rotation.swapaxes(1, 2)
    moved = -back @ crossing(offset)
    transport = jnp.concatenate(
        [
            jnp.concatenate([back, jnp.zeros_like(back)], axis=2),
            jnp.concatenate([moved, back], axis=2),
        ],
        axis=1,
    )
    drift = face.velocity + crossing(point) @ face.angular_velocity
    flow = jnp.concatenate([face.angular_velocity, drift], axis=1)
    return Geometry(rotation, offset, transport, flow)


def velocities(
    b: Bodies, poses: Geometry, rates: Float[Array, "z c"], base: Float[Array, "3 c"]
) -> Float[Array, "bodies 6 c"]:
    """Velocities of all bodies for columns of rates, `base` being the velocity of the base."""
    layout = b.layout
    carried = jnp.tensordot(jnp.asarray(layout.carrier), rates[b.n :], 1)
    added = poses.transport @ (poses.flow @ carried)
    added = added + jnp.tensordot(jnp.asarray(layout.axis), rates[: b.n], 1)
    start = jnp.concatenate([jnp.zeros_like(base), base])
    out: list[Array] = []
    for i, parent in enumerate(b.parents):
        below = start if parent < 0 else out[parent]
        out.append(poses.transport[i] @ below + added[i])
    return jnp.stack(out)


def spread(b: Bodies, values: Float[Array, " k *c"]) -> Float[Array, "bodies width *c"]:
    """Elastic coordinates as a padded table, a row per body."""
    return jnp.tensordot(jnp.asarray(b.layout.own), values, 1)


def collect(b: Bodies, values: Float[Array, "bodies width"]) -> Float[Array, " k"]:
    """Elastic coordinates as one vector."""
    return jnp.tensordot(values, jnp.asarray(b.layout.own), 2)


def deformed_moments(
    b: Bodies, eta: Float[Array, "bodies width"]
) -> tuple[Float[Array, "bodies 13"], Float[Array, "bodies 12 width"]]:
    """Moments of the deformed bodies, and ∫ρ∂r/∂η and ∫ρ(∂r/∂η)rᵀ."""
    change = jnp.einsum("bmij,bj->bmi", b.quadratic, eta)
    moved = jnp.einsum("bmi,bi->bm", b.linear + 0.5 * change, eta)
    return b.moments + moved @ jnp.asarray(_SYMMETRIC.T), b.linear + change


def inertias(b: Bodies, eta: Float[Array, "bodies width"]) -> Float[Array, "bodies speeds speeds"]:
    """Mass matrices of the deformed bodies, for velocities and elastic rates."""
    moment, slope = deformed_moments(b, eta)
    rigid = jnp.tensordot(moment, jnp.asarray(_INERTIA), 1)
    coupling = jnp.asarray(_COUPLING) @ slope
    upper = jnp.concatenate([rigid, coupling], axis=2)
    lower = jnp.concatenate([coupling.swapaxes(1, 2), b.modal_mass], axis=2)
    return jnp.concatenate([upper, lower], axis=1)


def frame_forces(
    velocity: Float[Array, "bodies 6"], momentum: Float[Array, "bodies 6"]
) -> Float[Array, "bodies 6"]:
    """Rate of a momentum due to the motion of its frame: w x h + v x p, w x p."""
    return jnp.einsum("xyz,by,bz->bx", _FORCE, velocity, momentum)
