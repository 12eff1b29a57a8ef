"""Which clusters `instaslice down` and `instaslice demo` remove."""

import msgspec
import pytest
from click.testing import CliRunner

from instaslice.cli import demo, down
from instaslice.errors import BadInput
from instaslice.local.cluster import Cluster, ClusterRecord, ClusterSpec
from instaslice.local.errors import LocalError


@pytest.fixture(autouse=True)
def state_home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def recorded(name, **spec):
    """A cluster of which nothing runs."""
    cluster = Cluster(name)
    cluster.layout.root.mkdir(parents=True)
    cluster.layout.record.write_bytes(
        msgspec.json.encode(ClusterRecord(spec=ClusterSpec(**spec), ports={}, programs={}))
    )
    return cluster


def run(*args):
    return CliRunner().invoke(down.command, args, catch_exceptions=False)


@pytest.mark.parametrize(
    "args, gone",
    [
        pytest.param([], {"default"}, id="the one named default"),
        pytest.param(["second"], {"second"}, id="the one that is named"),
        pytest.param(["--all"], {"default", "second"}, id="all"),
    ],
)
def test_which_clusters_go(args, gone):
    clusters = [recorded("default"), recorded("second")]
    run(*args)
    assert {each.name for each in clusters if not each.exists} == gone


def test_a_name_beside_all_removes_nothing():
    clusters = [recorded("default"), recorded("second")]
    with pytest.raises(BadInput, match="leave one of the two out"):
        run("second", "--all")
    assert all(each.exists for each in clusters)


def test_a_cluster_that_does_not_exist():
    with pytest.raises(LocalError, match="no cluster 'second'"):
        run("second")


def test_one_that_goes_meanwhile_does_not_keep_the_others(monkeypatch):
    first, second = recorded("default"), recorded("second")
    monkeypatch.setattr(down.clusters, "all_clusters", lambda: [Cluster("left-just-now"), first, second])
    run("--all")
    assert not first.exists and not second.exists


def test_the_demo_leaves_a_cluster_of_its_name_alone():
    cluster = recorded("demo", nodes=1)
    with pytest.raises(BadInput, match="is not from a demo; `instaslice down demo` removes it"):
        CliRunner().invoke(demo.command, [], catch_exceptions=False)
    assert cluster.exists
