"""Pods that the scheduler would bind only to some nodes, or to none yet, through the dispatcher.

A pod is judged by those that run and by those that were only promised a node; what changes wakes whoever waits for it.
"""

import msgspec
import pytest
from fitting import made, term, towards
from test_topology_spread import spread
from test_volumes import NOW, WAIT, claim, volume
from world import World, why

from instaslice.api.names import GATE
from instaslice.kube.core import PODS, Container, ContainerPort, Namespace, Pod, PodSpec, ResourceRequirements
from instaslice.kube.meta import ObjectMeta

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
APART = towards("podAntiAffinity", term(app="web"))
NEAR = towards("podAffinity", term(app="db"))


def spec(**fields):
    """Fields of a pod's spec as `World.add_pod` takes them, from what a user would write."""
    found = msgspec.convert({"containers": None, **fields}, PodSpec)
    return {
        each: value
        for each in ("affinity", "topology_spread_constraints", "volumes")
        if (value := getattr(found, each))
    }


def web(world, *profiles, labels=None, **fields):
    return world.add_pod(
        *(profiles or ["1g.5gb"]), labels={"app": "web"} if labels is None else labels, **spec(**fields)
    )


def needs(*claims):
    return {"volumes": [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]}


def opens(port):
    ports = [ContainerPort(host_port=port)]
    return [
        Container(
            name="c",
            ports=ports,
            resources=ResourceRequirements(limits={"gpu.das.com/mig-1g.5gb": "1"}, requests={"cpu": "1"}),
        )
    ]


def there(world, uid="other", labels=None, node="a", namespace="team", **fields):
    """A pod without slices that runs on a node."""
    meta = ObjectMeta(namespace=namespace, name=uid, uid=uid, labels=labels or {})
    pod = msgspec.convert({"metadata": {}, "spec": {"nodeName": node, **fields}}, Pod)
    pod = msgspec.structs.replace(pod, metadata=meta)
    return world.server.put(PODS, pod)


def in_team(thing):
    return msgspec.structs.replace(thing, metadata=msgspec.structs.replace(thing.metadata, namespace="team"))


@pytest.fixture
def two(world):
    world.add_node("b")
    return world


def test_replicas_that_must_not_share_a_node_get_one_each_and_the_third_waits_for_one_to_end(two):
    uids = [web(two, **APART) for _ in range(3)]
    two.settle()
    assert sorted(map(two.on, uids[:2])) == ["a", "b"]
    told = why(two, uids[2])
    assert told.reason == "Waiting"
    assert "2 nodes: pod anti-affinity with pods app=web already there" in told.message
    two.delete_pod(uids[0])
    two.settle()
    assert uids[2] in two.running()


def test_a_pod_stays_away_from_one_that_does_not_want_it_though_it_has_no_wish_itself(world):
    present = there(world, **APART)
    uid, other = web(world), web(world, labels={"app": "else"})
    world.settle()
    assert world.running() == [other], "pods that look alike but for a label are judged apart"
    assert "pod anti-affinity of a pod already there with pods app=web" in why(world, uid).message
    world.delete_pod(present.metadata.uid)
    world.settle()
    assert uid in world.running()


def test_pods_that_wait_already_are_told_apart_when_somebody_comes_who_does_not_want_one_of_them(world):
    full = world.add_pod("7g.40gb")
    world.settle()
    unwanted, other = web(world), web(world, labels={"app": "else"})
    world.settle()
    there(world, **APART)
    world.end_pod(full)
    world.settle()
    assert world.running() == [other]
    assert unwanted not in world.running()


def test_a_pod_that_wants_another_near_waits_for_it_and_follows_at_once(two):
    uid = web(two, **NEAR)
    two.settle()
    assert "pod affinity: no pods app=db" in why(two, uid).message
    first = web(two, labels={"app": "db"})
    two.settle()
    assert sorted(two.running()) == sorted([uid, first])
    assert two.on(uid) == two.on(first)


def test_a_pod_that_is_bound_by_the_scheduler_wakes_those_that_want_to_be_near_it(two):
    uid = web(two, **NEAR)
    two.settle()
    there(two, labels={"app": "db"}, node="b")
    two.settle()
    assert two.on(uid) == "b"


def test_labels_that_a_running_pod_is_given_count(world):
    other = there(world)
    uid = web(world, **NEAR)
    world.settle()
    assert not world.running()
    meta = msgspec.structs.replace(other.metadata, labels={"app": "db"})
    world.server.put(PODS, msgspec.structs.replace(other, metadata=meta))
    world.settle()
    assert world.running() == [uid]


def test_labels_of_a_namespace_count(world):
    there(world, labels={"app": "db"}, namespace="store")
    uid = web(world, **towards("podAffinity", term(app="db", selecting={"matchLabels": {"kind": "data"}})))
    world.settle()
    assert not world.running()
    world.dispatcher.namespace_changed(None, made(Namespace, "store", labels={"kind": "data"}))
    world.settle()
    assert world.running() == [uid]


