"""Systems in TOML or JSON files."""

import inspect
import json
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxgrip import config, joints
from jaxgrip.checks import brief, numbers
from jaxgrip.config import DEEPEST, ConfigError, hint, short, toml_key
from jaxgrip.mechanism import _actuated as actuated
from jaxgrip.mechanism import _forces as forces
from jaxgrip.mechanism._forces import Applied, Force
from jaxgrip.mechanism.system import GROUND, Connection, Part, System
from jaxgrip.rigid.builders import GRAVITY
from jaxgrip.spatial import euler, quaternions

KINDS = {
    kind.__name__.lower(): kind
    for kind in vars(joints).values()
    if isinstance(kind, type) and hasattr(kind, "equations") and kind is not joints.Joint
}
# Kinds of forces, and the keys that say where each acts.
FORCES = {
    "spring": forces.Spring,
    "joint_force": forces.JointForce,
    "load": forces.Load,
    "friction": actuated.Friction,
    "lugre_friction": actuated.LuGreFriction,
    "servo_drive": actuated.ServoDrive,
}
WHERE = {"between": ("first", "second"), "along": ("joint",), "on": ("at",)}
ENDINGS = (".toml", ".json")
ORIENTATIONS = ("quaternion", "turn_deg", "euler_deg", "cardan_deg")
# Limit on parts, joints and attachments, which files that include each other multiply.
MOST = 10_000


def read(path: str | Path, *, kinds: Mapping[str, type] | None = None) -> System:
    """Read a system, with its nested assemblies, from a TOML or JSON file.

    **Arguments:** `path`; `kinds`: joints and forces of one's own, classes by the name of the kind
    in the file. Their keys are the arguments of the class; one whose field is itself a class of
    numbers, an `equinox.Module`, is a table.

    Keys and tables, of which only `part` is required:

    - `gravity`: acceleration of free fall [m/s^2], (0, 0, -9.81) when missing.
    - `[ground]`: attachments of the ground by name, one to three points each [m].
    - `[[part]]`: `name`, `attachments` (points by name, in the frame of the part [m]), and roughly
      where the part is: `position` [m] and one of `quaternion` (scalar first), `turn_deg` (axis
      times angle), `euler_deg` (about z, the new x, the new z) and `cardan_deg` (about the fixed
      x, y and z). For a motion: `mass` [kg], `com` (3,) [m], and `inertia` about the latter
      [kg m^2], a matrix or its three principal values.
    - `[[joint]]`: `name`, `kind` (the name of a class of `jaxgrip.joints`, in lower case),
      `first` and `second` (`"part.attachment"`), and the numbers of that class; `angle_deg` for an
      angle in degrees.
    - `[[force]]`: `name`, `kind` and its numbers: a `spring` between `first` and `second`
      (`"part.attachment"`) has `stiffness`, `length` and `damping`; a `joint_force` along a
      `joint` (its name) has `effort`, `stiffness`, `rest` or `rest_deg`, and `damping`; a `load`
      at one attachment, `at`, has `force` and `moment`, and rotates with it if it `follows`. Also
      along a `joint`, with the numbers of the classes of these names: `friction`, `lugre_friction`
      with a table `law`, and `servo_drive` with a table `servo`.
    - `[[assembly]]`: `name`, a rough `position` and orientation as those of a part, and either its
      own `part`, `joint`, `force` and `assembly`, or a `file` with these, relative to this one.
      Names and poses in it are relative to the assembly; outside they are
      `"assembly/part.attachment"`.

    **Returns:** `System`; parts and joints of assemblies come last, named `"assembly/part"` and
    `"assembly/joint"`.

    **Raises:** `ConfigError` that names file, table and key; also for more than 10,000 parts,
    joints and attachments in all, counted before any is made, and for assemblies more than 50 deep;
    `ValueError` for kinds that are no joints or forces.

    Source: own format.
    """
    path = Path(path)
    files = _Files(*_kinds(kinds))
    data = files.load(path)
    size = files.size(data, (path.resolve(),))
    if size.count > MOST or size.depth > DEEPEST:
        raise ConfigError(
            f"{short(path)}: has {size.count:,} parts, joints and attachments with its assemblies, "
            f"which are {size.depth} deep; at most {MOST:,}, {DEEPEST} deep, are allowed."
        )
    table = _Table(short(path), data)
    ground = table.take("ground", dict, {})
    gravity = table.numbers("gravity", (3,)) if "gravity" in table.left else GRAVITY
    table.known.append("gravity")
    found = _contents(table, "", _at_rest(), (path.resolve(),), files)
    return table.build(System, found.parts, found.connections, ground, found.forces, gravity)


