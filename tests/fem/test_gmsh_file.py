"""Files written here byte by byte after Gmsh's reference manual, so that every answer is known."""

import itertools
import re
import struct

import meshio
import numpy as np
import pytest

import jaxgrip as jg

# Two unit cubes side by side; the number of the node at (x, y, z) has gaps and no order.
NODES = {
    200 - 10 * (4 * x + 2 * y + z): (float(x), float(y), float(z))
    for x, y, z in itertools.product(range(3), range(2), range(2))
}
BY_PLACE = {place: number for number, place in NODES.items()}


def at(*places):
    return [BY_PLACE[tuple(map(float, place))] for place in places]


def cube(x):
    ring = [(0, 0), (1, 0), (1, 1), (0, 1)]
    return at(*((x + a, b, c) for c in (0, 1) for a, b in ring))


def wall(x):
    return at((x, 0, 0), (x, 0, 1), (x, 1, 1), (x, 1, 0))


HEX, QUAD, LINE, POINT = 5, 3, 1, 15
# Entity (dimension, number) to type, elements, and physical groups.
ENTITIES = {
    (3, 1): (HEX, [cube(0)], [7]),
    (3, 2): (HEX, [cube(1)], []),
    (2, 1): (QUAD, [wall(0)], [7, 5]),
    (2, 2): (QUAD, [wall(2)], [-6]),
    (2, 3): (QUAD, [wall(1)], []),
    (1, 4): (LINE, [at((0, 0, 0), (1, 0, 0)), at((1, 0, 0), (2, 0, 0))], [9]),
    (0, 5): (POINT, [at((2, 1, 1))], [5]),
}
NAMES = {
    (2, 7): "foot",
    (3, 7): "foot",
    (2, 6): 'the "far" end, 100 %',
    (1, 9): "long edge",
    (0, 5): "corner",
}


class Writer:
    """Numbers as words, one call a line, or as bytes of one order."""

    def __init__(self, order):
        self.order, self.parts = order, []

    def line(self, text):
        self.parts.append(f"{text}\n".encode())

    def put(self, kinds, *values):
        if self.order is None:
            self.line(" ".join(map(str, values)))
        else:
            self.parts.append(struct.pack(self.order + kinds, *values))


def write(path, version, order, nodes=NODES, entities=ENTITIES, names=NAMES, **more):
    w = Writer(order)
    w.line("$MeshFormat")
    w.line(f"{version} {0 if order is None else 1} 8")
    if order is not None:
        w.put("i", 1)
        w.line("")
    w.line("$EndMeshFormat")
    w.line("$PhysicalNames")
    w.line(len(names))
    for (dim, number), name in names.items():
        w.line(f'{dim} {number} "{name}"')
    w.line("$EndPhysicalNames")
    {"2.2": write_2}.get(version, write_4)(w, version, nodes, entities, **more)
    path.write_bytes(b"".join(w.parts))
    return path


def write_2(w, version, nodes, entities):
    w.line("$Nodes")
    w.line(len(nodes))
    for number, place in nodes.items():
        w.put("i3d", number, *place)
    w.line("\n$EndNodes\n$Elements")
    rows = [
        (kind, abs(group), tag, element)
        for (_, tag), (kind, elements, groups) in entities.items()
        for group in groups or [0]
        for element in elements
    ]
    w.line(len(rows))
    for k, (kind, group, tag, element) in enumerate(rows):
        n = len(element)
        if w.order is None:
            w.put("", k + 1, kind, 2, group, tag, *element)
        else:
            w.put(f"iiiiii{n}i", kind, 1, 2, k + 1, group, tag, *element)
    w.line("\n$EndElements")


