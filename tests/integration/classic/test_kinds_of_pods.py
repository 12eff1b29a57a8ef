"""What a pod may look like: several containers, several slices, other names for them, and whoever made it."""

from collections import Counter

import pytest
from stage import STORY, container, pod

from instaslice.api import names
from instaslice.kube.core import PartialObjectMetadata
from instaslice.kube.meta import Key
from instaslice.kube.resource import Resource

WORKLOADS = {
    "Deployment": Resource(PartialObjectMetadata, "Deployment", "deployments", group="apps"),
    "StatefulSet": Resource(PartialObjectMetadata, "StatefulSet", "statefulsets", group="apps"),
    "Job": Resource(PartialObjectMetadata, "Job", "jobs", group="batch"),
}


def sidecar(name, slices):
    return {**container(name, slices), "restartPolicy": "Always"}


@pytest.mark.parametrize(
    "spec, wanted",
    [
        pytest.param(
            {"containers": [container("a", "1g.5gb"), container("b", "3g.20gb")]},
            [("a", "1g.5gb"), ("b", "3g.20gb")],
            id="two containers with different profiles",
        ),
        pytest.param({"slices": {"2g.10gb": 2}}, [("main", "2g.10gb")] * 2, id="two of one profile"),
        pytest.param(
            {"slices": {"1g.5gb": 2, "3g.20gb": 1}},
            [("main", "1g.5gb"), ("main", "1g.5gb"), ("main", "3g.20gb")],
            id="two profiles in one container",
        ),
        pytest.param(
            {
                "initContainers": [sidecar("helper", "1g.5gb"), container("prepare", "2g.10gb")],
                "containers": [container("main", "2g.10gb"), container("plain", {})],
            },
            [("helper", "1g.5gb"), ("main", "2g.10gb")],
            id="an init container uses what its successor gets, a sidecar has its own",
        ),
        pytest.param(
            {"initContainers": [container("prepare", "3g.20gb")], "containers": [container("main", "1g.5gb")]},
            [("main", "1g.5gb"), ("prepare", "3g.20gb")],
            id="an init container that needs another profile",
        ),
        pytest.param({"slices": {"gpu.das.com/mig-1g.5gb": 1}}, [("main", "1g.5gb")], id="by our own name"),
        pytest.param({"slices": {"nvidia.com/mig-1g.5gb.me": 1}}, [("main", "1g.5gb+me")], id="with media engines"),
    ],
)
async def test_a_pod_holds_all_that_it_asked_for(stage, spec, wanted):
    node = await stage.node(gpus=1)
    await stage.create(pod("asks", **spec))
    (running,) = await stage.running("asks")
    held = stage.held("asks")
    assert sorted((each.container, each.profile) for each in held) == wanted
    assert running.spec.node_name == node
    assert len(set(running.metadata.annotations[names.MIG_UUIDS].split(","))) == len(wanted)


async def test_all_slices_of_a_pod_or_none(stage):
    """There are three places for 2g.10gb: the third is of no use to a pod that wants two."""
    await stage.node(gpus=1)
    await stage.create(pod("first", {"2g.10gb": 2}))
    await stage.running("first")
    await stage.create(pod("second", {"2g.10gb": 2}))
    await stage.waits("second")
    assert not stage.held("second")
    await stage.delete("first")
    await stage.running("second")


async def test_slices_of_one_pod_may_lie_on_several_gpus_of_one_node(stage):
    await stage.some_nodes(2, gpus=2)
    await stage.create(pod("large", {"7g.40gb": 2}))
    await stage.running("large")
    assert len({each.gpu for each in stage.held("large")}) == 2
    assert len([name for name in stage.own if stage.thing(name).spec.allocations]) == 1


async def test_only_one_slice_of_a_gpu_has_the_media_engines(stage):
    await stage.node(gpus=1)
    await stage.create(pod("first", "1g.5gb.me"))
    await stage.running("first")
    await stage.create(pod("second", "1g.5gb.me"))
    assert "1g.5gb+me" in await stage.waits("second")
    await stage.create(pod("plain"))
    await stage.running("plain")
    await stage.delete("first")
    await stage.running("second")


async def test_a_pod_whose_name_the_server_makes_up(stage):
    await stage.node()
    nameless = pod("")
    nameless["metadata"] = {"generateName": "made-up-"}
    (made,) = await stage.create(nameless)
    assert made.metadata.name.startswith("made-up-")
    await stage.running(made.metadata.name)


def workload(stage, kind, replicas, **played):
    labels = {"app": kind.lower()}
    template = pod("", **played)
    template["metadata"] |= {"labels": labels}
    del template["metadata"]["name"]
    template["spec"]["nodeSelector"] = {STORY: stage.namespace}
    if kind == "Job":
        spec = {"template": template, "completions": replicas, "parallelism": replicas}
    else:
        template["spec"]["restartPolicy"] = "Always"
        spec = {"template": template, "selector": {"matchLabels": labels}, "replicas": replicas}
    if kind == "StatefulSet":
        spec |= {"serviceName": "none", "podManagementPolicy": "Parallel"}
    return {"metadata": {"namespace": stage.namespace, "name": kind.lower()}, "spec": spec}


async def phases(stage, app, **wanted):
    """Return once the pods of a workload are in just these phases."""

    def find():
        mine = [each for each in stage.pods if each.metadata.labels.get("app") == app]
        return Counter(each.status.phase for each in mine) == Counter(wanted)

    await stage.until(f"{app} {wanted}", find)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
async def test_a_workload_is_scaled_up_past_the_room_and_down_again(stage, kind):
    await stage.node(gpus=1)
    key, app = Key(stage.namespace, kind.lower()), kind.lower()
    await stage.client.create(WORKLOADS[kind], workload(stage, kind, 2))
    await phases(stage, app, Running=2)
    await stage.client.merge(WORKLOADS[kind], key, {"spec": {"replicas": 9}})
    await phases(stage, app, Running=7, Pending=2)
    assert len(stage.held()) == 7
    await stage.client.merge(WORKLOADS[kind], key, {"spec": {"replicas": 3}})
    await phases(stage, app, Running=3)
    await stage.client.merge(WORKLOADS[kind], key, {"spec": {"replicas": 7}})
    await phases(stage, app, Running=7)
    await stage.client.delete(WORKLOADS[kind], key)
    await phases(stage, app)
    await stage.free()


async def test_a_job_of_ten_pods_ends_though_only_seven_fit_at_once(stage):
    await stage.node(gpus=1)
    await stage.client.create(WORKLOADS["Job"], workload(stage, "Job", 10, run_for="1s"))
    await phases(stage, "job", Succeeded=10)
    await stage.free()
    assert all(each.metadata.annotations[names.MIG_UUIDS] for each in stage.pods)
