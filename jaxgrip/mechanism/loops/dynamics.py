"""Forces and accelerations of mechanisms with closed loops, index 1."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip.checks import check_shape, concrete
from jaxgrip.joints import Frame, displaced, relative
from jaxgrip.mechanism.loops.closing import MechanismError
from jaxgrip.mechanism.loops.equations import (
    Equations,
    free,
    holding,
    inverse_at,
    moving,
    weighted_jacobian,
)
from jaxgrip.mechanism.loops.kinematics import bias, constraint_bend, state
from jaxgrip.mechanism.loops.mobility import degrees, independence, mobility
from jaxgrip.mechanism.loops.model import (
    Mechanism,
    kinds,
    loop_bodies,
    measured_ends,
    multiplier_rows,
    seats,
)
from jaxgrip.rigid import (
    BodyLoads,
    Poses,
    crba,
    forward_kinematics,
    passive_forces,
    rnea_bodies,
)


class Reactions(NamedTuple):
    """Loads that the joints transmit.

    `force` (loops, 3) [N] and `moment` (loops, 3) [N m] of the first on the second body of each
    loop, at `point` (loops, 3) [m], the origin of the second frame, in base axes; `bodies`: loads
    `F` and `N` of the parent on each body of the tree, as of `BodyLoads`, in body frames.
    """

    force: Float[Array, "loops 3"]
    moment: Float[Array, "loops 3"]
    point: Float[Array, "loops 3"]
    bodies: BodyLoads


@jax.jit
def forward_dynamics(
    mechanism: Mechanism, q: Float[Array, " n"], qd: Float[Array, " n"], tau: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    """Accelerations and multipliers of M q̈ + h = τ + Jᵀλ with J q̈ + J̇ q̇ = 0.

    With redundant constraints the accelerations are still unique, and the multipliers are those of
    least norm [N and N m]. Derivatives, in both modes and of any order, are implicit. At a singular
    position, where the rank drops, the accelerations satisfy the remaining constraints.

    **Arguments:** `mechanism`; `q`, `qd`: (n,) coordinates of a closed position [rad or m] and
    rates [per s]; `tau`: (n,) torques or forces at the joints of the tree [N m or N].

    **Returns:** accelerations (n,) [per s^2]; multipliers (m,), one for each of the `constraints`,
    [N] for lengths and [N m] for sines.

    **Raises:** `ValueError` for another shape.
    """
    check_shape("tau", tau, (mechanism.n,))
    return motion(free(mechanism), q, qd, tau, jnp.zeros(0, q.dtype))


def motion(equations: Equations, q: Array, qd: Array, tau: Array, prescribed: Array) -> tuple:
    """Accelerations and multipliers; `prescribed`: accelerations of the coordinates held."""
    mechanism = equations.mechanism
    now = state(mechanism.tree, q, qd)
    rest = tau - bias(mechanism.tree, now)
    if mechanism.tree.passive is not None:
        rest = rest - passive_forces(mechanism.tree, q, qd)
    bend = constraint_bend(functools.partial(moving, equations), mechanism, now)
    bend = jnp.concatenate([-bend, prescribed])
    free, driven, stiff = inverse_at(equations, now)
    return free @ rest + driven @ bend, stiff @ bend - driven.T @ rest


class Drives(NamedTuple):
    """Torques of drives and the motion with them.

    `torques` (drives,) in the order of the accelerations given [N m or N]; `qdd` (n,) of all joints
    [per s^2]; `multipliers` (m,) [N and N m].
    """

    torques: Float[Array, " drives"]
    qdd: Float[Array, " n"]
    multipliers: Float[Array, " m"]


@jax.jit
def _drive(equations: Equations, q: Array, qd: Array, tau: Array) -> Drives:
    qdd, multipliers = motion(equations, q, qd, tau, equations.values)
    m = equations.mechanism.m
    return Drives(multipliers[m:], qdd, multipliers[:m])


def inverse_dynamics(
    mechanism: Mechanism,
    q: Float[Array, " n"],
    qd: Float[Array, " n"],
    accelerations: Mapping[str, Any],
    tau: Float[Array, " n"] | None = None,
) -> Drives:
    """Torques of drives for given accelerations of their joints, and the motion of the others.

    **Arguments:** `mechanism`; `q`, `qd`: (n,) coordinates of a closed position [rad or m] and
    rates [per s]; `accelerations`: of as many joints as there are degrees of freedom, by the names
    of their bodies [per s^2]; `tau`: (n,) other torques, as of springs or friction [N m or N].

    **Returns:** `Drives` with `torques`, `qdd` and `multipliers`.

    **Raises:** `ValueError` for another shape or an unknown name; `MechanismError` unless the
    drives determine the motion and none is redundant.
    """
    for name, x in (("q", q), ("qd", qd)):
        check_shape(name, x, (mechanism.n,))
    equations = holding(mechanism, accelerations)
    if concrete(q) and all(map(concrete, jax.tree.leaves(equations))):
        _check_drives(mechanism, equations, q)
    tau = jnp.zeros_like(q) if tau is None else tau
    check_shape("tau", tau, (mechanism.n,))
    return _drive(equations, q, qd, tau)


def _check_drives(mechanism: Mechanism, equations: Equations, q: Array) -> None:
    found = mobility(mechanism, q)
    names = ", ".join(mechanism.coordinates[k] for k in equations.held) or "none"
    rows = jax.jacfwd(equations)(q)
    weighted = weighted_jacobian(crba(mechanism.tree, q), rows)[1]
    rank = independence(np.asarray(weighted).T, {}).rank
    if rank < mechanism.n or len(equations.held) != found.freedoms:
        raise MechanismError(
            f"The drives {names} do not determine the {degrees(found.freedoms)} of the "
            f"mechanism here; drive {', '.join(found.independent) or 'nothing'}, for instance."
        )


@jax.jit
def reaction_forces(
    mechanism: Mechanism, q: Float[Array, " n"], qd: Float[Array, " n"], tau: Float[Array, " n"]
) -> Reactions:
    """Loads in all joints in the motion that the torques cause.

    With redundant constraints the multipliers are those of least norm; sums over the redundant ones
    do not depend on that choice. About its axis a joint of the tree transmits its torque and the
    load of couplings.

    **Arguments:** as for `forward_dynamics`.

    **Returns:** `Reactions`.

    **Raises:** `ValueError` for another shape.
    """
    qdd, multipliers = forward_dynamics(mechanism, q, qd, tau)
    place = forward_kinematics(mechanism.tree, q)
    return reactions_at(mechanism, place, (q, qd, qdd), multipliers)


def reactions_at(
    mechanism: Mechanism,
    place: Poses,
    motion: tuple[Array, Array, Array],
    multipliers: Float[Array, " m"],
    loads: Float[Array, "bodies 6"] | None = None,
) -> Reactions:
    """Loads in all joints of a known motion.

    **Arguments:** `place` of the bodies; `motion`: q, qd and qdd (n,); `multipliers` (m,); `loads`
    (bodies, 6): further loads on the bodies, moment [N m] about the origin of the body, then
    force [N], in base axes.
    """
    tree, groups = mechanism.tree, kinds(mechanism)
    count = len(tree.parents)
    total = jnp.zeros((count, 6), multipliers.dtype) if loads is None else loads
    found = [
        jax.vmap(lambda joint, *at: _wrench(joint.residual, *at))(
            *seats(mechanism, alike, place), multipliers[multiplier_rows(mechanism, alike)]
        )
        for alike in groups
    ]
    force = moment = point = jnp.zeros((0, 3), multipliers.dtype)
    if found:
        order = np.argsort(np.concatenate(groups))
        force, moment, point = (jnp.concatenate(x)[order] for x in zip(*found, strict=True))
    coupled = multipliers[len(multipliers) - len(mechanism.couplings) :]
    for end in measured_ends(mechanism, place):
        row = coupled[end.coupling][None]
        pull, twist, _ = _wrench(end.share, end.first, end.second, row)
        force, moment = force.at[end.loop].add(pull), moment.at[end.loop].add(twist)
    for bodies, sign in zip(loop_bodies(mechanism).T, (-1.0, 1.0), strict=True):
        # The base, which comes after the last body, takes no load.
        on = np.flatnonzero(bodies < count)
        bodies = bodies[on]
        arm = point[on] - place.translation[bodies]
        load = jnp.concatenate([moment[on] + jnp.cross(arm, force[on]), force[on]], axis=1)
        total = total.at[bodies].add(sign * load)
    external = jnp.einsum("bxy,bkx->bky", place.rotation, total.reshape(-1, 2, 3))[:, ::-1]
    return Reactions(force, moment, point, rnea_bodies(tree, *motion, external.reshape(-1, 6)))


def _wrench(
    residual: Callable[[Frame], Array], first: Frame, second: Frame, multipliers: Array
) -> tuple:
    """Force and moment of equations on the second body, and their point, in base axes."""
    place = relative(first, second)
    still = jnp.zeros(6, multipliers.dtype)
    _, pull = jax.vjp(lambda step: residual(displaced(place, step)), still)
    (wrench,) = pull(multipliers)
    return first.rotation @ wrench[:3], first.rotation @ wrench[3:], second.origin
