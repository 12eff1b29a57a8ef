"""What the doctor finds of Kueue: what keeps workloads with slices from ever being admitted, and nothing else."""

import pytest
import yaml
from kueue_objects import IN_USE, MEMORY, NOT_COVERED, cluster_queue, kueue, said, workload
from memory_server import MemoryServer
from small_worlds import NOW, instaslice

from instaslice.doctor import Finding, Invariant, KueueQuota, ObservedKueue, examine_kueue
from instaslice.doctor.observed_kueue import CONFIGURATION, parsed_configuration
from instaslice.kube.core import CONFIG_MAPS, ConfigMap
from instaslice.kube.meta import ObjectMeta
from instaslice.kueue import configuration as shipped
from instaslice.kueue.objects import CLUSTER_QUEUES, KUEUE_WORKLOADS

NVIDIA = "nvidia.com/mig-1g.5gb"
OURS = "gpu.das.com/mig-1g.5gb"
SLICE = [{NVIDIA: "1"}]
POD = [{OURS: "1", MEMORY: "5"}]
CONFIG = "configmap kueue-system/kueue-manager-config"
FIX = "give Kueue what `instaslice kueue manifests --config` prints, and restart it"
OFF = said("Active", "False", "FlavorNotFound", "Can't admit new workloads: references missing ResourceFlavor(s): any.")
WAITS = "so Workload team-a/job-w (Job w) is never admitted"


def found(here, configuration=None):
    return [
        f"{each.object}: {each.message}"
        for each in examine_kueue(ObservedKueue(here, configuration), [instaslice()])
        if each.invariant is Invariant.QUEUE_ADMITS
    ]


def uncovered(name="w", resource=NVIDIA, **more):
    return workload(name, why=NOT_COVERED.format(resource), requests={resource: "1"}, **{"limits": SLICE, **more})


@pytest.mark.parametrize(
    "here, finding",
    [
        pytest.param(
            kueue(uncovered()),
            f"Kueue's configuration: ClusterQueue gpus has no quota of {NVIDIA}, and Kueue's configuration does not "
            f"replace it by {MEMORY}, {WAITS}; give Kueue the transformations that `instaslice kueue manifests "
            "--config` prints, and restart it",
            id="Kueue does not know what a profile costs",
        ),
        pytest.param(
            kueue(uncovered(resource=OURS, limits=POD)),
            f"Kueue's configuration: ClusterQueue gpus has no quota of {OURS}, and Kueue's configuration does not "
            f"exclude gpu.das.com/mig-*, {WAITS}; give Kueue the excluded prefix that `instaslice kueue manifests "
            "--config` prints, and restart it",
            id="Kueue counts what our webhook wrote",
        ),
        pytest.param(
            kueue(uncovered(resource=MEMORY), queues=[cluster_queue(covered=("cpu", "memory"))]),
            f"clusterqueue gpus: ClusterQueue gpus has no quota of {MEMORY}, {WAITS}; add {MEMORY} to its "
            "coveredResources with a quota, as `instaslice kueue manifests` prints it",
            id="a queue for cpu and memory alone",
        ),
        pytest.param(
            kueue(uncovered("w"), uncovered("x"), uncovered("y")),
            f"Kueue's configuration: ClusterQueue gpus has no quota of {NVIDIA}, and Kueue's configuration does not "
            f"replace it by {MEMORY}, so 3 Workloads are never admitted, team-a/job-w (Job w) among them; give Kueue "
            "the transformations that `instaslice kueue manifests --config` prints, and restart it",
            id="one finding for all that wait for the same",
        ),
        pytest.param(
            kueue(workload("w", limits=SLICE), queues=[cluster_queue(conditions=[OFF])]),
            "clusterqueue gpus: ClusterQueue gpus is inactive (FlavorNotFound: Can't admit new workloads: references "
            f"missing ResourceFlavor(s): any.), {WAITS}; create what it names, or take it out of the queue",
            id="a queue whose flavor is missing",
        ),
        pytest.param(
            kueue(workload("w", limits=SLICE, queue="none"), local=[]),
            f"localqueue team-a/none: LocalQueue none does not exist in namespace team-a, {WAITS}; create it",
            id="no such queue",
        ),
        pytest.param(
            kueue(
                workload(
                    "w", why=IN_USE, limits=[{NVIDIA: "1", MEMORY: "5"}], requests={MEMORY: "20"}, count=2, age=900
                )
            ),
            f"workload team-a/job-w: waits for 20 of {MEMORY}, and its slices have 10: its template names {MEMORY} "
            "beside the slices that it follows from; leave it out there",
            id="a template charged twice",
        ),
        pytest.param(
            kueue(workload("w", why=IN_USE, limits=POD, requests={MEMORY: "10"})),
            f"workload team-a/job-w: waits for 10 of {MEMORY}, and its slices have 5: Kueue's configuration charges "
            f"them more than once; {FIX}",
            id="a pod whose slices Kueue charges beside their memory",
        ),
    ],
)
def test_what_keeps_a_workload_from_ever_being_admitted(here, finding):
    assert found(here) == [finding]


