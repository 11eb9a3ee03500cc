"""MJCF files: against MuJoCo itself."""

import os
import sys

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxgrip as jg

# Bodies with two joints off their origin, rotated frames, a loop of each kind and a coupling.
MODEL = """
<mujoco>
  <option gravity="0.5 -0.3 -9.81"/>
  <worldbody>
    <geom type="plane" size="1 1 .1"/>
    <body name="arm" pos="0.1 0.2 0.3" euler="20 -30 40">
      <joint name="yaw" axis="0.6 0 0.8" pos="0.05 0 0.02" damping="0.3" range="-60 90"/>
      <joint name="lift" type="slide" axis="0 1 1" pos="0 0.1 0" frictionloss="0.2"/>
      <joint name="roll" axis="1 0 0" pos="0 0.1 0.04" armature="0.01"/>
      <geom type="box" size="0.1 0.05 0.03" pos="0.1 0.02 0.03" euler="10 20 30"/>
      <body name="bracket" pos="0.2 0 0" euler="0 0 30">
        <geom type="box" size="0.02 0.05 0.03"/>
        <body name="finger" pos="0.1 0 0.05">
          <joint name="bend" axis="0 1 0" pos="0 0 -0.02"/>
          <geom type="capsule" size="0.02 0.06" pos="0 0 0.06"/>
        </body>
      </body>
    </body>
    <body name="post" pos="-0.3 0 0.2">
      <joint name="swing" axis="0 0 1"/>
      <geom type="box" size="0.02 0.02 0.2" pos="0.05 0 0.1"/>
    </body>
  </worldbody>
  <equality>
    <connect name="pin" body1="finger" body2="post" anchor="0 0.01 0.1"/>
    <connect name="foot" body1="post" anchor="0 0 0.3"/>
    <weld name="glue" body1="arm" body2="post"/>
    <joint name="mimic" joint1="bend" joint2="swing" polycoef="0.1 -2 0 0 0"/>
    <connect name="off" body1="arm" body2="post" anchor="0 0 0" active="false"/>
  </equality>
  <actuator><motor joint="yaw"/></actuator>
</mujoco>
"""


@pytest.fixture
def robot(tmp_path):
    path = tmp_path / "robot.xml"
    path.write_text(MODEL)
    return jg.mechanism.loops.read_mjcf(path)


def test_tree_of_mujoco(robot):
    model = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(model)
    q = np.array([0.4, 0.1, -0.7, 0.9, 0.3])
    qd = np.array([0.5, -0.2, 1.0, 0.7, -0.6])
    data.qpos[:], data.qvel[:] = q, qd
    mujoco.mj_forward(model, data)
    whole = np.zeros((5, 5))
    for column, unit in zip(whole, np.eye(5), strict=True):
        mujoco.mj_mulM(model, data, column, unit)
    tree = robot.file.tree
    assert robot.file.joints == ("yaw", "lift", "roll", "bend", "swing")
    np.testing.assert_allclose(jg.rigid.crba(tree, jnp.array(q)), whole, rtol=0, atol=1e-12)
    # MuJoCo has damping apart from gravity, centrifugal and Coriolis forces, and friction nowhere.
    bias = jg.rigid.bias_forces(tree, jnp.array(q), jnp.array(qd))
    friction = jnp.zeros(5).at[1].set(0.2 * jnp.tanh(-0.2 / tree.passive.friction_speed[1]))
    theirs = data.qfrc_bias - data.qfrc_passive
    np.testing.assert_allclose(bias - friction, theirs, rtol=0, atol=1e-11)
    np.testing.assert_allclose(data.qfrc_passive, [-0.3 * 0.5, 0, 0, 0, 0], rtol=0, atol=1e-15)
    for name in ("arm", "bracket", "finger", "post"):
        point = robot.file.in_body(name, [[0.1, -0.2, 0.3]])[0]
        found = jg.rigid.body_point(tree, jnp.array(q), robot.file.body(name), point)
        place = data.body(name).xpos + data.body(name).xmat.reshape(3, 3) @ [0.1, -0.2, 0.3]
        np.testing.assert_allclose(found, place, rtol=0, atol=1e-12)


