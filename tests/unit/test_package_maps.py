"""The docstring of each package is its map: it names every module, and none that does not exist.

A line of a map is `name   what it is` or `one, another   what they are`, with two spaces or more before the text.
"""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "instaslice"
ENTRY = re.compile(r"(?:^ *| {2,})(\w+(?:, \w+)*) {2,}(?=\S)", re.MULTILINE)
PACKAGES = sorted(file.parent for file in SOURCE.rglob("__init__.py") if file.parent != SOURCE)


def named(docstring: str) -> set[str]:
    return {name for entry in ENTRY.findall(docstring) for name in entry.split(", ")}


def modules(package: Path) -> set[str]:
    """What a package holds: modules and packages, without generated code and what Python itself looks for."""
    files = {file.stem for file in package.glob("*.py") if not file.stem.endswith("_pb2")}
    packages = {file.parent.name for file in package.glob("*/__init__.py")}
    return files - {"__init__", "__main__"} | packages


@pytest.mark.parametrize(
    "docstring, names",
    [
        pytest.param("One thing.\n\nfirst   what it is\nsecond  another\n", {"first", "second"}, id="a line each"),
        pytest.param("One thing.\n\n    one, two  what both are\n", {"one", "two"}, id="two on a line"),
        pytest.param("first   what it is     second  another", {"first", "second"}, id="two columns"),
        pytest.param("One thing; calls only geometry.\n\nWhy it is so: it is.\n", set(), id="no map"),
        pytest.param("first   what it is,\n        and more of it\n", {"first"}, id="a text of two lines"),
    ],
)
def test_how_a_map_is_read(docstring, names):
    assert named(docstring) == names


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(SOURCE)))
def test_the_map_of_a_package_names_its_modules_and_no_others(package):
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    assert named(docstring) == modules(package)


def test_contributing_names_every_package():
    tree = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text().partition("## Where is what")[2]
    assert set(re.findall(r"^  (\w+)/ ", tree, re.MULTILINE)) == {
        each.name for each in PACKAGES if each.parent == SOURCE
    }
