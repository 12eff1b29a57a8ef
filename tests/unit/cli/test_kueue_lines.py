"""What `instaslice explain` prints of a pod, a Job or a Workload that Kueue holds."""

import dataclasses
from datetime import timedelta

import msgspec
import pytest
from kueue_objects import IN_USE, MEMORY, cluster_queue, kueue, local_queue, said, workload
from memory_server import MemoryServer
from small_worlds import NOW, pod, world

from instaslice.api.instaslice import INSTASLICES
from instaslice.api.names import GATE
from instaslice.cli.explain import look
from instaslice.cli.terminal import explanations
from instaslice.cli.terminal.held_workloads import find_workload, held_without_pods, hold_of_owner, pods_of_workload
from instaslice.cli.terminal.kueue_lines import kueue_lines
from instaslice.controller.explain import Explainer
from instaslice.controller.explanation import Stage
from instaslice.controller.fleet_status import fleet_status
from instaslice.controller.quoted_condition import QuotedConditions
from instaslice.errors import BadInput
from instaslice.kube.core import PODS
from instaslice.kube.meta import ObjectMeta, OwnerReference
from instaslice.kueue.hold import KueueHolds
from instaslice.kueue.objects import CLUSTER_QUEUES, KUEUE_WORKLOADS, LOCAL_QUEUES
from instaslice.kueue.snapshot import KueueSnapshot
from instaslice.placement import policies

KUEUE_GATE = "kueue.x-k8s.io/admission"
ASKS = {MEMORY: "5", "cpu": "1"}
OWN = {"apiVersion": "v1", "kind": "Pod", "name": "w", "uid": "uid-w"}
QUOTA = [cluster_queue(mem=20, used=20)]


def held(name="w", *, gates=(GATE, KUEUE_GATE), profiles=("1g.5gb",), owner=None):
    made = pod(name, *profiles, gates=gates, phase="Pending", age=60)
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    owners = [OwnerReference("batch/v1", "Job", *owner, controller=True)] if owner else []
    return msgspec.structs.replace(
        made, metadata=msgspec.structs.replace(made.metadata, labels=labels, owner_references=owners)
    )


HERE = kueue(
    workload("first", age=300, why="other", requests=ASKS),
    workload("w", why=IN_USE, requests=ASKS, owner=OWN),
    workload("runs", age=7200, admitted={MEMORY: "20"}),
    queues=QUOTA,
)


def lines(here, name="w"):
    found = next(each for each in here.workloads if each.metadata.name == f"job-{name}")
    return list(kueue_lines(KueueHolds(here, NOW).of(found), NOW))


def test_a_workload_that_waits_for_quota():
    assert lines(HERE) == [
        "  kueue     Workload team-a/job-w (Pod w): pending, for 60 s",
        "  queue     LocalQueue team -> ClusterQueue gpus",
        "  position  2 of 2 in ClusterQueue gpus, behind team-a/job-first (whoever fits passes)",
        "  requests  gpu.das.com/mem 5, cpu 1",
        "  quota     gpu.das.com/mem of flavor any: 20 of 20 in use",
        "  held by   Workload team-a/job-runs (Job runs): gpu.das.com/mem 20 of ClusterQueue gpus, for 2 h",
    ]


BORROWS = [
    cluster_queue(mem=20, used=25, borrowed=5, cohortName="lab", borrowing_limit=10),
    cluster_queue("lends", mem=40, used=30, cohortName="lab"),
]
CHECKED = {
    "admission": {"clusterQueue": "gpus"},
    "admissionChecks": [
        {"name": "fits", "state": "Pending", "message": "no room", "lastTransitionTime": NOW.isoformat()},
        {"name": "paid", "state": "Ready"},
    ],
}
LATER = {"requeueState": {"count": 2, "requeueAt": (NOW + timedelta(seconds=90)).isoformat()}}
EVICTED = [said("Evicted", "True", "Preempted", "Preempted to accommodate a workload", ago=30)]
MANY = [workload(f"h{number}", admitted={MEMORY: "1"}) for number in range(8)]
BEHIND = [workload(f"a{number}", age=900 - number) for number in range(5)]


@pytest.mark.parametrize(
    "here, line",
    [
        pytest.param(
            kueue(workload("w", why=IN_USE, requests=ASKS), queues=BORROWS),
            "  quota     gpu.das.com/mem of flavor any: 25 of 20 in use, 5 of it borrowed, may borrow 10; 55 of 60 in "
            "all 2 ClusterQueues of cohort lab",
            id="what is borrowed, and what the cohort has",
        ),
        pytest.param(
            kueue(workload("w", why=IN_USE, requests=ASKS), queues=BORROWS),
            "  queue     LocalQueue team -> ClusterQueue gpus, cohort lab",
            id="the cohort",
        ),
        pytest.param(
            kueue(workload("w", status=CHECKED)), "  check     fits is Pending, for 0 s: no room", id="checks"
        ),
        pytest.param(kueue(workload("w", status=CHECKED)), "  check     paid is Ready", id="a check that is ready"),
        pytest.param(
            kueue(workload("w", status=LATER)),
            "  requeued  in 90 s, at 2026-11-16T12:01:30+00:00",
            id="when it is tried again",
        ),
        pytest.param(
            kueue(workload("w", conditions=EVICTED)),
            "  evicted   30 s ago, Preempted: Preempted to accommodate a workload",
            id="why it lost its quota",
        ),
        pytest.param(
            kueue(workload("w", why=IN_USE, requests=ASKS), *MANY),
            "  held by   3 more: -o json names them",
            id="more holders than are printed",
        ),
        pytest.param(
            kueue(workload("w"), *BEHIND, queues=[cluster_queue(queueingStrategy="StrictFIFO")]),
            "  position  6 of 6 in ClusterQueue gpus, behind team-a/job-a0, team-a/job-a1, team-a/job-a2 and 2 more "
            "(the first keeps all others back)",
            id="a queue that lets nobody pass",
        ),
        pytest.param(
            kueue(workload("w"), queues=[cluster_queue(admissionScope={"admissionMode": "x"})]),
            "  position  1 wait in ClusterQueue gpus; who is next depends on what its LocalQueues have used",
            id="a queue whose order no object tells",
        ),
        pytest.param(
            kueue(workload("w", alone=True)), "  kueue     Workload team-a/job-w: pending, for 60 s", id="alone"
        ),
        pytest.param(
            kueue(workload("w"), not_read=["Kueue's clusterqueues may not be listed"]),
            "  left out  Kueue's clusterqueues may not be listed",
            id="what may not be read",
        ),
    ],
)
def test_a_line_about_a_workload(here, line):
    assert line in lines(here)


def test_a_workload_that_is_not_queued_again_yet_has_no_position():
    off = workload("w", conditions=[said("Requeued", "False", "ClusterQueueStopped")])
    assert not any(each.startswith("  position") for each in lines(kueue(off, workload("other"))))


def test_a_pod_that_kueue_holds_is_said_to_be_and_why(capsys):
    here = world([held()])
    explanation = Explainer(here, policies.named("adaptive"), KueueHolds(HERE, NOW)).explain(here.pods[0])
    explanations.text(explanation, NOW)
    assert capsys.readouterr().out.splitlines() == [
        "pod team-a/w: held by Kueue, for 60 s",
        "  asks for  1 x 1g.5gb",
        f"  held by Kueue, 2nd of 2 in ClusterQueue gpus: {IN_USE}",
        *lines(HERE),
    ]


@pytest.mark.parametrize(
    "found, holds, stage, message",
    [
        pytest.param(held(), None, Stage.HELD_BY_KUEUE, "held by Kueue, in LocalQueue team", id="Kueue was not asked"),
        pytest.param(
            held(gates=[KUEUE_GATE]),
            None,
            Stage.HELD_BY_KUEUE,
            "held by Kueue, in LocalQueue team",
            id="our gate is not there",
        ),
        pytest.param(
            held(gates=[GATE, KUEUE_GATE, "example.com/quota"]),
            None,
            Stage.HELD_BY_KUEUE,
            "held by Kueue, in LocalQueue team; waits for other gates too: example.com/quota",
            id="another gate too",
        ),
        pytest.param(
            held(gates=[GATE, KUEUE_GATE, "example.com/quota"]),
            KueueHolds(kueue(workload("w", owner=OWN)), NOW),
            Stage.HELD_BY_KUEUE,
            "held by Kueue, 1st of 1 in ClusterQueue gpus: not considered yet; waits for other gates too: "
            "example.com/quota",
            id="another gate too, and Kueue was asked",
        ),
        pytest.param(
            held(gates=["kueue.x-k8s.io/topology", GATE]),
            KueueHolds(kueue(workload("w", owner=OWN, admitted=ASKS)), NOW),
            Stage.HELD_BY_KUEUE,
            "admitted by Kueue in ClusterQueue gpus; its gate kueue.x-k8s.io/topology is about to be removed: if it "
            "stays, does Kueue run?",
            id="admitted a moment ago",
        ),
        pytest.param(
            held(profiles=()),
            None,
            Stage.NOT_OURS,
            f"asks for no slices but has the gate {GATE}, which nobody will remove; create it without the gate",
            id="a pod without slices is not ours, whoever holds it",
        ),
    ],
)
def test_the_stage_and_the_message_of_a_held_pod(found, holds, stage, message):
    for explainer in (
        Explainer(world([found]), policies.named("adaptive"), holds),
        QuotedConditions(world([found]), "", holds),
    ):
        explanation = explainer.explain(found)
        assert (explanation.stage, explanation.message) == (stage, message)


def test_a_held_pod_without_slices_is_told_what_kueue_says():
    found = held(gates=[KUEUE_GATE], profiles=())
    explanation = Explainer(world([found]), policies.named("adaptive"), KueueHolds(HERE, NOW)).explain(found)
    assert explanation.stage is Stage.NOT_OURS
    assert explanation.kueue.message == IN_USE


def test_pods_that_kueue_holds_have_no_position_in_our_queue_and_come_after_it():
    ours = pod("ours", "7g.40gb", gates=[GATE], phase="Pending", age=1)
    found = fleet_status(world([held(), ours]), policies.named("adaptive"), KueueHolds(HERE, NOW)).waiting
    assert [(each.pod, each.stage, each.position) for each in found] == [
        ("team-a/ours", Stage.WAITING, 1),
        ("team-a/w", Stage.HELD_BY_KUEUE, None),
    ]
    assert found[1].message == f"held by Kueue, 2nd of 2 in ClusterQueue gpus: {IN_USE}"


def test_who_may_not_list_nodes_is_told_of_kueue_all_the_same():
    here = dataclasses.replace(world([held()]), forbidden=["nodes"])
    (found,) = fleet_status(here, policies.named("adaptive"), KueueHolds(HERE, NOW)).waiting
    assert (found.stage, found.position) == (Stage.HELD_BY_KUEUE, None)
    assert found.message.startswith("held by Kueue, 2nd of 2")


JOB = ObjectMeta(namespace="team-a", name="w", uid="uid-w", labels={"kueue.x-k8s.io/queue-name": "team"})


@pytest.mark.parametrize(
    "here, owner, suspended, headline",
    [
        pytest.param(HERE, JOB, True, f"held by Kueue, 2nd of 2 in ClusterQueue gpus: {IN_USE}", id="a Job"),
        pytest.param(
            kueue(),
            JOB,
            True,
            "held by Kueue, in LocalQueue team: no Workload of it exists; does Kueue run, and does it manage each Job? "
            "Its log says why it made none",
            id="a suspended Job without a Workload",
        ),
        pytest.param(kueue(), JOB, False, None, id="a Job that nobody holds"),
        pytest.param(kueue(), msgspec.structs.replace(JOB, labels={}), True, None, id="a Job that its user suspended"),
        pytest.param(None, msgspec.structs.replace(JOB, labels={}), True, None, id="a cluster without Kueue"),
    ],
)
def test_what_kueue_says_of_a_job(here, owner, suspended, headline):
    found = hold_of_owner(here, KueueHolds(here, NOW), owner, "Job", suspended=suspended)
    assert (found.headline if found else None) == headline


SLICE = [{"nvidia.com/mig-1g.5gb": "1"}]


