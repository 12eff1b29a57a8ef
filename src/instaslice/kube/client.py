"""The verbs of an API server, typed: get, list, create, replace, apply, patch, delete, watch.

Sits on Transport, which knows HTTP; knows how Kubernetes spells each verb. Reads return the struct of the Resource.
"""

import builtins
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

import msgspec

from instaslice.kube import config as configuration
from instaslice.kube.clock import Clock, SystemClock
from instaslice.kube.meta import Key, Object
from instaslice.kube.observer import UNOBSERVED, Observer
from instaslice.kube.resource import ListPage, Resource
from instaslice.kube.transport import Chunks, Persistence, Transport

T = TypeVar("T", bound=Object)

PAGE_SIZE = 500
Body = Mapping[str, Any]


class JsonOp(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True):
    """One step of a JSON patch. A `test` before a `remove` keeps a race from removing what somebody else put there."""

    op: str
    path: str
    value: Any = msgspec.UNSET


def appended(path: str, present: Sequence[object] | None, value: object) -> JsonOp:
    """One more entry of a list that may not be there yet."""
    return JsonOp(op="add", path=f"{path}/-", value=value) if present else JsonOp(op="add", path=path, value=[value])


def escaped(key: str) -> str:
    """A key, an annotation's name say, as part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


class Selector(NamedTuple):
    """Which objects of a kind: all of them, or those that the server picks."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""

    def params(self) -> dict[str, str]:
        wanted = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in wanted.items() if value}


EVERYTHING = Selector()


