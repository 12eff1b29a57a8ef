"""What the doctor reads of Kueue, where it is installed: workloads, queues, and its configuration if that is readable.

Kueue keeps its configuration where it was installed to, in the ConfigMap of its own manifests unless somebody chose
another: one that is not there says nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import yaml

from instaslice.doctor.findings import Finding
from instaslice.doctor.kind_reader import KindReader
from instaslice.doctor.kueue_quota import KueueQuota
from instaslice.kube.client import Client
from instaslice.kube.core import CONFIG_MAPS
from instaslice.kube.errors import BadQuantity
from instaslice.kube.meta import Key
from instaslice.kube.quantities import NANO, nano
from instaslice.kueue.objects import LOCAL_QUEUES
from instaslice.kueue.snapshot import KueueSnapshot, is_served

CONFIGURATION: Final = Key("kueue-system", "kueue-manager-config")
ABOUT: Final = f"configmap {CONFIGURATION}"


class Transformation(msgspec.Struct, frozen=True):
    """One resource that Kueue charges as others."""

    input: str = ""
    strategy: str = "Retain"
    outputs: dict[str, str | int | float] = {}

    def gives(self, resource: str, amount: int) -> bool:
        """Whether it charges just so many of one resource in place of its input."""
        try:
            given = {name: nano(str(quantity)) for name, quantity in self.outputs.items()}
        except BadQuantity:
            return False
        return self.strategy == "Replace" and given == {resource: amount * NANO}


class ChargedResources(msgspec.Struct, frozen=True, rename="camel"):
    exclude_resource_prefixes: list[str] = []
    transformations: list[Transformation] = []
    quota_check_strategy: str = "BlockUndeclared"
    """`IgnoreUndeclared` admits what no queue covers, and forbids prefixes."""


class KueueConfiguration(msgspec.Struct, frozen=True):
    """Kueue's own, as far as it decides what slices cost."""

    resources: ChargedResources = ChargedResources()


@dataclass(frozen=True)
class ObservedKueue:
    """`snapshot` is None where Kueue is not installed, `configuration` where it is not known."""

    snapshot: KueueSnapshot | None = None
    configuration: KueueConfiguration | None = None
    not_checked: Sequence[Finding] = field(default=())

    @classmethod
    async def read(cls, client: Client, quota: KueueQuota) -> "ObservedKueue":
        """What `quota` has not read already, nor said that it may not be. Raises Unreachable."""
        if not await is_served(client):
            return cls()
        reader = KindReader(client)
        snapshot = KueueSnapshot(quota.workloads, await reader.all(LOCAL_QUEUES), quota.queues)
        configuration = None
        for each in await reader.one(CONFIG_MAPS, CONFIGURATION) or ():
            configuration, why = parsed_configuration(each.data or {})
            if why:
                reader.note(ABOUT, why)
        return cls(snapshot, configuration, reader.notes)


def parsed_configuration(data: Mapping[str, str]) -> tuple[KueueConfiguration | None, str]:
    """The configuration in a ConfigMap, or why it cannot be read."""
    for text in data.values():
        try:
            document: Any = yaml.safe_load(text)
            if isinstance(document, dict) and document.get("kind") == "Configuration":
                return msgspec.convert(document, KueueConfiguration, strict=False), ""
        except (yaml.YAMLError, msgspec.ValidationError) as error:
            return None, f"cannot be read ({error})"
    return None, ""