@pytest.mark.parametrize("namespace, named", [("team-a", "job/train"), (None, "job/train -n team-a"), ("b", None)])
def test_jobs_without_pods_are_named_where_all_that_waits_is_listed(namespace, named):
    here = kueue(
        workload("train", limits=SLICE),
        workload("runs", limits=SLICE, admitted=ASKS),
        workload("cpu", limits=[{"cpu": "1"}]),
        workload("w", limits=SLICE, owner=OWN),
        workload("alone", limits=SLICE, alone=True),
    )
    assert held_without_pods(here, namespace) == ([named] if named else [])
    assert held_without_pods(None, namespace) == []


def test_the_pods_of_a_workload_are_its_owners_or_what_its_owner_created():
    pods = [held("w"), held("made", owner=("train", "uid-train")), held("other")]
    workloads = [workload("w", owner=OWN), workload("train")]
    found = [[pod.metadata.name for pod in pods_of_workload(world(pods), each)] for each in workloads]
    assert found == [["w"], ["made"]]


@pytest.mark.parametrize(
    "here, message",
    [
        (None, "the cluster has no Workloads: Kueue is not installed there"),
        (KueueSnapshot(workloads=None, not_read=["grant it"]), "grant it"),
        (HERE, "no Workload w in namespace team-a; did you mean job-w"),
        (kueue(), "no Workload w in namespace team-a; kubectl get workloads -n team-a"),
    ],
)
def test_a_workload_that_is_not_there(here, message):
    with pytest.raises(BadInput, match=message):
        find_workload(here, "team-a", "w")


def serving(*pods, with_kueue=True):
    """An API server with Kueue's objects, if it serves any."""
    server = MemoryServer(now=lambda: NOW)
    for each in pods:
        server.put(PODS, each)
    if with_kueue:
        for each in HERE.workloads:
            server.put(KUEUE_WORKLOADS, each)
        server.put(LOCAL_QUEUES, local_queue())
        server.put(CLUSTER_QUEUES, QUOTA[0])
    else:
        server.refuse("GET", "", 404, times=9)
    return server


async def test_kueue_is_read_where_it_holds_a_pod():
    server = serving(held())
    seen = await look(server.client(), "team-a", "adaptive")
    assert seen.explainer.explain(held()).kueue.position == 2
    assert INSTASLICES.plural in [each.kind for each in server.calls]


async def test_kueue_is_not_read_where_it_holds_nothing():
    server = serving(pod("w", "1g.5gb", gates=[GATE]))
    await look(server.client(), "team-a", "adaptive")
    assert KUEUE_WORKLOADS.plural not in [each.kind for each in server.calls]


async def test_a_cluster_without_kueue_is_told_apart_from_one_whose_kueue_may_not_be_read():
    absent = serving(held(), with_kueue=False)
    seen = await look(absent.client(), "team-a", "adaptive")
    assert "serves none of Kueue's objects" in seen.explainer.explain(held()).message
    refusing = serving(held())
    for kind in ("workloads", "localqueues", "clusterqueues"):
        refusing.refuse("GET", kind, 403)
    explained = (await look(refusing.client(), None, "adaptive")).explainer.explain(held())
    assert explained.message == "held by Kueue, in LocalQueue team: its Workload may not be read"
    assert explained.kueue.not_read == [
        f"Kueue's {kind} may not be listed (403 Forbidden): grant `list` on {kind}.kueue.x-k8s.io"
        for kind in ("workloads", "localqueues", "clusterqueues")
    ]


async def test_who_may_read_one_namespace_is_told_all_but_the_position():
    server = serving(held())
    for kind in ("workloads", "localqueues"):
        server.refuse("GET", kind, 403)
    found = (await look(server.client(), "team-a", "adaptive")).explainer.explain(held()).kueue
    assert (found.message, found.position, found.cluster_queue) == (IN_USE, None, "gpus")
    assert found.not_read == [
        f"Kueue's {kind} of other namespaces may not be listed (403 Forbidden): grant `list` on {kind}.kueue.x-k8s.io "
        "in the whole cluster"
        for kind in ("workloads", "localqueues")
    ]
