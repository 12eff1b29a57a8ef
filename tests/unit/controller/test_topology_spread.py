"""DoNotSchedule: over which nodes it is counted, who counts, and what is too much."""

import pytest
from fitting import affinity, neighbour, node

from instaslice.controller.scheduling.assigned_pods import AssignedPods
from instaslice.controller.scheduling.topology_spread import SpreadDomains, pre_filter

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
TAINT = {"taints": [{"key": "team", "effect": "NoSchedule"}]}


def at(name, zone, **spec):
    return node(name, labels={HOST: name, "fast": "yes", **({ZONE: zone} if zone else {})}, **spec)


NODES = {each.metadata.name: each for each in (at("a1", "a"), at("a2", "a"), at("b1", "b"), at("c1", "c"))}


def spread(key=ZONE, skew=1, app="mine", when="DoNotSchedule", **more):
    labels = {"labelSelector": {"matchLabels": {"app": app} if app else {}}}
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, **labels, **more}


def mine(*constraints, labels=None, **spec):
    return neighbour("mine", labels or {"app": "mine"}, topologySpreadConstraints=list(constraints), **spec)


def replica(number, **more):
    return neighbour(f"r{number}", {"app": "mine", "rev": "1"}, **more)


def admitted(pod, names, nodes=NODES, only=None, emptied=False, **more):
    pods = AssignedPods()
    for number, name in enumerate(names):
        pods.assign(replica(number, **more), name)
    verdict = pre_filter(pod, pods, SpreadDomains(nodes), only)
    return [name for name, each in nodes.items() if verdict is None or not verdict.refusal(each, emptied=emptied)]


@pytest.mark.parametrize(
    "pod, there, nodes",
    [
        pytest.param(mine(spread()), [], list(NODES), id="the first"),
        pytest.param(mine(spread()), ["a1"], ["b1", "c1"], id="the second"),
        pytest.param(mine(spread(skew=2)), ["a1"], list(NODES), id="two may be ahead"),
        pytest.param(mine(spread()), ["a1", "b1", "c1"], list(NODES), id="level again"),
        pytest.param(mine(spread(HOST)), ["a1"], ["a2", "b1", "c1"], id="over nodes"),
        pytest.param(mine(spread(when="ScheduleAnyway")), ["a1"], list(NODES), id="a wish"),
        pytest.param(mine(spread(), labels={"app": "x"}), ["a1"], list(NODES), id="it does not count itself"),
        pytest.param(mine(spread(), labels={"app": "x"}), ["a1", "a2"], ["b1", "c1"], id="but others"),
        pytest.param(mine(spread(app="")), ["a1", "a1"], list(NODES), id="a selector of everything counts nobody"),
        pytest.param(mine(spread("rack")), [], [], id="no node has the key"),
        pytest.param(mine(spread(minDomains=4)), ["a1"], ["b1", "c1"], id="fewer domains than wanted: none counts"),
        pytest.param(mine(spread(minDomains=4)), ["a1", "b1", "c1"], [], id="so that a fourth has to come"),
        pytest.param(
            mine(spread(minDomains=3)), ["a1", "b1", "c1"], ["a2"], id="as many as wanted, but pinned it has only one"
        ),
        pytest.param(mine(spread(skew=2, minDomains=3)), ["a1", "b1", "c1"], list(NODES), id="which two may share"),
        pytest.param(
            mine(spread(minDomains=3, nodeAffinityPolicy="Ignore")),
            ["a1", "b1", "c1"],
            list(NODES),
            id="as many as wanted where the pin does not count",
        ),
        pytest.param(
            mine(spread(), affinity=affinity([(ZONE, "In", "a", "b")])),
            ["a1", "b1"],
            list(NODES),
            id="a zone where it may not go does not count",
        ),
        pytest.param(
            mine(spread(nodeAffinityPolicy="Ignore"), affinity=affinity([(ZONE, "In", "a", "b")])),
            ["a1", "b1"],
            ["c1"],
            id="unless it says so",
        ),
        pytest.param(
            mine(spread(), nodeSelector={"fast": "no"}), ["a1"], list(NODES), id="where no node counts all is level"
        ),
        pytest.param(mine(spread(), spread(HOST)), ["a1", "b1", "c1"], ["a2"], id="both have to hold"),
        pytest.param(
            mine(spread(matchLabelKeys=["rev"]), labels={"app": "mine", "rev": "2"}),
            ["a1"],
            list(NODES),
            id="another revision is not counted",
        ),
        pytest.param(
            mine(spread(matchLabelKeys=["rev"]), labels={"app": "mine", "rev": "1"}),
            ["a1"],
            ["b1", "c1"],
            id="the same is",
        ),
        pytest.param(
            mine(spread(matchLabelKeys=["rev"])), ["a1"], ["b1", "c1"], id="a label that it lacks means nothing"
        ),
    ],
)
def test_where_a_pod_may_go(pod, there, nodes):
    assert admitted(pod, there) == nodes


