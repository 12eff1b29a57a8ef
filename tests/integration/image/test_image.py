"""The container image of this tree: built on this machine, and run as a node would, without an engine."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MOST_ADDED = 150
"""Megabytes above the base."""
NOBODY = "65532:65532"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="building and unpacking an image needs root on this machine"),
    pytest.mark.skipif(
        not any(map(shutil.which, ("buildah", "apt-get"))), reason="neither buildah nor an apt-get to install it with"
    ),
    pytest.mark.timeout(1500),  # the first time a base is made
]


def image(*words):
    done = subprocess.run([sys.executable, "scripts/image", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, "it says why above"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Name and path."""
    path = tmp_path_factory.mktemp("archive") / "image.tar"
    return image("archive", path), path


@pytest.fixture(scope="module")
def root(archive, tmp_path_factory):
    folder = tmp_path_factory.mktemp("image") / "root"
    image("unpack", folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def run(root):
    """Runs a command in the image: read-only, as the user and with the variables of the image, in its own mounts."""
    script = f"mount --bind {root} {root} && mount -o remount,bind,ro {root} && exec chroot --userspec={NOBODY} {root} "
    config = json.loads(image("config"))
    assert config["User"] == NOBODY
    assert config["Entrypoint"] == ["instaslice"]

    def run(*words):
        return subprocess.run(
            ["unshare", "--mount", "--propagation=private", "sh", "-c", script + '"$@"', "sh", *words],
            env=dict(each.split("=", 1) for each in config["Env"]),
            capture_output=True,
            text=True,
        )

    return run


def test_the_name_is_that_of_the_content(archive):
    name, path = archive
    first = path.stat()
    assert image("archive", path) == name
    assert path.stat().st_size == first.st_size
    assert name.startswith("instaslice.local/instaslice:")


def test_it_runs_as_nobody_on_a_read_only_root(run):
    done = run("instaslice", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("instaslice, version")
    assert "Read-only file system" in run("touch", "/tmp/file").stderr
    assert run("id", "-u").stdout.strip() == NOBODY.split(":")[0]


@pytest.mark.parametrize("command", ["agent", "controller", "webhook", "explain", "doctor", "simulate"])
def test_each_command_has_what_it_imports(run, command):
    done = run("instaslice", command, "--help")
    assert (done.returncode, done.stderr) == (0, "")


def test_it_can_install_and_compile_nothing(root, run):
    for program in ("pip", "pip3", "gcc", "cc", "g++", "make", "uv"):
        assert run("which", program).stdout == "", program
    for module in ("pip", "ensurepip", "hatchling"):
        assert "No module named" in run("python3", "-c", f"import {module}").stderr, module


def test_every_module_has_its_bytecode_and_no_tests_came_along(root):
    installed = root / "opt" / "instaslice" / "lib"
    sources = {file for file in installed.rglob("*.py") if file.stem.isidentifier()}
    (tag,) = {file.name.split(".")[-2] for file in installed.rglob("*.pyc")}
    assert {file for file in sources if not (file.parent / "__pycache__" / f"{file.stem}.{tag}.pyc").exists()} == set()
    assert [str(each) for each in installed.rglob("tests")] == []


def test_nothing_of_the_machine_that_built_it_is_in_it(root):
    assert not (root / "etc" / "pip.conf").exists()
    assert list((root / "run").rglob("ca.pem")) == []
    assert list((root / "root").rglob("pip")) == []


def test_it_is_small(record_property):
    sizes = json.loads(image("size"))
    record_property("told", "the image adds {image_mb} MB to a base of {base_mb} MB".format(**sizes))
    assert 0 < sizes["image_mb"] <= MOST_ADDED
