"""Pods, nodes and Instaslice objects that are odd in any way the API server lets through, as hypothesis strategies.

Everything starts from one valid cluster, of two nodes with two A30 each (few states, so a test affords thousands of
cases) and a pod in each stage of its life. Then fields are changed at random: Instaslice objects within the schema of
our definition, as somebody with `kubectl edit` may; pods and nodes within what Kubernetes validates, and a little
beyond it (null lists, negative numbers, a suffix of a later version), which costs nothing and spares the question.
What is referred to is often there and often not: names, uids and UUIDs come from the cluster or from nowhere.

    clusters()    all objects of a moment                     pods(), nodes(), instaslices()    one object
    histories()   such a cluster, and then changes of it, as a cache tells them: (old, new)

Every object is decoded from JSON by the decoder that reads it from the API server.
"""

import copy
from functools import cache
from typing import NamedTuple

import fitting
import manifests
import msgspec
from hypothesis import strategies as st

from instaslice.api import names
from instaslice.api.geometries import ModelGeometry
from instaslice.api.instaslice import INSTASLICES, Instaslice, InstasliceSpec, InstasliceStatus
from instaslice.api.schema import structural
from instaslice.geometry import models
from instaslice.kube.core import NODES, PODS, Node, Pod
from instaslice.kube.meta import key_of

CREATED_AT = "2026-11-16T12:00:00Z"
PROFILES = ("1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb")
SIZES = {"1g.6gb": 1, "2g.12gb": 2, "4g.24gb": 4}
CAPACITY = {
    "cpu": "64",
    "memory": "512Gi",
    "pods": "250",
    "gpu.das.com/mig-1g.6gb": "8",
    "gpu.das.com/mig-1g.6gb.me": "2",
    "gpu.das.com/mig-2g.12gb": "4",
    "gpu.das.com/mig-2g.12gb.me": "2",
    "gpu.das.com/mig-4g.24gb": "2",
    "gpu.das.com/mig-any": "8",
    "gpu.das.com/mem": "48",
}


class Cluster(NamedTuple):
    """What three lists say."""

    pods: list[Pod]
    nodes: list[Node]
    instaslices: list[Instaslice]


class Change(NamedTuple):
    """What a cache tells of one object: None where it was not there before, or is gone."""

    old: Pod | Node | Instaslice | None
    new: Pod | Node | Instaslice | None


# The valid cluster --------------------------------------------------------------------------------------------------


