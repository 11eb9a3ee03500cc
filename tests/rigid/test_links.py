"""Links of files made bodies: mergers and repairs against closed forms and another optimiser."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import nnls

import jaxgrip as jg
from jaxgrip.rigid._links import SLACK, Link, merged, projected

from .conftest import random_rotation

NONE = '<inertia ixx="0" ixy="0" ixz="0" iyy="0" iyz="0" izz="0"/>'
# Principal values are sums of two second moments, which no body has negative.
SUMS = np.ones((3, 3)) - np.eye(3)


def read(tmp_path, text, strict=False, name="robot"):
    path = tmp_path / "robot.urdf"
    path.write_text(f'<robot name="{name}">{text}</robot>')
    return jg.rigid.read_urdf(path, strict)


def link(name, mass=None, inertia=NONE, xyz="0 0 0"):
    if mass is None:
        return f'<link name="{name}"/>'
    return (
        f'<link name="{name}"><inertial><origin xyz="{xyz}"/><mass value="{mass}"/>{inertia}'
        "</inertial></link>"
    )


def joint(name, kind, parent, child, more=""):
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{more}'
        "</joint>"
    )


def diagonal(x, y, z):
    return f'<inertia ixx="{x}" ixy="0" ixz="0" iyy="{y}" iyz="0" izz="{z}"/>'


def test_the_closest_inertia():
    """The projection against non-negative least squares of the second moments."""
    rng = np.random.default_rng(1)
    changed = 0
    for _ in range(300):
        values = np.sort(rng.normal(0.3, 1.0, 3))
        axes = random_rotation(rng)
        found, distance = projected(axes @ np.diag(values) @ axes.T)
        moments, _ = nnls(SUMS, values)
        closest = SUMS @ moments
        np.testing.assert_allclose(found, axes @ np.diag(closest) @ axes.T, rtol=0, atol=1e-12)
        missed = np.linalg.norm(closest - values) / np.linalg.norm(values)
        np.testing.assert_allclose(distance, missed, rtol=0, atol=1e-12)
        changed += distance > 0
    assert 100 < changed < 300


def test_rounding_is_not_repaired():
    for values in ((1e-3, 1e-3, 0.0), (-2.5e-22, 1e-12, 1e-12), (0.4, 0.6, 1.0 + 0.5 * SLACK)):
        inertia = np.diag(values)
        found, distance = projected(inertia)
        assert distance == 0.0
        np.testing.assert_array_equal(found, inertia)


def test_merger_of_two_spheres():
    """A dumb-bell along x, of spheres of 2 and 1 kg with radius r, its frames turned."""
    r, rng = 0.1, np.random.default_rng(2)
    turn = random_rotation(rng)
    ball = 0.4 * r**2 * np.eye(3)
    place = np.array([0.3, 0.0, 0.0])
    one = Link("one", None, np.zeros(3), np.eye(3), 2.0, np.zeros(3), 2 * ball, "j", "revolute")
    two = Link("two", "one", place, turn, 1.0, np.zeros(3), ball)
    (body,), places, grounded, repaired, light = merged([one, two], "base", True)
    assert (grounded, repaired, light) == ([], [], [])
    np.testing.assert_allclose(body.com, [0.1, 0, 0], rtol=0, atol=1e-16)
    steiner = 2 * 0.1**2 + 1 * 0.2**2
    expected = 3 * ball + steiner * np.diag([0.0, 1, 1])
    np.testing.assert_allclose(body.inertia, expected, rtol=0, atol=1e-16)
    assert places["two"][0] == "one"
    np.testing.assert_array_equal(places["two"][1], turn)


@pytest.mark.parametrize("strict", [False, True])
def test_a_point_mass_and_frames_without_mass_are_sound(tmp_path, strict):
    """A pendulum whose mass is a point on a fixed link, with a frame at its end: g sin(q) / l."""
    text = link("base") + link("rod") + link("bob", 2.0, xyz="0 0 -0.4") + link("camera")
    text += joint("swing", "continuous", "base", "rod", '<axis xyz="0 1 0"/>')
    text += joint("weld", "fixed", "rod", "bob", '<origin xyz="0 0 -0.1"/>')
    text += joint("mount", "fixed", "bob", "camera", '<origin xyz="0 0 -0.4"/>')
    file = read(tmp_path, text, strict)
    assert (file.tree.n, file.tree.names, file.repaired) == (1, ("rod",), ())
    assert file.links == ("base", "rod", "bob", "camera")
    q = jnp.array([0.7])
    qdd = jg.rigid.forward_dynamics(file.tree, q, jnp.zeros(1), jnp.zeros(1))
    np.testing.assert_allclose(qdd, [-9.81 * np.sin(0.7) / 0.5], rtol=0, atol=1e-13)
    eye = file.in_body("camera", [[0.0, 0, 0]])[0]
    found = jg.rigid.body_point(file.tree, q, file.body("camera"), eye)
    expected = [-0.5 * np.sin(0.7), 0, -0.5 * np.cos(0.7)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)


def test_an_inertia_without_mass_is_merged(tmp_path):
    """As of a foot whose mass its file rounds to zero."""
    text = link("base") + link("leg", 1.0, diagonal(1, 1, 1)) + link("foot", 0, diagonal(1, 2, 3))
    text += joint("hip", "continuous", "base", "leg") + joint("sole", "fixed", "leg", "foot")
    file = read(tmp_path, text, strict=True)
    mass = jg.rigid.crba(file.tree, jnp.zeros(1))
    np.testing.assert_allclose(mass, [[2.0]], rtol=0, atol=1e-15)


def test_repairs_are_told_with_their_size(tmp_path):
    """3 > 1 + 1: a third of what is missing, 1, is added to two values and taken from the third."""
    text = link("base") + link("disc", 1.0, diagonal(1, 1, 3))
    text += joint("spin", "continuous", "base", "disc", '<axis xyz="0 0 1"/>')
    file = read(tmp_path, text)
    assert file.repaired == (
        "Body 'disc' has an inertia that no body can have: its largest principal value 3 exceeds "
        "the sum of the others 2 kg m^2; the closest one that a body can have is used, which "
        "differs by 17 % (Frobenius norm).",
    )
    np.testing.assert_allclose(
        jg.rigid.crba(file.tree, jnp.zeros(1)), [[8 / 3]], rtol=0, atol=1e-15
    )
    with pytest.raises(ValueError, match=r"robot\.urdf: Body 'disc' has an inertia that no body"):
        read(tmp_path, text, strict=True)
    # In a merger it is judged with what carries it, and may be sound there.
    text += link("hub", 1.0, diagonal(2, 2, 2)) + joint("bolts", "fixed", "disc", "hub")
    assert read(tmp_path, text, strict=True).repaired == ()
    negative = text.replace('ixx="2"', 'ixx="-9"')
    (said,) = read(tmp_path, negative).repaired
    assert "Body 'disc', 2 links together, has an inertia that is not positive definite" in said


@pytest.mark.parametrize("text", ["", link("base"), link("base", 1.0, diagonal(1, 1, 1))])
def test_robots_that_do_not_move(tmp_path, text):
    file = read(tmp_path, text)
    assert (file.tree.n, file.joints, file.links) == (0, (), ("base",))
    assert file.lower.shape == file.start.shape == (0,)
    assert jg.rigid.crba(file.tree, jnp.zeros(0)).shape == (0, 0)
    said = "The file has no link; the robot is a base without mass."
    assert (said in file.ignored) == (not text)


def test_a_robot_of_fixed_links(tmp_path):
    text = link("base") + link("arm", 1.0, diagonal(1, 1, 1))
    file = read(tmp_path, text + joint("weld", "fixed", "base", "arm", '<origin xyz="1 2 3"/>'))
    assert file.tree.n == 0
    np.testing.assert_array_equal(file.in_body("arm", [[0.0, 0, 1]]), [[1.0, 2, 4]])
    said = "Inertia of links fixed to the base 'base' is not used: arm."
    assert said in file.ignored


def test_a_mimic_on_a_fixed_joint_is_named(tmp_path):
    text = link("base") + link("arm", 1.0, diagonal(1, 1, 1)) + link("tip")
    text += joint("turn", "continuous", "base", "arm")
    text += joint("grip", "fixed", "arm", "tip", '<mimic joint="turn"/>')
    file = read(tmp_path, text)
    assert file.mimics == ()
    assert "<mimic> (the joint is fixed) is not used: joint 'grip'." in file.ignored


def test_a_joint_that_moves_no_mass(tmp_path):
    text = link("base") + link("arm", 1.0, diagonal(1, 1, 1)) + link("finger")
    text += joint("turn", "continuous", "base", "arm")
    text += joint("bend", "continuous", "arm", "finger")
    file = read(tmp_path, text)
    assert any("Joints that move no mass" in said and "bend" in said for said in file.ignored)
    q, qd, qdd = jnp.array([[0.3, 0.4], [0.5, 0.6], [2.0, 9.0]])
    np.testing.assert_allclose(jg.rigid.rnea(file.tree, q, qd, qdd), [2.0, 0], rtol=0, atol=1e-15)
    with pytest.raises(ValueError, match="mass of body 'finger' is 0 kg"):
        read(tmp_path, text, strict=True)


def test_a_floating_body_falls(tmp_path):
    text = link("base") + link("box", 2.0, diagonal(1, 2, 2.5), xyz="0.1 0 0")
    text += joint("loose", "floating", "base", "box", '<origin xyz="1 2 3" rpy="0.1 0.2 0.3"/>')
    file = read(tmp_path, text)
    assert file.joints == tuple(f"loose.{part}" for part in ("x", "y", "z", "rx", "ry", "rz"))
    np.testing.assert_array_equal(file.start, [0, 0, 0, 1, 0, 0, 0])
    qdd = jg.rigid.forward_dynamics(file.tree, file.start, jnp.zeros(6), jnp.zeros(6))
    np.testing.assert_allclose(qdd, [0, 0, -9.81, 0, 0, 0], rtol=0, atol=1e-14)


def test_a_planar_joint_moves_across_its_axis(tmp_path):
    """On a slope of 30 degrees about y the body slides with g / 2, and has its frame."""
    slope = np.deg2rad(30)
    normal = f"{np.sin(slope)} 0 {np.cos(slope)}"
    text = link("base") + link("puck", 2.0, diagonal(1, 2, 2.5))
    text += joint("ice", "planar", "base", "puck", f'<axis xyz="{normal}"/>')
    file = read(tmp_path, text)
    qdd = jg.rigid.forward_dynamics(file.tree, file.start, jnp.zeros(3), jnp.zeros(3))
    np.testing.assert_allclose(qdd, [9.81 / 2, 0, 0], rtol=0, atol=1e-14)
    rotation, translation = file.place("puck")
    point = rotation @ jnp.array([0.1, 0.2, 0.3]) + translation
    found = jg.rigid.body_point(file.tree, file.start, "puck", point)
    np.testing.assert_allclose(found, [0.1, 0.2, 0.3], rtol=0, atol=1e-15)
    axis = np.array([np.sin(slope), 0, np.cos(slope)])
    mass = jg.rigid.crba(file.tree, file.start)
    np.testing.assert_allclose(
        mass, np.diag([2, 2, axis @ np.diag([1, 2, 2.5]) @ axis]), rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("kind", ["ball", "spherical"])
def test_a_ball_joint(tmp_path, kind):
    """A body on its end: the inertia about it, and the torque of its weight."""
    text = link("base") + link("rod", 2.0, diagonal(1, 1, 0.1), xyz="0 0 0.5")
    file = read(tmp_path, text + joint("socket", kind, "base", "rod"))
    mass = jg.rigid.crba(file.tree, file.start)
    np.testing.assert_allclose(mass, np.diag([1.5, 1.5, 0.1]), rtol=0, atol=1e-15)
    tilted = jnp.array([np.cos(0.3), np.sin(0.3), 0, 0])
    weight = jax.jit(jg.rigid.gravity_forces)(file.tree, tilted)
    np.testing.assert_allclose(weight, [-2.0 * 9.81 * 0.5 * np.sin(0.6), 0, 0], rtol=0, atol=1e-13)


def test_a_floating_base(tmp_path):
    """Without torques only the weight changes the momentum; on a base at rest M is that of it."""
    path = Path(__file__).parent / "data" / "arm.urdf"
    fixed, free = (jg.rigid.read_urdf(path, floating=floating) for floating in (False, True))
    assert free.joints[:6] == ("root.x", "root.y", "root.z", "root.rx", "root.ry", "root.rz")
    assert free.joints[6:] == fixed.joints
    n = fixed.tree.n
    q = jnp.linspace(-0.5, 0.8, n)
    on_base = jnp.concatenate([free.start[:7], q])
    masses = jg.rigid.crba(free.tree, on_base)[6:, 6:]
    np.testing.assert_allclose(masses, jg.rigid.crba(fixed.tree, q), atol=1e-14)
    tree = jg.rigid.with_passive(free.tree)
    qd = jnp.cos(jnp.arange(n + 6.0))
    q = jg.rigid.integrate(tree, on_base, jnp.sin(jnp.arange(n + 6.0)))
    qdd = jg.rigid.forward_dynamics(tree, q, qd, jnp.zeros(n + 6))

    def momentum(s):
        at = jg.rigid.integrate(tree, q, s * qd + 0.5 * s**2 * qdd)
        return jg.rigid.centroidal_momentum(tree, at, qd + s * qdd)

    rate = jax.jvp(momentum, (0.0,), (1.0,))[1]
    weight = tree.mass.sum() * tree.gravity
    np.testing.assert_allclose(rate, jnp.concatenate([jnp.zeros(3), weight]), atol=1e-11)


def test_a_floating_base_alone_has_its_own_mass(tmp_path):
    path = tmp_path / "robot.urdf"
    path.write_text(f'<robot name="brick">{link("world", 2.0, diagonal(0.1, 0.2, 0.25))}</robot>')
    brick = jg.rigid.read_urdf(path, floating=True)
    assert (brick.base, brick.tree.n, brick.tree.nq) == ("ground", 6, 7)
    expected = np.diag([2.0, 2.0, 2.0, 0.1, 0.2, 0.25])
    np.testing.assert_allclose(jg.rigid.crba(brick.tree, brick.start), expected, atol=1e-15)
    path.write_text(
        f'<robot name="r">{link("a")}{link("b", 1.0)}{joint("root", "fixed", "a", "b")}</robot>'
    )
    with pytest.raises(ValueError, match="joint 'root': is the name of the joint of a floating"):
        jg.rigid.read_urdf(path, floating=True)
