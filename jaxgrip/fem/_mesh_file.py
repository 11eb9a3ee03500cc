"""Meshes from files, and fields to VTK files."""

import contextlib
import io
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from jaxgrip._files import LARGEST_MESH, check_readable
from jaxgrip.fem._gmsh_file import read_gmsh
from jaxgrip.fem._joined import check_joined
from jaxgrip.fem._mesh import Mesh, mesh
from jaxgrip.fem._raw_mesh import FIRST, Block, Group, RawMesh, by_name
from jaxgrip.fem._vtu_size import check_vtu
from jaxgrip.fem.elements import Element, Hex8, Hex27, Tet4, Tet10

# Characters of another program's message that are quoted in an error.
LONGEST = 300
ELEMENTS = {kind.meshio_name: kind for kind in (Hex8, Hex27, Tet4, Tet10)}


def read_mesh(path: str | Path, *, element: Element | None = None) -> Mesh:
    """Mesh of the solid elements in a Gmsh (`.msh`), VTK (`.vtu`) or other meshio file.

    **Arguments:** `path`; `element`, a type with the same nodes as those in the file, such as
    `Hex8Incompatible()`; the plain type when not given.

    **Returns:** a mesh with the coordinates of the file, taken as metres. Surface groups become
    faces; every group becomes a node set. A group without a name is called by its number, as in
    `"7"`. Where groups of several dimensions share a name, the surface has it, else the curve,
    else the points; the others have their dimension appended (`"foot:volume"`). Nodes of no solid
    element are dropped.

    **Raises:** `FileNotFoundError`; `ValueError` when the file cannot be read, has no solid
    elements, elements of several types or an unsupported type (which is named), a surface that is
    not a face of a solid element, or hanging nodes. Warns of shared names, of groups with nodes of
    no solid element, and of elements that touch without sharing nodes.
    """
    path = Path(path)
    raw = _read(path)
    chosen = _kind(path, raw, element)
    cells = np.concatenate([block.nodes for block in raw.blocks if block.dim == 3])
    # Gmsh's older format repeats elements that are in several groups.
    first = np.unique(np.sort(cells, axis=1), axis=0, return_index=True)[1]
    cells = cells[np.sort(first)]
    used, cells = np.unique(cells, return_inverse=True)
    cells = cells.reshape(-1, len(chosen.nodes))
    number = np.full(len(raw.points), -1)
    number[used] = np.arange(len(used))
    faces, points = {}, {}
    for name, group in by_name(path, raw.groups).items():
        nodes = number[group.nodes]
        if (nodes < 0).any():
            warnings.warn(
                f"The group {name!r} of the mesh file {path}: {(nodes < 0).sum()} of "
                f"{len(nodes)} nodes belong to no solid element and are dropped.",
                stacklevel=2,
            )
        if (nodes < 0).all():
            continue
        points[name] = nodes[nodes >= 0]
        surfaces = [number[part.nodes] for part in group.parts if part.dim == 2]
        if surfaces:
            faces[name] = _match(path, name, surfaces, cells, chosen)
    positions = raw.points[used]
    try:
        found = mesh(positions, cells, chosen, faces=faces, points=points)
    except ValueError as error:
        raise ValueError(f"The mesh file {path} is no mesh. {error}") from None
    check_joined(path, positions, cells, chosen)
    return found


def write_vtu(
    path: str | Path,
    mesh: Mesh,
    *,
    point_data: Mapping[str, Any] | None = None,
    cell_data: Mapping[str, Any] | None = None,
) -> None:
    """Write mesh and fields to a file `.vtu`.

    **Arguments:** `point_data`, name to values at the nodes (n, ...); `cell_data`, name to values
    of the elements (elements, ...). For nodes with rotations, a field (n, 6) is split into the
    displacements and, with `_rotation` appended to the name, the rotations.

    **Raises:** `ValueError` for fields of another length.
    """
    import meshio

    nodes, cells = np.asarray(mesh.nodes), mesh.topology.cells
    at_nodes: dict[str, np.ndarray] = {}
    for name, values in _fields(point_data, len(nodes), "nodes").items():
        if mesh.element.dofs == 6 and values.shape[1:] == (6,):
            at_nodes |= {name: values[:, :3], f"{name}_rotation": values[:, 3:]}
        else:
            at_nodes[name] = values
    in_cells = _fields(cell_data, len(cells), "elements")
    grid = meshio.Mesh(
        nodes,
        [(mesh.element.meshio_name, cells)],
        point_data=at_nodes,
        cell_data={name: [values] for name, values in in_cells.items()},
    )
    meshio.write(Path(path), grid, file_format="vtu")


