"""A node and its device ids as time goes by: who is waited for, who is told, what is forgotten and what is written."""

import asyncio
import json

import grpc.aio
import msgspec
import pytest
from agent_bench import A100
from fake_clock import FakeClock
from test_device_ids import promise
from test_node_devices import given, made, update, update_reported
from waiting import until

from instaslice.agent.kubelet import pod_resources, registration
from instaslice.agent.kubelet.advertised_devices import AdvertisedGpu
from instaslice.agent.kubelet.cdi import Edits
from instaslice.agent.kubelet.cdi_files import RETRY_SECONDS
from instaslice.agent.kubelet.device_holders import FORGET_SECONDS, INIT_SECONDS, UNEXPECTED_SECONDS
from instaslice.agent.kubelet.device_ids import DeviceHolder
from instaslice.agent.kubelet.device_plugin import NoSlice
from instaslice.agent.kubelet.node_devices import NodeDevices
from instaslice.agent.kubelet.paths import NodePaths
from instaslice.agent.kubelet.wiring import EmulatedWiring
from instaslice.api import names
from instaslice.api.instaslice import SliceState
from instaslice.drivers import DriverError
from instaslice.drivers.executor import GpuExecutor
from instaslice.errors import InstasliceError
from instaslice.geometry import models

A, B = promise("a", 0), promise("b", 1)
DEVICE, NEXT = "1g.5gb-0", "1g.5gb-1"


class Slow:
    """Says what a container needs when it is asked in a thread, and not before it is `able`."""

    immediate = False

    def __init__(self):
        self.able, self.asked = False, 0

    def edits(self, held):
        self.asked += 1
        if not self.able:
            raise DriverError("no capability devices")
        return Edits(env={"SLOW": "yes"})


class Side:
    """A node's side without sockets: `held` is what the kubelet answers; None while it does not."""

    def __init__(self, root, monkeypatch):
        self.paths = NodePaths(root / "kubelet", root / "cdi", root / "state")
        self.paths.plugins.mkdir(parents=True)
        self.clock = FakeClock()
        self.held, self.asked, self.notes, self.offered = {}, lambda: None, [], []
        monkeypatch.setattr(pod_resources, "from_pod_resources", self._listed)
        monkeypatch.setattr(registration, "keep", self._keep)

    def devices(self, wiring=None):
        made = NodeDevices(self.paths, wiring or EmulatedWiring(), executor=GpuExecutor(), clock=self.clock)
        made._warn = self.notes.append
        return made

    def book(self):
        return json.loads(self.paths.assignments.read_text())

    def remember(self, content):
        (self.paths.plugins / "kubelet_internal_checkpoint").write_text(content)

    async def _listed(self, socket):
        answer = self.held
        self.asked()
        if answer is None:
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, None, None, details="away")
        return {each: list(holders) for each, holders in answer.items()}

    async def _keep(self, folder, plugins):
        self.offered.append({each.resource for each in plugins})
        try:
            await asyncio.Event().wait()
        finally:
            self.offered.append("stopped")


@pytest.fixture
def side(tmp_path, monkeypatch):
    return Side(tmp_path, monkeypatch)


def holder(pod, container="main"):
    return DeviceHolder(container, namespace="team", pod=pod)


def entry(uid, device, resource="gpu.das.com/mig-1g.5gb"):
    return {"PodUID": uid, "ContainerName": "init", "ResourceName": resource, "DeviceIDs": {"-1": [device]}}


async def test_an_open_device_id_that_nobody_takes_is_forgotten_after_a_minute_and_the_book_says_so(side):
    devices = side.devices()
    update(devices, A)
    devices.allocate([DEVICE])
    side.clock.advance(FORGET_SECONDS - 1)
    assert await devices._reconcile(), "its holder may still be told"
    assert side.book() == {DEVICE: None}
    side.clock.advance(1)
    assert not await devices._reconcile()
    assert side.book() == {}
    devices.allocate([DEVICE])
    side.clock.advance(1)
    assert await devices._reconcile(), "handed out again, it has a minute again"


async def test_a_device_id_that_is_open_in_the_book_of_an_earlier_process_has_its_minute_from_the_first_look(side):
    side.paths.assignments.parent.mkdir()
    side.paths.assignments.write_text(json.dumps({DEVICE: None}))
    devices = side.devices()
    assert await devices._reconcile()
    side.clock.advance(FORGET_SECONDS - 1)
    assert await devices._reconcile()
    side.clock.advance(1)
    assert not await devices._reconcile()


async def test_an_init_container_is_found_in_the_checkpoint_when_nobody_else_was_named_for_a_moment(side):
    devices = side.devices()
    update(devices, A)
    of_others = entry("uid-b", DEVICE, "example.com/other")
    side.remember(json.dumps({"Data": {"PodDeviceEntries": [of_others, entry("uid-a", DEVICE)]}}))
    devices.allocate([DEVICE])
    assert await devices._reconcile() and given(side) == {}
    side.clock.advance(INIT_SECONDS)
    assert not await devices._reconcile()
    assert given(side) == {DEVICE: "MIG-0"}
    assert side.notes == []


