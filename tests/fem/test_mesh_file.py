import base64
import os
import struct
import sys
import zlib
from pathlib import Path
from xml.etree import ElementTree

import jax.numpy as jnp
import meshio
import numpy as np
import pytest

import jaxgrip as jg

# The box 2 x 1 x 1 with the surfaces "root" (x = 0) and "tip" (x = 2), the curve "edge" and the
# point "corner", meshed by Gmsh.
DATA = Path(__file__).parent / "data"
ALUMINIUM = jg.fem.Isotropic(7.22e10, 0.34, 2700.0)
KINDS = [jg.fem.Hex8, jg.fem.Hex27, jg.fem.Tet4, jg.fem.Tet10]


@pytest.mark.parametrize(
    ("file", "kind", "elements", "nodes", "on_edge", "on_face"),
    [
        ("hex8_41.msh", jg.fem.Hex8, 2, 12, 3, 4),
        ("tet10_22.msh", jg.fem.Tet10, 43, 106, 5, 13),
    ],
)
def test_gmsh(file, kind, elements, nodes, on_edge, on_face):
    mesh = jg.fem.read_mesh(DATA / file)
    assert type(mesh.element) is kind
    assert mesh.topology.cells.shape == (elements, len(kind.nodes))
    assert mesh.nodes.shape == (nodes, 3)
    body = jg.fem.Body(mesh, ALUMINIUM, clamp="root")
    assert np.isclose(float(jg.fem.inertia(body).mass.blocks.sum()), 2 * 2700.0, rtol=1e-12)
    assert list(mesh.topology.faces) == ["root", "tip"]
    for name, x in (("root", 0.0), ("tip", 2.0)):
        on = mesh.topology.point_set(name)
        assert len(on) == on_face
        np.testing.assert_allclose(mesh.nodes[on, 0], x, atol=1e-12)
    resultant = jg.fem.traction(body, "tip", (1.0, 2.0, 3.0)).sum(axis=0)
    np.testing.assert_allclose(resultant, [1.0, 2.0, 3.0], rtol=1e-12)
    edge = np.asarray(mesh.nodes)[mesh.topology.point_set("edge")]
    assert len(edge) == on_edge
    np.testing.assert_allclose(edge[:, 1:], 1.0, atol=1e-12)
    corner = np.asarray(mesh.nodes)[mesh.topology.point_set("corner")]
    np.testing.assert_allclose(corner, [[2.0, 1.0, 1.0]], atol=1e-12)


def test_other_element_with_the_nodes_of_the_file():
    mesh = jg.fem.read_mesh(DATA / "hex8_41.msh", element=jg.fem.Hex8Incompatible())
    assert isinstance(mesh.element, jg.fem.Hex8Incompatible)
    with pytest.raises(ValueError, match="type hexahedron, which Tet4 is not"):
        jg.fem.read_mesh(DATA / "hex8_41.msh", element=jg.fem.Tet4())


@pytest.mark.parametrize("kind", KINDS)
def test_vtu_written_and_read(kind, tmp_path):
    mesh = jg.fem.box_mesh(3.0, 2.0, 1.0, 2, 1, 1, element=kind())
    u, stress = mesh.nodes**2, np.arange(6.0 * len(mesh.topology.cells)).reshape(-1, 6)
    file = tmp_path / "box.vtu"
    jg.fem.write_vtu(file, mesh, point_data={"U": u, "T": u[:, 0]}, cell_data={"S": stress})
    raw = meshio.read(file)
    assert [block.type for block in raw.cells] == [kind.meshio_name]
    np.testing.assert_array_equal(raw.cells[0].data, mesh.topology.cells)
    np.testing.assert_array_equal(raw.point_data["U"], u)
    np.testing.assert_array_equal(raw.point_data["T"], u[:, 0])
    np.testing.assert_array_equal(raw.cell_data["S"][0], stress)
    again = jg.fem.read_mesh(file)
    assert type(again.element) is kind
    np.testing.assert_array_equal(again.nodes, mesh.nodes)
    np.testing.assert_array_equal(again.topology.cells, mesh.topology.cells)


def test_middles_of_faces_are_where_vtk_has_them():
    mesh = jg.fem.box_mesh(1.0, 1.0, 1.0, 1, 1, 1, element=jg.fem.Hex27())
    # vtkTriQuadraticHexahedron: faces by their corners -x, +x, -y, +y, -z, +z, then the centre.
    faces = mesh.nodes[mesh.topology.cells[0, 20:]]
    expected = [[0, 0, 0], [1, 0, 0], [0.5, -0.5, 0], [0.5, 0.5, 0], [0.5, 0, -0.5]]
    expected += [[0.5, 0, 0.5], [0.5, 0, 0]]
    np.testing.assert_allclose(faces, expected, atol=1e-15)


