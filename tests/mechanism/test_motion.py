"""Systems in motion against laws of mechanics without trees and loops."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import ellipk

import jaxgrip.mechanism as mechanism
from jaxgrip import joints
from jaxgrip.mechanism import Applied, Connection, JointForce, Load, Part, Spring, System, assemble
from jaxgrip.mechanism._acting import Seats
from jaxgrip.mechanism.loops.kinematics import state
from jaxgrip.rigid import Placement, from_placements
from jaxgrip.spatial import quaternions

G = np.array([0.0, 0.0, -9.81])
# Three times are close to each other, for differences.
TIMES = np.array([0.0, 0.2, 0.3999, 0.4, 0.4001, 0.6])
CLOSE, MIDDLE = (2, 3, 4), 3
# Rotation vectors from which the joints are assembled on the intended branches.
TURNS = {"screwed": (0.0, 0.0, np.pi / 2)}


def part(name, position, attachments, mass=1.0, turn=(0.0, 0.0, 0.0), com=(0.0, 0.0, 0.0)):
    """A part with three different principal inertias, so that errors of any axis show."""
    inertia = mass * np.array([[0.02, 0.002, 0.0], [0.002, 0.03, -0.001], [0.0, -0.001, 0.04]])
    quaternion = quaternions.exponential(jnp.asarray(turn))
    return Part(name, attachments, position, quaternion, mass, com, inertia)


def axis(at, along, side=(0.3, 0.5, 0.7)):
    """Attachment of three points with its z axis along a direction."""
    at, along = np.asarray(at, float), np.asarray(along, float)
    return [at, at + along, at + np.asarray(side)]


@pytest.fixture(scope="module")
def zoo():
    """A system with every kind of joint, some reversed, loops, springs and a drive."""
    points = {
        "a": axis((0.0, 0.0, 0.0), (0.0, 0.0, 1.0)),
        "b": axis((0.5, 0.0, 0.0), (1.0, 0.0, 0.0)),
        "c": axis((0.0, 0.4, 0.0), (0.0, 1.0, 0.2)),
        "d": [[0.1, 0.1, 0.3]],
    }
    names = ("hinged", "slid", "sleeved", "crossed", "planar", "balled", "screwed", "stuck", "free")
    parts = [
        part(
            name,
            0.6 * np.array([np.cos(k), np.sin(k), 0.2 * k]),
            points,
            1.0 + 0.1 * k,
            TURNS.get(name, (0.0, 0.0, 0.0)),
            (0.1, 0.0, -0.05),
        )
        for k, name in enumerate(names)
    ]
    ground = {
        "a": points["a"],
        "b": axis((0.0, 1.0, 0.0), (1.0, 0.2, 0.0)),
        "d": [[0.2, -0.7, 0.9]],
    }
    joined = [
        Connection("hinge", joints.Hinge(), "ground.a", "hinged.a"),
        Connection("guide", joints.Guide(), "slid.b", "hinged.b"),
        Connection("sleeve", joints.Sleeve(), "slid.c", "sleeved.c"),
        Connection("universal", joints.Universal(), "crossed.a", "sleeved.b"),
        Connection("plane", joints.Planar(), "ground.b", "planar.b"),
        Connection("ball", joints.Ball(), "balled.d", "planar.d"),
        Connection("screw", joints.Screw(0.3, 0.15), "crossed.c", "screwed.b"),
        Connection("weld", joints.Fixed(), "screwed.c", "stuck.a"),
        Connection("rod", joints.Distance(1.2), "crossed.d", "balled.a"),
        Connection("gear", joints.Gear(0.5, 0.1), "hinge", "plane"),
        Connection("swing", joints.Angle(0.3), "ground.a", "hinged.a"),
    ]
    forces = [
        Applied("elastic", Spring(30.0, 0.4, 0.5), "ground.d", "free.b"),
        Applied("tie", Spring(20.0, 0.3), "slid.d", "balled.b"),
        Applied("turning", JointForce(0.4, 5.0, 0.2, 0.3), "sleeve"),
        Applied("wind", Load((1.0, -2.0, 0.5), (0.1, 0.2, -0.3)), "stuck.d"),
        Applied("thruster", Load((0.0, 0.7, 0.1), follows=True), "free.a"),
    ]
    system = System(parts, joined, ground, forces, gravity=G)
    assembly = assemble(system)
    motion = mechanism.simulate(
        assembly,
        jnp.asarray(TIMES),
        drives={"swing": lambda t: 0.3 + 0.8 * jnp.sin(2.0 * t)},
        efforts={"guide": lambda t, value, rate: -3.0 * value - 0.2 * rate},
        rates={"sleeve": 1.0},
        rtol=1e-11,
        atol=1e-11,
    )
    return assembly, motion


def places(system, motion, k, end):
    """Origin (3,), axes (3, 3), velocity (6,) of an attachment's frame at time k."""
    owner, points = system.attachment(end)
    own = joints.frame(points)
    if owner < 0:
        return np.asarray(own.origin), np.asarray(own.rotation), np.zeros(6)
    turn = np.asarray(quaternions.to_matrix(motion.poses.quaternion[k, owner]))
    arm, velocity = turn @ own.origin, np.array(motion.velocity[k, owner])
    velocity[:3] += np.cross(velocity[3:], arm)
    return np.asarray(motion.poses.position[k, owner]) + arm, turn @ own.rotation, velocity


