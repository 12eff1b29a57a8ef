"""The whole controller as it runs, with its watches, queues and timers, on a server's memory and a test's clock."""

import asyncio
from contextlib import asynccontextmanager
from random import Random

import msgspec
import pytest
from memory_server import Call
from waiting import passes, settled, until
from world import World

from instaslice.api import names, roles
from instaslice.api.instaslice import INSTASLICES, AllocationState
from instaslice.controller.autoscaling import PRIORITY_CLASSES
from instaslice.controller.controller import Controller, Settings
from instaslice.controller.errors import Deposed
from instaslice.controller.orders import Limits
from instaslice.errors import leaves
from instaslice.kube.core import EVENTS, PODS
from instaslice.kube.meta import ObjectMeta
from instaslice.kube.quotas import RESOURCE_QUOTAS, ResourceQuota, ResourceQuotaSpec
from instaslice.kueue.objects import ADMISSION_CHECKS, AdmissionCheck, AdmissionCheckSpec
from instaslice.placement import policies

SPEC = Call("PATCH", "instaslices")


class Plant:
    """A world whose agents and scheduler work whenever they have something to do. Its controller runs by itself."""

    def __init__(self, **settings):
        self.world = World()
        self.world.controller = None
        self.world.add_node("a")
        self.policy = policies.named("adaptive")
        self.leading = True
        self.settings = Settings(**settings)

    @asynccontextmanager
    async def running(self, policy=None):
        controller = Controller(
            self.world.server.client(),
            policy or self.policy,
            clock=self.world.clock,
            rng=Random(0),
            settings=self.settings,
            leads=lambda: self.leading,
        )
        task = asyncio.create_task(controller.run())
        await self.passes(0)
        yield controller
        assert not task.done(), task
        task.cancel()
        await asyncio.wait([task])

    async def passes(self, seconds):
        for _ in range(round(seconds / 0.5)):
            await self._step(0.5)
        await self._step(0)

    async def _step(self, seconds):
        await passes(self.world.clock, seconds)
        while deeds := [deed for deed in self.world.deeds() if deed[0] in ("agent", "bind")]:
            self.world.do(deeds[0])
            await settled()

    def condition(self, uid):
        found = self.world.pods[uid].condition(names.SLICE_READY)
        return found and found.reason


@pytest.fixture
async def plant():
    made = Plant()
    async with made.running():
        yield made


async def test_a_pod_gets_its_slice_is_told_so_and_gives_it_back(plant):
    world = plant.world
    uid = world.add_pod("1g.5gb")
    await plant.passes(1)
    assert world.running() == [uid]
    await plant.passes(20)
    assert plant.condition(uid) == "SliceReady"
    assert [each.reason for each in world.server.all(EVENTS)] == ["SliceReady"]
    assert [each.state for each in world.spec("a").allocations] == [AllocationState.UNGATED]
    world.end_pod(uid)
    await plant.passes(20)
    assert not world.server.all(PRIORITY_CLASSES), "no hints where nobody wants them"
    assert not world.spec("a").allocations
    assert not world.hardware["a/0"]


async def test_a_pod_costs_a_fixed_number_of_writes(plant):
    world = plant.world
    uid = world.add_pod("1g.5gb")
    await plant.passes(20)
    world.end_pod(uid)
    await plant.passes(20)
    # The record of what pods asked for is one write for many pods.
    patches = [call for call in world.server.calls if call.method != "GET" and call.kind != "configmaps"]
    assert sorted(patches) == sorted(
        [
            *[SPEC] * 4,  # promised; let go; taken back; gone
            Call("PATCH", "pods"),
            Call("PATCH", "pods", "status"),
            Call("POST", "events"),
        ]
    )


async def test_a_state_that_only_people_read_is_written_ten_seconds_later(plant):
    world = plant.world
    uid = world.add_pod("1g.5gb")
    await plant.passes(0)
    assert world.running() == [uid]
    assert [each.state for each in world.spec("a").allocations] == [AllocationState.CREATING]
    await plant.passes(9.5)
    assert [each.state for each in world.spec("a").allocations] == [AllocationState.CREATING]
    await plant.passes(1)
    assert [each.state for each in world.spec("a").allocations] == [AllocationState.UNGATED]


async def test_words_wait_while_a_wave_of_pods_goes_through(plant):
    uid = plant.world.add_pod("1g.5gb")
    await plant.passes(0)
    assert plant.world.running() == [uid]
    assert plant.condition(uid) is None
    await plant.passes(0.5)
    assert plant.condition(uid) == "SliceReady"


