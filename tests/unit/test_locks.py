"""The locks of the image belong to pyproject.toml and to the lock of the tests: a new dependency is in all of them."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REMEDY = "run `make generate`"


def locked(file: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / file).read_text(), re.MULTILINE))


@pytest.mark.parametrize(
    "file, wanted",
    [
        pytest.param("requirements-runtime.txt", PROJECT["project"]["dependencies"], id="what runs"),
        pytest.param("requirements-build.txt", PROJECT["build-system"]["requires"], id="what builds"),
    ],
)
def test_a_lock_of_the_image_has_what_is_declared(file, wanted):
    names = {re.match(r"[\w-]+", each)[0] for each in wanted}
    assert names - locked(file).keys() == set(), REMEDY


@pytest.mark.parametrize("file", ["requirements-runtime.txt", "requirements-build.txt"])
def test_the_image_has_the_versions_that_are_tested(file):
    assert locked(file).items() - locked("requirements.txt").items() == set(), REMEDY


def test_the_development_tools_are_not_in_the_image():
    assert {"pytest", "mypy", "hatchling"} & locked("requirements-runtime.txt").keys() == set()
