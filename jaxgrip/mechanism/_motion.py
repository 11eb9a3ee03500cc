"""Motion of assembled systems."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxgrip.checks import (
    brief,
    check_function,
    check_times,
    concrete,
    non_negative,
    numbers,
    positive,
)
from jaxgrip.joints import Frame, Gear, Joint, relative
from jaxgrip.mechanism._acting import Acting, Seats, acting, scattered, seats_of
from jaxgrip.mechanism._assemble import Assembly, assemble
from jaxgrip.mechanism._compiled import Compiled, are_slack, compiled
from jaxgrip.mechanism._forces import gradient
from jaxgrip.mechanism.loops import MechanismError
from jaxgrip.mechanism.loops.dynamics import reactions_at
from jaxgrip.mechanism.loops.equations import Equations, inverse_of, missed_rate
from jaxgrip.mechanism.loops.kinematics import State, state
from jaxgrip.mechanism.loops.model import multiplier_rows, seats
from jaxgrip.mechanism.loops.simulation import SLACK, MotionState, Setting, at_once, run, singular
from jaxgrip.mechanism.poses import Poses
from jaxgrip.mechanism.system import System
from jaxgrip.rigid import Tree, kinetic_energy, potential_energy
from jaxgrip.solve.fusion import jit_plainly
from jaxgrip.spatial import quaternions

# Error allowed in the initial rates, as a fraction of the largest.
_RATE = 1e-8


class Motion(eqx.Module):
    """Motion of a system at times `t` (k,) [s]; vectors are in axes of the ground.

    - `poses` of the parts: position (k, p, 3) [m] and quaternion (k, p, 4).
    - `velocity`, `acceleration` (k, p, 6): of the origins of the parts [m/s, m/s^2], then angular
      [rad/s, rad/s^2].
    - `coordinates`: by the name of a connection, value and rate (k, 2) of its joint [rad or m, per
      s]. Angles of joints that close loops are within half a turn.
    - `reactions`: by the name of a connection, (k, 6), force [N] and moment [N m] of its first part
      on its second, at the origin of the second attachment.
    - `efforts`: by the name of a drive, (k,), torque or force along its coordinate [N m or N].
    - `kinetic`, `potential` (k,): energy [J] of the parts; of gravity and what the forces store,
      such as springs, bristles, and flywheels of servos.
    - `states`: by the name of a force that has a state, the state with a leading axis (k,).
    - `gap` (k, m): residuals of the joints that close loops [m and sines].
    - `conditioning` (k,): smallest over largest singular value of their equations; `passages`:
      number of singular positions passed, `passed_at`: time of the last [s].
    - `slack`: names of ropes that are slack at the start and left out; `taut`: of the others, which
      act both ways.
    """

    t: Float[Array, " k"]
    poses: Poses
    velocity: Float[Array, "k p 6"]
    acceleration: Float[Array, "k p 6"]
    coordinates: dict[str, Float[Array, "k 2"]]
    reactions: dict[str, Float[Array, "k 6"]]
    efforts: dict[str, Float[Array, " k"]]
    kinetic: Float[Array, " k"]
    potential: Float[Array, " k"]
    states: dict[str, Any]
    gap: Float[Array, "k m"]
    conditioning: Float[Array, " k"]
    passages: Int[Array, ""]
    passed_at: Float[Array, ""]
    slack: tuple[str, ...] = eqx.field(static=True)
    taut: tuple[str, ...] = eqx.field(static=True)

    @property
    def energy(self) -> Float[Array, "*k"]:
        """Kinetic and potential energy [J]."""
        return self.kinetic + self.potential

    def warnings(self) -> tuple[str, ...]:
        """Sentences on singular positions, and on ropes that are slack or compressed."""
        said = list(singular(self.t, self.conditioning, self.passages, self.passed_at))
        said += [f"Rope {name!r} is slack at the start and left out." for name in self.slack]
        for name in self.taut:
            compression = np.atleast_1d(self.efforts[name])
            if np.any(compression > 0):
                first = np.atleast_1d(self.t)[np.argmax(compression > 0)]
                said.append(
                    f"Rope {name!r} is compressed from t = {first:g} s on, by at most "
                    f"{compression.max():.3g} N: it would be slack there."
                )
        return tuple(said)


def simulate(
    assembly: Assembly | System,
    times: Float[Array, " k"],
    *,
    drives: Mapping[str, Callable[..., Any] | None] | None = None,
    rates: Mapping[str, Any] | None = None,
    efforts: Mapping[str, Callable[..., Any]] | None = None,
    rtol: float = 1e-9,
    atol: float = 1e-9,
    max_steps: int = 100_000,
    adjoint: diffrax.AbstractAdjoint | None = None,
) -> Motion:
    """Motion of an assembled system under gravity, its forces and its drives.

    Every step ends with a projection to positions and velocities that satisfy all joints, so that
    the motion stays on its branch.

    **Arguments:**

    - `assembly`, or a system, which is assembled first.
    - `times`: (k,) [s], none before the last; the first is that of the assembly.
    - `drives`: by the name of a drive, a function of t giving its value [m or rad], twice
      differentiable, or None to leave the drive out, as also a gear; by the name of a servo, a
      function of t giving its target. Others keep their value.
    - `rates`: by the name of a connection of the tree, the rate of its coordinate at the first time
      [rad/s or m/s]; the other rates are those of least kinetic energy.
    - `efforts`: by the name of a connection, a function of `(t, value, rate)` of its coordinate
      giving the torque or force along it [N m or N], such as a controller. Angles count turns, but
      those of joints that close loops are within half a turn.
    - `rtol`, `atol`, `max_steps`, `adjoint`: of the integration.

    **Returns:** `Motion`, differentiable with respect to all numbers of the system.

    **Raises:** `ValueError` for unknown names, arguments that should be functions, times that
    decrease, and a part that moves without mass; `MechanismError` for drives that do not start
    where the system is assembled, and for a motion that stops early. Within `jit` the motion is NaN
    then, and where a rope is slack at the start.

    Source: index-1 equations of the spanning tree with its loops, by Dopri8, or Kvaerno5 where
    forces have states, with error control, projected after every step (Hairer 1996, section VII.2).
    """
    times = check_times(times)
    found, setting, x0 = _moved(assembly, times[0], drives, rates, efforts)
    tolerances = positive("rtol", rtol, ()), non_negative("atol", atol, ())
    motion = run(setting, x0, times, *tolerances, max_steps, adjoint)
    return _seen(found, setting, motion)


def inverse_dynamics(
    assembly: Assembly | System,
    *,
    drives: Mapping[str, Callable[..., Any] | None] | None = None,
    rates: Mapping[str, Any] | None = None,
    efforts: Mapping[str, Callable[..., Any]] | None = None,
    t: Float[Array, ""] | float = 0.0,
) -> Motion:
    """Efforts of the drives and reactions of all joints at the position of an assembly.

    Drives with a function have its rate and acceleration, the others rest; degrees of freedom
    without a drive accelerate under the forces. Without motion this is statics.

    **Arguments:** as for `simulate`; `t`: time [s] for the functions.

    **Returns:** `Motion` at that time, its arrays without the axis of times.

    **Raises:** as `simulate`.

    Source: as `simulate`.
    """
    t = numbers("t", t, ())
    found, setting, x0 = _moved(assembly, t, drives, rates, efforts)
    motion = at_once(setting, x0, t)
    seen = jax.lax.stop_gradient(motion.qdd)
    if concrete(seen) and not np.isfinite(seen).all():
        raise MechanismError(
            "The accelerations are not finite; check drives, efforts and numbers of the system.",
            assembly,
        )
    return jax.tree.map(lambda x: x[0] if x.ndim else x, _seen(found, setting, motion))


def _moved(
    assembly: Assembly | System,
    t: Array,
    drives: Mapping[str, Callable[..., Any] | None] | None,
    rates: Mapping[str, Any] | None,
    efforts: Mapping[str, Callable[..., Any]] | None,
) -> tuple[Compiled, Setting, MotionState]:
    """The compiled system, its drives and forces, and the state at the start."""
    if isinstance(assembly, System):
        assembly = assemble(assembly)
    if not isinstance(assembly, Assembly):
        raise ValueError(f"The assembly is {brief(assembly)}; it must be an Assembly or a System.")
    fitting = jax.lax.stop_gradient(assembly.succeeded)
    if concrete(fitting) and not bool(fitting):
        raise MechanismError("The parts of the assembly do not fit together.", assembly)
    functions, system = dict(drives or {}), assembly.system
    of_forces = {
        name: functions.pop(name)
        for name in system.controlled
        if name in functions and name not in system.parameters
    }
    released = [name for name, function in functions.items() if function is None]
    for name in functions:
        system.drive(name)
    moving = {name: f for name, f in functions.items() if f is not None}
    for name, function in (moving | of_forces).items():
        check_function(f"drive {name!r}", function, (), t=t)
    fits = [~is_so for is_so in are_slack(assembly).values() if not concrete(is_so)]
    for name, function in moving.items():
        if isinstance(system.joint(name), Gear):
            raise ValueError(
                f"Connection {name!r} is a gear, which no function moves; None leaves it out."
            )
        begin, now = jax.lax.stop_gradient((jnp.asarray(function(t)), system.parameters[name]))
        if not concrete(begin - now):
            fits.append(jnp.abs(begin - now) <= SLACK)
        elif not float(jnp.abs(begin - now)) <= SLACK:
            raise MechanismError(
                f"Drive {name!r} starts at {float(begin):g}, but the system is assembled at "
                f"{float(now):g}; assemble it at the start of the drive."
            )
    found = compiled(assembly, released)
    start = found.start
    # Nothing can be raised within `jit`.
    for fit in fits:
        start = jnp.where(fit, start, jnp.nan)
    acts = acting(found, dict(efforts or {}), of_forces)
    mechanism = found.mechanism
    driven = tuple(mechanism.loop(name) for name in moving)
    setting = Setting(mechanism, acts, tuple(moving.values()), driven)
    qd = _start(found, setting.equations(t, mechanism.unturned), dict(rates or {}))
    inner = _states(acts, mechanism.tree, start) if acts.has_states else None
    return found, setting, MotionState(start, qd, mechanism.unturned, inner)


@jit_plainly
def _states(acts: Acting, tree: Tree, q: Array) -> tuple:
    """States of the forces at the start."""
    return acts.start(state(tree, q, jnp.zeros_like(q)))


def _start(found: Compiled, equations: Equations, rates: Mapping[str, Any]) -> Array:
    """Rates (n,) of the tree that satisfy all joints and drives."""
    q = found.start
    index = [found.coordinate(name) for name in rates]
    values = [numbers(f"The rate of {name!r}", x, ()) for name, x in rates.items()]
    prescribed = Equations(
        equations.mechanism,
        q[np.array(index, dtype=int)],
        tuple(index),
        equations.rates,
        equations.accelerations,
        equations.driven,
    )
    asked = jnp.stack(values) if values else jnp.zeros(0)
    qd, error = _least_rates(prescribed, q, asked)
    if concrete(error) and error.size:
        largest = float(jnp.max(jnp.abs(asked), initial=0.0)) + float(
            jnp.max(jnp.abs(qd), initial=0.0)
        )
        if not float(jnp.abs(error).max()) <= _RATE * (1 + largest):
            names = ", ".join([*rates, *_driven_names(equations)]) or "the joints"
            raise MechanismError(
                f"The rates of {names} are inconsistent: they violate the joints by "
                f"{float(jnp.abs(error).max()):.3g}."
            )
    return qd


def _driven_names(equations: Equations) -> list[str]:
    return [equations.mechanism.loops[k].name for k in equations.driven]


@jit_plainly
def _least_rates(equations: Equations, q: Array, asked: Array) -> tuple[Array, Array]:
    """Rates of least kinetic energy for those of the prescribed coordinates, and their errors."""
    rates = jnp.pad(asked, (equations.mechanism.m, 0))
    at_rest = missed_rate(equations, q, jnp.zeros_like(q))
    qd = inverse_of(equations, q).driven @ (rates - at_rest)
    return qd, missed_rate(equations, q, qd) - rates


def _seen(found: Compiled, setting: Setting, motion: Any) -> Motion:
    joints = [c for c in found.system.connections if isinstance(c.joint, Joint)]
    measured = [c for c in joints if c.joint.measure is not None]
    on_tree = found.coordinates
    ends = {
        c.name: seats_of(found, [(c.first, c.second)]) for c in measured if c.name not in on_tree
    }
    looked = _look(found, setting, motion, ends)
    known = looked.coordinates | {
        name: jnp.stack([motion.q[:, k], motion.qd[:, k]], axis=1) for name, k in on_tree.items()
    }
    return Motion(
        motion.t,
        looked.poses,
        looked.velocity,
        looked.acceleration,
        {connection.name: known[connection.name] for connection in measured},
        looked.reactions,
        looked.efforts,
        looked.kinetic,
        looked.potential,
        setting.effort.named(motion.inner),
        motion.gap,
        motion.conditioning,
        motion.passages,
        motion.passed_at,
        found.slack,
        tuple(c.name for c in joints if c.joint.one_sided and c.name in looked.efforts),
    )


class _Looked(NamedTuple):
    poses: Poses
    velocity: Array
    acceleration: Array
    coordinates: dict[str, Array]
    reactions: dict[str, Array]
    efforts: dict[str, Array]
    kinetic: Array
    potential: Array


@jit_plainly
def _look(found: Compiled, setting: Setting, motion: Any, ends: dict[str, Seats]) -> _Looked:
    system, bodies = found.system, found.bodies

    def at(
        t: Array, q: Array, qd: Array, qdd: Array, multipliers: Array, turned: Array, inner: Any
    ) -> _Looked:
        equations = setting.equations(t, turned)
        mechanism = equations.mechanism
        now = state(mechanism.tree, q, qd)
        rotation = now.place.rotation[bodies]
        arm = jnp.einsum("pxy,py->px", rotation, found.seats.origin)
        poses = Poses(
            now.place.translation[bodies] + arm,
            jax.vmap(quaternions.from_matrix)(rotation @ found.seats.rotation),
        )
        acceleration = now.jacobian @ qdd + now.bend
        spin = now.velocity[bodies, :3]
        velocity = _of_parts(now.velocity[bodies], arm, jnp.zeros_like(arm))
        bent = jnp.cross(spin, jnp.cross(spin, arm))
        coordinates = {}
        for name, pairs in ends.items():
            pair, joint = pairs.between(now), system.joint(name)
            place = jax.tree.map(lambda x: x[0], pair.place)
            rate = gradient(joint, place) @ pair.rate[0]
            coordinates[name] = jnp.stack([joint.coordinate(place), rate])
        reactions, efforts = _reactions(
            found, setting, equations, now, (t, q, qd, qdd, multipliers, inner)
        )
        return _Looked(
            poses,
            velocity,
            _of_parts(acceleration[bodies], arm, bent),
            coordinates,
            reactions,
            efforts,
            kinetic_energy(mechanism.tree, q, qd),
            potential_energy(mechanism.tree, q) + setting.effort.energy(now, inner),
        )

    seen = jax.vmap(at)(
        motion.t, motion.q, motion.qd, motion.qdd, motion.multipliers, motion.turned, motion.inner
    )
    quaternion = _continued(seen.poses.quaternion)
    return seen._replace(poses=Poses(seen.poses.position, quaternion))


def _of_parts(moving: Array, arm: Array, bent: Array) -> Array:
    """Linear, then angular rates of parts' origins, from those of their bodies, angular first."""
    linear = moving[:, 3:] + jnp.cross(moving[:, :3], arm) + bent
    return jnp.concatenate([linear, moving[:, :3]], axis=1)


