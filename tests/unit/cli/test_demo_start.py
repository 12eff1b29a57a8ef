"""What `instaslice demo` says before its pods come, and which seconds it counts."""

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from instaslice.cli import demo
from instaslice.local import binaries
from instaslice.local.binaries import Source

ROOT = Path(__file__).parents[3]


@pytest.fixture
def clock(monkeypatch):
    """The time of the demo; `clock[0] += 5` is five seconds."""
    now = [1000.0]
    monkeypatch.setattr(demo.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def run(monkeypatch, tmp_path, clock):
    """Runs the demo with a cluster that takes 5 s to start, and programs that take 600 s where they are missing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "programs"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    located = []

    def locate(names, source):
        located.append(source)
        clock[0] += 600
        return {}

    def up(cluster, spec, source, say):
        clock[0] += 5
        say("starting Kubernetes")

    async def show(cluster, say, began):
        clock[0] += 0.25
        say("pod train: gated")

    monkeypatch.setattr(binaries, "locate", locate)
    monkeypatch.setattr(demo.Cluster, "up", up)
    monkeypatch.setattr(demo.Cluster, "down", lambda cluster: True)
    monkeypatch.setattr(demo, "_show", show)

    def invoke(*args, programs):
        (tmp_path / "programs").mkdir()
        for name in programs:
            (tmp_path / "programs" / name).touch(mode=0o755)
        return located, CliRunner().invoke(demo.command, args, catch_exceptions=False)

    return invoke


def test_the_seconds_count_from_when_the_cluster_is_up(run):
    located, done = run(programs=binaries.CONTROL_PLANE)
    assert done.stdout.splitlines() == [
        "starting Kubernetes",
        "the cluster is up after 5.0 s: two emulated nodes, two A100-40GB each",
        "  0.25 s  pod train: gated",
        "the cluster is gone again",
    ]
    assert (located, done.stderr) == ([], "")


def test_the_first_build_is_announced_and_not_counted(run):
    located, done = run(programs=set(binaries.CONTROL_PLANE) - {"etcd", "kwok"})
    assert located == [Source()]
    assert "First run: the programs of Kubernetes (etcd, kwok) are built from source" in done.stderr
    assert "make demo DOWNLOAD=1" in done.stderr
    assert "This took 600 s" in done.stderr
    assert "the cluster is up after 5.0 s" in done.stdout
    assert "  0.25 s  pod train: gated" in done.stdout


def test_a_download_is_announced_as_one(run):
    located, done = run("--download", "--download-from", "http://127.0.0.1:9", programs=())
    assert located == [Source(download=True, download_from="http://127.0.0.1:9")]
    assert "are downloaded" in done.stderr
    assert "DOWNLOAD=1" not in done.stderr


@pytest.mark.parametrize("words, flags", [((), ""), (("DOWNLOAD=1",), " --download")], ids=["plain", "DOWNLOAD=1"])
def test_what_make_demo_calls(words, flags):
    make = ["make", "--no-print-directory", "-n", "demo", *words]  # make names its directory when another calls it
    shown = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1].split() == [".venv/bin/instaslice", "demo", *flags.split()]