def write(
    system: System,
    path: str | Path,
    *,
    overwrite: bool = False,
    kinds: Mapping[str, type] | None = None,
) -> None:
    """Write a system to a TOML or JSON file, all digits of its numbers.

    **Arguments:** `system`; `path`, ending in `.toml` or `.json`; `overwrite`: whether to replace
    an existing file; `kinds`: joints and forces of one's own, as for `read`.

    **Raises:** `ConfigError` for another ending; `ValueError` for a joint or force whose class is
    not among the kinds; `FileExistsError`.
    """
    path = Path(path)
    _check_ending(path)
    of_joints, of_forces = _kinds(kinds)
    raw = {"ground": {key: _plain(points) for key, points in system.ground.items()}}
    if not raw["ground"]:
        del raw["ground"]
    if not np.array_equal(system.gravity, GRAVITY):
        raw["gravity"] = _plain(system.gravity)
    for part in system.parts:
        folder, name = _place(raw, part.name)
        row = {
            "name": name,
            "position": _plain(part.position),
            "quaternion": _plain(part.quaternion),
        }
        if np.any(part.mass):
            row |= {key: _plain(getattr(part, key)) for key in ("mass", "com", "inertia")}
        row["attachments"] = {key: _plain(points) for key, points in part.attachments.items()}
        folder.setdefault("part", []).append(row)
    for connection in system.connections:
        folder, name = _place(raw, connection.name)
        prefix = connection.name.removesuffix(name)
        folder.setdefault("joint", []).append(_joint_table(connection, name, prefix, of_joints))
    for applied in system.forces:
        folder, name = _place(raw, applied.name)
        prefix = applied.name.removesuffix(name)
        folder.setdefault("force", []).append(_force_table(applied, name, prefix, of_forces))
    text = json.dumps(raw, indent=1) if path.suffix == ".json" else "\n".join(_toml(raw))
    with path.open("w" if overwrite else "x", encoding="utf-8") as file:
        file.write(text + "\n")


def _kinds(own: Mapping[str, type] | None) -> tuple[dict[str, type], dict[str, type]]:
    """Classes of joints and of forces by the name of the kind, with those of one's own."""
    found = dict(KINDS), dict(FORCES)
    for name, kind in (own or {}).items():
        for known, base in zip(found, (joints.Joint, Force), strict=True):
            if isinstance(kind, type) and issubclass(kind, base):
                if name in known:
                    raise ValueError(f"The kind {name!r} is already known; choose another name.")
                known[name] = kind
                break
        else:
            raise ValueError(
                f"The kind {name!r} is {brief(kind)}; it must be a subclass of Joint or Force."
            )
    return found


def _name_of(made: Any, kinds: dict[str, type], who: str) -> str:
    """Name of the kind of a joint or force."""
    for name, kind in kinds.items():
        if type(made) is kind:
            return name
    raise ValueError(
        f"{who} is a {type(made).__name__}, which is not among the kinds of a file; give `kinds` "
        "with a name for it."
    )


class _Pose(NamedTuple):
    position: Float[Array, "3"]
    quaternion: Float[Array, "4"]

    def of(self, position: Any, quaternion: Any) -> "_Pose":
        """Pose in the ground frame from one relative to this."""
        turned = quaternions.to_matrix(self.quaternion) @ position
        return _Pose(self.position + turned, quaternions.product(self.quaternion, quaternion))


def _at_rest() -> _Pose:
    return _Pose(jnp.zeros(3), jnp.array([1.0, 0.0, 0.0, 0.0]))


class _Contents(NamedTuple):
    parts: tuple[Part, ...]
    connections: tuple[Connection, ...]
    forces: tuple[Applied, ...]


