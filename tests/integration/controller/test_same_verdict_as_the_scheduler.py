"""For every row: kube-scheduler binds the pod to its node if and only if we would."""

import asyncio
from collections.abc import Callable, Iterable

import pytest
from scheduler_rows import ALLOCATABLE, OVERHEAD, ROWS, Row, spec

from instaslice.controller.node_admission import refusal
from instaslice.controller.node_capacity import NodeCapacities
from instaslice.controller.requests import effective
from instaslice.controller.scheduling.filters import Filters
from instaslice.kube.client import Client, Selector
from instaslice.kube.core import NODES, PODS, Node, PartialObjectMetadata, Pod
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource
from instaslice.local.objects import ClusterObjects

RUNTIME_CLASSES = Resource(
    PartialObjectMetadata, "RuntimeClass", "runtimeclasses", group="node.k8s.io", namespaced=False
)
ROW = "row"
NOT_READY = "node.kubernetes.io/not-ready"


class Stage:
    """The nodes and pods of one test, by row."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    def node(self, row: int) -> str:
        return f"{self.namespace}-{row}"

    async def make_node(self, index: int, row: Row) -> None:
        name = self.node(index)
        labels = {"type": "kwok", "stage": self.namespace, ROW: str(index), **row.labels}
        await self.client.create(NODES, {"metadata": {"name": name, "labels": labels}, "spec": row.node})
        status = {"metadata": {"name": name}, "status": {"capacity": ALLOCATABLE, "allocatable": ALLOCATABLE}}
        await self.client.apply(NODES, status, manager="test", force=True, subresource="status")

    async def make_pod(self, name: str, index: int, given: dict, app: str = "", **more: str) -> None:
        # Only its own node counts; the row's own selector comes beside that.
        selector = {"stage": self.namespace, ROW: str(index), **given.get("nodeSelector", {})}
        whole = {"restartPolicy": "Never", **given, "nodeSelector": selector, **more}
        if "runtimeClassName" in whole:
            whole["runtimeClassName"] = self.namespace
        meta = {"namespace": self.namespace, "name": name, "labels": {"app": app} if app else {}}
        await self.client.create(PODS, {"metadata": meta, "spec": whole})

    async def nodes_ready(self, count: int) -> dict[str, Node]:
        found: dict[str, Node] = {}

        def missing(cache):
            found.update({each.metadata.name: each for each in cache})
            waiting = [each.metadata.name for each in cache if not each.ready or NOT_READY in _taints(each)]
            return waiting or (["some"] if len(cache) < count else [])

        await ClusterObjects(self.client).until(
            "not ready: node", NODES, Selector(labels=f"stage={self.namespace}"), missing
        )
        return found

    async def judged(self, names: Iterable[str], judged: Callable[[Pod], bool]) -> dict[str, Pod]:
        """All pods, once those named are judged."""
        wanted, found = set(names), {}

        def missing(cache):
            found.update({each.metadata.name: each for each in cache})
            return sorted(wanted - {name for name, each in found.items() if judged(each)})

        await ClusterObjects(self.client).until("not judged: pod", PODS, Selector(namespace=self.namespace), missing)
        return found


@pytest.fixture
async def stage(client, namespace):
    overhead = {"metadata": {"name": namespace}, "handler": "none", "overhead": {"podFixed": OVERHEAD}}
    await client.create(RUNTIME_CLASSES, overhead)
    yield Stage(client, namespace)
    await client.delete(RUNTIME_CLASSES, Key("", namespace))
    for node in await client.list(NODES, Selector(labels=f"stage={namespace}")):
        await client.delete(NODES, Key("", node.metadata.name))


async def test_every_row(stage):
    await _each(stage.make_node(index, row) for index, row in enumerate(ROWS))
    await stage.nodes_ready(len(ROWS))
    # Nodes reach the scheduler in the order of their changes: once it binds to this one it has seen all the others.
    await stage.make_node(len(ROWS), Row("the last", True, spec()))
    nodes = await stage.nodes_ready(len(ROWS) + 1)
    await stage.make_pod("last", len(ROWS), spec())
    await stage.judged(["last"], _bound)
    await _each(
        stage.make_pod(f"beside-{index}-{number}", index, given, row.apps, nodeName=stage.node(index))
        for index, row in enumerate(ROWS)
        for number, given in enumerate(row.beside)
    )
    await _each(stage.make_pod(f"row-{index}", index, row.pod, row.app) for index, row in enumerate(ROWS))
    pods = await stage.judged([f"row-{index}" for index in range(len(ROWS))], lambda pod: _bound(pod) or _refused(pod))

    rooms = NodeCapacities()
    for node in nodes.values():
        rooms.set_node(node)
    filters = Filters(nodes)
    for pod in pods.values():
        if pod.metadata.name.startswith("beside-"):
            rooms.charge(pod.metadata.uid, pod.spec.node_name, effective(pod))
            filters.assign(pod, pod.spec.node_name)

    scheduler, ours, expected = {}, {}, {}
    for index, row in enumerate(ROWS):
        pod, node = pods[f"row-{index}"], nodes[stage.node(index)]
        scheduler[row.sentence] = pod.spec.node_name == node.metadata.name
        fits = rooms.fits(node.metadata.name, effective(pod))
        assert fits == (rooms.short(node.metadata.name, effective(pod)) is None)
        ours[row.sentence] = fits and refusal(pod, node) is None and filters.for_pod(pod)(node.metadata.name) is None
        expected[row.sentence] = row.bound
    assert ours == scheduler
    assert scheduler == expected


async def _each(calls) -> None:
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(call)


def _taints(node: Node) -> list[str]:
    return [each.key for each in node.spec.taints or ()]


def _bound(pod: Pod) -> bool:
    return bool(pod.spec.node_name)


def _refused(pod: Pod) -> bool:
    told = pod.condition("PodScheduled")
    return told is not None and told.status == "False" and told.reason == "Unschedulable"
