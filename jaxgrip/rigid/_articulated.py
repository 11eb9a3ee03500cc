"""Forward dynamics by articulated bodies, linear in the number of bodies (Featherstone)."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
from jaxtyping import Array, Float

from jaxgrip.rigid._coordinates import given, unturned
from jaxgrip.rigid._kernels import Model, Pieces, Tile
from jaxgrip.rigid._mass_matrix import Pose, along, masses, poses
from jaxgrip.rigid._newton_euler import base_motion, upward
from jaxgrip.rigid._passive import armature_of, left
from jaxgrip.rigid._recursion import (
    Body,
    Joint,
    Limb,
    PerBody,
    bodies,
    coordinates,
    each,
    inward,
    inward_over,
    joints,
    one_of,
    outward,
    per_joint,
    spread,
)
from jaxgrip.rigid._tree import Tree
from jaxgrip.spatial.components import (
    IDENTITY,
    ZERO,
    Matrix,
    Scalar,
    Symmetric,
    Vector,
    add,
    cross,
    cross_matrix,
    dot,
    full,
    madd,
    matmul,
    matvec,
    mul,
    neg,
    outer,
    sadd,
    scale,
    scaled_square,
    ssub,
    steiner,
    sub,
    symmetric_part,
    symvec,
    transpose,
    vadd,
)


def bias_motion(parent: tuple, pose: Pose, joint: Joint) -> tuple[Vector, Vector, Vector]:
    """Angular velocity, its rate and acceleration of the origin at zero joint acceleration."""
    w0, wd0, vd0 = parent
    z, r = pose.axis, pose.offset
    spin = scale(joint.turn_rate, z)
    w = vadd(w0, spin)
    wd = vadd(wd0, cross(w0, spin))
    vd = vadd(vd0, vadd(cross(wd0, r), cross(w0, cross(w0, r))))
    return w, wd, vadd(vd, scale(mul(2.0, joint.slide_rate), cross(w0, z)))


def bias_load(body: Body, own: tuple, motion: tuple) -> tuple[Vector, Vector]:
    """Force and moment about the origin that a body needs for its motion, in base axes."""
    com, inertia = own
    w, wd, vd = motion
    force = scale(body.mass, vadd(vadd(cross(wd, com), cross(w, cross(w, com))), vd))
    moment = vadd(symvec(inertia, wd), cross(w, symvec(inertia, w)))
    return force, vadd(moment, cross(com, force))


class Articulated(NamedTuple):
    """Force and moment about the origin as affine functions of the origin's acceleration.

    moment = inertia wd + coupling vd + bias moment, force = coupling^T wd + mass vd + bias force.
    """

    inertia: Symmetric
    coupling: Matrix
    mass: Symmetric
    moment: Vector
    force: Vector


class Drive(NamedTuple):
    """One joint in the outward sweep: loads of unit acceleration, 1/D and the remainder."""

    moment: Vector
    force: Vector
    reciprocal: Scalar
    rest: Scalar


EMPTY = Articulated((0.0,) * 6, (ZERO, ZERO, ZERO), (0.0,) * 6, ZERO, ZERO)


def _rigid(body: Body, own: tuple, load: tuple) -> Articulated:
    com, inertia = own
    force, moment = load
    m = body.mass
    return Articulated(
        sadd(inertia, steiner(m, com)),
        cross_matrix(scale(m, com)),
        (m, 0.0, 0.0, m, 0.0, m),
        moment,
        force,
    )


def _absorb(
    has_screws: bool,
    children: Articulated,
    rigid: Articulated,
    pose: Pose,
    joint: Joint,
    tau: Scalar,
    armature: Scalar = 0.0,
) -> tuple[Articulated, Drive]:
    inertia, coupling, mass, moment, force = (
        sadd(children.inertia, rigid.inertia),
        madd(children.coupling, rigid.coupling),
        sadd(children.mass, rigid.mass),
        vadd(children.moment, rigid.moment),
        vadd(children.force, rigid.force),
    )
    z = pose.axis
    u_moment = vadd(
        scale(joint.turns, symvec(inertia, z)), scale(joint.slides, matvec(coupling, z))
    )
    u_force = vadd(
        scale(joint.turns, matvec(transpose(coupling), z)), scale(joint.slides, symvec(mass, z))
    )
    d = add(along(joint, z, u_force, u_moment), armature)
    if has_screws:
        still = mul(sub(1.0, joint.turns), sub(1.0, joint.slides))
    else:
        still = sub(1.0, add(joint.turns, joint.slides))
    reciprocal = 0.0 if _is_fixed(joint) else mul(sub(1.0, still), 1.0 / add(d, still))
    rest = sub(tau, along(joint, z, force, moment))
    gain = mul(rest, reciprocal)
    moment, force = vadd(moment, scale(gain, u_moment)), vadd(force, scale(gain, u_force))
    inertia = ssub(inertia, scaled_square(reciprocal, u_moment))
    mass = ssub(mass, scaled_square(reciprocal, u_force))
    coupling = madd(coupling, outer(scale(neg(reciprocal), u_moment), u_force))
    r = cross_matrix(pose.offset)
    shifted = madd(coupling, matmul(r, full(mass)))
    sent = Articulated(
        sadd(inertia, symmetric_part(matmul(r, transpose(madd(coupling, shifted))))),
        shifted,
        mass,
        vadd(moment, cross(pose.offset, force)),
        force,
    )
    return sent, Drive(u_moment, u_force, reciprocal, rest)


def _is_fixed(joint: Joint) -> bool:
    return type(joint.turns) is float and joint.turns == 0.0 and joint.slides == 0.0


def _accelerate(parent: tuple, drive: Drive, place: tuple, joint: Joint) -> tuple:
    wd, vd, _ = parent
    z, offset = place
    vd = vadd(vd, cross(wd, offset))
    pull = add(dot(drive.moment, wd), dot(drive.force, vd))
    qdd = mul(sub(drive.rest, pull), drive.reciprocal)
    return (
        vadd(wd, scale(mul(joint.turns, qdd), z)),
        vadd(vd, scale(mul(joint.slides, qdd), z)),
        qdd,
    )


def articulated(
    tree: Tree, q: Float[Array, " n"], qd: Float[Array, " n"], tau: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Accelerations in the chart under torques `tau` on joints without springs and losses."""
    body, joint = bodies(tree), joints(tree, q, qd)
    pose = poses(tree, body, joint, one_of(q))
    own = each(tree, masses, body, pose)
    motion = outward(tree, bias_motion, base_motion(tree), pose, joint)
    load = each(tree, bias_load, body, own, motion)
    rigid = each(tree, _rigid, body, own, load)
    armature = armature_of(tree)
    added = () if armature is None else (per_joint(tree, armature),)
    absorb = functools.partial(_absorb, tree.pitch is not None)
    drive = inward(tree, absorb, EMPTY, rigid, pose, joint, per_joint(tree, tau), *added)
    place = each(tree, _axis_and_offset, pose)
    rates = outward(tree, _accelerate, (ZERO, ZERO, 0.0), drive, place, joint)
    return coordinates(tree, each(tree, lambda m: m[2], rates))


