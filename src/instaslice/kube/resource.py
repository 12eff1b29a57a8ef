"""One kind of object on the API server: where it lives and which struct it decodes into."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec

from instaslice.kube.meta import Key, Object

T = TypeVar("T", bound=Object)


class PageMeta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, Generic[T]):
    """One answer to a list; `items` is null where a Go server had nothing to put in it."""

    metadata: PageMeta
    items: list[T] | None = None


class WatchEvent(msgspec.Struct, Generic[T], gc=False):
    """One line of a watch that carries an object."""

    type: str
    object: T


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

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[T]:
        return msgspec.json.Decoder(self.type)

    @cached_property
    def page_decoder(self) -> msgspec.json.Decoder[Page[T]]:
        return msgspec.json.Decoder(Page[self.type])  # type: ignore[name-defined]  # a type only known at run time

    @cached_property
    def event_decoder(self) -> msgspec.json.Decoder[WatchEvent[T]]:
        return msgspec.json.Decoder(WatchEvent[self.type])  # type: ignore[name-defined]  # a type only known at run time
