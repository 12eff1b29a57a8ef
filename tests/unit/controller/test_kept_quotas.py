"""The companion of a quota on NVIDIA's names: what it says, and when it is written again."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

import msgspec
import pytest
from fake_clock import FakeClock
from memory_server import Call, MemoryServer
from waiting import passes, settled

from instaslice.controller.kept_quotas import LONGEST, KeptQuotas, companion_key, is_companion, remaining
from instaslice.kube.meta import Key
from instaslice.kube.quotas import RESOURCE_QUOTAS, ResourceQuota

FIVE, OURS = "requests.nvidia.com/mig-1g.5gb", "requests.gpu.das.com/mig-1g.5gb"

SPELLED = "requests.nvidia.com/mig-1g.05gb"


def quota(hard, used=None, name="gpus", uid="", **more):
    made = {"metadata": {"namespace": "team", "name": name, "uid": uid}, "spec": {"hard": hard, **more}}
    return msgspec.convert(made | {"status": {"used": used or {}}}, ResourceQuota)


@pytest.mark.parametrize(
    "hard, used, expected",
    [
        pytest.param({FIVE: "2"}, {}, {OURS: "2"}, id="as many as the quota allows"),
        pytest.param({FIVE: "1k"}, {}, {OURS: "1000"}, id="in other words"),
        pytest.param({FIVE: "4"}, {FIVE: "1"}, {OURS: "3"}, id="less the pods that it counts itself"),
        pytest.param({FIVE: "1"}, {FIVE: "3"}, {OURS: "0"}, id="never less than none"),
        pytest.param({FIVE: "1500m"}, {}, {OURS: "1"}, id="whole slices, rounded down"),
        pytest.param({FIVE: "2500m"}, {FIVE: "1"}, {OURS: "1"}, id="rounded down after the subtraction"),
        pytest.param({FIVE: "1", SPELLED: "3"}, {}, {OURS: "1"}, id="the smaller of two spellings"),
        pytest.param({FIVE: "3", SPELLED: "1"}, {}, {OURS: "1"}, id="the smaller of two spellings, whichever it is"),
        pytest.param({f"{FIVE}.me": "1"}, {}, {f"{OURS}.me": "1"}, id="with media engines"),
        pytest.param({"requests.cpu": "9", "pods": "3", OURS: "1"}, {}, {}, id="nothing that counts anyway"),
        pytest.param({"requests.nvidia.com/gpu": "1"}, {}, {}, id="no whole GPUs"),
        pytest.param({"requests.nvidia.com/mig-1g.5gb.shared": "1"}, {}, {}, id="nothing that the webhook refuses"),
    ],
)
def test_what_a_companion_allows(hard, used, expected):
    assert remaining(quota(hard, used)) == expected


@pytest.mark.parametrize("name", ["gpus", "g" * 242, "g" * 243, "g" * 253, "a." * 126 + "a"])
def test_the_name_of_a_companion_is_legal_and_its_own(name):
    other = companion_key(Key("team", name[:-1] + "b"))
    made = companion_key(Key("team", name))
    assert made != other
    assert len(made.name) <= LONGEST and ".." not in made.name
    assert made.name.endswith("-instaslice") and not made.name.endswith(".-instaslice")


@pytest.fixture
def server():
    return MemoryServer()


@asynccontextmanager
async def keeping(server):
    clock = FakeClock()
    task = asyncio.create_task(KeptQuotas(server.client(), clock, Random(0), wanted=True).run())
    await passes(clock, 1)

    async def step():
        await passes(clock, 1)
        await settled()

    yield step
    assert not task.done(), task
    task.cancel()
    await asyncio.wait([task])


def companions(server):
    return [each for each in server.all(RESOURCE_QUOTAS) if is_companion(each)]


async def test_a_companion_follows_its_quota_and_goes_with_it(server):
    server.put(RESOURCE_QUOTAS, quota({FIVE: "4", "pods": "9"}, {FIVE: "1"}, scopes=["NotTerminating"]))
    async with keeping(server) as step:
        (made,) = companions(server)
        assert (made.metadata.namespace, made.metadata.name) == ("team", "gpus-instaslice")
        (original,) = (each for each in server.all(RESOURCE_QUOTAS) if not is_companion(each))
        assert [each.uid for each in made.metadata.owner_references] == [original.metadata.uid]
        assert (made.spec.hard, made.spec.scopes) == ({OURS: "3"}, ["NotTerminating"])
        server.put(RESOURCE_QUOTAS, quota({FIVE: "2"}, scopes=["NotTerminating"], uid=original.metadata.uid))
        await step()
        assert companions(server)[0].spec.hard == {OURS: "2"}
        server.drop(RESOURCE_QUOTAS, original)
        await step()
        assert not companions(server)


async def test_the_companion_of_a_long_name_stays(server):
    server.put(RESOURCE_QUOTAS, quota({FIVE: "4"}, name="g" * LONGEST))
    async with keeping(server) as step:
        assert companions(server)
        server.calls.clear()
        await step()
        assert {call.method for call in server.calls} <= {"GET"}


async def test_a_companion_that_was_changed_or_removed_is_restored(server):
    server.put(RESOURCE_QUOTAS, quota({FIVE: "2"}))
    async with keeping(server) as step:
        (made,) = companions(server)
        server.put(RESOURCE_QUOTAS, msgspec.structs.replace(made, spec=type(made.spec)(hard={OURS: "9"})))
        await step()
        assert companions(server)[0].spec.hard == {OURS: "2"}
        server.drop(RESOURCE_QUOTAS, made)
        await step()
        assert companions(server)[0].spec.hard == {OURS: "2"}


@pytest.mark.parametrize("name", ["gpus", "g" * 253])
async def test_a_companion_without_its_label_gets_it_back_and_follows_its_quota(server, name):
    original = server.put(RESOURCE_QUOTAS, quota({FIVE: "4"}, name=name))
    async with keeping(server) as step:
        (made,) = companions(server)
        meta = msgspec.structs.replace(made.metadata, labels={})
        server.put(RESOURCE_QUOTAS, msgspec.structs.replace(made, metadata=meta))
        await step()
        assert companions(server)
    server.put(RESOURCE_QUOTAS, msgspec.structs.replace(companions(server)[0], metadata=meta))
    server.put(RESOURCE_QUOTAS, quota({FIVE: "2"}, name=name, uid=original.metadata.uid))
    async with keeping(server):
        assert [each.spec.hard for each in companions(server)] == [{OURS: "2"}]


async def test_a_companion_that_says_so_already_is_not_written_again(server):
    server.put(RESOURCE_QUOTAS, quota({FIVE: "2"}))
    async with keeping(server):
        assert companions(server)
    server.calls.clear()
    async with keeping(server) as step:
        await step()
    assert Call("PATCH", "resourcequotas") not in server.calls


async def test_a_quota_of_that_name_that_is_not_ours_stays(server, caplog):
    server.put(RESOURCE_QUOTAS, quota({FIVE: "2"}))
    theirs = server.put(RESOURCE_QUOTAS, quota({"pods": "1"}, name="gpus-instaslice"))
    async with keeping(server) as step:
        assert not companions(server)
        assert "resourcequota team/gpus-instaslice is not ours: nothing is kept of team/gpus" in caplog.text
        server.drop(RESOURCE_QUOTAS, theirs)
        await step()
        assert companions(server)


async def test_a_quota_that_was_created_again_gets_a_companion_of_its_own(server):
    server.put(RESOURCE_QUOTAS, quota({FIVE: "2"}))
    async with keeping(server):
        (old,) = companions(server)
    server.drop(RESOURCE_QUOTAS, quota({}))
    new = server.put(RESOURCE_QUOTAS, quota({FIVE: "2"}, scopes=["Terminating"]))
    async with keeping(server) as step:
        await step()
        (made,) = companions(server)
        assert made.metadata.uid != old.metadata.uid
        assert made.metadata.owner_references[0].uid == new.metadata.uid
        assert made.spec.scopes == ["Terminating"]


async def test_without_the_flag_nothing_is_asked():
    server = MemoryServer()
    await KeptQuotas(server.client(), FakeClock(), Random(0), wanted=False).run()
    assert server.calls == []