@pytest.mark.parametrize(
    "here",
    [
        pytest.param(kueue(workload("w", why=IN_USE, limits=SLICE, requests={MEMORY: "5"})), id="a quota in use"),
        pytest.param(kueue(workload("w", limits=SLICE), queues=[cluster_queue(stopPolicy="Hold")]), id="stopped"),
        pytest.param(kueue(workload("w", limits=SLICE, spec={"active": False})), id="a workload that is off"),
        pytest.param(kueue(uncovered(limits=[{"cpu": "1"}], resource="example.com/x")), id="one without slices"),
        pytest.param(kueue(uncovered(conditions=[said("Finished", "True")])), id="one that has finished"),
        pytest.param(
            kueue(workload("w", limits=[{NVIDIA: "1"}, {MEMORY: "8"}], requests={MEMORY: "26"}, why=IN_USE, count=2)),
            id="memory of a container beside the one with the slice",
        ),
        pytest.param(
            kueue(
                workload(
                    "w",
                    limits=[{NVIDIA: "1", MEMORY: "5"}],
                    requests={MEMORY: "10"},
                    conditions=[said("Finished", "True")],
                )
            ),
            id="one that was to be charged twice, and has finished",
        ),
        pytest.param(
            kueue(workload("w", limits=[{NVIDIA: "1", MEMORY: "5"}], requests={MEMORY: "5"}, why=IN_USE)),
            id="memory that Kueue does not add",
        ),
        pytest.param(
            kueue(uncovered(), queues=[cluster_queue(covered=("cpu", NVIDIA))]),
            id="a queue with a quota of the profile itself",
        ),
        pytest.param(kueue(queues=[], local=[]), id="nothing in it"),
        pytest.param(None, id="no Kueue"),
    ],
)
def test_what_passes_or_was_decided_is_no_finding(here):
    assert found(here) == []


def configured(**resources):
    text = yaml.safe_dump({"kind": "Configuration", "resources": resources})
    made, why = parsed_configuration({"readme": "x: 1", "controller_manager_config.yaml": text})
    assert not why
    return made


SHIPPED = shipped.charging()


def test_the_configuration_that_we_ship_is_right():
    assert found(kueue(), configured(**SHIPPED)) == []


def changed(**outputs):
    """What we ship, with some transformations changed; None leaves one out."""
    entries = [
        {**each, **outputs.get(each["input"], {})}
        for each in SHIPPED["transformations"]
        if outputs.get(each["input"], {}) is not None
    ]
    return configured(**{**SHIPPED, "transformations": entries})


