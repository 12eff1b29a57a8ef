"""Pods and nodes for tests of any area, from the JSON that a user would write."""

import msgspec

from instaslice.kube.core import Node, Pod


def container(name="main", *, sidecar=False, **requests):
    """Requests by keyword, `_` for `-`; `sidecar` for an init container that keeps running."""
    named = {key.replace("_", "-"): value for key, value in requests.items()}
    return {"name": name, "resources": {"requests": named}, **({"restartPolicy": "Always"} if sidecar else {})}


def pod(*containers, meta=None, status=None, **spec):
    """Of these containers; `meta` and `status` as they stand in JSON, every other keyword is of the spec."""
    made = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", **(meta or {})},
        "spec": {"containers": list(containers), **spec},
        "status": status or {},
    }
    return msgspec.convert(made, Pod)


def node(name="gpu-0", *, ready=True, uid="", labels=None, allocatable=None, **spec):
    conditions = [
        {"type": "MemoryPressure", "status": "False"},
        {"type": "Ready", "status": "True" if ready else "Unknown"},
    ]
    made = {
        "metadata": {"name": name, "uid": uid, "labels": labels or {}},
        "spec": spec,
        "status": {"allocatable": allocatable or {}, "capacity": allocatable or {}, "conditions": conditions},
    }
    return msgspec.convert(made, Node)


def affinity(*terms):
    """Required node affinity: each term a list of (key, operator, *values); `metadata.name` is a field."""
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*map(_term, terms)]}}
    }


def _term(requirements):
    made = {"matchExpressions": [], "matchFields": []}
    for key, operator, *values in requirements:
        kind = "matchFields" if key == "metadata.name" else "matchExpressions"
        made[kind].append({"key": key, "operator": operator, **({"values": values} if values else {})})
    return {kind: listed for kind, listed in made.items() if listed}


def made(kind, name="", namespace="", **fields):
    """An object of any kind from the JSON that a user would write; labels, annotations and the like go to its
    metadata."""
    meta = {key: fields.pop(key) for key in ("labels", "annotations", "deletionTimestamp", "uid") if key in fields}
    owners = fields.pop("owners", ())
    meta |= {"name": name, "namespace": namespace, "ownerReferences": list(owners)}
    return msgspec.convert({"metadata": meta, **fields}, kind)


def neighbour(name="p", labels=None, namespace="n", containers=(), deleted=False, **spec):
    """A pod that others are judged by."""
    stamp = {"deletionTimestamp": "2026-11-18T12:00:00Z"} if deleted else {}
    spec = {"containers": [{"name": "main"}, *containers], **spec}
    return made(Pod, name, namespace, labels=labels or {}, uid=f"uid-{name}", spec=spec, **stamp)


def towards(kind, *terms):
    """Required `podAffinity` or `podAntiAffinity`."""
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def term(key="kubernetes.io/hostname", namespaces=None, selecting=None, **labels):
    """Pods with these labels in the same domain of the key, of namespaces that are named or selected by labels."""
    found = {"topologyKey": key, "labelSelector": {"matchLabels": labels}}
    found |= {"namespaces": namespaces} if namespaces is not None else {}
    return found | ({"namespaceSelector": selecting} if selecting is not None else {})
