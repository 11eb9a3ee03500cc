"""Derivatives of inverse dynamics by recursions, instead of many tangents.

Spatial vectors are pairs of an angular and a linear part in base axes: (w, v) the angular velocity
and the velocity of the point at the base's origin, (moment about that origin, force).

Source: Singh 2022, after Carpentier 2018. Their matrices 2 B are here
those of x -> (2 sum m r x (w x u), 2 sum m w x u) for x = (w, v), with the positions r and the
velocities u of a body's particles, so that only sums over m u r^T and m u are needed.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
from jaxtyping import Array

from jaxgrip.rigid._kernels import Group, Model, State
from jaxgrip.rigid._mass_matrix import Pose, masses, poses, related
from jaxgrip.rigid._newton_euler import upward
from jaxgrip.rigid._recursion import Body, Joint, Limb, each, inward, outward, spread
from jaxgrip.rigid._sparse_factor import factor, solve
from jaxgrip.solve.fusion import in_one_kernel
from jaxgrip.spatial.components import (
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
    steiner,
    sub,
    symvec,
    transpose,
    vadd,
    vsub,
)

Spatial = tuple[Vector, Vector]


class Motion(NamedTuple):
    """Velocity and acceleration of a body, and the axis of its joint.

    `rate` is velocity x axis, the velocity that of the parent.
    """

    velocity: Spatial
    acceleration: Spatial
    axis: Spatial = (ZERO, ZERO)
    rate: Spatial = (ZERO, ZERO)


class Sums(NamedTuple):
    """Sums over a body's particles, or those of all it carries.

    Mass, m r, inertia, m u r^T, m u, and the load of the motion.
    """

    mass: Scalar
    moment: Vector
    inertia: Symmetric
    flow: Matrix
    momentum: Vector
    load: Spatial


class Response(NamedTuple):
    """What a joint's motion does to the joints before it, and theirs to it.

    `unit` is the load of all that the joint carries for a unit of its acceleration, `flow` 2 B
    rate, and `drag` gives the torque of the joint for unit angular velocities.
    """

    unit: Spatial
    flow: Spatial
    drag: Vector


class Stage(NamedTuple):
    """A limb's joint axes, their rates, and sums over all they carry without acceleration."""

    axis: tuple[Spatial, ...]
    rate: tuple[Spatial, ...]
    total: tuple[Sums, ...]
    torque: tuple[Scalar, ...]
    armature: tuple[Scalar, ...]


class Solved(NamedTuple):
    """Accelerations, lower triangle of M^-1, derivatives by rates, and `Response` of the joints."""

    qdd: tuple[Scalar, ...]
    inverse: tuple[Scalar, ...]
    by_qd: tuple[Scalar, ...]
    response: tuple[Response, ...]


def jacobians(group: Group) -> Sequence[Sequence[Array]]:
    """Derivatives (3 n n) of the accelerations of limbs by q, qd and tau, row by row.

    The rates of the states are qd, tau, and derivatives by q and qd of what springs, damping and
    friction take.
    """
    limb = group.limb
    stage = group.of_model(_stage)

    def rest(numbers: Array, state: State, stage: Stage) -> list[Array]:
        rates, _, *held = state.rates
        none = numbers[:0]
        solved = in_one_kernel(lambda _, x: _solved(limb, x), none, stage)
        by_q = in_one_kernel(
            lambda gravity, x: _by_coordinates(limb, gravity, *x),
            group.gravity(numbers),
            (stage, solved.qdd, solved.response, rates),
        )
        return in_one_kernel(
            lambda _, x: _products(limb, *x), none, (solved.inverse, held, (by_q, solved.by_qd))
        )

    return group.each(rest, stage)


_SPATIAL = (ZERO, ZERO)
NO_SUMS = Sums(0.0, ZERO, (0.0,) * 6, (ZERO, ZERO, ZERO), ZERO, _SPATIAL)


def _stage(model: Model) -> Stage:
    """`third` of the model are torques."""
    limb, body, joint = model.limb, model.body, model.joint
    pose = poses(limb, body, joint)
    start = Motion((ZERO, ZERO), (ZERO, upward(model.gravity)))
    motion = outward(limb, _moved, start, pose, joint, spread(limb, model.rate))
    own = each(limb, sums_of, body, pose, motion)
    return Stage(
        tuple(x.axis for x in motion),
        tuple(x.rate for x in motion),
        inward(limb, _collected, NO_SUMS, own),
        model.third,
        model.armature,
    )


