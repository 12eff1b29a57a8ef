"""Why Kueue holds a workload: its own reason, the position in the queue, the quota, and what would help."""

from datetime import timedelta

import msgspec
import pytest
from kueue_objects import IN_USE, MEMORY, NOT_COVERED, cluster_queue, kueue, local_queue, said, workload
from small_worlds import NOW, pod

from instaslice.kueue.hold import KueueHolds
from instaslice.kueue.snapshot import KueueSnapshot
from instaslice.kueue.workload_state import AdmissionState

NVIDIA = "nvidia.com/mig-1g.5gb"
ASKS = {MEMORY: "5", "cpu": "1"}
ELSEWHERE = "Workload namespace doesn't match ClusterQueue selector"
TOO_MUCH = (
    "couldn't assign flavors to pod set main: insufficient quota for gpu.das.com/mem in flavor any, "
    "previously considered podsets requests (0) + current podset request (40) > maximum capacity (20)"
)
OFF = said("Active", "False", "FlavorNotFound", "Can't admit new workloads: references missing ResourceFlavor(s): any.")
RESUME = '--type merge -p \'{"spec":{"stopPolicy":"None"}}\''


def hold(here, name="w"):
    found = next(each for each in here.workloads if each.metadata.name == f"job-{name}")
    return KueueHolds(here, NOW).of(found)


def refused(message, queue=None, **more):
    """A workload that Kueue does not admit, for that reason."""
    asks = more.pop("requests", ASKS)
    return kueue(workload("w", why=message, requests=asks, **more), queues=[queue or cluster_queue()])


