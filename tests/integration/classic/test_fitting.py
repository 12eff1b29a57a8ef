"""CPU, memory, storage and pod count beside the slices, to the last unit; and which nodes let a pod in at all."""

import asyncio

import pytest
from stage import STORY, container, pod

from instaslice.api import names
from instaslice.api.instaslice import AllocationState
from instaslice.kube.core import NODES
from instaslice.kube.meta import Key

NODE = {"cpu": "4", "memory": "8Gi", "ephemeral_storage": "100Gi"}
OTHERS = {"cpu": "1", "memory": "1Gi", "ephemeral_storage": "10Gi"}
"""What an ordinary pod, none of ours, uses there."""


async def ordinary(stage, **requests):
    """A pod without slices, which runs."""
    plain = pod("ordinary", {}, requests=requests)
    await stage.create(plain)
    await stage.running("ordinary")


async def test_what_fits_exactly_is_accepted_and_one_unit_more_is_not(stage):
    node = await stage.node(gpus=1, **NODE)
    await ordinary(stage, **OTHERS)
    more = {
        "cpu": ({"cpu": "3001m"}, "cpu"),
        "memory": ({"memory": str(7 * 2**30 + 1)}, "memory"),
        "storage": ({"ephemeral_storage": str(90 * 2**30 + 1)}, "ephemeral-storage"),
    }
    await stage.create(*(pod(f"more-{name}", requests=requests) for name, (requests, _) in more.items()))
    for name, (_, short) in more.items():
        words = await stage.waits(f"more-{name}")
        assert f"{node}: {short}" in words, words
    await stage.create(pod("exact", requests={"cpu": "3", "memory": "7Gi", "ephemeral_storage": "90Gi"}))
    await stage.running("exact")
    await stage.delete("ordinary", "exact")
    await stage.running(*(f"more-{name}" for name in more))


async def test_a_promise_counts_before_the_pod_is_bound(stage, sliced):
    """Two pods that fit alone but not together, while the scheduler binds nothing."""
    await stage.node(gpus=1, cpu="4")
    sliced.pause("kube-scheduler")
    try:
        await stage.create(pod("first", requests={"cpu": "3"}))
        await stage.said("first", "SliceReady")
        await stage.create(pod("second", requests={"cpu": "1001m"}))
        assert "cpu" in await stage.waits("second")
        await stage.create(pod("third", requests={"cpu": "1"}))
        await stage.said("third", "SliceReady")
    finally:
        sliced.resume("kube-scheduler")
    await stage.running("first", "third")
    await stage.delete("first")
    await stage.running("second")


async def test_no_more_pods_than_the_node_takes(stage):
    node = await stage.node(gpus=1, pods="2")
    await ordinary(stage)
    await stage.create(pod("fits"))
    await stage.running("fits")
    await stage.create(pod("one-too-many"))
    assert f"{node}: pods" in await stage.waits("one-too-many")
    await stage.delete("ordinary")
    await stage.running("one-too-many")


async def test_init_containers_sidecars_and_overhead_count_as_kubernetes_counts_them(stage):
    """The largest of the steps: sidecar and init container 1 + 3, then sidecar and main container 1 + 2."""
    await stage.node(gpus=1, cpu="4")
    sidecar = {**container("sidecar", {}, cpu="1"), "restartPolicy": "Always"}
    init, main = container("init", {}, cpu="3"), container("main", cpu="2")
    too_much = container("init", {}, cpu="3001m")
    await stage.create(pod("refused", initContainers=[sidecar, too_much], containers=[main]))
    assert "cpu" in await stage.waits("refused")
    await stage.create(pod("taken", initContainers=[sidecar, init], containers=[main]))
    await stage.running("taken")


def affine(operator, *zones):
    need = {"key": "zone", "operator": operator, "values": list(zones)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [need]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


async def test_a_pod_goes_only_where_selector_and_affinity_send_it(stage):
    a, b = await asyncio.gather(stage.node(labels={"zone": "a"}), stage.node(labels={"zone": "b"}))
    to_d = {"nodeSelector": {STORY: stage.namespace, "zone": "d"}}
    await stage.create(
        pod("selects", nodeSelector={STORY: stage.namespace, "zone": "a"}),
        pod("affine", **affine("In", "b", "c")),
        pod("averse", **affine("NotIn", "a")),
        pod("nowhere", **to_d),
        pod("too-averse", **affine("NotIn", "a", "b")),
    )
    at = {each.metadata.name: each.spec.node_name for each in await stage.running("selects", "affine", "averse")}
    assert at == {"selects": a, "affine": b, "averse": b}
    assert "has no label zone=d" in await stage.waits("nowhere")
    assert "does not match zone not in (a, b)" in await stage.waits("too-averse")
    await stage.client.merge(NODES, Key("", a), {"metadata": {"labels": {"zone": "d"}}})
    await stage.running("nowhere", "too-averse")


TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    "obstacle, words",
    [
        pytest.param({"taints": [TAINT]}, "{node}: is tainted team=a:NoSchedule", id="tainted"),
        pytest.param({"unschedulable": True}, "every node that could hold it is cordoned ({node})", id="cordoned"),
    ],
)
async def test_a_node_that_is_tainted_or_cordoned_takes_none_until_it_is_not(stage, obstacle, words):
    node = await stage.node()
    await stage.client.merge(NODES, Key("", node), {"spec": obstacle})
    cordon = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    await stage.create(pod("tolerates", tolerations=[TAINT | {"operator": "Equal"}, cordon]), pod("does-not"))
    assert words.format(node=node) in await stage.waits("does-not")
    await stage.running("tolerates")
    await stage.client.merge(NODES, Key("", node), {"spec": dict.fromkeys(obstacle)})
    await stage.running("does-not")


async def test_a_pod_that_ends_gives_back_its_cpu_too(stage):
    await stage.node(gpus=1, cpu="2")
    await stage.create(pod("short", requests={"cpu": "2"}, run_for="1s"))
    await stage.create(pod("next", requests={"cpu": "2"}))
    await stage.phase("short", "Succeeded")
    await stage.running("next")
    assert stage.pod("short"), "it is still there to be read"


async def test_a_pod_whose_affinity_names_two_nodes_runs_with_its_slice_on_the_one_that_has_room(stage):
    """The pin of the pod stands in both terms; where it was sent is not read from there."""
    first, second = await stage.node(gpus=1), await stage.node(gpus=1)
    named = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [each]}]} for each in (first, second)
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": named}}
    await stage.create(*(pod(name, "7g.40gb", affinity={"nodeAffinity": required}) for name in ("one", "other")))
    found = await stage.running("one", "other")
    assert {each.spec.node_name for each in found} == {first, second}
    for each in found:
        assert each.metadata.annotations[names.NODE] == each.spec.node_name
        await stage.allocated(each.metadata.name, AllocationState.UNGATED)
        await stage.said(each.metadata.name, "SliceReady")
