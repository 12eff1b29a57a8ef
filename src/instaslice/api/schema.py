"""A msgspec struct as the structural schema that a custom resource definition wants.

Structural: no `$ref`, no unions but `nullable`, a type on everything. Defaults are left out, for the server would
write them into objects and so into the ownership of whoever applies; our structs fill them in on reading.
"""

from typing import Any

import msgspec

Schema = dict[str, Any]

_DROPPED = ("title", "default", "$ref", "anyOf")


def structural(root: type[msgspec.Struct]) -> Schema:
    """The schema of a struct with everything written out in place. Raises TypeError for what Kubernetes cannot hold:
    a union of two types, or a struct that contains itself."""
    (schema,), components = msgspec.json.schema_components([root], ref_template="{name}")
    return _written_out(schema, components, ())


def _written_out(schema: Schema, components: dict[str, Schema], within: tuple[str, ...]) -> Schema:
    if ref := schema.get("$ref"):
        if ref in within:
            raise TypeError(f"{' → '.join((*within, ref))}: a structural schema cannot contain itself")
        return _merged(_written_out(components[ref], components, (*within, ref)), schema)
    if options := schema.get("anyOf"):
        present = [each for each in options if each != {"type": "null"}]
        if len(present) != 1 or len(present) == len(options):
            raise TypeError(f"{schema}: a structural schema has no unions, only null or one type")
        return {**_merged(_written_out(present[0], components, within), schema), "nullable": True}
    out = {key: value for key, value in schema.items() if key not in _DROPPED}
    if "enum" in out:
        out.setdefault("type", "string")
    if "properties" in out:
        out["properties"] = {name: _written_out(each, components, within) for name, each in out["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if isinstance(out.get(inner), dict):
            out[inner] = _written_out(out[inner], components, within)
    if not out.get("required", True):
        del out["required"]
    return out


def _merged(under: Schema, over: Schema) -> Schema:
    """What a field says beside its type counts more than what the type says of itself."""
    return {**under, **{key: value for key, value in over.items() if key not in _DROPPED}}
