"""What Kueue charges against what pods hold: nothing to say where both agree, a finding for each way they do not."""

import msgspec
import pytest
from memory_server import MemoryServer
from small_worlds import allocation, instaslice, pod, world

from instaslice.doctor import Invariant, KueueQuota, examine_queues
from instaslice.kueue.objects import ClusterQueue, KueueWorkload

OURS = "gpu.das.com/mig-1g.5gb"
NVIDIAS = "nvidia.com/mig-1g.5gb"
MEMORY = "gpu.das.com/mem"


def container(**resources):
    return {"name": "main", "resources": {"requests": {name: str(count) for name, count in resources.items()}}}


def workload(name, charged, *containers, count=1, pods=None, queue="gpu", initial=(), ended=False, **status):
    """Of a pod or Job of that name; `charged` is None where it has no quota."""
    template = {"spec": {"containers": list(containers), "initContainers": list(initial)}}
    if charged is not None:
        usage = {} if charged == 0 else {MEMORY: str(charged)}
        assigned = {"name": "main", "count": pods, "flavors": {MEMORY: "gpu"}, "resourceUsage": usage}
        status["admission"] = {"clusterQueue": queue, "podSetAssignments": [assigned]}
    if ended:
        status["conditions"] = [{"type": "Finished", "status": "True"}]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}
    document = {
        "metadata": {"namespace": "team-a", "name": f"of-{name}", "ownerReferences": [owner]},
        "spec": {"podSets": [{"name": "main", "count": count, "template": template}]},
        "status": status,
    }
    return msgspec.convert(document, KueueWorkload)


def queue(used, *, covered=MEMORY, name="gpu"):
    reserved = [{"name": "gpu", "resources": [{"name": "cpu", "total": "9"}, {"name": MEMORY, "total": str(used)}]}]
    document = {
        "metadata": {"name": name},
        "spec": {"resourceGroups": [{"coveredResources": ["cpu", covered], "flavors": []}]},
        "status": {"flavorsReservation": reserved},
    }
    return msgspec.convert(document, ClusterQueue)


def found(queues, workloads, cluster=None):
    return examine_queues(KueueQuota(queues, workloads), cluster or world())


def told(*args):
    return [f"{each.object}: {each.message}" for each in found(*args)]


WELL = [
    pytest.param(5, [container(**{NVIDIAS: 1})], {}, id="template of a Job"),
    pytest.param(5, [container(**{OURS: 1, MEMORY: 5})], {}, id="stored pod"),
    pytest.param(15, [container(**{NVIDIAS: 1})], {"count": 3}, id="three pods of a Job"),
    pytest.param(10, [container(**{NVIDIAS: 1})], {"count": 3, "pods": 2}, id="two of three pods admitted"),
    pytest.param(8, [container(**{MEMORY: 8})], {}, id="by memory alone"),
    pytest.param(8, [container(**{MEMORY: 8, "gpu.das.com/mig-any": 1})], {}, id="the pod of that"),
    pytest.param(0, [container(cpu=1)], {}, id="no slices"),
    pytest.param(
        25,
        [container(**{NVIDIAS: 1})],
        {"initial": [container(**{"nvidia.com/mig-3g.20gb": 1})]},
        id="two profiles in turn",
    ),
    pytest.param(
        20,
        [container(**{OURS: 1, MEMORY: 5})],
        {"initial": [container(**{"gpu.das.com/mig-3g.20gb": 1, MEMORY: 20})]},
        id="the pod of that",
    ),
    pytest.param(9, [container(**{"nvidia.com/mig-none": 1})], {}, id="a name that nobody understands"),
]


@pytest.mark.parametrize("charged, containers, more", WELL)
def test_what_is_charged_once_is_no_finding(charged, containers, more):
    assert found([queue(charged)], [workload("train", charged, *containers, **more)]) == []


