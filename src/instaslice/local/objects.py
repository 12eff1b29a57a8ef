"""The objects of a local cluster in its API server: roles for its own parts, and the emulated nodes."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from instaslice.api import names, roles
from instaslice.api.roles import RBAC, Role, rule
from instaslice.geometry.models import Model
from instaslice.kube.cache import Cache
from instaslice.kube.client import Client, Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import NAMESPACES, NODES, PODS, Condition, Node, PartialObjectMetadata
from instaslice.kube.errors import NotFound
from instaslice.kube.meta import ApiStruct, Key, Object, ObjectMeta, key_of
from instaslice.kube.resource import Resource
from instaslice.kube.watch import Reflector
from instaslice.local import nodes
from instaslice.local.control_plane import CLIENTS
from instaslice.local.errors import NotStarted

T = TypeVar("T", bound=Object)

FIELD_MANAGER = "instaslice-local"
TIMEOUT = 120.0
"""Seconds without progress while waiting, for example for one more node to become ready."""
CONCURRENCY = 20
"""Nodes that are created concurrently."""


class CustomResourceDefinitionStatus(ApiStruct, frozen=True):
    conditions: list[Condition] | None = None


class CustomResourceDefinition(ApiStruct, frozen=True):
    """A custom resource definition, with the fields needed to wait for it."""

    metadata: ObjectMeta
    status: CustomResourceDefinitionStatus = CustomResourceDefinitionStatus()

    @property
    def established(self) -> bool:
        return any(each.type == "Established" and each.status == "True" for each in self.status.conditions or ())


ACCOUNTS = Resource(PartialObjectMetadata, "ServiceAccount", "serviceaccounts")
DEFINITIONS = Resource(
    CustomResourceDefinition,
    "CustomResourceDefinition",
    "customresourcedefinitions",
    group="apiextensions.k8s.io",
    namespaced=False,
)
ROLES = Resource(PartialObjectMetadata, "ClusterRole", "clusterroles", group=RBAC, namespaced=False)
BINDINGS = Resource(PartialObjectMetadata, "ClusterRoleBinding", "clusterrolebindings", group=RBAC, namespaced=False)
OWN_ROLES = Resource(PartialObjectMetadata, "Role", "roles", group=RBAC)
OWN_BINDINGS = Resource(PartialObjectMetadata, "RoleBinding", "rolebindings", group=RBAC)
GRANTS: dict[str, Resource[Any]] = {each.kind: each for each in (NAMESPACES, ROLES, BINDINGS, OWN_ROLES, OWN_BINDINGS)}

KWOK = Role(
    cluster=(
        rule("", "nodes pods", "get list watch patch update delete"),
        rule("", "nodes/status pods/status", "patch update"),
        rule("", "events", "create patch update"),
        rule("coordination.k8s.io", "leases", "get list watch create patch update"),
    )
)


def accepts_pods(node: Node) -> bool:
    """Ready, and the controller-manager has removed its taints."""
    return node.ready and not any(each.key.startswith("node.kubernetes.io/") for each in node.spec.taints or ())


class ClusterObjects:
    """The administrator's client for the API server of a local cluster."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: Path) -> AsyncIterator["ClusterObjects"]:
        # Nobody shares the cluster: no need for the usual rate limit with a thousand nodes.
        async with await Client.connect(kubeconfig, rate=2000, burst=2000) as client:
            yield cls(client)

    async def grant(self, client: str, role: Role, *, namespace: str = names.NAMESPACE) -> None:
        """Give the user of one of our CLIENTS exactly this role; the objects are named after the user."""
        user = CLIENTS[client]
        subject = {"kind": "User", "apiGroup": RBAC, "name": user}
        for document in roles.documents(user, role, subject, namespace=namespace):
            await self.apply(GRANTS[document["kind"]], document)

    async def definitions_established(self, wanted: Iterable[str]) -> None:
        """Return once objects of these definitions can be created."""
        expected = set(wanted)

        def missing(cache: Cache[CustomResourceDefinition]) -> list[str]:
            return sorted(expected - {each.metadata.name for each in cache if each.established})

        await self.until("not established: definition", DEFINITIONS, Selector(), missing)

    async def nodes(self, labels: str = "") -> list[Node]:
        return await self.client.list(NODES, Selector(labels=labels))

    async def emulated_nodes(
        self, count: int, gpus: int, model: Model, kubernetes: str, say: Callable[[str], None]
    ) -> None:
        """Exactly `count` emulated nodes of this shape: create missing ones, delete others."""
        present = await self.nodes(nodes.EMULATED_SELECTOR)
        if surplus := sorted(nodes.surplus((each.metadata.name for each in present), count)):
            bound = await self.client.list(PODS)
            lost = [str(key_of(each)) for each in bound if each.spec.node_name in surplus and not each.ended]
            say(f"removing {_listed('node', surplus)}" + (f" with {_listed('pod', lost)}" if lost else ""))
            for each in surplus:
                await self._delete(each)
        wanted = [nodes.manifest(index, gpus, model, kubernetes) for index in range(count)]
        gate = asyncio.Semaphore(CONCURRENCY)

        async def make(node: dict[str, Any]) -> None:
            async with gate:
                await self.apply(NODES, {"metadata": node["metadata"]})
                await self.client.apply(NODES, node, manager=FIELD_MANAGER, force=True, subresource="status")

        async with asyncio.TaskGroup() as group:
            for node in wanted:
                group.create_task(make(node))

    async def label_gpus(self, node: str, gpus: int, model: Model) -> None:
        """Label a node, which need not exist yet, with these emulated GPUs."""
        await self.apply(NODES, {"metadata": {"name": node, "labels": nodes.gpu_labels(gpus, model)}})

    async def nodes_ready(self, expected: Iterable[str]) -> None:
        """Return once every named node is ready. Raises NotStarted with those that are not."""
        wanted = set(expected)

        def missing(cache: Cache[Node]) -> list[str]:
            return sorted(wanted - {each.metadata.name for each in cache if accepts_pods(each)})

        await self.until("not ready: node", NODES, Selector(), missing)

    async def namespace_ready(self, namespace: str = "default") -> None:
        """Return once pods can be created in a namespace: it has its default service account."""

        def missing(cache: Cache[PartialObjectMetadata]) -> list[str]:
            return [] if len(cache) else ["default"]

        selector = Selector(namespace=namespace, fields="metadata.name=default")
        await self.until("not there: service account", ACCOUNTS, selector, missing)

    async def until(
        self, what: str, resource: Resource[T], selector: Selector, missing: Callable[[Cache[T]], list[str]]
    ) -> None:
        """Watch until nothing is missing. Raises NotStarted with what is, after TIMEOUT without progress."""
        cache: Cache[T] = Cache()
        changed = asyncio.Event()
        cache.on_change(lambda _old, _new: changed.set())
        clock = SystemClock()
        reflector = Reflector(self.client, resource, cache, clock=clock, rng=random.Random(), selector=selector)
        watching = asyncio.create_task(reflector.run())
        left = missing(cache)
        try:
            while left:
                async with asyncio.timeout(TIMEOUT):
                    while len(now := missing(cache)) >= len(left):
                        await changed.wait()
                        changed.clear()
                left = now
        except TimeoutError:
            raise NotStarted(f"after {TIMEOUT:.0f} s {what} {', '.join(left[:5])} ({len(left)} in all)") from None
        finally:
            watching.cancel()

    async def apply(self, resource: Resource[Any], body: dict[str, Any]) -> None:
        """Apply with force: we own every field, whatever was there."""
        await self.client.apply(resource, body, manager=FIELD_MANAGER, force=True)

    async def _delete(self, node: str) -> None:
        try:
            await self.client.delete(NODES, Key("", node))
        except NotFound:
            return


def _listed(what: str, found: list[str]) -> str:
    """`3 pods (a, b, c)`, the first five of them."""
    more = ", …" if len(found) > 5 else ""
    return f"{len(found)} {what}{'s' if len(found) > 1 else ''} ({', '.join(found[:5])}{more})"
