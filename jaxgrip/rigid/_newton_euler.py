"""Inverse dynamics by the recursive Newton-Euler method."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxgrip.checks import real
from jaxgrip.rigid._coordinates import chart, checked, given, precision, unturned
from jaxgrip.rigid._kernels import (
    Model,
    Pieces,
    Tile,
    by_tile,
    fits,
    stacked,
)
from jaxgrip.rigid._passive import added
from jaxgrip.rigid._recursion import (
    Body,
    Joint,
    PerBody,
    bodies,
    coordinates,
    each,
    gather,
    inward,
    inward_over,
    joints,
    limbs,
    outward,
    unrolled,
)
from jaxgrip.rigid._tree import Tree
from jaxgrip.solve.fusion import over_states
from jaxgrip.spatial.components import (
    ZERO,
    Matrix,
    Scalar,
    Vector,
    add,
    cross,
    matvec,
    mul,
    neg,
    scale,
    symvec,
    transpose,
    turn_z,
    unstack,
    vadd,
    vsub,
)


class BodyLoads(NamedTuple):
    """Motion and load of every body, all in body frames, all (bodies, 3).

    `w` angular velocity [rad/s], `wd` angular acceleration [rad/s^2], `vd` acceleration of the
    origin less gravity [m/s^2], `F` [N] and `N` [N m] force and moment which the parent exerts
    on the body at the body's origin.
    """

    w: Float[Array, "bodies 3"]
    wd: Float[Array, "bodies 3"]
    vd: Float[Array, "bodies 3"]
    F: Float[Array, "bodies 3"]
    N: Float[Array, "bodies 3"]


def placement(body: Body, joint: Joint) -> tuple[Matrix, Vector]:
    """Rotation and translation of the body frame in the parent frame."""
    axis = (body.rotation[0][2], body.rotation[1][2], body.rotation[2][2])
    return (
        turn_z(body.rotation, joint.cos, joint.sin),
        vadd(body.translation, scale(joint.shift, axis)),
    )


def _motion(parent: tuple, place: tuple, joint: Joint) -> tuple[Vector, Vector, Vector]:
    w0, wd0, vd0 = parent
    r, s = place
    back = transpose(r)
    moved = matvec(back, w0)
    x, y, z = moved
    w = (x, y, add(z, joint.turn_rate))
    a = matvec(back, wd0)
    wd = (
        add(a[0], mul(y, joint.turn_rate)),
        add(a[1], neg(mul(x, joint.turn_rate))),
        add(a[2], joint.turn_accel),
    )
    v = matvec(back, vadd(vadd(cross(wd0, s), cross(w0, cross(w0, s))), vd0))
    twice = mul(2.0, joint.slide_rate)
    vd = (
        add(v[0], mul(y, twice)),
        add(v[1], neg(mul(x, twice))),
        add(v[2], joint.slide_accel),
    )
    return w, wd, vd


def _inertial_load(body: Body, motion: tuple, wrench: tuple) -> tuple[Vector, Vector]:
    w, wd, vd = motion
    c = body.com
    force = scale(body.mass, vadd(vadd(cross(wd, c), cross(w, cross(w, c))), vd))
    moment = vadd(symvec(body.inertia, wd), cross(w, symvec(body.inertia, w)))
    return vsub(force, wrench[0]), vsub(vadd(moment, cross(c, force)), wrench[1])


def _load(children: tuple, place: tuple, load: tuple) -> tuple[tuple, tuple]:
    force, moment = vadd(children[0], load[0]), vadd(children[1], load[1])
    r, s = place
    f = matvec(r, force)
    return (f, vadd(matvec(r, moment), cross(s, f))), (force, moment)


def base_motion(tree: Tree) -> tuple[Vector, Vector, Vector]:
    """Motion of the base; an upward acceleration stands for gravity."""
    return ZERO, ZERO, upward(unstack(tree.gravity))


def upward(gravity: Vector) -> Vector:
    """Acceleration of the base that stands for gravity."""
    return tuple(neg(g) for g in gravity)


def _newton_euler(tree: Tree, joint: PerBody, external: Array | None) -> tuple[PerBody, PerBody]:
    body = bodies(tree)
    place = each(tree, placement, body, joint)
    motion = outward(tree, _motion, base_motion(tree), place, joint)
    load = each(tree, _inertial_load, body, motion, _wrenches(tree, external))
    return motion, inward(tree, _load, (ZERO, ZERO), place, load)


def _torques(tree: Tree, joint: PerBody, external: Array | None = None) -> Float[Array, " n"]:
    _, load = _newton_euler(tree, joint, external)
    return coordinates(tree, each(tree, _axial, load, joint))


def _piece_motion(model: Model, carrier: tuple | None, _: None) -> tuple[PerBody, None]:
    limb, body, joint = model.limb, model.body, model.joint
    place = each(limb, placement, body, joint)
    start = (ZERO, ZERO, upward(model.gravity)) if carrier is None else carrier
    return outward(limb, _motion, start, place, joint), None


def _piece_torques(model: Model, carrier: tuple | None, sent: dict) -> tuple[tuple, list[Scalar]]:
    limb, body, joint = model.limb, model.body, model.joint
    place = each(limb, placement, body, joint)
    motion, _ = _piece_motion(model, carrier, None)
    load = each(limb, lambda b, m: _inertial_load(b, m, (ZERO, ZERO)), body, motion)
    passed, load = inward_over(limb, _load, (ZERO, ZERO), sent, place, load)
    axial = each(limb, _axial, load, joint)
    return passed, [axial[i] for i in limb.moving]


# More bodies have too many operations for a kernel.
_MOST = 12


def _tile_torques(tile: Tile) -> Float[Array, "n states"]:
    parts = Pieces(tile, limbs(tile.tree), _MOST)
    parts.outward(_piece_motion)
    torques = parts.by_coordinate(parts.inward(_piece_torques))
    return stacked([torques[k] for k in range(tile.tree.n)], tile.q)


def _ordinary(tree: Tree, q: Array, *rates: Array) -> Float[Array, " n"]:
    tree, q = chart(tree, q)
    return _torques(tree, joints(tree, q, *rates))


def _at_many(tree: Tree, *states: Array) -> Float[Array, "batch n"]:
    return by_tile(tree, _tile_torques, (tree.n,), *states)


_in_kernels = over_states(_ordinary, _at_many)


def ideal_torques(
    tree: Tree, q: Float[Array, " nq"], *rates: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Torques of joints without springs and losses, at rates and accelerations in the chart."""
    return (_in_kernels if fits(tree) else _ordinary)(tree, q, *rates)


