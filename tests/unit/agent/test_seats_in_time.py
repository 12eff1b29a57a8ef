"""A node and its seats as time goes by: who is waited for, who is told, what is forgotten and what is written."""

import asyncio
import json

import grpc.aio
import msgspec
import pytest
from agent_bench import A100
from fake_clock import FakeClock
from test_seating import given, made, settle
from test_seats import promise
from waiting import until

from instaslice.agent.kubelet import node_devices
from instaslice.agent.kubelet.cdi import Edits
from instaslice.agent.kubelet.device_ids import Holder
from instaslice.agent.kubelet.node_devices import (
    INIT_SECONDS,
    LATER,
    NOBODYS_SECONDS,
    UNPROMISED_SECONDS,
    AdvertisedGpu,
    NodeDevices,
)
from instaslice.agent.kubelet.paths import NodePaths
from instaslice.agent.kubelet.wiring import EmulatedWiring
from instaslice.api import names
from instaslice.api.instaslice import SliceState
from instaslice.drivers import DriverError
from instaslice.drivers.executor import GpuExecutor
from instaslice.errors import InstasliceError
from instaslice.geometry import models

A, B = promise("a", 0), promise("b", 1)
SEAT, NEXT = "1g.5gb-0", "1g.5gb-1"


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
        self.places = NodePaths(root / "kubelet", root / "cdi", root / "state")
        self.places.plugins.mkdir(parents=True)
        self.clock = FakeClock()
        self.held, self.asked, self.notes, self.offered = {}, lambda: None, [], []
        monkeypatch.setattr(node_devices.pod_resources, "from_pod_resources", self._listed)
        monkeypatch.setattr(node_devices.registration, "keep", self._keep)

    def seating(self, wiring=None):
        made = NodeDevices(self.places, wiring or EmulatedWiring(), executor=GpuExecutor(), clock=self.clock)
        made._warn = self.notes.append
        return made

    def book(self):
        return json.loads(self.places.book.read_text())

    def remember(self, content):
        (self.places.plugins / "kubelet_internal_checkpoint").write_text(content)

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
    return Holder(container, namespace="team", pod=pod)


def entry(uid, seat, resource="gpu.das.com/mig-1g.5gb"):
    return {"PodUID": uid, "ContainerName": "init", "ResourceName": resource, "DeviceIDs": {"-1": [seat]}}


async def test_an_open_seat_that_nobody_takes_is_forgotten_after_a_minute_and_the_book_says_so(side):
    seating = side.seating()
    settle(seating, A)
    seating.allocate([SEAT])
    side.clock.advance(NOBODYS_SECONDS - 1)
    assert await seating._look(), "its holder may still be told"
    assert side.book() == {SEAT: None}
    side.clock.advance(1)
    assert not await seating._look()
    assert side.book() == {}
    seating.allocate([SEAT])
    side.clock.advance(1)
    assert await seating._look(), "handed out again, it has a minute again"


async def test_a_seat_that_is_open_in_the_book_of_an_earlier_process_has_its_minute_from_the_first_look(side):
    side.places.book.parent.mkdir()
    side.places.book.write_text(json.dumps({SEAT: None}))
    seating = side.seating()
    assert await seating._look()
    side.clock.advance(NOBODYS_SECONDS - 1)
    assert await seating._look()
    side.clock.advance(1)
    assert not await seating._look()


async def test_an_init_container_is_found_in_the_checkpoint_when_nobody_else_was_named_for_a_moment(side):
    seating = side.seating()
    settle(seating, A)
    of_others = entry("uid-b", SEAT, "example.com/other")
    side.remember(json.dumps({"Data": {"PodDeviceEntries": [of_others, entry("uid-a", SEAT)]}}))
    seating.allocate([SEAT])
    assert await seating._look() and given(side) == {}
    side.clock.advance(INIT_SECONDS)
    assert not await seating._look()
    assert given(side) == {SEAT: "MIG-0"}
    assert side.notes == []