# More bodies have too many operations for a kernel.
_MOST = 5


class Seen(NamedTuple):
    """Pose and motion of a body at zero joint acceleration."""

    rotation: Matrix
    motion: tuple[Vector, Vector, Vector]


def _seen(model: Model, carrier: Seen | None) -> tuple[PerBody, PerBody]:
    """Poses and motions of the bodies of a piece."""
    start = Seen(IDENTITY, (ZERO, ZERO, upward(model.gravity))) if carrier is None else carrier
    pose = poses(model.limb, model.body, model.joint, rotation=start.rotation)
    return pose, outward(model.limb, bias_motion, start.motion, pose, model.joint)


def _piece_seen(model: Model, carrier: Seen | None, _: None) -> tuple[PerBody, None]:
    pose, motion = _seen(model, carrier)
    return tuple(Seen(p.rotation, m) for p, m in zip(pose, motion, strict=True)), None


def _piece_drives(
    model: Model, carrier: Seen | None, sent: dict
) -> tuple[Articulated, tuple[PerBody, PerBody]]:
    limb, body, joint = model.limb, model.body, model.joint
    pose, motion = _seen(model, carrier)
    own = each(limb, masses, body, pose)
    rigid = each(limb, _rigid, body, own, each(limb, bias_load, body, own, motion))
    absorb = functools.partial(_absorb, "screw" in limb.joint_types)
    extra = (spread(limb, x) for x in (model.third, model.armature))
    passed, drive = inward_over(limb, absorb, EMPTY, sent, rigid, pose, joint, *extra)
    return passed, (drive, each(limb, _axis_and_offset, pose))


def _axis_and_offset(pose: Pose) -> tuple[Vector, Vector]:
    return pose.axis, pose.offset


def _piece_rates(model: Model, carrier: tuple | None, own: tuple) -> tuple[PerBody, list[Scalar]]:
    start = (ZERO, ZERO, 0.0) if carrier is None else carrier
    rates = outward(model.limb, _accelerate, start, *own, model.joint)
    return rates, [rates[i][2] for i in model.limb.moving]


def articulated_by_piece(tile: Tile, some: Sequence[Limb]) -> dict[int, Array]:
    """As `articulated`, columns of some limbs by coordinate."""
    parts = Pieces(tile, some, _MOST)
    parts.outward(_piece_seen)
    return parts.by_coordinate(parts.outward(_piece_rates, parts.inward(_piece_drives)))


@jax.jit
def aba(
    tree: Tree, q: Float[Array, " nq"], qd: Float[Array, " n"], tau: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Joint accelerations by the articulated-body algorithm.

    As `forward_dynamics`, but without an implicit derivative, and for small trees too.

    **Arguments:**

    - `tree`: the model.
    - `q`: (nq,) joint coordinates [rad or m]; `qd`: (n,) rates [per s].
    - `tau`: (n,) joint torques or forces [N m or N].

    **Returns:** (n,) [rad/s^2 or m/s^2].

    **Raises:** `ValueError` for another shape.

    Source: Featherstone 2008, table 7.1, for the difference to the motion at zero joint
    acceleration.
    """
    whole = tree
    tree, q, qd, tau = given(tree, q=q, qd=qd, tau=tau)
    return unturned(whole, qd, articulated(tree, q, qd, left(tree, tau, q, qd)))
