"""Placeholders on the real API server, and what the real kube-scheduler says of them."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest
from waiting import until

from instaslice.api import names
from instaslice.controller.autoscaling import AutoscalingHints
from instaslice.kube.cache import Cache
from instaslice.kube.client import Selector
from instaslice.kube.clock import SystemClock
from instaslice.kube.core import NODES, PODS, Node, Pod
from instaslice.kube.meta import Key
from instaslice.kube.watch import Reflector
from instaslice.local.objects import Objects

ROOM = {"cpu": "8", "memory": "16Gi", "pods": "10", "gpu.das.com/mig-1g.5gb": "7", "gpu.das.com/mem": "40"}
PATIENCE = 60.0


@pytest.fixture
async def waiting(client, namespace):
    """Makes pods that wait for a slice on nodes labelled with the test's namespace."""

    async def make(name: str, slices: int = 1, cpu: str = "1") -> Pod:
        asked = {"gpu.das.com/mig-1g.5gb": str(slices), "gpu.das.com/mem": str(5 * slices)}
        box = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu, **asked}, "limits": asked}}
        spec = {
            "schedulingGates": [{"name": names.GATE}],
            "nodeSelector": {"stage": namespace},
            "containers": [box],
        }
        return await client.create(PODS, {"metadata": {"namespace": namespace, "name": name}, "spec": spec})

    return make


@pytest.fixture
async def add_node(client, namespace):
    """Adds emulated nodes on which those pods would find room."""
    made: list[Key] = []

    async def add(name: str) -> None:
        made.append(Key("", f"{namespace}-{name}"))
        meta = {"name": made[-1].name, "labels": {"type": "kwok", "stage": namespace}}
        await client.create(NODES, {"metadata": meta})
        status = {"metadata": {"name": made[-1].name}, "status": {"capacity": ROOM, "allocatable": ROOM}}
        await client.apply(NODES, status, manager="test", force=True, subresource="status")

        def missing(cache: Cache[Node]) -> list[str]:
            return [] if any(each.ready and not each.spec.taints for each in cache) else [name]

        await Objects(client).until(
            "not ready: node", NODES, Selector(fields=f"metadata.name={made[-1].name}"), missing
        )

    yield add
    for key in made:
        await client.delete(NODES, key)


class Seen:
    """The placeholders of a namespace, and the uids of all that ever were."""

    def __init__(self, client, namespace):
        self.now: Cache[Pod] = Cache()
        self.ever: set[str] = set()
        self.bound: set[str] = set()
        self.now.on_change(self._note)
        selector = Selector(namespace=namespace, labels=names.PLACEHOLDER)
        self.reflector = Reflector(client, PODS, self.now, clock=SystemClock(), rng=random.Random(0), selector=selector)

    def _note(self, old, new):
        if new is not None:
            self.ever.add(new.metadata.uid)
            if new.spec.node_name:
                self.bound.add(new.metadata.uid)

    def unschedulable(self):
        told = [pod.condition("PodScheduled") for pod in self.now]
        return [each for each in told if each is not None and each.reason == "Unschedulable"]


@pytest.fixture
async def seen(client, namespace):
    made = Seen(client, namespace)
    watching = asyncio.create_task(made.reflector.run())
    await made.now.synced()
    yield made
    watching.cancel()


@asynccontextmanager
async def hinting(client, namespace, limit=10, patience=0.0, pause=600.0):
    made = AutoscalingHints(
        client, SystemClock(), namespace, limit, rng=random.Random(0), patience=patience, pause=pause
    )
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        ended = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended[0], asyncio.CancelledError), ended


async def test_a_placeholder_is_unschedulable_and_goes_with_its_pod(client, namespace, waiting, seen):
    async with hinting(client, namespace) as hints:
        hints.set({"a": await waiting("a")})
        await until(lambda: len(seen.unschedulable()) == 1, PATIENCE)
        placeholder = next(iter(seen.now))
        assert placeholder.spec.priority == -1
        assert placeholder.spec.node_selector == {"stage": namespace}
        assert placeholder.metadata.annotations[names.WAITING] == f"{namespace}/a"
        hints.set({})
        await until(lambda: not len(seen.now), PATIENCE)
    assert not seen.bound


