import numpy as np
import pytest

from jaxgrip.joints import Ball, Clamp, Distance, Hinge, Rope, Screw, Sleeve
from jaxgrip.mechanism import Connection, Part, System, assemble, loops, mobility, start, system_of
from jaxgrip.mechanism.loops.mobility import independence
from jaxgrip.models.linkages import four_bar as four_bar_of_a_tree

from .conftest import four_bar, slider_crank, superlift, upright


@pytest.mark.long
@pytest.mark.parametrize(
    ("low", "high", "angles", "equations", "rank"),
    [
        (Ball(), Sleeve(), 1, 24, 24),
        (Sleeve(), Ball(), 1, 24, 24),
        (Ball(), Ball(), 1, 23, 23),
        (Hinge(), Ball(), 1, 25, 24),
        (Hinge(), Sleeve(), 1, 26, 24),
        (Hinge(), Hinge(), 1, 27, 24),
    ],
)
def test_closed_chain_of_the_superlift(low, high, angles, equations, rank):
    """The chain of Webhofer 2005, fig. 7.5; independent ranks (NumPy)."""
    system = superlift(low, high, angles=angles)
    found = mobility(system)
    assert found.miss < 1e-12
    assert (found.equations, found.rank) == (equations, rank)
    assert (found.degrees_of_freedom, found.surplus) == (24 - rank, equations - rank)
    assert found.loops == 1
    if found.degrees_of_freedom:
        assert len(found.motions) == 1
        (motion,) = found.motions[0]
        assert motion.startswith("Part 'rods' can still rotate about the axis")
        spin = found.motion[0][2, 3:]
        along = np.asarray(start(system).rotation)[2, :, 0]
        np.testing.assert_allclose(np.cross(spin, along), 0, atol=1e-9)


def test_right_count_is_not_enough():
    """Last row of the table, 24 equations of rank 23."""
    system = superlift(Hinge(), None, angles=2)
    extra = Connection("rods angle", system.connections[4].joint, "ground.way", "rods.a-frame end")
    ground = {"way": np.array([[0.0, 1, 0], [0, -1, 0], [1, 1, 0]])}
    hinges = [c for c in system.connections if c.name != "clamp"]
    clamp = Connection("clamp", Clamp(), "superstructure")
    held = Connection("mast stop", Distance(1.0), "ground.way", "mast.foot")
    whole = System(system.parts, [clamp, *hinges, held], ground)
    found = mobility(whole)
    assert (found.equations, found.count, found.rank) == (24, 0, 23)
    assert "not coherent" in found.verdict
    assert found.redundant
    assert "Part 'rods' can still rotate about the axis (0, 1, 0)" in str(found)
    determinate = mobility(System(system.parts, [clamp, *hinges, extra], ground))
    assert (determinate.equations, determinate.rank) == (24, 24)


@pytest.mark.parametrize(
    ("kinds", "drive", "equations", "rank"),
    [
        ("HHHH", None, 20, 17),
        ("HHHH", 60.0, 21, 18),
        ("HHBS", None, 17, 17),
        ("HHBS", 60.0, 18, 18),
    ],
)
def test_four_bar_by_count_and_by_rank(linkage, kinds, drive, equations, rank):
    """Independent ranks (NumPy)."""
    system = four_bar(kinds, drive)
    found = mobility(system, linkage.poses)
    assert (found.equations, found.rank) == (equations, rank)
    assert found.count == 18 - equations
    assert found.loops == 1
    assert set(found.redundant) == (set("ABCD") if kinds == "HHHH" else set())
    assert found.dependent == (((tuple("ABCD"), 20, 3),) if kinds == "HHHH" else ())
    says = "Joints 'A', 'B', 'C' and 'D' are redundant together: 3 of their 20 equations follow"
    assert (says in str(found)) == (kinds == "HHHH")
    if drive is None:
        first, *others = found.motions[0]
        assert first == "Part 'crank' can still rotate about the axis (0, 0, 1) through (0, 0, 0)"
        assert len(others) == 2


def test_screw_that_is_left_free_tells_its_advance():
    """By the lead over 2π, about an axis at a slant."""
    slant = np.array([[0.0, 0, 0], [1, 2, 2], [2, 1, -2]]) / 3
    screw = Connection("screw", Screw(0.2 * np.pi), "ground.axis", "nut.axis")
    found = mobility(System([Part("nut", {"axis": slant})], [screw], {"axis": slant}))
    assert found.motions == (
        (
            "Part 'nut' can still rotate about the axis (0.3333, 0.6667, 0.6667) through "
            "(0, 0, 0), advancing by 0.1 m per radian",
        ),
    )


