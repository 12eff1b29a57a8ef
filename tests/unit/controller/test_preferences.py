"""What a pod prefers decides between GPUs that are equally good, and nothing else."""

import msgspec
import pytest
from fitting import neighbour, node, term
from test_filters import spec
from world import World

from instaslice.controller.scheduling.assigned_pods import AssignedPods
from instaslice.controller.scheduling.preferences import preferred, scores
from instaslice.kube.core import NodeSpec

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
SOFT = {"taints": [{"key": "team", "effect": "PreferNoSchedule"}]}
NODES = [
    node("a1", labels={HOST: "a1", ZONE: "a", "disk": "fast"}),
    node("a2", labels={HOST: "a2", ZONE: "a"}),
    node("b1", labels={HOST: "b1", ZONE: "b"}),
]


def likes(key, *values, weight=1):
    line = {"key": key, "operator": "In", "values": list(values)}
    wish = [{"weight": weight, "preference": {"matchExpressions": [line]}}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wish}}


def towards(kind, key=HOST, weight=1, **labels):
    wish = [{"weight": weight, "podAffinityTerm": term(key, **labels)}]
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": wish}}


def anyway(key):
    rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway"}
    return {"topologySpreadConstraints": [rule | {"labelSelector": {"matchLabels": {"app": "web"}}}]}


WEB = neighbour("web", {"app": "web"})


@pytest.mark.parametrize(
    "fields, there, best",
    [
        pytest.param({"affinity": likes("disk", "fast")}, None, ["a1"], id="a label"),
        pytest.param({"affinity": likes(ZONE, "c")}, None, ["a1", "a2", "b1"], id="a label that none has"),
        pytest.param({"affinity": likes(ZONE, "b", weight=9)}, None, ["b1"], id="a zone"),
        pytest.param({"affinity": towards("podAffinity", app="web")}, "a2", ["a2"], id="near a pod"),
        pytest.param({"affinity": towards("podAffinity", ZONE, app="web")}, "a2", ["a1", "a2"], id="in its zone"),
        pytest.param({"affinity": towards("podAntiAffinity", ZONE, app="web")}, "a2", ["b1"], id="away from it"),
        pytest.param({"affinity": towards("podAntiAffinity", app="no")}, "a2", ["a1", "a2", "b1"], id="from nobody"),
        pytest.param(anyway(ZONE), "a1", ["b1"], id="spread over zones"),
        pytest.param(anyway(HOST), "a1", ["a2", "b1"], id="spread over nodes"),
        pytest.param(
            {"affinity": {**likes("disk", "fast"), **towards("podAntiAffinity", app="web")}, **anyway(HOST)},
            "a1",
            ["a2", "b1"],
            id="two wishes against one",
        ),
    ],
)
def test_which_nodes_a_pod_likes_best(fields, there, best):
    pod, pods = neighbour("mine", {"app": "web"}, **fields), AssignedPods()
    if there:
        pods.assign(WEB, there)
    assert preferred(pod)
    found = scores(pod, NODES, pods, {})
    assert [name for name, score in found.items() if score == pytest.approx(max(found.values()))] == best


def test_a_taint_that_asks_to_stay_away_is_heeded_unless_it_is_tolerated():
    nodes = [node("a1", **SOFT), node("a2")]
    found = scores(neighbour("mine"), nodes, AssignedPods(), {})
    assert found["a2"] > found["a1"]
    tolerant = neighbour("mine", tolerations=[{"key": "team", "operator": "Exists"}])
    found = scores(tolerant, nodes, AssignedPods(), {})
    assert found["a2"] == found["a1"]


def test_a_pod_without_wishes_is_not_asked():
    assert not preferred(neighbour("mine"))


@pytest.fixture
def two():
    world = World()
    for name in "ab":
        world.add_node(name)
    return world


def add(world, profile="1g.5gb", **fields):
    uid = world.add_pod(profile, labels={"app": "web"}, **spec(**fields))
    world.settle()
    return uid


@pytest.mark.parametrize("node", ["a", "b"])
def test_between_gpus_that_are_equally_good_the_pod_decides(two, node):
    assert two.on(add(two, affinity=likes(HOST, node))) == node


@pytest.mark.parametrize("node", ["a", "b"])
def test_also_with_several_slices(two, node):
    uid = two.add_pod("1g.5gb", "2g.10gb", **spec(affinity=likes(HOST, node)))
    two.settle()
    assert two.on(uid) == node


def test_replicas_that_would_rather_not_share_a_node_do_not():
    world = World()
    for name in "abc":
        world.add_node(name, gpus=1)
    uids = [add(world, "7g.40gb", affinity=towards("podAntiAffinity", app="web")) for _ in range(3)]
    assert sorted(map(world.on, uids)) == ["a", "b", "c"]


def test_a_node_that_asks_to_stay_away_comes_last(two):
    tainted = msgspec.structs.replace(two.nodes["a"], spec=msgspec.convert(SOFT, NodeSpec))
    two.change_node(tainted)
    assert two.on(add(two)) == "b"
    two.change_node(msgspec.structs.replace(tainted, spec=NodeSpec()))
    assert not two.dispatcher.state.filters._avoided