@pytest.mark.parametrize(
    "here, headline",
    [
        pytest.param(
            refused(IN_USE), f"held by Kueue, 1st of 1 in ClusterQueue gpus: {IN_USE}", id="all of the quota is in use"
        ),
        pytest.param(
            refused(TOO_MUCH, requests={MEMORY: "40"}),
            f"held by Kueue, 1st of 1 in ClusterQueue gpus: {TOO_MUCH}; "
            "no workload that ends helps: ask for less, or raise the quota",
            id="more than the queue can ever give",
        ),
        pytest.param(
            refused(NOT_COVERED.format(NVIDIA), requests={NVIDIA: "1"}),
            f"held by Kueue, 1st of 1 in ClusterQueue gpus: {NOT_COVERED.format(NVIDIA)}; "
            f"ClusterQueue gpus has no quota of {NVIDIA}, and Kueue's configuration does not replace it by {MEMORY}; "
            "give Kueue the transformations that `instaslice kueue manifests --config` prints, and restart it",
            id="Kueue does not know what a profile costs",
        ),
        pytest.param(
            refused(NOT_COVERED.format("nvidia.com/mig-9g.99gb"), requests={"nvidia.com/mig-9g.99gb": "1"}),
            f"held by Kueue, 1st of 1 in ClusterQueue gpus: {NOT_COVERED.format('nvidia.com/mig-9g.99gb')}; "
            "ClusterQueue gpus has no quota of nvidia.com/mig-9g.99gb, and it is no profile of a known GPU; ask for "
            "one that exists: `instaslice status` shows the GPUs of the cluster",
            id="a profile that no GPU has",
        ),
        pytest.param(
            refused(NOT_COVERED.format("gpu.das.com/mig-1g.5gb"), requests={"gpu.das.com/mig-1g.5gb": "1"}),
            f"held by Kueue, 1st of 1 in ClusterQueue gpus: {NOT_COVERED.format('gpu.das.com/mig-1g.5gb')}; "
            "ClusterQueue gpus has no quota of gpu.das.com/mig-1g.5gb, and Kueue's configuration does not exclude "
            "gpu.das.com/mig-*; give Kueue the excluded prefix that `instaslice kueue manifests --config` prints, "
            "and restart it",
            id="Kueue counts what our webhook wrote",
        ),
        pytest.param(
            refused(NOT_COVERED.format(MEMORY), cluster_queue(covered=("cpu",))),
            f"held by Kueue, 1st of 1 in ClusterQueue gpus: {NOT_COVERED.format(MEMORY)}; ClusterQueue gpus has no "
            f"quota of {MEMORY}; add {MEMORY} to its coveredResources with a quota, as `instaslice kueue manifests` "
            "prints it",
            id="a queue for cpu alone",
        ),
        pytest.param(
            refused(NOT_COVERED.format("example.com/x"), requests={"example.com/x": "1"}),
            f"held by Kueue, 1st of 1 in ClusterQueue gpus: {NOT_COVERED.format('example.com/x')}; ClusterQueue gpus "
            "has no quota of example.com/x; add example.com/x to its coveredResources with a quota",
            id="a resource that is not ours",
        ),
        pytest.param(
            refused(ELSEWHERE, cluster_queue(namespaceSelector={"matchLabels": {"team": "b"}})),
            f"held by Kueue, 1st of 1 in ClusterQueue gpus: {ELSEWHERE}; ClusterQueue gpus does not take workloads of "
            "namespace team-a; label the namespace as its namespaceSelector says (team=b), or use a LocalQueue of "
            "another ClusterQueue",
            id="a queue for other namespaces",
        ),
        pytest.param(
            refused(
                ELSEWHERE,
                cluster_queue(
                    namespaceSelector={"matchExpressions": [{"key": "team", "operator": "In", "values": ["b", "c"]}]}
                ),
            ),
            f"held by Kueue, 1st of 1 in ClusterQueue gpus: {ELSEWHERE}; ClusterQueue gpus does not take workloads of "
            "namespace team-a; label the namespace as its namespaceSelector says (team In (b, c)), or use a "
            "LocalQueue of another ClusterQueue",
            id="a queue for other namespaces, by an expression",
        ),
        pytest.param(
            refused(ELSEWHERE, cluster_queue(namespaceSelector=None)),
            f"held by Kueue, 1st of 1 in ClusterQueue gpus: {ELSEWHERE}; ClusterQueue gpus does not take workloads of "
            "namespace team-a; it has no namespaceSelector, which selects none: an empty one ({}) selects all",
            id="a queue for no namespace",
        ),
        pytest.param(
            refused("ClusterQueue gpus is stopped", cluster_queue(stopPolicy="Hold"), reason="Inadmissible"),
            "held by Kueue, 1st of 1 in ClusterQueue gpus: ClusterQueue gpus is stopped (Hold); to resume it: kubectl "
            f"patch clusterqueue gpus {RESUME}",
            id="a stopped ClusterQueue",
        ),
        pytest.param(
            kueue(workload("w", requests=ASKS), local=[local_queue(stopPolicy="HoldAndDrain")]),
            "held by Kueue, 1st of 1 in ClusterQueue gpus: LocalQueue team is stopped (HoldAndDrain); to resume it: "
            f"kubectl patch localqueue team -n team-a {RESUME}",
            id="a stopped LocalQueue",
        ),
        pytest.param(
            refused("ClusterQueue gpus is inactive", cluster_queue(conditions=[OFF])),
            "held by Kueue, 1st of 1 in ClusterQueue gpus: ClusterQueue gpus is inactive (FlavorNotFound: Can't admit "
            "new workloads: references missing ResourceFlavor(s): any.); create what it names, or take it out of the "
            "queue",
            id="a queue whose flavor is missing",
        ),
        pytest.param(
            kueue(workload("w", queue="none", why="LocalQueue none doesn't exist", reason="Inadmissible")),
            "held by Kueue, in LocalQueue none: LocalQueue none does not exist in namespace team-a; create it, or name "
            "one of those that do (team)",
            id="no such LocalQueue, but another",
        ),
        pytest.param(
            kueue(workload("w"), local=[]),
            "held by Kueue, in LocalQueue team: LocalQueue team does not exist in namespace team-a; create it",
            id="no LocalQueue",
        ),
        pytest.param(
            kueue(workload("w"), queues=[]),
            "held by Kueue, in LocalQueue team: ClusterQueue gpus does not exist; create it, or name another in "
            "LocalQueue team",
            id="no ClusterQueue",
        ),
        pytest.param(
            kueue(
                workload(
                    "w",
                    spec={"active": False},
                    conditions=[said("Evicted", "True", "DeactivatedDueToRequeuingLimitExceeded", "5 times")],
                )
            ),
            "held by Kueue, in LocalQueue team: its Workload is deactivated (DeactivatedDueToRequeuingLimitExceeded: 5 "
            "times); to have it queued again: kubectl patch workload job-w -n team-a --type merge -p "
            '\'{"spec":{"active":true}}\'',
            id="deactivated after too many attempts",
        ),
        pytest.param(
            kueue(
                workload("w", spec={"active": False}, conditions=[said("Evicted", "True", "Preempted", "for another")])
            ),
            "held by Kueue, in LocalQueue team: its Workload is deactivated; to have it queued again: kubectl patch "
            'workload job-w -n team-a --type merge -p \'{"spec":{"active":true}}\'',
            id="deactivated by somebody, after it was preempted",
        ),
        pytest.param(
            kueue(workload("w")), "held by Kueue, 1st of 1 in ClusterQueue gpus: not considered yet", id="new"
        ),
        pytest.param(
            kueue(
                workload(
                    "w",
                    conditions=[said("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue gpus")],
                    status={
                        "admission": {"clusterQueue": "gpus"},
                        "admissionChecks": [
                            {"name": "fits", "state": "Pending", "message": "no GPU has room"},
                            {"name": "paid", "state": "Ready", "message": ""},
                        ],
                    },
                )
            ),
            "held by Kueue, with its quota in ClusterQueue gpus, until fits is ready; "
            "check fits is Pending: no GPU has room",
            id="an admission check",
        ),
        pytest.param(
            kueue(workload("w", admitted=ASKS)), "admitted by Kueue in ClusterQueue gpus", id="nothing holds it"
        ),
        pytest.param(
            kueue(
                workload(
                    "w",
                    conditions=[
                        said("Evicted", "True", "PodsReadyTimeout", "Exceeded the PodsReady timeout team-a/job-w"),
                        said("Requeued", "False", "PodsReadyTimeout", "the same"),
                    ],
                    why="the same",
                )
            ),
            "held by Kueue, in LocalQueue team: Exceeded the PodsReady timeout team-a/job-w",
            id="evicted, and not queued again yet",
        ),
        pytest.param(
            kueue(
                workload(
                    "w",
                    conditions=[
                        said(
                            "Evicted",
                            "True",
                            "AdmissionCheck",
                            'Evicted due to AdmissionCheck "fits" (no GPU has room)',
                        ),
                        said("Requeued", "False", "AdmissionCheck", "the same"),
                    ],
                    status={"admissionChecks": [{"name": "fits", "state": "Pending", "message": "no GPU has room"}]},
                    why="the same",
                )
            ),
            'held by Kueue, in LocalQueue team: Evicted due to AdmissionCheck "fits" (no GPU has room)',
            id="a check that let it try again, whose reason is said once",
        ),
    ],
)
def test_the_reason_in_one_sentence(here, headline):
    assert hold(here).headline == headline


