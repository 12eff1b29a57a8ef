"""`make image-multiarch` with a real buildah, on an image in which nothing runs: no platform needs emulation."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts" / "image"))
from engine import Engine

NAME = "localhost/instaslice-platforms:test"
PLATFORMS = "linux/amd64,linux/arm64"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="buildah needs root on this machine"),
    pytest.mark.skipif(not shutil.which("buildah"), reason="no buildah on this machine; `make image` installs it"),
]


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """With a storage of its own: what a list no longer names stays in the machine's."""
    storage = tmp_path / "storage.conf"
    storage.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/images"\nrunroot = "{tmp_path}/run"\n')
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(storage))
    return Engine("buildah")


def context_with(folder, content):
    folder.mkdir()
    (folder / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nCOPY content /content\n")
    (folder / "content").write_text(content)
    return folder


def entries(engine):
    """(architecture, digest) of each image in the list."""
    argv = ["buildah", "manifest", "inspect", NAME]
    found = subprocess.run(argv, env=engine.environment, capture_output=True, text=True, check=True).stdout
    return {(each["platform"]["architecture"], each["digest"]) for each in json.loads(found)["manifests"]}


def test_a_name_has_one_image_per_platform_however_often_it_is_built(engine, tmp_path):
    engine.build(NAME, context_with(tmp_path / "single", "one platform"), "scratch", {})
    engine.build_platforms(NAME, context_with(tmp_path / "first", "1"), PLATFORMS, "scratch", {})
    first = entries(engine)
    engine.build_platforms(NAME, context_with(tmp_path / "second", "2"), PLATFORMS, "scratch", {})
    second = entries(engine)
    assert sorted(architecture for architecture, _ in second) == ["amd64", "arm64"]
    assert not first & second
