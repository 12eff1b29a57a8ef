"""What kube-scheduler counts for a pod."""

import pytest
from fitting import container, pod

from instaslice.controller.requests import amounts, effective

GI = 2**30


@pytest.mark.parametrize(
    "containers, spec, counted",
    [
        pytest.param([container()], {}, {}, id="a pod that asks for nothing is still a pod"),
        pytest.param([container(cpu="0")], {}, {}, id="zero is nothing"),
        pytest.param(
            [container("a", cpu="500m", memory="1Gi"), container("b", cpu="1", ephemeral_storage="2Gi")],
            {},
            {"cpu": 1500, "memory": GI, "ephemeral-storage": 2 * GI},
            id="containers add up",
        ),
        pytest.param(
            [container("a", cpu="333u"), container("b", cpu="333u"), container("c", cpu="333u")],
            {},
            {"cpu": 1},
            id="the sum is rounded, not its parts",
        ),
        pytest.param(
            [container(cpu="1", memory="1Gi")],
            {"initContainers": [container("i", cpu="3"), container("j", cpu="2", memory="512Mi")]},
            {"cpu": 3000, "memory": GI},
            id="of init containers the largest, resource by resource",
        ),
        pytest.param(
            [container(cpu="1")],
            {"initContainers": [container("s", sidecar=True, cpu="500m")]},
            {"cpu": 1500},
            id="a sidecar adds to the containers",
        ),
        pytest.param(
            [container(cpu="1")],
            {"initContainers": [container("s", sidecar=True, cpu="1"), container("i", cpu="4")]},
            {"cpu": 5000},
            id="an init container runs beside the sidecars before it",
        ),
        pytest.param(
            [container(cpu="1")],
            {"initContainers": [container("i", cpu="4"), container("s", sidecar=True, cpu="1")]},
            {"cpu": 4000},
            id="and not beside those after it",
        ),
        pytest.param(
            [container(cpu="1")],
            {
                "initContainers": [
                    container("s", sidecar=True, cpu="2"),
                    container("i", cpu="1"),
                    container("t", sidecar=True, cpu="2"),
                ]
            },
            {"cpu": 5000},
            id="sidecars together outweigh the init container between them",
        ),
        pytest.param(
            [container(cpu="1")],
            {"overhead": {"cpu": "250m", "memory": "120Mi"}},
            {"cpu": 1250, "memory": 120 * 2**20},
            id="overhead on top",
        ),
        pytest.param(
            [container(cpu="1")],
            {"initContainers": [container("i", cpu="4")], "overhead": {"cpu": "250m"}},
            {"cpu": 4250},
            id="overhead on top of the largest init container",
        ),
        pytest.param(
            [container("a", cpu="1", memory="1Gi"), container("b")],
            {"resources": {"requests": {"cpu": "4"}}},
            {"cpu": 4000, "memory": GI},
            id="what the pod asks for as a whole takes the place of its containers",
        ),
        pytest.param(
            [container(cpu="1")],
            {"resources": {"requests": {"cpu": "4", "ephemeral-storage": "1Gi"}}, "overhead": {"cpu": "1"}},
            {"cpu": 5000},
            id="as a whole only CPU, memory and huge pages; overhead on top of it",
        ),
        pytest.param(
            [container(cpu="1")],
            {"resources": {"requests": {"hugepages-2Mi": "4Mi"}}},
            {"cpu": 1000, "hugepages-2Mi": 4 * 2**20},
            id="huge pages as a whole",
        ),
        pytest.param(
            [container(**{"hugepages-1Gi": "2Gi", "example.com/fpga": "2", "nvidia.com/gpu": 1})],
            {},
            {"hugepages-1Gi": 2 * GI, "example.com/fpga": 2, "nvidia.com/gpu": 1},
            id="huge pages and the devices of others",
        ),
        pytest.param(
            [container(**{"cpu": "1", "gpu.das.com/mig-1g.5gb": "2", "gpu.das.com/mem": "10"})],
            {},
            {"cpu": 1000, "gpu.das.com/mig-1g.5gb": 2, "gpu.das.com/mem": 10},
            id="our slices too, as the scheduler counts them",
        ),
    ],
)
def test_what_a_pod_takes_from_its_node(containers, spec, counted):
    assert effective(pod(*containers, **spec)) == {**counted, "pods": 1}


def test_what_a_node_has():
    assert amounts({"cpu": "63500m", "memory": "512Gi", "pods": "250"}) == {
        "cpu": 63500,
        "memory": 512 * GI,
        "pods": 250,
    }
