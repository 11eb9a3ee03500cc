"""Meshes from files, and results to files that ParaView opens; all of it through meshio."""

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from jaxgrip.fem.elements import Element, Hex8, Hex27, Tet4, Tet10
from jaxgrip.fem.mesh import Mesh, mesh

ELEMENTS = {kind.meshio_name: kind for kind in (Hex8, Hex27, Tet4, Tet10)}


def read_mesh(path: str | Path, *, element: Element | None = None) -> Mesh:
    """Mesh of the solid elements of a file of Gmsh (`.msh`), VTK (`.vtu`) or another of meshio's.

    **Arguments:** `path`; `element`, a kind with the nodes of those in the file, such as
    `Hex8Incompatible()`; the plain one when not given.

    **Returns:** a mesh with the coordinates of the file, taken as metres. Named groups of
    surfaces are its faces; every named group is a set of nodes. Nodes of no solid element are
    left out.

    **Raises:** `FileNotFoundError`; `ValueError` when the file cannot be read, has no solid
    elements, several kinds or an unknown kind of them (which is named), or a named surface that
    is no face of them.
    """
    path = Path(path)
    raw = _read(path)
    chosen = _kind(path, raw, element)
    blocks = [i for i, block in enumerate(raw.cells) if block.dim == 3]
    cells = np.concatenate([raw.cells[i].data for i in blocks])
    # Gmsh's older format repeats elements that are in several groups.
    first = np.unique(np.sort(cells, axis=1), axis=0, return_index=True)[1]
    cells = cells[np.sort(first)]
    used, cells = np.unique(cells, return_inverse=True)
    cells = cells.reshape(-1, len(chosen.nodes))
    number = np.full(len(raw.points), -1)
    number[used] = np.arange(len(used))
    faces, points = {}, {}
    for name, members in _groups(raw).items():
        nodes = np.unique(np.concatenate([part.ravel() for _, part in members]))
        points[name] = number[nodes][number[nodes] >= 0]
        surfaces = [number[part] for dim, part in members if dim == 2]
        if surfaces:
            faces[name] = _match(path, name, surfaces, cells, chosen)
    for name, nodes in raw.point_sets.items():
        points[name] = number[nodes][number[nodes] >= 0]
    return mesh(
        np.asarray(raw.points, dtype=float)[used], cells, chosen, faces=faces, points=points
    )


def write_vtu(
    path: str | Path,
    mesh: Mesh,
    *,
    point_data: Mapping[str, Any] | None = None,
    cell_data: Mapping[str, Any] | None = None,
) -> None:
    """Mesh and fields as a file `.vtu`.

    **Arguments:** `point_data`, name to values at the nodes `(n, ...)`; `cell_data`, name to
    values of the elements `(elements, ...)`. Of nodes with rotations `(n, 6)` becomes the
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
    """Fields over time as a file `.pvd` and, in a folder of its name, one `.vtu` a time.

    **Arguments:** `times` (t,) [s]; `point_data` and `cell_data` as those of `write_vtu` with
    the time in front, `(t, n, ...)`.

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
        place = {"timestep": repr(float(time)), "part": "0", "file": f"{folder.name}/{file.name}"}
        ElementTree.SubElement(collection, "DataSet", place)
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


def _read(path: Path):
    """The file as meshio has it, which prints and ends the program where it cannot read one."""
    import meshio

    if not path.exists():
        raise FileNotFoundError(f"There is no mesh file {path}.")
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
            return meshio.read(path)
    except (Exception, SystemExit) as error:
        heard = said.getvalue().strip().splitlines()
        reason = heard[-1] if heard else f"{type(error).__name__}: {error}"
        raise ValueError(f"The mesh file {path} cannot be read ({reason}).") from error


def _kind(path: Path, raw, element: Element | None) -> Element:
    found = sorted({block.type for block in raw.cells if block.dim == 3 and len(block.data)})
    if not found:
        others = ", ".join(sorted({block.type for block in raw.cells})) or "no elements at all"
        raise ValueError(f"The mesh file {path} has no solid elements, but {others}.")
    unknown = [name for name in found if name not in ELEMENTS]
    if unknown:
        raise ValueError(
            f"The mesh file {path} has elements of the type {unknown[0]}; there are "
            f"{', '.join(ELEMENTS)}."
        )
    if len(found) > 1:
        raise ValueError(
            f"The mesh file {path} has elements of the types {' and '.join(found)}; a mesh has one."
        )
    if element is None:
        return ELEMENTS[found[0]]()
    if element.meshio_name != found[0]:
        raise ValueError(
            f"The mesh file {path} has elements of the type {found[0]}, which "
            f"{type(element).__name__} is not."
        )
    return element


def _groups(raw) -> dict[str, list[tuple[int, np.ndarray]]]:
    """Named groups as pairs of a dimension and nodes (elements, nodes of one)."""
    groups: dict[str, list[tuple[int, np.ndarray]]] = {}
    named = {name: sets for name, sets in raw.cell_sets.items() if not name.startswith("gmsh:")}
    tags = raw.cell_data.get("gmsh:physical")
    if not named and tags is not None:
        named = {
            name: [
                np.flatnonzero((block.dim == dim) & (tag == number))
                for block, tag in zip(raw.cells, tags, strict=True)
            ]
            for name, (number, dim) in raw.field_data.items()
        }
    for name, sets in named.items():
        members = [
            (block.dim, block.data[np.asarray(index, dtype=int)])
            for block, index in zip(raw.cells, sets, strict=True)
            if index is not None and len(index)
        ]
        if members:
            groups[name] = members
    return groups


def _match(
    path: Path, name: str, surfaces: list[np.ndarray], cells: np.ndarray, element: Element
) -> np.ndarray:
    """Element and local face (faces, 2) of each surface; of a surface inside the first of two."""
    local = np.array(element.faces)
    keys = np.sort(cells[:, local].reshape(-1, local.shape[1]), axis=1)
    known = {tuple(key): i for i, key in reversed(list(enumerate(keys.tolist())))}
    wanted = [tuple(sorted(nodes)) for part in surfaces for nodes in part.tolist()]
    missing = sum(key not in known for key in wanted)
    if missing:
        raise ValueError(
            f"The surface {name!r} of the mesh file {path} is in {missing} places no face of a "
            "solid element."
        )
    return np.stack(np.divmod([known[key] for key in wanted], len(local)), axis=1)