@pytest.mark.parametrize("content", ["", '{"Data": 1}'], ids=["empty", "of another form"])
async def test_a_checkpoint_that_cannot_be_read_is_told_of_once(side, content):
    seating = side.seating()
    settle(seating, A)
    side.remember(content)
    seating.allocate([SEAT])
    for _ in range(3):
        side.clock.advance(INIT_SECONDS)
        assert await seating._look()
    (note,) = side.notes
    assert "the kubelet's checkpoint cannot be read" in note and "init containers get no slices" in note


@pytest.mark.parametrize("content", [None, '{"Data": {"PodDeviceEntries": null}}'], ids=["none", "of no pod"])
async def test_a_kubelet_that_remembers_nothing_is_no_trouble(side, content):
    seating = side.seating()
    settle(seating, A)
    if content:
        side.remember(content)
    seating.allocate([SEAT])
    side.clock.advance(INIT_SECONDS)
    assert await seating._look() and side.notes == []


async def test_a_container_that_was_promised_nothing_is_told_of_once_after_a_while(side):
    seating = side.seating()
    settle(seating, A)
    seating.allocate([SEAT])
    side.held = {SEAT: [holder("x")]}
    side.clock.advance(UNPROMISED_SECONDS - 1)
    assert await seating._look() and side.notes == []
    for _ in range(2):
        side.clock.advance(1)
        await seating._look()
    (note,) = side.notes
    assert note.startswith("container main of pod team/x asks for a slice 1g.5gb that it was not promised")
    seating.allocate([SEAT])
    await seating._look()
    assert len(side.notes) == 1, "another has it, and time"
    side.clock.advance(UNPROMISED_SECONDS)
    await seating._look()
    assert len(side.notes) == 2


async def test_while_the_kubelet_does_not_answer_what_was_bound_keeps_its_file(side):
    seating = side.seating()
    settle(seating, A, B)
    seating.allocate([SEAT])
    side.held = {SEAT: [holder("a")]}
    assert not await seating._look()
    (file,) = side.places.cdi.iterdir()
    side.held = None
    again = side.seating()
    settle(again, A, B)
    file.unlink()
    assert not await again._look()
    assert given(side) == {SEAT: "MIG-0"}
    again.allocate([NEXT])
    assert await again._look(), "whose this one is has yet to be found"


async def test_an_answer_from_before_a_seat_was_first_handed_out_says_nothing_of_it(side):
    seating = side.seating()
    settle(seating, A, B)
    side.held, side.asked = {SEAT: [holder("a")]}, lambda: seating.allocate([SEAT])
    assert await seating._look()
    side.held, side.asked = {SEAT: [holder("b")]}, lambda: None
    assert not await seating._look()
    assert given(side) == {SEAT: "MIG-1"}


async def test_more_seats_than_slices_of_one_profile_are_refused_and_each_is_counted_for_its_own(side):
    seating = side.seating()
    settle(seating, A)
    with pytest.raises(node_devices.NoSlice, match=r"1 slice 3g\.20gb asked for and 0 there"):
        seating.allocate(["3g.20gb-0"])
    with pytest.raises(node_devices.NoSlice, match=r"2 slices 1g\.5gb asked for and 1 there"):
        seating.allocate([SEAT, NEXT])
    assert not side.places.book.exists()
    assert seating.allocate([SEAT]) == ["gpu.das.com/slice=1g.5gb-0"]


