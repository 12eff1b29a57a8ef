"""Which Helm is taken: the machine's, unless it is too old."""

import pytest

from instaslice.local import helm
from instaslice.local.binaries import Source


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Puts a `helm` of some version into a folder, on PATH or where built programs are looked for."""
    folders = {name: tmp_path / name for name in ("PATH", "KUBEBUILDER_ASSETS")}
    for name, folder in folders.items():
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))

    def write(where, output):
        program = folders[where] / "helm"
        program.write_text(f"#!/bin/sh\necho '{output}'\n")
        program.chmod(0o755)
        return program

    return write


@pytest.mark.parametrize(
    "output, taken",
    [
        pytest.param("v4.3.1+gabcdef", "PATH", id="the one that we would build"),
        pytest.param("v3.17.0+g301108e", "PATH", id="the oldest that will do"),
        pytest.param("v3.16.4+g7877b45", "KUBEBUILDER_ASSETS", id="too old"),
        pytest.param("Error: unknown command", "KUBEBUILDER_ASSETS", id="something else of that name"),
    ],
)
def test_the_machines_helm_is_taken_if_it_is_new_enough(put, output, taken):
    found = {"PATH": put("PATH", output), "KUBEBUILDER_ASSETS": put("KUBEBUILDER_ASSETS", "v4.3.1")}
    assert helm.find(Source()) == found[taken]


def test_without_one_on_the_machine_it_is_ours(put):
    ours = put("KUBEBUILDER_ASSETS", "v4.3.1")
    assert helm.find(Source()) == ours
