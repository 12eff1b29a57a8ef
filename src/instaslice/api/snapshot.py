"""What the API server holds at one moment: pods, nodes, Instaslice objects and, on request, what kube-scheduler reads.

All lists are of one revision of the store, so no contradiction between them comes from one list being older than
another. An object that does not decode is named in `unread` and costs none of the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Self, TypeVar

import msgspec

from instaslice.api.instaslice import INSTASLICES, Instaslice
from instaslice.errors import InstasliceError
from instaslice.kube.client import PAGE, Client
from instaslice.kube.clock import Clock
from instaslice.kube.core import NAMESPACES, NODES, PODS, Namespace, Node, Pod
from instaslice.kube.errors import Forbidden, NotFound
from instaslice.kube.meta import Object
from instaslice.kube.resource import PageMeta, Resource
from instaslice.kube.storage import STORAGE_KINDS, StorageObject

T = TypeVar("T", bound=Object)


class UnreadObject(NamedTuple):
    """Kind and name of an object that does not decode, and why."""

    object: str
    why: str


@dataclass(frozen=True)
class ClusterSnapshot:
    """`now` is when the lists were read, `version` the resource version of all of them."""

    pods: Sequence[Pod]
    nodes: Sequence[Node]
    instaslices: Sequence[Instaslice]
    now: datetime
    version: str = ""
    unread: Sequence[UnreadObject] = ()
    namespaces: Sequence[Namespace] = ()
    storage: Sequence[StorageObject] | None = ()
    """Claims, volumes and what goes with them; None where they may not be read."""

    @classmethod
    async def read(cls, client: Client, clock: Clock, *, scheduling: bool = False) -> Self:
        """`scheduling` reads namespaces and storage too. Raises InstasliceError where InstaSlice is not installed."""
        version = (await _page(client, PODS, {"limit": "1"})).metadata.resource_version
        unread: list[UnreadObject] = []
        try:
            instaslices = await _list(client, INSTASLICES, version, unread)
        except NotFound:
            raise InstasliceError("the cluster has no Instaslice objects: InstaSlice is not installed there") from None
        namespaces: list[Namespace] = []
        storage: list[StorageObject] | None = []
        if scheduling:
            try:
                namespaces = await _list(client, NAMESPACES, version, unread)
                storage = [each for kind in STORAGE_KINDS for each in await _list(client, kind, version, unread)]
            except Forbidden:
                storage = None
        return cls(
            namespaces=namespaces,
            storage=storage,
            pods=await _list(client, PODS, version, unread),
            nodes=await _list(client, NODES, version, unread),
            instaslices=instaslices,
            now=clock.now(),
            version=version,
            unread=unread,
        )


class _Page(msgspec.Struct):
    """One answer to a list, its objects not decoded yet."""

    metadata: PageMeta
    items: list[msgspec.Raw] | None = None


async def _list(client: Client, resource: Resource[T], version: str, unread: list[UnreadObject]) -> list[T]:
    params = {"limit": str(PAGE), "resourceVersion": version, "resourceVersionMatch": "Exact"}
    found: list[T] = []
    while True:
        page = await _page(client, resource, params)
        for item in page.items or ():
            try:
                found.append(resource.decoder.decode(item))
            except msgspec.ValidationError as error:
                unread.append(UnreadObject(f"{resource.kind.lower()} {_name(item)}", str(error)))
        if not page.metadata.continue_:
            return found
        params = {"limit": str(PAGE), "continue": page.metadata.continue_}


async def _page(client: Client, resource: Resource[T], params: dict[str, str]) -> _Page:
    return msgspec.json.decode(await client.raw("GET", resource.path(), params=params), type=_Page)


class _Metadata(msgspec.Struct):
    name: str = "?"
    namespace: str = ""


class _Named(msgspec.Struct):
    metadata: _Metadata


def _name(item: msgspec.Raw) -> str:
    meta = msgspec.json.decode(item, type=_Named).metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
