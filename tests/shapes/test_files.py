"""Files of triangles as other programs write them: one box, whose mass must come out."""

import struct

import numpy as np
import pytest

from jaxgrip import shapes

pytestmark = pytest.mark.long

CORNERS = np.array([[x, y, z] for x in (0.0, 0.2) for y in (0.0, 0.1) for z in (0.0, 0.3)])
QUADS = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
TRIANGLES = [(f[0], f[k], f[k + 1]) for f in QUADS for k in (1, 2)]
MIXED = [QUADS[0], *TRIANGLES[2:]]
COLOUR = "property uchar red\nproperty list uchar short seen\nproperty uchar blue\n"


def binary_stl(header=b"", attribute=0, after=b""):
    rows = [struct.pack("<12fH", 0, 0, 0, *CORNERS[list(t)].ravel(), attribute) for t in TRIANGLES]
    count = struct.pack("<I", len(rows))
    return header.ljust(80, b" ") + count + b"".join(rows) + after


def text_stl(parts=1):
    text = ""
    for some in np.array_split(TRIANGLES, parts):
        text += "solid a part of mine\n"
        for t in some:
            corners = "".join(f"  vertex {x:.6e} {y:g} {z:g}\n" for x, y, z in CORNERS[list(t)])
            text += f"facet normal 0 0 0\n outer loop\n{corners} endloop\nendfacet\n"
        text += "endsolid a part of mine\n"
    return text


def obj(faces=TRIANGLES, corner="{}", before="", shift=1, colour=""):
    text = "".join(f"v {x} {y} {z}{colour}\n" for x, y, z in CORNERS) + before
    return text + "".join(
        "f " + " ".join(corner.format(i + shift) for i in face) + "\n" for face in faces
    )


def ply(faces=TRIANGLES, kind="ascii", name="vertex_indices", colour=""):
    head = f"ply\nformat {kind} 1.0\ncomment mine\nelement vertex 8\n"
    head += "".join(f"property float {k}\n" for k in "xyz") + colour
    head += f"element face {len(faces)}\nproperty list uchar int {name}\nend_header\n"
    if kind == "ascii":
        more = " 10 2 7 8 30" if colour else ""
        rows = [f"{x} {y} {z}{more}" for x, y, z in CORNERS]
        rows += [f"{len(f)} " + " ".join(map(str, f)) for f in faces]
        return (head + "\n".join(rows) + "\n").encode()
    order = "<" if "little" in kind else ">"
    more = struct.pack(order + "2B2hB", 10, 2, 7, 8, 30) if colour else b""
    rows = [struct.pack(order + "3f", *x) + more for x in CORNERS]
    rows += [struct.pack(f"{order}B{len(f)}i", len(f), *f) for f in faces]
    return head.encode() + b"".join(rows)


FILES = {
    "binary.stl": binary_stl(),
    "binary_that_begins_as_text.stl": binary_stl(b"solid exported by CAD"),
    "attributes.stl": binary_stl(attribute=17),
    "more_behind.stl": binary_stl(after=b"xx"),
    "text.STL": text_stl(),
    "windows.stl": text_stl().replace("\n", "\r\n"),
    "capitals.stl": text_stl().upper(),
    "two_parts.stl": text_stl(2),
    "plain.obj": obj(),
    "textures.obj": obj(
        corner="{}/1/1", before="mtllib x.mtl\no box\nvt 0 0\nvn 0 0 1\nusemtl m\ns off\n"
    ),
    "normals.obj": obj(corner="{}//1", before="vn 0 0 1\n# f 1 2\n"),
    "from_the_end.obj": obj(shift=-8),
    "colours.obj": obj(colour=" 0.1 0.2 0.3"),
    "quadrilaterals.obj": obj(QUADS),
    "mixed.obj": obj(MIXED),
    "text.ply": ply(),
    "other_name.ply": ply(name="vertex_index"),
    "colours.ply": ply(colour=COLOUR),
    "mixed.ply": ply(MIXED),
    "little.ply": ply(kind="binary_little_endian"),
    "big.ply": ply(kind="binary_big_endian"),
    "quadrilaterals.ply": ply(QUADS, "binary_little_endian"),
    "mixed_binary.ply": ply(MIXED, "binary_big_endian"),
    "colours_binary.ply": ply(MIXED, "binary_little_endian", colour=COLOUR),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_other_programs_are_read(tmp_path, name):
    content = FILES[name]
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    found = shapes.read_surface(path)
    assert len(found.vertices) == 8
    assert found.notes == ()
    assert float(shapes.mass_properties(found, 1e3).mass) == pytest.approx(6.0, rel=1e-6)


BROKEN = {
    "empty.stl": (b"", "it is no STL file"),
    "short.stl": (binary_stl()[:300], "has 12 triangles, but is too short for more than 4"),
    "cut.stl": (text_stl()[:-40].encode(), "it is cut off"),
    "word.stl": (text_stl().replace("2.000000e-01", "wide", 1).encode(), "'wide' is no number"),
    "far.obj": (b"v 0 0 0\nv 1 0 0\nf 1 2 99\n", "has the corners 0, 1, 98, counted from 0, but"),
    "zero.obj": (b"v 0 0 0\nf 0 1 1\n", "line 2: there is no corner 0"),
    "edge.obj": (b"v 0 0 0\nf 1 1\n", "line 2: a face has 2 corners"),
    "flat.obj": (b"v 0 0\n", "line 1: a corner has 2 coordinates"),
    "cut.ply": (ply(kind="binary_little_endian")[:-3], "it is cut off"),
    "cut_text.ply": (ply()[:-4], "it is cut off"),
    "points.ply": (ply([]), "has no triangles"),
    "head.ply": (b"ply\nformat ascii 1.0\nwrong\nend_header\n", "its header has the line 'wrong'"),
    "kind.ply": (b"ply\nformat new 1.0\nend_header\n", "its format is 'new'"),
    "none.ply": (b"hello", "it is no PLY file"),
    "mine.step": (b"hello", "its ending is not known; there are STL, OBJ and PLY"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_get_a_sentence(tmp_path, name):
    content, sentence = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=sentence) as caught:
        shapes.read_surface(tmp_path / name)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_folders_are_no_files(tmp_path):
    (tmp_path / "mine.stl").mkdir()
    with pytest.raises(ValueError, match="it is a folder"):
        shapes.read_surface(tmp_path / "mine.stl")
