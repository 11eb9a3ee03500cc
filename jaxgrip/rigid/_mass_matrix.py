"""Joint-space mass matrix by composite rigid bodies."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.rigid._coordinates import given
from jaxgrip.rigid._newton_euler import placement
from jaxgrip.rigid._passive import armature_of
from jaxgrip.rigid._recursion import (
    Body,
    Joint,
    Limb,
    PerBody,
    bodies,
    each,
    inward,
    joints,
    one_of,
    outward,
    unrolled,
)
from jaxgrip.rigid._recursion import gather as gather_bodies
from jaxgrip.rigid._tree import Tree
from jaxgrip.solve.fusion import kept
from jaxgrip.spatial.components import (
    IDENTITY,
    ZERO,
    Matrix,
    Scalar,
    Symmetric,
    Vector,
    add,
    congruence,
    cross,
    dot,
    matmul,
    matvec,
    mul,
    parallel_axis,
    sadd,
    scale,
    stack,
    steiner,
    symvec,
    vadd,
)


class Pose(NamedTuple):
    """Placement of a body in the base frame, and of its origin seen from its parent's origin."""

    rotation: Matrix
    position: Vector
    offset: Vector

    @property
    def axis(self) -> Vector:
        """Joint axis in the base frame."""
        return tuple(row[2] for row in self.rotation)


class Mass(NamedTuple):
    """Mass, first moment and inertia of a body or composite about the body's origin, base axes."""

    mass: Scalar
    moment: Vector
    inertia: Symmetric


NO_MASS = Mass(0.0, ZERO, (0.0,) * 6)


def poses(
    tree: Tree | Limb,
    body: PerBody,
    joint: PerBody,
    one: Scalar = 1.0,
    rotation: Matrix = IDENTITY,
) -> PerBody:
    """`Pose` of every body, seen from a base with axes `rotation`.

    `one` from `one_of` has each computed once.
    """

    def step(parent: Pose, body: Body, joint: Joint) -> Pose:
        r, s = placement(body, joint)
        offset = matvec(parent.rotation, s)
        pose = Pose(matmul(parent.rotation, r), vadd(parent.position, offset), offset)
        return pose if type(one) is float else kept(pose, one)

    return outward(tree, step, Pose(rotation, ZERO, ZERO), body, joint)


def masses(body: Body, pose: Pose) -> tuple[Vector, Symmetric]:
    """Centre of mass seen from the origin and inertia about it, in base axes."""
    return matvec(pose.rotation, body.com), congruence(pose.rotation, body.inertia)


def composite(children: Mass, body: Body, pose: Pose, own: tuple) -> tuple[Mass, Mass]:
    """Add a body to the composites of its children and shift the sum to the parent's origin."""
    com, inertia = own
    total = Mass(
        add(children.mass, body.mass),
        vadd(children.moment, scale(body.mass, com)),
        sadd(children.inertia, sadd(inertia, steiner(body.mass, com))),
    )
    r = pose.offset
    lever = vadd(total.moment, scale(mul(0.5, total.mass), r))
    sent = Mass(
        total.mass,
        vadd(total.moment, scale(total.mass, r)),
        sadd(total.inertia, parallel_axis(lever, r)),
    )
    return sent, total


def unit_load(mass: Mass, pose: Pose, joint: Joint) -> tuple[Vector, Vector]:
    """Force and moment about the origin that give a composite unit joint acceleration."""
    z = pose.axis
    force = vadd(
        scale(joint.turns, cross(z, mass.moment)), scale(joint.slides, scale(mass.mass, z))
    )
    moment = vadd(
        scale(joint.turns, symvec(mass.inertia, z)), scale(joint.slides, cross(mass.moment, z))
    )
    return force, moment


def along(joint: Joint, axis: Vector, force: Vector, moment: Vector) -> Scalar:
    """Generalised force of a load on a joint: its moment about the axis or force along it."""
    return add(mul(joint.turns, dot(axis, moment)), mul(joint.slides, dot(axis, force)))


def ancestors(tree: Tree | Limb) -> list[list[int]]:
    """For each body itself and its ancestors, nearest first."""
    chains: list[list[int]] = []
    for i, parent in enumerate(tree.parents):
        chains.append([i, *(chains[parent] if parent >= 0 else [])])
    return chains


def related(tree: Tree | Limb) -> list[tuple[int, int]]:
    """Pairs (i, j) of coordinates of which j moves what i moves too; j = i is one of them."""
    row = {body: k for k, body in enumerate(tree.moving)}
    chains = ancestors(tree)
    return [(row[i], row[j]) for i in tree.moving for j in chains[i] if j in row]


def joint_masses(
    tree: Tree | Limb, pose: PerBody, load: PerBody, joint: PerBody
) -> list[list[Scalar]]:
    """Rows of the mass matrix of an unrolled tree; unrelated joints have the known zero."""
    row = {body: k for k, body in enumerate(tree.moving)}
    m: list[list[Scalar]] = [[0.0] * tree.n for _ in range(tree.n)]
    for j, chain in enumerate(ancestors(tree)):
        force, moment = load[j]
        at = j
        for i in chain:
            while at != i:
                moment = vadd(moment, cross(pose[at].offset, force))
                at = tree.parents[at]
            if i in row and j in row:
                entry = along(joint[i], pose[i].axis, force, moment)
                m[row[i]][row[j]] = m[row[j]][row[i]] = entry
    return m


def _dense_masses(tree: Tree, pose: Any, load: Any, joint: Joint) -> Float[Array, "n n"]:
    related = np.zeros((len(tree.parents),) * 2, dtype=bool)
    for j, chain in enumerate(ancestors(tree)):
        related[chain, j] = True
    axis = gather_bodies(tree, pose.axis)
    position = gather_bodies(tree, pose.position)
    force, moment = (gather_bodies(tree, x) for x in load)
    arm = position[None, :, :] - position[:, None, :]
    total = moment[None, :, :] + jnp.cross(arm, jnp.broadcast_to(force[None, :, :], arm.shape))
    turning = jnp.einsum("ik,ijk->ij", axis, total)
    sliding = axis @ force.T
    upper = joint.turns[:, None] * turning + joint.slides[:, None] * sliding
    upper = jnp.where(related, upper, jnp.zeros_like(upper))
    whole = jnp.where(related.T, upper.T, upper)
    moving = np.array(tree.moving, dtype=int)
    return whole[moving][:, moving]


@jax.jit
def crba(tree: Tree, q: Float[Array, " nq"]) -> Float[Array, "n n"]:
    """Mass matrix M of M qdd + h = tau, by composite rigid bodies.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m].

    **Returns:** (n, n), symmetric [kg m^2, kg m or kg].

    **Raises:** `ValueError` for another shape.

    Source: Schanzer 2007, section 2.7, pp. 20-23, with vectors in base axes and
    moments about the joints.
    """
    tree, q = given(tree, q=q)
    body, joint = bodies(tree), joints(tree, q)
    pose = poses(tree, body, joint, one_of(q))
    own = each(tree, masses, body, pose)
    total = inward(tree, composite, NO_MASS, body, pose, own)
    load = each(tree, unit_load, total, pose, joint)
    if not unrolled(tree):
        m = _dense_masses(tree, pose, load, joint)
    else:
        rows = joint_masses(tree, pose, load, joint)
        m = stack([entry for row in rows for entry in row], tree.mass).reshape(tree.n, tree.n)
    armature = armature_of(tree)
    return m if armature is None else m + jnp.diag(armature)