def test_series(tmp_path):
    mesh = jg.fem.box_mesh(1.0, 1.0, 1.0, 1, 1, 1)
    times = np.array([0.0, 0.1, 0.25])
    u = times[:, None, None] * np.asarray(mesh.nodes)[None]
    energy = times[:, None]
    jg.fem.write_vtu_series(tmp_path / "run.pvd", mesh, times, {"U": u}, cell_data={"W": energy})
    sets = ElementTree.parse(tmp_path / "run.pvd").findall("./Collection/DataSet")
    assert [float(one.get("timestep")) for one in sets] == times.tolist()
    for k, one in enumerate(sets):
        raw = meshio.read(tmp_path / one.get("file"))
        np.testing.assert_array_equal(raw.point_data["U"], u[k])
        np.testing.assert_array_equal(raw.cell_data["W"][0], energy[k])


def test_unused_nodes_are_dropped(tmp_path):
    points = np.concatenate([[[9.0, 9.0, 9.0]], jg.fem.Tet4.nodes, [[7.0, 7.0, 7.0]]])
    meshio.write(tmp_path / "one.vtu", meshio.Mesh(points, [("tetra", [[1, 2, 3, 4]])]))
    mesh = jg.fem.read_mesh(tmp_path / "one.vtu")
    np.testing.assert_array_equal(mesh.nodes, jg.fem.Tet4.nodes)
    np.testing.assert_array_equal(mesh.topology.cells, [[0, 1, 2, 3]])


HEX20 = np.random.default_rng(0).normal(size=(20, 3))


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([("hexahedron20", [np.arange(20)])], "type hexahedron20; there are hexahedron, hexa"),
        ([("wedge", [np.arange(6)])], "type wedge; there are"),
        (
            [("tetra", [np.arange(4)]), ("hexahedron", [np.arange(8)])],
            "types hexahedron and tetra; a mesh has one",
        ),
        ([("triangle", [np.arange(3)]), ("line", [[0, 1]])], "no solid elements, but line, tri"),
    ],
)
def test_unsuitable_elements_are_named(cells, message, tmp_path):
    meshio.write(tmp_path / "bad.vtu", meshio.Mesh(HEX20, cells))
    with pytest.raises(ValueError, match=message):
        jg.fem.read_mesh(tmp_path / "bad.vtu")


def test_files_that_are_none(tmp_path, capsys):
    with pytest.raises(FileNotFoundError, match=r"There is no mesh file .*nothing\.msh"):
        jg.fem.read_mesh(tmp_path / "nothing.msh")
    (tmp_path / "broken.msh").write_text("$MeshFormat\n4.1 0 8\n$EndMeshFormat\n$Nodes\n")
    with pytest.raises(ValueError, match=r"broken\.msh cannot be read"):
        jg.fem.read_mesh(tmp_path / "broken.msh")
    (tmp_path / "part.step").write_text("solid")
    with pytest.raises(ValueError, match=r"part\.step cannot be read \(its ending is '\.step'"):
        jg.fem.read_mesh(tmp_path / "part.step")
    with pytest.raises(ValueError, match=r"cannot be read \(it is a folder\)"):
        jg.fem.read_mesh(tmp_path)
    for ending in ("msh", "vtu", "inp", "vtk"):
        os.mkfifo(tmp_path / f"pipe.{ending}")
        with pytest.raises(ValueError, match=r"cannot be read \(it is no file on a disk"):
            jg.fem.read_mesh(tmp_path / f"pipe.{ending}")
    with pytest.raises(ValueError, match=r"cannot be read \(it is no file on a disk"):
        jg.fem.read_mesh("/dev/zero")
    underscored = (DATA / "hex8_41.msh").read_text().replace("$Nodes\n", "$Nodes\n1_", 1)
    (tmp_path / "broken.msh").write_text(underscored)
    with pytest.raises(ValueError, match="a number has an underscore"):
        jg.fem.read_mesh(tmp_path / "broken.msh")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("ending", ["med", "exo"])
def test_missing_packages_are_named(ending, tmp_path, monkeypatch):
    package = {"med": "h5py", "exo": "netCDF4"}[ending]
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / f"part.{ending}").write_text("solid")
    with pytest.raises(ValueError, match=f"files .{ending} need the package {package}: pip"):
        jg.fem.read_mesh(tmp_path / f"part.{ending}")


