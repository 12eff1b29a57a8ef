"""The rule that the definition in the cluster is the one of this version.

Pure. Only what this version would notice counts: a definition may allow more.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import gt, lt
from typing import Any, Final

from instaslice.api import crd
from instaslice.api.instaslice import INSTASLICES
from instaslice.doctor.findings import Finding, Invariant
from instaslice.doctor.installation import Installation
from instaslice.doctor.installation_kinds import Definition, ServedVersion

MOST_FIELDS: Final = 3
"""That a message names."""

Schema = Mapping[str, Any]

LIMITS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    **dict.fromkeys(("maxItems", "maxLength", "maxProperties", "maximum"), lt),
    **dict.fromkeys(("minItems", "minLength", "minProperties", "minimum"), gt),
}
"""Keyword → whether a first limit is stricter than a second."""
EXACT: Final = ("type", "format", "pattern", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")
"""Keywords that restrict unless they are the same."""


def definition_matches(installation: Installation) -> Iterator[Finding]:
    if installation.definitions is None:
        return
    faults = _faults(installation.definitions[0]) if installation.definitions else ["does not exist"]
    for fault in faults:
        message = f"{fault}; apply the definition of this version (charts/instaslice/crds)"
        yield Finding(Invariant.DEFINITION_MATCHES, f"customresourcedefinition {crd.NAME}", message)


def _faults(definition: Definition) -> list[str]:
    ours, versions = INSTASLICES.version, definition.spec.versions or []
    there = next((each for each in versions if each.name == ours), None)
    if there is None or not there.served:
        return [f"does not serve {ours}, which this version reads and writes"]
    faults = []
    if not there.storage:
        stored = next((each.name for each in versions if each.storage), "none")
        faults.append(f"stores objects as {stored}, not as {ours}")
    if others := [each for each in definition.status.stored_versions or () if each != ours]:
        faults.append(f"still has objects stored as {', '.join(others)}")
    if not any(each.type == "Established" and each.status == "True" for each in definition.status.conditions or ()):
        faults.append("is not established")
    return [*faults, *_schema_faults(there)]


def _schema_faults(there: ServedVersion) -> Iterator[str]:
    if "status" not in there.subresources:
        yield "has no subresource status, so agents cannot report their slices"
    expected = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema = there.schema.get("openAPIV3Schema", {})
    if missing := sorted(_fields(expected) - _fields(schema)):
        yield f"lacks {_first(missing)}, which the API server drops from every write"
    if stricter := list(_restrictions(expected, schema)):
        yield f"restricts {_first(stricter)}, so the API server refuses writes"


def _fields(schema: Schema, path: str = "") -> set[str]:
    """The paths of all fields: `status.slices[].holder`."""
    found = set()
    for inner_path, inner in _inner(schema, path):
        if not inner_path.endswith(("[]", "{}")):
            found.add(inner_path)
        found |= _fields(inner, inner_path)
    return found


def _restrictions(ours: Schema, there: Schema, path: str = "") -> Iterator[str]:
    """Where `there` refuses what `ours` accepts: `spec.allocations (maxItems 1, not 512)`."""
    where = path or "the object"
    for keyword, stricter in LIMITS.items():
        if keyword in there and (keyword not in ours or stricter(there[keyword], ours[keyword])):
            yield f"{where} ({keyword} {there[keyword]:g}, not {ours.get(keyword, 'any')})"
    for keyword in EXACT:
        if keyword in there and there[keyword] != ours.get(keyword):
            yield f"{where} ({keyword} {there[keyword]}, not {ours.get(keyword, 'any')})"
    if "enum" in there and (refused := sorted({*ours.get("enum", ["others"])} - {*there["enum"]})):
        yield f"{where} (not {', '.join(refused)})"
    if demanded := sorted({*there.get("required", ())} - {*ours.get("required", ())}):
        yield f"{where} (requires {', '.join(demanded)})"
    if ours.get("nullable") and not there.get("nullable"):
        yield f"{where} (not null)"
    if there.get("x-kubernetes-validations"):
        yield f"{where} (x-kubernetes-validations)"
    inside = dict(_inner(there, path))
    for inner_path, inner in _inner(ours, path):
        if inner_path in inside:
            yield from _restrictions(inner, inside[inner_path], inner_path)


def _inner(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    """The schemas of fields and entries, each with its path."""
    for name, inner in schema.get("properties", {}).items():
        yield (f"{path}.{name}" if path else name), inner
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(inner := schema.get(key), Mapping):
            yield f"{path}{mark}", inner


def _first(named: Sequence[str]) -> str:
    more = f" and {len(named) - MOST_FIELDS} more" if len(named) > MOST_FIELDS else ""
    return f"{', '.join(named[:MOST_FIELDS])}{more}"
