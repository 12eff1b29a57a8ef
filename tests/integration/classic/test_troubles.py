"""Hardware that refuses, GPUs that fail, nodes that go, an Instaslice object deleted by hand."""

import asyncio

from stage import PATIENCE, pod

from instaslice.api.instaslice import INSTASLICES, AllocationState, Health
from instaslice.doctor import Invariant
from instaslice.kube.client import JsonOp
from instaslice.kube.core import NODES
from instaslice.kube.meta import Key
from instaslice.local.operator import AGENT, CONTROLLER


async def test_a_create_that_the_hardware_refuses_is_tried_elsewhere(stage):
    node = await stage.node(gpus=2)
    await stage.fault(node, "0 refuse")
    tried = set()
    stage.things.on_change(lambda _, new: tried.update(each.gpu for each in stage.held("stubborn")))
    refusing, willing = (gpu.uuid for gpu in stage.thing(node).status.gpus)
    await stage.create(pod("stubborn", "7g.40gb"))
    await stage.running("stubborn")
    assert tried == {refusing, willing}


async def test_a_place_that_keeps_failing_is_set_aside_and_the_pod_is_told_until_it_is_well(stage):
    node = await stage.node(gpus=1)
    await stage.fault(node, "0 refuse")
    await stage.create(pod("unlucky", "7g.40gb"))
    words = await stage.waits("unlucky")
    assert f"out of use: 7g.40gb at 0 of GPU 0 of {node} (" in words, words
    await stage.fault(node, "")
    await stage.running("unlucky")  # tried again after a while


async def test_a_pod_whose_slice_takes_long_to_be_made_says_so(stage):
    node = await stage.node()
    await stage.fault(node, "0 hang")
    await stage.create(pod("patient"))
    said = (await stage.said("patient", "Creating")).message
    (held,) = stage.held("patient")
    assert said.startswith(f"1g.5gb at {held.start} of GPU 0 on node {node}: being created; ")
    await stage.event("patient", "Creating")
    await stage.fault(node, "")
    await stage.running("patient")
    await stage.said("patient", "SliceReady")


async def test_a_failing_gpu_takes_no_pods_explains_itself_and_comes_back(stage, invariants):
    # Slices of a lost GPU are not there, but their allocations are; Kubernetes ends the pods, not we.
    invariants.allow(Invariant.SLICE_EXISTS)
    node = await stage.node(gpus=2)
    await stage.create(pod("runs"))
    await stage.running("runs")
    (held,) = stage.held("runs")
    sick = next(gpu.index for gpu in stage.thing(node).status.gpus if gpu.uuid == held.gpu)
    await stage.fault(node, f"{sick} lost Xid 48: double bit error")
    assert "Xid 48: double bit error" in (await stage.said("runs", "GpuUnhealthy")).message
    assert "Xid 48" in await stage.event("runs", "GpuUnhealthy")
    assert stage.thing(node).status.gpus[sick].health is Health.UNHEALTHY
    await stage.create(*(pod(name, "7g.40gb") for name in ("beside", "waits")))
    beside = await stage.until("one of them", lambda: _running(stage, "beside", "waits"))
    assert stage.held(beside)[0].gpu != held.gpu
    other = ({"beside", "waits"} - {beside}).pop()
    assert f"GPU {sick} of {node} (Xid 48: double bit error)" in await stage.waits(other)
    await stage.fault(node, "")
    await stage.said("runs", "SliceReady")
    await stage.delete("runs")
    await stage.running(other)


def _running(stage, *pods):
    found = [each for each in pods if stage.pod(each) and stage.pod(each).status.phase == "Running"]
    return found[0] if found else None


async def test_pods_leave_a_node_that_is_deleted_and_those_that_had_not_started_run_elsewhere(stage, invariants):
    # The pods of the node are not gone with it: until the garbage collector comes they run on nothing.
    invariants.allow(Invariant.POD_HAS_SLICES, Invariant.SLICE_EXISTS)
    first = await stage.node(gpus=2)
    await stage.create(pod("runs", "7g.40gb"))
    await stage.running("runs")
    (held,) = stage.held("runs")
    free = next(gpu.index for gpu in stage.thing(first).status.gpus if gpu.uuid != held.gpu)
    await stage.fault(first, f"{free} hang")
    await stage.create(pod("starts", "7g.40gb"))
    await stage.allocated("starts", AllocationState.CREATING)
    second = await stage.node(gpus=1)
    await stage.client.delete(NODES, Key("", first))
    (moved,) = await stage.running("starts")
    assert moved.spec.node_name == second
    assert (await stage.said("runs", "SliceLost")).message.startswith(f"node {first} is gone: the slices there were")
    await stage.delete("runs", grace_seconds=0)
    await stage.until("the end of its object", lambda: stage.thing(first) is None)


