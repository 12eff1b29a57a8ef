"""The definition of the Instaslice object: the rules of a structural schema."""

import msgspec
import pytest

from instaslice.api import crd
from instaslice.api.instaslice import AllocationState
from instaslice.api.schema import structural

VERSION = crd.definition()["spec"]["versions"][0]


def every(schema, path="."):
    """All schemas within a schema, with where they stand."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from every(inner, f"{path}{name}.")
    if "items" in schema:
        yield from every(schema["items"], f"{path}[].")


ALL = dict(every(VERSION["schema"]["openAPIV3Schema"]))
OURS = {path: schema for path, schema in ALL.items() if path.startswith((".spec", ".status"))}


def at(path):
    return ALL[f".{path}."]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(
            lambda s: {"$ref", "anyOf", "default", "title", "const"} & s.keys(), id="says nothing by reference"
        ),
        pytest.param(lambda s: "type" not in s, id="has a type"),
        pytest.param(
            lambda s: s["type"] == "string" and not {"maxLength", "enum", "format"} & s.keys(), id="bounds its strings"
        ),
        pytest.param(lambda s: s["type"] == "integer" and s.get("minimum", -1) < 0, id="has no negative numbers"),
        pytest.param(
            lambda s: s["type"] == "array" and not {"maxItems", "x-kubernetes-list-type"} <= s.keys(),
            id="bounds its lists and says how they merge",
        ),
        pytest.param(
            lambda s: not set(s.get("x-kubernetes-list-map-keys", ())) <= set(s.get("items", {}).get("required", ())),
            id="requires the keys of its maps",
        ),
    ],
)
def test_every_part_of_the_schema(broken):
    assert len(OURS) > 50
    assert [path for path, schema in OURS.items() if broken(schema)] == []


def test_the_states_are_those_of_the_enum():
    assert at("spec.allocations.[].state")["enum"] == sorted(AllocationState)


def test_allocations_and_slices_are_maps_by_id():
    for path in ("spec.allocations", "status.slices"):
        assert at(path)["x-kubernetes-list-map-keys"] == ["id"]


def test_what_may_be_absent_is_nullable():
    assert at("status.summary")["nullable"]
    assert at("status.summary")["type"] == "object"


def test_every_column_but_the_age_quotes_a_field_that_there_is():
    for column in VERSION["additionalPrinterColumns"][:-1]:
        field = column["jsonPath"].split("[")[0].removeprefix(".")
        assert f".{field}." in ALL, column


class Twice(msgspec.Struct):
    either: int | str


class Within(msgspec.Struct):
    inner: "Within | None" = None


@pytest.mark.parametrize(
    "struct, why",
    [pytest.param(Twice, "no unions", id="a union"), pytest.param(Within, "itself", id="a struct in itself")],
)
def test_what_a_structural_schema_cannot_hold_is_refused_when_it_is_generated(struct, why):
    with pytest.raises(TypeError, match=why):
        structural(struct)