@pytest.mark.parametrize(
    "charged, containers, message",
    [
        pytest.param(
            10,
            [container(**{NVIDIAS: 1, MEMORY: 5})],
            "is charged 10 GB of GPU memory (gpu.das.com/mem) for slices of 5 GB: a container of its template names "
            "gpu.das.com/mem beside a profile; leave it out and create it again",
            id="profile and memory in a template",
        ),
        pytest.param(
            0,
            [container(**{OURS: 1})],
            "is charged 0 GB of GPU memory (gpu.das.com/mem) for slices of 5 GB: its template names gpu.das.com/mig-*, "
            "which costs nothing; write nvidia.com/mig-* there",
            id="our name in a template",
        ),
        pytest.param(
            0,
            [container(**{NVIDIAS: 1})],
            "is charged 0 GB of GPU memory (gpu.das.com/mem) for slices of 5 GB; compare Kueue's configuration with "
            "`instaslice kueue manifests --config`, and restart Kueue",
            id="a profile that the configuration does not have",
        ),
        pytest.param(
            10,
            [container(**{OURS: 1, MEMORY: 5})],
            "is charged 10 GB of GPU memory (gpu.das.com/mem) for slices of 5 GB; compare Kueue's configuration with "
            "`instaslice kueue manifests --config`, and restart Kueue",
            id="a pod charged for its name and for its memory",
        ),
        pytest.param(
            16,
            [container(**{"gpu.das.com/mig-any": 1, MEMORY: 8})],
            "is charged 16 GB of GPU memory (gpu.das.com/mem) for slices of 8 GB; compare Kueue's configuration with "
            "`instaslice kueue manifests --config`, and restart Kueue",
            id="a pod by memory alone",
        ),
    ],
)
def test_what_is_charged_twice_or_not_at_all_is_found(charged, containers, message):
    assert told([queue(charged)], [workload("train", charged, *containers)]) == [f"workload team-a/of-train: {message}"]


@pytest.mark.parametrize(
    "queues, workloads",
    [
        pytest.param([], [], id="no Kueue"),
        pytest.param(
            [queue(0, covered="example.com/fpga")],
            [workload("train", 0, container(**{NVIDIAS: 1}))],
            id="a queue that does not count GPU memory",
        ),
        pytest.param([queue(0)], [workload("train", 7, container(**{NVIDIAS: 1}), ended=True)], id="it has ended"),
    ],
)
def test_what_is_not_for_us_is_no_finding(queues, workloads):
    cluster = world(
        pods=[pod("train", "1g.5gb", on="gpu-0")], instaslices=[instaslice(allocation("train", "1g.5gb", 0))]
    )
    assert found(queues, workloads, cluster) == []


def holding(name="train", **more):
    made = pod(name, "1g.5gb", on="gpu-0", **more)
    return world(pods=[made], instaslices=[instaslice(allocation(name, "1g.5gb", 0))])


def test_slices_that_are_held_without_quota_are_found():
    (finding,) = found([queue(0)], [workload("train", None, container(**{OURS: 1, MEMORY: 5}))], holding())
    assert (finding.invariant, finding.object, finding.transient) == (Invariant.QUEUE_CHARGED, "pod team-a/train", True)
    assert "holds slices, and its workload team-a/of-train has no quota" in finding.message
    assert "Delete the pod" in finding.message


def test_a_pod_that_kueue_has_just_evicted_is_none_of_them():
    assert found([queue(0)], [workload("train", None, container(**{OURS: 1, MEMORY: 5}))], holding(deleted=True)) == []


def test_a_pod_of_a_queue_without_a_workload_is_found():
    cluster = holding()
    managed = msgspec.structs.replace(cluster.pods[0].metadata, labels={"kueue.x-k8s.io/managed": "true"})
    cluster = world(pods=[msgspec.structs.replace(cluster.pods[0], metadata=managed)], instaslices=cluster.instaslices)
    (line,) = told([queue(0)], [], cluster)
    assert "pod team-a/train: holds slices, and Kueue has no workload for it" in line
    assert told([queue(0)], [], holding()) == []


def test_a_queue_that_reports_another_sum_is_found():
    one = workload("train", 5, container(**{NVIDIAS: 1}))
    (finding,) = found([queue(10)], [one])
    assert finding.transient
    assert "says that 10 GB of GPU memory are in use, and its workloads are charged 5 GB" in finding.message


def test_pods_that_have_ended_are_not_charged_any_more():
    ended = [{"name": "main", "count": 1}]
    job = workload("train", 15, container(**{NVIDIAS: 1}), count=3, pods=3, reclaimablePods=ended)
    assert found([queue(10)], [job]) == []


def test_what_may_not_be_read_is_said_and_judged_no_further():
    assert found(None, None, holding()) == []
    assert told([queue(5)], None, holding()) == []


async def test_where_kueue_is_not_installed_nothing_is_said():
    """Nobody else may be told either: who may not list a kind is refused it, also where there is none."""
    server = MemoryServer()
    server.refuse("GET", "", 404)
    assert await KueueQuota.read(server.client()) == KueueQuota()


async def test_what_may_not_be_read_is_a_finding_of_its_own():
    server = MemoryServer()
    server.refuse("GET", "workloads", 403)
    quota = await KueueQuota.read(server.client())
    assert (quota.queues, quota.workloads) == ([], None)
    (finding,) = examine_queues(quota, world())
    assert finding.invariant is Invariant.NOT_CHECKED
    assert "grant `list` on workloads.kueue.x-k8s.io" in finding.message
