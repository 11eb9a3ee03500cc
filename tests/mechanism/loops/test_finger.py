"""Two four-bar fingers that a mimic joint couples: built in code, and read from a URDF file."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.mechanism import loops

planar = jg.mechanism.historical.planar
FINGER = jg.models.linkage_finger()
NAMES = FINGER.mechanism.coordinates
TIP = {"left": FINGER.tip, "right": FINGER.tip * jnp.array([1.0, -1.0, 1.0])}


@jax.jit
def closed(finger, crank):
    return loops.assemble(finger.mechanism, finger.start, {"left_crank": crank}).q


def tips(q):
    return [
        jg.rigid.body_point(FINGER.mechanism.tree, q, f"{side}_tip", TIP[side])[:2] for side in TIP
    ]


def drawn(crank):
    """The left finger by the closed form of a four-bar."""
    return planar.joints(FINGER.linkage, FINGER.crank_start + crank, -1)


def test_one_drive_moves_both_fingers():
    found = loops.mobility(FINGER.mechanism, FINGER.start)
    # Two four-bars of one degree of freedom each, and their coupling; a hinge in a plane needs two
    # equations.
    assert (found.degrees_of_freedom, found.rank, found.equations) == (1, 5, 11)
    assert found.redundant == {"left_pin": 3, "right_pin": 3}
    assert jnp.max(jnp.abs(loops.constraints(FINGER.mechanism, FINGER.start))) < 1e-15


def test_fingers_are_four_bars_and_mirrored():
    for crank in (-0.5, -0.2, 0.3):
        q = closed(FINGER, jnp.asarray(crank))
        np.testing.assert_allclose(q[3:], -q[:3], rtol=0, atol=1e-12)
        left, right = tips(q)
        np.testing.assert_allclose(left, drawn(crank).C, rtol=0, atol=1e-12)
        np.testing.assert_allclose(right, left * jnp.array([-1.0, 1.0]), rtol=0, atol=1e-12)
    # The gripper closes.
    wide, narrow = (tips(closed(FINGER, jnp.asarray(x)))[1][0] for x in (0.3, -0.2))
    assert wide > narrow > 0


@pytest.mark.long
def test_force_of_the_drive():
    """A force spreads the tips: torque of the drive by virtual work on the four-bar."""
    crank, push = jnp.asarray(-0.3), 20.0
    q = closed(FINGER, crank)

    def work(q):
        left, right = tips(q)
        return push * (right[0] - left[0])

    weight = jg.models.linkage_finger(gravity=(0.0, 0.0, 0.0)).mechanism
    still = jnp.zeros(6)
    drive = loops.inverse_dynamics(weight, q, still, {"left_crank": 0.0}, jax.grad(work)(q))
    lever = jax.grad(lambda x: drawn(x).C[0])(crank)
    np.testing.assert_allclose(drive.torques[0], 2 * push * lever, rtol=1e-10)


@pytest.mark.soak
def test_lengths_have_derivatives():
    """Of the closed tips with respect to the lengths, against central differences."""
    lengths = jnp.array([0.06, 0.032, 0.058, 0.035])

    def tip(lengths):
        finger = jg.models.linkage_finger(lengths=lengths)
        q = closed(finger, jnp.asarray(-0.3))
        return jg.rigid.body_point(finger.mechanism.tree, q, "left_tip", finger.tip)[:2]

    h = 1e-5
    central = jnp.stack(
        [(tip(lengths + h * d) - tip(lengths - h * d)) / (2 * h) for d in jnp.eye(4)], axis=1
    )
    np.testing.assert_allclose(jax.jacfwd(tip)(lengths), central, rtol=0, atol=1e-6)


def test_impossible_fingers():
    with pytest.raises(ValueError, match="lengths of the finger has the shape"):
        jg.models.linkage_finger(lengths=(0.06, 0.03))
    with pytest.raises(ValueError, match=r"A four-bar with the crank 0\.5 never closes"):
        jg.models.linkage_finger(lengths=(0.5, 0.03, 0.05, 0.03))
    with pytest.raises(ValueError, match="does not close at the crank angle"):
        jg.models.linkage_finger(crank_start=2.5)


def as_files(folder):
    """The finger as a URDF file, with its loops beside it."""
    tree = FINGER.mechanism.tree
    parts = ['<robot name="finger"><link name="palm"/>']
    for i, name in enumerate(tree.names):
        (ixx, iyy, izz), com = jnp.diagonal(tree.inertia[i]), tree.com[i]
        yaw = np.arctan2(tree.rotation[i, 1, 0], tree.rotation[i, 0, 0])
        parent = "palm" if tree.parents[i] < 0 else tree.names[tree.parents[i]]
        mimic = '<mimic joint="left_crank_joint" multiplier="-1"/>' if name == "right_crank" else ""
        parts.append(
            f"""
            <link name="{name}"><inertial>
              <origin xyz="{com[0]} {com[1]} {com[2]}"/><mass value="{tree.mass[i]}"/>
              <inertia ixx="{ixx}" ixy="0" ixz="0" iyy="{iyy}" iyz="0" izz="{izz}"/>
            </inertial></link>
            <joint name="{name}_joint" type="revolute">
              <parent link="{parent}"/><child link="{name}"/><axis xyz="0 0 1"/>
              <origin xyz="{" ".join(str(x) for x in tree.translation[i])}" rpy="0 0 {yaw}"/>
              <limit lower="-1.5" upper="1.5" effort="2" velocity="5"/>{mimic}
            </joint>"""
        )
    path = folder / "finger.urdf"
    path.write_text("".join([*parts, "</robot>"]))
    loops = [
        f"""
        [[loop]]
        name = "{side}_pin"
        joint = "hinge"
        first = "{side}_rocker"
        second = "{side}_tip"
        first_points = [[0.058, 0, 0], [0.058, 0, 1]]
        second_points = [[0.032, 0, 0], [0.032, 0, 1]]
        """
        for side in TIP
    ]
    (folder / "finger.loops.toml").write_text("".join(loops))
    return path


def test_the_same_finger_from_files(tmp_path):
    robot = loops.read_urdf(as_files(tmp_path), gravity=(0.0, -9.81, 0.0))
    assert robot.file.ignored == ()
    assert robot.file.joints == tuple(f"{name}_joint" for name in NAMES)
    assert robot.mechanism.coordinates == NAMES
    q, qd = closed(FINGER, jnp.asarray(-0.3)), jnp.zeros(6)
    tau = jnp.zeros(6).at[0].set(0.1)
    ours = loops.forward_dynamics(FINGER.mechanism, q, qd, tau)[0]
    read = loops.forward_dynamics(robot.mechanism, q, qd, tau)[0]
    np.testing.assert_allclose(read, ours, rtol=1e-9)
    found = loops.mobility(robot.mechanism, q)
    assert found.degrees_of_freedom == 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"hinge"', '"hing"', "loop 'left_pin': there is no kind of joint 'hing'; perhaps 'hinge'"),
        ("left_tip", "left_top", "loop 'left_pin': There is no link 'left_top'; perhaps"),
        ("second_points", "second_point", "loop 'left_pin': needs 'second_points'"),
        ('"hinge"', '"hinge"\nlength = 1', "there is no key 'length'; allowed are name, joint"),
        ('"hinge"', '"distance"', "a distance needs length"),
        ('"hinge"', '"angle"\nangle_deg = "a"', "angle_deg is 'a'; it must be a number"),
        ("[[loop]]", "[[loops]]", "there is no table 'loops'; perhaps 'loop'"),
        ("[[0.058, 0, 0], [0.058, 0, 1]]", "[[0.058, 0, 0]]", r"has 1 point\(s\); a Hinge needs 2"),
        ("[[0.058, 0, 0], [0.058, 0, 1]]", "[1, 2]", r"have the shape \(2,\), not \(k, 3\)"),
        ("[[loop]]", "[[loop", "is not valid TOML"),
    ],
)
def test_loops_that_cannot_be_read(tmp_path, old, new, message):
    path = as_files(tmp_path)
    beside = tmp_path / "finger.loops.toml"
    beside.write_text(beside.read_text().replace(old, new, 1))
    with pytest.raises(ValueError, match=rf"finger\.loops\.toml: .*{message}"):
        loops.read_urdf(path)


def test_a_loop_of_the_base(tmp_path):
    """The base link is the base; a distance with its number."""
    path = as_files(tmp_path)
    rope = tmp_path / "held.toml"
    rope.write_text(
        """
        [[loop]]
        name = "stay"
        joint = "distance"
        length = 0.1
        first = "palm"
        second = "left_tip"
        first_points = [[0, 0, 0]]
        second_points = [[0, -0.06, 0]]
        """
    )
    (loop,) = loops.read_urdf(path, rope).mechanism.loops
    assert loop.first is None
    assert float(loop.joint.length) == 0.1


def test_angles_of_loops_are_given_in_degrees(tmp_path):
    path = as_files(tmp_path)
    stop = tmp_path / "stop.toml"
    stop.write_text(
        """
        [[loop]]
        name = "stop"
        joint = "angle"
        angle_deg = 30
        first = "palm"
        second = "left_tip"
        first_points = [[0, 0, 0], [0, 0, 1], [1, 0, 0]]
        second_points = [[0, 0, 0], [0, 0, 1], [1, 0, 0]]
        """
    )
    (loop,) = loops.read_urdf(path, stop).mechanism.loops
    np.testing.assert_allclose(loop.joint.angle, np.pi / 6, rtol=1e-15)
