"""Pods that ask for slices, through the real API server."""

import asyncio

import msgspec
import pytest
import workloads
from workloads import SLICE, pod

from instaslice.api import names
from instaslice.kube import errors
from instaslice.kube.core import PODS
from instaslice.kube.meta import Key
from instaslice.webhook.manifests import CONFIGURATIONS

GIVEN = {"gpu.das.com/mig-1g.5gb": "1", names.MEMORY: "5"}


def gates(made):
    return [gate.name for gate in made.spec.scheduling_gates or ()]


@pytest.mark.parametrize("field", ["limits", "requests"])
async def test_a_pod_with_a_slice_is_gated_and_renamed(client, registered, field):
    asked = pod(registered.namespace, "train")
    asked["spec"]["containers"][0]["resources"] = {field: SLICE}
    made = await client.create(PODS, asked)
    assert gates(made) == [names.GATE]
    assert made.spec.containers[0].resources.limits == GIVEN
    assert made.spec.containers[0].resources.requests == GIVEN
    assert made.metadata.annotations[names.REQUESTED] == '{"main":{"nvidia.com/mig-1g.5gb":1}}'


async def test_init_containers_and_sidecars_are_seen(client, registered):
    resources = {"resources": {"limits": SLICE}, "image": "none"}
    init = [{"name": "warm", **resources}, {"name": "side", "restartPolicy": "Always", **resources}]
    made = await client.create(PODS, pod(registered.namespace, "train", initContainers=init))
    assert gates(made) == [names.GATE]
    assert [each.resources.limits for each in made.spec.init_containers] == [GIVEN, GIVEN]


async def test_our_own_resource_name_is_taken_too(client, registered):
    made = await client.create(PODS, pod(registered.namespace, "train", {"gpu.das.com/mig-1g.5gb.me": "1"}))
    assert gates(made) == [names.GATE]
    assert made.spec.containers[0].resources.limits == {"gpu.das.com/mig-1g.5gb.me": "1", names.MEMORY: "5"}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job"])
async def test_the_pods_of_a_workload_are_gated(client, registered, kind):
    await client.create(workloads.WORKLOADS[kind], workloads.workload(kind, registered.namespace, SLICE))
    made = await workloads.first_pod(client, registered.namespace, kind.lower())
    assert gates(made) == [names.GATE]


async def test_a_name_that_the_server_makes_up_is_no_hindrance(client, registered):
    asked = pod(registered.namespace, "", SLICE)
    asked["metadata"]["generateName"] = "train-"
    made = await workloads.create(client, asked)
    assert made["metadata"]["name"].startswith("train-")
    assert made["spec"]["schedulingGates"] == [{"name": names.GATE}]


async def test_other_pods_never_reach_us(client, registered):
    for number, limits in enumerate([None, {"cpu": "1"}, {"nvidia.com/gpu": "1"}, {"example.com/mig-1g.5gb": "1"}]):
        made = await client.create(PODS, pod(registered.namespace, f"other-{number}", limits))
        assert gates(made) == []
    made = await client.create(PODS, pod(registered.namespace, "train", SLICE))
    await client.merge(PODS, Key(registered.namespace, "train"), {"metadata": {"labels": {"step": "2"}}})
    assert registered.asked == 1


async def test_a_namespace_can_be_opted_out(client, registered):
    made = await workloads.opt_out(client, registered.namespace)
    assert made.spec.containers[0].resources.limits == SLICE


@pytest.mark.parametrize(
    "limits, more, message",
    [
        pytest.param({"nvidia.com/mig-3g.21gb": "1"}, {}, "did you mean 3g.20gb", id="no such profile"),
        pytest.param({"nvidia.com/mig-1g.5gb": "1.5"}, {}, "1500m is not a number of slices", id="half a slice"),
        pytest.param({"nvidia.com/mig-1g.5gb": "113"}, {}, "more than any node can hold", id="too many"),
        pytest.param(SLICE, {"annotations": {names.MIG_UUIDS: "x"}}, "ours to write", id="a forged annotation"),
        pytest.param(SLICE, {"nodeName": "node-0"}, "use a nodeSelector", id="bound by hand"),
        pytest.param({"nvidia.com/MIG-1g.5gb": "1"}, {}, "write nvidia.com/mig-1g.5gb", id="in capitals"),
        pytest.param({"nvidia.com/mig-": "1"}, {}, "names no profile", id="no profile"),
        pytest.param({"nvidia.com/mig-1g.5gb.shared": "1"}, {}, "share in time", id="shared in time"),
    ],
)
async def test_a_pod_that_cannot_be_right_is_told_why(client, registered, limits, more, message):
    with pytest.raises(errors.BadRequest) as caught:
        await client.create(PODS, pod(registered.namespace, "train", limits, **more))
    assert 'admission webhook "slices.gpu.das.com" denied the request: pod ' in str(caught.value)
    assert f"{registered.namespace}/train: " in str(caught.value)
    assert message in str(caught.value)


