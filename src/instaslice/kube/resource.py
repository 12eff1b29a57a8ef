"""One kind of object on the API server: where it lives and which struct it decodes into."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from instaslice.kube.errors import Unreadable
from instaslice.kube.meta import Key, Object, ObjectMeta

T = TypeVar("T", bound=Object)


class UnreadableObject(NamedTuple):
    """An object that does not have the form of its kind: its name, uid and version, and what is wrong."""

    metadata: ObjectMeta
    error: Unreadable


class ListMeta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class ListPage(msgspec.Struct, Generic[T]):
    """One answer to a list; `items` is null where a Go server had nothing to put in it."""

    metadata: ListMeta
    items: list[T] | None = None
    unreadable: list[UnreadableObject] = []
    """What could not be decoded."""


class WatchEvent(msgspec.Struct, Generic[T], gc=False):
    """One line of a watch that carries an object."""

    type: str
    object: T


class _BareMeta(msgspec.Struct, gc=False, rename="camel"):
    """Only what the API server always writes."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Bare(msgspec.Struct, gc=False):
    metadata: _BareMeta


class _RawListPage(msgspec.Struct):
    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


_bare = msgspec.json.Decoder(_Bare)
_raw_page = msgspec.json.Decoder(_RawListPage)


@dataclass(frozen=True)
class Resource(Generic[T]):
    """The address and the type of a kind. Module constants; the decoders are made once and shared."""

    type: type[T]
    kind: str
    plural: str
    version: str = "v1"
    group: str = ""
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection (all namespaces where none is given) or of one object."""
        parts = [f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)

    def document(self, body: T | Mapping[str, Any]) -> tuple[Key, bytes]:
        """What to send for an object: its key and its JSON with apiVersion and kind filled in."""
        fields = msgspec.to_builtins(body, str_keys=True)
        meta = fields.get("metadata", {})
        whole = {"apiVersion": self.api_version, "kind": self.kind, **fields}
        return Key(meta.get("namespace", ""), meta.get("name", "")), msgspec.json.encode(whole)

    def read(self, what: str, body: bytes) -> T:
        """The object in an answer. Raises Unreadable."""
        try:
            return self.decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise Unreadable(f"{what}: the response is not a {self.kind} that we can read: {error}") from None

    def read_page(self, what: str, body: bytes) -> ListPage[T]:
        """One answer to a list. Raises Unreadable where it is none at all."""
        try:
            try:
                return self.page_decoder.decode(body)
            except msgspec.ValidationError:
                raw = _raw_page.decode(body)
        except msgspec.MsgspecError as error:
            raise Unreadable(f"{what}: the response is not a list: {error}") from None
        items: list[T] = []
        unreadable: list[UnreadableObject] = []
        for each in raw.items or ():
            try:
                items.append(self.decoder.decode(each))
            except msgspec.ValidationError as error:
                unreadable.append(self.unreadable(each, error))
        return ListPage(raw.metadata, items, unreadable)

    def unreadable(self, body: bytes | msgspec.Raw, error: msgspec.DecodeError) -> UnreadableObject:
        """What is known of an object that cannot be decoded. Raises Unreadable where not even its name can."""
        try:
            meta = _bare.decode(body).metadata
        except msgspec.MsgspecError:
            raise Unreadable(f"a {self.kind} without a name cannot be read: {error}") from None
        known = ObjectMeta(
            name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
        )
        return UnreadableObject(
            known, Unreadable(f"{self.kind} {Key(known.namespace, known.name)} cannot be read: {error}")
        )

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[T]:
        return msgspec.json.Decoder(self.type)

    @cached_property
    def page_decoder(self) -> msgspec.json.Decoder[ListPage[T]]:
        return msgspec.json.Decoder(ListPage[self.type])  # type: ignore[name-defined]  # a type only known at run time

    @cached_property
    def event_decoder(self) -> msgspec.json.Decoder[WatchEvent[T]]:
        return msgspec.json.Decoder(WatchEvent[self.type])  # type: ignore[name-defined]  # a type only known at run time
