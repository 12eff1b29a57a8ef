"""What every Kubernetes object has, as typed structs that hold only what we read.

A struct that lacks a field costs nothing for it: msgspec skips `managedFields` and the rest of a 13 KB pod without
making an object. `gc=False` keeps caches out of the garbage collector, so no field may ever point back at its owner.
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


class Part(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """Base of every struct that goes to or comes from the API server. Fields at their default are not sent, so an
    apply owns only what was set."""


class OwnerReference(Part, frozen=True):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class ObjectMeta(Part, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    finalizers: list[str] = msgspec.field(default_factory=list)
    owner_references: list[OwnerReference] = msgspec.field(default_factory=list)


class Object(Protocol):
    """Anything with metadata: what resources, caches and watches are generic over."""

    @property
    def metadata(self) -> ObjectMeta: ...


def key_of(thing: Object) -> Key:
    return Key(thing.metadata.namespace, thing.metadata.name)