def _axial(load: tuple, joint: Joint) -> Scalar:
    return add(mul(joint.turns, load[1][2]), mul(joint.slides, load[0][2]))


def _wrenches(tree: Tree, external: Array | None) -> PerBody:
    nb = len(tree.parents)
    if external is None:
        return ((ZERO, ZERO),) * nb if unrolled(tree) else (ZERO, ZERO)
    external = real("external", external, precision(tree), (nb, 6))
    if not unrolled(tree):
        k = unstack(external.T)
        return k[:3], k[3:]
    k = unstack(external.reshape(-1))
    return tuple((k[6 * i : 6 * i + 3], k[6 * i + 3 : 6 * i + 6]) for i in range(nb))


@jax.jit
def rnea(
    tree: Tree,
    q: Float[Array, " nq"],
    qd: Float[Array, " n"],
    qdd: Float[Array, " n"],
    external: Float[Array, "bodies 6"] | None = None,
) -> Float[Array, " n"]:
    """Inverse dynamics: joint torques that cause the accelerations.

    **Arguments:**

    - `tree`: the model.
    - `q`: (nq,) joint coordinates [rad or m], `qd`, `qdd`: (n,) rates [per s] and accelerations
      [per s^2].
    - `external`: (bodies, 6) wrenches which the surroundings exert on the bodies, force [N]
      first, then moment [N m] about the body's origin, in body frames; `point_load` makes one.

    **Returns:** (n,) torques of revolute and forces of prismatic joints [N m or N]; with passive
    numbers of the joints those of their drives.

    **Raises:** `ValueError` for another shape.

    Source: Schanzer 2007, section 2.6, pp. 18-20.
    """
    core, at, qd, qdd = given(tree, q=q, qd=qd, qdd=qdd)
    if external is None:
        torque = ideal_torques(tree, checked(tree, q=q)["q"], qd, qdd)
    else:
        torque = _torques(core, joints(core, at, qd, qdd), external)
    return added(core, torque, at, qd, unturned(tree, qd, qdd))