def test_surface_that_is_no_face(tmp_path):
    text = (DATA / "hex8_41.msh").read_text()
    # The quadrilateral of "tip" gets a node of the other end.
    lines = text.split("\n")
    at = lines.index("2 2 3 1") + 1
    number, first, *rest = lines[at].split()
    lines[at] = " ".join([number, "1", *rest])
    assert first != "1"
    (tmp_path / "bad.msh").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=r"surface 'tip' of .* has 1 elements that are no face"):
        jg.fem.read_mesh(tmp_path / "bad.msh")


def test_fields_of_another_length(tmp_path):
    mesh = jg.fem.box_mesh(1.0, 1.0, 1.0, 1, 1, 1)
    with pytest.raises(ValueError, match=r"'U' has the shape \(7, 3\); there are 8 nodes"):
        jg.fem.write_vtu(tmp_path / "x.vtu", mesh, point_data={"U": jnp.zeros((7, 3))})
    with pytest.raises(ValueError, match=r"'S' has the shape \(2,\); there are 1 elements"):
        jg.fem.write_vtu(tmp_path / "x.vtu", mesh, cell_data={"S": jnp.zeros(2)})
    with pytest.raises(ValueError, match=r"'U' has the shape \(2, 8, 3\); there are 3 times"):
        jg.fem.write_vtu_series(tmp_path / "x.pvd", mesh, range(3), {"U": np.zeros((2, 8, 3))})


def packed(data, size=None, appended=False):
    """A block of bytes as VTK packs it, its size in the header given or true."""
    packed = zlib.compress(data, 9)
    header = struct.pack("<4I", 1, len(data) if size is None else size, 0, len(packed))
    if appended:
        return header + packed
    return (base64.b64encode(header) + base64.b64encode(packed)).decode()


def vtu(path, field, pieces=1):
    """One tetrahedron, and a field as given at its nodes."""
    connectivity = packed(np.arange(4, dtype="<i4").tobytes())
    points = packed(np.asarray(jg.fem.Tet4.nodes, dtype="<f8").tobytes())
    offsets, types = (packed(np.array([k], dtype="<i4").tobytes()) for k in (4, 10))
    piece = f"""<Piece NumberOfPoints="4" NumberOfCells="1"><Points>
<DataArray type="Float64" NumberOfComponents="3" format="binary">{points}</DataArray></Points>
<Cells><DataArray type="Int32" Name="connectivity" format="binary">{connectivity}</DataArray>
<DataArray type="Int32" Name="offsets" format="binary">{offsets}</DataArray>
<DataArray type="Int32" Name="types" format="binary">{types}</DataArray></Cells>
<PointData><DataArray type="Int8" Name="T" {field}</DataArray></PointData></Piece>"""
    path.write_text(
        '<VTKFile type="UnstructuredGrid" version="0.1" byte_order="LittleEndian" '
        'compressor="vtkZLibDataCompressor"><UnstructuredGrid>'
        f"{piece * pieces}</UnstructuredGrid></VTKFile>"
    )
    return path


def test_vtu_that_unpacks_to_more_than_fits(tmp_path, monkeypatch):
    """4 GB in 4 MB of blocks of zeros, counted from the headers: nothing is unpacked."""
    many = 4096
    packed_block = zlib.compress(bytes(2**20), 9)
    header = struct.pack("<3I", many, 2**20, 0) + struct.pack("<I", len(packed_block)) * many
    text = base64.b64encode(header) + base64.b64encode(packed_block * many)
    path = vtu(tmp_path / "bomb.vtu", f'format="binary">{text.decode()}')
    monkeypatch.setattr(zlib, "decompress", None)
    with pytest.raises(ValueError, match=r"would unpack to 4\.29e\+09 bytes from .*1\.07e\+09 are"):
        jg.fem.read_mesh(path)


def test_vtu_whose_header_understates(tmp_path, monkeypatch):
    monkeypatch.setattr(zlib, "decompress", None)
    path = vtu(tmp_path / "lie.vtu", f'format="binary">{packed(bytes(10**7), size=4)}')
    with pytest.raises(ValueError, match=r"unpacks to more than the 4 bytes it says"):
        jg.fem.read_mesh(path)
    head = struct.pack("<4I", 2**31, 1, 0, 1)
    path = vtu(tmp_path / "long.vtu", f'format="binary">{base64.b64encode(head).decode()}')
    with pytest.raises(ValueError, match=r"has 2147483648 blocks, more than"):
        jg.fem.read_mesh(path)


