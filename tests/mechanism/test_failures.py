import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip.joints import Angle, Ball, Clamp, Fixed, Gear, Hinge, Rope
from jaxgrip.mechanism import (
    Connection,
    MechanismError,
    Part,
    Poses,
    System,
    assemble,
    mobility,
    move,
    sweep,
)

from .conftest import four_bar, upright

POINT = [[0.0, 0.0, 0.0]]


def pair(joint, first=None, second=None):
    first, second = (upright() if x is None else x for x in (first, second))
    arm = Part("arm", {"end": second})
    return System([arm], [Connection("pin", joint, "ground.at", "arm.end")], {"at": first})


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: pair(Hinge(), [[0.0, 0, 0], [0, 0, 0]]), "points that coincide"),
        (lambda: pair(Fixed(), [[0.0, 0, 0], [0, 0, 1], [0, 0, 2]]), "three points on a line"),
        (lambda: pair(Hinge(), POINT), "'pin' is a hinge, which needs 2 points"),
        (lambda: pair(Hinge(), [[np.nan, 0, 0], [0, 0, 1]]), "not finite"),
        (lambda: System([], []), "at least one part"),
        (lambda: System([Part("a", {}), Part("a", {})], []), "Two parts are called 'a'"),
        (lambda: System([Part("ground", {})], []), "must have no dot and not be 'ground'"),
        (lambda: Part("a", {}, quaternion=(0, 0, 0, 0)), "Part 'a': quaternion is zero"),
        (
            lambda: System([Part("boom", {})], [Connection("c", Clamp(), "bom")]),
            "'c': there is no part 'bom' .did you mean 'boom'",
        ),
        (
            lambda: System([Part("a", {"x": POINT})], [Connection("c", Ball(), "a.y", "ground.z")]),
            "'c': part 'a' has no attachment 'y'",
        ),
        (lambda: mobility(System([Part("a", {})], [])), "no connections, so every part is free"),
        (lambda: Part("a", {"x": [["1", 0.0, 0.0]]}), r"part 'a' is .*; it must be a number"),
        (lambda: Angle(True), "The angle is True; it must be a number"),
        (lambda: System(["a"], []), "A system is made of 'a'; give a Part"),
        (lambda: System([Part("a", {})], ["c"]), "A system is made of 'c'; give a Connection"),
        (
            lambda: System(
                [Part("a", {"x": POINT, "y": upright()})],
                [
                    Connection("c", Hinge(), "ground.z", "a.y"),
                    Connection("g", Gear(2.0), "c", "c"),
                ],
                {"z": upright()},
            ),
            "'g': a gear couples two joints, not one with itself",
        ),
        (
            lambda: mobility(
                System(
                    [Part("a", {"x": POINT})],
                    [Connection("c", Ball(), "ground.z", "a.x")],
                    {"z": POINT},
                ),
                Poses(jnp.zeros((2, 3)), jnp.ones((2, 4))),
            ),
            r"position of the poses has the shape \(2, 3\)",
        ),
        (
            lambda: System([Part("a", {"x": POINT})], [Connection("c", Ball(), POINT, "a.x")]),
            "'c' joins .*; name an attachment, such as 'part.attachment'",
        ),
        (
            lambda: System([Part("a", {"x": POINT})], [Connection("c", Ball(), "a.x", "a.x")]),
            "to the same part",
        ),
        (
            lambda: System([Part("a", {"x": POINT})], [Connection("c", Ball(), "a.x")]),
            "'c': a ball needs two attachments",
        ),
        (
            lambda: System([Part("a", {})], [Connection("c", Clamp(), "a", "a")]),
            "a clamp has one part and no second",
        ),
        (
            lambda: System([Part("a", {})], [Connection("c", Gear(2.0), "p", "q")]),
            "'c': there is no connection 'p'",
        ),
        (
            lambda: System(
                [Part("a", {"x": POINT})],
                [
                    Connection("c", Clamp(), "a"),
                    Connection("b", Ball(), "ground.z", "a.x"),
                    Connection("g", Gear(2.0), "c", "b"),
                ],
                {"z": POINT},
            ),
            "no single coordinate",
        ),
    ],
)
def test_wrong_systems_get_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"luffing rop": 40.0}, "There is no drive 'luffing rop' .did you mean 'luffing rope'"),
        ({"boom hinge": 40.0}, "There is no drive 'boom hinge'"),
        ({"luffing rope": float("nan")}, "'luffing rope' is not finite"),
        ({"luffing rope": 0.0}, "'luffing rope': The length of a distance is 0 m"),
        ({"luffing rope": "long"}, "must be a number"),
    ],
)
def test_wrong_parameters_get_a_sentence(crane, parameters, sentence):
    for act in (lambda: assemble(crane.system, parameters), lambda: move(crane, parameters)):
        with pytest.raises(ValueError, match=sentence):
            act()


