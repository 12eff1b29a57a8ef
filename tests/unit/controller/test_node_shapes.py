"""Which kinds of node a waiting pod could go to, if there were one more."""

import pytest
from fitting import affinity, container, node, pod

from instaslice.controller.node_shapes import MOST, NodeShapes

A100 = {"cpu": "64", "memory": "512Gi", "pods": "250", "gpu.das.com/mem": "80", "gpu.das.com/mig-3g.20gb": "4"}
A100["gpu.das.com/mig-any"] = "14"
H100 = {"cpu": "96", "memory": "1Ti", "pods": "250", "gpu.das.com/mem": "160", "gpu.das.com/mig-3g.40gb": "4"}
H100["gpu.das.com/mig-any"] = "14"
MANAGED = {"key": "gpu.das.com/managed", "effect": "NoSchedule"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


@pytest.fixture
def shapes():
    made = NodeShapes()
    labels = {"kubernetes.io/hostname": "gpu-0", "gpu": "a100"}
    made.learn(node("gpu-0", labels=labels, allocatable=A100, taints=[MANAGED]))
    made.learn(node("gpu-1", labels={"gpu": "h100"}, allocatable=H100, ready=False, taints=[MANAGED, NOT_READY]))
    made.learn(node("cpu-0", labels={"gpu": "none"}, allocatable={"cpu": "256", "memory": "2Ti", "pods": "250"}))
    return made


def asking(profile="mig-3g.20gb", slices=1, gb=20, **more):
    wanted = {f"gpu.das.com/{profile}": str(slices), "gpu.das.com/mem": str(gb * slices)}
    tolerations = [{"key": "gpu.das.com/managed", "operator": "Exists"}]
    return pod(container(cpu=more.pop("cpu", "1"), **wanted), tolerations=more.pop("tolerations", tolerations), **more)


def by_memory(gb):
    wanted = {"gpu.das.com/mig-any": "1", "gpu.das.com/mem": str(gb)}
    asked = {"name": "main", "resources": {"limits": wanted, "requests": wanted}}
    return pod(asked, tolerations=[{"key": "gpu.das.com/managed", "operator": "Exists"}])


@pytest.mark.parametrize(
    "waiting, memory",
    [
        pytest.param(by_memory(15), 80, id="a slice of the kind is large enough"),
        pytest.param(by_memory(35), 160, id="one of another kind is"),
        pytest.param(by_memory(45), None, id="no slice is, whatever the memory of all of them together"),
        pytest.param(asking(), 80, id="a kind that fits"),
        pytest.param(asking("mig-3g.40gb", gb=40), 160, id="another kind, unready though its node is"),
        pytest.param(asking(slices=4), 80, id="a whole node"),
        pytest.param(asking(slices=5), None, id="more than any node has"),
        pytest.param(asking("mig-1g.5gb", gb=5), None, id="a profile that no kind has"),
        pytest.param(asking(cpu="65"), None, id="more CPU than its kind has"),
        pytest.param(asking(nodeSelector={"gpu": "a100"}), 80, id="its selector admits the kind"),
        pytest.param(asking(nodeSelector={"gpu": "h100"}), None, id="its selector does not"),
        pytest.param(asking(affinity=affinity([("gpu", "NotIn", "a100")])), None, id="nor its affinity"),
        pytest.param(asking(tolerations=[]), None, id="a taint that every node of the kind has"),
        pytest.param(
            asking(nodeSelector={"kubernetes.io/hostname": "gpu-0"}), None, id="one node by name is no kind of node"
        ),
    ],
)
def test_the_smallest_kind_that_holds_a_pod(shapes, waiting, memory):
    assert shapes.memory_for(waiting) == memory


def test_the_smaller_of_two_kinds(shapes):
    shapes.learn(node("big", allocatable={**A100, "gpu.das.com/mem": "320", "gpu.das.com/mig-3g.20gb": "16"}))
    assert shapes.memory_for(asking()) == 80
    assert shapes.memory_for(asking(slices=5)) == 320


def test_nodes_of_one_kind_are_remembered_once_and_kinds_are_bounded():
    made = NodeShapes()
    made.learn(node("first", labels={"n": "first"}, allocatable=A100))
    for number in range(2 * MOST):
        labels = {"kubernetes.io/hostname": f"gpu-{number}"}
        made.learn(node(f"gpu-{number}", labels=labels, allocatable={**A100, "memory": f"{512 * 2**20 + number}Ki"}))
    assert made.memory_for(asking(nodeSelector={"n": "first"})) == 80
    for number in range(MOST):
        made.learn(node(f"gpu-{number}", labels={"n": str(number)}, allocatable=A100))
    assert made.memory_for(asking(nodeSelector={"n": "first"})) is None
    assert made.memory_for(asking(nodeSelector={"n": "7"})) == 80