def write_4(w, version, nodes, entities, parametric=False, partitioned=False):
    old = version != "4.1"
    w.line("$PartitionedEntities" if partitioned else "$Entities")
    if partitioned:
        w.put("QQ", 2, 1)
        w.put("ii", 99, 1)
    w.put("4Q", *(sum(d == dim for d, _ in entities) for dim in range(4)))
    for (dim, tag), (_, _, groups) in sorted(entities.items()):
        w.put("i", tag)
        if partitioned:
            w.put("iiQi", dim, 1, 1, 1)
        box = 6 if dim or old else 3
        w.put(f"{box}dQ{len(groups)}i", *[0.0] * box, len(groups), *groups)
        if dim:
            w.put("Q2i", 2, 1, -2)
    w.line("\n$EndPartitionedEntities" if partitioned else "\n$EndEntities")
    w.line("$Nodes")
    w.put("QQ" if old else "4Q", 1, len(nodes), *(() if old else (1, max(nodes))))
    extra = [0.5, 0.5] if parametric else []
    w.put("iiiQ", *((1, 2) if old else (2, 1)), int(parametric), len(nodes))
    if not old:
        w.put(f"{len(nodes)}Q", *nodes)
    for number, place in nodes.items():
        if old:
            w.put(f"i{3 + len(extra)}d", number, *place, *extra)
        else:
            w.put(f"{3 + len(extra)}d", *place, *extra)
    w.line("\n$EndNodes\n$Elements")
    total = sum(len(elements) for _, elements, _ in entities.values())
    w.put("QQ" if old else "4Q", len(entities), total, *(() if old else (1, total)))
    for (dim, tag), (kind, elements, _) in entities.items():
        w.put("iiiQ", *((tag, dim) if old else (dim, tag)), kind, len(elements))
        for k, element in enumerate(elements):
            w.put(("i" if old else "Q") * (1 + len(element)), k + 1, *element)
    w.line("\n$EndElements")


def places(mesh, name):
    return {tuple(x) for x in np.asarray(mesh.nodes)[mesh.topology.point_set(name)].tolist()}


def within(**bounds):
    """Places of the two cubes with some coordinates given."""
    axes = {"xyz".index(axis): value for axis, value in bounds.items()}
    return {p for p in BY_PLACE if all(p[k] == value for k, value in axes.items())}


def check(mesh):
    """All of the two cubes, with every group where it belongs."""
    cells = {frozenset(map(tuple, np.asarray(mesh.nodes)[c].tolist())) for c in mesh.topology.cells}
    assert cells == {frozenset(p for p in BY_PLACE if x <= p[0] <= x + 1) for x in (0, 1)}
    assert places(mesh, "foot") == places(mesh, "5") == within(x=0)
    assert places(mesh, "foot:volume") == within(x=0) | within(x=1)
    assert places(mesh, 'the "far" end, 100 %') == within(x=2)
    assert places(mesh, "long edge") == within(y=0, z=0)
    assert places(mesh, "corner") == within(x=2, y=1, z=1)
    assert set(mesh.topology.faces) == {"foot", "5", 'the "far" end, 100 %'}
    body = jg.fem.Body(mesh, jg.fem.Isotropic(1e9, 0.3, 1000.0), clamp="foot")
    assert int((~body.free).all(axis=1).sum()) == 4
    area = jg.fem.face_area(body, "foot")
    np.testing.assert_allclose(area, 1.0, rtol=1e-12)


@pytest.mark.parametrize("order", [None, "<", ">"])
@pytest.mark.parametrize("version", ["2.2", "4", "4.0", "4.1"])
def test_every_version(version, order, tmp_path):
    """Shared and missing names, overlapping groups, elements of none, gaps, either byte order."""
    path = write(tmp_path / "cubes.msh", version, order)
    with pytest.warns(UserWarning, match=r"2 groups called 'foot': 'foot' is now the surface"):
        mesh = jg.fem.read_mesh(path)
    check(mesh)


@pytest.mark.parametrize("version", ["4.0", "4.1"])
@pytest.mark.parametrize("order", [None, "<"])
def test_nodes_with_parameters(version, order, tmp_path):
    path = write(tmp_path / "cubes.msh", version, order, parametric=True)
    with pytest.warns(UserWarning, match="2 groups called"):
        check(jg.fem.read_mesh(path))


@pytest.mark.parametrize("order", [None, "<"])
def test_partitioned(order, tmp_path):
    path = write(tmp_path / "cubes.msh", "4.1", order, partitioned=True)
    with pytest.warns(UserWarning, match="2 groups called"):
        check(jg.fem.read_mesh(path))
    path = write(tmp_path / "old.msh", "4.0", order, partitioned=True)
    with pytest.raises(
        ValueError, match=r"is partitioned and of version 4\.0; save it as MSH 4\.1"
    ):
        jg.fem.read_mesh(path)