def _pod(name, *profiles, gates=(), on="", given=(), phase="Pending", condition=None, **more):
    """A pod as the webhook leaves it; `on` is the node that it is pinned to and, unless it is Pending, runs on."""
    limits = {}
    for profile in profiles:
        resource = f"{names.RESOURCE}{profile.replace('+', '.')}"
        limits[resource] = str(int(limits.get(resource, "0")) + 1)
    annotations = {}
    if profiles:
        annotations[names.REQUESTED] = '{"main":{"nvidia.com/mig-1g.6gb":1}}'
    if given:
        annotations |= dict.fromkeys(names.RESERVED_ANNOTATIONS, on)
        annotations |= {names.REQUESTED: "{}", names.MIG_UUIDS: ",".join(given)}
    requests = {"cpu": "500m", "memory": "1Gi", **limits}
    spec = {"tolerations": [{"key": names.MANAGED, "operator": "Exists", "effect": "NoSchedule"}], "priority": 0}
    if gates:
        spec["schedulingGates"] = [{"name": each} for each in gates]
    if on:
        spec["affinity"] = fitting.affinity([("metadata.name", "In", on)])
        if phase != "Pending":
            spec["nodeName"] = on
    meta = {"namespace": "team-a", "labels": {"app": "train"}, "annotations": annotations}
    made = manifests.pod(name, **meta, limits=limits, requests=requests, **spec)
    made["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "7", "creationTimestamp": CREATED_AT, **more}
    conditions = [{"type": names.SLICE_READY, "status": condition, "reason": "Waiting"}] if condition else []
    return {**made, "status": {"phase": phase, "conditions": conditions}}


def _allocation(pod, profile, start, gpu, state, number=0):
    return {
        "id": f"uid-{pod}-0a0b0c0d-{number}",
        "pod": {"namespace": "team-a", "name": pod, "uid": f"uid-{pod}"},
        "container": "main",
        "profile": profile,
        "gpu": gpu,
        "start": start,
        "size": SIZES[profile],
        "state": state,
        "cpu": 500,
        "memory": 1 << 30,
    }


def _made(allocation, state="created", uuid=None):
    """What the agent says of an allocation."""
    report = {name: allocation[name] for name in ("id", "gpu", "profile", "start", "size")} | {"state": state}
    if state in ("created", "foreign"):
        report |= {"migUuid": uuid or f"MIG-{allocation['gpu']}-{allocation['start']}", "gi": 1, "ci": 0}
    return report


def _instaslice(name, gpus, allocations, slices):
    return {
        "metadata": {"name": name, "uid": f"uid-of-{name}", "generation": 5, "resourceVersion": "9"},
        "spec": {"allocations": allocations},
        "status": {
            "observedGeneration": 5,
            "bootId": "0c8f",
            "node": {"cpu": 64_000, "memory": 512 << 30},
            "models": [msgspec.json.decode(msgspec.json.encode(ModelGeometry.of(models.named("A30"))))],
            "gpus": [
                {"uuid": gpu, "index": index, "model": "A30", "health": "healthy"} for index, gpu in enumerate(gpus)
            ],
            "slices": slices,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Serving",
                    "lastTransitionTime": CREATED_AT,
                    "message": "",
                }
            ],
            "summary": {"gpus": "2x A30", "slices": len(slices), "freeMemory": "24/48 GB"},
        },
    }


def _node(name):
    return {
        "metadata": {"name": name, "uid": f"node-{name}", "resourceVersion": "3", "labels": {"zone": "a"}},
        "spec": {"taints": [{"key": names.MANAGED, "effect": "NoSchedule"}]},
        "status": {
            "capacity": dict(CAPACITY),
            "allocatable": dict(CAPACITY),
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": CREATED_AT}],
        },
    }


_RUNS = _allocation("runs", "2g.12gb", 0, "GPU-0", "ungated")
_PAIR = [
    _allocation("pair", "1g.6gb", 2, "GPU-0", "ungated", 0),
    _allocation("pair", "1g.6gb", 3, "GPU-0", "ungated", 1),
]
_MAKING = _allocation("making", "1g.6gb", 0, "GPU-1", "creating")
_MADE = _allocation("made", "1g.6gb", 1, "GPU-1", "created")
_GOING = _allocation("going", "2g.12gb", 2, "GPU-1", "deleting")
_FREED = _allocation("freed", "1g.6gb", 0, "GPU-2", "ungated")
_FOREIGN = {**_made(_allocation("", "1g.6gb", 0, "GPU-3", "created"), "foreign"), "id": "MIG-GPU-3-0"}

