"""Every command of docs/kueue.md, typed in its order on a cluster with Kueue, and what `instaslice up` suggests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from instaslice.cli.up import KUEUE_NEXT
from instaslice.kube.client import Client
from instaslice.kube.core import CONFIG_MAPS, PODS
from instaslice.kube.errors import NotFound
from instaslice.kube.meta import Key
from instaslice.kube.workloads import DEPLOYMENTS, JOBS
from instaslice.kueue.objects import ADMISSION_CHECKS, CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS
from instaslice.kueue.queues import JOB_POLICIES, JOB_POLICY, JOB_POLICY_BINDINGS
from instaslice.local.kueue import NAMESPACE

ROOT = Path(__file__).parents[3]
BLOCKS = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUEUES = ("gpu", "team-a", "team-b")
PRESENT = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmanageJobsWithoutQueueName: true\n"


def typed(text):
    """Every command of the page with the lines that it is said to print."""
    found = []
    for line in "".join(BLOCKS.findall(text)).splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return found


def shape(text):
    """A printed line without what differs from run to run: ages, and the end of a generated name."""
    return re.sub(r"-[0-9a-f]{5}\b|\b\d+s\b", "", text).split()


@pytest.fixture
async def terminal(queued, client, tmp_path):
    """Runs a command as the page's reader would, in a folder with our samples."""
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    programs = [Path(sys.executable).parent, Path(queued.record().programs["kubectl"]).parent]
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    environment = {**os.environ, "KUBECONFIG": str(queued.kubeconfig), "PATH": path}

    def run(command):
        words = ["bash", "-o", "pipefail", "-c", command]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout.splitlines()

    yield run
    await client.raw("DELETE", JOBS.path("default"), params={"propagationPolicy": "Background"})
    await client.raw("DELETE", PODS.path("default"))
    for name in QUEUES:
        await remove(client, LOCAL_QUEUES, Key("default", name))
        await remove(client, CLUSTER_QUEUES, Key("", name))
    await remove(client, ADMISSION_CHECKS, Key("", "slices"))
    for resource, name in ((RESOURCE_FLAVORS, "gpu"), (JOB_POLICY_BINDINGS, JOB_POLICY), (JOB_POLICIES, JOB_POLICY)):
        await remove(client, resource, Key("", name))


async def remove(client: Client, resource, key):
    try:
        await client.delete(resource, key)
    except NotFound:
        return


async def test_every_command_of_the_page_does_what_the_page_says(terminal, client, tmp_path):
    commands = typed((ROOT / "docs" / "kueue.md").read_text())
    assert commands.pop(0) == ("instaslice up --kueue", [])
    for command, expected in commands:
        if command.startswith("kubectl get configmap kueue-manager-config"):
            # Not before: the doctor would compare it with the geometry, although this Kueue has the right one.
            await a_kueue_as_it_is_installed(client)
        printed = terminal(command)
        if expected:
            assert list(map(shape, printed)) == list(map(shape, expected)), command
    merged = (tmp_path / "controller_manager_config.yaml").read_text()
    assert "manageJobsWithoutQueueName: true" in merged
    assert "nvidia.com/mig-1g.5gb" in merged


async def a_kueue_as_it_is_installed(client):
    """What its manifests leave in the cluster: here it is a process, and nobody reads these."""
    labels = {"app": "kueue"}
    metadata = {"namespace": NAMESPACE, "name": "kueue-manager-config"}
    await client.apply(
        CONFIG_MAPS, {"metadata": metadata, "data": {"controller_manager_config.yaml": PRESENT}}, manager="story"
    )
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "none"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"namespace": NAMESPACE, "name": "kueue-controller-manager"}
    await client.apply(DEPLOYMENTS, {"metadata": metadata, "spec": spec}, manager="story")


def test_what_up_suggests_works(terminal):
    """The queue gets what the nodes have."""
    for line in KUEUE_NEXT.splitlines():
        terminal(line)
    terminal("kubectl wait --for=jsonpath='{.status.ready}'=2 job/train-a --timeout=60s")
