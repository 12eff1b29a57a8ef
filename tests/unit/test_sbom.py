"""`make sbom`: what is in the image."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

ROOT = Path(__file__).parents[2]


@pytest.fixture
def write(tmp_path):
    def run(**variables):
        target = tmp_path / "out" / "instaslice.spdx.json"
        words = [sys.executable, ROOT / "scripts" / "write_sbom.py", target]
        subprocess.run(words, env={**os.environ, **variables}, check=True, capture_output=True)
        return target

    return run


def test_it_is_a_valid_spdx_document_with_every_package_of_the_runtime_lock(write):
    document = parse_file(str(write()))
    assert [str(each.validation_message) for each in validate_full_spdx_document(document)] == []
    lock = (ROOT / "requirements-runtime.txt").read_text()
    locked = {line.split(" ")[0] for line in lock.splitlines() if re.match(r"\w.*==", line)}
    found = {f"{each.name}=={each.version}" for each in document.packages if each.name != "instaslice"}
    assert found == locked
    assert {"aiohttp", "grpcio"} <= {each.name for each in document.packages}
    assert "pytest" not in {each.name for each in document.packages}, "only what runs"


def test_the_time_of_a_commit_makes_it_repeatable(write):
    first = write(SOURCE_DATE_EPOCH="1700000000").read_bytes()
    assert write(SOURCE_DATE_EPOCH="1700000000").read_bytes() == first
    assert b"2023-11-14T22:13:20Z" in first
