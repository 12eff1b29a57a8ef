"""Official release binaries, fetched from a server on loopback with the projects' own layout."""

import hashlib
import io
import tarfile

import pytest

from instaslice.local import components
from instaslice.local.components import CNI, ETCD, platform
from instaslice.local.download import download, release
from instaslice.local.errors import NotAvailable

KUBERNETES = components.kubernetes("1.37.1")
PROGRAM = b"#!/bin/sh\necho hello\n"


@pytest.fixture
def mirror(tmp_path, serve):
    """A folder that is served, and its address."""
    root = tmp_path / "mirror"
    root.mkdir()
    return root, serve(root)


def publish(root, path, data, checksum, text=None):
    for file, content in ((path, data), (checksum, (text or hashlib.sha256(data).hexdigest()).encode())):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_bytes(content)


def archive(name):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        entry = tarfile.TarInfo(f"some-folder/{name}")
        entry.size = len(PROGRAM)
        tar.addfile(entry, io.BytesIO(PROGRAM))
    return out.getvalue()


def test_kubernetes_binaries_lie_where_the_project_publishes_them():
    system, machine = platform().split("-")
    wanted = release(KUBERNETES, "kubectl")
    assert wanted.address(wanted.path, None) == f"https://dl.k8s.io/v1.37.1/bin/{system}/{machine}/kubectl"


def test_a_binary_with_its_checksum(mirror, tmp_path):
    root, address = mirror
    wanted = release(KUBERNETES, "kubectl")
    publish(root, wanted.path, PROGRAM, wanted.checksum)
    target = tmp_path / "cache" / "kubernetes-1.37.1"
    download(KUBERNETES, ["kubectl"], target, address)
    assert (target / "kubectl").read_bytes() == PROGRAM
    assert (target / "kubectl").stat().st_mode & 0o111


@pytest.mark.parametrize("module, name", [(ETCD, "etcd"), (CNI, "bridge")], ids=["list of sums", "one sum"])
def test_a_program_inside_an_archive(mirror, tmp_path, module, name):
    root, address = mirror
    wanted, data = release(module, name), archive(name)
    listed = f"{'0' * 64}  another\n{hashlib.sha256(data).hexdigest()}  {wanted.path.rsplit('/', 1)[1]}\n"
    publish(root, wanted.path, data, wanted.checksum, listed)
    download(module, [name], tmp_path / "cache" / module.directory, address)
    assert (tmp_path / "cache" / module.directory / name).read_bytes() == PROGRAM


@pytest.mark.parametrize(
    "published, says",
    [
        pytest.param("0" * 64, "thrown away", id="another checksum"),
        pytest.param("one two\nthree four\n", "published is none", id="no checksum for it"),
        pytest.param(None, "404", id="no checksum file"),
    ],
)
def test_what_cannot_be_checked_is_not_kept(mirror, tmp_path, published, says):
    root, address = mirror
    wanted = release(KUBERNETES, "kubectl")
    publish(root, wanted.path, PROGRAM, wanted.checksum, published)
    if published is None:
        (root / wanted.checksum).unlink()
    target = tmp_path / "cache" / "kubernetes-1.37.1"
    with pytest.raises(NotAvailable, match=says):
        download(KUBERNETES, ["kubectl"], target, address)
    assert not (target / "kubectl").exists()
    assert [left.name for left in target.parent.iterdir()] == [".kubernetes-1.37.1.lock"]


def test_a_mirror_that_is_not_there_says_what_to_do(tmp_path):
    with pytest.raises(NotAvailable, match="--download-from"):
        download(KUBERNETES, ["kubectl"], tmp_path / "k", "http://127.0.0.1:9")
