"""Trees from URDF files, with a list of everything in them that is not used."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from jaxgrip._files import LARGEST_DATA, read_bytes
from jaxgrip._names import closest
from jaxgrip.checks import brief, decimal, listed, near
from jaxgrip.rigid._links import Import, Link, Mimic, Numbers, made, uncoupled
from jaxgrip.rigid.builders import GRAVITY
from jaxgrip.spatial import aligning_z

KINDS = {
    "revolute": "revolute",
    "continuous": "revolute",
    "prismatic": "prismatic",
    "fixed": "fixed",
    "floating": "free",
    "planar": "planar",
    "ball": "spherical",
    "spherical": "spherical",
}
SINGLE = ("revolute", "prismatic")
MOST = 10_000
# Name of the joint between the ground and a floating base.
_ROOT = "root"
# By parent tag, the tags that are read, with their attributes; then tags known but not used.
READ = {
    "robot": {"link": {"name"}, "joint": {"name", "type"}},
    "link": {"inertial": set()},
    "inertial": {
        "origin": {"xyz", "rpy"},
        "mass": {"value"},
        "inertia": {"ixx", "ixy", "ixz", "iyy", "iyz", "izz"},
    },
    "joint": {
        "parent": {"link"},
        "child": {"link"},
        "origin": {"xyz", "rpy"},
        "axis": {"xyz"},
        "limit": {"lower", "upper", "velocity", "effort"},
        "dynamics": {"damping", "friction"},
        "mimic": {"joint", "multiplier", "offset"},
    },
}
UNUSED = {
    "visual": "the appearance of a link",
    "collision": "the shape of a link for contact",
    "material": "a colour",
    "transmission": "the gear between a motor and a joint",
    "gazebo": "settings of another simulator",
    "safety_controller": "limits of a controller",
    "calibration": "a reference position of a sensor",
}
# Of unused elements that do not change the motion, so many places are named.
FEW = 3


def read_urdf(
    path: str | Path,
    strict: bool = False,
    *,
    floating: bool = False,
    gravity: ArrayLike | Sequence[float] = GRAVITY,
) -> Import:
    """Tree, limits, damping, friction and mimic joints of a URDF file.

    Links behind fixed joints are merged into those that carry them, before masses are judged: a
    point mass, a thin rod and a frame without mass are sound. An inertia that no body can have, not
    positive semidefinite or with a principal value above the sum of the others, is replaced by the
    closest one in Frobenius' norm and named in `repaired`.

    **Arguments:** `path`; `strict`: whether such an inertia, a joint that moves no mass, and a
    mimic joint without a leader that moves are errors instead; `floating`: whether the base link is
    free to move against the ground, by the free joint "root", instead of fixed to it; `gravity`:
    (3,) in the frame of the ground [m/s^2].

    **Returns:** `Import`. A link without `inertial` has no mass. Joints of type `floating`,
    `planar` and `ball` or `spherical` have the coordinates of `Placement.joint` "free", "planar"
    and "spherical".

    **Raises:** `ValueError` that names file, link or joint, and tag, for anything missing,
    ill-formed or impossible, joints of another type, links that make no tree, more than 10,000
    joints, and macros that are not expanded.

    Source: URDF.
    """
    file = read(path, strict, floating=floating, gravity=gravity)
    return uncoupled(file, "mechanism.loops.read_urdf")


def read(
    path: str | Path,
    strict: bool = False,
    *,
    floating: bool = False,
    gravity: ArrayLike | Sequence[float] = GRAVITY,
) -> Import:
    """As `read_urdf`, with no word on the mimics."""
    path = Path(path)
    reader = _Reader(path)
    robot = _root(path)
    reader.look(robot, "robot", f"the robot {robot.get('name', '')!r}")
    count = len(robot.findall("joint"))
    if count > MOST:
        raise ValueError(f"{path}: has {count:,} joints; at most {MOST:,} are read.")
    elements = reader.named(robot, "link")
    joints = reader.named(robot, "joint")
    order, base = _order(path, elements, joints)
    if not elements:
        reader.ignored.append("The file has no link; the robot is a base without mass.")
    masses = {name: _inertial(reader, name, link) for name, link in elements.items()}
    links: list[Link] = []
    ground = base
    if floating:
        ground = next(name for name in ("world", "ground", "fixed ground") if name not in elements)
        if _ROOT in joints:
            raise reader.fail(f"joint {_ROOT!r}", "is the name of the joint of a floating base.")
        still = np.zeros(3), np.eye(3)
        links.append(Link(base, None, *still, *masses.get(base, ()), joint=_ROOT, kind="free"))
    elif any(np.any(number) for number in masses.get(base, ())[::2]):
        reader.ignored.append(
            f"The inertia of the base link {base!r} is not used: it is fixed to the ground."
        )
    single = {name: joint for name, joint in joints.items() if _kind(path, name, joint) in SINGLE}
    limits, mimics = {}, []
    for name in order:
        joint = joints[name]
        where = f"joint {name!r}"
        kind = _kind(path, name, joint)
        parent, child = (reader.text(joint, where, end, "link") for end in ("parent", "child"))
        position, rotation = reader.origin(joint, where)
        passive = {}
        if kind in SINGLE:
            limits[name], passive = _limits(reader, joint, where)
            if joint.find("mimic") is not None:
                mimics += _mimic(reader, name, joint, where, single, strict)
        else:
            for tag in ("axis", "limit", "dynamics", "mimic"):
                if joint.find(tag) is not None and (kind, tag) != ("planar", "axis"):
                    reader.note(f"<{tag}> (the joint is {joint.get('type')}) is not used: ", where)
        axis = _axis(reader, joint, where, kind)
        if not np.any(axis):
            raise reader.fail(where, "has an axis of length zero.")
        # The axis of a planar joint is its normal; of the tree's it is z.
        turn = _along_z(axis) if kind == "planar" else np.eye(3)
        links.append(
            Link(
                child,
                None if parent == ground else parent,
                position,
                rotation @ turn,
                *masses[child],
                joint=name,
                kind=kind,
                axis=(0.0, 0.0, 1.0) if kind == "planar" else axis,
                passive=passive,
                turn=turn.T,
            )
        )
    reader.look_inside(elements, joints)
    _check_circles(path, {m.follower: m.leader for m in mimics})
    try:
        return made(links, ground, gravity, strict, limits, mimics, ignored=reader.sentences)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


class _Reader:
    """Reads numbers of elements, reports errors in them, and lists what is not used."""

    def __init__(self, path: Path):
        self.path = path
        self.ignored: list[str] = []
        self.notes: dict[str, list[str]] = {}
        self.unused: dict[str, list[str]] = {}

    def fail(self, where: str, what: str) -> ValueError:
        return ValueError(f"{self.path}: {where}: {what}")

    def note(self, what: str, where: str) -> None:
        self.notes.setdefault(what, []).append(where)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What may matter to the motion first; of looks and the like few places are named."""
        telling = [
            f"{what}{', '.join(dict.fromkeys(where))}." for what, where in self.notes.items()
        ]
        usual = [
            f"<{tag}> ({UNUSED[tag]}) is not used: {listed(dict.fromkeys(places), FEW)}."
            for tag, places in self.unused.items()
        ]
        return (*telling, *self.ignored, *usual)

    def look(self, element: Element, tag: str, where: str) -> None:
        """Note the tags below an element that are not read, and attributes that are unknown."""
        known = READ[tag]
        for below in element:
            if below.tag in known:
                extra = set(below.attrib) - known[below.tag]
                for name in sorted(extra):
                    place = f"{below.tag} {below.get('name')!r}" if tag == "robot" else where
                    self.note(f"The attribute {name!r} of <{below.tag}> is not used: ", place)
                for deeper in () if below.tag in READ else below:
                    self.note(f"<{deeper.tag}> in <{below.tag}> is not used: ", where)
            elif below.tag in UNUSED:
                self.unused.setdefault(below.tag, []).append(where)
            else:
                like = closest(str(below.tag), (*known, *UNUSED))
                hint = f", perhaps <{like}>?" if like else ""
                self.note(f"<{below.tag}> (unknown{hint}) is not used: ", where)
        counts = [below.tag for below in element]
        for name in known:
            if tag != "robot" and counts.count(name) > 1:
                raise self.fail(where, f"has <{name}> {counts.count(name)} times.")

    def look_inside(self, links: dict[str, Element], joints: dict[str, Element]) -> None:
        for name, link in links.items():
            self.look(link, "link", f"link {name!r}")
            inertial = link.find("inertial")
            if inertial is not None:
                self.look(inertial, "inertial", f"link {name!r}")
        for name, joint in joints.items():
            self.look(joint, "joint", f"joint {name!r}")

    def named(self, robot: Element, tag: str) -> dict[str, Element]:
        found: dict[str, Element] = {}
        for element in robot.findall(tag):
            name = element.get("name")
            if not name:
                raise self.fail(f"a <{tag}>", "has no name.")
            if name in found:
                raise self.fail(f"{tag} {name!r}", "there are two of this name.")
            found[name] = element
        return found

    def text(self, element: Element, where: str, tag: str, attribute: str) -> str:
        below = element.find(tag)
        value = None if below is None else below.get(attribute)
        if not value:
            raise self.fail(where, f'needs <{tag} {attribute}="...">.')
        return value

    def number(self, element: Element, where: str, name: str, default: float | None) -> float:
        value = element.get(name)
        if value is None:
            if default is None:
                raise self.fail(where, f"<{element.tag}> needs {name!r}.")
            return default
        return self._floats(value, where, element.tag, name, 1)[0]

    def triple(self, element: Element, where: str, name: str, default: tuple) -> tuple:
        value = element.get(name)
        if value is None:
            return default
        return self._floats(value, where, element.tag, name, 3)

    def _floats(self, value: str, where: str, tag: str, name: str, count: int) -> tuple:
        try:
            found = tuple(map(decimal, value.split()))
        except ValueError:
            found = ()
        if len(found) != count or not np.all(np.isfinite(found)):
            need = "a number" if count == 1 else f"{count} numbers"
            raise self.fail(where, f"{name!r} of <{tag}> is {brief(value)}; it must be {need}.")
        return found

    def origin(self, element: Element, where: str) -> tuple[np.ndarray, np.ndarray]:
        """Translation and rotation matrix of an element's `origin`."""
        at = element.find("origin")
        if at is None:
            return np.zeros(3), np.eye(3)
        zero = (0.0, 0.0, 0.0)
        position = np.array(self.triple(at, where, "xyz", zero))
        return position, _roll_pitch_yaw(self.triple(at, where, "rpy", zero))


