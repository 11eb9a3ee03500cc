"""Positions of bodies, faces and particles."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.checks import check_shape
from jaxgrip.flexible._bodies import bodies, face_motion, geometry
from jaxgrip.flexible._dynamics import check_state
from jaxgrip.flexible._tree import FlexibleTree
from jaxgrip.rigid import Poses


@jax.jit
def forward_kinematics(
    model: FlexibleTree, q: Float[Array, " n"], eta: Float[Array, " k"]
) -> Poses:
    """Pose of the frame of every body in the base frame.

    **Arguments:** `model`; `q` (n,) joint coordinates [rad or m]; `eta` (k,) elastic ones.

    **Returns:** `Poses`, rotation (bodies, 3, 3) and translation (bodies, 3) [m].

    **Raises:** `ValueError` for a wrong shape.
    """
    check_state(model, q=q, eta=eta)
    rotation: list[Array] = []
    translation: list[Array] = []
    relative = geometry(bodies(model), q, eta)
    for i, parent in enumerate(model.tree.parents):
        own, offset = relative.turn[i], relative.offset[i]
        if parent >= 0:
            offset = translation[parent] + rotation[parent] @ offset
            own = rotation[parent] @ own
        rotation.append(own)
        translation.append(offset)
    return Poses(jnp.stack(rotation), jnp.stack(translation))


def tip_position(
    model: FlexibleTree,
    q: Float[Array, " n"],
    eta: Float[Array, " k"],
    body: str,
    face: str | None = None,
    point: Float[Array, "3"] | None = None,
) -> Float[Array, "3"]:
    """Position in the base frame of a point that moves with a face of an elastic link.

    **Arguments:**

    - `model`; `q` (n,) joint coordinates [rad or m]; `eta` (k,) elastic ones.
    - `body`: its name; `face`: may be omitted if the link has one interface.
    - `point` (3,): in the frame of the undeformed link [m]; the centre of the face when not given.

    **Returns:** (3,) [m].

    **Raises:** `ValueError` for an unknown body or face, an omitted face where there are several,
    and a wrong shape.
    """
    link, part = model.link(body)
    faces = link.interface
    if face is None and len(faces.names) > 1:
        raise ValueError(f"Link {body!r} has the faces {', '.join(faces.names)}; name one.")
    f = faces.index(faces.names[0] if face is None else face)
    pose = forward_kinematics(model, q, eta)
    motion = face_motion(*link.face(f), eta[part])
    position = faces.centre[f] + motion.displacement
    if point is not None:
        check_shape("point", point, (3,))
        position = position + motion.rotation @ (point - faces.centre[f])
    i = model.tree.body(body)
    return pose.rotation[i] @ position + pose.translation[i]


def displacement(
    model: FlexibleTree, eta: Float[Array, " k"], body: str, shapes: Float[Array, "shapes n d"]
) -> Float[Array, "n d"]:
    """Nodal displacements (n, d) of an elastic link in its frame [m], for stresses and pictures.

    **Arguments:** `model`; `eta` (k,) of all links; `body`, its name; `shapes` (shapes, n, d) that
    the link was made with.

    **Raises:** `ValueError` when the body is not elastic or has another number of shapes.

    Source: own derivation: u = Φ η.
    """
    check_state(model, eta=eta)
    link, part = model.link(body)
    check_shape("shapes", shapes, (link.k, *shapes.shape[1:]))
    return jnp.tensordot(eta[part], shapes, 1)
