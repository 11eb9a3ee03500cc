"""MJCF files: against MuJoCo itself."""

import os
import sys

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxgrip as jg

ARM = """
<mujoco>
  <default>
    <joint damping="0.3" armature="0.1"/>
    <default class="finger"><joint damping="0.05" armature="0.01" frictionloss="0.2"/></default>
  </default>
  <worldbody>
    <body name="arm" pos="0 0 .1" euler="0 40 0">
      <joint name="turn" axis="1 1 0" pos=".1 .2 .3" ref="40" stiffness="2" springref="20"
        range="-100 100"/>
      <joint name="lift" type="slide" axis="0 1 1" ref=".2" stiffness="3" springref=".3"/>
      <geom size=".1" pos=".1 0 0"/>
      <body name="plate" pos=".1 0 0" euler="10 0 0">
        <geom size=".05"/>
        <body name="hand" pos="0 0 .2">
          <joint name="wrist" type="ball" pos=".01 .02 .03" stiffness="1.5"/>
          <geom type="capsule" size=".05 .2" pos=".1 0 .1"/>
          <body name="left" pos="0 .1 .2" childclass="finger">
            <joint name="left"/><geom size=".03" pos="0 0 .1"/>
          </body>
          <body name="right" pos="0 -.1 .2" childclass="finger">
            <joint name="right" ref="10"/><geom size=".03" pos="0 0 .1"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
SCENE = """
<mujoco>
  <include file="arm.xml"/>
  <option gravity="0.5 -0.3 -9.81"/>
  <worldbody>
    <body name="box" pos="1 2 3" euler="10 20 30">
      <freejoint name="loose"/><geom type="box" size=".1 .2 .3"/>
    </body>
    <body name="post"><geom size=".1"/>
      <body name="lever" pos="0 0 1"><joint name="lever"/><geom size=".1" pos=".1 0 0"/></body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="cord" stiffness="4" springlength=".7" damping=".2" armature=".3">
      <joint joint="turn" coef="2"/></fixed>
    <fixed name="pair" stiffness="4"><joint joint="left" coef="1"/><joint joint="right" coef="1"/>
      </fixed>
  </tendon>
  <equality>
    <joint name="mimic" joint1="right" joint2="left" polycoef="0.1 -2 0 0 0"/>
    <joint name="bent" joint1="lever" joint2="left" polycoef="0 1 3 0 0"/>
    <joint name="held" joint1="lift" polycoef="0.05 0 0 0 0"/>
    <connect name="pin" body1="hand" body2="box" anchor="0 0 0"/>
  </equality>
  <actuator>
    <motor joint="turn" gear="5" ctrlrange="-2 3" ctrllimited="true"/>
    <position joint="left" kp="7" forcerange="-4 3"/>
  </actuator>
</mujoco>
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "arm.xml").write_text(ARM)
    found = tmp_path / "scene.xml"
    found.write_text(SCENE)
    return found


def theirs(path):
    """Model and data of MuJoCo in motion, without constraints, and without the tendon of two."""
    model = mujoco.MjModel.from_xml_path(str(path))
    bits = mujoco.mjtDisableBit
    model.opt.disableflags |= int(bits.mjDSBL_CONSTRAINT | bits.mjDSBL_ACTUATION)
    model.tendon_stiffness[model.tendon_num > 1] = 0.0
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    mujoco.mj_integratePos(model, data.qpos, rng.normal(size=model.nv), 1.0)
    data.qvel[:], data.qfrc_applied[:] = rng.normal(size=(2, model.nv))
    mujoco.mj_forward(model, data)
    mass = np.zeros((model.nv, model.nv))
    for column, unit in zip(mass, np.eye(model.nv), strict=True):
        mujoco.mj_mulM(model, data, column, unit)
    return model, data, mass


def without_friction(tree):
    """The tree without dry friction, which MuJoCo has as a constraint."""
    passive = {key: x for key, x in vars(tree.passive).items() if "friction" not in key}
    return jg.rigid.with_passive(tree, **passive)


def test_all_trees_in_one_as_in_mujoco(path):
    file = jg.rigid.read_mjcf(path)
    model, data, mass = theirs(path)
    tree = without_friction(file.tree)
    q, qd, tau = map(jnp.array, (data.qpos, data.qvel, data.qfrc_applied))
    np.testing.assert_array_equal(file.start, model.qpos0)
    np.testing.assert_allclose(jg.rigid.crba(tree, q), mass, rtol=0, atol=1e-12)
    bias = data.qfrc_bias - data.qfrc_passive
    found = jg.rigid.bias_forces(tree, q, qd)
    np.testing.assert_allclose(found, bias, rtol=0, atol=1e-12 * np.abs(bias).max())
    found = jg.rigid.forward_dynamics(tree, q, qd, tau)
    np.testing.assert_allclose(found, data.qacc, rtol=0, atol=1e-10 * np.abs(data.qacc).max())
    for name in ("hand", "plate", "right", "box", "lever", "post"):
        point = file.in_body(name, [[0.1, -0.2, 0.3]])[0]
        body = file.body(name)
        place = data.body(name).xpos + data.body(name).xmat.reshape(3, 3) @ [0.1, -0.2, 0.3]
        found = point if body is None else jg.rigid.body_point(tree, q, body, point)
        np.testing.assert_allclose(found, place, rtol=0, atol=1e-12)
    friction = tree.rates_of("left") + tree.rates_of("right")
    np.testing.assert_array_equal(np.flatnonzero(file.friction), friction)


