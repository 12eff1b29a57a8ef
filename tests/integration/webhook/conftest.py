"""The webhook in this process, registered with the real API server for the namespace of one test."""

import asyncio
import contextlib
from dataclasses import dataclass

import pytest
import workloads

from instaslice.api.largest_node import LargestNode
from instaslice.kube.client import Client
from instaslice.kube.clock import SystemClock
from instaslice.kube.meta import Key
from instaslice.local.pki import Authority
from instaslice.webhook import manifests
from instaslice.webhook.certificate_sources import SecretSource
from instaslice.webhook.certificates import Lifetimes
from instaslice.webhook.manifests import CONFIGURATIONS
from instaslice.webhook.server import Webhook, serving


@dataclass
class Registered:
    """A webhook that the API server asks about the pods of one namespace."""

    namespace: str
    webhook: Webhook
    source: SecretSource
    configuration: str
    port: int

    @property
    def asked(self):
        """How many pods it was asked about."""
        return self.webhook.answered.total()


@pytest.fixture
def register(client, namespace):
    """Serves and registers while inside: `async with register() as hook`."""

    @contextlib.asynccontextmanager
    async def registering(lifetimes=None, webhook=None):
        name = f"webhook-{namespace}"
        source = SecretSource(
            client,
            Key(namespace, "webhook-tls"),
            ["127.0.0.1"],
            configuration=name,
            clock=SystemClock(),
            lifetimes=lifetimes or Lifetimes(),
        )
        await source.refresh()
        webhook = webhook or Webhook(LargestNode(), SystemClock())
        async with serving(webhook, source.context, host="127.0.0.1", port=0) as port:
            address = manifests.at_address("127.0.0.1", port, source.state.trusted)
            document = manifests.configuration(address, name=name, namespaces=[namespace])
            await client.create(CONFIGURATIONS, document)
            try:
                await _heard(client, namespace, webhook)
                yield Registered(namespace, webhook, source, name, port)
            finally:
                await client.delete(CONFIGURATIONS, Key("", name))

    return registering


@pytest.fixture
async def registered(register):
    async with register() as made:
        yield made


async def _heard(client, namespace, webhook):
    """The API server learns of a configuration by its own watch: dry runs until one arrives here."""
    async with asyncio.timeout(60):
        while not webhook.answered:
            await workloads.create(client, workloads.pod(namespace, "probe", workloads.SLICE), dry_run=True)
    webhook.answered.clear()


@pytest.fixture
def kubeconfig(cluster, client, namespace, tmp_path):
    """Makes users and their kubeconfigs: `await kubeconfig("ann", rules)` gives the user name and the file."""

    async def make(name, rules, **more):
        who = f"{name}-{namespace}"
        await workloads.allow(client, namespace, who, rules, **more)
        plane = cluster.plane()
        authority = Authority(plane.layout.pki)
        pair = authority.issue(who, who)
        return who, authority.kubeconfig(tmp_path / who, server=plane.server, client=pair, name="user")

    return make


@pytest.fixture
async def user(kubeconfig):
    """Makes clients of ordinary users, who may do everything with the pods of the namespace: `await user("ann")`."""
    async with contextlib.AsyncExitStack() as stack:

        async def connect(name):
            who, file = await kubeconfig(name, workloads.POD_RULES)
            return who, await stack.enter_async_context(await Client.connect(file, rate=1000, burst=1000))

        yield connect