def test_labels_of_a_namespace_that_is_gone_count_no_more(world):
    there(world, labels={"app": "db"}, namespace="store")
    labelled = made(Namespace, "store", labels={"kind": "data"})
    world.dispatcher.namespace_changed(None, labelled)
    world.dispatcher.namespace_changed(labelled, None)
    web(world, **towards("podAffinity", term(app="db", selecting={"matchLabels": {"kind": "data"}})))
    world.settle()
    assert not world.running()


def test_a_pod_that_changes_in_nothing_that_others_are_judged_by_wakes_nobody(world):
    other = there(world, **APART)
    web(world)
    world.settle()
    status = msgspec.structs.replace(other.status, message="still here")
    world.server.put(PODS, msgspec.structs.replace(other, status=status))
    assert not world.woken


def test_a_hard_spread_counts_what_was_only_promised_and_is_kept_by_us_alone(two):
    for name in "ab":
        node = two.nodes[name]
        labels = {**node.metadata.labels, ZONE: f"zone-{name}"}
        two.change_node(msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels)))
    uids = [web(two, topologySpreadConstraints=[spread(app="web")]) for _ in range(4)]
    two.settle()
    assert sorted(map(two.on, uids)) == ["a", "a", "b", "b"]
    two.cordon("b")
    last = [web(two, topologySpreadConstraints=[spread(app="web")]) for _ in range(2)]
    two.settle()
    assert sorted(filter(None, map(two.on, last))) == ["a"]
    assert (
        f"topology spread over {ZONE}: zone-a has 3 such pods, the minimum is 2, max skew 1"
        in why(two, last[1]).message
    )


def test_a_port_of_the_node_is_given_once(two):
    uids = [two.add_pod("1g.5gb", containers=opens(8080)) for _ in range(3)]
    two.settle()
    assert sorted(map(two.on, uids[:2])) == ["a", "b"]
    assert "2 nodes: host port 8080/TCP is in use" in why(two, uids[2]).message
    two.end_pod(uids[1])
    two.settle()
    assert uids[2] in two.running()


def test_a_pod_whose_claim_is_not_there_keeps_its_gate_and_runs_when_it_is(world):
    uid = web(world, **needs("data"))
    world.settle()
    assert not world.spec("a").allocations
    told = why(world, uid)
    assert told.reason == "WaitingForVolume"
    assert told.message == "waits for PersistentVolumeClaim team/data, which does not exist"
    absent = in_team(claim(of="now"))
    world.dispatcher.storage_changed(None, NOW)
    world.dispatcher.storage_changed(None, absent)
    world.settle()
    assert why(world, uid).message == "waits for PersistentVolumeClaim team/data to be bound"
    world.dispatcher.storage_changed(None, volume(of="now"))
    world.dispatcher.storage_changed(absent, in_team(claim(of="now", bound="pv")))
    world.settle()
    assert world.running() == [uid]


def test_one_that_then_waits_for_room_is_told_so(world):
    world.add_pod("7g.40gb")
    world.settle()
    uid = web(world, **needs("data"))
    world.settle()
    assert why(world, uid).reason == "WaitingForVolume"
    world.told.clear()
    world.dispatcher.storage_changed(None, volume())
    world.dispatcher.storage_changed(None, in_team(claim(bound="pv")))
    world.settle()
    assert world.told == {uid}
    assert why(world, uid).reason == "Waiting"


def test_a_slice_is_cut_where_the_volume_is(two):
    two.dispatcher.storage_changed(None, volume(at=("b",), labels={}))
    far = volume(at=("one",), spec={"nodeAffinity": at_host("b")})
    two.dispatcher.storage_changed(None, far)
    two.dispatcher.storage_changed(None, in_team(claim(bound="pv")))
    uid = web(two, **needs("data"))
    two.settle()
    assert two.on(uid) == "b"


def at_host(name):
    line = {"key": HOST, "operator": "In", "values": [name]}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [line]}]}}


def test_two_pods_are_not_promised_one_volume(two):
    two.dispatcher.storage_changed(None, WAIT)
    two.dispatcher.storage_changed(None, volume(spec={"nodeAffinity": at_host("b")}))
    for name in ("one", "two"):
        two.dispatcher.storage_changed(None, in_team(claim(name)))
    first, second = web(two, **needs("one")), web(two, **needs("two"))
    two.settle()
    assert two.on(first) == "b"
    assert two.on(second) is None
    assert "no volume of class wait is free there" in why(two, second).message


def test_what_changed_while_its_slices_were_made_keeps_the_gate(world):
    bound = in_team(claim(bound="pv"))
    world.dispatcher.storage_changed(None, volume())
    world.dispatcher.storage_changed(None, bound)
    uid = web(world, **needs("data"))
    world.dispatcher.decide()
    assert world.on(uid) == "a"
    world.dispatcher.storage_changed(bound, None)
    world.settle()
    assert [gate.name for gate in world.pods[uid].spec.scheduling_gates] == [GATE]
    assert not world.spec("a").allocations
    assert why(world, uid).reason == "WaitingForVolume"