def line(system, motion, k, first, second):
    """Length, direction and rate of the line between two attachments."""
    ends = [places(system, motion, k, end) for end in (first, second)]
    way = ends[1][0] - ends[0][0]
    unit = way / np.linalg.norm(way)
    return np.linalg.norm(way), unit, unit @ (ends[1][2] - ends[0][2])[:3]


SPRINGS = (("ground.d", "free.b", 30.0, 0.4, 0.5), ("slid.d", "balled.b", 20.0, 0.3, 0.0))


@pytest.mark.long
def test_every_part_obeys_newton_and_euler(zoo):
    """Reactions, forces and weight of every part give its accelerations."""
    assembly, motion = zoo
    system = assembly.system
    for k in range(len(motion.t)):
        force = {name: np.zeros(3) for name in (*system.names, "ground")}
        moment = {name: np.zeros(3) for name in (*system.names, "ground")}

        def load(end, at, f, m, sign, force=force, moment=moment):
            owner = end.split(".")[0]
            force[owner] += sign * f
            moment[owner] += sign * (m + np.cross(at, f))

        for connection in system.connections:
            if connection.name in motion.reactions:
                wrench = np.asarray(motion.reactions[connection.name][k])
                at, *_ = places(system, motion, k, connection.second)
                load(connection.first, at, wrench[:3], wrench[3:], -1)
                load(connection.second, at, wrench[:3], wrench[3:], 1)
        for first, second, stiffness, length, damping in SPRINGS:
            now, unit, rate = line(system, motion, k, first, second)
            pull = (stiffness * (now - length) + damping * rate) * unit
            load(first, places(system, motion, k, first)[0], pull, np.zeros(3), 1)
            load(second, places(system, motion, k, second)[0], pull, np.zeros(3), -1)
        at, *_ = places(system, motion, k, "stuck.d")
        load("stuck.d", at, np.array([1.0, -2.0, 0.5]), np.array([0.1, 0.2, -0.3]), 1)
        at, axes, _ = places(system, motion, k, "free.a")
        load("free.a", at, axes @ np.array([0.0, 0.7, 0.1]), np.zeros(3), 1)
        for number, own in enumerate(system.parts):
            turn = np.asarray(quaternions.to_matrix(motion.poses.quaternion[k, number]))
            origin, mass = np.asarray(motion.poses.position[k, number]), float(own.mass)
            spin = np.asarray(motion.velocity[k, number, 3:])
            alpha = np.asarray(motion.acceleration[k, number, 3:])
            arm = turn @ own.com
            a = np.asarray(motion.acceleration[k, number, :3])
            a = a + np.cross(alpha, arm) + np.cross(spin, np.cross(spin, arm))
            f, m = force[own.name], moment[own.name]
            np.testing.assert_allclose(mass * (a - G), f, atol=1e-8)
            inertia = turn @ own.inertia @ turn.T
            about = m - np.cross(origin + arm, f)
            np.testing.assert_allclose(
                inertia @ alpha + np.cross(spin, inertia @ spin), about, atol=1e-8
            )