TAINTED = {**NODES, "c1": at("c1", "c", **TAINT)}


@pytest.mark.parametrize(
    "constraint, tolerations, nodes",
    [
        pytest.param(spread(), [], ["c1"], id="a tainted node counts"),
        pytest.param(spread(nodeTaintsPolicy="Honor"), [], list(NODES), id="unless it says so"),
        pytest.param(
            spread(nodeTaintsPolicy="Honor"), [{"key": "team", "operator": "Exists"}], ["c1"], id="a taint it tolerates"
        ),
    ],
)
def test_whether_a_tainted_node_counts(constraint, tolerations, nodes):
    assert admitted(mine(constraint, tolerations=tolerations), ["a1", "b1"], TAINTED) == nodes


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"deleted": True}, id="one that is being deleted"),
        pytest.param({"namespace": "other"}, id="one of another namespace"),
    ],
)
def test_who_is_not_counted(more):
    assert admitted(mine(spread()), ["a1"], **more) == list(NODES)


def test_a_node_without_the_key_of_another_constraint_does_not_count():
    nodes = {**NODES, "odd": at("odd", "")}
    assert admitted(mine(spread(HOST), spread()), ["a1", "b1", "c1"], nodes) == ["a2"]
    assert "odd" not in admitted(mine(spread(HOST), spread()), [], nodes)


def test_once_pinned_it_is_level_in_its_one_domain_as_the_scheduler_sees_it():
    pod = mine(spread())
    assert "a1" not in admitted(pod, ["a1", "a2"])
    assert "a1" in admitted(pod, ["a1", "a2"], only="a1")
    assert "a1" not in admitted(mine(spread(nodeAffinityPolicy="Ignore")), ["a1", "a2"], only="a1")


def test_a_pod_does_not_count_itself_twice():
    pods, pod = AssignedPods(), mine(spread())
    pods.assign(pod, "a1")
    verdict = pre_filter(pod, pods, SpreadDomains(NODES))
    assert verdict.refusal(NODES["a1"]) is None


def test_pods_on_a_node_that_is_emptied_do_not_count():
    assert admitted(mine(spread(HOST)), ["a1"], emptied=True) == list(NODES)
    assert admitted(mine(spread()), ["a1"], emptied=True) == ["a1", "b1", "c1"]


def test_what_is_said():
    pods = AssignedPods()
    pods.assign(replica(1), "a1")
    told = pre_filter(mine(spread()), pods, SpreadDomains(NODES)).refusal(NODES["a2"])
    assert told == f"topology spread over {ZONE}: a has 1 such pods, the minimum is 0, max skew 1"


def test_domains_are_counted_anew_when_nodes_change():
    nodes, pods = dict(NODES), AssignedPods()
    pods.assign(replica(1), "a1")
    domains, pod = SpreadDomains(nodes), mine(spread(), labels={"app": "x"})
    assert pre_filter(pod, pods, domains).refusal(NODES["a1"]) is None
    del nodes["b1"], nodes["c1"]
    domains.clear()
    pods.assign(replica(2), "a1")
    assert pre_filter(pod, pods, domains).refusal(NODES["a1"]) is None, "the only zone"