@pytest.mark.parametrize("kind", ["tetra10", "hexahedron27"])
@pytest.mark.parametrize("version", ["2.2", "4.1"])
@pytest.mark.parametrize("binary", [False, True])
def test_against_meshio(kind, version, binary, tmp_path):
    """The order of nodes of the second order, from files that meshio writes."""
    element = {"tetra10": jg.fem.Tet10(), "hexahedron27": jg.fem.Hex27()}[kind]
    mesh = jg.fem.box_mesh(1.0, 1.0, 1.0, 2, 1, 1, element=element)
    cells = np.asarray(mesh.topology.cells)
    tags = {
        name: [np.ones(len(cells), dtype=int)] for name in ("gmsh:physical", "gmsh:geometrical")
    }
    nodes = {"gmsh:dim_tags": np.tile([3, 1], (len(mesh.nodes), 1))}
    raw = meshio.Mesh(np.asarray(mesh.nodes), [(kind, cells)], cell_data=tags, point_data=nodes)
    meshio.gmsh.write(tmp_path / "one.msh", raw, version, binary=binary)
    again = jg.fem.read_mesh(tmp_path / "one.msh")
    np.testing.assert_allclose(again.nodes, mesh.nodes, atol=1e-15)
    np.testing.assert_array_equal(again.topology.cells, cells)
    assert len(again.topology.point_set("1")) == len(mesh.nodes)


def test_group_outside_the_solids(tmp_path):
    """A named point on no solid is not silently an empty support."""
    nodes = NODES | {500: (5.0, 5.0, 5.0)}
    entities = ENTITIES | {(0, 6): (POINT, [[500]], [8]), (0, 7): (POINT, [at((0, 0, 0))], [8])}
    names = {**NAMES, (0, 8): "pins", (3, 7): "all"}
    path = write(tmp_path / "pins.msh", "4.1", None, nodes, entities, names)
    with pytest.warns(UserWarning, match=r"'pins' .* 1 of 2 nodes belong to no solid element"):
        mesh = jg.fem.read_mesh(path)
    assert places(mesh, "pins") == {(0.0, 0.0, 0.0)}


def test_number_and_name_that_are_the_same(tmp_path):
    path = write(tmp_path / "five.msh", "4.1", None, names={(2, 7): "5"})
    with pytest.raises(ValueError, match="surface group 5 has no name, and another is called '5'"):
        jg.fem.read_mesh(path)


def test_names_of_groups_without_elements(tmp_path):
    """Gmsh 4.15 with Mesh.SaveAll writes MSH 2.2 with the names and no element in any group."""
    entities = {key: (kind, elements, []) for key, (kind, elements, _) in ENTITIES.items()}
    path = write(tmp_path / "all.msh", "2.2", None, entities=entities, names={(2, 7): "foot"})
    with pytest.warns(UserWarning, match=r"No element of .* belongs to the groups 'foot'.*SaveAll"):
        mesh = jg.fem.read_mesh(path)
    assert len(mesh.topology.cells) == 2


TETRA = 4
HALVES = {
    1: (0.0, 0.0, 0.0),
    2: (2.0, 0.0, 0.0),
    3: (0.0, 2.0, 0.0),
    4: (0.0, 0.0, 2.0),
    5: (0.0, 0.0, -2.0),
    6: (1.0, 1.0, 0.0),
}


@pytest.mark.parametrize(
    ("second", "place"),
    [
        # Below one tetrahedron lie two: they share a node in the middle of its edge.
        ([[1, 5, 6, 2], [1, 5, 3, 6]], "(1, 1, 0)"),
        ([[1, 5, 6, 2]], "(1, 1, 0)"),
    ],
)
def test_hanging_nodes(second, place, tmp_path):
    entities = {(3, 1): (TETRA, [[1, 2, 3, 4], *second], [1])}
    path = write(tmp_path / "hanging.msh", "4.1", None, HALVES, entities, {})
    message = rf"has 1 hanging nodes: the one at {re.escape(place)} .*BooleanFragments"
    with pytest.raises(ValueError, match=message):
        jg.fem.read_mesh(path)


@pytest.mark.parametrize("middle", [(0.5, 0.85), (0.5, 0.15), (0.15, 0.5), (0.85, 0.5)])
def test_hanging_nodes_in_any_part_of_the_face_of_a_brick(middle, tmp_path):
    """A small brick on the face of one ten times as large."""
    ring = [(0, 0), (1, 0), (1, 1), (0, 1)]
    corners = np.array([(a, b, c) for a in (0, 1) for b, c in ring], dtype=float)
    small = np.array([1.0, *middle]) + 0.1 * (corners - np.array([0, 0.5, 0.5]))
    nodes = {k: tuple(x) for k, x in enumerate(np.concatenate([corners, small]), start=1)}
    entities = {(3, 1): (HEX, [[*range(1, 9)], [*range(9, 17)]], [1])}
    path = write(tmp_path / "hanging.msh", "4.1", None, nodes, entities, {})
    with pytest.raises(ValueError, match="has 4 hanging nodes"):
        jg.fem.read_mesh(path)


