"""Meshes in Gmsh's format MSH 2, 4.0 and 4.1, as text or binary.

Numbers of nodes may have gaps, physical groups may overlap, lack a name, or share it with a group
of another dimension. Source: Gmsh manual, chapter "Gmsh file formats".
"""

import warnings
from pathlib import Path

import numpy as np

from jaxgrip._files import LARGEST_MESH, read_bytes
from jaxgrip.checks import brief, listed
from jaxgrip.fem._raw_mesh import KINDS, Block, Group, RawMesh

# Name, dimension and number of nodes of an element by Gmsh's number of its type.
TYPES = {
    15: ("vertex", 0, 1),
    1: ("line", 1, 2),
    8: ("line3", 1, 3),
    2: ("triangle", 2, 3),
    3: ("quad", 2, 4),
    9: ("triangle6", 2, 6),
    10: ("quad9", 2, 9),
    16: ("quad8", 2, 8),
    4: ("tetra", 3, 4),
    5: ("hexahedron", 3, 8),
    6: ("wedge", 3, 6),
    7: ("pyramid", 3, 5),
    11: ("tetra10", 3, 10),
    12: ("hexahedron27", 3, 27),
    13: ("wedge18", 3, 18),
    14: ("pyramid14", 3, 14),
    17: ("hexahedron20", 3, 20),
    18: ("wedge15", 3, 15),
    19: ("pyramid13", 3, 13),
}
# Gmsh's node numbers in VTK order, which the elements here use.
ORDERS = {
    "tetra10": [0, 1, 2, 3, 4, 5, 6, 7, 9, 8],
    "hexahedron27": [
        *(0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 9, 16, 18, 19, 17, 10, 12, 14, 15),
        *(22, 23, 21, 24, 20, 25, 26),
    ],
}
REMEDY = "save it as MSH 4.1 (Mesh.MshFileVersion = 4.1 in Gmsh)"


def read_gmsh(path: Path) -> RawMesh:
    """All elements of a file `.msh` and its physical groups.

    **Raises:** `ValueError` where the file is cut off, of another version, or contradicts itself.
    """
    sections = _sections(read_bytes(path, LARGEST_MESH))
    if "MeshFormat" not in sections:
        raise ValueError(f"it has no section $MeshFormat; {REMEDY}")
    head, _, mark = sections["MeshFormat"].partition(b"\n")
    version, kind, size = [*head.split(), b"", b"", b""][:3]
    if version[:2] not in (b"2", b"2.", b"4", b"4.") or kind not in (b"0", b"1"):
        raise ValueError(f"its format is {brief(head.decode(errors='replace'))}; {REMEDY}")
    order = None if kind == b"0" else "<" if mark[:1] == b"\x01" else ">"
    if "ParametricNodes" in sections:
        raise ValueError("it has parameters of nodes; save it with Mesh.SaveParametric = 0")
    for name in ("Nodes", "Elements"):
        if name not in sections:
            known = ", ".join(f"${known}" for known in sections)
            raise ValueError(f"it has no section ${name}, but {known}; {REMEDY}")
    names = _names(sections.get("PhysicalNames", b""))
    if version.startswith(b"2"):
        nodes, points = _nodes_2(sections["Nodes"], order)
        elements = _elements_2(sections["Elements"], order)
    else:
        # Gmsh itself writes "4" for 4.0, other programs for 4.1: the length of a line decides.
        first = sections["Nodes"].partition(b"\n")[0].split()
        old = len(first) == 2 if order is None else version in (b"4", b"4.0")
        if old and "PartitionedEntities" in sections:
            raise ValueError(f"it is partitioned and of version 4.0; {REMEDY}")
        count = f"u{int(size)}" if size in (b"4", b"8") else "u8"
        entities: dict[tuple[int, int], list[int]] = {}
        for name in ("Entities", "PartitionedEntities"):
            if name in sections:
                entities |= _entities(_Numbers(sections[name], order), count, old, name)
        nodes, points = _nodes_4(_Numbers(sections["Nodes"], order), count, old)
        elements = _elements_4(_Numbers(sections["Elements"], order), count, old, entities)
    raw = _mesh(nodes, points, elements, names)
    found = {(group.name, group.dim) for group in raw.groups}
    empty = [name for (dim, _), name in names.items() if (name, dim) not in found]
    if empty:
        warnings.warn(
            f"No element of the mesh file {path} belongs to the groups {listed(map(repr, empty))}. "
            "Gmsh leaves groups out of MSH 2.2 where Mesh.SaveAll is set.",
            stacklevel=4,
        )
    return raw


