"""What `instaslice clusters` says of clusters that are not well."""

import json

import pytest
from click.testing import CliRunner
from local_clusters import recorded

from instaslice.cli import clusters
from instaslice.local.cluster import Cluster
from instaslice.local.errors import LocalError


@pytest.fixture(autouse=True)
def state_home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def run(*args):
    return CliRunner().invoke(clusters.command, args, catch_exceptions=False)


def test_a_cluster_that_cannot_be_read_costs_only_its_own_row():
    recorded("default")
    broken = recorded("broken")
    broken.layout.record.write_text("{")
    done = run()
    assert "default  Kubernetes" in done.stdout
    assert "broken/cluster.json cannot be read" in done.stderr
    assert "`instaslice down broken` removes the cluster" in done.stderr
    assert done.exit_code == 1


@pytest.mark.parametrize(
    "there, known",
    [
        pytest.param([], "there is none: `instaslice up` starts one", id="none"),
        pytest.param(["second", "third"], "there is second", id="one that is called nearly so"),
        pytest.param(["first", "third"], "there is first, third", id="others"),
    ],
)
@pytest.mark.parametrize("form", ["table", "json"])
def test_a_name_that_no_cluster_has_is_an_error_of_its_own(form, there, known):
    for each in there:
        recorded(each)
    done = CliRunner().invoke(clusters.command, ["secnd", "-o", form])
    assert isinstance(done.exception, LocalError)
    assert str(done.exception) == f"no cluster 'secnd'; {known}"
    assert done.stdout == "", "no list that looks like an answer"


@pytest.mark.parametrize("arguments", [("",), ("one", "two")])
def test_what_is_no_name_shows_no_other_cluster(arguments):
    recorded("one")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(clusters, "_row", lambda cluster: pytest.fail(cluster.name))
        done = CliRunner().invoke(clusters.command, arguments)
    assert done.exit_code != 0
    assert "Kubernetes" not in done.stdout


def test_a_kubeconfig_that_cannot_be_read_is_an_error_and_not_silence(monkeypatch):
    recorded("default")
    torn = recorded("torn")
    torn.kubeconfig.write_text("{ not: [yaml")
    monkeypatch.setattr("instaslice.local.process.Processes.find", lambda processes, name: object())
    done = run("torn")
    assert f"kubeconfig {torn.kubeconfig}" in done.stderr
    assert done.exit_code == 1


def test_an_api_server_that_does_not_answer_is_said_so(monkeypatch):
    recorded("default")
    monkeypatch.setattr(clusters, "ANSWER_SECONDS", 0.01)
    monkeypatch.setattr(Cluster, "components", lambda cluster: {"kube-apiserver": True})
    monkeypatch.setattr("instaslice.local.process.Processes.find", lambda processes, name: object())

    async def never(cluster):
        await clusters.asyncio.sleep(3600)

    monkeypatch.setattr(Cluster, "count_ready", never)
    assert "the API server does not answer" in run().stdout
    (row,) = json.loads(run("-o", "json").stdout)
    assert row["nodes_ready"] is None