def test_wrong_sweeps_get_a_sentence(crane):
    with pytest.raises(ValueError, match="'path' or 'independent'"):
        sweep(crane, {"slew": [0.0, 0.1]}, along="both")
    with pytest.raises(ValueError, match="must be a list"):
        sweep(crane, {"slew": 0.1})
    with pytest.raises(ValueError, match="has the shape"):
        sweep(crane, {"slew": [0.0, 0.1], "luffing rope": [40.0]})


@pytest.mark.long
def test_unreachable_rope_is_named_with_the_closest_length(crane):
    """With the longest rope, mast tip, boom foot and boom are in line."""
    tip = np.array([0.5, 1.0]) + 30 * np.array([np.cos(np.deg2rad(120)), np.sin(np.deg2rad(120))])
    longest = np.linalg.norm(tip - np.array([1.5, 1.0])) + 48
    # To four digits, the last of which is uncertain for a value far too large.
    for asked, near in ((1e9, 1e-2), (85.0, 5e-3)):
        with pytest.raises(MechanismError, match="asks for") as caught:
            assemble(crane.system, {"luffing rope": asked}, start=crane)
        assert f"'luffing rope' asks for {asked:g} m" in str(caught.value)
        closest = float(str(caught.value).rsplit("closest found is ", 1)[1].split()[0])
        assert closest == pytest.approx(longest, abs=near)
    assert np.all(np.isfinite(caught.value.assembly.poses.position))


def test_hinges_of_unequal_length_are_reported():
    long = np.array([[0.0, 0, 0], [0, 0, 2], [1, 0, 0]])
    found = assemble(pair(Hinge(), upright(), long)).warnings()
    assert any("'pin' are incompatible: points that should meet are 1e+03 mm" in x for x in found)


@pytest.mark.long
def test_what_is_left_free_is_reported():
    found = assemble(four_bar(drive=None)).warnings()
    assert len(found) == 1
    assert found[0].startswith("Part 'crank' can still rotate")
    loose = four_bar()
    loose = System([*loose.parts, Part("spare", {})], loose.connections, loose.ground)
    assert "Part 'spare' is not connected to the ground." in assemble(loose).warnings()


@pytest.mark.long
def test_contradicting_joints_are_named():
    """A four-bar with two drives that contradict each other."""
    system = four_bar()
    other = Connection("other", Angle(0.5), "ground.D", "rocker.in")
    with pytest.raises(MechanismError, match=r"asks for|cannot be satisfied") as caught:
        assemble(System(system.parts, [*system.connections, other], system.ground))
    assert "'other'" in str(caught.value) or "'drive'" in str(caught.value)


@pytest.mark.long
def test_coupler_too_short_names_a_joint():
    with pytest.raises(MechanismError, match=r"misses by|asks for"):
        assemble(four_bar(lengths=(1.0, 0.2, 0.3)))


@pytest.mark.long
def test_flipped_root_is_named():
    system = pair(Hinge())
    part = Part("arm", system.parts[0].attachments, quaternion=(0.0, 1.0, 0.0, 0.0))
    flipped = System([part], system.connections, system.ground)
    with pytest.raises(MechanismError, match="Flipped root at 'pin'"):
        assemble(flipped)
    drive = Connection("angle", Angle(0.0), "ground.at", "arm.end")
    driven = System([part], [*system.connections, drive], system.ground)
    with pytest.raises(MechanismError, match="Flipped root at 'pin' and 'angle'"):
        assemble(driven)


@pytest.mark.long
def test_start_in_a_dead_point_ends_well_or_in_words():
    """All bars in line: Newton's equations are singular from the first step."""
    line = jnp.array([[0.0, 0, 0], [1, 0, 0], [4, 0, 0]]), jnp.array([[1.0, 0, 0, 0]] * 3)
    found = assemble(four_bar(), start=Poses(*line), throw=False)
    miss = np.abs(found.residual).max()
    assert miss < 1e-10 or not bool(found.succeeded)


@pytest.mark.long
def test_nan_in_the_start_gets_a_sentence(linkage):
    start = Poses(linkage.poses.position * jnp.nan, linkage.poses.quaternion)
    with pytest.raises((ValueError, MechanismError), match=r"NaN|finite"):
        assemble(linkage.system, start=start)


def test_slack_rope_lets_a_part_be():
    parts = [Part("hook", {"eye": POINT}, (0, 0, -1.0))]
    system = System(
        parts, [Connection("rope", Rope(2.0), "ground.tip", "hook.eye")], {"tip": POINT}
    )
    slack = assemble(system)
    np.testing.assert_allclose(slack.poses.position[0], [0, 0, -1.0])
    assert "Rope 'rope' is slack and carries no force." in slack.warnings()
    taut = assemble(system, {"rope": 0.4})
    np.testing.assert_allclose(taut.poses.position[0], [0, 0, -0.4], atol=1e-10)