async def test_a_variable_that_reaches_past_the_slice_and_a_split_request_are_told_too(client, registered):
    asked = pod(registered.namespace, "train", SLICE)
    asked["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    with pytest.raises(errors.BadRequest, match="sets NVIDIA_VISIBLE_DEVICES"):
        await client.create(PODS, asked)
    asked = pod(registered.namespace, "train", SLICE)
    asked["spec"]["containers"][0]["resources"]["requests"] = {"nvidia.com/mig-1g.5gb": "2"}
    with pytest.raises(errors.BadRequest, match="1 in limits and 2 in requests"):
        await client.create(PODS, asked)


async def test_a_dry_run_shows_the_pod_and_makes_nothing(client, registered):
    shown = await workloads.create(client, pod(registered.namespace, "train", SLICE), dry_run=True)
    assert shown["spec"]["schedulingGates"] == [{"name": names.GATE}]
    with pytest.raises(errors.NotFound):
        await client.get(PODS, Key(registered.namespace, "train"))


async def test_being_asked_twice_changes_nothing(client, registered):
    first = await client.raw("GET", CONFIGURATIONS.path(name=registered.configuration))
    hooks = msgspec.json.decode(first)["webhooks"]
    again = f"zz-{registered.configuration}"
    await client.create(CONFIGURATIONS, {"metadata": {"name": again}, "webhooks": hooks})
    asked = pod(registered.namespace, "train", SLICE)
    try:
        async with asyncio.timeout(60):
            while registered.asked < 2:
                registered.webhook.answered.clear()
                made = await workloads.create(client, asked, dry_run=True)
    finally:
        await client.delete(CONFIGURATIONS, Key("", again))
    assert made["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert made["spec"]["containers"][0]["resources"] == {"limits": GIVEN, "requests": GIVEN}
    assert registered.webhook.answered == {"changed": 1, "unchanged": 1}


async def test_a_pod_can_be_applied_again(client, registered):
    """From the file that it was made from, which asks by the name that we replaced."""
    document = pod(registered.namespace, "train", SLICE, tolerations=[{"key": "mine", "operator": "Exists"}])
    first = await client.apply(PODS, document, manager="ann")
    document["metadata"]["labels"] = {"step": "2"}
    again = await client.apply(PODS, document, manager="ann")
    assert again.metadata.labels == {"step": "2"}
    assert again.spec.containers == first.spec.containers
    assert names.MANAGED in [each.key for each in again.spec.tolerations]


@pytest.mark.parametrize("field", ["limits", "requests"])
async def test_a_pod_that_asks_for_zero_slices_is_one_like_any_other(client, registered, field):
    """Also when it is applied again, from the file that names them."""
    document = pod(registered.namespace, "notebook")
    document["spec"]["containers"][0]["resources"] = {field: {"nvidia.com/mig-1g.5gb": "0", "cpu": "1"}}
    made = await client.apply(PODS, document, manager="ann")
    assert gates(made) == []
    assert names.REQUESTED not in made.metadata.annotations
    assert not made.spec.tolerations or names.MANAGED not in [each.key for each in made.spec.tolerations]
    resources = made.spec.containers[0].resources
    assert "nvidia.com/mig-1g.5gb" not in {*resources.limits, *resources.requests}
    document["metadata"]["labels"] = {"step": "2"}
    again = await client.apply(PODS, document, manager="ann")
    assert again.metadata.labels == {"step": "2"}
    assert again.spec.containers == made.spec.containers


async def test_a_variable_that_hides_gpus_is_let_in(client, registered):
    asked = pod(registered.namespace, "train", SLICE)
    asked["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    assert gates(await client.create(PODS, asked)) == [names.GATE]
