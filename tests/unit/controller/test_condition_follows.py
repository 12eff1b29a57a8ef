"""The condition of a waiting pod follows what it waits for: in substance, not in numbers, and at a bounded rate."""

from itertools import pairwise
from typing import NamedTuple

import msgspec
import pytest
from memory_server import Call
from test_condition_writer import Desk
from waiting import passes

from instaslice.api import names
from instaslice.api.instaslice import Health, SliceState
from instaslice.controller.condition_writer import MOST_REVISED, REVISE_PAUSE, REVISED_AGAIN_SECONDS, SHARE_OF_TIME

PATCH = Call("PATCH", "pods", "status")
SOON = 2 * REVISE_PAUSE


@pytest.fixture
async def desk():
    async with Desk().running() as made:
        yield made


async def told_first(desk, *profiles, count=1, **more):
    """Pods that wait and say why, some time ago."""
    uids = [desk.world.add_pod(*profiles, **more) for _ in range(count)]
    desk.world.settle()
    await desk.told(*uids, seconds=REVISED_AGAIN_SECONDS)
    assert all(desk.condition(uid)[1] == "Waiting" for uid in uids)
    return uids


async def revised(desk, seconds=SOON):
    desk.world.settle()
    desk.writer.revise()
    await passes(desk.clock, seconds)


def message(desk, uid):
    return desk.condition(uid)[2]


def fill(desk, profile="7g.40gb", **more):
    desk.world.add_pod(profile, **more)
    desk.world.settle()


async def test_it_waited_for_a_slot_and_now_every_node_is_cordoned(desk):
    fill(desk)
    (uid,) = await told_first(desk, "1g.5gb")
    assert "the most that one has is 0" in message(desk, uid)
    desk.world.cordon("a")
    await revised(desk)
    assert message(desk, uid) == "every node that could hold it is cordoned (a): uncordon one, or add a node"
    assert [reason for reason, _ in desk.events].count("Waiting") == 2
    desk.world.cordon("a", False)
    await revised(desk, REVISED_AGAIN_SECONDS + SOON)
    assert "the most that one has is 0" in message(desk, uid)


async def test_what_is_short_changes_from_memory_to_a_legal_start_to_cpu(desk):
    world = desk.world
    whole = world.add_pod("7g.40gb", cpu="1")
    world.settle()
    (uid,) = await told_first(desk, "4g.20gb", cpu="60")
    assert "4g.20gb needs 4 free memory slices on one GPU" in message(desk, uid)

    first = [world.add_pod("2g.10gb", cpu="1", priority=1) for _ in range(2)]
    world.end_pod(whole)
    await revised(desk, REVISED_AGAIN_SECONDS + SOON)
    assert "holds enough free memory for 4g.20gb but no legal start" in message(desk, uid)

    world.add_pod("1g.5gb", cpu="20", priority=1)
    world.settle()
    for each in first:
        world.end_pod(each)
    await revised(desk, REVISED_AGAIN_SECONDS + SOON)
    assert "(a: cpu: 60 wanted, 44 free)" in message(desk, uid)


def health(desk, *reasons):
    """The agent of node b reports its GPUs as unhealthy for these reasons; "" is healthy."""
    gpus = tuple(
        msgspec.structs.replace(gpu, health=Health.UNHEALTHY if why else Health.HEALTHY, reason=why)
        for gpu, why in zip(desk.world.instaslices["b"].status.gpus, reasons, strict=True)
    )
    desk.world.report("b", gpus=gpus)


def lose_slices(desk, name="b"):
    slices = desk.world.instaslices[name].status.slices
    lost = (msgspec.structs.replace(each, state=SliceState.FAILED, reason="slice lost") for each in slices)
    desk.world.report(name, slices=tuple(lost))


