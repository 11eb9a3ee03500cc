import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxgrip import mechanism
from jaxgrip.config import ConfigError
from jaxgrip.joints import Angle, Ball, Guide, Hinge, Screw
from jaxgrip.mechanism import _files as files
from jaxgrip.spatial import euler, quaternions

CRANE = """
[ground]
foot = [[0, 0, 0], [0, -1, 0], [1, 0, 0]]
mast = [[-3, 0, 9]]

[[part]]
name = "cap"
position = [0, 0, 7]
attachments = { seat = [[0, 0, 0]] }

[[joint]]
name = "foot"
kind = "hinge"
first = "ground.foot"
second = "boom/lower.foot"

[[joint]]
name = "luffing"
kind = "angle"
angle_deg = 60
first = "ground.foot"
second = "boom/lower.foot"

[[joint]]
name = "rope"
kind = "distance"
length = 12.5
first = "ground.mast"
second = "boom/head/pulley.axis"

[[joint]]
name = "seat"
kind = "ball"
first = "boom/head/pulley.axis"
second = "cap.seat"

[[assembly]]
name = "boom"
position = [1, 0, 0]
turn_deg = [0, -90, 0]

[[assembly.part]]
name = "lower"
attachments.foot = [[0, 0, 0], [0, -1, 0], [1, 0, 0]]
attachments.top = [[6, 0, 0], [6, -1, 0], [7, 0, 0]]

[[assembly.joint]]
name = "weld"
kind = "fixed"
first = "lower.top"
second = "head/pulley.base"

[[assembly.assembly]]
name = "head"
position = [6, 0, 0]
file = "head.json"
"""

HEAD = """{"part": [{"name": "pulley", "euler_deg": [0, 0, 90],
  "attachments": {"base": [[0, 0, 0], [0, -1, 0], [1, 0, 0]], "axis": [[0, 0, 0], [0, 1, 0]]}}]}"""


@pytest.fixture
def crane(tmp_path):
    (tmp_path / "head.json").write_text(HEAD)
    (tmp_path / "crane.toml").write_text(CRANE)
    return tmp_path / "crane.toml"


def parts_of(system):
    return {part.name: part for part in system.parts}


def joints_of(system):
    return {c.name: c for c in system.connections}


def test_assemblies_within_others_are_placed_and_named_by_their_path(crane):
    system = files.read(crane)
    parts, joints = parts_of(system), joints_of(system)
    assert list(parts) == ["cap", "boom/lower", "boom/head/pulley"]
    # Rotated by -90° about y, x of the boom is z.
    np.testing.assert_allclose(parts["boom/lower"].position, [1, 0, 0], atol=1e-15)
    np.testing.assert_allclose(parts["boom/head/pulley"].position, [1, 0, 6], atol=1e-14)
    matrix = quaternions.to_matrix(parts["boom/head/pulley"].quaternion)
    np.testing.assert_allclose(matrix, [[0, 0, -1], [1, 0, 0], [0, -1, 0]], atol=1e-14)
    assert joints["boom/weld"].first == "boom/lower.top"
    assert joints["boom/weld"].second == "boom/head/pulley.base"
    assert joints["foot"].first == "ground.foot"
    assert isinstance(joints["foot"].joint, Hinge)
    np.testing.assert_allclose(joints["luffing"].joint.angle, np.pi / 3, rtol=1e-15)
    assert joints["rope"].joint.length == 12.5


@pytest.mark.parametrize("ending", files.ENDINGS)
def test_what_is_written_is_read_back(crane, tmp_path, ending):
    system = files.read(crane)
    copy = tmp_path / f"copy{ending}"
    files.write(system, copy)
    again = files.read(copy)
    assert jax.tree.structure(again) == jax.tree.structure(system)
    for one, other in zip(jax.tree.leaves(system), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-15)
    with pytest.raises(FileExistsError):
        files.write(system, copy)
    files.write(again, copy, overwrite=True)
    with pytest.raises(ConfigError, match=r"copy\.xml: the file of a system must end in"):
        files.write(system, tmp_path / "copy.xml")


