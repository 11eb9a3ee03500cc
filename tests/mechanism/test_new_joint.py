"""A new kind of joint outside the package: one class that assembles, moves and carries load."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.joints import Guide, Hinge, Joint, Measure
from jaxgrip.joints.joint import LENGTH, tilt
from tests.fem.structures.models import two_frames

js = jg.fem.structures


class PinInSlot(Joint):
    """A pin along z that slides along x of the first frame and rotates in the slot."""

    equations: ClassVar[int] = 4
    lengths: ClassVar[int] = 2
    points: ClassVar[int] = 3
    measure: ClassVar[Measure] = LENGTH

    def residual(self, place):
        return jnp.concatenate([place.origin[1:], tilt(place)])

    def motions(self, place):
        return jnp.eye(6, dtype=place.origin.dtype)[jnp.array([0, 5])]

    def facing(self, place):
        return place.rotation[2, 2]

    def coordinate(self, place):
        return place.origin[0]


class SteppedPinInSlot(PinInSlot):
    """The same as a joint that can also carry a body of a tree."""

    steps: ClassVar[tuple[str, ...]] = ("x", "rz")

    def values(self, place):
        turn = jnp.arctan2(place.rotation[1, 0], place.rotation[0, 0])
        return jnp.stack([place.origin[0], turn])


RADIUS = 0.3


def scotch_yoke(joint, angle=0.4, gravity=(0.0, 0.0, -9.81), drive=()):
    """A crank with a pin in the slot of a yoke that slides along x of the ground."""
    pin = [[RADIUS, 0, 0], [RADIUS, 0, 1], [RADIUS + 1, 0, 0]]
    origin = [[0, 0, 0], [0, 0, 1], [1, 0, 0]]
    # The guide is along x; the slot is along y.
    rail = [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
    slot = [[0, 0, 0], [0, 0, 1], [0, 1, 0]]
    half = angle / 2
    parts = [
        jg.mechanism.Part(
            "crank",
            {"foot": origin, "pin": pin},
            quaternion=(np.cos(half), 0, 0, np.sin(half)),
            mass=2.0,
            inertia=(0.01, 0.02, 0.025),
        ),
        jg.mechanism.Part(
            "yoke",
            {"rail": rail, "slot": slot},
            (RADIUS * np.cos(angle), 0, 0),
            mass=1.5,
            inertia=(0.1, 0.2, 0.3),
        ),
    ]
    joined = [
        jg.mechanism.Connection("foot", Hinge(), "ground.foot", "crank.foot"),
        jg.mechanism.Connection("rail", Guide(), "ground.rail", "yoke.rail"),
        jg.mechanism.Connection("pin", joint, "yoke.slot", "crank.pin"),
        *drive,
    ]
    ground = {"foot": origin, "rail": rail}
    return jg.mechanism.System(parts, joined, ground, gravity=gravity)


@pytest.mark.long
@pytest.mark.parametrize(
    "joint", [PinInSlot(), pytest.param(SteppedPinInSlot(), marks=pytest.mark.soak)]
)
def test_it_assembles_and_moves(joint):
    """A scotch yoke: the yoke is at r cos φ, and one coordinate gives all of its energy."""
    system = scotch_yoke(joint)
    assembled = jg.mechanism.assemble(system)
    report = jg.mechanism.mobility(system, assembled.poses)
    assert report.degrees_of_freedom == 1
    rate = 2.0
    times = jnp.linspace(0.0, 1.0, 5)
    motion = jg.mechanism.simulate(assembled, times, rates={"foot": rate})
    angle, turning = np.asarray(motion.coordinates["foot"]).T
    yoke = np.asarray(motion.poses.position[:, 1, 0])
    np.testing.assert_allclose(yoke, RADIUS * np.cos(angle), atol=1e-9)
    sliding, _ = np.asarray(motion.coordinates["pin"]).T
    np.testing.assert_allclose(sliding, RADIUS * np.sin(angle), atol=1e-9)
    kinetic = 0.5 * turning**2 * (0.025 + 1.5 * RADIUS**2 * np.sin(angle) ** 2)
    np.testing.assert_allclose(kinetic, kinetic[0], rtol=1e-7)
    assert kinetic[0] == pytest.approx(
        0.5 * rate**2 * (0.025 + 1.5 * RADIUS**2 * np.sin(0.4) ** 2), rel=1e-9
    )
    # The force of the slot on the pin is across the slot and accelerates the yoke.
    force = np.asarray(motion.reactions["pin"][:, :3])
    pull = -1.5 * np.asarray(motion.acceleration[:, 1, 0])
    np.testing.assert_allclose(force[:, 0], pull, atol=1e-8)
    np.testing.assert_allclose(force[:, 1], 0.0, atol=1e-8)


def quadratic(start, rate, acceleration, t):
    return start + rate * t + acceleration * t**2 / 2


@pytest.mark.parametrize(("rate", "acceleration"), [(0.0, 0.0), (3.0, -5.0)])
def test_statics_and_inverse_dynamics(rate, acceleration):
    """Torque of the crank by Lagrange's equation; the weight of the yoke is along x."""
    angle, weight = 0.7, 1.5 * 9.81
    drive = jg.mechanism.Connection("motor", jg.joints.Angle(angle), "ground.foot", "crank.foot")
    system = scotch_yoke(PinInSlot(), angle, (-9.81, 0.0, 0.0), [drive])

    # Data of the function, so that both motions share one program.
    turned = jax.tree_util.Partial(quadratic, *map(jnp.asarray, (angle, rate, acceleration)))
    at = jg.mechanism.inverse_dynamics(system, drives={"motor": turned})
    sine, cosine = np.sin(angle), np.cos(angle)
    inertia = 0.025 + 1.5 * RADIUS**2 * sine**2
    bend = 1.5 * RADIUS**2 * sine * cosine * rate**2
    torque = inertia * acceleration + bend - weight * RADIUS * sine
    assert float(at.efforts["motor"]) == pytest.approx(torque, abs=1e-9)
    # Bearing and motor together carry the crank, whose centre of mass is in the bearing.
    moment = at.reactions["foot"] + at.reactions["motor"]
    pin = at.reactions["pin"][:3]
    np.testing.assert_allclose(moment[:3] + pin, [2.0 * 9.81, 0.0, 0.0], atol=1e-9)
    assert at.poses.position.shape == (2, 3)
    assert at.warnings() == ()


