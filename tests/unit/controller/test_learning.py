"""What pods asked for is kept in a ConfigMap, and a restarted controller goes on with it."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from fake_clock import FakeClock
from memory_server import Call, MemoryServer
from waiting import passes, settled, until

from instaslice.api import names
from instaslice.controller.cluster_state import ClusterState
from instaslice.controller.learning import QUIET_SECONDS, Learning
from instaslice.geometry import models
from instaslice.kube.core import CONFIG_MAPS, ConfigMap
from instaslice.kube.errors import Unreachable
from instaslice.kube.meta import ObjectMeta
from instaslice.placement import GpuId, NodeName, adaptive, policies
from instaslice.placement.portfolio import UNINFORMED

WRITE = Call("PATCH", "configmaps")
A100 = models.named("A100-40GB")


class Idle:
    """Queues without work."""

    def busy(self):
        return False


class Cluster:
    """A server, a clock, and one controller's part that learns after another."""

    def __init__(self):
        self.clock, self.server, self.leading = FakeClock(), MemoryServer(), True
        self.begin()

    def begin(self):
        self.policy = policies.named("adaptive")
        self.state = ClusterState(self.policy)
        for number in range(8):
            self.state.ledger.fleet.add_gpu(GpuId(f"g{number}"), NodeName("a"), A100)
        client, leads = self.server.client(), lambda: self.leading
        self.learning = Learning(client, self.policy, self.state, Idle(), self.clock, namespace="ours", leads=leads)

    def arrive(self, **counts):
        for profile, count in counts.items():
            for _ in range(count):
                self.policy.arrived(profile[1:].replace("_", "."))
                self.state.arrivals += 1

    @asynccontextmanager
    async def running(self):
        await self.learning.recall()
        task = asyncio.create_task(self.learning.run())
        await settled()
        yield
        assert not task.done(), task
        task.cancel()
        await asyncio.wait([task])

    def record(self):
        found = self.server.all(CONFIG_MAPS)
        return found[0].data if found else None

    def put(self, **data):
        named = {profile.lstrip("_").replace("_", ".").replace("mig.", "mig-"): text for profile, text in data.items()}
        metadata = ObjectMeta(namespace="ours", name=names.DEMAND)
        self.server.put(CONFIG_MAPS, ConfigMap(metadata=metadata, data=named))


@pytest.fixture
def cluster():
    return Cluster()


async def test_what_arrived_survives_a_restart(cluster):
    cluster.arrive(_1g_5gb=3, _3g_20gb=2)
    cluster.policy.arrived("1g.5gb+me")
    async with cluster.running():
        await passes(cluster.clock, QUIET_SECONDS + 1)
        assert cluster.record() == {"mig-1g.5gb": "3", "mig-1g.5gb.me": "1", "mig-3g.20gb": "2"}
    cluster.begin()
    async with cluster.running():
        assert cluster.policy.asked == {"1g.5gb": 3, "3g.20gb": 2, "1g.5gb+me": 1}


async def test_a_controller_that_knows_enough_learns_in_its_first_quiet_moment(cluster):
    cluster.put(_1g_5gb="1000", _3g_20gb="500", _4g_20gb="500")
    async with cluster.running():
        assert cluster.policy.recipe(cluster.state.ledger.fleet.pools[0].kinds) == UNINFORMED, "pods go first"
        await passes(cluster.clock, QUIET_SECONDS)
        await until(lambda: cluster.policy.recipe(cluster.state.ledger.fleet.pools[0].kinds) != UNINFORMED)


async def test_it_is_written_when_a_tenth_is_new(cluster):
    async with cluster.running():
        for arriving, recorded in ((1, "1"), (1, "2"), (98, "100"), (10, "100"), (1, "111")):
            cluster.arrive(_1g_5gb=arriving)
            await passes(cluster.clock, QUIET_SECONDS + 1)
            assert cluster.record() == {"mig-1g.5gb": recorded}
        assert cluster.server.calls.count(WRITE) == 4
        cluster.arrive(_3g_20gb=30)
        await passes(cluster.clock, 5 * QUIET_SECONDS)
        assert cluster.record() == {"mig-1g.5gb": "111", "mig-3g.20gb": "30"}
        assert cluster.server.calls.count(WRITE) == 5


async def test_who_no_longer_leads_writes_nothing(cluster):
    cluster.arrive(_1g_5gb=1)
    cluster.leading = False
    async with cluster.running():
        await passes(cluster.clock, 5 * QUIET_SECONDS)
    assert cluster.record() is None


async def test_an_entry_that_is_no_number_of_slices_costs_only_itself(cluster, caplog):
    cluster.put(_1g_5gb="7", _2g_10gb="many", _3g_20gb="-1", _4g_20gb="nan", _7g_40gb="1e308", _what="3")
    async with cluster.running():
        assert cluster.policy.asked == {"1g.5gb": 7}
    assert "configmap ours/instaslice-demand: 2g.10gb: many is no number of slices; left out" in caplog.text
    assert len(caplog.records) == 5


async def test_without_the_permission_it_says_so_once_and_goes_on(cluster, caplog):
    cluster.arrive(_1g_5gb=1)
    cluster.server.refuse("GET", "configmaps", 403)
    cluster.server.refuse("PATCH", "configmaps", 403, times=3)
    async with cluster.running():
        await passes(cluster.clock, 6 * QUIET_SECONDS)
        assert cluster.record() == {"mig-1g.5gb": "1"}, "granted at last"
    assert [each.getMessage().count("a restart of the controller forgets") for each in caplog.records] == [1, 1]
    assert {each.levelname for each in caplog.records} == {"WARNING"}


@pytest.mark.parametrize("answer", [Unreachable("no answer"), 500, 429, 401])
async def test_a_record_that_cannot_be_read_at_start_is_read_later_and_not_replaced(cluster, answer):
    cluster.put(mig_1g_5gb="7")
    cluster.server.refuse("GET", "configmaps", answer, times=2)
    async with cluster.running():
        cluster.arrive(_3g_20gb=2)
        await passes(cluster.clock, QUIET_SECONDS + 1)
        assert cluster.record() == {"mig-1g.5gb": "7"}, "not replaced by what is known now"
        await passes(cluster.clock, 2 * QUIET_SECONDS)
        assert cluster.policy.asked == {"1g.5gb": 7, "3g.20gb": 2}
        assert cluster.record() == {"mig-1g.5gb": "7", "mig-3g.20gb": "2"}


async def test_a_policy_that_cannot_learn_goes_on_as_before(cluster, caplog, monkeypatch):
    """The next process would fail on the same record, and so on."""
    monkeypatch.setattr(adaptive, "best_recipe", lambda *_: 1 / 0)
    cluster.arrive(_1g_5gb=40)
    async with cluster.running():
        await passes(cluster.clock, 2 * QUIET_SECONDS)
        assert cluster.record() == {"mig-1g.5gb": "40"}
    assert "cannot learn from what pods asked for" in caplog.text
