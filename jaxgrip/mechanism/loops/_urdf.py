"""Mechanisms from URDF files, whose loops are described in a file beside them."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import ArrayLike

from jaxgrip import config, joints, rigid
from jaxgrip.checks import brief, near, numbers
from jaxgrip.joints import Gear, Joint
from jaxgrip.mechanism.loops.model import Coupling, Loop, Mechanism
from jaxgrip.rigid import urdf
from jaxgrip.rigid.builders import GRAVITY

JOINTS = {
    name.lower(): kind
    for name, kind in vars(joints).items()
    if isinstance(kind, type)
    and issubclass(kind, Joint)
    and kind is not Joint
    and not (kind.one_sided or kind.to_ground)
}
KEYS = ("name", "joint", "first", "second", "first_points", "second_points")


class Robot(NamedTuple):
    """A `mechanism` with all loops and couplings, and the `file` it comes from: limits, friction,
    and what was not used."""

    mechanism: Mechanism
    file: rigid.Import


def read_urdf(
    path: str | Path,
    loops: str | Path | None = None,
    *,
    gravity: ArrayLike | Sequence[float] = GRAVITY,
) -> Robot:
    """Mechanism of a URDF file: its tree, its mimic joints as couplings, its loops closed.

    Loops are tables `[[loop]]` of a TOML file with `name`; `joint`, a kind of `jaxgrip.joints` in
    lower case, and its numbers, angles as `..._deg`; `first` and `second`, links; `first_points`
    and `second_points`, of the joint in the frames of these links [m].

    **Arguments:** `path`; `loops`, the TOML file; when None, `NAME.loops.toml` beside `NAME.urdf`
    if there is one; `gravity`: (3,) in the frame of the base link [m/s^2].

    **Returns:** `Robot`. A coupling has the name of the joint that follows.

    **Raises:** `ValueError` as `rigid.read_urdf`, and naming file, loop and
    key for a loop that is incomplete, unknown or impossible.
    """
    path = Path(path)
    file = urdf.read(path, gravity=gravity)
    carried = dict(zip(file.joints, (file.tree.names[i] for i in file.tree.moving), strict=True))
    couplings = [
        Coupling(m.follower, Gear(m.ratio, m.offset), carried[m.leader], carried[m.follower])
        for m in file.mimics
    ]
    beside = path.with_suffix(".loops.toml")
    if loops is None and beside.exists():
        loops = beside
    return Robot(Mechanism(file.tree, _loops(loops, file), couplings), file)


def _loops(path: str | Path | None, file: rigid.Import) -> list[Loop]:
    if path is None:
        return []
    raw = config.read(Path(path))
    for key in raw:
        if key != "loop":
            raise ValueError(f"{path}: {_no('table', key, ['loop'])}")
    tables = raw.get("loop")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"{path}: needs at least one table [[loop]].")
    found = []
    for number, table in enumerate(tables, 1):
        try:
            found.append(_loop(table, file))
        except ValueError as error:
            name = table.get("name")
            where = f"loop {name!r}" if isinstance(name, str) else f"loop number {number}"
            raise ValueError(f"{path}: {where}: {error}") from None
    return found


def _loop(table: dict[str, Any], file: rigid.Import) -> Loop:
    for key in KEYS:
        if key not in table:
            raise ValueError(f"needs {key!r}.")
    for key in KEYS[:4]:
        if not isinstance(table[key], str):
            raise ValueError(f"{key!r} is {brief(table[key])}; it must be a name.")
    kind = JOINTS.get(table["joint"])
    if kind is None:
        raise ValueError(_no("kind of joint", table["joint"], sorted(JOINTS)))
    # Degrees in files, radians inside.
    allowed = {
        "angle_deg" if field.name == "angle" else field.name: field.name
        for field in dataclasses.fields(kind)
    }
    values = {}
    for key in table.keys() - set(KEYS):
        if key not in allowed:
            raise ValueError(_no("key", key, [*KEYS, *allowed]))
        value = table[key]
        values[allowed[key]] = jnp.deg2rad(numbers(key, value, ())) if key[-4:] == "_deg" else value
    try:
        joint = kind(**values)
    except TypeError:
        raise ValueError(f"a {table['joint']} needs {', '.join(allowed)}.") from None
    bodies = [file.body(table[end]) for end in ("first", "second")]
    points = [file.in_body(table[end], table[f"{end}_points"]) for end in ("first", "second")]
    return Loop(table["name"], joint, *bodies, *points)


def _no(what: str, name: str, known: Iterable[str]) -> str:
    return f"there is no {what} {name!r}; {near(name, known, 'allowed are')}"
