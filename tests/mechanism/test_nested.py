import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxgrip.joints import Angle, Ball, Clamp, Distance, Fixed, Gear, Hinge
from jaxgrip.mechanism import Connection, MechanismError, Part, Poses, System, assemble
from jaxgrip.mechanism._nested import assemble_nested, assemblies, compose
from jaxgrip.spatial import quaternions

A, B = 3.0, 2.0


def turned(axis, degrees):
    return np.asarray(quaternions.exponential(jnp.asarray(axis, float) * np.deg2rad(degrees)))


def pin(x=0.0, z=0.0):
    """A point in the x-z plane, the axis through it that rotates +x to +z, and x across."""
    return np.array([x, 0, z]) + np.array([[0.0, 0, 0], [0, -1, 0], [1, 0, 0]])


PARTS = {
    "base": {"pin": pin(0, 1)},
    "jib/lower": {"foot": pin(), "knee": pin(5.0), "eye": [[5.0 - A, 0, 0]]},
    "jib/upper": {"knee": pin(), "eye": [[B, 0, 0]], "end": pin(4.0)},
    "jib/head/plate": {"base": pin(), "seat": pin(0.5, 0.5)},
    "jib/head/lamp": {"seat": pin(0.2), "bulb": [[0.0, 0.0, 1.0]]},
}
PLACES = {
    "base": ([0.1, 0, 0], [1, 0, 0], 0),
    "jib/lower": ([0, 0.1, 1.2], [0.1, -1, 0], 50),
    "jib/upper": ([3, 0, 5], [0, -1, 0.1], -20),
    "jib/head/plate": ([6, 0.2, 4], [0, -1, 0], -30),
    "jib/head/lamp": ([7, 0, 4], [0, 1, 0], 10),
}
JOINTS = [
    ("anchor", Clamp(), "base", None),
    ("pin", Hinge(), "base.pin", "jib/lower.foot"),
    ("luffing", Angle(np.deg2rad(60)), "base.pin", "jib/lower.foot"),
    ("jib/knee", Hinge(), "jib/lower.knee", "jib/upper.knee"),
    ("jib/cylinder", Distance(3.5), "jib/lower.eye", "jib/upper.eye"),
    ("jib/end", Fixed(), "jib/head/plate.base", "jib/upper.end"),
    ("jib/head/seat", Fixed(), "jib/head/plate.seat", "jib/head/lamp.seat"),
]


def crane(parts=PARTS, joints=JOINTS, places=PLACES):
    """A jib of two bars, bent by a cylinder, with a head of two parts, on a base."""
    return System(
        [
            Part(name, attachments, places[name][0], turned(*places[name][1:]))
            for name, attachments in parts.items()
        ],
        [Connection(*each) for each in joints],
    )


def replaced(name, *joint):
    return [(name, *joint) if each[0] == name else each for each in JOINTS]


def assert_same(one, other, names=None, atol=1e-9):
    order = slice(None) if names is None else names
    np.testing.assert_allclose(one.position[order], other.position, rtol=0, atol=atol)
    np.testing.assert_allclose(one.rotation[order], other.rotation, rtol=0, atol=atol)


def knee_angle(cylinder):
    """Angle between the bars by the law of cosines."""
    return np.arccos((A**2 + B**2 - cylinder**2) / (2 * A * B))


@pytest.fixture(scope="module")
def nested():
    return assemble_nested(crane())


@pytest.mark.long
def test_assembly_by_assembly_is_the_same_as_all_at_once(nested):
    assert_same(nested.poses, assemble(crane()).poses)
    assert assemblies(crane()) == ["", "jib", "jib/head"]
    # The head was composed and is one of three parts of the jib, which is one of two of the whole.
    assert {path: a.system.names for path, a in nested.assemblies.items()} == {
        "jib": ("lower", "upper", "head"),
        "": ("base", "jib"),
    }
    assert nested.warnings() == []