@pytest.mark.long
def test_it_holds_parts_of_a_structure():
    """Four equations fewer than the twelve motions of two frames."""
    structure, poses = two_frames(PinInSlot(), "three", "three")
    assert js.zero_modes(structure, poses).count == 8


@pytest.mark.long
def test_it_carries_a_load_between_two_frames():
    """The pin stays in the slot and slides along it; supports take all of the load."""
    held = ("x", "y", "z")
    supports = {"lower.three": held, "upper.tip": held}
    structure, poses = two_frames(PinInSlot(), "three", "three", supports=supports)
    force = np.array([300.0, -200.0, 500.0])
    solution = js.solve(structure, poses, js.NodalForce(("upper", 3), force))
    ends = [np.asarray(solution.part(name).displacements[0, :3]) for name in ("lower", "upper")]
    points = structure.system.parts[0].attachments["three"]
    axes = np.asarray(poses.rotation[0]) @ np.asarray(jg.joints.frame(points).rotation)
    along, *across = (ends[1] - ends[0]) @ axes
    np.testing.assert_allclose(across, 0.0, atol=1e-9 * np.abs(ends[1]).max())
    assert abs(along) > 1e-3 * np.abs(ends[1]).max()
    total = sum(np.asarray(wrench.force) for wrench in solution.reactions().values())
    np.testing.assert_allclose(total, -force, atol=1e-8 * np.abs(force).max())