@pytest.mark.parametrize("content", ["", '{"Data": 1}'], ids=["empty", "of another form"])
async def test_a_checkpoint_that_cannot_be_read_is_told_of_once(side, content):
    devices = side.devices()
    update(devices, A)
    side.remember(content)
    devices.allocate([DEVICE])
    for _ in range(3):
        side.clock.advance(INIT_SECONDS)
        assert await devices._reconcile()
    (note,) = side.notes
    assert "the kubelet's checkpoint cannot be read" in note and "init containers get no slices" in note


@pytest.mark.parametrize("content", [None, '{"Data": {"PodDeviceEntries": null}}'], ids=["none", "of no pod"])
async def test_a_kubelet_that_remembers_nothing_is_no_trouble(side, content):
    devices = side.devices()
    update(devices, A)
    if content:
        side.remember(content)
    devices.allocate([DEVICE])
    side.clock.advance(INIT_SECONDS)
    assert await devices._reconcile() and side.notes == []


async def test_a_container_that_was_promised_nothing_is_told_of_once_after_a_while(side):
    devices = side.devices()
    update(devices, A)
    devices.allocate([DEVICE])
    side.held = {DEVICE: [holder("x")]}
    side.clock.advance(UNEXPECTED_SECONDS - 1)
    assert await devices._reconcile() and side.notes == []
    for _ in range(2):
        side.clock.advance(1)
        await devices._reconcile()
    (note,) = side.notes
    assert note.startswith("container main of pod team/x asks for a slice of 1g.5gb that is not reserved for it")
    devices.allocate([DEVICE])
    await devices._reconcile()
    assert len(side.notes) == 1, "another has it, and time"
    side.clock.advance(UNEXPECTED_SECONDS)
    await devices._reconcile()
    assert len(side.notes) == 2


async def test_while_the_kubelet_does_not_answer_what_was_bound_keeps_its_file(side):
    devices = side.devices()
    update(devices, A, B)
    devices.allocate([DEVICE])
    side.held = {DEVICE: [holder("a")]}
    assert not await devices._reconcile()
    (file,) = side.paths.cdi.iterdir()
    side.held = None
    again = side.devices()
    update(again, A, B)
    file.unlink()
    assert not await again._reconcile()
    assert given(side) == {DEVICE: "MIG-0"}
    again.allocate([NEXT])
    assert await again._reconcile(), "whose this one is has yet to be found"


async def test_an_answer_from_before_a_device_id_was_first_handed_out_says_nothing_of_it(side):
    devices = side.devices()
    update(devices, A, B)
    side.held, side.asked = {DEVICE: [holder("a")]}, lambda: devices.allocate([DEVICE])
    assert await devices._reconcile()
    side.held, side.asked = {DEVICE: [holder("b")]}, lambda: None
    assert not await devices._reconcile()
    assert given(side) == {DEVICE: "MIG-1"}


async def test_more_device_ids_than_slices_of_one_profile_are_refused_and_each_is_counted_for_its_own(side):
    devices = side.devices()
    update(devices, A)
    with pytest.raises(NoSlice, match=r"1 slice of 3g\.20gb requested, and 0 there"):
        devices.allocate(["3g.20gb-0"])
    with pytest.raises(NoSlice, match=r"2 slices of 1g\.5gb requested, and 1 there"):
        devices.allocate([DEVICE, NEXT])
    assert not side.paths.assignments.exists()
    assert devices.allocate([DEVICE]) == ["gpu.das.com/slice=1g.5gb-0"]


async def test_a_container_with_two_slices_reads_both_in_each_file_and_another_container_its_own(side):
    pod = A.pod
    more = msgspec.structs.replace(B, pod=pod)
    other = msgspec.structs.replace(promise("c", 2), pod=pod, container="side")
    devices = side.devices()
    update(devices, A, promise("z", 3), more, other)
    ids = [DEVICE, NEXT, "1g.5gb-2"]
    devices.allocate(ids)
    side.held = dict(zip(ids, [[holder("a")], [holder("a")], [holder("a", "side")]], strict=True))
    await devices._reconcile()
    env = {}
    for file in side.paths.cdi.iterdir():
        told = json.loads(file.read_text())
        assert told["annotations"]["gpu.das.com/pod"] == "team/a"
        env[told["devices"][0]["name"]] = set(told["devices"][0]["containerEdits"]["env"][1:])
    both = "INSTASLICE_MIG_UUIDS=MIG-0,MIG-1"
    assert env == {
        DEVICE: {both, "INSTASLICE_MIG_UUID_0=MIG-0", "INSTASLICE_MIG_PROFILE_0=1g.5gb"},
        NEXT: {both, "INSTASLICE_MIG_UUID_1=MIG-1", "INSTASLICE_MIG_PROFILE_1=1g.5gb"},
        "1g.5gb-2": {
            "INSTASLICE_MIG_UUIDS=MIG-2",
            "INSTASLICE_MIG_UUID_2=MIG-2",
            "INSTASLICE_MIG_PROFILE_2=1g.5gb",
        },
    }