def _moved(parent: Motion, pose: Pose, joint: Joint, rate: Scalar) -> Motion:
    z = pose.axis
    arm = scale(joint.turns, cross(pose.position, z))
    axis = scale(joint.turns, z), vadd(arm, scale(joint.slides, z))
    turned = motion_cross(parent.velocity, axis)
    return Motion(
        plus(parent.velocity, times(rate, axis)),
        plus(parent.acceleration, times(rate, turned)),
        axis,
        turned,
    )


def sums_of(body: Body, pose: Pose, motion: Motion) -> Sums:
    """Sums over the particles of a moving body, in base axes."""
    arm, central = masses(body, pose)
    r = vadd(pose.position, arm)
    (w, v), (wd, vd) = motion.velocity, motion.acceleration
    m, moment = body.mass, scale(body.mass, r)
    inertia = sadd(central, steiner(m, r))
    xx, xy, xz, yy, yz, zz = inertia
    half = mul(0.5, add(add(xx, yy), zz))
    squares = full((sub(half, xx), neg(xy), neg(xz), sub(half, yy), neg(yz), sub(half, zz)))
    momentum = vadd(scale(m, v), cross(w, moment))
    spin = vadd(symvec(inertia, w), cross(moment, v))
    force = vadd(vadd(scale(m, vd), cross(wd, moment)), cross(w, momentum))
    torque = vadd(vadd(symvec(inertia, wd), cross(moment, vd)), cross(w, spin))
    return Sums(
        m,
        moment,
        inertia,
        madd(outer(v, moment), matmul(cross_matrix(w), squares)),
        momentum,
        (vadd(torque, cross(v, momentum)), force),
    )


def _collected(children: Sums, own: Sums) -> tuple[Sums, Sums]:
    total = jax.tree.map(add, children, own)
    return total, total


def _solved(limb: Limb, stage: Stage) -> Solved:
    n, ahead = limb.n, related(limb)
    total = stage.total
    response = each(limb, response_of, total, stage.axis, stage.rate)
    joint = [(stage.axis[i], stage.rate[i], total[i], response[i]) for i in limb.moving]
    m: list[list[Scalar]] = [[0.0] * n for _ in range(n)]
    for i, j in ahead:
        m[i][j] = m[j][i] = _work(joint[i][3].unit, joint[j][0])
    for k, extra in enumerate(stage.armature):
        m[k][k] = add(m[k][k], extra)
    bias = [_work(axis, whole.load) for axis, _, whole, _ in joint]
    factored = factor(m, 1.0)
    qdd = solve(factored, [sub(t, h) for t, h in zip(stage.torque, bias, strict=True)], 1.0)
    inverse: list[Scalar] = []
    for k in range(n):
        inverse += solve(factored, [float(i == k) for i in range(n)], 1.0)[: k + 1]
    by_qd = []
    for i, j in ahead:
        axis, rate, _, _ = joint[j]
        mine = joint[i][3]
        by_qd.append(add(dot(mine.drag, axis[0]), mul(2.0, _work(mine.unit, rate))))
    loads = [
        plus(flow_load(whole, axis), times(2.0, inertia_load(whole, rate)))
        for axis, rate, whole, _ in joint
    ]
    by_qd += [_work(loads[i], joint[j][0]) for i, j in ahead if i != j]
    kept = tuple(x[3] for x in joint)
    return Solved(tuple(qdd), tuple(inverse), tuple(by_qd), kept)


def response_of(total: Sums, axis: Spatial, rate: Spatial) -> Response:
    """Loads of all that a joint carries, for its axis and the rate of that."""
    w, v = axis
    # The transpose of 2 B, whose columns of linear velocities are zero.
    drag = vsub(scale(_trace(total), w), matvec(transpose(total.flow), w))
    return Response(
        inertia_load(total, axis),
        flow_load(total, rate),
        scale(2.0, vadd(drag, cross(total.momentum, v))),
    )