@pytest.mark.parametrize(
    "configuration, finding",
    [
        pytest.param(
            changed(**{NVIDIA: None, "nvidia.com/mig-7g.40gb": None}),
            f"does not replace {NVIDIA}, nvidia.com/mig-7g.40gb by {MEMORY}, so Jobs that ask for them are not "
            "admitted",
            id="transformations are missing",
        ),
        pytest.param(
            configured(excludeResourcePrefixes=["gpu.das.com/mig-"]),
            f"does not replace {NVIDIA}, nvidia.com/mig-1g.5gb.me, nvidia.com/mig-1g.10gb and 4 more by {MEMORY}, so "
            "Jobs that ask for them are not admitted",
            id="there are none",
        ),
        pytest.param(
            changed(**{NVIDIA: {"outputs": {MEMORY: "6"}}}),
            f"does not replace {NVIDIA} by the GB of {MEMORY} in the name, with strategy Replace",
            id="another amount",
        ),
        pytest.param(
            changed(**{NVIDIA: {"strategy": "Retain"}}),
            f"does not replace {NVIDIA} by the GB of {MEMORY} in the name, with strategy Replace",
            id="another strategy",
        ),
        pytest.param(
            changed(**{NVIDIA: {"outputs": {MEMORY: "five"}}}),
            f"does not replace {NVIDIA} by the GB of {MEMORY} in the name, with strategy Replace",
            id="no amount at all",
        ),
        pytest.param(
            configured(**{**SHIPPED, "excludeResourcePrefixes": ["example.com/"]}),
            "does not exclude gpu.das.com/mig-*, so plain pods with slices are not admitted",
            id="our names are not excluded",
        ),
    ],
)
def test_what_is_wrong_with_kueues_configuration(configuration, finding):
    assert found(kueue(), configuration) == [f"{CONFIG}: {finding}; {FIX}"]


def test_a_kueue_that_ignores_what_no_queue_covers_holds_nothing_for_that():
    assert found(kueue(), configured(quotaCheckStrategy="IgnoreUndeclared")) == []


def test_a_configuration_is_not_looked_at_where_nobody_queues_for_slices():
    here = kueue(workload("w", limits=[{"cpu": "1"}]), queues=[cluster_queue(covered=("cpu",))])
    assert found(here, configured()) == []


async def observed(server):
    client = server.client()
    return await ObservedKueue.read(client, await KueueQuota.read(client))


async def test_a_cluster_without_kueue_has_no_findings():
    server = MemoryServer()
    server.refuse("GET", "", 404, times=2)
    assert examine_kueue(await observed(server)) == []
    assert {each.kind for each in server.calls} == {""}


async def test_who_may_read_nothing_of_kueue_is_told_of_each_kind_once():
    server = MemoryServer()
    kinds = ("clusterqueues", "configmaps", "localqueues", "workloads")
    for kind in kinds:
        server.refuse("GET", kind, 403, times=9)
    client = server.client()
    quota = await KueueQuota.read(client)
    found = [*quota.not_checked, *examine_kueue(await ObservedKueue.read(client, quota))]
    assert {each.invariant for each in found} == {Invariant.NOT_CHECKED}
    assert sorted(each.object for each in found) == ["clusterqueues", CONFIG, "localqueues", "workloads"]


@pytest.mark.parametrize("text", ["kind: Configuration\nresources: 5", "a: [", "kind: Configuration\nresources: ["])
async def test_a_configuration_that_cannot_be_read_is_not_checked(text):
    server = MemoryServer()
    meta = ObjectMeta(namespace="kueue-system", name=CONFIGURATION.name)
    server.put(CONFIG_MAPS, ConfigMap(metadata=meta, data={"c": text}))
    (finding,) = examine_kueue(await observed(server))
    assert (finding.invariant, finding.object) == (Invariant.NOT_CHECKED, CONFIG)
    assert finding.message.startswith("cannot be read (")


async def test_what_is_there_is_read():
    server = MemoryServer(now=lambda: NOW)
    server.put(KUEUE_WORKLOADS, uncovered())
    server.put(CLUSTER_QUEUES, cluster_queue())
    (finding,) = examine_kueue(await observed(server))
    assert finding == Finding(
        Invariant.QUEUE_ADMITS,
        "localqueue team-a/team",
        f"LocalQueue team does not exist in namespace team-a, {WAITS}; create it",
    )
