"""Slices under a real kubelet and containerd, with an emulated GPU. Needs Linux and root; says so where it has none."""

import contextlib
import itertools
import json
from functools import partial

import grpc.aio
import pytest
from held import PATIENCE, SHOW, by_memory, container, phase, printed, promised, running, sample, serves, slices
from waiting import until

from instaslice.agent.kubelet import podresources_pb2 as pods
from instaslice.agent.kubelet.services import LIST_PODS
from instaslice.api import names
from instaslice.api.instaslice import INSTASLICES
from instaslice.doctor import Invariant
from instaslice.kube.core import EVENTS, NAMESPACES, NODES, PODS, PartialObjectMetadata
from instaslice.kube.errors import KubeError
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource
from instaslice.local import realnode
from instaslice.webhook import policy

STAYS = f"{SHOW}; sleep 3600"
PRIORITIES = Resource(
    PartialObjectMetadata, "PriorityClass", "priorityclasses", group="scheduling.k8s.io", namespaced=False
)


async def test_the_sample_pod_prints_the_slice_that_it_was_given(client, namespace, sliced_node):
    await client.create(PODS, sample(namespace, "sample"))
    done = await phase(client, namespace, "sample", "Succeeded", "Failed")
    told = await printed(client, namespace, "sample")
    (uuid,) = promised(done)
    assert (done.status.phase, done.spec.node_name) == ("Succeeded", realnode.NAME)
    assert told == {
        "INSTASLICE_MIG_UUIDS": uuid,
        "INSTASLICE_MIG_UUID_0": uuid,
        "INSTASLICE_MIG_PROFILE_0": "1g.5gb",
    }

    async def gone():
        return not any(realnode.cdi(sliced_node.layout).glob(f"{names.GROUP}-*"))

    await until(gone, PATIENCE, "the file of its device is removed with the slice")


async def test_a_container_gets_all_its_slices_in_order_and_an_init_container_its_own(client, namespace):
    pod = sample(namespace, "several", limits={"1g.5gb": 2, "2g.10gb": 1}, init={"1g.10gb": 1})
    await client.create(PODS, pod)
    done = await phase(client, namespace, "several", "Succeeded", "Failed")
    assert done.status.phase == "Succeeded", done.status
    first, second, large, before = promised(done)
    told = await printed(client, namespace, "several")
    assert told["INSTASLICE_MIG_UUIDS"] == f"{first},{second},{large}"
    assert [told[f"INSTASLICE_MIG_PROFILE_{n}"] for n in range(3)] == ["1g.5gb", "1g.5gb", "2g.10gb"]
    init = await printed(client, namespace, "several", container="first")
    assert init["INSTASLICE_MIG_UUIDS"] == before