def test_redundant_equations_are_told_by_joints_that_depend_on_each_other():
    """Each group counted alone has the redundant equations that it is said to have."""
    lone = four_bar("HHHH", None)
    parts, joints, ground = list(lone.parts), list(lone.connections), dict(lone.ground)
    for part in lone.parts:
        parts.append(Part(f"{part.name} 2", part.attachments, part.position, part.quaternion))
    for kind, joint in zip((Hinge, Hinge, Hinge, Ball), lone.connections, strict=True):
        first, second = (
            end if end.startswith("ground.") else end.replace(".", " 2.")
            for end in (joint.first, joint.second)
        )
        joints.append(Connection(f"{joint.name} 2", kind(), first, second))
    # In this order no joint of a group stands beside the next one.
    mixed = [joints[k] for k in (0, 4, 1, 5, 2, 6, 3, 7)]
    whole = System(parts, mixed, ground)
    # At a position where both are closed.
    poses = assemble(whole).poses
    found = mobility(whole, poses)
    assert {x.joints: x.redundant for x in found.dependent} == {
        tuple("ABCD"): 3,
        ("A 2", "B 2", "C 2", "D 2"): 1,
    }
    for names, equations, redundant in found.dependent:
        group = mobility(System(parts, [x for x in mixed if x.name in names], ground), poses)
        assert (group.equations, group.surplus) == (equations, redundant)


def test_conditioning_is_that_of_the_rows_that_count():
    """Of a matrix with the singular values 2, 0.5 and 0."""
    left, right = (np.linalg.qr(np.random.default_rng(n).normal(size=(n, n)))[0] for n in (3, 4))
    matrix = left @ np.diag([2.0, 0.5, 0.0]) @ right[:3]
    found = independence(matrix, {"all": np.arange(3)})
    assert (found.rank, found.redundant) == (2, {"all": 1})
    np.testing.assert_allclose(found.conditioning, 0.25, rtol=1e-12)
    np.testing.assert_allclose(matrix @ found.motions.T, np.zeros((3, 2)), atol=1e-15)


def test_double_pendulum_has_two_degrees_of_freedom():
    upper = Part("upper", {"in": upright(), "out": upright(1.0)})
    parts = [upper, Part("lower", {"in": upright()}, (1.0, 0, 0))]
    hinges = [
        Connection("shoulder", Hinge(), "ground.pivot", "upper.in"),
        Connection("elbow", Hinge(), "upper.out", "lower.in"),
    ]
    found = mobility(System(parts, hinges, {"pivot": upright()}))
    assert (found.count, found.degrees_of_freedom, found.loops) == (2, 2, 0)
    assert "Part 'lower' can still rotate about the axis (0, 0, 1) through (1, 0, 0)" in str(found)
    stay = Connection("stay", Distance(1.0), "ground.far", "upper.out")
    ground = {"pivot": upright(), "far": [[1.0, 1.0, 0.0]]}
    assert mobility(System(parts, [*hinges, stay], ground)).loops == 1


@pytest.mark.long
def test_slider_crank_is_determinate():
    found = mobility(slider_crank(), assemble(slider_crank()).poses)
    assert (found.equations, found.rank) == (18, 18)
    assert found.verdict.startswith("Determinate")
    assert not found.sentences()


def test_loose_parts_and_slack_ropes_are_named():
    parts = [Part("hook", {"eye": [[0.0, 0, 0]]}, (0, 0, -1.0)), Part("spare", {})]
    rope = Connection("rope", Rope(2.0), "ground.tip", "hook.eye")
    found = mobility(System(parts, [rope], {"tip": [[0.0, 0, 0]]}))
    assert found.unconnected == ("spare",)
    assert found.slack == ("rope",)
    assert found.degrees_of_freedom == 12
    assert "Rope 'rope' is slack" in str(found)
    assert "Part 'spare' is not connected to the ground" in str(found)


@pytest.mark.long
@pytest.mark.parametrize(("closure", "redundant"), [(Hinge(), 3), (Ball(), 1)])
def test_a_tree_with_a_loop_and_its_parts_have_one_report(closure, redundant):
    """A plane needs two equations of the joint that closes the loop; the others are redundant."""
    mechanism, q = four_bar_of_a_tree(closure=closure)
    tree, parts = loops.mobility(mechanism, q), mobility(system_of(mechanism, q))
    assert type(tree) is type(parts)
    for found in (tree, parts):
        assert (found.degrees_of_freedom, found.surplus, found.loops) == (1, redundant, 1)
        assert found.count == 1 - redundant
        assert found.miss < 1e-12
        assert found.redundant["pin"] == redundant
        assert sum(x.redundant for x in found.dependent) == found.surplus
    joint = f"Joint 'pin' is redundant: {redundant} of its {closure.equations} equations"
    assert joint in str(tree)
    # The joints of the tree are equations of its parts.
    assert [len(x.joints) for x in parts.dependent] == [4]
    # Coordinates differ, what they leave and what is redundant do not.
    for found, coordinates in ((tree, 3), (parts, 18)):
        left = f"{coordinates} coordinates and {found.equations} equations of rank {found.rank}"
        assert f"{left} leave 1 degree of freedom" in found.verdict
    assert tree.rank + 15 == parts.rank == 17
    assert tree.verdict.split(". ")[1] == parts.verdict.split(". ")[1]