async def test_a_container_with_two_slices_reads_both_in_each_file_and_another_container_its_own(side):
    pod = A.pod
    more = msgspec.structs.replace(B, pod=pod)
    other = msgspec.structs.replace(promise("c", 2), pod=pod, container="side")
    seating = side.seating()
    settle(seating, A, promise("z", 3), more, other)
    seats = [SEAT, NEXT, "1g.5gb-2"]
    seating.allocate(seats)
    side.held = dict(zip(seats, [[holder("a")], [holder("a")], [holder("a", "side")]], strict=True))
    await seating._look()
    env = {}
    for file in side.places.cdi.iterdir():
        told = json.loads(file.read_text())
        assert told["annotations"]["gpu.das.com/pod"] == "team/a"
        env[told["devices"][0]["name"]] = set(told["devices"][0]["containerEdits"]["env"][1:])
    both = "INSTASLICE_MIG_UUIDS=MIG-0,MIG-1"
    assert env == {
        SEAT: {both, "INSTASLICE_MIG_UUID_0=MIG-0", "INSTASLICE_MIG_PROFILE_0=1g.5gb"},
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
    seating = side.seating()
    seating.settle([A], [msgspec.structs.replace(made(A)[0], **lacking)], [AdvertisedGpu("GPU-0", A100, "")])
    with pytest.raises(node_devices.NoSlice, match="0 there"):
        seating.allocate([SEAT])


async def test_a_list_names_every_seat_of_the_node_and_calls_as_many_ill_as_the_ill_gpus_could_hold(side):
    seating = side.seating()
    gpus = [AdvertisedGpu("GPU-0", A100, ""), AdvertisedGpu("GPU-1", A100, "Xid 79")]
    settle(seating, gpus=gpus)
    small, memory = (seating._plugins[name] for name in ("gpu.das.com/mig-1g.5gb", names.MEMORY))
    assert list(small._devices) == [f"1g.5gb-{n}" for n in range(14)]
    assert sum(small._devices.values()) == 7
    assert list(memory._devices) == [f"mem-{n}" for n in range(80)]
    assert sum(memory._devices.values()) == 40
    assert memory._allocate(["mem-0"]) == [], "it comes with the slice"


async def test_what_is_known_already_is_no_news(side):
    seating = side.seating()
    settle(seating, A)
    seating._news.clear()
    settle(seating, A)
    assert not seating._news.is_set()
    settle(seating, A, B)
    assert seating._news.is_set()


def test_a_book_that_cannot_be_read_is_named_with_the_remedy(side):
    side.places.book.parent.mkdir()
    side.places.book.write_text("[]")
    with pytest.raises(InstasliceError, match=r"seats\.json is no book of seats .* remove it"):
        side.seating()


@pytest.fixture
async def runs(side):
    """Starts a side that runs until the test is over."""
    tasks = []

    def start(seating):
        tasks.append(asyncio.create_task(seating.run(side.notes.append, lambda: None)))

    yield start
    for each in tasks:
        each.cancel()
        await asyncio.wait([each])


async def test_nothing_is_offered_before_it_is_known_what_there_is_and_all_anew_with_other_gpus(side, runs):
    seating = side.seating()
    runs(seating)
    await asyncio.sleep(0)
    assert side.offered == []
    settle(seating, A)
    await until(lambda: len(side.offered) == 1)
    a30 = models.named("A30")
    settle(seating, gpus=[AdvertisedGpu("GPU-9", a30, "")])
    await until(lambda: len(side.offered) == 3)
    first, stopped, second = side.offered
    assert "gpu.das.com/mig-1g.5gb" in first and stopped == "stopped"
    assert "gpu.das.com/mig-1g.6gb" in second and "gpu.das.com/mig-1g.5gb" not in second


async def test_a_driver_that_takes_its_time_is_asked_in_a_thread_until_it_says_what_a_container_needs(side, runs):
    wiring = Slow()
    seating = side.seating(wiring)
    runs(seating)
    settle(seating, A)
    seating.allocate([SEAT])
    side.held = {SEAT: [holder("a")]}
    await until(lambda: side.notes)
    assert given(side) == {} and wiring.asked == 1
    assert "cannot be given to its container: no capability devices" in side.notes[0]
    wiring.able = True
    await until(lambda: side.clock.waiting)
    side.clock.advance(LATER)
    await until(lambda: given(side) == {SEAT: "MIG-0"})
    assert wiring.asked == 2
    settle(seating, A, B)
    await seating._look()
    assert wiring.asked == 2, "what was said is remembered"