def _root(path: Path) -> Element:
    try:
        # Bytes, since the file itself says its encoding.
        robot = ElementTree.fromstring(read_bytes(path, LARGEST_DATA))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}.") from None
    except ElementTree.ParseError as error:
        raise ValueError(f"{path}: is not valid XML: {error}.") from None
    if robot.tag != "robot":
        raise ValueError(f"{path}: a URDF file has the root <robot>, this one has <{robot.tag}>.")
    # A comment may mention macros that have been expanded.
    if any(
        "xacro" in str(element.tag) or any("${" in value for value in element.attrib.values())
        for element in robot.iter()
    ):
        raise ValueError(f"{path}: has macros; expand them first, with xacro.")
    return robot


def _order(
    path: Path, links: dict[str, Element], joints: dict[str, Element]
) -> tuple[list[str], str]:
    """Joints from the base outwards, one branch after the other as in the file; and the base."""
    above: dict[str, str] = {}
    below: dict[str, list[str]] = {name: [] for name in links}
    for name, joint in joints.items():
        ends = {}
        for end in ("parent", "child"):
            element = joint.find(end)
            link = None if element is None else element.get("link")
            if link is None:
                raise ValueError(f'{path}: joint {name!r}: needs <{end} link="...">.')
            if link not in links:
                raise ValueError(f"{path}: joint {name!r} has {_unknown('link', link, links)}")
            ends[end] = link
        if ends["child"] in above:
            raise ValueError(
                f"{path}: link {ends['child']!r} is the child of joint "
                f"{above[ends['child']]!r} and of joint {name!r}; URDF describes trees. Close "
                "a loop by a [[loop]] in a TOML file beside it, see mechanism.loops.read_urdf."
            )
        above[ends["child"]] = name
        below[ends["parent"]].append(name)
    if not links:
        return [], "base"
    bases = [name for name in links if name not in above]
    if len(bases) != 1:
        what = f"has the bases {listed(bases)}" if bases else "has no base"
        raise ValueError(f"{path}: {what}; all links but one must be the child of a joint.")
    order: list[str] = []
    waiting = list(reversed(below[bases[0]]))
    while waiting:
        name = waiting.pop()
        order.append(name)
        waiting.extend(reversed(below[joints[name].find("child").get("link")]))
    unreached = joints.keys() - set(order)
    if unreached:
        raise ValueError(
            f"{path}: the joints {listed(sorted(unreached))} form a ring without a base."
        )
    return order, bases[0]


