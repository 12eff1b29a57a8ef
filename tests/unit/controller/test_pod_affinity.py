"""Required affinity and anti-affinity between pods, in both directions."""

import pytest
from fitting import neighbour, node, term, towards

from instaslice.controller.scheduling.assigned_pods import AssignedPods
from instaslice.controller.scheduling.pod_affinity import AntiAffinityTerms, pre_filter

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
NODES = {
    "a1": node("a1", labels={HOST: "a1", ZONE: "a"}),
    "a2": node("a2", labels={HOST: "a2", ZONE: "a"}),
    "b1": node("b1", labels={HOST: "b1", ZONE: "b"}),
    "bare": node("bare"),
}
NAMESPACES = {"n": {"team": "x"}, "other": {"team": "y"}}


def admitted(pod, *there, emptied=False):
    """The nodes that take the pod beside those that are `there`, as (pod, node)."""
    pods, terms = AssignedPods(), AntiAffinityTerms()
    for other, name in there:
        pods.assign(other, name)
        terms.add(other, name)
    verdict = pre_filter(pod, pods, terms, NODES, NAMESPACES)
    if verdict is None:
        return list(NODES)
    return [name for name, each in NODES.items() if verdict.refusal(each, emptied=emptied) is None]


def wants(*terms, labels=None, **more):
    return neighbour("mine", labels or {"app": "mine"}, **towards("podAffinity", *terms), **more)


def avoids(*terms, labels=None, **more):
    return neighbour("mine", labels or {"app": "mine"}, **towards("podAntiAffinity", *terms), **more)


DB = neighbour("db", {"app": "db"})
ELSEWHERE = neighbour("db2", {"app": "db"}, namespace="other")


@pytest.mark.parametrize(
    "pod, there, nodes",
    [
        pytest.param(wants(term(app="db")), [(DB, "a1")], ["a1"], id="beside it"),
        pytest.param(wants(term(ZONE, app="db")), [(DB, "a1")], ["a1", "a2"], id="in its zone"),
        pytest.param(wants(term(app="db")), [], [], id="beside none that is there"),
        pytest.param(wants(term(app="db")), [(ELSEWHERE, "a1")], [], id="only of its own namespace"),
        pytest.param(
            wants(term(app="db", namespaces=["other"])), [(ELSEWHERE, "a1")], ["a1"], id="of one that is named"
        ),
        pytest.param(
            wants(term(app="db", selecting={"matchLabels": {"team": "y"}})),
            [(ELSEWHERE, "a1"), (DB, "b1")],
            ["a1"],
            id="of one that is selected",
        ),
        pytest.param(wants(term(app="db", selecting={})), [(ELSEWHERE, "a1"), (DB, "b1")], ["a1", "b1"], id="of any"),
        pytest.param(
            wants(term(app="db"), term(ZONE, tier="x")),
            [(DB, "a1"), (neighbour("t", {"tier": "x"}), "a2")],
            [],
            id="one pod has to be all that is wanted",
        ),
        pytest.param(
            wants(term(app="db"), term(ZONE, tier="x")),
            [(neighbour("t", {"app": "db", "tier": "x"}), "a2")],
            ["a2"],
            id="and is",
        ),
        pytest.param(wants(term(app="mine")), [], ["a1", "a2", "b1"], id="the first of a series"),
        pytest.param(wants(term(ZONE, app="mine")), [(DB, "a1")], ["a1", "a2", "b1"], id="the first, where others are"),
        pytest.param(wants(term(ZONE, app="mine")), [(neighbour("m", {"app": "mine"}), "b1")], ["b1"], id="the second"),
        pytest.param(
            wants(term(app="mine"), term(app="db")), [], [], id="a series that wants another too has no first"
        ),
        pytest.param(avoids(term(app="db")), [(DB, "a1")], ["a2", "b1", "bare"], id="not beside it"),
        pytest.param(avoids(term(ZONE, app="db")), [(DB, "a1")], ["b1", "bare"], id="not in its zone"),
        pytest.param(avoids(term(ZONE, app="db")), [(DB, "bare")], list(NODES), id="a node of no zone is in none"),
        pytest.param(avoids(term(app="db")), [(DB, "gone")], list(NODES), id="a node that is gone"),
        pytest.param(avoids(term(app="db")), [(ELSEWHERE, "a1")], list(NODES), id="none of its namespace"),
        pytest.param(
            avoids(term(app="db"), term(ZONE, app="web")),
            [(DB, "a1"), (neighbour("w", {"app": "web"}), "b1")],
            ["a2", "bare"],
            id="either keeps it away",
        ),
        pytest.param(
            neighbour("mine", {"app": "mine"}),
            [(neighbour("r", **towards("podAntiAffinity", term(ZONE, app="mine"))), "a1")],
            ["b1", "bare"],
            id="one that is there does not want it near",
        ),
        pytest.param(
            neighbour("mine", {"app": "mine"}),
            [(neighbour("r", namespace="other", **towards("podAntiAffinity", term(app="mine"))), "a1")],
            list(NODES),
            id="one of another namespace means its own",
        ),
        pytest.param(
            neighbour("mine", {"app": "mine"}),
            [
                (
                    neighbour(
                        "r",
                        namespace="other",
                        **towards("podAntiAffinity", term(app="mine", selecting={"matchLabels": {"team": "x"}})),
                    ),
                    "a1",
                )
            ],
            ["a2", "b1", "bare"],
            id="or selects this one",
        ),
    ],
)
def test_where_a_pod_may_go(pod, there, nodes):
    assert admitted(pod, *there) == nodes


def test_a_pod_is_not_in_its_own_way():
    pod = avoids(term(ZONE, app="mine"))
    assert admitted(pod, (pod, "a1")) == list(NODES)


def test_on_a_node_that_is_emptied_only_those_elsewhere_count():
    pod = avoids(term(app="db"), term(ZONE, app="web"))
    web = neighbour("w", {"app": "web"})
    assert admitted(pod, (DB, "b1"), (web, "a1")) == ["bare"]
    assert admitted(pod, (DB, "b1"), (web, "a1"), emptied=True) == ["a1", "b1", "bare"]


@pytest.mark.parametrize(
    "pod, name, words",
    [
        pytest.param(avoids(term(app="db")), "a1", "pod anti-affinity with pods app=db already there", id="away"),
        pytest.param(wants(term(ZONE, app="no")), "a1", f"pod affinity: no pods app=no (same {ZONE})", id="near"),
        pytest.param(wants(term(ZONE, app="db")), "bare", f"pod affinity: the node has no label {ZONE}", id="nowhere"),
    ],
)
def test_what_is_said(pod, name, words):
    pods, terms = AssignedPods(), AntiAffinityTerms()
    pods.assign(DB, "a1")
    assert pre_filter(pod, pods, terms, NODES, NAMESPACES).refusal(NODES[name]) == words


def test_a_thousand_replicas_object_once():
    terms = AntiAffinityTerms()
    replicas = [neighbour(f"r{n}", **towards("podAntiAffinity", term(app="mine"))) for n in range(1000)]
    for each in replicas:
        terms.add(each, "a1")
    assert len(list(terms.against(neighbour("mine", {"app": "mine"}), {}))) == 1
    for each in replicas:
        terms.remove(each)
    assert not terms
    assert not terms._by_label