class _Table:
    """A table of a file: `where` it is, for messages, and the keys `left` to read."""

    def __init__(self, where: str, data: Any):
        if not isinstance(data, dict):
            raise ConfigError(f"{where} must be a table, but is {_shown(data)}.")
        self.where, self.left, self.known = where, dict(data), []

    def take(self, key: str, kind: type, *default: Any) -> Any:
        """Value of a key, checked for its type."""
        self.known.append(key)
        if key not in self.left:
            if default:
                return default[0]
            raise ConfigError(f"{self.where}: {key} is missing.")
        value = self.left.pop(key)
        if not isinstance(value, kind):
            words = {str: "a string", dict: "a table", list: "an array"}[kind]
            raise ConfigError(f"{self.where}: {key} must be {words}, but is {_shown(value)}.")
        return value

    def numbers(self, key: str, shape: tuple[int, ...]) -> Array:
        """Numbers of a key that is present."""
        self.known.append(key)
        return self.build(numbers, key, self.left.pop(key), shape)

    def tables(self, key: str) -> Iterator["_Table"]:
        """Every table of an array of tables."""
        for count, data in enumerate(self.take(key, list, []), start=1):
            name = data.get("name") if isinstance(data, dict) else None
            called = f" ({short(name, 60)})" if isinstance(name, str) else ""
            yield _Table(f"{self.where}: {key} {count}{called}", data)

    def build(self, make: Any, *args: Any, **options: Any) -> Any:
        """The result of `make`; its error is preceded by where the table is."""
        try:
            return make(*args, **options)
        except ConfigError:
            raise
        except ValueError as error:
            raise ConfigError(f"{self.where}: {short(error, 1000)}") from None

    def finish(self) -> None:
        """Raise `ConfigError` for an unknown key."""
        for key in self.left:
            if key not in self.known:
                raise ConfigError(
                    f"{self.where}: {short(key, 60)} is not a known key{hint(key, self.known)}; "
                    f"known here are {', '.join(self.known)}."
                )


class _Size(NamedTuple):
    """Number of parts, joints, forces and attachments of a table, and depth of its assemblies."""

    count: int
    depth: int


class _Files:
    """The files of a system, each read only once, and the kinds of joints and forces in them."""

    def __init__(self, of_joints: dict[str, type], of_forces: dict[str, type]):
        self.joints, self.forces = of_joints, of_forces
        self._data: dict[Path, Any] = {}
        self._sizes: dict[Path, _Size] = {}

    def load(self, path: Path) -> Any:
        """Content of a file, not yet checked."""
        key = path.resolve()
        if key not in self._data:
            _check_ending(path)
            if path.suffix == ".toml":
                self._data[key] = config.read(path)
            else:
                self._data[key] = config.parsed(path, "JSON", _from_json)
        return self._data[key]

    def size(self, data: Any, opened: tuple[Path, ...]) -> _Size:
        """Size of a table, before it is built.

        Malformed and circular tables count as empty: reading them raises the error.
        """
        keys = ("part", "joint", "force", "assembly")
        parts, connections, acting, inner = (_rows(data, key) for key in keys)
        attached = [part.get("attachments") for part in parts]
        count = len(parts) + len(connections) + len(acting)
        count += sum(len(points) for points in attached if isinstance(points, dict))
        depth = 0
        for row in inner:
            within = self._within(row, opened)
            count, depth = count + within.count, max(depth, 1 + within.depth)
        return _Size(count, depth)

    def _within(self, row: dict[str, Any], opened: tuple[Path, ...]) -> _Size:
        file = row.get("file")
        if not isinstance(file, str):
            return self.size(row, opened)
        path = _located(opened, file)
        if path in opened:
            return _Size(0, 0)
        if len(opened) > DEEPEST:
            raise ConfigError(
                f"{short(opened[0])}: has files within files more than {DEEPEST} deep."
            )
        if path not in self._sizes:
            self._sizes[path] = self.size(self.load(path), (*opened, path))
        return self._sizes[path]


def _rows(data: Any, key: str) -> list[dict[str, Any]]:
    """Entries of an array of tables that are tables."""
    rows = data.get(key) if isinstance(data, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _located(opened: tuple[Path, ...], file: str) -> Path:
    """Path of a file named in the last one opened."""
    try:
        return (opened[-1].parent / file).resolve()
    except (OSError, ValueError, RuntimeError):
        raise ConfigError(
            f"{short(opened[-1])}: file is {_shown(file)}, which is no valid path."
        ) from None


def _from_json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"the key {_shown(twice)} appears twice")
    return table


def _check_ending(path: Path) -> None:
    if path.suffix not in ENDINGS:
        raise ConfigError(
            f"{short(path)}: the file of a system must end in {' or '.join(ENDINGS)}."
        )


