"""InstaSlice itself beside the control plane: webhook, controller and agent as processes of this machine.

Installed as the chart does it, with the same definition, policies and roles; but each process is a user with a token
instead of a service account, and the API server calls the webhook on loopback.
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
from instaslice.local.control_plane import CLIENTS, ControlPlane
from instaslice.local.errors import NotStarted
from instaslice.local.objects import DEFINITIONS, ClusterObjects
from instaslice.local.process import Processes
from instaslice.webhook import manifests, policy

WEBHOOK: Final = "instaslice-webhook"
CONTROLLER: Final = "instaslice-controller"
AGENT: Final = "instaslice-agent"
NODE_AGENT: Final = realnode.AGENT
"""The agent of the real node, inside it; the other one serves the emulated nodes."""
ROLES: Final[Mapping[str, roles.Role]] = {
    WEBHOOK: roles.webhook(),
    CONTROLLER: roles.controller(),
    AGENT: roles.AGENT,
}
"""Without what flags of the controller need."""
NEED_PERMISSION: Final = ("--taint-nodes", "--static-mig-labels", "--keep-quotas", "--autoscaling-hints")
"""Flags of the controller that `roles.controller` takes."""
PROBE_NAMESPACE: Final = "default"
"""The namespace of the dry runs that probe the webhook."""
TIMEOUT = 60.0


def observe_port(name: str) -> str:
    """The port of a process's metrics and health, as the record of the cluster names it."""
    return f"{name}-observe"


