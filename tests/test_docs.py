"""The architecture page, compared with the code."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jaxgrip"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
ROOMS = {
    room: set(re.findall(r"`(\w+)`", imports))
    for room, imports in re.findall(r"^\| `(\w+)` \| .*? \| (.*?) ?\|$", PAGE, re.MULTILINE)
}
EQUATIONS = re.findall(r"^\| .*? \| `([\w/]+\.py)` \| `([\w.]+)` \|$", PAGE, re.MULTILINE)
# Files of the package itself that every room may import.
COMMON = {"checks", "precision", "config", "_files", "_names"}


def imported(path):
    """Rooms and files of the package that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("jaxgrip."))


def test_the_table_has_all_rooms():
    assert set(ROOMS) == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_imports_what_the_page_says(room):
    found = {name for path in (PACKAGE / room).rglob("*.py") for name in imported(path)}
    assert found - COMMON - {room} == ROOMS[room]


def test_private_files_are_imported_in_their_own_folder_only():
    for path in PACKAGE.rglob("*.py"):
        folder = path.relative_to(ROOT).parent.parts
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.module.startswith("jaxgrip"):
                continue
            for alias in node.names:
                parts = [*node.module.split("."), alias.name]
                private = [k for k, part in enumerate(parts) if part.startswith("_")]
                above = tuple(parts[: min(private, default=0)])
                assert folder[: len(above)] == above, f"{path}: {'.'.join(parts)}"


def test_the_core_of_trees_with_loops_knows_no_systems():
    for path in (PACKAGE / "mechanism" / "loops").glob("*.py"):
        tree = ast.parse(path.read_text())
        froms = [x.module for x in ast.walk(tree) if isinstance(x, ast.ImportFrom)]
        above = [x for x in froms if x.startswith("jaxgrip.mechanism")]
        assert all(x.startswith("jaxgrip.mechanism.loops") for x in above), path


def test_one_elastic_body_knows_no_systems():
    structures = PACKAGE / "fem" / "structures"
    for path in (PACKAGE / "fem").rglob("*.py"):
        if structures not in path.parents:
            assert set(imported(path)) <= {*COMMON, "fem", "solve", "spatial"}, path


def test_no_circular_imports_of_rooms():
    left = dict(ROOMS)
    while leaves := [room for room, imports in left.items() if not imports & set(left)]:
        for room in leaves:
            del left[room]
    assert left == {}


def test_equations_are_where_the_page_says():
    assert len(EQUATIONS) >= 30
    for file, name in EQUATIONS:
        body = ast.parse((PACKAGE / file).read_text()).body
        for part in name.split("."):
            found = [node for node in body if getattr(node, "name", None) == part]
            assert found, f"{name} is not in {file}"
            body = found[0].body


def test_every_file_is_on_the_page():
    sections = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
    listed = set()
    for section in sections:
        title = section.split("\n")[0].strip("`")
        folder = title + "/" if title in ROOMS else ""
        listed |= {folder + file for file in re.findall(r"`([\w/]+\.py)`", section)}
    every = PACKAGE.rglob("*.py")
    files = {str(path.relative_to(PACKAGE)) for path in every if not path.name.startswith("__")}
    assert listed - files == set()
    assert files - listed == set()