async def test_each_container_gets_the_slice_that_its_pod_asked_for_by_memory(client, namespace, sliced_node):
    """Two by memory and one by a profile that one of them has too; the init container leaves its device to the first,
    which asks for less."""
    pod = sample(namespace, "memory", STAYS, limits={"1g.5gb": 1})
    first, main = by_memory("first", 8, SHOW), pod["spec"]["containers"][0]
    pod["spec"] |= {"initContainers": [first], "containers": [by_memory("a", 2), main, by_memory("b", 20)]}
    pod["spec"]["containers"].append(by_memory("c", 5))
    await client.create(PODS, pod)
    await running(client, namespace, "memory", "a", "main", "b", "c")
    found = await client.get(PODS, Key(namespace, "memory"))
    thing = await client.get(INSTASLICES, Key("", realnode.NAME))
    made = {each.id: each.mig_uuid for each in thing.status.slices}
    own = {each.container: (each.profile, made[each.id]) for each in thing.spec.allocations}
    assert {name: profile for name, (profile, _) in own.items()} == {
        "main": "1g.5gb",
        "a": "1g.10gb",
        "b": "3g.20gb",
        "c": "1g.5gb",
    }
    told = {name: await printed(client, namespace, "memory", container=name) for name in ("first", *own)}
    assert {name: env["INSTASLICE_MIG_UUIDS"] for name, env in told.items()} == {
        "first": own["a"][1],
        **{name: uuid for name, (_, uuid) in own.items()},
    }
    assert promised(found)[0] == own["main"][1]
    given = json.loads(found.metadata.annotations[names.GIVEN])
    assert given["a"] == {"asked": 8, "profile": "1g.10gb", "gb": 10}
    before = await container(client, namespace, "memory")
    sliced_node.kill(realnode.AGENT)
    sliced_node.start(realnode.AGENT)
    await serves(client)
    socket = sliced_node.layout.node / "lib/kubelet/pod-resources/kubelet.sock"
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        answer = await LIST_PODS.call(channel, pods.ListPodResourcesRequest(), timeout=10)
    (here,) = [each for each in answer.pod_resources if each.name == "memory"]
    held = {one.name: [each.resource_name for each in one.devices] for one in here.containers}
    assert {name: names.ANY_SLICE in resources for name, resources in held.items()} == {
        "a": True,
        "main": False,
        "b": True,
        "c": True,
    }
    assert await container(client, namespace, "memory") == before
    node = await client.get(NODES, Key("", realnode.NAME))
    capacity = node.status.allocatable
    assert (capacity[names.MEMORY], capacity[names.ANY_SLICE], capacity[f"{names.RESOURCE}1g.5gb"]) == ("40", "7", "7")


async def test_twenty_pods_go_through_seven_slots_and_never_share_one(client, namespace):
    timed = "read from _ < /proc/uptime; echo from=$from; sleep 1; read to _ < /proc/uptime; echo to=$to"
    for n in range(20):
        await client.create(PODS, sample(namespace, f"p{n}", f"{SHOW}; {timed}"))
    held = {}
    for n in range(20):
        done = await phase(client, namespace, f"p{n}", "Succeeded", "Failed")
        assert done.status.phase == "Succeeded", done.status
        told = await printed(client, namespace, f"p{n}")
        assert [told["INSTASLICE_MIG_UUIDS"]] == promised(done)
        held.setdefault(told["INSTASLICE_MIG_UUIDS"], []).append((float(told["from"]), float(told["to"])))
    assert len(held) <= 7
    for spans in map(sorted, held.values()):
        assert all(ended <= begun for (_, ended), (begun, _) in itertools.pairwise(spans))


async def test_pods_admitted_in_another_order_than_they_were_promised_get_their_own(client, namespace, sliced_node):
    with contextlib.suppress(KubeError):
        await client.create(PRIORITIES, {"metadata": {"name": "first"}, "value": 1000})
    sliced_node.pause("kube-scheduler")
    try:
        for n in range(3):
            await client.create(PODS, sample(namespace, f"low{n}", STAYS))
        await client.create(PODS, sample(namespace, "high", STAYS, priorityClassName="first"))

        async def ungated():
            return len(await slices(client)) == 4

        await until(ungated, PATIENCE, "four slices")
    finally:
        sliced_node.resume("kube-scheduler")
    everyone = ["high", "low0", "low1", "low2"]
    given = {name: await running(client, namespace, name) for name in everyone}
    assert len({uuid for uuids in given.values() for uuid in uuids}) == 4
    for name in everyone:
        pod = await client.get(PODS, Key(namespace, name))
        assert given[name] == promised(pod) == [(await slices(client))[pod.metadata.uid]]
    await client.delete(PODS, Key(namespace, "low1"))

    async def three():
        return len(await slices(client)) == 3

    await until(three, PATIENCE, "the slice of the pod that went")
    assert {*(await slices(client)).values()} == {given[name][0] for name in everyone if name != "low1"}