_VALID = {
    "pods": [
        _pod("runs", "2g.12gb", on="gpu-0", given=["MIG-GPU-0-0"], phase="Running", condition="True"),
        _pod("pair", "1g.6gb", "1g.6gb", on="gpu-0", given=["MIG-GPU-0-2", "MIG-GPU-0-3"], phase="Running"),
        _pod("making", "1g.6gb", gates=[names.GATE], condition="False"),
        _pod("made", "1g.6gb", gates=[names.GATE], condition="False"),
        _pod("freed", "1g.6gb", on="gpu-1", given=["MIG-GPU-2-0"], condition="True"),
        _pod("waits", "4g.24gb", "4g.24gb", "4g.24gb", gates=[names.GATE], condition="False"),
        _pod("queued", "1g.6gb", gates=["kueue.x-k8s.io/admission", names.GATE]),
        _pod("ended", "1g.6gb", on="gpu-1", given=["MIG-GPU-2-1"], phase="Succeeded"),
        _pod("leaves", "1g.6gb", gates=[names.GATE], condition="False", deletionTimestamp=CREATED_AT),
        _pod("plain", on="gpu-0", phase="Running"),
    ],
    "nodes": [_node("gpu-0"), _node("gpu-1")],
    "instaslices": [
        _instaslice(
            "gpu-0",
            ["GPU-0", "GPU-1"],
            [_RUNS, *_PAIR, _MAKING, _MADE, _GOING],
            [_made(_RUNS), *map(_made, _PAIR), _made(_MADE), _made(_GOING, "deleting")],
        ),
        _instaslice("gpu-1", ["GPU-2", "GPU-3"], [_FREED], [_made(_FREED), _FOREIGN]),
    ],
}


def _stranger(name, *profiles, namespace="kube-system", **more):
    made = _pod(name, *profiles, **more)
    made["metadata"]["namespace"] = namespace
    return made


_STRANGERS = {
    "pods": [
        # A Binding wrote its annotations: it asks for nothing and was given nothing.
        _stranger("forged", on="gpu-0", given=["MIG-x"], phase="Running"),
        _stranger("claims", "1g.6gb", on="gpu-1", given=["MIG-GPU-3-0"], phase="Running"),
        _stranger("odd", *["1g.6gb"] * 200),
    ],
    "nodes": [_node("gpu-9")],
    "instaslices": [
        _instaslice("gpu-9", ["GPU-3", "GPU-9"], [{**_RUNS, "gpu": "GPU-9"}, {**_FREED, "gpu": "GPU-3"}], []),
    ],
}
"""What may come to the valid cluster: pods made past webhook and policy, a node that reports the GPU of another."""
_STRANGERS["pods"][0]["metadata"]["annotations"][names.MIG_UUIDS] = ""

_RESOURCES = {"pods": PODS, "nodes": NODES, "instaslices": INSTASLICES}


def _read(kind, document):
    return _RESOURCES[kind].decoder.decode(msgspec.json.encode(document))


def _cluster(documents):
    return Cluster(*([_read(kind, each) for each in documents[kind]] for kind in Cluster._fields))


def valid():
    """The cluster that all others are made from."""
    return _cluster(_VALID)


# What may stand in a field ------------------------------------------------------------------------------------------

ABSENT = object()
"""Where a strategy gives this the field is taken out."""