@pytest.mark.long
def test_joints_transmit_only_what_they_hold(zoo):
    """Along its degrees of freedom a joint transmits the applied efforts and nothing else."""
    assembly, motion = zoo
    system = assembly.system
    for k in range(len(motion.t)):
        first, second, held = {}, {}, {}
        for connection in system.connections:
            if connection.name in motion.reactions:
                _, first[connection.name], _ = places(system, motion, k, connection.first)
                _, second[connection.name], _ = places(system, motion, k, connection.second)
                held[connection.name] = np.asarray(motion.reactions[connection.name][k])
        force = {name: first[name].T @ x[:3] for name, x in held.items()}
        moment = {name: first[name].T @ x[3:] for name, x in held.items()}
        value, rate = np.asarray(motion.coordinates["sleeve"][k])
        assert moment["sleeve"][2] == pytest.approx(0.4 - 5 * (value - 0.2) - 0.3 * rate, abs=1e-8)
        assert force["sleeve"][2] == pytest.approx(0.0, abs=1e-8)
        value, rate = np.asarray(motion.coordinates["guide"][k])
        assert force["guide"][2] == pytest.approx(-3 * value - 0.2 * rate, abs=1e-8)
        assert moment["universal"][2] == pytest.approx(0.0, abs=1e-8)
        pin = second["universal"][:, 0]
        assert held["universal"][3:] @ pin == pytest.approx(0.0, abs=1e-8)
        np.testing.assert_allclose(force["plane"][:2], 0.0, atol=1e-8)
        np.testing.assert_allclose(moment["ball"], 0.0, atol=1e-8)
        assert force["screw"][2] * 0.3 / (2 * np.pi) + moment["screw"][2] == pytest.approx(
            0.0, abs=1e-8
        )
        # A gear does no work: the rate of "plane" is half that of "hinge".
        assert moment["hinge"][2] + 0.5 * moment["plane"][2] == pytest.approx(0.0, abs=1e-8)
        assert moment["swing"][2] == pytest.approx(float(motion.efforts["swing"][k]), abs=1e-8)
        _, unit, _ = line(system, motion, k, "crossed.d", "balled.a")
        np.testing.assert_allclose(np.cross(held["rod"][:3], unit), 0.0, atol=1e-8)


@pytest.mark.long
def test_joints_and_drives_hold_all_the_time(zoo):
    """The residuals of the system, whose equations are not those of the tree."""
    from jaxgrip.mechanism._equations import evaluate

    assembly, motion = zoo
    driven = 0.3 + 0.8 * np.sin(2.0 * TIMES)
    np.testing.assert_allclose(motion.coordinates["swing"][:, 0], driven, atol=1e-10)

    @jax.jit
    @jax.vmap
    def residual(value, poses):
        system = assembly.system.with_parameters({"swing": value})
        return evaluate(system, poses, assembly.turns).residual

    assert np.abs(residual(driven, motion.poses)).max() < 1e-9


@pytest.mark.long
def test_rates_are_derivatives_of_positions(zoo):
    """Central differences over the three close times."""
    _, motion = zoo
    h = TIMES[MIDDLE + 1] - TIMES[MIDDLE]
    before, _, after = (jax.tree.map(lambda x, k=k: x[k], motion.poses) for k in CLOSE)
    slope = (after.position - before.position) / (2 * h)
    np.testing.assert_allclose(slope, motion.velocity[MIDDLE, :, :3], atol=1e-5)
    turned = jax.vmap(quaternions.product)(
        after.quaternion, jax.vmap(quaternions.conjugate)(before.quaternion)
    )
    spin = jax.vmap(quaternions.rotation_vector)(turned) / (2 * h)
    np.testing.assert_allclose(spin, motion.velocity[MIDDLE, :, 3:], atol=1e-5)
    change = (motion.velocity[CLOSE[2]] - motion.velocity[CLOSE[0]]) / (2 * h)
    np.testing.assert_allclose(change, motion.acceleration[MIDDLE], rtol=1e-4, atol=1e-3)
    for name, values in motion.coordinates.items():
        slope = (values[CLOSE[2], 0] - values[CLOSE[0], 0]) / (2 * h)
        assert float(slope) == pytest.approx(float(values[MIDDLE, 1]), abs=1e-5), name
    assert motion.coordinates["sleeve"][0, 1] == pytest.approx(1.0, abs=1e-10)


