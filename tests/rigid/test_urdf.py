"""URDF files: against Pinocchio (tests/reference/urdf_pinocchio.py), and what they may not be."""

import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxgrip as jg
from jaxgrip.mechanism import loops

PATH = Path(__file__).parent / "data" / "arm.urdf"
ARM = jg.rigid.read_urdf(PATH)
# Pinocchio's dynamics have neither damping nor friction.
IDEAL = jg.rigid.with_passive(ARM.tree)
Q = jnp.array([0.3, -2.0, 0.5, 0.1])
QD = jnp.array([0.7, -0.4, 1.1, 0.2])
QDD = jnp.array([0.5, 0.9, -0.3, 1.5])


def test_dynamics_of_pinocchio():
    tau = [-0.579105357359, 3.916660707165, -1.91949596361, 6.605867575069]
    np.testing.assert_allclose(jg.rigid.rnea(IDEAL, Q, QD, QDD), tau, rtol=0, atol=6e-13)
    upper = np.array(
        [
            [5.022490267852e-02, -4.409849047833e-03, -8.060296316489e-03, -3.709535792217e-02],
            [0, 8.618070744421e-02, 5.113482712888e-04, 1.387447011024e-01],
            [0, 0, 1.057483030607e-01, -1.070779062198e-02],
            [0, 0, 0, 9.000000000000e-01],
        ]
    )
    np.testing.assert_allclose(jnp.triu(jg.rigid.crba(ARM.tree, Q)), upper, rtol=0, atol=6e-13)
    # Forward dynamics, with a cross and a tool that have no mass.
    for dynamics in (jg.rigid.forward_dynamics, jg.rigid.aba):
        np.testing.assert_allclose(dynamics(IDEAL, Q, QD, jnp.array(tau)), QDD, rtol=0, atol=1e-9)


def test_damping_and_friction_are_part_of_the_dynamics():
    lost = jg.rigid.rnea(ARM.tree, Q, QD, QDD) - jg.rigid.rnea(IDEAL, Q, QD, QDD)
    speed = float(ARM.tree.passive.friction_speed[0])
    shoulder = 0.4 * 0.7 + 0.1 * np.tanh(0.7 / speed)
    np.testing.assert_allclose(lost, [shoulder, 0, 0, 0], rtol=0, atol=1e-14)


def test_frames_of_links():
    """Points of a link in the turned frame of its body."""
    corners = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    place = np.array([0.319917781371, 0.186629089548, 0.52560822265])
    turn = np.array(
        [
            [-0.906079758714, -0.235491404612, 0.351515674191],
            [0.012328606222, 0.815749035819, 0.578274602615],
            [-0.422927270718, 0.528296610736, -0.73623040875],
        ]
    )
    for link in ("tool", "slide"):
        points = ARM.in_body(link, corners)
        body = ARM.body(link)
        found = jax.vmap(lambda p, b=body: jg.rigid.body_point(ARM.tree, Q, b, p))(points)
        axes = (found[1:] - found[0][None]).T
        np.testing.assert_allclose(axes.T @ axes, np.eye(3), rtol=0, atol=1e-12)
        if link == "tool":
            np.testing.assert_allclose(found[0], place, rtol=0, atol=6e-12)
            np.testing.assert_allclose(axes, turn, rtol=0, atol=2e-12)
    np.testing.assert_array_equal(ARM.in_body("stand", corners), corners)
    with pytest.raises(ValueError, match="There is no link 'tol'; perhaps 'tool'"):
        ARM.in_body("tol", corners)


def test_numbers_of_joints():
    assert ARM.joints == ("shoulder", "elbow_yaw", "elbow_pitch", "extend")
    infinite = np.inf
    np.testing.assert_array_equal(ARM.lower, [-1.2, -infinite, -1, 0])
    np.testing.assert_array_equal(ARM.upper, [2.1, infinite, 1, 0.2])
    np.testing.assert_array_equal(ARM.velocity, [3, infinite, 4, 0.5])
    np.testing.assert_array_equal(ARM.effort, [30, infinite, 20, 50])
    np.testing.assert_array_equal(ARM.damping, [0.4, 0, 0, 0])
    np.testing.assert_array_equal(ARM.friction, [0.1, 0, 0, 0])
    (mimic,) = ARM.mimics
    assert (mimic.follower, mimic.leader) == ("extend", "elbow_pitch")
    assert (float(mimic.ratio), float(mimic.offset)) == (0.1, 0.05)


def test_mimic_couples():
    mechanism = loops.read_urdf(PATH).mechanism
    missed = loops.constraints(mechanism, Q)
    np.testing.assert_allclose(missed, [0.1 - 0.1 * 0.5 - 0.05], rtol=0, atol=1e-15)
    assert mechanism.couplings[0].name == "extend"


