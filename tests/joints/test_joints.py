import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip import joints
from jaxgrip.joints import Frame
from jaxgrip.spatial import axis_angle, quaternions, rotation_x, rotation_z, skew

JOINTS = {
    "fixed": joints.Fixed(),
    "clamp": joints.Clamp(),
    "hinge": joints.Hinge(),
    "guide": joints.Guide(),
    "screw": joints.Screw(0.3, 0.1),
    "sleeve": joints.Sleeve(),
    "ball": joints.Ball(),
    "universal": joints.Universal(),
    "planar": joints.Planar(),
    "distance": joints.Distance(2.0),
    "rope": joints.Rope(2.0),
    "travel": joints.Travel(0.3),
    "angle": joints.Angle(0.7),
    "dot": joints.Angle(0.7, "dot"),
    "cross": joints.Angle(0.7, "cross"),
    "auto": joints.Angle(0.7, "auto"),
}


def moved(place, step):
    turn = quaternions.to_matrix(quaternions.exponential(step[3:]))
    return Frame(place.origin + step[:3], turn @ place.rotation)


def miss_of(joint):
    return jax.jit(
        lambda place: (
            joint.residual(place),
            jax.jacfwd(lambda step: joint.residual(moved(place, step)))(jnp.zeros(6)),
        )
    )


def held(joint):
    """A place where a joint holds, found from a random one."""
    rng = np.random.default_rng(0)
    origin, turn = rng.normal(size=3), 0.4 * rng.normal(size=3)
    if isinstance(joint, joints.Screw) or getattr(joint, "form", None) == "signed":
        # A signed angle goes with a common axis; a screw has a second root half a turn away.
        origin, turn = 0.1 * origin, np.array([0.0, 0.0, 0.5])
    if isinstance(joint, joints.Rope):
        origin *= 2.1 / np.linalg.norm(origin)
    place = Frame(
        jnp.asarray(origin), quaternions.to_matrix(quaternions.exponential(jnp.asarray(turn)))
    )
    miss = miss_of(joint)
    for _ in range(12):
        residual, slope = miss(place)
        place = moved(place, -jnp.linalg.pinv(slope) @ residual)
    return place


@pytest.mark.long
@pytest.mark.parametrize("name", JOINTS)
def test_equations_are_independent_and_free_motions_keep_them(name):
    joint = JOINTS[name]
    place = held(joint)
    residual, slope = miss_of(joint)(place)
    if isinstance(joint, joints.Rope):
        # On the brink between taut and slack; a little beyond it holds.
        place = place._replace(origin=place.origin * (1 + 1e-12))
        residual, slope = miss_of(joint)(place)
    assert residual.shape == (joint.equations,)
    np.testing.assert_allclose(residual, 0, atol=1e-11)
    assert np.linalg.matrix_rank(slope) == joint.equations
    motions = joint.motions(place)
    assert motions.shape == (joint.degrees_of_freedom, 6)
    assert (
        np.linalg.matrix_rank(motions) == joint.degrees_of_freedom
        if joint.degrees_of_freedom
        else True
    )
    np.testing.assert_allclose(slope @ motions.T, 0, atol=1e-11)
    assert joint.facing(place) > 0


def test_freedoms_are_those_of_the_catalogue():
    """Webhofer 2005, table 4.1, p. 33."""
    left = {name: joint.degrees_of_freedom for name, joint in JOINTS.items()}
    expected = {"clamp": 0, "fixed": 0, "hinge": 1, "guide": 1, "screw": 1, "sleeve": 2}
    expected |= {"ball": 3, "distance": 5, "angle": 5}
    assert {name: left[name] for name in expected} == expected


def test_screw_advances_by_three_leads_in_three_turns():
    screw = joints.Screw(0.3, 0.1)
    for turn in np.linspace(0, 6 * np.pi, 13):
        place = Frame(
            jnp.array([0.0, 0.0, 0.1 + 0.3 * turn / (2 * np.pi)]), rotation_z(jnp.asarray(turn))
        )
        np.testing.assert_allclose(screw.residual(place), 0, atol=1e-14)
        assert screw.facing(place) > 0
        np.testing.assert_allclose(screw.coordinate(place), turn, atol=1e-12)
    # The way of a turn of 190° with the rotation of one of 10° is the spurious root.
    wrong = Frame(place.origin, rotation_z(jnp.asarray(np.pi)))
    assert screw.facing(wrong) < 0


def test_sleeve_slides_and_spins_and_ball_turns_freely():
    for way, turn in ((0.0, 0.3), (-2.0, 2.0), (5.0, -3.0)):
        place = Frame(jnp.array([0.0, 0.0, way]), rotation_z(jnp.asarray(turn)))
        np.testing.assert_allclose(joints.Sleeve().residual(place), 0, atol=1e-15)
        turned = axis_angle(jnp.array([0.6, 0.0, 0.8]), jnp.asarray(turn))
        np.testing.assert_allclose(joints.Ball().residual(Frame(jnp.zeros(3), turned)), 0)