def test_hanging_node_in_a_face(tmp_path):
    nodes = {k: p for k, p in HALVES.items() if k < 6} | {7: (0.5, 0.5, 0.0)}
    below = [[1, 5, 7, 2], [2, 5, 7, 3], [3, 5, 7, 1]]
    entities = {(3, 1): (TETRA, [[1, 2, 3, 4], *below], [1])}
    path = write(tmp_path / "hanging.msh", "2.2", None, nodes, entities, {})
    with pytest.raises(ValueError, match=r"hanging nodes: the one at \(0\.5, 0\.5, 0\)"):
        jg.fem.read_mesh(path)


def test_parts_that_touch_without_common_nodes(tmp_path):
    """As in a crack: read, and said."""
    nodes = {k: p for k, p in HALVES.items() if k < 6}
    nodes |= {10 + k: HALVES[k] for k in (1, 2, 3)}
    entities = {(3, 1): (TETRA, [[1, 2, 3, 4], [11, 13, 12, 5]], [1])}
    path = write(tmp_path / "crack.msh", "4.1", None, nodes, entities, {})
    with pytest.warns(UserWarning, match=r"6 nodes that coincide with others.*not joined"):
        mesh = jg.fem.read_mesh(path)
    assert len(mesh.nodes) == 8


def text(tmp_path, version="4.1", **changes):
    path = write(tmp_path / "bad.msh", version, None, names={})
    found = path.read_text()
    for old, new in changes.values():
        assert old in found
        found = found.replace(old, new, 1)
    path.write_text(found)
    return path


@pytest.mark.parametrize(
    ("version", "change", "message"),
    [
        ("4.1", ("4.1 0 8", "1.0 0 8"), r"its format is '1\.0 0 8'; save it as MSH 4\.1"),
        ("4.1", ("4.1 0 8", "4.1 7 8"), r"its format is '4\.1 7 8'; save it as"),
        ("4.1", ("$EndElements", ""), r"section '\$Elements' does not end"),
        ("4.1", ("$Nodes", "$ParametricNodes"), "does not end"),
        ("4.1", ("1 12 1 200", "1000000000000 12 1 200"), "shorter than it says"),
        ("4.1", ("2 1 0 12", "2 1 0 900000000000"), "shorter than it says"),
        ("4.1", ("1 12 1 200", "-1000 12 1 200"), "shorter than it says"),
        ("4.1", ("2 1 0 12", "2 1 0 -1"), "has a count below zero"),
        ("4.1", ("3 1 5 1", "3 1 5 -1"), "has a count below zero"),
        ("2.2", ("1 5 2 7 1", "1 5 -2 7 1"), "has a count below zero"),
        ("4.1", ("\n200 190 ", "\n190 190 "), "two nodes with number 190"),
        ("4.1", ("\n200 190 ", "\n201 190 "), "has node 200, which does not exist"),
        ("4.1", ("3 1 5 1", "3 1 29 1"), r"Gmsh's type 29.*Mesh\.ElementOrder"),
        ("4.1", ("3 1 5 1", "3 1 nan 1"), "nan is read where a whole number is expected"),
        ("2.2", ("$Nodes", "$Knots"), "does not end"),
        ("2.2", ("1 5 2 7 1", "1 5 3 7 1"), "which does not exist|shorter|type|whole"),
    ],
)
def test_damaged_files(version, change, message, tmp_path):
    with pytest.raises(ValueError, match=r"bad\.msh (cannot be read|is no mesh)") as error:
        jg.fem.read_mesh(text(tmp_path, version, change=change))
    assert len(str(error.value)) < 500
    with pytest.raises(ValueError, match=message):
        raise error.value


def test_cut_off_at_every_length(tmp_path):
    """Whatever is left of a file is refused in a sentence."""
    for version, order in (("2.2", None), ("4.1", "<"), ("4.0", ">")):
        content = write(tmp_path / "whole.msh", version, order).read_bytes()
        path = tmp_path / "part.msh"
        for length in range(0, len(content) - 13, 17):
            path.write_bytes(content[:length])
            with pytest.raises(ValueError, match=r"part\.msh cannot be read"):
                jg.fem.read_mesh(path)
