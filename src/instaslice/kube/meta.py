"""What every Kubernetes object has, as typed structs with only what we read.

A struct that lacks a field costs nothing for it: msgspec skips `managedFields` and the rest of a 13 KB pod without
making an object. `gc=False` keeps caches out of the garbage collector, so no field may point back at its owner.
Structs are frozen because the cache hands out the same object to everyone.
"""

from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec


class Key(NamedTuple):
    """Names an object within its kind; the namespace of a cluster-scoped one is ""."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ApiStruct(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """Base of every struct that goes to or comes from the API server. Fields at their default are not sent, so an
    apply owns only what was set."""


class OwnerReference(ApiStruct, frozen=True):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class ObjectMeta(ApiStruct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: list[OwnerReference] = msgspec.field(default_factory=list)


class Object(Protocol):
    """Anything with metadata: what resources, caches and watches are generic over."""

    @property
    def metadata(self) -> ObjectMeta: ...


def key_of(thing: Object) -> Key:
    return Key(thing.metadata.namespace, thing.metadata.name)


def is_older(version: str, than: str) -> bool:
    """Whether one resource version is known to be older than another of the same kind.

    They are decimal numbers of any length (Kubernetes promises it from 1.35, and etcd has always kept it). Those of
    an aggregated API server may be anything else, and have no order.
    """
    less = version < than if len(version) == len(than) else len(version) < len(than)
    return less and _is_number(version) and _is_number(than)


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdigit() and version[0] != "0"