def test_signed_angle_is_the_sine_of_what_is_missing():
    """No switching, unique but for half a turn, which is no success."""
    for asked in np.deg2rad([0, 40, 90, 135, 180, -120]):
        joint = joints.Angle(asked)
        for off in np.deg2rad([-50, -10, 0, 10, 50]):
            place = Frame(jnp.zeros(3), rotation_z(jnp.asarray(asked + off)))
            np.testing.assert_allclose(joint.residual(place)[0], np.sin(off), atol=1e-14)
        other = Frame(jnp.zeros(3), rotation_z(jnp.asarray(asked + np.pi)))
        assert joint.facing(other) < 0


def test_the_sine_of_an_angle_is_that_of_its_supplement():
    """Which the forms that use it must not take for the angle; the cosine has one root."""
    for form in ("cross", "auto", "dot"):
        for asked in (0.5, 2.6):
            joint = joints.Angle(asked, form)
            for turn in (asked, np.pi - asked):
                place = Frame(
                    jnp.zeros(3), axis_angle(jnp.array([1.0, 0.0, 0.0]), jnp.asarray(turn))
                )
                holds = abs(float(joint.residual(place)[0])) < 1e-12
                assert (holds and float(joint.facing(place)) > 0) == (turn == asked)


@pytest.mark.parametrize("joint", [joints.Angle(0.3), joints.Screw(0.1)])
def test_opposite_axes_have_a_derivative(joint):
    """In reverse mode, where a turn about the common axis is not defined."""
    half = axis_angle(jnp.array([1.0, 0.0, 0.0]), jnp.asarray(np.pi))
    exactly = jnp.round(half)
    slope = jax.jacrev(lambda r: joint.residual(Frame(jnp.zeros(3), r)))(exactly)
    assert np.all(np.isfinite(slope))


def test_flipped_axes_do_not_face():
    half = axis_angle(jnp.array([1.0, 0.0, 0.0]), jnp.asarray(np.pi))
    for joint in (joints.Hinge(), joints.Sleeve(), joints.Guide(), joints.Planar()):
        assert joint.facing(Frame(jnp.zeros(3), half)) < 0
    # The rigid connection has one root only: half a turn misses.
    assert np.abs(joints.Fixed().residual(Frame(jnp.zeros(3), half))).max() == pytest.approx(2)


def test_slack_rope_holds_nothing():
    rope = joints.Rope(2.0)
    place = Frame(jnp.array([1.0, 1.0, 0.0]), jnp.eye(3))
    residual, slope = miss_of(rope)(place)
    assert not residual.any()
    assert not slope.any()


def test_gear_counts_full_turns():
    gear = joints.Gear(-3.0, 0.5)
    np.testing.assert_allclose(gear.residual(jnp.asarray(2.0), jnp.asarray(-5.5)), 0)
    assert float(joints.gear.nearest(jnp.asarray(0.1), jnp.asarray(12.0))) == pytest.approx(
        0.1 + 4 * np.pi
    )


def test_frame_of_three_points():
    place = joints.frame(jnp.array([[1.0, 2.0, 3.0], [1.0, 2.0, 5.0], [4.0, 2.0, 7.0]]))
    np.testing.assert_allclose(place.origin, [1, 2, 3])
    np.testing.assert_allclose(place.rotation, np.eye(3), atol=1e-15)
    back = joints.relative(place, place)
    np.testing.assert_allclose(back.origin, 0)
    np.testing.assert_allclose(back.rotation, np.eye(3), atol=1e-15)
    assert not np.trace(skew(back.rotation[:, 2]))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: joints.Distance(0.0), "must be at least"),
        (lambda: joints.Distance(float("nan")), "not finite"),
        (lambda: joints.Rope(-1.0), "must be at least"),
        (lambda: joints.Screw(0.0), "use a hinge"),
        (lambda: joints.Angle(1.0, "sharp"), "must be one of"),
        (lambda: joints.Angle("wide"), "must be a number"),
        (lambda: joints.Gear(float("inf")), "not finite"),
        (lambda: joints.Ball().coordinate(Frame(jnp.zeros(3), jnp.eye(3))), "no single coord"),
    ],
)
def test_impossible_numbers_get_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize("angle", [0.01, 0.6, 1.0, 1.57, 2.2, 3.1])
def test_an_angle_takes_the_steeper_of_two_products(angle):
    """Its slope is the sine or the cosine."""

    def residual(turn):
        rotation = rotation_x(turn)
        return joints.Angle(angle, "auto").residual(Frame(jnp.zeros(3), rotation))[0]

    slope = jax.grad(residual)(angle)
    np.testing.assert_allclose(abs(slope), max(np.sin(angle), abs(np.cos(angle))), rtol=1e-12)
