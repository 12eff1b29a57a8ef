"""What the API server holds at one moment: pods, nodes and Instaslice objects, and what follows from them.

Nothing is believed. A list may hold an object that does not decode: it is named, and costs none of the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import NamedTuple, TypeVar

import msgspec

from instaslice.api.instaslice import INSTASLICES, Allocation, AllocationState, Instaslice, PreparedSlice, SliceState
from instaslice.api.pods import gated
from instaslice.controller.doctor.asked import asks
from instaslice.controller.scheduling.storage import KINDS, Stored
from instaslice.errors import InstasliceError
from instaslice.kube.client import PAGE_SIZE, Client
from instaslice.kube.clock import Clock
from instaslice.kube.core import NAMESPACES, NODES, PODS, Namespace, Node, Pod
from instaslice.kube.errors import Forbidden, NotFound
from instaslice.kube.meta import Object, key_of
from instaslice.kube.resource import ListMeta, Resource

T = TypeVar("T", bound=Object)


class Held(NamedTuple):
    """An allocation where it stands, with what the agent says of it."""

    node: str
    allocation: Allocation
    made: PreparedSlice | None

    @property
    def leaving(self) -> bool:
        return self.allocation.state in (AllocationState.DELETING, AllocationState.DELETED)

    @property
    def gone(self) -> bool:
        """Nothing of it is on the GPU any more, by the agent's own word. What the spec calls deleted may still be."""
        return self.made is not None and self.made.state is SliceState.DELETED

    @property
    def created(self) -> bool:
        return self.made is not None and self.made.state is SliceState.CREATED

    def __str__(self) -> str:
        a = self.allocation
        return f"{a.profile} at {a.start} of {a.gpu} for pod {a.pod.namespace}/{a.pod.name} ({a.id}, {a.state})"


class Unread(NamedTuple):
    """An object that does not decode: kind and name, as a finding says it, and why not."""

    object: str
    why: str


@dataclass(frozen=True)
class World:
    """Lists of one moment. `now` is when that was, `version` the resource version of all of them."""

    pods: Sequence[Pod]
    nodes: Sequence[Node]
    instaslices: Sequence[Instaslice]
    now: datetime
    version: str = ""
    unread: Sequence[Unread] = ()
    namespaces: Sequence[Namespace] = ()
    storage: Sequence[Stored] | None = ()
    """Claims, volumes and what goes with them; None where they may not be read."""

    @cached_property
    def pod_of(self) -> dict[str, Pod]:
        """By uid."""
        return {pod.metadata.uid: pod for pod in self.pods}

    @cached_property
    def node_of(self) -> dict[str, Node]:
        return {node.metadata.name: node for node in self.nodes}

    @cached_property
    def instaslice_of(self) -> dict[str, Instaslice]:
        return {thing.metadata.name: thing for thing in self.instaslices}

    @cached_property
    def held(self) -> list[Held]:
        """Every allocation of every node."""
        return [held for thing in self.instaslices for held in held_on(thing)]

    @cached_property
    def held_by(self) -> dict[str, list[Held]]:
        """By the pod's uid, those that are not being deleted."""
        found: dict[str, list[Held]] = {}
        for held in self.held:
            if not held.leaving:
                found.setdefault(held.allocation.pod.uid, []).append(held)
        return found

    @cached_property
    def running(self) -> list[Pod]:
        """Slice pods past their gate that have not ended: a container may be using a slice, or start to at once."""
        return [pod for pod in self.pods if asks(pod) and not gated(pod) and not pod.ended]

    def well(self, node: str) -> bool:
        """Whether the node is there and its kubelet speaks: on others, pods and slices drift apart until it is back."""
        found = self.node_of.get(node)
        return found is not None and found.ready


def held_on(thing: Instaslice) -> list[Held]:
    made = {each.id: each for each in thing.status.slices}
    return [Held(thing.metadata.name, each, made.get(each.id)) for each in thing.spec.allocations]


def named(pod: Pod) -> str:
    return f"pod {key_of(pod)}"


async def look(client: Client, clock: Clock, *, all_that_schedules: bool = False) -> World:
    """One moment of a cluster. All lists are of the same revision of the store, so what they say of each other was true
    together: no finding comes from one list being older than another. Namespaces and volumes are read on request."""
    version = (await _page(client, PODS, {"limit": "1"})).metadata.resource_version
    unread: list[Unread] = []
    try:
        things = await _at(client, INSTASLICES, version, unread)
    except NotFound:
        raise InstasliceError("the cluster has no Instaslice objects: InstaSlice is not installed there") from None
    namespaces: list[Namespace] = []
    storage: list[Stored] | None = []
    if all_that_schedules:
        try:
            namespaces = await _at(client, NAMESPACES, version, unread)
            storage = [thing for kind in KINDS for thing in await _at(client, kind, version, unread)]
        except Forbidden:
            storage = None
    return World(
        namespaces=namespaces,
        storage=storage,
        pods=await _at(client, PODS, version, unread),
        nodes=await _at(client, NODES, version, unread),
        instaslices=things,
        now=clock.now(),
        version=version,
        unread=unread,
    )


class _Page(msgspec.Struct):
    """One answer to a list, its objects not decoded yet."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


async def _at(client: Client, resource: Resource[T], version: str, unread: list[Unread]) -> list[T]:
    params = {"limit": str(PAGE_SIZE), "resourceVersion": version, "resourceVersionMatch": "Exact"}
    found: list[T] = []
    while True:
        page = await _page(client, resource, params)
        for item in page.items or ():
            try:
                found.append(resource.decoder.decode(item))
            except msgspec.ValidationError as error:
                unread.append(Unread(f"{resource.kind.lower()} {_name(item)}", str(error)))
        if not page.metadata.continue_:
            return found
        params = {"limit": str(PAGE_SIZE), "continue": page.metadata.continue_}


async def _page(client: Client, resource: Resource[T], params: dict[str, str]) -> _Page:
    return msgspec.json.decode(await client.raw("GET", resource.path(), params=params), type=_Page)


class _Name(msgspec.Struct):
    name: str = "?"
    namespace: str = ""


class _Named(msgspec.Struct):
    metadata: _Name


def _name(item: msgspec.Raw) -> str:
    meta = msgspec.json.decode(item, type=_Named).metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