@pytest.mark.parametrize(
    "message, asks, remedy",
    [
        pytest.param(
            TOO_MUCH, {MEMORY: "40"}, "no workload that ends helps: ask for less, or raise the quota", id="size"
        ),
        pytest.param(NOT_COVERED.format(MEMORY), ASKS, "add gpu.das.com/mem to its coveredResources", id="coverage"),
        pytest.param(ELSEWHERE, ASKS, "label the namespace as its namespaceSelector says, or use", id="namespace"),
        pytest.param(IN_USE, ASKS, "", id="quota in use"),
    ],
)
def test_what_would_help_is_said_to_who_may_not_read_the_queue(message, asks, remedy):
    here = KueueSnapshot([workload("w", why=message, requests=asks)], [local_queue()], None, whole=False)
    found = hold(here)
    assert found.remedy if remedy else not found.remedy
    assert remedy in found.remedy
    assert (found.quotas, found.held_by, found.position) == ([], [], None)


def test_a_message_that_names_no_resource_of_the_workload_is_no_missing_quota():
    """Kueue can be told to ignore what no queue covers; the workload then waits for something else."""
    here = refused(IN_USE, requests={**ASKS, "example.com/x": "1"})
    assert hold(here).remedy == ""


FIRST = workload("first", age=300)
OLD = workload("old", age=200)
NEW = workload("new", age=100)
URGENT = workload("urgent", age=10, spec={"priority": 1000})
TWIN = workload("twin", age=200)
BACK = workload("back", age=900, conditions=[said("Evicted", "True", "PodsReadyTimeout", ago=5)])
REFUSED = workload("refused", age=900, conditions=[said("Evicted", "True", "AdmissionCheck", ago=150)])
GAVE_BACK = workload("gave", age=900, conditions=[said("Preempted", "True", "InCohortReclaimWhileBorrowing", ago=150)])
PREEMPTED = workload("preempted", age=900, conditions=[said("Preempted", "True", "InClusterQueue", ago=150)])
WAITS = workload("waits", age=900, conditions=[said("Requeued", "False", "PodsReadyTimeout")])