@pytest.mark.parametrize("component", [realnode.AGENT, "kubelet", "containerd"])
async def test_a_pod_keeps_its_slice_while_a_component_is_killed_and_back(client, namespace, sliced_node, component):
    await client.create(PODS, sample(namespace, "stays", STAYS))
    given = await running(client, namespace, "stays")
    before = await container(client, namespace, "stays")
    sliced_node.kill(component)
    sliced_node.start(component)
    await serves(client)
    await client.create(PODS, sample(namespace, "after"))
    after = await phase(client, namespace, "after", "Succeeded", "Failed")
    assert after.status.phase == "Succeeded", after.status
    assert promised(after) != given
    assert await container(client, namespace, "stays") == before
    assert promised(await client.get(PODS, Key(namespace, "stays"))) == given


async def test_the_object_of_the_node_says_when_no_kubelet_listens(client, sliced_node):
    async def told(reason):
        (thing,) = await client.list(INSTASLICES)
        (ready,) = [each for each in thing.status.conditions if each.type == "Ready"]
        return ready if ready.reason == reason else None

    sliced_node.kill("kubelet")
    try:
        silent = await until(partial(told, "KubeletSilent"), PATIENCE, "it says so")
        assert silent.status == "False"
        assert "device-plugins/kubelet.sock: is it running" in silent.message
    finally:
        sliced_node.start("kubelet")
    assert (await until(partial(told, "Serving"), PATIENCE, "it serves again")).status == "True"
    await serves(client)


async def test_a_node_whose_agent_is_gone_gets_no_new_pod_until_it_is_back(client, namespace, sliced_node):
    """Its report stays as it was, but the kubelet offers no slice without the device plugin."""
    sliced_node.kill(realnode.AGENT)
    try:

        async def none():
            offered = (await client.get(NODES, Key("", realnode.NAME))).status.allocatable
            return {count for name, count in offered.items() if name.startswith(names.RESOURCE)} == {"0"}

        await until(none, PATIENCE, "the kubelet offers nothing")
        await client.create(PODS, sample(namespace, "waits"))

        async def told():
            ready = (await client.get(PODS, Key(namespace, "waits"))).condition(names.SLICE_READY)
            return ready if ready and "its agent does not run: the node offers no" in ready.message else None

        assert (await until(told, PATIENCE, "why it waits")).reason == "Waiting"
        reserved = (await client.get(INSTASLICES, Key("", realnode.NAME))).spec.allocations
        assert namespace not in {each.pod.namespace for each in reserved}
    finally:
        sliced_node.start(realnode.AGENT)
    assert (await phase(client, namespace, "waits", "Succeeded", "Failed")).status.phase == "Succeeded"
    await serves(client)


async def test_a_container_that_is_started_again_keeps_its_slice_without_any_agent(client, namespace, sliced_node):
    script = f"{SHOW}; while [ ! -e /state/end ]; do touch /state/end; sleep 4; exit 1; done; sleep 3600"
    pod = sample(namespace, "again", script, restartPolicy="Always", volumes=[{"name": "state", "emptyDir": {}}])
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "state", "mountPath": "/state"}]
    await client.create(PODS, pod)
    given = await running(client, namespace, "again")
    sliced_node.kill(realnode.AGENT)
    try:

        async def restarted():
            with contextlib.suppress(KubeError, KeyError, IndexError):
                return (await container(client, namespace, "again"))[1] >= 1

        await until(restarted, PATIENCE, "the container is started again")
        assert await running(client, namespace, "again") == given
        assert (await printed(client, namespace, "again", previous=True))["INSTASLICE_MIG_UUIDS"] == given[0]
    finally:
        sliced_node.start(realnode.AGENT)
    await serves(client)