async def test_it_is_written_in_ten_seconds_though_pods_come_all_the_time(plant):
    world = plant.world
    world.add_node("b", gpus=16)
    world.cordon("b")
    world.add_pod("1g.5gb")
    await plant.passes(0)
    world.cordon("b", False)
    world.cordon("a")
    for _ in range(44):  # eleven seconds
        world.add_pod("1g.5gb")
        await passes(world.clock, 0.25)
        if [each.state for each in world.spec("a").allocations] == [AllocationState.UNGATED]:
            break
        await plant.passes(0)
    else:
        raise AssertionError("it is never written")


async def test_a_controller_that_is_started_anew_goes_on_where_the_last_one_was_killed(plant):
    world = plant.world
    uids = [world.add_pod("1g.5gb") for _ in range(8)]
    await plant.passes(20)
    running, before = world.running(), world.spec("a")
    assert len(running) == 7
    world.server.calls.clear()
    async with plant.running() as second:
        await plant.passes(20)
        assert world.spec("a") == before
        assert not [call for call in world.server.calls if call.method == "PATCH" and call.kind != "configmaps"]
        assert len(second.dispatcher.state.ledger.reservations) == 7
    assert {plant.condition(uid) for uid in uids} == {"SliceReady", "Waiting"}


async def test_what_was_begun_by_the_last_one_is_ended_by_the_next():
    plant = Plant()
    world = plant.world
    world.mute = {"a"}
    async with plant.running():
        uid = world.add_pod("1g.5gb")
        await plant.passes(1)
        assert len(world.spec("a").allocations) == 1
    world.mute = set()
    await plant.passes(1)
    assert world.running() == []
    async with plant.running():
        await plant.passes(1)
    assert world.running() == [uid]


async def test_a_deadline_comes_though_nothing_else_happens(plant, monkeypatch):
    monkeypatch.setattr(World, "_bindable", lambda *_: None)
    uid = plant.world.add_pod("1g.5gb", owner="ReplicaSet/web")
    await plant.passes(299)
    assert plant.world.pods[uid].status.phase == "Pending"
    await plant.passes(3)
    assert plant.world.pods[uid].status.phase == "Failed"
    await plant.passes(10)
    assert not plant.world.instaslices["a"].spec.allocations
    assert ("SliceReleased", "Warning") in [(each.reason, each.type) for each in plant.world.server.all(EVENTS)]


async def test_limits_are_those_that_were_set(monkeypatch):
    monkeypatch.setattr(World, "_bindable", lambda *_: None)
    plant = Plant(limits=Limits(bind=30.0))
    async with plant.running():
        uid = plant.world.add_pod("1g.5gb", owner="ReplicaSet/web")
        await plant.passes(32)
        assert plant.world.pods[uid].status.phase == "Failed"


async def test_who_does_not_lead_any_more_writes_nothing_until_it_leads_again(plant):
    world = plant.world
    plant.leading = False
    uid = world.add_pod("1g.5gb")
    await plant.passes(5)
    assert SPEC not in world.server.calls
    plant.leading = True
    await plant.passes(5)
    assert world.running() == [uid]


async def test_another_hand_in_a_spec_ends_it():
    plant = Plant()
    world = plant.world
    controller = Controller(world.server.client(), plant.policy, clock=world.clock, rng=Random(0), settings=Settings())
    task = asyncio.create_task(controller.run())
    world.add_pod("1g.5gb")
    await plant.passes(1)
    assert not task.done()
    thing = world.instaslices["a"]
    world.server.put(INSTASLICES, msgspec.structs.replace(thing, spec=type(thing.spec)(allocations=())))
    await settled()
    with pytest.raises(BaseExceptionGroup) as ended:
        await task
    assert [type(each) for each in leaves(ended.value)] == [Deposed]


async def test_a_pass_that_fails_ends_it(monkeypatch):
    plant = Plant()
    world = plant.world
    controller = Controller(world.server.client(), plant.policy, clock=world.clock, rng=Random(0), settings=Settings())
    task = asyncio.create_task(controller.run())
    await plant.passes(1)
    monkeypatch.setattr(controller.dispatcher, "decide", lambda: 1 / 0)
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # it is raised in a callback too
    world.add_pod("1g.5gb")
    await settled()
    with pytest.raises(BaseExceptionGroup) as ended:
        await asyncio.wait_for(task, 5)
    assert [type(each) for each in leaves(ended.value)] == [ZeroDivisionError]


class Tuning:
    """Counts as thought about once it is adopted."""

    def __init__(self, thoughts, gpus):
        self._adopt = lambda: thoughts.append(gpus)

    def run(self):
        return self._adopt


class Thinking:
    """A policy that notes when it is asked to think."""

    def __init__(self):
        self._policy = policies.named("adaptive")
        self.thoughts = []

    def tuning(self, fleet, *_):
        return Tuning(self.thoughts, len(fleet))

    def __getattr__(self, name):
        return getattr(self._policy, name)


