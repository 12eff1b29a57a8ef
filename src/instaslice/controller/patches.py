"""The patch that ungates a pod. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from instaslice.api import names
from instaslice.kube.client import JsonOp, appended, escaped
from instaslice.kube.core import NodeSelectorTerm, Pod

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def ungate(
    pod: Pod, node: str, uuids: Sequence[str], given: Mapping[str, Mapping[str, int | str]] | None = None
) -> list[JsonOp]:
    """Remove our gate, pin the pod to its node, and annotate its slices and node, and what was `given` to containers
    that ask by memory: all of it, or nothing.

    The pin is a node affinity on the node's name: exact, whatever its labels, and the scheduler looks at no other
    node. Kubernetes lets a gated pod's affinity be narrowed, so each term that is there gets the name beside it; but
    one without requirements, which no node matches, would be widened by it.
    """
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    annotations = {names.MIG_UUIDS: ",".join(uuids), names.NODE: node}
    if given:
        annotations[names.GIVEN] = msgspec.json.encode(given, order="sorted").decode()
    at = f"/spec/schedulingGates/{gates.index(names.GATE)}"
    return [
        JsonOp(op="test", path="/metadata/uid", value=pod.metadata.uid),
        JsonOp(op="test", path=f"{at}/name", value=names.GATE),
        JsonOp(op="remove", path=at),
        *_pin(pod, node),
        *_annotate(pod, annotations),
    ]


def _terms(pod: Pod) -> Sequence[NodeSelectorTerm]:
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    required = affinity and affinity.required
    return (required and required.node_selector_terms) or ()


def _pin(pod: Pod, node: str) -> Iterator[JsonOp]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = _terms(pod)
    for index, term in enumerate(terms):
        if not (term.match_expressions or term.match_fields):
            continue
        path = f"/spec/affinity/nodeAffinity/{_REQUIRED}/nodeSelectorTerms/{index}/matchFields"
        yield appended(path, term.match_fields, field)
    if terms:
        return
    value: dict[str, Any] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    path = "/spec/affinity"
    if pod.spec.affinity is None:
        yield JsonOp(op="add", path=path, value={"nodeAffinity": {_REQUIRED: value}})
    elif pod.spec.affinity.node_affinity is None:
        yield JsonOp(op="add", path=f"{path}/nodeAffinity", value={_REQUIRED: value})
    else:
        yield JsonOp(op="add", path=f"{path}/nodeAffinity/{_REQUIRED}", value=value)


def _annotate(pod: Pod, annotations: Mapping[str, str]) -> Iterator[JsonOp]:
    if not pod.metadata.annotations:
        yield JsonOp(op="add", path="/metadata/annotations", value=annotations)
        return
    for name, value in annotations.items():
        yield JsonOp(op="add", path=f"/metadata/annotations/{escaped(name)}", value=value)