@pytest.mark.long
@pytest.mark.parametrize("cylinder", [2.5, 3.5, 4.5])
def test_a_drive_within_an_assembly_bends_it_as_the_law_of_cosines_says(cylinder):
    rotation = assemble_nested(crane(), {"jib/cylinder": cylinder}).poses.rotation
    # The eye of the lower bar is behind the knee, against the direction of the bar.
    assert abs(rotation[1, :, 0] @ rotation[2, :, 0] + np.cos(knee_angle(cylinder))) < 1e-12
    assert abs(rotation[1, 0, 0] - np.cos(np.deg2rad(60))) < 1e-12


@pytest.mark.soak
def test_positions_are_a_batch_with_derivatives():
    # The lamp rotates in the plane by the sum of both angles.
    system = crane()

    def direction(cylinder, luffing):
        found = assemble_nested(system, {"jib/cylinder": cylinder, "luffing": luffing})
        x = found.poses.rotation[4, :, 0]
        return jnp.arctan2(x[2], x[0])

    cylinder, luffing = jnp.array([2.5, 3.5, 4.5]), jnp.deg2rad(jnp.array([30.0, 60.0, 80.0]))
    batch = jax.jit(jax.vmap(jax.value_and_grad(direction, (0, 1))))
    angle, (by_cylinder, by_luffing) = batch(cylinder, luffing)
    # The bars bend downward: the shorter the cylinder, the lower the head.
    knee = knee_angle(np.asarray(cylinder))
    np.testing.assert_allclose(angle, luffing + knee - np.pi, atol=1e-12)
    np.testing.assert_allclose(by_luffing, 1, atol=1e-12)
    np.testing.assert_allclose(by_cylinder, cylinder / (A * B * np.sin(knee)), atol=1e-12)


@pytest.mark.long
def test_order_of_parts_and_joints_does_not_matter(nested):
    names = list(PARTS)[::-1]
    mixed = crane({name: PARTS[name] for name in names}, JOINTS[::-1])
    assert_same(nested.poses, assemble_nested(mixed).poses, np.arange(5)[::-1])


def test_a_moved_ground_moves_all_parts_alike(nested):
    start = [np.array(PLACES[name][0]) for name in PARTS]
    quaternion = np.array([turned(*PLACES[name][1:]) for name in PARTS])
    move = jnp.asarray(turned([1 / 3, 2 / 3, 2 / 3], 100.0))
    matrix, way = np.asarray(quaternions.to_matrix(move)), np.array([5.0, -3, 40])
    product = jax.vmap(quaternions.product, (None, 0))
    # A quaternion and its negative are the same orientation.
    sign = np.array([1.0, -1, 1, -1, -1])[:, None]
    system = System(
        [
            Part(part.name, part.attachments, matrix @ p + way, q)
            for part, p, q in zip(
                crane().parts, start, product(move, jnp.asarray(quaternion)) * sign, strict=True
            )
        ],
        crane().connections,
    )
    found = assemble_nested(system).poses
    np.testing.assert_allclose(
        found.position, nested.poses.position @ matrix.T + way[None], atol=1e-9
    )
    np.testing.assert_allclose(found.rotation, matrix @ nested.poses.rotation, atol=1e-9)


@pytest.mark.long
def test_a_part_deep_within_may_be_clamped(nested):
    clamp = ("anchor", Clamp(), "jib/head/lamp", None)
    joints = [clamp, *[each for each in JOINTS if each[0] != "anchor"]]
    found = assemble_nested(crane(joints=joints)).poses
    np.testing.assert_allclose(found.position[4], PLACES["jib/head/lamp"][0], atol=1e-12)
    np.testing.assert_allclose(
        found.rotation[4],
        quaternions.to_matrix(jnp.asarray(turned([0, 1, 0], 10))),
        atol=1e-12,
    )
    # All joints are between parts: seen from the lamp the crane is the same.
    seen, before = (
        p.rotation[4].T @ (p.position - p.position[4:5]).T for p in (found, nested.poses)
    )
    np.testing.assert_allclose(seen, before, atol=1e-9)