@dataclass(frozen=True)
class Operator:
    """Our processes in one cluster."""

    plane: ControlPlane
    processes: Processes
    latency: str = "none"
    real: str = ""
    """The name of the real node, if there is one."""
    controller_flags: tuple[str, ...] = ()

    def granted(self) -> dict[str, roles.Role]:
        """Process → what it may do; the controller also what its flags need."""
        given = {flag.partition("=")[0] for flag in self.controller_flags}
        needed = {flag.removeprefix("--").replace("-", "_"): flag in given for flag in NEED_PERMISSION}
        return {**ROLES, CONTROLLER: roles.controller(**needed)}

    def commands(self) -> dict[str, list[str]]:
        """Component → command line."""
        port = self.plane.ports[WEBHOOK]
        flags = {
            WEBHOOK: ["webhook", "--host=127.0.0.1", f"--port={port}", "--serve-as=127.0.0.1"],
            # There is only one, so its identity is fixed: after a kill it need not wait for its own Lease to expire.
            CONTROLLER: [
                "controller",
                f"--namespace={names.NAMESPACE}",
                f"--identity={CONTROLLER}",
                *self.controller_flags,
            ],
            AGENT: ["agent", "--emulated", f"--state-dir={self.plane.layout.gpus}", f"--latency={self.latency}"],
        }
        for name, arguments in flags.items():
            arguments.append(self._observe(name))
        if self.real:
            flags[AGENT].append(f"--nodes={nodes.EMULATED_SELECTOR}")
        return {name: self._command(name, arguments) for name, arguments in flags.items()}

    def node_agent(self, cdi: Path) -> list[str]:
        """The command line of the agent of the real node, to be run in the namespaces of its kubelet."""
        arguments = ["agent", f"--node={self.real}", "--emulated", f"--latency={self.latency}"]
        arguments.append(self._observe(NODE_AGENT))
        state = self.plane.layout.gpus / self.real
        return self._command(AGENT, [*arguments, f"--cdi-dir={cdi}", f"--state-dir={state}"])

    def _observe(self, name: str) -> str:
        return f"--observe=127.0.0.1:{self.plane.ports[observe_port(name)]}"

    def _command(self, client: str, arguments: list[str]) -> list[str]:
        return [sys.executable, "-m", "instaslice.cli", *arguments, f"--kubeconfig={self.plane.kubeconfig(client)}"]

    async def install(self, objects: ClusterObjects) -> None:
        """Create the objects that the processes need, and start them; `ready` waits for them. Safe to repeat."""
        await objects.apply(NAMESPACES, {"metadata": {"name": names.NAMESPACE}})
        for client, role in self.granted().items():
            await objects.grant(client, role)
        await objects.apply(DEFINITIONS, crd.definition())
        for document in policy.policies([CLIENTS[CONTROLLER]]):
            await objects.apply(policy.POLICIES, document)
        for document in policy.bindings():
            await objects.apply(policy.BINDINGS, document)
        # Before the webhook starts: it fills in the caBundle of an existing configuration. Until then pods with slices
        # are refused, which is better than admitted ungated.
        address = manifests.at_address("127.0.0.1", self.plane.ports[WEBHOOK])
        await objects.apply(manifests.CONFIGURATIONS, manifests.configuration(address))
        await objects.definitions_established([crd.NAME])
        # The server sets up its storage of a new kind at the first request for it, and refuses watches meanwhile (429),
        # which are then retried seconds later. It answers a list.
        await objects.client.list(INSTASLICES)
        for name in self.commands():
            self.start(name)

    def start(self, name: str) -> None:
        """Start one of them unless it runs; one that runs with other flags is replaced."""
        argv = self.commands()[name]
        if self.processes.argv(name) != argv:
            self.processes.kill(name)
        self.processes.start(name, argv)

    async def ready(self, name: str, objects: ClusterObjects) -> None:
        """Return once it works. Raises NotStarted, with the end of its log if it ended."""
        checks: Mapping[str, Callable[[ClusterObjects], Coroutine[Any, Any, None]]] = {
            WEBHOOK: self._webhook_gates,
            CONTROLLER: self._controller_leads,
            AGENT: partial(self._agent_reports, selector=Selector(labels=nodes.EMULATED_SELECTOR)),
            NODE_AGENT: partial(self._agent_reports, selector=Selector(fields=f"metadata.name={self.real}")),
        }
        await self._while_it_runs(name, checks[name](objects))

    async def _while_it_runs(self, name: str, check: Coroutine[Any, Any, None]) -> None:
        checking = asyncio.create_task(check)
        try:
            while not checking.done():
                await asyncio.wait([checking], timeout=0.2)
                if not checking.done():
                    # It may not be our child: its end has to be polled.
                    self.processes.require(name)
            await checking
        finally:
            checking.cancel()

    async def _webhook_gates(self, objects: ClusterObjects) -> None:
        """The API server calls the webhook, trusts it, and gets an answer: a pod with a slice comes back gated."""
        namespace = await objects.client.get(NAMESPACES, Key("", PROBE_NAMESPACE))
        opted_out = namespace.metadata.labels.get(names.OPT_OUT) == names.OPTED_OUT
        container = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}
        meta = {"namespace": PROBE_NAMESPACE, "generateName": "probe-"}
        _, body = PODS.document({"metadata": meta, "spec": {"containers": [container]}})
        try:
            async with asyncio.timeout(TIMEOUT):
                while True:
                    if await _webhook_called(objects, body) or opted_out:
                        return
                    # Only a request shows whether the API server knows the webhook.
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise NotStarted(
                f"after {TIMEOUT:.0f} s the API server does not call {WEBHOOK} for pods "
                f"(log: {self.processes.log(WEBHOOK)})"
            ) from None

    async def _controller_leads(self, objects: ClusterObjects) -> None:
        """The Lease is held, and was renewed by this process."""
        process = self.processes.find(CONTROLLER)
        born = process.create_time() if process else 0.0

        def missing(cache: Cache[Lease]) -> list[str]:
            renewed = [each.spec.renew_time for each in cache if each.spec.holder_identity == CONTROLLER]
            fresh = any(at and datetime.fromisoformat(at).timestamp() >= born for at in renewed)
            return [] if fresh else [f"of {CONTROLLER}"]

        await objects.until("not held: lease", LEASES, Selector(namespace=names.NAMESPACE), missing)

    async def _agent_reports(self, objects: ClusterObjects, *, selector: Selector) -> None:
        """Every such node has an Instaslice object with the expected GPUs, and advertises slices."""
        shapes = {
            node.metadata.name: [node.metadata.labels[names.EMULATED]]
            * int(node.metadata.labels.get(names.GPU_COUNT, "1"))
            for node in await objects.client.list(NODES, selector)
        }

        def unreported(cache: Cache[Instaslice]) -> list[str]:
            reported = {each.metadata.name: [gpu.model for gpu in each.status.gpus] for each in cache}
            return sorted(name for name, shape in shapes.items() if reported.get(name) != shape)

        def unadvertised(cache: Cache[Node]) -> list[str]:
            return sorted(
                shapes.keys() - {each.metadata.name for each in cache if names.MEMORY in each.status.allocatable}
            )

        await objects.until("not reported: GPUs of node", INSTASLICES, Selector(), unreported)
        await objects.until("not advertised: slices of node", NODES, selector, unadvertised)


async def _webhook_called(objects: ClusterObjects, body: bytes) -> bool:
    """Whether the API server called the webhook in a dry run of the pod."""
    try:
        answer = await objects.client.raw("POST", PODS.path(PROBE_NAMESPACE), params={"dryRun": "All"}, body=body)
    except (ServerError, Unreachable):
        # It could not call the webhook, or does not trust it yet.
        return False
    except KubeError as error:
        # A quota or a policy of the namespace, which comes after all webhooks. Ours refuses a pod that our webhook has
        # not seen.
        return f"'{policy.NAME}'" not in error.message
    return gated(msgspec.json.decode(answer, type=Pod))