async def test_one_a_shape_and_no_more_than_the_limit(client, namespace, waiting, seen):
    async with hinting(client, namespace, limit=2) as hints:
        pods = [await waiting(f"p{number}", cpu=cpu) for number, cpu in enumerate(["1", "1", "1000m", "2", "3"])]
        hints.set({pod.metadata.uid: pod for pod in pods})
        await until(lambda: len(seen.unschedulable()) == 2, PATIENCE)
        hints.set({pod.metadata.uid: pod for pod in pods[3:]})
        await until(lambda: len(seen.ever) == 3 and len(seen.now) == 2, PATIENCE)
        hints.set({})
        await until(lambda: not len(seen.now), PATIENCE)


async def test_a_new_process_finds_what_the_last_one_left(client, namespace, waiting, seen):
    pods = {"a": await waiting("a"), "b": await waiting("b", cpu="2")}
    async with hinting(client, namespace) as hints:
        hints.set(pods)
        await until(lambda: len(seen.unschedulable()) == 2, PATIENCE)
    async with hinting(client, namespace) as hints:
        hints.set({"b": pods["b"]})
        await until(lambda: len(seen.now) == 1, PATIENCE)
        assert len(seen.ever) == 2
    async with hinting(client, namespace, limit=0) as hints:
        hints.set(pods)
        await until(lambda: not len(seen.now), PATIENCE)
    assert len(seen.ever) == 2


async def test_a_placeholder_makes_room_the_moment_its_node_is_there(client, namespace, waiting, seen, add_node):
    async with hinting(client, namespace) as hints:
        hints.set({"a": await waiting("a")}, {"a": 40})
        await until(lambda: len(seen.unschedulable()) == 1, PATIENCE)
        await add_node("new")
        await until(lambda: seen.bound and not len(seen.now), PATIENCE)
        # Its pod still waits, and it does not come back before the pause is over.
        hints.set({"a": await client.get(PODS, Key(namespace, "a"))}, {"a": 40})
        other = await waiting("b", cpu="9")
        hints.set({"a": await client.get(PODS, Key(namespace, "a")), "b": other}, {"a": 40})
        await until(lambda: len(seen.unschedulable()) == 1, PATIENCE)
        assert len(seen.ever) == 2


async def test_a_node_with_a_slice_in_use_is_not_taken_for_room(client, namespace, waiting, seen, add_node):
    """The scheduler counts slices by profile and would see room for one more where no start is left for it."""
    await add_node("used")
    busy = {"gpu.das.com/mem": "5", "gpu.das.com/mig-1g.5gb": "1"}
    box = {"name": "main", "image": "none", "resources": {"requests": busy, "limits": busy}}
    spec = {"nodeName": f"{namespace}-used", "containers": [box]}
    await client.create(PODS, {"metadata": {"namespace": namespace, "name": "busy"}, "spec": spec})
    async with hinting(client, namespace) as hints:
        hints.set({"a": await waiting("a")}, {"a": 40})
        await until(lambda: len(seen.unschedulable()) == 1, PATIENCE)
        assert "Insufficient gpu.das.com/mem" in seen.unschedulable()[0].message
    assert not seen.bound


async def test_who_waits_only_a_moment_gets_none(client, namespace, waiting, seen):
    short, long = await waiting("short"), await waiting("long", cpu="2")
    async with hinting(client, namespace, patience=0.5) as hints:
        hints.set({"short": short, "long": long})
        assert not len(seen.now)
        hints.set({"long": long})
        await until(lambda: len(seen.unschedulable()) == 1, PATIENCE)
    assert len(seen.ever) == 1
