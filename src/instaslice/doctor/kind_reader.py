"""Reads kinds one by one: one that the caller may not read is a finding `not-checked`, and costs none of the others."""

from collections.abc import Awaitable
from typing import Any, TypeVar

from instaslice.doctor.findings import Finding, Invariant
from instaslice.kube.client import EVERYTHING, Client, Selector
from instaslice.kube.errors import KubeError, NotFound, Refused, Unreachable
from instaslice.kube.meta import Key, Object
from instaslice.kube.resource import Resource

T = TypeVar("T")
K = TypeVar("K", bound=Object)


class KindReader:
    """Reads what it may, and notes what it may not."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.notes: list[Finding] = []

    def note(self, thing: str, why: str) -> None:
        self.notes.append(Finding(Invariant.NOT_CHECKED, thing, why))

    async def all(self, resource: Resource[K], selector: Selector = EVERYTHING) -> list[K] | None:
        return await self._read(resource, "list", resource.plural, self._client.list(resource, selector))

    async def one(self, resource: Resource[K], key: Key) -> list[K] | None:
        async def found() -> list[K]:
            try:
                return [await self._client.get(resource, key)]
            except NotFound:
                return []

        return await self._read(resource, "get", f"{resource.kind.lower()} {key}", found())

    async def _read(self, resource: Resource[Any], verb: str, thing: str, read: Awaitable[T]) -> T | None:
        try:
            return await read
        except (Refused, NotFound) as error:
            group = f".{resource.group}" if resource.group else ""
            self.note(
                thing, f"may not be read ({error.status} {error.reason}); grant `{verb}` on {resource.plural}{group}"
            )
        except Unreachable:
            raise  # the next kind would wait as long, in vain
        except KubeError as error:
            self.note(thing, f"cannot be read ({error.message})")
        return None
