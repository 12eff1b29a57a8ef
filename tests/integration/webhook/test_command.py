"""`instaslice webhook` as a process: it makes its certificates, serves, and stops when asked."""

import asyncio
import contextlib
import json
import re
import signal
import sys

import workloads
from workloads import SLICE, pod

from instaslice.api import names, roles
from instaslice.kube.errors import ServerError
from instaslice.kube.meta import Key
from instaslice.kube.quotas import RESOURCE_QUOTAS
from instaslice.webhook import manifests
from instaslice.webhook.manifests import CONFIGURATIONS

SERVED = re.compile(r"admission reviews are served on port (\d+)")


@contextlib.asynccontextmanager
async def running(*flags):
    """The process and its port, which its log names."""
    command = [
        sys.executable,
        "-m",
        "instaslice.cli",
        "webhook",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        "--observe",
        "",
        *flags,
    ]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(60):
            while not (found := SERVED.search(said := (await process.stderr.readline()).decode())):
                assert said, "it ended"
                if "json" in flags:
                    assert json.loads(said)["message"]
        yield process, int(found[1])
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_it_fills_in_the_bundle_gates_pods_and_stops_when_asked(client, kubeconfig, namespace):
    name = f"webhook-{namespace}"
    # As the account that the chart will make: with what the manifests allow it and no more.
    allowed = roles.webhook(configuration=name, secret="tls")
    _, account = await kubeconfig("webhook", allowed.own, cluster_rules=allowed.cluster)
    flags = ["--kubeconfig", str(account), "--secret", f"{namespace}/tls", "--serve-as", "127.0.0.1"]
    # It finds no configuration at first: the one that comes later is filled in by a later look.
    flags += ["--check-every", "0.2", "--drain", "0.2", "--log-format", "json"]
    async with running(*flags, "--configuration", name) as (process, port):
        address = manifests.at_address("127.0.0.1", port)
        await client.create(CONFIGURATIONS, manifests.configuration(address, name=name, namespaces=[namespace]))
        try:
            made = await _gated(client, namespace)
        finally:
            await client.delete(CONFIGURATIONS, Key("", name))
        assert made["spec"]["schedulingGates"] == [{"name": names.GATE}]
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_it_names_the_quotas_that_count_nothing_any_more(client, kubeconfig, namespace):
    hard = {"requests.nvidia.com/mig-1g.5gb": "2"}
    await client.create(RESOURCE_QUOTAS, {"metadata": {"namespace": namespace, "name": "gpus"}, "spec": {"hard": hard}})
    allowed = roles.webhook(configuration=f"webhook-{namespace}", secret="tls")
    _, account = await kubeconfig("webhook", allowed.own, cluster_rules=allowed.cluster)
    flags = ["--kubeconfig", str(account), "--secret", f"{namespace}/tls", "--configuration", f"webhook-{namespace}"]
    async with running(*flags) as (process, _), asyncio.timeout(60):
        while f"resourcequota {namespace}/gpus: " not in (said := (await process.stderr.readline()).decode()):
            assert said, "it ended"
    assert "write requests.gpu.das.com/mig-1g.5gb" in said


async def _gated(client, namespace):
    """A pod, once the API server knows and trusts the webhook."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(ServerError):
                made = await workloads.create(client, pod(namespace, "train", SLICE), dry_run=True)
                if "schedulingGates" in made["spec"]:
                    return made
            await asyncio.sleep(0.05)