def test_parts_on_fixed_joints_are_composed_in_any_order():
    parts = {"a": {"end": pin(1.0)}, "b": {"foot": pin(), "end": pin(2.0, 1.0)}, "c": {"at": pin()}}
    joints = [
        ("3", Fixed(), "c.at", "b.end"),
        ("2", Fixed(), "a.end", "b.foot"),
        ("1", Clamp(), "a", None),
    ]
    places = {"a": ([1, 2, 3], [0, 1, 0], 90), "b": PLACES["base"], "c": PLACES["base"]}
    system = crane(parts, joints, places)
    found = compose(system)
    # A rotation by 90° about y takes x to -z and z to x.
    expected = [[1, 2, 3], [1, 2, 2], [2, 2, 0]]
    np.testing.assert_allclose(found.position, expected, atol=1e-14)
    np.testing.assert_allclose(found.rotation[2], found.rotation[0], atol=1e-14)
    assert compose(crane(parts, [*joints, ("4", Fixed(), "a.end", "c.at")], places)) is None
    assert compose(crane(parts, joints[:2], places)) is None
    assert compose(crane(parts, [("3", Ball(), "c.at", "b.end"), *joints[1:]], places)) is None


@pytest.mark.long
def test_attachments_of_different_length_are_named():
    plate = {"base": pin(), "seat": pin(0.5, 0.5) + np.array([[0, 0, 0], [0, 0.02, 0], [0, 0, 0]])}
    (sentence,) = assemble_nested(crane(PARTS | {"jib/head/plate": plate})).warnings()
    assert "'jib/head/seat'" in sentence
    assert "20 mm" in sentence


@pytest.mark.parametrize(
    ("joints", "sentence"),
    [
        (
            replaced("jib/end", Fixed(), "jib/head/plate.base", "base.pin"),
            "'jib/end' uses 'base.pin', which is not in assembly 'jib'",
        ),
        (
            [*JOINTS, ("jib/anchor", Clamp(), "jib/lower", None)],
            "'jib/anchor' joins assembly 'jib' to the ground, which only the whole can",
        ),
        (
            [*JOINTS, ("stop", Ball(), "jib/head/plate.base", "jib/lower.foot")],
            "'stop' joins parts of assembly 'jib' and belongs there",
        ),
        (
            [*JOINTS, ("jab/stop", Ball(), "base.pin", "jib/lower.foot")],
            "'jab/stop' is in an assembly 'jab', which has no part",
        ),
        (
            [*JOINTS, ("belt", Gear(2.0), "pin", "jib/knee")],
            "'belt' couples 'jib/knee', which is not in its assembly",
        ),
        (
            [*JOINTS, ("1", Clamp(), "jib/lower", None), ("2", Clamp(), "jib/upper", None)],
            "'2' fixes assembly 'jib', which '1' fixes already",
        ),
    ],
)
def test_joints_that_reach_out_of_their_assembly_are_named(joints, sentence):
    with pytest.raises(ValueError, match=sentence):
        assemble_nested(crane(joints=joints))


def test_names_that_are_part_and_assembly_are_named():
    parts, places = PARTS | {"jib": {}}, PLACES | {"jib": PLACES["base"]}
    with pytest.raises(ValueError, match="'jib' is both a part and an assembly"):
        assemble_nested(crane(parts, JOINTS, places))


@pytest.mark.long
def test_an_assembly_that_can_still_move_is_named():
    joints = [each for each in JOINTS if each[0] != "jib/cylinder"]
    with pytest.raises(MechanismError, match=r"Assembly 'jib' cannot be assembled: .*'upper'"):
        assemble_nested(crane(joints=joints))


@pytest.mark.long
def test_an_assembly_out_of_reach_is_named_and_the_whole_not_tried():
    with pytest.raises(MechanismError, match="Assembly 'jib' cannot be assembled: The distance"):
        assemble_nested(crane(), {"jib/cylinder": 7.0})


def test_start_poses_choose_the_way_an_assembly_bends(nested):
    bent = Poses(nested.poses.position, nested.poses.quaternion)
    lower = np.asarray(bent.rotation[1, :, 0])
    upper = 2 * lower * (lower @ bent.rotation[2, :, 0]) - bent.rotation[2, :, 0]
    angle = np.rad2deg(np.arctan2(upper[2], upper[0]))
    start = Poses(bent.position, bent.quaternion.at[2].set(turned([0, -1, 0], angle)))
    found = assemble_nested(crane(), start=start).poses
    np.testing.assert_allclose(found.rotation[2, :, 0], upper, atol=1e-9)