async def test_the_policy_thinks_in_a_quiet_moment_and_ever_more_seldom():
    plant, policy = Plant(), Thinking()
    world = plant.world
    async with plant.running(policy) as controller:

        async def arrive(count):
            controller.state.arrivals += count
            await passes(world.clock, 21)

        async def thought(times):
            await until(lambda: len(policy.thoughts) >= times)
            assert len(policy.thoughts) == times

        await arrive(31)
        await passes(world.clock, 21)
        await thought(0)
        for _ in range(3):
            await passes(world.clock, 19)
            controller.state.arrivals += 1
        await thought(0)
        await passes(world.clock, 41)
        await thought(1)
        await passes(world.clock, 100)
        await arrive(100)
        await passes(world.clock, 100)
        await thought(1)
        await arrive(10)
        await passes(world.clock, 100)
        await thought(2)
        assert policy.thoughts == [1, 1]


async def test_the_policy_thinks_at_last_though_pods_arrive_all_the_time():
    plant, policy = Plant(), Thinking()
    async with plant.running(policy) as controller:
        for _ in range(12):
            assert not policy.thoughts
            controller.state.arrivals += 20
            await passes(plant.world.clock, 10)
        await until(lambda: policy.thoughts)


async def test_autoscalers_are_shown_what_a_node_of_a_known_kind_would_hold():
    plant = Plant(hints=2)
    world = plant.world
    async with plant.running():
        for _ in range(3):
            world.add_pod("7g.40gb", cpu="2")
        world.add_pod("7g.40gb", node_selector={"zone": "nowhere"})
        await plant.passes(20)
        made = [each for each in world.server.all(PODS) if names.PLACEHOLDER in each.metadata.labels]
        (only,) = made
        assert only.metadata.namespace == names.PLACEHOLDERS
        assert only.spec.containers[0].resources.requests["cpu"] == "2000m"
        for uid in world.running():
            world.end_pod(uid)
        await plant.passes(20)
        for uid in world.running():
            world.end_pod(uid)
        await plant.passes(20)
        assert not [each for each in world.server.all(PODS) if names.PLACEHOLDER in each.metadata.labels]


async def test_nodes_are_tainted_where_that_is_wanted_and_not_any_more_where_it_is_not():
    plant = Plant(taint_nodes=True)
    world = plant.world
    async with plant.running():
        await plant.passes(1)
        assert [taint.key for taint in world.nodes["a"].spec.taints] == [names.MANAGED]
        world.change_node(msgspec.structs.replace(world.nodes["a"], spec=type(world.nodes["a"].spec)(taints=[])))
        await plant.passes(1)
        assert [taint.key for taint in world.nodes["a"].spec.taints] == [names.MANAGED]
        thing = world.instaslices["a"]
        world.remove_instaslice("a")
        await plant.passes(1)
        assert not world.nodes["a"].spec.taints
        world.change_instaslice(thing)
        await plant.passes(1)
        assert world.nodes["a"].spec.taints
    plant.settings = Settings()
    async with plant.running():
        await plant.passes(1)
        assert not world.nodes["a"].spec.taints


async def test_a_taint_that_may_not_be_removed_any_more_is_named_once(caplog):
    plant = Plant(taint_nodes=True)
    world = plant.world
    async with plant.running():
        await plant.passes(1)
    plant.settings = Settings()
    world.server.refuse("PATCH", "nodes", 403, times=9)
    world.server.calls.clear()
    async with plant.running():
        await plant.passes(60)
        world.change_node(msgspec.structs.replace(world.nodes["a"]))
        await plant.passes(60)
    assert caplog.text.count("kubectl taint node a gpu.das.com/managed-") == 1
    assert world.server.calls.count(Call("PATCH", "nodes")) == 1


async def test_labels_that_may_not_be_removed_any_more_are_named_once(caplog):
    plant = Plant(static_mig_labels=True)
    world = plant.world
    async with plant.running():
        await plant.passes(1)
        assert world.nodes["a"].metadata.labels["nvidia.com/mig-1g.5gb.count"] == "7"
    plant.settings = Settings()
    world.server.refuse("PATCH", "nodes", 403, times=9)
    world.server.calls.clear()
    async with plant.running():
        await plant.passes(60)
        world.change_node(msgspec.structs.replace(world.nodes["a"]))
        await plant.passes(60)
    (said,) = [each for each in caplog.messages if "kubectl " in each]
    assert '"metadata": {"name": "a"}' in said
    assert said.endswith("kubectl apply --server-side --field-manager=instaslice-static-mig-labels -f -")
    assert world.server.calls.count(Call("PATCH", "nodes")) == 1