async def test_a_pod_whose_slice_the_hardware_refuses_gets_another_and_the_node_says_why(client, namespace):
    await client.merge(NODES, Key("", realnode.NAME), {"metadata": {"annotations": {names.FAULT: "0 refuse 2"}}})
    try:
        await client.create(PODS, sample(namespace, "refused"))
        assert (await phase(client, namespace, "refused", "Succeeded", "Failed")).status.phase == "Succeeded"

        async def said():
            events = await client.list(EVENTS)
            return any(
                each.regarding.kind == INSTASLICES.kind and "does not fit beside" in each.note for each in events
            )

        await until(said, PATIENCE, "an Event on the object of the node")
    finally:
        await client.merge(NODES, Key("", realnode.NAME), {"metadata": {"annotations": {names.FAULT: None}}})


async def test_a_pod_waits_for_a_gpu_that_is_not_well_is_told_so_and_runs_when_it_is(client, namespace):
    await client.merge(NODES, Key("", realnode.NAME), {"metadata": {"annotations": {names.FAULT: "0 lost Xid 79"}}})
    try:
        await client.create(PODS, sample(namespace, "waits"))

        async def told():
            ready = (await client.get(PODS, Key(namespace, "waits"))).condition(names.SLICE_READY)
            return ready if ready and ready.status == "False" and ready.message else None

        assert "closed" in (await until(told, PATIENCE, "why it waits")).message

        async def none():
            node = await client.get(NODES, Key("", realnode.NAME))
            return node.status.allocatable.get(f"{names.RESOURCE}1g.5gb") == "0"

        await until(none, PATIENCE, "the kubelet offers no slice of a GPU that is not well")
    finally:
        await client.merge(NODES, Key("", realnode.NAME), {"metadata": {"annotations": {names.FAULT: None}}})
    assert (await phase(client, namespace, "waits", "Succeeded", "Failed")).status.phase == "Succeeded"
    await serves(client)


async def test_a_pod_that_nobody_promised_a_slice_is_refused_by_its_kubelet(client, namespace, invariants):
    """Only an administrator who took our policy away can make one."""
    invariants.add(Invariant.POD_HAS_SLICES)
    await client.merge(NAMESPACES, Key("", namespace), {"metadata": {"labels": {names.OPT_OUT: names.OPTED_OUT}}})
    pod = sample(namespace, "uninvited")
    pod["spec"]["containers"][0]["resources"] = {"limits": {f"{names.RESOURCE}1g.5gb": "1"}}
    binding, _ = policy.bindings()
    await client.delete(policy.BINDINGS, Key("", binding["metadata"]["name"]))
    try:

        async def made():
            with contextlib.suppress(KubeError):
                return await client.create(PODS, pod)

        await until(made, PATIENCE, "the API server forgets the policy")
        refused = await phase(client, namespace, "uninvited", "Failed", "Running", "Succeeded")
    finally:
        await client.apply(policy.BINDINGS, binding, manager="instaslice-local", force=True)
    assert refused.status.phase == "Failed"
    assert "1 slice of 1g.5gb requested, and 0 there that no pod holds" in refused.status.message
    await client.delete(PODS, Key(namespace, "uninvited"))


def by_resource(devices):
    """The kubelet repeats a resource for each of its devices."""
    found = {}
    for each in devices:
        found.setdefault(each.resource_name, set()).update(each.device_ids)
    return found


async def test_the_kubelet_means_by_its_messages_what_we_mean(client, namespace, sliced_node):
    await client.create(PODS, sample(namespace, "known", STAYS, limits={"2g.10gb": 2}))
    await running(client, namespace, "known")
    socket = sliced_node.layout.node / "lib/kubelet/pod-resources/kubelet.sock"
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        every = await LIST_PODS.call(channel, pods.ListPodResourcesRequest(), timeout=10)
    (listed,) = [each for each in every.pod_resources if each.name == "known"]
    (main,) = listed.containers
    held = by_resource(main.devices)
    assert (listed.namespace, main.name) == (namespace, "main")
    assert len(held[f"{names.RESOURCE}2g.10gb"]) == 2
    assert len(held[names.MEMORY]) == 20
