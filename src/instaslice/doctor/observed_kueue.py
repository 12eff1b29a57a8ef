"""What the doctor reads of Kueue, where it is installed: workloads, queues, and its configuration if that is readable.

Kueue keeps its configuration where it was installed to, in the ConfigMap of its own manifests unless somebody chose
another: one that is not there says nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import yaml

from instaslice.doctor.findings import Finding, Invariant
from instaslice.kube.client import Client
from instaslice.kube.core import CONFIG_MAPS
from instaslice.kube.errors import BadQuantity, KubeError, NotFound, Refused, Unreachable
from instaslice.kube.meta import Key
from instaslice.kube.quantities import NANO, nano
from instaslice.kueue.snapshot import KueueSnapshot

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
    async def read(cls, client: Client) -> "ObservedKueue":
        snapshot = await KueueSnapshot.read(client)
        if snapshot is None:
            return cls()
        configuration, note = await _configuration(client)
        # One finding: a user who may read nothing of Kueue is told so once.
        notes = [*snapshot.not_read, *([note] if note else [])]
        unread = [Finding(Invariant.NOT_CHECKED, "kueue", "; ".join(notes))] if notes else []
        return cls(snapshot, configuration, unread)


async def _configuration(client: Client) -> tuple[KueueConfiguration | None, str]:
    """It, or why it is not known; neither where it is kept elsewhere."""
    try:
        found = await client.get(CONFIG_MAPS, CONFIGURATION)
    except NotFound:
        return None, ""
    except Refused as error:
        grant = f"grant `get` on {CONFIG_MAPS.plural} in namespace {CONFIGURATION.namespace}"
        return None, f"{ABOUT} may not be read ({error.status} {error.reason}): {grant}"
    except Unreachable:
        raise
    except KubeError as error:
        return None, f"{ABOUT} cannot be read ({error.message})"
    return parsed_configuration(found.data or {})


def parsed_configuration(data: Mapping[str, str]) -> tuple[KueueConfiguration | None, str]:
    """The configuration in a ConfigMap, or why it cannot be read."""
    for text in data.values():
        try:
            document: Any = yaml.safe_load(text)
            if isinstance(document, dict) and document.get("kind") == "Configuration":
                return msgspec.convert(document, KueueConfiguration, strict=False), ""
        except (yaml.YAMLError, msgspec.ValidationError) as error:
            return None, f"{ABOUT} cannot be read ({error})"
    return None, ""
