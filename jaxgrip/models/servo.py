"""The servo Dynamixel AX-12 as identified by Kubisch 2008, SI units."""

from jaxgrip.actuators import GeneralizedMaxwell, LuGre, Servo
from jaxgrip.actuators.rigs import Pendulum, cuboid_pendulum

# Table 4.1.
FRICTION = {
    "coulomb": 0.0771550,
    "stiction": 0.4318759,
    "viscous": 0.2870523,
    "stiffness": 23.810246,
    "stribeck_velocity": 0.0659532,
    "damping_velocity": 0.8785457,
}
INERTIA = 0.0180259
STALL_TORQUE = 1.8081276
# Table 3.1.
GEAR = {"spring": 6.352, "springs": (16.561, 1.072), "dampers": (1.341, 32.598)}
# Own choice: an aluminium cuboid of 350 mm x 40 mm x 20 mm, the axis 20 mm from its end.
ARM = {"length": 0.35, "width": 0.04, "thickness": 0.02, "density": 2700.0, "pivot": 0.02}


def servo_ax12(*, inertia=INERTIA, stall_torque=STALL_TORQUE, gear=None, **friction) -> Servo:
    """The servo AX-12; every number may be replaced, also by a traced one.

    **Arguments:**

    - `inertia` J [kg m^2], which also damps the bristles critically, σ1 = 2 √(σ0 J).
    - `stall_torque` M_max [N m].
    - `gear`: a `GeneralizedMaxwell`; that of table 3.1 when not given.
    - `friction`: numbers of `LuGre` other than those of table 4.1, by name.

    **Returns:** the `Servo`.

    **Raises:** `ValueError` for impossible numbers.

    Source: Kubisch 2008, tables 3.1 and 4.1, pp. 27, 35.
    """
    gear = GeneralizedMaxwell(**GEAR) if gear is None else gear
    lugre = LuGre.from_inertia(inertia=inertia, **{**FRICTION, **friction})
    return Servo(lugre, gear, inertia, stall_torque)


def servo_ax12_arm(**numbers) -> Pendulum:
    """The arm of the servo AX-12; arguments of `cuboid_pendulum` may be replaced by name.

    Kubisch 2008 does not describe its arm; this one needs 64 % of the stall torque when horizontal.

    Source: own choice.
    """
    return cuboid_pendulum(**{**ARM, **numbers})