@pytest.mark.parametrize(
    "then, said",
    [
        pytest.param(("", ""), "", id="it has recovered"),
        pytest.param(("needs a reset", ""), "GPU 0 of b (needs a reset)", id="for another reason"),
        pytest.param(("", "Xid 79"), "GPU 1 of b (Xid 79)", id="another GPU"),
    ],
)
async def test_what_is_out_of_use_is_said_as_it_is_now(desk, then, said):
    desk.world.add_node("b", gpus=2)
    for _ in range(3):
        fill(desk)
    health(desk, "Xid 79", "")
    (uid,) = await told_first(desk, "1g.5gb")
    assert message(desk, uid).endswith("; out of use: GPU 0 of b (Xid 79)")
    health(desk, *then)
    await revised(desk, REVISED_AGAIN_SECONDS + SOON)
    assert message(desk, uid).partition("; out of use: ")[2] == said


async def test_a_gpu_that_has_recovered_is_not_out_of_use_though_its_slices_are_lost(desk):
    desk.world.add_node("b", gpus=2)
    for _ in range(3):
        fill(desk)
    health(desk, "Xid 79", "")
    lose_slices(desk)
    (uid,) = await told_first(desk, "1g.5gb")
    assert "Xid 79" in message(desk, uid)
    health(desk, "", "")
    await revised(desk, REVISED_AGAIN_SECONDS + SOON)
    assert "Xid 79" not in message(desk, uid)
    assert "of b (slice lost)" in message(desk, uid)


async def test_a_number_that_changes_is_not_written(desk):
    world = desk.world
    (uid,) = await told_first(desk, "1g.5gb", cpu="100")
    before = message(desk, uid)
    assert "cpu: 100 wanted, 64 free" in before
    for _ in range(5):
        world.add_pod("1g.5gb", cpu="2", priority=1)
        await revised(desk, REVISED_AGAIN_SECONDS + SOON)
    assert message(desk, uid) == before
    assert desk.server.calls.count(PATCH) == 1


async def test_thousands_that_wait_are_written_again_a_few_each_second(desk):
    fill(desk)
    uids = await told_first(desk, "1g.5gb", count=40)
    desk.world.cordon("a")
    desk.world.settle()
    desk.server.calls.clear()
    desk.writer.revise()
    for seconds in range(1, 5):
        await passes(desk.clock, REVISE_PAUSE)
        assert desk.server.calls.count(PATCH) == seconds * MOST_REVISED
    await passes(desk.clock, 20 * REVISE_PAUSE)
    assert all("cordoned" in message(desk, uid) for uid in uids)
    assert desk.server.calls.count(PATCH) == len(uids)


async def test_one_pod_is_not_written_again_and_again(desk):
    fill(desk)
    await told_first(desk, "1g.5gb")
    desk.server.calls.clear()
    for turn in range(20):
        desk.world.cordon("a", turn % 2 == 0)
        await revised(desk, REVISE_PAUSE)
    assert desk.server.calls.count(PATCH) <= 20 * REVISE_PAUSE / REVISED_AGAIN_SECONDS + 1


async def test_a_namespace_with_many_requests_does_not_keep_another_from_being_revised(desk):
    fill(desk)
    for number in range(30):
        await told_first(desk, "1g.5gb", namespace="many", cpu=f"{number + 1}m")
    (other,) = await told_first(desk, "2g.10gb", namespace="few")
    desk.world.cordon("a")
    await revised(desk, REVISE_PAUSE)
    assert "cordoned" in message(desk, other)
    await passes(desk.clock, 10 * REVISE_PAUSE)
    assert all("cordoned" in message(desk, uid) for uid in desk.world.dispatcher.state.queue)


async def test_judging_again_takes_a_small_share_of_the_time(desk, monkeypatch):
    """However many nodes there are, which it looks at one by one."""
    fill(desk)
    for number in range(10):
        await told_first(desk, "1g.5gb", cpu=f"{number + 1}m")
    judged = []

    def slow(*_):
        judged.append(desk.clock.monotonic())
        desk.clock.skip(0.5)

    monkeypatch.setattr("instaslice.controller.condition_writer.substance_of", slow)
    desk.world.cordon("a")
    await revised(desk, 90)
    assert len(judged) == 4
    assert all(later - earlier >= 0.5 / SHARE_OF_TIME for earlier, later in pairwise(judged))