_WORDS = st.text(max_size=12)
_NODE_NAMES = st.sampled_from(["gpu-0", "gpu-1", "nowhere"])
_UUIDS = [made["migUuid"] for thing in _VALID["instaslices"] for made in thing["status"]["slices"] if "migUuid" in made]
_NOTES = (
    st.sampled_from(["", ",", "null", "[]", "{}", "{", '{"main":{}}', '{"main":{"nvidia.com/mig-1g.6gb":-1}}', "MIG-x"])
    | st.lists(st.sampled_from([*_UUIDS, ""]), max_size=3).map(",".join)
    | _NODE_NAMES
    | _WORDS
)
_QUANTITIES = st.sampled_from(
    [
        *("0", "1", "2", "8", "128", "129", "200", "-1", "1k", "1e3", "500m", "1500m", "5Gi", "1n", "100E", "1Zi"),
        "9223372036854775807",
        3,
    ]
)
_MEMORY = [names.MEMORY, names.ANY_SLICE]
_SLICES = [f"{names.RESOURCE}{each}" for each in ("1g.6gb", "2g.12gb.me", "4g.24gb", "1g.5gb", "9g.99gb", "0g.0gb")]
_SLICES += [f"{names.RESOURCE}{each}" for each in ("", "nonsense", "1g.6gb.mee")]
_RESOURCE_NAMES = st.sampled_from(
    [
        *_SLICES,
        names.MEMORY,
        names.ANY_SLICE,
        "nvidia.com/mig-1g.6gb",
        "nvidia.com/gpu",
        "cpu",
        "memory",
        "pods",
        "hugepages-2Mi",
        "x/y",
    ]
)
_AMOUNTS = st.dictionaries(_RESOURCE_NAMES, _QUANTITIES, max_size=3)
_CONTAINER = st.fixed_dictionaries(
    {"name": st.sampled_from(["main", "side", "first"])},
    optional={
        "resources": st.fixed_dictionaries({}, optional={"limits": _AMOUNTS, "requests": _AMOUNTS}),
        "restartPolicy": st.sampled_from(["Always", "", "Never"]),
    },
)
_CONTAINERS = st.none() | st.lists(_CONTAINER, max_size=3)
_REQUIREMENTS = st.none() | st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["metadata.name", "zone", "kubernetes.io/hostname", ""]),
            "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Odd"]),
        },
        optional={"values": st.none() | st.lists(st.sampled_from(["gpu-0", "gpu-1", "a", "7", "x", ""]), max_size=2)},
    ),
    max_size=2,
)
_TERMS = st.none() | st.lists(
    st.fixed_dictionaries({}, optional={"matchExpressions": _REQUIREMENTS, "matchFields": _REQUIREMENTS}), max_size=3
)
_TOLERATIONS = st.none() | st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from([names.MANAGED, "x", ""]),
            "operator": st.sampled_from(["Exists", "Equal", "", "Gt", "Odd"]),
            "value": st.sampled_from(["", "7", "x"]),
            "effect": st.sampled_from(["", "NoSchedule", "NoExecute", "Odd"]),
        },
    ),
    max_size=2,
)
_STAMPS = st.sampled_from([CREATED_AT, "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]) | st.just(ABSENT)


def _conditions(*kinds):
    each = st.fixed_dictionaries(
        {"type": st.sampled_from(kinds), "status": st.sampled_from(["True", "False", "Unknown", ""])},
        optional={
            "reason": st.sampled_from(["Waiting", "SliceReady", "SliceLost", "GpuUnhealthy", "SchedulingGated", ""]),
            "message": _WORDS,
            "lastTransitionTime": st.none() | st.just(CREATED_AT),
        },
    )
    return st.none() | st.just(ABSENT) | st.lists(each, max_size=3)


_SPOTS = {
    "pods": {
        ("metadata", "annotations"): st.just(ABSENT) | st.dictionaries(_WORDS, _WORDS, max_size=2),
        **{("metadata", "annotations", each): _NOTES | st.just(ABSENT) for each in names.RESERVED_ANNOTATIONS},
        ("metadata", "labels"): st.just(ABSENT) | st.dictionaries(_WORDS, _WORDS, max_size=2),
        ("metadata", "creationTimestamp"): _STAMPS,
        ("metadata", "deletionTimestamp"): _STAMPS,
        ("metadata", "ownerReferences"): st.just(
            [{"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "uid-x", "controller": True}]
        ),
        ("spec", "nodeName"): _NODE_NAMES | st.just(ABSENT),
        ("spec", "containers"): _CONTAINERS,
        ("spec", "containers", 0, "resources"): st.fixed_dictionaries({}, optional={"limits": _AMOUNTS}),
        ("spec", "containers", 0, "resources", "limits"): _AMOUNTS,
        ("spec", "containers", 0, "resources", "requests"): _AMOUNTS,
        ("spec", "initContainers"): _CONTAINERS,
        ("spec", "schedulingGates"): st.none()
        | st.just(ABSENT)
        | st.lists(
            st.sampled_from([{"name": names.GATE}, {"name": "kueue.x-k8s.io/admission"}, {"name": ""}]), max_size=3
        ),
        ("spec", "nodeSelector"): st.none() | st.dictionaries(st.sampled_from(["zone", ""]), st.sampled_from("ab")),
        ("spec", "affinity"): st.none() | st.just(ABSENT) | st.just({}) | st.just({"nodeAffinity": None}),
        ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"): st.none()
        | st.fixed_dictionaries({}, optional={"nodeSelectorTerms": _TERMS}),
        ("spec", "tolerations"): _TOLERATIONS,
        ("spec", "priority"): st.sampled_from([0, -(2**31), 2**31 - 1]) | st.just(ABSENT),
        ("spec", "overhead"): st.none() | _AMOUNTS,
        ("spec", "resources"): st.none() | st.fixed_dictionaries({}, optional={"requests": _AMOUNTS}),
        ("status",): st.just({}) | st.just(ABSENT),
        ("status", "phase"): st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown", "", "Odd"]),
        ("status", "reason"): _WORDS,
        ("status", "message"): _WORDS,
        ("status", "conditions"): _conditions(names.SLICE_READY, "PodScheduled", "Ready", "Odd"),
    },
    "nodes": {
        ("metadata", "labels"): st.just(ABSENT) | st.dictionaries(_WORDS, _WORDS, max_size=2),
        ("metadata", "annotations"): st.dictionaries(
            st.sampled_from([names.TAINTED, names.FAULT, names.BOOT, "x"]), _NOTES, max_size=2
        ),
        ("metadata", "creationTimestamp"): _STAMPS,
        ("metadata", "deletionTimestamp"): _STAMPS,
        ("metadata", "uid"): st.just("node-again"),
        ("spec",): st.just({}) | st.just(ABSENT),
        ("spec", "unschedulable"): st.booleans(),
        ("spec", "taints"): st.none()
        | st.lists(
            st.fixed_dictionaries(
                {
                    "key": st.sampled_from([names.MANAGED, "x", ""]),
                    "effect": st.sampled_from(["NoSchedule", "Odd", ""]),
                },
                optional={"value": _WORDS},
            ),
            max_size=2,
        ),
        ("status",): st.just({}) | st.just(ABSENT),
        ("status", "allocatable"): st.just(ABSENT) | _AMOUNTS.map(lambda each: {k: str(v) for k, v in each.items()}),
        ("status", "capacity"): st.just(ABSENT) | _AMOUNTS.map(lambda each: {k: str(v) for k, v in each.items()}),
        ("status", "allocatable", "cpu"): _QUANTITIES.map(str) | st.just(ABSENT),
        ("status", "allocatable", "gpu.das.com/mig-1g.6gb"): _QUANTITIES.map(str) | st.just(ABSENT),
        ("status", "capacity", "gpu.das.com/mem"): _QUANTITIES.map(str) | st.just(ABSENT),
        ("status", "conditions"): _conditions("Ready", "Odd"),
    },
}
"""Pods and nodes: field → what may stand there instead."""


def _put(document, path, value):
    """Where the document has no such place, because a list is too short or null, it stays as it is."""
    *within, last = path
    for step, following in zip(within, path[1:], strict=True):
        if isinstance(document, dict) and isinstance(following, str) and document.get(step) is None:
            document[step] = {}
        if not isinstance(document, dict) and len(document) <= step:
            return
        document = document[step]
        if document is None:
            return
    if value is ABSENT:
        document.pop(last, None)
    else:
        document[last] = copy.deepcopy(value)


# Instaslice objects, by the schema of our definition -----------------------------------------------------------------


@cache
def _schema():
    return {
        "type": "object",
        "properties": {"spec": structural(InstasliceSpec), "status": structural(InstasliceStatus)},
        "required": [],
    }


_STRANGE = {
    "profile": [*PROFILES, "1g.5gb", "9g.99gb", "1g.6gb-xyz", "1g.6gb+me.all", "1g.0gb"],
    "gpu": ["GPU-9"],
    "uuid": ["GPU-9"],
    "model": ["A100-40GB", "unheard of"],
    "migUuid": ["MIG-x"],
    "uid": ["uid-nobody", "uid-plain", "uid-ended", "uid-waits"],
    "type": ["Ready", "Odd"],
}
"""What stands under a name beside what the valid cluster has there."""


@cache
def _seen():
    """Field name → the strings that the valid cluster has under it."""
    found = {name: list(values) for name, values in _STRANGE.items()}

    def walk(name, value):
        if isinstance(value, dict):
            for key, each in value.items():
                walk(key, each)
        elif isinstance(value, list):
            for each in value:
                walk(name, each)
        elif isinstance(value, str) and value not in found.setdefault(name, []):
            found[name].append(value)

    for thing in _VALID["instaslices"]:
        walk("", {"spec": thing["spec"], "status": thing["status"]})
    found["gpu"] = found["uuid"] = list(dict.fromkeys([*found["gpu"], *found["uuid"]]))
    found["name"] += found["profile"]
    return found


def _fits(schema, text):
    long = schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", 1 << 20)
    return long and ("pattern" not in schema or text in _STRANGE["profile"])


_made_values = {}


def _value(name, schema):
    """Any value that the schema lets through. The schema is one object for all tests, so strategies are made once."""
    if (name, id(schema)) not in _made_values:
        _made_values[name, id(schema)] = _any_value(name, schema)
    return _made_values[name, id(schema)]


def _any_value(name, schema):
    """Lists are short, so that no geometry has too many states to be listed."""
    if schema.get("nullable"):
        return st.none() | _any_value(name, {key: each for key, each in schema.items() if key != "nullable"})
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "string" if schema.get("format") == "date-time":
            return st.just(CREATED_AT)
        case "string":
            known = st.sampled_from([each for each in _seen().get(name, []) if _fits(schema, each)] or ["x"])
            if "pattern" in schema:
                return known
            return known | st.text(min_size=schema.get("minLength", 0), max_size=min(schema.get("maxLength", 8), 8))
        case "integer":
            least, most = schema.get("minimum", 0), schema.get("maximum", 2**63 - 1)
            near = [least, least + 1, least + 2, least + 3, least + 4, most - 1, most]
            return st.sampled_from([each for each in near if least <= each <= most])
        case "array":
            keys = schema.get("x-kubernetes-list-map-keys")
            by = (lambda each: tuple(each[key] for key in keys)) if keys else None
            return st.lists(_value(name, schema["items"]), max_size=2, unique_by=by)
        case "object":
            fields = {key: _value(key, each) for key, each in schema["properties"].items()}
            must = schema.get("required", ())
            return st.fixed_dictionaries(
                {key: fields[key] for key in must},
                optional={key: each for key, each in fields.items() if key not in must},
            )
    raise AssertionError(schema)


def _places(name, document, schema):
    """Every place of a document that may be changed: what holds it, where there, its name and schema, and whether it
    may be missing."""
    if document is None:
        return
    if schema["type"] == "object":
        for key, each in schema.get("properties", {}).items():
            yield document, key, key, each, key not in schema.get("required", ())
            if key in document:
                yield from _places(key, document[key], each)
    elif schema["type"] == "array":
        for index, each in enumerate(document):
            yield document, index, name, schema["items"], True
            yield from _places(name, each, schema["items"])


def _change_instaslice(draw, thing):
    places = list(_places("", thing, _schema()))
    holder, where, name, schema, optional = places[draw(st.integers(0, len(places) - 1))]
    if optional and draw(st.booleans()):
        if isinstance(holder, list):
            del holder[where]
        else:
            holder.pop(where, None)
        return
    before = copy.copy(holder)
    holder[where] = draw(_value(name, schema))
    if not _unique(thing, _schema()):
        # The API server refuses two entries of one key.
        holder.clear()
        holder.update(before) if isinstance(holder, dict) else holder.extend(before)


def _unique(document, schema):
    if document is None:
        return True
    if schema["type"] == "object":
        return all(_unique(document.get(key), each) for key, each in schema.get("properties", {}).items())
    if schema["type"] == "array":
        if keys := schema.get("x-kubernetes-list-map-keys"):
            found = [tuple(each.get(key) for key in keys) for each in document]
            if len(set(found)) < len(found):
                return False
        return all(_unique(each, schema["items"]) for each in document)
    return True


def _change(draw, kind, document):
    if kind == "instaslices":
        if draw(st.integers(0, 9)) == 0:
            document["metadata"]["generation"] = draw(st.sampled_from([0, 1, 6]))
        else:
            _change_instaslice(draw, document)
        return
    spots = _SPOTS[kind]
    path = draw(st.sampled_from(list(spots)))
    _put(document, path, draw(spots[path]))


# Strategies ---------------------------------------------------------------------------------------------------------


@st.composite
def _objects(draw, kind, most):
    document = copy.deepcopy(draw(st.sampled_from(_VALID[kind])))
    for _ in range(draw(st.integers(0, most))):
        _change(draw, kind, document)
    return _read(kind, document)


def pods(most=4):
    """One pod of the valid cluster with up to so many changes."""
    return _objects("pods", most)


def nodes(most=4):
    return _objects("nodes", most)


def instaslices(most=4):
    return _objects("instaslices", most)


@st.composite
def _documents(draw, most):
    documents = copy.deepcopy(_VALID)
    for _ in range(draw(st.integers(0, most))):
        kind = draw(st.sampled_from(Cluster._fields))
        there = documents[kind]
        new = [each for each in _STRANGERS[kind] if _key(each) not in map(_key, there)]
        match draw(st.sampled_from(["change", "change", "change", "add", "remove"])):
            case "change" if there:
                _change(draw, kind, draw(st.sampled_from(there)))
            case "add" if new:
                there.append(copy.deepcopy(draw(st.sampled_from(new))))
            case "remove" if there:
                del there[draw(st.integers(0, len(there) - 1))]
    return documents


def clusters(most=8):
    """The valid cluster with up to so many changes, of which some add a strange object or take one away."""
    return _documents(most).map(_cluster)


@st.composite
def histories(draw, most=6, changes=8):
    """A cluster of `clusters(most)`, and what happens to it then, in the order in which caches tell it."""
    documents = draw(_documents(most))
    begins = _cluster(documents)
    there = {kind: {key_of(each): each for each in getattr(begins, kind)} for kind in Cluster._fields}
    written = {kind: {_key(each): each for each in documents[kind]} for kind in Cluster._fields}
    found = []
    for number in range(draw(st.integers(0, changes))):
        kind = draw(st.sampled_from(Cluster._fields))
        valid_ones = {_key(each): each for each in (*_VALID[kind], *_STRANGERS[kind])}
        key = draw(st.sampled_from(sorted(valid_ones)))
        old = there[kind].get(key)
        if old is not None and draw(st.integers(0, 4)) == 0:
            found.append(Change(there[kind].pop(key), None))
            continue
        document = copy.deepcopy(written[kind][key] if old is not None and draw(st.booleans()) else valid_ones[key])
        if old is None and draw(st.booleans()):
            # Of the same name, and another.
            document["metadata"]["uid"] += f"-{number}"
        elif old is not None:
            document["metadata"]["uid"] = old.metadata.uid
        for _ in range(draw(st.integers(0, 3))):
            _change(draw, kind, document)
        if old is not None and kind != "nodes":
            document["metadata"]["uid"] = old.metadata.uid
        document["metadata"]["resourceVersion"] = str(100 + number)
        written[kind][key] = document
        there[kind][key] = _read(kind, document)
        found.append(Change(old, there[kind][key]))
    return begins, found


def _key(document):
    return document["metadata"].get("namespace", ""), document["metadata"]["name"]