def _inertial(reader: _Reader, name: str, link: Element) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, mass centre and inertia of a link in its frame."""
    inertial = link.find("inertial")
    if inertial is None:
        return 0.0, np.zeros(3), np.zeros((3, 3))
    where = f"link {name!r}"
    mass, inertia = inertial.find("mass"), inertial.find("inertia")
    for tag, element in (("mass", mass), ("inertia", inertia)):
        if element is None:
            raise reader.fail(where, f"<inertial> needs <{tag}>.")
    com, axes = reader.origin(inertial, where)
    x, xy, xz, y, yz, z = (
        reader.number(inertia, where, key, None)
        for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
    )
    matrix = np.array([[x, xy, xz], [xy, y, yz], [xz, yz, z]])
    return reader.number(mass, where, "value", None), com, axes @ matrix @ axes.T


def _kind(path: Path, name: str, joint: Element) -> str:
    kind = joint.get("type")
    if kind not in KINDS:
        raise ValueError(
            f"{path}: joint {name!r} is of the unknown type {kind!r}; allowed are "
            f"{', '.join(KINDS)}."
        )
    return KINDS[kind]


def _axis(reader: _Reader, joint: Element, where: str, kind: str) -> tuple:
    if kind not in (*SINGLE, "planar"):
        return (0.0, 0.0, 1.0)
    axis, default = joint.find("axis"), (1.0, 0.0, 0.0)
    return default if axis is None else reader.triple(axis, where, "xyz", default)


def _along_z(axis: tuple) -> np.ndarray:
    """Axes whose z is along a vector."""
    with jax.ensure_compile_time_eval():
        return np.asarray(aligning_z(jnp.asarray(axis)))


def _limits(reader: _Reader, joint: Element, where: str) -> tuple[Numbers, dict[str, float]]:
    """Limits, and damping and friction."""
    infinite = float("inf")
    limit, dynamics = joint.find("limit"), joint.find("dynamics")
    is_continuous = joint.get("type") == "continuous"
    lower, upper, velocity, effort = -infinite, infinite, infinite, infinite
    if limit is None and not is_continuous:
        raise reader.fail(where, "needs <limit>; a joint that rotates without limit is continuous.")
    if limit is not None:
        if is_continuous and {"lower", "upper"} & set(limit.attrib):
            reader.note("Limits of a continuous joint are not used: ", where)
        if not is_continuous:
            lower, upper = (reader.number(limit, where, key, 0.0) for key in ("lower", "upper"))
        velocity, effort = (
            reader.number(limit, where, key, infinite) for key in ("velocity", "effort")
        )
        if lower > upper:
            raise reader.fail(where, f"its lower limit {lower:g} is above its upper one {upper:g}.")
    damping, friction = (
        0.0 if dynamics is None else reader.number(dynamics, where, key, 0.0)
        for key in ("damping", "friction")
    )
    for key, value in {
        "velocity": velocity,
        "effort": effort,
        "damping": damping,
        "friction": friction,
    }.items():
        if value < 0:
            raise reader.fail(where, f"{key!r} is {value:g}; it must not be negative.")
    return Numbers(lower, upper, velocity, effort), {"damping": damping, "friction": friction}


def _mimic(
    reader: _Reader, name: str, joint: Element, where: str, names: Iterable[str], strict: bool
) -> list[Mimic]:
    """The coupling of a joint, none where its leader cannot be."""
    leader = reader.text(joint, where, "mimic", "joint")
    if leader == name:
        raise reader.fail(where, "mimics itself.")
    if leader not in names:
        what = f"mimics {_unknown('joint that moves', leader, names)}"
        if strict:
            raise reader.fail(where, what)
        reader.ignored.append(f"The <mimic> of {where} is not used, since it {what}")
        return []
    mimic = joint.find("mimic")
    ratio, offset = (
        jnp.asarray(reader.number(mimic, where, key, default))
        for key, default in (("multiplier", 1.0), ("offset", 0.0))
    )
    return [Mimic(ratio, offset, name, leader)]


def _check_circles(path: Path, leaders: dict[str, str]) -> None:
    done: set[str] = set()
    for name in leaders:
        seen: dict[str, int] = {}
        while name in leaders and name not in done and name not in seen:
            seen[name] = len(seen)
            name = leaders[name]
        done |= seen.keys()
        if name in seen:
            circle = listed(map(repr, list(seen)[seen[name] :]))
            raise ValueError(f"{path}: the joints {circle} mimic each other in a circle.")


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    return f"no {what} {name!r}; {near(name, known)}"


def _roll_pitch_yaw(angles: tuple) -> np.ndarray:
    """Rotation matrix of rotations about the fixed axes x, then y, then z."""
    (sr, sp, sy), (cr, cp, cy) = np.sin(angles), np.cos(angles)
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )
