"""What `explain`, `status` and `doctor` say of pods and Jobs that Kueue holds, by Kueue's own objects."""

from datetime import UTC, datetime

import msgspec
from commands import instaslice

from instaslice.kube.meta import Key
from instaslice.kueue.hold import KueueHolds
from instaslice.kueue.objects import CLUSTER_QUEUES, LOCAL_QUEUES
from instaslice.kueue.snapshot import KueueSnapshot
from instaslice.kueue.workload_state import condition_of_workload

MEMORY = "gpu.das.com/mem"
HELD = "held by Kueue"


async def refused(stage, owner, words):
    """The Workload of a pod or Job once Kueue has said that it does not get its quota, in these words."""

    def find():
        found = stage.workload(owner)
        said = condition_of_workload(found, "QuotaReserved") if found else None
        return found if said is not None and words in said.message else None

    return await stage.until(f"{words!r} of {owner}", find)


async def test_who_waits_for_quota_is_told_the_position_and_who_holds_it(stage, queued):
    async def json(*words):
        told = await instaslice(queued.kubeconfig, *words, "-o", "json")
        assert told.returncode == 0, told.stderr
        return msgspec.json.decode(told.stdout)

    here = "-n", stage.namespace
    await stage.some_nodes(1)
    await stage.priorities(high=10)
    await stage.queue(10)
    await stage.job("first", "1g.10gb")
    await stage.job_runs("first")
    await stage.job("patient", "2g.10gb")
    patient = await refused(stage, "patient", f"insufficient unused quota for {MEMORY}")
    await stage.create(stage.queued_pod("urgent", priority="high"))
    await refused(stage, "urgent", f"insufficient unused quota for {MEMORY}")

    await stage.charged(10, pending=2)

    told = await json("explain", "pod/urgent", *here)
    assert (told["stage"], told["asks"]) == (HELD, {"1g.5gb": 1})
    kueue = told["kueue"]
    assert (kueue["state"], kueue["reason"], kueue["position"], kueue["pending"]) == ("pending", "Pending", 1, 2)
    assert kueue["requests"][MEMORY] == "5"
    assert [(each["used"], each["nominal"]) for each in kueue["quotas"]] == [("10", "10")]
    assert [(each["owner"], each["holds"]) for each in kueue["held_by"]] == [("Job first", {MEMORY: "10"})]

    text = (await instaslice(queued.kubeconfig, "explain", "job/patient", *here)).stdout
    assert text.startswith(f"job {stage.namespace}/patient: has no pods: {HELD}, 2nd of 2 in ClusterQueue ")
    assert f"  held by   Workload {stage.namespace}/{stage.workload('first').metadata.name} (Job first)" in text
    named = (await instaslice(queued.kubeconfig, "explain", f"workload/{patient.metadata.name}", *here)).stdout
    assert named.splitlines()[0].removeprefix(f"workload {stage.namespace}/{patient.metadata.name}: ") in text

    waiting = {each["pod"]: each for each in (await json("status"))["waiting"]}
    urgent = waiting[f"{stage.namespace}/urgent"]
    assert (urgent["stage"], urgent["position"]) == (HELD, None)
    assert urgent["message"] == f"{HELD}, 1st of 2 in ClusterQueue {kueue['cluster_queue']}: {kueue['message']}"

    await stage.delete_job("first")
    await stage.running("urgent")
    assert (await json("explain", "pod/urgent", *here))["stage"] == "running"


async def test_the_pods_of_a_deployment_are_held_one_by_one(stage, queued):
    await stage.some_nodes(1)
    await stage.queue(5)
    await stage.deployment("web", replicas=2)
    await stage.charged(5, pending=1)
    told = await instaslice(queued.kubeconfig, "explain", "deploy/web", "-n", stage.namespace, "-o", "json")
    stages = {each["pod"]: each for each in msgspec.json.decode(told.stdout)["pods"]}
    held = [each["kueue"] for each in stages.values() if each["stage"] == HELD]
    assert [(each["position"], each["pending"]) for each in held] == [(1, 1)]


async def test_what_keeps_a_workload_from_ever_being_admitted_is_found(stage, queued):
    """By `explain` with the remedy, and by `doctor`, but for a queue that somebody has stopped."""
    flavor = {"name": stage.namespace, "resources": [{"name": name, "nominalQuota": 100} for name in ("cpu", "memory")]}
    cpus = {"coveredResources": ["cpu", "memory"], "flavors": [flavor]}
    await stage.queue(10, name="cpus", resourceGroups=[cpus])
    await stage.queue(10, name="others", namespaceSelector={"matchLabels": {"team": "b"}})
    await stage.queue(10, name="small")
    await stage.queue(10, name="off")
    await stage.client.merge(CLUSTER_QUEUES, Key("", stage.cluster_queue("off").metadata.name), HOLD)
    lost = {"metadata": {"namespace": stage.namespace, "name": "lost"}, "spec": {"clusterQueue": "nowhere"}}
    await stage.client.create(LOCAL_QUEUES, lost)
    told = {
        "cpus": ("unavailable in ClusterQueue", f"has no quota of {MEMORY}; add {MEMORY} to its coveredResources"),
        "others": ("doesn't match", "label the namespace as its namespaceSelector says (team=b)"),
        "small": ("maximum capacity (10)", "no workload that ends helps: ask for less, or raise the quota"),
        "off": ("is inactive", """--type merge -p '{"spec":{"stopPolicy":"None"}}'"""),
        "lost": ("nowhere", "ClusterQueue nowhere does not exist; create it"),
        "none": ("none", f"LocalQueue none does not exist in namespace {stage.namespace}; create it"),
    }
    for queue in told:
        await stage.job(queue, "2g.10gb" if queue != "small" else "7g.40gb", queue=queue)
    for queue, (message, _) in told.items():
        await refused(stage, queue, message)
    kueue = await KueueSnapshot.read(stage.client)
    for queue, (_, remedy) in told.items():
        workload = kueue.workload_of(stage.jobs.get(Key(stage.namespace, queue)).metadata.uid)
        assert remedy in KueueHolds(kueue, datetime.now(UTC)).of(workload).headline
    found = (await instaslice(queued.kubeconfig, "doctor")).stdout
    mine = {queue for queue in told if f"(Job {queue}) is never admitted" in found}
    assert mine == told.keys() - {"off"}, found
    await stage.client.delete(LOCAL_QUEUES, Key(stage.namespace, "lost"))


HOLD = {"spec": {"stopPolicy": "Hold"}}