def test_everything_that_is_not_used_is_named():
    assert set(ARM.ignored) == {
        "<material> (a colour) is not used: the robot 'arm'.",
        "<gazebo> (settings of another simulator) is not used: the robot 'arm'.",
        "<axis> (the joint is fixed) is not used: joint 'flange'.",
        "<visual> (the appearance of a link) is not used: link 'stand', link 'upper'.",
        "<collision> (the shape of a link for contact) is not used: link 'upper'.",
        "<sensor> (unknown) is not used: link 'slide'.",
        "The attribute 'stiffness' of <dynamics> is not used: joint 'shoulder'.",
        "<safety_controller> (limits of a controller) is not used: joint 'elbow_pitch'.",
        "<dinamics> (unknown, perhaps <dynamics>?) is not used: joint 'tip'.",
        "The inertia of the base link 'stand' is not used: it is fixed to the ground.",
        "Joints that mimic others move by themselves in a tree; mechanism.loops.read_urdf couples "
        "them: extend.",
    }
    (alone,) = set(ARM.ignored) - set(loops.read_urdf(PATH).file.ignored)
    assert alone.startswith("Joints that mimic")
    kinds = ["<gazebo>", "<visual>", "<collision>", "<safety_controller>"]
    assert [each.split()[0] for each in ARM.ignored[-5:]] == ["<material>", *kinds]


def test_the_inertia_of_a_base_without_mass_is_named(tmp_path):
    text = PATH.read_text()
    start = text.index("<mass", text.index('<link name="stand"'))
    end = text.index("/>", start)
    path = tmp_path / "base.urdf"
    path.write_text(f'{text[:start]}<mass value="0"{text[end:]}')
    assert any("base link 'stand'" in sentence for sentence in jg.rigid.read_urdf(path).ignored)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('type="continuous"', 'type="gimbal"', "joint 'elbow_yaw' is of the unknown type 'gimbal'"),
        ('type="continuous"', 'type="revolute"', "joint 'elbow_yaw': needs <limit>"),
        ('lower="-1.2"', 'lower="3"', "joint 'shoulder': its lower limit 3 is above its upper one"),
        ('damping="0.4"', 'damping="-1"', "joint 'shoulder': 'damping' is -1; it must not be neg"),
        ('xyz="0.1 0.2 0.3"', 'xyz="0.1 0.2"', "joint 'shoulder': 'xyz' of <origin> is '0.1 0.2'"),
        ('value="2.5"', 'value="heavy"', "link 'upper': 'value' of <mass> is 'heavy'; it must be"),
        ('value="2.5"', 'value="1_000"', "link 'upper': 'value' of <mass> is '1_000'; it must"),
        ('value="2.5"', 'value="-1"', "mass of body 'upper' is -1 kg"),
        ('value="2.5"', "", "link 'upper': <mass> needs 'value'"),
        ('ixy="0.001"', "", "link 'upper': <inertia> needs 'ixy'"),
        ('<mass value="2.5"/>', "", "link 'upper': <inertial> needs <mass>"),
        ('<child link="fore"/>', '<child link="four"/>', "joint 'elbow_pitch' has no link 'four'"),
        ('<child link="fore"/>', "", "joint 'elbow_pitch': needs <child link="),
        ('<child link="fore"/>', '<child link="upper"/>', "link 'upper' is the child of joint"),
        ('parent link="stand"', 'parent link="fore"', "has the bases stand, upper|form a ring"),
        ('mimic joint="elbow_pitch"', 'mimic joint="extend"', "joint 'extend': mimics itself"),
        ('axis xyz="0 -1 0"', 'axis xyz="0 0 0"', "joint 'elbow_yaw': has an axis of length zero"),
        ('<link name="tool"/>', '<link name="fore"/>', "link 'fore': there are two of this name"),
        ('<link name="tool"/>', "<link/>", "a <link>: has no name"),
        ('<robot name="arm">', '<robot name="${arm}">', "has macros; expand them first"),
        ("</robot>", "", "is not valid XML"),
        ("robot", "sdf", "has the root <robot>, this one has <sdf>"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, old, new, message):
    text = PATH.read_text()
    assert old in text
    path = tmp_path / "bad.urdf"
    path.write_text(text.replace(old, new) if old == "robot" else text.replace(old, new, 1))
    for strict in (False, True):
        with pytest.raises(ValueError, match=rf"bad\.urdf: .*({message})"):
            jg.rigid.read_urdf(path, strict)


@pytest.mark.parametrize(
    ("old", "new", "refused", "said"),
    [
        (
            'ixx="0.02"',
            'ixx="0.2"',
            "Body 'upper' has an inertia that no body can have: its largest principal value",
            "Body 'upper' has an inertia that no body can have: its largest principal value",
        ),
        (
            'mimic joint="elbow_pitch"',
            'mimic joint="tip"',
            "joint 'extend': mimics no joint that moves 'tip'",
            "The <mimic> of joint 'extend' is not used, since it mimics no joint that moves 'tip'",
        ),
        (
            'mimic joint="elbow_pitch"',
            'mimic joint="elbow_patch"',
            "joint 'extend': mimics no joint that moves 'elbow_patch'; perhaps 'elbow_pitch'",
            "The <mimic> of joint 'extend' is not used, since it mimics no joint that moves",
        ),
    ],
)
def test_what_is_refused_only_when_asked(tmp_path, old, new, refused, said):
    path = tmp_path / "odd.urdf"
    path.write_text(PATH.read_text().replace(old, new, 1))
    read = jg.rigid.read_urdf(path)
    assert read.joints == ARM.joints
    assert any(sentence.startswith(said) for sentence in (*read.repaired, *read.ignored))
    with pytest.raises(ValueError, match=refused):
        jg.rigid.read_urdf(path, strict=True)


