"""A node and its kubelet, with both sockets of the kubelet faked: who asks first, who restarts, what is unhealthy."""

import asyncio
import json
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import grpc.aio
import msgspec
import pytest
from agent_bench import A100
from fake_clock import FakeClock
from kubelets import Kubelet, device_lists
from test_device_ids import promise
from waiting import until

from instaslice.agent import report
from instaslice.agent.kubelet import deviceplugin_pb2 as plugins
from instaslice.agent.kubelet import registration, services
from instaslice.agent.kubelet.advertised_devices import AdvertisedGpu
from instaslice.agent.kubelet.device_ids import PodSlice, SliceAddress
from instaslice.agent.kubelet.node_devices import NodeDevices
from instaslice.agent.kubelet.wiring import EmulatedWiring
from instaslice.api.instaslice import AllocationState, PreparedSlice, SliceState
from instaslice.drivers.executor import GpuExecutor
from instaslice.errors import InstasliceError

WELL = [AdvertisedGpu("GPU-0", A100, "")]


@pytest.fixture
async def kubelet(monkeypatch):
    monkeypatch.setattr(registration, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(registration, "RETRY_SECONDS", 0.02)
    # Not pytest's own folder: the path of a socket has 107 bytes at most.
    with tempfile.TemporaryDirectory() as folder:
        made = Kubelet(Path(folder))
        await made.start()
        yield made
        await made.stop()


@pytest.fixture
async def serve(kubelet):
    """Starts an agent's side and, called again, kills it and starts it anew."""
    tasks = []

    async def start(*allocations, gpus=WELL, listened=lambda: None, before=None):
        for task in tasks:
            task.cancel()
            await asyncio.wait([task])
        kubelet.registered.clear()
        devices = NodeDevices(kubelet.paths, EmulatedWiring(), executor=GpuExecutor(), clock=FakeClock())
        if before is None:
            update(devices, *allocations, gpus=gpus)
        else:
            before(devices)
        tasks.append(asyncio.create_task(devices.run(lambda _note: None, listened)))
        await until(lambda: len(kubelet.registered) == 9)
        return devices

    yield start
    for task in tasks:
        task.cancel()
        await asyncio.wait([task])


def update(devices, *allocations, gpus=WELL):
    update_reported(devices, allocations, made(*allocations), gpus)


def update_reported(devices, allocations, slices, gpus=WELL):
    devices.update(allocations, report.usable(slices), report.foreign(slices), gpus)


def made(*allocations):
    return [
        PreparedSlice(
            id=told.id,
            gpu=told.gpu,
            profile=told.profile,
            start=told.start,
            size=told.size,
            state=SliceState.CREATED,
            mig_uuid=f"MIG-{told.start}",
            gi=told.start,
            ci=0,
        )
        for told in allocations
    ]


def given(kubelet):
    """DeviceId → slice, by the files that the runtime reads."""
    found = {}
    for file in kubelet.paths.cdi.glob("*.json"):
        (device,) = json.loads(file.read_text())["devices"]
        env = dict(each.split("=", 1) for each in device["containerEdits"]["env"])
        found[device["name"]] = env["INSTASLICE_MIG_UUIDS"]
    return found


A, B = promise("a", 0), promise("b", 1)


async def test_two_pods_get_their_own_though_the_second_comes_first(kubelet, serve):
    await serve(A, B)
    assert await kubelet.admit("b", "1g.5gb-0") == ["gpu.das.com/slice=1g.5gb-0"]
    await kubelet.admit("a", "1g.5gb-1")
    await until(lambda: given(kubelet) == {"1g.5gb-0": "MIG-1", "1g.5gb-1": "MIG-0"})


async def test_a_slice_that_is_asked_for_by_memory_comes_by_an_id_of_its_own(kubelet, serve):
    asked = msgspec.structs.replace(A, asked_gb=4)
    await serve(asked, B)
    assert {"gpu.das.com/mig-any", "gpu.das.com/mem", "gpu.das.com/mig-7g.40gb"} <= kubelet.registered.keys()
    with pytest.raises(grpc.aio.AioRpcError, match=r"2 slices by memory requested, and 1 there"):
        await kubelet.admit("a", "any-0", "any-1")
    assert await kubelet.admit("a", "any-3") == ["gpu.das.com/slice=any-3"]
    await kubelet.admit("b", "1g.5gb-0")
    await until(lambda: given(kubelet) == {"any-3": "MIG-0", "1g.5gb-0": "MIG-1"})
    await serve(asked, B)  # an agent that was killed
    assert given(kubelet) == {"any-3": "MIG-0", "1g.5gb-0": "MIG-1"}


async def test_what_is_not_there_is_refused(kubelet, serve):
    await serve(A)
    with pytest.raises(grpc.aio.AioRpcError, match=r"2 slices of 1g\.5gb requested, and 1 there"):
        await kubelet.admit("a", "1g.5gb-0", "1g.5gb-1")
    assert given(kubelet) == {}


async def test_a_device_id_that_is_handed_out_again_loses_the_slice_of_its_last_holder_at_once(kubelet, serve):
    await serve(A, B)
    await kubelet.admit("a", "1g.5gb-0")
    await until(lambda: given(kubelet) == {"1g.5gb-0": "MIG-0"})
    kubelet.held.clear()  # it has ended, and nobody was told yet
    async with kubelet.channel() as channel:
        question = plugins.AllocateRequest(container_requests=[{"devices_ids": ["1g.5gb-0"]}])
        await services.ALLOCATE.call(channel, question, timeout=10)
    assert given(kubelet) == {}
    kubelet.held["1g.5gb-0"] = "b"
    await until(lambda: given(kubelet) == {"1g.5gb-0": "MIG-1"})


async def test_who_holds_a_slice_that_is_promised_no_more_is_known_as_long_as_the_kubelet_says_so(kubelet, serve):
    """The object of the node was deleted, say: the controller gives the slice back to this pod and to no other."""
    told = []
    devices = await serve(A, B, listened=lambda: told.append(1))
    await kubelet.admit("a", "1g.5gb-0")
    await until(lambda: given(kubelet) == {"1g.5gb-0": "MIG-0"})
    update(devices)
    assert [devices.holders.pod_of(foreign(each)) for each in (A, B)] == ["uid-a", ""]
    unasked = NodeDevices(kubelet.paths, EmulatedWiring(), executor=GpuExecutor(), clock=FakeClock())
    assert unasked.holders.pod_of(foreign(A)) == "", "the book alone does not say whether the pod still runs"
    devices = await serve(listened=lambda: told.append(1))
    await until(lambda: devices.holders.pod_of(foreign(A)) == "uid-a")
    assert told, "its status has to say so"
    kubelet.held.clear()
    update(devices, B)
    await until(lambda: devices.holders.pod_of(foreign(A)) == "")


def foreign(told):
    """Where the slice of a promise is, which is foreign when the promise is gone."""
    return SliceAddress(told.gpu, told.profile, told.start)


async def test_the_kubelet_has_heard_when_it_was_told_of_every_resource_and_until_it_stops_listening(kubelet, serve):
    news, streams = [], []
    devices = await serve(A, listened=lambda: news.append(devices._advertised.known_to_kubelet))
    assert (
        f"no kubelet listens to our device plugins at {kubelet.paths.plugins}/kubelet.sock" in devices.kubelet_silence
    )
    async with AsyncExitStack() as listening:
        for count, resource in enumerate(kubelet.registered, start=1):
            assert not devices._advertised.known_to_kubelet
            channel = await listening.enter_async_context(kubelet.channel(resource))
            streams.append(device_lists(channel))
            await anext(streams[-1])
            await until(lambda now=count: len(news) == now)
        assert news == [False] * 8 + [True]
        assert devices.kubelet_silence == ""
    await until(lambda: len(news) == 18)
    assert news[9:] == [False] * 9


async def test_an_answer_that_is_older_than_a_device_id_was_handed_out_again_says_nothing_of_it(kubelet, serve):
    devices = await serve(A, B)
    await kubelet.admit("a", "1g.5gb-0")
    await until(lambda: given(kubelet) == {"1g.5gb-0": "MIG-0"})
    kubelet.answers.clear()
    kubelet.asked.clear()
    devices._changed.set()
    await kubelet.asked.wait()
    await kubelet.admit("b", "1g.5gb-0")
    kubelet.answers.set()
    await until(lambda: given(kubelet) == {"1g.5gb-0": "MIG-1"})


async def test_the_end_of_a_holder_without_an_allocation_is_reported(kubelet, serve):
    reported = []
    devices = await serve(A, B, listened=lambda: reported.append(devices.holders.pod_of(foreign(A))))
    await kubelet.admit("a", "1g.5gb-0")
    await until(lambda: given(kubelet) == {"1g.5gb-0": "MIG-0"})
    update_reported(devices, (), [msgspec.structs.replace(each, state=SliceState.FOREIGN) for each in made(A, B)])
    await until(lambda: devices.holders.pod_of(foreign(A)) == "uid-a")
    reported.clear()
    kubelet.held.clear()
    devices._changed.set()
    await until(lambda: "" in reported)


async def test_a_container_is_given_the_device_id_that_it_had_once_more(kubelet, serve):
    devices = await serve(A)
    await kubelet.admit("a", "1g.5gb-0")
    await until(lambda: given(kubelet) and "1g.5gb-0" in devices.holders.held)
    await kubelet.admit("a", "1g.5gb-0")
    await until(lambda: given(kubelet) == {"1g.5gb-0": "MIG-0"})


async def test_a_file_goes_when_its_slice_is_taken_back(kubelet, serve):
    devices = await serve(A, B)
    await kubelet.admit("a", "1g.5gb-0")
    await until(lambda: given(kubelet))
    update(devices, msgspec.structs.replace(A, state=AllocationState.DELETING), B)
    assert given(kubelet) == {}


@pytest.mark.parametrize("bound", [True, False], ids=["after its holder was known", "before"])
async def test_an_agent_that_was_killed_finds_everybody_where_they_were(kubelet, serve, bound):
    await serve(A, B)
    await kubelet.admit("b", "1g.5gb-0")
    if bound:
        await until(lambda: given(kubelet))
    await serve(A, B)
    await until(lambda: given(kubelet) == {"1g.5gb-0": "MIG-1"})
    await kubelet.admit("a", "1g.5gb-4")
    await until(lambda: given(kubelet) == {"1g.5gb-0": "MIG-1", "1g.5gb-4": "MIG-0"})


async def test_a_container_can_be_started_again_while_no_allocation_names_its_slice(kubelet, serve):
    devices = await serve(A, B)
    await kubelet.admit("a", "1g.5gb-0")
    await kubelet.admit("b", "1g.5gb-1")
    both = {"1g.5gb-0": "MIG-0", "1g.5gb-1": "MIG-1"}
    await until(lambda: given(kubelet) == both)
    unnamed = [msgspec.structs.replace(each, id=each.mig_uuid, state=SliceState.FOREIGN) for each in made(A, B)]
    update_reported(devices, (), unnamed)
    assert given(kubelet) == both, "the object of the node was lost"
    devices = await serve(before=lambda fresh: update_reported(fresh, (), unnamed))
    assert given(kubelet) == both, "and the agent was killed"
    unread = [AdvertisedGpu("GPU-0", A100, "", listed=False)]
    update_reported(devices, (), (), unread)
    assert given(kubelet) == both, "and nobody knows yet what is on the GPU"
    update_reported(devices, [msgspec.structs.replace(B, state=AllocationState.DELETING)], (), unread)
    assert given(kubelet) == {"1g.5gb-0": "MIG-0"}, "but one is taken back"
    update_reported(devices, (), unnamed[:1])
    assert given(kubelet) == {"1g.5gb-0": "MIG-0"}
    again = msgspec.structs.replace(A, id="again")
    update_reported(devices, [again], made(again))
    update_reported(devices, [msgspec.structs.replace(again, state=AllocationState.DELETING)], made(again))
    assert given(kubelet) == {}, "the other was promised again, and is taken back"


async def test_the_kubelet_names_the_holder_of_a_slice_that_is_no_longer_promised(kubelet, serve):
    devices = await serve(A, B)
    await kubelet.admit("a", "1g.5gb-0")
    await until(lambda: given(kubelet))
    mine, other = (devices._slices[PodSlice.of(each)][1] for each in (A, B))
    update(devices)
    for _ in range(2):
        assert await devices.holders.in_use([mine, other]) == {mine: "container main of pod team/a"}
        devices = await serve()  # an agent that was started again finds it in its book
    kubelet.held.clear()
    assert await devices.holders.in_use([mine, other]) == {}
    await kubelet.stop()
    with pytest.raises(InstasliceError, match=r"no kubelet answers at .*/pod-resources/kubelet\.sock"):
        await devices.holders.in_use([mine])


async def test_a_kubelet_that_starts_again_is_told_of_every_plugin_again(kubelet, serve):
    await serve(A)
    await kubelet.stop()
    await kubelet.start()
    await until(lambda: len(kubelet.registered) == 9)
    await kubelet.admit("a", "1g.5gb-0")


async def test_every_listener_hears_the_full_list_and_who_is_unhealthy(kubelet, serve):
    devices = await serve(A)
    async with kubelet.channel() as channel:
        streams = [device_lists(channel) for _ in range(2)]
        for stream in streams:
            first = await anext(stream)
            assert [(each.ID, each.health) for each in first.devices] == [(f"1g.5gb-{n}", "Healthy") for n in range(7)]
        update(devices, A, gpus=[AdvertisedGpu("GPU-0", A100, "Xid 79")])
        for stream in streams:
            assert {each.health for each in (await anext(stream)).devices} == {"Unhealthy"}