def _reactions(
    found: Compiled, setting: Setting, equations: Equations, now: State, at: tuple
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Force and moment of every connection on its second part; effort of every drive."""
    t, q, qd, qdd, multipliers, inner = at
    mechanism, system = equations.mechanism, found.system
    reactions, efforts = {}, {}
    loads = jnp.zeros_like(now.velocity)
    on_tree = {how.connection for how in found.carried}
    own: dict[str, Array] = {}
    for exerted in setting.effort.exerted(t, now, q, inner):
        # Wrenches along a joint of the tree are part of what the joint transmits.
        inside = np.array([name in on_tree and name is not None for name in exerted.along])
        outside = jnp.where(inside[:, None], 0.0, exerted.wrench)
        loads = loads + scattered(now, exerted.at, outside)
        axes = exerted.at.first.rotation
        for k, name in enumerate(exerted.along):
            if name is not None and not inside[k]:
                wrench = exerted.wrench[k].reshape(2, 3) @ axes[k].T
                own[name] = own.get(name, 0.0) + wrench.reshape(6)
    transmitted = reactions_at(mechanism, now.place, (q, qd, qdd), multipliers, loads)
    for k, loop in enumerate(mechanism.loops):
        wrench = jnp.concatenate([transmitted.force[k], transmitted.moment[k]])
        reactions[loop.name] = wrench + own.get(loop.name, 0.0)
        if loop.joint.parameter is not None:
            alike = np.array([k])
            _, *frames = seats(mechanism, alike, now.place)
            place = relative(*jax.tree.map(lambda x: x[0], frames))
            rows = multipliers[multiplier_rows(mechanism, alike)[0]]
            efforts[loop.name] = -_by_parameter(loop.joint, place) @ rows
    for how in found.carried:
        if how.connection is None:
            continue
        connection = system.connections[system.connection(how.connection)]
        axes = now.place.rotation[how.body]
        force, moment = axes @ transmitted.bodies.F[how.body], axes @ transmitted.bodies.N[how.body]
        origin = now.place.translation[how.body]
        point = _second_origin(found, now, connection, how.part)
        moment = moment + jnp.cross(origin - point, force)
        sign = -1.0 if how.backward else 1.0
        reactions[how.connection] = sign * jnp.concatenate([force, moment])
    order = [c.name for c in system.connections]
    return {n: reactions[n] for n in order if n in reactions}, efforts


def _by_parameter(joint: Joint, place: Frame) -> Array:
    """Derivative of a joint's equations by the value of its drive."""
    value = getattr(joint, joint.parameter)
    _, slope = jax.jvp(
        lambda p: joint.with_parameter(p).residual(place), (value,), (jnp.ones_like(value),)
    )
    return slope


def _second_origin(found: Compiled, now: State, connection: Any, part: int) -> Array:
    """Origin of the second attachment of a connection, in the base frame."""
    if connection.joint.to_ground:
        seat = jax.tree.map(lambda x: x[part], found.seats)
        body = found.bodies[part]
        return now.place.translation[body] + now.place.rotation[body] @ seat.origin
    pair = seats_of(found, [(connection.second, connection.second)])
    at = pair.between(now)
    return at.first.origin[0]


def _continued(quaternion: Float[Array, "k p 4"]) -> Float[Array, "k p 4"]:
    """The same rotations, with signs that make the quaternions continuous in time."""
    same = jnp.sum(quaternion[1:] * quaternion[:-1], axis=-1, keepdims=True)
    signs = jnp.cumprod(jnp.where(same < 0, -1.0, 1.0), axis=0)
    return quaternion.at[1:].multiply(signs)
