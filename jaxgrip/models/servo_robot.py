"""A robot from a file with servos in its joints."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from jaxgrip.actuators import (
    Controller,
    GeneralizedMaxwell,
    LuGre,
    Motion,
    Servo,
    simulate,
    simulate_fixed,
    stack,
)
from jaxgrip.checks import brief, near
from jaxgrip.rigid import Import, Plant, Tree, neutral, with_passive

# Of servos made of a file's numbers: twist of the gear at the effort and of the bristles at the
# Coulomb level [rad], damping ratio of flywheel and gear, Stribeck and damping velocity [rad/s].
GEAR_TWIST = 5e-3
BRISTLE_TWIST = 1e-3
GEAR_DAMPING = 0.1
CREEPING = 0.1
# A Coulomb level that does not count, as a fraction of the effort; a current that limits nothing
# [A].
NEGLIGIBLE = 1e-6
NO_LIMIT = 1e6


class ServoRobot(eqx.Module):
    """A robot with servos in its joints.

    **Fields:** `plant`: its tree; `servo`: a stack of one for each driven joint; `start` (n,),
    coordinates of its position in the file; `joints`: indices of the driven coordinates, in the
    order of the servos and commands; `names`: those of these joints; `notes`: a sentence for
    everything in the file that a servo replaced.
    """

    plant: Plant
    servo: Servo
    start: Float[Array, " n"]
    joints: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    notes: tuple[str, ...] = eqx.field(static=True)

    def simulate(self, command: Any, times: ArrayLike | Sequence, **options: Any) -> Motion:
        """Motion with error control; arguments as of `jaxgrip.actuators.simulate`."""
        options = {"q0": self.start, **options}
        return simulate(self.plant, self.servo, command, times, joints=self.joints, **options)

    def simulate_fixed(
        self, commands: ArrayLike | Sequence, h: ArrayLike | Sequence, **options: Any
    ) -> Motion:
        """Motion in given steps; arguments as of `jaxgrip.actuators.simulate_fixed`."""
        options = {"q0": self.start, **options}
        return simulate_fixed(self.plant, self.servo, commands, h, joints=self.joints, **options)


def with_servos(robot: Import | Tree, servos: Servo | Controller | Mapping[str, Any]) -> ServoRobot:
    """The robot with servos in its joints, which move them to targets.

    Armature, damping and dry friction that the file has of a driven joint are those of its drive. A
    `Servo` replaces them by its own. Of a `Controller` alone a servo is made that has them: its
    flywheel is the armature, its viscous friction the damping, its friction levels, both, the dry
    friction, and its stall torque the effort; gear and bristles are stiff: they twist by 5e-3 rad
    at the effort and 1e-3 rad at the friction. In either case no drive exceeds the file's effort.

    **Arguments:** `robot`: an `Import`, or a tree, which has no effort; `servos`: by names of
    joints, or one for all joints. All have a controller, and the same parts.

    **Returns:** the `ServoRobot`. Other joints move freely.

    **Raises:** `ValueError` for unknown joints, servos without a controller or of different parts,
    and for a controller alone in a joint of which the file has no armature or no effort.

    Source: own choice.
    """
    if isinstance(robot, Import):
        tree, names, start = robot.tree, robot.joints, robot.start
        effort = np.asarray(robot.effort)
    else:
        tree, names, start = robot, tuple(map(robot.joint_of, range(robot.n))), neutral(robot)
        effort = np.full(robot.n, np.inf)
    if not isinstance(servos, Mapping):
        servos = dict.fromkeys(names, servos)
    if not servos:
        raise ValueError("There are no servos; give at least one joint its servo.")
    passive = {key: getattr(tree.passive, key, None) for key in ("armature", "damping", "friction")}
    passive = {k: np.zeros(tree.n) if v is None else np.array(v) for k, v in passive.items()}
    indices, made, notes = [], [], []
    for name, given in servos.items():
        if names.count(name) != 1:
            raise ValueError(f"No one coordinate is called {brief(name)}; {near(name, names)}")
        index = names.index(name)
        own = {key: float(value[index]) for key, value in passive.items()}
        if isinstance(given, Controller):
            servo = _of_the_file(name, given, own, float(effort[index]))
        elif isinstance(given, Servo):
            servo = given
            replaced = [f"{key} {value:g}" for key, value in own.items() if value]
            if replaced:
                notes.append(f"The servo of joint {name!r} replaces its {', '.join(replaced)}.")
        else:
            raise ValueError(f"Joint {name!r} has {brief(given)}; give a Servo or a Controller.")
        if servo.controller is None:
            raise ValueError(f"The servo of joint {name!r} has no controller; give it one.")
        indices.append(index)
        made.append(_limited(servo, float(effort[index])) if np.isfinite(effort).any() else servo)
        for value in passive.values():
            value[index] = 0.0
    rest = tree.passive
    bare = with_passive(
        tree,
        **passive,
        stiffness=getattr(rest, "stiffness", None),
        reference=getattr(rest, "reference", None),
        friction_speed=getattr(rest, "friction_speed", None),
    )
    return ServoRobot(
        Plant(bare),
        stack(made),
        jnp.asarray(start),
        tuple(indices),
        tuple(servos),
        tuple(notes),
    )


def _of_the_file(name: str, controller: Controller, own: dict[str, float], effort: float) -> Servo:
    inertia = own["armature"]
    if not inertia > 0 or not np.isfinite(effort) or not effort > 0:
        missing = "armature" if not inertia > 0 else "effort"
        raise ValueError(
            f"The file has no {missing} of joint {name!r}, which its servo needs; give a Servo in "
            "place of the Controller."
        )
    level = max(own["friction"], NEGLIGIBLE * effort)
    spring = effort / GEAR_TWIST
    friction = LuGre.from_inertia(
        inertia=inertia,
        coulomb=level,
        stiction=level,
        stiffness=level / BRISTLE_TWIST,
        stribeck_velocity=CREEPING,
        damping_velocity=CREEPING,
        viscous=own["damping"],
    )
    damper = 2 * GEAR_DAMPING * np.sqrt(spring * inertia)
    gear = GeneralizedMaxwell(spring, damper=damper)
    return Servo(friction, gear, inertia, effort, controller=controller)


def _limited(servo: Servo, effort: float) -> Servo:
    """The servo with a limit of its controller that keeps to the effort."""
    controller, motor = servo.controller, servo.motor
    if motor is not None:
        # A motor's torque is k_V R times its current.
        most = effort / (motor.torque_per_volt * motor.resistance)
        own = NO_LIMIT if controller.current_limit is None else controller.current_limit
        limits = {"current_limit": jnp.minimum(jnp.minimum(own, most), NO_LIMIT)}
    else:
        limit = jnp.minimum(controller.duty_limit, jnp.asarray(effort) / servo.stall_torque)
        limits = {"duty_limit": limit}
        if controller.integral is not None:
            limits["integral_limit"] = jnp.minimum(controller.integral_limit, limit)
    controller = dataclasses.replace(controller, **limits)
    return eqx.tree_at(lambda s: s.controller, servo, controller)