@jax.jit
def rnea_bodies(
    tree: Tree,
    q: Float[Array, " nq"],
    qd: Float[Array, " n"],
    qdd: Float[Array, " n"],
    external: Float[Array, "bodies 6"] | None = None,
) -> BodyLoads:
    """Inverse dynamics: motion of every body and the load its joint transmits.

    The load includes what springs, damping, friction and the drive of the joint exert.

    **Arguments:** as for `rnea`.

    **Returns:** `BodyLoads` with w, wd, vd, F and N, each (bodies, 3), in body frames.

    **Raises:** `ValueError` for another shape.

    Source: Schanzer 2007, section 2.6, pp. 18-20.
    """
    tree, q, qd, qdd = given(tree, q=q, qd=qd, qdd=qdd)
    motion, load = _newton_euler(tree, joints(tree, q, qd, qdd), external)
    table = jnp.concatenate([gather(tree, motion), gather(tree, load)], axis=1)
    return BodyLoads(*(table[:, 3 * k : 3 * k + 3] for k in range(5)))


@jax.jit
def bias_forces(tree: Tree, q: Float[Array, " nq"], qd: Float[Array, " n"]) -> Float[Array, " n"]:
    """Torques h of M qdd + h = tau: Coriolis, centrifugal, gravity, and passive ones of joints.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m]; `qd`: (n,) rates [per s].

    **Returns:** (n,) [N m or N].

    **Raises:** `ValueError` for another shape.

    Source: Schanzer 2007, section 2.6, pp. 18-20, h = RNEA(q, qd, 0).
    """
    if tree.balls:
        return rnea(tree, q, qd, jnp.zeros(tree.n, precision(tree)))
    core, at, qd = given(tree, q=q, qd=qd)
    return added(core, ideal_torques(core, at, qd), at, qd)


@jax.jit
def gravity_forces(tree: Tree, q: Float[Array, " nq"]) -> Float[Array, " n"]:
    """Torques that balance gravity at rest: its compensation, added to those of a controller.

    They are the gradient of the potential energy without springs.

    **Arguments:** `tree`; `q`: (nq,) joint coordinates [rad or m].

    **Returns:** (n,) [N m or N].

    **Raises:** `ValueError` for another shape.

    Source: Beiblatt 9, eq. 16.
    """
    return ideal_torques(tree, checked(tree, q=q)["q"])


def point_load(
    tree: Tree,
    body: str,
    force: Float[Array, "3"],
    moment: Float[Array, "3"] | None = None,
    point: Float[Array, "3"] | None = None,
) -> Float[Array, "bodies 6"]:
    """External wrenches of one load on one body, for instance at the end effector.

    **Arguments:**

    - `tree`, `body`: the model and the name of the loaded body.
    - `force`: (3,) exerted on the body, body frame [N].
    - `moment`: (3,) exerted on the body, body frame [N m]; zero when None.
    - `point`: (3,) where the force acts, body frame [m]; the body's origin when None.

    **Returns:** (bodies, 6), for `rnea` and its relatives.

    **Raises:** `ValueError` when there is no such body or a vector has another shape.

    Source: Schanzer 2007, remark 2.2, pp. 18-20.
    """
    dtype = precision(tree)
    force = real("force", force, dtype, (3,))
    total = jnp.zeros_like(force) if moment is None else real("moment", moment, dtype, (3,))
    if point is not None:
        total = total + jnp.cross(real("point", point, dtype, (3,)), force)
    wrench = jnp.concatenate([force, total])
    return jnp.zeros((len(tree.parents), 6), force.dtype).at[tree.body(body)].set(wrench)