def test_a_mimic_without_numbers_does_the_same(tmp_path):
    """The ratio is one and the offset zero where a file gives none."""
    path = tmp_path / "same.urdf"
    path.write_text(PATH.read_text().replace(' multiplier="0.1" offset="0.05"', ""))
    (mimic,) = jg.rigid.read_urdf(path).mimics
    assert (float(mimic.ratio), float(mimic.offset)) == (1.0, 0.0)


def test_mimics_of_mimics(tmp_path):
    """A chain is one; a circle would hold its joints still and has a sentence."""
    text = PATH.read_text()
    limit = '<limit lower="-1.2"'
    assert text.count(limit) == 1
    path = tmp_path / "chain.urdf"
    path.write_text(text.replace(limit, f'<mimic joint="extend" multiplier="2"/>{limit}'))
    mechanism = loops.read_urdf(path).mechanism
    q = jnp.array([2 * 0.08, 0.4, 0.3, 0.08])
    np.testing.assert_allclose(loops.constraints(mechanism, q), [0, 0], rtol=0, atol=1e-15)
    circle = text.replace(limit, f'<mimic joint="extend"/>{limit}').replace(
        'mimic joint="elbow_pitch"', 'mimic joint="shoulder"'
    )
    path.write_text(circle)
    with pytest.raises(ValueError, match="'shoulder', 'extend' mimic each other in a circle"):
        jg.rigid.read_urdf(path)


def test_encodings_and_comments_of_files(tmp_path):
    """What a file says of itself, and macros that only a comment has."""
    body = PATH.read_text().split("?>")[-1].replace("<robot", "<!-- ${é} --><robot", 1)
    for encoding in ("utf-8", "iso-8859-1"):
        path = tmp_path / "arm.urdf"
        path.write_bytes(f'<?xml version="1.0" encoding="{encoding}"?>{body}'.encode(encoding))
        assert jg.rigid.read_urdf(path).joints == ARM.joints


def _chain(path, count):
    """Bars of 1 kg and 1 m whose joints turn about y, each but the first like the one before."""
    inertia = '<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>'
    mimic = '<mimic joint="j{}"/>'
    links = [
        f'<link name="l{i}"><inertial><mass value="1"/>{inertia}</inertial></link>'
        f'<joint name="j{i}" type="continuous"><parent link="l{i - 1}"/><child link="l{i}"/>'
        f'<origin xyz="1 0 0"/><axis xyz="0 1 0"/>'
        f"{mimic.format(i - 1) if i > 1 else ''}</joint>"
        for i in range(1, count + 1)
    ]
    path.write_text(f'<robot name="chain"><link name="l0"/>{"".join(links)}</robot>')
    return path


@pytest.mark.long
def test_long_chains_take_seconds(tmp_path):
    start = time.perf_counter()
    read = jg.rigid.read_urdf(_chain(tmp_path / "long.urdf", 3000))
    assert time.perf_counter() - start < 20.0
    assert (read.tree.n, len(read.mimics)) == (3000, 2999)
    # All frames have y along their z axis; the origins are a metre apart along the link's x.
    axes = np.asarray(read.tree.frames.rotation[1:]).transpose(0, 2, 1)
    np.testing.assert_allclose(axes[:, :, 2], np.tile([0, 1, 0], (3000, 1)), atol=1e-15)
    along = np.einsum("bij,bj->bi", axes[:-1], read.tree.translation[1:])
    np.testing.assert_allclose(along, np.tile([1.0, 0, 0], (2999, 1)), rtol=0, atol=1e-15)
    with pytest.raises(ValueError, match=r"has 10,001 joints; at most 10,000 are read"):
        jg.rigid.read_urdf(_chain(tmp_path / "longer.urdf", 10_001))


def test_pipes_and_devices_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ValueError, match="cannot be read: it is no file on a disk"):
            jg.rigid.read_urdf(path)
        with pytest.raises(ValueError, match="cannot be read: it is no file on a disk"):
            loops.read_urdf(PATH, loops=path)
    arm = tmp_path / "arm.urdf"
    arm.write_text(PATH.read_text())
    os.mkfifo(tmp_path / "arm.loops.toml")
    with pytest.raises(ValueError, match=r"arm\.loops\.toml: cannot be read: it is no file"):
        loops.read_urdf(arm)


def test_no_file():
    with pytest.raises(ValueError, match="cannot be read"):
        jg.rigid.read_urdf("nowhere.urdf")