class Client:
    """One API server. `async with await Client.connect() as kube:`, or close it yourself."""

    def __init__(self, transport: Transport, *, namespace: str = "default") -> None:
        """`namespace` is the one that commands look at unless they are given another."""
        self._transport = transport
        self.namespace = namespace

    @classmethod
    async def connect(
        cls,
        kubeconfig: Path | None = None,
        *,
        context: str | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        rate: float = 50.0,
        burst: int = 100,
        persistence: Persistence = Persistence(),  # noqa: B008 - immutable
        observer: Observer = UNOBSERVED,
    ) -> Self:
        """Read the configuration (config.load says which) and the credentials; nothing is sent yet.

        `rate` requests per second, `burst` at once: others need the server too.
        """
        clock = clock or SystemClock()
        config = await configuration.load(kubeconfig, context=context, clock=clock)
        rng = rng or random.Random()
        transport = Transport(
            config, clock=clock, rng=rng, rate=rate, burst=burst, persistence=persistence, observer=observer
        )
        return cls(transport, namespace=config.namespace)

    @property
    def observer(self) -> Observer:
        """Who counts our requests."""
        return self._transport.observer

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def get(self, resource: Resource[T], key: Key) -> T:
        what = f"get {resource.plural} {key}"
        return resource.read(
            what, await self._transport.request("GET", resource.path(*key), what=what, repeatable=True)
        )

    async def list(self, resource: Resource[T], selector: Selector = EVERYTHING) -> builtins.list[T]:
        """All objects. Raises Unreadable where one of them cannot be read: the rest is not all."""
        found: builtins.list[T] = []
        async for page in self.pages(resource, selector):
            if page.unreadable:
                raise page.unreadable[0].error
            found += page.items or ()
        return found

    async def pages(
        self, resource: Resource[T], selector: Selector = EVERYTHING, *, version: str = ""
    ) -> AsyncIterator[ListPage[T]]:
        """A consistent list, PAGE_SIZE objects at a time; each page carries the version of the whole, and what could
        not be decoded. `version` asks for the state of exactly that resource version.

        Raises Gone when the reader was so slow that the server compacted the version it began with.
        """
        params = {**selector.params(), "limit": str(PAGE_SIZE)}
        start = {"resourceVersion": version, "resourceVersionMatch": "Exact"} if version else {}
        what = f"list {resource.plural} {selector.namespace}".rstrip()
        while True:
            body = await self._transport.request(
                "GET", resource.path(selector.namespace), what=what, params=params | start, repeatable=True
            )
            page = resource.read_page(what, body)
            yield page
            if not page.metadata.continue_:
                return
            params["continue"], start = page.metadata.continue_, {}

    async def version(self, resource: Resource[T], selector: Selector = EVERYTHING) -> str:
        """The resource version that a list would have now."""
        what = f"list {resource.plural} {selector.namespace}".rstrip()
        params = {**selector.params(), "limit": "1"}
        body = await self._transport.request(
            "GET", resource.path(selector.namespace), what=what, params=params, repeatable=True
        )
        return resource.read_page(what, body).metadata.resource_version

    async def create(self, resource: Resource[T], body: T | Body) -> T:
        """Raises AlreadyExists."""
        key, document = resource.document(body)
        path, what = resource.path(key.namespace), f"create {resource.plural} {key}"
        return resource.read(what, await self._transport.request("POST", path, what=what, body=document))

    async def replace(self, resource: Resource[T], body: T, *, subresource: str = "") -> T:
        """Write the whole object as given: only for kinds whose every field is in the struct, or those we do not read
        are lost. With metadata.resourceVersion set, Conflict means that someone wrote since."""
        key, document = resource.document(body)
        path = resource.path(*key, subresource)
        what = f"replace {resource.plural} {key}"
        return resource.read(what, await self._transport.request("PUT", path, what=what, body=document))

    async def apply(
        self, resource: Resource[T], body: T | Body, *, manager: str, force: bool = False, subresource: str = ""
    ) -> T:
        """Server-side apply: own exactly the fields in `body`, give up those applied before and missing now.

        Safe to repeat. Conflict means that another manager owns a field; `force` takes it over, so only for fields
        that are ours outright.
        """
        key, document = resource.document(body)
        what = f"apply {resource.plural} {key}"
        answer = await self._transport.request(
            "PATCH",
            resource.path(*key, subresource),
            what=what,
            params={"fieldManager": manager, "force": "true" if force else "false"},
            body=document,
            content_type="application/apply-patch+yaml",
            repeatable=True,
        )
        return resource.read(what, answer)

    async def patch(
        self, resource: Resource[T], key: Key, ops: Sequence[JsonOp], *, manager: str = "", subresource: str = ""
    ) -> T:
        """JSON patch: all steps or none. A `test` that does not hold is Invalid."""
        return await self._patched(resource, key, ops, "application/json-patch+json", manager, subresource)

    async def merge(
        self, resource: Resource[T], key: Key, body: Body, *, manager: str = "", subresource: str = ""
    ) -> T:
        """JSON merge patch: null removes, lists are replaced whole."""
        return await self._patched(resource, key, body, "application/merge-patch+json", manager, subresource)

    async def strategic_merge(
        self, resource: Resource[T], key: Key, body: Body, *, manager: str = "", subresource: str = ""
    ) -> T:
        """Strategic merge patch: as merge, but lists that are maps (conditions) are merged by their key. For kinds that
        Kubernetes itself defines; custom resources have no such patch."""
        return await self._patched(resource, key, body, "application/strategic-merge-patch+json", manager, subresource)

    async def delete(self, resource: Resource[T], key: Key, *, uid: str = "", grace_seconds: int | None = None) -> None:
        """Request the deletion; the object may still be there when this returns. With `uid`, Conflict if another object
        has the name by now."""
        options: dict[str, Any] = {"preconditions": {"uid": uid}} if uid else {}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        what = f"delete {resource.plural} {key}"
        await self._transport.request("DELETE", resource.path(*key), what=what, body=msgspec.json.encode(options))

    async def raw(
        self, method: str, path: str, *, params: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> bytes:
        """Any other request; a GET is repeated when the connection breaks."""
        repeatable = method == "GET"
        return await self._transport.request(
            method, path, what=f"{method} {path}", params=params, body=body, repeatable=repeatable
        )

    def watch(
        self, resource: Resource[T], selector: Selector, params: Mapping[str, str], *, silent_after: float
    ) -> AbstractAsyncContextManager[Chunks]:
        """The bytes of a watch. Reflector makes objects of them."""
        return self._transport.stream(
            resource.path(selector.namespace),
            what=f"watch {resource.plural} {selector.namespace}".rstrip(),
            params={**selector.params(), **params, "watch": "true"},
            silent_after=silent_after,
        )

    async def _patched(
        self, resource: Resource[T], key: Key, patch: object, content_type: str, manager: str, subresource: str
    ) -> T:
        what = f"patch {resource.plural} {key}"
        answer = await self._transport.request(
            "PATCH",
            resource.path(*key, subresource),
            what=what,
            params={"fieldManager": manager} if manager else None,
            body=msgspec.json.encode(patch),
            content_type=content_type,
        )
        return resource.read(what, answer)
