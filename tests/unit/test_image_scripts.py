"""What `scripts/image` decides before and after a build; the build itself is tests/integration/image."""

import io
import json
import os
import sys
import tarfile
from pathlib import Path

import pytest

from instaslice.local.errors import NotAvailable

SCRIPTS = Path(__file__).parents[2] / "scripts" / "image"
sys.path.insert(0, str(SCRIPTS))
import archive  # noqa: E402
import client_settings  # noqa: E402
import engine  # noqa: E402
import stored_image  # noqa: E402

# The engine ------------------------------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with these programs only: name → exit code."""

    def with_programs(**programs):
        for name, code in programs.items():
            program = tmp_path / name
            program.write_text(f"#!/bin/sh\nexit {code}\n")
            program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

    return with_programs


@pytest.mark.parametrize(
    "programs, chosen",
    [
        pytest.param({"docker": 0, "podman": 0, "buildah": 0}, "docker", id="docker first"),
        pytest.param({"docker": 1, "podman": 0, "buildah": 0}, "podman", id="docker without its daemon does not count"),
        pytest.param({"docker": 1, "podman": 125, "buildah": 0}, "buildah", id="buildah needs no daemon"),
    ],
)
def test_the_first_engine_that_works(machine, programs, chosen):
    machine(**programs)
    assert engine.find().name == chosen


def test_without_an_engine_and_without_apt_it_says_what_to_install(machine):
    machine(docker=1)
    with pytest.raises(NotAvailable, match="install docker, podman or buildah"):
        engine.find()


def test_buildah_gets_settings_that_work_everywhere_unless_the_user_has_some(monkeypatch):
    monkeypatch.setenv("STORAGE_DRIVER", "overlay")
    monkeypatch.delenv("BUILDAH_ISOLATION", raising=False)
    found = engine.Engine("buildah").environment
    assert (found["STORAGE_DRIVER"], found["BUILDAH_ISOLATION"]) == ("overlay", "chroot")
    assert "BUILDAH_ISOLATION" not in engine.Engine("docker").environment


# The settings of the package index -------------------------------------------------------------------------------


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """What a build is given on a machine with these variables: its pip.conf, and the file of authorities."""

    def given(**variables):
        for name in [*os.environ]:
            if name.startswith(("PIP_", "UV_", "SSL_CERT", "REQUESTS_")):
                monkeypatch.delenv(name)
        for name, value in {"PIP_CONFIG_FILE": os.devnull, **variables}.items():
            monkeypatch.setenv(name, str(value))
        found = client_settings.secrets(tmp_path)
        return found["pip"].read_text().splitlines(), found.get("ca")

    return given


def test_index_and_proxy_are_handed_over(settings):
    lines, _ = settings(PIP_INDEX_URL="https://index.example/simple", PIP_PROXY="proxy.example:3128")
    assert {"index-url = https://index.example/simple", "proxy = proxy.example:3128"} <= set(lines)


@pytest.mark.parametrize(
    "variables, index",
    [
        pytest.param({"UV_INDEX_URL": "https://uv.example"}, "https://uv.example", id="uv's where pip has none"),
        pytest.param({"UV_INDEX_URL": "https://uv.example", "PIP_INDEX_URL": "https://a"}, "https://a", id="pip's"),
    ],
)
def test_whose_index_it_is(settings, variables, index):
    lines, _ = settings(**variables)
    assert [line for line in lines if line.startswith("index-url")] == [f"index-url = {index}"]


def test_a_folder_of_this_machine_is_not(settings):
    lines, _ = settings(PIP_FIND_LINKS="/opt/wheels", PIP_TARGET="/opt/elsewhere")
    assert [line for line in lines if "/opt" in line] == []


@pytest.mark.parametrize("variable", ["PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_authorities_are_found_where_clients_look_for_them(settings, tmp_path, variable):
    own = tmp_path / "own.pem"
    own.write_text("authorities")
    lines, authorities = settings(**{variable: own})
    assert authorities == own
    assert f"cert = {client_settings.AUTHORITIES}" in lines


def test_a_file_that_is_not_there_is_not_handed_over(settings, tmp_path):
    lines, authorities = settings(SSL_CERT_FILE=tmp_path / "missing.pem")
    assert authorities is None
    assert [line for line in lines if line.startswith("cert")] == []


# The key of what is stored ---------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path, monkeypatch):
    (tmp_path / ".dockerignore").write_text("*\n!Dockerfile\n!src\n")
    (tmp_path / "Dockerfile").write_text("FROM base\n")
    (tmp_path / "src" / "__pycache__").mkdir(parents=True)
    (tmp_path / "src" / "a.py").write_text("a = 1\n")
    monkeypatch.setattr(stored_image, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "file, text, changed",
    [
        pytest.param("src/a.py", "a = 2\n", True, id="a source"),
        pytest.param("src/b.py", "", True, id="a new file"),
        pytest.param("Dockerfile", "FROM other\n", True, id="how it is built"),
        pytest.param("tests.py", "a = 1\n", False, id="what no build sees"),
        pytest.param("src/__pycache__/a.pyc", "bytecode", False, id="bytecode of this machine"),
    ],
)
def test_the_key_follows_what_goes_into_the_image(tree, file, text, changed):
    before = stored_image.key()
    (tree / file).write_text(text)
    assert (stored_image.key() != before) == changed


def test_another_base_has_another_key(tree):
    assert stored_image.key("debian:13") != stored_image.key()


# The archive -----------------------------------------------------------------------------------------------------


def packed(files, compressed=False):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz" if compressed else "w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize("compressed", [False, True])
def test_an_upper_layer_replaces_and_removes_files_of_a_lower_one(tmp_path, compressed):
    lower = {"etc/keep": b"lower", "etc/gone": b"lower", "etc/new": b"lower"}
    upper = {"etc/.wh.gone": b"", "etc/new": b"upper"}
    config = {"rootfs": {"diff_ids": ["sha256:1", "sha256:2"]}}
    manifest = [{"Config": "config.json", "Layers": ["1.tar", "2.tar"]}]
    files = {
        "1.tar": packed(lower, compressed),
        "2.tar": packed(upper, compressed),
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    (tmp_path / "image.tar").write_bytes(packed(files))
    image = archive.Archive(tmp_path / "image.tar")
    assert image.size("sha256:1") == len(packed(lower))
    image.unpack(tmp_path / "root")
    found = {file.name: file.read_bytes() for file in (tmp_path / "root" / "etc").iterdir()}
    assert found == {"keep": b"lower", "new": b"upper"}