async def test_beginning_rounds_costs_what_waits_and_not_more_for_more_namespaces(desk, monkeypatch):
    """In reads of a namespace, of which each request has one."""
    read = []

    class Head(NamedTuple):
        uid: str
        name: str

        @property
        def namespace(self):
            read.append(self.name)
            return self.name

    waiting = [Head(f"gone-{number}", f"team-{number}") for number in range(200)]
    monkeypatch.setattr(desk.world.dispatcher.state.queue, "heads", lambda: waiting)
    desk.writer.revise()
    await passes(desk.clock, REVISE_PAUSE)
    assert len(waiting) <= len(read) <= 2 * len(waiting)


async def test_beginning_rounds_is_part_of_the_small_share_of_the_time(desk, monkeypatch):
    """Also where something changes all the time."""
    fill(desk)
    for number in range(10):
        await told_first(desk, "1g.5gb", cpu=f"{number + 1}m")
    begun = []
    queue = desk.world.dispatcher.state.queue
    heads = queue.heads

    def slow():
        begun.append(desk.clock.monotonic())
        desk.clock.skip(0.5)
        return heads()

    desk.world.cordon("a")
    desk.world.settle()
    monkeypatch.setattr(queue, "heads", slow)
    for _ in range(90):
        desk.writer.revise()
        await passes(desk.clock, 1)
    assert len(begun) > 1
    assert all(later - earlier >= 0.5 / SHARE_OF_TIME for earlier, later in pairwise(begun))
    assert sum("cordoned" in message(desk, uid) for uid in queue) > 1, "it goes on all the same"


async def test_nothing_is_judged_again_while_nothing_changes(desk, monkeypatch):
    fill(desk)
    await told_first(desk, "1g.5gb")
    await revised(desk)
    judged = []
    monkeypatch.setattr("instaslice.controller.condition_writer.substance_of", lambda *_: judged.append(1))
    await revised(desk)
    assert judged == []
    desk.world.cordon("a")
    await revised(desk)
    assert judged == [1]


async def test_after_a_restart_what_still_holds_is_not_written_again(desk):
    world = desk.world
    fill(desk)
    (uid,) = await told_first(desk, "1g.5gb")
    async with Desk.beside(world).running() as second:
        second.server.calls.clear()
        await second.told(uid)
        await revised(second)
        assert second.server.calls.count(PATCH) == 0
        world.cordon("a")
        await revised(second)
        assert "cordoned" in message(second, uid)


async def test_after_a_restart_what_an_older_version_wrote_is_put_right(desk):
    world = desk.world
    fill(desk)
    (uid,) = await told_first(desk, "1g.5gb")
    pod = world.pods[uid]
    said = msgspec.structs.replace(pod.condition(names.SLICE_READY), message="it is raining")
    world._set(msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=[said])))
    async with Desk.beside(world).running() as second:
        await second.told(uid)
        assert message(second, uid) == "it is raining"
        await revised(second)
        assert "the most that one has is 0" in message(second, uid)


async def test_an_answer_that_is_lost_does_not_lose_the_message(desk):
    fill(desk)
    (uid,) = await told_first(desk, "1g.5gb")
    desk.world.cordon("a")
    desk.server.refuse(*PATCH[:2], 500, "status", times=2)
    await revised(desk, 5)
    assert "cordoned" in message(desk, uid)


async def test_the_time_of_the_transition_stays_while_the_status_does(desk):
    fill(desk)
    (uid,) = await told_first(desk, "1g.5gb")
    since = desk.world.pods[uid].condition(names.SLICE_READY).last_transition_time
    desk.world.cordon("a")
    await revised(desk)
    assert "cordoned" in message(desk, uid)
    assert desk.world.pods[uid].condition(names.SLICE_READY).last_transition_time == since