def test_a_pod_that_was_counted_in_balance_when_it_was_promised_is_let_go(two):
    """What ended meanwhile puts it out of balance; the scheduler, which sees its one node, would bind it."""
    others = [there(two, f"other-{name}", {"app": "web"}, name) for name in "ab"]
    uid = web(two, topologySpreadConstraints=[spread(HOST, app="web")])
    two.dispatcher.decide()
    promised = two.on(uid)
    two.delete_pod(next(each.metadata.uid for each in others if each.spec.node_name != promised))
    two.settle()
    assert two.running() == [uid]
    assert two.on(uid) == promised


def test_no_room_is_kept_for_a_pod_that_could_not_go_there_anyway(world):
    world.add_pod("7g.40gb")
    world.settle()
    held, small = web(world, "7g.40gb", **needs("data")), world.add_pod("1g.5gb")
    world.wait(400)
    assert world.dispatcher.longest_waiting.reserved is None or world.dispatcher.longest_waiting.reserved.uid == small
    assert held not in world.running()


def test_room_is_kept_where_only_pods_that_may_end_are_in_the_way(world):
    busy = web(world, "4g.20gb", **APART)
    world.settle()
    uid = web(world, "7g.40gb", **APART)
    world.wait(400)
    assert world.dispatcher.longest_waiting.reserved.uid == uid
    world.end_pod(busy)
    world.settle()
    assert uid in world.running()


def test_a_restarted_controller_counts_what_was_promised_before(two):
    first = web(two, **APART)
    two.settle(but="bind")
    two.begin()
    second = web(two, **APART)
    two.settle(but="bind")
    assert {two.on(first), two.on(second)} == {"a", "b"}


@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_and_goes_no_two_of_a_kind_share_a_node(seed):
    """And nothing that was counted stays: an empty cluster is as it was."""
    world = World(seed)
    for name in "abc":
        world.add_node(name)
    uids = []
    for _ in range(30):
        if world.rng.random() < 0.6:
            uids.append(web(world, **APART))
        elif uids:
            uid = uids.pop(world.rng.randrange(len(uids)))
            world.delete_pod(uid)
        if world.rng.random() < 0.2:
            world.begin()
        world.settle() if world.rng.random() < 0.5 else world.dispatcher.decide()
        nodes = [world.on(uid) for uid in uids if world.on(uid)]
        assert len(nodes) == len(set(nodes))
    world.settle()
    assert len(world.running()) == min(3, len(uids))
    for uid in uids:
        world.delete_pod(uid)
    world.settle()
    filters = world.dispatcher.state.filters
    assert not filters._anti_affinity
    assert not filters._pods._pods
    assert not filters._pods._of


def test_a_pod_that_uses_none_of_this_costs_nothing(world):
    uid = world.add_pod("1g.5gb")
    world.settle()
    filters = world.dispatcher.state.filters
    assert filters.for_pod(world.pods[uid]) is filters._free


def test_the_same_wish_is_one_shape_and_another_is_another(world):
    shapes = world.dispatcher.state.filters.shape
    pods = {
        name: world.pods[uid]
        for name, uid in {
            "plain": web(world),
            "alike": web(world),
            "label that nobody looks at": web(world, labels={"app": "x"}),
            "apart": web(world, **APART),
            "claim": web(world, **needs("data")),
            "other claim": web(world, **needs("more")),
            "port": world.add_pod("1g.5gb", containers=opens(1)),
        }.items()
    }
    before = shapes(pods["plain"])
    assert before == shapes(pods["alike"])
    assert len({shapes(pods[name]) for name in ("plain", "claim", "other claim", "port")}) == 4
    assert shapes(pods["label that nobody looks at"]) != before, "somebody waits who looks at the label app"
    fresh = World()
    a, b = web(fresh), web(fresh, labels={"app": "x"})
    assert fresh.dispatcher.state.filters.shape(fresh.pods[a]) == fresh.dispatcher.state.filters.shape(fresh.pods[b])


def test_a_pod_that_was_deleted_before_it_ran_is_in_nobodys_way(world):
    """A finalizer keeps it for a while, its slices are given back at once."""
    first = web(world, **APART)
    world.dispatcher.decide()
    assert world.on(first) == "a"
    world.mark_pod(first)
    second = web(world, **APART)
    world.settle()
    assert world.running() == [second]


def test_a_node_that_moves_to_another_zone_is_counted_there(two):
    def move(name, zone):
        node = two.nodes[name]
        meta = msgspec.structs.replace(node.metadata, labels={**node.metadata.labels, ZONE: zone})
        two.change_node(msgspec.structs.replace(node, metadata=meta))

    move("a", "x")
    move("b", "x")
    there(two, labels={"app": "web"}, node="a")
    fast = {"node_selector": {HOST: "a"}}
    only_a = spec(topologySpreadConstraints=[spread(app="web", nodeAffinityPolicy="Ignore")])
    first = two.add_pod("1g.5gb", labels={"app": "web"}, **only_a, **fast)
    two.settle()
    assert two.on(first) == "a", "there is one zone"
    move("b", "y")
    second = two.add_pod("1g.5gb", labels={"app": "web"}, **only_a, **fast)
    two.settle()
    assert two.on(second) is None