async def test_pods_are_undisturbed_when_an_instaslice_object_is_deleted_by_hand(stage, invariants):
    # The new object is empty for a moment: that is what the story is about.
    invariants.allow(Invariant.SLICE_EXISTS, Invariant.POD_HAS_SLICES)
    node = await stage.node(gpus=2)
    await stage.create(pod("one", requests={"cpu": "1", "memory": "1Gi"}), pod("several", {"2g.10gb": 2, "3g.20gb": 1}))
    before = await stage.running("one", "several")
    await stage.until("lazy words", lambda: {each.state for each in stage.held()} == {AllocationState.UNGATED})
    held = {name: [_place(each) for each in stage.held(name)] for name in ("one", "several")}
    made = {each.mig_uuid for each in stage.thing(node).status.slices}
    for _ in range(2):
        uid = stage.thing(node).metadata.uid
        await stage.client.delete(INSTASLICES, Key("", node))
        await stage.until(
            "a new object with all that was promised",
            lambda uid=uid: (
                (thing := stage.thing(node))
                and thing.metadata.uid != uid
                and {name: [_place(each) for each in stage.held(name)] for name in held} == held
            ),
        )
    after = await stage.running("one", "several")
    assert [each.metadata.annotations for each in after] == [each.metadata.annotations for each in before]
    assert {each.mig_uuid for each in stage.thing(node).status.slices} == made
    await asyncio.gather(stage.said("one", "SliceReady"), stage.said("several", "SliceReady"))
    # Room that is held is not given away, and what is free is.
    await stage.create(pod("whole", "7g.40gb"))
    await stage.waits("whole")
    await stage.delete("one", "several")
    await stage.running("whole")


def _place(each):
    return each.container, each.profile, each.gpu, each.start, each.state, each.cpu, each.memory


async def test_a_pod_that_had_not_started_is_placed_anew_when_the_object_is_deleted_by_hand(stage, sliced):
    node = await stage.node(gpus=1, cpu="1")
    sliced.pause(AGENT)
    try:
        # All of the CPU: what was promised before must not count against it.
        await stage.create(pod("starts", requests={"cpu": "1"}))
        (first,) = await stage.allocated("starts", AllocationState.CREATING)
        await stage.client.delete(INSTASLICES, Key("", node))
    finally:
        sliced.resume(AGENT)
    await stage.running("starts")
    assert [each.id for each in stage.held("starts")] != [first.id]


async def test_a_controller_whose_spec_another_wrote_becomes_a_new_process_and_goes_on(stage, sliced):
    """What it knew may not be trusted; and an old Controller in the same process would decide on, by what it knew."""
    node = await stage.node(gpus=1)
    await stage.create(pod("before"))
    await stage.running("before")
    (held,) = await stage.allocated("before", AllocationState.UNGATED)
    program = sliced.processes.find(CONTROLLER)
    image = _image(program)
    by_hand = JsonOp(op="add", path="/spec/allocations/0/reason", value="by hand")
    await stage.client.patch(INSTASLICES, Key("", node), [by_hand])
    async with asyncio.timeout(PATIENCE):
        while _image(program) in (None, image):
            await asyncio.sleep(0.05)
    await stage.create(pod("after"))
    await stage.running("after")
    assert [_place(each) for each in stage.held("before")] == [_place(held)]
    assert sliced.processes.find(CONTROLLER) == program, "the same process to everybody else"
    assert f"instaslice {node}: its spec was changed by another process" in sliced.processes.log(CONTROLLER).read_text()


def _image(process):
    """Where the stack of a process lies, which is elsewhere in each program that it becomes; None in between."""
    maps = process.memory_maps(grouped=False)
    return next((each.addr for each in maps if each.path == "[stack]"), None)