def test_one_tree_of_several(path):
    """The gripper without the loose box; its mass matrix is a block of the whole one."""
    model, data, mass = theirs(path)
    file = jg.rigid.read_mjcf(path, robot="arm")
    first, last = model.joint("turn").dofadr[0], model.joint("right").dofadr[0]
    assert (first, last) == (0, 6)
    place = model.joint("loose").qposadr[0]
    q = jnp.array(data.qpos[:place])
    assert file.tree.nq == place
    np.testing.assert_allclose(jg.rigid.crba(file.tree, q), mass[:7, :7], rtol=0, atol=1e-12)
    assert "Other trees of the file are not used: box, lever." in file.ignored
    assert any("'pin' is with another tree" in said for said in file.ignored)
    # What a tree stands on, and the beginning of a name.
    assert jg.rigid.read_mjcf(path, robot="post").joints == ("lever",)
    assert jg.rigid.read_mjcf(path, robot="lev").joints == ("lever",)
    for name in ("amr", "plate", ""):
        with pytest.raises(ValueError, match=r"scene\.xml: there is no tree with the root"):
            jg.rigid.read_mjcf(path, robot=name)


def test_numbers_and_what_is_not_used(path):
    file = jg.rigid.read_mjcf(path)
    turn, left = file.joints.index("turn"), file.joints.index("left")
    np.testing.assert_allclose(file.upper[turn], np.deg2rad(100), rtol=1e-14)
    np.testing.assert_array_equal(file.effort[jnp.array([turn, left])], [15, 4])
    # Of the tendon with ratio 2, by virtual work.
    np.testing.assert_allclose(file.damping[turn], 0.3 + 4 * 0.2, rtol=1e-14)
    (mimic,) = file.mimics
    assert (mimic.follower, mimic.leader, float(mimic.ratio)) == ("right", "left", -2)
    # In MuJoCo both are measured from the position of the file.
    np.testing.assert_allclose(mimic.offset, 0.1 + np.deg2rad(10), rtol=1e-14)
    assert set(file.ignored) == {
        "The file's shapes for looks and contact (8) are not used.",
        "The file's actuators (2) are not used but for their limits of force.",
        "The file has 3 trees in one, arm, box, lever; `robot` reads one of them alone.",
        "Tendons are used only if fixed to one joint; not used: pair.",
        "The equality 'bent' of joint 'lever' is not linear in 'left' and not used.",
        "The equality 'held', which holds joint 'lift' at 0.25, is not used in a tree; `lock` "
        "holds it.",
        "The equality 'pin' of 'hand' and 'box' is not used in a tree; mechanism.loops.read_mjcf "
        "closes a loop by it.",
        "Inertia of links fixed to the base 'world' is not used: post.",
        "Joints that mimic others move by themselves in a tree; mechanism.loops.read_mjcf couples "
        "them: right.",
    }


def test_a_joint_held_by_an_equality(tmp_path):
    path = tmp_path / "held.xml"
    path.write_text(
        """<mujoco><worldbody><body><joint name="a" ref="30"/><geom size=".1" pos=".1 0 0"/>
        <body><joint name="b"/><geom size=".1" pos=".1 0 0"/></body></body></worldbody>
        <equality><joint name="held" joint1="a" polycoef=".2 0 0 0 0"/></equality></mujoco>"""
    )
    mechanism = jg.mechanism.loops.read_mjcf(path).mechanism
    missed = jg.mechanism.loops.constraints(mechanism, jnp.array([1.0, 0.4]))
    np.testing.assert_allclose(missed, [1.0 - 0.2 - np.deg2rad(30)], rtol=0, atol=1e-15)


def test_what_a_file_switches_off(path):
    flags = '<flag gravity="disable" spring="disable" damper="disable" limit="disable"/>'
    text = SCENE.replace('-9.81"/>', f'-9.81">{flags}</option>')
    path.write_text(text.replace('name="box"', 'name="box" gravcomp="1"'))
    file = jg.rigid.read_mjcf(path)
    np.testing.assert_array_equal(file.tree.gravity, np.zeros(3))
    assert not np.any(file.damping)
    assert file.tree.passive.stiffness is None
    assert not np.isfinite(file.upper).any()
    assert "Compensation of gravity is not used." in file.ignored


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('file="arm.xml"', 'file="leg.xml"', "leg.xml"),
        ('file="arm.xml"', 'file="scene.xml"', ""),
        ("</mujoco>", "", "XML"),
        ('joint1="right"', 'joint1="write"', "write"),
    ],
)
def test_files_that_cannot_be_read(path, old, new, message):
    assert old in SCENE
    path.write_text(SCENE.replace(old, new))
    with pytest.raises(ValueError, match=rf"scene\.xml: .*{message}"):
        jg.rigid.read_mjcf(path)


def test_without_mujoco(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(ImportError, match="needs the package mujoco: pip install"):
        jg.rigid.read_mjcf("robot.xml")


def test_pipes_and_devices_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.xml")
    for path in (tmp_path / "pipe.xml", "/dev/zero"):
        with pytest.raises(ValueError, match="cannot be read: it is no file on a disk"):
            jg.rigid.read_mjcf(path)