@pytest.mark.long
def test_power_of_all_that_acts_is_the_change_of_energy(zoo):
    """Work of drives, efforts, damping and forces without potential, against the energy."""
    assembly, motion = zoo
    system, k = assembly.system, MIDDLE
    h = TIMES[MIDDLE + 1] - TIMES[MIDDLE]
    change = float(motion.energy[CLOSE[2]] - motion.energy[CLOSE[0]]) / (2 * h)
    power = float(motion.efforts["swing"][k]) * 1.6 * np.cos(2.0 * TIMES[k])
    value, rate = np.asarray(motion.coordinates["guide"][k])
    power += (-3.0 * value - 0.2 * rate) * rate
    rate = float(motion.coordinates["sleeve"][k, 1])
    power += (0.4 - 0.3 * rate) * rate
    power -= 0.5 * line(system, motion, k, "ground.d", "free.b")[2] ** 2
    power += places(system, motion, k, "stuck.d")[2][3:] @ np.array([0.1, 0.2, -0.3])
    _, axes, velocity = places(system, motion, k, "free.a")
    power += velocity[:3] @ axes @ np.array([0.0, 0.7, 0.1])
    assert change == pytest.approx(float(power), abs=1e-4)


def pendulum(start, mass, arm):
    """A body on a hinge, its moment of inertia about it, and a quarter of its period from rest.

    The hinge turns about y; at the angle zero the arm hangs along -z.
    """
    moment = 0.3 + mass * arm**2
    quarter = ellipk(np.sin(start / 2) ** 2) * np.sqrt(moment / (mass * 9.81 * arm))
    points = {"pin": axis((0.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))}
    turn = (np.cos(start / 2), 0.0, np.sin(start / 2), 0.0)
    body = Part("body", points, (0, 0, 0), turn, mass, (0.0, 0.0, -arm), (0.3, 0.3, 0.3))
    pin = Connection("pin", joints.Hinge(), "ground.pin", "body.pin")
    return System([body], [pin], points, gravity=G), moment, quarter


def test_pendulum_is_down_after_a_quarter_of_its_period(compilations):
    """The period is that of the complete elliptic integral; other numbers compile nothing."""
    for start, mass, arm in ((2.0, 2.0, 0.5), (0.4, 3.0, 0.7)):
        system, moment, quarter = pendulum(start, mass, arm)
        times = quarter * jnp.arange(3.0)
        with compilations() as found:
            motion = mechanism.simulate(system, times, rtol=1e-10, atol=1e-10)
        angle, rate = np.asarray(motion.coordinates["pin"]).T
        np.testing.assert_allclose(angle, [start, 0.0, -start], atol=1e-7)
        fallen = mass * 9.81 * arm * (1 - np.cos(start))
        assert rate[1] == pytest.approx(-np.sqrt(2 * fallen / moment), rel=1e-7)
    assert not found
    with pytest.raises(ValueError, match="There is no drive 'pin'"):
        mechanism.simulate(system, times, drives={"pin": None})
    weightless = eqx.tree_at(lambda s: s.parts[0].mass, system, jnp.array(0.0))
    with pytest.raises(ValueError, match="mass of part 'body' is 0 kg"):
        mechanism.simulate(weightless, times)


