"""The patch that lets a pod go: it only ever narrows where the pod may run."""

import msgspec
import pytest
from fitting import pod

from instaslice.api import names, pods
from instaslice.controller import patches
from instaslice.kube.meta import ObjectMeta

HERE = {"key": "metadata.name", "operator": "In", "values": ["gpu-0"]}
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
TERMS = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"


@pytest.mark.parametrize(
    "terms, added",
    [
        pytest.param([{"matchExpressions": [ZONE]}], {f"{TERMS}/0/matchFields": [HERE]}, id="labels"),
        pytest.param([{"matchFields": [HERE]}], {f"{TERMS}/0/matchFields/-": HERE}, id="a name, as of a DaemonSet"),
        pytest.param(
            [{"matchExpressions": [ZONE]}, {"matchExpressions": [ZONE]}],
            {f"{TERMS}/0/matchFields": [HERE], f"{TERMS}/1/matchFields": [HERE]},
            id="every term",
        ),
        pytest.param(
            [{}, {"matchExpressions": [ZONE]}],
            {f"{TERMS}/1/matchFields": [HERE]},
            id="not one that is empty: it matches no node, and the API server keeps it so",
        ),
    ],
)
def test_each_term_of_the_affinity_gets_the_name_of_the_node(terms, added):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    made = pod(schedulingGates=[{"name": "gpu.das.com/slice"}], affinity={"nodeAffinity": required})
    ops = patches.ungate(made, "gpu-0", ["MIG-1"])
    assert {op.path: op.value for op in ops if op.path.startswith("/spec/affinity")} == added


def test_the_pod_says_where_it_was_sent_and_which_slices_it_got():
    ops = patches.ungate(pod(schedulingGates=[{"name": names.GATE}]), "gpu-0", ["MIG-1", "MIG-2"])
    wrote = [op.value for op in ops if op.path.startswith("/metadata/annotations")]
    assert wrote == [{names.MIG_UUIDS: "MIG-1,MIG-2", names.NODE: "gpu-0"}]


def test_annotations_that_are_there_stay():
    noted = msgspec.structs.replace(
        pod(schedulingGates=[{"name": names.GATE}]), metadata=ObjectMeta(name="x", annotations={"a": "b"})
    )
    ops = patches.ungate(noted, "gpu-0", ["MIG-1"])
    wrote = {op.path: op.value for op in ops if op.path.startswith("/metadata/annotations")}
    assert wrote == {
        "/metadata/annotations/gpu.das.com~1mig-uuids": "MIG-1",
        "/metadata/annotations/gpu.das.com~1node": "gpu-0",
    }


@pytest.mark.parametrize(
    "bound, annotation, node",
    [
        pytest.param("gpu-1", "gpu-0", "gpu-1", id="where it runs, whatever else is written"),
        pytest.param("", "gpu-0", "gpu-0", id="where it was sent"),
        pytest.param("", None, "", id="nothing says it"),
    ],
)
def test_where_a_pod_was_sent_is_not_read_from_its_affinity(bound, annotation, node):
    field = {"key": "metadata.name", "operator": "In", "values": ["gpu-2"]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    made = pod(nodeName=bound, affinity={"nodeAffinity": required})
    meta = ObjectMeta(name="x", annotations={names.NODE: annotation} if annotation else {})
    assert pods.pinned_node(msgspec.structs.replace(made, metadata=meta)) == node