def test_numbers_of_joints_have_the_names_of_their_classes(tmp_path):
    path = tmp_path / "drives.toml"
    path.write_text("""
[ground]
"Führung 1" = [[0, 0, 0], [0, 0, 1], [1, 0, 0]]
[[part]]
name = "Tisch"
attachments."Führung 1" = [[0, 0, 0], [0, 0, 1], [1, 0, 0]]
[[part]]
name = "nut"
attachments.thread = [[0, 0, 0], [0, 0, 1], [1, 0, 0]]
[[joint]]
name = "guide"
kind = "guide"
first = "ground.Führung 1"
second = "Tisch.Führung 1"
[[joint]]
name = "screw"
kind = "screw"
lead = 0.01
first = "ground.Führung 1"
second = "nut.thread"
[[joint]]
name = "cover"
kind = "angle"
angle = 0.5
form = "dot"
first = "Tisch.Führung 1"
second = "nut.thread"
[[joint]]
name = "belt"
kind = "gear"
ratio = -2
first = "guide"
second = "screw"
""")
    system = files.read(path)
    files.write(system, path, overwrite=True)
    for again in (system, files.read(path)):
        joints = joints_of(again)
        assert isinstance(joints["guide"].joint, Guide)
        assert isinstance(joints["screw"].joint, Screw)
        assert (joints["screw"].joint.lead, joints["screw"].joint.start) == (0.01, 0)
        assert isinstance(joints["cover"].joint, Angle)
        assert joints["cover"].joint.form == "dot"
        assert (joints["belt"].joint.ratio, joints["belt"].first) == (-2, "guide")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            'kind = "hinge"',
            'kind = "hing"',
            r'joint 1 \(foot\): there is no kind "hing" \(did you mean hinge\?\)',
        ),
        (
            "length = 12.5",
            "lenght = 12.5",
            r"joint 3 \(rope\): lenght is not a known key \(did you mean length\?\)",
        ),
        ("length = 12.5", "", r"joint 3 \(rope\): length is missing; distance needs it\."),
        (
            "length = 12.5",
            "length = 1\nslack = 2",
            r"joint 3 \(rope\): slack is not a known key; known here are name, kind,",
        ),
        (
            "length = 12.5",
            'length = "long"',
            r"joint 3 \(rope\): The length of a distance is .*; it must be a number",
        ),
        ("length = 12.5", "length = 0", r"joint 3 \(rope\): The length of a distance is 0 m"),
        (
            "length = 12.5",
            "length = inf",
            r"joint 3 \(rope\): The length of a distance is not finite",
        ),
        (
            "angle_deg = 60",
            "angle_deg = 60\nangle = 1",
            r"joint 2 \(luffing\): give angle or angle_deg, not both",
        ),
        ('name = "foot"', "nam = 1", r"joint 1: name is missing\."),
        (
            'name = "cap"',
            'name = "a/b"',
            r'part 1 \(a/b\): name is "a/b"; it must not be empty nor have a dot or a slash',
        ),
        (
            "position = [0, 0, 7]",
            "position = [0, 7]",
            r"part 1 \(cap\): position has the shape \(2,\); it must be \(3,\)",
        ),
        (
            "position = [0, 0, 7]",
            "quaternion = [0, 0, 0, 0]",
            r"part 1 \(cap\): quaternion is zero",
        ),
        (
            "position = [0, 0, 7]",
            "postion = [0, 0, 7]",
            r"part 1 \(cap\): postion is not a known key \(did you mean position\?\)",
        ),
        (
            "turn_deg = [0, -90, 0]",
            "turn_deg = [0, -90, 0]\neuler_deg = [1, 2, 3]",
            r"assembly 1 \(boom\): give one of turn_deg and euler_deg, not both",
        ),
        (
            "[[0, 0, 0]]",
            "[[0, 0]]",
            r"part 1 \(cap\): Attachment 'seat' of part 'cap' has the shape \(1, 2\)",
        ),
        (
            "[[6, 0, 0], [6, -1, 0], [7, 0, 0]]",
            "[[6, 0, 0], [6, 0, 0]]",
            r"assembly 1 \(boom\): part 1 \(lower\): Attachment 'top' of part 'boom/lower'",
        ),
        ('file = "head.json"', 'file = "had.json"', r"had\.json: there is no such file"),
        (
            'file = "head.json"',
            'file = "crane.toml"',
            r'assembly 1 \(head\): file = "crane.toml" contains itself',
        ),
        ("[[part]]", "[[part]", r"crane\.toml: is not valid TOML"),
        (
            "attachments = { seat = [[0, 0, 0]] }",
            "attachments = 3",
            r"attachments must be a table, but is 3",
        ),
    ],
)
def test_mistakes_are_named_with_file_table_and_key(crane, old, new, sentence):
    crane.write_text(CRANE.replace(old, new, 1))
    with pytest.raises(ConfigError, match=sentence):
        files.read(crane)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", r"head\.json: is not valid JSON"),
        ('{"part": [], "part": []}', r'is not valid JSON: the key "part" appears twice'),
        ("{}", r"head\.json: has no part; give at least one"),
        ("[1]", r"head\.json must be a table, but is \[1\]"),
        ('{"part": [3]}', r"head\.json: part 1 must be a table, but is 3"),
        (HEAD[:-1] + ', "ground": {}}', r"head\.json: ground is not a known key"),
    ],
)
def test_mistakes_in_the_file_of_an_assembly_are_named(crane, text, sentence):
    (crane.parent / "head.json").write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        files.read(crane)


LEAF = '[[part]]\nname = "p"\nattachments.a = [[0, 0, 0]]\n'