def write_vtu_series(
    path: str | Path,
    mesh: Mesh,
    times,
    point_data: Mapping[str, Any] | None = None,
    *,
    cell_data: Mapping[str, Any] | None = None,
) -> None:
    """Write fields over time to a file `.pvd` and, in a folder of its name, one `.vtu` per time.

    **Arguments:** `times` (t,) [s]; `point_data` and `cell_data` as for `write_vtu`, with time as
    the first axis, (t, n, ...).

    **Raises:** `ValueError` for fields of another length.
    """
    path, times = Path(path), np.asarray(times, dtype=float)
    at_nodes = _fields(point_data, len(times), "times")
    in_cells = _fields(cell_data, len(times), "times")
    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    root = ElementTree.Element("VTKFile", type="Collection", version="0.1")
    collection = ElementTree.SubElement(root, "Collection")
    for k, time in enumerate(times):
        file = folder / f"{k:0{len(str(len(times)))}d}.vtu"
        write_vtu(
            file,
            mesh,
            point_data={name: values[k] for name, values in at_nodes.items()},
            cell_data={name: values[k] for name, values in in_cells.items()},
        )
        entry = {"timestep": repr(float(time)), "part": "0", "file": f"{folder.name}/{file.name}"}
        ElementTree.SubElement(collection, "DataSet", entry)
    ElementTree.indent(root)
    ElementTree.ElementTree(root).write(path, xml_declaration=True, encoding="utf-8")


def _fields(data: Mapping[str, Any] | None, length: int, what: str) -> dict[str, np.ndarray]:
    fields = {name: np.asarray(values) for name, values in (data or {}).items()}
    for name, values in fields.items():
        if values.shape[:1] != (length,):
            raise ValueError(
                f"The field {name!r} has the shape {values.shape}; there are {length} {what}."
            )
    return fields


def _read(path: Path) -> RawMesh:
    try:
        check_readable(path, LARGEST_MESH)
        if path.suffix.lower() == ".msh":
            return read_gmsh(path)
        if path.suffix.lower() == ".vtu":
            check_vtu(path)
        if path.suffix.lower() == ".inp":
            _check_abaqus(path)
        return _from_meshio(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no mesh file {path}.") from None
    except (ValueError, OSError, ElementTree.ParseError) as error:
        said = getattr(error, "strerror", None) or str(error)
        reason = said.strip().rstrip(".") or type(error).__name__
        raise ValueError(f"The mesh file {path} cannot be read ({reason[:LONGEST]}).") from error


def _check_abaqus(path: Path) -> None:
    """Raise `ValueError` for what meshio reads wrongly, and warn of surfaces, which it ignores.

    It keeps only the last of several node lists, assigns the set of one element list to others,
    and recurses without end where files include each other.
    """
    lines = re.findall(r"^\*(?!\*)(.*)$", path.read_text(errors="replace"), re.MULTILINE)
    keys = [line.partition(",")[0].strip().upper() for line in lines]
    for key, most in (("NODE", 1), ("INSTANCE", 1), ("INCLUDE", 0)):
        if keys.count(key) > most:
            raise ValueError(
                f"it has {keys.count(key)} *{key} lines, of which at most {most} can be read; "
                "merge all nodes into one list in one file"
            )
    elements = [line for line, key in zip(lines, keys, strict=True) if key == "ELEMENT"]
    sets = [re.findall(r"ELSET\s*=\s*([^,]+)", line.upper()) for line in elements]
    named = [name.strip() for found in sets for name in found]
    if named and (len(named) < len(sets) or len(set(named)) < len(named)):
        raise ValueError(
            "some of its lists of elements have no ELSET, or the same one; give each its own, or "
            "give none and use *ELSET"
        )
    if "SURFACE" in keys:
        warnings.warn(
            f"The mesh file {path} has {keys.count('SURFACE')} *SURFACE definitions, which are not "
            "read; use sets of nodes, or elements on the surface in an ELSET.",
            stacklevel=4,
        )


def _from_meshio(path: Path) -> RawMesh:
    """The file as read by meshio, which prints and exits where it cannot read a file."""
    import meshio

    known = sorted(meshio.extension_to_filetypes)
    if not path.name.lower().endswith(tuple(known)):
        raise ValueError(
            f"its ending is {path.suffix[:40]!r}; meshes are in files that end in .msh, .vtu or "
            f"another of {', '.join(known)}"
        )
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
            raw = meshio.read(path)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"files {path.suffix} need the package {error.name}: pip install {error.name}"
        ) from None
    except (Exception, SystemExit) as error:
        heard = said.getvalue().strip().splitlines()
        raise ValueError(heard[-1] if heard else f"{type(error).__name__}: {error}") from error
    points = np.asarray(raw.points, dtype=float)
    if points.shape[1:] != (3,):
        raise ValueError(f"its nodes have {points.shape[-1]} coordinates; solids need 3")
    blocks = [
        Block(block.type, block.dim, np.asarray(block.data, dtype=int).reshape(len(block.data), -1))
        for block in raw.cells
        if not block.type.startswith(("poly", "VTK_"))
    ]
    if len(blocks) < len(raw.cells):
        odd = next(block.type for block in raw.cells if block.type.startswith(("poly", "VTK_")))
        raise ValueError(f"it has elements of the type {odd}")
    groups = [
        Group(name, 0, [Block("vertex", 0, np.asarray(nodes, dtype=int).reshape(-1, 1))])
        for name, nodes in raw.point_sets.items()
        if len(nodes)
    ]
    for name, sets in raw.cell_sets.items():
        pairs = zip(blocks, sets, strict=True)
        parts = [_part(block, index) for block, index in pairs if index is not None and len(index)]
        if parts:
            dims = {part.dim for part in parts}
            groups.append(Group(name, next(dim for dim in FIRST if dim in dims), parts))
    return RawMesh(points, blocks, [*groups, *_numbered(raw, blocks)])


