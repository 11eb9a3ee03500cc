"""Corners and triangles from files: STL, OBJ and PLY read here, others by meshio."""

import contextlib
import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxgrip._files import LARGEST_MESH, read_bytes
from jaxgrip.checks import brief, decimal

# Corners (n, 3), and polygons by numbers of their corners.
Polygons = tuple[np.ndarray, np.ndarray | Sequence]

_PLY_TYPES = {
    **{"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4"},
    **{"float": "f4", "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2"},
    **{"int32": "i4", "uint32": "u4", "float32": "f4", "float64": "f8"},
}


def triangles(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Corners (n, 3) of a file and triangles (m, 3), polygons split into them.

    **Raises:** `ValueError` with the path for a file that cannot be read.
    """
    kind = path.suffix.lower()
    try:
        read = {".stl": _stl, ".obj": _obj, ".ply": _ply}.get(kind)
        points, polygons = _others(path) if read is None else read(read_bytes(path, LARGEST_MESH))
    except FileNotFoundError:
        raise ValueError(f"There is no file {path}.") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}.") from None
    found = _split(polygons)
    if not len(found):
        raise ValueError(f"{path} has no triangles.")
    if found.min() < 0 or found.max() >= len(points):
        k = int(np.argmax((found < 0) | (found >= len(points))) // 3)
        raise ValueError(
            f"{path} cannot be read: triangle {k + 1} has the corners "
            f"{', '.join(map(str, found[k]))}, counted from 0, but there are {len(points)}."
        )
    return points, found


def _split(polygons: np.ndarray | Sequence) -> np.ndarray:
    if isinstance(polygons, np.ndarray) and polygons.ndim == 2:
        middle = [polygons[:, [0, k, k + 1]] for k in range(1, polygons.shape[1] - 1)]
        return np.concatenate([np.zeros((0, 3), int), *middle]).astype(int)
    fans = [(x[0], x[k], x[k + 1]) for x in polygons for k in range(1, len(x) - 1)]
    return np.array(fans, int).reshape(-1, 3)


def _stl(content: bytes) -> Polygons:
    # Some programs begin binary files with the word that begins text files.
    text = re.match(rb"\s*solid", content, re.IGNORECASE) and b"facet" in content[:4096].lower()
    count = int.from_bytes(content[80:84], "little")
    size = 84 + 50 * count
    if len(content) == size or not text:
        if len(content) < 84:
            raise ValueError("it is no STL file")
        if len(content) < size:
            raise ValueError(
                f"it says that it has {count} triangles, but is too short for more than "
                f"{(len(content) - 84) // 50}"
            )
        rows = np.frombuffer(content, np.uint8, 50 * count, 84).reshape(count, 50)
        corners = np.ascontiguousarray(rows[:, 12:48]).view("<f4").astype(float)
    else:
        words = re.findall(rb"vertex\s+(\S+)\s+(\S+)\s+(\S+)", content.lower())
        if len(words) % 3 or b"endsolid" not in content.lower():
            raise ValueError("it is cut off: there is no endsolid, or a triangle lacks corners")
        corners = np.array([[_number(x.decode("latin-1")) for x in row] for row in words])
    # Every triangle has corners of its own.
    points, numbers = np.unique(corners.reshape(-1, 3), axis=0, return_inverse=True)
    return points, numbers.reshape(-1, 3)


def _obj(content: bytes) -> Polygons:
    points, polygons = [], []
    # A line that ends with a backslash goes on in the next.
    text = content.decode("utf-8", "replace").replace("\\\r\n", " ").replace("\\\n", " ")
    for number, line in enumerate(text.splitlines(), start=1):
        key, *words = line.partition("#")[0].split() or [""]
        if key == "v":
            # Behind the three coordinates there may be a weight or a colour.
            if len(words) < 3:
                raise ValueError(f"line {number}: a corner has {len(words)} coordinates")
            points.append([_number(x) for x in words[:3]])
        elif key == "f":
            corners = [_corner(x, len(points), number) for x in words]
            if len(corners) < 3:
                raise ValueError(f"line {number}: a face has {len(corners)} corners")
            polygons.append(corners)
    return np.array(points, float).reshape(-1, 3), polygons


def _corner(word: str, count: int, line: int) -> int:
    """Number of a corner: its position, counted from the end if negative, before the first /."""
    try:
        k = int(word.partition("/")[0])
    except ValueError:
        raise ValueError(f"line {line}: {brief(word)} is no corner") from None
    if k == 0 or k < -count:
        raise ValueError(f"line {line}: there is no corner {k}")
    return k - 1 if k > 0 else count + k


def _ply(content: bytes) -> Polygons:
    begin = re.search(rb"^end_header[ \t]*\r?\n", content, re.MULTILINE)
    if not content.startswith(b"ply") or begin is None:
        raise ValueError("it is no PLY file")
    kind, elements = _ply_header(content[: begin.start()].decode("latin-1"))
    body = content[begin.end() :]
    if kind == "ascii":
        found = _ply_text(body.decode("latin-1").split(), elements)
    else:
        found = _ply_binary(body, elements, "<" if "little" in kind else ">")
    if "vertex" not in found or not {"x", "y", "z"} <= set(found["vertex"]):
        raise ValueError("it has no corners with x, y and z")
    points = np.stack([np.asarray(found["vertex"][k], float) for k in "xyz"], axis=1)
    face = found.get("face", {})
    return points, face.get("vertex_indices", face.get("vertex_index", []))


# Name, number of rows, and properties: name, type, and type of the length if it is a list.
_Element = tuple[str, int, list[tuple[str, str, str | None]]]


def _ply_header(text: str) -> tuple[str, list[_Element]]:
    kind, elements = "", []
    for line in text.splitlines()[1:]:
        words = line.split()
        match words:
            case ["format", given, _]:
                kind = given
            case ["element", name, count] if count.isdigit():
                elements.append((name, int(count), []))
            case ["property", "list", length, of, name] if {length, of} <= _PLY_TYPES.keys():
                elements[-1][2].append((name, _PLY_TYPES[of], _PLY_TYPES[length]))
            case ["property", of, name] if of in _PLY_TYPES and elements:
                elements[-1][2].append((name, _PLY_TYPES[of], None))
            case [] | ["comment", *_] | ["obj_info", *_]:
                pass
            case _:
                raise ValueError(f"its header has the line {brief(line)}")
    if kind not in ("ascii", "binary_little_endian", "binary_big_endian"):
        raise ValueError(f"its format is {brief(kind)}")
    return kind, elements


def _ply_text(words: list[str], elements: list[_Element]) -> dict[str, dict]:
    found, at = {}, 0
    for name, count, properties in elements:
        if all(length is None for _, _, length in properties):
            end = at + count * len(properties)
            if end > len(words):
                raise ValueError("it is cut off")
            rows = np.array([_number(x) for x in words[at:end]]).reshape(count, len(properties))
            found[name] = {key: rows[:, k] for k, (key, *_) in enumerate(properties)}
            at = end
            continue
        found[name] = {key: [] for key, *_ in properties}
        for _ in range(count):
            for key, _, length in properties:
                size = 1
                if length is not None:
                    size = int(_number(words[at])) if at < len(words) else 0
                    at += 1
                if at + size > len(words):
                    raise ValueError("it is cut off")
                values = [_number(x) for x in words[at : at + size]]
                found[name][key].append(values[0] if length is None else values)
                at += size
    return found


def _ply_binary(body: bytes, elements: list[_Element], order: str) -> dict[str, dict]:
    found, at = {}, 0
    for name, count, properties in elements:
        rows = _ply_rows(body, at, count, properties, order)
        if rows is not None:
            found[name] = {key: rows[key] for key, *_ in properties}
            at += rows.nbytes
            continue
        found[name] = {key: [] for key, *_ in properties}
        for _ in range(count):
            for key, of, length in properties:
                size = 1
                if length is not None:
                    size = int(_unpacked(body, at, 1, order, length)[0])
                    at += np.dtype(length).itemsize
                values = _unpacked(body, at, size, order, of)
                found[name][key].append(values[0] if length is None else values)
                at += size * np.dtype(of).itemsize
    return found


def _ply_rows(body: bytes, at: int, count: int, properties: list, order: str) -> np.ndarray | None:
    """All rows at once if every list is as long as that of the first row."""
    fields, here = [], at
    for key, of, length in properties:
        shape = ()
        if length is not None and count:
            (size,) = _unpacked(body, here, 1, order, length)
            fields.append((f"{key} length", order + length))
            here += np.dtype(length).itemsize
            shape = (int(size),)
        fields.append((key, order + of, shape))
        here += int(np.prod(shape)) * np.dtype(of).itemsize
    kind = np.dtype(fields)
    if len(body) - at < kind.itemsize * count:
        if all(length is None for *_, length in properties):
            raise ValueError("it is cut off")
        return None
    rows = np.frombuffer(body, kind, count, at)
    alike = all(
        np.all(rows[f"{key} length"] == rows.dtype[key].shape[0])
        for key, _, length in properties
        if length is not None and count
    )
    return rows if alike else None


def _unpacked(body: bytes, at: int, count: int, order: str, of: str) -> np.ndarray:
    try:
        return np.frombuffer(body, order + of, count, at)
    except ValueError:
        raise ValueError("it is cut off") from None


def _number(word: str) -> float:
    try:
        return decimal(word)
    except ValueError:
        raise ValueError(f"{brief(word)} is no number") from None


def _others(path: Path) -> Polygons:
    """The surface in a file that meshio reads, which prints and exits where it cannot."""
    import meshio

    if not path.is_file():
        raise FileNotFoundError
    if not path.name.lower().endswith(tuple(meshio.extension_to_filetypes)):
        raise ValueError("its ending is not known; there are STL, OBJ and PLY files")
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            mesh = meshio.read(path)
    except (Exception, SystemExit) as error:
        raise ValueError(str(error).rstrip(".") or type(error).__name__) from None
    for cells in mesh.cells:
        if cells.dim == 3:
            raise ValueError(
                f"it has solid elements ({cells.type}), not a surface: see `jg.fem.read_mesh`"
            )
    polygons = [one for cells in mesh.cells if cells.dim == 2 for one in cells.data]
    points = np.asarray(mesh.points, float)
    return np.pad(points, ((0, 0), (0, 3 - points.shape[1]))), polygons