def test_equalities_of_mujoco(robot):
    """Constraints of MuJoCo, in which quaternion vectors are half of ours."""
    model = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(model)
    q = np.array([0.05, 0.01, -0.07, 0.04, 0.02])
    data.qpos[:] = q
    mujoco.mj_forward(model, data)
    missed = jg.mechanism.loops.constraints(robot.mechanism, jnp.array(q))
    sizes = {}
    for loop in robot.mechanism.loops:
        k = sum(sizes.values())
        sizes[loop.name] = loop.joint.equations
        theirs = data.efc_pos[data.efc_id == model.equality(loop.name).id][:3]
        ours = missed[k : k + 3]
        np.testing.assert_allclose(
            jnp.linalg.norm(ours), np.linalg.norm(theirs), rtol=0, atol=1e-12
        )
    assert sizes == {"pin": 3, "foot": 3, "glue": 6}
    turn = missed[9:12]
    theirs = data.efc_pos[data.efc_id == model.equality("glue").id][3:]
    np.testing.assert_allclose(
        jnp.linalg.norm(turn), 2 * np.linalg.norm(theirs), rtol=0, atol=1e-10
    )
    np.testing.assert_allclose(missed[12], q[3] - 0.1 + 2 * q[4], rtol=0, atol=1e-15)
    # All are satisfied in the position of the file but for the offset of the coupling.
    start = jax.jit(jg.mechanism.loops.constraints)(robot.mechanism, jnp.zeros(5))
    np.testing.assert_allclose(start, [0.0] * 12 + [-0.1], rtol=0, atol=1e-12)


def test_numbers_and_what_is_not_used(robot):
    file = robot.file
    np.testing.assert_allclose(file.lower, [-np.pi / 3, *[-np.inf] * 4])
    np.testing.assert_allclose(file.upper, [np.pi / 2, *[np.inf] * 4])
    np.testing.assert_array_equal(file.damping, [0.3, 0, 0, 0, 0])
    np.testing.assert_array_equal(file.friction, [0, 0.2, 0, 0, 0])
    assert set(file.ignored) == {
        "The file's shapes for looks and contact (5) are not used.",
        "The file's actuators (1) are not used but for their limits of force.",
        "The file has 2 trees in one, arm, post; `robot` reads one of them alone.",
        "The equality 'off' is not active and not used.",
    }


def test_what_a_file_switches_off(tmp_path):
    path = tmp_path / "off.xml"
    option = '<option density="1.2"><flag gravity="disable" equality="disable"/></option>'
    text = MODEL.replace('<option gravity="0.5 -0.3 -9.81"/>', option)
    path.write_text(text.replace('name="post"', 'name="post" gravcomp="1"'))
    robot = jg.mechanism.loops.read_mjcf(path)
    np.testing.assert_array_equal(robot.mechanism.tree.gravity, np.zeros(3))
    assert robot.mechanism.m == 0
    assert {
        "Compensation of gravity is not used.",
        "Forces of a fluid are not used.",
        "The equality 'glue' is not active and not used.",
    } <= set(robot.file.ignored)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'name="roll" axis="1 0 0"',
            'name="roll" type="ball"',
            "joint 'roll' is ball; only hinges",
        ),
        ("0.1 -2 0 0 0", "0.1 -2 1 0 0", "the equality 'mimic' of joint 'bend' is not linear"),
        ("</mujoco>", "", "XML"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, old, new, message):
    path = tmp_path / "bad.xml"
    path.write_text(MODEL.replace(old, new))
    with pytest.raises(ValueError, match=rf"bad\.xml: .*{message}"):
        jg.mechanism.loops.read_mjcf(path)


def test_without_mujoco(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ImportError, match="needs the package mujoco: pip install"):
        jg.mechanism.loops.read_mjcf("robot.xml")


def test_pipes_and_devices_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.xml")
    for path in (tmp_path / "pipe.xml", "/dev/zero"):
        with pytest.raises(ValueError, match="cannot be read: it is no file on a disk"):
            jg.mechanism.loops.read_mjcf(path)
