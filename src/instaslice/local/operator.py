"""InstaSlice itself beside the control plane: webhook, controller and agent as processes of this machine.

Installed as the chart does it, with the same definition, policy and rules; only that each is a user by certificate
instead of a service account, and the API server finds the webhook on loopback.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from instaslice.api import crd, names, roles
from instaslice.api.instaslice import INSTASLICES, Instaslice
from instaslice.api.pods import gated
from instaslice.kube.cache import Cache
from instaslice.kube.client import Selector
from instaslice.kube.core import LEASES, NAMESPACES, NODES, PODS, Lease, Node, Pod
from instaslice.kube.errors import KubeError, ServerError, Unreachable
from instaslice.kube.meta import Key
from instaslice.local import nodes, realnode
from instaslice.local.errors import NotStarted
from instaslice.local.objects import DEFINITIONS, Objects
from instaslice.local.plane import CLIENTS, Plane
from instaslice.local.process import Processes
from instaslice.webhook import manifests, policy

WEBHOOK: Final = "instaslice-webhook"
CONTROLLER: Final = "instaslice-controller"
AGENT: Final = "instaslice-agent"
NODE_AGENT: Final = realnode.AGENT
"""The agent of the real node, inside it; the other one plays the emulated nodes."""
ROLES: Final[Mapping[str, roles.Role]] = {
    WEBHOOK: roles.webhook(),
    CONTROLLER: roles.controller(),
    AGENT: roles.AGENT,
}
PROBED: Final = "default"
"""The namespace in which the webhook is tried out, by dry runs."""
PATIENCE = 60.0


@dataclass(frozen=True)
class Operator:
    """Our processes in one cluster."""

    plane: Plane
    processes: Processes
    latency: str = "none"
    real: str = ""
    """The name of the real node; empty where there is none."""

    def commands(self) -> dict[str, list[str]]:
        """Component → command line."""
        port = self.plane.ports[WEBHOOK]
        flags = {
            WEBHOOK: ["webhook", "--host=127.0.0.1", f"--port={port}", "--serve-as=127.0.0.1"],
            # There is one, so it always goes by the same name: after a kill it need not wait for its own Lease.
            CONTROLLER: ["controller", f"--namespace={names.NAMESPACE}", f"--identity={CONTROLLER}"],
            AGENT: ["agent", "--emulated", f"--state-dir={self.plane.layout.gpus}", f"--latency={self.latency}"],
        }
        if self.real:
            flags[AGENT].append(f"--nodes={nodes.PLAYED}")
        return {name: self._ours(name, words) for name, words in flags.items()}

    def node_agent(self, cdi: Path) -> list[str]:
        """The command line for the agent of the real node, to be run where its kubelet runs."""
        words = ["agent", f"--node={self.real}", "--emulated", f"--latency={self.latency}"]
        state = self.plane.layout.gpus / self.real
        return self._ours(AGENT, [*words, f"--cdi-dir={cdi}", f"--state-dir={state}"])

    def _ours(self, client: str, words: list[str]) -> list[str]:
        return [sys.executable, "-m", "instaslice.cli", *words, f"--kubeconfig={self.plane.kubeconfig(client)}"]

    async def install(self, objects: Objects) -> None:
        """Put into the API server what the processes need, and start them; `ready` waits for them. Safe to repeat."""
        await objects.apply(NAMESPACES, {"metadata": {"name": names.NAMESPACE}})
        for client, role in ROLES.items():
            await objects.allow(client, role)
        await objects.apply(DEFINITIONS, crd.definition())
        for document in policy.policies([CLIENTS[CONTROLLER]]):
            await objects.apply(policy.POLICIES, document)
        for document in policy.bindings():
            await objects.apply(policy.BINDINGS, document)
        # Before the webhook starts: it fills in the caBundle of a configuration that it finds. Pods with slices are
        # refused until then, which is better than let through without.
        address = manifests.at_address("127.0.0.1", self.plane.ports[WEBHOOK])
        await objects.apply(manifests.CONFIGURATIONS, manifests.configuration(address))
        await objects.defined([crd.NAME])
        # The server sets up its store of a new kind at the first request for it, and turns watches away meanwhile
        # (429), which then come again seconds later. A list it answers.
        await objects.client.list(INSTASLICES)
        for name in self.commands():
            self.start(name)

    def start(self, name: str) -> None:
        """Start one of them unless it runs as it should; one that runs with other flags is replaced."""
        argv = self.commands()[name]
        if self.processes.argv(name) != argv:
            self.processes.kill(name)
        self.processes.start(name, argv)

    async def ready(self, name: str, objects: Objects) -> None:
        """Return once it does its work. Raises NotStarted, with its last words if it ended."""
        checks: Mapping[str, Callable[[Objects], Coroutine[Any, Any, None]]] = {
            WEBHOOK: self._gates,
            CONTROLLER: self._leads,
            AGENT: partial(self._reports, selector=Selector(labels=nodes.PLAYED)),
            NODE_AGENT: partial(self._reports, selector=Selector(fields=f"metadata.name={self.real}")),
        }
        await self._while_it_runs(name, checks[name](objects))

    async def _while_it_runs(self, name: str, check: Coroutine[Any, Any, None]) -> None:
        checking = asyncio.create_task(check)
        try:
            while not checking.done():
                await asyncio.wait([checking], timeout=0.2)
                if not checking.done():
                    # It is not our child: nobody tells us of its end.
                    self.processes.require(name)
            await checking
        finally:
            checking.cancel()

    async def _gates(self, objects: Objects) -> None:
        """The API server knows the webhook, trusts it, and gets an answer: a pod with a slice comes back gated."""
        namespace = await objects.client.get(NAMESPACES, Key("", PROBED))
        opted_out = namespace.metadata.labels.get(names.OPT_OUT) == names.OPTED_OUT
        container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}
        meta = {"namespace": PROBED, "generateName": "probe-"}
        _, body = PODS.document({"metadata": meta, "spec": {"containers": [container]}})
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    if await _judged(objects, body) or opted_out:
                        return
                    # The API server says what it knows of a webhook only when asked.
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise NotStarted(
                f"after {PATIENCE:.0f} s the API server does not ask {WEBHOOK} about pods "
                f"(log: {self.processes.log(WEBHOOK)})"
            ) from None

    async def _leads(self, objects: Objects) -> None:
        """The Lease is held, and not by the word of a predecessor."""
        process = self.processes.find(CONTROLLER)
        born = process.create_time() if process else 0.0

        def missing(cache: Cache[Lease]) -> list[str]:
            renewed = [each.spec.renew_time for each in cache if each.spec.holder_identity == CONTROLLER]
            fresh = any(at and datetime.fromisoformat(at).timestamp() >= born for at in renewed)
            return [] if fresh else [f"of {CONTROLLER}"]

        await objects.until("not held: lease", LEASES, Selector(namespace=names.NAMESPACE), missing)

    async def _reports(self, objects: Objects, *, selector: Selector) -> None:
        """Every such node has an Instaslice object with the GPUs that it should have, and advertises slices."""
        shapes = {
            node.metadata.name: [node.metadata.labels[names.EMULATED]]
            * int(node.metadata.labels.get(names.GPU_COUNT, "1"))
            for node in await objects.client.list(NODES, selector)
        }

        def unreported(cache: Cache[Instaslice]) -> list[str]:
            told = {each.metadata.name: [gpu.model for gpu in each.status.gpus] for each in cache}
            return sorted(name for name, shape in shapes.items() if told.get(name) != shape)

        def silent(cache: Cache[Node]) -> list[str]:
            return sorted(
                shapes.keys() - {each.metadata.name for each in cache if names.MEMORY in each.status.allocatable}
            )

        await objects.until("not reported: GPUs of node", INSTASLICES, Selector(), unreported)
        await objects.until("not advertised: slices of node", NODES, selector, silent)


async def _judged(objects: Objects, body: bytes) -> bool:
    """Whether the API server, asked by a dry run, had the webhook look at the pod."""
    try:
        answer = await objects.client.raw("POST", PODS.path(PROBED), params={"dryRun": "All"}, body=body)
    except (ServerError, Unreachable):
        # It could not ask the webhook, or does not trust it yet.
        return False
    except KubeError as error:
        # A quota or a policy of the namespace, which judges what all webhooks have seen. Ours refuses a pod that our
        # webhook has not.
        return f"'{policy.NAME}'" not in error.message
    return gated(msgspec.json.decode(answer, type=Pod))