@pytest.mark.soak
def test_body_on_a_ball_swings_through_every_rotation():
    """Against Euler's equations with a quaternion, integrated by SciPy."""
    inertia, mass, arm = np.diag([0.02, 0.03, 0.05]), 2.0, np.array([0.1, 0.0, -0.4])
    start = np.array([np.cos(-1.2), 0.3, np.sin(-1.2), 0.1])
    start /= np.linalg.norm(start)
    turn = np.asarray(quaternions.to_matrix(jnp.asarray(start)))
    body = Part("body", {"pin": [-arm]}, -turn @ -arm, start, mass, (0.0, 0.0, 0.0), inertia)
    pin = Connection("pin", joints.Ball(), "ground.o", "body.pin")
    system = System([body], [pin], {"o": [[0.0, 0.0, 0.0]]}, gravity=G)
    times = jnp.linspace(0.0, 3.0, 7)
    motion = mechanism.simulate(system, times, rtol=1e-11, atol=1e-11)
    about = inertia + mass * (arm @ arm * np.eye(3) - np.outer(arm, arm))

    def rate(_, x):
        q, w = x[:4] / np.linalg.norm(x[:4]), x[4:]
        r = np.asarray(_matrix(q))
        torque = np.cross(arm, r.T @ (mass * G))
        spin = np.linalg.solve(about, torque - np.cross(w, about @ w))
        change = 0.5 * np.array(
            [
                -q[1:] @ w,
                *(q[0] * w + np.cross(q[1:], w)),
            ]
        )
        return np.concatenate([change, spin])

    found = solve_ivp(
        rate, (0.0, 3.0), [*start, 0.0, 0.0, 0.0], "DOP853", times, rtol=1e-12, atol=1e-12
    )
    rotation = np.stack([_matrix(q / np.linalg.norm(q)) for q in found.y[:4].T])
    np.testing.assert_allclose(motion.poses.position[:, 0], rotation @ arm, atol=1e-6)
    assert np.ptp(motion.energy) < 1e-7


def _matrix(q):
    w, x, y, z = q
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def test_rates_between_frames_are_derivatives_of_where_they_are():
    """Beside the axes of two bodies that turn; velocities of one seen from the other."""
    tree = from_placements(
        [
            Placement("first", None, (0.1, 0.2, 0.0), 1.0, (0.0,) * 3, (0.1,) * 3, (0.0, 0.6, 0.8)),
            Placement("second", "first", (0.5, 0.0, 0.3), 1.0, (0.0,) * 3, (0.1,) * 3, (1, 0, 0)),
        ]
    )
    turns = jnp.array([[[0.2, 0.5, -0.3], [1.0, -0.4, 0.1]]])
    rotation = jax.vmap(jax.vmap(lambda x: quaternions.to_matrix(quaternions.exponential(x))))(
        turns
    )
    origin = jnp.array([[[0.3, -0.1, 0.2], [0.1, 0.4, -0.5]]])
    seats = Seats(np.array([[0, 1]]), joints.Frame(origin, rotation))

    @jax.jit
    def both(q, qd):
        place = jax.jvp(lambda q: seats.between(state(tree, q, qd)).place, (q,), (qd,))
        return seats.between(state(tree, q, qd)).rate[0], place

    rate, (place, change) = both(jnp.array([0.7, -0.4]), jnp.array([2.0, 3.0]))
    np.testing.assert_allclose(rate[:3], change.origin[0], atol=1e-14)
    spin = change.rotation[0] @ place.rotation[0].T
    np.testing.assert_allclose(rate[3:], [spin[2, 1], spin[0, 2], spin[1, 0]], atol=1e-14)


@pytest.mark.long
def test_wrong_motions_get_a_sentence(zoo):
    assembly, _ = zoo
    times = jnp.array([0.0, 0.1])
    with pytest.raises(ValueError, match=r"There is no drive 'swin' .did you mean 'swing'"):
        mechanism.simulate(assembly, times, drives={"swin": None})
    with pytest.raises(ValueError, match=r"'swing' starts at 0.5, but the system is assem"):
        mechanism.simulate(assembly, times, drives={"swing": lambda t: 0.5 + t})
    with pytest.raises(ValueError, match="Connection 'rod' is no coordinate of the tree"):
        mechanism.simulate(assembly, times, rates={"rod": 1.0})
    with pytest.raises(ValueError, match="effort 'ball' acts on a ball, which has no single"):
        mechanism.simulate(assembly, times, efforts={"ball": lambda t, x, v: x})


