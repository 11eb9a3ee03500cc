"""The rooms of optimal control import only those above them, and only what those offer."""

import ast
from pathlib import Path

import jaxgrip.ocp as package

ROOMS = ["statement", "hamiltonian", "direct", "structure", "indirect", "certificate", "pipeline"]
FOLDER = Path(package.__file__).parent


def imports():
    """Room and file that imports, and the parts of the module that it imports from."""
    for room in ROOMS:
        for path in sorted((FOLDER / room).glob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module.startswith("jaxgrip.ocp"):
                    yield room, path, node.module.split(".")[2:]


def test_every_folder_is_a_room():
    assert {path.parent.name for path in FOLDER.glob("*/__init__.py")} == set(ROOMS)


def test_imports_point_upwards_in_the_list():
    for room, path, (other, *_) in imports():
        assert ROOMS.index(other) <= ROOMS.index(room), path


def test_files_of_another_room_are_private():
    for room, path, (other, *file) in imports():
        assert (other == room) == bool(file), path