class _Numbers:
    """Reader of the numbers of a section, in text or binary.

    `order` is the byte order, None for text.
    """

    def __init__(self, content: bytes, order: str | None):
        self.order, self.at = order, 0
        # NumPy would read 1_000 as 1000, as Python does.
        if order is None and b"_" in content:
            raise ValueError("a number has an underscore; the file is damaged")
        self.content = np.array(content.split(), dtype=float) if order is None else content

    def rows(self, count: int, *fields: tuple[str, int]) -> list[np.ndarray]:
        """The next `count` rows: for each field (type, length) an array (count, length)."""
        count, width = int(count), sum(length for _, length in fields)
        if count < 0 or any(length < 0 for _, length in fields):
            raise ValueError("a section has a count below zero; the file is damaged")
        if self.order is None:
            table, step = None, count * width
        else:
            table = np.dtype([(f"{k}", self.order + t, (n,)) for k, (t, n) in enumerate(fields)])
            step = count * table.itemsize
        # Checked before allocating: the count of a damaged file may be huge.
        if step > len(self.content) - self.at:
            raise ValueError("a section is shorter than it says; the file is cut off or damaged")
        begin, self.at = self.at, self.at + step
        if table is not None:
            found = np.frombuffer(self.content, table, count, begin)
            return [found[f"{k}"] for k in range(len(fields))]
        words = self.content[begin : self.at].reshape(count, width)
        bounds = np.cumsum([0] + [length for _, length in fields])
        return [
            words[:, a:b] if kind == "f8" else _whole(words[:, a:b])
            for (kind, _), a, b in zip(fields, bounds[:-1], bounds[1:], strict=True)
        ]

    def alike(self, width: int, most: int) -> int:
        """Number of text rows that share the second and third word of the first."""
        left = self.content[self.at :]
        most, size = min(most, len(left) // max(width, 3)), 1
        while size < most:
            # Doubling keeps many short runs of rows linear in time.
            size = min(2 * size, most)
            heads = left[: size * width].reshape(size, width)[:, 1:3]
            same = np.all(heads == heads[0], axis=1)
            if not same.all():
                return int(np.argmin(same))
        return size

    def times(self, count: int) -> range:
        """`range(count)`, if as many numbers are left."""
        if not 0 <= count <= len(self.content) - self.at:
            raise ValueError("a section is shorter than it says; the file is cut off or damaged")
        return range(count)

    def take(self, kind: str, count: int = 1) -> list:
        """The next `count` numbers of one type."""
        return self.rows(1, (kind, int(count)))[0][0].tolist()


def _whole(x: np.ndarray) -> np.ndarray:
    bad = ~(np.abs(x) < 2**53) | (x != np.round(x))
    if bad.any():
        raise ValueError(f"{x[bad][0]:g} is read where a whole number is expected")
    return x.astype(int)


def _sections(data: bytes) -> dict[str, bytes]:
    sections: dict[str, bytes] = {}
    at = 0
    while (begin := data.find(b"$", at)) >= 0:
        head, _, _ = data[begin : begin + 80].partition(b"\n")
        name = head[1:].strip()
        start = begin + len(head) + 1
        end = data.find(b"$End" + name, start)
        if end < 0:
            raise ValueError(
                f"the section {brief(head.decode(errors='replace').strip())} does not end; the "
                "file is cut off"
            )
        sections.setdefault(name.decode(errors="replace"), data[start:end])
        at = end + 4 + len(name)
    return sections


def _names(content: bytes) -> dict[tuple[int, int], str]:
    """Names by dimension and number; a name is between the first and last quote of its line."""
    names = {}
    for line in content.decode(errors="replace").splitlines()[1:]:
        words = line.split(None, 2)
        if len(words) == 3:
            quoted = words[2].strip()
            inside = quoted[1:-1] if quoted[:1] == quoted[-1:] == '"' else quoted
            names[int(words[0]), abs(int(words[1]))] = inside
    return names


def _nodes_2(content: bytes, order: str | None) -> tuple[np.ndarray, np.ndarray]:
    count, _, rest = content.partition(b"\n")
    number, positions = _Numbers(rest, order).rows(int(count), ("i4", 1), ("f8", 3))
    return number[:, 0], positions


def _elements_2(content: bytes, order: str | None) -> list[tuple]:
    """Type, nodes (elements, n) and group numbers of elements that share type and groups."""
    first, _, rest = content.partition(b"\n")
    count, numbers = int(first), _Numbers(rest, order)
    found: dict[tuple[int, int], list] = {}
    while count > 0:
        if order is None:
            begin = numbers.at
            _, kind, tags = numbers.take("i4", 3)
            numbers.at = begin
            rows = numbers.alike(3 + tags + _type(kind)[2], count)
        else:
            kind, rows, tags = numbers.take("i4", 3)
        before = ("i4", 3 if order is None else 1)
        _, tag, nodes = numbers.rows(rows, before, ("i4", tags), ("i4", _type(kind)[2]))
        for group in np.unique(tag[:, 0]) if tags else (0,):
            own = nodes[tag[:, 0] == group] if tags else nodes
            found.setdefault((kind, abs(int(group))), []).append(own)
        count -= max(rows, 1)
    return [
        (kind, np.concatenate(parts), [group] if group else [])
        for (kind, group), parts in found.items()
    ]


def _entities(
    numbers: _Numbers, count: str, old: bool, section: str
) -> dict[tuple[int, int], list[int]]:
    """Group numbers of each entity, by its dimension and number."""
    partitioned = section == "PartitionedEntities"
    if partitioned:
        numbers.take(count)
        numbers.rows(numbers.take(count)[0], ("i4", 2))
    groups = {}
    for dim, many in enumerate(numbers.take(count, 4)):
        for _ in numbers.times(many):
            (tag,) = numbers.take("i4")
            if partitioned:
                numbers.take("i4", 2)
                numbers.take("i4", numbers.take(count)[0])
            numbers.take("f8", 6 if dim or old else 3)
            # The sign of a group number gives the orientation of the entity in it.
            groups[dim, tag] = [abs(g) for g in numbers.take("i4", numbers.take(count)[0])]
            if dim:
                numbers.take("i4", numbers.take(count)[0])
    return groups


def _nodes_4(numbers: _Numbers, count: str, old: bool) -> tuple[np.ndarray, np.ndarray]:
    blocks = numbers.take(count, 2 if old else 4)[0]
    tags, positions = [np.zeros(0, dtype=int)], [np.zeros((0, 3))]
    for _ in numbers.times(blocks):
        first, second, parametric = numbers.take("i4", 3)
        dim = second if old else first
        (many,) = numbers.take(count)
        width = 3 + (dim if parametric else 0)
        if old:
            tag, position = numbers.rows(many, ("i4", 1), ("f8", width))
        else:
            (tag,) = numbers.rows(many, (count, 1))
            (position,) = numbers.rows(many, ("f8", width))
        tags.append(tag[:, 0].astype(int))
        positions.append(position[:, :3])
    return np.concatenate(tags), np.concatenate(positions)


def _elements_4(
    numbers: _Numbers, count: str, old: bool, entities: dict[tuple[int, int], list[int]]
) -> list[tuple]:
    elements = []
    for _ in numbers.times(numbers.take(count, 2 if old else 4)[0]):
        first, second, kind = numbers.take("i4", 3)
        dim, tag = (second, first) if old else (first, second)
        (many,) = numbers.take(count)
        integer = "i4" if old else count
        _, nodes = numbers.rows(many, (integer, 1), (integer, _type(kind)[2]))
        elements.append((kind, nodes.astype(int), entities.get((dim, tag), [])))
    return elements


def _type(kind: int) -> tuple[str, int, int]:
    if kind not in TYPES:
        raise ValueError(
            f"it has elements of Gmsh's type {kind}, which is not supported; use elements of "
            "first or second order (Mesh.ElementOrder in Gmsh)"
        )
    return TYPES[kind]


def _mesh(numbers: np.ndarray, points: np.ndarray, elements: list[tuple], names: dict) -> RawMesh:
    order = np.argsort(numbers, kind="stable")
    ascending = numbers[order]
    twice = np.flatnonzero(np.diff(ascending) == 0)
    if len(twice):
        raise ValueError(f"it has two nodes with number {ascending[twice[0]]}")
    blocks: list[Block] = []
    members: dict[tuple[int, int], list[Block]] = {}
    for kind, nodes, groups in elements:
        name, dim, _ = _type(kind)
        index = np.minimum(np.searchsorted(ascending, nodes), len(ascending) - 1)
        missing = nodes[ascending[index] != nodes] if len(ascending) else nodes
        if missing.size:
            raise ValueError(f"an element has node {missing.flat[0]}, which does not exist")
        own = order[index]
        block = Block(name, dim, own[:, ORDERS[name]] if name in ORDERS else own)
        blocks.append(block)
        for group in groups:
            members.setdefault((dim, group), []).append(block)
    labels: dict[tuple[str, int], list[Block]] = {}
    for (dim, group), parts in members.items():
        label = names.get((dim, group), str(group))
        if (dim, group) not in names and label in [n for (d, _), n in names.items() if d == dim]:
            raise ValueError(
                f"the {KINDS[dim]} group {group} has no name, and another is called {label!r}; "
                "give it one"
            )
        labels.setdefault((label, dim), []).extend(parts)
    return RawMesh(points, blocks, [Group(name, dim, p) for (name, dim), p in labels.items()])