def _contents(
    table: _Table, prefix: str, pose: _Pose, opened: tuple[Path, ...], files: _Files
) -> _Contents:
    parts = [_part(row, prefix, pose) for row in table.tables("part")]
    connections = [_connection(row, prefix, files.joints) for row in table.tables("joint")]
    acting = [_force(row, prefix, files.forces) for row in table.tables("force")]
    for row in table.tables("assembly"):
        within = _assembly(row, prefix, pose, opened, files)
        parts += within.parts
        connections += within.connections
        acting += within.forces
    table.finish()
    if not parts:
        raise ConfigError(f"{table.where}: has no part; give at least one.")
    return _Contents(tuple(parts), tuple(connections), tuple(acting))


def _part(row: _Table, prefix: str, pose: _Pose) -> Part:
    name = _name(row)
    attachments = row.take("attachments", dict, {})
    place = pose.of(*_placement(row))
    row.known += ["mass", "com", "inertia"]
    mass = {key: row.left.pop(key) for key in ("mass", "com", "inertia") if key in row.left}
    row.finish()
    return row.build(Part, prefix + name, attachments, *place, **mass)


def _assembly(
    row: _Table, prefix: str, pose: _Pose, opened: tuple[Path, ...], files: _Files
) -> _Contents:
    name = _name(row)
    inner = pose.of(*_placement(row))
    prefix = f"{prefix}{name}/"
    file = row.take("file", str, None)
    if file is None:
        return _contents(row, prefix, inner, opened, files)
    row.finish()
    path = _located(opened, file)
    if path in opened:
        raise ConfigError(f"{row.where}: file = {_shown(file)} contains itself.")
    table = _Table(short(path), files.load(path))
    return _contents(table, prefix, inner, (*opened, path), files)


def _connection(row: _Table, prefix: str, kinds: dict[str, type]) -> Connection:
    name, make = _name(row), _kind(row, kinds)
    first = row.take("first", str)
    second = None if getattr(make, "to_ground", False) else _inside(row.take("second", str), prefix)
    joint = _made(row, make)
    return Connection(prefix + name, joint, _inside(first, prefix), second)


def _force(row: _Table, prefix: str, kinds: dict[str, type]) -> Applied:
    name, make = _name(row), _kind(row, kinds)
    ends = [_inside(row.take(key, str), prefix) for key in WHERE[make.acts]]
    return Applied(prefix + name, _made(row, make), *ends)


def _kind(row: _Table, kinds: dict[str, type]) -> type:
    kind = row.take("kind", str)
    if kind not in kinds:
        raise ConfigError(
            f"{row.where}: there is no kind {_shown(kind)}{hint(kind, kinds)}; known are "
            f"{', '.join(kinds)}."
        )
    return kinds[kind]


def _fields(make: type) -> dict[inspect.Parameter, type | None]:
    """Keys of a kind in a file, each with the class of its table, None for numbers.

    What may be a class or None, such as the joint along which a force acts, is no key.
    """
    hints, found = typing.get_type_hints(make), {}
    for field in inspect.signature(make).parameters.values():
        hint = hints.get(field.name)
        if not any(map(_is_table, typing.get_args(hint))):
            found[field] = hint if _is_table(hint) else None
    return found


def _is_table(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, eqx.Module)


def _made(row: _Table, make: type) -> Any:
    """Build a kind from the rest of its row; angles may be in degrees."""
    wanted, fields = _fields(make), {}
    degrees = {name: f"{name}_deg" for name in ("angle", "rest", "target")}
    row.known += [field.name for field in wanted]
    row.known += [degrees[field.name] for field in wanted if field.name in degrees]
    row.finish()
    for field, table in wanted.items():
        other = degrees.get(field.name)
        if table is not None and field.name in row.left:
            inner = _Table(f"{row.where}: {field.name}", row.left.pop(field.name))
            fields[field.name] = _made(inner, table)
        elif other in row.left:
            if field.name in row.left:
                raise ConfigError(f"{row.where}: give {field.name} or {other}, not both.")
            fields[field.name] = jnp.deg2rad(row.numbers(other, ()))
        elif field.name in row.left:
            fields[field.name] = row.left.pop(field.name)
        elif field.default is inspect.Parameter.empty:
            raise ConfigError(
                f"{row.where}: {field.name} is missing; {make.__name__.lower()} needs it."
            )
    return row.build(make, **fields)


