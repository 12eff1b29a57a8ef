"""Whoever a fresh controller would place, the one that runs has placed: what makes room, and for whom."""

import msgspec
import pytest
from fitting import made, term, towards
from test_filters import ZONE, needs, spec, there, web
from test_topology_spread import spread
from world import World, why

from instaslice.kube.core import Condition, PodStatus
from instaslice.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass


def relabel(world, uid, **labels):
    pod = world.pods[uid]
    world._set(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels)))


@pytest.fixture
def unbound(monkeypatch):
    """Uids of pods that nobody binds."""
    held, bindable = set(), World._bindable
    monkeypatch.setattr(World, "_bindable", lambda self, pod: None if pod.metadata.uid in held else bindable(self, pod))
    return held


def test_a_waiting_pod_that_is_given_the_label_that_it_wants_near_is_the_first_of_a_series(world):
    world.label("a", zone="p")
    uid = web(world, labels={}, **towards("podAffinity", term("zone", app="web")))
    world.settle()
    assert not world.running()
    relabel(world, uid, app="web")
    world.settle()
    assert world.running() == [uid]


def test_a_waiting_pod_that_is_given_a_label_that_somebody_does_not_want_there_stays_away(world):
    there(world, **towards("podAntiAffinity", term(app="web")))
    world.cordon("a")
    uid = web(world, labels={"app": "other"})
    world.settle()
    relabel(world, uid, app="web")
    world.cordon("a", cordoned=False)
    world.settle()
    assert not world.running()


def test_a_node_that_goes_may_be_what_a_spread_waits_for(world):
    world.label("a", **{ZONE: "p"})
    world.add_node("b")
    world.label("b", **{ZONE: "q"})
    world.report("b", gpus=())
    first, second = (web(world, topologySpreadConstraints=[spread(app="web")]) for _ in range(2))
    world.settle()
    assert world.running() == [first]
    world.remove_node("b")
    world.settle()
    assert world.running() == [first, second]


def test_what_was_kept_for_a_pod_and_is_more_than_it_takes_is_for_those_who_wait():
    world = World(patience=50.0)
    world.add_node("a", gpus=2)
    whole = [world.add_pod("7g.40gb", cpu="1") for _ in range(2)]
    world.settle()
    large = world.add_pod("7g.40gb", "1g.5gb", cpu="1")
    world.settle()
    world.wait(60)
    assert world.dispatcher.longest_waiting.reserved.uid == large
    small = world.add_pod("1g.5gb", priority=9)
    world.settle()
    for uid in whole:
        world.end_pod(uid)
    world.settle()
    assert {large, small} <= set(world.running())


def test_where_a_pod_of_an_owner_is_bound_after_all_its_others_are_sent_at_once(world, unbound):
    first = world.add_pod("1g.5gb", owner="ReplicaSet/web")
    unbound.add(first)
    world.settle()
    world.wait(10)
    second = world.add_pod("1g.5gb", owner="ReplicaSet/web")
    unbound.add(second)
    world.settle()
    said = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="somebody's plugin")
    world._set(msgspec.structs.replace(world.pods[first], status=PodStatus(phase="Pending", conditions=[said])))
    world.wait(291)
    third = world.add_pod("1g.5gb", owner="ReplicaSet/web")
    world.settle()
    assert "the scheduler did not bind a pod of the same owner" in why(world, third).message
    unbound.clear()
    world.settle()
    assert {second, third} <= set(world.running())


def test_what_a_pod_of_another_namespace_says_of_its_owner_concerns_nobody(world, unbound):
    forged = world.add_pod("1g.5gb", namespace="evil", owner="ReplicaSet/web")
    unbound.add(forged)
    world.settle()
    said = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="forged")
    world._set(msgspec.structs.replace(world.pods[forged], status=PodStatus(phase="Pending", conditions=[said])))
    world.wait(301)
    uid = world.add_pod("1g.5gb", owner="ReplicaSet/web")
    world.settle()
    assert uid in world.running()