def _by_coordinates(
    limb: Limb, gravity: Vector, stage: Stage, qdd: tuple, response: tuple, rates: tuple
) -> list[Scalar]:
    """Derivatives of the torques by coordinates."""
    ahead = related(limb)
    start = Motion((ZERO, ZERO), (ZERO, upward(gravity))), (ZERO, ZERO)
    qd, qdd = spread(limb, rates), spread(limb, qdd)

    def move(parent: tuple, axis: Spatial, turned: Spatial, rate: Scalar, accel: Scalar) -> tuple:
        motion, extra = parent
        own = times(accel, axis)
        acceleration = plus(motion.acceleration, plus(own, times(rate, turned)))
        curve = plus(motion_cross(motion.acceleration, axis), motion_cross(motion.velocity, turned))
        velocity = plus(motion.velocity, times(rate, axis))
        return Motion(velocity, acceleration, axis, curve), plus(extra, own)

    moved = outward(limb, move, start, stage.axis, stage.rate, qd, qdd)

    unit = spread(limb, tuple(x.unit for x in response), _SPATIAL)

    def load(beyond: Spatial, total: Sums, moved: tuple, unit: Spatial, accel: Scalar) -> tuple:
        # All that the joint carries accelerates as its body does, and beyond each joint by more.
        extra = plus(beyond, inertia_load(total, moved[1]))
        return plus(beyond, times(accel, unit)), plus(total.load, extra)

    loads = inward(limb, load, _SPATIAL, stage.total, moved, unit, qdd)
    joint = [(*moved[i][0][2:], stage.rate[i], loads[i], stage.total[i]) for i in limb.moving]
    turn = []
    for ((w, v), curve, _, (moment, force), whole), mine in zip(joint, response, strict=True):
        axial = vadd(cross(w, moment), cross(v, force)), cross(w, force)
        turn.append(plus(plus(mine.flow, inertia_load(whole, curve)), axial))
    by_q = []
    for i, j in ahead:
        _, curve, rate, _, _ = joint[j]
        mine = response[i]
        by_q.append(add(dot(mine.drag, rate[0]), _work(mine.unit, curve)))
    return by_q + [_work(turn[i], joint[j][0]) for i, j in ahead if i != j]


def _products(limb: Limb, inverse: tuple, held: Sequence, change: Sequence) -> list[Scalar]:
    """The Jacobians from those of the torques; `held` by coordinate and by rate."""
    n = limb.n
    whole = [[inverse[_row(max(i, k)) + min(i, k)] for k in range(n)] for i in range(n)]
    out = []
    for diagonal, values in zip(held, change, strict=True):
        by = dict(zip(_pairs(limb), values, strict=True))
        for k, extra in enumerate(diagonal):
            by[k, k] = add(by[k, k], extra)
        for i in range(n):
            for j in range(n):
                total: Scalar = 0.0
                for k in range(n):
                    if (k, j) in by:
                        total = sub(total, mul(whole[i][k], by[k, j]))
                out.append(total)
    return out + [entry for row in whole for entry in row]


def _row(k: int) -> int:
    return k * (k + 1) // 2


def _pairs(limb: Limb) -> list[tuple[int, int]]:
    """Pairs of coordinates of joints on one chain, in the order of the derivatives."""
    ahead = related(limb)
    return ahead + [(j, i) for i, j in ahead if i != j]


def _trace(total: Sums) -> Scalar:
    return add(add(total.flow[0][0], total.flow[1][1]), total.flow[2][2])


def inertia_load(total: Sums, x: Spatial) -> Spatial:
    """Moment about the origin and force that give the acceleration `x`."""
    w, v = x
    return (
        vadd(symvec(total.inertia, w), cross(total.moment, v)),
        vadd(scale(total.mass, v), cross(w, total.moment)),
    )


def flow_load(total: Sums, x: Spatial) -> Spatial:
    """The load 2 B x, with the matrix B of the velocities (see `Response`)."""
    w, _ = x
    moment = vsub(scale(_trace(total), w), matvec(total.flow, w))
    return scale(2.0, moment), scale(2.0, cross(w, total.momentum))


def motion_cross(a: Spatial, b: Spatial) -> Spatial:
    """Rate of the motion `b` when it is fixed to what moves with `a`."""
    return cross(a[0], b[0]), vadd(cross(a[0], b[1]), cross(a[1], b[0]))


def _work(a: Spatial, b: Spatial) -> Scalar:
    return add(dot(a[0], b[0]), dot(a[1], b[1]))


def plus(a: Spatial, b: Spatial) -> Spatial:
    """Sum of two motions or loads."""
    return vadd(a[0], b[0]), vadd(a[1], b[1])


def times(k: Scalar, a: Spatial) -> Spatial:
    """Multiple of a motion or load."""
    return scale(k, a[0]), scale(k, a[1])