def _part(block: Block, index) -> Block:
    return block._replace(nodes=block.nodes[np.asarray(index, dtype=int)])


def _numbered(raw, blocks: list[Block]) -> list[Group]:
    """Groups given by tags on the elements, as in Gmsh, Medit and Nastran files."""
    named = {
        (int(entry[1]), int(entry[0])): name
        for name, entry in raw.field_data.items()
        if np.shape(entry) == (2,)
    }
    groups: dict[tuple[str, int], list[Block]] = {}
    for key in ("gmsh:physical", "medit:ref", "nastran:ref"):
        for block, tags in zip(blocks, raw.cell_data.get(key, ()), strict=False):
            for tag in np.unique(np.asarray(tags)):
                if tag != 0:
                    name = named.get((block.dim, int(tag)), str(int(tag)))
                    part = _part(block, np.flatnonzero(np.ravel(tags) == tag))
                    groups.setdefault((name, block.dim), []).append(part)
    return [Group(name, dim, parts) for (name, dim), parts in groups.items()]


def _kind(path: Path, raw: RawMesh, element: Element | None) -> Element:
    found = sorted({block.type for block in raw.blocks if block.dim == 3 and len(block.nodes)})
    if not found:
        others = ", ".join(sorted({block.type for block in raw.blocks})) or "no elements at all"
        raise ValueError(f"The mesh file {path} has no solid elements, but {others}.")
    unknown = [name for name in found if name not in ELEMENTS]
    if unknown:
        incomplete = unknown[0] == "hexahedron20"
        remedy = " Gmsh makes hexahedron27 with Mesh.SecondOrderIncomplete = 0." * incomplete
        raise ValueError(
            f"The mesh file {path} has elements of the type {unknown[0]}; there are "
            f"{', '.join(ELEMENTS)}.{remedy}"
        )
    if len(found) > 1:
        raise ValueError(
            f"The mesh file {path} has elements of the types {' and '.join(found)}; a mesh has one "
            "type."
        )
    if element is None:
        return ELEMENTS[found[0]]()
    if element.meshio_name != found[0]:
        raise ValueError(
            f"The mesh file {path} has elements of the type {found[0]}, which "
            f"{type(element).__name__} is not."
        )
    return element


def _match(
    path: Path, name: str, surfaces: list[np.ndarray], cells: np.ndarray, element: Element
) -> np.ndarray:
    """Element and local face (faces, 2) of each surface; an inner surface gets the first of two."""
    local = np.array(element.faces)
    keys = np.sort(cells[:, local].reshape(-1, local.shape[1]), axis=1)
    known = {tuple(key): i for i, key in reversed(list(enumerate(keys.tolist())))}
    wanted = [tuple(sorted(nodes)) for part in surfaces for nodes in part.tolist()]
    missing = sum(key not in known for key in wanted)
    if missing:
        raise ValueError(
            f"The surface {name!r} of the mesh file {path} has {missing} elements that are no face "
            "of a solid element; mesh surfaces and solids together, with the same order."
        )
    return np.stack(np.divmod([known[key] for key in wanted], len(local)), axis=1)