def test_vtu_with_a_damaged_block(tmp_path):
    whole = packed(bytes(range(100)))
    path = vtu(tmp_path / "damaged.vtu", f'format="binary">{whole[:30]}AAAAAA{whole[36:]}')
    with pytest.raises(ValueError, match=r"damaged\.vtu cannot be read \(a block of it is damaged"):
        jg.fem.read_mesh(path)


def test_vtu_in_appended_blocks(tmp_path):
    """As ParaView writes: raw bytes behind the tree."""
    path = vtu(tmp_path / "raw.vtu", 'format="appended" offset="0">')
    good = path.read_bytes()

    def with_data(data):
        tail = b'<AppendedData encoding="raw">_' + data + b"\n</AppendedData></VTKFile>"
        path.write_bytes(good.replace(b"</VTKFile>", tail))
        return path

    from jaxgrip.fem._vtu_size import check_vtu

    check_vtu(with_data(packed(bytes(4), appended=True)))
    with pytest.raises(ValueError, match=r"would unpack to 4e\+09 bytes"):
        check_vtu(with_data(packed(bytes(4), size=4 * 10**9, appended=True)))


def test_vtu_of_several_pieces(tmp_path):
    """meshio would give the last one only."""
    field = f'format="binary">{packed(bytes(4))}'
    np.testing.assert_array_equal(
        jg.fem.read_mesh(vtu(tmp_path / "1.vtu", field)).nodes, jg.fem.Tet4.nodes
    )
    with pytest.raises(ValueError, match=r"has 2 pieces.*merge them"):
        jg.fem.read_mesh(vtu(tmp_path / "2.vtu", field, pieces=2))


def test_numbers_of_groups_in_vtu(tmp_path):
    """Groups by number, as meshio converts Gmsh's files."""
    mesh = jg.fem.box_mesh(2.0, 1.0, 1.0, 2, 1, 1)
    x = np.asarray(mesh.nodes)
    cells = [
        ("hexahedron", mesh.topology.cells),
        ("quad", [np.flatnonzero(x[:, 0] == 0)[[0, 1, 3, 2]]]),
    ]
    tags = {"gmsh:physical": [np.array([3, 0]), np.array([3])]}
    meshio.write(tmp_path / "tags.vtu", meshio.Mesh(x, cells, cell_data=tags))
    with pytest.warns(UserWarning, match="2 groups called '3'"):
        read = jg.fem.read_mesh(tmp_path / "tags.vtu")
    assert set(np.asarray(read.nodes)[read.topology.point_set("3"), 0]) == {0.0}
    assert set(np.asarray(read.nodes)[read.topology.point_set("3:volume"), 0]) == {0.0, 1.0}
    assert list(read.topology.faces) == ["3"]


ABAQUS = """*NODE
1, 0, 0, 0
2, 1, 0, 0
3, 0, 1, 0
4, 0, 0, 1
*ELEMENT, TYPE=C3D4
1, 1, 2, 3, 4
*NSET, NSET=foot
1, 2, 3
*ELSET, ELSET=foot
1
"""


def test_abaqus_sets(tmp_path):
    """A set of nodes and one of elements may share a name."""
    path = tmp_path / "tet.inp"
    path.write_text(ABAQUS)
    with pytest.warns(UserWarning, match=r"'foot' is now the point; also available: 'foot:vol"):
        mesh = jg.fem.read_mesh(path)
    assert len(mesh.topology.point_set("foot")) == 3
    assert len(mesh.topology.point_set("foot:volume")) == 4
    path.write_text(ABAQUS.replace("ELSET=foot", "ELSET=all") + "*SURFACE, NAME=top\n1, S1\n")
    with pytest.warns(UserWarning, match=r"1 \*SURFACE definitions, which are not read"):
        jg.fem.read_mesh(path)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("*NODE\n5, 0, 0, 2\n", r"has 2 \*NODE lines, of which at most 1"),
        ("*INCLUDE, INPUT=tet.inp\n", r"has 1 \*INCLUDE lines, of which at most 0"),
        ("*ELEMENT, TYPE=S3, ELSET=skin\n2, 1, 2, 3\n", r"lists of elements have no ELSET"),
    ],
)
def test_abaqus_files_that_would_be_read_wrongly(more, message, tmp_path):
    path = tmp_path / "tet.inp"
    path.write_text(ABAQUS + more)
    with pytest.raises(ValueError, match=message):
        jg.fem.read_mesh(path)