def _including(*files):
    names = enumerate(files)
    return "".join(f'[[assembly]]\nname = "a{k}"\nfile = "{file}.toml"\n' for k, file in names)


def test_what_files_within_files_would_make_is_counted_first(tmp_path):
    """22 files, each including the next twice: 2^21 parts with an attachment each."""
    for k in range(21):
        (tmp_path / f"f{k}.toml").write_text(_including(f"f{k + 1}", f"f{k + 1}"))
    (tmp_path / "f21.toml").write_text(LEAF)
    with pytest.raises(ConfigError, match=r"f0\.toml: has 4,194,304 parts, joints and attachments"):
        files.read(tmp_path / "f0.toml")
    assert len(files.read(tmp_path / "f18.toml").parts) == 8


def test_files_within_files_have_a_limit(tmp_path):
    for k in range(200):
        (tmp_path / f"f{k}.toml").write_text(_including(f"f{k + 1}"))
    (tmp_path / "f200.toml").write_text(LEAF)
    with pytest.raises(ConfigError, match="has files within files more than 50 deep"):
        files.read(tmp_path / "f0.toml")
    # From the deepest, so that each has been counted before it is included.
    (tmp_path / "all.toml").write_text(_including(*(f"f{k}" for k in range(200, -1, -1))))
    with pytest.raises(ConfigError, match=r"all\.toml: has 402 parts, .* 201 deep; at most .* 50"):
        files.read(tmp_path / "all.toml")


HOSTILE = {
    "deep": '{"part": ' + "[" * 5000 + "]" * 5000 + "}",
    "digits": '{"part": [' + "9" * 5000 + "]}",
    "wide": '{"part": [{"name": "p", "position": [0, 0, ' + "9" * 30 + "]}]}",
    "name": '{"part": [{"name": "' + "n" * 5000 + '", "position": [NaN, 0, 0]}]}',
    "key": '{"' + "k" * 5000 + '": 1, "part": [{"name": "p"}]}',
    "end": '{"part": [{"name": "p", "attachments": {"a": [[0, 0, 0]]}}], "joint": [{"name": "j", '
    '"kind": "ball", "first": "p.a", "second": "' + "y" * 5000 + '"}]}',
    "word": '{"part": [{"name": "p", "position": "' + "x" * 5000 + '"}]}',
    "array": '{"part": [{"name": "p", "position": [' + "0, " * 5000 + "0]}]}",
    "rows": '{"part": [{"name": "p", "attachments": {"a": [' + "[0], " * 5000 + "[0]]}}]}",
    "file": '{"assembly": [{"name": "a", "file": "' + "f" * 5000 + '.toml"}]}',
    "null": '{"assembly": [{"name": "a", "file": "\\u0000"}]}',
    "keys": '{"part": [{"name": "p", ' + ", ".join(f'"k{i}": 1' for i in range(20_000)) + "}]}",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_get_one_short_sentence(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ConfigError) as caught:
        files.read(tmp_path / "a.json")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1100 + len(str(tmp_path))


def test_missing_files_are_named(tmp_path):
    for name in ("none.toml", "none.json"):
        with pytest.raises(ConfigError, match=f"{name}: there is no such file"):
            files.read(tmp_path / name)
    with pytest.raises(ConfigError, match=r"end in \.toml or \.json"):
        files.read(tmp_path / "none.yaml")


def test_three_angles_are_those_of_an_independent_code():
    angles = np.array([0.3, -1.1, 2.2])

    def matrix(quaternion):
        return quaternions.to_matrix(quaternion)

    np.testing.assert_allclose(
        matrix(euler.from_euler(jnp.asarray(angles))),
        Rotation.from_euler("ZXZ", angles).as_matrix(),
        atol=1e-15,
    )
    np.testing.assert_allclose(
        matrix(euler.from_cardan(jnp.asarray(angles))),
        Rotation.from_euler("xyz", angles).as_matrix(),
        atol=1e-15,
    )
    # Webhofer 2005, section 3.1.3: at a second angle of zero the others are not unique.
    one, other = (jnp.deg2rad(jnp.array(a)) for a in ([20.0, 0.0, 30.0], [10.0, 0.0, 40.0]))
    np.testing.assert_allclose(
        matrix(euler.from_euler(one)), matrix(euler.from_euler(other)), atol=1e-15
    )


def test_names_of_assemblies_are_those_of_what_they_join(tmp_path):
    point = [[0.0, 0, 0]]
    parts = [mechanism.Part(name, {"p": point}) for name in ("arm", "x/b")]
    joint = mechanism.Connection("x/j", Ball(), "arm.p", "x/b.p")
    with pytest.raises(ValueError, match=r"Connection 'x/j' joins 'arm\.p', which is not in 'x/'"):
        mechanism.write(mechanism.System(parts, [joint]), tmp_path / "own.toml")
