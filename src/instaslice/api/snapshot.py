"""What the API server holds at one moment: pods, nodes, Instaslice objects and, on request, what kube-scheduler reads.

All lists are of one revision of the store, so no contradiction between them comes from one list being older than
another. An object that does not decode is named in `unread` and costs none of the others.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, Self, TypeVar

from instaslice.api import names
from instaslice.api.agent_presence import silent_leases
from instaslice.api.instaslice import INSTASLICES, Instaslice
from instaslice.errors import InstasliceError
from instaslice.kube.client import EVERYTHING, Client, Selector
from instaslice.kube.clock import Clock
from instaslice.kube.core import LEASES, NAMESPACES, NODES, PODS, Lease, Namespace, Node, Pod
from instaslice.kube.errors import Forbidden, NotFound, Unreadable
from instaslice.kube.meta import Key, Object, key_of
from instaslice.kube.resource import Resource
from instaslice.kube.storage import STORAGE_KINDS, StorageObject

T = TypeVar("T", bound=Object)


class UnreadObject(NamedTuple):
    """Kind and name of an object that does not decode, and what is wrong with it."""

    object: str
    why: str

    @classmethod
    def of(cls, resource: Resource[Any], key: Key, error: Unreadable) -> Self:
        why = str(error).removeprefix(f"{resource.kind} {key} ")
        return cls(f"{resource.kind.lower()} {key}", why)


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
    lease: Lease | None = None
    """The controller's; None where there is none by that name, or `lease_unknown`."""
    lease_unknown: bool = False
    """Whether it may not be read."""
    silent_leases: frozenset[str] = frozenset()
    """The names of agents' Leases that are not renewed any more, as far as they may be read."""
    forbidden: Sequence[str] = ()
    """Of pods, nodes and Instaslice objects, those that may not be listed, by their plural."""

    @classmethod
    async def read(cls, client: Client, clock: Clock, *, scheduling: bool = False, partial: bool = False) -> Self:
        """`scheduling` reads namespaces, storage and the controller's Lease too; `partial` leaves out what the caller
        may not list instead of raising Forbidden. Raises InstasliceError where InstaSlice is not installed."""
        forbidden = await _forbidden(client) if partial else []
        version = await client.version(next((each for each in _KINDS if each.plural not in forbidden), PODS))
        unread: list[UnreadObject] = []
        try:
            instaslices = await _unless(forbidden, client, INSTASLICES, version, unread)
        except NotFound:
            raise InstasliceError("the cluster has no Instaslice objects: InstaSlice is not installed there") from None
        namespaces: list[Namespace] = []
        storage: list[StorageObject] | None = []
        lease: Lease | None = None
        lease_unknown, silent = False, frozenset[str]()
        if scheduling:
            try:
                with suppress(NotFound):
                    lease = await client.get(LEASES, Key(names.NAMESPACE, names.CONTROLLER))
            except Forbidden:
                lease_unknown = True
            if any(each.status.lease for each in instaslices):
                silent = await silent_leases(client, clock)
            try:
                namespaces = await _list(client, NAMESPACES, version, unread)
                storage = [each for kind in STORAGE_KINDS for each in await _list(client, kind, version, unread)]
            except Forbidden:
                storage = None
        return cls(
            namespaces=namespaces,
            storage=storage,
            lease=lease,
            lease_unknown=lease_unknown,
            silent_leases=silent,
            pods=await _unless(forbidden, client, PODS, version, unread),
            nodes=await _unless(forbidden, client, NODES, version, unread),
            instaslices=instaslices,
            now=clock.now(),
            version=version,
            unread=unread,
            forbidden=forbidden,
        )

    @classmethod
    async def of_namespace(cls, client: Client, clock: Clock, namespace: str) -> Self:
        """The pods of one namespace, and nothing else."""
        unread: list[UnreadObject] = []
        pods = await _list(client, PODS, "", unread, Selector(namespace))
        return cls(pods=pods, nodes=(), instaslices=(), now=clock.now(), storage=None, unread=unread)


_KINDS: Final[tuple[Resource[Any], ...]] = (PODS, NODES, INSTASLICES)


async def _forbidden(client: Client) -> list[str]:
    found: list[str] = []
    refusal: Forbidden | None = None
    for kind in _KINDS:
        try:
            await client.version(kind)
        except Forbidden as error:
            found.append(kind.plural)
            refusal = error
        except NotFound:
            continue  # the list says what that means
    if refusal is not None and len(found) == len(_KINDS):
        raise refusal
    return found


async def _unless(
    forbidden: Sequence[str], client: Client, resource: Resource[T], version: str, unread: list[UnreadObject]
) -> list[T]:
    return [] if resource.plural in forbidden else await _list(client, resource, version, unread)


async def _list(
    client: Client, resource: Resource[T], version: str, unread: list[UnreadObject], selector: Selector = EVERYTHING
) -> list[T]:
    found: list[T] = []
    async for page in client.pages(resource, selector, version=version):
        found += page.items or ()
        unread += [UnreadObject.of(resource, key_of(each), each.error) for each in page.unreadable]
    return found
