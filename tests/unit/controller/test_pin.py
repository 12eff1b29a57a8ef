"""The patch that lets a pod go: it only ever narrows where the pod may run."""

import pytest
from fitting import pod

from instaslice.controller import patches

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