def _inside(end: str, prefix: str) -> str:
    return end if end.split(".")[0] == GROUND else prefix + end


def _outside(end: str, prefix: str, who: str) -> str:
    """The inverse of `_inside`."""
    if end.split(".")[0] == GROUND:
        return end
    if not end.startswith(prefix):
        raise ValueError(
            f"{who} joins {end!r}, which is not in {prefix!r}, the assembly of its name; in a file "
            "it must be. Choose another name."
        )
    return end.removeprefix(prefix)


def _name(row: _Table) -> str:
    name = row.take("name", str)
    if not name or set(name) & set("./"):
        raise ConfigError(
            f"{row.where}: name is {_shown(name)}; it must not be empty nor have a dot or a slash."
        )
    return name


def _placement(row: _Table) -> _Pose:
    position = row.numbers("position", (3,)) if "position" in row.left else jnp.zeros(3)
    given = [key for key in ORIENTATIONS if key in row.left]
    row.known += ["position", *ORIENTATIONS]
    if len(given) > 1:
        raise ConfigError(f"{row.where}: give one of {' and '.join(given)}, not both.")
    if not given:
        return _Pose(position, _at_rest().quaternion)
    if given == ["quaternion"]:
        q = row.numbers("quaternion", (4,))
        if not np.any(np.asarray(q)):
            raise ConfigError(f"{row.where}: quaternion is zero; no rotation is [1, 0, 0, 0].")
        return _Pose(position, q / jnp.linalg.norm(q))
    convert = {
        "turn_deg": quaternions.exponential,
        "euler_deg": euler.from_euler,
        "cardan_deg": euler.from_cardan,
    }[given[0]]
    return _Pose(position, convert(jnp.deg2rad(row.numbers(given[0], (3,)))))


def _place(raw: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    """Table of the assembly that contains `path`, made where missing, and the name in it."""
    *folders, name = path.split("/")
    for folder in folders:
        inner = raw.setdefault("assembly", [])
        found = next((table for table in inner if table["name"] == folder), None)
        if found is None:
            found = {"name": folder}
            inner.append(found)
        raw = found
    return raw, name


def _joint_table(
    connection: Connection, name: str, prefix: str, kinds: dict[str, type]
) -> dict[str, Any]:
    joint = connection.joint
    ends = {"first": connection.first, "second": connection.second}
    return {
        "name": name,
        "kind": _name_of(joint, kinds, f"Connection {connection.name!r}"),
        **{
            key: _outside(end, prefix, f"Connection {connection.name!r}")
            for key, end in ends.items()
            if end is not None
        },
        **_numbers_of(joint),
    }


def _force_table(
    applied: Applied, name: str, prefix: str, kinds: dict[str, type]
) -> dict[str, Any]:
    force = applied.force
    ends = zip(WHERE[force.acts], (applied.first, applied.second), strict=False)
    return {
        "name": name,
        "kind": _name_of(force, kinds, f"Force {applied.name!r}"),
        **{key: _outside(end, prefix, f"Force {applied.name!r}") for key, end in ends},
        **_numbers_of(force),
    }


def _numbers_of(made: Any) -> dict[str, Any]:
    found = {}
    for field, table in _fields(type(made)).items():
        value = getattr(made, field.name)
        if table is not None:
            found[field.name] = _numbers_of(value)
        elif isinstance(value, str | bool):
            found[field.name] = value
        # The only numbers that may be infinite are so by default.
        elif value is not None and np.all(np.isfinite(value)):
            found[field.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist()


def _toml(table: dict[str, Any], path: tuple[str, ...] = ()) -> Iterable[str]:
    inner = {}
    for key, value in table.items():
        rows = isinstance(value, list) and value and isinstance(value[0], dict)
        if isinstance(value, dict) or rows:
            inner[key] = value
        else:
            yield f"{toml_key(key)} = {json.dumps(value, ensure_ascii=False)}"
    for key, value in inner.items():
        header = ".".join(map(toml_key, (*path, key)))
        for entry in [value] if isinstance(value, dict) else value:
            yield from ("", f"[{header}]" if isinstance(value, dict) else f"[[{header}]]")
            yield from _toml(entry, (*path, key))


def _shown(value: Any) -> str:
    return short(json.dumps(value, ensure_ascii=False, default=str), 60)