@pytest.mark.parametrize(
    "lacking",
    [{"mig_uuid": None}, {"gi": None}, {"state": SliceState.CREATING}],
    ids=["no UUID", "no GPU instance", "not made yet"],
)
async def test_a_slice_that_cannot_be_used_yet_is_not_there_to_be_handed_out(side, lacking):
    devices = side.devices()
    update_reported(devices, [A], [msgspec.structs.replace(made(A)[0], **lacking)])
    with pytest.raises(NoSlice, match="0 there"):
        devices.allocate([DEVICE])


async def test_a_list_names_every_device_id_of_the_node_and_calls_as_many_unhealthy_as_the_unhealthy_gpus_could_hold(
    side,
):
    devices = side.devices()
    gpus = [AdvertisedGpu("GPU-0", A100, ""), AdvertisedGpu("GPU-1", A100, "Xid 79")]
    update(devices, gpus=gpus)
    small, memory = (devices._advertised._plugins[name] for name in ("gpu.das.com/mig-1g.5gb", names.MEMORY))
    assert list(small._devices) == [f"1g.5gb-{n}" for n in range(14)]
    assert sum(small._devices.values()) == 7
    assert list(memory._devices) == [f"mem-{n}" for n in range(80)]
    assert sum(memory._devices.values()) == 40
    assert memory._allocate(["mem-0"]) == [], "it comes with the slice"


async def test_what_is_known_already_is_no_news(side):
    devices = side.devices()
    update(devices, A)
    devices._changed.clear()
    update(devices, A)
    assert not devices._changed.is_set()
    update(devices, A, B)
    assert devices._changed.is_set()


def test_a_book_that_cannot_be_read_is_named_with_the_remedy(side):
    side.paths.assignments.parent.mkdir()
    side.paths.assignments.write_text("[]")
    with pytest.raises(InstasliceError, match=r"seats\.json does not say who holds which device id .* remove it"):
        side.devices()


@pytest.fixture
async def runs(side):
    """Starts a side that runs until the test is over."""
    tasks = []

    def start(devices):
        tasks.append(asyncio.create_task(devices.run(side.notes.append, lambda: None)))

    yield start
    for each in tasks:
        each.cancel()
        await asyncio.wait([each])


async def test_nothing_is_offered_before_it_is_known_what_there_is_and_all_again_with_other_gpus(side, runs):
    devices = side.devices()
    runs(devices)
    await asyncio.sleep(0)
    assert side.offered == []
    update(devices, A)
    await until(lambda: len(side.offered) == 1)
    a30 = models.named("A30")
    update(devices, gpus=[AdvertisedGpu("GPU-9", a30, "")])
    await until(lambda: len(side.offered) == 3)
    first, stopped, second = side.offered
    assert "gpu.das.com/mig-1g.5gb" in first and stopped == "stopped"
    assert "gpu.das.com/mig-1g.6gb" in second and "gpu.das.com/mig-1g.5gb" not in second


async def test_files_of_an_earlier_process_stay_until_it_is_known_what_there_is(side, runs):
    first = side.devices()
    update(first, A)
    first.allocate([DEVICE])
    side.held = {DEVICE: [holder("a")]}
    await first._reconcile()
    asked = []
    side.asked = lambda: asked.append(1)
    second = side.devices()
    runs(second)
    for _ in range(20):
        await asyncio.sleep(0)
    assert given(side) == {DEVICE: "MIG-0"} and not asked
    update(second, A)
    await until(lambda: asked)
    assert given(side) == {DEVICE: "MIG-0"}


async def test_a_driver_that_takes_its_time_is_asked_in_a_thread_until_it_says_what_a_container_needs(side, runs):
    wiring = Slow()
    devices = side.devices(wiring)
    runs(devices)
    update(devices, A)
    devices.allocate([DEVICE])
    side.held = {DEVICE: [holder("a")]}
    await until(lambda: side.notes)
    assert given(side) == {} and wiring.asked == 1
    assert "cannot be given to its container: no capability devices" in side.notes[0]
    wiring.able = True
    await until(lambda: side.clock.waiting)
    side.clock.advance(RETRY_SECONDS)
    await until(lambda: given(side) == {DEVICE: "MIG-0"})
    assert wiring.asked == 2
    update(devices, A, B)
    await devices._reconcile()
    assert wiring.asked == 2, "what was said is remembered"