@pytest.mark.parametrize("flag", ["taint_nodes", "static_mig_labels"])
async def test_a_permission_that_is_missing_is_said_once_a_minute_for_all_nodes(caplog, flag):
    plant = Plant(**{flag: True})
    world = plant.world
    for number in range(20):
        world.add_node(f"gpu-{number}")
    world.server.refuse("PATCH", "nodes", 403, times=2 * len(world.nodes))
    async with plant.running():
        await plant.passes(59)
        assert world.server.calls.count(Call("PATCH", "nodes")) == len(world.nodes)
        (said,) = [each for each in caplog.messages if "403" in each]
        assert f"grant the controller what --{flag.replace('_', '-')} needs, or leave the flag away" in said
        await plant.passes(60)
        assert len([each for each in caplog.messages if "403" in each]) == 2
        await plant.passes(60)
    done = [
        bool(node.spec.taints) or "nvidia.com/mig.strategy" in node.metadata.labels for node in world.nodes.values()
    ]
    assert all(done), "as soon as it is granted"


VERBS = {"POST": {"create"}, "PUT": {"update"}, "PATCH": {"patch"}, "DELETE": {"delete"}, "GET": {"get", "list"}}


WRITTEN_WITH = {
    "taint_nodes": "nodes",
    "static_mig_labels": "nodes",
    "keep_quotas": "resourcequotas",
    "autoscaling_hints": "priorityclasses",
    "admission_check": "admissionchecks",
}
"""Flag → the kind that is patched with it alone."""


@pytest.mark.parametrize(
    "flags",
    [{}, *({flag: True} for flag in WRITTEN_WITH)],
    ids=["none", *WRITTEN_WITH],
)
async def test_what_the_controller_asks_for_is_granted_with_its_flags(flags):
    hints = int(flags.get("autoscaling_hints", False))
    plant = Plant(**{flag: on for flag, on in flags.items() if flag != "autoscaling_hints"}, hints=hints)
    world = plant.world
    meta = ObjectMeta(namespace="team", name="gpus")
    spec = ResourceQuotaSpec(hard={"requests.nvidia.com/mig-7g.40gb": "2"})
    world.server.put(RESOURCE_QUOTAS, ResourceQuota(metadata=meta, spec=spec))
    check = AdmissionCheckSpec(controller_name=names.PLACEMENT_CHECK)
    world.server.put(ADMISSION_CHECKS, AdmissionCheck(metadata=ObjectMeta(name="slices"), spec=check))
    async with plant.running():
        for _ in range(3):
            world.add_pod("7g.40gb", cpu="2")
        for _ in range(3):
            await plant.passes(20)
            for uid in world.running():
                world.end_pod(uid)
    role = roles.controller(**flags)
    granted = {
        (verb, resource)
        for rule in (*role.cluster, *role.own, *role.placeholders)
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    refused = [
        call
        for call in world.server.calls
        if not any(
            (verb, f"{call.kind}/{call.part}" if call.part else call.kind) in granted for verb in VERBS[call.method]
        )
    ]
    assert not refused
    patched = {call.kind for call in world.server.calls if call.method == "PATCH"}
    assert patched & set(WRITTEN_WITH.values()) == {WRITTEN_WITH[flag] for flag in flags}
    assert "pods" in patched


@pytest.mark.parametrize("error", [500, 403])
async def test_a_list_of_old_placeholders_that_fails_does_not_end_the_controller(error):
    plant = Plant()
    uid = plant.world.add_pod("1g.5gb")
    plant.world.server.refuse("GET", "pods", error)
    async with plant.running():
        await plant.passes(20)
        assert plant.world.running() == [uid]


async def test_a_pass_that_wakes_the_next_lets_others_have_their_turn():
    plant = Plant()
    async with plant.running() as controller:
        turns, seen, real = 0, [], controller.dispatcher.decide

        async def beat():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        def decide():
            seen.append(turns)
            real()
            if len(seen) < 10:
                controller.orders.wake()

        beating = asyncio.create_task(beat())
        await settled()
        controller.dispatcher.decide = decide
        controller.orders.wake()
        await settled()
        beating.cancel()
        assert len(set(seen)) == 10


async def test_a_deadline_that_is_set_between_passes_comes_too():
    plant = Plant()
    world = plant.world
    async with plant.running() as controller:
        uid = world.add_pod("1g.5gb")
        await plant.passes(1)
        assert world.running() == [uid]
        await plant.passes(1000)  # all earlier deadlines are over
        world.not_ready("a")
        await plant.passes(1000)
        world.mark_pod(uid)  # the node controller deletes it; no kubelet will report its end
        await plant.passes(1000)
        assert controller.state.dead_nodes == {"a"}
        assert not controller.state.ledger.reservations


async def test_hints_without_the_right_to_a_priority_class_do_not_end_the_controller():
    plant = Plant(hints=2)
    uid = plant.world.add_pod("1g.5gb")
    plant.world.server.refuse("PATCH", "priorityclasses", 403)
    async with plant.running():
        await plant.passes(20)
        assert plant.world.running() == [uid]