@pytest.mark.soak
def test_derivatives_of_a_motion_are_those_of_differences():
    """Derivatives by mass, inertia, gravity and the drive, through assembly and motion."""
    body = part("body", (0.0, 0.0, 0.0), {"pin": [[0.0, 0.1, 0.4]]}, 2.0)
    arm = part("arm", (0.0, 0.0, 0.0), {"foot": axis((0, 0, 0), (0, 0, 1)), "tip": [[0.5, 0, 0]]})
    joined = [
        Connection("foot", joints.Hinge(), "ground.o", "arm.foot"),
        Connection("ball", joints.Ball(), "arm.tip", "body.pin"),
        Connection("turn", joints.Angle(0.2), "ground.o", "arm.foot"),
    ]
    system = System([arm, body], joined, {"o": axis((0, 0, 0), (0, 0, 1))}, gravity=G)

    @jax.jit
    def height(x):
        changed = eqx.tree_at(
            lambda s: (s.parts[1].mass, s.parts[1].inertia, s.gravity),
            system,
            (2.0 * x[0], x[1] * system.parts[1].inertia, x[2] * system.gravity),
        )
        motion = mechanism.simulate(
            changed,
            jnp.array([0.0, 0.3]),
            drives={"turn": lambda t: 0.2 + x[3] * t**2},
            rtol=1e-11,
            atol=1e-11,
        )
        return motion.poses.position[-1, 1] @ jnp.array([1.0, 2.0, 3.0])

    x = jnp.array([1.0, 1.0, 1.0, 2.0])
    found = jax.jit(jax.grad(height))(x)
    h = 1e-4
    for k, unit in enumerate(np.eye(4)):
        slope = (height(x + h * unit) - height(x - h * unit)) / (2 * h)
        assert float(found[k]) == pytest.approx(float(slope), rel=1e-5, abs=1e-7)


@pytest.mark.long
def test_a_driven_slider_crank_keeps_to_its_closure():
    """A drive leaves no error but that which the projection removes; the rod could flip.

    x = r cos w + (l² - r² sin² w)^½ for a crank of 0.1 m and a rod of 0.3 m.
    """
    pin, tip = [[0.0, 0, 0], [0, 0, 1], [1, 0, 0]], [[0.1, 0, 0]]
    rail = [[0.0, 0, 0], [1, 0, 0], [0, 0, 1]]
    reach = 0.05 + np.sqrt(0.09 - 0.01 * 0.75)
    mass = {"mass": 1.0, "inertia": (0.01, 0.01, 0.01)}
    parts = [
        Part(
            "crank",
            {"pin": pin, "tip": tip},
            quaternion=(np.cos(np.pi / 6), 0, 0, np.sin(np.pi / 6)),
            **mass,
        ),
        Part("slider", {"way": rail}, position=(reach, 0, 0), **mass),
    ]
    found = [
        Connection("hinge", joints.Hinge(), "ground.pin", "crank.pin"),
        Connection("rod", joints.Distance(0.3), "crank.tip", "slider.way"),
        Connection("rail", joints.Guide(), "ground.rail", "slider.way"),
        Connection("drive", joints.Angle(np.pi / 3), "ground.pin", "crank.pin"),
    ]
    system = System(parts, found, {"pin": pin, "rail": rail}, gravity=(0.0, -9.81, 0.0))

    def angle(t):
        return np.pi / 3 + 2 * np.pi * t - jnp.sin(2 * np.pi * t)

    times = jnp.linspace(0.0, 1.0, 101)
    motion = mechanism.simulate(system, times, drives={"drive": angle})
    w = np.asarray(angle(times))
    expected = 0.1 * np.cos(w) + np.sqrt(0.09 - 0.01 * np.sin(w) ** 2)
    np.testing.assert_allclose(motion.poses.position[:, 1, 0], expected, atol=1e-12)
    assert not motion.warnings()