@pytest.mark.parametrize("shapes", [10, 60])
def test_pods_that_fit_nowhere_shield_nobody_who_is_not_bound(world, unbound, shapes):
    holder = world.add_pod("7g.40gb", namespace="evil")
    unbound.add(holder)
    world.settle()
    for number in range(shapes):
        world.add_pod("1g.5gb", namespace="evil", cpu=f"{1000 + number}")
    world.settle()
    world.wait(301)
    uid = world.add_pod("7g.40gb", namespace="good")
    world.settle()
    world.wait(30)
    assert world.running() == [uid]


def test_a_pod_that_was_called_over_and_runs_again_is_counted_again():
    world = World()
    world.add_node("a", cpu="2")
    uid = world.add_pod("1g.5gb", cpu="2")
    world.settle()
    before = world.dispatcher.state.capacities.free("a")["cpu"]
    world.end_pod(uid)
    world.settle()
    world._set(msgspec.structs.replace(world.pods[uid], status=PodStatus(phase="Running")))
    assert world.dispatcher.state.capacities.free("a")["cpu"] == before


def test_a_volume_that_was_expected_for_a_claim_that_got_another_is_free(world):
    world.label("a", zone="p")
    where = {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["p"]}]}]}
    }
    told = world.dispatcher.storage_changed

    def volume(name, claim=None):
        bound = {"claimRef": {"namespace": "team", "name": claim, "uid": f"of-{claim}"}} if claim else {}
        fields = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
        status = {"phase": "Bound" if claim else "Available"}
        return made(PersistentVolume, name, spec={**fields, "nodeAffinity": where, **bound}, status=status)

    def claim(name, of=""):
        fields = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "volumeName": of}
        marks = {"pv.kubernetes.io/bind-completed": "yes"} if of else {}
        spec = {**fields, "resources": {"requests": {"storage": "1Gi"}}}
        status = {"phase": "Bound" if of else "Pending"}
        return made(PersistentVolumeClaim, name, "team", uid=f"of-{name}", annotations=marks, spec=spec, status=status)

    waits = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    told(None, made(StorageClass, "local", **waits))
    for name in ("v1", "v2"):
        told(None, volume(name))
    for name in ("c1", "c2"):
        told(None, claim(name))
    first = world.add_pod("1g.5gb", **spec(**needs("c1")))
    world.settle()
    (expected,) = world.dispatcher.state.filters._claims._expected[first].volumes
    got = {"v1": "v2", "v2": "v1"}[expected]
    told(None, volume(got, "c1"))
    told(None, claim("c1", got))
    second = world.add_pod("1g.5gb", **spec(**needs("c2")))
    world.settle()
    assert world.running() == [first, second]


def test_a_slice_that_is_of_no_use_again_and_again_is_made_ever_more_seldom(world, monkeypatch):
    refusal = "nobody would bind the pod to node a any more: a test"
    monkeypatch.setattr(world.dispatcher._pods, "_ungate_blocked_by", lambda *_: refusal)
    uid = world.add_pod("1g.5gb")
    world.settle()
    before = world.instaslices["a"].metadata.generation
    assert why(world, uid).message.endswith("a test; it is tried again after a backoff")
    for _ in range(100):
        world.wait(1)
    assert world.instaslices["a"].metadata.generation - before < 60
    monkeypatch.undo()
    world.wait(600)
    assert world.running() == [uid]


def test_a_slice_that_two_pods_say_is_theirs_is_given_to_neither_where_no_kubelet_knows(world):
    mine = world.add_pod("1g.5gb")
    world.settle()
    pod = world.pods[mine]
    meta = msgspec.structs.replace(pod.metadata, name="thief", uid="thief")
    world.lag()
    found = world.dispatcher
    thief = msgspec.structs.replace(pod, metadata=meta)
    found.state.pods["thief"] = thief
    (held,) = found.state.ledger.nodes["a"].allocations.values()
    uuid = held.prepared.mig_uuid
    restored = found.state.ledger.restore
    asked = []
    found.state.ledger.restore = lambda *given, disputed=(), **named: (
        asked.append(disputed) or restored(*given, disputed=disputed, **named)
    )
    found._pods._restore(pod)
    assert asked == [{uuid}]


def test_what_a_claim_still_lacks_is_said_when_that_changes(world):
    uid = world.add_pod("1g.5gb", **spec(**needs("data")))
    world.settle()
    assert "does not exist" in why(world, uid).message
    assert why(world, uid).message_matters