@pytest.mark.parametrize(
    "there, order",
    [
        pytest.param([NEW, FIRST, OLD], ["first", "old", "new"], id="the oldest first"),
        pytest.param([FIRST, URGENT], ["urgent", "first"], id="priority before age"),
        pytest.param([TWIN, OLD], ["old", "twin"], id="of one age, by uid"),
        pytest.param([BACK, NEW], ["new", "back"], id="one whose pods were not ready in time queues at the end"),
        pytest.param([REFUSED, OLD, NEW], ["old", "refused", "new"], id="one that a check sent back, too"),
        pytest.param([GAVE_BACK, OLD, NEW], ["old", "gave", "new"], id="one that gave back what it borrowed, too"),
        pytest.param([PREEMPTED, OLD], ["preempted", "old"], id="one that was preempted keeps its age"),
        pytest.param([WAITS, OLD], ["old"], id="one that is not to be queued yet does not count"),
        pytest.param([workload("runs", age=900, admitted=ASKS), OLD], ["old"], id="one that is admitted does not"),
        pytest.param([workload("off", age=900, spec={"active": False}), OLD], ["old"], id="one that is off does not"),
        pytest.param([workload("else", age=900, queue="other"), OLD], ["old"], id="one of another queue does not"),
    ],
)
def test_the_position_in_the_queue(there, order):
    here = kueue(*there, local=[local_queue(), local_queue("other", "cpus")], queues=[cluster_queue()])
    found = {name: hold(here, name).position for name in order}
    assert found == {name: place for place, name in enumerate(order, 1)}
    assert {hold(here, name).pending for name in order} == {len(order)}


def test_a_position_counts_all_local_queues_of_a_cluster_queue_and_names_who_is_ahead():
    ages = {"a": 500, "b": 400, "c": 300, "d": 200, "w": 100}
    there = [workload(name, age=age, queue="other" if name == "b" else "team") for name, age in ages.items()]
    found = hold(kueue(*there, local=[local_queue(), local_queue("other")]))
    assert (found.position, found.pending) == (5, 5)
    assert found.ahead == ["team-a/job-a", "team-a/job-b", "team-a/job-c"]


