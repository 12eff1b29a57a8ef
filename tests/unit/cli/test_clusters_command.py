"""What `instaslice clusters` says of clusters that are not well."""

import json

import pytest
from click.testing import CliRunner
from local_clusters import recorded

from instaslice.cli import clusters
from instaslice.local.cluster import Cluster


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