@pytest.mark.parametrize(
    "here",
    [
        pytest.param(kueue(OLD, whole=False), id="who may read one namespace only"),
        pytest.param(
            kueue(OLD, queues=[cluster_queue(admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"})]),
            id="where LocalQueues take turns",
        ),
        pytest.param(kueue(OLD, queues=None, local=[]), id="where the LocalQueue is not there"),
    ],
)
def test_a_position_that_is_not_known_is_not_made_up(here):
    assert hold(here, "old").position is None


def test_the_quota_with_what_is_borrowed_and_what_the_cohort_has():
    mine = cluster_queue(mem=20, used=25, borrowed=5, cohortName="lab", borrowing_limit=10)
    lends = cluster_queue("lends", mem=40, used=30, cohortName="lab")
    apart = cluster_queue("apart", mem=40, used=1)
    found = hold(kueue(workload("w", why=IN_USE, requests=ASKS), queues=[mine, lends, apart]))
    (quota,) = found.quotas
    assert (quota.resource, quota.flavor, quota.nominal, quota.used, quota.borrowed) == (MEMORY, "any", "20", "25", "5")
    assert (quota.borrowing_limit, quota.cohort, quota.cohort_queues) == ("10", "lab", 2)
    assert (quota.cohort_nominal, quota.cohort_used) == ("60", "55")
    assert found.cohort == "lab"


def test_queues_without_a_cohort_lend_nothing_to_each_other():
    here = kueue(
        workload("w", why=IN_USE, requests=ASKS),
        workload("apart", admitted={MEMORY: "10"}, in_queue="apart"),
        queues=[cluster_queue(), cluster_queue("apart", used=10)],
    )
    found = hold(here)
    assert ([each.cohort_queues for each in found.quotas], found.held_by) == ([1], [])


def test_the_quota_of_what_kueue_names_is_shown_beside_that_of_gpu_memory():
    message = IN_USE.replace(MEMORY, "cpu")
    found = hold(kueue(workload("w", why=message, requests=ASKS)))
    assert [each.resource for each in found.quotas] == ["cpu", MEMORY]
    assert [each.resource for each in hold(kueue(workload("w", why=IN_USE, requests=ASKS))).quotas] == [MEMORY]


def test_who_holds_the_quota_the_longest_first():
    mine, lends = (cluster_queue(name, cohortName="lab") for name in ("gpus", "lends"))
    there = [
        workload("w", why=IN_USE, requests=ASKS),
        workload("young", age=10, admitted={MEMORY: "10"}),
        workload("old", age=900, admitted={MEMORY: "20", "cpu": "3"}, in_queue="lends"),
        workload("cpu", admitted={"cpu": "3"}),
        workload("apart", admitted={MEMORY: "10"}, in_queue="apart"),
        workload("done", admitted={MEMORY: "10"}, conditions=[said("Finished", "True")]),
    ]
    found = hold(kueue(*there, queues=[mine, lends, cluster_queue("apart")])).held_by
    assert [(each.owner, each.cluster_queue, each.holds) for each in found] == [
        ("Job old", "lends", {MEMORY: "20"}),
        ("Job young", "gpus", {MEMORY: "10"}),
    ]
    assert found[0].since == NOW - timedelta(seconds=900)


def test_who_a_workload_made_way_for():
    message = "Preempted to accommodate a workload (UID: wl-urgent, JobUID: uid-urgent) due to prioritization"
    low = workload("w", conditions=[said("Evicted", "True", "Preempted", message, ago=30)])
    found = hold(kueue(low, workload("urgent", admitted=ASKS)))
    assert found.evicted == f"Preempted: {message}; that is Workload team-a/job-urgent"
    assert hold(kueue(low)).evicted == f"Preempted: {message}"
    assert found.since == found.evicted_at == NOW - timedelta(seconds=30)


def test_nobody_is_in_the_way_of_what_could_never_be_admitted():
    runs = workload("runs", admitted={MEMORY: "10"})
    here = kueue(workload("w", why=TOO_MUCH, requests={MEMORY: "40"}), runs)
    assert hold(here).held_by == []


@pytest.mark.parametrize(
    "found, charged",
    [
        pytest.param(workload("w", requests={"cpu": "500m", MEMORY: "5"}), {MEMORY: "5", "cpu": "500m"}, id="counted"),
        pytest.param(
            workload("w", admitted={MEMORY: "10", "memory": "2Gi"}), {MEMORY: "10", "memory": "2Gi"}, id="has"
        ),
        pytest.param(
            workload("w", limits=[{NVIDIA: "1"}, {NVIDIA: "2", "cpu": "1"}], count=3),
            {NVIDIA: "9"},
            id="not considered yet: the GPU resources of its template",
        ),
    ],
)
def test_what_is_charged(found, charged):
    assert hold(kueue(found)).requests == charged


def gated(name, **labels):
    made = pod(name, "1g.5gb", gates=["kueue.x-k8s.io/admission"], phase="Pending")
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, labels=labels))


@pytest.mark.parametrize(
    "here, labels, headline",
    [
        pytest.param(
            None,
            {},
            "held by Kueue: this cluster serves none of Kueue's objects (v1beta2); install Kueue, or create the pod "
            "again without it",
            id="no Kueue",
        ),
        pytest.param(
            kueue(),
            {"kueue.x-k8s.io/queue-name": "team"},
            "held by Kueue, in LocalQueue team: no Workload of it exists; does Kueue run, and does it manage each pod? "
            "Its log says why it made none",
            id="no Workload",
        ),
        pytest.param(
            kueue(),
            {"kueue.x-k8s.io/pod-group-name": "four"},
            "held by Kueue: no Workload of its pod group four exists; Kueue makes one when all ? pods of the group are "
            "there, all in one queue",
            id="a group that is not complete",
        ),
        pytest.param(
            KueueSnapshot(workloads=None, not_read=["grant it"]),
            {},
            "held by Kueue: its Workload may not be read",
            id="forbidden",
        ),
    ],
)
def test_a_held_pod_without_a_workload(here, labels, headline):
    found = KueueHolds(here, NOW).of_pod(gated("w", **labels))
    assert (found.headline, found.state) == (headline, AdmissionState.UNKNOWN)


def test_a_pod_is_held_by_its_own_workload():
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "w", "uid": "uid-w"}
    here = kueue(workload("w", why=IN_USE, requests=ASKS, owner=owner), workload("other"))
    assert KueueHolds(here, NOW).of_pod(gated("w")).workload == "team-a/job-w"
